/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_show.c - writes a node as one short line. Every visit writes at least one character, no
 * visit starts once the room is full, and depth is bounded. So it ends quickly even for graphs that
 * contain themselves or share a lot.
 */
#include "checkpoint/archive/pickle.h"
#include "text/decimal.h"

#include <assert.h>
#include <string.h>

/* How much of a node is written. */
typedef struct bounds {
    int depth;
    size_t items, characters;
} bounds;

static const bounds short_bounds = {5, 8, 60};
/* Python itself nests 1000 levels at most. */
#define DEPTH_WHOLE 200

static bool is_full(const rs_text *text)
{
    return text->length >= text->capacity;
}

/* Surrogates and control characters beyond ASCII, which terminals cannot show. */
static bool is_hidden(const char *at)
{
    unsigned char first = (unsigned char)at[0], second = (unsigned char)at[1];
    return (first == 0xed && second >= 0xa0) || (first == 0xc2 && second < 0xa0);
}

/* Escapes quotes, backslashes, control characters and, unless is_text (UTF-8), bytes from 0x80
 * on. */
static void show_characters(rs_text *text, const bounds *within, rs_slice slice, bool is_text)
{
    for (size_t i = 0; i < slice.count && !is_full(text); i++) {
        unsigned char c = (unsigned char)slice.bytes[i];
        bool begins = (c & 0xc0) != 0x80;
        if (i >= within->characters && (begins || !is_text)) {
            rs_text_add(text, "..");
            break;
        }
        if (is_text && c >= 0xc2 && is_hidden(slice.bytes + i)) {
            rs_text_add(text, "?");
            i += c == 0xed ? 2 : 1;
        } else if (c == '\n') {
            rs_text_add(text, "\\n");
        } else if (c == '\'' || c == '\\') {
            rs_text_add(text, "\\%c", c);
        } else if (c < 0x20 || c == 0x7f || (c >= 0x80 && !is_text)) {
            rs_text_add(text, "\\x%02x", c);
        } else {
            rs_text_add(text, "%c", c);
        }
    }
}

static void show_quoted(rs_text *text, const bounds *within, const char *before, rs_slice slice,
                        bool is_text)
{
    rs_text_add(text, "%s'", before);
    show_characters(text, within, slice, is_text);
    rs_text_add(text, "'");
}

/* Writes the fewest digits that read back as the same number. */
static void show_float(rs_text *text, double real)
{
    char digits[40];
    for (int precision = 15; precision <= 17; precision++) {
        rs_text made;
        rs_text_init(&made, digits, sizeof digits);
        rs_text_add(&made, "%.*g", precision, real);
        if (rs_parse_double(digits, NULL) == real)
            break;
    }
    rs_text_add(text, "%s%s", digits, strspn(digits, "-0123456789") == strlen(digits) ? ".0" : "");
}

static void show(rs_text *text, const bounds *within, const rs_pickle_node *node, int depth);

static void show_items(rs_text *text, const bounds *within, const rs_pickle_node *node, int depth)
{
    size_t step = node->kind == RS_PICKLE_DICT ? 2 : 1;
    if (depth >= within->depth && node->items.count != 0) {
        rs_text_add(text, "..");
        return;
    }
    for (size_t i = 0; i < node->items.count && !is_full(text); i += step) {
        if (i != 0)
            rs_text_add(text, ", ");
        if (i / step >= within->items) {
            rs_text_add(text, within == &short_bounds ? ".." : ".. %zu in all",
                        node->items.count / step);
            return;
        }
        show(text, within, node->items.nodes[i], depth + 1);
        if (step == 2) {
            rs_text_add(text, ": ");
            show(text, within, node->items.nodes[i + 1], depth + 1);
        }
    }
    if (node->kind == RS_PICKLE_TUPLE && node->items.count == 1)
        rs_text_add(text, ",");
}

static void show_within(rs_text *text, const bounds *within, const char *open,
                        const rs_pickle_node *node, const char *close, int depth)
{
    rs_text_add(text, "%s", open);
    show_items(text, within, node, depth);
    rs_text_add(text, "%s", close);
}

/* Writes name(arguments){keywords}[appended]{set by key}<state>. */
static void show_call(rs_text *text, const bounds *within, const rs_pickle_call *call, int depth)
{
    if (depth >= within->depth) {
        rs_text_add(text, "..");
        return;
    }
    show(text, within, call->callable, depth + 1);
    show(text, within, call->arguments, depth);
    if (call->keywords != NULL)
        show(text, within, call->keywords, depth);
    if (call->list != NULL)
        show(text, within, call->list, depth);
    if (call->dict != NULL)
        show(text, within, call->dict, depth);
    if (call->state != NULL) {
        rs_text_add(text, "<");
        show(text, within, call->state, depth + 1);
        rs_text_add(text, ">");
    }
}

static void show(rs_text *text, const bounds *within, const rs_pickle_node *node, int depth)
{
    if (is_full(text))
        return;
    switch (node->kind) {
    case RS_PICKLE_NONE:
        rs_text_add(text, "None");
        break;
    case RS_PICKLE_BOOL:
        rs_text_add(text, node->truth ? "True" : "False");
        break;
    case RS_PICKLE_INT:
        rs_text_add(text, "%lld", (long long)node->integer);
        break;
    case RS_PICKLE_LARGE:
        rs_text_add(text, "int of %zu bytes", node->bytes.count);
        break;
    case RS_PICKLE_FLOAT:
        show_float(text, node->real);
        break;
    case RS_PICKLE_TEXT:
        show_quoted(text, within, "", node->bytes, true);
        break;
    case RS_PICKLE_BYTES:
    case RS_PICKLE_BYTEARRAY:
        show_quoted(text, within, "b", node->bytes, false);
        break;
    case RS_PICKLE_TUPLE:
        show_within(text, within, "(", node, ")", depth);
        break;
    case RS_PICKLE_LIST:
        show_within(text, within, "[", node, "]", depth);
        break;
    case RS_PICKLE_SET:
    case RS_PICKLE_FROZENSET:
    case RS_PICKLE_DICT:
        show_within(text, within, "{", node, "}", depth);
        break;
    case RS_PICKLE_GLOBAL:
        show_characters(text, within, node->global->module, true);
        rs_text_add(text, ".");
        show_characters(text, within, node->global->name, true);
        break;
    case RS_PICKLE_REDUCE:
    case RS_PICKLE_OBJECT:
        show_call(text, within, node->call, depth);
        break;
    case RS_PICKLE_PERSISTENT:
        rs_text_add(text, "persistent ");
        if (depth < within->depth)
            show(text, within, node->id, depth + 1);
        break;
    }
}

void rs_pickle_show(const rs_pickle_node *node, char *out_text, size_t room)
{
    assert(node != NULL && room > 0);
    rs_text text;
    rs_text_init(&text, out_text, room);
    show(&text, &short_bounds, node, 0);
    if (text.length < room || room < 4)
        return;
    size_t end = room - 3; /* room for ".." and NUL, without cutting a UTF-8 character in two */
    while (end > 0 && ((unsigned char)out_text[end] & 0xc0) == 0x80)
        end--;
    memcpy(out_text + end, "..", 3);
}

void rs_pickle_show_whole(const rs_pickle_node *node, int64_t items_max, rs_text *text)
{
    const bounds whole = {DEPTH_WHOLE, items_max < 0 ? SIZE_MAX : (size_t)items_max, SIZE_MAX};
    show(text, &whole, node, 0);
}

const char *rs_pickle_type_name(const rs_pickle_node *node, int64_t *out_item_count)
{
    static const char *const names[] = {
        [RS_PICKLE_NONE] = "None",        [RS_PICKLE_BOOL] = "bool",
        [RS_PICKLE_INT] = "int",          [RS_PICKLE_LARGE] = "int",
        [RS_PICKLE_FLOAT] = "float",      [RS_PICKLE_TEXT] = "str",
        [RS_PICKLE_BYTES] = "bytes",      [RS_PICKLE_BYTEARRAY] = "bytearray",
        [RS_PICKLE_TUPLE] = "tuple",      [RS_PICKLE_LIST] = "list",
        [RS_PICKLE_SET] = "set",          [RS_PICKLE_FROZENSET] = "frozenset",
        [RS_PICKLE_DICT] = "dict",        [RS_PICKLE_GLOBAL] = "class",
        [RS_PICKLE_REDUCE] = "object",    [RS_PICKLE_OBJECT] = "object",
        [RS_PICKLE_PERSISTENT] = "object"};
    bool has_items = node->kind >= RS_PICKLE_TUPLE && node->kind <= RS_PICKLE_DICT;
    *out_item_count =
        !has_items ? -1 : (int64_t)(node->items.count / (node->kind == RS_PICKLE_DICT ? 2 : 1));
    return names[node->kind];
}
