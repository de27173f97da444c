/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.c - see live.h.
 */
#include "tests/support/live.h"

#include "plan/plan.h"
#include "tests/support/check.h"
#include "tests/support/values.h"

#include "transport/group_memory.h"

#include <reshard/sim.h>

#include <stdlib.h>
#include <string.h>

/* ---- one rank -------------------------------------------------------------------------------- */

int64_t live_list_buffers(const simulate_tensor *tensor, int32_t rank, void **out)
{
    int64_t count = 0;
    for (int64_t i = 0; i < tensor->count; i++) {
        if (tensor->buffers[i].rank == rank)
            out[count++] = tensor->buffers[i].values;
    }
    return count;
}

static bool is_among(uint64_t bits, int32_t rank)
{
    return (bits >> rank % 64 & 1) != 0;
}

/* Memory of the group in place of a tensor's buffers, whose addresses become the new ones. */
static reshard_status borrow(reshard_group *group, const simulate_tensor *tensor, bool fill,
                             void **buffers)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0, next = 0; i < tensor->count && status == RESHARD_OK; i++) {
        if (tensor->buffers[i].rank != reshard_group_rank(group))
            continue;
        size_t bytes = (size_t)tensor->buffers[i].count * sizeof(double);
        status = rs_group_take(group, bytes, &buffers[next]);
        if (status == RESHARD_OK && fill && bytes != 0)
            memcpy(buffers[next], tensor->buffers[i].values, bytes);
        next++;
    }
    return status;
}

static void give_back(reshard_group *group, const simulate_tensor *tensor, bool fetch,
                      void **buffers)
{
    for (int64_t i = 0, next = 0; i < tensor->count; i++) {
        const simulate_buffer *own = &tensor->buffers[i];
        if (own->rank != reshard_group_rank(group))
            continue;
        void *borrowed = buffers[next++];
        if (borrowed == own->values)
            continue; /* something failed before */
        if (fetch && own->count != 0)
            memcpy(own->values, borrowed, (size_t)own->count * sizeof(double));
        reshard_group_free(group, borrowed);
    }
}

/* Runs on the buffers as they are. */
static reshard_status run_exec(const live *l, reshard_group *group, void **sources, void **targets)
{
    reshard_context *context = reshard_group_rank(group) == l->context_rank ? l->context : NULL;
    reshard_exec *exec = NULL;
    reshard_status status = reshard_exec_create(context, l->plan, group, &l->options, &exec);
    for (int i = 0; i < l->runs && status == RESHARD_OK; i++) {
        status = reshard_exec_start(exec, (const void *const *)sources, targets);
        if (status == RESHARD_OK)
            status = reshard_exec_wait(exec);
    }
    reshard_exec_destroy(exec);
    return status;
}

reshard_status live_run_rank(void *user, reshard_group *group)
{
    const live *l = user;
    int32_t rank = reshard_group_rank(group);
    void **sources = calloc((size_t)l->from->count + 1, sizeof *sources);
    void **targets = calloc((size_t)l->to->count + 1, sizeof *targets);
    if (sources == NULL || targets == NULL)
        abort();
    (void)live_list_buffers(l->from, rank, sources);
    (void)live_list_buffers(l->to, rank, targets);
    bool shares_source = is_among(l->shared_sources, rank);
    bool shares_target = is_among(l->shared_targets, rank);
    reshard_status status = RESHARD_OK;
    if (l->shared_sources != 0 || l->shared_targets != 0)
        status = rs_group_reserve(group, RESHARD_OK, 1); /* room for all that is borrowed here */
    if (status == RESHARD_OK && shares_source)
        status = borrow(group, l->from, true, sources);
    if (status == RESHARD_OK && shares_target)
        status = borrow(group, l->to, false, targets);
    if (status == RESHARD_OK)
        status = run_exec(l, group, sources, targets);
    if (shares_source)
        give_back(group, l->from, false, sources);
    if (shares_target)
        give_back(group, l->to, true, targets);
    free(sources);
    free(targets);
    return status;
}

/* ---- ways ------------------------------------------------------------------------------------ */

static reshard_status run_threads(const live_way *way, uint64_t seed, int32_t size,
                                  reshard_rank_fn body, void *user)
{
    (void)way;
    (void)seed;
    return reshard_group_run(NULL, size, body, user);
}

static reshard_status run_simulation(const live_way *way, uint64_t seed, int32_t size,
                                     reshard_rank_fn body, void *user)
{
    reshard_sim_options options = {
        .size = sizeof options, .seed = seed, .mapped = way->mapped, .node_size = way->node_size};
    return reshard_sim_run(NULL, size, &options, body, user);
}

const live_way live_ways[] = {
    {.name = "threads", .run = run_threads},
    {.name = "simulation, mapped", .run = run_simulation, .mapped = 1},
    {.name = "simulation, messages", .run = run_simulation, .messages_only = 1},
    {.name = "threads, messages", .run = run_threads, .messages_only = 1},
    {.name = "simulation, nodes", .run = run_simulation, .node_size = 3, .memory = LIVE_SHARED},
    {.name = "simulation, nodes, mixed",
     .run = run_simulation,
     .node_size = 3,
     .memory = LIVE_MIXED},
};

const int live_way_count = (int)(sizeof live_ways / sizeof *live_ways);

/* ---- there and back -------------------------------------------------------------------------- */

static bool run_plan(const live_way *way, uint64_t seed, reshard_plan *plan, simulate_tensor *from,
                     simulate_tensor *to, words *said)
{
    live l = {.plan = plan, .from = from, .to = to, .runs = 2};
    l.options.size = sizeof l.options;
    l.options.messages_only = way->messages_only;
    if (way->memory != LIVE_PLAIN) {
        l.shared_sources = way->memory == LIVE_MIXED ? draw_hash(seed, 1) : UINT64_MAX;
        l.shared_targets = way->memory == LIVE_MIXED ? draw_hash(seed, 2) : UINT64_MAX;
    }
    int32_t size = rs_plan_forward(plan)->rank_count;
    if (way->run(way, seed, size, live_run_rank, &l) != RESHARD_OK)
        return words_say(said, "%s: %s", way->name, reshard_error_text());
    if (way->collect != NULL)
        way->collect(to);
    return true;
}

bool live_check_there(const harness_case *given, const live_way *way, words *said)
{
    planning made;
    /* Every other case with so little staging that streams are cut into many segments. */
    reshard_plan_options options = {
        .size = sizeof options,
        .staging_bytes_max = given->seed % 2 != 0 ? RESHARD_STAGING_BYTES_MIN : 0,
    };
    planning_state state = planning_init(&made, given, RESHARD_F64, &options, said);
    if (state != PLANNING_READY) {
        planning_free(&made);
        return state == PLANNING_SKIPPED;
    }
    simulate_tensor *from = simulate_tensor_create(made.source_layout);
    simulate_tensor *to = simulate_tensor_create(reshard_plan_target_layout(made.plan, 0));
    double *values = values_create(made.source, given->seed);
    bool right = values_fill(made.source, given->seed, from, said) &&
                 run_plan(way, given->seed, made.plan, from, to, said) &&
                 values_check(made.target, values, to, said);
    free(values);
    simulate_tensor_destroy(from);
    simulate_tensor_destroy(to);
    planning_free(&made);
    return right;
}

static bool has_same_bits(const simulate_tensor *a, const simulate_tensor *b, words *said)
{
    for (int64_t i = 0; i < a->count; i++) {
        const simulate_buffer *x = &a->buffers[i], *y = &b->buffers[i];
        for (int64_t k = 0; k < x->count; k++) {
            if (memcmp(&x->values[k], &y->values[k], sizeof x->values[k]) != 0)
                return words_say(said, "there and back: rank %d shard %d place %lld: %g, not %g",
                                 (int)x->rank, (int)x->index, (long long)k, y->values[k],
                                 x->values[k]);
        }
    }
    return true;
}

bool live_check_back(const harness_case *given, const live_way *way, words *said)
{
    planning made;
    planning_state state = planning_init(&made, given, RESHARD_F64, NULL, said);
    if (state != PLANNING_READY || planning_is_partial(made.source)) {
        planning_free(&made);
        return state != PLANNING_REFUSED;
    }
    reshard_plan *back = NULL;
    simulate_tensor *from = simulate_tensor_create(made.source_layout);
    simulate_tensor *to = simulate_tensor_create(made.target_layout);
    simulate_tensor *again = simulate_tensor_create(made.source_layout);
    bool right = reshard_plan_create_simple(NULL, made.target_layout, made.source_layout,
                                            RESHARD_F64, NULL, &back) == RESHARD_OK;
    if (!right)
        (void)words_say(said, "no way back: %s", reshard_error_text());
    right = right && values_fill(made.source, given->seed, from, said) &&
            run_plan(way, given->seed, made.plan, from, to, said) &&
            run_plan(way, given->seed + 1, back, to, again, said) &&
            has_same_bits(from, again, said);
    simulate_tensor_destroy(from);
    simulate_tensor_destroy(to);
    simulate_tensor_destroy(again);
    reshard_plan_release(back);
    planning_free(&made);
    return right;
}

/* ---- cases ----------------------------------------------------------------------------------- */

void live_generate_pair(draw_state *draw, int32_t ranks_max, harness_case *made)
{
    made->spec_count = 2;
    generate_shape(draw, 300, &made->ndim, made->shape);
    for (int i = 0; i < 2; i++)
        generate_spec_within(draw, GENERATE_LISTED | GENERATE_PARTIAL, ranks_max, made->ndim,
                             made->shape, &made->specs[i]);
}

void live_set_permutation(int index, harness_case *made)
{
    int32_t owners[5] = {0, 1, 2, 3, 4};
    for (int32_t i = 0, left = 120; i < 5; i++) { /* digits of the index in the factorial system */
        left /= 5 - i;
        int32_t chosen = i + index / left % (5 - i);
        int32_t kept = owners[chosen];
        memmove(&owners[i + 1], &owners[i], (size_t)(chosen - i) * sizeof *owners);
        owners[i] = kept;
    }
    memset(made, 0, sizeof *made);
    made->seed = (uint64_t)index;
    made->spec_count = 2;
    planning_set_shape(made, 2, (const int64_t[]){13, 3});
    planning_set_chunks(&made->specs[0], 5, NULL, 0);
    planning_set_chunks(&made->specs[1], 5, owners, 0);
}

/* ---- a plan to try things with --------------------------------------------------------------- */

void live_fill_with_integers(simulate_tensor *tensor, uint64_t seed)
{
    for (int64_t i = 0; i < tensor->count; i++) {
        for (int64_t k = 0; k < tensor->buffers[i].count; k++)
            tensor->buffers[i].values[k] =
                360360.0 * (double)((int64_t)((seed + (uint64_t)(i * 31 + k * 7)) % 17) - 8);
    }
}

static reshard_layout *make_layout(const char *spec)
{
    const int64_t shape[] = {12, 10};
    reshard_layout *layout = NULL;
    assert_int_equal(reshard_layout_parse(NULL, spec, 2, shape, &layout), RESHARD_OK);
    return layout;
}

void live_fixture_init(live_fixture *f, const char *from, const char *to, int messages)
{
    f->source = make_layout(from);
    f->target = make_layout(to);
    reshard_plan_options options = {.size = sizeof options,
                                    .staging_bytes_max = RESHARD_STAGING_BYTES_MIN};
    assert_int_equal(
        reshard_plan_create_simple(NULL, f->source, f->target, RESHARD_F64, &options, &f->plan),
        RESHARD_OK);
    f->from = simulate_tensor_create(f->source);
    f->to = simulate_tensor_create(f->target);
    f->wanted = simulate_tensor_create(f->target);
    live_fill_with_integers(f->from, 1);
    words said = {""};
    simulate_run run = {
        .plan = f->plan, .direction = SIMULATE_PULL, .sources = &f->from, .targets = &f->wanted};
    if (!simulate(&run, &said))
        fail_msg("%s", said.text);
    simulate_release(&run);
    f->l = (live){.plan = f->plan, .from = f->from, .to = f->to, .runs = 2};
    f->l.options = (reshard_exec_options){.size = sizeof f->l.options, .messages_only = messages};
}

void live_fixture_release(live_fixture *f)
{
    simulate_tensor_destroy(f->from);
    simulate_tensor_destroy(f->to);
    simulate_tensor_destroy(f->wanted);
    reshard_plan_release(f->plan);
    reshard_layout_release(f->source);
    reshard_layout_release(f->target);
}
