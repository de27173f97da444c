/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.h - the structs behind modules and hooks.
 *
 * Invariants:
 *  1. A module has holdings, each with a name and a tensor or a child. Nothing holds a parent.
 *  2. A hook is held by its module and by its handle. It leaves the module's list only while no
 *     call of the module is under way; until then it is marked as removed.
 */
#ifndef RS_NN_MODULE_H
#define RS_NN_MODULE_H

#include <reshard/nn.h>

#include "base/references.h"

#include <stdbool.h>

typedef enum rs_holding_kind {
    RS_HOLDING_CHILD,
    RS_HOLDING_PARAMETER,
    RS_HOLDING_BUFFER
} rs_holding_kind;

typedef struct rs_holding {
    char *name;
    rs_holding_kind kind;
    bool transient;         /* of a buffer: not part of the state dict */
    bool planned;           /* a sharding plan put the parameter or child there */
    reshard_module *child;  /* only of a child */
    reshard_tensor *tensor; /* only of a parameter or buffer; may be NULL */
} rs_holding;

/* Who asked for a hook: the user, or an entry of a sharding plan. */
typedef enum rs_hook_origin {
    RS_HOOK_OWN,
    RS_HOOK_PLANNED_INPUT,
    RS_HOOK_PLANNED_OUTPUT,
    RS_HOOK_PLANNED_LOCAL
} rs_hook_origin;

typedef enum rs_hook_kind { RS_HOOK_PRE, RS_HOOK_POST, RS_HOOK_AROUND, RS_HOOK_KINDS } rs_hook_kind;

/* The thread's state before the call, which leave restores. */
typedef struct rs_around_frame {
    struct rs_hook_pair *hooks;
    struct reshard_group *replicas;
} rs_around_frame;

/* Functions that run right before and after forward. leave is called if and only if enter returned
 * RESHARD_OK. */
typedef struct rs_around {
    reshard_status (*enter)(void *user, reshard_module *module, rs_around_frame *frame);
    void (*leave)(void *user, reshard_module *module, const rs_around_frame *frame);
} rs_around;

typedef struct rs_hook_entry {
    rs_references references;
    reshard_context *context;
    reshard_module *module; /* NULL after the module is gone */
    rs_hook_kind kind;
    rs_hook_origin origin;
    uint64_t serial; /* counts hooks in the order they were added */
    bool always, removed;
    reshard_forward_pre_hook_fn pre;
    reshard_forward_hook_fn post;
    rs_around around;
    void *user;
    void (*forget)(void *user);
    struct rs_hook_entry *next; /* in the module's list */
} rs_hook_entry;

struct reshard_hook {
    reshard_context *context;
    rs_hook_entry *entry;
    reshard_hook *next; /* for a handle of several hooks */
};

struct reshard_module {
    rs_references references;
    reshard_context *context;
    char *kind_name;
    reshard_module_kind kind;
    int64_t holding_count, holding_capacity;
    rs_holding *holdings;
    rs_hook_entry *hooks[RS_HOOK_KINDS]; /* in the order they run */
    uint64_t hook_serial;
    int64_t running; /* calls in progress */
};

/* Finds the holding of this name in this module; NULL if there is none. */
rs_holding *rs_module_holding(const reshard_module *module, const char *name, size_t length);
/* Finds a parameter by path. Errors: NOT_FOUND. */
reshard_status rs_module_find_parameter(const reshard_module *module, const char *path,
                                        reshard_tensor **out_tensor);
/* Finds the holding at a path, which must not be "". Errors: NOT_FOUND. */
reshard_status rs_module_find_holding(const reshard_module *module, const char *path,
                                      rs_holding **out_holding);
/* Replaces the parameter `old` by `tensor` wherever the module and its descendants have it. Cannot
 * fail. */
void rs_module_swap_tensor(reshard_module *module, const reshard_tensor *old,
                           reshard_tensor *tensor);
bool rs_module_contains(const reshard_module *module, const reshard_module *other);
/* Whether a holding is in the module or below it, so that putting the module there would make it
 * contain itself. */
bool rs_module_has_holding(const reshard_module *module, const rs_holding *holding);

/* Adds a copy of `entry`, in which the caller sets kind, origin, always, user, forget and the
 * functions. Does not call forget on failure. */
reshard_status rs_hook_add(reshard_module *module, const rs_hook_entry *entry, bool prepend,
                           reshard_hook **out_hook);
void rs_hooks_purge(reshard_module *module);
void rs_hooks_destroy(reshard_module *module);
void rs_hook_entry_release(rs_hook_entry *entry);
/* Appends the second handle to the first and returns the first; either may be NULL. */
reshard_hook *rs_hook_join(reshard_hook *first, reshard_hook *second);
/* Frees the handle; the hook stays. */
void rs_hook_release(reshard_hook *hook);

#endif
