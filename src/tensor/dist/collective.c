/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective.c - collectives on local tensors, with gradients. Each is a move between two layouts,
 * and its backward step is the transposed move. For prod, min and max that is the backward step of
 * a sum, corrected by partial.c.
 */
#include <reshard/distributed.h>

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "collective/ends.h"
#include "layout/layout.h"
#include "tensor/core/dense.h"
#include "tensor/core/move.h"
#include "tensor/dist/outline.h"
#include "tensor/dist/partial.h"
#include "tensor/grad/node.h"
#include "transport/group.h"

#include <inttypes.h>
#include <string.h>

typedef struct exchange {
    const char *name;
    reshard_group *group;
    rs_form source, target;
    reshard_reduction reduction;
    int32_t root;
    const int64_t *send_rows, *receive_rows; /* only if RS_FORM_RECEIVED */
} exchange;

/* What the operation keeps for its backward step. */
typedef struct ends {
    reshard_context *context;
    rs_exec_cache *cache;
    reshard_layout *source, *target;
    reshard_layout *summed; /* the source, with SUM in place of PROD, MIN and MAX */
} ends;

static void forget_ends(void *extra)
{
    ends *e = extra;
    if (e == NULL)
        return;
    reshard_layout_release(e->source);
    reshard_layout_release(e->target);
    reshard_layout_release(e->summed);
    rs_exec_cache_release(e->cache);
    rs_release(e->context, e);
}

/* ---- agreeing on shapes ---------------------------------------------------------------------- */

/* What a rank asks for, as one number that ranks compare. Root and reduction may still be
 * invalid. */
static int64_t request_number(const exchange *x)
{
    int64_t forms = (int64_t)x->source * 16 + (int64_t)x->target;
    return x->root * INT64_C(0x100000000) + (int64_t)x->reduction * 0x100 + forms;
}

static bool same_rows(const rs_outline *a, const rs_outline *b)
{
    rs_outline other = *a;
    other.shape[0] = b->shape[0];
    return rs_outline_same(&other, b);
}

/* Checks that the ranks' tensors fit together, with the same verdict on all ranks. out_whole
 * describes the whole tensor. */
static reshard_status compare(const exchange *x, const rs_outline *all, rs_outline *out_whole)
{
    int32_t size = reshard_group_size(x->group);
    bool rows = x->source == RS_FORM_PARTS;
    bool free = x->source == RS_FORM_AT_ROOT && x->target == RS_FORM_PARTS;
    for (int32_t i = 1; i < size; i++) {
        if (all[i].number != all[0].number)
            return rs_fail(RESHARD_ERR_MISMATCH,
                           "rank %d asks for another collective, reduction or root than rank 0", i);
    }
    if (x->root < 0 || x->root >= size)
        return rs_fail(RESHARD_ERR_RANGE, "rank %d is not in the group of %d", x->root, size);
    *out_whole = all[x->source == RS_FORM_AT_ROOT ? x->root : 0];
    if ((rows || x->target == RS_FORM_PARTS) && out_whole->ndim < 1)
        return rs_fail(RESHARD_ERR_INVALID, "a tensor without dimensions has no rows");
    if (rows)
        out_whole->shape[0] = 0;
    for (int32_t i = 0; i < size; i++) {
        bool fits = free   ? all[i].dtype == out_whole->dtype
                    : rows ? same_rows(&all[i], out_whole)
                           : rs_outline_same(&all[i], out_whole);
        if (!fits)
            return rs_fail(RESHARD_ERR_MISMATCH,
                           "rank %d has a tensor of another shape or dtype than rank %d", i,
                           x->source == RS_FORM_AT_ROOT ? x->root : 0);
        if (rows && !rs_add(out_whole->shape[0], all[i].shape[0], &out_whole->shape[0]))
            return rs_fail(RESHARD_ERR_RANGE, "more than 2^63-1 rows");
    }
    return RESHARD_OK;
}

/* ---- all_to_all ------------------------------------------------------------------------------ */

static reshard_status check_counts(const exchange *x, const reshard_tensor *tensor)
{
    int64_t total = 0;
    if (x->send_rows == NULL || x->receive_rows == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "numbers of rows are missing");
    for (int32_t i = 0; i < reshard_group_size(x->group); i++) {
        if (x->send_rows[i] < 0 || x->receive_rows[i] < 0 ||
            !rs_add(total, x->send_rows[i], &total))
            return rs_fail(RESHARD_ERR_RANGE, "%" PRId64 " rows to and %" PRId64 " from rank %d",
                           x->send_rows[i], x->receive_rows[i], i);
    }
    if (tensor->ndim < 1 || total != tensor->shape[0])
        return rs_fail(RESHARD_ERR_INVALID, "%" PRId64 " rows are to be sent of %s", total,
                       rs_tensor_describe(tensor).text);
    return RESHARD_OK;
}

/* Collective. Gathers send_rows of all ranks, and checks the rows that this rank is to receive. */
static reshard_status gather_counts(const exchange *x, int64_t **out_sent)
{
    int32_t size = reshard_group_size(x->group);
    size_t bytes = (size_t)size * sizeof(int64_t);
    int64_t *sent = rs_allocate(NULL, bytes * (size_t)size);
    reshard_status status = sent != NULL ? RESHARD_OK : rs_allocation_status();
    status = rs_agree(x->group, status, x->name);
    if (status == RESHARD_OK)
        status = reshard_group_gather_bytes(x->group, x->send_rows, bytes, sent);
    for (int32_t i = 0; i < size && status == RESHARD_OK; i++) {
        int64_t rows = sent[(int64_t)i * size + reshard_group_rank(x->group)];
        if (rows != x->receive_rows[i])
            status = rs_fail(RESHARD_ERR_MISMATCH,
                             "rank %d sends %" PRId64 " rows, where %" PRId64 " are expected", i,
                             rows, x->receive_rows[i]);
    }
    if (sent != NULL && status != RESHARD_OK)
        rs_release(NULL, sent);
    else
        *out_sent = sent;
    return status;
}

/* ---- layouts --------------------------------------------------------------------------------- */

static bool needs_values(const reshard_layout *source)
{
    reshard_reduction reduction = rs_layout_reduction(source);
    return source->partial && reduction != RESHARD_SUM && reduction != RESHARD_AVG;
}

/* rows: of each rank; NULL: chunks. */
static reshard_status make_ends(const exchange *x, const rs_outline *whole, const int64_t *rows,
                                const int64_t *sent, ends **out_ends)
{
    const reshard_placement sum = {.kind = RESHARD_PARTIAL, .reduction = RESHARD_SUM};
    reshard_context *context = rs_scope_context();
    const rs_ends both = {.context = context,
                          .rank_count = reshard_group_size(x->group),
                          .root = x->root,
                          .reduction = x->reduction,
                          .ndim = whole->ndim,
                          .shape = whole->shape,
                          .counts = rows,
                          .matrix = sent,
                          .joined = true};
    ends *e = rs_allocate_zeroed(context, sizeof *e);
    if (e == NULL)
        return rs_allocation_status();
    e->context = context;
    reshard_status status = rs_exec_cache_of(x->group, &e->cache);
    if (status == RESHARD_OK)
        status = rs_ends_make(&both, x->source, &e->source);
    if (status == RESHARD_OK)
        status = rs_ends_make(&both, x->target, &e->target);
    if (status == RESHARD_OK)
        status = needs_values(e->source)
                     ? rs_layout_replace_partial(e->source, &sum, &e->summed)
                     : (e->summed = reshard_layout_retain(e->source), RESHARD_OK);
    if (status == RESHARD_OK)
        *out_ends = e;
    else
        forget_ends(e);
    return status;
}

/* Makes the ends for ranks that have so many rows each, of which `all` tells. */
static reshard_status make_row_ends(const exchange *x, const rs_outline *whole,
                                    const rs_outline *all, const int64_t *sent, ends **out_ends)
{
    size_t size = (size_t)reshard_group_size(x->group);
    if (x->source != RS_FORM_PARTS)
        return make_ends(x, whole, NULL, sent, out_ends);
    int64_t *rows = rs_allocate_array(NULL, size, sizeof *rows);
    if (rows == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < size; i++)
        rows[i] = all[i].shape[0];
    reshard_status status = make_ends(x, whole, rows, sent, out_ends);
    rs_release(NULL, rows);
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static reshard_status run(const ends *e, reshard_tensor *x, reshard_tensor **out_local)
{
    reshard_tensor *source = NULL, *target = NULL;
    reshard_group *group = rs_exec_cache_group(e->cache);
    reshard_status status =
        rs_distributed_wrap(e->context, e->cache, e->source, x->dtype, &x, &source);
    status = rs_redistribute_after(status, group, "collective", e->context, source, e->target,
                                   x->dtype, &target);
    /* An alias, because recording the operation changes the tensor that it returns. */
    if (status == RESHARD_OK && target->distribution->shard_count > 0)
        status = rs_tensor_alias(e->context, target->distribution->shards[0], out_local);
    else if (status == RESHARD_OK)
        status = rs_make_empty(x->dtype, e->target->ndim, e->target->shape, out_local);
    reshard_tensor_release(source);
    reshard_tensor_release(target);
    return status;
}

static reshard_status put_right(rs_node *node, const ends *e, reshard_tensor *gradient,
                                reshard_tensor **out_gradient)
{
    reshard_tensor *saved = rs_node_saved(node, 0), *x = NULL, *found = NULL;
    reshard_status status = saved != NULL ? RESHARD_OK : rs_scope_failed();
    if (status == RESHARD_OK)
        status = rs_distributed_wrap(e->context, e->cache, e->source, gradient->dtype, &saved, &x);
    if (status == RESHARD_OK) {
        found = rs_partial_gradient(x, gradient);
        status = found != NULL ? RESHARD_OK : rs_scope_failed();
    }
    reshard_tensor_release(x);
    if (status == RESHARD_OK)
        *out_gradient = found;
    return status;
}

static void backward_collective(rs_node *node, reshard_tensor *const *gradients,
                                reshard_tensor **out_gradients)
{
    const ends *e = node->extra;
    const rs_extents *input = rs_node_facts(node);
    reshard_dtype dtype = gradients[0]->dtype;
    rs_exec_key key = {e->summed, e->target, dtype, dtype, true};
    reshard_tensor *incoming = NULL, *moved = NULL, *right = NULL, *local = NULL;
    reshard_status status =
        rs_distributed_wrap(rs_scope_context(), e->cache, e->target, dtype, gradients, &incoming);
    if (status == RESHARD_OK)
        status = rs_redistribute_keyed(rs_scope_context(), incoming, &key, &moved);
    right = moved;
    if (status == RESHARD_OK && needs_values(e->source))
        status = put_right(node, e, moved, &right);
    if (status == RESHARD_OK)
        status = right->distribution->shard_count > 0
                     ? (local = reshard_tensor_retain(right->distribution->shards[0]), RESHARD_OK)
                     : rs_result_zeros(dtype, input->ndim, input->shape, &local);
    reshard_tensor_release(incoming);
    reshard_tensor_release(moved);
    /* A rank without a shard, whose tensor was not read, gets zeros in its own tensor's shape. */
    out_gradients[0] = rs_scope_finish(status, local);
}

static reshard_tensor *carry_out(exchange *x, reshard_tensor *tensor)
{
    if (rs_group_choose(&x->group) != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(RESHARD_ERR_INVALID, "%s", x->name));
    if (!rs_op_begin_together(x->name, x->group, tensor))
        return NULL;
    rs_outline mine = rs_outline_of(tensor), *all = NULL, whole;
    ends *e = NULL;
    int64_t *sent = NULL;
    reshard_tensor *local = NULL;
    mine.number = request_number(x);
    reshard_status status = RESHARD_OK;
    if (tensor->distribution != NULL)
        status = rs_fail(RESHARD_ERR_INVALID, "the tensor is distributed");
    if (status == RESHARD_OK && x->target == RS_FORM_RECEIVED)
        status = check_counts(x, tensor);
    status = rs_outlines_gather(x->group, status, x->name, &mine, &all);
    if (status == RESHARD_OK) {
        status = compare(x, all, &whole);
        bool counted = status == RESHARD_OK && x->target == RS_FORM_RECEIVED;
        if (counted)
            status = gather_counts(x, &sent);
        if (status == RESHARD_OK)
            status = make_row_ends(x, &whole, all, sent, &e);
        if (status == RESHARD_OK)
            status = run(e, tensor, &local);
        else if (e == NULL && !rs_scope_has_told(rs_thread_state_get()->scope, x->group))
            status = rs_agree(x->group, status, x->name);
        rs_release(NULL, all);
    }
    rs_release(NULL, sent);
    rs_extents input = rs_extents_of(tensor);
    bool keeps = e != NULL && needs_values(e->source);
    rs_recipe recipe = {.name = x->name,
                        .backward = backward_collective,
                        .input_count = 1,
                        .inputs = &tensor,
                        .saved_count = keeps ? 1 : 0,
                        .saved = &tensor,
                        .facts = &input,
                        .facts_bytes = sizeof input,
                        .group = x->group,
                        .extra = e,
                        .forget_extra = forget_ends};
    if (status == RESHARD_OK && rs_layout_sameness(e->target, x->group) == RS_SAME_NO)
        local->sameness = RS_SAME_NO;
    else if (status == RESHARD_OK && rs_thread_state_get()->replicas != NULL)
        local->sameness = RS_SAME_YES;
    if (status == RESHARD_OK)
        local->kin = rs_layout_kin(e->target, x->group);
    return rs_op_end(&recipe, status, local);
}

/* ---- the collectives ------------------------------------------------------------------------- */

static const struct {
    const char *name;
    rs_form source, target;
} kinds[] = {
    [RESHARD_ALL_GATHER] = {"all_gather", RS_FORM_PARTS, RS_FORM_COPIES},
    [RESHARD_REDUCE_SCATTER] = {"reduce_scatter", RS_FORM_CONTRIBUTIONS, RS_FORM_PARTS},
    [RESHARD_ALL_REDUCE] = {"all_reduce", RS_FORM_CONTRIBUTIONS, RS_FORM_COPIES},
    [RESHARD_BROADCAST] = {"broadcast", RS_FORM_AT_ROOT, RS_FORM_COPIES},
    [RESHARD_SCATTER] = {"scatter", RS_FORM_AT_ROOT, RS_FORM_PARTS},
    [RESHARD_GATHER] = {"gather", RS_FORM_PARTS, RS_FORM_AT_ROOT},
    [RESHARD_REDUCE] = {"reduce", RS_FORM_CONTRIBUTIONS, RS_FORM_AT_ROOT},
    [RESHARD_ALL_TO_ALL_SINGLE] = {"all_to_all", RS_FORM_PARTS, RS_FORM_RECEIVED},
};

reshard_tensor *reshard_tensor_exchange(reshard_tensor *x, reshard_group *group,
                                        const reshard_exchange *exchange_given)
{
    reshard_exchange given;
    reshard_status status = rs_options_read("exchange", exchange_given, &given, sizeof given);
    if (status != RESHARD_OK)
        return rs_scope_fail(status);
    if ((int)given.kind < 1 || given.kind > RESHARD_ALL_TO_ALL_SINGLE)
        return rs_scope_fail(
            rs_fail(RESHARD_ERR_INVALID, "exchange: no kind %d for tensors", (int)given.kind));
    exchange e = {.name = kinds[given.kind].name,
                  .group = group,
                  .source = kinds[given.kind].source,
                  .target = kinds[given.kind].target};
    if (e.source == RS_FORM_CONTRIBUTIONS)
        e.reduction = given.reduction;
    if (e.source == RS_FORM_AT_ROOT || e.target == RS_FORM_AT_ROOT)
        e.root = given.root;
    if (e.target == RS_FORM_RECEIVED) {
        e.send_rows = given.send_counts;
        e.receive_rows = given.receive_counts;
    }
    return carry_out(&e, x);
}
