/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - the `reshard` command: finds the command that the user names, and runs it.
 *
 * Exit codes: 0 done, 1 failed, 2 wrong usage, 128 and the number of the signal that stopped it.
 * Results go to standard output, and the last write is checked before the process ends. Messages go
 * to standard error as "reshard: what is wrong with what".
 */
#include "cli/commands/bench.h"
#include "cli/commands/commands.h"
#include "cli/commands/complete.h"
#include "cli/common/failure.h"
#include "cli/common/memory.h"
#include "cli/common/program.h"
#include "cli/common/ranks.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const cli_command *const commands[] = {
    /* the four that most people come for; help begins with them */
    &cli_command_convert,
    &cli_command_inspect,
    &cli_command_verify,
    &cli_command_plan,
    /* and more */
    &cli_command_digest,
    &cli_command_rules,
    &cli_command_layout,
    &cli_command_info,
};

enum { COMMAND_COUNT = (int)(sizeof commands / sizeof commands[0]), FIRST_COUNT = 4 };

static void print_help(void)
{
    puts("reshard - converts, re-splits, inspects and compares model checkpoints");
    cli_print_heading("Usage");
    puts("  reshard COMMAND [OPTIONS]");
    cli_print_heading("Commands");
    for (int i = 0; i < FIRST_COUNT; i++)
        cli_command_print_line(commands[i]->name, commands[i]->summary);
    cli_print_heading("More commands");
    for (int i = FIRST_COUNT; i < COMMAND_COUNT; i++)
        cli_command_print_line(commands[i]->name, commands[i]->summary);
    cli_command_print_line("bench", "measurements; reshard bench --help lists them");
    cli_print_heading("Options");
    puts("  --help       this page; reshard COMMAND --help is a page for each command\n"
         "  --version    the version");
    cli_print_heading("Examples");
    puts("  reshard inspect model.pt                     look into it; no code of it runs\n"
         "  reshard convert run/ hf/                     FSDP or DCP run to Hugging Face\n"
         "  reshard convert run/ run16/ --to fsdp=16     for another number of ranks\n"
         "  reshard convert model/ bf16/ --dtype bf16    cast\n"
         "  reshard convert model/ tp4/ --to tp=4        split for tensor parallelism\n"
         "  reshard verify model/ tp4/                   do both hold the same?\n"
         "  reshard plan model/ --to tp=4 --tensors      how would each tensor be cut?\n"
         "  reshard plan --shape 8192x8192 --dtype f32 --from '4: S(0)' --to '4: S(1)'\n"
         "  The last is about one tensor; man reshard-spec has the language of splits.");
}

static int fail_unknown(const char *written)
{
    static const char *const names[] = {"layout", "plan",   "inspect", "convert",
                                        "digest", "verify", "rules",   "info",
                                        "bench",  "help",   "--help",  "--version"};
    const char *nearest = cli_nearest(written, names, sizeof names / sizeof names[0]);
    const char *kind = written[0] == '-' ? "option" : "command";
    if (nearest == NULL && written[0] != '\0' && access(written, F_OK) == 0)
        return cli_fail(CLI_USAGE,
                        "\"%s\" is a file or folder, not a command; to look into it: reshard "
                        "inspect %s",
                        written, written);
    if (nearest == NULL)
        return cli_fail(CLI_USAGE, "unknown %s \"%s\"; reshard --help lists them", kind, written);
    return cli_fail(CLI_USAGE, "unknown %s \"%s\"; did you mean %s?", kind, written, nearest);
}

static const cli_command *find_command(const char *name)
{
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(name, commands[i]->name) == 0)
            return commands[i];
    }
    return NULL;
}

/* `help`, `help COMMAND`, `help bench WHAT` */
static int run_help(int argc, char **argv)
{
    if (argc > 0 && strcmp(argv[0], "bench") == 0)
        return cli_bench_print_help(argc - 1, argv + 1);
    const cli_command *command = argc > 0 ? find_command(argv[0]) : NULL;
    if (argc > 0 && command == NULL)
        return fail_unknown(argv[0]);
    if (argc > 1)
        return cli_fail(CLI_USAGE, "help: unexpected argument \"%s\"", argv[1]);
    if (command != NULL)
        cli_command_print_help(command);
    else
        print_help();
    return CLI_DONE;
}

static int run_global_option(int argc, char **argv)
{
    int is_version = strcmp(argv[0], "--version") == 0;
    if (!is_version && strcmp(argv[0], "--help") != 0 && strcmp(argv[0], "-h") != 0)
        return fail_unknown(argv[0]);
    if (argc > 1)
        return cli_fail(CLI_USAGE, "unexpected argument \"%s\" after %s", argv[1], argv[0]);
    if (is_version)
        cli_program_print_version();
    else
        print_help();
    return CLI_DONE;
}

/* Whether the first rank has an answer for all. It has none to a command that is not there: a rank
 * that left in silence because of one would be waited for by the others for ever. */
static int first_answers(const cli_command *command, int is_help, int argc, char **argv)
{
    if (command != NULL)
        return is_help || !command->shares_work;
    return argc > 0 && (strcmp(argv[0], "help") == 0 || strcmp(argv[0], "--help") == 0 ||
                        strcmp(argv[0], "-h") == 0 || strcmp(argv[0], "--version") == 0);
}

static int run(int argc, char **argv)
{
    if (argc > 0 && strcmp(argv[0], "bench") == 0)
        return cli_bench_run(argc - 1, argv + 1);
    if (argc > 0 && strcmp(argv[0], "complete") == 0)
        return cli_complete(commands, COMMAND_COUNT, argc - 1, argv + 1);
    const cli_command *command = argc > 0 ? find_command(argv[0]) : NULL;
    int is_help = cli_options_ask_help(argc, argv);
    if (first_answers(command, is_help, argc, argv)) {
        int code = cli_ranks_meet(command != NULL && !is_help ? command->name : "help");
        if (code != CLI_DONE || !cli_ranks_are_first())
            return code;
    }
    if (argc == 0)
        return cli_fail(CLI_USAGE, "name a command; reshard --help lists them");
    if (argv[0][0] == '-')
        return run_global_option(argc, argv);
    if (strcmp(argv[0], "help") == 0)
        return run_help(argc - 1, argv + 1);
    if (command == NULL)
        return fail_unknown(argv[0]);
    if (is_help) {
        cli_command_print_help(command);
        return CLI_DONE;
    }
    cli_ranks_name_job(command->name);
    return command->run(command, argc - 1, argv + 1);
}

/* A checkpoint of a thousand ranks, or with a file for each parameter, has more files than many
 * systems let a program open unless it asks. */
static void allow_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv)
{
    allow_files();
    cli_memory_give_back();
    cli_failure_init(argc, argv);
    return cli_program_end(argc > 0 ? run(argc - 1, argv + 1) : run(0, argv));
}
