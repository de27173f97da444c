/* SPDX-License-Identifier: Apache-2.0 */
/* rank_files.h - reading files of ranks, for the row in format_rank_files.c. */
#ifndef RS_CHECKPOINT_FORMAT_RANK_FILES_H
#define RS_CHECKPOINT_FORMAT_RANK_FILES_H

#include "checkpoint/body/format.h"

/* Can there be one file for each rank? Errors: INVALID. */
reshard_status rs_rank_files_check_mesh(const reshard_mesh *mesh);
/* As rs_format's read. */
reshard_status rs_rank_files_read(reshard_checkpoint *checkpoint, const rs_opening *opening);

#endif
