/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 22_values.c - modules take and return values: a tensor, a list, or nothing. The module here mixes
 * rows by scores, if it gets any, and returns the weights as well as the result. A buffer holds a
 * bias that is added to all scores.
 */
#include <reshard/reshard_nn.h>

#include <stdio.h>
#include <string.h>

enum { ROWS = 2, COLUMNS = 3 };

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

/* Takes [x, scores or nothing] and returns [softmax(scores + bias) x, weights or nothing]. */
static reshard_value forward_mix(reshard_module *module, void *user, reshard_value input)
{
    (void)user;
    reshard_tensor *x = reshard_value_tensor(reshard_value_item(input, 0));
    reshard_value scores = reshard_value_item(input, 1);
    if (scores.kind == RESHARD_VALUE_NOTHING)
        return reshard_value_list(2,
                                  (reshard_value[]){reshard_value_of(x), reshard_value_nothing()});
    reshard_tensor *biased =
        reshard_add(reshard_value_tensor(scores), reshard_module_buffer(module, "bias"));
    reshard_tensor *weights = reshard_softmax(biased, -1);
    return reshard_value_list(2, (reshard_value[]){reshard_value_of(reshard_matmul(weights, x)),
                                                   reshard_value_of(weights)});
}

/* Scores that differ a lot select a row; without scores, every row stays where it is. */
static reshard_status mix(reshard_module *module, reshard_tensor *x, reshard_tensor *scores)
{
    double chosen = 0, weight = 0, kept = 0;
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_value pair[] = {reshard_value_of(x), reshard_value_of(scores)};
    reshard_value mixed = reshard_module_call(module, reshard_value_list(2, pair));
    pair[1] = reshard_value_nothing();
    reshard_value same = reshard_module_call(module, reshard_value_list(2, pair));
    reshard_tensor *rows = reshard_value_tensor(reshard_value_item(mixed, 0));
    reshard_tensor *weights = reshard_value_tensor(reshard_value_item(mixed, 1));
    reshard_tensor *first = reshard_value_tensor(reshard_value_item(same, 0));
    TRY(reshard_scope_status(scope));
    TRY(reshard_tensor_get(rows, (int64_t[]){0, 0}, &chosen));
    TRY(reshard_tensor_get(weights, (int64_t[]){0, 1}, &weight));
    TRY(reshard_tensor_get(first, (int64_t[]){0, 0}, &kept));
    TRY(check(chosen > 2.99 && weight > 0.99, "the second row was not chosen"));
    TRY(check(kept == 0 && reshard_value_item(same, 1).kind == RESHARD_VALUE_NOTHING,
              "rows were mixed without scores"));
    return reshard_scope_close(scope);
}

static reshard_status run(void)
{
    static const float numbers[ROWS * COLUMNS] = {0, 1, 2, 3, 4, 5}, biases[ROWS] = {0, 40};
    const reshard_module_kind kind = {.name = "mix", .forward = forward_mix};
    reshard_tensor *x = NULL, *bias = NULL, *scores = NULL, *found = NULL;
    reshard_module *module = NULL;
    reshard_named_tensors *buffers = NULL, *state = NULL;
    TRY(reshard_tensor_from_data(NULL, RESHARD_F32, 2, (int64_t[]){ROWS, COLUMNS}, numbers, &x));
    TRY(reshard_tensor_from_data(NULL, RESHARD_F32, 1, (int64_t[]){ROWS}, biases, &bias));
    TRY(reshard_tensor_create(NULL, RESHARD_F32, 2, (int64_t[]){ROWS, ROWS}, &scores));
    TRY(reshard_module_create(NULL, &kind, &module));
    TRY(reshard_module_add_buffer(module, "bias", bias, 1)); /* not stored in checkpoints */
    TRY(mix(module, x, scores));

    TRY(reshard_module_find_buffer(module, "bias", &found));
    TRY(reshard_module_buffers(module, &buffers));
    TRY(reshard_module_state_dict(module, &state));
    TRY(check(found == bias && buffers->count == 1 && state->count == 0 &&
                  strcmp(buffers->items[0].name, "bias") == 0,
              "the module has other buffers"));
    reshard_named_tensors_destroy(state);
    reshard_named_tensors_destroy(buffers);
    reshard_module_release(module);
    reshard_tensor_release(scores);
    reshard_tensor_release(bias);
    reshard_tensor_release(x);
    return RESHARD_OK;
}

int main(void)
{
    reshard_status status = run();
    if (status != RESHARD_OK)
        fprintf(stderr, "%s\n", reshard_error_text());
    else
        printf("rows were mixed with scores, and kept without\n");
    return status != RESHARD_OK;
}
