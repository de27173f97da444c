/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - what has to move so that tensors go from one set of layouts to another.
 *
 * A plan is made from layouts and links alone: no data, no communication. It has one or more
 * stages; a stage is all moves from one set of layouts to the next, for all tensors at once. A plan
 * itself is small. What one rank has to do is its part, worked out on demand in time and memory
 * proportional to what that rank touches, never to ranks squared. Plans are immutable and may be
 * shared by threads. All calls are Local.
 *
 * What a plan promises:
 *  1. A byte that its target rank already holds never travels; in a stage every other byte travels
 *     once to each rank that needs it.
 *  2. When several ranks hold an element, who sends it is a closed rule that both ends compute
 *     alike: of s holders and t needers outside, no holder sends an element more than ceil(t/s)
 *     times, and when s > t the holders divide the element range of each box among themselves
 *     (docs/plan.md has the proof).
 *  3. Partial sources are combined in the order of their contributors, always the same.
 *  4. Each ordered pair of ranks has one byte stream over all tensors, in an order that both ends
 *     know, cut into segments of one size.
 */
#ifndef RESHARD_PLAN_H
#define RESHARD_PLAN_H

#include <reshard/layout.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what to plan ---------------------------------------------------------------------------- */

typedef struct reshard_plan_tensor {
    const char *name; /* for messages; may be NULL */
    reshard_layout *layout;
    reshard_dtype dtype; /* of whole bytes. Where the two ends differ, the narrower type travels */
} reshard_plan_tensor;

#define RESHARD_FACTORS_MAX 16

/*
 * Which box of a source tensor fills which box of a target tensor. Without factors both boxes have
 * the same sizes. With factors, the dims of the source box, in order, are products of consecutive
 * factors; the factors are then taken in another order, and the dims of the target box are products
 * of consecutive factors in that order. Transposing 4x6: factors {4,6}, order {1,0}. Rows
 * [head][q,k,v][d] to [q,k,v][head][d]: factors {heads,3,d,columns}, order {1,0,2,3}.
 */
typedef struct reshard_link {
    int32_t source, target; /* indices of tensors */
    reshard_box source_box; /* ndim -1: the whole tensor */
    reshard_box target_box; /* likewise */
    int32_t factor_count;   /* 0: the dims themselves, in the same order */
    int64_t factors[RESHARD_FACTORS_MAX];
    /* place i of the target takes the source's factor order[i] */
    int32_t order[RESHARD_FACTORS_MAX];
} reshard_link;

/* A link from the whole of one tensor to the whole of another. */
RESHARD_API reshard_link reshard_link_whole(int32_t source, int32_t target);

typedef enum reshard_balance {
    RESHARD_BALANCE_RULE, /* the closed rule */
    /* least load of the busiest sender, by flow over all ranks; carried in the plan */
    RESHARD_BALANCE_EXACT
} reshard_balance;

typedef struct reshard_plan_options {
    size_t size; /* sizeof(reshard_plan_options) */
    reshard_balance balance;
    /* non-zero: choose which target rank plays which part so that the fewest bytes move */
    int relabel;
    int single_stage; /* non-zero: never pass through an intermediate layout */
    /* non-zero: target elements that no link fills become zero instead of an error */
    int zero_fill;
    size_t staging_bytes_max; /* memory for messages on one rank; 0: RESHARD_STAGING_BYTES */
} reshard_plan_options;

#define RESHARD_STAGING_BYTES ((size_t)64 << 20)
#define RESHARD_STAGING_BYTES_MIN ((size_t)4096)

typedef struct reshard_plan reshard_plan;

/* The arrays are copied and the layouts retained. options NULL: all zero. Errors: INVALID, RANGE,
 * UNSUPPORTED, OVERLAP (two links fill the same element), GAP (none does, and zero_fill is off). */
RESHARD_API reshard_status reshard_plan_create(
    reshard_context *context, int32_t source_count, const reshard_plan_tensor *sources,
    int32_t target_count, const reshard_plan_tensor *targets, int32_t link_count,
    const reshard_link *links, const reshard_plan_options *options, reshard_plan **out_plan);
/* One tensor from one layout to another. */
RESHARD_API reshard_status reshard_plan_create_simple(reshard_context *context,
                                                      reshard_layout *source,
                                                      reshard_layout *target, reshard_dtype dtype,
                                                      const reshard_plan_options *options,
                                                      reshard_plan **out_plan);
RESHARD_API reshard_plan *reshard_plan_retain(reshard_plan *plan);
RESHARD_API void reshard_plan_release(reshard_plan *plan);

/* The transposed plan: from the targets' local tensors to the sources'. Every copy becomes an
 * addition into zero, every sum a copy to each contributor, an average one divided by their number.
 * <Ax,y> = <x,A'y> summed over ranks. Errors: UNSUPPORTED for prod, min and max, and where dtypes
 * differ. */
RESHARD_API reshard_status reshard_plan_adjoint(reshard_plan *plan, reshard_plan **out_plan);
RESHARD_API int reshard_plan_is_adjoint(const reshard_plan *plan);

/* ---- asking ---------------------------------------------------------------------------------- */

RESHARD_API int32_t reshard_plan_stage_count(const reshard_plan *plan);
/* One past the highest rank of any layout. */
RESHARD_API int32_t reshard_plan_rank_count(const reshard_plan *plan);
/* The target layout as planned: with relabel its ranks are others than those given. Not
 * retained. */
RESHARD_API reshard_layout *reshard_plan_target_layout(const reshard_plan *plan, int32_t target);
/* With relabel: out[i] is the rank that plays the part of the i-th target rank (in increasing
 * order); returns the number of target ranks. Ranks of a mesh that A leaves without a shard count,
 * and may get to play. Without relabel: 0. */
RESHARD_API int32_t reshard_plan_relabelling(const reshard_plan *plan, const int32_t **out_ranks);
/* Of the inputs (layouts, links, dtypes, options, planner version), so that ranks can compare
 * it. */
RESHARD_API void reshard_plan_digest(const reshard_plan *plan, uint64_t out_digest[2]);
RESHARD_API size_t reshard_plan_segment_bytes(const reshard_plan *plan);

/* What one stage does with one link. Tensors are those given to the plan or intermediate ones. A
 * box that no link fills (zero_fill) has a stage link of its own, with link and source -1 and no
 * source layout. */
typedef struct reshard_stage_link {
    int32_t link; /* as given to the plan */
    int32_t source, target;
    int source_is_intermediate, target_is_intermediate;
    reshard_layout *source_layout, *target_layout; /* not retained */
    reshard_dtype source_dtype, target_dtype;
} reshard_stage_link;
RESHARD_API int32_t reshard_plan_stage_link_count(const reshard_plan *plan, int32_t stage);
RESHARD_API reshard_status reshard_plan_stage_link(const reshard_plan *plan, int32_t stage,
                                                   int32_t index, reshard_stage_link *out_link);
RESHARD_API int32_t reshard_plan_intermediate_count(const reshard_plan *plan);
RESHARD_API reshard_layout *reshard_plan_intermediate_layout(const reshard_plan *plan,
                                                             int32_t index);

/* ---- moves ----------------------------------------------------------------------------------- */

typedef enum reshard_move_kind {
    RESHARD_MOVE_COPY,    /* target = source */
    RESHARD_MOVE_COMBINE, /* target = reduction of contributors, in their order */
    RESHARD_MOVE_FILL,    /* target = the identity of its reduction, or zero; has no source */
    RESHARD_MOVE_ADD      /* target += source, in canonical order; adjoint plans only */
} reshard_move_kind;

/* Repeats a move `count` times, each time at these steps. */
typedef struct reshard_move_loop {
    int64_t count;
    int32_t peer_step; /* of the rank that is not mine */
    int32_t contributor_step;
    int64_t source_step, target_step; /* elements of memory */
    const int64_t *start_steps;       /* one for each dim */
} reshard_move_loop;

/*
 * One record: a box that goes from a source shard to a target shard, or with loops a regular family
 * of them. Dims are those of the target box, or with factors the factors in target order. Element x
 * of the box lies at source_at + sum x[d]*source_strides[d] in the source shard, and likewise in
 * the target shard.
 */
typedef struct reshard_move {
    reshard_move_kind kind;
    int32_t source_rank, target_rank; /* FILL: source_rank is -1 */
    int32_t source_shard, target_shard;
    int32_t contributor;         /* COMBINE: which one */
    int32_t contributor_count;   /* COMBINE: of how many */
    reshard_reduction reduction; /* COMBINE: how. FILL: whose identity */
    int32_t divisor; /* COMBINE by average: what the sum is divided by. ADD: what the source is */
    int32_t ndim;
    int32_t loop_count;
    const int64_t *start; /* least corner, counted from the link's box */
    const int64_t *size;
    const int64_t *source_strides, *target_strides;
    int64_t source_at, target_at;
    const reshard_move_loop *loops; /* outermost first */
} reshard_move;

/* How many single moves a record stands for. */
RESHARD_API int64_t reshard_move_count(const reshard_move *move);
/* The index-th of them, 0 <= index < count; rank is mine, the other one is the peer. start is
 * written to out_start. */
RESHARD_API void reshard_move_single(const reshard_move *move, int32_t rank, int64_t index,
                                     reshard_move *out_move,
                                     int64_t out_start[RESHARD_FACTORS_MAX]);

typedef struct reshard_moves {
    int64_t count;
    const reshard_move *items;
} reshard_moves;

/* ---- one rank's part ------------------------------------------------------------------------- */

typedef struct reshard_part reshard_part;

/* The part of a rank that no layout names is empty. */
RESHARD_API reshard_status reshard_part_create(reshard_context *context, reshard_plan *plan,
                                               int32_t rank, reshard_part **out_part);
RESHARD_API void reshard_part_destroy(reshard_part *part);

/* The moves of one link of one stage. Links whose layouts are equal share one list. */
typedef struct reshard_part_moves {
    reshard_moves receives; /* from other ranks to mine */
    reshard_moves sends;    /* from mine to others */
    reshard_moves keeps;    /* within this rank, fills included */
} reshard_part_moves;
RESHARD_API const reshard_part_moves *reshard_part_link(const reshard_part *part, int32_t stage,
                                                        int32_t index);

typedef struct reshard_part_stats {
    uint64_t bytes_in, bytes_out; /* over all stages */
    uint64_t bytes_kept;
    uint64_t moves;              /* single ones: receives, sends and keeps */
    uint64_t moves_out;          /* of which sends */
    uint64_t records;            /* families, in lists that are shared counted once */
    uint64_t staging_bytes_peak; /* for messages; at most the plan's staging_bytes_max */
} reshard_part_stats;
RESHARD_API void reshard_part_get_stats(const reshard_part *part, reshard_part_stats *out_stats);

/*
 * The byte stream between this rank and one peer in one stage: single moves in the canonical order
 * (stage link, then target shard, place in the target shard, contributor), which is the same on
 * both ends. offsets[i] is where move i begins, offsets[count] the length. Segment k is the bytes
 * from k * segment_bytes on; it may begin inside a move.
 */
typedef struct reshard_stream {
    int64_t count;
    const reshard_move *moves;
    const int32_t *links; /* stage link of each move */
    const uint64_t *offsets;
} reshard_stream;
RESHARD_API reshard_status reshard_stream_create(const reshard_part *part, int32_t stage,
                                                 int32_t peer, int sending,
                                                 reshard_stream **out_stream);
RESHARD_API void reshard_stream_destroy(reshard_stream *stream);

/* ---- the whole ------------------------------------------------------------------------------- */

typedef struct reshard_plan_stats {
    uint64_t bytes_total;                 /* written to the final targets */
    uint64_t bytes_moved;                 /* between ranks, over all stages */
    uint64_t bytes_kept;                  /* within ranks, over all stages */
    uint64_t moves;                       /* single ones, each counted once */
    uint64_t records;                     /* families, of all ranks and both ends */
    uint64_t bytes_in_max, bytes_out_max; /* of the busiest ranks, over all stages */
    uint64_t staging_bytes_peak;
    int32_t stages;
} reshard_plan_stats;
/* Goes through all ranks. matrix NULL, or rank_count * rank_count numbers: [s * rank_count + t]
 * gets the bytes that rank s hands to rank t over all stages, the diagonal what stays. */
RESHARD_API reshard_status reshard_plan_get_stats(reshard_plan *plan, reshard_plan_stats *out_stats,
                                                  uint64_t *matrix);

/* Proves, without the planner's code, that in every stage every target element arrives exactly
 * once, or is combined exactly once from each contributor, from where the source layout says it is,
 * and that both ends of every pair list the same moves. Errors: CHECK, with the first thing that is
 * wrong. */
RESHARD_API reshard_status reshard_plan_check(reshard_plan *plan);

/* One line for each record of one rank; in the manner of reshard_spec_text. */
RESHARD_API reshard_status reshard_part_text(const reshard_part *part, char *buffer,
                                             size_t capacity, size_t *out_length);

#ifdef __cplusplus
}
#endif
#endif
