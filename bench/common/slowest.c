/* SPDX-License-Identifier: Apache-2.0 */
/* slowest.c - the maximum over all ranks. */
#include "bench/common/timing.h"

#include "cli/common/memory.h"

#include <stdlib.h>

reshard_status bench_take_slowest(reshard_group *group, double *seconds, int32_t runs)
{
    size_t each = (size_t)runs * sizeof(double);
    int32_t size = reshard_group_size(group);
    double *all = cli_allocate((size_t)size, each);
    reshard_status status = reshard_group_gather_bytes(group, seconds, each, all);
    for (int32_t rank = 0; rank < size && status == RESHARD_OK; rank++) {
        for (int32_t i = 0; i < runs; i++) {
            double other = all[(int64_t)rank * runs + i];
            seconds[i] = other > seconds[i] ? other : seconds[i];
        }
    }
    free(all);
    return status;
}
