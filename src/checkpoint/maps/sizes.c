/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sizes.c - the sizes of a line's axes. A dimension is a product of axes and sums; if all of its
 * axes but one are known, it is c0 + c1 * x, and the shape gives x.
 */
#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/maps/resolve.h"
#include "text/text.h"

#include <inttypes.h>
#include <string.h>

/* c0 + c1 * x, where x is the axis that is not known. */
typedef struct linear {
    int64_t c0, c1;
} linear;

void rs_map_sizes_init(rs_map_sizes *sizes, const rs_map_resolver *r, const rs_map_line *line)
{
    memset(sizes, 0, sizeof *sizes);
    sizes->map = r->map;
    sizes->line = line;
    sizes->rest_count = -1;
    for (int32_t i = 0; i < line->axis_count; i++)
        sizes->axes[i] =
            line->axes[i].number != 0 ? line->axes[i].number : rs_map_let(r, line->axes[i].name);
}

/* The only axis of a node that is not known; -1: all are known; -2: several are not. */
static int32_t find_unknown(const rs_map_sizes *sizes, const rs_map_node *node)
{
    if (node->kind == RS_NODE_AXIS)
        return sizes->axes[node->axis] < 0 ? node->axis : -1;
    int32_t unknown = -1;
    for (int32_t i = 0; i < node->count; i++) {
        int32_t found = find_unknown(sizes, &node->nodes[i]);
        if (found == -2 || (found >= 0 && unknown >= 0 && found != unknown))
            return -2;
        unknown = found >= 0 ? found : unknown;
    }
    return unknown;
}

/* False: beyond 2^63, or the axis would be squared. */
static bool evaluate(const rs_map_sizes *sizes, const rs_map_node *node, linear *out)
{
    if (node->kind == RS_NODE_AXIS) {
        int64_t size = sizes->axes[node->axis];
        *out = size < 0 ? (linear){0, 1} : (linear){size, 0};
        return true;
    }
    linear all = {node->kind == RS_NODE_SUM ? 0 : 1, 0};
    for (int32_t i = 0; i < node->count; i++) {
        linear one;
        if (!evaluate(sizes, &node->nodes[i], &one))
            return false;
        if (node->kind == RS_NODE_SUM) {
            if (!rs_add(all.c0, one.c0, &all.c0) || !rs_add(all.c1, one.c1, &all.c1))
                return false;
            continue;
        }
        int64_t a, b;
        if ((all.c1 != 0 && one.c1 != 0) || !rs_multiply(all.c0, one.c1, &a) ||
            !rs_multiply(all.c1, one.c0, &b) || !rs_add(a, b, &all.c1) ||
            !rs_multiply(all.c0, one.c0, &all.c0))
            return false;
    }
    *out = all;
    return true;
}

static void add_node(const rs_map_line *line, const rs_map_node *node, rs_text *text)
{
    if (node->kind == RS_NODE_AXIS) {
        const rs_map_axis *axis = &line->axes[node->axis];
        if (axis->number != 0)
            rs_text_add(text, "%" PRId64, axis->number);
        else
            rs_text_add(text, "%.*s", RS_SHOWN(axis->name));
        return;
    }
    rs_text_add(text, node->count == 0 ? "1" : "(");
    for (int32_t i = 0; i < node->count; i++) {
        rs_text_add(text, "%s", i == 0 ? "" : node->kind == RS_NODE_SUM ? " + " : " ");
        add_node(line, &node->nodes[i], text);
    }
    rs_text_add(text, node->count == 0 ? "" : ")");
}

/* "a=2 b=3": the axes of a node that are known. */
static void add_known(const rs_map_sizes *sizes, const rs_map_node *node, rs_text *text)
{
    if (node->kind == RS_NODE_AXIS && sizes->axes[node->axis] >= 0 &&
        sizes->line->axes[node->axis].number == 0)
        rs_text_add(text, "%s%.*s=%" PRId64, text->length > 0 ? " " : "",
                    RS_SHOWN(sizes->line->axes[node->axis].name), sizes->axes[node->axis]);
    for (int32_t i = 0; i < node->count; i++)
        add_known(sizes, &node->nodes[i], text);
}

static reshard_status fail_dim(const rs_map_sizes *sizes, const rs_map_node *node,
                               const rs_map_source *source, int32_t dim)
{
    char expression[128], known[128];
    rs_text text;
    rs_text_init(&text, expression, sizeof expression);
    add_node(sizes->line, node, &text);
    rs_text_init(&text, known, sizeof known);
    add_known(sizes, node, &text);
    return rs_map_fail_line(sizes->line, RESHARD_ERR_INVALID,
                            "dimension %d of \"%.*s\" has %" PRId64 " elements, which cannot be %s"
                            "%s%s",
                            (int)dim, RS_SHOWN(source->name), source->shape[dim], expression,
                            known[0] != '\0' ? " with " : "", known);
}

static reshard_status learn_dim(rs_map_sizes *sizes, const rs_map_term *term,
                                const rs_map_node *node, const rs_map_source *source, int32_t dim,
                                bool *out_learned)
{
    int64_t length = source->shape[dim];
    int32_t unknown = find_unknown(sizes, node);
    linear form;
    if (unknown == -2)
        return RESHARD_OK;
    if (!evaluate(sizes, node, &form))
        return unknown < 0 ? fail_dim(sizes, node, source, dim) : RESHARD_OK;
    bool padded = node->kind == RS_NODE_AXIS && node->axis == term->pad_axis;
    if (unknown < 0)
        return form.c0 == length || (padded && form.c0 < length)
                   ? RESHARD_OK
                   : fail_dim(sizes, node, source, dim);
    if (form.c1 == 0) /* an empty product: the axis may be anything */
        return form.c0 == length ? RESHARD_OK : fail_dim(sizes, node, source, dim);
    if (length < form.c0 || (length - form.c0) % form.c1 != 0)
        return fail_dim(sizes, node, source, dim);
    sizes->axes[unknown] = (length - form.c0) / form.c1;
    *out_learned = true;
    return RESHARD_OK;
}

static reshard_status learn_rest(rs_map_sizes *sizes, const rs_map_term *term,
                                 const rs_map_source *source, bool *out_learned)
{
    int32_t count = source->ndim - (term->dim_count - 1);
    const int64_t *shape = source->shape + term->rest_dim;
    if (sizes->rest_count < 0) {
        sizes->rest_count = count;
        memcpy(sizes->rest, shape, (size_t)count * sizeof *shape);
        *out_learned = true;
    }
    if (count != sizes->rest_count ||
        memcmp(sizes->rest, shape, (size_t)count * sizeof *shape) != 0)
        return rs_map_fail_line(sizes->line, RESHARD_ERR_INVALID,
                                "the further dimensions (..) of \"%.*s\" differ from those of the "
                                "line's other tensors",
                                RS_SHOWN(source->name));
    return RESHARD_OK;
}

reshard_status rs_map_sizes_learn(rs_map_sizes *sizes, const rs_map_term *term,
                                  const rs_map_source *source, bool *out_learned)
{
    bool has_rest = term->rest_dim >= 0;
    int32_t fixed = term->dim_count - has_rest;
    if (source->ndim < fixed || (source->ndim > fixed && !has_rest))
        return rs_map_fail_line(sizes->line, RESHARD_ERR_INVALID,
                                "\"%.*s\" has %d dimensions, but the line gives it %s%d",
                                RS_SHOWN(source->name), (int)source->ndim,
                                has_rest ? "at least " : "", (int)fixed);
    reshard_status status = RESHARD_OK;
    if (has_rest)
        status = learn_rest(sizes, term, source, out_learned);
    int32_t dim = 0;
    for (int32_t d = 0; d < term->dim_count && status == RESHARD_OK; d++) {
        if (d == term->rest_dim) {
            dim += sizes->rest_count;
            continue;
        }
        status = learn_dim(sizes, term, &term->dims[d], source, dim++, out_learned);
    }
    return status;
}

/* Names the number of its `let`, if it has one: then a key of it has no value. */
static reshard_status fail_unknown(const rs_map_sizes *sizes, rs_slice axis)
{
    for (int32_t i = 0; i < sizes->map->let_count; i++) {
        const rs_map_name *let = &sizes->map->lets[i];
        if (rs_slice_compare(let->name, axis) == 0)
            return rs_map_fail_line(sizes->line, RESHARD_ERR_NOT_FOUND,
                                    "nothing says how long axis %.*s is: %.*s has no value, in "
                                    "config.json or set",
                                    RS_SHOWN(axis), RS_SHOWN(let->number));
    }
    return rs_map_fail_line(sizes->line, RESHARD_ERR_NOT_FOUND,
                            "nothing says how long axis %.*s is; `let %.*s = ..` would",
                            RS_SHOWN(axis), RS_SHOWN(axis));
}

reshard_status rs_map_sizes_shape(const rs_map_sizes *sizes, const rs_map_term *term,
                                  int32_t *out_ndim, int64_t *shape)
{
    int32_t rest = term->rest_dim < 0 ? 0 : (int32_t)rs_max(0, sizes->rest_count);
    int32_t ndim = term->dim_count - (term->rest_dim >= 0) + rest, dim = 0;
    if (ndim > RESHARD_NDIM_MAX)
        return rs_map_fail_line(sizes->line, RESHARD_ERR_RANGE,
                                "%.*s has %d dimensions; at most %d are allowed",
                                RS_SHOWN(term->pattern.shown), (int)ndim, RESHARD_NDIM_MAX);
    for (int32_t d = 0; d < term->dim_count; d++) {
        if (d == term->rest_dim) {
            for (int32_t i = 0; i < rest; i++)
                shape[dim++] = sizes->rest[i];
            continue;
        }
        linear form;
        int32_t unknown = find_unknown(sizes, &term->dims[d]);
        if (unknown == -2)
            for (unknown = 0; sizes->axes[unknown] >= 0; unknown++)
                ;
        if (unknown >= 0)
            return fail_unknown(sizes, sizes->line->axes[unknown].name);
        if (!evaluate(sizes, &term->dims[d], &form))
            return rs_map_fail_line(sizes->line, RESHARD_ERR_RANGE,
                                    "a dimension of %.*s has more than 2^63-1 elements",
                                    RS_SHOWN(term->pattern.shown));
        shape[dim++] = form.c0;
    }
    *out_ndim = ndim;
    return RESHARD_OK;
}

/* ---- locations ------------------------------------------------------------------------------- */

static int64_t size_of(const rs_map_sizes *sizes, const rs_map_node *node)
{
    linear form = {0, 0};
    (void)evaluate(sizes, node, &form); /* was possible before */
    return form.c0;
}

/* Steps grow from right to left. */
static void locate(const rs_map_sizes *sizes, const rs_map_node *node, int32_t block, int32_t dim,
                   int64_t step, rs_map_location *location)
{
    if (node->kind == RS_NODE_AXIS) {
        location->dim[node->axis] = dim;
        location->step[node->axis] = step;
    } else if (node->kind == RS_NODE_SUM) {
        for (int32_t i = 0; i < block; i++)
            location->at[dim] += step * size_of(sizes, &node->nodes[i]);
        locate(sizes, &node->nodes[block], block, dim, step, location);
    } else {
        for (int32_t i = node->count - 1; i >= 0; i--) {
            locate(sizes, &node->nodes[i], block, dim, step, location);
            step *= size_of(sizes, &node->nodes[i]);
        }
    }
}

void rs_map_sizes_locate(const rs_map_sizes *sizes, const rs_map_term *term, int32_t block,
                         rs_map_location *out_location)
{
    memset(out_location, 0, sizeof *out_location);
    for (int32_t i = 0; i < RS_MAP_AXES_MAX; i++)
        out_location->dim[i] = -1;
    out_location->rest_dim = -1;
    int32_t dim = 0;
    for (int32_t d = 0; d < term->dim_count; d++) {
        if (d == term->rest_dim) {
            out_location->rest_dim = dim;
            dim += sizes->rest_count;
            continue;
        }
        locate(sizes, &term->dims[d], block, dim++, 1, out_location);
    }
}
