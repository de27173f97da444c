/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drawing.c - has the library draw pictures that fit the window, and writes SVG files.
 */
#define _GNU_SOURCE /* TIOCGWINSZ, strcasestr */
#include "cli/common/drawing.h"

#include "cli/common/failure.h"
#include "cli/common/memory.h"
#include "cli/common/replace.h"
#include "cli/common/sizes.h"
#include "cli/common/style.h"

#include <reshard/draw.h>

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Pictures need some room, even in a narrower window. */
static int32_t window_columns(void)
{
    int columns = cli_window_columns();
    return columns < RESHARD_DRAW_COLUMNS_MIN ? RESHARD_DRAW_COLUMNS_MIN : columns;
}

/* Whether output goes to a terminal whose locale is not UTF-8. Other output does not depend on the
 * locale. */
static int is_without_unicode(void)
{
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char *told = NULL;
    for (int i = 0; i < 3 && (told == NULL || told[0] == '\0'); i++)
        told = getenv(variables[i]);
    if (told == NULL || told[0] == '\0' || !isatty(STDOUT_FILENO))
        return 0;
    return strcasestr(told, "utf-8") == NULL && strcasestr(told, "utf8") == NULL;
}

/* "2=5", "-1=0" */
static int read_slice(const char *text, const char *command, reshard_draw_slice *out_slice)
{
    char dim_text[16];
    uint64_t dim = 0, index = 0;
    int is_negative = text[0] == '-';
    const char *digits = text + is_negative, *equals = strchr(text, '=');
    size_t length = equals != NULL ? (size_t)(equals - digits) : sizeof dim_text;
    if (length < sizeof dim_text) {
        memcpy(dim_text, digits, length);
        dim_text[length] = '\0';
    }
    if (length >= sizeof dim_text || cli_number_parse(dim_text, RESHARD_NDIM_MAX, &dim) != 0 ||
        cli_number_parse(equals + 1, INT64_MAX, &index) != 0)
        return cli_fail(CLI_USAGE, "%s: --slice \"%s\": expected DIM=INDEX, like 0=5", command,
                        text);
    *out_slice = (reshard_draw_slice){is_negative ? -(int32_t)dim : (int32_t)dim, (int64_t)index};
    return CLI_DONE;
}

static reshard_status ask(const cli_picture *picture, const reshard_draw_options *options,
                          char *buffer, size_t capacity, size_t *out_length)
{
    if (picture->plan != NULL)
        return reshard_plan_draw(picture->plan, options, buffer, capacity, out_length);
    return reshard_layout_draw(picture->layout, options, buffer, capacity, out_length);
}

static int draw(const cli_picture *picture, const reshard_draw_options *options, char **out_bytes,
                size_t *out_length)
{
    size_t length = 0;
    reshard_status status = ask(picture, options, NULL, 0, &length);
    if (status == RESHARD_OK) {
        *out_bytes = cli_allocate(length + 1, 1);
        status = ask(picture, options, *out_bytes, length + 1, out_length);
    }
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}

int cli_picture_make(cli_picture *picture, const cli_drawing *drawing, const char *command)
{
    reshard_draw_slice slices[CLI_TEXTS_MAX];
    reshard_draw_options options = {
        .size = sizeof options, .slice_count = drawing->slices.count, .slices = slices};
    int code = CLI_DONE;
    if (!drawing->draw && drawing->svg == NULL && (drawing->ascii || drawing->slices.count != 0))
        return cli_fail(CLI_USAGE, "%s: --%s is about pictures; add --draw or --svg", command,
                        drawing->ascii ? "ascii" : "slice");
    for (int i = 0; i < drawing->slices.count && code == CLI_DONE; i++)
        code = read_slice(drawing->slices.items[i], command, &slices[i]);
    if (code == CLI_DONE && drawing->svg != NULL) {
        options.form = RESHARD_DRAW_SVG;
        code = draw(picture, &options, &picture->svg, &picture->svg_length);
    }
    if (code == CLI_DONE && drawing->draw) {
        options.form = RESHARD_DRAW_TEXT;
        options.columns = window_columns();
        options.colours = cli_output_is_styled();
        options.ascii = drawing->ascii || is_without_unicode();
        code = draw(picture, &options, &picture->text, &picture->text_length);
    }
    return code;
}

const char *cli_picture_gap(size_t left, size_t right)
{
    return left + 2 + right <= (size_t)window_columns() ? "  " : "\n";
}

void cli_picture_print(const cli_picture *picture)
{
    if (picture->text != NULL)
        (void)fwrite(picture->text, 1, picture->text_length, stdout);
}

void cli_picture_release(cli_picture *picture)
{
    free(picture->text);
    free(picture->svg);
}

/* ---- files ----------------------------------------------------------------------------------- */

static int fail_file(const char *path, const char *what)
{
    return cli_fail(CLI_FAILED, "%s: %s: %s", path, what, strerror(errno));
}

static int write_all(const char *path, const char *bytes, size_t count)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return -1;
    int failed = fwrite(bytes, 1, count, file) != count;
    failed = fclose(file) != 0 || failed;
    return failed ? -1 : 0;
}

int cli_picture_save(const cli_picture *picture, const char *path)
{
    struct stat found;
    if (picture->svg == NULL)
        return CLI_DONE;
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode)) /* such as /dev/stdout */
        return write_all(path, picture->svg, picture->svg_length) == 0
                   ? CLI_DONE
                   : fail_file(path, "cannot be written");
    /* Pictures of ours have no prologue. */
    int code = cli_replace_check(path, "<svg ", "an SVG file");
    if (code != CLI_DONE)
        return code;
    size_t room = strlen(path) + sizeof ".partial";
    char *partial = cli_allocate(room, 1);
    snprintf(partial, room, "%s.partial", path);
    if (write_all(partial, picture->svg, picture->svg_length) != 0 || rename(partial, path) != 0) {
        code = fail_file(path, "cannot be written");
        (void)remove(partial);
    }
    free(partial);
    return code;
}
