/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective.c - collectives as plans between two layouts of one dimension.
 *
 * Only what a layout cannot know is checked here: roots, reductions and counts. The rest is common
 * to all exchanges (collective_run.c).
 */
#include "collective/collective.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/options.h"
#include "collective/ends.h"
#include "collective/work.h"
#include "kernel/values/combine.h"

#include <inttypes.h>

/* ---- counts ---------------------------------------------------------------------------------- */

static reshard_status sum_counts(const rs_collective *c, int64_t count, const int64_t *counts,
                                 int64_t *out_total)
{
    int32_t size = reshard_group_size(c->group);
    int64_t total = 0;
    for (int32_t i = 0; i < size; i++) {
        int64_t one = counts != NULL ? counts[i] : count;
        if (one < 0)
            return rs_fail(RESHARD_ERR_RANGE, "%s: the count of rank %d is %" PRId64, c->name, i,
                           one);
        if (!rs_add(total, one, &total))
            return rs_fail(RESHARD_ERR_RANGE, "%s: the counts add up to more than 2^63-1", c->name);
    }
    *out_total = total;
    return RESHARD_OK;
}

/* ---- parts of bytes -------------------------------------------------------------------------- */

reshard_status rs_collective_whole_bytes(const rs_collective *c, reshard_dtype dtype, int64_t count,
                                         int64_t *out_count)
{
    int32_t bits = reshard_dtype_bits(dtype);
    int64_t all;
    if (bits % 8 == 0 || count < 0) { /* a negative count is refused later, with a better text */
        *out_count = count;
        return RESHARD_OK;
    }
    if (!rs_multiply(count, bits, &all))
        return rs_fail(RESHARD_ERR_RANGE, "%s: %" PRId64 " elements of %s are too many bytes",
                       c->name, count, reshard_dtype_name(dtype));
    if (all % 8 != 0)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "%s: %" PRId64 " elements of %s are not a whole number of bytes", c->name,
                       count, reshard_dtype_name(dtype));
    *out_count = all / 8;
    return RESHARD_OK;
}

/* ---- collectives ----------------------------------------------------------------------------- */

typedef struct kind {
    const char *name;
    rs_form source, target;
} kind;

static const kind kinds[] = {
    {"exchange", RS_FORM_COPIES, RS_FORM_COPIES}, /* of an unknown kind, which is refused */
    [RESHARD_ALL_GATHER] = {"all_gather", RS_FORM_PARTS, RS_FORM_COPIES},
    [RESHARD_REDUCE_SCATTER] = {"reduce_scatter", RS_FORM_CONTRIBUTIONS, RS_FORM_PARTS},
    [RESHARD_ALL_REDUCE] = {"all_reduce", RS_FORM_CONTRIBUTIONS, RS_FORM_COPIES},
    [RESHARD_BROADCAST] = {"broadcast", RS_FORM_AT_ROOT, RS_FORM_COPIES},
    [RESHARD_SCATTER] = {"scatter", RS_FORM_AT_ROOT, RS_FORM_PARTS},
    [RESHARD_GATHER] = {"gather", RS_FORM_PARTS, RS_FORM_AT_ROOT},
    [RESHARD_REDUCE] = {"reduce", RS_FORM_CONTRIBUTIONS, RS_FORM_AT_ROOT},
};

typedef struct request {
    rs_collective collective;
    reshard_exchange_kind kind;
    reshard_reduction reduction;
    int32_t root;
    int64_t count;
    const int64_t *counts;
    rs_form source, target;
} request;

static bool has_root(const request *r)
{
    return r->source == RS_FORM_AT_ROOT || r->target == RS_FORM_AT_ROOT;
}

static bool has_parts(const request *r)
{
    return r->source == RS_FORM_PARTS || r->target == RS_FORM_PARTS;
}

static reshard_status check_reduction(const request *r)
{
    const rs_collective *c = &r->collective;
    if ((int)r->reduction < 0 || r->reduction >= RESHARD_REDUCTION_COUNT)
        return rs_fail(RESHARD_ERR_INVALID, "%s: %d is not a reduction", c->name,
                       (int)r->reduction);
    if (!rs_combine_supports(r->reduction, c->dtype))
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "%s: %s is not defined for %s", c->name,
                       reshard_reduction_name(r->reduction), reshard_dtype_name(c->dtype));
    return RESHARD_OK;
}

static reshard_status check_request(const request *r)
{
    const rs_collective *c = &r->collective;
    int32_t size = reshard_group_size(c->group);
    if (c->name == kinds[0].name)
        return rs_fail(RESHARD_ERR_INVALID, "%s: unknown kind %d", c->name, (int)r->kind);
    if (reshard_dtype_bits(c->dtype) == 0)
        return rs_fail(RESHARD_ERR_INVALID, "%s: %d is not a dtype", c->name, (int)c->dtype);
    if (has_root(r) && (r->root < 0 || r->root >= size))
        return rs_fail(RESHARD_ERR_RANGE, "%s: rank %d is not in the group of %d", c->name, r->root,
                       size);
    if (r->count < 0 && r->counts == NULL)
        return rs_fail(RESHARD_ERR_RANGE, "%s: the count is %" PRId64, c->name, r->count);
    return r->source == RS_FORM_CONTRIBUTIONS ? check_reduction(r) : RESHARD_OK;
}

/* Describes the request. Equal counts are described alike, whether given as one count or as a
 * list. */
static void ask(request *r, int64_t total)
{
    rs_collective *c = &r->collective;
    rs_digest digest;
    rs_collective_ask(c, (int32_t)c->dtype, has_root(r) ? r->root : -1,
                      r->source == RS_FORM_CONTRIBUTIONS ? (int32_t)r->reduction : -1, total,
                      &digest);
    for (int32_t i = 0; has_parts(r) && i < reshard_group_size(c->group); i++)
        rs_digest_u64(&digest, (uint64_t)(r->counts != NULL ? r->counts[i] : r->count));
    rs_digest_finish(&digest, c->asked.digest);
}

/* Turns counts of elements into counts of bytes; `scratch` has room for one count per rank. */
static reshard_status make_whole_bytes(request *r, int64_t *scratch)
{
    rs_collective *c = &r->collective;
    reshard_status status = rs_collective_whole_bytes(c, c->dtype, r->count, &r->count);
    for (int32_t i = 0; r->counts != NULL && i < reshard_group_size(c->group); i++) {
        if (status == RESHARD_OK)
            status = rs_collective_whole_bytes(c, c->dtype, r->counts[i], &scratch[i]);
    }
    if (r->counts != NULL)
        r->counts = scratch;
    c->dtype = RESHARD_U8;
    return status;
}

/* A rank's part begins where those of lower ranks end; copies and contributions begin at 0. */
static void find_place(request *r)
{
    rs_collective *c = &r->collective;
    int64_t offset = 0;
    for (int32_t i = 0; has_parts(r) && i < reshard_group_rank(c->group); i++)
        offset += r->counts != NULL ? r->counts[i] : r->count;
    c->may_be_in_place = true;
    c->in_place_elements = r->source == RS_FORM_PARTS ? offset : -offset;
    c->reduces = r->source == RS_FORM_CONTRIBUTIONS;
}

/* Does everything that comes before the exchange itself. Local. */
static reshard_status prepare(request *r, int64_t **scratch, size_t scratch_bytes,
                              reshard_layout **out_source, reshard_layout **out_target)
{
    int64_t total = r->count;
    reshard_status status = check_request(r);
    if (status == RESHARD_OK && has_parts(r))
        status = sum_counts(&r->collective, r->count, r->counts, &total);
    ask(r, total);
    if (status == RESHARD_OK && reshard_dtype_bits(r->collective.dtype) % 8 != 0) {
        *scratch = rs_allocate(r->collective.context, scratch_bytes);
        status = *scratch == NULL ? rs_allocation_status() : make_whole_bytes(r, *scratch);
        total = r->count;
        if (status == RESHARD_OK && has_parts(r))
            status = sum_counts(&r->collective, r->count, r->counts, &total);
    }
    if (status != RESHARD_OK)
        return status;
    find_place(r);
    const rs_ends ends = {.context = r->collective.context,
                          .rank_count = reshard_group_size(r->collective.group),
                          .root = r->root,
                          .reduction = r->reduction,
                          .ndim = 1,
                          .shape = &total,
                          .counts = r->counts};
    status = rs_ends_make(&ends, r->source, out_source);
    if (status == RESHARD_OK)
        status = rs_ends_make(&ends, r->target, out_target);
    return rs_fail_within(status, "%s", r->collective.name);
}

static reshard_status start(const rs_collective *collective, const reshard_exchange *e,
                            reshard_work **out_work)
{
    bool is_known = (int)e->kind > 0 && (size_t)e->kind < sizeof kinds / sizeof *kinds;
    const kind *of = &kinds[is_known ? e->kind : 0];
    request r = {.collective = *collective,
                 .kind = e->kind,
                 .reduction = e->reduction,
                 .root = e->root,
                 .count = e->count,
                 .source = of->source,
                 .target = of->target};
    r.collective.name = of->name;
    r.counts = has_parts(&r) ? e->counts : NULL;
    reshard_layout *source_layout = NULL, *target_layout = NULL;
    int64_t *scratch = NULL;
    size_t scratch_bytes = (size_t)reshard_group_size(collective->group) * sizeof *scratch;
    reshard_status status = prepare(&r, &scratch, scratch_bytes, &source_layout, &target_layout);
    status = rs_collective_start(&r.collective, status, source_layout, target_layout, &e->source,
                                 &e->target, out_work);
    reshard_layout_release(target_layout);
    reshard_layout_release(source_layout);
    rs_release(collective->context, scratch);
    return status;
}

static reshard_status start_exchange(reshard_context *context, reshard_group *group,
                                     const reshard_exchange *exchange, reshard_work **out_work)
{
    reshard_exchange e;
    rs_collective c = {.name = "exchange", .context = context, .group = group};
    reshard_status status = rs_collective_choose(&c);
    if (status != RESHARD_OK)
        return status;
    status = rs_options_read(c.name, exchange, &e, sizeof e);
    if (status != RESHARD_OK)
        return rs_collective_agree(&c, status);
    c.dtype = e.dtype;
    if (e.kind == RESHARD_ALL_TO_ALL || e.kind == RESHARD_ALL_TO_ALL_SINGLE)
        return rs_all_to_all_start(&c, &e, out_work);
    return start(&c, &e, out_work);
}

reshard_status reshard_exchange_run(reshard_context *context, reshard_group *group,
                                    const reshard_exchange *exchange, reshard_work **out_work)
{
    if (out_work != NULL)
        return start_exchange(context, group, exchange, out_work);
    reshard_work *work = NULL;
    reshard_status status = start_exchange(context, group, exchange, &work);
    return rs_work_complete(status, work);
}
