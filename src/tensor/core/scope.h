/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scope.h - scopes own the results of computations and keep the first error. Closing a scope undoes
 * what was switched inside it: recording, and saved-tensor hooks.
 */
#ifndef RS_TENSOR_CORE_SCOPE_H
#define RS_TENSOR_CORE_SCOPE_H

#include <reshard/autograd.h>

#include "base/error.h"
#include "base/thread_state.h"
#include "tensor/core/tensor.h"

struct reshard_scope {
    reshard_context *context;
    reshard_scope *outer;
    reshard_status status; /* the first error */
    int64_t count, capacity;
    reshard_tensor **tensors;
    bool gradients_off; /* the thread's setting when the scope was opened */
    struct rs_hook_pair *hooks;
    struct reshard_group *group; /* the last one used by a computation; retained */
    uint64_t failure; /* the error's number, by which groups tell whether their ranks know of it */
    rs_error error;   /* the first; last, as it is not cleared */
};

/* Opens a scope inside a function of the library. The caller owns the structure. */
void rs_scope_enter(reshard_scope *scope, reshard_context *context);
/* Closes the scope: frees what it owns and returns its first error. */
reshard_status rs_scope_leave(reshard_scope *scope);
/* Notes an error in the innermost scope, together with the thread's error text, unless an earlier
 * one has been noted. Returns NULL. */
reshard_tensor *rs_scope_fail(reshard_status status);
/* Hands a reference to the innermost scope. Returns the tensor. On failure releases it, notes the
 * error and returns NULL. */
reshard_tensor *rs_scope_own(reshard_tensor *tensor);
/* Ends a computation: hands its result to the innermost scope if `status` is OK; otherwise releases
 * the result, notes the error and returns NULL. tensor may be NULL on failure. */
reshard_tensor *rs_scope_finish(reshard_status status, reshard_tensor *tensor);
/* The context of the innermost scope. */
reshard_context *rs_scope_context(void);
/* Returns the status of the innermost scope and sets its error text. */
reshard_status rs_scope_failed(void);

/* A pair of saved-tensor hooks on the thread's stack. */
typedef struct rs_hook_pair {
    reshard_context *context;
    reshard_saved_tensor_hooks hooks;
    struct rs_hook_pair *outer;
} rs_hook_pair;

/* Pops pairs of hooks until `until` is the innermost one, or none is left if it is NULL. Does
 * nothing if `until` has been popped already. */
void rs_hook_pairs_unwind(rs_hook_pair *until);

#endif
