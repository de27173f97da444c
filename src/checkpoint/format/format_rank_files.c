/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_rank_files.c - one safetensors file for each rank, with what the rank has in memory, in
 * local shapes. Our own files say how they were split (rank_layout.h). For files of other programs,
 * a mesh and rules tell which part each rank has (rank_join.h); older files of ours give the full
 * shape of tensors that are cut flat (RESHARD_SHAPES). Files of other programs are sorted by name,
 * with numbers compared as numbers, and belong to the ranks in increasing order.
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
#include "text/json.h"
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

/* What RESHARD_SHAPES of one file says, by index into header->by_name. */
typedef struct told_shapes {
    const int64_t **shapes; /* NULL: not given */
    int32_t *ndims;
} told_shapes;

/* Reads a list of numbers of any length. */
static reshard_status read_shape(rs_arena *arena, rs_json *json, const rs_json_token *key,
                                 int64_t index, void *user)
{
    told_shapes *told = user;
    rs_json ahead = *json;
    rs_json_token token;
    int32_t ndim = -1;
    if (told->shapes[index] != NULL)
        return rs_json_fail(json, key, "a tensor that occurs twice");
    reshard_status status =
        rs_json_expect(&ahead, RS_JSON_LIST_BEGIN, "a list of numbers is wanted here", &token);
    do {
        ndim++;
        if (status == RESHARD_OK)
            status = rs_json_next(&ahead, &token);
    } while (status == RESHARD_OK && token.kind == RS_JSON_NUMBER && ndim < RESHARD_NDIM_MAX);
    told->ndims[index] = ndim;
    return status == RESHARD_OK ? rs_safetensors_numbers(arena, json, ndim, &told->shapes[index])
                                : status;
}

static reshard_status gather_file(reshard_checkpoint *checkpoint, int32_t file,
                                  rs_occurrences *list)
{
    const rs_header *header = rs_safetensors_header(checkpoint, file);
    size_t count = (size_t)header->entry_count;
    size_t bytes = count * (sizeof(int64_t *) + sizeof(int32_t));
    char *memory = rs_allocate_zeroed(checkpoint->context, bytes);
    if (memory == NULL)
        return rs_allocation_status();
    told_shapes told = {(void *)memory, (void *)(memory + count * sizeof(int64_t *))};
    reshard_status status =
        rs_safetensors_document(checkpoint, file, RS_SHAPES_KEY, read_shape, &told);
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        rs_occurrence item = rs_safetensors_occurrence(checkpoint, file, header->by_name[i]);
        item.full = told.shapes[i];
        item.full_ndim = told.ndims[i];
        status = rs_occurrences_add(checkpoint->context, list, &item);
    }
    rs_release(checkpoint->context, memory, bytes);
    return status;
}

static reshard_status gather(reshard_checkpoint *checkpoint, rs_occurrences *list)
{
    for (int32_t i = 0; i < checkpoint->file_count; i++) {
        reshard_status status = gather_file(checkpoint, i, list);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
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
    reshard_status status = gather(checkpoint, &list);
    if (status == RESHARD_OK && rs_one_rank_is_wanted(opening))
        status = rs_one_rank_keep(checkpoint, documents[0], &list);
    else if (status == RESHARD_OK)
        status = rs_rank_join(checkpoint, opening, documents, NULL, &list);
    if (status == RESHARD_OK)
        status = rs_safetensors_finish(checkpoint);
    rs_occurrences_release(checkpoint->context, &list);
    rs_release(checkpoint->context, documents, bytes);
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
