/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect_values.c - prints what a checkpoint holds beside tensors.
 *
 * Files come from strangers, so memory does not grow with what they hold: a value in full is
 * written into a buffer of fixed size, which serves all values, and one that does not fit is
 * printed in short. All bytes that a terminal might act on are escaped.
 */
#include "cli/inspect/inspect_values.h"

#include "cli/common/memory.h"
#include "cli/common/style.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES_MAX = 24, ITEMS_MAX = 64 };
/* The longest text in full: for people, and as JSON. */
enum { PRINTED_MAX = 1 << 20, WRITTEN_MAX = 32 << 20 };

/* Writes a value in full. *out_fits is 0 if it is too long, or if nobody knows what it is. */
static reshard_status read_text(const cli_inspection *shown, int64_t index, int64_t items_max,
                                char *buffer, size_t capacity, int *out_fits)
{
    reshard_status status =
        reshard_checkpoint_value_text(shown->checkpoint, index, items_max, buffer, capacity);
    *out_fits = status == RESHARD_OK;
    return status == RESHARD_ERR_RANGE || status == RESHARD_ERR_NOT_FOUND ? RESHARD_OK : status;
}

/* Reads metadatum `index`, or the next one that the patterns choose. Returns 0 after the last. */
static int next_text(const cli_inspection *shown, int64_t *index, reshard_stored_text *out_text)
{
    while (reshard_checkpoint_text(shown->checkpoint, *index, out_text) == RESHARD_OK) {
        ++*index;
        if (cli_inspection_has(shown, out_text->key, out_text->key_bytes))
            return 1;
    }
    return 0;
}

/* The same for values. *index is that of the next one. */
static int next_value(const cli_inspection *shown, int64_t *index, reshard_stored_value *out_value)
{
    while (reshard_checkpoint_value(shown->checkpoint, *index, out_value) == RESHARD_OK) {
        ++*index;
        if (cli_inspection_has(shown, out_value->name, out_value->name_bytes))
            return 1;
    }
    return 0;
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_name(int64_t *count, const char *name, size_t name_bytes)
{
    fputs((*count)++ == 0 ? "\nvalues that are not tensors\n  " : "  ", stdout);
    cli_print_shown_part(name, name_bytes);
}

/* "list of str" as "list of 32000 str". */
static void print_type(const reshard_stored_value *value)
{
    static const char lists[] = "list of ";
    size_t length = sizeof lists - 1;
    if (value->item_count < 0)
        printf(": %s", value->type);
    else if (strncmp(value->type, lists, length) == 0)
        printf(": %s%" PRId64 " %s", lists, value->item_count, value->type + length);
    else
        printf(": %s of %" PRId64, value->type, value->item_count);
}

static void print_short(int64_t *count, const reshard_stored_value *value)
{
    print_name(count, value->name, value->name_bytes);
    fputs(value->text != NULL ? " = " : "", stdout);
    cli_print_shown(value->text != NULL ? value->text : "");
    putchar('\n');
}

static reshard_status print_in_full(const cli_inspection *shown)
{
    reshard_stored_value value = {.size = sizeof value};
    reshard_stored_text text = {.size = sizeof text};
    char *buffer = cli_allocate(PRINTED_MAX, 1);
    reshard_status status = RESHARD_OK;
    int64_t count = 0;
    for (int64_t i = 0; status == RESHARD_OK && next_value(shown, &i, &value);) {
        int fits = 0;
        status = read_text(shown, i - 1, ITEMS_MAX, buffer, PRINTED_MAX, &fits);
        print_name(&count, value.name, value.name_bytes);
        if (value.type != NULL)
            print_type(&value);
        fputs(fits || value.text != NULL ? " = " : ": not known", stdout);
        cli_print_shown(fits ? buffer : value.text != NULL ? value.text : "");
        puts(fits || value.text == NULL ? "" : " (in short: too long to print in full)");
    }
    for (int64_t i = 0; status == RESHARD_OK && next_text(shown, &i, &text);) {
        print_name(&count, text.key, text.key_bytes);
        fputs(": str = \"", stdout);
        cli_print_shown_part(text.text, text.text_bytes);
        puts("\"");
    }
    if (status == RESHARD_OK && count == 0)
        puts("\nno values that are not tensors");
    free(buffer);
    return status;
}

reshard_status cli_values_print(const cli_inspection *shown, int all, int in_full)
{
    reshard_stored_value value = {.size = sizeof value};
    int64_t count = 0, left_out = 0;
    if (in_full)
        return print_in_full(shown);
    for (int64_t i = 0; next_value(shown, &i, &value);) {
        if (all || count < VALUES_MAX)
            print_short(&count, &value);
        else
            left_out++;
    }
    if (left_out != 0)
        printf("  ... %" PRId64 " values left out; --values prints all of them, in full\n",
               left_out);
    return RESHARD_OK;
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static reshard_status write_in_full(cli_json *json, const cli_inspection *shown, int64_t index,
                                    const reshard_stored_value *value, char *buffer)
{
    int fits = 0;
    reshard_status status = read_text(shown, index, -1, buffer, WRITTEN_MAX, &fits);
    if (value->type != NULL)
        cli_json_text(json, "type", value->type);
    if (value->item_count >= 0)
        cli_json_integer(json, "count", value->item_count);
    if (fits && value->is_json)
        cli_json_raw(json, "full", buffer);
    else if (fits)
        cli_json_text(json, "full", buffer);
    else if (value->type != NULL)
        cli_json_true(json, "too_long");
    return status;
}

reshard_status cli_values_write(cli_json *json, const cli_inspection *shown, int in_full)
{
    reshard_stored_value value = {.size = sizeof value};
    reshard_stored_text text = {.size = sizeof text};
    char *buffer = in_full ? cli_allocate(WRITTEN_MAX, 1) : NULL;
    reshard_status status = RESHARD_OK;
    cli_json_begin_list(json, "values");
    for (int64_t i = 0; status == RESHARD_OK && next_value(shown, &i, &value);) {
        cli_json_begin_object(json, NULL);
        cli_json_text_part(json, "name", value.name, value.name_bytes);
        if (value.text != NULL)
            cli_json_text(json, "value", value.text);
        if (in_full)
            status = write_in_full(json, shown, i - 1, &value, buffer);
        cli_json_end_object(json);
    }
    for (int64_t i = 0; in_full && status == RESHARD_OK && next_text(shown, &i, &text);) {
        cli_json_begin_object(json, NULL);
        cli_json_text_part(json, "name", text.key, text.key_bytes);
        cli_json_text(json, "type", "str");
        cli_json_text_part(json, "full", text.text, text.text_bytes);
        cli_json_end_object(json);
    }
    cli_json_end_list(json);
    free(buffer);
    return status;
}
