/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft.c - lists the built-in rules, and drafts rules for a checkpoint: lines to be filled in for
 * names that no rule matches, followed by the family that covers the others.
 */
#include <reshard/model_rules.h>

#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "checkpoint/rules/families.h"
#include "checkpoint/rules/model.h"
#include "checkpoint/rules/name_groups.h"
#include "checkpoint/rules/rulebook.h"
#include "text/text.h"

#include <inttypes.h>
#include <string.h>

#define SHAPE_BYTES 192
#define LONG_NAME_BYTES 60 /* shown of a name that is too long for a pattern */

static reshard_status describe(const rs_rule_family *family, reshard_family *out_family)
{
    const char *summary = family->text + strspn(family->text, "# ");
    reshard_family filled = {.name = family->name,
                             .text = family->text,
                             .summary = summary,
                             .summary_bytes = strcspn(summary, "\n")};
    return rs_report_write("family", &filled, sizeof filled, out_family);
}

reshard_status reshard_family_at(int32_t index, reshard_family *out_family)
{
    int32_t count = 0;
    while (rs_rule_families[count].name != NULL)
        count++;
    if (index < 0 || index >= count)
        return rs_fail(RESHARD_ERR_RANGE, "there are %" PRId32 " families, and no number %" PRId32,
                       count, index);
    return describe(&rs_rule_families[index], out_family);
}

reshard_status reshard_family_find(const char *name, reshard_family *out_family)
{
    const rs_rule_family *family = rs_rule_family_find(name, strlen(name));
    return family != NULL ? describe(family, out_family) : RESHARD_ERR_NOT_FOUND;
}

/* ---- drafting -------------------------------------------------------------------------------- */

static const char *name_at(void *user, int64_t index, size_t *out_bytes)
{
    const reshard_checkpoint *checkpoint = user;
    if (index >= checkpoint->tensor_count)
        return NULL;
    *out_bytes = checkpoint->tensors[index].name.count;
    return checkpoint->tensors[index].name.bytes;
}

typedef struct drafting {
    const reshard_checkpoint *checkpoint;
    rs_arena arena;
    reshard_mesh *mesh; /* of one rank, so that nothing is cut but names can be looked up */
    rs_rulebook book;
    /* rules asked for; rules asked for or chosen, NULL if no family fits */
    const char *given, *used;
    int64_t group_count;
    rs_name_group *groups; /* names without a rule */
} drafting;

/* Chooses rules as a conversion does, except that it is no error if none fits. */
static reshard_status choose_rules(drafting *draft, reshard_context *context)
{
    void *user = (void *)(uintptr_t)draft->checkpoint;
    rs_rules_choice choice = {.family = NULL};
    rs_config config;
    reshard_status status = rs_config_init_for(&config, draft->checkpoint, 0, NULL);
    draft->used = draft->given;
    if (status == RESHARD_OK && draft->given == NULL) {
        status = rs_rules_detect(NULL, config.model_type, name_at, user, &choice);
        draft->used = choice.family;
        if (status == RESHARD_ERR_NOT_FOUND)
            status = RESHARD_OK;
    }
    rs_config_release(&config);
    if (status == RESHARD_OK && draft->used != NULL)
        status = rs_rulebook_init(&draft->book, context, draft->mesh, draft->used,
                                  draft->checkpoint, 0, NULL, name_at, user);
    return status;
}

static reshard_status find_unmatched(drafting *draft)
{
    const reshard_checkpoint *checkpoint = draft->checkpoint;
    const rs_rulebook *book = &draft->book;
    int64_t count = 0;
    rs_named_shape *items =
        rs_arena_allocate_array(&draft->arena, (size_t)checkpoint->tensor_count, sizeof *items);
    if (items == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < checkpoint->tensor_count; i++) {
        const rs_stored_tensor *tensor = &checkpoint->tensors[i];
        rs_rule_result result = {.unmatched = draft->used == NULL};
        reshard_status status = RESHARD_OK;
        if (draft->used != NULL)
            status = rs_rules_name(book->rules, book->mesh, &book->keys, tensor->name.bytes,
                                   tensor->name.count, tensor->ndim, tensor->shape, &result);
        /* A tensor whose shape fits no rule needs a line of its own, too. */
        if (status == RESHARD_ERR_INVALID || (status == RESHARD_OK && result.unmatched))
            items[count++] = (rs_named_shape){tensor->name, tensor->ndim, tensor->shape};
        else if (status != RESHARD_OK)
            return status;
        rs_rule_result_release(&result);
    }
    return rs_name_groups_make(&draft->arena, count, items, &draft->groups, &draft->group_count);
}

/* Whether a line that begins with this pattern would be read as something else. */
static bool reads_as_syntax(const char *pattern)
{
    static const char *const words[] = {"every", "every:", "use", "default", "types", "sign"};
    bool found = pattern[0] == '#';
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        found = found || strcmp(pattern, words[i]) == 0;
    return found;
}

/* Writes the line of a group, so that rules can be read whatever the names are: they come from a
 * file that somebody else may have written. */
static void write_group(const rs_name_group *group, int width, rs_text *text)
{
    char shape_buffer[SHAPE_BYTES];
    rs_text shape;
    rs_text_init(&shape, shape_buffer, sizeof shape_buffer);
    rs_text_add_shape(&shape, group->first->ndim, group->first->shape);
    size_t length = strlen(group->pattern);
    if (length >= RS_GLOB_BYTES_MAX) { /* a backslash may have to go in front */
        rs_text_add(text,
                    "# x%" PRId64 "  %s  too long for a pattern (%zu bytes), use *: ", group->count,
                    shape_buffer, length);
        rs_text_add_escaped(text, group->pattern, LONG_NAME_BYTES);
        rs_text_add(text, "..\n");
        return;
    }
    const char *front = reads_as_syntax(group->pattern) ? "\\" : "";
    rs_text_add(text, "%s%-*s  ???  # x%" PRId64 "  %s\n", front, width - (int)strlen(front),
                length != 0 ? group->pattern : "{}", group->count, shape_buffer);
}

static void write_draft(const drafting *draft, rs_text *text)
{
    size_t widest = 0;
    for (int64_t i = 0; i < draft->group_count; i++) {
        size_t length = strlen(draft->groups[i].pattern);
        widest = length > widest ? length : widest;
    }
    rs_text_add(text, "# Rules for %" PRId64 " tensors", draft->checkpoint->tensor_count);
    if (draft->used != NULL) {
        rs_text_add(text, ", with those of ");
        rs_text_add_escaped(text, draft->used, strlen(draft->used));
    } else {
        rs_text_add(text, ", whose names no family knows");
    }
    rs_text_add(text, "\n");
    if (draft->group_count != 0)
        rs_text_add(text, "# In place of ???, say how these are cut: R (whole), S(0)@tp (rows), "
                          "S(1)@tp (columns), drop, ..\n");
    for (int64_t i = 0; i < draft->group_count; i++)
        write_group(&draft->groups[i], (int)(widest < 200 ? widest : 200), text);
    if (draft->used == NULL)
        rs_text_add(text, "every:  S(0)@fsdp\n");
    else if (draft->book.rules->is_builtin)
        rs_text_add(text, "use %s\n", draft->book.name);
}

reshard_status reshard_rules_draft(reshard_context *context, const reshard_checkpoint *checkpoint,
                                   const char *rules, char *buffer, size_t capacity,
                                   size_t *out_length)
{
    drafting draft = {.checkpoint = checkpoint, .given = rules};
    rs_text text;
    rs_arena_init(&draft.arena, context);
    reshard_status status = reshard_mesh_parse(context, "1", &draft.mesh);
    if (status == RESHARD_OK)
        status = choose_rules(&draft, context);
    if (status == RESHARD_OK)
        status = find_unmatched(&draft);
    if (status == RESHARD_OK) {
        rs_text_init(&text, buffer, capacity);
        write_draft(&draft, &text);
        *out_length = text.length;
    }
    if (draft.book.mesh != NULL)
        rs_rulebook_release(&draft.book);
    reshard_mesh_release(draft.mesh);
    rs_arena_release(&draft.arena);
    return status;
}
