/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_plan.c - `reshard plan`: shows what has to move to get a tensor from one layout to
 * another.
 *
 * Figures about the whole plan need the parts of all ranks. With --rank only that rank's part is
 * computed; its cost depends on what the rank touches, not on the number of ranks. If all ranks are
 * too much, the part of rank 0 is shown instead, with a note.
 */
#include "cli/checkpoint/converting.h"
#include "cli/commands/commands.h"
#include "cli/common/drawing.h"
#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/memory.h"
#include "cli/common/work.h"
#include "cli/plan/plan_page.h"
#include "cli/plan/plan_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct plan_values {
    const char *shape, *dtype, *from, *to, *cluster, *trace, *html;
    int relabel, balance, single_stage, check, moves, json;
    size_t max_memory;
    int32_t rank;
    cli_drawing drawing;
} plan_values;

static const cli_option options[] = {
    {"shape", CLI_TEXT, offsetof(plan_values, shape), "SHAPE", 1,
     "the tensor's shape: 8192x8192, 5, scalar"},
    {"dtype", CLI_TEXT, offsetof(plan_values, dtype), "DTYPE", 1,
     "its element type: f32, bf16, i64, .."},
    {"from", CLI_TEXT, offsetof(plan_values, from), "SPEC", 1, "how it is split now"},
    {"to", CLI_TEXT, offsetof(plan_values, to), "SPEC", 1, "how it is to be split"},
    {"relabel", CLI_FLAG, offsetof(plan_values, relabel), NULL, 0,
     "let target ranks swap parts, so that the fewest bytes move"},
    {"balance", CLI_CHOICE, offsetof(plan_values, balance), "rule|exact", 0,
     "who sends what several ranks hold: by rule, or by network flow"},
    {"max-memory", CLI_SIZE, offsetof(plan_values, max_memory), "SIZE", 0,
     "memory for messages on one rank (default 64M)"},
    {"single-stage", CLI_FLAG, offsetof(plan_values, single_stage), NULL, 0,
     "never pass through an intermediate layout"},
    {"check", CLI_FLAG, offsetof(plan_values, check), NULL, 0,
     "prove that every target element arrives exactly once"},
    {"moves", CLI_FLAG, offsetof(plan_values, moves), NULL, 0,
     "list each rank's moves (up to 64 ranks)"},
    {"rank", CLI_RANK, offsetof(plan_values, rank), "R", 0, "only this rank's part"},
    {"cluster", CLI_TEXT, offsetof(plan_values, cluster), "C", 0,
     "predict the time on nodes=128,nic=50GB/s,latency=5us"},
    {"trace", CLI_TEXT, offsetof(plan_values, trace), "FILE", 0,
     "write the prediction for chrome://tracing or Perfetto"},
    {"json", CLI_FLAG, offsetof(plan_values, json), NULL, 0, "one JSON object on one line"},
    {"html", CLI_TEXT, offsetof(plan_values, html), "FILE", 0, "the plan as a page for browsers"},
    CLI_DRAW_OPTION(plan_values),
    CLI_DRAWING_OPTIONS(plan_values),
};

static int create_plan(reshard_context *context, const plan_values *values, int relabel,
                       const cli_plan_report *report, reshard_plan **out_plan)
{
    reshard_plan_options plan_options = {
        .size = sizeof plan_options,
        .balance = values->balance == 0 ? RESHARD_BALANCE_RULE : RESHARD_BALANCE_EXACT,
        .relabel = relabel,
        .single_stage = values->single_stage,
        .staging_bytes_max = values->max_memory,
    };
    reshard_status status = reshard_plan_create_simple(context, report->source, report->target,
                                                       report->dtype, &plan_options, out_plan);
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}

static int gather_stats(reshard_context *context, const plan_values *values,
                        cli_plan_report *report)
{
    size_t n = (size_t)cli_plan_info(report->plan).rank_count;
    if (n <= CLI_MATRIX_RANKS_MAX)
        report->matrix = cli_allocate(n * n, sizeof *report->matrix);
    report->stats.size = sizeof report->stats;
    reshard_status status = reshard_plan_get_stats(report->plan, &report->stats, report->matrix);
    if (status == RESHARD_ERR_RANGE) { /* too much work for all ranks, but perhaps not for one */
        free(report->matrix);
        report->matrix = NULL;
        snprintf(report->note, sizeof report->note, "%s", reshard_error_text());
        return CLI_DONE;
    }
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    report->has_stats = 1;
    if (!values->relabel)
        return CLI_DONE;
    reshard_plan *plain = NULL;
    reshard_plan_stats plain_stats = {.size = sizeof plain_stats};
    int code = create_plan(context, values, 0, report, &plain);
    if (code == CLI_DONE) {
        status = reshard_plan_get_stats(plain, &plain_stats, NULL);
        code = status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
    }
    if (code == CLI_DONE)
        report->bytes_moved_unrelabelled = plain_stats.bytes_moved;
    reshard_plan_release(plain);
    return code;
}

static reshard_status gather_part(reshard_context *context, reshard_plan *plan, int32_t rank,
                                  int wants_text, cli_plan_part *out_part)
{
    reshard_part *part = NULL;
    size_t length = 0;
    reshard_status status = reshard_part_create(context, plan, rank, &part);
    if (status != RESHARD_OK)
        return status;
    out_part->rank = rank;
    out_part->stats.size = sizeof out_part->stats;
    status = reshard_part_get_stats(part, &out_part->stats);
    if (wants_text && status == RESHARD_OK)
        status = reshard_part_text(part, NULL, 0, &length);
    if (wants_text && status == RESHARD_OK) {
        out_part->text = cli_allocate(length + 1, 1);
        status = reshard_part_text(part, out_part->text, length + 1, &length);
    }
    reshard_part_destroy(part);
    return status;
}

static int gather_parts(reshard_context *context, const plan_values *values,
                        cli_plan_report *report)
{
    int32_t rank_count = cli_plan_info(report->plan).rank_count;
    int is_one = values->rank >= 0 || !report->has_stats;
    int32_t only = values->rank >= 0 ? values->rank : 0;
    reshard_status status = RESHARD_OK;
    if (!is_one && !values->moves)
        return CLI_DONE;
    int32_t part_count = is_one ? 1 : rank_count;
    report->parts = cli_allocate((size_t)part_count, sizeof *report->parts);
    for (int32_t i = 0; i < part_count && status == RESHARD_OK; i++) {
        report->part_count = i + 1;
        status =
            gather_part(context, report->plan, is_one ? only : i, values->moves, &report->parts[i]);
    }
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}

static int check_plan(reshard_plan *plan)
{
    reshard_status status = reshard_plan_check(plan);
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}

static int check_moves_fit(const plan_values *values, const reshard_plan *plan)
{
    int32_t rank_count = cli_plan_info(plan).rank_count;
    if (!values->moves || values->rank >= 0 || rank_count <= CLI_PARTS_MAX)
        return CLI_DONE;
    return cli_fail(
        CLI_USAGE,
        "plan: --moves lists up to %d ranks, and this plan has %d; choose one with --rank",
        CLI_PARTS_MAX, rank_count);
}

static int read_inputs(reshard_context *context, const plan_values *values, cli_plan_report *report)
{
    reshard_status status = reshard_dtype_parse(values->dtype, &report->dtype);
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    int code = cli_shape_read(values->shape, &report->shape);
    if (code == CLI_DONE)
        code = cli_layout_read(context, values->from, &report->shape, &report->source);
    if (code == CLI_DONE)
        code = cli_layout_read(context, values->to, &report->shape, &report->target);
    return code;
}

static int predict(const reshard_cluster *cluster, reshard_trace *trace, cli_plan_report *report)
{
    reshard_status status = reshard_plan_predict(report->plan, cluster, &report->prediction);
    if (status == RESHARD_OK && trace != NULL)
        return cli_prediction_trace(report->prediction, report->plan, cluster, trace);
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}

static int gather(reshard_context *context, const plan_values *values, cli_plan_report *report)
{
    reshard_cluster cluster = {.size = sizeof cluster};
    reshard_status status =
        values->cluster == NULL ? RESHARD_OK : reshard_cluster_parse(values->cluster, &cluster);
    reshard_trace *trace = NULL;
    if (status == RESHARD_OK && values->trace != NULL)
        status = reshard_trace_create(NULL, NULL, values->trace, NULL, &trace);
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    int code = read_inputs(context, values, report);
    if (code == CLI_DONE)
        code = create_plan(context, values, values->relabel, report, &report->plan);
    if (code == CLI_DONE)
        code = check_moves_fit(values, report->plan);
    if (code == CLI_DONE && values->check)
        code = check_plan(report->plan);
    if (code == CLI_DONE && values->rank < 0)
        code = gather_stats(context, values, report);
    if (code == CLI_DONE)
        code = gather_parts(context, values, report);
    if (code == CLI_DONE && values->cluster != NULL)
        code = predict(&cluster, trace, report);
    reshard_trace_destroy(trace);
    return code;
}

static int write_page(reshard_context *context, const plan_values *values,
                      const cli_plan_report *report, int argc, char **argv)
{
    cli_page page;
    if (!report->has_stats)
        return cli_fail(CLI_USAGE, "plan: --html shows all ranks: %s", report->note);
    int code = cli_page_begin(&page, values->html, "plan", argc, argv);
    if (code == CLI_DONE)
        code = cli_plan_page_write(context, report, &page);
    return cli_page_end(&page, code);
}

static void release_report(cli_plan_report *report)
{
    for (int32_t i = 0; i < report->part_count; i++)
        free(report->parts[i].text);
    free(report->parts);
    free(report->matrix);
    reshard_prediction_destroy(report->prediction);
    reshard_plan_release(report->plan);
    reshard_layout_release(report->source);
    reshard_layout_release(report->target);
}

/* Whether an argument is an option that takes no value. */
static int is_flag(const cli_command *command, const char *text)
{
    const cli_option *option = cli_command_find(command, text + 2, strlen(text + 2));
    return option != NULL && option->kind == CLI_FLAG;
}

/* Whether the arguments name a checkpoint, and have no --shape. */
static int names_checkpoint(const cli_command *command, int argc, char **argv)
{
    int named = 0;
    for (int i = 0; i < argc; i++) {
        const char *text = argv[i];
        if (strcmp(text, "--") == 0)
            return named || i + 1 < argc;
        if (strcmp(text, "--shape") == 0 || strncmp(text, "--shape=", 8) == 0)
            return 0;
        if (strncmp(text, "--", 2) != 0)
            named = 1;
        else if (strchr(text, '=') == NULL && !is_flag(command, text) &&
                 !is_flag(command->with_operand, text) && !is_flag(&cli_command_convert, text))
            i++; /* its value */
    }
    return named;
}

static int print(const plan_values *values, const cli_plan_report *report,
                 const cli_picture *picture)
{
    if (picture->text == NULL)
        return values->json ? cli_plan_report_print_json(report) : cli_plan_report_print(report);
    int code = cli_plan_report_print_header(report);
    if (code == CLI_DONE) {
        cli_picture_print(picture);
        cli_plan_report_print_summary(report);
    }
    return code;
}

static int run(const cli_command *command, int argc, char **argv)
{
    if (names_checkpoint(command, argc, argv))
        return command->with_operand->run(command->with_operand, argc, argv);
    plan_values values = {.rank = -1};
    cli_plan_report report = {0};
    cli_work work = {0};
    int code = cli_options_parse(command, argc, argv, &values, NULL);
    report.relabel = values.relabel;
    report.checked = values.check;
    if (code == CLI_DONE && values.html != NULL && values.rank >= 0)
        code = cli_fail(CLI_USAGE, "plan: --html shows all ranks; leave --rank out");
    if (code == CLI_DONE && values.trace != NULL && values.cluster == NULL)
        code = cli_fail(CLI_USAGE, "plan: --trace shows a prediction; add --cluster");
    cli_picture picture = {0};
    if (code == CLI_DONE && values.drawing.draw && (values.json || values.moves))
        code = cli_fail(CLI_USAGE, "plan: --draw prints a picture; leave out --%s",
                        values.json ? "json" : "moves");
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code == CLI_DONE)
        code = gather(work.context, &values, &report);
    if (code == CLI_DONE && values.html != NULL)
        code = write_page(work.context, &values, &report, argc, argv);
    picture.plan = report.plan;
    if (code == CLI_DONE)
        code = cli_picture_make(&picture, &values.drawing, command->name);
    cli_work_settle(&work);
    if (code == CLI_DONE)
        code = cli_picture_save(&picture, values.drawing.svg);
    if (code == CLI_DONE)
        code = print(&values, &report, &picture);
    cli_picture_release(&picture);
    release_report(&report);
    cli_work_end(&work);
    return code;
}

const cli_command cli_command_plan = {
    .name = "plan",
    .summary = "what has to move from one layout to another",
    .synopsis = "--shape SHAPE --dtype DTYPE --from SPEC --to SPEC [OPTIONS]\n"
                "  reshard plan CKPT [--to MESH [--rules R]] [OPTIONS of reshard convert]",
    .description =
        "Plans how a tensor gets from one layout to another, without any data. Prints the bytes\n"
        "that move and that stay, the stages, the busiest ranks, the memory for messages, and\n"
        "the bytes that each rank sends to each other rank. The two layouts may be over the same\n"
        "ranks, fewer, more or different ones. Beyond a million ranks, or if the parts of all\n"
        "ranks would take too long, only the part of rank 0 is shown. SPEC may be @FILE to read\n"
        "it from a file. Sizes take K, M, G (1024) and KB, MB, GB (1000).\n"
        "\n"
        "--cluster predicts how long that takes: the plan's own bytes over the speed of each\n"
        "rank's link to other nodes (nic) and within its node (intra), and of a node's memory\n"
        "(memory), plus the latency of a message to each peer. The busiest link counts. A link\n"
        "without a speed has no limit. docs/scale.md says what the model leaves out. --trace\n"
        "writes the messages of each rank as they would follow each other (docs/trace.md).\n"
        "\n"
        "--draw prints a picture instead: the two layouts side by side, shaded where ranks\n"
        "already hold what they need, dotted where some of them do, and a map of the bytes that\n"
        "go from rank to rank. --svg writes such a picture to a file.\n"
        "\n"
        "With a checkpoint, prints what reshard convert would read and write with the same\n"
        "options, and the bytes that go from each file to each other file.\n"
        "--tensors adds each tensor: its shape, its cut, its shape on one rank, and the rule and\n"
        "line that decided; with --as or --map also the tensors it is made of, and the line\n"
        "of the map.\n",
    CLI_OPTIONS(options),
    .with_operand = &cli_command_plan_checkpoint,
    .examples =
        "  reshard plan --shape 8192x8192 --dtype f32 --from '4: S(0)' --to '4: S(1)'\n"
        "  reshard plan --shape 64x64 --dtype f32 --from '4: S(0)' \\\n"
        "      --to '4[1,2,3,0]: S(0)' --relabel\n"
        "  reshard plan --shape 1024 --dtype bf16 --from '4: P(sum)' --to '4: R' --check\n"
        "  reshard plan --shape 64x64 --dtype f32 --from '4: S(0)' --to '2: S(1)' \\\n"
        "      --moves --rank 1\n"
        "  reshard plan --shape 8192x8192 --dtype f32 --from '16: S(0)' --to '16: S(1)' \\\n"
        "      --cluster nodes=2,nic=50GB/s,intra=400GB/s,latency=5us\n"
        "  reshard plan --shape 8192x8192 --dtype f32 --from '4: S(0)' \\\n"
        "      --to '2,2: S(0), S(1)' --draw\n"
        "  reshard plan model/ --to tp=4 --tensors\n",
    .run = run,
};
