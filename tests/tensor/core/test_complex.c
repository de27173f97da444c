/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_complex.c - c64 and c128: factories, moves, sums and gradients. Gradients are PyTorch's: of
 * the real loss L they are dL/d(re) + i dL/d(im), so that a factor's is by the conjugate of the
 * other. They are held against finite differences of models written here with <complex.h>.
 */
#include "tests/support/check.h"
#include "tests/tensor/distributed.h"

#include <complex.h>
#include <math.h>
#include <string.h>

enum { RANKS = 4, COUNT = 8 };

static double complex get(const reshard_tensor *tensor, int64_t i)
{
    if (reshard_tensor_dtype(tensor) == RESHARD_C64)
        return (double complex)((const float complex *)reshard_tensor_data(tensor))[i];
    return ((const double complex *)reshard_tensor_data(tensor))[i];
}

static void set(reshard_tensor *tensor, int64_t i, double complex value)
{
    void *data = reshard_tensor_write(tensor);
    if (reshard_tensor_dtype(tensor) == RESHARD_C64)
        ((float complex *)data)[i] = (float complex)value;
    else
        ((double complex *)data)[i] = value;
}

/* Numbers of a rank: parts between 0.3 and 1.3, by what they are for. */
static double complex number(int what, int32_t rank, int64_t i)
{
    uint64_t bits = draw_hash((uint64_t)what * 100 + (uint64_t)rank, (uint64_t)i);
    return 0.3 + (double)(bits & 0xffff) / 65536 + I * (0.3 + (double)(bits >> 48) / 65536);
}

static reshard_tensor *make_numbers(reshard_dtype dtype, int what, int32_t rank, int64_t count)
{
    reshard_tensor *made = make_zeros(dtype, SHAPE(count));
    for (int64_t i = 0; i < count; i++)
        set(made, i, number(what, rank, i));
    return made;
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* a*b with the gradient 1+i: by hand, and as PyTorch gives it. */
static void test_mul__conjugate_rule(void **state)
{
    (void)state;
    reshard_dtype dtypes[] = {RESHARD_C64, RESHARD_C128};
    for (int d = 0; d < 2; d++) {
        reshard_tensor *a = make_zeros(dtypes[d], SHAPE(1)), *b = make_zeros(dtypes[d], SHAPE(1));
        reshard_tensor *g = make_zeros(dtypes[d], SHAPE(1));
        reshard_scope *scope = NULL;
        set(a, 0, 1 + 2 * I);
        set(b, 0, 3 - 1 * I);
        set(g, 0, 1 + 1 * I);
        MUST(reshard_tensor_set_requires_grad(a, 1));
        MUST(reshard_tensor_set_requires_grad(b, 1));
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *c = reshard_mul(a, b);
        assert_true(get(c, 0) == 5 + 5 * I);
        /* A loss is real; where to begin with a complex one, nobody can tell. */
        assert_int_equal(reshard_backward(c, NULL, NULL), RESHARD_ERR_INVALID);
        assert_int_equal(reshard_scope_close(scope), RESHARD_ERR_INVALID);
        MUST(reshard_scope_open(NULL, &scope));
        c = reshard_mul(a, b);
        MUST(reshard_backward(c, g, NULL));
        assert_true(get(reshard_tensor_gradient(a), 0) == 2 + 4 * I);
        assert_true(get(reshard_tensor_gradient(b), 0) == 3 - 1 * I);
        /* A second pass adds to the gradients. */
        MUST(reshard_backward(reshard_scale(reshard_add(a, a), 0.5), g, NULL));
        assert_true(get(reshard_tensor_gradient(a), 0) == 3 + 5 * I);
        MUST(reshard_scope_close(scope));
        reshard_tensor_release(a);
        reshard_tensor_release(b);
        reshard_tensor_release(g);
    }
}

static void test_sum__both_parts(void **state)
{
    (void)state;
    reshard_tensor *x = make_zeros(RESHARD_C128, SHAPE(3, 2)), *g = NULL;
    reshard_scope *scope = NULL;
    for (int64_t i = 0; i < 6; i++)
        set(x, i, (double)i + I * (double)(10 * i));
    MUST(reshard_tensor_set_requires_grad(x, 1));
    MUST(reshard_scope_open(NULL, &scope));
    assert_true(get(reshard_sum(x), 0) == 15 + 150 * I);
    assert_true(get(reshard_mean(x), 0) == 2.5 + 25 * I);
    reshard_tensor *columns = reshard_reduce_dims(x, RESHARD_SUM, 1, (int32_t[]){0}, 0);
    assert_true(get(columns, 0) == 6 + 60 * I && get(columns, 1) == 9 + 90 * I);
    g = make_numbers(RESHARD_C128, 1, 0, 2);
    MUST(reshard_backward(columns, g, NULL));
    for (int64_t i = 0; i < 6; i++)
        assert_true(get(reshard_tensor_gradient(x), i) == get(g, i % 2));
    /* What has an order or a rounding of its own takes no complex numbers. */
    assert_null(reshard_relu(x));
    assert_non_null(strstr(reshard_error_text(), "relu: input 0 is c128"));
    assert_int_equal(reshard_scope_close(scope), RESHARD_ERR_UNSUPPORTED);
    reshard_tensor_release(g);
    reshard_tensor_release(x);
}

/* ---- factories ------------------------------------------------------------------------------- */

static reshard_status body_factories(void *user, reshard_group *group)
{
    static const char *const specs[] = {"4: S(0)", "4: S(1)", "2,2: S(1), S(0)", "4: R",
                                        "4[0,0,1,1]: S(flat)"};
    (void)user;
    for (int kind = 0; kind < 3; kind++) {
        for (reshard_dtype dtype = RESHARD_C64;; dtype = RESHARD_C128) {
            reshard_tensor *local = make_zeros(dtype, SHAPE(5, 7));
            double sum = 0, square = 0;
            MUST(kind == 0   ? reshard_tensor_fill(local, 2.5)
                 : kind == 1 ? reshard_tensor_fill_random(local, RESHARD_UNIFORM, 6)
                             : reshard_tensor_fill_random(local, RESHARD_NORMAL, 6));
            for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
                reshard_tensor *made = spread_random(group, specs[s], dtype, SHAPE(5, 7), 6);
                CHECK(made != NULL);
                if (kind == 0)
                    TRY(reshard_tensor_fill(made, 2.5));
                else if (kind == 2)
                    TRY(reshard_tensor_fill_random(made, RESHARD_NORMAL, 6));
                reshard_tensor *whole = whole_of(made);
                CHECK(whole != NULL);
                for (int64_t i = 0; i < 35; i++)
                    CHECK(get(whole, i) == get(local, i));
                reshard_tensor_release(whole);
                reshard_tensor_release(made);
            }
            for (int64_t i = 0; i < 35; i++) {
                CHECK(kind != 0 || get(local, i) == 2.5);
                CHECK(kind != 1 || (creal(get(local, i)) >= 0 && creal(get(local, i)) < 1));
                CHECK(kind != 1 || (cimag(get(local, i)) >= 0 && cimag(get(local, i)) < 1));
                sum += creal(get(local, i)) - cimag(get(local, i));
                square += creal(get(local, i) * conj(get(local, i)));
            }
            CHECK(kind == 0 || fabs(sum) > 0.01); /* parts are two numbers */
            CHECK(kind != 2 || fabs(square / 35 - 1) < 0.5);
            reshard_tensor_release(local);
            if (dtype == RESHARD_C128)
                break;
        }
    }
    return RESHARD_OK;
}

static void test_factories__by_global_index(void **state)
{
    (void)state;
    run_ranks(RANKS, body_factories, NULL);
}

/* ---- gradients over ranks -------------------------------------------------------------------- */

typedef enum exchange_kind {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    PARTIAL_TO_SHARD, /* from_local as P(op), redistribute to S(0) */
    SHARD_TO_WHOLE,   /* from_local as S(0), redistribute to R, to_local */
    EXCHANGE_KINDS
} exchange_kind;

typedef struct exchange_case {
    exchange_kind kind;
    reshard_reduction reduction;
    reshard_dtype dtype;
    bool zero; /* one of the factors is */
} exchange_case;

static bool reduces(exchange_kind kind)
{
    return kind == ALL_REDUCE || kind == REDUCE_SCATTER || kind == PARTIAL_TO_SHARD;
}

/* What rank r has after the exchange of z[rank][i]: the definition. Returns how many. */
static int64_t model(const exchange_case *c, double complex z[RANKS][COUNT], int32_t r,
                     double complex *out)
{
    double complex reduced[COUNT];
    for (int64_t i = 0; i < COUNT; i++) {
        reduced[i] = c->reduction == RESHARD_PROD ? 1 : 0;
        for (int32_t k = 0; k < RANKS; k++)
            reduced[i] = c->reduction == RESHARD_PROD ? reduced[i] * z[k][i] : reduced[i] + z[k][i];
        if (c->reduction == RESHARD_AVG)
            reduced[i] /= RANKS;
    }
    if (c->kind == ALL_REDUCE || c->kind == BROADCAST) {
        memcpy(out, c->kind == BROADCAST ? z[1] : reduced, sizeof reduced);
        return COUNT;
    }
    if (c->kind == REDUCE_SCATTER || c->kind == PARTIAL_TO_SHARD) {
        memcpy(out, reduced + r * (COUNT / RANKS), sizeof *out * COUNT / RANKS);
        return COUNT / RANKS;
    }
    memcpy(out, z, sizeof *out * RANKS * COUNT);
    return RANKS * COUNT;
}

/* The sum of all ranks' losses. A tensor that redistribute makes whole has one gradient, of which
 * every rank gives the same. */
static double loss(const exchange_case *c, double complex z[RANKS][COUNT])
{
    double sum = 0;
    double complex out[RANKS * COUNT];
    bool one = c->kind == SHARD_TO_WHOLE;
    for (int32_t r = 0; r < (one ? 1 : RANKS); r++) {
        int64_t count = model(c, z, r, out);
        for (int64_t i = 0; i < count; i++)
            sum += creal(conj(number(2, one ? 0 : r, i)) * out[i]);
    }
    return sum;
}

static reshard_tensor *exchange(const exchange_case *c, reshard_tensor *x, reshard_group *group)
{
    char text[32];
    switch (c->kind) {
    case ALL_REDUCE:
        return reshard_tensor_exchange(x, group,
                                       RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE,
                                                       .reduction = c->reduction));
    case REDUCE_SCATTER:
        return reshard_tensor_exchange(x, group,
                                       RESHARD_OPTIONS(reshard_exchange,
                                                       .kind = RESHARD_REDUCE_SCATTER,
                                                       .reduction = c->reduction));
    case ALL_GATHER:
        return reshard_tensor_exchange(
            x, group, RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER));
    case BROADCAST:
        return reshard_tensor_exchange(
            x, group, RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_BROADCAST, .root = 1));
    case PARTIAL_TO_SHARD:
        (void)snprintf(text, sizeof text, "4: P(%s)", reshard_reduction_name(c->reduction));
        return reshard_tensor_to_local(move_to(local_as(x, group, text), "4: S(0)"), NULL);
    default:
        return reshard_tensor_to_local(move_to(local_as(x, group, "4: S(0)"), "4: R"), NULL);
    }
}

static reshard_status body_exchange(void *user, reshard_group *group)
{
    const exchange_case *c = user;
    int32_t rank = reshard_group_rank(group);
    double complex z[RANKS][COUNT], out[RANKS * COUNT];
    double tolerance = c->dtype == RESHARD_C64 ? 2e-4 : 1e-7, step = 1e-5;
    for (int32_t r = 0; r < RANKS; r++) {
        for (int64_t i = 0; i < COUNT; i++)
            z[r][i] = c->zero && (r + i) % 3 == 0 ? 0 : number(1, r, i);
    }
    reshard_tensor *x = make_zeros(c->dtype, SHAPE(COUNT));
    for (int64_t i = 0; i < COUNT; i++)
        set(x, i, z[rank][i]);
    MUST(reshard_tensor_set_requires_grad(x, 1));
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = exchange(c, x, group);
    TRY(reshard_scope_status(scope));
    int64_t count = model(c, z, rank, out);
    CHECK(reshard_tensor_volume(y) == count);
    for (int64_t i = 0; i < count; i++)
        CHECK(cabs(get(y, i) - out[i]) < (c->dtype == RESHARD_C64 ? 1e-5 : 1e-13));
    reshard_tensor *g = make_numbers(c->dtype, 2, c->kind == SHARD_TO_WHOLE ? 0 : rank, count);
    TRY(reshard_backward(y, g, NULL));
    for (int64_t i = 0; i < COUNT; i++) {
        double complex old = z[rank][i], expected = 0;
        for (int part = 0; part < 2; part++) {
            double complex direction = part == 0 ? 1 : I;
            z[rank][i] = old + step * direction;
            double above = loss(c, z);
            z[rank][i] = old - step * direction;
            expected += direction * (above - loss(c, z)) / (2 * step);
        }
        z[rank][i] = old;
        CHECK(cabs(get(reshard_tensor_gradient(x), i) - expected) <
              tolerance * (1 + cabs(expected)));
    }
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(g);
    reshard_tensor_release(x);
    return RESHARD_OK;
}

static void test_exchange__gradients_by_differences(void **state)
{
    (void)state;
    static const reshard_reduction reductions[] = {RESHARD_SUM, RESHARD_AVG, RESHARD_PROD};
    for (int kind = 0; kind < EXCHANGE_KINDS; kind++) {
        for (int i = 0; i < (reduces((exchange_kind)kind) ? 3 : 1); i++) {
            for (int k = 0; k < 4; k++) {
                exchange_case c = {(exchange_kind)kind, reductions[i],
                                   k < 2 ? RESHARD_C64 : RESHARD_C128, k % 2 == 1};
                run_ranks(RANKS, body_exchange, &c);
            }
        }
    }
}

/* Complex numbers have no order, which is an error on all ranks. */
static reshard_status body_unordered(void *user, reshard_group *group)
{
    reshard_scope *scope = NULL;
    (void)user;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *x = make_numbers(RESHARD_C128, 1, reshard_group_rank(group), COUNT);
    CHECK(reshard_tensor_exchange(x, group,
                                  RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE,
                                                  .reduction = RESHARD_MAX)) == NULL);
    CHECK(strstr(reshard_error_text(), "c128") != NULL);
    CHECK(reshard_scope_close(scope) == RESHARD_ERR_UNSUPPORTED);
    reshard_tensor_release(x);
    return RESHARD_OK;
}

static void test_exchange__no_order(void **state)
{
    (void)state;
    run_ranks(RANKS, body_unordered, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mul__conjugate_rule),
        cmocka_unit_test(test_sum__both_parts),
        cmocka_unit_test(test_factories__by_global_index),
        cmocka_unit_test(test_exchange__gradients_by_differences),
        cmocka_unit_test(test_exchange__no_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
