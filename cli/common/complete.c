/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete.c - completes words from the same tables that parse the options, so that a new option,
 * format or family is completed as soon as it exists. An option's kind, and the name that help has
 * for its value, tell what it takes.
 */
#include "cli/common/complete.h"

#include "cli/common/failure.h"

#include <reshard/model_rules.h>

#include <stdio.h>
#include <string.h>

/* Whether no shell does anything with the text but take it as it is, whatever quotes are open and
 * whatever the locale. That leaves ASCII only: in some locales, bytes of other characters are
 * blanks, or begin characters that swallow a quote. */
static int is_plain(const char *text, size_t length)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_.,:/@%+=-";
    for (size_t i = 0; i < length; i++) {
        if (memchr(plain, text[i], sizeof plain - 1) == NULL)
            return 0;
    }
    return 1;
}

void cli_completion_offer(const cli_completion *c, const char *text, size_t length)
{
    size_t written = strlen(c->word);
    if (length < written || memcmp(text, c->word, written) != 0 || !is_plain(text, length))
        return;
    printf("%.*s%.*s\n", c->lead_length, c->lead, (int)length, text);
}

static void offer(const cli_completion *c, const char *text)
{
    cli_completion_offer(c, text, strlen(text));
}

void cli_complete_words(const char *word, const char *const *candidates, int count)
{
    const cli_completion c = {.word = word, .lead = ""};
    puts("words");
    for (int i = 0; i < count; i++)
        offer(&c, candidates[i]);
}

/* ---- the words before ------------------------------------------------------------------------ */

static const cli_option *find_option(const cli_command *command, const char *written)
{
    return strncmp(written, "--", 2) == 0
               ? cli_command_find(command, written + 2, strcspn(written + 2, "="))
               : NULL;
}

static void note_value(cli_completion *c, const cli_option *option, const char *value)
{
    if (strcmp(option->name, "from") == 0)
        c->from = value;
    else if (strcmp(option->name, "rules") == 0)
        c->rules = value;
}

/* Goes through all words except the last, as the parser will. Returns the option whose value the
 * last word is, or NULL. */
static const cli_option *walk(const cli_command *command, int argc, char **argv, cli_completion *c,
                              int *out_operand_count, int *out_ended)
{
    *out_operand_count = *out_ended = 0;
    for (int i = 0; i < argc - 1; i++) {
        const char *text = argv[i];
        if (*out_ended || text[0] != '-' || text[1] == '\0') {
            if (*out_operand_count < 2)
                c->operands[*out_operand_count] = text;
            ++*out_operand_count;
            continue;
        }
        *out_ended = strcmp(text, "--") == 0;
        const cli_option *option = find_option(command, text);
        if (option == NULL || option->kind == CLI_FLAG)
            continue;
        const char *equals = strchr(text, '=');
        if (equals == NULL && ++i == argc - 1)
            return option;
        note_value(c, option, equals != NULL ? equals + 1 : argv[i]);
    }
    return NULL;
}

int cli_completion_operand_count(const cli_command *command, int argc, char **argv)
{
    cli_completion ignored = {0};
    int count = 0, ended = 0;
    (void)walk(command, argc, argv, &ignored, &count, &ended);
    return count;
}

/* ---- what an option or an operand takes ------------------------------------------------------ */

static void offer_choices(const cli_completion *c, const char *choices)
{
    for (const char *choice = choices; *choice != '\0';) {
        size_t length = strcspn(choice, "|");
        cli_completion_offer(c, choice, length);
        choice += length + (choice[length] == '|');
    }
}

static void offer_families(const cli_completion *c)
{
    reshard_family family = {.size = sizeof family};
    for (int32_t i = 0; reshard_family_at(i, &family) == RESHARD_OK; i++)
        offer(c, family.name);
}

static void offer_namings(const cli_completion *c)
{
    reshard_naming naming = {.size = sizeof naming};
    for (int32_t i = 0; reshard_naming_at(i, &naming) == RESHARD_OK; i++)
        offer(c, naming.name);
}

static void offer_maps(const cli_completion *c)
{
    reshard_naming_map map = {.size = sizeof map};
    for (int32_t i = 0; reshard_naming_map_at(i, &map) == RESHARD_OK; i++)
        offer(c, map.name);
}

static void offer_dtypes(const cli_completion *c)
{
    for (int i = RESHARD_DTYPE_NONE + 1; i < RESHARD_DTYPE_COUNT; i++)
        offer(c, reshard_dtype_name((reshard_dtype)i));
}

/* Offers what fits the name that help has for the value. */
static void complete_value(const cli_completion *c, const char *takes,
                           cli_completion_names_fn find_names)
{
    static const char *const of_files[] = {"CKPT", "SRC",  "DST",    "A",   "B",
                                           "DIR",  "FILE", "FOLDER", "BASE"};
    int files = strcmp(takes, "R") == 0; /* a family of rules, or a file with rules */
    for (size_t i = 0; i < sizeof of_files / sizeof of_files[0]; i++)
        files = files || strcmp(takes, of_files[i]) == 0;
    puts(files ? "files" : "words");
    if (strchr(takes, '|') != NULL)
        offer_choices(c, takes);
    else if (strcmp(takes, "R") == 0 || strcmp(takes, "FAMILY") == 0)
        offer_families(c);
    else if (strcmp(takes, "NAMING") == 0)
        offer_namings(c);
    else if (strcmp(takes, "DTYPE") == 0 || strcmp(takes, "D") == 0 ||
             strcmp(takes, "[GLOB=]D") == 0)
        offer_dtypes(c);
    else if (find_names != NULL && c->operands[0] != NULL &&
             (strncmp(takes, "GLOB", strlen("GLOB")) == 0 || strcmp(takes, "NAME") == 0))
        find_names(c);
    if (strcmp(takes, "FAMILY") == 0)
        offer_maps(c);
}

static void complete_options(const cli_command *command, cli_completion *c)
{
    puts("words");
    c->lead = "--";
    c->lead_length = 2;
    c->word += 2 * (c->word[0] == '-' && c->word[1] == '-') + (strcmp(c->word, "-") == 0);
    for (int i = 0; i < command->option_count; i++) {
        if (cli_command_has(command, i))
            offer(c, command->options[i].name);
    }
    offer(c, "help");
}

void cli_complete_arguments(const cli_command *command, int argc, char **argv,
                            cli_completion_names_fn find_names)
{
    char text[CLI_ARGUMENT_TEXT];
    const char *operands[2] = {command->operand, command->second_operand};
    cli_completion c = {.word = argc > 0 ? argv[argc - 1] : "", .lead = ""};
    int given = 0, ended = 0;
    const cli_option *option = walk(command, argc, argv, &c, &given, &ended);
    const char *equals = strchr(c.word, '=');
    if (option == NULL && !ended && equals != NULL) { /* --name=value in one word */
        option = find_option(command, c.word);
        c.lead = c.word;
        c.lead_length = option != NULL ? (int)(equals + 1 - c.word) : 0;
        c.word += c.lead_length;
    }
    if (option != NULL && option->kind == CLI_FLAG)
        return;
    c.option = option != NULL ? option->name : NULL;
    if (option != NULL)
        complete_value(&c, cli_option_argument(option, text), find_names);
    else if (!ended && c.word[0] == '-')
        complete_options(command, &c);
    else if (given < 2 && operands[given] != NULL)
        complete_value(&c, operands[given], NULL);
    else if (!ended)
        complete_options(command, &c);
}
