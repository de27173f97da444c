/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/values/scaling.h"

#include "kernel/copy/kernels.h"
#include "kernel/values/cast_runs.h"
#include "kernel/values/float.h"

#include <assert.h>
#include <math.h>

#define STAGE_COUNT 512

void rs_scaling_prepare(rs_scaling *scaling, reshard_dtype codes, reshard_dtype target)
{
    rs_cpu cpu = rs_cpu_detect();
    assert(codes == RESHARD_F8_E4M3 || codes == RESHARD_F8_E5M2);
    *scaling = (rs_scaling){.read = rs_cast_find_to_f32(cpu, codes),
                            .write = rs_cast_find_from_f32(cpu, target),
                            .target_bytes = reshard_dtype_bits(target) / 8};
    assert(scaling->write != NULL);
}

/* Multiplies `count` elements of a row, from element `at` on, each by its scale. */
static void multiply(const rs_scale_row *row, int64_t at, int64_t count, float *values)
{
    for (int64_t i = 0, run; i < count; i += run) {
        int64_t place = row->first + at + i;
        float scale = row->scales[place / row->block * row->step];
        run = row->block - place % row->block;
        run = run < count - i ? run : count - i;
        for (int64_t j = i; j < i + run; j++)
            values[j] *= scale;
    }
}

void rs_scaling_run(const rs_scaling *scaling, const rs_scale_row *row, const void *codes,
                    int64_t count, void *target)
{
    _Alignas(64) float between[STAGE_COUNT];
    const unsigned char *from = codes;
    unsigned char *to = target;
    for (int64_t done = 0; done < count; done += STAGE_COUNT) {
        int64_t part = count - done < STAGE_COUNT ? count - done : STAGE_COUNT;
        scaling->read(from + done, (unsigned char *)between, part);
        multiply(row, done, part, between);
        scaling->write((const unsigned char *)between, to + done * scaling->target_bytes, part);
    }
}

float rs_f8_e8m0_to_f32(uint8_t code)
{
    if (code == 255)
        return rs_f32_make(0x7fc00000);
    return code != 0 ? rs_f32_make((uint32_t)code << 23) : 0x1p-127f;
}

void rs_mxfp4_table(reshard_dtype target, void *out_table)
{
    static const float values[16] = {0,    0.5f,  1,  1.5f,  2,  3,  4,  6,
                                     -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    size_t bytes = (size_t)reshard_dtype_bits(target) / 8;
    for (int i = 0; i < RS_MXFP4_TABLE; i++) {
        int scale = i / 16;
        float factor = scale == 255 ? INFINITY : rs_f8_e8m0_to_f32((uint8_t)scale);
        float value = values[i % 16] * factor;
        rs_cast_reference(RESHARD_F32, target, &value,
                          (unsigned char *)out_table + (size_t)i * bytes);
    }
}

#define DEFINE_DECODE(function, type)                                                    \
    static void function(const type *table, const uint8_t *codes, const uint8_t *scales, \
                         int64_t group_count, type *target)                              \
    {                                                                                    \
        for (int64_t i = 0; i < group_count; i++) {                                      \
            const type *values = table + (size_t)scales[i] * 16;                         \
            for (int j = 0; j < RS_MXFP4_CODES; j++) {                                   \
                uint8_t code = codes[i * RS_MXFP4_CODES + j];                            \
                target[i * RS_MXFP4_GROUP + 2 * j] = values[code & 15];                  \
                target[i * RS_MXFP4_GROUP + 2 * j + 1] = values[code >> 4];              \
            }                                                                            \
        }                                                                                \
    }

DEFINE_DECODE(decode_2, uint16_t)
DEFINE_DECODE(decode_4, uint32_t)

void rs_mxfp4_run(const void *table, int32_t target_bytes, const uint8_t *codes,
                  const uint8_t *scales, int64_t group_count, void *target)
{
    assert(target_bytes == 2 || target_bytes == 4);
    if (target_bytes == 2)
        decode_2(table, codes, scales, group_count, target);
    else
        decode_4(table, codes, scales, group_count, target);
}
