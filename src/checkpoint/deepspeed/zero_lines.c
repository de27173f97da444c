/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_lines.c - ZeRO's arithmetic: where the elements of a parameter lie in the flat arrays of the
 * ranks. Every number is checked against the lengths of the arrays, so a share of another size is
 * an error and never shifts what comes after it.
 */
#include "checkpoint/deepspeed/zero.h"

#include "base/checked.h"
#include "base/context.h"
#include "text/text.h"

#include <stdio.h>
#include <string.h>

/* What DeepSpeed calls the experts of its own MoE layers. */
static const char experts[] = "deepspeed_moe.experts.deepspeed_experts.";

static const rs_zero_flat *flat_of(const rs_zero_part *part, int32_t rank, int32_t slot)
{
    return &part->flats[(int64_t)rank * part->slot_count + slot];
}

static const char *file_of(const rs_zero_reading *r, const rs_zero_part *part, int32_t rank)
{
    int64_t index = rs_ds_files_at(&r->files, RS_DS_OPTIM, 0, part->mp, rank);
    return r->files.items[index].name;
}

/* ---- lines (stages 1 and 2) ------------------------------------------------------------------ */

/* Ranks hold equal shares; only padding, at the end of the line, was removed. */
static reshard_status check_shares(const rs_zero_reading *r, const rs_zero_part *part,
                                   int32_t index, int32_t first, int64_t *out_held)
{
    const rs_zero_group *group = &part->groups[index];
    int64_t share = flat_of(part, first, group->slot)->count, held = 0;
    bool is_end = false;
    for (int32_t rank = first; rank < part->rank_count; rank += group->replica_count) {
        int64_t count = flat_of(part, rank, group->slot)->count;
        if (count > share || (is_end && count != 0))
            return rs_fail_about(RESHARD_ERR_CORRUPT, file_of(r, part, rank),
                                 "its array of weights of group %d has %lld elements, which does "
                                 "not fit the files of the ranks before it: shares have %lld "
                                 "elements, and only the last ones have fewer",
                                 (int)index, (long long)count, (long long)share);
        is_end = count < share;
        held = rs_add_up(held, count);
    }
    *out_held = held;
    return RESHARD_OK;
}

static int64_t align_up(int64_t count, int64_t step)
{
    return rs_multiply_up(rs_divide_up(count, step), step);
}

/* The line of a group was padded to a multiple of twice the number of ranks. */
static reshard_status check_line(const rs_zero_reading *r, const rs_zero_part *part, int32_t index,
                                 int64_t used)
{
    const rs_zero_group *group = &part->groups[index];
    for (int32_t first = 0; first < group->replica_count; first++) {
        int64_t held = 0;
        int64_t step = 2 * (int64_t)(part->rank_count / group->replica_count);
        reshard_status status = check_shares(r, part, index, first, &held);
        if (status != RESHARD_OK)
            return status;
        if (held < used || align_up(held, step) != align_up(used, step))
            return rs_fail_about(RESHARD_ERR_CORRUPT, file_of(r, part, first),
                                 "the parameters of group %d have %lld elements, but the files of "
                                 "its %d ranks hold %lld",
                                 (int)index, (long long)used,
                                 (int)(part->rank_count / group->replica_count), (long long)held);
    }
    return RESHARD_OK;
}

static reshard_status check_lines(const rs_zero_reading *r, const rs_zero_part *part)
{
    int64_t next = 0;
    if (part->group_count != part->shape_group_count)
        return rs_fail_about(RESHARD_ERR_CORRUPT, file_of(r, part, 0),
                             "has %d groups of weights, but the model file lists the shapes of %d",
                             (int)part->group_count, (int)part->shape_group_count);
    for (int32_t group = 0; group < part->group_count; group++) {
        int64_t used = 0;
        for (; next < part->parameter_count && part->parameters[next].group == group; next++)
            used = part->parameters[next].at + part->parameters[next].count;
        reshard_status status = check_line(r, part, group, used);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

/* The shares of a line that hold a parameter. */
static reshard_status cut_line(const rs_zero_part *part, const rs_zero_parameter *parameter,
                               int32_t first, rs_zero_boxes *boxes)
{
    const rs_zero_group *group = &part->groups[parameter->group];
    int64_t end = parameter->at + parameter->count, at = parameter->at;
    int64_t share = flat_of(part, first, group->slot)->count;
    reshard_status status = RESHARD_OK;
    /* shares are equal, so the first rank is found by division */
    int64_t skipped = share != 0 ? at / share : 0;
    int64_t rank = first + skipped * group->replica_count;
    for (; status == RESHARD_OK && at < end; rank += group->replica_count) {
        int64_t start = group->starts[rank];
        int64_t stop = start + flat_of(part, (int32_t)rank, group->slot)->count;
        status = rs_zero_boxes_add(boxes, (int32_t)rank, at - start, rs_min(end, stop) - at);
        at = rs_min(end, stop);
    }
    return status;
}

/* What the file says about one parameter's share of the line; false if it is not a
 * fragment_address. */
static bool read_fragment(const rs_pickle_node *node, int64_t *out_start, int64_t *out_count)
{
    if (rs_pickle_is(node, RS_PICKLE_TUPLE))
        return rs_pickle_int(rs_pickle_item(node, 0), out_start) &&
               rs_pickle_int(rs_pickle_item(node, 1), out_count);
    return rs_pickle_int(rs_torch_field(node, "start", -1), out_start) &&
           rs_pickle_int(rs_torch_field(node, "numel", -1), out_count);
}

static reshard_status check_slice(const rs_zero_reading *r, const rs_zero_part *part, int32_t rank,
                                  int32_t file, const rs_zero_parameter *parameter,
                                  const rs_pickle_node *node)
{
    const char *name = r->checkpoint->files[file].name;
    const rs_zero_group *group = &part->groups[parameter->group];
    int64_t start = 0, count = 0;
    if (!read_fragment(node, &start, &count)) {
        char shown[160];
        rs_pickle_show(node, shown, sizeof shown);
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, name,
                             "param_slice_mappings has %s for parameter \"%.*s\", where a "
                             "fragment_address should be",
                             shown, RS_SHOWN(parameter->told));
    }
    int64_t begin = group->starts[rank], end = begin + flat_of(part, rank, group->slot)->count;
    int64_t from = rs_max(parameter->at, begin);
    int64_t to = rs_min(parameter->at + parameter->count, end);
    if (start == from - begin && count == to - from)
        return RESHARD_OK;
    return rs_fail_about(RESHARD_ERR_CORRUPT, name,
                         "param_slice_mappings puts %lld elements of parameter \"%.*s\" at %lld, "
                         "but by the model file's shapes there are %lld at %lld",
                         (long long)count, RS_SHOWN(parameter->told), (long long)start,
                         (long long)rs_max(to - from, 0), (long long)(from - begin));
}

reshard_status rs_zero_check_slices(const rs_zero_reading *r, const rs_zero_part *part,
                                    int32_t rank, int32_t file, const rs_pickle_node *mappings)
{
    reshard_status status = RESHARD_OK;
    for (int32_t group = 0; status == RESHARD_OK && group < part->group_count; group++) {
        const rs_pickle_node *dict = rs_pickle_dict(rs_pickle_item(mappings, (size_t)group));
        for (size_t i = 0; status == RESHARD_OK && i < rs_pickle_count(dict); i++) {
            rs_slice key;
            if (!rs_pickle_text(dict->items.nodes[2 * i], &key))
                continue;
            const rs_zero_parameter *parameter = rs_zero_find(part, key);
            if (parameter == NULL || parameter->group != group)
                return rs_fail_about(RESHARD_ERR_CORRUPT, r->checkpoint->files[file].name,
                                     "param_slice_mappings names parameter \"%.*s\" in group %d, "
                                     "where the model file has no such parameter",
                                     RS_SHOWN(key), (int)group);
            status = check_slice(r, part, rank, file, parameter, dict->items.nodes[2 * i + 1]);
        }
    }
    return status;
}

/* ---- shares (stage 3) ------------------------------------------------------------------------ */

/* Puts the parameters of all lists one after the other, into sub-groups, of which no parameter may
 * be in two. */
static reshard_status place_shares(const rs_zero_reading *r, rs_zero_part *part)
{
    int32_t group = 0;
    int64_t at = 0, total = 0;
    for (int64_t i = 0; i < part->parameter_count; i++) {
        rs_zero_parameter *parameter = &part->parameters[i];
        int64_t share = rs_divide_up(parameter->count, part->rank_count);
        while (group < part->group_count - 1 &&
               at >= flat_of(part, 0, part->groups[group].slot)->count) {
            at = 0;
            group++;
        }
        if (group >= part->group_count ||
            share > flat_of(part, 0, part->groups[group].slot)->count - at)
            return rs_fail_about(RESHARD_ERR_CORRUPT, file_of(r, part, 0),
                                 "ends within parameter \"%.*s\": its sub-groups do not fit the "
                                 "shapes in the model file",
                                 RS_SHOWN(parameter->told));
        parameter->group = group;
        parameter->at = at;
        at += share;
        total = rs_add_up(total, share);
    }
    for (int32_t rank = 0; rank < part->rank_count; rank++) {
        int64_t held = 0;
        for (int32_t i = 0; i < part->group_count; i++) {
            int64_t count = flat_of(part, rank, part->groups[i].slot)->count;
            held = rs_add_up(held, count);
            if (count != flat_of(part, 0, part->groups[i].slot)->count)
                return rs_fail_about(RESHARD_ERR_CORRUPT, file_of(r, part, rank),
                                     "its sub-group %d has %lld elements, but the first rank's has "
                                     "%lld",
                                     (int)i, (long long)count,
                                     (long long)flat_of(part, 0, part->groups[i].slot)->count);
        }
        if (held != total)
            return rs_fail_about(RESHARD_ERR_CORRUPT, file_of(r, part, rank),
                                 "holds %lld elements, but the shares of all parameters have %lld",
                                 (long long)held, (long long)total);
    }
    return RESHARD_OK;
}

static reshard_status cut_shares(const rs_zero_part *part, const rs_zero_parameter *parameter,
                                 rs_zero_boxes *boxes)
{
    int64_t share = rs_divide_up(parameter->count, part->rank_count);
    reshard_status status = RESHARD_OK;
    for (int32_t rank = 0; status == RESHARD_OK && boxes->next < parameter->count; rank++)
        status = rs_zero_boxes_add(boxes, rank, parameter->at,
                                   rs_min(share, parameter->count - boxes->next));
    return status;
}

/* ---- names of experts ------------------------------------------------------------------------ */

int64_t rs_zero_find_expert(rs_slice name, size_t *out_at, size_t *out_digits)
{
    size_t length = sizeof experts - 1;
    for (size_t i = 0; i + length < name.count; i++) {
        int64_t number = 0;
        size_t digits = 0;
        if (memcmp(name.bytes + i, experts, length) != 0)
            continue;
        while (i + length + digits < name.count && digits < 9 &&
               rs_is_digit(name.bytes[i + length + digits]))
            number = number * 10 + (name.bytes[i + length + digits++] - '0');
        if (digits == 0)
            continue;
        *out_at = i + length;
        *out_digits = digits;
        return number;
    }
    return -1;
}

static int64_t count_experts(const rs_zero_part *part, int32_t group)
{
    int64_t count = 0;
    size_t at = 0, digits = 0;
    for (int64_t i = 0; i < part->parameter_count; i++) {
        if (part->parameters[i].group == group)
            count = rs_max(count, rs_zero_find_expert(part->parameters[i].name, &at, &digits) + 1);
    }
    return count;
}

/* Each set of ranks has experts of its own, which all call themselves 0, 1, .. */
static reshard_status name_expert(const rs_zero_reading *r, const rs_zero_part *part,
                                  const rs_zero_parameter *parameter, int32_t replica,
                                  rs_slice *out_name)
{
    size_t at = 0, digits = 0;
    int64_t number = rs_zero_find_expert(parameter->name, &at, &digits);
    if (number < 0)
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, file_of(r, part, replica),
                             "parameter \"%.*s\" is cut over %d of the %d ranks, and its name does "
                             "not say which expert of which ranks it is",
                             RS_SHOWN(parameter->told),
                             (int)(part->rank_count / part->groups[parameter->group].replica_count),
                             (int)part->rank_count);
    number += replica * count_experts(part, parameter->group);
    size_t room = parameter->name.count + 24;
    char *bytes = rs_arena_allocate(&r->checkpoint->arena, room);
    if (bytes == NULL)
        return rs_allocation_status();
    const char *rest = parameter->name.bytes + at + digits;
    int length = snprintf(bytes, room, "%.*s%lld%.*s", (int)at, parameter->name.bytes,
                          (long long)number, (int)(parameter->name.count - at - digits), rest);
    *out_name = (rs_slice){bytes, (size_t)length};
    return RESHARD_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* One number for the whole group, which every parameter gets. */
static reshard_status add_single(rs_zero_reading *r, const rs_zero_part *part, rs_slice parameter,
                                 const rs_value_step *step, const rs_zero_kind *kind)
{
    static const int64_t no_dims[1] = {0}; /* a shape is never NULL */
    reshard_checkpoint *checkpoint = r->checkpoint;
    if (kind->value != NULL && part->mp != 0)
        return RESHARD_OK; /* the first part's is kept */
    if (kind->value != NULL)
        return rs_zero_keep_value(checkpoint, kind->single.file, step, kind->value);
    rs_zero_boxes boxes = {.arena = &checkpoint->arena};
    rs_stored_tensor tensor;
    rs_zero_boxes_begin(&boxes, 0, no_dims);
    reshard_status status = rs_zero_boxes_add(&boxes, 0, 0, 1);
    rs_slice name = rs_zero_name(checkpoint, step);
    if (status == RESHARD_OK)
        status = name.bytes != NULL
                     ? rs_zero_boxes_tensor(&boxes, name, kind->dtype, &kind->single, 1, &tensor)
                     : rs_allocation_status();
    rs_zero_boxes_release(&boxes);
    if (status != RESHARD_OK)
        return status;
    tensor.step = step;
    return rs_zero_add_local(r, &tensor, parameter, part->mp);
}

static reshard_status add_kind(rs_zero_reading *r, const rs_zero_part *part, rs_slice name,
                               const rs_zero_parameter *parameter, int32_t index,
                               const rs_zero_boxes *boxes)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    const rs_zero_group *group = &part->groups[parameter->group];
    const rs_zero_kind *kind = &group->kinds[index];
    const rs_value_step *parent = index == 0 ? r->model : r->state;
    rs_stored_tensor tensor;
    const rs_value_step *step = rs_zero_step(checkpoint, parent, name);
    if (step != NULL && index != 0)
        step = rs_zero_step(checkpoint, step, kind->name);
    if (step == NULL)
        return rs_allocation_status();
    if (!kind->is_flat)
        return add_single(r, part, name, step, kind);
    rs_slice full = rs_zero_name(checkpoint, step);
    if (full.bytes == NULL)
        return rs_allocation_status();
    reshard_status status = rs_zero_boxes_tensor(
        boxes, full, kind->dtype, part->flats + group->slot + index, part->slot_count, &tensor);
    if (status != RESHARD_OK)
        return status;
    tensor.step = step;
    return rs_zero_add_local(r, &tensor, name, part->mp);
}

static reshard_status add_parameter(rs_zero_reading *r, const rs_zero_part *part,
                                    const rs_zero_parameter *parameter, int32_t replica,
                                    rs_zero_boxes *boxes)
{
    const rs_zero_group *group = &part->groups[parameter->group];
    rs_slice name = parameter->name;
    reshard_status status = RESHARD_OK;
    if (group->replica_count > 1)
        status = name_expert(r, part, parameter, replica, &name);
    rs_zero_boxes_begin(boxes, parameter->ndim, parameter->shape);
    if (status == RESHARD_OK)
        status = part->stage == 3 ? cut_shares(part, parameter, boxes)
                                  : cut_line(part, parameter, replica, boxes);
    for (int32_t i = 0; status == RESHARD_OK && i < group->kind_count; i++)
        status = add_kind(r, part, name, parameter, i, boxes);
    return status == RESHARD_OK ? RESHARD_OK : rs_fail_within_tensor(status, parameter->name);
}

reshard_status rs_zero_add_parameters(rs_zero_reading *r, rs_zero_part *part)
{
    rs_zero_boxes boxes = {.arena = &r->checkpoint->arena};
    reshard_status status = part->stage == 3 ? place_shares(r, part) : check_lines(r, part);
    for (int64_t i = 0; status == RESHARD_OK && i < part->parameter_count; i++) {
        const rs_zero_parameter *parameter = &part->parameters[i];
        int32_t replicas = part->groups[parameter->group].replica_count;
        for (int32_t j = 0; status == RESHARD_OK && j < replicas; j++)
            status = add_parameter(r, part, parameter, j, &boxes);
    }
    rs_zero_boxes_release(&boxes);
    return status;
}
