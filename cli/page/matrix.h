/* SPDX-License-Identifier: Apache-2.0 */
/* matrix.h - writes who hands how much to whom, small enough for a page. */
#ifndef CLI_PAGE_MATRIX_H
#define CLI_PAGE_MATRIX_H

#include "cli/common/json.h"

/* With more runs of equal numbers than this, cells of a matrix are joined. */
enum { CLI_PAGE_RUNS_MAX = 100000 };

/*
 * Writes an object with `rows`, `columns`, `cell` and `runs`. Each row of `runs` is a list of
 * pairs: a number of bytes, and how many consecutive cells have it. A cell is the sum of cell x
 * cell entries of the matrix; `cell` is 1 unless the matrix is too irregular.
 */
void cli_page_matrix(cli_json *json, const char *key, int32_t rows, int32_t columns,
                     const uint64_t *matrix);

#endif
