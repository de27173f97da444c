/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapped.h - a source as a map names it. Options select tensors of the source by their own names;
 * the map (checkpoint/maps) then says which tensors these make; and everything after that, from
 * rules to formats, sees a checkpoint that holds what the map makes, in the source's files.
 *
 * A tensor that the map only renames keeps its pieces. One that is made of boxes of others has
 * their bytes as its pieces. Any other is computed box by box when it is read (store/formula.h).
 */
#ifndef RS_CHECKPOINT_VIEW_MAPPED_H
#define RS_CHECKPOINT_VIEW_MAPPED_H

#include "base/digest.h"
#include "checkpoint/engine/team.h"
#include "checkpoint/namings/namings.h"
#include "checkpoint/rules/config.h"
#include "checkpoint/select/select.h"
#include "checkpoint/store/formula.h"

#include <reshard/map.h>

/* A tensor of the source that is left out, but has to have certain values. */
typedef struct rs_mapped_check {
    const rs_stored_tensor *tensor;
    const rs_stored_tensor *same_as; /* has the same elements; NULL: */
    const void *constant;            /* every element is this */
    double value;                    /* the same, for error texts */
    int32_t line;                    /* of the map; 0: a head that config.json calls tied */
} rs_mapped_check;

/* What a tensor is made of. */
typedef struct rs_mapped_origin {
    int64_t count;
    const int64_t *sources; /* indices of tensors of the source, each once */
    const char *file;       /* the map, and the line of it that makes the tensor */
    int32_t line;
    int64_t link_count; /* which elements of these go where; none: a constant */
    const rs_formula_link *links;
    const int64_t *link_sources; /* by link: the index of its tensor of the source */
} rs_mapped_origin;

typedef struct rs_mapped {
    /* What the map makes. Files, values and texts belong to the source, which outlives it. */
    reshard_checkpoint made;
    struct rs_mapped_origin *origins; /* by made tensor */
    reshard_dtype *dtypes;            /* by made tensor: as written */
    rs_selection selection;           /* of the source; its items are gone */
    int64_t check_count;
    rs_mapped_check *checks;
    uint64_t digest[2]; /* of the map's text, and of the side that is read */
} rs_mapped;

/* Who asks for a map's tensors, and what is said about them. */
typedef struct rs_mapped_order {
    reshard_context *context;
    rs_arena *arena;            /* of everything that is made */
    rs_notes *lines, *warnings; /* what the map leaves out; what is probably wrong */
    bool takes_model;           /* of a source with an optimizer, only the model is wanted */
    bool keeps_blocks;          /* tensors that are only renamed may stay in their blocks */
    const char *verb;           /* what is done to the tensors: "written" */
    const char *does;           /* what the map does then: "writes" */
    const char *naming;         /* out: for the user, the two namings and how they were found */
} rs_mapped_order;

/* naming: the one to make, if it is known. config: initialised in any case; knows afterwards which
 * keys the map asked for. *out_mapped is NULL if the source already has the naming. */
reshard_status rs_mapped_create(rs_mapped_order *order, const reshard_checkpoint *source,
                                const reshard_conversion_options *options, const rs_naming *naming,
                                rs_config *config, const rs_mapped **out_mapped);

/* Whether what has a naming is a model alone, unless options say more. naming NULL: that of a map
 * of one's own. */
bool rs_mapped_takes_model(const rs_naming *naming);

/* Takes over what the map decided for each tensor of a selection of `made`, and what the selection
 * of the source left out. */
void rs_mapped_select(const rs_mapped *mapped, rs_selection *selection);

/* Finds the element of the source that is this one of a made tensor. Returns the tensor it is in;
 * NULL: the element is a constant. */
const rs_stored_tensor *rs_mapped_find(const rs_mapped *mapped, int64_t tensor,
                                       const int64_t *index, int64_t out_index[RESHARD_NDIM_MAX]);

/* Compares what is expected of tensors that are left out: of a map's those of `mapped`, whose
 * source is `made`. The tensors are divided among ranks. Errors: CHECK. Collective. */
reshard_status rs_mapped_compare(const reshard_checkpoint *source, int64_t count,
                                 const rs_mapped_check *checks, const rs_team *team);

/* Whether models of these types have the same map to a naming, as far as both have one. The types
 * may be NULL. */
bool rs_mapped_same_map(const rs_naming *naming, const char *one_type, const char *other_type);

/* ---- between the files of this folder (mapped_config.c) -------------------------------------- */

/* Compares config.json with what the source says itself. Errors: MISMATCH. */
reshard_status rs_mapped_compare_config(rs_mapped_order *order, const reshard_checkpoint *source,
                                        const rs_config *config);

/* ---- between the files of this folder (mapped.c) --------------------------------------------- */

reshard_status rs_mapped_warn(rs_mapped_order *order, const char *format, ...) RS_PRINTF(2, 3);

/* ---- between the files of this folder (mapped_scales.c) -------------------------------------- */

/* Are the scales of quantised weights where their weights are? Errors: UNSUPPORTED, with the hint
 * DEQUANTIZE. */
reshard_status rs_mapped_check_scales(rs_arena *arena, const reshard_checkpoint *source,
                                      rs_config *config, const rs_mapped *mapped);
/* Call with the status of a map that did not fit. If the source has scales, they may be why: adds
 * the hint DEQUANTIZE, unless there is another one. Returns the status. */
reshard_status rs_mapped_hint_scales(rs_arena *arena, const reshard_checkpoint *source,
                                     rs_config *config, reshard_status status);

/* ---- between the files of this folder (mapped_choose.c) -------------------------------------- */

/* Call with the status of a map that did not fit. If names begin with the part of a nested source
 * that they are in, that is why: adds the hint ONLY, unless there is another one. Returns the
 * status. */
reshard_status rs_mapped_hint_part(const reshard_checkpoint *source, const rs_selection *selection,
                                   reshard_status status);

/* The selected tensors, as a map sees them. */
typedef struct rs_map_input {
    reshard_context *context;
    rs_arena *arena;
    int64_t count;
    reshard_map_tensor *tensors;
    rs_map_state *states;
    const rs_rules_keys *keys;
    const char *model_type; /* NULL: not known */
    const char *dialect;    /* the naming that files beside the source speak for; NULL: none */
    const char *verb;       /* what is done to what the map makes: "written" */
} rs_map_input;

typedef struct rs_map_choice {
    reshard_map_result *result; /* the caller's; NULL: nothing has to be done */
    const char *read, *written; /* the two namings */
    const char *said;           /* for the user: how both were found; NULL: the user gave the map */
    rs_digest digest;           /* of the text of all maps, and of the sides that are read */
} rs_map_choice;

/* Texts are in the input's arena. Sets *choice in any case. */
reshard_status rs_mapped_choose(const rs_map_input *input,
                                const reshard_conversion_options *options, rs_map_choice *choice);

/* ---- between the files of this folder (mapped_tensor.c) -------------------------------------- */

typedef struct rs_map_making {
    rs_arena *arena;
    const reshard_checkpoint *source;
    int64_t item_count;
    const rs_selected *items; /* the tensors that the map was resolved on */
    const reshard_map_result *result;
    bool keeps_blocks; /* a tensor that is only renamed may be written in its blocks */
} rs_map_making;

/* Makes a tensor. *out_is_same: it is a tensor of the source as it is, under its name. *out_links:
 * those of the map that fill it, target->link_count of them, in the arena. */
reshard_status rs_mapped_make(const rs_map_making *mapping, const reshard_map_target *target,
                              rs_stored_tensor *out_made, bool *out_is_same,
                              const rs_formula_link **out_links);
/* Writes one element of the dtype. Errors: INVALID if the dtype cannot hold the value. */
reshard_status rs_mapped_constant(rs_arena *arena, reshard_dtype dtype, double value,
                                  const void **out_element);

#endif
