/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_style.c - plans by style: a GPT that is tensor and sequence parallel trains as the dense one
 * does; patterns find modules; styles cut parameters, inputs and outputs; dropouts work on parts of
 * the sequence; what does not fit is refused on all ranks.
 */
#include "layout/layout.h"
#include "tests/nn/gpt.h"
#include "tests/support/check.h"
#include "tests/support/harness.h"
#include "tests/support/info.h"
#include "tests/tensor/distributed.h"
#include "tests/tensor/own_operations.h"

#include <math.h>

static reshard_status check_spec(const reshard_tensor *tensor, const char *expected)
{
    char text[200], said[500];
    size_t length = 0;
    CHECK(tensor != NULL && reshard_tensor_layout(tensor) != NULL);
    TRY(reshard_spec_text(reshard_tensor_layout(tensor)->spec, text, sizeof text, &length));
    (void)snprintf(said, sizeof said, "\"%s\", not \"%s\"", text, expected);
    return strcmp(text, expected) == 0 ? RESHARD_OK : reshard_error_set(RESHARD_ERR_CHECK, said);
}

/* ---- training -------------------------------------------------------------------------------- */

enum { STYLE_STEPS = 50 };

/* Compares all parameters with those of a dense module. */
static reshard_status compare_parameters(reshard_module *spread_gpt, reshard_module *dense)
{
    reshard_named_tensors *list = NULL;
    MUST(reshard_module_parameters(dense, &list));
    for (int64_t k = 0; k < list->count; k++) {
        reshard_tensor *tensor = NULL;
        TRY(reshard_module_find_tensor(spread_gpt, list->items[k].name, &tensor));
        bool cut = reshard_tensor_layout(tensor) != NULL;
        reshard_tensor *whole = cut ? whole_of(tensor) : reshard_tensor_retain(tensor);
        for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
            CHECK(fabs(element(whole, i) - element(list->items[k].tensor, i)) <= 1e-9);
        reshard_tensor_release(whole);
    }
    reshard_named_tensors_destroy(list);
    return RESHARD_OK;
}

/* Notes the layouts of what goes into a norm, and comes out of a block. */
static reshard_status look(void *user, reshard_module *module, reshard_value *input)
{
    (void)module;
    return check_spec(input->tensor, user);
}

static reshard_status train_body(void *user, reshard_group *group)
{
    int32_t size = reshard_group_size(group);
    int64_t steps = harness_scale() < 1 ? harness_count(STYLE_STEPS) : STYLE_STEPS;
    char cut[32];
    reshard_device_mesh *mesh = make_line(group);
    reshard_module *gpts[2] = {make_gpt(RESHARD_F64), make_gpt(RESHARD_F64)}, *part = NULL;
    reshard_optimizer *optimizers[2] = {NULL, NULL};
    reshard_sharding_plan *plan = NULL;
    reshard_hook *planned = NULL, *packed = NULL;
    reshard_saved_counts counts = {.size = sizeof counts};
    (void)user;
    (void)snprintf(cut, sizeof cut, "%d: S(1)", (int)size);
    MUST(reshard_sharding_plan_create(NULL, &plan));
    TRY(reshard_sharding_plan_add_gpt(plan, gpts[0], info_device_mesh(mesh).mesh, 0, 1));
    TRY(reshard_module_shard(gpts[0], plan, 0, group, &planned));
    reshard_sharding_plan_destroy(plan);
    if (size > 1) { /* norms see parts of the sequence; hooks of the plan come first */
        TRY(reshard_module_find(gpts[0], "h.1.ln2", &part));
        TRY(reshard_module_add_forward_pre_hook(part, look, cut, NULL, NULL));
    }
    TRY(reshard_module_find(gpts[0], "h.0", &part));
    TRY(reshard_module_input_reshard(part, mesh, 1, NULL, &packed));
    for (int i = 0; i < 2; i++)
        MUST(reshard_adamw_create(
            NULL, gpts[i],
            RESHARD_OPTIONS(reshard_adamw_options, .learning_rate = 1e-2, .weight_decay = 0.1),
            &optimizers[i]));
    for (int64_t step = 0; step < steps; step++) {
        double losses[2] = {0, 0};
        for (int i = 0; i < 2; i++) {
            TRY(forward_backward(gpts[i], step, &losses[i]));
            TRY(reshard_optimizer_step(optimizers[i]));
            reshard_optimizer_clear_gradients(optimizers[i]);
        }
        CHECK(fabs(losses[0] - losses[1]) <= 1e-9);
    }
    TRY(compare_parameters(gpts[0], gpts[1]));
    TRY(reshard_input_reshard_counts(packed, &counts));
    /* What attn and mlp gather is replicated, and packed. */
    CHECK(size == 1 || counts.packed > 0);
    reshard_hook_remove(packed);
    reshard_hook_remove(planned);
    for (int i = 0; i < 2; i++) {
        reshard_optimizer_destroy(optimizers[i]);
        reshard_module_release(gpts[i]);
    }
    reshard_device_mesh_release(mesh);
    return RESHARD_OK;
}

static void test_style__gpt_sequence_as_dense(void **state)
{
    (void)state;
    for (int32_t size = 1; size <= 4; size++)
        run_ranks(size, train_body, NULL);
}

/* ---- a model of its own ---------------------------------------------------------------------- */

/* Sets elements of its input to zero, by their places in the whole tensor. */
static reshard_value drop(reshard_module *module, void *user, reshard_value input)
{
    (void)module;
    (void)user;
    return reshard_value_of(reshard_dropout(reshard_value_tensor(input), 0.3, 5));
}

static reshard_value activate(reshard_module *module, void *user, reshard_value input)
{
    (void)module;
    (void)user;
    return reshard_value_of(apply_own_tanh(reshard_value_tensor(input)));
}

/* norm, up, act, down, drop, norm. */
static reshard_module *make_feed(void)
{
    static const char *const names[] = {"norm1", "up", "act", "down", "drop", "norm2"};
    const reshard_layer_options *o =
        RESHARD_OPTIONS(reshard_layer_options, .dtype = RESHARD_F64, .seed = 3);
    reshard_module *feed = NULL, *parts[6] = {NULL};
    MUST(reshard_sequential_create(NULL, 0, NULL, &feed));
    MUST(reshard_layernorm_create(NULL, 6, 1e-5, o, &parts[0]));
    MUST(reshard_linear_create(NULL, 6, 8, o, &parts[1]));
    MUST(reshard_module_create(NULL, &(reshard_module_kind){.name = "act", .forward = activate},
                               &parts[2]));
    MUST(reshard_linear_create(NULL, 8, 6, o, &parts[3]));
    MUST(reshard_module_create(NULL, &(reshard_module_kind){.name = "drop", .forward = drop},
                               &parts[4]));
    MUST(reshard_layernorm_create(NULL, 6, 1e-5, o, &parts[5]));
    for (int i = 0; i < 6; i++) {
        MUST(reshard_module_add_child(feed, names[i], parts[i]));
        reshard_module_release(parts[i]);
    }
    return feed;
}

static const reshard_style columns = {.size = sizeof columns, .kind = RESHARD_STYLE_COLUMNS};
static const reshard_style rows = {
    .size = sizeof rows, .kind = RESHARD_STYLE_ROWS, .output = "S(1)"};
static const reshard_style sequence = {.size = sizeof sequence, .kind = RESHARD_STYLE_SEQUENCE};

static reshard_status differentiate(reshard_module *module, reshard_tensor *x,
                                    reshard_tensor **out_output)
{
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_module_forward(module, x);
    *out_output = reshard_tensor_retain(y);
    TRY(reshard_backward(reshard_mean(reshard_mul(y, y)), NULL, NULL));
    return reshard_scope_close(scope);
}

/* Norms, an own activation and a dropout on parts of the sequence, on a mesh of two axes of which
 * the other cuts the batch: output and gradients are those of the dense module. */
static reshard_status feed_body(void *user, reshard_group *group)
{
    const reshard_styled styles[] = {
        {"up", &columns}, {"down", &rows}, {"norm{1..2}", &sequence}, {"d*p", &sequence}};
    reshard_module *feed = make_feed(), *dense = make_feed();
    reshard_mesh *mesh = NULL;
    reshard_named_tensors *list = NULL;
    reshard_tensor *outputs[2] = {NULL, NULL}, *weight = NULL;
    reshard_tensor *x = make_zeros(RESHARD_F64, SHAPE(4, 5, 6)), *cut = NULL;
    reshard_spec *batch = spec_of("dp=2,tp=2: S(0), R");
    (void)user;
    MUST(reshard_tensor_fill_random(x, RESHARD_NORMAL, 8));
    TRY(reshard_mesh_create(NULL, 2, (const char *[]){"dp", "tp"}, (int32_t[]){2, 2}, NULL, &mesh));
    TRY(reshard_module_parallelize(feed, group, mesh, 1, 4, styles, NULL));
    TRY(reshard_module_find_tensor(feed, "up.weight", &weight));
    TRY(check_spec(weight, "dp=2,tp=2: R, S(0)"));
    TRY(reshard_module_find_tensor(feed, "down.weight", &weight));
    TRY(check_spec(weight, "dp=2,tp=2: R, S(1)"));
    TRY(reshard_module_find_tensor(feed, "down.bias", &weight));
    TRY(check_spec(weight, "dp=2,tp=2: R, R"));
    TRY(reshard_tensor_shard(NULL, group, batch, 0, x, &cut));
    TRY(differentiate(feed, cut, &outputs[0]));
    TRY(differentiate(dense, x, &outputs[1]));
    TRY(check_spec(outputs[0], "dp=2,tp=2: S(0), S(1)"));
    reshard_tensor *whole = whole_of(outputs[0]);
    for (int64_t i = 0; i < 120; i++)
        CHECK(fabs(element(whole, i) - element(outputs[1], i)) <= 1e-12);
    reshard_tensor_release(whole);
    MUST(reshard_module_parameters(dense, &list));
    for (int64_t k = 0; k < list->count; k++) {
        TRY(reshard_module_find_tensor(feed, list->items[k].name, &weight));
        whole = whole_of(reshard_tensor_gradient(weight));
        for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
            CHECK(fabs(element(whole, i) -
                       element(reshard_tensor_gradient(list->items[k].tensor), i)) <= 1e-12);
        reshard_tensor_release(whole);
    }
    reshard_named_tensors_destroy(list);
    for (int i = 0; i < 2; i++)
        reshard_tensor_release(outputs[i]);
    reshard_tensor_release(cut);
    reshard_tensor_release(x);
    reshard_spec_release(batch);
    reshard_mesh_release(mesh);
    reshard_module_release(feed);
    reshard_module_release(dense);
    return RESHARD_OK;
}

static void test_style__parts_of_the_sequence(void **state)
{
    (void)state;
    run_ranks(4, feed_body, NULL);
}

/* Each rank has its own part of the input, and gets its own part of the output. */
static reshard_status local_body(void *user, reshard_group *group)
{
    static const reshard_style whole = {.size = sizeof whole,
                                        .kind = RESHARD_STYLE_MODULE,
                                        .local_input = "S(0)",
                                        .output = "S(0)",
                                        .local_output = 1};
    static const reshard_style summed = {.size = sizeof summed, .kind = RESHARD_STYLE_ROWS};
    const reshard_styled styles[] = {{"", &whole}, {"up", &columns}, {"down", &summed}};
    int32_t rank = reshard_group_rank(group);
    reshard_module *feed = make_feed(), *dense = make_feed();
    reshard_mesh *mesh = NULL;
    reshard_scope *scope = NULL;
    (void)user;
    reshard_tensor *x = make_zeros(RESHARD_F64, SHAPE(3, 2, 6)), *mine = NULL;
    MUST(reshard_tensor_fill_random(x, RESHARD_NORMAL, 9));
    TRY(reshard_mesh_create(NULL, 1, (const char *[]){"tp"}, (int32_t[]){3}, NULL, &mesh));
    TRY(reshard_module_parallelize(feed, group, mesh, 0, 3, styles, NULL));
    TRY(reshard_scope_open(NULL, &scope));
    mine = reshard_tensor_contiguous(reshard_tensor_narrow(x, 0, rank, 1));
    reshard_tensor *found = reshard_module_forward(feed, mine);
    reshard_tensor *expected = reshard_module_forward(dense, x);
    CHECK(found != NULL && reshard_tensor_layout(found) == NULL);
    for (int64_t i = 0; i < 12; i++)
        CHECK(fabs(element(found, i) - element(expected, 12 * rank + i)) <= 1e-12);
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(x);
    reshard_mesh_release(mesh);
    reshard_module_release(feed);
    reshard_module_release(dense);
    return RESHARD_OK;
}

static void test_style__local_inputs_and_outputs(void **state)
{
    (void)state;
    run_ranks(3, local_body, NULL);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static reshard_status refuse(reshard_module *feed, reshard_group *group, reshard_mesh *mesh,
                             int32_t axis, const reshard_styled *style, reshard_status expected,
                             const char *said)
{
    char found[900];
    reshard_status status = reshard_module_parallelize(feed, group, mesh, axis, 1, style, NULL);
    (void)snprintf(found, sizeof found, "%d \"%.400s\", not %d \"%.300s\"", (int)status,
                   reshard_error_text(), (int)expected, said);
    if (status != expected || strstr(reshard_error_text(), said) == NULL)
        return reshard_error_set(RESHARD_ERR_CHECK, found);
    return RESHARD_OK;
}

static reshard_status refusals_body(void *user, reshard_group *group)
{
    reshard_module *feed = make_feed();
    reshard_mesh *mesh = NULL;
    reshard_style bad = columns;
    reshard_tensor *weight = NULL;
    (void)user;
    TRY(reshard_mesh_create(NULL, 1, (const char *[]){"tp"}, (int32_t[]){2}, NULL, &mesh));
    TRY(refuse(feed, group, mesh, 0, &(reshard_styled){"layers.*.up", &columns},
               RESHARD_ERR_NOT_FOUND, "no module has a path like \"layers.*.up\""));
    TRY(refuse(feed, group, mesh, 0, &(reshard_styled){"norm1", &columns}, RESHARD_ERR_INVALID,
               "\"norm1\" is a module of kind layernorm; linear, embedding and embedding_bag have "
               "columns"));
    TRY(refuse(feed, group, mesh, 1, &(reshard_styled){"up", &columns}, RESHARD_ERR_RANGE,
               "axis 1 of a mesh with 1"));
    TRY(refuse(feed, group, mesh, 0, &(reshard_styled){"u{p", &columns}, RESHARD_ERR_SYNTAX,
               "the pattern \"u{p\""));
    TRY(refuse(feed, group, mesh, 0, &(reshard_styled){"up", NULL}, RESHARD_ERR_INVALID,
               "the style is NULL"));
    bad.input = "S(1)@tp";
    TRY(refuse(feed, group, mesh, 0, &(reshard_styled){"up", &bad}, RESHARD_ERR_SYNTAX,
               "\"S(1)@tp\" is not the placement of one axis"));
    bad.input = "Q";
    TRY(refuse(feed, group, mesh, 0, &(reshard_styled){"up", &bad}, RESHARD_ERR_SYNTAX,
               "the placement \"Q\""));
    /* One rank asks for another style than the other. */
    reshard_styled other = {"up", reshard_group_rank(group) == 0 ? &columns : &rows};
    TRY(refuse(feed, group, mesh, 0, &other, RESHARD_ERR_MISMATCH, "parameter \"up.weight\""));
    /* One rank has a pattern that fits nothing. */
    other = (reshard_styled){reshard_group_rank(group) == 0 ? "up" : "upper", &columns};
    TRY(refuse(feed, group, mesh, 0, &other, RESHARD_ERR_NOT_FOUND, "rank 1: "));
    TRY(reshard_module_find_tensor(feed, "up.weight", &weight)); /* nothing has changed */
    CHECK(reshard_tensor_layout(weight) == NULL);
    TRY(reshard_module_parallelize(feed, group, mesh, 0, 1, &(reshard_styled){"up", &columns},
                                   NULL));
    static const reshard_style input = {
        .size = sizeof input, .kind = RESHARD_STYLE_MODULE, .input = "R"};
    TRY(refuse(feed, group, mesh, 0, &(reshard_styled){"up", &input}, RESHARD_ERR_INVALID,
               "an earlier plan has a hook on the input of \"up\""));
    reshard_mesh_release(mesh);
    reshard_module_release(feed);
    return RESHARD_OK;
}

static void test_style__refusals(void **state)
{
    (void)state;
    run_ranks(2, refusals_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_style__gpt_sequence_as_dense),
        cmocka_unit_test(test_style__parts_of_the_sequence),
        cmocka_unit_test(test_style__local_inputs_and_outputs),
        cmocka_unit_test(test_style__refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
