/* SPDX-License-Identifier: Apache-2.0 */
/* mapped.c - lists the source's tensors for a map, and makes the tensors of the other side. */
#include "checkpoint/view/mapped.h"

#include "base/context.h"
#include "base/digest.h"
#include "base/shape.h"
#include "base/sort.h"
#include "checkpoint/maps/resolve.h"
#include "checkpoint/select/parameter.h"
#include "kernel/values/cast.h"

#include <stdio.h>
#include <string.h>

/* ---- lines for the user ---------------------------------------------------------------------- */

static reshard_status say(rs_mapped_order *order, const char *format, ...) RS_PRINTF(2, 3);

static reshard_status say(rs_mapped_order *order, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    reshard_status status = rs_notes_add(order->lines, order->arena, format, arguments);
    va_end(arguments);
    return status;
}

reshard_status rs_mapped_warn(rs_mapped_order *order, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    reshard_status status = rs_notes_add(order->warnings, order->arena, format, arguments);
    va_end(arguments);
    return status;
}

/* ---- options --------------------------------------------------------------------------------- */

static reshard_status check_options(const reshard_checkpoint *source,
                                    const reshard_conversion_options *options)
{
    if (options->map_file != NULL && options->map_text != NULL)
        return rs_fail(RESHARD_ERR_INVALID,
                       "map_file and map_text are both given; give one of them");
    if (source->viewed != NULL)
        return rs_fail_about(RESHARD_ERR_INVALID, source->path,
                             "is already a view through a map; give the checkpoint itself");
    return RESHARD_OK;
}

/* ---- what is read ---------------------------------------------------------------------------- */

static reshard_status list_tensor(rs_arena *arena, const rs_selected *item,
                                  reshard_map_tensor *out_tensor)
{
    if (memchr(item->name.bytes, '\0', item->name.count) != NULL)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "tensor \"%.*s\": its name holds a NUL, which maps cannot take",
                       RS_SHOWN(item->name));
    char *name = rs_arena_allocate(arena, item->name.count + 1);
    if (name == NULL)
        return rs_allocation_status();
    memcpy(name, item->name.bytes, item->name.count);
    name[item->name.count] = '\0';
    *out_tensor = (reshard_map_tensor){.name = name,
                                       .dtype = item->dtype,
                                       .ndim = item->stored->ndim,
                                       .shape = item->stored->shape};
    return RESHARD_OK;
}

/* A state follows its parameter if that is selected too, and if no option names it otherwise. */
static rs_map_state find_state(const reshard_checkpoint *source, const rs_selected *item,
                               const int64_t *places)
{
    const rs_followed *followed = item->followed;
    rs_map_state state = {.parameter = -1};
    if (followed == NULL || !followed->follows || places[followed->parameter - source->tensors] < 0)
        return state;
    rs_parameter found = rs_parameter_find(source, &source->tensors[item->origin]);
    state.parameter = places[found.tensor];
    state.front = followed->front;
    state.back = followed->back;
    state.skipped = followed->skipped.count;
    state.same_shape = found.same_shape;
    return state;
}

/* Whether a tensor is a part of an optimizer's state that no map can take apart. */
static bool is_uncut(const reshard_checkpoint *source, const rs_selected *item)
{
    if (rs_state_is_bucket(item->stored->name))
        return true;
    if (!rs_state_is_named(item->stored->name))
        return false;
    rs_parameter found = rs_parameter_find(source, item->stored);
    return found.tensor >= 0 && !found.same_shape && item->stored->bytes != 0 &&
           rs_volume(item->stored->carried_ndim, item->stored->carried_shape) != 1;
}

/* Leaves out states of optimizers: those that cannot be cut and, for a target that takes only a
 * model, all of them. */
static reshard_status leave_states(rs_mapped_order *order, const reshard_checkpoint *source,
                                   bool takes_all, rs_selection *selection)
{
    int64_t uncut = 0, states = 0, kept = 0;
    rs_slice first = {NULL, 0};
    for (int64_t i = 0; i < selection->count; i++) {
        const rs_selected *item = &selection->items[i];
        if (is_uncut(source, item)) {
            first = uncut++ == 0 ? item->name : first;
        } else if (!takes_all && rs_state_is_named(item->stored->name)) {
            states++;
        } else {
            selection->items[kept++] = *item;
        }
    }
    selection->count = kept;
    reshard_status status = RESHARD_OK;
    if (uncut != 0)
        status = rs_mapped_warn(
            order,
            "%lld tensor%s of an optimizer %s left out (\"%.*s\"%s): %s not stored parameter by "
            "parameter, as Megatron does with fully_reshardable",
            (long long)uncut, uncut == 1 ? "" : "s", uncut == 1 ? "is" : "are", RS_SHOWN(first),
            uncut == 1 ? "" : " and others", uncut == 1 ? "it is" : "they are");
    if (status == RESHARD_OK && states != 0)
        status = say(order, "%lld state%s of an optimizer stay%s behind", (long long)states,
                     states == 1 ? "" : "s", states == 1 ? "s" : "");
    return status;
}

static reshard_status list_tensors(rs_arena *arena, const reshard_checkpoint *source,
                                   const rs_selection *selection, rs_map_input *out_input)
{
    size_t count = (size_t)selection->count, all = (size_t)source->tensor_count;
    reshard_status status = RESHARD_OK;
    out_input->count = selection->count;
    out_input->tensors = rs_arena_allocate_array(arena, count, sizeof *out_input->tensors);
    out_input->states = rs_arena_allocate_array(arena, count, sizeof *out_input->states);
    int64_t *places = rs_arena_allocate_array(arena, all, sizeof *places);
    if (out_input->tensors == NULL || out_input->states == NULL || places == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < all; i++)
        places[i] = -1;
    for (size_t i = 0; i < count; i++)
        places[selection->items[i].origin] = (int64_t)i;
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        status = list_tensor(arena, &selection->items[i], &out_input->tensors[i]);
        out_input->states[i] = find_state(source, &selection->items[i], places);
    }
    return status;
}

/* ---- what is made ---------------------------------------------------------------------------- */

typedef struct made_tensor {
    rs_stored_tensor tensor; /* comes first, for sorting */
    reshard_dtype dtype;
    rs_mapped_origin origin;
} made_tensor;

/* What is counted and remembered from tensor to tensor. */
typedef struct making {
    const rs_map_making *mapping;
    int64_t *seen; /* by tensor of the source: the last target that it was listed for */
    const char *file, *file_kept; /* the last file of a line, and a copy that stays */
    int64_t count, object_count, same_count;
} making;

/* Lists the tensors of the source that a target is made of, in the order of its links. */
static reshard_status list_sources(making *m, const reshard_map_target *target,
                                   const rs_formula_link *links, rs_mapped_origin *out_origin)
{
    const rs_map_making *mapping = m->mapping;
    size_t count = (size_t)target->link_count;
    int64_t *sources = rs_arena_allocate_array(mapping->arena, count, sizeof *sources);
    int64_t *by_link = rs_arena_allocate_array(mapping->arena, count, sizeof *by_link);
    if (sources == NULL || by_link == NULL)
        return rs_allocation_status();
    *out_origin = (rs_mapped_origin){.sources = sources,
                                     .line = target->line,
                                     .link_count = target->link_count,
                                     .links = links,
                                     .link_sources = by_link};
    for (int64_t l = 0; l < target->link_count; l++) {
        reshard_strided_link link = {.size = sizeof link};
        reshard_status status =
            reshard_map_result_link(mapping->result, target->link_first + l, &link);
        if (status != RESHARD_OK)
            return status;
        by_link[l] = mapping->items[link.source].origin;
        if (m->seen[link.source] == m->count + 1)
            continue;
        m->seen[link.source] = m->count + 1;
        sources[out_origin->count++] = mapping->items[link.source].origin;
    }
    if (m->file == NULL || strcmp(m->file, target->file) != 0) {
        m->file_kept = rs_arena_copy(mapping->arena, target->file, strlen(target->file) + 1, 1);
        m->file = m->file_kept;
    }
    out_origin->file = m->file_kept;
    return m->file_kept != NULL ? RESHARD_OK : rs_allocation_status();
}

static reshard_status make_tensor(making *m, const reshard_map_target *target, made_tensor *made)
{
    bool is_same = false;
    const rs_formula_link *links = NULL;
    reshard_status status = rs_mapped_make(m->mapping, target, &made->tensor, &is_same, &links);
    if (status == RESHARD_OK)
        status = list_sources(m, target, links, &made->origin);
    m->same_count += is_same;
    made->dtype = target->dtype;
    if (status == RESHARD_OK && made->dtype != made->tensor.dtype &&
        (made->tensor.opaque || !rs_cast_supports(made->tensor.dtype, made->dtype)))
        status = rs_fail(RESHARD_ERR_UNSUPPORTED,
                         "line %d of the map makes \"%.200s\" %s, but it cannot be cast from %s",
                         (int)target->line, target->name, reshard_dtype_name(made->dtype),
                         reshard_dtype_name(made->tensor.dtype));
    return status;
}

/* Whether a target is an entry without a tensor, or a copy of one. */
static reshard_status is_object(const reshard_map_result *result, reshard_map_target target,
                                bool *out_is_object)
{
    reshard_status status = RESHARD_OK;
    if (target.origin == RESHARD_MAP_COPY)
        status = reshard_map_result_target(result, target.copied, &target);
    *out_is_object = target.origin == RESHARD_MAP_OBJECT;
    return status;
}

static reshard_status make_tensors(making *m, made_tensor *items)
{
    const reshard_map_result *result = m->mapping->result;
    int64_t all = result->target_count;
    for (int64_t i = 0; i < all; i++) {
        reshard_map_target target = {.size = sizeof target};
        bool left_out = false;
        reshard_status status = reshard_map_result_target(result, i, &target);
        if (status == RESHARD_OK)
            status = is_object(result, target, &left_out);
        m->object_count += left_out;
        if (status == RESHARD_OK && !left_out)
            status = make_tensor(m, &target, &items[m->count]);
        if (status != RESHARD_OK)
            return status;
        m->count += !left_out;
    }
    return RESHARD_OK;
}

/* Leaves out values that mean something only beside the source's own names and ranks. */
static reshard_status keep_values(rs_mapped_order *order, const reshard_checkpoint *source,
                                  reshard_checkpoint *made)
{
    rs_arena *arena = order->arena;
    reshard_status status = RESHARD_OK;
    made->values =
        rs_arena_allocate_array(arena, (size_t)source->value_count, sizeof *made->values);
    if (made->values == NULL)
        return rs_allocation_status();
    made->value_count = made->value_capacity = 0;
    for (int64_t i = 0; status == RESHARD_OK && i < source->value_count; i++) {
        const char *kind = source->values[i].kind;
        int64_t count = 0;
        bool is_first = true;
        if (kind == NULL) {
            made->values[made->value_count++] = source->values[i];
            continue;
        }
        for (int64_t k = 0; k < source->value_count; k++) {
            bool is_same = source->values[k].kind == kind;
            is_first = is_first && !(is_same && k < i);
            count += is_same;
            if (!is_first)
                break;
        }
        if (is_first)
            status = say(order, "%lld entr%s with %s stay%s behind", (long long)count,
                         count == 1 ? "y" : "ies", kind, count == 1 ? "s" : "");
    }
    return status;
}

/* Makes a checkpoint of the tensors, sorted by name. */
static reshard_status keep_tensors(rs_arena *arena, const reshard_checkpoint *source, int64_t count,
                                   made_tensor *items, rs_mapped *mapped)
{
    reshard_checkpoint *made = &mapped->made;
    rs_sort(items, (size_t)count, sizeof *items, rs_stored_tensor_compare);
    *made = *source;
    made->tensor_count = count;
    made->tensors = rs_arena_allocate_array(arena, (size_t)count, sizeof *made->tensors);
    mapped->origins = rs_arena_allocate_array(arena, (size_t)count, sizeof *mapped->origins);
    mapped->dtypes = rs_arena_allocate_array(arena, (size_t)count, sizeof *mapped->dtypes);
    if (made->tensors == NULL || mapped->origins == NULL || mapped->dtypes == NULL)
        return rs_allocation_status();
    made->wholes = NULL;
    made->unreadable_count = 0; /* those that the options select were refused */
    made->bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        made->tensors[i] = items[i].tensor;
        made->bytes += items[i].tensor.bytes;
        mapped->origins[i] = items[i].origin;
        mapped->dtypes[i] = items[i].dtype;
    }
    return RESHARD_OK;
}

/* ---- what is left out ------------------------------------------------------------------------ */

static reshard_status add_check(const rs_map_making *mapping, int64_t tensor,
                                const reshard_map_use *use, rs_mapped *mapped)
{
    rs_mapped_check *check = &mapped->checks[mapped->check_count++];
    *check = (rs_mapped_check){
        .tensor = mapping->items[tensor].stored, .value = use->value, .line = use->line};
    if (use->fate == RESHARD_MAP_EXPECTED)
        return rs_fail_within(
            rs_mapped_constant(mapping->arena, check->tensor->dtype, use->value, &check->constant),
            "line %d of the map, for \"%.*s\"", (int)use->line, RS_SHOWN(check->tensor->name));
    check->same_as = mapping->items[use->same_as].stored;
    if (check->same_as->dtype == check->tensor->dtype)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_INVALID,
                   "\"%.*s\" cannot be a copy of \"%.*s\": their dtypes differ",
                   RS_SHOWN(check->tensor->name), RS_SHOWN(check->same_as->name));
}

/* Lists what has to be compared, and says what is dropped. */
static reshard_status look_at_uses(const rs_map_making *mapping, int64_t count,
                                   rs_mapped_order *order, rs_mapped *mapped)
{
    int64_t dropped = 0, surplus = 0, first = -1;
    mapped->checks = rs_arena_allocate_array(mapping->arena, (size_t)count, sizeof *mapped->checks);
    reshard_status status = mapped->checks != NULL ? RESHARD_OK : rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++) {
        reshard_map_use use = {.size = sizeof use};
        status = reshard_map_result_use(mapping->result, i, &use);
        if (status != RESHARD_OK)
            break;
        if (use.fate == RESHARD_MAP_DROPPED && dropped++ == 0)
            first = i;
        surplus += use.surplus;
        if (use.fate == RESHARD_MAP_EXPECTED || use.fate == RESHARD_MAP_REPEATED)
            status = add_check(mapping, i, &use, mapped);
    }
    if (status == RESHARD_OK && dropped != 0)
        status = say(order, "the map drops %lld tensor%s (\"%.*s\"%s)", (long long)dropped,
                     dropped == 1 ? "" : "s", RS_SHOWN(mapping->items[first].name),
                     dropped == 1 ? "" : " and others");
    if (status == RESHARD_OK && surplus != 0)
        status = say(order, "the map cuts off %lld element%s of padding", (long long)surplus,
                     surplus == 1 ? "" : "s");
    if (status == RESHARD_OK && mapped->check_count != 0)
        status = say(order, "the map leaves out %lld tensor%s once %s compared",
                     (long long)mapped->check_count, mapped->check_count == 1 ? "" : "s",
                     mapped->check_count == 1 ? "it is" : "they are");
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

static const char *made_name(void *user, int64_t index, size_t *out_bytes)
{
    const reshard_checkpoint *made = user;
    if (index >= made->tensor_count)
        return NULL;
    *out_bytes = made->tensors[index].name.count;
    return made->tensors[index].name.bytes;
}

/* Warns about names that the map should have changed. */
static reshard_status warn_leftovers(rs_mapped_order *order, const rs_naming *naming,
                                     const rs_mapped *mapped)
{
    const char *name = NULL;
    size_t bytes = 0;
    if (naming == NULL || naming->leftovers == NULL)
        return RESHARD_OK;
    reshard_status status =
        rs_naming_match(&naming->leftovers, 1, made_name, (void *)&mapped->made, &name, &bytes);
    if (status != RESHARD_OK || name == NULL)
        return status;
    return rs_mapped_warn(order, "\"%.*s\" keeps its name; in %s it may have another one",
                          rs_slice_shown((rs_slice){name, bytes}), name, naming->name);
}

/* Says what became of the tensors. */
static reshard_status say_result(rs_mapped_order *order, const rs_map_choice *choice,
                                 const making *m, int64_t read)
{
    order->naming = choice->said;
    if (choice->said != NULL && m->same_count == read && m->count == read) {
        static const char words[] = "%s; %s has the same names for this model";
        char text[200];
        (void)snprintf(text, sizeof text, words, choice->read, choice->written);
        order->naming = rs_arena_copy(order->arena, text, strlen(text) + 1, 1);
        return order->naming != NULL ? RESHARD_OK : rs_allocation_status();
    }
    return say(order, "the map reads %.200s and %s %.200s: %lld tensor%s become%s %lld",
               choice->read, order->does, choice->written, (long long)read, read == 1 ? "" : "s",
               read == 1 ? "s" : "", (long long)m->count);
}

/* Makes everything from a map that was resolved. */
static reshard_status make_all(making *m, const rs_map_choice *choice, int64_t read,
                               rs_mapped_order *order, rs_mapped *mapped)
{
    const rs_map_making *mapping = m->mapping;
    reshard_context *context = order->context;
    size_t room = (size_t)mapping->result->target_count;
    made_tensor *items = rs_allocate_array(context, room, sizeof *items);
    if (items == NULL)
        return rs_allocation_status();
    reshard_status status = make_tensors(m, items);
    if (status == RESHARD_OK)
        status = keep_tensors(mapping->arena, mapping->source, m->count, items, mapped);
    if (status == RESHARD_OK && m->count == 0)
        status = rs_fail(RESHARD_ERR_INVALID,
                         "the map makes no tensor out of the %lld that it reads", (long long)read);
    if (status == RESHARD_OK)
        status = keep_values(order, mapping->source, &mapped->made);
    if (status == RESHARD_OK)
        status = look_at_uses(mapping, read, order, mapped);
    if (status == RESHARD_OK && m->object_count != 0)
        status = say(order, "the map's %lld entr%s without a tensor %s not written",
                     (long long)m->object_count, m->object_count == 1 ? "y" : "ies",
                     m->object_count == 1 ? "is" : "are");
    if (status == RESHARD_OK)
        status = say_result(order, choice, m, read);
    rs_release(context, items);
    return status;
}

static reshard_status make_mapped(rs_mapped_order *order, const reshard_checkpoint *source,
                                  rs_map_choice *choice, int64_t read, rs_mapped *mapped)
{
    rs_digest_finish(&choice->digest, mapped->digest);
    const rs_map_making mapping = {.arena = order->arena,
                                   .source = source,
                                   .item_count = mapped->selection.count,
                                   .items = mapped->selection.items,
                                   .result = choice->result,
                                   .keeps_blocks = order->keeps_blocks};
    making m = {.mapping = &mapping};
    m.seen = rs_arena_allocate_array(order->arena, (size_t)read, sizeof *m.seen);
    if (m.seen == NULL)
        return rs_allocation_status();
    memset(m.seen, 0, (size_t)read * sizeof *m.seen);
    return make_all(&m, choice, read, order, mapped);
}

static bool has_tensor(const reshard_checkpoint *checkpoint, const char *name)
{
    for (int64_t i = 0; i < checkpoint->tensor_count; i++) {
        if (rs_slice_equals(checkpoint->tensors[i].name, name))
            return true;
    }
    return false;
}

/* Says where a head goes that is tied to the embedding, if the map moves it. */
static reshard_status say_tied(rs_mapped_order *order, const reshard_checkpoint *source,
                               rs_config *config, const rs_mapped *mapped)
{
    static const char *const names[2] = {"model.embed_tokens.weight", "lm_head.weight"};
    const reshard_checkpoint *sides[2] = {source, &mapped->made};
    bool has[2][2];
    int64_t is_tied = 0;
    if (!rs_config_find(config, "tie_word_embeddings", &is_tied) || is_tied == 0)
        return RESHARD_OK;
    for (int side = 0; side < 2; side++) {
        for (int k = 0; k < 2; k++)
            has[side][k] = has_tensor(sides[side], names[k]);
    }
    bool is_moved = has[0][0] != has[1][0] || has[0][1] != has[1][1];
    if (!is_moved || !(has[0][0] || has[0][1]) || !(has[1][0] || has[1][1]))
        return RESHARD_OK;
    if (has[1][0] && has[1][1])
        return say(order, "the head is tied; it is written as a copy of the embedding");
    return say(order,
               "the head is tied: \"%s\" serves as head and embedding, and \"%s\" is not written",
               names[has[1][1]], names[!has[1][1]]);
}

/* Whether tensors do not fit a map, as those of quantised weights may not. */
static bool is_misfit(reshard_status status)
{
    return status == RESHARD_ERR_INVALID || status == RESHARD_ERR_NOT_FOUND ||
           status == RESHARD_ERR_MISMATCH || status == RESHARD_ERR_UNSUPPORTED;
}

static reshard_status create(rs_mapped_order *order, const reshard_checkpoint *source,
                             const reshard_conversion_options *options, const rs_naming *naming,
                             rs_config *config, rs_mapped *mapped, bool *out_is_made)
{
    rs_rules_keys keys = {rs_config_find, config, rs_config_find_text};
    rs_map_input input = {.context = order->context,
                          .arena = order->arena,
                          .keys = &keys,
                          .verb = order->verb,
                          .model_type = config->model_type};
    rs_map_choice choice = {.result = NULL};
    reshard_status status = list_tensors(order->arena, source, &mapped->selection, &input);
    if (status == RESHARD_OK)
        status = rs_naming_dialect(source, config, &input.dialect);
    if (status == RESHARD_OK)
        status = rs_mapped_choose(&input, options, &choice);
    bool has_chosen = choice.said != NULL || options->map_file != NULL || options->map_text != NULL;
    bool is_quantised = options->dequantize == RESHARD_DTYPE_NONE;
    if (is_quantised && has_chosen && is_misfit(status))
        status = rs_mapped_hint_scales(order->arena, source, config, status);
    if (has_chosen && is_misfit(status))
        status = rs_mapped_hint_part(source, &mapped->selection, status);
    order->naming = choice.said;
    *out_is_made = choice.result != NULL;
    if (status == RESHARD_OK && *out_is_made)
        status = make_mapped(order, source, &choice, input.count, mapped);
    if (status == RESHARD_OK && *out_is_made && is_quantised)
        status = rs_mapped_check_scales(order->arena, source, config, mapped);
    if (status == RESHARD_OK && *out_is_made)
        status = say_tied(order, source, config, mapped);
    if (status == RESHARD_OK && *out_is_made)
        status = warn_leftovers(order, naming, mapped);
    reshard_map_result_destroy(choice.result);
    return status;
}

reshard_status rs_mapped_create(rs_mapped_order *order, const reshard_checkpoint *source,
                                const reshard_conversion_options *options, const rs_naming *naming,
                                rs_config *config, const rs_mapped **out_mapped)
{
    rs_mapped *mapped = rs_arena_allocate(order->arena, sizeof *mapped);
    bool is_made = false;
    reshard_status status = rs_config_init_for(config, source, options->set_count, options->sets);
    if (mapped == NULL)
        return rs_allocation_status();
    memset(mapped, 0, sizeof *mapped);
    /* Values have no blocks. */
    if (options->dequantize != RESHARD_DTYPE_NONE)
        rs_config_forget_quantisation(config);
    if (status == RESHARD_OK)
        status = check_options(source, options);
    if (status == RESHARD_OK)
        status = rs_mapped_compare_config(order, source, config);
    if (status == RESHARD_OK)
        status = rs_selection_init(&mapped->selection, order->arena, source, options,
                                   order->takes_model);
    bool takes_all = !order->takes_model || options->all != 0 || options->include_count != 0 ||
                     options->only != NULL;
    if (status == RESHARD_OK)
        status = leave_states(order, source, takes_all, &mapped->selection);
    if (status == RESHARD_OK && !order->keeps_blocks)
        status = rs_selection_check_blocks(&mapped->selection, options);
    if (status == RESHARD_OK)
        status = create(order, source, options, naming, config, mapped, &is_made);
    rs_selection_release(&mapped->selection, order->context);
    mapped->made.is_dequantised = options->dequantize != RESHARD_DTYPE_NONE;
    if (status == RESHARD_OK)
        *out_mapped = is_made ? mapped : NULL;
    return status;
}

bool rs_mapped_takes_model(const rs_naming *naming)
{
    return naming == NULL || !naming->is_for_training;
}

void rs_mapped_select(const rs_mapped *mapped, rs_selection *selection)
{
    const rs_selection *first = &mapped->selection;
    selection->prefix = first->prefix;
    selection->outside_count = first->outside_count;
    selection->outside_bytes = first->outside_bytes;
    selection->outside = first->outside;
    selection->splits_model = first->splits_model;
    selection->quantised_count = first->quantised_count;
    selection->quantised = first->quantised;
    selection->parted_count = first->parted_count;
    selection->parted = first->parted;
    selection->made_count = first->made_count;
    selection->scale_count = first->scale_count;
    for (int64_t i = 0; i < selection->count; i++)
        selection->items[i].dtype = mapped->dtypes[selection->items[i].origin];
}
