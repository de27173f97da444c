/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_verify.c - digests of both ends of a run: fine runs pass, whatever the layouts; a transport
 * that moves nothing does not, nor does a single element that is wrong, in another place, or other
 * in one copy than in the rest.
 */
#include "exec/exec.h"
#include "exec/verify.h"
#include "plan/plan.h"
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/live.h"
#include "tests/support/ranks.h"
#include "tests/support/values.h"
#include "tests/support/ways.h"

#include <reshard/reshard.h>

#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 160 };

/* ---- runs with a digest ---------------------------------------------------------------------- */

/* What happens to the targets of one rank between the run and the look at them. */
typedef void meddle_fn(void *user, int32_t rank, void *const *targets);

static reshard_status finish(reshard_exec *exec, rs_verify *verify)
{
    for (;;) {
        bool done = false;
        reshard_status status = rs_verify_progress(verify, &done);
        if (status != RESHARD_OK || done)
            return status;
        rs_group_idle(exec->group);
    }
}

/* As users have it: the exec verifies itself. */
static reshard_status run_exec(reshard_plan *plan, reshard_group *group, bool messages,
                               const void *const *sources, void *const *targets)
{
    /* One rank asking is enough. */
    reshard_exec_options options = {.size = sizeof options,
                                    .messages_only = messages,
                                    .verify = reshard_group_rank(group) == 0};
    reshard_exec *exec = NULL;
    reshard_status status = reshard_exec_create(NULL, plan, group, &options, &exec);
    for (int i = 0; i < 2 && status == RESHARD_OK; i++) {
        status = reshard_exec_start(exec, sources, targets);
        if (status == RESHARD_OK)
            status = reshard_exec_wait(exec);
    }
    reshard_exec_destroy(exec);
    return status;
}

/* In steps, so that targets can be meddled with and memory can run out in between. */
static reshard_status run_verified(reshard_context *context, reshard_plan *plan,
                                   reshard_group *group, bool messages, const void *const *sources,
                                   void *const *targets, meddle_fn *meddle, void *user)
{
    if (context == NULL && meddle == NULL)
        return run_exec(plan, group, messages, sources, targets);
    reshard_exec_options options = {.size = sizeof options, .messages_only = messages};
    reshard_exec *exec = NULL;
    rs_verify *verify = NULL;
    reshard_status status = reshard_exec_create(NULL, plan, group, &options, &exec);
    if (status != RESHARD_OK)
        return status;
    exec->context = context; /* of what the digest needs alone */
    status = reshard_group_agree(group, rs_verify_create(exec, &verify));
    /* Twice: nothing is left of a run. */
    for (int i = 0; i < 2 && status == RESHARD_OK; i++) {
        status = reshard_exec_start(exec, sources, targets);
        if (status == RESHARD_OK)
            rs_verify_sources(verify);
        if (status == RESHARD_OK)
            status = reshard_exec_wait(exec);
        if (meddle != NULL)
            meddle(user, reshard_group_rank(group), targets);
        if (status == RESHARD_OK)
            status = rs_verify_targets(verify);
        if (status == RESHARD_OK)
            status = finish(exec, verify);
    }
    rs_verify_destroy(verify);
    exec->context = NULL;
    reshard_exec_destroy(exec);
    return status;
}

/* ---- random layouts -------------------------------------------------------------------------- */

typedef struct verified {
    reshard_plan *plan;
    const simulate_tensor *from, *to;
    bool messages, meddles;
    uint64_t seed;
} verified;

/* One element of one buffer becomes another. */
static void change_one(void *user, int32_t rank, void *const *targets)
{
    const verified *l = user;
    (void)targets;
    int64_t which = (int64_t)(l->seed % (uint64_t)l->to->count);
    for (int64_t i = 0; i < l->to->count; i++, which = (which + 1) % l->to->count) {
        const simulate_buffer *buffer = &l->to->buffers[which];
        if (buffer->count == 0)
            continue;
        if (buffer->rank == rank) {
            double *value = &buffer->values[l->seed / 7 % (uint64_t)buffer->count];
            *value = *value == 123456 ? 1 : 123456;
        }
        return;
    }
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    verified *l = user;
    int32_t rank = reshard_group_rank(group);
    void **sources = make(l->from->count + 1, sizeof *sources);
    void **targets = make(l->to->count + 1, sizeof *targets);
    (void)live_list_buffers(l->from, rank, sources);
    (void)live_list_buffers(l->to, rank, targets);
    reshard_status status =
        run_verified(NULL, l->plan, group, l->messages, (const void *const *)sources, targets,
                     l->meddles ? change_one : NULL, l);
    free(sources);
    free(targets);
    return status;
}

static int64_t tensor_volume(const simulate_tensor *tensor)
{
    int64_t volume = 0;
    for (int64_t i = 0; i < tensor->count; i++)
        volume += tensor->buffers[i].count;
    return volume;
}

static bool check_case(const harness_case *given, const planning *made, int how, words *said)
{
    simulate_tensor *from = simulate_tensor_create(made->source_layout);
    simulate_tensor *to = simulate_tensor_create(reshard_plan_target_layout(made->plan, 0));
    int32_t size = rs_plan_forward(made->plan)->rank_count;
    bool right = values_fill(made->source, given->seed, from, said);
    for (int meddles = 0; meddles < 2 && right; meddles++) {
        verified l = {.plan = made->plan,
                      .from = from,
                      .to = to,
                      .messages = how == 1,
                      .meddles = meddles != 0,
                      .seed = given->seed};
        reshard_status status = run_way(&ways[how], size, run_rank, &l);
        bool partial = planning_is_partial(made->source) || planning_is_partial(made->target);
        bool found = meddles && !partial && tensor_volume(to) != 0;
        if (partial && meddles)
            continue; /* may be found, when it is one copy of several */
        if (status != (found ? RESHARD_ERR_CHECK : RESHARD_OK))
            right = words_say(said, "%s, %s: %s, \"%s\"", ways[how].name,
                              meddles ? "one element changed" : "a fine run",
                              reshard_status_name(status), reshard_error_text());
    }
    simulate_tensor_destroy(from);
    simulate_tensor_destroy(to);
    return right;
}

static void generate_pair(draw_state *draw, harness_case *made)
{
    made->spec_count = 2;
    generate_shape(draw, 200, &made->ndim, made->shape);
    for (int i = 0; i < 2; i++)
        generate_spec(draw, GENERATE_LISTED | GENERATE_PARTIAL, made->ndim, made->shape,
                      &made->specs[i]);
}

static bool check_pair(const harness_case *given, words *said)
{
    planning made;
    planning_state state = planning_init(&made, given, RESHARD_F64, NULL, said);
    if (state != PLANNING_READY)
        return state == PLANNING_SKIPPED;
    bool right = check_case(given, &made, (int)(given->seed % WAYS), said);
    planning_free(&made);
    return right;
}

static void test_verify__random_pairs(void **state)
{
    (void)state;
    harness_run("verified run of a random pair", 60, generate_pair, check_pair);
}

/* ---- links, casts, gaps ---------------------------------------------------------------------- */

typedef enum meddling {
    NOTHING,
    ONE_BIT,       /* of one element */
    TWO_EXCHANGED, /* elements of one rank */
    IN_A_COLUMN,   /* two elements of other rows exchanged */
    ONE_COPY,      /* of several */
    A_GAP,
    MEDDLINGS
} meddling;

enum { ROWS = 6, COLUMNS = 4, PADDED = 8 };

/* 6x4 of f32 on 3 ranks, transposed to f16 in 4x8 of which two columns stay empty, on a 2x2 mesh
 * with two copies. */
typedef struct fixture {
    reshard_plan *plan;
    meddling what;
    bool messages;
    bool source_copies; /* sources are copies too, and differ */
    reshard_context *context;
    reshard_status status[4];
    char text[4][TEXT_MAX];
} fixture;

static reshard_layout *make_layout(const char *spec, int64_t rows, int64_t columns)
{
    reshard_layout *layout = NULL;
    if (reshard_layout_parse(NULL, spec, 2, (int64_t[]){rows, columns}, &layout) != RESHARD_OK)
        abort();
    return layout;
}

static reshard_plan *make_plan(const char *from, const char *to)
{
    reshard_plan *plan = NULL;
    reshard_plan_tensor source = {.layout = make_layout(from, ROWS, COLUMNS), .dtype = RESHARD_F32};
    reshard_plan_tensor target = {.layout = make_layout(to, COLUMNS, PADDED), .dtype = RESHARD_F16};
    reshard_link link = reshard_link_whole(0, 0);
    link.target_box = (reshard_box){2, {0, 1}, {COLUMNS, ROWS}};
    link.factor_count = 2;
    link.factors[0] = ROWS;
    link.factors[1] = COLUMNS;
    link.order[0] = 1;
    link.order[1] = 0;
    reshard_plan_options options = {.size = sizeof options, .zero_fill = 1};
    if (reshard_plan_create(NULL, 1, &source, 1, &target, 1, &link, &options, &plan) != RESHARD_OK)
        abort();
    reshard_layout_release(source.layout);
    reshard_layout_release(target.layout);
    return plan;
}

/* Rank 2 has rows 2 and 3 of the target: 2x8, of which columns 0 and 7 are gaps. */
static void meddle_halves(void *user, int32_t rank, void *const *targets)
{
    const fixture *f = user;
    uint16_t *halves = targets[0];
    uint16_t kept;
    if (rank != 2)
        return;
    switch (f->what) {
    case ONE_BIT:
        halves[PADDED + 3] ^= 1;
        break;
    case TWO_EXCHANGED:
        kept = halves[2];
        halves[2] = halves[PADDED + 5];
        halves[PADDED + 5] = kept;
        break;
    case IN_A_COLUMN:
        kept = halves[2];
        halves[2] = halves[PADDED + 2];
        halves[PADDED + 2] = kept;
        break;
    case ONE_COPY:
        halves[PADDED + 6] = 0x7c00;
        break;
    case A_GAP:
        halves[PADDED - 1] = 1;
        break;
    default:
        break;
    }
}

static reshard_status run_fixture(void *user, reshard_group *group)
{
    fixture *f = user;
    int32_t rank = reshard_group_rank(group);
    float source[ROWS * COLUMNS];
    uint16_t target[COLUMNS * PADDED];
    memset(target, 0xee, sizeof target);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        source[i] = (float)(f->source_copies ? i : 100 * rank + i) / 3;
    if (f->source_copies && rank == 1)
        source[7] = -1;
    const void *sources[] = {source};
    void *targets[] = {target};
    f->status[rank] = run_verified(rank == 3 ? f->context : NULL, f->plan, group, f->messages,
                                   sources, targets, meddle_halves, f);
    (void)snprintf(f->text[rank], TEXT_MAX, "%s", reshard_error_text());
    return RESHARD_OK;
}

static void check_all(const way *w, const fixture *f, reshard_status status, const char *told)
{
    for (int rank = 0; rank < 4; rank++) {
        if (f->status[rank] != status ||
            (status != RESHARD_OK && strstr(f->text[rank], told) == NULL))
            fail_msg("%s, meddling %d: rank %d got %s, \"%s\"", w->name, (int)f->what, rank,
                     reshard_status_name(f->status[rank]), f->text[rank]);
    }
}

static void test_verify__meddling(void **state)
{
    (void)state;
    static const char *const words_of[MEDDLINGS] = {"",
                                                    "do not hold",
                                                    "do not hold",
                                                    "do not hold",
                                                    "copies of a target differ",
                                                    "1 elements that no link"};
    for (int w = 0; w < WAYS; w++) {
        for (int m = 0; m < MEDDLINGS; m++) {
            /* Copy 0 is what the digest compares with the source: rank 2 has it, or not. */
            const char *to = m == ONE_COPY ? "2,2: R, S(0)" : "2,2: S(0), R";
            fixture f = {.what = (meddling)m, .messages = w == 1};
            f.plan = make_plan("3: S(0)", to);
            assert_int_equal(run_way(&ways[w], 4, run_fixture, &f), RESHARD_OK);
            check_all(&ways[w], &f, m == NOTHING ? RESHARD_OK : RESHARD_ERR_CHECK, words_of[m]);
            reshard_plan_release(f.plan);
        }
    }
}

static void test_verify__source_copies(void **state)
{
    (void)state;
    fixture f = {.source_copies = true, .plan = make_plan("3: R", "4: S(0)")};
    assert_int_equal(run_way(&ways[0], 4, run_fixture, &f), RESHARD_OK);
    check_all(&ways[0], &f, RESHARD_ERR_CHECK, "copies of a source differ");
    reshard_plan_release(f.plan);
}

static reshard_status attempt_short(reshard_context *context, void *user)
{
    fixture *f = user;
    f->context = context;
    reshard_status status = run_way(&ways[1], 4, run_fixture, f);
    return status == RESHARD_OK ? f->status[0] : status;
}

static void test_verify__no_memory(void **state)
{
    (void)state;
    fixture f = {.messages = true, .plan = make_plan("3: S(0)", "4: S(0)")};
    words said = {0};
    if (!context_fail_each(attempt_short, &f, &said))
        fail_msg("%s", said.text);
    reshard_plan_release(f.plan);
}

/* Two tensors of one shape that arrive in each other's place. */
static void exchange_tensors(void *user, int32_t rank, void *const *targets)
{
    double *a = targets[0], *b = targets[1], kept[4];
    (void)user;
    if (rank != 1)
        return;
    memcpy(kept, a, sizeof kept);
    memcpy(a, b, sizeof kept);
    memcpy(b, kept, sizeof kept);
}

static reshard_status run_two_links(void *user, reshard_group *group)
{
    reshard_plan *plan = user;
    double from[2][4], to[2][4];
    for (int i = 0; i < 8; i++)
        from[i / 4][i % 4] = 10 * reshard_group_rank(group) + i;
    const void *sources[] = {from[0], from[1]};
    void *targets[] = {to[0], to[1]};
    reshard_status status =
        run_verified(NULL, plan, group, false, sources, targets, exchange_tensors, NULL);
    CHECK(status == RESHARD_ERR_CHECK && strstr(reshard_error_text(), "do not hold") != NULL);
    return RESHARD_OK;
}

static void test_verify__links_exchanged(void **state)
{
    (void)state;
    reshard_plan *plan = NULL;
    reshard_plan_tensor sources[2], targets[2];
    reshard_link links[] = {reshard_link_whole(0, 0), reshard_link_whole(1, 1)};
    for (int i = 0; i < 2; i++) {
        sources[i] =
            (reshard_plan_tensor){.layout = make_layout("2: S(0)", 4, 2), .dtype = RESHARD_F64};
        targets[i] =
            (reshard_plan_tensor){.layout = make_layout("2: S(1)", 4, 2), .dtype = RESHARD_F64};
    }
    assert_int_equal(reshard_plan_create(NULL, 2, sources, 2, targets, 2, links, NULL, &plan),
                     RESHARD_OK);
    run_ranks(2, run_two_links, plan);
    reshard_plan_release(plan);
    for (int i = 0; i < 2; i++) {
        reshard_layout_release(sources[i].layout);
        reshard_layout_release(targets[i].layout);
    }
}

static void change_imaginary(void *user, int32_t rank, void *const *targets)
{
    (void)user;
    if (rank == 1)
        ((double *)targets[0])[3] += 1;
}

/* Elements of 16 bytes count with both halves. */
static reshard_status run_complex(void *user, reshard_group *group)
{
    reshard_plan *plan = user;
    double from[8], to[8];
    for (int i = 0; i < 8; i++)
        from[i] = 10 * reshard_group_rank(group) + i;
    const void *sources[] = {from};
    void *targets[] = {to};
    CHECK(run_verified(NULL, plan, group, false, sources, targets, NULL, NULL) == RESHARD_OK);
    reshard_status status =
        run_verified(NULL, plan, group, false, sources, targets, change_imaginary, NULL);
    CHECK(status == RESHARD_ERR_CHECK && strstr(reshard_error_text(), "do not hold") != NULL);
    return RESHARD_OK;
}

static void test_verify__complex(void **state)
{
    (void)state;
    reshard_plan *plan = NULL;
    reshard_layout *source = make_layout("2: S(0)", 4, 2), *target = make_layout("2: S(1)", 4, 2);
    assert_int_equal(reshard_plan_create_simple(NULL, source, target, RESHARD_C128, NULL, &plan),
                     RESHARD_OK);
    run_ranks(2, run_complex, plan);
    reshard_plan_release(plan);
    reshard_layout_release(source);
    reshard_layout_release(target);
}

/* A run that ends wrong while its rank waits for something else: the next start tells of it,
 * once. */
static reshard_status run_unheard(void *user, reshard_group *group)
{
    reshard_plan *plan = user;
    reshard_exec_options options = {.size = sizeof options, .verify = 1};
    reshard_exec *exec = NULL;
    double from[8], to[4];
    for (int i = 0; i < 8; i++)
        from[i] = reshard_group_rank(group); /* copies that differ */
    const void *sources[] = {from};
    void *targets[] = {to};
    CHECK(reshard_exec_create(NULL, plan, group, &options, &exec) == RESHARD_OK);
    CHECK(reshard_exec_start(exec, sources, targets) == RESHARD_OK);
    while (exec->state == RS_EXEC_RUNNING)
        rs_exec_progress(&exec->task);
    CHECK(exec->state == RS_EXEC_WRONG);
    CHECK(reshard_exec_start(exec, sources, targets) == RESHARD_ERR_CHECK);
    CHECK(strstr(reshard_error_text(), "copies of a source differ") != NULL);
    CHECK(reshard_exec_start(exec, sources, targets) == RESHARD_OK);
    CHECK(reshard_exec_wait(exec) == RESHARD_ERR_CHECK);
    reshard_exec_destroy(exec);
    return RESHARD_OK;
}

static void test_verify__unheard(void **state)
{
    (void)state;
    reshard_plan *plan = NULL;
    reshard_layout *source = make_layout("2: R", 4, 2), *target = make_layout("2: S(0)", 4, 2);
    assert_int_equal(reshard_plan_create_simple(NULL, source, target, RESHARD_F64, NULL, &plan),
                     RESHARD_OK);
    run_ranks(2, run_unheard, plan);
    reshard_plan_release(plan);
    reshard_layout_release(source);
    reshard_layout_release(target);
}

/* ---- a transport that moves nothing ---------------------------------------------------------- */

enum { SWALLOWED_MAX = 1 << 16 };

typedef struct swallower {
    reshard_endpoint under;
    int swallows;
    size_t drained; /* each message has a place of its own: peers write at the same time */
    char drain[SWALLOWED_MAX];
} swallower;

static reshard_status swallow_send(void *state, int32_t peer, int32_t channel, const void *bytes,
                                   size_t count, reshard_request *request)
{
    swallower *s = state;
    return s->under.send(s->under.state, peer, channel, bytes, count, request);
}

/* What execs send as data arrives, but not where it was to go. */
static reshard_status swallow_receive(void *state, int32_t peer, int32_t channel, void *bytes,
                                      size_t count, reshard_request *request)
{
    swallower *s = state;
    bool data = s->swallows && channel % RS_CHANNEL_COUNT == RS_CHANNEL_DATA;
    if (!data)
        return s->under.receive(s->under.state, peer, channel, bytes, count, request);
    if (count > SWALLOWED_MAX - s->drained)
        return reshard_error_set(RESHARD_ERR_CHECK, "the drain is too small");
    memset(bytes, 0x55, count); /* memory that was used before may hold what is to come */
    char *place = s->drain + s->drained;
    s->drained += count;
    return s->under.receive(s->under.state, peer, channel, place, count, request);
}

static reshard_status swallow_test(void *state, reshard_request *request, int *out_done)
{
    swallower *s = state;
    return s->under.test(s->under.state, request, out_done);
}

static void swallow_idle(void *state)
{
    swallower *s = state;
    s->under.idle(s->under.state);
}

static void swallow_fail(void *state, const char *why)
{
    swallower *s = state;
    (s->under.fail)(s->under.state, why); /* cmocka has a macro of that name */
}

static void swallow_quiesce(void *state)
{
    swallower *s = state;
    s->under.quiesce(s->under.state);
}

static reshard_status run_swallowing(void *user, reshard_group *group)
{
    fixture *f = user;
    swallower *s = make(1, sizeof *s);
    s->under = group->root->endpoint;
    s->swallows = f->what != NOTHING;
    reshard_endpoint endpoint = {.size = sizeof endpoint,
                                 .name = "swallow",
                                 .rank = reshard_group_rank(group),
                                 .rank_count = reshard_group_size(group),
                                 .message_bytes_max = SWALLOWED_MAX,
                                 .state = s,
                                 .send = swallow_send,
                                 .receive = swallow_receive,
                                 .test = swallow_test,
                                 .idle = swallow_idle,
                                 .fail = swallow_fail,
                                 .quiesce = swallow_quiesce};
    reshard_group *over = NULL;
    reshard_status status = reshard_group_create(NULL, &endpoint, &over);
    if (status == RESHARD_OK)
        status = run_fixture(f, over);
    reshard_group_release(over);
    free(s);
    return status;
}

static void test_verify__nothing_moves(void **state)
{
    (void)state;
    /* In the last one rank 0 keeps the copy that is compared with the source. */
    static const char *const cases[][3] = {{"3: S(0)", "2,2: S(0), R", "do not hold"},
                                           {"4: S(1)", "4: S(1)", "do not hold"},
                                           {"1: R", "4: R", "copies of a target differ"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int swallows = 0; swallows < 2; swallows++) {
            fixture f = {.messages = true, .what = swallows ? MEDDLINGS : NOTHING};
            f.plan = make_plan(cases[i][0], cases[i][1]);
            assert_int_equal(reshard_group_run(NULL, 4, run_swallowing, &f), RESHARD_OK);
            check_all(&ways[0], &f, swallows ? RESHARD_ERR_CHECK : RESHARD_OK, cases[i][2]);
            reshard_plan_release(f.plan);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verify__random_pairs),
        cmocka_unit_test(test_verify__meddling),
        cmocka_unit_test(test_verify__source_copies),
        cmocka_unit_test(test_verify__no_memory),
        cmocka_unit_test(test_verify__links_exchanged),
        cmocka_unit_test(test_verify__complex),
        cmocka_unit_test(test_verify__unheard),
        cmocka_unit_test(test_verify__nothing_moves),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
