/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequantise.c - finds the scales of each tensor of codes by name: "weight_scale_inv" or
 * "weight_scale" of "weight", "x_scales" of "x_blocks". Quantised tensors without any of these are
 * refused, so that no weight stays quantised unnoticed.
 */
#include "checkpoint/select/quantised.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/dtype.h"
#include "kernel/values/scaling.h"
#include "text/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_USUAL 128 /* block size of DeepSeek's fp8, and of all models after it */

typedef struct dequantising {
    rs_arena *arena;
    const reshard_checkpoint *source;
    rs_config *config;
    reshard_dtype dtype;
    const void *table; /* for mxfp4; made when first needed */
    /* rows and columns of a block according to config.json; 0: it does not say */
    int64_t blocks[2];
} dequantising;

/* ---- names ----------------------------------------------------------------------------------- */

static bool ends_with(rs_slice name, const char *ending)
{
    size_t length = strlen(ending);
    return name.count > length && memcmp(name.bytes + name.count - length, ending, length) == 0;
}

/* A name with `cut` bytes removed from its end and `ending` added, NUL-terminated. bytes NULL: no
 * memory. */
static rs_slice rename_end(rs_arena *arena, rs_slice name, size_t cut, const char *ending)
{
    size_t kept = name.count - cut, length = strlen(ending);
    char *bytes = rs_arena_allocate(arena, kept + length + 1);
    if (bytes == NULL)
        return (rs_slice){NULL, 0};
    memcpy(bytes, name.bytes, kept);
    memcpy(bytes + kept, ending, length + 1);
    return (rs_slice){bytes, kept + length};
}

/* Finds the tensor of the name that rename_end gives; *out_found is NULL if there is none. */
static reshard_status find_kin(const dequantising *d, rs_slice name, size_t cut, const char *ending,
                               const rs_stored_tensor **out_found)
{
    rs_slice wanted = rename_end(d->arena, name, cut, ending);
    if (wanted.bytes == NULL)
        return rs_allocation_status();
    int64_t index = rs_store_find(d->source, wanted);
    *out_found = index >= 0 ? &d->source->tensors[index] : NULL;
    return RESHARD_OK;
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* Guesses the method, if config.json does not name it, for an error text. */
static const char *guess_method(const dequantising *d, const rs_stored_tensor *codes)
{
    const rs_stored_tensor *kin = NULL;
    const char *found = rs_quantised_method(d->config);
    if (find_kin(d, codes->name, 0, "_scale_2", &kin) == RESHARD_OK && kin != NULL)
        return "nvfp4";
    if (ends_with(codes->name, "_packed") &&
        find_kin(d, codes->name, strlen("packed"), "global_scale", &kin) == RESHARD_OK &&
        kin != NULL)
        return "nvfp4";
    if (found != NULL)
        return found;
    if (ends_with(codes->name, "qweight"))
        return "gptq or awq";
    if (find_kin(d, codes->name, 0, ".absmax", &kin) == RESHARD_OK && kin != NULL)
        return "bitsandbytes";
    if (find_kin(d, codes->name, strlen("weight"), "SCB", &kin) == RESHARD_OK && kin != NULL)
        return "bitsandbytes";
    return "an unknown method";
}

static reshard_status refuse(const dequantising *d, const rs_stored_tensor *codes)
{
    bool is_f8 = codes->dtype == RESHARD_F8_E4M3 || codes->dtype == RESHARD_F8_E5M2;
    if (is_f8)
        return rs_fail(RESHARD_ERR_INVALID,
                       "tensor \"%.*s\" cannot be dequantised: there are no scales, in a tensor of "
                       "that name with _scale_inv or _scale at the end",
                       RS_SHOWN(codes->name));
    return rs_fail(RESHARD_ERR_UNSUPPORTED,
                   "tensor \"%.*s\" (%s) is quantised by %s, which cannot be dequantised; fp8 with "
                   "scales, and mxfp4 as GPT-OSS has it, can",
                   RS_SHOWN(codes->name), reshard_dtype_name(codes->dtype), guess_method(d, codes));
}

static reshard_status refuse_shape(const rs_stored_tensor *codes, const rs_stored_tensor *scales,
                                   const char *why)
{
    char shapes[2][200];
    const rs_stored_tensor *both[2] = {codes, scales};
    for (int i = 0; i < 2; i++) {
        rs_text text;
        rs_text_init(&text, shapes[i], sizeof shapes[i]);
        for (int32_t k = 0; k < both[i]->ndim; k++)
            rs_text_add(&text, "%s%" PRId64, k == 0 ? "" : ", ", both[i]->shape[k]);
    }
    return rs_fail(RESHARD_ERR_INVALID,
                   "tensor \"%.*s\" [%s] cannot be dequantised by scales \"%.*s\" [%s] of %s: %s",
                   RS_SHOWN(codes->name), shapes[0], RS_SHOWN(scales->name), shapes[1],
                   reshard_dtype_name(scales->dtype), why);
}

/* ---- making ---------------------------------------------------------------------------------- */

static reshard_status make(const dequantising *d, const rs_formula *formula, rs_slice name,
                           int32_t ndim, const int64_t *shape, const rs_stored_tensor **out_made)
{
    const rs_stored_tensor *codes = formula->codes;
    rs_stored_tensor *made = rs_arena_allocate(d->arena, sizeof *made);
    rs_stored_piece *piece = rs_arena_allocate(d->arena, sizeof *piece);
    int64_t *kept = rs_arena_copy(d->arena, shape, (size_t)ndim, sizeof *shape);
    rs_formula *own = rs_arena_copy(d->arena, formula, 1, sizeof *formula);
    if (made == NULL || piece == NULL || kept == NULL || own == NULL)
        return rs_allocation_status();
    *made = (rs_stored_tensor){.name = {NULL, 0}};
    reshard_status status = rs_store_describe(made, d->arena, name, d->dtype, ndim, kept);
    if (status != RESHARD_OK)
        return status;
    *piece = (rs_stored_piece){.size = made->carried_shape};
    if (codes->piece_count != 0) {
        piece->file = codes->pieces[0].file;
        piece->at = codes->pieces[0].at;
    }
    made->pieces = piece;
    made->piece_count = made->bytes != 0;
    made->formula = own;
    *out_made = made;
    return RESHARD_OK;
}

/* ---- fp8 ------------------------------------------------------------------------------------- */

static bool fits(int64_t length, int64_t scales, int64_t block)
{
    return block > 0 && length / block + (length % block != 0) == scales;
}

/* Whether there is one scale for the whole tensor, or for each row, channel or expert: then
 * config's blocks are not about it. */
static bool has_no_blocks(const rs_stored_tensor *codes, const rs_stored_tensor *scales)
{
    for (int32_t k = 0; k < scales->ndim; k++) {
        if (scales->shape[k] != 1 && scales->shape[k] != codes->shape[k])
            return false;
    }
    return true;
}

/* How many of `length` elements share one of `scales` scales, if config.json does not say; 0 if
 * that is not clear. Only blocks that divide evenly are: a last one that is not full could be of
 * many sizes, and where the usual size fits too, it must be the same. */
static int64_t guess_block(int64_t length, int64_t scales)
{
    if (scales == 1)
        return rs_max(length, 1);
    if (scales <= 0 || length % scales != 0)
        return 0;
    int64_t even = length / scales;
    return fits(length, scales, BLOCK_USUAL) && even != BLOCK_USUAL ? 0 : even;
}

/* Finds the block of dimension k. */
static reshard_status find_block(const dequantising *d, const rs_stored_tensor *codes,
                                 const rs_stored_tensor *scales, int32_t k, int64_t *out_block)
{
    int64_t length = codes->shape[k], count = scales->shape[k];
    int32_t from_end = codes->ndim - 1 - k; /* 0 for columns, 1 for rows */
    int64_t declared = from_end < 2 ? d->blocks[1 - from_end] : 0;
    char why[300];
    if (has_no_blocks(codes, scales) || declared == 0) {
        *out_block = count == length && count != 0 ? 1 : guess_block(length, count);
        if (*out_block != 0)
            return RESHARD_OK;
        (void)snprintf(why, sizeof why,
                       "how many of the %" PRId64 " elements of dimension %d share one of %" PRId64
                       " scales is not clear; quantization_config.weight_block_size in config.json "
                       "can say it",
                       length, (int)k, count);
        return refuse_shape(codes, scales, why);
    }
    *out_block = declared;
    if (fits(length, count, declared))
        return RESHARD_OK;
    (void)snprintf(why, sizeof why,
                   "by config.json, %" PRId64 " elements of dimension %d share a scale, so there "
                   "are %" PRId64 " scales for its %" PRId64 ", not %" PRId64,
                   declared, (int)k, length / declared + (length % declared != 0), length, count);
    return refuse_shape(codes, scales, why);
}

static reshard_status make_scaled(const dequantising *d, const rs_stored_tensor *codes,
                                  const rs_stored_tensor *scales, const rs_stored_tensor **out_made)
{
    rs_formula formula = {.checkpoint = d->source, .codes = codes, .scales = scales};
    if (codes->opaque || scales->opaque || scales->ndim > codes->ndim)
        return refuse_shape(codes, scales, "they have more dimensions");
    if (scales->dtype != RESHARD_F8_E8M0 &&
        (!rs_dtype_is_float(scales->dtype) || scales->dtype == RESHARD_F64))
        return refuse_shape(codes, scales, "scales are f32, f16, bf16 or f8_e8m0");
    for (int32_t k = 0; k < scales->ndim; k++) {
        reshard_status status = find_block(d, codes, scales, k, &formula.blocks[k]);
        if (status != RESHARD_OK)
            return status;
    }
    return make(d, &formula, codes->name, codes->ndim, codes->shape, out_made);
}

/* ---- mxfp4 ----------------------------------------------------------------------------------- */

static reshard_status make_mxfp4(dequantising *d, const rs_stored_tensor *codes,
                                 const rs_stored_tensor *scales, const rs_stored_tensor **out_made)
{
    rs_formula formula = {
        .checkpoint = d->source, .codes = codes, .scales = scales, .is_mxfp4 = true};
    if (codes->ndim != 4 || scales->ndim != 3 || codes->shape[3] != RS_MXFP4_CODES ||
        memcmp(codes->shape, scales->shape, 3 * sizeof(int64_t)) != 0 ||
        scales->dtype != RESHARD_U8 || codes->opaque || scales->opaque)
        return refuse_shape(
            codes, scales,
            "mxfp4 has blocks [experts, rows, groups, 16] and u8 scales [experts, rows, groups]");
    if (d->table == NULL) {
        void *table = rs_arena_allocate_array(d->arena, RS_MXFP4_TABLE, rs_element_bytes(d->dtype));
        if (table == NULL)
            return rs_allocation_status();
        rs_mxfp4_table(d->dtype, table);
        d->table = table;
    }
    formula.table = d->table;
    rs_slice name = rename_end(d->arena, codes->name, strlen("_blocks"), "");
    if (name.bytes == NULL)
        return rs_allocation_status();
    const int64_t shape[3] = {codes->shape[0], codes->shape[2] * RS_MXFP4_GROUP, codes->shape[1]};
    return make(d, &formula, name, 3, shape, out_made);
}

/* Finds the scales of fp8 codes, of which there may be one kind only. */
static reshard_status find_scales(const dequantising *d, const rs_stored_tensor *codes,
                                  const rs_stored_tensor **out_scales)
{
    static const char *const endings[] = {"_scale_inv", "_scale", "_scale_2"};
    const rs_stored_tensor *scales = NULL;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const rs_stored_tensor *found = NULL;
        reshard_status status = find_kin(d, codes->name, 0, endings[i], &found);
        if (status != RESHARD_OK)
            return status;
        if (found != NULL && scales != NULL)
            return rs_fail(RESHARD_ERR_INVALID,
                           "tensor \"%.*s\" cannot be dequantised: it has two kinds of scales, "
                           "\"%.*s\" and \"%.*s\", and only one can be right; remove the other",
                           RS_SHOWN(codes->name), RS_SHOWN(scales->name), RS_SHOWN(found->name));
        /* The second scale of nvfp4 is not one by itself. */
        scales = found != NULL && i < 2 ? found : scales;
    }
    *out_scales = scales;
    return RESHARD_OK;
}

/* ---- all formats ----------------------------------------------------------------------------- */

static reshard_status dequantise(dequantising *d, const rs_stored_tensor *codes,
                                 const rs_stored_tensor **out_made)
{
    const rs_stored_tensor *scales = NULL;
    reshard_status status = RESHARD_OK;
    if (codes->dtype == RESHARD_U8 && ends_with(codes->name, "_blocks")) {
        status = find_kin(d, codes->name, strlen("blocks"), "scales", &scales);
        if (status != RESHARD_OK || scales != NULL)
            return status != RESHARD_OK ? status : make_mxfp4(d, codes, scales, out_made);
    }
    if (codes->dtype == RESHARD_F8_E4M3 || codes->dtype == RESHARD_F8_E5M2) {
        status = find_scales(d, codes, &scales);
        if (status != RESHARD_OK || scales != NULL)
            return status != RESHARD_OK ? status : make_scaled(d, codes, scales, out_made);
    }
    return refuse(d, codes);
}

static void read_blocks(dequantising *d)
{
    static const char *const keys[][2] = {
        {"quantization_config.weight_block_size.0", "quantization_config.weight_block_size.1"},
        {"text_config.quantization_config.weight_block_size.0",
         "text_config.quantization_config.weight_block_size.1"},
        {"quantization_config.config_groups.group_0.weights.block_structure.0",
         "quantization_config.config_groups.group_0.weights.block_structure.1"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (rs_config_find(d->config, keys[i][0], &d->blocks[0]) &&
            rs_config_find(d->config, keys[i][1], &d->blocks[1]))
            return;
        d->blocks[0] = d->blocks[1] = 0;
    }
}

reshard_status rs_dequantise(rs_arena *arena, const reshard_checkpoint *source, rs_config *config,
                             const rs_quantised_kind *kinds, reshard_dtype dtype,
                             const rs_stored_tensor ***out_made)
{
    dequantising d = {.arena = arena, .source = source, .config = config, .dtype = dtype};
    size_t count = (size_t)source->tensor_count;
    bool any = source->unreadable_count != 0; /* they may be of a type that cannot be decoded */
    const rs_stored_tensor **made = rs_arena_allocate_array(arena, count, sizeof *made);
    if (made == NULL)
        return rs_allocation_status();
    read_blocks(&d);
    for (size_t i = 0; i < count; i++) {
        made[i] = NULL;
        any = any || source->tensors[i].block_type != NULL;
        if (kinds[i] != RS_QUANTISED_CODES)
            continue;
        reshard_status status = dequantise(&d, &source->tensors[i], &made[i]);
        if (status != RESHARD_OK)
            return status;
        any = true;
    }
    if (!any)
        return rs_fail_about(RESHARD_ERR_INVALID, source->path,
                             "no tensor is quantised, so none can be dequantised");
    *out_made = made;
    return RESHARD_OK;
}
