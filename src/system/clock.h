/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - a monotonic clock, and a way to tell which processes share it. */
#ifndef RS_SYSTEM_CLOCK_H
#define RS_SYSTEM_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t rs_clock_now(void);
/* Identifies this process's clock: processes with equal identities read the same clock. Those are
 * the processes of one boot of one kernel, unless a container has shifted their clock. Both numbers
 * are 0 if the identity is not known. */
void rs_clock_identity(uint64_t out_identity[2]);

#endif
