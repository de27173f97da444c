/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.c - finds the measurement that the user names, and runs it.
 */
#include "bench/common/program.h"

#include "cli/common/complete.h"
#include "cli/common/failure.h"
#include "cli/common/program.h"
#include "cli/common/ranks.h"

#include <stdio.h>
#include <string.h>

static const cli_command *find(const cli_command *const *commands, int count, const char *written)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(commands[i]->name + strlen("bench "), written) == 0)
            return commands[i];
    }
    return NULL;
}

static void print_page(const char *program, const cli_command *const *commands, int count)
{
    printf("%s - measurements; what reshard bench starts\n", program);
    cli_print_heading("Usage");
    printf("  %s WHAT [OPTIONS]\n", program);
    cli_print_heading("Commands");
    for (int i = 0; i < count; i++)
        cli_command_print_line(commands[i]->name, commands[i]->summary);
}

/* Answers `reshard complete bench ..`, which is passed on to this program. */
static int complete(const cli_command *const *commands, int count, int argc, char **argv)
{
    const cli_command *command = argc > 0 ? find(commands, count, argv[0]) : NULL;
    if (command != NULL)
        cli_complete_arguments(command, argc - 1, argv + 1, NULL);
    return CLI_DONE;
}

static int run(const char *program, const cli_command *const *commands, int count, int argc,
               char **argv)
{
    if (argc > 0 && strcmp(argv[0], "complete") == 0)
        return complete(commands, count, argc - 1, argv + 1);
    const cli_command *command = argc > 0 ? find(commands, count, argv[0]) : NULL;
    int is_help = cli_options_ask_help(argc, argv);
    if (is_help || (command != NULL && !command->shares_work) ||
        (argc > 0 && strcmp(argv[0], "--version") == 0)) {
        int code = cli_ranks_meet(command != NULL && !is_help ? command->name : "help");
        if (code != CLI_DONE || !cli_ranks_are_first())
            return code;
    }
    if (argc == 0)
        return cli_fail(CLI_USAGE, "bench: name a measurement; %s --help lists them", program);
    if (command == NULL && is_help)
        print_page(program, commands, count);
    else if (command == NULL && strcmp(argv[0], "--version") == 0)
        cli_program_print_version();
    else if (command == NULL)
        return cli_fail(CLI_USAGE, "bench: unknown measurement \"%s\"; %s --help lists them",
                        argv[0], program);
    else if (is_help)
        cli_command_print_help(command);
    else {
        cli_ranks_name_job(command->name);
        return command->run(command, argc - 1, argv + 1);
    }
    return CLI_DONE;
}

int bench_program_run(const char *program, const cli_command *const *commands, int count, int argc,
                      char **argv)
{
    int skipped = argc > 0;
    cli_failure_init(argc, argv);
    return cli_program_end(run(program, commands, count, argc - skipped, argv + skipped));
}
