/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drawing.h - pictures of layouts and plans, on the terminal and as SVG files. The options are the
 * same for every command that draws.
 */
#ifndef CLI_DRAWING_H
#define CLI_DRAWING_H

#include "cli/common/options.h"

#include <reshard/reshard.h>

typedef struct cli_drawing {
    int draw;        /* print a picture */
    int ascii;       /* .. without Unicode */
    const char *svg; /* write one to this file; NULL: none */
    cli_texts slices;
} cli_drawing;

/* The rows of a command's options, for a struct whose field `drawing` is a cli_drawing. */
#define CLI_DRAW_OPTION(type)                                                                   \
    {                                                                                           \
        "draw", CLI_FLAG, offsetof(type, drawing.draw), NULL, 0, "a picture instead of a table" \
    }
#define CLI_DRAWING_OPTIONS(type)                                                                  \
    {"ascii", CLI_FLAG, offsetof(type, drawing.ascii), NULL, 0, "--draw without Unicode's lines"}, \
        {"slice",     CLI_TEXTS, offsetof(type, drawing.slices),                                   \
         "DIM=INDEX", 0,         "draw what lies at one index of a dim"},                          \
    {                                                                                              \
        "svg", CLI_TEXT, offsetof(type, drawing.svg), "FILE", 0, "also write a picture to a file"  \
    }

/* What is drawn: either a plan or a layout. */
typedef struct cli_picture {
    const reshard_layout *layout;
    reshard_plan *plan;
    char *text;         /* for the terminal, when asked for */
    char *svg;          /* for the file, when asked for */
    size_t text_length; /* in bytes */
    size_t svg_length;
} cli_picture;

/* Draws what the options ask for, before anything is printed or written. Returns CLI_DONE, or
 * another code after a message. Release in any case. */
int cli_picture_make(cli_picture *picture, const cli_drawing *drawing, const char *command);
/* Writes the SVG file, if one was asked for. It replaces nothing but an SVG file, and that only
 * when the new one is complete. */
int cli_picture_save(const cli_picture *picture, const char *path);
/* What stands between the two halves of the line above a picture: two spaces, or a new line where
 * the window is too narrow for both. Widths are in columns. Static. */
const char *cli_picture_gap(size_t left, size_t right);
/* Prints the text, if it was asked for. */
void cli_picture_print(const cli_picture *picture);
void cli_picture_release(cli_picture *picture);

#endif
