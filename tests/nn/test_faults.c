/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_faults.c - one rank of three runs out of memory, at its first allocation, its second, and so
 * on: in sharding a module, in an optimizer, in loading and saving states, and in a forward and
 * backward pass with input_reshard. Calls that agree fail on all ranks, after which the group still
 * works and nothing has changed where that is promised; nobody hangs; nothing leaks.
 */
#include "nn/module.h"
#include "tests/nn/folder.h"
#include "tests/nn/meshes.h"
#include "tests/support/context.h"
#include "tests/support/harness.h"
#include "tests/support/info.h"

enum { RANKS = 3, FAULTY = 1, VALUES_MAX = 256 };

typedef struct attempt {
    reshard_context *context; /* of the faulty rank */
    /* made before the ranks start, each with its rank's context */
    reshard_module *modules[RANKS];
    reshard_sharding_plan *plans[RANKS];
    reshard_status statuses[RANKS]; /* with which each rank ended */
} attempt;

static reshard_context *context_of(const attempt *a, int32_t rank)
{
    return rank == FAULTY ? a->context : NULL;
}

/* ---- a module and a plan --------------------------------------------------------------------- */

static reshard_status replace_activation(void *user, reshard_module *module, reshard_group *group,
                                         reshard_module **out_module)
{
    (void)module;
    (void)group;
    return reshard_activation_create(user, RESHARD_ACTIVATION_RELU, out_module);
}

/* An MLP 3 -> 4 -> 3 and an activation behind it. */
static reshard_status make_module(reshard_context *context, reshard_module **out_module)
{
    reshard_layer_options options = {.size = sizeof options, .dtype = RESHARD_F64, .seed = 7};
    reshard_module *parts[2] = {NULL, NULL};
    reshard_status status =
        reshard_mlp_create(context, 3, 4, RESHARD_ACTIVATION_GELU, &options, &parts[0]);
    if (status == RESHARD_OK)
        status = reshard_activation_create(context, RESHARD_ACTIVATION_GELU, &parts[1]);
    if (status == RESHARD_OK)
        status = reshard_sequential_create(context, 2, parts, out_module);
    reshard_module_release(parts[0]);
    reshard_module_release(parts[1]);
    return status;
}

/* Something of each kind of entry. */
static reshard_status make_plan(reshard_context *context, reshard_sharding_plan **out_plan)
{
    reshard_spec *rows = make_spec("3: S(0)"), *columns = make_spec("3: S(1)");
    reshard_spec *everywhere = make_spec("3: R");
    reshard_sharder sharder = {replace_activation, context};
    reshard_status status = reshard_sharding_plan_create(context, out_plan);
    if (status == RESHARD_OK)
        status = reshard_sharding_plan_add(*out_plan, "0.fc1.weight", rows);
    if (status == RESHARD_OK)
        status = reshard_sharding_plan_add(*out_plan, "0.fc1.bias", rows);
    if (status == RESHARD_OK)
        status = reshard_sharding_plan_add(*out_plan, "0.fc2.weight", columns);
    if (status == RESHARD_OK)
        status = reshard_sharding_plan_add_module(
            *out_plan, "0", RESHARD_OPTIONS(reshard_sharding_module, .output = everywhere));
    if (status == RESHARD_OK)
        status = reshard_sharding_plan_add_module(
            *out_plan, "1", RESHARD_OPTIONS(reshard_sharding_module, .sharder = &sharder));
    if (status == RESHARD_OK)
        status = reshard_sharding_plan_add_module(
            *out_plan, "", RESHARD_OPTIONS(reshard_sharding_module, .local_output = 1));
    reshard_spec_release(rows);
    reshard_spec_release(columns);
    reshard_spec_release(everywhere);
    return status;
}

static void forget(attempt *a)
{
    for (int32_t r = 0; r < RANKS; r++) {
        reshard_module_release(a->modules[r]);
        reshard_sharding_plan_destroy(a->plans[r]);
        a->modules[r] = NULL;
        a->plans[r] = NULL;
    }
}

/* Runs the ranks. The bodies of those that agree leave their statuses. */
static reshard_status run_attempt(attempt *a, reshard_rank_fn body, bool agrees)
{
    reshard_status status = RESHARD_OK;
    for (int32_t r = 0; r < RANKS && status == RESHARD_OK; r++) {
        status = make_module(context_of(a, r), &a->modules[r]);
        if (status == RESHARD_OK)
            status = make_plan(context_of(a, r), &a->plans[r]);
    }
    if (status == RESHARD_OK)
        status = reshard_group_run(NULL, RANKS, body, a);
    forget(a);
    if (!agrees || status != RESHARD_OK)
        return status;
    for (int32_t r = 0; r < RANKS; r++) {
        if ((a->statuses[r] == RESHARD_OK) != (a->statuses[FAULTY] == RESHARD_OK))
            return reshard_error_set(RESHARD_ERR_CHECK, "ranks end differently");
    }
    return a->statuses[FAULTY];
}

/* ---- values before and after ----------------------------------------------------------------- */

typedef struct values {
    int64_t count;
    double items[VALUES_MAX];
} values;

static void note_values(const reshard_tensor *tensor, values *v)
{
    for (int64_t i = 0; i < info_tensor(tensor).local_shard_count; i++)
        note_values(reshard_tensor_local_shard(tensor, i), v);
    for (int64_t i = 0; reshard_tensor_layout(tensor) == NULL && i < reshard_tensor_volume(tensor);
         i++)
        v->items[v->count++ % VALUES_MAX] = element(tensor, i);
}

static values read_values(const reshard_named_tensors *list)
{
    values v = {0};
    for (int64_t i = 0; i < list->count; i++)
        note_values(list->items[i].tensor, &v);
    return v;
}

static bool same_values(const values *a, const reshard_named_tensors *list)
{
    values b = read_values(list);
    return a->count == b.count && memcmp(a->items, b.items, sizeof b.items) == 0;
}

static bool is_untouched(reshard_module *module)
{
    static const char *const paths[] = {"0.fc1.weight", "0.fc1.bias", "0.fc2.weight"};
    reshard_tensor *tensor = NULL;
    reshard_module *child = NULL;
    bool local = true;
    for (int i = 0; i < 3; i++) {
        MUST(reshard_module_find_tensor(module, paths[i], &tensor));
        local = local && reshard_tensor_layout(tensor) == NULL;
    }
    MUST(reshard_module_find(module, "0", &child)); /* the output that the plan names first */
    local = local && child->hooks[RS_HOOK_POST] == NULL && module->hooks[RS_HOOK_POST] == NULL;
    MUST(reshard_module_find(module, "1", &child));
    return local && strcmp(reshard_module_kind_name(child), "gelu") == 0;
}

static reshard_status run_model(reshard_context *context, reshard_module *module)
{
    reshard_scope *scope = NULL;
    reshard_tensor *x = make_zeros(RESHARD_F64, SHAPE(4, 3));
    MUST(reshard_tensor_fill_random(x, RESHARD_NORMAL, 3));
    reshard_status status = reshard_scope_open(context, &scope);
    if (status == RESHARD_OK) {
        (void)reshard_backward(reshard_sum(reshard_module_forward(module, x)), NULL, NULL);
        status = reshard_scope_close(scope);
    }
    reshard_tensor_release(x);
    return status;
}

/* ---- sharding -------------------------------------------------------------------------------- */

static reshard_status body_shard(void *user, reshard_group *group)
{
    attempt *a = user;
    int32_t rank = reshard_group_rank(group);
    reshard_module *module = a->modules[rank];
    reshard_hook *hook = NULL;
    reshard_status status = reshard_module_shard(module, a->plans[rank], 0, group, &hook);
    a->statuses[rank] = status;
    TRY(reshard_group_barrier(group));
    CHECK((status == RESHARD_OK) != is_untouched(module));
    CHECK((status == RESHARD_OK) == (hook != NULL));
    if (status != RESHARD_OK)
        TRY(run_model(NULL, module));
    reshard_hook_remove(hook);
    reshard_module_release(module); /* before the group goes */
    a->modules[rank] = NULL;
    return RESHARD_OK;
}

static reshard_status attempt_shard(reshard_context *context, void *user)
{
    attempt a = {.context = context};
    (void)user;
    return run_attempt(&a, body_shard, true);
}

/* ---- optimizers and states ------------------------------------------------------------------- */

/* Loads a list of zeros, local and whole, into what `mine` lists. */
static reshard_status load_zeros(reshard_module *module, reshard_optimizer *optimizer,
                                 const reshard_named_tensors *mine)
{
    reshard_named_tensor items[16];
    CHECK(mine->count <= 16);
    for (int64_t i = 0; i < mine->count; i++) {
        const reshard_tensor *tensor = mine->items[i].tensor;
        items[i].name = mine->items[i].name;
        items[i].tensor = make_zeros(reshard_tensor_dtype(tensor), reshard_tensor_ndim(tensor),
                                     reshard_tensor_shape(tensor));
    }
    reshard_status status =
        module != NULL ? reshard_module_load_state_dict(module, mine->count, items, NULL)
                       : reshard_optimizer_load_state_dict(optimizer, mine->count, items, NULL);
    for (int64_t i = 0; i < mine->count; i++)
        reshard_tensor_release(items[i].tensor);
    return status;
}

/* Steps, then loads; a load that fails changes nothing on any rank. */
static reshard_status use_states(reshard_group *group, reshard_module *module,
                                 reshard_optimizer *optimizer)
{
    double norm = 0;
    MUST(run_model(NULL, module));
    reshard_status status = reshard_optimizer_clip(optimizer, group, 0.1, &norm);
    if (status == RESHARD_OK)
        status = reshard_group_agree(group, reshard_optimizer_step(optimizer));
    for (int k = 0; k < 2 && status == RESHARD_OK; k++) {
        reshard_named_tensors *mine = NULL;
        status = k == 0 ? reshard_module_state_dict(module, &mine)
                        : reshard_optimizer_state_dict(optimizer, &mine);
        status = reshard_group_agree(group, status);
        if (status == RESHARD_OK) {
            values before = read_values(mine);
            status = load_zeros(k == 0 ? module : NULL, optimizer, mine);
            CHECK(same_values(&before, mine) == (status != RESHARD_OK));
        }
        reshard_named_tensors_destroy(mine);
    }
    return status;
}

static reshard_status body_states(void *user, reshard_group *group)
{
    attempt *a = user;
    int32_t rank = reshard_group_rank(group);
    reshard_module *module = a->modules[rank];
    reshard_adamw_options options = {.size = sizeof options, .learning_rate = 0.1};
    reshard_optimizer *optimizer = NULL;
    reshard_status status = reshard_module_shard(module, a->plans[rank], 0, group, NULL);
    if (status == RESHARD_OK) {
        status = reshard_adamw_create(context_of(a, rank), module, &options, &optimizer);
        status = reshard_group_agree(group, status);
    }
    if (status == RESHARD_OK)
        status = use_states(group, module, optimizer);
    a->statuses[rank] = status;
    reshard_optimizer_destroy(optimizer);
    reshard_module_release(module);
    a->modules[rank] = NULL;
    CHECK(status != RESHARD_ERR_CHECK);
    return reshard_group_barrier(group);
}

static reshard_status attempt_states(reshard_context *context, void *user)
{
    attempt a = {.context = context};
    (void)user;
    return run_attempt(&a, body_states, true);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static reshard_status body_checkpoint(void *user, reshard_group *group)
{
    attempt *a = user;
    int32_t rank = reshard_group_rank(group);
    reshard_checkpoint_save_options quick = {.size = sizeof quick, .no_sync = 1};
    reshard_context *context = context_of(a, rank);
    reshard_checkpoint *checkpoint = NULL;
    reshard_tensor *local = make_zeros(RESHARD_F64, SHAPE(5, 3));
    MUST(reshard_tensor_fill_random(local, RESHARD_NORMAL, 1));
    reshard_tensor *spread = distribute(group, "3: S(0)", local);
    reshard_named_tensor items[] = {{"local", local}, {"spread", spread}};
    char path[64];
    (void)snprintf(path, sizeof path, "%s/states", folder);
    reshard_status status = reshard_checkpoint_save_tensors(context, group, path, 2, items, &quick);
    CHECK((access(path, F_OK) == 0) == (status == RESHARD_OK));
    if (status == RESHARD_OK) {
        status = reshard_checkpoint_open(context, path, NULL, &checkpoint);
        status = reshard_group_agree(group, status);
    }
    if (status == RESHARD_OK)
        status = reshard_checkpoint_load_tensors(checkpoint, group, 2, items, NULL);
    a->statuses[rank] = status;
    reshard_checkpoint_destroy(checkpoint);
    reshard_tensor_release(spread);
    reshard_tensor_release(local);
    return reshard_group_barrier(group);
}

static void empty_folder(void)
{
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s/states'", folder);
    if (system(command) != 0)
        abort();
}

static reshard_status attempt_checkpoint(reshard_context *context, void *user)
{
    attempt a = {.context = context};
    (void)user;
    reshard_status status = reshard_group_run(NULL, RANKS, body_checkpoint, &a);
    empty_folder();
    for (int32_t r = 0; r < RANKS && status == RESHARD_OK; r++) {
        if ((a.statuses[r] == RESHARD_OK) != (a.statuses[FAULTY] == RESHARD_OK))
            return reshard_error_set(RESHARD_ERR_CHECK, "ranks end differently");
    }
    return status == RESHARD_OK ? a.statuses[FAULTY] : status;
}

/* ---- input_reshard --------------------------------------------------------------------------- */

/* A rank that fails inside leaves, which is how the others hear of it. */
static reshard_status body_train(void *user, reshard_group *group)
{
    attempt *a = user;
    int32_t rank = reshard_group_rank(group);
    reshard_module *module = a->modules[rank];
    reshard_device_mesh *mesh = make_line(group);
    reshard_input_reshard_options options = {.size = sizeof options, .verify = 1};
    reshard_hook *hook = NULL;
    reshard_saved_counts counts = {.size = sizeof counts};
    reshard_status status = reshard_module_shard(module, a->plans[rank], 0, group, NULL);
    if (status == RESHARD_OK)
        status = reshard_module_input_reshard(module, mesh, 0, &options, &hook);
    if (status == RESHARD_OK)
        status = run_model(context_of(a, rank), module);
    if (hook != NULL) {
        MUST(reshard_input_reshard_counts(hook, &counts));
        CHECK(counts.held_bytes == 0);
        CHECK(reshard_saved_tensor_hooks_pop() == RESHARD_ERR_INVALID);
    }
    reshard_hook_remove(hook);
    reshard_module_release(module);
    a->modules[rank] = NULL;
    reshard_device_mesh_release(mesh);
    return status;
}

static reshard_status attempt_train(reshard_context *context, void *user)
{
    attempt a = {.context = context};
    (void)user;
    return run_attempt(&a, body_train, false);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void fail_each(context_attempt_fn attempted)
{
    words said = {""};
    int64_t step = harness_scale() < 1 ? 11 : 1;
    if (!context_fail_some(attempted, NULL, step, &said))
        fail_msg("%s", said.text);
}

static void test_shard__all_or_nothing(void **state)
{
    (void)state;
    fail_each(attempt_shard);
}

static void test_states__agreed(void **state)
{
    (void)state;
    fail_each(attempt_states);
}

static void test_checkpoint__agreed(void **state)
{
    (void)state;
    fail_each(attempt_checkpoint);
}

static void test_input_reshard__nobody_hangs(void **state)
{
    (void)state;
    fail_each(attempt_train);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shard__all_or_nothing),
        cmocka_unit_test(test_states__agreed),
        cmocka_unit_test(test_checkpoint__agreed),
        cmocka_unit_test(test_input_reshard__nobody_hangs),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
