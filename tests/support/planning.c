/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planning.c - see planning.h.
 */
#include "tests/support/planning.h"

#include "plan/plan.h"
#include "tests/support/compare.h"
#include "tests/support/values.h"

#include <stdlib.h>
#include <string.h>

/* Sums beside averages: a value cannot be turned into such contributions, and the library says
 * so. */
bool planning_is_mixed(const oracle_layout *layout)
{
    const oracle_shard *shard = layout->shard_count > 0 ? &layout->shards[0] : NULL;
    return shard != NULL && shard->partial && shard->reduction == RESHARD_AVG &&
           shard->divisor != shard->contributor_count;
}

planning_state planning_init(planning *made, const harness_case *given, reshard_dtype dtype,
                             const reshard_plan_options *options, words *said)
{
    memset(made, 0, sizeof *made);
    made->dtype = dtype;
    made->item_bytes = (uint64_t)reshard_dtype_bits(dtype) / 8;
    for (int i = 0; i < 2; i++) {
        if (oracle_may_be_refused(&given->specs[i]))
            return PLANNING_SKIPPED;
    }
    made->source = oracle_layout_create(&given->specs[0], given->ndim, given->shape, NULL);
    made->target = oracle_layout_create(&given->specs[1], given->ndim, given->shape, NULL);
    if (made->source == NULL || made->target == NULL)
        return PLANNING_SKIPPED;
    bool by_constructor = given->seed % 3 == 0;
    if (compare_create(&given->specs[0], by_constructor, given->ndim, given->shape,
                       &made->source_layout) != RESHARD_OK ||
        compare_create(&given->specs[1], by_constructor, given->ndim, given->shape,
                       &made->target_layout) != RESHARD_OK) {
        (void)words_say(said, "no layout: %s", reshard_error_text());
        return PLANNING_REFUSED;
    }
    reshard_status status = reshard_plan_create_simple(
        NULL, made->source_layout, made->target_layout, dtype, options, &made->plan);
    if (status == RESHARD_ERR_UNSUPPORTED && planning_is_mixed(made->target))
        return PLANNING_SKIPPED;
    if (status != RESHARD_OK) {
        (void)words_say(said, "no plan: %s", reshard_error_text());
        return PLANNING_REFUSED;
    }
    return PLANNING_READY;
}

void planning_free(planning *made)
{
    oracle_layout_destroy(made->source);
    oracle_layout_destroy(made->target);
    reshard_layout_release(made->source_layout);
    reshard_layout_release(made->target_layout);
    reshard_plan_release(made->plan);
}

bool planning_is_partial(const oracle_layout *layout)
{
    return layout->shard_count > 0 && layout->shards[0].partial;
}

/* Gives the target's shards the ranks that the plan chose, or gives them back those they had. What
 * is played is a permutation of the target's ranks, so a rank's place is the number of lower ones
 * in it. */
static void play_parts(oracle_layout *target, const int32_t *given, const int32_t *played,
                       int32_t count)
{
    for (int64_t i = 0; i < target->shard_count; i++) {
        int32_t part = 0;
        for (int32_t k = 0; k < count; k++)
            part += played[k] < given[i];
        target->shards[i].rank = part < count ? played[part] : given[i];
    }
}

static bool run_one(const planning *made, uint64_t seed, simulate_run *run,
                    simulate_tensor **out_filled, words *said)
{
    simulate_tensor *from = simulate_tensor_create(made->source_layout);
    simulate_tensor *to = simulate_tensor_create(reshard_plan_target_layout(made->plan, 0));
    double *values = values_create(made->source, seed);
    run->plan = made->plan;
    run->sources = &from;
    run->targets = &to;
    bool right = values_fill(made->source, seed, from, said) && simulate(run, said) &&
                 values_check(made->target, values, to, said);
    free(values);
    simulate_tensor_destroy(from);
    *out_filled = to;
    return right;
}

bool planning_run(const planning *made, uint64_t seed, simulate_watch_fn watch, void *user,
                  simulate_run *out_run, words *said)
{
    simulate_run pull = {.direction = SIMULATE_PULL, .watch = watch, .user = user};
    simulate_run push = {.direction = SIMULATE_PUSH};
    simulate_tensor *pulled = NULL, *pushed = NULL;
    const int32_t *ranks = NULL;
    ranks = rs_plan_forward(made->plan)->relabelling;
    int32_t count = rs_plan_forward(made->plan)->relabelling_count;
    int32_t *before = calloc((size_t)made->target->shard_count + 1, sizeof *before);
    if (before == NULL)
        abort();
    for (int64_t i = 0; i < made->target->shard_count; i++)
        before[i] = made->target->shards[i].rank;
    play_parts(made->target, before, ranks, count);
    bool right =
        run_one(made, seed, &pull, &pulled, said) && run_one(made, seed, &push, &pushed, said);
    if (right && !simulate_equal(pulled, pushed))
        right = words_say(said, "pulling and pushing differ");
    int64_t numbers =
        (int64_t)pull.rank_count * pull.rank_count * rs_plan_forward(made->plan)->stage_count;
    if (right && memcmp(pull.matrix, push.matrix, sizeof *pull.matrix * (size_t)numbers) != 0)
        right = words_say(said, "receives and sends are not of the same bytes");
    play_parts(made->target, before, NULL, 0);
    free(before);
    simulate_tensor_destroy(pulled);
    simulate_tensor_destroy(pushed);
    simulate_release(&push);
    if (out_run != NULL)
        *out_run = pull;
    else
        simulate_release(&pull);
    return right;
}

uint64_t planning_traffic(const planning *made, const simulate_run *run, int32_t from, int32_t to)
{
    uint64_t bytes = 0;
    for (int32_t stage = 0; stage < rs_plan_forward(made->plan)->stage_count; stage++)
        bytes += run->matrix[((int64_t)stage * run->rank_count + from) * run->rank_count + to];
    return bytes;
}

void planning_set_chunks(oracle_spec *spec, int32_t k, const int32_t *ranks, int32_t dim)
{
    memset(spec, 0, sizeof *spec);
    spec->kind = RESHARD_SPEC_CUTS;
    spec->axis_count = 1;
    spec->sizes[0] = k;
    spec->default_ranks = ranks == NULL;
    for (int32_t i = 0; i < k; i++)
        spec->ranks[i] = ranks != NULL ? ranks[i] : i;
    spec->cut_count = 1;
    spec->cuts[0].kind = RESHARD_SHARD;
    spec->cuts[0].dim = dim;
}

void planning_set_whole(oracle_spec *spec, int32_t k, int32_t first, reshard_placement_kind kind)
{
    planning_set_chunks(spec, k, NULL, 0);
    spec->default_ranks = first == 0;
    for (int32_t i = 0; i < k; i++)
        spec->ranks[i] = first + i;
    spec->cuts[0].kind = kind;
}

void planning_set_shape(harness_case *made, int32_t ndim, const int64_t *shape)
{
    made->spec_count = 2;
    made->ndim = ndim;
    for (int32_t d = 0; d < ndim; d++)
        made->shape[d] = shape[d];
}
