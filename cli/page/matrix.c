/* SPDX-License-Identifier: Apache-2.0 */
/* matrix.c - writes matrices as runs of equal numbers, with larger cells if there are too many
 * runs. */
#include "cli/page/pieces.h"

#include "cli/common/memory.h"

#include <stdlib.h>

/* Computes one row of cells: each is the sum of `cell` rows by `cell` columns. */
static void sum_row(int32_t rows, int32_t columns, const uint64_t *matrix, int32_t cell,
                    int32_t row, uint64_t *out)
{
    for (int32_t t = 0; t < columns; t++) {
        if (t % cell == 0)
            out[t / cell] = 0;
        for (int32_t s = row; s < row + cell && s < rows; s++)
            out[t / cell] += matrix[(int64_t)s * columns + t];
    }
}

/* How many cells from `begin` on hold the same number. */
static int32_t find_run(const uint64_t *cells, int32_t begin, int32_t count)
{
    int32_t end = begin + 1;
    while (end < count && cells[end] == cells[begin])
        end++;
    return end - begin;
}

static int64_t count_runs(int32_t rows, int32_t columns, const uint64_t *matrix, int32_t cell,
                          uint64_t *cells)
{
    int64_t runs = 0;
    int32_t count = (columns + cell - 1) / cell;
    for (int32_t s = 0; s < rows; s += cell) {
        sum_row(rows, columns, matrix, cell, s, cells);
        for (int32_t t = 0; t < count; t += find_run(cells, t, count))
            runs++;
    }
    return runs;
}

void cli_page_matrix(cli_json *json, const char *key, int32_t rows, int32_t columns,
                     const uint64_t *matrix)
{
    uint64_t *cells = cli_allocate((size_t)columns, sizeof *cells);
    int32_t cell = 1;
    while (count_runs(rows, columns, matrix, cell, cells) > CLI_PAGE_RUNS_MAX)
        cell *= 2;
    int32_t count = (columns + cell - 1) / cell;
    cli_json_begin_object(json, key);
    cli_json_integer(json, "rows", rows);
    cli_json_integer(json, "columns", columns);
    cli_json_integer(json, "cell", cell);
    cli_json_begin_list(json, "runs");
    for (int32_t s = 0; s < rows; s += cell) {
        sum_row(rows, columns, matrix, cell, s, cells);
        cli_json_begin_list(json, NULL);
        for (int32_t t = 0, length; t < count; t += length) {
            length = find_run(cells, t, count);
            cli_json_unsigned(json, NULL, cells[t]);
            cli_json_integer(json, NULL, length);
        }
        cli_json_end_list(json);
    }
    cli_json_end_list(json);
    cli_json_end_object(json);
    free(cells);
}
