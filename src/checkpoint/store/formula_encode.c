/* SPDX-License-Identifier: Apache-2.0 */
/*
 * formula_encode.c - computes blocks of a quantised type, in tiles that stay in the cache: values
 * are read, made f32 and encoded. An encoded tensor has one more dim than its values: a row of n
 * elements is n / elements blocks of so many bytes.
 */
#include "base/checked.h"
#include "base/shape.h"
#include "checkpoint/store/formula.h"
#include "kernel/values/block_types.h"
#include "kernel/values/cast.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Values that are read at once; with their f32 they should stay in the second cache. */
#define TILE_VALUES ((int64_t)64 << 10)

typedef struct encoding {
    const rs_stored_tensor *tensor, *values;
    const rs_block_type *type;
    float *numbers;
    char *raw; /* the same memory, if values are f32 */
    char *scratch;
    size_t scratch_bytes;
    rs_formula_tally *tally;
} encoding;

/* Reads the values of a tile, and makes them f32. */
static reshard_status read_tile(const encoding *e, const int64_t *offset, const int64_t *size)
{
    const rs_stored_tensor *values = e->values;
    int64_t count = rs_volume(values->carried_ndim, size);
    const int64_t one = 1;
    reshard_status status = RESHARD_OK;
    if (values->formula != NULL) {
        status =
            rs_formula_read(values, offset, size, e->raw, e->scratch, e->scratch_bytes, e->tally);
    } else {
        status = rs_store_read_box(e->tensor->formula->checkpoint, values, offset, size, e->raw,
                                   e->scratch, e->scratch_bytes);
        e->tally->bytes_read += (uint64_t)(count * values->element_bytes);
    }
    if (status != RESHARD_OK || values->dtype == RESHARD_F32)
        return status;
    rs_cast cast;
    rs_cast_prepare(&cast, values->dtype, RESHARD_F32, 1, &count, &one, &one);
    rs_cast_run(&cast, e->raw, e->numbers);
    return RESHARD_OK;
}

/* Names what is wrong with a block: a value, or the largest one. */
static reshard_status fail_block(const encoding *e, int64_t block, const int64_t *offset,
                                 const int64_t *size)
{
    const float *values = e->numbers + block * e->type->elements;
    int64_t index[RESHARD_NDIM_MAX] = {0}, worst = 0;
    char shown[200] = "";
    size_t length = 0;
    for (int32_t i = 0; i < e->type->elements && isfinite(values[worst]); i++) {
        if (!isfinite(values[i]) || fabsf(values[i]) > fabsf(values[worst]))
            worst = i;
    }
    int64_t element = block * e->type->elements + worst;
    for (int32_t d = e->values->carried_ndim; d-- > 0; element /= size[d])
        index[d] = offset[d] + element % size[d];
    for (int32_t d = 0; d < e->values->carried_ndim && length < sizeof shown; d++)
        length += (size_t)snprintf(shown + length, sizeof shown - length, "%s%lld",
                                   d == 0 ? "" : ", ", (long long)index[d]);
    return rs_fail(RESHARD_ERR_RANGE,
                   "tensor \"%.*s\": element [%s] is %g, but %s can only hold finite numbers%s",
                   RS_SHOWN(e->tensor->name), shown, (double)values[worst], e->type->name,
                   isfinite(values[worst]) ? " with a scale that fits in f16" : "");
}

static reshard_status encode_tile(const encoding *e, const int64_t *offset, const int64_t *size,
                                  char *memory)
{
    int32_t last = e->values->carried_ndim - 1;
    int64_t from[RESHARD_NDIM_MAX], extent[RESHARD_NDIM_MAX];
    memcpy(from, offset, sizeof from);
    memcpy(extent, size, sizeof extent);
    from[last] *= e->type->elements;
    extent[last] *= e->type->elements;
    reshard_status status = read_tile(e, from, extent);
    if (status != RESHARD_OK)
        return status;
    int64_t wrong = e->type->encode(e->numbers, rs_volume(last + 1, size), (uint8_t *)memory);
    return wrong < 0 ? RESHARD_OK : fail_block(e, wrong, from, extent);
}

reshard_status rs_formula_encode(const rs_stored_tensor *tensor, const int64_t *offset,
                                 const int64_t *size, char *memory, char *scratch,
                                 size_t scratch_bytes, rs_formula_tally *tally)
{
    const rs_formula *formula = tensor->formula;
    const rs_block_type *type = formula->encoding;
    int32_t ndim = formula->values->carried_ndim; /* without the dim of a block's bytes */
    int64_t each = (int64_t)sizeof(float) + formula->values->element_bytes;
    /* Half of the memory is for reading; another formula may need it. */
    int64_t most = rs_min(TILE_VALUES, (int64_t)scratch_bytes / 2 / each) / type->elements;
    size_t used = (size_t)(most * type->elements * each);
    encoding e = {.tensor = tensor,
                  .values = formula->values,
                  .type = type,
                  .numbers = (float *)(void *)scratch,
                  .raw = scratch,
                  .scratch = scratch + used,
                  .scratch_bytes = scratch_bytes - used,
                  .tally = tally};
    assert(tensor->carried_ndim == ndim + 1 && offset[ndim] == 0 && size[ndim] == type->bytes);
    assert(e.scratch_bytes >= RS_FORMULA_SCRATCH_MIN && most > 0);
    if (e.values->dtype != RESHARD_F32)
        e.raw = scratch + most * type->elements * (int64_t)sizeof(float);
    reshard_status status = RESHARD_OK;
    rs_tiles tiles = rs_tiles_cut(ndim, size, most);
    for (int64_t i = 0; status == RESHARD_OK && i < tiles.count; i++) {
        int64_t at[RESHARD_NDIM_MAX], part[RESHARD_NDIM_MAX];
        rs_tiles_at(&tiles, i, at, part);
        for (int32_t d = 0; d < ndim; d++)
            at[d] += offset[d];
        status = encode_tile(&e, at, part, memory);
        memory += rs_volume(ndim, part) * type->bytes;
    }
    return status;
}
