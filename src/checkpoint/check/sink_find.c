/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink_find.c - compares blocks with the other checkpoint's files and notes, for each route, the
 * first element in row-major order that differs.
 *
 * 1. A block is compared as it is emitted, in the order of B's files, which is fast but tells only
 *    that something differs. If so, the block's box is read again from both sides in row-major
 *    order, in small tiles, up to the first element that differs.
 * 2. A block whose elements all come after a difference that is already known is skipped, so a
 *    tensor that differs everywhere costs only a block or two.
 */
#include "base/context.h"
#include "base/shape.h"
#include "checkpoint/check/comparison.h"
#include "kernel/values/cast.h"

#include <assert.h>
#include <string.h>

#define TILE_ELEMENTS ((int64_t)1 << 13)
#define SCRATCH_BYTES ((size_t)1 << 18)

/* The number of an element in row-major order. */
static uint64_t number_of(const rs_stored_tensor *tensor, const int64_t *index)
{
    int64_t number = 0;
    for (int32_t d = 0; d < tensor->carried_ndim; d++)
        number = number * tensor->carried_shape[d] + index[d];
    return (uint64_t)number;
}

void rs_element_index(const rs_stored_tensor *tensor, int64_t number,
                      int64_t out_index[RESHARD_NDIM_MAX])
{
    for (int32_t d = tensor->carried_ndim - 1; d >= 0; d--) {
        out_index[d] = number % tensor->carried_shape[d];
        number /= tensor->carried_shape[d];
    }
}

static void note(atomic_uint_fast64_t *first, uint64_t number)
{
    uint_fast64_t before = atomic_load(first);
    while (number < before && !atomic_compare_exchange_weak(first, &before, number))
        ;
}

/* Memory for one tile: A's elements, the same after the cast, B's elements, and scratch. */
typedef struct tile_memory {
    char *a, *cast, *b, *scratch;
} tile_memory;

/* The first differing element, counted within the tile; -1: none. */
static reshard_status search_tile(const rs_finding *finding, const rs_route *route,
                                  const int64_t *offset, const int64_t *size,
                                  const tile_memory *memory, int64_t *out_element)
{
    const rs_stored_tensor *source = route->source, *target = route->target;
    int64_t count = rs_volume(source->carried_ndim, size), strides = 1;
    const char *a = memory->a;
    *out_element = -1;
    reshard_status status = rs_store_read_box(finding->a, source, offset, size, memory->a,
                                              memory->scratch, SCRATCH_BYTES);
    if (status == RESHARD_OK)
        status = rs_store_read_box(finding->b, target, offset, size, memory->b, memory->scratch,
                                   SCRATCH_BYTES);
    if (status != RESHARD_OK)
        return status;
    if (route->casts) {
        rs_cast cast;
        rs_cast_prepare(&cast, source->dtype, target->dtype, 1, &count, &strides, &strides);
        rs_cast_run(&cast, memory->a, memory->cast);
        a = memory->cast;
    }
    size_t bytes = (size_t)target->element_bytes;
    if (memcmp(a, memory->b, (size_t)count * bytes) == 0)
        return RESHARD_OK;
    int64_t i = 0;
    while (memcmp(a + (size_t)i * bytes, memory->b + (size_t)i * bytes, bytes) == 0)
        i++;
    *out_element = i;
    return RESHARD_OK;
}

/* Moves an index by a number of elements of the box that begins there. */
static void advance(int32_t ndim, const int64_t *size, int64_t elements, int64_t *index)
{
    for (int32_t d = ndim - 1; d >= 0; d--) {
        index[d] += elements % size[d];
        elements /= size[d];
    }
}

/* Finds the first differing element of a block, tile by tile. */
static reshard_status search(rs_finding *finding, const rs_route *route, const rs_block_box *box,
                             atomic_uint_fast64_t *first)
{
    const rs_stored_tensor *source = route->source;
    int32_t ndim = source->carried_ndim;
    size_t tile_bytes = (size_t)TILE_ELEMENTS * RS_VALUE_BYTES,
           bytes = 3 * tile_bytes + SCRATCH_BYTES;
    reshard_status status = RESHARD_OK;
    int64_t element = -1;
    assert(source->element_bytes <= RS_VALUE_BYTES);
    char *memory = rs_allocate(finding->engine.context, bytes);
    if (memory == NULL)
        return rs_allocation_status();
    const tile_memory parts = {memory, memory + tile_bytes, memory + 2 * tile_bytes,
                               memory + 3 * tile_bytes};
    rs_tiles tiles = rs_tiles_cut(ndim, box->size, TILE_ELEMENTS);
    for (int64_t i = 0; status == RESHARD_OK && element < 0 && i < tiles.count; i++) {
        int64_t offset[RESHARD_NDIM_MAX] = {0}, size[RESHARD_NDIM_MAX];
        rs_tiles_at(&tiles, i, offset, size);
        for (int32_t d = 0; d < ndim; d++)
            offset[d] += box->offset[d];
        status = search_tile(finding, route, offset, size, &parts, &element);
        if (status == RESHARD_OK && element >= 0) {
            advance(ndim, size, element, offset);
            note(first, number_of(source, offset));
        }
    }
    if (status == RESHARD_OK && element < 0)
        status = rs_fail(RESHARD_ERR_CHECK, "its files changed while they were compared");
    rs_release(finding->engine.context, memory);
    return status;
}

static reshard_status find(rs_worker *worker, const rs_route *route, const rs_block_box *box)
{
    rs_finding *finding = (rs_finding *)worker->engine;
    atomic_uint_fast64_t *first = &finding->firsts[route - finding->engine.blocks->routes];
    if (atomic_load(first) < number_of(route->source, box->offset))
        return RESHARD_OK;
    reshard_status status = rs_sink_compare.run(worker, route, box);
    return status == RESHARD_ERR_CHECK ? search(finding, route, box, first) : status;
}

const rs_sink rs_sink_find = {
    .run = find, .extra_bytes = RS_COMPARE_BYTES, .takes = RS_TRACE_COMPARE};
