/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_map_scale.c - a model with as many tensors as DeepSeek-V3, both ways: how long resolving
 * takes, and how much memory; and what is left behind if any single allocation fails.
 */
#include "checkpoint/maps/resolve.h"
#include "map_case.h"
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/limited.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- a large model --------------------------------------------------------------------------- */

enum { LAYERS = 61, DENSE = 3, EXPERTS = 256, TENSORS_MAX = 100000 };

typedef struct model {
    int64_t count;
    reshard_map_tensor tensors[TENSORS_MAX];
    int64_t shapes[TENSORS_MAX][2];
    char names[TENSORS_MAX][80];
} model;

static void add_tensor(model *made, int64_t rows, int64_t columns, const char *format, int n, int e)
{
    int64_t i = made->count++;
    made->shapes[i][0] = rows;
    made->shapes[i][1] = columns;
    made->tensors[i] = (reshard_map_tensor){made->names[i], RESHARD_F8_E4M3, columns == 0 ? 1 : 2,
                                            made->shapes[i]};
    (void)snprintf(made->names[i], sizeof made->names[i], format, n, e);
}

/* A weight and its scales, in blocks of 128x128. */
static void add_pair(model *made, int64_t rows, int64_t columns, const char *format, int n, int e)
{
    char name[80];
    (void)snprintf(name, sizeof name, "%s.weight", format);
    add_tensor(made, rows, columns, name, n, e);
    (void)snprintf(name, sizeof name, "%s.weight_scale_inv", format);
    add_tensor(made, (rows + 127) / 128, (columns + 127) / 128, name, n, e);
}

static void make_model(model *made)
{
    made->count = 0;
    add_tensor(made, 129280, 7168, "model.embed_tokens.weight", 0, 0);
    add_tensor(made, 129280, 7168, "lm_head.weight", 0, 0);
    add_tensor(made, 7168, 0, "model.norm.weight", 0, 0);
    for (int n = 0; n < LAYERS; n++) {
        add_tensor(made, 7168, 0, "model.layers.%d.input_layernorm.weight", n, 0);
        add_tensor(made, 7168, 0, "model.layers.%d.post_attention_layernorm.weight", n, 0);
        add_pair(made, 1536, 7168, "model.layers.%d.self_attn.q_a_proj", n, 0);
        add_pair(made, 576, 7168, "model.layers.%d.self_attn.kv_a_proj_with_mqa", n, 0);
        add_pair(made, 7168, 16384, "model.layers.%d.self_attn.o_proj", n, 0);
        for (int e = 0; e < EXPERTS && n >= DENSE; e++) {
            add_pair(made, 2048, 7168, "model.layers.%d.mlp.experts.%d.gate_proj", n, e);
            add_pair(made, 2048, 7168, "model.layers.%d.mlp.experts.%d.up_proj", n, e);
            add_pair(made, 7168, 2048, "model.layers.%d.mlp.experts.%d.down_proj", n, e);
        }
        for (int e = 0; e < 1 && n < DENSE; e++) {
            add_pair(made, 18432, 7168, "model.layers.%d.mlp.gate_proj", n, e);
            add_pair(made, 18432, 7168, "model.layers.%d.mlp.up_proj", n, e);
            add_pair(made, 7168, 18432, "model.layers.%d.mlp.down_proj", n, e);
        }
    }
    while (made->count < 91991)
        add_tensor(made, 7168, 0, "model.layers.61.extra.%d.weight", (int)made->count, 0);
}

static const char *const fused_lines[] = {
    "map hf engine",
    "for n < $num_hidden_layers, e < $n_routed_experts",
    "let q = 1536, qs = 12, d = $first_k_dense_replace",
    "model.embed_tokens.weight = model.embed_tokens.weight",
    "lm_head.weight = lm_head.weight",
    "model.norm.weight = model.norm.weight",
    "model.layers.{n}.{s:input,post_attention}_layernorm.weight = layers.{n}.{s}_norm.weight",
    "model.layers.{n}.self_attn.q_a_proj.weight [q i],",
    "  model.layers.{n}.self_attn.kv_a_proj_with_mqa.weight [k i] = layers.{n}.qkv_a.weight [(q + "
    "k) i]",
    "model.layers.{n}.self_attn.q_a_proj.weight_scale_inv [qs i],",
    "  model.layers.{n}.self_attn.kv_a_proj_with_mqa.weight_scale_inv [k i] = "
    "layers.{n}.qkv_a.scale [(qs + k) i]",
    "model.layers.{n}.self_attn.o_proj.{s:weight,weight_scale_inv} = layers.{n}.o.{s}",
    "model.layers.{n}.mlp.{gate,up}_proj.{s:weight,weight_scale_inv} [f i] = "
    "layers.{n}.gate_up.{s} [(f + f) i] when(n < d)",
    "model.layers.{n}.mlp.down_proj.{s:weight,weight_scale_inv} = layers.{n}.down.{s} when(n < d)",
    "model.layers.{n}.mlp.experts.{e}.{gate,up}_proj.{s:weight,weight_scale_inv} [f i] = "
    "layers.{n}.w13.{s} [e (f + f) i] when(n >= d)",
    "model.layers.{n}.mlp.experts.{e}.down_proj.{s:weight,weight_scale_inv} [i f] = "
    "layers.{n}.w2.{s} [e i f] when(n >= d)",
    "model.layers.61.{x:**} = mtp.{x}",
};

static reshard_map *parse_lines(reshard_context *context)
{
    static char text[8192];
    reshard_map *map = NULL;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof fused_lines / sizeof *fused_lines; i++) {
        strcat(text, fused_lines[i]);
        strcat(text, "\n");
    }
    if (reshard_map_parse(context, text, strlen(text), NULL, &map) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    return map;
}

static const char *const sets[] = {"num_hidden_layers=61", "n_routed_experts=256",
                                   "first_k_dense_replace=3"};

static double seconds_of(clock_t from)
{
    return (double)(clock() - from) / CLOCKS_PER_SEC;
}

static void test_scale__deepseek(void **state)
{
    (void)state;
    static model hf;
    static reshard_map_tensor back[TENSORS_MAX];
    make_model(&hf);
    assert_int_equal(hf.count, 91991);
    reshard_map_resolve_options options = {.size = sizeof options, .set_count = 3, .sets = sets};
    /* The context refuses more than it may hold. */
    reshard_context *context = NULL;
    reshard_context_options limit = {.size = sizeof limit, .memory_bytes_max = (size_t)96 << 20};
    assert_int_equal(reshard_context_create(&limit, &context), RESHARD_OK);
    reshard_map *map = parse_lines(context);
    reshard_map_result *there = NULL, *again = NULL;
    clock_t start = clock();
    if (reshard_map_resolve(map, RESHARD_MAP_LEFT, hf.count, hf.tensors, &options, &there) !=
        RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    double first = seconds_of(start);
    int64_t count = there->target_count;
    assert_true(count < 6000);
    for (int64_t i = 0; i < count; i++) {
        reshard_map_target target = {.size = sizeof target};
        assert_int_equal(reshard_map_result_target(there, i, &target), RESHARD_OK);
        back[i] = (reshard_map_tensor){target.name, target.dtype, target.ndim, target.shape};
    }
    start = clock();
    if (reshard_map_resolve(map, RESHARD_MAP_RIGHT, count, back, &options, &again) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    double second = seconds_of(start);
    assert_int_equal(again->target_count, hf.count);
    print_message("%lld tensors: %.3f s there, %.3f s back\n", (long long)hf.count, first, second);
    assert_true(first < 2 && second < 2);
    reshard_map_result_destroy(there);
    reshard_map_result_destroy(again);
    reshard_map_release(map);
    reshard_context_destroy(context);
}

/* ---- failing allocations --------------------------------------------------------------------- */

static reshard_status attempt(reshard_context *context, void *user)
{
    (void)user;
    static const char text[] = "map a b\nfor n < 2\nlet g = 2\n"
                               "l.{n}.q [(g q)], l.{n}.{k,v} [g] = l.qkv [n (g (q + 1 + 1))] "
                               "when(1) | x.{n} [(g (q + 1 + 1))]\n"
                               "e.{e}.{x:*} = {x}.{e}\nfreqs drop =\n= one [] fill(1)\n= two "
                               "copy(l.qkv) with(freqs)\n* = *";
    static map_case given;
    reshard_map *map = NULL;
    reshard_map_result *result = NULL;
    map_case_read(&given, "l.0.q 4, l.0.k 2, l.0.v 2, l.1.q 4, l.1.k 2, l.1.v 2, e.7.w 3, freqs 2, "
                          "other 2x2");
    reshard_status status = reshard_map_parse(context, text, sizeof text - 1, NULL, &map);
    if (status == RESHARD_OK)
        status =
            reshard_map_resolve(map, RESHARD_MAP_LEFT, given.count, given.tensors, NULL, &result);
    reshard_map_result_destroy(result);
    reshard_map_release(map);
    return status;
}

static void test_scale__failing_allocations(void **state)
{
    (void)state;
    words said = {""};
    if (!context_fail_each(attempt, NULL, &said))
        fail_msg("%s", said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scale__deepseek),
                                       cmocka_unit_test(test_scale__failing_allocations)};
    return cmocka_run_group_tests_name("map_scale", tests, NULL, NULL);
}
