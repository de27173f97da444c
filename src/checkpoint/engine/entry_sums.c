/* SPDX-License-Identifier: Apache-2.0 */
/* entry_sums.c - sums the CRCs of entries as they are written, and merges and completes them. */
#include "checkpoint/engine/entry_sums.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/search.h"

#include <assert.h>
#include <string.h>

#define GATHERED_MAX 8192 /* entries gathered at once, because rs_team_gather is for small data */
#define READ_BYTES ((size_t)1 << 20)

reshard_status rs_entry_sums_create(reshard_context *context, int64_t count,
                                    const rs_entry_range *ranges, rs_entry_sums **out_sums)
{
    rs_entry_sums *sums = rs_allocate_zeroed(context, sizeof *sums);
    if (sums == NULL)
        return rs_allocation_status();
    sums->context = context;
    sums->count = count;
    sums->ranges = ranges;
    reshard_status status = rs_mutex_init(&sums->mutex);
    if (status != RESHARD_OK) {
        rs_release(context, sums);
        return status;
    }
    sums->items = rs_allocate_array(context, (size_t)count, sizeof *sums->items);
    if (sums->items == NULL) {
        rs_entry_sums_destroy(sums);
        return rs_allocation_status();
    }
    memset(sums->items, 0, (size_t)count * sizeof *sums->items);
    *out_sums = sums;
    return RESHARD_OK;
}

void rs_entry_sums_destroy(rs_entry_sums *sums)
{
    if (sums == NULL)
        return;
    rs_release(sums->context, sums->items);
    rs_mutex_release(&sums->mutex);
    rs_release(sums->context, sums);
}

/* The last range that begins at or before byte `at` of the file. */
static int64_t find_range(const rs_entry_sums *sums, int32_t file, uint64_t at)
{
    const rs_entry_range *ranges = sums->ranges;
    int64_t next;
    RS_FIND_FIRST(next, sums->count,
                  ranges[next].file > file || (ranges[next].file == file && ranges[next].at > at));
    return next > 0 ? next - 1 : 0;
}

void rs_entry_sums_add(rs_entry_sums *sums, int32_t file, const void *bytes, size_t count,
                       uint64_t at)
{
    int64_t index = find_range(sums, file, at);
    const rs_entry_range *range = &sums->ranges[index];
    assert(index < sums->count && range->file == file && range->at <= at &&
           at - range->at <= range->bytes && count <= range->bytes - (at - range->at));
    rs_zip_sum added = {0};
    rs_zip_sum_add(&added, range->bytes, at - range->at, bytes, count);
    rs_mutex_lock(&sums->mutex);
    rs_zip_sum_merge(&sums->items[index], &added);
    rs_mutex_unlock(&sums->mutex);
}

reshard_status rs_entry_sums_merge(rs_entry_sums *sums, const rs_team *team)
{
    reshard_status status = RESHARD_OK;
    if (team->group == NULL)
        return RESHARD_OK;
    for (int64_t first = 0; status == RESHARD_OK && first < sums->count; first += GATHERED_MAX) {
        size_t count = (size_t)rs_min(GATHERED_MAX, sums->count - first);
        size_t bytes = count * sizeof(rs_zip_sum);
        rs_zip_sum *mine = sums->items + first;
        void *all = NULL;
        status = rs_team_gather(team, mine, bytes, &all);
        if (status != RESHARD_OK)
            return status;
        memset(mine, 0, bytes);
        for (size_t i = 0; i < count * (size_t)team->rank_count; i++)
            rs_zip_sum_merge(&mine[i % count], (const rs_zip_sum *)all + i);
        rs_release(sums->context, all);
    }
    return status;
}

/* Sums a whole entry as it is in the file. */
static reshard_status read_back(const rs_entry_range *range, const rs_file *file, char *memory,
                                rs_zip_sum *out_sum)
{
    rs_zip_sum sum = {0};
    for (uint64_t at = 0; at < range->bytes;) {
        uint64_t left = range->bytes - at;
        size_t part = left < READ_BYTES ? (size_t)left : READ_BYTES;
        reshard_status status = rs_file_read(file, memory, part, range->at + at);
        if (status != RESHARD_OK)
            return status;
        rs_zip_sum_add(&sum, range->bytes, at, memory, part);
        at += part;
    }
    *out_sum = sum;
    return RESHARD_OK;
}

reshard_status rs_entry_sums_complete(rs_entry_sums *sums, rs_file *const *files)
{
    reshard_status status = RESHARD_OK;
    char *memory = rs_allocate(sums->context, READ_BYTES);
    if (memory == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < sums->count; i++) {
        const rs_entry_range *range = &sums->ranges[i];
        assert(sums->items[i].bytes <= range->bytes);
        if (sums->items[i].bytes < range->bytes)
            status = read_back(range, files[range->file], memory, &sums->items[i]);
        if (status == RESHARD_OK && rs_context_cancelled(sums->context))
            status = rs_fail(RESHARD_ERR_CANCELLED, "cancelled");
    }
    rs_release(sums->context, memory);
    return status;
}
