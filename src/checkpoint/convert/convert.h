/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.h - what the files of a conversion share: source, target, what goes where, and the folder
 * that it is written into.
 *
 * With a group every rank plans alike and opens all files. The leader, rank 0, makes folder, files,
 * headers, index and journal, and gives the target its name; blocks are dealt out to all.
 */
#ifndef RS_CHECKPOINT_CONVERT_CONVERT_H
#define RS_CHECKPOINT_CONVERT_CONVERT_H

#include "checkpoint/convert/engine.h"
#include "checkpoint/convert/partial.h"
#include "checkpoint/format/target.h"

#include <reshard/group.h>

typedef struct rs_conversion {
    reshard_context *context;
    const reshard_convert_options *options;
    const char *target_path;
    reshard_group *group; /* NULL: alone, and then nobody is asked */
    int32_t rank, rank_count;
    int32_t threads; /* 0: as the engine chooses */
    reshard_checkpoint *source;
    rs_target target;
    rs_arena arena; /* of transfers */
    rs_transfer_cache cache;
    rs_engine engine;
    rs_file **source_files; /* by number, as the engine wants them */
    rs_file **target_files; /* likewise; NULL where a file is not written */
    rs_partial partial;
    uint64_t bytes_unsynced_at; /* bytes done when the journal was last written */
    size_t done_bytes;
} rs_conversion;

/* ---- several ranks (convert_ranks.c); all of it Collective, and plain for one rank ----------- */

/* Fills in group, rank, rank_count and threads. Local. */
void rs_conversion_join(rs_conversion *conversion);
/* Makes folder, files and journal, and shows progress. Local. */
bool rs_conversion_leads(const rs_conversion *conversion);
/* As reshard_group_agree. */
reshard_status rs_conversion_agree(const rs_conversion *conversion, reshard_status status);
/* Gives all ranks the leader's number. */
reshard_status rs_conversion_tell(const rs_conversion *conversion, uint64_t *number);
/* Errors: MISMATCH when ranks are about to do different things. */
reshard_status rs_conversion_compare(const rs_conversion *conversion, const uint64_t digest[2]);
/* As rs_engine_prepare, with the leader's blocks on all ranks. */
reshard_status rs_conversion_prepare(const rs_conversion *conversion, rs_engine *engine);
/* Tells all ranks which blocks the leader knows to be done. */
reshard_status rs_conversion_share_done(const rs_conversion *conversion);
/* Runs the blocks of an engine that asks nobody to pause: this rank those that are its own. */
reshard_status rs_conversion_run_shared(const rs_conversion *conversion, rs_engine *engine);
/* Runs the conversion's blocks with its journal. */
reshard_status rs_conversion_run(rs_conversion *conversion);
/* Adds the sums of all ranks to each rank's. */
reshard_status rs_conversion_merge(const rs_conversion *conversion, rs_passing *passing);
/* Adds up what all ranks did. */
reshard_status rs_conversion_sum(const rs_conversion *conversion, reshard_convert_report *report);

/* ---- writing (convert_write.c) --------------------------------------------------------------- */

/* Writes all blocks that are not done yet, and what comes after them. Collective. */
reshard_status rs_conversion_write(rs_conversion *conversion, reshard_convert_report *report);
/* Gives the target its name. Collective. */
reshard_status rs_conversion_publish(rs_conversion *conversion);
/* The engine's pause: the journal, when so much has been done since. */
reshard_status rs_conversion_pause(void *user, uint64_t bytes_done);

reshard_status rs_conversion_sync(rs_conversion *conversion);
/* Makes what is done last: notes which blocks are, syncs files, then writes the journal. A block
 * that another thread finishes meanwhile waits for the next time. */
reshard_status rs_conversion_write_journal(rs_conversion *conversion);
uint64_t rs_conversion_journal_bytes(const rs_conversion *conversion);

/* ---- parts ----------------------------------------------------------------------------------- */

/* Are the replicas of the source equal? (convert_check.c) */
reshard_status rs_conversion_check_copies(rs_conversion *conversion);
/* Does the output hold what the source does? Sums all of it. */
reshard_status rs_conversion_verify(rs_conversion *conversion, rs_passing *passing);
/* Are the files of the source those that were opened? */
reshard_status rs_conversion_check_source(const rs_conversion *conversion);
/* Seconds that the conversion may take, from reading and writing a little. */
reshard_status rs_conversion_estimate(const rs_conversion *conversion, double *out_seconds);

/* Copies the files that hold no weights, and writes the index (convert_others.c). */
reshard_status rs_conversion_copy_others(rs_conversion *conversion);
/* With --link: makes files that do not change links to the source's, and their blocks done. */
reshard_status rs_conversion_link(rs_conversion *conversion);

#endif
