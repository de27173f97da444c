/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_inspect.c - `reshard inspect`: shows what a checkpoint holds and how each tensor is
 * split.
 */
#include "cli/checkpoint/checkpoint_input.h"
#include "cli/checkpoint/checkpoint_options.h"
#include "cli/commands/commands.h"
#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/json.h"
#include "cli/common/work.h"
#include "cli/inspect/inspect_drawing.h"
#include "cli/inspect/inspect_rows.h"
#include "cli/inspect/inspect_table.h"
#include "cli/inspect/inspect_values.h"

#include <reshard/checkpoint.h>
#include <reshard/model_rules.h>

#include <stdio.h>

/* ---- as JSON --------------------------------------------------------------------------------- */

static reshard_status write_shards(cli_json *json, const reshard_checkpoint *checkpoint,
                                   int64_t index, const reshard_stored_tensor *tensor)
{
    for (int64_t i = 0; i < tensor->piece_count + tensor->copy_count; i++) {
        reshard_stored_piece piece = {.size = sizeof piece};
        reshard_status status = reshard_checkpoint_piece(checkpoint, index, i, &piece);
        if (status != RESHARD_OK)
            return status;
        cli_json_begin_object(json, NULL);
        cli_json_text(json, "file", reshard_checkpoint_file_name(checkpoint, piece.file));
        if (tensor->opaque) { /* its box counts bytes, but the user knows its shape */
            cli_json_begin_list(json, "offset");
            for (int32_t d = 0; d < tensor->ndim; d++)
                cli_json_integer(json, NULL, 0);
            cli_json_end_list(json);
            cli_json_integers(json, "size", tensor->ndim, tensor->shape);
        } else {
            cli_json_integers(json, "offset", piece.box.ndim, piece.box.offset);
            cli_json_integers(json, "size", piece.box.ndim, piece.box.size);
        }
        if (i >= tensor->piece_count)
            cli_json_true(json, "copy");
        cli_json_end_object(json);
    }
    return RESHARD_OK;
}

static reshard_status write_tensor(cli_json *json, const reshard_checkpoint *checkpoint,
                                   int64_t index)
{
    char dtype[CLI_DTYPE_TEXT];
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    reshard_status status = reshard_checkpoint_tensor(checkpoint, index, &tensor);
    if (status != RESHARD_OK)
        return status;
    cli_json_begin_object(json, NULL);
    cli_json_text_part(json, "name", tensor.name, tensor.name_bytes);
    cli_json_text(json, "dtype", cli_dtype_text(tensor.dtype, dtype));
    if (tensor.stored_as != NULL)
        cli_json_text(json, "stored_as", tensor.stored_as);
    cli_json_integers(json, "shape", tensor.ndim, tensor.shape);
    if (tensor.whole_shape != NULL)
        cli_json_integers(json, "whole_shape", tensor.whole_ndim, tensor.whole_shape);
    if (tensor.whole_offset != NULL)
        cli_json_integers(json, "whole_offset", tensor.whole_ndim, tensor.whole_offset);
    if (tensor.whole_spec != NULL)
        cli_json_text(json, "whole_spec", tensor.whole_spec);
    cli_json_begin_list(json, "shards");
    status = write_shards(json, checkpoint, index, &tensor);
    cli_json_end_list(json);
    cli_json_end_object(json);
    return status;
}

static void write_unreadable(cli_json *json, const cli_inspection *shown)
{
    reshard_unreadable_tensor tensor = {.size = sizeof tensor};
    cli_json_begin_list(json, "unreadable");
    for (int64_t i = 0; reshard_checkpoint_unreadable(shown->checkpoint, i, &tensor) == RESHARD_OK;
         i++) {
        if (!cli_inspection_has(shown, tensor.name, tensor.name_bytes))
            continue;
        cli_json_begin_object(json, NULL);
        cli_json_text_part(json, "name", tensor.name, tensor.name_bytes);
        cli_json_text(json, "reason", tensor.reason);
        cli_json_end_object(json);
    }
    cli_json_end_list(json);
}

static reshard_status print_json(const cli_inspection *shown, int in_full)
{
    const reshard_checkpoint *checkpoint = shown->checkpoint;
    cli_json json = {.stream = stdout};
    reshard_status status = RESHARD_OK;
    const char *note;
    cli_json_begin_object(&json, NULL);
    const char *naming;
    cli_json_text(&json, "format", cli_checkpoint_info(checkpoint).format);
    if (reshard_checkpoint_naming(checkpoint, &naming) == RESHARD_OK)
        cli_json_text(&json, "naming", naming);
    cli_json_begin_list(&json, "tensors");
    for (int64_t i = 0; status == RESHARD_OK && i < shown->count; i++)
        status = write_tensor(&json, checkpoint, shown->tensors[i]);
    cli_json_end_list(&json);
    cli_json_unsigned(&json, "bytes", shown->bytes);
    cli_json_unsigned(&json, "parameters", shown->parameters);
    cli_json_integer(&json, "files", cli_checkpoint_info(checkpoint).disk_file_count);
    if (status == RESHARD_OK)
        status = cli_values_write(&json, shown, in_full);
    write_unreadable(&json, shown);
    cli_json_begin_list(&json, "notes");
    for (int64_t i = 0; (note = reshard_checkpoint_note(checkpoint, RESHARD_NOTE, i)) != NULL; i++)
        cli_json_text(&json, NULL, note);
    cli_json_end_list(&json);
    cli_json_begin_list(&json, "warnings");
    for (int64_t i = 0; (note = reshard_checkpoint_note(checkpoint, RESHARD_WARNING, i)) != NULL;
         i++)
        cli_json_text(&json, NULL, note);
    cli_json_end_list(&json);
    cli_json_end_object(&json);
    putchar('\n');
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int run(const cli_command *command, int argc, char **argv)
{
    cli_checkpoint_values values = {
        .opening = {.plan_only = 1, .one_rank = 1, .unreadable = 1, .unfinished = 1}};
    cli_work work = {0};
    reshard_checkpoint *checkpoint = NULL;
    cli_inspection shown = {.tensors = NULL};
    int code = cli_checkpoint_parse(command, argc, argv, &values);
    values.drawing.draw = values.drawn != NULL;
    if (code == CLI_DONE && values.drawing.draw &&
        (values.json || values.all || values.values || values.include.count != 0))
        code = cli_fail(CLI_USAGE, "inspect: --draw prints a picture; leave out --%s",
                        values.json     ? "json"
                        : values.all    ? "all"
                        : values.values ? "values"
                                        : "include");
    if (code == CLI_DONE && !values.drawing.draw &&
        (values.drawing.svg != NULL || values.drawing.ascii || values.drawing.slices.count != 0))
        code = cli_fail(CLI_USAGE, "inspect: a picture shows one tensor; name it with --draw");
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code != CLI_DONE)
        return code;
    reshard_status status =
        cli_checkpoint_open(work.context, values.paths[0], &values.opening, &checkpoint);
    cli_work_settle(&work);
    if (status == RESHARD_OK && values.drawing.draw)
        code = cli_inspect_draw(checkpoint, values.drawn, &values.drawing);
    else if (status == RESHARD_OK)
        code = cli_inspection_init(&shown, checkpoint, &values.include);
    if (status == RESHARD_OK && code == CLI_DONE && !values.drawing.draw)
        status = values.json
                     ? print_json(&shown, values.values)
                     : cli_inspect_print(&shown, values.paths[0], values.all, values.values);
    cli_inspection_release(&shown);
    if (status != RESHARD_OK)
        code = cli_fail_library(status, CLI_FAILED, NULL);
    reshard_checkpoint_destroy(checkpoint);
    cli_work_end(&work);
    return code;
}

const cli_command cli_command_inspect = {
    .name = "inspect",
    .summary = "what a checkpoint holds, and how each tensor is split",
    .synopsis = "CKPT [--from MESH [--rules R] [--set KEY=N]] [--include GLOB]\n"
                "    [--all] [--values] [--json]\n"
                "  reshard inspect CKPT --draw NAME [--ascii] [--svg FILE] [--slice DIM=INDEX]",
    .description =
        "Reads the headers of a checkpoint (a folder or a file) and prints its format, its\n"
        "tensors, and how they are split over files. Tensors that differ only in the numbers of\n"
        "their names are one row: model.layers.{0..31}.mlp.up_proj.weight x32. Those that cannot\n"
        "be read, such as sparse ones, are listed with the reason.\n"
        "\n"
        "If something is missing, overlaps or is too short, the error names tensor and file.\n"
        "Plain rank files do not say how they were\n"
        "split, so they need --from, and --rules if the tensor names do not reveal it. A single\n"
        "file of a set of rank files is shown by itself, with what it says about the whole.\n"
        "\n"
        "Step counts, hyper-parameters and the key-values of GGUF are shown in short; --values\n"
        "shows them in full with their types, and the metadata of safetensors.\n"
        "\n"
        "--draw prints a picture of one tensor, with the numbers of the files that hold its\n"
        "parts.\n",
    .operand = "CKPT",
    .options = cli_checkpoint_options,
    .option_count = CLI_CHECKPOINT_OPTION_COUNT,
    .takes = CLI_INSPECT,
    .examples = "  reshard inspect model/\n"
                "  reshard inspect model/ --include '*.layers.0.*' --all\n"
                "  reshard inspect model.safetensors --json\n"
                "  reshard inspect model/ --values\n"
                "  reshard inspect ranks/ --from tp=4 --rules llama\n"
                "  reshard inspect model/ --draw lm_head.weight\n",
    .run = run,
};
