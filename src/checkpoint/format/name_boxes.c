/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name_boxes.c - each name starts as a box of its own, grouped with the names that differ from it
 * only in numbers. Then, for each number from the last to the first, boxes of a group that differ
 * only in this number and are consecutive in it are joined.
 */
#include "checkpoint/format/name_boxes.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/sort.h"
#include "base/table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- groups ---------------------------------------------------------------------------------- */

/* Names of one kind that differ only in their numbers. */
typedef struct name_group {
    const rs_name_box *first;
    int32_t place; /* in the order of groups, by kind and then by name */
    struct name_group *next;
} name_group;

typedef struct grouping {
    rs_arena arena; /* of the groups */
    rs_table table; /* groups by kind and by name without numbers */
    int64_t key_capacity;
    char *key;
    name_group *groups; /* linked list, most recent first */
    size_t count;
} grouping;

/* Reads the numbers of a name, and writes the key of its group: the kind, and the name with 0 for
 * each number. A part that looks like a number is one, unless it comes after RS_NAME_NUMBERS_MAX
 * others, so names with equal keys differ only in numbers. */
static size_t read_name(rs_name_box *box, char *key)
{
    size_t used = sizeof box->kind;
    memcpy(key, &box->kind, used);
    box->number_count = 0;
    for (size_t i = 0; i < box->name.count; i++) {
        size_t length = 0;
        if (rs_is_digit(box->name.bytes[i]) && box->number_count < RS_NAME_NUMBERS_MAX)
            length = rs_name_number_length(box->name, i);
        key[used++] = length != 0 ? '0' : box->name.bytes[i];
        if (length == 0)
            continue;
        int32_t n = box->number_count++;
        box->first[n] = box->last[n] = (int32_t)rs_name_number_at(box->name, i, length);
        i += length - 1;
    }
    return used;
}

static reshard_status find_group(grouping *found, rs_name_box *box, name_group **out_group)
{
    int64_t most = (int64_t)(sizeof box->kind + box->name.count);
    reshard_status status =
        rs_grow(found->arena.context, &found->key, &found->key_capacity, most, 1);
    if (status != RESHARD_OK)
        return status;
    size_t bytes = read_name(box, found->key);
    void **place = rs_table_at(&found->table, found->key, bytes);
    if (place == NULL)
        return rs_allocation_status();
    if (*place == NULL) {
        name_group *made = rs_arena_allocate(&found->arena, sizeof *made);
        if (made == NULL)
            return rs_allocation_status();
        *made = (name_group){.first = box, .next = found->groups};
        *place = found->groups = made;
        found->count++;
    }
    *out_group = *place;
    return RESHARD_OK;
}

static int compare_groups(const void *a, const void *b)
{
    const rs_name_box *x = (*(name_group *const *)a)->first, *y = (*(name_group *const *)b)->first;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return rs_name_compare(x->name, y->name, false);
}

/* Numbers the groups in their order. */
static reshard_status order_groups(grouping *found)
{
    size_t used = 0;
    name_group **ordered = rs_arena_allocate_array(&found->arena, found->count, sizeof *ordered);
    if (ordered == NULL)
        return rs_allocation_status();
    for (name_group *group = found->groups; group != NULL; group = group->next)
        ordered[used++] = group;
    rs_sort(ordered, used, sizeof *ordered, compare_groups);
    for (size_t i = 0; i < used; i++)
        ordered[i]->place = (int32_t)i;
    return RESHARD_OK;
}

static int compare_places(const void *a, const void *b)
{
    const rs_name_box *x = a, *y = b;
    return (x->group > y->group) - (x->group < y->group);
}

/* Reads the names and sorts them by group. There are many names and few groups, so a table finds
 * them. */
static reshard_status group_boxes(reshard_context *context, rs_name_box *boxes, int64_t count)
{
    grouping found = {.key = NULL};
    reshard_status status = RESHARD_OK;
    rs_arena_init(&found.arena, context);
    rs_table_init(&found.table, context);
    name_group **group_of = rs_arena_allocate_array(&found.arena, (size_t)count, sizeof *group_of);
    if (group_of == NULL)
        status = rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++)
        status = find_group(&found, &boxes[i], &group_of[i]);
    if (status == RESHARD_OK)
        status = order_groups(&found);
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++)
        boxes[i].group = group_of[i]->place;
    if (status == RESHARD_OK)
        rs_sort(boxes, (size_t)count, sizeof *boxes, compare_places);
    rs_release(context, found.key);
    rs_table_release(&found.table);
    rs_arena_release(&found.arena);
    return status;
}

/* ---- joining --------------------------------------------------------------------------------- */

/* Compares all numbers but one, then that one. */
static int compare_along(const void *a, const void *b)
{
    const rs_name_box *x = a, *y = b;
    for (int32_t i = 0; i < x->number_count; i++) {
        if (i == x->along)
            continue;
        if (x->first[i] != y->first[i])
            return x->first[i] < y->first[i] ? -1 : 1;
        if (x->last[i] != y->last[i])
            return x->last[i] < y->last[i] ? -1 : 1;
    }
    return (x->first[x->along] > y->first[y->along]) - (x->first[x->along] < y->first[y->along]);
}

static bool differ_in_one(const rs_name_box *a, const rs_name_box *b)
{
    for (int32_t i = 0; i < a->number_count; i++) {
        if (i != a->along && (a->first[i] != b->first[i] || a->last[i] != b->last[i]))
            return false;
    }
    return true;
}

/* Joins boxes along one number. Returns how many are left. */
static int64_t join_along(rs_name_box *boxes, int64_t count, int32_t along)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        boxes[i].along = along;
    rs_sort(boxes, (size_t)count, sizeof *boxes, compare_along);
    for (int64_t i = 1; i < count; i++) {
        rs_name_box *last = &boxes[kept];
        if (differ_in_one(last, &boxes[i]) && last->last[along] + 1 == boxes[i].first[along])
            last->last[along] = boxes[i].last[along];
        else
            boxes[++kept] = boxes[i];
    }
    return count != 0 ? kept + 1 : 0;
}

reshard_status rs_name_boxes_join(reshard_context *context, rs_name_box *boxes, int64_t *count)
{
    int64_t kept = 0;
    reshard_status status = group_boxes(context, boxes, *count);
    for (int64_t first = 0, next; status == RESHARD_OK && first < *count; first = next) {
        for (next = first + 1; next < *count; next++) {
            if (boxes[next].group != boxes[first].group)
                break;
        }
        int64_t left = next - first;
        for (int32_t along = boxes[first].number_count; along-- > 0;)
            left = join_along(boxes + first, left, along);
        memmove(boxes + kept, boxes + first, (size_t)left * sizeof *boxes);
        kept += left;
    }
    if (status == RESHARD_OK)
        *count = kept;
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

void rs_name_box_write(const rs_name_box *box, rs_json_writer *writer)
{
    size_t written = 0;
    int32_t n = 0;
    bool is_list = false;
    for (int32_t i = 0; i < box->number_count; i++)
        is_list = is_list || box->first[i] != box->last[i];
    if (!is_list) {
        rs_json_writer_string(writer, box->name);
        return;
    }
    rs_json_writer_add(writer, "[", 1);
    for (size_t i = 0; i < box->name.count && n < box->number_count; i++) {
        size_t length = rs_name_number_length(box->name, i);
        if (length == 0)
            continue;
        if (box->first[n] != box->last[n]) {
            rs_json_writer_string(writer, (rs_slice){box->name.bytes + written, i - written});
            rs_json_writer_add(writer, ",", 1);
            rs_json_writer_integers(writer, 2, (int64_t[]){box->first[n], box->last[n]});
            rs_json_writer_add(writer, ",", 1);
            written = i + length;
        }
        n++;
        i += length - 1;
    }
    rs_json_writer_string(writer, (rs_slice){box->name.bytes + written, box->name.count - written});
    rs_json_writer_add(writer, "]", 1);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Texts, with a range after each but the last. */
typedef struct box_parts {
    int32_t text_count, range_count;
    rs_slice texts[RS_NAME_NUMBERS_MAX + 1];
    int64_t first[RS_NAME_NUMBERS_MAX], last[RS_NAME_NUMBERS_MAX];
} box_parts;

/* Reads [first, last] after its opening bracket. */
static reshard_status read_range(rs_json *json, int64_t *out_first, int64_t *out_last)
{
    uint64_t numbers[2] = {0, 0};
    rs_json_token token;
    for (int i = 0; i < 2; i++) {
        reshard_status status = rs_json_next(json, &token);
        if (status == RESHARD_OK)
            status = rs_json_unsigned(json, &token, &numbers[i]);
        if (status != RESHARD_OK)
            return status;
    }
    if (numbers[1] < numbers[0] || numbers[1] >= INT64_MAX)
        return rs_json_fail(json, &token, "expected a range of numbers");
    *out_first = (int64_t)numbers[0];
    *out_last = (int64_t)numbers[1];
    return rs_json_expect(json, RS_JSON_LIST_END, "expected two numbers for a range", &token);
}

static reshard_status read_parts(rs_arena *arena, rs_json *json, box_parts *parts)
{
    rs_json_token token;
    reshard_status status = rs_json_next(json, &token);
    if (status == RESHARD_OK && token.kind == RS_JSON_STRING) {
        parts->text_count = 1;
        return rs_json_copy(&token, arena, &parts->texts[0]);
    }
    if (status == RESHARD_OK && token.kind != RS_JSON_LIST_BEGIN)
        return rs_json_fail(json, &token, "expected a name, or a list of texts and ranges");
    while (status == RESHARD_OK && (status = rs_json_next(json, &token)) == RESHARD_OK) {
        bool wants_text = parts->text_count == parts->range_count;
        if (token.kind == RS_JSON_LIST_END && !wants_text)
            return RESHARD_OK;
        if (wants_text && token.kind == RS_JSON_STRING)
            status = rs_json_copy(&token, arena, &parts->texts[parts->text_count++]);
        else if (!wants_text && token.kind == RS_JSON_LIST_BEGIN &&
                 parts->range_count < RS_NAME_NUMBERS_MAX) {
            int32_t n = parts->range_count++;
            status = read_range(json, &parts->first[n], &parts->last[n]);
        } else
            return rs_json_fail(json, &token, "expected texts and ranges in turn");
    }
    return status;
}

static size_t print_name(const box_parts *parts, const int64_t *numbers, char *buffer, size_t room)
{
    size_t used = 0;
    for (int32_t i = 0; i < parts->text_count; i++) {
        if (used + parts->texts[i].count < room)
            memcpy(buffer + used, parts->texts[i].bytes, parts->texts[i].count);
        used += parts->texts[i].count;
        if (i < parts->range_count) {
            char digits[24];
            size_t length = (size_t)snprintf(digits, sizeof digits, "%" PRId64, numbers[i]);
            if (used + length < room)
                memcpy(buffer + used, digits, length);
            used += length;
        }
    }
    if (used < room)
        buffer[used] = '\0';
    return used;
}

static reshard_status add_names(rs_arena *arena, const box_parts *parts, int64_t count,
                                rs_name_fn *add, void *user)
{
    int64_t numbers[RS_NAME_NUMBERS_MAX];
    memcpy(numbers, parts->first, sizeof numbers);
    for (int64_t i = 0; i < count; i++) {
        size_t length = print_name(parts, numbers, NULL, 0);
        char *bytes = rs_arena_allocate(arena, length + 1);
        if (bytes == NULL)
            return rs_allocation_status();
        (void)print_name(parts, numbers, bytes, length + 1);
        reshard_status status = add(user, (rs_slice){bytes, length});
        if (status != RESHARD_OK)
            return status;
        for (int32_t n = parts->range_count; n-- > 0;) {
            if (++numbers[n] <= parts->last[n])
                break;
            numbers[n] = parts->first[n];
        }
    }
    return RESHARD_OK;
}

reshard_status rs_name_box_read(rs_arena *arena, rs_json *json, int64_t most, rs_name_fn *add,
                                void *user)
{
    box_parts parts = {.text_count = 0};
    int64_t count = 1;
    reshard_status status = read_parts(arena, json, &parts);
    if (status != RESHARD_OK)
        return status;
    assert(parts.text_count == parts.range_count + 1);
    for (int32_t n = 0; n < parts.range_count; n++) {
        if (!rs_multiply(count, parts.last[n] - parts.first[n] + 1, &count))
            count = INT64_MAX;
    }
    if (count > most)
        return rs_fail_about(RESHARD_ERR_CORRUPT, json->what,
                             "names more tensors than the files hold");
    return add_names(arena, &parts, count, add, user);
}
