/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.h - what an exec is made of.
 *
 * Every tensor of the plan, given or intermediate, has slots: one for each shard that a rank may
 * have of it. Slots are numbered alike on all ranks, so that a rank can say where its shards are by
 * one table of addresses.
 *
 * In each stage a rank has operations of its own (keeps) and with peers. For each link of a stage
 * it is fixed, alike on all ranks, whether the source or the target walks, that is does the
 * copying.
 */
#ifndef RS_EXEC_EXEC_H
#define RS_EXEC_EXEC_H

#include <reshard/exec.h>

#include "base/arena.h"
#include "exec/messages.h"
#include "exec/operation.h"
#include "plan/part.h"
#include "transport/group.h"

/* A rank that this one exchanges with in a stage. */
typedef struct rs_exec_peer {
    int32_t rank;
    void **table; /* its slots, as it sent them: addresses in its memory */
    reshard_request ready_sent, ready_received, done_sent, done_received;
} rs_exec_peer;

typedef struct rs_exec_stage {
    int64_t peer_count;
    rs_exec_peer *peers; /* from the next higher rank on, round to the lower ones */
    int64_t keep_count, walk_count;
    rs_operation *keeps; /* in order: fills and copies, then combinations by contributor */
    /* likewise, with peers; keeps are here too where they have to take turns */
    rs_operation *walks;
} rs_exec_stage;

typedef enum rs_exec_state { RS_EXEC_RESTING, RS_EXEC_RUNNING, RS_EXEC_FAILED } rs_exec_state;

struct reshard_exec {
    reshard_context *context;
    rs_arena arena;
    reshard_plan *plan;
    reshard_group *group;
    reshard_part *part;
    bool direct; /* peers' memory is touched directly */
    int32_t channel;
    int32_t source_count, target_count, intermediate_count; /* tensors */
    int64_t *slot_first; /* by tensor: sources, targets, intermediates; and one more */
    int64_t *source_first, *target_first; /* by tensor: of this rank's buffers; and one more */
    int64_t slot_count;
    void **slots; /* this rank's addresses */
    char *intermediate_memory;
    size_t intermediate_bytes;
    int32_t stage_count;
    rs_exec_stage stages[RS_STAGES_MAX];
    rs_messages *messages; /* NULL when direct */

    /* the run */
    rs_exec_state state;
    int32_t stage;
    int64_t ready_count, done_count; /* peers of the stage that have said so */
    bool walked;
};

/* Works out operations and peers of all stages (build.c). */
reshard_status rs_exec_build(reshard_exec *exec);

/* The slot of a shard of a stage link's source or target. */
int64_t rs_exec_slot(const reshard_exec *exec, const reshard_stage_link *link, bool source,
                     int32_t shard);
/* In place of a source slot: the memory that contributions wait in. */
#define RS_SLOT_SCRATCH (-2)

/* Operations for a stage over messages (build.c): what is kept, and moves whose source lies densely
 * at `scratch`; sorted into the order in which they are to be run. The list is in the arena, with
 * room for `more` operations beside the keeps. */
typedef struct rs_exec_list {
    int64_t count;
    rs_operation *items;
} rs_exec_list;
reshard_status rs_exec_list_keeps(reshard_exec *exec, int32_t stage, int64_t more,
                                  rs_exec_list *out_list);
reshard_status rs_exec_list_add_dense(reshard_exec *exec, int32_t stage, int32_t link,
                                      const reshard_move *move, size_t scratch, rs_exec_list *list);
void rs_exec_list_sort(rs_exec_list *list);

/* One stage of a run over memory that can be seen (direct.c). */
reshard_status rs_direct_begin(reshard_exec *exec);
reshard_status rs_direct_progress(reshard_exec *exec, bool *out_done);

#endif
