/* SPDX-License-Identifier: Apache-2.0 */
/*
 * families.c - the built-in sets of rules, and which of them a model wants.
 *
 * config.json's model_type decides when it is known. Otherwise the names of the tensors tell the
 * families apart. A model with experts also has the names of a model without them, so all names are
 * looked at before one is trusted.
 */
#include "checkpoint/rules/families.h"
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/rules/rules.h"
#include "spec/scan.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *model_type, *family;
} model_types[] = {
    {"llama", "llama"},       {"mistral", "llama"},   {"qwen2", "llama"},
    {"qwen3", "llama"},       {"gemma", "llama"},     {"gemma2", "llama"},
    {"gemma3_text", "llama"}, {"phi3", "llama"},      {"gpt2", "gpt2"},
    {"gpt_neox", "neox"},     {"mixtral", "mixtral"}, {"qwen2_moe", "mixtral"},
    {"qwen3_moe", "mixtral"},
};

/* The first row that any name matches decides. */
static const struct {
    const char *glob, *family;
} signs[] = {
    {"*.{block_sparse_moe,mlp}.experts.*", "mixtral"},
    {"*.self_attn.{q,qkv}_proj.weight", "llama"},
    {"*h.{0..}.attn.c_attn.weight", "gpt2"},
    {"*.attention.query_key_value.weight", "neox"},
};
#define SIGN_COUNT (sizeof signs / sizeof *signs)

const char *rs_rules_family_name(int32_t index)
{
    int32_t count = 0;
    while (rs_rule_families[count].name != NULL)
        count++;
    return index >= 0 && index < count ? rs_rule_families[index].name : NULL;
}

const char *rs_rules_family_text(int32_t index)
{
    return rs_rules_family_name(index) != NULL ? rs_rule_families[index].text : NULL;
}

const rs_rule_family *rs_rule_family_find(const char *name, size_t length)
{
    char known[128];
    rs_text text;
    rs_text_init(&text, known, sizeof known);
    for (const rs_rule_family *family = rs_rule_families; family->name != NULL; family++) {
        if (strlen(family->name) == length && memcmp(family->name, name, length) == 0)
            return family;
        rs_text_add(&text, family == rs_rule_families ? "%s" : ", %s", family->name);
    }
    (void)rs_fail(RESHARD_ERR_NOT_FOUND, "there are no built-in rules \"%s\" (there are %s)",
                  rs_excerpt_of(name, length).text, known);
    return NULL;
}

reshard_status rs_rules_builtin(reshard_context *context, const char *family, rs_rules **out_rules)
{
    const rs_rule_family *found = rs_rule_family_find(family, strlen(family));
    if (found == NULL)
        return RESHARD_ERR_NOT_FOUND;
    return rs_rules_parse(context, found->text, strlen(found->text), found->name, out_rules);
}

/* ---- which one ------------------------------------------------------------------------------- */

/* Some meshes need no knowledge of the model. lenient: axes of one coordinate are ignored. */
static bool detect_by_mesh(const reshard_mesh *mesh, bool lenient, rs_rules_choice *choice)
{
    const char *family = "replicate";
    for (int32_t i = 0; mesh != NULL && i < reshard_mesh_axis_count(mesh); i++) {
        const char *name = reshard_mesh_axis_name(mesh, i);
        bool single = reshard_mesh_axis_size(mesh, i) == 1;
        if ((single && (lenient || name[0] == '\0')) || strcmp(name, "dp") == 0)
            continue;
        if (strcmp(name, "fsdp") != 0)
            return false;
        family = "fsdp";
    }
    if (mesh == NULL)
        return false;
    choice->family = family;
    (void)snprintf(choice->reason, sizeof choice->reason, "the mesh has no other axes to cut by");
    return true;
}

static bool detect_by_type(const char *model_type, rs_rules_choice *choice)
{
    for (size_t i = 0; i < sizeof model_types / sizeof *model_types; i++) {
        if (strcmp(model_types[i].model_type, model_type) != 0)
            continue;
        choice->family = model_types[i].family;
        (void)snprintf(choice->reason, sizeof choice->reason, "model_type is \"%s\"", model_type);
        return true;
    }
    return false;
}

static reshard_status detect_by_names(rs_tensor_name_fn names, void *user, rs_rules_choice *choice)
{
    size_t best = SIGN_COUNT, bytes = 0;
    const char *name;
    for (int64_t i = 0; best > 0 && (name = names(user, i, &bytes)) != NULL; i++) {
        for (size_t k = 0; k < best; k++) {
            bool matches = false;
            reshard_status status =
                bytes < 1000
                    ? rs_glob_match(signs[k].glob, strlen(signs[k].glob), name, bytes, &matches)
                    : RESHARD_OK;
            if (status != RESHARD_OK)
                return status;
            if (!matches)
                continue;
            best = k;
            choice->family = signs[k].family;
            (void)snprintf(choice->reason, sizeof choice->reason, "a tensor is called \"%.*s\"",
                           (int)(bytes < 100 ? bytes : 100), name);
        }
    }
    return RESHARD_OK;
}

reshard_status rs_rules_detect(const reshard_mesh *mesh, const char *model_type,
                               rs_tensor_name_fn names, void *user, rs_rules_choice *out_choice)
{
    rs_rules_choice choice = {.family = NULL};
    reshard_status status = RESHARD_OK;
    if (!detect_by_mesh(mesh, false, &choice) &&
        (model_type == NULL || !detect_by_type(model_type, &choice)) && names != NULL)
        status = detect_by_names(names, user, &choice);
    if (status != RESHARD_OK)
        return status;
    if (choice.family == NULL)
        (void)detect_by_mesh(mesh, true, &choice);
    if (choice.family == NULL)
        return rs_fail(
            RESHARD_ERR_NOT_FOUND,
            "no built-in rules for model_type \"%.60s\", nor for the names of the tensors",
            model_type != NULL ? model_type : "");
    *out_choice = choice;
    return RESHARD_OK;
}
