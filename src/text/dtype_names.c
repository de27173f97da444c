/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype_names.c - parses the name of an element type, in any of the spellings that people use. Case
 * does not matter, and neither does the prefix of "torch.half".
 *
 * NumPy's codes are accepted only with their byte order ("<f4"): in our own names a plain f4 has
 * four bits, not four bytes.
 */
#include "text/dtype_names.h"

#include "base/error.h"
#include "text/nearest.h"

#include <stdbool.h>
#include <string.h>

/* The rows of a dtype begin with PyTorch's name. Our own names (base.h) need no row. */
static const struct {
    reshard_dtype dtype;
    const char *name;
} others[] = {
    {RESHARD_F32, "float32"},
    {RESHARD_F32, "float"},
    {RESHARD_F32, "single"},
    {RESHARD_F32, "fp32"},
    {RESHARD_F32, "<f4"},
    {RESHARD_F64, "float64"},
    {RESHARD_F64, "double"},
    {RESHARD_F64, "fp64"},
    {RESHARD_F64, "<f8"},
    {RESHARD_F16, "float16"},
    {RESHARD_F16, "half"},
    {RESHARD_F16, "fp16"},
    {RESHARD_F16, "<f2"},
    {RESHARD_BF16, "bfloat16"},
    {RESHARD_F8_E4M3, "float8_e4m3fn"},
    {RESHARD_F8_E4M3, "fp8_e4m3fn"},
    {RESHARD_F8_E4M3, "fp8_e4m3"},
    {RESHARD_F8_E4M3, "f8_e4m3fn"},
    {RESHARD_F8_E5M2, "float8_e5m2"},
    {RESHARD_F8_E5M2, "fp8_e5m2"},
    {RESHARD_F8_E4M3FNUZ, "float8_e4m3fnuz"},
    {RESHARD_F8_E4M3FNUZ, "fp8_e4m3fnuz"},
    {RESHARD_F8_E5M2FNUZ, "float8_e5m2fnuz"},
    {RESHARD_F8_E5M2FNUZ, "fp8_e5m2fnuz"},
    {RESHARD_F8_E8M0, "float8_e8m0fnu"},
    {RESHARD_F8_E8M0, "fp8_e8m0"},
    {RESHARD_I8, "int8"},
    {RESHARD_I8, "<i1"},
    {RESHARD_U8, "uint8"},
    {RESHARD_U8, "<u1"},
    {RESHARD_I16, "int16"},
    {RESHARD_I16, "short"},
    {RESHARD_I16, "<i2"},
    {RESHARD_U16, "uint16"},
    {RESHARD_U16, "<u2"},
    {RESHARD_I32, "int32"},
    {RESHARD_I32, "int"},
    {RESHARD_I32, "<i4"},
    {RESHARD_U32, "uint32"},
    {RESHARD_U32, "<u4"},
    {RESHARD_I64, "int64"},
    {RESHARD_I64, "long"},
    {RESHARD_I64, "<i8"},
    {RESHARD_U64, "uint64"},
    {RESHARD_U64, "<u8"},
    {RESHARD_C64, "complex64"},
    {RESHARD_C64, "cfloat"},
    {RESHARD_C64, "<c8"},
    {RESHARD_C128, "complex128"},
    {RESHARD_C128, "cdouble"},
    {RESHARD_C128, "<c16"},
    {RESHARD_BOOL, "bool"},
    {RESHARD_BOOL, "<b1"},
};
#define OTHER_COUNT (sizeof others / sizeof *others)
#define NAME_COUNT ((size_t)RESHARD_DTYPE_COUNT + OTHER_COUNT)

const char *rs_dtype_torch_name(reshard_dtype dtype)
{
    for (size_t i = 0; i < OTHER_COUNT; i++) {
        if (others[i].dtype == dtype)
            return others[i].name;
    }
    return NULL;
}

static char lower(char letter)
{
    return letter >= 'A' && letter <= 'Z' ? (char)(letter - 'A' + 'a') : letter;
}

/* Not strcasecmp, which depends on the locale: in Turkish, "INT8" is not "int8". */
static bool is_same(const char *a, const char *b)
{
    while (*a != '\0' && lower(*a) == lower(*b)) {
        a++;
        b++;
    }
    return *a == '\0' && *b == '\0';
}

/* "|u1" and "=f4" mean the same as "<u1" and "<f4" on little-endian machines. */
static bool is_name(const char *text, const char *name)
{
    if (name[0] == '<' && text[0] != '\0' && strchr("<|=", text[0]) != NULL)
        return is_same(text + 1, name + 1);
    return is_same(text, name);
}

static reshard_status fail_unknown(const char *text, const char *plain)
{
    const char *known[NAME_COUNT];
    size_t count = 0;
    if (text[0] == '>')
        return rs_fail(RESHARD_ERR_NOT_FOUND,
                       "dtype \"%.64s\" has its highest byte first; only \"<\" is known", text);
    for (size_t i = 0; i < OTHER_COUNT; i++)
        known[count++] = others[i].name;
    for (int i = 1; i < (int)RESHARD_DTYPE_COUNT; i++)
        known[count++] = reshard_dtype_name((reshard_dtype)i);
    const char *nearest = NULL;
    for (size_t i = 0; nearest == NULL && strlen(plain) >= 4 && i < count; i++) {
        if (strncmp(known[i], plain, strlen(plain)) == 0) /* "bfloat" is the beginning of one */
            nearest = known[i];
    }
    if (nearest == NULL)
        nearest = rs_nearest(plain, strlen(plain), known, count);
    if (nearest != NULL)
        return rs_fail(RESHARD_ERR_NOT_FOUND, "dtype \"%.64s\" is not known; did you mean \"%s\"?",
                       text, nearest);
    return rs_fail(RESHARD_ERR_NOT_FOUND,
                   "dtype \"%.64s\" is not known (try f32, bfloat16, fp8_e4m3, i64, ...)", text);
}

reshard_status reshard_dtype_parse(const char *name, reshard_dtype *out_dtype)
{
    const char *plain = strncmp(name, "torch.", 6) == 0 ? name + 6 : name;
    for (int i = 1; i < (int)RESHARD_DTYPE_COUNT; i++) {
        if (is_same(plain, reshard_dtype_name((reshard_dtype)i))) {
            *out_dtype = (reshard_dtype)i;
            return RESHARD_OK;
        }
    }
    for (size_t i = 0; i < OTHER_COUNT; i++) {
        if (is_name(plain, others[i].name)) {
            *out_dtype = others[i].dtype;
            return RESHARD_OK;
        }
    }
    return fail_unknown(name, plain);
}
