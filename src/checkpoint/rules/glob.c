/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glob.c - compiles patterns to a list of elements, and matches them in two ways with equal
 * results. A search from the front backtracks, which names of tensors seldom require. If it takes
 * too many steps, a table is filled from the back, in time that no pattern can make long: for each
 * element and each position in the name it says whether this element and the later ones match the
 * rest of the name. What each wildcard stands for can then be read off from the front.
 */
#include "checkpoint/rules/glob.h"
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/rules/rules.h"
#include "text/text.h"

#include <reshard/model_rules.h>

#include <assert.h>
#include <string.h>

#define TABLE_BYTES 2048 /* tables of this size are on the stack */
#define STEPS_MAX 512    /* of the search, before the table takes over */

/* ---- compiling ------------------------------------------------------------------------------- */

typedef struct compiler {
    rs_arena *arena;
    const char *text;
    size_t bytes, at;
    char *plain; /* the literal bytes, without backslashes; as large as the pattern */
    size_t plain_bytes;
    rs_glob_element elements[RS_GLOB_ELEMENTS_MAX];
    int32_t element_count;
} compiler;

static int hex_value(char c)
{
    if (rs_is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Consumes one literal byte, without its backslash, or the \xHH that stands for one. */
static reshard_status take_byte(compiler *made)
{
    if (made->text[made->at] == '\\') {
        made->at++;
        if (made->at == made->bytes)
            return rs_fail(RESHARD_ERR_SYNTAX, "a pattern ends with a backslash");
        const char *x = made->text + made->at;
        if (made->bytes - made->at >= 3 && x[0] == 'x' && hex_value(x[1]) >= 0 &&
            hex_value(x[2]) >= 0) {
            made->plain[made->plain_bytes++] = (char)(16 * hex_value(x[1]) + hex_value(x[2]));
            made->at += 3;
            return RESHARD_OK;
        }
    }
    made->plain[made->plain_bytes++] = made->text[made->at++];
    return RESHARD_OK;
}

static reshard_status add_element(compiler *made, rs_glob_kind kind, int32_t item_count,
                                  const rs_glob_item *items)
{
    rs_glob_element element = {.kind = kind, .item_count = item_count};
    if (made->element_count == RS_GLOB_ELEMENTS_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "a pattern has more than %d wildcards and texts",
                       RS_GLOB_ELEMENTS_MAX);
    if (item_count != 0) {
        element.items = rs_arena_copy(made->arena, items, (size_t)item_count, sizeof *items);
        if (element.items == NULL)
            return rs_allocation_status();
    }
    made->elements[made->element_count++] = element;
    return RESHARD_OK;
}

static reshard_status compile_text(compiler *made)
{
    rs_glob_item item = {.text = made->plain + made->plain_bytes};
    size_t start = made->plain_bytes;
    while (made->at < made->bytes && strchr("*?{}", made->text[made->at]) == NULL) {
        reshard_status status = take_byte(made);
        if (status != RESHARD_OK)
            return status;
    }
    if (made->at < made->bytes && made->text[made->at] == '}')
        return rs_fail(RESHARD_ERR_SYNTAX, "} without {");
    item.length = made->plain_bytes - start;
    return item.length != 0 ? add_element(made, RS_GLOB_TEXT, 1, &item) : RESHARD_OK;
}

/* Reads digits without leading zeros that fit int64_t. Returns false for anything else. */
static bool read_number(const char *text, size_t length, int64_t *out_number)
{
    int64_t number = 0;
    if (length == 0 || (text[0] == '0' && length > 1))
        return false;
    for (size_t i = 0; i < length; i++) {
        if (!rs_is_digit(text[i]) || number > (INT64_MAX - (text[i] - '0')) / 10)
            return false;
        number = number * 10 + (text[i] - '0');
    }
    *out_number = number;
    return true;
}

static bool is_digits(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (!rs_is_digit(text[i]))
            return false;
    }
    return true;
}

/* Recognises the ranges "a..b" and "a..". Dots that do not follow a number are literal. */
static reshard_status find_range(rs_glob_item *item)
{
    size_t dots = 0;
    while (dots < item->length && rs_is_digit(item->text[dots]))
        dots++;
    if (dots == 0 || item->length - dots < 2 || memcmp(item->text + dots, "..", 2) != 0)
        return RESHARD_OK;
    const char *end = item->text + dots + 2;
    size_t end_length = item->length - dots - 2;
    if (!is_digits(end, end_length))
        return RESHARD_OK;
    item->is_range = true;
    item->last = INT64_MAX;
    if (!read_number(item->text, dots, &item->first) ||
        (end_length != 0 && !read_number(end, end_length, &item->last)) || item->last < item->first)
        return rs_fail(RESHARD_ERR_RANGE, "{%.*s} is not a range of numbers",
                       (int)rs_min((int64_t)item->length, 60), item->text);
    return RESHARD_OK;
}

/* {0.15}, {0-15}, {0:15} and {0...15} are literal texts, but people who write them mean a range. A
 * single dot is allowed if there are other texts. */
static reshard_status check_near_range(const rs_glob_item *item, bool is_alone)
{
    size_t first = 0, last = item->length;
    while (first < last && rs_is_digit(item->text[first]))
        first++;
    while (last > first && rs_is_digit(item->text[last - 1]))
        last--;
    size_t between = last - first;
    const char *sign = item->text + first;
    bool near = (between == 1 && (*sign == '-' || *sign == ':' || (*sign == '.' && is_alone))) ||
                (between == 3 && memcmp(sign, "...", 3) == 0);
    if (item->is_range || first == 0 || last == item->length || !near)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_SYNTAX, "{%.*s} is a text; did you mean the range {%.*s..%.*s}?",
                   (int)rs_min((int64_t)item->length, 60), item->text, (int)first, item->text,
                   (int)(item->length - last), item->text + last);
}

static reshard_status compile_choice(compiler *made)
{
    rs_glob_item items[RS_GLOB_ELEMENTS_MAX];
    int32_t count = 0;
    made->at++;
    for (bool more = true; more;) {
        rs_glob_item item = {.text = made->plain + made->plain_bytes};
        size_t start = made->plain_bytes;
        reshard_status status = RESHARD_OK;
        while (status == RESHARD_OK && made->at < made->bytes &&
               strchr("*?{},", made->text[made->at]) == NULL)
            status = take_byte(made);
        if (status == RESHARD_OK && made->at == made->bytes)
            status = rs_fail(RESHARD_ERR_SYNTAX, "{ without }");
        if (status == RESHARD_OK && strchr("*?{", made->text[made->at]) != NULL)
            status = rs_fail(RESHARD_ERR_SYNTAX, "%c cannot be inside { }", made->text[made->at]);
        if (status == RESHARD_OK && count == RS_GLOB_ELEMENTS_MAX)
            status = rs_fail(RESHARD_ERR_RANGE, "there are more than %d texts in { }",
                             RS_GLOB_ELEMENTS_MAX);
        item.length = made->plain_bytes - start;
        if (status == RESHARD_OK)
            status = find_range(&item);
        if (status != RESHARD_OK)
            return status;
        items[count++] = item;
        more = made->text[made->at++] == ',';
    }
    for (int32_t i = 0; i < count; i++) {
        reshard_status status = check_near_range(&items[i], count == 1);
        if (status != RESHARD_OK)
            return status;
    }
    return add_element(made, RS_GLOB_CHOICE, count, items);
}

static reshard_status compile_next(compiler *made)
{
    switch (made->text[made->at]) {
    case '*':
        made->at++;
        return add_element(made, RS_GLOB_ANY, 0, NULL);
    case '?':
        made->at++;
        return add_element(made, RS_GLOB_ONE, 0, NULL);
    case '{':
        return compile_choice(made);
    default:
        return compile_text(made);
    }
}

reshard_status rs_glob_compile(rs_arena *arena, const char *text, size_t bytes, rs_glob *out_glob)
{
    compiler made = {.arena = arena, .text = text, .bytes = bytes};
    if (bytes > RS_GLOB_BYTES_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "the pattern has %zu bytes; at most %d are allowed",
                       bytes, RS_GLOB_BYTES_MAX);
    if (bytes != 0 && memchr(text, '\0', bytes) != NULL)
        return rs_fail(RESHARD_ERR_SYNTAX, "the pattern holds a NUL byte");
    made.plain = rs_arena_allocate(arena, bytes + 1);
    if (made.plain == NULL)
        return rs_allocation_status();
    while (made.at < bytes) {
        reshard_status status = compile_next(&made);
        if (status != RESHARD_OK)
            return status;
    }
    rs_glob glob = {.element_count = made.element_count};
    glob.elements =
        rs_arena_copy(arena, made.elements, (size_t)made.element_count, sizeof *made.elements);
    if (glob.elements == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < glob.element_count; i++)
        glob.wildcard_count += glob.elements[i].kind != RS_GLOB_TEXT;
    *out_glob = glob;
    return RESHARD_OK;
}

/* ---- matching -------------------------------------------------------------------------------- */

static bool begins_with(const rs_glob_item *item, const char *name, size_t bytes)
{
    if (item->length == 0 || item->length > bytes)
        return item->length == 0;
    return name[0] == item->text[0] && memcmp(name, item->text, item->length) == 0;
}

/* Whether the name can begin like the pattern, judging by its first `depth` elements, or those
 * before the first wildcard or range. */
static bool begin_agrees(const rs_glob_element *element, const rs_glob_element *end, int depth,
                         const char *name, size_t bytes)
{
    if (element == end || depth == 0)
        return true;
    for (int32_t i = 0; i < element->item_count; i++) {
        const rs_glob_item *item = &element->items[i];
        if (item->is_range ||
            (begins_with(item, name, bytes) &&
             begin_agrees(element + 1, end, depth - 1, name + item->length, bytes - item->length)))
            return true;
    }
    return element->item_count == 0; /* true for a wildcard */
}

/* The same for the end of the name, going backwards from the element before `element`. */
static bool end_agrees(const rs_glob_element *begin, const rs_glob_element *element, int depth,
                       const char *name, size_t bytes)
{
    if (element == begin || depth == 0)
        return true;
    element--;
    for (int32_t i = 0; i < element->item_count; i++) {
        const rs_glob_item *item = &element->items[i];
        if (item->is_range || (item->length <= bytes &&
                               begins_with(item, name + bytes - item->length, item->length) &&
                               end_agrees(begin, element, depth - 1, name, bytes - item->length)))
            return true;
    }
    return element->item_count == 0; /* true for a wildcard */
}

/* Most names do not match most patterns, and their first or last bytes show it. At the end, a
 * ".weight" does not tell much, but the elements before it do. */
static bool ends_agree(const rs_glob *glob, const char *name, size_t bytes)
{
    const rs_glob_element *begin = glob->elements, *end = begin + glob->element_count;
    if (glob->element_count == 0)
        return bytes == 0;
    return end_agrees(begin, end, 4, name, bytes) && begin_agrees(begin, end, 2, name, bytes);
}

/* Finds the shortest length, at least *length, with which the item matches the beginning of `name`.
 * Returns false if there is none. */
static bool item_fits(const rs_glob_item *item, const char *name, size_t bytes, size_t *length)
{
    if (!item->is_range) {
        bool fits = *length <= item->length && item->length <= bytes &&
                    memcmp(name, item->text, item->length) == 0;
        *length = item->length;
        return fits;
    }
    for (size_t n = *length > 1 ? *length : 1; n <= bytes && rs_is_digit(name[n - 1]); n++) {
        int64_t number;
        if (!read_number(name, n, &number) || number > item->last)
            return false;
        if (number >= item->first) {
            *length = n;
            return true;
        }
    }
    return false;
}

/* ---- the search ------------------------------------------------------------------------------ */

typedef struct search {
    const rs_glob *glob;
    const char *name;
    size_t bytes;
    rs_glob_span *spans; /* one for each wildcard, or NULL */
    int32_t steps;       /* steps left */
} search;

static bool search_from(search *now, int32_t index, int32_t wildcard, size_t at);

/* Given that the element takes name[at .. end-1], whether the later ones match the rest. */
static bool search_behind(search *now, int32_t index, int32_t wildcard, size_t at, size_t end)
{
    if (now->glob->elements[index].kind == RS_GLOB_TEXT)
        return search_from(now, index + 1, wildcard, end);
    if (now->spans != NULL)
        now->spans[wildcard] = (rs_glob_span){at, end};
    return search_from(now, index + 1, wildcard + 1, end);
}

/* The next position of the text, not before `from`; `bytes` if there is none. */
static size_t find_text(const rs_glob_item *text, const char *name, size_t bytes, size_t from)
{
    const char *end = name + bytes, *at = name + from;
    while ((size_t)(end - at) >= text->length) {
        at = memchr(at, text->text[0], (size_t)(end - at) - text->length + 1);
        if (at == NULL)
            break;
        if (memcmp(at, text->text, text->length) == 0)
            return (size_t)(at - name);
        at++;
    }
    return bytes;
}

/* Tries all that * can take, shortest first. If a text follows, only positions of that text are
 * tried. */
static bool search_any(search *now, int32_t index, int32_t wildcard, size_t at)
{
    const rs_glob_element *next = &now->glob->elements[index + 1];
    if (index + 1 == now->glob->element_count)
        return search_behind(now, index, wildcard, at, now->bytes);
    bool has_text = next->kind == RS_GLOB_TEXT && next->items->length != 0;
    for (size_t end = at; end <= now->bytes && now->steps > 0; end++) {
        if (has_text) {
            end = find_text(next->items, now->name, now->bytes, end);
            if (end == now->bytes)
                return false;
        }
        if (search_behind(now, index, wildcard, at, end))
            return true;
    }
    return false;
}

static bool search_from(search *now, int32_t index, int32_t wildcard, size_t at)
{
    if (index == now->glob->element_count || now->steps <= 0)
        return at == now->bytes && now->steps > 0;
    const rs_glob_element *element = &now->glob->elements[index];
    now->steps--;
    if (element->kind == RS_GLOB_ANY)
        return search_any(now, index, wildcard, at);
    if (element->kind == RS_GLOB_ONE)
        return at < now->bytes && search_behind(now, index, wildcard, at, at + 1);
    for (int32_t i = 0; i < element->item_count; i++) {
        size_t length = 0;
        for (; item_fits(&element->items[i], now->name + at, now->bytes - at, &length); length++) {
            if (search_behind(now, index, wildcard, at, at + length))
                return true;
        }
    }
    return false;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* How many bytes the choice must take so that the later elements match too (`rest` says where they
 * do); -1 if no item will do. */
static int64_t take_choice(const rs_glob_element *element, const char *name, size_t bytes,
                           const unsigned char *rest)
{
    for (int32_t i = 0; i < element->item_count; i++) {
        size_t length = 0;
        for (; item_fits(&element->items[i], name, bytes, &length); length++) {
            if (rest[length])
                return (int64_t)length;
        }
    }
    return -1;
}

/* Marks in `row` the positions of the text after which the rest matches. */
static void add_text(const rs_glob_item *item, const char *name, size_t bytes,
                     const unsigned char *rest, unsigned char *row)
{
    if (item->length == 0) {
        for (size_t i = 0; i <= bytes; i++)
            row[i] |= rest[i];
        return;
    }
    const char *end = name + bytes, *at = name;
    while ((size_t)(end - at) >= item->length &&
           (at = memchr(at, item->text[0], (size_t)(end - at) - item->length + 1)) != NULL) {
        size_t place = (size_t)(at - name);
        if (rest[place + item->length] && memcmp(at, item->text, item->length) == 0)
            row[place] = 1;
        at++;
    }
}

static void add_range(const rs_glob_item *item, const char *name, size_t bytes,
                      const unsigned char *rest, unsigned char *row)
{
    for (size_t j = 0; j < bytes; j++) {
        size_t length = 0;
        if (!rs_is_digit(name[j]))
            continue;
        for (; item_fits(item, name + j, bytes - j, &length); length++)
            row[j] |= rest[j + length];
    }
}

/* Fills in row[j]: whether this element and the later ones match name[j ..]. `rest` is the row of
 * the later ones. Returns false if no position matches. */
static bool fill_row(const rs_glob_element *element, const char *name, size_t bytes,
                     const unsigned char *rest, unsigned char *row)
{
    size_t reach = bytes + 1;
    switch (element->kind) {
    case RS_GLOB_ANY:
        while (!rest[reach - 1])
            reach--;
        memset(row, 1, reach);
        memset(row + reach, 0, bytes + 1 - reach);
        return true;
    case RS_GLOB_ONE:
        memcpy(row, rest + 1, bytes);
        row[bytes] = 0;
        break;
    case RS_GLOB_TEXT:
    case RS_GLOB_CHOICE:
        memset(row, 0, bytes + 1);
        for (int32_t i = 0; i < element->item_count; i++) {
            if (element->items[i].is_range)
                add_range(&element->items[i], name, bytes, rest, row);
            else
                add_text(&element->items[i], name, bytes, rest, row);
        }
        break;
    }
    return memchr(row, 1, bytes + 1) != NULL;
}

static void read_spans(const rs_glob *glob, const char *name, size_t bytes,
                       const unsigned char *table, rs_glob_span *spans)
{
    size_t at = 0;
    for (int32_t i = 0; i < glob->element_count; i++) {
        const unsigned char *rest = table + (size_t)(i + 1) * (bytes + 1) + at;
        size_t length = 0;
        if (glob->elements[i].kind == RS_GLOB_ANY) {
            while (!rest[length])
                length++;
        } else if (glob->elements[i].kind == RS_GLOB_ONE) {
            length = 1;
        } else {
            length = (size_t)take_choice(&glob->elements[i], name + at, bytes - at, rest);
        }
        if (glob->elements[i].kind != RS_GLOB_TEXT)
            *spans++ = (rs_glob_span){at, at + length};
        at += length;
    }
}

reshard_status rs_glob_try_table(reshard_context *context, const rs_glob *glob, const char *name,
                                 size_t name_bytes, rs_glob_span *spans, bool *out_matches)
{
    unsigned char small[TABLE_BYTES];
    unsigned char *table = small;
    assert(name_bytes <= RS_GLOB_NAME_MAX);
    size_t row = name_bytes + 1;
    size_t table_bytes = (size_t)(glob->element_count + 1) * row;
    if (table_bytes > sizeof small)
        table = rs_allocate(context, table_bytes);
    if (table == NULL)
        return rs_allocation_status();
    unsigned char *end = table + (size_t)glob->element_count * row;
    memset(end, 0, row);
    end[name_bytes] = 1;
    bool matches = true;
    for (int32_t i = glob->element_count; matches && i-- > 0;)
        matches = fill_row(&glob->elements[i], name, name_bytes, table + (size_t)(i + 1) * row,
                           table + (size_t)i * row);
    matches = matches && table[0] != 0;
    if (matches && spans != NULL)
        read_spans(glob, name, name_bytes, table, spans);
    if (table != small)
        rs_release(context, table);
    *out_matches = matches;
    return RESHARD_OK;
}

/* ---- both ------------------------------------------------------------------------------------ */

reshard_status rs_glob_try(reshard_context *context, const rs_glob *glob, const char *name,
                           size_t name_bytes, rs_glob_span *spans, bool *out_matches)
{
    *out_matches = false;
    if (!ends_agree(glob, name, name_bytes))
        return RESHARD_OK;
    if (name_bytes > RS_GLOB_NAME_MAX)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "the name has %zu bytes; rules take up to %d",
                       name_bytes, RS_GLOB_NAME_MAX);
    assert(glob->element_count >= 0 && glob->element_count <= RS_GLOB_ELEMENTS_MAX);
    search quick = {glob, name, name_bytes, spans, STEPS_MAX};
    *out_matches = search_from(&quick, 0, 0, 0);
    return quick.steps > 0 ? RESHARD_OK
                           : rs_glob_try_table(context, glob, name, name_bytes, spans, out_matches);
}

reshard_status rs_glob_match(const char *glob, size_t glob_bytes, const char *name,
                             size_t name_bytes, bool *out_matches)
{
    rs_arena arena;
    rs_glob compiled;
    rs_arena_init(&arena, NULL);
    reshard_status status = rs_glob_compile(&arena, glob, glob_bytes, &compiled);
    if (status == RESHARD_OK)
        status = rs_glob_try(NULL, &compiled, name, name_bytes, NULL, out_matches);
    rs_arena_release(&arena);
    return status;
}

reshard_status reshard_pattern_match(const char *pattern, const char *name, size_t name_bytes,
                                     int *out_matches)
{
    bool matches = false;
    reshard_status status = rs_glob_match(pattern, strlen(pattern), name, name_bytes, &matches);
    if (status == RESHARD_OK)
        *out_matches = matches;
    return status;
}
