/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moves.h - one move between two layouts, with all that has to be true of it: every shard, and the
 * layout, are those of cutting the whole tensor directly; the source is as it was; the gradient is
 * that of the value, lying as the input does; and what its plan sends.
 */
#ifndef TESTS_TENSOR_MOVES_H
#define TESTS_TENSOR_MOVES_H

#include "tests/support/check.h"
#include "tests/tensor/cuts.h"

#include <string.h>

typedef struct move {
    int32_t ranks, ndim;
    int64_t shape[4];
    char from[80], to[80];
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

/* What a partial sum of equal contributions comes to. */
static inline double find_factor(const reshard_tensor *x)
{
    const reshard_spec *spec = reshard_layout_spec(reshard_tensor_layout(x));
    double factor = 1;
    for (int32_t i = 0; i < reshard_spec_cut_count(spec); i++) {
        const reshard_cut *cut = reshard_spec_cut(spec, i);
        if (cut->placement.kind == RESHARD_PARTIAL && cut->placement.reduction == RESHARD_SUM)
            factor *= reshard_mesh_axis_size(reshard_spec_mesh(spec), cut->axis);
    }
    return factor;
}

static inline const void *first_shard(const reshard_tensor *x)
{
    return reshard_tensor_local_shard_count(x) > 0
               ? reshard_tensor_data(reshard_tensor_local_shard(x, 0))
               : NULL;
}

static inline reshard_status run_move(void *user, reshard_group *group)
{
    const move *m = user;
    reshard_tensor *whole = make_zeros(RESHARD_F64, m->ndim, m->shape), *cut = NULL, *direct = NULL;
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        set_element(whole, i, (double)i + 1);
    char from[80], to[80];
    replicate(m->from, from);
    replicate(m->to, to);
    TRY(cut_directly(group, from, whole, &cut));
    TRY(cut_directly(group, to, whole, &direct));
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
    double factor = find_factor(x);
    const void *before = first_shard(x);
    const reshard_layout *layout = reshard_tensor_layout(x);
    reshard_tensor *y = move_to(x, m->to);
    CHECK(y != NULL);
    /* The source is as before: nothing is changed in place. */
    CHECK(before == first_shard(x) && layout == reshard_tensor_layout(x));
    /* Equal layouts, however they are written, share memory. */
    if (reshard_layout_equals(layout, reshard_tensor_layout(y)))
        CHECK(before == first_shard(y));
    if (strchr(m->to, 'P') == NULL) {
        TRY(same_shards(y, direct, factor));
        CHECK(reshard_layout_equals(reshard_tensor_layout(y), reshard_tensor_layout(direct)));
    }
    reshard_tensor *found = reshard_tensor_full(y);
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        CHECK(element(found, i) == factor * element(whole, i));
    (void)reshard_backward(found, whole, NULL);
    TRY(reshard_scope_status(scope));
    if (local != NULL) { /* every contribution gets the whole gradient */
        const reshard_tensor *expected = reshard_tensor_local_shard(cut, 0);
        CHECK(expected == NULL || is_close(reshard_tensor_gradient(local), expected, 0));
    } else {
        CHECK(reshard_layout_equals(reshard_tensor_layout(reshard_tensor_gradient(cut)),
                                    reshard_tensor_layout(cut)));
        TRY(same_shards(reshard_tensor_gradient(cut), cut, 1));
    }
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(cut);
    reshard_tensor_release(direct);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

static inline void check_move(const move *given)
{
    move m = *given;
    if (reshard_group_run(NULL, m.ranks, run_move, &m) != RESHARD_OK)
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
