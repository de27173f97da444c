/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.h - who holds which box, as a page draws it. */
#ifndef CLI_PAGE_PIECES_H
#define CLI_PAGE_PIECES_H

#include "cli/page/page.h"

#include <reshard/reshard.h>

/* How many boxes one page holds, and one picture of it: some 30 bytes each. */
enum { CLI_PAGE_PIECES_MAX = 60000, CLI_PAGE_PICTURE_PIECES_MAX = 6000 };

/*
 * Writes an object: `shape`, `ranks` (how many take part), `pieces`, a flat list in which each box
 * is its first rank, the number of ranks from there on that hold it, its offsets and its sizes, and
 * `partial`, the reduction, if shards are contributions. `ranks_shown` and `pieces_cut` tell what
 * is missing: ranks beyond the first, and whether some rank has more pieces than are listed. Errors
 * are the library's.
 */
reshard_status cli_page_layout(cli_page *page, const char *key, const reshard_layout *layout);

/* The same for a tensor of a checkpoint as it is stored; ranks are files. */
reshard_status cli_page_stored(cli_page *page, const char *key,
                               const reshard_checkpoint *checkpoint, int64_t tensor);

#endif
