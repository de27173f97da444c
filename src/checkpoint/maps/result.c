/* SPDX-License-Identifier: Apache-2.0 */
/* result.c - resolves a map, and answers what came out. */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "base/shape.h"
#include "checkpoint/maps/resolve.h"
#include "checkpoint/rules/config.h"

#include <inttypes.h>
#include <string.h>

/* ---- making ---------------------------------------------------------------------------------- */

/* Copies the name of a line's file, which the result keeps. Neighbours are mostly of one file. */
static const char *keep_file(rs_map_resolver *r, const char *name)
{
    if (r->file != name) {
        r->file_kept = rs_arena_copy(&r->result->arena, name, strlen(name) + 1, 1);
        r->file = name;
    }
    return r->file_kept;
}

reshard_status rs_map_add_target(rs_map_resolver *r, const rs_map_line *line,
                                 const reshard_map_target *target)
{
    reshard_map_result *result = r->result;
    void **found = rs_table_at(&r->made, target->name, strlen(target->name));
    if (found == NULL)
        return rs_allocation_status();
    if (*found != NULL)
        return rs_map_fail_line(line, RESHARD_ERR_INVALID, "\"%.200s\" is already made by line %d",
                                target->name, (int)result->targets[(intptr_t)*found - 1].line);
    if (target->ndim > 0 && !rs_shape_fits(target->ndim, target->shape))
        return rs_map_fail_line(line, RESHARD_ERR_RANGE, "\"%.200s\" has more than 2^63-1 elements",
                                target->name);
    if (result->target_count == RS_MAP_EXPANSION_MAX)
        return rs_map_fail_line(line, RESHARD_ERR_RANGE,
                                "the map makes more than %" PRId64 " tensors",
                                RS_MAP_EXPANSION_MAX);
    reshard_status status = rs_grow(result->context, &result->targets, &result->target_capacity,
                                    result->target_count + 1, sizeof *result->targets);
    if (status != RESHARD_OK)
        return status;
    result->targets[result->target_count] = *target;
    result->targets[result->target_count++].file = keep_file(r, line->file_name);
    *found = (void *)(intptr_t)result->target_count;
    return r->file_kept != NULL ? RESHARD_OK : rs_allocation_status();
}

reshard_status rs_map_add_link(rs_map_resolver *r, const rs_map_link *link)
{
    reshard_map_result *result = r->result;
    if (result->link_count == RS_MAP_EXPANSION_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "the map makes more than %" PRId64 " links",
                       RS_MAP_EXPANSION_MAX);
    reshard_status status = rs_grow(result->context, &result->links, &result->link_capacity,
                                    result->link_count + 1, sizeof *result->links);
    if (status == RESHARD_OK)
        result->links[result->link_count++] = *link;
    return status;
}

static reshard_status take_source(rs_map_resolver *r, int64_t index,
                                  const reshard_map_tensor *given)
{
    rs_map_source *made = &r->result->sources[index];
    size_t bytes = strlen(given->name);
    if (bytes >= RS_MAP_NAME_BYTES_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "the name has %zu bytes; at most %d are allowed", bytes,
                       RS_MAP_NAME_BYTES_MAX - 1);
    if (given->ndim < 0 || given->ndim > RESHARD_NDIM_MAX ||
        !rs_shape_fits(given->ndim, given->shape))
        return rs_fail(RESHARD_ERR_RANGE,
                       "\"%.200s\": maps take tensors of up to %d dimensions and 2^63-1 elements",
                       given->name, RESHARD_NDIM_MAX);
    made->name = (rs_slice){rs_arena_copy(&r->result->arena, given->name, bytes + 1, 1), bytes};
    made->dtype = given->dtype;
    made->ndim = given->ndim;
    made->shape =
        rs_arena_copy(&r->result->arena, given->shape, (size_t)given->ndim, sizeof *given->shape);
    made->volume = rs_volume(given->ndim, given->shape);
    void **found = made->name.bytes != NULL ? rs_table_at(&r->names, given->name, bytes) : NULL;
    if (made->shape == NULL || found == NULL)
        return rs_allocation_status();
    if (*found != NULL)
        return rs_fail(RESHARD_ERR_INVALID, "two tensors are called \"%.200s\"", given->name);
    *found = (void *)(intptr_t)(index + 1);
    r->claims[index].line = -1;
    return RESHARD_OK;
}

/* Evaluates `for` and `let`, each of which may use earlier names of `let`. A $key without a value
 * leaves them open. */
static reshard_status read_names(rs_map_resolver *r)
{
    const reshard_map *map = r->map;
    rs_map_words words = {r, NULL, 0, NULL};
    rs_number_scope scope = rs_map_scope(&words);
    for (int32_t i = 0; i < RS_MAP_NAMES_MAX; i++)
        r->lets[i] = r->bounds[i] = -1;
    for (int32_t i = 0; i < map->let_count + map->bound_count; i++) {
        bool is_let = i < map->let_count;
        const rs_map_name *name = is_let ? &map->lets[i] : &map->bounds[i - map->let_count];
        int64_t *value = is_let ? &r->lets[i] : &r->bounds[i - map->let_count];
        rs_cursor cursor = {name->number.bytes, name->number.bytes + name->number.count};
        reshard_status status = rs_number_read(&scope, &cursor, value);
        if (status == RESHARD_ERR_NOT_FOUND)
            *value = -1;
        else if (status != RESHARD_OK)
            return rs_fail_within(status, "%s: %s %.*s", map->lines[0].file_name,
                                  is_let ? "let" : "for", rs_slice_shown(name->name),
                                  name->name.bytes);
    }
    return RESHARD_OK;
}

/* The proof that the links are a bijection, by volumes: emit.c makes them so. */
static reshard_status check_volumes(const reshard_map_result *result)
{
    for (int64_t i = 0; i < result->source_count; i++) {
        const rs_map_source *source = &result->sources[i];
        if (source->use.fate == RESHARD_MAP_USED &&
            source->used + source->use.surplus != source->volume)
            return rs_fail(
                RESHARD_ERR_CHECK, "\"%.*s\": %" PRId64 " of %" PRId64 " elements are used",
                rs_slice_shown(source->name), source->name.bytes, source->used, source->volume);
    }
    for (int64_t i = 0; i < result->target_count; i++) {
        const reshard_map_target *target = &result->targets[i];
        int64_t volume = 0;
        for (int64_t l = 0; l < target->link_count; l++)
            volume += result->links[target->link_first + l].axes->volume;
        if (target->origin == RESHARD_MAP_LINKS && volume != rs_volume(target->ndim, target->shape))
            return rs_fail(RESHARD_ERR_CHECK,
                           "\"%.200s\": %" PRId64 " of %" PRId64 " elements are filled",
                           target->name, volume, rs_volume(target->ndim, target->shape));
    }
    return RESHARD_OK;
}

static reshard_status resolve(rs_map_resolver *r)
{
    reshard_status status = read_names(r);
    if (status == RESHARD_OK)
        status = rs_map_find_claims(r);
    if (status == RESHARD_OK)
        status = rs_map_find_members(r);
    if (status == RESHARD_OK)
        status = rs_map_check_members(r);
    for (int64_t i = 0; i < r->member_count && status == RESHARD_OK; i++)
        status = rs_map_emit_member(r, &r->members[i]);
    for (int64_t i = 0; i < r->result->source_count && status == RESHARD_OK; i++) {
        if (!rs_map_is_state(r, i) && r->map->lines[r->claims[i].line].is_rest)
            status = rs_map_emit_rest(r, i);
    }
    if (status == RESHARD_OK)
        status = rs_map_emit_constants(r);
    if (status == RESHARD_OK)
        status = rs_map_emit_states(r);
    return status == RESHARD_OK ? check_volumes(r->result) : status;
}

static void release_resolver(rs_map_resolver *r)
{
    rs_table_release(&r->names);
    rs_table_release(&r->made);
    rs_table_release(&r->texts);
    rs_table_release(&r->keyed);
    rs_release(r->context, r->text_values);
    rs_release(r->context, r->members);
    rs_release(r->context, r->claims);
}

static reshard_map_result *new_result(reshard_context *context, int64_t count)
{
    reshard_map_result *result = rs_allocate_zeroed(context, sizeof *result);
    if (result == NULL)
        return NULL;
    result->context = context;
    rs_arena_init(&result->arena, context);
    result->source_count = count;
    result->sources =
        rs_arena_allocate_array(&result->arena, (size_t)count, sizeof *result->sources);
    if (result->sources == NULL) {
        reshard_map_result_destroy(result);
        return NULL;
    }
    memset(result->sources, 0, (size_t)count * sizeof *result->sources);
    return result;
}

reshard_status rs_map_resolve(reshard_map *map, reshard_map_side side, int64_t count,
                              const reshard_map_tensor *tensors, const rs_map_state *states,
                              const rs_rules_keys *keys, reshard_map_result **out_result)
{
    if (side != RESHARD_MAP_LEFT && side != RESHARD_MAP_RIGHT)
        return rs_fail(RESHARD_ERR_INVALID, "a map has no side %d", (int)side);
    if (count < 0 || count > RS_MAP_EXPANSION_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "%" PRId64 " tensors: at most %" PRId64, count,
                       RS_MAP_EXPANSION_MAX);
    reshard_map_result *result = new_result(map->context, count);
    if (result == NULL)
        return rs_allocation_status();
    rs_map_resolver r = {.map = map,
                         .context = map->context,
                         .result = result,
                         .from = side == RESHARD_MAP_RIGHT,
                         .to = side == RESHARD_MAP_LEFT,
                         .keys = keys,
                         .states = states};
    rs_table_init(&r.names, r.context);
    rs_table_init(&r.made, r.context);
    rs_table_init(&r.texts, r.context);
    rs_table_init(&r.keyed, r.context);
    r.claims = rs_allocate_array(r.context, (size_t)count, sizeof *r.claims);
    reshard_status status = r.claims == NULL ? rs_allocation_status() : RESHARD_OK;
    for (int64_t i = 0; i < count && status == RESHARD_OK; i++)
        status = take_source(&r, i, &tensors[i]);
    if (status == RESHARD_OK)
        status = resolve(&r);
    release_resolver(&r);
    if (status != RESHARD_OK) {
        reshard_map_result_destroy(result);
        return status;
    }
    *out_result = result;
    return RESHARD_OK;
}

reshard_status reshard_map_resolve(reshard_map *map, reshard_map_side side, int64_t tensor_count,
                                   const reshard_map_tensor *tensors,
                                   const reshard_map_resolve_options *given,
                                   reshard_map_result **out_result)
{
    reshard_map_resolve_options options;
    reshard_status status =
        rs_options_read("options for resolving a map", given, &options, sizeof options);
    if (status != RESHARD_OK)
        return status;
    rs_config config;
    status = rs_config_init(&config, map->context, options.config_folder, options.set_count,
                            options.sets);
    rs_rules_keys keys = {rs_config_find, &config, rs_config_find_text};
    if (status == RESHARD_OK)
        status = rs_map_resolve(map, side, tensor_count, tensors, NULL, &keys, out_result);
    rs_config_release(&config);
    return status;
}

void reshard_map_result_destroy(reshard_map_result *result)
{
    if (result == NULL)
        return;
    rs_release(result->context, result->targets);
    rs_release(result->context, result->links);
    rs_arena_release(&result->arena);
    rs_release(result->context, result);
}

/* ---- asking ---------------------------------------------------------------------------------- */

reshard_status reshard_map_result_get_info(const reshard_map_result *result,
                                           reshard_map_result_info *out_info)
{
    reshard_map_result_info info = {.target_count = result->target_count,
                                    .link_count = result->link_count};
    return rs_report_write("map result info", &info, sizeof info, out_info);
}

static reshard_status check_index(const char *what, int64_t index, int64_t count)
{
    return index >= 0 && index < count
               ? RESHARD_OK
               : rs_fail(RESHARD_ERR_RANGE, "there is no %s %" PRId64 " of %" PRId64, what, index,
                         count);
}

reshard_status reshard_map_result_target(const reshard_map_result *result, int64_t index,
                                         reshard_map_target *out_target)
{
    reshard_status status = check_index("target", index, result->target_count);
    return status == RESHARD_OK ? rs_report_write("map target", &result->targets[index],
                                                  sizeof result->targets[index], out_target)
                                : status;
}

reshard_status reshard_map_result_link(const reshard_map_result *result, int64_t index,
                                       reshard_strided_link *out_link)
{
    reshard_status status = check_index("link", index, result->link_count);
    if (status != RESHARD_OK)
        return status;
    const rs_map_link *made = &result->links[index];
    if (made->source > INT32_MAX || made->target > INT32_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "link %" PRId64 ": there are too many tensors for a plan",
                       index);
    reshard_strided_link link;
    memset(&link, 0, sizeof link);
    link.source = (int32_t)made->source;
    link.target = (int32_t)made->target;
    memcpy(link.source_at, made->source_at,
           (size_t)result->sources[made->source].ndim * sizeof *made->source_at);
    memcpy(link.target_at, made->target_at,
           (size_t)result->targets[made->target].ndim * sizeof *made->target_at);
    link.axis_count = made->axes->count;
    if (made->axes->count > 0)
        memcpy(link.axes, made->axes->axes, (size_t)made->axes->count * sizeof *link.axes);
    return rs_report_write("strided link", &link, sizeof link, out_link);
}

reshard_status reshard_map_result_use(const reshard_map_result *result, int64_t tensor,
                                      reshard_map_use *out_use)
{
    reshard_status status = check_index("tensor", tensor, result->source_count);
    return status == RESHARD_OK ? rs_report_write("map use", &result->sources[tensor].use,
                                                  sizeof result->sources[tensor].use, out_use)
                                : status;
}
