/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c - the table-driven option parser.
 */
#include "cli/common/options.h"

#include "cli/common/failure.h"
#include "cli/common/sizes.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { OPTIONS_MAX = 96 };

typedef struct parser {
    const cli_command *command;
    int argc;
    char **argv;
    int next; /* index of the argument to look at */
    void *values;
    unsigned char given[OPTIONS_MAX];
} parser;

int cli_command_has(const cli_command *command, int i)
{
    return command->takes == 0 || (command->options[i].marks & command->takes) != 0;
}

const cli_option *cli_command_find(const cli_command *command, const char *name, size_t length)
{
    for (int i = 0; i < command->option_count; i++) {
        const cli_option *option = &command->options[i];
        if (cli_command_has(command, i) && strlen(option->name) == length &&
            memcmp(option->name, name, length) == 0)
            return option;
    }
    return NULL;
}

static int fail_unknown(const cli_command *command, const char *written)
{
    const char *names[OPTIONS_MAX];
    int count = 0;
    for (int i = 0; i < command->option_count; i++) {
        if (cli_command_has(command, i))
            names[count++] = command->options[i].name;
    }
    const char *nearest = cli_nearest(written + strspn(written, "-"), names, count);
    if (nearest == NULL)
        return cli_fail(CLI_USAGE, "%s: unknown option %s; reshard %s --help lists them",
                        command->name, written, command->name);
    return cli_fail(CLI_USAGE, "%s: unknown option %s; did you mean --%s?", command->name, written,
                    nearest);
}

const char *cli_option_argument(const cli_option *option, char buffer[CLI_ARGUMENT_TEXT])
{
    reshard_format format = {.size = sizeof format};
    if (option->kind != CLI_FORMAT)
        return option->argument;
    size_t length = (size_t)snprintf(buffer, CLI_ARGUMENT_TEXT, "auto");
    for (int32_t i = 0; reshard_format_at(i, &format) == RESHARD_OK; i++) {
        if (format.writes && length + strlen(format.name) + 2 < CLI_ARGUMENT_TEXT)
            length +=
                (size_t)snprintf(buffer + length, CLI_ARGUMENT_TEXT - length, "|%s", format.name);
    }
    return buffer;
}

/* Sets *out_name to the library's own string, which outlives argv; to NULL for "auto". Returns -1
 * if the library writes no such format. */
static int find_format(const char *text, const char **out_name)
{
    reshard_format format = {.size = sizeof format};
    *out_name = NULL;
    if (strcmp(text, "auto") == 0)
        return 0;
    for (int32_t i = 0; reshard_format_at(i, &format) == RESHARD_OK; i++) {
        if (format.writes && strcmp(format.name, text) == 0) {
            *out_name = format.name;
            return 0;
        }
    }
    return -1;
}

/* The index of `text` among choices like "rule|exact", or -1. */
static int find_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);
    int index = 0;
    for (const char *choice = choices;; index++) {
        size_t choice_length = strcspn(choice, "|");
        if (choice_length == length && memcmp(choice, text, length) == 0)
            return index;
        if (choice[choice_length] == '\0')
            return -1;
        choice += choice_length + 1;
    }
}

static int check_mesh(const cli_option *option, const char *text)
{
    reshard_mesh *mesh = NULL;
    reshard_status status = reshard_mesh_parse(NULL, text, &mesh);
    reshard_mesh_release(mesh);
    if (status == RESHARD_OK)
        return CLI_DONE;
    return cli_fail(CLI_USAGE, "%s; a mesh is written like --%s tp=4 or --%s pp=2,tp=4",
                    reshard_error_text(), option->name, option->name);
}

static int read_dtype(const char *text, reshard_dtype *out_dtype)
{
    reshard_status status = reshard_dtype_parse(text, out_dtype);
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}

static int add_text(const cli_command *command, const cli_option *option, const char *text,
                    cli_texts *texts)
{
    const char *equals = strrchr(text, '=');
    reshard_dtype dtype;
    if (texts->count == CLI_TEXTS_MAX)
        return cli_fail(CLI_USAGE, "%s: --%s is given more than %d times", command->name,
                        option->name, (int)CLI_TEXTS_MAX);
    texts->items[texts->count++] = text;
    text = equals != NULL ? equals + 1 : text;
    /* q8_0 is a type that only GGUF files have; whether it can be written, the library knows. */
    return option->kind == CLI_DTYPES && strcmp(text, "q8_0") != 0 ? read_dtype(text, &dtype)
                                                                   : CLI_DONE;
}

static int store_value(const cli_command *command, const cli_option *option, const char *text,
                       void *field)
{
    char argument[CLI_ARGUMENT_TEXT];
    uint64_t number = 0;
    switch (option->kind) {
    case CLI_FLAG:
        *(int *)field = 1;
        return CLI_DONE;
    case CLI_TEXT:
        *(const char **)field = text;
        return CLI_DONE;
    case CLI_RANK:
        if (cli_number_parse(text, INT32_MAX, &number) != 0)
            return cli_fail(CLI_USAGE, "%s: --%s \"%s\": expected a %s, 0 to 2147483647",
                            command->name, option->name, text,
                            strcmp(option->name, "rank") == 0 ? "rank" : "number");
        *(int32_t *)field = (int32_t)number;
        return CLI_DONE;
    case CLI_SIZE:
        if (cli_size_parse(text, (size_t *)field) != 0 || *(size_t *)field == 0)
            return cli_fail(CLI_USAGE,
                            "%s: --%s \"%s\": expected a size of at least 1 byte, like 64M or 1GB",
                            command->name, option->name, text);
        return CLI_DONE;
    case CLI_CHOICE:
        *(int *)field = find_choice(option->argument, text);
        if (*(int *)field < 0)
            return cli_fail(CLI_USAGE, "%s: --%s \"%s\": expected %s", command->name, option->name,
                            text, option->argument);
        return CLI_DONE;
    case CLI_MESH:
        *(const char **)field = text;
        return check_mesh(option, text);
    case CLI_FORMAT:
        if (find_format(text, field) != 0)
            return cli_fail(CLI_USAGE, "%s: --%s \"%s\": expected %s%s", command->name,
                            option->name, text, cli_option_argument(option, argument),
                            strncmp(text, "safetensor", strlen("safetensor")) == 0
                                ? "; hf is the one with plain safetensors files"
                                : "");
        return CLI_DONE;
    case CLI_DTYPE:
        return read_dtype(text, field);
    case CLI_TEXTS:
    case CLI_PAIRS:
    case CLI_DTYPES:
        return add_text(command, option, text, field);
    }
    return CLI_DONE;
}

static int take_option(parser *state)
{
    const cli_command *command = state->command;
    const char *written = state->argv[state->next++];
    const char *name = written + 2;
    char argument[CLI_ARGUMENT_TEXT];
    size_t length = strcspn(name, "=");
    const char *value = name[length] == '=' ? name + length + 1 : NULL;
    const cli_option *option = written[1] == '-' ? cli_command_find(command, name, length) : NULL;
    if (option == NULL)
        return fail_unknown(command, written);
    unsigned char *given = &state->given[option - command->options];
    if (option->kind == CLI_FLAG && value != NULL)
        return cli_fail(CLI_USAGE, "%s: option --%s takes no value", command->name, option->name);
    if (option->kind != CLI_FLAG && value == NULL) {
        /* No value begins with two dashes, so this is the next option and the value is missing. */
        if (state->next == state->argc || strncmp(state->argv[state->next], "--", 2) == 0)
            return cli_fail(CLI_USAGE, "%s: option --%s needs a value, %s", command->name,
                            option->name, cli_option_argument(option, argument));
        value = state->argv[state->next++];
    }
    if (option->kind != CLI_FLAG && option->kind < CLI_TEXTS && *given)
        return cli_fail(CLI_USAGE, "%s: option --%s is given twice", command->name, option->name);
    *given = 1;
    return store_value(command, option, value, (char *)state->values + option->offset);
}

static int take_operand(parser *state, const char *operands[2])
{
    const char *text = state->argv[state->next++];
    const char *names[2] = {state->command->operand, state->command->second_operand};
    for (int i = 0; i < 2; i++) {
        if (names[i] == NULL || operands[i] != NULL)
            continue;
        operands[i] = text;
        return CLI_DONE;
    }
    return cli_fail(CLI_USAGE, "%s: unexpected argument \"%s\"; reshard %s --help has the usage",
                    state->command->name, text, state->command->name);
}

static int fail_missing(const cli_command *command, const char *operand)
{
    return cli_fail(CLI_USAGE, "%s: %s is missing; the usage is: reshard %s %.*s", command->name,
                    operand, command->name, (int)strcspn(command->synopsis, "\n"),
                    command->synopsis);
}

static int fail_required(const cli_command *command, const cli_option *option)
{
    if (command->with_operand == NULL)
        return cli_fail(CLI_USAGE, "%s: option --%s %s is missing", command->name, option->name,
                        option->argument);
    return cli_fail(CLI_USAGE, "%s: option --%s %s is missing; or give a %s: reshard %s %s ..",
                    command->name, option->name, option->argument, command->with_operand->operand,
                    command->name, command->with_operand->operand);
}

static int check_required(const parser *state, const char *const operands[2])
{
    const cli_command *command = state->command;
    if (command->operand != NULL && operands[0] == NULL && !command->operand_is_optional)
        return fail_missing(command, command->operand);
    if (command->second_operand != NULL && operands[1] == NULL && !command->second_is_optional)
        return fail_missing(command, command->second_operand);
    for (int i = 0; i < command->option_count; i++) {
        const cli_option *option = &command->options[i];
        if ((option->marks & CLI_REQUIRED) != 0 && !state->given[i])
            return fail_required(command, option);
        if ((option->marks & CLI_NEEDS_SECOND) != 0 && state->given[i] && operands[1] == NULL)
            return cli_fail(CLI_USAGE, "--%s is for a second checkpoint, but there is only one",
                            option->name);
    }
    return CLI_DONE;
}

int cli_options_parse(const cli_command *command, int argc, char **argv, void *values,
                      const char **out_operands)
{
    parser state = {.command = command, .argc = argc, .argv = argv, .values = values};
    const char *operands[2] = {NULL, NULL};
    int options_ended = 0;
    int code = CLI_DONE;
    assert(command->option_count <= OPTIONS_MAX);
    while (code == CLI_DONE && state.next < argc) {
        const char *text = argv[state.next];
        if (!options_ended && strcmp(text, "--") == 0) {
            options_ended = 1;
            state.next++;
        } else if (!options_ended && text[0] == '-' && text[1] != '\0') {
            code = take_option(&state);
        } else {
            code = take_operand(&state, operands);
        }
    }
    if (code == CLI_DONE)
        code = check_required(&state, operands);
    if (code != CLI_DONE)
        return code;
    if (command->operand != NULL)
        out_operands[0] = operands[0];
    if (command->second_operand != NULL)
        out_operands[1] = operands[1];
    return code;
}

int cli_options_ask_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return 1;
    }
    return 0;
}
