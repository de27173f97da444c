/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_report.h - the results of `reshard plan`, and how they are printed, as text or JSON.
 * Everything is computed before the first byte is printed, so that a failure leaves standard output
 * empty.
 */
#ifndef CLI_PLAN_PLAN_REPORT_H
#define CLI_PLAN_PLAN_REPORT_H

#include <reshard/plan.h>
#include <reshard/plan_inspect.h>
#include <reshard/predict.h>
#include <reshard/reshard.h>

#include "cli/common/input.h"
#include "cli/common/json.h"

enum { CLI_MATRIX_RANKS_MAX = 256, CLI_PARTS_MAX = 64 };

/* One rank's part. */
typedef struct cli_plan_part {
    int32_t rank;
    reshard_part_stats stats;
    char *text; /* its moves; NULL if not asked for */
} cli_plan_part;

typedef struct cli_plan_report {
    cli_shape shape;
    reshard_dtype dtype;
    reshard_layout *source, *target; /* as the user wrote them */
    reshard_plan *plan;
    int has_stats;  /* the next three fields are set; not if one rank was asked for */
    char note[256]; /* why has_stats is 0 although all ranks were asked for; or "" */
    reshard_plan_stats stats;
    uint64_t *matrix;                  /* NULL beyond CLI_MATRIX_RANKS_MAX ranks */
    uint64_t bytes_moved_unrelabelled; /* if relabel is set */
    int relabel, checked;
    reshard_prediction *prediction; /* NULL without --cluster */
    cli_plan_part *parts;
    int32_t part_count;
} cli_plan_report;

/* Prints a table of bytes, with a row for each source. is_square: the diagonal stays where it
 * is. */
void cli_matrix_print(int32_t rows, int32_t columns, const uint64_t *matrix, int is_square);
/* Prints the first lines: from, to, shape. Returns CLI_DONE, or another code after a message. */
int cli_plan_report_print_header(const cli_plan_report *report);
/* Prints one line about the bytes, and the relabelling. */
void cli_plan_report_print_summary(const cli_plan_report *report);
/* These return CLI_DONE, or another code after a message. */
int cli_plan_report_print(const cli_plan_report *report);
int cli_plan_report_print_json(const cli_plan_report *report);
/* Writes the fields of the JSON form, except parts and matrix, into the open object. */
int cli_plan_report_write_fields(const cli_plan_report *report, cli_json *json);

/*
 * plan_prediction.c - what `reshard plan --cluster` adds: how long each stage would take, and its
 * bottleneck.
 */

/* Prints the first line of a prediction. */
void cli_prediction_print_seconds(double seconds);
void cli_prediction_print(const reshard_prediction *prediction, const reshard_plan *plan);
void cli_prediction_write_json(cli_json *json, const reshard_prediction *prediction,
                               const reshard_plan *plan);
/* Records the prediction in the trace and writes its file. Returns CLI_DONE, or another code after
 * a message. */
int cli_prediction_trace(const reshard_prediction *prediction, reshard_plan *plan,
                         const reshard_cluster *cluster, reshard_trace *trace);

#endif
