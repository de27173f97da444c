/* SPDX-License-Identifier: Apache-2.0 */
/* layers.h - what ready modules share. */
#ifndef RS_NN_LAYERS_H
#define RS_NN_LAYERS_H

#include <reshard/nn_layers.h>

#include "tensor/dist/lift.h"

/* The options with defaults filled in. Errors: INVALID, UNSUPPORTED. */
reshard_status rs_layer_options(const reshard_layer_options *given, reshard_layer_options *out);
/* The options of the index-th part of a module: the seed is another one. */
reshard_layer_options rs_layer_part(const reshard_layer_options *options, uint64_t index);

/* Hands a child to the parent, if `status`, that of making it, is OK. By address: whether an
 * argument is read before another one makes it is anybody's guess. */
reshard_status rs_adopt(reshard_module *parent, const char *name, reshard_status status,
                        reshard_module **child);
/* Gives a module that was made, or releases what there is of it. */
reshard_status rs_module_finish(reshard_status status, reshard_module *module,
                                reshard_module **out_module);
/* Elements of one head of an attention. */
int64_t rs_attention_head(const reshard_module *module);
/* Frees a block that was allocated as `user` of a module, by rs_user_allocate. */
void *rs_user_allocate(reshard_context *context, size_t bytes);
void rs_user_free(void *user);

#endif
