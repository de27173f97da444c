/* SPDX-License-Identifier: Apache-2.0 */
/* slowest.h - the time of a run that all ranks measured. */
#ifndef BENCH_SLOWEST_H
#define BENCH_SLOWEST_H

#include <reshard/group.h>

#include <stdint.h>

/* Replaces the seconds of each run by the maximum over all ranks, on all ranks. The maximum is the
 * right time because, if ranks share processors, a rank may leave the barrier that starts its clock
 * only after others have already begun. Collective. */
reshard_status bench_take_slowest(reshard_group *group, double *seconds, int32_t runs);

#endif
