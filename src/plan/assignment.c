/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assignment.c - adds one row at a time. An entering row finds the cheapest path, in reduced costs,
 * that ends in a free column, and the rows along it change columns. Potentials keep all reduced
 * costs non-negative and those of assigned pairs zero, so that paths can be found by Dijkstra's
 * method. Costs are negated gains.
 *
 * Before that, rows take their own column if no other gains more. In practice, most do.
 */
#include "plan/assignment.h"

#include "base/arena.h"
#include "base/context.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

typedef struct solver {
    int32_t n;
    const int64_t *gains;
    int64_t *row_potential, *column_potential;
    int32_t *row_of_column; /* -1: free */
    int64_t *distance;      /* of each column from the entering row */
    int32_t *came_from;     /* the column before it on the path; -1 for the entering row */
    bool *done;
} solver;

static int64_t cost(const solver *s, int32_t row, int32_t column)
{
    return -s->gains[(int64_t)row * s->n + column] - s->row_potential[row] -
           s->column_potential[column];
}

static int32_t nearest_open_column(const solver *s)
{
    int32_t nearest = -1;
    for (int32_t c = 0; c < s->n; c++) {
        if (!s->done[c] && (nearest < 0 || s->distance[c] < s->distance[nearest]))
            nearest = c;
    }
    assert(nearest >= 0); /* there are more columns than rows that have entered */
    return nearest;
}

static void relax(solver *s, int32_t row, int32_t through, int64_t so_far)
{
    for (int32_t c = 0; c < s->n; c++) {
        int64_t distance = so_far + cost(s, row, c);
        assert(distance >= so_far); /* reduced costs are not negative */
        if (!s->done[c] && distance < s->distance[c]) {
            s->distance[c] = distance;
            s->came_from[c] = through;
        }
    }
}

static void enter_row(solver *s, int32_t row)
{
    for (int32_t c = 0; c < s->n; c++) {
        s->distance[c] = INT64_MAX;
        s->done[c] = false;
    }
    relax(s, row, -1, 0);
    int32_t end = nearest_open_column(s);
    while (s->row_of_column[end] >= 0) {
        s->done[end] = true;
        relax(s, s->row_of_column[end], end, s->distance[end]);
        end = nearest_open_column(s);
    }
    /* Change the potentials of the columns that are nearer than the end, and of their rows, by the
     * difference in distance. All pairs along the path then have reduced cost zero. */
    int64_t length = s->distance[end];
    s->row_potential[row] += length;
    for (int32_t c = 0; c < s->n; c++) {
        if (s->done[c]) {
            s->column_potential[c] -= length - s->distance[c];
            s->row_potential[s->row_of_column[c]] += length - s->distance[c];
        }
    }
    for (int32_t c = end; c >= 0;) {
        int32_t before = s->came_from[c];
        s->row_of_column[c] = before >= 0 ? s->row_of_column[before] : row;
        c = before;
    }
}

/* A row that gains most on its own column starts there. Its reduced cost there is zero, and its
 * others are not negative. */
static bool starts_at_home(solver *s, int32_t row)
{
    const int64_t *gains = s->gains + (int64_t)row * s->n;
    int64_t best = gains[0];
    for (int32_t c = 1; c < s->n; c++)
        best = gains[c] > best ? gains[c] : best;
    s->row_potential[row] = -best;
    if (gains[row] == best)
        s->row_of_column[row] = row;
    return gains[row] == best;
}

reshard_status rs_assignment_solve(reshard_context *context, int32_t n, const int64_t *gains,
                                   int32_t *out_column_of_row)
{
    rs_arena arena;
    rs_arena_init(&arena, context);
    size_t count = (size_t)n;
    solver s = {.n = n, .gains = gains};
    s.row_potential = rs_arena_allocate_array(&arena, count, sizeof *s.row_potential);
    s.column_potential = rs_arena_allocate_array(&arena, count, sizeof *s.column_potential);
    s.row_of_column = rs_arena_allocate_array(&arena, count, sizeof *s.row_of_column);
    s.distance = rs_arena_allocate_array(&arena, count, sizeof *s.distance);
    s.came_from = rs_arena_allocate_array(&arena, count, sizeof *s.came_from);
    s.done = rs_arena_allocate_array(&arena, count, sizeof *s.done);
    reshard_status status = RESHARD_OK;
    if (s.row_potential == NULL || s.column_potential == NULL || s.row_of_column == NULL ||
        s.distance == NULL || s.came_from == NULL || s.done == NULL)
        status = rs_allocation_status();
    if (status == RESHARD_OK && n > 0) {
        memset(s.column_potential, 0, count * sizeof *s.column_potential);
        memset(s.row_of_column, 0xff, count * sizeof *s.row_of_column);
        int32_t waiting = 0; /* rows still to enter, kept in the output for the moment */
        for (int32_t row = 0; row < n; row++) {
            if (!starts_at_home(&s, row))
                out_column_of_row[waiting++] = row;
        }
        for (int32_t i = 0; i < waiting; i++)
            enter_row(&s, out_column_of_row[i]);
        for (int32_t c = 0; c < n; c++) {
            assert(s.row_of_column[c] >= 0);
            out_column_of_row[s.row_of_column[c]] = c;
        }
    }
    rs_arena_release(&arena);
    return status;
}
