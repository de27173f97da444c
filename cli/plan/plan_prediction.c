/* SPDX-License-Identifier: Apache-2.0 */
/* plan_prediction.c - prints a prediction, as text and as JSON. */
#include "cli/plan/plan_report.h"

#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/sizes.h"
#include "cli/common/style.h"
#include "cli/common/table.h"

#include <assert.h>
#include <inttypes.h>

enum { TIME_TEXT = 32 };

static const char *time_text(double seconds, char buffer[TIME_TEXT])
{
    if (seconds < 1e-3)
        snprintf(buffer, TIME_TEXT, "%.3g us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(buffer, TIME_TEXT, "%.3g ms", seconds * 1e3);
    else
        snprintf(buffer, TIME_TEXT, "%.4g s", seconds);
    return buffer;
}

static reshard_stage_prediction read_stage(const reshard_prediction *prediction, int32_t stage)
{
    reshard_stage_prediction found = {.size = sizeof found};
    reshard_status status = reshard_prediction_stage(prediction, stage, &found);
    assert(status == RESHARD_OK); /* only a stage that the plan does not have could fail */
    (void)status;
    return found;
}

static void print_reason(cli_table *table, const reshard_stage_prediction *stage)
{
    char size[CLI_SIZE_TEXT];
    if (stage->bottleneck == RESHARD_BOTTLENECK_NONE)
        cli_table_add(table, CLI_DIM, "%s", stage->peers == 0 ? "nothing moves" : "no limit given");
    else
        cli_table_add(table, CLI_DIM, "%s of %s %" PRId32 ": %s",
                      reshard_bottleneck_name(stage->bottleneck),
                      stage->bottleneck == RESHARD_BOTTLENECK_MEMORY ? "node" : "rank",
                      stage->which, cli_size_text(stage->bytes, size));
}

void cli_prediction_print_seconds(double seconds)
{
    char text[TIME_TEXT];
    printf("\n%spredicted%s %s\n", cli_style_begin(CLI_BOLD), cli_style_end(CLI_BOLD),
           time_text(seconds, text));
}

void cli_prediction_print(const reshard_prediction *prediction, const reshard_plan *plan)
{
    char text[TIME_TEXT];
    cli_prediction_print_seconds(reshard_prediction_seconds(prediction));
    cli_table *table = cli_table_create(4);
    cli_table_align(table, 0, CLI_LEFT);
    cli_table_align(table, 3, CLI_LEFT);
    for (int32_t i = 0; i < cli_plan_info(plan).stage_count; i++) {
        reshard_stage_prediction stage = read_stage(prediction, i);
        char latency[TIME_TEXT];
        cli_table_add(table, CLI_PLAIN, "stage %" PRId32, i);
        cli_table_add(table, CLI_PLAIN, "%s", time_text(stage.seconds, text));
        cli_table_add(table, CLI_DIM, "latency %s", time_text(stage.latency_seconds, latency));
        print_reason(table, &stage);
    }
    cli_table_print(table);
    cli_table_destroy(table);
}

void cli_prediction_write_json(cli_json *json, const reshard_prediction *prediction,
                               const reshard_plan *plan)
{
    cli_json_begin_object(json, "prediction");
    cli_json_seconds(json, "seconds", reshard_prediction_seconds(prediction));
    cli_json_begin_list(json, "stages");
    for (int32_t i = 0; i < cli_plan_info(plan).stage_count; i++) {
        reshard_stage_prediction stage = read_stage(prediction, i);
        cli_json_begin_object(json, NULL);
        cli_json_seconds(json, "seconds", stage.seconds);
        cli_json_seconds(json, "latency_seconds", stage.latency_seconds);
        cli_json_text(json, "bottleneck", reshard_bottleneck_name(stage.bottleneck));
        cli_json_integer(json, "which", stage.which);
        cli_json_unsigned(json, "bytes", stage.bytes);
        cli_json_integer(json, "peers", stage.peers);
        cli_json_unsigned(json, "bytes_between_nodes", stage.bytes_between_nodes);
        cli_json_unsigned(json, "bytes_within_nodes", stage.bytes_within_nodes);
        cli_json_unsigned(json, "bytes_kept", stage.bytes_kept);
        cli_json_unsigned(json, "bytes_scattered", stage.bytes_scattered);
        cli_json_unsigned(json, "bytes_packed", stage.bytes_packed);
        cli_json_end_object(json);
    }
    cli_json_end_list(json);
    cli_json_end_object(json);
}

int cli_prediction_trace(const reshard_prediction *prediction, reshard_plan *plan,
                         const reshard_cluster *cluster, reshard_trace *trace)
{
    int32_t ranks = 0, all = cli_plan_info(plan).rank_count;
    reshard_status status = reshard_prediction_trace(prediction, plan, cluster, trace, &ranks);
    if (status == RESHARD_OK)
        status = reshard_trace_write(trace);
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    if (ranks < all)
        (void)cli_fail(CLI_DONE,
                       "--trace: only the first %" PRId32 " of %" PRId32 " ranks are in the file",
                       ranks, all);
    return CLI_DONE;
}
