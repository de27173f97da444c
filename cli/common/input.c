/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input.c - turns arguments into shapes, specs and layouts.
 */
#include "cli/common/input.h"

#include "cli/common/failure.h"
#include "cli/common/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Far longer than any spec, but keeps @/dev/zero from filling the memory. */
static const size_t file_bytes_max = (size_t)256 << 20;

int cli_shape_read(const char *argument, cli_shape *out_shape)
{
    reshard_status status = reshard_shape_parse(argument, &out_shape->ndim, out_shape->extents);
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}

/* Reads all of the stream as one text, which must not contain NUL. */
static int read_stream(FILE *stream, const char *name, char **out_text)
{
    char *text = NULL;
    size_t length = 0, capacity = 0, got = 0;
    do {
        text = cli_grow(text, &capacity, length + 65536, 1);
        got = fread(text + length, 1, capacity - length, stream);
        length += got;
    } while (got != 0 && length <= file_bytes_max);
    int code = CLI_DONE;
    if (ferror(stream))
        code = cli_fail(CLI_FAILED, "%s cannot be read: %s", name, strerror(errno));
    else if (length > file_bytes_max)
        code = cli_fail(CLI_USAGE, "%s is longer than %zu bytes, too long for a spec", name,
                        file_bytes_max);
    else if (length != 0 && memchr(text, '\0', length) != NULL)
        code = cli_fail(CLI_USAGE, "%s has a NUL byte, which a spec cannot have", name);
    if (code != CLI_DONE) {
        free(text);
        return code;
    }
    text = cli_grow(text, &capacity, length + 1, 1);
    text[length] = '\0';
    *out_text = text;
    return CLI_DONE;
}

static int read_file(const char *name, char **out_text)
{
    if (strcmp(name, "-") == 0)
        return read_stream(stdin, "standard input", out_text);
    FILE *stream = fopen(name, "rb");
    if (stream == NULL)
        return cli_fail(CLI_FAILED, "file \"%s\" cannot be opened: %s", name, strerror(errno));
    char shown[256];
    snprintf(shown, sizeof shown, "file \"%.240s\"", name);
    int code = read_stream(stream, shown, out_text);
    fclose(stream);
    return code;
}

int cli_spec_read(reshard_context *context, const char *argument, reshard_spec **out_spec)
{
    char *text = NULL;
    if (argument[0] == '@') {
        int code = read_file(argument + 1, &text);
        if (code != CLI_DONE)
            return code;
    }
    reshard_status status = reshard_spec_parse(context, text != NULL ? text : argument, out_spec);
    free(text);
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}

int cli_layout_read(reshard_context *context, const char *argument, const cli_shape *shape,
                    reshard_layout **out_layout)
{
    reshard_spec *spec = NULL;
    int code = cli_spec_read(context, argument, &spec);
    if (code != CLI_DONE)
        return code;
    reshard_status status =
        reshard_layout_create(context, spec, shape->ndim, shape->extents, out_layout);
    reshard_spec_release(spec);
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}

int cli_layout_text(const reshard_layout *layout, char **out_text)
{
    const reshard_spec *spec = cli_layout_info(layout).spec;
    size_t length = 0;
    reshard_status status = reshard_spec_text(spec, NULL, 0, &length);
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    char *text = cli_allocate(length + 1, 1);
    status = reshard_spec_text(spec, text, length + 1, &length);
    if (status != RESHARD_OK) {
        free(text);
        return cli_fail_status(status);
    }
    *out_text = text;
    return CLI_DONE;
}

const char *cli_shape_text(int32_t ndim, const int64_t *extents, char buffer[CLI_SHAPE_TEXT])
{
    enum { ROOM = 32 }; /* for one more extent, or the dots */
    int length = snprintf(buffer, CLI_SHAPE_TEXT, "%s", ndim == 0 ? "scalar" : "");
    int32_t d = 0;
    for (; d < ndim && length < CLI_SHAPE_TEXT - ROOM; d++)
        length += snprintf(buffer + length, CLI_SHAPE_TEXT - (size_t)length, "%s%" PRId64,
                           d == 0 ? "" : "x", extents[d]);
    if (d < ndim)
        (void)snprintf(buffer + length, CLI_SHAPE_TEXT - (size_t)length, "...");
    return buffer;
}

const char *cli_text_clip(const char *text, char buffer[CLI_SPEC_SHOWN])
{
    int length = snprintf(buffer, CLI_SPEC_SHOWN, "%s", text);
    if (length >= CLI_SPEC_SHOWN)
        memcpy(buffer + CLI_SPEC_SHOWN - 4, "...", 4);
    return buffer;
}
