/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_shard.c - PyTorch's tests of shard_parameter, sharding plans, sharders and state dicts,
 * restated; and a test for each defect of theirs.
 */
#include "tests/nn/meshes.h"
#include "tests/support/info.h"
#include "tests/tensor/ran_tensor.h"

/* ---- small modules --------------------------------------------------------------------------- */

static reshard_module *make_linear(int64_t inputs, int64_t outputs, uint64_t seed)
{
    reshard_layer_options options = {.size = sizeof options, .dtype = RESHARD_F32, .seed = seed};
    reshard_module *linear = NULL;
    MUST(reshard_linear_create(NULL, inputs, outputs, &options, &linear));
    return linear;
}

static reshard_value forward_first(reshard_module *module, void *user, reshard_value input)
{
    (void)user;
    return reshard_module_child(module, 0, NULL) != NULL
               ? reshard_module_call(reshard_module_child(module, 0, NULL), input)
               : input;
}

static reshard_module *make_parent(void)
{
    reshard_module_kind kind = {.name = "parent", .forward = forward_first};
    reshard_module *module = NULL;
    MUST(reshard_module_create(NULL, &kind, &module));
    return module;
}

/* fc1 17 -> 12, fc2 12 -> 29, and fc10, of which fc1 is a prefix as text. */
static reshard_module *make_megatron(void)
{
    static const char *const names[] = {"fc1", "fc2", "fc10"};
    static const int64_t sizes[][2] = {{17, 12}, {12, 29}, {29, 8}};
    reshard_module *parent = make_parent();
    for (int i = 0; i < 3; i++) {
        reshard_module *linear = make_linear(sizes[i][0], sizes[i][1], (uint64_t)i);
        MUST(reshard_module_add_child(parent, names[i], linear));
        reshard_module_release(linear);
    }
    return parent;
}

static reshard_tensor *parameter_of(reshard_module *module, const char *path)
{
    reshard_tensor *tensor = NULL;
    MUST(reshard_module_find_tensor(module, path, &tensor));
    return tensor;
}

/* The same elements as those of a local tensor from row `first` on. */
static bool rows_equal(const reshard_tensor *shard, const reshard_tensor *whole, int64_t first)
{
    int64_t width = reshard_tensor_shape(whole)[1];
    bool same = true;
    for (int64_t i = 0; i < reshard_tensor_volume(shard); i++)
        same = same && element(shard, i) == element(whole, first * width + i);
    return same;
}

static bool is_local(reshard_module *module, const char *path)
{
    return reshard_tensor_layout(parameter_of(module, path)) == NULL;
}

/* ---- shard_parameter ------------------------------------------------------------------------- */

static reshard_status body_parameter(void *user, reshard_group *group)
{
    int32_t rank = reshard_group_rank(group);
    /* Ranks start with different weights: those of the source count. */
    reshard_module *linear = make_linear(12, 12, (uint64_t)rank), *source = make_linear(12, 12, 2);
    reshard_spec *spec = make_spec("4: S(0)");
    (void)user;
    TRY(reshard_module_shard_parameter(linear, "weight", spec, 2, group));
    reshard_tensor *weight = parameter_of(linear, "weight");
    reshard_tensor *shard = reshard_tensor_local_shard(weight, 0);
    CHECK(info_tensor(weight).requires_grad);
    CHECK(reshard_tensor_shape(shard)[0] == 3 && reshard_tensor_shape(shard)[1] == 12);
    CHECK(rows_equal(shard, parameter_of(source, "weight"), rank * 3));
    CHECK(is_local(linear, "bias"));
    ran_here(group, "test_shard_parameter", "%s", ran_tensor(weight).text);

    /* twice; a name that is not there; another source on one rank; another spec on one rank */
    CHECK(reshard_module_shard_parameter(linear, "weight", spec, 2, group) == RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(), "distributed already") != NULL);
    CHECK(reshard_module_shard_parameter(linear, "foo", spec, 0, group) == RESHARD_ERR_NOT_FOUND);
    CHECK(strstr(reshard_error_text(), "\"foo\"") != NULL);
    CHECK(reshard_module_shard_parameter(source, "weight", spec, rank == 1, group) ==
          RESHARD_ERR_MISMATCH);
    CHECK(strstr(reshard_error_text(), "rank 1: rank 1 as the source, but rank 0: rank 0 as"));
    reshard_spec *other = make_spec("4: S(1)");
    CHECK(reshard_module_shard_parameter(source, "weight", rank == 3 ? other : spec, 0, group) ==
          RESHARD_ERR_MISMATCH);
    CHECK(strstr(reshard_error_text(), "\"4: S(0)\"") != NULL);
    CHECK(strstr(reshard_error_text(), "rank 3") && strstr(reshard_error_text(), "\"4: S(1)\""));
    CHECK(is_local(source, "weight"));
    /* one rank alone is wrong: all hear of it, and nobody waits */
    CHECK(reshard_module_shard_parameter(source, rank == 2 ? "foo" : "weight", spec, 0, group) !=
          RESHARD_OK);
    CHECK(strstr(reshard_error_text(), "rank 2") != NULL && is_local(source, "weight"));
    /* a spec for another number of dims, and for ranks that are not there */
    reshard_spec *wrong = make_spec("4: S(2)"), *many = make_spec("5: S(0)");
    CHECK(reshard_module_shard_parameter(source, "weight", wrong, 0, group) != RESHARD_OK);
    CHECK(reshard_module_shard_parameter(source, "weight", many, 0, group) == RESHARD_ERR_RANGE);
    CHECK(reshard_module_shard_parameter(source, "weight", NULL, 0, group) == RESHARD_ERR_INVALID);
    CHECK(reshard_module_shard_parameter(source, "weight", spec, 4, group) == RESHARD_ERR_RANGE);
    CHECK(is_local(source, "weight"));
    /* a parameter without a tensor */
    reshard_layer_options bare = {.size = sizeof bare, .dtype = RESHARD_F32, .no_bias = 1};
    reshard_module *without = NULL;
    MUST(reshard_linear_create(NULL, 12, 12, &bare, &without));
    CHECK(reshard_module_shard_parameter(without, "bias", spec, 0, group) == RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(), "\"bias\" has no tensor") != NULL);
    reshard_module_release(without);
    /* upstream's: every rank names itself as the source; boxes of another shape */
    CHECK(reshard_module_shard_parameter(source, "weight", spec, rank, group) ==
          RESHARD_ERR_MISMATCH);
    ran_here(group, "test_shard_parameter_errors", "%s %s, from each rank itself",
             ran_tensor(parameter_of(source, "weight")).text, ran_spec(spec).text);
    char texts[4][32];
    for (int r = 0; r < 4; r++)
        (void)snprintf(texts[r], sizeof texts[r], "4[%d,1,2,3]: S(0)", r);
    reshard_spec *own = make_spec(texts[rank]);
    CHECK(reshard_module_shard_parameter(source, "weight", own, 0, group) == RESHARD_ERR_MISMATCH);
    ran_here(group, "test_shard_parameter_errors", "%s %s, %s, %s, %s",
             ran_tensor(parameter_of(source, "weight")).text, texts[0], texts[1], texts[2],
             texts[3]);
    reshard_spec_release(own);
    reshard_spec *few = make_spec("boxes 10x5: 0[0:5,0:5] 1[5:10,0:5]");
    CHECK(reshard_module_shard_parameter(source, "weight", few, 0, group) != RESHARD_OK);
    CHECK(strstr(reshard_error_text(), "10x5") != NULL && is_local(source, "weight"));
    ran_here(group, "test_shard_parameter_errors", "%s %s",
             ran_tensor(parameter_of(source, "weight")).text, ran_spec(few).text);
    reshard_spec_release(few);
    /* boxes of any kind are fine here */
    reshard_spec *boxes = make_spec("boxes 12x12: 0[0:5,0:12] 1[5:12,0:3] 3[5:12,3:12]");
    TRY(reshard_module_shard_parameter(source, "weight", boxes, 0, group));
    CHECK(info_tensor(parameter_of(source, "weight")).local_shard_count == (rank != 2));
    reshard_spec_release(boxes);
    reshard_spec_release(many);
    reshard_spec_release(wrong);
    reshard_spec_release(other);
    reshard_spec_release(spec);
    reshard_module_release(source);
    reshard_module_release(linear);
    return RESHARD_OK;
}

static void test_shard_parameter__values_and_errors(void **state)
{
    (void)state;
    run_ranks(4, body_parameter, NULL);
}

/* Frozen stays frozen, tied stays tied, a buffer is refused and not touched, what is not dense is
 * taken as it reads. */
static reshard_status body_side_effects(void *user, reshard_group *group)
{
    reshard_module *parent = make_megatron(), *tied = make_parent();
    reshard_tensor *weight = parameter_of(parent, "fc1.weight"), *buffer = NULL, *turned = NULL;
    reshard_spec *spec = make_spec("4: S(0)");
    (void)user;
    MUST(reshard_module_add_parameter(tied, "again", weight));
    MUST(reshard_module_add_buffer(tied, "mean", weight, 0));
    MUST(reshard_module_add_child(parent, "tied", tied));
    MUST(reshard_tensor_set_requires_grad(weight, 0));
    CHECK(reshard_module_shard_parameter(parent, "tied.mean", spec, 0, group) ==
          RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(), "\"tied.mean\" is a buffer, not a parameter") != NULL);
    reshard_sharding_plan *twice = NULL;
    MUST(reshard_sharding_plan_create(NULL, &twice));
    MUST(reshard_sharding_plan_add(twice, "fc1.weight", spec));
    MUST(reshard_sharding_plan_add(twice, "tied.again", spec));
    CHECK(reshard_module_shard(parent, twice, 0, group, NULL) == RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(), "\"fc1.weight\" and \"tied.again\" are one") != NULL);
    CHECK(is_local(parent, "fc1.weight") && is_local(parent, "tied.again"));
    reshard_sharding_plan_destroy(twice);
    TRY(reshard_module_shard_parameter(parent, "fc1.weight", spec, 0, group));
    reshard_tensor *made = parameter_of(parent, "fc1.weight");
    CHECK(reshard_tensor_layout(made) != NULL && !info_tensor(made).requires_grad);
    CHECK(parameter_of(parent, "tied.again") == made);
    MUST(reshard_module_find_tensor(parent, "tied.mean", &buffer));
    CHECK(reshard_tensor_layout(buffer) == NULL);

    int64_t strides[] = {1, 10};
    float numbers[100];
    for (int i = 0; i < 100; i++)
        numbers[i] = (float)i;
    MUST(reshard_tensor_borrow(NULL, RESHARD_F32, SHAPE(10, 10), strides, numbers, NULL, NULL,
                               &turned));
    MUST(reshard_module_replace_parameter(parent, "fc2.weight", turned));
    TRY(reshard_module_shard_parameter(parent, "fc2.weight", spec, 0, group));
    reshard_tensor *shard = reshard_tensor_local_shard(parameter_of(parent, "fc2.weight"), 0);
    CHECK(rows_equal(shard, turned, 3 * reshard_group_rank(group)));
    ran_here(group, "test_shard_parameter_errors", "%s %s, transposed", ran_tensor(turned).text,
             ran_spec(spec).text);
    reshard_tensor_release(turned);
    reshard_spec_release(spec);
    reshard_module_release(tied);
    reshard_module_release(parent);
    return RESHARD_OK;
}

static void test_shard_parameter__side_effects(void **state)
{
    (void)state;
    run_ranks(4, body_side_effects, NULL);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static reshard_status make_nothing(void *user, reshard_module *module, reshard_group *group,
                                   reshard_module **out_module)
{
    (void)module;
    (void)group;
    (*(int *)user)++;
    *out_module = make_parent();
    return RESHARD_OK;
}

/* One entry too many in a plan that is right without it: nothing may have changed. */
typedef struct wrong_plan {
    const char *name;
    const char *parameter, *output, *local, *sharder; /* of which one is wrong */
    reshard_status status;
    const char *words;
} wrong_plan;

static reshard_status body_wrong_plan(void *user, reshard_group *group)
{
    const wrong_plan *wrong = user;
    int calls = 0;
    reshard_module *module = make_megatron();
    reshard_sharding_plan *plan = NULL;
    reshard_spec *rows = make_spec("4: S(1)");
    reshard_sharder sharder = {make_nothing, &calls};
    reshard_hook *hook = NULL;
    MUST(reshard_module_add_buffer(reshard_module_child(module, 2, NULL), "mean",
                                   parameter_of(module, "fc10.bias"), 0));
    MUST(reshard_sharding_plan_create(NULL, &plan));
    MUST(reshard_sharding_plan_add(plan, "fc1.weight", rows));
    MUST(reshard_sharding_plan_add_module(
        plan, "fc1", RESHARD_OPTIONS(reshard_sharding_module, .output = rows)));
    MUST(reshard_sharding_plan_add_module(
        plan, "fc2", RESHARD_OPTIONS(reshard_sharding_module, .sharder = &sharder)));
    if (wrong->parameter != NULL)
        MUST(reshard_sharding_plan_add(plan, wrong->parameter, rows));
    if (wrong->output != NULL)
        MUST(reshard_sharding_plan_add_module(
            plan, wrong->output, RESHARD_OPTIONS(reshard_sharding_module, .output = rows)));
    if (wrong->local != NULL)
        MUST(reshard_sharding_plan_add_module(
            plan, wrong->local, RESHARD_OPTIONS(reshard_sharding_module, .local_output = 1)));
    if (wrong->sharder != NULL)
        MUST(reshard_sharding_plan_add_module(
            plan, wrong->sharder, RESHARD_OPTIONS(reshard_sharding_module, .sharder = &sharder)));
    CHECK(reshard_module_shard(module, plan, 0, group, &hook) == wrong->status);
    CHECK(strstr(reshard_error_text(), wrong->words) != NULL);
    if (wrong->parameter != NULL)
        ran_here(group, "test_sharding_plan_errors", "%s, %s, %s %s",
                 ran_tensor(parameter_of(module, "fc1.weight")).text,
                 ran_tensor(parameter_of(module, "fc2.weight")).text, wrong->parameter,
                 ran_spec(rows).text);
    CHECK(hook == NULL && calls == 0 && is_local(module, "fc1.weight"));
    CHECK(strcmp(reshard_module_kind_name(reshard_module_child(module, 1, NULL)), "linear") == 0);
    reshard_sharding_plan_destroy(plan);
    reshard_spec_release(rows);
    reshard_module_release(module);
    return RESHARD_OK;
}

static void test_plan__all_or_nothing(void **state)
{
    (void)state;
    static wrong_plan rows[] = {
        {"no module", "fc3.weight", NULL, NULL, NULL, RESHARD_ERR_NOT_FOUND, "fc3"},
        {"a buffer", "fc10.mean", NULL, NULL, NULL, RESHARD_ERR_INVALID, "mean"},
        {"no parameter", "fc10.foo", NULL, NULL, NULL, RESHARD_ERR_NOT_FOUND, "foo"},
        {"upstream's", "fc1.biass", NULL, NULL, NULL, RESHARD_ERR_NOT_FOUND, "biass"},
        {"a module", "fc10", NULL, NULL, NULL, RESHARD_ERR_NOT_FOUND, "a module"},
        {"twice", "fc1.weight", NULL, NULL, NULL, RESHARD_ERR_INVALID, "sharded once"},
        {"empty", "", NULL, NULL, NULL, RESHARD_ERR_INVALID, "empty"},
        {"below", "fc2.weight", NULL, NULL, NULL, RESHARD_ERR_INVALID, "lies below \"fc2\""},
        {"no output", NULL, "fc3", NULL, NULL, RESHARD_ERR_NOT_FOUND, "fc3"},
        {"output of a tensor", NULL, "fc1.weight", NULL, NULL, RESHARD_ERR_NOT_FOUND, "tensor"},
        {"output twice", NULL, "fc1", NULL, NULL, RESHARD_ERR_INVALID, "\"fc1\" is named twice"},
        {"no local", NULL, NULL, "fc3", NULL, RESHARD_ERR_NOT_FOUND, "fc3"},
        {"root sharder", NULL, NULL, NULL, "", RESHARD_ERR_INVALID, "empty"},
        {"sharder of none", NULL, NULL, NULL, "fc3", RESHARD_ERR_NOT_FOUND, "fc3"},
        {"sharder twice", NULL, NULL, NULL, "fc2", RESHARD_ERR_INVALID, "lies below"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run_ranks(4, body_wrong_plan, &rows[i]);
}

static void test_plan__wrong_kinds_of_entries(void **state)
{
    (void)state;
    reshard_sharding_plan *plan = NULL;
    MUST(reshard_sharding_plan_create(NULL, &plan));
    assert_int_equal(reshard_sharding_plan_add(plan, "a", NULL), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "\"a\""));
    assert_int_equal(reshard_sharding_plan_add_module(
                         plan, "a", RESHARD_OPTIONS(reshard_sharding_module, .output = NULL)),
                     RESHARD_ERR_INVALID);
    assert_int_equal(reshard_sharding_plan_add_module(
                         plan, "a", RESHARD_OPTIONS(reshard_sharding_module, .sharder = NULL)),
                     RESHARD_ERR_INVALID);
    assert_int_equal(reshard_sharding_plan_add_module(
                         plan, NULL, RESHARD_OPTIONS(reshard_sharding_module, .local_output = 1)),
                     RESHARD_ERR_INVALID);
    reshard_sharding_plan_destroy(plan);
}

/* fc1 has a sharder, and fc10 a parameter entry; fc1's replacement really takes its place; nested
 * sharders are found; the same plan again is an error. */
static reshard_status body_sharder(void *user, reshard_group *group)
{
    int calls = 0;
    reshard_module *module = make_megatron(), *old = reshard_module_child(module, 0, NULL);
    reshard_sharding_plan *plan = NULL, *nested = NULL;
    int32_t size = reshard_group_size(group);
    char text[32];
    (void)user;
    (void)snprintf(text, sizeof text, "%d: S(0)", (int)size);
    reshard_spec *rows = make_spec(text);
    reshard_sharder sharder = {make_nothing, &calls};
    reshard_hook *hook = NULL;
    MUST(reshard_sharding_plan_create(NULL, &plan));
    MUST(reshard_sharding_plan_add(plan, "fc10.weight", rows));
    MUST(reshard_sharding_plan_add_module(
        plan, "fc1", RESHARD_OPTIONS(reshard_sharding_module, .sharder = &sharder)));
    MUST(reshard_sharding_plan_add_module(
        plan, "fc2", RESHARD_OPTIONS(reshard_sharding_module, .sharder = &sharder)));
    (void)reshard_module_retain(old);
    TRY(reshard_module_shard(module, plan, 0, group, &hook));
    CHECK(calls == 2 && hook == NULL && reshard_module_child(module, 3, NULL) == NULL);
    CHECK(reshard_module_child(module, 0, NULL) != old);
    CHECK(strcmp(reshard_module_kind_name(reshard_module_child(module, 0, NULL)), "parent") == 0);
    CHECK(strcmp(reshard_module_kind_name(reshard_module_child(module, 1, NULL)), "parent") == 0);
    CHECK(!is_local(module, "fc10.weight"));
    reshard_module_release(old);
    CHECK(reshard_module_shard(module, plan, 0, group, &hook) != RESHARD_OK && calls == 2);
    CHECK(strstr(reshard_error_text(), "\"fc10.weight\" is distributed already") != NULL);

    reshard_module *outer = make_parent(), *inner = make_megatron();
    MUST(reshard_module_add_child(outer, "a", inner));
    MUST(reshard_sharding_plan_create(NULL, &nested));
    MUST(reshard_sharding_plan_add_module(
        nested, "a", RESHARD_OPTIONS(reshard_sharding_module, .sharder = &sharder)));
    MUST(reshard_sharding_plan_add_module(
        nested, "a.fc1", RESHARD_OPTIONS(reshard_sharding_module, .sharder = &sharder)));
    CHECK(reshard_module_shard(outer, nested, 0, group, NULL) == RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(), "\"a.fc1\" lies below \"a\"") != NULL && calls == 2);
    reshard_sharding_plan_destroy(nested);
    reshard_sharding_plan_destroy(plan);
    reshard_spec_release(rows);
    reshard_module_release(inner);
    reshard_module_release(outer);
    reshard_module_release(module);
    return RESHARD_OK;
}

static void test_sharder__replaces_by_path(void **state)
{
    (void)state;
    for (int32_t size = 1; size <= 4; size++)
        run_ranks(size, body_sharder, NULL);
}

/* ---- several plans --------------------------------------------------------------------------- */

/* A plan of one entry: p(arameter), o(utput), l(ocal) or s(harder). */
static reshard_status shard_one(reshard_module *module, char kind, const char *name,
                                reshard_group *group, reshard_hook **out_hook)
{
    int calls = 0;
    reshard_sharder sharder = {make_nothing, &calls};
    reshard_sharding_plan *plan = NULL;
    reshard_spec *rows = make_spec("2: S(0)");
    MUST(reshard_sharding_plan_create(NULL, &plan));
    if (kind == 'p')
        MUST(reshard_sharding_plan_add(plan, name, rows));
    else if (kind == 'o')
        MUST(reshard_sharding_plan_add_module(
            plan, name, RESHARD_OPTIONS(reshard_sharding_module, .output = rows)));
    else if (kind == 'l')
        MUST(reshard_sharding_plan_add_module(
            plan, name, RESHARD_OPTIONS(reshard_sharding_module, .local_output = 1)));
    else
        MUST(reshard_sharding_plan_add_module(
            plan, name, RESHARD_OPTIONS(reshard_sharding_module, .sharder = &sharder)));
    reshard_status status = reshard_module_shard(module, plan, 0, group, out_hook);
    reshard_sharding_plan_destroy(plan);
    reshard_spec_release(rows);
    return status;
}

/* One plan after the other on one module; the words of the one that is refused, if one is. */
typedef struct sequence {
    const char *first, *second; /* the kind, then the name */
    const char *words;
} sequence;

static reshard_status body_sequence(void *user, reshard_group *group)
{
    const sequence *s = user;
    reshard_module *module = make_parent(), *inner = make_megatron();
    reshard_hook *hook = NULL;
    MUST(reshard_module_add_child(module, "a", inner));
    TRY(shard_one(module, s->first[0], s->first + 1, group, &hook));
    reshard_status status = shard_one(module, s->second[0], s->second + 1, group, NULL);
    CHECK(status == (s->words != NULL ? RESHARD_ERR_INVALID : RESHARD_OK));
    CHECK(s->words == NULL || strstr(reshard_error_text(), s->words) != NULL);
    /* A hook that is gone overlaps with nothing. */
    bool hooked = s->first[0] == 'o' || s->first[0] == 'l';
    CHECK((hook != NULL) == hooked);
    reshard_hook_remove(hook);
    if (hooked && s->words != NULL)
        TRY(shard_one(module, s->second[0], s->second + 1, group, NULL));
    reshard_module_release(inner);
    reshard_module_release(module);
    return RESHARD_OK;
}

static void test_plan__several_compose_unless_they_overlap(void **state)
{
    (void)state;
    static sequence rows[] = {
        {"pa.fc1.weight", "pa.fc1.bias", NULL},
        {"pa.fc1.weight", "oa.fc1", NULL},
        {"oa.fc1", "oa.fc2", NULL},
        {"oa.fc1", "la.fc1", NULL},
        {"sa.fc1", "pa.fc10.weight", NULL},
        {"sa.fc1", "sa.fc10", NULL},
        {"pa.fc1.weight", "sa.fc10", NULL},
        {"pa.fc1.weight", "pa.fc1.weight", "\"a.fc1.weight\" is distributed already"},
        {"oa.fc1", "oa.fc1", "an earlier plan has a hook on the output of \"a.fc1\""},
        {"la.fc1", "oa.fc1", "an earlier plan has a hook on the output of \"a.fc1\""},
        {"la.fc1", "la.fc1", "an earlier plan has a hook on the output of \"a.fc1\""},
        {"sa.fc1", "sa.fc1", "\"a.fc1\" was replaced by the sharder of an earlier plan"},
        {"pa.fc1.weight", "sa.fc1", "an earlier plan sharded \"a.fc1.weight\""},
        {"pa.fc1.weight", "sa", "an earlier plan sharded \"a.fc1.weight\""},
        {"sa.fc1", "sa", "an earlier plan sharded \"a.fc1\""},
        {"oa.fc1", "sa", "an earlier plan has a hook on the output of \"a.fc1\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run_ranks(2, body_sequence, &rows[i]);
}

/* What an earlier sharder put in place is its own affair. */
static reshard_status give_megatron(void *user, reshard_module *module, reshard_group *group,
                                    reshard_module **out_module)
{
    (void)user;
    (void)module;
    (void)group;
    *out_module = make_megatron();
    return RESHARD_OK;
}

static reshard_status body_below_replaced(void *user, reshard_group *group)
{
    reshard_module *module = make_megatron();
    reshard_sharder sharder = {give_megatron, NULL};
    reshard_sharding_plan *plan = NULL;
    (void)user;
    MUST(reshard_sharding_plan_create(NULL, &plan));
    MUST(reshard_sharding_plan_add_module(
        plan, "fc2", RESHARD_OPTIONS(reshard_sharding_module, .sharder = &sharder)));
    TRY(reshard_module_shard(module, plan, 0, group, NULL));
    CHECK(shard_one(module, 'p', "fc2.fc1.weight", group, NULL) == RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(),
                 "\"fc2.fc1.weight\" lies below \"fc2\", which the sharder") != NULL);
    reshard_sharding_plan_destroy(plan);
    reshard_module_release(module);
    return RESHARD_OK;
}

static void test_plan__below_a_replaced_module(void **state)
{
    (void)state;
    run_ranks(2, body_below_replaced, NULL);
}

/* A module that would contain itself is refused, even if it is not the root. */
static reshard_status give_user(void *user, reshard_module *module, reshard_group *group,
                                reshard_module **out_module)
{
    (void)module;
    (void)group;
    *out_module = reshard_module_retain(user);
    return RESHARD_OK;
}

static reshard_status body_cycle(void *user, reshard_group *group)
{
    reshard_module *outer = make_parent(), *inner = make_megatron();
    reshard_module *child = reshard_module_child(inner, 0, NULL);
    reshard_sharder sharder = {give_user, inner};
    reshard_sharding_plan *plan = NULL;
    (void)user;
    MUST(reshard_module_add_child(outer, "a", inner));
    MUST(reshard_sharding_plan_create(NULL, &plan));
    MUST(reshard_sharding_plan_add_module(
        plan, "a.fc1", RESHARD_OPTIONS(reshard_sharding_module, .sharder = &sharder)));
    CHECK(reshard_module_shard(outer, plan, 0, group, NULL) == RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(), "the sharder gave a module that would contain itself") !=
          NULL);
    CHECK(reshard_module_child(inner, 0, NULL) == child);
    reshard_sharding_plan_destroy(plan);
    reshard_module_release(inner);
    reshard_module_release(outer);
    return RESHARD_OK;
}

static void test_sharder__cannot_make_a_cycle(void **state)
{
    (void)state;
    run_ranks(2, body_cycle, NULL);
}

/* A planner that cuts all parameters along dim 0, on a sub-group that is the current one. */
static reshard_status build_rows(void *user, reshard_module *module, reshard_sharding_plan *plan)
{
    reshard_named_tensors *list = NULL;
    reshard_status status = reshard_module_parameters(module, &list);
    for (int64_t i = 0; status == RESHARD_OK && i < list->count; i++)
        status = reshard_sharding_plan_add(plan, list->items[i].name, user);
    reshard_named_tensors_destroy(list);
    return status;
}

static reshard_status use_current(void *user)
{
    reshard_module *module = user;
    reshard_spec *rows = make_spec("2: S(0)");
    reshard_sharding_planner planner = {build_rows, rows};
    CHECK(reshard_load_with_group(reshard_current_group(), use_current, user) ==
          RESHARD_ERR_INVALID); /* no nesting */
    TRY(reshard_module_shard_planned(module, &planner, 0, NULL, NULL));
    CHECK(info_tensor(parameter_of(module, "fc1.weight")).group == reshard_current_group());
    reshard_spec_release(rows);
    return RESHARD_OK;
}

static reshard_status fail_inside(void *user)
{
    (void)user;
    return reshard_error_set(RESHARD_ERR_IO, "inside");
}

static reshard_status body_planner(void *user, reshard_group *group)
{
    const int32_t ranks[] = {2, 3};
    reshard_group *pair = NULL;
    reshard_module *module = make_megatron(), *same = make_megatron();
    (void)user;
    TRY(reshard_group_subset(group, 2, ranks, &pair));
    CHECK(reshard_current_group() == NULL);
    CHECK(reshard_load_with_group(NULL, use_current, module) == RESHARD_ERR_INVALID);
    CHECK(reshard_module_shard_planned(module, &(reshard_sharding_planner){build_rows, NULL}, 0,
                                       NULL, NULL) == RESHARD_ERR_INVALID); /* no group at all */
    if (pair != NULL) {
        TRY(reshard_load_with_group(pair, use_current, module));
        CHECK(reshard_current_group() == NULL);
        CHECK(reshard_load_with_group(pair, fail_inside, NULL) == RESHARD_ERR_IO);
        CHECK(reshard_current_group() == NULL); /* cleared after a failure too */
        reshard_tensor *shard = reshard_tensor_local_shard(parameter_of(module, "fc2.weight"), 0);
        CHECK(reshard_tensor_shape(shard)[0] == (reshard_group_rank(pair) == 0 ? 15 : 14));
        CHECK(rows_equal(shard, parameter_of(same, "fc2.weight"), 15 * reshard_group_rank(pair)));
    } else {
        CHECK(is_local(module, "fc2.weight"));
    }
    /* and over all ranks: every parameter is cut */
    reshard_spec *rows = make_spec("4: S(0)");
    reshard_named_tensors *list = NULL;
    TRY(reshard_module_shard_planned(same, &(reshard_sharding_planner){build_rows, rows}, 0, group,
                                     NULL));
    MUST(reshard_module_parameters(same, &list));
    CHECK(list->count == 6);
    for (int64_t i = 0; i < list->count; i++) {
        CHECK(reshard_tensor_layout(list->items[i].tensor) != NULL);
        ran_here(group, "test_custom_sharding_planner", "%s %s", list->items[i].name,
                 ran_tensor(list->items[i].tensor).text);
    }
    reshard_named_tensors_destroy(list);
    reshard_spec_release(rows);
    reshard_module_release(module);
    reshard_module_release(same);
    reshard_group_release(pair);
    return RESHARD_OK;
}

/* test_shard_module_sub_process_group: weights alone, rows of the one and columns of the other. */
static reshard_status body_pair(void *user, reshard_group *group)
{
    static const int32_t ranks[] = {2, 3};
    static const char *const names[] = {"fc1.weight", "fc2.weight"};
    static const char *const specs[] = {"2: S(0)", "2: S(1)"};
    reshard_group *pair = NULL;
    reshard_module *module = make_megatron(), *same = make_megatron();
    reshard_sharding_plan *plan = NULL;
    (void)user;
    TRY(reshard_group_subset(group, 2, ranks, &pair));
    MUST(reshard_sharding_plan_create(NULL, &plan));
    for (int i = 0; i < 2; i++) {
        reshard_spec *spec = make_spec(specs[i]);
        MUST(reshard_sharding_plan_add(plan, names[i], spec));
        reshard_spec_release(spec);
    }
    if (pair != NULL) {
        int32_t rank = reshard_group_rank(pair);
        TRY(reshard_module_shard(module, plan, 0, pair, NULL));
        for (int i = 0; i < 2; i++) {
            const reshard_tensor *weight = parameter_of(module, names[i]);
            const reshard_tensor *whole = parameter_of(same, names[i]);
            const reshard_tensor *shard = reshard_tensor_local_shard(weight, 0);
            int64_t rows = reshard_tensor_shape(shard)[0], columns = reshard_tensor_shape(shard)[1];
            CHECK(rows == (i == 0 ? 6 : 29) && columns == (i == 0 ? 17 : 6));
            for (int64_t k = 0; k < rows * columns; k++) {
                int64_t row = k / columns + (i == 0 ? 6 * rank : 0);
                int64_t column = k % columns + (i == 0 ? 0 : 6 * rank);
                CHECK(element(shard, k) ==
                      element(whole, row * reshard_tensor_shape(whole)[1] + column));
            }
            ran_here(pair, "test_shard_module_sub_process_group", "%s %s of 2,3", names[i],
                     ran_tensor(weight).text);
        }
    }
    reshard_sharding_plan_destroy(plan);
    reshard_module_release(module);
    reshard_module_release(same);
    reshard_group_release(pair);
    return reshard_group_barrier(group);
}

static void test_planner__sub_group_and_current_group(void **state)
{
    (void)state;
    run_ranks(4, body_planner, NULL);
    run_ranks(4, body_pair, NULL);
}

/* ---- a plan that is used: forward as on one rank; state dicts across layouts ----------------- */

static reshard_status body_use(void *user, reshard_group *group)
{
    int32_t size = reshard_group_size(group);
    char rows_text[32], columns_text[32], whole_text[32];
    (void)snprintf(rows_text, sizeof rows_text, "%d: S(0)", (int)size);
    (void)snprintf(columns_text, sizeof columns_text, "%d: S(1)", (int)size);
    (void)snprintf(whole_text, sizeof whole_text, "%d: R", (int)size);
    reshard_spec *rows = make_spec(rows_text), *columns = make_spec(columns_text);
    reshard_spec *everywhere = make_spec(whole_text);
    reshard_layer_options options = {.size = sizeof options, .dtype = RESHARD_F64, .seed = 3};
    reshard_module *plain = NULL, *spread = NULL, *other = NULL;
    reshard_sharding_plan *plan = NULL;
    reshard_hook *hook = NULL;
    draw_state draw;
    draw_seed(&draw, 8);
    reshard_tensor *x = make_random(RESHARD_F64, &draw, SHAPE(5, 6));
    (void)user;
    MUST(reshard_mlp_create(NULL, 6, 7, RESHARD_ACTIVATION_RELU, &options, &plain));
    MUST(reshard_mlp_create(NULL, 6, 7, RESHARD_ACTIVATION_RELU, &options, &spread));
    MUST(reshard_sharding_plan_create(NULL, &plan));
    MUST(reshard_sharding_plan_add(plan, "fc1.weight", rows));
    MUST(reshard_sharding_plan_add(plan, "fc1.bias", rows));
    MUST(reshard_sharding_plan_add(plan, "fc2.weight", columns));
    MUST(reshard_sharding_plan_add_module(
        plan, "",
        RESHARD_OPTIONS(reshard_sharding_module,
                        .local_output = 1))); /* runs after the output is resharded */
    MUST(reshard_sharding_plan_add_module(
        plan, "", RESHARD_OPTIONS(reshard_sharding_module, .output = everywhere)));
    CHECK(reshard_module_shard(spread, plan, 0, group, &hook) == RESHARD_OK && hook != NULL);
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *a = reshard_module_forward(plain, x), *b = reshard_module_forward(spread, x);
    CHECK(a != NULL && b != NULL && reshard_tensor_layout(b) == NULL);
    for (int64_t i = 0; i < 30; i++) {
        double difference = element(a, i) - element(b, i);
        CHECK(difference < 1e-14 && difference > -1e-14);
    }
    MUST(reshard_scope_close(scope));
    reshard_hook_remove(hook);

    /* values of another seed, from local to cut, and back from cut to local */
    reshard_named_tensors *list = NULL;
    options.seed = 4;
    MUST(reshard_mlp_create(NULL, 6, 7, RESHARD_ACTIVATION_RELU, &options, &other));
    MUST(reshard_module_state_dict(other, &list));
    TRY(reshard_module_load_state_dict(spread, list->count, list->items, NULL));
    reshard_named_tensors_destroy(list);
    MUST(reshard_module_state_dict(spread, &list));
    TRY(reshard_module_load_state_dict(plain, list->count, list->items, NULL));
    reshard_named_tensors_destroy(list);
    CHECK(rows_equal(parameter_of(plain, "fc1.weight"), parameter_of(other, "fc1.weight"), 0));
    CHECK(rows_equal(parameter_of(plain, "fc2.weight"), parameter_of(other, "fc2.weight"), 0));

    reshard_sharding_plan_destroy(plan);
    reshard_module_release(plain);
    reshard_module_release(spread);
    reshard_module_release(other);
    reshard_tensor_release(x);
    reshard_spec_release(rows);
    reshard_spec_release(columns);
    reshard_spec_release(everywhere);
    return RESHARD_OK;
}

static void test_plan__forward_and_state_dict(void **state)
{
    (void)state;
    for (int32_t size = 1; size <= 4; size++)
        run_ranks(size, body_use, NULL);
}

/* A plan that ends earlier on one rank: the entry that it lacks is named, and not looked for. */
static reshard_status body_shorter_plan(void *user, reshard_group *group)
{
    (void)user;
    reshard_module *linear = NULL;
    reshard_sharding_plan *plan = NULL;
    bool shorter = reshard_group_rank(group) == 1;
    MUST(reshard_linear_create(NULL, 4, 4, NULL, &linear));
    MUST(reshard_sharding_plan_create(NULL, &plan));
    MUST(reshard_sharding_plan_add_text(plan, "weight", "3: S(0)"));
    if (!shorter)
        MUST(reshard_sharding_plan_add_text(plan, "bias", "3: S(0)"));
    CHECK(reshard_module_shard(linear, plan, 0, group, NULL) == RESHARD_ERR_MISMATCH);
    CHECK(strstr(reshard_error_text(), "rank 1: no such entry, but rank 0: parameter \"bias\"") !=
          NULL);
    reshard_sharding_plan_destroy(plan);
    reshard_module_release(linear);
    return RESHARD_OK;
}

static void test_plan__shorter_on_one_rank(void **state)
{
    (void)state;
    run_ranks(3, body_shorter_plan, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan__shorter_on_one_rank),
        cmocka_unit_test(test_shard_parameter__values_and_errors),
        cmocka_unit_test(test_shard_parameter__side_effects),
        cmocka_unit_test(test_plan__all_or_nothing),
        cmocka_unit_test(test_plan__wrong_kinds_of_entries),
        cmocka_unit_test(test_sharder__replaces_by_path),
        cmocka_unit_test(test_plan__several_compose_unless_they_overlap),
        cmocka_unit_test(test_plan__below_a_replaced_module),
        cmocka_unit_test(test_sharder__cannot_make_a_cycle),
        cmocka_unit_test(test_planner__sub_group_and_current_group),
        cmocka_unit_test(test_plan__forward_and_state_dict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
