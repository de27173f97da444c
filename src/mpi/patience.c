/* SPDX-License-Identifier: Apache-2.0 */
/* patience.c - see patience.h. */
#include "mpi/patience.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

/* MPI cannot sleep until a message comes, so a rank that has a processor to itself stays awake for
 * about a millisecond. A rank without one would be in the way of those it waits for. */
#define YIELDS_ALONE 2000
#define YIELDS_CROWDED 20
#define SLEEP_NANOSECONDS 50000

/* At most this much time between two looks counts as waiting. */
#define LOOK_SECONDS_MAX 0.1

static double now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void rs_patience_init(rs_patience *patience, int32_t node_size)
{
    *patience = (rs_patience){
        .yields_max = sysconf(_SC_NPROCESSORS_ONLN) < node_size ? YIELDS_CROWDED : YIELDS_ALONE};
}

void rs_patience_renew(rs_patience *patience)
{
    patience->yields = 0;
    patience->waited = 0;
    patience->looked = 0;
}

double rs_patience_look(rs_patience *patience)
{
    double time = now();
    if (patience->looked > 0) {
        double passed = time - patience->looked;
        patience->waited += passed < LOOK_SECONDS_MAX ? passed : LOOK_SECONDS_MAX;
    }
    patience->looked = time;
    return patience->waited;
}

void rs_patience_pause(rs_patience *patience)
{
    if (patience->yields < patience->yields_max) {
        patience->yields++;
        (void)sched_yield();
        return;
    }
    struct timespec pause = {.tv_nsec = SLEEP_NANOSECONDS};
    (void)nanosleep(&pause, NULL);
}
