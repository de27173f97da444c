/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_torch_checkpointing.c - checkpoints of torch_checkpointing: metadata.pkl, and a torch.save
 * or safetensors file for each item (model, optimizer) and rank. All names begin with the item.
 *
 * A DTensor says itself which part it is; for other arrays the metadata does. Arrays that the
 * metadata does not name are replicas. An item with nothing distributed in it is kept by rank,
 * item.rank.name, unless only one rank has written it. Files that the metadata names may be
 * missing, because a rank writes none for an item that it does not have. If that leaves holes in a
 * tensor, it is an error.
 */
#include "base/context.h"
#include "checkpoint/format/file_names.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/torch/item_metadata.h"
#include "checkpoint/torch/torch_formats.h"
#include "text/text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

typedef struct item_reading {
    reshard_checkpoint *checkpoint;
    rs_item_metadata metadata;
    const rs_item_file **files; /* by file of the checkpoint */
    char **names;
    int64_t missing, others; /* numbers of files that are missing, and that hold no tensors */
    const rs_item_file *first_missing, *first_other;
    /* The current file. */
    rs_torch_rank owner;
    rs_slice prefix; /* that its names begin with */
    bool is_first;   /* it is the first file of its item */
    bool is_spread;  /* some tensor of its item is distributed */
    int64_t order;   /* counts the entries of safetensors files */
    int64_t doubtful_count;
    rs_torch_common common;
    rs_occurrences list;
} item_reading;

/* ---- files ----------------------------------------------------------------------------------- */

static reshard_status make_path(const reshard_checkpoint *checkpoint, const char *name,
                                char **out_path)
{
    *out_path = rs_path_join(checkpoint->context, checkpoint->folder, name);
    return *out_path != NULL ? RESHARD_OK : rs_allocation_status();
}

static reshard_status choose_files(item_reading *r, int64_t *out_count)
{
    rs_arena *arena = &r->checkpoint->arena;
    size_t room = (size_t)r->metadata.file_count;
    reshard_status status = RESHARD_OK;
    int64_t count = 0;
    r->files = rs_arena_allocate_array(arena, room, sizeof *r->files);
    r->names = rs_arena_allocate_array(arena, room, sizeof *r->names);
    if (r->files == NULL || r->names == NULL)
        return rs_allocation_status();
    for (size_t i = 0; status == RESHARD_OK && i < room; i++) {
        const rs_item_file *file = &r->metadata.files[i];
        rs_path_kind kind = RS_PATH_NONE;
        status = rs_store_kind_of(r->checkpoint, file->path, &kind);
        if (status != RESHARD_OK)
            break;
        bool has = kind == RS_PATH_FILE;
        if (!has && r->missing++ == 0)
            r->first_missing = file;
        if (has && file->body == RS_ITEM_OTHER && r->others++ == 0)
            r->first_other = file;
        if (!has || file->body == RS_ITEM_OTHER)
            continue;
        r->names[count] = rs_arena_copy(arena, file->path, strlen(file->path) + 1, 1);
        r->files[count] = file;
        status = r->names[count++] != NULL ? RESHARD_OK : rs_allocation_status();
    }
    *out_count = count;
    return status;
}

static reshard_status open_files(item_reading *r)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    int64_t count = 0;
    reshard_status status = choose_files(r, &count);
    if (status == RESHARD_OK && count == 0)
        status = rs_fail_about(RESHARD_ERR_NOT_FOUND, checkpoint->path,
                               "none of the files that " RS_ITEM_METADATA_NAME " names exists");
    if (status == RESHARD_OK)
        status = rs_store_open_files(checkpoint, count, r->names);
    for (int32_t i = 0; status == RESHARD_OK && i < checkpoint->named_count; i++) {
        status = r->files[i]->body == RS_ITEM_SAFETENSORS ? rs_safetensors_open_file(checkpoint, i)
                                                          : rs_torch_open_file(checkpoint, i);
        if (status == RESHARD_OK && rs_context_cancelled(checkpoint->context))
            status = rs_fail_about(RESHARD_ERR_CANCELLED, checkpoint->path, "cancelled");
    }
    return status;
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Finds the files of the same item, which follow each other: the first, and the end. */
static void find_item(const item_reading *r, int32_t file, int32_t *out_first, int32_t *out_end)
{
    int32_t first = file, end = file + 1;
    while (first > 0 && rs_slice_compare(r->files[first - 1]->item, r->files[file]->item) == 0)
        first--;
    while (end < r->checkpoint->named_count &&
           rs_slice_compare(r->files[end]->item, r->files[file]->item) == 0)
        end++;
    *out_first = first;
    *out_end = end;
}

static bool is_spread(const item_reading *r, int32_t first, int32_t end)
{
    rs_slice item = r->files[first]->item;
    bool any = false;
    for (int32_t i = first; !any && i < end; i++) {
        size_t bytes = 0;
        any =
            r->files[i]->body == RS_ITEM_TORCH &&
            rs_torch_names_placed(rs_torch_file_pickle(rs_torch_opened(r->checkpoint, i), &bytes));
    }
    for (int64_t i = 0; !any && i < r->metadata.tensor_count; i++) {
        rs_slice name = r->metadata.tensors[i].name;
        any = name.count > item.count && memcmp(name.bytes, item.bytes, item.count) == 0 &&
              name.bytes[item.count] == '.';
    }
    return any;
}

/* Sets what all names and values of a file have in common. */
static reshard_status begin_file(item_reading *r, int32_t file)
{
    const rs_item_file *from = r->files[file];
    int32_t first = 0, end = 0;
    find_item(r, file, &first, &end);
    r->owner = (rs_torch_rank){.file = file, .rank = from->rank};
    r->prefix = from->item;
    r->is_spread = first == file ? is_spread(r, first, end) : r->is_spread;
    r->is_first = first == file;
    if (r->is_spread || end - first == 1)
        return RESHARD_OK;
    size_t room = from->item.count + 16;
    char *prefix = rs_arena_allocate(&r->checkpoint->arena, room);
    if (prefix == NULL)
        return rs_allocation_status();
    int length =
        snprintf(prefix, room, "%.*s.%d", (int)from->item.count, from->item.bytes, (int)from->rank);
    r->prefix = (rs_slice){prefix, (size_t)length};
    return RESHARD_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Adds an array that does not say which part of a tensor it is. The metadata may. */
static reshard_status add_array(item_reading *r, rs_occurrence *found)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    rs_item_tensor *tensor = rs_item_metadata_find(&r->metadata, found->name);
    rs_item_share share = {.ndim = 0};
    bool is_there = false;
    reshard_status status = RESHARD_OK;
    if (tensor != NULL)
        status = rs_item_tensor_share(&checkpoint->arena, tensor, &r->owner, &share, &is_there);
    if (status == RESHARD_OK && tensor != NULL && !is_there)
        status = rs_fail(RESHARD_ERR_CORRUPT, "the metadata does not name a part of rank %d",
                         (int)r->owner.rank);
    if (status == RESHARD_OK && is_there && share.dtype != found->dtype)
        status = rs_fail(RESHARD_ERR_CORRUPT, "the file holds %s, but the metadata says %s",
                         reshard_dtype_name(found->dtype), reshard_dtype_name(share.dtype));
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s: tensor \"%.*s\"", checkpoint->files[found->file].name,
                              RS_SHOWN(found->name));
    if (is_there) {
        status = rs_torch_cuts_take(checkpoint, &r->owner.mesh, &share.cuts, share.ndim, share.full,
                                    found);
        r->doubtful_count += share.cuts_again && !tensor->is_found;
        tensor->is_found = true;
    }
    return status == RESHARD_OK ? rs_occurrences_add(checkpoint->context, &r->list, found) : status;
}

static reshard_status take(void *user, const rs_torch_leaf *leaf)
{
    item_reading *r = user;
    reshard_checkpoint *checkpoint = r->checkpoint;
    rs_occurrence found;
    if (leaf->kind == RS_TORCH_VALUE && r->is_spread)
        return rs_torch_keep_common(checkpoint, &r->common, r->owner.file, r->is_first, leaf);
    if (leaf->kind == RS_TORCH_VALUE)
        return rs_torch_keep_value(checkpoint, r->owner.file, leaf);
    if (leaf->kind != RS_TORCH_TENSOR) {
        rs_item_tensor *tensor = rs_item_metadata_find(&r->metadata, leaf->name);
        if (tensor != NULL)
            tensor->is_found = true;
        return rs_torch_placed_add(checkpoint, &r->owner, leaf, &r->list);
    }
    reshard_status status = rs_torch_occurrence(checkpoint, r->owner.file, leaf, &found);
    return status == RESHARD_OK ? add_array(r, &found) : status;
}

/* Names an entry item.name, with two steps, because names in safetensors do not nest. */
static reshard_status name_entry(item_reading *r, rs_slice entry, rs_occurrence *found)
{
    rs_arena *arena = &r->checkpoint->arena;
    size_t count = r->prefix.count + 1 + entry.count;
    char *name = rs_arena_allocate(arena, count + 1);
    rs_value_step *steps = rs_arena_allocate_array(arena, 2, sizeof *steps);
    if (name == NULL || steps == NULL)
        return rs_allocation_status();
    memcpy(name, r->prefix.bytes, r->prefix.count);
    name[r->prefix.count] = '.';
    memcpy(name + r->prefix.count + 1, entry.bytes, entry.count);
    name[count] = '\0';
    steps[0] = (rs_value_step){.key = {name, r->prefix.count}};
    steps[1] =
        (rs_value_step){.parent = &steps[0], .key = {name + r->prefix.count + 1, entry.count}};
    found->name = (rs_slice){name, count};
    found->place = (rs_value_place){&steps[1], r->order++};
    return RESHARD_OK;
}

static reshard_status take_entries(item_reading *r)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    const rs_header *header = rs_safetensors_header(checkpoint, r->owner.file);
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < header->entry_count; i++) {
        const rs_header_entry *entry = header->by_name[i];
        rs_occurrence found = rs_safetensors_occurrence(checkpoint, r->owner.file, entry);
        status = name_entry(r, entry->name, &found);
        if (status == RESHARD_OK)
            status = add_array(r, &found);
    }
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static reshard_status check_found(const item_reading *r)
{
    for (int64_t i = 0; i < r->metadata.tensor_count; i++) {
        rs_slice name = r->metadata.tensors[i].name;
        if (r->metadata.tensors[i].is_found)
            continue;
        /* It may be there in a way that cannot be read, and that is the cause to tell. */
        for (int64_t k = 0; k < r->checkpoint->unreadable_count; k++) {
            if (rs_slice_compare(r->checkpoint->unreadable[k].name, name) == 0)
                return rs_fail(RESHARD_ERR_UNSUPPORTED, "%s", r->checkpoint->unreadable[k].reason);
        }
        return rs_fail(RESHARD_ERR_GAP,
                       "tensor \"%.*s\": the metadata says that it is there, but no file holds "
                       "it",
                       RS_SHOWN(name));
    }
    return RESHARD_OK;
}

/* Adds a note about some files that the metadata names: ".. (a.pt and others)". */
static reshard_status note_files(const item_reading *r, int64_t count, const rs_item_file *first,
                                 const char *one, const char *several)
{
    if (count == 0)
        return RESHARD_OK;
    return rs_store_note(r->checkpoint, "%lld %s (%s%s)", (long long)count,
                         count == 1 ? one : several, first->path, count == 1 ? "" : " and others");
}

static reshard_status add_notes(const item_reading *r, reshard_status status)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    if (status == RESHARD_ERR_GAP && r->missing != 0)
        return rs_fail_within(status, "%s%s, which the metadata names, %s missing",
                              r->first_missing->path, r->missing == 1 ? "" : " and others",
                              r->missing == 1 ? "is" : "are");
    if (status == RESHARD_OK)
        status = note_files(
            r, r->missing, r->first_missing,
            "file that the metadata names is missing, but the others hold all of every tensor",
            "files that the metadata names are missing, but the others hold all of every tensor");
    if (status == RESHARD_OK)
        status = note_files(r, r->others, r->first_other,
                            "file of JSON or raw bytes, which holds no tensors, is left out",
                            "files of JSON or raw bytes, which hold no tensors, are left out");
    if (status == RESHARD_OK && r->doubtful_count != 0)
        status =
            rs_store_note(checkpoint,
                          "%lld tensor%s cut by two axes along one dimension; the metadata does "
                          "not give their order, so they are taken from left to right",
                          (long long)r->doubtful_count, r->doubtful_count == 1 ? " is" : "s are");
    if (status == RESHARD_OK)
        status = rs_torch_note_common(checkpoint, &r->common);
    return status == RESHARD_OK ? rs_torch_note_globals(checkpoint) : status;
}

static reshard_status read_all(item_reading *r)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    char *path = NULL;
    reshard_status status = make_path(checkpoint, RS_ITEM_METADATA_NAME, &path);
    if (status != RESHARD_OK)
        return status;
    status = rs_item_metadata_read(&checkpoint->arena, path, &r->metadata);
    rs_release(checkpoint->context, path);
    if (status == RESHARD_OK)
        status = open_files(r);
    for (int32_t i = 0; status == RESHARD_OK && i < checkpoint->named_count; i++) {
        status = begin_file(r, i);
        if (status == RESHARD_OK)
            status = r->files[i]->body == RS_ITEM_SAFETENSORS
                         ? take_entries(r)
                         : rs_torch_walk_file(checkpoint, i, &(rs_torch_root){.prefix = r->prefix},
                                              take, r);
    }
    if (status == RESHARD_OK)
        status = check_found(r);
    if (status == RESHARD_OK)
        status = rs_torch_check_names(checkpoint, &r->list);
    if (status == RESHARD_OK)
        status = rs_store_join(checkpoint, &r->list);
    return add_notes(r, status);
}

static reshard_status read_folder(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    item_reading r = {
        .checkpoint = checkpoint, .metadata.context = checkpoint->context, .list.has_copies = true};
    (void)opening;
    reshard_status status = read_all(&r);
    rs_occurrences_release(checkpoint->context, &r.list);
    rs_item_metadata_release(&r.metadata);
    return status;
}

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    char *path = NULL;
    if (!opening->is_folder || !rs_opening_has(opening, RS_ITEM_METADATA_NAME))
        return RESHARD_OK;
    reshard_status status = make_path(checkpoint, RS_ITEM_METADATA_NAME, &path);
    if (status != RESHARD_OK)
        return status;
    status = rs_item_metadata_is(checkpoint->context, path, out_is);
    rs_release(checkpoint->context, path);
    return status;
}

const rs_format rs_format_torch_checkpointing = {
    .name = "torch-checkpointing",
    .description = "torch_checkpointing: metadata.pkl, and a file for each item and rank",
    .looks_for = RS_ITEM_METADATA_NAME,
    .probe = probe,
    .read = read_folder,
};
