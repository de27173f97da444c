/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - the structure of a plan: stages, stage links and templates.
 *
 * Each stage has a list of stage links. Links with equal layouts and boxes share a template: the
 * resolved link, and the method by which its moves are found. A rank's part works out each template
 * once, so planning a hundred equal layers costs as much as planning one.
 */
#ifndef RS_PLAN_PLAN_H
#define RS_PLAN_PLAN_H

#include <reshard/plan_inspect.h>

#include "base/arena.h"
#include "base/references.h"
#include "plan/sender.h"

/* A move that was chosen by looking at all ranks at once (balance.c). */
typedef struct rs_chosen {
    int32_t source_rank, target_rank;
    rs_move move; /* complete except for `mine`, `sending` and the peer */
} rs_chosen;

typedef enum rs_template_kind {
    RS_TEMPLATE_GRID,    /* products of the entries of each dim (grid.c) */
    RS_TEMPLATE_MATCHES, /* match by match (sender.c) */
    RS_TEMPLATE_CHOSEN,  /* listed below (balance.c) */
    RS_TEMPLATE_FILL     /* target elements that no link fills */
} rs_template_kind;

typedef struct rs_template {
    rs_template_kind kind;
    rs_sender_rule rule;
    int64_t chosen_count; /* CHOSEN only, as are the lists, which are sorted */
    const rs_chosen *chosen_by_target;
    const int64_t *chosen_by_source; /* indices into chosen_by_target */
} rs_template;

typedef struct rs_stage_link {
    reshard_stage_link shown; /* what callers see; its `link` is -1 for a fill */
    rs_given_link link;       /* boxes and factors of this stage */
    int32_t template_index;
} rs_stage_link;

typedef struct rs_stage {
    int32_t link_count;
    rs_stage_link *links;
    int32_t template_count;
    rs_template *templates;
} rs_stage;

/* A part of a target that no link fills, as a link from the target to itself. */
typedef struct rs_fill {
    int32_t target;
    rs_given_link link;
} rs_fill;

#define RS_STAGES_MAX 2

struct reshard_plan {
    reshard_context *context;
    rs_references references;
    rs_arena arena;
    int32_t source_count, target_count, link_count;
    reshard_plan_tensor *sources, *targets; /* layouts are retained, names copied */
    rs_given_link *links;
    int64_t fill_count, fill_capacity;
    rs_fill *fills; /* allocated from the context, not from the arena */
    reshard_plan_options options;
    int32_t stage_count;
    rs_stage stages[RS_STAGES_MAX];
    int32_t intermediate_count;
    reshard_layout **intermediates; /* room for one per link */
    int32_t rank_count;
    int32_t relabelling_count;
    const int32_t *relabelling;
    size_t segment_bytes;
    uint64_t digest[2];
    /* For an adjoint, the plan that it transposes, and that holds all other fields; otherwise
     * NULL. */
    reshard_plan *transposed;
};

/* rs_plan_forward returns the plan that holds the stages: for an adjoint, the plan that it
 * transposes. rs_plan_forward_stage returns the index there of stage `stage` of this plan. */
const reshard_plan *rs_plan_forward(const reshard_plan *plan);
int32_t rs_plan_forward_stage(const reshard_plan *plan, int32_t stage);
/* As in reshard_plan_info. */
void rs_plan_digest(const reshard_plan *plan, uint64_t out_digest[2]);
/* Like reshard_plan_stage_link, for a stage and link that are known to exist. */
reshard_stage_link rs_plan_stage_link(const reshard_plan *plan, int32_t stage, int32_t index);

/* Bytes per element while it travels: those of the narrower dtype. */
int64_t rs_stage_link_bytes(const rs_stage_link *link);

/* ---- between the files of this folder -------------------------------------------------------- */

/* Checks that the links fill every target exactly. With zero_fill, gaps become fills (fills.c). */
reshard_status rs_plan_check_links(reshard_plan *plan);
/* Distributes the links over stages, through intermediate layouts where that is cheaper
 * (stages.c). */
reshard_status rs_plan_build_stages(reshard_plan *plan);
/* Gives each stage link its template (stages.c). */
reshard_status rs_plan_build_templates(reshard_plan *plan);
/* Renumbers the ranks of the targets so that the fewest bytes move (relabel.c). */
reshard_status rs_plan_relabel(reshard_plan *plan);
/* Replaces the rule that picks senders by a list of chosen moves that keeps the load of the busiest
 * sender as low as possible (balance.c). */
reshard_status rs_plan_balance(reshard_plan *plan);

#endif
