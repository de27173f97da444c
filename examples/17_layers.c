/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 17_layers.c - ready-made layers form a tree that can be changed: a GPT block gets Llama's norms,
 * activation and layers without biases, and a hook applies dropout to its input until it is
 * removed.
 */
#include <reshard/reshard_nn.h>

#include <stdio.h>
#include <string.h>

enum { WIDTH = 8, HEADS = 2, LENGTH = 3 };

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

static void print_tree(const reshard_module *module, const char *name, int depth)
{
    printf("%*s%s: %s\n", 2 * depth, "", name, reshard_module_kind_name(module));
    for (int32_t i = 0; i < reshard_module_child_count(module); i++)
        print_tree(reshard_module_child(module, i), reshard_module_child_name(module, i),
                   depth + 1);
}

/* Replaces a child by a new module, which belongs to the tree from then on. */
static reshard_status replace(reshard_module *block, const char *path, reshard_module *child)
{
    reshard_status status = reshard_module_replace_child(block, path, child);
    reshard_module_release(child);
    return status;
}

static reshard_status make_llama(reshard_module *block)
{
    reshard_layer_options options = {.size = sizeof options, .seed = 7, .no_bias = 1};
    static const char *const norms[] = {"ln1", "ln2"};
    reshard_module *child = NULL;
    for (int i = 0; i < 2; i++) {
        TRY(reshard_rmsnorm_create(NULL, WIDTH, 1e-5, &options, &child));
        TRY(replace(block, norms[i], child));
    }
    TRY(reshard_attention_create(NULL, WIDTH, HEADS, &options, &child));
    TRY(replace(block, "attn", child));
    TRY(reshard_mlp_create(NULL, WIDTH, 3 * WIDTH, RESHARD_ACTIVATION_SILU, &options, &child));
    return replace(block, "mlp", child);
}

/* A pre-hook. The seed counts calls, so every call drops other elements. */
static reshard_status drop(void *user, reshard_module *module, reshard_value *input)
{
    uint64_t *calls = user;
    (void)module;
    *input = reshard_value_of(reshard_dropout(reshard_value_tensor(*input), 0.5, ++*calls));
    return RESHARD_OK;
}

static reshard_status run(reshard_module *block, reshard_tensor *x, float *out_values)
{
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_module_forward(block, x);
    if (y != NULL)
        TRY(reshard_tensor_copy_to(y, out_values, LENGTH * WIDTH * sizeof *out_values));
    return reshard_scope_close(scope);
}

/* Sets the output weights of attention and MLP to zero, so that the block returns x itself. */
static reshard_status set_weights(reshard_module *block, reshard_tensor *x)
{
    static const char *const paths[] = {"attn.o.weight", "mlp.fc2.weight"};
    float values[LENGTH * WIDTH], given[LENGTH * WIDTH];
    for (int i = 0; i < 2; i++) {
        reshard_tensor *weight = NULL, *noise = NULL, *zero = NULL;
        TRY(reshard_module_find_parameter(block, paths[i], &weight));
        TRY(reshard_tensor_normal_like(weight, RESHARD_DTYPE_NONE, 1, &noise));
        TRY(reshard_tensor_zeros_like(noise, RESHARD_DTYPE_NONE, &zero));
        TRY(reshard_module_set_parameter(block, paths[i], noise));
        TRY(reshard_module_set_parameter(block, paths[i], zero));
        reshard_tensor_release(noise);
        reshard_tensor_release(zero);
    }
    TRY(run(block, x, values));
    TRY(reshard_tensor_copy_to(x, given, sizeof given));
    return check(memcmp(values, given, sizeof given) == 0, "weights of zero give something");
}

static reshard_status change_block(reshard_module *block, reshard_tensor *x)
{
    float gpt[LENGTH * WIDTH], llama[LENGTH * WIDTH], dropped[LENGTH * WIDTH], last[LENGTH * WIDTH];
    reshard_hook *hook = NULL;
    reshard_module *norm = NULL;
    uint64_t calls = 0;
    TRY(run(block, x, gpt));
    TRY(make_llama(block));
    TRY(reshard_module_find(block, "ln1", &norm));
    TRY(check(strcmp(reshard_module_kind_name(norm), "rmsnorm") == 0, "the norm is the old one"));
    print_tree(block, "block", 0);
    TRY(run(block, x, llama));
    TRY(check(memcmp(gpt, llama, sizeof gpt) != 0, "other layers give the same"));

    TRY(reshard_module_add_forward_pre_hook(block, drop, &calls, NULL, &hook));
    TRY(run(block, x, dropped));
    reshard_hook_remove(hook);
    TRY(check(memcmp(llama, dropped, sizeof llama) != 0 && calls == 1, "nothing was dropped"));
    TRY(run(block, x, last));
    TRY(check(memcmp(llama, last, sizeof llama) == 0 && calls == 1, "the hook is still there"));
    return set_weights(block, x);
}

int main(void)
{
    reshard_layer_options options = {.size = sizeof options, .seed = 1};
    reshard_module *block = NULL;
    reshard_tensor *x = NULL;
    int failed = reshard_block_create(NULL, WIDTH, HEADS, &options, &block) ||
                 reshard_tensor_create(NULL, RESHARD_F32, 3, (int64_t[]){1, LENGTH, WIDTH}, &x) ||
                 reshard_tensor_fill_normal(x, 5) || change_block(block, x);
    if (failed)
        fprintf(stderr, "%s\n", reshard_error_text());
    reshard_tensor_release(x);
    reshard_module_release(block);
    return failed;
}
