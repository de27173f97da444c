/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_upstream.c - PyTorch's tests of modules with its sizes and dtypes: a custom sharder of
 * embedding bags, a plan of two linears, the training of an MLP and of a model over two axes with
 * input_reshard. In f32 as there, and in f64, where differences cannot hide in the rounding.
 */
#include "tests/nn/modules.h"
#include "tests/support/info.h"
#include "tests/tensor/ran_tensor.h"

#include <math.h>

/* ---- a custom sharder ------------------------------------------------------------------------ */

/* Equal but for the order of sums. */
static bool is_alike(reshard_dtype dtype, double a, double b)
{
    return fabs(a - b) <= (dtype == RESHARD_F32 ? 1e-5 : 1e-12) * (1 + fabs(a));
}

enum { BAGS = 10 };

/* An embedding bag: the sum of the rows that the indices of a line name. Rows of a table that is
 * cut come from all ranks, as partial sums or as parts of columns. */
static reshard_value forward_bag(reshard_module *module, void *user, reshard_value input)
{
    reshard_module *embedding = reshard_module_child(module, 0, NULL);
    (void)user;
    reshard_tensor *rows = reshard_module_forward(embedding, reshard_value_tensor(input));
    if (rows != NULL && reshard_tensor_layout(rows) != NULL)
        rows = reshard_tensor_full(rows);
    return reshard_value_of(reshard_reduce_dims(rows, RESHARD_SUM, 1, (int32_t[]){1}, 0));
}

static reshard_value forward_bags(reshard_module *module, void *user, reshard_value input)
{
    reshard_tensor *outputs[BAGS];
    (void)user;
    for (int32_t i = 0; i < BAGS; i++)
        outputs[i] = reshard_module_forward(reshard_module_child(module, i, NULL),
                                            reshard_value_tensor(input));
    return reshard_value_of(reshard_cat(BAGS, outputs, 0));
}

static reshard_value forward_only_child(reshard_module *module, void *user, reshard_value input)
{
    (void)user;
    return reshard_module_call(reshard_module_child(module, 0, NULL), input);
}

static reshard_module *make_collection(reshard_dtype dtype)
{
    reshard_module *collection = make_module("collection", forward_bags);
    for (int32_t i = 0; i < BAGS; i++) {
        reshard_layer_options options = {
            .size = sizeof options, .dtype = dtype, .seed = (uint64_t)i};
        reshard_module *bag = make_module("bag", forward_bag), *embedding = NULL;
        char name[16];
        MUST(reshard_embedding_create(NULL, 10, 8, &options, &embedding));
        add_child(bag, "table", embedding);
        (void)snprintf(name, sizeof name, "bag_%d", (int)i);
        add_child(collection, name, bag);
    }
    reshard_module *model = make_module("model", forward_only_child);
    add_child(model, "ebc", collection);
    return model;
}

/* The first bags by rows, the others by columns, in a collection of another kind. */
typedef struct bag_sharder {
    int32_t first_count;
    reshard_spec *rows, *columns;
} bag_sharder;

static reshard_status shard_bags(void *user, reshard_module *module, reshard_group *group,
                                 reshard_module **out_module)
{
    const bag_sharder *s = user;
    reshard_module_kind kind = {.name = "sharded collection", .forward = forward_bags};
    reshard_status status = reshard_module_create(NULL, &kind, out_module);
    for (int32_t i = 0; i < BAGS && status == RESHARD_OK; i++) {
        const char *name = NULL;
        reshard_module *bag = reshard_module_child(module, i, &name);
        status = reshard_module_shard_parameter(
            bag, "table.weight", i < s->first_count ? s->rows : s->columns, 0, group);
        if (status == RESHARD_OK)
            status = reshard_module_add_child(*out_module, name, bag);
    }
    return status;
}

static reshard_status check_cut(reshard_module *model, const char *path, int32_t rank,
                                const char *cut)
{
    reshard_tensor *weight = NULL;
    MUST(reshard_module_find_tensor(model, path, &weight));
    CHECK(reshard_tensor_layout(weight) != NULL);
    ran_here(info_tensor(weight).group, "test_custom_sharder", "%s %s", path,
             ran_tensor(weight).text);
    const int64_t *shape = reshard_tensor_shape(reshard_tensor_local_shard(weight, 0));
    /* 10 rows over 4 are 3, 3, 3, 1; 8 columns 2 each */
    CHECK(shape[0] == (cut[0] == 'r' ? (rank < 3 ? 3 : 1) : 10));
    CHECK(shape[1] == (cut[0] == 'r' ? 8 : 2));
    return RESHARD_OK;
}

typedef struct bags_case {
    int32_t first_count;
    reshard_dtype dtype;
} bags_case;

static reshard_status body_bags(void *user, reshard_group *group)
{
    const bags_case *c = user;
    int32_t rank = reshard_group_rank(group);
    bag_sharder bags = {c->first_count, make_spec("4: S(0)"), make_spec("4: S(1)")};
    reshard_sharder sharder = {shard_bags, &bags};
    reshard_module *local = make_collection(c->dtype), *model = make_collection(c->dtype);
    reshard_sharding_plan *plan = NULL;
    reshard_tensor *x = make_zeros(RESHARD_I64, SHAPE(2, 4));
    for (int64_t i = 0; i < 8; i++)
        set_element(x, i, (double)i);
    MUST(reshard_sharding_plan_create(NULL, &plan));
    MUST(reshard_sharding_plan_add_module(
        plan, "ebc", RESHARD_OPTIONS(reshard_sharding_module, .sharder = &sharder)));
    TRY(reshard_module_shard(model, plan, 0, group, NULL));
    CHECK(strcmp(reshard_module_kind_name(reshard_module_child(model, 0, NULL)),
                 "sharded collection") == 0);
    CHECK(reshard_module_child(model, 1, NULL) == NULL);
    TRY(check_cut(model, "ebc.bag_0.table.weight", rank, "rows"));
    TRY(check_cut(model, "ebc.bag_9.table.weight", rank, "columns"));

    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *a = reshard_module_forward(local, x), *b = reshard_module_forward(model, x);
    CHECK(a != NULL && b != NULL && reshard_tensor_layout(b) == NULL);
    CHECK(reshard_tensor_shape(b)[0] == 20 && reshard_tensor_shape(b)[1] == 8);
    for (int64_t i = 0; i < 160; i++)
        CHECK(is_alike(c->dtype, element(a, i), element(b, i)));
    ran_here(group, "test_custom_sharder", "input %s", ran_tensor(x).text);
    MUST(reshard_scope_close(scope));

    /* a parameter below the sharder's module; upstream's is cut over two ranks */
    reshard_sharding_plan *wrong = NULL;
    reshard_spec *two = make_spec("2: S(0)");
    MUST(reshard_sharding_plan_create(NULL, &wrong));
    MUST(reshard_sharding_plan_add(wrong, "ebc.bag_0.table.weight", two));
    ran_here(group, "test_custom_sharder_errors", "below the sharder's module %s",
             ran_spec(two).text);
    reshard_spec_release(two);
    MUST(reshard_sharding_plan_add_module(
        wrong, "ebc", RESHARD_OPTIONS(reshard_sharding_module, .sharder = &sharder)));
    CHECK(reshard_module_shard(local, wrong, 0, group, NULL) == RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(), "lies below \"ebc\"") != NULL);
    reshard_sharding_plan_destroy(wrong);
    reshard_sharding_plan_destroy(plan);
    reshard_module_release(local);
    reshard_module_release(model);
    reshard_tensor_release(x);
    reshard_spec_release(bags.rows);
    reshard_spec_release(bags.columns);
    return RESHARD_OK;
}

static void test_custom_sharder__embedding_bags(void **state)
{
    (void)state;
    bags_case cases[] = {{2, RESHARD_F32}, {5, RESHARD_F32}, {2, RESHARD_F64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_ranks(4, body_bags, &cases[i]);
}

/* ---- a plan of two linears ------------------------------------------------------------------- */

/* fc1, gelu, fc2. */
static reshard_value forward_megatron(reshard_module *module, void *user, reshard_value input)
{
    (void)user;
    reshard_tensor *hidden =
        reshard_module_forward(reshard_module_child(module, 0, NULL), reshard_value_tensor(input));
    return reshard_module_call(reshard_module_child(module, 1, NULL),
                               reshard_value_of(reshard_gelu(hidden)));
}

typedef struct megatron_case {
    reshard_dtype dtype;
    const char *order; /* of the ranks that have the chunks of the weights */
    int64_t rows, sizes[3];
} megatron_case;

static reshard_module *make_megatron(const megatron_case *c)
{
    reshard_module *module = make_module("megatron", forward_megatron);
    for (int i = 0; i < 2; i++) {
        reshard_layer_options options = {
            .size = sizeof options, .dtype = c->dtype, .seed = (uint64_t)i};
        reshard_module *linear = NULL;
        MUST(reshard_linear_create(NULL, c->sizes[i], c->sizes[i + 1], &options, &linear));
        add_child(module, i == 0 ? "fc1" : "fc2", linear);
    }
    return module;
}

/* Weights alone are cut, fc1's by rows and fc2's by columns; each rank gets its rows of the
 * output. */
static reshard_module *shard_megatron(const megatron_case *c, reshard_group *group)
{
    static const char *const names[] = {"fc1.weight", "fc2.weight", ""};
    reshard_module *module = make_megatron(c);
    reshard_sharding_plan *plan = NULL;
    MUST(reshard_sharding_plan_create(NULL, &plan));
    for (int i = 0; i < 3; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "4[%s]: S(%d)", i < 2 ? c->order : "0..3", i % 2);
        reshard_spec *spec = make_spec(text);
        MUST(i < 2 ? reshard_sharding_plan_add(plan, names[i], spec)
                   : reshard_sharding_plan_add_module(
                         plan, names[i], RESHARD_OPTIONS(reshard_sharding_module, .output = spec)));
        reshard_spec_release(spec);
    }
    MUST(reshard_sharding_plan_add_module(
        plan, "", RESHARD_OPTIONS(reshard_sharding_module, .local_output = 1)));
    MUST(reshard_module_shard(module, plan, 0, group, NULL));
    reshard_sharding_plan_destroy(plan);
    return module;
}

/* Forward and backward of the sum; the output, whole. */
static reshard_status run_model(reshard_module *module, reshard_tensor *x, double *out_values)
{
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_module_forward(module, x);
    if (y != NULL && reshard_tensor_layout(y) != NULL)
        y = reshard_tensor_full(y);
    (void)reshard_backward(reshard_sum(y), NULL, NULL);
    for (int64_t i = 0; y != NULL && i < reshard_tensor_volume(y); i++)
        out_values[i] = element(y, i);
    return reshard_scope_close(scope);
}

/* Parameters, or their gradients, of two modules, whole. */
static reshard_status compare_parameters(reshard_module *a, reshard_module *b, bool gradients)
{
    reshard_named_tensors *lists[2] = {NULL, NULL};
    MUST(reshard_module_parameters(a, &lists[0]));
    MUST(reshard_module_parameters(b, &lists[1]));
    CHECK(lists[0]->count == lists[1]->count);
    for (int64_t i = 0; i < lists[0]->count; i++) {
        reshard_tensor *x[2] = {NULL, NULL};
        reshard_scope *scope = NULL;
        MUST(reshard_scope_open(NULL, &scope));
        for (int k = 0; k < 2; k++) {
            x[k] = lists[k]->items[i].tensor;
            x[k] = gradients ? reshard_tensor_gradient(x[k]) : x[k];
            CHECK(x[k] != NULL);
            if (reshard_tensor_layout(x[k]) != NULL)
                x[k] = reshard_tensor_full(x[k]);
        }
        for (int64_t k = 0; k < reshard_tensor_volume(x[0]); k++)
            CHECK(is_alike(reshard_tensor_dtype(x[0]), element(x[0], k), element(x[1], k)));
        MUST(reshard_scope_close(scope));
    }
    reshard_named_tensors_destroy(lists[0]);
    reshard_named_tensors_destroy(lists[1]);
    return RESHARD_OK;
}

static reshard_tensor *make_input(reshard_dtype dtype, uint64_t seed, int32_t ndim,
                                  const int64_t *shape)
{
    reshard_tensor *x = make_zeros(dtype, ndim, shape);
    MUST(reshard_tensor_fill_random(x, RESHARD_UNIFORM, seed));
    return x;
}

/* Every rank has an input of its own; the layers see those of all ranks. */
static reshard_status body_megatron(void *user, reshard_group *group)
{
    const megatron_case *c = user;
    int32_t rank = reshard_group_rank(group);
    reshard_sgd_options sgd = {.size = sizeof sgd, .learning_rate = 0.1};
    reshard_module *models[2] = {make_megatron(c), shard_megatron(c, group)};
    reshard_tensor *x = make_input(c->dtype, (uint64_t)rank, SHAPE(c->rows, c->sizes[0]));
    reshard_tensor *weights[2] = {NULL, NULL};
    static _Thread_local double outputs[4 * 37 * 29];
    reshard_scope *scope = NULL;
    MUST(reshard_module_find_tensor(models[1], "fc1.weight", &weights[0]));
    MUST(reshard_module_find_tensor(models[1], "fc2.weight", &weights[1]));
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *all = reshard_tensor_exchange(
        x, group, RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER));
    reshard_tensor *mine = reshard_module_forward(models[0], x);
    reshard_tensor *y = reshard_module_forward(models[1], all);
    CHECK(mine != NULL && y != NULL && reshard_tensor_layout(y) == NULL);
    CHECK(reshard_tensor_shape(y)[0] == c->rows && reshard_tensor_shape(y)[1] == c->sizes[2]);
    for (int64_t i = 0; i < reshard_tensor_volume(mine); i++)
        CHECK(is_alike(c->dtype, element(mine, i), element(y, i)));
    ran_here(group, "test_megatron_two_layer_prototype",
             "input %s on each rank, fc1.weight %s, fc2.weight %s", ran_tensor(x).text,
             ran_tensor(weights[0]).text + 4, ran_tensor(weights[1]).text + 4);
    /* Gradients are those of all ranks' losses together. */
    TRY(reshard_backward(reshard_sum(y), NULL, NULL));
    TRY(run_model(models[0], all, outputs));
    TRY(reshard_scope_close(scope));
    TRY(compare_parameters(models[0], models[1], true));
    for (int k = 0; k < 2; k++) {
        reshard_optimizer *optimizer = NULL;
        MUST(reshard_sgd_create(NULL, models[k], &sgd, &optimizer));
        TRY(reshard_optimizer_step(optimizer));
        reshard_optimizer_destroy(optimizer);
    }
    TRY(compare_parameters(models[0], models[1], false));
    reshard_tensor_release(x);
    for (int k = 0; k < 2; k++)
        reshard_module_release(models[k]);
    return RESHARD_OK;
}

static void test_megatron_two_layer_prototype(void **state)
{
    (void)state;
    static const char *const orders[] = {"0,1,2,3", "2,3,0,1", "3,0,1,2"};
    static const int64_t sizes[][4] = {
        {22, 17, 12, 29}, {28, 21, 11, 29}, {37, 23, 13, 24}, {24, 15, 14, 20}};
    for (int i = 0; i < 24; i++) {
        const int64_t *n = sizes[i % 4];
        megatron_case c = {
            i < 12 ? RESHARD_F32 : RESHARD_F64, orders[i / 4 % 3], n[0], {n[1], n[2], n[3]}};
        run_ranks(4, body_megatron, &c);
    }
}

/* ---- training with input_reshard ------------------------------------------------------------- */

/* An MLP 10 -> 16 -> 10, input 8x10, SGD with a rate of 0.25: outputs, gradients and weights are
 * the local model's. Sequence parallel: every rank has its own input, and its own output. */
typedef struct mlp_case {
    reshard_dtype dtype;
    bool sequence_parallel;
} mlp_case;

static reshard_module *shard_mlp(reshard_module *mlp, reshard_group *group, bool rows_out)
{
    static const char *const names[] = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2"};
    const char *const cuts[] = {"S(0)", "S(0)", "S(1)", rows_out ? "S(0)" : "R"};
    reshard_sharding_plan *plan = NULL;
    MUST(reshard_sharding_plan_create(NULL, &plan));
    for (int i = 0; i < 4; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "%d: %s", (int)reshard_group_size(group), cuts[i]);
        reshard_spec *spec = make_spec(text);
        MUST(i < 3 ? reshard_sharding_plan_add(plan, names[i], spec)
                   : reshard_sharding_plan_add_module(
                         plan, names[i], RESHARD_OPTIONS(reshard_sharding_module, .output = spec)));
        reshard_spec_release(spec);
    }
    MUST(reshard_module_shard(mlp, plan, 0, group, NULL));
    reshard_sharding_plan_destroy(plan);
    return mlp;
}

/* All ranks' inputs: the local model has them at once, the other one each rank's own. */
static reshard_status step_mlp(const mlp_case *c, reshard_group *group, uint64_t step,
                               reshard_module *const *models)
{
    int32_t size = reshard_group_size(group);
    int64_t rows = c->sequence_parallel ? 8 * size : 8;
    double outputs[2][8 * 4 * 10];
    char text[32];
    reshard_tensor *x = make_input(c->dtype, step, SHAPE(rows, 10)), *own = NULL, *all = NULL;
    TRY(run_model(models[0], x, outputs[0]));
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    if (c->sequence_parallel) {
        (void)snprintf(text, sizeof text, "%d: S(0)", (int)size);
        own = distribute(group, text, x);
        CHECK(reshard_tensor_shape(reshard_tensor_local_shard(own, 0))[0] == 8);
        (void)snprintf(text, sizeof text, "%d: R", (int)size);
        reshard_spec *everywhere = make_spec(text);
        all = reshard_tensor_redistribute(own, everywhere, NULL);
        reshard_spec_release(everywhere);
    }
    TRY(run_model(models[1], all != NULL ? all : x, outputs[1]));
    MUST(reshard_scope_close(scope));
    ran_here(group, "test_mlp_training", "input %s, on %d ranks",
             ran_tensor(own != NULL ? own : x).text, (int)size);
    for (int64_t i = 0; i < rows * 10; i++)
        CHECK(is_alike(c->dtype, outputs[0][i], outputs[1][i]));
    reshard_tensor_release(own);
    reshard_tensor_release(x);
    return compare_parameters(models[0], models[1], true);
}

static reshard_status body_mlp(void *user, reshard_group *group)
{
    const mlp_case *c = user;
    reshard_layer_options options = {.size = sizeof options, .dtype = c->dtype, .seed = 5};
    reshard_sgd_options sgd = {.size = sizeof sgd, .learning_rate = 0.25};
    reshard_module *models[2] = {NULL, NULL};
    reshard_optimizer *optimizers[2] = {NULL, NULL};
    reshard_device_mesh *mesh = make_line(group);
    reshard_hook *hook = NULL;
    reshard_saved_counts counts = {.size = sizeof counts};
    for (int k = 0; k < 2; k++)
        MUST(reshard_mlp_create(NULL, 10, 16, RESHARD_ACTIVATION_RELU, &options, &models[k]));
    (void)shard_mlp(models[1], group, c->sequence_parallel);
    TRY(reshard_module_input_reshard(models[1], mesh, 0, NULL, &hook));
    for (int k = 0; k < 2; k++)
        MUST(reshard_sgd_create(NULL, models[k], &sgd, &optimizers[k]));
    for (uint64_t step = 0; step < 3; step++) {
        TRY(step_mlp(c, group, step, models));
        for (int k = 0; k < 2; k++) {
            TRY(reshard_optimizer_step(optimizers[k]));
            reshard_optimizer_clear_gradients(optimizers[k]);
        }
        TRY(compare_parameters(models[0], models[1], false));
    }
    MUST(reshard_input_reshard_counts(hook, &counts));
    CHECK(counts.packed == (reshard_group_size(group) > 1 ? 3 : 0)); /* the input of each step */
    reshard_hook_remove(hook);
    for (int k = 0; k < 2; k++) {
        reshard_optimizer_destroy(optimizers[k]);
        reshard_module_release(models[k]);
    }
    reshard_device_mesh_release(mesh);
    return RESHARD_OK;
}

static void test_mlp_training(void **state)
{
    (void)state;
    mlp_case cases[] = {
        {RESHARD_F32, false}, {RESHARD_F32, true}, {RESHARD_F64, false}, {RESHARD_F64, true}};
    for (int32_t size = 1; size <= 4; size++) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            run_ranks(size, body_mlp, &cases[i]);
    }
}

/* 5 -> 8 -> 4 -> 12 with a relu after each, over dp=2,tp=2. */
static reshard_value forward_simple(reshard_module *module, void *user, reshard_value input)
{
    reshard_tensor *x = reshard_value_tensor(input);
    (void)user;
    x = reshard_relu(reshard_module_forward(reshard_module_child(module, 0, NULL), x));
    x = reshard_relu(reshard_module_forward(reshard_module_child(module, 1, NULL), x));
    return reshard_value_of(
        reshard_relu(reshard_module_forward(reshard_module_child(module, 2, NULL), x)));
}

static reshard_module *make_simple(reshard_dtype dtype)
{
    static const int64_t sizes[] = {5, 8, 4, 12};
    static const char *const names[] = {"fc1", "fc2", "fc3"};
    reshard_module *module = make_module("simple", forward_simple);
    for (int i = 0; i < 3; i++) {
        reshard_layer_options options = {
            .size = sizeof options, .dtype = dtype, .seed = (uint64_t)i};
        reshard_module *linear = NULL;
        MUST(reshard_linear_create(NULL, sizes[i], sizes[i + 1], &options, &linear));
        add_child(module, names[i], linear);
    }
    return module;
}

/* Rows of the input over dp, 4x5 for each rank; cuts over tp. Outputs of fc2 stay cut over dp. */
static reshard_module *shard_simple(reshard_group *group, reshard_dtype dtype)
{
    static const char *const names[] = {"fc1.weight", "fc1.bias", "fc2.weight"};
    static const char *const specs[] = {"dp=2,tp=2: R, S(0)", "dp=2,tp=2: R, S(0)",
                                        "dp=2,tp=2: R, S(1)"};
    reshard_module *module = make_simple(dtype);
    reshard_sharding_plan *plan = NULL;
    MUST(reshard_sharding_plan_create(NULL, &plan));
    for (int i = 0; i < 3; i++) {
        reshard_spec *spec = make_spec(specs[i]);
        MUST(reshard_sharding_plan_add(plan, names[i], spec));
        reshard_spec_release(spec);
    }
    reshard_spec *rows = make_spec("dp=2,tp=2: S(0), R");
    MUST(reshard_sharding_plan_add_module(
        plan, "fc2", RESHARD_OPTIONS(reshard_sharding_module, .output = rows)));
    MUST(reshard_module_shard(module, plan, 0, group, NULL));
    reshard_spec_release(rows);
    reshard_sharding_plan_destroy(plan);
    return module;
}

static reshard_status body_two_axes(void *user, reshard_group *group)
{
    static const char *const names[] = {"dp", "tp"};
    const int32_t sizes[] = {2, 2};
    reshard_mesh *mesh = NULL;
    reshard_device_mesh *world = NULL, *slice = NULL;
    reshard_adamw_options adamw = {.size = sizeof adamw, .learning_rate = 0.01};
    reshard_dtype dtype = *(const reshard_dtype *)user;
    reshard_module *models[2] = {make_simple(dtype), shard_simple(group, dtype)};
    reshard_optimizer *optimizers[2] = {NULL, NULL};
    reshard_hook *hook = NULL;
    reshard_saved_counts counts = {.size = sizeof counts};
    MUST(reshard_mesh_create(NULL, 2, names, sizes, NULL, &mesh));
    MUST(reshard_device_mesh_create(NULL, group, mesh, &world));
    MUST(reshard_device_mesh_slice(world, 1, names + 1, &slice));
    TRY(reshard_module_input_reshard(models[1], slice, 0, NULL, &hook));
    for (int k = 0; k < 2; k++)
        MUST(reshard_adamw_create(NULL, models[k], &adamw, &optimizers[k]));
    for (uint64_t step = 0; step < 5; step++) {
        double outputs[2][8 * 12];
        reshard_tensor *x = make_input(dtype, step, SHAPE(8, 5));
        reshard_tensor *rows = distribute(group, "dp=2,tp=2: S(0), R", x);
        ran_here(group, "test_2d_e2e_training", "input %s", ran_tensor(rows).text);
        CHECK(reshard_tensor_shape(reshard_tensor_local_shard(rows, 0))[0] == 4);
        TRY(run_model(models[0], x, outputs[0]));
        TRY(run_model(models[1], rows, outputs[1]));
        for (int i = 0; i < 8 * 12; i++)
            CHECK(is_alike(dtype, outputs[0][i], outputs[1][i]));
        TRY(compare_parameters(models[0], models[1], true));
        for (int k = 0; k < 2; k++) {
            TRY(reshard_optimizer_step(optimizers[k]));
            reshard_optimizer_clear_gradients(optimizers[k]);
        }
        reshard_tensor_release(rows);
        reshard_tensor_release(x);
    }
    TRY(compare_parameters(models[0], models[1], false));
    MUST(reshard_input_reshard_counts(hook, &counts));
    CHECK(counts.packed > 0 && counts.whole_bytes == 2 * counts.chunk_bytes);
    reshard_hook_remove(hook);
    for (int k = 0; k < 2; k++) {
        reshard_optimizer_destroy(optimizers[k]);
        reshard_module_release(models[k]);
    }
    reshard_device_mesh_release(slice);
    reshard_device_mesh_release(world);
    reshard_mesh_release(mesh);
    return RESHARD_OK;
}

static void test_2d_e2e_training(void **state)
{
    (void)state;
    reshard_dtype dtypes[] = {RESHARD_F32, RESHARD_F64};
    for (int i = 0; i < 2; i++)
        run_ranks(4, body_two_axes, &dtypes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_custom_sharder__embedding_bags),
        cmocka_unit_test(test_megatron_two_layer_prototype),
        cmocka_unit_test(test_mlp_training),
        cmocka_unit_test(test_2d_e2e_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
