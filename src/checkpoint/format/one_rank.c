/* SPDX-License-Identifier: Apache-2.0 */
/* one_rank.c - joins the arrays of one rank's file, and finds out what they are parts of. */
#include "checkpoint/format/one_rank.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/search.h"
#include "checkpoint/format/rank_layout.h"
#include "spec/spec.h"

#include <string.h>

/* limit for the document, which lists the tensors of all ranks */
#define TENSORS_MAX ((int64_t)1 << 22)

bool rs_one_rank_is_wanted(const rs_opening *opening)
{
    const reshard_checkpoint_options *options = opening->options;
    return options->one_rank != 0 && options->from == NULL && !opening->is_folder;
}

/* Makes the text "tp=2: S(0)" in the arena. */
static reshard_status make_spec(reshard_checkpoint *checkpoint, const rs_rank_layout *layout,
                                rs_slice cuts, const char **out_text)
{
    size_t mesh = layout->mesh_text.count;
    char *text = rs_arena_allocate(&checkpoint->arena, mesh + cuts.count + 3);
    if (text == NULL)
        return rs_allocation_status();
    memcpy(text, layout->mesh_text.bytes, mesh);
    memcpy(text + mesh, ": ", 2);
    memcpy(text + mesh + 2, cuts.bytes, cuts.count);
    text[mesh + 2 + cuts.count] = '\0';
    *out_text = text;
    return RESHARD_OK;
}

static const rs_rank_tensor *find_tensor(const rs_rank_layout *layout, rs_slice name)
{
    const rs_rank_tensor *tensors = layout->tensors;
    int64_t at, count = layout->tensor_count;
    RS_FIND_FIRST(at, count, rs_slice_compare(tensors[at].name, name) >= 0);
    return at < count && rs_slice_compare(tensors[at].name, name) == 0 ? &tensors[at] : NULL;
}

/* Fills in what the document says about each tensor. Tensors of a group share the text of their
 * cuts. */
static reshard_status tell_wholes(reshard_checkpoint *checkpoint, const rs_rank_layout *layout,
                                  rs_stored_whole *wholes)
{
    const char *spec = NULL, *cuts = NULL;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < checkpoint->tensor_count; i++) {
        const rs_rank_tensor *found = find_tensor(layout, checkpoint->tensors[i].name);
        if (found == NULL)
            continue;
        if (found->cuts.bytes != cuts)
            status = make_spec(checkpoint, layout, found->cuts, &spec);
        cuts = found->cuts.bytes;
        wholes[i] = (rs_stored_whole){.ndim = found->ndim, .shape = found->shape, .spec = spec};
    }
    return status;
}

static reshard_status tell_by_document(reshard_checkpoint *checkpoint, rs_slice document,
                                       int64_t array_count, rs_stored_whole *wholes)
{
    rs_rank_layout layout;
    int32_t rank = 0;
    reshard_status status = rs_rank_layout_read_one(
        checkpoint, document, rs_min(array_count * 1024 + 1024, TENSORS_MAX), &layout, &rank);
    if (status == RESHARD_OK)
        status = tell_wholes(checkpoint, &layout, wholes);
    if (status == RESHARD_OK && layout.mesh->size > 1)
        status = rs_store_note(
            checkpoint, "%s is the file of rank %d, one of %d of %.*s; the others are ignored",
            checkpoint->files[0].name, (int)rank, (int)layout.mesh->size,
            RS_SHOWN(layout.mesh_text));
    rs_rank_layout_release(&layout, checkpoint->context);
    return status;
}

/* Fills in the full shapes and offsets that the arrays came with. */
static void tell_by_arrays(reshard_checkpoint *checkpoint, int64_t count,
                           const rs_occurrence *arrays, rs_stored_whole *wholes)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t index = rs_store_find(checkpoint, arrays[i].name);
        if (index >= 0)
            wholes[index] = (rs_stored_whole){
                .ndim = arrays[i].ndim, .shape = arrays[i].full, .offset = arrays[i].offset};
    }
}

reshard_status rs_one_rank_keep(reshard_checkpoint *checkpoint, rs_slice document,
                                rs_occurrences *list)
{
    reshard_context *context = checkpoint->context;
    int64_t count = list->count;
    size_t bytes = (size_t)count * sizeof(rs_occurrence) + 1;
    rs_stored_whole *wholes =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)count, sizeof *wholes);
    rs_occurrence *arrays = rs_allocate(context, bytes);
    if (wholes == NULL || arrays == NULL) {
        rs_release(context, arrays);
        return rs_allocation_status();
    }
    memset(wholes, 0, (size_t)count * sizeof *wholes);
    for (int64_t i = 0; i < count; i++) {
        rs_occurrence *item = &list->items[i];
        arrays[i] = *item;
        item->full = item->offset = NULL; /* join it as if the array were the whole tensor */
    }
    checkpoint->is_one_rank = true;
    reshard_status status = rs_store_join_whole(
        checkpoint, list, RESHARD_HINT_NONE, "; several parts of it in one file cannot be shown");
    if (status == RESHARD_OK && document.bytes == NULL)
        tell_by_arrays(checkpoint, count, arrays, wholes);
    else if (status == RESHARD_OK)
        status = tell_by_document(checkpoint, document, count, wholes);
    if (status == RESHARD_OK)
        checkpoint->wholes = wholes;
    rs_release(context, arrays);
    return status;
}
