/* SPDX-License-Identifier: Apache-2.0 */
/* file_names.c - takes names apart from the end: ".safetensors", then "-N-of-M", then the stem. */
#include "checkpoint/format/file_names.h"

#include "base/context.h"
#include "base/sort.h"
#include "text/text.h"

#include <stdio.h>
#include <string.h>

static const char ending[] = ".safetensors";

/* The stems that loaders look for, the whole model first. */
static const char *const known[] = {"model", "consolidated", "adapter_model",
                                    "diffusion_pytorch_model", "pytorch_lora_weights"};
#define KNOWN_COUNT (sizeof known / sizeof *known)

/* ---- one name -------------------------------------------------------------------------------- */

/* Cuts a number of up to 18 digits off the end of the slice. */
static bool cut_number(rs_slice *slice, uint64_t *out_number)
{
    size_t digits = 0;
    *out_number = 0;
    while (digits < slice->count && rs_is_digit(slice->bytes[slice->count - 1 - digits]))
        digits++;
    if (digits == 0 || digits > 18)
        return false;
    slice->count -= digits;
    for (size_t i = 0; i < digits; i++)
        *out_number = *out_number * 10 + (uint64_t)(slice->bytes[slice->count + i] - '0');
    return true;
}

static bool cut_text(rs_slice *slice, const char *text)
{
    size_t length = strlen(text);
    if (slice->count < length || memcmp(slice->bytes + slice->count - length, text, length) != 0)
        return false;
    slice->count -= length;
    return true;
}

bool rs_file_name_read(const char *name, rs_file_name *out_name)
{
    return rs_file_name_read_as(name, ending, out_name);
}

bool rs_file_name_read_as(const char *name, const char *wanted, rs_file_name *out_name)
{
    rs_slice rest = rs_slice_of(name);
    if (!cut_text(&rest, wanted))
        return false;
    *out_name = (rs_file_name){.name = name, .stem = rest};
    uint64_t number = 0, count = 0;
    if (cut_number(&rest, &count) && cut_text(&rest, "-of-") && cut_number(&rest, &number) &&
        cut_text(&rest, "-")) {
        out_name->stem = rest;
        out_name->is_numbered = true;
        out_name->number = number;
        out_name->count = count;
    }
    return true;
}

/* ---- stems ----------------------------------------------------------------------------------- */

static bool has_base(rs_slice stem, const char *base, bool with_variant)
{
    size_t length = strlen(base);
    return stem.count >= length && memcmp(stem.bytes, base, length) == 0 &&
           (with_variant ? stem.count > length && stem.bytes[length] == '.' : stem.count == length);
}

bool rs_stem_is_known(rs_slice stem)
{
    if (stem.count > RS_STEM_BYTES_MAX)
        return false;
    for (size_t i = 0; i < stem.count; i++) {
        char c = stem.bytes[i];
        if (!rs_is_letter(c) && !rs_is_digit(c) && c != '-' && c != '.')
            return false;
    }
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        if (has_base(stem, known[i], false) || has_base(stem, known[i], true))
            return true;
    }
    return false;
}

rs_slice rs_file_names_model(int64_t count, char *const *names)
{
    for (size_t choice = 0; choice < 2 * KNOWN_COUNT; choice++) {
        for (int64_t i = 0; i < count; i++) {
            rs_file_name name;
            if (rs_file_name_read(names[i], &name) &&
                has_base(name.stem, known[choice / 2], choice % 2 != 0))
                return name.stem;
        }
    }
    return (rs_slice){NULL, 0};
}

/* ---- completeness ---------------------------------------------------------------------------- */

static int compare_groups(const rs_file_name *a, const rs_file_name *b)
{
    int order = rs_slice_compare(a->stem, b->stem);
    return order != 0 ? order : (a->count > b->count) - (a->count < b->count);
}

static int compare_names(const void *a, const void *b)
{
    const rs_file_name *x = a, *y = b;
    int order = compare_groups(x, y);
    return order != 0 ? order : (x->number > y->number) - (x->number < y->number);
}

/* The name of another file of the same group, with as many digits. */
static const char *name_fellow(rs_arena *arena, const rs_file_name *like, uint64_t number)
{
    size_t bytes = strlen(like->name) + 24;
    const char *digits = like->stem.bytes + like->stem.count + 1;
    char *name = rs_arena_allocate(arena, bytes);
    if (name != NULL)
        (void)snprintf(name, bytes, "%.*s-%0*llu%s", (int)like->stem.count, like->stem.bytes,
                       (int)strspn(digits, "0123456789"), (unsigned long long)number,
                       digits + strspn(digits, "0123456789"));
    return name;
}

/* Finds the first missing number of a group, which is sorted by number. Numbers begin at 0 or 1. */
static bool find_gap(const rs_file_name *group, int64_t size, uint64_t *out_number,
                     uint64_t *out_found)
{
    uint64_t first = group[0].number == 0 ? 0 : 1, next = first;
    *out_found = 0;
    for (int64_t i = 0; i < size; i++)
        *out_found += i == 0 || group[i].number != group[i - 1].number;
    for (int64_t i = 0; i < size && group[i].number <= next; i++)
        next = group[i].number + 1;
    *out_number = next;
    return next < first + group[0].count;
}

/* Finds gaps in numbered files. *out_missing is the name of the first missing file, in the arena,
 * or NULL; if there is one, *out_found of *out_count files are there. */
static reshard_status find_missing(rs_arena *arena, int32_t count, const rs_stored_file *files,
                                   rs_file_name_reader *read, const char **out_missing,
                                   uint64_t *out_found, uint64_t *out_count)
{
    int64_t found = 0;
    *out_missing = NULL;
    rs_file_name *items = rs_arena_allocate_array(arena, (size_t)count, sizeof *items);
    if (items == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < count; i++) {
        if (read(files[i].name, &items[found]) && items[found].is_numbered)
            found++;
    }
    rs_sort(items, (size_t)found, sizeof *items, compare_names);
    for (int64_t first = 0, next; first < found; first = next) {
        uint64_t number = 0;
        for (next = first + 1; next < found && compare_groups(&items[first], &items[next]) == 0;)
            next++;
        if (!find_gap(items + first, next - first, &number, out_found))
            continue;
        *out_count = items[first].count;
        *out_missing = name_fellow(arena, &items[first], number);
        return *out_missing != NULL ? RESHARD_OK : rs_allocation_status();
    }
    return RESHARD_OK;
}

reshard_status rs_file_names_check_complete(reshard_checkpoint *checkpoint,
                                            const rs_opening *opening, rs_file_name_reader *read)
{
    const char *missing = NULL;
    uint64_t found = 0, count = 0;
    reshard_status status = find_missing(&checkpoint->arena, checkpoint->named_count,
                                         checkpoint->files, read, &missing, &found, &count);
    if (status != RESHARD_OK || missing == NULL)
        return status;
    if (!opening->is_folder)
        return rs_store_note(checkpoint,
                             "%s is one of %llu files by its name; the others are ignored",
                             checkpoint->files[0].name, (unsigned long long)count);
    return rs_fail_about(RESHARD_ERR_GAP, checkpoint->path,
                         "%s is missing: by their names there are %llu files, and %llu are here",
                         missing, (unsigned long long)count, (unsigned long long)found);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* How many bytes all names have in common: at their beginnings, or at their ends. Digits next to
 * where they differ are not counted, since they are part of the number. */
static size_t measure_common(int64_t count, const rs_stored_file *files, bool at_end)
{
    const char *name = files[0].name;
    size_t first = strlen(name), common = first;
    for (int64_t i = 1; i < count; i++) {
        const char *other = files[i].name;
        size_t length = strlen(other), same = 0;
        while (same < common && same < length &&
               name[at_end ? first - 1 - same : same] == other[at_end ? length - 1 - same : same])
            same++;
        common = same;
    }
    while (common > 0 && rs_is_digit(name[at_end ? first - common : common - 1]))
        common--;
    return common;
}

/* Reads the number between `begin` bytes and the last `end` bytes; false if more is there. */
static bool read_between(const char *name, size_t begin, size_t end, uint64_t *out_number)
{
    size_t length = strlen(name);
    rs_slice digits = {name + begin, length > begin + end ? length - begin - end : 0};
    return cut_number(&digits, out_number) && digits.count == 0;
}

int64_t rs_file_names_missing_number(int64_t count, const rs_stored_file *files, int64_t first,
                                     int64_t numbers)
{
    uint64_t number = 0;
    if (count < 2)
        return -1;
    size_t begin = measure_common(count, files, false), end = measure_common(count, files, true);
    for (int64_t i = 0; i < count; i++) {
        if (!read_between(files[i].name, begin, end, &number) || number < (uint64_t)first ||
            number >= (uint64_t)(first + numbers))
            return -1;
    }
    for (int64_t wanted = first; wanted < first + numbers && wanted <= first + count; wanted++) {
        bool has = false;
        for (int64_t i = 0; !has && i < count; i++)
            has = read_between(files[i].name, begin, end, &number) && number == (uint64_t)wanted;
        if (!has)
            return wanted;
    }
    return -1;
}

bool rs_opening_has(const rs_opening *opening, const char *name)
{
    int64_t i = 0;
    while (i < opening->name_count && strcmp(opening->names[i], name) != 0)
        i++;
    return i < opening->name_count;
}

reshard_status rs_opening_leave_out(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                    int64_t count, const char *what, rs_slice first)
{
    if (count == 0)
        return RESHARD_OK;
    if (opening->unlisted == RS_UNLISTED_REFUSE)
        return rs_fail_about(RESHARD_ERR_INVALID, checkpoint->path, "%lld %s: \"%.*s\"%s",
                             (long long)count, what, RS_SHOWN(first),
                             count > 1 ? " and others" : "");
    return rs_store_note(checkpoint, "left out: %lld %s (\"%.*s\"%s)", (long long)count, what,
                         RS_SHOWN(first), count > 1 ? " and others" : "");
}
