/* SPDX-License-Identifier: Apache-2.0 */
/*
 * property_streams.c - the two ends of a pair of ranks, which never talk, list the same moves at
 * the same places of one byte stream, in canonical order; and single moves are what the loops of
 * records say.
 */
#include "tests/support/planning.h"

#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void generate_pair(draw_state *draw, harness_case *made)
{
    made->spec_count = 2;
    generate_shape(draw, 300, &made->ndim, made->shape);
    for (int i = 0; i < 2; i++)
        generate_spec(draw, GENERATE_LISTED | GENERATE_PARTIAL, made->ndim, made->shape,
                      &made->specs[i]);
}

/* Along a dim of one element the stride means nothing. */
static bool same_boxes(const reshard_move *a, const reshard_move *b)
{
    for (int32_t d = 0; d < a->ndim; d++) {
        if (a->start[d] != b->start[d] || a->size[d] != b->size[d])
            return false;
        if (a->size[d] > 1 && (a->source_strides[d] != b->source_strides[d] ||
                               a->target_strides[d] != b->target_strides[d]))
            return false;
    }
    return true;
}

static bool same_moves(const reshard_move *a, const reshard_move *b)
{
    return a->kind == b->kind && a->source_rank == b->source_rank &&
           a->target_rank == b->target_rank && a->source_shard == b->source_shard &&
           a->target_shard == b->target_shard && a->ndim == b->ndim &&
           a->source_at == b->source_at && a->target_at == b->target_at &&
           a->contributor == b->contributor && a->contributor_count == b->contributor_count &&
           a->reduction == b->reduction && a->divisor == b->divisor && same_boxes(a, b);
}

/* By stage link, target shard, place there, contributor. */
static bool in_order(const reshard_stream *stream, int64_t i)
{
    const reshard_move *a = &stream->moves[i - 1], *b = &stream->moves[i];
    if (stream->links[i - 1] != stream->links[i])
        return stream->links[i - 1] < stream->links[i];
    if (a->target_shard != b->target_shard)
        return a->target_shard < b->target_shard;
    if (a->target_at != b->target_at)
        return a->target_at < b->target_at;
    return a->contributor < b->contributor;
}

static bool compare_streams(const reshard_plan *plan, int32_t stage, const reshard_stream *sent,
                            const reshard_stream *received, uint64_t bytes, words *said)
{
    if (sent->count != received->count)
        return words_say(said, "%lld moves are sent, %lld received", (long long)sent->count,
                         (long long)received->count);
    for (int64_t i = 0; i < sent->count; i++) {
        const reshard_move *move = &sent->moves[i];
        reshard_stage_link link = {.size = sizeof link};
        if (reshard_plan_stage_link(plan, stage, sent->links[i], &link) != RESHARD_OK)
            return words_say(said, "a move of link %d", (int)sent->links[i]);
        uint64_t length =
            (uint64_t)oracle_volume(move->ndim, move->size) * simulate_item_bytes(&link);
        if (!same_moves(move, &received->moves[i]) || sent->links[i] != received->links[i] ||
            sent->offsets[i] != received->offsets[i])
            return words_say(said, "move %lld is not the same on both ends", (long long)i);
        if (move->loop_count != 0 || sent->offsets[i + 1] - sent->offsets[i] != length)
            return words_say(said, "move %lld is not single or not of %llu bytes", (long long)i,
                             (unsigned long long)length);
        if (i > 0 && !in_order(sent, i))
            return words_say(said, "move %lld is out of order", (long long)i);
    }
    if (sent->offsets[0] != 0 || sent->offsets[sent->count] != bytes ||
        received->offsets[received->count] != bytes)
        return words_say(said, "a stream of %llu bytes, not %llu",
                         (unsigned long long)sent->offsets[sent->count], (unsigned long long)bytes);
    return true;
}

static bool check_streams(const planning *made, const simulate_run *run, reshard_part **parts,
                          int32_t from, int32_t to, words *said)
{
    for (int32_t stage = 0; stage < rs_plan_forward(made->plan)->stage_count; stage++) {
        uint64_t bytes =
            run->matrix[((int64_t)stage * run->rank_count + from) * run->rank_count + to];
        reshard_stream *sent = NULL, *received = NULL;
        bool right = reshard_stream_create(parts[from], stage, to, 1, &sent) == RESHARD_OK &&
                     reshard_stream_create(parts[to], stage, from, 0, &received) == RESHARD_OK;
        if (!right)
            (void)words_say(said, "stream: %s", reshard_error_text());
        right = right && compare_streams(made->plan, stage, sent, received, bytes, said);
        reshard_stream_destroy(sent);
        reshard_stream_destroy(received);
        if (!right)
            return words_say(said, "stage %d, rank %d to rank %d", (int)stage, (int)from, (int)to);
    }
    return true;
}

/* reshard_move_single against the loops, the last one fastest. */
static bool check_singles(const reshard_move *record, int32_t rank, bool sending, words *said)
{
    int64_t total = 1;
    for (int32_t i = 0; i < record->loop_count; i++)
        total *= record->loops[i].count;
    if (reshard_move_count(record) != total)
        return words_say(said, "a record of %lld moves counts %lld", (long long)total,
                         (long long)reshard_move_count(record));
    for (int64_t index = 0; index < total; index++) {
        reshard_move single;
        int64_t start[RESHARD_FACTORS_MAX];
        int64_t rest = index, source_at = record->source_at, target_at = record->target_at;
        int32_t peer = sending ? record->target_rank : record->source_rank;
        for (int32_t i = record->loop_count - 1; i >= 0; i--) {
            const reshard_move_loop *loop = &record->loops[i];
            source_at += rest % loop->count * loop->source_step;
            target_at += rest % loop->count * loop->target_step;
            peer += (int32_t)(rest % loop->count) * loop->peer_step;
            rest /= loop->count;
        }
        reshard_move_single(record, rank, index, &single, start);
        if (single.loop_count != 0 || single.source_at != source_at ||
            single.target_at != target_at || single.start != start ||
            (sending ? single.target_rank : single.source_rank) != peer ||
            (sending ? single.source_rank : single.target_rank) != rank)
            return words_say(said, "single move %lld of a record of rank %d is not the loops'",
                             (long long)index, (int)rank);
    }
    return true;
}

static bool check_records(const planning *made, reshard_part **parts, int32_t rank, words *said)
{
    for (int32_t stage = 0; stage < rs_plan_forward(made->plan)->stage_count; stage++) {
        for (int32_t link = 0; link < reshard_plan_stage_link_count(made->plan, stage); link++) {
            const reshard_part_moves *moves = reshard_part_link(parts[rank], stage, link);
            for (int64_t i = 0; i < moves->receives.count; i++) {
                if (!check_singles(&moves->receives.items[i], rank, false, said))
                    return false;
            }
            for (int64_t i = 0; i < moves->sends.count; i++) {
                if (!check_singles(&moves->sends.items[i], rank, true, said))
                    return false;
            }
        }
    }
    return true;
}

static bool check_all(const planning *made, const simulate_run *run, words *said)
{
    reshard_part **parts = calloc((size_t)run->rank_count + 1, sizeof(reshard_part *));
    bool right = true;
    if (parts == NULL)
        abort();
    for (int32_t rank = 0; right && rank < run->rank_count; rank++) {
        if (reshard_part_create(NULL, made->plan, rank, &parts[rank]) != RESHARD_OK)
            right = words_say(said, "part: %s", reshard_error_text());
    }
    for (int32_t a = 0; right && a < run->rank_count; a++) {
        right = check_records(made, parts, a, said);
        for (int32_t b = 0; right && b < run->rank_count; b++) {
            /* Of the pairs that exchange nothing, some are enough. */
            bool silent = planning_traffic(made, run, a, b) == 0;
            if (a != b && (!silent || (a + b) % 7 == 0))
                right = check_streams(made, run, parts, a, b, said);
        }
    }
    for (int32_t rank = 0; rank < run->rank_count; rank++)
        reshard_part_destroy(parts[rank]);
    free(parts);
    return right;
}

static bool check_pair(const harness_case *given, words *said)
{
    planning made;
    simulate_run run = {0};
    reshard_plan_options options = {.size = sizeof options};
    options.single_stage = given->seed % 2 == 0;
    options.balance = given->seed % 3 == 0 ? RESHARD_BALANCE_EXACT : RESHARD_BALANCE_RULE;
    planning_state state = planning_init(&made, given, RESHARD_F32, &options, said);
    bool right =
        state == PLANNING_SKIPPED ||
        (state == PLANNING_READY && planning_run(&made, given->seed, NULL, NULL, &run, said) &&
         check_all(&made, &run, said));
    simulate_release(&run);
    planning_free(&made);
    return right;
}

static void test_streams__both_ends_agree(void **state)
{
    (void)state;
    harness_run("streams of a random pair", 5000, generate_pair, check_pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_streams__both_ends_agree)};
    return cmocka_run_group_tests_name("property_streams", tests, NULL, NULL);
}
