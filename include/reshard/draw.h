/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw.h - draws layouts and plans: as text for a terminal, as SVG for a page.
 *
 * A picture shows one to three dims, with one box for all elements that the same ranks hold. Its
 * lines are where the layout cuts, with the indices beside them; boxes are to scale only as far as
 * their labels permit. If there is too much to draw, something is left out of the middle, and the
 * picture says what. All calls are Local.
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

/* ==== explicit ===================================================================================
 * Pictures of layouts and plans, as the command draws them.
 */

typedef enum reshard_draw_form {
    RESHARD_DRAW_TEXT, /* lines of UTF-8 for a font of fixed width */
    RESHARD_DRAW_SVG   /* one SVG document, for light and dark pages */
} reshard_draw_form;

/* Draw only this index of a dim instead of the whole dim. */
typedef struct reshard_draw_slice {
    int32_t dim; /* negative: from the end */
    int64_t index;
} reshard_draw_slice;

typedef struct reshard_draw_options {
    size_t size; /* sizeof(reshard_draw_options) */
    reshard_draw_form form;
    int32_t columns; /* TEXT: the widest line; 0: 80. At least RESHARD_DRAW_COLUMNS_MIN */
    int colours;     /* TEXT: non-zero: use the colours of 256-colour terminals */
    int ascii;       /* TEXT: non-zero: draw with ASCII characters only */
    int32_t slice_count;
    const reshard_draw_slice *slices; /* needed for tensors that are cut in more than three dims */
} reshard_draw_options;

#define RESHARD_DRAW_COLUMNS_MIN 20

/* Writes at most `capacity` bytes, including the NUL, and sets *out_length to the length of the
 * whole picture without it; buffer may be NULL if capacity is 0. options NULL: text of 80 columns.
 * Errors: INVALID; RANGE (a slice that does not exist, more than three dims are cut, more boxes
 * meet in one corner than can be drawn). */
RESHARD_API reshard_status reshard_layout_draw(const reshard_layout *layout,
                                               const reshard_draw_options *options, char *buffer,
                                               size_t capacity, size_t *out_length);

/* Draws the source and the target of a plan of one tensor side by side. Elements that every target
 * rank already holds are shaded, lightly if only some target ranks hold them. Below is a table of
 * who hands how much to whom. Errors: as above; UNSUPPORTED for a plan with several links, or whose
 * link is not from one whole tensor to another of the same shape. */
RESHARD_API reshard_status reshard_plan_draw(reshard_plan *plan,
                                             const reshard_draw_options *options, char *buffer,
                                             size_t capacity, size_t *out_length);

#ifdef __cplusplus
}
#endif
#endif
