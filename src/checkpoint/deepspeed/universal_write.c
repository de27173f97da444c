/* SPDX-License-Identifier: Apache-2.0 */
/*
 * universal_write.c - lays out a universal checkpoint: which tensor is which state of which
 * parameter, and one file for each. Weights and moments become F32, as the loaders want them.
 *
 * Any source will do. States are found by their names, as everywhere (select/parameter.h). What is
 * no parameter (a buffer, numbers that are not floating-point) goes into the model file. So do
 * 16-bit weights of which the optimizer has a master copy, as Megatron's has (param, fp32_param):
 * that copy is the weight then.
 */
#include "checkpoint/deepspeed/universal.h"

#include "base/context.h"
#include "base/dtype.h"
#include "base/sort.h"
#include "checkpoint/torch/torch_save.h"
#include "kernel/values/cast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPONENT_BYTES_MAX 255

rs_slice rs_universal_name(const rs_universal *universal, rs_slice name)
{
    size_t home = universal->home.count;
    return home != 0 && name.count > home && memcmp(name.bytes, universal->home.bytes, home) == 0
               ? (rs_slice){name.bytes + home, name.count - home}
               : name;
}

bool rs_universal_is_global(const rs_stored_value *value)
{
    return !rs_slice_begins(value->name, "optimizer.");
}

bool rs_universal_leaves_tied(rs_slice name)
{
    return rs_slice_ends(name, "lm_head.weight") || rs_slice_ends(name, "embed_out.weight") ||
           rs_slice_equals(name, "output.weight");
}

static bool is_step(const rs_stored_value *value)
{
    return rs_slice_begins(value->name, "optimizer.state.") && rs_slice_ends(value->name, ".step");
}

bool rs_universal_holds(const rs_stored_value *value)
{
    return rs_torch_nest_holds(value) && (rs_universal_is_global(value) || is_step(value) ||
                                          rs_slice_equals(value->name, "optimizer.param_groups"));
}

/* ---- what tensors are ------------------------------------------------------------------------ */

typedef struct writing {
    rs_laying *laying;
    rs_target *target;
    rs_universal *universal;
    int64_t file_count, file_capacity;
    rs_universal_file *files; /* while they are listed */
    int64_t moments;          /* how many states were found */
} writing;

/* Keys below which a model is stored beside its optimizer. */
static const char *find_home(const rs_laying *laying)
{
    static const char *const homes[] = {"model.", "module.", "state_dict."};
    const rs_selection *selection = &laying->cuts->selection;
    if (selection->prefix.count != 0)
        return ""; /* names have lost it */
    for (int64_t i = 0; i < selection->count; i++) {
        const rs_selected *item = &selection->items[i];
        for (size_t j = 0; j < sizeof homes / sizeof *homes; j++) {
            const rs_value_step *step = laying->source->tensors[item->origin].step;
            if (item->followed != NULL && rs_slice_equals(item->followed->skipped, homes[j]))
                return homes[j];
            while (step != NULL && step->parent != NULL)
                step = step->parent;
            if (step != NULL && step->key.bytes != NULL &&
                step->key.count + 1 == strlen(homes[j]) &&
                memcmp(step->key.bytes, homes[j], step->key.count) == 0 &&
                rs_slice_begins(item->name, homes[j]))
                return homes[j];
        }
    }
    return "";
}

/* The name of a state, behind that of its parameter (".exp_avg") or, as Megatron has it, in front
 * of it ("optimizer.state.exp_avg."). */
static rs_slice name_state(rs_slice front, rs_slice back)
{
    if (back.count != 0)
        return (rs_slice){back.bytes + 1, back.count - 1};
    size_t end = front.count - (front.count != 0), begin = end;
    while (begin > 0 && front.bytes[begin - 1] != '.')
        begin--;
    rs_slice state = {front.bytes + begin, end - begin};
    bool is_master = rs_slice_equals(state, "param") || rs_slice_equals(state, "fp32_param");
    return is_master ? rs_slice_of("fp32") : state;
}

static bool find_followed(const rs_selected *item, rs_slice *out_parameter, rs_slice *out_state)
{
    const rs_followed *followed = item->followed;
    if (followed == NULL || !followed->follows)
        return false;
    rs_slice front = followed->front, back = followed->back;
    *out_parameter =
        (rs_slice){item->name.bytes + front.count, item->name.count - front.count - back.count};
    *out_state = name_state(front, back);
    return true;
}

/* Lists the parameters of which the optimizer has a master copy. */
static reshard_status find_masters(writing *w)
{
    const rs_selection *selection = &w->laying->cuts->selection;
    rs_universal *universal = w->universal;
    rs_slice *masters =
        rs_arena_allocate_array(&w->target->arena, (size_t)selection->count, sizeof *masters);
    size_t count = 0;
    if (masters == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < selection->count; i++) {
        rs_slice parameter, state;
        if (find_followed(&selection->items[i], &parameter, &state) &&
            rs_slice_equals(state, "fp32"))
            masters[count++] = parameter;
    }
    rs_sort(masters, count, sizeof *masters, rs_compare_slices);
    for (size_t i = 1; i < count; i++) {
        if (rs_slice_compare(masters[i - 1], masters[i]) == 0)
            return rs_fail(RESHARD_ERR_INVALID,
                           "two states of the optimizer are master copies of \"%.*s\"",
                           rs_slice_shown(masters[i]), masters[i].bytes);
    }
    universal->masters = masters;
    universal->master_count = count;
    return count == 0 ? RESHARD_OK
                      : rs_target_say(w->target,
                                      "weights that are the optimizer's own, in f32: %lld; the "
                                      "model's are in the model file",
                                      (long long)count);
}

bool rs_universal_has_master(const rs_universal *universal, rs_slice parameter)
{
    return universal->master_count != 0 &&
           bsearch(&parameter, universal->masters, universal->master_count, sizeof parameter,
                   rs_compare_slices) != NULL;
}

/* The parameter and state of a selected tensor. False: it belongs into the model file. */
static bool find_state(const writing *w, const rs_selected *item, rs_slice *out_parameter,
                       rs_slice *out_state)
{
    const rs_followed *followed = item->followed;
    if (find_followed(item, out_parameter, out_state))
        return true;
    rs_slice name = rs_universal_name(w->universal, item->name);
    bool is_inner = w->universal->home.count == 0 || name.bytes != item->name.bytes;
    if (followed != NULL || !is_inner || item->stored->is_fixed ||
        !rs_dtype_is_float(item->stored->dtype) || rs_universal_has_master(w->universal, name))
        return false;
    *out_parameter = name;
    *out_state = rs_slice_of("fp32");
    return true;
}

/* A parameter's name becomes that of a folder. */
static reshard_status check_name(rs_slice parameter, rs_slice state)
{
    bool is_plain =
        parameter.count != 0 && parameter.count <= COMPONENT_BYTES_MAX && parameter.bytes[0] != '.';
    for (size_t i = 0; i < parameter.count; i++)
        is_plain = is_plain && parameter.bytes[i] != '/' && parameter.bytes[i] != '\0';
    is_plain = is_plain && state.count < 64 && memchr(state.bytes, '/', state.count) == NULL;
    if (is_plain)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_INVALID,
                   "\"%.*s\" cannot be the name of a folder, and universal checkpoints have one "
                   "for each parameter; rename the tensor",
                   rs_slice_shown(parameter), parameter.bytes);
}

static reshard_status add_file(writing *w, const rs_universal_file *file)
{
    reshard_status status =
        rs_grow(w->target->context, &w->files, &w->file_capacity, w->file_count + 1, sizeof *file);
    if (status == RESHARD_OK)
        w->files[w->file_count++] = *file;
    return status;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* An embedding keeps its name rather than the head that is tied to it, whichever comes first. */
static reshard_status add_alias(writing *w, const rs_selected *item)
{
    rs_universal *universal = w->universal;
    int64_t owner = w->target->owners[w->target->tensor_count];
    rs_slice alias = rs_universal_name(universal, item->name);
    rs_slice kept = rs_universal_name(universal, w->target->tensors[owner].name);
    for (int64_t i = 0; i < w->file_count; i++) {
        rs_universal_file *file = &w->files[i];
        if (file->kind == RS_UNIVERSAL_STATE && file->tensor == owner) {
            kept = file->parameter;
            if (rs_universal_leaves_tied(kept) && !rs_universal_leaves_tied(alias)) {
                file->parameter = alias;
                alias = kept;
                kept = file->parameter;
            }
        }
    }
    universal->aliases[universal->alias_count++] = (rs_universal_alias){alias, kept};
    return RESHARD_OK;
}

/* Reads a step that is a tensor: the loader of stage 3 wants it as a number. */
static reshard_status read_step(writing *w, const rs_stored_tensor *tensor)
{
    union {
        float f32;
        double f64;
        int64_t i64;
        char bytes[64];
    } number = {.bytes = {0}}, scratch;
    if (w->universal->step_number != 0 || tensor->ndim != 0 || w->laying->source->plan_only ||
        (tensor->dtype != RESHARD_F32 && tensor->dtype != RESHARD_F64 &&
         tensor->dtype != RESHARD_I64))
        return RESHARD_OK;
    const int64_t none[1] = {0};
    reshard_status status =
        rs_store_read_box(w->laying->source, tensor, none, none, &number, &scratch, sizeof scratch);
    if (status != RESHARD_OK)
        return status;
    double real = tensor->dtype == RESHARD_F32 ? (double)number.f32 : number.f64;
    if (tensor->dtype == RESHARD_I64)
        w->universal->step_number = number.i64;
    else if (real >= 0 && real < 1e15)
        w->universal->step_number = (int64_t)real;
    return RESHARD_OK;
}

static reshard_status add_tensor(writing *w, const rs_selected *item)
{
    rs_target *target = w->target;
    rs_selected made = *item;
    rs_universal_file file = {.kind = RS_UNIVERSAL_STATE, .tensor = target->tensor_count};
    bool is_state = find_state(w, item, &file.parameter, &file.state);
    bool is_scalar = is_state && item->followed != NULL && item->stored->ndim == 0 &&
                     rs_slice_equals(file.state, "step");
    reshard_status status = rs_torch_check_dtype(item->name, item->dtype);
    if (status == RESHARD_OK && is_state)
        status = check_name(file.parameter, file.state);
    if (status != RESHARD_OK)
        return status;
    if (is_state && !is_scalar && rs_cast_supports(item->stored->dtype, RESHARD_F32))
        made.dtype = RESHARD_F32;
    if (is_scalar) {
        file.kind = RS_UNIVERSAL_STEP;
        status = read_step(w, item->stored);
        if (status != RESHARD_OK)
            return status;
    }
    w->moments +=
        is_state && item->followed != NULL && !is_scalar && !rs_slice_equals(file.state, "fp32");
    /* An alias of a parameter is only a name. */
    if (is_state && item->followed == NULL && target->owners[target->tensor_count] >= 0) {
        status = add_alias(w, item);
        return status == RESHARD_OK ? rs_target_add_tied(w->laying, &made) : status;
    }
    target->owners[target->tensor_count] = -1;
    target->file_count = (int32_t)w->file_count + 1; /* with the one that follows */
    status = rs_target_add_whole(w->laying, &made, is_state ? (int32_t)w->file_count : 0);
    return status == RESHARD_OK && is_state ? add_file(w, &file) : status;
}

/* ---- what no tensor says --------------------------------------------------------------------- */

static const rs_stored_value *find_value(const reshard_checkpoint *source, const char *name)
{
    for (int64_t i = 0; i < source->value_count; i++) {
        if (rs_slice_equals(source->values[i].name, name))
            return &source->values[i];
    }
    return NULL;
}

/* Steps that the source has as values. */
static reshard_status add_steps(writing *w)
{
    const reshard_checkpoint *source = w->laying->source;
    const size_t front = strlen("optimizer.state."), back = strlen(".step");
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < source->value_count; i++) {
        const rs_stored_value *value = &source->values[i];
        rs_slice name = value->name;
        if (!rs_target_keeps(w->target, &name) || !is_step(value) || !rs_torch_nest_holds(value) ||
            name.count <= front + back)
            continue;
        const rs_universal_file file = {
            .kind = RS_UNIVERSAL_STEP,
            .parameter = {name.bytes + front, name.count - front - back},
            .state = rs_slice_of("step"),
            .tensor = -1,
            .value = value};
        status = check_name(file.parameter, file.state);
        if (status == RESHARD_OK)
            status = add_file(w, &file);
        if (w->universal->step == NULL)
            w->universal->step = value->node;
    }
    return status;
}

/* Moments without a step would be corrected as if they were new. */
static reshard_status note_step(writing *w)
{
    bool has_step = false;
    for (int64_t i = 0; !has_step && i < w->file_count; i++)
        has_step = w->files[i].kind == RS_UNIVERSAL_STEP;
    return has_step || w->moments == 0
               ? RESHARD_OK
               : rs_target_say(w->target,
                               "no tensor or value says how many steps the optimizer has "
                               "made, so the universal checkpoint says 0");
}

/* Moments of zeros for a source that has none, if the user wants them. */
static reshard_status add_moments(writing *w)
{
    static const char *const states[] = {"exp_avg", "exp_avg_sq"};
    rs_config *config = &w->laying->cuts->book.config;
    int64_t wanted = 0, count = w->file_count;
    reshard_status status = RESHARD_OK;
    (void)rs_config_find(config, "zero_moments", &wanted);
    if (w->moments != 0)
        return RESHARD_OK;
    if (wanted == 0)
        return rs_target_say(
            w->target, "the source has no moments of an optimizer, so the universal checkpoint "
                       "has weights only; zero_moments=1 writes moments of zeros");
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++) {
        for (size_t j = 0; status == RESHARD_OK && j < sizeof states / sizeof *states; j++) {
            const rs_universal_file file = {.kind = RS_UNIVERSAL_ZEROS,
                                            .parameter = w->files[i].parameter,
                                            .state = rs_slice_of(states[j]),
                                            .tensor = w->files[i].tensor};
            if (w->files[i].kind == RS_UNIVERSAL_STATE)
                status = add_file(w, &file);
        }
    }
    return status;
}

/* ---- the layout ------------------------------------------------------------------------------ */

static reshard_status make_tag(writing *w)
{
    char text[64] = "universal";
    int64_t steps = 0;
    const rs_stored_value *value = find_value(w->laying->source, "global_steps");
    if (value != NULL && value->node != NULL && rs_pickle_int(value->node, &steps) && steps >= 0)
        (void)snprintf(text, sizeof text, "global_step%lld_universal", (long long)steps);
    w->universal->tag = rs_arena_copy(&w->target->arena, text, strlen(text) + 1, 1);
    return w->universal->tag != NULL ? RESHARD_OK : rs_allocation_status();
}

static reshard_status list_files(writing *w)
{
    static const rs_universal_kind kinds[] = {RS_UNIVERSAL_MODEL, RS_UNIVERSAL_RANK_MODEL,
                                              RS_UNIVERSAL_OPTIMIZER};
    const rs_selection *selection = &w->laying->cuts->selection;
    reshard_status status = rs_target_find_tied(w->laying);
    if (status == RESHARD_OK)
        status = find_masters(w);
    for (size_t i = 0; status == RESHARD_OK && i < sizeof kinds / sizeof *kinds; i++)
        status = add_file(w, &(rs_universal_file){.kind = kinds[i], .tensor = -1});
    for (int64_t i = 0; status == RESHARD_OK && i < selection->count; i++)
        status = add_tensor(w, &selection->items[i]);
    if (status == RESHARD_OK && w->file_count == sizeof kinds / sizeof *kinds)
        status = rs_fail(RESHARD_ERR_INVALID,
                         "a universal checkpoint has a folder for each floating-point parameter, "
                         "and the source has no such tensor; choose another format");
    if (status == RESHARD_OK)
        status = add_steps(w);
    if (status == RESHARD_OK)
        status = note_step(w);
    if (status == RESHARD_OK)
        status = add_moments(w);
    if (status == RESHARD_OK && w->file_count > INT32_MAX / 2)
        status = rs_fail(RESHARD_ERR_RANGE, "there would be %lld files, which is too many",
                         (long long)w->file_count);
    return status;
}

reshard_status rs_universal_lay_out(rs_laying *laying)
{
    rs_target *target = laying->target;
    rs_arena *arena = &target->arena;
    writing w = {.laying = laying, .target = target};
    w.universal = rs_arena_allocate(arena, sizeof *w.universal);
    if (w.universal == NULL)
        return rs_allocation_status();
    *w.universal =
        (rs_universal){.home = rs_slice_of(find_home(laying)),
                       .param_groups = find_value(laying->source, "optimizer.param_groups"),
                       .ds_version = find_value(laying->source, "ds_version")};
    w.universal->aliases = rs_arena_allocate_array(arena, (size_t)laying->cuts->selection.count,
                                                   sizeof *w.universal->aliases);
    target->notes = w.universal;
    reshard_status status = w.universal->aliases != NULL ? make_tag(&w) : rs_allocation_status();
    if (status == RESHARD_OK)
        status = list_files(&w);
    if (status == RESHARD_OK) {
        w.universal->files = rs_arena_copy(arena, w.files, (size_t)w.file_count, sizeof *w.files);
        target->file_count = (int32_t)w.file_count;
        status = w.universal->files != NULL ? RESHARD_OK : rs_allocation_status();
    }
    rs_release(target->context, w.files);
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

void rs_universal_name_file(const rs_target *target, int32_t index, int32_t rank,
                            char out_name[RS_FILE_NAME_BYTES])
{
    const rs_universal *universal = rs_universal_of(target);
    const rs_universal_file *file = &universal->files[index];
    static const char *const names[] = {[RS_UNIVERSAL_MODEL] = "mp_rank_00_model_states.pt",
                                        [RS_UNIVERSAL_RANK_MODEL] =
                                            "zero_pp_rank_0_mp_rank_00_model_states.pt",
                                        [RS_UNIVERSAL_OPTIMIZER] = "zero/optimizer_state.pt"};
    (void)rank;
    if (file->kind < RS_UNIVERSAL_STATE)
        (void)snprintf(out_name, RS_FILE_NAME_BYTES, "%s/%s", universal->tag, names[file->kind]);
    else
        (void)snprintf(out_name, RS_FILE_NAME_BYTES, "%s/zero/%.*s/%.*s.pt", universal->tag,
                       (int)file->parameter.count, file->parameter.bytes, (int)file->state.count,
                       file->state.bytes);
}

/* The one element that a moment of zeros repeats. */
static void write_zero(rs_json_writer *writer, const rs_target *target, int32_t file)
{
    static const char zero[4] = {0};
    if (rs_universal_of(target)->files[file].kind == RS_UNIVERSAL_ZEROS)
        rs_json_writer_add(writer, zero, sizeof zero);
}

const rs_torch_style rs_universal_style = {
    .write_root = rs_universal_write, .record_name = "data/0", .write_record = write_zero};

reshard_status rs_universal_finish(const rs_target *target, const rs_finishing *finishing)
{
    const char *tag = rs_universal_of(target)->tag;
    reshard_status status = rs_torch_save_finish(target, finishing);
    return status == RESHARD_OK
               ? finishing->add(finishing->user, "latest_universal", tag, strlen(tag))
               : status;
}
