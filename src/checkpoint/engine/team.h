/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.h - the ranks that share work on one set of files: a group, or one process alone. With one
 * rank nothing here communicates. Calls are Collective unless they say Local.
 */
#ifndef RS_CHECKPOINT_ENGINE_TEAM_H
#define RS_CHECKPOINT_ENGINE_TEAM_H

#include <reshard/group.h>

#include <stdbool.h>

typedef struct rs_team {
    reshard_context *context;
    reshard_group *group; /* not retained; NULL: alone */
    int32_t rank, rank_count;
} rs_team;

/* group may be NULL. Local. */
rs_team rs_team_of(reshard_context *context, reshard_group *group);
/* Whether this is rank 0, which makes files and shows progress. Local. */
bool rs_team_leads(const rs_team *team);
/* How many threads a rank uses when its user asks for `asked`: 0 means the processors, up to 8,
 * divided by the ranks. Local. */
int32_t rs_team_thread_count(const rs_team *team, int32_t asked);
/* The same for a number that may be anything. Errors: RANGE. Local. */
reshard_status rs_team_choose_threads(const rs_team *team, int32_t asked, int32_t *out_threads);

/* As reshard_group_agree. */
reshard_status rs_team_agree(const rs_team *team, reshard_status status);
/* `bytes` bytes from each rank, in rank order. The caller releases them: rank_count * bytes. */
reshard_status rs_team_gather(const rs_team *team, const void *mine, size_t bytes, void **out_all);
/* Gives all ranks the number that rank 0 passes. status: as rs_team_agree. */
reshard_status rs_team_tell(const rs_team *team, reshard_status status, uint64_t *number);
/* rs_team_agree, and then: do all ranks have the same digest of what they are about to do? `what`
 * names it in the error text. Errors: MISMATCH, naming the odd rank. */
reshard_status rs_team_compare(const rs_team *team, reshard_status status, const char *what,
                               const uint64_t digest[2]);

#endif
