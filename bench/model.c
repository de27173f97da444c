/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - `reshard bench model`: makes a checkpoint to experiment with.
 */
#include "bench/commands.h"
#include "bench/common/folders.h"
#include "bench/common/sample_model.h"
#include "cli/common/failure.h"
#include "cli/common/json.h"
#include "cli/common/sizes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTES_DEFAULT ((size_t)300 << 20)
#define BYTES_MAX ((size_t)1 << 40)

typedef struct model_values {
    size_t bytes;
    int dtype;
    const char *to, *rules;
    int json;
} model_values;

static const cli_option options[] = {
    {"bytes", CLI_SIZE, offsetof(model_values, bytes), "SIZE", 0, "approximate size (300M)"},
    {"dtype", CLI_CHOICE, offsetof(model_values, dtype), "bf16|f32", 0, "element type (bf16)"},
    {"to", CLI_TEXT, offsetof(model_values, to), "MESH", 0, "split it over a mesh, like fsdp=8"},
    {"rules", CLI_TEXT, offsetof(model_values, rules), "R", 0,
     "rules to split by, if not those of its family"},
    {"json", CLI_FLAG, offsetof(model_values, json), NULL, 0, "one JSON object on one line"},
};

/* Writes whole tensors into a folder beside this one, and converts them as the user asked. */
static int write_split(cli_work *work, const char *folder, const bench_sample_model *model,
                       const model_values *values)
{
    const reshard_conversion_options planning = {
        .size = sizeof planning, .to = values->to, .rules = values->rules};
    const reshard_conversion_run_options running = {.size = sizeof running, .no_sync = 1};
    char *whole = bench_path_add(folder, ".whole");
    int code = bench_sample_write(work, whole, model);
    if (code == CLI_DONE) {
        reshard_status status =
            reshard_convert(work->context, whole, folder, NULL, &planning, &running, NULL);
        if (status != RESHARD_OK)
            code = cli_fail_status(status);
        int removed = bench_folder_remove(whole);
        code = code == CLI_DONE ? removed : code;
    }
    free(whole);
    return code;
}

static void print_result(const char *folder, const bench_sample_model *model, int as_json)
{
    char size[CLI_SIZE_TEXT];
    uint64_t bytes = bench_sample_bytes(model);
    int64_t count = bench_sample_tensor_count(model);
    if (!as_json) {
        printf("%s: a Llama of %" PRId64 " layers, %" PRId64 " tensors, %s\n", folder,
               model->layers, count, cli_size_text(bytes, size));
        return;
    }
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_json_integer(&json, "tensors", count);
    cli_json_unsigned(&json, "bytes", bytes);
    cli_json_integer(&json, "layers", model->layers);
    cli_json_integer(&json, "hidden", model->hidden);
    cli_json_end_object(&json);
    putchar('\n');
}

static int run(const cli_command *command, int argc, char **argv)
{
    model_values values = {.bytes = BYTES_DEFAULT};
    const char *folder = NULL;
    bench_sample_model model;
    cli_work work = {0};
    int code = cli_options_parse(command, argc, argv, &values, &folder);
    if (code == CLI_DONE && values.bytes > BYTES_MAX)
        code = cli_fail(CLI_USAGE, "bench model: --bytes goes up to 1T");
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code != CLI_DONE)
        return code;
    bench_sample_choose(values.bytes, values.dtype == 0 ? RESHARD_BF16 : RESHARD_F32, 0, &model);
    code = values.to != NULL ? write_split(&work, folder, &model, &values)
                             : bench_sample_write(&work, folder, &model);
    cli_work_settle(&work);
    if (code == CLI_DONE)
        print_result(folder, &model, values.json);
    cli_work_end(&work);
    return code;
}

const cli_command bench_command_model = {
    .name = "bench model",
    .summary = "makes a checkpoint to experiment with",
    .synopsis = "DIR [--bytes SIZE] [--dtype D] [--to MESH [--rules R]]\n      [--json]",
    .description =
        "Makes the folder DIR with a checkpoint of about SIZE bytes. Names, shapes and\n"
        "config.json are those of a Llama with grouped key-value heads; values are made up, but\n"
        "the same every time. With --to, it is split as reshard convert would.\n",
    .operand = "DIR",
    CLI_OPTIONS(options),
    .examples = "  reshard bench model whole --bytes 2G\n"
                "  reshard bench model shards --to fsdp=8\n",
    .run = run,
};
