/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h - a plan as one self-contained HTML file: the program of web/ with the plan's data inside,
 * as JSON. Between begin and end the caller fills the object `json`; it is escaped so that no
 * tensor name can break the HTML.
 *
 * The limits in pieces.h and matrix.h bound the size of a page. Whatever does not fit is left out,
 * and the page says so.
 */
#ifndef CLI_PAGE_H
#define CLI_PAGE_H

#include "cli/common/json.h"

typedef struct cli_page {
    cli_json json;
    const char *path;
    char *partial;       /* path of the file until it is complete; NULL: path itself is written */
    int64_t pieces_left; /* see pieces.h */
    int64_t pictures_missed; /* layouts for which there was no room */
} cli_page;

/* Begins a page that shows the command that makes it: `command` and its arguments. Refuses to
 * replace a file that is not such a page. Returns CLI_DONE, or another code after a message. */
int cli_page_begin(cli_page *page, const char *path, const char *command, int argc, char **argv);

/* If `code` is CLI_DONE, completes the page and gives it its name; otherwise removes it. Returns
 * `code`, or another code after a message. */
int cli_page_end(cli_page *page, int code);

#endif
