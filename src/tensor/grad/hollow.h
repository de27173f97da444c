/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hollow.h - a recorded graph whose saved tensors have given up their memory. This is possible if
 * all of them lie in the memory of the graph's leaves: the graph can be filled again later, from
 * tensors with the values that the leaves had, and nothing has to be recomputed.
 */
#ifndef RS_TENSOR_GRAD_HOLLOW_H
#define RS_TENSOR_GRAD_HOLLOW_H

#include "tensor/grad/node.h"

typedef struct rs_hollow rs_hollow;

/* Takes the memory away from the saved tensors in the graph that led to `output`, from the leaves
 * (dense local tensors; entries may be NULL) and from `output`. If a saved tensor lies outside the
 * leaves, nothing changes and *out_hollow stays NULL. The graph, the output and the array of leaves
 * must outlive the hollow. */
reshard_status rs_hollow_make(reshard_context *context, reshard_tensor *output, int32_t count,
                              reshard_tensor *const *leaves, rs_hollow **out_hollow);
/* Lets the graph share the memory of `contents`, which match the leaves, until it is emptied. */
void rs_hollow_fill(rs_hollow *hollow, reshard_tensor *const *contents);
void rs_hollow_empty(rs_hollow *hollow);
/* Frees the record only; the graph stays as it is. */
void rs_hollow_destroy(rs_hollow *hollow);

#endif
