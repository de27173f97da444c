/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_megatron_legacy.c - what Megatron-LM wrote before torch_dist: a folder for each rank of
 * tensor, pipeline and expert parallelism, mp_rank_TT[_PPP][_EEE], with model_optim_rng.pt in it.
 *
 * Files hold local tensors under local names: layers are counted from 0 in each stage (and in each
 * of a stage's virtual stages, model0, model1, ..), experts in each rank. The arguments in every
 * file say how many ranks there are. How many layers a stage has, its files show: stages need not
 * be even. Tensors get the names that torch_dist gives to numbered layers
 * (megatron.h), so everything after this sees one naming. Where ranks hold the same box, all but
 * the first are copies.
 *
 * Names of folders say whose a file is, and folders can be exchanged. So what files say themselves
 * is compared with it: the iteration, the rank that saved it, and the ends of the pipeline.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/dtype.h"
#include "checkpoint/dcp/dcp_format.h"
#include "checkpoint/dcp/megatron.h"
#include "checkpoint/torch/torch_files.h"
#include "text/text.h"

#include <stdio.h>
#include <string.h>

#define FILE_NAME "model_optim_rng.pt"
#define FOLDER_FRONT "mp_rank_"
#define NAME_BYTES RS_LEGACY_NAME_BYTES
#define RANKS_MAX 100000

/* How the model is spread, by the arguments. */
typedef struct spread {
    int64_t tp, pp, ep, chunks, layers, experts;
    int64_t first, last; /* layers of the first and last stage, if the arguments say; else 0 */
    bool is_gated, is_tied;
} spread;

/* The layers of one virtual stage. */
typedef struct stage_layers {
    int64_t count, start;
} stage_layers;

typedef struct reading {
    reshard_checkpoint *checkpoint;
    spread spread;
    int32_t file;
    int64_t tensor_rank, stage, expert_rank; /* of the file */
    stage_layers *layers;                    /* by virtual stage, then stage: their order */
    bool *has_embedding, *has_end;           /* by stage: the first and last things of a model */
    int64_t left_out;
    rs_occurrences list;
} reading;

/* ---- folders --------------------------------------------------------------------------------- */

static bool is_rank_folder(const char *name)
{
    return strncmp(name, FOLDER_FRONT, sizeof FOLDER_FRONT - 1) == 0 &&
           name[strspn(name + (sizeof FOLDER_FRONT - 1), "0123456789_") + sizeof FOLDER_FRONT -
                1] == '\0';
}

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    *out_is = false;
    for (int64_t i = 0; opening->is_folder && !*out_is && i < opening->name_count; i++) {
        char name[NAME_BYTES];
        rs_path_kind kind = RS_PATH_NONE;
        if (!is_rank_folder(opening->names[i]) || strlen(opening->names[i]) > 64)
            continue;
        (void)snprintf(name, sizeof name, "%s/" FILE_NAME, opening->names[i]);
        reshard_status status = rs_store_kind_of(checkpoint, name, &kind);
        if (status != RESHARD_OK)
            return status;
        *out_is = kind == RS_PATH_FILE;
    }
    return RESHARD_OK;
}

/* The name of a rank's file. With one stage, the second number is that of the expert rank. */
static void name_file(const spread *s, int64_t t, int64_t p, int64_t e, char out_name[NAME_BYTES])
{
    rs_text text;
    rs_text_init(&text, out_name, NAME_BYTES);
    rs_text_add(&text, FOLDER_FRONT "%02lld", (long long)t);
    if (s->pp > 1)
        rs_text_add(&text, "_%03lld", (long long)p);
    if (s->ep > 1)
        rs_text_add(&text, "_%03lld", (long long)e);
    rs_text_add(&text, "/" FILE_NAME);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static int64_t find_number(const rs_pickle_node *arguments, const char *name, int64_t other)
{
    int64_t value = 0;
    return rs_pickle_int(rs_pickle_get(arguments, name), &value) ? value : other;
}

static bool find_truth(const rs_pickle_node *arguments, const char *name)
{
    const rs_pickle_node *node = rs_pickle_get(arguments, name);
    return rs_pickle_is(node, RS_PICKLE_BOOL) && node->truth;
}

/* NULL: there are none. */
static const rs_pickle_node *find_arguments(const rs_pickle_node *root)
{
    const rs_pickle_node *object = rs_pickle_get(root, "args");
    return rs_pickle_is_call(object, "argparse", "Namespace") ? rs_pickle_dict(object->call->state)
                                                              : NULL;
}

/* Reads the arguments of one file, whose name errors tell. */
static reshard_status read_spread(reading *r, const rs_pickle_node *root, const char *name)
{
    const rs_pickle_node *version = rs_pickle_get(root, "checkpoint_version");
    const rs_pickle_node *args = find_arguments(root);
    if (args == NULL)
        return rs_fail_about(
            RESHARD_ERR_UNSUPPORTED, name,
            "has no arguments of Megatron-LM (args), which say how the model is split over ranks");
    if (!rs_pickle_is(version, RS_PICKLE_FLOAT) || version->real < 2.0)
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, name,
                             "has checkpoint_version 0 or 1, in which queries, keys and values "
                             "have another order; only versions 2 and 3 can be read");
    spread *s = &r->spread;
    s->tp = find_number(args, "tensor_model_parallel_size", 1);
    s->pp = find_number(args, "pipeline_model_parallel_size", 1);
    s->ep = find_number(args, "expert_model_parallel_size", 1);
    s->layers = find_number(args, "num_layers", 0);
    s->experts = find_number(args, "num_experts", 0);
    int64_t each = find_number(args, "num_layers_per_virtual_pipeline_stage", 0);
    s->chunks = find_number(args, "virtual_pipeline_model_parallel_size", 0);
    if (s->chunks <= 0)
        s->chunks = each > 0 && s->pp > 0 ? s->layers / s->pp / each : 1;
    s->is_gated = find_truth(args, "swiglu");
    s->is_tied = !find_truth(args, "untie_embeddings_and_output_weights");
    if (s->tp < 1 || s->pp < 1 || s->ep < 1 || s->chunks < 1 || s->layers < 1 ||
        s->tp > RANKS_MAX || s->pp > RANKS_MAX || s->ep > RANKS_MAX || s->chunks > RANKS_MAX ||
        s->tp * s->pp > RANKS_MAX || s->tp * s->pp * s->ep > RANKS_MAX)
        return rs_fail_about(
            RESHARD_ERR_CORRUPT, name,
            "its arguments are not plausible: %lld x %lld x %lld ranks, %lld layers",
            (long long)s->tp, (long long)s->pp, (long long)s->ep, (long long)s->layers);
    s->first = find_number(args, "decoder_first_pipeline_num_layers", 0);
    s->last = find_number(args, "decoder_last_pipeline_num_layers", 0);
    return RESHARD_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* A name being translated, and where the tensor lies in the whole. */
typedef struct placed {
    char name[NAME_BYTES];
    int64_t expert; /* -1: not an expert's */
} placed;

static stage_layers *layers_of(const reading *r, int64_t chunk)
{
    return &r->layers[chunk * r->spread.pp + r->stage];
}

/* Makes the torch_dist name of a tensor of the model. chunk: the virtual stage. */
static reshard_status translate(const reading *r, const char *local, int64_t chunk, placed *made)
{
    char part[NAME_BYTES];
    const char *behind = NULL;
    int64_t number = 0;
    made->expert = -1;
    reshard_status status = rs_legacy_split(local, made->name, &number, &behind);
    if (status != RESHARD_OK || behind == NULL)
        return status;
    const stage_layers *layers = layers_of(r, chunk);
    if (number >= layers->count)
        return rs_fail_about(RESHARD_ERR_CORRUPT, r->checkpoint->files[r->file].name,
                             "tensor \"%.200s\" belongs to layer %lld, but the first rank's file "
                             "of this stage has only %lld layers",
                             local, (long long)number, (long long)layers->count);
    rs_legacy_part(behind + 1, part, &made->expert);
    int length = snprintf(made->name, sizeof made->name, "decoder.layers.%lld.%s",
                          (long long)(number + layers->start), part);
    return length > 0 && (size_t)length < sizeof made->name
               ? RESHARD_OK
               : rs_fail(RESHARD_ERR_RANGE, "a name has more than %d bytes", NAME_BYTES);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Adds `part` of `parts` equal parts of an array along dim d; each is cut over the ranks by itself.
 * lead: 1 if the number of the expert is a dim in front. */
static reshard_status add_part(reading *r, const rs_occurrence *whole, const placed *made,
                               int32_t d, int64_t part, int64_t part_count)
{
    rs_arena *arena = &r->checkpoint->arena;
    int32_t lead = made->expert >= 0, ndim = whole->ndim + lead;
    size_t n = (size_t)ndim;
    int64_t *numbers = rs_arena_allocate_array(arena, 4 * n + 1, sizeof *numbers);
    if (numbers == NULL)
        return rs_allocation_status();
    int64_t *shape = numbers, *full = shape + n, *offset = full + n, *strides = offset + n;
    int64_t dense[RESHARD_NDIM_MAX], step = 1;
    for (int32_t i = whole->ndim; i-- > 0; step *= whole->shape[i])
        dense[i] = whole->strides != NULL ? whole->strides[i] : step;
    if (lead != 0) {
        shape[0] = strides[0] = 1;
        full[0] = r->spread.experts;
        offset[0] = made->expert;
    }
    for (int32_t i = 0; i < whole->ndim; i++) {
        bool is_cut = i == d;
        int64_t own = is_cut ? whole->shape[i] / part_count : whole->shape[i];
        shape[i + lead] = own;
        full[i + lead] = is_cut ? whole->shape[i] * r->spread.tp : own;
        offset[i + lead] = is_cut ? (part * r->spread.tp + r->tensor_rank) * own : 0;
        strides[i + lead] = dense[i];
    }
    rs_occurrence item = *whole;
    item.at += d >= 0 ? (uint64_t)(part * (whole->shape[d] / part_count) * dense[d]) *
                            rs_element_bytes(whole->dtype)
                      : 0;
    item.ndim = ndim;
    item.shape = shape;
    item.full = full;
    item.offset = offset;
    item.strides = strides;
    return rs_occurrences_add(r->checkpoint->context, &r->list, &item);
}

static reshard_status add_tensor(reading *r, const rs_torch_leaf *leaf, const char *local,
                                 int64_t chunk)
{
    const spread *s = &r->spread;
    rs_occurrence whole;
    placed made;
    reshard_status status = rs_torch_occurrence(r->checkpoint, r->file, leaf, &whole);
    if (status == RESHARD_OK)
        status = translate(r, local, chunk, &made);
    if (status != RESHARD_OK)
        return status;
    /* The last of several stages has a copy of a tied embedding. */
    const char *name = s->is_tied && strcmp(made.name, "output_layer.weight") == 0
                           ? "embedding.word_embeddings.weight"
                           : made.name;
    size_t bytes = strlen(name);
    int32_t d = rs_legacy_cut(name);
    bool is_gated = s->is_gated && (rs_legacy_ends_with(name, ".linear_fc1.weight") ||
                                    rs_legacy_ends_with(name, ".linear_fc1.bias"));
    int64_t count = is_gated ? 2 : 1;
    whole.name = (rs_slice){rs_arena_copy(&r->checkpoint->arena, name, bytes + 1, 1), bytes};
    whole.place = (rs_value_place){NULL, 0};
    if (whole.name.bytes == NULL)
        return rs_allocation_status();
    if (d >= whole.ndim || (d >= 0 && whole.shape[d] % count != 0) ||
        whole.ndim >= RESHARD_NDIM_MAX)
        return rs_fail_about(RESHARD_ERR_CORRUPT, r->checkpoint->files[r->file].name,
                             "tensor \"%.*s\" does not have the shape that its name implies",
                             RS_SHOWN(leaf->name));
    if (made.expert >= 0) {
        if (s->experts <= 0 || s->experts % s->ep != 0 || made.expert >= s->experts / s->ep)
            return rs_fail_about(
                RESHARD_ERR_CORRUPT, r->checkpoint->files[r->file].name,
                "tensor \"%.*s\" does not belong to one of the %lld experts of a rank",
                RS_SHOWN(leaf->name), (long long)(s->experts / s->ep));
        made.expert += r->expert_rank * (s->experts / s->ep);
    }
    for (int64_t part = 0; status == RESHARD_OK && part < count; part++)
        status = add_part(r, &whole, &made, d, part, count);
    return status;
}

/* The local name of a tensor of the model, and its virtual stage; NULL: it is not the model's. */
static const char *find_local(const reading *r, const rs_torch_leaf *leaf, int64_t *out_chunk)
{
    static const char front[] = "model";
    const char *name = leaf->name.bytes, *rest = name + sizeof front - 1;
    *out_chunk = 0;
    if (leaf->name.count < sizeof front || memcmp(name, front, sizeof front - 1) != 0)
        return NULL;
    if (rs_is_digit(*rest))
        rest = rs_legacy_number(rest, out_chunk);
    if (rest == NULL || *rest != '.' || leaf->kind != RS_TORCH_TENSOR ||
        rs_legacy_ends_with(rest, "_extra_state") || *out_chunk >= r->spread.chunks)
        return NULL;
    return rest + 1;
}

static reshard_status take_leaf(void *user, const rs_torch_leaf *leaf)
{
    reading *r = user;
    int64_t chunk = 0;
    const char *local = find_local(r, leaf, &chunk);
    r->left_out += local == NULL;
    return local != NULL ? add_tensor(r, leaf, local, chunk) : RESHARD_OK;
}

/* ---- stages ---------------------------------------------------------------------------------- */

static reshard_status count_leaf(void *user, const rs_torch_leaf *leaf)
{
    reading *r = user;
    char name[NAME_BYTES];
    const char *behind = NULL;
    int64_t chunk = 0, number = 0;
    const char *local = find_local(r, leaf, &chunk);
    reshard_status status =
        local != NULL ? rs_legacy_split(local, name, &number, &behind) : RESHARD_OK;
    if (local == NULL || status != RESHARD_OK)
        return status;
    if (behind != NULL)
        layers_of(r, chunk)->count = rs_max(layers_of(r, chunk)->count, number + 1);
    r->has_embedding[r->stage] |= strncmp(name, "embedding.", 10) == 0;
    r->has_end[r->stage] |= strncmp(name, "decoder.final_", 14) == 0;
    return RESHARD_OK;
}

static int64_t count_stage(const reading *r, int64_t stage)
{
    int64_t count = 0;
    for (int64_t chunk = 0; chunk < r->spread.chunks; chunk++)
        count += r->layers[chunk * r->spread.pp + stage].count;
    return count;
}

/* Compares what the stages have with what the arguments say. */
static reshard_status check_stages(const reading *r, int64_t total)
{
    const spread *s = &r->spread;
    int64_t first = count_stage(r, 0), last = count_stage(r, s->pp - 1);
    char counts[200];
    rs_text text;
    rs_text_init(&text, counts, sizeof counts);
    for (int64_t stage = 0; stage < s->pp && stage < 32; stage++)
        rs_text_add(&text, stage == 0 ? "%lld" : ", %lld", (long long)count_stage(r, stage));
    if (total != s->layers)
        return rs_fail_about(
            RESHARD_ERR_CORRUPT, r->checkpoint->path,
            "its stages have %s%s layers, together %lld, but the arguments say %lld", counts,
            s->pp > 32 ? ", .." : "", (long long)total, (long long)s->layers);
    if ((s->first != 0 && s->first != first) || (s->last != 0 && s->last != last))
        return rs_fail_about(RESHARD_ERR_CORRUPT, r->checkpoint->path,
                             "its stages have %s layers, but the arguments say %lld in the %s "
                             "stage",
                             counts,
                             (long long)(s->first != 0 && s->first != first ? s->first : s->last),
                             s->first != 0 && s->first != first ? "first" : "last");
    return RESHARD_OK;
}

/* Finds stages whose folders were exchanged: the embedding is in the first one, the norm behind the
 * last layer in the last one. (Later ones may have an embedding too, to predict further tokens.) */
static reshard_status check_ends(const reading *r)
{
    int64_t last = r->spread.pp - 1;
    for (int64_t stage = 0; stage <= last; stage++) {
        bool is_early = r->has_end[stage] && !r->has_end[last];
        if (is_early || (r->has_embedding[stage] && !r->has_embedding[0]))
            return rs_fail_about(RESHARD_ERR_CORRUPT,
                                 r->checkpoint->files[stage * r->spread.tp].name,
                                 "this is the file of stage %lld of %lld by its name, but it holds "
                                 "the %s; have files been renamed?",
                                 (long long)stage, (long long)last + 1,
                                 is_early ? "norm behind the last layer" : "embedding");
    }
    return RESHARD_OK;
}

/* Counts the layers of each stage, and numbers them through: those of all stages' first virtual
 * stages come first. */
static reshard_status count_layers(reading *r)
{
    const spread *s = &r->spread;
    int64_t total = 0, count = s->pp * s->chunks;
    reshard_status status = RESHARD_OK;
    if (count > RANKS_MAX)
        return rs_fail_about(RESHARD_ERR_CORRUPT, r->checkpoint->path,
                             "its arguments are not plausible: %lld virtual stages",
                             (long long)count);
    rs_arena *arena = &r->checkpoint->arena;
    r->layers = rs_arena_allocate_array(arena, (size_t)count, sizeof *r->layers);
    r->has_embedding = rs_arena_allocate_array(arena, 2 * (size_t)s->pp, sizeof(bool));
    if (r->layers == NULL || r->has_embedding == NULL)
        return rs_allocation_status();
    r->has_end = r->has_embedding + s->pp;
    memset(r->layers, 0, (size_t)count * sizeof *r->layers);
    memset(r->has_embedding, 0, 2 * (size_t)s->pp * sizeof(bool));
    for (r->stage = 0; status == RESHARD_OK && r->stage < s->pp; r->stage++)
        status =
            rs_torch_walk_file(r->checkpoint, (int32_t)(r->stage * s->tp), NULL, count_leaf, r);
    for (int64_t i = 0; i < count; i++) {
        r->layers[i].start = total;
        total += r->layers[i].count;
    }
    if (status == RESHARD_OK)
        status = check_ends(r);
    return status == RESHARD_OK ? check_stages(r, total) : status;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Opens one file to learn of how many ranks it is. */
static reshard_status open_first(reading *r, const char *name)
{
    reshard_context *context = r->checkpoint->context;
    rs_file *file = NULL;
    rs_torch_file *opened = NULL;
    uint64_t bytes = 0;
    size_t pickle_bytes = 0;
    char *path = rs_path_join(context, r->checkpoint->folder, name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_open(context, path, &file);
    if (status == RESHARD_OK)
        status = rs_file_size(file, &bytes);
    if (status == RESHARD_OK)
        status = rs_torch_file_open(context, file, 0, bytes, &opened);
    if (status == RESHARD_OK)
        status = read_spread(r, rs_pickle_root(rs_torch_file_pickle(opened, &pickle_bytes)), name);
    rs_torch_file_destroy(opened);
    rs_file_close(file);
    rs_release(context, path);
    return status;
}

/* Opens the files of all ranks. */
static reshard_status open_ranks(reading *r)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    const spread *s = &r->spread;
    int64_t count = s->tp * s->pp * s->ep;
    char **names = rs_arena_allocate_array(&checkpoint->arena, (size_t)count, sizeof *names);
    reshard_status status = names != NULL ? RESHARD_OK : rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++) {
        char name[NAME_BYTES];
        rs_path_kind kind = RS_PATH_NONE;
        name_file(s, i % s->tp, i / s->tp % s->pp, i / s->tp / s->pp, name);
        names[i] = rs_arena_copy(&checkpoint->arena, name, strlen(name) + 1, 1);
        status =
            names[i] != NULL ? rs_store_kind_of(checkpoint, name, &kind) : rs_allocation_status();
        if (status == RESHARD_OK && kind != RS_PATH_FILE)
            status = rs_fail_about(RESHARD_ERR_NOT_FOUND, checkpoint->path,
                                   "%s is missing; by the arguments there are %lld x %lld x %lld "
                                   "ranks of tensor, pipeline and expert parallelism",
                                   name, (long long)s->tp, (long long)s->pp, (long long)s->ep);
    }
    return status == RESHARD_OK ? rs_torch_open_named(checkpoint, count, names) : status;
}

/* What a file says of the rank that saved it; -1: nothing. */
static int64_t find_rank(const reading *r, int64_t file, int64_t *out_iteration)
{
    size_t bytes = 0;
    const rs_pickle_node *root =
        rs_pickle_root(rs_torch_file_pickle(rs_torch_opened(r->checkpoint, (int32_t)file), &bytes));
    *out_iteration = find_number(root, "iteration", -1);
    return find_number(find_arguments(root), "rank", -1);
}

/* Compares the name of a file with the rank that saved it. In every order of ranks that Megatron
 * has, those of tensor parallelism are numbered first, and later stages have higher numbers. */
static reshard_status check_rank(const reading *r, int64_t file, int64_t rank)
{
    int64_t tp = r->spread.tp, stage = file / tp % r->spread.pp, ignored;
    int64_t before = stage != 0 ? find_rank(r, file - tp, &ignored) : -1;
    const char *name = r->checkpoint->files[file].name;
    if (rank % tp != file % tp)
        return rs_fail_about(
            RESHARD_ERR_CORRUPT, name,
            "this is the file of tensor parallel rank %lld by its name, but rank "
            "%lld saved it, which is number %lld of %lld; have files been renamed?",
            (long long)(file % tp), (long long)rank, (long long)(rank % tp), (long long)tp);
    if (rank <= before)
        return rs_fail_about(
            RESHARD_ERR_CORRUPT, name,
            "this is the file of stage %lld by its name, but rank %lld saved it; rank "
            "%lld saved the stage before. Have files been renamed?",
            (long long)stage, (long long)rank, (long long)before);
    return RESHARD_OK;
}

/* Compares what the files of all ranks say of themselves. Those of programs that convert
 * checkpoints are all of rank 0, which says nothing. */
static reshard_status compare_files(const reading *r)
{
    int64_t iteration, first_iteration, first = find_rank(r, 0, &first_iteration);
    bool tell = false;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 1; i < r->checkpoint->file_count; i++) {
        tell |= find_rank(r, i, &iteration) != first;
        if (iteration != first_iteration)
            return rs_fail_about(RESHARD_ERR_CORRUPT, r->checkpoint->files[i].name,
                                 "is of iteration %lld, but %s of %lld", (long long)iteration,
                                 r->checkpoint->files[0].name, (long long)first_iteration);
    }
    for (int64_t i = 0; tell && status == RESHARD_OK && i < r->checkpoint->file_count; i++) {
        int64_t rank = find_rank(r, i, &iteration);
        if (rank >= 0)
            status = check_rank(r, i, rank);
    }
    return status;
}

static reshard_status read_all(reading *r, const rs_opening *opening)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    char first[NAME_BYTES] = "";
    rs_path_kind kind = RS_PATH_NONE;
    for (int64_t i = 0; i < opening->name_count && kind != RS_PATH_FILE; i++) {
        if (!is_rank_folder(opening->names[i]) || strlen(opening->names[i]) > 64)
            continue;
        (void)snprintf(first, sizeof first, "%s/" FILE_NAME, opening->names[i]);
        (void)rs_store_kind_of(checkpoint, first, &kind);
    }
    reshard_status status = open_first(r, first);
    if (status == RESHARD_OK)
        status = open_ranks(r);
    if (status == RESHARD_OK)
        status = compare_files(r);
    if (status == RESHARD_OK)
        status = count_layers(r);
    int32_t count = checkpoint->file_count;
    for (int32_t i = 0; status == RESHARD_OK && i < count; i++) {
        r->file = i;
        r->tensor_rank = i % r->spread.tp;
        r->stage = i / r->spread.tp % r->spread.pp;
        r->expert_rank = i / r->spread.tp / r->spread.pp;
        status = rs_torch_walk_file(checkpoint, i, NULL, take_leaf, r);
    }
    r->list.has_copies = true;
    if (status == RESHARD_OK)
        status = rs_store_join(checkpoint, &r->list);
    if (status == RESHARD_OK && r->left_out != 0)
        status = rs_store_note(checkpoint,
                               "left out: %lld of the values and tensors of optimizers, schedulers "
                               "and random states; legacy files store them by rank",
                               (long long)r->left_out);
    return status == RESHARD_OK ? rs_megatron_learn(checkpoint, 0) : status;
}

static reshard_status read_folder(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    reading r = {.checkpoint = checkpoint};
    reshard_status status = read_all(&r, opening);
    rs_occurrences_release(checkpoint->context, &r.list);
    return status;
}

const rs_format rs_format_megatron_legacy = {
    .name = "megatron-legacy",
    .description = "Megatron-LM's older files: mp_rank_TT_PPP/model_optim_rng.pt",
    .looks_for = "mp_rank_TT/model_optim_rng.pt",
    .probe = probe,
    .read = read_folder,
};
