/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own.h - a caller's own operation (own_operation.h): its record, which forward makes and backward
 * reads, its layouts, and what callbacks see.
 */
#ifndef RS_TENSOR_OWN_OWN_H
#define RS_TENSOR_OWN_OWN_H

#include <reshard/own_operation.h>

#include "tensor/dist/spread.h"
#include "tensor/grad/node.h"

enum { RS_OWN_MOST = RESHARD_OPERATION_MAX };

/* ---- layouts --------------------------------------------------------------------------------- */

/* Layouts of the outputs, and those in which gradients of the inputs come. */
typedef struct rs_own_layouts {
    reshard_layout *outputs[RESHARD_OPERATION_MAX];
    reshard_layout *gradients[RESHARD_OPERATION_MAX];
} rs_own_layouts;

/* Finds the layouts for distributed inputs by the operation's rules. shapes: of the outputs. On
 * failure, some may be set. Errors: INVALID (no rule fits, a rule that cannot be read), and those
 * of layouts. */
reshard_status rs_own_layouts_find(const reshard_operation *operation,
                                   reshard_tensor *const *inputs,
                                   const reshard_operation_output *shapes,
                                   rs_own_layouts *out_layouts);
void rs_own_layouts_release(rs_own_layouts *layouts);

/* ---- records and calls ----------------------------------------------------------------------- */

/* What a recorded operation keeps. */
typedef struct rs_own_record {
    reshard_context *context;
    reshard_operation operation;
    void *data;
    rs_exec_cache *cache; /* NULL for local tensors */
    bool on_shards;
    int64_t part_count;                           /* shards, or 1 */
    reshard_operation_output inputs[RS_OWN_MOST]; /* of whole tensors */
    reshard_operation_output outputs[RS_OWN_MOST];
    /* On shards. For whole distributed tensors, only those of the outputs. */
    rs_own_layouts layouts;
    reshard_layout *input_layouts[RS_OWN_MOST]; /* on shards */
} rs_own_record;

typedef struct rs_own_call {
    reshard_operation_call shown; /* must be first: callbacks hand it back */
    const rs_own_record *record;
    int64_t part;
    bool forward;
    reshard_tensor **saved; /* forward: by slot, references */
    /* Forward, on shards: this rank's shards of each output. */
    reshard_shards *const *shards;
} rs_own_call;

/* Gives this part of each tensor, dense, in the innermost scope. Entries may be NULL. */
reshard_status rs_own_take_part(const rs_own_record *record, int64_t part, int32_t count,
                                reshard_tensor *const *tensors, reshard_tensor **out_parts);
/* Turns what a callback returned, or left in its scope, into one status with words. */
reshard_status rs_own_judge_return(reshard_status status, const char *which);
/* Checks what a callback gave. Errors: INVALID, naming it by `what` and `index`. */
reshard_status rs_own_check_given(const rs_own_record *record, const char *what, int32_t index,
                                  const reshard_tensor *given,
                                  const reshard_operation_output *expected);
/* Takes over the dims of a shard. */
void rs_own_take_shape(const reshard_shard *shard, reshard_operation_output *expected);
/* Dtype and shape of a part of an output. shards: this rank's, of each output. */
reshard_operation_output rs_own_output_part(const rs_own_record *record,
                                            reshard_shards *const *shards, int64_t part,
                                            int32_t index);
/* The backward step of the recorded operation, whose extra data is an rs_own_record. */
void rs_own_backward(rs_node *node, reshard_tensor *const *gradients,
                     reshard_tensor **out_gradients);

#endif
