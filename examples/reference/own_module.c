/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_module.c - a module of your own: a forward function with a parameter and a buffer, placed
 * after a ready-made layer, watched by a hook, trained by SGD with a decreasing learning rate, and
 * copied to another module through its state dict.
 */
#include <reshard/reshard_nn.h>

#include <stdio.h>

enum { ROWS = 32, STEPS = 300 };

/* gain * relu(x - threshold): the gain is learned, the threshold is not. */
static reshard_value forward_gated(reshard_module *module, void *user, reshard_value input)
{
    (void)user;
    reshard_tensor *x = reshard_value_tensor(input);
    reshard_tensor *threshold = reshard_module_tensor(module, "threshold");
    reshard_tensor *over = reshard_relu(reshard_add(x, reshard_scale(threshold, -1)));
    return reshard_value_of(reshard_mul(over, reshard_module_tensor(module, "gain")));
}

/* Adds a named tensor with one element to a module. */
static reshard_status add_number(reshard_module *module, const char *name, double value,
                                 int is_parameter)
{
    reshard_tensor *number = NULL;
    reshard_status status = reshard_tensor_create(NULL, RESHARD_F32, 1, (int64_t[]){1}, &number);
    if (status == RESHARD_OK)
        status = reshard_tensor_fill(number, value);
    if (status == RESHARD_OK && is_parameter)
        status = reshard_tensor_set_requires_grad(number, 1);
    if (status == RESHARD_OK)
        status = is_parameter ? reshard_module_add_parameter(module, name, number)
                              : reshard_module_add_buffer(module, name, number, 0);
    reshard_tensor_release(number); /* the module has retained it */
    return status;
}

/* A linear layer from 1 to 1, followed by the gate. */
static reshard_status create_model(uint64_t seed, reshard_module **out_model)
{
    reshard_module *parts[2] = {NULL, NULL};
    reshard_layer_options options = {.size = sizeof options, .seed = seed};
    reshard_module_kind kind = {.name = "gated", .forward = forward_gated};
    reshard_status status = reshard_linear_create(NULL, 1, 1, &options, &parts[0]);
    if (status == RESHARD_OK)
        status = reshard_module_create(NULL, &kind, &parts[1]);
    if (status == RESHARD_OK)
        status = add_number(parts[1], "gain", 1, 1);
    if (status == RESHARD_OK)
        status = add_number(parts[1], "threshold", -0.5, 0);
    if (status == RESHARD_OK)
        status = reshard_sequential_create(NULL, 2, parts, out_model);
    reshard_module_release(parts[0]);
    reshard_module_release(parts[1]);
    return status;
}

/* Counts the rows that pass through. */
static reshard_status count_rows(void *user, reshard_module *module, reshard_value input,
                                 reshard_value *output)
{
    int64_t *rows = user;
    (void)module;
    (void)output;
    *rows += reshard_tensor_shape(reshard_value_tensor(input))[0];
    return RESHARD_OK;
}

/* One step towards y = 3 relu(x + 0.25). *out_error is the mean squared error before it. */
static reshard_status train_step(reshard_module *model, reshard_optimizer *optimizer,
                                 reshard_tensor *x, reshard_tensor *wanted, double *out_error)
{
    reshard_scope *scope = NULL;
    reshard_status status = reshard_scope_open(NULL, &scope);
    if (status != RESHARD_OK)
        return status;
    reshard_tensor *found = reshard_module_forward(model, x);
    reshard_tensor *difference = reshard_add(found, reshard_scale(wanted, -1));
    reshard_tensor *error = reshard_mean(reshard_mul(difference, difference));
    (void)reshard_backward(error, NULL, NULL);
    if (error != NULL)
        (void)reshard_tensor_value(error, out_error);
    status = reshard_scope_close(scope); /* returns the scope's first error */
    if (status == RESHARD_OK)
        status = reshard_optimizer_step(optimizer);
    reshard_optimizer_clear_gradients(optimizer);
    return status;
}

static reshard_status train(reshard_module *model, double *out_error)
{
    float inputs[ROWS], outputs[ROWS];
    reshard_tensor *x = NULL, *wanted = NULL;
    reshard_optimizer *optimizer = NULL;
    reshard_sgd_options sgd = {.size = sizeof sgd, .learning_rate = 0.05, .momentum = 0.9};
    for (int i = 0; i < ROWS; i++) {
        inputs[i] = (float)i / ROWS * 2 - 1;
        outputs[i] = inputs[i] > -0.25F ? 3 * (inputs[i] + 0.25F) : 0;
    }
    int64_t shape[] = {ROWS, 1};
    reshard_status status = reshard_tensor_from_data(NULL, RESHARD_F32, 2, shape, inputs, &x);
    if (status == RESHARD_OK)
        status = reshard_tensor_from_data(NULL, RESHARD_F32, 2, shape, outputs, &wanted);
    if (status == RESHARD_OK)
        status = reshard_sgd_create(NULL, model, &sgd, &optimizer);
    for (int i = 0; i < STEPS && status == RESHARD_OK; i++) {
        reshard_optimizer_set_learning_rate(optimizer, i < STEPS / 2 ? 0.05 : 0.01);
        status = train_step(model, optimizer, x, wanted, out_error);
    }
    if (status == RESHARD_OK)
        printf("%d steps\n", STEPS);
    reshard_optimizer_destroy(optimizer);
    reshard_tensor_release(x);
    reshard_tensor_release(wanted);
    return status;
}

/* Copies what the first model has learned to a second one. */
static reshard_status copy_state(const reshard_module *from, reshard_module *to)
{
    reshard_named_tensors *state = NULL;
    reshard_status status = reshard_module_state_dict(from, &state);
    for (int64_t i = 0; status == RESHARD_OK && i < state->count; i++) {
        double value = 0;
        reshard_tensor *tensor = state->items[i].tensor;
        if (reshard_tensor_value(tensor, &value) == RESHARD_OK)
            printf("  %-12s %8.4f\n", state->items[i].name, value);
    }
    if (status == RESHARD_OK)
        status = reshard_module_load_state_dict(to, state->count, state->items, NULL);
    reshard_named_tensors_destroy(state);
    return status;
}

int main(void)
{
    reshard_module *model = NULL, *copy = NULL, *gate = NULL;
    int64_t rows = 0;
    double error = 1;
    reshard_status status = create_model(1, &model);
    if (status == RESHARD_OK)
        status = create_model(2, &copy);
    if (status == RESHARD_OK)
        status = reshard_module_find(model, "1", &gate);
    if (status == RESHARD_OK) /* without a handle, the hook lives as long as the module */
        status = reshard_module_add_forward_hook(gate, count_rows, &rows, NULL, NULL);
    if (status == RESHARD_OK)
        status = train(model, &error);
    if (status == RESHARD_OK)
        status = copy_state(model, copy);
    if (status == RESHARD_OK && (error > 1e-3 || rows != STEPS * ROWS))
        status = reshard_error_set(RESHARD_ERR_CHECK, "the module has not learned");
    if (status == RESHARD_OK)
        printf("mean squared error %.2g after %lld rows\n", error, (long long)rows);
    else
        fprintf(stderr, "%s\n", reshard_error_text());
    reshard_module_release(model);
    reshard_module_release(copy);
    return status == RESHARD_OK ? 0 : 1;
}
