/* SPDX-License-Identifier: Apache-2.0 */
/* verify_stats.c - how far tensors that differ are apart, for people and for programs. */
#include "cli/checkpoint/verify_stats.h"

#include "cli/common/failure.h"
#include "cli/common/names.h"
#include "cli/common/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_TEXT = 32, COLUMNS = 7 };

/* ---- --tolerance ----------------------------------------------------------------------------- */

int cli_tolerance_parse(const cli_texts *texts, double *out_tolerance, double *out_tolerance_l2)
{
    for (int i = 0; i < texts->count; i++) {
        const char *text = texts->items[i];
        int is_l2 = strncmp(text, "l2=", 3) == 0;
        double *bound = is_l2 ? out_tolerance_l2 : out_tolerance;
        char *end = NULL;
        const char *number = is_l2 ? text + 3 : text;
        double value = strtod(number, &end);
        if (end == number || *end != '\0' || !isfinite(value) || value <= 0)
            return cli_fail(CLI_USAGE,
                            "verify: --tolerance \"%s\": expected a number above 0, like 0.001, or "
                            "l2=0.01 for the relative L2 distance",
                            text);
        if (*bound != 0)
            return cli_fail(CLI_USAGE, "verify: --tolerance \"%s\": the same bound was given twice",
                            text);
        *bound = value;
    }
    return CLI_DONE;
}

void cli_verify_print_within(const reshard_comparison_stats *stats, const cli_texts *tolerances)
{
    if (stats->tensors_within == 0)
        return;
    printf("%" PRId64 " tensor%s within the tolerance (", stats->tensors_within,
           stats->tensors_within == 1 ? " differs" : "s differ");
    for (int i = 0; i < tolerances->count; i++)
        printf("%s%s", i == 0 ? "" : ", ", tolerances->items[i]);
    putchar(')');
    if (stats->tensors_within_dtype != 0)
        printf(", %" PRId64 " of them in another dtype", stats->tensors_within_dtype);
    putchar('\n');
}

/* ---- the table ------------------------------------------------------------------------------- */

/* "-" for what is not defined. */
static const char *number_text(double value, int digits, char buffer[NUMBER_TEXT])
{
    if (isnan(value))
        return "-";
    (void)snprintf(buffer, NUMBER_TEXT, "%.*g", digits, value);
    return buffer;
}

/* The line below a tensor that has NaNs or infinities. */
static void add_odd_values(cli_table *table, const reshard_difference *found)
{
    if (found->nan_count[0] + found->nan_count[1] + found->infinite_count[0] +
            found->infinite_count[1] ==
        0)
        return;
    cli_table_add_line(table, CLI_DIM,
                       "  NaN: %" PRId64 " in A, %" PRId64 " in B; infinite: %" PRId64
                       " in A, %" PRId64 " in B; %" PRId64 " not equal",
                       found->nan_count[0], found->nan_count[1], found->infinite_count[0],
                       found->infinite_count[1], found->unlike_count);
}

static void add_measured(cli_table *table, const reshard_difference *found)
{
    char text[NUMBER_TEXT];
    cli_table_add(table, CLI_PLAIN, "%" PRId64 " of %" PRId64, found->numbers_differing,
                  found->number_count);
    cli_table_add(table, CLI_PLAIN, "%s", number_text(found->largest, 4, text));
    cli_table_add(table, CLI_PLAIN, "%s", number_text(found->mean, 4, text));
    cli_table_add(table, CLI_PLAIN, "%s", number_text(found->relative_l2, 4, text));
    cli_table_add(table, CLI_PLAIN, "%s", number_text(found->cosine, 8, text));
}

static reshard_status add_row(cli_table *table, const reshard_difference *found,
                              const reshard_checkpoint *b)
{
    static const char *const kinds[] = {"", "only in A", "only in B", "dtype", "shape", "bytes"};
    char name[CLI_NAME_TEXT];
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    reshard_status status = RESHARD_OK;
    cli_table_add(table, CLI_PLAIN, "%s", cli_name_text(found->name, found->name_bytes, name));
    if (found->kind == RESHARD_DIFFERENCE_DTYPE) {
        status = reshard_checkpoint_tensor(b, found->b, &tensor);
        cli_table_add(table, CLI_PLAIN, "%s, %s%s", reshard_dtype_name(found->dtype),
                      reshard_dtype_name(tensor.dtype), found->is_within ? ", within" : "");
    } else {
        cli_table_add(table, CLI_PLAIN, "%s%s", kinds[found->kind],
                      found->is_within ? ", within" : "");
    }
    if (found->measured)
        add_measured(table, found);
    for (int i = 2; !found->measured && i < COLUMNS; i++)
        cli_table_add(table, CLI_PLAIN, "%s",
                      i == 2 && found->b >= 0 && found->a >= 0 ? "not measured" : "");
    if (found->measured)
        add_odd_values(table, found);
    return status;
}

reshard_status cli_verify_print_stats(const reshard_comparison *comparison,
                                      const reshard_checkpoint *b, int64_t count, int64_t rows_max)
{
    static const char *const titles[COLUMNS] = {"tensor", "differs", "numbers", "max",
                                                "mean",   "rel L2",  "cosine"};
    reshard_status status = RESHARD_OK;
    cli_table *table = cli_table_create(COLUMNS);
    for (int i = 0; i < COLUMNS; i++)
        cli_table_add(table, CLI_BOLD, "%s", titles[i]);
    cli_table_align(table, 0, CLI_LEFT);
    cli_table_align(table, 1, CLI_LEFT);
    for (int64_t i = 0; status == RESHARD_OK && i < count && i < rows_max; i++) {
        reshard_difference found = {.size = sizeof found};
        status = reshard_comparison_get_difference(comparison, i, &found);
        if (status == RESHARD_OK)
            status = add_row(table, &found, b);
    }
    if (rows_max < count)
        cli_table_add_line(table, CLI_DIM, "  ... %" PRId64 " more; --all prints them",
                           count - rows_max);
    if (status == RESHARD_OK)
        cli_table_print(table);
    cli_table_destroy(table);
    return status;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_one(cli_json *json, const reshard_difference *found)
{
    cli_json_begin_object(json, NULL);
    cli_json_text_part(json, "tensor", found->name, found->name_bytes);
    cli_json_bool(json, "within", found->is_within);
    cli_json_integer(json, "numbers", found->number_count);
    cli_json_integer(json, "differing", found->numbers_differing);
    cli_json_number(json, "max_abs", found->largest);
    cli_json_number(json, "mean_abs", found->mean);
    cli_json_number(json, "relative_l2", found->relative_l2);
    cli_json_number(json, "cosine", found->cosine);
    cli_json_integers(json, "nan", 2, found->nan_count);
    cli_json_integers(json, "infinite", 2, found->infinite_count);
    cli_json_integer(json, "unlike", found->unlike_count);
    cli_json_end_object(json);
}

reshard_status cli_verify_write_stats(cli_json *json, const reshard_comparison *comparison,
                                      int64_t count)
{
    reshard_status status = RESHARD_OK;
    for (int pass = 0; status == RESHARD_OK && pass < 2; pass++) {
        cli_json_begin_list(json, pass == 0 ? "within" : "stats");
        for (int64_t i = 0; status == RESHARD_OK && i < count; i++) {
            reshard_difference found = {.size = sizeof found};
            status = reshard_comparison_get_difference(comparison, i, &found);
            if (status == RESHARD_OK && pass == 0 && found.is_within)
                cli_json_text_part(json, NULL, found.name, found.name_bytes);
            else if (status == RESHARD_OK && pass == 1 && found.measured)
                write_one(json, &found);
        }
        cli_json_end_list(json);
    }
    return status;
}
