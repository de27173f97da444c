/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_families.c - the built-in rules on models of each family: every tensor has a rule, the cuts
 * are those that tensor-parallel programs expect, and the full shapes come back from the local
 * ones, padding and copied heads included.
 */
#include "checkpoint/rules/rules.h"
#include "layout/layout.h"
#include "rules_case.h"
#include "spec/spec.h"
#include "tests/support/check.h"
#include "tests/support/harness.h"

#include <reshard/layout.h>

#include <stdio.h>
#include <string.h>

/* ---- models ---------------------------------------------------------------------------------- */

typedef struct model {
    const char *family, *model_type, *keys;
    const char *tensors[40]; /* "name shape" */
} model;

#define LLAMA_KEYS                                                                          \
    "hidden_size=64 num_attention_heads=8 num_key_value_heads=2 head_dim=8 vocab_size=100 " \
    "num_hidden_layers=3 intermediate_size=96"

static const model models[] = {
    {"llama",
     "llama",
     LLAMA_KEYS,
     {"model.embed_tokens.weight 100x64", "model.layers.0.self_attn.q_proj.weight 64x64",
      "model.layers.1.self_attn.k_proj.weight 16x64",
      "model.layers.2.self_attn.v_proj.weight 16x64", "model.layers.2.self_attn.q_proj.bias 64",
      "model.layers.2.self_attn.k_proj.bias 16", "model.layers.0.self_attn.o_proj.weight 64x64",
      "model.layers.0.self_attn.q_norm.weight 8", "model.layers.0.mlp.gate_proj.weight 96x64",
      "model.layers.1.mlp.up_proj.weight 96x64", "model.layers.1.mlp.down_proj.weight 64x96",
      "model.layers.0.input_layernorm.weight 64",
      "model.layers.0.post_attention_layernorm.weight 64",
      "model.layers.0.self_attn.rotary_emb.inv_freq 4", "model.norm.weight 64",
      "lm_head.weight 100x64"}},
    {"llama",
     "phi3",
     LLAMA_KEYS,
     {"model.embed_tokens.weight 100x64", "model.layers.0.self_attn.qkv_proj.weight 96x64",
      "model.layers.0.self_attn.o_proj.weight 64x64",
      "model.layers.0.mlp.gate_up_proj.weight 192x64", "model.layers.0.mlp.down_proj.weight 64x96",
      "model.norm.weight 64"}},
    /* blocks of 4 x 4 share a scale; heads are 2 blocks */
    {"llama",
     "qwen3",
     LLAMA_KEYS " quantization_config.weight_block_size.0=4 "
                "quantization_config.weight_block_size.1=4",
     {"model.layers.0.self_attn.q_proj.weight 64x64",
      "model.layers.0.self_attn.q_proj.weight_scale_inv 16x16",
      "model.layers.0.self_attn.k_proj.weight 16x64",
      "model.layers.0.self_attn.k_proj.weight_scale_inv 4x16",
      "model.layers.0.self_attn.o_proj.weight 64x64",
      "model.layers.0.self_attn.o_proj.weight_scale_inv 16x16",
      "model.layers.0.mlp.gate_proj.weight 96x64",
      "model.layers.0.mlp.gate_proj.weight_scale_inv 24x16",
      "model.layers.0.mlp.down_proj.weight 64x96",
      "model.layers.0.mlp.down_proj.weight_scale_inv 16x24"}},
    {"gpt2",
     "gpt2",
     "n_embd=48 n_head=4 n_layer=3 vocab_size=101",
     {"wte.weight 101x48", "wpe.weight 32x48", "h.0.ln_1.weight 48", "h.0.ln_1.bias 48",
      "h.0.attn.c_attn.weight 48x144", "h.1.attn.c_attn.bias 144", "h.2.attn.c_proj.weight 48x48",
      "h.2.attn.c_proj.bias 48", "h.2.mlp.c_fc.weight 48x192", "h.2.mlp.c_fc.bias 192",
      "h.2.mlp.c_proj.weight 192x48", "h.2.mlp.c_proj.bias 48", "h.2.attn.bias 1x1x32x32",
      "ln_f.weight 48", "transformer.h.1.attn.c_attn.weight 48x144",
      "transformer.wte.weight 101x48", "transformer.ln_f.bias 48", "lm_head.weight 101x48"}},
    {"neox",
     "gpt_neox",
     "hidden_size=48 num_attention_heads=4 num_hidden_layers=3 vocab_size=101",
     {"gpt_neox.embed_in.weight 101x48", "gpt_neox.layers.0.input_layernorm.weight 48",
      "gpt_neox.layers.0.attention.query_key_value.weight 144x48",
      "gpt_neox.layers.0.attention.query_key_value.bias 144",
      "gpt_neox.layers.0.attention.dense.weight 48x48", "gpt_neox.layers.0.attention.dense.bias 48",
      "gpt_neox.layers.1.mlp.dense_h_to_4h.weight 192x48",
      "gpt_neox.layers.1.mlp.dense_h_to_4h.bias 192",
      "gpt_neox.layers.1.mlp.dense_4h_to_h.weight 48x192",
      "gpt_neox.layers.1.mlp.dense_4h_to_h.bias 48", "gpt_neox.layers.1.attention.bias 1x1x8x8",
      "gpt_neox.layers.1.attention.rotary_emb.inv_freq 6", "gpt_neox.final_layer_norm.bias 48",
      "embed_out.weight 101x48"}},
    {"mixtral",
     "mixtral",
     LLAMA_KEYS " num_local_experts=5",
     {"model.embed_tokens.weight 100x64", "model.layers.0.self_attn.q_proj.weight 64x64",
      "model.layers.0.block_sparse_moe.gate.weight 5x64",
      "model.layers.0.block_sparse_moe.experts.4.w1.weight 96x64",
      "model.layers.1.block_sparse_moe.experts.0.w2.weight 64x96",
      "model.layers.2.block_sparse_moe.experts.2.w3.weight 96x64", "lm_head.weight 100x64"}},
    {"mixtral",
     "qwen2_moe",
     LLAMA_KEYS " num_experts=6",
     {"model.layers.0.mlp.gate.weight 6x64", "model.layers.0.mlp.experts.5.gate_proj.weight 96x64",
      "model.layers.0.mlp.experts.5.down_proj.weight 64x96",
      "model.layers.0.mlp.shared_expert.up_proj.weight 96x64",
      "model.layers.0.mlp.shared_expert.down_proj.weight 64x96",
      "model.layers.0.mlp.shared_expert_gate.weight 1x64",
      "model.layers.0.mlp.experts.gate_up_proj 6x192x64",
      "model.layers.0.mlp.experts.down_proj 6x64x96"}},
    {"fsdp", NULL, "", {"a.weight 7x3", "b.bias 3", "c scalar", "d.empty 0x4"}},
};

static void split_tensor(const char *tensor, char *name, char *shape)
{
    const char *space = strrchr(tensor, ' ');
    (void)snprintf(name, 128, "%.*s", (int)(space - tensor), tensor);
    (void)snprintf(shape, 64, "%s", space + 1);
}

static const char *tell_name(void *user, int64_t index, size_t *out_bytes)
{
    const char *const *names = user;
    if (names[index] == NULL)
        return NULL;
    *out_bytes = (size_t)(strrchr(names[index], ' ') - names[index]);
    return names[index];
}

/* ---- what tensor-parallel programs expect ---------------------------------------------------- */

static const struct {
    int model;
    const char *mesh, *tensor, *expected;
} rows[] = {
    {0, "tp=2", "model.layers.0.self_attn.q_proj.weight 64x64", "tp=2: S(0, unit=8)"},
    {0, "tp=2", "model.layers.0.self_attn.k_proj.weight 16x64", "tp=2: S(0, unit=8, max=2)"},
    {0, "tp=8", "model.layers.0.self_attn.v_proj.bias 16", "tp=8: S(0, unit=8, max=2)"},
    {0, "tp=2", "model.layers.0.self_attn.o_proj.weight 64x64", "tp=2: S(1, unit=8)"},
    {0, "tp=2", "model.layers.0.self_attn.o_proj.bias 64", "tp=2: R"},
    {0, "tp=2", "model.layers.0.mlp.up_proj.weight 96x64", "tp=2: S(0)"},
    {0, "tp=2", "model.layers.0.mlp.down_proj.weight 64x96", "tp=2: S(1)"},
    {0, "tp=2", "model.layers.0.mlp.down_proj.bias 64", "tp=2: R"},
    {0, "tp=2", "model.layers.0.self_attn.k_norm.weight 8", "tp=2: R"},
    {0, "tp=2", "model.embed_tokens.weight 100x64", "tp=2: S(0) padded 128x64"},
    {0, "pp=2,tp=2", "lm_head.weight 100x64", "pp=2,tp=2: S(0)@tp, A(1)@pp padded 128x64"},
    {0, "pp=2,tp=2", "model.embed_tokens.weight 100x64",
     "pp=2,tp=2: S(0)@tp, A(0)@pp padded 128x64"},
    {0, "pp=2", "model.layers.1.mlp.up_proj.weight 96x64", "pp=2: A(0)"},
    {0, "pp=2", "model.layers.2.mlp.up_proj.weight 96x64", "pp=2: A(1)"},
    {0, "pp=2", "model.norm.weight 64", "pp=2: A(1)"},
    {0, "fsdp=2,tp=2", "model.layers.2.mlp.up_proj.weight 96x64",
     "fsdp=2,tp=2: S(0)@tp, S(0)@fsdp"},
    {0, "dp=2,pp=3,tp=2", "model.layers.2.mlp.up_proj.weight 96x64",
     "dp=2,pp=3,tp=2: S(0)@tp, A(2)@pp"},
    {0, "tp=3", "model.layers.0.self_attn.q_proj.weight 64x64",
     "tensor \"model.layers.0.self_attn.q_proj.weight\" (64x64): llama:21: S(0, "
     "unit=$head_rows)@tp: dimension 0: 8 units of 8 cannot be divided evenly by tp=3"},
    {0, "tp=2", "model.vision.patch.weight 3x3",
     "tensor \"model.vision.patch.weight\" (3x3): no rule of llama matches its name"},
    {0, "pp=2", "model.layers.3.mlp.up_proj.weight 96x64",
     "tensor \"model.layers.3.mlp.up_proj.weight\" (96x64): llama:10: A({2} of "
     "$num_hidden_layers)@pp: number 3 of 3 (they count from 0)"},
    {0, "ep=2", "model.norm.weight 64",
     "no rule of llama says what axis ep=2 does (they name pp, tp, fsdp)"},
    {1, "tp=4", "model.layers.0.self_attn.qkv_proj.weight 96x64",
     "tp=4: S(0;64,16|2,16|2, unit=8)"},
    {1, "tp=4", "model.layers.0.mlp.gate_up_proj.weight 192x64", "tp=4: S(0*2)"},
    {2, "tp=2", "model.layers.0.self_attn.q_proj.weight 64x64", "tp=2: S(0, unit=8)"},
    {2, "tp=2", "model.layers.0.self_attn.q_proj.weight_scale_inv 16x16", "tp=2: S(0)"},
    {2, "tp=5", "model.layers.0.mlp.down_proj.weight_scale_inv 16x24",
     "tensor \"model.layers.0.mlp.down_proj.weight_scale_inv\" (16x24): llama:38: S(1, "
     "unit=$weight_block_columns)@tp: dimension 1: 24 blocks or groups cannot be divided evenly by "
     "tp=5"},
    {2, "tp=2", "model.layers.0.mlp.down_proj.weight 64x96", "tp=2: S(1, unit=4)"},
    {2, "tp=5", "model.layers.0.mlp.down_proj.weight 64x96",
     "tensor \"model.layers.0.mlp.down_proj.weight\" (64x96): llama:38: S(1, "
     "unit=$weight_block_columns)@tp: dimension 1: 24 units of 4 cannot be divided evenly by tp=5"},
    {3, "tp=2", "h.0.attn.c_attn.weight 48x144", "tp=2: S(1;48,48,48, unit=12)"},
    {3, "tp=2", "transformer.h.0.attn.c_attn.bias 144", "tp=2: S(0;48,48,48, unit=12)"},
    {3, "tp=2", "h.0.attn.c_proj.weight 48x48", "tp=2: S(0, unit=12)"},
    {3, "tp=2", "h.0.mlp.c_fc.weight 48x192", "tp=2: S(1)"},
    {3, "tp=2", "h.0.attn.bias 1x1x32x32", "drop"},
    {3, "tp=2", "wte.weight 101x48", "tp=2: S(0) padded 128x48"},
    {3, "pp=3", "wte.weight 101x48", "pp=3: A(0,2) padded 128x48"},
    {3, "pp=3", "wpe.weight 32x48", "pp=3: A(0)"},
    {4, "tp=2", "gpt_neox.layers.0.attention.query_key_value.weight 144x48", "tp=2: S(0, unit=36)"},
    {5, "tp=2", "model.layers.0.block_sparse_moe.experts.4.w1.weight 96x64", "tp=2: S(0)"},
    {5, "ep=2,tp=2", "model.layers.0.block_sparse_moe.experts.2.w2.weight 64x96",
     "ep=2,tp=2: S(1)@tp, A(0)@ep"},
    {5, "ep=2,tp=2", "model.layers.0.block_sparse_moe.experts.3.w2.weight 64x96",
     "ep=2,tp=2: S(1)@tp, A(1)@ep"},
    {5, "ep=2,tp=2", "model.layers.0.block_sparse_moe.gate.weight 5x64", "ep=2,tp=2: R, R"},
    {6, "ep=2,tp=2", "model.layers.0.mlp.experts.gate_up_proj 6x192x64",
     "ep=2,tp=2: S(0~), S(1*2)"},
    {7, "fsdp=4", "a.weight 7x3", "fsdp=4: S(0)"},
    {7, "fsdp=4", "c scalar", "fsdp=4: R"},
};

static void test_families__cuts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const model *one = &models[rows[i].model];
        char name[128], shape[64], text[1024];
        rs_rules *rules = NULL;
        split_tensor(rows[i].tensor, name, shape);
        rules_case given = {rows[i].mesh, one->keys, name, shape};
        assert_int_equal(rs_rules_builtin(NULL, one->family, &rules), RESHARD_OK);
        assert_int_equal(rs_rules_bind(rules, tell_name, (void *)(uintptr_t)one->tensors),
                         RESHARD_OK);
        rules_case_text(rules, &given, text, sizeof text);
        rs_rules_destroy(rules);
        assert_string_equal(text, rows[i].expected);
    }
}

/* ---- there and back -------------------------------------------------------------------------- */

typedef struct local_files {
    reshard_mesh *mesh;
    reshard_layout *layout;
    int32_t wrong; /* a position that tells a wrong shape; -1: none */
} local_files;

static bool tell_shape(void *user, int32_t position, int64_t *out_shape)
{
    const local_files *files = user;
    reshard_shards *shards = NULL;
    if (reshard_layout_shards(files->layout, reshard_mesh_rank_at(files->mesh, position),
                              &shards) != RESHARD_OK)
        return false;
    bool present = shards->count != 0;
    if (present)
        memcpy(out_shape, shards->items[0].shape,
               (size_t)shards->items[0].ndim * sizeof *out_shape);
    if (present && position == files->wrong)
        out_shape[0]++;
    reshard_shards_destroy(shards);
    return present;
}

static void check_recovered(const rs_rules *rules, const rs_rules_keys *keys, reshard_mesh *mesh,
                            const char *name, const rs_rule_result *applied)
{
    local_files files = {mesh, NULL, -1};
    rs_local_shapes locals = {.ndim = applied->ndim, .find = tell_shape, .user = &files};
    rs_rule_result found;
    assert_int_equal(reshard_layout_create(NULL, applied->spec, applied->ndim,
                                           applied->padded_shape, &files.layout),
                     RESHARD_OK);
    if (rs_rules_recover(rules, mesh, keys, name, strlen(name), &locals, &found) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    size_t bytes = (size_t)applied->ndim * sizeof(int64_t);
    assert_memory_equal(found.shape, applied->shape, bytes);
    assert_memory_equal(found.padded_shape, applied->padded_shape, bytes);
    rs_rule_result_release(&found);
    /* One row more in one file is not believed, unless that file is all there is. */
    files.wrong = mesh->size - 1;
    int64_t local[RESHARD_NDIM_MAX];
    if (applied->ndim > 0 && files.layout->rank_count > 1 &&
        tell_shape(&files, files.wrong, local)) {
        reshard_status status =
            rs_rules_recover(rules, mesh, keys, name, strlen(name), &locals, &found);
        if (status == RESHARD_OK) {
            assert_memory_not_equal(found.padded_shape, applied->padded_shape, bytes);
            rs_rule_result_release(&found);
        } else {
            assert_non_null(strstr(reshard_error_text(), name));
        }
    }
    reshard_layout_release(files.layout);
}

static void check_tensor(const model *one, const rs_rules *rules, reshard_mesh *mesh,
                         const char *tensor)
{
    char name[128], text[64];
    int64_t shape[RESHARD_NDIM_MAX];
    int32_t ndim = 0;
    rs_rule_result result;
    split_tensor(tensor, name, text);
    rules_case given = {.keys = one->keys};
    rs_rules_keys keys = {rules_case_find, &given, rules_case_find_text};
    assert_int_equal(reshard_shape_parse(text, &ndim, shape), RESHARD_OK);
    if (rs_rules_apply(rules, mesh, &keys, name, strlen(name), ndim, shape, &result) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    assert_memory_equal(result.shape, shape, (size_t)(result.drop ? 0 : ndim) * sizeof *shape);
    if (!result.drop)
        check_recovered(rules, &keys, mesh, name, &result);
    rs_rule_result_release(&result);
}

static void test_families__every_tensor(void **state)
{
    static const char *const meshes[] = {
        "tp=1",   "tp=2",        "tp=4",          "fsdp=3",
        "pp=2",   "pp=2,tp=2",   "dp=2,tp=2",     "fsdp=2,tp=4",
        "fsdp=5", "pp=3,fsdp=2", "tp=4[7,5,1,0]", "dp=2,pp=2,fsdp=2,tp=2",
    };
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        rs_rules *rules = NULL;
        assert_int_equal(rs_rules_builtin(NULL, models[i].family, &rules), RESHARD_OK);
        for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++) {
            reshard_mesh *mesh = rules_case_mesh(meshes[k]);
            if (rs_rules_check_mesh(rules, mesh) == RESHARD_OK) {
                for (int t = 0; models[i].tensors[t] != NULL; t++)
                    check_tensor(&models[i], rules, mesh, models[i].tensors[t]);
            }
            reshard_mesh_release(mesh);
        }
        rs_rules_destroy(rules);
    }
}

/* ---- finding the family ---------------------------------------------------------------------- */

static void test_families__detected(void **state)
{
    (void)state;
    rs_rules_choice choice;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        void *names = (void *)(uintptr_t)models[i].tensors;
        if (models[i].model_type == NULL)
            continue;
        assert_int_equal(rs_rules_detect(NULL, models[i].model_type, NULL, NULL, &choice),
                         RESHARD_OK);
        assert_string_equal(choice.family, models[i].family);
        assert_int_equal(rs_rules_detect(NULL, "unheard_of", tell_name, names, &choice),
                         RESHARD_OK);
        assert_string_equal(choice.family, models[i].family);
        assert_non_null(strstr(choice.reason, "a tensor is called \""));
    }
    reshard_mesh *mesh = rules_case_mesh("dp=2,fsdp=2");
    assert_int_equal(rs_rules_detect(mesh, "llama", NULL, NULL, &choice), RESHARD_OK);
    assert_string_equal(choice.family, "fsdp");
    reshard_mesh_release(mesh);
    mesh = rules_case_mesh("dp=2,tp=1");
    assert_int_equal(rs_rules_detect(mesh, NULL, NULL, NULL, &choice), RESHARD_OK);
    assert_string_equal(choice.family, "replicate");
    reshard_mesh_release(mesh);
    mesh = rules_case_mesh("tp=1");
    assert_int_equal(rs_rules_detect(mesh, "qwen2", NULL, NULL, &choice), RESHARD_OK);
    assert_string_equal(choice.family, "llama");
    reshard_mesh_release(mesh);
    mesh = rules_case_mesh("fsdp=2,tp=2");
    assert_int_equal(rs_rules_detect(mesh, "qwen2", NULL, NULL, &choice), RESHARD_OK);
    assert_string_equal(choice.reason, "model_type is \"qwen2\"");
    assert_int_equal(rs_rules_detect(mesh, "unheard_of", NULL, NULL, &choice),
                     RESHARD_ERR_NOT_FOUND);
    reshard_mesh_release(mesh);
}

/* Each family by its index, until NULL; its text parses as a file would. */
static void test_families__text(void **state)
{
    (void)state;
    int32_t count = 0;
    for (; rs_rules_family_name(count) != NULL; count++) {
        const char *text = rs_rules_family_text(count);
        rs_rules *rules = NULL;
        if (rs_rules_parse(NULL, text, strlen(text), "t", &rules) != RESHARD_OK)
            fail_msg("%s: %s", rs_rules_family_name(count), reshard_error_text());
        rs_rules_destroy(rules);
    }
    assert_int_equal(count, 64);
    assert_null(rs_rules_family_text(count));
    assert_null(rs_rules_family_name(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families__cuts),
        cmocka_unit_test(test_families__every_tensor),
        cmocka_unit_test(test_families__detected),
        cmocka_unit_test(test_families__text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
