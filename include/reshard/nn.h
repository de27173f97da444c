/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nn.h - modules: a forward function with named children, parameters and buffers. nn_layers.h has
 * ready ones, optimizer.h trains them, shard.h spreads them over ranks.
 *
 *     reshard_module_create(NULL, &(reshard_module_kind){.name = "scaled", .forward = scale}, &m);
 *     reshard_module_add_parameter(m, "factor", factor);
 *     reshard_module_add_child(parent, "scaled", m);
 *
 * Parameters are tensors, local or distributed, that may collect gradients or be frozen
 * (reshard_tensor_set_requires_grad). One tensor under two names is tied: whoever replaces it under
 * one name replaces it under both. Names of children, parameters and buffers are paths with dots:
 * "h.0.mlp.weight"; "" is the module itself.
 *
 * A module belongs to one rank and is used by one thread at a time. Calls are Local unless it says
 * otherwise; calling a module is Collective where its tensors are distributed.
 */
#ifndef RESHARD_NN_H
#define RESHARD_NN_H

#include <reshard/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- values ---------------------------------------------------------------------------------- */

typedef enum reshard_value_kind {
    RESHARD_VALUE_NOTHING,
    RESHARD_VALUE_TENSOR,
    RESHARD_VALUE_LIST,
    RESHARD_VALUE_FAILED /* the scope knows why */
} reshard_value_kind;

/* What modules take and give. A value owns nothing: tensors and lists belong to scopes. */
typedef struct reshard_value {
    reshard_value_kind kind;
    int32_t count; /* of a list */
    reshard_tensor *tensor;
    const struct reshard_value *items; /* of a list */
} reshard_value;

RESHARD_API reshard_value reshard_value_nothing(void);
/* NULL is what a computation gives that failed, and makes a value of kind FAILED. */
RESHARD_API reshard_value reshard_value_of(reshard_tensor *tensor);
/* The items are copied into the innermost scope. A failed item makes the list failed. */
RESHARD_API reshard_value reshard_value_list(int32_t count, const reshard_value *items);
/* The tensor of a value that is one; for others NULL, and an error in the scope. */
RESHARD_API reshard_tensor *reshard_value_tensor(reshard_value value);
/* An item of a list; FAILED, and an error in the scope, when there is none. */
RESHARD_API reshard_value reshard_value_item(reshard_value list, int32_t index);

/* ---- making modules -------------------------------------------------------------------------- */

typedef struct reshard_module reshard_module;

typedef struct reshard_module_kind {
    const char *name; /* "linear"; copied */
    /* Computes in the innermost scope. */
    reshard_value (*forward)(reshard_module *module, void *user, reshard_value input);
    void *user;
    void (*forget)(void *user); /* called with the last release; may be NULL */
} reshard_module_kind;

/* forget is not called when this fails. */
RESHARD_API reshard_status reshard_module_create(reshard_context *context,
                                                 const reshard_module_kind *kind,
                                                 reshard_module **out_module);
RESHARD_API reshard_module *reshard_module_retain(reshard_module *module);
RESHARD_API void reshard_module_release(reshard_module *module);
RESHARD_API const char *reshard_module_kind_name(const reshard_module *module);
RESHARD_API void *reshard_module_user(const reshard_module *module);

/* The child is retained. Errors: INVALID when the name is empty, has a dot, or is taken by a child,
 * parameter or buffer; or when the module would become its own descendant. */
RESHARD_API reshard_status reshard_module_add_child(reshard_module *module, const char *name,
                                                    reshard_module *child);
/* The tensor is retained; NULL: the name is known, and stands for nothing (a bias that is left
 * out). */
RESHARD_API reshard_status reshard_module_add_parameter(reshard_module *module, const char *name,
                                                        reshard_tensor *tensor);
/* A tensor that is no parameter. transient: it is not part of the state dict. */
RESHARD_API reshard_status reshard_module_add_buffer(reshard_module *module, const char *name,
                                                     reshard_tensor *tensor, int transient);

/* ---- finding --------------------------------------------------------------------------------- */

/* By path; not retained. Errors: NOT_FOUND naming the path and where it ends. */
RESHARD_API reshard_status reshard_module_find(reshard_module *module, const char *path,
                                               reshard_module **out_module);
/* *out_tensor may be NULL where a parameter stands for nothing. */
RESHARD_API reshard_status reshard_module_find_parameter(const reshard_module *module,
                                                         const char *path,
                                                         reshard_tensor **out_tensor);
RESHARD_API reshard_status reshard_module_find_buffer(const reshard_module *module,
                                                      const char *path,
                                                      reshard_tensor **out_tensor);
/* For forward functions: of this module, by name; NULL when there is none. */
RESHARD_API reshard_tensor *reshard_module_parameter(const reshard_module *module,
                                                     const char *name);
RESHARD_API reshard_tensor *reshard_module_buffer(const reshard_module *module, const char *name);
RESHARD_API int32_t reshard_module_child_count(const reshard_module *module);
RESHARD_API reshard_module *reshard_module_child(const reshard_module *module, int32_t index);
RESHARD_API const char *reshard_module_child_name(const reshard_module *module, int32_t index);

/* Another module in a child's place. Errors: as find and add_child; INVALID for the path "". */
RESHARD_API reshard_status reshard_module_replace_child(reshard_module *module, const char *path,
                                                        reshard_module *child);
/* Another tensor in a parameter's place, under all names that it has in the module and its
 * descendants. Whether it is trainable is the new tensor's own matter. */
RESHARD_API reshard_status reshard_module_replace_parameter(reshard_module *module,
                                                            const char *path,
                                                            reshard_tensor *tensor);

/* ---- lists of tensors ------------------------------------------------------------------------ */

/* Names and references that live until the list is destroyed. */
typedef struct reshard_named_tensors {
    int64_t count;
    const reshard_named_tensor *items;
} reshard_named_tensors;

/* Parameters of the module and its descendants: a module's own first, then its children's, in the
 * order they were added. A tied one is listed once, under its first name. */
RESHARD_API reshard_status reshard_module_parameters(const reshard_module *module,
                                                     reshard_named_tensors **out_list);
RESHARD_API reshard_status reshard_module_buffers(const reshard_module *module,
                                                  reshard_named_tensors **out_list);
/* What a checkpoint keeps: parameters, tied ones under all their names, and buffers that are not
 * transient. The tensors are the module's own, not copies. */
RESHARD_API reshard_status reshard_module_state_dict(const reshard_module *module,
                                                     reshard_named_tensors **out_list);
/* The entries of both, those of the first list first: what a module and its optimizer keep, say. */
RESHARD_API reshard_status reshard_named_tensors_join(const reshard_named_tensors *first,
                                                      const reshard_named_tensors *second,
                                                      reshard_named_tensors **out_list);
RESHARD_API void reshard_named_tensors_destroy(reshard_named_tensors *list);

typedef struct reshard_load_options {
    size_t size;          /* sizeof(reshard_load_options) */
    int allow_missing;    /* entries of the module that the list has not stay as they are */
    int allow_unexpected; /* entries of the list that the module has not are passed over */
} reshard_load_options;

/*
 * Copies values into the module's parameters and buffers. Shapes and dtypes must be equal; layouts
 * need not be: a distributed tensor is moved into the layout that the module has, and a local one
 * counts as the whole tensor, the same on all ranks. All names, shapes and dtypes are checked
 * first, and nothing is written unless all is right. Collective where tensors are distributed.
 * options NULL: all zero. Errors: NOT_FOUND (missing, unexpected), INVALID (shape, dtype, a tensor
 * that is distributed over another group than the module's: nn_checkpoint.h goes between them).
 */
RESHARD_API reshard_status reshard_module_load_state_dict(reshard_module *module, int64_t count,
                                                          const reshard_named_tensor *items,
                                                          const reshard_load_options *options);

/* ---- calling --------------------------------------------------------------------------------- */

/*
 * Runs pre-hooks, forward, hooks, in the order they were added. Each sees what the one before it
 * left. Where one fails, or forward does, the rest are left out but for hooks that always run, and
 * the result is FAILED. In a scope that has failed already nothing is called.
 *
 * All of it runs in a scope of the call's own. The output is handed to the innermost scope; other
 * tensors that were computed go with the call, unless somebody has retained them.
 */
RESHARD_API reshard_value reshard_module_call(reshard_module *module, reshard_value input);
/* The same from a tensor to a tensor; NULL on failure. */
RESHARD_API reshard_tensor *reshard_module_forward(reshard_module *module, reshard_tensor *x);

/* ---- hooks ----------------------------------------------------------------------------------- */

/* The handle of one hook, or of several that were added together. */
typedef struct reshard_hook reshard_hook;

/* May put another value in the input's place. A status other than OK fails the call. */
typedef reshard_status (*reshard_forward_pre_hook_fn)(void *user, reshard_module *module,
                                                      reshard_value *input);
/* May put another value in the output's place. input: what forward was given. */
typedef reshard_status (*reshard_forward_hook_fn)(void *user, reshard_module *module,
                                                  reshard_value input, reshard_value *output);

typedef struct reshard_hook_options {
    size_t size; /* sizeof(reshard_hook_options) */
    int prepend; /* before the hooks that are there */
    /* forward hooks: run also when the call has failed, with an output of kind FAILED, which it
     * cannot mend */
    int always;
    void (*forget)(void *user); /* when the hook is gone; may be NULL */
} reshard_hook_options;

/* A hook that is added while its module runs is called from the next call on; one that is removed
 * meanwhile is not called any more. out_hook may be NULL: the hook then stays as long as the
 * module. options NULL: all zero. */
RESHARD_API reshard_status reshard_module_add_forward_pre_hook(reshard_module *module,
                                                               reshard_forward_pre_hook_fn fn,
                                                               void *user,
                                                               const reshard_hook_options *options,
                                                               reshard_hook **out_hook);
RESHARD_API reshard_status reshard_module_add_forward_hook(reshard_module *module,
                                                           reshard_forward_hook_fn fn, void *user,
                                                           const reshard_hook_options *options,
                                                           reshard_hook **out_hook);
/* Takes the hook off its module, if that still lives, and frees the handle. */
RESHARD_API void reshard_hook_remove(reshard_hook *hook);
/* Frees the handle; the hook stays. */
RESHARD_API void reshard_hook_release(reshard_hook *hook);

#ifdef __cplusplus
}
#endif
#endif
