/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.h - writes who holds which box, for the pictures of a page. */
#ifndef CLI_PAGE_PIECES_H
#define CLI_PAGE_PIECES_H

#include <reshard/reshard.h>

#include "cli/common/json.h"
#include "cli/page/page.h"

/* How many boxes one page, and one picture on it, may have; each takes some 30 bytes. */
enum { CLI_PAGE_PIECES_MAX = 60000, CLI_PAGE_PICTURE_PIECES_MAX = 6000 };

/*
 * Writes an object: `shape`; `ranks`, how many take part; `pieces`, a flat list in which each box
 * is its first rank, the number of consecutive ranks that hold it, its offsets and its sizes; and
 * `partial`, the reduction, if shards are contributions. `ranks_shown`, how many of the ranks are
 * listed, and `pieces_cut`, whether a rank has more pieces than are listed, say what is missing.
 * Errors are the library's.
 */
reshard_status cli_page_layout(cli_page *page, const char *key, const reshard_layout *layout);

/* The same for a tensor of a checkpoint as it is stored; ranks are files. */
reshard_status cli_page_stored(cli_page *page, const char *key,
                               const reshard_checkpoint *checkpoint, int64_t tensor);

/* matrix.c - writes who hands how much to whom, small enough for a page. */

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
