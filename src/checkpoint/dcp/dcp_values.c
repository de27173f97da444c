/* SPDX-License-Identifier: Apache-2.0 */
/* dcp_values.c - makes archives of values, takes nested values apart, and copies stored ones. */
#include "checkpoint/dcp/dcp_write.h"

#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/archive/pickle_write.h"
#include "checkpoint/torch/torch_save.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COPY_BYTES ((size_t)1 << 20)
/* Limit for the names of all values. A shared value has a name for each place it is used in. */
#define NAME_BYTES_MAX ((size_t)1 << 30)

bool rs_dcp_holds_value(const rs_stored_value *value)
{
    return value->bytes != 0 || rs_torch_nest_holds(value);
}

/* ---- entries --------------------------------------------------------------------------------- */

enum { PICKLE, ORDER, VERSION, MEMBER_COUNT };

/* The archive that torch.save makes of a value without tensors. */
typedef struct value_archive {
    rs_pickle_writer pickle;
    rs_zip_draft *draft;
    rs_slice contents[MEMBER_COUNT];
} value_archive;

/* Release the archive in any case. */
static reshard_status make_archive(reshard_context *context, const rs_dcp_value *value,
                                   value_archive *made)
{
    static const char *const names[MEMBER_COUNT] = {"archive/data.pkl", "archive/byteorder",
                                                    "archive/version"};
    rs_zip_entry members[MEMBER_COUNT];
    *made = (value_archive){.contents[ORDER] = rs_slice_of("little"),
                            .contents[VERSION] = rs_slice_of("3\n")};
    rs_pickle_writer_init(&made->pickle, context);
    reshard_status status = RESHARD_OK;
    made->contents[PICKLE] = value->pickle;
    if (value->pickle.bytes == NULL) {
        rs_pickle_writer_begin(&made->pickle);
        rs_torch_nest_write_value(&made->pickle, value->node);
        status = rs_pickle_writer_finish(&made->pickle, &made->contents[PICKLE]);
    }
    for (int i = 0; status == RESHARD_OK && i < MEMBER_COUNT; i++)
        members[i] = (rs_zip_entry){rs_slice_of(names[i]), made->contents[i].count};
    return status == RESHARD_OK
               ? rs_zip_draft_create(context, members, MEMBER_COUNT, RS_ZIP_ALIGNMENT, &made->draft)
               : status;
}

static void release_archive(value_archive *made)
{
    rs_zip_draft_destroy(made->draft);
    rs_pickle_writer_release(&made->pickle);
}

static reshard_status write_made(const rs_target *target, const rs_dcp_value *value, rs_file *file)
{
    rs_zip_sum sums[MEMBER_COUNT] = {{0}};
    value_archive made;
    reshard_status status = make_archive(target->context, value, &made);
    assert(status != RESHARD_OK || rs_zip_draft_bytes(made.draft) == value->bytes);
    for (int i = 0; status == RESHARD_OK && i < MEMBER_COUNT; i++) {
        rs_slice content = made.contents[i];
        rs_zip_sum_add(&sums[i], content.count, 0, content.bytes, content.count);
        status = rs_file_write(file, content.bytes, content.count,
                               value->at + rs_zip_draft_data_at(made.draft, (size_t)i));
    }
    if (status == RESHARD_OK)
        status = rs_zip_draft_finish(made.draft, file, value->at, sums);
    release_archive(&made);
    return status;
}

static reshard_status copy_stored(const rs_target *target, const rs_dcp_value *value, rs_file *file)
{
    const rs_stored_value *stored = value->stored;
    const rs_file *from = target->source->files[stored->file].file;
    reshard_status status = RESHARD_OK;
    char *memory = rs_allocate(target->context, COPY_BYTES);
    if (memory == NULL)
        return rs_allocation_status();
    for (uint64_t done = 0, part; status == RESHARD_OK && done < stored->bytes; done += part) {
        part = stored->bytes - done;
        part = part < COPY_BYTES ? part : COPY_BYTES;
        status = rs_file_read(from, memory, (size_t)part, stored->at + done);
        if (status == RESHARD_OK)
            status = rs_file_write(file, memory, (size_t)part, value->at + done);
    }
    rs_release(target->context, memory);
    return status;
}

reshard_status rs_dcp_value_write(const rs_target *target, const rs_dcp_value *value, rs_file *file)
{
    return rs_fail_within(value->stored != NULL ? copy_stored(target, value, file)
                                                : write_made(target, value, file),
                          "value \"%.*s\"", rs_slice_shown(value->name), value->name.bytes);
}

/* ---- taking apart ---------------------------------------------------------------------------- */

typedef struct listing {
    const rs_target *target;
    rs_arena *arena; /* the target's */
    int64_t count, capacity;
    rs_dcp_value *items;
    size_t name_bytes_left;
} listing;

static reshard_status add(listing *l, const rs_dcp_value *value)
{
    reshard_status status =
        rs_grow(l->target->context, &l->items, &l->capacity, l->count + 1, sizeof *value);
    if (status == RESHARD_OK)
        l->items[l->count++] = *value;
    return status;
}

/* Is it a dict whose keys can be steps of a name, or a list that contains such a dict? */
static bool is_taken_apart(const rs_pickle_node *node)
{
    const rs_pickle_node *dict = rs_pickle_dict(node);
    if (dict != NULL) {
        bool has_steps = rs_pickle_count(dict) != 0;
        for (size_t i = 0; has_steps && i < rs_pickle_count(dict); i++)
            has_steps = rs_pickle_is(dict->items.nodes[2 * i], RS_PICKLE_TEXT) ||
                        rs_pickle_is(dict->items.nodes[2 * i], RS_PICKLE_INT);
        return has_steps;
    }
    for (size_t i = 0; rs_pickle_is(node, RS_PICKLE_LIST) && i < rs_pickle_count(node); i++) {
        if (is_taken_apart(rs_pickle_item(node, i)))
            return true;
    }
    return false;
}

reshard_status rs_dcp_value_measure(reshard_context *context, rs_dcp_value *value)
{
    value_archive made;
    reshard_status status = make_archive(context, value, &made);
    if (status == RESHARD_OK)
        value->bytes = rs_zip_draft_bytes(made.draft);
    release_archive(&made);
    return status;
}

static reshard_status add_made(listing *l, const rs_dcp_value *value)
{
    rs_dcp_value sized = *value;
    reshard_status status = rs_dcp_value_measure(l->target->context, &sized);
    return status == RESHARD_OK ? add(l, &sized) : status;
}

static reshard_status take_apart(listing *l, const rs_dcp_value *whole);

/* Adds one part of a value, one step further down. */
static reshard_status add_part(listing *l, const rs_dcp_value *whole, const rs_value_step *given,
                               const rs_pickle_node *node)
{
    char digits[24];
    rs_slice word = given->key;
    rs_dcp_value part = {.node = node};
    if (word.bytes == NULL) {
        int length = snprintf(digits, sizeof digits, "%" PRId64, given->number);
        word = (rs_slice){digits, (size_t)length};
    }
    size_t count = whole->name.count + 1 + word.count;
    if (count >= l->name_bytes_left)
        return rs_fail(RESHARD_ERR_RANGE,
                       "value \"%.*s\": the names of its parts take more than %zu bytes",
                       rs_slice_shown(whole->name), whole->name.bytes, NAME_BYTES_MAX);
    l->name_bytes_left -= count;
    char *name = rs_arena_allocate(l->arena, count + 1);
    if (name == NULL)
        return rs_allocation_status();
    memcpy(name, whole->name.bytes, whole->name.count);
    name[whole->name.count] = '.';
    memcpy(name + whole->name.count + 1, word.bytes, word.count);
    name[count] = '\0';
    part.name = (rs_slice){name, count};
    if (whole->step != NULL) {
        rs_value_step step = *given;
        step.parent = whole->step;
        part.step = rs_arena_copy(l->arena, &step, 1, sizeof step);
        if (part.step == NULL)
            return rs_allocation_status();
    }
    return take_apart(l, &part);
}

/* The recursion is as deep as rs_torch_nest_holds allows. */
static reshard_status take_apart(listing *l, const rs_dcp_value *whole)
{
    const rs_pickle_node *dict = rs_pickle_dict(whole->node);
    const rs_pickle_node *parts = dict != NULL ? dict : whole->node;
    reshard_status status = RESHARD_OK;
    if (!is_taken_apart(whole->node))
        return add_made(l, whole);
    for (size_t i = 0; status == RESHARD_OK && i < rs_pickle_count(parts); i++) {
        rs_value_step step = {.in_list = dict == NULL, .number = (int64_t)i};
        if (dict != NULL && !rs_pickle_text(parts->items.nodes[2 * i], &step.key))
            (void)rs_pickle_int(parts->items.nodes[2 * i], &step.number);
        status = add_part(l, whole, &step,
                          dict != NULL ? parts->items.nodes[2 * i + 1] : parts->items.nodes[i]);
    }
    return status;
}

/* ---- all values ------------------------------------------------------------------------------ */

static reshard_status fail_twice(rs_slice name)
{
    return rs_fail(RESHARD_ERR_INVALID, "two values would have the name \"%.*s\"",
                   rs_slice_shown(name), name.bytes);
}

static reshard_status list_all(listing *l, const reshard_checkpoint *source)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < source->value_count; i++) {
        const rs_stored_value *value = &source->values[i];
        rs_slice name = value->name;
        if (!rs_dcp_holds_value(value) || !rs_target_keeps(l->target, &name))
            continue;
        rs_dcp_value made = {.name = name, .node = value->node, .bytes = value->bytes};
        if (rs_slice_compare(name, value->name) == 0)
            made.step = value->place.step;
        if (value->bytes != 0) {
            made.stored = value;
            status = add(l, &made);
        } else {
            status = take_apart(l, &made);
        }
    }
    rs_sort(l->items, (size_t)l->count, sizeof *l->items, rs_compare_slices);
    for (int64_t i = 1; status == RESHARD_OK && i < l->count; i++) {
        if (rs_compare_slices(&l->items[i - 1], &l->items[i]) == 0)
            status = fail_twice(l->items[i].name);
    }
    return status;
}

reshard_status rs_dcp_values_list(const rs_target *target, const reshard_checkpoint *source,
                                  rs_arena *arena, int64_t *out_count, rs_dcp_value **out_values)
{
    listing l = {.target = target, .arena = arena, .name_bytes_left = NAME_BYTES_MAX};
    reshard_status status = source != NULL ? list_all(&l, source) : RESHARD_OK;
    if (status == RESHARD_OK) {
        *out_count = l.count;
        *out_values = rs_arena_copy(arena, l.items, (size_t)l.count, sizeof *l.items);
        status = *out_values != NULL ? RESHARD_OK : rs_allocation_status();
    }
    rs_release(target->context, l.items);
    return status;
}

reshard_status rs_dcp_values_check(const rs_target *target, int64_t count,
                                   const rs_dcp_value *values)
{
    for (int64_t i = 0; count != 0 && i < target->tensor_count; i++) {
        const rs_dcp_value wanted = {.name = target->tensors[i].name};
        if (bsearch(&wanted, values, (size_t)count, sizeof wanted, rs_compare_slices) != NULL)
            return fail_twice(wanted.name);
    }
    return RESHARD_OK;
}
