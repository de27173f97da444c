/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_inspect.c - `reshard inspect`: shows what a checkpoint holds and how each tensor is
 * split.
 */
#include "cli/checkpoint_input.h"
#include "cli/commands.h"
#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/json.h"
#include "cli/common/memory.h"
#include "cli/common/names.h"
#include "cli/common/sizes.h"
#include "cli/common/table.h"
#include "cli/common/work.h"
#include "cli/inspect_drawing.h"

#include <reshard/checkpoint.h>

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Beyond so many pieces no spec is inferred: it takes too long, and nobody would read the
 * result. */
enum { PIECES_INFERRED_MAX = 16384 };
enum { VALUES_MAX = 24, ROWS_MAX = 64, ROWS_FIRST = 48, ROWS_LAST = 8, DTYPE_TEXT = 24 };

typedef struct inspect_values {
    cli_checkpoint_source source;
    int all, json;
    const char *draw; /* the tensor to draw */
    cli_drawing drawing;
} inspect_values;

static const cli_option options[] = {
    CLI_SOURCE_OPTIONS(inspect_values, source),
    {"all", CLI_FLAG, offsetof(inspect_values, all), NULL, 0, "print every row"},
    {"json", CLI_FLAG, offsetof(inspect_values, json), NULL, 0, "one JSON object on one line"},
    {"draw", CLI_TEXT, offsetof(inspect_values, draw), "NAME", 0,
     "a picture of one tensor's split over files"},
    CLI_DRAWING_OPTIONS(inspect_values),
};

/* The name of a dtype in safetensors is ours in upper case. */
static const char *dtype_text(reshard_dtype dtype, char buffer[DTYPE_TEXT])
{
    const char *name = reshard_dtype_name(dtype);
    size_t length = 0;
    for (; name[length] != '\0' && length + 1 < DTYPE_TEXT; length++)
        buffer[length] = (char)toupper((unsigned char)name[length]);
    buffer[length] = '\0';
    return buffer;
}

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
    char dtype[DTYPE_TEXT];
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    reshard_status status = reshard_checkpoint_tensor(checkpoint, index, &tensor);
    if (status != RESHARD_OK)
        return status;
    cli_json_begin_object(json, NULL);
    cli_json_text_part(json, "name", tensor.name, tensor.name_bytes);
    cli_json_text(json, "dtype", dtype_text(tensor.dtype, dtype));
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

/* Values that are not tensors. */
static void write_values(cli_json *json, const reshard_checkpoint *checkpoint)
{
    reshard_stored_value value = {.size = sizeof value};
    cli_json_begin_list(json, "values");
    for (int64_t i = 0; reshard_checkpoint_value(checkpoint, i, &value) == RESHARD_OK; i++) {
        cli_json_begin_object(json, NULL);
        cli_json_text_part(json, "name", value.name, value.name_bytes);
        if (value.text != NULL)
            cli_json_text(json, "value", value.text);
        cli_json_end_object(json);
    }
    cli_json_end_list(json);
}

static reshard_status print_json(const reshard_checkpoint *checkpoint)
{
    cli_json json = {.stream = stdout};
    reshard_status status = RESHARD_OK;
    const char *note;
    cli_json_begin_object(&json, NULL);
    cli_json_text(&json, "format", reshard_checkpoint_format(checkpoint));
    cli_json_begin_list(&json, "tensors");
    for (int64_t i = 0; status == RESHARD_OK && i < reshard_checkpoint_tensor_count(checkpoint);
         i++)
        status = write_tensor(&json, checkpoint, i);
    cli_json_end_list(&json);
    cli_json_unsigned(&json, "bytes", reshard_checkpoint_bytes(checkpoint));
    cli_json_integer(&json, "files", reshard_checkpoint_file_count(checkpoint));
    write_values(&json, checkpoint);
    cli_json_begin_list(&json, "notes");
    for (int64_t i = 0; (note = reshard_checkpoint_note(checkpoint, i)) != NULL; i++)
        cli_json_text(&json, NULL, note);
    cli_json_end_list(&json);
    cli_json_end_object(&json);
    putchar('\n');
    return status;
}

/* ---- as a table ------------------------------------------------------------------------------ */

/* In the file of a single rank: the whole tensor that this is a part of, as far as the file
 * says. */
static void add_whole(cli_table *table, const reshard_stored_tensor *tensor)
{
    char shape[CLI_SHAPE_TEXT], offset[CLI_SHAPE_TEXT];
    cli_shape_text(tensor->whole_ndim, tensor->whole_shape, shape);
    if (tensor->whole_spec != NULL) {
        cli_table_add(table, CLI_PLAIN, "part of %s, %s", shape, tensor->whole_spec);
    } else {
        cli_shape_text(tensor->whole_ndim, tensor->whole_offset, offset);
        cli_table_add(table, CLI_PLAIN, "part of %s at %s", shape, offset);
    }
}

/* The simplest spec of the split over files, shortened to CLI_SPEC_SHOWN. */
static reshard_status infer_split(const reshard_checkpoint *checkpoint, int64_t index,
                                  char shown[CLI_SPEC_SHOWN])
{
    reshard_layout *layout = NULL;
    reshard_spec *spec = NULL;
    size_t length = 0;
    reshard_status status = reshard_checkpoint_layout(checkpoint, index, &layout);
    if (status == RESHARD_OK)
        status = reshard_layout_infer(layout, &spec);
    if (status == RESHARD_OK)
        status = reshard_spec_text(spec, shown, CLI_SPEC_SHOWN, &length);
    if (status == RESHARD_OK && length >= CLI_SPEC_SHOWN)
        memcpy(shown + CLI_SPEC_SHOWN - 4, "...", 4);
    reshard_spec_release(spec);
    reshard_layout_release(layout);
    return status;
}

/* How many files hold pieces of a tensor. Pieces are ordered by file. */
static reshard_status count_files(const reshard_checkpoint *checkpoint, int64_t index,
                                  int64_t piece_count, int64_t *out_count)
{
    reshard_stored_piece piece = {.size = sizeof piece};
    int32_t last = -1;
    *out_count = 0;
    for (int64_t i = 0; i < piece_count; i++) {
        reshard_status status = reshard_checkpoint_piece(checkpoint, index, i, &piece);
        if (status != RESHARD_OK)
            return status;
        *out_count += piece.file != last;
        last = piece.file;
    }
    return RESHARD_OK;
}

static reshard_status add_split(cli_table *table, const reshard_checkpoint *checkpoint,
                                int64_t index, const reshard_stored_tensor *tensor)
{
    reshard_stored_piece piece = {.size = sizeof piece};
    char shown[CLI_SPEC_SHOWN], copies[48] = "";
    reshard_status status = reshard_checkpoint_piece(checkpoint, index, 0, &piece);
    if (status != RESHARD_OK)
        return status;
    if (tensor->copy_count != 0)
        (void)snprintf(copies, sizeof copies, ", %" PRId64 " copies", tensor->copy_count);
    if (tensor->piece_count == 1) {
        cli_table_add(table, CLI_PLAIN, "whole in %s%s",
                      reshard_checkpoint_file_name(checkpoint, piece.file), copies);
        return RESHARD_OK;
    }
    if (tensor->piece_count > PIECES_INFERRED_MAX) {
        int64_t files = 0;
        status = count_files(checkpoint, index, tensor->piece_count, &files);
        cli_table_add(table, CLI_PLAIN, "%" PRId64 " boxes in %" PRId64 " file%s%s",
                      tensor->piece_count, files, files == 1 ? "" : "s", copies);
        return status;
    }
    status = infer_split(checkpoint, index, shown);
    if (status == RESHARD_OK)
        cli_table_add(table, CLI_PLAIN, "%s%s", shown, copies);
    return status;
}

static reshard_status add_tensor(cli_table *table, const reshard_checkpoint *checkpoint,
                                 int64_t index)
{
    char size[CLI_SIZE_TEXT], dtype[DTYPE_TEXT], shape[CLI_SHAPE_TEXT];
    char name[CLI_NAME_TEXT];
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    reshard_status status = reshard_checkpoint_tensor(checkpoint, index, &tensor);
    if (status != RESHARD_OK)
        return status;
    cli_table_add(table, CLI_PLAIN, "%s", cli_name_text(tensor.name, tensor.name_bytes, name));
    cli_table_add(table, CLI_PLAIN, "%s", dtype_text(tensor.dtype, dtype));
    cli_table_add(table, CLI_PLAIN, "%s", cli_shape_text(tensor.ndim, tensor.shape, shape));
    cli_table_add(table, CLI_PLAIN, "%s", cli_size_text(tensor.bytes, size));
    if (tensor.whole_shape != NULL) {
        add_whole(table, &tensor);
        return RESHARD_OK;
    }
    return add_split(table, checkpoint, index, &tensor);
}

static reshard_status sort_tensors(const reshard_checkpoint *checkpoint, int64_t count,
                                   cli_name **out_names)
{
    reshard_status status = RESHARD_OK;
    cli_name *names = cli_allocate((size_t)count, sizeof *names);
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++) {
        reshard_stored_tensor tensor = {.size = sizeof tensor};
        status = reshard_checkpoint_tensor(checkpoint, i, &tensor);
        names[i] = (cli_name){tensor.name, tensor.name_bytes, i};
    }
    if (status == RESHARD_OK)
        cli_names_sort(names, (size_t)count);
    *out_names = names;
    return status;
}

static reshard_status add_tensors(cli_table *table, const reshard_checkpoint *checkpoint, int all)
{
    static const char *const titles[] = {"tensor", "dtype", "shape", "bytes", "split over files"};
    int64_t count = reshard_checkpoint_tensor_count(checkpoint);
    cli_name *names = NULL;
    reshard_status status = sort_tensors(checkpoint, count, &names);
    for (int i = 0; i < 5; i++) {
        cli_table_add(table, CLI_BOLD, "%s", titles[i]);
        if (i != 3)
            cli_table_align(table, i, CLI_LEFT);
    }
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++) {
        if (!all && count > ROWS_MAX && i == ROWS_FIRST) {
            i = count - ROWS_LAST;
            cli_table_add_line(table, CLI_DIM,
                               "  ... %" PRId64 " tensors left out; --all prints them",
                               count - ROWS_FIRST - ROWS_LAST);
        }
        status = add_tensor(table, checkpoint, names[i].index);
    }
    free(names);
    return status;
}

/* Values that are not tensors, one per line. */
static void print_values(const reshard_checkpoint *checkpoint, int all)
{
    reshard_stored_value value = {.size = sizeof value};
    int64_t count = 0;
    for (; reshard_checkpoint_value(checkpoint, count, &value) == RESHARD_OK; count++) {
        if (!all && count >= VALUES_MAX)
            continue;
        fputs(count == 0 ? "\nvalues that are not tensors\n  " : "  ", stdout);
        cli_print_shown_part(value.name, value.name_bytes);
        fputs(value.text != NULL ? " = " : "", stdout);
        cli_print_shown(value.text != NULL ? value.text : "");
        putchar('\n');
    }
    if (!all && count > VALUES_MAX)
        printf("  ... %" PRId64 " values left out; --all prints them\n", count - VALUES_MAX);
}

static reshard_status print_table(const reshard_checkpoint *checkpoint, const char *path, int all)
{
    char size[CLI_SIZE_TEXT];
    const char *note;
    cli_table *table = cli_table_create(5);
    int64_t count = reshard_checkpoint_tensor_count(checkpoint);
    int32_t files = reshard_checkpoint_file_count(checkpoint);
    reshard_status status = add_tensors(table, checkpoint, all);
    if (status == RESHARD_OK) {
        fputs(cli_style_begin(CLI_BOLD), stdout);
        cli_print_shown(path);
        printf("%s  %s, %" PRId64 " tensor%s, %s in %" PRId32 " file%s\n\n",
               cli_style_end(CLI_BOLD), reshard_checkpoint_format(checkpoint), count,
               count == 1 ? "" : "s", cli_size_text(reshard_checkpoint_bytes(checkpoint), size),
               files, files == 1 ? "" : "s");
        cli_table_print(table);
        print_values(checkpoint, all);
        for (int64_t i = 0; (note = reshard_checkpoint_note(checkpoint, i)) != NULL; i++)
            printf("%snote: %s\n", i == 0 ? "\n" : "", note);
    }
    cli_table_destroy(table);
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int run(const cli_command *command, int argc, char **argv)
{
    inspect_values values = {.source = {.plan_only = 1, .one_rank = 1}};
    cli_work work = {0};
    reshard_checkpoint *checkpoint = NULL;
    int code = cli_options_parse(command, argc, argv, &values, &values.source.path);
    values.drawing.draw = values.draw != NULL;
    if (code == CLI_DONE && values.draw != NULL && (values.json || values.all))
        code = cli_fail(CLI_USAGE, "inspect: --draw prints a picture; leave out --%s",
                        values.json ? "json" : "all");
    if (code == CLI_DONE && values.draw == NULL &&
        (values.drawing.svg != NULL || values.drawing.ascii || values.drawing.slices.count != 0))
        code = cli_fail(CLI_USAGE, "inspect: pictures are of one tensor; name it with --draw");
    if (code == CLI_DONE)
        code = cli_mesh_check(values.source.from);
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code != CLI_DONE)
        return code;
    reshard_status status = cli_checkpoint_open(work.context, &values.source, &checkpoint);
    cli_work_settle(&work);
    if (status == RESHARD_OK && values.draw != NULL)
        code = cli_inspect_draw(checkpoint, values.draw, &values.drawing);
    else if (status == RESHARD_OK)
        status = values.json ? print_json(checkpoint)
                             : print_table(checkpoint, values.source.path, values.all);
    if (status != RESHARD_OK)
        code = cli_fail(CLI_FAILED, "%s", reshard_error_text());
    reshard_checkpoint_destroy(checkpoint);
    cli_work_end(&work);
    return code;
}

const cli_command cli_command_inspect = {
    .name = "inspect",
    .summary = "what a checkpoint holds, and how each tensor is split",
    .synopsis = "CKPT [--from MESH [--rules R] [--set KEY=N]] [--all] [--json]\n"
                "  reshard inspect CKPT --draw NAME [--ascii] [--svg FILE] [--slice DIM=INDEX]",
    .description =
        "Reads the headers of a checkpoint (a folder or a file) and prints its format, its\n"
        "tensors, and how they are split over files. If something is missing, overlaps or is too\n"
        "short, the error names tensor and file. Plain rank files do not say how they were\n"
        "split, so they need --from, and --rules if the tensor names do not reveal it. A single\n"
        "file of a set of rank files is shown by itself, with what it says about the whole.\n"
        "\n"
        "--draw prints a picture of one tensor, with the numbers of the files that hold its\n"
        "parts.\n",
    .operand = "CKPT",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .examples = "  reshard inspect model/\n"
                "  reshard inspect model.safetensors --json\n"
                "  reshard inspect ranks/ --from tp=4 --rules llama\n"
                "  reshard inspect model/ --draw lm_head.weight\n",
    .run = run,
};
