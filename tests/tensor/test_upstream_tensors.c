/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_upstream_tensors.c - PyTorch's own tests of making and gathering sharded tensors and of
 * partial tensors, restated by their sizes and specs. docs/pytorch.md tells which covers which.
 */
#include "tests/support/check.h"
#include "tests/tensor/cuts.h"

#include <math.h>
#include <string.h>

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
    {"4: S(0)", {8, 2}, {2, 2, 2, 2}, {2, 2, 2, 2}, {0, 2, 4, 6}, 0},
    {"4: S(0)", {8, 8}, {2, 2, 2, 2}, {8, 8, 8, 8}, {0, 2, 4, 6}, 0},
};

/* A tensor of rank 2, cut by the same spec: each rank has the rows and columns of its offset. */
static reshard_status check_cut(const creation *c, reshard_group *group,
                                const reshard_shards *shards, reshard_spec *spec)
{
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *given = NULL, *cut = NULL;
    if (rank == 2) {
        given = make_zeros(RESHARD_F64, 2, c->shape);
        for (int64_t i = 0; i < reshard_tensor_volume(given); i++)
            set_element(given, i, (double)i);
        TRY(reshard_tensor_set_requires_grad(given, 1));
    }
    TRY(reshard_tensor_shard(NULL, group, spec, 2, given, &cut));
    CHECK(reshard_tensor_requires_grad(cut));
    for (int64_t i = 0; c->rows[rank] > 0 && i < c->rows[rank] * c->columns[rank]; i++) {
        int64_t row = shards->items[0].offset[0] + i / c->columns[rank];
        int64_t column = shards->items[0].offset[1] + i % c->columns[rank];
        CHECK(element(reshard_tensor_local_shard(cut, 0), i) ==
              (double)(row * c->shape[1] + column));
    }
    reshard_tensor_release(given);
    reshard_tensor_release(cut);
    return RESHARD_OK;
}

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
    /* *_like: another tensor of the same layout, of its own. */
    reshard_tensor *like = NULL;
    reshard_spec *same = reshard_spec_retain(reshard_layout_spec(reshard_tensor_layout(x)));
    TRY(reshard_tensor_create_distributed(NULL, group, same, RESHARD_F64, 2, c->shape, &like));
    CHECK(reshard_layout_equals(reshard_tensor_layout(x), reshard_tensor_layout(like)));
    TRY(reshard_tensor_fill(like, 1));
    TRY(check_cut(c, group, shards, spec));
    reshard_spec_release(same);
    reshard_tensor_release(like);
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

/* Numbers by global index, the same for any layout and number of ranks. */
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
        run_ranks(ranks, create_random, NULL);
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
    /* the grid on all ranks, and on some */
    {"boxes 10x10: 0[0:5,0:5] 1[0:5,5:10] 2[5:10,0:5] 3[5:10,5:10]", {10, 10}, 0},
    {"boxes 10x10: 0[0:5,0:5] 1[0:5,5:10] 0[5:10,0:5] 1[5:10,5:10]", {10, 10}, 3},
    /* ten placements on four ranks, the last two without rows */
    {"boxes 24x12: 0[0:3,0:12] 1[3:6,0:12] 2[6:9,0:12] 3[9:12,0:12] 0[12:15,0:12] 1[15:18,0:12] "
     "2[18:21,0:12] 3[21:24,0:12] 0[24:24,0:12] 1[24:24,0:12]",
     {24, 12},
     0},
    {"4: S(0)", {10, 20}, 1},
    {"4: S(0)", {2, 20}, 3}, /* ranks without rows take part */
    {"4: S(0)", {0, 20}, 0},
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

/* A scalar; and the memory that the root needs: the result, not so much from each rank. */
static reshard_status gather_in_place(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group);
    reshard_context *context = NULL;
    reshard_spec *rows = spec_of("4: S(0)"), *all = spec_of("4: R");
    reshard_tensor *x = NULL, *whole = NULL;
    double value = 0;
    TRY(reshard_tensor_create_distributed(NULL, group, all, RESHARD_F64, 0, NULL, &x));
    TRY(reshard_tensor_fill(x, 0.1));
    TRY(reshard_tensor_gather(x, 2, &whole));
    CHECK((whole != NULL) == (rank == 2));
    CHECK(whole == NULL || (reshard_tensor_item(whole, &value) == RESHARD_OK && value == 0.1));
    reshard_tensor_release(whole);
    reshard_tensor_release(x);
    whole = NULL;
    const size_t bytes = 512 * 512 * 4;
    TRY(reshard_context_create(NULL, &context));
    TRY(reshard_tensor_create_distributed(context, group, rows, RESHARD_F32, SHAPE(512, 512), &x));
    size_t before = reshard_context_bytes(context);
    reshard_context_reset_peak(context);
    TRY(reshard_tensor_gather(x, 1, &whole));
    CHECK(reshard_context_bytes_peak(context) - before < bytes / 16 + (rank == 1 ? bytes : 0));
    reshard_tensor_release(whole);
    reshard_tensor_release(x);
    reshard_context_destroy(context);
    reshard_spec_release(rows);
    reshard_spec_release(all);
    return RESHARD_OK;
}

static void test_gather__scalar_and_memory(void **state)
{
    (void)state;
    run_ranks(4, gather_in_place, NULL);
}

/* ---- sub-groups ------------------------------------------------------------------------------ */

/* Uneven moves between dims, and collectives whose root is named by its rank in the sub-group. */
static reshard_status move_in_sub_group(reshard_group *sub)
{
    int32_t rank = reshard_group_rank(sub), root = 2;
    reshard_tensor *whole = make_zeros(RESHARD_F64, SHAPE(13, 21)), *x = NULL, *direct = NULL;
    for (int64_t i = 0; i < 273; i++)
        set_element(whole, i, (double)i);
    TRY(cut_directly(sub, "3[2,0,1]: S(0)", whole, &x));
    TRY(cut_directly(sub, "3[1,2,0]: S(1)", whole, &direct));
    reshard_tensor *mine = make_zeros(RESHARD_F64, SHAPE(1, 2));
    MUST(reshard_tensor_fill(mine, rank));
    TRY(reshard_tensor_set_requires_grad(mine, 1));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = move_to(x, "3[1,2,0]: S(1)");
    CHECK(y != NULL);
    TRY(same_shards(y, direct, 1));
    reshard_tensor *told = reshard_tensor_broadcast_from(mine, sub, root);
    CHECK(told != NULL && element(told, 1) == root);
    reshard_tensor *rows = reshard_tensor_all_gather(mine, sub);
    CHECK(rows != NULL && element(rows, 0) == 0 && element(rows, 2) == 1 && element(rows, 4) == 2);
    static const int64_t send[3][3] = {{0, 1, 0}, {1, 0, 0}, {0, 0, 1}};
    reshard_tensor *sent = reshard_tensor_all_to_all(mine, sub, send[rank], send[rank]);
    CHECK(sent != NULL && element(sent, 0) == (rank == 2 ? 2 : 1 - rank));
    (void)reshard_backward(reshard_sum(told), NULL, NULL);
    TRY(reshard_scope_close(scope));
    CHECK(element(reshard_tensor_gradient(mine), 0) == (rank == root ? 3 : 0));
    reshard_tensor_release(mine);
    reshard_tensor_release(x);
    reshard_tensor_release(direct);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

/* Also test_init_from_local_shards_new_group. */
static reshard_status use_sub_group(void *user, reshard_group *group)
{
    const int32_t *members = user;
    reshard_group *sub = NULL;
    TRY(reshard_group_subset(group, 3, members, &sub));
    if (sub == NULL)
        return RESHARD_OK;
    reshard_tensor *whole = make_zeros(RESHARD_F32, SHAPE(10, 20)), *x = NULL, *all = NULL;
    MUST(reshard_tensor_fill_uniform(whole, 2));
    TRY(cut_directly(sub, "3: S(0)", whole, &x));
    for (int32_t root = 0; root < 3; root++) { /* every root works, by its rank in the sub-group */
        TRY(reshard_tensor_gather(x, root, &all));
        CHECK((all != NULL) == (reshard_group_rank(group) == members[root]));
        CHECK(all == NULL || is_close(all, whole, 0));
        reshard_tensor_release(all);
        all = NULL;
    }
    reshard_tensor_release(x);
    reshard_local_shard shard = {0};
    shard.tensor = make_zeros(RESHARD_F32, SHAPE(5, 5));
    shard.offset[0] = 5 * reshard_group_rank(sub);
    TRY(reshard_tensor_from_shards(NULL, sub, SHAPE(15, 5), 1, &shard, &x));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    CHECK(move_to(x, "3[1,2,0]: S(1)") != NULL);
    TRY(reshard_scope_close(scope));
    TRY(move_in_sub_group(sub));
    reshard_tensor_release(shard.tensor);
    reshard_tensor_release(x);
    reshard_tensor_release(whole);
    reshard_group_release(sub);
    return RESHARD_OK;
}

static void test_new_group(void **state)
{
    (void)state;
    int32_t members[][3] = {{1, 2, 3}, {3, 0, 2}};
    for (int i = 0; i < 2; i++) {
        run_ranks(4, use_sub_group, members[i]);
    }
}

/* ---- a user's own spec ----------------------------------------------------------------------- */

/* Squares of a side, handed to ranks in turn. */
static reshard_status tell_grid(void *user, int32_t ndim, const int64_t *shape,
                                reshard_shard_sink *sink)
{
    int64_t side = *(const int64_t *)user, columns = shape[1] / side;
    (void)ndim;
    for (int64_t i = 0; i < shape[0] / side * columns; i++) {
        reshard_piece piece = {.box = {.ndim = 2,
                                       .offset = {i / columns * side, i % columns * side},
                                       .size = {side, side}},
                               .strides = {side, 1}};
        reshard_shard shard = {.rank = (int32_t)i,
                               .ndim = 2,
                               .shape = {side, side},
                               .piece_count = 1,
                               .pieces = &piece};
        reshard_status status = reshard_shard_sink_add(sink, &shard);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static reshard_status use_grid(void *user, reshard_group *group)
{
    int64_t side = *(const int64_t *)user;
    int64_t shape[] = {2 * side, 2 * side};
    int32_t rank = reshard_group_rank(group);
    reshard_spec *spec = NULL;
    reshard_tensor *x = NULL, *whole = make_zeros(RESHARD_F64, 2, shape), *cut = NULL;
    TRY(reshard_spec_callback(NULL, 0, tell_grid, &side, NULL, &spec));
    TRY(reshard_tensor_create_distributed(NULL, group, spec, RESHARD_F64, 2, shape, &x));
    TRY(reshard_tensor_fill(x, 1));
    CHECK(reshard_tensor_shape(reshard_tensor_local_shard(x, 0))[0] == side);
    for (int64_t i = 0; i < side * side; i++)
        CHECK(element(reshard_tensor_local_shard(x, 0), i) == 1);
    /* Upstream's class refuses to shard a tensor. */
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        set_element(whole, i, (double)i);
    TRY(reshard_tensor_shard(NULL, group, spec, 0, whole, &cut));
    double corner = (double)(rank / 2 * side * 2 * side + rank % 2 * side);
    CHECK(element(reshard_tensor_local_shard(cut, 0), 0) == corner);
    reshard_tensor *again = whole_of(cut);
    CHECK(is_close(again, whole, 0));
    reshard_tensor_release(again);
    reshard_tensor_release(cut);
    reshard_tensor_release(x);
    reshard_tensor_release(whole);
    reshard_spec_release(spec);
    return RESHARD_OK;
}

static void test_custom_sharding_spec(void **state)
{
    (void)state;
    for (int64_t side = 2; side <= 4; side += 2) {
        if (reshard_group_run(NULL, 4, use_grid, &side) != RESHARD_OK)
            fail_msg("side %d: %s", (int)side, reshard_error_text());
    }
}

/* ---- local tensors --------------------------------------------------------------------------- */

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
    run_ranks(4, wrap_local, NULL);
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
        /* dim 1 of 21 over 4, fewer chunks than ranks, an enumerable target */
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

/* A whole tensor becomes contributions of any reduction, and is bit for bit itself again. */
static reshard_status contribute(void *user, reshard_group *group)
{
    (void)user;
    static const reshard_dtype dtypes[] = {RESHARD_I64, RESHARD_I8, RESHARD_F32, RESHARD_F64};
    static const char *const ops[] = {"sum", "avg", "prod", "min", "max"};
    static const char *const froms[] = {"4: R", "4: S(0)", "2,2: S(1), R", "4: P(max)"};
    for (int i = 0; i < 4 * 5 * 4; i++) {
        reshard_dtype dtype = dtypes[i / 20];
        bool counts = dtype == RESHARD_I64 || dtype == RESHARD_I8;
        char text[32];
        (void)snprintf(text, sizeof text, "4: P(%s)", ops[i / 4 % 5]);
        if (counts && i / 4 % 5 == 1) /* an average of integers is no integer */
            continue;
        reshard_tensor *whole = make_zeros(dtype, SHAPE(5, 3)), *x = NULL;
        for (int64_t k = 0; k < 15; k++)
            set_element(whole, k,
                        dtype == RESHARD_I64 ? 16777217.0 + (double)k
                        : counts             ? (double)(k * 9 - 60)
                                             : ((double)k - 7) / 3);
        TRY(cut_directly(group, i % 4 == 3 ? "4: R" : froms[i % 4], whole, &x));
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        reshard_tensor *from = x;
        if (i % 4 == 3)
            from = local_as(reshard_tensor_to_local(x, NULL), group, froms[3]);
        reshard_tensor *found = reshard_tensor_full(move_to(from, text));
        CHECK(found != NULL && reshard_tensor_dtype(found) == dtype);
        CHECK(is_close(found, whole, 0));
        TRY(reshard_scope_close(scope));
        reshard_tensor_release(x);
        reshard_tensor_release(whole);
    }
    return RESHARD_OK;
}

static void test_replicate_to_partial__exact(void **state)
{
    (void)state;
    run_ranks(4, contribute, NULL);
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
    run_ranks(4, declare_gradient, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create__metadata_and_full),
        cmocka_unit_test(test_create__random),
        cmocka_unit_test(test_gather__even_uneven_several_shards),
        cmocka_unit_test(test_gather__scalar_and_memory),
        cmocka_unit_test(test_new_group),
        cmocka_unit_test(test_custom_sharding_spec),
        cmocka_unit_test(test_init_from_local_tensor),
        cmocka_unit_test(test_partial_tensor_reshard),
        cmocka_unit_test(test_replicate_to_partial__exact),
        cmocka_unit_test(test_replicate_to_local_partial_grad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
