/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_show.c - writes a node as one short line. Every visit writes at least one character, no
 * visit starts once the room is full, and depth is bounded. So it ends quickly even for graphs that
 * contain themselves or share a lot.
 */
#include "checkpoint/archive/pickle.h"
#include "text/decimal.h"
#include "text/text.h"

#include <assert.h>
#include <string.h>

#define DEPTH_MAX 5
#define ITEMS_MAX 8
#define CHARACTERS_MAX 60

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
static void show_characters(rs_text *text, rs_slice slice, bool is_text)
{
    for (size_t i = 0; i < slice.count && !is_full(text); i++) {
        unsigned char c = (unsigned char)slice.bytes[i];
        bool begins = (c & 0xc0) != 0x80;
        if (i >= CHARACTERS_MAX && (begins || !is_text)) {
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

static void show_quoted(rs_text *text, const char *before, rs_slice slice, bool is_text)
{
    rs_text_add(text, "%s'", before);
    show_characters(text, slice, is_text);
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

static void show(rs_text *text, const rs_pickle_node *node, int depth);

static void show_items(rs_text *text, const rs_pickle_node *node, int depth)
{
    size_t step = node->kind == RS_PICKLE_DICT ? 2 : 1;
    if (depth >= DEPTH_MAX && node->items.count != 0) {
        rs_text_add(text, "..");
        return;
    }
    for (size_t i = 0; i < node->items.count && !is_full(text); i += step) {
        if (i != 0)
            rs_text_add(text, ", ");
        if (i / step >= ITEMS_MAX) {
            rs_text_add(text, "..");
            return;
        }
        show(text, node->items.nodes[i], depth + 1);
        if (step == 2) {
            rs_text_add(text, ": ");
            show(text, node->items.nodes[i + 1], depth + 1);
        }
    }
    if (node->kind == RS_PICKLE_TUPLE && node->items.count == 1)
        rs_text_add(text, ",");
}

static void show_within(rs_text *text, const char *open, const rs_pickle_node *node,
                        const char *close, int depth)
{
    rs_text_add(text, "%s", open);
    show_items(text, node, depth);
    rs_text_add(text, "%s", close);
}

/* Writes name(arguments){keywords}[appended]{set by key}<state>. */
static void show_call(rs_text *text, const rs_pickle_call *call, int depth)
{
    if (depth >= DEPTH_MAX) {
        rs_text_add(text, "..");
        return;
    }
    show(text, call->callable, depth + 1);
    show(text, call->arguments, depth);
    if (call->keywords != NULL)
        show(text, call->keywords, depth);
    if (call->list != NULL)
        show(text, call->list, depth);
    if (call->dict != NULL)
        show(text, call->dict, depth);
    if (call->state != NULL) {
        rs_text_add(text, "<");
        show(text, call->state, depth + 1);
        rs_text_add(text, ">");
    }
}

static void show(rs_text *text, const rs_pickle_node *node, int depth)
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
        show_quoted(text, "", node->bytes, true);
        break;
    case RS_PICKLE_BYTES:
    case RS_PICKLE_BYTEARRAY:
        show_quoted(text, "b", node->bytes, false);
        break;
    case RS_PICKLE_TUPLE:
        show_within(text, "(", node, ")", depth);
        break;
    case RS_PICKLE_LIST:
        show_within(text, "[", node, "]", depth);
        break;
    case RS_PICKLE_SET:
    case RS_PICKLE_FROZENSET:
    case RS_PICKLE_DICT:
        show_within(text, "{", node, "}", depth);
        break;
    case RS_PICKLE_GLOBAL:
        show_characters(text, node->global->module, true);
        rs_text_add(text, ".");
        show_characters(text, node->global->name, true);
        break;
    case RS_PICKLE_REDUCE:
    case RS_PICKLE_OBJECT:
        show_call(text, node->call, depth);
        break;
    case RS_PICKLE_PERSISTENT:
        rs_text_add(text, "persistent ");
        if (depth < DEPTH_MAX)
            show(text, node->id, depth + 1);
        break;
    }
}

void rs_pickle_show(const rs_pickle_node *node, char *out_text, size_t room)
{
    assert(node != NULL && room > 0);
    rs_text text;
    rs_text_init(&text, out_text, room);
    show(&text, node, 0);
    if (text.length < room || room < 4)
        return;
    size_t end = room - 3; /* room for ".." and NUL, without cutting a UTF-8 character in two */
    while (end > 0 && ((unsigned char)out_text[end] & 0xc0) == 0x80)
        end--;
    memcpy(out_text + end, "..", 3);
}
