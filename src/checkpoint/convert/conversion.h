/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conversion.h - a conversion as the files of this folder see it: what goes where, which does not
 * change once it is made, and one run of it, which has a ledger of blocks and an output folder.
 *
 * With a group every rank plans alike and opens all files. The leader, rank 0, makes folder, files,
 * headers, index and journal, and gives the target its name; blocks are dealt out to all.
 */
#ifndef RS_CHECKPOINT_CONVERT_CONVERSION_H
#define RS_CHECKPOINT_CONVERT_CONVERSION_H

#include "checkpoint/body/target.h"
#include "checkpoint/convert/output.h"
#include "checkpoint/engine/engine.h"

#include <reshard/conversion.h>

struct reshard_conversion {
    reshard_context *context;
    const reshard_checkpoint *source; /* not owned */
    rs_team team;                     /* its group is retained */
    reshard_trace *trace;             /* NULL: nothing is recorded; not owned */
    int32_t trace_rank;               /* as a rank of all */
    size_t memory_bytes;              /* that all threads of a rank may use */
    size_t thread_bytes;              /* for one thread; the same on all ranks */
    int32_t threads;
    rs_arena arena; /* of what follows */
    rs_target target;
    int64_t route_count;
    rs_route *routes;       /* of tensors that have bytes, in the order of the source */
    rs_file **source_files; /* by number, as the engine wants them */
    int64_t other_count;    /* files of the source's folder that are copied along, by name */
    const char **others;
    rs_slice config_text; /* config.json, where it changes; else without bytes */
    uint64_t bytes;       /* to be written */
};

/* One run of a conversion. */
typedef struct rs_conversion_run {
    const reshard_conversion *conversion;
    reshard_context *context;
    const rs_team *team;
    const char *target;
    reshard_conversion_run_options options;
    rs_output output;
    rs_arena arena;         /* of what follows */
    rs_file **target_files; /* by number; NULL where a file is not written */
    rs_blocks blocks;
    rs_ledger ledger;
    rs_engine engine;
    rs_entry_sums *entry_sums; /* NULL: the format has no CRCs */
    rs_trace_track *track;     /* of the calling thread; NULL: nothing is recorded */
    uint64_t bytes_recorded;   /* bytes done when the journal was last written */
    uint64_t overflows;        /* that this rank has seen, in the blocks or while verifying */
} rs_conversion_run;

/* What the calling thread does, if that is recorded: from begin until end. */
static inline void rs_run_begin(const rs_conversion_run *run, rs_trace_kind kind,
                                rs_trace_event *out_event)
{
    if (run->track != NULL)
        *out_event = rs_trace_begin(run->track, kind);
}

static inline reshard_status rs_run_end(const rs_conversion_run *run, rs_trace_event *event,
                                        reshard_status status)
{
    if (run->track != NULL)
        rs_trace_end(run->track, event);
    return status;
}

/* Of all that decides what is written: the version of every source file, and every place. Goes
 * through all tensors, so that those ask who need it. */
void rs_conversion_digest(const reshard_conversion *conversion, uint64_t out_digest[2]);
/* How many of `threads` threads fit into memory with blocks of that size. Errors: MEMORY_LIMIT. */
reshard_status rs_conversion_fit(const reshard_conversion *conversion, size_t thread_bytes,
                                 int32_t *threads);

/* ---- the journal and several ranks (rounds.c) ------------------------------------------------ */

/* Runs the blocks that are not done yet, with the journal. Collective. */
reshard_status rs_run_blocks(rs_conversion_run *run);
/* Makes all blocks durable, and has the journal say so. Collective. */
reshard_status rs_run_end_blocks(rs_conversion_run *run);
/* Tells all ranks which blocks the leader knows to be done. Collective. */
reshard_status rs_run_share_ledger(rs_conversion_run *run);
/* Makes the target's files durable, unless the user does not want to wait for that. */
reshard_status rs_run_sync(rs_conversion_run *run);

/* ---- checks (check.c) ------------------------------------------------------------------------ */

/* Can the target be written there? Errors: INVALID, UNFINISHED. */
reshard_status rs_run_check_paths(const rs_conversion_run *run);
/* Are the replicas of the source equal? Errors: CHECK. Collective. */
reshard_status rs_run_check_copies(rs_conversion_run *run);
/* Does the output hold what the source does? Sums all of it. Errors: CHECK. Collective. */
reshard_status rs_run_verify(rs_conversion_run *run, rs_sums *sums);
/* Are the files of the source those that were opened? Errors: CHECK. */
reshard_status rs_run_check_source(const rs_conversion_run *run);

/* ---- padding (padding.c) --------------------------------------------------------------------- */

/* Writes zeros to those bytes of a file's arrays that no tensor fills. */
reshard_status rs_padding_write(const rs_target *target, int32_t index, rs_file *file);
/* Are they zero? Errors: CHECK. */
reshard_status rs_padding_check(const rs_target *target, int32_t index, rs_file *file);

/* ---- what is written beside tensors (others.c) ----------------------------------------------- */

/* Lists the files that are copied along, and notes them and those that are not. Errors: INVALID for
 * a link that leaves the source; NOT_FOUND, IO. */
reshard_status rs_conversion_list_others(reshard_conversion *conversion);
/* Copies them, and writes the index. */
reshard_status rs_run_copy_others(rs_conversion_run *run);
/* Makes files that do not change links to the source's, and their blocks done. */
reshard_status rs_run_link(rs_conversion_run *run);

#endif
