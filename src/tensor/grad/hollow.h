/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hollow.h - a recorded graph without the memory of what it saved. Where all that lies in the
 * graph's leaves, the graph can be kept hollow, and be filled again from tensors that hold what the
 * leaves held. Nothing has to be computed once more.
 */
#ifndef RS_TENSOR_GRAD_HOLLOW_H
#define RS_TENSOR_GRAD_HOLLOW_H

#include "tensor/grad/node.h"

typedef struct rs_hollow rs_hollow;

/* Takes the memory out of the graph that led to `output`, out of its leaves (dense local tensors;
 * entries may be NULL) and out of `output`. *out_hollow stays NULL when something was saved that
 * lies elsewhere; then nothing has changed. All must live as long. */
reshard_status rs_hollow_make(reshard_context *context, reshard_tensor *output, int32_t count,
                              reshard_tensor *const *leaves, rs_hollow **out_hollow);
/* Until it is emptied, the graph shares the memory of these, which are like the leaves. */
void rs_hollow_fill(rs_hollow *hollow, reshard_tensor *const *contents);
void rs_hollow_empty(rs_hollow *hollow);
/* The graph stays as it is. */
void rs_hollow_destroy(rs_hollow *hollow);

#endif
