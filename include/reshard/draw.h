/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw.h - layouts and plans as pictures: text for a terminal, SVG for a page.
 *
 * A picture is of one to three dims, one box for what the same ranks hold. Its lines are where the
 * layout cuts, with their indices beside them; sizes are to scale only as far as the labels let
 * them. What is too much to draw is left out of the middle, and the picture says what. All calls
 * are Local.
 *
 *   0,4         ranks 0 and 4 hold a copy each        0..6/2      ranks 0, 2, 4 and 6
 *   sum(0..3)   each holds a contribution to the sum   sum(0,4; 1,5)  two contributions, two copies
 */
#ifndef RESHARD_DRAW_H
#define RESHARD_DRAW_H

#include <reshard/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum reshard_draw_form {
    RESHARD_DRAW_TEXT, /* lines of UTF-8 for a font of fixed width */
    RESHARD_DRAW_SVG   /* one SVG document, for light and dark pages */
} reshard_draw_form;

/* Draw what lies at this index of a dim instead of all of it. */
typedef struct reshard_draw_slice {
    int32_t dim; /* negative: from the end */
    int64_t index;
} reshard_draw_slice;

typedef struct reshard_draw_options {
    size_t size; /* sizeof(reshard_draw_options) */
    reshard_draw_form form;
    int32_t columns; /* TEXT: no line is wider; 0: 80. At least RESHARD_DRAW_COLUMNS_MIN */
    int colours;     /* TEXT: non-zero: with the colours of terminals that have 256 */
    int ascii;       /* TEXT: non-zero: lines and shades of ASCII alone */
    int32_t slice_count;
    const reshard_draw_slice *slices; /* for tensors that are cut in more than three dims */
} reshard_draw_options;

#define RESHARD_DRAW_COLUMNS_MIN 20

/* Writes at most `capacity` bytes, NUL included, and sets *out_length to the length of the whole
 * picture without NUL; buffer may be NULL when capacity is 0. options NULL: text of 80 columns.
 * Errors: INVALID, RANGE (a slice that does not exist, more than three dims are cut, more boxes
 * meet in one corner than can be drawn). */
RESHARD_API reshard_status reshard_layout_draw(const reshard_layout *layout,
                                               const reshard_draw_options *options, char *buffer,
                                               size_t capacity, size_t *out_length);

/* The source and the target of a plan of one tensor beside each other, shaded where every target
 * rank holds what it needs already, lightly where some do; below, who hands how much to whom.
 * Errors: as above; UNSUPPORTED for a plan of several links, or one that does not link the whole of
 * two tensors of one shape. */
RESHARD_API reshard_status reshard_plan_draw(reshard_plan *plan,
                                             const reshard_draw_options *options, char *buffer,
                                             size_t capacity, size_t *out_length);

#ifdef __cplusplus
}
#endif
#endif
