/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target_make.c - lays out the target of a conversion: chooses the format and the tensors, lets the
 * format distribute them over files, and gives every entry its place.
 */
#include "base/context.h"
#include "base/dtype.h"
#include "base/sort.h"
#include "checkpoint/body/target.h"
#include "checkpoint/format/formats.h"
#include "text/text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many of the values that stay behind are listed by name. */
#define VALUES_SHOWN 4

static reshard_status choose_format(rs_target *target, const reshard_mesh *mesh,
                                    const reshard_conversion_options *options)
{
    bool is_split = reshard_mesh_size(mesh) != 1;
    target->format = rs_format_default_writer(is_split);
    if (options->format != NULL) {
        reshard_status status = rs_format_find_writer(options->format, &target->format);
        if (status != RESHARD_OK)
            return status;
    }
    if (!target->format->is_split && is_split && target->format->split != NULL)
        target->format = target->format->split;
    if (!target->format->is_split && is_split)
        return rs_fail(RESHARD_ERR_INVALID,
                       "the format %s holds whole tensors, so it cannot be split over %.100s",
                       target->format->name, options->to);
    if (target->format->is_split && options->to == NULL)
        return rs_fail(RESHARD_ERR_INVALID,
                       "the format %s needs a mesh to split over, and none is "
                       "given",
                       target->format->name);
    if (options->dtensors && target->format->placed == NULL)
        return rs_fail(RESHARD_ERR_INVALID,
                       "the format %s holds no DTensors; torch does, over a mesh of several ranks",
                       target->format->name);
    if (options->dtensors)
        target->format = target->format->placed;
    return RESHARD_OK;
}

/* Whole tensors need no rules; if some are given, they rename tensors and leave some out. */
static reshard_status read_rules(rs_target *target, const reshard_checkpoint *source,
                                 reshard_mesh *mesh, const reshard_conversion_options *options,
                                 rs_selection *selection, rs_rulebook *book)
{
    reshard_status status = RESHARD_OK;
    if (target->format->is_split || options->rules != NULL) {
        status = rs_rulebook_init(book, target->context, mesh, options->rules, source->folder,
                                  options->set_count, options->sets, rs_selection_name, selection);
        if (status == RESHARD_OK)
            status = rs_selection_apply(selection, &target->arena, book);
        (void)snprintf(target->rules, sizeof target->rules, "%s", book->said);
    }
    if (status == RESHARD_OK && selection->dropped_count != 0)
        status = rs_target_say(
            target, "rules (%s) leave out %lld tensor%s (line %d: \"%.*s\"%s)", book->name,
            (long long)selection->dropped_count, selection->dropped_count == 1 ? "" : "s",
            (int)selection->dropped_line, rs_slice_shown(selection->dropped),
            selection->dropped.bytes, selection->dropped_count == 1 ? "" : " and others");
    if (status == RESHARD_OK)
        status = rs_selection_finish(selection);
    if (status == RESHARD_OK && selection->count == 0 && source->tensor_count != 0)
        status = rs_fail(RESHARD_ERR_INVALID, "%s: of %lld tensors none is left to convert",
                         source->path, (long long)source->tensor_count);
    return status;
}

/* Numbers the files: one for each rank of the mesh, in increasing order. */
static reshard_status order_files(rs_laying *laying, const reshard_mesh *mesh)
{
    rs_target *target = laying->target;
    size_t count = (size_t)reshard_mesh_size(mesh);
    int32_t *ranks = rs_arena_allocate_array(&target->arena, count, sizeof(int32_t));
    int32_t *file_of = rs_arena_allocate_array(&target->arena, count, sizeof(int32_t));
    if (ranks == NULL || file_of == NULL)
        return rs_allocation_status();
    target->file_count = rs_mesh_order_files(mesh, ranks, file_of);
    laying->file_of = file_of;
    target->ranks = ranks;
    return RESHARD_OK;
}

/* Tells the user which values the format cannot hold. */
static reshard_status tell_values(rs_target *target)
{
    const reshard_checkpoint *source = target->source;
    const rs_format *format = target->format;
    char shown[300];
    rs_text text;
    int64_t count = 0;
    rs_text_init(&text, shown, sizeof shown);
    for (int64_t i = 0; i < source->value_count; i++) {
        const rs_stored_value *value = &source->values[i];
        rs_slice name = value->name;
        if (!rs_target_keeps(target, &name) ||
            (format->holds_value != NULL && format->holds_value(value)))
            continue;
        if (count++ < VALUES_SHOWN)
            rs_text_add(&text, "%s%.*s", count == 1 ? "" : ", ", rs_slice_shown(name), name.bytes);
    }
    if (count == 0)
        return RESHARD_OK;
    return rs_target_say(target,
                         "the format %s cannot hold %lld value%s, which stay%s behind: %s%s",
                         format->name, (long long)count, count == 1 ? "" : "s",
                         count == 1 ? "s" : "", shown, count > VALUES_SHOWN ? ", .." : "");
}

/* Tells the user what the selection and the format leave behind. */
static reshard_status tell_behind(rs_target *target, const rs_selection *selection)
{
    const reshard_checkpoint *source = target->source;
    int64_t outside = 0;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < source->value_count; i++) {
        rs_slice name = source->values[i].name;
        outside += !rs_target_keeps(target, &name);
    }
    if (selection->prefix.count != 0 && selection->outside_count + outside != 0)
        status = rs_target_say(target,
                               "only \"%.*s\" is taken: %lld tensor%s (%llu bytes) and %lld other "
                               "value%s stay behind",
                               (int)selection->prefix.count - 1, selection->prefix.bytes,
                               (long long)selection->outside_count,
                               selection->outside_count == 1 ? "" : "s",
                               (unsigned long long)selection->outside_bytes, (long long)outside,
                               outside == 1 ? "" : "s");
    return status == RESHARD_OK ? tell_values(target) : status;
}

/* Makes room for the selected tensors. */
static reshard_status make_room(rs_target *target, int64_t selected)
{
    size_t count = (size_t)selected;
    if (selected > INT32_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "%lld tensors; 2147483647 are the most",
                       (long long)selected);
    target->tensors = rs_arena_allocate_array(&target->arena, count, sizeof(rs_stored_tensor));
    target->origins = rs_arena_allocate_array(&target->arena, count, sizeof(int64_t));
    target->stored = rs_arena_allocate_array(&target->arena, count, sizeof *target->stored);
    target->rows = rs_arena_allocate_array(&target->arena, count, sizeof *target->rows);
    if (target->tensors == NULL || target->origins == NULL || target->stored == NULL ||
        target->rows == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        target->rows[i] = NULL;
    return RESHARD_OK;
}

/* Finds the dtype of most floating-point bytes of the output, if some were cast to it; else NONE.
 * Quantised codes that stay as they are do not count. */
static reshard_dtype find_cast(const rs_selection *selection)
{
    uint64_t bytes[RESHARD_DTYPE_COUNT] = {0};
    bool is_cast[RESHARD_DTYPE_COUNT] = {false};
    reshard_dtype most = RESHARD_DTYPE_NONE;
    for (int64_t i = 0; i < selection->count; i++) {
        const rs_selected *item = &selection->items[i];
        const rs_stored_tensor *stored = item->stored;
        bool was_cast = item->dtype != stored->dtype || stored->formula != NULL;
        if (!was_cast && !rs_dtype_is_float(item->dtype))
            continue;
        is_cast[item->dtype] = is_cast[item->dtype] || was_cast;
        bytes[item->dtype] +=
            stored->bytes / (uint64_t)stored->element_bytes * rs_element_bytes(item->dtype);
        if (bytes[item->dtype] > bytes[most])
            most = item->dtype;
    }
    return is_cast[most] ? most : RESHARD_DTYPE_NONE;
}

static reshard_status tell_quantised(rs_target *target, const rs_selection *selection)
{
    int64_t count = selection->quantised_count;
    reshard_status status = RESHARD_OK;
    if (selection->made_count != 0)
        status = rs_target_say(
            target, "dequantised: %lld tensor%s; %lld of scales and their kin are left out",
            (long long)selection->made_count, selection->made_count == 1 ? "" : "s",
            (long long)selection->scale_count);
    if (status != RESHARD_OK || count == 0)
        return status;
    return rs_target_say(target,
                         "not cast: %lld quantised tensor%s, with what belongs to %s (\"%.*s\"%s); "
                         "a pattern that names them casts them",
                         (long long)count, count == 1 ? "" : "s", count == 1 ? "it" : "them",
                         rs_slice_shown(selection->quantised), selection->quantised.bytes,
                         count == 1 ? "" : " and others");
}

/* Rules may have cut the source, too, by the numbers that were set. */
static bool may_ask_sets(const reshard_checkpoint *source)
{
    for (int32_t i = 0; rs_format_at(i) != NULL; i++) {
        if (strcmp(rs_format_at(i)->name, source->format) == 0)
            return rs_format_at(i)->needs_mesh;
    }
    return false;
}

/* Says which options had nothing to act on. Comes last, when rules have asked for all they need. */
static reshard_status tell_idle(rs_target *target, const rs_rulebook *book,
                                const reshard_conversion_options *options)
{
    reshard_status status = RESHARD_OK;
    const char *key = rs_config_idle_set(&book->config);
    if (key == NULL && options->set_count != 0 && book->config.set_count == 0)
        key = options->sets[0];
    if (key != NULL && !may_ask_sets(target->source))
        status = rs_target_say(target, "set \"%.*s\" has no effect: no rule asks for it",
                               (int)strcspn(key, "="), key);
    if (status == RESHARD_OK && options->shard_bytes_max != 0 && !target->format->limits_files)
        status = rs_target_say(target, "the largest size of a file has no effect on the format %s",
                               target->format->name);
    return status;
}

static reshard_status lay_out(rs_target *target, const reshard_checkpoint *source,
                              reshard_mesh *mesh, const reshard_conversion_options *options)
{
    rs_selection selection;
    rs_rulebook book = {0};
    rs_laying laying = {.target = target,
                        .source = source,
                        .selection = &selection,
                        .book = &book,
                        .file_bytes_max = options->shard_bytes_max};
    reshard_status status =
        rs_selection_init(&selection, &target->arena, source, options, target->format->takes_model);
    target->prefix = selection.prefix;
    if (status == RESHARD_OK)
        status = tell_behind(target, &selection);
    if (status == RESHARD_OK)
        status = tell_quantised(target, &selection);
    if (status == RESHARD_OK)
        status = make_room(target, selection.count);
    if (status == RESHARD_OK)
        status = read_rules(target, source, mesh, options, &selection, &book);
    if (status == RESHARD_OK && target->format->is_split)
        status = order_files(&laying, mesh);
    target->cast = find_cast(&selection);
    target->dequantises = options->dequantize != RESHARD_DTYPE_NONE;
    if (status == RESHARD_OK)
        status = target->format->lay_out(&laying);
    if (status == RESHARD_OK)
        status = tell_idle(target, &book, options);
    assert(status != RESHARD_OK || target->tensor_count == selection.count);
    for (int64_t i = 0; status == RESHARD_OK && i < selection.count; i++) {
        assert(target->origins[i] == selection.items[i].origin);
        target->stored[i] = selection.items[i].stored;
    }
    rs_rulebook_release(&book);
    rs_selection_release(&selection, target->context);
    return status == RESHARD_OK ? rs_target_place(target) : status;
}

reshard_status rs_target_init(rs_target *target, const reshard_checkpoint *source,
                              const reshard_conversion_options *options)
{
    reshard_mesh *mesh = NULL;
    *target = (rs_target){.context = source->context,
                          .source = source,
                          .metadata_count = source->metadata_count,
                          .metadata = source->metadata,
                          .stem = source->stem != NULL ? source->stem : "model"};
    rs_arena_init(&target->arena, source->context);
    reshard_status status =
        reshard_mesh_parse(target->context, options->to != NULL ? options->to : "1", &mesh);
    if (status == RESHARD_OK)
        status = choose_format(target, mesh, options);
    if (status == RESHARD_OK)
        status = lay_out(target, source, mesh, options);
    reshard_mesh_release(mesh);
    return status;
}

/* ---- live tensors ---------------------------------------------------------------------------- */

static reshard_status take_names(rs_target *target, int64_t count,
                                 const reshard_live_tensor *tensors)
{
    target->name_count = count;
    target->names = rs_arena_allocate_array(&target->arena, (size_t)count, sizeof(rs_slice));
    target->tensors =
        rs_arena_allocate_array(&target->arena, (size_t)count, sizeof(rs_stored_tensor));
    target->origins = rs_arena_allocate_array(&target->arena, (size_t)count, sizeof(int64_t));
    if (target->names == NULL || target->tensors == NULL || target->origins == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < count; i++)
        target->names[i] = (rs_slice){tensors[i].name, strlen(tensors[i].name)};
    return RESHARD_OK;
}

static reshard_status check_names(const rs_target *target)
{
    reshard_status status = RESHARD_OK;
    size_t count = (size_t)target->tensor_count;
    rs_slice *names = rs_allocate_array(target->context, count, sizeof *names);
    if (names == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        names[i] = target->tensors[i].name;
    rs_sort(names, count, sizeof *names, rs_compare_slices);
    for (size_t i = 1; status == RESHARD_OK && i < count; i++) {
        if (rs_slice_compare(names[i - 1], names[i]) == 0)
            status = rs_fail(RESHARD_ERR_INVALID, "two tensors are to have the name \"%.*s\"",
                             rs_slice_shown(names[i]), names[i].bytes);
    }
    rs_release(target->context, names, count * sizeof *names);
    return status;
}

reshard_status rs_target_init_live(rs_target *target, reshard_context *context, int32_t file_count,
                                   int64_t count, const reshard_live_tensor *tensors)
{
    *target = (rs_target){.context = context,
                          .format = rs_format_default_writer(true),
                          .file_count = file_count,
                          .stem = "model"};
    rs_laying laying = {.target = target, .live = tensors};
    rs_arena_init(&target->arena, context);
    reshard_status status = take_names(target, count, tensors);
    if (status == RESHARD_OK)
        status = target->format->lay_out(&laying);
    if (status == RESHARD_OK)
        status = check_names(target);
    return status == RESHARD_OK ? rs_target_place(target) : status;
}
