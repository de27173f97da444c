/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_spread.c - operations on distributed tensors: results and gradients are those of the same
 * operation on whole local tensors (which test_ops.c holds against definitions and differences),
 * for every layout that the operation takes; other layouts are refused in words that name them.
 */
#include "layout/layout.h"
#include "tensor/dist/spread.h"
#include "tests/support/check.h"
#include "tests/support/info.h"
#include "tests/tensor/distributed.h"

#include <math.h>
#include <string.h>

enum { INPUTS_MAX = 3 };

typedef reshard_tensor *(*op_fn)(reshard_tensor *const *inputs);

typedef struct op_case {
    const char *name;
    op_fn fn;
    int32_t count;
    int32_t ndims[INPUTS_MAX];
    int64_t shapes[INPUTS_MAX][4];
    int64_t limit[INPUTS_MAX]; /* not 0: indices below this */
    int32_t ranks;
    const char *specs[INPUTS_MAX]; /* where inputs are made */
    const char *partial;           /* input 0 is moved to this before the operation */
    const char *expected;          /* spec of the output, or words of the error */
    bool refused;
} op_case;

#define FN(name, call)                                     \
    static reshard_tensor *name(reshard_tensor *const *in) \
    {                                                      \
        return call;                                       \
    }

FN(do_add, reshard_add(in[0], in[1]))
FN(do_mul, reshard_mul(in[0], in[1]))
FN(do_scale, reshard_scale(in[0], 3))
FN(do_relu, reshard_relu(in[0]))
FN(do_gelu, reshard_gelu(in[0]))
FN(do_silu, reshard_silu(in[0]))
FN(do_dropout, reshard_dropout(in[0], 0.4, 12))
FN(do_sum, reshard_sum(in[0]))
FN(do_mean, reshard_mean(in[0]))
FN(do_softmax, reshard_softmax(in[0], -1))
FN(do_softmax_first, reshard_softmax(in[0], 0))
FN(do_transpose, reshard_tensor_transpose(in[0], 0, 1))
FN(do_cat, reshard_cat(2, (reshard_tensor *[]){in[0], in[1]}, 1))
FN(do_linear, reshard_linear(in[0], in[1], in[2]))
FN(do_linear_plain, reshard_linear(in[0], in[1], NULL))
FN(do_embedding, reshard_embedding(in[0], in[1]))
FN(do_layernorm, reshard_layernorm(in[0], in[1], in[2], 0.01))
FN(do_rmsnorm, reshard_rmsnorm(in[0], in[1], 0.01))
FN(do_cross_entropy, reshard_cross_entropy(in[0], in[1], NULL))
FN(do_padded, reshard_cross_entropy(in[0], in[1],
                                    &(reshard_cross_entropy_options){
                                        .size = sizeof(reshard_cross_entropy_options),
                                        .ignores = 1,
                                        .ignore_index = 2,
                                        .classes = 5}))
FN(do_log_softmax, reshard_log_softmax(in[0], -1))
FN(do_attention, reshard_causal_attention(in[0], in[1], in[2], 0))
FN(do_narrow, reshard_tensor_narrow(in[0], 0, 1, 3))
FN(do_sum_dim, reshard_reduce_dims(in[0], RESHARD_SUM, 1, (int32_t[]){0}, 0))
FN(do_select, reshard_index_select(in[0], 1, in[1]))
FN(do_merge, reshard_tensor_reshape(in[0], SHAPE(-1)))
FN(do_heads, reshard_tensor_reshape(in[0], SHAPE(10, 3, 4)))
FN(do_matmul, reshard_matmul(in[0], in[1]))
FN(do_neg, reshard_neg(in[0]))
FN(do_exp, reshard_exp(in[0]))
FN(do_sub, reshard_sub(in[0], in[1]))
FN(do_div, reshard_div(in[0], in[1]))
FN(do_where, reshard_where(in[2], in[0], in[1]))
FN(do_masked_fill, reshard_masked_fill(in[0], in[1], 4))
FN(do_sum_dims, reshard_reduce_dims(in[0], RESHARD_SUM, 2, (int32_t[]){0, 2}, 0))
FN(do_mean_dims, reshard_reduce_dims(in[0], RESHARD_AVG, 2, (int32_t[]){0, 2}, 1))
FN(do_max_dims, reshard_reduce_dims(in[0], RESHARD_MAX, 1, (int32_t[]){-1}, 0))
FN(do_min_dims, reshard_reduce_dims(in[0], RESHARD_MIN, 1, (int32_t[]){-1}, 0))
FN(do_bmm, reshard_bmm(in[0], 0, in[1], 1))

static reshard_tensor *do_split(reshard_tensor *const *in)
{
    reshard_tensor *parts[2] = {NULL, NULL};
    reshard_split(in[0], 0, 2, (int64_t[]){3, 2}, parts);
    return (parts[0] == NULL) == (parts[1] == NULL) ? parts[1] : NULL;
}

#define ONE        \
    {2}, {{5, 3}}, \
    {              \
        0          \
    }
#define TWO                   \
    {2, 2}, {{5, 3}, {5, 3}}, \
    {                         \
        0                     \
    }
#define LINEAR                           \
    {3, 2, 1}, {{2, 3, 5}, {7, 5}, {7}}, \
    {                                    \
        0                                \
    }
#define ROWS                          \
    {3, 1, 1}, {{2, 3, 5}, {5}, {5}}, \
    {                                 \
        0                             \
    }
#define EMBEDDING             \
    {2, 2}, {{7, 5}, {3, 2}}, \
    {                         \
        0, 7                  \
    }
#define LOGITS                   \
    {3, 2}, {{5, 2, 4}, {5, 2}}, \
    {                            \
        0, 4                     \
    }
#define SELECT             \
    {2, 1}, {{5, 3}, {4}}, \
    {                      \
        0, 3               \
    }
#define HEADED         \
    {3}, {{5, 2, 12}}, \
    {                  \
        0              \
    }
#define CHOICE                           \
    {2, 2, 2}, {{5, 3}, {5, 3}, {5, 3}}, \
    {                                    \
        0, 0, 2                          \
    }
#define FILL                  \
    {2, 2}, {{5, 3}, {5, 3}}, \
    {                         \
        0, 2                  \
    }
#define MATMUL                   \
    {3, 2}, {{2, 3, 5}, {5, 7}}, \
    {                            \
        0                        \
    }
#define BATCHES                     \
    {3, 3}, {{3, 2, 5}, {3, 5, 2}}, \
    {                               \
        0                           \
    }
#define HEADS                                              \
    {4, 4, 4}, {{2, 3, 4, 2}, {2, 3, 4, 2}, {2, 3, 4, 2}}, \
    {                                                      \
        0                                                  \
    }

static const op_case cases[] = {
    /* element by element, on any layout */
    {"add", do_add, 2, TWO, 4, {"4: S(0)", "4: S(0)"}, NULL, "4: S(0)", false},
    {"add", do_add, 2, TWO, 3, {"3: S(1/1)", "3: S(1/1)"}, NULL, "3: S(1/1)", false},
    {"add", do_add, 2, TWO, 2, {"2: P(sum)", "2: P(sum)"}, "2: P(sum)", "2: P(sum)", false},
    {"mul", do_mul, 2, TWO, 4, {"2,2: S(0), R", "2,2: S(0), R"}, NULL, "2,2: S(0), R", false},
    {"mul", do_mul, 2, TWO, 3, {"3: S(flat)", "3: S(flat)"}, NULL, "3: S(flat)", false},
    {"scale", do_scale, 1, ONE, 2, {"2: R"}, "2: P(avg)", "2: P(avg)", false},
    {"relu", do_relu, 1, ONE, 3, {"3[2,0,1]: S(0)"}, NULL, "3[2,0,1]: S(0)", false},
    {"gelu", do_gelu, 1, ONE, 3, {"2[2,0]: S(1)"}, NULL, "2[2,0]: S(1)", false},
    {"silu",
     do_silu,
     1,
     ONE,
     2,
     {"boxes 5x3: 0[0:2,0:3]@0,0+[4:5,0:3]@2,0 1[2:4,0:3]"},
     NULL,
     NULL,
     false},
    {"dropout", do_dropout, 1, ONE, 5, {"5: S(0)"}, NULL, "5: S(0)", false},
    {"dropout", do_dropout, 1, ONE, 2, {"2: S(1)"}, NULL, "2: S(1)", false},
    /* reductions */
    {"sum", do_sum, 1, ONE, 4, {"2,2: S(0), S(1)"}, NULL, "2,2: P(sum), P(sum)", false},
    {"sum", do_sum, 1, ONE, 4, {"2,2: S(0), R"}, NULL, "2,2: P(sum), R", false},
    {"mean", do_mean, 1, ONE, 4, {"4: S(0)"}, NULL, "4: P(sum)", false},
    {"mean", do_mean, 1, ONE, 3, {"3: R"}, "3: P(avg)", "3: P(avg)", false},
    /* rows */
    {"softmax", do_softmax, 1, ONE, 4, {"4: S(0)"}, NULL, "4: S(0)", false},
    {"softmax first", do_softmax_first, 1, ONE, 3, {"3: S(1)"}, NULL, "3: S(1)", false},
    {"layernorm",
     do_layernorm,
     3,
     ROWS,
     4,
     {"2,2: S(1), R", "2,2: R, R", "2,2: R, R"},
     NULL,
     "2,2: S(1), R",
     false},
    {"rmsnorm", do_rmsnorm, 2, ROWS, 3, {"3: S(0)", "3: R"}, NULL, "3: S(0)", false},
    {"cross_entropy",
     do_cross_entropy,
     2,
     LOGITS,
     3,
     {"3: S(0)", "3: S(0)"},
     NULL,
     "3: P(sum)",
     false},
    {"cross_entropy", do_cross_entropy, 2, LOGITS, 2, {"2: R", "2: R"}, NULL, "2: R", false},
    /* rows that are cut: evenly or not, in blocks, with a rank that has nothing, by two axes */
    {"softmax", do_softmax, 1, ONE, 2, {"2: S(1)"}, NULL, "2: S(1)", false},
    {"softmax", do_softmax, 1, ONE, 4, {"4[2,0,3,1]: S(1)"}, NULL, "4[2,0,3,1]: S(1)", false},
    {"softmax first", do_softmax_first, 1, ONE, 3, {"3: S(0/1)"}, NULL, "3: S(0/1)", false},
    {"log_softmax", do_log_softmax, 1, ONE, 4, {"2,2: S(1), S(0)"}, NULL, "2,2: S(1), S(0)", false},
    {"log_softmax", do_log_softmax, 1, ONE, 3, {"3: S(0)"}, NULL, "3: S(0)", false},
    {"cross_entropy", do_cross_entropy, 2, LOGITS, 3, {"3: S(2)", "3: R"}, NULL, "3: R", false},
    {"cross_entropy", do_cross_entropy, 2, LOGITS, 3, {"3: S(2/1)", "3: R"}, NULL, "3: R", false},
    {"cross_entropy",
     do_cross_entropy,
     2,
     LOGITS,
     4,
     {"2,2: S(0), S(2)", "2,2: S(0), R"},
     NULL,
     "2,2: P, R",
     false},
    {"cross_entropy",
     do_cross_entropy,
     2,
     LOGITS,
     4,
     {"2,2: S(2), S(2)", "2,2: R, R"},
     NULL,
     "2,2: R, R",
     false},
    {"cross_entropy, padded",
     do_padded,
     2,
     {3, 2},
     {{5, 2, 7}, {5, 2}},
     {0, 5},
     4,
     {"2,2: S(0), S(2)", "2,2: S(0), R"},
     NULL,
     "2,2: P, R",
     false},
    {"cross_entropy, padded",
     do_padded,
     2,
     {3, 2},
     {{5, 2, 7}, {5, 2}},
     {0, 5},
     3,
     {"3: S(2/1)", "3: R"},
     NULL,
     "3: R",
     false},
    {"attention",
     do_attention,
     3,
     HEADS,
     4,
     {"2,2: S(0), S(1)", "2,2: S(0), S(1)", "2,2: S(0), S(1)"},
     NULL,
     "2,2: S(0), S(1)",
     false},
    /* shapes */
    {"transpose", do_transpose, 1, ONE, 3, {"3: S(0)"}, NULL, "3: S(1)", false},
    {"transpose", do_transpose, 1, ONE, 3, {"3: R"}, "3: P(sum)", "3: P(sum)", false},
    {"cat",
     do_cat,
     2,
     {2, 2},
     {{5, 3}, {5, 2}},
     {0},
     4,
     {"4: S(0)", "4: S(0)"},
     NULL,
     "4: S(0)",
     false},
    {"sum_dim", do_sum_dim, 1, ONE, 3, {"3: S(0)"}, NULL, "3: P(sum)", false},
    {"sum_dim", do_sum_dim, 1, ONE, 3, {"3: S(1)"}, NULL, "3: S(0)", false},
    {"sum_dim", do_sum_dim, 1, ONE, 4, {"2,2: S(1), S(0)"}, NULL, "2,2: S(0), P(sum)", false},
    {"sum_dim", do_sum_dim, 1, ONE, 2, {"2: R"}, "2: P(avg)", "2: P(avg)", false},
    {"narrow", do_narrow, 1, ONE, 3, {"3: S(1)"}, NULL, "3: S(1)", false},
    {"narrow", do_narrow, 1, ONE, 2, {"2: R"}, "2: P(max)", "2: P(max)", false},
    {"split", do_split, 1, ONE, 2, {"2: S(1)"}, NULL, "2: S(1)", false},
    {"index_select", do_select, 2, SELECT, 3, {"3: S(0)", "3: R"}, NULL, "3: S(0)", false},
    {"reshape", do_merge, 1, ONE, 5, {"5: S(0)"}, NULL, "5: S(0)", false},
    {"reshape", do_heads, 1, HEADED, 3, {"3: S(2)"}, NULL, "3: S(1)", false},
    {"reshape", do_heads, 1, HEADED, 5, {"5: S(0~)"}, NULL, "5: S(0~)", false},
    /* matmul as linear, with the weight's dims in the other order; and by batches */
    {"matmul", do_matmul, 2, MATMUL, 4, {"4: S(1)", "4: R"}, NULL, "4: S(1)", false},
    {"matmul", do_matmul, 2, MATMUL, 3, {"3: R", "3: S(1)"}, NULL, "3: S(2)", false},
    {"matmul", do_matmul, 2, MATMUL, 2, {"2: S(2)", "2: S(0)"}, NULL, "2: P(sum)", false},
    {"matmul", do_matmul, 2, MATMUL, 2, {"2: R", "2: R"}, "2: P(sum)", "2: P(sum)", false},
    {"matmul", do_matmul, 2, BATCHES, 2, {"2: S(0)", "2: S(0)"}, NULL, "2: S(0)", false},
    /* linear: the five lines of the table, and axes together */
    {"linear", do_linear, 3, LINEAR, 3, {"3: R", "3: R", "3: R"}, NULL, "3: R", false},
    {"linear", do_linear, 3, LINEAR, 4, {"4: S(1)", "4: R", "4: R"}, NULL, "4: S(1)", false},
    {"linear", do_linear, 3, LINEAR, 3, {"3: R", "3: S(0)", "3: S(0)"}, NULL, "3: S(2)", false},
    {"linear", do_linear, 3, LINEAR, 2, {"2: S(2)", "2: S(1)", "2: R"}, NULL, "2: P(sum)", false},
    {"linear", do_linear, 3, LINEAR, 3, {"3: R", "3: R", "3: R"}, "3: P(sum)", "3: P(sum)", false},
    {"linear", do_linear_plain, 2, LINEAR, 5, {"5: R", "5: S(0)"}, NULL, "5: S(2)", false},
    {"linear",
     do_linear,
     3,
     LINEAR,
     4,
     {"2,2: S(0), R", "2,2: R, S(0)", "2,2: R, S(0)"},
     NULL,
     "2,2: S(0), S(2)",
     false},
    {"linear",
     do_linear,
     3,
     LINEAR,
     4,
     {"2,2: S(1), S(2)", "2,2: R, S(1)", "2,2: R, R"},
     NULL,
     "2,2: S(1), P(sum)",
     false},
    {"linear",
     do_linear,
     3,
     LINEAR,
     4,
     {"2,2: S(2), R", "2,2: S(1), S(0)", "2,2: R, S(0)"},
     NULL,
     "2,2: P(sum), S(2)",
     false},
    {"linear", do_linear, 3, LINEAR, 3, {"3: S(2~)", "3: S(1~)", "3: R"}, NULL, "3: P(sum)", false},
    /* embedding */
    {"embedding", do_embedding, 2, EMBEDDING, 3, {"3: S(0)", "3: R"}, NULL, "3: P(sum)", false},
    {"embedding", do_embedding, 2, EMBEDDING, 3, {"3: S(0/2)", "3: R"}, NULL, "3: P(sum)", false},
    {"embedding", do_embedding, 2, EMBEDDING, 2, {"2: S(1)", "2: R"}, NULL, "2: S(2)", false},
    {"embedding", do_embedding, 2, EMBEDDING, 2, {"2: R", "2: S(0)"}, NULL, "2: S(0)", false},
    {"embedding",
     do_embedding,
     2,
     EMBEDDING,
     4,
     {"2,2: S(0), R", "2,2: R, S(0)"},
     NULL,
     "2,2: P(sum), S(0)",
     false},
    /* the small ones */
    {"neg", do_neg, 1, ONE, 2, {"2: R"}, "2: P(avg)", "2: P(avg)", false},
    {"exp", do_exp, 1, ONE, 3, {"3: S(flat)"}, NULL, "3: S(flat)", false},
    {"sub", do_sub, 2, TWO, 2, {"2: P(sum)", "2: P(sum)"}, "2: P(sum)", "2: P(sum)", false},
    {"div", do_div, 2, TWO, 4, {"2,2: S(0), R", "2,2: S(0), R"}, NULL, "2,2: S(0), R", false},
    {"where", do_where, 3, CHOICE, 2, {"2: S(1)", "2: S(1)", "2: S(1)"}, NULL, "2: S(1)", false},
    {"masked_fill", do_masked_fill, 2, FILL, 3, {"3: S(0)", "3: S(0)"}, NULL, "3: S(0)", false},
    {"sum_dims", do_sum_dims, 1, HEADED, 3, {"3: S(2)"}, NULL, "3: P(sum)", false},
    {"sum_dims", do_sum_dims, 1, HEADED, 2, {"2: S(1)"}, NULL, "2: S(0)", false},
    {"sum_dims", do_sum_dims, 1, HEADED, 4, {"2,2: S(0), S(1)"}, NULL, "2,2: P, S(0)", false},
    {"mean_dims", do_mean_dims, 1, HEADED, 4, {"2,2: S(0), S(2)"}, NULL, "2,2: P, P", false},
    {"mean_dims", do_mean_dims, 1, HEADED, 2, {"2: S(1)"}, NULL, "2: S(1)", false},
    {"mean_dims", do_mean_dims, 1, HEADED, 2, {"2: R"}, "2: P(avg)", "2: P(avg)", false},
    {"max_dims", do_max_dims, 1, ONE, 3, {"3: S(0)"}, NULL, "3: S(0)", false},
    {"min_dims", do_min_dims, 1, ONE, 3, {"3: S(0)"}, NULL, "3: S(0)", false},
    {"bmm",
     do_bmm,
     2,
     {3, 3},
     {{3, 2, 5}, {3, 4, 5}},
     {0},
     2,
     {"2: S(0)", "2: S(0)"},
     NULL,
     "2: S(0)",
     false},
    /* what does not fit */
    {"exp",
     do_exp,
     1,
     ONE,
     2,
     {"2: R"},
     "2: P(sum)",
     "exp: a tensor with the partial layout \"2: P(sum)\": redistribute it first",
     true},
    {"div",
     do_div,
     2,
     TWO,
     2,
     {"2: P(sum)", "2: P(sum)"},
     "2: P(sum)",
     "div: a tensor with the partial layout \"2: P(sum)\": redistribute it first",
     true},
    {"where",
     do_where,
     3,
     CHOICE,
     2,
     {"2: S(1)", "2: S(1)", "2: R"},
     NULL,
     "where: input 0 has the layout \"2: S(1)\" and input 2 \"2: R\"",
     true},
    {"max_dims",
     do_max_dims,
     1,
     ONE,
     2,
     {"2: R"},
     "2: P(sum)",
     "max_dims: a tensor with the partial layout \"2: P(sum)\": redistribute it first",
     true},
    {"max_dims",
     do_max_dims,
     1,
     ONE,
     2,
     {"2: S(1)"},
     NULL,
     "max_dims: dimension 1 is cut by \"2: S(1)\", which has no gradient: redistribute it first",
     true},
    {"mean_dims",
     do_mean_dims,
     1,
     HEADED,
     2,
     {"2: R"},
     "2: P(min)",
     "mean_dims: a tensor with the partial layout \"2: P(min)\": redistribute it first",
     true},
    {"add",
     do_add,
     2,
     TWO,
     2,
     {"2: S(0)", "2: S(1)"},
     NULL,
     "add: input 0 has the layout \"2: S(0)\" and input 1 \"2: S(1)\"",
     true},
    {"relu",
     do_relu,
     1,
     ONE,
     2,
     {"2: R"},
     "2: P(sum)",
     "relu: a tensor with the partial layout \"2: P(sum)\": redistribute it first",
     true},
    {"scale",
     do_scale,
     1,
     ONE,
     2,
     {"2: R"},
     "2: P(max)",
     "scale: a tensor with the partial layout \"2: P(max)\": redistribute it first",
     true},
    {"softmax",
     do_softmax,
     1,
     ONE,
     2,
     {"2: S(flat)"},
     NULL,
     "softmax: the last dimension is cut by \"2: S(flat)\"",
     true},
    {"softmax",
     do_softmax,
     1,
     ONE,
     4,
     {"2,2: S(1), R"},
     "2,2: S(1), P",
     "softmax: a tensor with the partial layout \"2,2: S(1), P(sum)\": redistribute it first",
     true},
    {"cross_entropy",
     do_cross_entropy,
     2,
     LOGITS,
     2,
     {"2: S(2)", "2: S(0)"},
     NULL,
     "cross_entropy: logits with \"2: S(2)\" and labels with \"2: S(0)\"",
     true},
    {"linear",
     do_linear_plain,
     2,
     LINEAR,
     2,
     {"2: S(2)", "2: S(0)"},
     NULL,
     "linear: axis 0: x with \"2: S(2)\" and weight with \"2: S(0)\" do not fit, with bias "
     "\"none\"",
     true},
    {"linear",
     do_linear_plain,
     2,
     LINEAR,
     2,
     {"1[1]: S(flat)", "1[1]: R"},
     NULL,
     "linear: a tensor with the layout \"1[1]: S(flat)\"",
     true},
    {"linear",
     do_linear,
     3,
     LINEAR,
     2,
     {"2: R", "2: S(0)", "2: R"},
     NULL,
     "linear: axis 0: x with \"2: R\" and weight with \"2: S(0)\" do not fit, with bias \"2: R\"",
     true},
    {"linear",
     do_linear_plain,
     2,
     LINEAR,
     4,
     {"4: R", "2,2: S(0), R"},
     NULL,
     "linear: layouts over different meshes: \"4: R\" and \"2,2: S(0), R\"",
     true},
    {"linear", /* the bias would be added to other columns than its own */
     do_linear,
     3,
     LINEAR,
     4,
     {"2,2: R, R", "2,2: S(0), S(0)", "2,2: S(0)@1, S(0)@0"},
     NULL,
     "linear: input 2 with \"2,2: S(0)@1, S(0)@0\" and input 1 with \"2,2: S(0), S(0)\" are cut in "
     "different orders",
     true},
    {"embedding",
     do_embedding,
     2,
     EMBEDDING,
     2,
     {"2: S(0)", "2: S(0)"},
     NULL,
     "embedding: weight with \"2: S(0)\" and indices with \"2: S(0)\"",
     true},
    {"cat",
     do_cat,
     2,
     TWO,
     2,
     {"2: S(1)", "2: S(1)"},
     NULL,
     "cat: dimension 1 is cut by \"2: S(1)\"",
     true},
    {"layernorm",
     do_layernorm,
     3,
     ROWS,
     2,
     {"2: S(2)", "2: R", "2: R"},
     NULL,
     "layernorm: x with \"2: S(2)\": rows have to be whole, redistribute it first",
     true},
    {"layernorm",
     do_layernorm,
     3,
     ROWS,
     2,
     {"2: S(0)", "2: S(0)", "2: R"},
     NULL,
     "layernorm: a weight with \"2: S(0)\", which is not replicated",
     true},
    {"cross_entropy",
     do_cross_entropy,
     2,
     LOGITS,
     2,
     {"2: S(0)", "2: R"},
     NULL,
     "cross_entropy: logits with \"2: S(0)\" and labels with \"2: R\"",
     true},
    {"attention",
     do_attention,
     3,
     HEADS,
     2,
     {"2: S(2)", "2: S(2)", "2: S(2)"},
     NULL,
     "causal_attention: q is cut otherwise than over batch and heads",
     true},
    {"narrow",
     do_narrow,
     1,
     ONE,
     2,
     {"2: S(0)"},
     NULL,
     "narrow: dimension 0 is cut by \"2: S(0)\"",
     true},
    {"split",
     do_split,
     1,
     ONE,
     2,
     {"2: S(0)"},
     NULL,
     "narrow: dimension 0 is cut by \"2: S(0)\"",
     true},
    {"index_select",
     do_select,
     2,
     SELECT,
     2,
     {"2: S(1)", "2: R"},
     NULL,
     "index_select: dimension 1 is cut by \"2: S(1)\"",
     true},
    {"index_select",
     do_select,
     2,
     SELECT,
     2,
     {"2: S(0)", "2: S(0)"},
     NULL,
     "index_select: indices with \"2: S(0)\", which are not replicated",
     true},
    {"sum_dim",
     do_sum_dim,
     1,
     ONE,
     2,
     {"2: R"},
     "2: P(max)",
     "sum_dims: a tensor with the partial layout \"2: P(max)\": redistribute it first",
     true},
    {"reshape",
     do_merge,
     1,
     ONE,
     2,
     {"2: S(0)"}, /* 5 rows over 2 are 3 and 2: as 15 elements 9 and 6, and not 8 and 7 */
     NULL,
     "reshape: dimension 0 is cut by \"2: S(0)\" in another way than the new shape's dims",
     true},
    {"reshape",
     do_merge,
     1,
     ONE,
     3,
     {"3: S(1)"},
     NULL,
     "reshape: dimension 1 is cut by \"3: S(1)\" in another way than the new shape's dims",
     true},
    {"matmul",
     do_matmul,
     2,
     MATMUL,
     2,
     {"2: S(0)", "2: S(1)"},
     NULL,
     "matmul: axis 0: a with \"2: S(0)\" and b with \"2: S(1)\" do not fit",
     true},
    {"matmul",
     do_matmul,
     2,
     BATCHES,
     2,
     {"2: S(2)", "2: R"},
     NULL,
     "matmul: axis 0: a with \"2: S(2)\" and b with \"2: R\" do not fit",
     true},
};

static reshard_tensor *make_whole(const op_case *c, int32_t i)
{
    draw_state draw;
    draw_seed(&draw, 70 + (uint64_t)i);
    if (c->limit[i] == 0)
        return make_random(RESHARD_F64, &draw, c->ndims[i], c->shapes[i]);
    reshard_tensor *made = make_zeros(RESHARD_I64, c->ndims[i], c->shapes[i]);
    for (int64_t k = 0; k < reshard_tensor_volume(made); k++)
        set_element(made, k, (double)draw_below(&draw, c->limit[i]));
    return made;
}

/* The same inputs whole and distributed. */
static reshard_status make_inputs(const op_case *c, reshard_group *group, reshard_tensor **wholes,
                                  reshard_tensor **spread)
{
    for (int32_t i = 0; i < c->count; i++) {
        /* A partial tensor is made on its way: see prepare. */
        reshard_spec *spec = spec_of(strstr(c->specs[i], "P(") != NULL ? "2: R" : c->specs[i]);
        wholes[i] = make_whole(c, i);
        if (c->limit[i] == 0)
            TRY(reshard_tensor_set_requires_grad(wholes[i], 1));
        TRY(reshard_tensor_shard(NULL, group, spec, 0, wholes[i], &spread[i]));
        CHECK(info_tensor(spread[i]).requires_grad == (c->limit[i] == 0));
        reshard_spec_release(spec);
    }
    return RESHARD_OK;
}

static void prepare(const op_case *c, reshard_tensor *const *spread, reshard_tensor **ready)
{
    for (int32_t i = 0; i < c->count; i++) {
        ready[i] = spread[i];
        if (c->partial != NULL && (i == 0 || strstr(c->specs[i], "P(") != NULL))
            ready[i] = move_to(spread[i], c->partial);
    }
}

static reshard_status compare(const op_case *c, reshard_tensor *const *wholes,
                              reshard_tensor *const *spread)
{
    reshard_tensor *ready[INPUTS_MAX], *weights = NULL;
    reshard_scope *scope = NULL;
    char text[200];
    size_t length = 0;
    TRY(reshard_scope_open(NULL, &scope));
    prepare(c, spread, ready);
    reshard_tensor *expected = c->fn(wholes), *output = c->fn(ready);
    CHECK(expected != NULL && output != NULL);
    TRY(reshard_spec_text(reshard_tensor_layout(output)->spec, text, sizeof text, &length));
    if (c->expected != NULL) { /* written otherwise, it may still be the same */
        reshard_layout *layout = NULL;
        TRY(reshard_layout_parse(NULL, c->expected, reshard_tensor_ndim(output),
                                 reshard_tensor_shape(output), &layout));
        int same = reshard_layout_equals(layout, reshard_tensor_layout(output));
        reshard_layout_release(layout);
        if (!same)
            (void)reshard_error_set(RESHARD_ERR_CHECK, text);
        CHECK(same);
    }
    reshard_tensor *found = reshard_tensor_full(output);
    CHECK(is_close(found, expected, 1e-12));
    weights = make_zeros(RESHARD_F64, reshard_tensor_ndim(found), reshard_tensor_shape(found));
    for (int64_t i = 0; i < reshard_tensor_volume(weights); i++)
        set_element(weights, i, (double)(i % 5) - 1.5);
    (void)reshard_backward(found, weights, NULL);
    (void)reshard_backward(expected, weights, NULL);
    reshard_tensor_release(weights);
    TRY(reshard_scope_close(scope));
    for (int32_t i = 0; i < c->count; i++) {
        if (c->limit[i] != 0)
            continue;
        CHECK(reshard_layout_equals(reshard_tensor_layout(reshard_tensor_gradient(spread[i])),
                                    reshard_tensor_layout(spread[i])));
        reshard_tensor *gradient = whole_of(reshard_tensor_gradient(spread[i]));
        CHECK(is_close(gradient, reshard_tensor_gradient(wholes[i]), 1e-12));
        reshard_tensor_release(gradient);
    }
    return RESHARD_OK;
}

static reshard_status run_case(void *user, reshard_group *group)
{
    const op_case *c = user;
    reshard_tensor *wholes[INPUTS_MAX] = {NULL}, *spread[INPUTS_MAX] = {NULL};
    TRY(make_inputs(c, group, wholes, spread));
    if (c->refused) {
        reshard_tensor *ready[INPUTS_MAX];
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        prepare(c, spread, ready);
        CHECK(c->fn(ready) == NULL);
        CHECK(reshard_scope_close(scope) != RESHARD_OK);
        CHECK(strcmp(reshard_error_text(), c->expected) == 0);
    } else {
        TRY(compare(c, wholes, spread));
    }
    for (int32_t i = 0; i < c->count; i++) {
        reshard_tensor_release(wholes[i]);
        reshard_tensor_release(spread[i]);
    }
    return RESHARD_OK;
}

static void test_spread__as_on_whole_tensors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        op_case c = cases[i];
        if (reshard_group_run(NULL, c.ranks, run_case, &c) != RESHARD_OK)
            fail_msg("%s on %s, %s, %s: %s", c.name, c.specs[0],
                     c.specs[1] != NULL ? c.specs[1] : "-", c.specs[2] != NULL ? c.specs[2] : "-",
                     reshard_error_text());
    }
}

/* ---- a model: column, then row parallel, with a residual ------------------------------------- */

static reshard_tensor *forward(reshard_tensor *const *p, reshard_tensor *x, reshard_tensor *labels,
                               const char *whole)
{
    reshard_tensor *hidden = reshard_gelu(reshard_linear(x, p[0], p[1]));
    reshard_tensor *sum = reshard_linear(hidden, p[2], p[3]);
    if (whole != NULL)
        sum = move_to(sum, whole);
    x = reshard_rmsnorm(reshard_add(x, sum), p[4], 1e-5);
    reshard_tensor *loss = reshard_cross_entropy(reshard_linear(x, p[5], NULL), labels, NULL);
    return whole != NULL ? reshard_tensor_full(loss) : loss;
}

static reshard_status train(void *user, reshard_group *group)
{
    static const struct {
        int32_t ndim;
        int64_t shape[2];
        const char *spec;
    } rows[] = {{2, {6, 4}, "dp=2,tp=2: R, S(0)"}, {1, {6}, "dp=2,tp=2: R, S(0)"},
                {2, {4, 6}, "dp=2,tp=2: R, S(1)"}, {1, {4}, "dp=2,tp=2: R, R"},
                {1, {4}, "dp=2,tp=2: R, R"},       {2, {3, 4}, "dp=2,tp=2: R, R"}};
    (void)user;
    reshard_tensor *wholes[6], *params[6] = {NULL}, *x = NULL, *labels = NULL;
    draw_state draw;
    draw_seed(&draw, 8);
    for (int i = 0; i < 6; i++) {
        reshard_spec *spec = spec_of(rows[i].spec);
        wholes[i] = make_random(RESHARD_F64, &draw, rows[i].ndim, rows[i].shape);
        TRY(reshard_tensor_set_requires_grad(wholes[i], 1));
        TRY(reshard_tensor_shard(NULL, group, spec, 0, wholes[i], &params[i]));
        reshard_spec_release(spec);
    }
    reshard_tensor *x_whole = make_random(RESHARD_F64, &draw, SHAPE(5, 4));
    reshard_tensor *labels_whole = make_zeros(RESHARD_I64, SHAPE(5));
    for (int i = 0; i < 5; i++)
        set_element(labels_whole, i, i % 3);
    reshard_spec *batch = spec_of("dp=2,tp=2: S(0), R");
    TRY(reshard_tensor_shard(NULL, group, batch, 0, x_whole, &x));
    TRY(reshard_tensor_shard(NULL, group, batch, 0, labels_whole, &labels));
    reshard_spec_release(batch);
    for (int turn = 0; turn < 2; turn++) { /* the second one finds all plans ready */
        reshard_scope *scope = NULL;
        reshard_tensor_info before = {.size = sizeof before}, after = before;
        TRY(reshard_tensor_get_info(x, &before));
        TRY(reshard_scope_open(NULL, &scope));
        reshard_tensor *loss = forward(params, x, labels, "dp=2,tp=2: S(0), R");
        reshard_tensor *expected = forward(wholes, x_whole, labels_whole, NULL);
        CHECK(is_close(loss, expected, 1e-12));
        (void)reshard_backward(loss, NULL, NULL);
        (void)reshard_backward(expected, NULL, NULL);
        TRY(reshard_scope_close(scope));
        TRY(reshard_tensor_get_info(x, &after));
        CHECK(turn == 0 || after.plan_misses == before.plan_misses);
        for (int i = 0; i < 6; i++) {
            /* Not through whole_of, which would use other plans. */
            const reshard_tensor *mine =
                reshard_tensor_local_shard(reshard_tensor_gradient(params[i]), 0);
            CHECK(mine != NULL && reshard_tensor_volume(mine) > 0);
        }
    }
    for (int i = 0; i < 6; i++) {
        reshard_tensor *gradient = whole_of(reshard_tensor_gradient(params[i]));
        CHECK(is_close(gradient, reshard_tensor_gradient(wholes[i]), 1e-12));
        reshard_tensor_release(gradient);
        reshard_tensor_release(wholes[i]);
        reshard_tensor_release(params[i]);
    }
    reshard_tensor_release(x);
    reshard_tensor_release(labels);
    reshard_tensor_release(x_whole);
    reshard_tensor_release(labels_whole);
    return RESHARD_OK;
}

static void test_model__tensor_and_data_parallel(void **state)
{
    (void)state;
    run_ranks(4, train, NULL);
}

/* Each rank's own sum, too, is more than an f16 can hold. */
static reshard_status average_halves(void *user, reshard_group *group)
{
    (void)user;
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *x = spread_random(group, "2: S(0)", RESHARD_F16, SHAPE(8), 1);
    TRY(reshard_tensor_fill(x, 40000));
    reshard_tensor *mean = reshard_tensor_full(reshard_mean(x));
    CHECK(mean != NULL && element(mean, 0) == 40000);
    reshard_tensor_release(x);
    return reshard_scope_close(scope);
}

static void test_mean__of_halves_does_not_overflow(void **state)
{
    (void)state;
    run_ranks(2, average_halves, NULL);
}

/* Where no gradient is recorded, the maximum along a cut dim is a partial one; a rank may have no
 * part of the dim. */
static reshard_status maximum(void *user, reshard_group *group)
{
    (void)user;
    reshard_scope *scope = NULL;
    reshard_tensor *x = spread_random(group, "4: S(1)", RESHARD_F32, SHAPE(5, 3), 1);
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *whole = reshard_tensor_full(x);
    reshard_tensor *y = reshard_reduce_dims(x, RESHARD_MAX, 1, (int32_t[]){1}, 0);
    TRY(reshard_scope_status(scope));
    reshard_layout *layout = NULL;
    TRY(reshard_layout_parse(NULL, "4: P(max)", SHAPE(5), &layout));
    CHECK(reshard_layout_equals(layout, reshard_tensor_layout(y)));
    reshard_layout_release(layout);
    reshard_tensor *again = reshard_reduce_dims(y, RESHARD_MAX, 1, (int32_t[]){0}, 1);
    CHECK(is_close(reshard_tensor_full(y),
                   reshard_reduce_dims(whole, RESHARD_MAX, 1, (int32_t[]){1}, 0), 0));
    CHECK(is_close(reshard_tensor_full(again),
                   reshard_reduce_dims(whole, RESHARD_MAX, 2, (int32_t[]){0, 1}, 0), 0));
    /* The same of minima, which are compared with a plain loop. */
    y = reshard_reduce_dims(x, RESHARD_MIN, 1, (int32_t[]){1}, 0);
    TRY(reshard_layout_parse(NULL, "4: P(min)", SHAPE(5), &layout));
    CHECK(reshard_layout_equals(layout, reshard_tensor_layout(y)));
    reshard_layout_release(layout);
    y = reshard_tensor_full(y);
    reshard_tensor *local = reshard_reduce_dims(whole, RESHARD_MIN, 1, (int32_t[]){1}, 0);
    TRY(reshard_scope_status(scope));
    for (int64_t i = 0; i < 5; i++) {
        double least =
            fmin(fmin(element(whole, 3 * i), element(whole, 3 * i + 1)), element(whole, 3 * i + 2));
        CHECK(element(y, i) == least && element(local, i) == least);
    }
    reshard_tensor_release(x);
    return reshard_scope_close(scope);
}

static void test_max__of_cut_dims_is_partial(void **state)
{
    (void)state;
    run_ranks(4, maximum, NULL);
}

/* As many tensors at once as the limit says, and not one more. */
static reshard_status body_many(void *user, reshard_group *group)
{
    (void)user;
    reshard_tensor *x = spread_random(group, "2: S(0)", RESHARD_F64, SHAPE(4, 1), 1);
    reshard_tensor *many[RS_SPREAD_MAX + 1];
    reshard_scope *scope = NULL;
    for (int i = 0; i <= RS_SPREAD_MAX; i++)
        many[i] = x;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_tensor_full(reshard_cat(RS_SPREAD_MAX, many, 1));
    TRY(reshard_scope_status(scope));
    CHECK(reshard_tensor_shape(y)[1] == RS_SPREAD_MAX && element(y, 0) == element(y, 15));
    CHECK(reshard_cat(RS_SPREAD_MAX + 1, many, 1) == NULL);
    CHECK(reshard_scope_close(scope) == RESHARD_ERR_UNSUPPORTED);
    CHECK(strstr(reshard_error_text(), "17 distributed tensors at once; there may be 16") != NULL);
    reshard_tensor_release(x);
    return RESHARD_OK;
}

static void test_cat__as_many_as_possible(void **state)
{
    (void)state;
    run_ranks(2, body_many, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cat__as_many_as_possible),
        cmocka_unit_test(test_max__of_cut_dims_is_partial),
        cmocka_unit_test(test_spread__as_on_whole_tensors),
        cmocka_unit_test(test_model__tensor_and_data_parallel),
        cmocka_unit_test(test_mean__of_halves_does_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
