/* SPDX-License-Identifier: Apache-2.0 */
/* gpt.h - a small GPT with the weights and batches of tests/oracle/gpt.py, cut over all ranks by a
 * sharding plan. */
#ifndef TESTS_NN_GPT_H
#define TESTS_NN_GPT_H

#include "tests/nn/meshes.h"

#include "tests/support/info.h"

enum { VOCABULARY = 13, LENGTH = 8, WIDTH = 16, HEADS = 4, LAYERS = 2, BATCH = 4 };

static inline double pattern(const char *name, int64_t i)
{
    int64_t key = 0;
    for (size_t k = 0; name[k] != 0; k++)
        key += (int64_t)name[k] * (int64_t)(k + 1);
    return (double)((i * 7919 + key * 104729) % 1009) / 1009 - 0.5;
}

static inline void fill_weights(reshard_module *gpt)
{
    reshard_named_tensors *list = NULL;
    MUST(reshard_module_parameters(gpt, &list));
    for (int64_t k = 0; k < list->count; k++) {
        const char *name = list->items[k].name;
        size_t length = strlen(name);
        bool norm = strstr(name, "ln") != NULL && strcmp(name + length - 6, "weight") == 0;
        for (int64_t i = 0; i < reshard_tensor_volume(list->items[k].tensor); i++)
            set_element(list->items[k].tensor, i, norm + 0.4 * pattern(name, i));
    }
    reshard_named_tensors_destroy(list);
}

static inline void make_batch(int64_t step, reshard_tensor **out_tokens,
                              reshard_tensor **out_labels)
{
    *out_tokens = make_zeros(RESHARD_I64, SHAPE(BATCH, LENGTH));
    *out_labels = make_zeros(RESHARD_I64, SHAPE(BATCH, LENGTH));
    for (int64_t b = 0; b < BATCH; b++) {
        for (int64_t t = 0; t <= LENGTH; t++) {
            int64_t i = b * (LENGTH + 1) + t;
            double token = (double)((i * 31 + step * 17 + i * i % 7) % VOCABULARY);
            if (t < LENGTH)
                set_element(*out_tokens, b * LENGTH + t, token);
            if (t > 0)
                set_element(*out_labels, b * LENGTH + t - 1, token);
        }
    }
}

static inline reshard_module *make_gpt(reshard_dtype dtype)
{
    reshard_gpt_options options = {.size = sizeof options,
                                   .vocabulary = VOCABULARY,
                                   .length = LENGTH,
                                   .width = WIDTH,
                                   .heads = HEADS,
                                   .layers = LAYERS,
                                   .dtype = dtype};
    reshard_module *gpt = NULL;
    MUST(reshard_gpt_create(NULL, &options, &gpt));
    fill_weights(gpt);
    return gpt;
}

static inline reshard_status spread(reshard_module *gpt, reshard_group *group,
                                    reshard_device_mesh *mesh, reshard_hook **out_hook)
{
    reshard_sharding_plan *plan = NULL;
    MUST(reshard_sharding_plan_create(NULL, &plan));
    CHECK(reshard_sharding_plan_add_gpt(plan, gpt, info_device_mesh(mesh).mesh, 0, 0) ==
          RESHARD_OK);
    TRY(reshard_module_shard(gpt, plan, 0, group, out_hook));
    reshard_sharding_plan_destroy(plan);
    return RESHARD_OK;
}

static inline reshard_status forward_backward(reshard_module *gpt, int64_t step, double *out_loss)
{
    reshard_scope *scope = NULL;
    reshard_tensor *tokens = NULL, *labels = NULL;
    make_batch(step, &tokens, &labels);
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *loss =
        reshard_cross_entropy_loss(reshard_module_forward(gpt, tokens), labels, NULL);
    (void)reshard_backward(loss, NULL, NULL);
    if (loss != NULL && reshard_tensor_layout(loss) != NULL)
        loss = reshard_tensor_full(loss);
    if (loss != NULL)
        MUST(reshard_tensor_value(loss, out_loss));
    reshard_tensor_release(tokens);
    reshard_tensor_release(labels);
    return reshard_scope_close(scope);
}

#endif
