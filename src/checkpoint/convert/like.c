/* SPDX-License-Identifier: Apache-2.0 */
/*
 * like.c - compares what would be written with a list of names, dtypes and shapes, such as an
 * inference engine prints of the parameters that it will ask for. The list is what each rank of the
 * target holds, in one file or in several, or the whole tensors if it is not split.
 */
#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/convert/target_make.h"
#include "checkpoint/target/target.h"
#include "system/file.h"
#include "text/dtype_names.h"
#include "text/json.h"
#include "text/text.h"

#include <stdio.h>
#include <string.h>

#define LIST_BYTES_MAX ((size_t)256 << 20)
#define SHOWN 3 /* differences that the error names */

/* What is wanted, or what is there: rank -1 stands for each rank. */
typedef struct like_item {
    rs_slice name;
    reshard_dtype dtype;
    int32_t ndim, rank;
    const int64_t *shape;
} like_item;

typedef struct like_list {
    rs_arena *arena;
    int64_t count, capacity;
    like_item *items;
} like_list;

static int compare_items(const void *a, const void *b)
{
    const like_item *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank)
                              : rs_slice_compare(x->name, y->name);
}

static reshard_status add_item(like_list *list, const like_item *item)
{
    reshard_status status = rs_grow(list->arena->context, &list->items, &list->capacity,
                                    list->count + 1, sizeof *list->items);
    if (status == RESHARD_OK)
        list->items[list->count++] = *item;
    return status;
}

/* ---- the list -------------------------------------------------------------------------------- */

/* Reads PyTorch's names, with or without "torch.", and our own in letters of any case. */
static bool read_dtype(const char *name, reshard_dtype *out_dtype)
{
    char small[32];
    size_t length = 0;
    if (strncmp(name, "torch.", 6) == 0)
        name += 6;
    for (int dtype = 1; dtype < RESHARD_DTYPE_COUNT; dtype++) {
        const char *known = rs_dtype_torch_name((reshard_dtype)dtype);
        if (known != NULL && strcmp(known, name) == 0) {
            *out_dtype = (reshard_dtype)dtype;
            return true;
        }
    }
    for (; name[length] != '\0' && length + 1 < sizeof small; length++)
        small[length] =
            (char)(name[length] >= 'A' && name[length] <= 'Z' ? name[length] + 32 : name[length]);
    small[length] = '\0';
    return reshard_dtype_parse(small, out_dtype) == RESHARD_OK;
}

static reshard_status read_shape(rs_arena *arena, rs_json *json, like_item *item)
{
    int64_t numbers[RESHARD_NDIM_MAX];
    rs_json_token token;
    reshard_status status =
        rs_json_expect(json, RS_JSON_LIST_BEGIN, "expected a shape, such as [24, 64]", &token);
    while (rs_json_next_member(json, &token, &status)) {
        uint64_t number = 0;
        status = rs_json_unsigned(json, &token, &number);
        if (status == RESHARD_OK && (item->ndim == RESHARD_NDIM_MAX || number > INT64_MAX))
            return rs_json_fail(json, &token,
                                "the shape has more than 8 dimensions, or an extent beyond 2^63-1");
        if (status == RESHARD_OK)
            numbers[item->ndim++] = (int64_t)number;
    }
    if (status != RESHARD_OK)
        return status;
    item->shape = rs_arena_copy(arena, numbers, (size_t)item->ndim, sizeof *numbers);
    return item->shape != NULL ? RESHARD_OK : rs_allocation_status();
}

/* Reads ["bfloat16", [24, 64]]. */
static reshard_status read_item(rs_arena *arena, rs_json *json, like_item *item)
{
    static const char wanted[] = "expected [dtype, shape]";
    rs_json_token token;
    rs_slice dtype = {NULL, 0};
    reshard_status status = rs_json_expect(json, RS_JSON_LIST_BEGIN, wanted, &token);
    if (status == RESHARD_OK)
        status = rs_json_expect(json, RS_JSON_STRING, wanted, &token);
    if (status == RESHARD_OK)
        status = rs_json_copy(&token, arena, &dtype);
    if (status == RESHARD_OK && !read_dtype(dtype.bytes, &item->dtype))
        return rs_json_fail(json, &token, "the dtype is unknown");
    if (status == RESHARD_OK)
        status = read_shape(arena, json, item);
    return status == RESHARD_OK ? rs_json_expect(json, RS_JSON_LIST_END, wanted, &token) : status;
}

static reshard_status read_list(const char *path, const char *text, size_t bytes, like_list *list)
{
    rs_json json;
    rs_json_token token;
    rs_json_init(&json, path, text, bytes);
    reshard_status status = rs_json_expect(&json, RS_JSON_OBJECT_BEGIN,
                                           "expected an object {name: [dtype, shape]}", &token);
    while (rs_json_next_member(&json, &token, &status)) {
        like_item item = {.rank = -1};
        status = rs_json_copy(&token, list->arena, &item.name);
        if (status == RESHARD_OK)
            status = read_item(list->arena, &json, &item);
        if (status == RESHARD_OK)
            status = add_item(list, &item);
    }
    if (status == RESHARD_OK)
        status = rs_json_next(&json, &token); /* nothing follows */
    if (status != RESHARD_OK)
        return status;
    rs_sort(list->items, (size_t)list->count, sizeof *list->items, compare_items);
    for (int64_t i = 1; i < list->count; i++) {
        if (compare_items(&list->items[i - 1], &list->items[i]) == 0)
            return rs_fail_about(RESHARD_ERR_INVALID, path, "names \"%.*s\" twice",
                                 rs_slice_shown(list->items[i].name), list->items[i].name.bytes);
    }
    return RESHARD_OK;
}

/* ---- what would be written ------------------------------------------------------------------- */

static reshard_status list_target(const rs_target *target, like_list *list)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < target->entry_count; i++) {
        const rs_target_entry *entry = &target->entries[i];
        const rs_target_array *array = rs_target_array_of(target, entry);
        const like_item item = {.name = rs_target_key(target, entry),
                                .dtype = target->tensors[entry->tensor].dtype,
                                .ndim = array->ndim,
                                .rank = target->ranks != NULL ? target->ranks[entry->file] : 0,
                                .shape = array->shape};
        status = add_item(list, &item);
    }
    if (status == RESHARD_OK)
        rs_sort(list->items, (size_t)list->count, sizeof *list->items, compare_items);
    return status;
}

/* ---- the two --------------------------------------------------------------------------------- */

typedef struct differences {
    int64_t count;
    char text[900];
    rs_text words;
} differences;

static void write_item(rs_text *words, const like_item *item)
{
    rs_text_add(words, "%s ", reshard_dtype_name(item->dtype));
    rs_text_add_shape(words, item->ndim, item->shape);
}

/* Adds a difference. wanted or found may be NULL. */
static void add_difference(differences *all, const like_item *wanted, const like_item *found,
                           int32_t rank)
{
    const like_item *item = wanted != NULL ? wanted : found;
    if (all->count++ >= SHOWN)
        return;
    rs_text_add(&all->words, "%s\"%.*s\" of rank %d ", all->count == 1 ? "" : "; ",
                rs_slice_shown(item->name), item->name.bytes, (int)rank);
    if (wanted == NULL || found == NULL) {
        rs_text_add(&all->words, wanted == NULL ? "is not expected" : "would not be written");
        return;
    }
    rs_text_add(&all->words, "would be ");
    write_item(&all->words, found);
    rs_text_add(&all->words, ", not ");
    write_item(&all->words, wanted);
}

static bool is_alike(const like_item *a, const like_item *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(int64_t)) == 0;
}

/* Compares what one rank holds, items `first` up to `end`, with all that is wanted. */
static void compare_rank(const like_list *wanted, const like_list *found, int64_t first,
                         int64_t end, differences *all)
{
    int32_t rank = first < end ? found->items[first].rank : 0;
    int64_t i = 0, k = first;
    while (i < wanted->count || k < end) {
        const like_item *a = i < wanted->count ? &wanted->items[i] : NULL;
        const like_item *b = k < end ? &found->items[k] : NULL;
        int order = a == NULL ? 1 : b == NULL ? -1 : rs_slice_compare(a->name, b->name);
        if (order != 0 || !is_alike(a, b))
            add_difference(all, order <= 0 ? a : NULL, order >= 0 ? b : NULL, rank);
        i += order <= 0;
        k += order >= 0;
    }
}

static reshard_status compare_lists(const char *path, const like_list *wanted,
                                    const like_list *found)
{
    differences all = {.count = 0};
    rs_text_init(&all.words, all.text, sizeof all.text);
    int64_t first = 0, end = 0;
    do {
        while (end < found->count && found->items[end].rank == found->items[first].rank)
            end++;
        compare_rank(wanted, found, first, end, &all);
        first = end;
    } while (first < found->count);
    if (all.count == 0)
        return RESHARD_OK;
    return rs_fail_about(RESHARD_ERR_INVALID, path, "%lld tensor%s would not be as it says: %s%s",
                         (long long)all.count, all.count == 1 ? "" : "s", all.text,
                         all.count > SHOWN ? "; .." : "");
}

reshard_status rs_target_check_like(rs_target *target, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    like_list wanted = {.arena = &target->arena}, found = {.arena = &target->arena};
    reshard_status status = rs_file_read_all(target->context, path, LIST_BYTES_MAX, &text, &bytes);
    if (status == RESHARD_OK)
        status = read_list(path, text, bytes, &wanted);
    if (status == RESHARD_OK)
        status = list_target(target, &found);
    if (status == RESHARD_OK)
        status = compare_lists(path, &wanted, &found);
    if (status == RESHARD_OK)
        status = rs_target_say(target, "names, dtypes and shapes match %.200s: %lld in all", path,
                               (long long)wanted.count);
    rs_release(target->context, text);
    rs_release(wanted.arena->context, wanted.items);
    rs_release(found.arena->context, found.items);
    return status;
}
