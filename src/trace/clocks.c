/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/clocks.h"

#include "base/context.h"
#include "system/clock.h"
#include "transport/group.h"

#include <string.h>

enum { ROUND_TRIPS = 16 };

static uint64_t read_clock(void *user)
{
    (void)user;
    return rs_clock_now();
}

rs_trace_clock rs_trace_clock_here(void)
{
    rs_trace_clock clock = {.now = read_clock};
    rs_clock_identity(clock.identity);
    return clock;
}

/* Runs on rank 0: asks `rank` for its time ROUND_TRIPS times, and sends it the best measurement. */
static reshard_status ask(reshard_group *group, const rs_trace_clock *clock, int32_t rank)
{
    rs_clock_point best = {.round_trip = INT64_MAX};
    reshard_status status = RESHARD_OK;
    for (int i = 0; i < ROUND_TRIPS && status == RESHARD_OK; i++) {
        int64_t theirs = 0, asked = (int64_t)clock->now(clock->user);
        status = rs_group_send_small(group, rank, &asked, sizeof asked);
        if (status == RESHARD_OK)
            status = rs_group_receive_small(group, rank, &theirs, sizeof theirs);
        int64_t answered = (int64_t)clock->now(clock->user);
        if (status == RESHARD_OK && answered - asked < best.round_trip)
            best = (rs_clock_point){.local = theirs,
                                    .offset = asked + (answered - asked) / 2 - theirs,
                                    .round_trip = answered - asked};
    }
    if (best.round_trip == 0)
        best.round_trip = 1; /* 0 would mean that nothing was measured */
    return status == RESHARD_OK ? rs_group_send_small(group, rank, &best, sizeof best) : status;
}

static reshard_status answer(reshard_group *group, const rs_trace_clock *clock,
                             rs_clock_point *out_point)
{
    reshard_status status = RESHARD_OK;
    for (int i = 0; i < ROUND_TRIPS && status == RESHARD_OK; i++) {
        int64_t theirs;
        status = rs_group_receive_small(group, 0, &theirs, sizeof theirs);
        int64_t mine = (int64_t)clock->now(clock->user);
        if (status == RESHARD_OK)
            status = rs_group_send_small(group, 0, &mine, sizeof mine);
    }
    return status == RESHARD_OK ? rs_group_receive_small(group, 0, out_point, sizeof *out_point)
                                : status;
}

/* Whether both identities are known and equal. */
static bool is_same(const uint64_t *a, const uint64_t *b)
{
    return (a[0] != 0 || a[1] != 0) && a[0] == b[0] && a[1] == b[1];
}

reshard_status rs_clock_measure(reshard_group *group, const rs_trace_clock *clock,
                                rs_clock_point *out_point)
{
    rs_clock_point point = {.local = (int64_t)clock->now(clock->user)};
    if (group == NULL) {
        *out_point = point;
        return RESHARD_OK;
    }
    size_t bytes = (size_t)group->size * sizeof clock->identity;
    uint64_t *all = rs_allocate(group->context, bytes);
    reshard_status status =
        reshard_group_agree(group, all != NULL ? RESHARD_OK : rs_allocation_status());
    if (status == RESHARD_OK)
        status = reshard_group_gather_bytes(group, clock->identity, sizeof clock->identity, all);
    for (int32_t i = 1; i < group->size && status == RESHARD_OK; i++) {
        if (is_same(all, all + 2 * (size_t)i))
            continue;
        if (group->rank == 0)
            status = ask(group, clock, i);
        else if (group->rank == i)
            status = answer(group, clock, &point);
    }
    rs_release(group->context, all);
    if (status == RESHARD_OK)
        *out_point = point;
    return status;
}

int64_t rs_clock_at_zero(const rs_clock_line *line, uint64_t local)
{
    const rs_clock_point *begin = &line->begin, *end = &line->end;
    int64_t offset = begin->offset;
    if (end->local != begin->local)
        offset += (int64_t)((double)(end->offset - begin->offset) *
                            ((double)((int64_t)local - begin->local) /
                             (double)(end->local - begin->local)));
    return (int64_t)local + offset;
}
