/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.c - the names and texts of versions, statuses, dtypes and reductions.
 */
#include "base/dtype.h"

int32_t reshard_abi_version(void)
{
    return RESHARD_ABI_VERSION;
}

const char *reshard_version(void)
{
#define QUOTE(x) #x
#define QUOTE_VALUE(x) QUOTE(x)
    return QUOTE_VALUE(RESHARD_VERSION_MAJOR) "." QUOTE_VALUE(
        RESHARD_VERSION_MINOR) "." QUOTE_VALUE(RESHARD_VERSION_PATCH);
#undef QUOTE_VALUE
#undef QUOTE
}

const char *reshard_status_name(reshard_status status)
{
    switch (status) {
#define CASE(name, number, text) \
    case number:                 \
        return "RESHARD_" #name;
        RESHARD_STATUS_LIST(CASE)
#undef CASE
    default:
        return "unknown status";
    }
}

const char *reshard_status_text(reshard_status status)
{
    switch (status) {
#define CASE(name, number, text) \
    case number:                 \
        return text;
        RESHARD_STATUS_LIST(CASE)
#undef CASE
    default:
        return "unknown status";
    }
}

static const struct {
    const char *name;
    const char *safetensors_name;
    int32_t bits;
} dtypes[RESHARD_DTYPE_COUNT] = {
#define ROW(name, text, bits) [RESHARD_##name] = {text, #name, bits},
    RESHARD_DTYPE_LIST(ROW)
#undef ROW
};

static int is_dtype(reshard_dtype dtype)
{
    return (int)dtype > 0 && (int)dtype < (int)RESHARD_DTYPE_COUNT;
}

const char *reshard_dtype_name(reshard_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].name : "?";
}

const char *rs_dtype_safetensors_name(reshard_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].safetensors_name : "?";
}

int32_t reshard_dtype_bits(reshard_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].bits : 0;
}

const char *reshard_reduction_name(reshard_reduction reduction)
{
    static const char *const names[RESHARD_REDUCTION_COUNT] = {
#define ROW(name, text) text,
        RESHARD_REDUCTION_LIST(ROW)
#undef ROW
    };
    int known = (int)reduction >= 0 && (int)reduction < (int)RESHARD_REDUCTION_COUNT;
    return known ? names[reduction] : "?";
}
