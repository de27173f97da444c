/* SPDX-License-Identifier: Apache-2.0 */
/* layers.h - what ready-made modules share. */
#ifndef RS_NN_LAYERS_H
#define RS_NN_LAYERS_H

#include <reshard/nn_layers.h>

#include <stdbool.h>

/* Reads options and fills in defaults. Errors: INVALID, UNSUPPORTED. */
reshard_status rs_layer_options(const reshard_layer_options *given, reshard_layer_options *out);
/* The options for part `index` of a module: the same, except for a seed of its own. */
reshard_layer_options rs_layer_part(const reshard_layer_options *options, uint64_t index);

/* Gives a child to its parent if `status`, the result of making the child, is OK. The child is
 * passed by address, because C does not say whether it would be read before or after the call in
 * another argument that makes it. */
reshard_status rs_adopt(reshard_module *parent, const char *name, reshard_status status,
                        reshard_module **child);
/* Hands out the module if `status` is OK, otherwise releases it. */
reshard_status rs_module_finish(reshard_status status, reshard_module *module,
                                reshard_module **out_module);
/* Whether the module computes with several parameters at once, which then have to be of one
 * group. */
bool rs_layer_is_joint(const reshard_module *module);
/* Gives the number of elements in one head of an attention module. Errors: INVALID for a module of
 * another kind. */
reshard_status rs_attention_head(const reshard_module *module, int64_t *out_head);
/* Allocates zeroed memory for the `user` of a module; rs_user_free frees it. */
void *rs_user_allocate(reshard_context *context, size_t bytes);
void rs_user_free(void *user);

#endif
