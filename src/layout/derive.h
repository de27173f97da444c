/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derive.h - layouts made from little or from other layouts, and short answers about them.
 */
#ifndef RS_LAYOUT_DERIVE_H
#define RS_LAYOUT_DERIVE_H

#include <reshard/layout.h>

#include "base/export.h"

#include <stdbool.h>

/* A layout of one axis over ranks 0 .. rank_count-1, or with rank >= 0 over that rank alone. A
 * placement of NULL means R. */
RS_EXPORT reshard_status rs_layout_simple(reshard_context *context, int32_t rank_count,
                                          int32_t rank, const reshard_placement *placement,
                                          int32_t ndim, const int64_t *shape,
                                          reshard_layout **out_layout);
/* The same layout with another placement on its partial axes; the layout itself, retained, when it
 * has none. */
RS_EXPORT reshard_status rs_layout_replace_partial(reshard_layout *layout,
                                                   const reshard_placement *placement,
                                                   reshard_layout **out_layout);

/* The reduction of a partial layout; SUM for any other. */
RS_EXPORT reshard_reduction rs_layout_reduction(const reshard_layout *layout);
/* The axes along which shards differ: how many, or -1 when the layout is not made of cuts. */
RS_EXPORT int32_t rs_layout_list_axes(const reshard_layout *layout,
                                      int32_t out_axes[RESHARD_AXES_MAX]);
/* Every rank of the layout has the whole tensor. */
RS_EXPORT bool rs_layout_is_everywhere(const reshard_layout *layout);
/* Whether every rank has the same shards in both: true of equal layouts, and of two that leave the
 * tensor whole on one and the same rank, whatever their axes of size 1 would do to it. */
RS_EXPORT bool rs_layouts_lie_alike(const reshard_layout *a, const reshard_layout *b);

/* The text of the layout's spec for error messages, cut short where it is long. */
typedef struct rs_layout_words {
    char text[200];
} rs_layout_words;
RS_EXPORT rs_layout_words rs_layout_describe(const reshard_layout *layout);

#endif
