/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h - gives a tensor its cuts by its name: the rules language (docs/rules.md), the built-in
 * families, and what one tensor gets on one mesh. All calls are Local. Rules are immutable and may
 * be shared by threads.
 *
 * The usual order: parse or builtin, then check_mesh once, then for each tensor either apply (its
 * full shape is known) or recover (files hold only local shapes). memo.h applies rules to all
 * tensors of a model.
 */
#ifndef RS_CHECKPOINT_RULES_RULES_H
#define RS_CHECKPOINT_RULES_RULES_H

#include <reshard/layout.h>

#include <stdbool.h>

typedef struct rs_rules rs_rules;

/* text: `bytes` bytes, which need not end in NUL. file_name is what errors call it ("llama.rules:3:
 * ...") and is copied. Errors: SYNTAX, RANGE and others, with file, line, text and cause on one
 * line. */
reshard_status rs_rules_parse(reshard_context *context, const char *text, size_t bytes,
                              const char *file_name, rs_rules **out_rules);
/* family: fsdp, llama, gpt2, neox, mixtral or replicate. Errors: NOT_FOUND. */
reshard_status rs_rules_builtin(reshard_context *context, const char *family, rs_rules **out_rules);
void rs_rules_destroy(rs_rules *rules);

/* The family of that index and its rules as text; NULL beyond the last. Static. */
const char *rs_rules_family_name(int32_t index);
const char *rs_rules_family_text(int32_t index);

/* Where $keys come from. find: the value of a key ("num_hidden_layers", "text_config.head_dim",
 * "quantization_config.weight_block_size.0": members and items joined by dots), false when there is
 * none. true and false of JSON are 1 and 0. keys NULL: no key has a value. */
typedef struct rs_rules_keys {
    bool (*find)(void *user, const char *key, int64_t *out_value);
    void *user;
    /* The same for keys whose value is a text; NULL, or a result of NULL: there is none. */
    const char *(*find_text)(void *user, const char *key);
} rs_rules_keys;

/* Checks that every axis of the mesh longer than 1 is named by some rule of the set, or is called
 * dp. Errors: INVALID, naming the axis and those that the rules know. */
reshard_status rs_rules_check_mesh(const rs_rules *rules, const reshard_mesh *mesh);

/* What the first matching rule says about a tensor. Owned by the caller: rs_rule_result_release. */
typedef struct rs_rule_result {
    bool unmatched; /* rs_rules_name: no rule matches, and nothing else is set */
    bool drop;      /* the tensor is to be left out; rule, line and file_name alone are set */
    char *new_name; /* NUL behind new_name_bytes bytes; NULL: the name stays */
    size_t new_name_bytes; /* names may hold NUL */
    /* 0 for a tensor of more than RESHARD_NDIM_MAX dimensions, which no rule may cut or pad. */
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX]; /* the tensor itself: without padding */
    /* What spec cuts: shape, with zero rows added at the end of the dimensions that pad() names. */
    int64_t padded_shape[RESHARD_NDIM_MAX];
    bool padded;            /* padded_shape is not shape */
    bool padding_unknown;   /* recover: there may be padding, and the true size is not known */
    reshard_spec *spec;     /* over the mesh; one reference */
    reshard_layout *layout; /* of padded_shape, so that it need not be made again; one reference */
    int64_t rule;           /* its number among all of the set */
    int32_t line;           /* of the rule, for messages */
    const char *file_name;  /* that the line is in; lives as long as the rules */
    reshard_context *context;
} rs_rule_result;
void rs_rule_result_release(rs_rule_result *result);

/* For a tensor of full shape. Errors: NOT_FOUND when no rule matches or a $key has no value,
 * INVALID when a cut does not divide heads, and others; the words name tensor, rule and numbers. */
reshard_status rs_rules_apply(const rs_rules *rules, reshard_mesh *mesh, const rs_rules_keys *keys,
                              const char *name, size_t name_bytes, int32_t ndim,
                              const int64_t *shape, rs_rule_result *out_result);

/* The result for a number, which is whole on all ranks without any rule. */
reshard_status rs_rules_scalar(const rs_rules *rules, reshard_mesh *mesh,
                               rs_rule_result *out_result);

/* Only drop, unmatched, new_name, rule, line and file_name of that result. That no rule matches is
 * no error here, so that a caller can tell of all such tensors at once. */
reshard_status rs_rules_name(const rs_rules *rules, reshard_mesh *mesh, const rs_rules_keys *keys,
                             const char *name, size_t name_bytes, int32_t ndim,
                             const int64_t *shape, rs_rule_result *out_result);

/* What is known about a tensor in files of ranks. */
typedef struct rs_local_shapes {
    int32_t ndim; /* of local shapes */
    /* The local shape in the file of the rank at a position of the mesh; false when that file does
     * not hold the tensor. */
    bool (*find)(void *user, int32_t position, int64_t *out_shape);
    void *user;
    /* The whole shape, which files give only for tensors that are cut flat; NULL: not given. */
    int32_t full_ndim;
    const int64_t *full;
} rs_local_shapes;

/* For a tensor of which only the shapes on each rank are known: finds the full shape that the rules
 * cut into these. padded_shape is what the files hold together. shape has the padding taken off
 * where the rule gives the true size (pad(d, m, true)) and its key has a value; elsewhere it equals
 * padded_shape. name is the one in the files. Errors: as apply, and INVALID when no full shape
 * gives the local ones, naming a position and both shapes; UNSUPPORTED for a flat cut when the
 * files do not give the shape. */
reshard_status rs_rules_recover(const rs_rules *rules, reshard_mesh *mesh,
                                const rs_rules_keys *keys, const char *name, size_t name_bytes,
                                const rs_local_shapes *locals, rs_rule_result *out_result);

/* Does a layout give every rank of the mesh the local shape that it has? Errors: INVALID, naming a
 * position and both shapes. */
reshard_status rs_rules_check_locals(const reshard_mesh *mesh, const rs_local_shapes *locals,
                                     const reshard_layout *layout);

/* The name at an index, or NULL beyond the last; its length in *out_bytes. */
typedef const char *(*rs_tensor_name_fn)(void *user, int64_t index, size_t *out_bytes);

/* Puts without() in force: rules whose condition these names do not meet no longer apply. Once,
 * before the rules are shared. */
reshard_status rs_rules_bind(rs_rules *rules, rs_tensor_name_fn names, void *user);

typedef struct rs_rules_choice {
    const char *family; /* static */
    bool is_by_name;    /* the names of tensors decided */
    char reason[224];   /* 'model_type is "qwen2"', 'a tensor is called "transformer.wte.weight"' */
} rs_rules_choice;
/* The family for a mesh and a model: fsdp (or replicate) when no axis has another name
 * than fsdp and dp, else that of config.json's model_type, or else that of the tensor names.
 * Each of mesh, model_type and names may be NULL. Errors: NOT_FOUND when none of them
 * decides. */
reshard_status rs_rules_detect(const reshard_mesh *mesh, const char *model_type,
                               rs_tensor_name_fn names, void *user, rs_rules_choice *out_choice);

/* True when the glob (* ? {a,b} {0..15}) matches all of the name.
 * Errors: SYNTAX. */
reshard_status rs_glob_match(const char *glob, size_t glob_bytes, const char *name,
                             size_t name_bytes, bool *out_matches);

#endif
