/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer.c - makes optimizers. Their state has the layout of the parameters. Every shard on this
 * rank has a slot, and a local parameter is its own only shard.
 */
#include "nn/optimizer.h"

#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "tensor/core/distribution.h"

#include <reshard/autograd.h>

#include <assert.h>
#include <inttypes.h>
#include <math.h>

/* ---- creating -------------------------------------------------------------------------------- */

void reshard_optimizer_destroy(reshard_optimizer *optimizer)
{
    if (optimizer == NULL)
        return;
    for (int64_t i = 0; i < optimizer->moments_count; i++) {
        reshard_tensor_release(optimizer->moments[i].steps);
        reshard_tensor_release(optimizer->moments[i].first);
        reshard_tensor_release(optimizer->moments[i].second);
    }
    rs_release(optimizer->context, optimizer->moments);
    rs_release(optimizer->context, optimizer->slots);
    reshard_named_tensors_destroy(optimizer->parameters);
    rs_release(optimizer->context, optimizer);
}

/* Makes zeros in the layout of the parameter. */
static reshard_status make_average(const reshard_optimizer *o, const reshard_tensor *parameter,
                                   reshard_tensor **out_average)
{
    const rs_distribution *d = parameter->distribution;
    if (d == NULL)
        return reshard_tensor_create(o->context, parameter->dtype, parameter->ndim,
                                     parameter->shape, out_average);
    reshard_status status =
        rs_distributed_make(o->context, d->cache, d->layout, parameter->dtype, out_average);
    return status == RESHARD_OK ? reshard_tensor_fill(*out_average, 0) : status;
}

static reshard_status add_parameter(reshard_optimizer *o, const reshard_named_tensor *item)
{
    reshard_tensor *parameter = item->tensor;
    if (!parameter->requires_grad)
        return RESHARD_OK;
    if (parameter->dtype != RESHARD_F32 && parameter->dtype != RESHARD_F64)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "\"%s\" is %s; optimizers step f32 and f64 only",
                       item->name, rs_tensor_describe(parameter).text);
    reshard_status status = rs_grow(o->context, &o->moments, &o->moments_capacity,
                                    o->moments_count + 1, sizeof *o->moments);
    if (status != RESHARD_OK)
        return status;
    rs_moments *m = &o->moments[o->moments_count++];
    *m = (rs_moments){.name = item->name, .parameter = parameter};
    if (o->set.adamw)
        status = reshard_tensor_create(o->context, RESHARD_I64, 0, NULL, &m->steps);
    if (status == RESHARD_OK && (o->set.adamw || o->set.momentum != 0))
        status = make_average(o, parameter, &m->first);
    if (status == RESHARD_OK && o->set.adamw)
        status = make_average(o, parameter, &m->second);
    return status;
}

static reshard_tensor *shard_of(reshard_tensor *tensor, int64_t index)
{
    return tensor != NULL && tensor->distribution != NULL ? tensor->distribution->shards[index]
                                                          : tensor;
}

static reshard_status add_slots(reshard_optimizer *o, const rs_moments *m)
{
    assert(m->parameter != NULL);
    const rs_distribution *d = m->parameter->distribution;
    int64_t count = d != NULL ? d->shard_count : 1;
    reshard_status status =
        rs_grow(o->context, &o->slots, &o->capacity, o->count + count, sizeof *o->slots);
    for (int64_t i = 0; i < count && status == RESHARD_OK; i++)
        o->slots[o->count++] = (rs_step_slot){m, i, shard_of(m->parameter, i),
                                              shard_of(m->first, i), shard_of(m->second, i)};
    return status;
}

/* Reads options that may be older or newer than the library. The learning rate has no default, so
 * they must not be NULL. */
static reshard_status read_options(const char *what, const void *given, void *out, size_t bytes)
{
    if (given == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "%s: they are NULL, and so have no learning_rate",
                       what);
    return rs_options_read(what, given, out, bytes);
}

reshard_status rs_step_settings_check(const rs_step_settings *set)
{
    const struct {
        const char *name;
        double value, limit;
    } rows[] = {
        {"learning_rate", set->rate, HUGE_VAL},
        {"momentum", set->momentum, HUGE_VAL},
        {"weight_decay", set->decay, HUGE_VAL},
        {"epsilon", set->epsilon, HUGE_VAL},
        {"beta1", set->beta1, 1},
        {"beta2", set->beta2, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!(rows[i].value >= 0 && rows[i].value < rows[i].limit))
            return rs_fail(RESHARD_ERR_INVALID, "%s is %g, and not in 0 <= %s < %g", rows[i].name,
                           rows[i].value, rows[i].name, rows[i].limit);
    }
    if (set->nesterov && set->momentum == 0)
        return rs_fail(RESHARD_ERR_INVALID, "nesterov without momentum");
    return RESHARD_OK;
}

static reshard_status create(reshard_context *context, reshard_module *module,
                             const rs_step_settings *set, reshard_optimizer **out_optimizer)
{
    reshard_optimizer *o = rs_allocate_zeroed(context, sizeof *o);
    if (o == NULL)
        return rs_allocation_status();
    o->context = context;
    o->set = *set;
    reshard_status status = rs_step_settings_check(set);
    if (status == RESHARD_OK)
        status = reshard_module_parameters(module, &o->parameters);
    for (int64_t i = 0; status == RESHARD_OK && i < o->parameters->count; i++)
        status = add_parameter(o, &o->parameters->items[i]);
    for (int64_t i = 0; status == RESHARD_OK && i < o->moments_count; i++)
        status = add_slots(o, &o->moments[i]);
    if (status == RESHARD_OK && o->moments_count == 0)
        status = rs_fail(RESHARD_ERR_NOT_FOUND, "no parameter requires gradients");
    if (status == RESHARD_OK)
        *out_optimizer = o;
    else
        reshard_optimizer_destroy(o);
    return rs_fail_within(status, "optimizer");
}

reshard_status reshard_sgd_create(reshard_context *context, reshard_module *module,
                                  const reshard_sgd_options *options,
                                  reshard_optimizer **out_optimizer)
{
    reshard_sgd_options o;
    reshard_status status = read_options("sgd options", options, &o, sizeof o);
    if (status != RESHARD_OK)
        return status;
    rs_step_settings set = {.rate = o.learning_rate,
                            .momentum = o.momentum,
                            .decay = o.weight_decay,
                            .nesterov = o.nesterov != 0};
    return create(context, module, &set, out_optimizer);
}

reshard_status reshard_adamw_create(reshard_context *context, reshard_module *module,
                                    const reshard_adamw_options *options,
                                    reshard_optimizer **out_optimizer)
{
    reshard_adamw_options o;
    reshard_status status = read_options("adamw options", options, &o, sizeof o);
    if (status != RESHARD_OK)
        return status;
    bool plain = o.beta1 == 0 && o.beta2 == 0;
    rs_step_settings set = {.adamw = true,
                            .rate = o.learning_rate,
                            .decay = o.weight_decay,
                            .beta1 = plain ? 0.9 : o.beta1,
                            .beta2 = plain ? 0.999 : o.beta2,
                            .epsilon = o.epsilon == 0 ? 1e-8 : o.epsilon};
    return create(context, module, &set, out_optimizer);
}

reshard_status rs_slot_gradient(const reshard_optimizer *o, const rs_step_slot *s,
                                reshard_tensor **out_gradient)
{
    reshard_tensor *gradient = shard_of(s->moments->parameter->gradient, s->shard_index);
    *out_gradient = NULL;
    return gradient != NULL ? rs_tensor_densify(o->context, gradient, out_gradient) : RESHARD_OK;
}

void reshard_optimizer_clear_gradients(reshard_optimizer *o)
{
    for (int64_t i = 0; o != NULL && i < o->parameters->count; i++)
        reshard_tensor_clear_gradient(o->parameters->items[i].tensor);
}

void reshard_optimizer_set_learning_rate(reshard_optimizer *o, double rate)
{
    if (o != NULL)
        o->set.rate = rate;
}
