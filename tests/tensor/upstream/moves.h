/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moves.h - one move between two layouts, with all that has to be true of it: every shard, and the
 * layout, are those of cutting the whole tensor directly; the source is as it was; the gradient is
 * that of the value, lying as the input does; and what its plan sends.
 */
#ifndef TESTS_TENSOR_UPSTREAM_MOVES_H
#define TESTS_TENSOR_UPSTREAM_MOVES_H

#include "layout/layout.h"
#include "spec/spec.h"
#include "tests/support/check.h"
#include "tests/support/info.h"
#include "tests/tensor/cuts.h"
#include "tests/tensor/ran_tensor.h"

#include <string.h>

enum { MOVE_TEXT = 240 };

typedef struct move {
    int32_t ranks, ndim;
    int64_t shape[4];
    char from[MOVE_TEXT], to[MOVE_TEXT];
    const char *upstream; /* the test of PyTorch's that has this move, or NULL */
    reshard_dtype dtype;  /* f32, f64 or c64; NONE: f64 */
} move;

/* The same spec with partial axes replicated. */
static inline void replicate(const char *text, char *out)
{
    for (; *text != '\0'; text++) {
        *out++ = *text == 'P' ? 'R' : *text;
        if (*text == 'P' && text[1] == '(')
            while (*text != ')')
                text++;
    }
    *out = '\0';
}

/* How many equal contributions of this reduction there are. */
static inline int32_t count_contributions(const reshard_tensor *x, reshard_reduction reduction)
{
    const reshard_spec *spec = reshard_tensor_layout(x)->spec;
    int32_t count = 1;
    for (int32_t i = 0; i < spec->cut_count; i++) {
        const reshard_cut *cut = &spec->cuts[i];
        if (cut->placement.kind == RESHARD_PARTIAL && cut->placement.reduction == reduction)
            count *= spec->mesh->sizes[cut->axis];
    }
    return count;
}

static inline bool has_partial(const reshard_tensor *x, reshard_reduction reduction)
{
    const reshard_spec *spec = reshard_tensor_layout(x)->spec;
    bool found = false;
    for (int32_t i = 0; i < spec->cut_count; i++) {
        const reshard_placement *p = &spec->cuts[i].placement;
        found = found || (p->kind == RESHARD_PARTIAL && p->reduction == reduction);
    }
    return found;
}

/* What equal contributions come to, and what the gradient g of that is to each of them. Of a
 * minimum or maximum the first one alone has it, which callers leave out. */
static inline double combine_equal(const reshard_tensor *x, double value)
{
    double product = 1;
    for (int32_t i = 0; i < count_contributions(x, RESHARD_PROD); i++)
        product *= value;
    return count_contributions(x, RESHARD_SUM) * product;
}

static inline double gradient_of_equal(const reshard_tensor *x, double value, double g)
{
    for (int32_t i = 1; i < count_contributions(x, RESHARD_PROD); i++)
        g *= value;
    return g / count_contributions(x, RESHARD_AVG);
}

static inline bool has_gradient_everywhere(const reshard_tensor *x)
{
    return !has_partial(x, RESHARD_MIN) && !has_partial(x, RESHARD_MAX);
}

static inline const void *first_shard(const reshard_tensor *x)
{
    return info_tensor(x).local_shard_count > 0
               ? reshard_tensor_data(reshard_tensor_local_shard(x, 0))
               : NULL;
}

/* The shards of y are those of cutting what the contributions of x come to. */
static inline reshard_status check_result(const move *m, reshard_group *group,
                                          const reshard_tensor *x, const reshard_tensor *y,
                                          const reshard_tensor *whole)
{
    reshard_tensor *combined = make_zeros(reshard_tensor_dtype(x), m->ndim, m->shape);
    reshard_tensor *direct = NULL;
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        set_element(combined, i, combine_equal(x, element(whole, i)));
    TRY(cut_directly(group, m->to, combined, &direct));
    TRY(same_shards(y, direct, 1));
    CHECK(reshard_layout_equals(reshard_tensor_layout(y), reshard_tensor_layout(direct)));
    reshard_tensor_release(direct);
    reshard_tensor_release(combined);
    return RESHARD_OK;
}

/* Every contribution gets its gradient, which is the value itself here. */
static inline reshard_status check_local_gradient(const reshard_tensor *x,
                                                  const reshard_tensor *local)
{
    if (!has_gradient_everywhere(x) || info_tensor(x).local_shard_count == 0)
        return RESHARD_OK;
    const reshard_tensor *gradient = reshard_tensor_gradient(local);
    CHECK(gradient != NULL && reshard_tensor_volume(gradient) == reshard_tensor_volume(local));
    for (int64_t i = 0; i < reshard_tensor_volume(local); i++)
        CHECK(element(gradient, i) == gradient_of_equal(x, element(local, i), element(local, i)));
    return RESHARD_OK;
}

static inline reshard_status run_move(void *user, reshard_group *group)
{
    const move *m = user;
    reshard_dtype dtype = m->dtype != RESHARD_DTYPE_NONE ? m->dtype : RESHARD_F64;
    reshard_tensor *whole = make_zeros(dtype, m->ndim, m->shape), *cut = NULL;
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        set_element(whole, i, (double)i + 1);
    char from[MOVE_TEXT];
    replicate(m->from, from);
    TRY(cut_directly(group, from, whole, &cut));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *x = cut, *local = NULL;
    if (strchr(m->from, 'P') != NULL) {
        local = reshard_tensor_detach(reshard_tensor_to_local(cut, NULL));
        TRY(reshard_tensor_set_requires_grad(local, 1));
        x = local_as(local, group, m->from);
    } else {
        TRY(reshard_tensor_set_requires_grad(cut, 1));
    }
    CHECK(x != NULL);
    const void *before = first_shard(x);
    const reshard_layout *layout = reshard_tensor_layout(x);
    reshard_tensor *y = move_to(x, m->to);
    CHECK(y != NULL);
    ran_move(m->upstream, x, y);
    /* The source is as before: nothing is changed in place. */
    CHECK(before == first_shard(x) && layout == reshard_tensor_layout(x));
    /* Equal layouts, however they are written, share memory. */
    if (reshard_layout_equals(layout, reshard_tensor_layout(y)))
        CHECK(before == first_shard(y));
    if (strchr(m->to, 'P') == NULL)
        TRY(check_result(m, group, x, y, whole));
    reshard_tensor *found = reshard_tensor_full(y);
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        CHECK(element(found, i) == combine_equal(x, element(whole, i)));
    (void)reshard_backward(found, whole, NULL);
    TRY(reshard_scope_status(scope));
    if (local != NULL) {
        TRY(check_local_gradient(x, local));
    } else {
        CHECK(reshard_layout_equals(reshard_tensor_layout(reshard_tensor_gradient(cut)),
                                    reshard_tensor_layout(cut)));
        TRY(same_shards(reshard_tensor_gradient(cut), cut, 1));
    }
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(cut);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

/* Shards of complex numbers, compared bit by bit. */
static inline reshard_status same_bits(const reshard_tensor *a, const reshard_tensor *b)
{
    CHECK(info_tensor(a).local_shard_count == info_tensor(b).local_shard_count);
    for (int64_t i = 0; i < info_tensor(a).local_shard_count; i++) {
        const reshard_tensor *x = reshard_tensor_local_shard(a, i);
        const reshard_tensor *y = reshard_tensor_local_shard(b, i);
        CHECK(reshard_tensor_volume(x) == reshard_tensor_volume(y));
        CHECK(reshard_tensor_volume(x) == 0 ||
              memcmp(reshard_tensor_data(x), reshard_tensor_data(y),
                     (size_t)reshard_tensor_volume(x) * 2 * sizeof(float)) == 0);
    }
    return RESHARD_OK;
}

/* The same with complex numbers, of which a sum is partial at most. */
static inline reshard_status run_complex_move(void *user, reshard_group *group)
{
    const move *m = user;
    reshard_tensor *whole = make_zeros(RESHARD_C64, m->ndim, m->shape), *cut = NULL, *direct = NULL;
    reshard_tensor *combined = make_zeros(RESHARD_C64, m->ndim, m->shape);
    float *numbers = reshard_tensor_write(whole), *sums = reshard_tensor_write(combined);
    char from[MOVE_TEXT], to[MOVE_TEXT];
    replicate(m->from, from);
    replicate(m->to, to);
    for (int64_t i = 0; i < 2 * reshard_tensor_volume(whole); i++)
        numbers[i] = (float)(draw_hash(9, (uint64_t)i) % 4096) - 2000;
    TRY(cut_directly(group, from, whole, &cut));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *x = cut, *local = NULL;
    if (strchr(m->from, 'P') != NULL) {
        local = reshard_tensor_detach(reshard_tensor_to_local(cut, NULL));
        TRY(reshard_tensor_set_requires_grad(local, 1));
        x = local_as(local, group, m->from);
    } else {
        TRY(reshard_tensor_set_requires_grad(cut, 1));
    }
    reshard_tensor *y = move_to(x, m->to);
    CHECK(y != NULL && reshard_tensor_dtype(y) == RESHARD_C64);
    ran_move(m->upstream, x, y);
    for (int64_t i = 0; i < 2 * reshard_tensor_volume(whole); i++)
        sums[i] = (float)combine_equal(x, numbers[i]);
    reshard_tensor *again = strchr(m->to, 'P') != NULL ? move_to(y, to) : y;
    TRY(cut_directly(group, to, combined, &direct));
    CHECK(again != NULL);
    TRY(same_bits(again, direct));
    /* A sum hands its gradient on as it is, to each of its parts; here it is the value itself. */
    TRY(reshard_backward(reshard_tensor_full(y), whole, NULL));
    if (local == NULL)
        TRY(same_bits(reshard_tensor_gradient(cut), cut));
    else
        CHECK(memcmp(reshard_tensor_data(reshard_tensor_gradient(local)),
                     reshard_tensor_data(local),
                     (size_t)reshard_tensor_volume(local) * 2 * sizeof(float)) == 0);
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(cut);
    reshard_tensor_release(direct);
    reshard_tensor_release(whole);
    reshard_tensor_release(combined);
    return RESHARD_OK;
}

static inline void check_move(const move *given)
{
    move m = *given;
    reshard_rank_fn body = m.dtype == RESHARD_C64 ? run_complex_move : run_move;
    if (reshard_group_run(NULL, m.ranks, body, &m) != RESHARD_OK)
        fail_msg("%s to %s: %s", m.from, m.to, reshard_error_text());
}

static inline move make_move(int32_t ranks, int32_t ndim, const int64_t *shape, const char *from,
                             const char *to)
{
    move m = {.ranks = ranks, .ndim = ndim};
    memcpy(m.shape, shape, (size_t)ndim * sizeof *shape);
    (void)snprintf(m.from, sizeof m.from, "%s", from);
    (void)snprintf(m.to, sizeof m.to, "%s", to);
    return m;
}

/* A move of one of upstream's tests, in f32 as there. */
static inline void check_move_of(const char *upstream, move m)
{
    m.upstream = upstream;
    m.dtype = RESHARD_F32;
    check_move(&m);
}

/* The same, and in c64, as upstream's parametrized ones. */
static inline void check_moves_of(const char *upstream, move m)
{
    check_move_of(upstream, m);
    m.upstream = upstream;
    m.dtype = RESHARD_C64;
    check_move(&m);
}

/* The bytes that a move sends between ranks, from its plan. */
static inline int64_t find_bytes_planned(const move *m, reshard_dtype dtype,
                                         const reshard_plan_options *options)
{
    reshard_layout *from = NULL, *to = NULL;
    reshard_plan *plan = NULL;
    reshard_plan_stats stats = {.size = sizeof stats};
    MUST(reshard_layout_parse(NULL, m->from, m->ndim, m->shape, &from));
    MUST(reshard_layout_parse(NULL, m->to, m->ndim, m->shape, &to));
    MUST(reshard_plan_create_simple(NULL, from, to, dtype, options, &plan));
    MUST(reshard_plan_get_stats(plan, &stats, NULL));
    reshard_plan_release(plan);
    reshard_layout_release(from);
    reshard_layout_release(to);
    return (int64_t)stats.bytes_moved;
}

static inline int64_t find_bytes_moved(const move *m, reshard_dtype dtype)
{
    return find_bytes_planned(m, dtype, NULL);
}

#endif
