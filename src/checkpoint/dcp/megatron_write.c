/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_write.c - cuts boxes into Megatron's chunks, and writes what belongs to them. */
#include "checkpoint/dcp/megatron.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "checkpoint/archive/pickle_write.h"
#include "checkpoint/dcp/dcp_write.h"
#include "checkpoint/select/parameter.h"
#include "checkpoint/torch/torch_save.h"
#include "text/json_writer.h"
#include "text/text.h"

#include <stdio.h>
#include <string.h>

#define ABOUT_TEXT                                                           \
    "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, " \
    "\"common_backend\": \"torch\", \"common_backend_version\": 1}"

/* ---- chunks ---------------------------------------------------------------------------------- */

/* How a tensor is cut into chunks: one index of the first dims each, and the halves of the next. */
typedef struct unit_cutting {
    const rs_laying *laying;
    rs_stored_tensor *tensor; /* gets its pieces */
    int32_t lead;
    int64_t middle; /* where the second half of dim `lead` begins; 0: there are no halves */
} unit_cutting;

/* The part of a box before or behind the middle of dim `lead`. False if there is none. */
static bool take_half(const unit_cutting *c, const rs_stored_piece *box, bool is_second,
                      int64_t *offset, int64_t *size)
{
    int32_t ndim = c->tensor->carried_ndim, lead = c->lead;
    for (int32_t d = 0; d < ndim; d++) {
        offset[d] = box->offset != NULL ? box->offset[d] : 0;
        size[d] = box->size[d];
    }
    if (c->middle == 0)
        return !is_second;
    int64_t begin = offset[lead], end = begin + size[lead];
    begin = is_second ? rs_max(begin, c->middle) : begin;
    end = is_second ? end : rs_min(end, c->middle);
    offset[lead] = begin;
    size[lead] = end - begin;
    return end > begin;
}

/* Adds the pieces of a box, one for each index of the first dims, with an entry each. */
static reshard_status add_units(const unit_cutting *c, const int64_t *from, const int64_t *extent,
                                int32_t file)
{
    rs_target *target = c->laying->target;
    rs_stored_tensor *tensor = c->tensor;
    int32_t ndim = tensor->carried_ndim;
    int64_t *size = rs_arena_allocate_array(&target->arena, (size_t)ndim, sizeof *size);
    int64_t count = rs_volume(c->lead, extent);
    if (size == NULL)
        return rs_allocation_status();
    for (int32_t d = 0; d < ndim; d++)
        size[d] = d < c->lead ? 1 : extent[d];
    const rs_target_array array = {.ndim = ndim,
                                   .shape = size,
                                   .bytes = (uint64_t)rs_volume(ndim, size) *
                                            (uint64_t)tensor->element_bytes,
                                   .piece_count = 1};
    rs_target_entry entry = {.tensor = (int32_t)target->tensor_count, .file = file};
    reshard_status status = rs_target_add_array(target, &array, &entry.array);
    for (int64_t k = 0; status == RESHARD_OK && k < count; k++) {
        int64_t rest = k;
        int64_t *offset = rs_arena_allocate_array(&target->arena, (size_t)ndim, sizeof *offset);
        if (offset == NULL)
            return rs_allocation_status();
        for (int32_t d = ndim; d-- > 0;) {
            offset[d] = from[d] + (d < c->lead ? rest % extent[d] : 0);
            rest /= d < c->lead ? extent[d] : 1;
        }
        entry.piece_first = (int32_t)tensor->piece_count;
        tensor->pieces[tensor->piece_count++] =
            (rs_stored_piece){.file = file, .offset = offset, .size = size};
        status = rs_target_add_entry(target, &entry);
    }
    return status;
}

/* Cuts the boxes that a tensor was placed in. */
static reshard_status cut_boxes(unit_cutting *c)
{
    rs_target *target = c->laying->target;
    rs_stored_tensor *tensor = c->tensor;
    const rs_stored_piece *boxes = tensor->pieces;
    int64_t count = tensor->piece_count, units = 0;
    int64_t offset[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < count; i++)
        units += 2 * rs_volume(c->lead, boxes[i].size);
    if (units > INT32_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "tensor \"%.*s\" would have %lld chunks, which is too many",
                       rs_slice_shown(tensor->name), tensor->name.bytes, (long long)units);
    tensor->pieces = rs_arena_allocate_array(&target->arena, (size_t)units, sizeof *boxes);
    if (tensor->pieces == NULL)
        return rs_allocation_status();
    tensor->piece_count = 0;
    for (int64_t i = 0; i < count; i++) {
        for (int half = 0; status == RESHARD_OK && half < 2; half++) {
            if (take_half(c, &boxes[i], half == 1, offset, size))
                status = add_units(c, offset, size, boxes[i].file);
        }
    }
    return status;
}

/* Are gate and up, one behind the other, two chunks? They are to ranks that are not cut, too. */
static bool has_halves(const rs_laying *laying, rs_slice name)
{
    static const char *const endings[] = {".linear_fc1.weight", ".linear_fc1.bias"};
    const rs_rules_keys *keys = &laying->cuts->book.keys;
    const char *type = keys->find_text != NULL ? keys->find_text(keys->user, "model_type") : NULL;
    for (size_t i = 0; i < 2; i++) {
        size_t count = strlen(endings[i]);
        if (name.count > count && memcmp(name.bytes + name.count - count, endings[i], count) == 0)
            return type == NULL || strcmp(type, "nemotron") != 0;
    }
    return false;
}

/* Places the boxes of a tensor as any distributed checkpoint does, then cuts them. */
static reshard_status place_tensor(const rs_laying *laying, const rs_cut_tensor *cut)
{
    rs_stored_tensor *tensor = cut->tensor;
    unit_cutting c = {laying, tensor, rs_megatron_lead(tensor->name), 0};
    int64_t first = laying->target->entry_count;
    reshard_status status = rs_torch_check_dtype(tensor->name, tensor->dtype);
    if (status == RESHARD_OK)
        status = rs_target_place_boxes(laying, cut, NULL);
    if (status != RESHARD_OK || c.lead >= tensor->carried_ndim || tensor->opaque ||
        tensor->bytes == 0)
        return status;
    if (has_halves(laying, tensor->name))
        c.middle = tensor->carried_shape[c.lead] / 2;
    if (c.lead == 0 && c.middle == 0)
        return RESHARD_OK;
    laying->target->entry_count = first;
    return cut_boxes(&c);
}

/* ---- entries that are no tensors ------------------------------------------------------------- */

/* What is kept for the end. */
typedef struct megatron_notes {
    rs_dcp_notes notes;
    char folder[32];
    int64_t iteration;   /* -1: a release */
    rs_dcp_value common; /* common.pt */
} megatron_notes;

typedef struct value_list {
    rs_target *target;
    int64_t count, capacity;
    rs_dcp_value *items;
} value_list;

static reshard_status add_value(value_list *list, rs_slice name, const rs_dcp_value *like)
{
    reshard_status status = rs_grow(list->target->context, &list->items, &list->capacity,
                                    list->count + 1, sizeof *list->items);
    if (status == RESHARD_OK) {
        list->items[list->count] = *like;
        list->items[list->count++].name = name;
    }
    return status;
}

/* The module of a weight that has an _extra_state: a linear layer, or a norm of its own. */
static bool find_module(rs_slice name, rs_slice *out_module)
{
    static const char weight[] = ".weight";
    size_t end = name.count - (sizeof weight - 1), begin = end;
    if (name.count < sizeof weight || memcmp(name.bytes + end, weight, sizeof weight - 1) != 0)
        return false;
    while (begin > 0 && name.bytes[begin - 1] != '.')
        begin--;
    rs_slice last = {name.bytes + begin, end - begin};
    static const char linear[] = "linear_", norm[] = "norm";
    bool is_linear =
        last.count >= sizeof linear - 1 && memcmp(last.bytes, linear, sizeof linear - 1) == 0;
    bool is_norm = last.count >= sizeof norm - 1 &&
                   memcmp(last.bytes + last.count - (sizeof norm - 1), norm, sizeof norm - 1) == 0;
    *out_module = (rs_slice){name.bytes, end};
    return is_linear || is_norm || rs_slice_equals(last, "eh_proj");
}

/* Adds the entries of one weight: for each index of its first dims, or one. */
static reshard_status add_extra(value_list *list, const rs_stored_tensor *tensor,
                                const rs_dcp_value *empty)
{
    int32_t lead = rs_megatron_lead(tensor->name);
    rs_slice module = {NULL, 0};
    reshard_status status = RESHARD_OK;
    if (rs_state_is_named(tensor->name) || !find_module(tensor->name, &module) ||
        lead >= tensor->ndim)
        return RESHARD_OK;
    int64_t count = rs_volume(lead, tensor->shape);
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++) {
        size_t room = module.count + 120;
        char *name = rs_arena_allocate(&list->target->arena, room);
        rs_text text;
        if (name == NULL)
            return rs_allocation_status();
        rs_text_init(&text, name, room);
        rs_text_add(&text, "%.*s._extra_state/shard_", (int)module.count, module.bytes);
        if (lead == 0)
            rs_text_add(&text, "0_1");
        if (lead == 1)
            rs_text_add(&text, "%lld_%lld", (long long)i, (long long)tensor->shape[0]);
        if (lead == 2)
            rs_text_add(&text, "%lld.%lld_%lld.%lld", (long long)(i / tensor->shape[1]),
                        (long long)(i % tensor->shape[1]), (long long)tensor->shape[0],
                        (long long)tensor->shape[1]);
        status = add_value(list, (rs_slice){name, strlen(name)}, empty);
    }
    return status;
}

/* Writes the dict of the common state; in a list, if it is an entry. */
static reshard_status write_common(rs_target *target, int64_t iteration, rs_slice record,
                                   bool in_list, rs_dcp_value *out_value)
{
    rs_pickle_writer w;
    rs_slice bytes;
    rs_pickle_writer_init(&w, target->context);
    rs_pickle_writer_begin(&w);
    if (in_list)
        rs_pickle_write_list_begin(&w);
    rs_pickle_write_dict_begin(&w);
    rs_pickle_write_text(&w, rs_slice_of("checkpoint_version"));
    rs_pickle_write_float(&w, 3.0);
    rs_pickle_write_text(&w, rs_slice_of("iteration"));
    rs_pickle_write_int(&w, iteration < 0 ? 0 : iteration);
    rs_pickle_write_text(&w, rs_slice_of("content_metadata"));
    rs_pickle_write_dict_begin(&w);
    rs_pickle_write_text(&w, rs_slice_of("singleton_local_shards"));
    rs_pickle_write_bool(&w, false);
    rs_pickle_write_text(&w, rs_slice_of("chained_optim_avoid_prefix"));
    rs_pickle_write_bool(&w, true);
    rs_pickle_write_dict_end(&w);
    rs_pickle_write_text(&w, rs_slice_of(RS_MEGATRON_RECORD_KEY));
    rs_pickle_write_text(&w, record);
    rs_pickle_write_dict_end(&w);
    if (in_list)
        rs_pickle_write_list_end(&w);
    reshard_status status = rs_pickle_writer_finish(&w, &bytes);
    if (status == RESHARD_OK) {
        *out_value = (rs_dcp_value){
            .pickle = {rs_arena_copy(&target->arena, bytes.bytes, bytes.count, 1), bytes.count}};
        status = out_value->pickle.bytes != NULL ? rs_dcp_value_measure(target->context, out_value)
                                                 : rs_allocation_status();
    }
    rs_pickle_writer_release(&w);
    return status;
}

static reshard_status list_values(const rs_laying *laying, bool has_extras, megatron_notes *notes,
                                  value_list *list)
{
    rs_target *target = laying->target;
    /* [None], as Python pickles it in protocol 2 */
    static const char none_list[] = "\x80\x02]Na.";
    rs_dcp_value entry, empty = {.pickle = {none_list, sizeof none_list - 1}};
    rs_json_writer record;
    rs_json_writer_init(&record, target->context);
    rs_config_record(&laying->cuts->book.config, &record);
    rs_slice said = {record.bytes, (size_t)record.count};
    reshard_status status = record.status;
    if (status == RESHARD_OK)
        status = rs_dcp_value_measure(target->context, &empty);
    if (status == RESHARD_OK)
        status = write_common(target, notes->iteration, said, false, &notes->common);
    if (status == RESHARD_OK)
        status = write_common(target, notes->iteration, said, true, &entry);
    rs_json_writer_release(&record);
    if (status == RESHARD_OK)
        status = add_value(list, rs_slice_of(RS_MEGATRON_COMMON_KEY), &entry);
    for (int64_t i = 0; status == RESHARD_OK && has_extras && i < target->tensor_count; i++)
        status = add_extra(list, &target->tensors[i], &empty);
    return status;
}

/* ---- the format ------------------------------------------------------------------------------ */

/* Says what a reader of the folder has to know. */
static reshard_status tell(const rs_laying *laying, const megatron_notes *notes)
{
    rs_target *target = laying->target;
    bool is_stacked = false;
    for (int64_t i = 0; i < target->tensor_count; i++)
        is_stacked = is_stacked || (rs_megatron_lead(target->tensors[i].name) != 0 &&
                                    memcmp(target->tensors[i].name.bytes, "decoder.layers.",
                                           sizeof "decoder.layers." - 1) == 0);
    for (int64_t i = 0; i < target->tensor_count && is_stacked; i++) {
        rs_slice name = target->tensors[i].name;
        size_t at = sizeof "decoder.layers." - 1;
        is_stacked = !(name.count > at && memcmp(name.bytes, "decoder.layers.", at) == 0 &&
                       name.bytes[at] >= '0' && name.bytes[at] <= '9');
    }
    if (laying->source->is_megatron) {
        reshard_status status = rs_target_say(
            target, "a new common state is written, without the arguments and steps of the source");
        if (status != RESHARD_OK)
            return status;
    }
    return rs_target_say(
        target, "layers are %s; entries _extra_state, all empty: %lld; the folder is %s",
        is_stacked ? "stacked, because all layers are alike" : "numbered, because layers differ",
        (long long)notes->notes.value_count - 1, notes->folder);
}

/* The iteration of a source that is Megatron's too, by the name of its folder; -1: it has none. */
static int64_t find_iteration(const reshard_checkpoint *source)
{
    static const char front[] = "iter_";
    const char *slash = strrchr(source->folder, '/');
    const char *name = slash != NULL ? slash + 1 : source->folder;
    const char *digits = name + (sizeof front - 1);
    int64_t number = 0;
    if (!source->is_megatron || strncmp(name, front, sizeof front - 1) != 0 || *digits == '\0' ||
        strlen(digits) > 15)
        return -1;
    for (; *digits >= '0' && *digits <= '9'; digits++)
        number = number * 10 + (*digits - '0');
    return *digits == '\0' ? number : -1;
}

reshard_status rs_megatron_lay_out(rs_laying *laying)
{
    rs_target *target = laying->target;
    const rs_rules_keys *keys = &laying->cuts->book.keys;
    megatron_notes *made = rs_arena_allocate(&target->arena, sizeof *made);
    value_list list = {.target = target};
    int64_t extras = 1;
    if (made == NULL)
        return rs_allocation_status();
    *made = (megatron_notes){.iteration = find_iteration(laying->source)};
    made->notes = (rs_dcp_notes){.source = laying->source, .value_file = -1, .has_no_paths = true};
    if (made->iteration < 0)
        (void)snprintf(made->folder, sizeof made->folder, "release/");
    else
        (void)snprintf(made->folder, sizeof made->folder, "iter_%07lld/",
                       (long long)made->iteration);
    made->notes.folder = made->folder;
    made->notes.more = made;
    target->notes = &made->notes;
    reshard_status status = rs_target_cut(laying, place_tensor);
    if (keys->find != NULL)
        (void)keys->find(keys->user, "extra_state", &extras);
    if (status == RESHARD_OK)
        status = list_values(laying, extras != 0, made, &list);
    made->notes.value_count = list.count;
    if (status == RESHARD_OK) {
        made->notes.values =
            rs_arena_copy(&target->arena, list.items, (size_t)list.count, sizeof *list.items);
        status = made->notes.values != NULL ? tell(laying, made) : rs_allocation_status();
    }
    rs_release(target->context, list.items);
    return status;
}

void rs_megatron_name_file(const rs_target *target, int32_t file, int32_t rank,
                           char out_name[RS_FILE_NAME_BYTES])
{
    const rs_dcp_notes *notes = target->notes;
    (void)file;
    (void)snprintf(out_name, RS_FILE_NAME_BYTES, "%s__%d_0.distcp", notes->folder, (int)rank);
}

/* A value that is a file of its own. */
typedef struct value_file {
    const rs_target *target;
    const rs_dcp_value *value;
} value_file;

static reshard_status write_value_file(const void *data, rs_file *file)
{
    const value_file *made = data;
    return rs_dcp_value_write(made->target, made->value, file);
}

reshard_status rs_megatron_finish(const rs_target *target, const rs_finishing *finishing)
{
    const megatron_notes *notes = ((const rs_dcp_notes *)target->notes)->more;
    const value_file common = {target, &notes->common};
    char name[RS_FILE_NAME_BYTES];
    reshard_status status = rs_dcp_finish(target, finishing);
    (void)snprintf(name, sizeof name, "%s" RS_MEGATRON_COMMON_NAME, notes->folder);
    if (status == RESHARD_OK)
        status =
            finishing->make(finishing->user, name, notes->common.bytes, write_value_file, &common);
    (void)snprintf(name, sizeof name, "%s" RS_MEGATRON_ABOUT_NAME, notes->folder);
    if (status == RESHARD_OK)
        status = finishing->add(finishing->user, name, ABOUT_TEXT, sizeof ABOUT_TEXT - 1);
    char latest[24] = "release";
    if (notes->iteration >= 0)
        (void)snprintf(latest, sizeof latest, "%lld", (long long)notes->iteration);
    return status == RESHARD_OK
               ? finishing->add(finishing->user, RS_MEGATRON_LATEST_NAME, latest, strlen(latest))
               : status;
}
