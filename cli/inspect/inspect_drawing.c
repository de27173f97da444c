/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect_drawing.c - `reshard inspect --draw NAME`: draws one tensor of a checkpoint, with files
 * in place of ranks.
 */
#include "cli/inspect/inspect_drawing.h"

#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/memory.h"
#include "cli/common/style.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_SHOWN = 32 };

/* Suggests the most similar name. */
static int fail_unknown(const reshard_checkpoint *checkpoint, const char *name)
{
    int64_t count = cli_checkpoint_info(checkpoint).tensor_count;
    int shown = count < INT32_MAX ? (int)count : INT32_MAX;
    const char **names = cli_allocate((size_t)shown, sizeof *names);
    for (int i = 0; i < shown; i++) {
        reshard_stored_tensor tensor = {.size = sizeof tensor};
        names[i] =
            reshard_checkpoint_tensor(checkpoint, i, &tensor) == RESHARD_OK ? tensor.name : "";
    }
    const char *nearest = cli_nearest(name, names, shown);
    int code =
        nearest != NULL
            ? cli_fail(CLI_USAGE, "inspect: --draw: there is no tensor \"%s\"; did you mean %s?",
                       name, nearest)
            : cli_fail(CLI_USAGE, "inspect: --draw: there is no tensor \"%s\"", name);
    free(names);
    return code;
}

/* Lists the numbers and names of the files that hold the tensor. */
static void print_files(const reshard_checkpoint *checkpoint, const reshard_layout *layout)
{
    int32_t count = cli_layout_info(layout).rank_count;
    putchar('\n');
    for (int32_t i = 0; i < count && i < FILES_SHOWN; i++) {
        int32_t file = reshard_layout_rank_at(layout, i);
        printf("%" PRId32 "  ", file);
        cli_print_shown(reshard_checkpoint_file_name(checkpoint, file));
        putchar('\n');
    }
    if (count > FILES_SHOWN)
        printf("... %" PRId32 " files more\n", count - FILES_SHOWN);
}

static void print_header(const reshard_stored_tensor *tensor, const reshard_layout *layout)
{
    char shape[CLI_SHAPE_TEXT], facts[CLI_SHAPE_TEXT + 64], copies[48] = "";
    int32_t files = cli_layout_info(layout).rank_count;
    if (tensor->copy_count != 0)
        (void)snprintf(copies, sizeof copies, ", %" PRId64 " cop%s not drawn", tensor->copy_count,
                       tensor->copy_count == 1 ? "y" : "ies");
    (void)snprintf(
        facts, sizeof facts, "%s, shape %s%s, in %" PRId32 " file%s",
        reshard_dtype_name(tensor->dtype),
        cli_shape_text(cli_layout_info(layout).ndim, cli_layout_info(layout).shape, shape),
        tensor->opaque ? " in bytes" : "", files, files == 1 ? "" : "s");
    size_t name_length = reshard_text_escape(tensor->name, tensor->name_bytes, NULL, 0);
    fputs(cli_style_begin(CLI_BOLD), stdout);
    cli_print_shown_part(tensor->name, tensor->name_bytes);
    printf("%s%s%s%s\n\n", cli_style_end(CLI_BOLD),
           cli_picture_gap(name_length, strlen(facts) + strlen(copies)), facts, copies);
}

int cli_inspect_draw(const reshard_checkpoint *checkpoint, const char *name,
                     const cli_drawing *drawing)
{
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    reshard_layout *layout = NULL;
    int64_t index = 0;
    reshard_status status = reshard_checkpoint_find(checkpoint, name, strlen(name), &index);
    if (status == RESHARD_ERR_NOT_FOUND)
        return fail_unknown(checkpoint, name);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_tensor(checkpoint, index, &tensor);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_layout(checkpoint, index, &layout);
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    cli_picture picture = {.layout = layout};
    int code = cli_picture_make(&picture, drawing, "inspect");
    if (code == CLI_DONE)
        code = cli_picture_save(&picture, drawing->svg);
    if (code == CLI_DONE) {
        print_header(&tensor, layout);
        cli_picture_print(&picture);
        print_files(checkpoint, layout);
    }
    cli_picture_release(&picture);
    reshard_layout_release(layout);
    return code;
}
