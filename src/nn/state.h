/* SPDX-License-Identifier: Apache-2.0 */
/* state.h - lists of named tensors, and loading values into them, for modules and optimizers. */
#ifndef RS_NN_STATE_H
#define RS_NN_STATE_H

#include <reshard/group.h>
#include <reshard/nn.h>

#include "base/arena.h"

typedef struct rs_named_list {
    /* Must come first, because reshard_named_tensors_destroy is given its address. */
    reshard_named_tensors shown;
    reshard_context *context;
    rs_arena arena; /* holds the names */
    int64_t capacity;
    reshard_named_tensor *items;
} rs_named_list;

reshard_status rs_named_list_create(reshard_context *context, rs_named_list **out_list);
/* Adds a tensor, retained, as "prefix.name", or as "name" if the prefix is empty. */
reshard_status rs_named_list_add(rs_named_list *list, const char *prefix, const char *name,
                                 reshard_tensor *tensor);

/*
 * Copies values into the tensors of `mine`, all or nothing: see reshard_module_load_state_dict.
 * `group` has the ranks that have to agree. If it is NULL, they are those of a distributed tensor
 * among the items, if there is one. `status` is the result of what the caller did before. If it is
 * not RESHARD_OK, `mine` may be NULL, and the other ranks are told.
 */
reshard_status rs_named_load(reshard_context *context, reshard_status status, reshard_group *group,
                             const reshard_named_tensors *mine, int64_t count,
                             const reshard_named_tensor *items,
                             const reshard_load_options *options);

#endif
