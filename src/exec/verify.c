/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c - computes digests of both ends of a run, and compares them over all ranks.
 *
 * The place of an element is its link and its index in link space, which both ends of a link share.
 * At each end, a rank computes three sums modulo 2^64 over the elements that it holds:
 *
 *   first     over elements of which it has copy 0; in all ranks together, each element once
 *   all       over all its elements; in all ranks together, each as often as it has copies
 *   weighted  over elements of which it has copy 0, times the number of copies
 *
 * Added up over all ranks, `first` must be the same at both ends, and at each end `all` must equal
 * `weighted`: then copies agree. Rank 0 adds up and tells the others.
 */
#include "exec/verify.h"

#include "base/context.h"
#include "base/digest.h"
#include "base/dtype.h"
#include "base/error.h"
#include "exec/exec.h"
#include "kernel/values/cast.h"
#include "plan/link.h"
#include "plan/plan.h"

#include <inttypes.h>
#include <string.h>

typedef struct end_sums {
    uint64_t first, all, weighted;
} end_sums;

/* What a rank sends to rank 0. */
typedef struct sums {
    end_sums source, target;
    uint64_t strays; /* elements that no link fills and that are not zero */
} sums;

typedef enum finding {
    FINE,
    SOURCE_COPIES_DIFFER,
    TARGET_DIFFERS,
    TARGET_COPIES_DIFFER,
    GAPS_ARE_NOT_ZERO
} finding;

/* What rank 0 sends to the others. */
typedef struct verdict {
    int64_t finding;
    uint64_t strays;
} verdict;

struct rs_verify {
    reshard_exec *exec;
    const reshard_plan *plan; /* NULL if there is nothing to verify */
    int32_t rank, size;
    sums mine;
    verdict verdict;
    bool told; /* rank 0: has heard from all, and is sending the verdict */
    int32_t over;
    sums *heard;               /* rank 0: by rank */
    reshard_request *requests; /* rank 0: by rank. Others: for the sums, for the verdict */
};

/* ---- making ---------------------------------------------------------------------------------- */

reshard_status rs_verify_create(reshard_exec *exec, rs_verify **out_verify)
{
    reshard_context *context = exec->context;
    rs_verify *v = rs_allocate_zeroed(context, sizeof *v);
    if (v == NULL)
        return rs_allocation_status();
    v->exec = exec;
    v->plan = exec->plan->transposed != NULL ? NULL : exec->plan;
    v->rank = reshard_group_rank(exec->group);
    v->size = reshard_group_size(exec->group);
    size_t ranks = (size_t)(v->rank == 0 ? v->size : 2);
    v->heard = rs_allocate_array(context, ranks, sizeof *v->heard);
    v->requests = rs_allocate_array(context, ranks, sizeof *v->requests);
    if (v->heard == NULL || v->requests == NULL) {
        reshard_status status = rs_allocation_status();
        rs_verify_destroy(v);
        return status;
    }
    *out_verify = v;
    return RESHARD_OK;
}

void rs_verify_destroy(rs_verify *v)
{
    if (v == NULL)
        return;
    reshard_context *context = v->exec->context;
    rs_release(context, v->requests);
    rs_release(context, v->heard);
    rs_release(context, v);
}

/* ---- the digest of a box --------------------------------------------------------------------- */

/* One end of a link, while its elements are visited. */
typedef struct digesting {
    const rs_link *link;
    const rs_link_side *side;
    const reshard_exec *exec;
    int64_t first_slot; /* of the tensor */
    reshard_dtype dtype, digest_dtype;
    uint64_t seed;
    const rs_region *region;
    const rs_holder *holder;
    end_sums *sums;
    /* For the current box, by link dim: */
    const rs_link_box *box;
    int64_t strides[RESHARD_FACTORS_MAX]; /* in memory, in elements */
} digesting;

static uint64_t digest_element(const digesting *w, const char *at, uint64_t place)
{
    uint64_t bits[2] = {0, 0}; /* c128 has 16 bytes */
    if (w->dtype == w->digest_dtype)
        memcpy(bits, at, rs_element_bytes(w->dtype));
    else
        rs_cast_reference(w->dtype, w->digest_dtype, at, bits);
    uint64_t mixed = rs_mix(rs_mix(w->seed + place) ^ bits[0]);
    return bits[1] == 0 ? mixed : rs_mix(mixed ^ bits[1]);
}

static uint64_t digest_line(const digesting *w, const char *at, int64_t step, int64_t count,
                            uint64_t place)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += digest_element(w, at + i * step, place + (uint64_t)i);
    return sum;
}

static uint64_t digest_dim(const digesting *w, int32_t dim, const char *at, uint64_t place)
{
    int64_t bytes = (int64_t)rs_element_bytes(w->dtype), step = w->strides[dim] * bytes;
    int64_t count = w->box->size[dim];
    place = place * (uint64_t)w->link->size[dim] + (uint64_t)w->box->start[dim];
    if (dim == w->link->ndim - 1)
        return digest_line(w, at, step, count, place);
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += digest_dim(w, dim + 1, at + i * step, place + (uint64_t)i);
    return sum;
}

static reshard_status see_box(void *user, const rs_link_box *box)
{
    digesting *w = user;
    int64_t point[RESHARD_NDIM_MAX];
    rs_place place;
    rs_link_point(w->link, w->side, box->start, point);
    rs_region_place(w->region, w->holder, point, &place);
    rs_link_strides(w->link, w->side, place.strides, w->strides);
    w->box = box;
    const char *memory = w->exec->addresses->slots[w->first_slot + w->holder->shard];
    memory += place.at * (int64_t)rs_element_bytes(w->dtype);
    uint64_t sum =
        w->link->ndim == 0 ? digest_line(w, memory, 0, 1, 0) : digest_dim(w, 0, memory, 0);
    w->sums->all += sum;
    if (w->holder->copy == 0) {
        w->sums->first += sum;
        w->sums->weighted += sum * (uint64_t)rs_region_copy_count(w->region);
    }
    return RESHARD_OK;
}

static reshard_status see_region(void *user, const rs_region *region, const rs_holder *holder)
{
    digesting *w = user;
    w->region = region;
    w->holder = holder;
    return rs_link_boxes(w->link, w->side, region->start, region->size, see_box, w);
}

/* ---- the digest of an end -------------------------------------------------------------------- */

/* Adds one end of a link to the sums. The two ends are compared unless one is partial, because a
 * reduction changes the values; then only copies are. */
static void digest_link(rs_verify *v, int32_t index, bool source)
{
    const rs_given_link *link_given = &v->plan->links[index];
    const reshard_link *given = &link_given->plain;
    const reshard_plan_tensor *from = &v->plan->sources[given->source];
    const reshard_plan_tensor *to = &v->plan->targets[given->target];
    const reshard_plan_tensor *tensor = source ? from : to;
    int32_t number = source ? given->source : v->exec->source_count + given->target;
    rs_link link;
    if (tensor->layout->partial ||
        rs_link_resolve(link_given, from->layout, to->layout, &link) != RESHARD_OK)
        return; /* resolving cannot fail: the plan was made from these links */
    end_sums found = {0};
    digesting w = {.link = &link,
                   .side = source ? &link.source : &link.target,
                   .exec = v->exec,
                   .first_slot = v->exec->slot_first[number],
                   .dtype = tensor->dtype,
                   .digest_dtype = to->dtype,
                   .seed = rs_mix((uint64_t)index + 1),
                   .sums = &found};
    (void)rs_layout_visit_held(tensor->layout, v->rank, see_region, &w);
    end_sums *sum = source ? &v->mine.source : &v->mine.target;
    sum->all += found.all;
    sum->weighted += found.weighted;
    if (!from->layout->partial && !to->layout->partial)
        sum->first += found.first;
}

void rs_verify_sources(rs_verify *v)
{
    memset(&v->mine, 0, sizeof v->mine);
    for (int32_t i = 0; v->plan != NULL && i < v->plan->link_count; i++)
        digest_link(v, i, true);
}

/* ---- gaps ------------------------------------------------------------------------------------ */

typedef struct gap {
    rs_verify *verify;
    const rs_link *link; /* from the target to itself */
    int64_t first_slot;
    size_t element_bytes;
    const rs_region *region;
    const rs_holder *holder;
} gap;

static uint64_t count_strays(const gap *g, int32_t ndim, const int64_t *size,
                             const int64_t *strides, const char *at)
{
    static const char zeros[16] = {0};
    if (ndim == 0)
        return memcmp(at, zeros, g->element_bytes) != 0;
    uint64_t count = 0;
    for (int64_t i = 0; i < size[0]; i++)
        count += count_strays(g, ndim - 1, size + 1, strides + 1,
                              at + i * strides[0] * (int64_t)g->element_bytes);
    return count;
}

static reshard_status see_gap_box(void *user, const rs_link_box *box)
{
    gap *g = user;
    int64_t point[RESHARD_NDIM_MAX], strides[RESHARD_FACTORS_MAX];
    rs_place place;
    rs_link_point(g->link, &g->link->target, box->start, point);
    rs_region_place(g->region, g->holder, point, &place);
    rs_link_strides(g->link, &g->link->target, place.strides, strides);
    const char *memory = g->verify->exec->addresses->slots[g->first_slot + g->holder->shard];
    g->verify->mine.strays += count_strays(g, g->link->ndim, box->size, strides,
                                           memory + place.at * (int64_t)g->element_bytes);
    return RESHARD_OK;
}

static reshard_status see_gap(void *user, const rs_region *region, const rs_holder *holder)
{
    gap *g = user;
    g->region = region;
    g->holder = holder;
    return rs_link_boxes(g->link, &g->link->target, region->start, region->size, see_gap_box, g);
}

static void check_gaps(rs_verify *v)
{
    for (int64_t i = 0; i < v->plan->fill_count; i++) {
        const rs_fill *fill = &v->plan->fills[i];
        const reshard_plan_tensor *tensor = &v->plan->targets[fill->target];
        rs_link link;
        if (tensor->layout->partial ||
            rs_link_resolve(&fill->link, tensor->layout, tensor->layout, &link) != RESHARD_OK)
            continue; /* resolving cannot fail: the plan made these fills */
        gap g = {.verify = v,
                 .link = &link,
                 .first_slot = v->exec->slot_first[v->exec->source_count + fill->target],
                 .element_bytes = rs_element_bytes(tensor->dtype)};
        (void)rs_layout_visit_held(tensor->layout, v->rank, see_gap, &g);
    }
}

/* ---- telling --------------------------------------------------------------------------------- */

/* Only groups send small messages, so the first channel of an exec is free for these. */
static int32_t channel(const rs_verify *v)
{
    return v->exec->channel - v->exec->group->channel + RS_CHANNEL_SMALL;
}

reshard_status rs_verify_targets(rs_verify *v)
{
    v->told = false;
    v->over = 0;
    if (v->plan == NULL)
        return RESHARD_OK;
    for (int32_t i = 0; i < v->plan->link_count; i++)
        digest_link(v, i, false);
    check_gaps(v);
    reshard_group *group = v->exec->group;
    reshard_status status = RESHARD_OK;
    if (v->rank != 0) {
        status =
            rs_group_receive(group, 0, channel(v), &v->verdict, sizeof v->verdict, &v->requests[1]);
        return status == RESHARD_OK
                   ? rs_group_send(group, 0, channel(v), &v->mine, sizeof v->mine, &v->requests[0])
                   : status;
    }
    for (int32_t i = 1; i < v->size && status == RESHARD_OK; i++)
        status = rs_group_receive(group, i, channel(v), &v->heard[i], sizeof v->heard[i],
                                  &v->requests[i]);
    return status;
}

static void add_end(end_sums *to, const end_sums *more)
{
    to->first += more->first;
    to->all += more->all;
    to->weighted += more->weighted;
}

static void decide(rs_verify *v)
{
    sums all = v->mine;
    for (int32_t i = 1; i < v->size; i++) {
        add_end(&all.source, &v->heard[i].source);
        add_end(&all.target, &v->heard[i].target);
        all.strays += v->heard[i].strays;
    }
    finding found = FINE;
    if (all.source.all != all.source.weighted)
        found = SOURCE_COPIES_DIFFER;
    else if (all.source.first != all.target.first)
        found = TARGET_DIFFERS;
    else if (all.target.all != all.target.weighted)
        found = TARGET_COPIES_DIFFER;
    else if (all.strays != 0)
        found = GAPS_ARE_NOT_ZERO;
    v->verdict = (verdict){(int64_t)found, all.strays};
}

/* Tests the requests in order. *out_done tells whether the last one is complete. */
static reshard_status complete(rs_verify *v, int32_t count, bool *out_done)
{
    *out_done = true;
    while (v->over < count && *out_done) {
        reshard_status status = rs_group_test(v->exec->group, &v->requests[v->over], out_done);
        if (status != RESHARD_OK)
            return status;
        v->over += *out_done;
    }
    return RESHARD_OK;
}

static reshard_status conclude(const rs_verify *v)
{
    switch ((finding)v->verdict.finding) {
    case FINE:
        return RESHARD_OK;
    case SOURCE_COPIES_DIFFER:
        return rs_fail(RESHARD_ERR_CHECK, "exec: the copies of a source differ from each other");
    case TARGET_DIFFERS:
        return rs_fail(RESHARD_ERR_CHECK, "exec: the targets do not hold what the sources held");
    case TARGET_COPIES_DIFFER:
        return rs_fail(RESHARD_ERR_CHECK, "exec: the copies of a target differ from each other");
    case GAPS_ARE_NOT_ZERO:
        break;
    }
    return rs_fail(RESHARD_ERR_CHECK, "exec: %" PRIu64 " elements that no link fills are not zero",
                   v->verdict.strays);
}

/* Rank 0 hears from all others, decides, and tells them. */
static reshard_status hear_and_tell(rs_verify *v, bool *out_done)
{
    v->over = v->over == 0 ? 1 : v->over; /* rank 0 has no request of its own */
    reshard_status status = complete(v, v->size, out_done);
    if (status != RESHARD_OK || !*out_done || v->told)
        return status;
    decide(v);
    v->told = true;
    v->over = 1;
    for (int32_t i = 1; i < v->size && status == RESHARD_OK; i++)
        status = rs_group_send(v->exec->group, i, channel(v), &v->verdict, sizeof v->verdict,
                               &v->requests[i]);
    return status == RESHARD_OK ? complete(v, v->size, out_done) : status;
}

reshard_status rs_verify_progress(rs_verify *v, bool *out_done)
{
    *out_done = true;
    if (v->plan == NULL)
        return RESHARD_OK;
    bool done = false;
    reshard_status status = v->rank == 0 ? hear_and_tell(v, &done) : complete(v, 2, &done);
    *out_done = status == RESHARD_OK && done;
    return *out_done ? conclude(v) : status;
}
