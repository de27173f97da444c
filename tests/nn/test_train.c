/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_train.c - a GPT trained on 1 to 4 ranks, tensor parallel by a sharding plan and with
 * input_reshard, against the numbers of PyTorch (tests/oracle/gpt.py), which is to say against
 * code that shares nothing with ours.
 */
#include "tests/nn/gpt.h"
#include "tests/oracle/gpt_numbers.h"
#include "tests/support/harness.h"

#include <math.h>

enum { STEPS = 50 };

typedef struct training {
    reshard_dtype dtype;
    bool sharded, resharded; /* with a plan, with input_reshard */
    int64_t steps;
    double close;           /* relative, of losses */
    double close_gradients; /* of the whole gradient's norm */
    double losses[STEPS];   /* of rank 0 */
} training;

/* Norm and weighted sum of every parameter's gradient, gathered. */
static reshard_status check_gradients(reshard_module *gpt, double close)
{
    reshard_named_tensors *list = NULL;
    double whole = 0;
    for (size_t i = 0; i < sizeof oracle_gradients / sizeof *oracle_gradients; i++)
        whole += oracle_gradients[i].norm * oracle_gradients[i].norm;
    MUST(reshard_module_parameters(gpt, &list));
    CHECK(list->count == (int64_t)(sizeof oracle_gradients / sizeof *oracle_gradients));
    for (int64_t k = 0; k < list->count; k++) {
        reshard_scope *scope = NULL;
        double norm = 0, sum = 0;
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *gradient = reshard_tensor_gradient(list->items[k].tensor);
        CHECK(gradient != NULL);
        if (reshard_tensor_layout(gradient) != NULL)
            gradient = reshard_tensor_full(gradient);
        CHECK(gradient != NULL);
        for (int64_t i = 0; i < reshard_tensor_volume(gradient); i++) {
            norm += element(gradient, i) * element(gradient, i);
            sum += element(gradient, i) * pattern("grad", i);
        }
        CHECK(strcmp(list->items[k].name, oracle_gradients[k].name) == 0);
        CHECK(fabs(sqrt(norm) - oracle_gradients[k].norm) <= close * sqrt(whole));
        CHECK(fabs(sum - oracle_gradients[k].sum) <= close * sqrt(whole));
        MUST(reshard_scope_close(scope));
    }
    reshard_named_tensors_destroy(list);
    return RESHARD_OK;
}

static reshard_status body_train(void *user, reshard_group *group)
{
    training *t = user;
    reshard_device_mesh *mesh = make_line(group);
    reshard_module *gpt = make_gpt(t->dtype), *block = NULL;
    reshard_optimizer *optimizer = NULL;
    reshard_hook *outputs = NULL, *input = NULL;
    reshard_saved_counts counts = {.size = sizeof counts};
    reshard_adamw_options options = {
        .size = sizeof options, .learning_rate = 1e-2, .weight_decay = 0.1};
    if (t->sharded)
        TRY(spread(gpt, group, mesh, &outputs));
    if (t->resharded) {
        MUST(reshard_module_find(gpt, "h.0", &block));
        MUST(reshard_module_input_reshard(block, mesh, 1, NULL, &input));
    }
    MUST(reshard_adamw_create(NULL, gpt, &options, &optimizer));
    for (int64_t step = 0; step < t->steps; step++) {
        double loss = 0, norm = 0;
        TRY(forward_backward(gpt, step, &loss));
        if (step == 0)
            TRY(check_gradients(gpt, t->close_gradients));
        CHECK(fabs(loss - oracle_losses[step]) <= t->close * oracle_losses[step]);
        TRY(reshard_optimizer_clip(optimizer, group, 1, &norm));
        TRY(reshard_optimizer_step(optimizer));
        reshard_optimizer_clear_gradients(optimizer);
        if (reshard_group_rank(group) == 0)
            t->losses[step] = loss;
    }
    if (t->resharded && reshard_group_size(group) == 4) {
        MUST(reshard_input_reshard_counts(input, &counts));
        /* 8 positions over 4 ranks: what was replicated falls to a quarter. */
        CHECK(counts.packed > 0 && counts.whole_bytes == 4 * counts.chunk_bytes);
    }
    reshard_hook_remove(input);
    reshard_hook_remove(outputs);
    reshard_optimizer_destroy(optimizer);
    reshard_module_release(gpt);
    reshard_device_mesh_release(mesh);
    return RESHARD_OK;
}

/* In f64 the rounding is out of the way: what is left is what is computed. */
static void test_train__as_pytorch_f64(void **state)
{
    (void)state;
    for (int32_t size = 1; size <= 4; size++) {
        training t = {.dtype = RESHARD_F64,
                      .sharded = true,
                      .resharded = true,
                      .steps = harness_scale() < 1 ? harness_count(12) : 12,
                      .close = 1e-9,
                      .close_gradients = 1e-12};
        run_ranks(size, body_train, &t);
    }
}

static void test_train__as_pytorch_f32(void **state)
{
    (void)state;
    training one = {.dtype = RESHARD_F32,
                    .steps = harness_scale() < 1 ? harness_count(STEPS) : STEPS,
                    .close = 1e-5,
                    .close_gradients = 1e-5};
    run_ranks(1, body_train, &one);
    for (int32_t size = 2; size <= 4; size += 2) {
        training t = one;
        t.sharded = t.resharded = true;
        run_ranks(size, body_train, &t);
        for (int64_t step = 0; step < one.steps; step++)
            assert_true(fabs(t.losses[step] - one.losses[step]) <= 1e-5 * one.losses[step]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train__as_pytorch_f64),
        cmocka_unit_test(test_train__as_pytorch_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
