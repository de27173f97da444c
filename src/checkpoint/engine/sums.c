/* SPDX-License-Identifier: Apache-2.0 */
/* sums.c - sums blocks as they pass through memory. */
#include "checkpoint/engine/sums.h"

#include "base/checked.h"
#include "base/context.h"

#include <assert.h>
#include <string.h>

#define BOTH_SIDES_EACH 16 /* one block of this many is summed on both sides */
#define GATHERED_MAX 4096  /* routes gathered at once, because rs_team_gather is for small data */

reshard_status rs_sums_create(reshard_context *context, int64_t route_count, rs_sums **out_sums)
{
    size_t count = (size_t)route_count;
    rs_sums *sums = rs_allocate_zeroed(context, sizeof *sums);
    if (sums == NULL)
        return rs_allocation_status();
    sums->context = context;
    sums->count = route_count;
    reshard_status status = rs_mutex_init(&sums->mutex);
    if (status != RESHARD_OK) {
        rs_release(context, sums);
        return status;
    }
    status = rs_fingerprint_code_create(context, &sums->code);
    if (status == RESHARD_OK) {
        sums->items = rs_allocate_array(context, count, sizeof *sums->items);
        status = sums->items != NULL ? RESHARD_OK : rs_allocation_status();
    }
    if (status != RESHARD_OK) {
        rs_sums_destroy(sums);
        return status;
    }
    memset(sums->items, 0, count * sizeof *sums->items);
    *out_sums = sums;
    return RESHARD_OK;
}

void rs_sums_destroy(rs_sums *sums)
{
    if (sums == NULL)
        return;
    rs_release(sums->context, sums->items);
    rs_fingerprint_code_destroy(sums->code);
    rs_mutex_release(&sums->mutex);
    rs_release(sums->context, sums);
}

reshard_status rs_sums_merge(rs_sums *sums, const rs_team *team)
{
    reshard_status status = RESHARD_OK;
    if (team->group == NULL)
        return RESHARD_OK;
    for (int64_t first = 0; status == RESHARD_OK && first < sums->count; first += GATHERED_MAX) {
        size_t count = (size_t)rs_min(GATHERED_MAX, sums->count - first);
        size_t bytes = count * sizeof(rs_route_sum);
        rs_route_sum *mine = sums->items + first;
        void *all = NULL;
        status = rs_team_gather(team, mine, bytes, &all);
        if (status != RESHARD_OK)
            return status;
        memset(mine, 0, bytes);
        for (size_t i = 0; i < count * (size_t)team->rank_count; i++) {
            const rs_route_sum *theirs = (const rs_route_sum *)all + i;
            rs_fingerprint_merge(&mine[i % count].source, &theirs->source);
            rs_fingerprint_merge(&mine[i % count].target, &theirs->target);
        }
        rs_release(sums->context, all);
    }
    return status;
}

/* ---- one block ------------------------------------------------------------------------------- */

/* Adds a box of the tensor that lies in memory. Strides are those of the memory, in elements; NULL
 * means dense and row-major. */
static void sum_box(rs_fingerprint_writer *writer, const rs_stored_tensor *tensor,
                    const int64_t *offset, const int64_t *size, const void *memory,
                    const int64_t *strides)
{
    int64_t places[RESHARD_NDIM_MAX], steps[RESHARD_NDIM_MAX], index[RESHARD_NDIM_MAX] = {0};
    int64_t place = 0, stride = 1, dense = 1, run = 1, count = 1;
    int32_t outer = 0; /* number of dims outside a run */
    for (int32_t d = tensor->carried_ndim; d-- > 0;) {
        places[d] = stride * tensor->element_bytes;
        steps[d] = (strides != NULL ? strides[d] : dense) * tensor->element_bytes;
        place += offset[d] * places[d];
        /* Rows follow each other in the tensor if all inner dims are whole, and in memory if there
         * is no gap between them. */
        bool follows = run == stride && (size[d] == 1 || steps[d] == run * tensor->element_bytes);
        if (outer == 0 && follows)
            run *= size[d];
        else if (outer == 0)
            outer = d + 1;
        if (outer != 0)
            count *= size[d];
        stride *= tensor->carried_shape[d];
        dense *= size[d];
    }
    size_t run_bytes = (size_t)(run * tensor->element_bytes);
    const char *bytes = memory;
    for (int64_t i = 0; i < count; i++) {
        rs_fingerprint_add_run(writer, (uint64_t)place, bytes, run_bytes);
        for (int32_t d = outer; d-- > 0;) {
            place += places[d];
            bytes += steps[d];
            if (++index[d] < size[d])
                break;
            place -= size[d] * places[d];
            bytes -= size[d] * steps[d];
            index[d] = 0;
        }
    }
}

/* How many elements of a piece are contiguous in the tensor as well. */
static int64_t row_length(const rs_stored_tensor *tensor, const rs_stored_piece *piece)
{
    int64_t length = 1;
    for (int32_t d = tensor->carried_ndim; d-- > 0;) {
        length *= piece->size[d];
        if (piece->size[d] != tensor->carried_shape[d])
            break;
    }
    return length;
}

void rs_block_sums_begin(rs_block_sums *block, rs_sums *sums, const rs_route *route, int64_t number)
{
    block->sums = sums;
    block->route = route;
    block->on_source = block->on_target = false;
    if (sums == NULL)
        return;
    rs_fingerprint_begin(&block->source, sums->code);
    rs_fingerprint_begin(&block->target, sums->code);
    bool both = route->casts || number % BOTH_SIDES_EACH == 0;
    bool target_is_longer = route->tiles && row_length(route->target, route->target->pieces) >
                                                row_length(route->source, route->source->pieces);
    block->on_target = route->tiles && (both || target_is_longer);
    block->on_source = both || !block->on_target;
    if (route->casts && sums->target_only)
        block->on_source = false;
}

static bool is_first(const rs_block_sums *block, int64_t piece)
{
    const bool *again = block->route->again;
    return again == NULL || !again[piece];
}

void rs_block_sums_read(rs_block_sums *block, const int64_t *offset, const int64_t *size,
                        const void *memory, const int64_t *strides)
{
    if (block->on_source)
        sum_box(&block->source, block->route->source, offset, size, memory, strides);
}

void rs_block_sums_write(rs_block_sums *block, int64_t piece, const int64_t *offset,
                         const int64_t *size, const void *memory, const int64_t *strides)
{
    if (block->on_target && is_first(block, piece))
        sum_box(&block->target, block->route->target, offset, size, memory, strides);
}

void rs_block_sums_pass(rs_block_sums *block, int64_t piece, const int64_t *offset,
                        const int64_t *size, const void *memory)
{
    block->on_target = false;
    if (block->sums == NULL || !block->route->tiles || !is_first(block, piece))
        return;
    sum_box(&block->source, block->route->source, offset, size, memory, NULL);
    block->on_source = true;
}

reshard_status rs_block_sums_end(rs_block_sums *block, int64_t route)
{
    rs_sums *sums = block->sums;
    rs_fingerprint *source = &block->source.sum, *target = &block->target.sum;
    if (!block->on_source && !block->on_target)
        return RESHARD_OK;
    assert(route >= 0 && route < sums->count);
    if (!block->route->casts) {
        if (block->on_source && block->on_target && memcmp(source, target, sizeof *source) != 0)
            return rs_fail(RESHARD_ERR_CHECK,
                           "the bytes about to be written are not those that were read: this "
                           "machine's memory or the program is faulty");
        *(block->on_source ? target : source) = *(block->on_source ? source : target);
    }
    rs_mutex_lock(&sums->mutex);
    rs_fingerprint_merge(&sums->items[route].source, source);
    rs_fingerprint_merge(&sums->items[route].target, target);
    rs_mutex_unlock(&sums->mutex);
    return RESHARD_OK;
}
