/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_torch.c - files of torch.save: one, or a folder of them. A tensor's name is its path
 * through nested dicts and lists. In a folder of several files, names begin with the file's name
 * without its ending.
 */
#include "base/context.h"
#include "checkpoint/format/rank_layout.h"
#include "checkpoint/torch/torch_files.h"
#include "checkpoint/torch/torch_formats.h"
#include "checkpoint/torch/torch_ranks.h"
#include "checkpoint/torch/torch_save.h"

/* ---- reading --------------------------------------------------------------------------------- */

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    reshard_status status = RESHARD_OK;
    bool is = false;
    if (checkpoint->file_count != 0)
        return RESHARD_OK; /* another format has opened files already */
    for (int64_t i = 0; status == RESHARD_OK && !is && i < opening->name_count; i++) {
        if (!opening->is_folder || rs_torch_name_is(opening->names[i]))
            status = rs_torch_probe_file(checkpoint, opening->names[i], &is);
    }
    *out_is = is;
    return status;
}

/* Files with an ending of torch.save that it did not write are left out with a note. */
static reshard_status open_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    int64_t count = 0;
    reshard_status status = RESHARD_OK;
    char **names =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)opening->name_count, sizeof *names);
    if (names == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < opening->name_count; i++) {
        bool is = false;
        if (opening->is_folder && !rs_torch_name_is(opening->names[i]))
            continue;
        status = rs_torch_probe_file(checkpoint, opening->names[i], &is);
        if (is)
            names[count++] = opening->names[i];
        else if (status == RESHARD_OK)
            status = rs_store_note(checkpoint, "%s was not written by torch.save, and is left out",
                                   opening->names[i]);
    }
    return status == RESHARD_OK ? rs_torch_open_named(checkpoint, count, names) : status;
}

/* Refuses a file of ours that says it is one rank's: it is only a part of something. */
static reshard_status check_whole(reshard_checkpoint *checkpoint)
{
    rs_slice *documents = NULL;
    bool is_told = false;
    reshard_status status = rs_torch_ranks_documents(checkpoint, &documents, &is_told);
    for (int32_t i = 0; status == RESHARD_OK && is_told && i < checkpoint->named_count; i++) {
        if (documents[i].bytes != NULL)
            return rs_fail_about(
                RESHARD_ERR_GAP, checkpoint->files[i].name,
                "is the file of one rank (" RS_LAYOUT_KEY
                "); give the folder with the files of all ranks, under their own names");
    }
    int32_t rank = 0, world = 0;
    if (status == RESHARD_OK && checkpoint->named_count == 1 &&
        rs_torch_rank_name(checkpoint->files[0].name, &rank, &world) && world > 1)
        status =
            rs_store_note(checkpoint, "%s is one of %d files by its name; the others are ignored",
                          checkpoint->files[0].name, (int)world);
    return status;
}

/* Names such as pytorch_model-00001-of-00002.bin tell of an index that is not here. */
static reshard_status check_parts(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    rs_file_name name;
    reshard_status status = rs_file_names_check_complete(checkpoint, opening, rs_torch_name_read);
    for (int32_t i = 0;
         status == RESHARD_OK && checkpoint->named_count > 1 && i < checkpoint->named_count; i++) {
        if (rs_torch_name_read(checkpoint->files[i].name, &name) && name.is_numbered)
            return rs_store_note(checkpoint,
                                 "%s and others are parts of one model by their names, but no "
                                 "index says so: names of tensors begin with those of their files",
                                 name.name);
    }
    return status;
}

static reshard_status read_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    rs_torch_whole r = {.checkpoint = checkpoint};
    reshard_status status = open_files(checkpoint, opening);
    if (status == RESHARD_OK)
        status = check_whole(checkpoint);
    if (status == RESHARD_OK)
        status = check_parts(checkpoint, opening);
    for (; status == RESHARD_OK && r.file < checkpoint->named_count; r.file++) {
        rs_slice stem = rs_torch_name_stem(checkpoint->files[r.file].name);
        const rs_torch_root names = {.prefix = checkpoint->named_count > 1 ? stem : (rs_slice){0},
                                     .alone = stem};
        status = rs_torch_walk_file(checkpoint, r.file, &names, rs_torch_take_whole, &r);
    }
    if (status == RESHARD_OK)
        status = rs_torch_check_names(checkpoint, &r.list);
    if (status == RESHARD_OK)
        status = rs_store_join(checkpoint, &r.list);
    if (status == RESHARD_OK)
        status = rs_torch_note_globals(checkpoint);
    rs_occurrences_release(checkpoint->context, &r.list);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static reshard_status lay_out(rs_laying *laying)
{
    const rs_selection *selection = &laying->cuts->selection;
    reshard_status status = rs_target_find_tied(laying);
    laying->target->file_count = 1;
    for (int64_t i = 0; status == RESHARD_OK && i < selection->count; i++) {
        const rs_selected *selected = &selection->items[i];
        status = rs_torch_check_dtype(selected->name, selected->dtype);
        if (status == RESHARD_OK)
            status = laying->target->owners[i] >= 0 ? rs_target_add_tied(laying, selected)
                                                    : rs_target_add_whole(laying, selected, 0);
    }
    return status;
}

const rs_format rs_format_torch = {
    .name = "torch",
    .description = "what torch.save writes: a file of nested dicts and lists, or a folder of them",
    .looks_for = "*.pt, *.pth, *.bin, *.ckpt",
    .takes_any = true,
    .probe = probe,
    .read = read_files,
    .split = &rs_format_torch_ranks,
    .has_crcs = true,
    .holds_value = rs_torch_nest_holds,
    .lay_out = lay_out,
    .file_name = "model.pt",
    .place = rs_torch_save_place,
    .write_head = rs_torch_save_head,
    .finish = rs_torch_save_finish,
    .torch_style = &(const rs_torch_style){.write = rs_torch_save_plain},
};
