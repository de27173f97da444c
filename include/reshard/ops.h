/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.h - operations on tensors. Results belong to the innermost scope (tensor.h), are NULL on
 * failure, and are recorded for gradients (autograd.h) if an input requires them. Inputs may have
 * any strides. Values are f16, bf16, f32 or f64, the same for all inputs of a call; f16 and bf16
 * are computed in f32 and rounded. Indices are i64. Dims may be negative.
 *
 * Errors, noted in the scope with their text: INVALID (dtypes or shapes that do not fit), RANGE
 * (dims, indices), UNSUPPORTED (dtypes), NO_MEMORY.
 *
 * Calls are Local for local tensors. With distributed tensors, all ranks of the group make the same
 * calls, and no forward operation moves data unless it says so. "Distributed:" below says which
 * layouts an operation takes and returns; operations without it take local tensors only. The error
 * for layouts that do not fit names them. Backward steps may move gradients, and are Collective.
 */
#ifndef RESHARD_OPS_H
#define RESHARD_OPS_H

#include <reshard/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * Named and behaving as in PyTorch.
 */

/* ---- element by element ---------------------------------------------------------------------- */

/* Shapes are broadcast as usual: aligned at the last dim, with sizes of 1 repeated. Distributed:
 * equal shapes and layouts; add and sub also take partial sums and averages. */
RESHARD_API reshard_tensor *reshard_add(reshard_tensor *a, reshard_tensor *b);
RESHARD_API reshard_tensor *reshard_sub(reshard_tensor *a, reshard_tensor *b);
RESHARD_API reshard_tensor *reshard_mul(reshard_tensor *a, reshard_tensor *b);
RESHARD_API reshard_tensor *reshard_div(reshard_tensor *a, reshard_tensor *b);
/* Elements of a where the mask is not 0, of b elsewhere; all three are broadcast. Masks are bool,
 * u8 or i64. Distributed: equal shapes and layouts, not partial. */
RESHARD_API reshard_tensor *reshard_where(reshard_tensor *mask, reshard_tensor *a,
                                          reshard_tensor *b);
/* x, with `value` where the mask is not 0. The mask is broadcast to the shape of x. Distributed:
 * equal shapes and layouts, not partial. */
RESHARD_API reshard_tensor *reshard_masked_fill(reshard_tensor *x, reshard_tensor *mask,
                                                double value);
/* Distributed: any layout; a partial one must be a sum or an average. */
RESHARD_API reshard_tensor *reshard_scale(reshard_tensor *x, double factor);
/* relu(NaN) is NaN, and passes its gradient on. gelu is the exact form, with erf. Distributed: any
 * layout that is not partial. */
RESHARD_API reshard_tensor *reshard_relu(reshard_tensor *x);
RESHARD_API reshard_tensor *reshard_gelu(reshard_tensor *x);
RESHARD_API reshard_tensor *reshard_silu(reshard_tensor *x);
/* Distributed: any layout; a partial one must be a sum or an average. */
RESHARD_API reshard_tensor *reshard_neg(reshard_tensor *x);
/* Values and gradients at the edges are PyTorch's: log(0) is -inf, sqrt(-1) is NaN. Distributed:
 * any layout that is not partial. */
RESHARD_API reshard_tensor *reshard_exp(reshard_tensor *x);
RESHARD_API reshard_tensor *reshard_log(reshard_tensor *x);
RESHARD_API reshard_tensor *reshard_log1p(reshard_tensor *x); /* log(1 + x), exact near 0 */
RESHARD_API reshard_tensor *reshard_sqrt(reshard_tensor *x);
RESHARD_API reshard_tensor *reshard_tanh(reshard_tensor *x);
RESHARD_API reshard_tensor *reshard_sigmoid(reshard_tensor *x);
RESHARD_API reshard_tensor *reshard_pow(reshard_tensor *x, double exponent);
/* Raises elements to `low` and lowers them to `high`; -INFINITY and INFINITY: no bound. Elements
 * outside, and NaN, which stays NaN, pass no gradient on. Distributed: not partial. */
RESHARD_API reshard_tensor *reshard_clamp(reshard_tensor *x, double low, double high);
/* Replaces NaN by `nan`, and the infinities by `high` and `low`; INFINITY and -INFINITY there mean
 * the largest and smallest finite numbers of the dtype. What is replaced passes no gradient on.
 * Distributed: not partial. */
RESHARD_API reshard_tensor *reshard_nan_to_num(reshard_tensor *x, double nan, double high,
                                               double low);
/* Sets elements to zero with probability p (0 <= p < 1) and divides the others by 1-p. The choice
 * depends only on the seed and on the element's global index, not on layout or ranks. Distributed:
 * not partial. */
RESHARD_API reshard_tensor *reshard_dropout(reshard_tensor *x, double p, uint64_t seed);

/* ---- reductions ------------------------------------------------------------------------------ */

/* The sum or mean of all elements, as a tensor without dims. Distributed: the result is a partial
 * sum over axes that cut x; the mean counts global elements, however unevenly they are split. */
RESHARD_API reshard_tensor *reshard_sum(reshard_tensor *x);
RESHARD_API reshard_tensor *reshard_mean(reshard_tensor *x);
/* The sum, mean (AVG), maximum or minimum along `count` dims, each named once, which are dropped,
 * or stay with size 1 if `keep` is not 0. Elements that are equal to the maximum share its
 * gradient. Distributed: where one of the dims is cut, the result is a partial sum, for MAX a
 * partial maximum; partial inputs are sums or averages, for MAX maxima. Neither is taken by MAX
 * while it is recorded for gradients. What is said of MAX holds for MIN. Errors: also UNSUPPORTED
 * for other reductions. */
RESHARD_API reshard_tensor *reshard_reduce_dims(reshard_tensor *x, reshard_reduction reduction,
                                                int32_t count, const int32_t *dims, int keep);

/* ---- products -------------------------------------------------------------------------------- */

/* a [.., m, k] times b [k, n], or times b [.., k, n] with the same leading dims. Distributed: b [k,
 * n] takes the layouts of linear's weight with its two dims swapped; otherwise, a and b must be cut
 * alike, along leading dims only. */
RESHARD_API reshard_tensor *reshard_matmul(reshard_tensor *a, reshard_tensor *b);
/* The same for a [batch, m, k] and b [batch, k, n], where a non-zero transpose_a says that a is
 * [batch, k, m], and transpose_b that b is [batch, n, k]. Distributed: as matmul, cut along the
 * batch. */
RESHARD_API reshard_tensor *reshard_bmm(reshard_tensor *a, int transpose_a, reshard_tensor *b,
                                        int transpose_b);
/*
 * x [.., k] times the transpose of weight [n, k], plus bias [n], which may be NULL. Distributed,
 * for each axis of one mesh:
 *   x       weight  bias    gives         gradients of x, weight, bias
 *   R       R       R       R             R, R, R
 *   S(i)    R       R       S(i)          S(i), P(sum), P(sum)       i a leading dim of x
 *   R       S(0)    S(0)    S(last)       P(sum), S(0), S(0)         column parallel
 *   S(last) S(1)    R       P(sum)        S(last), S(1), P(sum)      row parallel
 *   P(sum)  R       R       P(sum)        R, P(sum), P(sum)
 */
RESHARD_API reshard_tensor *reshard_linear(reshard_tensor *x, reshard_tensor *weight,
                                           reshard_tensor *bias);

/* ---- rows ------------------------------------------------------------------------------------ */

/* Along one dim. Distributed: not partial. If the dim is cut, the call is Collective: ranks
 * exchange two numbers for each row, and one in the backward step, but no part of x. */
RESHARD_API reshard_tensor *reshard_softmax(reshard_tensor *x, int32_t dim);
/* The logarithm of softmax, in the same way. */
RESHARD_API reshard_tensor *reshard_log_softmax(reshard_tensor *x, int32_t dim);
typedef struct reshard_cross_entropy_options {
    size_t size;          /* sizeof(reshard_cross_entropy_options) */
    int ignores;          /* non-zero: rows with the label ignore_index do not count */
    int64_t ignore_index; /* may be any number, such as -100 */
    int64_t classes;      /* columns from here on are padding, and do not count; 0: none are */
} reshard_cross_entropy_options;

/* The mean over rows of -log softmax(logits)[label], for logits [.., classes] and i64 labels [..]
 * in range. options NULL: all zero. If all rows are ignored, it is NaN, as in PyTorch, and the
 * gradient zero. Distributed: labels must have the layout of logits without the last dim; the
 * result is a partial sum over axes that cut them. If the dim of classes is cut (the vocabulary,
 * over ranks), the call is Collective, and exchanges three numbers for each row, but no logits; it
 * is Collective too if rows may be ignored or columns are padding. Errors: also RANGE (more classes
 * than columns). */
RESHARD_API reshard_tensor *reshard_cross_entropy(reshard_tensor *logits, reshard_tensor *labels,
                                                  const reshard_cross_entropy_options *options);

/* The same for the output of a model that may be spread over ranks. If one of the two is
 * distributed, the other may be local, as in ready-made modules (nn_layers.h), and labels are
 * brought into the layout of logits; this may be Collective. */
RESHARD_API reshard_tensor *
reshard_cross_entropy_loss(reshard_tensor *logits, reshard_tensor *labels,
                           const reshard_cross_entropy_options *options);
/* Normalise over the last dim, with weight and bias [n]; bias may be NULL. Distributed: the last
 * dim must not be cut, and weight and bias must be replicated. */
RESHARD_API reshard_tensor *reshard_layernorm(reshard_tensor *x, reshard_tensor *weight,
                                              reshard_tensor *bias, double epsilon);
RESHARD_API reshard_tensor *reshard_rmsnorm(reshard_tensor *x, reshard_tensor *weight,
                                            double epsilon);
/* softmax(scale q k' below the diagonal) v, for q, k, v [batch, heads, length, size]. scale 0:
 * 1/sqrt(size). Distributed: equal layouts, cut over batch and heads only. */
RESHARD_API reshard_tensor *reshard_causal_attention(reshard_tensor *q, reshard_tensor *k,
                                                     reshard_tensor *v, double scale);

/* ---- choosing and joining -------------------------------------------------------------------- */

/*
 * The rows of weight [n, size] that indices [..] name, as [.., size]. Distributed, for each axis of
 * one mesh:
 *   weight  indices  gives      gradient of weight
 *   R       R        R          R
 *   S(0)    R        P(sum)     S(0)
 *   S(1)    R        S(last)    S(1)
 *   R       S(i)     S(i)       P(sum)
 */
RESHARD_API reshard_tensor *reshard_embedding(reshard_tensor *weight, reshard_tensor *indices);

/* The entries of a dim that indices [m] name, in the order of the indices. Distributed: the dim
 * must not be cut, and indices must be replicated. */
RESHARD_API reshard_tensor *reshard_index_select(reshard_tensor *x, int32_t dim,
                                                 reshard_tensor *indices);
/* Splits a dim into consecutive parts, which are views; their sizes must add up to that of the dim.
 * outputs: room for count tensors; all are NULL on failure. Distributed: the dim must not be cut,
 * and the parts are copies. */
RESHARD_API void reshard_split(reshard_tensor *x, int32_t dim, int32_t count, const int64_t *sizes,
                               reshard_tensor **outputs);
/* Joins tensors along a dim. Distributed: the specs must be equal, and the dim must not be cut;
 * partial tensors of one reduction are allowed. */
RESHARD_API reshard_tensor *reshard_cat(int32_t count, reshard_tensor *const *tensors, int32_t dim);

/* ==== explicit ===================================================================================
 * Operations with options.
 */

/* ---- bags ------------------------------------------------------------------------------------ */

typedef struct reshard_embedding_bag_options {
    size_t size;                 /* sizeof(reshard_embedding_bag_options) */
    reshard_reduction reduction; /* of a bag: RESHARD_SUM, AVG or MAX */
    /* For indices [n]: where each bag begins, i64 [bags]. They begin with 0, and do not fall. */
    reshard_tensor *offsets;
    int last_offset;                /* non-zero: offsets end with n, which begins no bag */
    reshard_tensor *sample_weights; /* NULL, or a factor for each index, for SUM; with gradients */
    int pads;              /* non-zero: entries with the index padding_index do not count */
    int64_t padding_index; /* may be negative: counts from the last row */
    /* Not 0: rows that indices name, padding included, are first scaled down to this norm, in the
     * memory of the weight. This is not recorded. norm_type: the p of the norm; 0: 2. */
    double max_norm, norm_type;
} reshard_embedding_bag_options;

/*
 * Embeds bags of indices, and reduces each: for indices [bags, n], or [n] with offsets, gives
 * [bags, size]. An empty bag, or one of padding only, gives zeros. The gradient of a maximum goes
 * to the first entry that has it. options NULL: sums, of indices [bags, n]. Distributed, for each
 * axis of one mesh:
 *   weight  indices, offsets, sample weights   gives      gradients of weight, sample weights
 *   R       R                                  R          R, R
 *   S(0)    R                                  P(sum)     S(0), P(sum)
 *   S(1)    R                                  S(1)       S(1), P(sum)
 *   R       S(0)                               S(0)       P(sum), S(0)
 * Offsets that are cut begin with 0 on each rank, and count that rank's indices. Collective for MAX
 * if rows are cut (two numbers for each element of the result), and with max_norm if columns or
 * indices are (a number for each row). Errors: also UNSUPPORTED for other reductions, and for
 * last_offset with distributed offsets.
 */
RESHARD_API reshard_tensor *reshard_embedding_bag(reshard_tensor *weight, reshard_tensor *indices,
                                                  const reshard_embedding_bag_options *options);

#ifdef __cplusplus
}
#endif
#endif
