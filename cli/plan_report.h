/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_report.h - what `reshard plan` found out, and its two ways to be printed. Everything is
 * worked out before the first byte is printed, so that a failure leaves standard output empty.
 */
#ifndef CLI_PLAN_REPORT_H
#define CLI_PLAN_REPORT_H

#include "cli/common/input.h"
#include "cli/common/json.h"
#include "cli/plan_prediction.h"

#include <reshard/plan_inspect.h>
#include <reshard/reshard.h>

enum { CLI_MATRIX_RANKS_MAX = 256, CLI_PARTS_MAX = 64 };

/* One rank's part. */
typedef struct cli_plan_part {
    int32_t rank;
    reshard_part_stats stats;
    char *text; /* of its moves; NULL when they were not asked for */
} cli_plan_part;

typedef struct cli_plan_report {
    cli_shape shape;
    reshard_dtype dtype;
    reshard_layout *source, *target; /* as the user gave them */
    reshard_plan *plan;
    int has_stats;  /* the next three are there: not when one rank was asked for */
    char note[256]; /* why they are not there although all ranks were asked for, or empty */
    reshard_plan_stats stats;
    uint64_t *matrix;                  /* NULL beyond CLI_MATRIX_RANKS_MAX ranks */
    uint64_t bytes_moved_unrelabelled; /* with relabel */
    int relabel, checked;
    reshard_prediction *prediction; /* NULL when there was no cluster to predict for */
    cli_plan_part *parts;
    int32_t part_count;
} cli_plan_report;

/* The first lines: from, to, shape. Returns CLI_DONE, or another code after a message. */
int cli_plan_report_print_header(const cli_plan_report *report);
/* One line about the bytes, and who plays which rank. */
void cli_plan_report_print_summary(const cli_plan_report *report);
/* All return CLI_DONE, or another code after a message. */
int cli_plan_report_print(const cli_plan_report *report);
int cli_plan_report_print_json(const cli_plan_report *report);
/* The fields of the latter but for parts and matrix, into an object that is open. */
int cli_plan_report_write_fields(const cli_plan_report *report, cli_json *json);

#endif
