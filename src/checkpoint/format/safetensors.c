/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.c - reads headers. Checks come in the order of the reference reader: the length, the
 * JSON; then for each tensor, in the order of their data, offset, overflow, whole bytes and size;
 * and last the total.
 */
#include "checkpoint/format/safetensors.h"

#include "base/context.h"
#include "base/error.h"
#include "base/sort.h"
#include "text/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- one entry ------------------------------------------------------------------------------- */

/* Decodes a string into the part of the text that has been read, after the strings already there,
 * and adds a NUL. At least a quote precedes each string, so this never overwrites unread text. */
static rs_slice decode(rs_header *header, const rs_json_token *token)
{
    char *place = header->text + header->text_bytes;
    rs_slice name = {place, token->count};
    assert(place < token->bytes); /* both point into the same text */
    if (token->escaped)
        name.count = rs_json_decode(token, place);
    else
        memmove(place, token->bytes, token->count);
    place[name.count] = '\0';
    header->text_bytes += name.count + 1;
    return name;
}

static reshard_status read_dtype(rs_json *json, reshard_dtype *out_dtype)
{
    static const char *const names[] = {
#define ROW(name, text, bits) [RESHARD_##name] = #name,
        RESHARD_DTYPE_LIST(ROW)
#undef ROW
    };
    rs_json_token token;
    reshard_status status = rs_json_expect(json, RS_JSON_STRING, "dtype is not a string", &token);
    if (status != RESHARD_OK)
        return status;
    for (int i = 1; i <= (int)RESHARD_U64; i++) {
        if (rs_json_token_is(&token, names[i])) {
            *out_dtype = (reshard_dtype)i;
            return RESHARD_OK;
        }
    }
    return rs_json_fail(json, &token, "safetensors has no such dtype");
}

typedef struct number_list {
    int64_t count, capacity;
    int64_t *items;
} number_list;

/* Reads a JSON list of non-negative integers into `list`, which is reused. */
static reshard_status read_numbers(reshard_context *context, rs_json *json, const char *wanted,
                                   uint64_t max, number_list *list)
{
    rs_json_token token;
    reshard_status status = rs_json_expect(json, RS_JSON_LIST_BEGIN, wanted, &token);
    list->count = 0;
    while (status == RESHARD_OK) {
        uint64_t number = 0;
        void *items = list->items;
        status = rs_json_next(json, &token);
        if (status == RESHARD_OK && token.kind == RS_JSON_LIST_END)
            return RESHARD_OK;
        if (status == RESHARD_OK)
            status = rs_json_unsigned(json, &token, &number);
        if (status == RESHARD_OK && number > max)
            status = rs_fail(RESHARD_ERR_RANGE, "%s, byte %zu: the number is beyond 2^63-1",
                             json->what, (size_t)(token.bytes - json->bytes));
        if (status == RESHARD_OK)
            status = rs_grow(context, &items, &list->capacity, list->count + 1, sizeof(int64_t));
        list->items = items;
        if (status == RESHARD_OK)
            list->items[list->count++] = (int64_t)number;
    }
    return status;
}

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4 };

/* Keeps a shape. Models have few different ones, and the tensors of a file share them. */
static reshard_status keep_shape(rs_header *header, const number_list *list, rs_header_entry *entry)
{
    static const int64_t none[1];
    size_t count = (size_t)list->count;
    const int64_t *shape = count != 0 ? list->items : none; /* an empty list may have no memory */
    void **place = rs_table_at(&header->shapes, shape, count * sizeof(int64_t));
    if (place != NULL && *place == NULL)
        *place = rs_arena_copy(&header->arena, shape, count, sizeof(int64_t));
    if (place == NULL || *place == NULL)
        return rs_allocation_status();
    entry->ndim = (int32_t)list->count;
    entry->shape = *place;
    return RESHARD_OK;
}

static reshard_status read_field(rs_header *header, rs_json *json, int field, number_list *list,
                                 rs_header_entry *entry)
{
    reshard_context *context = header->arena.context;
    if (field == HAS_DTYPE)
        return read_dtype(json, &entry->dtype);
    if (field == HAS_SHAPE) {
        reshard_status status = read_numbers(context, json, "shape is not a list", INT64_MAX, list);
        return status == RESHARD_OK ? keep_shape(header, list, entry) : status;
    }
    reshard_status status =
        read_numbers(context, json, "data_offsets is not a list", UINT64_MAX, list);
    if (status != RESHARD_OK)
        return status;
    if (list->count != 2)
        return rs_fail_about(RESHARD_ERR_SYNTAX, json->what,
                             "data_offsets has %lld numbers in place of 2", (long long)list->count);
    entry->begin = (uint64_t)list->items[0];
    entry->end = (uint64_t)list->items[1];
    return RESHARD_OK;
}

/* Reads {"dtype": .., "shape": .., "data_offsets": ..}; other fields are skipped. */
static reshard_status read_entry(rs_header *header, rs_json *json, number_list *list,
                                 rs_header_entry *entry)
{
    int seen = 0;
    rs_json_token token;
    reshard_status status =
        rs_json_expect(json, RS_JSON_OBJECT_BEGIN, "the tensor is not an object", &token);
    while (rs_json_next_member(json, &token, &status)) {
        int field = rs_json_token_is(&token, "dtype")          ? HAS_DTYPE
                    : rs_json_token_is(&token, "shape")        ? HAS_SHAPE
                    : rs_json_token_is(&token, "data_offsets") ? HAS_OFFSETS
                                                               : 0;
        if ((seen & field) != 0)
            return rs_json_fail(json, &token, "the field occurs twice");
        seen |= field;
        status = field != 0 ? read_field(header, json, field, list, entry) : rs_json_skip(json);
    }
    if (status == RESHARD_OK && seen != (HAS_DTYPE | HAS_SHAPE | HAS_OFFSETS))
        return rs_json_fail(json, &token, "the tensor lacks dtype, shape or data_offsets");
    return status;
}

/* ---- the object ------------------------------------------------------------------------------ */

static reshard_status read_metadata(rs_header *header, rs_json *json)
{
    rs_json_token token;
    reshard_status status = rs_json_next(json, &token);
    if (status == RESHARD_OK && token.kind == RS_JSON_NULL)
        return RESHARD_OK;
    if (status == RESHARD_OK && token.kind != RS_JSON_OBJECT_BEGIN)
        return rs_json_fail(json, &token, "__metadata__ is not an object");
    while (status == RESHARD_OK) {
        rs_metadatum item;
        status = rs_json_next(json, &token);
        if (status != RESHARD_OK || token.kind == RS_JSON_OBJECT_END)
            return status;
        item.key = decode(header, &token);
        status = rs_json_expect(json, RS_JSON_STRING, "__metadata__ holds strings only", &token);
        if (status != RESHARD_OK)
            return status;
        item.value = decode(header, &token);
        status = rs_grow(header->arena.context, &header->metadata, &header->metadata_capacity,
                         header->metadata_count + 1, sizeof(rs_metadatum));
        if (status == RESHARD_OK)
            header->metadata[header->metadata_count++] = item;
    }
    return status;
}

static reshard_status read_member(rs_header *header, rs_json *json, const rs_json_token *key,
                                  number_list *list)
{
    if (rs_json_token_is(key, "__metadata__")) {
        if (header->has_metadata)
            return rs_json_fail(json, key, "__metadata__ occurs twice");
        header->has_metadata = true;
        return read_metadata(header, json);
    }
    rs_header_entry entry = {.name = decode(header, key)};
    reshard_status status = read_entry(header, json, list, &entry);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "tensor \"%.*s\"", rs_slice_shown(entry.name),
                              entry.name.bytes);
    status = rs_grow(header->arena.context, &header->entries, &header->entry_capacity,
                     header->entry_count + 1, sizeof(rs_header_entry));
    if (status == RESHARD_OK)
        header->entries[header->entry_count++] = entry;
    return status;
}

static reshard_status read_object(rs_header *header, const char *text, size_t text_bytes)
{
    rs_json json;
    rs_json_token token;
    number_list list = {0};
    rs_json_init(&json, "header", text, text_bytes);
    reshard_status status =
        rs_json_expect(&json, RS_JSON_OBJECT_BEGIN, "the header is not an object", &token);
    while (rs_json_next_member(&json, &token, &status))
        status = read_member(header, &json, &token, &list);
    if (status == RESHARD_OK)
        status = rs_json_next(&json, &token);
    rs_release(header->arena.context, list.items);
    return status;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int compare_places(const void *a, const void *b)
{
    const rs_header_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return rs_slice_compare(x->name, y->name);
}

static int compare_names(const void *a, const void *b)
{
    return rs_slice_compare((*(rs_header_entry *const *)a)->name,
                            (*(rs_header_entry *const *)b)->name);
}

static reshard_status check_entry(const rs_header_entry *entry, uint64_t expected)
{
    uint64_t bytes = 0;
    int shown = rs_slice_shown(entry->name);
    if (entry->begin != expected || entry->end < entry->begin)
        return rs_fail(RESHARD_ERR_CORRUPT,
                       "tensor \"%.*s\": its data is at bytes %llu to %llu, but should begin at "
                       "%llu (tensors follow each other without holes and overlaps)",
                       shown, entry->name.bytes, (unsigned long long)entry->begin,
                       (unsigned long long)entry->end, (unsigned long long)expected);
    reshard_status status =
        rs_stored_bytes(entry->name, entry->dtype, entry->ndim, entry->shape, &bytes);
    if (status == RESHARD_OK && bytes != entry->end - entry->begin)
        status = rs_fail(RESHARD_ERR_CORRUPT,
                         "tensor \"%.*s\": shape and dtype make %llu bytes, data_offsets %llu",
                         shown, entry->name.bytes, (unsigned long long)bytes,
                         (unsigned long long)(entry->end - entry->begin));
    return status;
}

static reshard_status check_places(rs_header *header)
{
    uint64_t expected = 0;
    rs_sort(header->entries, (size_t)header->entry_count, sizeof(rs_header_entry), compare_places);
    for (int64_t i = 0; i < header->entry_count; i++) {
        reshard_status status = check_entry(&header->entries[i], expected);
        if (status != RESHARD_OK)
            return status;
        expected = header->entries[i].end;
    }
    if (expected != header->data_bytes)
        return rs_fail(RESHARD_ERR_CORRUPT,
                       "the header describes %llu bytes of data, the file has %llu (%s)",
                       (unsigned long long)expected, (unsigned long long)header->data_bytes,
                       expected > header->data_bytes ? "it is truncated" : "bytes too many");
    return RESHARD_OK;
}

static reshard_status index_names(rs_header *header)
{
    header->by_name = rs_allocate_array(header->arena.context, (size_t)header->entry_count,
                                        sizeof(rs_header_entry *));
    if (header->by_name == NULL)
        return rs_allocation_status();
    bool is_sorted = true;
    for (int64_t i = 0; i < header->entry_count; i++) {
        header->by_name[i] = &header->entries[i];
        is_sorted = is_sorted && (i == 0 || rs_slice_compare(header->entries[i - 1].name,
                                                             header->entries[i].name) < 0);
    }
    if (is_sorted) /* and no name occurs twice */
        return RESHARD_OK;
    rs_sort(header->by_name, (size_t)header->entry_count, sizeof(rs_header_entry *), compare_names);
    for (int64_t i = 1; i < header->entry_count; i++) {
        rs_slice name = header->by_name[i]->name;
        if (rs_slice_compare(header->by_name[i - 1]->name, name) == 0)
            return rs_fail(RESHARD_ERR_CORRUPT, "tensor \"%.*s\" occurs twice in the header",
                           rs_slice_shown(name), name.bytes);
    }
    return RESHARD_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

reshard_status rs_header_parse(reshard_context *context, const char *what, char *text,
                               size_t text_bytes, uint64_t data_bytes, rs_header **out_header)
{
    rs_header *header = rs_allocate_zeroed(context, sizeof *header);
    if (header == NULL)
        return rs_allocation_status();
    rs_arena_init(&header->arena, context);
    rs_table_init(&header->shapes, context);
    header->text = text;
    header->data_begin = 8 + (uint64_t)text_bytes;
    header->data_bytes = data_bytes;
    reshard_status status = read_object(header, text, text_bytes);
    if (status == RESHARD_OK)
        status = check_places(header);
    if (status == RESHARD_OK)
        status = index_names(header);
    rs_table_release(&header->shapes);
    header->text = NULL; /* it belongs to the caller */
    if (status != RESHARD_OK) {
        rs_header_destroy(header);
        rs_error_add_subject(what, strlen(what));
        return rs_fail_within(status, "%s", what);
    }
    *out_header = header;
    return RESHARD_OK;
}

static reshard_status read_length(const rs_file *file, uint64_t at, uint64_t *out_header_bytes,
                                  uint64_t *out_data_bytes)
{
    unsigned char bytes[8];
    uint64_t file_bytes = 0, length = 0;
    const char *path = rs_file_path(file);
    reshard_status status = rs_file_size(file, &file_bytes);
    if (status != RESHARD_OK)
        return status;
    file_bytes -= at < file_bytes ? at : file_bytes;
    if (file_bytes < 8)
        return rs_fail_about(RESHARD_ERR_CORRUPT, path,
                             "%llu bytes are too few for a safetensors file",
                             (unsigned long long)file_bytes);
    status = rs_file_read(file, bytes, 8, at);
    if (status != RESHARD_OK)
        return status;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | bytes[i];
    if (length > RS_HEADER_BYTES_MAX)
        return rs_fail_about(RESHARD_ERR_CORRUPT, path,
                             "its header has %llu bytes; safetensors allows 100000000",
                             (unsigned long long)length);
    if (length > file_bytes - 8)
        return rs_fail_about(RESHARD_ERR_CORRUPT, path,
                             "its header has %llu bytes, but the file only %llu (it is truncated)",
                             (unsigned long long)length, (unsigned long long)file_bytes);
    *out_header_bytes = length;
    *out_data_bytes = file_bytes - 8 - length;
    return RESHARD_OK;
}

static void move_slice(rs_slice *slice, const char *from, const char *to)
{
    slice->bytes = to + (slice->bytes - from);
}

/* Keeps only the front of a header's text, where the decoded strings are: about half of it. */
static reshard_status keep_names(rs_header *header, const char *text)
{
    size_t bytes = header->text_bytes;
    header->text = rs_allocate(header->arena.context, bytes);
    if (header->text == NULL)
        return rs_allocation_status();
    memcpy(header->text, text, bytes);
    for (int64_t i = 0; i < header->entry_count; i++)
        move_slice(&header->entries[i].name, text, header->text);
    for (int64_t i = 0; i < header->metadata_count; i++) {
        move_slice(&header->metadata[i].key, text, header->text);
        move_slice(&header->metadata[i].value, text, header->text);
    }
    return RESHARD_OK;
}

reshard_status rs_header_read(reshard_context *context, const rs_file *file, rs_header **out_header)
{
    return rs_header_read_at(context, file, 0, out_header);
}

reshard_status rs_header_read_at(reshard_context *context, const rs_file *file, uint64_t at,
                                 rs_header **out_header)
{
    uint64_t header_bytes = 0, data_bytes = 0;
    rs_header *header = NULL;
    reshard_status status = read_length(file, at, &header_bytes, &data_bytes);
    if (status != RESHARD_OK)
        return status;
    char *text = rs_allocate(context, (size_t)header_bytes);
    if (text == NULL)
        return rs_allocation_status();
    status = rs_file_read(file, text, (size_t)header_bytes, at + 8);
    if (status == RESHARD_OK)
        status = rs_header_parse(context, rs_file_path(file), text, (size_t)header_bytes,
                                 data_bytes, &header);
    if (status == RESHARD_OK)
        status = keep_names(header, text);
    rs_release(context, text);
    if (status == RESHARD_OK)
        *out_header = header;
    else
        rs_header_destroy(header);
    return status;
}

void rs_header_drop_entries(rs_header *header)
{
    reshard_context *context = header->arena.context;
    rs_release(context, header->by_name);
    rs_release(context, header->entries);
    header->by_name = NULL;
    header->entries = NULL;
    header->entry_count = header->entry_capacity = 0;
}

void rs_header_destroy(rs_header *header)
{
    if (header == NULL)
        return;
    reshard_context *context = header->arena.context;
    rs_release(context, header->text);
    rs_header_drop_entries(header);
    rs_release(context, header->metadata);
    rs_arena_release(&header->arena);
    rs_release(context, header);
}

/* ---- asking ---------------------------------------------------------------------------------- */

int64_t rs_header_find(const rs_header *header, rs_slice name)
{
    rs_header_entry key = {.name = name}, *wanted = &key, **found = NULL;
    if (header->entry_count != 0)
        found = bsearch(&wanted, header->by_name, (size_t)header->entry_count, sizeof wanted,
                        compare_names);
    return found != NULL ? found - header->by_name : -1;
}

const rs_metadatum *rs_header_metadata(const rs_header *header, const char *key)
{
    for (int64_t i = header->metadata_count - 1; i >= 0; i--) {
        if (rs_slice_compare(header->metadata[i].key, rs_slice_of(key)) == 0)
            return &header->metadata[i];
    }
    return NULL;
}
