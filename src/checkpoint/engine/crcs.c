/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crcs.c - sums the CRCs of a source while it is read. A member may hold several tensors that
 * overlap, or one tensor that is read twice. So in each member only one piece of one route is
 * watched, the longest dense one; what lies around it, such as the header of an array, is read at
 * the end if it is short.
 */
#include "checkpoint/engine/crcs.h"

#include "base/context.h"
#include "base/error.h"
#include "base/search.h"
#include "base/shape.h"
#include "base/sort.h"
#include "checkpoint/engine/entry_sums.h"

#include <assert.h>
#include <string.h>

#define READ_BYTES ((size_t)1 << 20)
/* What is read at the end although nobody asked for it. */
#define SHORT_BYTES ((uint64_t)1 << 16)

/* The piece of a member that is summed while it is read; route NULL: none. */
typedef struct crc_watch {
    const rs_route *route;
    uint64_t at, bytes;
} crc_watch;

struct rs_crcs {
    const reshard_checkpoint *checkpoint;
    int64_t count;
    rs_stored_crc *items;   /* sorted by file, then by place */
    rs_entry_range *ranges; /* the same, as the sums have them */
    crc_watch *watches;     /* by item */
    rs_entry_sums *sums;
};

static int compare_items(const void *a, const void *b)
{
    const rs_stored_crc *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* The item that holds all of these bytes, or -1. */
static int64_t find_item(const rs_crcs *crcs, int32_t file, uint64_t at, uint64_t bytes)
{
    const rs_stored_crc *items = crcs->items;
    int64_t next;
    RS_FIND_FIRST(next, crcs->count,
                  items[next].file > file || (items[next].file == file && items[next].at > at));
    if (next == 0)
        return -1;
    const rs_stored_crc *item = &items[next - 1];
    bool is_inside = item->file == file && at - item->at <= item->bytes &&
                     bytes <= item->bytes - (at - item->at);
    return is_inside ? next - 1 : -1;
}

static void watch_route(rs_crcs *crcs, const rs_route *route)
{
    const rs_stored_tensor *source = route->source;
    for (int64_t i = 0; source->formula == NULL && i < source->piece_count; i++) {
        const rs_stored_piece *piece = &source->pieces[i];
        uint64_t bytes =
            (uint64_t)(rs_volume(source->carried_ndim, piece->size) * source->element_bytes);
        int64_t index = find_item(crcs, piece->file, piece->at, bytes);
        if (index >= 0 && piece->strides == NULL && bytes > crcs->watches[index].bytes)
            crcs->watches[index] = (crc_watch){route, piece->at, bytes};
    }
}

static reshard_status allocate(rs_crcs *crcs)
{
    reshard_context *context = crcs->checkpoint->context;
    size_t count = (size_t)crcs->count;
    crcs->items = rs_allocate_array(context, count, sizeof *crcs->items);
    crcs->ranges = rs_allocate_array(context, count, sizeof *crcs->ranges);
    crcs->watches = rs_allocate_array(context, count, sizeof *crcs->watches);
    if (crcs->items == NULL || crcs->ranges == NULL || crcs->watches == NULL)
        return rs_allocation_status();
    memcpy(crcs->items, crcs->checkpoint->crcs, count * sizeof *crcs->items);
    memset(crcs->watches, 0, count * sizeof *crcs->watches);
    rs_sort(crcs->items, count, sizeof *crcs->items, compare_items);
    for (size_t i = 0; i < count; i++)
        crcs->ranges[i] =
            (rs_entry_range){crcs->items[i].file, crcs->items[i].at, crcs->items[i].bytes};
    return rs_entry_sums_create(context, crcs->count, crcs->ranges, &crcs->sums);
}

reshard_status rs_crcs_create(const reshard_checkpoint *checkpoint, int64_t route_count,
                              const rs_route *routes, rs_crcs **out_crcs)
{
    *out_crcs = NULL;
    if (checkpoint->crc_count == 0)
        return RESHARD_OK;
    rs_crcs *crcs = rs_allocate_zeroed(checkpoint->context, sizeof *crcs);
    if (crcs == NULL)
        return rs_allocation_status();
    crcs->checkpoint = checkpoint;
    crcs->count = checkpoint->crc_count;
    reshard_status status = allocate(crcs);
    if (status != RESHARD_OK) {
        rs_crcs_destroy(crcs);
        return status;
    }
    for (int64_t i = 0; i < route_count; i++)
        watch_route(crcs, &routes[i]);
    *out_crcs = crcs;
    return RESHARD_OK;
}

void rs_crcs_destroy(rs_crcs *crcs)
{
    if (crcs == NULL)
        return;
    reshard_context *context = crcs->checkpoint->context;
    rs_entry_sums_destroy(crcs->sums);
    rs_release(context, crcs->watches);
    rs_release(context, crcs->ranges);
    rs_release(context, crcs->items);
    rs_release(context, crcs);
}

void rs_crcs_add(rs_crcs *crcs, const rs_route *route, int32_t file, const void *bytes,
                 size_t count, uint64_t at)
{
    int64_t index = crcs != NULL && count != 0 ? find_item(crcs, file, at, count) : -1;
    if (index < 0)
        return;
    const crc_watch *watch = &crcs->watches[index];
    if (watch->route == route && at >= watch->at && at - watch->at + count <= watch->bytes)
        rs_entry_sums_add(crcs->sums, file, bytes, count, at);
}

/* ---- at the end ------------------------------------------------------------------------------ */

/* Adds bytes begin .. end-1 of a member, as they are in the file. */
static reshard_status read_part(const rs_crcs *crcs, const rs_stored_crc *item, uint64_t begin,
                                uint64_t end, char *memory, rs_zip_sum *sum)
{
    const rs_stored_file *file = &crcs->checkpoint->files[item->file];
    for (uint64_t at = begin; at < end;) {
        size_t part = end - at < READ_BYTES ? (size_t)(end - at) : READ_BYTES;
        if (rs_context_cancelled(crcs->checkpoint->context))
            return rs_fail(RESHARD_ERR_CANCELLED, "cancelled while reading %s", file->name);
        reshard_status status = rs_file_read(file->file, memory, part, item->at + at);
        if (status != RESHARD_OK)
            return status;
        rs_zip_sum_add(sum, item->bytes, at, memory, part);
        at += part;
    }
    return RESHARD_OK;
}

/* Completes the sum of an item. *out_is_left: it would take a long read, which nobody wants. */
static reshard_status complete(const rs_crcs *crcs, int64_t index, bool reads_rest, char *memory,
                               rs_zip_sum *out_sum, bool *out_is_left)
{
    const rs_stored_crc *item = &crcs->items[index];
    const crc_watch *watch = &crcs->watches[index];
    rs_zip_sum sum = crcs->sums->items[index];
    bool is_read = watch->route != NULL && sum.bytes == watch->bytes;
    uint64_t begin = is_read ? watch->at - item->at : 0;
    uint64_t end = is_read ? begin + watch->bytes : 0;
    if (!is_read)
        sum = (rs_zip_sum){0};
    *out_is_left = !reads_rest && begin + (item->bytes - end) > SHORT_BYTES;
    if (*out_is_left)
        return RESHARD_OK;
    reshard_status status = read_part(crcs, item, 0, begin, memory, &sum);
    if (status == RESHARD_OK)
        status = read_part(crcs, item, end, item->bytes, memory, &sum);
    *out_sum = sum;
    return status;
}

static reshard_status compare_item(const rs_crcs *crcs, int64_t index, bool reads_rest,
                                   char *memory, int64_t *left)
{
    const rs_stored_crc *item = &crcs->items[index];
    rs_zip_sum sum = {0};
    bool is_left = false;
    reshard_status status = complete(crcs, index, reads_rest, memory, &sum, &is_left);
    *left += is_left;
    if (status != RESHARD_OK || is_left || sum.crc == item->crc)
        return status;
    return rs_fail_about(RESHARD_ERR_CHECK, crcs->checkpoint->files[item->file].name,
                         "the CRC of %llu bytes from byte %llu on is wrong: the data is damaged",
                         (unsigned long long)item->bytes, (unsigned long long)item->at);
}

/* Compares this rank's share of the items. */
static reshard_status compare_share(const rs_crcs *crcs, const rs_team *team, bool reads_rest,
                                    int64_t *left)
{
    reshard_context *context = crcs->checkpoint->context;
    reshard_status status = RESHARD_OK;
    char *memory = rs_allocate(context, READ_BYTES);
    if (memory == NULL)
        return rs_allocation_status();
    for (int64_t i = team->rank; status == RESHARD_OK && i < crcs->count; i += team->rank_count)
        status = compare_item(crcs, i, reads_rest, memory, left);
    rs_release(context, memory);
    return status;
}

reshard_status rs_crcs_finish(rs_crcs *crcs, const rs_team *team, bool reads_rest,
                              int64_t *out_left)
{
    int64_t left = 0;
    void *all = NULL;
    *out_left = 0;
    if (crcs == NULL)
        return RESHARD_OK;
    reshard_status status = rs_entry_sums_merge(crcs->sums, team);
    if (status == RESHARD_OK)
        status = rs_team_agree(team, compare_share(crcs, team, reads_rest, &left));
    if (status == RESHARD_OK)
        status = rs_team_gather(team, &left, sizeof left, &all);
    for (int32_t i = 0; status == RESHARD_OK && i < team->rank_count; i++)
        *out_left += ((const int64_t *)all)[i];
    rs_release(team->context, all);
    return status;
}

reshard_status rs_crcs_check_all(const reshard_checkpoint *checkpoint, const rs_team *team)
{
    rs_crcs *crcs = NULL;
    int64_t left = 0;
    reshard_status status = rs_team_agree(team, rs_crcs_create(checkpoint, 0, NULL, &crcs));
    if (status == RESHARD_OK)
        status = rs_crcs_finish(crcs, team, true, &left);
    assert(left == 0);
    rs_crcs_destroy(crcs);
    return status;
}
