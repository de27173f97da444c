/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.c - layout rules of operations, ready-made or a caller's own: rows of text
 * (own_operation.h) that are applied axis by axis. Cuts of outputs and gradients keep the order
 * that they have in the inputs.
 */
#include "base/error.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "tensor/dist/layout_rules.h"

#include <assert.h>
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
    pattern inputs[RS_LAYOUT_RULES_MOST], outputs[RS_LAYOUT_RULES_MOST];
    pattern gradients[RS_LAYOUT_RULES_MOST];
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
static void guess_gradients(const rs_fit *f, rule *r)
{
    bool whole = true;
    for (int32_t i = 0; i < f->input_count; i++)
        whole = whole && r->inputs[i].kind == IS_WHOLE;
    for (int32_t i = 0; i < f->output_count; i++)
        whole = whole && r->outputs[i].kind == IS_WHOLE;
    for (int32_t i = 0; i < f->input_count; i++) {
        r->gradients[i] = r->inputs[i];
        if (r->inputs[i].kind == IS_PARTIAL)
            r->gradients[i].kind = IS_WHOLE;
        else if (r->inputs[i].kind == IS_WHOLE && !whole)
            r->gradients[i] = (pattern){.kind = IS_PARTIAL, .reduction = RESHARD_SUM};
    }
}

static reshard_status read_rule(const rs_fit *f, int32_t index, rule *r)
{
    const reshard_operation_rule *text = &f->rules->rows[index];
    if (text->inputs == NULL || text->outputs == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "rule %d has no %s", index,
                       text->inputs == NULL ? "inputs" : "outputs");
    reshard_status status = read_row(text->inputs, "inputs", f->input_count, r->inputs);
    if (status == RESHARD_OK)
        status = read_row(text->outputs, "outputs", f->output_count, r->outputs);
    if (status == RESHARD_OK && text->gradients != NULL)
        return read_row(text->gradients, "gradients", f->input_count, r->gradients);
    if (status == RESHARD_OK)
        guess_gradients(f, r);
    return status;
}

/* ---- fitting --------------------------------------------------------------------------------- */

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

static bool fits(const rs_fit *f, const rule *r, int32_t axis, binding *b)
{
    *b = (binding){.dim = -1};
    for (int32_t i = 0; i < f->input_count; i++) {
        reshard_placement now = rs_axes_at(&f->now[i], axis);
        if (f->inputs[i] != NULL && !fits_one(&r->inputs[i], &now, f->inputs[i]->ndim, b))
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

static reshard_status apply(rs_fit *f, const rule *r, int32_t axis, const binding *b)
{
    reshard_placement p;
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < f->output_count && status == RESHARD_OK; i++) {
        status = place(&r->outputs[i], b, f->output_ndims[i], &p);
        if (status == RESHARD_OK)
            rs_axes_set(&f->outputs[i], axis, p);
    }
    for (int32_t i = 0; i < f->input_count && status == RESHARD_OK; i++) {
        if (f->inputs[i] == NULL)
            continue;
        status = place(&r->gradients[i], b, f->inputs[i]->ndim, &p);
        if (status == RESHARD_OK)
            rs_axes_set(&f->gradients[i], axis, p);
    }
    return status;
}

static reshard_status refuse(const rs_fit *f, int32_t axis)
{
    char words[600] = "";
    size_t used = 0;
    if (f->rules->refuse != NULL)
        return f->rules->refuse(f->inputs, axis);
    for (int32_t i = 0; i < f->input_count && used < sizeof words - 1; i++) {
        int n = snprintf(words + used, sizeof words - used, "%s\"%s\"", i > 0 ? ", " : "",
                         rs_tensor_describe_layout(f->inputs[i]).text);
        used += n > 0 ? (size_t)n : 0;
    }
    return rs_fail(RESHARD_ERR_INVALID, "axis %d: no rule for inputs with %s", axis, words);
}

static reshard_status judge_axis(rs_fit *f, int32_t axis)
{
    bool whole = true;
    for (int32_t i = 0; i < f->input_count; i++)
        whole = whole && rs_axes_at(&f->now[i], axis).kind == RESHARD_REPLICATE;
    for (int32_t i = 0; i < f->rules->count; i++) {
        rule r;
        binding b;
        reshard_status status = read_rule(f, i, &r);
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
static reshard_status check_order(const rs_fit *f, int32_t i, int32_t k)
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

static reshard_status read_inputs(rs_fit *f)
{
    reshard_status status = rs_check_together(f->input_count, f->inputs);
    for (int32_t i = 0; i < f->input_count && status == RESHARD_OK; i++) {
        f->now[i] = (rs_axes){.mesh = NULL};
        if (f->inputs[i] == NULL)
            continue;
        status = rs_axes_check_mesh(f->inputs[0], f->inputs[i]);
        if (status == RESHARD_OK)
            status = rs_axes_of(f->inputs[i], &f->now[i]);
        for (int32_t k = 0; k < i && status == RESHARD_OK; k++)
            status = check_order(f, i, k);
        f->gradients[i] = f->now[i];
    }
    for (int32_t k = 0; k < f->output_count; k++)
        f->outputs[k] = (rs_axes){.mesh = f->now[0].mesh};
    return status;
}

/* Judges all axes: those that cut an input in the order of its cuts, then the others. */
reshard_status rs_layout_rules_judge(rs_fit *f)
{
    assert(f->inputs[0] != NULL && f->input_count <= RS_LAYOUT_RULES_MOST);
    uint64_t done = 0;
    reshard_status status = read_inputs(f);
    for (int32_t i = 0; i < f->input_count && status == RESHARD_OK; i++) {
        for (int32_t k = 0; k < f->now[i].count && status == RESHARD_OK; k++) {
            int32_t axis = f->now[i].cuts[k].axis;
            if ((done >> axis & 1) == 0)
                status = judge_axis(f, axis);
            done |= (uint64_t)1 << axis;
        }
    }
    for (int32_t axis = 0; status == RESHARD_OK && axis < f->now[0].mesh->axis_count; axis++) {
        bool single = f->now[0].mesh->sizes[axis] == 1;
        if ((done >> axis & 1) == 0 && !single)
            status = judge_axis(f, axis);
    }
    return status;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Makes a layout, or retains that of an input of the same shape and cuts. */
static reshard_status make_layout(const rs_fit *f, const rs_axes *axes, int32_t ndim,
                                  const int64_t *shape, reshard_layout **out_layout)
{
    for (int32_t i = 0; i < f->input_count; i++) {
        const reshard_tensor *input = f->inputs[i];
        if (input == NULL || input->ndim != ndim || !rs_axes_equal(axes, &f->now[i]) ||
            (ndim > 0 && memcmp(input->shape, shape, (size_t)ndim * sizeof *shape) != 0))
            continue;
        *out_layout = reshard_layout_retain(input->distribution->layout);
        return RESHARD_OK;
    }
    return rs_axes_layout(axes, ndim, shape, out_layout);
}

reshard_status rs_layout_rules_output(const rs_fit *f, int32_t index, const int64_t *shape,
                                      reshard_layout **out_layout)
{
    return make_layout(f, &f->outputs[index], f->output_ndims[index], shape, out_layout);
}

reshard_status rs_layout_rules_gradient(const rs_fit *f, int32_t index, reshard_layout **out_layout)
{
    const reshard_tensor *input = f->inputs[index];
    return make_layout(f, &f->gradients[index], input->ndim, input->shape, out_layout);
}

reshard_status rs_spread_prepare(rs_fit *f, const rs_layout_rules *rules, int32_t ndim,
                                 const int64_t *shape, rs_spread *spread)
{
    f->rules = rules;
    f->input_count = spread->input_count;
    f->inputs = spread->inputs;
    f->output_count = 1;
    f->output_ndims[0] = ndim;
    reshard_status status = rs_layout_rules_judge(f);
    if (status == RESHARD_OK)
        status = rs_layout_rules_output(f, 0, shape, &spread->output_layout);
    for (int32_t i = 0; i < f->input_count && status == RESHARD_OK; i++) {
        if (f->inputs[i] != NULL && rs_dtype_is_float(rs_dtype_part(f->inputs[i]->dtype)))
            status = rs_layout_rules_gradient(f, i, &spread->gradient_layouts[i]);
    }
    return status;
}

reshard_tensor *rs_spread_by(const rs_layout_rules *rules, int32_t ndim, const int64_t *shape,
                             rs_spread *spread)
{
    rs_fit fit;
    return rs_spread_run(spread, rs_spread_prepare(&fit, rules, ndim, shape, spread));
}

/* ---- following ------------------------------------------------------------------------------- */

/* Finds the first rule that has this placement of one input. */
static bool find_rule(const rs_fit *f, int32_t input, const reshard_placement *now, rule *r,
                      binding *b)
{
    for (int32_t i = 0; i < f->rules->count; i++) {
        reshard_status status = read_rule(f, i, r);
        assert(status == RESHARD_OK); /* ready-made rules can be read */
        *b = (binding){.dim = -1};
        if (status == RESHARD_OK && fits_one(&r->inputs[input], now, f->inputs[input]->ndim, b))
            return true;
    }
    return false;
}

void rs_layout_rules_follow(const rs_layout_rules *rules, int32_t count,
                            reshard_tensor *const *inputs, const rs_axes *now, int32_t first,
                            int32_t second, rs_axes *wanted)
{
    const rs_fit f = {.rules = rules, .input_count = count, .inputs = inputs, .output_count = 1};
    uint64_t done = 0;
    for (int32_t leading = first, turn = 0; turn < 2 && leading >= 0; leading = second, turn++) {
        for (int32_t k = 0; k < now[leading].count; k++) {
            const reshard_cut *cut = &now[leading].cuts[k];
            reshard_placement p;
            rule r;
            binding b;
            if ((done >> cut->axis & 1) != 0 || !find_rule(&f, leading, &cut->placement, &r, &b))
                continue;
            done |= (uint64_t)1 << cut->axis;
            for (int32_t i = 0; i < count; i++) {
                if (inputs[i] != NULL && place(&r.inputs[i], &b, inputs[i]->ndim, &p) == RESHARD_OK)
                    rs_axes_set(&wanted[i], cut->axis, p);
            }
        }
    }
}
