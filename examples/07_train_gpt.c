/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 07_train_gpt.c - trains a small GPT on the bytes of a text, on some ranks and then on others.
 *
 *   07_train_gpt --text FILE --ranks 2 --then 4 --steps 20 --save DIR
 *
 * The ranks are threads. A sharding plan makes the model tensor parallel, with --sequence 2
 * sequence parallel as well; in every block, each rank
 * keeps only its chunk of the activations that are the same on all ranks; AdamW steps on each
 * rank's own shards. The first training ends with a checkpoint of weights and AdamW's state, to
 * which every rank writes what it holds. The second training, on a different number of ranks, reads
 * what these need and continues.
 */
#include <reshard/reshard_nn.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct settings {
    int64_t ranks, then, steps, layers, width, heads, batch, length;
    int64_t sequence; /* 2: activations between attention and mlp are cut along the sequence */
    const char *text;
    size_t text_bytes;
} settings;

/* One training; the next one continues from its checkpoint. */
typedef struct training {
    const settings *set;
    int64_t first_step;
    const char *load, *save; /* folders of checkpoints; NULL: none */
} training;

/* The objects that one rank trains with. */
typedef struct trainer {
    reshard_mesh *mesh;
    reshard_device_mesh *ranks;
    reshard_module *gpt;
    reshard_optimizer *optimizer;
    reshard_named_tensors *state; /* the state of both that goes into a checkpoint */
    int64_t hook_count;
    reshard_hook **hooks; /* the input_reshard of each block */
} trainer;

/* ---- data ------------------------------------------------------------------------------------ */

static const char built_in[] =
    "A mesh names axes over ranks. A spec says what each axis does to a tensor. With a shape it "
    "becomes a layout, which knows who owns which box. Two layouts make a plan, a plan meets a "
    "group and moves bytes. What is replicated need not be kept by all: a chunk will do, until "
    "somebody asks for the whole of it again. ";

/* Makes sequences of bytes, and the bytes that follow each, at positions that depend on the
 * step. */
static reshard_status make_batch(const settings *set, int64_t step, reshard_tensor **out_tokens,
                                 reshard_tensor **out_labels)
{
    int64_t shape[] = {set->batch, set->length}, count = set->batch * set->length;
    reshard_status status = reshard_tensor_create(NULL, RESHARD_I64, 2, shape, out_tokens);
    if (status == RESHARD_OK)
        status = reshard_tensor_create(NULL, RESHARD_I64, 2, shape, out_labels);
    if (status != RESHARD_OK)
        return status;
    int64_t *tokens = reshard_tensor_write(*out_tokens),
            *labels = reshard_tensor_write(*out_labels);
    for (int64_t i = 0; i < count; i++) {
        uint64_t row = (uint64_t)(step * set->batch + i / set->length);
        uint64_t start = row * 2654435761U % set->text_bytes;
        uint64_t at = start + (uint64_t)(i % set->length);
        tokens[i] = (unsigned char)set->text[at % set->text_bytes];
        labels[i] = (unsigned char)set->text[(at + 1) % set->text_bytes];
    }
    return RESHARD_OK;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* Sequence parallel. Positions are looked up whole, and used in parts. */
static reshard_status add_sequence(reshard_sharding_plan *plan, reshard_module *gpt,
                                   reshard_mesh *mesh)
{
    const reshard_style places = {
        .size = sizeof places, .kind = RESHARD_STYLE_SEQUENCE, .input = "R", .output = "S(1)"};
    reshard_status status = reshard_sharding_plan_add_gpt_sequence(plan, gpt, mesh, 0);
    if (status == RESHARD_OK)
        status = reshard_sharding_plan_add_style(plan, "wpe", mesh, 0, &places);
    return status;
}

static reshard_status make_model(const settings *set, reshard_group *group,
                                 reshard_device_mesh *mesh, reshard_module **out_gpt)
{
    reshard_gpt_options options = {.size = sizeof options,
                                   .vocabulary = 256,
                                   .length = set->length,
                                   .width = set->width,
                                   .heads = set->heads,
                                   .layers = set->layers,
                                   .dtype = RESHARD_F32,
                                   .seed = 1};
    reshard_sharding_plan *plan = NULL;
    reshard_status status = reshard_gpt_create(NULL, &options, out_gpt);
    if (status == RESHARD_OK)
        status = reshard_sharding_plan_create(NULL, &plan);
    if (status == RESHARD_OK)
        status =
            set->sequence > 1
                ? add_sequence(plan, *out_gpt, reshard_device_mesh_mesh(mesh))
                : reshard_sharding_plan_add_gpt(plan, *out_gpt, reshard_device_mesh_mesh(mesh), 0);
    if (status == RESHARD_OK)
        status = reshard_module_shard(*out_gpt, plan, 0, group, NULL);
    reshard_sharding_plan_destroy(plan);
    return status;
}

static reshard_status reshard_inputs(trainer *t, int64_t layers)
{
    reshard_status status = RESHARD_OK;
    t->hooks = calloc((size_t)layers, sizeof *t->hooks);
    if (t->hooks == NULL)
        return reshard_error_set(RESHARD_ERR_NO_MEMORY, "no memory for hooks");
    t->hook_count = layers;
    for (int64_t i = 0; i < t->hook_count && status == RESHARD_OK; i++) {
        char path[32];
        reshard_module *block = NULL;
        (void)snprintf(path, sizeof path, "h.%lld", (long long)i);
        status = reshard_module_find(t->gpt, path, &block);
        if (status == RESHARD_OK) /* cut along the sequence */
            status = reshard_module_input_reshard(block, t->ranks, 1, NULL, &t->hooks[i]);
    }
    return status;
}

static reshard_status list_state(trainer *t)
{
    reshard_named_tensors *weights = NULL, *moments = NULL;
    reshard_status status = reshard_module_state_dict(t->gpt, &weights);
    if (status == RESHARD_OK)
        status = reshard_optimizer_state_dict(t->optimizer, &moments);
    if (status == RESHARD_OK)
        status = reshard_named_tensors_join(weights, moments, &t->state);
    reshard_named_tensors_destroy(weights);
    reshard_named_tensors_destroy(moments);
    return status;
}

static reshard_status set_up(trainer *t, const settings *set, reshard_group *group)
{
    int32_t size = reshard_group_size(group);
    const char *name = "tp";
    reshard_adamw_options adamw = {
        .size = sizeof adamw, .learning_rate = 3e-4, .weight_decay = 0.1};
    reshard_status status = reshard_mesh_create(NULL, 1, &name, &size, NULL, &t->mesh);
    if (status == RESHARD_OK)
        status = reshard_device_mesh_create(NULL, group, t->mesh, &t->ranks);
    if (status == RESHARD_OK)
        status = make_model(set, group, t->ranks, &t->gpt);
    if (status == RESHARD_OK)
        status = reshard_inputs(t, set->layers);
    if (status == RESHARD_OK)
        status = reshard_adamw_create(NULL, t->gpt, &adamw, &t->optimizer);
    return status == RESHARD_OK ? list_state(t) : status;
}

static void tear_down(trainer *t)
{
    for (int64_t i = 0; i < t->hook_count; i++)
        reshard_hook_release(t->hooks[i]);
    free(t->hooks);
    reshard_named_tensors_destroy(t->state);
    reshard_optimizer_destroy(t->optimizer);
    reshard_module_release(t->gpt);
    reshard_device_mesh_release(t->ranks);
    reshard_mesh_release(t->mesh);
}

/* ---- training -------------------------------------------------------------------------------- */

static reshard_status find_gradients(const settings *set, reshard_module *gpt, int64_t step,
                                     double *out_loss)
{
    reshard_tensor *tokens = NULL, *labels = NULL;
    reshard_scope *scope = NULL;
    reshard_status status = make_batch(set, step, &tokens, &labels);
    if (status == RESHARD_OK)
        status = reshard_scope_open(NULL, &scope);
    if (status == RESHARD_OK) {
        reshard_tensor *logits = reshard_module_forward(gpt, tokens);
        reshard_tensor *loss = reshard_cross_entropy_loss(logits, labels);
        (void)reshard_backward(loss, NULL, NULL);
        if (loss != NULL && reshard_tensor_is_distributed(loss))
            loss = reshard_tensor_full(loss);
        if (loss != NULL)
            (void)reshard_tensor_item(loss, out_loss);
        status = reshard_scope_close(scope);
    }
    reshard_tensor_release(tokens);
    reshard_tensor_release(labels);
    return status;
}

static reshard_status take_step(trainer *t, const settings *set, reshard_group *group, int64_t step)
{
    double loss = 0, norm = 0;
    reshard_status status = find_gradients(set, t->gpt, step, &loss);
    if (status == RESHARD_OK)
        status = reshard_optimizer_clip(t->optimizer, group, 1, &norm);
    if (status == RESHARD_OK)
        status = reshard_optimizer_step(t->optimizer);
    reshard_optimizer_clear_gradients(t->optimizer);
    if (status == RESHARD_OK && reshard_group_rank(group) == 0)
        printf("  step %3lld  loss %.5f  gradient norm %.3f\n", (long long)step, loss, norm);
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
    reshard_checkpoint *checkpoint = NULL;
    reshard_status status = reshard_checkpoint_open(NULL, folder, NULL, &checkpoint);
    status = reshard_group_agree(group, status);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_load_tensors(checkpoint, group, t->state->count,
                                                 t->state->items, NULL);
    reshard_checkpoint_destroy(checkpoint);
    return status;
}

/* The body that every rank runs. */
static reshard_status train(void *user, reshard_group *group)
{
    const training *plan = user;
    const settings *set = plan->set;
    trainer t = {0};
    reshard_status status = set_up(&t, set, group);
    if (status == RESHARD_OK && plan->load != NULL)
        status = load(&t, group, plan->load);
    for (int64_t i = 0; i < set->steps && status == RESHARD_OK; i++)
        status = take_step(&t, set, group, plan->first_step + i);
    if (status == RESHARD_OK && reshard_group_rank(group) == 0)
        print_saved(&t);
    if (status == RESHARD_OK && plan->save != NULL)
        status = reshard_checkpoint_save_tensors(NULL, group, plan->save, t.state->count,
                                                 t.state->items, NULL);
    tear_down(&t);
    return status;
}

/* Trains, saves a checkpoint, and continues from it. */
static int train_twice(const settings *set, const char *folder)
{
    training first = {.set = set, .save = folder};
    training second = {.set = set, .first_step = set->steps, .load = folder};
    printf("%lld ranks\n", (long long)set->ranks);
    reshard_status status = reshard_group_run(NULL, (int32_t)set->ranks, train, &first);
    if (status == RESHARD_OK) {
        printf("  saved; reshard inspect %s shows it\n", folder);
        printf("%lld ranks, from there\n", (long long)set->then);
        status = reshard_group_run(NULL, (int32_t)set->then, train, &second);
    }
    if (status != RESHARD_OK)
        fprintf(stderr, "07_train_gpt: %s\n", reshard_error_text());
    return status != RESHARD_OK;
}

/* ---- the program ----------------------------------------------------------------------------- */

static char *read_file(const char *path, size_t *out_bytes)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long bytes = 0;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0 && (bytes = ftell(file)) > 0 &&
        fseek(file, 0, SEEK_SET) == 0 && (text = malloc((size_t)bytes)) != NULL)
        *out_bytes = fread(text, 1, (size_t)bytes, file);
    if (file != NULL)
        fclose(file);
    return text;
}

/* Removes a folder and the files in it. */
static void remove_folder(const char *folder)
{
    char path[512];
    DIR *list = opendir(folder);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        (void)unlink(path);
    }
    if (list != NULL)
        (void)closedir(list);
    (void)rmdir(folder);
}

static int read_options(int count, char **words, settings *set, const char **out_text,
                        const char **out_save)
{
    struct {
        const char *name;
        int64_t *value;
    } options[] = {
        {"--ranks", &set->ranks},   {"--then", &set->then},     {"--steps", &set->steps},
        {"--layers", &set->layers}, {"--width", &set->width},   {"--heads", &set->heads},
        {"--batch", &set->batch},   {"--length", &set->length}, {"--sequence", &set->sequence}};
    for (int i = 1; i + 1 < count; i += 2) {
        size_t k = 0, n = sizeof options / sizeof *options;
        while (k < n && strcmp(options[k].name, words[i]) != 0)
            k++;
        if (k < n)
            *options[k].value = strtoll(words[i + 1], NULL, 10);
        else if (strcmp(words[i], "--text") == 0)
            *out_text = words[i + 1];
        else if (strcmp(words[i], "--save") == 0)
            *out_save = words[i + 1];
        else
            return 0;
        if (k < n && *options[k].value < 1)
            return 0;
    }
    return count % 2 == 1;
}

/* Without --save, the checkpoint is in a temporary folder, which is removed at the end. */
static int run(const settings *set, const char *save)
{
    char around[] = "/tmp/reshard-gpt-XXXXXX", folder[64];
    if (save != NULL && access(save, F_OK) == 0) {
        fprintf(stderr, "07_train_gpt: %s exists already\n", save);
        return 1;
    }
    if (save != NULL)
        return train_twice(set, save);
    if (mkdtemp(around) == NULL) {
        perror("07_train_gpt: a temporary folder");
        return 1;
    }
    (void)snprintf(folder, sizeof folder, "%s/checkpoint", around);
    int failed = train_twice(set, folder);
    remove_folder(folder);
    remove_folder(around);
    printf("%s is removed again; with --save DIR it stays\n", folder);
    return failed;
}

int main(int count, char **words)
{
    settings set = {.ranks = 2,
                    .then = 4,
                    .steps = 2,
                    .layers = 12,
                    .width = 256,
                    .heads = 8,
                    .batch = 8,
                    .length = 64,
                    .text = built_in,
                    .text_bytes = sizeof built_in - 1};
    const char *path = NULL, *save = NULL;
    char *text = NULL;
    if (!read_options(count, words, &set, &path, &save)) {
        fprintf(stderr, "usage: 07_train_gpt [--text FILE] [--save DIR] [--ranks N] [--then M] "
                        "[--steps S] [--layers L] [--width W] [--heads H] [--batch B] "
                        "[--length T]\n");
        return 2;
    }
    if (path != NULL) {
        text = read_file(path, &set.text_bytes);
        if (text == NULL || set.text_bytes == 0) {
            fprintf(stderr, "07_train_gpt: %s cannot be read, or is empty\n", path);
            free(text);
            return 1;
        }
        set.text = text;
    }
    int failed = run(&set, save);
    free(text);
    return failed;
}
