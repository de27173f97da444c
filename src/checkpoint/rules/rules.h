/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h - cuts tensors by their names: the rules language (docs/rules.md), the built-in families,
 * and what one tensor gets on one mesh. All calls are Local. Rules do not change once they are
 * bound, and threads may share them.
 *
 * The usual order: parse or builtin, then check_mesh once, then for each tensor either apply (if
 * its full shape is known) or recover (if files hold only local shapes). memo.h applies rules to
 * all tensors of a model.
 */
#ifndef RS_CHECKPOINT_RULES_RULES_H
#define RS_CHECKPOINT_RULES_RULES_H

#include <reshard/layout.h>

#include <stdbool.h>

typedef struct rs_rules rs_rules;

/* text: `bytes` bytes, which need not end in NUL. file_name is copied, and begins error texts
 * ("llama.rules:3: ..."). Errors: SYNTAX, RANGE and others, with file, line, text and cause on one
 * line. */
reshard_status rs_rules_parse(reshard_context *context, const char *text, size_t bytes,
                              const char *file_name, rs_rules **out_rules);
/* family: the name of a file in families/. Errors: NOT_FOUND. */
reshard_status rs_rules_builtin(reshard_context *context, const char *family, rs_rules **out_rules);
void rs_rules_destroy(rs_rules *rules);

/* The name of the family with that index, and its rules as text; NULL beyond the last. Static. */
const char *rs_rules_family_name(int32_t index);
const char *rs_rules_family_text(int32_t index);

/* Where the values of $keys come from. find: looks up a number by its key ("num_hidden_layers",
 * "text_config.head_dim", "quantization_config.weight_block_size.0": members and items joined by
 * dots), and returns false if there is none. JSON's true and false are 1 and 0. A NULL
 * rs_rules_keys means that no key has a value. */
typedef struct rs_rules_keys {
    bool (*find)(void *user, const char *key, int64_t *out_value);
    void *user;
    /* The same for keys whose value is a text. May be NULL. Returns NULL if there is none. */
    const char *(*find_text)(void *user, const char *key);
} rs_rules_keys;

/* Checks that every axis of the mesh longer than 1 is named by some rule of the set, or is called
 * dp. Errors: INVALID, naming the axis and those that the rules know. */
reshard_status rs_rules_check_mesh(const rs_rules *rules, const reshard_mesh *mesh);
/* Takes the axes out of a mesh that the rules say are over the ranks of another one, and remembers
 * their sizes. *out_mesh has a reference of its own. Call it once, before the rules are shared.
 * Errors: INVALID, if such an axis has neither 1 coordinate nor as many as the other. */
reshard_status rs_rules_fold_mesh(rs_rules *rules, reshard_mesh *mesh, reshard_mesh **out_mesh);

/* What the matching rule says about a tensor. The caller owns it: rs_rule_result_release. */
typedef struct rs_rule_result {
    bool unmatched; /* rs_rules_name only: no rule matches, and nothing else is set */
    /* the tensor is to be left out; only the rule, its line and file_name are set */
    bool drop;
    char *new_name; /* ends in a NUL after new_name_bytes bytes; NULL: the name does not change */
    size_t new_name_bytes; /* names may contain NUL */
    /* 0 for a tensor of more than RESHARD_NDIM_MAX dimensions, which rules can neither cut nor
     * pad. */
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX]; /* of the tensor itself, without padding */
    /* The shape that `spec` cuts: `shape`, plus zero rows at the end of the dimensions that pad()
     * names. */
    int64_t padded_shape[RESHARD_NDIM_MAX];
    bool padded; /* padded_shape differs from shape */
    /* ranks that are not to have it, because of A(), hold zeros of its shape */
    bool zeros;
    /* rs_rules_recover only: there may be padding, but the true size is not known */
    bool padding_unknown;
    reshard_spec *spec; /* over the mesh; one reference */
    /* of padded_shape, so that nobody has to make it again; one reference */
    reshard_layout *layout;
    int64_t rule;          /* its index in the set */
    int32_t line;          /* line of the rule, for messages */
    const char *file_name; /* file of that line; lives as long as the rules */
    reshard_context *context;
} rs_rule_result;
void rs_rule_result_release(rs_rule_result *result);

/* Applies the rules to a tensor whose full shape is known. Errors: NOT_FOUND if no rule matches or
 * a $key has no value, INVALID if a cut does not divide heads, and others. The text names tensor,
 * rule and numbers. */
reshard_status rs_rules_apply(const rs_rules *rules, reshard_mesh *mesh, const rs_rules_keys *keys,
                              const char *name, size_t name_bytes, int32_t ndim,
                              const int64_t *shape, rs_rule_result *out_result);

/* The result for a scalar, which every rank holds whole and which needs no rule. */
reshard_status rs_rules_scalar(const rs_rules *rules, reshard_mesh *mesh,
                               rs_rule_result *out_result);

/* Fills in only drop, unmatched, new_name, rule, line and file_name of that result. A tensor that
 * no rule matches is not an error here, so that the caller can report all such tensors at once. */
reshard_status rs_rules_name(const rs_rules *rules, reshard_mesh *mesh, const rs_rules_keys *keys,
                             const char *name, size_t name_bytes, int32_t ndim,
                             const int64_t *shape, rs_rule_result *out_result);

/* What is known about a tensor that is stored in one file per rank. */
typedef struct rs_local_shapes {
    int32_t ndim; /* of the local shapes */
    /* The local shape in the file of the rank at a position of the mesh. Returns false if that file
     * does not hold the tensor. */
    bool (*find)(void *user, int32_t position, int64_t *out_shape);
    void *user;
} rs_local_shapes;

/* Finds the full shape of a tensor of which only the local shapes are known: the one that the rules
 * cut into these. padded_shape is what the files hold together. shape is without the padding if the
 * rule gives the true size (pad(d, m, true)) and its key has a value; otherwise it equals
 * padded_shape. `name` is the name in the files. Errors: those of rs_rules_apply; INVALID if no
 * full shape gives the local ones, naming a position and both shapes; UNSUPPORTED for a flat
 * cut, from which no full shape follows. */
reshard_status rs_rules_recover(const rs_rules *rules, reshard_mesh *mesh,
                                const rs_rules_keys *keys, const char *name, size_t name_bytes,
                                const rs_local_shapes *locals, rs_rule_result *out_result);

/* Checks that a result gives every rank of the mesh the local shape that it has. Errors: INVALID,
 * naming a position and both shapes. */
reshard_status rs_rules_check_locals(const reshard_mesh *mesh, const rs_local_shapes *locals,
                                     const rs_rule_result *result);

/* If others hold zeros in place of a tensor: does the rank at this position? Then *out_like is a
 * position that has the tensor, in the same shape. */
bool rs_spec_zeros_at(const reshard_spec *spec, int32_t position, int32_t *out_like);

/* Returns the name at an index, and its length in *out_bytes; NULL beyond the last. */
typedef const char *(*rs_tensor_name_fn)(void *user, int64_t index, size_t *out_bytes);

/* Makes all rules forget their pad(). Call it before the rules are shared. */
void rs_rules_forget_pads(rs_rules *rules);

/* Evaluates without() for a model with these names: rules whose condition does not hold never apply
 * from then on. Call it once, before the rules are shared. */
reshard_status rs_rules_bind(rs_rules *rules, rs_tensor_name_fn names, void *user);

typedef struct rs_rules_choice {
    const char *family; /* static */
    bool is_by_name;    /* the names of tensors decided */
    char reason[224];   /* 'model_type is "qwen2"', 'a tensor is called "transformer.wte.weight"' */
} rs_rules_choice;
/* Chooses the family for a mesh and a model. If all axes of the mesh are called fsdp or dp, it is
 * fsdp or replicate; else that of config.json's model_type, or else that of the tensor names. Each
 * of mesh, model_type and names may be NULL. Errors: NOT_FOUND if none of them decides. */
reshard_status rs_rules_detect(const reshard_mesh *mesh, const char *model_type,
                               rs_tensor_name_fn names, void *user, rs_rules_choice *out_choice);

/* Whether the glob (* ? {a,b} {0..15}) matches the whole name. Errors: SYNTAX. */
reshard_status rs_glob_match(const char *glob, size_t glob_bytes, const char *name,
                             size_t name_bytes, bool *out_matches);

#endif
