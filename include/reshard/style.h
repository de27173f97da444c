/* SPDX-License-Identifier: Apache-2.0 */
/*
 * style.h - sharding plans by style, as PyTorch's parallelize_module: what a module is within a
 * tensor-parallel model says how its parameters are cut over one axis of a mesh, and in which
 * layouts its input and output are. Names are patterns.
 *
 *     static const reshard_style columns = {.size = sizeof columns, .kind = RESHARD_STYLE_COLUMNS};
 *     static const reshard_style rows = {
 *         .size = sizeof rows, .kind = RESHARD_STYLE_ROWS, .output = "S(1)"};
 *     const reshard_styled styles[] = {{"layers.*.mlp.up", &columns}, {"layers.*.mlp.down",
 *     &rows}}; reshard_module_parallelize(model, group, mesh, 0, 2, styles, NULL);
 *
 * Placements are those of one axis: "R", "P", "S(1)", "S(-1)". What other axes of the mesh do to
 * inputs and outputs stays as it is.
 */
#ifndef RESHARD_STYLE_H
#define RESHARD_STYLE_H

#include <reshard/shard.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * A module, and what each of its parts is.
 */

typedef enum reshard_style_kind {
    /* ColwiseParallel, of linear and embedding: the output features are cut. The input is
     * replicated, and the output stays as it comes, S(-1). */
    RESHARD_STYLE_COLUMNS,
    /* RowwiseParallel, of linear and embedding: the input features (tokens) are cut. The input of
     * linear is S(-1), that of embedding replicated, and the output is replicated. */
    RESHARD_STYLE_ROWS,
    /* SequenceParallel, of norms, dropouts and any other modules: their parameters are replicated,
     * and the input is S(1), along the sequence of [batch, length, width]. */
    RESHARD_STYLE_SEQUENCE,
    /* PrepareModuleInput and PrepareModuleOutput, of any module: input and output alone. */
    RESHARD_STYLE_MODULE
} reshard_style_kind;

typedef struct reshard_style {
    size_t size; /* sizeof(reshard_style) */
    reshard_style_kind kind;
    /* The placement that tensors of the module's input get before forward, and those of its output
     * after it. NULL: as the kind says; for MODULE, and for outputs other than those of ROWS, they
     * stay as they are. */
    const char *input, *output;
    /* What local tensors in the input are along the axis: "S(1)": each rank has its own part. NULL:
     * as in ready-made layers (nn_layers.h). */
    const char *local_input;
    int local_output; /* non-zero: the output becomes this rank's shard */
    int64_t unit;     /* COLUMNS, ROWS: cut on multiples of this, such as the size of a head */
} reshard_style;

/* A pattern and what its modules are. */
typedef struct reshard_styled {
    const char *pattern;
    const reshard_style *style;
} reshard_styled;

/* Collective. Makes a plan of styles and carries it out, with the values of rank 0. Errors: those
 * of reshard_sharding_plan_add_style and reshard_module_shard. */
RESHARD_API reshard_status reshard_module_parallelize(reshard_module *module, reshard_group *group,
                                                      reshard_mesh *mesh, int32_t axis,
                                                      int32_t count, const reshard_styled *styles,
                                                      reshard_hook **out_hook);

/* ==== explicit ===================================================================================
 * The same as entries of a plan, beside others.
 */

/* Local. Adds a style to a plan, for all modules that the pattern names when the plan is carried
 * out. A pattern is a path, in each part of which * stands for any text, ? for one byte, and
 * {q,k,v} or {0..3} for one of several; "" is the root. Texts and the style are copied, the mesh is
 * retained. axis: its number in the mesh. A tied parameter may be named under both names if both
 * cut it alike. Errors: INVALID (NULL, an unknown kind), RANGE (the axis), SYNTAX (pattern,
 * placements). When the plan is carried out, also NOT_FOUND for a pattern that fits no module, and
 * INVALID for COLUMNS and ROWS of another kind of module than linear, embedding and
 * embedding_bag. */
RESHARD_API reshard_status reshard_sharding_plan_add_style(reshard_sharding_plan *plan,
                                                           const char *pattern, reshard_mesh *mesh,
                                                           int32_t axis,
                                                           const reshard_style *style);

#ifdef __cplusplus
}
#endif
#endif
