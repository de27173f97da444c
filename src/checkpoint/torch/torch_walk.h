/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_walk.h - finds the tensors in a pickle of PyTorch, and names each after the keys of dicts
 * and the indices of lists that lead to it, joined by dots. Objects of unknown classes are searched
 * by their attributes.
 *
 * A value without tensors is not taken apart, unless it is the root: a whole dict of
 * hyper-parameters is one value.
 */
#ifndef RS_CHECKPOINT_TORCH_TORCH_WALK_H
#define RS_CHECKPOINT_TORCH_TORCH_WALK_H

#include "checkpoint/store/store.h"
#include "checkpoint/torch/torch_values.h"

typedef struct rs_torch_leaf {
    rs_slice name;        /* in the arena; a NUL follows */
    rs_value_place place; /* its steps are in the arena too */
    rs_torch_kind kind;
    const rs_pickle_node *node;
} rs_torch_leaf;

/* The attributes of containers that have tensors as items but none as attributes, such as the
 * _metadata that state_dict() sets on its OrderedDict. No leaf stands for them. Initialise with
 * zeros. */
#define RS_TORCH_ATTRIBUTES_MAX 8
typedef struct rs_torch_attributes {
    int32_t count;
    bool more;                               /* there are others, for which there is no room */
    rs_slice names[RS_TORCH_ATTRIBUTES_MAX]; /* all different; valid as long as the pickle */
} rs_torch_attributes;

typedef reshard_status rs_torch_leaf_fn(void *user, const rs_torch_leaf *leaf);

/* What a file adds to the names of its tensors and values. A slice with bytes NULL adds nothing. */
typedef struct rs_torch_root {
    rs_slice prefix; /* the first step of all names */
    rs_slice alone;  /* without a prefix, the name of a file that is a single tensor or value */
} rs_torch_root;

/* Calls `take` for the tensors and values of a pickle of `bytes` bytes, in its order.
 * A value that contains itself is not entered again. Names of attributes
 * that are passed over are added to `passed`. Errors: RANGE if values are nested too deeply, or
 * shared so often that names would take much more room than the pickle; those of `take`. */
reshard_status rs_torch_walk(rs_arena *arena, const char *what, const rs_pickle *pickle,
                             size_t bytes, const rs_torch_root *names, rs_torch_leaf_fn *take,
                             void *user, rs_torch_attributes *passed);

#endif
