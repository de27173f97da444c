/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delivery.c - send and receive between two ranks.
 *
 * A delivery consists of a head that says what comes, and of its bytes in as many messages as the
 * transport needs. Both ends post all of these when they begin, each from what it knows itself. So
 * deliveries match in the order in which they begin, whatever is waited for first, and data need
 * not wait for the head. If the two ends differ, the receiver learns it from the head, or the
 * transport from sizes that do not match. Either breaks the group, because posted messages cannot
 * be taken back.
 *
 * Deliveries use the group's own channels, of which groups themselves use only the first.
 */
#include "collective/delivery.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "collective/collective.h"
#include "collective/work.h"
#include "transport/group.h"

#include <inttypes.h>

typedef struct head {
    int64_t count;
    int64_t dtype;
} head;

struct rs_delivery {
    reshard_context *context;
    reshard_group *group;
    bool sending;
    int32_t peer;
    char *bytes;
    size_t byte_count, segment_bytes;
    head mine, heard;
    reshard_request head_request;
    bool head_is_over;
    size_t segment_count, posted, over;
    reshard_request *segments;
};

void rs_delivery_destroy(rs_delivery *t)
{
    if (t == NULL)
        return;
    rs_release(t->context, t->segments);
    rs_release(t->context, t);
}

static reshard_status give_up(rs_delivery *t, reshard_status status)
{
    reshard_group_break(t->group, reshard_error_text());
    rs_group_quiesce(t->group);
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static reshard_status check_head(const rs_delivery *t)
{
    if (t->sending || (t->heard.count == t->mine.count && t->heard.dtype == t->mine.dtype))
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_GROUP_BROKEN,
                   "receive: %" PRId64 " %s are expected from rank %d, which sends %" PRId64 " %s",
                   t->mine.count, reshard_dtype_name((reshard_dtype)t->mine.dtype), t->peer,
                   t->heard.count, reshard_dtype_name((reshard_dtype)t->heard.dtype));
}

static reshard_status advance_head(rs_delivery *t)
{
    if (t->head_is_over)
        return RESHARD_OK;
    reshard_status status = rs_group_test(t->group, &t->head_request, &t->head_is_over);
    return status == RESHARD_OK && t->head_is_over ? check_head(t) : status;
}

static reshard_status post_segment(rs_delivery *t)
{
    size_t first = t->posted * t->segment_bytes, left = t->byte_count - first;
    size_t count = left < t->segment_bytes ? left : t->segment_bytes;
    reshard_request *request = &t->segments[t->posted++];
    return t->sending
               ? rs_group_send(t->group, t->peer, RS_CHANNEL_DATA, t->bytes + first, count, request)
               : rs_group_receive(t->group, t->peer, RS_CHANNEL_DATA, t->bytes + first, count,
                                  request);
}

reshard_status rs_delivery_begin(rs_delivery *t)
{
    t->head_is_over = false;
    t->posted = t->over = 0;
    reshard_status status = t->sending
                                ? rs_group_send(t->group, t->peer, RS_CHANNEL_READY, &t->mine,
                                                sizeof t->mine, &t->head_request)
                                : rs_group_receive(t->group, t->peer, RS_CHANNEL_READY, &t->heard,
                                                   sizeof t->heard, &t->head_request);
    /* If the head has arrived, it explains a difference better than the transport can. */
    if (status == RESHARD_OK)
        status = advance_head(t);
    while (status == RESHARD_OK && t->posted < t->segment_count)
        status = post_segment(t);
    return status == RESHARD_OK ? status : give_up(t, status);
}

reshard_status rs_delivery_test(rs_delivery *t, int *out_done)
{
    reshard_status status = advance_head(t);
    bool done = true;
    while (status == RESHARD_OK && done && t->over < t->segment_count) {
        status = rs_group_test(t->group, &t->segments[t->over], &done);
        t->over += done;
    }
    if (status != RESHARD_OK)
        return give_up(t, status);
    *out_done = t->head_is_over && t->over == t->segment_count;
    return RESHARD_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

static reshard_status check(const rs_collective *c, int32_t peer, int64_t count, const void *buffer,
                            size_t *out_bytes)
{
    int64_t elements, bytes;
    int32_t bits = reshard_dtype_bits(c->dtype);
    if (peer < 0 || peer >= reshard_group_size(c->group))
        return rs_fail(RESHARD_ERR_RANGE, "%s: rank %d is not in the group of %d", c->name, peer,
                       reshard_group_size(c->group));
    if (bits == 0)
        return rs_fail(RESHARD_ERR_INVALID, "%s: %d is not a dtype", c->name, (int)c->dtype);
    if (count < 0)
        return rs_fail(RESHARD_ERR_RANGE, "%s: the count is %" PRId64, c->name, count);
    reshard_status status = rs_collective_whole_bytes(c, c->dtype, count, &elements);
    if (status != RESHARD_OK)
        return status;
    if (!rs_multiply(elements, bits % 8 != 0 ? 1 : bits / 8, &bytes))
        return rs_fail(RESHARD_ERR_RANGE, "%s: %" PRId64 " elements of %s are too many bytes",
                       c->name, count, reshard_dtype_name(c->dtype));
    if (bytes != 0 && buffer == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "%s: the buffer is NULL, not %" PRId64 " bytes",
                       c->name, bytes);
    *out_bytes = (size_t)bytes;
    return RESHARD_OK;
}

static reshard_status create(const rs_collective *c, bool sending, int32_t peer, int64_t count,
                             void *buffer, size_t bytes, rs_delivery **out_delivery)
{
    rs_delivery *t = rs_allocate_zeroed(c->context, sizeof *t);
    if (t == NULL)
        return rs_allocation_status();
    t->context = c->context;
    t->group = c->group;
    t->sending = sending;
    t->peer = peer;
    t->bytes = buffer;
    t->byte_count = bytes;
    t->segment_bytes = rs_group_message_bytes_max(c->group);
    t->mine = (head){count, (int64_t)c->dtype};
    size_t segments = bytes / t->segment_bytes + (bytes % t->segment_bytes != 0);
    t->segments = rs_allocate_array(c->context, segments, sizeof *t->segments);
    if (t->segments == NULL) {
        reshard_status status = rs_allocation_status();
        rs_delivery_destroy(t);
        return status;
    }
    t->segment_count = segments;
    *out_delivery = t;
    return RESHARD_OK;
}

static reshard_status start(rs_collective *c, bool sending, int32_t peer, int64_t count,
                            void *buffer, reshard_work **out_work)
{
    size_t bytes = 0;
    reshard_work *work = NULL;
    reshard_status status = rs_collective_choose(c);
    if (status == RESHARD_OK)
        status = check(c, peer, count, buffer, &bytes);
    if (status == RESHARD_OK)
        status = rs_work_create(c->context, c->group, 0, 0, &work);
    if (status == RESHARD_OK)
        status = create(c, sending, peer, count, buffer, bytes, &work->delivery);
    if (status == RESHARD_OK)
        status = rs_work_begin(work);
    if (status != RESHARD_OK) {
        reshard_work_destroy(work);
        return status;
    }
    *out_work = work;
    return RESHARD_OK;
}

/* A blocking delivery to itself would never end: while the rank waits, nobody can post the other
 * end. */
static reshard_status check_not_self(rs_collective *c, int32_t peer)
{
    reshard_status status = rs_collective_choose(c);
    if (status != RESHARD_OK)
        return status;
    if (peer == reshard_group_rank(c->group))
        return rs_fail(RESHARD_ERR_INVALID,
                       "%s: rank %d would wait for itself; start it and the other end instead",
                       c->name, peer);
    return RESHARD_OK;
}

/* out_work NULL: waits for the delivery. */
static reshard_status deliver(rs_collective *c, bool sending, int32_t peer, int64_t count,
                              void *buffer, reshard_work **out_work)
{
    if (out_work != NULL)
        return start(c, sending, peer, count, buffer, out_work);
    reshard_work *work = NULL;
    reshard_status status = check_not_self(c, peer);
    if (status == RESHARD_OK)
        status = start(c, sending, peer, count, buffer, &work);
    return rs_work_complete(status, work);
}

reshard_status reshard_send(reshard_context *context, reshard_group *group, reshard_dtype dtype,
                            int32_t target_rank, int64_t count, const void *source,
                            reshard_work **out_work)
{
    rs_collective c = {.name = "send", .context = context, .group = group, .dtype = dtype};
    return deliver(&c, true, target_rank, count, (void *)(uintptr_t)source, out_work);
}

reshard_status reshard_receive(reshard_context *context, reshard_group *group, reshard_dtype dtype,
                               int32_t source_rank, int64_t count, void *target,
                               reshard_work **out_work)
{
    rs_collective c = {.name = "receive", .context = context, .group = group, .dtype = dtype};
    return deliver(&c, false, source_rank, count, target, out_work);
}
