/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name_groups.c - sorts names, ignoring their numbers, and then by shape. Equal ones are then
 * adjacent and form a group, whose pattern has a range wherever their numbers differ.
 */
#include "checkpoint/rules/name_groups.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/sort.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES_MAX 9 /* digits of a number; longer ones count as text */
#define SHAPE_BYTES 192

size_t rs_name_number_length(rs_slice name, size_t at)
{
    size_t end = at;
    if (at > 0 && name.bytes[at - 1] != '.')
        return 0;
    while (end < name.count && rs_is_digit(name.bytes[end]))
        end++;
    bool is_whole = end == name.count || name.bytes[end] == '.';
    bool is_plain = end - at == 1 || (end > at && name.bytes[at] != '0');
    return is_whole && is_plain && end - at <= NUMBER_BYTES_MAX ? end - at : 0;
}

int64_t rs_name_number_at(rs_slice name, size_t at, size_t length)
{
    int64_t number = 0;
    for (size_t i = 0; i < length; i++)
        number = number * 10 + (name.bytes[at + i] - '0');
    return number;
}

int rs_name_compare(rs_slice a, rs_slice b, bool by_number)
{
    size_t i = 0, j = 0;
    int numbers = 0, order = 0;
    while (i < a.count && j < b.count) {
        size_t a_length = numbers < RS_NAME_NUMBERS_MAX ? rs_name_number_length(a, i) : 0;
        size_t b_length = numbers < RS_NAME_NUMBERS_MAX ? rs_name_number_length(b, j) : 0;
        if (a_length != 0 && b_length != 0) {
            int64_t x = rs_name_number_at(a, i, a_length), y = rs_name_number_at(b, j, b_length);
            if (order == 0)
                order = (x > y) - (x < y);
            i += a_length;
            j += b_length;
            numbers++;
        } else if (a_length != 0 || b_length != 0) {
            /* numbers come first: by digits, 07 would sort among them */
            return a_length != 0 ? -1 : 1;
        } else if (a.bytes[i] != b.bytes[j]) {
            return (unsigned char)a.bytes[i] < (unsigned char)b.bytes[j] ? -1 : 1;
        } else {
            i++;
            j++;
        }
    }
    if (i < a.count || j < b.count)
        return i < a.count ? 1 : -1;
    return by_number ? order : 0;
}

static int compare_shapes(const rs_named_shape *a, const rs_named_shape *b)
{
    if (a->ndim != b->ndim)
        return a->ndim < b->ndim ? -1 : 1;
    for (int32_t d = 0; d < a->ndim; d++) {
        if (a->shape[d] != b->shape[d])
            return a->shape[d] < b->shape[d] ? -1 : 1;
    }
    return 0;
}

static int compare_kinds(const rs_named_shape *a, const rs_named_shape *b)
{
    int order = rs_name_compare(a->name, b->name, false);
    return order != 0 ? order : compare_shapes(a, b);
}

static int compare_items(const void *a, const void *b)
{
    const rs_named_shape *x = a, *y = b;
    int order = compare_kinds(x, y);
    return order != 0 ? order : rs_name_compare(x->name, y->name, true);
}

typedef struct number_range {
    int64_t least, most;
} number_range;

static int find_ranges(const rs_named_shape *items, int64_t count,
                       number_range ranges[RS_NAME_NUMBERS_MAX])
{
    int numbers = 0;
    for (int64_t k = 0; k < count; k++) {
        rs_slice name = items[k].name;
        numbers = 0;
        for (size_t i = 0; i < name.count && numbers < RS_NAME_NUMBERS_MAX; i++) {
            size_t length = rs_name_number_length(name, i);
            if (length == 0)
                continue;
            int64_t number = rs_name_number_at(name, i, length);
            number_range *range = &ranges[numbers++];
            range->least = k == 0 ? number : rs_min(range->least, number);
            range->most = k == 0 ? number : rs_max(range->most, number);
            i += length - 1;
        }
    }
    return numbers;
}

/* Writes the character at the front of the bytes and returns its length. What would not show is
 * written as numbers, so that the pattern is one line of text whatever the name is. */
static size_t write_character(const char *bytes, size_t room, rs_text *text)
{
    size_t measured = rs_utf8_measure(bytes, room), length = measured != 0 ? measured : 1;
    bool shows = reshard_text_escape(bytes, length, NULL, 0) == length;
    if (shows && strchr("*?{}\\ ", bytes[0]) != NULL)
        rs_text_add(text, "\\");
    for (size_t i = 0; i < length; i++)
        rs_text_add(text, shows ? "%c" : "\\x%02x", (unsigned char)bytes[i]);
    return length;
}

static void write_pattern(rs_slice name, int numbers, const number_range *ranges, rs_text *text)
{
    int seen = 0;
    for (size_t i = 0; i < name.count;) {
        size_t length = seen < numbers ? rs_name_number_length(name, i) : 0;
        if (length != 0) {
            const number_range *range = &ranges[seen++];
            if (range->least == range->most)
                rs_text_add(text, "%" PRId64, range->least);
            else
                rs_text_add(text, "{%" PRId64 "..%" PRId64 "}", range->least, range->most);
            i += length;
        } else {
            i += write_character(name.bytes + i, name.count - i, text);
        }
    }
}

static reshard_status make_group(rs_arena *arena, const rs_named_shape *items, int64_t count,
                                 rs_name_group *out_group)
{
    number_range ranges[RS_NAME_NUMBERS_MAX] = {{0, 0}};
    rs_text text;
    int numbers = find_ranges(items, count, ranges);
    rs_text_init(&text, NULL, 0);
    write_pattern(items->name, numbers, ranges, &text);
    size_t bytes = text.length + 1;
    char *pattern = rs_arena_allocate(arena, bytes);
    if (pattern == NULL)
        return rs_allocation_status();
    rs_text_init(&text, pattern, bytes);
    write_pattern(items->name, numbers, ranges, &text);
    *out_group = (rs_name_group){pattern, count, items};
    return RESHARD_OK;
}

reshard_status rs_name_groups_make(rs_arena *arena, int64_t count, rs_named_shape *items,
                                   rs_name_group **out_groups, int64_t *out_count)
{
    int64_t group_count = 0;
    rs_name_group *groups = rs_arena_allocate_array(arena, (size_t)count, sizeof *groups);
    if (groups == NULL)
        return rs_allocation_status();
    rs_sort(items, (size_t)count, sizeof *items, compare_items);
    for (int64_t i = 0; i < count;) {
        int64_t next = i + 1;
        while (next < count && compare_kinds(&items[i], &items[next]) == 0)
            next++;
        reshard_status status = make_group(arena, items + i, next - i, &groups[group_count++]);
        if (status != RESHARD_OK)
            return status;
        i = next;
    }
    *out_groups = groups;
    *out_count = group_count;
    return RESHARD_OK;
}

void rs_name_groups_text(const rs_name_group *groups, int64_t count, size_t bytes, rs_text *text)
{
    for (int64_t i = 0; i < count; i++) {
        char buffer[SHAPE_BYTES];
        rs_text shape;
        rs_text_init(&shape, buffer, sizeof buffer);
        rs_text_add_shape(&shape, groups[i].first->ndim, groups[i].first->shape);
        if (i > 0 && text->length + strlen(groups[i].pattern) + strlen(buffer) + 40 > bytes) {
            rs_text_add(text, "; and %" PRId64 " more such groups", count - i);
            return;
        }
        rs_text_add(text, "%s%.300s", i == 0 ? "" : "; ", groups[i].pattern);
        if (groups[i].count > 1)
            rs_text_add(text, " x%" PRId64, groups[i].count);
        rs_text_add(text, " %s", buffer);
    }
}
