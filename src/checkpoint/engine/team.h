/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.h - the ranks that share the work on one set of files: a group, or a single process. With
 * one rank, nothing here communicates. Calls are Collective unless they say Local.
 */
#ifndef RS_CHECKPOINT_ENGINE_TEAM_H
#define RS_CHECKPOINT_ENGINE_TEAM_H

#include <reshard/group.h>

#include <stdbool.h>

typedef struct rs_team {
    reshard_context *context;
    reshard_group *group; /* not retained; NULL: a single process */
    int32_t rank, rank_count;
} rs_team;

/* group may be NULL. Local. */
rs_team rs_team_of(reshard_context *context, reshard_group *group);
/* Whether this is rank 0, which creates files and shows progress. Local. */
bool rs_team_leads(const rs_team *team);
/* How many threads a rank uses if its user asks for `asked`. 0 means one for each processor, up to
 * 8, divided by the number of ranks. Errors: INVALID, RANGE. Local. */
reshard_status rs_team_choose_threads(const rs_team *team, int32_t asked, int32_t *out_threads);

/* Like reshard_group_agree. */
reshard_status rs_team_agree(const rs_team *team, reshard_status status);
/* Gathers `bytes` bytes from each rank, in rank order. The caller releases rank_count * bytes. */
reshard_status rs_team_gather(const rs_team *team, const void *mine, size_t bytes, void **out_all);
/* Gives all ranks the number that rank 0 passes. `status` is agreed on as in rs_team_agree. */
reshard_status rs_team_tell(const rs_team *team, reshard_status status, uint64_t *number);
/* Agrees on status as rs_team_agree does, then checks that all ranks have the same digest of what
 * they are about to do. `what` names it in the error text. Errors: MISMATCH, naming the odd
 * rank. */
reshard_status rs_team_compare(const rs_team *team, reshard_status status, const char *what,
                               const uint64_t digest[2]);

#endif
