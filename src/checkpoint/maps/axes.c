/* SPDX-License-Identifier: Apache-2.0 */
/* axes.c - the axes of links: in the order of the target, and as few as possible. */
#include "checkpoint/maps/resolve.h"

static bool comes_before(const reshard_link_axis *a, const reshard_link_axis *b)
{
    return a->target_dim != b->target_dim ? a->target_dim < b->target_dim
                                          : a->target_step > b->target_step;
}

void rs_map_add_axis(reshard_link_axis *axes, int32_t *count, reshard_link_axis axis)
{
    int32_t at = (*count)++;
    for (; at > 0 && comes_before(&axis, &axes[at - 1]); at--)
        axes[at] = axes[at - 1];
    axes[at] = axis;
}

int32_t rs_map_join_axes(reshard_link_axis *axes, int32_t count)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < count; i++) {
        reshard_link_axis *last = kept > 0 ? &axes[kept - 1] : NULL;
        if (last != NULL && last->source_dim == axes[i].source_dim &&
            last->target_dim == axes[i].target_dim &&
            last->source_step == axes[i].source_step * axes[i].size &&
            last->target_step == axes[i].target_step * axes[i].size) {
            last->size *= axes[i].size;
            last->source_step = axes[i].source_step;
            last->target_step = axes[i].target_step;
        } else {
            axes[kept++] = axes[i];
        }
    }
    return kept;
}
