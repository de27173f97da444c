/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_plan_checkpoint.c - `reshard plan CKPT`: shows what a conversion of a checkpoint would
 * read and write, file by file.
 */
#include "cli/checkpoint/converting.h"
#include "cli/commands/commands.h"
#include "cli/common/failure.h"
#include "cli/common/memory.h"
#include "cli/common/sizes.h"
#include "cli/common/style.h"
#include "cli/common/table.h"
#include "cli/common/work.h"
#include "cli/plan/plan_page.h"
#include "cli/plan/plan_report.h"
#include "cli/plan/plan_tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_SHOWN_MAX = 16 };

/* The bytes that go from file to file, with a row for each file that is read. The caller frees it.
 * NULL if either side has more than CLI_MATRIX_RANKS_MAX files. */
static uint64_t *read_matrix(const cli_conversion *made)
{
    int32_t rows = made->stats.source_file_count, columns = made->stats.target_file_count;
    if (rows > CLI_MATRIX_RANKS_MAX || columns > CLI_MATRIX_RANKS_MAX || rows == 0 || columns == 0)
        return NULL;
    uint64_t *matrix = cli_allocate((size_t)rows * (size_t)columns, sizeof *matrix);
    reshard_conversion_get_matrix(made->conversion, matrix);
    return matrix;
}

/* What is printed in addition to the conversion itself. */
typedef struct extras {
    int tensors;
    int is_predicted;
    double seconds; /* predicted */
} extras;

static reshard_status print_json(const cli_conversion *made, const uint64_t *matrix,
                                 const extras *also)
{
    reshard_status status = RESHARD_OK;
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_conversion_plan_write(made, &json);
    if (matrix != NULL) {
        cli_json_begin_list(&json, "matrix");
        for (int32_t s = 0; s < made->stats.source_file_count; s++) {
            cli_json_begin_list(&json, NULL);
            for (int32_t t = 0; t < made->stats.target_file_count; t++)
                cli_json_unsigned(&json, NULL, matrix[s * made->stats.target_file_count + t]);
            cli_json_end_list(&json);
        }
        cli_json_end_list(&json);
    }
    if (also->is_predicted) {
        cli_json_begin_object(&json, "prediction");
        cli_json_seconds(&json, "seconds", also->seconds);
        cli_json_end_object(&json);
    }
    if (also->tensors)
        status = cli_plan_tensors_write(made, &json);
    cli_json_end_object(&json);
    putchar('\n');
    return status;
}

static void print_matrix(const cli_conversion *made, const uint64_t *matrix)
{
    if (matrix == NULL || made->stats.source_file_count > FILES_SHOWN_MAX ||
        made->stats.target_file_count > FILES_SHOWN_MAX) {
        printf("\nThe file-to-file matrix is printed for up to %d files, with --json for up to "
               "%d.\n",
               FILES_SHOWN_MAX, CLI_MATRIX_RANKS_MAX);
        return;
    }
    printf("\n%sfile to file%s (rows are read, columns are written)\n", cli_style_begin(CLI_BOLD),
           cli_style_end(CLI_BOLD));
    cli_matrix_print(made->stats.source_file_count, made->stats.target_file_count, matrix, 0);
}

static reshard_status print_text(const cli_conversion *made, const uint64_t *matrix,
                                 const extras *also)
{
    const reshard_conversion_stats *stats = &made->stats;
    cli_conversion_print(made, NULL);
    printf("%" PRId64 " move%s from %" PRId32 " file%s to %" PRId32 "\n", stats->move_count,
           stats->move_count == 1 ? "" : "s", stats->source_file_count,
           stats->source_file_count == 1 ? "" : "s", stats->target_file_count);
    print_matrix(made, matrix);
    if (also->is_predicted)
        cli_prediction_print_seconds(also->seconds);
    return also->tensors ? cli_plan_tensors_print(made) : RESHARD_OK;
}

static int write_page(const cli_conversion *made, const char *path, int argc, char **argv)
{
    cli_page page;
    int code = cli_page_begin(&page, path, "plan", argc, argv);
    reshard_status status =
        code == CLI_DONE ? cli_conversion_page_write(made, -1, &page) : RESHARD_OK;
    if (status != RESHARD_OK)
        code = cli_fail_library(status, CLI_FAILED, NULL);
    return cli_page_end(&page, code);
}

static int run(const cli_command *command, int argc, char **argv)
{
    cli_checkpoint_values values = {.opening = {.plan_only = 1, .unreadable = 1}};
    cli_work work = {0};
    cli_conversion made = {0};
    reshard_cluster cluster = {.size = sizeof cluster};
    reshard_status status = RESHARD_OK;
    int code = cli_checkpoint_parse(command, argc, argv, &values);
    extras also = {.tensors = values.tensors, .is_predicted = values.cluster != NULL};
    if (code == CLI_DONE && also.is_predicted &&
        (status = reshard_cluster_parse(values.cluster, &cluster)) != RESHARD_OK)
        code = cli_fail_status(status);
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code != CLI_DONE)
        return code;
    status = cli_conversion_plan(work.context, &values, &made);
    if (status == RESHARD_OK && also.is_predicted)
        status = reshard_conversion_predict(made.conversion, &cluster, &also.seconds);
    cli_work_settle(&work);
    if (status != RESHARD_OK)
        code = cli_fail_library(status, CLI_FAILED, NULL);
    else if (values.html != NULL)
        code = write_page(&made, values.html, argc, argv);
    if (code == CLI_DONE) {
        cli_conversion_warn(&made);
        uint64_t *matrix = read_matrix(&made);
        status = values.json ? print_json(&made, matrix, &also) : print_text(&made, matrix, &also);
        free(matrix);
        if (status != RESHARD_OK)
            code = cli_fail_library(status, CLI_FAILED, NULL);
    }
    cli_conversion_release(&made);
    cli_work_end(&work);
    return code;
}

const cli_command cli_command_plan_checkpoint = {
    .name = "plan",
    .operand = "CKPT",
    .options = cli_checkpoint_options,
    .option_count = CLI_CHECKPOINT_OPTION_COUNT,
    .takes = CLI_PLAN,
    .run = run,
};
