/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 02_plan.c - introduces plans: two layouts make a plan, before there is a byte to move. It is
 * asked what it costs, proven, and taken apart: what rank 1 of four has to do when rows become
 * columns.
 */
#include <reshard/plan_inspect.h>
#include <reshard/reshard.h>

#include "examples/example.h"

int main(void)
{
    reshard_status status = RESHARD_OK;
    int64_t shape[] = {8192, 8192};
    reshard_layout *rows = NULL, *columns = NULL;
    reshard_plan *plan = NULL;
    reshard_part *part = NULL;
    reshard_plan_stats stats = {.size = sizeof stats};
    TRY(reshard_layout_parse(NULL, "4: S(0)", 2, shape, &rows));
    TRY(reshard_layout_parse(NULL, "4: S(1)", 2, shape, &columns));
    TRY(reshard_plan_create_simple(NULL, rows, columns, RESHARD_F32, NULL, &plan));
    TRY(reshard_plan_get_stats(plan, &stats, NULL));
    TRY(reshard_plan_check(plan)); /* every element arrives exactly once */
    printf("%llu of %llu bytes go to another rank\n", (unsigned long long)stats.bytes_moved,
           (unsigned long long)stats.bytes_total);

    TRY(reshard_part_create(NULL, plan, 1, &part));
    const reshard_moves *receives = &reshard_part_link(part, 0, 0)->receives;
    for (int64_t i = 0; i < receives->count; i++) {
        const reshard_move *move = &receives->items[i];
        printf("rank 1 receives %lld boxes of %lldx%lld, the first from rank %d\n",
               (long long)reshard_move_count(move), (long long)move->size[0],
               (long long)move->size[1], move->source_rank);
    }
out:
    reshard_part_destroy(part);
    reshard_plan_release(plan);
    reshard_layout_release(columns);
    reshard_layout_release(rows);
    return finish(status);
}
