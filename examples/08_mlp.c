/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 08_mlp.c - introduces modules, sharding plans, input_reshard and optimizers: an MLP cut over four
 * ranks as in Megatron, with saved activations kept in chunks, trained by SGD. It also introduces
 * RESHARD_DO: the scope keeps the first error of any call, calls after it do nothing, and only the
 * scope is asked in the end.
 */
#include <reshard/reshard_nn.h>

#include "examples/example.h"

static reshard_status train(void *user, reshard_group *group)
{
    reshard_scope *scope = NULL, *step = NULL;
    reshard_module *mlp = NULL;
    reshard_sharding_plan *plan = NULL;
    reshard_device_mesh *mesh = NULL;
    reshard_optimizer *sgd = NULL;
    reshard_tensor *x = NULL, *wanted = NULL;
    double loss = 0, first = 0;
    (void)user;
    if (reshard_scope_open(NULL, &scope) != RESHARD_OK)
        return RESHARD_ERR_NO_MEMORY;
    RESHARD_DO(reshard_mlp_create(NULL, 8, 32, RESHARD_ACTIVATION_RELU, NULL, &mlp));
    RESHARD_DO(reshard_sharding_plan_create(NULL, &plan));
    RESHARD_DO(reshard_sharding_plan_add_text(plan, "fc1.weight", "4: S(0)"));
    RESHARD_DO(reshard_sharding_plan_add_text(plan, "fc2.weight", "4: S(1)"));
    RESHARD_DO(reshard_module_shard(mlp, plan, 0, group, NULL));
    RESHARD_DO(reshard_device_mesh_parse(NULL, group, "4", &mesh));
    RESHARD_DO(reshard_module_input_reshard(mlp, mesh, 0, NULL, NULL));
    RESHARD_DO(reshard_sgd_create(
        NULL, mlp, RESHARD_OPTIONS(reshard_sgd_options, .learning_rate = 0.5), &sgd));
    RESHARD_DO(reshard_tensor_create(NULL, RESHARD_F32, 2, (int64_t[]){16, 8}, &x));
    RESHARD_DO(reshard_tensor_fill_random(x, RESHARD_NORMAL, 2));
    RESHARD_DO(reshard_tensor_zeros_like(x, RESHARD_DTYPE_NONE, &wanted));
    RESHARD_DO(reshard_tensor_fill_random(wanted, RESHARD_UNIFORM, 3));
    for (int i = 0; i < 20 && !reshard_scope_failed(); i++) {
        RESHARD_DO(reshard_scope_open(NULL, &step)); /* owns everything that the step computes */
        reshard_tensor *error = reshard_mse_loss(reshard_module_forward(mlp, x), wanted);
        RESHARD_DO(reshard_backward(error, NULL, NULL));
        RESHARD_DO(reshard_optimizer_step(sgd));
        RESHARD_DO(reshard_tensor_value(error, &loss));
        reshard_scope_note(reshard_scope_close(step));
        reshard_optimizer_clear_gradients(sgd);
        first = i == 0 ? loss : first;
    }
    RESHARD_DO(check(loss < first / 2, "no progress"));
    if (reshard_group_rank(group) == 0)
        printf("20 steps: the loss falls from %.4f to %.4f\n", first, loss);
    reshard_tensor_release(x);
    reshard_tensor_release(wanted);
    reshard_optimizer_destroy(sgd);
    reshard_device_mesh_release(mesh);
    reshard_sharding_plan_destroy(plan);
    reshard_module_release(mlp);
    return reshard_scope_close(scope);
}

int main(void)
{
    return finish(reshard_group_run(NULL, 4, train, NULL));
}
