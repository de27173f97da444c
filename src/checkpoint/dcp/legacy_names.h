/* SPDX-License-Identifier: Apache-2.0 */
/*
 * legacy_names.h - the names in Megatron-LM's older files (mp_rank_00/model_optim_rng.pt), of
 * Megatron-Core's models and of those before it, as torch_dist has them.
 */
#ifndef RS_CHECKPOINT_DCP_LEGACY_NAMES_H
#define RS_CHECKPOINT_DCP_LEGACY_NAMES_H

#include <reshard/base.h>

#include <stdbool.h>
#include <stdint.h>

#define RS_LEGACY_NAME_BYTES 512

/* Gives what is outside of layers its name, and takes the number of a layer apart: *out_behind is
 * what follows it (a dot), or NULL if the tensor is in no layer. Errors: RANGE for long names. */
reshard_status rs_legacy_split(const char *local, char name[RS_LEGACY_NAME_BYTES],
                               int64_t *out_number, const char **out_behind);
/* Translates the name of a part of a layer. *out_expert: which of the rank's experts it is of; -1:
 * of none. */
void rs_legacy_part(const char *behind, char out_part[RS_LEGACY_NAME_BYTES], int64_t *out_expert);
/* The dim that tensor parallelism cuts; -1: none. */
int32_t rs_legacy_cut(const char *name);
/* A number in front of a text: returns what follows it, or NULL. */
const char *rs_legacy_number(const char *text, int64_t *out_number);
bool rs_legacy_ends_with(const char *name, const char *ending);

#endif
