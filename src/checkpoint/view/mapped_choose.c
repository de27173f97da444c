/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapped_choose.c - which map a conversion goes by, which of its sides is read, and what it makes.
 *
 * With a map of one's own, the side that fits the tensors is read. Otherwise the source's naming is
 * recognised, and shipped maps lead from there to hf and from hf to the naming that is to be
 * written; if that takes two of them, they are joined, so that nothing is made in between.
 */
#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/maps/resolve.h"
#include "checkpoint/select/parameter.h"
#include "checkpoint/view/mapped.h"
#include "system/file.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAP_BYTES_MAX ((size_t)16 << 20)
#define SAID_BYTES 600

static const char *const side_words[2] = {"left", "right"};

/* What a side is called: its naming, or its place. */
static const char *side_name(const reshard_map *map, int side)
{
    const char *naming = reshard_map_naming(map, (reshard_map_side)side);
    const char *other = reshard_map_naming(map, (reshard_map_side)!side);
    return naming[0] != '\0' && strcmp(naming, other) != 0 ? naming : side_words[side];
}

static reshard_status keep_text(rs_arena *arena, const char **out_text, const char *format, ...)
    RS_PRINTF(3, 4);

static reshard_status keep_text(rs_arena *arena, const char **out_text, const char *format, ...)
{
    char text[SAID_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    *out_text = rs_arena_copy(arena, text, strlen(text) + 1, 1);
    return *out_text != NULL ? RESHARD_OK : rs_allocation_status();
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Finds a shipped map for a line `use`. What it says decides too what is written. */
static const char *find_used(void *user, const char *name, size_t *out_bytes)
{
    const char *text = rs_shipped_map_text(NULL, name, out_bytes);
    if (text != NULL)
        rs_digest_bytes(user, text, *out_bytes);
    return text;
}

static reshard_status parse(reshard_context *context, const char *file_name, const char *text,
                            size_t bytes, rs_digest *digest, reshard_map **out_map)
{
    const reshard_map_options parsing = {
        .size = sizeof parsing, .file_name = file_name, .find = find_used, .user = digest};
    rs_digest_bytes(digest, text, bytes);
    return reshard_map_parse(context, text, bytes, &parsing, out_map);
}

static reshard_status read_own(reshard_context *context, const reshard_conversion_options *options,
                               rs_digest *digest, reshard_map **out_map)
{
    const char *path = options->map_file, *slash = path != NULL ? strrchr(path, '/') : NULL;
    char *read = NULL;
    size_t bytes = 0;
    if (path == NULL)
        return parse(context, NULL, options->map_text, strlen(options->map_text), digest, out_map);
    reshard_status status = rs_file_read_all(context, path, MAP_BYTES_MAX, &read, &bytes);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "map \"%.200s\"", path);
    status = parse(context, slash != NULL ? slash + 1 : path, read, bytes, digest, out_map);
    rs_release(context, read);
    return status;
}

/* ---- a map of one's own ---------------------------------------------------------------------- */

static reshard_status resolve(const rs_map_input *input, reshard_map *map, int side,
                              reshard_map_result **out_result)
{
    return rs_map_resolve(map, (reshard_map_side)side, input->count, input->tensors, input->states,
                          input->keys, out_result);
}

/* Finds the side that is read if `as` is to be written. */
static reshard_status read_as(const reshard_map *map, const char *as, int *out_side)
{
    for (int side = 0; side < 2; side++) {
        if (strcmp(as, side_name(map, side)) == 0 || strcmp(as, side_words[side]) == 0) {
            *out_side = !side;
            return RESHARD_OK;
        }
    }
    return rs_fail(RESHARD_ERR_INVALID, "as \"%.200s\": the map has the namings %.200s and %.200s",
                   as, side_name(map, 0), side_name(map, 1));
}

/* Tries both sides: exactly one has to fit the names and shapes of the source. */
static reshard_status try_sides(const rs_map_input *input, reshard_map *map, int *out_side,
                                reshard_map_result **out_result)
{
    reshard_map_result *results[2] = {NULL, NULL};
    reshard_status statuses[2];
    char why[2][1400];
    for (int side = 0; side < 2; side++) {
        statuses[side] = resolve(input, map, side, &results[side]);
        if (statuses[side] == RESHARD_ERR_NO_MEMORY || statuses[side] == RESHARD_ERR_MEMORY_LIMIT) {
            reshard_map_result_destroy(results[0]);
            return statuses[side];
        }
        (void)snprintf(why[side], sizeof why[side], "%s",
                       statuses[side] != RESHARD_OK ? reshard_error_text() : "");
    }
    *out_side = statuses[0] == RESHARD_OK ? 0 : 1;
    if (statuses[0] != RESHARD_OK && statuses[1] != RESHARD_OK)
        return rs_fail(statuses[0] == statuses[1] ? statuses[0] : RESHARD_ERR_INVALID,
                       "the tensors fit neither side of the map. As %.200s: %s. As %.200s: %s",
                       side_name(map, 0), why[0], side_name(map, 1), why[1]);
    if (statuses[0] == RESHARD_OK && statuses[1] == RESHARD_OK) {
        reshard_map_result_destroy(results[0]);
        reshard_map_result_destroy(results[1]);
        return rs_fail(
            RESHARD_ERR_INVALID,
            "the tensors fit both sides of the map, %.200s and %.200s; say which of them to write",
            side_name(map, 0), side_name(map, 1));
    }
    *out_result = results[*out_side];
    return RESHARD_OK;
}

static reshard_status choose_own(const rs_map_input *input,
                                 const reshard_conversion_options *options, rs_map_choice *choice)
{
    reshard_map *map = NULL;
    int side = 0;
    reshard_status status = read_own(input->context, options, &choice->digest, &map);
    if (status == RESHARD_OK && options->as == NULL)
        status = try_sides(input, map, &side, &choice->result);
    else if (status == RESHARD_OK)
        status = read_as(map, options->as, &side);
    if (status == RESHARD_OK && options->as != NULL)
        status = resolve(input, map, side, &choice->result);
    rs_digest_u64(&choice->digest, (uint64_t)side);
    if (status == RESHARD_OK)
        status = keep_text(input->arena, &choice->read, "%.200s", side_name(map, side));
    if (status == RESHARD_OK)
        status = keep_text(input->arena, &choice->written, "%.200s", side_name(map, !side));
    reshard_map_release(map);
    return status;
}

/* ---- what a first map makes, for a second one ------------------------------------------------ */

typedef struct between {
    rs_stored_tensor tensor; /* name and shape only; comes first, for sorting */
    int64_t index;           /* of the target */
} between;

/* Finds the states of optimizers among the tensors in between, as select/ does in a source. */
static reshard_status find_states(rs_arena *arena, rs_map_input *input)
{
    size_t count = (size_t)input->count;
    between *items = rs_arena_allocate_array(arena, count, sizeof *items);
    reshard_checkpoint sorted = {.tensor_count = input->count};
    sorted.tensors = rs_arena_allocate_array(arena, count, sizeof *sorted.tensors);
    input->states = rs_arena_allocate_array(arena, count, sizeof *input->states);
    if (items == NULL || sorted.tensors == NULL || input->states == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        const reshard_map_tensor *given = &input->tensors[i];
        items[i] = (between){.tensor = {.name = rs_slice_of(given->name),
                                        .ndim = given->ndim,
                                        .shape = given->shape},
                             .index = (int64_t)i};
    }
    rs_sort(items, count, sizeof *items, rs_stored_tensor_compare);
    for (size_t i = 0; i < count; i++)
        sorted.tensors[i] = items[i].tensor;
    for (size_t i = 0; i < count; i++) {
        rs_parameter found = rs_parameter_find(&sorted, &sorted.tensors[i]);
        input->states[items[i].index] =
            (rs_map_state){.parameter = found.tensor >= 0 ? items[found.tensor].index : -1,
                           .front = found.front,
                           .back = found.back,
                           .skipped = found.skipped,
                           .same_shape = found.same_shape};
    }
    return RESHARD_OK;
}

static reshard_status list_between(const rs_map_input *input, const reshard_map_result *first,
                                   rs_map_input *out_input)
{
    *out_input = *input;
    out_input->count = first->target_count;
    out_input->tensors =
        rs_arena_allocate_array(input->arena, (size_t)out_input->count, sizeof *out_input->tensors);
    if (out_input->tensors == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < out_input->count; i++) {
        reshard_map_target made = {.size = sizeof made};
        reshard_status status = reshard_map_result_target(first, i, &made);
        if (status != RESHARD_OK)
            return status;
        out_input->tensors[i] = (reshard_map_tensor){
            .name = made.name, .dtype = made.dtype, .ndim = made.ndim, .shape = made.shape};
    }
    return find_states(input->arena, out_input);
}

/* ---- shipped maps ---------------------------------------------------------------------------- */

static const char *input_name(void *user, int64_t index, size_t *out_bytes)
{
    const rs_map_input *input = user;
    if (index >= input->count)
        return NULL;
    *out_bytes = strlen(input->tensors[index].name);
    return input->tensors[index].name;
}

static reshard_status resolve_shipped(const rs_map_input *input, const rs_shipped_map *shipped,
                                      int side, rs_digest *digest, reshard_map_result **out_result)
{
    reshard_map *map = NULL;
    reshard_status status =
        parse(input->context, shipped->name, shipped->text, strlen(shipped->text), digest, &map);
    rs_digest_u64(digest, (uint64_t)side);
    if (status == RESHARD_OK)
        status = resolve(input, map, side, out_result);
    reshard_map_release(map);
    return status;
}

/* From the naming of one map to hf, and on to that of the other. */
static reshard_status resolve_both(const rs_map_input *input, const rs_shipped_map *const maps[2],
                                   rs_map_choice *choice)
{
    reshard_map_result *first = NULL, *second = NULL;
    rs_map_input made;
    reshard_status status = resolve_shipped(input, maps[0], 1, &choice->digest, &first);
    if (status == RESHARD_OK)
        status = list_between(input, first, &made);
    if (status == RESHARD_OK)
        status = resolve_shipped(&made, maps[1], 0, &choice->digest, &second);
    if (status == RESHARD_OK)
        status = rs_map_compose(first, second, &choice->result);
    reshard_map_result_destroy(first);
    reshard_map_result_destroy(second);
    return rs_fail_within(status, "from %s to %s by way of hf", choice->read, choice->written);
}

static reshard_status say_maps(const rs_map_input *input, const rs_shipped_map *const maps[2],
                               rs_map_choice *choice)
{
    const rs_shipped_map *one = maps[0] != NULL ? maps[0] : maps[1];
    if (one == NULL)
        return keep_text(input->arena, &choice->said, "%s, as is to be %s", choice->read,
                         input->verb);
    if (maps[0] != NULL && maps[1] != NULL)
        return keep_text(input->arena, &choice->said, "%s; %s as %s by maps %s and %s",
                         choice->read, input->verb, choice->written, maps[0]->name, maps[1]->name);
    return keep_text(input->arena, &choice->said, "%s; %s as %s by map %s", choice->read,
                     input->verb, choice->written, one->name);
}

static reshard_status choose_shipped(const rs_map_input *input, const rs_naming *to,
                                     rs_map_choice *choice)
{
    const rs_naming *from = NULL, *hf = rs_naming_hf();
    const rs_shipped_map *maps[2] = {NULL, NULL};
    reshard_status status =
        rs_naming_recognise(input_name, (void *)input, input->model_type, input->dialect, &from);
    if (status == RESHARD_ERR_NOT_FOUND && to->has_hf_names) {
        from = hf;
        status = RESHARD_OK;
    }
    if (status != RESHARD_OK)
        return status;
    if (to->has_hf_names)
        to = hf;
    choice->read = from->name;
    choice->written = to->name;
    if (from != to && from != hf)
        status = rs_shipped_map_choose(from, input->model_type, &maps[0]);
    if (status == RESHARD_OK && from != to && to != hf)
        status = rs_shipped_map_choose(to, input->model_type, &maps[1]);
    if (status == RESHARD_OK)
        status = say_maps(input, maps, choice);
    if (status != RESHARD_OK || from == to)
        return status;
    if (maps[0] != NULL && maps[1] != NULL)
        return resolve_both(input, maps, choice);
    return resolve_shipped(input, maps[0] != NULL ? maps[0] : maps[1], maps[0] != NULL,
                           &choice->digest, &choice->result);
}

reshard_status rs_mapped_choose(const rs_map_input *input,
                                const reshard_conversion_options *options, rs_map_choice *choice)
{
    memset(choice, 0, sizeof *choice);
    rs_digest_init(&choice->digest);
    if (options->map_file != NULL || options->map_text != NULL)
        return choose_own(input, options, choice);
    const rs_naming *to = NULL;
    reshard_status status = rs_naming_find(options->as, &to);
    return status == RESHARD_OK ? choose_shipped(input, to, choice) : status;
}

reshard_status rs_mapped_hint_part(const reshard_checkpoint *source, const rs_selection *selection,
                                   reshard_status status)
{
    const char *part = selection->prefix.count == 0 ? rs_selection_find_model(source) : NULL;
    char text[RS_ERROR_TEXT_BYTES];
    if (part == NULL || rs_error_last()->hint != RESHARD_HINT_NONE)
        return status;
    (void)snprintf(text, sizeof text, "%s", rs_error_last()->text);
    return rs_fail_hint(status, RESHARD_HINT_ONLY, part,
                        "%s. The source is nested: the model is its part \"%s\"; take that alone",
                        text, part);
}
