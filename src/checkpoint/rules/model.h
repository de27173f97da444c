/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - the parts of a set of rules, for the files in this folder that read and apply them.
 * Numbers are kept as text, because keys and wildcards have a different value for each tensor;
 * their syntax was checked when the set was read.
 */
#ifndef RS_CHECKPOINT_RULES_MODEL_H
#define RS_CHECKPOINT_RULES_MODEL_H

#include "base/slice.h"
#include "checkpoint/rules/number.h"

#define RS_SAME_AXES_MAX 4

typedef struct rs_rule_cut {
    rs_slice placement; /* "S(0, unit=$head_dim)", "A(..)" or "R"; if it refuses, the reason */
    const char *axis;
    uint64_t wildcards; /* the {n} that it contains: bit n - 1 for {n} */
    bool refuses;
} rs_rule_cut;

typedef struct rs_rule_pad {
    int32_t dim; /* may be negative */
    rs_slice multiple;
    rs_slice true_size; /* empty: not given */
} rs_rule_pad;

/* What the model's configuration says about a dimension of the whole tensor. */
typedef struct rs_rule_size {
    int32_t dim;
    rs_slice number;
} rs_rule_size;

/* The dimension of the followed tensor that one of our dimensions goes with; -1: none. `shares`:
 * several elements of that dimension share one of ours, as the rows of a block share a scale. */
typedef struct rs_rule_follow {
    int32_t dim;
    bool shares;
} rs_rule_follow;

typedef struct rs_rule {
    const char *file_name;
    int32_t line;
    bool is_every; /* a default, which adds cuts to those of the rule that matched */
    bool is_drop;
    bool is_uneven; /* units need not divide evenly */
    bool is_even;   /* cuts without a unit have to divide evenly, too */
    bool is_zeros;  /* where A() says that it is not, there are zeros of its shape */
    bool is_void;   /* the model has a tensor that without() excludes: the rule never applies */
    rs_glob glob;
    rs_slice glob_text;
    bool has_shape; /* there is a "[$heads, *]" after the pattern */
    int32_t shape_ndim;
    rs_slice shape[RESHARD_NDIM_MAX]; /* each a number or "*" */
    rs_slice when;                    /* the rule applies only if this is not 0; empty: always */
    rs_slice when_key, when_words;    /* the rule applies only if the key's text is one of "a|b" */
    rs_slice without_text;            /* the rule applies only if no name matches; empty: always */
    rs_glob without;
    rs_slice new_name; /* empty: the name does not change */
    rs_slice like;     /* name of the tensor whose rule this one follows; empty: none */
    int32_t follow_count;
    rs_rule_follow follows[RESHARD_NDIM_MAX];
    int32_t cut_count;
    rs_rule_cut cuts[RESHARD_AXES_MAX];
    int32_t pad_count;
    rs_rule_pad pads[RESHARD_NDIM_MAX];
    int32_t size_count;
    rs_rule_size sizes[RESHARD_NDIM_MAX];
} rs_rule;

struct rs_rules {
    reshard_context *context;
    rs_arena arena;        /* owns the texts, and what the globs point to */
    const char *file_name; /* as given; rules that came by `use` have another one */
    bool is_builtin;
    int64_t rule_count, rule_capacity;
    rs_rule *rules;
    int64_t default_count, default_capacity;
    rs_number_default *defaults;
    int64_t axis_count, axis_capacity;
    const char **axes; /* all axes that any rule names, each once */
    int32_t same_count;
    rs_same_axes same[RS_SAME_AXES_MAX];
};

/* Writes a cut in the spec language, "S(0, unit=128)", with variables replaced by their values.
 * "last" and "of" refer to axis_size. Writes at most RS_PLACEMENT_BYTES. Errors: those of
 * rs_number_read; RANGE if the text is too long. */
#define RS_PLACEMENT_BYTES 2048
reshard_status rs_rule_placement_text(const rs_number_scope *scope, rs_slice placement,
                                      int64_t axis_size, char out_text[RS_PLACEMENT_BYTES]);
/* Parses that text for an axis of the given name and size, into a spec with one axis and one
 * cut. */
reshard_status rs_rule_placement_read(reshard_context *context, const char *text, const char *axis,
                                      int64_t axis_size, reshard_spec **out_spec);
/* Does both in one call. */
reshard_status rs_rule_placement_parse(reshard_context *context, const rs_number_scope *scope,
                                       const rs_rule_cut *cut, int64_t axis_size,
                                       reshard_spec **out_spec);
/* Writes the new name of a tensor, with wildcards replaced: at most `capacity` bytes. *out_length
 * is the full length. Errors: SYNTAX. */
reshard_status rs_rule_new_name(const rs_number_scope *scope, rs_slice new_name, char *buffer,
                                size_t capacity, size_t *out_length);

/* "llama.rules:3" */
#define RS_RULE_PLACE "%s:%" PRId32
#define RS_RULE_PLACE_OF(rule) (rule)->file_name, (rule)->line

#endif
