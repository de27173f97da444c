/* SPDX-License-Identifier: Apache-2.0 */
/* sharding_plan.c - sharding plans as lists of entries, and the plan that makes a GPT tensor
 * parallel. */
#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "nn/layers.h"
#include "nn/module.h"
#include "nn/sharding.h"
#include "text/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

reshard_status reshard_sharding_plan_create(reshard_context *context,
                                            reshard_sharding_plan **out_plan)
{
    reshard_sharding_plan *plan = rs_allocate_zeroed(context, sizeof *plan);
    if (plan == NULL)
        return rs_allocation_status();
    plan->context = context;
    *out_plan = plan;
    return RESHARD_OK;
}

static void release_style(reshard_context *context, const reshard_style *style)
{
    rs_text_free(context, (char *)style->input);
    rs_text_free(context, (char *)style->output);
    rs_text_free(context, (char *)style->local_input);
}

void reshard_sharding_plan_destroy(reshard_sharding_plan *plan)
{
    if (plan == NULL)
        return;
    for (int64_t i = 0; i < plan->count; i++) {
        rs_text_free(plan->context, plan->entries[i].name);
        reshard_spec_release(plan->entries[i].spec);
        reshard_spec_release(plan->entries[i].local);
        reshard_mesh_release(plan->entries[i].mesh);
        release_style(plan->context, &plan->entries[i].style);
    }
    rs_release(plan->context, plan->entries);
    rs_release(plan->context, plan);
}

/* Copies a text that may be NULL. */
static bool copy_text(reshard_context *context, const char **text)
{
    if (*text == NULL)
        return true;
    *text = rs_text_copy(context, *text);
    return *text != NULL;
}

static bool copy_style(reshard_context *context, reshard_style *style)
{
    const char *texts[] = {style->input, style->output, style->local_input};
    bool good = true;
    for (int i = 0; i < 3; i++) {
        texts[i] = good ? texts[i] : NULL;
        good = copy_text(context, &texts[i]) && good;
    }
    style->input = texts[0];
    style->output = texts[1];
    style->local_input = texts[2];
    return good;
}

reshard_status rs_sharding_add(reshard_sharding_plan *plan, const rs_sharding_entry *given,
                               const char *name)
{
    if (name == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "sharding plan: a name is NULL");
    if (plan->count == plan->capacity) {
        reshard_status status = rs_grow(plan->context, &plan->entries, &plan->capacity,
                                        plan->count + 1, sizeof *plan->entries);
        if (status != RESHARD_OK)
            return status;
    }
    rs_sharding_entry entry = *given;
    bool good = copy_style(plan->context, &entry.style);
    entry.name = rs_text_copy(plan->context, name);
    if (entry.name == NULL || !good) {
        reshard_status status = rs_allocation_status();
        rs_text_free(plan->context, entry.name);
        release_style(plan->context, &entry.style);
        return status;
    }
    (void)reshard_spec_retain(entry.spec);
    (void)reshard_spec_retain(entry.local);
    (void)reshard_mesh_retain(entry.mesh);
    plan->entries[plan->count++] = entry;
    return RESHARD_OK;
}

static reshard_status check_spec(const char *name, const reshard_spec *spec)
{
    if (spec == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "sharding plan: \"%s\" has no spec",
                       name != NULL ? name : "");
    return RESHARD_OK;
}

reshard_status reshard_sharding_plan_add(reshard_sharding_plan *plan, const char *parameter,
                                         reshard_spec *spec)
{
    reshard_status status = check_spec(parameter, spec);
    rs_sharding_entry entry = {.kind = RS_SHARDING_PARAMETER, .spec = spec};
    return status == RESHARD_OK ? rs_sharding_add(plan, &entry, parameter) : status;
}

reshard_status reshard_sharding_plan_add_text(reshard_sharding_plan *plan, const char *parameter,
                                              const char *spec_text)
{
    reshard_spec *spec = NULL;
    reshard_status status = reshard_spec_parse(plan->context, spec_text, &spec);
    if (status == RESHARD_OK)
        status = reshard_sharding_plan_add(plan, parameter, spec);
    reshard_spec_release(spec);
    return status;
}

static reshard_status add_entry(reshard_sharding_plan *plan, reshard_status status,
                                rs_sharding_entry entry, const char *module)
{
    return status == RESHARD_OK ? rs_sharding_add(plan, &entry, module) : status;
}

reshard_status reshard_sharding_plan_add_module(reshard_sharding_plan *plan, const char *module,
                                                const reshard_sharding_module *what)
{
    reshard_sharding_module w;
    reshard_status status = rs_options_read("sharding module", what, &w, sizeof w);
    if (status != RESHARD_OK)
        return status;
    bool has_sharder = w.sharder != NULL && w.sharder->shard != NULL;
    if ((w.sharder != NULL && !has_sharder) ||
        (!has_sharder && w.output == NULL && !w.local_output))
        return rs_fail(RESHARD_ERR_INVALID, "sharding plan: nothing to do with \"%s\"",
                       module != NULL ? module : "");
    if (has_sharder)
        status = add_entry(plan, status,
                           (rs_sharding_entry){.kind = RS_SHARDING_SHARDER, .sharder = *w.sharder},
                           module);
    if (w.output != NULL)
        status =
            add_entry(plan, status,
                      (rs_sharding_entry){.kind = RS_SHARDING_OUTPUT, .spec = w.output}, module);
    if (w.local_output)
        status = add_entry(plan, status, (rs_sharding_entry){.kind = RS_SHARDING_LOCAL}, module);
    return status;
}

/* ---- GPT ------------------------------------------------------------------------------------- */

/* The specs that a GPT needs for one axis. */
typedef enum way { HEADS, HEAD_COLUMNS, ROWS, COLUMNS, EVERYWHERE, WAYS } way;

static reshard_status make_spec(reshard_context *context, reshard_mesh *mesh, int32_t axis, way w,
                                int64_t head, reshard_spec **out_spec)
{
    reshard_cut cut = {.axis = axis,
                       .placement = {.kind = RESHARD_SHARD,
                                     .dim = w == COLUMNS || w == HEAD_COLUMNS,
                                     .unit = w == HEADS || w == HEAD_COLUMNS ? head : 0}};
    return reshard_spec_create(context, mesh, w != EVERYWHERE, &cut, out_spec);
}

static reshard_status add_block(reshard_sharding_plan *plan, int64_t index, reshard_spec **specs)
{
    static const struct {
        const char *name;
        int way;
        bool output;
    } rows[] = {
        {"attn.q.weight", HEADS, false},        {"attn.q.bias", HEADS, false},
        {"attn.k.weight", HEADS, false},        {"attn.k.bias", HEADS, false},
        {"attn.v.weight", HEADS, false},        {"attn.v.bias", HEADS, false},
        {"attn.o.weight", HEAD_COLUMNS, false}, {"attn.o", EVERYWHERE, true},
        {"mlp.fc1.weight", ROWS, false},        {"mlp.fc1.bias", ROWS, false},
        {"mlp.fc2.weight", COLUMNS, false},     {"mlp.fc2", EVERYWHERE, true},
    };
    reshard_status status = RESHARD_OK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && status == RESHARD_OK; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "h.%" PRId64 ".%s", index, rows[i].name);
        rs_sharding_entry entry = {.kind =
                                       rows[i].output ? RS_SHARDING_OUTPUT : RS_SHARDING_PARAMETER,
                                   .spec = specs[rows[i].way]};
        status = rs_sharding_add(plan, &entry, name);
    }
    return status;
}

static reshard_status add_ends(reshard_sharding_plan *plan, const reshard_module *gpt,
                               reshard_spec **specs)
{
    reshard_tensor *embedding = NULL, *head = NULL;
    reshard_status status = rs_module_find_parameter(gpt, "wte.weight", &embedding);
    if (status == RESHARD_OK)
        status = rs_module_find_parameter(gpt, "head.weight", &head);
    if (status == RESHARD_OK)
        status = reshard_sharding_plan_add(plan, "wte.weight", specs[ROWS]);
    if (status == RESHARD_OK && head != embedding) /* a tied parameter is sharded once */
        status = reshard_sharding_plan_add(plan, "head.weight", specs[ROWS]);
    if (status == RESHARD_OK)
        status = reshard_sharding_plan_add_module(
            plan, "wte", RESHARD_OPTIONS(reshard_sharding_module, .output = specs[EVERYWHERE]));
    return status;
}

reshard_status reshard_sharding_plan_add_gpt(reshard_sharding_plan *plan, reshard_module *gpt,
                                             reshard_mesh *mesh, int32_t axis, int sequence)
{
    reshard_spec *specs[WAYS] = {NULL};
    reshard_module *blocks = NULL;
    if (strcmp(gpt->kind_name, "gpt") != 0)
        return rs_fail(RESHARD_ERR_INVALID, "a module of kind %s is not a gpt", gpt->kind_name);
    if (sequence)
        return rs_sharding_add_gpt_sequence(plan, gpt, mesh, axis);
    reshard_status status = reshard_module_find(gpt, "h", &blocks);
    int32_t count = 0;
    while (status == RESHARD_OK && reshard_module_child(blocks, count, NULL) != NULL)
        count++;
    reshard_module *attention = NULL;
    if (status == RESHARD_OK && count > 0)
        status = reshard_module_find(blocks, "0.attn", &attention);
    int64_t head = 1;
    if (attention != NULL)
        status = rs_fail_within(rs_attention_head(attention, &head), "h.0.attn");
    for (int w = 0; w < WAYS && status == RESHARD_OK; w++)
        status = make_spec(plan->context, mesh, axis, (way)w, head, &specs[w]);
    for (int32_t i = 0; i < count && status == RESHARD_OK; i++)
        status = add_block(plan, i, specs);
    if (status == RESHARD_OK)
        status = add_ends(plan, gpt, specs);
    for (int w = 0; w < WAYS; w++)
        reshard_spec_release(specs[w]);
    return status;
}
