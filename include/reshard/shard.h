/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.h - spreads a module over ranks: parameters become distributed tensors, hooks reshard or
 * collect outputs, and sharders replace children. It mirrors PyTorch's _shard module API.
 *
 * If a group parameter is NULL, the current group is used.
 *
 * Order: shard a module, then add reshard_module_input_reshard to it, then make its optimizer. An
 * optimizer holds the parameters that exist when it is made. Without sharders, which replace
 * modules together with their hooks, input_reshard may also come first. To set weights, before or
 * after sharding, use reshard_module_set_parameter or _load_state_dict (nn.h).
 *
 * Meshes: the specs of one plan may have different meshes, and input_reshard may have another one,
 * as long as all are over the ranks of one group. Ready-made layers (nn_layers.h) redistribute
 * tensors of different meshes as needed, which costs moves; in modules of your own, operations on
 * them fail.
 */
#ifndef RESHARD_SHARD_H
#define RESHARD_SHARD_H

#include <reshard/distributed.h>
#include <reshard/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * Say which parameters are cut how, and carry it out.
 */

/* ---- plans ----------------------------------------------------------------------------------- */

/* A list of what to do with the parameters, children and outputs of a module. */
typedef struct reshard_sharding_plan reshard_sharding_plan;

RESHARD_API reshard_status reshard_sharding_plan_create(reshard_context *context,
                                                        reshard_sharding_plan **out_plan);
RESHARD_API void reshard_sharding_plan_destroy(reshard_sharding_plan *plan);
/* The calls that add to a plan copy texts and structures and retain specs. Names are looked up when
 * the plan is carried out. */
RESHARD_API reshard_status reshard_sharding_plan_add(reshard_sharding_plan *plan,
                                                     const char *parameter, reshard_spec *spec);
/* The same with the spec as text. */
RESHARD_API reshard_status reshard_sharding_plan_add_text(reshard_sharding_plan *plan,
                                                          const char *parameter,
                                                          const char *spec_text);

/* ---- carrying plans out ---------------------------------------------------------------------- */

/*
 * Collective. Carries out a plan, completely or not at all on any rank. *out_hook is one handle for
 * all hooks that were added, or NULL if there are none; out_hook may be NULL.
 *
 * Several plans may be carried out one after another as long as they do not overlap. Errors besides
 * those of shard_parameter: INVALID for a parameter or output that is named twice, a parameter
 * below a module with a sharder, sharders of nested modules or of the root; INVALID, naming the
 * path, if the plan overlaps with an earlier one (a parameter or module that it sharded, an output
 * that it has a hook on); MISMATCH if ranks pass different plans.
 */
RESHARD_API reshard_status reshard_module_shard(reshard_module *module,
                                                const reshard_sharding_plan *plan,
                                                int32_t source_rank, reshard_group *group,
                                                reshard_hook **out_hook);

/* Adds to a plan what makes a GPT (nn_layers.h) tensor parallel over one axis of a mesh, as
 * Megatron does: q, k and v are cut by rows and o by columns, in whole heads; fc1 by rows, fc2 by
 * columns; embedding and head by tokens. The outputs of o, fc2 and wte are replicated; logits stay
 * cut by tokens, as cross_entropy_loss takes them (reshard_tensor_full gives whole ones). axis: its
 * number in the mesh. sequence non-zero, for long sequences: activations between attention and mlp,
 * with the norms and sums there, are cut along the sequence; outputs of o, fc2 and wte are summed
 * into parts instead of on every rank, and attn, mlp and head gather them. Local. Errors: INVALID
 * for another kind of module. */
RESHARD_API reshard_status reshard_sharding_plan_add_gpt(reshard_sharding_plan *plan,
                                                         reshard_module *gpt, reshard_mesh *mesh,
                                                         int32_t axis, int sequence);

/* ==== explicit ===================================================================================
 * Outputs, sharders and planners; one parameter alone.
 */

/* ---- more than parameters -------------------------------------------------------------------- */

/* Makes a replacement for a module; *out_module is a reference that the caller releases. All ranks
 * call it. */
typedef struct reshard_sharder {
    reshard_status (*shard)(void *user, reshard_module *module, reshard_group *group,
                            reshard_module **out_module);
    void *user;
} reshard_sharder;

/* What to do with a module besides its parameters. NULL and 0: nothing. */
typedef struct reshard_sharding_module {
    size_t size;                    /* sizeof(reshard_sharding_module) */
    const reshard_sharder *sharder; /* replaces the module by what it makes */
    reshard_spec *output;           /* reshards the output */
    int local_output; /* non-zero: replaces the output by this rank's shard, after resharding */
} reshard_sharding_module;
/* module: a path; "" is the root. Errors: INVALID if there is nothing to do. */
RESHARD_API reshard_status reshard_sharding_plan_add_module(reshard_sharding_plan *plan,
                                                            const char *module,
                                                            const reshard_sharding_module *what);

/* Builds a plan for a module. */
typedef struct reshard_sharding_planner {
    reshard_status (*build)(void *user, reshard_module *module, reshard_sharding_plan *plan);
    void *user;
} reshard_sharding_planner;

/* Collective. Lets the planner build a plan, and carries it out. */
RESHARD_API reshard_status reshard_module_shard_planned(reshard_module *module,
                                                        const reshard_sharding_planner *planner,
                                                        int32_t source_rank, reshard_group *group,
                                                        reshard_hook **out_hook);

/*
 * Collective. Makes one parameter distributed, with the values of the source rank. A frozen
 * parameter stays frozen, and a tied one is replaced under all its names. Errors, agreed by all
 * ranks, leave the module as it was: NOT_FOUND, INVALID (a buffer, a parameter that has no tensor
 * or is already distributed, a spec that does not fit, a layer whose other parameter is distributed
 * over another group), MISMATCH (names two ranks and what they pass).
 */
RESHARD_API reshard_status reshard_module_shard_parameter(reshard_module *module, const char *path,
                                                          reshard_spec *spec, int32_t source_rank,
                                                          reshard_group *group);

/* ---- hooks on outputs ------------------------------------------------------------------------ */

/* Adds a hook that redistributes every distributed tensor in the module's output, also in lists.
 * Other values pass unchanged, and so do scalars if the spec cuts dims. The tensors that the module
 * returned are not modified. Calls of the module become Collective. Adding the hook is Local. */
RESHARD_API reshard_status reshard_module_reshard_output(reshard_module *module, reshard_spec *spec,
                                                         reshard_hook **out_hook);

typedef struct reshard_collect_options {
    size_t size; /* sizeof(reshard_collect_options) */
    /* Non-zero: PyTorch's rule. A rank drops the dim that is cut if its own shard has length 1
     * along it, so outputs may have different numbers of dims on different ranks. */
    int by_local_length;
} reshard_collect_options;

/* Adds a hook that replaces distributed tensors in the output by this rank's shard; a rank without
 * one gets an empty tensor. If one dim is cut and every rank's shard has length 1 along it, all
 * ranks drop the dim, unless it is the only one and some rank has no shard. So the number of dims
 * is the same on all ranks. Local. options NULL: all zero. */
RESHARD_API reshard_status reshard_module_collect_local_shard(
    reshard_module *module, const reshard_collect_options *options, reshard_hook **out_hook);

/* ==== advanced ===================================================================================
 * A group for code that takes none, as PyTorch's load_with_process_group.
 */

/* ---- the current group ----------------------------------------------------------------------- */

/* Runs the body with this group as the current one of this thread, and returns the body's status.
 * Local. Errors: INVALID if one is already set, because calls do not nest, or if the group is NULL
 * and there is no default one. */
RESHARD_API reshard_status reshard_load_with_group(reshard_group *group,
                                                   reshard_status (*body)(void *user), void *user);
/* The group set by reshard_load_with_group; outside of it, the thread's default group
 * (reshard_group_set_default), or NULL. Not retained. */
RESHARD_API reshard_group *reshard_current_group(void);

#ifdef __cplusplus
}
#endif
#endif
