/* SPDX-License-Identifier: Apache-2.0 */
/* team.c - what ranks that share work ask and tell each other. */
#include "checkpoint/engine/team.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "system/pool.h"
#include "transport/agree.h"

#include <string.h>
#include <unistd.h>

rs_team rs_team_of(reshard_context *context, reshard_group *group)
{
    rs_team team = {.context = context, .rank_count = 1};
    if (group != NULL && reshard_group_size(group) > 1) {
        team.group = group;
        team.rank = reshard_group_rank(group);
        team.rank_count = reshard_group_size(group);
    }
    return team;
}

bool rs_team_leads(const rs_team *team)
{
    return team->rank == 0;
}

static int32_t count_threads(const rs_team *team, int32_t asked)
{
    if (asked != 0 || team->group == NULL)
        return rs_pool_thread_count(asked);
    /* The ranks are taken to be on one machine and to share its processors. */
    int64_t share = sysconf(_SC_NPROCESSORS_ONLN) / team->rank_count;
    return rs_pool_thread_count((int32_t)rs_max(1, rs_min(share, rs_pool_thread_count(0))));
}

reshard_status rs_team_choose_threads(const rs_team *team, int32_t asked, int32_t *out_threads)
{
    if (asked < 0)
        return rs_fail(RESHARD_ERR_INVALID,
                       "%d threads are too few; give 1 or more, or 0 for the default", (int)asked);
    if (asked > RS_POOL_THREADS_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "%d threads are too many; give at most %d", (int)asked,
                       RS_POOL_THREADS_MAX);
    *out_threads = count_threads(team, asked);
    return RESHARD_OK;
}

reshard_status rs_team_agree(const rs_team *team, reshard_status status)
{
    return team->group != NULL ? reshard_group_agree(team->group, status) : status;
}

reshard_status rs_team_gather(const rs_team *team, const void *mine, size_t bytes, void **out_all)
{
    size_t count = (size_t)team->rank_count;
    void *all = rs_allocate_array(team->context, count, bytes);
    reshard_status status = rs_team_agree(team, all != NULL ? RESHARD_OK : rs_allocation_status());
    if (status == RESHARD_OK && team->group != NULL)
        status = reshard_group_gather_bytes(team->group, mine, bytes, all);
    else if (status == RESHARD_OK)
        memcpy(all, mine, bytes);
    if (status == RESHARD_OK)
        *out_all = all;
    else
        rs_release(team->context, all);
    return status;
}

reshard_status rs_team_tell(const rs_team *team, reshard_status status, uint64_t *number)
{
    if (team->group == NULL)
        return status;
    /* The agreement yields the largest number, so the other ranks pass zero. */
    uint64_t numbers[RS_AGREE_NUMBERS] = {rs_team_leads(team) ? *number : 0};
    status = rs_group_agree_on(team->group, status, NULL, numbers);
    if (status == RESHARD_OK)
        *number = numbers[0];
    return status;
}

reshard_status rs_team_compare(const rs_team *team, reshard_status status, const char *what,
                               const uint64_t digest[2])
{
    const rs_claim claim = {.digest = {digest[0], digest[1]}, .what = what};
    return team->group != NULL ? rs_group_agree_on(team->group, status, &claim, NULL) : status;
}
