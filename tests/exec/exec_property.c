/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_property.c - plans between random layouts, carried out by live ranks: threads, and the
 * simulation with memory that is seen and memory that is not. Every target holds what the oracle
 * says. Ranks only run; the main thread checks.
 */
#include "support/context.h"
#include "support/planning.h"
#include "support/values.h"

#include <reshard/exec.h>

#include "transport/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct live {
    reshard_plan *plan;
    const simulate_tensor *from, *to;
    reshard_exec_options options;
    int runs;
    /* bits by rank: its buffers are in memory of the group; ranks above 63 as those below */
    int64_t shared_sources, shared_targets;
} live;

/* Memory of the group in place of a tensor's buffers; `buffers` becomes the new addresses. */
static reshard_status borrow(reshard_group *group, const simulate_tensor *tensor, bool shared,
                             bool fill, void **buffers)
{
    int32_t rank = reshard_group_rank(group);
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0, next = 0; i < tensor->count && shared && status == RESHARD_OK; i++) {
        if (tensor->buffers[i].rank != rank)
            continue;
        size_t bytes = (size_t)tensor->buffers[i].count * sizeof(double);
        status = rs_group_take(group, bytes, &buffers[next]);
        if (status == RESHARD_OK && fill && bytes != 0)
            memcpy(buffers[next], tensor->buffers[i].values, bytes);
        next++;
    }
    return status;
}

static void give_back(reshard_group *group, const simulate_tensor *tensor, bool shared, bool fetch,
                      void **buffers)
{
    int32_t rank = reshard_group_rank(group);
    for (int64_t i = 0, next = 0; i < tensor->count && shared; i++) {
        if (tensor->buffers[i].rank != rank)
            continue;
        size_t bytes = (size_t)tensor->buffers[i].count * sizeof(double);
        if (fetch && bytes != 0)
            memcpy(tensor->buffers[i].values, buffers[next], bytes);
        reshard_group_free(group, buffers[next++]);
    }
}

/* This rank's buffers of a tensor, by index. */
static int64_t list_buffers(const simulate_tensor *tensor, int32_t rank, void **out)
{
    int64_t count = 0;
    for (int64_t i = 0; i < tensor->count; i++) {
        if (tensor->buffers[i].rank == rank)
            out[count++] = tensor->buffers[i].values;
    }
    return count;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    const live *l = user;
    int32_t rank = reshard_group_rank(group);
    void **sources = calloc((size_t)l->from->count + 1, sizeof *sources);
    void **targets = calloc((size_t)l->to->count + 1, sizeof *targets);
    if (sources == NULL || targets == NULL)
        abort();
    int64_t source_count = list_buffers(l->from, rank, sources);
    int64_t target_count = list_buffers(l->to, rank, targets);
    bool shared_source = (l->shared_sources >> rank % 63 & 1) != 0;
    bool shared_target = (l->shared_targets >> rank % 63 & 1) != 0;
    reshard_exec *exec = NULL;
    reshard_status status = rs_group_reserve(group, RESHARD_OK, 1);
    if (status == RESHARD_OK)
        status = borrow(group, l->from, shared_source, true, sources);
    if (status == RESHARD_OK)
        status = borrow(group, l->to, shared_target, false, targets);
    if (status == RESHARD_OK)
        status = reshard_exec_create(NULL, l->plan, group, &l->options, &exec);
    if (status == RESHARD_OK && (reshard_exec_source_count(exec) != source_count ||
                                 reshard_exec_target_count(exec) != target_count))
        abort();
    for (int i = 0; i < l->runs && status == RESHARD_OK; i++) {
        status = reshard_exec_start(exec, (const void *const *)sources, targets);
        if (status == RESHARD_OK)
            status = reshard_exec_wait(exec);
    }
    reshard_exec_destroy(exec);
    give_back(group, l->from, shared_source, false, sources);
    give_back(group, l->to, shared_target, true, targets);
    free(sources);
    free(targets);
    return status;
}

/* Of the last two, ranks of a node of three see shared memory: all buffers are in it, or those of
 * some ranks only. */
typedef enum way {
    THREADS,
    SIM_MAPPED,
    SIM_MESSAGES,
    THREADS_MESSAGES,
    SIM_NODES,
    SIM_NODES_MIXED,
    WAY_COUNT
} way;

static bool run_way(const harness_case *given, const planning *made, way how, words *said)
{
    simulate_tensor *from = simulate_tensor_create(made->source_layout);
    simulate_tensor *to = simulate_tensor_create(reshard_plan_target_layout(made->plan, 0));
    double *values = values_create(made->source, given->seed);
    live l = {.plan = made->plan, .from = from, .to = to, .runs = 2};
    l.options.size = sizeof l.options;
    l.options.messages_only = how == THREADS_MESSAGES || how == SIM_MESSAGES;
    reshard_sim_options sim = {
        .size = sizeof sim,
        .seed = given->seed,
        .mapped = how == SIM_MAPPED,
        .node_size = how >= SIM_NODES ? 3 : 0,
    };
    l.shared_sources = how == SIM_NODES ? -1 : how == SIM_NODES_MIXED ? (int64_t)given->seed : 0;
    l.shared_targets = how == SIM_NODES         ? -1
                       : how == SIM_NODES_MIXED ? (int64_t)given->seed / 64
                                                : 0;
    int32_t size = reshard_plan_rank_count(made->plan);
    bool right = values_fill(made->source, given->seed, from, said);
    if (right) {
        reshard_status status = how == THREADS || how == THREADS_MESSAGES
                                    ? reshard_group_run(NULL, size, run_rank, &l)
                                    : reshard_group_run_sim(NULL, size, &sim, run_rank, &l);
        if (status != RESHARD_OK)
            right = words_say(said, "way %d: %s", (int)how, reshard_error_text());
    }
    right = right && values_check(made->target, values, to, said);
    free(values);
    simulate_tensor_destroy(from);
    simulate_tensor_destroy(to);
    return right;
}

static void generate_pair(draw_state *draw, harness_case *made)
{
    made->spec_count = 2;
    generate_shape(draw, 300, &made->ndim, made->shape);
    for (int i = 0; i < 2; i++)
        generate_spec(draw, GENERATE_LISTED | GENERATE_PARTIAL, made->ndim, made->shape,
                      &made->specs[i]);
}

static bool check_pair(const harness_case *given, words *said)
{
    planning made;
    /* Every other case with so little staging that streams are cut into many segments. */
    reshard_plan_options options = {
        .size = sizeof options,
        .staging_bytes_max = given->seed % 2 != 0 ? RESHARD_STAGING_BYTES_MIN : 0,
    };
    planning_state state = planning_init(&made, given, RESHARD_F64, &options, said);
    if (state != PLANNING_READY)
        return state == PLANNING_SKIPPED;
    bool right = true;
    for (way how = THREADS; how < WAY_COUNT && right; how++)
        right = run_way(given, &made, how, said);
    planning_free(&made);
    return right;
}

static void test_exec__random_pairs(void **state)
{
    (void)state;
    harness_run("live run of a random pair", 120, generate_pair, check_pair);
}

/* ---- adjoints -------------------------------------------------------------------------------- */

/* Multiples of 360360 (of all numbers up to 15), so that averages are exact and order does not
 * matter. */
static void fill_with_integers(simulate_tensor *tensor, uint64_t seed)
{
    for (int64_t i = 0; i < tensor->count; i++) {
        for (int64_t k = 0; k < tensor->buffers[i].count; k++)
            tensor->buffers[i].values[k] =
                360360.0 * (double)((int64_t)((seed + (uint64_t)(i * 31 + k * 7)) % 17) - 8);
    }
}

/* Live ranks and the simulator, which adds element by element, come to the same. */
static bool check_adjoint(const harness_case *given, words *said)
{
    planning made;
    planning_state state = planning_init(&made, given, RESHARD_F64, NULL, said);
    if (state != PLANNING_READY)
        return state == PLANNING_SKIPPED;
    reshard_plan *adjoint = NULL;
    if (reshard_plan_adjoint(made.plan, &adjoint) != RESHARD_OK) {
        planning_free(&made);
        return true; /* min, max and prod have none */
    }
    simulate_tensor *from = simulate_tensor_create(reshard_plan_target_layout(made.plan, 0));
    simulate_tensor *wanted = simulate_tensor_create(made.source_layout);
    simulate_tensor *to = simulate_tensor_create(made.source_layout);
    fill_with_integers(from, given->seed);
    simulate_clear(wanted);
    simulate_run run = {
        .plan = adjoint, .direction = SIMULATE_PULL, .sources = &from, .targets = &wanted};
    bool right = simulate(&run, said);
    for (int messages = 0; messages < 2 && right; messages++) {
        live l = {.plan = adjoint, .from = from, .to = to, .runs = 2};
        l.options = (reshard_exec_options){.size = sizeof l.options, .messages_only = messages};
        if (reshard_group_run(NULL, reshard_plan_rank_count(adjoint), run_rank, &l) != RESHARD_OK)
            right = words_say(said, "adjoint: %s", reshard_error_text());
        else if (!simulate_equal(to, wanted))
            right = words_say(said, "the adjoint differs, messages %d", messages);
    }
    simulate_release(&run);
    simulate_tensor_destroy(from);
    simulate_tensor_destroy(wanted);
    simulate_tensor_destroy(to);
    reshard_plan_release(adjoint);
    planning_free(&made);
    return right;
}

static void test_exec__adjoints(void **state)
{
    (void)state;
    harness_run("live adjoint of a random pair", 150, generate_pair, check_adjoint);
}

/* ---- all permutations of owners -------------------------------------------------------------- */

static void next_permutation(int32_t count, int32_t *p)
{
    int32_t i = count - 2;
    while (i >= 0 && p[i] > p[i + 1])
        i--;
    if (i < 0)
        return;
    int32_t k = count - 1;
    while (p[k] < p[i])
        k--;
    int32_t kept = p[i];
    p[i] = p[k];
    p[k] = kept;
    for (int32_t low = i + 1, high = count - 1; low < high; low++, high--) {
        kept = p[low];
        p[low] = p[high];
        p[high] = kept;
    }
}

static void test_exec__every_permutation_of_owners(void **state)
{
    (void)state;
    int32_t owners[5] = {0, 1, 2, 3, 4};
    for (int i = 0; i < 120; i++, next_permutation(5, owners)) {
        harness_case given = {.seed = (uint64_t)i, .spec_count = 2};
        planning_set_shape(&given, 2, (const int64_t[]){13, 3});
        planning_set_chunks(&given.specs[0], 5, NULL, 0);
        planning_set_chunks(&given.specs[1], 5, owners, 0);
        harness_check("owners change", &given, check_pair);
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */

static reshard_layout *make_layout(const char *spec, int32_t ndim, const int64_t *shape)
{
    reshard_layout *layout = NULL;
    assert_int_equal(reshard_layout_parse(NULL, spec, ndim, shape, &layout), RESHARD_OK);
    return layout;
}

typedef struct fixture {
    reshard_layout *source, *target;
    reshard_plan *plan;
    simulate_tensor *from, *to;
    live l;
} fixture;

static void fixture_init(fixture *f, const char *from, const char *to, int messages)
{
    const int64_t shape[] = {12, 10};
    f->source = make_layout(from, 2, shape);
    f->target = make_layout(to, 2, shape);
    reshard_plan_options options = {.size = sizeof options,
                                    .staging_bytes_max = RESHARD_STAGING_BYTES_MIN};
    assert_int_equal(
        reshard_plan_create_simple(NULL, f->source, f->target, RESHARD_F64, &options, &f->plan),
        RESHARD_OK);
    f->from = simulate_tensor_create(f->source);
    f->to = simulate_tensor_create(f->target);
    fill_with_integers(f->from, 1);
    f->l = (live){.plan = f->plan, .from = f->from, .to = f->to, .runs = 2};
    f->l.options = (reshard_exec_options){.size = sizeof f->l.options, .messages_only = messages};
}

static void fixture_release(fixture *f)
{
    simulate_tensor_destroy(f->from);
    simulate_tensor_destroy(f->to);
    reshard_plan_release(f->plan);
    reshard_layout_release(f->source);
    reshard_layout_release(f->target);
}

/* Every message fails in turn, then every call of a rank is its last: all end, with an error. */
static void test_exec__injected_faults(void **state)
{
    (void)state;
    for (int messages = 0; messages < 2; messages++) {
        fixture f;
        fixture_init(&f, "4: P(sum)", "4: R", messages);
        reshard_status status;
        int64_t n = 1;
        do {
            reshard_sim_options sim = {
                .size = sizeof sim, .seed = (uint64_t)n, .mapped = !messages, .fail_message = n};
            status = reshard_group_run_sim(NULL, 4, &sim, run_rank, &f.l);
            assert_true(status == RESHARD_OK || status == RESHARD_ERR_GROUP_BROKEN);
            n += 1 + n / 16;
        } while (status != RESHARD_OK);
        assert_true(n > 50);
        n = 1;
        do {
            reshard_sim_options sim = {.size = sizeof sim,
                                       .seed = (uint64_t)n,
                                       .mapped = !messages,
                                       .stop_rank = (int32_t)(n % 4),
                                       .stop_after = n};
            status = reshard_group_run_sim(NULL, 4, &sim, run_rank, &f.l);
            assert_true(status == RESHARD_OK || status == RESHARD_ERR_GROUP_BROKEN);
            n += 1 + n / 16;
        } while (status != RESHARD_OK);
        assert_true(n > 50);
        fixture_release(&f);
    }
}

/* ---- runs allocate nothing ------------------------------------------------------------------- */

static void *count_allocate(void *user, size_t bytes)
{
    (void)atomic_fetch_add((atomic_int *)user, 1);
    return malloc(bytes);
}

static void *count_resize(void *user, void *memory, size_t bytes_old, size_t bytes_new)
{
    (void)bytes_old;
    (void)atomic_fetch_add((atomic_int *)user, 1);
    return realloc(memory, bytes_new);
}

static void just_free(void *user, void *memory, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(memory);
}

typedef struct counted {
    live l;
    reshard_context *context;
    atomic_int *calls;
    int before[4], after[4];
} counted;

static reshard_status run_counted(void *user, reshard_group *group)
{
    counted *c = user;
    int32_t rank = reshard_group_rank(group);
    void *sources[4] = {NULL}, *targets[4] = {NULL};
    (void)list_buffers(c->l.from, rank, sources);
    (void)list_buffers(c->l.to, rank, targets);
    reshard_exec *exec = NULL;
    reshard_status status = reshard_exec_create(c->context, c->l.plan, group, &c->l.options, &exec);
    if (status == RESHARD_OK)
        status = reshard_group_barrier(group);
    c->before[rank] = atomic_load(c->calls);
    for (int i = 0; i < 5 && status == RESHARD_OK; i++) {
        status = reshard_exec_start(exec, (const void *const *)sources, targets);
        if (status == RESHARD_OK)
            status = reshard_exec_wait(exec);
    }
    if (status == RESHARD_OK)
        status = reshard_group_barrier(group);
    c->after[rank] = atomic_load(c->calls);
    if (status == RESHARD_OK)
        status = reshard_group_barrier(group); /* nobody destroys before all have looked */
    reshard_exec_destroy(exec);
    return status;
}

static void test_exec__runs_allocate_nothing(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"4: S(0)", "4: S(1)"}, {"4: P(sum)", "4: R"}, {"4: S(0)", "4: S(1/1)"}};
    for (int i = 0; i < 6; i++) {
        fixture f;
        fixture_init(&f, pairs[i / 2][0], pairs[i / 2][1], i % 2);
        atomic_int calls = 0;
        reshard_allocator allocator = {count_allocate, count_resize, just_free, &calls};
        reshard_context_options options = {.size = sizeof options, .allocator = &allocator};
        counted c = {.l = f.l, .calls = &calls};
        assert_int_equal(reshard_context_create(&options, &c.context), RESHARD_OK);
        assert_int_equal(reshard_group_run(NULL, 4, run_counted, &c), RESHARD_OK);
        for (int r = 0; r < 4; r++) {
            assert_true(c.before[r] > 10);
            assert_int_equal(c.before[r], c.after[r]);
        }
        assert_int_equal(reshard_context_bytes(c.context), 0);
        reshard_context_destroy(c.context);
        fixture_release(&f);
    }
}

/* ---- memory that runs out -------------------------------------------------------------------- */

typedef struct starved {
    live l;
    reshard_context *context; /* of rank 1 */
} starved;

static reshard_status run_starved(void *user, reshard_group *group)
{
    const starved *s = user;
    int32_t rank = reshard_group_rank(group);
    void *sources[4] = {NULL}, *targets[4] = {NULL};
    (void)list_buffers(s->l.from, rank, sources);
    (void)list_buffers(s->l.to, rank, targets);
    reshard_exec *exec = NULL;
    reshard_status status =
        reshard_exec_create(rank == 1 ? s->context : NULL, s->l.plan, group, &s->l.options, &exec);
    if (status == RESHARD_OK)
        status = reshard_exec_start(exec, (const void *const *)sources, targets);
    if (status == RESHARD_OK)
        status = reshard_exec_wait(exec);
    reshard_exec_destroy(exec);
    return status;
}

static reshard_status attempt_starved(reshard_context *context, void *user)
{
    starved *s = user;
    s->context = context;
    return reshard_group_run(NULL, 4, run_starved, s);
}

/* Every allocation of one rank fails in turn: all ranks are told, nothing leaks, nobody hangs. */
static void test_exec__memory_runs_out(void **state)
{
    (void)state;
    for (int messages = 0; messages < 2; messages++) {
        fixture f;
        fixture_init(&f, "4: P(sum)", "4: R", messages);
        starved s = {.l = f.l};
        words said = {0};
        if (!context_fail_each(attempt_starved, &s, &said))
            fail_msg("%s", said.text);
        fixture_release(&f);
    }
}

/* ---- casts on the way ------------------------------------------------------------------------ */

typedef struct casting {
    reshard_plan *plan;
    int messages, narrows;
    int wrong[3];
} casting;

/* bf16 is the upper half of f32; small whole numbers are the same in both. */
static reshard_status run_casting(void *user, reshard_group *group)
{
    casting *c = user;
    int32_t rank = reshard_group_rank(group);
    float wide[24] = {0};
    uint16_t narrow[24] = {0};
    for (int i = 0; i < 24; i++) { /* rows: two of six each, of 6x12 */
        wide[i] = (float)(rank * 24 + i);
        uint32_t bits;
        memcpy(&bits, &wide[i], sizeof bits);
        narrow[i] = (uint16_t)(bits >> 16);
    }
    float wide_target[24] = {0};
    uint16_t narrow_target[24] = {0};
    const void *source = c->narrows ? (const void *)wide : (const void *)narrow;
    void *target = c->narrows ? (void *)narrow_target : (void *)wide_target;
    reshard_exec_options options = {.size = sizeof options, .messages_only = c->messages};
    reshard_exec *exec = NULL;
    reshard_status status = reshard_exec_create(NULL, c->plan, group, &options, &exec);
    if (status == RESHARD_OK)
        status = reshard_exec_start(exec, &source, &target);
    if (status == RESHARD_OK)
        status = reshard_exec_wait(exec);
    reshard_exec_destroy(exec);
    for (int i = 0; i < 24; i++) { /* columns: four of twelve each */
        uint32_t bits = (uint32_t)narrow_target[i] << 16;
        float found = wide_target[i];
        if (c->narrows)
            memcpy(&found, &bits, sizeof found);
        c->wrong[rank] += (int)found != i / 4 * 12 + rank * 4 + i % 4;
    }
    return status;
}

static void test_exec__casts(void **state)
{
    (void)state;
    const int64_t shape[] = {6, 12};
    reshard_layout *rows = make_layout("3: S(0)", 2, shape),
                   *columns = make_layout("3: S(1)", 2, shape);
    for (int i = 0; i < 4; i++) {
        casting c = {.messages = i / 2, .narrows = i % 2};
        reshard_dtype dtypes[2] = {RESHARD_BF16, RESHARD_F32};
        reshard_plan_tensor from = {"from", rows, dtypes[c.narrows]},
                            to = {"to", columns, dtypes[!c.narrows]};
        reshard_link link = reshard_link_whole(0, 0);
        assert_int_equal(reshard_plan_create(NULL, 1, &from, 1, &to, 1, &link, NULL, &c.plan),
                         RESHARD_OK);
        assert_int_equal(reshard_group_run(NULL, 3, run_casting, &c), RESHARD_OK);
        for (int r = 0; r < 3; r++)
            assert_int_equal(c.wrong[r], 0);
        reshard_plan_release(c.plan);
    }
    reshard_layout_release(rows);
    reshard_layout_release(columns);
}

typedef struct odd_plan {
    reshard_plan *usual, *other;
    reshard_status seen[4];
    char text[4][160];
} odd_plan;

static reshard_status create_with_own_plan(void *user, reshard_group *group)
{
    odd_plan *o = user;
    int32_t rank = reshard_group_rank(group);
    reshard_exec *exec = NULL;
    o->seen[rank] = reshard_exec_create(NULL, rank == 2 ? o->other : o->usual, group, NULL, &exec);
    (void)strncpy(o->text[rank], reshard_error_text(), sizeof o->text[rank] - 1);
    reshard_exec_destroy(exec);
    return RESHARD_OK;
}

static void test_exec__odd_rank_is_named(void **state)
{
    (void)state;
    fixture f, g;
    fixture_init(&f, "4: S(0)", "4: S(1)", 0);
    fixture_init(&g, "4: S(0)", "4: S(1~)", 0);
    odd_plan o = {.usual = f.plan, .other = g.plan};
    assert_int_equal(reshard_group_run(NULL, 4, create_with_own_plan, &o), RESHARD_OK);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(o.seen[r], RESHARD_ERR_MISMATCH);
        assert_non_null(strstr(o.text[r], "rank 2"));
    }
    fixture_release(&f);
    fixture_release(&g);
}

static void test_exec__group_too_small(void **state)
{
    (void)state;
    fixture f;
    fixture_init(&f, "4: S(0)", "4: S(1)", 0);
    assert_int_equal(reshard_group_run(NULL, 3, run_rank, &f.l), RESHARD_ERR_RANGE);
    assert_non_null(strstr(reshard_error_text(), "rank 3"));
    fixture_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exec__casts),
        cmocka_unit_test(test_exec__random_pairs),
        cmocka_unit_test(test_exec__adjoints),
        cmocka_unit_test(test_exec__injected_faults),
        cmocka_unit_test(test_exec__odd_rank_is_named),
        cmocka_unit_test(test_exec__runs_allocate_nothing),
        cmocka_unit_test(test_exec__memory_runs_out),
        cmocka_unit_test(test_exec__group_too_small),
        cmocka_unit_test(test_exec__every_permutation_of_owners),
    };
    return cmocka_run_group_tests_name("exec_property", tests, NULL, NULL);
}
