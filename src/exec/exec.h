/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.h - the structure of an exec.
 *
 * Every tensor of the plan, given or intermediate, has slots: one for each shard that a rank may
 * have of it. Slots are numbered alike on all ranks, so one list of addresses tells a peer where
 * all shards of a rank are.
 *
 * In each stage a rank has operations within itself (keeps) and operations with peers. For each
 * link of a stage, all ranks know which side does the copying: the source or the target.
 *
 * A peer is near if both ranks can map each other's shared memory. When a stage begins, near peers
 * tell each other which of their memory is shared. If the memory to be read or written is shared,
 * a direct copy does it; everything else goes through traffic.h.
 */
#ifndef RS_EXEC_EXEC_H
#define RS_EXEC_EXEC_H

#include <reshard/exec.h>

#include "base/arena.h"
#include "exec/operation.h"
#include "exec/tracing.h"
#include "exec/traffic.h"
#include "exec/verify.h"
#include "plan/part.h"
#include "transport/group_memory.h"

/* What a rank tells its near peers when a stage begins. */
typedef struct rs_exec_addresses {
    uint64_t shared; /* RS_SHARED_* flags */
    void *slots[];   /* addresses in the memory of the rank that sent them */
} rs_exec_addresses;

enum {
    RS_SHARED_SOURCES = 1, /* all memory that the stage reads */
    RS_SHARED_TARGETS = 2, /* all memory that it writes */
    RS_SHARED_STAGING = 4,
};

/* How bytes get from one rank to another in a stage of one run. */
typedef enum rs_way {
    RS_WAY_MESSAGES,
    RS_WAY_STAGING, /* the receiver unpacks from the sender's staging */
    RS_WAY_DIRECT,
} rs_way;

/* A rank with which this one exchanges data in a stage. */
typedef struct rs_exec_peer {
    int32_t rank;
    bool near;
    rs_way in, out;               /* from and to the peer; those of far peers never change */
    rs_exec_addresses *addresses; /* received from the peer; NULL for a far one */
    reshard_request ready_sent, ready_received, done_sent, done_received;
} rs_exec_peer;

/* An intermediate shard that this rank copies unchanged, and whole, into one run of a target. It
 * can be placed there from the beginning, which saves the copy. */
typedef struct rs_exec_alias {
    const rs_operation *keep; /* the copy; NULL if there is no such shard */
    void *own;                /* where the intermediate lies if it is not placed in the target */
    size_t bytes;
    bool taken; /* placed in the target in this run */
} rs_exec_alias;

typedef struct rs_exec_stage {
    int64_t peer_count, near_count;
    rs_exec_peer *peers;     /* begin with the next higher rank and wrap around */
    bool pulls, pushes;      /* whether some link is copied by its target, by its source */
    const bool *link_pushes; /* by stage link: whether the source copies */
    bool ordered;            /* some operations must run in order */
    int64_t keep_count, operation_count, direct_count;
    rs_operation *keeps; /* in order: fills and copies, then combinations by contributor */
    /* Operations with near peers and operations on scratch, in the same order. Keeps that must run
     * in order with these are here too. */
    rs_operation *operations;
    const rs_operation **direct; /* the operations that are copied directly in this run */
} rs_exec_stage;

typedef enum rs_exec_state {
    RS_EXEC_RESTING,
    RS_EXEC_RUNNING,
    /* the run is over and its digests differ, but the caller has not been told yet */
    RS_EXEC_WRONG,
    RS_EXEC_FAILED
} rs_exec_state;

struct reshard_exec {
    reshard_context *context;
    rs_arena arena;
    reshard_plan *plan;
    reshard_group *group;
    reshard_part *part;
    bool messages_only; /* on some rank, so all peers count as far */
    bool maps_all;      /* all peers are near, and all of their memory can be mapped */
    bool shares;        /* the transport can share memory, so peers may be near */
    int32_t channel;
    int32_t source_count, target_count, intermediate_count; /* tensors */
    int64_t *slot_first; /* by tensor (sources, targets, intermediates), and the end */
    /* by tensor: its first buffer on this rank; and the end */
    int64_t *source_first, *target_first;
    reshard_dtype *intermediate_dtypes;
    int64_t slot_count;
    rs_exec_addresses *addresses; /* this rank's slots */
    bool *tensor_shared;          /* by tensor: whether all of its slots on this rank are shared */
    void *memory;                 /* from the group: intermediates, then staging */
    int32_t stage_count;
    rs_exec_stage stages[RS_STAGES_MAX];
    rs_exec_alias alias;
    size_t *slot_bytes;       /* of each slot of a source or a target */
    rs_traffic *traffic;      /* NULL if all memory can be mapped */
    rs_verify *verify;        /* NULL unless requested */
    rs_exec_tracing *tracing; /* likewise */

    /* the run */
    rs_task task;
    rs_exec_state state;
    char why[256];                   /* in the states WRONG and FAILED */
    int32_t stage;                   /* stage_count while verifying */
    int64_t ready_count, done_count; /* how many peers, in order, have said so or are far */
    bool entered, copied;
};

/* Allocates addresses of slots, all NULL, in the arena. Returns NULL on failure. */
rs_exec_addresses *rs_exec_make_addresses(reshard_exec *exec);

/* Works out the operations and peers of all stages, and the lanes of exec->traffic (build.c). */
reshard_status rs_exec_build(reshard_exec *exec);
/* Looks for an alias among the keeps of the last stage. Intermediates must have their memory by
 * then. */
void rs_exec_find_alias(reshard_exec *exec);
/* The slot of a shard of a stage link's source or target. */
int64_t rs_exec_slot(const reshard_exec *exec, const reshard_stage_link *link, bool source,
                     int32_t shard);
/* The layout of a tensor. Tensors are numbered: sources first, then targets, then intermediates. */
const reshard_layout *rs_exec_layout(const reshard_exec *exec, int32_t index);
/* The number of a stage link's source or target tensor. */
int64_t rs_exec_tensor(const reshard_exec *exec, const reshard_stage_link *link, bool source);
/* Takes the place of a source slot if the source is the scratch memory that holds contributions. */
#define RS_SLOT_SCRATCH (-2)

/* Continues the run as far as it can go now (run.c). A failure is kept for the next call of test or
 * wait. */
void rs_exec_progress(rs_task *task);

/* One stage of a run (stage.c). */
reshard_status rs_stage_begin(reshard_exec *exec);
reshard_status rs_stage_progress(reshard_exec *exec, bool *out_done);

/* Run operations over memory that can be mapped (direct.c): the keeps, and the direct copies of
 * this run. Errors: GROUP_BROKEN if memory that should be mapped is not. */
reshard_status rs_exec_run_keeps(reshard_exec *exec, const rs_exec_stage *stage);
reshard_status rs_exec_run_direct(reshard_exec *exec, const rs_exec_stage *stage);

static inline bool rs_exec_is_near(const reshard_exec *exec, int32_t rank)
{
    return !exec->messages_only && rs_group_is_near(exec->group, rank);
}

/* One of the exec's channels, relative to the group's channel as rs_group_send expects it. */
static inline int32_t rs_exec_channel(const reshard_exec *exec, int32_t which)
{
    return exec->channel - exec->group->channel + which;
}

#endif
