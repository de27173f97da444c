/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlap.c - streamed segment trees, after Zomorodian and Edelsbrunner ("Fast software for box
 * intersections", 2000).
 *
 * Two intervals overlap if one of them contains the first element of the other. So boxes play two
 * parts: holders contain, points are contained. search() looks for a holder and a point that
 * overlap in the dim of a level and in all dims of lower levels, where all points begin in the
 * interval `range` of that level's dim. Holders that contain all of the range contain every point
 * in it, so the lower levels decide about them, once for each assignment of the two parts. The
 * other holders are divided between two halves of the points. At level 0, a scan in sorted order
 * finds a pair or proves that there is none.
 *
 * Lists are reordered in place: a call may permute its holders and its points, but both sets stay
 * the same.
 */
#include "layout/overlap.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/sort.h"

#include <assert.h>

#define FEW 16 /* up to this many holders or points are compared one by one */

typedef struct interval {
    int64_t start, end;
} interval;

/* A non-empty box, in the dims in which boxes differ. */
typedef struct solid {
    int64_t box;
    interval levels[RESHARD_NDIM_MAX];
} solid;

typedef struct list {
    const solid **items;
    int64_t count;
} list;

typedef struct finder {
    int64_t *starts; /* scratch, one item for each box */
    bool found;
    int64_t pair[2];
} finder;

static bool take_if_pair(finder *f, const solid *a, const solid *b, int32_t level)
{
    if (a->box == b->box)
        return false;
    for (int32_t i = level; i >= 0; i--) {
        if (a->levels[i].start >= b->levels[i].end || b->levels[i].start >= a->levels[i].end)
            return false;
    }
    f->pair[0] = rs_min(a->box, b->box);
    f->pair[1] = rs_max(a->box, b->box);
    f->found = true;
    return true;
}

static void compare_all(finder *f, list holders, list points, int32_t level)
{
    for (int64_t i = 0; i < holders.count; i++) {
        for (int64_t j = 0; j < points.count; j++) {
            if (take_if_pair(f, holders.items[i], points.items[j], level))
                return;
        }
    }
}

static int compare_starts(const void *a, const void *b)
{
    const solid *x = *(const solid *const *)a, *y = *(const solid *const *)b;
    return (x->levels[0].start > y->levels[0].start) - (x->levels[0].start < y->levels[0].start);
}

/* The first point inside a holder, other than the holder itself, makes a pair. So the scan looks at
 * no more than two points for each holder. */
static void scan_sorted(finder *f, list holders, list points)
{
    rs_sort(holders.items, (size_t)holders.count, sizeof *holders.items, compare_starts);
    rs_sort(points.items, (size_t)points.count, sizeof *points.items, compare_starts);
    int64_t first = 0;
    for (int64_t i = 0; i < holders.count && !f->found; i++) {
        interval held = holders.items[i]->levels[0];
        while (first < points.count && points.items[first]->levels[0].start < held.start)
            first++;
        for (int64_t j = first; j < points.count && !f->found; j++) {
            if (points.items[j]->levels[0].start >= held.end)
                break;
            (void)take_if_pair(f, holders.items[i], points.items[j], 0);
        }
    }
}

/* Which boxes of a list are chosen. */
typedef enum choice { CONTAINING, TOUCHING, BEGINNING } choice;

static bool is_chosen(interval of, choice which, interval range)
{
    switch (which) {
    case CONTAINING:
        return of.start <= range.start && of.end >= range.end;
    case TOUCHING:
        return of.start < range.end && of.end > range.start;
    case BEGINNING:
        return of.start >= range.start && of.start < range.end;
    }
    return false;
}

/* Moves the chosen boxes to the front and returns the list of them. */
static list choose(list from, int32_t level, choice which, interval range)
{
    list chosen = {from.items, 0};
    for (int64_t i = 0; i < from.count; i++) {
        const solid *box = from.items[i];
        if (is_chosen(box->levels[level], which, range)) {
            from.items[i] = from.items[chosen.count];
            from.items[chosen.count++] = box;
        }
    }
    return chosen;
}

/* A place that divides the points into those that begin before it and those that do not, about half
 * each. If all points begin at the same place, the element after it. */
static int64_t choose_border(finder *f, list points, int32_t level)
{
    int64_t least = points.items[0]->levels[level].start;
    for (int64_t i = 0; i < points.count; i++) {
        f->starts[i] = points.items[i]->levels[level].start;
        least = rs_min(least, f->starts[i]);
    }
    int64_t middle = rs_select(f->starts, points.count, points.count / 2);
    if (middle > least)
        return middle;
    int64_t next = INT64_MAX;
    for (int64_t i = 0; i < points.count; i++) {
        if (f->starts[i] > least)
            next = rs_min(next, f->starts[i]);
    }
    return next < INT64_MAX ? next : least + 1;
}

static void search(finder *f, list holders, list points, int32_t level, interval range)
{
    static const interval anywhere = {INT64_MIN, INT64_MAX};
    if (holders.count == 0 || points.count == 0 || f->found)
        return;
    if (level == 0) {
        scan_sorted(f, holders, points);
        return;
    }
    if (holders.count <= FEW || points.count <= FEW) {
        compare_all(f, holders, points, level);
        return;
    }
    list containing = choose(holders, level, CONTAINING, range);
    search(f, containing, points, level - 1, anywhere);
    search(f, points, containing, level - 1, anywhere);
    list others = {holders.items + containing.count, holders.count - containing.count};
    int64_t border = choose_border(f, points, level);
    interval halves[2] = {{range.start, border}, {border, range.end}};
    if (choose(points, level, BEGINNING, halves[0]).count == points.count) {
        /* All points begin at border - 1, so a holder contains all of them or none. */
        halves[0].start = border - 1;
        list around = choose(others, level, CONTAINING, halves[0]);
        search(f, around, points, level - 1, anywhere);
        search(f, points, around, level - 1, anywhere);
        return;
    }
    for (int i = 0; i < 2; i++)
        search(f, choose(others, level, TOUCHING, halves[i]),
               choose(points, level, BEGINNING, halves[i]), level, halves[i]);
}

static bool differ_in(int32_t ndim, int64_t count, const int64_t *boxes, int32_t dim)
{
    for (int64_t i = 1; i < count; i++) {
        const int64_t *box = boxes + i * 2 * ndim;
        if (box[dim] != boxes[dim] || box[ndim + dim] != boxes[ndim + dim])
            return true;
    }
    return false;
}

/* Collects the non-empty boxes and returns their number. */
static int64_t collect(int32_t ndim, int64_t count, const int64_t *boxes, int32_t level_count,
                       const int32_t *dims, solid *out_solids)
{
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t *box = boxes + i * 2 * ndim;
        bool empty = false;
        for (int32_t d = 0; d < ndim; d++)
            empty = empty || box[d] >= box[ndim + d];
        if (empty)
            continue;
        out_solids[found].box = i;
        for (int32_t level = 0; level < level_count; level++)
            out_solids[found].levels[level] = (interval){box[dims[level]], box[ndim + dims[level]]};
        found++;
    }
    return found;
}

reshard_status rs_overlap_find(rs_arena *arena, int32_t ndim, int64_t count, const int64_t *boxes,
                               bool *out_found, int64_t out_pair[2])
{
    int32_t dims[RESHARD_NDIM_MAX], level_count = 0;
    for (int32_t d = 0; d < ndim; d++) {
        if (differ_in(ndim, count, boxes, d))
            dims[level_count++] = d;
    }
    size_t room = (size_t)count;
    solid *solids = rs_arena_allocate_array(arena, room, sizeof *solids);
    const solid **lists = rs_arena_allocate_array(arena, 2 * room, sizeof *lists);
    finder f = {.starts = rs_arena_allocate_array(arena, room, sizeof *f.starts)};
    if (solids == NULL || lists == NULL || f.starts == NULL)
        return rs_allocation_status();
    list holders = {lists, collect(ndim, count, boxes, level_count, dims, solids)};
    list points = {lists + count, holders.count};
    for (int64_t i = 0; i < holders.count; i++)
        holders.items[i] = points.items[i] = &solids[i];
    if (level_count != 0)
        search(&f, holders, points, level_count - 1, (interval){INT64_MIN, INT64_MAX});
    else if (holders.count > 1)
        (void)take_if_pair(&f, &solids[0], &solids[1], -1);
    *out_found = f.found;
    out_pair[0] = f.pair[0];
    out_pair[1] = f.pair[1];
    return RESHARD_OK;
}
