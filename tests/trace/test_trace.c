/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_trace.c - what is recorded, looked at in memory: bytes and arrows of execs in every way that
 * bytes take, loads and saves, clocks that are skewed and drift, buffers that are full, memory that
 * runs out. tests/cli/test_trace.py reads the files.
 */
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/live.h"
#include "tests/support/ranks.h"

#include "system/clock.h"
#include "trace/trace.h"

#include <reshard/checkpoint.h>
#include <reshard/checkpoint_live.h>
#include <reshard/predict.h>
#include <reshard/sim.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/reshard-test-XXXXXX";

static const char *path_of(const char *name, char *buffer, size_t capacity)
{
    (void)snprintf(buffer, capacity, "%s/%s", folder, name);
    return buffer;
}

static reshard_trace *make_trace(int64_t events)
{
    char path[64];
    reshard_trace *trace = NULL;
    reshard_trace_options options = {.size = sizeof options, .thread_events_max = events};
    MUST(reshard_trace_create(NULL, NULL, path_of("t.json", path, sizeof path), &options, &trace));
    return trace;
}

/* ---- what was recorded ----------------------------------------------------------------------- */

typedef struct found {
    uint64_t bytes[RS_TRACE_KIND_COUNT], kept[RS_TRACE_KIND_COUNT];
    int64_t counts[RS_TRACE_KIND_COUNT];
    uint64_t begun, ended; /* sums of the numbers of arrows */
} found;

static found look_at(const reshard_trace *trace)
{
    found f = {.begun = 0};
    for (rs_trace_track *t = trace->tracks; t != NULL; t = t->next) {
        for (int64_t i = 0; i < atomic_load(&t->claimed) && i < t->capacity; i++) {
            const rs_trace_event *e = &t->events[i];
            f.counts[e->kind]++;
            if (e->kind == RS_TRACE_FLOW_BEGIN) {
                f.begun += e->flow;
            } else if (e->kind == RS_TRACE_FLOW_END) {
                f.ended += e->flow;
            } else {
                f.bytes[e->kind] += e->bytes;
                f.kept[e->kind] += e->kept;
            }
        }
    }
    return f;
}

/* ---- execs ----------------------------------------------------------------------------------- */

enum { RANKS = 4 };

static const char *const pairs[][2] = {
    {"4: S(0)", "4: S(1)"},
    {"4: P(sum)", "4: R"},
    {"4: S(1)", "2,2: R, S(0~)"},
    {"4: A(2)", "4: R"},
};

static void check_exec(const live_fixture *f, const reshard_trace *trace)
{
    found seen = look_at(trace);
    reshard_plan_stats stats = {.size = sizeof stats};
    assert_int_equal(reshard_plan_get_stats(f->plan, &stats, NULL), RESHARD_OK);
    uint64_t moved =
        seen.bytes[RS_TRACE_COPY] + seen.bytes[RS_TRACE_RECEIVE] + seen.bytes[RS_TRACE_UNPACK];
    assert_int_equal(moved, stats.bytes_moved * (uint64_t)f->l.runs);
    assert_int_equal(seen.bytes[RS_TRACE_SEND],
                     seen.bytes[RS_TRACE_RECEIVE] + seen.bytes[RS_TRACE_UNPACK]);
    assert_true(seen.counts[RS_TRACE_FLOW_BEGIN] > 0);
    assert_int_equal(seen.counts[RS_TRACE_FLOW_BEGIN], seen.counts[RS_TRACE_FLOW_END]);
    assert_int_equal(seen.begun, seen.ended);
    assert_int_equal(seen.counts[RS_TRACE_PLAN], RANKS);
    assert_int_equal(reshard_trace_dropped(trace), 0);
}

/* Threads and simulated ranks; memory that is seen, is not, or is of some ranks on some nodes. */
static void test_trace__execs(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * (int)(sizeof pairs / sizeof *pairs); i++) {
        live_fixture f;
        reshard_sim_options sim = {.size = sizeof sim, .seed = (uint64_t)i + 1};
        reshard_trace *trace = make_trace(0);
        int way = i % 4;
        live_fixture_init(&f, pairs[i / 4][0], pairs[i / 4][1], way == 1);
        f.l.options.trace = trace;
        f.l.options.verify = way == 2;
        sim.mapped = way == 2;
        if (way == 3) {
            sim.node_size = 3;
            f.l.shared_sources = 3;
            f.l.shared_targets = 6;
        }
        assert_int_equal(way < 2 ? reshard_group_run(NULL, RANKS, live_run_rank, &f.l)
                                 : reshard_sim_run(NULL, RANKS, &sim, live_run_rank, &f.l),
                         RESHARD_OK);
        assert_true(simulate_equal(f.to, f.wanted));
        check_exec(&f, trace);
        assert_int_equal(look_at(trace).counts[RS_TRACE_VERIFY] > 0, way == 2);
        assert_int_equal(reshard_trace_write(trace), RESHARD_OK);
        reshard_trace_destroy(trace);
        live_fixture_release(&f);
    }
}

static void test_trace__full_buffers(void **state)
{
    (void)state;
    live_fixture f;
    reshard_trace *trace = make_trace(3);
    live_fixture_init(&f, pairs[0][0], pairs[0][1], 1);
    f.l.options.trace = trace;
    assert_int_equal(reshard_group_run(NULL, RANKS, live_run_rank, &f.l), RESHARD_OK);
    assert_true(simulate_equal(f.to, f.wanted));
    int64_t claimed = 0, kept = 0;
    for (rs_trace_track *t = trace->tracks; t != NULL; t = t->next) {
        claimed += atomic_load(&t->claimed);
        kept += 3;
    }
    assert_int_equal(kept, 3 * RANKS);
    assert_int_equal(reshard_trace_dropped(trace), claimed - kept);
    assert_true(claimed > 10 * RANKS);
    reshard_trace_destroy(trace);
    live_fixture_release(&f);
}

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct counter {
    atomic_int_fast64_t calls;
} counter;

static void *count_allocate(void *user, size_t bytes)
{
    atomic_fetch_add(&((counter *)user)->calls, 1);
    return malloc(bytes);
}

static void *count_resize(void *user, void *memory, size_t bytes_old, size_t bytes_new)
{
    (void)bytes_old;
    atomic_fetch_add(&((counter *)user)->calls, 1);
    return realloc(memory, bytes_new);
}

static void count_release(void *user, void *memory, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(memory);
}

typedef struct counting {
    live_fixture f;
    reshard_context *context;
    reshard_trace *trace;
    counter made;
    int64_t created[2], run[2]; /* allocations: without a trace, with one */
} counting;

/* Runs of one rank, counted. */
static reshard_status count_runs(void *user, reshard_group *group)
{
    counting *c = user;
    void *from[8], *to[8];
    (void)live_list_buffers(c->f.from, 0, from);
    (void)live_list_buffers(c->f.to, 0, to);
    for (int traced = 0; traced < 2; traced++) {
        reshard_exec *exec = NULL;
        reshard_exec_options options = {.size = sizeof options, .trace = traced ? c->trace : NULL};
        int64_t before = atomic_load(&c->made.calls);
        TRY(reshard_exec_create(c->context, c->f.plan, group, &options, &exec));
        c->created[traced] = atomic_load(&c->made.calls) - before;
        before = atomic_load(&c->made.calls);
        for (int i = 0; i < 3; i++) {
            TRY(reshard_exec_start(exec, (const void *const *)from, to));
            TRY(reshard_exec_wait(exec));
        }
        c->run[traced] = atomic_load(&c->made.calls) - before;
        reshard_exec_destroy(exec);
    }
    return RESHARD_OK;
}

/* A run allocates nothing, with a trace or without; and without one, making an exec takes no more
 * than it must. */
static void test_trace__runs_allocate_nothing(void **state)
{
    (void)state;
    counting c = {.created = {0}};
    reshard_allocator allocator = {count_allocate, count_resize, count_release, &c.made};
    reshard_context_options options = {.size = sizeof options, .allocator = &allocator};
    char path[64];
    assert_int_equal(reshard_context_create(&options, &c.context), RESHARD_OK);
    assert_int_equal(
        reshard_trace_create(c.context, NULL, path_of("a.json", path, sizeof path), NULL, &c.trace),
        RESHARD_OK);
    live_fixture_init(&c.f, "1: S(0)", "1: S(1)", 0);
    run_ranks(1, count_runs, &c);
    assert_int_equal(c.run[0], 0);
    assert_int_equal(c.run[1], 0);
    assert_true(c.created[0] > 0 && c.created[0] < c.created[1]);
    reshard_trace_destroy(c.trace);
    assert_int_equal(access(path, F_OK), -1); /* never written: it is gone */
    live_fixture_release(&c.f);
    reshard_context_destroy(c.context);
}

static reshard_status attempt(reshard_context *context, void *user)
{
    live_fixture *f = user;
    char path[64];
    reshard_trace *trace = NULL;
    reshard_status status = reshard_trace_create(
        context, NULL, path_of("starved.json", path, sizeof path), NULL, &trace);
    f->l.options.trace = trace;
    f->l.context = context;
    if (status == RESHARD_OK)
        status = reshard_group_run(NULL, RANKS, live_run_rank, &f->l);
    if (status == RESHARD_OK)
        status = reshard_trace_write(trace);
    reshard_trace_destroy(trace);
    if (status != RESHARD_OK && access(path, F_OK) == 0)
        return reshard_error_set(RESHARD_ERR_CHECK, "a file that was not written whole is left");
    (void)unlink(path);
    return status;
}

static void test_trace__memory_runs_out(void **state)
{
    (void)state;
    for (int messages = 0; messages < 2; messages++) {
        live_fixture f;
        words said = {""};
        live_fixture_init(&f, pairs[0][0], pairs[0][1], messages);
        if (!context_fail_each(attempt, &f, &said))
            fail_msg("%s", said.text);
        assert_true(simulate_equal(f.to, f.wanted));
        live_fixture_release(&f);
    }
}

/* ---- clocks ---------------------------------------------------------------------------------- */

/* A clock that is off, and fast. */
typedef struct wrong_clock {
    uint64_t zero; /* of the right clock, when it was set */
    int64_t skew;
    double speed;
} wrong_clock;

static uint64_t read_wrong(void *user)
{
    const wrong_clock *c = user;
    double passed = (double)(rs_clock_now() - c->zero);
    return (uint64_t)((int64_t)c->zero + c->skew + (int64_t)(passed * c->speed));
}

/* The right time when the clock showed this. */
static int64_t right_time(const wrong_clock *c, int64_t shown)
{
    return (int64_t)c->zero + (int64_t)((double)(shown - (int64_t)c->zero - c->skew) / c->speed);
}

static bool is_near(int64_t a, int64_t b, int64_t most)
{
    return a - b <= most && b - a <= most;
}

/* Rank 0 has the right clock, rank 1 is on its host, the others are elsewhere. */
static reshard_status compare_clocks(void *user, reshard_group *group)
{
    const uint64_t *zero = user;
    int32_t rank = reshard_group_rank(group);
    wrong_clock wrong = {.zero = *zero, .skew = 0, .speed = 1};
    if (rank > 1) {
        wrong.skew = (rank % 2 == 0 ? 1 : -1) * (int64_t)7000000000 * rank;
        wrong.speed = 1 + 1e-3 * rank;
    }
    rs_trace_clock clock = {read_wrong, &wrong, {5, rank < 2 ? 1 : (uint64_t)rank}};
    reshard_trace *trace = NULL;
    rs_trace_track *track = NULL;
    char path[64];
    rs_clock_line line = {.origin = 0};
    TRY(rs_trace_create_by(NULL, group, path_of("c.json", path, sizeof path), NULL, &clock,
                           &trace));
    TRY(rs_trace_take(trace, rank, 0, 0, &track));
    rs_trace_event event = rs_trace_begin(track, RS_TRACE_WAIT);
    uint64_t truth = rs_clock_now();
    while (rs_clock_now() < truth + 3000000)
        ; /* 3 ms, in which the fastest clock gains 9 us */
    rs_trace_end(track, &event);
    TRY(rs_clock_measure(group, &clock, &line.end));
    line.begin = trace->begin;
    CHECK((line.begin.round_trip != 0) == (rank > 1));
    int64_t most =
        line.begin.round_trip > line.end.round_trip ? line.begin.round_trip : line.end.round_trip;
    most = most / 2 + 10; /* half of a round trip, and what is rounded */
    int64_t moments[] = {line.begin.local, line.end.local, (int64_t)event.begin,
                         (int64_t)event.end};
    for (int i = 0; i < 4; i++)
        CHECK(is_near(rs_clock_at_zero(&line, (uint64_t)moments[i]), right_time(&wrong, moments[i]),
                      most + most / 100));
    rs_trace_give_back(track);
    TRY(reshard_trace_write(trace));
    reshard_trace_destroy(trace);
    return RESHARD_OK;
}

static void test_trace__clocks_of_several_hosts(void **state)
{
    (void)state;
    char path[64], text[8192];
    uint64_t zero = rs_clock_now();
    run_ranks(4, compare_clocks, &zero);
    FILE *file = fopen(path_of("c.json", path, sizeof path), "r");
    assert_non_null(file);
    size_t count = fread(text, 1, sizeof text - 1, file);
    text[count] = '\0';
    (void)fclose(file);
    const char *tail = strstr(text, "\"otherData\"");
    assert_non_null(tail);
    assert_non_null(strstr(tail, "by the shortest of 16 round trips"));
    const char *first = strstr(tail, "\"rank\":1,"), *second = strstr(tail, "\"rank\":2,");
    assert_true(first != NULL && second != NULL);
    assert_true(strstr(tail, "round_trip_ns\":[") > second); /* ranks 0 and 1 have none */
}

static void test_trace__one_clock_here(void **state)
{
    (void)state;
    uint64_t one[2], other[2];
    rs_clock_identity(one);
    rs_clock_identity(other);
    assert_int_equal(one[0], other[0]);
    assert_int_equal(one[1], other[1]);
    uint64_t before = rs_clock_now();
    assert_true(rs_clock_now() >= before);
}

/* ---- tracks ---------------------------------------------------------------------------------- */

static reshard_status take_tracks(void *user, reshard_group *group)
{
    reshard_trace *trace = user;
    rs_trace_track *mine = NULL, *again = NULL, *rank = NULL;
    TRY(rs_trace_take(trace, 0, 2, 0, &mine));
    TRY(rs_trace_take(trace, 0, 0, 0, &again));
    CHECK(mine == again && mine->thread >= 2);
    TRY(rs_trace_take(trace, 1 + reshard_group_rank(group), 0, 0, &rank));
    CHECK(rank != mine && rank->thread == 0);
    TRY(reshard_group_barrier(group)); /* all threads have theirs now */
    rs_trace_give_back(mine);
    rs_trace_give_back(again);
    rs_trace_give_back(rank);
    return RESHARD_OK;
}

/* The labels of so many tracks are more than a chunk of text. */
static reshard_status write_labels(void *user, reshard_group *group)
{
    (void)user;
    reshard_trace *trace = NULL;
    rs_trace_track *track = NULL;
    char path[64];
    TRY(reshard_trace_create(NULL, group, path_of("l.json", path, sizeof path), NULL, &trace));
    for (int32_t i = 0; i < 2000; i++) {
        TRY(rs_trace_take(trace, reshard_group_rank(group), i, 1, &track));
        rs_trace_give_back(track);
    }
    TRY(reshard_trace_write(trace));
    reshard_trace_destroy(trace);
    return RESHARD_OK;
}

static void test_trace__tracks_without_events(void **state)
{
    (void)state;
    run_ranks(2, write_labels, NULL);
}

/* Threads of a rank have tracks of their own, and those that come later take what is free. */
static void test_trace__tracks(void **state)
{
    (void)state;
    reshard_trace *trace = make_trace(0);
    for (int i = 0; i < 3; i++)
        run_ranks(3, take_tracks, trace);
    int count = 0, threads = 0;
    for (rs_trace_track *t = trace->tracks; t != NULL; t = t->next) {
        count++;
        threads |= t->rank == 0 ? 1 << t->thread : 0;
    }
    assert_int_equal(count, 6);
    assert_int_equal(threads, 4 + 8 + 16);
    reshard_trace_destroy(trace);
}

/* Names are any bytes; in the file they are UTF-8, and not longer than one can read. */
static void test_trace__names(void **state)
{
    (void)state;
    reshard_trace *trace = make_trace(0);
    char name[3000];
    int32_t numbers[3];
    memset(name, 'x', sizeof name);
    assert_int_equal(rs_trace_name(trace, (rs_slice){name, sizeof name}, &numbers[0]), RESHARD_OK);
    assert_int_equal(trace->names.items[numbers[0]].count, 1024);
    assert_int_equal(rs_trace_name(trace, (rs_slice){"a\xff\xc3\xa9", 4}, &numbers[1]), RESHARD_OK);
    assert_string_equal(trace->names.items[numbers[1]].bytes, "a?\xc3\xa9");
    assert_int_equal(rs_trace_name(trace, rs_slice_of("a?\xc3\xa9"), &numbers[2]), RESHARD_OK);
    assert_int_equal(numbers[1], numbers[2]);
    reshard_trace_destroy(trace);
}

/* ---- loads and saves ------------------------------------------------------------------------- */

enum { ROWS = 64, COLUMNS = 30 };

static reshard_status save_and_load(void *user, reshard_group *group)
{
    reshard_trace *const *traces = user;
    int64_t shape[] = {ROWS, COLUMNS};
    reshard_layout *layout = NULL, *other = NULL;
    float values[ROWS * COLUMNS] = {1};
    char path[64];
    reshard_checkpoint *checkpoint = NULL;
    (void)path_of("saved", path, sizeof path);
    TRY(reshard_layout_parse(NULL, "2: S(1/2)", 2, shape, &layout));
    TRY(reshard_layout_parse(NULL, "2: S(0)", 2, shape, &other));
    void *shards[] = {values};
    reshard_live_tensor tensor = {"weight", RESHARD_F32, layout, shards};
    TRY(reshard_checkpoint_save(
        NULL, group, path, 1, &tensor,
        RESHARD_OPTIONS(reshard_checkpoint_save_options, .trace = traces[0])));
    TRY(reshard_checkpoint_open(NULL, path, NULL, &checkpoint));
    tensor.layout = other;
    for (int once = 0; once < 2; once++)
        TRY(reshard_checkpoint_load(checkpoint, group, 1, &tensor,
                                    RESHARD_OPTIONS(reshard_checkpoint_load_options,
                                                    .read_once = once, .trace = traces[1 + once])));
    reshard_checkpoint_destroy(checkpoint);
    reshard_layout_release(layout);
    reshard_layout_release(other);
    return RESHARD_OK;
}

static void test_trace__loads_and_saves(void **state)
{
    (void)state;
    const uint64_t all = ROWS * COLUMNS * sizeof(float);
    reshard_trace *traces[3];
    for (int i = 0; i < 3; i++)
        traces[i] = make_trace(0);
    run_ranks(2, save_and_load, traces);
    found saved = look_at(traces[0]), loaded = look_at(traces[1]), once = look_at(traces[2]);
    assert_int_equal(saved.bytes[RS_TRACE_WRITE], all);
    assert_int_equal(saved.counts[RS_TRACE_SYNC], 2);
    assert_int_equal(loaded.bytes[RS_TRACE_READ], all);
    assert_int_equal(loaded.counts[RS_TRACE_COPY], 0);
    assert_int_equal(once.bytes[RS_TRACE_READ], all);
    assert_int_equal(once.bytes[RS_TRACE_COPY] + once.kept[RS_TRACE_COPY], all);
    for (int i = 0; i < 3; i++)
        reshard_trace_destroy(traces[i]);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void test_trace__bad_arguments(void **state)
{
    (void)state;
    reshard_trace *trace = NULL;
    char path[64];
    (void)path_of("b.json", path, sizeof path);
    reshard_trace_options options = {.size = sizeof options, .thread_events_max = -1};
    assert_int_equal(reshard_trace_create(NULL, NULL, path, &options, &trace), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_trace_create(NULL, NULL, NULL, NULL, &trace), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_trace_create(NULL, NULL, "", NULL, &trace), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_trace_create(NULL, NULL, folder, NULL, &trace), RESHARD_ERR_INVALID);
    assert_null(trace);
    assert_int_equal(access(path, F_OK), -1);
    reshard_trace_destroy(NULL);
}

/* Also of a plan with as many stages, whose trace would have the times of one and the messages of
 * the other. */
static void test_trace__predictions_of_other_plans(void **state)
{
    (void)state;
    static const char *const targets[] = {"4: S(1)", "4: R"};
    int64_t shape[] = {8, 8};
    reshard_cluster cluster = {.size = sizeof cluster, .nodes = 2, .nic = 1e9};
    reshard_layout *source = NULL, *target[2] = {0};
    reshard_plan *plans[2] = {0};
    reshard_prediction *prediction = NULL;
    reshard_trace *trace = NULL;
    char path[64];
    assert_int_equal(reshard_layout_parse(NULL, "4: S(0)", 2, shape, &source), RESHARD_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reshard_layout_parse(NULL, targets[i], 2, shape, &target[i]), RESHARD_OK);
        assert_int_equal(
            reshard_plan_create_simple(NULL, source, target[i], RESHARD_F32, NULL, &plans[i]),
            RESHARD_OK);
    }
    assert_int_equal(reshard_plan_predict(plans[0], &cluster, &prediction), RESHARD_OK);
    assert_int_equal(
        reshard_trace_create(NULL, NULL, path_of("predicted", path, sizeof path), NULL, &trace),
        RESHARD_OK);
    assert_int_equal(reshard_prediction_trace(prediction, plans[1], &cluster, trace, NULL),
                     RESHARD_ERR_INVALID);
    assert_string_equal(reshard_error_text(),
                        "trace of a prediction: it was made from another plan");
    assert_int_equal(reshard_prediction_trace(prediction, plans[0], &cluster, trace, NULL),
                     RESHARD_OK);
    reshard_trace_destroy(trace);
    reshard_prediction_destroy(prediction);
    for (int i = 0; i < 2; i++) {
        reshard_plan_release(plans[i]);
        reshard_layout_release(target[i]);
    }
    reshard_layout_release(source);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[80];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace__execs),
        cmocka_unit_test(test_trace__full_buffers),
        cmocka_unit_test(test_trace__runs_allocate_nothing),
        cmocka_unit_test(test_trace__memory_runs_out),
        cmocka_unit_test(test_trace__clocks_of_several_hosts),
        cmocka_unit_test(test_trace__one_clock_here),
        cmocka_unit_test(test_trace__tracks),
        cmocka_unit_test(test_trace__tracks_without_events),
        cmocka_unit_test(test_trace__names),
        cmocka_unit_test(test_trace__loads_and_saves),
        cmocka_unit_test(test_trace__bad_arguments),
        cmocka_unit_test(test_trace__predictions_of_other_plans),
    };
    return cmocka_run_group_tests_name("trace", tests, make_folder, remove_folder);
}
