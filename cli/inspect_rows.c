/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect_rows.c - chooses tensors, and joins those that differ only in numbers.
 *
 * Tensors are sorted by name, numbers apart, then by dtype, shape and split, so that the tensors of
 * a row are neighbours. A number is a part of a name between two dots. The split is compared by a
 * hash of all boxes and their files. A collision would only join two rows, whose count still says
 * how many tensors there are.
 */
#include "cli/inspect_rows.h"

#include "cli/common/failure.h"
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

/* A pattern that matches nothing was meant for something. */
static int check_patterns(const cli_inspection *shown)
{
    for (int i = 0; i < shown->includes->count; i++) {
        const char *pattern = shown->includes->items[i];
        int64_t count = reshard_checkpoint_tensor_count(shown->checkpoint), at = 0;
        int matches = 0;
        if (reshard_pattern_match(pattern, "", 0, &matches) != RESHARD_OK)
            return cli_fail(CLI_USAGE, "inspect: --include \"%s\": %s", pattern,
                            reshard_error_text());
        for (; !matches && at < count; at++) {
            reshard_stored_tensor tensor = {.size = sizeof tensor};
            if (reshard_checkpoint_tensor(shown->checkpoint, at, &tensor) == RESHARD_OK)
                (void)reshard_pattern_match(pattern, tensor.name, tensor.name_bytes, &matches);
        }
        reshard_unreadable_tensor other = {.size = sizeof other};
        for (at = 0;
             !matches && reshard_checkpoint_unreadable(shown->checkpoint, at, &other) == RESHARD_OK;
             at++)
            (void)reshard_pattern_match(pattern, other.name, other.name_bytes, &matches);
        if (!matches)
            return cli_fail(CLI_FAILED, "inspect: --include \"%s\": matches no tensor", pattern);
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
    int64_t count = reshard_checkpoint_tensor_count(checkpoint);
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

/* ---- numbers in names ------------------------------------------------------------------------ */

/* The length of the number at this place if it fills all the space between two dots, else 0. */
static size_t measure_number(const char *name, size_t count, size_t at)
{
    size_t end = at;
    if (at > 0 && name[at - 1] != '.')
        return 0;
    while (end < count && name[end] >= '0' && name[end] <= '9')
        end++;
    int is_whole = end == count || name[end] == '.';
    int is_plain = end - at == 1 || (end > at && name[at] != '0');
    return is_whole && is_plain && end - at <= DIGITS_MAX ? end - at : 0;
}

static int64_t read_number(const char *digits, size_t length)
{
    int64_t number = 0;
    for (size_t i = 0; i < length; i++)
        number = number * 10 + (digits[i] - '0');
    return number;
}

/* Compares names apart from their numbers. */
static int compare_apart(const cli_name *a, const cli_name *b)
{
    size_t i = 0, j = 0;
    for (int numbers = 0; i < a->count && j < b->count;) {
        size_t m = numbers < NUMBERS_MAX ? measure_number(a->bytes, a->count, i) : 0;
        size_t n = numbers < NUMBERS_MAX ? measure_number(b->bytes, b->count, j) : 0;
        if ((m != 0) != (n != 0))
            return m != 0 ? -1 : 1;
        if (m == 0 && a->bytes[i] != b->bytes[j])
            return (unsigned char)a->bytes[i] < (unsigned char)b->bytes[j] ? -1 : 1;
        numbers += m != 0;
        i += m != 0 ? m : 1;
        j += n != 0 ? n : 1;
    }
    return (i < a->count) - (j < b->count);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* A tensor, and what has to be equal to be in one row with others. */
typedef struct row_item {
    cli_name name; /* its index is the item's place in the order of names */
    int64_t tensor;
    reshard_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    uint64_t bytes;
    const char *stored_as; /* NULL: as its dtype says */
    uint64_t split;        /* a hash */
} row_item;

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

/* Hashes what the table says of a tensor's split: which file holds which box, or of what it is a
 * part. Of tensors that are whole, it does not matter in which file. */
static reshard_status hash_split(const reshard_checkpoint *checkpoint, int64_t index,
                                 const reshard_stored_tensor *tensor, uint64_t *out_hash)
{
    uint64_t hash = mix((uint64_t)tensor->piece_count, (uint64_t)tensor->copy_count);
    hash = mix_numbers(hash, tensor->whole_ndim, tensor->whole_shape);
    hash = mix_numbers(hash, tensor->whole_ndim, tensor->whole_offset);
    for (const char *at = tensor->whole_spec; at != NULL && *at != '\0'; at++)
        hash = mix(hash, (unsigned char)*at);
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

static reshard_status list_items(const cli_inspection *shown, row_item *items)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < shown->count; i++) {
        reshard_stored_tensor tensor = {.size = sizeof tensor};
        status = reshard_checkpoint_tensor(shown->checkpoint, shown->tensors[i], &tensor);
        items[i] = (row_item){.name = {tensor.name, tensor.name_bytes, i},
                              .tensor = shown->tensors[i],
                              .dtype = tensor.dtype,
                              .ndim = tensor.ndim,
                              .shape = tensor.shape,
                              .bytes = tensor.stored_bytes,
                              .stored_as = tensor.stored_as};
        if (status == RESHARD_OK)
            status = hash_split(shown->checkpoint, shown->tensors[i], &tensor, &items[i].split);
    }
    return status;
}

static int compare_kinds(const row_item *x, const row_item *y)
{
    int order = compare_apart(&x->name, &y->name);
    if (order == 0)
        order = (x->dtype > y->dtype) - (x->dtype < y->dtype);
    if (order == 0)
        order = strcmp(x->stored_as != NULL ? x->stored_as : "",
                       y->stored_as != NULL ? y->stored_as : "");
    if (order == 0)
        order = (x->ndim > y->ndim) - (x->ndim < y->ndim);
    for (int32_t d = 0; order == 0 && d < x->ndim; d++)
        order = (x->shape[d] > y->shape[d]) - (x->shape[d] < y->shape[d]);
    return order != 0 ? order : (x->split > y->split) - (x->split < y->split);
}

static int compare_items(const void *a, const void *b)
{
    const row_item *x = a, *y = b;
    int order = compare_kinds(x, y);
    return order != 0 ? order : (x->name.index > y->name.index) - (x->name.index < y->name.index);
}

/* Gives each item its place in the order of names. */
static void order_items(row_item *items, int64_t count)
{
    cli_name *names = cli_allocate((size_t)count + 1, sizeof *names);
    for (int64_t i = 0; i < count; i++)
        names[i] = items[i].name;
    cli_names_sort(names, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        items[names[i].index].name.index = i;
    free(names);
}

typedef struct number_range {
    int64_t least, most;
} number_range;

static void widen_ranges(const cli_name *name, int is_first, number_range ranges[NUMBERS_MAX])
{
    int numbers = 0;
    for (size_t i = 0; i < name->count && numbers < NUMBERS_MAX; i++) {
        size_t length = measure_number(name->bytes, name->count, i);
        if (length == 0)
            continue;
        int64_t number = read_number(name->bytes + i, length);
        number_range *range = &ranges[numbers++];
        range->least = is_first || number < range->least ? number : range->least;
        range->most = is_first || number > range->most ? number : range->most;
        i += length - 1;
    }
}

/* Writes the name, with a range in place of each number that differs. Bytes that would mean
 * something in a pattern are left as they are: the text is for people. The caller frees it. */
static char *write_pattern(const cli_name *name, const number_range ranges[NUMBERS_MAX],
                           size_t *out_length)
{
    size_t room = name->count + NUMBERS_MAX * 2 * (DIGITS_MAX + 3) + 1, length = 0;
    char *text = cli_allocate(room, 1);
    int numbers = 0;
    for (size_t i = 0; i < name->count; i++) {
        size_t digits = numbers < NUMBERS_MAX ? measure_number(name->bytes, name->count, i) : 0;
        const number_range *range = &ranges[numbers];
        numbers += digits != 0;
        if (digits != 0 && range->least != range->most) {
            length += (size_t)snprintf(text + length, room - length, "{%" PRId64 "..%" PRId64 "}",
                                       range->least, range->most);
            i += digits - 1;
        } else {
            text[length++] = name->bytes[i];
        }
    }
    *out_length = length;
    return text;
}

/* Makes the row of neighbouring items, of which the first comes first by name. */
static cli_tensor_row make_row(const row_item *items, int64_t count)
{
    char shown[CLI_NAME_TEXT];
    number_range ranges[NUMBERS_MAX + 1] = {{0, 0}};
    size_t length = 0;
    cli_tensor_row row = {.first = items[0].tensor, .count = count};
    for (int64_t i = 0; i < count; i++) {
        widen_ranges(&items[i].name, i == 0, ranges);
        row.bytes = add_capped(row.bytes, items[i].bytes);
    }
    char *pattern = write_pattern(&items[0].name, ranges, &length);
    (void)cli_name_text(pattern, length, shown);
    free(pattern);
    size_t room = strlen(shown) + 32;
    row.name = cli_allocate(room, 1);
    if (count == 1)
        (void)snprintf(row.name, room, "%s", shown);
    else
        (void)snprintf(row.name, room, "%s x%" PRId64, shown, count);
    return row;
}

typedef struct placed_row {
    int64_t place; /* of its first tensor in the order of names */
    cli_tensor_row row;
} placed_row;

static int compare_places(const void *a, const void *b)
{
    const placed_row *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

static int64_t join_items(const row_item *items, int64_t count, int all, placed_row *rows)
{
    int64_t row_count = 0;
    for (int64_t i = 0, next; i < count; i = next) {
        for (next = i + 1; !all && next < count && compare_kinds(&items[i], &items[next]) == 0;)
            next++;
        rows[row_count++] = (placed_row){items[i].name.index, make_row(items + i, next - i)};
    }
    return row_count;
}

reshard_status cli_tensor_rows_make(const cli_inspection *shown, int all, cli_tensor_row **out_rows,
                                    int64_t *out_count)
{
    size_t room = (size_t)shown->count + 1;
    row_item *items = cli_allocate(room, sizeof *items);
    reshard_status status = list_items(shown, items);
    if (status == RESHARD_OK) {
        placed_row *placed = cli_allocate(room, sizeof *placed);
        order_items(items, shown->count);
        qsort(items, (size_t)shown->count, sizeof *items, compare_items);
        int64_t count = join_items(items, shown->count, all, placed);
        qsort(placed, (size_t)count, sizeof *placed, compare_places);
        cli_tensor_row *rows = cli_allocate(room, sizeof *rows);
        for (int64_t i = 0; i < count; i++)
            rows[i] = placed[i].row;
        free(placed);
        *out_rows = rows;
        *out_count = count;
    }
    free(items);
    return status;
}

void cli_tensor_rows_free(cli_tensor_row *rows, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        free(rows[i].name);
    free(rows);
}
