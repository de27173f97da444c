/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rows.c - local tensors that differ between ranks, in layers with distributed weights. Where
 * layouts tell that they differ, every rank has its own rows, as in PyTorch's sharded operations:
 * what a rank gets is compared with an undivided layer on its own rows. Where nothing tells, ranks
 * compare, and refuse.
 */
#include "tests/nn/folder.h"
#include "tests/nn/modules.h"
#include "tests/support/info.h"
#include "tests/tensor/distributed.h"

#include <reshard/reshard_nn.h>

#include <math.h>

enum { WIDTH = 6, HIDDEN = 8 };

/* Rows of numbers, other ones for each rank. */
static reshard_tensor *make_rows(int32_t rank, int64_t rows)
{
    draw_state draw;
    draw_seed(&draw, 100 + (uint64_t)rank);
    reshard_tensor *made = make_random(RESHARD_F64, &draw, SHAPE(rows, WIDTH));
    MUST(reshard_tensor_set_requires_grad(made, 1));
    return made;
}

/* The same tensor, of which layouts tell that it differs. */
static reshard_tensor *told(reshard_tensor *local, reshard_group *group)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%d: S(0)", reshard_group_size(group));
    return reshard_tensor_to_local(local_as(local, group, text), NULL);
}

static reshard_module *make_mlps(void)
{
    reshard_module *made = NULL, *mlps[2];
    for (uint64_t i = 0; i < 2; i++) {
        reshard_layer_options options = {.size = sizeof options, .dtype = RESHARD_F64, .seed = i};
        MUST(reshard_mlp_create(NULL, WIDTH, HIDDEN, RESHARD_ACTIVATION_GELU, &options, &mlps[i]));
    }
    MUST(reshard_sequential_create(NULL, 2, mlps, &made));
    reshard_module_release(mlps[0]);
    reshard_module_release(mlps[1]);
    return made;
}

static void add_entry(reshard_sharding_plan *plan, const char *name, int32_t size, const char *cut)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%d: %s", size, cut);
    MUST(reshard_sharding_plan_add_text(plan, name, text));
}

/* Upstream's plan for two linear layers, for both MLPs: rows, columns, and an output that is cut by
 * rows and returned as a local tensor, which goes into the next MLP. */
static reshard_status shard_mlps(reshard_module *module, reshard_group *group)
{
    reshard_sharding_plan *plan = NULL;
    int32_t size = reshard_group_size(group);
    char text[32];
    (void)snprintf(text, sizeof text, "%d: S(0)", size);
    reshard_spec *rows = make_spec(text);
    MUST(reshard_sharding_plan_create(NULL, &plan));
    add_entry(plan, "0.fc1.weight", size, "S(0)");
    add_entry(plan, "0.fc2.weight", size, "S(1)");
    add_entry(plan, "1.fc1.weight", size, "S(0)");
    add_entry(plan, "1.fc2.weight", size, "S(1)");
    MUST(reshard_sharding_plan_add_module(
        plan, "0", RESHARD_OPTIONS(reshard_sharding_module, .output = rows)));
    MUST(reshard_sharding_plan_add_module(
        plan, "0", RESHARD_OPTIONS(reshard_sharding_module, .local_output = 1)));
    MUST(reshard_sharding_plan_add_module(
        plan, "1", RESHARD_OPTIONS(reshard_sharding_module, .output = rows)));
    MUST(reshard_sharding_plan_add_module(
        plan, "1", RESHARD_OPTIONS(reshard_sharding_module, .local_output = 1)));
    reshard_status status = reshard_module_shard(module, plan, 0, group, NULL);
    reshard_sharding_plan_destroy(plan);
    reshard_spec_release(rows);
    return status;
}

static reshard_status check_close(const reshard_tensor *a, const reshard_tensor *b)
{
    CHECK(a != NULL && b != NULL && reshard_tensor_ndim(a) == reshard_tensor_ndim(b) &&
          is_close(a, b, 1e-12));
    return RESHARD_OK;
}

/* The gradients of cut weights are those of the undivided ones on all rows: the sum over ranks. */
static reshard_status check_weights(reshard_module *cut, reshard_module *whole,
                                    reshard_group *group)
{
    static const char *const names[] = {"0.fc1.weight", "0.fc2.weight", "1.fc1.bias",
                                        "1.fc2.weight"};
    reshard_scope *scope = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        reshard_tensor *mine = NULL, *theirs = NULL;
        MUST(reshard_module_find_tensor(cut, names[i], &mine));
        MUST(reshard_module_find_tensor(whole, names[i], &theirs));
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *sum =
            reshard_tensor_exchange(reshard_tensor_gradient(theirs), group,
                                    RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE,
                                                    .reduction = RESHARD_SUM));
        reshard_tensor *gradient = reshard_tensor_gradient(mine);
        if (reshard_tensor_layout(gradient) != NULL)
            gradient = reshard_tensor_full(gradient);
        reshard_status status = check_close(gradient, sum);
        TRY(reshard_scope_close(scope));
        TRY(status);
    }
    return RESHARD_OK;
}

static reshard_status body_chain(void *user, reshard_group *group)
{
    (void)user;
    reshard_scope *scope = NULL;
    reshard_module *whole = make_mlps(), *cut = make_mlps();
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *x = make_rows(rank, 2), *own = make_rows(rank, 2);
    TRY(shard_mlps(cut, group));
    for (int step = 0; step < 2; step++) { /* nothing is kept that a second step would trip over */
        TRY(reshard_scope_open(NULL, &scope));
        reshard_tensor *y = reshard_module_forward(cut, told(x, group));
        reshard_tensor *expected = reshard_module_forward(whole, own);
        TRY(reshard_scope_status(scope));
        CHECK(reshard_tensor_layout(y) == NULL);
        TRY(check_close(y, expected));
        (void)reshard_backward(reshard_sum(reshard_mul(y, y)), NULL, NULL);
        (void)reshard_backward(reshard_sum(reshard_mul(expected, expected)), NULL, NULL);
        TRY(reshard_scope_close(scope));
        TRY(check_close(reshard_tensor_gradient(x), reshard_tensor_gradient(own)));
    }
    TRY(check_weights(cut, whole, group));
    reshard_tensor_release(x);
    reshard_tensor_release(own);
    reshard_module_release(whole);
    reshard_module_release(cut);
    return RESHARD_OK;
}

static void test_rows__from_block_to_block(void **state)
{
    (void)state;
    for (int32_t size = 1; size <= 4; size++)
        run_ranks(size, body_chain, NULL);
}

/* ---- other layers ---------------------------------------------------------------------------- */

/* The gradient of the cut parameter is that of the undivided one on all rows. */
static reshard_status check_gradients(reshard_module *cut, reshard_module *whole, const char *name,
                                      reshard_tensor *y, reshard_tensor *expected,
                                      reshard_group *group)
{
    reshard_tensor *mine = NULL, *theirs = NULL;
    TRY(reshard_backward(reshard_sum(reshard_mul(y, y)), NULL, NULL));
    TRY(reshard_backward(reshard_sum(reshard_mul(expected, expected)), NULL, NULL));
    MUST(reshard_module_find_tensor(cut, name, &mine));
    MUST(reshard_module_find_tensor(whole, name, &theirs));
    return check_close(
        reshard_tensor_full(reshard_tensor_gradient(mine)),
        reshard_tensor_exchange(reshard_tensor_gradient(theirs), group,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE,
                                                .reduction = RESHARD_SUM)));
}

/* Cuts one parameter of a layer over all ranks, and compares the rows of all. */
static reshard_status one_layer(reshard_module *cut, reshard_module *whole, const char *name,
                                const char *how, reshard_tensor *own, reshard_group *group)
{
    reshard_sharding_plan *plan = NULL;
    reshard_scope *scope = NULL;
    MUST(reshard_sharding_plan_create(NULL, &plan));
    add_entry(plan, name, reshard_group_size(group), how);
    TRY(reshard_module_shard(cut, plan, 0, group, NULL));
    reshard_sharding_plan_destroy(plan);
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_module_forward(cut, told(own, group));
    reshard_tensor *expected = reshard_module_forward(whole, own);
    TRY(reshard_scope_status(scope));
    CHECK(reshard_tensor_layout(y) != NULL);
    y = reshard_tensor_full(y);
    TRY(check_close(
        y, reshard_tensor_exchange(expected, group,
                                   RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER))));
    TRY(check_gradients(cut, whole, name, y, expected, group));
    TRY(reshard_scope_close(scope));
    reshard_module_release(cut);
    reshard_module_release(whole);
    return RESHARD_OK;
}

static reshard_status make_both(int kind, reshard_module **out_one, reshard_module **out_other)
{
    reshard_layer_options options = {.size = sizeof options, .dtype = RESHARD_F64, .seed = 3};
    reshard_embedding_bag_options maxima = {.size = sizeof maxima, .reduction = RESHARD_MAX};
    reshard_gpt_options gpt = {.size = sizeof gpt,
                               .vocabulary = 8,
                               .length = 4,
                               .width = WIDTH,
                               .heads = 2,
                               .layers = 1,
                               .dtype = RESHARD_F64,
                               .seed = 3};
    for (int i = 0; i < 2; i++) {
        reshard_module **out = i == 0 ? out_one : out_other;
        if (kind == 0)
            TRY(reshard_linear_create(NULL, WIDTH, HIDDEN, &options, out));
        else if (kind == 1)
            TRY(reshard_embedding_create(NULL, 8, WIDTH, &options, out));
        else if (kind == 2)
            TRY(reshard_layernorm_create(NULL, WIDTH, 1e-5, &options, out));
        else if (kind == 3)
            TRY(reshard_block_create(NULL, WIDTH, 2, &options, out));
        else if (kind == 5)
            TRY(reshard_embedding_bag_create(NULL, 8, WIDTH, &maxima, &options, out));
        else
            TRY(reshard_gpt_create(NULL, &gpt, out));
    }
    return RESHARD_OK;
}

static reshard_status body_layers(void *user, reshard_group *group)
{
    static const struct {
        int kind;
        const char *name, *how;
    } rows[] = {{0, "weight", "S(0)"},        {0, "weight", "S(1)"},
                {0, "bias", "S(0)"},          {1, "weight", "S(0)"},
                {1, "weight", "S(1)"},        {2, "weight", "S(0)"},
                {3, "attn.q.weight", "S(0)"}, {3, "mlp.fc2.weight", "S(1)"},
                {4, "wte.weight", "S(0)"},    {4, "h.0.mlp.fc1.weight", "S(0)"},
                {5, "weight", "S(0)"},        {5, "weight", "S(1)"}};
    (void)user;
    int32_t rank = reshard_group_rank(group);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_module *cut = NULL, *whole = NULL;
        reshard_tensor *x = NULL;
        TRY(make_both(rows[i].kind, &cut, &whole));
        if (rows[i].kind == 1 || rows[i].kind >= 4) { /* tokens */
            TRY(reshard_tensor_create(NULL, RESHARD_I64, SHAPE(rank + 1, 3), &x));
            for (int64_t k = 0; k < 3 * (rank + 1); k++)
                ((int64_t *)reshard_tensor_write(x))[k] = (3 * rank + k) % 8;
        } else if (rows[i].kind == 3) {
            reshard_tensor *flat = make_rows(rank, 6);
            TRY(reshard_tensor_create(NULL, RESHARD_F64, SHAPE(2, 3, WIDTH), &x));
            memcpy(reshard_tensor_write(x), reshard_tensor_data(flat), 36 * sizeof(double));
            reshard_tensor_release(flat);
        } else {
            x = make_rows(rank, rank + 2);
        }
        TRY(one_layer(cut, whole, rows[i].name, rows[i].how, x, group));
        reshard_tensor_release(x);
    }
    return RESHARD_OK;
}

static void test_rows__all_layers(void **state)
{
    (void)state;
    run_ranks(2, body_layers, NULL);
    run_ranks(3, body_layers, NULL);
}

/* Lists of a rank's own, with offsets that count from its own beginning, and sample weights. */
static reshard_status make_list(int32_t rank, reshard_tensor **out)
{
    int64_t count = rank + 2;
    TRY(reshard_tensor_create(NULL, RESHARD_I64, SHAPE(count), &out[0]));
    TRY(reshard_tensor_create(NULL, RESHARD_I64, SHAPE(3), &out[1]));
    TRY(reshard_tensor_create(NULL, RESHARD_F64, SHAPE(count), &out[2]));
    for (int64_t i = 0; i < count; i++) {
        ((int64_t *)reshard_tensor_write(out[0]))[i] = (3 * rank + 5 * i) % 8;
        ((double *)reshard_tensor_write(out[2]))[i] = 0.5 + (double)(i + rank);
    }
    ((int64_t *)reshard_tensor_write(out[1]))[2] = count - 1; /* the second bag has the rest */
    return reshard_tensor_set_requires_grad(out[2], 1);
}

static reshard_tensor *bags_of(reshard_module *module, reshard_tensor *const *list)
{
    reshard_value items[3];
    for (int i = 0; i < 3; i++)
        items[i] = reshard_value_of(list[i]);
    return reshard_value_tensor(reshard_module_call(module, reshard_value_list(3, items)));
}

static reshard_status body_bags(void *user, reshard_group *group)
{
    reshard_layer_options options = {.size = sizeof options, .dtype = RESHARD_F64, .seed = 3};
    reshard_embedding_bag_options how = {.size = sizeof how, .pads = 1, .padding_index = 5};
    reshard_module *cut = NULL, *whole = NULL;
    reshard_sharding_plan *plan = NULL;
    reshard_scope *scope = NULL;
    reshard_tensor *list[3] = {NULL}, *own[3] = {NULL}, *given[3];
    TRY(make_list(reshard_group_rank(group), list));
    TRY(make_list(reshard_group_rank(group), own));
    TRY(reshard_embedding_bag_create(NULL, 8, WIDTH, &how, &options, &cut));
    TRY(reshard_embedding_bag_create(NULL, 8, WIDTH, &how, &options, &whole));
    MUST(reshard_sharding_plan_create(NULL, &plan));
    add_entry(plan, "weight", reshard_group_size(group), user);
    TRY(reshard_module_shard(cut, plan, 0, group, NULL));
    reshard_sharding_plan_destroy(plan);
    TRY(reshard_scope_open(NULL, &scope));
    for (int i = 0; i < 3; i++)
        given[i] = told(list[i], group);
    reshard_tensor *y = bags_of(cut, given), *expected = bags_of(whole, own);
    TRY(reshard_scope_status(scope));
    TRY(check_close(
        reshard_tensor_full(y),
        reshard_tensor_exchange(expected, group,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER))));
    TRY(check_gradients(cut, whole, "weight", reshard_tensor_full(y), expected, group));
    TRY(check_close(reshard_tensor_gradient(list[2]), reshard_tensor_gradient(own[2])));
    TRY(reshard_scope_close(scope));
    for (int i = 0; i < 3; i++) {
        reshard_tensor_release(list[i]);
        reshard_tensor_release(own[i]);
    }
    reshard_module_release(cut);
    reshard_module_release(whole);
    return RESHARD_OK;
}

static void test_rows__bags(void **state)
{
    (void)state;
    for (int32_t size = 1; size <= 4; size++) {
        run_ranks(size, body_bags, "S(0)");
        run_ranks(size, body_bags, "S(1)");
        run_ranks(size, body_bags, "R");
    }
}

/* A vector on each rank: PyTorch makes a matrix of one row for each. */
static reshard_status body_vectors(void *user, reshard_group *group)
{
    reshard_module *cut = NULL, *whole = NULL;
    reshard_sharding_plan *plan = NULL;
    reshard_scope *scope = NULL;
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    reshard_tensor *matrix = make_rows(rank, 1), *x = NULL;
    TRY(make_both(0, &cut, &whole));
    MUST(reshard_sharding_plan_create(NULL, &plan));
    add_entry(plan, "weight", size, user);
    TRY(reshard_module_shard(cut, plan, 0, group, NULL));
    reshard_sharding_plan_destroy(plan);
    TRY(reshard_tensor_create(NULL, RESHARD_F64, SHAPE(WIDTH), &x));
    memcpy(reshard_tensor_write(x), reshard_tensor_data(matrix), WIDTH * sizeof(double));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_tensor_full(reshard_module_forward(cut, told(x, group)));
    reshard_tensor *expected =
        reshard_tensor_exchange(reshard_module_forward(whole, matrix), group,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER));
    TRY(reshard_scope_status(scope));
    TRY(check_close(y, expected)); /* [ranks, outputs] */
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(x);
    reshard_tensor_release(matrix);
    reshard_module_release(cut);
    reshard_module_release(whole);
    return RESHARD_OK;
}

static void test_rows__vectors(void **state)
{
    (void)state;
    run_ranks(3, body_vectors, (void *)"S(0)");
    run_ranks(3, body_vectors, (void *)"S(1)");
}

/* Losses of all rows against targets and labels of which each rank has its own. */
static reshard_status body_losses(void *user, reshard_group *group)
{
    (void)user;
    reshard_scope *scope = NULL;
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    reshard_tensor *logits = make_rows(rank, 2), *labels = NULL, *targets = make_rows(7 + rank, 2);
    char text[32];
    double own[2], found[2], all[2 * 3];
    TRY(reshard_tensor_create(NULL, RESHARD_I64, SHAPE(2), &labels));
    for (int64_t k = 0; k < 2; k++)
        ((int64_t *)reshard_tensor_write(labels))[k] = (rank + 2 * k) % WIDTH;
    for (int whole = 0; whole < 2; whole++) { /* logits cut by rows, or whole on every rank */
        TRY(reshard_scope_open(NULL, &scope));
        (void)snprintf(text, sizeof text, "%d: S(0)", size);
        reshard_tensor *output = local_as(logits, group, text);
        (void)snprintf(text, sizeof text, "%d: R", size);
        if (whole)
            output = move_to(output, text);
        TRY(reshard_tensor_value(reshard_cross_entropy_loss(output, told(labels, group), NULL),
                                 &found[0]));
        TRY(reshard_tensor_value(reshard_mse_loss(output, told(targets, group)), &found[1]));
        TRY(reshard_tensor_value(reshard_cross_entropy_loss(logits, labels, NULL), &own[0]));
        TRY(reshard_tensor_value(reshard_mse_loss(logits, targets), &own[1]));
        TRY(reshard_scope_close(scope));
        TRY(reshard_group_gather_bytes(group, own, sizeof own, all));
        for (int k = 0; k < 2; k++) { /* as many rows on each rank, so the mean of their means */
            double sum = 0;
            for (int32_t i = 0; i < size; i++)
                sum += all[2 * i + k];
            CHECK(fabs(sum / size - found[k]) < 1e-12);
        }
    }
    reshard_tensor_release(logits);
    reshard_tensor_release(labels);
    reshard_tensor_release(targets);
    return RESHARD_OK;
}

static void test_rows__losses(void **state)
{
    (void)state;
    run_ranks(3, body_losses, NULL);
}

/* ---- which ranks differ ---------------------------------------------------------------------- */

/* Over dp=2,tp=2, a batch that is cut over dp is the same on the ranks of tp: its rows count once,
 * in a layer over the whole mesh as well as in one over the ranks of tp alone. */
static reshard_status body_axes(void *user, reshard_group *group)
{
    bool alone = user != NULL;
    reshard_device_mesh *mesh = make_mesh(group, 2, (int32_t[]){2, 2});
    reshard_module *cut = NULL, *whole = NULL;
    reshard_sharding_plan *plan = NULL;
    reshard_scope *scope = NULL;
    int32_t dp = info_device_mesh(mesh).coordinates[0];
    reshard_tensor *own = make_rows(dp, 2);
    TRY(make_both(0, &cut, &whole));
    MUST(reshard_sharding_plan_create(NULL, &plan));
    MUST(reshard_sharding_plan_add_text(plan, "weight", alone ? "2: S(0)" : "2,2: R, S(0)"));
    TRY(reshard_module_shard(cut, plan, 0, alone ? info_device_mesh(mesh).axis_groups[1] : group,
                             NULL));
    reshard_sharding_plan_destroy(plan);
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *batch = local_as(own, group, "2,2: S(0), R");
    reshard_tensor *x = reshard_scale(reshard_tensor_to_local(batch, NULL), 1);
    reshard_tensor *y = reshard_module_forward(cut, x);
    TRY(reshard_scope_status(scope));
    CHECK(reshard_tensor_shape(y)[0] == (alone ? 2 : 4));
    y = move_to(y, alone ? "2: R" : "2,2: S(0), R");
    TRY(check_close(reshard_tensor_to_local(y, NULL), reshard_module_forward(whole, own)));
    /* What is whole on the ranks of tp differs over dp, where only the layout of the first
     * knows. */
    reshard_tensor *sum = reshard_tensor_exchange(
        own, info_device_mesh(mesh).axis_groups[1],
        RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE, .reduction = RESHARD_SUM));
    y = reshard_module_forward(cut, sum);
    CHECK(reshard_tensor_shape(y)[0] == (alone ? 2 : 4));
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(own);
    reshard_module_release(cut);
    reshard_module_release(whole);
    reshard_device_mesh_release(mesh);
    return RESHARD_OK;
}

static void test_rows__along_some_axes(void **state)
{
    (void)state;
    run_ranks(4, body_axes, NULL);
    run_ranks(4, body_axes, (void *)"alone");
}

/* ---- where nothing tells --------------------------------------------------------------------- */

/* All ranks get the error, with the input and two ranks, and can go on. */
static reshard_status refused(reshard_scope *scope, reshard_tensor *made, const char *input)
{
    reshard_status status = reshard_scope_close(scope);
    CHECK(made == NULL && status == RESHARD_ERR_MISMATCH);
    CHECK(strstr(reshard_error_text(), input) != NULL);
    CHECK(strstr(reshard_error_text(), "rank 2: ") != NULL);
    CHECK(strstr(reshard_error_text(), "differs from what rank 0 has") != NULL);
    CHECK(strstr(reshard_error_text(), "reshard_tensor_from_local") != NULL);
    return RESHARD_OK;
}

static reshard_status body_unknown(void *user, reshard_group *group)
{
    (void)user;
    reshard_module *cut = NULL, *other = NULL, *words = NULL, *spare = NULL;
    reshard_spec *rows = make_spec("3: S(0)");
    reshard_scope *scope = NULL;
    bool odd = reshard_group_rank(group) == 2; /* of three ranks, the last has something else */
    reshard_tensor *own = make_rows(odd, 2), *more = make_rows(odd, 3), *tokens = NULL;
    TRY(make_both(0, &cut, &other));
    TRY(make_both(1, &words, &spare));
    TRY(reshard_module_shard_parameter(cut, "weight", rows, 0, group));
    TRY(reshard_module_shard_parameter(words, "weight", rows, 0, group));
    MUST(reshard_tensor_set_requires_grad(own, 0));
    TRY(reshard_scope_open(NULL, &scope));
    TRY(refused(scope, reshard_module_forward(cut, more),
                "linear: input 0, a local tensor of f64"));
    TRY(reshard_scope_open(NULL, &scope)); /* of another shape, and no leaf */
    TRY(refused(scope, reshard_module_forward(cut, own), "linear: input 0"));
    TRY(reshard_scope_open(NULL, &scope)); /* and it stays refused */
    TRY(refused(scope, reshard_module_forward(cut, own), "linear: input 0"));
    TRY(reshard_tensor_create(NULL, RESHARD_I64, SHAPE(4), &tokens));
    ((int64_t *)reshard_tensor_write(tokens))[3] = odd;
    TRY(reshard_scope_open(NULL, &scope));
    TRY(refused(scope, reshard_module_forward(words, tokens), "embedding: input 1"));
    reshard_tensor *third = make_rows(0, 4); /* what is the same passes, with the bias beside it */
    TRY(reshard_scope_open(NULL, &scope));
    CHECK(reshard_module_forward(cut, third) != NULL);
    TRY(reshard_scope_close(scope));
    /* A bias that the plan does not name, of a module made with another seed. */
    reshard_tensor *bias = NULL;
    TRY(reshard_module_shard_parameter(other, "weight", rows, 0, group));
    TRY(reshard_module_find_tensor(other, "bias", &bias));
    set_element(bias, 1, odd);
    TRY(reshard_scope_open(NULL, &scope));
    TRY(refused(scope, reshard_module_forward(other, third), "linear: input 2"));
    reshard_tensor_release(tokens);
    reshard_tensor_release(third);
    reshard_tensor_release(own);
    reshard_tensor_release(more);
    reshard_spec_release(rows);
    reshard_module_release(cut);
    reshard_module_release(other);
    reshard_module_release(words);
    reshard_module_release(spare);
    return RESHARD_OK;
}

static void test_rows__unknown_are_compared(void **state)
{
    (void)state;
    run_ranks(3, body_unknown, NULL);
}

/* Labels and targets, whose loss would be another one on each rank. */
static reshard_status body_targets(void *user, reshard_group *group)
{
    (void)user;
    reshard_scope *scope = NULL;
    bool odd = reshard_group_rank(group) == 2;
    reshard_tensor *labels = NULL, *targets = make_rows(odd, 6);
    MUST(reshard_tensor_set_requires_grad(targets, 0));
    TRY(reshard_tensor_create(NULL, RESHARD_I64, SHAPE(6), &labels));
    ((int64_t *)reshard_tensor_write(labels))[5] = odd;
    reshard_tensor *x = spread_random(group, "3: S(0)", RESHARD_F64, SHAPE(6, WIDTH), 4);
    TRY(reshard_scope_open(NULL, &scope));
    TRY(refused(scope, reshard_cross_entropy_loss(x, labels, NULL), "cross_entropy_loss: input 1"));
    TRY(reshard_scope_open(NULL, &scope));
    TRY(refused(scope, reshard_mse_loss(x, targets), "mse_loss: input 1"));
    reshard_tensor_release(x);
    reshard_tensor_release(labels);
    reshard_tensor_release(targets);
    return RESHARD_OK;
}

static void test_rows__targets_are_compared(void **state)
{
    (void)state;
    run_ranks(3, body_targets, NULL);
}

/* Values to load into cut parameters, and local tensors to save: one rank's would count. */
static reshard_status body_state(void *user, reshard_group *group)
{
    (void)user;
    reshard_module *cut = NULL, *other = NULL;
    reshard_spec *rows = make_spec("3: S(0)");
    reshard_scope *scope = NULL;
    reshard_tensor *weight = NULL;
    reshard_named_tensors *list = NULL;
    char path[64];
    TRY(make_both(0, &cut, &other));
    TRY(reshard_module_shard_parameter(cut, "weight", rows, 0, group));
    TRY(reshard_module_find_tensor(other, "weight", &weight));
    TRY(reshard_module_state_dict(other, &list));
    TRY(reshard_module_load_state_dict(cut, list->count, list->items, NULL));
    if (reshard_group_rank(group) == 2)
        set_element(weight, 5, 77);
    CHECK(reshard_module_load_state_dict(cut, list->count, list->items, NULL) ==
          RESHARD_ERR_MISMATCH);
    CHECK(strstr(reshard_error_text(), "differs from what rank 0 has") != NULL);
    TRY(reshard_scope_open(NULL, &scope));
    reshard_named_tensor part = {"part", told(weight, group)};
    (void)snprintf(path, sizeof path, "%s/part", folder);
    CHECK(reshard_checkpoint_save_tensors(NULL, group, path, 1, &part, NULL) ==
          RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(), "tensor \"part\": it is local and differs") != NULL);
    TRY(reshard_scope_close(scope));
    reshard_named_tensors_destroy(list);
    reshard_spec_release(rows);
    reshard_module_release(cut);
    reshard_module_release(other);
    return RESHARD_OK;
}

static void test_rows__states_are_compared(void **state)
{
    (void)state;
    run_ranks(3, body_state, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows__from_block_to_block),
        cmocka_unit_test(test_rows__all_layers),
        cmocka_unit_test(test_rows__bags),
        cmocka_unit_test(test_rows__vectors),
        cmocka_unit_test(test_rows__losses),
        cmocka_unit_test(test_rows__along_some_axes),
        cmocka_unit_test(test_rows__unknown_are_compared),
        cmocka_unit_test(test_rows__targets_are_compared),
        cmocka_unit_test(test_rows__states_are_compared),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
