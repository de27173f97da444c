/* SPDX-License-Identifier: Apache-2.0 */
/* dcp_entry.c - opens entries of .distcp files. */
#include "checkpoint/dcp/dcp_entry.h"

#include "base/context.h"
#include "base/shape.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/torch/torch_files.h"
#include "text/text.h"

#include <assert.h>
#include <string.h>

/* Besides its data an entry has little: the records of a zip file, and a pickle. */
#define OVERHEAD_BYTES_MAX ((uint64_t)1 << 20)

/* ---- file bodies ----------------------------------------------------------------------------- */

typedef struct dcp_body {
    reshard_context *context;
    rs_header *header; /* of the safetensors file at header_at; NULL: not read yet */
    uint64_t header_at;
    /* by index into header->by_name: saved_offsets; NULL: the file does not say */
    const int64_t **offsets;
    int64_t value_count, value_capacity;
    rs_torch_file **values; /* their nodes are values of the checkpoint */
} dcp_body;

static void destroy_body(void *user)
{
    dcp_body *body = user;
    for (int64_t i = 0; i < body->value_count; i++)
        rs_torch_file_destroy(body->values[i]);
    rs_release(body->context, (void *)body->values);
    rs_header_destroy(body->header);
    rs_release(body->context, body);
}

/* The body of a file, made on first use. NULL if out of memory. */
static dcp_body *body_of(reshard_checkpoint *checkpoint, int32_t file)
{
    rs_stored_file *stored = &checkpoint->files[file];
    if (stored->body == NULL) {
        dcp_body *body = rs_allocate_zeroed(checkpoint->context, sizeof *body);
        if (body == NULL)
            return NULL;
        body->context = checkpoint->context;
        stored->body = body;
        stored->body_destroy = destroy_body;
    }
    return stored->body;
}

/* ---- entries that are one torch.save --------------------------------------------------------- */

static reshard_status fail_different(const rs_dcp_tensor *tensor, const rs_dcp_chunk *chunk,
                                     reshard_dtype dtype, int32_t ndim, const int64_t *shape)
{
    char found[256], wanted[256];
    rs_text text;
    rs_text_init(&text, found, sizeof found);
    rs_text_add_shape(&text, ndim, shape);
    rs_text_init(&text, wanted, sizeof wanted);
    rs_text_add_shape(&text, tensor->ndim, chunk->size);
    return rs_fail(RESHARD_ERR_CORRUPT, "the entry holds %s of %s, but the metadata says %s of %s",
                   reshard_dtype_name(dtype), found, reshard_dtype_name(tensor->dtype), wanted);
}

static bool is_described(const rs_dcp_tensor *tensor, const rs_dcp_chunk *chunk,
                         reshard_dtype dtype, int32_t ndim, const int64_t *shape)
{
    return dtype == tensor->dtype && ndim == tensor->ndim &&
           memcmp(shape, chunk->size, (size_t)ndim * sizeof(int64_t)) == 0;
}

static reshard_status read_saved(reshard_checkpoint *checkpoint, int32_t file, uint64_t at,
                                 uint64_t bytes, const rs_dcp_tensor *tensor,
                                 const rs_dcp_chunk *chunk, rs_occurrence *made)
{
    rs_torch_file *opened = NULL;
    rs_torch_tensor found;
    const rs_zip_member *member = NULL;
    size_t pickle_bytes = 0;
    reshard_status status =
        rs_torch_file_open(checkpoint->context, checkpoint->files[file].file, at, bytes, &opened);
    if (status != RESHARD_OK)
        return status;
    const rs_pickle_node *root = rs_pickle_root(rs_torch_file_pickle(opened, &pickle_bytes));
    if (rs_torch_kind_of(root) != RS_TORCH_TENSOR)
        status = rs_fail(RESHARD_ERR_CORRUPT, "the entry holds %s instead of a tensor",
                         rs_pickle_kind_text(root));
    if (status == RESHARD_OK)
        status = rs_torch_tensor_read(&checkpoint->arena, root, &found);
    if (status == RESHARD_OK && !is_described(tensor, chunk, found.dtype, found.ndim, found.shape))
        status = fail_different(tensor, chunk, found.dtype, found.ndim, found.shape);
    if (status == RESHARD_OK)
        status = rs_torch_file_place(opened, &found, &made->at, &member);
    if (status == RESHARD_OK && member != NULL)
        status = rs_fail(RESHARD_ERR_UNSUPPORTED,
                         "the entry is a compressed archive, which cannot be read in place");
    if (status == RESHARD_OK)
        made->strides = found.strides;
    if (status == RESHARD_OK)
        status = rs_torch_keep_crcs(checkpoint, file, opened);
    rs_torch_file_destroy(opened);
    return status;
}

/* ---- entries of one safetensors file --------------------------------------------------------- */

/* Reads {"saved_offsets": [..], ..}, which describes one entry. */
static reshard_status read_offsets(rs_arena *arena, rs_json *json, const rs_json_token *key,
                                   int64_t index, void *user)
{
    const dcp_body *body = user;
    rs_json_token token;
    reshard_status status =
        rs_json_expect(json, RS_JSON_OBJECT_BEGIN, "expected an object", &token);
    (void)key;
    while (rs_json_next_member(json, &token, &status)) {
        status = rs_json_token_is(&token, "saved_offsets")
                     ? rs_safetensors_numbers(arena, json, body->header->by_name[index]->ndim,
                                              &body->offsets[index])
                     : rs_json_skip(json);
    }
    return status;
}

static reshard_status read_header(reshard_checkpoint *checkpoint, int32_t file, dcp_body *body)
{
    const rs_file *opened = checkpoint->files[file].file;
    reshard_status status =
        rs_header_read_at(checkpoint->context, opened, body->header_at, &body->header);
    if (status != RESHARD_OK)
        return status;
    size_t count = (size_t)body->header->entry_count;
    body->offsets = rs_arena_allocate_array(&checkpoint->arena, count, sizeof *body->offsets);
    if (body->offsets == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        body->offsets[i] = NULL;
    return rs_header_document(&checkpoint->arena, body->header, "DCP_SHARDING_INFO", read_offsets,
                              body);
}

static reshard_status find_header(reshard_checkpoint *checkpoint, int32_t file, uint64_t at,
                                  dcp_body **out_body)
{
    dcp_body *body = body_of(checkpoint, file);
    reshard_status status = RESHARD_OK;
    if (body == NULL)
        return rs_allocation_status();
    if (body->header != NULL && body->header_at != at)
        return rs_fail(RESHARD_ERR_CORRUPT,
                       "the file holds several safetensors files; only one can be read");
    body->header_at = at;
    if (body->header == NULL)
        status = read_header(checkpoint, file, body);
    *out_body = body;
    return status;
}

/* Does the entry say that it is this chunk? One that says nothing is a whole tensor. */
static bool is_at(const int64_t *offset, int32_t ndim, const rs_dcp_chunk *chunk)
{
    bool is_same = true;
    for (int32_t d = 0; d < ndim; d++)
        is_same = is_same && (offset != NULL ? offset[d] : 0) == chunk->offset[d];
    return is_same;
}

/* The metadata gives all tensors of a file the same place, that of the safetensors file. Its writer
 * kept one chunk of each tensor and silently lost the others. */
static reshard_status read_safetensors(reshard_checkpoint *checkpoint, int32_t file, uint64_t at,
                                       const rs_dcp_tensor *tensor, const rs_dcp_chunk *chunk,
                                       rs_occurrence *made)
{
    dcp_body *body = NULL;
    reshard_status status = find_header(checkpoint, file, at, &body);
    if (status != RESHARD_OK)
        return status;
    int64_t index = rs_header_find(body->header, tensor->name);
    if (index < 0)
        return rs_fail(RESHARD_ERR_CORRUPT, "its safetensors file does not hold it");
    const rs_header_entry *entry = body->header->by_name[index];
    if (entry->dtype != tensor->dtype || entry->ndim != tensor->ndim)
        return fail_different(tensor, chunk, entry->dtype, entry->ndim, entry->shape);
    if (!is_at(body->offsets[index], entry->ndim, chunk) ||
        !is_described(tensor, chunk, entry->dtype, entry->ndim, entry->shape))
        return rs_fail(RESHARD_ERR_CORRUPT,
                       "this chunk was lost when it was saved: the safetensors file holds another "
                       "one of the tensor in its place");
    made->at = at + body->header->data_begin + entry->begin;
    return RESHARD_OK;
}

/* ---- all entries ----------------------------------------------------------------------------- */

static reshard_status check_inside(const reshard_checkpoint *checkpoint, const rs_dcp_entry *entry,
                                   int32_t file, uint64_t bytes)
{
    uint64_t size = checkpoint->files[file].bytes;
    if (entry->at <= size && bytes <= size - entry->at)
        return RESHARD_OK;
    return rs_fail(
        RESHARD_ERR_CORRUPT,
        "it would take %llu bytes from byte %llu on, but the file has only %llu; is it truncated?",
        (unsigned long long)bytes, (unsigned long long)entry->at, (unsigned long long)size);
}

/* Makes the content of a compressed entry a file of the checkpoint. */
static reshard_status unpack(rs_dcp_entries *entries, const rs_dcp_entry *entry,
                             uint64_t data_bytes, int32_t *file)
{
    reshard_checkpoint *checkpoint = entries->checkpoint;
    const rs_stored_file *packed = &checkpoint->files[*file];
    rs_file *content = NULL;
    uint64_t most = 0;
    if (__builtin_add_overflow(data_bytes, OVERHEAD_BYTES_MAX, &most))
        most = UINT64_MAX;
    reshard_status status =
        rs_unpack_zstd(entries->unpacking, packed->file, entry->at, entry->bytes, most, &content);
    return status == RESHARD_OK
               ? rs_store_add_file(checkpoint, rs_slice_of(packed->name), content, file)
               : status;
}

static reshard_status read_entry(rs_dcp_entries *entries, const rs_dcp_entry *entry, int32_t file,
                                 const rs_dcp_tensor *tensor, const rs_dcp_chunk *chunk,
                                 rs_occurrence *made)
{
    reshard_checkpoint *checkpoint = entries->checkpoint;
    uint64_t at = entry->at, bytes = entry->bytes, data_bytes = 0;
    char front[4];
    reshard_status status =
        rs_stored_bytes(tensor->name, tensor->dtype, tensor->ndim, chunk->size, &data_bytes);
    if (status == RESHARD_OK)
        status = check_inside(checkpoint, entry, file, entry->is_zstd ? bytes : sizeof front);
    if (status == RESHARD_OK && entry->is_zstd) {
        status = unpack(entries, entry, data_bytes, &file);
        at = 0;
        bytes = status == RESHARD_OK ? checkpoint->files[file].bytes : 0;
    }
    made->file = file;
    if (status == RESHARD_OK)
        status = rs_file_read(checkpoint->files[file].file, front, sizeof front, at);
    if (status != RESHARD_OK)
        return status;
    if (memcmp(front, "PK\3\4", sizeof front) != 0 && bytes == data_bytes)
        return read_safetensors(checkpoint, file, at, tensor, chunk, made);
    status = check_inside(checkpoint, &(rs_dcp_entry){.at = at}, file, bytes);
    return status == RESHARD_OK ? read_saved(checkpoint, file, at, bytes, tensor, chunk, made)
                                : status;
}

/* read_entry without opening the entry. Entries of a safetensors file all have its place, and only
 * the length of their own data. */
static reshard_status describe_entry(const reshard_checkpoint *checkpoint,
                                     const rs_dcp_entry *entry, int32_t file,
                                     const rs_dcp_tensor *tensor, const rs_dcp_chunk *chunk,
                                     rs_occurrence *made)
{
    uint64_t bytes = 0;
    made->file = file;
    made->at = entry->at;
    reshard_status status =
        rs_stored_bytes(tensor->name, tensor->dtype, tensor->ndim, chunk->size, &bytes);
    return status == RESHARD_OK ? check_inside(checkpoint, entry, file, entry->bytes) : status;
}

static reshard_status fail_entry(reshard_status status, const reshard_checkpoint *checkpoint,
                                 int32_t file, const rs_dcp_entry *entry)
{
    return rs_fail_within(status, "%s: the entry at byte %llu, tensor \"%.*s\"",
                          checkpoint->files[file].name, (unsigned long long)entry->at,
                          rs_slice_shown(entry->name), entry->name.bytes);
}

reshard_status rs_dcp_entry_read(rs_dcp_entries *entries, const rs_dcp_entry *entry, int32_t file,
                                 const rs_dcp_tensor *tensor, const rs_dcp_chunk *chunk,
                                 rs_occurrence *out_occurrence)
{
    rs_occurrence made = {.name = tensor->name,
                          .dtype = tensor->dtype,
                          .ndim = tensor->ndim,
                          .shape = chunk->size,
                          .offset = chunk->offset,
                          .full = tensor->shape,
                          .place = tensor->place};
    reshard_status status =
        entries->unopened ? describe_entry(entries->checkpoint, entry, file, tensor, chunk, &made)
                          : read_entry(entries, entry, file, tensor, chunk, &made);
    if (status == RESHARD_OK)
        *out_occurrence = made;
    return fail_entry(status, entries->checkpoint, file, entry);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Finds the node of a value that torch.save wrote. Any other value has no node and is kept as
 * bytes. */
static reshard_status open_value(reshard_checkpoint *checkpoint, rs_stored_value *value)
{
    dcp_body *body = body_of(checkpoint, value->file);
    rs_torch_file *opened = NULL;
    size_t bytes = 0;
    if (body == NULL)
        return rs_allocation_status();
    void *values = (void *)body->values;
    reshard_status status = rs_grow(body->context, &values, &body->value_capacity,
                                    body->value_count + 1, sizeof *body->values);
    body->values = values;
    if (status != RESHARD_OK)
        return status;
    status = rs_torch_file_open(body->context, checkpoint->files[value->file].file, value->at,
                                value->bytes, &opened);
    if (status == RESHARD_ERR_IO || status == RESHARD_ERR_NO_MEMORY)
        return status;
    if (status != RESHARD_OK)
        return RESHARD_OK;
    body->values[body->value_count++] = opened;
    value->node = rs_pickle_root(rs_torch_file_pickle(opened, &bytes));
    return rs_torch_describe(&checkpoint->arena, value);
}

/* Finds the bytes of an entry: in its own file, or unpacked in another one. */
static reshard_status find_bytes(rs_dcp_entries *entries, const rs_dcp_entry *entry, int32_t file,
                                 rs_stored_value *out_value)
{
    reshard_checkpoint *checkpoint = entries->checkpoint;
    rs_stored_value found = {.file = file, .at = entry->at, .bytes = entry->bytes};
    reshard_status status = check_inside(checkpoint, entry, file, entry->bytes);
    if (status == RESHARD_OK && entry->is_zstd) {
        status = unpack(entries, entry, RS_PICKLE_BYTES_MAX, &found.file);
        found.at = 0;
        found.bytes = status == RESHARD_OK ? checkpoint->files[found.file].bytes : 0;
    }
    *out_value = found;
    return status;
}

reshard_status rs_dcp_entry_keep(rs_dcp_entries *entries, const rs_dcp_entry *entry, int32_t file,
                                 const rs_dcp_tensor *named, const char *kind)
{
    reshard_checkpoint *checkpoint = entries->checkpoint;
    rs_stored_value value;
    reshard_status status = find_bytes(entries, entry, file, &value);
    value.name = named->name;
    value.place = named->place;
    value.kind = kind;
    if (status == RESHARD_OK && kind == NULL)
        status = open_value(checkpoint, &value);
    if (status == RESHARD_OK)
        status = rs_store_add_value(checkpoint, &value);
    return fail_entry(status, checkpoint, file, entry);
}

static reshard_status compare_bytes(const reshard_checkpoint *checkpoint, const rs_stored_value *a,
                                    const rs_stored_value *b, bool *out_same)
{
    reshard_status status = RESHARD_OK;
    bool is_same = a->bytes == b->bytes;
    for (uint64_t done = 0, part; is_same && done < a->bytes; done += part) {
        char here[4096], there[4096];
        part = a->bytes - done < sizeof here ? a->bytes - done : sizeof here;
        status = rs_file_read(checkpoint->files[a->file].file, here, (size_t)part, a->at + done);
        if (status == RESHARD_OK)
            status =
                rs_file_read(checkpoint->files[b->file].file, there, (size_t)part, b->at + done);
        is_same = status == RESHARD_OK && memcmp(here, there, (size_t)part) == 0;
    }
    *out_same = is_same;
    return status;
}

/* Archives of equal values can differ, for instance in dates, so this compares their nodes. A value
 * that refers to storages, whose bytes are not compared here, counts as different. */
static reshard_status compare_nodes(const reshard_checkpoint *checkpoint,
                                    const rs_stored_value *kept, const rs_stored_value *found,
                                    bool *out_same)
{
    rs_torch_file *opened = NULL;
    size_t bytes = 0, references = 0;
    *out_same = false;
    if (kept->node == NULL)
        return RESHARD_OK;
    reshard_status status = rs_torch_file_open(
        checkpoint->context, checkpoint->files[found->file].file, found->at, found->bytes, &opened);
    if (status == RESHARD_ERR_IO || status == RESHARD_ERR_NO_MEMORY)
        return status;
    if (status != RESHARD_OK)
        return RESHARD_OK;
    const rs_pickle *pickle = rs_torch_file_pickle(opened, &bytes);
    (void)rs_pickle_persistents(pickle, &references);
    *out_same = references == 0 && rs_pickle_equal(kept->node, rs_pickle_root(pickle));
    rs_torch_file_destroy(opened);
    return RESHARD_OK;
}

reshard_status rs_dcp_entry_is(rs_dcp_entries *entries, const rs_dcp_entry *entry, int32_t file,
                               const rs_stored_value *kept, bool *out_same)
{
    const reshard_checkpoint *checkpoint = entries->checkpoint;
    rs_stored_value found;
    bool is_same = false;
    reshard_status status = find_bytes(entries, entry, file, &found);
    if (status == RESHARD_OK)
        status = compare_bytes(checkpoint, kept, &found, &is_same);
    if (status == RESHARD_OK && !is_same)
        status = compare_nodes(checkpoint, kept, &found, &is_same);
    *out_same = is_same;
    return fail_entry(status, checkpoint, file, entry);
}
