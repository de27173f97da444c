/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - creates plans and answers the simple questions about them. */
#include "plan/plan.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/options.h"
#include "layout/layout.h"

#include <assert.h>
#include <string.h>

/* Part of the digest, so that planners that would choose different moves do not take each other's
 * plans for equal. */
#define PLANNER_VERSION 1

reshard_link reshard_link_whole(int32_t source, int32_t target)
{
    reshard_link link;
    memset(&link, 0, sizeof link);
    link.source = source;
    link.target = target;
    link.source_box.ndim = -1;
    link.target_box.ndim = -1;
    return link;
}

/* ---- taking the inputs ----------------------------------------------------------------------- */

static reshard_status take_tensors(reshard_plan *plan, const char *which, int32_t count,
                                   const reshard_plan_tensor *given,
                                   reshard_plan_tensor **out_tensors)
{
    reshard_plan_tensor *tensors =
        rs_arena_allocate_array(&plan->arena, (size_t)count, sizeof *tensors);
    if (tensors == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < count; i++) {
        if (given[i].layout == NULL)
            return rs_fail(RESHARD_ERR_INVALID, "%s %d has no layout", which, i);
        int32_t bits = reshard_dtype_bits(given[i].dtype);
        if (bits == 0)
            return rs_fail(RESHARD_ERR_INVALID, "%s %d: dtype %d is not known", which, i,
                           (int)given[i].dtype);
        if (bits % 8 != 0)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "%s %d: elements of %d bits (%s) cannot be moved one by one", which, i,
                           bits, reshard_dtype_name(given[i].dtype));
        if (rs_layout_rank_max(given[i].layout) == INT32_MAX)
            return rs_fail(RESHARD_ERR_RANGE,
                           "%s %d: rank %d is too large; ranks of a plan are at most %d", which, i,
                           INT32_MAX, INT32_MAX - 1);
    }
    for (int32_t i = 0; i < count; i++) {
        const char *name = given[i].name != NULL ? given[i].name : "";
        tensors[i] = given[i];
        tensors[i].name = rs_arena_copy(&plan->arena, name, strlen(name) + 1, 1);
        if (tensors[i].name == NULL)
            return rs_allocation_status();
    }
    for (int32_t i = 0; i < count; i++) {
        (void)reshard_layout_retain(tensors[i].layout);
        plan->rank_count =
            (int32_t)rs_max(plan->rank_count, rs_layout_rank_max(given[i].layout) + 1);
    }
    *out_tensors = tensors;
    return RESHARD_OK;
}

static reshard_status take_options(reshard_plan *plan, const reshard_plan_options *options)
{
    reshard_status status =
        rs_options_read("plan options", options, &plan->options, sizeof plan->options);
    if (status != RESHARD_OK)
        return status;
    reshard_balance balance = plan->options.balance;
    if (balance != RESHARD_BALANCE_RULE && balance != RESHARD_BALANCE_EXACT)
        return rs_fail(RESHARD_ERR_INVALID, "plan options: unknown balance %d", (int)balance);
    size_t *staging = &plan->options.staging_bytes_max;
    if (*staging == 0)
        *staging = RESHARD_STAGING_BYTES;
    if (*staging < RESHARD_STAGING_BYTES_MIN)
        return rs_fail(RESHARD_ERR_RANGE,
                       "%zu bytes of staging are too few: at least %zu are needed", *staging,
                       RESHARD_STAGING_BYTES_MIN);
    /* At least eight segments, so that sending, receiving and unpacking can overlap. */
    plan->segment_bytes = (size_t)4 << 20;
    while (plan->segment_bytes > *staging / 8)
        plan->segment_bytes /= 2;
    return RESHARD_OK;
}

/* Links in one of the two public forms; the other is NULL. */
typedef struct link_list {
    int32_t count;
    const reshard_link *plain;
    const reshard_strided_link *strided;
} link_list;

/* Strided links are copied one by one, because the caller's struct may be longer or shorter. */
static reshard_status copy_strided(reshard_plan *plan, const reshard_strided_link *given)
{
    const char *at = (const char *)given;
    reshard_strided_link *copies =
        rs_arena_allocate_array(&plan->arena, (size_t)plan->link_count, sizeof *copies);
    if (copies == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < plan->link_count; i++, at += given->size) {
        if (((const reshard_strided_link *)(const void *)at)->size != given->size)
            return rs_fail(RESHARD_ERR_INVALID,
                           "link %d: its size differs from the size of link 0; all links of a call "
                           "have the same",
                           i);
        reshard_status status = rs_options_read("strided link", at, &copies[i], sizeof copies[i]);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "link %d", i);
        plan->links[i].plain = reshard_link_whole(copies[i].source, copies[i].target);
        plan->links[i].strided = &copies[i];
    }
    return RESHARD_OK;
}

static reshard_status copy_links(reshard_plan *plan, const link_list *given)
{
    plan->links = rs_arena_allocate_array(&plan->arena, (size_t)given->count, sizeof *plan->links);
    if (plan->links == NULL)
        return rs_allocation_status();
    plan->link_count = given->count;
    if (given->strided != NULL)
        return copy_strided(plan, given->strided);
    for (int32_t i = 0; i < given->count; i++)
        plan->links[i] = (rs_given_link){.plain = given->plain[i]};
    return RESHARD_OK;
}

static reshard_status take_links(reshard_plan *plan, const link_list *list)
{
    reshard_status status = copy_links(plan, list);
    int32_t count = list->count;
    for (int32_t i = 0; i < count && status == RESHARD_OK; i++) {
        const reshard_link *given = &plan->links[i].plain;
        if (given->source < 0 || given->source >= plan->source_count)
            return rs_fail(RESHARD_ERR_RANGE, "link %d: source %d does not exist", i,
                           given->source);
        if (given->target < 0 || given->target >= plan->target_count)
            return rs_fail(RESHARD_ERR_RANGE, "link %d: target %d does not exist", i,
                           given->target);
        const reshard_plan_tensor *source = &plan->sources[given->source];
        const reshard_plan_tensor *target = &plan->targets[given->target];
        rs_link link;
        status = rs_link_resolve(&plan->links[i], source->layout, target->layout, &link);
        if (status == RESHARD_OK)
            status = rs_sender_check(source->layout, target->layout);
        if (status != RESHARD_OK && (source->name[0] != '\0' || target->name[0] != '\0'))
            return rs_fail_within(status, "link %d from \"%.100s\" to \"%.100s\"", i, source->name,
                                  target->name);
        if (status != RESHARD_OK)
            return count > 1 ? rs_fail_within(status, "link %d", i) : status;
    }
    return status;
}

static void digest_inputs(reshard_plan *plan)
{
    rs_digest digest;
    rs_digest_init(&digest);
    rs_digest_u64(&digest, PLANNER_VERSION);
    const reshard_plan_options *options = &plan->options;
    rs_digest_u64(&digest, (uint64_t)options->balance);
    rs_digest_u64(&digest, options->relabel != 0);
    rs_digest_u64(&digest, options->single_stage != 0);
    rs_digest_u64(&digest, options->zero_fill != 0);
    rs_digest_u64(&digest, options->staging_bytes_max);
    const reshard_plan_tensor *lists[2] = {plan->sources, plan->targets};
    int32_t counts[2] = {plan->source_count, plan->target_count};
    for (int side = 0; side < 2; side++) {
        rs_digest_u64(&digest, (uint64_t)counts[side]);
        for (int32_t i = 0; i < counts[side]; i++) {
            rs_digest_u64(&digest, lists[side][i].layout->digest[0]);
            rs_digest_u64(&digest, lists[side][i].layout->digest[1]);
            rs_digest_u64(&digest, (uint64_t)lists[side][i].dtype);
        }
    }
    for (int32_t i = 0; i < plan->link_count; i++) {
        const reshard_link *link = &plan->links[i].plain;
        rs_digest_u64(&digest, (uint64_t)link->source << 32 | (uint64_t)link->target);
        rs_link_digest(&plan->links[i], &digest);
    }
    rs_digest_finish(&digest, plan->digest);
}

/* ---- making ---------------------------------------------------------------------------------- */

static reshard_status build(reshard_plan *plan)
{
    digest_inputs(plan);
    reshard_status status = rs_plan_check_links(plan);
    if (status == RESHARD_OK && plan->options.relabel)
        status = rs_plan_relabel(plan);
    if (status == RESHARD_OK)
        status = rs_plan_build_stages(plan);
    if (status == RESHARD_OK)
        status = rs_plan_build_templates(plan);
    if (status == RESHARD_OK && plan->options.balance == RESHARD_BALANCE_EXACT)
        status = rs_plan_balance(plan);
    return status;
}

static reshard_plan *new_plan(reshard_context *context)
{
    reshard_plan *plan = rs_allocate_zeroed(context, sizeof *plan);
    if (plan != NULL) {
        plan->context = context;
        atomic_init(&plan->references, 1);
        rs_arena_init(&plan->arena, context);
    }
    return plan;
}

static reshard_status create(reshard_context *context, int32_t source_count,
                             const reshard_plan_tensor *sources, int32_t target_count,
                             const reshard_plan_tensor *targets, const link_list *links,
                             const reshard_plan_options *options, reshard_plan **out_plan)
{
    if (source_count < 0 || target_count < 0 || links->count < 0)
        return rs_fail(RESHARD_ERR_RANGE, "%d sources, %d targets, %d links: none may be negative",
                       source_count, target_count, links->count);
    reshard_plan *plan = new_plan(context);
    if (plan == NULL)
        return rs_allocation_status();
    reshard_status status = take_options(plan, options);
    if (status == RESHARD_OK)
        status = take_tensors(plan, "source", source_count, sources, &plan->sources);
    if (status == RESHARD_OK) {
        plan->source_count = source_count;
        status = take_tensors(plan, "target", target_count, targets, &plan->targets);
    }
    if (status == RESHARD_OK) {
        plan->target_count = target_count;
        status = take_links(plan, links);
    }
    if (status == RESHARD_OK)
        status = build(plan);
    if (status != RESHARD_OK) {
        reshard_plan_release(plan);
        return status;
    }
    *out_plan = plan;
    return RESHARD_OK;
}

reshard_status reshard_plan_create(reshard_context *context, int32_t source_count,
                                   const reshard_plan_tensor *sources, int32_t target_count,
                                   const reshard_plan_tensor *targets, int32_t link_count,
                                   const reshard_link *links, const reshard_plan_options *options,
                                   reshard_plan **out_plan)
{
    link_list list = {.count = link_count, .plain = links};
    return create(context, source_count, sources, target_count, targets, &list, options, out_plan);
}

reshard_status reshard_plan_create_strided(reshard_context *context, int32_t source_count,
                                           const reshard_plan_tensor *sources, int32_t target_count,
                                           const reshard_plan_tensor *targets, int32_t link_count,
                                           const reshard_strided_link *links,
                                           const reshard_plan_options *options,
                                           reshard_plan **out_plan)
{
    link_list list = {.count = link_count, .strided = links};
    return create(context, source_count, sources, target_count, targets, &list, options, out_plan);
}

reshard_status reshard_plan_create_simple(reshard_context *context, reshard_layout *source,
                                          reshard_layout *target, reshard_dtype dtype,
                                          const reshard_plan_options *options,
                                          reshard_plan **out_plan)
{
    reshard_plan_tensor from = {"source", source, dtype}, to = {"target", target, dtype};
    reshard_link link = reshard_link_whole(0, 0);
    return reshard_plan_create(context, 1, &from, 1, &to, 1, &link, options, out_plan);
}

static reshard_status check_adjoint(const reshard_plan *plan)
{
    for (int32_t i = 0; i < plan->link_count; i++) {
        const reshard_plan_tensor *source = &plan->sources[plan->links[i].plain.source];
        const reshard_plan_tensor *target = &plan->targets[plan->links[i].plain.target];
        const reshard_layout *layouts[2] = {source->layout, target->layout};
        for (int side = 0; side < 2; side++) {
            reshard_reduction reduction = layouts[side]->reduction;
            if (layouts[side]->partial && reduction != RESHARD_SUM && reduction != RESHARD_AVG)
                return rs_fail(RESHARD_ERR_UNSUPPORTED,
                               "link %d is partial by %s, which has no adjoint; sum and avg have",
                               i, reshard_reduction_name(reduction));
        }
        if (source->dtype != target->dtype)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "link %d goes from %s to %s: a cast has no adjoint", i,
                           reshard_dtype_name(source->dtype), reshard_dtype_name(target->dtype));
    }
    return RESHARD_OK;
}

reshard_status reshard_plan_adjoint(reshard_plan *plan, reshard_plan **out_plan)
{
    if (plan->transposed != NULL) {
        *out_plan = reshard_plan_retain(plan->transposed);
        return RESHARD_OK;
    }
    reshard_status status = check_adjoint(plan);
    if (status != RESHARD_OK)
        return status;
    reshard_plan *adjoint = new_plan(plan->context);
    if (adjoint == NULL)
        return rs_allocation_status();
    adjoint->transposed = reshard_plan_retain(plan);
    *out_plan = adjoint;
    return RESHARD_OK;
}

reshard_plan *reshard_plan_retain(reshard_plan *plan)
{
    if (plan != NULL)
        rs_reference_add(&plan->references);
    return plan;
}

void reshard_plan_release(reshard_plan *plan)
{
    if (plan == NULL || !rs_reference_drop(&plan->references))
        return;
    for (int32_t i = 0; i < plan->source_count; i++)
        reshard_layout_release(plan->sources[i].layout);
    for (int32_t i = 0; i < plan->target_count; i++)
        reshard_layout_release(plan->targets[i].layout);
    for (int32_t i = 0; i < plan->intermediate_count; i++)
        reshard_layout_release(plan->intermediates[i]);
    reshard_plan_release(plan->transposed);
    rs_release(plan->context, plan->fills);
    rs_arena_release(&plan->arena);
    rs_release(plan->context, plan);
}

/* ---- asking ---------------------------------------------------------------------------------- */

const reshard_plan *rs_plan_forward(const reshard_plan *plan)
{
    return plan->transposed != NULL ? plan->transposed : plan;
}

int32_t rs_plan_forward_stage(const reshard_plan *plan, int32_t stage)
{
    return plan->transposed != NULL ? plan->transposed->stage_count - 1 - stage : stage;
}

reshard_layout *reshard_plan_target_layout(const reshard_plan *plan, int32_t target)
{
    const reshard_plan *forward = rs_plan_forward(plan);
    return plan->transposed != NULL ? forward->sources[target].layout
                                    : forward->targets[target].layout;
}

void rs_plan_digest(const reshard_plan *plan, uint64_t out_digest[2])
{
    const reshard_plan *forward = rs_plan_forward(plan);
    uint64_t mark = plan->transposed != NULL ? 1 : 0;
    out_digest[0] = forward->digest[0] ^ mark;
    out_digest[1] = forward->digest[1];
}

reshard_status reshard_plan_get_info(const reshard_plan *plan, reshard_plan_info *out_info)
{
    const reshard_plan *forward = rs_plan_forward(plan);
    reshard_plan_info info = {.stage_count = forward->stage_count,
                              .rank_count = forward->rank_count,
                              .is_adjoint = plan->transposed != NULL,
                              .relabelling_count = forward->relabelling_count,
                              .relabelling = forward->relabelling,
                              .intermediate_count = forward->intermediate_count,
                              .intermediates = forward->intermediates,
                              .segment_bytes = forward->segment_bytes};
    rs_plan_digest(plan, info.digest);
    return rs_report_write("plan info", &info, sizeof info, out_info);
}

int32_t reshard_plan_stage_link_count(const reshard_plan *plan, int32_t stage)
{
    return rs_plan_forward(plan)->stages[rs_plan_forward_stage(plan, stage)].link_count;
}

reshard_stage_link rs_plan_stage_link(const reshard_plan *plan, int32_t stage, int32_t index)
{
    const rs_stage *s = &rs_plan_forward(plan)->stages[rs_plan_forward_stage(plan, stage)];
    assert(index >= 0 && index < s->link_count);
    const reshard_stage_link *link = &s->links[index].shown;
    if (plan->transposed == NULL)
        return *link;
    return (reshard_stage_link){
        .link = link->link,
        .source = link->target,
        .target = link->source,
        .source_is_intermediate = link->target_is_intermediate,
        .target_is_intermediate = link->source_is_intermediate,
        .source_layout = link->target_layout,
        .target_layout = link->source_layout,
        .source_dtype = link->target_dtype,
        .target_dtype = link->source_dtype,
    };
}

reshard_status reshard_plan_stage_link(const reshard_plan *plan, int32_t stage, int32_t index,
                                       reshard_stage_link *out_link)
{
    int32_t stages = rs_plan_forward(plan)->stage_count;
    if (stage < 0 || stage >= stages)
        return rs_fail(RESHARD_ERR_RANGE, "stage %d does not exist; the plan has %d", stage,
                       stages);
    int32_t links = reshard_plan_stage_link_count(plan, stage);
    if (index < 0 || index >= links)
        return rs_fail(RESHARD_ERR_RANGE, "link %d does not exist; the stage has %d", index, links);
    reshard_stage_link link = rs_plan_stage_link(plan, stage, index);
    return rs_report_write("stage link", &link, sizeof link, out_link);
}

int64_t rs_stage_link_bytes(const rs_stage_link *link)
{
    int32_t target = reshard_dtype_bits(link->shown.target_dtype);
    int32_t source = link->shown.source < 0 ? target : reshard_dtype_bits(link->shown.source_dtype);
    return rs_min(source, target) / 8;
}
