/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.h - what the files of a conversion share: source, target, what goes where, and the folder
 * that it is written into.
 */
#ifndef RS_CHECKPOINT_CONVERT_H
#define RS_CHECKPOINT_CONVERT_H

#include "checkpoint/engine.h"
#include "checkpoint/partial.h"
#include "checkpoint/target.h"

typedef struct rs_conversion {
    reshard_context *context;
    const reshard_convert_options *options;
    const char *target_path;
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

/* Are the replicas of the source equal? (convert_check.c) */
reshard_status rs_conversion_check_copies(rs_conversion *conversion);
/* Does the output hold what the source does? */
reshard_status rs_conversion_verify(rs_conversion *conversion);
/* Seconds that the conversion may take, from reading and writing a little. */
reshard_status rs_conversion_estimate(rs_conversion *conversion, double *out_seconds);

/* Copies the files that hold no weights, and writes the index (convert_others.c). */
reshard_status rs_conversion_copy_others(rs_conversion *conversion);
/* With --link: makes files that do not change links to the source's, and their blocks done. */
reshard_status rs_conversion_link(rs_conversion *conversion);

#endif
