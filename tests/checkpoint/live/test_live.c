/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_live.c - tensors of live ranks saved under one layout and loaded under another hold what the
 * oracle says, whether each rank reads for itself or each byte is read once; what is on disk is
 * whole; and what cannot be saved or loaded is refused on all ranks, with nothing left behind. One
 * process alone reads the same shards of every rank, zeros where a layout is larger than the
 * tensor, and maps the files.
 */
#include "tests/support/check.h"
#include "tests/support/live.h"
#include "tests/support/values.h"

#include <reshard/checkpoint_live.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 6 };

static char folder[] = "/tmp/reshard-live-XXXXXX";
static char path[64], partial[64];

/* ---- ranks ----------------------------------------------------------------------------------- */

typedef struct job {
    reshard_layout *layout;
    const simulate_tensor *tensor;
    bool saves, once;
    reshard_status status[RANKS];
    char text[RANKS][256];
} job;

static reshard_status run_rank(void *user, reshard_group *group)
{
    job *j = user;
    int32_t rank = reshard_group_rank(group);
    void **shards = calloc((size_t)j->tensor->count + 1, sizeof *shards);
    if (shards == NULL)
        abort();
    (void)live_list_buffers(j->tensor, rank, shards);
    reshard_live_tensor tensor = {"a.weight", RESHARD_F64, j->layout, shards};
    reshard_status status = RESHARD_OK;
    if (j->saves) {
        reshard_checkpoint_save_options options = {.size = sizeof options, .no_sync = 1};
        status = reshard_checkpoint_save(NULL, group, path, 1, &tensor, &options);
    } else {
        reshard_checkpoint_load_options options = {.size = sizeof options, .read_once = j->once};
        reshard_checkpoint *checkpoint = NULL;
        status = reshard_group_agree(group, reshard_checkpoint_open(NULL, path, NULL, &checkpoint));
        if (status == RESHARD_OK)
            status = reshard_checkpoint_load(checkpoint, group, 1, &tensor, &options);
        reshard_checkpoint_destroy(checkpoint);
    }
    j->status[rank] = status;
    (void)snprintf(j->text[rank], sizeof j->text[rank], "%s", reshard_error_text());
    free(shards);
    return RESHARD_OK;
}

/* All ranks come to the same end. */
static bool run(job *j, reshard_status *out_status, words *said)
{
    if (reshard_group_run(NULL, RANKS, run_rank, j) != RESHARD_OK)
        return words_say(said, "%s", reshard_error_text());
    *out_status = j->status[0];
    for (int32_t i = 1; i < RANKS; i++) {
        if (j->status[i] != j->status[0])
            return words_say(said, "rank %d: %s, rank 0: %s", i, j->text[i], j->text[0]);
    }
    return true;
}

static void remove_checkpoint(void)
{
    char command[160];
    (void)snprintf(command, sizeof command, "rm -rf '%s' '%s'", path, partial);
    if (system(command) != 0)
        abort();
}

/* ---- there and back -------------------------------------------------------------------------- */

static void generate_pair(draw_state *draw, harness_case *made)
{
    made->spec_count = 2;
    generate_shape(draw, 400, &made->ndim, made->shape);
    for (int i = 0; i < 2; i++)
        generate_spec_within(draw, GENERATE_LISTED, RANKS, made->ndim, made->shape,
                             &made->specs[i]);
}

/* What is on disk, read by a single process: row-major, all of it. */
static bool check_disk(const double *values, int64_t volume, words *said)
{
    reshard_checkpoint *checkpoint = NULL;
    double *read = calloc((size_t)volume + 1, sizeof *read);
    bool right = reshard_checkpoint_open(NULL, path, NULL, &checkpoint) == RESHARD_OK &&
                 reshard_checkpoint_read(checkpoint, 0, NULL, read,
                                         (size_t)volume * sizeof *read) == RESHARD_OK;
    if (!right)
        (void)words_say(said, "on disk: %s", reshard_error_text());
    else if (memcmp(read, values, (size_t)volume * sizeof *read) != 0)
        right = words_say(said, "on disk: other values than were saved");
    reshard_checkpoint_destroy(checkpoint);
    free(read);
    return right;
}

static bool check_load(const planning *made, const double *values, bool once, words *said)
{
    simulate_tensor *to = simulate_tensor_create(made->target_layout);
    job loading = {.layout = made->target_layout, .tensor = to, .once = once};
    reshard_status status = RESHARD_OK;
    bool right = run(&loading, &status, said);
    if (right && status != RESHARD_OK)
        right = words_say(said, "load: %s", loading.text[0]);
    right = right && values_check(made->target, values, to, said);
    simulate_tensor_destroy(to);
    return right;
}

/* What one rank holds of one tensor. */
static reshard_status read_shards(const reshard_checkpoint *checkpoint, int64_t tensor,
                                  const reshard_layout *layout, int32_t rank, reshard_dtype dtype,
                                  void *const *shards)
{
    const reshard_rank_tensor one = {
        .tensor = tensor, .layout = layout, .dtype = dtype, .shards = shards};
    return reshard_checkpoint_read_rank(checkpoint, rank, 1, &one, NULL);
}

/* The shards of every rank, read by a single process without a group. */
static bool check_read(const planning *made, const double *values, words *said)
{
    simulate_tensor *to = simulate_tensor_create(made->target_layout);
    void **shards = calloc((size_t)to->count + 1, sizeof *shards);
    reshard_checkpoint *checkpoint = NULL;
    reshard_status status = reshard_checkpoint_open(NULL, path, NULL, &checkpoint);
    for (int32_t rank = 0; rank < RANKS && status == RESHARD_OK; rank++) {
        (void)live_list_buffers(to, rank, shards);
        status = read_shards(checkpoint, 0, made->target_layout, rank, RESHARD_DTYPE_NONE, shards);
    }
    bool right = status == RESHARD_OK || words_say(said, "read: %s", reshard_error_text());
    right = right && values_check(made->target, values, to, said);
    reshard_checkpoint_destroy(checkpoint);
    free(shards);
    simulate_tensor_destroy(to);
    return right;
}

static bool check_pair(const harness_case *given, words *said)
{
    planning made;
    planning_state state = planning_init(&made, given, RESHARD_F64, NULL, said);
    if (state != PLANNING_READY) {
        planning_free(&made);
        return state == PLANNING_SKIPPED;
    }
    int64_t volume = 1;
    for (int32_t d = 0; d < given->ndim; d++)
        volume *= given->shape[d];
    simulate_tensor *from = simulate_tensor_create(made.source_layout);
    double *values = values_create(made.source, given->seed);
    job saving = {.layout = made.source_layout, .tensor = from, .saves = true};
    reshard_status status = RESHARD_OK;
    bool right = values_fill(made.source, given->seed, from, said) && run(&saving, &status, said);
    bool overlaps = status == RESHARD_ERR_OVERLAP; /* a cover, of which boxes are not alike */
    if (right && status != RESHARD_OK && !overlaps)
        right = words_say(said, "save: %s", saving.text[0]);
    if (right && overlaps && (access(path, F_OK) == 0 || access(partial, F_OK) == 0))
        right = words_say(said, "a refused save leaves something behind");
    if (right && !overlaps)
        right = check_disk(values, volume, said) && check_load(&made, values, false, said) &&
                check_load(&made, values, true, said) && check_read(&made, values, said);
    remove_checkpoint();
    free(values);
    simulate_tensor_destroy(from);
    planning_free(&made);
    return right;
}

static void test_live__there_and_back(void **state)
{
    (void)state;
    harness_run("saved and loaded", 120, generate_pair, check_pair);
}

/* ---- casts ----------------------------------------------------------------------------------- */

enum { ROWS = 9, COLUMNS = 700 };

static reshard_layout *make_layout(const char *spec, int64_t rows)
{
    const int64_t shape[] = {rows, COLUMNS};
    reshard_layout *layout = NULL;
    if (reshard_layout_parse(NULL, spec, 2, shape, &layout) != RESHARD_OK)
        abort();
    return layout;
}

/* Small integers are the same in f32 and bf16. */
static float value_at(int64_t index)
{
    return (float)(index % 251 - 125);
}

/* user: what the values are multiplied by, or NULL. */
static reshard_status save_rows(void *user, reshard_group *group)
{
    const float *factor = user;
    static float all[ROWS * COLUMNS];
    int32_t rank = reshard_group_rank(group);
    if (rank == 0) {
        for (int64_t i = 0; i < ROWS * COLUMNS; i++)
            all[i] = value_at(i) * (factor != NULL ? *factor : 1);
    }
    reshard_status status = reshard_group_barrier(group);
    reshard_layout *layout = make_layout("3: S(0)", ROWS);
    void *shard = &all[rank * 3 * COLUMNS];
    reshard_live_tensor tensor = {"w", RESHARD_F32, layout, &shard};
    if (status == RESHARD_OK)
        status = reshard_checkpoint_save(NULL, group, path, 1, &tensor, NULL);
    reshard_layout_release(layout);
    return status;
}

static reshard_status load_columns(void *user, reshard_group *group)
{
    reshard_checkpoint_load_options options = {.size = sizeof options,
                                               .read_once = *(const int *)user};
    static uint16_t columns[2][ROWS * COLUMNS / 2];
    int32_t rank = reshard_group_rank(group);
    reshard_layout *layout = make_layout("2: S(1)", ROWS);
    void *shard = columns[rank];
    reshard_live_tensor tensor = {"w", RESHARD_BF16, layout, &shard};
    reshard_checkpoint *checkpoint = NULL;
    reshard_status status = reshard_checkpoint_open(NULL, path, NULL, &checkpoint);
    memset(shard, 0xff, sizeof columns[rank]);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_load(checkpoint, group, 1, &tensor, &options);
    for (int64_t i = 0; i < ROWS * COLUMNS / 2 && status == RESHARD_OK; i++) {
        float wanted =
            value_at(i / (COLUMNS / 2) * COLUMNS + rank * (COLUMNS / 2) + i % (COLUMNS / 2));
        uint32_t bits;
        memcpy(&bits, &wanted, sizeof bits);
        if (columns[rank][i] != (uint16_t)(bits >> 16))
            status = reshard_error_set(RESHARD_ERR_INVALID, "a wrong value");
    }
    reshard_checkpoint_destroy(checkpoint);
    reshard_layout_release(layout);
    return status;
}

/* Wider than on disk. */
static reshard_status load_wide(void *user, reshard_group *group)
{
    reshard_checkpoint_load_options options = {.size = sizeof options,
                                               .read_once = *(const int *)user};
    static double rows[2][(ROWS + 1) / 2 * COLUMNS];
    int32_t rank = reshard_group_rank(group);
    reshard_layout *layout = make_layout("2: S(0)", ROWS);
    void *shard = rows[rank];
    reshard_live_tensor tensor = {"w", RESHARD_F64, layout, &shard};
    reshard_checkpoint *checkpoint = NULL;
    reshard_status status = reshard_checkpoint_open(NULL, path, NULL, &checkpoint);
    memset(shard, 0xff, sizeof rows[rank]);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_load(checkpoint, group, 1, &tensor, &options);
    int64_t count = (rank == 0 ? 5 : 4) * COLUMNS;
    for (int64_t i = 0; i < count && status == RESHARD_OK; i++) {
        if (rows[rank][i] != (double)value_at(rank * 5 * COLUMNS + i))
            status = reshard_error_set(RESHARD_ERR_INVALID, "a wrong value");
    }
    reshard_checkpoint_destroy(checkpoint);
    reshard_layout_release(layout);
    return status;
}

static void test_live__casts(void **state)
{
    (void)state;
    assert_int_equal(reshard_group_run(NULL, 3, save_rows, NULL), RESHARD_OK);
    assert_int_equal(access(partial, F_OK), -1);
    for (int once = 0; once < 2; once++) {
        if (reshard_group_run(NULL, 2, load_columns, &once) != RESHARD_OK ||
            reshard_group_run(NULL, 2, load_wide, &once) != RESHARD_OK)
            fail_msg("%s", reshard_error_text());
    }
    remove_checkpoint();
}

static uint64_t overflowed[2];

static reshard_status load_narrow(void *user, reshard_group *group)
{
    static uint16_t columns[2][ROWS * COLUMNS / 2];
    int32_t rank = reshard_group_rank(group);
    reshard_checkpoint_load_options options = {.size = sizeof options,
                                               .read_once = *(const int *)user,
                                               .values_overflowed = &overflowed[rank]};
    reshard_layout *layout = make_layout("2: S(1)", ROWS);
    void *shard = columns[rank];
    reshard_live_tensor tensor = {"w", RESHARD_F16, layout, &shard};
    reshard_checkpoint *checkpoint = NULL;
    reshard_status status = reshard_checkpoint_open(NULL, path, NULL, &checkpoint);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_load(checkpoint, group, 1, &tensor, &options);
    reshard_checkpoint_destroy(checkpoint);
    reshard_layout_release(layout);
    return status;
}

/* Thousands: f16 ends at 65504. */
static void test_live__overflows_are_counted(void **state)
{
    (void)state;
    float factor = 1000;
    uint64_t wanted = 0, seen = 99;
    for (int64_t i = 0; i < ROWS * COLUMNS; i++)
        wanted += value_at(i) > 65 || value_at(i) < -65;
    assert_int_equal(reshard_group_run(NULL, 3, save_rows, &factor), RESHARD_OK);
    for (int once = 0; once < 2; once++) {
        overflowed[0] = overflowed[1] = 99;
        if (reshard_group_run(NULL, 2, load_narrow, &once) != RESHARD_OK)
            fail_msg("%s", reshard_error_text());
        assert_int_equal(overflowed[0] + overflowed[1], wanted);
    }
    static uint16_t all[ROWS * COLUMNS];
    void *shard = all;
    reshard_checkpoint *checkpoint = NULL;
    reshard_layout *layout = make_layout("1: R", ROWS);
    assert_int_equal(reshard_checkpoint_open(NULL, path, NULL, &checkpoint), RESHARD_OK);
    const reshard_rank_tensor tensor = {.layout = layout, .dtype = RESHARD_F16, .shards = &shard};
    reshard_read_options options = {.size = sizeof options, .values_overflowed = &seen};
    assert_int_equal(reshard_checkpoint_read_rank(checkpoint, 0, 1, &tensor, &options), RESHARD_OK);
    assert_int_equal(seen, wanted);
    reshard_checkpoint_destroy(checkpoint);
    reshard_layout_release(layout);
    remove_checkpoint();
}

/* ---- one rank, without a group --------------------------------------------------------------- */

static reshard_checkpoint *save_and_open(void)
{
    reshard_checkpoint *checkpoint = NULL;
    if (reshard_group_run(NULL, 3, save_rows, NULL) != RESHARD_OK ||
        reshard_checkpoint_open(NULL, path, NULL, &checkpoint) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    return checkpoint;
}

/* 9 rows on disk, 12 in the layout: rank 1 of 2 holds rows 6 to 11, three of which are padding. */
static void test_live__padding_is_zero(void **state)
{
    (void)state;
    reshard_checkpoint *checkpoint = save_and_open();
    reshard_layout *layout = make_layout("2: S(0)", 12);
    static double rows[6 * COLUMNS];
    void *shard = rows;
    memset(rows, 0xff, sizeof rows);
    if (read_shards(checkpoint, 0, layout, 1, RESHARD_F64, &shard) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    for (int64_t i = 0; i < 6 * COLUMNS; i++)
        assert_true(rows[i] == (i < 3 * COLUMNS ? (double)value_at(6 * COLUMNS + i) : 0));
    reshard_layout_release(layout);
    reshard_checkpoint_destroy(checkpoint);
    remove_checkpoint();
}

static void test_live__refused_readings(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        int64_t tensor, rows;
        reshard_dtype dtype;
        reshard_status status;
        const char *says;
    } readings[] = {
        {"2: S(0)", 1, ROWS, RESHARD_F32, RESHARD_ERR_RANGE, "no tensor 1; there are 1"},
        {"2: S(0)", -1, ROWS, RESHARD_F32, RESHARD_ERR_RANGE, "no tensor -1; there are 1"},
        {"2: S(0)", 0, 8, RESHARD_F32, RESHARD_ERR_MISMATCH, "9x700, the layout 8x700"},
        {"2: P", 0, ROWS, RESHARD_F32, RESHARD_ERR_UNSUPPORTED, "partial"},
        {"2: S(0)", 0, ROWS, RESHARD_I32, RESHARD_ERR_UNSUPPORTED,
         "from f32, as it is stored, to i32"},
        {"2: S(0)", 0, ROWS, (reshard_dtype)99, RESHARD_ERR_UNSUPPORTED, "from f32"},
    };
    reshard_checkpoint *checkpoint = save_and_open();
    static float memory[ROWS * COLUMNS];
    void *shard = memory;
    for (size_t i = 0; i < sizeof readings / sizeof *readings; i++) {
        reshard_layout *layout = make_layout(readings[i].spec, readings[i].rows);
        reshard_status status =
            read_shards(checkpoint, readings[i].tensor, layout, 0, readings[i].dtype, &shard);
        if (status != readings[i].status || !strstr(reshard_error_text(), readings[i].says))
            fail_msg("%zu: %s: %s", i, reshard_status_name(status), reshard_error_text());
        reshard_layout_release(layout);
    }
    reshard_checkpoint_destroy(checkpoint);
    remove_checkpoint();
}

/* A mapped file has its pieces where they are said to be, outlives the checkpoint, and changes of
 * it stay in memory. */
static void test_live__maps(void **state)
{
    (void)state;
    reshard_checkpoint *checkpoint = save_and_open();
    reshard_stored_piece piece = {.size = sizeof piece};
    void *memory[2] = {NULL, NULL};
    size_t bytes = 0;
    assert_int_equal(reshard_checkpoint_piece(checkpoint, 0, 1, &piece), RESHARD_OK);
    assert_int_equal(piece.box.offset[0], 3);
    assert_int_equal(piece.strides[0], COLUMNS);
    assert_int_equal(piece.strides[1], 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(reshard_checkpoint_map_file(checkpoint, piece.file, &memory[i], &bytes),
                         RESHARD_OK);
    assert_int_equal(reshard_checkpoint_map_file(checkpoint, 3, &memory[0], &bytes),
                     RESHARD_ERR_RANGE);
    reshard_checkpoint_destroy(checkpoint);
    float *mine = (float *)(void *)((char *)memory[0] + piece.at);
    const float *other = (const float *)(const void *)((char *)memory[1] + piece.at);
    for (int64_t i = 0; i < 3 * COLUMNS; i++)
        assert_true(mine[i] == value_at(3 * COLUMNS + i));
    mine[0] = 1e9f;
    assert_true(other[0] == value_at(3 * COLUMNS));
    for (int i = 0; i < 2; i++)
        reshard_checkpoint_unmap_file(memory[i], bytes);
    remove_checkpoint();
}

/* ---- refusals -------------------------------------------------------------------------------- */

typedef struct refusal {
    const char *name, *spec;
    int64_t rows;
    int32_t odd_rank; /* passes something else; -1: none */
    bool saves;
    reshard_status status;
    const char *says;
    enum { ODD_NAME, ODD_DTYPE, ODD_SHAPE, ODD_OWNERS, ODD_CUT, ODD_MEMORY } odd;
} refusal;

static reshard_status be_refused(void *user, reshard_group *group)
{
    const refusal *f = user;
    static float memory[4][COLUMNS * COLUMNS];
    int32_t rank = reshard_group_rank(group);
    bool odd = rank == f->odd_rank;
    reshard_layout *layout = NULL;
    const int64_t turned[] = {COLUMNS, f->rows};
    if (!odd || f->odd != ODD_SHAPE)
        layout = make_layout(f->spec, f->rows);
    else if (reshard_layout_parse(NULL, f->spec, 2, turned, &layout) != RESHARD_OK)
        abort();
    if (odd && (f->odd == ODD_OWNERS || f->odd == ODD_CUT)) {
        reshard_layout_release(layout);
        layout = make_layout(f->odd == ODD_CUT ? "3: S(1)" : "3[1,0,2]: S(0)", f->rows);
    }
    void *shard = odd && f->odd == ODD_MEMORY ? NULL : memory[rank];
    reshard_live_tensor tensor = {odd && f->odd == ODD_NAME ? "odd" : f->name,
                                  odd && f->odd == ODD_DTYPE ? RESHARD_I32 : RESHARD_F32, layout,
                                  &shard};
    reshard_checkpoint *checkpoint = NULL;
    reshard_status status = RESHARD_OK;
    if (f->saves)
        status = reshard_checkpoint_save(NULL, group, path, 1, &tensor, NULL);
    else if (reshard_checkpoint_open(NULL, path, NULL, &checkpoint) == RESHARD_OK)
        status = reshard_checkpoint_load(checkpoint, group, 1, &tensor, NULL);
    reshard_checkpoint_destroy(checkpoint);
    reshard_layout_release(layout);
    bool said = status == f->status && strstr(reshard_error_text(), f->says) != NULL;
    if (said)
        return RESHARD_OK;
    char text[400];
    (void)snprintf(text, sizeof text, "%s: %s", reshard_status_name(status), reshard_error_text());
    return reshard_error_set(RESHARD_ERR_INVALID, text);
}

static void test_live__refusals(void **state)
{
    (void)state;
    static const refusal refusals[] = {
        {"w", "3: S(0)", ROWS, -1, true, RESHARD_ERR_INVALID, "exists already", ODD_NAME},
        {"v", "3: S(0)", ROWS, -1, false, RESHARD_ERR_NOT_FOUND, "\"v\"", ODD_NAME},
        {"w", "3: S(0)", 8, -1, false, RESHARD_ERR_MISMATCH, "8x700 here and 9x700 on disk",
         ODD_NAME},
        {"w", "3: P", ROWS, -1, false, RESHARD_ERR_UNSUPPORTED, "partial", ODD_NAME},
        {"w", "5: S(0)", ROWS, -1, false, RESHARD_ERR_RANGE, "has rank 3", ODD_NAME},
        {"w", "3: S(0)", ROWS, 1, false, RESHARD_ERR_INVALID,
         "tensor \"w\": shard 0 of rank 1 has no memory", ODD_MEMORY},
    };
    static const refusal new_ones[] = {
        {"w", "3: S(0)", ROWS, 2, true, RESHARD_ERR_MISMATCH,
         "rank 2: save: the list of tensors differs", ODD_NAME},
        {"w", "3: S(0)", ROWS, 1, true, RESHARD_ERR_MISMATCH,
         "rank 1: save: the list of tensors differs", ODD_DTYPE},
        {"w", "1: R", ROWS, 2, true, RESHARD_ERR_MISMATCH,
         "rank 2: save: the list of tensors differs", ODD_SHAPE},
        {"w", "3: S(0)", ROWS, 1, true, RESHARD_ERR_MISMATCH,
         "rank 1: save: the list of tensors differs", ODD_OWNERS},
        {"w", "3: S(0)", COLUMNS, 1, true, RESHARD_ERR_MISMATCH,
         "rank 1: save: the list of tensors differs", ODD_CUT},
        {"w", "3: P", ROWS, -1, true, RESHARD_ERR_UNSUPPORTED, "partial", ODD_NAME},
        {"w", "3: S(0)", ROWS, 1, true, RESHARD_ERR_INVALID,
         "tensor \"w\": shard 0 of rank 1 has no memory", ODD_MEMORY},
    };
    for (size_t i = 0; i < sizeof new_ones / sizeof *new_ones; i++) {
        if (reshard_group_run(NULL, 3, be_refused, (void *)(uintptr_t)&new_ones[i]) != RESHARD_OK)
            fail_msg("new %zu: %s", i, reshard_error_text());
        assert_int_equal(access(path, F_OK), -1);
        assert_int_equal(access(partial, F_OK), -1);
    }
    assert_int_equal(reshard_group_run(NULL, 3, save_rows, NULL), RESHARD_OK);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        if (reshard_group_run(NULL, 3, be_refused, (void *)(uintptr_t)&refusals[i]) != RESHARD_OK)
            fail_msg("%zu: %s", i, reshard_error_text());
    }
    remove_checkpoint();
}

/* What no caller means: a missing or empty path, a name that is missing, fewer tensors than
 * none. */
static reshard_status pass_nonsense(void *user, reshard_group *group)
{
    bool odd = reshard_group_rank(group) == 1; /* one rank alone; the others mean it */
    static float memory[2][COLUMNS * COLUMNS];
    void *shard = memory[reshard_group_rank(group)];
    reshard_layout *layout = make_layout("2: R", ROWS);
    reshard_live_tensor good = {"w", RESHARD_F32, layout, &shard}, nameless = good;
    reshard_checkpoint *checkpoint = NULL;
    nameless.name = NULL;
    (void)user;
    const reshard_status found[] = {
        reshard_checkpoint_save(NULL, group, odd ? NULL : path, 1, &good, NULL),
        reshard_checkpoint_save(NULL, group, odd ? "" : path, 1, &good, NULL),
        reshard_checkpoint_save(NULL, group, path, 1, odd ? &nameless : &good, NULL),
        reshard_checkpoint_save(NULL, group, path, odd ? -1 : 1, &good, NULL),
        reshard_checkpoint_save(NULL, group, path, 1, &good, NULL),
        reshard_checkpoint_open(NULL, path, NULL, &checkpoint),
        reshard_checkpoint_load(checkpoint, group, 1, odd ? &nameless : &good, NULL),
        reshard_checkpoint_load(checkpoint, group, odd ? -1 : 1, &good, NULL),
        reshard_checkpoint_load(checkpoint, group, odd ? -1 : 1, &good,
                                RESHARD_OPTIONS(reshard_checkpoint_load_options, .read_once = 1)),
        reshard_checkpoint_load(checkpoint, group, 1, &good, NULL),
    };
    static const reshard_status wanted[] = {
        RESHARD_ERR_INVALID, RESHARD_ERR_INVALID, RESHARD_ERR_INVALID, RESHARD_ERR_RANGE,
        RESHARD_OK,          RESHARD_OK,          RESHARD_ERR_INVALID, RESHARD_ERR_RANGE,
        RESHARD_ERR_RANGE,   RESHARD_OK};
    reshard_checkpoint_destroy(checkpoint);
    reshard_layout_release(layout);
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        char text[400];
        (void)snprintf(text, sizeof text, "call %zu: %s", i, reshard_status_name(found[i]));
        if (found[i] != wanted[i])
            return reshard_error_set(RESHARD_ERR_CHECK, text);
    }
    return RESHARD_OK;
}

static void test_live__nonsense(void **state)
{
    (void)state;
    if (reshard_group_run(NULL, 2, pass_nonsense, NULL) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    assert_int_equal(access(".partial", F_OK), -1);
    remove_checkpoint();
}

int main(void)
{
    if (mkdtemp(folder) == NULL)
        return 1;
    (void)snprintf(path, sizeof path, "%s/model", folder);
    (void)snprintf(partial, sizeof partial, "%s/model.partial", folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_live__there_and_back),
        cmocka_unit_test(test_live__casts),
        cmocka_unit_test(test_live__overflows_are_counted),
        cmocka_unit_test(test_live__padding_is_zero),
        cmocka_unit_test(test_live__refused_readings),
        cmocka_unit_test(test_live__maps),
        cmocka_unit_test(test_live__refusals),
        cmocka_unit_test(test_live__nonsense),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(folder);
    return failed;
}
