/* SPDX-License-Identifier: Apache-2.0 */
/* rulebook.c - turns the text of options into rules and numbers. */
#include "checkpoint/rules/rulebook.h"

#include "base/context.h"
#include "base/error.h"
#include "base/sort.h"
#include "checkpoint/rules/families.h"
#include "checkpoint/rules/model.h"
#include "spec/scan.h"
#include "spec/spec.h"
#include "system/file.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RULES_BYTES_MAX ((size_t)16 << 20)

int32_t rs_mesh_order_files(const reshard_mesh *mesh, int32_t *out_ranks, int32_t *out_files)
{
    int32_t count = mesh->size;
    assert(count > 0);
    for (int32_t i = 0; i < count; i++)
        out_ranks[i] = reshard_mesh_rank_at(mesh, i);
    rs_sort(out_ranks, (size_t)count, sizeof(int32_t), rs_compare_i32);
    int32_t files = 0;
    for (int32_t i = 0; i < count; i++) {
        if (i == 0 || out_ranks[i] != out_ranks[files - 1])
            out_ranks[files++] = out_ranks[i];
    }
    for (int32_t i = 0; i < count; i++) {
        int32_t rank = reshard_mesh_rank_at(mesh, i);
        const int32_t *found =
            bsearch(&rank, out_ranks, (size_t)files, sizeof rank, rs_compare_i32);
        assert(found != NULL);
        out_files[i] = (int32_t)(found - out_ranks);
    }
    return files;
}

static reshard_status use_family(rs_rulebook *book, reshard_context *context,
                                 const rs_rule_family *family, const char *given)
{
    bool is_type = strcmp(family->name, given) != 0;
    (void)snprintf(book->said, sizeof book->said, "rules of the family %s%s%.60s%s", family->name,
                   is_type ? " (for model_type " : "", is_type ? given : "", is_type ? ")" : "");
    (void)snprintf(book->name, sizeof book->name, "%.60s", family->name);
    return rs_rules_builtin(context, family->name, &book->rules);
}

/* The name of a family comes before a file of that name, and a file before a model_type: there are
 * many types, and more with each release. */
static reshard_status read_rules(rs_rulebook *book, reshard_context *context, const char *given)
{
    char *text = NULL;
    size_t text_bytes = 0;
    const rs_rule_family *family = rs_rule_family_named(given, strlen(given));
    if (family != NULL)
        return use_family(book, context, family, given);
    reshard_status status =
        given[0] != '\0' ? rs_file_read_all(context, given, RULES_BYTES_MAX, &text, &text_bytes)
                         : RESHARD_ERR_NOT_FOUND;
    if (status == RESHARD_ERR_NOT_FOUND) {
        family = rs_rule_family_find(given, strlen(given));
        if (family != NULL)
            return use_family(book, context, family, given);
        return given[0] != '\0'
                   ? rs_fail_within(status, "rules \"%.200s\": there is no such file or family",
                                    given)
                   : status;
    }
    if (status == RESHARD_OK)
        status = rs_rules_parse(context, text, text_bytes, given, &book->rules);
    rs_release(context, text);
    const char *slash = strrchr(given, '/');
    (void)snprintf(book->said, sizeof book->said, "rules of %.200s", given);
    (void)snprintf(book->name, sizeof book->name, "%.60s", slash != NULL ? slash + 1 : given);
    return status;
}

static reshard_status pick_family(rs_rulebook *book, reshard_context *context,
                                  rs_tensor_name_fn names, void *user)
{
    rs_rules_choice choice;
    reshard_status status =
        rs_rules_detect(book->mesh, book->config.model_type, names, user, &choice);
    if (status != RESHARD_OK)
        return status;
    (void)snprintf(book->said, sizeof book->said, "rules of the family %s: %s", choice.family,
                   choice.reason);
    (void)snprintf(book->name, sizeof book->name, "%.60s", choice.family);
    return rs_rules_builtin(context, choice.family, &book->rules);
}

/* What became of the lines: whether each matches a tensor, and is the first that does. */
typedef struct rs_rule_uses {
    bool *matches, *decides;
} rs_rule_uses;

/* Does nothing but the name decide whether the line applies? */
static bool is_unconditional(const rs_rule *rule)
{
    return !rule->is_every && !rule->has_shape && rule->when.count == 0 &&
           rule->when_key.count == 0 && rule->without_text.count == 0;
}

/* Goes through the lines for one name. Those behind one that surely decides never do, so they are
 * tried only if no name has matched them yet. */
static reshard_status use_lines(const rs_rules *rules, const char *name, size_t bytes,
                                const rs_rule_uses *uses)
{
    bool is_decided = false;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < rules->rule_count; i++) {
        const rs_rule *rule = &rules->rules[i];
        const bool may_decide = !is_decided || rule->is_every;
        bool matches = false;
        if (uses->matches[i] && !may_decide)
            continue;
        status = rs_glob_try(rules->context, &rule->glob, name, bytes, NULL, &matches);
        uses->matches[i] = uses->matches[i] || matches;
        uses->decides[i] = uses->decides[i] || (matches && may_decide);
        is_decided = is_decided || (matches && is_unconditional(rule));
    }
    return status;
}

/* Adds what is said of lines of the user's own file that are marked false. */
static void say_lines(rs_rulebook *book, const bool *marks, const bool *others, const char *what,
                      const char *rest)
{
    const rs_rules *rules = book->rules;
    const rs_rule *first = NULL;
    int64_t count = 0;
    for (int64_t i = 0; i < rules->rule_count; i++) {
        const rs_rule *rule = &rules->rules[i];
        if (rule->file_name != rules->file_name || marks[i] || (others != NULL && !others[i]))
            continue;
        first = first != NULL ? first : rule;
        count++;
    }
    size_t used = strlen(book->said);
    if (count != 0)
        (void)snprintf(book->said + used, sizeof book->said - used, "; line %" PRId32 " (%s) %s%s",
                       first->line,
                       rs_excerpt_of(first->glob_text.bytes, first->glob_text.count).text, what,
                       count > 1 ? rest : "");
}

/* If a line of the user's own rules matches no tensor, or never first, it is probably a mistake, so
 * report it. Built-in families cover many models, and always have lines for others. */
static reshard_status say_unused(rs_rulebook *book, rs_tensor_name_fn names, void *user)
{
    const rs_rules *rules = book->rules;
    reshard_status status = RESHARD_OK;
    const char *name;
    size_t bytes = 0;
    if (names == NULL || rules->is_builtin)
        return RESHARD_OK;
    bool *marks = rs_allocate_zeroed(rules->context, 2 * (size_t)rules->rule_count);
    if (marks == NULL)
        return rs_allocation_status();
    const rs_rule_uses uses = {marks, marks + rules->rule_count};
    for (int64_t i = 0; status == RESHARD_OK && (name = names(user, i, &bytes)) != NULL; i++) {
        if (bytes <= RS_GLOB_NAME_MAX)
            status = use_lines(rules, name, bytes, &uses);
    }
    if (status == RESHARD_OK) {
        say_lines(book, uses.matches, NULL, "matches no tensor", ", nor do others");
        say_lines(book, uses.decides, uses.matches, "is never the first that matches",
                  ", nor are others");
    }
    rs_release(rules->context, marks);
    return status;
}

reshard_status rs_rulebook_init(rs_rulebook *book, reshard_context *context, reshard_mesh *mesh,
                                const char *rules, const reshard_checkpoint *model,
                                int32_t set_count, const char *const *sets, rs_tensor_name_fn names,
                                void *user)
{
    assert(mesh != NULL && model != NULL);
    reshard_mesh *folded = NULL;
    *book = (rs_rulebook){.mesh = reshard_mesh_retain(mesh)};
    reshard_status status = rs_config_init_for(&book->config, model, set_count, sets);
    book->keys = (rs_rules_keys){rs_config_find, &book->config, rs_config_find_text};
    if (status != RESHARD_OK)
        return status;
    status =
        rules == NULL ? pick_family(book, context, names, user) : read_rules(book, context, rules);
    if (status == RESHARD_OK)
        status = rs_rules_fold_mesh(book->rules, mesh, &folded);
    if (folded != NULL) {
        reshard_mesh_release(book->mesh);
        book->mesh = folded;
    }
    if (status == RESHARD_OK)
        status = rs_rules_check_mesh(book->rules, book->mesh);
    if (status == RESHARD_OK)
        status = rs_rules_bind(book->rules, names, user);
    return status == RESHARD_OK ? say_unused(book, names, user) : status;
}

void rs_rulebook_release(rs_rulebook *book)
{
    reshard_mesh_release(book->mesh);
    rs_rules_destroy(book->rules);
    rs_config_release(&book->config);
    book->mesh = NULL;
    book->rules = NULL;
}
