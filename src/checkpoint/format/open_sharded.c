/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open_sharded.c - folders of safetensors files without an index: whole tensors, or the pieces that
 * PyTorch's DCP writes. There `__metadata__` has
 *   DCP_SHARDING_INFO  a JSON document as a string: {"key": {"saved_offsets": [..],
 *                      "logical_fqn": "name"}}; a key without an entry here is a whole tensor
 * and our own files add, so that a missing piece or file is noticed,
 *   RESHARD_SHAPES     likewise a document: {"name": [full shape]}
 *   RESHARD_FILES      how many files there are
 * RESHARD_SHAPES is in rank files as well, for tensors that are cut flat.
 */
#include "base/context.h"
#include "base/json.h"
#include "checkpoint/store/store.h"

#include <string.h>

/* What the metadata of one file say, as indices into its entries by name. */
typedef struct sharding {
    rs_slice *names; /* logical ones; bytes NULL: the key itself */
    const int64_t **offsets;
    const int64_t **shapes;
    int32_t *ndims; /* of shapes, where entries have others; NULL: they do not */
} sharding;

/* A list of numbers, of which there must be ndim, in the arena. */
static reshard_status read_numbers(rs_arena *arena, rs_json *json, int32_t ndim,
                                   const int64_t **out_numbers)
{
    rs_json_token token;
    int64_t *numbers = rs_arena_allocate_array(arena, (size_t)ndim, sizeof(int64_t));
    if (numbers == NULL)
        return rs_allocation_status();
    reshard_status status =
        rs_json_expect(json, RS_JSON_LIST_BEGIN, "a list of numbers is wanted here", &token);
    for (int32_t d = 0; status == RESHARD_OK; d++) {
        uint64_t number = 0;
        status = rs_json_next(json, &token);
        if (status == RESHARD_OK && (token.kind == RS_JSON_LIST_END) != (d == ndim))
            return rs_json_fail(json, &token, "one number for each dimension is wanted here");
        if (status == RESHARD_OK && d == ndim)
            break;
        if (status == RESHARD_OK)
            status = rs_json_unsigned(json, &token, &number);
        if (status == RESHARD_OK && number > INT64_MAX)
            return rs_json_fail(json, &token, "a number beyond 2^63-1");
        if (status == RESHARD_OK)
            numbers[d] = (int64_t)number;
    }
    if (status == RESHARD_OK)
        *out_numbers = numbers;
    return status;
}

/* A list of numbers, as many as there are. */
static reshard_status read_shape(rs_arena *arena, rs_json *json, const int64_t **out_numbers,
                                 int32_t *out_ndim)
{
    rs_json ahead = *json;
    rs_json_token token;
    reshard_status status =
        rs_json_expect(&ahead, RS_JSON_LIST_BEGIN, "a list of numbers is wanted here", &token);
    *out_ndim = -1;
    do {
        ++*out_ndim;
        if (status == RESHARD_OK)
            status = rs_json_next(&ahead, &token);
    } while (status == RESHARD_OK && token.kind == RS_JSON_NUMBER && *out_ndim < RESHARD_NDIM_MAX);
    return status == RESHARD_OK ? read_numbers(arena, json, *out_ndim, out_numbers) : status;
}

static reshard_status read_logical_name(rs_arena *arena, rs_json *json, rs_slice *out_name)
{
    rs_json_token token;
    reshard_status status =
        rs_json_expect(json, RS_JSON_STRING, "logical_fqn is not a string", &token);
    if (status != RESHARD_OK)
        return status;
    char *bytes = rs_arena_allocate(arena, token.count + 1);
    if (bytes == NULL)
        return rs_allocation_status();
    out_name->bytes = bytes;
    out_name->count = rs_json_decode(&token, bytes);
    bytes[out_name->count] = '\0';
    return RESHARD_OK;
}

/* {"saved_offsets": [..], "logical_fqn": ".."} of one entry. */
static reshard_status read_info(rs_arena *arena, rs_json *json, const rs_entry *entry,
                                const int64_t **out_offset, rs_slice *out_name)
{
    rs_json_token token;
    bool has_offset = false, has_name = false;
    reshard_status status =
        rs_json_expect(json, RS_JSON_OBJECT_BEGIN, "an object is wanted here", &token);
    while (status == RESHARD_OK) {
        status = rs_json_next(json, &token);
        if (status != RESHARD_OK)
            return status;
        if (token.kind == RS_JSON_OBJECT_END)
            return has_offset ? RESHARD_OK
                              : rs_json_fail(json, &token, "saved_offsets are missing");
        bool is_offset = rs_json_token_is(&token, "saved_offsets");
        bool is_name = rs_json_token_is(&token, "logical_fqn");
        if ((is_offset && has_offset) || (is_name && has_name))
            return rs_json_fail(json, &token, "a field that occurs twice");
        has_offset = has_offset || is_offset;
        has_name = has_name || is_name;
        status = is_offset ? read_numbers(arena, json, entry->ndim, out_offset)
                 : is_name ? read_logical_name(arena, json, out_name)
                           : rs_json_skip(json);
    }
    return status;
}

/* The index among entries by name, or -1. scratch has room for the key. */
static int64_t find_key(const rs_header *header, const rs_json_token *token, char *scratch)
{
    rs_slice key = {scratch, rs_json_decode(token, scratch)};
    int64_t low = 0, high = header->entry_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = rs_slice_compare(header->by_name[middle]->name, key);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

/* Walks a document whose members are about entries of the file. */
static reshard_status read_document(rs_arena *arena, const rs_header *header,
                                    const rs_metadatum *item, sharding *found)
{
    bool is_shapes = rs_slice_compare(item->key, rs_slice_of("RESHARD_SHAPES")) == 0;
    rs_json json;
    rs_json_token token;
    reshard_context *context = arena->context;
    char *scratch = rs_allocate(context, item->value.count);
    if (scratch == NULL)
        return rs_allocation_status();
    rs_json_init(&json, item->key.bytes, item->value.bytes, item->value.count);
    reshard_status status =
        rs_json_expect(&json, RS_JSON_OBJECT_BEGIN, "an object is wanted here", &token);
    while (status == RESHARD_OK) {
        status = rs_json_next(&json, &token);
        if (status != RESHARD_OK || token.kind == RS_JSON_OBJECT_END)
            break;
        int64_t i = find_key(header, &token, scratch);
        if (i < 0)
            status = rs_json_fail(&json, &token, "a tensor that the file does not hold");
        else if ((is_shapes ? found->shapes[i] : found->offsets[i]) != NULL)
            status = rs_json_fail(&json, &token, "a tensor that occurs twice");
        else if (is_shapes && found->ndims != NULL)
            status = read_shape(arena, &json, &found->shapes[i], &found->ndims[i]);
        else if (is_shapes)
            status = read_numbers(arena, &json, header->by_name[i]->ndim, &found->shapes[i]);
        else
            status =
                read_info(arena, &json, header->by_name[i], &found->offsets[i], &found->names[i]);
    }
    if (status == RESHARD_OK)
        status = rs_json_next(&json, &token);
    rs_release(context, scratch, item->value.count);
    return status;
}

static reshard_status read_sharding(reshard_checkpoint *checkpoint, const rs_header *header,
                                    sharding *found)
{
    static const char *const keys[] = {"DCP_SHARDING_INFO", "RESHARD_SHAPES"};
    reshard_status status = RESHARD_OK;
    for (int i = 0; status == RESHARD_OK && i < 2; i++) {
        const rs_metadatum *item = rs_header_metadata(header, keys[i]);
        if (item != NULL)
            status = read_document(&checkpoint->arena, header, item, found);
    }
    return status;
}

reshard_status rs_store_read_shapes(reshard_checkpoint *checkpoint, int32_t file,
                                    const int64_t **out_shapes, int32_t *out_ndims)
{
    const rs_header *header = checkpoint->files[file].header;
    const rs_metadatum *item = rs_header_metadata(header, "RESHARD_SHAPES");
    sharding found = {.shapes = out_shapes, .ndims = out_ndims};
    for (int64_t i = 0; i < header->entry_count; i++) {
        out_shapes[i] = NULL;
        out_ndims[i] = 0;
    }
    if (item == NULL)
        return RESHARD_OK;
    return rs_fail_within(read_document(&checkpoint->arena, header, item, &found), "%s",
                          checkpoint->files[file].name);
}

static reshard_status add_file(reshard_checkpoint *checkpoint, int32_t file, bool is_sharded,
                               rs_occurrences *list)
{
    reshard_context *context = checkpoint->context;
    const rs_header *header = checkpoint->files[file].header;
    size_t count = (size_t)header->entry_count;
    sharding found = {0};
    reshard_status status = RESHARD_OK;
    rs_arena scratch;
    rs_arena_init(&scratch, context);
    if (is_sharded) {
        size_t bytes = count * (sizeof(rs_slice) + 2 * sizeof(int64_t *));
        char *memory = rs_arena_allocate(&scratch, bytes);
        if (memory == NULL)
            return rs_allocation_status();
        memset(memory, 0, bytes);
        found.names = (void *)memory;
        found.offsets = (void *)(memory + count * sizeof(rs_slice));
        found.shapes = found.offsets + count;
        status = rs_fail_within(read_sharding(checkpoint, header, &found), "%s",
                                checkpoint->files[file].name);
    }
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        rs_occurrence item = {
            .name = header->by_name[i]->name, .file = file, .entry = header->by_name[i]};
        if (is_sharded) {
            item.offset = found.offsets[i];
            item.full = found.shapes[i];
            if (found.names[i].bytes != NULL)
                item.name = found.names[i];
        }
        status = rs_occurrences_add(context, list, &item);
    }
    rs_arena_release(&scratch);
    return status;
}

/* Our files say how many they are. */
static reshard_status check_file_count(const reshard_checkpoint *checkpoint)
{
    for (int32_t i = 0; i < checkpoint->file_count; i++) {
        const rs_stored_file *file = &checkpoint->files[i];
        const rs_metadatum *item = rs_header_metadata(file->header, "RESHARD_FILES");
        uint64_t expected = 0;
        rs_json json;
        rs_json_token token;
        if (item == NULL)
            continue;
        rs_json_init(&json, "RESHARD_FILES", item->value.bytes, item->value.count);
        reshard_status status = rs_json_next(&json, &token);
        if (status == RESHARD_OK)
            status = rs_json_unsigned(&json, &token, &expected);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "%s", file->name);
        if (expected != (uint64_t)checkpoint->file_count)
            return rs_fail(RESHARD_ERR_GAP, "%s: is one of %llu files, but there are %d here",
                           file->name, (unsigned long long)expected, (int)checkpoint->file_count);
    }
    return RESHARD_OK;
}

/* Without an index and without sharding information a name may occur once. */
static reshard_status check_single(const reshard_checkpoint *checkpoint, const rs_occurrences *list)
{
    for (int64_t i = 1; i < list->count; i++) {
        const rs_occurrence *a = &list->items[i - 1], *b = &list->items[i];
        if (rs_slice_compare(a->name, b->name) == 0)
            return rs_fail(RESHARD_ERR_OVERLAP,
                           "tensor \"%.*s\" is in %s and in %s, and neither says which part of it "
                           "it holds; files of ranks need the mesh they were split over (--from)",
                           rs_slice_shown(a->name), a->name.bytes, checkpoint->files[a->file].name,
                           checkpoint->files[b->file].name);
    }
    return RESHARD_OK;
}

static reshard_status note_unknown(reshard_checkpoint *checkpoint, const rs_occurrences *list)
{
    int64_t unknown = 0;
    for (int64_t i = 0; i < list->count; i++) {
        bool is_first =
            i == 0 || rs_slice_compare(list->items[i - 1].name, list->items[i].name) != 0;
        unknown += is_first && list->items[i].offset != NULL && list->items[i].full == NULL;
    }
    if (unknown == 0)
        return RESHARD_OK;
    return rs_store_note(
        checkpoint,
        "the files do not say the full shape of %lld tensors: a missing last piece "
        "would look like a smaller tensor",
        (long long)unknown);
}

reshard_status rs_store_read_sharded(reshard_checkpoint *checkpoint, bool is_sharded)
{
    rs_occurrences list = {0};
    reshard_status status = check_file_count(checkpoint);
    for (int32_t i = 0; status == RESHARD_OK && i < checkpoint->file_count; i++)
        status = add_file(checkpoint, i, is_sharded, &list);
    if (status == RESHARD_OK)
        status = rs_store_join(checkpoint, &list);
    if (!is_sharded && list.count != checkpoint->tensor_count &&
        (status == RESHARD_OK || status == RESHARD_ERR_OVERLAP || status == RESHARD_ERR_CORRUPT))
        status = check_single(checkpoint, &list);
    if (status == RESHARD_OK && is_sharded)
        status = note_unknown(checkpoint, &list);
    rs_occurrences_release(checkpoint->context, &list);
    return status;
}
