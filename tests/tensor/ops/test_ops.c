/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ops.c - every operation: its values against the definition written out element by element,
 * its gradients against finite differences, on random shapes, dense and strided.
 */
#include "tensor/ops/op.h"
#include "tests/support/check.h"
#include "tests/support/harness.h"
#include "tests/tensor/ops/op_functions.h"

#include <string.h>

/* ---- one operation, its definition, and inputs to try it on ---------------------------------- */

typedef struct op_case {
    const char *name;
    gradients_fn fn;
    void (*make)(draw_state *draw, const sizes *s, reshard_tensor **inputs);
    int32_t count;
    /* the i-th element of the output, from elements of the inputs */
    double (*define)(reshard_tensor *const *inputs, const sizes *s, int64_t i);
} op_case;

static reshard_tensor *make_indices(draw_state *draw, int64_t limit, int32_t ndim,
                                    const int64_t *shape)
{
    reshard_tensor *made = make_zeros(RESHARD_I64, ndim, shape);
    for (int64_t i = 0; i < reshard_tensor_volume(made); i++)
        set_element(made, i, (double)draw_below(draw, limit));
    return made;
}

/* A random tensor that is dense, or a transpose of a dense one. */
static reshard_tensor *make_strided(draw_state *draw, int32_t ndim, const int64_t *shape)
{
    int64_t turned[RESHARD_NDIM_MAX];
    if (ndim < 2 || draw_chance(draw, 50))
        return make_random(RESHARD_F64, draw, ndim, shape);
    memcpy(turned, shape, (size_t)ndim * sizeof *shape);
    turned[0] = shape[ndim - 1];
    turned[ndim - 1] = shape[0];
    reshard_tensor *made = make_random(RESHARD_F64, draw, ndim, turned);
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *view = reshard_tensor_retain(reshard_tensor_transpose(made, 0, -1));
    MUST(reshard_scope_close(scope));
    reshard_tensor_release(made);
    return view;
}

static void make_one(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, s->b, s->c));
}

static void make_same(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, s->b, s->c));
    inputs[1] = make_strided(draw, SHAPE(s->a, s->b, s->c));
}

static void make_broadcast(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, 1, s->c));
    inputs[1] = make_strided(draw, SHAPE(s->b, 1));
}

/* 0.5 to 1.5 */
static reshard_tensor *make_positive_of(draw_state *draw, int32_t ndim, const int64_t *shape)
{
    reshard_tensor *made = make_random(RESHARD_F64, draw, ndim, shape);
    for (int64_t i = 0; i < reshard_tensor_volume(made); i++)
        set_element(made, i, 1 + element(made, i) / 2);
    return made;
}

static void make_positive(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_positive_of(draw, SHAPE(s->a, s->b, s->c));
}

static void make_divided(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, s->b, s->c));
    inputs[1] = make_positive_of(draw, SHAPE(s->a, s->b, s->c));
}

static void make_divided_broadcast(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, 1, s->c));
    inputs[1] = make_positive_of(draw, SHAPE(s->b, 1));
}

static void make_chosen(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    make_same(draw, s, inputs);
    inputs[2] = make_indices(draw, 2, SHAPE(s->a, s->b, s->c));
}

static void make_chosen_broadcast(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    make_broadcast(draw, s, inputs);
    inputs[2] = make_indices(draw, 3, SHAPE(s->c));
}

static void make_filled(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, s->b, s->c));
    inputs[1] = make_indices(draw, 2, SHAPE(s->a, s->b, s->c));
}

static void make_filled_broadcast(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, s->b, s->c));
    inputs[1] = make_indices(draw, 2, SHAPE(s->b, 1));
}

static void make_turned(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, s->c, s->b));
    inputs[1] = make_strided(draw, SHAPE(s->a, s->d, s->c));
}

/* ---- element by element ---------------------------------------------------------------------- */

#define UNARY(op, expression)                                                           \
    static reshard_tensor *run_##op(reshard_tensor *const *inputs, const void *user)    \
    {                                                                                   \
        (void)user;                                                                     \
        return reshard_##op(inputs[0]);                                                 \
    }                                                                                   \
    static double define_##op(reshard_tensor *const *inputs, const sizes *s, int64_t i) \
    {                                                                                   \
        double x = element(inputs[0], i);                                               \
        (void)s;                                                                        \
        return (expression);                                                            \
    }

UNARY(relu, x > 0 ? x : 0)
UNARY(gelu, x * 0.5 * erfc(-x / sqrt(2)))
UNARY(silu, x / (1 + exp(-x)))

static reshard_tensor *run_add(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_add(inputs[0], inputs[1]);
}
static double define_add(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    (void)s;
    return element(inputs[0], i) + element(inputs[1], i);
}
static reshard_tensor *run_mul(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_mul(inputs[0], inputs[1]);
}
static double define_mul(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    (void)s;
    return element(inputs[0], i) * element(inputs[1], i);
}
/* [a,1,c] with [b,1] gives [a,b,c] */
static double define_add_broadcast(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    return element(inputs[0], i / (s->b * s->c) * s->c + i % s->c) +
           element(inputs[1], i / s->c % s->b);
}
static double define_mul_broadcast(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    return element(inputs[0], i / (s->b * s->c) * s->c + i % s->c) *
           element(inputs[1], i / s->c % s->b);
}
static reshard_tensor *run_scale(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_scale(inputs[0], -1.75);
}
static double define_scale(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    (void)s;
    return -1.75 * element(inputs[0], i);
}

/* ---- reductions ------------------------------------------------------------------------------ */

static double total(const reshard_tensor *x)
{
    double sum = 0;
    for (int64_t i = 0; i < reshard_tensor_volume(x); i++)
        sum += element(x, i);
    return sum;
}
static reshard_tensor *run_sum(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_sum(inputs[0]);
}
static double define_sum(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    (void)s;
    (void)i;
    return total(inputs[0]);
}
static reshard_tensor *run_mean(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_mean(inputs[0]);
}
static double define_mean(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    (void)i;
    return total(inputs[0]) / (double)(s->a * s->b * s->c);
}
static reshard_tensor *run_sum_dim(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_reduce_dims(inputs[0], RESHARD_SUM, 1, (int32_t[]){-2}, 0);
}
static double define_sum_dim(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    double sum = 0;
    for (int64_t k = 0; k < s->b; k++)
        sum += element(inputs[0], (i / s->c * s->b + k) * s->c + i % s->c);
    return sum;
}

/* ---- products -------------------------------------------------------------------------------- */

static void make_matmul(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, s->b, s->c));
    inputs[1] = make_strided(draw, SHAPE(s->c, s->d));
}
static void make_batched(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, s->b, s->c));
    inputs[1] = make_strided(draw, SHAPE(s->a, s->c, s->d));
}
static void make_linear(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, s->b, s->c));
    inputs[1] = make_strided(draw, SHAPE(s->d, s->c));
    inputs[2] = make_strided(draw, SHAPE(s->d));
}
static reshard_tensor *run_matmul(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_matmul(inputs[0], inputs[1]);
}
static double define_matmul(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    double sum = 0;
    for (int64_t k = 0; k < s->c; k++)
        sum += element(inputs[0], i / s->d * s->c + k) * element(inputs[1], k * s->d + i % s->d);
    return sum;
}
static double define_batched(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    double sum = 0;
    int64_t batch = i / (s->b * s->d);
    for (int64_t k = 0; k < s->c; k++)
        sum += element(inputs[0], i / s->d * s->c + k) *
               element(inputs[1], (batch * s->c + k) * s->d + i % s->d);
    return sum;
}
static reshard_tensor *run_linear(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_linear(inputs[0], inputs[1], inputs[2]);
}
static double define_linear(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    double sum = element(inputs[2], i % s->d);
    for (int64_t k = 0; k < s->c; k++)
        sum += element(inputs[0], i / s->d * s->c + k) * element(inputs[1], i % s->d * s->c + k);
    return sum;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static reshard_tensor *run_softmax(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_softmax(inputs[0], 1);
}
static double define_softmax(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    double sum = 0;
    for (int64_t k = 0; k < s->b; k++)
        sum += exp(element(inputs[0], (i / (s->b * s->c) * s->b + k) * s->c + i % s->c));
    return exp(element(inputs[0], i)) / sum;
}
static void make_logits(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, s->b, s->c));
    inputs[1] = make_indices(draw, s->c, SHAPE(s->a, s->b));
}
/* At least two columns, and a first label that is not ignored. */
static void make_padded(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, s->b, s->c + 1));
    inputs[1] = make_indices(draw, 2, SHAPE(s->a, s->b));
    set_element(inputs[1], 0, 0);
}
static reshard_tensor *run_cross_entropy(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_cross_entropy(inputs[0], inputs[1], NULL);
}
static double define_cross_entropy(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    double loss = 0;
    (void)i;
    for (int64_t r = 0; r < s->a * s->b; r++) {
        double sum = 0;
        for (int64_t k = 0; k < s->c; k++)
            sum += exp(element(inputs[0], r * s->c + k));
        loss += log(sum) - element(inputs[0], r * s->c + (int64_t)element(inputs[1], r));
    }
    return loss / (double)(s->a * s->b);
}
static void make_norm(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, s->b, s->c));
    inputs[1] = make_strided(draw, SHAPE(s->c));
    inputs[2] = make_strided(draw, SHAPE(s->c));
}
static reshard_tensor *run_layernorm(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_layernorm(inputs[0], inputs[1], inputs[2], 0.01);
}
static double define_norm(reshard_tensor *const *inputs, const sizes *s, int64_t i, bool centred)
{
    double mean = 0, squares = 0;
    for (int64_t k = 0; centred && k < s->c; k++)
        mean += element(inputs[0], i / s->c * s->c + k) / (double)s->c;
    for (int64_t k = 0; k < s->c; k++) {
        double x = element(inputs[0], i / s->c * s->c + k) - mean;
        squares += x * x / (double)s->c;
    }
    return (element(inputs[0], i) - mean) / sqrt(squares + 0.01) * element(inputs[1], i % s->c);
}
static double define_layernorm(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    return define_norm(inputs, s, i, true) + element(inputs[2], i % s->c);
}
static reshard_tensor *run_rmsnorm(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_rmsnorm(inputs[0], inputs[1], 0.01);
}
static double define_rmsnorm(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    return define_norm(inputs, s, i, false);
}
static void make_attention(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    for (int i = 0; i < 3; i++)
        inputs[i] = make_strided(draw, SHAPE(s->a, s->b, s->c, s->d));
}
static reshard_tensor *run_attention(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_causal_attention(inputs[0], inputs[1], inputs[2], 0);
}
static double define_attention(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    int64_t head = i / (s->c * s->d), row = i / s->d % s->c, column = i % s->d;
    double sum = 0, value = 0;
    for (int64_t t = 0; t <= row; t++) {
        double score = 0;
        for (int64_t k = 0; k < s->d; k++)
            score += element(inputs[0], (head * s->c + row) * s->d + k) *
                     element(inputs[1], (head * s->c + t) * s->d + k);
        double e = exp(score / sqrt((double)s->d));
        sum += e;
        value += e * element(inputs[2], (head * s->c + t) * s->d + column);
    }
    return value / sum;
}

/* ---- choosing and joining -------------------------------------------------------------------- */

static void make_embedding(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->c, s->d));
    inputs[1] = make_indices(draw, s->c, SHAPE(s->a, s->b));
}
static reshard_tensor *run_embedding(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_embedding(inputs[0], inputs[1]);
}
static double define_embedding(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    return element(inputs[0], (int64_t)element(inputs[1], i / s->d) * s->d + i % s->d);
}
static void make_select(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, s->b, s->c));
    inputs[1] = make_indices(draw, s->b, SHAPE(s->d));
}
static reshard_tensor *run_select(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_index_select(inputs[0], 1, inputs[1]);
}
static double define_select(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    int64_t row = (int64_t)element(inputs[1], i / s->c % s->d);
    return element(inputs[0], (i / (s->c * s->d) * s->b + row) * s->c + i % s->c);
}
static void make_cat(draw_state *draw, const sizes *s, reshard_tensor **inputs)
{
    inputs[0] = make_strided(draw, SHAPE(s->a, s->b, s->c));
    inputs[1] = make_strided(draw, SHAPE(s->a, s->d, s->c));
}
static reshard_tensor *run_cat(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_cat(2, inputs, -2);
}
static double define_cat(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    int64_t both = s->b + s->d, row = i / s->c % both, outer = i / (s->c * both);
    return row < s->b ? element(inputs[0], (outer * s->b + row) * s->c + i % s->c)
                      : element(inputs[1], (outer * s->d + row - s->b) * s->c + i % s->c);
}
/* The parts of a split, one of them not used, one used twice. */
static reshard_tensor *run_split(reshard_tensor *const *inputs, const void *user)
{
    const int64_t *shape = reshard_tensor_shape(inputs[0]);
    reshard_tensor *parts[3];
    (void)user;
    reshard_split(inputs[0], 2, 3, (int64_t[]){1, shape[2] - 1, 0}, parts);
    return reshard_mul(parts[0], reshard_relu(parts[0]));
}
static double define_split(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    double x = element(inputs[0], i * s->c);
    return x > 0 ? x * x : 0;
}
/* Every view in one chain. */
static reshard_tensor *run_views(reshard_tensor *const *inputs, const void *user)
{
    const int64_t *shape = reshard_tensor_shape(inputs[0]);
    (void)user;
    reshard_tensor *x = reshard_tensor_transpose(inputs[0], 0, 2);
    x = reshard_tensor_narrow(x, 0, shape[2] - 1, 1);
    x = reshard_tensor_unsqueeze(reshard_tensor_squeeze(x, 0), 1);
    x = reshard_tensor_contiguous(x);
    x = reshard_tensor_reshape(x, SHAPE(1, -1));
    return reshard_tensor_cast(reshard_tensor_cast(x, RESHARD_F64), RESHARD_F64);
}
static double define_views(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    /* [b][a] at the last c */
    return element(inputs[0], (i % s->a * s->b + i / s->a) * s->c + s->c - 1);
}
static reshard_tensor *run_dropout(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_dropout(inputs[0], 0.25, 99);
}
static double define_dropout(reshard_tensor *const *inputs, const sizes *s, int64_t i)
{
    /* SplitMix64, started by its own first number of the seed */
    uint64_t state = 99, z = 0;
    (void)s;
    for (int64_t turn = -1; turn <= i; turn++) {
        state += UINT64_C(0x9e3779b97f4a7c15);
        z = state;
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        z ^= z >> 31;
        if (turn < 0)
            state = z;
    }
    double u = (double)(z >> 11) / 9007199254740992.0;
    return u < 0.25 ? 0 : element(inputs[0], i) / 0.75;
}

static const op_case cases[] = {
    {"relu", run_relu, make_one, 1, define_relu},
    {"gelu", run_gelu, make_one, 1, define_gelu},
    {"silu", run_silu, make_one, 1, define_silu},
    {"add", run_add, make_same, 2, define_add},
    {"add broadcast", run_add, make_broadcast, 2, define_add_broadcast},
    {"mul", run_mul, make_same, 2, define_mul},
    {"mul broadcast", run_mul, make_broadcast, 2, define_mul_broadcast},
    {"scale", run_scale, make_one, 1, define_scale},
    {"sum", run_sum, make_one, 1, define_sum},
    {"mean", run_mean, make_one, 1, define_mean},
    {"sum_dim", run_sum_dim, make_one, 1, define_sum_dim},
    {"matmul", run_matmul, make_matmul, 2, define_matmul},
    {"matmul batched", run_matmul, make_batched, 2, define_batched},
    {"linear", run_linear, make_linear, 3, define_linear},
    {"softmax", run_softmax, make_one, 1, define_softmax},
    {"cross_entropy", run_cross_entropy, make_logits, 2, define_cross_entropy},
    {"layernorm", run_layernorm, make_norm, 3, define_layernorm},
    {"rmsnorm", run_rmsnorm, make_norm, 2, define_rmsnorm},
    {"causal_attention", run_attention, make_attention, 3, define_attention},
    {"embedding", run_embedding, make_embedding, 2, define_embedding},
    {"index_select", run_select, make_select, 2, define_select},
    {"cat", run_cat, make_cat, 2, define_cat},
    {"split", run_split, make_one, 1, define_split},
    {"views", run_views, make_one, 1, define_views},
    {"dropout", run_dropout, make_one, 1, define_dropout},
    {"log_softmax", run_log_softmax, make_one, 1, define_log_softmax},
    {"cross_entropy, padded", run_padded, make_padded, 2, define_padded},
    {"neg", run_neg, make_one, 1, define_neg},
    {"exp", run_exp, make_one, 1, define_exp},
    {"log", run_log, make_positive, 1, define_log},
    {"sqrt", run_sqrt, make_positive, 1, define_sqrt},
    {"tanh", run_tanh, make_one, 1, define_tanh},
    {"sigmoid", run_sigmoid, make_one, 1, define_sigmoid},
    {"pow 3", run_cube, make_one, 1, define_cube},
    {"pow -1/2", run_root, make_positive, 1, define_root},
    {"pow 0", run_zeroth, make_one, 1, define_zeroth},
    {"clamp", run_clamp, make_one, 1, define_clamp},
    {"clamp low", run_clamp_low, make_one, 1, define_clamp_low},
    {"nan_to_num", run_nan_to_num, make_one, 1, define_nan_to_num},
    {"sub", run_sub, make_same, 2, define_sub},
    {"sub broadcast", run_sub_broadcast, make_broadcast, 2, define_sub_broadcast},
    {"div", run_div, make_divided, 2, define_div},
    {"div broadcast", run_div_broadcast, make_divided_broadcast, 2, define_div_broadcast},
    {"where", run_where, make_chosen, 3, define_where},
    {"where broadcast", run_where_broadcast, make_chosen_broadcast, 3, define_where_broadcast},
    {"masked_fill", run_fill, make_filled, 2, define_fill},
    {"masked_fill broadcast", run_fill_broadcast, make_filled_broadcast, 2, define_fill_broadcast},
    {"sum_dims", run_sum_dims, make_one, 1, define_sum_dims},
    {"sum_dims apart", run_sum_apart, make_one, 1, define_sum_apart},
    {"mean_dims", run_mean_dims, make_one, 1, define_mean_dims},
    {"mean_dims, all", run_mean_all, make_one, 1, define_mean_all},
    {"max_dims", run_max_dims, make_one, 1, define_max_dims},
    {"max_dims apart", run_max_apart, make_one, 1, define_max_apart},
    {"bmm", run_bmm, make_turned, 2, define_bmm},
};

static bool compare_values(const op_case *c, reshard_tensor *const *inputs, const sizes *s,
                           words *said)
{
    reshard_scope *scope = NULL;
    bool good = true;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *output = c->fn(inputs, NULL);
    for (int64_t i = 0; output != NULL && good && i < reshard_tensor_volume(output); i++) {
        double expected = c->define(inputs, s, i), found = element(output, i);
        if (!(fabs(found - expected) <= 1e-12 * (1 + fabs(expected))))
            good =
                words_say(said, "element %lld is %.15g, not %.15g", (long long)i, found, expected);
    }
    if (reshard_scope_close(scope) != RESHARD_OK)
        good = words_say(said, "%s", reshard_error_text());
    return good;
}

static void test_ops__values_and_gradients(void **state)
{
    (void)state;
    int64_t turns = harness_count(6);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        for (int64_t turn = 0; turn < turns; turn++) {
            draw_state draw;
            words said = {""};
            reshard_tensor *inputs[GRADIENTS_INPUTS_MAX] = {NULL};
            uint64_t seed = harness_seed() + (uint64_t)turn;
            draw_seed(&draw, seed);
            sizes s = {draw_between(&draw, 1, 3), draw_between(&draw, 1, 4),
                       draw_between(&draw, 1, 5), draw_between(&draw, 1, 4)};
            cases[k].make(&draw, &s, inputs);
            bool good = compare_values(&cases[k], inputs, &s, &said) &&
                        gradients_check(cases[k].fn, cases[k].count, inputs, NULL, &said);
            for (int32_t i = 0; i < GRADIENTS_INPUTS_MAX; i++)
                reshard_tensor_release(inputs[i]);
            if (!good)
                fail_msg("%s of sizes %d %d %d %d, seed %llu: %s", cases[k].name, (int)s.a,
                         (int)s.b, (int)s.c, (int)s.d, (unsigned long long)seed, said.text);
        }
    }
}

/* f32 gives what f64 gives, but for rounding; so do f16 and bf16, more coarsely. */
static void test_ops__narrower_types_agree_with_f64(void **state)
{
    (void)state;
    static const struct {
        reshard_dtype dtype;
        double tolerance;
    } types[] = {{RESHARD_F32, 1e-5}, {RESHARD_F16, 1e-2}, {RESHARD_BF16, 6e-2}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        draw_state draw;
        reshard_tensor *inputs[GRADIENTS_INPUTS_MAX] = {NULL};
        draw_seed(&draw, 11);
        sizes s = {2, 3, 4, 3};
        cases[k].make(&draw, &s, inputs);
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            reshard_scope *scope = NULL;
            MUST(reshard_scope_open(NULL, &scope));
            reshard_tensor *narrow[GRADIENTS_INPUTS_MAX] = {NULL};
            for (int32_t i = 0; i < cases[k].count; i++) {
                bool index = reshard_tensor_dtype(inputs[i]) == RESHARD_I64;
                narrow[i] = index ? inputs[i] : reshard_tensor_cast(inputs[i], types[t].dtype);
                if (!index)
                    MUST(reshard_tensor_set_requires_grad(narrow[i], 1));
            }
            reshard_tensor *y = cases[k].fn(narrow, NULL);
            if (strcmp(cases[k].name, "views") != 0)
                assert_int_equal(reshard_tensor_dtype(y), types[t].dtype);
            for (int64_t i = 0; i < reshard_tensor_volume(y); i++) {
                double expected = cases[k].define(inputs, &s, i);
                if (!(fabs(element(y, i) - expected) <= types[t].tolerance * (1 + fabs(expected))))
                    fail_msg("%s in %s: %g, not %g", cases[k].name,
                             reshard_dtype_name(types[t].dtype), element(y, i), expected);
            }
            assert_int_equal(reshard_backward(reshard_sum(y), NULL, NULL), RESHARD_OK);
            assert_int_equal(reshard_tensor_dtype(reshard_tensor_gradient(narrow[0])),
                             types[t].dtype);
            assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
        }
        for (int32_t i = 0; i < GRADIENTS_INPUTS_MAX; i++)
            reshard_tensor_release(inputs[i]);
    }
}

/* The library's product and the plain loops, against each other; every combination. */
static void test_product__plain_loops_agree(void **state)
{
    (void)state;
    double a[60], b[60], c[2][30];
    float narrow_a[60], narrow_b[60], narrow_c[2][30];
    for (int i = 0; i < 60; i++) {
        a[i] = narrow_a[i] = (float)(i % 7 - 3);
        b[i] = narrow_b[i] = (float)(i % 5 - 2);
    }
    for (int way = 0; way < 32; way++) {
        bool wide = way & 1;
        rs_product p = {.dtype = wide ? RESHARD_F64 : RESHARD_F32,
                        .transpose_a = way & 2,
                        .transpose_b = way & 4,
                        .add = way & 8,
                        .m = 5,
                        .n = 6,
                        .k = way & 16 ? 0 : 10,
                        .scale = 0.5,
                        .a = wide ? (void *)a : (void *)narrow_a,
                        .b = wide ? (void *)b : (void *)narrow_b};
        for (int i = 0; i < 60; i++)
            c[i / 30][i % 30] = narrow_c[i / 30][i % 30] = (float)(i % 30);
        p.c = wide ? (void *)c[0] : (void *)narrow_c[0];
        assert_int_equal(rs_multiply_matrices(&p), RESHARD_OK);
        p.c = wide ? (void *)c[1] : (void *)narrow_c[1];
        rs_multiply_plainly(&p);
        for (int i = 0; i < 30; i++) {
            assert_true(c[0][i] == c[1][i]);
            assert_true(narrow_c[0][i] == narrow_c[1][i]);
        }
    }
    rs_product huge = {.dtype = RESHARD_F32, .m = INT64_MAX, .n = 1, .k = 1};
    assert_int_equal(rs_multiply_matrices(&huge), RESHARD_ERR_RANGE);
}

static void test_ops__empty_tensors(void **state)
{
    (void)state;
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *none = make_zeros(RESHARD_F32, SHAPE(0, 3));
    reshard_tensor *weight = make_zeros(RESHARD_F32, SHAPE(2, 3));
    MUST(reshard_tensor_set_requires_grad(weight, 1));
    reshard_tensor *y = reshard_linear(none, weight, NULL);
    assert_int_equal(reshard_tensor_shape(y)[0], 0);
    assert_int_equal(reshard_backward(reshard_sum(reshard_softmax(y, -1)), NULL, NULL), RESHARD_OK);
    assert_true(element(reshard_tensor_gradient(weight), 5) == 0);
    reshard_tensor *thin = make_zeros(RESHARD_F32, SHAPE(4, 0));
    reshard_tensor *thin_weight = make_zeros(RESHARD_F32, SHAPE(2, 0));
    assert_true(element(reshard_linear(thin, thin_weight, NULL), 7) == 0);
    assert_int_equal(reshard_tensor_volume(reshard_softmax(thin, -1)), 0);
    assert_true(element(reshard_sum(none), 0) == 0);
    assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
    reshard_tensor_release(none);
    reshard_tensor_release(weight);
    reshard_tensor_release(thin);
    reshard_tensor_release(thin_weight);
}

static void test_relu__does_not_hide_nan(void **state)
{
    (void)state;
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *x = make_zeros(RESHARD_F32, SHAPE(3));
    set_element(x, 0, NAN);
    set_element(x, 1, -1);
    set_element(x, 2, 2);
    MUST(reshard_tensor_set_requires_grad(x, 1));
    reshard_tensor *y = reshard_relu(x);
    assert_true(isnan(element(y, 0)) && element(y, 1) == 0 && element(y, 2) == 2);
    MUST(reshard_backward(reshard_sum(y), NULL, NULL));
    const reshard_tensor *gradient = reshard_tensor_gradient(x);
    assert_true(element(gradient, 0) == 1 && element(gradient, 1) == 0);
    assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
    reshard_tensor_release(x);
}

/* The sum of 4 * 40000 is more than an f16 can hold, and their mean is not. */
static void test_mean__of_halves_does_not_overflow(void **state)
{
    (void)state;
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *x = make_zeros(RESHARD_F16, SHAPE(4));
    MUST(reshard_tensor_fill(x, 40000));
    MUST(reshard_tensor_set_requires_grad(x, 1));
    reshard_tensor *y = reshard_mean(x);
    assert_true(element(y, 0) == 40000);
    MUST(reshard_backward(y, NULL, NULL));
    assert_true(element(reshard_tensor_gradient(x), 3) == 0.25);
    assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
    reshard_tensor_release(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops__values_and_gradients),
        cmocka_unit_test(test_ops__narrower_types_agree_with_f64),
        cmocka_unit_test(test_product__plain_loops_agree),
        cmocka_unit_test(test_ops__empty_tensors),
        cmocka_unit_test(test_relu__does_not_hide_nan),
        cmocka_unit_test(test_mean__of_halves_does_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
