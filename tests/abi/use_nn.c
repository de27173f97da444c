/* SPDX-License-Identifier: Apache-2.0 */
/*
 * use_nn.c - as use.c, for libreshard_nn: two ranks take steps of gradient descent until a linear
 * layer has learned to double numbers.
 */
#include <reshard/reshard_nn.h>

#include <stdio.h>

enum { RANKS = 2, ROWS = 8, STEPS = 60 };

typedef struct facts {
    double losses[RANKS];
    int64_t cached[RANKS];
} facts;

static reshard_status step(reshard_module *layer, reshard_tensor *numbers, double *out_loss)
{
    const reshard_backward_options options = {.size = sizeof options};
    reshard_scope *scope = NULL;
    reshard_status status = reshard_scope_open(NULL, &scope);
    if (status != RESHARD_OK)
        return status;
    reshard_tensor *given =
        reshard_value_tensor(reshard_module_call(layer, reshard_value_of(numbers)));
    reshard_tensor *error = reshard_add(given, reshard_scale(numbers, -2));
    reshard_tensor *loss = reshard_mean(reshard_mul(error, error));
    if (loss != NULL)
        status = reshard_backward(loss, NULL, &options);
    if (loss != NULL && status == RESHARD_OK)
        status = reshard_tensor_item(loss, out_loss);
    reshard_status closed = reshard_scope_close(scope);
    return status != RESHARD_OK ? status : closed;
}

static reshard_status train(reshard_tensor *numbers, double *out_loss)
{
    const reshard_layer_options options = {.size = sizeof options, .seed = 3};
    const reshard_sgd_options descent = {.size = sizeof descent, .learning_rate = 0.1};
    reshard_module *layer = NULL;
    reshard_optimizer *optimizer = NULL;
    reshard_status status = reshard_linear_create(NULL, 1, 1, &options, &layer);
    if (status == RESHARD_OK)
        status = reshard_sgd_create(NULL, layer, &descent, &optimizer);
    for (int i = 0; i < STEPS && status == RESHARD_OK; i++) {
        reshard_optimizer_clear_gradients(optimizer);
        status = step(layer, numbers, out_loss);
        if (status == RESHARD_OK)
            status = reshard_optimizer_step(optimizer);
    }
    reshard_optimizer_destroy(optimizer);
    reshard_module_release(layer);
    return status;
}

static reshard_status be_rank(void *user, reshard_group *group)
{
    facts *found = user;
    int32_t rank = reshard_group_rank(group);
    float values[ROWS];
    for (int i = 0; i < ROWS; i++)
        values[i] = (float)i / ROWS;
    reshard_spec *rows = NULL;
    reshard_tensor *numbers = NULL, *spread = NULL, *whole = NULL;
    reshard_plan_cache_counts counts = {.size = sizeof counts};
    reshard_status status = reshard_spec_chunk(NULL, 0, RANKS, NULL, &rows);
    if (status == RESHARD_OK)
        status =
            reshard_tensor_from_data(NULL, RESHARD_F32, 2, (int64_t[]){ROWS, 1}, values, &numbers);
    if (status == RESHARD_OK)
        status = reshard_tensor_shard(NULL, group, rows, 0, rank == 0 ? numbers : NULL, &spread);
    if (status == RESHARD_OK)
        status = reshard_tensor_gather(spread, 0, &whole);
    if (status == RESHARD_OK && rank == 0)
        status = reshard_tensor_volume(whole) == ROWS ? RESHARD_OK : RESHARD_ERR_CHECK;
    if (status == RESHARD_OK)
        status = train(numbers, &found->losses[rank]);
    if (status == RESHARD_OK)
        status = reshard_tensor_plan_cache(spread, &counts);
    found->cached[rank] = (int64_t)counts.size;
    reshard_tensor_release(whole);
    reshard_tensor_release(spread);
    reshard_tensor_release(numbers);
    reshard_spec_release(rows);
    return status;
}

int main(void)
{
    facts found = {0};
    reshard_status status = reshard_group_run(NULL, RANKS, be_rank, &found);
    int fine = status == RESHARD_OK;
    for (int i = 0; i < RANKS; i++)
        fine = fine && found.losses[i] < 0.1 && found.losses[i] == found.losses[0] &&
               found.cached[i] == (int64_t)sizeof(reshard_plan_cache_counts);
    if (!fine)
        printf("losses %g and %g, size %lld: %s\n", found.losses[0], found.losses[1],
               (long long)found.cached[0], reshard_error_text());
    return !fine;
}
