/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_upstream_tensors.c - PyTorch's own tests of gathering sharded tensors, of local shards and
 * of partial tensors, restated by their sizes, dtypes and specs. docs/pytorch.md tells which covers
 * which.
 */
#include "tests/support/check.h"
#include "tests/support/info.h"
#include "tests/tensor/cuts.h"
#include "tests/tensor/ran_tensor.h"

#include <string.h>

/* ---- gathering ------------------------------------------------------------------------------- */

typedef struct gathering {
    const char *spec;
    int64_t shape[2];
    int32_t root;
    const char *upstream;
} gathering;

static const gathering gatherings[] = {
    {"5[0,0,1,1,2]: S(0)", {10, 20}, 1, "test_gather_uneven"},
    {"10[0,0,1,1,1,2,2,2,3,3]: S(0)", {24, 12}, 0, NULL},
    {"boxes 10x10: 0[0:5,0:5] 1[0:5,5:10] 0[5:10,0:5] 3[5:10,5:10]",
     {10, 10},
     0,
     "test_gather_uneven"},
    {"boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]", {6, 6}, 3, NULL},
    {"boxes 16x20: 0[0:2,0:20] 1[2:4,0:20] 2[4:6,0:20] 3[6:8,0:20] 0[8:10,0:20] 1[10:12,0:20] "
     "2[12:14,0:20] 3[14:16,0:20]",
     {16, 20},
     2,
     NULL},
    /* the grid on all ranks, and on some */
    {"boxes 10x10: 0[0:5,0:5] 1[0:5,5:10] 2[5:10,0:5] 3[5:10,5:10]",
     {10, 10},
     0,
     "test_gather_even"},
    {"boxes 10x10: 0[0:5,0:5] 1[0:5,5:10] 0[5:10,0:5] 1[5:10,5:10]", {10, 10}, 3, NULL},
    {"4: S(0)", {10, 20}, 1, "test_gather_even"},
    {"4: S(0)", {2, 20}, 3, NULL}, /* ranks without rows take part */
    {"4: S(0)", {0, 20}, 0, NULL},
};

static reshard_status gather_as(const gathering *g, reshard_group *group, reshard_dtype dtype)
{
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *whole = make_zeros(dtype, 2, g->shape), *x = NULL, *all = NULL;
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        set_element(whole, i, (double)i + 1.0 / 3); /* needs all of a double */
    TRY(cut_directly(group, g->spec, whole, &x));
    TRY(reshard_tensor_gather(x, g->root, &all));
    ran_here(group, g->upstream, "%s, to %d", ran_tensor(x).text, (int)g->root);
    CHECK((all != NULL) == (rank == g->root));
    CHECK(all == NULL || is_close(all, whole, 0));
    if (info_tensor(x).local_shard_count > 1) { /* test_local_tensor_error */
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

static reshard_status gather_one(void *user, reshard_group *group)
{
    TRY(gather_as(user, group, RESHARD_F32));
    return gather_as(user, group, RESHARD_F64);
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
    CHECK(whole == NULL || (reshard_tensor_value(whole, &value) == RESHARD_OK && value == 0.1));
    reshard_tensor_release(whole);
    reshard_tensor_release(x);
    whole = NULL;
    const size_t bytes = 512 * 512 * 4;
    TRY(reshard_context_create(NULL, &context));
    TRY(reshard_tensor_create_distributed(context, group, rows, RESHARD_F32, SHAPE(512, 512), &x));
    size_t before = info_memory(context).bytes;
    reshard_context_reset_peak(context);
    TRY(reshard_tensor_gather(x, 1, &whole));
    CHECK(info_memory(context).bytes_peak - before < bytes / 16 + (rank == 1 ? bytes : 0));
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
    reshard_tensor *told = reshard_tensor_exchange(
        mine, sub, RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_BROADCAST, .root = root));
    CHECK(told != NULL && element(told, 1) == root);
    reshard_tensor *rows = reshard_tensor_exchange(
        mine, sub, RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER));
    CHECK(rows != NULL && element(rows, 0) == 0 && element(rows, 2) == 1 && element(rows, 4) == 2);
    static const int64_t send[3][3] = {{0, 1, 0}, {1, 0, 0}, {0, 0, 1}};
    reshard_tensor *sent = reshard_tensor_exchange(
        mine, sub,
        RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_TO_ALL_SINGLE,
                        .send_counts = send[rank], .receive_counts = send[rank]));
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
    MUST(reshard_tensor_fill_random(whole, RESHARD_UNIFORM, 2));
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
    ran_here(sub, "test_init_from_local_shards_new_group", "%s of %d,%d,%d", ran_tensor(x).text,
             (int)members[0], (int)members[1], (int)members[2]);
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
        reshard_shard shard = {.rank = (int32_t)(i % 4),
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

typedef struct grid {
    const char *upstream;
    int64_t side, length;
} grid;

static reshard_status use_grid(void *user, reshard_group *group)
{
    grid *g = user;
    int64_t shape[] = {g->length, g->length}, columns = g->length / g->side;
    int32_t rank = reshard_group_rank(group);
    reshard_spec *spec = NULL;
    reshard_tensor *x = NULL, *whole = make_zeros(RESHARD_F32, 2, shape), *cut = NULL;
    TRY(reshard_spec_callback(NULL, 0, tell_grid, &g->side, NULL, &spec));
    TRY(reshard_tensor_create_distributed(NULL, group, spec, RESHARD_F32, 2, shape, &x));
    TRY(reshard_tensor_fill(x, 1));
    ran_here(group, g->upstream, "%s, squares of %d",
             ran_shape(reshard_tensor_dtype(x), 2, reshard_tensor_shape(x)).text, (int)g->side);
    /* Upstream's class refuses to shard a tensor. */
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        set_element(whole, i, (double)i);
    TRY(reshard_tensor_shard(NULL, group, spec, 0, whole, &cut));
    CHECK(info_tensor(x).local_shard_count == columns * columns / 4);
    for (int64_t k = 0; k < columns * columns / 4; k++) {
        const reshard_tensor *shard = reshard_tensor_local_shard(x, k);
        int64_t square = 4 * k + rank;
        double corner =
            (double)(square / columns * g->side * g->length + square % columns * g->side);
        CHECK(reshard_tensor_shape(shard)[0] == g->side);
        for (int64_t i = 0; i < g->side * g->side; i++)
            CHECK(element(shard, i) == 1);
        CHECK(element(reshard_tensor_local_shard(cut, k), 0) == corner);
    }
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
    grid grids[] = {{"test_custom_sharding_spec", 4, 8},
                    {"test_custom_sharding_spec_tensor_ctor", 2, 4},
                    {"test_custom_sharding_spec_shard_tensor", 2, 8}};
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        if (reshard_group_run(NULL, 4, use_grid, &grids[i]) != RESHARD_OK)
            fail_msg("side %d: %s", (int)grids[i].side, reshard_error_text());
    }
}

/* ---- local tensors --------------------------------------------------------------------------- */

/* test_init_from_local_tensor: each rank wraps its chunk. */
static reshard_status wrap_local(void *user, reshard_group *group)
{
    static const struct {
        int32_t ndim;
        int64_t shape[3];
    } rows[] = {{2, {20, 10}}, {2, {21, 11}}, {2, {23, 16}}, {3, {44, 16, 8}}};
    static const char *const specs[] = {"4[2,3,1,0]: S(0)", "4[3,1,0,2]: S(1)", "4[2,3,0,1]: S(1)",
                                        "4[3,2,1,0]: S(0)"};
    (void)user;
    for (int k = 0; k < 16; k++) {
        int i = k / 4;
        const char *text = specs[k % 4];
        reshard_tensor *whole = make_zeros(RESHARD_F32, rows[i].ndim, rows[i].shape), *cut = NULL;
        MUST(reshard_tensor_fill_random(whole, RESHARD_UNIFORM, 3));
        TRY(cut_directly(group, text, whole, &cut));
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        reshard_tensor *x = local_as(reshard_tensor_to_local(cut, NULL), group, text);
        CHECK(x != NULL);
        CHECK(reshard_layout_equals(reshard_tensor_layout(x), reshard_tensor_layout(cut)));
        CHECK(is_close(reshard_tensor_full(x), whole, 0));
        ran_here(group, "test_init_from_local_tensor", "%s", ran_tensor(x).text);
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
    reshard_tensor *local = make_zeros(RESHARD_F32, 2, r->shape), *whole = NULL, *direct = NULL;
    whole = make_zeros(RESHARD_F32, 2, r->shape);
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
    ran_move("test_partial_tensor_reshard", x, y);
    TRY(reshard_scope_close(scope));
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

/* test_partial_tensor_reshard_errors: boxes of another shape; complex numbers, which have a sum and
 * no maximum. */
static reshard_status reduce_wrongly(void *user, reshard_group *group)
{
    static const char *const upstream = "test_partial_tensor_reshard_errors";
    static const int64_t shapes[][2] = {{52, 21}, {48, 22}};
    static const char *const ops[] = {"4: P(sum)", "4: P(max)"};
    (void)user;
    for (int i = 0; i < 4; i++) {
        reshard_dtype dtype = i < 2 ? RESHARD_F32 : RESHARD_C64;
        const char *to = i < 2 ? "boxes 10x5: 0[0:5,0:5] 1[5:10,0:5]" : "4[3,1,0,2]: S(0)";
        reshard_tensor *local = make_zeros(dtype, 2, shapes[i % 2]), *y = NULL;
        reshard_spec *spec = spec_of(to);
        float *parts = reshard_tensor_write(local);
        for (int64_t k = 0; k < reshard_tensor_volume(local) * (i < 2 ? 1 : 2); k++)
            parts[k] = (float)(k * (reshard_group_rank(group) + 1));
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        reshard_tensor *x = local_as(local, group, ops[i % 2]);
        ran_here(group, upstream, "%s %s -> %s",
                 ran_shape(dtype, 2, reshard_tensor_shape(local)).text, ops[i % 2],
                 ran_spec(spec).text);
        if (x != NULL)
            y = reshard_tensor_redistribute(x, spec, NULL);
        CHECK((y != NULL) == (i == 2));
        if (y != NULL) { /* rows of the chunk that this rank has */
            static const int64_t first[] = {26, 13, 39, 0};
            const float *sums = reshard_tensor_data(reshard_tensor_local_shard(y, 0));
            for (int64_t k = 0; k < 13 * 21 * 2; k++)
                CHECK(sums[k] == (float)(10 * (first[reshard_group_rank(group)] * 21 * 2 + k)));
        }
        CHECK((reshard_scope_close(scope) == RESHARD_OK) == (i == 2));
        reshard_spec_release(spec);
        reshard_tensor_release(local);
        TRY(reshard_group_barrier(group));
    }
    return RESHARD_OK;
}

static void test_partial_tensor_reshard_errors(void **state)
{
    (void)state;
    run_ranks(4, reduce_wrongly, NULL);
}

/* Each rank contributes its number plus one, times the element's index. */
static reshard_tensor *make_contribution(reshard_group *group, int64_t rows, int64_t columns)
{
    reshard_tensor *local = make_zeros(RESHARD_F32, SHAPE(rows, columns));
    for (int64_t i = 0; i < rows * columns; i++)
        set_element(local, i, (double)(i * (reshard_group_rank(group) + 1)));
    return local;
}

/* test_transpose, test_cat, test_cat_errors */
static reshard_status join_partials(void *user, reshard_group *group)
{
    static const int64_t sizes[][3][2] = {{{5, 10}, {3, 10}, {4, 10}}, {{5, 10}, {5, 12}, {5, 11}}};
    (void)user;
    for (int32_t dim = 0; dim < 2; dim++) {
        reshard_tensor *locals[3], *parts[3];
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        for (int i = 0; i < 3; i++) {
            locals[i] = make_contribution(group, sizes[dim][i][0], sizes[dim][i][1]);
            parts[i] = local_as(locals[i], group, "4: P(sum)");
            CHECK(parts[i] != NULL);
        }
        reshard_tensor *all = reshard_cat(3, parts, dim), *whole = reshard_tensor_full(all);
        CHECK(whole != NULL);
        ran_here(group, "test_cat", "%s, %s, %s, dim %d", ran_tensor(parts[0]).text,
                 ran_tensor(parts[1]).text, ran_tensor(parts[2]).text, (int)dim);
        int64_t at = 0;
        for (int i = 0; i < 3; i++) {
            const reshard_tensor *part = reshard_tensor_narrow(whole, dim, at, sizes[dim][i][dim]);
            CHECK(part != NULL);
            for (int64_t k = 0; k < reshard_tensor_volume(part); k++)
                CHECK(element(part, k) == (double)(10 * k));
            at += sizes[dim][i][dim];
        }
        CHECK(reshard_tensor_shape(whole)[dim] == at);
        reshard_tensor *turned = reshard_tensor_transpose(parts[0], 0, 1);
        ran_here(group, "test_transpose", "%s", ran_tensor(parts[0]).text);
        CHECK(reshard_tensor_shape(turned)[0] == 10 && reshard_tensor_shape(turned)[1] == 5);
        CHECK(element(reshard_tensor_full(turned), 1) == 100); /* row 1, column 0 of what it was */
        TRY(reshard_scope_close(scope));
        for (int i = 0; i < 3; i++)
            reshard_tensor_release(locals[i]);
    }
    for (int i = 0; i < 2; i++) { /* a partial tensor and a local one; two reductions */
        reshard_tensor *local = make_zeros(RESHARD_F32, SHAPE(10));
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        reshard_tensor *x = local_as(local, group, "4: P(sum)");
        reshard_tensor *other = i == 0 ? local : local_as(local, group, "4: P(max)");
        CHECK(x != NULL && other != NULL);
        ran_here(group, "test_cat_errors", "%s, %s", ran_tensor(x).text, ran_tensor(other).text);
        CHECK(reshard_cat(2, (reshard_tensor *[]){x, other}, 0) == NULL);
        CHECK(reshard_scope_close(scope) == RESHARD_ERR_INVALID);
        reshard_tensor_release(local);
        TRY(reshard_group_barrier(group));
    }
    return RESHARD_OK;
}

static void test_partial__transpose_and_cat(void **state)
{
    (void)state;
    run_ranks(4, join_partials, NULL);
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
    reshard_tensor *x = spread_random(group, "4: R", RESHARD_F32, SHAPE(12, 3), 1);
    reshard_spec *partial = spec_of("4: P(sum)"), *rows = spec_of("4: S(0)");
    CHECK(x != NULL);
    TRY(reshard_tensor_set_requires_grad(x, 1));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *local = reshard_tensor_to_local(x, partial);
    ran_here(group, "test_replicate_to_local_partial_grad", "%s, gradient %s", ran_tensor(x).text,
             ran_spec(partial).text);
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

static reshard_status declare_complex_gradient(void *user, reshard_group *group)
{
    (void)user;
    reshard_spec *everywhere = spec_of("4: R"), *partial = spec_of("4: P(sum)");
    reshard_tensor *x = NULL, *mine = make_zeros(RESHARD_C64, SHAPE(12, 3));
    float *parts = reshard_tensor_write(mine);
    for (int i = 0; i < 72; i++)
        parts[i] = (float)((reshard_group_rank(group) + 1) * (i % 2 == 0 ? 1 : -3));
    TRY(reshard_tensor_create_distributed(NULL, group, everywhere, RESHARD_C64, SHAPE(12, 3), &x));
    TRY(reshard_tensor_set_requires_grad(x, 1));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *local = reshard_tensor_to_local(x, partial);
    ran_here(group, "test_replicate_to_local_partial_grad", "%s, gradient %s", ran_tensor(x).text,
             ran_spec(partial).text);
    TRY(reshard_backward(local, mine, NULL));
    TRY(reshard_scope_close(scope));
    const float *sums =
        reshard_tensor_data(reshard_tensor_local_shard(reshard_tensor_gradient(x), 0));
    for (int i = 0; i < 72; i++)
        CHECK(sums[i] == (float)(i % 2 == 0 ? 10 : -30));
    reshard_tensor_release(mine);
    reshard_tensor_release(x);
    reshard_spec_release(everywhere);
    reshard_spec_release(partial);
    return RESHARD_OK;
}

static void test_replicate_to_local_partial_grad(void **state)
{
    (void)state;
    run_ranks(4, declare_gradient, NULL);
    run_ranks(4, declare_complex_gradient, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather__even_uneven_several_shards),
        cmocka_unit_test(test_gather__scalar_and_memory),
        cmocka_unit_test(test_new_group),
        cmocka_unit_test(test_custom_sharding_spec),
        cmocka_unit_test(test_init_from_local_tensor),
        cmocka_unit_test(test_partial_tensor_reshard),
        cmocka_unit_test(test_partial_tensor_reshard_errors),
        cmocka_unit_test(test_partial__transpose_and_cat),
        cmocka_unit_test(test_replicate_to_partial__exact),
        cmocka_unit_test(test_replicate_to_local_partial_grad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
