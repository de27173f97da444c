/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_checkpoint.c - `reshard plan CKPT`: what a conversion of a whole checkpoint would read,
 * write and move, file by file, without a place to write it to.
 */
#include "cli/commands.h"
#include "cli/common/failure.h"
#include "cli/common/memory.h"
#include "cli/common/sizes.h"
#include "cli/common/style.h"
#include "cli/common/table.h"
#include "cli/common/work.h"
#include "cli/converting.h"
#include "cli/plan_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { FILES_SHOWN_MAX = 16 };

/* What goes from file to file. */
typedef struct flows {
    int32_t rows, columns;
    uint64_t *bytes; /* NULL beyond CLI_MATRIX_RANKS_MAX files on a side */
    int64_t moves;
} flows;

static void size_flows(void *user, int32_t source_files, int32_t target_files)
{
    flows *found = user;
    *found = (flows){.rows = source_files, .columns = target_files};
    if (source_files <= CLI_MATRIX_RANKS_MAX && target_files <= CLI_MATRIX_RANKS_MAX &&
        source_files > 0 && target_files > 0) {
        size_t count = (size_t)source_files * (size_t)target_files;
        found->bytes = cli_allocate(count, sizeof *found->bytes);
        for (size_t i = 0; i < count; i++)
            found->bytes[i] = 0;
    }
}

static void add_flow(void *user, int32_t source_file, int32_t target_file, uint64_t bytes)
{
    flows *found = user;
    found->moves++;
    if (found->bytes != NULL)
        found->bytes[(size_t)source_file * (size_t)found->columns + (size_t)target_file] += bytes;
}

static void print_json(const reshard_convert_report *report, const flows *found)
{
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_json_unsigned(&json, "bytes_total", report->bytes_written);
    cli_json_unsigned(&json, "bytes_moved", report->bytes_written);
    cli_json_unsigned(&json, "bytes_kept", 0);
    cli_json_integer(&json, "moves", found->moves);
    cli_json_integer(&json, "stages", 1);
    cli_json_unsigned(&json, "staging_bytes_peak", report->memory_bytes);
    cli_converting_write(report, &json);
    if (found->bytes != NULL) {
        cli_json_begin_list(&json, "matrix");
        for (int32_t s = 0; s < found->rows; s++) {
            cli_json_begin_list(&json, NULL);
            for (int32_t t = 0; t < found->columns; t++)
                cli_json_unsigned(&json, NULL, found->bytes[s * found->columns + t]);
            cli_json_end_list(&json);
        }
        cli_json_end_list(&json);
    }
    cli_json_end_object(&json);
    putchar('\n');
}

static void print_matrix(const flows *found)
{
    char size[CLI_SIZE_TEXT];
    if (found->bytes == NULL || found->rows > FILES_SHOWN_MAX || found->columns > FILES_SHOWN_MAX) {
        printf("\nThe matrix file to file is printed for up to %d files, with --json for up to "
               "%d.\n",
               FILES_SHOWN_MAX, CLI_MATRIX_RANKS_MAX);
        return;
    }
    printf("\n%sfile to file%s (rows are read, columns are written)\n", cli_style_begin(CLI_BOLD),
           cli_style_end(CLI_BOLD));
    cli_table *table = cli_table_create(found->columns + 1);
    cli_table_add(table, CLI_PLAIN, "%s", "");
    for (int32_t t = 0; t < found->columns; t++)
        cli_table_add(table, CLI_BOLD, "%" PRId32, t);
    for (int32_t s = 0; s < found->rows; s++) {
        cli_table_add(table, CLI_BOLD, "%" PRId32, s);
        for (int32_t t = 0; t < found->columns; t++) {
            uint64_t bytes = found->bytes[s * found->columns + t];
            cli_table_add(table, bytes == 0 ? CLI_DIM : CLI_PLAIN, "%s",
                          bytes == 0 ? "-" : cli_size_text(bytes, size));
        }
    }
    cli_table_print(table);
    cli_table_destroy(table);
}

static int run(const cli_command *command, int argc, char **argv)
{
    cli_converting values = {0};
    const char *path = NULL;
    flows found = {0};
    cli_work work = {0};
    reshard_convert_options options;
    reshard_convert_report report;
    int code = cli_options_parse(command, argc, argv, &values, &path);
    if (code == CLI_DONE)
        code = cli_converting_check(&values);
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code != CLI_DONE)
        return code;
    cli_converting_raise_limits();
    cli_converting_fill(&values, &options);
    options.dry_run = 1;
    options.flow_sizes = size_flows;
    options.flow = add_flow;
    options.flow_user = &found;
    reshard_status status = reshard_convert(work.context, path, NULL, &options, &report);
    cli_work_settle(&work);
    if (status != RESHARD_OK) {
        code = cli_fail(CLI_FAILED, "%s", reshard_error_text());
    } else if (values.json) {
        print_json(&report, &found);
    } else {
        cli_converting_print(&report, NULL);
        printf("%" PRId64 " move%s between %" PRId32 " and %" PRId32 " files\n", found.moves,
               found.moves == 1 ? "" : "s", found.rows, found.columns);
        print_matrix(&found);
    }
    free(found.bytes);
    cli_work_end(&work);
    return code;
}

int cli_plan_checkpoint(int argc, char **argv)
{
    static const cli_command command = {.name = "plan",
                                        .operand = "CKPT",
                                        .options = cli_converting_options,
                                        .option_count = CLI_PLANNING_OPTIONS,
                                        .run = run};
    return run(&command, argc, argv);
}
