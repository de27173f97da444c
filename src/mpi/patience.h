/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patience.h - how a rank waits: awake for a while, then in short sleeps; and how long it has
 * waited. Only time spent looking for messages counts: a rank that computes for an hour before it
 * looks for a message has not waited for it.
 */
#ifndef RS_MPI_PATIENCE_H
#define RS_MPI_PATIENCE_H

#include <stdint.h>

typedef struct rs_patience {
    int32_t yields_max; /* how often it yields before it sleeps */
    int32_t yields;
    double waited; /* seconds since something last happened */
    double looked; /* time of the last look; 0 if there was none since then */
} rs_patience;

/* node_size: ranks that share the processors of this node. */
void rs_patience_init(rs_patience *patience, int32_t node_size);
/* Called when something has happened. */
void rs_patience_renew(rs_patience *patience);
/* Called when nothing has happened since the last look. Returns the seconds waited so far. */
double rs_patience_look(rs_patience *patience);
/* Lets others run. */
void rs_patience_pause(rs_patience *patience);

#endif
