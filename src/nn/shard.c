/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.c - carries out a sharding plan, in three steps that all ranks take together:
 *  1. Every rank checks the whole plan against its module, and ranks compare their plans.
 *  2. Everything that the plan asks for is made: tensors and replacements outside the module, and
 *     hooks on it, which are removed again if anything fails.
 *  3. Tensors and replacements are put in place, which cannot fail.
 * The ranks agree after the first and the second step, so either all come to the third or none.
 */
#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "layout/layout.h"
#include "nn/layers.h"
#include "nn/module.h"
#include "nn/sharding.h"
#include "tensor/core/distribution.h"
#include "text/text.h"
#include "transport/agree.h"
#include "transport/group.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* What one entry of the plan produces. */
typedef struct product {
    reshard_module *module; /* the one that the entry names; for a parameter, the one that has it */
    rs_holding *holding;    /* of the parameter or child */
    reshard_tensor *old, *tensor;
    reshard_module *replacement;
    reshard_hook *hook;
} product;

typedef struct work {
    reshard_module *root;
    const reshard_sharding_plan *plan;
    int32_t source_rank;
    reshard_group *group;
    product *products;
} work;

/* ---- step 1: checks -------------------------------------------------------------------------- */

/* "a.b" is below "a" and "a.b"; "a10" is not below "a1". */
static bool is_below(const char *path, const char *module)
{
    size_t length = strlen(module);
    return strncmp(path, module, length) == 0 && (path[length] == 0 || path[length] == '.');
}

static reshard_status check_against_sharders(const reshard_sharding_plan *plan, int64_t index)
{
    const rs_sharding_entry *entry = &plan->entries[index];
    for (int64_t i = 0; i < plan->count; i++) {
        const rs_sharding_entry *other = &plan->entries[i];
        if (i == index || other->kind != RS_SHARDING_SHARDER || !is_below(entry->name, other->name))
            continue;
        return rs_fail(RESHARD_ERR_INVALID, "\"%s\" lies below \"%s\", which has a sharder",
                       entry->name, other->name);
    }
    return RESHARD_OK;
}

/* Finds the module that holds the last name of a path, which exists. Fails if an earlier plan has
 * replaced a module on the way. */
static reshard_status check_above(const work *w, const char *name, reshard_module **out_module)
{
    reshard_module *module = w->root;
    const char *from = name, *dot;
    for (; (dot = strchr(from, '.')) != NULL; from = dot + 1) {
        const rs_holding *holding = rs_module_holding(module, from, (size_t)(dot - from));
        assert(holding != NULL && holding->child != NULL);
        if (holding->planned)
            return rs_fail(RESHARD_ERR_INVALID,
                           "\"%s\" lies below \"%.*s\", which the sharder of an earlier plan "
                           "replaced",
                           name, (int)(dot - name), name);
        module = holding->child;
    }
    *out_module = module;
    return RESHARD_OK;
}

/* Some layers compute with all of their tensors at once, which then have to be of one group. */
static reshard_status check_siblings(const work *w, const char *name, const reshard_module *module)
{
    for (int64_t i = 0; rs_layer_is_joint(module) && i < module->holding_count; i++) {
        const rs_holding *other = &module->holdings[i];
        if (other->tensor != NULL && other->tensor->distribution != NULL &&
            rs_distributed_group(other->tensor) != w->group)
            return rs_fail(RESHARD_ERR_INVALID,
                           "\"%s\": the %s of this %s is distributed over another group", name,
                           other->name, module->kind_name);
    }
    return RESHARD_OK;
}

/* Finds the parameter of an entry. Errors: NOT_FOUND; INVALID for a buffer. */
static reshard_status find_parameter(work *w, const char *name, product *p)
{
    rs_holding *holding = NULL;
    if (rs_module_find_holding(w->root, name, &holding) == RESHARD_OK &&
        holding->kind == RS_HOLDING_BUFFER)
        return rs_fail(RESHARD_ERR_INVALID, "\"%s\" is a buffer, not a parameter", name);
    reshard_status status = rs_module_find_parameter(w->root, name, &p->old);
    if (status != RESHARD_OK)
        return status;
    p->holding = holding;
    if (p->old == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the parameter \"%s\" has no tensor; set one first",
                       name);
    if (p->old->distribution != NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the parameter \"%s\" is distributed already", name);
    return RESHARD_OK;
}

static reshard_status check_parameter(work *w, int64_t index)
{
    const rs_sharding_entry *entry = &w->plan->entries[index];
    product *p = &w->products[index];
    if (entry->name[0] == 0)
        return rs_fail(RESHARD_ERR_INVALID, "the name of a parameter is empty");
    reshard_status status = find_parameter(w, entry->name, p);
    if (status == RESHARD_OK)
        status = check_against_sharders(w->plan, index);
    if (status == RESHARD_OK)
        status = check_above(w, entry->name, &p->module);
    if (status == RESHARD_OK)
        status = check_siblings(w, entry->name, p->module);
    if (status != RESHARD_OK)
        return status;
    for (int64_t i = 0; i < index; i++) {
        if (w->plan->entries[i].kind == RS_SHARDING_PARAMETER && w->products[i].old == p->old)
            return rs_fail(RESHARD_ERR_INVALID,
                           "\"%s\" and \"%s\" are one parameter, which is sharded once",
                           w->plan->entries[i].name, entry->name);
    }
    reshard_layout *layout = NULL;
    status =
        reshard_layout_create(w->root->context, entry->spec, p->old->ndim, p->old->shape, &layout);
    if (status == RESHARD_OK && rs_layout_rank_max(layout) >= reshard_group_size(w->group))
        status = rs_fail(RESHARD_ERR_RANGE, "the layout has a rank %d, and the group %d ranks",
                         rs_layout_rank_max(layout), reshard_group_size(w->group));
    reshard_layout_release(layout);
    return rs_fail_within(status, "parameter \"%s\"", entry->name);
}

enum { WORDS = 240 };

/* Fails if an earlier plan has a hook of this kind on the module, unless it is of the origin that
 * may be there. */
static reshard_status check_unhooked(const reshard_module *module, rs_hook_kind kind,
                                     rs_hook_origin allowed, const char *path)
{
    for (const rs_hook_entry *hook = module->hooks[kind]; hook != NULL; hook = hook->next) {
        if (hook->origin != RS_HOOK_OWN && hook->origin != allowed && !hook->removed)
            return rs_fail(RESHARD_ERR_INVALID, "an earlier plan has a hook on the %s of \"%s\"",
                           kind == RS_HOOK_PRE ? "input" : "output", path);
    }
    return RESHARD_OK;
}

/* Checks that no earlier plan has changed anything in a module or below it. `path` is the module's,
 * perhaps shortened. */
static reshard_status check_untouched(const reshard_module *module, const char *path)
{
    reshard_status status = check_unhooked(module, RS_HOOK_PRE, RS_HOOK_OWN, path);
    if (status == RESHARD_OK)
        status = check_unhooked(module, RS_HOOK_POST, RS_HOOK_OWN, path);
    for (int64_t i = 0; i < module->holding_count && status == RESHARD_OK; i++) {
        const rs_holding *holding = &module->holdings[i];
        char name[WORDS];
        (void)snprintf(name, sizeof name, "%.*s.%s", WORDS / 2, path, holding->name);
        if (holding->planned)
            status = rs_fail(RESHARD_ERR_INVALID, "an earlier plan sharded \"%s\"", name);
        else if (holding->child != NULL)
            status = check_untouched(holding->child, name);
    }
    return status;
}

static reshard_status check_sharder(work *w, int64_t index)
{
    const rs_sharding_entry *entry = &w->plan->entries[index];
    product *p = &w->products[index];
    reshard_module *parent = NULL;
    if (entry->name[0] == 0)
        return rs_fail(RESHARD_ERR_INVALID,
                       "the name of a sharder's module is empty: the root cannot be replaced");
    reshard_status status = reshard_module_find(w->root, entry->name, &p->module);
    if (status == RESHARD_OK)
        status = rs_module_find_holding(w->root, entry->name, &p->holding);
    if (status == RESHARD_OK)
        status = check_against_sharders(w->plan, index);
    if (status == RESHARD_OK)
        status = check_above(w, entry->name, &parent);
    if (status == RESHARD_OK && p->holding->planned)
        status = rs_fail(RESHARD_ERR_INVALID,
                         "\"%s\" was replaced by the sharder of an earlier plan", entry->name);
    if (status == RESHARD_OK)
        status = check_untouched(p->module, entry->name);
    return status;
}

/* A module can have one planned hook of each kind, because a second one would change the result of
 * the first. Nor can an output that is already local be resharded. */
static reshard_status check_hooks(const work *w, int64_t index)
{
    const rs_sharding_entry *entry = &w->plan->entries[index];
    const reshard_module *module = w->products[index].module;
    for (int64_t i = 0; i < index; i++) {
        if (w->plan->entries[i].kind == entry->kind && w->products[i].module == module)
            return rs_fail(RESHARD_ERR_INVALID, "the %s of \"%s\" is named twice",
                           entry->kind == RS_SHARDING_INPUT ? "input" : "output", entry->name);
    }
    if (entry->kind == RS_SHARDING_INPUT)
        return check_unhooked(module, RS_HOOK_PRE, RS_HOOK_OWN, entry->name);
    return check_unhooked(module, RS_HOOK_POST,
                          entry->kind == RS_SHARDING_LOCAL ? RS_HOOK_PLANNED_OUTPUT : RS_HOOK_OWN,
                          entry->name);
}

static reshard_status check_entry(work *w, int64_t index)
{
    const rs_sharding_entry *entry = &w->plan->entries[index];
    if (entry->kind == RS_SHARDING_PARAMETER)
        return check_parameter(w, index);
    if (entry->kind == RS_SHARDING_SHARDER)
        return check_sharder(w, index);
    reshard_status status = reshard_module_find(w->root, entry->name, &w->products[index].module);
    /* The output of the sharder's own module is that of its replacement. Modules below it
     * disappear. */
    for (int64_t i = 0; i < w->plan->count && status == RESHARD_OK; i++) {
        const rs_sharding_entry *other = &w->plan->entries[i];
        if (other->kind == RS_SHARDING_SHARDER && strcmp(other->name, entry->name) != 0 &&
            is_below(entry->name, other->name))
            status = rs_fail(RESHARD_ERR_INVALID, "\"%s\" lies below \"%s\", which has a sharder",
                             entry->name, other->name);
    }
    return status == RESHARD_OK ? check_hooks(w, index) : status;
}

static reshard_status check_plan(work *w)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < w->plan->count && status == RESHARD_OK; i++)
        status = check_entry(w, i);
    return status;
}

/* ---- comparing ranks ------------------------------------------------------------------------- */

/* Describes an entry in words, shortened if necessary, for messages and for finding the entry that
 * differs. */
static void describe(const work *w, int64_t index, char words[WORDS])
{
    static const char *const kinds[] = {"parameter", "sharder of", "input of", "output of",
                                        "local output of"};
    memset(words, 0, WORDS);
    if (index < 0 || index >= w->plan->count) {
        (void)strcpy(words, "no such entry");
        return;
    }
    const rs_sharding_entry *entry = &w->plan->entries[index];
    rs_text text;
    rs_text_init(&text, words, WORDS);
    rs_text_add(&text, "%s \"%.80s\"", kinds[entry->kind], entry->name);
    char spec[120] = "";
    size_t length = 0;
    if (entry->spec != NULL &&
        reshard_spec_text(entry->spec, spec, sizeof spec, &length) != RESHARD_OK)
        (void)strcpy(spec, "a callback's");
    if (entry->spec != NULL)
        rs_text_add(&text, " as \"%s\"", spec);
}

static reshard_status digest_spec(const work *w, const reshard_spec *spec, rs_digest *digest)
{
    size_t length = 0;
    if (spec == NULL || reshard_spec_text(spec, NULL, 0, &length) != RESHARD_OK)
        return RESHARD_OK;
    char *text = rs_allocate(w->plan->context, length + 1);
    if (text == NULL)
        return rs_allocation_status();
    (void)reshard_spec_text(spec, text, length + 1, &length);
    rs_digest_bytes(digest, text, length);
    rs_release(w->plan->context, text);
    return RESHARD_OK;
}

/* Computes a digest of everything that must be the same on all ranks. A callback's spec is not part
 * of it: its layouts are compared when they are used. */
static reshard_status digest_work(const work *w, uint64_t out_digest[2])
{
    rs_digest digest;
    rs_digest_init(&digest);
    rs_digest_u64(&digest, (uint64_t)w->source_rank);
    for (int64_t i = 0; i < w->plan->count; i++) {
        const rs_sharding_entry *entry = &w->plan->entries[i];
        rs_digest_u64(&digest, (uint64_t)entry->kind);
        rs_digest_bytes(&digest, entry->name, strlen(entry->name));
        rs_digest_u64(&digest, (uint64_t)entry->one_axis << 32 | (uint32_t)entry->axis);
        reshard_status status = digest_spec(w, entry->spec, &digest);
        if (status == RESHARD_OK)
            status = digest_spec(w, entry->local, &digest);
        if (status != RESHARD_OK)
            return status;
    }
    rs_digest_finish(&digest, out_digest);
    return RESHARD_OK;
}

/* Collective. Returns RESHARD_OK if all ranks pass the same words. */
static reshard_status compare_words(const work *w, const char *what, const char *words)
{
    rs_claim claim = {.what = what, .words = words};
    rs_digest digest;
    rs_digest_init(&digest);
    rs_digest_bytes(&digest, words, strlen(words));
    rs_digest_finish(&digest, claim.digest);
    return rs_group_agree_on(w->group, RESHARD_OK, &claim, NULL);
}

/* Collective. Finds the entry in which the ranks' plans differ, and fails with it. */
static reshard_status tell_difference(const work *w, int64_t count_most)
{
    char words[WORDS];
    (void)snprintf(words, sizeof words, "rank %d as the source", w->source_rank);
    reshard_status status = compare_words(w, "the source", words);
    for (int64_t i = 0; i < count_most && status == RESHARD_OK; i++) {
        describe(w, i, words);
        status = compare_words(w, "the entry", words);
    }
    return status != RESHARD_OK
               ? status
               : rs_fail(RESHARD_ERR_MISMATCH, "ranks pass different sharding plans");
}

static reshard_status compare_ranks(const work *w, reshard_status status)
{
    rs_claim claim = {.what = "the sharding plan"};
    uint64_t numbers[RS_AGREE_NUMBERS] = {(uint64_t)w->plan->count};
    if (status == RESHARD_OK)
        status = digest_work(w, claim.digest);
    status = rs_group_agree_on(w->group, status, NULL, numbers);
    if (status != RESHARD_OK)
        return status;
    status = rs_group_agree_on(w->group, RESHARD_OK, &claim, NULL);
    return status == RESHARD_ERR_MISMATCH ? tell_difference(w, (int64_t)numbers[0]) : status;
}

/* ---- step 2: making -------------------------------------------------------------------------- */

static reshard_status make_tensor(work *w, int64_t index)
{
    product *p = &w->products[index];
    reshard_tensor *dense = NULL;
    reshard_status status = rs_tensor_densify(w->root->context, p->old, &dense);
    status = reshard_group_agree(w->group, status);
    if (status == RESHARD_OK) {
        /* A dense copy is not the user's leaf, so requires_grad has to be copied like the
         * values. */
        bool before = dense->requires_grad;
        dense->requires_grad = p->old->requires_grad;
        status = reshard_tensor_shard(w->root->context, w->group, w->plan->entries[index].spec,
                                      w->source_rank, dense, &p->tensor);
        dense->requires_grad = before;
    }
    reshard_tensor_release(dense);
    return rs_fail_within(status, "parameter \"%s\"", w->plan->entries[index].name);
}

static reshard_status make_module(work *w, int64_t index)
{
    const rs_sharding_entry *entry = &w->plan->entries[index];
    product *p = &w->products[index];
    reshard_status status =
        entry->sharder.shard(entry->sharder.user, p->module, w->group, &p->replacement);
    if (status == RESHARD_OK && p->replacement == NULL)
        status = rs_fail(RESHARD_ERR_INVALID, "the sharder gave no module");
    if (status == RESHARD_OK && rs_module_has_holding(p->replacement, p->holding))
        status =
            rs_fail(RESHARD_ERR_INVALID, "the sharder gave a module that would contain itself");
    return rs_fail_within(status, "sharder of \"%s\"", entry->name);
}

static reshard_status make_hook(work *w, int64_t index)
{
    const rs_sharding_entry *entry = &w->plan->entries[index];
    product *p = &w->products[index];
    reshard_module *module = p->module;
    for (int64_t i = 0; i < w->plan->count; i++) { /* on the replacement, if there is one */
        if (w->plan->entries[i].kind == RS_SHARDING_SHARDER && w->products[i].module == module)
            module = w->products[i].replacement;
    }
    reshard_status status = RESHARD_OK;
    if (entry->kind == RS_SHARDING_INPUT)
        status = rs_sharding_hook_input(module, entry, w->group, &p->hook);
    else if (entry->kind == RS_SHARDING_OUTPUT)
        status = rs_sharding_hook_output(module, entry, &p->hook);
    else
        status = reshard_module_collect_local_shard(module, NULL, &p->hook);
    if (status == RESHARD_OK)
        p->hook->entry->origin = entry->kind == RS_SHARDING_INPUT    ? RS_HOOK_PLANNED_INPUT
                                 : entry->kind == RS_SHARDING_OUTPUT ? RS_HOOK_PLANNED_OUTPUT
                                                                     : RS_HOOK_PLANNED_LOCAL;
    return rs_fail_within(status, "%s of \"%s\"",
                          entry->kind == RS_SHARDING_INPUT ? "input" : "output", entry->name);
}

/* Makes parameters first, then sharders, inputs, outputs and local outputs, so that hooks run in
 * that order. */
static reshard_status make_all(work *w)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < w->plan->count && status == RESHARD_OK; i++) {
        if (w->plan->entries[i].kind == RS_SHARDING_PARAMETER)
            status = make_tensor(w, i); /* agrees by itself */
    }
    for (int kind = RS_SHARDING_SHARDER; kind <= RS_SHARDING_LOCAL; kind++) {
        for (int64_t i = 0; i < w->plan->count && status == RESHARD_OK; i++) {
            if ((int)w->plan->entries[i].kind != kind)
                continue;
            status = kind == RS_SHARDING_SHARDER ? make_module(w, i) : make_hook(w, i);
        }
        if (kind == RS_SHARDING_SHARDER) /* hooks on outputs need the replacements */
            status = reshard_group_agree(w->group, status);
    }
    return reshard_group_agree(w->group, status);
}

/* ---- step 3: putting in place ---------------------------------------------------------------- */

static void put_in_place(work *w, reshard_hook **out_hook)
{
    reshard_hook *hooks = NULL;
    for (int64_t i = 0; i < w->plan->count; i++) {
        product *p = &w->products[i];
        if (p->tensor != NULL) {
            (void)reshard_tensor_retain(p->old); /* its address is compared until all is done */
            rs_module_swap_tensor(w->root, p->old, p->tensor);
            reshard_tensor_release(p->old);
            p->holding->planned = true;
        }
        if (p->replacement != NULL) {
            p->holding->planned = true;
            reshard_module_release(p->holding->child);
            p->holding->child = reshard_module_retain(p->replacement);
        }
        hooks = rs_hook_join(hooks, p->hook);
        p->hook = NULL;
    }
    if (out_hook != NULL)
        *out_hook = hooks;
    else
        rs_hook_release(hooks);
}

static void clear(work *w)
{
    for (int64_t i = 0; w->products != NULL && i < w->plan->count; i++) {
        reshard_hook_remove(w->products[i].hook); /* only those that are not in place */
        reshard_tensor_release(w->products[i].tensor);
        reshard_module_release(w->products[i].replacement);
    }
    rs_release(w->plan->context, w->products);
}

/* ---- the calls ------------------------------------------------------------------------------- */

/* Carries out a plan without styles. `status` is the result of what this rank did before. */
static reshard_status carry_out_entries(reshard_module *module, const reshard_sharding_plan *plan,
                                        int32_t source_rank, reshard_group *group,
                                        reshard_status status, reshard_hook **out_hook)
{
    work w = {module, plan, source_rank, group, NULL};
    w.products = rs_allocate_zeroed(plan->context, (size_t)plan->count * sizeof *w.products);
    if (w.products == NULL && status == RESHARD_OK)
        status = rs_allocation_status();
    if (status == RESHARD_OK)
        status = check_plan(&w);
    status = compare_ranks(&w, status);
    if (status == RESHARD_OK)
        status = make_all(&w);
    if (status == RESHARD_OK)
        put_in_place(&w, out_hook);
    clear(&w);
    return status;
}

static reshard_status carry_out(reshard_module *module, const reshard_sharding_plan *plan,
                                int32_t source_rank, reshard_group *group, reshard_status status,
                                reshard_hook **out_hook)
{
    const reshard_sharding_plan none = {.context = plan->context};
    reshard_sharding_plan *expanded = NULL;
    reshard_status chosen = rs_group_choose(&group);
    if (chosen != RESHARD_OK)
        return chosen;
    bool styled = false;
    for (int64_t i = 0; i < plan->count; i++)
        styled = styled || plan->entries[i].kind == RS_SHARDING_STYLE;
    if (status == RESHARD_OK && styled)
        status = rs_sharding_expand(plan, module, &expanded);
    if (styled) /* a rank whose plan does not fit its module has none, and tells the others */
        plan = expanded != NULL ? expanded : &none;
    status = carry_out_entries(module, plan, source_rank, group, status, out_hook);
    reshard_sharding_plan_destroy(expanded);
    return status;
}

reshard_status reshard_module_shard(reshard_module *module, const reshard_sharding_plan *plan,
                                    int32_t source_rank, reshard_group *group,
                                    reshard_hook **out_hook)
{
    reshard_status status = carry_out(module, plan, source_rank, group, RESHARD_OK, out_hook);
    return rs_fail_within(status, "shard_module");
}

reshard_status reshard_module_shard_parameter(reshard_module *module, const char *path,
                                              reshard_spec *spec, int32_t source_rank,
                                              reshard_group *group)
{
    rs_sharding_entry entry = {.kind = RS_SHARDING_PARAMETER, .name = (char *)path, .spec = spec};
    reshard_sharding_plan plan = {.context = module->context, .count = 1, .entries = &entry};
    if (path == NULL || spec == NULL) {
        plan.count = 0;
        reshard_status status =
            rs_fail(RESHARD_ERR_INVALID, "the %s is NULL", path == NULL ? "path" : "spec");
        return rs_fail_within(carry_out(module, &plan, source_rank, group, status, NULL),
                              "shard_parameter");
    }
    reshard_status status = carry_out(module, &plan, source_rank, group, RESHARD_OK, NULL);
    return rs_fail_within(status, "shard_parameter");
}

reshard_status reshard_module_shard_planned(reshard_module *module,
                                            const reshard_sharding_planner *planner,
                                            int32_t source_rank, reshard_group *group,
                                            reshard_hook **out_hook)
{
    reshard_sharding_plan plan = {.context = module->context}, *copy = NULL;
    reshard_status status = reshard_sharding_plan_create(module->context, &copy);
    if (status == RESHARD_OK)
        status = planner->build(planner->user, module, copy);
    /* A rank that has no plan tells the others. */
    status = carry_out(module, status == RESHARD_OK ? copy : &plan, source_rank, group, status,
                       out_hook);
    reshard_sharding_plan_destroy(copy);
    return rs_fail_within(status, "shard_module");
}
