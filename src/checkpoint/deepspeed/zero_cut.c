/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_cut.c - joins the parts of tensor parallel ranks. A cut is a list of segments along one dim:
 * which rows of a rank's part are which rows of the whole. A plain cut has one segment for each
 * rank; a parameter that is made of several, such as a fused gate and up projection, has one for
 * each of them and rank.
 */
#include "checkpoint/deepspeed/zero.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"

#include <string.h>

/* Most parameters that one may be made of. */
#define SUBS_MAX 64

typedef struct cut {
    bool is_replicated;
    int32_t dim;
    int32_t sub_count;            /* how many parameters it is made of; 1: it is one */
    const rs_pickle_node *sizes;  /* their sizes, all ranks together; NULL: equal ones */
    const rs_pickle_node *widths; /* by parameter, then rank; NULL: ranks have equal shares */
    int64_t rows_max;             /* rows beyond this are padding; -1: there is none */
} cut;

typedef struct segment {
    int64_t from, to; /* rows of a rank's part */
    int64_t at;       /* the first of them in the whole */
} segment;

/* ---- what the files say ---------------------------------------------------------------------- */

static reshard_status matches_any(const rs_pickle_node *patterns, rs_slice name, bool *out_any)
{
    *out_any = false;
    for (size_t i = 0; !*out_any && i < rs_pickle_count(patterns); i++) {
        rs_slice pattern;
        if (!rs_pickle_text(rs_pickle_item(patterns, i), &pattern))
            continue;
        reshard_status status = rs_zero_pattern_match(pattern, name, out_any);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

/* An entry of parameter_with_sub_params: {patterns, shape, partition_dim}. */
static reshard_status read_subs(const rs_pickle_node *info, const rs_pickle_node *entry,
                                rs_slice name, cut *made)
{
    int64_t dim = 0, count = 0;
    const rs_pickle_node *shape = rs_pickle_get(entry, "shape");
    const rs_pickle_node *patterns = rs_pickle_get(entry, "patterns");
    const rs_pickle_node *widths = rs_pickle_get(info, "sub_param_shard_widths");
    if (!rs_pickle_int(rs_pickle_get(entry, "partition_dim"), &dim) || dim < 0 ||
        dim >= RESHARD_NDIM_MAX)
        return rs_fail(RESHARD_ERR_CORRUPT,
                       "universal_checkpoint_info: parameter_with_sub_params has no partition_dim");
    const rs_pickle_node *sizes = rs_pickle_item(shape, (size_t)dim);
    bool are_told = rs_pickle_is(sizes, RS_PICKLE_TUPLE) || rs_pickle_is(sizes, RS_PICKLE_LIST);
    if (are_told)
        count = (int64_t)rs_pickle_count(sizes);
    if ((!are_told && !rs_pickle_int(sizes, &count)) || count < 1 || count > SUBS_MAX)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "universal_checkpoint_info does not say which parameters it consists of");
    made->dim = (int32_t)dim;
    made->sub_count = (int32_t)count;
    made->sizes = are_told ? sizes : NULL;
    for (size_t i = 0; i < rs_pickle_count(patterns) && widths != NULL; i++) {
        rs_slice pattern;
        bool is = false;
        char key[1024];
        if (!rs_pickle_text(rs_pickle_item(patterns, i), &pattern) || pattern.count >= sizeof key)
            continue;
        reshard_status status = rs_zero_pattern_match(pattern, name, &is);
        if (status != RESHARD_OK)
            return status;
        memcpy(key, pattern.bytes, pattern.count);
        key[pattern.count] = '\0';
        if (is)
            made->widths = rs_pickle_get(widths, key);
    }
    return RESHARD_OK;
}

static reshard_status find_subs(const rs_pickle_node *info, rs_slice name, cut *made,
                                bool *out_found)
{
    const rs_pickle_node *list = rs_pickle_get(info, "parameter_with_sub_params");
    bool halves = false;
    reshard_status status =
        matches_any(rs_pickle_get(info, "parameter_with_2_sub_params_cat_dim_0"), name, &halves);
    *out_found = halves;
    if (halves)
        made->sub_count = 2;
    for (size_t i = 0; status == RESHARD_OK && !*out_found && i < rs_pickle_count(list); i++) {
        const rs_pickle_node *entry = rs_pickle_item(list, i);
        status = matches_any(rs_pickle_get(entry, "patterns"), name, out_found);
        if (status == RESHARD_OK && *out_found)
            status = read_subs(info, entry, name, made);
    }
    return status;
}

static reshard_status find_cut(const rs_pickle_node *info, rs_slice name, cut *out_cut)
{
    cut made = {.sub_count = 1, .rows_max = -1};
    bool is_averaged = false, has_subs = false, is_row = false, is_vocabulary = false,
         is_not = false;
    reshard_status status = matches_any(rs_pickle_get(info, "tp_replicated_parameter_patterns"),
                                        name, &made.is_replicated);
    if (status == RESHARD_OK)
        status = matches_any(rs_pickle_get(info, "autotp_unsupported_parameter_patterns"), name,
                             &is_not);
    if (status == RESHARD_OK)
        status =
            matches_any(rs_pickle_get(info, "parameter_to_average_patterns"), name, &is_averaged);
    if (status == RESHARD_OK && (is_averaged || is_not))
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       is_not ? "universal_checkpoint_info says that it cannot be put together"
                              : "is an average over tensor parallel ranks, which is not supported");
    if (status == RESHARD_OK && !made.is_replicated)
        status = find_subs(info, name, &made, &has_subs);
    if (status == RESHARD_OK)
        status = matches_any(rs_pickle_get(info, "parameter_with_row_parallelism_patterns"), name,
                             &is_row);
    if (status == RESHARD_OK)
        status =
            matches_any(rs_pickle_get(info, "vocabulary_parameter_patterns"), name, &is_vocabulary);
    if (is_row && !has_subs)
        made.dim = 1;
    if (is_vocabulary)
        (void)rs_pickle_int(rs_pickle_get(info, "original_vocab_size"), &made.rows_max);
    *out_cut = made;
    return status;
}

/* ---- segments -------------------------------------------------------------------------------- */

/* The rows of sub-parameter `sub` that a tensor parallel rank has. */
static reshard_status find_width(const cut *c, int64_t size, int32_t sub, int32_t tp, int32_t rank,
                                 int64_t *out_width)
{
    if (c->widths != NULL) {
        const rs_pickle_node *row = rs_pickle_item(c->widths, (size_t)sub);
        if (!rs_pickle_int(rs_pickle_item(row, (size_t)rank), out_width) || *out_width < 0)
            return rs_fail(RESHARD_ERR_CORRUPT, "sub_param_shard_widths does not list %d ranks",
                           (int)tp);
        return RESHARD_OK;
    }
    if (size % tp != 0)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "consists of parameters, one of which has %lld rows, not a multiple of the "
                       "%d tensor parallel ranks, and nothing says how they are cut",
                       (long long)size, (int)tp);
    *out_width = size / tp;
    return RESHARD_OK;
}

/* Finds the segments of a rank. rows: of its part; total: of all parts. */
static reshard_status find_segments(const cut *c, int64_t before, int64_t rows, int64_t total,
                                    int32_t tp, int32_t rank, segment out_segments[SUBS_MAX])
{
    int64_t local = 0, start = 0;
    if (c->sub_count == 1) {
        out_segments[0] = (segment){0, rows, before};
        return RESHARD_OK;
    }
    for (int32_t sub = 0; sub < c->sub_count; sub++) {
        int64_t size = total / c->sub_count, width = 0, at = start;
        if (c->sizes != NULL && !rs_pickle_int(rs_pickle_item(c->sizes, (size_t)sub), &size))
            return rs_fail(RESHARD_ERR_CORRUPT, "the sizes of its sub-parameters are not numbers");
        for (int32_t t = 0; t <= rank; t++) {
            at += width;
            reshard_status status = find_width(c, size, sub, tp, t, &width);
            if (status != RESHARD_OK)
                return status;
        }
        out_segments[sub] = (segment){local, rs_add_up(local, width), at};
        local = rs_add_up(local, width);
        start = rs_add_up(start, size);
    }
    if (local != rows || start != total)
        return rs_fail(RESHARD_ERR_CORRUPT,
                       "the parameters that it consists of have %lld of %lld rows on rank %d, and "
                       "%lld of %lld in all",
                       (long long)local, (long long)rows, (int)rank, (long long)start,
                       (long long)total);
    return RESHARD_OK;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* The part of a piece that lies in a segment, as a piece of the whole. *out_kept is false if
 * nothing does. */
static reshard_status place_piece(rs_arena *arena, const rs_stored_tensor *part,
                                  const rs_stored_piece *piece, int32_t dim, const segment *s,
                                  rs_stored_piece *out_piece, bool *out_kept)
{
    size_t ndim = (size_t)part->carried_ndim;
    int64_t begin = piece->offset != NULL ? piece->offset[dim] : 0;
    int64_t from = rs_max(begin, s->from), to = rs_min(begin + piece->size[dim], s->to);
    *out_kept = from < to;
    if (from >= to)
        return RESHARD_OK;
    int64_t *numbers = rs_arena_allocate_array(arena, 3 * ndim, sizeof(int64_t));
    if (numbers == NULL)
        return rs_allocation_status();
    int64_t *size = numbers + ndim, *strides = numbers + 2 * ndim;
    for (size_t d = 0; d < ndim; d++) {
        numbers[d] = piece->offset != NULL ? piece->offset[d] : 0;
        size[d] = piece->size[d];
    }
    rs_piece_strides(part, piece, strides);
    numbers[dim] = s->at + from - s->from;
    size[dim] = to - from;
    *out_piece = (rs_stored_piece){
        .file = piece->file,
        .at = piece->at + (uint64_t)((from - begin) * strides[dim] * part->element_bytes),
        .offset = numbers,
        .size = size,
        .strides = rs_strides_are_dense(part->carried_ndim, size, strides) ? NULL : strides};
    return RESHARD_OK;
}

static bool has_same_boxes(const rs_stored_tensor *a, const rs_stored_tensor *b)
{
    bool same = a->piece_count == b->piece_count;
    size_t bytes = (size_t)a->carried_ndim * sizeof(int64_t);
    for (int64_t i = 0; same && bytes != 0 && i < a->piece_count; i++) {
        const rs_stored_piece *x = &a->pieces[i], *y = &b->pieces[i];
        same = memcmp(x->size, y->size, bytes) == 0 && (x->offset == NULL) == (y->offset == NULL) &&
               (x->offset == NULL || memcmp(x->offset, y->offset, bytes) == 0);
    }
    return same;
}

/* The first rank's part is the tensor; the others' are copies, if they are cut alike. */
static reshard_status join_replicas(rs_zero_reading *r, const rs_zero_local *locals, int64_t count,
                                    rs_stored_tensor *tensor)
{
    int64_t room = (count - 1) * tensor->piece_count;
    if (tensor->bytes == 0)
        return RESHARD_OK;
    tensor->copies =
        rs_arena_allocate_array(&r->checkpoint->arena, (size_t)room, sizeof(rs_stored_piece));
    if (tensor->copies == NULL)
        return rs_allocation_status();
    for (int64_t i = 1; i < count; i++) {
        const rs_stored_tensor *other = &locals[i].tensor;
        if (other->ndim != tensor->ndim || other->dtype != tensor->dtype ||
            (tensor->ndim != 0 &&
             memcmp(other->shape, tensor->shape, (size_t)tensor->ndim * sizeof(int64_t)) != 0))
            return rs_fail(
                RESHARD_ERR_CORRUPT,
                "is replicated, but tensor parallel ranks 0 and %lld do not agree on its "
                "shape or dtype",
                (long long)i);
        for (int64_t j = 0; has_same_boxes(tensor, other) && j < other->piece_count; j++)
            tensor->copies[tensor->copy_count++] = other->pieces[j];
    }
    return RESHARD_OK;
}

/* ---- one tensor ------------------------------------------------------------------------------ */

/* Checks that the parts differ in nothing but the cut dim, and adds that up. */
static reshard_status find_shape(rs_arena *arena, const rs_zero_local *locals, int64_t count,
                                 int32_t dim, const int64_t **out_shape)
{
    const rs_stored_tensor *first = &locals[0].tensor;
    int64_t *shape = rs_arena_copy(arena, first->shape, (size_t)first->ndim, sizeof(int64_t));
    if (shape == NULL)
        return rs_allocation_status();
    for (int64_t i = 1; i < count; i++) {
        const rs_stored_tensor *other = &locals[i].tensor;
        bool fits = other->ndim == first->ndim && other->dtype == first->dtype;
        for (int32_t d = 0; fits && d < first->ndim; d++)
            fits = d == dim || other->shape[d] == first->shape[d];
        if (!fits)
            return rs_fail(RESHARD_ERR_CORRUPT,
                           "is cut along dim %d, but tensor parallel ranks 0 and %lld do not agree "
                           "on the rest of its shape, or its dtype",
                           (int)dim, (long long)i);
        shape[dim] = rs_add_up(shape[dim], other->shape[dim]);
    }
    *out_shape = shape;
    return RESHARD_OK;
}

static reshard_status add_rank(rs_arena *arena, const rs_stored_tensor *part, const cut *c,
                               const segment *segments, rs_stored_tensor *tensor)
{
    for (int64_t i = 0; i < part->piece_count; i++) {
        for (int32_t sub = 0; sub < c->sub_count; sub++) {
            bool kept = false;
            segment s = segments[sub];
            if (s.at + s.to - s.from > tensor->shape[c->dim]) /* padding */
                s.to = s.from + rs_max(tensor->shape[c->dim] - s.at, 0);
            reshard_status status = place_piece(arena, part, &part->pieces[i], c->dim, &s,
                                                &tensor->pieces[tensor->piece_count], &kept);
            if (status != RESHARD_OK)
                return status;
            tensor->piece_count += kept;
        }
    }
    return RESHARD_OK;
}

static reshard_status join_cut(rs_zero_reading *r, const rs_zero_local *locals, int64_t count,
                               const cut *c, rs_stored_tensor *tensor)
{
    rs_arena *arena = &r->checkpoint->arena;
    const rs_value_step *step = tensor->step;
    rs_slice name = tensor->name;
    bool is_aside = tensor->is_aside, is_fixed = tensor->is_fixed;
    const int64_t *shape = NULL;
    segment segments[SUBS_MAX];
    int64_t before = 0, room = 0;
    if (c->dim >= tensor->ndim || tensor->opaque)
        return rs_fail(RESHARD_ERR_CORRUPT, "has %d dimensions, but is cut along dim %d",
                       (int)tensor->ndim, (int)c->dim);
    reshard_status status = find_shape(arena, locals, count, c->dim, &shape);
    if (status != RESHARD_OK)
        return status;
    int64_t total = shape[c->dim];
    if (c->rows_max >= 0 && c->rows_max < total)
        ((int64_t *)(uintptr_t)shape)[c->dim] = c->rows_max;
    for (int64_t i = 0; i < count; i++)
        room += locals[i].tensor.piece_count * c->sub_count;
    status = rs_store_describe(tensor, arena, name, locals[0].tensor.dtype, locals[0].tensor.ndim,
                               shape);
    if (status != RESHARD_OK)
        return status;
    tensor->step = step;
    tensor->is_aside = is_aside;
    tensor->is_fixed = is_fixed;
    tensor->pieces = rs_arena_allocate_array(arena, (size_t)room, sizeof(rs_stored_piece));
    if (tensor->pieces == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < count && tensor->bytes != 0; i++) {
        const rs_stored_tensor *part = &locals[i].tensor;
        int64_t rows = part->shape[c->dim];
        status = find_segments(c, before, rows, total, (int32_t)count, (int32_t)i, segments);
        if (status == RESHARD_OK)
            status = add_rank(arena, part, c, segments, tensor);
        before += rows;
    }
    if (status == RESHARD_OK && tensor->bytes == 0) {
        tensor->pieces[0] = (rs_stored_piece){.file = locals[0].tensor.pieces[0].file,
                                              .size = tensor->carried_shape};
        tensor->piece_count = 1;
        return RESHARD_OK;
    }
    return status == RESHARD_OK ? rs_store_check(r->checkpoint, tensor) : status;
}

/* ---- by rules -------------------------------------------------------------------------------- */

/* Adds a rank's part: each piece of its shard is a range of rows. */
static reshard_status add_shard(rs_arena *arena, const rs_stored_tensor *part,
                                const reshard_shard *shard, int32_t dim, rs_stored_tensor *tensor)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < shard->piece_count; i++) {
        const reshard_piece *piece = &shard->pieces[i];
        int64_t from = piece->at / piece->strides[dim];
        segment s = {from, from + piece->box.size[dim], piece->box.offset[dim]};
        for (int64_t j = 0; status == RESHARD_OK && j < part->piece_count; j++) {
            bool kept = false;
            status = place_piece(arena, part, &part->pieces[j], dim, &s,
                                 &tensor->pieces[tensor->piece_count], &kept);
            tensor->piece_count += kept;
        }
    }
    return status;
}

static reshard_status add_shards(rs_arena *arena, const rs_zero_local *locals,
                                 const reshard_shards *shards, int32_t dim,
                                 rs_stored_tensor *tensor)
{
    int64_t room = 0;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < shards->count; i++)
        room = rs_add_up(room, rs_multiply_up(locals[shards->items[i].rank].tensor.piece_count,
                                              shards->items[i].piece_count));
    tensor->pieces = rs_arena_allocate_array(arena, (size_t)room, sizeof(rs_stored_piece));
    if (tensor->pieces == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < shards->count; i++)
        status =
            add_shard(arena, &locals[shards->items[i].rank].tensor, &shards->items[i], dim, tensor);
    return status;
}

static reshard_status join_by_layout(rs_zero_reading *r, const rs_zero_local *locals,
                                     const rs_rule_result *result, int32_t dim,
                                     rs_stored_tensor *tensor)
{
    const rs_stored_tensor first = *tensor;
    rs_arena *arena = &r->checkpoint->arena;
    reshard_shards *shards = NULL;
    const int64_t *shape =
        rs_arena_copy(arena, result->shape, (size_t)result->ndim, sizeof(int64_t));
    if (shape == NULL)
        return rs_allocation_status();
    reshard_status status =
        rs_store_describe(tensor, arena, first.name, first.dtype, first.ndim, shape);
    tensor->step = first.step;
    tensor->is_aside = first.is_aside;
    tensor->is_fixed = first.is_fixed;
    if (status == RESHARD_OK)
        status = reshard_layout_shards(result->layout, RESHARD_ALL_RANKS, &shards);
    if (status == RESHARD_OK)
        status = add_shards(arena, locals, shards, dim, tensor);
    if (status == RESHARD_OK)
        status = rs_store_separate_copies(r->checkpoint, tensor);
    reshard_shards_destroy(shards);
    return status == RESHARD_OK ? rs_store_check(r->checkpoint, tensor) : status;
}

static reshard_status join_by_rules(rs_zero_reading *r, const rs_zero_local *locals, int64_t count,
                                    rs_stored_tensor *tensor)
{
    rs_rule_result result = {0};
    int32_t dim = -1;
    if (tensor->ndim == 0 || tensor->bytes == 0)
        return join_replicas(r, locals, count, tensor);
    reshard_status status = rs_zero_rules_find(r, locals, &result, &dim);
    if (status != RESHARD_OK)
        return status;
    status = dim < 0 ? join_replicas(r, locals, count, tensor)
                     : join_by_layout(r, locals, &result, dim, tensor);
    rs_rule_result_release(&result);
    return status;
}

reshard_status rs_zero_cut_join(rs_zero_reading *r, const rs_zero_local *locals, int64_t count,
                                rs_stored_tensor *tensor)
{
    cut c = {0};
    int32_t tp = r->files.tp_count;
    rs_slice name = locals[0].parameter;
    reshard_status status = RESHARD_OK;
    if (name.bytes == NULL)
        return RESHARD_OK; /* not of the model: whole */
    for (int64_t i = 0; status == RESHARD_OK && i < tp; i++) {
        if (i >= count || locals[i].mp % tp != i)
            status = rs_fail(RESHARD_ERR_GAP, "tensor parallel rank %lld has no part of it",
                             (long long)i);
    }
    if (status == RESHARD_OK && r->info != NULL)
        status = find_cut(r->info, name, &c);
    if (status == RESHARD_OK && r->info == NULL)
        status = join_by_rules(r, locals, count, tensor);
    else if (status == RESHARD_OK)
        status = c.is_replicated || tensor->ndim == 0 ? join_replicas(r, locals, count, tensor)
                                                      : join_cut(r, locals, count, &c, tensor);
    return status == RESHARD_OK ? RESHARD_OK : rs_fail_within_tensor(status, tensor->name);
}
