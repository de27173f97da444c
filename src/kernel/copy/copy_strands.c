/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_strands.c - see rs_strands in kernels.h. Copies of one link between ranks come in any order,
 * so the place of each is found from where its first unit lies in the memory that they share.
 */
#include "kernel/copy/kernels.h"

#include "base/checked.h"

/* Swaps rows and columns if that makes the memory that is not shared dense along the columns. */
static rs_plane turn(const rs_plane *plane, bool apart)
{
    rs_plane turned = *plane;
    int64_t column = apart ? plane->target_column : plane->source_column;
    int64_t row = apart ? plane->target_row : plane->source_row;
    if (column != plane->unit && row == plane->unit) {
        turned.rows = plane->columns;
        turned.columns = plane->rows;
        turned.source_row = plane->source_column;
        turned.source_column = plane->source_row;
        turned.target_row = plane->target_column;
        turned.target_column = plane->target_row;
    }
    return turned;
}

/* Columns may differ, and the rows of the memory that is not shared may lie anywhere. */
static bool is_alike(const rs_plane *a, const rs_plane *b, bool apart)
{
    if (a->rows != b->rows || a->unit != b->unit)
        return false;
    if (apart)
        return a->target_column == a->unit && a->source_row == b->source_row &&
               a->source_column == b->source_column;
    return a->source_column == a->unit && a->target_row == b->target_row &&
           a->target_column == b->target_column;
}

static bool is_strand(const rs_copy *copy, const rs_plane *first, bool apart)
{
    rs_plane plane = turn(&copy->plane, apart);
    return copy->kernel != NULL && copy->nest.count == 0 && is_alike(&plane, first, apart);
}

/* The lowest address at which one of the copies begins in the shared memory. */
static const unsigned char *find_base(bool apart, const rs_plane *first, int32_t count,
                                      const rs_copy *const *copies, const void *const *sources,
                                      void *const *targets)
{
    const unsigned char *base = NULL;
    for (int32_t i = 0; i < count; i++) {
        const unsigned char *at = apart ? sources[i] : targets[i];
        if (is_strand(copies[i], first, apart) && (base == NULL || at < base))
            base = at;
    }
    return base;
}

bool rs_strands_find(rs_strands *strands, bool apart, int32_t count, const rs_copy *const *copies,
                     const void *const *sources, void *const *targets)
{
    if (count < 2 || copies[0]->kernel == NULL)
        return false;
    const rs_plane first = turn(&copies[0]->plane, apart);
    int64_t step = apart ? first.source_column : first.target_column, parts = step / first.unit;
    if (parts < 2 || parts > rs_min(count, RS_STRANDS_MAX) || step % first.unit != 0)
        return false;
    const unsigned char *base = find_base(apart, &first, count, copies, sources, targets);
    int32_t found = 0;
    memset(strands->indices, -1, sizeof strands->indices);
    strands->count = (int32_t)parts;
    strands->unit = first.unit;
    strands->columns = first.columns;
    for (int32_t i = 0; i < count && base != NULL; i++) {
        if (!is_strand(copies[i], &first, apart))
            continue;
        const unsigned char *at = apart ? sources[i] : targets[i];
        int64_t distance = at - base;
        int64_t place = distance / first.unit;
        if (distance % first.unit != 0 || place >= parts || strands->indices[place] >= 0)
            return false;
        strands->indices[place] = i;
        strands->planes[place] = turn(&copies[i]->plane, apart);
        strands->sources[place] = sources[i];
        strands->targets[place] = targets[i];
        strands->columns = rs_min(strands->columns, strands->planes[place].columns);
        found++;
    }
    return found == parts;
}

void rs_strands_copy_rests(const rs_strands *strands, int64_t row)
{
    const int64_t done = strands->columns;
    for (int32_t k = 0; k < strands->count; k++) {
        const rs_plane *plane = &strands->planes[k];
        rs_units_copy(strands->sources[k] + row * plane->source_row + done * plane->source_column,
                      plane->source_column,
                      strands->targets[k] + row * plane->target_row + done * plane->target_column,
                      plane->target_column, plane->unit, plane->columns - done);
    }
}

void rs_strands_begin_row(const rs_strands *strands, int64_t row, rs_staging *stages)
{
    for (int32_t k = 0; k < strands->count; k++) {
        const rs_plane *plane = &strands->planes[k];
        if (row > 0 && plane->target_row == plane->columns * plane->unit)
            continue;
        if (row > 0)
            rs_staging_end(&stages[k]);
        rs_staging_begin(&stages[k], strands->targets[k] + row * plane->target_row);
    }
}

void rs_strands_stage(const rs_strands *strands, int32_t strand, int64_t row, int64_t column,
                      int64_t end, rs_staging *stage)
{
    const rs_plane *plane = &strands->planes[strand];
    const unsigned char *source = strands->sources[strand] + row * plane->source_row;
    while (column < end) {
        int64_t count = rs_min(end - column, rs_staging_room(stage) / plane->unit);
        rs_units_copy(source + column * plane->source_column, plane->source_column,
                      rs_staging_next(stage), plane->unit, plane->unit, count);
        column += count;
        stage->fill += (size_t)(count * plane->unit);
        rs_staging_flush(stage);
    }
}
