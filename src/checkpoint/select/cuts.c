/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuts.c - asks the rules about selected tensors, and keeps their answers. Tensors with the same
 * rule, cuts and shape have one answer in common, as the layers of a model do.
 */
#include "checkpoint/select/cuts.h"

#include "base/context.h"
#include "spec/spec.h"

#include <string.h>

reshard_status rs_cuts_init(rs_cuts *cuts, rs_arena *arena, const reshard_checkpoint *source,
                            const reshard_conversion_options *options, bool takes_model)
{
    *cuts = (rs_cuts){.arena = arena};
    rs_rule_memo_init(&cuts->memo, arena->context);
    rs_table_init(&cuts->found, arena->context);
    return rs_selection_init(&cuts->selection, arena, source, options, takes_model);
}

void rs_cut_rows_release(rs_cut_row *rows)
{
    for (rs_cut_row *row = rows; row != NULL; row = row->next) {
        reshard_layout_release(row->layout);
        reshard_layout_release(row->carried);
    }
}

void rs_cuts_release(rs_cuts *cuts)
{
    rs_cut_rows_release(cuts->rows);
    rs_table_release(&cuts->found);
    rs_rule_memo_release(&cuts->memo);
    rs_rulebook_release(&cuts->book);
    rs_selection_release(&cuts->selection, cuts->arena->context);
}

reshard_status rs_cuts_read_rules(rs_cuts *cuts, const reshard_checkpoint *source,
                                  reshard_mesh *mesh, const reshard_conversion_options *options,
                                  bool is_split)
{
    rs_rulebook *book = &cuts->book;
    reshard_status status = RESHARD_OK;
    if (is_split || options->rules != NULL) {
        status = rs_rulebook_init(book, cuts->arena->context, mesh, options->rules, source,
                                  options->set_count, options->sets, rs_selection_name,
                                  &cuts->selection);
        /* Values have no blocks, so they may be cut anywhere. */
        if (options->dequantize != RESHARD_DTYPE_NONE || source->is_dequantised)
            rs_config_forget_quantisation(&book->config);
        if (status == RESHARD_OK && options->no_pad)
            rs_rules_forget_pads(book->rules);
        if (status == RESHARD_OK)
            status = rs_selection_apply(&cuts->selection, cuts->arena, book);
    }
    return status == RESHARD_OK ? rs_selection_finish(&cuts->selection) : status;
}

bool rs_spec_cuts(const reshard_spec *spec, bool flat_only)
{
    for (int32_t i = 0; i < spec->cut_count; i++) {
        const reshard_cut *cut = &spec->cuts[i];
        if (cut->placement.kind == RESHARD_SHARD &&
            (!flat_only || cut->placement.dim == RESHARD_DIM_FLAT) &&
            spec->mesh->sizes[cut->axis] > 1)
            return true;
    }
    return false;
}

/* Keeps the local shape on the first rank that holds part of the tensor. */
static reshard_status keep_local_shape(rs_arena *arena, const reshard_layout *layout,
                                       rs_cut_row *row)
{
    reshard_shards *shards = NULL;
    reshard_status status =
        reshard_layout_shards(layout, reshard_layout_rank_at(layout, 0), &shards);
    if (status == RESHARD_OK && shards->count != 0) {
        const reshard_shard *shard = &shards->items[0];
        row->local_ndim = shard->ndim;
        row->local_shape = rs_arena_copy(arena, shard->shape, (size_t)shard->ndim, sizeof(int64_t));
        status = row->local_shape != NULL ? RESHARD_OK : rs_allocation_status();
    }
    reshard_shards_destroy(shards);
    return status;
}

static reshard_status keep_texts(rs_arena *arena, const rs_rule_result *result, rs_cut_row *row)
{
    size_t length = 0;
    reshard_status status = reshard_spec_text(result->spec, NULL, 0, &length);
    if (status != RESHARD_OK)
        return status;
    char *cut = rs_arena_allocate(arena, length + 1);
    row->cut = cut;
    row->rule_file = rs_arena_copy(arena, result->file_name, strlen(result->file_name) + 1, 1);
    if (cut == NULL || row->rule_file == NULL)
        return rs_allocation_status();
    return reshard_spec_text(result->spec, cut, length + 1, &length);
}

static reshard_status fill_row(rs_arena *arena, const rs_rule_result *result,
                               const rs_stored_tensor *tensor, rs_cut_row *row)
{
    reshard_status status = keep_texts(arena, result, row);
    if (status != RESHARD_OK)
        return status;
    if (tensor->opaque)
        status = reshard_layout_create(arena->context, result->spec, tensor->carried_ndim,
                                       tensor->carried_shape, &row->carried);
    else
        row->carried = reshard_layout_retain(result->layout);
    /* For tensors with too many dims, the layout of the rules has none. */
    if (status != RESHARD_OK || result->ndim != tensor->ndim)
        return status;
    row->layout = reshard_layout_retain(result->layout);
    row->padded_shape =
        rs_arena_copy(arena, result->padded_shape, (size_t)tensor->ndim, sizeof(int64_t));
    if (row->padded_shape == NULL)
        return rs_allocation_status();
    return keep_local_shape(arena, result->layout, row);
}

/* Finds or makes the row of a tensor that the rules cut this way. */
static reshard_status find_row(rs_cuts *cuts, const rs_rule_result *result,
                               const rs_stored_tensor *tensor, const rs_cut_row **out_row)
{
    const int64_t key[3] = {(int64_t)(intptr_t)result, tensor->ndim,
                            tensor->opaque ? (int64_t)tensor->bytes : -1};
    void **place = rs_table_at(&cuts->found, key, sizeof key);
    if (place == NULL)
        return rs_allocation_status();
    if (*place == NULL) {
        rs_cut_row *row = rs_arena_allocate(cuts->arena, sizeof *row);
        if (row == NULL)
            return rs_allocation_status();
        *row = (rs_cut_row){.rule_line = result->line, .zeros = result->zeros, .next = cuts->rows};
        cuts->rows = row;
        reshard_status status = fill_row(cuts->arena, result, tensor, row);
        if (status != RESHARD_OK)
            return status;
        *place = row;
    }
    *out_row = *place;
    return RESHARD_OK;
}

reshard_status rs_cuts_find(rs_cuts *cuts, const rs_selected *selected,
                            const rs_stored_tensor *tensor, const rs_cut_row **out_row)
{
    const rs_stored_tensor *stored = selected->stored;
    const rs_rulebook *book = &cuts->book;
    const rs_rule_result *result = NULL;
    reshard_status status =
        selected->rule == RS_RULE_NONE
            ? rs_rules_apply_none(&cuts->memo, book->rules, book->mesh, &result)
            : rs_rules_apply_found(&cuts->memo, book->rules, book->mesh, &book->keys,
                                   selected->rule, selected->matched.bytes, selected->matched.count,
                                   stored->ndim, stored->shape, &result);
    if (status != RESHARD_OK)
        return status;
    if (tensor->opaque && rs_spec_cuts(result->spec, false))
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "tensor \"%.*s\": line %d of the rules cuts it; tensors with less than a "
                       "byte per element or more than 8 dimensions can only be copied whole",
                       RS_SHOWN(selected->name), (int)result->line);
    return rs_fail_within_tensor(find_row(cuts, result, tensor, out_row), tensor->name);
}
