/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_ranks_plain.c - torch.save files with what each rank has in memory, in tensors that do not
 * say which part they are. Our own files have a record that does. For files of other programs a
 * mesh and rules are given, and files belong to the ranks in the order of the numbers in their
 * names.
 */
#include "base/context.h"
#include "checkpoint/format/rank_join.h"
#include "checkpoint/format/rank_layout.h"
#include "checkpoint/torch/torch_files.h"
#include "checkpoint/torch/torch_ranks.h"

typedef struct plain_reading {
    reshard_checkpoint *checkpoint;
    int32_t file;
    rs_torch_common common;
    rs_occurrences list;
} plain_reading;

reshard_status rs_torch_ranks_documents(reshard_checkpoint *checkpoint, rs_slice **out_documents,
                                        bool *out_any)
{
    rs_arena *arena = &checkpoint->arena;
    reshard_status status = RESHARD_OK;
    bool any = false;
    rs_slice *documents =
        rs_arena_allocate_array(arena, (size_t)checkpoint->named_count, sizeof *documents);
    if (documents == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; status == RESHARD_OK && i < checkpoint->named_count; i++) {
        status = rs_torch_file_record(rs_torch_opened(checkpoint, i), arena, RS_LAYOUT_KEY,
                                      &documents[i]);
        any = any || (status == RESHARD_OK && documents[i].bytes != NULL);
    }
    *out_documents = documents;
    *out_any = any;
    return status;
}

static reshard_status take(void *user, const rs_torch_leaf *leaf)
{
    plain_reading *r = user;
    rs_occurrence found;
    if (leaf->kind == RS_TORCH_VALUE)
        return rs_torch_keep_common(r->checkpoint, &r->common, r->file, r->file == 0, leaf);
    if (leaf->kind != RS_TORCH_TENSOR)
        return rs_fail_about(
            RESHARD_ERR_INVALID, r->checkpoint->files[r->file].name,
            "tensor \"%.*s\" is a %s, which records how it is split; leave out the mesh",
            RS_SHOWN(leaf->name), leaf->kind == RS_TORCH_DTENSOR ? "DTensor" : "ShardedTensor");
    reshard_status status = rs_torch_occurrence(r->checkpoint, r->file, leaf, &found);
    if (status == RESHARD_OK && found.file != r->file)
        status = rs_fail_about(RESHARD_ERR_UNSUPPORTED, r->checkpoint->files[r->file].name,
                               "tensor \"%.*s\": its storage is compressed; compressed storages "
                               "can only be read from files that record how they are split",
                               RS_SHOWN(leaf->name));
    return status == RESHARD_OK ? rs_occurrences_add(r->checkpoint->context, &r->list, &found)
                                : status;
}

static reshard_status read_all(plain_reading *r, const rs_opening *opening,
                               const rs_slice *documents)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    const rs_torch_root names = {.alone = rs_slice_of(RS_TORCH_RANKS_ALONE)};
    reshard_status status = RESHARD_OK;
    for (; status == RESHARD_OK && r->file < checkpoint->named_count; r->file++) {
        status = rs_torch_walk_file(checkpoint, r->file, &names, take, r);
        if (status == RESHARD_OK && rs_context_cancelled(checkpoint->context))
            status = rs_fail_about(RESHARD_ERR_CANCELLED, checkpoint->path, "cancelled");
    }
    if (status == RESHARD_OK)
        status = rs_torch_check_names(checkpoint, &r->list);
    if (status == RESHARD_OK)
        status = rs_rank_join(checkpoint, opening, documents, NULL, &r->list);
    if (status == RESHARD_OK)
        status = rs_torch_note_common(checkpoint, &r->common);
    return status == RESHARD_OK ? rs_torch_note_globals(checkpoint) : status;
}

reshard_status rs_torch_ranks_read_plain(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                         const rs_slice *documents)
{
    plain_reading r = {.checkpoint = checkpoint};
    reshard_status status = read_all(&r, opening, documents);
    rs_occurrences_release(checkpoint->context, &r.list);
    return status;
}
