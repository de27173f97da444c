/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_metadata.c - reads the tensors of a `.metadata`. dcp_objects.c knows how its objects are
 * written, dcp_places.c where chunks are stored.
 */
#include "checkpoint/dcp/dcp_metadata.h"

#include "base/context.h"
#include "base/search.h"
#include "base/sort.h"
#include "checkpoint/dcp/dcp_reading.h"
#include "checkpoint/torch/torch_values.h"

#include <assert.h>
#include <string.h>

#define COPIED_PER_BYTE 16
#define COPIED_FREE 4096
/* Shorter batches are not worth taking. */
#define TAKEN_MIN 64

typedef rs_dcp_reading reading;

/* ---- tensors --------------------------------------------------------------------------------- */

static reshard_status read_numbers(reading *r, const rs_pickle_node *node, int32_t ndim,
                                   const int64_t **out_numbers)
{
    int32_t count = 0;
    reshard_status status = rs_dcp_copy_numbers(r, node, &count, out_numbers);
    if (status == RESHARD_OK && count != ndim)
        status = rs_fail(RESHARD_ERR_CORRUPT, "there are %d numbers for %d dimensions", (int)count,
                         (int)ndim);
    return status;
}

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
                   "its layout is \"%.*s\"; only torch.strided can be read", RS_SHOWN(text));
}

/* The state of TensorProperties is a dict or, mostly, a tuple: dtype, layout, .. */
static reshard_status read_properties(const rs_pickle_node *node, reshard_dtype *out_dtype)
{
    if (!rs_dcp_is_of(node, "TensorProperties"))
        return rs_dcp_fail_kind(node, "TensorProperties");
    const rs_pickle_node *state = node->call->state;
    bool is_dict = rs_pickle_is(state, RS_PICKLE_DICT);
    reshard_status status =
        check_layout(is_dict ? rs_pickle_get(state, "layout") : rs_pickle_item(state, 1));
    if (status != RESHARD_OK)
        return status;
    return rs_torch_dtype_read(is_dict ? rs_pickle_get(state, "dtype") : rs_pickle_item(state, 0),
                               out_dtype);
}

/* Reads one chunk of *ndim dims; if that is -1, the chunk decides it. */
static reshard_status read_chunk(reading *r, const rs_pickle_node *node, int32_t *ndim,
                                 rs_dcp_chunk *chunk)
{
    if (!rs_dcp_is_again(node, "ChunkStorageMetadata", &r->chunk_class))
        return rs_dcp_fail_kind(node, "ChunkStorageMetadata");
    reshard_status status = RESHARD_OK;
    if (*ndim < 0)
        status = rs_dcp_copy_numbers(r, rs_dcp_field(node, "offsets"), ndim, &chunk->offset);
    else
        status = read_numbers(r, rs_dcp_field(node, "offsets"), *ndim, &chunk->offset);
    if (status == RESHARD_OK)
        status = read_numbers(r, rs_dcp_field(node, "sizes"), *ndim, &chunk->size);
    return status;
}

/* The first batch that was taken from a list. Batches of one list follow each other. */
static int64_t find_batches(const reading *r, const rs_pickle_node *list)
{
    int64_t at;
    RS_FIND_FIRST(at, r->batch_count, r->batches[at].list >= list->at);
    return at;
}

static bool is_batch_of(const reading *r, int64_t batch, const rs_pickle_node *list)
{
    return batch < r->batch_count && r->batches[batch].list == list->at;
}

static reshard_status read_chunks(reading *r, const rs_pickle_node *node, rs_dcp_tensor *tensor)
{
    if (!rs_pickle_is(node, RS_PICKLE_LIST))
        return rs_dcp_fail_kind(node, "a list of chunks");
    size_t kept = rs_pickle_count(node), count = kept;
    for (int64_t i = find_batches(r, node); is_batch_of(r, i, node); i++)
        count += (size_t)r->batches[i].count;
    reshard_status status = rs_dcp_spend(r, count);
    if (status != RESHARD_OK)
        return status;
    rs_dcp_chunk *chunks = rs_arena_allocate_array(r->arena, count, sizeof *chunks);
    if (chunks == NULL)
        return rs_allocation_status();
    for (size_t i = 0; status == RESHARD_OK && i < kept; i++)
        status = read_chunk(r, rs_pickle_item(node, i), &tensor->ndim, &chunks[i]);
    size_t at = kept;
    for (int64_t i = find_batches(r, node); status == RESHARD_OK && is_batch_of(r, i, node); i++) {
        const rs_dcp_batch *batch = &r->batches[i];
        if (batch->ndim != tensor->ndim)
            status = rs_fail(RESHARD_ERR_CORRUPT, "there are %d numbers for %d dimensions",
                             (int)batch->ndim, (int)tensor->ndim);
        memcpy(chunks + at, r->chunks + batch->first, (size_t)batch->count * sizeof *chunks);
        at += (size_t)batch->count;
    }
    tensor->chunks = chunks;
    tensor->chunk_count = (int64_t)count;
    return status;
}

/* Reads the keys that lead to a tensor in the nested state dict. */
static reshard_status read_path(reading *r, const rs_pickle_node *path, rs_value_place *place)
{
    size_t count = rs_pickle_count(path);
    if (path == NULL)
        return RESHARD_OK;
    if (!rs_pickle_is(path, RS_PICKLE_TUPLE) || count > RS_VALUE_STEPS_MAX)
        return rs_dcp_fail_kind(path, "a tuple of keys");
    for (size_t i = 0; i < count; i++) {
        rs_value_step step = {.parent = place->step};
        const rs_pickle_node *key = rs_pickle_item(path, i);
        rs_slice text;
        step.in_list = rs_pickle_int(key, &step.number);
        if (!step.in_list && !rs_pickle_text(key, &text))
            return rs_dcp_fail_kind(key, "a key");
        reshard_status status = rs_dcp_spend(r, 4);
        if (status == RESHARD_OK && !step.in_list)
            status = rs_dcp_copy_text(r, text, &step.key);
        place->step = status == RESHARD_OK ? rs_arena_copy(r->arena, &step, 1, sizeof step) : NULL;
        if (place->step == NULL)
            return status != RESHARD_OK ? status : rs_allocation_status();
    }
    return RESHARD_OK;
}

/* Keeps the error that a tensor is sparse, or of a dtype that is not known. The others are read. */
static reshard_status keep_reason(reading *r, rs_dcp_tensor *tensor)
{
    const char *text = reshard_error_text();
    tensor->dtype = RESHARD_DTYPE_NONE;
    tensor->unreadable = rs_arena_copy(r->arena, text, strlen(text) + 1, 1);
    return tensor->unreadable != NULL ? RESHARD_OK : rs_allocation_status();
}

static reshard_status read_tensor(reading *r, rs_slice name, const rs_pickle_node *node,
                                  rs_dcp_tensor *tensor)
{
    reshard_status status = rs_dcp_copy_text(r, name, &tensor->name);
    if (status == RESHARD_OK)
        status = read_path(r, rs_pickle_index_get(&r->paths, name), &tensor->place);
    if (status != RESHARD_OK || rs_dcp_is_of(node, "BytesStorageMetadata"))
        return status;
    if (!rs_dcp_is_of(node, "TensorStorageMetadata"))
        return rs_dcp_fail_kind(node, "TensorStorageMetadata or BytesStorageMetadata");
    status = read_properties(rs_dcp_field(node, "properties"), &tensor->dtype);
    if (status == RESHARD_ERR_UNSUPPORTED)
        status = keep_reason(r, tensor);
    if (status == RESHARD_OK)
        status = rs_dcp_copy_numbers(r, rs_dcp_field(node, "size"), &tensor->ndim, &tensor->shape);
    return status == RESHARD_OK ? read_chunks(r, rs_dcp_field(node, "chunks"), tensor) : status;
}

static reshard_status read_tensors(reading *r, const rs_pickle_node *dict)
{
    size_t count = rs_pickle_count(dict);
    if (!rs_pickle_is(dict, RS_PICKLE_DICT))
        return rs_dcp_fail_kind(dict, "the dict state_dict_metadata");
    rs_dcp_tensor *tensors = rs_arena_allocate_array(r->arena, count, sizeof *tensors);
    if (tensors == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        rs_slice name;
        tensors[i] = (rs_dcp_tensor){.place.order = (int64_t)i};
        if (!rs_pickle_text(dict->items.nodes[2 * i], &name))
            return rs_dcp_fail_kind(dict->items.nodes[2 * i], "the name of a tensor");
        reshard_status status = read_tensor(r, name, dict->items.nodes[2 * i + 1], &tensors[i]);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "tensor \"%.*s\"", RS_SHOWN(name));
    }
    rs_sort(tensors, count, sizeof *tensors, rs_compare_slices);
    for (size_t i = 1; i < count; i++) {
        if (rs_slice_compare(tensors[i - 1].name, tensors[i].name) == 0)
            return rs_fail(RESHARD_ERR_CORRUPT, "tensor \"%.*s\" occurs twice",
                           RS_SHOWN(tensors[i].name));
    }
    r->made.tensors = tensors;
    r->made.tensor_count = (int64_t)count;
    return RESHARD_OK;
}

/* ---- taking ---------------------------------------------------------------------------------- */

static reshard_status take_chunks(reading *r, const rs_pickle_node *list,
                                  const rs_pickle_node *const *items, size_t count)
{
    rs_dcp_batch batch = {
        .list = list->at, .ndim = -1, .first = r->chunk_count, .count = (int64_t)count};
    void *batches = r->batches, *chunks = r->chunks;
    reshard_status status = rs_grow(r->arena->context, &batches, &r->batch_capacity,
                                    r->batch_count + 1, sizeof *r->batches);
    r->batches = batches;
    if (status == RESHARD_OK)
        status = rs_grow(r->arena->context, &chunks, &r->chunk_capacity,
                         r->chunk_count + (int64_t)count, sizeof *r->chunks);
    r->chunks = chunks;
    for (size_t i = 0; status == RESHARD_OK && i < count; i++)
        status = read_chunk(r, items[i], &batch.ndim, &r->chunks[batch.first + (int64_t)i]);
    if (status != RESHARD_OK)
        return status;
    r->chunk_count += (int64_t)count;
    r->batches[r->batch_count++] = batch;
    return RESHARD_OK;
}

static reshard_status take_entries(reading *r, const rs_pickle_node *dict,
                                   const rs_pickle_node *const *items, size_t count)
{
    int64_t found = r->found_count;
    reshard_status status = RESHARD_OK;
    for (size_t i = 0; status == RESHARD_OK && i < count; i += 2)
        status = rs_dcp_find_entry(r, items[i], items[i + 1]);
    if (status == RESHARD_OK)
        r->dict = dict->at;
    else
        r->found_count = found;
    return status;
}

/* An rs_pickle_taker for chunks and entries. Batches with an error are not taken: the error is
 * found again, and reported, once the whole pickle has been read. */
static reshard_status take(void *user, const rs_pickle_node *container,
                           const rs_pickle_node *const *items, size_t count, bool *out_taken)
{
    reading *r = user;
    uint64_t left = r->left;
    reshard_status status = RESHARD_ERR_UNSUPPORTED;
    /* find_batches needs lists in the order of the pickle. Only a crafted file has them in
     * another. */
    if (container->kind == RS_PICKLE_LIST && rs_dcp_is_of(items[0], "ChunkStorageMetadata") &&
        (r->batch_count == 0 || r->batches[r->batch_count - 1].list <= container->at))
        status = take_chunks(r, container, items, count);
    else if (container->kind == RS_PICKLE_DICT && rs_dcp_is_of(items[0], "MetadataIndex") &&
             (r->dict == 0 || r->dict == container->at))
        status = take_entries(r, container, items, count);
    *out_taken = status == RESHARD_OK;
    if (status == RESHARD_ERR_NO_MEMORY || status == RESHARD_ERR_MEMORY_LIMIT)
        return status;
    if (!*out_taken)
        r->left = left;
    return RESHARD_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static reshard_status read_version(reading *r, const rs_pickle_node *node)
{
    rs_slice text, copy = {NULL, 0};
    if (!rs_pickle_text(node, &text))
        return RESHARD_OK; /* a development version of PyTorch wrote a float */
    reshard_status status = rs_dcp_copy_text(r, text, &copy);
    if (status == RESHARD_OK)
        r->made.version = copy.bytes;
    return status;
}

static reshard_status read_root(reading *r, const rs_pickle_node *root)
{
    if (!rs_dcp_is_of(root, "Metadata") && !rs_dcp_is_of(root, "MCoreMetadata"))
        return rs_dcp_fail_kind(root, "Metadata of torch.distributed.checkpoint");
    reshard_status status =
        rs_pickle_index_init(&r->paths, r->arena->context, rs_dcp_field(root, "planner_data"));
    if (status == RESHARD_OK)
        status = read_tensors(r, rs_dcp_field(root, "state_dict_metadata"));
    if (status == RESHARD_OK)
        status = rs_dcp_read_entries(r, rs_dcp_field(root, "storage_data"));
    if (status == RESHARD_OK)
        status = read_version(r, rs_dcp_field(root, "version"));
    return status;
}

static void release_reading(reading *r)
{
    reshard_context *context = r->arena->context;
    rs_pickle_index_release(&r->paths);
    rs_intern_release(&r->names);
    rs_intern_release(&r->files);
    rs_intern_release(&r->rows);
    rs_release(context, r->batches);
    rs_release(context, r->chunks);
    rs_release(context, r->found);
}

reshard_status rs_dcp_metadata_read(rs_arena *arena, const char *what, const char *bytes,
                                    size_t count, rs_dcp_metadata *out_metadata)
{
    reading r = {.arena = arena,
                 .left = COPIED_FREE + COPIED_PER_BYTE * (uint64_t)count,
                 .names.arena = arena,
                 .files.arena = arena,
                 .rows.arena = arena};
    const rs_pickle_taker taker = {take, &r, TAKEN_MIN};
    rs_pickle *pickle = NULL;
    size_t used = 0;
    reshard_status status =
        rs_pickle_read_taking(arena->context, what, bytes, count, &taker, &pickle, &used);
    if (status == RESHARD_OK) {
        status = read_root(&r, rs_pickle_root(pickle));
        if (status != RESHARD_OK)
            rs_error_add_subject(what, strlen(what));
        status = rs_fail_within(status, "%s", what);
    }
    if (status == RESHARD_OK)
        *out_metadata = r.made;
    rs_pickle_destroy(pickle);
    release_reading(&r);
    return status;
}
