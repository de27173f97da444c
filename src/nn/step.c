/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.c - steps of SGD and AdamW on this rank's shards. The arithmetic is PyTorch's, in PyTorch's
 * order, so that results can be compared.
 */
#ifndef REAL
#include "base/error.h"
#include "nn/optimizer.h"
#include "tensor/core/tensor.h"

#include <assert.h>
#include <inttypes.h>
#include <tgmath.h>

/* Numbers that are the same for all elements. */
typedef struct factors {
    double keep; /* the factor by which decoupled weight decay shrinks values */
    double rate; /* the learning rate, divided by the bias correction of the first average */
    double root; /* the square root of the bias correction of the second average */
} factors;

#define RS_REAL_FILE "nn/step.c"
#include "tensor/core/real.h"

static int64_t count_of(const rs_moments *m)
{
    return *(const int64_t *)reshard_tensor_data(m->steps);
}

/* Computes them for a step that has already been counted. */
static factors make_factors(const rs_step_settings *set, const rs_moments *m)
{
    double count = set->adamw ? (double)count_of(m) : 1;
    return (factors){.keep = 1 - set->rate * set->decay,
                     .rate = set->rate / (1 - pow(set->beta1, count)),
                     .root = sqrt(1 - pow(set->beta2, count))};
}

static void *data_of(reshard_tensor *tensor)
{
    return tensor != NULL ? reshard_tensor_write(tensor) : NULL;
}

static void step_slot(const rs_step_settings *set, const factors *f, const rs_step_slot *s,
                      const reshard_tensor *gradient)
{
    assert(gradient->dtype == s->shard->dtype && gradient->volume == s->shard->volume);
    assert(!set->adamw || (s->first != NULL && s->second != NULL));
    int64_t n = s->shard->volume;
    void *value = data_of(s->shard), *first = data_of(s->first), *second = data_of(s->second);
    const void *g = (const void *)gradient->data;
    if (set->adamw)
        RS_CALL(s->shard->dtype, step_adamw, set, f, n, value, g, first, second);
    else
        RS_CALL(s->shard->dtype, step_sgd, set, n, value, g, first);
}

/* The counts may come from a file, so they are checked before anything changes. */
static reshard_status check_counts(const reshard_optimizer *o)
{
    for (int64_t i = 0; o->set.adamw && i < o->moments_count; i++) {
        int64_t steps = count_of(&o->moments[i]);
        if (steps < 0 || steps == INT64_MAX)
            return rs_fail(RESHARD_ERR_INVALID, "optimizer: \"%s\" has %" PRId64 " steps behind it",
                           o->moments[i].name, steps);
    }
    return RESHARD_OK;
}

static void count_step(const reshard_optimizer *o)
{
    for (int64_t i = 0; o->set.adamw && i < o->moments_count; i++) {
        if (o->moments[i].parameter->gradient != NULL)
            ++*(int64_t *)reshard_tensor_write(o->moments[i].steps);
    }
}

reshard_status reshard_optimizer_step(reshard_optimizer *o)
{
    reshard_status status = rs_fail_within(rs_step_settings_check(&o->set), "optimizer");
    if (status == RESHARD_OK)
        status = check_counts(o);
    if (status == RESHARD_OK)
        count_step(o);
    for (int64_t i = 0; i < o->count && status == RESHARD_OK; i++) {
        reshard_tensor *gradient = NULL;
        status = rs_slot_gradient(o, &o->slots[i], &gradient);
        if (status == RESHARD_OK && gradient != NULL) {
            factors f = make_factors(&o->set, o->slots[i].moments);
            step_slot(&o->set, &f, &o->slots[i], gradient);
        }
        reshard_tensor_release(gradient);
    }
    return status;
}

#else

static void OF(step_sgd)(const rs_step_settings *set, int64_t n, REAL *restrict value,
                         const REAL *restrict gradient, REAL *restrict first)
{
    const REAL rate = (REAL)set->rate, momentum = (REAL)set->momentum, decay = (REAL)set->decay;
    for (int64_t i = 0; i < n; i++) {
        REAL g = gradient[i] + decay * value[i];
        if (first != NULL) {
            first[i] = momentum * first[i] + g;
            g = set->nesterov ? g + momentum * first[i] : first[i];
        }
        value[i] -= rate * g;
    }
}

static void OF(step_adamw)(const rs_step_settings *set, const factors *f, int64_t n,
                           REAL *restrict value, const REAL *restrict gradient,
                           REAL *restrict first, REAL *restrict second)
{
    const REAL beta1 = (REAL)set->beta1, beta2 = (REAL)set->beta2;
    const REAL keep = (REAL)f->keep, rate = (REAL)f->rate, root = (REAL)f->root;
    const REAL rest1 = (REAL)(1 - set->beta1), rest2 = (REAL)(1 - set->beta2);
    const REAL epsilon = (REAL)set->epsilon;
    for (int64_t i = 0; i < n; i++) {
        REAL g = gradient[i];
        first[i] = beta1 * first[i] + rest1 * g;
        second[i] = beta2 * second[i] + rest2 * g * g;
        value[i] = keep * value[i] - rate * first[i] / (sqrt(second[i]) / root + epsilon);
    }
}

#endif
