/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 09_train_gpt.c - brings everything together: trains a small GPT on the bytes of a text, on some
 * ranks and then on others.
 *
 *   09_train_gpt --text FILE --ranks 2 --then 4 --steps 20 --save DIR
 *
 * The ranks are threads. A sharding plan makes the model tensor parallel, with --sequence 2
 * sequence parallel as well; in every block, each rank keeps only its chunk of the activations that
 * are the same on all ranks; AdamW steps on each rank's own shards. The first training ends with a
 * checkpoint of weights and AdamW's state, to which every rank writes what it holds. The second
 * training, on a different number of ranks, reads what these need and continues. Options, text and
 * folders are in gpt_program.h.
 */
#include <reshard/reshard_nn.h>

#include "examples/example.h"
#include "examples/gpt_program.h"

/* One training; the next one continues from its checkpoint. */
typedef struct training {
    const settings *set;
    int64_t first_step;
    const char *load, *save; /* folders of checkpoints; NULL: none */
} training;

/* The objects that one rank trains with. */
typedef struct trainer {
    reshard_device_mesh *ranks;
    reshard_module *gpt;
    reshard_optimizer *optimizer;
    reshard_named_tensors *state; /* the state of both that goes into a checkpoint */
    int64_t hook_count;
    reshard_hook **hooks; /* the input_reshard of each block */
} trainer;

/* ---- the model ------------------------------------------------------------------------------- */

/* Sequence parallel. Positions are looked up whole, and used in parts. */
static reshard_status add_sequence(reshard_sharding_plan *plan, reshard_module *gpt,
                                   reshard_mesh *mesh)
{
    reshard_status status = RESHARD_OK;
    const reshard_style places = {
        .size = sizeof places, .kind = RESHARD_STYLE_SEQUENCE, .input = "R", .output = "S(1)"};
    TRY(reshard_sharding_plan_add_gpt(plan, gpt, mesh, 0, 1));
    TRY(reshard_sharding_plan_add_style(plan, "wpe", mesh, 0, &places));
out:
    return status;
}

static reshard_status make_model(trainer *t, const settings *set, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    const reshard_gpt_options options = {.size = sizeof options,
                                         .vocabulary = 256,
                                         .length = set->length,
                                         .width = set->width,
                                         .heads = set->heads,
                                         .layers = set->layers,
                                         .dtype = RESHARD_F32,
                                         .seed = 1};
    reshard_device_mesh_info ranks = {.size = sizeof ranks};
    reshard_sharding_plan *plan = NULL;
    TRY(reshard_device_mesh_get_info(t->ranks, &ranks));
    TRY(reshard_gpt_create(NULL, &options, &t->gpt));
    TRY(reshard_sharding_plan_create(NULL, &plan));
    TRY(set->sequence > 1 ? add_sequence(plan, t->gpt, ranks.mesh)
                          : reshard_sharding_plan_add_gpt(plan, t->gpt, ranks.mesh, 0, 0));
    TRY(reshard_module_shard(t->gpt, plan, 0, group, NULL));
out:
    reshard_sharding_plan_destroy(plan);
    return status;
}

static reshard_status reshard_inputs(trainer *t, int64_t layers)
{
    reshard_status status = RESHARD_OK;
    t->hooks = calloc((size_t)layers, sizeof *t->hooks);
    TRY(check(t->hooks != NULL, "no memory for hooks"));
    t->hook_count = layers;
    for (int64_t i = 0; i < layers; i++) {
        char path[32];
        reshard_module *block = NULL;
        (void)snprintf(path, sizeof path, "h.%lld", (long long)i);
        TRY(reshard_module_find(t->gpt, path, &block));
        /* cut along the sequence */
        TRY(reshard_module_input_reshard(block, t->ranks, 1, NULL, &t->hooks[i]));
    }
out:
    return status;
}

static reshard_status list_state(trainer *t)
{
    reshard_status status = RESHARD_OK;
    reshard_named_tensors *weights = NULL, *moments = NULL;
    TRY(reshard_module_state_dict(t->gpt, &weights));
    TRY(reshard_optimizer_state_dict(t->optimizer, &moments));
    TRY(reshard_named_tensors_join(weights, moments, &t->state));
out:
    reshard_named_tensors_destroy(weights);
    reshard_named_tensors_destroy(moments);
    return status;
}

static reshard_status set_up(trainer *t, const settings *set, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    const reshard_adamw_options adamw = {
        .size = sizeof adamw, .learning_rate = 3e-4, .weight_decay = 0.1};
    char mesh[32];
    (void)snprintf(mesh, sizeof mesh, "tp=%d", reshard_group_size(group));
    TRY(reshard_device_mesh_parse(NULL, group, mesh, &t->ranks));
    TRY(make_model(t, set, group));
    TRY(reshard_inputs(t, set->layers));
    TRY(reshard_adamw_create(NULL, t->gpt, &adamw, &t->optimizer));
    TRY(list_state(t));
out:
    return status;
}

static void tear_down(trainer *t)
{
    for (int64_t i = 0; i < t->hook_count; i++)
        reshard_hook_remove(t->hooks[i]);
    free(t->hooks);
    reshard_named_tensors_destroy(t->state);
    reshard_optimizer_destroy(t->optimizer);
    reshard_module_release(t->gpt);
    reshard_device_mesh_release(t->ranks);
}

/* ---- training -------------------------------------------------------------------------------- */

/* Makes sequences of bytes, and the bytes that follow each, at positions that depend on the
 * step. */
static reshard_status make_batch(const settings *set, int64_t step, reshard_tensor **out_tokens,
                                 reshard_tensor **out_labels)
{
    reshard_status status = RESHARD_OK;
    int64_t shape[] = {set->batch, set->length}, count = set->batch * set->length;
    TRY(reshard_tensor_create(NULL, RESHARD_I64, 2, shape, out_tokens));
    TRY(reshard_tensor_create(NULL, RESHARD_I64, 2, shape, out_labels));
    int64_t *tokens = reshard_tensor_write(*out_tokens);
    int64_t *labels = reshard_tensor_write(*out_labels);
    for (int64_t i = 0; i < count; i++) {
        uint64_t row = (uint64_t)(step * set->batch + i / set->length);
        uint64_t start = row * 2654435761U % set->text_bytes;
        uint64_t at = start + (uint64_t)(i % set->length);
        tokens[i] = (unsigned char)set->text[at % set->text_bytes];
        labels[i] = (unsigned char)set->text[(at + 1) % set->text_bytes];
    }
out:
    return status;
}

static reshard_status find_gradients(const settings *set, reshard_module *gpt, int64_t step,
                                     double *out_loss)
{
    reshard_status status = RESHARD_OK;
    reshard_tensor *tokens = NULL, *labels = NULL;
    reshard_scope *scope = NULL;
    TRY(make_batch(set, step, &tokens, &labels));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *logits = reshard_module_forward(gpt, tokens);
    reshard_tensor *loss = reshard_cross_entropy_loss(logits, labels, NULL);
    TRY(reshard_backward(loss, NULL, NULL));
    TRY(reshard_tensor_value(loss, out_loss));
out:
    status = close_scope(&scope, status);
    reshard_tensor_release(tokens);
    reshard_tensor_release(labels);
    return status;
}

static reshard_status take_step(trainer *t, const settings *set, reshard_group *group, int64_t step)
{
    reshard_status status = RESHARD_OK;
    double loss = 0, norm = 0;
    TRY(find_gradients(set, t->gpt, step, &loss));
    TRY(reshard_optimizer_clip(t->optimizer, group, 1, &norm));
    TRY(reshard_optimizer_step(t->optimizer));
    if (reshard_group_rank(group) == 0)
        printf("  step %3lld  loss %.5f  gradient norm %.3f\n", (long long)step, loss, norm);
out:
    reshard_optimizer_clear_gradients(t->optimizer);
    return status;
}

static void print_saved(const trainer *t)
{
    uint64_t whole = 0, chunks = 0;
    for (int64_t i = 0; i < t->hook_count; i++) {
        reshard_saved_counts counts = {.size = sizeof counts};
        if (reshard_input_reshard_counts(t->hooks[i], &counts) == RESHARD_OK) {
            whole += counts.whole_bytes;
            chunks += counts.chunk_bytes;
        }
    }
    printf("  replicated activations saved for backward: %llu bytes, kept by a rank: %llu\n",
           (unsigned long long)whole, (unsigned long long)chunks);
}

static reshard_status load(const trainer *t, reshard_group *group, const char *folder)
{
    reshard_status status = RESHARD_OK;
    reshard_checkpoint *checkpoint = NULL;
    TRY(reshard_group_agree(group, reshard_checkpoint_open(NULL, folder, NULL, &checkpoint)));
    TRY(reshard_checkpoint_load_tensors(checkpoint, group, t->state->count, t->state->items, NULL));
out:
    reshard_checkpoint_destroy(checkpoint);
    return status;
}

/* The body that every rank runs. */
static reshard_status train(void *user, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    const training *plan = user;
    const settings *set = plan->set;
    trainer t = {0};
    TRY(set_up(&t, set, group));
    if (plan->load != NULL)
        TRY(load(&t, group, plan->load));
    for (int64_t i = 0; i < set->steps; i++)
        TRY(take_step(&t, set, group, plan->first_step + i));
    if (reshard_group_rank(group) == 0)
        print_saved(&t);
    if (plan->save != NULL)
        TRY(reshard_checkpoint_save_tensors(NULL, group, plan->save, t.state->count, t.state->items,
                                            NULL));
out:
    tear_down(&t);
    return status;
}

/* Trains, saves a checkpoint, and continues from it. */
int main(int count, char **words)
{
    reshard_status status = RESHARD_OK;
    settings set;
    int code = begin_program(count, words, &set);
    if (code >= 0)
        return code;
    training first = {.set = &set, .save = set.folder};
    training second = {.set = &set, .first_step = set.steps, .load = set.folder};
    printf("%lld ranks\n", (long long)set.ranks);
    TRY(reshard_group_run(NULL, (int32_t)set.ranks, train, &first));
    printf("  saved; reshard inspect %s shows it\n", set.folder);
    printf("%lld ranks, from there\n", (long long)set.then);
    TRY(reshard_group_run(NULL, (int32_t)set.then, train, &second));
out:
    code = finish(status);
    end_program(&set);
    return code;
}
