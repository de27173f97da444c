/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.h - writes who holds which box, for the pictures of a page. */
#ifndef CLI_PAGE_PIECES_H
#define CLI_PAGE_PIECES_H

#include "cli/page/page.h"

#include <reshard/reshard.h>

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

#endif
