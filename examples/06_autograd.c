/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 06_autograd.c - introduces gradients: a network of two layers learns exclusive or, with its
 * weights cut over two ranks. The first weight is cut by rows, so that the hidden values are cut
 * too; the second by columns, so that each rank has a partial sum. One redistribute adds these up;
 * its backward step moves nothing.
 */
#include <reshard/reshard_nn.h>

#include "examples/example.h"

enum { RANKS = 2, HIDDEN = 16, STEPS = 200 };

typedef struct model {
    reshard_tensor *w1, *b1, *w2, *b2; /* parameters */
    reshard_tensor *x, *labels;        /* the four rows of exclusive or */
    reshard_spec *whole;
} model;

static void release_model(model *m)
{
    reshard_tensor *all[] = {m->w1, m->b1, m->w2, m->b2, m->x, m->labels};
    for (int i = 0; i < 6; i++)
        reshard_tensor_release(all[i]);
    reshard_spec_release(m->whole);
}

/* One training step, which reads like the model. The scope keeps the first error. */
static reshard_status step(model *m, double *out_loss)
{
    reshard_status status = RESHARD_OK;
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *hidden = reshard_silu(reshard_linear(m->x, m->w1, m->b1));
    reshard_tensor *sums = reshard_linear(hidden, m->w2, m->b2);
    reshard_tensor *logits = reshard_tensor_redistribute(sums, m->whole, NULL);
    reshard_tensor *loss = reshard_tensor_full(reshard_cross_entropy(logits, m->labels, NULL));
    TRY(reshard_backward(loss, NULL, NULL));
    TRY(reshard_tensor_value(loss, out_loss));
out:
    return close_scope(&scope, status);
}

static void descend(reshard_tensor *weight)
{
    reshard_tensor *gradient = reshard_tensor_gradient(weight);
    float *values = reshard_tensor_write(reshard_tensor_local_shard(weight, 0));
    const float *slopes = reshard_tensor_data(reshard_tensor_local_shard(gradient, 0));
    for (int64_t i = 0; i < reshard_tensor_volume(reshard_tensor_local_shard(weight, 0)); i++)
        values[i] -= 0.5F * slopes[i];
    reshard_tensor_clear_gradient(weight);
}

/* The random numbers depend on the global index, so they are the same on any number of ranks. */
static reshard_status make_parameter(reshard_group *group, const char *text, int32_t ndim,
                                     const int64_t *shape, uint64_t seed,
                                     reshard_tensor **out_tensor)
{
    reshard_status status = RESHARD_OK;
    reshard_spec *spec = NULL;
    TRY(reshard_spec_parse(NULL, text, &spec));
    TRY(reshard_tensor_create_distributed(NULL, group, spec, RESHARD_F32, ndim, shape, out_tensor));
    TRY(reshard_tensor_fill_random(*out_tensor, RESHARD_NORMAL, seed));
    TRY(reshard_tensor_set_requires_grad(*out_tensor, 1));
out:
    reshard_spec_release(spec);
    return status;
}

static reshard_status make_data(reshard_group *group, model *m)
{
    static const float rows[] = {0, 0, 0, 1, 1, 0, 1, 1};
    static const int64_t answers[] = {0, 1, 1, 0};
    reshard_status status = RESHARD_OK;
    reshard_tensor *x = NULL, *labels = NULL;
    TRY(reshard_tensor_from_data(NULL, RESHARD_F32, 2, (int64_t[]){4, 2}, rows, &x));
    TRY(reshard_tensor_from_data(NULL, RESHARD_I64, 1, (int64_t[]){4}, answers, &labels));
    TRY(reshard_tensor_shard(NULL, group, m->whole, 0, x, &m->x));
    TRY(reshard_tensor_shard(NULL, group, m->whole, 0, labels, &m->labels));
out:
    reshard_tensor_release(labels);
    reshard_tensor_release(x);
    return status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    model m = {0};
    double loss = 0;
    (void)user;
    TRY(reshard_spec_parse(NULL, "2: R", &m.whole));
    TRY(make_data(group, &m));
    TRY(make_parameter(group, "2: S(0)", 2, (int64_t[]){HIDDEN, 2}, 1, &m.w1));
    TRY(make_parameter(group, "2: S(0)", 1, (int64_t[]){HIDDEN}, 2, &m.b1));
    TRY(make_parameter(group, "2: S(1)", 2, (int64_t[]){2, HIDDEN}, 3, &m.w2));
    TRY(make_parameter(group, "2: R   ", 1, (int64_t[]){2}, 4, &m.b2));
    for (int i = 0; i < STEPS; i++) {
        TRY(step(&m, &loss));
        descend(m.w1);
        descend(m.b1);
        descend(m.w2);
        descend(m.b2);
        if (reshard_group_rank(group) == 0 && (i == 0 || i == STEPS - 1))
            printf("step %d: loss %.3f\n", i + 1, loss);
    }
    TRY(check(loss < 0.05, "the network has not learned"));
out:
    release_model(&m);
    return status;
}

int main(void)
{
    return finish(reshard_group_run(NULL, RANKS, run_rank, NULL));
}
