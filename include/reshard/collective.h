/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective.h - the usual collectives over a group, and messages between two ranks.
 *
 * Each collective is a plan between two layouts, which is made, carried out and discarded in one
 * call. Its set-up costs several small messages; to repeat a collective without them, keep the work
 * and restart it, or make a plan and an exec yourself. With K ranks and counts c0, c1, ... the
 * layouts are, for a tensor of one dimension:
 *
 *   all_gather         K: S(0=c0,c1,..)   to   K: R
 *   reduce_scatter     K: P(sum)          to   K: S(0=c0,c1,..)
 *   all_reduce         K: P(sum)          to   K: R
 *   broadcast          1[root]: R         to   K: R
 *   scatter            1[root]: R         to   K: S(0=c0,c1,..)
 *   gather             K: S(0=c0,c1,..)   to   1[root]: R
 *   reduce             K: P(sum)          to   1[root]: R
 *   all_to_all_single  K: S(0)            to   K: S(1)       of KxKxc, when all counts are c;
 *                                                            else boxes
 *
 * What holds for all of them:
 *  - They are done when this rank's target is complete and its source is no longer needed. The
 *    context may differ from rank to rank.
 *  - Ranks, roots included, are those of the group that is passed, also if it is a sub-group.
 *  - Every dtype can be moved; with 4 and 6 bit dtypes each count must come to whole bytes. Counts
 *    are in elements and may be 0. `counts` has one count for each rank and is the same on all
 *    ranks; NULL: every rank has `count`.
 *  - Reductions: sum, avg, prod, min and max of integers and f16, bf16, f32, f64; sum, avg and prod
 *    of c64; band, bor and bxor of integers. bool has all of them except avg: sum and max are "or",
 *    prod and min are "and". Values are combined in rank order, so every rank gets the same bits
 *    each time. Averages of integers round towards zero.
 *  - Buffers are dense and aligned to their element. Buffers that are empty on this rank may be
 *    NULL. A source must not overlap a target unless the two are exactly in place: source == target
 *    for all_reduce, reduce and broadcast; source == this rank's part of the target for all_gather
 *    and gather; target == this rank's part of the source for reduce_scatter and scatter. Each rank
 *    may choose on its own whether to work in place. In place, reduce_scatter and reduce need
 *    memory for one more target.
 *  - All ranks agree on errors of the set-up, which name a rank: INVALID (a missing or overlapping
 *    buffer, an unknown dtype or reduction), RANGE (a negative count, a root that is not in the
 *    group, sizes that overflow), UNSUPPORTED (a reduction that the dtype does not have, fractions
 *    of a byte), MISMATCH (ranks ask for different things), NO_MEMORY, MEMORY_LIMIT. The group
 *    stays usable after them. An error during the exchange itself breaks the group.
 */
#ifndef RESHARD_COLLECTIVE_H
#define RESHARD_COLLECTIVE_H

#include <reshard/group.h>
#include <reshard/spec.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * One call for every collective, and messages between two ranks.
 */

/* ---- works ----------------------------------------------------------------------------------- */

/*
 * A collective or a message that has been started. Do not touch its buffers until wait returns or
 * test reports it done, even if it fails; after a failure the group is broken, and no other rank
 * touches them any more. Any number of works may be under way on one group.
 *
 * Starting a collective is Collective: it returns when all ranks have started it. All ranks must
 * start their collectives in the same order, but may wait for them in any order, because a rank
 * that waits in any call on the group makes progress on everything it has under way.
 */
typedef struct reshard_work reshard_work;

/* ---- collectives ----------------------------------------------------------------------------- */

/* What each collective does, and which fields it uses besides kind, dtype, source and target. */
typedef enum reshard_exchange_kind {
    /* target: the sources of all ranks, in rank order. source: this rank's count of elements.
     * (count, counts) */
    RESHARD_ALL_GATHER = 1,
    /* source: on every rank, as many elements as all counts together. target: this rank's part of
     * the reduction; parts are in rank order. (count, counts, reduction) */
    RESHARD_REDUCE_SCATTER = 2,
    /* target: the reduction of all sources, element by element. (count, reduction) */
    RESHARD_ALL_REDUCE = 3,
    /* target: the root's source, on every rank including the root. Other sources are not read.
     * (count, root) */
    RESHARD_BROADCAST = 4,
    /* target: this rank's part of the root's source; parts are in rank order. (count, counts,
     * root) */
    RESHARD_SCATTER = 5,
    /* target, on the root only: the sources of all ranks, in rank order. (count, counts, root) */
    RESHARD_GATHER = 6,
    /* target, on the root only: the reduction of all sources, element by element. (count,
     * reduction, root) */
    RESHARD_REDUCE = 7,
    /* This rank sends send_counts[r] elements to rank r and gets receive_counts[r] from it. source
     * holds the elements for rank 0, then those for rank 1, and so on; target receives those from
     * rank 0, then those from rank 1, and so on. Every rank learns all counts, so time and memory
     * grow with the square of the number of ranks. Errors: also MISMATCH, naming two ranks, if one
     * expects a different count than the other sends. */
    RESHARD_ALL_TO_ALL_SINGLE = 8,
    /* The same with one buffer for each rank: sources[r] goes to rank r, and targets[r] receives
     * what rank r sends. */
    RESHARD_ALL_TO_ALL = 9
} reshard_exchange_kind;

/* A kind ignores fields that it does not use. */
typedef struct reshard_exchange {
    size_t size; /* sizeof(reshard_exchange) */
    reshard_exchange_kind kind;
    reshard_dtype dtype;
    reshard_reduction reduction;
    int32_t root;
    int64_t count;
    const int64_t *counts;
    const int64_t *send_counts, *receive_counts;
    const void *source;
    void *target;
    const void *const *sources; /* of RESHARD_ALL_TO_ALL, like targets */
    void *const *targets;
} reshard_exchange;

/*
 * Collective. out_work NULL: returns when this rank is done. Otherwise returns when the exchange is
 * under way, with a work to wait for; `counts` and lists of buffers are copied.
 *
 *     reshard_exchange_run(NULL, group, RESHARD_OPTIONS(reshard_exchange, .kind =
 *         RESHARD_ALL_REDUCE, .dtype = RESHARD_F32, .count = n, .source = x, .target = sum), NULL);
 */
RESHARD_API reshard_status reshard_exchange_run(reshard_context *context, reshard_group *group,
                                                const reshard_exchange *exchange,
                                                reshard_work **out_work);

/* ---- messages between two ranks -------------------------------------------------------------- */

/*
 * Messages of any size between two ranks; only these two take part. The n-th send from one rank to
 * another meets the n-th receive there, no matter which is waited for first. out_work NULL: the
 * call returns when the message is through; a send may block until its receive begins. If two ranks
 * both send before they receive, at least one of the sends must have a work. A rank may send to
 * itself if both ends have one.
 *
 * Errors that leave everything as it was: RANGE (no such rank, a negative count), INVALID (a bad
 * dtype or buffer; this rank itself, without a work), UNSUPPORTED (fractions of a byte), NO_MEMORY.
 * If the two ends differ in count or dtype, the receiver gets GROUP_BROKEN with a text that states
 * both. So does the sender, unless it has already finished, because a message cannot be taken back.
 */
RESHARD_API reshard_status reshard_send(reshard_context *context, reshard_group *group,
                                        reshard_dtype dtype, int32_t target_rank, int64_t count,
                                        const void *source, reshard_work **out_work);
RESHARD_API reshard_status reshard_receive(reshard_context *context, reshard_group *group,
                                           reshard_dtype dtype, int32_t source_rank, int64_t count,
                                           void *target, reshard_work **out_work);

/* ==== explicit ===================================================================================
 * Works under way, to be waited for later or run again.
 */

/* Local. Makes progress. *out_done is set to whether the work is complete, as after wait. */
RESHARD_API reshard_status reshard_work_test(reshard_work *work, int *out_done);
/* Local. Returns at once if the work is already complete. */
RESHARD_API reshard_status reshard_work_wait(reshard_work *work);
/* For programs that repeat an exchange: runs the same work again on the same buffers, without
 * set-up or allocation. As with starting, all ranks must restart works in the same order, but this
 * call does not wait for the other ranks. Errors: INVALID if the work is still under way; those of
 * a broken group. */
RESHARD_API reshard_status reshard_work_restart(reshard_work *work);
/* Local. If the work is under way, waits for it first. */
RESHARD_API void reshard_work_destroy(reshard_work *work);

#ifdef __cplusplus
}
#endif
#endif
