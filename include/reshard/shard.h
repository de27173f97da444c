/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.h - spreading a module over ranks: parameters become distributed tensors, hooks reshard or
 * collect outputs, and sharders replace children. PyTorch's _shard module API.
 *
 * If a group parameter is NULL, the current group is used.
 *
 * Order: shard a module, then add reshard_module_input_reshard to it, then make its optimizer.
 * Optimizers hold the parameters there are when they are made, and a sharder replaces modules with
 * all their hooks; otherwise input_reshard may come first as well. To set weights, before or after
 * sharding, use reshard_module_set_parameter or _load_state_dict (nn.h).
 *
 * Meshes: the specs of one plan need not have the same mesh, and the mesh of input_reshard may be
 * another one, all over the ranks of one group. Ready layers (nn_layers.h) bring tensors of
 * different meshes together, which costs moves; own modules get the operation's error.
 */
#ifndef RESHARD_SHARD_H
#define RESHARD_SHARD_H

#include <reshard/distributed.h>
#include <reshard/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the current group ----------------------------------------------------------------------- */

/* Runs the body with this group as the current one of this thread, and returns its status. Local.
 * Errors: INVALID if the group is NULL, or if one is already set: calls do not nest. */
RESHARD_API reshard_status reshard_load_with_group(reshard_group *group,
                                                   reshard_status (*body)(void *user), void *user);
/* Outside of that the thread's default group (reshard_group_set_default), or NULL; not
 * retained. */
RESHARD_API reshard_group *reshard_current_group(void);

/* ---- hooks on outputs ------------------------------------------------------------------------ */

/* Redistributes the module's output: every distributed tensor in it, also in lists. Other values
 * pass unchanged, and so do scalars if the spec cuts dims; the tensors that the module returned
 * stay as they are. Calls become Collective. Adding the hook is Local. */
RESHARD_API reshard_status reshard_module_reshard_output(reshard_module *module, reshard_spec *spec,
                                                         reshard_hook **out_hook);

typedef struct reshard_collect_options {
    size_t size; /* sizeof(reshard_collect_options) */
    /* PyTorch's rule: a rank drops the dim that is cut if its own shard has length 1 along it, so
     * ranks may give different numbers of dims. */
    int by_local_length;
} reshard_collect_options;

/* Replaces distributed tensors in the output by this rank's shard; a rank without one gets an empty
 * tensor. If one dim is cut and every rank's shard has length 1 along it, all ranks drop the dim,
 * unless it is the only one and some rank has no shard. All ranks get as many dims. Local. options
 * NULL: all zero. */
RESHARD_API reshard_status reshard_module_collect_local_shard(
    reshard_module *module, const reshard_collect_options *options, reshard_hook **out_hook);

/* ---- plans ----------------------------------------------------------------------------------- */

/* Makes a replacement for a module. *out_module: a reference to it. All ranks call it. */
typedef struct reshard_sharder {
    reshard_status (*shard)(void *user, reshard_module *module, reshard_group *group,
                            reshard_module **out_module);
    void *user;
} reshard_sharder;

/* What to do with the parameters, children and outputs of a module. */
typedef struct reshard_sharding_plan reshard_sharding_plan;

RESHARD_API reshard_status reshard_sharding_plan_create(reshard_context *context,
                                                        reshard_sharding_plan **out_plan);
RESHARD_API void reshard_sharding_plan_destroy(reshard_sharding_plan *plan);
/* Texts and structures are copied, specs retained. The names are looked up when the plan is carried
 * out. */
RESHARD_API reshard_status reshard_sharding_plan_add(reshard_sharding_plan *plan,
                                                     const char *parameter, reshard_spec *spec);
/* The same with the spec as text. */
RESHARD_API reshard_status reshard_sharding_plan_add_text(reshard_sharding_plan *plan,
                                                          const char *parameter,
                                                          const char *spec_text);
RESHARD_API reshard_status reshard_sharding_plan_add_sharder(reshard_sharding_plan *plan,
                                                             const char *module,
                                                             const reshard_sharder *sharder);
/* Reshards the output of a module ("" is the root). */
RESHARD_API reshard_status reshard_sharding_plan_add_output(reshard_sharding_plan *plan,
                                                            const char *module, reshard_spec *spec);
/* Replaces the output of a module by this rank's shard, after resharding. */
RESHARD_API reshard_status reshard_sharding_plan_add_local(reshard_sharding_plan *plan,
                                                           const char *module);

/* Looks at a module and adds to a plan. */
typedef struct reshard_sharding_planner {
    reshard_status (*build)(void *user, reshard_module *module, reshard_sharding_plan *plan);
    void *user;
} reshard_sharding_planner;

/* ---- carrying out ---------------------------------------------------------------------------- */

/*
 * Collective. Makes one parameter distributed, with the values of the source rank. A frozen
 * parameter stays frozen, and tied names see the same tensor. Errors, agreed by all ranks, leave
 * the module as it was: NOT_FOUND, INVALID (a buffer, a parameter that stands for nothing or is
 * distributed, a spec that does not fit, a layer whose other parameter is distributed over another
 * group), MISMATCH naming two ranks and what they pass.
 */
RESHARD_API reshard_status reshard_module_shard_parameter(reshard_module *module, const char *path,
                                                          reshard_spec *spec, int32_t source_rank,
                                                          reshard_group *group);
/*
 * Collective. Carries out a plan: all of it, or nothing on any rank. *out_hook is the handle of all
 * hooks that were added, NULL if there are none; out_hook may be NULL.
 *
 * Plans may follow each other as long as they do not overlap. Errors besides those of
 * shard_parameter: INVALID for a parameter or output that is named twice, for a parameter below a
 * module with a sharder, for sharders of nested modules or of the root; INVALID naming the path
 * where a plan overlaps with an earlier one (a parameter or module that it sharded, an output that
 * it has a hook on); MISMATCH if ranks pass different plans.
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
 * Megatron does: q, k, v and fc1 by rows in whole heads, o and fc2 by columns, embedding and head
 * by tokens; outputs of o, fc2, wte and head replicated. axis: by number. Local. Errors: INVALID
 * for another kind of module. */
RESHARD_API reshard_status reshard_sharding_plan_add_gpt(reshard_sharding_plan *plan,
                                                         reshard_module *gpt, reshard_mesh *mesh,
                                                         int32_t axis);

#ifdef __cplusplus
}
#endif
#endif
