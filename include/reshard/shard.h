/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.h - spreading a module over ranks: parameters become distributed tensors, outputs are
 * resharded or collected by hooks, children are replaced by sharders. PyTorch's _shard module API.
 *
 * Where a group is asked for, NULL means the current one (reshard_load_with_group).
 */
#ifndef RESHARD_SHARD_H
#define RESHARD_SHARD_H

#include <reshard/distributed.h>
#include <reshard/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the current group ----------------------------------------------------------------------- */

/* Runs the body with this group as the current one of this thread, and gives its status. Local.
 * Errors: INVALID when the group is NULL, or when one is set already: calls do not nest. */
RESHARD_API reshard_status reshard_load_with_group(reshard_group *group,
                                                   reshard_status (*body)(void *user), void *user);
/* NULL outside; not retained. */
RESHARD_API reshard_group *reshard_current_group(void);

/* ---- hooks on outputs ------------------------------------------------------------------------ */

/* The module's output is redistributed: every distributed tensor in it, also in lists; the rest
 * passes. The tensors that the module gave stay as they are. Calls are Collective then. Local. */
RESHARD_API reshard_status reshard_module_reshard_output(reshard_module *module, reshard_spec *spec,
                                                         reshard_hook **out_hook);

typedef struct reshard_collect_options {
    size_t size; /* sizeof(reshard_collect_options) */
    /* PyTorch's rule: a rank drops the dim that is cut if its own shard has length 1 there, and
     * ranks may then give different numbers of dims. */
    int by_local_length;
} reshard_collect_options;

/* Distributed tensors in the output are replaced by this rank's shard. Where one dim is cut and
 * every rank's shard has length 1 along it, the dim goes away, on all ranks alike. Local. options
 * NULL: all zero. */
RESHARD_API reshard_status reshard_module_collect_local_shard(
    reshard_module *module, const reshard_collect_options *options, reshard_hook **out_hook);

/* ---- plans ----------------------------------------------------------------------------------- */

/* Makes another module of one. *out_module: a reference; it takes the place of the old one. All
 * ranks call it. */
typedef struct reshard_sharder {
    reshard_status (*shard)(void *user, reshard_module *module, reshard_group *group,
                            reshard_module **out_module);
    void *user;
} reshard_sharder;

/* What is to become of the parameters, children and outputs of a module. */
typedef struct reshard_sharding_plan reshard_sharding_plan;

RESHARD_API reshard_status reshard_sharding_plan_create(reshard_context *context,
                                                        reshard_sharding_plan **out_plan);
RESHARD_API void reshard_sharding_plan_destroy(reshard_sharding_plan *plan);
/* Texts and structures are copied, specs retained. What they name is looked at when the plan is
 * carried out. */
RESHARD_API reshard_status reshard_sharding_plan_add(reshard_sharding_plan *plan,
                                                     const char *parameter, reshard_spec *spec);
RESHARD_API reshard_status reshard_sharding_plan_add_sharder(reshard_sharding_plan *plan,
                                                             const char *module,
                                                             const reshard_sharder *sharder);
/* The output of a module ("" is the root) is resharded. */
RESHARD_API reshard_status reshard_sharding_plan_add_output(reshard_sharding_plan *plan,
                                                            const char *module, reshard_spec *spec);
/* The output of a module is replaced by this rank's shard, after it was resharded. */
RESHARD_API reshard_status reshard_sharding_plan_add_local(reshard_sharding_plan *plan,
                                                           const char *module);

/* Looks at a module and adds to a plan. */
typedef struct reshard_sharding_planner {
    reshard_status (*build)(void *user, reshard_module *module, reshard_sharding_plan *plan);
    void *user;
} reshard_sharding_planner;

/* ---- carrying out ---------------------------------------------------------------------------- */

/*
 * Collective. One parameter becomes distributed: the values are the source rank's. Frozen stays
 * frozen, tied names see the same tensor. Errors, agreed by all ranks, which leave the module as it
 * was: NOT_FOUND, INVALID (a buffer, a parameter that is nothing or distributed already, a spec
 * that does not suit), MISMATCH naming two ranks and what they pass.
 */
RESHARD_API reshard_status reshard_module_shard_parameter(reshard_module *module, const char *path,
                                                          reshard_spec *spec, int32_t source_rank,
                                                          reshard_group *group);
/*
 * Collective. Carries out a plan: all of it, or nothing on any rank. The hook is the handle of all
 * hooks that were added, NULL when there are none; out_hook may be NULL.
 *
 * Errors besides those of shard_parameter: INVALID for a parameter named twice, for one below a
 * module that has a sharder, for sharders of nested modules or of the root, and for a module that
 * was sharded before; MISMATCH when ranks pass different plans.
 */
RESHARD_API reshard_status reshard_module_shard(reshard_module *module,
                                                const reshard_sharding_plan *plan,
                                                int32_t source_rank, reshard_group *group,
                                                reshard_hook **out_hook);
RESHARD_API reshard_status reshard_module_shard_planned(reshard_module *module,
                                                        const reshard_sharding_planner *planner,
                                                        int32_t source_rank, reshard_group *group,
                                                        reshard_hook **out_hook);

/* Adds to a plan what makes a GPT (nn_layers.h) tensor parallel over one axis of a mesh, as
 * Megatron does: q, k, v and fc1 by rows in whole heads, o and fc2 by columns, the embedding and
 * the head by tokens; outputs of o, fc2, wte and head replicated. axis: by number. Local. Errors:
 * INVALID for another kind of module. */
RESHARD_API reshard_status reshard_sharding_plan_add_gpt(reshard_sharding_plan *plan,
                                                         reshard_module *gpt, reshard_mesh *mesh,
                                                         int32_t axis);

#ifdef __cplusplus
}
#endif
#endif
