/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.c - compiles the patterns of the options once, and tries them on every tensor of the
 * source. A pattern that matches nothing is an error, because it was meant for some tensor. An
 * exclude may match nothing. Of dtypes and renames the first that matches counts, so one that is
 * never the first is an error, too.
 */
#include "checkpoint/select/select.h"

#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/rules/model.h"
#include "checkpoint/select/parameter.h"
#include "checkpoint/select/quantised.h"
#include "kernel/values/block_types.h"
#include "kernel/values/cast.h"
#include "text/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* One pattern of an option, and the value after its "=". */
typedef struct pattern {
    const char *option, *text; /* for error texts: the option and its value */
    bool has_glob;             /* false: it applies to every tensor */
    bool used;                 /* it matches a tensor */
    bool taken;                /* for one of them, no earlier pattern does */
    rs_glob glob;
    reshard_dtype dtype;
    rs_slice new_name;
} pattern;

typedef struct patterns {
    reshard_context *context;
    int32_t count;
    pattern *items;
} patterns;

typedef struct selector {
    rs_arena *arena;
    patterns includes, excludes, dtypes, renames;
    bool takes_aside;                   /* also tensors that say again what others say */
    const rs_quantised_kind *quantised; /* by tensor of the source; NULL: not needed */
    /* by tensor of the source, what codes become; NULL: they stay codes */
    const rs_stored_tensor *const *made;
    reshard_dtype dequantize; /* what becomes of quantised tensors; NONE: nothing */
} selector;

#define CASTS "f16, bf16, f32, f64, f8_e4m3 and f8_e5m2"

/* ---- compiling ------------------------------------------------------------------------------- */

typedef reshard_status read_fn(rs_arena *arena, pattern *made);

static reshard_status read_glob(rs_arena *arena, pattern *made)
{
    made->has_glob = true;
    return rs_glob_compile(arena, made->text, strlen(made->text), &made->glob);
}

/* "bf16" or "GLOB=bf16" */
static reshard_status read_dtype(rs_arena *arena, pattern *made)
{
    const char *equals = strrchr(made->text, '=');
    reshard_status status =
        reshard_dtype_parse(equals != NULL ? equals + 1 : made->text, &made->dtype);
    if (status == RESHARD_OK && !rs_cast_supports(RESHARD_F32, made->dtype))
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "cannot be cast to; casts are between " CASTS);
    if (status != RESHARD_OK || equals == NULL)
        return status;
    made->has_glob = true;
    return rs_glob_compile(arena, made->text, (size_t)(equals - made->text), &made->glob);
}

/* "GLOB=NAME": the first "=" without a backslash separates them. */
static reshard_status read_rename(rs_arena *arena, pattern *made)
{
    const char *equals = made->text;
    size_t length = 0;
    while (*equals != '\0' && *equals != '=')
        equals += equals[0] == '\\' && equals[1] != '\0' ? 2 : 1;
    if (*equals == '\0' || equals == made->text || equals[1] == '\0')
        return rs_fail(RESHARD_ERR_SYNTAX, "expected GLOB=NAME");
    made->has_glob = true;
    made->new_name = (rs_slice){equals + 1, strlen(equals + 1)};
    reshard_status status =
        rs_glob_compile(arena, made->text, (size_t)(equals - made->text), &made->glob);
    if (status != RESHARD_OK)
        return status;
    rs_number_scope scope = {.form_only = true, .span_count = made->glob.wildcard_count};
    return rs_rule_new_name(&scope, made->new_name, NULL, 0, &length);
}

static reshard_status compile(rs_arena *arena, const char *option, int32_t count,
                              const char *const *texts, read_fn *read, patterns *out_patterns)
{
    if (count == 0)
        return RESHARD_OK;
    pattern *items = rs_arena_allocate_array(arena, (size_t)count, sizeof *items);
    if (items == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < count; i++) {
        items[i] = (pattern){.option = option, .text = texts[i]};
        reshard_status status = read(arena, &items[i]);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "%s \"%.200s\"", option, texts[i]);
    }
    *out_patterns = (patterns){arena->context, count, items};
    return RESHARD_OK;
}

static reshard_status compile_all(selector *made, const reshard_conversion_options *options)
{
    reshard_status status = compile(made->arena, "include", options->include_count,
                                    options->includes, read_glob, &made->includes);
    if (status == RESHARD_OK)
        status = compile(made->arena, "exclude", options->exclude_count, options->excludes,
                         read_glob, &made->excludes);
    if (status == RESHARD_OK)
        status = compile(made->arena, "dtype", options->dtype_count, options->dtypes, read_dtype,
                         &made->dtypes);
    if (status == RESHARD_OK)
        status = compile(made->arena, "rename", options->rename_count, options->renames,
                         read_rename, &made->renames);
    return status;
}

/* ---- matching -------------------------------------------------------------------------------- */

/* Finds the first pattern that matches, or NULL. The others are tried too, to see whether they are
 * used at all. spans: what the wildcards stand for; may be NULL. */
static reshard_status match(const patterns *list, rs_slice name, rs_glob_span *spans,
                            const pattern **out_first)
{
    *out_first = NULL;
    for (int32_t i = 0; i < list->count; i++) {
        pattern *item = &list->items[i];
        bool matches = true;
        reshard_status status = RESHARD_OK;
        if (*out_first != NULL && item->used)
            continue;
        if (item->has_glob)
            status = rs_glob_try(list->context, &item->glob, name.bytes, name.count,
                                 *out_first == NULL ? spans : NULL, &matches);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "%s \"%.200s\"", item->option, item->text);
        item->used = item->used || matches;
        if (matches && *out_first == NULL) {
            item->taken = true;
            *out_first = item;
        }
    }
    return RESHARD_OK;
}

static reshard_status check_used(const patterns *list)
{
    for (int32_t i = 0; i < list->count; i++) {
        const pattern *item = &list->items[i];
        if (item->has_glob && !item->used)
            return rs_fail(RESHARD_ERR_INVALID, "%s \"%.200s\" matches no tensor", item->option,
                           item->text);
    }
    return RESHARD_OK;
}

/* The patterns of an option whose order counts. The cast of everything may come last, for whatever
 * the patterns before it leave. */
static reshard_status check_ordered(const patterns *list)
{
    bool has_default = false;
    reshard_status status = check_used(list);
    for (int32_t i = 0; status == RESHARD_OK && i < list->count; i++) {
        const pattern *item = &list->items[i];
        if (item->used && !item->taken && (item->has_glob || has_default))
            status = rs_fail(RESHARD_ERR_INVALID,
                             "%s \"%.200s\" has no effect: every tensor that it matches is matched "
                             "by an earlier %s, and the first counts",
                             item->option, item->text, item->option);
        has_default = has_default || !item->has_glob;
    }
    return status;
}

/* A cast of everything applies to plain values only. Codes are meaningless without their scales,
 * and programs that compute with them need the scales unchanged. */
static reshard_status choose_dtype(const selector *made, rs_selection *selection, int64_t origin,
                                   const rs_stored_tensor *tensor, reshard_dtype *out_dtype)
{
    const pattern *found = NULL;
    bool is_made = tensor->formula != NULL || tensor->block_type != NULL;
    bool has_blocks = tensor->block_type != NULL && made->dequantize != RESHARD_DTYPE_NONE;
    *out_dtype = has_blocks ? made->dequantize : tensor->dtype;
    reshard_status status = match(&made->dtypes, tensor->name, NULL, &found);
    if (status != RESHARD_OK || found == NULL)
        return status;
    if (is_made && found->has_glob && found->dtype != *out_dtype)
        return rs_fail(
            RESHARD_ERR_INVALID,
            "dtype \"%.200s\": tensor \"%.*s\" is dequantised to %s, so it cannot also be cast",
            found->text, RS_SHOWN(tensor->name), reshard_dtype_name(*out_dtype));
    if (is_made)
        return RESHARD_OK;
    if (!found->has_glob && made->quantised[origin] != RS_QUANTISED_NOT) {
        if (selection->quantised_count++ == 0)
            selection->quantised = tensor->name;
        return RESHARD_OK;
    }
    if (!tensor->opaque && rs_cast_supports(tensor->dtype, found->dtype))
        *out_dtype = found->dtype;
    else if (found->has_glob)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "dtype \"%.200s\": tensor \"%.*s\" cannot be cast from %s; casts are "
                       "between " CASTS,
                       found->text, RS_SHOWN(tensor->name), reshard_dtype_name(tensor->dtype));
    return RESHARD_OK;
}

static reshard_status choose_name(const selector *made, rs_slice name, rs_slice *out_name)
{
    rs_glob_span spans[RS_GLOB_ELEMENTS_MAX];
    const pattern *found = NULL;
    size_t length = 0;
    *out_name = name;
    reshard_status status = match(&made->renames, name, spans, &found);
    if (status != RESHARD_OK || found == NULL)
        return status;
    rs_number_scope scope = {
        .name = name.bytes, .span_count = found->glob.wildcard_count, .spans = spans};
    status = rs_rule_new_name(&scope, found->new_name, NULL, 0, &length);
    if (status != RESHARD_OK)
        return status;
    char *bytes = rs_arena_allocate(made->arena, length + 1);
    if (bytes == NULL)
        return rs_allocation_status();
    bytes[length] = '\0';
    *out_name = (rs_slice){bytes, length};
    return rs_rule_new_name(&scope, found->new_name, bytes, length, &length);
}

/* Finds the quantised tensors of the source, and what they become, if the options require it. */
static reshard_status find_quantised(selector *made, const reshard_checkpoint *source,
                                     const reshard_conversion_options *options)
{
    bool is_needed = options->dequantize != RESHARD_DTYPE_NONE || made->includes.count != 0 ||
                     made->excludes.count != 0;
    rs_quantised_kind *kinds = NULL;
    const rs_stored_tensor **becomes = NULL;
    rs_config config;
    for (int32_t i = 0; i < made->dtypes.count; i++)
        is_needed = is_needed || !made->dtypes.items[i].has_glob;
    if (!is_needed)
        return RESHARD_OK;
    reshard_status status = rs_config_init_for(&config, source, 0, NULL);
    /* A config.json that is not valid JSON is ignored here, and copied as it is. */
    if (status == RESHARD_OK || status == RESHARD_ERR_SYNTAX)
        status =
            rs_quantised_find(made->arena, source, rs_quantised_method(&config) != NULL, &kinds);
    if (status == RESHARD_OK && options->dequantize != RESHARD_DTYPE_NONE)
        status = rs_dequantise(made->arena, source, &config, kinds, options->dequantize, &becomes);
    rs_config_release(&config);
    made->quantised = kinds;
    made->made = becomes;
    return status;
}

static reshard_status check_dequantize(const reshard_conversion_options *options)
{
    reshard_dtype dtype = options->dequantize;
    if (dtype == RESHARD_DTYPE_NONE || dtype == RESHARD_F16 || dtype == RESHARD_BF16 ||
        dtype == RESHARD_F32)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_INVALID, "weights are dequantised to bf16, f16 or f32, not to %s",
                   reshard_dtype_name(dtype));
}

/* ---- selecting ------------------------------------------------------------------------------- */

static bool begins_with(rs_slice name, rs_slice prefix)
{
    return name.count > prefix.count && memcmp(name.bytes, prefix.bytes, prefix.count) == 0;
}

/* Do the patterns choose a name? */
static reshard_status choose(const selector *made, rs_slice name, bool *out_chosen)
{
    const pattern *included = NULL, *excluded = NULL;
    reshard_status status = match(&made->includes, name, NULL, &included);
    if (status == RESHARD_OK)
        status = match(&made->excludes, name, NULL, &excluded);
    *out_chosen = excluded == NULL && (made->includes.count == 0 || included != NULL);
    return status;
}

/* How far from codes in the order of names their scales are looked for: modules are smaller. */
#define NEAR_MAX 32

/* Counts scales and the like that the patterns leave behind, though they choose the codes, which
 * mean nothing without them. Tensors are sorted by name, so what belongs together is close by. */
static reshard_status count_parted(const selector *made, rs_selection *selection,
                                   const reshard_checkpoint *source, int64_t origin)
{
    const rs_stored_tensor *tensors = source->tensors;
    rs_slice name = tensors[origin].name;
    bool is_parted = false;
    reshard_status status = RESHARD_OK;
    for (int64_t i = origin > NEAR_MAX ? origin - NEAR_MAX : 0;
         status == RESHARD_OK && !is_parted && i < source->tensor_count && i < origin + NEAR_MAX;
         i++) {
        if (made->quantised[i] == RS_QUANTISED_CODES &&
            rs_quantised_belongs_to(name, tensors[i].name))
            status = choose(made, tensors[i].name, &is_parted);
    }
    if (is_parted && selection->parted_count++ == 0)
        selection->parted = name;
    return status;
}

static reshard_status select_tensor(const selector *made, rs_selection *selection,
                                    const reshard_checkpoint *source, int64_t origin)
{
    const rs_stored_tensor *tensor = &source->tensors[origin];
    bool is_chosen = false;
    if (made->made != NULL && made->made[origin] != NULL)
        tensor = made->made[origin];
    rs_selected item = {.origin = origin, .stored = tensor};
    size_t cut = selection->prefix.count;
    if (!begins_with(tensor->name, selection->prefix) && cut != 0) {
        if (selection->outside_count++ == 0)
            selection->outside = tensor->name;
        selection->outside_bytes += tensor->bytes;
        return RESHARD_OK;
    }
    if (tensor->is_aside && !made->takes_aside) {
        if (selection->aside_count++ == 0)
            selection->aside = tensor->name;
        return RESHARD_OK;
    }
    reshard_status status = choose(made, tensor->name, &is_chosen);
    if (status == RESHARD_OK && !is_chosen && made->made == NULL && made->quantised != NULL &&
        made->quantised[origin] == RS_QUANTISED_COMPANION)
        status = count_parted(made, selection, source, origin);
    if (status != RESHARD_OK || !is_chosen)
        return status;
    if (made->made != NULL && made->quantised[origin] == RS_QUANTISED_COMPANION) {
        selection->scale_count++;
        return RESHARD_OK;
    }
    selection->made_count += rs_formula_is_quantised(tensor) || tensor->block_type != NULL;
    status = choose_dtype(made, selection, origin, tensor, &item.dtype);
    if (status == RESHARD_OK)
        status = choose_name(made, tensor->name, &item.matched);
    if (status == RESHARD_OK && item.matched.bytes == tensor->name.bytes)
        item.matched = (rs_slice){tensor->name.bytes + cut, tensor->name.count - cut};
    item.name = item.matched;
    if (status == RESHARD_OK)
        selection->items[selection->count++] = item;
    return status;
}

/* Refuses a tensor that would be selected but cannot be read. */
static reshard_status check_unreadable(const selector *made, rs_selection *selection,
                                       const rs_unreadable *tensor)
{
    bool is_chosen = false;
    if (selection->prefix.count != 0 && !begins_with(tensor->name, selection->prefix)) {
        selection->outside_count++;
        return RESHARD_OK;
    }
    reshard_status status = choose(made, tensor->name, &is_chosen);
    if (status != RESHARD_OK || !is_chosen)
        return status;
    return rs_fail(RESHARD_ERR_UNSUPPORTED, "%s; exclude this tensor to go on with the others",
                   tensor->reason);
}

/* The first step on the way to a tensor; empty if its format does not nest or if the step is a
 * number. */
static rs_slice first_step(const rs_stored_tensor *tensor)
{
    const rs_value_step *step = tensor->step;
    while (step != NULL && step->parent != NULL)
        step = step->parent;
    bool is_inside = step != NULL && step != tensor->step && step->key.bytes != NULL;
    return is_inside ? step->key : (rs_slice){"", 0};
}

/* What nested checkpoints call the model. */
static const char *const model_parts[] = {"model", "module", "state_dict"};
enum { MODEL_PARTS = sizeof model_parts / sizeof *model_parts };

static bool has_part(const reshard_checkpoint *source, const char *part)
{
    for (int64_t i = 0; i < source->tensor_count; i++) {
        if (rs_slice_equals(first_step(&source->tensors[i]), part))
            return true;
    }
    return false;
}

const char *rs_selection_find_model(const reshard_checkpoint *source)
{
    for (size_t i = 0; i < MODEL_PARTS; i++) {
        if (has_part(source, model_parts[i]))
            return model_parts[i];
    }
    return NULL;
}

static reshard_status choose_prefix(rs_selection *selection, rs_arena *arena,
                                    const reshard_checkpoint *source,
                                    const reshard_conversion_options *options, bool takes_model)
{
    const char *part = options->only;
    selection->prefix = (rs_slice){"", 0};
    if (part == NULL && takes_model && options->all == 0 && options->include_count == 0)
        part = rs_selection_find_model(source);
    if (part == NULL)
        return RESHARD_OK;
    for (size_t i = 0; i < MODEL_PARTS; i++)
        selection->splits_model = selection->splits_model || strcmp(part, model_parts[i]) == 0;
    selection->splits_model = selection->splits_model && !has_part(source, part);
    size_t length = strlen(part);
    char *bytes = rs_arena_allocate(arena, length + 2);
    if (bytes == NULL)
        return rs_allocation_status();
    memcpy(bytes, part, length);
    memcpy(bytes + length, ".", 2);
    selection->prefix = (rs_slice){bytes, length + 1};
    return RESHARD_OK;
}

reshard_status rs_followed_name(rs_arena *arena, const rs_followed *followed, rs_slice parameter,
                                rs_slice *out_name)
{
    rs_slice skipped = followed->skipped, front = followed->front, back = followed->back;
    if (parameter.count > skipped.count &&
        memcmp(parameter.bytes, skipped.bytes, skipped.count) == 0)
        parameter = (rs_slice){parameter.bytes + skipped.count, parameter.count - skipped.count};
    size_t count = front.count + parameter.count + back.count;
    char *name = rs_arena_allocate(arena, count + 1);
    if (name == NULL)
        return rs_allocation_status();
    memcpy(name, front.bytes, front.count);
    memcpy(name + front.count, parameter.bytes, parameter.count);
    memcpy(name + front.count + parameter.count, back.bytes, back.count);
    name[count] = '\0';
    *out_name = (rs_slice){name, count};
    return RESHARD_OK;
}

/* Finds the parameter of a state, if it is one. If an option renames the state, it keeps that
 * name. */
static reshard_status follow_parameter(const selector *made, const reshard_checkpoint *source,
                                       size_t cut, rs_selected *item)
{
    const rs_stored_tensor *tensor = &source->tensors[item->origin];
    rs_parameter parameter = rs_parameter_find(source, tensor);
    rs_slice name = {NULL, 0};
    if (parameter.tensor < 0)
        return RESHARD_OK;
    rs_slice owner = source->tensors[parameter.tensor].name;
    reshard_status status = choose_name(made, owner, &name);
    rs_followed *followed = rs_arena_allocate(made->arena, sizeof *followed);
    if (status != RESHARD_OK || followed == NULL)
        return status != RESHARD_OK ? status : rs_allocation_status();
    /* The prefix that names lose is cut from what precedes the parameter's name. */
    bool follows = item->name.bytes == tensor->name.bytes + cut && parameter.front.count >= cut;
    size_t lost = follows ? cut : 0;
    *followed = (rs_followed){
        .parameter = &source->tensors[parameter.tensor],
        .parameter_name = name,
        .follows = follows,
        .front = {parameter.front.bytes + lost, parameter.front.count - lost},
        .back = parameter.back,
        .skipped = {owner.bytes, parameter.skipped},
    };
    item->followed = followed;
    if (parameter.same_shape)
        item->matched = name;
    if (follows && rs_slice_compare(name, owner) != 0)
        status = rs_followed_name(made->arena, followed, name, &item->name);
    return status;
}

reshard_status rs_selection_init(rs_selection *selection, rs_arena *arena,
                                 const reshard_checkpoint *source,
                                 const reshard_conversion_options *options, bool takes_model)
{
    selector made = {.arena = arena,
                     .takes_aside =
                         options->only != NULL || options->include_count != 0 || options->all != 0,
                     .dequantize = options->dequantize};
    *selection = (rs_selection){.room = source->tensor_count};
    selection->items =
        rs_allocate_array(arena->context, (size_t)selection->room, sizeof(rs_selected));
    if (selection->items == NULL)
        return rs_allocation_status();
    reshard_status status = compile_all(&made, options);
    if (status == RESHARD_OK)
        status = check_dequantize(options);
    if (status == RESHARD_OK)
        status = find_quantised(&made, source, options);
    if (status == RESHARD_OK)
        status = choose_prefix(selection, arena, source, options, takes_model);
    for (int64_t i = 0; status == RESHARD_OK && i < source->tensor_count; i++)
        status = select_tensor(&made, selection, source, i);
    if (status == RESHARD_OK && options->only != NULL &&
        selection->outside_count == source->tensor_count)
        status = rs_fail(RESHARD_ERR_INVALID,
                         "only \"%.200s\": no tensor has a name that begins with it and a dot",
                         options->only);
    for (int64_t i = 0; status == RESHARD_OK && i < source->unreadable_count; i++)
        status = check_unreadable(&made, selection, &source->unreadable[i]);
    for (int64_t i = 0; status == RESHARD_OK && i < selection->count; i++)
        status = follow_parameter(&made, source, selection->prefix.count, &selection->items[i]);
    if (status == RESHARD_OK)
        status = check_used(&made.includes);
    if (status == RESHARD_OK)
        status = check_ordered(&made.dtypes);
    return status == RESHARD_OK ? check_ordered(&made.renames) : status;
}

reshard_status rs_selection_check_blocks(const rs_selection *selection,
                                         const reshard_conversion_options *options)
{
    for (int64_t i = 0; options->dequantize == RESHARD_DTYPE_NONE && i < selection->count; i++) {
        const rs_stored_tensor *tensor = selection->items[i].stored;
        if (tensor->block_type != NULL)
            return rs_fail_hint(RESHARD_ERR_INVALID, RESHARD_HINT_DEQUANTIZE, "",
                                "tensor \"%.*s\" is quantised as %s, a type that only GGUF has; "
                                "dequantise it to bf16, f16 or f32",
                                RS_SHOWN(tensor->name), tensor->block_type->name);
    }
    return RESHARD_OK;
}

void rs_selection_release(rs_selection *selection, reshard_context *context)
{
    rs_release(context, selection->items);
    selection->items = NULL;
}

static int compare_selected(const void *a, const void *b)
{
    return rs_slice_compare(((const rs_selected *)a)->name, ((const rs_selected *)b)->name);
}

reshard_status rs_selection_finish(rs_selection *selection)
{
    const rs_selected *items = selection->items;
    rs_sort(selection->items, (size_t)selection->count, sizeof(rs_selected), compare_selected);
    for (int64_t i = 0; i < selection->count; i++) {
        rs_slice name = items[i].name;
        if (i > 0 && rs_slice_compare(items[i - 1].name, name) == 0)
            return rs_fail(RESHARD_ERR_INVALID,
                           "two tensors would have the name \"%.*s\"; rename one of them",
                           RS_SHOWN(name));
        if (rs_slice_compare(name, rs_slice_of("__metadata__")) == 0 ||
            !rs_json_is_text(name.bytes, name.count))
            return rs_fail(RESHARD_ERR_INVALID, "a tensor cannot have the name \"%.*s\"%s",
                           RS_SHOWN(name), name.bytes[0] == '_' ? "" : ", which is not UTF-8");
    }
    return RESHARD_OK;
}

bool rs_selection_has(const rs_selection *selection, rs_slice name)
{
    rs_selected key = {.name = name};
    return selection->count != 0 && bsearch(&key, selection->items, (size_t)selection->count,
                                            sizeof key, compare_selected) != NULL;
}

const char *rs_selection_name(void *user, int64_t index, size_t *out_bytes)
{
    const rs_selection *selection = user;
    if (index >= selection->count)
        return NULL;
    *out_bytes = selection->items[index].matched.count;
    return selection->items[index].matched.bytes;
}
