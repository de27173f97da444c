/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_picture.h - reads a picture of ASCII back as a person would: finds the frames by their upper
 * borders, the indices beside them, and for an element the box it lies in and what is written
 * there. Knows nothing of the code that draws.
 */
#ifndef TESTS_DRAW_READ_PICTURE_H
#define TESTS_DRAW_READ_PICTURE_H

#include "tests/support/oracle.h"
#include "tests/support/words.h"

enum {
    PICTURE_LINES = 256,
    PICTURE_WIDTH = 1024,
    PICTURE_FRAMES = 64,
    PICTURE_EDGES = 64,
    PICTURE_LABEL = 2048
};

typedef struct picture_frame {
    int left, right, top, bottom; /* of its border */
    int row_count, column_count;  /* edges that have a number */
    int64_t rows[PICTURE_EDGES], columns[PICTURE_EDGES];
    int row_lines[PICTURE_EDGES], column_places[PICTURE_EDGES];
} picture_frame;

typedef struct picture_text {
    int line_count;
    const char *lines[PICTURE_LINES]; /* into the text, whose line ends become NUL */
    int frame_count;
    picture_frame frames[PICTURE_FRAMES]; /* in reading order */
} picture_text;

/* Cuts `text` into lines and finds the frames above the notes. */
bool picture_read(char *text, picture_text *out_picture, words *said);

/* What is written in the box around an element (row, column; 0 for a dim that is not drawn), with
 * letters resolved, and the shade: ':', '\'' or ' '. */
bool picture_find(const picture_text *picture, const picture_frame *frame, int64_t row,
                  int64_t column, char label[PICTURE_LABEL], char *out_shade, words *said);

/* Marks the ranks that a label names, by the group of a sum they are in: out[rank] = group + 1. The
 * ranks of "sum(0..3)" are all in group 0. Returns the number of groups, or -1. out_reduction is
 * "" without one. */
int picture_ranks(const char *label, int out[ORACLE_RANKS_MAX], char out_reduction[16]);

/* The line that begins so, after these words; NULL when there is none. */
const char *picture_note(const picture_text *picture, const char *beginning);

#endif
