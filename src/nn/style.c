/* SPDX-License-Identifier: Apache-2.0 */
/*
 * style.c - styles of a sharding plan: finds the modules that patterns name and the entries that a
 * style stands for there, and has the hooks that move one axis of inputs and outputs. The ranks
 * carry out and compare these entries (shard.c), so that a style is nothing more than its entries.
 */
#include <reshard/style.h>

#include "base/arena.h"
#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "checkpoint/rules/glob.h"
#include "layout/layout.h"
#include "nn/layers.h"
#include "nn/module.h"
#include "nn/sharding.h"
#include "spec/spec.h"
#include "tensor/core/distribution.h"
#include "tensor/core/scope.h"
#include "tensor/dist/axes.h"

#include <reshard/group.h>

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 1024, PARTS_MAX = 64 };

/* ---- adding ---------------------------------------------------------------------------------- */

/* Makes a spec in which one axis has this placement. */
static reshard_status make_spec(reshard_context *context, reshard_mesh *mesh, int32_t axis,
                                const char *placement, reshard_spec **out_spec)
{
    char text[128];
    int length = snprintf(text, sizeof text, "%s@%d", placement, axis);
    if (length < 0 || (size_t)length >= sizeof text || strchr(placement, '@') != NULL ||
        strchr(placement, ':') != NULL)
        return rs_fail(RESHARD_ERR_SYNTAX, "\"%.80s\" is not the placement of one axis", placement);
    reshard_status status = rs_cut_parse(context, mesh, text, out_spec);
    return rs_fail_within(status, "the placement \"%s\"", placement);
}

static reshard_status check_placement(reshard_context *context, reshard_mesh *mesh, int32_t axis,
                                      const char *placement)
{
    reshard_spec *spec = NULL;
    if (placement == NULL)
        return RESHARD_OK;
    reshard_status status = make_spec(context, mesh, axis, placement, &spec);
    reshard_spec_release(spec);
    return status;
}

/* A pattern split into the parts of a path. */
typedef struct pattern {
    rs_arena arena;
    int32_t count;
    rs_glob parts[PARTS_MAX];
} pattern;

static reshard_status read_pattern(reshard_context *context, const char *text, pattern *out)
{
    reshard_status status = RESHARD_OK;
    int depth = 0;
    size_t start = 0;
    rs_arena_init(&out->arena, context);
    out->count = 0;
    for (size_t i = 0; text[0] != 0 && status == RESHARD_OK; i++) {
        depth += (text[i] == '{') - (text[i] == '}');
        if (text[i] != 0 && (text[i] != '.' || depth > 0))
            continue;
        if (out->count == PARTS_MAX)
            status = rs_fail(RESHARD_ERR_RANGE, "it has more than %d parts", PARTS_MAX);
        else
            status =
                rs_glob_compile(&out->arena, text + start, i - start, &out->parts[out->count++]);
        start = i + 1;
        if (text[i] == 0)
            break;
    }
    return rs_fail_within(status, "the pattern \"%.200s\"", text);
}

static reshard_status check_style(reshard_sharding_plan *plan, const char *text, reshard_mesh *mesh,
                                  int32_t axis, const reshard_style *style)
{
    pattern p;
    if (text == NULL || mesh == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the %s is NULL", text == NULL ? "pattern" : "mesh");
    if ((int)style->kind < 0 || style->kind > RESHARD_STYLE_MODULE)
        return rs_fail(RESHARD_ERR_INVALID, "unknown kind %d", (int)style->kind);
    if (axis < 0 || axis >= mesh->axis_count)
        return rs_fail(RESHARD_ERR_RANGE, "axis %d of a mesh with %d", axis, mesh->axis_count);
    if (style->unit < 0)
        return rs_fail(RESHARD_ERR_RANGE, "a unit of %lld", (long long)style->unit);
    reshard_status status = check_placement(plan->context, mesh, axis, style->input);
    if (status == RESHARD_OK)
        status = check_placement(plan->context, mesh, axis, style->output);
    if (status == RESHARD_OK)
        status = check_placement(plan->context, mesh, axis, style->local_input);
    if (status != RESHARD_OK)
        return status;
    status = read_pattern(plan->context, text, &p);
    rs_arena_release(&p.arena);
    return status;
}

reshard_status reshard_sharding_plan_add_style(reshard_sharding_plan *plan, const char *text,
                                               reshard_mesh *mesh, int32_t axis,
                                               const reshard_style *style)
{
    rs_sharding_entry entry = {.kind = RS_SHARDING_STYLE, .axis = axis, .mesh = mesh};
    if (style == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "style: the style is NULL");
    reshard_status status = rs_options_read("style", style, &entry.style, sizeof entry.style);
    if (status == RESHARD_OK)
        status = check_style(plan, text, mesh, axis, &entry.style);
    if (status == RESHARD_OK)
        status = rs_sharding_add(plan, &entry, text);
    return rs_fail_within(status, "style");
}

/* ---- entries --------------------------------------------------------------------------------- */

typedef struct expansion {
    reshard_module *root;
    reshard_sharding_plan *plan;    /* the result */
    const rs_sharding_entry *entry; /* the style that is being carried out */
    const pattern *pattern;
    int64_t found;
} expansion;

static reshard_status join_path(const char *module, const char *name, char out_path[PATH_BYTES])
{
    int length = snprintf(out_path, PATH_BYTES, "%s%s%s", module, module[0] != 0 ? "." : "", name);
    if (length < 0 || length >= PATH_BYTES)
        return rs_fail(RESHARD_ERR_RANGE, "the path of \"%s\" is longer than %d bytes", name,
                       PATH_BYTES - 1);
    return RESHARD_OK;
}

/* Whether the plan cuts this tensor, under another name, in the same way. */
static bool is_named(const expansion *e, const reshard_tensor *tensor, const reshard_spec *spec)
{
    for (int64_t i = 0; i < e->plan->count; i++) {
        const rs_sharding_entry *other = &e->plan->entries[i];
        reshard_tensor *named = NULL;
        char texts[2][256];
        size_t length = 0;
        if (other->kind == RS_SHARDING_PARAMETER &&
            rs_module_find_parameter(e->root, other->name, &named) == RESHARD_OK &&
            named == tensor &&
            reshard_spec_text(spec, texts[0], sizeof texts[0], &length) == RESHARD_OK &&
            reshard_spec_text(other->spec, texts[1], sizeof texts[1], &length) == RESHARD_OK &&
            strcmp(texts[0], texts[1]) == 0)
            return true;
    }
    return false;
}

/* Adds a parameter that is cut along dim, or replicated if that is negative. */
static reshard_status add_parameter(expansion *e, const char *path, const char *name, int32_t dim,
                                    const reshard_tensor *tensor)
{
    char whole[PATH_BYTES];
    rs_sharding_entry made = {.kind = RS_SHARDING_PARAMETER};
    reshard_cut cut = {.axis = e->entry->axis,
                       .placement = {.kind = RESHARD_SHARD,
                                     .dim = dim,
                                     .unit = e->entry->style.unit > 1 ? e->entry->style.unit : 0}};
    reshard_status status = join_path(path, name, whole);
    if (status == RESHARD_OK)
        status = reshard_spec_create(e->plan->context, e->entry->mesh, dim >= 0, &cut, &made.spec);
    if (status == RESHARD_OK && !is_named(e, tensor, made.spec))
        status = rs_sharding_add(e->plan, &made, whole);
    reshard_spec_release(made.spec);
    return status;
}

/* Parameters of linear, embedding and embedding_bag, which are cut. */
static reshard_status add_cut(expansion *e, const reshard_module *module, const char *path,
                              bool *out_embedding)
{
    bool columns = e->entry->style.kind == RESHARD_STYLE_COLUMNS;
    bool embedding = strcmp(module->kind_name, "embedding") == 0 ||
                     strcmp(module->kind_name, "embedding_bag") == 0;
    *out_embedding = embedding;
    if (!embedding && strcmp(module->kind_name, "linear") != 0)
        return rs_fail(RESHARD_ERR_INVALID,
                       "\"%s\" is a module of kind %s; linear, embedding and embedding_bag have %s",
                       path, module->kind_name, columns ? "columns" : "rows");
    reshard_tensor *weight = reshard_module_tensor(module, "weight");
    reshard_tensor *bias = reshard_module_tensor(module, "bias");
    reshard_status status = RESHARD_OK;
    if (weight != NULL)
        status = add_parameter(e, path, "weight", columns == embedding, weight);
    if (bias != NULL && status == RESHARD_OK)
        status = add_parameter(e, path, "bias", columns ? 0 : -1, bias);
    return status;
}

/* All parameters of a module and its descendants, replicated. */
static reshard_status add_whole(expansion *e, const reshard_module *module, const char *path)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < module->holding_count && status == RESHARD_OK; i++) {
        const rs_holding *holding = &module->holdings[i];
        char below[PATH_BYTES];
        if (holding->kind == RS_HOLDING_PARAMETER && holding->tensor != NULL)
            status = add_parameter(e, path, holding->name, -1, holding->tensor);
        if (holding->kind != RS_HOLDING_CHILD)
            continue;
        status = join_path(path, holding->name, below);
        if (status == RESHARD_OK)
            status = add_whole(e, holding->child, below);
    }
    return status;
}

static reshard_status add_hook(expansion *e, rs_sharding_kind kind, const char *path,
                               const char *placement, const char *local)
{
    rs_sharding_entry made = {.kind = kind, .one_axis = true, .axis = e->entry->axis};
    reshard_status status = RESHARD_OK;
    if (placement != NULL)
        status = make_spec(e->plan->context, e->entry->mesh, made.axis, placement, &made.spec);
    if (status == RESHARD_OK && local != NULL)
        status = make_spec(e->plan->context, e->entry->mesh, made.axis, local, &made.local);
    if (status == RESHARD_OK)
        status = rs_sharding_add(e->plan, &made, path);
    reshard_spec_release(made.spec);
    reshard_spec_release(made.local);
    return status;
}

/* Adds what the style stands for in one module. */
static reshard_status add_module(expansion *e, const reshard_module *module, const char *path)
{
    const reshard_style *style = &e->entry->style;
    const char *input = style->input, *output = style->output;
    bool embedding = false;
    reshard_status status = RESHARD_OK;
    e->found++;
    if (style->kind == RESHARD_STYLE_COLUMNS || style->kind == RESHARD_STYLE_ROWS)
        status = add_cut(e, module, path, &embedding);
    else if (style->kind == RESHARD_STYLE_SEQUENCE)
        status = add_whole(e, module, path);
    if (input == NULL && style->kind == RESHARD_STYLE_SEQUENCE)
        input = "S(1)";
    else if (input == NULL && style->kind != RESHARD_STYLE_MODULE)
        input = style->kind == RESHARD_STYLE_ROWS && !embedding ? "S(-1)" : "R";
    if (output == NULL && style->kind == RESHARD_STYLE_ROWS)
        output = "R";
    if (status == RESHARD_OK && (input != NULL || style->local_input != NULL))
        status = add_hook(e, RS_SHARDING_INPUT, path, input, style->local_input);
    if (status == RESHARD_OK && output != NULL)
        status = add_hook(e, RS_SHARDING_OUTPUT, path, output, NULL);
    if (status == RESHARD_OK && style->local_output)
        status = rs_sharding_add(e->plan, &(rs_sharding_entry){.kind = RS_SHARDING_LOCAL}, path);
    return status;
}

/* Walks through the modules that fit the pattern from part `part` on. */
static reshard_status walk(expansion *e, const reshard_module *module, const char *path,
                           int32_t part)
{
    if (part == e->pattern->count)
        return add_module(e, module, path);
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK; i++) {
        const char *name = NULL;
        const reshard_module *child = reshard_module_child(module, i, &name);
        if (child == NULL)
            break;
        char below[PATH_BYTES];
        bool fits = false;
        status = rs_glob_try(e->plan->context, &e->pattern->parts[part], name, strlen(name), NULL,
                             &fits);
        if (status == RESHARD_OK && fits)
            status = join_path(path, name, below);
        if (status == RESHARD_OK && fits)
            status = walk(e, child, below, part + 1);
    }
    return status;
}

static reshard_status expand_style(expansion *e)
{
    pattern p;
    reshard_status status = read_pattern(e->plan->context, e->entry->name, &p);
    e->pattern = &p;
    e->found = 0;
    if (status == RESHARD_OK)
        status = walk(e, e->root, "", 0);
    if (status == RESHARD_OK && e->found == 0)
        status = rs_fail(RESHARD_ERR_NOT_FOUND, "no module has a path like \"%s\"", e->entry->name);
    rs_arena_release(&p.arena);
    return rs_fail_within(status, "style");
}

reshard_status rs_sharding_expand(const reshard_sharding_plan *plan, reshard_module *module,
                                  reshard_sharding_plan **out_plan)
{
    expansion e = {.root = module};
    reshard_status status = reshard_sharding_plan_create(plan->context, &e.plan);
    for (int64_t i = 0; i < plan->count && status == RESHARD_OK; i++) {
        e.entry = &plan->entries[i];
        status = e.entry->kind == RS_SHARDING_STYLE
                     ? expand_style(&e)
                     : rs_sharding_add(e.plan, e.entry, e.entry->name);
    }
    if (status == RESHARD_OK)
        *out_plan = e.plan;
    else
        reshard_sharding_plan_destroy(e.plan);
    return status;
}

/* ---- hooks ----------------------------------------------------------------------------------- */

/* What a hook on an input needs. */
typedef struct moving {
    reshard_context *context;
    reshard_spec *spec, *local; /* may be NULL */
    int32_t axis;
    reshard_group *group;
} moving;

/* Changes the placement of one axis, and leaves the others alone. A tensor over another mesh, or
 * whose layout is not made of cuts, gets the spec as it is. */
static reshard_tensor *move_axis(reshard_tensor *tensor, const moving *m)
{
    rs_axes axes, now;
    reshard_layout *layout = NULL;
    const reshard_mesh *mesh = m->spec->mesh;
    bool cut = m->spec->cut_count > 0;
    if (tensor->ndim == 0 && rs_spec_needs_dims(m->spec))
        return tensor; /* a scalar beside other tensors, such as a loss */
    if (rs_axes_of(tensor, &now) != RESHARD_OK || !rs_mesh_same(mesh, now.mesh))
        return reshard_tensor_redistribute(tensor, m->spec, NULL);
    reshard_placement p = {.kind = RESHARD_REPLICATE};
    if (cut && mesh->sizes[m->axis] > 1) /* one rank has everything anyway */
        p = m->spec->cuts[0].placement;
    if (p.kind == RESHARD_SHARD && p.dim < 0 && p.dim != RESHARD_DIM_FLAT)
        p.dim += tensor->ndim;
    axes = now;
    rs_axes_set(&axes, m->axis, p);
    bool partial = tensor->distribution->layout->partial; /* perhaps over an axis of one rank */
    if (rs_axes_equal(&axes, &now) && (p.kind == RESHARD_PARTIAL || !partial))
        return tensor;
    reshard_status status = rs_axes_layout(&axes, tensor->ndim, tensor->shape, &layout);
    if (status != RESHARD_OK)
        return rs_scope_fail(status);
    reshard_tensor *moved = reshard_tensor_redistribute(tensor, layout->spec, NULL);
    reshard_layout_release(layout);
    return moved;
}

static reshard_tensor *change(reshard_tensor *tensor, const void *user)
{
    const moving *m = user;
    if (tensor->distribution == NULL && m->local != NULL)
        tensor = reshard_tensor_from_local(tensor, m->group, m->local);
    if (tensor == NULL || tensor->distribution == NULL || m->spec == NULL)
        return tensor;
    return move_axis(tensor, m);
}

static reshard_status change_input(void *user, reshard_module *module, reshard_value *input)
{
    (void)module;
    return rs_value_change(input, change, user);
}

static reshard_status change_output(void *user, reshard_module *module, reshard_value input,
                                    reshard_value *output)
{
    (void)module;
    (void)input;
    return rs_value_change(output, change, user);
}

static void forget_moving(void *user)
{
    moving *m = user;
    reshard_spec_release(m->spec);
    reshard_spec_release(m->local);
    reshard_group_release(m->group);
    rs_user_free(m);
}

static reshard_status add_moving(reshard_module *module, const rs_sharding_entry *entry,
                                 reshard_group *group, rs_hook_entry *hook, reshard_hook **out_hook)
{
    moving *m = rs_user_allocate(module->context, sizeof *m);
    if (m == NULL)
        return rs_allocation_status();
    m->spec = reshard_spec_retain(entry->spec);
    m->local = reshard_spec_retain(entry->local);
    m->axis = entry->axis;
    m->group = reshard_group_retain(group);
    hook->user = m;
    hook->forget = forget_moving;
    reshard_status status = rs_hook_add(module, hook, false, out_hook);
    if (status != RESHARD_OK)
        forget_moving(m);
    return status;
}

reshard_status rs_sharding_hook_input(reshard_module *module, const rs_sharding_entry *entry,
                                      reshard_group *group, reshard_hook **out_hook)
{
    rs_hook_entry hook = {.kind = RS_HOOK_PRE, .pre = change_input};
    return add_moving(module, entry, group, &hook, out_hook);
}

reshard_status rs_sharding_hook_output(reshard_module *module, const rs_sharding_entry *entry,
                                       reshard_hook **out_hook)
{
    rs_hook_entry hook = {.kind = RS_HOOK_POST, .post = change_output};
    if (!entry->one_axis)
        return reshard_module_reshard_output(module, entry->spec, out_hook);
    return add_moving(module, entry, NULL, &hook, out_hook);
}

/* ---- whole modules --------------------------------------------------------------------------- */

/* What a planner is given. */
typedef struct styles {
    reshard_mesh *mesh;
    int32_t axis, count;
    const reshard_styled *items;
} styles;

static reshard_status build(void *user, reshard_module *module, reshard_sharding_plan *plan)
{
    const styles *s = user;
    reshard_status status = RESHARD_OK;
    (void)module;
    for (int32_t i = 0; i < s->count && status == RESHARD_OK; i++)
        status = reshard_sharding_plan_add_style(plan, s->items[i].pattern, s->mesh, s->axis,
                                                 s->items[i].style);
    return status;
}

reshard_status reshard_module_parallelize(reshard_module *module, reshard_group *group,
                                          reshard_mesh *mesh, int32_t axis, int32_t count,
                                          const reshard_styled *items, reshard_hook **out_hook)
{
    styles s = {mesh, axis, count, items};
    reshard_sharding_planner planner = {build, &s};
    return rs_fail_within(reshard_module_shard_planned(module, &planner, 0, group, out_hook),
                          "parallelize");
}

reshard_status rs_sharding_add_gpt_sequence(reshard_sharding_plan *plan, reshard_module *gpt,
                                            reshard_mesh *mesh, int32_t axis)
{
    reshard_module *attention = NULL;
    int64_t head = 1;
    bool deep = reshard_module_find(gpt, "h.0.attn", &attention) == RESHARD_OK;
    reshard_status status =
        deep ? rs_fail_within(rs_attention_head(attention, &head), "h.0.attn") : RESHARD_OK;
    const reshard_style heads = {.size = sizeof heads, .kind = RESHARD_STYLE_COLUMNS, .unit = head};
    const reshard_style head_rows = {
        .size = sizeof head_rows, .kind = RESHARD_STYLE_ROWS, .output = "S(1)", .unit = head};
    const reshard_style columns = {.size = sizeof columns, .kind = RESHARD_STYLE_COLUMNS};
    const reshard_style rows = {.size = sizeof rows, .kind = RESHARD_STYLE_ROWS, .output = "S(1)"};
    const reshard_style norm = {.size = sizeof norm, .kind = RESHARD_STYLE_SEQUENCE};
    const reshard_style gather = {
        .size = sizeof gather, .kind = RESHARD_STYLE_MODULE, .input = "R"};
    const reshard_styled items[] = {
        {"wte", &rows},
        {"h.*.ln1", &norm},
        {"h.*.attn", &gather},
        {"h.*.attn.{q,k,v}", &heads},
        {"h.*.attn.o", &head_rows},
        {"h.*.ln2", &norm},
        {"h.*.mlp", &gather},
        {"h.*.mlp.fc1", &columns},
        {"h.*.mlp.fc2", &rows},
        {"ln", &norm},
        {"head", &columns},
    };
    for (size_t i = 0; i < sizeof items / sizeof *items && status == RESHARD_OK; i++) {
        if (deep || items[i].pattern[0] != 'h' || items[i].pattern[1] != '.')
            status =
                reshard_sharding_plan_add_style(plan, items[i].pattern, mesh, axis, items[i].style);
    }
    return status;
}
