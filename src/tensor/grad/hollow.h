/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hollow.h - a recorded graph without the memory of its saved tensors. If all of them lie in the
 * graph's leaves, the graph can be kept hollow and filled again later, from tensors that hold what
 * the leaves held. Nothing has to be recomputed.
 */
#ifndef RS_TENSOR_GRAD_HOLLOW_H
#define RS_TENSOR_GRAD_HOLLOW_H

#include "tensor/grad/node.h"

typedef struct rs_hollow rs_hollow;

/* Takes the memory out of the graph that led to `output`, out of its leaves (dense local tensors;
 * entries may be NULL) and out of `output`. *out_hollow stays NULL, and nothing changes, if
 * something was saved that lies elsewhere. Graph, leaves and output must outlive the hollow. */
reshard_status rs_hollow_make(reshard_context *context, reshard_tensor *output, int32_t count,
                              reshard_tensor *const *leaves, rs_hollow **out_hollow);
/* Lets the graph share the memory of these tensors, which are like the leaves, until it is
 * emptied. */
void rs_hollow_fill(rs_hollow *hollow, reshard_tensor *const *contents);
void rs_hollow_empty(rs_hollow *hollow);
/* Frees the record only; the graph stays as it is. */
void rs_hollow_destroy(rs_hollow *hollow);

#endif
