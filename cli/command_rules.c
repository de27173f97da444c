/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_rules.c - `reshard rules`: lists the families of built-in rules, prints one of them, or
 * drafts rules for a checkpoint, with lines that still have to be filled in.
 */
#include "cli/checkpoint_input.h"
#include "cli/commands.h"
#include "cli/common/failure.h"
#include "cli/common/memory.h"
#include "cli/common/table.h"
#include "cli/common/work.h"

#include <reshard/model_rules.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rules_values {
    const char *model, *rules;
} rules_values;

static const cli_option options[] = {
    {"for", CLI_TEXT, offsetof(rules_values, model), "CKPT", 0, "draft rules for this checkpoint"},
    {"rules", CLI_TEXT, offsetof(rules_values, rules), "R", 0,
     "with --for: start from these, not from the family that fits"},
};

enum { FAMILIES_MAX = 64 };

static void print_list(void)
{
    reshard_family family = {.size = sizeof family};
    cli_table *table = cli_table_create(2);
    cli_table_align(table, 0, CLI_LEFT);
    cli_table_align(table, 1, CLI_LEFT);
    cli_table_add(table, CLI_BOLD, "family");
    cli_table_add(table, CLI_BOLD, "for");
    for (int32_t i = 0; reshard_family_at(i, &family) == RESHARD_OK; i++) {
        cli_table_add(table, CLI_PLAIN, "%s", family.name);
        cli_table_add(table, CLI_PLAIN, "%.*s", (int)family.summary_bytes, family.summary);
    }
    cli_table_print(table);
    cli_table_destroy(table);
}

static int print_family(const char *name)
{
    reshard_family family = {.size = sizeof family};
    const char *names[FAMILIES_MAX];
    int count = 0;
    for (int32_t i = 0; reshard_family_at(i, &family) == RESHARD_OK; i++) {
        if (strcmp(family.name, name) == 0) {
            fputs(family.text, stdout);
            return CLI_DONE;
        }
        if (count < FAMILIES_MAX)
            names[count++] = family.name;
    }
    const char *nearest = cli_nearest(name, names, count);
    if (nearest == NULL)
        return cli_fail(CLI_USAGE, "rules: no family \"%s\"; reshard rules lists them", name);
    return cli_fail(CLI_USAGE, "rules: no family \"%s\"; did you mean %s?", name, nearest);
}

static int print_draft(const rules_values *values)
{
    const cli_checkpoint_source source = {.path = values->model, .plan_only = 1};
    cli_work work = {0};
    reshard_checkpoint *checkpoint = NULL;
    char *text = NULL;
    size_t length = 0;
    int code = cli_work_begin(&work);
    if (code != CLI_DONE)
        return code;
    reshard_status status = cli_checkpoint_open(work.context, &source, &checkpoint);
    if (status == RESHARD_OK)
        status = reshard_rules_draft(work.context, checkpoint, values->rules, NULL, 0, &length);
    if (status == RESHARD_OK) {
        text = cli_allocate(length + 1, 1);
        status =
            reshard_rules_draft(work.context, checkpoint, values->rules, text, length + 1, &length);
    }
    cli_work_settle(&work);
    if (status == RESHARD_OK)
        fputs(text, stdout);
    else
        code = cli_fail(CLI_FAILED, "%s", reshard_error_text());
    free(text);
    reshard_checkpoint_destroy(checkpoint);
    cli_work_end(&work);
    return code;
}

static int run(const cli_command *command, int argc, char **argv)
{
    rules_values values = {0};
    const char *family = NULL;
    int code = cli_options_parse(command, argc, argv, &values, &family);
    if (code != CLI_DONE)
        return code;
    if (values.model != NULL && family != NULL)
        return cli_fail(CLI_USAGE, "rules: give either the family \"%s\" or --for, not both",
                        family);
    if (values.rules != NULL && values.model == NULL)
        return cli_fail(CLI_USAGE, "rules: --rules is only for use with --for");
    if (values.model != NULL)
        return print_draft(&values);
    if (family != NULL)
        return print_family(family);
    print_list();
    return CLI_DONE;
}

const cli_command cli_command_rules = {
    .name = "rules",
    .summary = "the built-in rules that say how models are cut, or rules for a checkpoint",
    .synopsis = "[FAMILY]\n"
                "  reshard rules --for CKPT [--rules R]",
    .description =
        "Lists the families of built-in rules, or prints one of them. With --for, drafts rules\n"
        "for a checkpoint: the family that fits, and a line with ??? for each group of names\n"
        "that it does not know. Write them to a file, fill them in, and pass the file to\n"
        "--rules.\n",
    .operand = "FAMILY",
    .operand_is_optional = 1,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .examples = "  reshard rules\n"
                "  reshard rules llama\n"
                "  reshard rules --for model/ > model.rules\n",
    .run = run,
};
