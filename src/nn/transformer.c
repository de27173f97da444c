/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transformer.c - the ready-made modules of a GPT: MLP, causal self-attention, block, and the whole
 * model.
 *
 * Attention on distributed tensors is a local operation on every shard: q, k and v have the same
 * layout, and each shard has all positions of some heads of some sequences (follow.h).
 */
#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "nn/follow.h"
#include "nn/layers.h"
#include "nn/module.h"
#include "tensor/core/dense.h"
#include "tensor/core/scope.h"
#include "tensor/dist/spread.h"

#include <reshard/ops.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static reshard_module *child(const reshard_module *module, const char *name)
{
    reshard_module *found = NULL;
    (void)reshard_module_find((reshard_module *)module, name, &found);
    return found;
}

/* Calls a child, looked up by name because it may have been replaced. */
static reshard_tensor *through(const reshard_module *module, const char *name, reshard_tensor *x)
{
    return reshard_module_forward(child(module, name), x);
}

static reshard_tensor *add(reshard_tensor *a, reshard_tensor *b)
{
    reshard_tensor *t[] = {a, b};
    if (a == NULL || b == NULL || !rs_follow_add(t))
        return NULL;
    return reshard_add(t[0], t[1]);
}

/* ---- MLP ------------------------------------------------------------------------------------- */

static reshard_value forward_mlp(reshard_module *module, void *user, reshard_value input)
{
    (void)user;
    reshard_tensor *x = through(module, "fc1", reshard_value_tensor(input));
    return reshard_value_of(through(module, "fc2", through(module, "activation", x)));
}

/* `deviation` is for the weights of the second layer, whose deviation is smaller in deep models. */
static reshard_status create_mlp(reshard_context *context, int64_t width, int64_t hidden,
                                 reshard_activation activation,
                                 const reshard_layer_options *options, double deviation,
                                 reshard_module **out_module)
{
    reshard_module *module = NULL, *part = NULL;
    reshard_layer_options first = rs_layer_part(options, 1), second = rs_layer_part(options, 2);
    reshard_module_kind kind = {.name = "mlp", .forward = forward_mlp};
    second.deviation = deviation;
    reshard_status status = reshard_module_create(context, &kind, &module);
    if (status == RESHARD_OK)
        status = rs_adopt(module, "fc1",
                          reshard_linear_create(context, width, hidden, &first, &part), &part);
    if (status == RESHARD_OK)
        status = rs_adopt(module, "activation",
                          reshard_activation_create(context, activation, &part), &part);
    if (status == RESHARD_OK)
        status = rs_adopt(module, "fc2",
                          reshard_linear_create(context, hidden, width, &second, &part), &part);
    return rs_module_finish(status, module, out_module);
}

reshard_status reshard_mlp_create(reshard_context *context, int64_t width, int64_t hidden,
                                  reshard_activation activation, const reshard_layer_options *given,
                                  reshard_module **out_module)
{
    reshard_layer_options options;
    reshard_status status = rs_layer_options(given, &options);
    if (status != RESHARD_OK)
        return status;
    return create_mlp(context, width, hidden, activation, &options, options.deviation, out_module);
}

/* ---- attention ------------------------------------------------------------------------------- */

typedef struct attention {
    int64_t head; /* the number of elements in one */
} attention;

static reshard_tensor *part_heads(reshard_tensor *x, int64_t head)
{
    if (x == NULL)
        return NULL;
    int64_t shape[] = {x->shape[0], x->shape[1], x->shape[2] / head, head};
    return reshard_tensor_transpose(reshard_tensor_reshape(x, 4, shape), 1, 2);
}

/* Attention on q, k and v of [batch, length, some heads]. */
static reshard_tensor *attend(reshard_tensor *const *inputs, const void *user)
{
    int64_t head = ((const attention *)user)->head;
    reshard_tensor *y = reshard_causal_attention(
        part_heads(inputs[0], head), part_heads(inputs[1], head), part_heads(inputs[2], head), 0);
    if (y == NULL)
        return NULL;
    return reshard_tensor_reshape(reshard_tensor_transpose(y, 1, 2), 3, inputs[0]->shape);
}

static reshard_value forward_attention(reshard_module *module, void *user, reshard_value input)
{
    const attention *a = user;
    reshard_tensor *x = reshard_value_tensor(input), *y = NULL;
    reshard_tensor *t[3];
    t[0] = through(module, "q", x); /* the same order on all ranks, because hooks may communicate */
    t[1] = through(module, "k", x);
    t[2] = through(module, "v", x);
    if (t[0] == NULL || t[1] == NULL || t[2] == NULL)
        return reshard_value_of(NULL);
    if (t[0]->ndim != 3)
        return reshard_value_of(rs_scope_fail(
            rs_fail(RESHARD_ERR_INVALID, "attention: x is %s, not [batch, length, width]",
                    rs_tensor_describe(x).text)));
    if (!rs_follow_attention(t, a->head))
        return reshard_value_of(NULL);
    if (t[0]->distribution != NULL)
        y = rs_spread_alike("attention", RS_SPREAD_ANY, 3, t, attend, a, sizeof *a);
    else
        y = attend(t, a);
    return reshard_value_of(through(module, "o", y));
}

reshard_status rs_attention_head(const reshard_module *module, int64_t *out_head)
{
    if (module->kind.forward != forward_attention)
        return rs_fail(RESHARD_ERR_INVALID,
                       "a module of kind %s is not an attention of this library",
                       module->kind_name);
    *out_head = ((const attention *)module->kind.user)->head;
    return RESHARD_OK;
}

static reshard_status create_attention(reshard_context *context, int64_t width, int64_t heads,
                                       const reshard_layer_options *options, double deviation,
                                       reshard_module **out_module)
{
    static const char *const names[] = {"q", "k", "v", "o"};
    reshard_module *module = NULL, *part = NULL;
    if (heads < 1 || width < 1 || width % heads != 0)
        return rs_fail(RESHARD_ERR_INVALID,
                       "attention: a width of %" PRId64 " cannot be parted into %" PRId64 " heads",
                       width, heads);
    attention *a = rs_user_allocate(context, sizeof *a);
    if (a == NULL)
        return rs_allocation_status();
    a->head = width / heads;
    reshard_module_kind kind = {
        .name = "attention", .forward = forward_attention, .user = a, .forget = rs_user_free};
    reshard_status status = reshard_module_create(context, &kind, &module);
    if (status != RESHARD_OK) {
        rs_user_free(a);
        return status;
    }
    for (uint64_t i = 0; i < 4 && status == RESHARD_OK; i++) {
        reshard_layer_options own = rs_layer_part(options, i + 1);
        own.deviation = i == 3 ? deviation : options->deviation;
        status = rs_adopt(module, names[i],
                          reshard_linear_create(context, width, width, &own, &part), &part);
    }
    return rs_module_finish(status, module, out_module);
}

reshard_status reshard_attention_create(reshard_context *context, int64_t width, int64_t heads,
                                        const reshard_layer_options *given,
                                        reshard_module **out_module)
{
    reshard_layer_options options;
    reshard_status status = rs_layer_options(given, &options);
    if (status != RESHARD_OK)
        return status;
    return create_attention(context, width, heads, &options, options.deviation, out_module);
}

/* ---- block ----------------------------------------------------------------------------------- */

static reshard_value forward_block(reshard_module *module, void *user, reshard_value input)
{
    (void)user;
    reshard_tensor *x = reshard_value_tensor(input);
    x = add(x, through(module, "attn", through(module, "ln1", x)));
    return reshard_value_of(add(x, through(module, "mlp", through(module, "ln2", x))));
}

static reshard_status create_block(reshard_context *context, int64_t width, int64_t heads,
                                   const reshard_layer_options *options, double deviation,
                                   reshard_module **out_module)
{
    reshard_module *module = NULL, *part = NULL;
    reshard_layer_options first = rs_layer_part(options, 1), second = rs_layer_part(options, 2);
    reshard_module_kind kind = {.name = "block", .forward = forward_block};
    reshard_status status = reshard_module_create(context, &kind, &module);
    if (status == RESHARD_OK)
        status = rs_adopt(module, "ln1",
                          reshard_layernorm_create(context, width, 1e-5, options, &part), &part);
    if (status == RESHARD_OK)
        status = rs_adopt(module, "attn",
                          create_attention(context, width, heads, &first, deviation, &part), &part);
    if (status == RESHARD_OK)
        status = rs_adopt(module, "ln2",
                          reshard_layernorm_create(context, width, 1e-5, options, &part), &part);
    if (status == RESHARD_OK)
        status = rs_adopt(module, "mlp",
                          create_mlp(context, width, 4 * width, RESHARD_ACTIVATION_GELU, &second,
                                     deviation, &part),
                          &part);
    return rs_module_finish(status, module, out_module);
}

reshard_status reshard_block_create(reshard_context *context, int64_t width, int64_t heads,
                                    const reshard_layer_options *given, reshard_module **out_module)
{
    reshard_layer_options options;
    reshard_status status = rs_layer_options(given, &options);
    if (status == RESHARD_OK && (width < 1 || width > INT64_MAX / 4))
        status = rs_fail(RESHARD_ERR_RANGE, "block: a width of %" PRId64, width);
    if (status != RESHARD_OK)
        return status;
    return create_block(context, width, heads, &options, options.deviation, out_module);
}

/* ---- GPT ------------------------------------------------------------------------------------- */

typedef struct gpt {
    int64_t length;
    int64_t layers;
} gpt;

/* Makes the positions 0, 1, 2, .. of every sequence, in the shape of the tokens so that layouts
 * fit. */
static reshard_tensor *make_positions(const reshard_tensor *tokens, int64_t length)
{
    reshard_tensor *made = NULL;
    reshard_status status = RESHARD_OK;
    if (tokens->ndim != 2 || tokens->shape[1] > length)
        status = rs_fail(RESHARD_ERR_INVALID,
                         "gpt: tokens of %s, not [batch, up to %" PRId64 " positions]",
                         rs_tensor_describe(tokens).text, length);
    if (status == RESHARD_OK)
        status = rs_result(RESHARD_I64, 2, tokens->shape, &made);
    if (status != RESHARD_OK)
        return rs_scope_fail(status);
    int64_t *values = (void *)made->data;
    for (int64_t i = 0; i < made->volume; i++)
        values[i] = i % tokens->shape[1];
    made->sameness = tokens->sameness; /* as many rows, on each rank its own */
    made->kin = tokens->kin;
    return rs_scope_own(made);
}

static reshard_value forward_gpt(reshard_module *module, void *user, reshard_value input)
{
    const gpt *g = user;
    reshard_tensor *tokens = reshard_value_tensor(input);
    reshard_tensor *positions = tokens != NULL ? make_positions(tokens, g->length) : NULL;
    if (positions == NULL)
        return reshard_value_of(NULL);
    reshard_tensor *x = through(module, "wte", tokens);
    x = add(x, through(module, "wpe", positions));
    for (int64_t i = 0; i < g->layers && x != NULL; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "h.%" PRId64, i);
        x = through(module, name, x);
    }
    return reshard_value_of(through(module, "head", through(module, "ln", x)));
}

static reshard_status read_gpt(const reshard_gpt_options *options, reshard_gpt_options *o,
                               reshard_layer_options *layer)
{
    reshard_status status = rs_options_read("gpt options", options, o, sizeof *o);
    if (status != RESHARD_OK)
        return status;
    if (o->vocabulary < 1 || o->length < 1 || o->width < 1 || o->width > INT64_MAX / 4 ||
        o->layers < 0 || o->layers > 1000000)
        return rs_fail(RESHARD_ERR_RANGE,
                       "gpt: %" PRId64 " tokens, length %" PRId64 ", width %" PRId64 ", %" PRId64
                       " layers",
                       o->vocabulary, o->length, o->width, o->layers);
    reshard_layer_options given = {
        .size = sizeof given, .dtype = o->dtype, .seed = o->seed, .deviation = 0.02};
    return rs_layer_options(&given, layer);
}

static reshard_status add_blocks(reshard_module *module, const reshard_gpt_options *o,
                                 const reshard_layer_options *layer)
{
    reshard_module *blocks = NULL, *part = NULL;
    /* The layers that add to the residual stream start with smaller weights in deeper models. */
    double deviation = layer->deviation / sqrt(2 * (double)(o->layers > 0 ? o->layers : 1));
    reshard_status status = reshard_sequential_create(module->context, 0, NULL, &blocks);
    for (int64_t i = 0; i < o->layers && status == RESHARD_OK; i++) {
        char name[24];
        (void)snprintf(name, sizeof name, "%" PRId64, i);
        reshard_layer_options own = rs_layer_part(layer, 16 + (uint64_t)i);
        status = rs_adopt(blocks, name,
                          create_block(module->context, o->width, o->heads, &own, deviation, &part),
                          &part);
    }
    if (status == RESHARD_OK)
        status = reshard_module_add_child(module, "h", blocks);
    reshard_module_release(blocks);
    return status;
}

static reshard_status add_head(reshard_module *module, const reshard_gpt_options *o,
                               const reshard_layer_options *layer)
{
    reshard_module *head = NULL;
    reshard_tensor *weight = NULL;
    reshard_layer_options own = rs_layer_part(layer, 3);
    own.no_bias = 1;
    reshard_status status =
        reshard_linear_create(module->context, o->width, o->vocabulary, &own, &head);
    if (status == RESHARD_OK && !o->untied) {
        status = rs_module_find_parameter(module, "wte.weight", &weight);
        if (status == RESHARD_OK)
            status = reshard_module_replace_parameter(head, "weight", weight);
    }
    if (status == RESHARD_OK)
        status = reshard_module_add_child(module, "head", head);
    reshard_module_release(head);
    return status;
}

static reshard_status add_parts(reshard_module *module, const reshard_gpt_options *o,
                                const reshard_layer_options *layer)
{
    reshard_module *part = NULL;
    reshard_context *context = module->context;
    reshard_layer_options first = rs_layer_part(layer, 1), second = rs_layer_part(layer, 2);
    reshard_status status =
        rs_adopt(module, "wte",
                 reshard_embedding_create(context, o->vocabulary, o->width, &first, &part), &part);
    if (status == RESHARD_OK)
        status =
            rs_adopt(module, "wpe",
                     reshard_embedding_create(context, o->length, o->width, &second, &part), &part);
    if (status == RESHARD_OK)
        status = add_blocks(module, o, layer);
    if (status == RESHARD_OK)
        status = rs_adopt(module, "ln",
                          reshard_layernorm_create(context, o->width, 1e-5, layer, &part), &part);
    if (status == RESHARD_OK)
        status = add_head(module, o, layer);
    return status;
}

reshard_status reshard_gpt_create(reshard_context *context, const reshard_gpt_options *options,
                                  reshard_module **out_module)
{
    reshard_layer_options layer;
    reshard_gpt_options read;
    reshard_module *module = NULL;
    reshard_status status = read_gpt(options, &read, &layer);
    if (status != RESHARD_OK)
        return status;
    gpt *g = rs_user_allocate(context, sizeof *g);
    if (g == NULL)
        return rs_allocation_status();
    *g = (gpt){read.length, read.layers};
    reshard_module_kind kind = {
        .name = "gpt", .forward = forward_gpt, .user = g, .forget = rs_user_free};
    status = reshard_module_create(context, &kind, &module);
    if (status != RESHARD_OK) {
        rs_user_free(g);
        return status;
    }
    return rs_module_finish(add_parts(module, &read, &layer), module, out_module);
}
