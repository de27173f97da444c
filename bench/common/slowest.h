/* SPDX-License-Identifier: Apache-2.0 */
/* slowest.h - how long a run took that all ranks timed. */
#ifndef BENCH_SLOWEST_H
#define BENCH_SLOWEST_H

#include <reshard/group.h>

#include <stdint.h>

/* A run took as long as for the rank that saw most of it: where ranks share processors, others may
 * have been at work before a rank was let go on from the barrier. Replaces the seconds of each run
 * by the most that any rank has there, on all ranks. Collective. */
reshard_status bench_take_slowest(reshard_group *group, double *seconds, int32_t runs);

#endif
