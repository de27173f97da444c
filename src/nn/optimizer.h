/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.h - the structs behind optimizers. */
#ifndef RS_NN_OPTIMIZER_H
#define RS_NN_OPTIMIZER_H

#include <reshard/optimizer.h>

#include <stdbool.h>

/* The state of one trainable parameter. The averages have its layout. */
typedef struct rs_moments {
    const char *name;          /* the parameter's */
    reshard_tensor *parameter; /* not retained: the optimizer's list holds it */
    reshard_tensor *steps;     /* AdamW: the number of steps, i64 without dims */
    reshard_tensor *first;     /* AdamW, and SGD with momentum */
    reshard_tensor *second;    /* AdamW */
} rs_moments;

/* One shard of a parameter on this rank. A local parameter is its own only shard. Nothing is
 * retained. */
typedef struct rs_step_slot {
    const rs_moments *moments;
    int64_t shard_index;
    reshard_tensor *shard;
    reshard_tensor *first, *second; /* with the shard's shape and dtype; may be NULL */
} rs_step_slot;

typedef struct rs_step_settings {
    bool adamw, nesterov;
    double rate, momentum, decay, beta1, beta2, epsilon;
} rs_step_settings;

struct reshard_optimizer {
    reshard_context *context;
    rs_step_settings set;
    reshard_named_tensors *parameters;
    int64_t moments_count, moments_capacity;
    rs_moments *moments;
    int64_t count, capacity;
    rs_step_slot *slots; /* in the order of moments */
};

/* Refuses settings that are out of range. */
reshard_status rs_step_settings_check(const rs_step_settings *set);

/* Gives the dense gradient of a slot, retained; NULL if there is none. */
reshard_status rs_slot_gradient(const reshard_optimizer *optimizer, const rs_step_slot *slot,
                                reshard_tensor **out_gradient);

#endif
