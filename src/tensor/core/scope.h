/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scope.h - scopes own the results of computations, note the first error, and on closing put back
 * what was switched inside them (recording, saved-tensor hooks).
 */
#ifndef RS_TENSOR_CORE_SCOPE_H
#define RS_TENSOR_CORE_SCOPE_H

#include <reshard/autograd.h>

#include "base/thread_state.h"
#include "tensor/core/tensor.h"

struct reshard_scope {
    reshard_context *context;
    reshard_scope *outer;
    reshard_status status; /* the first error */
    char text[1024];       /* and its words */
    int64_t count, capacity;
    reshard_tensor **tensors;
    bool gradients_off; /* before the scope was opened */
    struct rs_hook_pair *hooks;
    struct reshard_group *group; /* the last one used by a computation; retained */
    uint64_t failure; /* the number of the error, which groups whose ranks know of it have too */
};

/* For scopes in the library's own functions; the caller owns the structure. */
void rs_scope_enter(reshard_scope *scope, reshard_context *context);
/* Frees what it owns and returns its first error. */
reshard_status rs_scope_leave(reshard_scope *scope);
/* Notes an error whose text is set, unless one has been noted; returns NULL. */
reshard_tensor *rs_scope_fail(reshard_status status);
/* Hands a reference to the innermost scope. Returns the tensor; on failure releases it and returns
 * NULL. */
reshard_tensor *rs_scope_own(reshard_tensor *tensor);
/* Ends a computation: hands its result to the innermost scope if `status` is OK; otherwise releases
 * the result, notes the error and returns NULL. tensor may be NULL on failure. */
reshard_tensor *rs_scope_finish(reshard_status status, reshard_tensor *tensor);
/* Notes the group of a computation, so that a rank that fails later can tell the others. */
void rs_scope_use_group(struct reshard_group *group);
/* All ranks of the group know of the failure of the innermost scope, which may yet be noted. */
void rs_scope_note_told(struct reshard_group *group);
/* Whether they know of the scope's failure. */
bool rs_scope_has_told(const reshard_scope *scope, const struct reshard_group *group);
/* The context of the innermost scope. */
reshard_context *rs_scope_context(void);
/* The status of the innermost scope, with its error text set. */
reshard_status rs_scope_failed(void);

/* A pair of hooks on the thread's stack. */
typedef struct rs_hook_pair {
    reshard_context *context;
    reshard_saved_tensor_hooks hooks;
    struct rs_hook_pair *outer;
} rs_hook_pair;

/* Pops pairs of hooks until this one (or none) is the innermost. */
void rs_hook_pairs_unwind(rs_hook_pair *until);

#endif
