/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bag.c - embedding_bag, values and gradients against plain loops on random bags, in all
 * layouts that ops.h names; its edges; what it refuses; and memory that runs out on one rank.
 * (differences.h has finite differences, tests/oracle/pytorch/test_bags.py PyTorch.)
 */
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/tensor/distributed.h"

#include <math.h>
#include <string.h>

enum { ROWS = 9, WIDTH = 5, BAGS = 8, MOST = 40 };

/* ---- a case, and what it should give --------------------------------------------------------- */

typedef struct bag_case {
    reshard_reduction reduction;
    bool list, weighted, pads;
    int64_t padding;
    double max_norm, norm_type;
    const char *weight, *bags; /* layouts; NULL: local tensors */
    int32_t ranks, parts;      /* in how many parts the second cuts the bags */
    int64_t sizes[BAGS], count, indices[MOST];
    double w[ROWS * WIDTH], samples[MOST];
    /* what is expected */
    double y[BAGS * WIDTH], dw[ROWS * WIDTH], dsamples[MOST], after[ROWS * WIDTH];
} bag_case;

/* The weight of an element of the output in the loss. */
static double loss_weight(int64_t i)
{
    return (double)((i * 7 + 3) % 11) - 4.5;
}

static void define_norms(bag_case *c)
{
    memcpy(c->after, c->w, sizeof c->w);
    for (int64_t r = 0; r < ROWS && c->max_norm > 0; r++) {
        double norm = 0;
        bool used = false;
        for (int64_t i = 0; i < c->count; i++)
            used = used || c->indices[i] == r;
        for (int64_t k = 0; k < WIDTH; k++) {
            double x = fabs(c->w[r * WIDTH + k]);
            norm = isinf(c->norm_type) ? fmax(norm, x) : norm + pow(x, c->norm_type);
        }
        norm = isinf(c->norm_type) ? norm : pow(norm, 1 / c->norm_type);
        for (int64_t k = 0; k < WIDTH && used && norm > c->max_norm; k++)
            c->after[r * WIDTH + k] *= c->max_norm / (norm + 1e-7);
    }
}

/* One element of the output, and what its gradient g adds. */
static void define_element(bag_case *c, int64_t bag, int64_t at, int64_t k)
{
    int64_t counted = 0, winner = -1;
    double sum = 0, g = loss_weight(bag * WIDTH + k);
    for (int64_t i = at; i < at + c->sizes[bag]; i++) {
        if (c->pads && c->indices[i] == c->padding)
            continue;
        counted++;
        double x = c->after[c->indices[i] * WIDTH + k];
        sum += c->weighted ? c->samples[i] * x : x;
        if (winner < 0 || x > c->after[winner * WIDTH + k])
            winner = c->indices[i];
    }
    if (c->reduction == RESHARD_MAX && winner >= 0)
        c->dw[winner * WIDTH + k] += g;
    for (int64_t i = at; i < at + c->sizes[bag] && c->reduction != RESHARD_MAX; i++) {
        if (c->pads && c->indices[i] == c->padding)
            continue;
        double factor = c->reduction == RESHARD_AVG ? 1 / (double)counted
                        : c->weighted               ? c->samples[i]
                                                    : 1;
        c->dw[c->indices[i] * WIDTH + k] += factor * g;
        c->dsamples[i] += g * c->after[c->indices[i] * WIDTH + k];
    }
    if (c->reduction == RESHARD_AVG && counted > 0)
        sum /= (double)counted;
    if (c->reduction == RESHARD_MAX)
        sum = winner >= 0 ? c->after[winner * WIDTH + k] : 0;
    c->y[bag * WIDTH + k] = sum;
}

static void define_case(bag_case *c)
{
    define_norms(c);
    for (int64_t bag = 0, at = 0; bag < BAGS; at += c->sizes[bag++]) {
        for (int64_t k = 0; k < WIDTH; k++)
            define_element(c, bag, at, k);
    }
}

/* ---- drawing --------------------------------------------------------------------------------- */

static const struct {
    int32_t ranks, parts;
    const char *weight, *bags;
} layouts[] = {
    {1, 1, NULL, NULL},
    {3, 1, "3: R", "3: R"},
    {3, 1, "3: S(0)", "3: R"},
    {2, 1, "2: S(0/2)", "2: R"},
    {4, 1, "4[2,0,3,1]: S(0~)", "4[2,0,3,1]: R"},
    {3, 1, "3: S(1)", "3: R"},
    {2, 2, "2: R", "2: S(0)"},
    {4, 4, "4: R", "4: S(0)"},
    {4, 2, "2,2: S(0), R", "2,2: R, S(0)"},
    {4, 2, "2,2: S(1), R", "2,2: R, S(0)"},
    {4, 1, "2,2: S(0), S(1)", "2,2: R, R"},
    {4, 1, "4: S(0=9,0,0,0)", "4: R"},
};
enum { LAYOUTS = (int)(sizeof layouts / sizeof *layouts) };

static void draw_case(draw_state *draw, int layout, bag_case *c)
{
    static const reshard_reduction ways[] = {RESHARD_SUM, RESHARD_AVG, RESHARD_MAX};
    static const double norms[] = {1, 2, 3, (double)INFINITY};
    memset(c, 0, sizeof *c);
    c->weight = layouts[layout].weight;
    c->bags = layouts[layout].bags;
    c->ranks = layouts[layout].ranks;
    c->parts = layouts[layout].parts;
    c->reduction = ways[draw_below(draw, 3)];
    c->list = draw_chance(draw, 50);
    c->weighted = c->reduction == RESHARD_SUM && draw_chance(draw, 50);
    c->pads = draw_chance(draw, 50);
    c->padding = draw_below(draw, ROWS);
    c->max_norm = draw_chance(draw, 40) ? 1.25 : 0;
    c->norm_type = norms[draw_below(draw, 4)];
    int64_t size = draw_below(draw, 5);
    for (int64_t i = 0; i < BAGS; i++)
        c->sizes[i] = c->list ? draw_below(draw, 6) : size;
    for (int64_t i = 0; i < BAGS; i++)
        c->count += c->sizes[i];
    for (int64_t i = 0; i < c->count; i++) {
        c->indices[i] = draw_below(draw, ROWS);
        c->samples[i] = (double)draw_below(draw, 1000) / 500 - 1;
    }
    /* Few different values, so that maxima have ties. */
    for (int64_t i = 0; i < ROWS * WIDTH; i++)
        c->w[i] = (double)draw_below(draw, 7) / 2 - 1.5;
    define_case(c);
}

/* ---- running --------------------------------------------------------------------------------- */

static reshard_tensor *tensor_of(reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                                 const void *data)
{
    reshard_tensor *made = NULL;
    MUST(reshard_tensor_from_data(NULL, dtype, ndim, shape, data, &made));
    return made;
}

/* This rank's bags: those of its coordinate along the axis that cuts them. */
static void find_own(const bag_case *c, int32_t rank, int64_t *first, int64_t *last, int64_t *from,
                     int64_t *to)
{
    int64_t part = c->parts > 0 ? rank % c->parts : 0;
    *first = BAGS * part / c->parts;
    *last = BAGS * (part + 1) / c->parts;
    *from = *to = 0;
    for (int64_t i = 0; i < *last; i++) {
        *from += i < *first ? c->sizes[i] : 0;
        *to += c->sizes[i];
    }
}

typedef struct bag_tensors {
    reshard_tensor *local[4], *used[4]; /* weight, indices, offsets, sample weights */
} bag_tensors;

static void make_tensors(const bag_case *c, int32_t rank, bag_tensors *t)
{
    int64_t first, last, from, to, offsets[BAGS + 1] = {0};
    find_own(c, rank, &first, &last, &from, &to);
    for (int64_t i = first; i < last; i++)
        offsets[i - first + 1] = offsets[i - first] + c->sizes[i];
    int64_t matrix[] = {last - first, c->sizes[0]}, list[] = {to - from}, bags[] = {last - first};
    const int64_t *shape = c->list ? list : matrix;
    t->local[0] = tensor_of(RESHARD_F64, SHAPE(ROWS, WIDTH), c->w);
    t->local[1] = tensor_of(RESHARD_I64, c->list ? 1 : 2, shape, c->indices + from);
    t->local[2] = c->list ? tensor_of(RESHARD_I64, 1, bags, offsets) : NULL;
    t->local[3] =
        c->weighted ? tensor_of(RESHARD_F64, c->list ? 1 : 2, shape, c->samples + from) : NULL;
    MUST(reshard_tensor_set_requires_grad(t->local[0], 1));
    if (c->weighted)
        MUST(reshard_tensor_set_requires_grad(t->local[3], 1));
    memcpy(t->used, t->local, sizeof t->used);
}

static reshard_status spread_tensors(const bag_case *c, reshard_group *group, bag_tensors *t)
{
    reshard_spec *weight = spec_of(c->weight);
    reshard_status status = reshard_tensor_shard(NULL, group, weight, 0, t->local[0], &t->used[0]);
    reshard_spec_release(weight);
    for (int i = 1; i < 4 && status == RESHARD_OK; i++) {
        if (t->local[i] != NULL)
            t->used[i] = local_as(t->local[i], group, c->bags);
    }
    return status;
}

static bool is_near(const double *expected, const reshard_tensor *found, int64_t count)
{
    bool near = found != NULL && reshard_tensor_volume(found) == count;
    for (int64_t i = 0; near && i < count; i++)
        near = fabs(expected[i] - element(found, i)) <= 1e-9;
    return near;
}

/* All ranks have the same loss, of the whole output. */
static reshard_tensor *loss_of(const bag_case *c, reshard_tensor *y)
{
    reshard_tensor *whole = c->bags != NULL ? reshard_tensor_full(y) : y;
    double weights[BAGS * WIDTH];
    for (int64_t i = 0; i < BAGS * WIDTH; i++)
        weights[i] = loss_weight(i);
    reshard_tensor *w = tensor_of(RESHARD_F64, SHAPE(BAGS, WIDTH), weights);
    reshard_tensor *loss = reshard_sum(reshard_mul(whole, w));
    reshard_tensor_release(w);
    return loss;
}

static reshard_status check_results(const bag_case *c, int32_t rank, const bag_tensors *t)
{
    int64_t first, last, from, to;
    find_own(c, rank, &first, &last, &from, &to);
    reshard_tensor *dw = reshard_tensor_retain(reshard_tensor_gradient(t->used[0]));
    reshard_tensor *after = reshard_tensor_retain(t->used[0]);
    if (c->weight != NULL) {
        reshard_tensor_release(dw);
        reshard_tensor_release(after);
        dw = whole_of(reshard_tensor_gradient(t->used[0]));
        after = whole_of(t->used[0]);
    }
    bool right = is_near(c->dw, dw, ROWS * WIDTH) && is_near(c->after, after, ROWS * WIDTH);
    if (c->weighted)
        right =
            right && is_near(c->dsamples + from, reshard_tensor_gradient(t->local[3]), to - from);
    reshard_tensor_release(dw);
    reshard_tensor_release(after);
    CHECK(right);
    return RESHARD_OK;
}

static reshard_status body_case(void *user, reshard_group *group)
{
    const bag_case *c = user;
    int32_t rank = reshard_group_rank(group);
    reshard_scope *scope = NULL;
    bag_tensors t;
    make_tensors(c, rank, &t);
    TRY(reshard_scope_open(NULL, &scope));
    if (c->weight != NULL)
        TRY(spread_tensors(c, group, &t));
    reshard_embedding_bag_options options = {.size = sizeof options,
                                             .reduction = c->reduction,
                                             .offsets = t.used[2],
                                             .sample_weights = t.used[3],
                                             .pads = c->pads,
                                             .padding_index = c->padding - ROWS,
                                             .max_norm = c->max_norm,
                                             .norm_type = c->norm_type};
    reshard_tensor *y = reshard_embedding_bag(t.used[0], t.used[1], &options);
    TRY(reshard_scope_status(scope));
    reshard_tensor *whole = c->weight != NULL ? whole_of(y) : reshard_tensor_retain(y);
    CHECK(is_near(c->y, whole, BAGS * WIDTH));
    reshard_tensor_release(whole);
    TRY(reshard_backward(loss_of(c, y), NULL, NULL));
    TRY(check_results(c, rank, &t));
    TRY(reshard_scope_close(scope));
    if (c->weight != NULL)
        reshard_tensor_release(t.used[0]);
    for (int i = 0; i < 4; i++)
        reshard_tensor_release(t.local[i]);
    return RESHARD_OK;
}

static void test_bag__random(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 120; seed++) {
        draw_state draw;
        bag_case c;
        draw_seed(&draw, seed);
        draw_case(&draw, (int)(seed % LAYOUTS), &c);
        reshard_status status = reshard_group_run(NULL, c.ranks, body_case, &c);
        if (status != RESHARD_OK)
            fail_msg("seed %d, weight %s, bags %s, %s%s%s%s, norm %g: %s", (int)seed,
                     c.weight != NULL ? c.weight : "local", c.bags != NULL ? c.bags : "local",
                     reshard_reduction_name(c.reduction), c.list ? ", a list" : "",
                     c.weighted ? ", weighted" : "", c.pads ? ", padded" : "", c.max_norm,
                     reshard_error_text());
    }
}

/* ---- edges ----------------------------------------------------------------------------------- */

/* A NaN wins as the first entry, and loses otherwise, whichever rank has the row. -0 and 0 are
 * equal: the first stays. */
static reshard_status body_nan(void *user, reshard_group *group)
{
    (void)user;
    const double w[] = {NAN, 1, -INFINITY, 2};
    const int64_t rows[] = {0, 1, 3, 0, 2, 2, 2, 0};
    reshard_scope *scope = NULL;
    reshard_tensor *whole = tensor_of(RESHARD_F64, SHAPE(4, 1), w), *weight = NULL;
    reshard_tensor *list = tensor_of(RESHARD_I64, SHAPE(4, 2), rows);
    reshard_spec *cut = spec_of("4: S(0)");
    reshard_embedding_bag_options options = {.size = sizeof options, .reduction = RESHARD_MAX};
    TRY(reshard_tensor_shard(NULL, group, cut, 0, whole, &weight));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y =
        reshard_tensor_full(reshard_embedding_bag(weight, local_as(list, group, "4: R"), &options));
    TRY(reshard_scope_status(scope));
    CHECK(isnan(element(y, 0)) && element(y, 1) == 2);
    CHECK(element(y, 2) == (double)-INFINITY && element(y, 3) == (double)-INFINITY);
    TRY(reshard_scope_close(scope));
    reshard_spec_release(cut);
    reshard_tensor_release(whole);
    reshard_tensor_release(weight);
    reshard_tensor_release(list);
    return RESHARD_OK;
}

static void test_bag__nan(void **state)
{
    (void)state;
    run_ranks(4, body_nan, NULL);
}

/* f16, bf16 and f32 give what f64 does, rounded. */
static void test_bag__dtypes(void **state)
{
    (void)state;
    static const reshard_dtype dtypes[] = {RESHARD_F16, RESHARD_BF16, RESHARD_F32};
    const double w[] = {0.5, -1, 2, 0.25, 4, -8}, y[] = {2.5, -0.75, 6, -9};
    const int64_t rows[] = {0, 1, 0, 2};
    for (size_t i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) {
            static const reshard_reduction ways[] = {RESHARD_SUM, RESHARD_AVG, RESHARD_MAX};
            const double expected[3] = {y[0], y[0] / 2, 2};
            reshard_scope *scope = NULL;
            reshard_embedding_bag_options options = {
                .size = sizeof options, .reduction = ways[k], .max_norm = 1000};
            MUST(reshard_scope_open(NULL, &scope));
            reshard_tensor *wide = tensor_of(RESHARD_F64, SHAPE(3, 2), w);
            reshard_tensor *list = tensor_of(RESHARD_I64, SHAPE(2, 2), rows);
            reshard_tensor *bags =
                reshard_embedding_bag(reshard_tensor_cast(wide, dtypes[i]), list, &options);
            assert_true(bags != NULL && reshard_tensor_dtype(bags) == dtypes[i]);
            assert_true(element(bags, 0) == expected[k]);
            MUST(reshard_scope_close(scope));
            reshard_tensor_release(wide);
            reshard_tensor_release(list);
        }
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void test_bag__refusals(void **state)
{
    (void)state;
    const int64_t numbers[] = {0, 2, 1, 0};
    reshard_tensor *w = make_zeros(RESHARD_F64, SHAPE(3, 2));
    reshard_tensor *matrix = tensor_of(RESHARD_I64, SHAPE(2, 2), numbers);
    reshard_tensor *list = tensor_of(RESHARD_I64, SHAPE(4), numbers);
    reshard_tensor *rise = tensor_of(RESHARD_I64, SHAPE(2), numbers);
    reshard_tensor *half = make_zeros(RESHARD_F32, SHAPE(2, 2));
    reshard_tensor *factors = make_zeros(RESHARD_F64, SHAPE(2, 2));
    const struct {
        reshard_tensor *indices;
        reshard_embedding_bag_options options;
        reshard_status status;
        const char *text;
    } rows[] = {
        {list, {.reduction = RESHARD_SUM}, RESHARD_ERR_INVALID, "indices i64 4 need offsets"},
        {matrix, {.offsets = rise}, RESHARD_ERR_INVALID, "offsets go with indices of one dim"},
        {list, {.offsets = list}, RESHARD_ERR_INVALID, "offset 1 is 2, behind which comes 1"},
        {list, {.offsets = rise, .last_offset = 1}, RESHARD_ERR_INVALID, "the last offset is 2"},
        {matrix, {.reduction = RESHARD_PROD}, RESHARD_ERR_UNSUPPORTED, "the reduction \"prod\""},
        {matrix, {.pads = 1, .padding_index = 3}, RESHARD_ERR_RANGE, "the padding index is 3"},
        {matrix, {.max_norm = -1}, RESHARD_ERR_INVALID, "max_norm -1"},
        {matrix, {.max_norm = (double)NAN}, RESHARD_ERR_INVALID, "max_norm nan"},
        {matrix,
         {.reduction = RESHARD_MAX, .sample_weights = factors},
         RESHARD_ERR_INVALID,
         "sample weights go with sums"},
        {matrix, {.sample_weights = half}, RESHARD_ERR_INVALID, "sample weights f32 2x2"},
        {factors, {.reduction = RESHARD_SUM}, RESHARD_ERR_UNSUPPORTED, "indices are f64, not i64"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_scope *scope = NULL;
        reshard_embedding_bag_options options = rows[i].options;
        options.size = sizeof options;
        MUST(reshard_scope_open(NULL, &scope));
        assert_null(reshard_embedding_bag(w, rows[i].indices, &options));
        reshard_status status = reshard_scope_close(scope);
        if (status != rows[i].status || strstr(reshard_error_text(), rows[i].text) == NULL)
            fail_msg("row %d: %s", (int)i, reshard_error_text());
    }
    set_element(matrix, 3, 3);
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    assert_null(reshard_embedding_bag(w, matrix, NULL));
    assert_int_equal(reshard_scope_close(scope), RESHARD_ERR_RANGE);
    reshard_tensor *all[] = {w, matrix, list, rise, half, factors};
    for (size_t i = 0; i < 6; i++)
        reshard_tensor_release(all[i]);
}

/* Layouts without a row in the table. Nothing is scaled before they are refused. */
static reshard_status body_layouts(void *user, reshard_group *group)
{
    (void)user;
    static const struct {
        const char *weight, *indices, *text;
    } rows[] = {
        {"2: S(0)", "2: S(0)", "weight with \"2: S(0)\", indices with \"2: S(0)\", offsets with"},
        {"2: R", "2: S(1)", "do not fit"},
        {"2: P(sum)", "2: R", "weight with \"2: P(sum)\": redistribute it first"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_scope *scope = NULL;
        reshard_tensor *w = make_zeros(RESHARD_F64, SHAPE(4, 2));
        reshard_tensor *x = make_zeros(RESHARD_I64, SHAPE(2, 2));
        MUST(reshard_tensor_fill(w, 9));
        TRY(reshard_scope_open(NULL, &scope));
        reshard_embedding_bag_options options = {.size = sizeof options, .max_norm = 1};
        CHECK(reshard_embedding_bag(local_as(w, group, rows[i].weight),
                                    local_as(x, group, rows[i].indices), &options) == NULL);
        CHECK(reshard_scope_status(scope) == RESHARD_ERR_INVALID);
        CHECK(strstr(reshard_error_text(), rows[i].text) != NULL);
        CHECK(element(w, 0) == 9);
        (void)reshard_scope_close(scope);
        reshard_tensor_release(w);
        reshard_tensor_release(x);
    }
    return RESHARD_OK;
}

static void test_bag__refused_layouts(void **state)
{
    (void)state;
    run_ranks(2, body_layouts, NULL);
}

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct attempt {
    reshard_context *context; /* of rank 1 */
    bag_case c;
    reshard_status statuses[2];
} attempt;

static reshard_status body_attempt(void *user, reshard_group *group)
{
    attempt *a = user;
    int32_t rank = reshard_group_rank(group);
    reshard_scope *scope = NULL;
    bag_tensors t;
    make_tensors(&a->c, rank, &t);
    reshard_status status = reshard_scope_open(rank == 1 ? a->context : NULL, &scope);
    if (status == RESHARD_OK) {
        reshard_tensor *weight = local_as(t.local[0], group, a->c.weight);
        reshard_embedding_bag_options options = {
            .size = sizeof options, .reduction = a->c.reduction, .max_norm = a->c.max_norm};
        options.offsets = local_as(t.local[2], group, a->c.bags);
        reshard_tensor *y =
            reshard_embedding_bag(weight, local_as(t.local[1], group, a->c.bags), &options);
        (void)reshard_backward(reshard_sum(reshard_tensor_full(y)), NULL, NULL);
        status = reshard_scope_close(scope);
    }
    for (int i = 0; i < 4; i++)
        reshard_tensor_release(t.local[i]);
    a->statuses[rank] = status;
    return status;
}

static reshard_status run_attempt(reshard_context *context, void *user)
{
    attempt *a = user;
    a->context = context;
    reshard_status status = reshard_group_run(NULL, 2, body_attempt, a);
    if ((a->statuses[0] == RESHARD_OK) != (a->statuses[1] == RESHARD_OK))
        return reshard_error_set(RESHARD_ERR_CHECK, "one rank fails, and the other one does not");
    return status;
}

static void test_bag__memory_of_one_rank(void **state)
{
    (void)state;
    static const char *const ways[][2] = {{"2: S(1)", "2: R"}, {"2: R", "2: S(0)"}};
    for (int way = 0; way < 2; way++) {
        words said = {""};
        attempt a = {.c = {.reduction = way == 0 ? RESHARD_MAX : RESHARD_AVG,
                           .list = true,
                           .max_norm = 0.5,
                           .weight = ways[way][0],
                           .bags = ways[way][1],
                           .ranks = 2,
                           .parts = way + 1,
                           .sizes = {1, 0, 2, 1, 0, 1, 2, 1},
                           .count = 8,
                           .indices = {1, 3, 3, 0, 8, 2, 1, 1},
                           .w = {3, 1, 2}}};
        if (!context_fail_each(run_attempt, &a, &said))
            fail_msg("way %d: %s", way, said.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bag__random),          cmocka_unit_test(test_bag__nan),
        cmocka_unit_test(test_bag__dtypes),          cmocka_unit_test(test_bag__refusals),
        cmocka_unit_test(test_bag__refused_layouts), cmocka_unit_test(test_bag__memory_of_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
