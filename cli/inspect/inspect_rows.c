/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect_rows.c - chooses tensors, and joins those that differ only in numbers.
 *
 * Each tensor is given to its row, which is found by a hash of the name, numbers apart, and of
 * dtype, shape and split. A row knows its tensors only by their number, their bytes and the ranges
 * of their numbers, so that a million of them cost no memory; rows are sorted by their first names
 * in the end. A number is a part of a name between two dots. The split is compared by a hash of all
 * boxes and their files. A collision would only join two rows, whose count still says how many
 * tensors there are.
 */
#include "cli/inspect/inspect_rows.h"

#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/memory.h"
#include "cli/common/names.h"

#include <reshard/model_rules.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longer numbers, and numbers after so many others, count as text. */
enum { DIGITS_MAX = 9, NUMBERS_MAX = 8 };

/* ---- choosing -------------------------------------------------------------------------------- */

int cli_inspection_has(const cli_inspection *shown, const char *name, size_t name_bytes)
{
    int matches = shown->includes->count == 0;
    for (int i = 0; !matches && i < shown->includes->count; i++) {
        if (reshard_pattern_match(shown->includes->items[i], name, name_bytes, &matches) !=
            RESHARD_OK)
            matches = 0; /* the name is longer than patterns can match */
    }
    return matches;
}

static int matches_tensor(const reshard_checkpoint *checkpoint, const char *pattern)
{
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    reshard_unreadable_tensor other = {.size = sizeof other};
    int matches = 0;
    for (int64_t i = 0; !matches && i < cli_checkpoint_info(checkpoint).tensor_count; i++) {
        if (reshard_checkpoint_tensor(checkpoint, i, &tensor) == RESHARD_OK)
            (void)reshard_pattern_match(pattern, tensor.name, tensor.name_bytes, &matches);
    }
    for (int64_t i = 0;
         !matches && reshard_checkpoint_unreadable(checkpoint, i, &other) == RESHARD_OK; i++)
        (void)reshard_pattern_match(pattern, other.name, other.name_bytes, &matches);
    return matches;
}

static int matches_value(const reshard_checkpoint *checkpoint, const char *pattern)
{
    reshard_stored_value value = {.size = sizeof value};
    reshard_stored_text text = {.size = sizeof text};
    int matches = 0;
    for (int64_t i = 0; !matches && reshard_checkpoint_value(checkpoint, i, &value) == RESHARD_OK;
         i++)
        (void)reshard_pattern_match(pattern, value.name, value.name_bytes, &matches);
    for (int64_t i = 0; !matches && reshard_checkpoint_text(checkpoint, i, &text) == RESHARD_OK;
         i++)
        (void)reshard_pattern_match(pattern, text.key, text.key_bytes, &matches);
    return matches;
}

/* A pattern that matches nothing was meant for something. */
static int check_patterns(const cli_inspection *shown)
{
    for (int i = 0; i < shown->includes->count; i++) {
        const char *pattern = shown->includes->items[i];
        int matches = 0;
        if (reshard_pattern_match(pattern, "", 0, &matches) != RESHARD_OK)
            return cli_fail(CLI_USAGE, "inspect: --include \"%s\": %s", pattern,
                            reshard_error_text());
        if (!matches && !matches_tensor(shown->checkpoint, pattern) &&
            !matches_value(shown->checkpoint, pattern))
            return cli_fail(CLI_FAILED, "inspect: --include \"%s\" matches no tensor and no value",
                            pattern);
    }
    return CLI_DONE;
}

/* Names of an optimizer's state have a part that says so: optimizer.state.0.exp_avg, optim.. */
static int is_state(const char *name, size_t count)
{
    static const char word[] = "optim";
    for (size_t i = 0; i + sizeof word - 1 <= count; i++) {
        if ((i == 0 || name[i - 1] == '.') && memcmp(name + i, word, sizeof word - 1) == 0)
            return 1;
    }
    return 0;
}

static uint64_t add_capped(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t count_elements(const reshard_stored_tensor *tensor)
{
    uint64_t count = 1;
    for (int32_t d = 0; d < tensor->ndim; d++) {
        uint64_t extent = (uint64_t)tensor->shape[d];
        count = extent != 0 && count > UINT64_MAX / extent ? UINT64_MAX : count * extent;
    }
    return count;
}

int cli_inspection_init(cli_inspection *shown, const reshard_checkpoint *checkpoint,
                        const cli_texts *includes)
{
    int64_t count = cli_checkpoint_info(checkpoint).tensor_count;
    *shown = (cli_inspection){.checkpoint = checkpoint, .includes = includes};
    int code = check_patterns(shown);
    if (code != CLI_DONE)
        return code;
    shown->tensors = cli_allocate((size_t)count + 1, sizeof *shown->tensors);
    for (int64_t i = 0; i < count; i++) {
        reshard_stored_tensor tensor = {.size = sizeof tensor};
        reshard_status status = reshard_checkpoint_tensor(checkpoint, i, &tensor);
        if (status != RESHARD_OK)
            return cli_fail_status(status);
        if (!cli_inspection_has(shown, tensor.name, tensor.name_bytes))
            continue;
        shown->tensors[shown->count++] = i;
        shown->bytes = add_capped(shown->bytes, tensor.stored_bytes);
        if (!is_state(tensor.name, tensor.name_bytes))
            shown->parameters = add_capped(shown->parameters, count_elements(&tensor));
    }
    return CLI_DONE;
}

void cli_inspection_release(cli_inspection *shown)
{
    free(shown->tensors);
    shown->tensors = NULL;
}

/* ---- names, part by part --------------------------------------------------------------------- */

/* What stands between two dots of a name. Numbers that may differ within a row are such parts. */
typedef struct name_part {
    const char *bytes;
    size_t count;
    int is_number;
} name_part;

/* Where in a name the next part begins, and how many numbers came before it. */
typedef struct part_walk {
    size_t at;
    int numbers;
} part_walk;

/* Without leading zeros, so that its value says how it is written. */
static int is_number(const char *bytes, size_t count)
{
    if (count == 0 || count > DIGITS_MAX || (bytes[0] == '0' && count > 1))
        return 0;
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] < '0' || bytes[i] > '9')
            return 0;
    }
    return 1;
}

/* Returns 0 behind the last part. */
static int next_part(const cli_name *name, part_walk *walk, name_part *out_part)
{
    if (walk->at > name->count)
        return 0;
    const char *bytes = name->bytes + walk->at;
    size_t rest = name->count - walk->at;
    const char *dot = rest != 0 ? memchr(bytes, '.', rest) : NULL;
    size_t count = dot != NULL ? (size_t)(dot - bytes) : rest;
    *out_part = (name_part){bytes, count, walk->numbers < NUMBERS_MAX && is_number(bytes, count)};
    walk->numbers += out_part->is_number;
    walk->at += count + 1;
    return 1;
}

static int64_t read_number(const name_part *part)
{
    int64_t number = 0;
    for (size_t i = 0; i < part->count; i++)
        number = number * 10 + (part->bytes[i] - '0');
    return number;
}

/* Whether names are the same apart from their numbers. */
static int names_agree(const cli_name *a, const cli_name *b)
{
    part_walk x = {0, 0}, y = {0, 0};
    name_part m, n;
    for (;;) {
        int has_more = next_part(a, &x, &m);
        if (has_more != next_part(b, &y, &n))
            return 0;
        if (!has_more)
            return 1;
        if (m.is_number != n.is_number ||
            (!m.is_number && (m.count != n.count || memcmp(m.bytes, n.bytes, m.count) != 0)))
            return 0;
    }
}

/* ---- what a row has in common ---------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

static uint64_t mix_numbers(uint64_t hash, int32_t count, const int64_t *numbers)
{
    for (int32_t i = 0; numbers != NULL && i < count; i++)
        hash = mix(hash, (uint64_t)numbers[i]);
    return hash;
}

static uint64_t mix_bytes(uint64_t hash, const char *bytes, size_t count)
{
    uint64_t word = count;
    for (hash = mix(hash, word); count >= sizeof word; count -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = mix(hash, word);
    }
    word = 0;
    memcpy(&word, bytes, count);
    return mix(hash, word);
}

/* Hashes what the table says of a tensor's split: which file holds which box, or of what it is a
 * part. Of tensors that are whole, it does not matter in which file. */
static reshard_status hash_split(const reshard_checkpoint *checkpoint, int64_t index,
                                 const reshard_stored_tensor *tensor, uint64_t *out_hash)
{
    uint64_t hash = mix((uint64_t)tensor->piece_count, (uint64_t)tensor->copy_count);
    hash = mix_numbers(hash, tensor->whole_ndim, tensor->whole_shape);
    hash = mix_numbers(hash, tensor->whole_ndim, tensor->whole_offset);
    if (tensor->whole_spec != NULL)
        hash = mix_bytes(hash, tensor->whole_spec, strlen(tensor->whole_spec));
    for (int64_t i = 0; tensor->piece_count > 1 && i < tensor->piece_count; i++) {
        reshard_stored_piece piece = {.size = sizeof piece};
        reshard_status status = reshard_checkpoint_piece(checkpoint, index, i, &piece);
        if (status != RESHARD_OK)
            return status;
        hash = mix(hash, (uint64_t)piece.file);
        hash = mix_numbers(hash, piece.box.ndim, piece.box.offset);
        hash = mix_numbers(hash, piece.box.ndim, piece.box.size);
    }
    *out_hash = hash;
    return RESHARD_OK;
}

/* The same for tensors of one row. */
static uint64_t hash_tensor(const reshard_stored_tensor *tensor, uint64_t split)
{
    const cli_name name = {tensor->name, tensor->name_bytes, 0};
    uint64_t hash = mix((uint64_t)tensor->dtype, split);
    part_walk walk = {0, 0};
    name_part part;
    while (next_part(&name, &walk, &part))
        hash = part.is_number ? mix(hash, UINT64_MAX) : mix_bytes(hash, part.bytes, part.count);
    if (tensor->stored_as != NULL)
        hash = mix_bytes(hash, tensor->stored_as, strlen(tensor->stored_as));
    return mix_numbers(mix(hash, (uint64_t)tensor->ndim), tensor->ndim, tensor->shape);
}

/* Whether two tensors whose splits have the same hash go into one row. */
static int tensors_agree(const reshard_stored_tensor *a, const reshard_stored_tensor *b)
{
    const cli_name x = {a->name, a->name_bytes, 0}, y = {b->name, b->name_bytes, 0};
    int agree = a->dtype == b->dtype && a->ndim == b->ndim &&
                strcmp(a->stored_as != NULL ? a->stored_as : "",
                       b->stored_as != NULL ? b->stored_as : "") == 0;
    for (int32_t d = 0; agree && d < a->ndim; d++)
        agree = a->shape[d] == b->shape[d];
    return agree && names_agree(&x, &y);
}

/* ---- rows in the making ---------------------------------------------------------------------- */

typedef struct number_range {
    int64_t least, most;
} number_range;

/* A row that more tensors may join. There may be as many as tensors, so it is small. */
typedef struct kind {
    uint64_t hash, split;
    int64_t first; /* the tensor that comes first by name */
    int64_t count;
    uint64_t bytes;
    number_range *ranges; /* of the numbers in the names, NUMBERS_MAX of them; NULL: one tensor */
} kind;

/* The rows so far, numbered as they come, in a hash table whose places are taken one after
 * another. */
typedef struct kinds {
    const reshard_checkpoint *checkpoint;
    uint32_t *places;   /* kind + 1, or 0: none */
    size_t place_count; /* a power of two, at least twice the number of kinds */
    kind *items;
    int64_t count;
    size_t capacity;
} kinds;

static void put_kind(kinds *k, int64_t item)
{
    size_t at = k->items[item].hash & (k->place_count - 1);
    while (k->places[at] != 0)
        at = (at + 1) & (k->place_count - 1);
    k->places[at] = (uint32_t)item + 1;
}

static void append_kind(kinds *k, kind item)
{
    k->items = cli_grow(k->items, &k->capacity, (size_t)k->count + 1, sizeof item);
    k->items[k->count++] = item;
}

/* Makes the table large enough for one more kind. */
static void grow_places(kinds *k)
{
    if (2 * ((size_t)k->count + 1) <= k->place_count)
        return;
    free(k->places);
    k->place_count = k->place_count == 0 ? 64 : 2 * k->place_count;
    k->places = cli_allocate(k->place_count, sizeof *k->places);
    for (int64_t i = 0; i < k->count; i++)
        put_kind(k, i);
}

static void release_kinds(kinds *k)
{
    for (int64_t i = 0; i < k->count; i++)
        free(k->items[i].ranges);
    free(k->items);
    free(k->places);
}

static void widen_ranges(const reshard_stored_tensor *tensor, int is_first, number_range *ranges)
{
    const cli_name name = {tensor->name, tensor->name_bytes, 0};
    part_walk walk = {0, 0};
    name_part part;
    while (next_part(&name, &walk, &part)) {
        if (!part.is_number)
            continue;
        int64_t number = read_number(&part);
        number_range *range = &ranges[walk.numbers - 1];
        range->least = is_first || number < range->least ? number : range->least;
        range->most = is_first || number > range->most ? number : range->most;
    }
}

/* Adds a tensor to its row. `first` is the row's first tensor. */
static void join_kind(kind *row, const reshard_stored_tensor *first, int64_t index,
                      const reshard_stored_tensor *tensor)
{
    const cli_name x = {first->name, first->name_bytes, row->first};
    const cli_name y = {tensor->name, tensor->name_bytes, index};
    if (row->ranges == NULL) {
        row->ranges = cli_allocate(NUMBERS_MAX, sizeof *row->ranges);
        widen_ranges(first, 1, row->ranges);
    }
    widen_ranges(tensor, 0, row->ranges);
    if (cli_names_compare(&y, &x) < 0)
        row->first = index;
    row->count++;
    row->bytes = add_capped(row->bytes, tensor->stored_bytes);
}

static reshard_status add_tensor(kinds *k, int64_t index)
{
    reshard_stored_tensor tensor = {.size = sizeof tensor}, first = {.size = sizeof first};
    uint64_t split = 0;
    reshard_status status = reshard_checkpoint_tensor(k->checkpoint, index, &tensor);
    if (status == RESHARD_OK)
        status = hash_split(k->checkpoint, index, &tensor, &split);
    if (status != RESHARD_OK)
        return status;
    uint64_t hash = hash_tensor(&tensor, split);
    grow_places(k);
    for (size_t at = hash & (k->place_count - 1); k->places[at] != 0;
         at = (at + 1) & (k->place_count - 1)) {
        kind *row = &k->items[k->places[at] - 1];
        if (row->hash != hash || row->split != split)
            continue;
        status = reshard_checkpoint_tensor(k->checkpoint, row->first, &first);
        if (status != RESHARD_OK)
            return status;
        if (tensors_agree(&first, &tensor)) {
            join_kind(row, &first, index, &tensor);
            return RESHARD_OK;
        }
    }
    append_kind(k, (kind){.hash = hash,
                          .split = split,
                          .first = index,
                          .count = 1,
                          .bytes = tensor.stored_bytes});
    put_kind(k, k->count - 1);
    return RESHARD_OK;
}

/* Makes a row for the tensor alone. */
static reshard_status add_alone(kinds *k, int64_t index)
{
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    reshard_status status = reshard_checkpoint_tensor(k->checkpoint, index, &tensor);
    if (status == RESHARD_OK)
        append_kind(k, (kind){.first = index, .count = 1, .bytes = tensor.stored_bytes});
    return status;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Writes the name, with a range in place of each number that differs. Bytes that would mean
 * something in a pattern are left as they are: the text is for people. The caller frees it. */
static char *write_pattern(const cli_name *name, const number_range *ranges, size_t *out_length)
{
    size_t room = name->count + NUMBERS_MAX * 2 * (DIGITS_MAX + 3) + 2, length = 0;
    char *text = cli_allocate(room, 1);
    part_walk walk = {0, 0};
    name_part part;
    while (next_part(name, &walk, &part)) {
        const number_range *range =
            part.is_number && ranges != NULL ? &ranges[walk.numbers - 1] : NULL;
        if (range != NULL && range->least != range->most) {
            length += (size_t)snprintf(text + length, room - length, "{%" PRId64 "..%" PRId64 "}",
                                       range->least, range->most);
        } else {
            memcpy(text + length, part.bytes, part.count);
            length += part.count;
        }
        text[length++] = '.';
    }
    *out_length = length - 1; /* no dot follows the last part */
    return text;
}

/* The name of a row, or the pattern that stands for the names of several. The caller frees it. */
static char *name_row(const cli_name *name, const kind *row)
{
    char shown[CLI_NAME_TEXT];
    size_t length = 0;
    char *pattern = write_pattern(name, row->ranges, &length);
    (void)cli_name_text(pattern, length, shown);
    free(pattern);
    size_t room = strlen(shown) + 32;
    char *text = cli_allocate(room, 1);
    if (row->count == 1)
        (void)snprintf(text, room, "%s", shown);
    else
        (void)snprintf(text, room, "%s x%" PRId64, shown, row->count);
    return text;
}

/* Makes the rows of all kinds, ordered by name. */
static reshard_status order_rows(const kinds *k, cli_tensor_row **out_rows)
{
    cli_tensor_row *rows = cli_allocate((size_t)k->count + 1, sizeof *rows);
    cli_name *names = cli_allocate((size_t)k->count + 1, sizeof *names);
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < k->count; i++) {
        reshard_stored_tensor tensor = {.size = sizeof tensor};
        status = reshard_checkpoint_tensor(k->checkpoint, k->items[i].first, &tensor);
        names[i] = (cli_name){tensor.name, tensor.name_bytes, i};
    }
    if (status == RESHARD_OK)
        cli_names_sort(names, (size_t)k->count);
    for (int64_t i = 0; status == RESHARD_OK && i < k->count; i++) {
        const kind *row = &k->items[names[i].index];
        rows[i] = (cli_tensor_row){.name = name_row(&names[i], row),
                                   .first = row->first,
                                   .count = row->count,
                                   .bytes = row->bytes};
    }
    free(names);
    if (status == RESHARD_OK)
        *out_rows = rows;
    else
        free(rows);
    return status;
}

reshard_status cli_tensor_rows_make(const cli_inspection *shown, int all, cli_tensor_row **out_rows,
                                    int64_t *out_count)
{
    kinds found = {.checkpoint = shown->checkpoint};
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < shown->count; i++)
        status = all ? add_alone(&found, shown->tensors[i]) : add_tensor(&found, shown->tensors[i]);
    if (status == RESHARD_OK)
        status = order_rows(&found, out_rows);
    if (status == RESHARD_OK)
        *out_count = found.count;
    release_kinds(&found);
    return status;
}

void cli_tensor_rows_free(cli_tensor_row *rows, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        free(rows[i].name);
    free(rows);
}
