/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 06_autograd.c - a network of two layers learns exclusive or, with its weights cut over two ranks:
 * the first weight by rows, so that the hidden values are cut too; the second by columns, so that
 * each rank has a partial sum. One redistribute adds these up; its backward step moves nothing.
 */
#include <reshard/reshard_nn.h>

#include <stdio.h>

enum { RANKS = 2, HIDDEN = 16, STEPS = 200 };

typedef struct model {
    reshard_tensor *w1, *b1, *w2, *b2; /* parameters */
    reshard_tensor *x, *labels;        /* the four rows of exclusive or */
    reshard_spec *whole;
} model;

/* One training step, which reads like the model. The scope keeps the first error. */
static reshard_status step(model *m, double *out_loss)
{
    reshard_scope *scope = NULL;
    reshard_status status = reshard_scope_open(NULL, &scope);
    if (status != RESHARD_OK)
        return status;
    reshard_tensor *hidden = reshard_silu(reshard_linear(m->x, m->w1, m->b1));
    reshard_tensor *sums = reshard_linear(hidden, m->w2, m->b2);
    reshard_tensor *logits = reshard_tensor_redistribute(sums, m->whole, NULL);
    reshard_tensor *loss = reshard_tensor_full(reshard_cross_entropy(logits, m->labels));
    (void)reshard_backward(loss, NULL, NULL);
    if (loss != NULL)
        (void)reshard_tensor_item(loss, out_loss);
    return reshard_scope_close(scope);
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
    reshard_spec *spec = NULL;
    reshard_status status = reshard_spec_parse(NULL, text, &spec);
    if (status == RESHARD_OK)
        status = reshard_tensor_create_distributed(NULL, group, spec, RESHARD_F32, ndim, shape,
                                                   out_tensor);
    if (status == RESHARD_OK)
        status = reshard_tensor_fill_normal(*out_tensor, seed);
    if (status == RESHARD_OK)
        status = reshard_tensor_set_requires_grad(*out_tensor, 1);
    reshard_spec_release(spec);
    return status;
}

static reshard_status make_data(reshard_group *group, model *m)
{
    static const float rows[] = {0, 0, 0, 1, 1, 0, 1, 1};
    static const int64_t answers[] = {0, 1, 1, 0};
    reshard_tensor *x = NULL, *labels = NULL;
    reshard_status status =
        reshard_tensor_from_data(NULL, RESHARD_F32, 2, (int64_t[]){4, 2}, rows, &x);
    if (status == RESHARD_OK)
        status = reshard_tensor_from_data(NULL, RESHARD_I64, 1, (int64_t[]){4}, answers, &labels);
    if (status == RESHARD_OK)
        status = reshard_tensor_shard(NULL, group, m->whole, 0, x, &m->x);
    if (status == RESHARD_OK)
        status = reshard_tensor_shard(NULL, group, m->whole, 0, labels, &m->labels);
    reshard_tensor_release(labels);
    reshard_tensor_release(x);
    return status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    model m = {0};
    double loss = 0;
    (void)user;
    reshard_status status = reshard_spec_parse(NULL, "2: R", &m.whole);
    if (status == RESHARD_OK)
        status = make_data(group, &m);
    if (status == RESHARD_OK)
        status = make_parameter(group, "2: S(0)", 2, (int64_t[]){HIDDEN, 2}, 1, &m.w1);
    if (status == RESHARD_OK)
        status = make_parameter(group, "2: S(0)", 1, (int64_t[]){HIDDEN}, 2, &m.b1);
    if (status == RESHARD_OK)
        status = make_parameter(group, "2: S(1)", 2, (int64_t[]){2, HIDDEN}, 3, &m.w2);
    if (status == RESHARD_OK)
        status = make_parameter(group, "2: R   ", 1, (int64_t[]){2}, 4, &m.b2);
    for (int i = 0; i < STEPS && status == RESHARD_OK; i++) {
        status = step(&m, &loss);
        reshard_tensor *parameters[] = {m.w1, m.b1, m.w2, m.b2};
        for (int k = 0; k < 4 && status == RESHARD_OK; k++)
            descend(parameters[k]);
        if (reshard_group_rank(group) == 0 && (i == 0 || i == STEPS - 1))
            printf("step %d: loss %.3f\n", i + 1, loss);
    }
    if (status == RESHARD_OK && !(loss < 0.05))
        status = reshard_error_set(RESHARD_ERR_CHECK, "the network has not learned");
    reshard_tensor *all[] = {m.w1, m.b1, m.w2, m.b2, m.x, m.labels};
    for (int i = 0; i < 6; i++)
        reshard_tensor_release(all[i]);
    reshard_spec_release(m.whole);
    return status;
}

int main(void)
{
    reshard_status status = reshard_group_run(NULL, RANKS, run_rank, NULL);
    if (status != RESHARD_OK)
        fprintf(stderr, "%s\n", reshard_error_text());
    return status != RESHARD_OK;
}
