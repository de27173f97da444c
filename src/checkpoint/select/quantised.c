/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantised.c - classifies tensors module by module. A module is quantised if it has both codes and
 * a tensor with the name of a companion. bitsandbytes puts the companions of "q_proj.weight" one
 * level deeper ("q_proj.weight.absmax").
 */
#include "checkpoint/select/quantised.h"

#include "base/context.h"
#include "base/dtype.h"
#include "base/sort.h"
#include "checkpoint/rules/config.h"

#include <string.h>

typedef struct member {
    rs_slice module; /* "..q_proj." */
    rs_slice part;   /* "weight" */
    int64_t tensor;
} member;

/* Dtypes in which codes are stored. BOOL and I64 are for masks and positions. */
static bool is_code(reshard_dtype dtype)
{
    return dtype != RESHARD_BOOL && dtype != RESHARD_I64 && dtype != RESHARD_U64 &&
           !rs_dtype_is_complex(dtype) && !rs_dtype_is_float(dtype);
}

/* Dtypes in which only codes are stored. */
static bool is_narrow_float(reshard_dtype dtype)
{
    return is_code(dtype) && strchr(reshard_dtype_name(dtype), 'f') == reshard_dtype_name(dtype);
}

static bool contains(rs_slice text, const char *word)
{
    size_t length = strlen(word);
    for (size_t i = 0; i + length <= text.count; i++) {
        if (memcmp(text.bytes + i, word, length) == 0)
            return true;
    }
    return false;
}

static bool is_companion(rs_slice part)
{
    static const char *const words[] = {"scale", "zero",  "absmax",   "quant_map", "quant_state",
                                        "SCB",   "g_idx", "codebook", "q_perm"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (contains(part, words[i]))
            return true;
    }
    return false;
}

/* Scales of attention's caches are in the module above the weights. */
static bool is_cache_scale(rs_slice part)
{
    static const char *const names[] = {"k_scale", "v_scale", "q_scale", "kv_scale", "prob_scale"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (rs_slice_equals(part, names[i]))
            return true;
    }
    return false;
}

static int compare_members(const void *a, const void *b)
{
    const member *x = a, *y = b;
    int order = rs_slice_compare(x->module, y->module);
    return order != 0 ? order : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static void split_name(rs_slice name, member *out_member)
{
    size_t length = name.count;
    while (length > 0 && name.bytes[length - 1] != '.')
        length--;
    out_member->module = (rs_slice){name.bytes, length};
    out_member->part = (rs_slice){name.bytes + length, name.count - length};
}

static rs_quantised_kind kind_of(const reshard_checkpoint *checkpoint, const member *of)
{
    if (is_companion(of->part))
        return RS_QUANTISED_COMPANION;
    return is_code(checkpoint->tensors[of->tensor].dtype) ? RS_QUANTISED_CODES : RS_QUANTISED_NOT;
}

/* Classifies the members of one module. */
static void judge_module(const reshard_checkpoint *checkpoint, const member *members, int64_t count,
                         rs_quantised_kind *kinds)
{
    bool has_codes = false, has_companions = false;
    int64_t above = -1;
    rs_slice module = members->module;
    for (int64_t i = 0; i < count; i++) {
        rs_quantised_kind kind = kind_of(checkpoint, &members[i]);
        has_companions = has_companions || kind == RS_QUANTISED_COMPANION;
        has_codes = has_codes || kind == RS_QUANTISED_CODES;
    }
    if (!has_companions)
        return;
    if (module.count != 0)
        above = rs_store_find(checkpoint, (rs_slice){module.bytes, module.count - 1});
    if (above >= 0 && is_code(checkpoint->tensors[above].dtype)) {
        kinds[above] = RS_QUANTISED_CODES;
        has_codes = true;
    }
    for (int64_t i = 0; has_codes && i < count; i++)
        kinds[members[i].tensor] = kind_of(checkpoint, &members[i]);
}

reshard_status rs_quantised_find(rs_arena *arena, const reshard_checkpoint *checkpoint,
                                 bool is_declared, rs_quantised_kind **out_kinds)
{
    int64_t count = checkpoint->tensor_count;
    bool any = is_declared;
    rs_quantised_kind *kinds = rs_arena_allocate_array(arena, (size_t)count, sizeof *kinds);
    member *members = rs_allocate_array(arena->context, (size_t)count, sizeof *members);
    if (kinds == NULL || members == NULL)
        goto out;
    for (int64_t i = 0; i < count; i++) {
        split_name(checkpoint->tensors[i].name, &members[i]);
        members[i].tensor = i;
        kinds[i] = is_declared && is_narrow_float(checkpoint->tensors[i].dtype)
                       ? kind_of(checkpoint, &members[i])
                       : RS_QUANTISED_NOT;
    }
    rs_sort(members, (size_t)count, sizeof *members, compare_members);
    for (int64_t i = 0, next; i < count; i = next) {
        for (next = i; next < count; next++) {
            if (rs_slice_compare(members[next].module, members[i].module) != 0)
                break;
        }
        judge_module(checkpoint, &members[i], next - i, kinds);
    }
    for (int64_t i = 0; !any && i < count; i++)
        any = kinds[i] != RS_QUANTISED_NOT;
    for (int64_t i = 0; any && i < count; i++) {
        if (is_cache_scale(members[i].part))
            kinds[members[i].tensor] = RS_QUANTISED_COMPANION;
    }
    *out_kinds = kinds;
out:
    rs_release(arena->context, members);
    return kinds != NULL && members != NULL ? RESHARD_OK : rs_allocation_status();
}

const char *rs_quantised_method(rs_config *config)
{
    const char *method = rs_config_find_text(config, "quantization_config.quant_method");
    return method != NULL
               ? method
               : rs_config_find_text(config, "text_config.quantization_config.quant_method");
}

bool rs_quantised_belongs_to(rs_slice companion, rs_slice codes)
{
    static const char ending[] = "_scales";
    member a, b;
    if (rs_slice_ends(companion, ending)) {
        size_t count = companion.count - sizeof ending + 2; /* with the underscore */
        return codes.count > count && memcmp(codes.bytes, companion.bytes, count) == 0;
    }
    split_name(companion, &a);
    split_name(codes, &b);
    return rs_slice_compare(a.module, b.module) == 0 ||
           (a.module.count == codes.count + 1 &&
            memcmp(a.module.bytes, codes.bytes, codes.count) == 0);
}
