/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.c - measures how far two arrays are apart, a chunk at a time: both sides become doubles,
 * numbers that are not finite are counted and taken out, and the rest is summed in lanes. Lanes are
 * folded in one order whatever vectors the processor has, so results do not depend on it.
 */
#include "kernel/values/measure.h"

#include "base/dtype.h"
#include "kernel/copy/kernels.h"
#include "kernel/values/cast.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { CHUNK = 512, LANES = 4 };

/* ---- numbers as doubles ---------------------------------------------------------------------- */

static bool is_float(reshard_dtype dtype)
{
    return rs_cast_supports(dtype, RESHARD_F64);
}

bool rs_measure_supports(reshard_dtype dtype)
{
    switch (dtype) {
    case RESHARD_BOOL:
    case RESHARD_U8:
    case RESHARD_I8:
    case RESHARD_U16:
    case RESHARD_I16:
    case RESHARD_U32:
    case RESHARD_I32:
    case RESHARD_U64:
    case RESHARD_I64:
        return true;
    default:
        return is_float(rs_dtype_part(dtype));
    }
}

#define LOAD(type)                                                    \
    do {                                                              \
        for (int64_t i = 0; i < count; i++) {                         \
            type one;                                                 \
            memcpy(&one, bytes + (size_t)i * sizeof one, sizeof one); \
            out[i] = (double)one;                                     \
        }                                                             \
    } while (0)

static void load(reshard_dtype dtype, const char *bytes, int64_t count, double *out)
{
    int64_t stride = 1;
    rs_cast cast;
    switch (dtype) {
    case RESHARD_I8:
        LOAD(int8_t);
        break;
    case RESHARD_U16:
        LOAD(uint16_t);
        break;
    case RESHARD_I16:
        LOAD(int16_t);
        break;
    case RESHARD_U32:
        LOAD(uint32_t);
        break;
    case RESHARD_I32:
        LOAD(int32_t);
        break;
    case RESHARD_U64:
        LOAD(uint64_t);
        break;
    case RESHARD_I64:
        LOAD(int64_t);
        break;
    case RESHARD_BOOL:
    case RESHARD_U8:
        LOAD(uint8_t);
        break;
    default:
        rs_cast_prepare(&cast, dtype, RESHARD_F64, 1, &count, &stride, &stride);
        rs_cast_run(&cast, bytes, out);
    }
}

/* Differences of 64-bit integers, whose doubles are rounded. */
static void subtract_exactly(bool is_signed, const char *a, const char *b, int64_t count,
                             double *out)
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t x, y;
        memcpy(&x, a + (size_t)i * sizeof x, sizeof x);
        memcpy(&y, b + (size_t)i * sizeof y, sizeof y);
        bool above = is_signed ? (int64_t)x > (int64_t)y : x > y;
        out[i] = (double)(above ? x - y : y - x);
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* The numbers of a chunk, and zeros up to a multiple of the lanes. */
typedef struct chunk {
    int64_t count;
    double a[CHUNK], b[CHUNK];
    bool has_differences; /* they are not those of the doubles */
    double difference[CHUNK];
} chunk;

/* Counts the numbers that are not finite on both sides, and leaves zeros in their place. */
static void take_out(rs_measure *measure, chunk *numbers)
{
    for (int64_t i = 0; i < numbers->count; i++) {
        double a = numbers->a[i], b = numbers->b[i];
        measure->nans[0] += isnan(a) != 0;
        measure->nans[1] += isnan(b) != 0;
        measure->infinite[0] += isinf(a) != 0;
        measure->infinite[1] += isinf(b) != 0;
        if (isfinite(a) && isfinite(b))
            continue;
        measure->finite--;
        measure->unlike += !(a == b || (isnan(a) && isnan(b)));
        numbers->a[i] = numbers->b[i] = 0;
    }
}

static void add_to(rs_wide_sum *sum, double value)
{
    double next = sum->sum + value, kept = next - sum->sum;
    sum->error += (sum->sum - (next - kept)) + (value - kept);
    sum->sum = next;
}

/* Four numbers at a time: a vector of AVX2; elsewhere the compiler makes two or four of it. */
typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef int64_t masks __attribute__((vector_size(LANES * sizeof(int64_t))));

typedef struct chunk_sums {
    lanes largest, difference, difference_square, a_square, b_square, product;
    masks infinite; /* -1 in lanes that met a number that is not finite */
    masks unequal;  /* minus the count of numbers that are not equal */
} chunk_sums;

RS_INLINE void sum_lanes(const chunk *numbers, chunk_sums *out_sums)
{
    const masks no_sign = (masks){0} + INT64_MAX;
    const lanes most = (lanes){0} + DBL_MAX;
    chunk_sums sums = {0};
    for (int64_t i = 0; i < numbers->count; i += LANES) {
        lanes a, b;
        memcpy(&a, numbers->a + i, sizeof a);
        memcpy(&b, numbers->b + i, sizeof b);
        lanes difference = a - b;
        if (numbers->has_differences)
            memcpy(&difference, numbers->difference + i, sizeof difference);
        difference = (lanes)((masks)difference & no_sign);
        masks above = difference > sums.largest;
        sums.largest = (lanes)(((masks)difference & above) | ((masks)sums.largest & ~above));
        sums.difference += difference;
        sums.difference_square += difference * difference;
        sums.a_square += a * a;
        sums.b_square += b * b;
        sums.product += a * b;
        sums.infinite |=
            ~(((lanes)((masks)a & no_sign) <= most) & ((lanes)((masks)b & no_sign) <= most));
        sums.unequal += a != b;
    }
    *out_sums = sums;
}

static void sum_plain(const chunk *numbers, chunk_sums *out_sums)
{
    sum_lanes(numbers, out_sums);
}

#if RS_X86
RS_AVX2 static void sum_avx2(const chunk *numbers, chunk_sums *out_sums)
{
    sum_lanes(numbers, out_sums);
}
#else
#define sum_avx2 sum_plain
#endif

static void sum_chunk(const chunk *numbers, chunk_sums *out_sums)
{
    if (rs_cpu_detect() >= RS_CPU_AVX2)
        sum_avx2(numbers, out_sums);
    else
        sum_plain(numbers, out_sums);
}

static double fold(const lanes *sums)
{
    return ((*sums)[0] + (*sums)[1]) + ((*sums)[2] + (*sums)[3]);
}

static int64_t count_lanes(const masks *mask)
{
    int64_t count = 0;
    for (int lane = 0; lane < LANES; lane++)
        count -= (*mask)[lane];
    return count;
}

static void add_sums(rs_measure *measure, const chunk_sums *sums)
{
    for (int lane = 0; lane < LANES; lane++) {
        double largest = sums->largest[lane];
        measure->largest = largest > measure->largest ? largest : measure->largest;
    }
    add_to(&measure->difference, fold(&sums->difference));
    add_to(&measure->difference_square, fold(&sums->difference_square));
    add_to(&measure->a_square, fold(&sums->a_square));
    add_to(&measure->b_square, fold(&sums->b_square));
    add_to(&measure->product, fold(&sums->product));
}

/* ---- a chunk --------------------------------------------------------------------------------- */

#define COUNT(type)                                  \
    do {                                             \
        for (size_t i = 0; i < (size_t)count; i++) { \
            type x, y;                               \
            memcpy(&x, a + i * sizeof x, sizeof x);  \
            memcpy(&y, b + i * sizeof y, sizeof y);  \
            found += x != y;                         \
        }                                            \
    } while (0)

static int64_t count_other_bits(const char *a, const char *b, size_t element_bytes, int64_t count)
{
    int64_t found = 0;
    if (memcmp(a, b, element_bytes * (size_t)count) == 0)
        return 0;
    switch (element_bytes) {
    case 1:
        COUNT(uint8_t);
        break;
    case 2:
        COUNT(uint16_t);
        break;
    case 4:
        COUNT(uint32_t);
        break;
    default:
        assert(element_bytes == 8);
        COUNT(uint64_t);
    }
    return found;
}

static int64_t count_other_values(const chunk *numbers)
{
    int64_t found = 0;
    for (int64_t i = 0; i < numbers->count; i++)
        found += numbers->a[i] != numbers->b[i] && !(isnan(numbers->a[i]) && isnan(numbers->b[i]));
    return found;
}

/* Numbers that are not finite are rare, so the chunk is summed as if it had none, and once more
 * without them if it has. Returns how many values differ. */
static int64_t add_numbers(rs_measure *measure, chunk *numbers)
{
    chunk_sums sums;
    sum_chunk(numbers, &sums);
    int64_t differing = count_lanes(&sums.unequal);
    if (count_lanes(&sums.infinite) != 0) {
        differing = count_other_values(numbers);
        take_out(measure, numbers);
        sum_chunk(numbers, &sums);
    }
    add_sums(measure, &sums);
    return differing;
}

static void add_chunk(rs_measure *measure, reshard_dtype dtype_a, const char *a,
                      reshard_dtype dtype_b, const char *b, int64_t count)
{
    chunk numbers;
    numbers.count = count;
    load(dtype_a, a, count, numbers.a);
    load(dtype_b, b, count, numbers.b);
    for (int64_t i = count; i % LANES != 0; i++)
        numbers.a[i] = numbers.b[i] = numbers.difference[i] = 0;
    numbers.has_differences =
        dtype_a == dtype_b && (dtype_a == RESHARD_I64 || dtype_a == RESHARD_U64);
    if (numbers.has_differences)
        subtract_exactly(dtype_a == RESHARD_I64, a, b, count, numbers.difference);
    measure->numbers += count;
    measure->finite += count;
    int64_t differing = add_numbers(measure, &numbers);
    measure->differing +=
        dtype_a == dtype_b ? count_other_bits(a, b, rs_element_bytes(dtype_a), count) : differing;
}

void rs_measure_add(rs_measure *measure, reshard_dtype dtype_a, const void *a,
                    reshard_dtype dtype_b, const void *b, int64_t count)
{
    assert(rs_measure_supports(dtype_a) && rs_measure_supports(dtype_b));
    assert(rs_dtype_parts(dtype_a) == rs_dtype_parts(dtype_b));
    const char *bytes_a = a, *bytes_b = b;
    count *= rs_dtype_parts(dtype_a);
    dtype_a = rs_dtype_part(dtype_a);
    dtype_b = rs_dtype_part(dtype_b);
    for (int64_t done = 0, part; done < count; done += part) {
        part = count - done < CHUNK ? count - done : CHUNK;
        add_chunk(measure, dtype_a, bytes_a + (size_t)done * rs_element_bytes(dtype_a), dtype_b,
                  bytes_b + (size_t)done * rs_element_bytes(dtype_b), part);
    }
}

/* ---- results --------------------------------------------------------------------------------- */

static void merge_sum(rs_wide_sum *into, const rs_wide_sum *from)
{
    add_to(into, from->sum);
    into->error += from->error;
}

void rs_measure_merge(rs_measure *into, const rs_measure *from)
{
    into->numbers += from->numbers;
    into->differing += from->differing;
    into->finite += from->finite;
    into->unlike += from->unlike;
    for (int i = 0; i < 2; i++) {
        into->nans[i] += from->nans[i];
        into->infinite[i] += from->infinite[i];
    }
    into->largest = from->largest > into->largest ? from->largest : into->largest;
    merge_sum(&into->difference, &from->difference);
    merge_sum(&into->difference_square, &from->difference_square);
    merge_sum(&into->a_square, &from->a_square);
    merge_sum(&into->b_square, &from->b_square);
    merge_sum(&into->product, &from->product);
}

static double total(const rs_wide_sum *sum)
{
    double whole = sum->sum + sum->error;
    return isfinite(whole) ? whole : NAN;
}

double rs_measure_mean(const rs_measure *measure)
{
    return measure->finite == 0 ? NAN : total(&measure->difference) / (double)measure->finite;
}

double rs_measure_relative_l2(const rs_measure *measure)
{
    double distance = total(&measure->difference_square), length = total(&measure->a_square);
    return length > 0 ? sqrt(distance) / sqrt(length) : NAN;
}

double rs_measure_cosine(const rs_measure *measure)
{
    double a = total(&measure->a_square), b = total(&measure->b_square);
    double cosine = total(&measure->product) / (sqrt(a) * sqrt(b));
    return a > 0 && b > 0 ? fmax(-1, fmin(1, cosine)) : NAN;
}
