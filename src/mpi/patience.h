/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patience.h - how a rank waits: awake for a while, then in short sleeps; and how long it has
 * waited. Only time spent looking counts: a rank that computes for an hour before it looks for a
 * message has not waited for it.
 */
#ifndef RS_MPI_PATIENCE_H
#define RS_MPI_PATIENCE_H

#include <stdint.h>

typedef struct rs_patience {
    int32_t yields_max; /* before it sleeps */
    int32_t yields;
    double waited; /* seconds since the last time that something happened */
    double looked; /* when it last looked; 0: not since then */
} rs_patience;

/* node_size: ranks that share the processors of this node. */
void rs_patience_init(rs_patience *patience, int32_t node_size);
/* Something happened. */
void rs_patience_renew(rs_patience *patience);
/* Nothing happened since the last look: seconds waited so far. */
double rs_patience_look(rs_patience *patience);
/* Lets others run. */
void rs_patience_pause(rs_patience *patience);

#endif
