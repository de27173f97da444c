/* SPDX-License-Identifier: Apache-2.0 */
/*
 * differences.h - gradients of operations on distributed tensors, and of redistribute, against
 * finite differences, on random layouts over any group: threads or MPI ranks. The loss is a
 * weighted sum of the whole output, counted once. An input is changed as a whole, in all its
 * replicas: one element at a time for some of them, and all of them together along a random
 * direction.
 */
#ifndef TESTS_TENSOR_DIFFERENCES_H
#define TESTS_TENSOR_DIFFERENCES_H

#include "tests/support/generate.h"
#include "tests/support/oracle.h"
#include "tests/tensor/distributed.h"
#include "tests/tensor/own_operations.h"

#include <math.h>
#include <string.h>

enum { DIFFERENCES_INPUTS = 3, DIFFERENCES_ROWS = 6 };

typedef struct differences_input {
    int32_t ndim;
    int64_t shape[4];
    int64_t limit; /* not 0: indices below this */
} differences_input;

typedef struct differences_job {
    reshard_tensor *wholes[DIFFERENCES_INPUTS], *spread[DIFFERENCES_INPUTS];
    char specs[DIFFERENCES_INPUTS][ORACLE_TEXT_MAX];
    char detour[ORACLE_TEXT_MAX]; /* where the operation takes its first input on its way */
} differences_job;

typedef struct differences_case {
    const char *name;
    reshard_tensor *(*fn)(reshard_tensor *const *inputs, const differences_job *job);
    int32_t count;
    differences_input inputs[DIFFERENCES_INPUTS];
    /* What a mesh axis may do to the inputs, row by row; none: any layout, the same for all. Cuts
     * that say no more than their dim are made by different rules. */
    const char *rows[DIFFERENCES_ROWS][DIFFERENCES_INPUTS];
} differences_case;

/* ---- operations ------------------------------------------------------------------------------ */

#define DIFFERENCES_FN(name, call)                                               \
    static inline reshard_tensor *differences_##name(reshard_tensor *const *in,  \
                                                     const differences_job *job) \
    {                                                                            \
        (void)job;                                                               \
        return call;                                                             \
    }

DIFFERENCES_FN(add, reshard_add(in[0], in[1]))
DIFFERENCES_FN(mul, reshard_mul(in[0], in[1]))
DIFFERENCES_FN(scale, reshard_scale(in[0], -1.5))
DIFFERENCES_FN(relu, reshard_relu(in[0]))
DIFFERENCES_FN(gelu, reshard_gelu(in[0]))
DIFFERENCES_FN(silu, reshard_silu(in[0]))
DIFFERENCES_FN(dropout, reshard_dropout(in[0], 0.4, 12))
DIFFERENCES_FN(sum, reshard_sum(in[0]))
DIFFERENCES_FN(mean, reshard_mean(in[0]))
DIFFERENCES_FN(softmax, reshard_softmax(in[0], -1))
DIFFERENCES_FN(softmax_first, reshard_softmax(in[0], 0))
DIFFERENCES_FN(transpose, reshard_tensor_transpose(in[0], 0, 2))
DIFFERENCES_FN(cat, reshard_cat(2, in, 1))
DIFFERENCES_FN(linear, reshard_linear(in[0], in[1], in[2]))
DIFFERENCES_FN(embedding, reshard_embedding(in[0], in[1]))
#define DIFFERENCES_BAG(...)                                       \
    &(reshard_embedding_bag_options)                               \
    {                                                              \
        .size = sizeof(reshard_embedding_bag_options), __VA_ARGS__ \
    }
DIFFERENCES_FN(bag_sum, reshard_embedding_bag(in[0], in[1],
                                              DIFFERENCES_BAG(.sample_weights = in[2], .pads = 1,
                                                              .padding_index = -3)))
DIFFERENCES_FN(bag_mean, reshard_embedding_bag(in[0], in[1],
                                               DIFFERENCES_BAG(.reduction = RESHARD_AVG, .pads = 1,
                                                               .padding_index = 2)))
DIFFERENCES_FN(bag_max,
               reshard_embedding_bag(in[0], in[1], DIFFERENCES_BAG(.reduction = RESHARD_MAX)))
DIFFERENCES_FN(layernorm, reshard_layernorm(in[0], in[1], in[2], 0.01))
DIFFERENCES_FN(rmsnorm, reshard_rmsnorm(in[0], in[1], 0.01))
DIFFERENCES_FN(cross_entropy, reshard_cross_entropy(in[0], in[1], NULL))
DIFFERENCES_FN(cross_entropy_padded,
               reshard_cross_entropy(in[0], in[1],
                                     &(reshard_cross_entropy_options){
                                         .size = sizeof(reshard_cross_entropy_options),
                                         .ignores = 1,
                                         .ignore_index = 2,
                                         .classes = 5}))
DIFFERENCES_FN(log_softmax, reshard_log_softmax(in[0], -1))
DIFFERENCES_FN(sum_dim, reshard_reduce_dims(in[0], RESHARD_SUM, 1, (int32_t[]){1}, 0))
DIFFERENCES_FN(narrow, reshard_tensor_narrow(in[0], -1, 1, 3))
DIFFERENCES_FN(select, reshard_index_select(in[0], 1, in[1]))
DIFFERENCES_FN(matmul, reshard_matmul(in[0], in[1]))
DIFFERENCES_FN(merge, reshard_gelu(reshard_tensor_reshape(in[0], SHAPE(3, -1))))
DIFFERENCES_FN(squeeze, reshard_tensor_squeeze(reshard_tensor_unsqueeze(in[0], 1), 1))
/* One part twice, one not at all. */
static inline reshard_tensor *differences_split(reshard_tensor *const *in,
                                                const differences_job *job)
{
    reshard_tensor *parts[3];
    (void)job;
    reshard_split(in[0], 2, 3, (int64_t[]){2, 1, 2}, parts);
    return reshard_mul(parts[0], reshard_gelu(parts[0]));
}
/* Heads out of a last dim and back; evenly, for as many ranks as there are. */
static inline reshard_tensor *differences_heads(reshard_tensor *const *in,
                                                const differences_job *job)
{
    (void)job;
    reshard_tensor *heads = reshard_tensor_reshape(in[0], SHAPE(2, 60, 2));
    return reshard_tensor_reshape(reshard_softmax(heads, -1), SHAPE(2, -1));
}
DIFFERENCES_FN(attention, reshard_causal_attention(in[0], in[1], in[2], 0))
/* There and back, with a nonlinearity there. */
DIFFERENCES_FN(redistribute, move_to(reshard_gelu(move_to(in[0], job->detour)), job->specs[0]))
/* The same, started and waited for. */
static inline reshard_tensor *differences_started(reshard_tensor *const *in,
                                                  const differences_job *job)
{
    reshard_spec *there = spec_of(job->detour), *back = spec_of(job->specs[0]);
    reshard_redistribution *started = reshard_tensor_redistribute_start(in[0], there, NULL);
    reshard_tensor *beside = reshard_scale(in[0], 2);
    reshard_tensor *y = reshard_gelu(reshard_tensor_redistribute_wait(started));
    started = reshard_tensor_redistribute_start(y, back, NULL);
    beside = reshard_gelu(beside);
    y = reshard_add(beside, reshard_tensor_redistribute_wait(started));
    reshard_spec_release(there);
    reshard_spec_release(back);
    return y;
}
/* As contributions to a sum. */
DIFFERENCES_FN(scale_sum, reshard_scale(move_to(in[0], job->detour), 3))
DIFFERENCES_FN(add_sum, reshard_add(move_to(in[0], job->detour), move_to(in[1], job->detour)))
DIFFERENCES_FN(transpose_sum, reshard_tensor_transpose(move_to(in[0], job->detour), 0, 1))
DIFFERENCES_FN(sum_sum, reshard_sum(move_to(in[0], job->detour)))
DIFFERENCES_FN(neg_sum, reshard_neg(move_to(in[0], job->detour)))
DIFFERENCES_FN(sub_sum, reshard_sub(move_to(in[0], job->detour), move_to(in[1], job->detour)))
/* The small ones: functions whose domain is positive are given exp(x). */
DIFFERENCES_FN(sub, reshard_sub(in[0], in[1]))
DIFFERENCES_FN(div, reshard_div(in[0], reshard_exp(in[1])))
DIFFERENCES_FN(logs, reshard_log(reshard_sqrt(reshard_exp(reshard_tanh(in[0])))))
DIFFERENCES_FN(powers, reshard_pow(reshard_sigmoid(reshard_neg(in[0])), 2.5))
DIFFERENCES_FN(clamp, reshard_clamp(reshard_nan_to_num(in[0], 0, 9, -9), -0.5, 0.25))
DIFFERENCES_FN(where, reshard_where(in[2], in[0], in[1]))
DIFFERENCES_FN(masked_fill, reshard_masked_fill(in[0], in[1], 2))
DIFFERENCES_FN(mean_dims, reshard_reduce_dims(in[0], RESHARD_AVG, 2, (int32_t[]){0, 2}, 1))
DIFFERENCES_FN(sum_dims, reshard_reduce_dims(in[0], RESHARD_SUM, 2, (int32_t[]){1, 2}, 0))
DIFFERENCES_FN(max_dims, reshard_reduce_dims(in[0], RESHARD_MAX, 2, (int32_t[]){0, 2}, 0))
DIFFERENCES_FN(bmm, reshard_bmm(in[0], 1, in[1], 1))
DIFFERENCES_FN(linear_sum, reshard_linear(move_to(in[0], job->detour), in[1], in[2]))
/* Operations of a user. */
DIFFERENCES_FN(own_tanh, apply_own_tanh(in[0]))
DIFFERENCES_FN(own_times, reshard_operation_run(&own_times, NULL, in, NULL))
DIFFERENCES_FN(own_rows, reshard_operation_run(&own_rows, NULL, in, NULL))
DIFFERENCES_FN(own_powers, apply_own_powers(in[0], 1))
DIFFERENCES_FN(own_power, apply_own_powers(in[0], 0))
DIFFERENCES_FN(own_chunk, reshard_operation_run(&own_chunk, NULL, in, NULL))

#define DIFFERENCES_ONE \
    {                   \
        3, {3, 2, 5}, 0 \
    }
#define DIFFERENCES_LINEAR                 \
    {                                      \
        {3, {3, 2, 4}, 0}, {2, {5, 4}, 0}, \
        {                                  \
            1, {5}, 0                      \
        }                                  \
    }

static const differences_case differences_cases[] = {
    {"add", differences_add, 2, {DIFFERENCES_ONE, DIFFERENCES_ONE}, {{NULL}}},
    {"mul", differences_mul, 2, {DIFFERENCES_ONE, DIFFERENCES_ONE}, {{NULL}}},
    {"scale", differences_scale, 1, {DIFFERENCES_ONE}, {{NULL}}},
    {"relu", differences_relu, 1, {DIFFERENCES_ONE}, {{NULL}}},
    {"gelu", differences_gelu, 1, {DIFFERENCES_ONE}, {{NULL}}},
    {"silu", differences_silu, 1, {DIFFERENCES_ONE}, {{NULL}}},
    {"dropout", differences_dropout, 1, {DIFFERENCES_ONE}, {{NULL}}},
    {"redistribute", differences_redistribute, 1, {DIFFERENCES_ONE}, {{NULL}}},
    {"redistribute, started", differences_started, 1, {DIFFERENCES_ONE}, {{NULL}}},
    {"sum", differences_sum, 1, {DIFFERENCES_ONE}, {{"R"}, {"S(0)"}, {"S(1)"}, {"S(2)"}}},
    {"mean", differences_mean, 1, {DIFFERENCES_ONE}, {{"R"}, {"S(0)"}, {"S(1)"}, {"S(2)"}}},
    {"softmax", differences_softmax, 1, {DIFFERENCES_ONE}, {{"R"}, {"S(0)"}, {"S(1)"}, {"S(2)"}}},
    {"log_softmax",
     differences_log_softmax,
     1,
     {DIFFERENCES_ONE},
     {{"R"}, {"S(0)"}, {"S(1)"}, {"S(2)"}}},
    {"softmax of dim 0",
     differences_softmax_first,
     1,
     {DIFFERENCES_ONE},
     {{"R"}, {"S(0)"}, {"S(1)"}, {"S(2)"}}},
    {"transpose",
     differences_transpose,
     1,
     {DIFFERENCES_ONE},
     {{"R"}, {"S(0)"}, {"S(1)"}, {"S(2)"}}},
    {"cat",
     differences_cat,
     2,
     {DIFFERENCES_ONE, {3, {3, 4, 5}, 0}},
     {{"R", "R"}, {"S(0)", "S(0)"}, {"S(2)", "S(2)"}}},
    {"linear",
     differences_linear,
     3,
     DIFFERENCES_LINEAR,
     {{"R", "R", "R"},
      {"S(0)", "R", "R"},
      {"S(1)", "R", "R"},
      {"R", "S(0)", "S(0)"},
      {"S(2)", "S(1)", "R"}}},
    {"embedding",
     differences_embedding,
     2,
     {{2, {7, 3}, 0}, {2, {3, 2}, 7}},
     {{"R", "R"}, {"S(0)", "R"}, {"S(1)", "R"}, {"R", "S(0)"}, {"R", "S(1)"}}},
    {"embedding_bag, weighted",
     differences_bag_sum,
     3,
     {{2, {7, 3}, 0}, {2, {5, 4}, 7}, {2, {5, 4}, 0}},
     {{"R", "R", "R"}, {"S(0)", "R", "R"}, {"S(1)", "R", "R"}, {"R", "S(0)", "S(0)"}}},
    {"embedding_bag, means",
     differences_bag_mean,
     2,
     {{2, {7, 3}, 0}, {2, {5, 4}, 7}},
     {{"R", "R"}, {"S(0)", "R"}, {"S(1)", "R"}, {"R", "S(0)"}}},
    {"embedding_bag, maxima",
     differences_bag_max,
     2,
     {{2, {7, 3}, 0}, {2, {5, 3}, 7}},
     {{"R", "R"}, {"S(0)", "R"}, {"S(1)", "R"}, {"R", "S(0)"}}},
    {"layernorm",
     differences_layernorm,
     3,
     {DIFFERENCES_ONE, {1, {5}, 0}, {1, {5}, 0}},
     {{"R", "R", "R"}, {"S(0)", "R", "R"}, {"S(1)", "R", "R"}}},
    {"rmsnorm",
     differences_rmsnorm,
     2,
     {DIFFERENCES_ONE, {1, {5}, 0}},
     {{"R", "R"}, {"S(0)", "R"}, {"S(1)", "R"}}},
    {"cross_entropy",
     differences_cross_entropy,
     2,
     {{3, {5, 2, 3}, 0}, {2, {5, 2}, 3}},
     {{"R", "R"}, {"S(0)", "S(0)"}, {"S(1)", "S(1)"}, {"S(2)", "R"}}},
    {"cross_entropy, padded",
     differences_cross_entropy_padded,
     2,
     {{3, {5, 2, 7}, 0}, {2, {5, 2}, 5}},
     {{"R", "R"}, {"S(0)", "S(0)"}, {"S(1)", "S(1)"}, {"S(2)", "R"}}},
    {"causal_attention",
     differences_attention,
     3,
     {{4, {3, 2, 3, 2}, 0}, {4, {3, 2, 3, 2}, 0}, {4, {3, 2, 3, 2}, 0}},
     {{"R", "R", "R"}, {"S(0)", "S(0)", "S(0)"}, {"S(1)", "S(1)", "S(1)"}}},
    {"sum_dim", differences_sum_dim, 1, {DIFFERENCES_ONE}, {{"R"}, {"S(0)"}, {"S(1)"}, {"S(2)"}}},
    {"narrow", differences_narrow, 1, {DIFFERENCES_ONE}, {{"R"}, {"S(0)"}, {"S(1)"}}},
    {"split", differences_split, 1, {DIFFERENCES_ONE}, {{"R"}, {"S(0)"}, {"S(1)"}}},
    {"index_select",
     differences_select,
     2,
     {{3, {3, 4, 2}, 0}, {1, {5}, 4}},
     {{"R", "R"}, {"S(0)", "R"}, {"S(2)", "R"}}},
    {"matmul",
     differences_matmul,
     2,
     {{3, {3, 2, 4}, 0}, {2, {4, 5}, 0}},
     {{"R", "R"}, {"S(0)", "R"}, {"S(1)", "R"}, {"R", "S(1)"}, {"S(2)", "S(0)"}}},
    {"matmul of batches",
     differences_matmul,
     2,
     {{4, {3, 2, 2, 3}, 0}, {4, {3, 2, 3, 2}, 0}},
     {{"R", "R"}, {"S(0)", "S(0)"}, {"S(1)", "S(1)"}}},
    {"reshape, dims merged", differences_merge, 1, {DIFFERENCES_ONE}, {{"R"}, {"S(0)"}}},
    {"reshape, a dim split",
     differences_heads,
     1,
     {{2, {2, 120}, 0}},
     {{"R"}, {"S(0)"}, {"S(1~)"}}},
    {"unsqueeze and squeeze",
     differences_squeeze,
     1,
     {DIFFERENCES_ONE},
     {{"R"}, {"S(0)"}, {"S(1)"}, {"S(2)"}}},
    {"scale of a sum", differences_scale_sum, 1, {DIFFERENCES_ONE}, {{"R"}, {"S(0)"}}},
    {"add of sums", differences_add_sum, 2, {DIFFERENCES_ONE, DIFFERENCES_ONE}, {{"R", "S(1)"}}},
    {"transpose of a sum", differences_transpose_sum, 1, {DIFFERENCES_ONE}, {{"R"}, {"S(2)"}}},
    {"sum of a sum", differences_sum_sum, 1, {DIFFERENCES_ONE}, {{"R"}, {"S(0)"}}},
    {"neg of a sum", differences_neg_sum, 1, {DIFFERENCES_ONE}, {{"R"}, {"S(0)"}}},
    {"sub of sums", differences_sub_sum, 2, {DIFFERENCES_ONE, DIFFERENCES_ONE}, {{"R", "S(1)"}}},
    {"sub", differences_sub, 2, {DIFFERENCES_ONE, DIFFERENCES_ONE}, {{NULL}}},
    {"div", differences_div, 2, {DIFFERENCES_ONE, DIFFERENCES_ONE}, {{NULL}}},
    {"log, sqrt, exp, tanh", differences_logs, 1, {DIFFERENCES_ONE}, {{NULL}}},
    {"pow, sigmoid, neg", differences_powers, 1, {DIFFERENCES_ONE}, {{NULL}}},
    {"clamp, nan_to_num", differences_clamp, 1, {DIFFERENCES_ONE}, {{NULL}}},
    {"where",
     differences_where,
     3,
     {DIFFERENCES_ONE, DIFFERENCES_ONE, {3, {3, 2, 5}, 2}},
     {{NULL}}},
    {"masked_fill", differences_masked_fill, 2, {DIFFERENCES_ONE, {3, {3, 2, 5}, 2}}, {{NULL}}},
    {"sum_dims", differences_sum_dims, 1, {DIFFERENCES_ONE}, {{"R"}, {"S(0)"}, {"S(1)"}, {"S(2)"}}},
    {"mean_dims",
     differences_mean_dims,
     1,
     {DIFFERENCES_ONE},
     {{"R"}, {"S(0)"}, {"S(1)"}, {"S(2)"}}},
    {"max_dims", differences_max_dims, 1, {DIFFERENCES_ONE}, {{"R"}, {"S(1)"}}},
    {"bmm",
     differences_bmm,
     2,
     {{3, {5, 4, 2}, 0}, {3, {5, 3, 4}, 0}},
     {{"R", "R"}, {"S(0)", "S(0)"}}},
    {"own_tanh", differences_own_tanh, 1, {DIFFERENCES_ONE}, {{NULL}}},
    {"own_powers", differences_own_powers, 1, {DIFFERENCES_ONE}, {{NULL}}},
    {"own_power", differences_own_power, 1, {DIFFERENCES_ONE}, {{NULL}}},
    {"own_times",
     differences_own_times,
     2,
     {DIFFERENCES_ONE, {1, {5}, 0}},
     {{"R", "R"}, {"S(0)", "R"}, {"S(1)", "R"}, {"S(2)", "S(0)"}}},
    {"own_rows", differences_own_rows, 1, {DIFFERENCES_ONE}, {{"R"}, {"S(0)"}, {"S(1)"}, {"S(2)"}}},
    {"own_chunk", differences_own_chunk, 1, {{1, {7}, 0}}, {{"R"}}},
    {"linear of a sum", differences_linear_sum, 3, DIFFERENCES_LINEAR, {{"R", "R", "R"}}},
};
enum { DIFFERENCES_CASES = (int)(sizeof differences_cases / sizeof *differences_cases) };

/* ---- random layouts -------------------------------------------------------------------------- */

/* Any layout over ranks of the group that can be filled; partial ones where that is asked for. */
static inline void differences_draw_any(draw_state *draw, int32_t ranks, bool partial,
                                        const differences_input *input, char *text)
{
    static _Thread_local oracle_spec spec;
    for (;;) {
        generate_spec_within(draw, GENERATE_LISTED | (partial ? GENERATE_PARTIAL : 0), ranks,
                             input->ndim, input->shape, &spec);
        oracle_layout *layout = oracle_layout_create(&spec, input->ndim, input->shape, NULL);
        bool good = layout != NULL && layout->rank_max < ranks && !oracle_may_be_refused(&spec);
        /* Between P and a nonlinearity a reduction would have to come. */
        good = good && (!partial || (layout->shard_count > 0 && !layout->shards[0].partial));
        oracle_layout_destroy(layout);
        if (good)
            break;
    }
    oracle_spec_text(&spec, text);
}

/* A mesh of one or two axes over all ranks, in any order; each axis draws a row. */
static inline void differences_draw_rows(draw_state *draw, int32_t ranks, const differences_case *c,
                                         differences_job *job)
{
    int32_t row_count = 0, axes = ranks == 4 && draw_chance(draw, 50) ? 2 : 1, order[8];
    static const char *const rules[] = {"", "", "~", "/1"};
    const char *rule = axes == 1 ? rules[draw_below(draw, 4)] : "";
    char mesh[64];
    while (row_count < DIFFERENCES_ROWS && c->rows[row_count][0] != NULL)
        row_count++;
    for (int32_t i = 0; i < ranks; i++)
        order[i] = i;
    draw_shuffle(draw, ranks, order);
    size_t used = (size_t)snprintf(mesh, sizeof mesh, axes == 2 ? "2,2[" : "%d[", (int)ranks);
    for (int32_t i = 0; i < ranks; i++)
        used += (size_t)snprintf(mesh + used, sizeof mesh - used, "%s%d", i > 0 ? "," : "",
                                 (int)order[i]);
    for (int32_t i = 0; i < c->count; i++)
        (void)snprintf(job->specs[i], sizeof job->specs[i], "%s]:", mesh);
    (void)snprintf(job->detour, sizeof job->detour, axes == 2 ? "%s]: P, R" : "%s]: P", mesh);
    for (int32_t a = 0; a < axes; a++) {
        int64_t row = draw_below(draw, row_count);
        for (int32_t i = 0; i < c->count; i++) {
            const char *placement = c->rows[row][i];
            size_t length = strlen(job->specs[i]), bare = strlen(placement);
            bool cut = placement[0] == 'S' && placement[bare - 2] != '~';
            (void)snprintf(job->specs[i] + length, sizeof job->specs[i] - length, "%s %.*s%s%s",
                           a > 0 ? "," : "", (int)(cut ? bare - 1 : bare), placement,
                           cut ? rule : "", cut ? ")" : "");
        }
    }
}

/* ---- one case -------------------------------------------------------------------------------- */

static inline reshard_status differences_cut(reshard_group *group, differences_job *job, int32_t i)
{
    reshard_spec *spec = spec_of(job->specs[i]);
    reshard_tensor_release(job->spread[i]);
    job->spread[i] = NULL;
    reshard_status status =
        reshard_tensor_shard(NULL, group, spec, 0, job->wholes[i], &job->spread[i]);
    reshard_spec_release(spec);
    return status;
}

static inline double differences_weight(int64_t i)
{
    return (double)(draw_hash(7, (uint64_t)i) >> 40) / (1 << 24) - 0.4;
}

static inline reshard_status differences_loss(const differences_case *c, const differences_job *job,
                                              double *out_loss)
{
    reshard_scope *scope = NULL;
    double loss = 0;
    TRY(reshard_scope_open(NULL, &scope));
    (void)reshard_set_gradients_enabled(0);
    reshard_tensor *output = reshard_tensor_full(c->fn(job->spread, job));
    CHECK(output != NULL);
    for (int64_t i = 0; i < reshard_tensor_volume(output); i++)
        loss += differences_weight(i) * element(output, i);
    TRY(reshard_scope_close(scope));
    *out_loss = loss;
    return RESHARD_OK;
}

/* turn 0: along a random direction; else one element. */
static inline reshard_status differences_compare(const differences_case *c, reshard_group *group,
                                                 differences_job *job, int32_t which,
                                                 const reshard_tensor *gradient, int turn,
                                                 uint64_t seed)
{
    reshard_tensor *whole = job->wholes[which];
    int64_t volume = reshard_tensor_volume(whole);
    int64_t one = (int64_t)(draw_hash(seed, (uint64_t)turn) % (uint64_t)volume);
    double loss[2], expected = 0;
    const double step = 1e-5;
    reshard_tensor *old = job->wholes[which];
    for (int side = 0; side < 2; side++) {
        reshard_tensor *moved =
            make_zeros(RESHARD_F64, reshard_tensor_ndim(old), reshard_tensor_shape(old));
        for (int64_t i = 0; i < volume; i++) {
            double slope = turn == 0 ? differences_weight(i + 99) : i == one;
            set_element(moved, i, element(old, i) + (side == 0 ? step : -step) * slope);
            expected += side == 0 ? slope * element(gradient, i) : 0;
        }
        job->wholes[which] = moved;
        reshard_status status = differences_cut(group, job, which);
        job->wholes[which] = old;
        reshard_tensor_release(moved);
        TRY(status);
        TRY(differences_loss(c, job, &loss[side]));
    }
    TRY(differences_cut(group, job, which));
    double found = (loss[0] - loss[1]) / (2 * step);
    if (!(fabs(found - expected) <= 1e-6 * (1 + fabs(expected)))) {
        char text[600];
        (void)snprintf(text, sizeof text,
                       "%s on %.100s, %.100s, %.100s by %.100s, input %d, turn %d: the gradient "
                       "says %.12g, differences %.12g",
                       c->name, job->specs[0], job->specs[1], job->specs[2], job->detour,
                       (int)which, turn, expected, found);
        return reshard_error_set(RESHARD_ERR_CHECK, text);
    }
    return RESHARD_OK;
}

static inline reshard_status differences_differentiate(const differences_case *c,
                                                       differences_job *job)
{
    reshard_scope *scope = NULL;
    for (int32_t i = 0; i < c->count; i++) {
        if (c->inputs[i].limit == 0)
            TRY(reshard_tensor_set_requires_grad(job->spread[i], 1));
    }
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *output = reshard_tensor_full(c->fn(job->spread, job));
    if (output == NULL) {
        char text[600], why[300];
        reshard_status status = reshard_scope_close(scope);
        (void)snprintf(why, sizeof why, "%.290s", reshard_error_text());
        (void)snprintf(text, sizeof text, "%s on %.80s, %.80s, %.80s: %s", c->name, job->specs[0],
                       job->specs[1], job->specs[2], why);
        return reshard_error_set(status, text);
    }
    reshard_tensor *weights =
        make_zeros(RESHARD_F64, reshard_tensor_ndim(output), reshard_tensor_shape(output));
    for (int64_t i = 0; i < reshard_tensor_volume(output); i++)
        set_element(weights, i, differences_weight(i));
    (void)reshard_backward(output, weights, NULL);
    reshard_tensor_release(weights);
    return reshard_scope_close(scope);
}

static inline reshard_status differences_check(const differences_case *c, reshard_group *group,
                                               uint64_t seed)
{
    static _Thread_local differences_job job;
    int32_t ranks = reshard_group_size(group);
    draw_state draw;
    draw_seed(&draw, seed);
    memset(&job, 0, sizeof job);
    if (c->rows[0][0] != NULL) {
        differences_draw_rows(&draw, ranks, c, &job);
    } else {
        differences_draw_any(&draw, ranks, false, &c->inputs[0], job.specs[0]);
        differences_draw_any(&draw, ranks, false, &c->inputs[0], job.detour);
        for (int32_t i = 1; i < c->count; i++)
            memcpy(job.specs[i], job.specs[0], sizeof job.specs[i]);
    }
    for (int32_t i = 0; i < c->count; i++) {
        const differences_input *input = &c->inputs[i];
        if (input->limit == 0) {
            job.wholes[i] = make_random(RESHARD_F64, &draw, input->ndim, input->shape);
        } else {
            job.wholes[i] = make_zeros(RESHARD_I64, input->ndim, input->shape);
            for (int64_t k = 0; k < reshard_tensor_volume(job.wholes[i]); k++)
                set_element(job.wholes[i], k, (double)draw_below(&draw, input->limit));
        }
        TRY(differences_cut(group, &job, i));
    }
    reshard_status status = differences_differentiate(c, &job);
    reshard_tensor *gradients[DIFFERENCES_INPUTS] = {NULL};
    for (int32_t i = 0; i < c->count && status == RESHARD_OK; i++) {
        if (c->inputs[i].limit == 0 && reshard_tensor_gradient(job.spread[i]) == NULL)
            status = reshard_error_set(RESHARD_ERR_CHECK, "no gradient");
        else if (c->inputs[i].limit == 0)
            gradients[i] = whole_of(reshard_tensor_gradient(job.spread[i]));
    }
    for (int32_t i = 0; i < c->count; i++) {
        for (int turn = 0; turn < 3 && gradients[i] != NULL && status == RESHARD_OK; turn++)
            status = differences_compare(c, group, &job, i, gradients[i], turn, seed);
    }
    for (int32_t i = 0; i < c->count; i++) {
        reshard_tensor_release(gradients[i]);
        reshard_tensor_release(job.wholes[i]);
        reshard_tensor_release(job.spread[i]);
    }
    return status;
}

/* Every case, so many times. */
static inline reshard_status differences_run(reshard_group *group, int32_t turns, uint64_t seed)
{
    for (int32_t turn = 0; turn < turns; turn++) {
        for (int i = 0; i < DIFFERENCES_CASES; i++) {
            reshard_status status = differences_check(
                &differences_cases[i], group, seed + (uint64_t)(turn * DIFFERENCES_CASES + i));
            if (status != RESHARD_OK)
                return status;
        }
    }
    return RESHARD_OK;
}

#endif
