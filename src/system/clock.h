/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - a clock that never goes back, and which processes have the same one. */
#ifndef RS_SYSTEM_CLOCK_H
#define RS_SYSTEM_CLOCK_H

#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t rs_clock_now(void);
/* Tells one clock from another: processes with equal numbers read the same clock, which those of
 * one boot of one kernel do, unless a container has shifted it. Both are 0 where that is not
 * known. */
void rs_clock_identity(uint64_t out_identity[2]);

#endif
