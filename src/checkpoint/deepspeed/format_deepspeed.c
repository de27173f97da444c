/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_deepspeed.c - the folder of one step of DeepSpeed with ZeRO: model files, and an
 * optimizer's file for each rank, which holds flat arrays of the weights and moments. Tensors are
 *     model.NAME                     fp32 weights, buffers, frozen parameters
 *     optimizer.state.NAME.exp_avg   states of the optimizer, by their own names
 *     module.NAME                    16-bit weights, where they are whole; kept aside
 *
 * Pickles of ranks are closed as soon as the places of their arrays are known, so memory does not
 * grow with what ranks repeat.
 */
#include "checkpoint/deepspeed/ds_formats.h"
#include "checkpoint/deepspeed/zero.h"

#include "base/context.h"

#include <string.h>

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    bool is = false;
    if (checkpoint->file_count != 0 || !opening->is_folder)
        return RESHARD_OK;
    for (int64_t i = 0; !is && i < opening->name_count; i++) {
        rs_ds_kind kind = rs_ds_file_parse(opening->names[i]).kind;
        is = kind == RS_DS_OPTIM || kind == RS_DS_RANK_MODEL;
    }
    *out_is = is;
    return RESHARD_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* In stage 3 the model files of other ranks than the first hold only parts of frozen parameters:
 * are there any? */
static reshard_status find_frozen(const rs_zero_reading *r, bool *out_any)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    rs_file *file = NULL;
    rs_torch_file *opened = NULL;
    uint64_t bytes = 0;
    size_t pickle_bytes = 0;
    int64_t first = rs_ds_files_at(&r->files, RS_DS_RANK_MODEL, 0, 0, 0);
    *out_any = false;
    if (first < 0)
        return RESHARD_OK;
    char *path = rs_path_join(checkpoint->context, checkpoint->folder, r->files.items[first].name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_open(checkpoint->context, path, &file);
    if (status == RESHARD_OK)
        status = rs_file_size(file, &bytes);
    if (status == RESHARD_OK)
        status = rs_torch_file_open(checkpoint->context, file, 0, bytes, &opened);
    if (status == RESHARD_OK)
        *out_any = rs_pickle_count(rs_pickle_dict(
                       rs_pickle_get(rs_pickle_root(rs_torch_file_pickle(opened, &pickle_bytes)),
                                     "frozen_param_shapes"))) != 0;
    rs_torch_file_destroy(opened);
    rs_file_close(file);
    rs_release(checkpoint->context, path);
    return status;
}

static bool is_needed(const rs_ds_file *file, bool has_frozen)
{
    if (file->kind == RS_DS_EXPERT_OPTIM)
        return false; /* with ZeRO, nothing is in them */
    return file->kind != RS_DS_RANK_MODEL || file->dp == 0 || has_frozen;
}

/* Opens all files that are needed: those of optimizers first, by rank. */
static reshard_status open_files(rs_zero_reading *r, bool has_frozen)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    const rs_ds_files *files = &r->files;
    size_t bytes = (size_t)files->count * sizeof(char *);
    int32_t count = 0;
    char **names = rs_allocate(checkpoint->context, bytes);
    r->opened = rs_arena_allocate_array(&checkpoint->arena, (size_t)files->count, sizeof(int32_t));
    reshard_status status =
        names != NULL && r->opened != NULL ? RESHARD_OK : rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < files->count; i++) {
        r->opened[i] = is_needed(&files->items[i], has_frozen) ? count : -1;
        if (r->opened[i] >= 0)
            names[count++] = (char *)(uintptr_t)files->items[i].name;
    }
    if (status == RESHARD_OK)
        status = rs_store_open_files(checkpoint, count, names);
    rs_release(checkpoint->context, (void *)names);
    return status;
}

static int32_t file_at(const rs_zero_reading *r, rs_ds_kind kind, int32_t mp, int32_t dp)
{
    int64_t found = rs_ds_files_at(&r->files, kind, 0, mp, dp);
    return found >= 0 ? r->opened[found] : -1;
}

static int32_t model_file(const rs_zero_reading *r, int32_t mp)
{
    int32_t file = file_at(r, RS_DS_RANK_MODEL, mp, 0);
    return file >= 0 ? file : file_at(r, RS_DS_MODEL, mp, 0);
}

static reshard_status open_pickle(reshard_checkpoint *checkpoint, int32_t file)
{
    reshard_status status = rs_torch_open_file(checkpoint, file);
    if (status == RESHARD_OK && rs_context_cancelled(checkpoint->context))
        return rs_fail_about(RESHARD_ERR_CANCELLED, checkpoint->path, "cancelled");
    return status == RESHARD_OK ? rs_torch_note_file_globals(checkpoint, file) : status;
}

static void close_pickle(const reshard_checkpoint *checkpoint, int32_t index)
{
    rs_stored_file *file = &checkpoint->files[index];
    file->body_destroy(file->body);
    file->body = NULL;
    file->body_destroy = NULL;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static reshard_status read_rank(rs_zero_reading *r, rs_zero_part *part, int32_t rank)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    int32_t file = file_at(r, RS_DS_OPTIM, part->mp, rank), before = checkpoint->file_count;
    reshard_status status = open_pickle(checkpoint, file);
    if (status == RESHARD_OK)
        status = rs_zero_read_rank(r, part, rank, file);
    /* The first rank's values are kept, and so are archives with compressed members. */
    if (status == RESHARD_OK && rank != 0 && checkpoint->file_count == before)
        close_pickle(checkpoint, file);
    return status;
}

static reshard_status read_part(rs_zero_reading *r, int32_t mp, bool has_frozen)
{
    rs_zero_part *part = &r->parts[mp];
    int32_t model = model_file(r, mp);
    *part = (rs_zero_part){.mp = mp, .rank_count = r->files.dp_count};
    reshard_status status = open_pickle(r->checkpoint, model);
    for (int32_t rank = 1; status == RESHARD_OK && has_frozen && rank < part->rank_count; rank++)
        status = open_pickle(r->checkpoint, file_at(r, RS_DS_RANK_MODEL, mp, rank));
    if (status == RESHARD_OK)
        status = rs_zero_read_shapes(r, part, model);
    for (int32_t rank = 0; status == RESHARD_OK && rank < part->rank_count; rank++)
        status = read_rank(r, part, rank);
    if (status == RESHARD_OK && part->stage != r->parts[0].stage)
        status = rs_fail_about(RESHARD_ERR_CORRUPT, r->checkpoint->path,
                               "mp rank %d has ZeRO stage %d, but mp rank 0 has stage %d", (int)mp,
                               (int)part->stage, (int)r->parts[0].stage);
    if (status == RESHARD_OK && (part->stage == 3) != (file_at(r, RS_DS_RANK_MODEL, mp, 0) >= 0))
        status = rs_fail_about(RESHARD_ERR_CORRUPT, r->checkpoint->files[model].name,
                               "is a model file of %s, but the optimizer's files have stage %d; "
                               "are there two checkpoints in one folder?",
                               part->stage == 3 ? "stage 1 or 2" : "stage 3", (int)part->stage);
    if (status == RESHARD_OK)
        status = rs_zero_add_parameters(r, part);
    if (status == RESHARD_OK)
        status = rs_zero_read_model(r, part, model);
    return status == RESHARD_OK ? rs_zero_add_aliases(r, part, model) : status;
}

/* Reads the files of layers and experts, which hold 16-bit weights. */
static reshard_status read_plain(rs_zero_reading *r)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < r->files.count; i++) {
        const rs_ds_file *named = &r->files.items[i];
        if (named->kind != RS_DS_LAYER && named->kind != RS_DS_EXPERT)
            continue;
        status = open_pickle(r->checkpoint, r->opened[i]);
        if (status == RESHARD_OK)
            status = rs_zero_read_plain(r, named, r->opened[i]);
    }
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static reshard_status note_split(const rs_zero_reading *r)
{
    const rs_zero_part *part = &r->parts[0];
    int32_t tp = r->files.tp_count, pp = r->files.mp_count / tp;
    int32_t aside = 0;
    reshard_status status = rs_store_note(
        r->checkpoint,
        "ZeRO stage %d over %d data-parallel rank%s, %d tensor parallel rank%s and %d stage%s of a "
        "pipeline; %d %s%s of parameters",
        (int)part->stage, (int)part->rank_count, part->rank_count == 1 ? "" : "s", (int)tp,
        tp == 1 ? "" : "s", (int)pp, pp == 1 ? "" : "s", (int)part->group_count,
        part->stage == 3 ? "sub-group" : "group", part->group_count == 1 ? "" : "s");
    for (int64_t i = 0; i < r->checkpoint->tensor_count; i++)
        aside += r->checkpoint->tensors[i].is_aside;
    if (status == RESHARD_OK && aside != 0)
        status =
            rs_store_note(r->checkpoint,
                          "tensors under \"module\": %d. They are the 16-bit weights, and only "
                          "taken if asked for",
                          (int)aside);
    return status;
}

static reshard_status read_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    rs_zero_reading r = {.checkpoint = checkpoint, .opening = opening};
    bool has_frozen = false, has_config = false;
    reshard_status status =
        rs_ds_files_find(&checkpoint->arena, checkpoint->path, opening, &r.files);
    if (status == RESHARD_OK)
        status = rs_store_look_above(checkpoint, "../latest", &has_config);
    if (status == RESHARD_OK)
        status = rs_ds_files_own(checkpoint, opening, NULL);
    if (status == RESHARD_OK)
        r.parts =
            rs_arena_allocate_array(&checkpoint->arena, (size_t)r.files.mp_count, sizeof *r.parts);
    if (status == RESHARD_OK && (r.parts == NULL || !rs_zero_make_steps(&r)))
        status = rs_allocation_status();
    if (status == RESHARD_OK)
        status = find_frozen(&r, &has_frozen);
    if (status == RESHARD_OK)
        status = open_files(&r, has_frozen);
    for (int32_t mp = 0; status == RESHARD_OK && mp < r.files.mp_count; mp++)
        status = read_part(&r, mp, has_frozen);
    if (status == RESHARD_OK)
        status = read_plain(&r);
    if (status == RESHARD_OK)
        status = rs_zero_join(&r);
    if (status == RESHARD_OK)
        status = rs_torch_note_common(checkpoint, &r.common);
    if (status == RESHARD_OK)
        status = note_split(&r);
    rs_release(checkpoint->context, r.locals);
    rs_occurrences_release(checkpoint->context, &r.others);
    rs_zero_rules_release(&r);
    return status;
}

const rs_format rs_format_deepspeed = {
    .name = "deepspeed",
    .description = "DeepSpeed with ZeRO 1 to 3: model files, and an optimizer's file for each rank",
    .looks_for = "zero_pp_rank_*_mp_rank_*_optim_states.pt",
    .probe = probe,
    .read = read_files,
};
