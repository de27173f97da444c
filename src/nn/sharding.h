/* SPDX-License-Identifier: Apache-2.0 */
/* sharding.h - the structs behind sharding plans. */
#ifndef RS_NN_SHARDING_H
#define RS_NN_SHARDING_H

#include <reshard/style.h>

#include <stdbool.h>

/* In the order in which they are carried out. */
typedef enum rs_sharding_kind {
    RS_SHARDING_PARAMETER,
    RS_SHARDING_SHARDER,
    RS_SHARDING_INPUT,
    RS_SHARDING_OUTPUT,
    RS_SHARDING_LOCAL,
    RS_SHARDING_STYLE /* stands for entries of the other kinds */
} rs_sharding_kind;

typedef struct rs_sharding_entry {
    rs_sharding_kind kind;
    char *name;              /* a path; of a style, a pattern */
    reshard_spec *spec;      /* of parameters, inputs and outputs; may be NULL for inputs */
    reshard_spec *local;     /* of inputs: what local tensors are, or NULL */
    bool one_axis;           /* of inputs and outputs: `spec` is about `axis` only */
    int32_t axis;            /* of styles too */
    reshard_sharder sharder; /* only of sharders */
    reshard_style style;     /* only of styles; the texts belong to the plan */
    reshard_mesh *mesh;      /* only of styles */
} rs_sharding_entry;

struct reshard_sharding_plan {
    reshard_context *context;
    int64_t count, capacity;
    rs_sharding_entry *entries;
};

/* Adds a copy of the entry; specs and mesh are retained, texts copied. */
reshard_status rs_sharding_add(reshard_sharding_plan *plan, const rs_sharding_entry *entry,
                               const char *name);
/* Adds what makes a GPT sequence parallel (style.c); its kind has been checked. */
reshard_status rs_sharding_add_gpt_sequence(reshard_sharding_plan *plan, reshard_module *gpt,
                                            reshard_mesh *mesh, int32_t axis);
/* Makes a plan with the entries that styles stand for in this module, and all others. */
reshard_status rs_sharding_expand(const reshard_sharding_plan *plan, reshard_module *module,
                                  reshard_sharding_plan **out_plan);

/* Puts the hook of an entry on the module. The group is that of local tensors. */
reshard_status rs_sharding_hook_input(reshard_module *module, const rs_sharding_entry *entry,
                                      reshard_group *group, reshard_hook **out_hook);
reshard_status rs_sharding_hook_output(reshard_module *module, const rs_sharding_entry *entry,
                                       reshard_hook **out_hook);

/* Replaces the tensors of a value, also in lists, by what `fn` gives. */
typedef reshard_tensor *(*rs_change_fn)(reshard_tensor *tensor, const void *user);
reshard_status rs_value_change(reshard_value *value, rs_change_fn fn, const void *user);
/* Whether the spec cannot describe a tensor without dims. */
bool rs_spec_needs_dims(const reshard_spec *spec);

#endif
