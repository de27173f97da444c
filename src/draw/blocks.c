/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.c - joins connected cells of a plane that look the same into a block, which has one
 * outline and one label.
 */
#include "base/context.h"
#include "draw/picture.h"

#include <assert.h>

typedef struct joining {
    const rs_picture *picture;
    rs_side *side;
    int32_t plane;
    int64_t *pending; /* cells of the current block whose neighbours are still to be visited */
    int64_t pending_count;
} joining;

static bool look_alike(const joining *state, int64_t a, int64_t b)
{
    return state->side->cells[a] == state->side->cells[b] &&
           state->picture->stays[a] == state->picture->stays[b];
}

static void join_cell(joining *state, int64_t cell, int32_t block)
{
    state->side->block_of[cell] = block;
    state->pending[state->pending_count++] = cell;
}

static void join_neighbour(joining *state, int64_t cell, int32_t row, int32_t column, int32_t block)
{
    const rs_picture *picture = state->picture;
    if (row < 0 || row >= picture->axes[RS_ROWS].count || column < 0 ||
        column >= picture->axes[RS_COLUMNS].count)
        return;
    int64_t other = rs_picture_cell(picture, state->plane, row, column);
    if (state->side->block_of[other] < 0 && look_alike(state, cell, other))
        join_cell(state, other, block);
}

/* Joins everything that is connected to a cell. */
static void flood(joining *state, int64_t cell, int32_t block)
{
    int32_t columns = state->picture->axes[RS_COLUMNS].count;
    int64_t first = rs_picture_cell(state->picture, state->plane, 0, 0);
    join_cell(state, cell, block);
    while (state->pending_count > 0) {
        int64_t at = state->pending[--state->pending_count];
        int32_t row = (int32_t)((at - first) / columns), column = (int32_t)((at - first) % columns);
        join_neighbour(state, at, row - 1, column, block);
        join_neighbour(state, at, row + 1, column, block);
        join_neighbour(state, at, row, column - 1, block);
        join_neighbour(state, at, row, column + 1, block);
    }
}

/* Whether exactly this run of a row's columns belongs to the block. */
static bool has_run(const joining *state, int32_t row, int32_t column, int32_t count, int32_t block)
{
    const rs_picture *picture = state->picture;
    if (row >= picture->axes[RS_ROWS].count)
        return false;
    const int32_t *blocks = state->side->block_of + rs_picture_cell(picture, state->plane, row, 0);
    int32_t end = column + count;
    if (column > 0 && blocks[column - 1] == block)
        return false;
    for (int32_t i = column; i < end; i++) {
        if (blocks[i] != block)
            return false;
    }
    return end == picture->axes[RS_COLUMNS].count || blocks[end] != block;
}

/* Offers the run that begins at a cell to its block, as a place for the label. */
static void offer_run(const joining *state, int32_t row, int32_t column)
{
    const rs_picture *picture = state->picture;
    const int32_t *blocks = state->side->block_of + rs_picture_cell(picture, state->plane, row, 0);
    rs_block *block = blocks[column] >= 0 ? &state->side->blocks[blocks[column]] : NULL;
    if (block == NULL || (column > 0 && blocks[column - 1] == blocks[column]))
        return;
    int32_t count = 1, row_count = 1;
    while (column + count < picture->axes[RS_COLUMNS].count &&
           blocks[column + count] == blocks[column])
        count++;
    if (count <= block->column_count)
        return;
    while (has_run(state, row + row_count, column, count, blocks[column]))
        row_count++;
    block->row = row;
    block->row_count = row_count;
    block->column = column;
    block->column_count = count;
}

static void join_plane(joining *state)
{
    const rs_picture *picture = state->picture;
    rs_side *side = state->side;
    int32_t rows = picture->axes[RS_ROWS].count, columns = picture->axes[RS_COLUMNS].count;
    int64_t first = rs_picture_cell(picture, state->plane, 0, 0);
    for (int64_t cell = first; cell < first + (int64_t)rows * columns; cell++) {
        if (side->cells[cell] < 0 || side->block_of[cell] >= 0)
            continue;
        side->blocks[side->block_count] =
            (rs_block){.set = side->cells[cell], .stay = (rs_stay)picture->stays[cell]};
        flood(state, cell, side->block_count++);
    }
    for (int32_t row = 0; row < rows; row++) {
        for (int32_t column = 0; column < columns; column++)
            offer_run(state, row, column);
    }
}

reshard_status rs_picture_join(rs_picture *picture)
{
    size_t count = (size_t)rs_picture_cell_count(picture);
    int64_t *pending = rs_arena_allocate_array(&picture->cells_arena, count, sizeof(int64_t));
    if (pending == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < picture->side_count; i++) {
        rs_side *side = &picture->sides[i];
        side->block_count = 0;
        side->blocks = rs_arena_allocate_array(&picture->cells_arena, count, sizeof *side->blocks);
        side->block_of =
            rs_arena_allocate_array(&picture->cells_arena, count, sizeof *side->block_of);
        if (side->blocks == NULL || side->block_of == NULL)
            return rs_allocation_status();
        for (size_t cell = 0; cell < count; cell++)
            side->block_of[cell] = -1;
        joining state = {.picture = picture, .side = side, .pending = pending};
        for (; state.plane < picture->axes[RS_PLANES].count; state.plane++)
            join_plane(&state);
    }
    return RESHARD_OK;
}
