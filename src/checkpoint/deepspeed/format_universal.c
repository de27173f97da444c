/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_universal.c - DeepSpeed's universal checkpoints: a folder for each parameter, with a file
 * for its weights (fp32.pt) and one for each state of the optimizer. Names are those that ZeRO's
 * own files have (format_deepspeed.c), so one can be compared with the other.
 *
 * Buffers and frozen parameters are in the model file, as there. Files of old releases hold flat
 * tensors; the model file has their shapes.
 */
#include "checkpoint/deepspeed/ds_formats.h"
#include "checkpoint/deepspeed/universal.h"
#include "checkpoint/deepspeed/zero.h"
#include "checkpoint/format/file_names.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "checkpoint/torch/torch_save.h"

#include <stdio.h>
#include <string.h>

#define FOLDER "zero"
#define OPTIMIZER "zero/optimizer_state.pt"
/* The newest version of universal_checkpoint_info. */
#define VERSION_MAX 0.4

static bool is_there(const reshard_checkpoint *checkpoint, const char *name, rs_path_kind wanted)
{
    rs_path_kind kind = RS_PATH_NONE;
    return rs_store_kind_of(checkpoint, name, &kind) == RESHARD_OK && kind == wanted;
}

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    if (checkpoint->file_count == 0 && opening->is_folder && rs_opening_has(opening, FOLDER))
        *out_is = is_there(checkpoint, OPTIMIZER, RS_PATH_FILE);
    return RESHARD_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* One file of a parameter. */
typedef struct state_file {
    int64_t parameter; /* index in the names of folders */
    rs_slice state;    /* "fp32" */
} state_file;

typedef struct reading {
    rs_zero_reading zero;
    rs_zero_part part;
    const rs_opening *opening;
    int32_t model;    /* the model file; -1: there is none */
    rs_names folders; /* of parameters, sorted */
    rs_names files;   /* paths inside the checkpoint's folder */
    int64_t count, capacity;
    state_file *states; /* by file, from the first of a parameter on */
    int32_t first;      /* the file of the first of them */
    int64_t told_cuts;  /* files that say how tensor parallel ranks cut them */
    int64_t strays;     /* what else is in the folder of parameters */
    const char *first_stray;
} reading;

static reshard_status add_path(reading *r, const char *first, const char *second, const char *third)
{
    char path[RS_FILE_NAME_BYTES];
    int length = snprintf(path, sizeof path, "%s%s%s%s%s", first, second != NULL ? "/" : "",
                          second != NULL ? second : "", third != NULL ? "/" : "",
                          third != NULL ? third : "");
    if (length < 0 || (size_t)length >= sizeof path)
        return rs_fail_about(RESHARD_ERR_RANGE, r->zero.checkpoint->path,
                             "the path of a file in it has more than %d bytes",
                             RS_FILE_NAME_BYTES - 1);
    return rs_names_add(&r->files, path);
}

/* The folder as a whole counts as read, so what is not read in it has to be told. */
static reshard_status add_stray(reading *r, const char *name)
{
    if (r->strays++ == 0)
        r->first_stray = rs_arena_copy(&r->zero.checkpoint->arena, name, strlen(name) + 1, 1);
    return r->first_stray != NULL ? RESHARD_OK : rs_allocation_status();
}

/* Lists the files of one parameter. */
static reshard_status list_parameter(reading *r, int64_t index)
{
    reshard_checkpoint *checkpoint = r->zero.checkpoint;
    const char *name = r->folders.items[index];
    rs_names names = {.context = checkpoint->context};
    bool has_weights = false;
    char *above = rs_path_join(checkpoint->context, checkpoint->folder, FOLDER);
    char *path = above != NULL ? rs_path_join(checkpoint->context, above, name) : NULL;
    reshard_status status =
        path != NULL ? rs_folder_list(checkpoint->context, path, &names) : rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < names.count; i++) {
        const char *file = names.items[i];
        size_t length = strlen(file);
        if (length <= 3 || strcmp(file + length - 3, ".pt") != 0) {
            status = add_stray(r, file);
            continue;
        }
        char *state = rs_arena_copy(&checkpoint->arena, file, length + 1, 1);
        status = state != NULL ? rs_grow(checkpoint->context, &r->states, &r->capacity,
                                         r->count + 1, sizeof *r->states)
                               : rs_allocation_status();
        if (status == RESHARD_OK)
            status = add_path(r, FOLDER, name, file);
        if (status == RESHARD_OK)
            r->states[r->count++] = (state_file){index, {state, length - 3}};
        has_weights = has_weights || strcmp(file, "fp32.pt") == 0;
    }
    if (status == RESHARD_OK && !has_weights)
        status = rs_fail_about(RESHARD_ERR_GAP, checkpoint->path,
                               "parameter \"%.200s\" has no file fp32.pt", name);
    rs_names_release(&names);
    rs_release(checkpoint->context, path);
    rs_release(checkpoint->context, above);
    return status;
}

/* Keeps only the folders of parameters. */
static reshard_status list_folders(reading *r)
{
    reshard_checkpoint *checkpoint = r->zero.checkpoint;
    rs_names names = {.context = checkpoint->context};
    char *path = rs_path_join(checkpoint->context, checkpoint->folder, FOLDER);
    reshard_status status =
        path != NULL ? rs_folder_list(checkpoint->context, path, &names) : rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < names.count; i++) {
        char inside[RS_FILE_NAME_BYTES];
        (void)snprintf(inside, sizeof inside, FOLDER "/%s", names.items[i]);
        if (is_there(checkpoint, inside, RS_PATH_FOLDER))
            status = rs_names_add(&r->folders, names.items[i]);
        else if (strcmp(inside, OPTIMIZER) != 0)
            status = add_stray(r, names.items[i]);
    }
    rs_names_release(&names);
    rs_release(checkpoint->context, path);
    return status;
}

static reshard_status add_models(reading *r)
{
    rs_ds_files *files = &r->zero.files;
    reshard_status status = RESHARD_OK;
    r->model = -1;
    files->items = rs_arena_allocate_array(&r->zero.checkpoint->arena,
                                           (size_t)r->opening->name_count, sizeof *files->items);
    r->zero.opened = rs_arena_allocate_array(&r->zero.checkpoint->arena,
                                             (size_t)r->opening->name_count, sizeof(int32_t));
    if (files->items == NULL || r->zero.opened == NULL)
        return rs_allocation_status();
    /* Folders that serve all stages have both kinds; then the first is enough. */
    for (int pass = 0; pass < 2 && files->count == 0; pass++) {
        rs_ds_kind kind = pass == 0 ? RS_DS_MODEL : RS_DS_RANK_MODEL;
        for (int64_t i = 0; status == RESHARD_OK && i < r->opening->name_count; i++) {
            rs_ds_file file = rs_ds_file_parse(r->opening->names[i]);
            if (file.kind != kind || file.mp != 0)
                continue;
            if (file.dp == 0)
                r->model = (int32_t)r->files.count;
            r->zero.opened[files->count] = (int32_t)r->files.count;
            files->items[files->count++] = file;
            status = add_path(r, file.name, NULL, NULL);
        }
        r->part.stage = pass == 0 ? 2 : 3;
    }
    return status;
}

static reshard_status open_files(reading *r)
{
    reshard_checkpoint *checkpoint = r->zero.checkpoint;
    reshard_status status = list_folders(r);
    if (status == RESHARD_OK)
        status = add_models(r);
    if (status == RESHARD_OK)
        status = add_path(r, OPTIMIZER, NULL, NULL);
    r->first = (int32_t)r->files.count;
    for (int64_t i = 0; status == RESHARD_OK && i < r->folders.count; i++)
        status = list_parameter(r, i);
    if (status == RESHARD_OK && r->folders.count == 0)
        status = rs_fail_about(RESHARD_ERR_GAP, checkpoint->path,
                               "its folder " FOLDER " holds no folder of a parameter");
    return status == RESHARD_OK ? rs_store_open_files(checkpoint, r->files.count, r->files.items)
                                : status;
}

static reshard_status open_pickle(reshard_checkpoint *checkpoint, int32_t file)
{
    reshard_status status = rs_torch_open_file(checkpoint, file);
    if (status == RESHARD_OK && rs_context_cancelled(checkpoint->context))
        return rs_fail_about(RESHARD_ERR_CANCELLED, checkpoint->path, "cancelled");
    return status == RESHARD_OK ? rs_torch_note_file_globals(checkpoint, file) : status;
}

static const rs_pickle_node *root_of(const reading *r, int32_t file)
{
    size_t bytes = 0;
    return rs_pickle_root(rs_torch_file_pickle(rs_torch_opened(r->zero.checkpoint, file), &bytes));
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* The shape of a parameter that is stored flat, as the model file has it. */
static reshard_status find_shape(const reading *r, rs_slice name, rs_torch_tensor *tensor)
{
    const rs_pickle_node *lists =
        r->model >= 0 ? rs_pickle_get(root_of(r, r->model), "param_shapes") : NULL;
    char key[RS_FILE_NAME_BYTES];
    (void)snprintf(key, sizeof key, "%.*s", (int)name.count, name.bytes);
    for (size_t i = 0; i < rs_pickle_count(lists); i++) {
        const rs_pickle_node *found = rs_pickle_get(rs_pickle_item(lists, i), key);
        int32_t ndim = 0;
        const int64_t *shape = NULL;
        if (found == NULL)
            continue;
        reshard_status status = rs_torch_numbers(&r->zero.checkpoint->arena, found, &ndim, &shape);
        if (status != RESHARD_OK)
            return status;
        if (rs_shape_fits(ndim, shape) && tensor->ndim == 1 &&
            rs_volume(ndim, shape) == tensor->shape[0]) {
            tensor->ndim = ndim;
            tensor->shape = shape;
        }
    }
    return RESHARD_OK;
}

static rs_slice name_of(const reading *r, int64_t parameter)
{
    return rs_slice_of(r->folders.items[parameter]);
}

/* Adds the tensor of a file: the weights or a state of a parameter. */
static reshard_status add_tensor(reading *r, int32_t file, const state_file *state,
                                 const rs_pickle_node *node)
{
    reshard_checkpoint *checkpoint = r->zero.checkpoint;
    rs_arena *arena = &checkpoint->arena;
    rs_slice name = r->part.parameters[state->parameter].name;
    bool is_weights = rs_slice_equals(state->state, "fp32");
    const rs_value_step *step =
        rs_zero_step(checkpoint, is_weights ? r->zero.model : r->zero.state, name);
    if (step != NULL && !is_weights)
        step = rs_zero_step(checkpoint, step, state->state);
    rs_slice full = step != NULL ? rs_zero_name(checkpoint, step) : (rs_slice){NULL, 0};
    rs_torch_tensor tensor;
    rs_stored_tensor made;
    rs_stored_piece piece = {.file = file};
    if (full.bytes == NULL)
        return rs_allocation_status();
    reshard_status status = rs_torch_tensor_read(arena, node, &tensor);
    if (status == RESHARD_OK)
        status = find_shape(r, name_of(r, state->parameter), &tensor);
    if (status == RESHARD_OK && rs_volume(tensor.ndim, tensor.shape) != 0)
        status = rs_torch_locate(checkpoint, file, &tensor, &piece.file, &piece.at);
    if (status == RESHARD_OK)
        status = rs_store_describe(&made, arena, full, tensor.dtype, tensor.ndim, tensor.shape);
    if (status == RESHARD_OK && made.opaque && tensor.strides != NULL)
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "is not stored row by row, so it cannot be cut");
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s", checkpoint->files[file].name);
    piece.size = made.carried_shape;
    piece.strides = tensor.strides;
    made.pieces = rs_arena_copy(arena, &piece, 1, sizeof piece);
    if (made.pieces == NULL)
        return rs_allocation_status();
    made.piece_count = 1;
    made.step = step;
    return rs_zero_add_local(&r->zero, &made, name, 0);
}

/* Reads a file of a parameter: {param: tensor, ..}, a bare tensor, or a bare value (step.pt). */
static reshard_status read_state(reading *r, int32_t file, const state_file *state)
{
    reshard_checkpoint *checkpoint = r->zero.checkpoint;
    const rs_pickle_node *root = root_of(r, file), *node = root;
    if (rs_pickle_dict(root) != NULL && rs_torch_kind_of(root) == RS_TORCH_VALUE)
        node = rs_pickle_get(root, "param");
    if (node != NULL && rs_torch_kind_of(node) == RS_TORCH_TENSOR) {
        r->told_cuts += rs_pickle_count(rs_pickle_dict(root)) > 1;
        return add_tensor(r, file, state, node);
    }
    if (node == NULL || rs_slice_equals(state->state, "fp32")) {
        char shown[160];
        rs_pickle_show(node != NULL ? node : root, shown, sizeof shown);
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, checkpoint->files[file].name,
                             "holds %s, where a tensor should be", shown);
    }
    const rs_value_step *step =
        rs_zero_step(checkpoint, r->zero.state, r->part.parameters[state->parameter].name);
    if (step != NULL)
        step = rs_zero_step(checkpoint, step, state->state);
    return step != NULL ? rs_zero_keep_value(checkpoint, file, step, node) : rs_allocation_status();
}

static reshard_status read_states(reading *r)
{
    reshard_checkpoint *checkpoint = r->zero.checkpoint;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < r->count; i++) {
        int32_t file = r->first + (int32_t)i, before = checkpoint->file_count;
        int64_t values = checkpoint->value_count;
        status = open_pickle(checkpoint, file);
        if (status == RESHARD_OK)
            status = read_state(r, file, &r->states[i]);
        rs_stored_file *opened = &checkpoint->files[file];
        if (status == RESHARD_OK && checkpoint->file_count == before &&
            checkpoint->value_count == values) {
            opened->body_destroy(opened->body);
            opened->body = NULL;
            opened->body_destroy = NULL;
        }
    }
    return status;
}

/* Folders are named after parameters; the part knows them so that the model file's reader does. */
static reshard_status list_parameters(reading *r)
{
    rs_arena *arena = &r->zero.checkpoint->arena;
    size_t count = (size_t)r->folders.count;
    static const char front[] = "module.";
    bool all = true;
    r->part.parameters = rs_arena_allocate_array(arena, count, sizeof *r->part.parameters);
    r->part.by_name = rs_arena_allocate_array(arena, count, sizeof(int64_t));
    if (r->part.parameters == NULL || r->part.by_name == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        const char *name =
            rs_arena_copy(arena, r->folders.items[i], strlen(r->folders.items[i]) + 1, 1);
        if (name == NULL)
            return rs_allocation_status();
        all = all && strncmp(name, front, sizeof front - 1) == 0;
        r->part.parameters[i] =
            (rs_zero_parameter){.told = rs_slice_of(name), .name = rs_slice_of(name), .count = 1};
        r->part.by_name[i] = (int64_t)i; /* names are sorted */
    }
    for (size_t i = 0; all && i < count; i++)
        r->part.parameters[i].name =
            rs_slice_of(r->part.parameters[i].told.bytes + sizeof front - 1);
    r->part.strips_module = all;
    r->part.parameter_count = (int64_t)count;
    return RESHARD_OK;
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* Keeps what optimizer_state.pt says, but for what repeats the files of parameters. */
static reshard_status read_optimizer(reading *r)
{
    reshard_checkpoint *checkpoint = r->zero.checkpoint;
    int32_t file = r->first - 1;
    reshard_status status = open_pickle(checkpoint, file);
    if (status != RESHARD_OK)
        return status;
    const rs_pickle_node *root = root_of(r, file), *dict = rs_pickle_dict(root);
    const rs_pickle_node *inner = rs_pickle_get(root, "optimizer_state_dict");
    const rs_pickle_node *groups = rs_pickle_get(root, "param_groups");
    if (groups == NULL)
        groups = rs_pickle_get(inner, "param_groups");
    for (size_t i = 0; status == RESHARD_OK && i < rs_pickle_count(dict) + 1; i++) {
        rs_slice key = rs_slice_of("param_groups");
        const rs_pickle_node *value = groups;
        if (i != 0) {
            value = dict->items.nodes[2 * (i - 1) + 1];
            if (!rs_pickle_text(dict->items.nodes[2 * (i - 1)], &key) || key.count == 0 ||
                rs_slice_equals(key, "param_groups") || rs_slice_equals(key, "ds_version") ||
                rs_slice_equals(key, "optimizer_state_dict") ||
                rs_torch_kind_of(value) != RS_TORCH_VALUE)
                continue;
        }
        if (value == NULL)
            continue;
        const rs_value_step *step = rs_zero_step(checkpoint, r->zero.state->parent, key);
        status = step != NULL ? rs_zero_keep_value(checkpoint, file, step, value)
                              : rs_allocation_status();
    }
    return status;
}

static reshard_status check_version(const reading *r)
{
    const rs_pickle_node *version =
        rs_pickle_get(rs_pickle_get(root_of(r, r->model), "universal_checkpoint_info"),
                      "universal_checkpoint_version");
    if (rs_pickle_is(version, RS_PICKLE_FLOAT) && version->real > VERSION_MAX + 1e-9)
        return rs_fail_about(
            RESHARD_ERR_UNSUPPORTED, r->zero.checkpoint->files[r->model].name,
            "has version %g of universal checkpoints; versions up to %g can be read", version->real,
            VERSION_MAX);
    return RESHARD_OK;
}

/* A folder that is gone would otherwise be a parameter that nobody misses. Those of experts may
 * have got other names than the model file has. */
static reshard_status check_folders(const reading *r)
{
    const rs_pickle_node *lists = rs_pickle_get(root_of(r, r->model), "param_shapes");
    for (size_t i = 0; i < rs_pickle_count(lists); i++) {
        const rs_pickle_node *dict = rs_pickle_dict(rs_pickle_item(lists, i));
        for (size_t k = 0; k < rs_pickle_count(dict); k++) {
            rs_slice name;
            size_t at, digits;
            if (!rs_pickle_text(dict->items.nodes[2 * k], &name) ||
                rs_zero_find(&r->part, name) != NULL ||
                rs_zero_find_expert(name, &at, &digits) >= 0)
                continue;
            return rs_fail_about(RESHARD_ERR_GAP, r->zero.checkpoint->path,
                                 "its model file names parameter \"%.*s\", but there is no folder "
                                 "of that name in " FOLDER,
                                 rs_slice_shown(name), name.bytes);
        }
    }
    return RESHARD_OK;
}

/* Warns if some parameters lack a state that others have. */
static reshard_status compare_states(const reading *r)
{
    int64_t fewer = 0, most = 0, first = -1;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0, end = 0; i < r->count; i = end) {
            while (end < r->count && r->states[end].parameter == r->states[i].parameter)
                end++;
            if (pass == 0)
                most = rs_max(most, end - i);
            else if (end - i < most && fewer++ == 0)
                first = r->states[i].parameter;
        }
    }
    if (fewer == 0)
        return RESHARD_OK;
    return rs_store_warn(
        r->zero.checkpoint,
        "parameters with fewer states than the others: %lld of %lld (\"%.200s\"%s)",
        (long long)fewer, (long long)r->folders.count, r->folders.items[first],
        fewer == 1 ? "" : " and others");
}

/* Reads buffers, frozen parameters and values as of ZeRO's own model files. */
static reshard_status read_models(reading *r)
{
    reshard_status status = RESHARD_OK;
    if (r->model < 0)
        return rs_store_note(r->zero.checkpoint,
                             "there is no model file, so buffers and counters are missing");
    r->part.rank_count = (int32_t)r->zero.files.count;
    r->zero.files.mp_count = r->zero.files.tp_count = 1;
    r->zero.files.dp_count = r->part.rank_count;
    r->zero.parts = &r->part;
    for (int32_t i = 0; status == RESHARD_OK && i < r->part.rank_count; i++)
        status = open_pickle(r->zero.checkpoint, r->zero.opened[i]);
    if (status == RESHARD_OK)
        status = check_version(r);
    return status == RESHARD_OK ? check_folders(r) : status;
}

static reshard_status note_kind(const reading *r)
{
    reshard_checkpoint *checkpoint = r->zero.checkpoint;
    reshard_status status =
        rs_store_note(checkpoint, "a universal checkpoint: %lld parameter%s in %lld file%s",
                      (long long)r->folders.count, r->folders.count == 1 ? "" : "s",
                      (long long)r->count, r->count == 1 ? "" : "s");
    if (status == RESHARD_OK && r->strays != 0)
        status = rs_store_note(checkpoint,
                               "left out: %lld file%s in the folder " FOLDER " (\"%.200s\"%s), not "
                               "of a state of a parameter",
                               (long long)r->strays, r->strays == 1 ? "" : "s", r->first_stray,
                               r->strays == 1 ? "" : " and others");
    if (status == RESHARD_OK && r->told_cuts != 0)
        status = rs_store_note(checkpoint,
                               "left out: how tensor parallel ranks cut parameters (cat_dim and "
                               "others), in %lld file%s",
                               (long long)r->told_cuts, r->told_cuts == 1 ? "" : "s");
    return status;
}

static reshard_status read_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    reading r = {.zero.checkpoint = checkpoint,
                 .opening = opening,
                 .folders.context = checkpoint->context,
                 .files.context = checkpoint->context};
    reshard_status status = rs_zero_make_steps(&r.zero) ? open_files(&r) : rs_allocation_status();
    if (status == RESHARD_OK)
        status = rs_ds_files_own(checkpoint, opening, FOLDER);
    if (status == RESHARD_OK)
        status = list_parameters(&r);
    if (status == RESHARD_OK)
        status = read_models(&r);
    if (status == RESHARD_OK)
        status = read_states(&r);
    if (status == RESHARD_OK && r.model >= 0)
        status = rs_zero_read_model(&r.zero, &r.part, r.model);
    if (status == RESHARD_OK && r.model >= 0)
        status = rs_zero_add_aliases(&r.zero, &r.part, r.model);
    if (status == RESHARD_OK)
        status = read_optimizer(&r);
    r.zero.files.tp_count = 1;
    if (status == RESHARD_OK)
        status = rs_zero_join(&r.zero);
    if (status == RESHARD_OK)
        status = compare_states(&r);
    if (status == RESHARD_OK)
        status = note_kind(&r);
    rs_release(checkpoint->context, r.zero.locals);
    rs_release(checkpoint->context, r.states);
    rs_occurrences_release(checkpoint->context, &r.zero.others);
    rs_names_release(&r.folders);
    rs_names_release(&r.files);
    return status;
}

const rs_format rs_format_universal = {
    .name = "universal",
    .description = "DeepSpeed's universal checkpoints: a folder for each parameter",
    .looks_for = "zero/optimizer_state.pt",
    .probe = probe,
    .read = read_files,
    .has_crcs = true,
    .holds_value = rs_universal_holds,
    .leaves_tied = rs_universal_leaves_tied,
    .lay_out = rs_universal_lay_out,
    .name_file = rs_universal_name_file,
    .place = rs_torch_save_place,
    .write_head = rs_torch_save_head,
    .finish = rs_universal_finish,
    .torch_style = &rs_universal_style,
};
