/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h - a plan as one HTML file that needs nothing else: the program of web/ with the plan's
 * data as JSON inside. Between begin and end the caller fills the object `json`; everything in it
 * is safe inside HTML, whatever names tensors have.
 *
 * The size of a page is bounded by the budgets of pieces.h and matrix.h, and what does not fit is
 * left out with a note that the page shows.
 */
#ifndef CLI_PAGE_H
#define CLI_PAGE_H

#include "cli/common/json.h"

typedef struct cli_page {
    cli_json json;
    const char *path;
    char *partial;           /* what is written until the page is complete; NULL: path itself */
    int64_t pieces_left;     /* see pieces.h */
    int64_t pictures_missed; /* layouts that found no room */
} cli_page;

/* Begins a page, with the command that makes it: its name and the arguments that follow. Refuses to
 * replace a file that is not such a page. Returns CLI_DONE, or another code after a message. */
int cli_page_begin(cli_page *page, const char *path, const char *command, int argc, char **argv);

/* Completes the page and gives it its name, if `code` is CLI_DONE; else removes what was written.
 * Returns `code`, or another one after a message. */
int cli_page_end(cli_page *page, int code);

#endif
