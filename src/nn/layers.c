/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c - the simple ready-made modules, each one operation with its parameters. */
#include "nn/layers.h"

#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "nn/follow.h"
#include "nn/module.h"
#include "tensor/bag/bag.h"
#include "tensor/core/random.h"
#include "tensor/core/scope.h"

#include <reshard/autograd.h>
#include <reshard/ops.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- shared ---------------------------------------------------------------------------------- */

typedef struct user_block {
    reshard_context *context;
    size_t bytes;
    union {
        double real;
        int64_t whole;
        void *pointer;
    } first; /* where the user's part begins, aligned for anything that modules keep */
} user_block;

void *rs_user_allocate(reshard_context *context, size_t bytes)
{
    user_block *block = rs_allocate_zeroed(context, sizeof *block + bytes);
    if (block == NULL)
        return NULL;
    block->context = context;
    block->bytes = sizeof *block + bytes;
    return &block->first;
}

void rs_user_free(void *user)
{
    if (user == NULL)
        return;
    user_block *block = (void *)((unsigned char *)user - offsetof(user_block, first));
    rs_release(block->context, block);
}

reshard_status rs_layer_options(const reshard_layer_options *given, reshard_layer_options *out)
{
    reshard_status status = rs_options_read("layer options", given, out, sizeof *out);
    if (status != RESHARD_OK)
        return status;
    if (out->dtype == RESHARD_DTYPE_NONE)
        out->dtype = RESHARD_F32;
    if (!rs_dtype_is_float(out->dtype))
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "parameters of %s: they are f16, bf16, f32 or f64",
                       reshard_dtype_name(out->dtype));
    if (!isfinite(out->deviation) || out->deviation < 0)
        return rs_fail(RESHARD_ERR_RANGE,
                       "a standard deviation of %g: it must be finite and not negative",
                       out->deviation);
    return RESHARD_OK;
}

reshard_layer_options rs_layer_part(const reshard_layer_options *options, uint64_t index)
{
    reshard_layer_options part = *options;
    part.seed = rs_random_bits(options->seed, index);
    return part;
}

reshard_status rs_adopt(reshard_module *parent, const char *name, reshard_status status,
                        reshard_module **child)
{
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s", name);
    status = reshard_module_add_child(parent, name, *child);
    reshard_module_release(*child);
    return status;
}

/* Fills with first + scale * (random numbers of this kind), or with `first` if the scale is 0. */
typedef struct filling {
    rs_random_kind kind;
    double first, scale;
} filling;

static reshard_status scale_by_element(reshard_tensor *tensor, const filling *f)
{
    int64_t index[RESHARD_NDIM_MAX] = {0};
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < tensor->volume && status == RESHARD_OK; i++) {
        double value = 0;
        status = reshard_tensor_get(tensor, index, &value);
        if (status == RESHARD_OK)
            status = reshard_tensor_set(tensor, index, f->first + f->scale * value);
        for (int32_t d = tensor->ndim - 1; d >= 0 && ++index[d] == tensor->shape[d]; d--)
            index[d] = 0;
    }
    return status;
}

static reshard_status fill(reshard_tensor *tensor, const filling *f, uint64_t seed)
{
    if (f->scale == 0)
        return reshard_tensor_fill(tensor, f->first);
    rs_random random = {f->kind, seed, 0};
    reshard_status status = rs_fill_random(tensor, &random);
    if (status != RESHARD_OK || rs_dtype_is_half(tensor->dtype))
        return status == RESHARD_OK ? scale_by_element(tensor, f) : status;
    float *narrow = (void *)tensor->data;
    double *wide = (void *)tensor->data;
    for (int64_t i = 0; i < tensor->volume; i++) {
        if (tensor->dtype == RESHARD_F32)
            narrow[i] = (float)(f->first + f->scale * narrow[i]);
        else
            wide[i] = f->first + f->scale * wide[i];
    }
    return RESHARD_OK;
}

static reshard_status add_weight(reshard_module *module, const char *name,
                                 const reshard_layer_options *options, int32_t ndim,
                                 const int64_t *shape, const filling *f)
{
    reshard_tensor *tensor = NULL;
    reshard_status status =
        reshard_tensor_create(module->context, options->dtype, ndim, shape, &tensor);
    if (status == RESHARD_OK)
        status = fill(tensor, f, options->seed);
    if (status == RESHARD_OK)
        status = reshard_tensor_set_requires_grad(tensor, 1);
    if (status == RESHARD_OK)
        status = reshard_module_add_parameter(module, name, tensor);
    reshard_tensor_release(tensor);
    return rs_fail_within(status, "%s", name);
}

reshard_status rs_module_finish(reshard_status status, reshard_module *module,
                                reshard_module **out_module)
{
    if (status == RESHARD_OK)
        *out_module = module;
    else
        reshard_module_release(module);
    return status;
}

/* ---- linear ---------------------------------------------------------------------------------- */

static reshard_value forward_linear(reshard_module *module, void *user, reshard_value input)
{
    (void)user;
    reshard_tensor *t[] = {reshard_value_tensor(input), reshard_module_tensor(module, "weight"),
                           reshard_module_tensor(module, "bias")};
    if (t[0] == NULL || !rs_follow_linear(t))
        return reshard_value_of(NULL);
    return reshard_value_of(reshard_linear(t[0], t[1], t[2]));
}

reshard_status reshard_linear_create(reshard_context *context, int64_t inputs, int64_t outputs,
                                     const reshard_layer_options *given,
                                     reshard_module **out_module)
{
    reshard_layer_options options;
    reshard_module *module = NULL;
    int64_t shape[] = {outputs, inputs};
    reshard_module_kind kind = {.name = "linear", .forward = forward_linear};
    reshard_status status = rs_layer_options(given, &options);
    if (status == RESHARD_OK)
        status = reshard_module_create(context, &kind, &module);
    double bound = inputs > 0 ? 1 / sqrt((double)inputs) : 0;
    filling uniform = {RS_RANDOM_UNIFORM, -bound, 2 * bound}, zero = {.first = 0};
    filling normal = {RS_RANDOM_NORMAL, 0, options.deviation};
    bool plain = options.deviation == 0;
    if (status == RESHARD_OK)
        status = add_weight(module, "weight", &options, 2, shape, plain ? &uniform : &normal);
    reshard_layer_options part = rs_layer_part(&options, 1);
    if (status == RESHARD_OK && options.no_bias)
        status = reshard_module_add_parameter(module, "bias", NULL);
    else if (status == RESHARD_OK)
        status = add_weight(module, "bias", &part, 1, shape, plain ? &uniform : &zero);
    return rs_module_finish(status, module, out_module);
}

/* ---- embedding ------------------------------------------------------------------------------- */

static reshard_value forward_embedding(reshard_module *module, void *user, reshard_value input)
{
    (void)user;
    reshard_tensor *t[] = {reshard_module_tensor(module, "weight"), reshard_value_tensor(input)};
    if (t[1] == NULL || !rs_follow_embedding(t))
        return reshard_value_of(NULL);
    return reshard_value_of(reshard_embedding(t[0], t[1]));
}

/* Makes a module of this kind with a weight [count, width]. Takes over the kind's user. */
static reshard_status create_embedding(reshard_context *context, const reshard_module_kind *kind,
                                       int64_t count, int64_t width,
                                       const reshard_layer_options *given,
                                       reshard_module **out_module)
{
    reshard_layer_options options;
    reshard_module *module = NULL;
    int64_t shape[] = {count, width};
    reshard_status status = rs_layer_options(given, &options);
    if (status == RESHARD_OK)
        status = reshard_module_create(context, kind, &module);
    if (module == NULL)
        rs_user_free(kind->user);
    filling normal = {RS_RANDOM_NORMAL, 0, options.deviation != 0 ? options.deviation : 1};
    if (status == RESHARD_OK)
        status = add_weight(module, "weight", &options, 2, shape, &normal);
    return rs_module_finish(status, module, out_module);
}

reshard_status reshard_embedding_create(reshard_context *context, int64_t count, int64_t width,
                                        const reshard_layer_options *options,
                                        reshard_module **out_module)
{
    reshard_module_kind kind = {.name = "embedding", .forward = forward_embedding};
    return create_embedding(context, &kind, count, width, options, out_module);
}

/* An item of a list of inputs: a tensor, or nothing. Returns false on failure, which is noted. */
static bool take_item(reshard_value list, int32_t index, reshard_tensor **out_tensor)
{
    if (list.kind != RESHARD_VALUE_LIST || index >= list.count ||
        list.items[index].kind == RESHARD_VALUE_NOTHING)
        return true;
    *out_tensor = reshard_value_tensor(list.items[index]);
    return *out_tensor != NULL;
}

static reshard_value forward_bag(reshard_module *module, void *user, reshard_value input)
{
    reshard_embedding_bag_options o;
    reshard_tensor *weight = reshard_module_tensor(module, "weight"), *offsets = NULL;
    rs_bag bag;
    if (weight == NULL || weight->ndim != 2)
        return reshard_value_of(rs_scope_fail(
            rs_fail(RESHARD_ERR_INVALID, "embedding_bag: the weight is not a matrix")));
    reshard_status status = rs_bag_read(user, weight->shape[0], &o, &bag);
    if (status != RESHARD_OK)
        return reshard_value_of(rs_scope_fail(rs_fail_within(status, "embedding_bag")));
    bool list = input.kind == RESHARD_VALUE_LIST;
    reshard_tensor **t = bag.tensors;
    t[RS_BAG_WEIGHT] = weight;
    t[RS_BAG_INDICES] = reshard_value_tensor(list ? reshard_value_item(input, 0) : input);
    if (t[RS_BAG_INDICES] == NULL || !take_item(input, 1, &offsets) ||
        !take_item(input, 2, &t[RS_BAG_SAMPLES]))
        return reshard_value_of(NULL);
    if (offsets != NULL &&
        (t[RS_BAG_SIZES] = rs_bag_sizes(t[RS_BAG_INDICES], offsets, o.last_offset != 0)) == NULL)
        return reshard_value_of(NULL);
    return reshard_value_of(rs_follow_bag(t) ? rs_bag_run(&bag) : NULL);
}

reshard_status reshard_embedding_bag_create(reshard_context *context, int64_t count, int64_t width,
                                            const reshard_embedding_bag_options *how,
                                            const reshard_layer_options *options,
                                            reshard_module **out_module)
{
    reshard_embedding_bag_options read;
    rs_bag bag;
    reshard_status status = rs_bag_read(how, count, &read, &bag);
    if (status == RESHARD_OK && (read.offsets != NULL || read.sample_weights != NULL))
        status = rs_fail(RESHARD_ERR_INVALID,
                         "offsets and sample weights are inputs of the module, not options");
    reshard_embedding_bag_options *user = NULL;
    if (status == RESHARD_OK && (user = rs_user_allocate(context, sizeof *user)) == NULL)
        status = rs_allocation_status();
    if (status != RESHARD_OK)
        return status;
    *user = read;
    user->size = sizeof *user;
    reshard_module_kind kind = {
        .name = "embedding_bag", .forward = forward_bag, .user = user, .forget = rs_user_free};
    return create_embedding(context, &kind, count, width, options, out_module);
}

/* ---- norms ----------------------------------------------------------------------------------- */

typedef struct norm {
    double epsilon;
} norm;

static reshard_value forward_layernorm(reshard_module *module, void *user, reshard_value input)
{
    const norm *n = user;
    reshard_tensor *t[] = {reshard_value_tensor(input), reshard_module_tensor(module, "weight"),
                           reshard_module_tensor(module, "bias")};
    if (t[0] == NULL || !rs_follow_norm(t))
        return reshard_value_of(NULL);
    return reshard_value_of(reshard_layernorm(t[0], t[1], t[2], n->epsilon));
}

static reshard_value forward_rmsnorm(reshard_module *module, void *user, reshard_value input)
{
    const norm *n = user;
    reshard_tensor *t[] = {reshard_value_tensor(input), reshard_module_tensor(module, "weight"),
                           NULL};
    if (t[0] == NULL || !rs_follow_norm(t))
        return reshard_value_of(NULL);
    return reshard_value_of(reshard_rmsnorm(t[0], t[1], n->epsilon));
}

/* has_bias: whether this kind of norm can have one. */
static reshard_status create_norm(reshard_context *context, reshard_module_kind kind, bool has_bias,
                                  int64_t width, double epsilon, const reshard_layer_options *given,
                                  reshard_module **out_module)
{
    reshard_layer_options options;
    reshard_module *module = NULL;
    filling one = {.first = 1}, zero = {.first = 0};
    norm *n = NULL;
    reshard_status status = rs_layer_options(given, &options);
    if (status == RESHARD_OK && (n = rs_user_allocate(context, sizeof *n)) == NULL)
        status = rs_allocation_status();
    if (status != RESHARD_OK)
        return status;
    n->epsilon = epsilon;
    kind.user = n;
    kind.forget = rs_user_free;
    status = reshard_module_create(context, &kind, &module);
    if (status != RESHARD_OK) {
        rs_user_free(n);
        return status;
    }
    status = add_weight(module, "weight", &options, 1, &width, &one);
    if (status == RESHARD_OK && has_bias && options.no_bias)
        status = reshard_module_add_parameter(module, "bias", NULL);
    else if (status == RESHARD_OK && has_bias)
        status = add_weight(module, "bias", &options, 1, &width, &zero);
    return rs_module_finish(status, module, out_module);
}

reshard_status reshard_layernorm_create(reshard_context *context, int64_t width, double epsilon,
                                        const reshard_layer_options *options,
                                        reshard_module **out_module)
{
    reshard_module_kind kind = {.name = "layernorm", .forward = forward_layernorm};
    return create_norm(context, kind, true, width, epsilon, options, out_module);
}

reshard_status reshard_rmsnorm_create(reshard_context *context, int64_t width, double epsilon,
                                      const reshard_layer_options *options,
                                      reshard_module **out_module)
{
    reshard_module_kind kind = {.name = "rmsnorm", .forward = forward_rmsnorm};
    return create_norm(context, kind, false, width, epsilon, options, out_module);
}

bool rs_layer_is_joint(const reshard_module *module)
{
    return module->kind.forward == forward_linear || module->kind.forward == forward_layernorm;
}

/* ---- activations ----------------------------------------------------------------------------- */

typedef struct activation {
    reshard_tensor *(*run)(reshard_tensor *x);
} activation;

static reshard_value forward_activation(reshard_module *module, void *user, reshard_value input)
{
    (void)module;
    const activation *a = user;
    reshard_tensor *x = reshard_value_tensor(input);
    return reshard_value_of(x != NULL && rs_follow_activation(&x) ? a->run(x) : NULL);
}

reshard_status reshard_activation_create(reshard_context *context, reshard_activation which,
                                         reshard_module **out_module)
{
    static const char *const names[] = {"relu", "gelu", "silu"};
    static const activation rows[] = {{reshard_relu}, {reshard_gelu}, {reshard_silu}};
    if ((int)which < 0 || (size_t)which >= sizeof names / sizeof *names)
        return rs_fail(RESHARD_ERR_INVALID, "%d is not an activation", (int)which);
    reshard_module_kind kind = {
        .name = names[which], .forward = forward_activation, .user = (void *)&rows[which]};
    return reshard_module_create(context, &kind, out_module);
}

/* ---- sequential ------------------------------------------------------------------------------ */

static reshard_value forward_sequential(reshard_module *module, void *user, reshard_value input)
{
    (void)user;
    reshard_value value = input;
    reshard_module *child = NULL;
    for (int32_t i = 0; (child = reshard_module_child(module, i, NULL)) != NULL; i++)
        value = reshard_module_call(child, value);
    return value;
}

reshard_status reshard_sequential_create(reshard_context *context, int32_t count,
                                         reshard_module *const *children,
                                         reshard_module **out_module)
{
    reshard_module *module = NULL;
    reshard_module_kind kind = {.name = "sequential", .forward = forward_sequential};
    reshard_status status = reshard_module_create(context, &kind, &module);
    for (int32_t i = 0; i < count && status == RESHARD_OK; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "%d", i);
        status = reshard_module_add_child(module, name, children[i]);
    }
    return rs_module_finish(status, module, out_module);
}
