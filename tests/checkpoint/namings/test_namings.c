/* SPDX-License-Identifier: Apache-2.0 */
/* test_namings.c - the registry is consistent: rows, signs and shipped maps belong together. */
#include "checkpoint/convert/target_make.h"
#include "checkpoint/namings/namings.h"
#include "tests/support/check.h"

#include <reshard/model_rules.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_maps__parse_and_belong_to_a_naming(void **state)
{
    int used[32] = {0};
    (void)state;
    for (const rs_shipped_map *map = rs_shipped_maps; map->name != NULL; map++) {
        reshard_map *parsed = NULL;
        const reshard_map_options options = {
            .size = sizeof options, .file_name = map->name, .find = rs_shipped_map_text};
        rs_slice header = rs_shipped_map_header(map);
        assert_int_equal(reshard_map_parse(NULL, map->text, strlen(map->text), &options, &parsed),
                         RESHARD_OK);
        const char *left = reshard_map_naming(parsed, RESHARD_MAP_LEFT);
        const char *right = reshard_map_naming(parsed, RESHARD_MAP_RIGHT);
        if (header.count != 0) { /* otherwise it is a part of others */
            const rs_naming *naming = rs_naming_named(right);
            char start[64];
            assert_string_equal(left, "hf");
            assert_non_null(naming);
            used[naming - rs_namings]++;
            /* The file is called after the two. */
            (void)snprintf(start, sizeof start, "hf-%s", right);
            assert_int_equal(strncmp(map->name, start, strlen(start)), 0);
        }
        assert_ptr_equal(rs_shipped_map_named(map->name), map);
        reshard_map_release(parsed);
    }
    for (int i = 0; rs_namings[i].name != NULL; i++)
        assert_int_equal(used[i] != 0,
                         &rs_namings[i] != rs_naming_hf() && !rs_namings[i].has_hf_names);
}

static void test_maps__one_for_each_type(void **state)
{
    (void)state;
    for (const rs_naming *naming = rs_namings; naming->name != NULL; naming++) {
        const rs_shipped_map *map = NULL;
        if (naming == rs_naming_hf()) {
            assert_int_equal(rs_shipped_map_choose(naming, "llama", &map), RESHARD_ERR_NOT_FOUND);
            assert_string_equal(reshard_error_text(), "there is no map between hf and hf");
        } else {
            (void)rs_shipped_map_choose(naming, "no such type", &map);
        }
    }
    const rs_shipped_map *map = NULL;
    assert_int_equal(rs_shipped_map_choose(rs_naming_named("hf5"), "mixtral", &map), RESHARD_OK);
    assert_string_equal(map->name, "hf-hf5-mixtral");
    assert_int_equal(rs_shipped_map_choose(rs_naming_named("hf5"), "mixtral2", &map), RESHARD_OK);
    assert_string_equal(map->name, "hf-hf5");
    assert_int_equal(rs_shipped_map_choose(rs_naming_named("hf5"), NULL, &map), RESHARD_OK);
    assert_string_equal(map->name, "hf-hf5");
}

/* ---- signs ----------------------------------------------------------------------------------- */

static const char *listed_name(void *user, int64_t index, size_t *out_bytes)
{
    const char *const *names = user;
    if (names[index] == NULL)
        return NULL;
    *out_bytes = strlen(names[index]);
    return names[index];
}

static void check_dialect(const char *const *names, const char *type, const char *dialect,
                          const char *wanted)
{
    const rs_naming *naming = NULL;
    assert_int_equal(rs_naming_recognise(listed_name, (void *)names, type, dialect, &naming),
                     RESHARD_OK);
    assert_string_equal(naming->name, wanted);
}

static void check_naming(const char *const *names, const char *type, const char *wanted)
{
    check_dialect(names, type, NULL, wanted);
}

/* torchtitan's first releases, Meta and Mistral have the same names: params.json tells. */
static void test_recognise__by_params(void **state)
{
    const char *dense[] = {"layers.0.attention.wq.weight", NULL};
    const char *angles[] = {"layers.0.attention.wq.weight", "rope.freqs", NULL};
    const char *fused[] = {"layers.0.attention.wqkv.layer_norm_weight", NULL};
    const char *experts[] = {"layers.0.attention.wq.weight",
                             "layers.0.feed_forward.experts.0.w1.weight", NULL};
    const char *hf[] = {"model.layers.0.self_attn.q_proj.weight", NULL};
    (void)state;
    check_naming(dense, "llama", "titan");
    check_dialect(dense, "llama", "meta", "meta");
    check_dialect(dense, "mistral", "mistral", "mistral");
    check_naming(angles, "llama", "meta");
    check_dialect(angles, "mistral", "mistral", "mistral");
    check_naming(fused, NULL, "meta");
    check_naming(experts, NULL, "mistral");
    check_dialect(hf, "mistral", "mistral", "hf");
}

static void test_recognise(void **state)
{
    const char *dense[] = {"model.layers.0.self_attn.q_proj.weight", NULL};
    const char *fused[] = {"model.layers.0.self_attn.q_proj.weight",
                           "model.layers.0.mlp.experts.gate_up_proj", NULL};
    const char *oss[] = {"model.layers.0.mlp.experts.gate_up_proj",
                         "model.layers.0.mlp.experts.gate_up_proj_bias", NULL};
    const char *unknown[] = {"a", "b.c", NULL};
    const rs_naming *naming = NULL;
    (void)state;
    check_naming(dense, NULL, "hf");
    check_naming(dense, "qwen3", "hf");
    check_naming(fused, "qwen3_moe", "hf5");
    check_naming(fused, NULL, "hf5");
    check_naming(oss, "gpt_oss", "hf");
    check_naming(unknown, "gpt2", "hf");
    assert_int_equal(rs_naming_recognise(listed_name, unknown, NULL, NULL, &naming),
                     RESHARD_ERR_NOT_FOUND);
    assert_non_null(strstr(reshard_error_text(), "belong to no known naming"));
}

/* ---- params.json ----------------------------------------------------------------------------- */

/* Numbers of Meta's releases, and widths that round numbers do not give. */
static void test_params__width(void **state)
{
    (void)state;
    assert_int_equal(rs_params_width_of(4096, 256, 1.0), 11008);
    assert_int_equal(rs_params_width_of(4096, 1024, 1.3), 14336);
    assert_int_equal(rs_params_width_of(8192, 4096, 1.3), 28672);
    for (int64_t dim = 8; dim <= 16384; dim = dim * 3 / 2 + 1) {
        for (int64_t width = 1; width <= 60000; width = width * 5 / 4 + 1) {
            rs_params_width found = rs_params_width_find(dim, width);
            double factor = found.multiplier[0] != '\0' ? strtod(found.multiplier, NULL) : 1.0;
            assert_int_equal(rs_params_width_of(dim, found.multiple_of, factor), width);
        }
    }
    assert_string_equal(rs_params_width_find(4096, 11008).multiplier, "");
    assert_string_equal(rs_params_width_find(4096, 14336).multiplier, "1.3");
}

/* ---- the public list ------------------------------------------------------------------------- */

static void test_list(void **state)
{
    reshard_naming naming = {.size = sizeof naming};
    reshard_naming_map map = {.size = sizeof map};
    int32_t count = 0;
    (void)state;
    for (; reshard_naming_at(count, &naming) == RESHARD_OK; count++) {
        assert_string_equal(naming.name, rs_namings[count].name);
        assert_true(strlen(naming.summary) > 10);
    }
    assert_null(rs_namings[count].name);
    assert_int_equal(reshard_naming_at(-1, &naming), RESHARD_ERR_RANGE);
    assert_int_equal(reshard_naming_map_at(-1, &map), RESHARD_ERR_RANGE);
    for (count = 0; reshard_naming_map_at(count, &map) == RESHARD_OK; count++) {
        reshard_naming_map found = {.size = sizeof found};
        assert_int_equal(reshard_naming_map_find(map.name, &found), RESHARD_OK);
        assert_ptr_equal(found.text, map.text);
    }
    assert_null(rs_shipped_maps[count].name);
    assert_int_equal(reshard_naming_map_find("hf:hf5", &map), RESHARD_OK);
    assert_string_equal(map.name, "hf-hf5");
    assert_int_equal(reshard_naming_map_find("hf5:hf", &map), RESHARD_OK);
    assert_string_equal(map.name, "hf-hf5");
    const char *const wrong[] = {"hf5:hf5", "hf:", ":hf5", "hf:hf", "", "hf-hf5.map"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(reshard_naming_map_find(wrong[i], &map), RESHARD_ERR_NOT_FOUND);
        assert_non_null(strstr(reshard_error_text(), "give one of hf-gguf-common"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps__parse_and_belong_to_a_naming),
        cmocka_unit_test(test_maps__one_for_each_type),
        cmocka_unit_test(test_recognise),
        cmocka_unit_test(test_recognise__by_params),
        cmocka_unit_test(test_params__width),
        cmocka_unit_test(test_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
