/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_rules.c - layout rules of a caller's own operation, read from text and applied axis by axis.
 * Cuts of outputs and gradients keep the order that they have in the inputs.
 */
#include "base/error.h"
#include "layout/layout.h"
#include "tensor/dist/axes.h"
#include "tensor/grad/gradient.h"
#include "tensor/ops/own.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

/* One placement of a rule. */
typedef struct pattern {
    enum { IS_WHOLE, IS_PARTIAL, IS_CUT } kind;
    enum { DIM_GIVEN, DIM_ANY, DIM_LEADING } which;
    int32_t dim; /* as written */
    reshard_reduction reduction;
} pattern;

typedef struct rule {
    pattern inputs[RESHARD_OPERATION_MAX], outputs[RESHARD_OPERATION_MAX];
    pattern gradients[RESHARD_OPERATION_MAX];
} rule;

static const char *skip_spaces(const char *at)
{
    while (*at == ' ')
        at++;
    return at;
}

/* Reads what is in the parentheses of S(..). Returns where it ends, or NULL. */
static const char *read_dim(const char *at, pattern *p)
{
    char *end = NULL;
    p->which = *at == '*' ? DIM_ANY : *at == 'i' ? DIM_LEADING : DIM_GIVEN;
    if (p->which != DIM_GIVEN)
        return at + 1;
    if (*at != '-' && !isdigit((unsigned char)*at))
        return NULL;
    long dim = strtol(at, &end, 10);
    if (dim < -RESHARD_NDIM_MAX || dim >= RESHARD_NDIM_MAX)
        return NULL;
    p->dim = (int32_t)dim;
    return end;
}

static const char *read_reduction(const char *at, pattern *p)
{
    static const struct {
        const char *name;
        reshard_reduction reduction;
    } names[] = {{"sum", RESHARD_SUM},
                 {"avg", RESHARD_AVG},
                 {"prod", RESHARD_PROD},
                 {"min", RESHARD_MIN},
                 {"max", RESHARD_MAX}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t length = strlen(names[i].name);
        if (strncmp(at, names[i].name, length) == 0) {
            p->reduction = names[i].reduction;
            return at + length;
        }
    }
    return NULL;
}

/* Reads one placement. Returns where it ends, or NULL. */
static const char *read_pattern(const char *at, pattern *p)
{
    *p = (pattern){.kind = IS_WHOLE, .reduction = RESHARD_SUM};
    char letter = *at;
    at = skip_spaces(at + (letter != 0));
    if (letter == 'R')
        return at;
    p->kind = letter == 'P' ? IS_PARTIAL : IS_CUT;
    if (letter == 'P' && *at != '(')
        return at;
    if ((letter != 'P' && letter != 'S') || *at != '(')
        return NULL;
    at = skip_spaces(at + 1);
    at = letter == 'P' ? read_reduction(at, p) : read_dim(at, p);
    at = at != NULL ? skip_spaces(at) : NULL;
    return at != NULL && *at == ')' ? at + 1 : NULL;
}

static reshard_status read_row(const char *text, const char *what, int32_t count, pattern *patterns)
{
    const char *at = text;
    for (int32_t i = 0; i < count && at != NULL; i++) {
        at = read_pattern(skip_spaces(at), &patterns[i]);
        at = at != NULL ? skip_spaces(at) : NULL;
        if (at != NULL && i + 1 < count)
            at = *at == ',' ? at + 1 : NULL;
    }
    if (at != NULL && *at == 0)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_INVALID,
                   "the rule \"%s\" for %s: write %d placements such as R, P, S(0), S(*), S(i), "
                   "with commas between them",
                   text, what, count);
}

/* What gradients are if the rule does not say. */
static void guess_gradients(const reshard_operation *o, rule *r)
{
    bool whole = true;
    for (int32_t i = 0; i < o->input_count; i++)
        whole = whole && r->inputs[i].kind == IS_WHOLE;
    for (int32_t i = 0; i < o->output_count; i++)
        whole = whole && r->outputs[i].kind == IS_WHOLE;
    for (int32_t i = 0; i < o->input_count; i++) {
        r->gradients[i] = r->inputs[i];
        if (r->inputs[i].kind == IS_PARTIAL)
            r->gradients[i].kind = IS_WHOLE;
        else if (r->inputs[i].kind == IS_WHOLE && !whole)
            r->gradients[i] = (pattern){.kind = IS_PARTIAL, .reduction = RESHARD_SUM};
    }
}

static reshard_status read_rule(const reshard_operation *o, int32_t index, rule *r)
{
    const reshard_operation_rule *text = &o->rules[index];
    if (text->inputs == NULL || text->outputs == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "rule %d has no %s", index,
                       text->inputs == NULL ? "inputs" : "outputs");
    reshard_status status = read_row(text->inputs, "inputs", o->input_count, r->inputs);
    if (status == RESHARD_OK)
        status = read_row(text->outputs, "outputs", o->output_count, r->outputs);
    if (status == RESHARD_OK && text->gradients != NULL)
        return read_row(text->gradients, "gradients", o->input_count, r->gradients);
    if (status == RESHARD_OK)
        guess_gradients(o, r);
    return status;
}

/* ---- fitting --------------------------------------------------------------------------------- */

typedef struct fitting {
    const reshard_operation *operation;
    reshard_tensor *const *inputs;
    const reshard_operation_output *shapes;
    rs_axes now[RESHARD_OPERATION_MAX]; /* of the inputs */
    rs_axes outputs[RESHARD_OPERATION_MAX], gradients[RESHARD_OPERATION_MAX];
} fitting;

/* What a rule's S(*) or S(i) stands for, and how the inputs are cut. */
typedef struct binding {
    int32_t dim;             /* -1: nothing yet */
    reshard_placement first; /* the first cut input's, if there is one */
    bool has_cut;
} binding;

static bool fits_one(const pattern *p, const reshard_placement *now, int32_t ndim, binding *b)
{
    if (now->kind != RESHARD_SHARD)
        return now->kind == RESHARD_PARTIAL
                   ? p->kind == IS_PARTIAL && p->reduction == now->reduction
                   : p->kind == IS_WHOLE;
    if (p->kind != IS_CUT || (b->has_cut && !rs_axes_same_cut(&b->first, now)))
        return false;
    if (!b->has_cut)
        b->first = *now;
    b->has_cut = true;
    if (p->which == DIM_GIVEN)
        return now->dim == (p->dim < 0 ? p->dim + ndim : p->dim);
    if ((p->which == DIM_LEADING && now->dim == ndim - 1) || (b->dim >= 0 && b->dim != now->dim))
        return false;
    b->dim = now->dim;
    return true;
}

static bool fits(const fitting *f, const rule *r, int32_t axis, binding *b)
{
    *b = (binding){.dim = -1};
    for (int32_t i = 0; i < f->operation->input_count; i++) {
        reshard_placement now = rs_axes_at(&f->now[i], axis);
        if (!fits_one(&r->inputs[i], &now, f->inputs[i]->ndim, b))
            return false;
    }
    return true;
}

/* The placement that a pattern asks for. */
static reshard_status place(const pattern *p, const binding *b, int32_t ndim,
                            reshard_placement *out_placement)
{
    if (p->kind != IS_CUT) {
        *out_placement = p->kind == IS_PARTIAL ? (reshard_placement){.kind = RESHARD_PARTIAL,
                                                                     .reduction = p->reduction}
                                               : (reshard_placement){.kind = RESHARD_REPLICATE};
        return RESHARD_OK;
    }
    *out_placement = b->has_cut ? b->first : (reshard_placement){.kind = RESHARD_SHARD};
    out_placement->dim = p->which != DIM_GIVEN ? b->dim : p->dim < 0 ? p->dim + ndim : p->dim;
    if (out_placement->dim < 0 || out_placement->dim >= ndim)
        return rs_fail(RESHARD_ERR_INVALID, "a rule cuts dimension %d of a tensor of %d dimensions",
                       out_placement->dim, ndim);
    return RESHARD_OK;
}

static reshard_status apply(fitting *f, const rule *r, int32_t axis, const binding *b)
{
    reshard_placement p;
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < f->operation->output_count && status == RESHARD_OK; i++) {
        status = place(&r->outputs[i], b, f->shapes[i].ndim, &p);
        if (status == RESHARD_OK)
            rs_axes_set(&f->outputs[i], axis, p);
    }
    for (int32_t i = 0; i < f->operation->input_count && status == RESHARD_OK; i++) {
        status = place(&r->gradients[i], b, f->inputs[i]->ndim, &p);
        if (status == RESHARD_OK)
            rs_axes_set(&f->gradients[i], axis, p);
    }
    return status;
}

static reshard_status refuse(const fitting *f, int32_t axis)
{
    char words[600] = "";
    size_t used = 0;
    for (int32_t i = 0; i < f->operation->input_count && used < sizeof words - 1; i++) {
        int n = snprintf(words + used, sizeof words - used, "%s\"%s\"", i > 0 ? ", " : "",
                         rs_tensor_describe_layout(f->inputs[i]).text);
        used += n > 0 ? (size_t)n : 0;
    }
    return rs_fail(RESHARD_ERR_INVALID, "axis %d: no rule for inputs with %s", axis, words);
}

static reshard_status judge_axis(fitting *f, int32_t axis)
{
    bool whole = true;
    for (int32_t i = 0; i < f->operation->input_count; i++)
        whole = whole && rs_axes_at(&f->now[i], axis).kind == RESHARD_REPLICATE;
    for (int32_t i = 0; i < f->operation->rule_count; i++) {
        rule r;
        binding b;
        reshard_status status = read_rule(f->operation, i, &r);
        if (status != RESHARD_OK)
            return status;
        if (fits(f, &r, axis, &b))
            return apply(f, &r, axis, &b);
    }
    return whole ? RESHARD_OK : refuse(f, axis);
}

/* Where an axis stands among the cuts, or -1. */
static int32_t order_of(const rs_axes *axes, int32_t axis)
{
    for (int32_t i = 0; i < axes->count; i++) {
        if (axes->cuts[i].axis == axis && axes->cuts[i].placement.kind == RESHARD_SHARD)
            return i;
    }
    return -1;
}

/* Inputs that several axes cut along one dim must be cut in one order. */
static reshard_status check_order(const fitting *f, int32_t i, int32_t k)
{
    const rs_axes *a = &f->now[i], *b = &f->now[k];
    for (int32_t m = 0; m < a->count; m++) {
        for (int32_t n = m + 1; n < a->count; n++) {
            const reshard_cut *first = &a->cuts[m], *second = &a->cuts[n];
            int32_t x = order_of(b, first->axis), y = order_of(b, second->axis);
            bool nested = first->placement.kind == RESHARD_SHARD &&
                          second->placement.kind == RESHARD_SHARD &&
                          first->placement.dim == second->placement.dim;
            if (nested && x > y && y >= 0)
                return rs_fail(RESHARD_ERR_INVALID,
                               "input %d with \"%s\" and input %d with \"%s\" are cut in different "
                               "orders",
                               i, rs_tensor_describe_layout(f->inputs[i]).text, k,
                               rs_tensor_describe_layout(f->inputs[k]).text);
        }
    }
    return RESHARD_OK;
}

static reshard_status read_inputs(fitting *f)
{
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < f->operation->input_count && status == RESHARD_OK; i++) {
        status = rs_axes_check_mesh(f->inputs[0], f->inputs[i]);
        if (status == RESHARD_OK)
            status = rs_axes_of(f->inputs[i], &f->now[i]);
        for (int32_t k = 0; k < i && status == RESHARD_OK; k++)
            status = check_order(f, i, k);
        f->gradients[i] = f->now[i];
    }
    for (int32_t k = 0; k < f->operation->output_count; k++)
        f->outputs[k].mesh = f->now[0].mesh;
    return status;
}

/* Judges all axes: those that cut an input in the order of its cuts, then the others. */
static reshard_status judge(fitting *f)
{
    uint64_t done = 0;
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < f->operation->input_count; i++) {
        for (int32_t k = 0; k < f->now[i].count && status == RESHARD_OK; k++) {
            int32_t axis = f->now[i].cuts[k].axis;
            if ((done >> axis & 1) == 0)
                status = judge_axis(f, axis);
            done |= (uint64_t)1 << axis;
        }
    }
    for (int32_t axis = 0; status == RESHARD_OK && axis < reshard_mesh_axis_count(f->now[0].mesh);
         axis++) {
        bool single = reshard_mesh_axis_size(f->now[0].mesh, axis) == 1;
        if ((done >> axis & 1) == 0 && !single)
            status = judge_axis(f, axis);
    }
    return status;
}

/* ---- layouts --------------------------------------------------------------------------------- */

static reshard_status find_by_rules(fitting *f, rs_own_layouts *out)
{
    reshard_status status = read_inputs(f);
    if (status == RESHARD_OK)
        status = judge(f);
    for (int32_t i = 0; i < f->operation->output_count && status == RESHARD_OK; i++)
        status =
            rs_axes_layout(&f->outputs[i], f->shapes[i].ndim, f->shapes[i].shape, &out->outputs[i]);
    for (int32_t i = 0; i < f->operation->input_count && status == RESHARD_OK; i++)
        status = rs_axes_layout(&f->gradients[i], f->inputs[i]->ndim, f->inputs[i]->shape,
                                &out->gradients[i]);
    return status;
}

/* Without rules, everything has the layout of input 0. */
static reshard_status find_alike(const fitting *f, rs_own_layouts *out)
{
    const reshard_tensor *first = f->inputs[0];
    reshard_layout *layout = first->distribution->layout;
    if (layout->partial)
        return rs_refuse_partial(first);
    for (int32_t i = 1; i < f->operation->input_count; i++) {
        if (!rs_distributed_same(f->inputs[i], first))
            return rs_fail(RESHARD_ERR_INVALID,
                           "input 0 has the layout \"%s\" and input %d \"%s\", and the operation "
                           "has no rules",
                           rs_tensor_describe_layout(first).text, i,
                           rs_tensor_describe_layout(f->inputs[i]).text);
    }
    for (int32_t i = 0; i < f->operation->output_count; i++) {
        if (f->shapes[i].ndim != first->ndim ||
            memcmp(f->shapes[i].shape, first->shape, (size_t)first->ndim * sizeof *first->shape) !=
                0)
            return rs_fail(
                RESHARD_ERR_INVALID,
                "output %d has another shape than input 0, which is distributed, and the "
                "operation has no rules",
                i);
        out->outputs[i] = reshard_layout_retain(layout);
    }
    for (int32_t i = 0; i < f->operation->input_count; i++)
        out->gradients[i] = reshard_layout_retain(layout);
    return RESHARD_OK;
}

reshard_status rs_own_layouts_find(const reshard_operation *operation,
                                   reshard_tensor *const *inputs,
                                   const reshard_operation_output *shapes,
                                   rs_own_layouts *out_layouts)
{
    fitting f = {.operation = operation, .inputs = inputs, .shapes = shapes};
    reshard_status status = rs_check_together(operation->input_count, inputs);
    if (status != RESHARD_OK)
        return status;
    return operation->rule_count > 0 ? find_by_rules(&f, out_layouts) : find_alike(&f, out_layouts);
}

void rs_own_layouts_release(rs_own_layouts *layouts)
{
    for (int32_t i = 0; i < RESHARD_OPERATION_MAX; i++) {
        reshard_layout_release(layouts->outputs[i]);
        reshard_layout_release(layouts->gradients[i]);
        layouts->outputs[i] = layouts->gradients[i] = NULL;
    }
}
