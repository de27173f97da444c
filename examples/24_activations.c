/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 24_activations.c - stores a replicated tensor only once: each of two ranks keeps half of it, and
 * they gather it again when it is needed. input_reshard does this for everything that a module
 * saves for backward.
 */
#include <reshard/reshard_nn.h>

#include <stdio.h>
#include <string.h>

enum { RANKS = 2, ROWS = 5, COLUMNS = 8 };

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

/* Of five rows, rank 0 keeps three and rank 1 two. */
static reshard_status pack_one(reshard_tensor *x, reshard_device_mesh *mesh)
{
    reshard_packed *packed = NULL;
    reshard_tensor *again = NULL;
    size_t bytes = ROWS * COLUMNS * sizeof(float);
    size_t rows = reshard_device_mesh_position(mesh) == 0 ? 3 : 2;
    /* 1: verify that it is the same on both */
    TRY(reshard_pack_replicated(x, mesh, 0, 1, &packed));
    TRY(check(reshard_packed_bytes(packed) == rows * COLUMNS * sizeof(float),
              "a rank keeps more than its rows"));
    TRY(reshard_unpack_replicated(packed, &again));
    TRY(check(memcmp(reshard_tensor_data(x), reshard_tensor_data(again), bytes) == 0,
              "the tensor has changed"));
    reshard_tensor_release(again);
    reshard_packed_destroy(packed);
    return RESHARD_OK;
}

/* Runs one step, and counts what has been saved so far. */
static reshard_status step(reshard_module *mlp, reshard_tensor *x, reshard_hook *hook,
                           reshard_saved_counts *out_counts)
{
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *loss = reshard_mean(reshard_module_forward(mlp, x));
    TRY(reshard_backward(loss, NULL, NULL));
    TRY(reshard_scope_close(scope));
    return reshard_input_reshard_counts(hook, out_counts);
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    reshard_device_mesh *mesh = NULL;
    reshard_module *mlp = NULL;
    reshard_hook *hook = NULL;
    reshard_tensor *x = NULL;
    reshard_saved_counts first = {.size = sizeof first}, second = first;
    TRY(reshard_device_mesh_create(NULL, group, user, &mesh));
    TRY(reshard_tensor_create(NULL, RESHARD_F32, 2, (int64_t[]){ROWS, COLUMNS}, &x));
    /* the same seed gives the same numbers on both ranks */
    TRY(reshard_tensor_fill_uniform(x, 11));
    TRY(pack_one(x, mesh));

    TRY(reshard_mlp_create(NULL, COLUMNS, 4 * COLUMNS, RESHARD_ACTIVATION_GELU, NULL, &mlp));
    TRY(reshard_module_input_reshard(mlp, mesh, 0, NULL, &hook));
    TRY(step(mlp, x, hook, &first));
    TRY(step(mlp, x, hook, &second));
    TRY(check(first.packed > 0 && 2 * first.packed == second.packed &&
                  2 * first.whole_bytes == second.whole_bytes,
              "the second step saved other tensors than the first"));
    TRY(check(second.chunk_bytes * 5 <= second.whole_bytes * 3 && second.held_bytes == 0,
              "a rank keeps more than three rows of five"));
    printf("rank %d kept %llu bytes of %llu\n", reshard_group_rank(group),
           (unsigned long long)second.chunk_bytes, (unsigned long long)second.whole_bytes);
    reshard_hook_remove(hook);
    reshard_module_release(mlp);
    reshard_tensor_release(x);
    reshard_device_mesh_release(mesh);
    return RESHARD_OK;
}

int main(void)
{
    const char *name = "tp";
    int32_t size = RANKS;
    reshard_mesh *mesh = NULL;
    int failed = reshard_mesh_create(NULL, 1, &name, &size, NULL, &mesh) ||
                 reshard_group_run(NULL, RANKS, run_rank, mesh);
    if (failed)
        fprintf(stderr, "%s\n", reshard_error_text());
    reshard_mesh_release(mesh);
    return failed;
}
