/* SPDX-License-Identifier: Apache-2.0 */
/*
 * training.c - the training that `reshard bench train` measures. Tokens are random, since
 * their values do not affect the time.
 */
#include "bench/training.h"

#include "cli/common/memory.h"
#include "cli/common/work.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

int64_t bench_training_parameters(const bench_training *t)
{
    int64_t block = 12 * t->width * t->width + 13 * t->width;
    return (t->vocabulary + t->length + 2) * t->width + t->layers * block;
}

/* The objects of one rank. */
typedef struct worker {
    bench_training *training;
    reshard_context *context; /* the group's; it keeps memory from step to step */
    reshard_group *group;
    reshard_mesh *mesh;
    reshard_device_mesh *ranks;
    reshard_module *gpt;
    reshard_optimizer *optimizer;
    reshard_hook **hooks;
    reshard_tensor *tokens, *labels;
} worker;

static reshard_status make_tokens(const bench_training *t, uint64_t state, reshard_tensor **out)
{
    int64_t shape[] = {t->batch, t->length};
    reshard_status status = reshard_tensor_create(NULL, RESHARD_I64, 2, shape, out);
    if (status != RESHARD_OK)
        return status;
    int64_t *values = reshard_tensor_write(*out);
    for (int64_t i = 0; i < t->batch * t->length; i++) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        values[i] = (int64_t)(state >> 33) % t->vocabulary;
    }
    return RESHARD_OK;
}

static reshard_status make_model(worker *w)
{
    const bench_training *t = w->training;
    reshard_gpt_options options = {.size = sizeof options,
                                   .vocabulary = t->vocabulary,
                                   .length = t->length,
                                   .width = t->width,
                                   .heads = t->heads,
                                   .layers = t->layers,
                                   .dtype = RESHARD_F32,
                                   .seed = 1};
    reshard_adamw_options adamw = {
        .size = sizeof adamw, .learning_rate = 3e-4, .weight_decay = 0.1};
    reshard_sharding_plan *plan = NULL;
    reshard_status status = reshard_gpt_create(NULL, &options, &w->gpt);
    if (status == RESHARD_OK)
        status = reshard_sharding_plan_create(NULL, &plan);
    if (status == RESHARD_OK)
        status = reshard_sharding_plan_add_gpt(plan, w->gpt, w->mesh, 0, 0);
    if (status == RESHARD_OK)
        status = reshard_module_shard(w->gpt, plan, 0, w->group, NULL);
    if (status == RESHARD_OK)
        status = reshard_adamw_create(NULL, w->gpt, &adamw, &w->optimizer);
    reshard_sharding_plan_destroy(plan);
    return status;
}

static reshard_status reshard_inputs(worker *w)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < w->training->layers && status == RESHARD_OK; i++) {
        char path[32];
        reshard_module *block = NULL;
        (void)snprintf(path, sizeof path, "h.%" PRId64, i);
        status = reshard_module_find(w->gpt, path, &block);
        if (status == RESHARD_OK)
            status = reshard_module_input_reshard(block, w->ranks, 1, NULL, &w->hooks[i]);
    }
    return status;
}

static reshard_status prepare(worker *w)
{
    const char *name = "tp";
    int32_t size = reshard_group_size(w->group);
    reshard_status status = reshard_mesh_create(NULL, 1, &name, &size, NULL, &w->mesh);
    if (status == RESHARD_OK)
        status = reshard_device_mesh_create(NULL, w->group, w->mesh, &w->ranks);
    if (status == RESHARD_OK)
        status = make_model(w);
    if (status == RESHARD_OK)
        status = reshard_inputs(w);
    if (status == RESHARD_OK)
        status = make_tokens(w->training, 1, &w->tokens);
    if (status == RESHARD_OK)
        status = make_tokens(w->training, 2, &w->labels);
    return status;
}

/* gathers: logits are made whole on every rank before the loss. */
static reshard_status step(worker *w, reshard_context *context, int gathers, double *out_loss)
{
    reshard_scope *scope = NULL;
    reshard_status status = reshard_scope_open(context, &scope);
    if (status != RESHARD_OK)
        return status;
    reshard_tensor *logits = reshard_module_forward(w->gpt, w->tokens);
    if (gathers && logits != NULL && reshard_tensor_layout(logits) != NULL)
        logits = reshard_tensor_full(logits);
    reshard_tensor *loss = reshard_cross_entropy_loss(logits, w->labels, NULL);
    (void)reshard_backward(loss, NULL, NULL);
    if (loss != NULL && reshard_tensor_layout(loss) != NULL)
        loss = reshard_tensor_full(loss);
    if (loss != NULL)
        (void)reshard_tensor_value(loss, out_loss);
    status = reshard_scope_close(scope);
    if (status == RESHARD_OK)
        status = reshard_optimizer_clip(w->optimizer, w->group, 1, NULL);
    if (status == RESHARD_OK)
        status = reshard_optimizer_step(w->optimizer);
    reshard_optimizer_clear_gradients(w->optimizer);
    return status;
}

static double processor_seconds(void)
{
    struct rusage used;
    (void)getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* A step takes until the last rank has finished it. */
static reshard_status time_steps(worker *w)
{
    bench_training *t = w->training;
    int first = reshard_group_rank(w->group) == 0;
    reshard_status status = RESHARD_OK;
    double processor = 0;
    for (int32_t i = -1; i < t->steps && status == RESHARD_OK; i++) {
        double began = cli_seconds(), loss = 0;
        processor = i == 0 ? processor_seconds() : processor;
        status = step(w, w->context, 0, &loss);
        if (status == RESHARD_OK)
            status = reshard_group_barrier(w->group);
        if (first && i >= 0)
            t->seconds[i] = cli_seconds() - began;
        if (first)
            t->loss = loss;
    }
    if (first)
        t->processor_seconds = (processor_seconds() - processor) / t->steps;
    return status;
}

/* One step in a context of its own. */
static reshard_status measure_step(worker *w, int gathers, size_t *out_peak)
{
    double loss = 0;
    reshard_context *context = NULL;
    reshard_status status = reshard_context_create(NULL, &context);
    status = reshard_group_agree(w->group, status);
    if (status == RESHARD_OK)
        status = step(w, context, gathers, &loss);
    if (status == RESHARD_OK && reshard_group_rank(w->group) == 0)
        *out_peak = cli_memory_info(context).bytes_peak;
    reshard_context_destroy(context);
    return status;
}

/* Takes input_reshard away in the end. */
static reshard_status measure_memory(worker *w)
{
    size_t(*peaks)[2] = w->training->peaks;
    reshard_status status = RESHARD_OK;
    for (int off = 0; off < 2 && status == RESHARD_OK; off++) {
        for (int64_t i = 0; off && i < w->training->layers; i++) {
            reshard_hook_remove(w->hooks[i]);
            w->hooks[i] = NULL;
        }
        for (int gathers = 0; gathers < 2 && status == RESHARD_OK; gathers++)
            status = measure_step(w, gathers, &peaks[off][gathers]);
    }
    return status;
}

static reshard_status train(void *user, reshard_group *group)
{
    bench_training *t = user;
    worker w = {.training = t, .context = t->context, .group = group};
    w.hooks = cli_allocate((size_t)w.training->layers + 1, sizeof *w.hooks);
    reshard_status status = reshard_group_agree(group, prepare(&w));
    if (status == RESHARD_OK)
        status = time_steps(&w);
    if (status == RESHARD_OK && t->peaks != NULL)
        status = measure_memory(&w);
    for (int64_t i = 0; i < w.training->layers; i++)
        reshard_hook_remove(w.hooks[i]);
    free(w.hooks);
    reshard_tensor_release(w.tokens);
    reshard_tensor_release(w.labels);
    reshard_optimizer_destroy(w.optimizer);
    reshard_module_release(w.gpt);
    reshard_device_mesh_release(w.ranks);
    reshard_mesh_release(w.mesh);
    return status;
}

reshard_status bench_training_run(bench_training *training, int32_t ranks)
{
    reshard_status status = reshard_context_create(NULL, &training->context);
    if (status != RESHARD_OK)
        return status;
    status = reshard_group_run(training->context, ranks, train, training);
    reshard_context_destroy(training->context);
    return status;
}
