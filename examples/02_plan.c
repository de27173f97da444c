/* SPDX-License-Identifier: Apache-2.0 */
/* 02_plan.c - two layouts make a plan: what rank 1 of four has to do when rows become columns. */
#include <reshard/plan_inspect.h>
#include <reshard/reshard.h>

#include <stdio.h>

static int run(reshard_layout **rows, reshard_layout **columns, reshard_plan **plan,
               reshard_part **part)
{
    int64_t shape[] = {8192, 8192};
    if (reshard_layout_parse(NULL, "4: S(0)", 2, shape, rows) ||
        reshard_layout_parse(NULL, "4: S(1)", 2, shape, columns) ||
        reshard_plan_create_simple(NULL, *rows, *columns, RESHARD_F32, NULL, plan) ||
        reshard_part_create(NULL, *plan, 1, part))
        return fprintf(stderr, "%s\n", reshard_error_text());

    const reshard_part_moves *moves = reshard_part_link(*part, 0, 0);
    for (int64_t i = 0; i < moves->receives.count; i++) {
        const reshard_move *move = &moves->receives.items[i];
        printf("%lld boxes of %lldx%lld, the first from rank %d\n",
               (long long)reshard_move_count(move), (long long)move->size[0],
               (long long)move->size[1], move->source_rank);
    }
    return 0;
}

int main(void)
{
    reshard_layout *rows = NULL, *columns = NULL;
    reshard_plan *plan = NULL;
    reshard_part *part = NULL;
    int failed = run(&rows, &columns, &plan, &part);
    reshard_part_destroy(part);
    reshard_plan_release(plan);
    reshard_layout_release(columns);
    reshard_layout_release(rows);
    return failed != 0;
}
