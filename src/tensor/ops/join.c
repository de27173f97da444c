/* SPDX-License-Identifier: Apache-2.0 */
/* join.c - split and cat, each the backward step of the other. Any dtype. */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "tensor/core/dense.h"
#include "tensor/dist/spread.h"
#include "tensor/grad/node.h"
#include "tensor/ops/spread_ops.h"

#include <inttypes.h>
#include <string.h>

/* Copies a tensor to its place along a dim of a larger dense one. */
static reshard_status put(reshard_tensor *whole, int32_t dim, int64_t start,
                          const reshard_tensor *part)
{
    reshard_tensor *view = NULL;
    reshard_status status = rs_tensor_view(whole->context, whole, part->ndim, part->shape,
                                           whole->strides, start * whole->strides[dim], &view);
    if (status == RESHARD_OK)
        rs_tensor_copy(part, view);
    reshard_tensor_release(view);
    return status;
}

/* ---- split ----------------------------------------------------------------------------------- */

typedef struct split_facts {
    int32_t dim;
    reshard_dtype dtype;
    rs_extents input;
} split_facts;

/* The sizes of the parts. There can be any number of them. */
typedef struct sizes {
    reshard_context *context;
    int32_t count;
    int64_t items[];
} sizes;

static size_t sizes_bytes(int32_t count)
{
    return sizeof(sizes) + (size_t)count * sizeof(int64_t);
}

static void forget_sizes(void *extra)
{
    sizes *s = extra;
    rs_release(s->context, s);
}

/* items NULL: the caller fills them in. */
static sizes *note_sizes(int32_t count, const int64_t *items)
{
    sizes *s = rs_allocate(rs_scope_context(), sizes_bytes(count));
    if (s == NULL)
        return NULL;
    s->context = rs_scope_context();
    s->count = count;
    if (items != NULL)
        memcpy(s->items, items, (size_t)count * sizeof *items);
    return s;
}

static void backward_split(rs_node *node, reshard_tensor *const *gradients,
                           reshard_tensor **out_gradients)
{
    const split_facts *facts = rs_node_facts(node);
    const sizes *s = node->extra;
    reshard_tensor *whole = NULL;
    int64_t start = 0;
    reshard_status status =
        rs_result_zeros(facts->dtype, facts->input.ndim, facts->input.shape, &whole);
    for (int32_t i = 0; i < s->count && status == RESHARD_OK; i++) {
        if (gradients[i] != NULL)
            status = put(whole, facts->dim, start, gradients[i]);
        start += s->items[i];
    }
    out_gradients[0] = rs_scope_finish(status, whole);
}

static reshard_status check_sizes(const reshard_tensor *x, int32_t dim, int32_t count,
                                  const int64_t *parts)
{
    int64_t total = 0;
    if (count < 1)
        return rs_fail(RESHARD_ERR_RANGE, "in %d parts", count);
    for (int32_t i = 0; i < count; i++) {
        if (parts[i] < 0 || !rs_add(total, parts[i], &total))
            return rs_fail(RESHARD_ERR_RANGE, "part %d has the size %" PRId64, i, parts[i]);
    }
    if (total != x->shape[dim])
        return rs_fail(RESHARD_ERR_INVALID,
                       "parts of %" PRId64 " elements together of dimension %d, which has %" PRId64,
                       total, dim, x->shape[dim]);
    return RESHARD_OK;
}

static reshard_status make_parts(const reshard_tensor *x, int32_t dim, int32_t count,
                                 const int64_t *parts, reshard_tensor **outputs)
{
    int64_t shape[RESHARD_NDIM_MAX], start = 0;
    reshard_status status = RESHARD_OK;
    memcpy(shape, x->shape, sizeof shape);
    for (int32_t i = 0; i < count && status == RESHARD_OK; i++) {
        shape[dim] = parts[i];
        status = rs_tensor_view(rs_scope_context(), x, x->ndim, shape, x->strides,
                                start * x->strides[dim], &outputs[i]);
        start += parts[i];
    }
    return status;
}

static void split_distributed(reshard_tensor *x, int32_t dim, int32_t count, const int64_t *parts,
                              reshard_tensor **outputs)
{
    int64_t start = 0;
    for (int32_t i = 0; i < count; i++) {
        outputs[i] = reshard_tensor_narrow(x, dim, start, parts[i]);
        start += parts[i];
    }
    for (int32_t i = 0; i < count && outputs[count - 1] == NULL; i++)
        outputs[i] = NULL; /* after one fails, all later ones do */
}

void reshard_split(reshard_tensor *x, int32_t dim, int32_t count, const int64_t *parts,
                   reshard_tensor **outputs)
{
    int32_t d = 0;
    for (int32_t i = 0; i < count; i++)
        outputs[i] = NULL;
    if (!rs_op_begin("split", 1, &x))
        return;
    sizes *noted = NULL;
    reshard_status status = rs_dim_normalize(x->ndim, dim, &d);
    if (status == RESHARD_OK)
        status = check_sizes(x, d, count, parts);
    if (status == RESHARD_OK && x->distribution != NULL) {
        split_distributed(x, d, count, parts, outputs);
        return;
    }
    if (status == RESHARD_OK) {
        noted = note_sizes(count, parts);
        status = noted != NULL ? RESHARD_OK : rs_allocation_status();
    }
    if (status == RESHARD_OK)
        status = make_parts(x, d, count, parts, outputs);
    split_facts facts = {d, x->dtype, rs_extents_of(x)};
    rs_recipe recipe = {"split",
                        backward_split,
                        1,
                        &x,
                        .facts = &facts,
                        .facts_bytes = sizeof facts,
                        .extra = noted,
                        .forget_extra = forget_sizes};
    (void)rs_op_end_many(&recipe, status, count > 0 ? count : 0, outputs);
}

/* ---- cat ------------------------------------------------------------------------------------- */

static void backward_cat(rs_node *node, reshard_tensor *const *gradients,
                         reshard_tensor **out_gradients)
{
    const int32_t *dim = rs_node_facts(node);
    const sizes *s = node->extra;
    int64_t start = 0;
    for (int32_t i = 0; i < s->count; i++) {
        if (rs_node_wants(node, i))
            out_gradients[i] = reshard_tensor_narrow(gradients[0], *dim, start, s->items[i]);
        start += s->items[i];
    }
}

static reshard_status check_cat(int32_t count, reshard_tensor *const *tensors, int32_t dim,
                                int64_t *out_total)
{
    const reshard_tensor *first = tensors[0];
    *out_total = 0;
    for (int32_t i = 0; i < count; i++) {
        bool fits = tensors[i]->ndim == first->ndim && tensors[i]->dtype == first->dtype;
        for (int32_t d = 0; fits && d < first->ndim; d++)
            fits = d == dim || tensors[i]->shape[d] == first->shape[d];
        if (!fits)
            return rs_fail(RESHARD_ERR_INVALID, "input 0 is %s and input %d is %s",
                           rs_tensor_describe(first).text, i, rs_tensor_describe(tensors[i]).text);
        if (!rs_add(*out_total, tensors[i]->shape[dim], out_total))
            return rs_fail(RESHARD_ERR_RANGE, "more than 2^63-1 elements");
    }
    return RESHARD_OK;
}

static reshard_status join(int32_t count, reshard_tensor *const *tensors, int32_t dim,
                           int64_t total, sizes *noted, reshard_tensor **out_tensor)
{
    int64_t shape[RESHARD_NDIM_MAX], start = 0;
    reshard_tensor *whole = NULL;
    memcpy(shape, tensors[0]->shape, sizeof shape);
    shape[dim] = total;
    reshard_status status = rs_result(tensors[0]->dtype, tensors[0]->ndim, shape, &whole);
    for (int32_t i = 0; i < count && status == RESHARD_OK; i++) {
        noted->items[i] = tensors[i]->shape[dim];
        status = put(whole, dim, start, tensors[i]);
        start += tensors[i]->shape[dim];
    }
    return rs_tensor_hand_out(status, whole, out_tensor);
}

reshard_tensor *reshard_cat(int32_t count, reshard_tensor *const *tensors, int32_t dim)
{
    int32_t d = 0;
    int64_t total = 0;
    reshard_tensor *whole = NULL;
    sizes *noted = NULL;
    if (!rs_op_begin("cat", count, tensors))
        return NULL;
    if (count < 1)
        return rs_scope_fail(rs_fail(RESHARD_ERR_RANGE, "cat: of %d tensors", count));
    reshard_status status = rs_dim_normalize(tensors[0]->ndim, dim, &d);
    if (status == RESHARD_OK)
        status = check_cat(count, tensors, d, &total);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "cat"));
    if (rs_any_distributed(count, tensors))
        return rs_spread_cat(count, tensors, d);
    noted = note_sizes(count, NULL);
    status = noted != NULL ? RESHARD_OK : rs_allocation_status();
    if (status == RESHARD_OK)
        status = join(count, tensors, d, total, noted, &whole);
    rs_recipe recipe = {"cat",          backward_cat,
                        count,          tensors,
                        .facts = &d,    .facts_bytes = sizeof d,
                        .extra = noted, .forget_extra = forget_sizes};
    return rs_op_end(&recipe, status, whole);
}
