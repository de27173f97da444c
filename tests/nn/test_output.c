/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_output.c - PyTorch's tests of reshard_output and collect_local_shard, restated; and a test
 * for each defect of theirs.
 */
#include "tests/nn/meshes.h"
#include "tests/tensor/ran_tensor.h"

/* Gives a stored tensor, or a list with it, a local tensor and nothing. */
typedef struct stored {
    reshard_tensor *tensor, *other;
    bool list;
} stored;

static reshard_value forward_stored(reshard_module *module, void *user, reshard_value input)
{
    const stored *s = user;
    (void)module;
    (void)input;
    if (!s->list)
        return reshard_value_of(s->tensor);
    reshard_value inner = reshard_value_of(s->tensor);
    reshard_value items[] = {reshard_value_list(1, &inner), reshard_value_of(s->other),
                             (reshard_value){0}};
    return reshard_value_list(3, items);
}

static reshard_status body_output(void *user, reshard_group *group)
{
    draw_state draw;
    draw_seed(&draw, 5);
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *whole = make_random(RESHARD_F32, &draw, SHAPE(24, 12));
    stored s = {distribute(group, "4[0,1,3,2]: S(0)", whole), whole, false};
    reshard_module_kind kind = {.name = "stored", .forward = forward_stored, .user = &s};
    reshard_module *module = NULL;
    reshard_spec *columns = make_spec("4[2,3,1,0]: S(1)");
    reshard_hook *hook = NULL;
    reshard_scope *scope = NULL;
    (void)user;
    MUST(reshard_module_create(NULL, &kind, &module));
    MUST(reshard_module_reshard_output(module, columns, &hook));
    MUST(reshard_scope_open(NULL, &scope));
    for (int round = 0; round < 4; round++) {
        s.list = round % 2;
        reshard_value y = reshard_module_call(module, (reshard_value){0});
        if (s.list) {
            CHECK(y.kind == RESHARD_VALUE_LIST && y.count == 3);
            CHECK(reshard_value_tensor(reshard_value_item(y, 1)) == whole);
            CHECK(reshard_value_item(y, 2).kind == RESHARD_VALUE_NOTHING);
            y = reshard_value_item(reshard_value_item(y, 0), 0);
        }
        ran_move("test_reshard_output", s.tensor, reshard_value_tensor(y));
        reshard_tensor *shard = reshard_tensor_local_shard(reshard_value_tensor(y), 0);
        CHECK(reshard_tensor_shape(shard)[0] == 24 && reshard_tensor_shape(shard)[1] == 3);
        static const int64_t first[] = {9, 6, 0, 3};
        for (int64_t i = 0; i < 72; i++)
            CHECK(element(shard, i) == element(whole, i / 3 * 12 + first[rank] + i % 3));
        /* the stored one is as it was */
        CHECK(reshard_tensor_shape(reshard_tensor_local_shard(s.tensor, 0))[0] == 6);
    }
    reshard_hook_remove(hook);
    s.list = false;
    CHECK(reshard_module_call(module, (reshard_value){0}).tensor == s.tensor);
    MUST(reshard_scope_close(scope));
    reshard_module_release(module);
    reshard_spec_release(columns);
    reshard_tensor_release(s.tensor);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

static void test_reshard_output__lists_and_stored_tensors(void **state)
{
    (void)state;
    run_ranks(4, body_output, NULL);
}

static reshard_status collect(reshard_group *group, int64_t rows, bool by_local_length,
                              int32_t *out_ndim, int64_t *out_volume)
{
    reshard_tensor *whole = make_zeros(RESHARD_F32, SHAPE(rows, 15));
    stored s = {distribute(group, "4: S(0)", whole), whole, false};
    reshard_module_kind kind = {.name = "stored", .forward = forward_stored, .user = &s};
    reshard_collect_options options = {.size = sizeof options, .by_local_length = by_local_length};
    reshard_module *module = NULL;
    reshard_scope *scope = NULL;
    MUST(reshard_module_create(NULL, &kind, &module));
    MUST(reshard_module_collect_local_shard(module, &options, NULL));
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_value_tensor(reshard_module_call(module, (reshard_value){0}));
    CHECK(y != NULL && reshard_tensor_layout(y) == NULL);
    *out_ndim = reshard_tensor_ndim(y);
    *out_volume = reshard_tensor_volume(y);
    MUST(reshard_scope_close(scope));
    reshard_module_release(module);
    reshard_tensor_release(s.tensor);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

static reshard_status body_collect(void *user, reshard_group *group)
{
    /* rows, and dims by our rule, and by PyTorch's on ranks 0 to 3 */
    static const struct {
        int64_t rows, sizes[4];
        int32_t ours, theirs[4];
    } cases[] = {
        {23, {6, 6, 6, 5}, 2, {2, 2, 2, 2}},
        {13, {4, 4, 4, 1}, 2, {2, 2, 2, 1}}, /* theirs differ */
        {4, {1, 1, 1, 1}, 1, {1, 1, 1, 1}},
        {2, {1, 1, 0, 0}, 2, {1, 1, 2, 2}},
        {5, {2, 2, 1, 0}, 2, {2, 2, 1, 2}},
    };
    int32_t rank = reshard_group_rank(group), ndim = 0;
    int64_t volume = 0;
    (void)user;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TRY(collect(group, cases[i].rows, false, &ndim, &volume));
        CHECK(ndim == cases[i].ours && volume == 15 * cases[i].sizes[rank]);
        TRY(collect(group, cases[i].rows, true, &ndim, &volume));
        CHECK(ndim == cases[i].theirs[rank] && volume == 15 * cases[i].sizes[rank]);
    }
    return RESHARD_OK;
}

/* A rank without a shard gives something empty with as many dims as the others'. */
static reshard_status body_collect_left_out(void *user, reshard_group *group)
{
    static const struct {
        const char *spec;
        int32_t ndim, out_ndim;
        int64_t shape[3], holders[2], left_out[2];
    } cases[] = {
        {"3: S(0)", 2, 1, {3, 5}, {5}, {0}},
        {"3: S(1)", 2, 1, {5, 3}, {5}, {0}},
        {"3: S(1)", 3, 2, {4, 3, 2}, {4, 2}, {0, 2}},
        {"3: S(0)", 2, 2, {6, 5}, {2, 5}, {0, 5}},
        {"3: S(0)", 1, 1, {3}, {1}, {0}}, /* no empty tensor has no dims: all keep theirs */
    };
    bool here = reshard_group_rank(group) < 3;
    (void)user;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reshard_tensor *whole = make_zeros(RESHARD_F32, cases[i].ndim, cases[i].shape);
        stored s = {distribute(group, cases[i].spec, whole), whole, false};
        reshard_module_kind kind = {.name = "stored", .forward = forward_stored, .user = &s};
        reshard_module *module = NULL;
        reshard_scope *scope = NULL;
        MUST(reshard_module_create(NULL, &kind, &module));
        MUST(reshard_module_collect_local_shard(module, NULL, NULL));
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *y = reshard_value_tensor(reshard_module_call(module, (reshard_value){0}));
        CHECK(y != NULL && reshard_tensor_ndim(y) == cases[i].out_ndim);
        const int64_t *expected = here ? cases[i].holders : cases[i].left_out;
        for (int32_t d = 0; d < cases[i].out_ndim; d++)
            CHECK(reshard_tensor_shape(y)[d] == expected[d]);
        TRY(reshard_scope_close(scope));
        reshard_module_release(module);
        reshard_tensor_release(s.tensor);
        reshard_tensor_release(whole);
    }
    return RESHARD_OK;
}

static void test_collect__ranks_without_a_shard(void **state)
{
    (void)state;
    run_ranks(4, body_collect_left_out, NULL);
}

/* A matrix, a scalar, nothing and a local tensor: only the matrix has dims to cut. */
typedef struct mixture {
    reshard_tensor *matrix, *scalar, *local;
} mixture;

static reshard_value forward_mixture(reshard_module *module, void *user, reshard_value input)
{
    const mixture *m = user;
    (void)module;
    (void)input;
    reshard_value items[] = {reshard_value_of(m->matrix), reshard_value_of(m->scalar),
                             (reshard_value){0}, reshard_value_of(m->local)};
    return reshard_value_list(4, items);
}

static reshard_status body_mixture(void *user, reshard_group *group)
{
    (void)user;
    reshard_tensor *whole = make_zeros(RESHARD_F32, SHAPE(4, 8)), *one = NULL;
    MUST(reshard_tensor_create(NULL, RESHARD_F32, 0, NULL, &one));
    MUST(reshard_tensor_fill(one, 3));
    mixture m = {distribute(group, "4: S(0)", whole), distribute(group, "4: A(1)", one), whole};
    reshard_module_kind kind = {.name = "mixture", .forward = forward_mixture, .user = &m};
    reshard_module *module = NULL;
    reshard_scope *scope = NULL;
    reshard_hook *hook = NULL;
    reshard_spec *columns = make_spec("4: S(1)"), *everywhere = make_spec("4: R");
    double value = 0;
    MUST(reshard_module_create(NULL, &kind, &module));
    MUST(reshard_module_reshard_output(module, columns, &hook));
    MUST(reshard_scope_open(NULL, &scope));
    reshard_value y = reshard_module_call(module, (reshard_value){0});
    TRY(reshard_scope_status(scope));
    CHECK(y.count == 4 && y.items[1].tensor == m.scalar && y.items[3].tensor == whole);
    CHECK(y.items[2].kind == RESHARD_VALUE_NOTHING);
    CHECK(reshard_tensor_shape(reshard_tensor_local_shard(y.items[0].tensor, 0))[1] == 2);
    /* Where the spec says something about scalars, it is done. */
    reshard_hook_remove(hook);
    MUST(reshard_module_reshard_output(module, everywhere, NULL));
    y = reshard_module_call(module, (reshard_value){0});
    TRY(reshard_scope_status(scope));
    TRY(reshard_tensor_value(reshard_tensor_local_shard(y.items[1].tensor, 0), &value));
    CHECK(value == 3);
    TRY(reshard_scope_close(scope));
    reshard_spec_release(columns);
    reshard_spec_release(everywhere);
    reshard_module_release(module);
    reshard_tensor_release(m.matrix);
    reshard_tensor_release(m.scalar);
    reshard_tensor_release(one);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

static void test_reshard_output__scalars_and_others_pass(void **state)
{
    (void)state;
    run_ranks(4, body_mixture, NULL);
}

static void test_collect__dims_by_spec(void **state)
{
    (void)state;
    run_ranks(4, body_collect, NULL);
}

/* test_collect_local_shard: the shard itself, with its numbers. */
static reshard_status body_collect_shard(void *user, reshard_group *group)
{
    draw_state draw;
    draw_seed(&draw, 6);
    reshard_tensor *whole = make_random(RESHARD_F32, &draw, SHAPE(23, 15));
    stored s = {distribute(group, "4[0,1,3,2]: S(0)", whole), whole, false};
    reshard_module_kind kind = {.name = "stored", .forward = forward_stored, .user = &s};
    reshard_module *module = NULL;
    reshard_scope *scope = NULL;
    static const int64_t rows[] = {6, 6, 5, 6}, first[] = {0, 6, 18, 12};
    int32_t rank = reshard_group_rank(group);
    (void)user;
    MUST(reshard_module_create(NULL, &kind, &module));
    MUST(reshard_module_collect_local_shard(module, NULL, NULL));
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_value_tensor(reshard_module_call(module, (reshard_value){0}));
    CHECK(y != NULL && reshard_tensor_layout(y) == NULL && reshard_tensor_ndim(y) == 2);
    CHECK(reshard_tensor_shape(y)[0] == rows[rank] && reshard_tensor_shape(y)[1] == 15);
    for (int64_t i = 0; i < rows[rank] * 15; i++)
        CHECK(element(y, i) == element(whole, first[rank] * 15 + i));
    ran_here(group, "test_collect_local_shard", "%s", ran_tensor(s.tensor).text);
    MUST(reshard_scope_close(scope));
    reshard_module_release(module);
    reshard_tensor_release(s.tensor);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

static void test_collect__the_shard(void **state)
{
    (void)state;
    run_ranks(4, body_collect_shard, NULL);
}

/* Both dims of 2x2 are cut, so that neither is the one that PyTorch would drop. */
static reshard_status body_collect_grid(void *user, reshard_group *group)
{
    reshard_tensor *whole = make_zeros(RESHARD_F32, SHAPE(2, 2));
    for (int64_t i = 0; i < 4; i++)
        set_element(whole, i, (double)i);
    stored s = {distribute(group, user, whole), whole, false};
    reshard_module_kind kind = {.name = "stored", .forward = forward_stored, .user = &s};
    for (int by_length = 0; by_length < 2; by_length++) {
        reshard_collect_options options = {.size = sizeof options, .by_local_length = by_length};
        reshard_module *module = NULL;
        reshard_scope *scope = NULL;
        MUST(reshard_module_create(NULL, &kind, &module));
        MUST(reshard_module_collect_local_shard(module, &options, NULL));
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *y = reshard_value_tensor(reshard_module_call(module, (reshard_value){0}));
        CHECK(y != NULL && reshard_tensor_layout(y) == NULL && reshard_tensor_ndim(y) == 2);
        CHECK(reshard_tensor_shape(y)[0] == 1 && reshard_tensor_shape(y)[1] == 1);
        CHECK(element(y, 0) == reshard_group_rank(group));
        MUST(reshard_scope_close(scope));
        reshard_module_release(module);
    }
    reshard_tensor_release(s.tensor);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

static void test_collect__grid(void **state)
{
    (void)state;
    run_ranks(4, body_collect_grid, (void *)"2,2: S(0), S(1)");
    run_ranks(4, body_collect_grid, (void *)"2,2[0,2,1,3]: S(1), S(0)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reshard_output__lists_and_stored_tensors),
        cmocka_unit_test(test_reshard_output__scalars_and_others_pass),
        cmocka_unit_test(test_collect__dims_by_spec),
        cmocka_unit_test(test_collect__ranks_without_a_shard),
        cmocka_unit_test(test_collect__the_shard),
        cmocka_unit_test(test_collect__grid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
