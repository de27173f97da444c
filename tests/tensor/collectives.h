/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collectives.h - collectives on local tensors: what they mean, written out over plain arrays of
 * all ranks' numbers, what the library does, and its gradients against finite differences of the
 * former. All ranks draw the same job, between threads and between processes.
 */
#ifndef TESTS_TENSOR_COLLECTIVES_H
#define TESTS_TENSOR_COLLECTIVES_H

#include "tests/tensor/distributed.h"

#include <math.h>
#include <string.h>

enum { RANKS_MAX = 5, ROWS_MAX = 12, WIDTH = 2, VALUES_MAX = ROWS_MAX * WIDTH };

typedef enum collective_kind {
    ALL_REDUCE,
    REDUCE_TO,
    REDUCE_SCATTER,
    ALL_GATHER,
    GATHER_TO,
    BROADCAST_FROM,
    SCATTER_FROM,
    ALL_TO_ALL,
    FROM_LOCAL, /* partial, then the whole: the loss is counted once */
    KINDS
} collective_kind;

typedef struct collective_job {
    collective_kind what;
    reshard_reduction reduction;
    int32_t ranks, root;
    int64_t rows[RANKS_MAX]; /* of each rank's input */
    int64_t sent[RANKS_MAX][RANKS_MAX];
    double inputs[RANKS_MAX][VALUES_MAX];
    double gradients[RANKS_MAX][VALUES_MAX];
} collective_job;

/* ---- what they mean -------------------------------------------------------------------------- */

static inline double reduce(const collective_job *j, int64_t i)
{
    double value = j->inputs[0][i];
    for (int32_t r = 1; r < j->ranks; r++) {
        double x = j->inputs[r][i];
        if (j->reduction == RESHARD_SUM || j->reduction == RESHARD_AVG)
            value += x;
        else if (j->reduction == RESHARD_PROD)
            value *= x;
        else if (isnan(x) || (j->reduction == RESHARD_MAX ? x > value : x < value))
            value = x;
    }
    return j->reduction == RESHARD_AVG ? value / j->ranks : value;
}

/* Rank r's output; returns its rows. */
static inline int64_t define(const collective_job *j, int32_t r, double *out)
{
    int64_t rows = 0, n = j->rows[0], chunk = (n + j->ranks - 1) / j->ranks;
    int64_t from = r * chunk < n ? r * chunk : n, to = (r + 1) * chunk < n ? (r + 1) * chunk : n;
    switch (j->what) {
    case ALL_REDUCE:
    case FROM_LOCAL:
        from = 0;
        to = n;
        break;
    case REDUCE_TO:
        from = 0;
        to = r == j->root ? n : 0;
        break;
    case REDUCE_SCATTER:
        break;
    case ALL_GATHER:
    case GATHER_TO:
        for (int32_t s = 0; s < j->ranks && (j->what == ALL_GATHER || r == j->root); s++) {
            memcpy(out + rows * WIDTH, j->inputs[s], sizeof(double) * WIDTH * (size_t)j->rows[s]);
            rows += j->rows[s];
        }
        return rows;
    case BROADCAST_FROM:
        memcpy(out, j->inputs[j->root], sizeof(double) * WIDTH * (size_t)n);
        return n;
    case SCATTER_FROM:
        memcpy(out, j->inputs[j->root] + from * WIDTH,
               sizeof(double) * WIDTH * (size_t)(to - from));
        return to - from;
    default:
        for (int32_t s = 0; s < j->ranks; s++) {
            int64_t at = 0;
            for (int32_t k = 0; k < r; k++)
                at += j->sent[s][k];
            memcpy(out + rows * WIDTH, j->inputs[s] + at * WIDTH,
                   sizeof(double) * WIDTH * (size_t)j->sent[s][r]);
            rows += j->sent[s][r];
        }
        return rows;
    }
    for (int64_t i = from * WIDTH; i < to * WIDTH; i++)
        out[i - from * WIDTH] = reduce(j, i);
    return to - from;
}

static inline double weight(const collective_job *j, int32_t r, int64_t i)
{
    int32_t salt = j->what == FROM_LOCAL ? 0 : r; /* all ranks have one loss there */
    return (double)(draw_hash((uint64_t)salt + 17, (uint64_t)i) >> 40) / (1 << 24) - 0.4;
}

static inline double loss(const collective_job *j)
{
    double sum = 0, out[RANKS_MAX * VALUES_MAX];
    for (int32_t r = 0; r < (j->what == FROM_LOCAL ? 1 : j->ranks); r++) {
        int64_t rows = define(j, r, out);
        for (int64_t i = 0; i < rows * WIDTH; i++)
            sum += weight(j, r, i) * out[i];
    }
    return sum;
}

/* ---- what the library does ------------------------------------------------------------------- */

static inline reshard_tensor *carry_out(const collective_job *j, reshard_tensor *x,
                                        reshard_group *group)
{
    int32_t rank = reshard_group_rank(group);
    int64_t receive[RANKS_MAX];
    char text[32];
    for (int32_t s = 0; s < j->ranks; s++)
        receive[s] = j->sent[s][rank];
    switch (j->what) {
    case ALL_REDUCE:
        return reshard_tensor_exchange(x, group,
                                       RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE,
                                                       .reduction = j->reduction));
    case REDUCE_TO:
        return reshard_tensor_exchange(x, group,
                                       RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_REDUCE,
                                                       .reduction = j->reduction, .root = j->root));
    case REDUCE_SCATTER:
        return reshard_tensor_exchange(x, group,
                                       RESHARD_OPTIONS(reshard_exchange,
                                                       .kind = RESHARD_REDUCE_SCATTER,
                                                       .reduction = j->reduction));
    case ALL_GATHER:
        return reshard_tensor_exchange(
            x, group, RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER));
    case GATHER_TO:
        return reshard_tensor_exchange(
            x, group, RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_GATHER, .root = j->root));
    case BROADCAST_FROM:
        return reshard_tensor_exchange(
            x, group,
            RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_BROADCAST, .root = j->root));
    case SCATTER_FROM:
        return reshard_tensor_exchange(
            x, group, RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_SCATTER, .root = j->root));
    case ALL_TO_ALL:
        return reshard_tensor_exchange(
            x, group,
            RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_TO_ALL_SINGLE,
                            .send_counts = j->sent[rank], .receive_counts = receive));
    default:
        (void)snprintf(text, sizeof text, "%d: P(%s)", (int)j->ranks,
                       reshard_reduction_name(j->reduction));
        return reshard_tensor_full(local_as(x, group, text));
    }
}

static inline reshard_status run_rank(void *user, reshard_group *group)
{
    collective_job *j = user;
    int32_t rank = reshard_group_rank(group);
    double expected[RANKS_MAX * VALUES_MAX];
    int64_t shape[] = {j->rows[rank], WIDTH};
    reshard_tensor *x = NULL;
    reshard_scope *scope = NULL;
    TRY(reshard_tensor_from_data(NULL, RESHARD_F64, 2, shape, j->inputs[rank], &x));
    TRY(reshard_tensor_set_requires_grad(x, 1));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = carry_out(j, x, group);
    CHECK(y != NULL);
    int64_t rows = define(j, rank, expected);
    CHECK(reshard_tensor_shape(y)[0] == rows);
    for (int64_t i = 0; i < rows * WIDTH; i++)
        CHECK(isnan(expected[i]) ? isnan(element(y, i))
                                 : fabs(element(y, i) - expected[i]) < 1e-12);
    reshard_tensor *weights = make_zeros(RESHARD_F64, 2, (int64_t[]){rows, WIDTH});
    for (int64_t i = 0; i < rows * WIDTH; i++)
        set_element(weights, i, weight(j, rank, i));
    (void)reshard_backward(y, weights, NULL);
    reshard_tensor_release(weights);
    TRY(reshard_scope_close(scope));
    const reshard_tensor *gradient = reshard_tensor_gradient(x);
    CHECK(gradient != NULL);
    TRY(reshard_tensor_copy_to(gradient, j->gradients[rank],
                               sizeof(double) * WIDTH * (size_t)j->rows[rank]));
    reshard_tensor_release(x);
    return RESHARD_OK;
}

static inline void draw_job(draw_state *draw, collective_job *j)
{
    int64_t same = draw_between(draw, 0, 5);
    for (int32_t r = 0; r < j->ranks; r++) {
        j->rows[r] =
            j->what == ALL_GATHER || j->what == GATHER_TO ? draw_between(draw, 0, 4) : same;
        for (int32_t k = 0; k < j->ranks && j->what == ALL_TO_ALL; k++) {
            j->sent[r][k] = draw_between(draw, 0, 2);
            j->rows[r] = k == 0 ? j->sent[r][k] : j->rows[r] + j->sent[r][k];
        }
        for (int64_t i = 0; i < VALUES_MAX; i++)
            j->inputs[r][i] = 0.1 + (double)draw_below(draw, 1 << 20) / (1 << 20) *
                                        (draw_chance(draw, 50) ? 1 : -1);
    }
    j->root = (int32_t)draw_below(draw, j->ranks);
}

/* The gradients of one rank, which it has noted in the job, against differences. */
static inline reshard_status compare_own(const collective_job *given, int32_t r)
{
    collective_job j = *given;
    for (int64_t i = 0; i < j.rows[r] * WIDTH; i++) {
        double old = j.inputs[r][i], step = 1e-6;
        j.inputs[r][i] = old + step;
        double above = loss(&j);
        j.inputs[r][i] = old - step;
        double below = loss(&j);
        j.inputs[r][i] = old;
        double expected = (above - below) / (2 * step);
        if (!(fabs(expected - j.gradients[r][i]) < 1e-7 * (1 + fabs(expected)))) {
            char text[300];
            (void)snprintf(
                text, sizeof text,
                "kind %d, %s over %d ranks, rank %d, element %d: %g, differences give %g",
                (int)j.what, reshard_reduction_name(j.reduction), (int)j.ranks, (int)r, (int)i,
                j.gradients[r][i], expected);
            return reshard_error_set(RESHARD_ERR_CHECK, text);
        }
    }
    return RESHARD_OK;
}

/* Every collective with every reduction, values and gradients, once. */
static inline reshard_status collectives_run(reshard_group *group, uint64_t seed)
{
    draw_state draw;
    draw_seed(&draw, seed);
    for (int what = 0; what < (int)KINDS; what++) {
        bool reduces = what <= (int)REDUCE_SCATTER || what == (int)FROM_LOCAL;
        for (int reduction = 0; reduction < (reduces ? (int)RESHARD_BAND : 1); reduction++) {
            collective_job j = {.what = (collective_kind)what,
                                .reduction = (reshard_reduction)reduction,
                                .ranks = reshard_group_size(group)};
            draw_job(&draw, &j);
            TRY(run_rank(&j, group));
            TRY(compare_own(&j, reshard_group_rank(group)));
        }
    }
    return RESHARD_OK;
}

#endif
