/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/match.h"

#include "base/shape.h"

#include "base/error.h"
#include "base/limits.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

typedef struct search {
    const rs_link *link;
    const rs_link_side *mine, *theirs; /* mine: the side that the rank holds */
    rs_match match;
    const rs_region *my_region;
    rs_link_box my_box;
    const rs_region *their_region;
    rs_match_fn fn;
    void *user;
    int64_t steps;
    int64_t *all_steps; /* of all ranks that are asked for; or NULL */
} search;

static reshard_status meet(void *user, const rs_link_box *box)
{
    search *s = user;
    if (++s->steps > RS_PART_STEPS_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "what a rank holds meets more than %" PRId64 " boxes of the other side",
                       RS_PART_STEPS_MAX);
    if (s->all_steps != NULL && ++*s->all_steps > RS_WHOLE_STEPS_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "what all ranks hold meets more than %" PRId64 " boxes of the other side",
                       RS_WHOLE_STEPS_MAX);
    s->match.box = *box;
    if (!rs_box_clip(s->link->ndim, s->match.box.start, s->match.box.size, s->my_box.start,
                     s->my_box.size))
        return RESHARD_OK;
    assert(rs_volume(s->link->ndim, s->match.box.size) > 0);
    return s->fn(s->user, &s->match);
}

static reshard_status see_their_region(void *user, const rs_region *region)
{
    search *s = user;
    if (s->mine == &s->link->target)
        s->match.source = region;
    else
        s->match.target = region;
    if (!s->link->split)
        return rs_link_boxes(s->link, s->theirs, region->start, region->size, meet, s);
    /* If dims are split, a clipped region has other boxes than the whole one. Use those of the
     * whole one, so that both ends find the same. */
    int64_t start[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
    rs_region_whole(region, start, size);
    return rs_link_boxes(s->link, s->theirs, start, size, meet, s);
}

static reshard_status see_my_box(void *user, const rs_link_box *box)
{
    search *s = user;
    s->my_box = *box;
    int64_t start[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
    rs_link_bound(s->link, s->theirs, box, start, size);
    return rs_layout_visit(s->theirs->layout, start, size, see_their_region, s);
}

static reshard_status see_my_region(void *user, const rs_region *region, const rs_holder *holder)
{
    search *s = user;
    if (s->mine == &s->link->target)
        s->match.target = region;
    else
        s->match.source = region;
    s->match.mine = holder;
    return rs_link_boxes(s->link, s->mine, region->start, region->size, see_my_box, s);
}

static reshard_status run(const rs_link *link, const rs_link_side *mine, const rs_link_side *theirs,
                          int32_t rank, int64_t *all_steps, rs_match_fn fn, void *user)
{
    search s = {.link = link,
                .mine = mine,
                .theirs = theirs,
                .fn = fn,
                .user = user,
                .all_steps = all_steps};
    assert(mine != theirs && mine->layout != NULL && theirs->layout != NULL);
    s.match.link = link;
    return rs_layout_visit_held(mine->layout, rank, see_my_region, &s);
}

reshard_status rs_match_source(const rs_link *link, int32_t rank, rs_match_fn fn, void *user)
{
    return run(link, &link->source, &link->target, rank, NULL, fn, user);
}

reshard_status rs_match_target(const rs_link *link, int32_t rank, rs_match_fn fn, void *user)
{
    return run(link, &link->target, &link->source, rank, NULL, fn, user);
}

reshard_status rs_match_one_target(const rs_link *link, int32_t rank, int64_t *steps,
                                   rs_match_fn fn, void *user)
{
    return run(link, &link->target, &link->source, rank, steps, fn, user);
}
