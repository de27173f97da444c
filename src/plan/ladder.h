/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ladder.h - run-length coding on several levels, in one pass: family.c folds moves, entries.c the
 * entries of one dim. An item is a member or, with loops, a regular family of members.
 *
 * Each level holds one run: its first item, the step from one to the next, and their number. An
 * item that continues the run of level 0 lengthens it. Any other item ends it: the run, now one
 * item with one more loop, goes to level 1 as if it had been added there, and so on upwards. Items
 * that leave the top, or have no room for another loop, are written.
 *
 * The including file defines three types and four functions before the include:
 *
 *     LADDER_PLACE  the numbers that change from one member to the next; also their differences
 *     LADDER_ITEM   has `first`, a place, and loop_count, loops[RS_LOOPS_MAX] of {count, step},
 *                   outermost first
 *     LADDER        has levels[RS_LOOPS_MAX] of {count, item, step}, all zero at the beginning
 *     same_form     whether two items differ in no more than `first`
 *     advance       first + index * step, for the items of one form
 *     same_place    whether two places of items of one form are equal
 *     write_item    what becomes of items in the end
 */
static reshard_status ladder_add(LADDER *ladder, int32_t level, const LADDER_ITEM *item);

/* Passes the run of a level on to the next one. Its loop becomes the outermost one. */
static reshard_status ladder_flush(LADDER *ladder, int32_t level)
{
    LADDER_ITEM *item = &ladder->levels[level].item;
    int64_t count = ladder->levels[level].count;
    ladder->levels[level].count = 0;
    if (count == 0)
        return RESHARD_OK;
    if (count > 1) {
        assert(item->loop_count < RS_LOOPS_MAX);
        memmove(&item->loops[1], &item->loops[0], (size_t)item->loop_count * sizeof *item->loops);
        item->loops[0].count = count;
        item->loops[0].step = ladder->levels[level].step;
        item->loop_count++;
    }
    return ladder_add(ladder, level + 1, item);
}

/* Whether the item is the next one of the level's run. The second one sets the step. */
static bool ladder_continues(LADDER *ladder, int32_t level, const LADDER_ITEM *item)
{
    LADDER_ITEM *run = &ladder->levels[level].item;
    int64_t count = ladder->levels[level].count;
    if (count == 0 || !same_form(run, item))
        return false;
    if (count == 1) {
        ladder->levels[level].step = advance(run, &item->first, &run->first, -1);
        return true;
    }
    LADDER_PLACE expected = advance(run, &run->first, &ladder->levels[level].step, count);
    return same_place(run, &expected, &item->first);
}

static reshard_status ladder_add(LADDER *ladder, int32_t level, const LADDER_ITEM *item)
{
    if (level == RS_LOOPS_MAX || item->loop_count == RS_LOOPS_MAX)
        return write_item(ladder, item);
    if (ladder_continues(ladder, level, item)) {
        ladder->levels[level].count++;
        return RESHARD_OK;
    }
    reshard_status status = ladder_flush(ladder, level);
    ladder->levels[level].item = *item;
    ladder->levels[level].count = 1;
    return status;
}

/* Writes what is left in the levels. */
static reshard_status ladder_finish(LADDER *ladder)
{
    reshard_status status = RESHARD_OK;
    for (int32_t level = 0; level < RS_LOOPS_MAX && status == RESHARD_OK; level++)
        status = ladder_flush(ladder, level);
    return status;
}
