/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.c - a trainer's weights become an engine's, between threads. Two ranks hold q, k and v,
 * cut by rows as FSDP does. A map says how an engine fuses them, and its links make a plan to two
 * ranks that each hold whole heads of the fused tensor. The same map, read from the other side,
 * would take the fused tensor apart again.
 */
#include <reshard/map.h>
#include <reshard/reshard.h>

#include "examples/example.h"

#include <stdio.h>
#include <string.h>

/* Two groups, each with two query heads, a key head and a value head of two rows. */
enum { RANKS = 2, HEAD = 2, COLUMNS = 3, QUERY = 8, KEY = 4, FUSED = QUERY + 2 * KEY };

static const char text[] =
    "map trainer engine\n"
    "let g = $num_key_value_heads, h = $head_dim\n"
    "layers.{n}.q.weight [(g q h) ..],\n"
    "layers.{n}.{k,v}.weight [(g h) ..] = layers.{n}.qkv.weight [(g (q h + h + h)) ..]\n"
    "freqs drop =\n";

static const char *const sets[] = {"num_key_value_heads=2", "head_dim=2"};

static const reshard_map_tensor trained[] = {
    {"layers.0.q.weight", RESHARD_F32, 2, (const int64_t[]){QUERY, COLUMNS}},
    {"layers.0.k.weight", RESHARD_F32, 2, (const int64_t[]){KEY, COLUMNS}},
    {"layers.0.v.weight", RESHARD_F32, 2, (const int64_t[]){KEY, COLUMNS}},
    {"freqs", RESHARD_F32, 1, (const int64_t[]){HEAD}},
};
enum { TRAINED = sizeof trained / sizeof *trained };

typedef struct job {
    reshard_plan *plan;
    float q[QUERY][COLUMNS], k[KEY][COLUMNS], v[KEY][COLUMNS], fused[FUSED][COLUMNS];
} job;

/* ---- the map --------------------------------------------------------------------------------- */

static reshard_status print_result(const reshard_map *map, const reshard_map_result *result)
{
    reshard_status status = RESHARD_OK;
    char canonical[512];
    size_t length;
    reshard_map_result_info info = {.size = sizeof info};
    TRY(reshard_map_print(map, canonical, sizeof canonical, &length));
    printf("%s to %s:\n%s", reshard_map_naming(map, RESHARD_MAP_LEFT),
           reshard_map_naming(map, RESHARD_MAP_RIGHT), canonical);
    TRY(reshard_map_result_get_info(result, &info));
    for (int64_t t = 0; t < info.target_count; t++) {
        reshard_map_target target = {.size = sizeof target};
        TRY(reshard_map_result_target(result, t, &target));
        printf("%s comes from", target.name);
        for (int64_t l = 0; l < target.link_count; l++) {
            reshard_strided_link link = {.size = sizeof link};
            TRY(reshard_map_result_link(result, target.link_first + l, &link));
            printf(" %s", trained[link.source].name);
        }
        printf(" (line %d)\n", target.line);
    }
    for (int64_t i = 0; i < TRAINED; i++) {
        reshard_map_use use = {.size = sizeof use};
        TRY(reshard_map_result_use(result, i, &use));
        if (use.fate == RESHARD_MAP_DROPPED)
            printf("%s is left out (line %d)\n", trained[i].name, use.line);
    }
out:
    return status;
}

/* The links of a result, as a plan from ranks that are cut by rows to ranks that hold groups. */
static reshard_status make_plan(const reshard_map_result *result, reshard_plan **out_plan)
{
    reshard_status status = RESHARD_OK;
    reshard_plan_tensor sources[TRAINED] = {{0}}, target = {.dtype = RESHARD_F32};
    reshard_map_target fused = {.size = sizeof fused};
    reshard_strided_link links[8];
    reshard_map_result_info info = {.size = sizeof info};
    TRY(reshard_map_result_get_info(result, &info));
    int64_t count = info.link_count;
    for (int i = 0; i < TRAINED; i++) {
        sources[i] = (reshard_plan_tensor){trained[i].name, NULL, trained[i].dtype};
        TRY(reshard_layout_parse(NULL, "fsdp=2: S(0)", trained[i].ndim, trained[i].shape,
                                 &sources[i].layout));
    }
    TRY(reshard_map_result_target(result, 0, &fused));
    target.name = fused.name;
    TRY(reshard_layout_parse(NULL, "tp=2: S(0)", fused.ndim, fused.shape, &target.layout));
    for (int64_t l = 0; l < count; l++) {
        links[l].size = sizeof links[l];
        TRY(reshard_map_result_link(result, l, &links[l]));
    }
    TRY(reshard_plan_create_strided(NULL, TRAINED, sources, 1, &target, (int32_t)count, links, NULL,
                                    out_plan));
    TRY(reshard_plan_check(*out_plan));
out:
    for (int i = 0; i < TRAINED; i++)
        reshard_layout_release(sources[i].layout);
    reshard_layout_release(target.layout);
    return status;
}

static reshard_status use_map(reshard_map *map, reshard_plan **out_plan)
{
    reshard_status status = RESHARD_OK;
    reshard_map_result *result = NULL;
    TRY(reshard_map_resolve(
        map, RESHARD_MAP_LEFT, TRAINED, trained,
        RESHARD_OPTIONS(reshard_map_resolve_options, .set_count = 2, .sets = sets), &result));
    TRY(print_result(map, result));
    TRY(make_plan(result, out_plan));
out:
    reshard_map_result_destroy(result);
    return status;
}

/* ---- the ranks ------------------------------------------------------------------------------- */

static reshard_status run_rank(void *user, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    job *work = user;
    int32_t rank = reshard_group_rank(group);
    float freqs[HEAD / RANKS] = {0};
    reshard_exec *exec = NULL;
    TRY(reshard_exec_create(NULL, work->plan, group, NULL, &exec));
    const void *sources[] = {work->q[rank * QUERY / RANKS], work->k[rank * KEY / RANKS],
                             work->v[rank * KEY / RANKS], freqs};
    void *targets[] = {work->fused[rank * FUSED / RANKS]};
    TRY(reshard_exec_start(exec, sources, targets));
    TRY(reshard_exec_wait(exec));
out:
    reshard_exec_destroy(exec);
    return status;
}

/* Each group has four rows of q, then two of k, then two of v. */
static reshard_status check_rows(const job *work)
{
    for (int row = 0; row < FUSED; row++) {
        int group = row / 8, place = row % 8;
        const float *expected = place < 4   ? work->q[group * 4 + place]
                                : place < 6 ? work->k[group * 2 + place - 4]
                                            : work->v[group * 2 + place - 6];
        if (memcmp(work->fused[row], expected, sizeof work->fused[row]) != 0)
            return check(0, "a row is wrong");
    }
    return RESHARD_OK;
}

int main(void)
{
    static job work;
    for (int i = 0; i < QUERY * COLUMNS; i++)
        work.q[i / COLUMNS][i % COLUMNS] = (float)i;
    for (int i = 0; i < KEY * COLUMNS; i++) {
        work.k[i / COLUMNS][i % COLUMNS] = (float)(100 + i);
        work.v[i / COLUMNS][i % COLUMNS] = (float)(200 + i);
    }
    reshard_status status = RESHARD_OK;
    reshard_map *map = NULL;
    TRY(reshard_map_parse(NULL, text, sizeof text - 1, NULL, &map));
    TRY(use_map(map, &work.plan));
    TRY(reshard_group_run(NULL, RANKS, run_rank, &work));
    TRY(check_rows(&work));
out:
    reshard_map_release(map);
    reshard_plan_release(work.plan);
    return finish(status);
}
