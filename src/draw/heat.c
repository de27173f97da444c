/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heat.c - how much ranks hand to each other, for a heat map: the plan's matrix, with neighbouring
 * ranks summed up until it is small enough to look at.
 */
#include "base/checked.h"
#include "base/context.h"
#include "draw/canvas.h"
#include "draw/drawing.h"
#include "plan/plan.h"
#include "text/text.h"

#include <inttypes.h>
#include <stdio.h>

/* The matrix of this many ranks takes 8 MB. */
enum { RANKS_MAX = 1024 };

reshard_status rs_heat_init(rs_heat *heat, reshard_plan *plan, int32_t count_max, rs_arena *arena)
{
    int32_t n = rs_plan_forward(plan)->rank_count;
    *heat = (rs_heat){.context = arena->context, .rank_count = n};
    if (n == 0 || n > RANKS_MAX)
        return RESHARD_OK;
    size_t matrix_bytes = (size_t)n * (size_t)n * sizeof(uint64_t);
    reshard_plan_stats stats = {.size = sizeof stats};
    int32_t group = (n + count_max - 1) / count_max, count = (n + group - 1) / group;
    uint64_t *bytes = rs_arena_allocate_array(arena, (size_t)count * (size_t)count, sizeof *bytes);
    uint64_t *matrix = bytes != NULL ? rs_allocate(arena->context, matrix_bytes) : NULL;
    if (matrix == NULL)
        return rs_allocation_status();
    reshard_status status = reshard_plan_get_stats(plan, &stats, matrix);
    for (int32_t i = 0; i < count * count; i++)
        bytes[i] = 0;
    for (int64_t i = 0; status == RESHARD_OK && i < (int64_t)n * n; i++) {
        uint64_t *sum = &bytes[i / n / group * count + i % n / group];
        *sum += matrix[i];
        heat->most = *sum > heat->most ? *sum : heat->most;
    }
    rs_release(arena->context, matrix);
    /* Going through all ranks would take too many steps: draw the picture without the heat map. */
    if (status == RESHARD_ERR_RANGE)
        return RESHARD_OK;
    heat->bytes = bytes;
    heat->group = group;
    heat->count = status == RESHARD_OK ? count : 0;
    return status;
}

int rs_heat_level(const rs_heat *heat, uint64_t bytes)
{
    if (bytes == 0)
        return 0;
    double level = (double)bytes / (double)heat->most * (RS_HEAT_LEVELS - 1);
    return level <= 1 ? 1 : level <= 2 ? 2 : level <= 3 ? 3 : 4;
}

const char *rs_bytes_text(uint64_t bytes, char buffer[RS_BYTES_TEXT])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double shown = (double)bytes / 1024;
    int unit = 0;
    if (bytes < 1024) {
        snprintf(buffer, RS_BYTES_TEXT, "%" PRIu64 " B", bytes);
        return buffer;
    }
    for (; shown >= 1024 && unit < 5; unit++)
        shown /= 1024;
    rs_text text;
    rs_text_init(&text, buffer, RS_BYTES_TEXT);
    rs_text_add(&text, "%.3g %s", shown, units[unit]);
    return buffer;
}
