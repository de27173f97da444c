/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h - which core a thread is on, and how it leaves one that it shares with another.
 *
 * A thread that is woken up may come to the core of the one that woke it, although others are idle:
 * a virtual machine may take a core that sleeps for one that its host has given away. Two threads
 * that hand work to each other every few microseconds then stay there, for a tenth of a second and
 * more, because neither rests for long enough to be moved.
 */
#ifndef RS_SYSTEM_CORE_H
#define RS_SYSTEM_CORE_H

#include <stdbool.h>
#include <stdint.h>

/* Cores beyond this number are not known. */
#define RS_CORES_MAX 1024

typedef struct rs_cores {
    bool has[RS_CORES_MAX];
} rs_cores;

/* On how many cores the calling thread may run; at least 1. */
int64_t rs_core_count(void);
/* The core that the calling thread is on, or -1 if the system does not tell. */
int rs_core_now(void);
/* Moves the calling thread to a core on which it may run and that is not in `taken`; from then on
 * it may run where it might before. Returns whether there was such a core. */
bool rs_core_leave(const rs_cores *taken);

#endif
