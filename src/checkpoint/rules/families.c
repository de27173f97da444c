/* SPDX-License-Identifier: Apache-2.0 */
/*
 * families.c - the built-in sets of rules, and which one a model needs.
 *
 * If a family has config.json's model_type in a line `types`, that decides; users may also name it
 * by such a type. Otherwise the names of
 * the tensors do: the first family of the list with a `sign` that matches any name is taken. Models
 * with experts also have names of the models without, so their families come earlier in the list.
 */
#include "checkpoint/rules/families.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/slice.h"
#include "checkpoint/rules/model.h"
#include "checkpoint/rules/rules.h"
#include "spec/scan.h"
#include "spec/spec.h"
#include "text/nearest.h"
#include "text/text.h"

#include <stdio.h>
#include <string.h>

#define SIGN_NAME_MAX 1000 /* longest name, in bytes, that is compared with signs */

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

/* ---- lines ----------------------------------------------------------------------------------- */

/* Steps to the next line of a family that begins with the word and a space. Returns the rest of
 * that line; nothing after the last one. */
static rs_slice next_line(const char **at, const char *word)
{
    size_t length = strlen(word);
    for (const char *line = *at; *line != '\0';) {
        const char *end = strchr(line, '\n');
        end = end != NULL ? end : line + strlen(line);
        *at = *end != '\0' ? end + 1 : end;
        if (strncmp(line, word, length) == 0 && line[length] == ' ')
            return (rs_slice){line + length + 1, (size_t)(end - line) - length - 1};
        line = *at;
    }
    return (rs_slice){NULL, 0};
}

/* Takes the next word off the front of a line; nothing after the last one. */
static rs_slice next_word(rs_slice *line)
{
    rs_slice rest = *line;
    while (rest.count != 0 && rest.bytes[0] == ' ')
        rest = (rs_slice){rest.bytes + 1, rest.count - 1};
    rs_slice word = {rest.bytes, 0};
    while (word.count < rest.count && rest.bytes[word.count] != ' ')
        word.count++;
    *line = (rs_slice){rest.bytes + word.count, rest.count - word.count};
    return word;
}

/* ---- by name --------------------------------------------------------------------------------- */

const rs_rule_family *rs_rule_family_named(const char *name, size_t length)
{
    for (const rs_rule_family *family = rs_rule_families; family->name != NULL; family++) {
        if (strlen(family->name) == length && memcmp(family->name, name, length) == 0)
            return family;
    }
    return NULL;
}

/* The next digit of a name at or after *at; NUL after the last one. */
static char next_digit(rs_slice name, size_t *at)
{
    while (*at < name.count && !rs_is_digit(name.bytes[*at]))
        (*at)++;
    return *at < name.count ? name.bytes[(*at)++] : '\0';
}

/* Suggests a name only if it has the same numbers: qwen4 is not a slip for qwen3 but another model,
 * and rules for one may cut the other wrongly. */
static void suggest(rs_nearest_search *search, rs_slice name)
{
    rs_slice word = {search->word, search->length};
    size_t i = 0, j = 0;
    char a, b;
    do {
        a = next_digit(word, &i);
        b = next_digit(name, &j);
    } while (a == b && a != '\0');
    if (a == b)
        rs_nearest_try(search, name.bytes, name.count);
}

/* The family with this model_type in a line `types`. Each type that is not the one wanted takes
 * part in the search for a suggestion. */
static const rs_rule_family *find_type(rs_slice type, rs_nearest_search *search)
{
    for (const rs_rule_family *family = rs_rule_families; family->name != NULL; family++) {
        const char *at = family->text;
        for (rs_slice line; (line = next_line(&at, "types")).count != 0;) {
            for (rs_slice word; (word = next_word(&line)).count != 0;) {
                if (rs_slice_compare(word, type) == 0)
                    return family;
                if (search != NULL)
                    suggest(search, word);
            }
        }
    }
    return NULL;
}

const rs_rule_family *rs_rule_family_find(const char *name, size_t length)
{
    rs_nearest_search search = {.word = name, .length = length};
    const rs_rule_family *found = rs_rule_family_named(name, length);
    for (const rs_rule_family *family = rs_rule_families; family->name != NULL; family++)
        suggest(&search, rs_slice_of(family->name));
    if (found == NULL && length != 0)
        found = find_type((rs_slice){name, length}, &search);
    if (found != NULL)
        return found;
    if (length == 0)
        (void)rs_fail_hint(RESHARD_ERR_NOT_FOUND, RESHARD_HINT_RULES, "",
                           "the name of a family of rules is empty");
    else if (search.found != NULL)
        (void)rs_fail(RESHARD_ERR_NOT_FOUND,
                      "there are no built-in rules \"%s\"; did you mean %.*s?",
                      rs_excerpt_of(name, length).text, (int)search.found_length, search.found);
    else
        (void)rs_fail_hint(RESHARD_ERR_NOT_FOUND, RESHARD_HINT_RULES, "",
                           "there are no built-in rules \"%s\"", rs_excerpt_of(name, length).text);
    return NULL;
}

reshard_status rs_rules_builtin(reshard_context *context, const char *family, rs_rules **out_rules)
{
    const rs_rule_family *found = rs_rule_family_find(family, strlen(family));
    if (found == NULL)
        return RESHARD_ERR_NOT_FOUND;
    reshard_status status =
        rs_rules_parse(context, found->text, strlen(found->text), found->name, out_rules);
    if (status == RESHARD_OK)
        (*out_rules)->is_builtin = true;
    return status;
}

/* ---- which one ------------------------------------------------------------------------------- */

/* Some meshes need no knowledge of the model. lenient: ignore axes with one coordinate. */
static bool detect_by_mesh(const reshard_mesh *mesh, bool lenient, rs_rules_choice *choice)
{
    const char *family = "replicate";
    for (int32_t i = 0; mesh != NULL && i < mesh->axis_count; i++) {
        const char *name = mesh->names[i];
        bool single = mesh->sizes[i] == 1;
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
    const rs_rule_family *family = find_type(rs_slice_of(model_type), NULL);
    if (family == NULL)
        return false;
    choice->family = family->name;
    (void)snprintf(choice->reason, sizeof choice->reason, "model_type is \"%s\"", model_type);
    return true;
}

/* Looks for a name that matches a sign of the family. */
static reshard_status find_sign(const rs_rule_family *family, rs_tensor_name_fn names, void *user,
                                rs_rules_choice *choice)
{
    const char *at = family->text;
    for (rs_slice sign; (sign = next_line(&at, "sign")).count != 0;) {
        rs_arena arena;
        rs_glob glob;
        bool matches = false;
        const char *name = NULL;
        size_t bytes = 0;
        rs_arena_init(&arena, NULL);
        reshard_status status = rs_glob_compile(&arena, sign.bytes, sign.count, &glob);
        for (int64_t i = 0;
             status == RESHARD_OK && !matches && (name = names(user, i, &bytes)) != NULL; i++) {
            if (bytes < SIGN_NAME_MAX)
                status = rs_glob_try(NULL, &glob, name, bytes, NULL, &matches);
        }
        rs_arena_release(&arena);
        if (status != RESHARD_OK)
            return status;
        if (matches) {
            choice->family = family->name;
            choice->is_by_name = true;
            (void)snprintf(choice->reason, sizeof choice->reason, "a tensor is called \"%.*s\"",
                           (int)(bytes < 100 ? bytes : 100), name);
            return RESHARD_OK;
        }
    }
    return RESHARD_OK;
}

/* With a model_type that no family has, going by names is a guess, and the user has to know. */
static void say_type_unknown(const char *model_type, rs_rules_choice *choice)
{
    char by_name[sizeof choice->reason];
    memcpy(by_name, choice->reason, sizeof by_name);
    (void)snprintf(choice->reason, sizeof choice->reason,
                   "no family knows model_type \"%.40s\", but %.140s", model_type, by_name);
}

static reshard_status detect_by_names(rs_tensor_name_fn names, void *user, rs_rules_choice *choice)
{
    reshard_status status = RESHARD_OK;
    for (const rs_rule_family *family = rs_rule_families;
         status == RESHARD_OK && choice->family == NULL && family->name != NULL; family++)
        status = find_sign(family, names, user, choice);
    return status;
}

static reshard_status fail_undetected(const char *model_type)
{
    if (model_type == NULL || model_type[0] == '\0')
        return rs_fail_hint(RESHARD_ERR_NOT_FOUND, RESHARD_HINT_CONFIG, "",
                            "no family of rules knows the names of the tensors, and no config.json "
                            "names a model_type");
    return rs_fail_hint(RESHARD_ERR_NOT_FOUND, RESHARD_HINT_RULES, model_type,
                        "no family knows model_type \"%.60s\" or the names of the tensors",
                        model_type);
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
    if (choice.family != NULL && choice.is_by_name && model_type != NULL)
        say_type_unknown(model_type, &choice);
    if (choice.family == NULL)
        (void)detect_by_mesh(mesh, true, &choice);
    if (choice.family == NULL)
        return fail_undetected(model_type);
    *out_choice = choice;
    return RESHARD_OK;
}
