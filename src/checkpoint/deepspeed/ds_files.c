/* SPDX-License-Identifier: Apache-2.0 */
/* ds_files.c - reads the names of DeepSpeed's files, and finds the ranks that have none. */
#include "checkpoint/deepspeed/ds_files.h"

#include "base/context.h"
#include "base/sort.h"
#include "text/text.h"

#include <stdlib.h>
#include <string.h>

#define MISSING_SHOWN 8

/* ---- one name -------------------------------------------------------------------------------- */

static bool take_word(const char **text, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(*text, word, length) != 0)
        return false;
    *text += length;
    return true;
}

static bool take_number(const char **text, int32_t *out_number)
{
    int64_t number = 0;
    const char *from = *text;
    while (rs_is_digit(**text) && *text - from < 8)
        number = number * 10 + (*(*text)++ - '0');
    *out_number = (int32_t)number;
    return *text != from && number < RS_DS_RANKS_MAX;
}

static bool is_end(const char *text, const char *end)
{
    return strcmp(text, end) == 0;
}

/* "_mp_rank_01", then one of the two endings. */
static rs_ds_kind take_mp(const char *text, rs_ds_kind model, rs_ds_kind optim, int32_t *out_mp)
{
    if (!take_word(&text, "mp_rank_") || !take_number(&text, out_mp))
        return RS_DS_OTHER;
    return is_end(text, "_model_states.pt")   ? model
           : is_end(text, "_optim_states.pt") ? optim
                                              : RS_DS_OTHER;
}

/* "-model_00-model_states.pt" behind the number of a layer. Axes that the grid of ranks does not
 * have are left out, with their dash. */
static rs_ds_kind take_layer(const char *text, int32_t *out_tp)
{
    *out_tp = 0;
    if (take_word(&text, "-model_") && !take_number(&text, out_tp))
        return is_end(text, "states.pt") ? RS_DS_LAYER : RS_DS_OTHER;
    return is_end(text, "-model_states.pt") ? RS_DS_LAYER : RS_DS_OTHER;
}

rs_ds_file rs_ds_file_parse(const char *name)
{
    rs_ds_file file = {.name = name};
    const char *text = name;
    if (!take_word(&text, "bf16_"))
        (void)take_word(&text, "fp16_");
    if (take_word(&text, "zero_pp_rank_")) {
        if (take_number(&text, &file.dp) && take_word(&text, "_"))
            file.kind = take_mp(text, RS_DS_RANK_MODEL, RS_DS_OPTIM, &file.mp);
    } else if (take_word(&text, "expp_rank_")) {
        if (take_number(&text, &file.number) && take_word(&text, "_"))
            file.kind = take_mp(text, RS_DS_OTHER, RS_DS_EXPERT_OPTIM, &file.mp);
    } else if (take_word(&text, "layer_")) {
        int32_t expert = 0;
        if (take_number(&text, &file.number) && take_word(&text, "_expert_")) {
            if (take_number(&text, &expert) && take_word(&text, "_"))
                file.kind = take_mp(text, RS_DS_EXPERT, RS_DS_OTHER, &file.mp);
            file.dp = expert; /* a layer has one file for each expert */
        } else {
            file.kind = take_layer(text, &file.mp);
        }
    } else if (text == name) {
        file.kind = take_mp(text, RS_DS_MODEL, RS_DS_OTHER, &file.mp);
    }
    return file;
}

/* ---- all names ------------------------------------------------------------------------------- */

static int compare_files(const void *a, const void *b)
{
    const rs_ds_file *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    if (x->mp != y->mp)
        return x->mp < y->mp ? -1 : 1;
    return (x->dp > y->dp) - (x->dp < y->dp);
}

int64_t rs_ds_files_at(const rs_ds_files *files, rs_ds_kind kind, int32_t number, int32_t mp,
                       int32_t dp)
{
    const rs_ds_file key = {.kind = kind, .number = number, .mp = mp, .dp = dp};
    const rs_ds_file *found = NULL;
    if (files->count != 0)
        found = bsearch(&key, files->items, (size_t)files->count, sizeof key, compare_files);
    return found != NULL ? found - files->items : -1;
}

static reshard_status check_double(const rs_ds_files *files)
{
    for (int64_t i = 1; i < files->count; i++) {
        if (compare_files(&files->items[i - 1], &files->items[i]) == 0)
            return rs_fail_about(
                RESHARD_ERR_INVALID, files->items[i].name,
                "belongs to the same rank as %s; are there two checkpoints in one folder?",
                files->items[i - 1].name);
    }
    return RESHARD_OK;
}

/* Lists the data-parallel ranks that an mp rank has no file of this kind for. */
static int32_t list_missing(const rs_ds_files *files, rs_ds_kind kind, int32_t mp, char *out_text,
                            size_t room)
{
    rs_text text;
    int32_t missing = 0;
    rs_text_init(&text, out_text, room);
    for (int32_t dp = 0; dp < files->dp_count; dp++) {
        if (rs_ds_files_at(files, kind, 0, mp, dp) >= 0)
            continue;
        if (missing++ < MISSING_SHOWN)
            rs_text_add(&text, "%s%d", missing == 1 ? "" : ", ", (int)dp);
        else if (missing == MISSING_SHOWN + 1)
            rs_text_add(&text, ", ..");
    }
    return missing;
}

static reshard_status check_ranks(const rs_ds_files *files, const char *path, rs_ds_kind kind,
                                  const char *what)
{
    for (int32_t mp = 0; mp < files->mp_count; mp++) {
        char missing[160];
        int32_t count = list_missing(files, kind, mp, missing, sizeof missing);
        if (count != 0)
            return rs_fail_about(
                RESHARD_ERR_GAP, path,
                "the %s file%s of data-parallel rank%s %s (mp rank %d) %s missing; "
                "there are %d ranks",
                what, count == 1 ? "" : "s", count == 1 ? "" : "s", missing, (int)mp,
                count == 1 ? "is" : "are", (int)files->dp_count);
    }
    return RESHARD_OK;
}

static reshard_status check_models(const rs_ds_files *files, const char *path)
{
    for (int64_t i = 0; i < files->count; i++) {
        if (files->items[i].kind == RS_DS_RANK_MODEL)
            return check_ranks(files, path, RS_DS_RANK_MODEL, "model");
    }
    for (int32_t mp = 0; mp < files->mp_count; mp++) {
        if (rs_ds_files_at(files, RS_DS_MODEL, 0, mp, 0) < 0)
            return rs_fail_about(RESHARD_ERR_GAP, path,
                                 "the file mp_rank_%02d_model_states.pt is missing; it says what "
                                 "the optimizer's files hold",
                                 (int)mp);
    }
    return RESHARD_OK;
}

/* Files of layers tell tensor parallel ranks from stages of the pipeline. */
static reshard_status count_tp(rs_ds_files *files, const char *path)
{
    int32_t tp = 0;
    for (int64_t i = 0; i < files->count; i++) {
        if (files->items[i].kind == RS_DS_LAYER && files->items[i].mp >= tp)
            tp = files->items[i].mp + 1;
    }
    files->tp_count = tp != 0 ? tp : files->mp_count;
    if (files->mp_count % files->tp_count != 0)
        return rs_fail_about(RESHARD_ERR_GAP, path,
                             "the files of layers have %d tensor parallel ranks, but there are %d "
                             "mp ranks, which is not a multiple",
                             (int)tp, (int)files->mp_count);
    for (int64_t i = 0; i < files->count; i++) {
        const rs_ds_file *file = &files->items[i];
        for (int32_t t = 0; file->kind == RS_DS_LAYER && t < tp; t++) {
            if (rs_ds_files_at(files, RS_DS_LAYER, file->number, t, 0) < 0)
                return rs_fail_about(RESHARD_ERR_GAP, path,
                                     "the file of layer %d of tensor parallel rank %d is missing",
                                     (int)file->number, (int)t);
        }
    }
    return RESHARD_OK;
}

reshard_status rs_ds_files_find(rs_arena *arena, const char *path, const rs_opening *opening,
                                rs_ds_files *out_files)
{
    rs_ds_files files = {0};
    files.items = rs_arena_allocate_array(arena, (size_t)opening->name_count, sizeof *files.items);
    if (files.items == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < opening->name_count; i++) {
        rs_ds_file file = rs_ds_file_parse(opening->names[i]);
        if (file.kind == RS_DS_OTHER)
            continue;
        files.items[files.count++] = file;
        if (file.kind == RS_DS_OPTIM && file.dp >= files.dp_count)
            files.dp_count = file.dp + 1;
        if (file.kind == RS_DS_OPTIM && file.mp >= files.mp_count)
            files.mp_count = file.mp + 1;
    }
    rs_sort(files.items, (size_t)files.count, sizeof *files.items, compare_files);
    reshard_status status = check_double(&files);
    if (status == RESHARD_OK && files.dp_count == 0)
        status = rs_fail_about(RESHARD_ERR_GAP, path,
                               "the files *_optim_states.pt are missing; in ZeRO's checkpoints "
                               "they hold the weights");
    if (status == RESHARD_OK)
        status = check_ranks(&files, path, RS_DS_OPTIM, "optimizer");
    if (status == RESHARD_OK)
        status = check_models(&files, path);
    if (status == RESHARD_OK)
        status = count_tp(&files, path);
    if (status == RESHARD_OK)
        *out_files = files;
    return status;
}

reshard_status rs_ds_files_own(reshard_checkpoint *checkpoint, const rs_opening *opening,
                               const char *folder)
{
    rs_arena *arena = &checkpoint->arena;
    size_t count = 0;
    const char **own = rs_arena_allocate_array(arena, (size_t)opening->name_count + 2, sizeof *own);
    if (own == NULL)
        return rs_allocation_status();
    if (folder != NULL)
        own[count++] = folder;
    for (int64_t i = 0; i < opening->name_count; i++) {
        const char *name = opening->names[i];
        rs_ds_kind kind = rs_ds_file_parse(name).kind;
        if (kind != RS_DS_MODEL && kind != RS_DS_RANK_MODEL)
            continue;
        own[count] = rs_arena_copy(arena, name, strlen(name) + 1, 1);
        if (own[count++] == NULL)
            return rs_allocation_status();
    }
    own[count] = NULL;
    checkpoint->own_names = own;
    return RESHARD_OK;
}
