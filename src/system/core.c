/* SPDX-License-Identifier: Apache-2.0 */
/* core.c - see core.h. */
#define _GNU_SOURCE /* sched_getcpu, sched_setaffinity */
#include "system/core.h"

#include <assert.h>
#include <sched.h>
#include <unistd.h>

static_assert(RS_CORES_MAX <= CPU_SETSIZE, "a set has all cores that are known");

int64_t rs_core_count(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        return CPU_COUNT(&allowed);
    int64_t all = sysconf(_SC_NPROCESSORS_ONLN);
    return all < 1 ? 1 : all;
}

int rs_core_now(void)
{
    int core = sched_getcpu();
    return core < RS_CORES_MAX ? core : -1;
}

bool rs_core_leave(const rs_cores *taken)
{
    cpu_set_t before, next;
    if (sched_getaffinity(0, sizeof before, &before) != 0)
        return false;
    CPU_ZERO(&next);
    for (size_t core = 0; core < RS_CORES_MAX; core++)
        if (CPU_ISSET(core, &before) && !taken->has[core])
            CPU_SET(core, &next);
    if (CPU_COUNT(&next) == 0 || sched_setaffinity(0, sizeof next, &next) != 0)
        return false;
    (void)sched_setaffinity(0, sizeof before, &before);
    return true;
}
