/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions and saves on a machine that loses power. What they do to files is recorded
 * (tests/support/power.h), and checked in two ways. After a cut at any point, whatever the disk may
 * hold then, there is either a complete target or none, and the run can be resumed. And each step
 * of the record is on disk before the next one, so that no sync can be left out.
 *
 * RESHARD_TEST_SCALE=50 tries 10000 states; `make power-cuts` does.
 */
#include "convert_case.h"

#include "tests/support/check.h"
#include "tests/support/harness.h"
#include "tests/support/power.h"

#include <reshard/checkpoint_live.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS = 3, STATES = 200 };

static convert_case base; /* the source, and where everything is */
static char padding_rules[96], example[96];

/* Joins, turns, interleaves, renames, drops and makes tensors; under names that have rules. */
static const char map_text[] = "map left right\n"
                               "a [i k], b [i k] = a [(i + i) k]\n"
                               "c [i k]          = b [k i]\n"
                               "d [(2 h) k]      = d [(h 2) k]\n"
                               "e drop           =\n"
                               "f                = e\n"
                               "                 = g [3] f32 fill(1)\n";

/* How to convert. */
typedef struct way {
    const char *name;
    int32_t ranks;
    reshard_conversion_options plan;
    reshard_conversion_run_options run;
    convert_case files; /* with an expected output of its own */
} way;

static way ways[] = {
    {.name = "one",
     .ranks = 1,
     .plan = {.size = sizeof(reshard_conversion_options), .to = "tp=2", .threads = 1},
     .run = {.size = sizeof(reshard_conversion_run_options), .journal_bytes = 1 << 18}},
    {.name = "ranks",
     .ranks = RANKS,
     .plan = {.size = sizeof(reshard_conversion_options), .to = "tp=3", .threads = 1},
     .run = {.size = sizeof(reshard_conversion_run_options), .journal_bytes = 1 << 18}},
    {.name = "padding",
     .ranks = 1,
     .plan = {.size = sizeof(reshard_conversion_options),
              .to = "tp=4",
              .format = "rank-files",
              .threads = 1},
     .run = {.size = sizeof(reshard_conversion_run_options),
             .verify = 1,
             .journal_bytes = 1 << 18}},
    {.name = "index", /* and a journal that is written at the end only */
     .ranks = 1,
     .plan = {.size = sizeof(reshard_conversion_options), .shard_bytes_max = 1000000, .threads = 1},
     .run = {.size = sizeof(reshard_conversion_run_options), .journal_bytes = 1 << 30}},
    {.name = "archives", /* whose checksums are written at the end */
     .ranks = 1,
     .plan =
         {.size = sizeof(reshard_conversion_options), .to = "tp=2", .format = "dcp", .threads = 1},
     .run = {.size = sizeof(reshard_conversion_run_options), .journal_bytes = 1 << 18}},
    {.name = "threads",
     .ranks = 1,
     .plan = {.size = sizeof(reshard_conversion_options), .threads = 2},
     .run = {.size = sizeof(reshard_conversion_run_options), .journal_bytes = 1 << 18}},
    {.name = "map",
     .ranks = 1,
     .plan = {.size = sizeof(reshard_conversion_options),
              .map_text = map_text,
              .as = "right",
              .threads = 1},
     .run = {.size = sizeof(reshard_conversion_run_options), .journal_bytes = 1 << 18}},
    {.name = "ranks by a map",
     .ranks = RANKS,
     .plan = {.size = sizeof(reshard_conversion_options),
              .to = "tp=3",
              .map_text = map_text,
              .as = "right",
              .threads = 1},
     .run = {.size = sizeof(reshard_conversion_run_options), .journal_bytes = 1 << 18}},
    {.name = "one file",
     .ranks = 1,
     .plan = {.size = sizeof(reshard_conversion_options),
              .format = "gguf",
              .like = example,
              .threads = 1},
     .run = {.size = sizeof(reshard_conversion_run_options), .journal_bytes = 1 << 18}},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

/* ---- one run --------------------------------------------------------------------------------- */

typedef struct attempt {
    const way *how;
    power_log *log; /* NULL: nobody records */
    int resume;
    int fails_at; /* this call of rank 0; 0: none */
    reshard_status statuses[RANKS];
    char text[600];
} attempt;

static reshard_status convert_rank(void *user, reshard_group *group)
{
    attempt *a = user;
    int32_t rank = group != NULL ? reshard_group_rank(group) : 0;
    convert_faults faults = {.countdown = rank == 0 ? a->fails_at : 0, .error = EIO};
    const rs_file_calls calls =
        a->log != NULL ? power_calls(a->log, rank) : convert_faults_calls(&faults);
    reshard_conversion_options plan = a->how->plan;
    reshard_conversion_run_options run = a->how->run;
    reshard_context *context = NULL;
    reshard_status status = reshard_context_create(NULL, &context);
    if (status != RESHARD_OK)
        return status;
    rs_file_calls_set(context, &calls);
    plan.group = group;
    plan.memory_bytes_max = (size_t)plan.threads << 20;
    run.resume = a->resume;
    a->statuses[rank] = reshard_convert(context, base.source, base.target, NULL, &plan, &run, NULL);
    if (rank == 0)
        (void)snprintf(a->text, sizeof a->text, "%s", reshard_error_text());
    reshard_context_destroy(context);
    return RESHARD_OK;
}

static reshard_status convert(attempt *a)
{
    reshard_status status = a->how->ranks == 1
                                ? convert_rank(a, NULL)
                                : reshard_group_run(NULL, a->how->ranks, convert_rank, a);
    return status == RESHARD_OK ? a->statuses[0] : status;
}

static bool put(FILE *file, uint64_t number, int count)
{
    bool done = true;
    for (int i = 0; i < count; i++)
        done = done && fputc((int)(number >> (8 * i) & 0xff), file) != EOF;
    return done;
}

static bool put_text(FILE *file, const char *text)
{
    return put(file, strlen(text), 8) && fputs(text, file) >= 0;
}

/* A GGUF file of the same tensors, zeros, for those that follow one. */
static bool write_example(const char *path)
{
    enum { ROWS_OF_ALL = 600, COLUMNS = 200, BYTES = ROWS_OF_ALL * COLUMNS * 4, TEXT = 8, F32 = 0 };
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return false;
    bool done = fputs("GGUF", file) >= 0 && put(file, 3, 4) && put(file, 6, 8) && put(file, 1, 8) &&
                put_text(file, "general.architecture") && put(file, TEXT, 4) &&
                put_text(file, "none");
    for (int i = 0; i < 6; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        done = done && put_text(file, name) && put(file, 2, 4) && put(file, COLUMNS, 8) &&
               put(file, ROWS_OF_ALL, 8) && put(file, F32, 4) && put(file, (uint64_t)i * BYTES, 8);
    }
    while (done && ftell(file) % 32 != 0)
        done = put(file, 0, 1);
    for (int i = 0; done && i < 6 * BYTES / 8; i++)
        done = put(file, 0, 8);
    return fclose(file) == 0 && done;
}

static int set_up(void **state)
{
    (void)state;
    static const char padded[] = "{a,d} S(0)@tp pad(0,17)\n{b,e} S(1)@tp pad(1,17)\n* R\n";
    (void)umask(022);
    if (convert_case_begin(&base) != 0)
        return -1;
    (void)snprintf(padding_rules, sizeof padding_rules, "%s/padded-rules", base.folder);
    FILE *file = fopen(padding_rules, "w");
    (void)snprintf(example, sizeof example, "%s/example.gguf", base.folder);
    if (file == NULL || fputs(padded, file) < 0 || fclose(file) != 0 || !write_example(example))
        return -1;
    for (int i = 0; i < WAYS; i++) {
        way *w = &ways[i];
        w->files = base;
        (void)snprintf(w->files.expected, sizeof w->files.expected, "%s/%s", base.folder, w->name);
        if (w->plan.to != NULL)
            w->plan.rules = strcmp(w->name, "padding") == 0 ? padding_rules : base.rules;
        if (reshard_convert(NULL, base.source, w->files.expected, NULL, &w->plan, &w->run, NULL) !=
            RESHARD_OK) {
            print_error("%s: %s\n", w->name, reshard_error_text());
            return -1;
        }
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        if (convert_case_is_file(ways[i].files.expected))
            (void)remove(ways[i].files.expected);
        else
            (void)rs_folder_remove(NULL, ways[i].files.expected);
    }
    return convert_case_end(&base);
}

/* What a test that fails leaves. */
static int clean_up(void **state)
{
    (void)state;
    convert_case_remove(&base);
    return 0;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* The journal of a target that has its name: inside it or, if it is one file, in the folder that
 * the file came from. */
static bool has_journal(void)
{
    char path[160];
    bool is_file = convert_case_is_file(base.target);
    (void)snprintf(path, sizeof path, "%s/.reshard-journal", is_file ? base.partial : base.target);
    return convert_case_exists(path);
}

static bool is_published(void)
{
    struct stat found;
    mode_t mode = convert_case_is_file(base.target) ? 0644 : 0755;
    return stat(base.target, &found) == 0 && (found.st_mode & 0777) == mode;
}

/* The end that everything comes to; NULL, or what is wrong with it. */
static const char *judge_end(const way *w)
{
    return !convert_case_is_whole(&w->files)         ? "the target is not whole"
           : convert_case_exists(base.partial)       ? "a partial folder is left"
           : has_journal()                           ? "a journal is left"
           : !is_published()                         ? "the target is private"
           : !convert_case_source_is_same(&w->files) ? "the source has changed"
                                                     : NULL;
}

/* How often states had a target, and a partial folder. */
static int64_t seen[2][2];

/* What a plain run makes of a state, and then one that goes on; NULL, or what is wrong. */
static const char *judge_state(const way *w, attempt *a)
{
    bool named = convert_case_exists(base.target), begun = convert_case_exists(base.partial);
    seen[named][begun]++;
    if (named && !convert_case_is_whole(&w->files))
        return "there is a target that is not whole";
    if (named && begun && !convert_case_is_file(base.target))
        return "there is a target, and a partial folder";
    if (named && !has_journal()) {
        /* The journal of a file is gone, and perhaps not yet the empty folder that it was in. */
        (void)rmdir(base.partial);
        return judge_end(w);
    }
    a->how = w;
    a->resume = 0;
    reshard_status status = convert(a);
    if (!named && !begun)
        return status == RESHARD_OK ? judge_end(w) : "a run from the beginning fails";
    if (status != RESHARD_ERR_UNFINISHED)
        return "a plain run does not see that one is unfinished";
    a->resume = 1;
    return convert(a) == RESHARD_OK ? judge_end(w) : "the run cannot be gone on with";
}

/* Some place in the log; half of them around something else than a write. */
static int draw_place(const power_log *log, draw_state *draw)
{
    int place = (int)draw_below(draw, power_count(log) + 1);
    bool anywhere = draw_chance(draw, 50);
    while (!anywhere && place < power_count(log) && power_at(log, place)->kind == POWER_WRITE)
        place++;
    return place;
}

static void report(const way *w, uint64_t seed, int place, const char *wrong, const attempt *a)
{
    fail_msg("%s: RESHARD_TEST_SEED=%llu RESHARD_TEST_SCALE=0, cut at %d: %s (%s)", w->name,
             (unsigned long long)seed, place, wrong, a->text);
}

/* One cut, or a second one while the run goes on after the first. */
static void try_state(const way *w, const power_log *log, uint64_t seed, power_log **second)
{
    draw_state draw;
    attempt a = {.how = w, .resume = 1};
    draw_seed(&draw, seed);
    int place = draw_place(log, &draw);
    power_cut(log, place, &draw);
    if (draw_chance(&draw, 25) && !(convert_case_exists(base.target) && !has_journal())) {
        a.log = *second = power_begin(base.folder, "target");
        if (convert(&a) != RESHARD_OK)
            report(w, seed, place, "the run cannot be gone on with", &a);
        place = 1000 * place + draw_place(*second, &draw);
        power_cut(*second, place % 1000, &draw);
        power_end(*second);
        *second = a.log = NULL;
    }
    const char *wrong = judge_state(w, &a);
    if (wrong != NULL)
        report(w, seed, place, wrong, &a);
    convert_case_remove(&base);
}

static power_log *record(const way *w)
{
    attempt a = {.how = w, .log = power_begin(base.folder, "target")};
    if (convert(&a) != RESHARD_OK)
        fail_msg("%s: %s", w->name, a.text);
    const char *wrong = judge_end(w);
    if (wrong != NULL)
        fail_msg("%s: %s", w->name, wrong);
    return a.log;
}

static void test_power__states_after_a_cut(void **state)
{
    (void)state;
    static power_log *second; /* a failing test leaves by longjmp */
    for (int i = 0; i < WAYS; i++) {
        power_log *log = record(&ways[i]);
        int64_t count = harness_count(STATES / WAYS);
        for (int64_t j = 0; j < count; j++)
            try_state(&ways[i], log, harness_seed() + (uint64_t)j, &second);
        power_end(log);
    }
    print_message("%lld states with nothing, %lld with a partial folder, %lld with a target, %lld "
                  "with a file as target and its folder\n",
                  (long long)seen[0][0], (long long)seen[0][1], (long long)seen[1][0],
                  (long long)seen[1][1]);
    if (harness_scale() >= 1)
        assert_true(seen[0][0] > 1 && seen[0][1] > 50 && seen[1][0] > 5);
}

/* ---- the order of syncs ---------------------------------------------------------------------- */

enum { OBJECTS_MAX = 256 };

/* What is not on disk yet. */
typedef struct dirt {
    unsigned data[OBJECTS_MAX]; /* a bit for each owner */
    bool names[OBJECTS_MAX], mode[OBJECTS_MAX];
    bool journal_cut; /* its end was cut off */
    bool files_made;
} dirt;

static bool is_journal(const power_log *log, int object)
{
    return strncmp(power_object_name(log, object), ".reshard-journal", 16) == 0;
}

/* Is anything dirty but the journal itself and names of the root? */
static bool is_dirty(const power_log *log, const dirt *d)
{
    for (int i = 1; i < power_object_count(log); i++) {
        if ((d->data[i] != 0 && !is_journal(log, i)) || d->names[i])
            return true;
    }
    return false;
}

static bool journal_is_dirty(const power_log *log, const dirt *d)
{
    for (int i = 1; i < power_object_count(log); i++) {
        if (is_journal(log, i) && d->data[i] != 0)
            return true;
    }
    return false;
}

/* What must be on disk before an operation; NULL: it is. */
static const char *judge_op(const power_log *log, const dirt *d, const power_op *op)
{
    bool journal = is_journal(log, op->object);
    bool inside = op->folder != 0;
    if (journal_is_dirty(log, d) &&
        !(journal && (op->kind == POWER_WRITE || op->kind == POWER_SYNC)))
        return "the journal is not synced";
    if ((op->kind == POWER_CREATE || op->kind == POWER_LINK) && inside && !journal &&
        !d->files_made && (d->names[op->folder] || d->names[0]))
        return "a file is made before the journal's name and the folder's are on disk";
    if (op->kind == POWER_WRITE && journal && d->journal_cut)
        return "the journal is written where its end was cut off, and that is not synced";
    if (op->kind == POWER_WRITE && journal && d->files_made && is_dirty(log, d))
        return "the journal is written before what it tells of is on disk";
    if (op->kind == POWER_RENAME && !inside && is_dirty(log, d))
        return "the target gets its name before all of it is on disk";
    if (op->kind == POWER_REMOVE && journal && (d->names[0] || d->mode[op->folder]))
        return "the journal goes before name and mode are on disk";
    return NULL;
}

static void note_op(const power_log *log, dirt *d, const power_op *op)
{
    bool journal = is_journal(log, op->object);
    switch (op->kind) {
    case POWER_RESIZE:
        d->journal_cut = d->journal_cut || journal;
        d->data[op->object] |= 1u << op->owner;
        break;
    case POWER_WRITE:
        d->data[op->object] |= 1u << op->owner;
        break;
    case POWER_SYNC:
        d->journal_cut = d->journal_cut && !journal;
        d->data[op->object] &= ~(1u << op->owner);
        d->names[op->object] = d->mode[op->object] = false;
        break;
    case POWER_PUBLISH:
        d->mode[op->object] = true;
        break;
    default:
        d->names[op->folder] = true;
        if (op->kind == POWER_RENAME)
            d->names[op->old_folder] = true;
        d->files_made = d->files_made || (op->folder != 0 && !journal);
        /* Nobody misses the bytes or names of what is gone. */
        if (op->kind == POWER_REMOVE) {
            d->data[op->object] = 0;
            d->names[op->object] = false;
        }
    }
}

static void check_order(const char *name, const power_log *log)
{
    dirt d;
    memset(&d, 0, sizeof d);
    for (int i = 0; i < power_count(log); i++) {
        const power_op *op = power_at(log, i);
        const char *wrong = judge_op(log, &d, op);
        if (wrong != NULL)
            fail_msg("%s: operation %d, of %s: %s", name, i, power_object_name(log, op->object),
                     wrong);
        note_op(log, &d, op);
    }
    if (is_dirty(log, &d) || d.names[0])
        fail_msg("%s: something is not on disk at the end", name);
}

static void test_power__order_of_syncs(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        if (ways[i].plan.threads != 1)
            continue; /* threads write while the journal is */
        power_log *log = record(&ways[i]);
        check_order(ways[i].name, log);
        power_end(log);
        convert_case_remove(&base);
    }
}

static void test_power__order_when_going_on(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        char path[160];
        attempt a = {.how = &ways[i], .fails_at = 45};
        if (ways[i].plan.threads != 1)
            continue;
        assert_int_equal(convert(&a), RESHARD_ERR_IO);
        (void)snprintf(path, sizeof path, "%s/.reshard-journal", base.partial);
        FILE *journal = fopen(path, "a");
        assert_non_null(journal);
        assert_true(fputs("done 1", journal) >= 0 && fclose(journal) == 0);
        a = (attempt){.how = &ways[i], .resume = 1, .log = power_begin(base.folder, "target")};
        if (convert(&a) != RESHARD_OK)
            fail_msg("%s: %s", ways[i].name, a.text);
        check_order(ways[i].name, a.log);
        power_end(a.log);
        convert_case_remove(&base);
    }
}

/* ---- saving ---------------------------------------------------------------------------------- */

enum { ROWS = 1000 };

typedef struct saving {
    const char *path;
    power_log *log; /* NULL: nobody records */
} saving;

static reshard_status save_rank(void *user, reshard_group *group)
{
    const saving *s = user;
    static const int64_t shape[1] = {RANKS * ROWS};
    int32_t rank = reshard_group_rank(group);
    float values[ROWS];
    void *shards[1] = {values};
    reshard_context *context = NULL;
    reshard_spec *spec = NULL;
    reshard_layout *layout = NULL;
    rs_file_calls calls;
    for (int i = 0; i < ROWS; i++)
        values[i] = (float)(rank * ROWS + i);
    reshard_status status = reshard_context_create(NULL, &context);
    if (status == RESHARD_OK && s->log != NULL) {
        calls = power_calls(s->log, rank);
        rs_file_calls_set(context, &calls);
    }
    if (status == RESHARD_OK)
        status = reshard_spec_parse(context, "3: S(0)", &spec);
    if (status == RESHARD_OK)
        status = reshard_layout_create(context, spec, 1, shape, &layout);
    reshard_live_tensor tensor = {"w", RESHARD_F32, layout, shards};
    if (status == RESHARD_OK)
        status = reshard_checkpoint_save(context, group, s->path, 1, &tensor, NULL);
    reshard_layout_release(layout);
    reshard_spec_release(spec);
    reshard_context_destroy(context);
    return status;
}

static void test_power__saves(void **state)
{
    (void)state;
    saving expected = {.path = base.expected};
    saving s = {.path = base.target, .log = power_begin(base.folder, "target")};
    assert_int_equal(reshard_group_run(NULL, RANKS, save_rank, &expected), RESHARD_OK);
    assert_int_equal(reshard_group_run(NULL, RANKS, save_rank, &s), RESHARD_OK);
    check_order("save", s.log);
    assert_true(is_published() && !has_journal());
    int64_t count = harness_count(STATES / 4);
    for (int64_t i = 0; i < count; i++) {
        draw_state draw;
        draw_seed(&draw, harness_seed() + (uint64_t)i);
        int place = draw_place(s.log, &draw);
        power_cut(s.log, place, &draw);
        if (convert_case_exists(base.target) && !convert_case_is_whole(&base))
            fail_msg("seed %lld, cut at %d: there is a target that is not whole",
                     (long long)(harness_seed() + (uint64_t)i), place);
        convert_case_remove(&base);
    }
    power_end(s.log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_power__order_of_syncs, clean_up),
        cmocka_unit_test_teardown(test_power__order_when_going_on, clean_up),
        cmocka_unit_test_teardown(test_power__saves, clean_up),
        cmocka_unit_test_teardown(test_power__states_after_a_cut, clean_up),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
