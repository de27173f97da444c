/* SPDX-License-Identifier: Apache-2.0 */
/* item_metadata.c - reads the dicts of metadata.pkl. How a tensor is distributed is read only when
 * a rank asks for it. */
#include "checkpoint/torch/item_metadata.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "base/sort.h"
#include "checkpoint/archive/zip.h"
#include "text/json.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METADATA_BYTES_MAX ((size_t)1 << 30)
/* Shared dicts are read each time, so a small pickle could stand for a huge list. These limit the
 * bytes of names by the bytes of the pickle. */
#define MADE_PER_BYTE 16
#define MADE_FREE 65536

typedef struct reading {
    rs_arena *arena;
    rs_item_metadata *made;
    uint64_t left; /* budget of name bytes that may still be made */
} reading;

static reshard_status spend(reading *r, size_t amount)
{
    if (amount > r->left)
        return rs_fail(RESHARD_ERR_RANGE, "its values are shared so often that they would take "
                                          "much more room than the file");
    r->left -= amount;
    return RESHARD_OK;
}

static reshard_status fail_kind(const rs_pickle_node *node, const char *wanted)
{
    return rs_fail(RESHARD_ERR_CORRUPT, "%s where %s should be", rs_pickle_kind_text(node), wanted);
}

/* Copies the name of an item, because it outlives the pickle. */
static reshard_status read_item(reading *r, const rs_pickle_node *node, rs_slice *out_item)
{
    rs_slice text;
    if (!rs_pickle_text(node, &text))
        return fail_kind(node, "the name of an item");
    reshard_status status = spend(r, text.count + 1);
    if (status != RESHARD_OK)
        return status;
    char *copy = rs_arena_allocate(r->arena, text.count + 1);
    if (copy == NULL)
        return rs_allocation_status();
    memcpy(copy, text.bytes, text.count);
    copy[text.count] = '\0';
    *out_item = (rs_slice){copy, text.count};
    return RESHARD_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

static reshard_status read_body(const rs_pickle_node *format, rs_item_body *out_body)
{
    static const struct {
        const char *name;
        rs_item_body body;
    } rows[] = {
        {"TorchSerialization", RS_ITEM_TORCH},
        {"SafetensorsSerialization", RS_ITEM_SAFETENSORS},
        {"JsonSerialization", RS_ITEM_OTHER},
        {"RawSerialization", RS_ITEM_OTHER},
    };
    rs_slice type;
    if (!rs_pickle_text(rs_pickle_get(format, "type"), &type))
        return fail_kind(rs_pickle_get(format, "type"), "the name of a serialization format");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rs_slice_equals(type, rows[i].name)) {
            *out_body = rows[i].body;
            return RESHARD_OK;
        }
    }
    return rs_fail(RESHARD_ERR_UNSUPPORTED,
                   "the file has the serialization format \"%.*s\", which cannot be read",
                   rs_slice_shown(type), type.bytes);
}

/* Adds the file of one rank. Without a layout it is a torch.save file, named after item and
 * rank. */
static reshard_status add_file(reading *r, rs_slice item, const rs_pickle_node *rank,
                               const rs_pickle_node *layout)
{
    rs_item_file file = {.item = item, .body = RS_ITEM_TORCH};
    rs_slice path = {NULL, 0};
    int64_t number = -1;
    if (!rs_pickle_int(rank, &number) || number < 0 || number > INT32_MAX)
        return fail_kind(rank, "the number of a rank");
    file.rank = (int32_t)number;
    bool is_told = layout != NULL && !rs_pickle_is(layout, RS_PICKLE_NONE);
    if (is_told && !rs_pickle_text(rs_pickle_get(layout, "file_path"), &path))
        return fail_kind(rs_pickle_get(layout, "file_path"), "the name of a file");
    size_t room = is_told ? path.count + 1 : item.count + 16;
    reshard_status status = spend(r, room);
    char *text = status == RESHARD_OK ? rs_arena_allocate(r->arena, room) : NULL;
    if (text == NULL)
        return status != RESHARD_OK ? status : rs_allocation_status();
    if (is_told)
        (void)snprintf(text, room, "%.*s", (int)path.count, path.bytes);
    else
        (void)snprintf(text, room, "%.*s_%d.pt", (int)item.count, item.bytes, (int)file.rank);
    path = is_told ? path : rs_slice_of(text);
    const char *fault = rs_zip_name_fault(path);
    if (fault != NULL)
        return rs_fail(RESHARD_ERR_CORRUPT, "the file \"%.*s\": %s", rs_slice_shown(path),
                       path.bytes, fault);
    file.path = text;
    if (is_told)
        status = read_body(rs_pickle_get(layout, "serialization_format"), &file.body);
    if (status == RESHARD_OK)
        status = rs_grow(r->made->context, &r->made->files, &r->made->file_capacity,
                         r->made->file_count + 1, sizeof file);
    if (status == RESHARD_OK)
        r->made->files[r->made->file_count++] = file;
    return status;
}

/* Reads {rank: layout} or, in version 1.0 (item NULL), {rank: {item: layout}}. */
static reshard_status add_files(reading *r, const rs_pickle_node *dict, const rs_slice *item)
{
    reshard_status status = RESHARD_OK;
    if (!rs_pickle_is(dict, RS_PICKLE_DICT))
        return fail_kind(dict, "a dict of ranks");
    for (size_t i = 0; status == RESHARD_OK && i < rs_pickle_count(dict); i++) {
        const rs_pickle_node *rank = dict->items.nodes[2 * i],
                             *value = dict->items.nodes[2 * i + 1];
        if (item != NULL) {
            status = add_file(r, *item, rank, value);
            continue;
        }
        if (!rs_pickle_is(value, RS_PICKLE_DICT))
            return fail_kind(value, "a dict of items");
        for (size_t k = 0; status == RESHARD_OK && k < rs_pickle_count(value); k++) {
            rs_slice name;
            status = read_item(r, value->items.nodes[2 * k], &name);
            if (status == RESHARD_OK)
                status = add_file(r, name, rank, value->items.nodes[2 * k + 1]);
        }
    }
    return status;
}

static int compare_files(const void *a, const void *b)
{
    const rs_item_file *x = a, *y = b;
    int order = rs_slice_compare(x->item, y->item);
    return order != 0 ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

static reshard_status sort_files(rs_item_metadata *made)
{
    rs_sort(made->files, (size_t)made->file_count, sizeof *made->files, compare_files);
    for (int64_t i = 1; i < made->file_count; i++) {
        if (compare_files(&made->files[i - 1], &made->files[i]) == 0)
            return rs_fail(RESHARD_ERR_CORRUPT, "item \"%.*s\" has two files of rank %d",
                           rs_slice_shown(made->files[i].item), made->files[i].item.bytes,
                           (int)made->files[i].rank);
    }
    return RESHARD_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Makes a name of a path, which is a JSON list of keys and list indices. */
static reshard_status join_path(reading *r, const rs_slice *item, rs_slice path, rs_slice *out_name)
{
    size_t room = path.count + (item != NULL ? item->count : 0) + 2, count = 0;
    rs_json json;
    rs_json_token token;
    reshard_status status = spend(r, room);
    char *name = status == RESHARD_OK ? rs_arena_allocate(r->arena, room) : NULL;
    if (name == NULL)
        return status != RESHARD_OK ? status : rs_allocation_status();
    if (item != NULL) {
        memcpy(name, item->bytes, item->count);
        count = item->count;
    }
    rs_json_init(&json, "a path", path.bytes, path.count);
    status = rs_json_expect(&json, RS_JSON_LIST_BEGIN, "expected a list of keys", &token);
    while (rs_json_next_member(&json, &token, &status)) {
        if (token.kind != RS_JSON_STRING && token.kind != RS_JSON_NUMBER)
            return rs_json_fail(&json, &token, "expected a key");
        if (count != 0)
            name[count++] = '.';
        if (token.kind == RS_JSON_STRING) {
            count += rs_json_decode(&token, name + count);
        } else {
            memcpy(name + count, token.bytes, token.count);
            count += token.count;
        }
    }
    if (status == RESHARD_OK)
        status = rs_json_next(&json, &token);
    assert(count < room); /* the path's brackets, quotes and commas outnumber the dots */
    name[count] = '\0';
    *out_name = (rs_slice){name, count};
    return status;
}

static reshard_status add_tensors(reading *r, const rs_pickle_node *dict, const rs_slice *item)
{
    reshard_status status = RESHARD_OK;
    if (!rs_pickle_is(dict, RS_PICKLE_DICT))
        return fail_kind(dict, "a dict of paths");
    for (size_t i = 0; status == RESHARD_OK && i < rs_pickle_count(dict); i++) {
        rs_item_tensor tensor = {.groups = dict->items.nodes[2 * i + 1]};
        rs_slice path;
        if (!rs_pickle_text(dict->items.nodes[2 * i], &path))
            return fail_kind(dict->items.nodes[2 * i], "a path");
        status = join_path(r, item, path, &tensor.name);
        if (status == RESHARD_OK)
            status = rs_grow(r->made->context, &r->made->tensors, &r->made->tensor_capacity,
                             r->made->tensor_count + 1, sizeof tensor);
        if (status == RESHARD_OK)
            r->made->tensors[r->made->tensor_count++] = tensor;
    }
    return status;
}

static reshard_status sort_tensors(rs_item_metadata *made)
{
    rs_sort(made->tensors, (size_t)made->tensor_count, sizeof *made->tensors, rs_compare_slices);
    for (int64_t i = 1; i < made->tensor_count; i++) {
        rs_slice name = made->tensors[i].name;
        if (rs_compare_slices(&made->tensors[i - 1], &made->tensors[i]) == 0)
            return rs_fail(RESHARD_ERR_CORRUPT, "two tensors would have the name \"%.*s\"",
                           rs_slice_shown(name), name.bytes);
    }
    return RESHARD_OK;
}

rs_item_tensor *rs_item_metadata_find(const rs_item_metadata *metadata, rs_slice name)
{
    const rs_item_tensor wanted = {.name = name};
    return metadata->tensor_count == 0
               ? NULL
               : bsearch(&wanted, metadata->tensors, (size_t)metadata->tensor_count, sizeof wanted,
                         rs_compare_slices);
}

/* ---- shares ---------------------------------------------------------------------------------- */

static bool holds_rank(const rs_pickle_node *ranks, int32_t rank)
{
    int64_t number;
    for (size_t i = 0; i < rs_pickle_count(ranks); i++) {
        if (rs_pickle_int(rs_pickle_item(ranks, i), &number) && number == rank)
            return true;
    }
    return false;
}

/* Finds the description of the tensor for a rank; NULL if there is none. Mostly there is one group
 * for all ranks; then the mesh tells whether the rank is among them. */
static const rs_pickle_node *find_description(const rs_item_tensor *tensor, int32_t rank)
{
    size_t count = rs_pickle_count(tensor->groups);
    for (size_t i = 0; i < count; i++) {
        const rs_pickle_node *group = rs_pickle_item(tensor->groups, i);
        if (count == 1 || holds_rank(rs_pickle_get(group, "ranks"), rank))
            return rs_pickle_get(group, "sharding_metadata");
    }
    return NULL;
}

static reshard_status find_coordinate(rs_arena *arena, const rs_pickle_node *spec,
                                      rs_torch_rank *owner)
{
    const rs_pickle_node *data = rs_pickle_get(spec, "mesh_data");
    const int64_t *sizes = NULL;
    int32_t axes = 0;
    int64_t at = 0, rank = -1, count = (int64_t)rs_pickle_count(data);
    if (spec != NULL && spec == owner->mesh_node)
        return RESHARD_OK;
    reshard_status status =
        rs_torch_numbers(arena, rs_pickle_get(spec, "mesh_shape"), &axes, &sizes);
    if (status != RESHARD_OK)
        return status;
    if (axes < 1 || axes > RS_TORCH_AXES_MAX)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "its mesh has %d axes", (int)axes);
    if (!rs_shape_fits(axes, sizes) || rs_volume(axes, sizes) != count || count == 0)
        return rs_fail(RESHARD_ERR_CORRUPT,
                       "the number of ranks in its mesh does not match its axes");
    for (; at < count; at++) {
        if (rs_pickle_int(rs_pickle_item(data, (size_t)at), &rank) && rank == owner->rank)
            break;
    }
    if (at == count)
        return rs_fail(RESHARD_ERR_CORRUPT, "its mesh does not hold rank %d, whose file this is",
                       (int)owner->rank);
    owner->mesh.axis_count = axes;
    for (int32_t i = axes - 1; i >= 0; i--) {
        owner->mesh.sizes[i] = sizes[i];
        owner->mesh.coordinate[i] = at % sizes[i];
        at /= sizes[i];
    }
    owner->mesh_node = spec;
    return RESHARD_OK;
}

static reshard_status read_placement(const rs_pickle_node *node, rs_torch_placement *made)
{
    rs_slice type = {"", 0};
    int64_t dim = 0;
    (void)rs_pickle_text(rs_pickle_get(node, "type"), &type);
    *made = (rs_torch_placement){.kind = RS_TORCH_REPLICATE};
    if (rs_slice_equals(type, "Replicate"))
        return RESHARD_OK;
    bool is_strided = rs_slice_equals(type, "StridedShard");
    if (!is_strided && !rs_slice_equals(type, "Shard"))
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "its placement \"%.*s\" is unknown",
                       rs_slice_shown(type), type.bytes);
    made->kind = is_strided ? RS_TORCH_STRIDED : RS_TORCH_SHARD;
    if (!rs_pickle_int(rs_pickle_get(node, "dim"), &dim) || dim < 0 || dim >= RESHARD_NDIM_MAX)
        return rs_fail(RESHARD_ERR_CORRUPT, "its placement does not say along which dimension");
    if (is_strided && !rs_pickle_int(rs_pickle_get(node, "split_factor"), &made->factor))
        return rs_fail(RESHARD_ERR_CORRUPT, "its placement does not say its split factor");
    made->dim = (int32_t)dim;
    return RESHARD_OK;
}

static reshard_status read_cuts(const rs_pickle_node *list, const rs_torch_mesh *mesh,
                                rs_item_share *share)
{
    reshard_status status = RESHARD_OK;
    if (rs_pickle_count(list) != (size_t)mesh->axis_count)
        return rs_fail(RESHARD_ERR_CORRUPT, "its mesh has %d axes, but there are %zu placements",
                       (int)mesh->axis_count, rs_pickle_count(list));
    for (int32_t i = 0; status == RESHARD_OK && i < mesh->axis_count; i++)
        status = read_placement(rs_pickle_item(list, (size_t)i), &share->cuts.placements[i]);
    if (status == RESHARD_OK)
        status = rs_torch_cuts_order(mesh, share->ndim, &share->cuts);
    for (int32_t i = 0; status == RESHARD_OK && i < mesh->axis_count; i++) {
        const rs_torch_placement *a = &share->cuts.placements[i];
        for (int32_t k = i + 1; k < mesh->axis_count; k++) {
            const rs_torch_placement *b = &share->cuts.placements[k];
            share->cuts_again =
                share->cuts_again || (a->kind == RS_TORCH_SHARD && b->kind == RS_TORCH_SHARD &&
                                      a->dim == b->dim && mesh->sizes[i] > 1 && mesh->sizes[k] > 1);
        }
    }
    return status;
}

reshard_status rs_item_tensor_share(rs_arena *arena, const rs_item_tensor *tensor,
                                    rs_torch_rank *owner, rs_item_share *out_share,
                                    bool *out_is_there)
{
    const rs_pickle_node *described = find_description(tensor, owner->rank);
    const rs_pickle_node *data = rs_pickle_get(described, "data");
    rs_item_share share = {.ndim = 0};
    rs_slice type = {"", 0}, dtype = {"", 0};
    *out_is_there = described != NULL;
    if (described == NULL)
        return RESHARD_OK;
    (void)rs_pickle_text(rs_pickle_get(described, "type"), &type);
    if (!rs_slice_equals(type, "DTensorShardingMetadata"))
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "is described by \"%.*s\", which is unknown",
                       rs_slice_shown(type), type.bytes);
    if (!rs_pickle_text(rs_pickle_get(data, "dtype"), &dtype))
        return fail_kind(rs_pickle_get(data, "dtype"), "the name of a dtype");
    reshard_status status = rs_torch_dtype_parse(dtype, &share.dtype);
    if (status == RESHARD_OK)
        status =
            rs_torch_numbers(arena, rs_pickle_get(data, "global_shape"), &share.ndim, &share.full);
    if (status == RESHARD_OK &&
        (!rs_shape_fits(share.ndim, share.full) || share.ndim > RESHARD_NDIM_MAX))
        status = rs_fail(RESHARD_ERR_RANGE, "its size goes beyond 63 bits or 8 dimensions");
    if (status == RESHARD_OK)
        status = find_coordinate(arena, rs_pickle_get(data, "mesh_spec"), owner);
    if (status == RESHARD_OK)
        status = read_cuts(rs_pickle_get(data, "placements"), &owner->mesh, &share);
    if (status == RESHARD_OK)
        *out_share = share;
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static reshard_status read_items(reading *r, const rs_pickle_node *dict)
{
    reshard_status status = RESHARD_OK;
    for (size_t i = 0; status == RESHARD_OK && i < rs_pickle_count(dict); i++) {
        const rs_pickle_node *value = dict->items.nodes[2 * i + 1];
        rs_slice item;
        status = read_item(r, dict->items.nodes[2 * i], &item);
        if (status != RESHARD_OK)
            return status;
        status = add_tensors(r, rs_pickle_get(value, "nested_path_to_metadata"), &item);
        if (status == RESHARD_OK)
            status = add_files(r, rs_pickle_get(value, "rank_to_layout_info"), &item);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "item \"%.*s\"", rs_slice_shown(item), item.bytes);
    }
    return status;
}

static reshard_status read_root(reading *r, const rs_pickle_node *root)
{
    const rs_pickle_node *items = rs_pickle_get(root, "metadata");
    rs_slice version = rs_slice_of("1.0");
    reshard_status status = RESHARD_OK;
    if (!rs_pickle_is(items, RS_PICKLE_DICT))
        return fail_kind(items, "the dict metadata");
    (void)rs_pickle_text(rs_pickle_get(root, "version"), &version);
    bool is_first = rs_slice_equals(version, "1.0");
    if (!is_first && !rs_slice_equals(version, "2.0"))
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "has version \"%.*s\"; 1.0 and 2.0 can be read",
                       rs_slice_shown(version), version.bytes);
    if (is_first) {
        status = add_tensors(r, items, NULL);
        if (status == RESHARD_OK)
            status = add_files(r, rs_pickle_get(root, "rank_to_layout_info_mappings"), NULL);
    } else {
        status = read_items(r, items);
    }
    if (status == RESHARD_OK)
        status = sort_files(r->made);
    return status == RESHARD_OK ? sort_tensors(r->made) : status;
}

static reshard_status open_pickle(const char *path, rs_item_metadata *made)
{
    char *bytes = NULL;
    size_t count = 0, used = 0;
    reshard_status status =
        rs_file_read_all(made->context, path, METADATA_BYTES_MAX, &bytes, &count);
    if (status != RESHARD_OK)
        return status;
    made->bytes = bytes;
    made->byte_count = count;
    return rs_pickle_read(made->context, path, bytes, count, &made->pickle, &used);
}

reshard_status rs_item_metadata_is(reshard_context *context, const char *path, bool *out_is)
{
    rs_item_metadata found = {.context = context};
    reshard_status status = open_pickle(path, &found);
    const rs_pickle_node *root = status == RESHARD_OK ? rs_pickle_root(found.pickle) : NULL;
    *out_is = rs_pickle_is(root, RS_PICKLE_DICT) && rs_pickle_get(root, "metadata") != NULL &&
              rs_pickle_get(root, "world_size") != NULL;
    rs_item_metadata_release(&found);
    return status == RESHARD_ERR_IO || status == RESHARD_ERR_NO_MEMORY ? status : RESHARD_OK;
}

reshard_status rs_item_metadata_read(rs_arena *arena, const char *path,
                                     rs_item_metadata *out_metadata)
{
    *out_metadata = (rs_item_metadata){.context = arena->context};
    reading r = {.arena = arena, .made = out_metadata};
    reshard_status status = open_pickle(path, out_metadata);
    if (status != RESHARD_OK)
        return status;
    r.left = MADE_FREE + MADE_PER_BYTE * (uint64_t)out_metadata->byte_count;
    status = read_root(&r, rs_pickle_root(out_metadata->pickle));
    if (status != RESHARD_OK)
        rs_error_add_subject(path, strlen(path));
    return rs_fail_within(status, "%s", path);
}

void rs_item_metadata_release(rs_item_metadata *metadata)
{
    reshard_context *context = metadata->context;
    rs_pickle_destroy(metadata->pickle);
    rs_release(context, metadata->bytes);
    rs_release(context, metadata->files);
    rs_release(context, metadata->tensors);
    *metadata = (rs_item_metadata){.context = context};
}
