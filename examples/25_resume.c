/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 25_resume.c - continues a training elsewhere: a second model takes over the weights of the first,
 * and a second optimizer its moments; from then on both train alike, bit for bit.
 */
#include <reshard/reshard_nn.h>

#include <stdio.h>
#include <string.h>

enum { ROWS = 8, INPUTS = 4, STEPS = 5 };

/* Returns from the function with the status of the first call that fails. */
#define TRY(call)                           \
    do {                                    \
        reshard_status try_status = (call); \
        if (try_status != RESHARD_OK)       \
            return try_status;              \
    } while (0)

static reshard_status check(int holds, const char *what)
{
    return holds ? RESHARD_OK : reshard_error_set(RESHARD_ERR_CHECK, what);
}

/* A model in training. */
typedef struct trainer {
    reshard_module *model;
    reshard_optimizer *optimizer;
} trainer;

static reshard_status set_up(trainer *t, uint64_t seed)
{
    reshard_layer_options layer = {.size = sizeof layer, .seed = seed};
    reshard_adamw_options adamw = {.size = sizeof adamw, .learning_rate = 0.01};
    TRY(reshard_linear_create(NULL, INPUTS, 1, &layer, &t->model));
    return reshard_adamw_create(NULL, t->model, &adamw, &t->optimizer);
}

static void tear_down(trainer *t)
{
    reshard_optimizer_destroy(t->optimizer);
    reshard_module_release(t->model);
}

/* Trains some steps towards y = 0. */
static reshard_status train(trainer *t, reshard_tensor *x)
{
    for (int i = 0; i < STEPS; i++) {
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        reshard_tensor *y = reshard_module_forward(t->model, x);
        (void)reshard_backward(reshard_mean(reshard_mul(y, y)), NULL, NULL);
        TRY(reshard_scope_close(scope));
        TRY(reshard_optimizer_step(t->optimizer));
        reshard_optimizer_clear_gradients(t->optimizer);
    }
    return RESHARD_OK;
}

/* Copies weights and optimizer state. Weights alone are not enough, because AdamW's next step
 * depends on earlier ones. */
static reshard_status take_over(trainer *to, const trainer *from)
{
    reshard_named_tensors *weights = NULL, *moments = NULL;
    TRY(reshard_module_state_dict(from->model, &weights));
    TRY(reshard_optimizer_state_dict(from->optimizer, &moments));
    TRY(reshard_module_load_state_dict(to->model, weights->count, weights->items, NULL));
    TRY(reshard_optimizer_load_state_dict(to->optimizer, moments->count, moments->items, NULL));
    for (int64_t i = 0; i < moments->count; i++)
        printf("took over %s\n", moments->items[i].name);
    reshard_named_tensors_destroy(moments);
    reshard_named_tensors_destroy(weights);
    return RESHARD_OK;
}

/* Checks that both have the same weight, bit for bit. */
static int agree(const trainer *a, const trainer *b)
{
    return memcmp(reshard_tensor_data(reshard_module_parameter(a->model, "weight")),
                  reshard_tensor_data(reshard_module_parameter(b->model, "weight")),
                  INPUTS * sizeof(float)) == 0;
}

static reshard_status run(trainer *first, trainer *second, reshard_tensor *x)
{
    TRY(reshard_tensor_fill_normal(x, 3));
    TRY(set_up(first, 1));
    TRY(set_up(second, 2));
    TRY(train(first, x));
    TRY(check(!agree(first, second), "different seeds give the same weights"));
    TRY(take_over(second, first));
    TRY(train(first, x));
    TRY(check(!agree(first, second), "a training changes nothing"));
    TRY(train(second, x));
    return check(agree(first, second), "the two have learned different things");
}

int main(void)
{
    trainer first = {0}, second = {0};
    reshard_tensor *x = NULL;
    int failed = reshard_tensor_create(NULL, RESHARD_F32, 2, (int64_t[]){ROWS, INPUTS}, &x) ||
                 run(&first, &second, x);
    if (failed)
        fprintf(stderr, "%s\n", reshard_error_text());
    else
        printf("both have learned the same\n");
    reshard_tensor_release(x);
    tear_down(&second);
    tear_down(&first);
    return failed;
}
