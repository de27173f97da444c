/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_upstream.c - PyTorch's own tests of sharded tensors, partial tensors and redistribute,
 * restated by their sizes and specs. docs/pytorch.md tells which row covers which test. A move is
 * right when every shard, and the layout, are those of cutting the whole tensor directly; its
 * gradient is right when it is the gradient of the value, lying as the input does.
 */
#include "support/check.h"
#include "tensor/ranks.h"

#include <math.h>
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

static reshard_status same_shards(const reshard_tensor *a, const reshard_tensor *b, double factor)
{
    CHECK(reshard_tensor_local_shard_count(a) == reshard_tensor_local_shard_count(b));
    for (int64_t i = 0; i < reshard_tensor_local_shard_count(a); i++) {
        const reshard_tensor *x = reshard_tensor_local_shard(a, i);
        const reshard_tensor *y = reshard_tensor_local_shard(b, i);
        CHECK(reshard_tensor_ndim(x) == reshard_tensor_ndim(y));
        for (int32_t d = 0; d < reshard_tensor_ndim(x); d++)
            CHECK(reshard_tensor_shape(x)[d] == reshard_tensor_shape(y)[d]);
        for (int64_t k = 0; k < reshard_tensor_volume(x); k++)
            CHECK(element(x, k) == factor * element(y, k));
    }
    return RESHARD_OK;
}

static reshard_status cut_directly(reshard_group *group, const char *text, reshard_tensor *whole,
                                   reshard_tensor **out_tensor)
{
    reshard_spec *spec = spec_of(text);
    reshard_status status = reshard_tensor_shard(NULL, group, spec, 0, whole, out_tensor);
    reshard_spec_release(spec);
    return status;
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

/* ---- creating, metadata, gathering ----------------------------------------------------------- */

typedef struct creation {
    const char *spec;
    int64_t shape[2];
    int64_t rows[4], columns[4], offset[4]; /* by rank; rows -1: no shard */
    int32_t dim;
} creation;

static const creation creations[] = {
    {"4: S(0)", {10, 20}, {3, 3, 3, 1}, {20, 20, 20, 20}, {0, 3, 6, 9}, 0},
    {"4: S(-2)", {10, 20}, {3, 3, 3, 1}, {20, 20, 20, 20}, {0, 3, 6, 9}, 0},
    {"4: S(1)", {10, 32}, {10, 10, 10, 10}, {8, 8, 8, 8}, {0, 8, 16, 24}, 1},
    {"4: S(-1)", {10, 32}, {10, 10, 10, 10}, {8, 8, 8, 8}, {0, 8, 16, 24}, 1},
    {"4: S(0)", {12, 12}, {3, 3, 3, 3}, {12, 12, 12, 12}, {0, 3, 6, 9}, 0},
    {"4: S(0)", {9, 12}, {3, 3, 3, 0}, {12, 12, 12, 12}, {0, 3, 6, 9}, 0},
    {"4: S(0)", {2, 20}, {1, 1, 0, 0}, {20, 20, 20, 20}, {0, 1, 2, 2}, 0},
    {"4: S(0)", {5, 2}, {2, 2, 1, 0}, {2, 2, 2, 2}, {0, 2, 4, 5}, 0},
    {"2[2,3]: S(0)", {10, 20}, {-1, -1, 5, 5}, {0, 0, 20, 20}, {0, 0, 0, 5}, 0},
    {"4[2,3,0,1]: S(0)", {24, 12}, {6, 6, 6, 6}, {12, 12, 12, 12}, {12, 18, 0, 6}, 0},
};

static reshard_status create_one(void *user, reshard_group *group)
{
    const creation *c = user;
    int32_t rank = reshard_group_rank(group);
    reshard_spec *spec = spec_of(c->spec);
    reshard_tensor *x = NULL, *whole = NULL;
    reshard_shards *shards = NULL;
    TRY(reshard_tensor_create_distributed(NULL, group, spec, RESHARD_I32, 2, c->shape, &x));
    CHECK(reshard_tensor_dtype(x) == RESHARD_I32 && reshard_tensor_shape(x)[0] == c->shape[0]);
    CHECK(reshard_tensor_group(x) == group && !reshard_tensor_requires_grad(x));
    TRY(reshard_layout_shards(reshard_tensor_layout(x), rank, &shards));
    CHECK(reshard_tensor_local_shard_count(x) == (c->rows[rank] >= 0));
    if (c->rows[rank] >= 0) {
        const reshard_tensor *shard = reshard_tensor_local_shard(x, 0);
        CHECK(reshard_tensor_shape(shard)[0] == c->rows[rank]);
        CHECK(reshard_tensor_shape(shard)[1] == c->columns[rank]);
        CHECK(shards->items[0].offset[c->dim] == c->offset[rank]);
        for (int64_t i = 0; i < reshard_tensor_volume(shard); i++)
            CHECK(element(shard, i) == 0);
    }
    TRY(reshard_tensor_fill(x, 1234));
    whole = whole_of(x);
    CHECK(whole != NULL);
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        CHECK(element(whole, i) == 1234);
    reshard_shards_destroy(shards);
    reshard_tensor_release(whole);
    reshard_tensor_release(x);
    reshard_spec_release(spec);
    return RESHARD_OK;
}

static void test_create__metadata_and_full(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof creations / sizeof *creations; i++) {
        creation c = creations[i];
        if (reshard_group_run(NULL, 4, create_one, &c) != RESHARD_OK)
            fail_msg("%s: %s", c.spec, reshard_error_text());
    }
}

/* Defect 22: numbers by global index, the same for any layout and number of ranks. */
static reshard_status create_random(void *user, reshard_group *group)
{
    (void)user;
    static const char *const specs[] = {"%d: S(0)", "%d: S(1)", "%d: R", "%d: S(flat)"};
    reshard_tensor *alone = make_zeros(RESHARD_F32, SHAPE(10, 20));
    for (int normal = 0; normal < 2; normal++) {
        MUST(normal ? reshard_tensor_fill_normal(alone, 5) : reshard_tensor_fill_uniform(alone, 5));
        double mean = 0, square = 0;
        for (int64_t i = 0; i < 200; i++) {
            mean += element(alone, i) / 200;
            square += element(alone, i) * element(alone, i) / 200;
            CHECK(normal || (element(alone, i) >= 0 && element(alone, i) < 1));
            for (int64_t k = 0; k < i; k++)
                CHECK(element(alone, i) != element(alone, k));
        }
        CHECK(fabs(mean - (normal ? 0 : 0.5)) < 0.2);
        CHECK(fabs(square - mean * mean - (normal ? 1 : 1.0 / 12)) < 0.3);
        for (int i = 0; i < 4; i++) {
            char text[32];
            (void)snprintf(text, sizeof text, specs[i], (int)reshard_group_size(group));
            reshard_tensor *x = spread_random(group, text, RESHARD_F32, SHAPE(10, 20), 5);
            CHECK(x != NULL);
            if (normal)
                MUST(reshard_tensor_fill_normal(x, 5));
            reshard_tensor *whole = whole_of(x);
            CHECK(is_close(whole, alone, 0));
            reshard_tensor_release(whole);
            reshard_tensor_release(x);
        }
    }
    reshard_tensor_release(alone);
    return RESHARD_OK;
}

static void test_create__random(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= 5; ranks++) {
        if (reshard_group_run(NULL, ranks, create_random, NULL) != RESHARD_OK)
            fail_msg("%s", reshard_error_text());
    }
}

typedef struct gathering {
    const char *spec;
    int64_t shape[2];
    int32_t root;
} gathering;

static const gathering gatherings[] = {
    {"boxes 10x20: 0[0:2,0:20] 0[2:4,0:20] 1[4:6,0:20] 1[6:8,0:20] 2[8:10,0:20]", {10, 20}, 1},
    {"boxes 10x10: 0[0:5,0:5] 1[0:5,5:10] 0[5:10,0:5] 3[5:10,5:10]", {10, 10}, 0},
    {"boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]", {6, 6}, 3},
    {"boxes 16x20: 0[0:2,0:20] 1[2:4,0:20] 2[4:6,0:20] 3[6:8,0:20] 0[8:10,0:20] 1[10:12,0:20] "
     "2[12:14,0:20] 3[14:16,0:20]",
     {16, 20},
     2},
    {"4: S(0)", {10, 20}, 1},
    {"4: S(0)", {2, 20}, 3}, /* defect 13: ranks without rows take part */
};

static reshard_status gather_one(void *user, reshard_group *group)
{
    const gathering *g = user;
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *whole = make_zeros(RESHARD_F64, 2, g->shape), *x = NULL, *all = NULL;
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        set_element(whole, i, (double)i + 1.0 / 3); /* needs all of a double */
    TRY(cut_directly(group, g->spec, whole, &x));
    TRY(reshard_tensor_gather(x, g->root, &all));
    CHECK((all != NULL) == (rank == g->root));
    CHECK(all == NULL || is_close(all, whole, 0));
    if (reshard_tensor_local_shard_count(x) > 1) { /* test_local_tensor_error */
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        CHECK(reshard_tensor_to_local(x, NULL) == NULL);
        CHECK(reshard_scope_close(scope) == RESHARD_ERR_UNSUPPORTED);
    }
    reshard_tensor_release(all);
    reshard_tensor_release(x);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

static void test_gather__even_uneven_several_shards(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof gatherings / sizeof *gatherings; i++) {
        gathering g = gatherings[i];
        if (reshard_group_run(NULL, 4, gather_one, &g) != RESHARD_OK)
            fail_msg("%s: %s", g.spec, reshard_error_text());
    }
}

/* test_new_group, test_init_from_local_shards_new_group; defect 12: ranks are the sub-group's. */
static reshard_status use_sub_group(void *user, reshard_group *group)
{
    (void)user;
    static const int32_t members[] = {1, 2, 3};
    reshard_group *sub = NULL;
    TRY(reshard_group_subset(group, 3, members, &sub));
    if (sub == NULL)
        return RESHARD_OK;
    reshard_tensor *whole = make_zeros(RESHARD_F32, SHAPE(10, 20)), *x = NULL, *all = NULL;
    MUST(reshard_tensor_fill_uniform(whole, 2));
    TRY(cut_directly(sub, "3: S(0)", whole, &x));
    TRY(reshard_tensor_gather(x, 2, &all));
    CHECK((all != NULL) == (reshard_group_rank(group) == 3));
    CHECK(all == NULL || is_close(all, whole, 0));
    reshard_tensor_release(x);
    reshard_local_shard shard = {0};
    shard.tensor = make_zeros(RESHARD_F32, SHAPE(5, 5));
    shard.offset[0] = 5 * reshard_group_rank(sub);
    TRY(reshard_tensor_from_shards(NULL, sub, SHAPE(15, 5), 1, &shard, &x));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    CHECK(move_to(x, "3[1,2,0]: S(1)") != NULL);
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(shard.tensor);
    reshard_tensor_release(all);
    reshard_tensor_release(x);
    reshard_tensor_release(whole);
    reshard_group_release(sub);
    return RESHARD_OK;
}

static void test_new_group(void **state)
{
    (void)state;
    if (reshard_group_run(NULL, 4, use_sub_group, NULL) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
}

/* test_init_from_local_tensor: each rank wraps its chunk. */
static reshard_status wrap_local(void *user, reshard_group *group)
{
    static const struct {
        int32_t ndim, dim;
        int64_t shape[3];
    } rows[] = {{2, 0, {20, 10}}, {2, 1, {21, 11}}, {2, 1, {23, 16}}, {3, 0, {44, 16, 8}}};
    (void)user;
    for (int i = 0; i < 4; i++) {
        char text[40];
        (void)snprintf(text, sizeof text, "4[2,0,3,1]: S(%d)", (int)rows[i].dim);
        reshard_tensor *whole = make_zeros(RESHARD_F32, rows[i].ndim, rows[i].shape), *cut = NULL;
        MUST(reshard_tensor_fill_uniform(whole, 3));
        TRY(cut_directly(group, text, whole, &cut));
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        reshard_tensor *x = local_as(reshard_tensor_to_local(cut, NULL), group, text);
        CHECK(x != NULL);
        CHECK(reshard_layout_equals(reshard_tensor_layout(x), reshard_tensor_layout(cut)));
        CHECK(is_close(reshard_tensor_full(x), whole, 0));
        TRY(reshard_scope_close(scope));
        reshard_tensor_release(cut);
        reshard_tensor_release(whole);
    }
    return RESHARD_OK;
}

static void test_init_from_local_tensor(void **state)
{
    (void)state;
    if (reshard_group_run(NULL, 4, wrap_local, NULL) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
}

/* ---- _PartialTensor -------------------------------------------------------------------------- */

typedef struct reduction {
    int64_t shape[2];
    const char *op, *to;
} reduction;

static reshard_status reduce_one(void *user, reshard_group *group)
{
    const reduction *r = user;
    int32_t rank = reshard_group_rank(group);
    char text[32];
    (void)snprintf(text, sizeof text, "4: P(%s)", r->op);
    reshard_tensor *local = make_zeros(RESHARD_F64, 2, r->shape), *whole = NULL, *direct = NULL;
    whole = make_zeros(RESHARD_F64, 2, r->shape);
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++) {
        double values[4], sum = 0, most = -1;
        for (int s = 0; s < 4; s++) {
            values[s] = (double)(draw_hash((uint64_t)s, (uint64_t)i) % 1000);
            sum += values[s];
            most = values[s] > most ? values[s] : most;
        }
        set_element(local, i, values[rank]);
        set_element(whole, i, strcmp(r->op, "sum") == 0 ? sum : most);
    }
    TRY(cut_directly(group, r->to, whole, &direct));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *x = local_as(local, group, text), *y = move_to(x, r->to);
    CHECK(y != NULL);
    TRY(same_shards(y, direct, 1));
    /* test_transpose, test_cat */
    reshard_tensor *turned = reshard_tensor_full(reshard_tensor_transpose(x, 0, 1));
    CHECK(turned != NULL && is_close(reshard_tensor_transpose(turned, 0, 1), whole, 0));
    reshard_tensor *twice = reshard_tensor_full(reshard_cat(2, (reshard_tensor *[]){x, x}, 0));
    CHECK(twice != NULL && reshard_tensor_shape(twice)[0] == 2 * r->shape[0]);
    CHECK(is_close(reshard_tensor_narrow(twice, 0, r->shape[0], r->shape[0]), whole, 0));
    CHECK(reshard_cat(2, (reshard_tensor *[]){x, y}, 0) == NULL);
    CHECK(reshard_scope_close(scope) == RESHARD_ERR_INVALID);
    reshard_tensor_release(direct);
    reshard_tensor_release(whole);
    reshard_tensor_release(local);
    return RESHARD_OK;
}

static void test_partial_tensor_reshard(void **state)
{
    (void)state;
    static const reduction rows[] = {
        {{52, 21}, "sum", "4[3,1,0,2]: S(0)"},
        {{48, 22}, "max", "4[3,1,0,2]: S(0)"},
        {{39, 21}, "sum", "4[3,1,0,2]: S(0)"},
        {{34, 21}, "max", "4[3,1,0,2]: S(0)"},
        /* defect 6: dim 1 of 21 over 4, fewer chunks than ranks, an enumerable target */
        {{13, 21}, "sum", "4: S(1)"},
        {{5, 3}, "sum", "4: S(0)"},
        {{6, 3}, "max", "4: S(0)"},
        {{4, 4}, "sum", "boxes 4x4: 1[0:4,0:1] 3[0:4,1:4]"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reduction r = rows[i];
        if (reshard_group_run(NULL, 4, reduce_one, &r) != RESHARD_OK)
            fail_msg("%s to %s: %s", r.op, r.to, reshard_error_text());
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

/* test_replicate_to_local_partial_grad: the gradients of local tensors add up. */
static reshard_status declare_gradient(void *user, reshard_group *group)
{
    (void)user;
    reshard_tensor *x = spread_random(group, "4: R", RESHARD_F64, SHAPE(12, 3), 1);
    reshard_spec *partial = spec_of("4: P(sum)"), *rows = spec_of("4: S(0)");
    CHECK(x != NULL);
    TRY(reshard_tensor_set_requires_grad(x, 1));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *local = reshard_tensor_to_local(x, partial);
    (void)reshard_backward(reshard_sum(reshard_scale(local, 1 + reshard_group_rank(group))), NULL,
                           NULL);
    TRY(reshard_scope_close(scope));
    CHECK(element(reshard_tensor_local_shard(reshard_tensor_gradient(x), 0), 35) == 10);
    /* A caller may ask for the layout of the gradient on its way. */
    reshard_tensor_clear_gradient(x);
    reshard_redistribute_options options = {.size = sizeof options, .gradient_spec = rows};
    TRY(reshard_scope_open(NULL, &scope));
    (void)reshard_backward(
        reshard_sum(reshard_tensor_full(reshard_tensor_redistribute(x, partial, &options))), NULL,
        NULL);
    /* Gradients that do not lie as the tensor would are refused. */
    TRY(reshard_scope_status(scope));
    CHECK(reshard_tensor_to_local(x, rows) == NULL);
    CHECK(reshard_scope_close(scope) == RESHARD_ERR_INVALID);
    CHECK(element(reshard_tensor_local_shard(reshard_tensor_gradient(x), 0), 35) == 1);
    reshard_tensor_release(x);
    reshard_spec_release(partial);
    reshard_spec_release(rows);
    return RESHARD_OK;
}

static void test_replicate_to_local_partial_grad(void **state)
{
    (void)state;
    if (reshard_group_run(NULL, 4, declare_gradient, NULL) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sharded_tensor_reshard),
        cmocka_unit_test(test_reshard__every_permutation),
        cmocka_unit_test(test_sharded_tensor_reshard_errors),
        cmocka_unit_test(test_reshard__every_small_length),
        cmocka_unit_test(test_create__metadata_and_full),
        cmocka_unit_test(test_create__random),
        cmocka_unit_test(test_gather__even_uneven_several_shards),
        cmocka_unit_test(test_new_group),
        cmocka_unit_test(test_init_from_local_tensor),
        cmocka_unit_test(test_partial_tensor_reshard),
        cmocka_unit_test(test_redistribute__one_axis),
        cmocka_unit_test(test_redistribute__more_axes),
        cmocka_unit_test(test_multi_dim_mesh),
        cmocka_unit_test(test_replicate_to_local_partial_grad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
