/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transformer.c - a transformer of two blocks, written by its user, with an activation of their
 * own. Styles make it tensor and sequence parallel in one call; the vocabulary stays cut in the
 * loss; in every block, a rank keeps only its chunk of activations that all ranks have. Training on
 * several ranks is compared with training on one.
 *
 *   33_transformer --ranks 4 --steps 50
 *
 * The number of ranks divides that of heads, so that each rank has whole heads. --losses 1 prints
 * all losses, which tests/oracle/pytorch/test_transformer.py compares with those of the same model
 * in PyTorch. Sizes are those of --width, --heads, --length, --vocabulary, --batch.
 */
#define _POSIX_C_SOURCE 200809L
#include <reshard/reshard_nn.h>

#include "examples/example.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct {
    int64_t ranks, steps, width, heads, length, vocabulary, batch, losses;
} set = {4, 50, 16, 4, 8, 13, 4, 0};

/* ---- the activation: x / (1 + |x|), whose slope is (1 - |y|)^2 ------------------------------- */

static reshard_status softsign(reshard_operation_call *call, reshard_tensor *const *inputs,
                               reshard_tensor **outputs)
{
    const double *x = reshard_tensor_data(inputs[0]);
    if ((outputs[0] = reshard_operation_result(call, 0)) == NULL)
        return RESHARD_OK; /* the scope has the error */
    double *y = reshard_tensor_write(outputs[0]);
    for (int64_t i = 0; i < reshard_tensor_volume(inputs[0]); i++)
        y[i] = x[i] / (1 + fabs(x[i]));
    return RESHARD_OK;
}

static reshard_status softsign_back(reshard_operation_call *call, reshard_tensor *const *gradients,
                                    reshard_tensor **out)
{
    const double *y = reshard_tensor_data(call->outputs[0]);
    if ((out[0] = reshard_tensor_clone(gradients[0])) == NULL)
        return RESHARD_OK;
    double *g = reshard_tensor_write(out[0]);
    for (int64_t i = 0; i < reshard_tensor_volume(out[0]); i++)
        g[i] *= (1 - fabs(y[i])) * (1 - fabs(y[i]));
    return RESHARD_OK;
}

static const reshard_operation own_softsign = {.size = sizeof own_softsign,
                                               .name = "softsign",
                                               .forward = softsign,
                                               .backward = softsign_back,
                                               .saved_outputs = 1};

/* ---- the model ------------------------------------------------------------------------------- */

static reshard_tensor *through(reshard_module *module, const char *name, reshard_tensor *x)
{
    reshard_module *child = NULL;
    RESHARD_DO(reshard_module_find(module, name, &child));
    return child != NULL ? reshard_module_forward(child, x) : NULL;
}

static reshard_tensor *part_heads(reshard_tensor *x)
{
    int64_t shape[] = {set.batch, set.length, set.heads, set.width / set.heads};
    return x != NULL ? reshard_tensor_transpose(reshard_tensor_reshape(x, 4, shape), 1, 2) : NULL;
}

static reshard_value forward_attention(reshard_module *m, void *user, reshard_value input)
{
    const int64_t shape[] = {set.batch, set.length, set.width};
    reshard_tensor *x = reshard_value_tensor(input), *q = part_heads(through(m, "q", x));
    reshard_tensor *k = part_heads(through(m, "k", x)), *v = part_heads(through(m, "v", x));
    reshard_tensor *y = reshard_causal_attention(q, k, v, 0);
    (void)user;
    y = y != NULL ? reshard_tensor_reshape(reshard_tensor_transpose(y, 1, 2), 3, shape) : NULL;
    return reshard_value_of(through(m, "o", y));
}

static reshard_value forward_block(reshard_module *m, void *user, reshard_value input)
{
    reshard_tensor *x = reshard_value_tensor(input);
    (void)user;
    x = reshard_add(x, through(m, "attn", through(m, "norm1", x)));
    reshard_tensor *hidden = through(m, "up", through(m, "norm2", x));
    hidden = hidden != NULL ? reshard_operation_run(&own_softsign, NULL, &hidden, NULL) : NULL;
    return reshard_value_of(reshard_add(x, through(m, "down", hidden)));
}

static reshard_value forward_model(reshard_module *m, void *user, reshard_value input)
{
    reshard_tensor *x = through(m, "embed", reshard_value_tensor(input));
    x = reshard_add(x, through(m, "place", reshard_module_tensor(m, "places")));
    (void)user;
    x = through(m, "layers", x);
    return reshard_value_of(through(m, "head", through(m, "norm", x)));
}

/* Makes a module and gives it the children, which follow as name and module. */
static reshard_module *make(const char *kind,
                            reshard_value (*forward)(reshard_module *, void *, reshard_value),
                            int count, const char *const *names, reshard_module **children)
{
    reshard_module *made = NULL;
    RESHARD_DO(
        reshard_module_create(NULL, &(reshard_module_kind){kind, forward, NULL, NULL}, &made));
    for (int i = 0; i < count; i++) {
        RESHARD_DO(reshard_module_add_child(made, names[i], children[i]));
        reshard_module_release(children[i]);
    }
    return made;
}

static reshard_module *linear(int64_t inputs, int64_t outputs, int no_bias)
{
    reshard_module *made = NULL;
    RESHARD_DO(reshard_linear_create(
        NULL, inputs, outputs,
        RESHARD_OPTIONS(reshard_layer_options, .dtype = RESHARD_F64, .no_bias = no_bias), &made));
    return made;
}

static reshard_module *norm(void)
{
    reshard_module *made = NULL;
    RESHARD_DO(reshard_layernorm_create(
        NULL, set.width, 1e-5, RESHARD_OPTIONS(reshard_layer_options, .dtype = RESHARD_F64),
        &made));
    return made;
}

static reshard_module *embedding(int64_t count)
{
    reshard_module *made = NULL;
    RESHARD_DO(reshard_embedding_create(
        NULL, count, set.width, RESHARD_OPTIONS(reshard_layer_options, .dtype = RESHARD_F64),
        &made));
    return made;
}

static reshard_module *make_block(void)
{
    int64_t w = set.width;
    reshard_module *attn = make(
        "attention", forward_attention, 4, (const char *[]){"q", "k", "v", "o"},
        (reshard_module *[]){linear(w, w, 0), linear(w, w, 0), linear(w, w, 0), linear(w, w, 0)});
    return make(
        "block", forward_block, 5, (const char *[]){"norm1", "attn", "norm2", "up", "down"},
        (reshard_module *[]){norm(), attn, norm(), linear(w, 4 * w, 0), linear(4 * w, w, 0)});
}

static reshard_module *make_model(void)
{
    const int64_t shape[] = {set.batch, set.length};
    reshard_module *blocks[] = {make_block(), make_block()}, *layers = NULL;
    reshard_tensor *places = NULL;
    RESHARD_DO(reshard_sequential_create(NULL, 2, blocks, &layers));
    reshard_module_release(blocks[0]);
    reshard_module_release(blocks[1]);
    reshard_module *model = make(
        "model", forward_model, 5, (const char *[]){"embed", "place", "layers", "norm", "head"},
        (reshard_module *[]){embedding(set.vocabulary), embedding(set.length), layers, norm(),
                             linear(set.width, set.vocabulary, 1)});
    RESHARD_DO(reshard_tensor_create(NULL, RESHARD_I64, 2, shape, &places));
    for (int64_t i = 0; places != NULL && i < set.batch * set.length; i++)
        ((int64_t *)reshard_tensor_write(places))[i] = i % set.length;
    RESHARD_DO(reshard_module_add_buffer(model, "places", places, 1));
    reshard_tensor_release(places);
    return model;
}

/* ---- over ranks ------------------------------------------------------------------------------ */

static reshard_status spread(reshard_module *model, reshard_group *group, reshard_mesh *mesh)
{
    const reshard_style columns = {.size = sizeof columns, .kind = RESHARD_STYLE_COLUMNS};
    const reshard_style rows = {.size = sizeof rows, .kind = RESHARD_STYLE_ROWS, .output = "S(1)"};
    const reshard_style part = {.size = sizeof part, .kind = RESHARD_STYLE_SEQUENCE};
    const reshard_style whole = {.size = sizeof whole, .kind = RESHARD_STYLE_MODULE, .input = "R"};
    const reshard_style place = {
        .size = sizeof place, .kind = RESHARD_STYLE_SEQUENCE, .input = "R", .output = "S(1)"};
    const reshard_styled styles[] = {
        {"embed", &rows},
        {"place", &place},
        {"layers.*.norm?", &part},
        {"layers.*.attn", &whole},
        {"layers.*.attn.{q,k,v}", &columns},
        {"layers.*.attn.o", &rows},
        {"layers.*.up", &columns},
        {"layers.*.down", &rows},
        {"norm", &part},
        {"head", &columns},
    };
    return reshard_module_parallelize(model, group, mesh, 0, sizeof styles / sizeof *styles, styles,
                                      NULL);
}

/* ---- training -------------------------------------------------------------------------------- */

static double pattern(const char *name, int64_t i)
{
    int64_t key = 0;
    for (size_t k = 0; name[k] != 0; k++)
        key += (int64_t)name[k] * (int64_t)(k + 1);
    return (double)((i * 7919 + key * 104729) % 1009) / 1009 - 0.5;
}

/* Weights that depend only on names and places, so that another program can make the same. */
static reshard_status fill(reshard_module *model)
{
    reshard_status status = RESHARD_OK;
    reshard_named_tensors *list = NULL;
    TRY(reshard_module_parameters(model, &list));
    for (int64_t k = 0; k < list->count; k++) {
        const char *name = list->items[k].name;
        double *to = reshard_tensor_write(list->items[k].tensor);
        int scale = strstr(name, "norm") != NULL && strstr(name, "weight") != NULL;
        for (int64_t i = 0; i < reshard_tensor_volume(list->items[k].tensor); i++)
            to[i] = scale + 0.4 * pattern(name, i);
    }
out:
    reshard_named_tensors_destroy(list);
    return status;
}

static reshard_status make_batch(int64_t step, reshard_tensor **out_tokens,
                                 reshard_tensor **out_labels)
{
    reshard_status status = RESHARD_OK;
    const int64_t shape[] = {set.batch, set.length}, n = set.length;
    TRY(reshard_tensor_create(NULL, RESHARD_I64, 2, shape, out_tokens));
    TRY(reshard_tensor_create(NULL, RESHARD_I64, 2, shape, out_labels));
    int64_t *tokens = reshard_tensor_write(*out_tokens),
            *labels = reshard_tensor_write(*out_labels);
    for (int64_t i = 0; i < set.batch * (n + 1); i++) {
        int64_t row = i / (n + 1), at = i % (n + 1);
        int64_t token = (i * 31 + step * 17 + i * i % 7) % set.vocabulary;
        if (at < n)
            tokens[row * n + at] = token;
        if (at > 0)
            labels[row * n + at - 1] = token;
    }
out:
    return status;
}

/* One step; `gathers`: gather whole logits for the loss. *out_peak: the most bytes of activations
 * at one time. */
static reshard_status take_step(reshard_module *model, reshard_optimizer *optimizer, int64_t step,
                                int gathers, double *out_loss, size_t *out_peak)
{
    reshard_status status = RESHARD_OK;
    reshard_tensor *tokens = NULL, *labels = NULL;
    reshard_context *context = NULL;
    reshard_scope *scope = NULL;
    TRY(make_batch(step, &tokens, &labels));
    TRY(reshard_context_create(NULL, &context));
    TRY(reshard_scope_open(context, &scope));
    reshard_tensor *logits = reshard_module_forward(model, tokens);
    if (gathers && logits != NULL && reshard_tensor_layout(logits) != NULL)
        logits = reshard_tensor_full(logits);
    reshard_tensor *loss = reshard_cross_entropy_loss(logits, labels, NULL);
    RESHARD_DO(reshard_backward(loss, NULL, NULL));
    RESHARD_DO(reshard_tensor_value(loss, out_loss));
    reshard_memory_info memory = {.size = sizeof memory};
    TRY(reshard_context_get_memory(context, &memory));
    *out_peak = memory.bytes_peak;
    TRY(close_scope(&scope, status));
    TRY(reshard_optimizer_step(optimizer));
out:
    status = close_scope(&scope, status);
    reshard_optimizer_clear_gradients(optimizer); /* they are of the step's context */
    reshard_tensor_release(tokens);
    reshard_tensor_release(labels);
    reshard_context_destroy(context);
    return status;
}

/* A model, perhaps over ranks, and its optimizer. */
typedef struct trainer {
    reshard_module *model;
    reshard_optimizer *optimizer;
    reshard_hook *packed[2];
} trainer;

static reshard_status set_up(trainer *t, reshard_group *group, reshard_device_mesh *mesh)
{
    reshard_status status = RESHARD_OK;
    reshard_scope *scope = NULL;
    reshard_device_mesh_info info = {.size = sizeof info};
    if (mesh != NULL)
        TRY(reshard_device_mesh_get_info(mesh, &info));
    TRY(reshard_scope_open(NULL, &scope));
    t->model = make_model();
    TRY(close_scope(&scope, status));
    TRY(fill(t->model));
    for (int i = 0; group != NULL && i < 2; i++) {
        reshard_module *block = NULL;
        if (i == 0)
            TRY(spread(t->model, group, info.mesh));
        TRY(reshard_module_find(t->model, i == 0 ? "layers.0" : "layers.1", &block));
        TRY(reshard_module_input_reshard(block, mesh, 1, NULL, &t->packed[i]));
    }
    TRY(reshard_adamw_create(
        NULL, t->model,
        RESHARD_OPTIONS(reshard_adamw_options, .learning_rate = 1e-2, .weight_decay = 0.1),
        &t->optimizer));
out:
    status = close_scope(&scope, status);
    return status;
}

static void tear_down(trainer *t)
{
    for (int i = 0; i < 2; i++)
        reshard_hook_remove(t->packed[i]);
    reshard_optimizer_destroy(t->optimizer);
    reshard_module_release(t->model);
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The memory of a step with and without input_reshard and a cut vocabulary, on rank 0. */
static reshard_status measure(trainer *t, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    size_t peaks[2][2] = {{0, 0}, {0, 0}};
    double loss = 0;
    for (int off = 0; off < 2; off++) {
        for (int i = 0; off && i < 2; i++) {
            reshard_hook_remove(t->packed[i]);
            t->packed[i] = NULL;
        }
        for (int gathers = 0; gathers < 2; gathers++)
            TRY(take_step(t->model, t->optimizer, set.steps, gathers, &loss, &peaks[off][gathers]));
    }
    if (reshard_group_rank(group) == 0)
        printf("bytes of a step: %zu; with whole logits %zu; without input_reshard %zu; without "
               "both %zu\n",
               peaks[0][0], peaks[0][1], peaks[1][0], peaks[1][1]);
out:
    return status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    double seconds[2] = {0, 0}, furthest = 0;
    trainer trainers[2] = {{0}, {0}}; /* over ranks, and dense */
    reshard_device_mesh *mesh = NULL;
    char text[32];
    (void)user;
    (void)snprintf(text, sizeof text, "tp=%d", (int)reshard_group_size(group));
    TRY(reshard_device_mesh_parse(NULL, group, text, &mesh));
    TRY(set_up(&trainers[0], group, mesh));
    TRY(set_up(&trainers[1], NULL, NULL));
    for (int64_t step = 0; step < set.steps; step++) {
        double losses[2] = {0, 0};
        for (int i = 0; i < 2; i++) {
            size_t peak = 0;
            double start = now();
            TRY(take_step(trainers[i].model, trainers[i].optimizer, step, 0, &losses[i], &peak));
            seconds[i] += now() - start;
        }
        furthest = fmax(furthest, fabs(losses[0] - losses[1]));
        if (set.losses && reshard_group_rank(group) == 0)
            printf("loss %.17g\n", losses[0]);
    }
    TRY(check(furthest <= 1e-9, "training over ranks differs from that on one"));
    if (reshard_group_rank(group) == 0)
        printf("%d ranks, %lld steps: losses within %.1e of one rank's; seconds a step %.6f, on "
               "one rank (all ranks at once) %.6f\n",
               (int)set.ranks, (long long)set.steps, furthest, seconds[0] / (double)set.steps,
               seconds[1] / (double)set.steps);
    TRY(measure(&trainers[0], group));
out:
    for (int i = 0; i < 2; i++)
        tear_down(&trainers[i]);
    reshard_device_mesh_release(mesh);
    return status;
}

int main(int count, char **words)
{
    struct {
        const char *name;
        int64_t *value;
    } options[] = {{"--ranks", &set.ranks},           {"--steps", &set.steps},
                   {"--width", &set.width},           {"--heads", &set.heads},
                   {"--length", &set.length},         {"--batch", &set.batch},
                   {"--vocabulary", &set.vocabulary}, {"--losses", &set.losses}};
    for (int i = 1; i + 1 < count; i += 2) {
        for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
            if (strcmp(options[k].name, words[i]) == 0)
                *options[k].value = strtoll(words[i + 1], NULL, 10);
        }
    }
    return finish(reshard_group_run(NULL, (int32_t)set.ranks, run_rank, NULL));
}
