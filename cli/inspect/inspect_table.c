/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_table.c - prints what a checkpoint holds, for people. */
#include "cli/inspect/inspect_table.h"

#include "cli/common/input.h"
#include "cli/common/sizes.h"
#include "cli/common/style.h"
#include "cli/common/table.h"
#include "cli/inspect/inspect_values.h"

#include <reshard/model_rules.h>

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Beyond so many pieces no spec is inferred: it takes too long, and nobody would read the
 * result. */
enum { PIECES_INFERRED_MAX = 16384 };
enum { ROWS_MAX = 64, ROWS_FIRST = 48, ROWS_LAST = 8, SPLIT_SHOWN = 64 };

const char *cli_dtype_text(reshard_dtype dtype, char buffer[CLI_DTYPE_TEXT])
{
    const char *name = reshard_dtype_name(dtype);
    size_t length = 0;
    for (; name[length] != '\0' && length + 1 < CLI_DTYPE_TEXT; length++)
        buffer[length] = (char)toupper((unsigned char)name[length]);
    buffer[length] = '\0';
    return buffer;
}

/* ---- splits ---------------------------------------------------------------------------------- */

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

/* The simplest spec of the split over files, shortened so that it fits a line. */
static reshard_status infer_split(const reshard_checkpoint *checkpoint, int64_t index,
                                  char shown[SPLIT_SHOWN])
{
    reshard_layout *layout = NULL;
    reshard_spec *spec = NULL;
    size_t length = 0;
    reshard_status status = reshard_checkpoint_layout(checkpoint, index, &layout);
    if (status == RESHARD_OK)
        status = reshard_layout_infer(layout, &spec);
    if (status == RESHARD_OK)
        status = reshard_spec_text(spec, shown, SPLIT_SHOWN, &length);
    if (status == RESHARD_OK && length >= SPLIT_SHOWN)
        memcpy(shown + SPLIT_SHOWN - 4, "...", 4);
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
                                int64_t index, const reshard_stored_tensor *tensor, int all)
{
    reshard_stored_piece piece = {.size = sizeof piece};
    char shown[SPLIT_SHOWN], copies[48] = "";
    reshard_status status = reshard_checkpoint_piece(checkpoint, index, 0, &piece);
    if (status != RESHARD_OK)
        return status;
    if (tensor->copy_count != 0)
        (void)snprintf(copies, sizeof copies, ", %" PRId64 " cop%s", tensor->copy_count,
                       tensor->copy_count == 1 ? "y" : "ies");
    if (tensor->piece_count == 1) {
        cli_table_add(table, CLI_PLAIN, "whole%s%s%s", all ? " in " : "",
                      all ? reshard_checkpoint_file_name(checkpoint, piece.file) : "", copies);
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

/* ---- rows ------------------------------------------------------------------------------------ */

static reshard_status add_row(cli_table *table, const reshard_checkpoint *checkpoint,
                              const cli_tensor_row *row, int all)
{
    char size[CLI_SIZE_TEXT], dtype[CLI_DTYPE_TEXT], shape[CLI_SHAPE_TEXT];
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    reshard_status status = reshard_checkpoint_tensor(checkpoint, row->first, &tensor);
    if (status != RESHARD_OK)
        return status;
    cli_table_add(table, CLI_PLAIN, "%s", row->name);
    cli_table_add(table, CLI_PLAIN, "%s",
                  tensor.stored_as != NULL ? tensor.stored_as
                                           : cli_dtype_text(tensor.dtype, dtype));
    cli_table_add(table, CLI_PLAIN, "%s", cli_shape_text(tensor.ndim, tensor.shape, shape));
    cli_table_add(table, CLI_PLAIN, "%s", cli_size_text(row->bytes, size));
    if (tensor.whole_shape != NULL) {
        add_whole(table, &tensor);
        return RESHARD_OK;
    }
    return add_split(table, checkpoint, row->first, &tensor, all);
}

static int64_t count_tensors(const cli_tensor_row *rows, int64_t count)
{
    int64_t tensors = 0;
    for (int64_t i = 0; i < count; i++)
        tensors += rows[i].count;
    return tensors;
}

static reshard_status add_rows(cli_table *table, const cli_inspection *shown, int all)
{
    static const char *const titles[] = {"tensor", "dtype", "shape", "bytes", "split"};
    cli_tensor_row *rows = NULL;
    int64_t count = 0;
    reshard_status status = cli_tensor_rows_make(shown, all, &rows, &count);
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
                               count_tensors(rows + ROWS_FIRST, i - ROWS_FIRST));
        }
        status = add_row(table, shown->checkpoint, &rows[i], all);
    }
    cli_tensor_rows_free(rows, count);
    return status;
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void print_head(const cli_inspection *shown, const char *path)
{
    char size[CLI_SIZE_TEXT], parameters[CLI_SIZE_TEXT];
    const reshard_checkpoint *checkpoint = shown->checkpoint;
    int64_t count = cli_checkpoint_info(checkpoint).tensor_count;
    int32_t files = cli_checkpoint_info(checkpoint).disk_file_count;
    const char *naming;
    fputs(cli_style_begin(CLI_BOLD), stdout);
    cli_print_shown(path);
    printf("%s  %s, ", cli_style_end(CLI_BOLD), cli_checkpoint_info(checkpoint).format);
    /* The usual one goes without saying. */
    if (reshard_checkpoint_naming(checkpoint, &naming) == RESHARD_OK && strcmp(naming, "hf") != 0)
        printf("names of %s, ", naming);
    if (shown->count != count)
        printf("%" PRId64 " of ", shown->count);
    printf("%" PRId64 " tensor%s, ", count, count == 1 ? "" : "s");
    if (shown->parameters != 0)
        printf("%s parameter%s, ", cli_count_text(shown->parameters, parameters),
               shown->parameters == 1 ? "" : "s");
    printf("%s in %" PRId32 " file%s\n\n", cli_size_text(shown->bytes, size), files,
           files == 1 ? "" : "s");
}

/* Each reason names its file and its tensor. */
static void print_unreadable(const cli_inspection *shown)
{
    reshard_unreadable_tensor tensor = {.size = sizeof tensor};
    int is_first = 1;
    for (int64_t i = 0; reshard_checkpoint_unreadable(shown->checkpoint, i, &tensor) == RESHARD_OK;
         i++) {
        if (!cli_inspection_has(shown, tensor.name, tensor.name_bytes))
            continue;
        fputs(is_first ? "\ncannot be read\n  " : "  ", stdout);
        cli_print_shown(tensor.reason);
        putchar('\n');
        is_first = 0;
    }
}

reshard_status cli_inspect_print(const cli_inspection *shown, const char *path, int all,
                                 int in_full)
{
    const char *note;
    cli_table *table = cli_table_create(5);
    reshard_status status = add_rows(table, shown, all);
    if (status == RESHARD_OK) {
        print_head(shown, path);
        cli_table_fit(table, cli_window_columns());
        cli_table_print(table);
        print_unreadable(shown);
        status = cli_values_print(shown, all, in_full);
        for (int64_t i = 0;
             (note = reshard_checkpoint_note(shown->checkpoint, RESHARD_NOTE, i)) != NULL; i++)
            printf("%snote: %s\n", i == 0 ? "\n" : "", note);
    }
    cli_table_destroy(table);
    return status;
}
