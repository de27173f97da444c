/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch.c - training with weights that are cut over ranks, and whole only while they are
 * used, as in FSDP. Each layer's weight is on its way while the layer before it computes
 * (reshard_tensor_redistribute_start). Its gradient goes back in the same way, summed and cut on
 * its way, while the backward pass computes the layer before. Losses must be those of the blocking
 * redistribute, bit for bit.
 *
 *     34_prefetch [--ranks N] [--layers N] [--width N] [--rows N] [--steps N]
 */
#include <reshard/reshard_nn.h>

#include "examples/example.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LAYERS_MAX = 64, STEPS_MAX = 100 };

typedef struct sizes {
    int32_t ranks, layers, steps;
    int64_t width, rows;
} sizes;

typedef struct model {
    const sizes *sizes;
    reshard_tensor *weights[LAYERS_MAX]; /* cut by rows */
    reshard_tensor *x, *target;          /* cut by rows: each rank has its own examples */
    reshard_spec *whole, *cut;
} model;

static double now(void)
{
    struct timespec t;
    (void)timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the model ------------------------------------------------------------------------------- */

static reshard_tensor *forward_blocking(const model *m)
{
    reshard_tensor *x = m->x;
    for (int32_t i = 0; i < m->sizes->layers; i++) {
        reshard_tensor *weight = reshard_tensor_redistribute(m->weights[i], m->whole, NULL);
        x = reshard_tanh(reshard_linear(x, weight, NULL));
    }
    return x;
}

/* The same, with the next weight under way. */
static reshard_tensor *forward_ahead(const model *m)
{
    reshard_tensor *x = m->x;
    reshard_redistribution *next = reshard_tensor_redistribute_start(m->weights[0], m->whole, NULL);
    for (int32_t i = 0; i < m->sizes->layers; i++) {
        reshard_tensor *weight = reshard_tensor_redistribute_wait(next);
        if (i + 1 < m->sizes->layers)
            next = reshard_tensor_redistribute_start(m->weights[i + 1], m->whole, NULL);
        x = reshard_tanh(reshard_linear(x, weight, NULL));
    }
    return x;
}

static void descend(reshard_tensor *weight)
{
    reshard_tensor *gradient = reshard_tensor_gradient(weight);
    reshard_tensor *shard = NULL;
    for (int64_t k = 0; (shard = reshard_tensor_local_shard(weight, k)) != NULL; k++) {
        float *values = reshard_tensor_write(shard);
        const float *slopes = reshard_tensor_data(reshard_tensor_local_shard(gradient, k));
        for (int64_t i = 0; i < reshard_tensor_volume(shard); i++)
            values[i] -= 0.5F * slopes[i];
    }
    reshard_tensor_clear_gradient(weight);
}

static reshard_status step(const model *m, int ahead, double *out_loss)
{
    reshard_status status = RESHARD_OK;
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = ahead ? forward_ahead(m) : forward_blocking(m);
    reshard_tensor *loss = reshard_mse_loss(y, m->target);
    (void)reshard_scope_note(reshard_tensor_value(loss, out_loss));
    (void)reshard_backward(loss, NULL, NULL);
    TRY(close_scope(&scope, status));
    for (int32_t i = 0; i < m->sizes->layers; i++)
        descend(m->weights[i]);
out:
    status = close_scope(&scope, status);
    return status;
}

/* ---- training -------------------------------------------------------------------------------- */

/* Uniform numbers between -bound and bound. */
static reshard_status make_tensor(reshard_group *group, reshard_spec *spec, int64_t rows,
                                  int64_t width, double bound, uint64_t seed,
                                  reshard_tensor **out_tensor)
{
    reshard_status status = RESHARD_OK;
    TRY(reshard_tensor_create_distributed(NULL, group, spec, RESHARD_F32, 2,
                                          (int64_t[]){rows, width}, out_tensor));
    TRY(reshard_tensor_fill_random(*out_tensor, RESHARD_UNIFORM, seed));
    float *values = reshard_tensor_write(reshard_tensor_local_shard(*out_tensor, 0));
    int64_t count = reshard_tensor_volume(reshard_tensor_local_shard(*out_tensor, 0));
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)bound * (2 * values[i] - 1);
out:
    return status;
}

static reshard_status make_model(reshard_group *group, model *m)
{
    reshard_status status = RESHARD_OK;
    const sizes *s = m->sizes;
    char text[32];
    (void)snprintf(text, sizeof text, "%d: R", s->ranks);
    TRY(reshard_spec_parse(NULL, text, &m->whole));
    (void)snprintf(text, sizeof text, "%d: S(0)", s->ranks);
    TRY(reshard_spec_parse(NULL, text, &m->cut));
    for (int32_t i = 0; i < s->layers; i++) {
        TRY(make_tensor(group, m->cut, s->width, s->width, sqrt(3 / (double)s->width),
                        (uint64_t)i + 2, &m->weights[i]));
        TRY(reshard_tensor_set_requires_grad(m->weights[i], 1));
    }
    TRY(make_tensor(group, m->cut, s->rows, s->width, 1, 0, &m->x));
    TRY(make_tensor(group, m->cut, s->rows, s->width, 0.5, 1, &m->target));
out:
    return status;
}

static void release_model(model *m)
{
    for (int32_t i = 0; i < m->sizes->layers; i++)
        reshard_tensor_release(m->weights[i]);
    reshard_tensor_release(m->x);
    reshard_tensor_release(m->target);
    reshard_spec_release(m->whole);
    reshard_spec_release(m->cut);
}

static reshard_status train(reshard_group *group, const sizes *s, int ahead, double *losses,
                            double *out_seconds)
{
    model m = {.sizes = s};
    reshard_status status = make_model(group, &m);
    double start = now();
    for (int32_t i = 0; i < s->steps && status == RESHARD_OK; i++)
        status = step(&m, ahead, &losses[i]);
    *out_seconds = (now() - start) / s->steps;
    release_model(&m);
    return status;
}

static reshard_status body(void *user, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    const sizes *s = user;
    double losses[2][STEPS_MAX] = {{0}}, seconds[2];
    for (int ahead = 0; ahead < 2; ahead++)
        TRY(train(group, s, ahead, losses[ahead], &seconds[ahead]));
    TRY(check(memcmp(losses[0], losses[1], sizeof losses[0]) == 0, "losses differ"));
    TRY(check(losses[0][s->steps - 1] < losses[0][0], "nothing was learned"));
    if (reshard_group_rank(group) == 0)
        printf("%d ranks, %d layers of %lld: loss %.4f to %.4f; seconds a step: blocking %.5f, "
               "a layer ahead %.5f\n",
               s->ranks, s->layers, (long long)s->width, losses[0][0], losses[0][s->steps - 1],
               seconds[0], seconds[1]);
out:
    return status;
}

int main(int argc, char **argv)
{
    sizes s = {.ranks = 3, .layers = 4, .steps = 10, .width = 32, .rows = 12};
    for (int i = 1; i + 1 < argc; i += 2) {
        int value = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--ranks") == 0)
            s.ranks = value;
        else if (strcmp(argv[i], "--layers") == 0)
            s.layers = value;
        else if (strcmp(argv[i], "--width") == 0)
            s.width = value;
        else if (strcmp(argv[i], "--rows") == 0)
            s.rows = value;
        else if (strcmp(argv[i], "--steps") == 0)
            s.steps = value;
    }
    if (s.layers < 1 || s.layers > LAYERS_MAX || s.steps < 2 || s.steps > STEPS_MAX) {
        fprintf(stderr, "1 to %d layers, 2 to %d steps\n", LAYERS_MAX, STEPS_MAX);
        return 2;
    }
    return finish(reshard_group_run(NULL, s.ranks, body, &s));
}
