/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect_rows.c - chooses tensors, and joins those that differ only in numbers.
 *
 * Tensors are sorted by name. In that order each is given to its row, which is found by a hash of
 * the name, numbers apart, and of dtype, shape and split; so rows come in the order of their first
 * names. A number is a part of a name between two dots. The split is compared by a hash of all
 * boxes and their files. A collision would only join two rows, whose count still says how many
 * tensors there are.
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

static int matches_tensor(const reshard_checkpoint *checkpoint, const char *pattern)
{
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    reshard_unreadable_tensor other = {.size = sizeof other};
    int matches = 0;
    for (int64_t i = 0; !matches && i < reshard_checkpoint_tensor_count(checkpoint); i++) {
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
    cli_name name;
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

/* Equal for items of one kind. */
static uint64_t hash_kind(const row_item *item)
{
    uint64_t hash = mix((uint64_t)item->dtype, item->split);
    int numbers = 0;
    for (size_t i = 0; i < item->name.count;) {
        size_t length =
            numbers < NUMBERS_MAX ? measure_number(item->name.bytes, item->name.count, i) : 0;
        /* a number is no byte */
        hash = mix(hash, length != 0 ? 256 : (unsigned char)item->name.bytes[i]);
        numbers += length != 0;
        i += length != 0 ? length : 1;
    }
    for (const char *at = item->stored_as; at != NULL && *at != '\0'; at++)
        hash = mix(hash, (unsigned char)*at);
    return mix_numbers(mix(hash, (uint64_t)item->ndim), item->ndim, item->shape);
}

/* Sorts the items by name. */
static void order_items(const row_item *items, int64_t count, int64_t *order)
{
    cli_name *names = cli_allocate((size_t)count + 1, sizeof *names);
    for (int64_t i = 0; i < count; i++)
        names[i] = items[i].name;
    cli_names_sort(names, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        order[i] = names[i].index;
    free(names);
}

/* ---- kinds ----------------------------------------------------------------------------------- */

/* The kinds of items found so far, numbered as they come, in a hash table whose places are taken
 * one after another. */
typedef struct kinds {
    const row_item *items;
    int64_t *places;    /* kind + 1, or 0: none */
    size_t place_count; /* a power of two, more than twice the number of kinds */
    int64_t *firsts;    /* by kind: its first item */
    uint64_t *hashes;
    int64_t *counts; /* of items */
    int64_t count, capacity;
} kinds;

static void put_kind(kinds *k, int64_t kind)
{
    size_t at = k->hashes[kind] & (k->place_count - 1);
    while (k->places[at] != 0)
        at = (at + 1) & (k->place_count - 1);
    k->places[at] = kind + 1;
}

static void *grow_array(void *old, int64_t count, int64_t capacity, size_t bytes)
{
    void *larger = cli_allocate((size_t)capacity, bytes);
    if (count != 0)
        memcpy(larger, old, (size_t)count * bytes);
    free(old);
    return larger;
}

static void grow_kinds(kinds *k)
{
    k->capacity = k->capacity == 0 ? 16 : 2 * k->capacity;
    k->firsts = grow_array(k->firsts, k->count, k->capacity, sizeof *k->firsts);
    k->hashes = grow_array(k->hashes, k->count, k->capacity, sizeof *k->hashes);
    k->counts = grow_array(k->counts, k->count, k->capacity, sizeof *k->counts);
    free(k->places);
    k->place_count = (size_t)(4 * k->capacity);
    k->places = cli_allocate(k->place_count, sizeof *k->places);
    memset(k->places, 0, k->place_count * sizeof *k->places);
    for (int64_t i = 0; i < k->count; i++)
        put_kind(k, i);
}

static int64_t find_kind(kinds *k, int64_t item)
{
    uint64_t hash = hash_kind(&k->items[item]);
    if (k->count == k->capacity)
        grow_kinds(k);
    for (size_t at = hash & (k->place_count - 1); k->places[at] != 0;
         at = (at + 1) & (k->place_count - 1)) {
        int64_t kind = k->places[at] - 1;
        if (k->hashes[kind] == hash &&
            compare_kinds(&k->items[k->firsts[kind]], &k->items[item]) == 0)
            return kind;
    }
    k->firsts[k->count] = item;
    k->hashes[k->count] = hash;
    k->counts[k->count] = 0;
    put_kind(k, k->count);
    return k->count++;
}

/* Puts items of one kind together; kinds by their first items, each in the order it had. Returns
 * the number of kinds, and how many items each has. The caller frees out_counts. */
static int64_t join_items(const row_item *items, int64_t count, int64_t *order,
                          int64_t **out_counts)
{
    kinds found = {.items = items};
    int64_t *by_item = cli_allocate((size_t)count + 1, sizeof *by_item);
    for (int64_t i = 0; i < count; i++) {
        by_item[i] = find_kind(&found, order[i]);
        found.counts[by_item[i]]++;
    }
    int64_t *joined = cli_allocate((size_t)count + 1, sizeof *joined);
    int64_t *starts = cli_allocate((size_t)found.count + 1, sizeof *starts);
    for (int64_t i = 0; i < found.count; i++)
        starts[i] = i == 0 ? 0 : starts[i - 1] + found.counts[i - 1];
    for (int64_t i = 0; i < count; i++)
        joined[starts[by_item[i]]++] = order[i];
    memcpy(order, joined, (size_t)count * sizeof *order);
    free(joined);
    free(starts);
    free(by_item);
    free(found.places);
    free(found.firsts);
    free(found.hashes);
    *out_counts = found.counts;
    return found.count;
}

/* ---- names of rows --------------------------------------------------------------------------- */

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

/* Makes the row of some items, of which the first comes first by name. */
static cli_tensor_row make_row(const row_item *items, const int64_t *order, int64_t count)
{
    char shown[CLI_NAME_TEXT];
    number_range ranges[NUMBERS_MAX + 1] = {{0, 0}};
    size_t length = 0;
    cli_tensor_row row = {.first = items[order[0]].tensor, .count = count};
    for (int64_t i = 0; i < count; i++) {
        widen_ranges(&items[order[i]].name, i == 0, ranges);
        row.bytes = add_capped(row.bytes, items[order[i]].bytes);
    }
    char *pattern = write_pattern(&items[order[0]].name, ranges, &length);
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

static cli_tensor_row *make_rows(const row_item *items, int64_t count, int all, int64_t *out_count)
{
    int64_t *order = cli_allocate((size_t)count + 1, sizeof *order), *counts = NULL;
    order_items(items, count, order);
    int64_t row_count = all ? count : join_items(items, count, order, &counts);
    cli_tensor_row *rows = cli_allocate((size_t)row_count + 1, sizeof *rows);
    for (int64_t i = 0, first = 0; i < row_count; i++) {
        int64_t own = all ? 1 : counts[i];
        rows[i] = make_row(items, order + first, own);
        first += own;
    }
    free(order);
    free(counts);
    *out_count = row_count;
    return rows;
}

reshard_status cli_tensor_rows_make(const cli_inspection *shown, int all, cli_tensor_row **out_rows,
                                    int64_t *out_count)
{
    row_item *items = cli_allocate((size_t)shown->count + 1, sizeof *items);
    reshard_status status = list_items(shown, items);
    if (status == RESHARD_OK)
        *out_rows = make_rows(items, shown->count, all, out_count);
    free(items);
    return status;
}

void cli_tensor_rows_free(cli_tensor_row *rows, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        free(rows[i].name);
    free(rows);
}
