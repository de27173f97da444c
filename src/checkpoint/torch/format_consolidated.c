/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_consolidated.c - the files of Meta's releases: consolidated.00.pth, consolidated.01.pth,
 * .., one torch.save file for each rank of tensor parallelism, beside a params.json. The number of
 * files is the number of ranks, and the rules "meta" say which dimension is cut. Files of our own
 * have a document that says it, too.
 *
 * A single file without a params.json is left to the format torch: its tensors are whole.
 */
#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/format/file_names.h"
#include "checkpoint/rules/config.h"
#include "checkpoint/torch/torch_files.h"
#include "checkpoint/torch/torch_formats.h"
#include "checkpoint/torch/torch_ranks.h"
#include "checkpoint/torch/torch_save.h"
#include "spec/spec.h"
#include "text/text.h"

#include <stdio.h>
#include <string.h>

#define NUMBER_DIGITS_MAX 6

/* The number in consolidated.NN.pth; -1 for another name. */
static int32_t number_of(const char *name)
{
    static const char front[] = "consolidated.", back[] = ".pth";
    size_t length = strlen(name), most = sizeof front - 1 + sizeof back - 1;
    int32_t number = 0;
    if (length < most + 2 || length > most + NUMBER_DIGITS_MAX ||
        strncmp(name, front, sizeof front - 1) != 0 ||
        strcmp(name + length - (sizeof back - 1), back) != 0)
        return -1;
    for (const char *at = name + sizeof front - 1; *at != '.'; at++) {
        if (!rs_is_digit(*at))
            return -1;
        number = number * 10 + (*at - '0');
    }
    return number;
}

static int32_t count_files(const rs_opening *opening)
{
    int32_t count = 0;
    for (int64_t i = 0; i < opening->name_count; i++)
        count += number_of(opening->names[i]) >= 0;
    return count;
}

/* One of several files was named: its tensors are parts. */
static reshard_status warn_single(reshard_checkpoint *checkpoint, const char *name)
{
    rs_path_kind kind = RS_PATH_NONE;
    reshard_status status = rs_store_kind_of(checkpoint, "consolidated.01.pth", &kind);
    if (status != RESHARD_OK || (number_of(name) == 0 && kind != RS_PATH_FILE))
        return status;
    return rs_store_warn(checkpoint,
                         "%s is the file of one of several ranks, so its tensors are parts of "
                         "others; give the folder to read all",
                         name);
}

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    int32_t count = count_files(opening);
    const reshard_checkpoint_options *options = opening->options;
    if (checkpoint->file_count != 0 || count == 0)
        return RESHARD_OK;
    if (!opening->is_folder)
        return warn_single(checkpoint, opening->names[0]);
    bool is_several = count > 1 && options->from == NULL;
    *out_is = rs_opening_has(opening, "params.json") || options->config != NULL || is_several;
    return RESHARD_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int compare_numbers(const void *a, const void *b)
{
    int32_t x = number_of(*(char *const *)a), y = number_of(*(char *const *)b);
    return (x > y) - (x < y);
}

/* Numbers begin at 0, and none is missing. */
static reshard_status check_numbers(const reshard_checkpoint *checkpoint, int64_t count,
                                    char *const *names)
{
    for (int64_t i = 0; i < count; i++) {
        int32_t number = number_of(names[i]);
        if (number > i)
            return rs_fail_about(RESHARD_ERR_GAP, checkpoint->path,
                                 "consolidated.%02d.pth is missing beside %s", (int)i, names[i]);
        if (number < i)
            return rs_fail_about(RESHARD_ERR_INVALID, checkpoint->path,
                                 "%s and %s have the same number; remove one of them", names[i - 1],
                                 names[i]);
    }
    return RESHARD_OK;
}

static reshard_status open_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    int64_t count = 0;
    reshard_status status = RESHARD_OK;
    char **names =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)opening->name_count, sizeof *names);
    if (names == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < opening->name_count; i++) {
        if (number_of(opening->names[i]) >= 0)
            names[count++] = opening->names[i];
        else if (rs_torch_name_is(opening->names[i]))
            status =
                rs_store_note(checkpoint, "%s is not called consolidated.NN.pth, and is left out",
                              opening->names[i]);
    }
    rs_sort((void *)names, (size_t)count, sizeof *names, compare_numbers);
    if (status == RESHARD_OK)
        status = check_numbers(checkpoint, count, names);
    return status == RESHARD_OK ? rs_torch_open_named(checkpoint, count, names) : status;
}

/* ---- files of other programs ----------------------------------------------------------------- */

/* Llama 1 and 2 cut the columns of the embedding, later releases its rows. Rules learn it by this
 * key. */
#define COLUMNS_KEY "embedding_columns"

typedef struct embedding {
    reshard_checkpoint *checkpoint;
    int64_t columns; /* in the first file; 0: not seen */
} embedding;

static reshard_status look_at(void *user, const rs_torch_leaf *leaf)
{
    embedding *seen = user;
    rs_occurrence found;
    if (leaf->kind != RS_TORCH_TENSOR ||
        rs_slice_compare(leaf->name, rs_slice_of("tok_embeddings.weight")) != 0)
        return RESHARD_OK;
    reshard_status status = rs_torch_occurrence(seen->checkpoint, 0, leaf, &found);
    if (status == RESHARD_OK && found.ndim == 2)
        seen->columns = found.shape[1];
    return status;
}

/* Whether the first file holds all rows of the embedding, but not all columns. needs_sizes: nothing
 * but params.json says how large the model is. */
static reshard_status find_columns(reshard_checkpoint *checkpoint, bool needs_sizes, bool *out_cut)
{
    embedding seen = {.checkpoint = checkpoint};
    rs_config config;
    int64_t dim = 0;
    reshard_status status = rs_torch_walk_file(checkpoint, 0, NULL, look_at, &seen);
    if (status != RESHARD_OK)
        return status;
    status =
        rs_config_init(&config, checkpoint->context, rs_store_config_folder(checkpoint), 0, NULL);
    bool is_known = status == RESHARD_OK && rs_config_find(&config, "hidden_size", &dim);
    *out_cut = is_known && seen.columns != 0 && seen.columns != dim;
    bool is_described = config.dialect != NULL || config.has_file;
    rs_config_release(&config);
    if (status == RESHARD_OK && needs_sizes && !is_described)
        status = rs_fail_about(RESHARD_ERR_INVALID, checkpoint->path,
                               "params.json does not describe the model: it is not valid JSON, or "
                               "lacks dim, n_layers or n_heads");
    return status;
}

/* Adds to what the user set, unless that is among it. */
static reshard_status add_columns(reshard_checkpoint *checkpoint,
                                  reshard_checkpoint_options *options)
{
    size_t count = (size_t)options->set_count;
    const char **sets = rs_arena_allocate_array(&checkpoint->arena, count + 1, sizeof *sets);
    if (sets == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        sets[i] = options->sets[i];
        if (strncmp(sets[i], COLUMNS_KEY "=", sizeof COLUMNS_KEY) == 0)
            return RESHARD_OK;
    }
    sets[count] = COLUMNS_KEY "=1";
    options->sets = sets;
    options->set_count++;
    return RESHARD_OK;
}

/* Joins files that do not say how they are split. */
static reshard_status read_foreign(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                   const rs_slice *documents)
{
    char mesh[24];
    bool is_cut = false;
    reshard_checkpoint_options options = *opening->options;
    rs_opening told = *opening;
    if (!rs_opening_has(opening, "params.json") && options.config == NULL)
        return rs_fail_about(RESHARD_ERR_NOT_FOUND, checkpoint->path,
                             "params.json is missing beside %s; it says how large the model is, "
                             "and so how its files are cut",
                             checkpoint->files[0].name);
    (void)snprintf(mesh, sizeof mesh, "tp=%d", (int)checkpoint->named_count);
    if (options.from == NULL)
        options.from = mesh;
    if (options.rules == NULL)
        options.rules = "meta";
    told.options = &options;
    bool needs_sizes = opening->options->rules == NULL && options.set_count == 0;
    reshard_status status = find_columns(checkpoint, needs_sizes, &is_cut);
    if (status == RESHARD_OK && is_cut)
        status = add_columns(checkpoint, &options);
    return status == RESHARD_OK ? rs_torch_ranks_read_plain(checkpoint, &told, documents) : status;
}

static reshard_status read_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    rs_slice *documents = NULL;
    bool is_told = false;
    reshard_status status = open_files(checkpoint, opening);
    if (status == RESHARD_OK)
        status = rs_torch_ranks_documents(checkpoint, &documents, &is_told);
    if (status != RESHARD_OK)
        return status;
    return is_told ? rs_torch_ranks_read_plain(checkpoint, opening, documents)
                   : read_foreign(checkpoint, opening, documents);
}

/* ---- writing --------------------------------------------------------------------------------- */

static reshard_status lay_out(rs_laying *laying)
{
    const reshard_mesh *mesh = laying->cuts->book.mesh;
    const char *axis = mesh->axis_count == 1 ? mesh->names[0] : "";
    if (strcmp(axis, "tp") != 0 && strcmp(axis, "mp") != 0)
        return rs_fail(RESHARD_ERR_INVALID,
                       "files called consolidated.NN.pth are split over one axis, tp (or mp): give "
                       "a mesh such as tp=8");
    return rs_torch_ranks_lay_out(laying);
}

static void name_file(const rs_target *target, int32_t file, int32_t rank,
                      char out_name[RS_FILE_NAME_BYTES])
{
    (void)target;
    (void)rank;
    (void)snprintf(out_name, RS_FILE_NAME_BYTES, "consolidated.%02d.pth", (int)file);
}

const rs_format rs_format_consolidated = {
    .name = "consolidated",
    .description = "Meta's files: one torch.save file for each rank of tp, with params.json",
    .looks_for = "consolidated.NN.pth",
    .needs_mesh = true,
    .probe = probe,
    .read = read_files,
    .is_split = true,
    .takes_model = true,
    .has_crcs = true,
    .lay_out = lay_out,
    .name_file = name_file,
    .place = rs_torch_save_place,
    .write_head = rs_torch_save_head,
    .finish = rs_torch_save_finish,
    .torch_style = &rs_torch_ranks_style,
};
