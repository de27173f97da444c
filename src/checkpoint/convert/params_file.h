/* SPDX-License-Identifier: Apache-2.0 */
/* params_file.h - makes params.json from config.json, and config.json from params.json, for namings
 * whose files come with the other one. */
#ifndef RS_CHECKPOINT_CONVERT_PARAMS_FILE_H
#define RS_CHECKPOINT_CONVERT_PARAMS_FILE_H

#include "checkpoint/namings/namings.h"
#include "checkpoint/target/target.h"

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
