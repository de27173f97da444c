/* SPDX-License-Identifier: Apache-2.0 */
/*
 * property_plan.c - random pairs of layouts of one tensor, of all kinds, on the same, overlapping
 * or other ranks. Carried out element by element, a plan brings every target exactly the oracle's
 * values; what its statistics say is what was seen; bytes that a rank already holds stay; nobody
 * sends more than the rule allows.
 */
#include "tests/support/planning.h"

#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const reshard_dtype dtypes[] = {RESHARD_F32, RESHARD_F64, RESHARD_BF16, RESHARD_I64};

static void generate_pair(draw_state *draw, harness_case *made)
{
    int flags = draw_chance(draw, 50) ? GENERATE_LISTED : GENERATE_LISTED | GENERATE_PARTIAL;
    made->spec_count = 2;
    generate_shape(draw, 600, &made->ndim, made->shape);
    generate_spec(draw, flags, made->ndim, made->shape, &made->specs[0]);
    generate_spec(draw, flags, made->ndim, made->shape, &made->specs[1]);
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* Fills have no source; where the target is partial or a link leaves a gap they make the kept bytes
 * differ. */
static bool check_totals(const planning *made, const simulate_run *run,
                         const reshard_plan_stats *stats, const uint64_t *matrix, words *said)
{
    uint64_t moved = 0, kept = 0, in_max = 0, out_max = 0;
    bool fills = planning_is_partial(made->target);
    for (int32_t a = 0; a < run->rank_count; a++) {
        uint64_t in = 0, out = 0;
        for (int32_t b = 0; b < run->rank_count; b++) {
            uint64_t seen = planning_traffic(made, run, a, b);
            if (matrix[a * run->rank_count + b] != seen && (a != b || !fills))
                return words_say(said, "matrix[%d][%d] is %llu, seen were %llu", (int)a, (int)b,
                                 (unsigned long long)matrix[a * run->rank_count + b],
                                 (unsigned long long)seen);
            out += a != b ? seen : 0;
            in += a != b ? planning_traffic(made, run, b, a) : 0;
            kept += a == b ? seen : 0;
        }
        moved += out;
        in_max = in > in_max ? in : in_max;
        out_max = out > out_max ? out : out_max;
    }
    if (stats->bytes_moved != moved || (!fills && stats->bytes_kept != kept))
        return words_say(said, "%llu bytes moved and %llu kept, seen were %llu and %llu",
                         (unsigned long long)stats->bytes_moved,
                         (unsigned long long)stats->bytes_kept, (unsigned long long)moved,
                         (unsigned long long)kept);
    if (stats->bytes_in_max != in_max || stats->bytes_out_max != out_max)
        return words_say(said, "busiest ranks: %llu in, %llu out, seen were %llu and %llu",
                         (unsigned long long)stats->bytes_in_max,
                         (unsigned long long)stats->bytes_out_max, (unsigned long long)in_max,
                         (unsigned long long)out_max);
    if (stats->moves != run->moves)
        return words_say(said, "%llu moves, seen were %llu", (unsigned long long)stats->moves,
                         (unsigned long long)run->moves);
    return true;
}

static bool check_parts(const planning *made, const simulate_run *run, words *said)
{
    bool fills = planning_is_partial(made->target);
    for (int32_t rank = 0; rank < run->rank_count; rank++) {
        reshard_part *part = NULL;
        reshard_part_stats stats = {.size = sizeof stats};
        uint64_t in = 0, out = 0;
        if (reshard_part_create(NULL, made->plan, rank, &part) != RESHARD_OK)
            return words_say(said, "part: %s", reshard_error_text());
        (void)reshard_part_get_stats(part, &stats);
        reshard_part_destroy(part);
        for (int32_t other = 0; other < run->rank_count; other++) {
            in += other != rank ? planning_traffic(made, run, other, rank) : 0;
            out += other != rank ? planning_traffic(made, run, rank, other) : 0;
        }
        uint64_t kept = planning_traffic(made, run, rank, rank);
        if (stats.staging_bytes_peak > RESHARD_STAGING_BYTES_MIN)
            return words_say(said, "rank %d stages %llu bytes", (int)rank,
                             (unsigned long long)stats.staging_bytes_peak);
        if (stats.bytes_in != in || stats.bytes_out != out || (!fills && stats.bytes_kept != kept))
            return words_say(said, "rank %d: %llu in, %llu out, %llu kept; seen %llu, %llu, %llu",
                             (int)rank, (unsigned long long)stats.bytes_in,
                             (unsigned long long)stats.bytes_out,
                             (unsigned long long)stats.bytes_kept, (unsigned long long)in,
                             (unsigned long long)out, (unsigned long long)kept);
    }
    return true;
}

static bool check_stats(const planning *made, const simulate_run *run, words *said)
{
    reshard_plan_stats stats = {.size = sizeof stats};
    size_t pairs = (size_t)run->rank_count * (size_t)run->rank_count;
    uint64_t *matrix = calloc(pairs + 1, sizeof *matrix);
    uint64_t total = 0;
    if (matrix == NULL)
        abort();
    for (int64_t i = 0; i < made->target->shard_count; i++)
        total += (uint64_t)made->target->shards[i].count * made->item_bytes;
    bool right = reshard_plan_get_stats(made->plan, &stats, matrix) == RESHARD_OK ||
                 words_say(said, "stats: %s", reshard_error_text());
    if (right &&
        (stats.bytes_total != total || stats.stages != rs_plan_forward(made->plan)->stage_count))
        right = words_say(said, "%llu bytes in %d stages, not %llu in %d",
                          (unsigned long long)stats.bytes_total, (int)stats.stages,
                          (unsigned long long)total, (int)rs_plan_forward(made->plan)->stage_count);
    right = right && check_totals(made, run, &stats, matrix, said);
    free(matrix);
    return right && check_parts(made, run, said);
}

/* ---- who sends ------------------------------------------------------------------------------- */

/* Of each rank and element: how often the rank sends it, and how often it arrives there. */
typedef struct flow {
    const oracle_layout *source;
    bool by_rule; /* not by the exact balance, which may burden one holder of one element */
    uint8_t *sent, *arrived;
} flow;

static void watch_flow(void *user, int32_t stage, const reshard_move *move, int64_t source_place,
                       int64_t target_place)
{
    flow *seen = user;
    (void)stage;
    (void)target_place;
    if (move->source_rank == move->target_rank)
        return;
    for (int64_t i = 0; i < seen->source->shard_count; i++) {
        const oracle_shard *shard = &seen->source->shards[i];
        if (shard->rank == move->source_rank && shard->index == move->source_shard) {
            int64_t element = shard->elements[source_place];
            seen->sent[move->source_rank * seen->source->volume + element]++;
            seen->arrived[move->target_rank * seen->source->volume + element]++;
        }
    }
}

/* Who needs an element gets it, once or for each of its overlapping buffers; who holds it does not.
 * Counts the holding buffers, and the arrivals. */
static bool check_arrivals(const flow *seen, const uint8_t *held, const uint8_t *needed,
                           int32_t rank_count, int64_t element, int *out_holders, int *out_needers,
                           words *said)
{
    *out_holders = *out_needers = 0;
    for (int32_t rank = 0; rank < rank_count; rank++) {
        int64_t at = rank * seen->source->volume + element;
        int least = needed[at] > 0 && held[at] == 0 ? 1 : 0;
        int most = held[at] == 0 ? needed[at] : 0;
        *out_holders += held[at];
        *out_needers += needed[at];
        if (seen->arrived[at] < least || seen->arrived[at] > most)
            return words_say(said, "element %lld arrives %d times at rank %d: holds %d, needs %d",
                             (long long)element, (int)seen->arrived[at], (int)rank, (int)held[at],
                             (int)needed[at]);
    }
    return true;
}

/* One element in a plan of one stage: each of s holders sends it to at most ceil(t / s) of t
 * needers, those that hold it themselves counted. A rank that holds it in several overlapping
 * buffers counts as several holders. */
static bool check_element(const flow *seen, const uint8_t *held, const uint8_t *needed,
                          int32_t rank_count, int64_t element, words *said)
{
    int holders, needers;
    if (!check_arrivals(seen, held, needed, rank_count, element, &holders, &needers, said))
        return false;
    for (int32_t rank = 0; seen->by_rule && rank < rank_count; rank++) {
        int64_t at = rank * seen->source->volume + element;
        if (holders > 0 && seen->sent[at] > held[at] * ((needers + holders - 1) / holders))
            return words_say(said, "rank %d, one of %d, sends element %lld %d times for %d needers",
                             (int)rank, holders, (long long)element, (int)seen->sent[at], needers);
    }
    return true;
}

static bool check_flow(const planning *made, const flow *seen, int32_t rank_count, words *said)
{
    uint8_t *held = oracle_held(made->source, rank_count);
    uint8_t *needed = oracle_held(made->target, rank_count);
    bool right = true;
    for (int64_t i = 0; right && i < made->source->volume; i++)
        right = check_element(seen, held, needed, rank_count, i, said);
    free(held);
    free(needed);
    return right;
}

/* ---- one pair -------------------------------------------------------------------------------- */

static bool check_planned(const planning *made, const harness_case *given, bool by_rule,
                          words *said)
{
    simulate_run run = {0};
    flow seen = {.source = made->source, .by_rule = by_rule};
    int32_t rank_count = rs_plan_forward(made->plan)->rank_count;
    int32_t highest = made->source->rank_max > made->target->rank_max ? made->source->rank_max
                                                                      : made->target->rank_max;
    if (rank_count < highest + 1)
        return words_say(said, "%d ranks, though rank %d takes part", (int)rank_count,
                         (int)highest);
    size_t size = (size_t)rank_count * (size_t)made->source->volume + 1;
    seen.sent = calloc(size, 1);
    seen.arrived = calloc(size, 1);
    if (seen.sent == NULL || seen.arrived == NULL)
        abort();
    bool one_stage = rs_plan_forward(made->plan)->stage_count == 1;
    bool plain = !planning_is_partial(made->source) && !planning_is_partial(made->target);
    bool right = planning_run(made, given->seed, one_stage ? watch_flow : NULL, &seen, &run, said);
    if (right && reshard_plan_check(made->plan) != RESHARD_OK)
        right = words_say(said, "the checker refuses: %s", reshard_error_text());
    size_t segment = rs_plan_forward(made->plan)->segment_bytes;
    if (right && (segment < 1 || segment > RESHARD_STAGING_BYTES_MIN))
        right = words_say(said, "segments of %zu bytes", segment);
    right = right && check_stats(made, &run, said);
    if (right && one_stage && plain)
        right = check_flow(made, &seen, rank_count, said);
    simulate_release(&run);
    free(seen.sent);
    free(seen.arrived);
    return right;
}

static bool check_pair(const harness_case *given, words *said)
{
    planning made;
    reshard_plan_options options = {.size = sizeof options};
    options.single_stage = given->seed % 2 == 0;
    options.staging_bytes_max = RESHARD_STAGING_BYTES_MIN;
    options.balance = given->seed % 5 == 0 ? RESHARD_BALANCE_EXACT : RESHARD_BALANCE_RULE;
    reshard_dtype dtype = dtypes[given->seed % 4];
    planning_state state = planning_init(&made, given, dtype, &options, said);
    bool right = state == PLANNING_SKIPPED ||
                 (state == PLANNING_READY &&
                  check_planned(&made, given, options.balance == RESHARD_BALANCE_RULE, said));
    if (right && state == PLANNING_READY && options.single_stage &&
        rs_plan_forward(made.plan)->stage_count != 1)
        right = words_say(said, "%d stages where one was asked for",
                          (int)rs_plan_forward(made.plan)->stage_count);
    planning_free(&made);
    return right;
}

static void test_plan__random_pairs(void **state)
{
    (void)state;
    harness_run("plan of a random pair", 8000, generate_pair, check_pair);
}

/* ---- A to A ---------------------------------------------------------------------------------- */

static bool check_same(const harness_case *given, words *said)
{
    planning made;
    harness_case *twice = malloc(sizeof *twice);
    reshard_plan_stats stats = {.size = sizeof stats};
    if (twice == NULL)
        abort();
    *twice = *given;
    twice->spec_count = 2;
    twice->specs[1] = twice->specs[0];
    planning_state state = planning_init(&made, twice, RESHARD_F32, NULL, said);
    bool right = state != PLANNING_REFUSED;
    if (state == PLANNING_READY) {
        right = planning_run(&made, given->seed, NULL, NULL, NULL, said);
        if (right && reshard_plan_get_stats(made.plan, &stats, NULL) != RESHARD_OK)
            right = words_say(said, "stats: %s", reshard_error_text());
        if (right && (stats.bytes_moved != 0 || stats.stages != 1))
            right = words_say(said, "%llu bytes move in %d stages",
                              (unsigned long long)stats.bytes_moved, (int)stats.stages);
    }
    planning_free(&made);
    free(twice);
    return right;
}

static void generate_same(draw_state *draw, harness_case *made)
{
    generate_pair(draw, made);
    made->spec_count = 1;
}

static void test_plan__same_layout_moves_nothing(void **state)
{
    (void)state;
    harness_run("plan from a layout to itself", 1500, generate_same, check_same);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan__same_layout_moves_nothing),
        cmocka_unit_test(test_plan__random_pairs),
    };
    return cmocka_run_group_tests_name("property_plan", tests, NULL, NULL);
}
