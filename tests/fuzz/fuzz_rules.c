/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_rules.c - any bytes as rules, and behind a NUL any bytes as the name of a tensor that they
 * are applied to. What is refused has words; what is applied gives a layout; memory is bounded and
 * all given back.
 */
#include "checkpoint/rules/rules.h"

#include "tests/support/info.h"

#include <reshard/layout.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every key has a small value but those that begin with n. */
static bool find_key(void *user, const char *key, int64_t *out_value)
{
    (void)user;
    *out_value = (int64_t)(strlen(key) % 7);
    return key[0] != 'n';
}

static void check_result(const rs_rule_result *result)
{
    reshard_layout *layout = NULL;
    if (result->drop)
        return;
    if (reshard_layout_create(NULL, result->spec, result->ndim, result->padded_shape, &layout) !=
        RESHARD_OK)
        abort();
    reshard_layout_release(layout);
}

static void apply(const rs_rules *rules, const char *name, size_t name_bytes)
{
    static const char *const names[] = {"dp", "pp", "fsdp", "tp", "ep"};
    static const int32_t sizes[] = {2, 3, 2, 4, 1};
    static const int64_t shape[] = {24, 36};
    rs_rules_keys keys = {find_key, NULL, NULL};
    reshard_mesh *mesh = NULL;
    rs_rule_result result;
    if (reshard_mesh_create(NULL, 5, names, sizes, NULL, &mesh) != RESHARD_OK)
        abort();
    (void)rs_rules_check_mesh(rules, mesh);
    for (int32_t ndim = 0; ndim <= 2; ndim++) {
        if (rs_rules_apply(rules, mesh, &keys, name, name_bytes, ndim, shape, &result) ==
            RESHARD_OK) {
            check_result(&result);
            rs_rule_result_release(&result);
        } else if (reshard_error_text()[0] == '\0') {
            abort();
        }
    }
    reshard_mesh_release(mesh);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reshard_context_options options = {.size = sizeof options, .memory_bytes_max = (size_t)1 << 25};
    reshard_context *context = NULL;
    rs_rules *rules = NULL;
    const char *text = (const char *)data;
    const char *nul = size != 0 ? memchr(text, '\0', size) : NULL;
    size_t text_bytes = nul != NULL ? (size_t)(nul - text) : size;
    const char *name = nul != NULL ? nul + 1 : "model.layers.1.self_attn.q_proj.weight";
    size_t name_bytes = nul != NULL ? size - text_bytes - 1 : strlen(name);
    if (reshard_context_create(&options, &context) != RESHARD_OK)
        abort();
    if (rs_rules_parse(context, text, text_bytes, "fuzz", &rules) == RESHARD_OK)
        apply(rules, name, name_bytes);
    else if (reshard_error_text()[0] == '\0')
        abort();
    rs_rules_destroy(rules);
    if (info_memory(context).bytes != 0)
        abort();
    reshard_context_destroy(context);
    return 0;
}
