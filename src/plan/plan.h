/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - what a plan is made of.
 *
 * Each stage has a list of stage links. Links whose layouts and boxes are equal share a template:
 * the resolved link, and the way its moves are found. A rank's part works out each template once,
 * so that the hundred layers of a model cost as much as one.
 */
#ifndef RS_PLAN_PLAN_H
#define RS_PLAN_PLAN_H

#include <reshard/plan_inspect.h>

#include "base/arena.h"
#include "plan/route.h"
#include "system/thread.h"

/* Moves that were chosen by looking at the whole, see balance.h: by target rank, and the same by
 * source rank. */
typedef struct rs_chosen {
    int32_t source_rank, target_rank;
    rs_move move; /* complete but for which end is mine */
} rs_chosen;

typedef enum rs_template_kind {
    RS_TEMPLATE_GRID,   /* by products of dims */
    RS_TEMPLATE_ROUTE,  /* match by match */
    RS_TEMPLATE_CHOSEN, /* from a list in the plan */
    RS_TEMPLATE_FILL    /* target elements that no link fills */
} rs_template_kind;

typedef struct rs_template {
    rs_template_kind kind;
    rs_routing routing;
    int64_t chosen_count; /* CHOSEN */
    const rs_chosen *chosen_by_target;
    const int64_t *chosen_by_source; /* indices into chosen_by_target */
} rs_template;

typedef struct rs_stage_link {
    reshard_stage_link shown; /* link -1: a fill */
    reshard_link link;        /* boxes and factors of this stage */
    int32_t template_index;
} rs_stage_link;

typedef struct rs_stage {
    int32_t link_count;
    rs_stage_link *links;
    int32_t template_count;
    rs_template *templates;
} rs_stage;

/* A box of a target that no link fills. */
typedef struct rs_fill_box {
    int32_t target;
    reshard_box box;
} rs_fill_box;

#define RS_STAGES_MAX 2

struct reshard_plan {
    reshard_context *context;
    rs_references references;
    rs_arena arena;
    int32_t source_count, target_count, link_count;
    reshard_plan_tensor *sources, *targets; /* layouts retained, names copied */
    reshard_link *links;
    int64_t fill_count, fill_capacity;
    rs_fill_box *fills; /* from the context, not the arena */
    reshard_plan_options options;
    int32_t stage_count;
    rs_stage stages[RS_STAGES_MAX];
    int32_t intermediate_count;
    reshard_layout **intermediates; /* room for one for each link */
    int32_t rank_count;
    int32_t relabelling_count;
    const int32_t *relabelling;
    size_t segment_bytes;
    uint64_t digest[2];
    /* the plan that this is the adjoint of, in which case nothing else is set; else NULL */
    reshard_plan *transposed;
};

/* The plan that holds the stages, and the index there of stage `stage` of this plan. */
const reshard_plan *rs_plan_forward(const reshard_plan *plan);
int32_t rs_plan_forward_stage(const reshard_plan *plan, int32_t stage);
/* As reshard_plan_stage_link, of a stage and link that exist. */
reshard_stage_link rs_plan_stage_link(const reshard_plan *plan, int32_t stage, int32_t index);

/* Bytes of one element on its way: the narrower of the two types. */
int64_t rs_stage_link_bytes(const rs_stage_link *link);

/* ---- between the files of this folder -------------------------------------------------------- */

/* Checks that the links fill every target exactly, and adds fills where allowed (fills.c). */
reshard_status rs_plan_check_links(reshard_plan *plan);
/* Adds the links to stages, by way of intermediate layouts where that is cheaper (stages.c). */
reshard_status rs_plan_build_stages(reshard_plan *plan);
/* Gives each stage link its template (stages.c). */
reshard_status rs_plan_build_templates(reshard_plan *plan);
/* Replaces the target layouts by the relabelling that moves the fewest bytes (relabel.c). */
reshard_status rs_plan_relabel(reshard_plan *plan);
/* Makes CHOSEN templates of those that have a choice, least load of the busiest sender
 * (balance.c). */
reshard_status rs_plan_balance(reshard_plan *plan);

#endif
