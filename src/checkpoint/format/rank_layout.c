/* SPDX-License-Identifier: Apache-2.0 */
/* rank_layout.c - reads the documents of rank files, and checks that they agree. */
#include "checkpoint/format/rank_layout.h"

#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/format/name_boxes.h"
#include "checkpoint/format/safetensors.h"
#include "spec/spec.h"
#include "text/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LAYOUT_VERSION 2

/* ---- meshes as text -------------------------------------------------------------------------- */

/* The mesh in front of the cuts of "tp=4: S(0)". */
static rs_slice cut_mesh(const char *spec)
{
    return (rs_slice){spec, strcspn(spec, ":")};
}

reshard_status rs_rank_layout_mesh(rs_arena *arena, reshard_mesh *mesh, rs_slice *out_text)
{
    reshard_spec *spec = NULL;
    size_t length = 0;
    char *text = NULL;
    reshard_status status = reshard_spec_create(arena->context, mesh, 0, NULL, &spec);
    if (status == RESHARD_OK)
        status = reshard_spec_text(spec, NULL, 0, &length);
    if (status == RESHARD_OK && (text = rs_arena_allocate(arena, length + 1)) == NULL)
        status = rs_allocation_status();
    if (status == RESHARD_OK)
        status = reshard_spec_text(spec, text, length + 1, &length);
    reshard_spec_release(spec);
    if (status == RESHARD_OK)
        *out_text = cut_mesh(text);
    return status;
}

/* ---- one document ---------------------------------------------------------------------------- */

/* A file's document, with its tensors not yet read. */
typedef struct document {
    uint64_t version, rank;
    bool has_version, has_rank;
    rs_slice mesh, conversion, rules;
    rs_slice groups; /* the text of the list */
} document;

static reshard_status read_text(rs_arena *arena, rs_json *json, rs_slice *out_text)
{
    rs_json_token token;
    reshard_status status = rs_json_expect(json, RS_JSON_STRING, "expected a text", &token);
    return status == RESHARD_OK ? rs_json_copy(&token, arena, out_text) : status;
}

static reshard_status read_number(rs_json *json, uint64_t *out_number, bool *out_has)
{
    rs_json_token token;
    reshard_status status = rs_json_next(json, &token);
    if (status == RESHARD_OK)
        status = rs_json_unsigned(json, &token, out_number);
    *out_has = status == RESHARD_OK;
    return status;
}

static reshard_status read_span(rs_json *json, rs_json_kind kind, const char *wanted,
                                rs_slice *out_text)
{
    rs_json_token token;
    reshard_status status = rs_json_expect(json, kind, wanted, &token);
    const char *begin = token.bytes;
    if (status == RESHARD_OK)
        status = rs_json_skip_rest(json, &token);
    if (status == RESHARD_OK)
        *out_text = (rs_slice){begin, (size_t)(json->bytes + json->at - begin)};
    return status;
}

static reshard_status read_member(rs_arena *arena, rs_json *json, const rs_json_token *key,
                                  document *found)
{
    if (rs_json_token_is(key, "version"))
        return read_number(json, &found->version, &found->has_version);
    if (rs_json_token_is(key, "rank"))
        return read_number(json, &found->rank, &found->has_rank);
    if (rs_json_token_is(key, "mesh"))
        return read_text(arena, json, &found->mesh);
    if (rs_json_token_is(key, "conversion"))
        return read_text(arena, json, &found->conversion);
    if (rs_json_token_is(key, "rules"))
        return read_text(arena, json, &found->rules);
    if (rs_json_token_is(key, "groups"))
        return read_span(json, RS_JSON_LIST_BEGIN, "groups is not a list", &found->groups);
    return rs_json_skip(json);
}

/* Looks for the version first, because in another version the other members may mean anything. */
static reshard_status check_version(rs_json json)
{
    rs_json_token token;
    uint64_t version = 0;
    bool has = false;
    reshard_status status =
        rs_json_expect(&json, RS_JSON_OBJECT_BEGIN, "expected an object", &token);
    while (status == RESHARD_OK && !has) {
        status = rs_json_next(&json, &token);
        if (status != RESHARD_OK || token.kind == RS_JSON_OBJECT_END)
            break;
        status = rs_json_token_is(&token, "version") ? read_number(&json, &version, &has)
                                                     : rs_json_skip(&json);
    }
    if (status == RESHARD_OK && !has)
        return rs_fail(RESHARD_ERR_SYNTAX, RS_LAYOUT_KEY ": has no version");
    if (status == RESHARD_OK && version != LAYOUT_VERSION)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       RS_LAYOUT_KEY ": has version %" PRIu64 ", and this release reads version %d",
                       version, LAYOUT_VERSION);
    return status;
}

static reshard_status read_document(reshard_checkpoint *checkpoint, int32_t file, rs_slice text,
                                    document *found)
{
    rs_json json;
    rs_json_token token;
    *found = (document){.rank = 0};
    if (text.bytes == NULL)
        return rs_fail_about(RESHARD_ERR_CORRUPT, checkpoint->files[file].name,
                             "does not say how it was split (" RS_LAYOUT_KEY
                             "), but other files do");
    rs_json_init(&json, RS_LAYOUT_KEY, text.bytes, text.count);
    reshard_status status = check_version(json);
    if (status == RESHARD_OK)
        status = rs_json_expect(&json, RS_JSON_OBJECT_BEGIN, "expected an object", &token);
    while (rs_json_next_member(&json, &token, &status))
        status = read_member(&checkpoint->arena, &json, &token, found);
    if (status == RESHARD_OK)
        status = rs_json_next(&json, &token);
    if (status == RESHARD_OK && (!found->has_rank || found->mesh.bytes == NULL ||
                                 found->conversion.bytes == NULL || found->groups.bytes == NULL))
        status = rs_fail(RESHARD_ERR_SYNTAX,
                         RS_LAYOUT_KEY ": rank, mesh, conversion or groups are missing");
    return rs_fail_within(status, "%s", checkpoint->files[file].name);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Reads a list of numbers of any length. */
static reshard_status read_shape(rs_arena *arena, rs_json *json, int32_t *out_ndim,
                                 const int64_t **out_shape)
{
    rs_json ahead = *json;
    rs_json_token token;
    int32_t ndim = 0;
    reshard_status status =
        rs_json_expect(&ahead, RS_JSON_LIST_BEGIN, "expected a list of numbers", &token);
    while (status == RESHARD_OK && (status = rs_json_next(&ahead, &token)) == RESHARD_OK &&
           token.kind == RS_JSON_NUMBER && ndim < INT32_MAX)
        ndim++;
    *out_ndim = ndim;
    return status == RESHARD_OK ? rs_safetensors_numbers(arena, json, ndim, out_shape) : status;
}

/* Reads shape, cuts and padding. *names: the text of the list of names. */
static reshard_status read_tensor(rs_arena *arena, rs_json *json, rs_rank_tensor *tensor,
                                  rs_slice *names)
{
    rs_json_token token;
    uint64_t zeros = 0;
    int32_t padded_ndim = 0;
    reshard_status status =
        rs_json_expect(json, RS_JSON_OBJECT_BEGIN, "expected an object", &token);
    while (rs_json_next_member(json, &token, &status)) {
        if (rs_json_token_is(&token, "shape"))
            status = read_shape(arena, json, &tensor->ndim, &tensor->shape);
        else if (rs_json_token_is(&token, "padded"))
            status = read_shape(arena, json, &padded_ndim, &tensor->padded);
        else if (rs_json_token_is(&token, "cuts"))
            status = read_text(arena, json, &tensor->cuts);
        else if (rs_json_token_is(&token, "zeros"))
            status = read_number(json, &zeros, &tensor->zeros);
        else if (rs_json_token_is(&token, "names"))
            status = read_span(json, RS_JSON_LIST_BEGIN, "names is not a list", names);
        else
            status = rs_json_skip(json);
    }
    if (status != RESHARD_OK)
        return status;
    bool fits = tensor->padded == NULL || padded_ndim == tensor->ndim;
    for (int32_t d = 0; fits && tensor->padded != NULL && d < tensor->ndim; d++)
        fits = tensor->shape != NULL && tensor->padded[d] >= tensor->shape[d];
    if (tensor->shape == NULL || tensor->cuts.bytes == NULL || !fits)
        return rs_json_fail(json, &token,
                            "the tensor has no shape or cuts, or a padded shape that does not fit");
    return RESHARD_OK;
}

typedef struct tensor_list {
    rs_arena *arena;
    rs_rank_layout *layout;
    rs_rank_tensor like; /* what the tensors with the next names have in common */
} tensor_list;

/* An rs_name_fn that adds a tensor. */
static reshard_status add_name(void *user, rs_slice name)
{
    tensor_list *list = user;
    rs_rank_layout *layout = list->layout;
    reshard_status status =
        rs_grow(list->arena->context, &layout->tensors, &layout->tensor_capacity,
                layout->tensor_count + 1, sizeof(rs_rank_tensor));
    if (status != RESHARD_OK)
        return status;
    layout->tensors[layout->tensor_count] = list->like;
    layout->tensors[layout->tensor_count++].name = name;
    return RESHARD_OK;
}

/* Reads the names of one group. There may be `most` tensors in all. */
static reshard_status read_names(tensor_list *list, rs_slice text, int64_t most)
{
    rs_json json;
    rs_json_token token;
    rs_json_init(&json, RS_LAYOUT_KEY, text.bytes, text.count);
    reshard_status status = rs_json_next(&json, &token); /* its kind is known */
    for (rs_json ahead = json; rs_json_next_member(&ahead, &token, &status); ahead = json)
        status =
            rs_name_box_read(list->arena, &json, most - list->layout->tensor_count, add_name, list);
    return status;
}

static reshard_status read_groups(tensor_list *list, rs_json *json, int64_t most)
{
    rs_json_token token;
    reshard_status status = rs_json_next(json, &token); /* its kind is known */
    for (rs_json ahead = *json; rs_json_next_member(&ahead, &token, &status); ahead = *json) {
        rs_slice names = {NULL, 0};
        list->like = (rs_rank_tensor){.ndim = 0};
        status = read_tensor(list->arena, json, &list->like, &names);
        if (status == RESHARD_OK && names.bytes == NULL)
            status = rs_json_fail(json, &token, "the group has no names");
        if (status == RESHARD_OK)
            status = read_names(list, names, most);
    }
    return status;
}

/* Reads all tensors and sorts them by name. */
static reshard_status read_all(reshard_checkpoint *checkpoint, const document *first, int64_t most,
                               rs_rank_layout *layout)
{
    tensor_list list = {.arena = &checkpoint->arena, .layout = layout};
    rs_json json;
    rs_json_init(&json, RS_LAYOUT_KEY, first->groups.bytes, first->groups.count);
    reshard_status status = read_groups(&list, &json, most);
    if (status == RESHARD_OK)
        rs_sort(layout->tensors, (size_t)layout->tensor_count, sizeof(rs_rank_tensor),
                rs_compare_slices);
    return status;
}

/* ---- all files ------------------------------------------------------------------------------- */

static reshard_status check_alike(const reshard_checkpoint *checkpoint, const document *first,
                                  const document *other, int32_t file)
{
    bool same_id = rs_slice_compare(first->conversion, other->conversion) == 0;
    if (same_id && rs_slice_compare(first->mesh, other->mesh) == 0 &&
        rs_slice_compare(first->groups, other->groups) == 0)
        return RESHARD_OK;
    return rs_fail_about(RESHARD_ERR_CORRUPT, checkpoint->path, "%s and %s %s",
                         checkpoint->files[0].name, checkpoint->files[file].name,
                         same_id ? "do not agree on how tensors are split"
                                 : "were written by different conversions");
}

static reshard_status place_rank(const reshard_checkpoint *checkpoint, const rs_rank_layout *layout,
                                 int32_t room, uint64_t rank, int32_t file)
{
    int32_t position =
        rank <= INT32_MAX ? reshard_mesh_position_of(layout->mesh, (int32_t)rank) : -1;
    if (position < 0)
        return rs_fail_about(RESHARD_ERR_CORRUPT, checkpoint->files[file].name,
                             "belongs to rank %" PRIu64 ", which %.*s does not have", rank,
                             rs_slice_shown(layout->mesh_text), layout->mesh_text.bytes);
    if (position >= room)
        return RESHARD_OK; /* files are missing, which read_ranks finds */
    if (layout->file_of[position] >= 0)
        return rs_fail_about(
            RESHARD_ERR_CORRUPT, checkpoint->path, "%s and %s both belong to rank %" PRIu64,
            checkpoint->files[layout->file_of[position]].name, checkpoint->files[file].name, rank);
    layout->file_of[position] = file;
    return RESHARD_OK;
}

/* Reads one document after the other. The first has already been read. */
static reshard_status read_ranks(reshard_checkpoint *checkpoint, const rs_slice *documents,
                                 const document *first, rs_rank_layout *layout)
{
    int32_t count = layout->mesh->size;
    /* However large the mesh claims to be, one place more than there are files shows that some are
     * missing. */
    int32_t room = count <= checkpoint->named_count ? count : checkpoint->named_count + 1;
    layout->file_of = rs_arena_allocate_array(&checkpoint->arena, (size_t)room, sizeof(int32_t));
    if (layout->file_of == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < room; i++)
        layout->file_of[i] = -1;
    for (int32_t i = 0; i < checkpoint->named_count; i++) {
        document found = *first;
        reshard_status status =
            i != 0 ? read_document(checkpoint, i, documents[i], &found) : RESHARD_OK;
        if (status == RESHARD_OK)
            status = check_alike(checkpoint, first, &found, i);
        if (status == RESHARD_OK)
            status = place_rank(checkpoint, layout, room, found.rank, i);
        if (status != RESHARD_OK)
            return status;
    }
    for (int32_t i = 0; i < room; i++) {
        if (layout->file_of[i] < 0)
            return rs_fail_about(RESHARD_ERR_GAP, checkpoint->path,
                                 "holds %d file%s of the %d ranks of %.*s; the file of rank %d is "
                                 "missing",
                                 (int)checkpoint->named_count,
                                 checkpoint->named_count != 1 ? "s" : "", (int)count,
                                 rs_slice_shown(layout->mesh_text), layout->mesh_text.bytes,
                                 (int)reshard_mesh_rank_at(layout->mesh, i));
    }
    return RESHARD_OK;
}

static reshard_status check_from(reshard_checkpoint *checkpoint, const char *from,
                                 const rs_rank_layout *layout)
{
    reshard_mesh *mesh = NULL;
    rs_slice text = {NULL, 0};
    if (from == NULL)
        return RESHARD_OK;
    reshard_status status = reshard_mesh_parse(checkpoint->context, from, &mesh);
    if (status == RESHARD_OK)
        status = rs_rank_layout_mesh(&checkpoint->arena, mesh, &text);
    reshard_mesh_release(mesh);
    if (status == RESHARD_OK && rs_slice_compare(text, layout->mesh_text) != 0)
        return rs_fail_about(RESHARD_ERR_INVALID, checkpoint->path,
                             "its files say that they were split over %.*s, not over %.100s",
                             rs_slice_shown(layout->mesh_text), layout->mesh_text.bytes, from);
    return status;
}

reshard_status rs_rank_layout_read(reshard_checkpoint *checkpoint, const rs_slice *documents,
                                   int64_t array_count, const char *from, rs_rank_layout *layout)
{
    document first;
    *layout = (rs_rank_layout){.mesh = NULL};
    reshard_status status = read_document(checkpoint, 0, documents[0], &first);
    if (status == RESHARD_OK)
        status = reshard_mesh_parse(checkpoint->context, first.mesh.bytes, &layout->mesh);
    if (status == RESHARD_OK)
        status = rs_rank_layout_mesh(&checkpoint->arena, layout->mesh, &layout->mesh_text);
    layout->conversion = first.conversion;
    layout->rules = first.rules;
    if (status == RESHARD_OK)
        status = check_from(checkpoint, from, layout);
    if (status == RESHARD_OK)
        status = read_ranks(checkpoint, documents, &first, layout);
    if (status == RESHARD_OK)
        status = rs_fail_within(read_all(checkpoint, &first, array_count, layout), "%s",
                                checkpoint->files[0].name);
    return status;
}

reshard_status rs_rank_layout_read_one(reshard_checkpoint *checkpoint, rs_slice text, int64_t most,
                                       rs_rank_layout *layout, int32_t *out_rank)
{
    document found;
    *layout = (rs_rank_layout){.mesh = NULL};
    reshard_status status = read_document(checkpoint, 0, text, &found);
    if (status == RESHARD_OK)
        status = reshard_mesh_parse(checkpoint->context, found.mesh.bytes, &layout->mesh);
    if (status == RESHARD_OK)
        status = rs_rank_layout_mesh(&checkpoint->arena, layout->mesh, &layout->mesh_text);
    if (status == RESHARD_OK)
        status = place_rank(checkpoint, layout, 0, found.rank, 0);
    if (status == RESHARD_OK)
        status = rs_fail_within(read_all(checkpoint, &found, most, layout), "%s",
                                checkpoint->files[0].name);
    if (status == RESHARD_OK)
        *out_rank = (int32_t)found.rank;
    return status;
}

void rs_rank_layout_release(rs_rank_layout *layout, reshard_context *context)
{
    reshard_mesh_release(layout->mesh);
    rs_release(context, layout->tensors);
    *layout = (rs_rank_layout){.mesh = NULL};
}

reshard_status rs_rank_layout_spec(const rs_rank_layout *layout, reshard_context *context,
                                   const rs_rank_tensor *tensor, reshard_spec **out_spec)
{
    size_t bytes = layout->mesh_text.count + tensor->cuts.count + 3;
    char *text = rs_allocate(context, bytes);
    if (text == NULL)
        return rs_allocation_status();
    (void)snprintf(text, bytes, "%.*s: %s", (int)layout->mesh_text.count, layout->mesh_text.bytes,
                   tensor->cuts.bytes);
    reshard_status status = reshard_spec_parse(context, text, out_spec);
    rs_release(context, text);
    return status;
}
