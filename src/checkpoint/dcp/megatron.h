/* SPDX-License-Identifier: Apache-2.0 */
/*
 * megatron.h - what Megatron-Core (torch_dist) adds to a distributed checkpoint:
 *
 *     metadata.json    which says so: {"sharded_backend": "torch_dist", ..}
 *     common.pt        a dict of what all ranks share, with the arguments of the training run.
 *                      Since 0.19 an entry instead, common_state/shard_0_1, a list of one such dict
 *     K._extra_state/shard_..    an entry for each layer of Transformer Engine
 *     rng_state/shard_..         and other states of the ranks that saved
 *
 * Names of a model whose layers are all alike stand for all of them: `decoder.layers.mlp.X` has the
 * layers, and then the experts of each, as its first dims. A chunk has one of each.
 */
#ifndef RS_CHECKPOINT_DCP_MEGATRON_H
#define RS_CHECKPOINT_DCP_MEGATRON_H

#include <reshard/base.h>

#include "checkpoint/store/store.h"
#include "checkpoint/target/target.h"

#include <stdbool.h>
#include <stdint.h>

#define RS_MEGATRON_COMMON_NAME "common.pt"
/* In the common state of folders that reshard wrote: a JSON text of what no shape shows. Megatron
 * does not look at it. */
#define RS_MEGATRON_RECORD_KEY "reshard_model"
#define RS_MEGATRON_COMMON_KEY "common_state/shard_0_1"
#define RS_MEGATRON_ABOUT_NAME "metadata.json"
#define RS_MEGATRON_LATEST_NAME "latest_checkpointed_iteration.txt"

/* Does the folder say that it is one of these? Errors: of files; UNSUPPORTED for other backends. */
reshard_status rs_megatron_probe(const reshard_checkpoint *checkpoint, bool *out_is);
/* What an entry that is not a tensor is to Megatron; NULL: an ordinary value. */
const char *rs_megatron_kind_of(rs_slice name);
/* Learns about the model from the common state: of the entry or, if it is not -1, of the file with
 * this number, whose pickle is open. Says which configuration counts. */
reshard_status rs_megatron_learn(reshard_checkpoint *checkpoint, int32_t common_file);
/* How many of a tensor's first dims are layers and experts, of which a chunk has one. */
int32_t rs_megatron_lead(rs_slice name);

/*
 * megatron_write.c - writes Megatron-Core's torch_dist: a distributed checkpoint in a folder
 * `release` (or iter_N), a file beside it that names the folder, and what megatron.h lists.
 *
 * Chunks are those that Megatron's ranks would write: one layer, and one expert, at a time. The
 * common state is written in both of its homes, so that old and new releases find it. Each linear
 * layer and each norm gets an entry _extra_state that holds nothing, because loaders miss entries
 * that they expect; `extra_state` set to 0 leaves these out.
 */

/* For the fields of rs_format. */
reshard_status rs_megatron_lay_out(rs_laying *laying);
void rs_megatron_name_file(const rs_target *target, int32_t file, int32_t rank,
                           char out_name[RS_FILE_NAME_BYTES]);
reshard_status rs_megatron_finish(const rs_target *target, const rs_finishing *finishing);

/*
 * legacy_names.c - the names in Megatron-LM's older files (mp_rank_00/model_optim_rng.pt), of
 * Megatron-Core's models and of those before it, as torch_dist has them.
 */

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
