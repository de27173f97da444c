/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nn.h - modules: a forward function with named children, parameters and buffers. nn_layers.h has
 * ready-made ones, optimizer.h trains them, shard.h spreads them over ranks.
 *
 *     reshard_module_create(NULL, &(reshard_module_kind){.name = "scaled", .forward = scale}, &m);
 *     reshard_module_add_parameter(m, "factor", factor);
 *     reshard_module_add_child(parent, "scaled", m);
 *
 * Parameters are tensors, local or distributed, that may collect gradients or be frozen
 * (reshard_tensor_set_requires_grad); reshard_module_set_parameter sets their values. A tensor that
 * has two names is tied: replacing it under one name replaces it under both. Names of children,
 * parameters and buffers are paths with dots: "h.0.mlp.weight"; "" is the module itself.
 *
 * A module belongs to one rank and is used by one thread at a time. Calls are Local unless stated
 * otherwise; calling a module is Collective if its tensors are distributed.
 */
#ifndef RESHARD_NN_H
#define RESHARD_NN_H

#include <reshard/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * Make modules, call them, list what they hold, load it again.
 */

/* ---- values ---------------------------------------------------------------------------------- */

typedef enum reshard_value_kind {
    RESHARD_VALUE_NOTHING,
    RESHARD_VALUE_TENSOR,
    RESHARD_VALUE_LIST,
    RESHARD_VALUE_FAILED /* the scope has the error */
} reshard_value_kind;

/* What modules take and return. A value owns nothing: tensors and lists belong to scopes. */
typedef struct reshard_value {
    reshard_value_kind kind;
    int32_t count; /* of a list */
    reshard_tensor *tensor;
    const struct reshard_value *items; /* of a list */
} reshard_value;

/* A zeroed reshard_value is nothing. */
/* NULL, the result of a failed computation, makes a value of kind FAILED. */
RESHARD_API reshard_value reshard_value_of(reshard_tensor *tensor);
/* The items are copied into the innermost scope. A failed item makes the list failed. */
RESHARD_API reshard_value reshard_value_list(int32_t count, const reshard_value *items);
/* The tensor of a value of kind TENSOR; otherwise NULL, with an error in the scope. */
RESHARD_API reshard_tensor *reshard_value_tensor(reshard_value value);
/* An item of a list; if there is no such item, a value of kind FAILED, with an error in the
 * scope. */
RESHARD_API reshard_value reshard_value_item(reshard_value list, int32_t index);

/* ---- creating modules ------------------------------------------------------------------------ */

typedef struct reshard_module reshard_module;

typedef struct reshard_module_kind {
    const char *name; /* "linear"; copied */
    /* Computes the output, in the innermost scope. */
    reshard_value (*forward)(reshard_module *module, void *user, reshard_value input);
    void *user;
    void (*forget)(void *user); /* called when the module is freed; may be NULL */
} reshard_module_kind;

/* If this fails, forget is not called. */
RESHARD_API reshard_status reshard_module_create(reshard_context *context,
                                                 const reshard_module_kind *kind,
                                                 reshard_module **out_module);
RESHARD_API reshard_module *reshard_module_retain(reshard_module *module);
RESHARD_API void reshard_module_release(reshard_module *module);
RESHARD_API const char *reshard_module_kind_name(const reshard_module *module);

/* Retains the child. Errors: INVALID if the name is empty, has a dot, or belongs to another child,
 * parameter or buffer; or if the module would become its own descendant. */
RESHARD_API reshard_status reshard_module_add_child(reshard_module *module, const char *name,
                                                    reshard_module *child);
/* Retains the tensor. NULL: the name exists but has no tensor, like a bias that is left out. */
RESHARD_API reshard_status reshard_module_add_parameter(reshard_module *module, const char *name,
                                                        reshard_tensor *tensor);
/* Adds a tensor that is not a parameter. transient non-zero: it is not part of the state dict. */
RESHARD_API reshard_status reshard_module_add_buffer(reshard_module *module, const char *name,
                                                     reshard_tensor *tensor, int transient);

/* ---- finding --------------------------------------------------------------------------------- */

/* Finds by path; the result is not retained. Errors: NOT_FOUND, naming the path and where it
 * ends. */
RESHARD_API reshard_status reshard_module_find(reshard_module *module, const char *path,
                                               reshard_module **out_module);
/* A parameter or buffer. *out_tensor is NULL for a parameter without a tensor. */
RESHARD_API reshard_status reshard_module_find_tensor(const reshard_module *module,
                                                      const char *path,
                                                      reshard_tensor **out_tensor);
/* For forward functions: the module's own parameter or buffer by name; NULL if there is none. */
RESHARD_API reshard_tensor *reshard_module_tensor(const reshard_module *module, const char *name);
/* The children, numbered from 0; NULL beyond the last. out_name may be NULL. */
RESHARD_API reshard_module *reshard_module_child(const reshard_module *module, int32_t index,
                                                 const char **out_name);

/* Copies a tensor's values into a parameter, which keeps its layout and stays trainable or frozen.
 * tensor: of the same shape and dtype; a local one counts as the whole value, the same on all
 * ranks, and a distributed one is moved. Collective if one of the two is distributed. Errors:
 * NOT_FOUND; INVALID (shape, dtype, another group, a parameter without a tensor). */
RESHARD_API reshard_status reshard_module_set_parameter(reshard_module *module, const char *path,
                                                        reshard_tensor *tensor);

/* ---- lists of tensors ------------------------------------------------------------------------ */

/* Names and tensors, valid until the list is destroyed. */
typedef struct reshard_named_tensors {
    int64_t count;
    const reshard_named_tensor *items;
} reshard_named_tensors;

/* Lists the parameters of the module and its descendants: a module's own first, then its
 * children's, in the order in which they were added. A tied parameter is listed once, under its
 * first name. */
RESHARD_API reshard_status reshard_module_parameters(const reshard_module *module,
                                                     reshard_named_tensors **out_list);
RESHARD_API reshard_status reshard_module_buffers(const reshard_module *module,
                                                  reshard_named_tensors **out_list);
/* Lists what a checkpoint stores: parameters, tied ones under all their names, and buffers that are
 * not transient. A module's own parameters come first, then its own buffers, then its children's
 * tensors, as in PyTorch. The tensors are the module's own, not copies. */
RESHARD_API reshard_status reshard_module_state_dict(const reshard_module *module,
                                                     reshard_named_tensors **out_list);
RESHARD_API void reshard_named_tensors_destroy(reshard_named_tensors *list);

typedef struct reshard_load_options {
    size_t size;          /* sizeof(reshard_load_options) */
    int allow_missing;    /* entries that only the module has stay as they are */
    int allow_unexpected; /* entries that only the list has are ignored */
} reshard_load_options;

/*
 * Copies values into the module's parameters and buffers. Shapes and dtypes must be equal, layouts
 * need not be: a distributed tensor is moved into the module's layout, and a local one counts as
 * the whole tensor, the same on all ranks. All names, shapes and dtypes are checked first; if one
 * is wrong, nothing is written. Collective if tensors are distributed. options NULL: all zero.
 * Errors: NOT_FOUND (missing, unexpected), INVALID (shape, dtype, a name that is NULL or occurs
 * twice in items, a tensor that is distributed over a group other than the module's;
 * nn_checkpoint.h can go between groups).
 */
RESHARD_API reshard_status reshard_module_load_state_dict(reshard_module *module, int64_t count,
                                                          const reshard_named_tensor *items,
                                                          const reshard_load_options *options);

/* ---- calling --------------------------------------------------------------------------------- */

/*
 * Runs pre-hooks, forward and hooks, in the order in which they were added; each sees the value
 * that the one before it left. If one of them fails, the rest are skipped, except for hooks that
 * always run, and the result is FAILED. In a scope that has already failed, nothing is called.
 *
 * The call runs in a scope of its own. The output is handed to the innermost scope; other tensors
 * that were computed are freed with the call unless somebody has retained them.
 */
RESHARD_API reshard_value reshard_module_call(reshard_module *module, reshard_value input);
/* The same with a tensor as input and output; NULL on failure. */
RESHARD_API reshard_tensor *reshard_module_forward(reshard_module *module, reshard_tensor *x);

/* ==== explicit ===================================================================================
 * Modules that are changed after they were made: children replaced, hooks before and after forward.
 */

/* ---- replacing and joining ------------------------------------------------------------------- */

/* Replaces a child by another module. Errors: those of find and add_child; INVALID for the path
 * "". */
RESHARD_API reshard_status reshard_module_replace_child(reshard_module *module, const char *path,
                                                        reshard_module *child);
/* Replaces a parameter by another tensor, under all names it has in the module and its descendants.
 * Whether the parameter is trainable depends on the new tensor. */
RESHARD_API reshard_status reshard_module_replace_parameter(reshard_module *module,
                                                            const char *path,
                                                            reshard_tensor *tensor);

/* Makes a list of the entries of `first` and then those of `second`; for example to store a module
 * together with its optimizer. */
RESHARD_API reshard_status reshard_named_tensors_join(const reshard_named_tensors *first,
                                                      const reshard_named_tensors *second,
                                                      reshard_named_tensors **out_list);

/* ---- hooks ----------------------------------------------------------------------------------- */

/* The handle of one hook, or of several that were added together. */
typedef struct reshard_hook reshard_hook;

/* May replace the input. A status other than OK fails the call. */
typedef reshard_status (*reshard_forward_pre_hook_fn)(void *user, reshard_module *module,
                                                      reshard_value *input);
/* May replace the output. input: the value passed to forward. */
typedef reshard_status (*reshard_forward_hook_fn)(void *user, reshard_module *module,
                                                  reshard_value input, reshard_value *output);

typedef struct reshard_hook_options {
    size_t size; /* sizeof(reshard_hook_options) */
    int prepend; /* before the existing hooks */
    /* forward hooks: run the hook even if the call has failed; its output is then of kind FAILED,
     * and stays so */
    int always;
    /* called when the hook is removed or its module freed; may be NULL */
    void (*forget)(void *user);
} reshard_hook_options;

/* A hook added while its module runs takes effect at the next call; one removed meanwhile is not
 * called any more. out_hook may be NULL: the hook then lives as long as the module. options NULL:
 * all zero. */
RESHARD_API reshard_status reshard_module_add_forward_pre_hook(reshard_module *module,
                                                               reshard_forward_pre_hook_fn fn,
                                                               void *user,
                                                               const reshard_hook_options *options,
                                                               reshard_hook **out_hook);
RESHARD_API reshard_status reshard_module_add_forward_hook(reshard_module *module,
                                                           reshard_forward_hook_fn fn, void *user,
                                                           const reshard_hook_options *options,
                                                           reshard_hook **out_hook);
/* Removes the hook from its module, if that still exists, and frees the handle. */
RESHARD_API void reshard_hook_remove(reshard_hook *hook);

#ifdef __cplusplus
}
#endif
#endif
