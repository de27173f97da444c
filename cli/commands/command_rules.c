/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_rules.c - `reshard rules`: lists the families of built-in rules, prints one of them, or
 * drafts rules for a checkpoint, with lines that still have to be filled in. Lists namings and
 * prints the maps between them, too.
 */
#include "cli/checkpoint/checkpoint_input.h"
#include "cli/commands/commands.h"
#include "cli/common/failure.h"
#include "cli/common/memory.h"
#include "cli/common/table.h"
#include "cli/common/work.h"

#include <reshard/model_rules.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rules_values {
    const char *path, *rules, *as;
    reshard_checkpoint_options opening;
    int namings;
} rules_values;

static const cli_option options[] = {
    {"for", CLI_TEXT, offsetof(rules_values, path), "CKPT", 0, "draft rules for this checkpoint"},
    {"rules", CLI_TEXT, offsetof(rules_values, rules), "R", 0,
     "with --for: start from these, not from the family that fits"},
    {"as", CLI_TEXT, offsetof(rules_values, as), "NAMING", 0,
     "with --for: draft a map to this naming instead"},
    {"config", CLI_TEXT, offsetof(rules_values, opening.config), "BASE", 0,
     "with --for: take config.json from this folder"},
    {"namings", CLI_FLAG, offsetof(rules_values, namings), NULL, 0,
     "list the namings that --as of reshard convert takes"},
};

static cli_table *begin_list(const char *first, const char *second)
{
    cli_table *table = cli_table_create(2);
    cli_table_align(table, 0, CLI_LEFT);
    cli_table_align(table, 1, CLI_LEFT);
    cli_table_add(table, CLI_BOLD, "%s", first);
    cli_table_add(table, CLI_BOLD, "%s", second);
    return table;
}

static void print_namings(void)
{
    reshard_naming naming = {.size = sizeof naming};
    cli_table *table = begin_list("naming", "is");
    for (int32_t i = 0; reshard_naming_at(i, &naming) == RESHARD_OK; i++) {
        cli_table_add(table, CLI_PLAIN, "%s", naming.name);
        cli_table_add(table, CLI_PLAIN, "%s", naming.summary);
    }
    cli_table_print(table);
    cli_table_destroy(table);
}

static void print_list(void)
{
    reshard_family family = {.size = sizeof family};
    cli_table *table = begin_list("family", "for");
    for (int32_t i = 0; reshard_family_at(i, &family) == RESHARD_OK; i++) {
        cli_table_add(table, CLI_PLAIN, "%s", family.name);
        cli_table_add(table, CLI_PLAIN, "%.*s", (int)family.summary_bytes, family.summary);
    }
    cli_table_print(table);
    cli_table_destroy(table);
}

/* Prints the map between hf and a naming, "hf:hf5"; with a checkpoint, the one for its model. */
static int print_map(const char *name, const rules_values *values)
{
    reshard_naming_map map = {.size = sizeof map};
    cli_work work = {0};
    reshard_checkpoint *checkpoint = NULL;
    reshard_status status = reshard_naming_map_find(name, &map);
    if (status != RESHARD_OK)
        return cli_fail_library(status, CLI_USAGE, "rules");
    int code = values->path != NULL ? cli_work_begin(&work) : CLI_DONE;
    if (code != CLI_DONE)
        return code;
    if (values->path != NULL) {
        const char *colon = strchr(name, ':');
        char naming[64];
        size_t left = colon != NULL ? (size_t)(colon - name) : 0;
        /* One of the two is hf, and the other is asked for. */
        int is_second = colon != NULL && left == 2 && memcmp(name, "hf", 2) == 0;
        (void)snprintf(naming, sizeof naming, "%.*s", is_second ? 60 : (int)left,
                       is_second ? colon + 1 : name);
        status = cli_checkpoint_open(work.context, values->path, &values->opening, &checkpoint);
        if (status == RESHARD_OK && colon != NULL)
            status = reshard_checkpoint_find_map(checkpoint, naming, &map);
        cli_work_settle(&work);
    }
    if (status == RESHARD_OK)
        fputs(map.text, stdout);
    else
        code = cli_fail_library(status, CLI_FAILED, NULL);
    reshard_checkpoint_destroy(checkpoint);
    cli_work_end(&work);
    return code;
}

/* Whether a name is that of a map rather than of a family. */
static int names_map(const char *name)
{
    reshard_naming_map map = {.size = sizeof map};
    return name != NULL &&
           (strchr(name, ':') != NULL || reshard_naming_map_find(name, &map) == RESHARD_OK);
}

static int print_family(const char *name)
{
    reshard_family family = {.size = sizeof family};
    reshard_status status = reshard_family_find(name, &family);
    if (status != RESHARD_OK)
        return cli_fail_library(status, CLI_USAGE, "rules");
    fputs(family.text, stdout);
    return CLI_DONE;
}

static reshard_status write_draft(const cli_work *work, const reshard_checkpoint *checkpoint,
                                  const rules_values *values, char *text, size_t capacity,
                                  size_t *out_length)
{
    return values->as != NULL ? reshard_map_draft(work->context, checkpoint, values->as, text,
                                                  capacity, out_length)
                              : reshard_rules_draft(work->context, checkpoint, values->rules, text,
                                                    capacity, out_length);
}

static int print_draft(const rules_values *values)
{
    cli_work work = {0};
    reshard_checkpoint *checkpoint = NULL;
    char *text = NULL;
    size_t length = 0;
    int code = cli_work_begin(&work);
    if (code != CLI_DONE)
        return code;
    reshard_status status =
        cli_checkpoint_open(work.context, values->path, &values->opening, &checkpoint);
    if (status == RESHARD_OK)
        status = write_draft(&work, checkpoint, values, NULL, 0, &length);
    if (status == RESHARD_OK) {
        text = cli_allocate(length + 1, 1);
        status = write_draft(&work, checkpoint, values, text, length + 1, &length);
    }
    cli_work_settle(&work);
    if (status == RESHARD_OK)
        fputs(text, stdout);
    else
        code = cli_fail_library(status, CLI_FAILED, NULL);
    free(text);
    reshard_checkpoint_destroy(checkpoint);
    cli_work_end(&work);
    return code;
}

static int run(const cli_command *command, int argc, char **argv)
{
    rules_values values = {.opening = {.size = sizeof values.opening, .plan_only = 1}};
    const char *family = NULL;
    int code = cli_options_parse(command, argc, argv, &values, &family);
    if (code != CLI_DONE)
        return code;
    if (values.as != NULL && family != NULL)
        return cli_fail(CLI_USAGE, "rules: --as is for drafts; leave out \"%s\"", family);
    if (values.namings && (family != NULL || values.path != NULL))
        return cli_fail(CLI_USAGE, "rules: --namings lists all namings; leave out %s",
                        family != NULL ? "the name" : "--for");
    if (values.namings) {
        print_namings();
        return CLI_DONE;
    }
    if (names_map(family) && values.rules != NULL)
        return cli_fail(CLI_USAGE, "rules: --rules has no effect on a map; leave it out");
    if (names_map(family))
        return print_map(family, &values);
    if (values.path != NULL && family != NULL)
        return cli_fail(CLI_USAGE, "rules: give either the family \"%s\" or --for, not both",
                        family);
    if (values.as != NULL && (values.path == NULL || values.rules != NULL))
        return cli_fail(CLI_USAGE, values.path == NULL
                                       ? "rules: --as needs --for"
                                       : "rules: --as drafts a map; leave out --rules");
    if (values.rules != NULL && values.path == NULL)
        return cli_fail(CLI_USAGE, "rules: --rules needs --for");
    if (values.opening.config != NULL && values.path == NULL)
        return cli_fail(CLI_USAGE, "rules: --config needs --for");
    if (values.path != NULL)
        return print_draft(&values);
    if (family != NULL)
        return print_family(family);
    print_list();
    return CLI_DONE;
}

const cli_command cli_command_rules = {
    .name = "rules",
    .summary = "built-in rules, or a draft of rules for a checkpoint",
    .synopsis = "[FAMILY]\n"
                "  reshard rules --for CKPT [--rules R] [--config BASE]\n"
                "  reshard rules --for CKPT --as NAMING [--config BASE]\n"
                "  reshard rules --namings\n"
                "  reshard rules MAP [--for CKPT [--config BASE]]",
    .description =
        "Lists the families of built-in rules, or prints one of them, named by itself or by a\n"
        "model_type that it is for (qwen3 prints llama). With --for, drafts rules\n"
        "for a checkpoint: the family that fits, and a line with ??? for each group of names\n"
        "that it does not know. Write them to a file, fill them in, and pass the file to\n"
        "--rules.\n"
        "\n"
        "--namings lists the namings of models that reshard convert --as takes. MAP is a map\n"
        "between hf and one of them: hf:hf5, or with --for the one for that model; or the name\n"
        "of a map, hf-hf5-mixtral. It is printed as text, to be read or changed and given to\n"
        "reshard convert --map (docs/maps.md). --for with --as drafts such a map for a model\n"
        "that has none, with ??? for names that are not known.\n",
    .operand = "FAMILY",
    .operand_is_optional = 1,
    CLI_OPTIONS(options),
    .examples = "  reshard rules\n"
                "  reshard rules llama\n"
                "  reshard rules --for model/ > model.rules\n"
                "  reshard rules --namings\n"
                "  reshard rules hf:hf5\n"
                "  reshard rules --for model/ --as vllm > model.map\n",
    .run = run,
};
