/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conversion.h - a conversion, for the files of this folder: what goes where, which does not change
 * once it is planned, and one run of it, with its ledger of blocks and its output folder.
 *
 * With a group, every rank makes the same plan and opens all files. The leader, rank 0, creates the
 * folder, files, headers, index and journal, and gives the target its name. The blocks are divided
 * among all ranks.
 */
#ifndef RS_CHECKPOINT_CONVERT_CONVERSION_H
#define RS_CHECKPOINT_CONVERT_CONVERSION_H

#include "checkpoint/convert/output.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/target/target.h"

#include <reshard/conversion.h>

/* A file without weights that goes along. */
typedef struct rs_other_file {
    const char *folder; /* the source's, or the one that config.json is taken from */
    const char *name;
} rs_other_file;

struct reshard_conversion {
    reshard_context *context;
    const reshard_checkpoint *source; /* not owned */
    rs_team team;                     /* its group is retained */
    reshard_trace *trace;             /* may be NULL; not owned */
    int32_t trace_rank;               /* this rank's number in the trace */
    size_t memory_bytes;              /* limit for all threads of a rank together */
    size_t thread_bytes;              /* memory of one thread; the same on all ranks */
    int32_t threads;
    rs_arena arena; /* of the arrays below */
    rs_target target;
    int64_t route_count;
    rs_route *routes;       /* of the tensors that are not empty, in the order of the source */
    rs_file **source_files; /* indexed by number, for the engine */
    int64_t other_count;    /* files that are copied along, each name once */
    rs_other_file *others;
    rs_slice config_text; /* the new config.json if it changes; otherwise bytes is NULL */
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
    rs_arena arena;         /* of the arrays below */
    rs_file **target_files; /* indexed by number; NULL for a file that is not written */
    rs_blocks blocks;
    rs_ledger ledger;
    rs_engine engine;
    rs_entry_sums *entry_sums; /* NULL: the format has no CRCs */
    rs_crcs *crcs;             /* of what is read; NULL: none, or checked before */
    rs_trace_track *track;     /* of the calling thread; NULL: nothing is traced */
    uint64_t bytes_recorded;   /* bytes done when the journal was last written */
    /* overflows that this rank counted, while running blocks or verifying */
    uint64_t overflows;
} rs_conversion_run;

/* Begin and end an event of the calling thread, if it is traced. */
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

/* Digest of everything that decides what is written: the version of every source file, and every
 * place. It goes through all tensors, so it is computed only when needed. */
void rs_conversion_digest(const reshard_conversion *conversion, uint64_t out_digest[2]);
/* How many of `threads` threads fit into memory with blocks of that size. Errors: MEMORY_LIMIT. */
reshard_status rs_conversion_fit(const reshard_conversion *conversion, size_t thread_bytes,
                                 int32_t *threads);

/* ---- the journal and several ranks (rounds.c) ------------------------------------------------ */

/* Runs the blocks that are not done yet, and writes the journal. Collective. */
reshard_status rs_run_blocks(rs_conversion_run *run);
/* Makes all blocks durable, and records that in the journal. Collective. */
reshard_status rs_run_end_blocks(rs_conversion_run *run);
/* Tells all ranks which blocks the leader knows to be done. Collective. */
reshard_status rs_run_share_ledger(rs_conversion_run *run);
/* Makes the target's files durable, unless the user chose not to wait for the disk. */
reshard_status rs_run_sync(rs_conversion_run *run);

/* ---- checks (check.c) ------------------------------------------------------------------------ */

/* Checks that the target can be written there. Errors: INVALID, UNFINISHED. */
reshard_status rs_run_check_paths(const rs_conversion_run *run);
/* Checks that the replicas in the source are equal. Errors: CHECK. Collective. */
reshard_status rs_run_check_copies(rs_conversion_run *run);
/* Checks that tensors that are left out hold what they are known to hold: a constant, a copy, the
 * embedding. Errors: CHECK. Collective. */
reshard_status rs_run_check_left_out(const rs_conversion_run *run);
/* Checks that the output holds what the source does, and sums all of it. Errors: CHECK.
 * Collective. */
reshard_status rs_run_verify(rs_conversion_run *run, rs_sums *sums);
/* Checks that the files of the source have not changed since they were opened. Errors: CHECK. */
reshard_status rs_run_check_source(const rs_conversion_run *run);
/* Checks that the files that were written still have their names and sizes. Errors: CHECK;
 * NOT_FOUND. */
reshard_status rs_run_check_output(const rs_conversion_run *run);
/* Whether a file that was written has holes. That is possible where it shares blocks with a source
 * that has some, or where zeros take no space, and otherwise only if another program truncated
 * it. */
bool rs_run_has_holes(const rs_conversion_run *run);

/* ---- padding (padding.c) --------------------------------------------------------------------- */

/* Writes zeros to those bytes of a file's arrays that no tensor fills. */
reshard_status rs_padding_write(const rs_target *target, int32_t index, rs_file *file);
/* Checks that these bytes are zero. Errors: CHECK. */
reshard_status rs_padding_check(const rs_target *target, int32_t index, rs_file *file);

/* ---- files beside those of tensors (others.c) ------------------------------------------------ */

/* Lists the files that are copied along, and writes notes about them and about those that are not.
 * Errors: INVALID for a link that leaves the source; NOT_FOUND, IO. */
reshard_status rs_conversion_list_others(reshard_conversion *conversion);
/* Copies these files, and writes the index. */
reshard_status rs_run_copy_others(rs_conversion_run *run);
/* Replaces files that would not change by links to the source's, and marks their blocks as done. */
reshard_status rs_run_link(rs_conversion_run *run);

#endif
