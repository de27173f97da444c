/* SPDX-License-Identifier: Apache-2.0 */
/*
 * generate.h - random shapes, meshes, specs and cases. Small numbers, drawn where things go wrong:
 * 0, 1, primes, permuted and sparse ranks, several cuts of one dim, more ranks than elements.
 */
#ifndef TESTS_SUPPORT_GENERATE_H
#define TESTS_SUPPORT_GENERATE_H

#include "tests/support/oracle.h"
#include "tests/support/random.h"

enum {
    GENERATE_PARTIAL = 1, /* P may occur */
    GENERATE_LISTED = 2,  /* boxes and cover may occur, and ranks with several chunks */
    GENERATE_INVALID = 4, /* specs that do not suit the shape may occur now and then */
    GENERATE_TILING = 8,  /* every element exactly once: no R, P or cover over more than one rank */
    GENERATE_FEW_RANKS = 16 /* at most 5 */
};

/* At most volume_max elements. */
void generate_shape(draw_state *draw, int64_t volume_max, int32_t *out_ndim, int64_t *shape);
void generate_mesh(draw_state *draw, int32_t size_max, oracle_spec *spec);
/* The mesh and ranks must be there. */
void generate_cuts(draw_state *draw, int flags, int32_t ndim, const int64_t *shape,
                   oracle_spec *spec);
void generate_boxes(draw_state *draw, bool cover, int32_t ndim, const int64_t *shape,
                    oracle_spec *spec);
void generate_spec(draw_state *draw, int flags, int32_t ndim, const int64_t *shape,
                   oracle_spec *spec);
/* All ranks below ranks_max, which 0 leaves open. */
void generate_spec_within(draw_state *draw, int flags, int32_t ranks_max, int32_t ndim,
                          const int64_t *shape, oracle_spec *spec);

/* Cuts a box in at most `count_max` boxes that tile it, some of them like a pinwheel. Returns how
 * many. */
int32_t generate_tiling(draw_state *draw, int32_t ndim, const int64_t *shape, int32_t count_max,
                        reshard_box *boxes);

#endif
