/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resume.c - continues a training elsewhere: a second model takes over the weights of the first,
 * and a second optimizer its moments; from then on both train alike, bit for bit.
 */
#include <reshard/reshard_nn.h>

#include "examples/example.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 8, INPUTS = 4, STEPS = 5 };

/* A model in training. */
typedef struct trainer {
    reshard_module *model;
    reshard_optimizer *optimizer;
} trainer;

static reshard_status set_up(trainer *t, uint64_t seed)
{
    reshard_status status = RESHARD_OK;
    reshard_layer_options layer = {.size = sizeof layer, .seed = seed};
    reshard_adamw_options adamw = {.size = sizeof adamw, .learning_rate = 0.01};
    TRY(reshard_linear_create(NULL, INPUTS, 1, &layer, &t->model));
    TRY(reshard_adamw_create(NULL, t->model, &adamw, &t->optimizer));
out:
    return status;
}

static void tear_down(trainer *t)
{
    reshard_optimizer_destroy(t->optimizer);
    reshard_module_release(t->model);
}

/* Trains some steps towards y = 0. */
static reshard_status train(trainer *t, reshard_tensor *x)
{
    reshard_status status = RESHARD_OK;
    reshard_scope *scope = NULL;
    for (int i = 0; i < STEPS; i++) {
        TRY(reshard_scope_open(NULL, &scope));
        reshard_tensor *y = reshard_module_forward(t->model, x);
        (void)reshard_backward(reshard_mean(reshard_mul(y, y)), NULL, NULL);
        TRY(close_scope(&scope, status));
        TRY(reshard_optimizer_step(t->optimizer));
        reshard_optimizer_clear_gradients(t->optimizer);
    }
out:
    status = close_scope(&scope, status);
    return status;
}

/* Copies weights and optimizer state. Weights alone are not enough, because AdamW's next step
 * depends on earlier ones. */
static reshard_status take_over(trainer *to, const trainer *from)
{
    reshard_status status = RESHARD_OK;
    reshard_named_tensors *weights = NULL, *moments = NULL;
    TRY(reshard_module_state_dict(from->model, &weights));
    TRY(reshard_optimizer_state_dict(from->optimizer, &moments));
    TRY(reshard_module_load_state_dict(to->model, weights->count, weights->items, NULL));
    TRY(reshard_optimizer_load_state_dict(to->optimizer, moments->count, moments->items, NULL));
    for (int64_t i = 0; i < moments->count; i++)
        printf("took over %s\n", moments->items[i].name);
out:
    reshard_named_tensors_destroy(moments);
    reshard_named_tensors_destroy(weights);
    return status;
}

/* Checks that both have the same weight, bit for bit. */
static int agree(const trainer *a, const trainer *b)
{
    return memcmp(reshard_tensor_data(reshard_module_tensor(a->model, "weight")),
                  reshard_tensor_data(reshard_module_tensor(b->model, "weight")),
                  INPUTS * sizeof(float)) == 0;
}

static reshard_status run(trainer *first, trainer *second, reshard_tensor *x)
{
    reshard_status status = RESHARD_OK;
    TRY(reshard_tensor_fill_random(x, RESHARD_NORMAL, 3));
    TRY(set_up(first, 1));
    TRY(set_up(second, 2));
    TRY(train(first, x));
    TRY(check(!agree(first, second), "different seeds give the same weights"));
    TRY(take_over(second, first));
    TRY(train(first, x));
    TRY(check(!agree(first, second), "a training changes nothing"));
    TRY(train(second, x));
    TRY(check(agree(first, second), "the two have learned different things"));
out:
    return status;
}

int main(void)
{
    trainer first = {0}, second = {0};
    reshard_tensor *x = NULL;
    reshard_status status = RESHARD_OK;
    TRY(reshard_tensor_create(NULL, RESHARD_F32, 2, (int64_t[]){ROWS, INPUTS}, &x));
    TRY(run(&first, &second, x));
    printf("both have learned the same\n");
out:
    reshard_tensor_release(x);
    tear_down(&second);
    tear_down(&first);
    return finish(status);
}
