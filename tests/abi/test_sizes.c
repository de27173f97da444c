/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sizes.c - a struct of options or results whose `size` was never set. Each public call that
 * takes one is given a size that no release has, in the last 8 bytes that may be touched: it has to
 * refuse it in words, and one that believes it crashes. check-sizes compares this list of calls
 * with the headers.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <reshard/draw.h>
#include <reshard/map.h>
#include <reshard/plan_inspect.h>
#include <reshard/reshard.h>
#include <reshard/reshard_nn.h>
#include <reshard/sim.h>
#include <reshard/transport.h>

#include "spec/spec.h"
#include "tests/nn/folder.h"
#include "tests/support/check.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 3, 4097, 0};

/* What calls need in addition to the struct. */
static struct {
    char path[64];
    reshard_group *group;
    reshard_device_mesh *mesh;
    reshard_spec *spec;
    reshard_layout *layout;
    reshard_plan *plan;
    reshard_part *part;
    reshard_prediction *prediction;
    reshard_checkpoint *checkpoint, *other, *partly_readable;
    reshard_conversion *conversion;
    reshard_comparison *comparison;
    reshard_tensor *tensor;
    reshard_module *module;
    reshard_hook *hook;
    reshard_optimizer *optimizer;
} w;

static void *wild; /* the struct, of which only `size` may be read */

static void refuse(const char *call, reshard_status status)
{
    if (status != RESHARD_ERR_INVALID || strstr(reshard_error_text(), "size is ") == NULL)
        fail_msg("%s, size %zu: status %d, \"%s\"", call, *(size_t *)wild, (int)status,
                 reshard_error_text());
}

#define REFUSES(function, type, arguments) refuse(#function " with " #type, function arguments)
#define OK(call) assert_int_equal(call, RESHARD_OK)

static reshard_status be_rank(void *user, reshard_group *group)
{
    (void)user, (void)group;
    return RESHARD_OK;
}

static reshard_status look_before(void *user, reshard_module *module, reshard_value *input)
{
    (void)user, (void)module, (void)input;
    return RESHARD_OK;
}

static reshard_status look_after(void *user, reshard_module *module, reshard_value input,
                                 reshard_value *output)
{
    (void)user, (void)module, (void)input, (void)output;
    return RESHARD_OK;
}

static void make_plans(void)
{
    OK(reshard_group_self(NULL, &w.group));
    OK(reshard_device_mesh_parse(NULL, w.group, "1", &w.mesh));
    OK(reshard_spec_parse(NULL, "1: S(0)", &w.spec));
    OK(reshard_layout_parse(NULL, "1: S(0)", 1, (int64_t[]){4}, &w.layout));
    OK(reshard_plan_create_simple(NULL, w.layout, w.layout, RESHARD_F32, NULL, &w.plan));
    OK(reshard_part_create(NULL, w.plan, 0, &w.part));
    OK(reshard_plan_predict(w.plan, NULL, &w.prediction));
}

static void make_checkpoints(void)
{
    float values[4] = {1, 2, 3, 4};
    const reshard_live_tensor saved = {"x", RESHARD_F32, w.layout, (void *const[]){values}};
    (void)snprintf(w.path, sizeof w.path, "%s/saved", folder);
    OK(reshard_checkpoint_save(NULL, w.group, w.path, 1, &saved, NULL));
    OK(reshard_checkpoint_open(NULL, w.path, NULL, &w.other));
    OK(reshard_checkpoint_open(NULL, VALUES_FILE, NULL, &w.checkpoint));
    const reshard_checkpoint_options listing = {.size = sizeof listing, .unreadable = 1};
    OK(reshard_checkpoint_open(NULL, UNREADABLE_FILE, &listing, &w.partly_readable));
    OK(reshard_conversion_create(NULL, w.other, NULL, &w.conversion));
    OK(reshard_checkpoint_compare(w.checkpoint, w.other, NULL, &w.comparison));
    (void)snprintf(w.path, sizeof w.path, "%s/never", folder);
}

static void make_modules(void)
{
    OK(reshard_tensor_create_distributed(NULL, w.group, w.spec, RESHARD_F32, 1, (int64_t[]){4},
                                         &w.tensor));
    OK(reshard_linear_create(NULL, 4, 4, NULL, &w.module));
    OK(reshard_module_input_reshard(w.module, w.mesh, 0, NULL, &w.hook));
    OK(reshard_sgd_create(
        NULL, w.module, RESHARD_OPTIONS(reshard_sgd_options, .learning_rate = 0.1), &w.optimizer));
}

static void release_all(void)
{
    reshard_optimizer_destroy(w.optimizer);
    reshard_hook_remove(w.hook);
    reshard_module_release(w.module);
    reshard_tensor_release(w.tensor);
    reshard_comparison_destroy(w.comparison);
    reshard_conversion_destroy(w.conversion);
    reshard_checkpoint_destroy(w.checkpoint);
    reshard_checkpoint_destroy(w.other);
    reshard_checkpoint_destroy(w.partly_readable);
    reshard_prediction_destroy(w.prediction);
    reshard_part_destroy(w.part);
    reshard_plan_release(w.plan);
    reshard_layout_release(w.layout);
    reshard_spec_release(w.spec);
    reshard_device_mesh_release(w.mesh);
    reshard_group_release(w.group);
}

/* Calls on maps and their results. */
static void try_maps(void)
{
    static const char text[] = "a = b\n";
    const int64_t shape[] = {4};
    const reshard_map_tensor read = {"a", RESHARD_F32, 1, shape};
    reshard_map *map = NULL;
    reshard_map_result *result = NULL, *none = NULL;
    REFUSES(reshard_map_parse, reshard_map_options, (NULL, text, sizeof text - 1, wild, &map));
    OK(reshard_map_parse(NULL, text, sizeof text - 1, NULL, &map));
    REFUSES(reshard_map_resolve, reshard_map_resolve_options,
            (map, RESHARD_MAP_LEFT, 1, &read, wild, &none));
    OK(reshard_map_resolve(map, RESHARD_MAP_LEFT, 1, &read, NULL, &result));
    REFUSES(reshard_map_result_get_info, reshard_map_result_info, (result, wild));
    REFUSES(reshard_map_result_target, reshard_map_target, (result, 0, wild));
    REFUSES(reshard_map_result_link, reshard_strided_link, (result, 0, wild));
    REFUSES(reshard_map_result_use, reshard_map_use, (result, 0, wild));
    reshard_map_result_destroy(result);
    reshard_map_release(map);
}

static void try_plans(void)
{
    reshard_work *work = NULL;
    reshard_plan_tensor tensor = {.name = "x", .layout = w.layout, .dtype = RESHARD_F32};
    reshard_context *context = NULL;
    reshard_group *group = NULL;
    reshard_plan *plan = NULL;
    reshard_exec *exec = NULL;
    reshard_prediction *prediction = NULL;
    reshard_trace *trace = NULL;
    size_t length = 0;
    REFUSES(reshard_context_create, reshard_context_options, (wild, &context));
    REFUSES(reshard_group_create, reshard_endpoint, (NULL, wild, &group));
    REFUSES(reshard_sim_run, reshard_sim_options, (NULL, 1, wild, be_rank, NULL));
    REFUSES(reshard_layout_draw, reshard_draw_options, (w.layout, wild, NULL, 0, &length));
    REFUSES(reshard_plan_draw, reshard_draw_options, (w.plan, wild, NULL, 0, &length));
    REFUSES(reshard_plan_create, reshard_plan_options,
            (NULL, 1, &tensor, 1, &tensor, 0, NULL, wild, &plan));
    const reshard_strided_link strided = {.size = sizeof strided};
    REFUSES(reshard_plan_create_strided, reshard_plan_options,
            (NULL, 1, &tensor, 1, &tensor, 1, &strided, wild, &plan));
    REFUSES(reshard_plan_create_strided, reshard_strided_link,
            (NULL, 1, &tensor, 1, &tensor, 1, wild, NULL, &plan));
    REFUSES(reshard_plan_create_simple, reshard_plan_options,
            (NULL, w.layout, w.layout, RESHARD_F32, wild, &plan));
    REFUSES(reshard_error_get, reshard_error, (wild));
    REFUSES(reshard_error_put, reshard_error, (wild));
    REFUSES(reshard_context_get_memory, reshard_memory_info, (NULL, wild));
    REFUSES(reshard_mesh_get_info, reshard_mesh_info, (w.spec->mesh, wild));
    REFUSES(reshard_spec_get_info, reshard_spec_info, (w.spec, wild));
    REFUSES(reshard_layout_get_info, reshard_layout_info, (w.layout, wild));
    REFUSES(reshard_plan_get_info, reshard_plan_info, (w.plan, wild));
    REFUSES(reshard_device_mesh_get_info, reshard_device_mesh_info, (w.mesh, wild));
    REFUSES(reshard_plan_get_stats, reshard_plan_stats, (w.plan, wild, NULL));
    REFUSES(reshard_plan_stage_link, reshard_stage_link, (w.plan, 0, 0, wild));
    REFUSES(reshard_part_get_stats, reshard_part_stats, (w.part, wild));
    REFUSES(reshard_exec_create, reshard_exec_options, (NULL, w.plan, w.group, wild, &exec));
    REFUSES(reshard_exchange_run, reshard_exchange, (NULL, w.group, wild, &work));
    REFUSES(reshard_cluster_parse, reshard_cluster, ("nodes=2", wild));
    REFUSES(reshard_plan_predict, reshard_cluster, (w.plan, wild, &prediction));
    REFUSES(reshard_prediction_stage, reshard_stage_prediction, (w.prediction, 0, wild));
    REFUSES(reshard_trace_create, reshard_trace_options, (NULL, w.group, w.path, wild, &trace));
    OK(reshard_trace_create(NULL, w.group, w.path, NULL, &trace));
    REFUSES(reshard_prediction_trace, reshard_cluster, (w.prediction, w.plan, wild, trace, NULL));
    reshard_trace_destroy(trace);
    (void)remove(w.path);
}

static void try_checkpoints(void)
{
    float values[4] = {0};
    const reshard_live_tensor live = {"x", RESHARD_F32, w.layout, (void *const[]){values}};
    const reshard_rank_tensor part = {
        .tensor = 0, .layout = w.layout, .dtype = RESHARD_F32, .shards = (void *const[]){values}};
    reshard_checkpoint *checkpoint = NULL;
    reshard_digests *digests = NULL;
    reshard_hashes *hashes = NULL;
    reshard_comparison *comparison = NULL;
    REFUSES(reshard_format_at, reshard_format, (0, wild));
    REFUSES(reshard_family_at, reshard_family, (0, wild));
    REFUSES(reshard_naming_at, reshard_naming, (0, wild));
    REFUSES(reshard_naming_map_at, reshard_naming_map, (0, wild));
    REFUSES(reshard_naming_map_find, reshard_naming_map, ("hf-hf5", wild));
    REFUSES(reshard_checkpoint_find_map, reshard_naming_map, (w.checkpoint, "hf5", wild));
    REFUSES(reshard_family_find, reshard_family, ("llama", wild));
    REFUSES(reshard_checkpoint_unreadable, reshard_unreadable_tensor, (w.partly_readable, 0, wild));
    REFUSES(reshard_checkpoint_open, reshard_checkpoint_options, (NULL, ".", wild, &checkpoint));
    REFUSES(reshard_checkpoint_value, reshard_stored_value, (w.checkpoint, 0, wild));
    REFUSES(reshard_checkpoint_text, reshard_stored_text, (w.other, 0, wild));
    REFUSES(reshard_checkpoint_get_info, reshard_checkpoint_info, (w.checkpoint, wild));
    REFUSES(reshard_checkpoint_tensor, reshard_stored_tensor, (w.checkpoint, 0, wild));
    REFUSES(reshard_checkpoint_piece, reshard_stored_piece, (w.checkpoint, 0, 0, wild));
    REFUSES(reshard_checkpoint_read_rank, reshard_read_options, (w.other, 0, 1, &part, wild));
    REFUSES(reshard_checkpoint_view, reshard_view_options, (w.other, wild, &checkpoint));
    REFUSES(reshard_checkpoint_digest, reshard_digest_options, (w.other, wild, &digests));
    REFUSES(reshard_checkpoint_hash, reshard_digest_options, (w.other, wild, &hashes));
    REFUSES(reshard_checkpoint_load, reshard_checkpoint_load_options,
            (w.other, w.group, 1, &live, wild));
    REFUSES(reshard_checkpoint_save, reshard_checkpoint_save_options,
            (NULL, w.group, w.path, 1, &live, wild));
    REFUSES(reshard_checkpoint_compare, reshard_comparison_options,
            (w.other, w.other, wild, &comparison));
    REFUSES(reshard_checkpoint_compare, reshard_conversion_options,
            (w.other, w.other, RESHARD_OPTIONS(reshard_comparison_options, .conversion = wild),
             &comparison));
    REFUSES(reshard_comparison_get_stats, reshard_comparison_stats, (w.comparison, wild));
    REFUSES(reshard_comparison_get_difference, reshard_difference, (w.comparison, 0, wild));
}

static void try_conversions(void)
{
    reshard_conversion *conversion = NULL;
    double seconds = 0;
    REFUSES(reshard_conversion_create, reshard_conversion_options,
            (NULL, w.other, wild, &conversion));
    REFUSES(reshard_conversion_get_stats, reshard_conversion_stats, (w.conversion, wild));
    REFUSES(reshard_conversion_get_tensor, reshard_conversion_tensor, (w.conversion, 0, wild));
    reshard_conversion *mapped = NULL;
    OK(reshard_conversion_create(NULL, w.other,
                                 RESHARD_OPTIONS(reshard_conversion_options,
                                                 .map_text = "{x:**} = new.{x}\n", .as = "right"),
                                 &mapped));
    REFUSES(reshard_conversion_get_link, reshard_strided_link, (mapped, 0, 0, wild));
    reshard_conversion_destroy(mapped);
    reshard_cuts *cuts = NULL;
    REFUSES(reshard_cuts_create, reshard_conversion_options, (w.other, wild, &cuts));
    assert_int_equal(reshard_cuts_create(w.other, NULL, &cuts), RESHARD_OK);
    REFUSES(reshard_cuts_get_info, reshard_cuts_info, (cuts, wild));
    REFUSES(reshard_cuts_get_tensor, reshard_conversion_tensor, (cuts, 0, wild));
    reshard_cuts_destroy(cuts);
    REFUSES(reshard_conversion_check_target, reshard_conversion_run_options,
            (NULL, ".", w.path, wild));
    REFUSES(reshard_conversion_estimate, reshard_conversion_run_options,
            (w.conversion, w.path, wild, &seconds));
    REFUSES(reshard_conversion_predict, reshard_cluster, (w.conversion, wild, &seconds));
    REFUSES(reshard_conversion_run, reshard_conversion_run_options,
            (w.conversion, w.path, wild, NULL));
    REFUSES(reshard_conversion_run, reshard_conversion_report, (w.conversion, w.path, NULL, wild));
    char source[64];
    (void)snprintf(source, sizeof source, "%s/saved", folder);
    REFUSES(reshard_convert, reshard_checkpoint_options,
            (NULL, source, w.path, wild, NULL, NULL, NULL));
    REFUSES(reshard_convert, reshard_conversion_options,
            (NULL, source, w.path, NULL, wild, NULL, NULL));
    REFUSES(reshard_convert, reshard_conversion_run_options,
            (NULL, source, w.path, NULL, NULL, wild, NULL));
    REFUSES(reshard_convert, reshard_conversion_report,
            (NULL, source, w.path, NULL, NULL, NULL, wild));
    assert_int_equal(access(w.path, F_OK), -1);
}

static reshard_status redistribute(void)
{
    reshard_scope *scope = NULL;
    OK(reshard_scope_open(NULL, &scope));
    assert_null(reshard_tensor_redistribute(w.tensor, w.spec, wild));
    return reshard_scope_close(scope);
}

static reshard_status exchange(void)
{
    reshard_scope *scope = NULL;
    OK(reshard_scope_open(NULL, &scope));
    assert_null(reshard_tensor_exchange(w.tensor, w.group, wild));
    return reshard_scope_close(scope);
}

/* The loss of two rows, with the wild options; the other form is for models over ranks. */
static reshard_status find_loss(bool of_model)
{
    reshard_scope *scope = NULL;
    reshard_tensor *logits = NULL, *labels = NULL;
    OK(reshard_tensor_create(NULL, RESHARD_F32, 2, (int64_t[]){2, 3}, &logits));
    OK(reshard_tensor_create(NULL, RESHARD_I64, 1, (int64_t[]){2}, &labels));
    OK(reshard_scope_open(NULL, &scope));
    assert_null(of_model ? reshard_cross_entropy_loss(logits, labels, wild)
                         : reshard_cross_entropy(logits, labels, wild));
    reshard_status status = reshard_scope_close(scope);
    reshard_tensor_release(logits);
    reshard_tensor_release(labels);
    return status;
}

static reshard_status start(void)
{
    reshard_scope *scope = NULL;
    OK(reshard_scope_open(NULL, &scope));
    assert_null(reshard_tensor_redistribute_start(w.tensor, w.spec, wild));
    return reshard_scope_close(scope);
}

static reshard_status embed_bags(void)
{
    reshard_scope *scope = NULL;
    reshard_tensor *weight = NULL, *indices = NULL;
    OK(reshard_tensor_create(NULL, RESHARD_F32, 2, (int64_t[]){2, 3}, &weight));
    OK(reshard_tensor_create(NULL, RESHARD_I64, 2, (int64_t[]){1, 2}, &indices));
    OK(reshard_scope_open(NULL, &scope));
    assert_null(reshard_embedding_bag(weight, indices, wild));
    reshard_status status = reshard_scope_close(scope);
    reshard_tensor_release(weight);
    reshard_tensor_release(indices);
    return status;
}

static reshard_status run_own(void)
{
    reshard_scope *scope = NULL;
    OK(reshard_scope_open(NULL, &scope));
    assert_null(reshard_operation_run(wild, NULL, &w.tensor, NULL));
    return reshard_scope_close(scope);
}

static void try_tensors(void)
{
    const reshard_named_tensor named = {"x", w.tensor};
    reshard_tensor *number = NULL;
    OK(reshard_tensor_from_data(NULL, RESHARD_F32, 0, NULL, &(float){1}, &number));
    OK(reshard_tensor_set_requires_grad(number, 1));
    refuse("reshard_operation_run", run_own());
    REFUSES(reshard_backward, reshard_backward_options, (number, NULL, wild));
    reshard_tensor_release(number);
    refuse("reshard_tensor_redistribute", redistribute());
    refuse("reshard_tensor_redistribute_start", start());
    refuse("reshard_embedding_bag", embed_bags());
    refuse("reshard_tensor_exchange", exchange());
    refuse("reshard_cross_entropy", find_loss(false));
    refuse("reshard_cross_entropy_loss", find_loss(true));
    REFUSES(reshard_tensor_get_info, reshard_tensor_info, (w.tensor, wild));
    REFUSES(reshard_checkpoint_load_tensors, reshard_checkpoint_load_options,
            (w.other, w.group, 1, &named, wild));
    REFUSES(reshard_checkpoint_save_tensors, reshard_checkpoint_save_options,
            (NULL, w.group, w.path, 1, &named, wild));
}

static void try_modules(void)
{
    const reshard_named_tensor named = {"weight", w.tensor};
    reshard_module *made = NULL;
    reshard_hook *hook = NULL;
    reshard_optimizer *optimizer = NULL;
    REFUSES(reshard_module_load_state_dict, reshard_load_options, (w.module, 1, &named, wild));
    REFUSES(reshard_module_add_forward_pre_hook, reshard_hook_options,
            (w.module, look_before, NULL, wild, &hook));
    REFUSES(reshard_module_add_forward_hook, reshard_hook_options,
            (w.module, look_after, NULL, wild, &hook));
    REFUSES(reshard_module_collect_local_shard, reshard_collect_options, (w.module, wild, &hook));
    REFUSES(reshard_module_input_reshard, reshard_input_reshard_options,
            (w.module, w.mesh, 0, wild, &hook));
    REFUSES(reshard_input_reshard_counts, reshard_saved_counts, (w.hook, wild));
    reshard_sharding_plan *plan = NULL;
    OK(reshard_sharding_plan_create(NULL, &plan));
    REFUSES(reshard_sharding_plan_add_style, reshard_style, (plan, "", w.spec->mesh, 0, wild));
    REFUSES(reshard_sharding_plan_add_module, reshard_sharding_module, (plan, "", wild));
    reshard_sharding_plan_destroy(plan);
    REFUSES(reshard_linear_create, reshard_layer_options, (NULL, 4, 4, wild, &made));
    REFUSES(reshard_embedding_create, reshard_layer_options, (NULL, 4, 4, wild, &made));
    REFUSES(reshard_embedding_bag_create, reshard_embedding_bag_options,
            (NULL, 4, 4, wild, NULL, &made));
    REFUSES(reshard_embedding_bag_create, reshard_layer_options, (NULL, 4, 4, NULL, wild, &made));
    REFUSES(reshard_layernorm_create, reshard_layer_options, (NULL, 4, 1e-5, wild, &made));
    REFUSES(reshard_rmsnorm_create, reshard_layer_options, (NULL, 4, 1e-5, wild, &made));
    REFUSES(reshard_mlp_create, reshard_layer_options,
            (NULL, 4, 8, RESHARD_ACTIVATION_RELU, wild, &made));
    REFUSES(reshard_attention_create, reshard_layer_options, (NULL, 4, 2, wild, &made));
    REFUSES(reshard_block_create, reshard_layer_options, (NULL, 4, 2, wild, &made));
    REFUSES(reshard_gpt_create, reshard_gpt_options, (NULL, wild, &made));
    REFUSES(reshard_sgd_create, reshard_sgd_options, (NULL, w.module, wild, &optimizer));
    REFUSES(reshard_adamw_create, reshard_adamw_options, (NULL, w.module, wild, &optimizer));
    REFUSES(reshard_optimizer_load_state_dict, reshard_load_options,
            (w.optimizer, 1, &named, wild));
}

static void test_sizes__no_release_has_them(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
    wild = pages + page - sizeof(size_t);
    make_plans();
    make_checkpoints();
    make_modules();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        memcpy(wild, &sizes[i], sizeof sizes[i]);
        try_maps();
        try_plans();
        try_checkpoints();
        try_conversions();
        try_tensors();
        try_modules();
    }
    release_all();
    (void)munmap(pages, 2 * page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes__no_release_has_them)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
