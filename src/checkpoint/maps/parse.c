/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.c - reads a map: statements (map, for, let, use) and lines. A line goes on in the next one
 * if it ends in a comma, or if the next one begins with |.
 */
#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "checkpoint/maps/map.h"
#include "text/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- positions ------------------------------------------------------------------------------- */

reshard_status rs_map_fail(const rs_map_reader *reader, const char *at, reshard_status status,
                           const char *format, ...)
{
    char words[512];
    int line = 1, column = 1;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    for (const char *c = reader->start; c < at; c++) {
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    return rs_fail(status, "%s:%d:%d: %s", reader->file_name, line, column, words);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* A comment begins with # after a space or at the start of a line. */
static bool begins_comment(const char *start, const char *at)
{
    return *at == '#' && (at == start || is_space(at[-1]));
}

void rs_map_skip_spaces(rs_map_reader *reader)
{
    rs_cursor *cursor = &reader->cursor;
    while (cursor->at < cursor->end) {
        if (begins_comment(reader->start, cursor->at)) {
            while (cursor->at < cursor->end && *cursor->at != '\n')
                cursor->at++;
        } else if (is_space(*cursor->at)) {
            cursor->at++;
        } else {
            break;
        }
    }
}

/* ---- logical lines --------------------------------------------------------------------------- */

/* The end of the physical line at `at`; *out_last is its last byte that is neither space nor
 * comment, or NULL if it has none. */
static const char *end_of_line(const char *start, const char *at, const char *end,
                               const char **out_last)
{
    bool comment = false;
    *out_last = NULL;
    for (; at < end && *at != '\n'; at++) {
        comment = comment || begins_comment(start, at);
        if (!comment && !is_space(*at))
            *out_last = at;
    }
    return at;
}

static bool begins_alternative(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    return at < end && *at == '|';
}

/* The end of the logical line that begins at `at`. Comments and empty lines may stand between its
 * parts. */
static const char *end_of_logical(const char *start, const char *at, const char *end)
{
    const char *last, *line_end = end_of_line(start, at, end, &last);
    bool open = last != NULL && *last == ',';
    while (line_end < end) {
        const char *next_last, *next_end = end_of_line(start, line_end + 1, end, &next_last);
        bool goes_on = next_last != NULL && (open || begins_alternative(line_end + 1, end));
        if (next_last == NULL && !open)
            break;
        if (next_last != NULL && !goes_on)
            break;
        open = next_last == NULL ? open : *next_last == ',';
        line_end = next_end;
    }
    return line_end;
}

/* ---- statements ------------------------------------------------------------------------------ */

/* A word of letters, digits, _ and, in names of namings and maps, - and . */
static rs_slice read_word(rs_map_reader *reader, bool plain)
{
    rs_cursor *cursor = &reader->cursor;
    rs_map_skip_spaces(reader);
    const char *start = cursor->at;
    while (cursor->at < cursor->end && (rs_is_letter(*cursor->at) || rs_is_digit(*cursor->at) ||
                                        (!plain && (*cursor->at == '-' || *cursor->at == '.'))))
        cursor->at++;
    return (rs_slice){start, (size_t)(cursor->at - start)};
}

static reshard_status expect_end(rs_map_reader *reader)
{
    rs_map_skip_spaces(reader);
    if (reader->cursor.at == reader->cursor.end)
        return RESHARD_OK;
    return rs_map_fail(reader, reader->cursor.at, RESHARD_ERR_SYNTAX,
                       "expected the end of the line");
}

static reshard_status keep_word(rs_map_reader *reader, rs_slice word, const char **out_text)
{
    if (word.count == 0)
        return rs_map_fail(reader, reader->cursor.at, RESHARD_ERR_SYNTAX, "expected a name");
    char *text = rs_arena_allocate(&reader->map->arena, word.count + 1);
    if (text == NULL)
        return rs_allocation_status();
    memcpy(text, word.bytes, word.count);
    text[word.count] = '\0';
    *out_text = text;
    return RESHARD_OK;
}

/* map LEFT RIGHT [types a b ..] */
static reshard_status read_header(rs_map_reader *reader)
{
    reshard_map *map = reader->map;
    const char *namings[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        reshard_status status = keep_word(reader, read_word(reader, false), &namings[i]);
        if (status != RESHARD_OK)
            return status;
    }
    bool first = map->namings[0] == NULL;
    if (!first &&
        (strcmp(map->namings[0], namings[0]) != 0 || strcmp(map->namings[1], namings[1]) != 0))
        return rs_map_fail(reader, reader->cursor.at, RESHARD_ERR_INVALID,
                           "the map is between %s and %s, but %s and %s are needed", namings[0],
                           namings[1], map->namings[0], map->namings[1]);
    memcpy(map->namings, namings, sizeof namings);
    rs_slice word = read_word(reader, false);
    if (word.count != 0 && !rs_slice_equals(word, "types"))
        return rs_map_fail(reader, word.bytes, RESHARD_ERR_SYNTAX, "expected types");
    rs_map_skip_spaces(reader);
    const char *start = reader->cursor.at;
    while (word.count != 0 && read_word(reader, false).count != 0)
        ;
    if (first)
        map->types = (rs_slice){start, (size_t)(reader->cursor.at - start)};
    return expect_end(reader);
}

/* Numbers may refer to what `let` has named before. */
static bool find_let(void *user, rs_slice word, int64_t *out_value)
{
    const reshard_map *map = user;
    *out_value = 1;
    for (int32_t i = 0; i < map->let_count; i++) {
        if (rs_slice_compare(map->lets[i].name, word) == 0)
            return true;
    }
    return false;
}

/* for n < number, m < number; let a = number, b = number */
static reshard_status read_names(rs_map_reader *reader, char sign, int32_t *count,
                                 rs_map_name *names)
{
    rs_number_scope form = {
        .form_only = true, .find_word = find_let, .user = reader->map, .knows_words = true};
    do {
        int64_t value;
        rs_slice name = read_word(reader, true);
        if (name.count == 0 || rs_is_digit(name.bytes[0]))
            return rs_map_fail(reader, name.bytes, RESHARD_ERR_SYNTAX, "expected a name");
        rs_map_skip_spaces(reader);
        if (!rs_cursor_accept(&reader->cursor, sign))
            return rs_map_fail(reader, reader->cursor.at, RESHARD_ERR_SYNTAX,
                               "expected %c after %.*s", sign, rs_slice_shown(name), name.bytes);
        rs_map_skip_spaces(reader);
        const char *start = reader->cursor.at;
        reshard_status status = rs_number_read(&form, &reader->cursor, &value);
        if (status != RESHARD_OK)
            return rs_map_fail(reader, start, status, "%s", reshard_error_text());
        if (*count == RS_MAP_NAMES_MAX)
            return rs_map_fail(reader, name.bytes, RESHARD_ERR_RANGE,
                               "there are more than %d names", RS_MAP_NAMES_MAX);
        bool known = false;
        for (int32_t i = 0; i < *count && !known; i++)
            known = rs_slice_compare(names[i].name, name) == 0;
        /* The maps that are used come later, and what the map itself says counts. */
        if (!known)
            names[(*count)++] = (rs_map_name){name, {start, (size_t)(reader->cursor.at - start)}};
        rs_map_skip_spaces(reader);
    } while (rs_cursor_accept(&reader->cursor, ','));
    return expect_end(reader);
}

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct map_file {
    reshard_map *map;
    const reshard_map_options *options;
    int32_t tier;
    rs_slice uses[RS_MAP_USES_MAX]; /* asked for by lines `use`, read after the file itself */
    int32_t use_count;
} map_file;

static reshard_status add_line(map_file *file, rs_map_reader *reader)
{
    reshard_map *map = file->map;
    if (map->line_count == RS_MAP_LINES_MAX)
        return rs_map_fail(reader, reader->cursor.at, RESHARD_ERR_RANGE,
                           "the map has more than %d lines", RS_MAP_LINES_MAX);
    reshard_status status = rs_grow(map->context, &map->lines, &map->line_capacity,
                                    map->line_count + 1, sizeof *map->lines);
    if (status != RESHARD_OK)
        return status;
    rs_map_line *line = &map->lines[map->line_count];
    memset(line, 0, sizeof *line);
    line->file_name = reader->file_name;
    line->tier = file->tier;
    line->number = 1;
    for (const char *c = reader->start; c < reader->cursor.at; c++)
        line->number += *c == '\n';
    reader->line = line;
    status = rs_map_read_line(reader);
    map->line_count += status == RESHARD_OK;
    return status;
}

static bool accept_statement(rs_map_reader *reader, const char *word)
{
    rs_cursor behind = reader->cursor;
    if (!rs_cursor_accept_word(&behind, word) || behind.at == behind.end ||
        (*behind.at != ' ' && *behind.at != '\t'))
        return false;
    reader->cursor = behind;
    return true;
}

static reshard_status read_logical(map_file *file, rs_map_reader *reader)
{
    reshard_map *map = file->map;
    if (accept_statement(reader, "map"))
        return read_header(reader);
    if (accept_statement(reader, "for"))
        return read_names(reader, '<', &map->bound_count, map->bounds);
    if (accept_statement(reader, "let"))
        return read_names(reader, '=', &map->let_count, map->lets);
    if (accept_statement(reader, "use")) {
        rs_slice name = read_word(reader, false);
        if (name.count == 0)
            return rs_map_fail(reader, reader->cursor.at, RESHARD_ERR_SYNTAX,
                               "expected the name of a map");
        if (file->use_count == RS_MAP_USES_MAX || file->tier == RS_MAP_USES_MAX)
            return rs_map_fail(reader, name.bytes, RESHARD_ERR_RANGE, "more than %d maps are used",
                               RS_MAP_USES_MAX);
        file->uses[file->use_count++] = name;
        return expect_end(reader);
    }
    return add_line(file, reader);
}

static reshard_status read_file(reshard_map *map, const reshard_map_options *options, int32_t tier,
                                const char *file_name, rs_slice given);

static reshard_status read_used(const map_file *file, rs_map_reader *reader, rs_slice name)
{
    const char *text = NULL, *copy = NULL;
    size_t bytes = 0;
    reshard_status status = keep_word(reader, name, &copy);
    if (status != RESHARD_OK)
        return status;
    if (file->options->find != NULL)
        text = file->options->find(file->options->user, copy, &bytes);
    if (text == NULL)
        return rs_map_fail(reader, name.bytes, RESHARD_ERR_NOT_FOUND, "there is no map \"%s\"",
                           copy);
    return read_file(file->map, file->options, file->tier + 1, copy, (rs_slice){text, bytes});
}

/* A mark of UTF-8 in a line, of files that were joined, or NULL. */
static const char *find_mark(const char *at, const char *end)
{
    while (at < end && !rs_slice_is_marked((rs_slice){at, (size_t)(end - at)}))
        at++;
    return at < end ? at : NULL;
}

static reshard_status read_file(reshard_map *map, const reshard_map_options *options, int32_t tier,
                                const char *file_name, rs_slice given)
{
    if (given.count > RS_MAP_BYTES_MAX)
        return rs_fail_about(RESHARD_ERR_RANGE, file_name,
                             "the map has %zu bytes; at most %zu are allowed", given.count,
                             RS_MAP_BYTES_MAX);
    char *text = rs_arena_copy(&map->arena, given.bytes, given.count + (given.count == 0), 1);
    if (text == NULL)
        return rs_allocation_status();
    map_file file = {.map = map, .options = options, .tier = tier};
    rs_map_reader reader = {.map = map, .start = text, .file_name = file_name};
    const char *at = text, *end = text + given.count;
    reshard_status status = RESHARD_OK;
    while (at < end && status == RESHARD_OK) {
        const char *line_end = end_of_logical(text, at, end);
        reader.cursor = (rs_cursor){at, line_end};
        rs_map_skip_spaces(&reader);
        const char *mark = find_mark(at, line_end);
        if (mark != NULL)
            status = rs_map_fail(&reader, mark, RESHARD_ERR_SYNTAX,
                                 "the line has a mark of UTF-8 (U+FEFF), which nobody sees; "
                                 "remove it");
        else if (reader.cursor.at < reader.cursor.end)
            status = read_logical(&file, &reader);
        at = line_end + (line_end < end);
    }
    for (int32_t i = 0; i < map->line_count && status == RESHARD_OK; i++) {
        bool last = i + 1 == map->line_count || map->lines[i + 1].tier > map->lines[i].tier;
        if (map->lines[i].is_rest && map->lines[i].tier == tier && !last)
            status = rs_fail(RESHARD_ERR_SYNTAX, RS_MAP_PLACE ": * = * has to be the last line",
                             RS_MAP_PLACE_OF(&map->lines[i]));
    }
    for (int32_t i = 0; i < file.use_count && status == RESHARD_OK; i++)
        status = read_used(&file, &reader, file.uses[i]);
    return status;
}

/* ---- maps ------------------------------------------------------------------------------------ */

reshard_status reshard_map_parse(reshard_context *context, const char *text, size_t bytes,
                                 const reshard_map_options *given, reshard_map **out_map)
{
    reshard_map_options options;
    reshard_status status = rs_options_read("map options", given, &options, sizeof options);
    if (status != RESHARD_OK)
        return status;
    reshard_map *map = rs_allocate_zeroed(context, sizeof *map);
    if (map == NULL)
        return rs_allocation_status();
    map->context = context;
    atomic_init(&map->references, 1);
    rs_arena_init(&map->arena, context);
    const char *file_name = options.file_name != NULL ? options.file_name : "map";
    const char *kept = rs_arena_copy(&map->arena, file_name, strlen(file_name) + 1, 1);
    status = kept == NULL ? rs_allocation_status()
                          : read_file(map, &options, 0, kept, rs_slice_unmarked(text, bytes));
    if (status == RESHARD_OK && map->line_count == 0)
        status = rs_fail_about(RESHARD_ERR_SYNTAX, file_name, "the map has no lines");
    if (status != RESHARD_OK) {
        reshard_map_release(map);
        return status;
    }
    *out_map = map;
    return RESHARD_OK;
}

void reshard_map_release(reshard_map *map)
{
    if (map == NULL || !rs_reference_drop(&map->references))
        return;
    rs_release(map->context, map->lines);
    rs_arena_release(&map->arena);
    rs_release(map->context, map);
}

const char *reshard_map_naming(const reshard_map *map, reshard_map_side side)
{
    const char *naming = map->namings[side == RESHARD_MAP_RIGHT];
    return naming != NULL ? naming : "";
}
