/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.h - how much work or memory a short input may ask for. A spec of twenty bytes can stand
 * for 2^63 pieces or 2^31 ranks, so everything that is listed, or visited one by one, has a limit
 * here. Beyond it a call fails with RESHARD_ERR_RANGE and says the number, before it has allocated
 * or computed much. Regular layouts are arithmetic and need no limit. docs/limits.md lists these
 * limits and their tests.
 */
#ifndef RS_BASE_LIMITS_H
#define RS_BASE_LIMITS_H

#include <stdint.h>

/* Pieces in one list of shards: about 1 GB. */
#define RS_PIECES_LISTED_MAX ((int64_t)1 << 22)

/* Intervals, regions and matches visited for one rank's part of a plan: a few seconds. */
#define RS_PART_STEPS_MAX ((int64_t)1 << 26)

/* Records of one link in one rank's part: about 1 GB. A test lowers it. */
#ifndef RS_RECORDS_MAX
#define RS_RECORDS_MAX ((int64_t)1 << 22)
#endif

/* Boxes that the links of one target fill, and gaps between them: about 100 MB. Strided links need
 * more than one box each only if their steps do not divide each other. */
#define RS_LINK_BOXES_MAX ((int64_t)1 << 18)

/* Single moves in one list, such as a stream or the moves that a check compares with each other. */
#define RS_MOVES_LISTED_MAX ((int64_t)1 << 24)

/* Pieces that a check of a plan looks at, for all single moves together: a few seconds. */
#define RS_CHECK_STEPS_MAX ((int64_t)1 << 32)

/* Ranks whose parts are computed for the figures, the check or the balance of a whole plan, and the
 * steps that all of these parts take together: a few seconds. */
#define RS_WHOLE_RANKS_MAX ((int32_t)1 << 20)
#define RS_WHOLE_STEPS_MAX ((int64_t)1 << 28)

/* Moves and demands that an exact balance keeps: about 1 GB. */
#define RS_BALANCED_MAX ((int64_t)1 << 19)

/* Ranks of a mesh that are not evenly spaced and so have to be listed. */
#define RS_MESH_LISTED_MAX ((int64_t)1 << 24)

/* Cells that overlapping boxes are cut into, and the holders of all cells together. Each limit is a
 * number per piece, but no less than the number that ends in _LEAST. */
#define RS_CELLS_PER_PIECE_MAX 64
#define RS_CELLS_MAX_LEAST 100000
#define RS_CELL_HOLDERS_PER_PIECE_MAX 64
#define RS_CELL_HOLDERS_MAX_LEAST 4000000

#endif
