/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_input_reshard.c - gradients with input_reshard are those without it, bit for bit, in every
 * case of the table of PyTorch's corner cases; and what is kept is what it says.
 *
 * A rank's body returns a status and leaves words; the main thread asserts.
 */
#include "tests/nn/modules.h"
#include "tests/support/harness.h"
#include "tests/support/info.h"

#include <math.h>

static reshard_module *make_mlp(int64_t width)
{
    reshard_layer_options options = {.size = sizeof options, .dtype = RESHARD_F64, .seed = 9};
    reshard_module *mlp = NULL;
    MUST(reshard_mlp_create(NULL, width, width + 1, RESHARD_ACTIVATION_GELU, &options, &mlp));
    return mlp;
}

/* Forward and backward of the sum; the loss's gradient is 1 everywhere. */
static reshard_status train(reshard_module *module, reshard_tensor *x)
{
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_module_forward(module, x);
    if (y != NULL && reshard_tensor_layout(y) != NULL)
        y = reshard_tensor_full(y);
    (void)reshard_backward(reshard_sum(y), NULL, NULL);
    return reshard_scope_close(scope);
}

/* Gradients of all parameters, then of x, one after the other. */
static size_t read_gradients(reshard_module *module, reshard_tensor *x, unsigned char *out)
{
    reshard_named_tensors *list = NULL;
    size_t bytes = 0;
    MUST(reshard_module_parameters(module, &list));
    for (int64_t i = 0; i <= list->count; i++) {
        reshard_tensor *leaf = i < list->count ? list->items[i].tensor : x;
        reshard_tensor *gradient = reshard_tensor_gradient(leaf);
        if (gradient != NULL && reshard_tensor_layout(gradient) != NULL)
            gradient = reshard_tensor_local_shard(gradient, 0);
        size_t count =
            gradient != NULL ? (size_t)reshard_tensor_volume(gradient) * sizeof(double) : 0;
        if (gradient != NULL)
            MUST(reshard_tensor_copy_to(gradient, out + bytes, count));
        bytes += count;
        reshard_tensor_clear_gradient(leaf);
    }
    reshard_named_tensors_destroy(list);
    return bytes;
}

/* Trains without and with the hook; the same bits must come out. */
static reshard_status compare(reshard_module *module, reshard_tensor *x, reshard_device_mesh *mesh,
                              int32_t dim, const reshard_input_reshard_options *options,
                              reshard_saved_counts *out_counts)
{
    static _Thread_local unsigned char without[65536], with[65536];
    reshard_hook *hook = NULL;
    TRY(train(module, x));
    size_t bytes = read_gradients(module, x, without);
    CHECK(bytes > 0);
    TRY(reshard_module_input_reshard(module, mesh, dim, options, &hook));
    TRY(train(module, x));
    CHECK(read_gradients(module, x, with) == bytes);
    CHECK(memcmp(with, without, bytes) == 0);
    TRY(reshard_input_reshard_counts(hook, out_counts));
    reshard_hook_remove(hook);
    CHECK(out_counts->saved > 0);
    CHECK(reshard_saved_tensor_hooks_pop() == RESHARD_ERR_INVALID); /* none is left behind */
    TRY(train(module, x));
    CHECK(read_gradients(module, x, with) == bytes && memcmp(with, without, bytes) == 0);
    return RESHARD_OK;
}

/* ---- shapes, dims and numbers of ranks ------------------------------------------------------- */

static reshard_status body_shapes(void *user, reshard_group *group)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 7, 8, 13, 16};
    static const int32_t dims[] = {0, 1, -1, -2, 2, 5, -3};
    reshard_device_mesh *mesh = make_line(group);
    int32_t size = reshard_group_size(group);
    (void)user;
    size_t stride = harness_scale() < 1 ? 3 : 1;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r += stride) {
        for (int64_t width = 1; width <= 5; width += 2) {
            reshard_module *mlp = make_mlp(width);
            reshard_tensor *x = make_leaf(SHAPE(rows[r], width));
            for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
                reshard_saved_counts counts = {.size = sizeof counts};
                reshard_status status = compare(mlp, x, mesh, dims[d], NULL, &counts);
                if (status != RESHARD_OK)
                    return status;
                /* x, what gelu takes, what it gives */
                int64_t large = (rows[r] * width >= size) + 2 * (rows[r] * (width + 1) >= size);
                CHECK(counts.packed == (size > 1 ? large : 0));
                CHECK(counts.held_bytes == 0);
            }
            reshard_tensor_release(x);
            reshard_module_release(mlp);
        }
    }
    reshard_device_mesh_release(mesh);
    return RESHARD_OK;
}

static void test_gradients__all_shapes_and_dims(void **state)
{
    (void)state;
    for (int32_t size = 1; size <= 4; size++)
        run_ranks(size, body_shapes, NULL);
}

/* ---- tensors of one dim ---------------------------------------------------------------------- */

static reshard_status body_one_dim(void *user, reshard_group *group)
{
    reshard_layer_options options = {.size = sizeof options, .dtype = RESHARD_F64};
    reshard_device_mesh *mesh = make_line(group);
    reshard_module *norm = NULL;
    reshard_saved_counts counts = {.size = sizeof counts};
    (void)user;
    MUST(reshard_layernorm_create(NULL, 10, 1e-5, &options, &norm));
    reshard_tensor *x = make_leaf(SHAPE(10));
    reshard_status status = compare(norm, x, mesh, 1, NULL, &counts);
    CHECK(status != RESHARD_OK || counts.packed > 0);
    reshard_module_release(norm);
    reshard_tensor_release(x);
    reshard_device_mesh_release(mesh);
    return status;
}

static void test_gradients__dim_that_is_not_there(void **state)
{
    (void)state;
    run_ranks(4, body_one_dim, NULL);
}

/* ---- what differs between ranks -------------------------------------------------------------- */

/* fc1 is this rank's own, as in tensor parallelism by hand. */
static reshard_module *make_varying(reshard_group *group)
{
    reshard_module *mlp = make_mlp(4);
    reshard_tensor *weight = NULL;
    MUST(reshard_module_find_tensor(mlp, "fc1.weight", &weight));
    set_element(weight, 0, 1 + reshard_group_rank(group));
    return mlp;
}

static reshard_status body_varying(void *user, reshard_group *group)
{
    static const char *const names[] = {"fc1.weight"};
    reshard_device_mesh *mesh = make_line(group);
    reshard_module *mlp = make_varying(group);
    reshard_tensor *x = make_leaf(SHAPE(4, 4));
    reshard_saved_counts counts = {.size = sizeof counts};
    reshard_hook *hook = NULL;
    reshard_input_reshard_options options = {
        .size = sizeof options, .varying_count = 1, .varying = names, .verify = 1};
    (void)user;
    reshard_status status = compare(mlp, x, mesh, 0, &options, &counts);
    if (status != RESHARD_OK)
        return status;
    CHECK(counts.packed == 1); /* x alone */
    reshard_module_release(mlp);
    mlp = make_varying(group);
    options.varying_count = 0; /* the module says what is not so, and is found out */
    TRY(reshard_module_input_reshard(mlp, mesh, 0, &options, &hook));
    CHECK(train(mlp, x) == RESHARD_ERR_MISMATCH);
    CHECK(strstr(reshard_error_text(), "is not replicated") != NULL);
    reshard_hook_remove(hook);
    options.varying = (const char *const[]){"fc3.weight"};
    options.varying_count = 1;
    CHECK(reshard_module_input_reshard(mlp, mesh, 0, &options, &hook) == RESHARD_ERR_NOT_FOUND);
    reshard_module_release(mlp);
    reshard_tensor_release(x);
    reshard_device_mesh_release(mesh);
    return RESHARD_OK;
}

static void test_varying__is_kept_or_found_out(void **state)
{
    (void)state;
    run_ranks(4, body_varying, NULL);
}

/* What ranks hold of a tensor that is cut, and what is made of it by hand, differs between them,
 * whatever it goes through. */
typedef struct varying_case {
    const char *input; /* a spec; NULL: a local tensor that is the same on all ranks */
    reshard_value (*forward)(reshard_module *, void *, reshard_value);
} varying_case;

static reshard_value forward_shard(reshard_module *module, void *user, reshard_value input)
{
    (void)module;
    (void)user;
    return reshard_value_of(
        reshard_gelu(reshard_tensor_to_local(reshard_value_tensor(input), NULL)));
}

static reshard_value forward_detached(reshard_module *module, void *user, reshard_value input)
{
    reshard_tensor *local = reshard_tensor_to_local(reshard_value_tensor(input), NULL);
    (void)module;
    (void)user;
    return reshard_value_of(reshard_mul(local, reshard_tensor_detach(local)));
}

/* The second of two inputs is the one that varies. */
static reshard_value forward_shifted(reshard_module *module, void *user, reshard_value input)
{
    reshard_tensor *local = reshard_tensor_to_local(reshard_value_tensor(input), NULL),
                   *same = NULL;
    (void)user;
    MUST(reshard_module_find_tensor(module, "same", &same));
    return reshard_value_of(reshard_gelu(reshard_add(same, local)));
}

static reshard_value forward_scattered(reshard_module *module, void *user, reshard_value input)
{
    (void)module;
    return reshard_value_of(reshard_gelu(
        reshard_tensor_exchange(reshard_value_tensor(input), user,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_REDUCE_SCATTER,
                                                .reduction = RESHARD_SUM))));
}

static reshard_status body_varying_made(void *user, reshard_group *group)
{
    const varying_case *c = user;
    reshard_device_mesh *mesh = make_line(group);
    reshard_module_kind kind = {.name = "varying", .forward = c->forward, .user = group};
    reshard_module *module = NULL;
    reshard_tensor *local = make_leaf(SHAPE(8, 4)), *same = make_zeros(RESHARD_F64, SHAPE(2, 4));
    reshard_tensor *x = c->input != NULL ? distribute(group, c->input, local) : local;
    reshard_saved_counts counts = {.size = sizeof counts};
    MUST(reshard_tensor_fill(same, 0.25));
    MUST(reshard_module_create(NULL, &kind, &module));
    MUST(reshard_module_add_buffer(module, "same", same, 0));
    reshard_status status = compare(module, x, mesh, 0, NULL, &counts);
    CHECK(status != RESHARD_OK || counts.packed == 0);
    if (x != local)
        reshard_tensor_release(x);
    reshard_tensor_release(local);
    reshard_tensor_release(same);
    reshard_module_release(module);
    reshard_device_mesh_release(mesh);
    return status;
}

static void test_varying__what_is_made_of_shards(void **state)
{
    (void)state;
    static varying_case cases[] = {{"4: S(0)", forward_shard},
                                   {"4: S(0)", forward_detached},
                                   {"4: S(0)", forward_shifted},
                                   {NULL, forward_scattered}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_ranks(4, body_varying_made, &cases[i]);
}

/* ---- distributed tensors --------------------------------------------------------------------- */

typedef struct spread_case {
    const char *weight1, *bias1, *weight2; /* specs of parameters */
    const char *input;
    int32_t axes, sizes[2];
    int64_t packed; /* tensors */
} spread_case;

static void replace(reshard_group *group, reshard_module *mlp, const char *name, const char *text)
{
    reshard_tensor *local = NULL;
    MUST(reshard_module_find_tensor(mlp, name, &local));
    reshard_tensor *made = distribute(group, text, local);
    MUST(reshard_module_replace_parameter(mlp, name, made));
    reshard_tensor_release(made);
}

static reshard_status body_spread(void *user, reshard_group *group)
{
    const spread_case *c = user;
    reshard_device_mesh *mesh = make_mesh(group, c->axes, c->sizes);
    reshard_module *mlp = make_mlp(7);
    reshard_tensor *local = make_leaf(SHAPE(6, 7));
    reshard_saved_counts counts = {.size = sizeof counts};
    replace(group, mlp, "fc1.weight", c->weight1);
    replace(group, mlp, "fc1.bias", c->bias1);
    replace(group, mlp, "fc2.weight", c->weight2);
    reshard_tensor *x = distribute(group, c->input, local);
    for (int32_t dim = 0; dim < 3; dim++) {
        reshard_status status = compare(mlp, x, mesh, dim, NULL, &counts);
        if (status != RESHARD_OK)
            return status;
        CHECK(counts.packed == c->packed);
        CHECK(counts.packed == 0 || counts.chunk_bytes < counts.whole_bytes);
    }
    reshard_tensor_release(x);
    reshard_tensor_release(local);
    reshard_module_release(mlp);
    reshard_device_mesh_release(mesh);
    return RESHARD_OK;
}

static void test_distributed__by_layout(void **state)
{
    (void)state;
    static spread_case cases[] = {
        /* tensor parallel: the input is replicated, what is inside is not */
        {"4: S(0)", "4: S(0)", "4: S(1)", "4: R", 1, {4, 0}, 1},
        {"4: R", "4: R", "4: R", "4: R", 1, {4, 0}, 3},
        /* rows are cut already: nothing is replicated */
        {"4: R", "4: R", "4: R", "4: S(0)", 1, {4, 0}, 0},
        /* replicated over two axes, packed over both */
        {"2,2: R, R", "2,2: R, R", "2,2: R, R", "2,2: R, R", 2, {2, 2}, 3},
        {"2,2: R, S(0)", "2,2: R, S(0)", "2,2: R, S(1)", "2,2: R, R", 2, {2, 2}, 1},
        /* one axis cuts the rows: the input is not the same on all four */
        {"2,2: R, R", "2,2: R, R", "2,2: R, R", "2,2: S(0), R", 2, {2, 2}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_ranks(4, body_spread, &cases[i]);
}

/* Rows over one axis, packed over the other: the slice is a mesh of its own. */
static reshard_status body_slice(void *user, reshard_group *group)
{
    static const char *const names[] = {"dp", "tp"};
    const int32_t sizes[] = {2, 2};
    reshard_mesh *mesh = NULL;
    reshard_device_mesh *world = NULL, *slice = NULL;
    reshard_saved_counts counts = {.size = sizeof counts};
    (void)user;
    MUST(reshard_mesh_create(NULL, 2, names, sizes, NULL, &mesh));
    MUST(reshard_device_mesh_create(NULL, group, mesh, &world));
    MUST(reshard_device_mesh_slice(world, 1, names + 1, &slice));
    reshard_module *mlp = make_mlp(7);
    reshard_tensor *local = make_leaf(SHAPE(6, 7));
    replace(group, mlp, "fc1.weight", "dp=2,tp=2: R, S(0)");
    replace(group, mlp, "fc1.bias", "dp=2,tp=2: R, S(0)");
    replace(group, mlp, "fc2.weight", "dp=2,tp=2: R, S(1)");
    reshard_tensor *x = distribute(group, "dp=2,tp=2: S(0), R", local);
    reshard_status status = compare(mlp, x, slice, 0, NULL, &counts);
    CHECK(status != RESHARD_OK || counts.packed == 1);
    reshard_tensor_release(x);
    reshard_tensor_release(local);
    reshard_module_release(mlp);
    reshard_device_mesh_release(slice);
    reshard_device_mesh_release(world);
    reshard_mesh_release(mesh);
    return status;
}

static void test_distributed__over_one_axis(void **state)
{
    (void)state;
    run_ranks(4, body_slice, NULL);
}

/* ---- hooks that come and go ------------------------------------------------------------------ */

typedef struct again {
    int depth;
    bool fails;
} again;

static reshard_value forward_again(reshard_module *module, void *user, reshard_value input)
{
    again *a = user;
    reshard_tensor *y = reshard_gelu(reshard_value_tensor(input));
    if (a->depth-- > 0)
        y = reshard_module_forward(module, y);
    if (a->fails)
        y = reshard_add(y, NULL);
    return reshard_value_of(reshard_gelu(y));
}

static reshard_status body_again(void *user, reshard_group *group)
{
    again a = {.depth = 0};
    reshard_module_kind kind = {.name = "again", .forward = forward_again, .user = &a};
    reshard_module *module = NULL;
    reshard_hook *hook = NULL;
    reshard_saved_counts counts = {.size = sizeof counts}, later = counts;
    reshard_device_mesh *mesh = make_line(group);
    reshard_tensor *x = make_leaf(SHAPE(9));
    double expected[9];
    (void)user;
    MUST(reshard_module_create(NULL, &kind, &module));
    a.depth = 2;
    TRY(train(module, x));
    MUST(reshard_tensor_copy_to(reshard_tensor_gradient(x), expected, sizeof expected));
    reshard_tensor_clear_gradient(x);

    TRY(reshard_module_input_reshard(module, mesh, 0, NULL, &hook));
    CHECK(reshard_module_input_reshard(module, mesh, 0, NULL, NULL) == RESHARD_ERR_INVALID);
    a.depth = 2; /* the module calls itself */
    TRY(train(module, x));
    CHECK(memcmp(reshard_tensor_data(reshard_tensor_gradient(x)), expected, sizeof expected) == 0);
    MUST(reshard_input_reshard_counts(hook, &counts));
    CHECK(counts.saved == 6 && counts.packed == 6);

    int enabled = reshard_set_gradients_enabled(0); /* nothing is saved */
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    CHECK(reshard_module_forward(module, x) != NULL);
    MUST(reshard_scope_close(scope));
    (void)reshard_set_gradients_enabled(enabled);
    MUST(reshard_input_reshard_counts(hook, &later));
    CHECK(later.saved == counts.saved);

    a = (again){.depth = 1, .fails = true};
    CHECK(train(module, x) == RESHARD_ERR_INVALID);
    MUST(reshard_input_reshard_counts(hook, &counts));
    MUST(reshard_scope_open(NULL, &scope)); /* what comes later is not captured */
    CHECK(reshard_gelu(x) != NULL);
    MUST(reshard_scope_close(scope));
    MUST(reshard_input_reshard_counts(hook, &later));
    CHECK(later.saved == counts.saved && later.held_bytes == 0);
    reshard_hook_remove(hook);
    reshard_module_release(module);
    reshard_tensor_release(x);
    reshard_device_mesh_release(mesh);
    return RESHARD_OK;
}

static void test_hook__again_failing_and_off(void **state)
{
    (void)state;
    run_ranks(3, body_again, NULL);
}

/* A forward that fails leaves nothing behind: neither hooks, nor what it knew of the module. */
static reshard_status body_after_failure(void *user, reshard_group *group)
{
    reshard_device_mesh *mesh = make_line(group);
    reshard_module *mlp = make_mlp(4), *other = make_mlp(4);
    reshard_tensor *x = make_leaf(SHAPE(6, 4)), *narrow = make_leaf(SHAPE(6, 3));
    reshard_tensor *weight = NULL;
    reshard_hook *hook = NULL;
    reshard_saved_counts counts = {.size = sizeof counts}, later = counts;
    (void)user;
    TRY(reshard_module_input_reshard(mlp, mesh, 0, NULL, &hook));
    CHECK(train(mlp, narrow) != RESHARD_OK);
    CHECK(reshard_saved_tensor_hooks_pop() == RESHARD_ERR_INVALID);
    /* a weight that it has not seen yet is a weight all the same */
    MUST(reshard_module_find_tensor(other, "fc1.weight", &weight));
    MUST(reshard_module_replace_parameter(mlp, "fc1.weight", weight));
    TRY(reshard_input_reshard_counts(hook, &counts));
    TRY(train(mlp, x));
    TRY(reshard_input_reshard_counts(hook, &later));
    CHECK(later.packed - counts.packed == 3);
    reshard_hook_remove(hook);
    reshard_module_release(mlp);
    reshard_module_release(other);
    reshard_tensor_release(x);
    reshard_tensor_release(narrow);
    reshard_device_mesh_release(mesh);
    return RESHARD_OK;
}

static void test_hook__after_a_failure(void **state)
{
    (void)state;
    run_ranks(3, body_after_failure, NULL);
}

/* Two modules with a hook each, one inside the other: what the inner one saves is packed by its own
 * hook alone, along its own dim. */
static reshard_status body_nested(void *user, reshard_group *group)
{
    static _Thread_local unsigned char without[65536], with[65536];
    reshard_device_mesh *mesh = make_line(group);
    reshard_module *parts[] = {make_mlp(4), make_mlp(4)}, *outer = NULL;
    reshard_tensor *x = make_leaf(SHAPE(6, 4));
    reshard_hook *hooks[2] = {NULL, NULL};
    reshard_saved_counts counts[2] = {{.size = sizeof *counts}, {.size = sizeof *counts}};
    (void)user;
    MUST(reshard_sequential_create(NULL, 2, parts, &outer));
    TRY(train(outer, x));
    size_t bytes = read_gradients(outer, x, without);
    TRY(reshard_module_input_reshard(outer, mesh, 0, NULL, &hooks[0]));
    TRY(reshard_module_input_reshard(parts[1], mesh, 1, NULL, &hooks[1]));
    TRY(train(outer, x));
    CHECK(read_gradients(outer, x, with) == bytes && memcmp(with, without, bytes) == 0);
    for (int k = 0; k < 2; k++)
        MUST(reshard_input_reshard_counts(hooks[k], &counts[k]));
    /* three tensors of each part: x, what gelu takes, what it gives */
    CHECK(counts[0].packed == 3 && counts[1].packed == 3);
    CHECK(counts[0].chunk_bytes == 2 * (4 + 5 + 5) * sizeof(double)); /* 2 rows of 6 */
    for (int k = 0; k < 2; k++) {
        reshard_hook_remove(hooks[k]);
        reshard_module_release(parts[k]);
    }
    reshard_module_release(outer);
    reshard_tensor_release(x);
    reshard_device_mesh_release(mesh);
    return RESHARD_OK;
}

static void test_hook__nested_modules(void **state)
{
    (void)state;
    run_ranks(3, body_nested, NULL);
}

/* A module with a hook over one axis inside one with a hook over all: when the inner one is left,
 * what is the same over its axis alone is not replicated any more. */
static reshard_value forward_around(reshard_module *module, void *user, reshard_value input)
{
    reshard_tensor *x = reshard_value_tensor(input);
    (void)user;
    reshard_tensor *y = reshard_module_forward(reshard_module_child(module, 0, NULL), x);
    return reshard_value_of(reshard_add(y, reshard_gelu(x)));
}

static reshard_value forward_gelu(reshard_module *module, void *user, reshard_value input)
{
    (void)module;
    (void)user;
    return reshard_value_of(reshard_gelu(reshard_value_tensor(input)));
}

static reshard_status body_nested_axes(void *user, reshard_group *group)
{
    static const char *const names[] = {"dp", "tp"};
    const int32_t sizes[] = {2, 2};
    reshard_mesh *mesh = NULL;
    reshard_device_mesh *world = NULL, *slice = NULL;
    reshard_hook *hook = NULL;
    reshard_saved_counts inner_counts = {.size = sizeof inner_counts}, counts = inner_counts;
    (void)user;
    MUST(reshard_mesh_create(NULL, 2, names, sizes, NULL, &mesh));
    MUST(reshard_device_mesh_create(NULL, group, mesh, &world));
    MUST(reshard_device_mesh_slice(world, 1, names + 1, &slice));
    reshard_module *outer = make_module("around", forward_around);
    reshard_module *inner = make_module("gelu", forward_gelu);
    MUST(reshard_module_add_child(outer, "inner", inner));
    reshard_tensor *local = make_leaf(SHAPE(6, 4));
    reshard_tensor *x = distribute(group, "dp=2,tp=2: S(0), R", local);
    TRY(reshard_module_input_reshard(inner, slice, 0, NULL, &hook));
    reshard_status status = compare(outer, x, world, 0, NULL, &counts);
    MUST(reshard_input_reshard_counts(hook, &inner_counts));
    CHECK(status != RESHARD_OK || (counts.packed == 0 && inner_counts.packed > 0));
    reshard_hook_remove(hook);
    reshard_tensor_release(x);
    reshard_tensor_release(local);
    reshard_module_release(inner);
    reshard_module_release(outer);
    reshard_device_mesh_release(slice);
    reshard_device_mesh_release(world);
    reshard_mesh_release(mesh);
    return status;
}

static void test_hook__nested_over_one_axis(void **state)
{
    (void)state;
    run_ranks(4, body_nested_axes, NULL);
}

/* ---- selecting, sharing, memory -------------------------------------------------------------- */

/* A buffer that is filled anew for every batch, while the graph of the last one is still there. */
static reshard_status body_rewritten(void *user, reshard_group *group)
{
    reshard_device_mesh *mesh = make_line(group);
    reshard_module *module = make_module("gelu", forward_gelu);
    reshard_tensor *x = make_leaf(SHAPE(8, 4));
    reshard_hook *hook = NULL;
    reshard_scope *scope = NULL;
    reshard_saved_counts counts = {.size = sizeof counts};
    (void)user;
    TRY(reshard_module_input_reshard(module, mesh, 0, NULL, &hook));
    MUST(reshard_scope_open(NULL, &scope));
    CHECK(reshard_module_forward(module, x) != NULL);
    MUST(reshard_tensor_fill(x, 0.5));
    TRY(reshard_backward(reshard_sum(reshard_module_forward(module, x)), NULL, NULL));
    TRY(reshard_scope_close(scope));
    double slope = 0.5 * erfc(-0.5 / sqrt(2)) + 0.5 * exp(-0.125) / sqrt(2 * acos(-1));
    for (int64_t i = 0; i < 32; i++)
        CHECK(fabs(element(reshard_tensor_gradient(x), i) - slope) < 1e-12);
    MUST(reshard_input_reshard_counts(hook, &counts));
    CHECK(counts.packed == 2 && counts.shared == 0);
    reshard_hook_remove(hook);
    reshard_module_release(module);
    reshard_tensor_release(x);
    reshard_device_mesh_release(mesh);
    return RESHARD_OK;
}

/* The same memory of the same shape, read in another order. */
static reshard_value forward_turned(reshard_module *module, void *user, reshard_value input)
{
    reshard_tensor *x = reshard_value_tensor(input);
    (void)module;
    (void)user;
    reshard_tensor *turned = reshard_gelu(reshard_tensor_transpose(x, 0, 1));
    return reshard_value_of(reshard_mul(reshard_gelu(x), turned));
}

static reshard_status body_turned(void *user, reshard_group *group)
{
    reshard_device_mesh *mesh = make_line(group);
    reshard_module *module = make_module("turned", forward_turned);
    reshard_tensor *x = make_leaf(SHAPE(4, 4));
    reshard_saved_counts counts = {.size = sizeof counts};
    (void)user;
    reshard_status status = compare(module, x, mesh, 0, NULL, &counts);
    CHECK(status != RESHARD_OK || counts.packed >= 2);
    reshard_module_release(module);
    reshard_tensor_release(x);
    reshard_device_mesh_release(mesh);
    return status;
}

static void test_shared__only_the_same_elements(void **state)
{
    (void)state;
    run_ranks(4, body_rewritten, NULL);
    run_ranks(4, body_turned, NULL);
}

static int select_wide(void *user, const reshard_tensor *tensor)
{
    return reshard_tensor_shape(tensor)[1] == *(const int64_t *)user;
}

static reshard_status body_select(void *user, reshard_group *group)
{
    int64_t wide = 5;
    reshard_device_mesh *mesh = make_line(group);
    reshard_module *mlp = make_mlp(4);
    reshard_tensor *x = make_leaf(SHAPE(8, 4));
    reshard_saved_counts counts = {.size = sizeof counts};
    reshard_input_reshard_options options = {
        .size = sizeof options, .select = select_wide, .user = &wide};
    (void)user;
    reshard_status status = compare(mlp, x, mesh, 0, &options, &counts);
    /* gelu's two, of 8x5 doubles, and not x */
    CHECK(status != RESHARD_OK || (counts.packed == 2 && counts.whole_bytes == 2 * 8 * 5 * 8));
    CHECK(status != RESHARD_OK || counts.chunk_bytes == 2 * 2 * 5 * 8);
    reshard_module_release(mlp);
    reshard_tensor_release(x);
    reshard_device_mesh_release(mesh);
    return status;
}

static void test_select__some(void **state)
{
    (void)state;
    run_ranks(4, body_select, NULL);
}

/* A block between a scope's forward and backward: bytes that the graph keeps, as the allocator
 * counts them. */
static reshard_status measure(reshard_context *context, reshard_module *block, reshard_tensor *x,
                              size_t *out_bytes)
{
    reshard_scope *outer = NULL, *inner = NULL;
    size_t before = info_memory(context).bytes;
    MUST(reshard_scope_open(context, &outer));
    MUST(reshard_scope_open(context, &inner));
    reshard_tensor *loss = reshard_scope_keep(reshard_sum(reshard_module_forward(block, x)));
    TRY(reshard_scope_close(inner));
    *out_bytes = info_memory(context).bytes - before;
    TRY(reshard_backward(loss, NULL, NULL));
    return reshard_scope_close(outer);
}

static reshard_status body_memory(void *user, reshard_group *group)
{
    reshard_context *context = NULL;
    reshard_module *block = NULL;
    reshard_hook *hook = NULL;
    reshard_layer_options options = {.size = sizeof options, .dtype = RESHARD_F64, .seed = 3};
    reshard_device_mesh *mesh = make_line(group);
    reshard_tensor *x = make_leaf(SHAPE(2, 32, 16));
    reshard_saved_counts counts = {.size = sizeof counts};
    size_t without = 0, with = 0;
    (void)user;
    MUST(reshard_context_create(NULL, &context));
    MUST(reshard_block_create(context, 16, 2, &options, &block));
    TRY(measure(context, block, x, &without)); /* gradients are made here */
    TRY(measure(context, block, x, &without));
    MUST(reshard_module_input_reshard(block, mesh, -2, NULL, &hook));
    TRY(measure(context, block, x, &with));
    MUST(reshard_input_reshard_counts(hook, &counts));
    CHECK(counts.whole_bytes == 4 * counts.chunk_bytes); /* 32 rows over 4 ranks */
    CHECK(counts.shared >= 2);                           /* q, k and v save one tensor */
    /* What went is what the counter says, but for headers. */
    size_t gone = (size_t)(counts.whole_bytes - counts.chunk_bytes);
    CHECK(with < without && without - with > gone * 8 / 10);
    reshard_hook_remove(hook);
    reshard_module_release(block);
    reshard_tensor_release(x);
    reshard_device_mesh_release(mesh);
    CHECK(info_memory(context).bytes == 0);
    reshard_context_destroy(context);
    return RESHARD_OK;
}

static void test_memory__is_really_less(void **state)
{
    (void)state;
    run_ranks(4, body_memory, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients__all_shapes_and_dims),
        cmocka_unit_test(test_gradients__dim_that_is_not_there),
        cmocka_unit_test(test_varying__is_kept_or_found_out),
        cmocka_unit_test(test_varying__what_is_made_of_shards),
        cmocka_unit_test(test_distributed__by_layout),
        cmocka_unit_test(test_distributed__over_one_axis),
        cmocka_unit_test(test_hook__again_failing_and_off),
        cmocka_unit_test(test_hook__after_a_failure),
        cmocka_unit_test(test_hook__nested_modules),
        cmocka_unit_test(test_hook__nested_over_one_axis),
        cmocka_unit_test(test_select__some),
        cmocka_unit_test(test_shared__only_the_same_elements),
        cmocka_unit_test(test_memory__is_really_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
