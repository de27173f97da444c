/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 23_saved_tensors.c - halves the memory of what autograd saves for backward: a pair of hooks
 * stores saved tensors as bf16 and returns them as f32. Then inference, which saves nothing at all.
 */
#include <reshard/reshard_nn.h>

#include <stdio.h>

enum { COUNT = 64 };

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

/* How many tensors are kept now, and the most at one time. */
typedef struct saved {
    int64_t kept, kept_most;
} saved;

static reshard_status pack(void *user, reshard_tensor *tensor, void **out_packed)
{
    saved *counts = user;
    reshard_tensor *half = reshard_tensor_cast(tensor, RESHARD_BF16);
    if (half == NULL)
        return reshard_error_set(RESHARD_ERR_CHECK, "a tensor could not be packed");
    *out_packed = reshard_tensor_retain(half);
    if (++counts->kept > counts->kept_most)
        counts->kept_most = counts->kept;
    return RESHARD_OK;
}

static reshard_status unpack(void *user, void *packed, reshard_tensor **out_tensor)
{
    (void)user;
    reshard_tensor *whole = reshard_tensor_cast(packed, RESHARD_F32);
    if (whole == NULL)
        return reshard_error_set(RESHARD_ERR_CHECK, "a tensor could not be unpacked");
    *out_tensor = reshard_tensor_retain(whole);
    return RESHARD_OK;
}

static void forget(void *user, void *packed)
{
    ((saved *)user)->kept--;
    reshard_tensor_release(packed);
}

/* The gradient of sum(x x) is 2 x. The numbers used here are exact in bf16. */
static reshard_status differentiate(reshard_tensor *x)
{
    saved counts = {0};
    const reshard_saved_tensor_hooks hooks = {pack, unpack, forget, &counts};
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    TRY(reshard_saved_tensor_hooks_push(NULL, &hooks));
    reshard_tensor *square = reshard_mul(x, x);
    TRY(reshard_saved_tensor_hooks_pop()); /* from here on, tensors are saved as they are */
    TRY(reshard_backward(reshard_sum(square), NULL, NULL));
    TRY(reshard_scope_close(scope));
    for (int64_t i = 0; i < COUNT; i++) {
        double slope = -1;
        TRY(reshard_tensor_get(reshard_tensor_gradient(x), &i, &slope));
        TRY(check(slope == 2 * (double)i, "a gradient is wrong"));
    }
    return check(counts.kept_most == 2 && counts.kept == 0, "the hooks saw other tensors");
}

/* Computes without recording. The result outlives the scope, which frees everything else. */
static reshard_tensor *predict(reshard_tensor *x)
{
    reshard_scope *scope = NULL;
    if (reshard_scope_open(NULL, &scope) != RESHARD_OK)
        return NULL;
    (void)reshard_set_gradients_enabled(0);
    reshard_tensor *result = reshard_scope_keep(reshard_sum(reshard_scale(reshard_relu(x), 2)));
    /* closing restores recording */
    return reshard_scope_close(scope) == RESHARD_OK ? result : NULL;
}

static reshard_status run(reshard_tensor *x)
{
    double value = 0;
    reshard_scope *scope = NULL;
    for (int64_t i = 0; i < COUNT; i++)
        TRY(reshard_tensor_set(x, &i, (double)i));
    TRY(reshard_tensor_set_requires_grad(x, 1));
    TRY(differentiate(x));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *sum = predict(x);
    TRY(check(sum != NULL && !reshard_tensor_requires_grad(sum), "the prediction was recorded"));
    TRY(check(reshard_set_gradients_enabled(1), "recording was not switched on again"));
    TRY(reshard_tensor_item(sum, &value));
    TRY(check(value == COUNT * (COUNT - 1), "the prediction is wrong"));
    return reshard_scope_close(scope);
}

int main(void)
{
    reshard_tensor *x = NULL;
    int failed = reshard_tensor_create(NULL, RESHARD_F32, 1, (int64_t[]){COUNT}, &x) || run(x);
    if (failed)
        fprintf(stderr, "%s\n", reshard_error_text());
    else
        printf("the gradient is exact, from saved tensors of half the size\n");
    reshard_tensor_release(x);
    return failed;
}
