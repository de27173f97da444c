/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target_cut.c - tensors cut over a mesh by rules, as pieces in files.
 *
 * In files of ranks an entry is a rank's whole local buffer, padding included, and its pieces lie
 * in it strided. In DCP's files an entry is one box of the tensor, dense and without padding; a box
 * that several ranks hold is stored by the one of them whose file has the least so far.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "checkpoint/format/target.h"
#include "layout/flat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cutting {
    rs_target *target;
    const reshard_checkpoint *source; /* NULL: live tensors, whose ranks are the files */
    const rs_rulebook *book;
    const rs_selection *selection;
    const int32_t *file_of; /* of each position of the mesh */
    uint64_t *loads;        /* bytes of each file so far */
} cutting;

static int32_t file_of_rank(const cutting *work, int32_t rank)
{
    return work->source == NULL ? rank
                                : work->file_of[reshard_mesh_position_of(work->book->mesh, rank)];
}

/* A box that a rank holds. */
typedef struct candidate {
    int32_t file;
    int64_t shard;
    reshard_box box; /* cut to the tensor's own shape */
    int64_t at;      /* in the shard's buffer, in elements */
    const int64_t *strides;
} candidate;

/* ---- boxes ----------------------------------------------------------------------------------- */

static bool clip_to_shape(const rs_stored_tensor *tensor, reshard_box *box)
{
    for (int32_t d = 0; d < tensor->carried_ndim; d++) {
        box->size[d] = rs_min(box->size[d], tensor->carried_shape[d] - box->offset[d]);
        if (box->size[d] <= 0)
            return false;
    }
    return true;
}

static reshard_status list_candidates(const cutting *work, const rs_stored_tensor *tensor,
                                      const reshard_shards *shards, candidate **out_items,
                                      int64_t *out_count, size_t *out_bytes)
{
    int64_t most = 0, count = 0;
    for (int64_t i = 0; i < shards->count; i++)
        most += shards->items[i].piece_count;
    *out_bytes = (size_t)most * sizeof(candidate);
    candidate *items = rs_allocate_array(work->target->context, (size_t)most, sizeof *items);
    if (items == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < shards->count; i++) {
        const reshard_shard *shard = &shards->items[i];
        for (int64_t j = 0; j < shard->piece_count; j++) {
            const reshard_piece *piece = &shard->pieces[j];
            candidate item = {.file = file_of_rank(work, shard->rank),
                              .shard = i,
                              .box = piece->box,
                              .at = piece->at,
                              .strides = piece->strides};
            if (clip_to_shape(tensor, &item.box))
                items[count++] = item;
        }
    }
    *out_items = items;
    *out_count = count;
    return RESHARD_OK;
}

static int compare_boxes(const reshard_box *a, const reshard_box *b)
{
    for (int32_t d = 0; d < a->ndim; d++) {
        if (a->offset[d] != b->offset[d])
            return a->offset[d] < b->offset[d] ? -1 : 1;
        if (a->size[d] != b->size[d])
            return a->size[d] < b->size[d] ? -1 : 1;
    }
    return 0;
}

static int compare_by_box(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    int order = compare_boxes(&x->box, &y->box);
    return order != 0 ? order : (x->file > y->file) - (x->file < y->file);
}

static int compare_by_file(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : compare_boxes(&x->box, &y->box);
}

static uint64_t box_bytes(const rs_stored_tensor *tensor, const reshard_box *box)
{
    uint64_t bytes = (uint64_t)tensor->element_bytes;
    for (int32_t d = 0; d < box->ndim; d++)
        bytes *= (uint64_t)box->size[d];
    return bytes;
}

/* Sorts by box. A box is on one rank, or whole on several: one that is in part on another, as when
 * copies of a part are cut further at different places, could not be told from the others again.
 * All boxes together cover the tensor, so that bytes tell. */
static reshard_status check_boxes(const rs_stored_tensor *tensor, candidate *items, int64_t count)
{
    uint64_t bytes = 0;
    if (count > 1)
        qsort(items, (size_t)count, sizeof *items, compare_by_box);
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || compare_boxes(&items[i - 1].box, &items[i].box) != 0)
            bytes += box_bytes(tensor, &items[i].box);
    }
    if (bytes == tensor->bytes)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_OVERLAP,
                   "ranks hold boxes that overlap in part: copies of it are cut at different "
                   "places, which files cannot tell");
}

/* Of the candidates for each box, sorted by it, the one whose file has least; returns how many are
 * left. */
static int64_t choose_holders(const cutting *work, const rs_stored_tensor *tensor, candidate *items,
                              int64_t count)
{
    int64_t kept = 0;
    for (int64_t first = 0, next; first < count; first = next) {
        int64_t best = first;
        for (next = first + 1; next < count; next++) {
            if (compare_boxes(&items[first].box, &items[next].box) != 0)
                break;
            if (work->loads[items[next].file] < work->loads[items[best].file])
                best = next;
        }
        work->loads[items[best].file] += box_bytes(tensor, &items[best].box);
        items[kept++] = items[best];
    }
    return kept;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Keeps numbers of the box; strides only where they are not those of a dense one. */
static reshard_status keep_piece(rs_target *target, const candidate *item, bool in_buffer,
                                 int32_t element_bytes, rs_stored_piece *piece)
{
    size_t ndim = (size_t)item->box.ndim, bytes = ndim * sizeof(int64_t);
    bool strided =
        in_buffer && !rs_strides_are_dense(item->box.ndim, item->box.size, item->strides);
    int64_t *numbers =
        rs_arena_allocate_array(&target->arena, (strided ? 3 : 2) * ndim, sizeof(int64_t));
    if (numbers == NULL)
        return rs_allocation_status();
    memcpy(numbers, item->box.offset, bytes);
    memcpy(numbers + ndim, item->box.size, bytes);
    if (strided)
        memcpy(numbers + 2 * ndim, item->strides, bytes);
    *piece = (rs_stored_piece){.file = item->file,
                               .offset = numbers,
                               .size = numbers + ndim,
                               .strides = strided ? numbers + 2 * ndim : NULL};
    if (in_buffer)
        piece->at = (uint64_t)(item->at * element_bytes);
    return RESHARD_OK;
}

/* ---- entries of DCP -------------------------------------------------------------------------- */

/* Whether a tensor has this name. */
static bool is_taken(const cutting *work, rs_slice key)
{
    if (work->source != NULL)
        return rs_selection_has(work->selection, key);
    for (int64_t i = 0; i < work->target->name_count; i++) {
        if (rs_slice_compare(work->target->names[i], key) == 0)
            return true;
    }
    return false;
}

/* name, or name.__dcp_shard_k where a file holds several boxes: the next k that is free. */
static reshard_status name_box(const cutting *work, rs_slice name, bool several, int64_t *next_k,
                               rs_slice *out_key)
{
    *out_key = name;
    if (!several)
        return RESHARD_OK;
    char *key = rs_arena_allocate(&work->target->arena, name.count + 40);
    if (key == NULL)
        return rs_allocation_status();
    do {
        memcpy(key, name.bytes, name.count);
        int length = snprintf(key + name.count, 40, ".__dcp_shard_%lld", (long long)(*next_k)++);
        *out_key = (rs_slice){key, name.count + (size_t)length};
    } while (is_taken(work, *out_key));
    return RESHARD_OK;
}

static reshard_status add_boxes(const cutting *work, rs_stored_tensor *tensor, candidate *items,
                                int64_t count)
{
    rs_target *target = work->target;
    int64_t index = target->tensor_count, next_k = 0;
    count = choose_holders(work, tensor, items, count);
    if (count > 1)
        qsort(items, (size_t)count, sizeof *items, compare_by_file);
    for (int64_t i = 0; i < count; i++) {
        bool same_as_last = i > 0 && items[i - 1].file == items[i].file;
        bool several = same_as_last || (i + 1 < count && items[i + 1].file == items[i].file);
        if (!same_as_last)
            next_k = 0;
        rs_target_entry entry = {.tensor = index,
                                 .file = items[i].file,
                                 .ndim = tensor->carried_ndim,
                                 .piece_first = i,
                                 .piece_count = 1,
                                 .bytes = box_bytes(tensor, &items[i].box)};
        reshard_status status =
            keep_piece(target, &items[i], false, tensor->element_bytes, &tensor->pieces[i]);
        if (status == RESHARD_OK)
            status = name_box(work, tensor->name, several, &next_k, &entry.key);
        entry.shape = tensor->pieces[i].size;
        if (tensor->opaque) {
            entry.ndim = tensor->ndim;
            entry.shape = tensor->shape;
        }
        if (status == RESHARD_OK)
            status = rs_target_add_entry(target, &entry);
        if (status != RESHARD_OK)
            return status;
    }
    tensor->piece_count = count;
    return RESHARD_OK;
}

/* ---- entries of rank files ------------------------------------------------------------------- */

static reshard_status add_buffer(const cutting *work, const rs_stored_tensor *tensor,
                                 const reshard_shard *shard, int64_t piece_first,
                                 int64_t piece_count)
{
    rs_target *target = work->target;
    rs_target_entry entry = {.key = tensor->name,
                             .tensor = target->tensor_count,
                             .file = file_of_rank(work, shard->rank),
                             .ndim = tensor->opaque ? tensor->ndim : shard->ndim,
                             .piece_first = piece_first,
                             .piece_count = piece_count};
    entry.shape = tensor->opaque ? tensor->shape
                                 : rs_arena_copy(&target->arena, shard->shape, (size_t)shard->ndim,
                                                 sizeof(int64_t));
    if (entry.shape == NULL)
        return rs_allocation_status();
    reshard_status status =
        rs_entry_bytes(tensor->name, tensor->dtype, entry.ndim, entry.shape, &entry.bytes);
    return status == RESHARD_OK ? rs_target_add_entry(target, &entry) : status;
}

static reshard_status add_buffers(const cutting *work, rs_stored_tensor *tensor,
                                  const reshard_shards *shards, candidate *items, int64_t count)
{
    if (count > 1)
        qsort(items, (size_t)count, sizeof *items, compare_by_file);
    tensor->piece_count = count;
    for (int64_t i = 0; i < count; i++) {
        reshard_status status =
            keep_piece(work->target, &items[i], true, tensor->element_bytes, &tensor->pieces[i]);
        if (status != RESHARD_OK)
            return status;
    }
    /* Shards come by rank, and so do files. */
    for (int64_t i = 0, next = 0; i < shards->count; i++) {
        int64_t first = next;
        while (next < count && items[next].shard == i)
            next++;
        reshard_status status =
            add_buffer(work, tensor, &shards->items[i], first < count ? first : 0, next - first);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

/* ---- one tensor ------------------------------------------------------------------------------ */

static reshard_status add_pieces(const cutting *work, rs_stored_tensor *tensor,
                                 const reshard_shards *shards)
{
    candidate *items = NULL;
    int64_t count = 0;
    size_t bytes = 0;
    reshard_status status = list_candidates(work, tensor, shards, &items, &count, &bytes);
    if (status != RESHARD_OK)
        return status;
    status = check_boxes(tensor, items, count);
    tensor->pieces = rs_arena_allocate_array(&work->target->arena, (size_t)rs_max(count, 1),
                                             sizeof(rs_stored_piece));
    if (status == RESHARD_OK && tensor->pieces == NULL)
        status = rs_allocation_status();
    if (status == RESHARD_OK && work->target->format == RESHARD_FORMAT_RANK_FILES)
        status = add_buffers(work, tensor, shards, items, count);
    else if (status == RESHARD_OK)
        status = add_boxes(work, tensor, items, count);
    rs_release(work->target->context, items, bytes);
    return status;
}

/* A tensor without elements has no boxes, but a place all the same: in the file of its first
 * rank. */
static reshard_status add_empty(const cutting *work, rs_stored_tensor *tensor,
                                const reshard_shards *shards)
{
    rs_target_entry entry = {.key = tensor->name,
                             .tensor = work->target->tensor_count,
                             .file = file_of_rank(work, shards->items[0].rank),
                             .ndim = tensor->ndim,
                             .shape = tensor->shape};
    return rs_target_add_entry(work->target, &entry);
}

static reshard_status cut_by_layout(const cutting *work, const reshard_layout *layout,
                                    rs_stored_tensor *tensor)
{
    reshard_shards *shards = NULL;
    reshard_status status = reshard_layout_all_shards(layout, &shards);
    if (status == RESHARD_OK && tensor->bytes == 0 &&
        work->target->format == RESHARD_FORMAT_DCP_SAFETENSORS && shards->count > 0)
        status = add_empty(work, tensor, shards);
    else if (status == RESHARD_OK)
        status = add_pieces(work, tensor, shards);
    reshard_shards_destroy(shards);
    return status;
}

static reshard_status cut_tensor(const cutting *work, const rs_rule_result *result,
                                 rs_stored_tensor *tensor)
{
    reshard_layout *layout = NULL;
    reshard_status status = reshard_layout_create(
        work->target->context, result->spec, tensor->carried_ndim,
        tensor->opaque ? tensor->carried_shape : result->padded_shape, &layout);
    if (status == RESHARD_OK)
        status = cut_by_layout(work, layout, tensor);
    reshard_layout_release(layout);
    return rs_fail_within(status, "tensor \"%.*s\"", rs_slice_shown(tensor->name),
                          tensor->name.bytes);
}

static bool has_cut(const reshard_spec *spec, bool flat_only)
{
    for (int32_t i = 0; i < reshard_spec_cut_count(spec); i++) {
        const reshard_cut *cut = reshard_spec_cut(spec, i);
        if (cut->placement.kind == RESHARD_SHARD &&
            (!flat_only || cut->placement.dim == RESHARD_DIM_FLAT) &&
            reshard_mesh_axis_size(reshard_spec_mesh(spec), cut->axis) > 1)
            return true;
    }
    return false;
}

static reshard_status describe(const cutting *work, const rs_selected *selected,
                               const rs_rule_result *result, rs_stored_tensor *tensor)
{
    const rs_stored_tensor *stored = &work->source->tensors[selected->origin];
    reshard_status status = rs_store_describe(tensor, &work->target->arena, selected->name,
                                              selected->dtype, stored->ndim, stored->shape);
    if (status == RESHARD_OK && tensor->opaque && has_cut(result->spec, false))
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "tensor \"%.*s\": line %d of the rules cuts it, but tensors of less than a "
                       "byte an element or more than 8 dimensions are carried whole only",
                       rs_slice_shown(selected->name), selected->name.bytes, (int)result->line);
    return status;
}

static reshard_status add_tensor(const cutting *work, const rs_selected *selected)
{
    const rs_stored_tensor *stored = &work->source->tensors[selected->origin];
    rs_target *target = work->target;
    rs_stored_tensor *tensor = &target->tensors[target->tensor_count];
    int64_t entry_first = target->entry_count;
    rs_rule_result result = {0};
    reshard_status status = rs_rules_apply(work->book->rules, work->book->mesh, &work->book->keys,
                                           selected->matched.bytes, selected->matched.count,
                                           stored->ndim, stored->shape, &result);
    if (status == RESHARD_OK)
        status = describe(work, selected, &result, tensor);
    if (status == RESHARD_OK)
        status = cut_tensor(work, &result, tensor);
    bool is_flat = status == RESHARD_OK && target->format == RESHARD_FORMAT_RANK_FILES &&
                   has_cut(result.spec, true);
    for (int64_t i = entry_first; is_flat && i < target->entry_count; i++)
        target->entries[i].is_flat = true;
    if (status == RESHARD_OK)
        target->origins[target->tensor_count++] = selected->origin;
    rs_rule_result_release(&result);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

reshard_status rs_target_cut(rs_target *target, const reshard_checkpoint *source,
                             const rs_rulebook *book, const rs_selection *selection)
{
    size_t files = (size_t)target->file_count;
    int32_t *file_of = rs_arena_allocate_array(&target->arena, files, sizeof(int32_t));
    uint64_t *loads = rs_arena_allocate_array(&target->arena, files, sizeof(uint64_t));
    if (file_of == NULL || loads == NULL)
        return rs_allocation_status();
    memset(loads, 0, files * sizeof(uint64_t));
    reshard_status status = rs_mesh_order_files(target->context, book->mesh, file_of);
    cutting work = {target, source, book, selection, file_of, loads};
    for (int64_t i = 0; status == RESHARD_OK && i < selection->count; i++)
        status = add_tensor(&work, &selection->items[i]);
    return status;
}

/* ---- live tensors ---------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return rs_slice_compare(*(const rs_slice *)a, *(const rs_slice *)b);
}

static reshard_status check_names(const rs_target *target)
{
    reshard_status status = RESHARD_OK;
    size_t count = (size_t)target->tensor_count;
    rs_slice *names = rs_allocate_array(target->context, count, sizeof *names);
    if (names == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        names[i] = target->tensors[i].name;
    if (count > 1)
        qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 1; status == RESHARD_OK && i < count; i++) {
        if (rs_slice_compare(names[i - 1], names[i]) == 0)
            status = rs_fail(RESHARD_ERR_INVALID, "two tensors are to have the name \"%.*s\"",
                             rs_slice_shown(names[i]), names[i].bytes);
    }
    rs_release(target->context, names, count * sizeof *names);
    return status;
}

reshard_status rs_target_cut_live(rs_target *target, const reshard_live_tensor *live)
{
    size_t files = (size_t)target->file_count;
    uint64_t *loads = rs_arena_allocate_array(&target->arena, files, sizeof(uint64_t));
    if (loads == NULL)
        return rs_allocation_status();
    memset(loads, 0, files * sizeof(uint64_t));
    cutting work = {.target = target, .loads = loads};
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < target->name_count; i++) {
        rs_stored_tensor *tensor = &target->tensors[i];
        const reshard_layout *layout = live[i].layout;
        status = rs_store_describe(tensor, &target->arena, target->names[i], live[i].dtype,
                                   reshard_layout_ndim(layout), reshard_layout_shape(layout));
        if (status == RESHARD_OK)
            status = cut_by_layout(&work, layout, tensor);
        if (status == RESHARD_OK)
            target->origins[target->tensor_count++] = i;
        status = rs_fail_within(status, "tensor \"%.200s\"", live[i].name);
    }
    return status == RESHARD_OK ? check_names(target) : status;
}
