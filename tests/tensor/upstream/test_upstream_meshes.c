/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_upstream_meshes.c - PyTorch's tests of redistribute over meshes of several axes, restated by
 * their sizes and specs. Upstream counts collectives; here every redistribute is one plan, so a
 * small model of upstream's plan counts them, and tells how much each of them sends: a move here
 * sends no more than that, and nothing where upstream has no communication.
 */
#include "tests/tensor/upstream/moves.h"

/* ---- what upstream would do ------------------------------------------------------------------ */

enum { AXES_MAX = 3 };

/* Placements are letters, one for each axis: R, P (a sum), or the dim that is cut. */
typedef struct mesh_move {
    int32_t axes, sizes[AXES_MAX], ndim;
    int64_t shape[4];
    char from[AXES_MAX + 1], to[AXES_MAX + 1];
    const char *upstream; /* the test of PyTorch's that has this move, or NULL */
    bool complex_too;
} mesh_move;

typedef struct traffic {
    int count;        /* collectives */
    int64_t elements; /* sent by all ranks together, padding included */
} traffic;

static bool is_cut(char placement)
{
    return placement >= '0' && placement <= '9';
}

static int64_t pad(int64_t length, int64_t parts)
{
    return (length + parts - 1) / parts * parts;
}

/* The collective that takes axis m from one placement to another. */
static void add_step(const mesh_move *mm, const char *current, int32_t m, char to, traffic *all)
{
    int64_t length[4], volume = 1, ranks = 1, n = mm->sizes[m];
    char from = current[m];
    memcpy(length, mm->shape, sizeof length);
    for (int32_t a = 0; a < mm->axes; a++) {
        ranks *= mm->sizes[a];
        if (a != m && is_cut(current[a]))
            length[current[a] - '0'] = pad(length[current[a] - '0'], mm->sizes[a]) / mm->sizes[a];
    }
    if (n == 1 || from == to || from == 'R')
        return;
    if (is_cut(from))
        length[from - '0'] = pad(length[from - '0'], n);
    if (is_cut(to))
        length[to - '0'] = pad(length[to - '0'], n);
    for (int32_t d = 0; d < mm->ndim; d++)
        volume *= length[d];
    all->count++;
    if (is_cut(from) && is_cut(to)) /* all_to_all */
        all->elements += ranks * (n - 1) * volume / n / n;
    else /* an all_reduce is a reduce_scatter and an all_gather */
        all->elements += ranks * (n - 1) * volume / n * (from == 'P' && to == 'R' ? 2 : 1);
}

static bool cut_alike_before(const mesh_move *mm, const char *current, int32_t m, char dim)
{
    for (int32_t a = 0; a < m; a++) {
        if ((current[a] == dim) != (mm->to[a] == dim))
            return false;
    }
    return true;
}

/* Upstream's greedy plan: from the last axis to the first, cuts that the target nests otherwise are
 * gathered; then from the first to the last, each axis goes to its target. */
static traffic model_upstream(const mesh_move *mm)
{
    traffic all = {0, 0};
    char current[AXES_MAX + 1];
    int64_t sharded = 1;
    memcpy(current, mm->from, sizeof current);
    for (int32_t a = 0; a < mm->axes; a++)
        sharded *= is_cut(current[a]) ? mm->sizes[a] : 1;
    for (int32_t m = mm->axes - 1; m >= 0 && sharded > 1; m--) {
        char want = mm->to[m];
        if (is_cut(want) && !cut_alike_before(mm, current, m, want))
            want = 'R';
        add_step(mm, current, m, want, &all);
        current[m] = want;
    }
    for (int32_t m = 0; m < mm->axes; m++) {
        add_step(mm, current, m, mm->to[m], &all);
        current[m] = mm->to[m];
    }
    return all;
}

static void write_spec(const mesh_move *mm, const char *placements, char *text, size_t capacity)
{
    size_t used = 0;
    for (int32_t a = 0; a < mm->axes; a++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%d", a > 0 ? "," : "",
                                 (int)mm->sizes[a]);
    for (int32_t a = 0; a < mm->axes; a++) {
        const char *before = a == 0 ? ": " : ", ";
        if (is_cut(placements[a]))
            used +=
                (size_t)snprintf(text + used, capacity - used, "%sS(%c)", before, placements[a]);
        else
            used += (size_t)snprintf(text + used, capacity - used, "%s%c", before, placements[a]);
    }
}

static move spell(const mesh_move *mm)
{
    move m = {.ranks = 1, .ndim = mm->ndim};
    memcpy(m.shape, mm->shape, sizeof m.shape);
    for (int32_t a = 0; a < mm->axes; a++)
        m.ranks *= mm->sizes[a];
    write_spec(mm, mm->from, m.from, sizeof m.from);
    write_spec(mm, mm->to, m.to, sizeof m.to);
    return m;
}

/* The intermediate layout of a sum cuts rows first; where the source cuts columns already, some of
 * its parts are summed up by ranks that have none of them. */
static bool is_exception(const move *m)
{
    return strcmp(m->from, "4,2: S(1), P") == 0 &&
           (strcmp(m->to, "4,2: R, R") == 0 || strcmp(m->to, "4,2: R, S(0)") == 0);
}

/* The move is right, and sends no more than upstream's collectives. Gives their number. */
static int check_mesh_move(const mesh_move *mm)
{
    move m = spell(mm);
    traffic upstream = model_upstream(mm);
    int64_t bytes = find_bytes_moved(&m, RESHARD_F32);
    if (mm->complex_too)
        check_moves_of(mm->upstream, m);
    else
        check_move_of(mm->upstream, m);
    if (bytes * 5 > 4 * upstream.elements * (is_exception(&m) ? 6 : 5))
        fail_msg("%s to %s sends %lld bytes, and upstream's %d collectives %lld", m.from, m.to,
                 (long long)bytes, upstream.count, 4 * (long long)upstream.elements);
    return upstream.count;
}

/* ---- cuts that change their dim -------------------------------------------------------------- */

static void test_redistribute_shard_dim_change(void **state)
{
    (void)state;
    static const struct {
        int32_t ndim;
        int64_t shape[4];
    } sizes[] = {{2, {8, 8}}, {3, {8, 8, 8}}, {2, {8, 5}}, {2, {5, 8}}, {2, {5, 5}}};
    static const struct {
        int32_t axes, ndim_min;
        char from[4], to[4];
        int count;
    } pairs[] = {{1, 2, "0", "1", 1},   {1, 2, "1", "0", 1},   {1, 3, "1", "2", 1},
                 {1, 3, "2", "0", 1},   {2, 2, "01", "00", 1}, {2, 2, "01", "10", 2},
                 {2, 2, "00", "11", 2}, {2, 3, "02", "10", 2}, {2, 3, "11", "12", 1}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
            mesh_move mm = {.axes = pairs[p].axes,
                            .ndim = sizes[s].ndim,
                            .upstream = "test_redistribute_shard_dim_change",
                            .complex_too = true};
            if (mm.ndim < pairs[p].ndim_min)
                continue;
            mm.sizes[0] = mm.axes == 1 ? 4 : 2;
            mm.sizes[1] = 2;
            memcpy(mm.shape, sizes[s].shape, sizeof mm.shape);
            memcpy(mm.from, pairs[p].from, sizeof mm.from);
            memcpy(mm.to, pairs[p].to, sizeof mm.to);
            assert_int_equal(check_mesh_move(&mm), pairs[p].count);
        }
    }
}

static void test_redistribute_shard_dim_multi_dim_mesh(void **state)
{
    (void)state;
    static const struct {
        char from[4], to[4];
        int count;
    } pairs[] = {{"000", "111", 3}, {"010", "100", 3}, {"012", "210", 2},
                 {"100", "R00", 1}, {"1R0", "R00", 2}, {"001", "012", 2}};
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        mesh_move mm = {.axes = 3,
                        .sizes = {2, 2, 2},
                        .ndim = 3,
                        .shape = {8, 8, 8},
                        .upstream = "test_redistribute_shard_dim_multi_dim_mesh"};
        memcpy(mm.from, pairs[p].from, sizeof mm.from);
        memcpy(mm.to, pairs[p].to, sizeof mm.to);
        assert_int_equal(check_mesh_move(&mm), pairs[p].count);
    }
}

/* Also test_redistribute_negative_shard_dim. */
static void test_redistribute_uneven_sharding(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{10, 5}, {9, 5}, {3, 5}, {1, 3}};
    for (int i = 0; i < 8; i++) {
        mesh_move mm = {.axes = 2,
                        .sizes = {2, 2},
                        .ndim = 2,
                        .from = "00",
                        .to = "RR",
                        .upstream = "test_redistribute_uneven_sharding"};
        memcpy(mm.shape, shapes[i / 2], sizeof shapes[0]);
        mm.from[1] = i % 2 == 0 ? '0' : '1';
        (void)check_mesh_move(&mm);
    }
    static const char *const pairs[][2] = {
        {"4: S(1)", "4: S(-1)"}, {"4: S(-1)", "4: R"}, {"4: R", "4: S(-1)"}};
    for (int i = 0; i < 3; i++)
        check_move_of("test_redistribute_negative_shard_dim",
                      make_move(4, 2, (int64_t[]){12, 3}, pairs[i][0], pairs[i][1]));
}

/* An axis of one rank moves nothing, whatever it does. Where rows are cut, each rank has 16x8. */
static void test_one_chunk_mesh(void **state)
{
    (void)state;
    static const char placements[] = "R01P";
    for (int i = 0; i < 4 * 4 * 3; i++) {
        mesh_move mm = {.axes = 2,
                        .sizes = {4, 1},
                        .ndim = 2,
                        .shape = {64, 8},
                        .upstream = "test_one_chunk_mesh"};
        mm.from[0] = mm.to[0] = placements[i / 12];
        mm.from[1] = placements[i / 3 % 4];
        mm.to[1] = placements[i % 3];
        assert_int_equal(check_mesh_move(&mm), 0);
    }
}

/* Upstream refuses most partial targets; here all are legal. Its tensors are 12x8 on each rank. */
static void test_redistribute_to_partial(void **state)
{
    (void)state;
    static const struct {
        int64_t shape[2];
        const char *from, *to;
    } rows[] = {{{24, 8}, "2,2: P, S(0)", "2,2: P, S(0)"},
                {{24, 8}, "2,2: P, S(0)", "2,2: P, S(1)"},
                {{24, 8}, "2,2: S(0), P", "2,2: R, P"},
                {{24, 8}, "2,2: S(0), P(prod)", "2,2: R, P(prod)"},
                {{24, 8}, "2,2: S(0), R", "2,2: S(0), P"},
                {{24, 8}, "2,2: S(0), R", "2,2: R, P"},
                {{24, 16}, "2,2: S(0), S(1)", "2,2: R, P"},
                {{24, 8}, "2,2: S(0), P(prod)", "2,2: R, P(sum)"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_move_of("test_redistribute_to_partial",
                      make_move(4, 2, rows[i].shape, rows[i].from, rows[i].to));
    check_move_of("test_redistribute_partial_to_different_partial_not_supported",
                  make_move(8, 2, (int64_t[]){4, 4}, "8: P(sum)", "8: P(avg)"));
    static const char placements[] = "R01P";
    for (int i = 0; i < 16 * 16; i++) {
        mesh_move mm = {.axes = 2, .sizes = {2, 2}, .ndim = 2, .shape = {12, 8}};
        mm.from[0] = placements[i / 64];
        mm.from[1] = placements[i / 16 % 4];
        mm.to[0] = placements[i / 4 % 4];
        mm.to[1] = placements[i % 4];
        if (strchr(mm.to, 'P') == NULL)
            continue;
        move m = spell(&mm);
        check_move(&m);
    }
}

/* Averages of sums, between as many contributions with other divisors. */
static void test_redistribute__averages(void **state)
{
    (void)state;
    static const char *const specs[] = {"2,2: P(sum), P(avg)", "2,2: P(avg), P(sum)",
                                        "2,2: P(avg), P(avg)", "4: P(avg)", "4: P(sum)"};
    for (int i = 0; i < 25; i++) {
        /* What mixes the two can only come from what does so alike. */
        if (i % 5 >= 2 || i / 5 == i % 5) {
            move m = make_move(4, 2, (int64_t[]){5, 3}, specs[i / 5], specs[i % 5]);
            check_move(&m);
        }
    }
}

static void test_multi_dim_mesh(void **state)
{
    (void)state;
    static const char placements[] = "R01P";
    for (int i = 0; i < 16 * 9; i++) {
        mesh_move mm = {.axes = 2,
                        .sizes = {4, 2},
                        .ndim = 2,
                        .shape = {16, 24},
                        .upstream = "test_multi_dim_mesh"};
        mm.from[0] = placements[i / 36];
        mm.from[1] = placements[i / 9 % 4];
        mm.to[0] = placements[i / 3 % 3];
        mm.to[1] = placements[i % 3];
        (void)check_mesh_move(&mm);
    }
}

/* ---- collectives that upstream merges -------------------------------------------------------- */

/* One collective over all the axes that change, for 16^3 elements on 8 ranks: an all_gather of g
 * ranks brings each of them all but its own part of what it has then, a reduce_scatter sends as
 * much, an all_reduce twice that. */
static void test_redistribute__merged_collectives(void **state)
{
    (void)state;
    static const struct {
        int32_t axes;
        int32_t sizes[AXES_MAX];
        char from[4], to[4];
        int64_t merged_ranks, times, part; /* each rank has 1/part of the whole then */
    } rows[] = {
        {2, {4, 2}, "00", "RR", 8, 1, 1},
        {2, {4, 2}, "01", "RR", 8, 1, 1},
        {2, {4, 2}, "10", "RR", 8, 1, 1},
        {2, {4, 2}, "PP", "RR", 8, 2, 1},
        {2, {4, 2}, "PP", "00", 8, 1, 1},
        {2, {4, 2}, "PP", "01", 8, 1, 1},
        {2, {4, 2}, "P0", "R0", 4, 2, 2},
        {2, {4, 2}, "0P", "0R", 2, 2, 4},
        {3, {2, 2, 2}, "000", "RRR", 8, 1, 1},
        {3, {2, 2, 2}, "012", "RRR", 8, 1, 1},
        {3, {2, 2, 2}, "PPP", "RRR", 8, 2, 1},
        {3, {2, 2, 2}, "PPP", "000", 8, 1, 1},
        {3, {2, 2, 2}, "PPP", "012", 8, 1, 1},
        {3, {2, 2, 2}, "1PP", "1RR", 4, 2, 2},
        {3, {2, 2, 2}, "P1P", "R1R", 4, 2, 2},
        {3, {2, 2, 2}, "001", "RR1", 4, 1, 2},
        {3, {2, 2, 2}, "PP1", "001", 4, 1, 2},
        {3, {2, 2, 2}, "R01", "RRR", 4, 1, 1},
        {3, {2, 2, 2}, "PRP", "RRR", 4, 2, 1},
        {3, {2, 2, 2}, "PPR", "01R", 4, 1, 1},
        /* not merged: as much as the collectives one by one */
        {3, {2, 2, 2}, "PP0", "000", 0, 0, 1},
        {3, {2, 2, 2}, "P0P", "RRR", 0, 0, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mesh_move mm = {.axes = rows[i].axes,
                        .ndim = 3,
                        .shape = {16, 16, 16},
                        .upstream = "test_multi_dim_redistribute"};
        memcpy(mm.sizes, rows[i].sizes, sizeof mm.sizes);
        memcpy(mm.from, rows[i].from, sizeof mm.from);
        memcpy(mm.to, rows[i].to, sizeof mm.to);
        (void)check_mesh_move(&mm);
        if (rows[i].merged_ranks == 0)
            continue;
        move m = spell(&mm);
        int64_t n = rows[i].merged_ranks;
        int64_t most = 4 * 8 * (16 * 16 * 16 / rows[i].part) * (n - 1) / n * rows[i].times;
        int64_t bytes = find_bytes_moved(&m, RESHARD_F32);
        if (bytes > most)
            fail_msg("%s to %s sends %lld bytes, one collective %lld", m.from, m.to,
                     (long long)bytes, (long long)most);
    }
}

/* The same moves, of 8x8, on which upstream tries what it merges. Where rows are cut, each rank has
 * 8x8. */
static void test_redistribute__merging_rules(void **state)
{
    (void)state;
    static const struct {
        const char *upstream;
        int64_t rows;
        char from[4];
    } rows[] = {{"test_merging_reductions", 8, "PPP"},
                {"test_merging_reductions", 8, "PPR"},
                {"test_merging_reductions", 8, "PRP"},
                {"test_merging_reductions", 16, "P0P"},
                {"test_no_flattened_mesh_returns_original", 8, "PRP"},
                {"test_consecutive_reductions_flattened", 8, "PPR"},
                {"test_non_consecutive_dims_not_merged", 8, "P0P"},
                {"test_all_dims_flattened", 8, "PPP"},
                {"test_single_reduction_not_flattened", 8, "PRR"},
                {"test_all_gathers_grouped", 8, "00R"},
                {"test_mixed_collective_types_not_grouped", 8, "P0R"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mesh_move mm = {.axes = 3,
                        .sizes = {2, 2, 2},
                        .ndim = 2,
                        .shape = {rows[i].rows, 8},
                        .to = "RRR",
                        .upstream = rows[i].upstream};
        memcpy(mm.from, rows[i].from, sizeof mm.from);
        (void)check_mesh_move(&mm);
    }
}

/* ---- other meshes ---------------------------------------------------------------------------- */

static void test_redistribute__other_meshes(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks, ndim;
        int64_t shape[3];
        const char *from, *to;
    } rows[] = {
        {8, 3, {13, 2, 13}, "2,4: S(0), S(2)", "4,2: S(2), S(0)"},
        {5, 2, {7, 4}, "2[0,1]: S(0)", "3[4,2,3]: S(1)"},
        {6, 2, {7, 4}, "2,2[0..3]: S(0), S(1)", "6: S(0)"},
        {6, 2, {7, 4}, "3: S(0)", "2,3: R, S(1)"},
        {5, 2, {7, 4}, "2[0,1]: P", "3[4,2,3]: S(1)"},
        /* halves of one contribution come from ranks 0 and 1, of the other one from 3 and 2 */
        {5, 2, {8, 4}, "2,2[0,1,3,2]: P, R", "1[4]: R"},
        {5, 2, {7, 4}, "2[0,1]: S(0)", "3[4,2,3]: P"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        move m = make_move(rows[i].ranks, rows[i].ndim, rows[i].shape, rows[i].from, rows[i].to);
        check_move(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redistribute_shard_dim_change),
        cmocka_unit_test(test_redistribute_shard_dim_multi_dim_mesh),
        cmocka_unit_test(test_redistribute_uneven_sharding),
        cmocka_unit_test(test_one_chunk_mesh),
        cmocka_unit_test(test_redistribute_to_partial),
        cmocka_unit_test(test_redistribute__averages),
        cmocka_unit_test(test_multi_dim_mesh),
        cmocka_unit_test(test_redistribute__merged_collectives),
        cmocka_unit_test(test_redistribute__merging_rules),
        cmocka_unit_test(test_redistribute__other_meshes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
