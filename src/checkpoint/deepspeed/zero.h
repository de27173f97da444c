/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero.h - what ZeRO's files say, on the way to tensors.
 *
 * A part is what one mp rank has of the model. Its parameters are in groups. In stages 1 and 2 the
 * parameters of a group lie one after the other on a line, which is cut over the ranks wherever
 * that falls, with padding at its end. In stage 3 each parameter is cut alone, into equal shares of
 * the ranks with padding at the end of the last, and a rank has its shares one after the other, in
 * sub-groups. States of the optimizer lie as the weights do, except that the padding of a line,
 * which the weights have lost, may still be at its end.
 *
 * So a parameter is a list of ranges of flat arrays, and each range becomes a few boxes (pieces) of
 * the tensor. Nothing is read but pickles.
 */
#ifndef RS_CHECKPOINT_DEEPSPEED_ZERO_H
#define RS_CHECKPOINT_DEEPSPEED_ZERO_H

#include "base/error.h"
#include "checkpoint/deepspeed/ds_files.h"
#include "checkpoint/rules/rules.h"
#include "checkpoint/torch/torch_files.h"

/* A parameter that is trained. */
typedef struct rs_zero_parameter {
    rs_slice told; /* its name in the file */
    rs_slice name; /* as users see it: without "module." */
    int32_t ndim;
    const int64_t *shape;
    int64_t count; /* number of elements */
    int32_t group;
    int64_t at; /* where it begins on the group's line, or among a rank's shares */
} rs_zero_parameter;

/* A flat array of a rank. */
typedef struct rs_zero_flat {
    int32_t file;
    uint64_t at;
    int64_t count;
} rs_zero_flat;

/* The weights of a group, or a state of its optimizer. */
typedef struct rs_zero_kind {
    rs_slice name; /* "exp_avg"; empty: the weights */
    bool is_flat;  /* has one number for each element; else one for the group */
    reshard_dtype dtype;
    rs_zero_flat single;         /* if it is a tensor of one number */
    const rs_pickle_node *value; /* if it is no tensor: the first rank's value; else NULL */
} rs_zero_kind;

typedef struct rs_zero_group {
    int32_t kind_count;
    rs_zero_kind *kinds;   /* the weights come first */
    int32_t slot;          /* of the weights among a rank's flat arrays; kinds follow in order */
    int32_t replica_count; /* 1; of experts: how many sets of them the ranks are divided into */
    int64_t *starts;       /* by rank: where its share of the line begins; stages 1 and 2 */
} rs_zero_group;

typedef struct rs_zero_part {
    int32_t mp;
    int32_t stage;
    int32_t rank_count; /* data-parallel ranks */
    int64_t parameter_count;
    rs_zero_parameter *parameters; /* group by group, in the order of the line */
    int64_t *by_name;              /* their indices, sorted by `told` */
    rs_slice *buffers;             /* names of buffers, as files have them, sorted */
    size_t buffer_count;
    bool strips_module;        /* all names begin with "module.", and lose it */
    int32_t shape_group_count; /* number of lists of shapes */
    int32_t group_count;       /* groups; in stage 3, sub-groups */
    rs_zero_group *groups;
    int32_t slot_count;
    rs_zero_flat *flats; /* by rank, then slot */
} rs_zero_part;

/* A tensor of one part: all of it, or what a tensor parallel rank has. */
typedef struct rs_zero_local {
    rs_stored_tensor tensor;
    rs_slice parameter; /* whose cut it has: its name, as users see it */
    int32_t mp;
} rs_zero_local;

typedef struct rs_zero_reading {
    reshard_checkpoint *checkpoint;
    rs_ds_files files;
    int32_t *opened; /* by index in `files`: the checkpoint's file; -1: not opened */
    const rs_value_step *model, *module, *state; /* steps that names begin with */
    rs_zero_part *parts;                         /* by mp rank */
    int64_t local_count, local_capacity;
    rs_zero_local *locals;
    const rs_pickle_node *info; /* universal_checkpoint_info; NULL: there is none */
    const rs_opening *opening;
    /* What takes its place: the rules of the model's family, with and without padding. NULL: not
     * needed. */
    struct rs_rulebook *padded, *plain;
    rs_torch_common common;
    rs_occurrences others; /* tensors that are neither of the model nor of its optimizer */
} rs_zero_reading;

/* ---- helpers (zero_values.c) ----------------------------------------------------------------- */

/* The value of a key in a dict by number; NULL: none. */
const rs_pickle_node *rs_zero_at(const rs_pickle_node *dict, int64_t number);
/* Reads the stage: an int, or a member of ZeroStageEnum in any of its spellings. Errors:
 * UNSUPPORTED, naming the class that is there instead. */
reshard_status rs_zero_stage_read(const char *file, const rs_pickle_node *node, int32_t *out_stage);
/* Reads a flat tensor. Errors: UNSUPPORTED if it is something else, naming its class. */
reshard_status rs_zero_flat_read(reshard_checkpoint *checkpoint, int32_t file,
                                 const rs_pickle_node *node, const char *what,
                                 reshard_dtype *out_dtype, int32_t *out_ndim,
                                 rs_zero_flat *out_flat);
/* A step of nested values in the checkpoint's arena; NULL if out of memory. */
const rs_value_step *rs_zero_step(reshard_checkpoint *checkpoint, const rs_value_step *parent,
                                  rs_slice key);
/* The name that a step leads to: all its keys, joined by dots, with a NUL. Bytes NULL if out of
 * memory. */
rs_slice rs_zero_name(reshard_checkpoint *checkpoint, const rs_value_step *step);
/* Makes the steps that names begin with. False if out of memory. */
bool rs_zero_make_steps(rs_zero_reading *r);
/* Keeps a value under the name of a step. */
reshard_status rs_zero_keep_value(reshard_checkpoint *checkpoint, int32_t file,
                                  const rs_value_step *step, const rs_pickle_node *node);
/* Adds a local tensor. */
reshard_status rs_zero_add_local(rs_zero_reading *r, const rs_stored_tensor *tensor,
                                 rs_slice parameter, int32_t mp);
/* Finds a parameter by the name that files have for it; NULL: none. */
const rs_zero_parameter *rs_zero_find(const rs_zero_part *part, rs_slice told);
/* The number of an expert of DeepSpeed's own MoE layers in a name, and where it stands; -1: the
 * name has none. */
int64_t rs_zero_find_expert(rs_slice name, size_t *out_at, size_t *out_digits);

/* The dict that a file holds, whose pickle is open (zero_shapes.c). */
const rs_pickle_node *rs_zero_root(const rs_zero_reading *r, int32_t file);
/* A parameter's name as users see it: without "module." if all names begin with it. */
rs_slice rs_zero_strip(const rs_zero_part *part, rs_slice told);
/* Reads the name and shape of a parameter. */
reshard_status rs_zero_read_parameter(rs_zero_reading *r, int32_t file, const rs_pickle_node *key,
                                      const rs_pickle_node *shape,
                                      rs_zero_parameter *out_parameter);
/* What a part has under the name of a parameter, other than 16-bit weights; NULL: nothing
 * (zero_frozen.c). */
const rs_zero_local *rs_zero_find_local(const rs_zero_reading *r, int32_t mp, rs_slice name);

/* ---- the steps of reading -------------------------------------------------------------------- */

/* Reads the shapes of a part's parameters from its model file (zero_shapes.c). */
reshard_status rs_zero_read_shapes(rs_zero_reading *r, rs_zero_part *part, int32_t file);
/* Adds what the part's model files hold themselves: buffers, frozen parameters, 16-bit weights,
 * values. Comes after the trained parameters (zero_model.c). */
reshard_status rs_zero_read_model(rs_zero_reading *r, rs_zero_part *part, int32_t file);
/* Adds the frozen parameters of which ranks have parts (zero_frozen.c). */
reshard_status rs_zero_read_frozen(rs_zero_reading *r, const rs_zero_part *part, int32_t file);
/* Stages 1 and 2: whatever is listed as frozen has to be somewhere. held: by name, what the model
 * file has of frozen parameters (zero_frozen.c). */
reshard_status rs_zero_check_frozen(const rs_zero_reading *r, const rs_zero_part *part,
                                    int32_t file, const rs_pickle_index *held);
/* Adds the 16-bit weights of a layer of a pipeline, or of an expert (zero_model.c). */
reshard_status rs_zero_read_plain(rs_zero_reading *r, const rs_ds_file *named, int32_t file);
/* Adds the aliases of shared parameters; comes last (zero_model.c). */
reshard_status rs_zero_add_aliases(rs_zero_reading *r, const rs_zero_part *part, int32_t file);
/* Reads where the flat arrays of one rank lie (zero_optim.c). Ranks come in order. */
reshard_status rs_zero_read_rank(rs_zero_reading *r, rs_zero_part *part, int32_t rank,
                                 int32_t file);
/* Adds the trained parameters and their states (zero_lines.c). Errors: CORRUPT if sizes do not add
 * up. */
reshard_status rs_zero_add_parameters(rs_zero_reading *r, rs_zero_part *part);
/* Compares what a rank says about its share with the arithmetic (zero_lines.c). */
reshard_status rs_zero_check_slices(const rs_zero_reading *r, const rs_zero_part *part,
                                    int32_t rank, int32_t file, const rs_pickle_node *mappings);
/* Adds a whole tensor that a file holds beside the model, under its own name (zero_model.c). */
reshard_status rs_zero_add_other(rs_zero_reading *r, const rs_occurrence *found);
/* Makes the checkpoint's tensors of the locals of all parts (zero_join.c). */
reshard_status rs_zero_join(rs_zero_reading *r);

/*
 * zero_boxes.c - the boxes of one tensor that ranks hold as ranges of its row-major order. They are
 * found once, and serve the weights and all states, whose ranges are the same.
 */

typedef struct rs_zero_box {
    int32_t rank;
    int64_t at;             /* where it begins in the rank's flat array */
    const int64_t *numbers; /* its offset in the tensor, then its size */
} rs_zero_box;

typedef struct rs_zero_boxes {
    rs_arena *arena; /* where numbers and pieces go */
    int32_t ndim;
    const int64_t *shape;
    int64_t next; /* the first element of the tensor that no range has held yet */
    int64_t count, capacity;
    rs_zero_box *items;
} rs_zero_boxes;

/* Begins another tensor; the list keeps its memory. */
void rs_zero_boxes_begin(rs_zero_boxes *boxes, int32_t ndim, const int64_t *shape);
/* The next `count` elements of the tensor lie in a rank's flat array, from `at` on. */
reshard_status rs_zero_boxes_add(rs_zero_boxes *boxes, int32_t rank, int64_t at, int64_t count);
/* Describes the tensor and gives it its pieces. The flat array of rank i is flats[i * stride].
 * Errors: UNSUPPORTED if it would have to be cut but cannot be. */
reshard_status rs_zero_boxes_tensor(const rs_zero_boxes *boxes, rs_slice name, reshard_dtype dtype,
                                    const rs_zero_flat *flats, int32_t stride,
                                    rs_stored_tensor *out_tensor);
void rs_zero_boxes_release(rs_zero_boxes *boxes);

/* zero_rules.c - how tensor parallel ranks cut a parameter, by rules and config.json. */

/* Finds the rules of the model, whose local tensors are listed, for all tensor parallel ranks.
 * Errors: UNSUPPORTED if there is no config.json; of rulebooks. */
reshard_status rs_zero_rules_init(rs_zero_reading *r);
void rs_zero_rules_release(rs_zero_reading *r);
/* How a tensor is cut of which every tensor parallel rank has a local: along *out_dim, with the
 * layout of *out_result, which the caller releases; or, if *out_dim is -1, not at all. Errors:
 * UNSUPPORTED if parts cannot be told from replicas; INVALID if shapes do not fit. */
reshard_status rs_zero_rules_find(rs_zero_reading *r, const rs_zero_local *locals,
                                  rs_rule_result *out_result, int32_t *out_dim);

/*
 * zero_cut.c - how tensor parallel ranks cut a parameter, as universal_checkpoint_info says: lists
 * of patterns for parameters that are replicated, cut along dim 1, or made of several that are cut
 * one by one. Whatever no pattern names is cut along dim 0.
 */

/* Joins what the tensor parallel ranks hold of one tensor, one local for each rank. Errors:
 * UNSUPPORTED if nothing says how it is cut; GAP if a rank has no part of it; CORRUPT if the shapes
 * do not fit. */
reshard_status rs_zero_cut_join(rs_zero_reading *r, const rs_zero_local *locals, int64_t count,
                                rs_stored_tensor *tensor);

/*
 * zero_pattern.c - the patterns of universal_checkpoint_info, which are regular expressions of
 * Python, matched from the beginning of a name. Of these, characters, ".", "[..]", "\d", "\w",
 * escaped characters, each with "*", "+" or "?", and "^" and "$" are understood, which is what
 * DeepSpeed and Megatron-DeepSpeed write.
 */

/* Errors: UNSUPPORTED, naming the pattern, for anything else; RANGE if it takes too long. */
reshard_status rs_zero_pattern_match(rs_slice pattern, rs_slice name, bool *out_matches);

#endif
