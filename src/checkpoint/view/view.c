/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c - a checkpoint under another naming, without a conversion: the same files, and the tensors
 * that a map makes of theirs. Reading one reads what it is made of.
 *
 *  1. A view has an arena, tensors and notes of its own. Everything else belongs to the checkpoint
 *     that it is a view of, and must outlive it.
 *  2. What the map leaves out because it knows the values was compared before the view is handed
 *     out, unless the checkpoint cannot be read at all.
 *  3. A tensor that a line of the map casts has the dtype that the line says.
 */
#include "base/context.h"
#include "base/options.h"
#include "checkpoint/view/mapped.h"

#include <string.h>

static reshard_status add_note(reshard_checkpoint *view, const char *format, ...) RS_PRINTF(2, 3);

static reshard_status add_note(reshard_checkpoint *view, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    reshard_status status = rs_notes_add(&view->notes, &view->arena, format, arguments);
    va_end(arguments);
    return status;
}

/* Makes a tensor one of another dtype, cast while it is read. */
static reshard_status cast_tensor(reshard_checkpoint *view, reshard_dtype dtype,
                                  rs_stored_tensor *tensor)
{
    rs_arena *arena = &view->arena;
    const rs_stored_tensor *from = rs_arena_copy(arena, tensor, 1, sizeof *tensor);
    rs_formula *formula = rs_arena_allocate(arena, sizeof *formula);
    rs_stored_piece *piece = rs_arena_allocate(arena, sizeof *piece);
    if (from == NULL || formula == NULL || piece == NULL)
        return rs_allocation_status();
    reshard_status status =
        rs_store_describe(tensor, arena, from->name, dtype, from->ndim, from->shape);
    if (status != RESHARD_OK || tensor->bytes == 0)
        return status;
    *formula = (rs_formula){.checkpoint = view->viewed, .cast_from = from};
    *piece = (rs_stored_piece){.size = tensor->carried_shape};
    piece->file = from->pieces[0].file;
    piece->at = from->pieces[0].at;
    tensor->step = from->step;
    tensor->pieces = piece;
    tensor->piece_count = 1;
    tensor->copies = NULL;
    tensor->copy_count = 0;
    tensor->formula = formula;
    return RESHARD_OK;
}

/* Makes the view one of another description of the same files, except for what is its own. */
static void become(reshard_checkpoint *view, const reshard_checkpoint *described)
{
    const rs_arena arena = view->arena;
    const rs_notes notes = view->notes, warnings = view->warnings;
    const reshard_checkpoint *viewed = view->viewed;
    const char *rules = view->view_rules;
    *view = *described;
    view->arena = arena;
    view->notes = notes;
    view->warnings = warnings;
    view->viewed = viewed;
    view->view_rules = rules;
}

/* Takes over what a map made. */
static reshard_status take_made(reshard_checkpoint *view, const rs_mapped *mapped)
{
    reshard_status status = RESHARD_OK;
    become(view, &mapped->made);
    for (int64_t i = 0; status == RESHARD_OK && i < view->tensor_count; i++) {
        rs_stored_tensor *tensor = &view->tensors[i];
        uint64_t before = tensor->bytes;
        if (mapped->dtypes[i] != tensor->dtype)
            status = cast_tensor(view, mapped->dtypes[i], tensor);
        view->bytes += tensor->bytes - before;
    }
    return status;
}

static reshard_status take_selected(reshard_checkpoint *view, const rs_selection *selection)
{
    const reshard_checkpoint *viewed = view->viewed;
    size_t count = (size_t)selection->count;
    become(view, viewed);
    view->tensors = rs_arena_allocate_array(&view->arena, count, sizeof *view->tensors);
    rs_stored_whole *wholes = rs_arena_allocate_array(&view->arena, count, sizeof *wholes);
    if (view->tensors == NULL || wholes == NULL)
        return rs_allocation_status();
    view->tensor_count = selection->count;
    view->wholes = viewed->wholes != NULL ? wholes : NULL;
    view->unreadable_count = 0; /* the selection refuses them */
    view->bytes = 0;
    for (int64_t i = 0; i < selection->count; i++) {
        const rs_selected *item = &selection->items[i];
        view->tensors[i] = *item->stored;
        view->tensors[i].name = item->name;
        view->bytes += item->stored->bytes;
        if (viewed->wholes != NULL)
            wholes[i] = viewed->wholes[item->origin];
    }
    return RESHARD_OK;
}

/* Shows what a conversion would take of a checkpoint that has the names already: of a nested one,
 * the model without what is in front of its names. */
static reshard_status take_same(reshard_checkpoint *view, const reshard_conversion_options *options,
                                bool takes_model)
{
    rs_selection selection;
    reshard_status status =
        rs_selection_init(&selection, &view->arena, view->viewed, options, takes_model);
    if (status == RESHARD_OK)
        status = rs_selection_finish(&selection);
    if (status == RESHARD_OK)
        status = take_selected(view, &selection);
    rs_selection_release(&selection, view->context);
    return status;
}

static reshard_status check_options(const reshard_checkpoint *checkpoint,
                                    const reshard_view_options *options, bool is_same)
{
    if (options->as == NULL && options->map_file == NULL && options->map_text == NULL)
        return rs_fail(RESHARD_ERR_INVALID,
                       "a view needs a naming or a map; without them, use the checkpoint itself");
    if (is_same && options->dequantize != RESHARD_DTYPE_NONE)
        return rs_fail_about(RESHARD_ERR_INVALID, checkpoint->path,
                             "already has the names of %s, so there is no map that could "
                             "dequantise it; convert it instead",
                             options->as);
    return RESHARD_OK;
}

/* Compares what the map leaves out. */
static reshard_status compare_left(const reshard_checkpoint *view, const rs_mapped *mapped)
{
    const rs_team alone = rs_team_of(view->context, NULL);
    if (view->plan_only || view->is_unfinished)
        return RESHARD_OK;
    return rs_mapped_compare(&mapped->made, mapped->check_count, mapped->checks, &alone);
}

static reshard_status make(reshard_checkpoint *view, const reshard_view_options *options)
{
    const reshard_checkpoint *source = view->viewed;
    const rs_naming *naming = options->as != NULL ? rs_naming_named(options->as) : NULL;
    const rs_mapped *mapped = NULL;
    rs_notes lines = {NULL, NULL};
    rs_config config;
    const reshard_conversion_options mapping = {.size = sizeof mapping,
                                                .as = options->as,
                                                .map_file = options->map_file,
                                                .map_text = options->map_text,
                                                .dequantize = options->dequantize,
                                                .set_count = options->set_count,
                                                .sets = options->sets};
    rs_mapped_order order = {.context = view->context,
                             .arena = &view->arena,
                             .lines = &lines,
                             .warnings = &view->warnings,
                             .takes_model = rs_mapped_takes_model(naming),
                             .verb = "seen",
                             .does = "makes"};
    reshard_status status = rs_mapped_create(&order, source, &mapping, naming, &config, &mapped);
    rs_config_release(&config);
    if (status == RESHARD_OK)
        status = check_options(source, options, mapped == NULL);
    if (status == RESHARD_OK && order.naming != NULL)
        status = add_note(view, "names: %s", order.naming);
    for (int64_t i = 0; status == RESHARD_OK && rs_notes_at(&lines, i) != NULL; i++)
        status = add_note(view, "%s", rs_notes_at(&lines, i));
    if (status != RESHARD_OK)
        return status;
    if (mapped == NULL)
        return take_same(view, &mapping, order.takes_model);
    view->view_rules = naming != NULL ? naming->rules : NULL;
    status = take_made(view, mapped);
    return status == RESHARD_OK ? compare_left(view, mapped) : status;
}

reshard_status reshard_checkpoint_view(const reshard_checkpoint *checkpoint,
                                       const reshard_view_options *options,
                                       reshard_checkpoint **out_view)
{
    reshard_view_options chosen;
    reshard_status status = rs_options_read("view options", options, &chosen, sizeof chosen);
    if (status == RESHARD_OK)
        status = check_options(checkpoint, &chosen, false);
    if (status != RESHARD_OK)
        return status;
    reshard_checkpoint *view = rs_allocate_zeroed(checkpoint->context, sizeof *view);
    if (view == NULL)
        return rs_allocation_status();
    view->context = checkpoint->context;
    view->viewed = checkpoint;
    rs_arena_init(&view->arena, view->context);
    status = make(view, &chosen);
    if (status == RESHARD_OK)
        *out_view = view;
    else
        reshard_checkpoint_destroy(view);
    return status;
}
