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

#include "checkpoint/store/store.h"

#define RS_MEGATRON_COMMON_NAME "common.pt"
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

#endif
