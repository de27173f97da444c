/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crcs.h - checks that the files of a checkpoint still hold what their writers put there. Only
 * archives say so: they have a CRC for each member. Most members are a tensor that is read anyway,
 * so their CRCs are summed on the way.
 */
#ifndef RS_CHECKPOINT_ENGINE_CRCS_H
#define RS_CHECKPOINT_ENGINE_CRCS_H

#include "checkpoint/engine/file_route.h"
#include "checkpoint/engine/team.h"

typedef struct rs_crcs rs_crcs;

/* Prepares to check the CRCs of a checkpoint by what is read for these routes, which must outlive
 * the result. *out_crcs is NULL if there are no CRCs. */
reshard_status rs_crcs_create(const reshard_checkpoint *checkpoint, int64_t route_count,
                              const rs_route *routes, rs_crcs **out_crcs);
/* Takes NULL. */
void rs_crcs_destroy(rs_crcs *crcs);
/* Adds bytes that were read for a route at byte `at` of a file; `crcs` may be NULL. Any thread. */
void rs_crcs_add(rs_crcs *crcs, const rs_route *route, int32_t file, const void *bytes,
                 size_t count, uint64_t at);
/* Compares the CRCs. Those of which some bytes were not added are read now if reads_rest is set or
 * if they are short; *out_left is the number of the others, on every rank. `crcs` may be NULL.
 * Errors: CHECK, naming file and place; IO; CANCELLED. Collective. */
reshard_status rs_crcs_finish(rs_crcs *crcs, const rs_team *team, bool reads_rest,
                              int64_t *out_left);
/* Reads and checks everything that has a CRC. Errors: as rs_crcs_finish. Collective. */
reshard_status rs_crcs_check_all(const reshard_checkpoint *checkpoint, const rs_team *team);

#endif
