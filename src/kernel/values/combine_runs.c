/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine_runs.c - the loops of combine.h, one for each type and reduction. They are written so
 * that compilers can vectorise them: loads and stores by memcpy, no branches.
 */
#include "kernel/values/cast_runs.h"
#include "kernel/values/combine.h"

#include <string.h>

/* Integer operations are computed in an unsigned type that is at least as wide as int, so that
 * overflow wraps around instead of being undefined. */
#define INTEGER_SUM(type, wide, a, b) (type)((wide)(a) + (wide)(b))
#define INTEGER_PROD(type, wide, a, b) (type)((wide)(a) * (wide)(b))
#define INTEGER_MIN(type, wide, a, b) ((b) < (a) ? (b) : (a))
#define INTEGER_MAX(type, wide, a, b) ((b) > (a) ? (b) : (a))
#define INTEGER_BAND(type, wide, a, b) (type)((wide)(a) & (wide)(b))
#define INTEGER_BOR(type, wide, a, b) (type)((wide)(a) | (wide)(b))
#define INTEGER_BXOR(type, wide, a, b) (type)((wide)(a) ^ (wide)(b))
#define BOOL_AND(type, wide, a, b) (type)((a) != 0 && (b) != 0)
#define BOOL_OR(type, wide, a, b) (type)((a) != 0 || (b) != 0)
#define BOOL_XOR(type, wide, a, b) (type)(((a) != 0) != ((b) != 0))
#define FLOAT_SUM(type, wide, a, b) ((a) + (b))
#define FLOAT_PROD(type, wide, a, b) ((a) * (b))
/* If either one is NaN, the result is NaN. */
#define FLOAT_MIN(type, wide, a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define FLOAT_MAX(type, wide, a, b) ((a) > (b) || (a) != (a) ? (a) : (b))

#define DEFINE_COMBINE(function, type, wide, operation)                                     \
    static void function(unsigned char *target, const unsigned char *source, int64_t count) \
    {                                                                                       \
        for (int64_t i = 0; i < count; i++) {                                               \
            type a, b;                                                                      \
            memcpy(&a, target + i * (int64_t)sizeof a, sizeof a);                           \
            memcpy(&b, source + i * (int64_t)sizeof b, sizeof b);                           \
            a = operation(type, wide, a, b);                                                \
            memcpy(target + i * (int64_t)sizeof a, &a, sizeof a);                           \
        }                                                                                   \
    }

/* The division is done in the type `wide`, because the divisor may not fit a narrow integer. */
#define DEFINE_SCALE(function, type, wide)                                      \
    static void function(unsigned char *target, int64_t count, int32_t divisor) \
    {                                                                           \
        for (int64_t i = 0; i < count; i++) {                                   \
            type a;                                                             \
            memcpy(&a, target + i * (int64_t)sizeof a, sizeof a);               \
            a = (type)((wide)a / (wide)divisor);                                \
            memcpy(target + i * (int64_t)sizeof a, &a, sizeof a);               \
        }                                                                       \
    }

#define DEFINE_ALL(name, kind, type, wide, quotient)     \
    DEFINE_COMBINE(name##_sum, type, wide, kind##_SUM)   \
    DEFINE_COMBINE(name##_prod, type, wide, kind##_PROD) \
    DEFINE_COMBINE(name##_min, type, wide, kind##_MIN)   \
    DEFINE_COMBINE(name##_max, type, wide, kind##_MAX)   \
    DEFINE_SCALE(name##_scale, type, quotient)

#define DEFINE_INTEGER(name, type, wide, quotient)        \
    DEFINE_ALL(name, INTEGER, type, wide, quotient)       \
    DEFINE_COMBINE(name##_band, type, wide, INTEGER_BAND) \
    DEFINE_COMBINE(name##_bor, type, wide, INTEGER_BOR)   \
    DEFINE_COMBINE(name##_bxor, type, wide, INTEGER_BXOR)

DEFINE_INTEGER(i8, int8_t, uint32_t, int32_t)
DEFINE_INTEGER(u8, uint8_t, uint32_t, uint32_t)
DEFINE_INTEGER(i16, int16_t, uint32_t, int32_t)
DEFINE_INTEGER(u16, uint16_t, uint32_t, uint32_t)
DEFINE_INTEGER(i32, int32_t, uint32_t, int32_t)
DEFINE_INTEGER(u32, uint32_t, uint32_t, uint32_t)
DEFINE_INTEGER(i64, int64_t, uint64_t, int64_t)
DEFINE_INTEGER(u64, uint64_t, uint64_t, uint64_t)
DEFINE_COMBINE(bool_and, uint8_t, uint32_t, BOOL_AND)
DEFINE_COMBINE(bool_or, uint8_t, uint32_t, BOOL_OR)
DEFINE_COMBINE(bool_xor, uint8_t, uint32_t, BOOL_XOR)
DEFINE_ALL(f32, FLOAT, float, float, float)
DEFINE_ALL(f64, FLOAT, double, double, double)

/* A complex sum is a sum of twice as many real numbers. */
#define DEFINE_COMPLEX(name, real, part)                                                       \
    static void name##_sum(unsigned char *target, const unsigned char *source, int64_t count)  \
    {                                                                                          \
        part##_sum(target, source, 2 * count);                                                 \
    }                                                                                          \
    static void name##_scale(unsigned char *target, int64_t count, int32_t divisor)            \
    {                                                                                          \
        part##_scale(target, 2 * count, divisor);                                              \
    }                                                                                          \
    static void name##_prod(unsigned char *target, const unsigned char *source, int64_t count) \
    {                                                                                          \
        for (int64_t i = 0; i < count; i++) {                                                  \
            real a[2], b[2];                                                                   \
            memcpy(a, target + i * (int64_t)sizeof a, sizeof a);                               \
            memcpy(b, source + i * (int64_t)sizeof b, sizeof b);                               \
            real product[2] = {a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]};          \
            memcpy(target + i * (int64_t)sizeof a, product, sizeof product);                   \
        }                                                                                      \
    }

DEFINE_COMPLEX(c64, float, f32)
DEFINE_COMPLEX(c128, double, f64)

/* The 16-bit types are computed in f32, STAGE_COUNT elements at a time. */
#define STAGE_COUNT 512

static void combine_staged(reshard_dtype dtype, rs_combine_fn *combine, unsigned char *target,
                           const unsigned char *source, int64_t count)
{
    _Alignas(64) unsigned char a[STAGE_COUNT * sizeof(float)], b[STAGE_COUNT * sizeof(float)];
    rs_cpu cpu = rs_cpu_detect();
    rs_cast_run_fn *read = rs_cast_find_to_f32(cpu, dtype);
    rs_cast_run_fn *write = rs_cast_find_from_f32(cpu, dtype);
    for (int64_t first = 0; first < count; first += STAGE_COUNT) {
        int64_t left = count - first, piece = left < STAGE_COUNT ? left : STAGE_COUNT;
        read(target + 2 * first, a, piece);
        read(source + 2 * first, b, piece);
        combine(a, b, piece);
        write(a, target + 2 * first, piece);
    }
}

static void scale_staged(reshard_dtype dtype, unsigned char *target, int64_t count, int32_t divisor)
{
    _Alignas(64) unsigned char a[STAGE_COUNT * sizeof(float)];
    rs_cpu cpu = rs_cpu_detect();
    rs_cast_run_fn *read = rs_cast_find_to_f32(cpu, dtype);
    rs_cast_run_fn *write = rs_cast_find_from_f32(cpu, dtype);
    for (int64_t first = 0; first < count; first += STAGE_COUNT) {
        int64_t left = count - first, piece = left < STAGE_COUNT ? left : STAGE_COUNT;
        read(target + 2 * first, a, piece);
        f32_scale(a, piece, divisor);
        write(a, target + 2 * first, piece);
    }
}

#define DEFINE_STAGED(name, dtype, operation)                                          \
    static void name##_##operation(unsigned char *target, const unsigned char *source, \
                                   int64_t count)                                      \
    {                                                                                  \
        combine_staged(dtype, f32_##operation, target, source, count);                 \
    }
#define DEFINE_STAGED_ALL(name, dtype)                                              \
    DEFINE_STAGED(name, dtype, sum)                                                 \
    DEFINE_STAGED(name, dtype, prod)                                                \
    DEFINE_STAGED(name, dtype, min)                                                 \
    DEFINE_STAGED(name, dtype, max)                                                 \
    static void name##_scale(unsigned char *target, int64_t count, int32_t divisor) \
    {                                                                               \
        scale_staged(dtype, target, count, divisor);                                \
    }

DEFINE_STAGED_ALL(f16, RESHARD_F16)
DEFINE_STAGED_ALL(bf16, RESHARD_BF16)

typedef struct combine_row {
    rs_combine_fn *combine[RESHARD_REDUCTION_COUNT];
    rs_scale_fn *scale;
} combine_row;

#define ROW(name)                                 \
    {                                             \
        .combine = {[RESHARD_SUM] = name##_sum,   \
                    [RESHARD_AVG] = name##_sum,   \
                    [RESHARD_PROD] = name##_prod, \
                    [RESHARD_MIN] = name##_min,   \
                    [RESHARD_MAX] = name##_max},  \
        .scale = name##_scale                     \
    }

#define INTEGER_ROW(name)                                                        \
    {                                                                            \
        .combine = {[RESHARD_SUM] = name##_sum,   [RESHARD_AVG] = name##_sum,    \
                    [RESHARD_PROD] = name##_prod, [RESHARD_MIN] = name##_min,    \
                    [RESHARD_MAX] = name##_max,   [RESHARD_BAND] = name##_band,  \
                    [RESHARD_BOR] = name##_bor,   [RESHARD_BXOR] = name##_bxor}, \
        .scale = name##_scale                                                    \
    }

/* Complex numbers have no order. */
#define COMPLEX_ROW(name)                          \
    {                                              \
        .combine = {[RESHARD_SUM] = name##_sum,    \
                    [RESHARD_AVG] = name##_sum,    \
                    [RESHARD_PROD] = name##_prod}, \
        .scale = name##_scale                      \
    }

static const combine_row rows[RESHARD_DTYPE_COUNT] = {
    [RESHARD_BOOL] = {.combine = {[RESHARD_SUM] = bool_or,
                                  [RESHARD_PROD] = bool_and,
                                  [RESHARD_MIN] = bool_and,
                                  [RESHARD_MAX] = bool_or,
                                  [RESHARD_BAND] = bool_and,
                                  [RESHARD_BOR] = bool_or,
                                  [RESHARD_BXOR] = bool_xor}},
    [RESHARD_I8] = INTEGER_ROW(i8),
    [RESHARD_U8] = INTEGER_ROW(u8),
    [RESHARD_I16] = INTEGER_ROW(i16),
    [RESHARD_U16] = INTEGER_ROW(u16),
    [RESHARD_I32] = INTEGER_ROW(i32),
    [RESHARD_U32] = INTEGER_ROW(u32),
    [RESHARD_I64] = INTEGER_ROW(i64),
    [RESHARD_U64] = INTEGER_ROW(u64),
    [RESHARD_F16] = ROW(f16),
    [RESHARD_BF16] = ROW(bf16),
    [RESHARD_F32] = ROW(f32),
    [RESHARD_F64] = ROW(f64),
    [RESHARD_C64] = COMPLEX_ROW(c64),
    [RESHARD_C128] = COMPLEX_ROW(c128),
};

rs_combine_fn *rs_combine_find(reshard_reduction reduction, reshard_dtype dtype)
{
    if ((unsigned)dtype >= RESHARD_DTYPE_COUNT || (unsigned)reduction >= RESHARD_REDUCTION_COUNT)
        return NULL;
    return rows[dtype].combine[reduction];
}

rs_scale_fn *rs_scale_find(reshard_dtype dtype)
{
    return (unsigned)dtype < RESHARD_DTYPE_COUNT ? rows[dtype].scale : NULL;
}
