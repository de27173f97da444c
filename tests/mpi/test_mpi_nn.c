/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mpi_nn.c - modules between MPI ranks: a GPT cut by a plan, with input_reshard, has the
 * losses of PyTorch (tests/oracle/gpt.py), and has them still when it goes on from a checkpoint;
 * errors are agreed.
 */
#include "tests/nn/gpt.h"
#include "tests/oracle/gpt_numbers.h"

#include <reshard/mpi_run.h>

#include <math.h>
#include <unistd.h>

enum { STEPS = 3, PATH_BYTES = 64, RANKS_MAX = 16 };

typedef struct trainer {
    reshard_module *gpt;
    reshard_optimizer *optimizer;
    reshard_named_tensors *state;
    reshard_hook *hook;
} trainer;

static reshard_status begin(trainer *t, reshard_group *group, reshard_device_mesh *mesh)
{
    reshard_adamw_options options = {
        .size = sizeof options, .learning_rate = 1e-2, .weight_decay = 0.1};
    reshard_module *block = NULL;
    reshard_named_tensors *weights = NULL, *moments = NULL;
    *t = (trainer){.gpt = make_gpt(RESHARD_F64)};
    TRY(spread(t->gpt, group, mesh, NULL));
    TRY(reshard_module_find(t->gpt, "h.0", &block));
    TRY(reshard_module_input_reshard(block, mesh, 1, NULL, &t->hook));
    TRY(reshard_adamw_create(NULL, t->gpt, &options, &t->optimizer));
    TRY(reshard_module_state_dict(t->gpt, &weights));
    TRY(reshard_optimizer_state_dict(t->optimizer, &moments));
    TRY(reshard_named_tensors_join(weights, moments, &t->state));
    reshard_named_tensors_destroy(weights);
    reshard_named_tensors_destroy(moments);
    return RESHARD_OK;
}

static void end(trainer *t)
{
    reshard_hook_remove(t->hook);
    reshard_named_tensors_destroy(t->state);
    reshard_optimizer_destroy(t->optimizer);
    reshard_module_release(t->gpt);
}

static reshard_status go(trainer *t, reshard_group *group, int64_t first)
{
    reshard_saved_counts counts = {.size = sizeof counts};
    int32_t size = reshard_group_size(group);
    for (int64_t i = first; i < first + STEPS; i++) {
        double loss = 0, norm = 0;
        TRY(forward_backward(t->gpt, i, &loss));
        CHECK(fabs(loss - oracle_losses[i]) <= 1e-9 * oracle_losses[i]);
        TRY(reshard_optimizer_clip(t->optimizer, group, 1, &norm));
        TRY(reshard_optimizer_step(t->optimizer));
        reshard_optimizer_clear_gradients(t->optimizer);
    }
    TRY(reshard_input_reshard_counts(t->hook, &counts));
    CHECK((counts.packed > 0) == (size > 1) && counts.held_bytes == 0);
    if (LENGTH % size == 0)
        CHECK(counts.whole_bytes == (uint64_t)size * counts.chunk_bytes);
    return RESHARD_OK;
}

/* A path that rank 0 has chosen; its folder is there. */
static reshard_status agree_on_path(reshard_group *group, char path[PATH_BYTES])
{
    char mine[PATH_BYTES] = "/tmp/reshard-mpi-nn-XXXXXX", all[RANKS_MAX][PATH_BYTES];
    CHECK(reshard_group_size(group) <= RANKS_MAX);
    bool made = reshard_group_rank(group) != 0 || mkdtemp(mine) != NULL;
    TRY(reshard_group_agree(group, made ? RESHARD_OK : RESHARD_ERR_IO));
    TRY(reshard_group_gather_bytes(group, mine, sizeof mine, all));
    memcpy(path, all[0], PATH_BYTES);
    return RESHARD_OK;
}

static reshard_status resume(reshard_group *group, reshard_device_mesh *mesh, const char *path)
{
    reshard_checkpoint_save_options quick = {.size = sizeof quick, .no_sync = 1};
    reshard_checkpoint *checkpoint = NULL;
    reshard_load_options more = {.size = sizeof more, .allow_unexpected = 1};
    reshard_load_options fewer = {.size = sizeof fewer, .allow_missing = 1};
    trainer before, after;
    TRY(begin(&before, group, mesh));
    TRY(go(&before, group, 0));
    TRY(reshard_checkpoint_save_tensors(NULL, group, path, before.state->count, before.state->items,
                                        &quick));
    TRY(begin(&after, group, mesh));
    TRY(reshard_checkpoint_open(NULL, path, NULL, &checkpoint));
    TRY(reshard_checkpoint_load_tensors(checkpoint, group, after.state->count, after.state->items,
                                        NULL));
    TRY(go(&after, group, STEPS));
    /* from live to live; the optimizer's part is passed over */
    TRY(reshard_module_load_state_dict(before.gpt, after.state->count, after.state->items, &more));
    /* one rank has a name that the others have not: all hear of it */
    reshard_named_tensor odd = {"odd", before.state->items[0].tensor};
    bool last = reshard_group_rank(group) == reshard_group_size(group) - 1;
    CHECK(reshard_module_load_state_dict(before.gpt, 1, last ? &odd : after.state->items, &fewer) ==
          RESHARD_ERR_NOT_FOUND);
    CHECK(strstr(reshard_error_text(), "\"odd\" is unexpected") != NULL);
    reshard_checkpoint_destroy(checkpoint);
    end(&before);
    end(&after);
    return reshard_group_barrier(group);
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    char folder[PATH_BYTES], path[PATH_BYTES + 8], command[PATH_BYTES + 16];
    reshard_device_mesh *mesh = make_line(group);
    (void)user;
    TRY(agree_on_path(group, folder));
    (void)snprintf(path, sizeof path, "%s/gpt", folder);
    reshard_status status = resume(group, mesh, path);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (reshard_group_rank(group) == 0 && system(command) != 0)
        status = status == RESHARD_OK ? RESHARD_ERR_IO : status;
    reshard_device_mesh_release(mesh);
    return status;
}

int main(void)
{
    reshard_status status = reshard_mpi_run(NULL, run_rank, NULL);
    if (status != RESHARD_OK)
        fprintf(stderr, "%s\n", reshard_error_text());
    return status != RESHARD_OK;
}
