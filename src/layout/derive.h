/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derive.h - simple layouts, layouts derived from other layouts, and short questions about layouts.
 */
#ifndef RS_LAYOUT_DERIVE_H
#define RS_LAYOUT_DERIVE_H

#include <reshard/layout.h>

#include "base/export.h"

#include <stdbool.h>

/* Makes a layout of a spec, which is taken over; `status` is the result of making that. */
RS_EXPORT reshard_status rs_layout_take(reshard_context *context, reshard_status status,
                                        reshard_spec *spec, int32_t ndim, const int64_t *shape,
                                        reshard_layout **out_layout);
/* A layout with one axis over ranks 0 .. rank_count-1 or, if rank >= 0, over that rank alone. A
 * NULL placement means R. */
RS_EXPORT reshard_status rs_layout_simple(reshard_context *context, int32_t rank_count,
                                          int32_t rank, const reshard_placement *placement,
                                          int32_t ndim, const int64_t *shape,
                                          reshard_layout **out_layout);
/* A copy in another context, which shares nothing with the layout. */
reshard_status rs_layout_clone(reshard_context *context, const reshard_layout *layout,
                               reshard_layout **out_layout);
/* The same layout with another placement on its partial axes. If it has none, the layout itself is
 * retained and returned. */
RS_EXPORT reshard_status rs_layout_replace_partial(reshard_layout *layout,
                                                   const reshard_placement *placement,
                                                   reshard_layout **out_layout);

/* The reduction of a partial layout; SUM for any other. */
RS_EXPORT reshard_reduction rs_layout_reduction(const reshard_layout *layout);
/* Lists the axes along which shards differ and returns their number, or -1 if the layout is not
 * made of cuts. */
RS_EXPORT int32_t rs_layout_list_axes(const reshard_layout *layout,
                                      int32_t out_axes[RESHARD_AXES_MAX]);
/* Whether every rank of the layout holds the whole tensor. */
RS_EXPORT bool rs_layout_is_everywhere(const reshard_layout *layout);
/* Whether every rank has the same shards in both layouts. True for equal layouts, and for two
 * layouts that put the whole tensor on the same single rank, whatever their axes of size 1 say. */
RS_EXPORT bool rs_layouts_lie_alike(const reshard_layout *a, const reshard_layout *b);

/* The text of the layout's spec for error messages, truncated if it is long. */
typedef struct rs_layout_words {
    char text[200];
} rs_layout_words;
RS_EXPORT rs_layout_words rs_layout_describe(const reshard_layout *layout);

#endif
