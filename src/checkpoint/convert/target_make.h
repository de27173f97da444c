/* SPDX-License-Identifier: Apache-2.0 */
/* target_make.h - lays out what a conversion or a save will write: format, files, places. */
#ifndef RS_CHECKPOINT_CONVERT_TARGET_MAKE_H
#define RS_CHECKPOINT_CONVERT_TARGET_MAKE_H

#include "checkpoint/namings/namings.h"
#include "checkpoint/target/target.h"

/* Release the target in any case. */
reshard_status rs_target_init(rs_target *target, const reshard_checkpoint *source,
                              const reshard_conversion_options *options);
/* Compares what the target will hold with a list of names, dtypes and shapes (like.c). Errors:
 * INVALID, with the first differences; SYNTAX; those of reading the file. */
reshard_status rs_target_check_like(rs_target *target, const char *path);
/* Like rs_target_init for tensors that ranks 0 .. file_count-1 hold in memory, in the default split
 * format: each rank has one file. */
reshard_status rs_target_init_live(rs_target *target, reshard_context *context, int32_t file_count,
                                   int64_t count, const reshard_live_tensor *tensors);

/*
 * donor.c - the file that a format follows (rs_format.follow): where its metadata, the names of its
 * tensors and their order come from. Only its numbers are replaced.
 */

typedef struct rs_donor {
    reshard_checkpoint *checkpoint; /* destroy it in any case; NULL: none */
    const char *type;               /* what all tensors become, if possible; NULL: as there */
} rs_donor;

/* Opens the file that the options name, and takes the dtype out of the options: types of such a
 * format are not dtypes. Errors: INVALID, with the hint LIKE if there is no file; those of
 * opening. */
reshard_status rs_donor_open(rs_donor *donor, const rs_target *target,
                             reshard_conversion_options *options);
/* Checks that the donor is of the kind of model that is written: kinds may have the same names for
 * other orders of rows. Errors: MISMATCH. */
reshard_status rs_donor_check(const rs_donor *donor, const rs_target *target);

/* params_file.c - makes params.json from config.json, and config.json from params.json, for namings
 * whose files come with the other one. */

/* Decides which description of the model goes with a target that a map makes, and makes it if the
 * source has only the other one. Says in notes what has no counterpart. Errors: INVALID if
 * params.json cannot describe the model. */
reshard_status rs_params_file_make(rs_target *target, const rs_naming *naming,
                                   const rs_config *config);

/* The numbers by which Meta's code computes the width of a layer:
 * multiple_of * ceil(int(multiplier * int(8 * dim / 3)) / multiple_of). */
typedef struct rs_params_width {
    int64_t multiple_of;
    char multiplier[32]; /* as JSON; empty: 1, which is left out */
} rs_params_width;

int64_t rs_params_width_of(int64_t dim, int64_t multiple_of, double multiplier);
/* Finds numbers that give this width. Both are positive. */
rs_params_width rs_params_width_find(int64_t dim, int64_t width);

#endif
