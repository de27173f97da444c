/* SPDX-License-Identifier: Apache-2.0 */
/* universal_pickles.c - what DeepSpeed's loaders ask of the files of a universal checkpoint, and no
 * class that would have to be imported. */
#include "checkpoint/deepspeed/universal.h"
#include "checkpoint/torch/torch_save.h"

#include <stdio.h>
#include <string.h>

/* Of loaders, the older one asks for 0.3.17 at least. */
#define DS_VERSION "0.16.0"
/* The loader of stages 1 and 2 goes through the groups of file and optimizer side by side, and ends
 * with the shorter list. If the source does not say how many there are, there are enough. */
#define GROUPS_MAX 64

static void write_key(rs_pickle_writer *writer, const char *key)
{
    rs_pickle_write_text(writer, rs_slice_of(key));
}

static bool is_writable(const rs_stored_value *value)
{
    return value != NULL && rs_torch_nest_holds(value);
}

static void write_version(rs_pickle_writer *writer, const rs_universal *universal)
{
    write_key(writer, "ds_version");
    if (is_writable(universal->ds_version))
        rs_torch_nest_write_value(writer, universal->ds_version->node);
    else
        rs_pickle_write_text(writer, rs_slice_of(DS_VERSION));
}

/* ---- the optimizer --------------------------------------------------------------------------- */

static void write_groups(rs_pickle_writer *writer, const rs_universal *universal)
{
    write_key(writer, "param_groups");
    if (is_writable(universal->param_groups)) {
        rs_torch_nest_write_value(writer, universal->param_groups->node);
        return;
    }
    rs_pickle_write_list_begin(writer);
    for (int i = 0; i < GROUPS_MAX; i++) {
        rs_pickle_write_dict_begin(writer);
        rs_pickle_write_dict_end(writer);
    }
    rs_pickle_write_list_end(writer);
}

static void write_step(rs_pickle_writer *writer, const rs_universal *universal)
{
    rs_stored_value value = {.node = universal->step};
    if (is_writable(&value))
        rs_torch_nest_write_value(writer, universal->step);
    else
        rs_pickle_write_int(writer, universal->step_number);
}

/* {ds_version, param_groups} is for stages 1 and 2; optimizer_state_dict for stage 3. */
static void write_optimizer(rs_pickle_writer *writer, const rs_universal *universal)
{
    rs_pickle_write_dict_begin(writer);
    write_version(writer, universal);
    write_groups(writer, universal);
    write_key(writer, "optimizer_state_dict");
    rs_pickle_write_dict_begin(writer);
    write_key(writer, "state");
    rs_pickle_write_dict_begin(writer);
    rs_pickle_write_int(writer, 0);
    rs_pickle_write_dict_begin(writer);
    write_key(writer, "step");
    write_step(writer, universal);
    rs_pickle_write_dict_end(writer);
    rs_pickle_write_dict_end(writer);
    write_groups(writer, universal);
    rs_pickle_write_dict_end(writer);
    rs_pickle_write_dict_end(writer);
}

/* ---- the model file -------------------------------------------------------------------------- */

static void write_entry(rs_pickle_writer *writer, const rs_target *target,
                        const rs_target_entry *entry, int64_t number)
{
    char key[24];
    int length = snprintf(key, sizeof key, "%lld", (long long)number);
    const rs_target_array *array = rs_target_array_of(target, entry);
    rs_torch_write_tensor(writer, (rs_slice){key, (size_t)length},
                          target->tensors[entry->tensor].dtype, array->ndim, array->shape);
}

/* The tensors of the model file: those of the model, or those beside it. */
static void write_tensors(rs_pickle_writer *writer, const rs_target *target, int32_t file,
                          bool of_model)
{
    const rs_universal *universal = rs_universal_of(target);
    const rs_target_file *placed = &target->files[file];
    for (int64_t i = 0; i < placed->entry_count; i++) {
        const rs_target_entry *entry = &target->entries[placed->entry_first + i];
        rs_slice name = target->tensors[entry->tensor].name;
        rs_slice inner = rs_universal_name(universal, name);
        bool is_inner = universal->home.count == 0 || inner.bytes != name.bytes;
        if (is_inner != of_model)
            continue;
        rs_pickle_write_text(writer, inner);
        write_entry(writer, target, entry, i);
    }
}

static void write_buffer_names(rs_pickle_writer *writer, const rs_target *target, int32_t file)
{
    const rs_universal *universal = rs_universal_of(target);
    const rs_target_file *placed = &target->files[file];
    write_key(writer, "buffer_names");
    rs_pickle_write_list_begin(writer);
    for (int64_t i = 0; i < placed->entry_count; i++) {
        const rs_target_entry *entry = &target->entries[placed->entry_first + i];
        rs_slice name = target->tensors[entry->tensor].name;
        rs_slice inner = rs_universal_name(universal, name);
        bool is_inner = universal->home.count == 0 || inner.bytes != name.bytes;
        if (is_inner && !rs_universal_has_master(universal, inner))
            rs_pickle_write_text(writer, inner);
    }
    rs_pickle_write_list_end(writer);
}

/* The shapes of all parameters, as one group. */
static void write_shapes(rs_pickle_writer *writer, const rs_target *target)
{
    const rs_universal *universal = rs_universal_of(target);
    write_key(writer, "param_shapes");
    rs_pickle_write_list_begin(writer);
    rs_pickle_write_dict_begin(writer);
    for (int32_t i = 0; i < target->file_count; i++) {
        const rs_universal_file *file = &universal->files[i];
        if (file->kind != RS_UNIVERSAL_STATE || !rs_slice_equals(file->state, "fp32"))
            continue;
        const rs_stored_tensor *tensor = &target->tensors[file->tensor];
        rs_pickle_write_text(writer, file->parameter);
        rs_torch_write_numbers(writer, tensor->ndim, tensor->shape);
    }
    rs_pickle_write_dict_end(writer);
    rs_pickle_write_list_end(writer);
}

static void write_aliases(rs_pickle_writer *writer, const rs_universal *universal)
{
    write_key(writer, "shared_params");
    rs_pickle_write_dict_begin(writer);
    for (int64_t i = 0; i < universal->alias_count; i++) {
        rs_pickle_write_text(writer, universal->aliases[i].alias);
        rs_pickle_write_text(writer, universal->aliases[i].kept);
    }
    rs_pickle_write_dict_end(writer);
}

/* Keys that the loaders demand, with what they are if the source does not say. */
static const struct {
    const char *key;
    int64_t number;
} demanded[] = {
    {"dp_world_size", 1}, {"global_steps", 0}, {"skipped_steps", 0}, {"global_samples", 0}};

static bool is_ours(rs_slice key)
{
    static const char *const keys[] = {"module",        "buffer_names", "param_shapes",
                                       "shared_params", "ds_version",   "mp_world_size"};
    bool is = false;
    for (size_t i = 0; !is && i < sizeof keys / sizeof *keys; i++)
        is = rs_slice_equals(key, keys[i]);
    return is;
}

static void write_values(rs_pickle_writer *writer, const rs_target *target)
{
    const reshard_checkpoint *source = target->source;
    for (size_t i = 0; i < sizeof demanded / sizeof *demanded; i++) {
        bool has = false;
        for (int64_t j = 0; !has && j < source->value_count; j++)
            has = rs_slice_equals(source->values[j].name, demanded[i].key) &&
                  is_writable(&source->values[j]);
        if (has)
            continue;
        write_key(writer, demanded[i].key);
        rs_pickle_write_int(writer, demanded[i].number);
    }
    for (int64_t i = 0; i < source->value_count; i++) {
        const rs_stored_value *value = &source->values[i];
        rs_slice name = value->name;
        if (!rs_target_keeps(target, &name) || name.count == 0 || is_ours(name) ||
            !rs_universal_is_global(value) || !is_writable(value))
            continue;
        rs_pickle_write_text(writer, name);
        rs_torch_nest_write_value(writer, value->node);
    }
}

static void write_model(rs_pickle_writer *writer, const rs_target *target, int32_t file)
{
    rs_pickle_write_dict_begin(writer);
    write_key(writer, "module");
    rs_pickle_write_dict_begin(writer);
    write_tensors(writer, target, file, true);
    rs_pickle_write_dict_end(writer);
    write_tensors(writer, target, file, false);
    write_buffer_names(writer, target, file);
    write_shapes(writer, target);
    write_aliases(writer, rs_universal_of(target));
    write_version(writer, rs_universal_of(target));
    write_key(writer, "mp_world_size");
    rs_pickle_write_int(writer, 1);
    write_values(writer, target);
    rs_pickle_write_dict_end(writer);
}

/* ---- one parameter --------------------------------------------------------------------------- */

static void write_parameter(rs_pickle_writer *writer, const rs_target *target, int32_t index)
{
    const rs_universal_file *file = &rs_universal_of(target)->files[index];
    const rs_target_file *placed = &target->files[index];
    if (file->kind == RS_UNIVERSAL_STEP && file->value != NULL) {
        rs_torch_nest_write_value(writer, file->value->node);
    } else if (file->kind == RS_UNIVERSAL_STEP) {
        write_entry(writer, target, &target->entries[placed->entry_first], 0);
    } else {
        rs_pickle_write_dict_begin(writer);
        write_key(writer, "param");
        const rs_stored_tensor *tensor = &target->tensors[file->tensor];
        if (file->kind == RS_UNIVERSAL_ZEROS)
            rs_torch_write_repeated(writer, rs_slice_of("0"), RESHARD_F32, tensor->ndim,
                                    tensor->shape);
        else
            write_entry(writer, target, &target->entries[placed->entry_first], 0);
        rs_pickle_write_dict_end(writer);
    }
}

reshard_status rs_universal_write(rs_pickle_writer *writer, const rs_target *target, int32_t file)
{
    const rs_universal *universal = rs_universal_of(target);
    rs_pickle_writer_begin(writer);
    switch (universal->files[file].kind) {
    case RS_UNIVERSAL_MODEL:
    case RS_UNIVERSAL_RANK_MODEL:
        write_model(writer, target, file);
        break;
    case RS_UNIVERSAL_OPTIMIZER:
        write_optimizer(writer, universal);
        break;
    case RS_UNIVERSAL_STATE:
    case RS_UNIVERSAL_STEP:
    case RS_UNIVERSAL_ZEROS:
        write_parameter(writer, target, file);
        break;
    }
    return writer->status;
}
