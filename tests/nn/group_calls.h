/* SPDX-License-Identifier: Apache-2.0 */
/* group_calls.h - one use of every public call that takes a group, with NULL for the group. */
#ifndef TESTS_NN_GROUP_CALLS_H
#define TESTS_NN_GROUP_CALLS_H

#include "spec/spec.h"
#include "tests/nn/folder.h"
#include "tests/nn/modules.h"
#include "tests/support/info.h"

#include <reshard/reshard.h>

/* What calls are made with: local tensors of 2x2, f64, with the number of the rank in `current`. */
typedef struct fixture {
    reshard_group *current; /* two of three ranks, in another order than in the world */
    int32_t rank;           /* in `current`, which has two */
    const char *round;      /* names files */
    double one, two[2];     /* a source and a target */
    reshard_spec *rows;     /* "2: S(0)" */
    reshard_tensor *local;
    reshard_module *module;
    reshard_sharding_plan *plan;
    reshard_optimizer *optimizer; /* of a distributed parameter */
    reshard_plan *move;
    reshard_scope *scope;
} fixture;

typedef reshard_status (*call_fn)(fixture *f);

/* ---- calls of group.h ------------------------------------------------------------------------ */

static reshard_status expect(bool holds, const char *what)
{
    return holds ? RESHARD_OK : reshard_error_set(RESHARD_ERR_CHECK, what);
}

/* Queries have no status: -1 or "none", and words. */
static reshard_status answer(int32_t found, int32_t expected)
{
    return found == -1 ? RESHARD_ERR_INVALID : expect(found == expected, "another group's answer");
}

static reshard_status call_rank(fixture *f)
{
    return answer(reshard_group_rank(NULL), f->rank);
}

static reshard_status call_size(fixture *f)
{
    (void)f;
    return answer(reshard_group_size(NULL), 2);
}

static reshard_status call_parent_rank(fixture *f)
{
    (void)f;
    return answer(reshard_group_parent_rank(NULL, 0), 2);
}

static reshard_status call_transport_name(fixture *f)
{
    (void)f;
    const char *name = reshard_group_transport_name(NULL);
    return strcmp(name, "none") == 0 ? RESHARD_ERR_INVALID
                                     : expect(strcmp(name, "threads") == 0, name);
}

static reshard_status call_subset(fixture *f)
{
    int32_t members[] = {1, 0};
    reshard_group *made = NULL;
    reshard_status status = reshard_group_subset(NULL, 2, members, &made);
    if (status == RESHARD_OK)
        status = expect(reshard_group_rank(made) == 1 - f->rank, "the subset of another group");
    reshard_group_release(made);
    return status;
}

static reshard_status call_barrier(fixture *f)
{
    (void)f;
    return reshard_group_barrier(NULL);
}

static reshard_status call_agree(fixture *f)
{
    (void)f;
    return reshard_group_agree(NULL, RESHARD_OK);
}

static reshard_status call_gather_bytes(fixture *f)
{
    reshard_status status = reshard_group_gather_bytes(NULL, &f->one, sizeof f->one, f->two);
    return status != RESHARD_OK ? status : expect(f->two[0] == 0 && f->two[1] == 1, "ranks");
}

static reshard_status call_alloc(fixture *f)
{
    void *memory = NULL;
    (void)f;
    reshard_status status = reshard_group_alloc(NULL, 64, &memory);
    if (status == RESHARD_OK)
        reshard_group_free(NULL, memory); /* LeakSanitizer tells if it is not */
    return status;
}

/* ---- calls of collective.h, device_mesh.h, exec.h, trace.h ----------------------------------- */

static reshard_status sums_up(const fixture *f, reshard_status status)
{
    return status != RESHARD_OK ? status : expect(f->two[0] == 1, "the sum of 0 and 1 is not 1");
}

/* Waits for a work, if there is one. */
static reshard_status complete(reshard_status status, reshard_work *work)
{
    if (status == RESHARD_OK)
        status = reshard_work_wait(work);
    reshard_work_destroy(work);
    return status;
}

static const int64_t each[] = {1, 1};

/* All kinds in turn, as one struct describes them; the last one is the sum. */
static reshard_status call_exchange_run(fixture *f)
{
    reshard_exchange exchange = {.size = sizeof exchange,
                                 .dtype = RESHARD_F64,
                                 .reduction = RESHARD_SUM,
                                 .count = 1,
                                 .send_counts = each,
                                 .receive_counts = each,
                                 .source = (double[]){f->one, 2},
                                 .target = f->two,
                                 .sources = (const void *[]){&f->one, &f->one},
                                 .targets = (void *[]){&f->two[0], &f->two[1]}};
    reshard_status status = RESHARD_OK;
    for (int kind = RESHARD_ALL_GATHER; kind <= RESHARD_ALL_TO_ALL; kind++) {
        exchange.kind = (reshard_exchange_kind)kind;
        if (status == RESHARD_OK)
            status = reshard_exchange_run(NULL, NULL, &exchange, NULL);
    }
    exchange.kind = RESHARD_ALL_REDUCE;
    reshard_work *work = NULL;
    if (status == RESHARD_OK)
        status = reshard_exchange_run(NULL, NULL, &exchange, &work);
    return sums_up(f, complete(status, work));
}

/* Rank 0 sends, rank 1 receives; without a group, f->rank is only a number. */
static reshard_status deliver(fixture *f, reshard_work **out_work)
{
    return f->rank == 0 ? reshard_send(NULL, NULL, RESHARD_F64, 1, 1, &f->one, out_work)
                        : reshard_receive(NULL, NULL, RESHARD_F64, 0, 1, f->two, out_work);
}

static reshard_status call_send(fixture *f)
{
    reshard_work *work = NULL;
    reshard_status status = deliver(f, NULL);
    if (status == RESHARD_OK)
        status = deliver(f, &work);
    return complete(status, work);
}

static reshard_status call_reshard_local_shard(fixture *f)
{
    reshard_chunks from = {.dim = 0, .count = 2}, to = {.dim = 1, .count = 2};
    return reshard_reshard_local_shard(NULL, NULL, 2, (int64_t[]){2, 2}, RESHARD_F64, &from, &to,
                                       (double[]){f->one, f->one}, f->two);
}

static reshard_status call_device_mesh_create(fixture *f)
{
    reshard_device_mesh *made = NULL;
    reshard_status status = reshard_device_mesh_create(NULL, NULL, f->rows->mesh, &made);
    if (status == RESHARD_OK)
        status = expect(info_device_mesh(made).position == f->rank, "another rank's position");
    reshard_device_mesh_release(made);
    return status;
}

static reshard_status call_device_mesh_parse(fixture *f)
{
    reshard_device_mesh *made = NULL;
    reshard_status status = reshard_device_mesh_parse(NULL, NULL, "2", &made);
    if (status == RESHARD_OK)
        status = expect(info_device_mesh(made).position == f->rank, "another rank's position");
    reshard_device_mesh_release(made);
    return status;
}

static reshard_status call_exec_create(fixture *f)
{
    reshard_exec *made = NULL;
    reshard_status status = reshard_exec_create(NULL, f->move, NULL, NULL, &made);
    reshard_exec_destroy(made);
    return status;
}

/* Without a group, a trace is of this process alone; each rank then needs a file of its own. */
static reshard_status call_trace_create(fixture *f)
{
    reshard_trace *made = NULL;
    char path[96];
    bool alone = reshard_current_group() == NULL;
    (void)snprintf(path, sizeof path, "%s/%s-%d.json", folder, f->round, alone ? f->rank : 2);
    reshard_status status = reshard_trace_create(NULL, NULL, path, NULL, &made);
    if (status == RESHARD_OK)
        status = reshard_trace_write(made);
    reshard_trace_destroy(made);
    return status;
}

/* ---- calls of distributed.h ------------------------------------------------------------------ */

/* Takes the reference. */
static reshard_status give_back(reshard_status status, const fixture *f, reshard_tensor *made)
{
    if (status == RESHARD_OK && reshard_tensor_layout(made) != NULL)
        status = expect(info_tensor(made).group == f->current, "another group");
    reshard_tensor_release(made);
    return status;
}

static reshard_status call_create_distributed(fixture *f)
{
    reshard_tensor *made = NULL;
    reshard_status status = reshard_tensor_create_distributed(NULL, NULL, f->rows, RESHARD_F64, 2,
                                                              (int64_t[]){4, 2}, &made);
    return give_back(status, f, made);
}

static reshard_status call_tensor_shard(fixture *f)
{
    reshard_tensor *made = NULL;
    reshard_status status = reshard_tensor_shard(NULL, NULL, f->rows, 0, f->local, &made);
    return give_back(status, f, made);
}

static reshard_status call_from_shards(fixture *f)
{
    reshard_tensor *made = NULL;
    reshard_local_shard shard = {f->local, {2 * f->rank, 0}};
    reshard_status status =
        reshard_tensor_from_shards(NULL, NULL, 2, (int64_t[]){4, 2}, 1, &shard, &made);
    return give_back(status, f, made);
}

static reshard_status call_create_shared(fixture *f)
{
    reshard_tensor *made = NULL;
    reshard_status status =
        reshard_tensor_create_shared(NULL, NULL, RESHARD_F64, 2, (int64_t[]){2, 2}, &made);
    return give_back(status, f, made);
}

/* The result of an operation belongs to the scope, which has the status. */
static reshard_status in_scope(const fixture *f, reshard_tensor *made)
{
    if (made == NULL)
        return reshard_scope_status(f->scope);
    return reshard_tensor_layout(made) != NULL && info_tensor(made).group != f->current
               ? expect(false, "another group")
               : RESHARD_OK;
}

#define OPERATION(name, ...)                                              \
    static reshard_status call_tensor_##name(fixture *f)                  \
    {                                                                     \
        return in_scope(f, reshard_tensor_##name(f->local, __VA_ARGS__)); \
    }

OPERATION(from_local, NULL, f->rows)

static reshard_status call_tensor_exchange(fixture *f)
{
    reshard_status status = RESHARD_OK;
    for (int kind = RESHARD_ALL_GATHER; kind < RESHARD_ALL_TO_ALL; kind++) {
        if (status == RESHARD_OK)
            status = in_scope(
                f, reshard_tensor_exchange(
                       f->local, NULL,
                       RESHARD_OPTIONS(reshard_exchange, .kind = (reshard_exchange_kind)kind,
                                       .send_counts = each, .receive_counts = each)));
    }
    return status;
}

/* ---- calls of modules ------------------------------------------------------------------------ */

static reshard_status call_shard_parameter(fixture *f)
{
    return reshard_module_shard_parameter(f->module, "0.weight", f->rows, 0, NULL);
}

static reshard_status call_module_shard(fixture *f)
{
    return reshard_module_shard(f->module, f->plan, 0, NULL, NULL);
}

/* The fixture's fourth layer, which no other call shards. */
static reshard_status call_parallelize(fixture *f)
{
    static const reshard_style style = {.size = sizeof style, .kind = RESHARD_STYLE_COLUMNS};
    const reshard_styled styled = {"3", &style};
    return reshard_module_parallelize(f->module, NULL, f->rows->mesh, 0, 1, &styled, NULL);
}

static reshard_status plan_third(void *user, reshard_module *module, reshard_sharding_plan *plan)
{
    (void)module;
    return reshard_sharding_plan_add(plan, "2.weight", user);
}

static reshard_status call_shard_planned(fixture *f)
{
    reshard_sharding_planner planner = {plan_third, f->rows};
    return reshard_module_shard_planned(f->module, &planner, 0, NULL, NULL);
}

/* The whole gradient has the norm 3: four twos would give 4, and half of it sqrt(4.5). */
static reshard_status call_clip(fixture *f)
{
    double norm = 0;
    reshard_status status = reshard_optimizer_clip(f->optimizer, NULL, 0, &norm);
    return status != RESHARD_OK ? status : expect(norm > 2.999 && norm < 3.001, "half of the norm");
}

static const char *checkpoint_path(const fixture *f, const char *name)
{
    static _Thread_local char path[96];
    (void)snprintf(path, sizeof path, "%s/%s-%s", folder, f->round, name);
    return path;
}

static reshard_status call_save_tensors(fixture *f)
{
    reshard_named_tensor named = {"x", f->local};
    return reshard_checkpoint_save_tensors(NULL, NULL, checkpoint_path(f, "tensors"), 1, &named,
                                           NULL);
}

/* Opens the checkpoint; without a group there is none, so the one that ranks share is taken. */
static reshard_checkpoint *open_saved(const fixture *f, const char *name)
{
    reshard_checkpoint *made = NULL;
    const char *path = checkpoint_path(f, name);
    if (reshard_current_group() == NULL)
        (void)snprintf((char *)path, 96, "%s/shared", folder);
    MUST(reshard_checkpoint_open(NULL, path, NULL, &made));
    return made;
}

static reshard_status call_load_tensors(fixture *f)
{
    reshard_checkpoint *saved = open_saved(f, "tensors");
    reshard_named_tensor named = {"x", f->local};
    reshard_status status = reshard_checkpoint_load_tensors(saved, NULL, 1, &named, NULL);
    reshard_checkpoint_destroy(saved);
    return status;
}

static reshard_status live(fixture *f, bool saving)
{
    void *shard = f->two;
    reshard_layout *layout = NULL;
    MUST(reshard_layout_create(NULL, f->rows, 1, (int64_t[]){4}, &layout));
    reshard_live_tensor tensor = {"x", RESHARD_F64, layout, &shard};
    reshard_checkpoint *saved = NULL;
    reshard_status status;
    if (saving) {
        status = reshard_checkpoint_save(NULL, NULL, checkpoint_path(f, "live"), 1, &tensor, NULL);
    } else {
        saved = open_saved(f, "live");
        status = reshard_checkpoint_load(saved, NULL, 1, &tensor, NULL);
    }
    reshard_checkpoint_destroy(saved);
    reshard_layout_release(layout);
    return status;
}

static reshard_status call_save(fixture *f)
{
    return live(f, true);
}

static reshard_status call_load(fixture *f)
{
    return live(f, false);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* One call of each row; `also` has a second name that the same row covers. */
static const struct {
    const char *name, *also;
    call_fn call;
} calls[] = {
    {"reshard_group_rank", NULL, call_rank},
    {"reshard_group_size", NULL, call_size},
    {"reshard_group_parent_rank", NULL, call_parent_rank},
    {"reshard_group_transport_name", NULL, call_transport_name},
    {"reshard_group_subset", NULL, call_subset},
    {"reshard_group_barrier", NULL, call_barrier},
    {"reshard_group_agree", NULL, call_agree},
    {"reshard_group_gather_bytes", NULL, call_gather_bytes},
    {"reshard_group_alloc", "reshard_group_free", call_alloc},
    {"reshard_exchange_run", NULL, call_exchange_run},
    {"reshard_send", "reshard_receive", call_send},
    {"reshard_reshard_local_shard", NULL, call_reshard_local_shard},
    {"reshard_device_mesh_create", NULL, call_device_mesh_create},
    {"reshard_device_mesh_parse", NULL, call_device_mesh_parse},
    {"reshard_exec_create", NULL, call_exec_create},
    {"reshard_tensor_create_distributed", NULL, call_create_distributed},
    {"reshard_tensor_shard", NULL, call_tensor_shard},
    {"reshard_tensor_from_shards", NULL, call_from_shards},
    {"reshard_tensor_create_shared", NULL, call_create_shared},
    {"reshard_tensor_from_local", NULL, call_tensor_from_local},
    {"reshard_tensor_exchange", NULL, call_tensor_exchange},
    {"reshard_module_shard_parameter", NULL, call_shard_parameter},
    {"reshard_module_shard", NULL, call_module_shard},
    {"reshard_module_shard_planned", NULL, call_shard_planned},
    {"reshard_module_parallelize", NULL, call_parallelize},
    {"reshard_optimizer_clip", NULL, call_clip},
    {"reshard_checkpoint_save_tensors", NULL, call_save_tensors},
    {"reshard_checkpoint_load_tensors", NULL, call_load_tensors},
    {"reshard_checkpoint_save", NULL, call_save},
    {"reshard_checkpoint_load", NULL, call_load},
    {"reshard_trace_create", NULL, call_trace_create},
};
enum { CALLS = sizeof calls / sizeof *calls };

#endif
