/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h - properties of element types beyond their names and sizes, which are in
 * <reshard/base.h>. */
#ifndef RS_BASE_DTYPE_H
#define RS_BASE_DTYPE_H

#include <reshard/base.h>

#include <assert.h>
#include <stdbool.h>

/* The dtype's name in safetensors files, such as "BF16". Static. */
const char *rs_dtype_safetensors_name(reshard_dtype dtype);

/* Bytes of one element. Only for dtypes whose elements are whole bytes. */
static inline size_t rs_element_bytes(reshard_dtype dtype)
{
    assert(reshard_dtype_bits(dtype) % 8 == 0);
    return (size_t)reshard_dtype_bits(dtype) / 8;
}

/* f16, bf16, f32 and f64: the dtypes that casts and most operations support. */
static inline bool rs_dtype_is_float(reshard_dtype dtype)
{
    return dtype == RESHARD_F16 || dtype == RESHARD_BF16 || dtype == RESHARD_F32 ||
           dtype == RESHARD_F64;
}

/* c64 and c128: pairs of floats, the real part first. */
static inline bool rs_dtype_is_complex(reshard_dtype dtype)
{
    return dtype == RESHARD_C64 || dtype == RESHARD_C128;
}

/* The dtype of a complex number's parts; every other dtype is its own part. */
static inline reshard_dtype rs_dtype_part(reshard_dtype dtype)
{
    return dtype == RESHARD_C64 ? RESHARD_F32 : dtype == RESHARD_C128 ? RESHARD_F64 : dtype;
}

/* How many parts an element has. */
static inline int64_t rs_dtype_parts(reshard_dtype dtype)
{
    return rs_dtype_is_complex(dtype) ? 2 : 1;
}

#endif
