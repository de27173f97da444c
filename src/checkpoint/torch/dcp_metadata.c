/* SPDX-License-Identifier: Apache-2.0 */
/* dcp_metadata.c - gives meaning to the objects of a `.metadata`. */
#include "checkpoint/torch/dcp_metadata.h"

#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/archive/zip.h"
#include "checkpoint/torch/torch_values.h"
#include "text/text.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
    rs_arena *arena;
    rs_dcp_metadata made;
    rs_pickle_index paths; /* planner_data, by name */
    uint64_t left;         /* bytes of texts, and numbers, that may still be copied */
} reading;

/* A node that is shared is copied each time: a small pickle could stand for a huge list. */
#define COPIED_PER_BYTE 16
#define COPIED_FREE 4096

static reshard_status spend(reading *r, uint64_t amount)
{
    if (amount > r->left)
        return rs_fail(RESHARD_ERR_RANGE, "its values are shared so often that they would take "
                                          "much more room than the file");
    r->left -= amount;
    return RESHARD_OK;
}

/* ---- objects --------------------------------------------------------------------------------- */

static bool begins_with(rs_slice text, const char *beginning)
{
    size_t count = strlen(beginning);
    return text.count >= count && memcmp(text.bytes, beginning, count) == 0;
}

/* The global that an object is of; NULL when it is no object of the two projects that write such
 * files. */
static const rs_pickle_global *class_of(const rs_pickle_node *node)
{
    if (!rs_pickle_is(node, RS_PICKLE_OBJECT) && !rs_pickle_is(node, RS_PICKLE_REDUCE))
        return NULL;
    const rs_pickle_node *callable = node->call->callable;
    if (!rs_pickle_is(callable, RS_PICKLE_GLOBAL))
        return NULL;
    rs_slice module = callable->global->module;
    return begins_with(module, "torch.distributed.") || begins_with(module, "megatron.")
               ? callable->global
               : NULL;
}

static bool is_of(const rs_pickle_node *node, const char *name)
{
    const rs_pickle_global *class = class_of(node);
    return class != NULL && rs_slice_equals(class->name, name);
}

/* A field of an object; NULL when it is absent, so that the class's default counts. */
static const rs_pickle_node *field(const rs_pickle_node *object, const char *name)
{
    return rs_pickle_get(object->call->state, name);
}

/* `node` is not what it should be. */
static reshard_status fail_kind(const rs_pickle_node *node, const char *wanted)
{
    const rs_pickle_global *class = class_of(node);
    if (class != NULL)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "an object of class %.*s where %s should be",
                       rs_slice_shown(class->name), class->name.bytes, wanted);
    return rs_fail(RESHARD_ERR_CORRUPT, "%s where %s should be", rs_pickle_kind_text(node), wanted);
}

static reshard_status copy_text(reading *r, rs_slice text, rs_slice *out_copy)
{
    reshard_status status = spend(r, text.count);
    char *bytes = status == RESHARD_OK ? rs_arena_allocate(r->arena, text.count + 1) : NULL;
    if (bytes == NULL)
        return status != RESHARD_OK ? status : rs_allocation_status();
    memcpy(bytes, text.bytes, text.count);
    bytes[text.count] = '\0';
    *out_copy = (rs_slice){bytes, text.count};
    return RESHARD_OK;
}

/* As rs_torch_numbers. */
static reshard_status copy_numbers(reading *r, const rs_pickle_node *node, int32_t *out_count,
                                   const int64_t **out_numbers)
{
    const rs_pickle_node *row =
        rs_pickle_is_call(node, "torch", "Size") ? rs_pickle_item(node->call->arguments, 0) : node;
    reshard_status status = spend(r, rs_pickle_count(row) + 1);
    return status == RESHARD_OK ? rs_torch_numbers(r->arena, node, out_count, out_numbers) : status;
}

static reshard_status read_numbers(reading *r, const rs_pickle_node *node, int32_t ndim,
                                   const int64_t **out_numbers)
{
    int32_t count = 0;
    reshard_status status = copy_numbers(r, node, &count, out_numbers);
    if (status == RESHARD_OK && count != ndim)
        status =
            rs_fail(RESHARD_ERR_CORRUPT, "%d numbers for %d dimensions", (int)count, (int)ndim);
    return status;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Only dense tensors are read. */
static reshard_status check_layout(const rs_pickle_node *node)
{
    rs_slice text = {"", 0};
    if (node == NULL || rs_pickle_is(node, RS_PICKLE_NONE))
        return RESHARD_OK;
    if (rs_pickle_is_call(node, "torch.serialization", "_get_layout"))
        (void)rs_pickle_text(rs_pickle_item(node->call->arguments, 0), &text);
    else if (rs_pickle_is(node, RS_PICKLE_GLOBAL))
        text = node->global->name;
    if (rs_slice_equals(text, "torch.strided") || rs_slice_equals(text, "strided"))
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_UNSUPPORTED,
                   "its layout is \"%.*s\", and only torch.strided is read", rs_slice_shown(text),
                   text.bytes);
}

/* TensorProperties has a tuple for its state: dtype, layout, .. */
static reshard_status read_properties(const rs_pickle_node *node, reshard_dtype *out_dtype)
{
    if (!is_of(node, "TensorProperties"))
        return fail_kind(node, "TensorProperties");
    const rs_pickle_node *state = node->call->state;
    bool is_dict = rs_pickle_is(state, RS_PICKLE_DICT);
    reshard_status status =
        check_layout(is_dict ? rs_pickle_get(state, "layout") : rs_pickle_item(state, 1));
    if (status != RESHARD_OK)
        return status;
    return rs_torch_dtype_read(is_dict ? rs_pickle_get(state, "dtype") : rs_pickle_item(state, 0),
                               out_dtype);
}

static reshard_status read_chunks(reading *r, const rs_pickle_node *node, rs_dcp_tensor *tensor)
{
    size_t count = rs_pickle_count(node);
    if (!rs_pickle_is(node, RS_PICKLE_LIST))
        return fail_kind(node, "a list of chunks");
    reshard_status status = spend(r, count);
    if (status != RESHARD_OK)
        return status;
    rs_dcp_chunk *chunks = rs_arena_allocate_array(r->arena, count, sizeof *chunks);
    if (chunks == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        const rs_pickle_node *item = rs_pickle_item(node, i);
        if (!is_of(item, "ChunkStorageMetadata"))
            return fail_kind(item, "ChunkStorageMetadata");
        status = read_numbers(r, field(item, "offsets"), tensor->ndim, &chunks[i].offset);
        if (status == RESHARD_OK)
            status = read_numbers(r, field(item, "sizes"), tensor->ndim, &chunks[i].size);
        if (status != RESHARD_OK)
            return status;
    }
    tensor->chunks = chunks;
    tensor->chunk_count = (int64_t)count;
    return RESHARD_OK;
}

/* The keys on the way to a tensor, of which its name was made. */
static reshard_status read_path(reading *r, const rs_pickle_node *path, rs_value_place *place)
{
    size_t count = rs_pickle_count(path);
    if (path == NULL)
        return RESHARD_OK;
    if (!rs_pickle_is(path, RS_PICKLE_TUPLE) || count > RS_VALUE_STEPS_MAX)
        return fail_kind(path, "a tuple of keys");
    for (size_t i = 0; i < count; i++) {
        rs_value_step step = {.parent = place->step};
        const rs_pickle_node *key = rs_pickle_item(path, i);
        rs_slice text;
        step.in_list = rs_pickle_int(key, &step.number);
        if (!step.in_list && !rs_pickle_text(key, &text))
            return fail_kind(key, "a key");
        reshard_status status = spend(r, 4);
        if (status == RESHARD_OK && !step.in_list)
            status = copy_text(r, text, &step.key);
        place->step = status == RESHARD_OK ? rs_arena_copy(r->arena, &step, 1, sizeof step) : NULL;
        if (place->step == NULL)
            return status != RESHARD_OK ? status : rs_allocation_status();
    }
    return RESHARD_OK;
}

static reshard_status read_tensor(reading *r, rs_slice name, const rs_pickle_node *node,
                                  rs_dcp_tensor *tensor)
{
    reshard_status status = copy_text(r, name, &tensor->name);
    if (status == RESHARD_OK)
        status = read_path(r, rs_pickle_index_get(&r->paths, name), &tensor->place);
    if (status != RESHARD_OK || is_of(node, "BytesStorageMetadata"))
        return status;
    if (!is_of(node, "TensorStorageMetadata"))
        return fail_kind(node, "TensorStorageMetadata or BytesStorageMetadata");
    status = read_properties(field(node, "properties"), &tensor->dtype);
    if (status == RESHARD_OK)
        status = copy_numbers(r, field(node, "size"), &tensor->ndim, &tensor->shape);
    return status == RESHARD_OK ? read_chunks(r, field(node, "chunks"), tensor) : status;
}

static int compare_tensors(const void *a, const void *b)
{
    return rs_slice_compare(((const rs_dcp_tensor *)a)->name, ((const rs_dcp_tensor *)b)->name);
}

static reshard_status read_tensors(reading *r, const rs_pickle_node *dict)
{
    size_t count = rs_pickle_count(dict);
    if (!rs_pickle_is(dict, RS_PICKLE_DICT))
        return fail_kind(dict, "the dict state_dict_metadata");
    rs_dcp_tensor *tensors = rs_arena_allocate_array(r->arena, count, sizeof *tensors);
    if (tensors == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        rs_slice name;
        tensors[i] = (rs_dcp_tensor){.place.order = (int64_t)i};
        if (!rs_pickle_text(dict->items.nodes[2 * i], &name))
            return fail_kind(dict->items.nodes[2 * i], "the name of a tensor");
        reshard_status status = read_tensor(r, name, dict->items.nodes[2 * i + 1], &tensors[i]);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "tensor \"%.*s\"", rs_slice_shown(name), name.bytes);
    }
    rs_sort(tensors, count, sizeof *tensors, compare_tensors);
    for (size_t i = 1; i < count; i++) {
        if (rs_slice_compare(tensors[i - 1].name, tensors[i].name) == 0)
            return rs_fail(RESHARD_ERR_CORRUPT, "tensor \"%.*s\" occurs twice",
                           rs_slice_shown(tensors[i].name), tensors[i].name.bytes);
    }
    r->made.tensors = tensors;
    r->made.tensor_count = (int64_t)count;
    return RESHARD_OK;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* "stream.zstd", with or without a domain, and version 1.x. */
static bool is_zstd(rs_slice descriptor)
{
    static const char name[] = "stream.zstd";
    size_t at = sizeof name - 1;
    if (!begins_with(descriptor, name))
        return false;
    if (at < descriptor.count && descriptor.bytes[at] == '@')
        while (at < descriptor.count && descriptor.bytes[at] != '/')
            at++;
    rs_slice version = {descriptor.bytes + at, descriptor.count - at};
    return version.count == 0 || rs_slice_equals(version, "/1") || begins_with(version, "/1.");
}

static reshard_status read_transforms(const rs_pickle_node *list, rs_dcp_entry *entry)
{
    rs_slice first = {"", 0};
    size_t count = rs_pickle_count(list);
    if (list == NULL || rs_pickle_is(list, RS_PICKLE_NONE) || count == 0)
        return RESHARD_OK;
    if (!rs_pickle_text(rs_pickle_item(list, 0), &first))
        return fail_kind(rs_pickle_item(list, 0), "the name of a transform");
    entry->is_zstd = count == 1 && is_zstd(first);
    if (entry->is_zstd)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_UNSUPPORTED,
                   "is stored through \"%.*s\"%s; only stream.zstd alone is "
                   "read",
                   rs_slice_shown(first), first.bytes, count > 1 ? " and others" : "");
}

static reshard_status read_file_name(reading *r, const rs_pickle_node *node, const char **out_name)
{
    rs_slice text, copy = {NULL, 0};
    if (!rs_pickle_text(node, &text))
        return fail_kind(node, "the name of a file");
    const char *fault = rs_zip_name_fault(text);
    if (fault != NULL)
        return rs_fail(RESHARD_ERR_CORRUPT, "its file \"%.*s\": %s", rs_slice_shown(text),
                       text.bytes, fault);
    reshard_status status = copy_text(r, text, &copy);
    *out_name = copy.bytes;
    return status;
}

static reshard_status read_info(reading *r, const rs_pickle_node *info, rs_dcp_entry *entry)
{
    int64_t at = -1, bytes = -1;
    if (!is_of(info, "_StorageInfo"))
        return fail_kind(info, "_StorageInfo");
    if (!rs_pickle_int(field(info, "offset"), &at) ||
        !rs_pickle_int(field(info, "length"), &bytes) || at < 0 || bytes < 0)
        return rs_fail(RESHARD_ERR_CORRUPT, "where it is stored is not said by two numbers");
    entry->at = (uint64_t)at;
    entry->bytes = (uint64_t)bytes;
    reshard_status status = read_file_name(r, field(info, "relative_path"), &entry->file);
    return status == RESHARD_OK ? read_transforms(field(info, "transform_descriptors"), entry)
                                : status;
}

static reshard_status read_entry(reading *r, const rs_pickle_node *key, const rs_pickle_node *info,
                                 rs_dcp_entry *entry)
{
    *entry = (rs_dcp_entry){.ndim = -1};
    if (!is_of(key, "MetadataIndex"))
        return fail_kind(key, "MetadataIndex");
    if (!rs_pickle_text(field(key, "fqn"), &entry->name))
        return fail_kind(field(key, "fqn"), "the name of a tensor");
    const rs_pickle_node *offset = field(key, "offset");
    reshard_status status = RESHARD_OK;
    if (offset != NULL && !rs_pickle_is(offset, RS_PICKLE_NONE))
        status = copy_numbers(r, offset, &entry->ndim, &entry->offset);
    if (status == RESHARD_OK)
        status = read_info(r, info, entry);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "tensor \"%.*s\"", rs_slice_shown(entry->name),
                              entry->name.bytes);
    return RESHARD_OK;
}

static int compare_offsets(int32_t a_ndim, const int64_t *a, int32_t b_ndim, const int64_t *b)
{
    if (a_ndim != b_ndim)
        return a_ndim < b_ndim ? -1 : 1;
    for (int32_t d = 0; d < a_ndim; d++) {
        if (a[d] != b[d])
            return a[d] < b[d] ? -1 : 1;
    }
    return 0;
}

static int compare_entries(const void *a, const void *b)
{
    const rs_dcp_entry *x = a, *y = b;
    /* Most are of the same tensor, whose name is then the same bytes. */
    int order = x->name.bytes != y->name.bytes ? rs_slice_compare(x->name, y->name) : 0;
    return order != 0 ? order : compare_offsets(x->ndim, x->offset, y->ndim, y->offset);
}

const rs_dcp_entry *rs_dcp_metadata_use(const rs_dcp_metadata *metadata, rs_slice name,
                                        int32_t ndim, const int64_t *offset)
{
    const rs_dcp_entry wanted = {.name = name, .ndim = ndim, .offset = offset};
    if (metadata->entry_count == 0)
        return NULL;
    rs_dcp_entry *found = bsearch(&wanted, metadata->entries, (size_t)metadata->entry_count,
                                  sizeof wanted, compare_entries);
    if (found != NULL)
        found->is_used = true;
    return found;
}

static reshard_status read_entries(reading *r, const rs_pickle_node *dict)
{
    size_t count = rs_pickle_count(dict);
    if (!rs_pickle_is(dict, RS_PICKLE_DICT))
        return fail_kind(dict, "the dict storage_data");
    rs_dcp_entry *entries = rs_arena_allocate_array(r->arena, count, sizeof *entries);
    if (entries == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        reshard_status status =
            read_entry(r, dict->items.nodes[2 * i], dict->items.nodes[2 * i + 1], &entries[i]);
        if (status != RESHARD_OK)
            return status;
    }
    rs_sort(entries, count, sizeof *entries, compare_entries);
    for (size_t i = 0; i < count; i++) {
        /* Names come from the pickle, which goes; those of one tensor share a copy. */
        bool is_again = i > 0 && rs_slice_compare(entries[i - 1].name, entries[i].name) == 0;
        if (i > 0 && compare_entries(&entries[i - 1], &entries[i]) == 0)
            return rs_fail(RESHARD_ERR_CORRUPT, "a chunk of tensor \"%.*s\" is stored twice",
                           rs_slice_shown(entries[i].name), entries[i].name.bytes);
        if (is_again) {
            entries[i].name = entries[i - 1].name;
            continue;
        }
        reshard_status status = copy_text(r, entries[i].name, &entries[i].name);
        if (status != RESHARD_OK)
            return status;
    }
    r->made.entries = entries;
    r->made.entry_count = (int64_t)count;
    return RESHARD_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

int rs_dcp_file_compare(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        if (rs_is_digit(*a) && rs_is_digit(*b)) {
            size_t x = strspn(a, "0123456789"), y = strspn(b, "0123456789");
            int order = x != y ? (x < y ? -1 : 1) : memcmp(a, b, x);
            if (order != 0)
                return order;
            a += x;
            b += y;
            continue;
        }
        if (*a != *b)
            break;
        a++;
        b++;
    }
    return (unsigned char)*a - (unsigned char)*b;
}

static int compare_files(const void *a, const void *b)
{
    return rs_dcp_file_compare((*(const rs_dcp_entry *const *)a)->file,
                               (*(const rs_dcp_entry *const *)b)->file);
}

/* Lists the files, and makes equal names the same pointer. */
static reshard_status list_files(reading *r)
{
    size_t count = (size_t)r->made.entry_count;
    rs_dcp_entry **sorted = rs_allocate_array(r->arena->context, count, sizeof *sorted);
    r->made.files = rs_arena_allocate_array(r->arena, count, sizeof(char *));
    bool is_ok = sorted != NULL && r->made.files != NULL;
    for (size_t i = 0; is_ok && i < count; i++)
        sorted[i] = &r->made.entries[i];
    if (is_ok)
        rs_sort((void *)sorted, count, sizeof *sorted, compare_files);
    for (size_t i = 0; is_ok && i < count; i++) {
        if (i == 0 || strcmp(r->made.files[r->made.file_count - 1], sorted[i]->file) != 0)
            r->made.files[r->made.file_count++] = sorted[i]->file;
        sorted[i]->file = r->made.files[r->made.file_count - 1];
    }
    if (sorted != NULL)
        rs_release(r->arena->context, (void *)sorted, count * sizeof *sorted);
    return is_ok ? RESHARD_OK : rs_allocation_status();
}

/* ---- all of it ------------------------------------------------------------------------------- */

static reshard_status read_version(reading *r, const rs_pickle_node *node)
{
    rs_slice text, copy = {NULL, 0};
    if (!rs_pickle_text(node, &text))
        return RESHARD_OK; /* a draft of PyTorch wrote a float */
    reshard_status status = copy_text(r, text, &copy);
    if (status == RESHARD_OK)
        r->made.version = copy.bytes;
    return status;
}

reshard_status rs_dcp_metadata_read(rs_arena *arena, const char *what, const rs_pickle *pickle,
                                    size_t bytes, rs_dcp_metadata *out_metadata)
{
    reading r = {.arena = arena, .left = COPIED_FREE + COPIED_PER_BYTE * (uint64_t)bytes};
    const rs_pickle_node *root = rs_pickle_root(pickle);
    if (!is_of(root, "Metadata") && !is_of(root, "MCoreMetadata"))
        return rs_fail_within(fail_kind(root, "Metadata of torch.distributed.checkpoint"), "%s",
                              what);
    reshard_status status =
        rs_pickle_index_init(&r.paths, arena->context, field(root, "planner_data"));
    if (status == RESHARD_OK)
        status = read_tensors(&r, field(root, "state_dict_metadata"));
    if (status == RESHARD_OK)
        status = read_entries(&r, field(root, "storage_data"));
    if (status == RESHARD_OK)
        status = list_files(&r);
    if (status == RESHARD_OK)
        status = read_version(&r, field(root, "version"));
    rs_pickle_index_release(&r.paths);
    if (status == RESHARD_OK)
        *out_metadata = r.made;
    return rs_fail_within(status, "%s", what);
}
