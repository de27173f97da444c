/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_rank_files.c - one safetensors file for each rank, with what the rank has in memory, in
 * local shapes. Our own files say how they were split (rank_layout.h). For files of other programs,
 * a mesh and rules tell which part each rank has (rank_join.h). They are sorted by name, with
 * numbers compared as numbers, and belong to the ranks in increasing order.
 *
 * When written, an entry is a rank's whole local buffer, including padding, and its pieces lie in
 * it strided.
 */
#include "checkpoint/format/plain_formats.h"

#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/format/one_rank.h"
#include "checkpoint/format/rank_join.h"
#include "checkpoint/format/rank_layout.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/target/target.h"
#include "text/text.h"

#include <stdio.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

/* The document in which a file describes its split; bytes NULL: there is none. */
static rs_slice find_document(const reshard_checkpoint *checkpoint, int32_t file)
{
    const rs_metadatum *item =
        rs_header_metadata(rs_safetensors_header(checkpoint, file), RS_LAYOUT_KEY);
    return item != NULL ? item->value : (rs_slice){NULL, 0};
}

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    reshard_status status = rs_safetensors_open(checkpoint, opening, out_is);
    bool is_told = opening->options->from != NULL;
    for (int32_t i = 0; status == RESHARD_OK && !is_told && i < checkpoint->file_count; i++)
        is_told = find_document(checkpoint, i).bytes != NULL;
    *out_is = *out_is && is_told;
    return status;
}

static int compare_files(const void *a, const void *b)
{
    const rs_stored_file *x = a, *y = b;
    int order = rs_compare_naturally(x->name, y->name);
    return order != 0 ? order : strcmp(x->name, y->name);
}

static reshard_status read_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    rs_occurrences list = {0};
    size_t bytes = (size_t)checkpoint->file_count * sizeof(rs_slice);
    rs_slice *documents = rs_allocate(checkpoint->context, bytes);
    if (documents == NULL)
        return rs_allocation_status();
    rs_sort(checkpoint->files, (size_t)checkpoint->file_count, sizeof(rs_stored_file),
            compare_files);
    for (int32_t i = 0; i < checkpoint->file_count; i++)
        documents[i] = find_document(checkpoint, i);
    reshard_status status = rs_safetensors_gather(checkpoint, &list);
    if (status == RESHARD_OK && rs_one_rank_is_wanted(opening))
        status = rs_one_rank_keep(checkpoint, documents[0], &list);
    else if (status == RESHARD_OK)
        status = rs_rank_join(checkpoint, opening, documents, NULL, &list);
    if (status == RESHARD_OK)
        status = rs_safetensors_finish(checkpoint);
    rs_occurrences_release(checkpoint->context, &list);
    rs_release(checkpoint->context, documents);
    return status;
}

/* ---- laying out and writing ------------------------------------------------------------------ */

static reshard_status lay_out(rs_laying *laying)
{
    reshard_status status = rs_rank_mesh_check(laying->cuts->book.mesh);
    if (status == RESHARD_OK)
        status = rs_target_cut(laying, rs_target_place_local);
    return status == RESHARD_OK ? rs_rank_layout_prepare(laying, true) : status;
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
    .read = read_files,
    .is_split = true,
    .lay_out = lay_out,
    .name_file = name_file,
    .place = rs_safetensors_place,
    .write_head = write_head,
};
