/* SPDX-License-Identifier: Apache-2.0 */
/* mapped_tensor.c - makes one tensor of what a map's links and constants say. */
#include "base/checked.h"
#include "base/context.h"
#include "base/dtype.h"
#include "base/shape.h"
#include "base/sort.h"
#include "checkpoint/view/mapped.h"
#include "kernel/values/cast.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* A tensor of more boxes than this is computed instead: its boxes are short, and would have to be
 * found again for every block. */
#define PIECES_MAX 1024
/* A tensor is computed, too, if more pieces than this would have to be compared with its boxes. */
#define COMPARED_MAX ((int64_t)1 << 20)

/* ---- constants ------------------------------------------------------------------------------- */

static reshard_status fail_constant(reshard_dtype dtype, double value)
{
    return rs_fail(RESHARD_ERR_INVALID, "fill(%.17g): %s cannot hold this value", value,
                   reshard_dtype_name(dtype));
}

/* Writes an integer that has `bits` bits, in the order of this machine, which is that of files. */
static reshard_status write_integer(reshard_dtype dtype, double value, bool is_signed,
                                    void *out_element)
{
    int32_t bits = dtype == RESHARD_BOOL ? 1 : reshard_dtype_bits(dtype);
    double end = ldexp(1.0, is_signed ? bits - 1 : bits);
    if (value != trunc(value) || value >= end || value < (is_signed ? -end : 0.0))
        return fail_constant(dtype, value);
    uint64_t number = value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value;
    memcpy(out_element, &number, rs_element_bytes(dtype));
    return RESHARD_OK;
}

reshard_status rs_mapped_constant(rs_arena *arena, reshard_dtype dtype, double value,
                                  const void **out_element)
{
    const int64_t one = 1;
    double held[2] = {0, 0}, back = 0;
    reshard_status status = RESHARD_OK;
    switch (dtype) {
    case RESHARD_BOOL:
    case RESHARD_U8:
    case RESHARD_U16:
    case RESHARD_U32:
    case RESHARD_U64:
        status = write_integer(dtype, value, false, held);
        break;
    case RESHARD_I8:
    case RESHARD_I16:
    case RESHARD_I32:
    case RESHARD_I64:
        status = write_integer(dtype, value, true, held);
        break;
    default:
        if (!rs_cast_supports(RESHARD_F64, dtype))
            return rs_fail(RESHARD_ERR_UNSUPPORTED, "fill(%.17g): %s cannot be filled", value,
                           reshard_dtype_name(dtype));
        rs_cast cast;
        rs_cast_prepare(&cast, RESHARD_F64, dtype, 1, &one, &one, &one);
        rs_cast_run(&cast, &value, held);
        rs_cast_prepare(&cast, dtype, RESHARD_F64, 1, &one, &one, &one);
        rs_cast_run(&cast, held, &back);
        /* Rounding is expected of floats, but no finite number may become infinite. */
        if (isfinite(value) && !isfinite(back))
            status = fail_constant(dtype, value);
    }
    if (status != RESHARD_OK)
        return status;
    *out_element = rs_arena_copy(arena, held, 1, sizeof held);
    return *out_element != NULL ? RESHARD_OK : rs_allocation_status();
}

static reshard_status make_constant(const rs_map_making *mapping, double value,
                                    rs_stored_tensor *made)
{
    rs_formula *formula = rs_arena_allocate(mapping->arena, sizeof *formula);
    if (formula == NULL)
        return rs_allocation_status();
    *formula = (rs_formula){.checkpoint = mapping->source};
    made->formula = formula;
    return rs_mapped_constant(mapping->arena, made->dtype, value, &formula->constant);
}

/* ---- links ----------------------------------------------------------------------------------- */

/* Copies the links of a target. *out_links is NULL if there are none. */
static reshard_status take_links(const rs_map_making *mapping, const reshard_map_target *target,
                                 rs_formula_link **out_links)
{
    rs_arena *arena = mapping->arena;
    size_t count = (size_t)target->link_count;
    rs_formula_link *links = rs_arena_allocate_array(arena, count, sizeof *links);
    if (links == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        reshard_strided_link link = {.size = sizeof link};
        reshard_status status =
            reshard_map_result_link(mapping->result, target->link_first + (int64_t)i, &link);
        if (status != RESHARD_OK)
            return status;
        rs_formula_link *made = &links[i];
        *made = (rs_formula_link){.source = mapping->items[link.source].stored,
                                  .axis_count = link.axis_count};
        rs_formula_link_sort(link.axes, link.axis_count, &made->inner_count);
        made->source_at = rs_arena_copy(arena, link.source_at, RESHARD_NDIM_MAX, sizeof(int64_t));
        made->target_at = rs_arena_copy(arena, link.target_at, RESHARD_NDIM_MAX, sizeof(int64_t));
        made->axes =
            rs_arena_copy(arena, link.axes, (size_t)link.axis_count, sizeof(reshard_link_axis));
        if (made->source_at == NULL || made->target_at == NULL || made->axes == NULL)
            return rs_allocation_status();
    }
    *out_links = links;
    return RESHARD_OK;
}

/* Whether a tensor is another one as it is. Axes fill all of the target, so it is enough that each
 * goes the same way on both sides. */
static bool is_identity(const reshard_map_target *target, const rs_formula_link *link)
{
    const rs_stored_tensor *source = link->source;
    if (target->link_count != 1 || source->ndim != target->ndim)
        return false;
    for (int32_t d = 0; d < target->ndim; d++) {
        if (source->shape[d] != target->shape[d] || link->source_at[d] != 0 ||
            link->target_at[d] != 0)
            return false;
    }
    for (int32_t i = 0; i < link->axis_count; i++) {
        const reshard_link_axis *axis = &link->axes[i];
        if (axis->source_dim != axis->target_dim || axis->source_step != axis->target_step)
            return false;
    }
    return true;
}

static reshard_status check_links(const reshard_map_target *target, const rs_formula_link *links)
{
    const rs_stored_tensor *first = links[0].source;
    for (int64_t i = 0; i < target->link_count; i++) {
        const rs_stored_tensor *source = links[i].source;
        if (source->dtype != first->dtype)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "line %d of the map joins \"%.*s\" (%s) and \"%.*s\" (%s) to "
                           "\"%.200s\"; cast one of them in a conversion before this one",
                           (int)target->line, RS_SHOWN(first->name),
                           reshard_dtype_name(first->dtype), RS_SHOWN(source->name),
                           reshard_dtype_name(source->dtype), target->name);
        if (target->added != 0 && !rs_cast_supports(source->dtype, RESHARD_F64))
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "line %d of the map adds %.17g to \"%.*s\", but %s is not a float type",
                           (int)target->line, target->added, RS_SHOWN(source->name),
                           reshard_dtype_name(source->dtype));
        if (source->opaque)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "line %d of the map rearranges \"%.*s\", but elements of %s can only "
                           "be copied as a whole",
                           (int)target->line, RS_SHOWN(source->name),
                           reshard_dtype_name(source->dtype));
    }
    return RESHARD_OK;
}

/* ---- boxes ----------------------------------------------------------------------------------- */

/* Is it stored whole, in one dense array? */
static bool is_dense(const rs_stored_tensor *source)
{
    return source->piece_count == 1 && rs_piece_is_whole(source, &source->pieces[0]) &&
           source->pieces[0].strides == NULL;
}

/* How many boxes of the target a link fills, each from a box of the source or, if that is stored
 * whole, from a strided region of it; PIECES_MAX + 1: too many, or it does not. */
static int64_t count_boxes(const rs_formula_link *link)
{
    const rs_stored_tensor *source = link->source;
    int32_t outer = link->axis_count - link->inner_count;
    int64_t count = 1;
    for (int32_t i = 0; i < link->axis_count; i++) {
        const reshard_link_axis *axis = &link->axes[i];
        bool is_box = axis->target_step == 1 && (axis->source_step == 1 || is_dense(source));
        if (axis->size == 0)
            return 0;
        if (i >= outer && !is_box && axis->size != 1)
            return PIECES_MAX + 1;
        if (i < outer)
            count = axis->size > PIECES_MAX / count ? PIECES_MAX + 1 : count * axis->size;
        if (count > PIECES_MAX)
            return count;
    }
    return count;
}

/* Adds the box for one choice of the outer axes' values, which `index` counts through. */
static reshard_status add_box(rs_arena *arena, const rs_formula_link *link, int64_t index,
                              rs_stored_tensor *made)
{
    const rs_stored_tensor *source = link->source;
    size_t ndim = (size_t)made->carried_ndim;
    int64_t strides[RESHARD_NDIM_MAX], at = 0;
    int64_t *numbers = rs_arena_allocate_array(arena, 3 * ndim, sizeof(int64_t));
    if (numbers == NULL)
        return rs_allocation_status();
    int64_t *offset = numbers, *size = numbers + ndim, *steps = size + ndim;
    rs_dense_strides(source->carried_ndim, source->carried_shape, strides);
    for (size_t d = 0; d < ndim; d++) {
        offset[d] = link->target_at[d];
        size[d] = steps[d] = 1;
    }
    for (int32_t d = 0; d < source->carried_ndim; d++)
        at += link->source_at[d] * strides[d];
    for (int32_t i = 0; i < link->axis_count; i++) {
        const reshard_link_axis *axis = &link->axes[i];
        int64_t step = strides[axis->source_dim] * axis->source_step;
        if (i < link->axis_count - link->inner_count) {
            offset[axis->target_dim] += index % axis->size * axis->target_step;
            at += index % axis->size * step;
            index /= axis->size;
        } else {
            size[axis->target_dim] = axis->size;
            steps[axis->target_dim] = step;
        }
    }
    const rs_stored_piece *from = &source->pieces[0];
    made->pieces[made->piece_count++] = (rs_stored_piece){
        .file = from->file,
        .at = from->at + (uint64_t)(at * source->element_bytes),
        .offset = offset,
        .size = size,
        .strides = rs_strides_are_dense((int32_t)ndim, size, steps) ? NULL : steps};
    return RESHARD_OK;
}

/* A box of the target, and the box of the source that fills it. */
typedef struct filled_box {
    int64_t offset[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
    int64_t start[RESHARD_NDIM_MAX], length[RESHARD_NDIM_MAX];
    int32_t target_dim[RESHARD_NDIM_MAX]; /* by dim of the source: the one it becomes; -1: none */
} filled_box;

/* The box for one choice of the outer axes' values, which `index` counts through. */
static void find_box(const rs_formula_link *link, int32_t ndim, int64_t index, filled_box *box)
{
    for (int32_t d = 0; d < ndim; d++) {
        box->offset[d] = link->target_at[d];
        box->size[d] = 1;
    }
    for (int32_t d = 0; d < link->source->carried_ndim; d++) {
        box->start[d] = link->source_at[d];
        box->length[d] = 1;
        box->target_dim[d] = -1;
    }
    for (int32_t i = 0; i < link->axis_count; i++) {
        const reshard_link_axis *axis = &link->axes[i];
        if (i < link->axis_count - link->inner_count) {
            box->offset[axis->target_dim] += index % axis->size * axis->target_step;
            box->start[axis->source_dim] += index % axis->size * axis->source_step;
            index /= axis->size;
        } else {
            box->size[axis->target_dim] = box->length[axis->source_dim] = axis->size;
            box->target_dim[axis->source_dim] = axis->target_dim;
        }
    }
}

/* Adds what one piece of the source has of a box. made NULL: only finds out whether it has some. */
static reshard_status add_part(rs_arena *arena, const rs_stored_tensor *source,
                               const rs_stored_piece *piece, const filled_box *box,
                               rs_stored_tensor *made, bool *out_has)
{
    int64_t low[RESHARD_NDIM_MAX], strides[RESHARD_NDIM_MAX], count[RESHARD_NDIM_MAX], at = 0;
    *out_has = false;
    for (int32_t d = 0; d < source->carried_ndim; d++) {
        int64_t from = piece->offset != NULL ? piece->offset[d] : 0;
        low[d] = rs_max(from, box->start[d]);
        count[d] = rs_min(from + piece->size[d], box->start[d] + box->length[d]) - low[d];
        if (count[d] <= 0)
            return RESHARD_OK;
    }
    *out_has = true;
    if (made == NULL)
        return RESHARD_OK;
    size_t ndim = (size_t)made->carried_ndim;
    int64_t *numbers = rs_arena_allocate_array(arena, 3 * ndim, sizeof *numbers);
    if (numbers == NULL)
        return rs_allocation_status();
    int64_t *offset = numbers, *size = numbers + ndim, *steps = size + ndim;
    for (size_t d = 0; d < ndim; d++) {
        offset[d] = box->offset[d];
        size[d] = steps[d] = 1;
    }
    rs_piece_strides(source, piece, strides);
    for (int32_t d = 0; d < source->carried_ndim; d++) {
        int32_t to = box->target_dim[d];
        at += (low[d] - (piece->offset != NULL ? piece->offset[d] : 0)) * strides[d];
        if (to < 0)
            continue;
        offset[to] += low[d] - box->start[d];
        size[to] = count[d];
        steps[to] = strides[d];
    }
    made->pieces[made->piece_count++] = (rs_stored_piece){
        .file = piece->file,
        .at = piece->at + (uint64_t)(at * source->element_bytes),
        .offset = offset,
        .size = size,
        .strides = rs_strides_are_dense((int32_t)ndim, size, steps) ? NULL : steps};
    return RESHARD_OK;
}

/* Adds what the pieces of a source have of the boxes of a link. Returns the number of parts in
 * *out_count; PIECES_MAX + 1: too many. made NULL: only counts. */
static reshard_status add_parts(rs_arena *arena, const rs_formula_link *link, int32_t ndim,
                                int64_t boxes, rs_stored_tensor *made, int64_t *out_count)
{
    const rs_stored_tensor *source = link->source;
    filled_box box;
    reshard_status status = RESHARD_OK;
    *out_count = boxes > COMPARED_MAX / rs_max(source->piece_count, 1) ? PIECES_MAX + 1 : 0;
    for (int64_t k = 0; k < boxes && *out_count <= PIECES_MAX; k++) {
        find_box(link, ndim, k, &box);
        for (int64_t i = 0; status == RESHARD_OK && i < source->piece_count; i++) {
            bool has = false;
            status = add_part(arena, source, &source->pieces[i], &box, made, &has);
            *out_count += has;
        }
    }
    return status;
}

/* Makes the bytes of other tensors the tensor's pieces. *out_is_made is false if they are not
 * boxes. */
static reshard_status make_boxes(const rs_map_making *mapping, const reshard_map_target *target,
                                 const rs_formula_link *links, rs_stored_tensor *made,
                                 bool *out_is_made)
{
    int64_t count = 0, parts = 0;
    reshard_status status = RESHARD_OK;
    *out_is_made = false;
    for (int64_t i = 0; i < target->link_count && count <= PIECES_MAX; i++) {
        if (links[i].source->formula != NULL)
            return RESHARD_OK;
        parts = count_boxes(&links[i]);
        if (parts <= PIECES_MAX && !is_dense(links[i].source))
            status = add_parts(NULL, &links[i], made->carried_ndim, parts, NULL, &parts);
        count += parts;
    }
    if (status != RESHARD_OK || count > PIECES_MAX)
        return status;
    made->pieces = rs_arena_allocate_array(mapping->arena, (size_t)count, sizeof *made->pieces);
    if (made->pieces == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < target->link_count; i++) {
        int64_t boxes = count_boxes(&links[i]);
        if (!is_dense(links[i].source)) {
            status = add_parts(mapping->arena, &links[i], made->carried_ndim, boxes, made, &parts);
            continue;
        }
        for (int64_t k = 0; status == RESHARD_OK && k < boxes; k++)
            status = add_box(mapping->arena, &links[i], k, made);
    }
    *out_is_made = true;
    /* This also proves that the links fill every element once. */
    return status == RESHARD_OK ? rs_store_check(mapping->source, made) : status;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Gives a tensor that is computed its one piece, near what it is computed from. */
static reshard_status make_piece(rs_arena *arena, const rs_formula *formula, rs_stored_tensor *made)
{
    rs_stored_piece piece = {.size = made->carried_shape};
    if (formula->link_count != 0 && formula->links[0].source->piece_count != 0) {
        piece.file = formula->links[0].source->pieces[0].file;
        piece.at = formula->links[0].source->pieces[0].at;
    }
    made->pieces = rs_arena_copy(arena, &piece, 1, sizeof piece);
    made->piece_count = 1;
    return made->pieces != NULL ? RESHARD_OK : rs_allocation_status();
}

static reshard_status make_linked(const rs_map_making *mapping, const reshard_map_target *target,
                                  const rs_formula_link *links, rs_stored_tensor *made)
{
    bool is_made = false;
    reshard_status status = check_links(target, links);
    if (status == RESHARD_OK && target->added == 0)
        status = make_boxes(mapping, target, links, made, &is_made);
    if (status != RESHARD_OK || is_made)
        return status;
    rs_formula *formula = rs_arena_allocate(mapping->arena, sizeof *formula);
    if (formula == NULL)
        return rs_allocation_status();
    *formula = (rs_formula){.checkpoint = mapping->source,
                            .link_count = target->link_count,
                            .links = links,
                            .added = target->added};
    made->formula = formula;
    return make_piece(mapping->arena, formula, made);
}

/* Takes over the pieces of a tensor that is only renamed. Its copies are compared under its own
 * name. */
static void take_whole(const rs_map_making *mapping, const rs_stored_tensor *source, rs_slice name,
                       rs_stored_tensor *made)
{
    *made = *source;
    made->name = name;
    if (!mapping->keeps_blocks) {
        made->block_type = NULL; /* whoever selected it has said what it becomes */
        made->blocks = NULL;
    }
    made->copy_count = 0;
    made->copies = NULL;
}

/* Where a tensor that no other goes into belongs in nested values: beside the first whose name
 * begins with the same word. Formats put new names as deep as their words agree with a place. */
static const rs_value_step *find_step(const rs_map_making *mapping, rs_slice name)
{
    const char *dot = memchr(name.bytes, '.', name.count);
    size_t front = dot != NULL ? (size_t)(dot - name.bytes) + 1 : name.count;
    for (int64_t i = 0; i < mapping->item_count; i++) {
        const rs_selected *item = &mapping->items[i];
        if (item->name.count > front && memcmp(item->name.bytes, name.bytes, front) == 0)
            return item->stored->step;
    }
    return NULL;
}

reshard_status rs_mapped_make(const rs_map_making *mapping, const reshard_map_target *target,
                              rs_stored_tensor *out_made, bool *out_is_same,
                              const rs_formula_link **out_links)
{
    rs_arena *arena = mapping->arena;
    size_t bytes = strlen(target->name);
    rs_slice name = {rs_arena_copy(arena, target->name, bytes + 1, 1), bytes};
    const int64_t *shape =
        rs_arena_copy(arena, target->shape, (size_t)target->ndim, sizeof(int64_t));
    rs_formula_link *links = NULL;
    if (name.bytes == NULL || shape == NULL)
        return rs_allocation_status();
    reshard_status status = take_links(mapping, target, &links);
    if (status != RESHARD_OK)
        return status;
    bool has_links = target->link_count != 0;
    *out_links = links;
    /* One without elements is made of nothing, whatever it is called. */
    *out_is_same = !has_links && target->origin == RESHARD_MAP_LINKS;
    if (has_links && target->added == 0 && is_identity(target, &links[0])) {
        *out_is_same = rs_slice_compare(links[0].source->name, name) == 0;
        take_whole(mapping, links[0].source, name, out_made);
        return RESHARD_OK;
    }
    reshard_dtype dtype = has_links ? links[0].source->dtype : target->dtype;
    /* Sums are computed in the wider dtype, for no bit more to get lost than has to. */
    if (has_links && target->added != 0 &&
        rs_element_bytes(target->dtype) > rs_element_bytes(dtype))
        dtype = target->dtype;
    *out_made = (rs_stored_tensor){.name = {NULL, 0}};
    status = rs_store_describe(out_made, arena, name, dtype, target->ndim, shape);
    out_made->step = has_links ? links[0].source->step : find_step(mapping, name);
    if (status != RESHARD_OK || out_made->bytes == 0)
        return status;
    if (has_links)
        return make_linked(mapping, target, links, out_made);
    status = make_constant(mapping, target->value, out_made);
    return status == RESHARD_OK ? make_piece(arena, out_made->formula, out_made)
                                : rs_fail_within(status, "line %d of the map", (int)target->line);
}

/* ---- the way back ---------------------------------------------------------------------------- */

/* Finds the values of a link's axes that lead to an element of the target; out_index is the one of
 * the source. Along one dim, axes are like digits: those with longer steps come first. */
static bool find_element(const rs_formula_link *link, int32_t ndim, const int64_t *index,
                         int64_t out_index[RESHARD_NDIM_MAX])
{
    int64_t left[RESHARD_NDIM_MAX];
    uint64_t done = 0;
    for (int32_t d = 0; d < ndim; d++)
        left[d] = index[d] - link->target_at[d];
    memcpy(out_index, link->source_at, (size_t)link->source->carried_ndim * sizeof *out_index);
    for (int32_t k = 0; k < link->axis_count; k++) {
        int32_t longest = -1;
        for (int32_t i = 0; i < link->axis_count; i++) {
            if ((done >> i & 1) == 0 &&
                (longest < 0 || link->axes[i].target_step > link->axes[longest].target_step))
                longest = i;
        }
        const reshard_link_axis *axis = &link->axes[longest];
        int64_t *rest = &left[axis->target_dim];
        if (*rest < 0 || axis->size == 0)
            return false;
        int64_t value = rs_min(*rest / axis->target_step, axis->size - 1);
        *rest -= value * axis->target_step;
        out_index[axis->source_dim] += value * axis->source_step;
        done |= UINT64_C(1) << longest;
    }
    for (int32_t d = 0; d < ndim; d++) {
        if (left[d] != 0)
            return false;
    }
    return true;
}

const rs_stored_tensor *rs_mapped_find(const rs_mapped *mapped, int64_t tensor,
                                       const int64_t *index, int64_t out_index[RESHARD_NDIM_MAX])
{
    const rs_mapped_origin *origin = &mapped->origins[tensor];
    for (int64_t i = 0; i < origin->link_count; i++) {
        const rs_formula_link *link = &origin->links[i];
        if (find_element(link, mapped->made.tensors[tensor].carried_ndim, index, out_index))
            return link->source;
    }
    return NULL;
}
