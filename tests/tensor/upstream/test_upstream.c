/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_upstream.c - PyTorch's own tests of reshard and redistribute, restated by their sizes,
 * dtypes and specs, which tests/upstream holds against PyTorch's. docs/pytorch.md tells which row
 * covers which test. Meshes of several axes are in test_upstream_meshes.c.
 */
#include "tests/tensor/upstream/moves.h"

#include "layout/layout.h"

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
                check_move_of("test_sharded_tensor_reshard", make_move(4, 2, shapes[s], from, to));
            }
        }
    }
}

/* Defect 1 at length: all permutations of owners. */
static void test_reshard__every_permutation(void **state)
{
    (void)state;
    int32_t total = 1;
    for (int32_t ranks = 2; ranks <= 5; ranks++) {
        total *= ranks;
        for (int32_t code = 0; code < total; code++) {
            int32_t items[5] = {0, 1, 2, 3, 4}, rest = code;
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

/* Upstream's enumerable target is none of a tensor of this size. */
static reshard_status refuse_boxes(void *user, reshard_group *group)
{
    (void)user;
    reshard_tensor *x = spread_random(group, "4[3,2,1,0]: S(0)", RESHARD_F32, SHAPE(24, 12), 1);
    reshard_spec *boxes = spec_of("boxes 10x5: 0[0:5,0:5] 1[5:10,0:5]");
    reshard_scope *scope = NULL;
    CHECK(x != NULL);
    TRY(reshard_scope_open(NULL, &scope));
    ran_here(group, "test_sharded_tensor_reshard_errors", "%s -> %s", ran_tensor(x).text,
             ran_spec(boxes).text);
    CHECK(reshard_tensor_redistribute(x, boxes, NULL) == NULL);
    CHECK(reshard_scope_close(scope) != RESHARD_OK);
    CHECK(strstr(reshard_error_text(), "10x5") != NULL);
    reshard_spec_release(boxes);
    reshard_tensor_release(x);
    return reshard_group_barrier(group);
}

/* What upstream refuses or hangs on: enumerable targets, several local shards, fewer ranks. */
static void test_sharded_tensor_reshard_errors(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "4[3,2,1,0]: S(0)",
        "4[0,2,3,1]: S(1)",
        /* two shards on each rank */
        ("boxes 24x12: 0[0:3,0:12] 0[3:6,0:12] 1[6:9,0:12] 1[9:12,0:12] 2[12:15,0:12] "
         "2[15:18,0:12] 3[18:21,0:12] 3[21:24,0:12]"),
        "boxes 24x12: 0[0:12,0:6] 1[0:12,6:12] 2[12:24,0:6] 3[12:24,6:12]",
        "boxes 24x12: 0[0:6,0:12] 1[6:12,0:12] 0[12:18,0:12] 2[18:24,0:12]",
        "2[3,1]: S(1)",
        "1[2]: S(0)",
        "4: S(-1)", /* defect 8: dim -1 is dim 1 */
        "4: S(1)",
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
            check_move_of("test_sharded_tensor_reshard_errors",
                          make_move(4, 2, (int64_t[]){24, 12}, specs[i], specs[k]));
        }
    }
    run_ranks(4, refuse_boxes, NULL);
}

/* Every length by every number of ranks: empty chunks at the end, at offsets inside the tensor. */
static void test_reshard__every_small_length(void **state)
{
    (void)state;
    for (int64_t n = 0; n <= 17; n++) {
        for (int32_t ranks = 1; ranks <= 8; ranks++) {
            char from[80], to[80];
            (void)snprintf(from, sizeof from, "%d: S(0)", (int)ranks);
            (void)snprintf(to, sizeof to, "%d: S(1)", (int)ranks);
            move m = make_move(ranks, 2, (int64_t[]){n, 3}, from, to);
            check_move(&m);
            reshard_layout *layout = NULL;
            reshard_shards *shards = NULL;
            MUST(reshard_layout_parse(NULL, from, 2, m.shape, &layout));
            MUST(reshard_layout_shards(layout, RESHARD_ALL_RANKS, &shards));
            assert_int_equal(shards->count, ranks);
            int64_t size = (n + ranks - 1) / ranks;
            for (int64_t i = 0; i < ranks; i++) {
                int64_t start = i * size < n ? i * size : n,
                        end = start + size < n ? start + size : n;
                assert_int_equal(shards->items[i].offset[0], start);
                assert_int_equal(shards->items[i].shape[0], end - start);
            }
            reshard_shards_destroy(shards);
            reshard_layout_release(layout);
        }
    }
}

/* Negative dims are the same dims: nothing moves, memory is shared (which check_move sees to). */
static void test_reshard__negative_dims(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"4: S(1)", "4: S(-1)"},
                                           {"4: S(-2)", "4: S(0)"},
                                           {"4[2,0,3,1]: S(-1)", "4[2,0,3,1]: S(1)"}};
    static const int64_t shapes[][2] = {{13, 21}, {12, 24}, {2, 3}};
    for (int i = 0; i < 9; i++) {
        move m = make_move(4, 2, shapes[i / 3], pairs[i % 3][0], pairs[i % 3][1]);
        reshard_layout *layouts[2] = {NULL, NULL};
        for (int k = 0; k < 2; k++)
            MUST(reshard_layout_parse(NULL, pairs[i % 3][k], 2, m.shape, &layouts[k]));
        assert_true(reshard_layout_equals(layouts[0], layouts[1]));
        for (int k = 0; k < 2; k++)
            reshard_layout_release(layouts[k]);
        check_move(&m);
        assert_int_equal(find_bytes_moved(&m, RESHARD_F64), 0);
    }
}

/* ---- DTensor.redistribute over one axis ------------------------------------------------------ */

static const struct {
    int64_t shape[2];
    int dim;
} sizes[] = {{{12, 3}, 0}, {{13, 3}, 0}, {{14, 3}, 0}, {{3, 12}, 1}, {{3, 13}, 1}, {{3, 14}, 1}};
enum { SIZES = (int)(sizeof sizes / sizeof *sizes) };

/* What upstream does without communication sends nothing. Where it has one collective, bytes are
 * those which that sends without its padding: of N elements over n ranks (n-1) N for an all_gather
 * and a reduce_scatter, and twice that for an all_reduce. */
static void test_redistribute__one_axis(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        char cut[32];
        int64_t volume = sizes[i].shape[0] * sizes[i].shape[1];
        (void)snprintf(cut, sizeof cut, "4: S(%d)", sizes[i].dim);
        struct {
            const char *from, *to;
            int64_t elements;
            const char *upstream;
        } rows[] = {{cut, "4: R", 3 * volume, "test_shard_to_replicate_forward_backward"},
                    {"4: R", cut, 0, "test_replicate_to_shard_forward_backward"},
                    {"4: P(sum)", "4: R", 6 * volume, "test_partial_to_replicate_forward_backward"},
                    {"4: P(sum)", cut, 3 * volume, "test_partial_to_shard"},
                    {"4: R", "4: P(sum)", 0, "test_replicate_to_partial"},
                    {"2,2: R, R", "2,2: P, P", 0, "test_replicate_to_partial"},
                    {"4: R", "4: R", 0, "test_replicate_to_replicate_forward_backward"},
                    {cut, cut, 0, NULL},
                    {"4: P(sum)", "4: P(sum)", 0, "test_partial_to_partial_forward_backward"},
                    {cut, "4: P(sum)", 0, NULL}};
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            move m = make_move(4, 2, sizes[i].shape, rows[k].from, rows[k].to);
            check_moves_of(rows[k].upstream, m);
            assert_int_equal(find_bytes_moved(&m, RESHARD_F32), 4 * rows[k].elements);
        }
    }
}

/* Moves of x's group that needed a plan so far. */
static int64_t count_moves(const reshard_tensor *x)
{
    reshard_tensor_info counts = {.size = sizeof counts};
    MUST(reshard_tensor_get_info(x, &counts));
    return counts.plan_hits + counts.plan_misses;
}

/* test_partial_to_partial_forward_backward: a gradient that is partial in the same way stays so,
 * without communication. Two of them are added up before they meet a tensor that is replicated. */
static reshard_status keep_partial_gradient(void *user, reshard_group *group)
{
    (void)user;
    reshard_tensor *local = make_zeros(RESHARD_F32, SHAPE(12, 3));
    reshard_tensor *ones = make_zeros(RESHARD_F32, SHAPE(12, 3));
    MUST(reshard_tensor_fill(local, 1));
    MUST(reshard_tensor_fill(ones, 1));
    TRY(reshard_tensor_set_requires_grad(local, 1));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *x = local_as(local, group, "4: P(sum)");
    reshard_tensor *y = reshard_add(move_to(x, "4: P(sum)"), move_to(x, "4: P(sum)"));
    reshard_tensor *gradient = local_as(ones, group, "4: P(sum)");
    CHECK(y != NULL && gradient != NULL);
    ran_move("test_partial_to_partial_forward_backward", x, gradient);
    int64_t before = count_moves(x);
    CHECK(before == 0);
    TRY(reshard_backward(y, gradient, NULL));
    CHECK(count_moves(x) == before + 1); /* that of from_local */
    for (int64_t i = 0; i < 36; i++)
        CHECK(element(reshard_tensor_gradient(local), i) == 2 * 4);
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(local);
    reshard_tensor_release(ones);
    return RESHARD_OK;
}

/* Gradients that arrive in different layouts, one partial and one whole, are one sum. */
static reshard_status add_partial_and_whole(void *user, reshard_group *group)
{
    (void)user;
    reshard_tensor *local = make_zeros(RESHARD_F64, SHAPE(5, 3));
    reshard_tensor *ones = make_zeros(RESHARD_F64, SHAPE(5, 3));
    MUST(reshard_tensor_fill(ones, 1));
    TRY(reshard_tensor_set_requires_grad(local, 1));
    for (int turn = 0; turn < 2; turn++) { /* either may come first */
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        reshard_tensor *x = local_as(local, group, "4: P(sum)"), *parts[2] = {NULL, NULL};
        for (int i = 0; i < 2; i++)
            parts[i] =
                i == turn ? move_to(x, "4: P(sum)") : move_to(move_to(x, "4: R"), "4: P(sum)");
        reshard_tensor *gradient = local_as(ones, group, "4: P(sum)");
        TRY(reshard_backward(reshard_add(parts[0], parts[1]), gradient, NULL));
        for (int64_t i = 0; i < 15; i++)
            CHECK(element(reshard_tensor_gradient(local), i) == 2 * 4);
        TRY(reshard_scope_close(scope));
        reshard_tensor_clear_gradient(local);
    }
    reshard_tensor_release(local);
    reshard_tensor_release(ones);
    return RESHARD_OK;
}

/* A leaf that is partial keeps a gradient that is whole. */
static reshard_status keep_whole_gradient(void *user, reshard_group *group)
{
    (void)user;
    reshard_spec *partial = spec_of("4: P(sum)");
    reshard_tensor *x = NULL, *ones = make_zeros(RESHARD_F64, SHAPE(5, 3));
    MUST(reshard_tensor_fill(ones, 1));
    TRY(reshard_tensor_create_distributed(NULL, group, partial, RESHARD_F64, SHAPE(5, 3), &x));
    TRY(reshard_tensor_set_requires_grad(x, 1));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    TRY(reshard_backward(move_to(x, "4: P(sum)"), local_as(ones, group, "4: P(sum)"), NULL));
    TRY(reshard_scope_close(scope));
    const reshard_tensor *gradient = reshard_tensor_gradient(x);
    CHECK(strcmp(ran_spec(reshard_tensor_layout(gradient)->spec).text, "4: R") == 0);
    for (int64_t i = 0; i < 15; i++)
        CHECK(element(reshard_tensor_local_shard(gradient, 0), i) == 4);
    reshard_tensor_release(x);
    reshard_tensor_release(ones);
    reshard_spec_release(partial);
    return RESHARD_OK;
}

/* One axis is partial by the same reduction as the gradient's, the other by another one. */
static reshard_status keep_one_axis_partial(void *user, reshard_group *group)
{
    (void)user;
    reshard_tensor *local = make_zeros(RESHARD_F64, SHAPE(5, 3));
    reshard_tensor *ones = make_zeros(RESHARD_F64, SHAPE(5, 3));
    MUST(reshard_tensor_fill(local, 3));
    MUST(reshard_tensor_fill(ones, 1));
    TRY(reshard_tensor_set_requires_grad(local, 1));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *x = local_as(local, group, "2,2: P(sum), P(avg)");
    reshard_tensor *y = move_to(x, "2,2: P(sum), P(sum)");
    reshard_tensor *gradient = local_as(ones, group, "2,2: P(sum), P(sum)");
    CHECK(y != NULL && gradient != NULL);
    TRY(reshard_backward(y, gradient, NULL));
    for (int64_t i = 0; i < 15; i++) /* the sum of four ones, halved by the average */
        CHECK(element(reshard_tensor_gradient(local), i) == 2);
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(local);
    reshard_tensor_release(ones);
    return RESHARD_OK;
}

static void test_redistribute__gradients_that_stay_partial(void **state)
{
    (void)state;
    run_ranks(4, keep_partial_gradient, NULL);
    run_ranks(4, keep_one_axis_partial, NULL);
    run_ranks(4, add_partial_and_whole, NULL);
    run_ranks(4, keep_whole_gradient, NULL);
}

/* test_shard_dim_alltoall: over one axis of a 2x2 mesh, whose ranks are not those of the world.
 * Each rank has 12x4 of 24x4. */
static reshard_status exchange_dims(void *user, reshard_group *group)
{
    (void)user;
    static const int32_t members[][2] = {{0, 2}, {1, 3}};
    int32_t rank = reshard_group_rank(group);
    reshard_group *subs[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        TRY(reshard_group_subset(group, 2, members[i], &subs[i]));
    reshard_group *sub = subs[rank % 2];
    static const reshard_dtype dtypes[] = {RESHARD_F32, RESHARD_C64};
    for (int i = 0; i < 2; i++) {
        int64_t parts = i + 1; /* of a number */
        reshard_tensor *local = make_zeros(dtypes[i], SHAPE(12, 4));
        float *values = reshard_tensor_write(local);
        for (int64_t k = 0; k < 48 * parts; k++)
            values[k] = (float)(1000 * (rank % 2) + 100 * (rank / 2) + k);
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        reshard_tensor *x = local_as(local, sub, "2: S(0)"), *y = move_to(x, "2: S(1)");
        CHECK(y != NULL);
        if (rank == 0)
            ran_move("test_shard_dim_alltoall", x, y);
        const reshard_tensor *shard = reshard_tensor_local_shard(y, 0);
        CHECK(reshard_tensor_shape(shard)[0] == 24 && reshard_tensor_shape(shard)[1] == 2);
        const float *found = reshard_tensor_data(shard);
        for (int64_t k = 0; k < 48 * parts; k++) {
            int64_t row = k / (2 * parts), column = k % (2 * parts) + rank / 2 * 2 * parts;
            CHECK(found[k] ==
                  (float)(1000 * (rank % 2) + 100 * (row / 12) + row % 12 * 4 * parts + column));
        }
        TRY(reshard_scope_close(scope));
        reshard_tensor_release(local);
    }
    for (int i = 0; i < 2; i++)
        reshard_group_release(subs[i]);
    return reshard_group_barrier(group);
}

static void test_shard_dim_alltoall(void **state)
{
    (void)state;
    run_ranks(4, exchange_dims, NULL);
}

/* ---- casts on the way ------------------------------------------------------------------------ */

typedef struct conversion {
    const char *upstream;
    move m;
    int forward, backward; /* 0: none, 1: bf16, 2: f32 */
} conversion;

/* What a number is after a cast to bf16: the upper half of its bits, rounded to even. */
static double round_to(int dtype, double value)
{
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    if (dtype == 1)
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000U;
    memcpy(&single, &bits, sizeof bits);
    return single;
}

static reshard_status convert(void *user, reshard_group *group)
{
    const conversion *c = user;
    static const reshard_dtype dtypes[] = {RESHARD_DTYPE_NONE, RESHARD_BF16, RESHARD_F32};
    reshard_redistribute_options options = {
        .size = sizeof options, .dtype = dtypes[c->forward], .gradient_dtype = dtypes[c->backward]};
    reshard_tensor *whole = make_zeros(RESHARD_F32, c->m.ndim, c->m.shape), *x = NULL;
    MUST(reshard_tensor_fill_random(whole, RESHARD_UNIFORM, 6));
    TRY(reshard_tensor_set_requires_grad(whole, 1));
    TRY(cut_directly(group, c->m.from, whole, &x));
    reshard_spec *to = spec_of(c->m.to);
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_tensor_redistribute(x, to, &options);
    reshard_dtype given = c->forward == 1 ? RESHARD_BF16 : RESHARD_F32;
    CHECK(y != NULL && reshard_tensor_dtype(y) == given);
    ran_here(group, c->upstream, "%s -> %s, forward %s, backward %s", ran_tensor(x).text,
             ran_spec(to).text, c->forward == 0 ? "none" : reshard_dtype_name(options.dtype),
             c->backward == 0 ? "none" : reshard_dtype_name(options.gradient_dtype));
    reshard_tensor *found = whole_of(y);
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        CHECK(element(found, i) == round_to(c->forward, element(whole, i)));
    reshard_tensor_release(found);
    /* 1/3 tells by its digits which types the gradient went through. */
    (void)reshard_backward(reshard_sum(reshard_tensor_full(reshard_scale(y, 1.0 / 3))), NULL, NULL);
    TRY(reshard_scope_close(scope));
    CHECK(reshard_tensor_dtype(reshard_tensor_gradient(x)) == RESHARD_F32);
    found = whole_of(reshard_tensor_gradient(x));
    double expected = round_to(c->forward == 1 || c->backward == 1 ? 1 : 2, 1.0 / 3);
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        CHECK(element(found, i) == expected);
    reshard_tensor_release(found);
    reshard_spec_release(to);
    reshard_tensor_release(x);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

static void test_redistribute__datatype_conversion(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        char cut[32];
        (void)snprintf(cut, sizeof cut, "4: S(%d)", sizes[i].dim);
        for (int k = 0; k < 27; k++) {
            static const char *const names[] = {
                "test_shard_to_replicate_forward_backward_datatype_conversion", NULL,
                "test_replicate_to_replicate_forward_backward_datatype_conversion"};
            const char *from = k < 9 ? cut : "4: R", *to = k >= 9 && k < 18 ? cut : "4: R";
            conversion c = {names[k / 9], make_move(4, 2, sizes[i].shape, from, to), k % 9 / 3,
                            k % 3};
            if (reshard_group_run(NULL, 4, convert, &c) != RESHARD_OK)
                fail_msg("%s to %s, casts %d and %d: %s", from, to, c.forward, c.backward,
                         reshard_error_text());
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
        cmocka_unit_test(test_reshard__negative_dims),
        cmocka_unit_test(test_redistribute__one_axis),
        cmocka_unit_test(test_redistribute__gradients_that_stay_partial),
        cmocka_unit_test(test_shard_dim_alltoall),
        cmocka_unit_test(test_redistribute__datatype_conversion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
