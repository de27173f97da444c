/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_query.c - questions about nodes, and the index of a large dict. The index is a sorted
 * array of the text keys, so that no choice of keys can make it slow. */
#include "base/context.h"
#include "base/error.h"
#include "base/search.h"
#include "base/sort.h"
#include "checkpoint/archive/pickle.h"

#include <assert.h>
#include <string.h>

struct rs_pickle_pair {
    rs_slice key;
    size_t position; /* of the pair in the dict */
    const rs_pickle_node *value;
};

bool rs_pickle_is(const rs_pickle_node *node, rs_pickle_kind kind)
{
    return node != NULL && node->kind == kind;
}

const char *rs_pickle_kind_text(const rs_pickle_node *node)
{
    static const char *const texts[] = {
        [RS_PICKLE_NONE] = "None",
        [RS_PICKLE_BOOL] = "a bool",
        [RS_PICKLE_INT] = "an int",
        [RS_PICKLE_LARGE] = "an int beyond 64 bits",
        [RS_PICKLE_FLOAT] = "a float",
        [RS_PICKLE_TEXT] = "a text",
        [RS_PICKLE_BYTES] = "bytes",
        [RS_PICKLE_BYTEARRAY] = "a bytearray",
        [RS_PICKLE_TUPLE] = "a tuple",
        [RS_PICKLE_LIST] = "a list",
        [RS_PICKLE_SET] = "a set",
        [RS_PICKLE_FROZENSET] = "a frozenset",
        [RS_PICKLE_DICT] = "a dict",
        [RS_PICKLE_GLOBAL] = "a global",
        [RS_PICKLE_REDUCE] = "a call",
        [RS_PICKLE_OBJECT] = "an object",
        [RS_PICKLE_PERSISTENT] = "a reference to something outside",
    };
    return node != NULL ? texts[node->kind] : "nothing";
}

bool rs_pickle_is_global(const rs_pickle_node *node, const char *module, const char *name)
{
    if (!rs_pickle_is(node, RS_PICKLE_GLOBAL) || !rs_slice_equals(node->global->name, name))
        return false;
    rs_slice given = node->global->module;
    return rs_slice_equals(given, module) ||
           (strcmp(module, "builtins") == 0 && rs_slice_equals(given, "__builtin__")) ||
           (strcmp(module, "copyreg") == 0 && rs_slice_equals(given, "copy_reg"));
}

bool rs_pickle_is_any_call(const rs_pickle_node *node)
{
    return rs_pickle_is(node, RS_PICKLE_REDUCE) || rs_pickle_is(node, RS_PICKLE_OBJECT);
}

bool rs_pickle_is_call(const rs_pickle_node *node, const char *module, const char *name)
{
    return rs_pickle_is_any_call(node) && rs_pickle_is_global(node->call->callable, module, name);
}

bool rs_pickle_int(const rs_pickle_node *node, int64_t *out_integer)
{
    if (!rs_pickle_is(node, RS_PICKLE_INT))
        return false;
    *out_integer = node->integer;
    return true;
}

bool rs_pickle_text(const rs_pickle_node *node, rs_slice *out_text)
{
    if (!rs_pickle_is(node, RS_PICKLE_TEXT))
        return false;
    *out_text = node->bytes;
    return true;
}

static bool has_items(const rs_pickle_node *node)
{
    return rs_pickle_is(node, RS_PICKLE_TUPLE) || rs_pickle_is(node, RS_PICKLE_LIST) ||
           rs_pickle_is(node, RS_PICKLE_SET) || rs_pickle_is(node, RS_PICKLE_FROZENSET);
}

const rs_pickle_node *rs_pickle_item(const rs_pickle_node *node, size_t index)
{
    return has_items(node) && index < node->items.count ? node->items.nodes[index] : NULL;
}

size_t rs_pickle_count(const rs_pickle_node *node)
{
    return has_items(node)                      ? node->items.count
           : rs_pickle_is(node, RS_PICKLE_DICT) ? node->items.count / 2
                                                : 0;
}

const rs_pickle_node *rs_pickle_dict(const rs_pickle_node *node)
{
    return rs_pickle_is_any_call(node)          ? node->call->dict
           : rs_pickle_is(node, RS_PICKLE_DICT) ? node
                                                : NULL;
}

const rs_pickle_node *rs_pickle_get(const rs_pickle_node *node, const char *key)
{
    const rs_pickle_node *dict = rs_pickle_dict(node);
    size_t length = strlen(key);
    rs_slice text;
    for (size_t i = rs_pickle_count(dict); i > 0; i--) {
        const rs_pickle_node *const *pair = &dict->items.nodes[2 * (i - 1)];
        if (rs_pickle_text(pair[0], &text) && text.count == length &&
            memcmp(text.bytes, key, length) == 0)
            return pair[1];
    }
    return NULL;
}

/* ---- equality -------------------------------------------------------------------------------- */

#define EQUAL_DEPTH_MAX 256
#define EQUAL_STEPS_MAX ((int64_t)1 << 22)

static bool are_equal(const rs_pickle_node *a, const rs_pickle_node *b, int depth, int64_t *left);

static bool are_calls_equal(const rs_pickle_call *a, const rs_pickle_call *b, int depth,
                            int64_t *left)
{
    return are_equal(a->callable, b->callable, depth, left) &&
           are_equal(a->arguments, b->arguments, depth, left) &&
           are_equal(a->keywords, b->keywords, depth, left) &&
           are_equal(a->state, b->state, depth, left) && are_equal(a->list, b->list, depth, left) &&
           are_equal(a->dict, b->dict, depth, left);
}

static bool are_equal(const rs_pickle_node *a, const rs_pickle_node *b, int depth, int64_t *left)
{
    if (a == b)
        return true;
    if (a == NULL || b == NULL || a->kind != b->kind || depth > EQUAL_DEPTH_MAX || --*left < 0)
        return false;
    switch (a->kind) {
    case RS_PICKLE_NONE:
        return true;
    case RS_PICKLE_BOOL:
        return a->truth == b->truth;
    case RS_PICKLE_INT:
        return a->integer == b->integer;
    case RS_PICKLE_FLOAT:
        return memcmp(&a->real, &b->real, sizeof a->real) == 0;
    case RS_PICKLE_LARGE:
    case RS_PICKLE_TEXT:
    case RS_PICKLE_BYTES:
    case RS_PICKLE_BYTEARRAY:
        return rs_slice_compare(a->bytes, b->bytes) == 0;
    case RS_PICKLE_GLOBAL:
        return rs_slice_compare(a->global->module, b->global->module) == 0 &&
               rs_slice_compare(a->global->name, b->global->name) == 0;
    case RS_PICKLE_PERSISTENT:
        return are_equal(a->id, b->id, depth + 1, left);
    case RS_PICKLE_REDUCE:
    case RS_PICKLE_OBJECT:
        return are_calls_equal(a->call, b->call, depth + 1, left);
    default:
        break;
    }
    bool is_equal = a->items.count == b->items.count;
    for (size_t i = 0; is_equal && i < a->items.count; i++)
        is_equal = are_equal(a->items.nodes[i], b->items.nodes[i], depth + 1, left);
    return is_equal;
}

bool rs_pickle_equal(const rs_pickle_node *a, const rs_pickle_node *b)
{
    int64_t left = EQUAL_STEPS_MAX;
    return are_equal(a, b, 0, &left);
}

/* ---- index ----------------------------------------------------------------------------------- */

static int compare_keys(rs_slice a, rs_slice b)
{
    return a.bytes == b.bytes && a.count == b.count ? 0 : rs_slice_compare(a, b);
}

static int compare_pairs(const void *a, const void *b)
{
    const struct rs_pickle_pair *left = a, *right = b;
    int order = compare_keys(left->key, right->key);
    return order != 0 ? order
                      : (left->position > right->position) - (left->position < right->position);
}

/* Of equal keys, keeps the one that is last in the dict. */
static void keep_last(rs_pickle_index *index)
{
    size_t kept = 0;
    for (size_t i = 0; i < index->count; i++) {
        if (kept != 0 && compare_keys(index->pairs[kept - 1].key, index->pairs[i].key) == 0)
            kept--;
        index->pairs[kept++] = index->pairs[i];
    }
    index->count = kept;
}

reshard_status rs_pickle_index_init(rs_pickle_index *index, reshard_context *context,
                                    const rs_pickle_node *node)
{
    const rs_pickle_node *dict = rs_pickle_dict(node);
    size_t capacity = rs_pickle_count(dict);
    rs_pickle_index made = {.context = context, .capacity = capacity};
    made.pairs = rs_allocate_array(context, capacity, sizeof *made.pairs);
    if (made.pairs == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < capacity; i++) {
        const rs_pickle_node *const *pair = &dict->items.nodes[2 * i];
        struct rs_pickle_pair entry = {.position = i, .value = pair[1]};
        if (!rs_pickle_text(pair[0], &entry.key))
            continue;
        if (entry.key.count > RS_PICKLE_KEY_BYTES_MAX) {
            rs_pickle_index_release(&made);
            return rs_fail(RESHARD_ERR_RANGE, "a key has %zu bytes; at most %d are allowed",
                           entry.key.count, RS_PICKLE_KEY_BYTES_MAX);
        }
        made.pairs[made.count++] = entry;
    }
    rs_sort(made.pairs, made.count, sizeof *made.pairs, compare_pairs);
    keep_last(&made);
    *index = made;
    return RESHARD_OK;
}

void rs_pickle_index_release(rs_pickle_index *index)
{
    rs_release(index->context, index->pairs);
    *index = (rs_pickle_index){0};
}

const rs_pickle_node *rs_pickle_index_get(const rs_pickle_index *index, rs_slice key)
{
    int64_t at, count = (int64_t)index->count;
    RS_FIND_FIRST(at, count, rs_slice_compare(index->pairs[at].key, key) >= 0);
    return at < count && rs_slice_compare(index->pairs[at].key, key) == 0 ? index->pairs[at].value
                                                                          : NULL;
}
