/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_upstream_state.c - PyTorch's tests of state dicts with its sizes. Where it refuses ranks and
 * groups other than those that saved, the test shows that they work.
 */
#include "tests/nn/folder.h"
#include "tests/nn/modules.h"
#include "tests/tensor/ran_tensor.h"

static reshard_value pass_on(reshard_module *module, void *user, reshard_value input)
{
    (void)module;
    (void)user;
    return input;
}

/* Two tensors of 10x20, one in a submodule, and beside each a local one of 2x2; spec NULL: all
 * local. With numbers, or zeros. */
static reshard_module *make_model(reshard_group *group, const char *spec, bool numbers)
{
    reshard_module *model = make_module("model", pass_on), *sub = make_module("sub", pass_on);
    for (uint64_t i = 0; i < 2; i++) {
        reshard_tensor *tensor = make_zeros(RESHARD_F32, SHAPE(10, 20));
        if (numbers)
            MUST(reshard_tensor_fill_random(tensor, RESHARD_UNIFORM, i + 1));
        if (spec != NULL) {
            reshard_tensor *spread = distribute(group, spec, tensor);
            reshard_tensor_release(tensor);
            tensor = spread;
        }
        MUST(reshard_module_add_parameter(i == 0 ? model : sub,
                                          i == 0 ? "sharded_tensor1" : "sharded_tensor2", tensor));
        reshard_tensor_release(tensor);
    }
    for (uint64_t i = 0; i < 2; i++) {
        reshard_tensor *plain = make_zeros(RESHARD_F32, SHAPE(2, 2));
        if (numbers)
            MUST(reshard_tensor_fill_random(plain, RESHARD_UNIFORM, i + 3));
        MUST(reshard_module_add_parameter(i == 0 ? model : sub,
                                          i == 0 ? "random_tensor1" : "random_tensor2", plain));
        reshard_tensor_release(plain);
    }
    add_child(model, "submodule", sub);
    return model;
}

static bool has_numbers(reshard_tensor *found, uint64_t seed)
{
    reshard_tensor *expected = NULL;
    reshard_scope *scope = NULL;
    bool same = true;
    MUST(reshard_scope_open(NULL, &scope));
    MUST(reshard_tensor_create(NULL, RESHARD_F32, 2, reshard_tensor_shape(found), &expected));
    MUST(reshard_tensor_fill_random(expected, RESHARD_UNIFORM, seed));
    if (reshard_tensor_layout(found) != NULL)
        found = reshard_tensor_full(found);
    for (int64_t k = 0; k < reshard_tensor_volume(expected); k++)
        same = same && element(found, k) == element(expected, k);
    reshard_tensor_release(expected);
    MUST(reshard_scope_close(scope));
    return same;
}

/* Collective: all tensors are looked at, whatever the first ones hold. */
static bool is_model(reshard_module *model)
{
    static const char *const names[] = {"sharded_tensor1", "random_tensor1",
                                        "submodule.sharded_tensor2", "submodule.random_tensor2"};
    static const uint64_t seeds[] = {1, 3, 2, 4};
    reshard_named_tensors *list = NULL;
    MUST(reshard_module_state_dict(model, &list));
    bool same = list->count == 4;
    for (int64_t i = 0; i < 4 && list->count == 4; i++) {
        same = has_numbers(list->items[i].tensor, seeds[i]) && same;
        same = strcmp(list->items[i].name, names[i]) == 0 && same;
    }
    reshard_named_tensors_destroy(list);
    return same;
}

static reshard_status save(reshard_module *model, reshard_group *group, const char *path)
{
    reshard_checkpoint_save_options quick = {.size = sizeof quick, .no_sync = 1};
    reshard_named_tensors *list = NULL;
    MUST(reshard_module_state_dict(model, &list));
    reshard_status status =
        reshard_checkpoint_save_tensors(NULL, group, path, list->count, list->items, &quick);
    reshard_named_tensors_destroy(list);
    return status;
}

static reshard_status load(reshard_module *model, reshard_group *group, const char *path)
{
    reshard_named_tensors *list = NULL;
    reshard_checkpoint *checkpoint = NULL;
    MUST(reshard_module_state_dict(model, &list));
    reshard_status status = reshard_checkpoint_open(NULL, path, NULL, &checkpoint);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_load_tensors(checkpoint, group, list->count, list->items, NULL);
    reshard_checkpoint_destroy(checkpoint);
    reshard_named_tensors_destroy(list);
    return status;
}

/* As upstream does: inside load_with_process_group, where nothing names the group again. */
typedef struct loading {
    reshard_module *model;
    const char *path;
} loading;

static reshard_status load_here(void *user)
{
    const loading *l = user;
    return load(l->model, NULL, l->path);
}

/* Saved by these ranks, loaded by these; the ranks of a group are named by a list of the world's.
 * What upstream refuses, or cannot do, is in the last rows. */
typedef struct state_case {
    const char *name, *upstream;
    int32_t saver_count, savers[4];
    const char *saved;
    int32_t loader_count, loaders[4];
    const char *loaded; /* NULL: local tensors */
} state_case;

/* "f32 10x20 4: S(0), f32 2x2, ..": the tensors of a model. */
static void tell(const state_case *c, reshard_group *group, reshard_module *model, const char *does)
{
    reshard_named_tensors *list = NULL;
    char text[RAN_MAX] = "";
    MUST(reshard_module_state_dict(model, &list));
    for (int64_t i = 0; i < list->count; i++) {
        size_t used = strlen(text);
        (void)snprintf(text + used, sizeof text - used, "%s%.90s", i > 0 ? ", " : "",
                       ran_tensor(list->items[i].tensor).text);
    }
    ran_here(group, c->upstream, "%s %s by %d ranks", does, text, (int)reshard_group_size(group));
    reshard_named_tensors_destroy(list);
}

static reshard_status body_state(void *user, reshard_group *group)
{
    const state_case *c = user;
    char path[64];
    reshard_group *savers = NULL, *loaders = NULL;
    (void)snprintf(path, sizeof path, "%s/%s", folder, c->name);
    TRY(reshard_group_subset(group, c->saver_count, c->savers, &savers));
    TRY(reshard_group_subset(group, c->loader_count, c->loaders, &loaders));
    if (savers != NULL) {
        reshard_module *model = make_model(savers, c->saved, true);
        CHECK(is_model(model));
        TRY(save(model, savers, path));
        tell(c, savers, model, "saved");
        reshard_module_release(model);
    }
    TRY(reshard_group_barrier(group));
    if (loaders != NULL) {
        reshard_module *model = make_model(loaders, c->loaded, false);
        CHECK(!is_model(model));
        loading l = {model, path};
        TRY(reshard_load_with_group(loaders, load_here, &l));
        tell(c, loaders, model, "loaded");
        CHECK(is_model(model));
        reshard_module_release(model);
    }
    reshard_group_release(savers);
    reshard_group_release(loaders);
    return RESHARD_OK;
}

static void test_state_dict__saved_and_loaded(void **state)
{
    (void)state;
    static state_case rows[] = {
        {"state_dict", "test_state_dict", 4, {0, 1, 2, 3}, "4: S(0)", 4, {0, 1, 2, 3}, "4: S(0)"},
        {"new_group",
         "test_state_dict_new_group",
         2,
         {2, 3},
         "4[0,1,0,1]: S(0)",
         2,
         {2, 3},
         "4[0,1,0,1]: S(0)"},
        /* other group ranks and sizes, other cuts */
        {"group_ranks",
         "test_load_state_dict_errors",
         4,
         {0, 1, 2, 3},
         "4: S(0)",
         3,
         {0, 2, 3},
         "3: S(0)"},
        {"group_size", NULL, 2, {2, 3}, "2: S(0)", 4, {0, 1, 2, 3}, "4[3,1,0,2]: S(1)"},
        {"empty_shards", NULL, 3, {0, 2, 3}, "3: S(1)", 2, {1, 3}, "2: S(0=0,10)"},
        /* no group but itself, and tensors that are no shards */
        {"alone", NULL, 4, {0, 1, 2, 3}, "4: S(0)", 1, {2}, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run_ranks(4, body_state, &rows[i]);
}

/* Between live modules: over one group in any layouts, over another one an error on all ranks. */
static reshard_status body_state_errors(void *user, reshard_group *group)
{
    const int32_t ranks[] = {0, 2, 3};
    reshard_group *three = NULL;
    reshard_named_tensors *list = NULL;
    reshard_module *model = make_model(group, "4: S(0)", true);
    reshard_module *columns = make_model(group, "4: S(1)", false);
    reshard_spec *spec = make_spec("3: S(0)");
    (void)user;
    MUST(reshard_module_state_dict(model, &list));
    TRY(reshard_module_load_state_dict(columns, 4, list->items, NULL));
    CHECK(is_model(columns));
    TRY(reshard_group_subset(group, 3, ranks, &three));
    if (three != NULL) {
        reshard_module *other = make_model(three, "3: S(0)", true);
        CHECK(reshard_module_load_state_dict(other, 4, list->items, NULL) == RESHARD_ERR_INVALID);
        CHECK(strstr(reshard_error_text(), "\"sharded_tensor1\" is distributed over another") !=
              NULL);
        CHECK(is_model(other));
        reshard_module_release(other);
    }
    /* no group at all */
    reshard_module *local = make_model(NULL, NULL, true);
    CHECK(reshard_module_shard_parameter(local, "sharded_tensor1", spec, 0, NULL) ==
          RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(), "no group is given") != NULL);
    CHECK(is_model(local));
    reshard_named_tensors_destroy(list);
    reshard_spec_release(spec);
    reshard_module_release(local);
    reshard_module_release(model);
    reshard_module_release(columns);
    reshard_group_release(three);
    return RESHARD_OK;
}

static void test_state_dict__errors(void **state)
{
    (void)state;
    run_ranks(4, body_state_errors, NULL);
}

/* A plain module, without any group: its own tensors, in order, and back. */
static void test_state_dict__no_sharded_tensors(void **state)
{
    (void)state;
    reshard_layer_options options = {.size = sizeof options, .dtype = RESHARD_F32, .seed = 1};
    reshard_module *source = NULL, *target = NULL;
    reshard_named_tensors *list = NULL;
    reshard_tensor *weight = NULL;
    MUST(reshard_linear_create(NULL, 10, 10, &options, &source));
    options.seed = 2;
    MUST(reshard_linear_create(NULL, 10, 10, &options, &target));
    MUST(reshard_module_state_dict(source, &list));
    assert_int_equal(list->count, 2);
    assert_string_equal(list->items[0].name, "weight");
    assert_string_equal(list->items[1].name, "bias");
    MUST(reshard_module_find_tensor(source, "weight", &weight));
    assert_ptr_equal(list->items[0].tensor, weight);
    MUST(reshard_module_load_state_dict(target, list->count, list->items, NULL));
    MUST(reshard_module_find_tensor(target, "weight", &weight));
    assert_memory_equal(reshard_tensor_data(weight), reshard_tensor_data(list->items[0].tensor),
                        100 * sizeof(float));
    ran("test_state_dict_no_sharded_tensors", "%s, %s", ran_tensor(list->items[0].tensor).text,
        ran_tensor(list->items[1].tensor).text);
    reshard_named_tensors_destroy(list);
    reshard_module_release(source);
    reshard_module_release(target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_dict__saved_and_loaded),
        cmocka_unit_test(test_state_dict__errors),
        cmocka_unit_test(test_state_dict__no_sharded_tensors),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
