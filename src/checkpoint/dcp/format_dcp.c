/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_dcp.c - PyTorch's distributed checkpoints: a pickle `.metadata`, and files `__R_N.distcp`
 * with entries at the places that it names. If there is no `.metadata`, ranks may have left one
 * each, `__R.metadata`. Then their union is read, and boxes that several ranks hold are copies.
 *
 * Accelerate puts two folders of this kind, pytorch_model_fsdp_I for the model and optimizer_I for
 * the optimizer, into one folder, which is read as a whole.
 */
#include "base/context.h"
#include "base/search.h"
#include "base/sort.h"
#include "checkpoint/dcp/dcp_entry.h"
#include "checkpoint/dcp/dcp_format.h"
#include "checkpoint/dcp/dcp_write.h"
#include "checkpoint/dcp/megatron.h"
#include "checkpoint/torch/torch_files.h"
#include "text/text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define METADATA_NAME ".metadata"
/* Up to this many entries are always opened; it takes less than a second. */
#define OPENED_MAX 16384
/* Lightning keeps everything except model and optimizer in this torch.save file beside them. */
#define LIGHTNING_NAME "meta.pt"

/* ---- metadata -------------------------------------------------------------------------------- */

/* One pickle of metadata. Its files are in this subfolder of the checkpoint's folder: "", or a name
 * with a slash at the end. */
typedef struct part {
    const char *folder;
    const char *name; /* of the pickle, including the subfolder */
    rs_dcp_metadata metadata;
    int32_t *files; /* by file of the metadata: the file of the checkpoint */
} part;

typedef struct reading {
    reshard_checkpoint *checkpoint;
    int64_t part_count, part_capacity;
    part *parts;
    bool has_ranks; /* each rank has its own metadata */
    int64_t file_count;
    char **files; /* of all parts, each once, sorted by the numbers in their names */
    rs_dcp_entries entries;
    rs_occurrences list;
    int64_t differing; /* number of values that differ between ranks */
    bool is_megatron;
    const char *beside; /* a torch.save file that is read too: Lightning's or Megatron's; or NULL */
} reading;

static bool begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* Is it __R.metadata? */
static bool is_rank_metadata(const char *name)
{
    size_t digits = begins_with(name, "__") ? strspn(name + 2, "0123456789") : 0;
    return digits != 0 && strcmp(name + 2 + digits, METADATA_NAME) == 0;
}

static bool is_data(const char *name)
{
    static const char ending[] = ".distcp";
    size_t length = strlen(name), count = sizeof ending - 1;
    return length > count && strcmp(name + length - count, ending) == 0;
}

/* Is it pytorch_model_fsdp_I or optimizer_I? */
static bool is_accelerate(const char *name)
{
    static const char *const beginnings[] = {"pytorch_model_fsdp_", "optimizer_"};
    for (int i = 0; i < 2; i++) {
        const char *rest = name + strlen(beginnings[i]);
        if (begins_with(name, beginnings[i]) && *rest != '\0' &&
            rest[strspn(rest, "0123456789")] == '\0')
            return true;
    }
    return false;
}

/* Joins folder and name, in the arena. */
static reshard_status join_names(const reading *r, const char *folder, const char *name,
                                 char **out_path)
{
    size_t first = strlen(folder), second = strlen(name) + 1;
    char *path = rs_arena_allocate(&r->checkpoint->arena, first + second);
    if (path == NULL)
        return rs_allocation_status();
    memcpy(path, folder, first);
    memcpy(path + first, name, second);
    *out_path = path;
    return RESHARD_OK;
}

/* Does the folder have such a file? Names that begin with a dot are not listed, so this asks the
 * file system. */
static reshard_status has_file(const reshard_checkpoint *checkpoint, const char *folder,
                               const char *name, bool *out_has)
{
    char inner[600];
    rs_path_kind kind = RS_PATH_NONE;
    (void)snprintf(inner, sizeof inner, "%.500s%.90s", folder, name);
    reshard_status status = rs_store_kind_of(checkpoint, inner, &kind);
    *out_has = status == RESHARD_OK && kind == RS_PATH_FILE;
    return status;
}

static reshard_status add_part(reading *r, const char *folder, const char *name)
{
    char *path = NULL;
    reshard_status status = rs_grow(r->checkpoint->context, &r->parts, &r->part_capacity,
                                    r->part_count + 1, sizeof(part));
    if (status == RESHARD_OK)
        status = join_names(r, folder, name, &path);
    if (status == RESHARD_OK)
        r->parts[r->part_count++] = (part){.folder = folder, .name = path};
    return status;
}

/* Finds the pickles of one folder: `.metadata`, or else those of the ranks. */
static reshard_status find_parts(reading *r, const char *folder, int64_t count, char *const *names)
{
    bool has = false;
    int64_t ranks = 0;
    reshard_status status = has_file(r->checkpoint, folder, METADATA_NAME, &has);
    if (status == RESHARD_OK && has)
        status = add_part(r, folder, METADATA_NAME);
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++) {
        if (!is_rank_metadata(names[i]))
            continue;
        ranks++;
        if (!has)
            status = add_part(r, folder, names[i]);
    }
    r->has_ranks = r->has_ranks || (!has && ranks != 0);
    if (status == RESHARD_OK && has && ranks != 0)
        status = rs_store_note(
            r->checkpoint, "%s.metadata was read; files __R.metadata beside it were ignored: %lld",
            folder, (long long)ranks);
    return status;
}

static reshard_status find_accelerate(reading *r, const char *name)
{
    rs_names names = {.context = r->checkpoint->context};
    char *folder = NULL;
    reshard_status status = join_names(r, name, "/", &folder);
    char *path = status == RESHARD_OK
                     ? rs_path_join(r->checkpoint->context, r->checkpoint->folder, name)
                     : NULL;
    if (path == NULL)
        return status != RESHARD_OK ? status : rs_allocation_status();
    status = rs_folder_list(r->checkpoint->context, path, &names);
    rs_release(r->checkpoint->context, path);
    if (status == RESHARD_OK)
        status = find_parts(r, folder, names.count, names.items);
    rs_names_release(&names);
    return status;
}

static reshard_status find_all_parts(reading *r, const rs_opening *opening)
{
    reshard_status status = find_parts(r, "", opening->name_count, opening->names);
    if (!opening->is_folder || r->part_count != 0)
        return status;
    for (int64_t i = 0; status == RESHARD_OK && i < opening->name_count; i++) {
        bool has = false;
        char inner[300];
        if (!is_accelerate(opening->names[i]))
            continue;
        (void)snprintf(inner, sizeof inner, "%.250s/", opening->names[i]);
        status = has_file(r->checkpoint, inner, METADATA_NAME, &has);
        if (status == RESHARD_OK && has)
            status = find_accelerate(r, opening->names[i]);
    }
    return status;
}

static reshard_status read_part(const reading *r, part *made)
{
    reshard_context *context = r->checkpoint->context;
    char *bytes = NULL;
    size_t count = 0;
    char *path = rs_path_join(context, r->checkpoint->folder, made->name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_read_all(context, path, RS_PICKLE_BYTES_MAX, &bytes, &count);
    if (status == RESHARD_OK)
        status = rs_dcp_metadata_read(&r->checkpoint->arena, path, bytes, count, &made->metadata);
    rs_release(context, bytes);
    rs_release(context, path);
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return rs_dcp_file_compare(*(const char *const *)a, *(const char *const *)b);
}

static reshard_status open_files(reading *r)
{
    int64_t count = 0;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < r->part_count; i++)
        count += r->parts[i].metadata.file_count;
    r->files =
        rs_arena_allocate_array(&r->checkpoint->arena, (size_t)count + 1, sizeof(const char *));
    if (r->files == NULL)
        return rs_allocation_status();
    for (int64_t i = 0, at = 0; status == RESHARD_OK && i < r->part_count; i++) {
        const part *from = &r->parts[i];
        for (int64_t k = 0; status == RESHARD_OK && k < from->metadata.file_count; k++)
            status = join_names(r, from->folder, from->metadata.files[k], &r->files[at++]);
    }
    if (status != RESHARD_OK)
        return status;
    rs_sort(r->files, (size_t)count, sizeof *r->files, compare_names);
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(r->files[i], r->files[r->file_count - 1]) != 0)
            r->files[r->file_count++] = r->files[i];
    }
    for (int64_t i = 0; i < r->file_count; i++) {
        if (r->beside != NULL && strcmp(r->files[i], r->beside) == 0)
            r->beside = NULL;
    }
    if (r->beside != NULL)
        status = join_names(r, "", r->beside, &r->files[r->file_count]);
    if (status != RESHARD_OK)
        return status;
    return rs_fail_within(
        rs_store_open_files(r->checkpoint, r->file_count + (r->beside != NULL ? 1 : 0), r->files),
        "named in %s", r->parts[0].name);
}

/* The index of a file in r->files, which is also its number in the checkpoint. */
static int32_t find_file(const reading *r, const char *path)
{
    int64_t at;
    RS_FIND_FIRST(at, r->file_count, rs_dcp_file_compare(r->files[at], path) >= 0);
    assert(at < r->file_count && rs_dcp_file_compare(r->files[at], path) == 0);
    return (int32_t)at;
}

static reshard_status number_files(reading *r, part *from)
{
    size_t count = (size_t)from->metadata.file_count;
    from->files = rs_arena_allocate_array(&r->checkpoint->arena, count, sizeof *from->files);
    if (from->files == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        char *path = NULL;
        reshard_status status = join_names(r, from->folder, from->metadata.files[i], &path);
        if (status != RESHARD_OK)
            return status;
        from->files[i] = find_file(r, path);
    }
    return RESHARD_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static bool is_empty(const rs_dcp_tensor *tensor, const int64_t *size)
{
    for (int32_t d = 0; d < tensor->ndim; d++) {
        if (size[d] == 0)
            return true;
    }
    return false;
}

static reshard_status fail_missing(const part *from, const rs_dcp_tensor *tensor,
                                   const rs_dcp_chunk *chunk)
{
    char box[256];
    rs_text text;
    rs_text_init(&text, box, sizeof box);
    rs_text_add_box(&text, tensor->ndim, chunk->offset, chunk->size);
    return rs_fail_about(RESHARD_ERR_GAP, from->name,
                         "tensor \"%.*s\": no file is named for its chunk %s",
                         rs_slice_shown(tensor->name), tensor->name.bytes, box);
}

static reshard_status add_chunk(reading *r, part *from, const rs_dcp_tensor *tensor,
                                const rs_dcp_chunk *chunk)
{
    rs_occurrence item;
    const rs_dcp_entry *entry =
        rs_dcp_metadata_use(&from->metadata, tensor->name, tensor->ndim, chunk->offset);
    if (entry == NULL)
        return fail_missing(from, tensor, chunk);
    reshard_status status =
        rs_dcp_entry_read(&r->entries, entry, from->files[entry->file], tensor, chunk, &item);
    return status == RESHARD_OK ? rs_occurrences_add(r->checkpoint->context, &r->list, &item)
                                : status;
}

/* Adds a tensor without elements, which needs no entry but must belong to a file. */
static reshard_status add_empty(reading *r, const part *from, const rs_dcp_tensor *tensor)
{
    rs_occurrence item = {.name = tensor->name,
                          .dtype = tensor->dtype,
                          .ndim = tensor->ndim,
                          .shape = tensor->shape,
                          .full = tensor->shape,
                          .place = tensor->place};
    if (r->file_count == 0)
        return rs_fail_about(RESHARD_ERR_GAP, from->name, "names no file");
    return rs_occurrences_add(r->checkpoint->context, &r->list, &item);
}

static reshard_status add_tensor(reading *r, part *from, const rs_dcp_tensor *tensor)
{
    reshard_status status = RESHARD_OK;
    int64_t count = r->list.count;
    for (int64_t i = 0; status == RESHARD_OK && i < tensor->chunk_count; i++) {
        const rs_dcp_chunk *chunk = &tensor->chunks[i];
        /* If a rank holds nothing of a DTensor, its chunk is empty and needs no entry. */
        if (is_empty(tensor, chunk->size))
            (void)rs_dcp_metadata_use(&from->metadata, tensor->name, tensor->ndim, chunk->offset);
        else
            status = add_chunk(r, from, tensor, chunk);
    }
    if (status == RESHARD_OK && is_empty(tensor, tensor->shape))
        return add_empty(r, from, tensor);
    if (status == RESHARD_OK && r->list.count == count && !r->has_ranks)
        status = rs_fail_about(RESHARD_ERR_GAP, from->name, "tensor \"%.*s\" has no chunks",
                               rs_slice_shown(tensor->name), tensor->name.bytes);
    return status;
}

static reshard_status add_value(reading *r, part *from, const rs_dcp_tensor *value)
{
    const rs_dcp_entry *entry = rs_dcp_metadata_use(&from->metadata, value->name, -1, NULL);
    if (entry == NULL)
        return rs_fail_about(RESHARD_ERR_GAP, from->name, "no file is named for the bytes \"%.*s\"",
                             rs_slice_shown(value->name), value->name.bytes);
    int32_t file = from->files[entry->file];
    /* Each rank has its own copy. The first rank's is kept, as PyTorch does. */
    for (int64_t i = 0; r->has_ranks && i < r->checkpoint->value_count; i++) {
        bool is_same = false;
        if (rs_slice_compare(r->checkpoint->values[i].name, value->name) != 0)
            continue;
        reshard_status status =
            rs_dcp_entry_is(&r->entries, entry, file, &r->checkpoint->values[i], &is_same);
        r->differing += status == RESHARD_OK && !is_same;
        return status;
    }
    return rs_dcp_entry_keep(&r->entries, entry, file, value,
                             r->is_megatron ? rs_megatron_kind_of(value->name) : NULL);
}

/* Refuses a tensor. Its entries have a purpose, so they are not counted as unused. */
static reshard_status fail_unreadable(part *from, const rs_dcp_tensor *tensor)
{
    for (int64_t i = 0; i < tensor->chunk_count; i++)
        (void)rs_dcp_metadata_use(&from->metadata, tensor->name, tensor->ndim,
                                  tensor->chunks[i].offset);
    return rs_fail_about(RESHARD_ERR_UNSUPPORTED, from->name, "tensor \"%.*s\": %s",
                         rs_slice_shown(tensor->name), tensor->name.bytes, tensor->unreadable);
}

/* Adds a tensor or a value. */
static reshard_status add_item(reading *r, part *from, const rs_dcp_tensor *item)
{
    int64_t count = r->list.count;
    if (item->dtype == RESHARD_DTYPE_NONE && item->unreadable == NULL)
        return add_value(r, from, item);
    reshard_status status = rs_store_keep_unreadable(
        r->checkpoint,
        item->unreadable != NULL ? fail_unreadable(from, item) : add_tensor(r, from, item),
        item->name);
    /* Nothing is kept of a tensor of which only some chunks can be read. */
    if (status == RESHARD_OK && r->checkpoint->unreadable_count != 0 &&
        rs_slice_compare(r->checkpoint->unreadable[r->checkpoint->unreadable_count - 1].name,
                         item->name) == 0)
        r->list.count = count;
    return status;
}

/* Counts entries that the metadata places in files but that are not a chunk of any tensor. */
static reshard_status note_unused(const reading *r)
{
    int64_t count = 0;
    rs_slice first = {NULL, 0};
    for (int64_t i = 0; i < r->part_count; i++) {
        const rs_dcp_metadata *metadata = &r->parts[i].metadata;
        for (int64_t k = 0; k < metadata->entry_count; k++) {
            if (!metadata->entries[k].is_used && count++ == 0)
                first = metadata->entries[k].name;
        }
    }
    if (count == 0)
        return RESHARD_OK;
    return rs_store_note(r->checkpoint,
                         "%lld stored %s not part of any tensor (\"%.*s\"%s); left out",
                         (long long)count, count == 1 ? "entry is" : "entries are",
                         rs_slice_shown(first), first.bytes, count == 1 ? "" : " and others");
}

/* For planning, a great many entries need not be opened: the metadata says what they hold. */
static reshard_status choose_opening(reading *r)
{
    int64_t count = 0;
    for (int64_t i = 0; i < r->part_count; i++)
        count += r->parts[i].metadata.entry_count;
    r->entries.unopened = r->checkpoint->plan_only && count > OPENED_MAX;
    return !r->entries.unopened
               ? RESHARD_OK
               : rs_store_note(r->checkpoint,
                               "only the metadata was read; entries that it lists (%lld) are "
                               "opened when the checkpoint is converted or digested",
                               (long long)count);
}

static reshard_status add_all(reading *r)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < r->part_count; i++) {
        const rs_dcp_metadata *metadata = &r->parts[i].metadata;
        if (status == RESHARD_OK)
            status = number_files(r, &r->parts[i]);
        for (int64_t k = 0; status == RESHARD_OK && k < metadata->tensor_count; k++) {
            status = add_item(r, &r->parts[i], &metadata->tensors[k]);
            if (status == RESHARD_OK && rs_context_cancelled(r->checkpoint->context))
                status = rs_fail_about(RESHARD_ERR_CANCELLED, r->checkpoint->path, "cancelled");
        }
    }
    return status;
}

/* ---- other PyTorch files in the folder ------------------------------------------------------- */

static reshard_status take_beside(void *user, const rs_torch_leaf *leaf)
{
    reading *r = user;
    int32_t file = (int32_t)r->file_count;
    if (leaf->kind == RS_TORCH_VALUE)
        return rs_torch_keep_value(r->checkpoint, file, leaf);
    if (leaf->kind != RS_TORCH_TENSOR)
        return rs_fail(
            RESHARD_ERR_UNSUPPORTED,
            LIGHTNING_NAME
            ": tensor \"%.*s\" is one rank's part of a tensor, which cannot be read from this file",
            rs_slice_shown(leaf->name), leaf->name.bytes);
    return rs_torch_add(r->checkpoint, file, leaf, &r->list);
}

static reshard_status read_beside(reading *r)
{
    int32_t file = (int32_t)r->file_count;
    if (r->beside == NULL)
        return RESHARD_OK;
    reshard_status status = rs_torch_open_file(r->checkpoint, file);
    if (status != RESHARD_OK || r->is_megatron)
        return status;
    if (status == RESHARD_OK)
        status = rs_torch_walk_file(r->checkpoint, file, NULL, take_beside, r);
    return status == RESHARD_OK
               ? rs_store_note(r->checkpoint, LIGHTNING_NAME
                               ", a file of Lightning, is read as part of the checkpoint")
               : status;
}

/* Looks for other PyTorch files in the folder. They are not read, except Lightning's and
 * Megatron's, and a note says so because users may expect otherwise. */
static reshard_status look_beside(reading *r, const rs_opening *opening)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; opening->is_folder && status == RESHARD_OK && i < opening->name_count;
         i++) {
        bool is_torch = false;
        const char *name = opening->names[i];
        if (rs_torch_name_is(name))
            status = rs_torch_probe_file(r->checkpoint, name, &is_torch);
        if (status != RESHARD_OK || !is_torch)
            continue;
        if (strcmp(name, r->is_megatron ? RS_MEGATRON_COMMON_NAME : LIGHTNING_NAME) == 0)
            r->beside = name;
        else
            status = rs_store_note(r->checkpoint,
                                   "%s is not part of the distributed checkpoint, and is left out",
                                   name);
    }
    return status;
}

/* ---- the format ------------------------------------------------------------------------------ */

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    bool is = false;
    reshard_status status = has_file(checkpoint, "", METADATA_NAME, &is);
    *out_is = opening->is_folder ? is : strcmp(opening->names[0], METADATA_NAME) == 0;
    for (int64_t i = 0; status == RESHARD_OK && opening->is_folder && i < opening->name_count;
         i++) {
        const char *name = opening->names[i];
        char inner[300];
        is = is_rank_metadata(name) || is_data(name);
        if (is_accelerate(name)) {
            (void)snprintf(inner, sizeof inner, "%.250s/", name);
            status = has_file(checkpoint, inner, METADATA_NAME, &is);
        }
        *out_is = *out_is || is;
    }
    return status;
}

static reshard_status read_all(reading *r, const rs_opening *opening)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    reshard_status status = find_all_parts(r, opening);
    if (status == RESHARD_OK && r->part_count == 0)
        status = rs_fail_about(RESHARD_ERR_GAP, checkpoint->path,
                               "has files *.distcp, but no .metadata, which PyTorch writes last; "
                               "the checkpoint was never finished");
    for (int64_t i = 0; status == RESHARD_OK && i < r->part_count; i++)
        status = read_part(r, &r->parts[i]);
    if (status == RESHARD_OK)
        status = look_beside(r, opening);
    if (status == RESHARD_OK)
        status = open_files(r);
    if (status == RESHARD_OK)
        status = rs_unpacking_create(checkpoint->context, &r->entries.unpacking);
    if (status == RESHARD_OK)
        status = choose_opening(r);
    if (status == RESHARD_OK)
        status = add_all(r);
    if (status == RESHARD_OK)
        status = read_beside(r);
    r->list.has_copies = r->has_ranks;
    if (status == RESHARD_OK && r->is_megatron)
        status = rs_megatron_learn(checkpoint, r->beside != NULL ? (int32_t)r->file_count : -1);
    if (status == RESHARD_OK)
        status = rs_store_join(checkpoint, &r->list);
    if (status == RESHARD_OK)
        status = note_unused(r);
    if (status == RESHARD_OK && r->differing != 0)
        status = rs_store_note(checkpoint,
                               "values that differ between ranks: %lld; the first of each is kept",
                               (long long)r->differing);
    return status;
}

reshard_status rs_dcp_read(reshard_checkpoint *checkpoint, const rs_opening *opening,
                           bool is_megatron)
{
    reading r = {
        .checkpoint = checkpoint, .entries.checkpoint = checkpoint, .is_megatron = is_megatron};
    reshard_status status = read_all(&r, opening);
    rs_unpacking_release(r.entries.unpacking);
    rs_occurrences_release(checkpoint->context, &r.list);
    rs_release(checkpoint->context, r.parts);
    return status;
}

static reshard_status read_folder(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    return rs_dcp_read(checkpoint, opening, false);
}

const rs_format rs_format_dcp = {
    .name = "dcp",
    .description = "PyTorch's distributed checkpoint: .metadata and __R_N.distcp",
    .looks_for = ".metadata",
    .probe = probe,
    .read = read_folder,
    .is_split = true,
    .skips_empty = true,
    .has_crcs = true,
    .holds_value = rs_dcp_holds_value,
    .lay_out = rs_dcp_lay_out,
    .name_file = rs_dcp_name_file,
    .place = rs_dcp_place,
    .write_head = rs_dcp_write_head,
    .finish = rs_dcp_finish,
};
