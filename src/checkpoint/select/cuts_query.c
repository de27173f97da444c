/* SPDX-License-Identifier: Apache-2.0 */
/* cuts_query.c - answers what the rules say about a checkpoint, for callers that write nothing. */
#include "checkpoint/select/cuts.h"

#include "base/context.h"
#include "base/options.h"

struct reshard_cuts {
    reshard_context *context;
    rs_arena arena;
    rs_cuts cuts;
    rs_stored_tensor *tensors; /* by item of the selection */
    const rs_cut_row **rows;   /* by item; NULL: not cut */
};

reshard_conversion_tensor rs_cut_tensor_of(const rs_stored_tensor *tensor, const int64_t *source,
                                           const rs_cut_row *row)
{
    static const rs_cut_row none;
    row = row != NULL ? row : &none;
    return (reshard_conversion_tensor){.name = tensor->name.bytes,
                                       .name_bytes = tensor->name.count,
                                       .source = *source,
                                       .dtype = tensor->dtype,
                                       .ndim = tensor->ndim,
                                       .shape = tensor->shape,
                                       .cut = row->cut,
                                       .rule_file = row->rule_file,
                                       .rule_line = row->rule_line,
                                       .local_ndim = row->local_ndim,
                                       .local_shape = row->local_shape,
                                       .padded_shape = row->padded_shape,
                                       .source_count = 1,
                                       .sources = source,
                                       .layout = row->layout};
}

reshard_status rs_cuts_check_source(const reshard_checkpoint *source)
{
    if (source->is_unfinished)
        return rs_store_check_readable(source);
    return !source->is_one_rank ? RESHARD_OK
                                : rs_fail_about(RESHARD_ERR_INVALID, source->path,
                                                "is the file of one rank, which can only be "
                                                "inspected; give the folder of all ranks");
}

static reshard_status list_tensors(reshard_cuts *cuts, bool is_split)
{
    const rs_selection *selection = &cuts->cuts.selection;
    size_t count = (size_t)selection->count;
    cuts->tensors = rs_arena_allocate_array(&cuts->arena, count, sizeof *cuts->tensors);
    cuts->rows = rs_arena_allocate_array(&cuts->arena, count, sizeof *cuts->rows);
    if (cuts->tensors == NULL || cuts->rows == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        const rs_selected *item = &selection->items[i];
        cuts->rows[i] = NULL;
        reshard_status status =
            rs_store_describe(&cuts->tensors[i], &cuts->arena, item->name, item->dtype,
                              item->stored->ndim, item->stored->shape);
        if (status == RESHARD_OK && is_split)
            status = rs_cuts_find(&cuts->cuts, item, &cuts->tensors[i], &cuts->rows[i]);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static reshard_status ask(reshard_cuts *cuts, const reshard_checkpoint *checkpoint,
                          const reshard_conversion_options *options)
{
    reshard_mesh *mesh = NULL;
    reshard_status status = rs_cuts_init(&cuts->cuts, &cuts->arena, checkpoint, options, false);
    if (status == RESHARD_OK)
        status = rs_cuts_check_source(checkpoint);
    if (status == RESHARD_OK &&
        (options->map_file != NULL || options->map_text != NULL || options->as != NULL))
        status = rs_fail(
            RESHARD_ERR_INVALID,
            "with another naming there are other tensors; ask a view of the checkpoint about them");
    if (status == RESHARD_OK)
        status = rs_selection_check_blocks(&cuts->cuts.selection, options);
    if (status == RESHARD_OK)
        status = reshard_mesh_parse(cuts->context, options->to != NULL ? options->to : "1", &mesh);
    if (status == RESHARD_OK)
        status = rs_cuts_read_rules(&cuts->cuts, checkpoint, mesh, options, options->to != NULL);
    if (status == RESHARD_OK)
        status = list_tensors(cuts, options->to != NULL);
    reshard_mesh_release(mesh);
    return status;
}

reshard_status reshard_cuts_create(const reshard_checkpoint *checkpoint,
                                   const reshard_conversion_options *options,
                                   reshard_cuts **out_cuts)
{
    reshard_conversion_options chosen;
    reshard_status status = rs_options_read("conversion options", options, &chosen, sizeof chosen);
    if (status != RESHARD_OK)
        return status;
    if (chosen.rules == NULL)
        chosen.rules = checkpoint->view_rules;
    reshard_cuts *cuts = rs_allocate_zeroed(checkpoint->context, sizeof *cuts);
    if (cuts == NULL)
        return rs_allocation_status();
    cuts->context = checkpoint->context;
    rs_arena_init(&cuts->arena, cuts->context);
    status = ask(cuts, checkpoint, &chosen);
    if (status == RESHARD_OK)
        *out_cuts = cuts;
    else
        reshard_cuts_destroy(cuts);
    return status;
}

void reshard_cuts_destroy(reshard_cuts *cuts)
{
    if (cuts == NULL)
        return;
    rs_cuts_release(&cuts->cuts);
    rs_arena_release(&cuts->arena);
    rs_release(cuts->context, cuts);
}

reshard_status reshard_cuts_get_info(const reshard_cuts *cuts, reshard_cuts_info *out_info)
{
    reshard_cuts_info info = {.tensor_count = cuts->cuts.selection.count,
                              .rules = cuts->cuts.book.said};
    return rs_report_write("cuts info", &info, sizeof info, out_info);
}

reshard_status reshard_cuts_get_tensor(const reshard_cuts *cuts, int64_t index,
                                       reshard_conversion_tensor *out_tensor)
{
    int64_t count = cuts->cuts.selection.count;
    if (index < 0 || index >= count)
        return rs_fail(RESHARD_ERR_RANGE, "there is no tensor %lld; there are %lld",
                       (long long)index, (long long)count);
    const reshard_conversion_tensor found = rs_cut_tensor_of(
        &cuts->tensors[index], &cuts->cuts.selection.items[index].origin, cuts->rows[index]);
    return rs_report_write("conversion tensor", &found, sizeof found, out_tensor);
}
