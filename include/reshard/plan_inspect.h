/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_inspect.h - a plan taken apart: stages, the part of one rank, single moves, byte streams.
 * For code that carries plans out itself, draws them or checks them; users of reshard_exec (exec.h)
 * need none of it. All calls are Local.
 */
#ifndef RESHARD_PLAN_INSPECT_H
#define RESHARD_PLAN_INSPECT_H

#include <reshard/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== advanced ===================================================================================
 * For code that carries plans out itself, draws them or checks them.
 */

/* ---- stages ---------------------------------------------------------------------------------- */

/* What one stage does for one link. Its tensors are those given to the plan, or intermediate ones.
 * A box that no link fills (zero_fill) has a stage link of its own, with link and source -1 and no
 * source layout. */
typedef struct reshard_stage_link {
    size_t size;  /* sizeof(reshard_stage_link), set by the caller */
    int32_t link; /* index of the link given to the plan */
    int32_t source, target;
    int source_is_intermediate, target_is_intermediate;
    reshard_layout *source_layout, *target_layout; /* not retained */
    reshard_dtype source_dtype, target_dtype;
} reshard_stage_link;
RESHARD_API int32_t reshard_plan_stage_link_count(const reshard_plan *plan, int32_t stage);
RESHARD_API reshard_status reshard_plan_stage_link(const reshard_plan *plan, int32_t stage,
                                                   int32_t index, reshard_stage_link *out_link);

/* ---- moves ----------------------------------------------------------------------------------- */

typedef enum reshard_move_kind {
    RESHARD_MOVE_COPY,    /* target = source */
    RESHARD_MOVE_COMBINE, /* target = reduction of contributors, in their order */
    RESHARD_MOVE_FILL,    /* target = the identity of its reduction, or zero; has no source */
    RESHARD_MOVE_ADD      /* target += source, in canonical order; adjoint plans only */
} reshard_move_kind;

/* Repeats a move `count` times, adding these steps each time. */
typedef struct reshard_move_loop {
    int64_t count;
    int32_t peer_step; /* added to the rank of the peer */
    int32_t contributor_step;
    int64_t source_step, target_step; /* elements of memory */
    const int64_t *start_steps;       /* one for each dim */
} reshard_move_loop;

/*
 * One record: a box that goes from a source shard to a target shard or, with loops, a regular
 * family of such moves. Its dims are those of the target box or, if the link has factors, the
 * factors in target order; for a strided link, its axes. Element x of the box lies at source_at +
 * sum x[d]*source_strides[d] in the source shard, and likewise in the target shard.
 */
typedef struct reshard_move {
    reshard_move_kind kind;
    int32_t source_rank, target_rank; /* FILL: source_rank is -1 */
    int32_t source_shard, target_shard;
    int32_t contributor;         /* COMBINE: which one */
    int32_t contributor_count;   /* COMBINE: of how many */
    reshard_reduction reduction; /* COMBINE: how. FILL: whose identity */
    int32_t divisor;             /* COMBINE by average: divides the sum. ADD: divides the source */
    int32_t ndim;
    int32_t loop_count;
    const int64_t *start; /* lowest corner, relative to the link's box */
    const int64_t *size;
    const int64_t *source_strides, *target_strides;
    int64_t source_at, target_at;
    const reshard_move_loop *loops; /* outermost first */
} reshard_move;

/* How many single moves a record stands for. */
RESHARD_API int64_t reshard_move_count(const reshard_move *move);
/* The index-th of these, 0 <= index < count. rank: the one whose part has the record; loops step
 * through the other end, the peer. out_start receives the array that out_move->start points to. */
RESHARD_API void reshard_move_single(const reshard_move *move, int32_t rank, int64_t index,
                                     reshard_move *out_move,
                                     int64_t out_start[RESHARD_FACTORS_MAX]);

typedef struct reshard_moves {
    int64_t count;
    const reshard_move *items;
} reshard_moves;

/* ---- one rank's part ------------------------------------------------------------------------- */

typedef struct reshard_part reshard_part;

/* A rank that no layout names has an empty part. */
RESHARD_API reshard_status reshard_part_create(reshard_context *context, reshard_plan *plan,
                                               int32_t rank, reshard_part **out_part);
RESHARD_API void reshard_part_destroy(reshard_part *part);

/* The moves of one link of one stage. Links whose layouts are equal share one list. */
typedef struct reshard_part_moves {
    reshard_moves receives; /* from other ranks to this one */
    reshard_moves sends;    /* from this rank to others */
    reshard_moves keeps;    /* within this rank, fills included */
} reshard_part_moves;
RESHARD_API const reshard_part_moves *reshard_part_link(const reshard_part *part, int32_t stage,
                                                        int32_t index);

typedef struct reshard_part_stats {
    size_t size;                  /* sizeof(reshard_part_stats), set by the caller */
    uint64_t bytes_in, bytes_out; /* over all stages */
    uint64_t bytes_kept;
    uint64_t moves;              /* single moves: receives, sends and keeps */
    uint64_t moves_out;          /* the sends among them */
    uint64_t records;            /* families of moves; lists that links share are counted once */
    uint64_t staging_bytes_peak; /* for messages; at most the plan's staging_bytes_max */
} reshard_part_stats;
/* Errors: INVALID if size was not set, RANGE for more bytes than 64 bits can count. */
RESHARD_API reshard_status reshard_part_get_stats(const reshard_part *part,
                                                  reshard_part_stats *out_stats);

/* Writes one line for each record of the part. buffer, capacity and out_length are used as in
 * reshard_spec_text. */
RESHARD_API reshard_status reshard_part_text(const reshard_part *part, char *buffer,
                                             size_t capacity, size_t *out_length);

/* ---- byte streams ---------------------------------------------------------------------------- */

/*
 * The byte stream between this rank and one peer in one stage: single moves in the canonical order
 * (by stage link, then target shard, place in the target shard, and contributor), which is the same
 * on both ends. Move i begins at offsets[i], and offsets[count] is the length of the stream.
 * Segment k begins at byte k * segment_bytes, which may lie inside a move.
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

#ifdef __cplusplus
}
#endif
#endif
