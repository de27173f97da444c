/* SPDX-License-Identifier: Apache-2.0 */
/* copies.c - checks that boxes which a checkpoint stores more than once are equal. */
#include "base/context.h"
#include "checkpoint/engine/engine.h"

static bool has_copies(const rs_stored_tensor *tensor)
{
    return tensor->copy_count != 0 && tensor->bytes != 0;
}

/* Makes the routes to all copies, and cuts them into blocks. */
static reshard_status prepare(const reshard_checkpoint *checkpoint, rs_arena *arena,
                              size_t thread_bytes, rs_blocks *blocks)
{
    reshard_status status = RESHARD_OK;
    int64_t count = 0, made = 0;
    for (int64_t i = 0; i < checkpoint->tensor_count; i++)
        count += has_copies(&checkpoint->tensors[i]);
    rs_route *routes = rs_arena_allocate_array(arena, (size_t)count, sizeof *routes);
    if (routes == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < checkpoint->tensor_count; i++) {
        if (has_copies(&checkpoint->tensors[i]))
            status = rs_route_copies(arena, &checkpoint->tensors[i], &routes[made++]);
    }
    if (status == RESHARD_OK)
        status = rs_blocks_cut(blocks, arena, count, routes, thread_bytes, false);
    return status;
}

reshard_status rs_engine_check_copies(const reshard_checkpoint *checkpoint, const rs_team *team,
                                      const char *what, int32_t threads, size_t thread_bytes)
{
    rs_blocks blocks = {0};
    rs_arena arena;
    rs_arena_init(&arena, team->context);
    rs_file **files = NULL;
    reshard_status status = prepare(checkpoint, &arena, thread_bytes, &blocks);
    if (status == RESHARD_OK)
        status = rs_engine_list_files(&arena, checkpoint, &files);
    status = rs_team_agree(team, status);
    rs_engine engine = {.context = team->context,
                        .sink = &rs_sink_compare,
                        .what = rs_team_leads(team) ? what : NULL,
                        .blocks = &blocks,
                        .sources = files,
                        .targets = files,
                        .threads = threads};
    if (status == RESHARD_OK && blocks.count != 0)
        status = rs_engine_run_shared(&engine, team);
    rs_arena_release(&arena);
    return status;
}
