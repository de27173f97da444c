/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - what has to move to bring tensors from one set of layouts to another.
 *
 * A plan is made from layouts and links alone: no data, no communication. It has one or more
 * stages; a stage is all moves from one set of layouts to the next, for all tensors at once. The
 * plan itself is small. The part of one rank (what it has to do) is computed on demand, in time and
 * memory proportional to what that rank touches, never to the square of the number of ranks. Plans
 * are immutable and may be shared by threads. All calls are Local.
 *
 * What a plan promises:
 *  1. A byte that its target rank already holds never travels; within a stage, every other byte
 *     travels once to each rank that needs it.
 *  2. If several ranks hold an element, both ends compute who sends it from the same formula, the
 *     closed rule: with s holders, and t ranks that need the element and do not hold it, no holder
 *     sends it more than ceil(t/s) times; and if s > t, the holders divide the element range of
 *     each box among themselves (docs/plan.md has the proof).
 *  3. Partial sources are always combined in the order of their contributors.
 *  4. In each stage, each ordered pair of ranks has one byte stream for all tensors, in an order
 *     that both ends know, cut into segments of one size.
 */
#ifndef RESHARD_PLAN_H
#define RESHARD_PLAN_H

#include <reshard/layout.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * One tensor from one layout to another; what it costs, and a proof that it is right.
 */

/* ---- one tensor ------------------------------------------------------------------------------ */

typedef enum reshard_balance {
    RESHARD_BALANCE_RULE, /* the closed rule */
    /* the lowest possible load on the busiest sender, found as a network flow over all ranks and
     * stored in the plan */
    RESHARD_BALANCE_EXACT
} reshard_balance;

typedef struct reshard_plan_options {
    size_t size; /* sizeof(reshard_plan_options) */
    reshard_balance balance;
    /* non-zero: renumber the target ranks so that the fewest bytes move */
    int relabel;
    int single_stage; /* non-zero: never pass through an intermediate layout */
    /* non-zero: target elements that no link fills become zero instead of an error */
    int zero_fill;
    size_t staging_bytes_max; /* memory for messages on one rank; 0: RESHARD_STAGING_BYTES */
} reshard_plan_options;

#define RESHARD_STAGING_BYTES ((size_t)64 << 20)
#define RESHARD_STAGING_BYTES_MIN ((size_t)4096)

typedef struct reshard_plan reshard_plan;

/* A plan for one tensor, from one layout to another. Retains the layouts. options NULL: all zero.
 * Errors: INVALID, RANGE, UNSUPPORTED. */
RESHARD_API reshard_status reshard_plan_create_simple(reshard_context *context,
                                                      reshard_layout *source,
                                                      reshard_layout *target, reshard_dtype dtype,
                                                      const reshard_plan_options *options,
                                                      reshard_plan **out_plan);
RESHARD_API reshard_plan *reshard_plan_retain(reshard_plan *plan);
RESHARD_API void reshard_plan_release(reshard_plan *plan);

/* ---- the whole plan -------------------------------------------------------------------------- */

typedef struct reshard_plan_stats {
    size_t size;                          /* sizeof(reshard_plan_stats), set by the caller */
    uint64_t bytes_total;                 /* written to the final targets */
    uint64_t bytes_moved;                 /* from rank to rank, over all stages */
    uint64_t bytes_kept;                  /* within ranks, over all stages */
    uint64_t moves;                       /* single moves, each counted once */
    uint64_t records;                     /* families of moves, over all ranks and both ends */
    uint64_t bytes_in_max, bytes_out_max; /* of the busiest rank, over all stages */
    uint64_t staging_bytes_peak;
    int32_t stages;
} reshard_plan_stats;
/* Goes through all ranks, so the time grows with their number. matrix: NULL, or room for rank_count
 * * rank_count numbers: [s * rank_count + t] is set to the bytes that rank s hands to rank t over
 * all stages, and the diagonal to the bytes that stay. Errors: RANGE if there are too many ranks or
 * steps, or more bytes than 64 bits can count. */
RESHARD_API reshard_status reshard_plan_get_stats(reshard_plan *plan, reshard_plan_stats *out_stats,
                                                  uint64_t *matrix);

/* Proves, without using the planner's code, that in every stage every target element arrives
 * exactly once (or is combined from exactly one contribution of each contributor), that it comes
 * from where the source layout says it is, and that both ends of every pair of ranks list the same
 * moves. Errors: CHECK; the text describes the first mistake found. */
RESHARD_API reshard_status reshard_plan_check(reshard_plan *plan);

/* ==== explicit ===================================================================================
 * Many tensors in one plan, with links that rename, slice, split and permute.
 */

/* ---- several tensors, and links -------------------------------------------------------------- */

typedef struct reshard_plan_tensor {
    const char *name; /* for messages; may be NULL */
    reshard_layout *layout;
    /* whole bytes only. If source and target differ, the narrower type travels */
    reshard_dtype dtype;
} reshard_plan_tensor;

#define RESHARD_FACTORS_MAX 16

/*
 * Says which box of a source tensor fills which box of a target tensor. Without factors, both boxes
 * have the same sizes. With factors, each dim of the source box, in order, is a product of
 * consecutive factors; the factors are then reordered, and each dim of the target box is a product
 * of consecutive factors in the new order. Transposing 4x6: factors {4,6}, order {1,0}. Rows
 * [head][q,k,v][d] to [q,k,v][head][d]: factors {heads,3,d,columns}, order {1,0,2,3}.
 */
typedef struct reshard_link {
    int32_t source, target; /* indices of tensors */
    reshard_box source_box; /* ndim -1: the whole tensor */
    reshard_box target_box; /* likewise */
    int32_t factor_count;   /* 0: the dims themselves, in the same order */
    int64_t factors[RESHARD_FACTORS_MAX];
    /* factor i of the target is factor order[i] of the source */
    int32_t order[RESHARD_FACTORS_MAX];
} reshard_link;

/* A link from the whole of one tensor to the whole of another. */
RESHARD_API reshard_link reshard_link_whole(int32_t source, int32_t target);

/* The arrays are copied and the layouts retained. options NULL: all zero. Errors: INVALID, RANGE,
 * UNSUPPORTED, OVERLAP (two links fill the same element), GAP (no link fills an element, and
 * zero_fill is off). */
RESHARD_API reshard_status reshard_plan_create(
    reshard_context *context, int32_t source_count, const reshard_plan_tensor *sources,
    int32_t target_count, const reshard_plan_tensor *targets, int32_t link_count,
    const reshard_link *links, const reshard_plan_options *options, reshard_plan **out_plan);

/* ---- queries --------------------------------------------------------------------------------- */

/* Pointers live as long as the plan. */
typedef struct reshard_plan_info {
    size_t size; /* sizeof(reshard_plan_info), set by the caller */
    int32_t stage_count;
    int32_t rank_count; /* one past the highest rank of any layout */
    int is_adjoint;     /* non-zero: made by reshard_plan_adjoint */
    /* of everything the plan was made from (layouts, links, dtypes, options, planner version), for
     * ranks to compare */
    uint64_t digest[2];
    /* With relabel: relabelling[i] is the rank that takes the place of the i-th target rank, in
     * increasing order. Ranks of the mesh that a placement A(..) leaves without a shard count too,
     * and may take another's place. Without relabel: none. */
    int32_t relabelling_count;
    const int32_t *relabelling;
    int32_t intermediate_count; /* layouts between stages, not retained */
    reshard_layout *const *intermediates;
    /* of a segment: the largest power of two, up to 4 MiB, such that eight segments fit into the
     * plan's staging_bytes_max */
    size_t segment_bytes;
} reshard_plan_info;
/* Errors: INVALID for a size that no release has. */
RESHARD_API reshard_status reshard_plan_get_info(const reshard_plan *plan,
                                                 reshard_plan_info *out_info);
/* The target layout as planned: with relabel, its ranks may differ from the given ones. Not
 * retained. */
RESHARD_API reshard_layout *reshard_plan_target_layout(const reshard_plan *plan, int32_t target);

/* ==== advanced ===================================================================================
 * Links that a box cannot describe, and gradients of moves.
 */

/* ---- strided links --------------------------------------------------------------------------- */

/*
 * A link between parts that are boxes only after dims have been split: every second row, or the
 * rows of one part of each group. Link space has one dim for each axis; an axis goes along one dim
 * of the source and one dim of the target, with a step in each. Element x of link space lies at
 *     source_at[d] + the sum of x[i] * axes[i].source_step over the axes with source_dim d
 * in dim d of the source, and likewise in the target. So an axis with the source step 2 and the
 * target step 1 gathers every second row; axes {groups, .., step 12} and {4, .., step 1} along the
 * same dim take 4 rows of each 12. Axes along the same dim must be nested like the digits of a
 * number: in the order of their steps, each step is at least size * step of the next smaller one.
 */
typedef struct reshard_link_axis {
    int64_t size;
    int32_t source_dim, target_dim;
    int64_t source_step, target_step; /* positive */
} reshard_link_axis;

typedef struct reshard_strided_link {
    size_t size;                         /* sizeof(reshard_strided_link) */
    int32_t source, target;              /* indices of tensors */
    int64_t source_at[RESHARD_NDIM_MAX]; /* where the first element lies */
    int64_t target_at[RESHARD_NDIM_MAX];
    int32_t axis_count; /* 0: one element */
    reshard_link_axis axes[RESHARD_FACTORS_MAX];
} reshard_strided_link;

/* For programs that plan with the links of a map: reshard_plan_create with strided links. All of
 * them have the same size. Errors: also RANGE if it would take too many boxes to prove that the
 * links fill the targets (docs/limits.md). */
RESHARD_API reshard_status reshard_plan_create_strided(
    reshard_context *context, int32_t source_count, const reshard_plan_tensor *sources,
    int32_t target_count, const reshard_plan_tensor *targets, int32_t link_count,
    const reshard_strided_link *links, const reshard_plan_options *options,
    reshard_plan **out_plan);

/* ---- adjoints -------------------------------------------------------------------------------- */

/* The transposed plan, from the targets' local tensors to those of the sources: <Ax,y> = <x,A'y>
 * summed over ranks. Every copy becomes an addition to zero; every sum becomes a copy to each
 * contributor; every average becomes such a copy, divided by the number of contributors. Errors:
 * UNSUPPORTED for prod, min and max, and if dtypes differ. */
RESHARD_API reshard_status reshard_plan_adjoint(reshard_plan *plan, reshard_plan **out_plan);

#ifdef __cplusplus
}
#endif
#endif
