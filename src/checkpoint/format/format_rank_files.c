/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_rank_files.c - plain files of ranks: each holds what a rank has in memory, in local
 * shapes. Our own files say how they were split (rank_layout.h); for those of others a mesh and
 * rules tell which part each rank has (rank_files_read.c).
 *
 * Written, an entry is a rank's whole local buffer, including padding, and its pieces lie in it
 * strided.
 */
#include "checkpoint/format/rank_files.h"

#include "base/context.h"
#include "checkpoint/format/rank_layout.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/target.h"

#include <stdio.h>

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    reshard_status status = rs_safetensors_open(checkpoint, opening, out_is);
    if (opening->options->from == NULL)
        *out_is = *out_is && status == RESHARD_OK && rs_rank_layout_is_told(checkpoint);
    return status;
}

/* ---- laying out and writing ------------------------------------------------------------------ */

static reshard_status add_buffer(const rs_laying *laying, const rs_cut_tensor *cut,
                                 const reshard_shard *shard, int64_t piece_first,
                                 int64_t piece_count)
{
    rs_target *target = laying->target;
    const rs_stored_tensor *tensor = cut->tensor;
    rs_target_entry entry = {.key = tensor->name,
                             .tensor = target->tensor_count,
                             .file = rs_laying_file(laying, shard->rank),
                             .ndim = tensor->opaque ? tensor->ndim : shard->ndim,
                             .piece_first = piece_first,
                             .piece_count = piece_count};
    entry.shape = tensor->opaque ? tensor->shape
                                 : rs_arena_copy(&target->arena, shard->shape, (size_t)shard->ndim,
                                                 sizeof(int64_t));
    if (entry.shape == NULL)
        return rs_allocation_status();
    reshard_status status =
        rs_stored_bytes(tensor->name, tensor->dtype, entry.ndim, entry.shape, &entry.bytes);
    return status == RESHARD_OK ? rs_target_add_entry(target, &entry) : status;
}

static reshard_status place_tensor(const rs_laying *laying, const rs_cut_tensor *cut)
{
    rs_stored_tensor *tensor = cut->tensor;
    rs_candidates_sort(cut->items, cut->count);
    tensor->piece_count = cut->count;
    for (int64_t i = 0; i < cut->count; i++) {
        reshard_status status =
            rs_target_keep_piece(laying->target, &cut->items[i], true, tensor, &tensor->pieces[i]);
        if (status != RESHARD_OK)
            return status;
    }
    /* Shards are sorted by rank, and so are files. */
    for (int64_t i = 0, next = 0; i < cut->shards->count; i++) {
        int64_t first = next;
        while (next < cut->count && cut->items[next].shard == i)
            next++;
        reshard_status status = add_buffer(laying, cut, &cut->shards->items[i],
                                           first < cut->count ? first : 0, next - first);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static reshard_status lay_out(rs_laying *laying)
{
    reshard_status status = rs_rank_files_check_mesh(laying->book->mesh);
    if (status == RESHARD_OK)
        status = rs_target_cut(laying, place_tensor);
    return status == RESHARD_OK ? rs_rank_layout_prepare(laying) : status;
}

static void name_file(const rs_target *target, int32_t file, int32_t rank,
                      char out_name[RS_FILE_NAME_BYTES])
{
    (void)file;
    (void)snprintf(out_name, RS_FILE_NAME_BYTES, "rank-%05d-of-%05d.safetensors", (int)rank,
                   (int)target->file_count);
}

static reshard_status write_head(const rs_target *target, int32_t file, rs_json_writer *writer)
{
    return rs_safetensors_write_head(target, file, rs_rank_layout_write, writer);
}

const rs_format rs_format_rank_files = {
    .name = "rank-files",
    .description = "one safetensors file for each rank, with its own copy of all that it holds",
    .looks_for = "*.safetensors, one for each rank of the mesh",
    .needs_mesh = true,
    .probe = probe,
    .read = rs_rank_files_read,
    .is_split = true,
    .lay_out = lay_out,
    .name_file = name_file,
    .place = rs_safetensors_place,
    .write_head = write_head,
};
