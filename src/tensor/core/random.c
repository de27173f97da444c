/* SPDX-License-Identifier: Apache-2.0 */
/* random.c - see random.h. A uniform number has exactly as many random bits as its dtype has bits
 * of precision, so it is never rounded up to 1. */
#include "tensor/core/random.h"

#include "base/digest.h"
#include "base/error.h"
#include "kernel/values/float.h"
#include "tensor/core/distribution.h"

#include <reshard/group.h>

#include <assert.h>
#include <math.h>
#include <string.h>

uint64_t rs_random_bits(uint64_t seed, uint64_t index)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    return rs_mix(rs_mix(seed + golden) + (index + 1) * golden);
}

static int precision_of(reshard_dtype dtype)
{
    switch (dtype) {
    case RESHARD_F64:
        return 53;
    case RESHARD_F32:
        return 24;
    case RESHARD_F16:
        return 11;
    default:
        return 8;
    }
}

static double draw(const rs_random *fill, reshard_dtype dtype, uint64_t index)
{
    if (fill->kind == RS_RANDOM_NORMAL) {
        double u = ((double)(rs_random_bits(fill->seed, 2 * index) >> 11) + 0.5) * 0x1p-53;
        double v = (double)(rs_random_bits(fill->seed, 2 * index + 1) >> 11) * 0x1p-53;
        return sqrt(-2 * log(u)) * cos(6.28318530717958647693 * v);
    }
    uint64_t bits = rs_random_bits(fill->seed, index);
    if (fill->kind == RS_RANDOM_KEEP)
        return (double)(bits >> 11) * 0x1p-53 < fill->p ? 0 : 1 / (1 - fill->p);
    int precision = precision_of(dtype);
    return ldexp((double)(bits >> (64 - precision)), -precision);
}

static void put(reshard_dtype dtype, unsigned char *data, int64_t at, double value)
{
    float narrow = (float)value;
    uint16_t half = dtype == RESHARD_F16 ? rs_f64_to_f16(value) : rs_f64_to_bf16(value);
    if (dtype == RESHARD_F64)
        memcpy(data + at * 8, &value, sizeof value);
    else if (dtype == RESHARD_F32)
        memcpy(data + at * 4, &narrow, sizeof narrow);
    else
        memcpy(data + at * 2, &half, sizeof half);
}

/* A complex number takes two consecutive numbers for its parts. If it is normal, each part has half
 * the variance. */
static void put_next(reshard_dtype dtype, unsigned char *data, int64_t at, const rs_random *fill,
                     uint64_t index)
{
    reshard_dtype part = rs_dtype_part(dtype);
    int64_t parts = rs_dtype_parts(dtype);
    double scale = parts == 2 && fill->kind == RS_RANDOM_NORMAL ? sqrt(0.5) : 1;
    for (int64_t i = 0; i < parts; i++)
        put(part, data, at * parts + i,
            scale * draw(fill, part, index * (uint64_t)parts + (uint64_t)i));
}

static void fill_dense(reshard_tensor *tensor, const rs_random *fill)
{
    unsigned char *data = reshard_tensor_write(tensor);
    for (int64_t i = 0; i < tensor->volume; i++)
        put_next(tensor->dtype, data, i, fill, (uint64_t)i);
}

/* Fills the elements of a piece by their global index. */
static void fill_piece(reshard_tensor *shard, const reshard_piece *piece,
                       const int64_t *global_strides, const rs_random *fill)
{
    int64_t index[RESHARD_NDIM_MAX] = {0};
    unsigned char *data = shard->data;
    int32_t d = 0;
    while (d >= 0) {
        int64_t number = 0, at = piece->at;
        for (int32_t i = 0; i < piece->box.ndim; i++) {
            number += (piece->box.offset[i] + index[i]) * global_strides[i];
            at += index[i] * piece->strides[i];
        }
        put_next(shard->dtype, data, at, fill, (uint64_t)number);
        for (d = piece->box.ndim - 1; d >= 0 && ++index[d] == piece->box.size[d]; d--)
            index[d] = 0;
    }
}

reshard_status rs_fill_random(reshard_tensor *tensor, const rs_random *fill)
{
    assert(tensor->distribution != NULL || rs_tensor_is_contiguous(tensor));
    assert(fill->p >= 0 && fill->p < 1);
    bool complex = rs_dtype_is_complex(tensor->dtype) && fill->kind != RS_RANDOM_KEEP;
    if (!rs_dtype_is_float(tensor->dtype) && !complex)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "random numbers of %s",
                       reshard_dtype_name(tensor->dtype));
    if (tensor->distribution == NULL) {
        fill_dense(tensor, fill);
        return RESHARD_OK;
    }
    const rs_distribution *distribution = tensor->distribution;
    reshard_shards *shards = NULL;
    int32_t rank = reshard_group_rank(rs_distributed_group(tensor));
    reshard_status status = reshard_layout_shards(distribution->layout, rank, &shards);
    for (int64_t i = 0; status == RESHARD_OK && i < shards->count; i++) {
        (void)reshard_tensor_write(distribution->shards[i]);
        for (int64_t k = 0; k < shards->items[i].piece_count; k++)
            fill_piece(distribution->shards[i], &shards->items[i].pieces[k], tensor->strides, fill);
    }
    reshard_shards_destroy(shards);
    return status;
}
