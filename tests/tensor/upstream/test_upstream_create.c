/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_upstream_create.c - PyTorch's own tests of making sharded tensors, restated by their sizes,
 * dtypes and specs: which shards there are, on which ranks, and what the factories put there.
 */
#include "tests/support/check.h"
#include "tests/support/info.h"
#include "tests/tensor/cuts.h"
#include "tests/tensor/ran_tensor.h"

#include <math.h>
#include <string.h>

/* ---- shards ---------------------------------------------------------------------------------- */

typedef struct place {
    int32_t rank;
    int64_t offset[2], size[2];
} place;

typedef struct tiling {
    const char *upstream; /* the tests of PyTorch's that have it, with spaces between; or NULL */
    const char *spec;
    int64_t shape[2];
    bool sub_group; /* over ranks 1, 2 and 3 of four */
    int32_t count;
    place places[10];
} tiling;

static const tiling tilings[] = {
    {"test_sharded_tensor_metadata test_complete_world_size test_create_sharded_tensor_with_ones "
     "test_create_sharded_tensor_with_zeros test_create_sharded_tensor_with_full",
     "4: S(0)",
     {10, 20},
     false,
     4,
     {{0, {0, 0}, {3, 20}}, {1, {3, 0}, {3, 20}}, {2, {6, 0}, {3, 20}}, {3, {9, 0}, {1, 20}}}},
    {"test_complete_world_size",
     "4: S(-2)",
     {10, 20},
     false,
     4,
     {{0, {0, 0}, {3, 20}}, {1, {3, 0}, {3, 20}}, {2, {6, 0}, {3, 20}}, {3, {9, 0}, {1, 20}}}},
    {"test_sharding_columns",
     "4: S(1)",
     {10, 32},
     false,
     4,
     {{0, {0, 0}, {10, 8}}, {1, {0, 8}, {10, 8}}, {2, {0, 16}, {10, 8}}, {3, {0, 24}, {10, 8}}}},
    {"test_sharding_columns",
     "4: S(-1)",
     {10, 32},
     false,
     4,
     {{0, {0, 0}, {10, 8}}, {1, {0, 8}, {10, 8}}, {2, {0, 16}, {10, 8}}, {3, {0, 24}, {10, 8}}}},
    {"test_shard_tensor",
     "4: S(0)",
     {12, 12},
     false,
     4,
     {{0, {0, 0}, {3, 12}}, {1, {3, 0}, {3, 12}}, {2, {6, 0}, {3, 12}}, {3, {9, 0}, {3, 12}}}},
    {"test_shard_tensor_with_empty_shard",
     "4: S(0)",
     {9, 12},
     false,
     4,
     {{0, {0, 0}, {3, 12}}, {1, {3, 0}, {3, 12}}, {2, {6, 0}, {3, 12}}, {3, {9, 0}, {0, 12}}}},
    {"test_insufficient_sharding_dims",
     "4: S(0)",
     {2, 20},
     false,
     4,
     {{0, {0, 0}, {1, 20}}, {1, {1, 0}, {1, 20}}, {2, {2, 0}, {0, 20}}, {3, {2, 0}, {0, 20}}}},
    {NULL,
     "4: S(0)",
     {5, 2},
     false,
     4,
     {{0, {0, 0}, {2, 2}}, {1, {2, 0}, {2, 2}}, {2, {4, 0}, {1, 2}}, {3, {5, 0}, {0, 2}}}},
    {"test_local_tensor",
     "4: S(0)",
     {24, 12},
     false,
     4,
     {{0, {0, 0}, {6, 12}}, {1, {6, 0}, {6, 12}}, {2, {12, 0}, {6, 12}}, {3, {18, 0}, {6, 12}}}},
    {NULL,
     "4[2,3,0,1]: S(0)",
     {24, 12},
     false,
     4,
     {{2, {0, 0}, {6, 12}}, {3, {6, 0}, {6, 12}}, {0, {12, 0}, {6, 12}}, {1, {18, 0}, {6, 12}}}},
    {"test_partial_world_size",
     "2[2,3]: S(0)",
     {10, 20},
     false,
     2,
     {{2, {0, 0}, {5, 20}}, {3, {5, 0}, {5, 20}}}},
    {"test_new_group",
     "2[1,2]: S(0)",
     {10, 20},
     true,
     2,
     {{1, {0, 0}, {5, 20}}, {2, {5, 0}, {5, 20}}}},
    {"test_create_sharded_tensor_with_rand",
     "4: S(0)",
     {8, 2},
     false,
     4,
     {{0, {0, 0}, {2, 2}}, {1, {2, 0}, {2, 2}}, {2, {4, 0}, {2, 2}}, {3, {6, 0}, {2, 2}}}},
    {"test_create_sharded_tensor_like",
     "4: S(0)",
     {8, 8},
     false,
     4,
     {{0, {0, 0}, {2, 8}}, {1, {2, 0}, {2, 8}}, {2, {4, 0}, {2, 8}}, {3, {6, 0}, {2, 8}}}},
    /* several chunks on a rank */
    {"test_multiple_local_shards",
     "8[0,1,2,3,0,1,2,3]: S(0)",
     {16, 20},
     false,
     8,
     {{0, {0, 0}, {2, 20}},
      {1, {2, 0}, {2, 20}},
      {2, {4, 0}, {2, 20}},
      {3, {6, 0}, {2, 20}},
      {0, {8, 0}, {2, 20}},
      {1, {10, 0}, {2, 20}},
      {2, {12, 0}, {2, 20}},
      {3, {14, 0}, {2, 20}}}},
    {"test_local_tensor_error",
     "10[0,0,1,1,1,2,2,2,3,3]: S(0)",
     {24, 12},
     false,
     10,
     {{0, {0, 0}, {3, 12}},
      {0, {3, 0}, {3, 12}},
      {1, {6, 0}, {3, 12}},
      {1, {9, 0}, {3, 12}},
      {1, {12, 0}, {3, 12}},
      {2, {15, 0}, {3, 12}},
      {2, {18, 0}, {3, 12}},
      {2, {21, 0}, {3, 12}},
      {3, {24, 0}, {0, 12}},
      {3, {24, 0}, {0, 12}}}},
    /* enumerable */
    {"test_sharded_tensor_metadata test_grid_sharding test_create_sharded_tensor_with_ones",
     "boxes 10x10: 0[0:5,0:5] 1[0:5,5:10] 2[5:10,0:5] 3[5:10,5:10]",
     {10, 10},
     false,
     4,
     {{0, {0, 0}, {5, 5}}, {1, {0, 5}, {5, 5}}, {2, {5, 0}, {5, 5}}, {3, {5, 5}, {5, 5}}}},
    {"test_uneven_shards",
     "boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]",
     {6, 6},
     false,
     4,
     {{0, {0, 0}, {2, 4}}, {1, {0, 4}, {4, 2}}, {2, {2, 0}, {4, 4}}, {3, {4, 4}, {2, 2}}}},
    {"test_partial_world_size",
     "boxes 10x5: 0[0:5,0:5] 1[5:10,0:5]",
     {10, 5},
     false,
     2,
     {{0, {0, 0}, {5, 5}}, {1, {5, 0}, {5, 5}}}},
    {"test_new_group",
     "boxes 10x5: 0[0:5,0:5] 2[5:10,0:5]",
     {10, 5},
     true,
     2,
     {{0, {0, 0}, {5, 5}}, {2, {5, 0}, {5, 5}}}},
    {"test_multiple_local_shards",
     "boxes 10x10: 0[0:5,0:5] 1[0:5,5:10] 0[5:10,0:5] 1[5:10,5:10]",
     {10, 10},
     false,
     4,
     {{0, {0, 0}, {5, 5}}, {1, {0, 5}, {5, 5}}, {0, {5, 0}, {5, 5}}, {1, {5, 5}, {5, 5}}}},
};

static bool is_place(const reshard_shard *shard, const place *p)
{
    return shard->rank == p->rank && shard->offset[0] == p->offset[0] &&
           shard->offset[1] == p->offset[1] && shard->shape[0] == p->size[0] &&
           shard->shape[1] == p->size[1];
}

/* The whole tensor's shards, and this rank's own, in the order of the list. */
static reshard_status check_places(const tiling *t, const reshard_tensor *x, int32_t rank)
{
    reshard_shards *all = NULL;
    int64_t mine = 0;
    TRY(reshard_layout_shards(reshard_tensor_layout(x), RESHARD_ALL_RANKS, &all));
    CHECK(all->count == t->count);
    for (int32_t i = 0; i < t->count; i++) {
        int32_t found = 0, alike = 0; /* empty chunks of a rank may be alike */
        for (int64_t k = 0; k < all->count; k++)
            found += is_place(&all->items[k], &t->places[i]);
        for (int32_t k = 0; k < t->count; k++)
            alike += memcmp(&t->places[k], &t->places[i], sizeof t->places[k]) == 0;
        CHECK(found == alike);
        if (t->places[i].rank != rank)
            continue;
        const reshard_tensor *shard = reshard_tensor_local_shard(x, mine++);
        CHECK(shard != NULL && reshard_tensor_ndim(shard) == 2);
        CHECK(reshard_tensor_shape(shard)[0] == t->places[i].size[0]);
        CHECK(reshard_tensor_shape(shard)[1] == t->places[i].size[1]);
    }
    CHECK(info_tensor(x).local_shard_count == mine);
    reshard_shards_destroy(all);
    return RESHARD_OK;
}

static void tell(const tiling *t, reshard_group *group, const reshard_tensor *x)
{
    char names[300];
    (void)snprintf(names, sizeof names, "%s", t->upstream != NULL ? t->upstream : "");
    for (char *next = names, *name; (name = strtok_r(next, " ", &next)) != NULL;)
        ran_here(group, name, "%s%s", ran_tensor(x).text, t->sub_group ? " of 1,2,3" : "");
}

/* Every element, of this rank's shards and of the whole. */
static reshard_status check_all(reshard_tensor *x, double value)
{
    for (int64_t i = 0; i < info_tensor(x).local_shard_count; i++) {
        const reshard_tensor *shard = reshard_tensor_local_shard(x, i);
        for (int64_t k = 0; k < reshard_tensor_volume(shard); k++)
            CHECK(element(shard, k) == value);
    }
    reshard_tensor *whole = whole_of(x);
    CHECK(whole != NULL);
    for (int64_t k = 0; k < reshard_tensor_volume(whole); k++)
        CHECK(element(whole, k) == value);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

/* A tensor of rank 2, cut by the same spec: each shard has what lies at its place. */
static reshard_status check_cut(const tiling *t, reshard_group *group, reshard_spec *spec,
                                reshard_dtype dtype)
{
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *given = NULL, *cut = NULL;
    if (rank == 2) {
        given = make_zeros(dtype, 2, t->shape);
        for (int64_t i = 0; i < reshard_tensor_volume(given); i++)
            set_element(given, i, (double)i);
        TRY(reshard_tensor_set_requires_grad(given, 1));
    }
    TRY(reshard_tensor_shard(NULL, group, spec, 2, given, &cut));
    CHECK(info_tensor(cut).requires_grad && reshard_tensor_dtype(cut) == dtype);
    int64_t mine = 0;
    for (int32_t i = 0; i < t->count; i++) {
        const place *p = &t->places[i];
        if (p->rank != rank)
            continue;
        const reshard_tensor *shard = reshard_tensor_local_shard(cut, mine++);
        for (int64_t k = 0; k < p->size[0] * p->size[1]; k++) {
            int64_t row = p->offset[0] + k / p->size[1], column = p->offset[1] + k % p->size[1];
            CHECK(element(shard, k) == (double)(row * t->shape[1] + column));
        }
    }
    reshard_tensor_release(given);
    reshard_tensor_release(cut);
    return RESHARD_OK;
}

static reshard_status create_one(const tiling *t, reshard_group *group, reshard_spec *spec,
                                 reshard_dtype dtype)
{
    reshard_tensor *x = NULL;
    TRY(reshard_tensor_create_distributed(NULL, group, spec, dtype, 2, t->shape, &x));
    CHECK(reshard_tensor_dtype(x) == dtype && reshard_tensor_ndim(x) == 2);
    CHECK(reshard_tensor_shape(x)[0] == t->shape[0] && reshard_tensor_shape(x)[1] == t->shape[1]);
    CHECK(info_tensor(x).group == group && !info_tensor(x).requires_grad);
    TRY(check_places(t, x, reshard_group_rank(group)));
    TRY(check_all(x, 0));
    TRY(reshard_tensor_fill(x, 1));
    TRY(check_all(x, 1));
    TRY(reshard_tensor_fill(x, 1234));
    TRY(check_all(x, 1234));
    if (dtype != RESHARD_I32) {
        TRY(reshard_tensor_set_requires_grad(x, 1));
        CHECK(info_tensor(x).requires_grad);
    }
    if (info_tensor(x).local_shard_count > 1) {
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        CHECK(reshard_tensor_to_local(x, NULL) == NULL);
        CHECK(reshard_scope_close(scope) == RESHARD_ERR_UNSUPPORTED);
    }
    tell(t, group, x);
    reshard_tensor_release(x);
    return RESHARD_OK;
}

static reshard_status create_tiling(void *user, reshard_group *group)
{
    const tiling *t = user;
    static const int32_t members[] = {1, 2, 3};
    static const reshard_dtype dtypes[] = {RESHARD_F32, RESHARD_F64, RESHARD_I32};
    reshard_group *sub = NULL;
    if (t->sub_group)
        TRY(reshard_group_subset(group, 3, members, &sub));
    reshard_group *over = t->sub_group ? sub : group;
    reshard_spec *spec = spec_of(t->spec);
    for (int i = 0; i < 3 && over != NULL; i++) {
        TRY(create_one(t, over, spec, dtypes[i]));
        if (i < 2)
            TRY(check_cut(t, over, spec, dtypes[i]));
    }
    reshard_spec_release(spec);
    reshard_group_release(sub);
    return reshard_group_barrier(group);
}

static void test_create__places_and_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tilings / sizeof *tilings; i++) {
        tiling t = tilings[i];
        if (reshard_group_run(NULL, 4, create_tiling, &t) != RESHARD_OK)
            fail_msg("%s: %s", t.spec, reshard_error_text());
    }
}

/* ---- factories ------------------------------------------------------------------------------- */

typedef enum factory { ZEROS, ONES, UNIFORM, NORMAL, EMPTY, FULL, FACTORIES } factory;

static const char *const factory_names[FACTORIES] = {"zeros", "ones",  "rand",
                                                     "randn", "empty", "full 8.8"};

static reshard_status make_as(const reshard_tensor *like, factory how, reshard_tensor **out_made)
{
    reshard_status status = reshard_tensor_zeros_like(like, RESHARD_DTYPE_NONE, out_made);
    if (status == RESHARD_OK && (how == ONES || how == FULL))
        status = reshard_tensor_fill(*out_made, how == ONES ? 1 : 8.8);
    if (status == RESHARD_OK && how == UNIFORM)
        status = reshard_tensor_fill_random(*out_made, RESHARD_UNIFORM, 1234);
    if (status == RESHARD_OK && how == NORMAL)
        status = reshard_tensor_fill_random(*out_made, RESHARD_NORMAL, 1234);
    return status;
}

/* The numbers are those of a local tensor, by global index: the same for any layout and number of
 * ranks. Upstream's *_like: a tensor of another one's layout, dtype and shape. */
static reshard_status create_like(void *user, reshard_group *group)
{
    static const int64_t shapes[][2] = {{8, 2}, {8, 8}, {10, 20}};
    static const char *const specs[] = {"%d: S(0)", "%d: S(1)", "%d: R", "%d: S(flat)"};
    static const reshard_dtype dtypes[] = {RESHARD_F64, RESHARD_F64, RESHARD_F32};
    (void)user;
    for (int i = 0; i < 3 * 4 * FACTORIES; i++) {
        const int64_t *shape = shapes[i / (4 * FACTORIES)];
        reshard_dtype dtype = dtypes[i / (4 * FACTORIES)];
        factory how = (factory)(i % FACTORIES);
        char text[32];
        (void)snprintf(text, sizeof text, specs[i / FACTORIES % 4], (int)reshard_group_size(group));
        reshard_tensor *whole = make_zeros(dtype, 2, shape), *alone = NULL, *cut = NULL;
        reshard_tensor *x = spread_random(group, text, dtype, 2, shape, 5), *like = NULL;
        CHECK(x != NULL);
        TRY(make_as(whole, how, &alone));
        TRY(make_as(x, how, &like));
        CHECK(reshard_tensor_dtype(like) == dtype);
        CHECK(reshard_layout_equals(reshard_tensor_layout(x), reshard_tensor_layout(like)));
        TRY(cut_directly(group, text, alone, &cut));
        TRY(same_shards(like, cut, 1));
        const char *upstream = shape[1] == 8 ? "test_create_sharded_tensor_like"
                               : shape[1] == 2 && (how == UNIFORM || how == NORMAL)
                                   ? "test_create_sharded_tensor_with_rand"
                                   : NULL;
        ran_here(group, upstream, "%s, %s", ran_tensor(like).text, factory_names[how]);
        reshard_tensor_release(whole);
        reshard_tensor_release(alone);
        reshard_tensor_release(cut);
        reshard_tensor_release(like);
        reshard_tensor_release(x);
    }
    return RESHARD_OK;
}

static void test_create__like(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= 5; ranks++)
        run_ranks(ranks, create_like, NULL);
}

/* They are random: no two alike, with the mean and deviation that they should have. */
static void test_create__random(void **state)
{
    (void)state;
    reshard_tensor *alone = make_zeros(RESHARD_F32, SHAPE(10, 20));
    for (int normal = 0; normal < 2; normal++) {
        MUST(normal ? reshard_tensor_fill_random(alone, RESHARD_NORMAL, 5)
                    : reshard_tensor_fill_random(alone, RESHARD_UNIFORM, 5));
        double mean = 0, square = 0;
        for (int64_t i = 0; i < 200; i++) {
            mean += element(alone, i) / 200;
            square += element(alone, i) * element(alone, i) / 200;
            assert_true(normal || (element(alone, i) >= 0 && element(alone, i) < 1));
            for (int64_t k = 0; k < i; k++)
                assert_true(element(alone, i) != element(alone, k));
        }
        assert_true(fabs(mean - (normal ? 0 : 0.5)) < 0.2);
        assert_true(fabs(square - mean * mean - (normal ? 1 : 1.0 / 12)) < 0.3);
    }
    reshard_tensor_release(alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create__places_and_values),
        cmocka_unit_test(test_create__like),
        cmocka_unit_test(test_create__random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
