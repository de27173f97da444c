/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_walk.h - finds the tensors in a pickle of PyTorch, and names each after the keys of dicts
 * and the indices of lists that lead to it, joined by dots. Objects of unknown classes are searched
 * by their attributes.
 *
 * A value without tensors is not taken apart: a whole dict of hyper-parameters is one value.
 */
#ifndef RS_CHECKPOINT_FORMAT_TORCH_WALK_H
#define RS_CHECKPOINT_FORMAT_TORCH_WALK_H

#include "checkpoint/store/store.h"
#include "checkpoint/torch/torch_values.h"

typedef struct rs_torch_leaf {
    rs_slice name;        /* in the arena; a NUL follows */
    rs_value_place place; /* its steps are in the arena too */
    rs_torch_kind kind;
    const rs_pickle_node *node;
} rs_torch_leaf;

typedef reshard_status rs_torch_leaf_fn(void *user, const rs_torch_leaf *leaf);

/* Calls `take` for the tensors and values of a pickle of `bytes` bytes, in its order. prefix: the
 * first step of all names; prefix.bytes NULL: none. A value that contains itself is not entered
 * again. Errors: RANGE if values are nested too deeply, or shared so often that names would take
 * much more room than the pickle; those of `take`. */
reshard_status rs_torch_walk(rs_arena *arena, const char *what, const rs_pickle *pickle,
                             size_t bytes, rs_slice prefix, rs_torch_leaf_fn *take, void *user);

#endif
