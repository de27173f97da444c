/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_upstream.c - PyTorch's own tests of reshard and redistribute, restated by their sizes and
 * specs. docs/pytorch.md tells which row covers which test. A move is
 * right when every shard, and the layout, are those of cutting the whole tensor directly; its
 * gradient is right when it is the gradient of the value, lying as the input does.
 */
#include "support/check.h"
#include "tensor/cuts.h"

#include <string.h>

/* ---- one move -------------------------------------------------------------------------------- */

typedef struct move {
    int32_t ranks, ndim;
    int64_t shape[4];
    char from[80], to[80];
} move;

/* The same spec with partial axes replicated. */
static void replicate(const char *text, char *out)
{
    for (; *text != '\0'; text++) {
        *out++ = *text == 'P' ? 'R' : *text;
        if (*text == 'P' && text[1] == '(')
            while (*text != ')')
                text++;
    }
    *out = '\0';
}

/* What a partial sum of equal contributions comes to. */
static double find_factor(const reshard_tensor *x)
{
    const reshard_spec *spec = reshard_layout_spec(reshard_tensor_layout(x));
    double factor = 1;
    for (int32_t i = 0; i < reshard_spec_cut_count(spec); i++) {
        const reshard_cut *cut = reshard_spec_cut(spec, i);
        if (cut->placement.kind == RESHARD_PARTIAL && cut->placement.reduction == RESHARD_SUM)
            factor *= reshard_mesh_axis_size(reshard_spec_mesh(spec), cut->axis);
    }
    return factor;
}

static reshard_status run_move(void *user, reshard_group *group)
{
    const move *m = user;
    reshard_tensor *whole = make_zeros(RESHARD_F64, m->ndim, m->shape), *cut = NULL, *direct = NULL;
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        set_element(whole, i, (double)i + 1);
    char from[80], to[80];
    replicate(m->from, from);
    replicate(m->to, to);
    TRY(cut_directly(group, from, whole, &cut));
    TRY(cut_directly(group, to, whole, &direct));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *x = cut, *local = NULL;
    if (strchr(m->from, 'P') != NULL) {
        local = reshard_tensor_detach(reshard_tensor_to_local(cut, NULL));
        TRY(reshard_tensor_set_requires_grad(local, 1));
        x = local_as(local, group, m->from);
    } else {
        TRY(reshard_tensor_set_requires_grad(cut, 1));
    }
    CHECK(x != NULL);
    double factor = find_factor(x);
    const void *before = reshard_tensor_local_shard_count(x) > 0
                             ? reshard_tensor_data(reshard_tensor_local_shard(x, 0))
                             : NULL;
    reshard_tensor *y = move_to(x, m->to);
    CHECK(y != NULL);
    /* The source is as before: nothing is changed in place. */
    CHECK(before == NULL || before == reshard_tensor_data(reshard_tensor_local_shard(x, 0)));
    if (strchr(m->to, 'P') == NULL) {
        TRY(same_shards(y, direct, factor));
        CHECK(reshard_layout_equals(reshard_tensor_layout(y), reshard_tensor_layout(direct)));
    }
    reshard_tensor *found = reshard_tensor_full(y);
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        CHECK(element(found, i) == factor * element(whole, i));
    (void)reshard_backward(found, whole, NULL);
    TRY(reshard_scope_status(scope));
    if (local != NULL) { /* every contribution gets the whole gradient */
        const reshard_tensor *expected = reshard_tensor_local_shard(cut, 0);
        CHECK(expected == NULL || is_close(reshard_tensor_gradient(local), expected, 0));
    } else {
        CHECK(reshard_layout_equals(reshard_tensor_layout(reshard_tensor_gradient(cut)),
                                    reshard_tensor_layout(cut)));
        TRY(same_shards(reshard_tensor_gradient(cut), cut, 1));
    }
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(cut);
    reshard_tensor_release(direct);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

static void check_move(const move *given)
{
    move m = *given;
    if (reshard_group_run(NULL, m.ranks, run_move, &m) != RESHARD_OK)
        fail_msg("%s to %s: %s", m.from, m.to, reshard_error_text());
}

static move make_move(int32_t ranks, int32_t ndim, const int64_t *shape, const char *from,
                      const char *to)
{
    move m = {.ranks = ranks, .ndim = ndim};
    memcpy(m.shape, shape, (size_t)ndim * sizeof *shape);
    (void)snprintf(m.from, sizeof m.from, "%s", from);
    (void)snprintf(m.to, sizeof m.to, "%s", to);
    return m;
}

/* ---- ShardedTensor.reshard ------------------------------------------------------------------- */

static void test_sharded_tensor_reshard(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{13, 21}, {14, 23}, {15, 26}, {12, 24}};
    /* Upstream's four, which are all their own inverse, and defect 1: cycles of three and four. */
    static const char *const orders[][2] = {{"0,1,3,2", "2,3,1,0"}, {"2,3,0,1", "1,0,3,2"},
                                            {"1,0,2,3", "3,2,0,1"}, {"3,2,1,0", "0,1,2,3"},
                                            {"0,1,2,3", "1,2,3,0"}, {"0,1,2,3", "1,2,0,3"}};
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            for (int dims = 0; dims < 4; dims++) {
                char from[80], to[80];
                (void)snprintf(from, sizeof from, "4[%s]: S(%d)", orders[o][0], dims / 2);
                (void)snprintf(to, sizeof to, "4[%s]: S(%d)", orders[o][1], dims % 2);
                move m = make_move(4, 2, shapes[s], from, to);
                check_move(&m);
            }
        }
    }
}

/* Defect 1 at length: all permutations of owners. */
static void test_reshard__every_permutation(void **state)
{
    (void)state;
    for (int32_t ranks = 2; ranks <= 4; ranks++) {
        int32_t total = ranks == 2 ? 2 : ranks == 3 ? 6 : 24;
        for (int32_t code = 0; code < total; code++) {
            int32_t items[4] = {0, 1, 2, 3}, rest = code;
            char list[40] = "", to[80], from[80];
            for (int32_t i = ranks; i > 0; i--) {
                int32_t pick = rest % i, rank = items[pick];
                rest /= i;
                memmove(items + pick, items + pick + 1, (size_t)(i - pick - 1) * sizeof *items);
                (void)snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d",
                               i < ranks ? "," : "", (int)rank);
            }
            (void)snprintf(from, sizeof from, "%d: S(0)", (int)ranks);
            (void)snprintf(to, sizeof to, "%d[%s]: S(0)", (int)ranks, list);
            move m = make_move(ranks, 2, (int64_t[]){2 * ranks + 1, 2}, from, to);
            check_move(&m);
        }
    }
}

/* What upstream refuses or hangs on: enumerable targets, several local shards, fewer ranks. */
static void test_sharded_tensor_reshard_errors(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "4[2,0,3,1]: S(0)",
        "boxes 24x12: 0[0:12,0:6] 1[0:12,6:12] 2[12:24,0:6] 3[12:24,6:12]",
        "boxes 24x12: 0[0:6,0:12] 1[6:12,0:12] 0[12:18,0:12] 2[18:24,0:12]",
        "2[3,1]: S(1)",
        "1[2]: S(0)",
        "4: S(-1)", /* defect 8: dim -1 is dim 1 */
        "4: S(1)",
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
            move m = {.ranks = 4, .ndim = 2, .shape = {24, 12}};
            (void)snprintf(m.from, sizeof m.from, "%.79s", specs[i]);
            (void)snprintf(m.to, sizeof m.to, "%.79s", specs[k]);
            check_move(&m);
        }
    }
}

/* Every length by every number of ranks, empty shards included (defects 4 and 5). */
static void test_reshard__every_small_length(void **state)
{
    (void)state;
    for (int64_t n = 0; n <= 17; n++) {
        for (int32_t ranks = 1; ranks <= 8; ranks += n % 2 == 0 ? 1 : 3) {
            char from[80], to[80];
            (void)snprintf(from, sizeof from, "%d: S(0)", (int)ranks);
            (void)snprintf(to, sizeof to, "%d: S(1)", (int)ranks);
            move m = make_move(ranks, 2, (int64_t[]){n, 3}, from, to);
            check_move(&m);
        }
    }
}

/* ---- DTensor.redistribute -------------------------------------------------------------------- */

/* Whether a move sends anything, from its plan. */
static bool sends(const move *m)
{
    reshard_layout *from = NULL, *to = NULL;
    reshard_plan *plan = NULL;
    reshard_plan_stats stats;
    MUST(reshard_layout_parse(NULL, m->from, m->ndim, m->shape, &from));
    MUST(reshard_layout_parse(NULL, m->to, m->ndim, m->shape, &to));
    MUST(reshard_plan_create_simple(NULL, from, to, RESHARD_F32, NULL, &plan));
    MUST(reshard_plan_get_stats(plan, &stats, NULL));
    reshard_plan_release(plan);
    reshard_layout_release(from);
    reshard_layout_release(to);
    return stats.bytes_moved != 0;
}

static void test_redistribute__one_axis(void **state)
{
    (void)state;
    static const struct {
        int64_t shape[2];
        int dim;
    } sizes[] = {{{12, 3}, 0}, {{13, 3}, 0}, {{14, 3}, 0},
                 {{3, 12}, 1}, {{3, 13}, 1}, {{3, 14}, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char cut[32];
        (void)snprintf(cut, sizeof cut, "4: S(%d)", sizes[i].dim);
        struct {
            const char *from, *to;
            bool sends;
        } rows[] = {{cut, "4: R", true},
                    {"4: R", cut, false},
                    {"4: P(sum)", "4: R", true},
                    {"4: P(sum)", cut, true},
                    {"4: R", "4: P(sum)", false},
                    {"4: R", "4: R", false},
                    {cut, cut, false},
                    {"4: P(sum)", "4: P(sum)", false},
                    {cut, "4: P(sum)", false}};
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            move m = make_move(4, 2, sizes[i].shape, rows[k].from, rows[k].to);
            check_move(&m);
            assert_int_equal(sends(&m), rows[k].sends);
        }
    }
}

/* test_redistribute_negative_shard_dim, _uneven_sharding, test_one_chunk_mesh, _to_partial, and the
 * pairs of test_redistribute_shard_dim_change on one and two axes. */
static void test_redistribute__more_axes(void **state)
{
    (void)state;
    static const move rows[] = {
        {4, 2, {12, 3}, "4: S(-1)", "4: R"},
        {4, 2, {12, 3}, "4: R", "4: S(-1)"},
        {4, 2, {10, 5}, "2,2: S(0), S(0)", "2,2: R, R"},
        {4, 2, {9, 5}, "2,2: S(0), S(0)", "2,2: R, R"},
        {4, 2, {3, 5}, "2,2: S(0), S(0)", "2,2: R, R"},
        {4, 2, {1, 3}, "2,2: S(0), S(0)", "2,2: R, R"},
        {4, 2, {10, 5}, "2,2: S(0), S(1)", "2,2: R, R"},
        {4, 2, {9, 5}, "2,2: S(0), S(1)", "2,2: R, R"},
        {4, 2, {3, 5}, "2,2: S(0), S(1)", "2,2: R, R"},
        {4, 2, {1, 3}, "2,2: S(0), S(1)", "2,2: R, R"},
        {4, 2, {8, 8}, "4: S(0)", "4: S(1)"},
        {4, 3, {8, 8, 8}, "4: S(1)", "4: S(2)"},
        {4, 2, {8, 5}, "4: S(0)", "4: S(1)"},
        {4, 2, {5, 8}, "4: S(1)", "4: S(0)"},
        {4, 2, {5, 5}, "4: S(0)", "4: S(1)"},
        {4, 2, {8, 8}, "2,2: S(0), S(1)", "2,2: S(0), S(0)"},
        {4, 2, {8, 8}, "2,2: S(0), S(1)", "2,2: S(1), S(0)"},
        {4, 2, {8, 8}, "2,2: S(0), S(0)", "2,2: S(1), S(1)"},
        {4, 3, {8, 8, 8}, "2,2: S(1), S(1)", "2,2: S(1), S(2)"},
        {4, 2, {16, 8}, "4,1: S(0), S(1)", "4,1: R, R"},
        {4, 2, {12, 8}, "2,2: R, R", "2,2: P(sum), R"},
        {4, 2, {12, 8}, "2,2: S(0), R", "2,2: P(sum), S(1)"},
        {8, 3, {8, 8, 8}, "2,2,2: S(0), S(0), S(0)", "2,2,2: S(1), S(1), S(1)"},
        {8, 3, {8, 8, 8}, "2,2,2: S(0), S(1), S(2)", "2,2,2: S(2), S(1), S(0)"},
        {8, 3, {8, 8, 8}, "2,2,2: S(1), R, S(0)", "2,2,2: R, S(0), S(0)"},
        /* shard orders and strided shards (defects 16 and 17), other meshes (defect 20) */
        {8, 2, {16, 8}, "a=2,b=2,c=2: S(0)@c, S(0)@a, S(0)@b", "a=2,b=2,c=2: S(0)@b, S(0)@a"},
        {8, 2, {17, 5}, "a=2,b=2,c=2: S(0)@c, S(0)@a", "a=2,b=2,c=2: S(1)@b, S(0)@c"},
        {8, 4, {33, 4, 2, 1}, "a=2,b=4: S(0)@b, S(0)@a", "a=2,b=4: S(0)@a, S(0)@b"},
        {8, 3, {13, 2, 13}, "2,4: S(0), S(2)", "4,2: S(2), S(0)"},
        {3, 1, {7}, "3: S(0*3)", "3: S(0)"},
        {4, 1, {9}, "4: S(0)", "4: S(0*2)"},
        {4, 1, {13}, "2,2: S(0), S(0)", "4: S(0)"},
        {4, 1, {10}, "2,2: S(0), S(0)", "4: S(0)"},
        {5, 2, {7, 4}, "2[0,1]: S(0)", "3[4,2,3]: S(1)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_move(&rows[i]);
}

static void test_multi_dim_mesh(void **state)
{
    (void)state;
    static const char *const cuts[] = {"R", "S(0)", "S(1)", "P(sum)"};
    for (int from = 0; from < 16; from++) {
        for (int to = 0; to < 9; to++) {
            move m = {.ranks = 8, .ndim = 2, .shape = {16, 24}};
            (void)snprintf(m.from, sizeof m.from, "4,2: %s, %s", cuts[from / 4], cuts[from % 4]);
            (void)snprintf(m.to, sizeof m.to, "4,2: %s, %s", cuts[to / 3], cuts[to % 3]);
            check_move(&m);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sharded_tensor_reshard),
        cmocka_unit_test(test_reshard__every_permutation),
        cmocka_unit_test(test_sharded_tensor_reshard_errors),
        cmocka_unit_test(test_reshard__every_small_length),
        cmocka_unit_test(test_redistribute__one_axis),
        cmocka_unit_test(test_redistribute__more_axes),
        cmocka_unit_test(test_multi_dim_mesh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
