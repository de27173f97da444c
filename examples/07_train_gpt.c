/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 07_train_gpt.c - a small GPT on the bytes of a text, trained on some ranks, then on others.
 *
 *   07_train_gpt --text FILE --ranks 2 --then 4 --steps 20 --layers 12 --width 256 --heads 8
 *
 * The ranks are threads. The model is tensor parallel by a sharding plan; every block keeps only
 * its chunk of the activations that all ranks hold alike; AdamW steps on each rank's own shards.
 * After the first training the weights are gathered, and the second one cuts them anew.
 */
#include <reshard/reshard.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    int64_t ranks, then, steps, layers, width, heads, batch, length;
    const char *text;
    size_t text_bytes;
} settings;

/* One training, and what goes from one to the next: weights by name. */
typedef struct training {
    const settings *set;
    int64_t first_step;
    int64_t count;
    reshard_named_tensor *weights; /* NULL before the first training */
    double loss;                   /* of the last step */
} training;

static reshard_status check(reshard_status status, const char *what)
{
    if (status != RESHARD_OK)
        fprintf(stderr, "%s: %s\n", what, reshard_error_text());
    return status;
}

/* ---- data ------------------------------------------------------------------------------------ */

static const char built_in[] =
    "A mesh names axes over ranks. A spec says what each axis does to a tensor. With a shape it "
    "becomes a layout, which knows who owns which box. Two layouts make a plan, a plan meets a "
    "group and moves bytes. What is replicated need not be kept by all: a chunk will do, until "
    "somebody asks for the whole of it again. ";

/* Sequences of bytes and those that follow them, at places that depend on the step. */
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

static reshard_status make_model(const training *t, reshard_group *group, reshard_device_mesh *mesh,
                                 reshard_module **out_gpt)
{
    reshard_gpt_options options = {.size = sizeof options,
                                   .vocabulary = 256,
                                   .length = t->set->length,
                                   .width = t->set->width,
                                   .heads = t->set->heads,
                                   .layers = t->set->layers,
                                   .dtype = RESHARD_F32,
                                   .seed = 1};
    reshard_sharding_plan *plan = NULL;
    reshard_status status = reshard_gpt_create(NULL, &options, out_gpt);
    if (status == RESHARD_OK)
        status = reshard_sharding_plan_create(NULL, &plan);
    if (status == RESHARD_OK)
        status = reshard_sharding_plan_add_gpt(plan, *out_gpt, reshard_device_mesh_mesh(mesh), 0);
    if (status == RESHARD_OK)
        status = reshard_module_shard(*out_gpt, plan, 0, group, NULL);
    if (status == RESHARD_OK && t->weights != NULL)
        status = reshard_module_load_state_dict(*out_gpt, t->count, t->weights, NULL);
    reshard_sharding_plan_destroy(plan);
    return status;
}

static reshard_status reshard_inputs(reshard_module *gpt, reshard_device_mesh *mesh, int64_t layers,
                                     reshard_hook **hooks)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < layers && status == RESHARD_OK; i++) {
        char path[32];
        reshard_module *block = NULL;
        (void)snprintf(path, sizeof path, "h.%lld", (long long)i);
        status = reshard_module_find(gpt, path, &block);
        if (status == RESHARD_OK) /* along the positions */
            status = reshard_module_input_reshard(block, mesh, 1, NULL, &hooks[i]);
    }
    return status;
}

static reshard_status step(const settings *set, reshard_module *gpt, int64_t number,
                           double *out_loss)
{
    reshard_tensor *tokens = NULL, *labels = NULL;
    reshard_scope *scope = NULL;
    reshard_status status = make_batch(set, number, &tokens, &labels);
    if (status == RESHARD_OK)
        status = reshard_scope_open(NULL, &scope);
    if (status == RESHARD_OK) {
        reshard_tensor *logits = reshard_module_forward(gpt, tokens);
        reshard_tensor *loss = reshard_module_cross_entropy(logits, labels);
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

static void print_saved(reshard_hook **hooks, int64_t layers)
{
    uint64_t whole = 0, chunks = 0;
    for (int64_t i = 0; i < layers; i++) {
        reshard_saved_counts counts;
        if (reshard_input_reshard_counts(hooks[i], &counts) == RESHARD_OK) {
            whole += counts.whole_bytes;
            chunks += counts.chunk_bytes;
        }
    }
    printf("  replicated activations saved for backward: %llu bytes, kept by a rank: %llu\n",
           (unsigned long long)whole, (unsigned long long)chunks);
}

/* Weights on rank 0, whole; the next training reads them on all its ranks. */
static reshard_status gather(training *t, reshard_module *gpt, int rank)
{
    reshard_named_tensors *list = NULL;
    reshard_status status = reshard_module_state_dict(gpt, &list);
    if (status != RESHARD_OK)
        return status;
    reshard_named_tensor *weights = calloc((size_t)list->count, sizeof *weights);
    for (int64_t i = 0; i < list->count && status == RESHARD_OK; i++) {
        reshard_tensor *whole = NULL;
        if (reshard_tensor_is_distributed(list->items[i].tensor))
            status = reshard_tensor_gather(list->items[i].tensor, 0, &whole);
        else if (rank == 0)
            whole = reshard_tensor_retain(list->items[i].tensor);
        if (rank != 0 || status != RESHARD_OK || weights == NULL)
            continue;
        size_t length = strlen(list->items[i].name) + 1;
        char *name = malloc(length);
        if (name != NULL)
            memcpy(name, list->items[i].name, length);
        weights[i] = (reshard_named_tensor){name, whole};
    }
    if (rank == 0 && status == RESHARD_OK && weights != NULL) {
        t->weights = weights;
        t->count = list->count;
    } else {
        free(weights);
    }
    reshard_named_tensors_destroy(list);
    return status;
}

static reshard_status train(void *user, reshard_group *group)
{
    training *t = user;
    const settings *set = t->set;
    int32_t size = reshard_group_size(group), rank = reshard_group_rank(group);
    const char *name = "tp";
    reshard_mesh *mesh = NULL;
    reshard_device_mesh *ranks = NULL;
    reshard_module *gpt = NULL;
    reshard_optimizer *optimizer = NULL;
    reshard_hook **hooks = calloc((size_t)set->layers + 1, sizeof *hooks);
    reshard_adamw_options adamw = {
        .size = sizeof adamw, .learning_rate = 3e-4, .weight_decay = 0.1};
    reshard_status status = reshard_mesh_create(NULL, 1, &name, &size, NULL, &mesh);
    if (status == RESHARD_OK)
        status = reshard_device_mesh_create(NULL, group, mesh, &ranks);
    if (status == RESHARD_OK)
        status = make_model(t, group, ranks, &gpt);
    if (status == RESHARD_OK)
        status = reshard_inputs(gpt, ranks, set->layers, hooks);
    if (status == RESHARD_OK)
        status = reshard_adamw_create(NULL, gpt, &adamw, &optimizer);
    for (int64_t i = 0; i < set->steps && status == RESHARD_OK; i++) {
        double loss = 0, norm = 0;
        status = step(set, gpt, t->first_step + i, &loss);
        if (status == RESHARD_OK)
            status = reshard_optimizer_clip(optimizer, group, 1, &norm);
        if (status == RESHARD_OK)
            status = reshard_optimizer_step(optimizer);
        reshard_optimizer_clear_gradients(optimizer);
        if (status == RESHARD_OK && rank == 0) {
            printf("  step %3lld  loss %.5f  gradient norm %.3f\n", (long long)(t->first_step + i),
                   loss, norm);
            t->loss = loss;
        }
    }
    if (status == RESHARD_OK && rank == 0)
        print_saved(hooks, set->layers);
    if (status == RESHARD_OK && t->weights == NULL)
        status = gather(t, gpt, rank);
    for (int64_t i = 0; i < set->layers; i++)
        reshard_hook_release(hooks[i]);
    free(hooks);
    reshard_optimizer_destroy(optimizer);
    reshard_module_release(gpt);
    reshard_device_mesh_release(ranks);
    reshard_mesh_release(mesh);
    return status;
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

static int read_options(int count, char **words, settings *set, const char **out_path)
{
    struct {
        const char *name;
        int64_t *value;
    } options[] = {{"--ranks", &set->ranks},   {"--then", &set->then},    {"--steps", &set->steps},
                   {"--layers", &set->layers}, {"--width", &set->width},  {"--heads", &set->heads},
                   {"--batch", &set->batch},   {"--length", &set->length}};
    for (int i = 1; i + 1 < count; i += 2) {
        size_t k = 0, n = sizeof options / sizeof *options;
        while (k < n && strcmp(options[k].name, words[i]) != 0)
            k++;
        if (k < n)
            *options[k].value = strtoll(words[i + 1], NULL, 10);
        else if (strcmp(words[i], "--text") == 0)
            *out_path = words[i + 1];
        else
            return 0;
        if (k < n && *options[k].value < 1)
            return 0;
    }
    return count % 2 == 1;
}

int main(int count, char **words)
{
    settings set = {.ranks = 2,
                    .then = 4,
                    .steps = 2,
                    .layers = 12,
                    .width = 256,
                    .heads = 8,
                    .batch = 2,
                    .length = 32,
                    .text = built_in,
                    .text_bytes = sizeof built_in - 1};
    const char *path = NULL;
    char *text = NULL;
    if (!read_options(count, words, &set, &path)) {
        fprintf(stderr, "usage: 07_train_gpt [--text FILE] [--ranks N] [--then M] [--steps S] "
                        "[--layers L] [--width W] [--heads H] [--batch B] [--length T]\n");
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
    training t = {.set = &set};
    printf("%lld ranks\n", (long long)set.ranks);
    int failed = check(reshard_group_run(NULL, (int32_t)set.ranks, train, &t), "training");
    if (!failed) {
        t.first_step = set.steps;
        printf("%lld ranks, from there\n", (long long)set.then);
        failed = check(reshard_group_run(NULL, (int32_t)set.then, train, &t), "going on");
    }
    for (int64_t i = 0; i < t.count; i++) {
        free((char *)t.weights[i].name);
        reshard_tensor_release(t.weights[i].tensor);
    }
    free(t.weights);
    free(text);
    return failed ? 1 : 0;
}
