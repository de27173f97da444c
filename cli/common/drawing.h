/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drawing.h - pictures of layouts and plans, on the terminal and as SVG files, and the options that
 * all commands that draw have in common.
 */
#ifndef CLI_COMMON_DRAWING_H
#define CLI_COMMON_DRAWING_H

#include "cli/common/options.h"

#include <reshard/reshard.h>

typedef struct cli_drawing {
    int draw;        /* print a picture */
    int ascii;       /* draw with ASCII characters only */
    const char *svg; /* also write a picture to this file; NULL: none */
    cli_texts slices;
} cli_drawing;

/* Rows for a command's option table, for a struct whose field `drawing` is a cli_drawing. */
#define CLI_DRAW_OPTION(type)                                                                   \
    {                                                                                           \
        "draw", CLI_FLAG, offsetof(type, drawing.draw), NULL, 0, "a picture instead of a table" \
    }
#define CLI_DRAWING_OPTIONS(type)                                                                 \
    {                                                                                             \
        "ascii", CLI_FLAG, offsetof(type, drawing.ascii),                                         \
        NULL,    0,        "draw with ASCII characters only"},                                    \
        {"slice",     CLI_TEXTS, offsetof(type, drawing.slices),                                  \
         "DIM=INDEX", 0,         "draw only one index of a dim"},                                 \
    {                                                                                             \
        "svg", CLI_TEXT, offsetof(type, drawing.svg), "FILE", 0, "also write a picture to a file" \
    }

/* A picture of a plan or, if plan is NULL, of a layout. */
typedef struct cli_picture {
    const reshard_layout *layout;
    reshard_plan *plan;
    char *text;         /* for the terminal; NULL if not asked for */
    char *svg;          /* for the file; NULL if not asked for */
    size_t text_length; /* in bytes */
    size_t svg_length;
} cli_picture;

/* Draws what the options ask for, into memory. Returns CLI_DONE, or another code after a message.
 * Release in any case. */
int cli_picture_make(cli_picture *picture, const cli_drawing *drawing, const char *command);
/* Writes the SVG file, if one was asked for. It replaces only an SVG file, and only once the new
 * one is complete. */
int cli_picture_save(const cli_picture *picture, const char *path);
/* What separates the two halves of the line above a picture: two spaces, or a newline if the window
 * is too narrow for both. Widths are in columns. Static. */
const char *cli_picture_gap(size_t left, size_t right);
/* Prints the picture's text, if it was asked for. */
void cli_picture_print(const cli_picture *picture);
void cli_picture_release(cli_picture *picture);

#endif
