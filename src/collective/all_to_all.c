/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_to_all.c - every rank sends its own number of elements to every rank.
 *
 * Every rank learns the whole matrix of counts. The tensor to be resharded is one line: the blocks
 * in the order of the matrix, by sender, then by receiver. The blocks of a sender are neighbours in
 * it; a receiver has one piece for each sender. If all K * K counts are the same number c, no lists
 * are needed: the tensor is KxKxc and goes from S(0) to S(1).
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "collective/collective.h"
#include "collective/ends.h"
#include "layout/derive.h"

#include <inttypes.h>

typedef struct exchange {
    rs_collective collective;
    int32_t size;
    const int64_t *send_counts, *receive_counts; /* as given */
    /* In bytes if an element is less than a byte: */
    int64_t *matrix;   /* [sender * size + receiver] */
    int64_t *receives; /* stored after the matrix */
    int64_t total;
    bool equal; /* all counts are the same */
} exchange;

/* ---- the matrix ------------------------------------------------------------------------------ */

static reshard_status check_counts(const exchange *e, const int64_t *counts, const char *what)
{
    if (counts == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "%s: the %s counts are NULL", e->collective.name, what);
    for (int32_t i = 0; i < e->size; i++) {
        if (counts[i] < 0)
            return rs_fail(RESHARD_ERR_RANGE, "%s: %s count %d is %" PRId64, e->collective.name,
                           what, i, counts[i]);
    }
    return RESHARD_OK;
}

/* Fills in this rank's row of the matrix, and what it expects to receive. */
static reshard_status set_counts(exchange *e)
{
    const rs_collective *c = &e->collective;
    int64_t *row = e->matrix + (int64_t)reshard_group_rank(c->group) * e->size;
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < e->size && status == RESHARD_OK; i++) {
        status = rs_collective_whole_bytes(c, c->dtype, e->send_counts[i], &row[i]);
        if (status == RESHARD_OK)
            status = rs_collective_whole_bytes(c, c->dtype, e->receive_counts[i], &e->receives[i]);
    }
    return status;
}

static reshard_status prepare_matrix(exchange *e)
{
    const rs_collective *c = &e->collective;
    if (reshard_dtype_bits(c->dtype) == 0)
        return rs_fail(RESHARD_ERR_INVALID, "%s: %d is not a dtype", c->name, (int)c->dtype);
    reshard_status status = check_counts(e, e->send_counts, "send");
    if (status == RESHARD_OK)
        status = check_counts(e, e->receive_counts, "receive");
    if (status != RESHARD_OK)
        return status;
    size_t blocks = (size_t)e->size * (size_t)e->size;
    e->matrix = rs_allocate_array(c->context, blocks + (size_t)e->size, sizeof *e->matrix);
    if (e->matrix == NULL)
        return rs_allocation_status();
    e->receives = e->matrix + blocks;
    return set_counts(e);
}

/* Collective, and agreed: either all ranks have the matrix and ask for the same, or all fail. */
static reshard_status gather_matrix(exchange *e)
{
    rs_collective *c = &e->collective;
    rs_digest digest;
    rs_collective_ask(c, (int32_t)c->dtype, -1, -1, -1, &digest);
    rs_digest_finish(&digest, c->asked.digest);
    reshard_status status = rs_collective_agree(c, prepare_matrix(e));
    if (status == RESHARD_OK)
        status = reshard_group_gather_bytes(
            c->group, e->matrix + (int64_t)reshard_group_rank(c->group) * e->size,
            (size_t)e->size * sizeof *e->matrix, e->matrix);
    if (reshard_dtype_bits(c->dtype) % 8 != 0)
        c->dtype = RESHARD_U8;
    return status;
}

static reshard_status check_matrix(exchange *e)
{
    int32_t rank = reshard_group_rank(e->collective.group);
    for (int32_t i = 0; i < e->size; i++) {
        int64_t sent = e->matrix[(int64_t)i * e->size + rank];
        if (sent != e->receives[i])
            return rs_fail(RESHARD_ERR_MISMATCH,
                           "%s: rank %d expects %" PRId64 " %s from rank %d, which sends %" PRId64,
                           e->collective.name, rank, e->receives[i],
                           reshard_dtype_name(e->collective.dtype), i, sent);
    }
    e->equal = true;
    for (int64_t i = 0; i < (int64_t)e->size * e->size; i++) {
        e->equal = e->equal && e->matrix[i] == e->matrix[0];
        if (!rs_add(e->total, e->matrix[i], &e->total))
            return rs_fail(RESHARD_ERR_RANGE, "%s: the counts add up to more than 2^63-1",
                           e->collective.name);
    }
    return RESHARD_OK;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* If all counts are equal: chunks of the first or the second dim of KxKxc. */
static reshard_status make_chunks(const exchange *e, int32_t dim, reshard_layout **out_layout)
{
    int64_t shape[] = {e->size, e->size, e->matrix[0]};
    reshard_spec *spec = NULL;
    reshard_status status = reshard_spec_chunk(e->collective.context, dim, e->size, NULL, &spec);
    status = rs_layout_take(e->collective.context, status, spec, 3, shape, out_layout);
    return rs_fail_within(status, "%s", e->collective.name);
}

/* ---- running --------------------------------------------------------------------------------- */

static reshard_status make_end(const exchange *e, bool receiving, bool joined,
                               reshard_layout **out_layout)
{
    if (joined && e->equal)
        return make_chunks(e, receiving ? 1 : 0, out_layout);
    const rs_ends ends = {.context = e->collective.context,
                          .rank_count = e->size,
                          .ndim = 1,
                          .shape = &e->total,
                          .matrix = e->matrix,
                          .joined = joined};
    reshard_status status =
        rs_ends_make(&ends, receiving ? RS_FORM_RECEIVED : RS_FORM_SENT, out_layout);
    return rs_fail_within(status, "%s", e->collective.name);
}

static reshard_status start(exchange *e, bool joined, const void *const *sources,
                            void *const *targets, reshard_work **out_work)
{
    reshard_layout *source_layout = NULL, *target_layout = NULL;
    reshard_status status = gather_matrix(e);
    if (status != RESHARD_OK)
        goto out; /* all ranks fail here */
    status = check_matrix(e);
    if (status == RESHARD_OK && (sources == NULL || targets == NULL))
        status = rs_fail(RESHARD_ERR_INVALID, "%s: the list of %s is NULL", e->collective.name,
                         sources == NULL ? "sources" : "targets");
    if (status == RESHARD_OK)
        status = make_end(e, false, joined, &source_layout);
    if (status == RESHARD_OK)
        status = make_end(e, true, joined, &target_layout);
    status = rs_collective_start(&e->collective, status, source_layout, target_layout, sources,
                                 targets, out_work);
out:
    reshard_layout_release(target_layout);
    reshard_layout_release(source_layout);
    rs_release(e->collective.context, e->matrix);
    return status;
}

reshard_status rs_all_to_all_start(const rs_collective *collective, const reshard_exchange *asked,
                                   reshard_work **out_work)
{
    exchange e = {.collective = *collective,
                  .size = reshard_group_size(collective->group),
                  .send_counts = asked->send_counts,
                  .receive_counts = asked->receive_counts};
    /* One buffer for all ranks, or one for each. */
    bool joined = asked->kind == RESHARD_ALL_TO_ALL_SINGLE;
    e.collective.name = joined ? "all_to_all_single" : "all_to_all";
    return start(&e, joined, joined ? &asked->source : asked->sources,
                 joined ? &asked->target : asked->targets, out_work);
}
