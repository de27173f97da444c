/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - the `reshard` command: finds the command that is named and runs it.
 *
 * Exit codes: 0 done, 1 failed, 2 wrong usage. Results go to standard output, whose last write is
 * checked before the process ends; messages go to standard error as "reshard: what is wrong with
 * what".
 */
#include "cli/commands.h"
#include "cli/common/failure.h"
#include "cli/common/ranks.h"
#include "cli/common/style.h"

#include <reshard/reshard.h>

#include <stdio.h>
#include <string.h>

extern const cli_command bench_command_plan, bench_command_move, bench_command_convert,
    bench_command_model, bench_command_train;

static const cli_command *const commands[] = {
    &cli_command_layout,    &cli_command_plan,    &cli_command_inspect, &cli_command_convert,
    &cli_command_digest,    &cli_command_verify,  &bench_command_plan,  &bench_command_move,
    &bench_command_convert, &bench_command_model, &bench_command_train,
};

enum { COMMAND_COUNT = (int)(sizeof commands / sizeof commands[0]) };

static void print_heading(const char *heading)
{
    printf("\n%s%s%s\n", cli_style_begin(CLI_BOLD), heading, cli_style_end(CLI_BOLD));
}

static void print_commands(const char *prefix)
{
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strncmp(commands[i]->name, prefix, strlen(prefix)) == 0)
            printf("  reshard %-13s  %s\n", commands[i]->name, commands[i]->summary);
    }
}

static void print_help(void)
{
    puts("reshard - describes how tensors are split over ranks, and plans moves between splits");
    print_heading("Usage");
    puts("  reshard COMMAND [OPTIONS]");
    print_heading("Commands");
    print_commands("");
    print_heading("Options");
    puts("  --help       this page; reshard COMMAND --help is a page for each command\n"
         "  --version    the version");
    print_heading("Specs");
    puts("  A spec says how a tensor is split: a mesh of ranks, then what each of its axes does.\n"
         "  4: S(0)                four ranks, rows in chunks\n"
         "  tp=4[3,1,0,2]: S(1)    columns; rank 3 has the first chunk\n"
         "  dp=2,tp=4: R, S(-1)    two copies, each cut over four ranks along the last dimension\n"
         "  boxes 4x4: 0[0:2,0:4] 1[2:4,0:4]    listed shards\n"
         "  @FILE in place of a spec reads its text from a file, @- from standard input.");
    print_heading("Examples");
    puts("  reshard layout '4: S(0)' --shape 10x7\n"
         "  reshard plan --shape 8192x8192 --dtype f32 --from '4: S(0)' --to '4: S(1)'\n"
         "  reshard bench plan --ranks 1024");
}

static void print_bench_help(void)
{
    puts("reshard bench - measurements");
    print_heading("Usage");
    puts("  reshard bench WHAT [OPTIONS]");
    print_heading("Commands");
    print_commands("bench ");
    print_heading("Examples");
    puts("  reshard bench plan --ranks 1024");
}

static int fail_unknown(const char *written)
{
    static const char *const names[] = {"layout", "plan",  "inspect", "convert", "digest",
                                        "verify", "bench", "help",    "--help",  "--version"};
    const char *nearest = cli_nearest(written, names, sizeof names / sizeof names[0]);
    const char *kind = written[0] == '-' ? "option" : "command";
    if (nearest == NULL)
        return cli_fail(CLI_USAGE, "unknown %s \"%s\"; reshard --help lists them", kind, written);
    return cli_fail(CLI_USAGE, "unknown %s \"%s\"; did you mean %s?", kind, written, nearest);
}

/* The command that the first arguments name, in one word or two; NULL when they name none. */
static const cli_command *find_command(int argc, char **argv, int *out_words)
{
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const char *name = commands[i]->name;
        size_t first = strcspn(name, " ");
        int words = name[first] == ' ' ? 2 : 1;
        if (argc < words || strlen(argv[0]) != first || memcmp(argv[0], name, first) != 0)
            continue;
        if (words == 2 && strcmp(argv[1], name + first + 1) != 0)
            continue;
        *out_words = words;
        return commands[i];
    }
    return NULL;
}

/* `help`, `help COMMAND` */
static int run_help(int argc, char **argv)
{
    int words = 1;
    const cli_command *command = argc > 0 ? find_command(argc, argv, &words) : NULL;
    int is_bench = argc > 0 && command == NULL && strcmp(argv[0], "bench") == 0;
    if (argc > 0 && command == NULL && !is_bench)
        return fail_unknown(argv[0]);
    if (argc > words)
        return cli_fail(CLI_USAGE, "help: unexpected argument \"%s\"", argv[words]);
    if (command != NULL)
        cli_command_print_help(command);
    else if (is_bench)
        print_bench_help();
    else
        print_help();
    return CLI_DONE;
}

/* `bench` with something that it has no measurement for. */
static int run_bench(int argc, char **argv)
{
    if (cli_options_ask_help(argc, argv)) {
        print_bench_help();
        return CLI_DONE;
    }
    if (argc == 0)
        return cli_fail(CLI_USAGE,
                        "bench: what to measure is missing; reshard bench --help lists it");
    return cli_fail(CLI_USAGE, "bench: unknown measurement \"%s\"; reshard bench --help lists them",
                    argv[0]);
}

static int run_global_option(int argc, char **argv)
{
    int is_version = strcmp(argv[0], "--version") == 0;
    if (!is_version && strcmp(argv[0], "--help") != 0 && strcmp(argv[0], "-h") != 0)
        return fail_unknown(argv[0]);
    if (argc > 1)
        return cli_fail(CLI_USAGE, "unexpected argument \"%s\" after %s", argv[1], argv[0]);
    if (is_version)
        printf("reshard %s\n", reshard_version());
    else
        print_help();
    return CLI_DONE;
}

static int run(int argc, char **argv)
{
    int words = 0;
    const cli_command *command = find_command(argc, argv, &words);
    int is_help = cli_options_ask_help(argc, argv);
    if (!cli_ranks_are_first() && (command == NULL || is_help || !command->shares_work))
        return CLI_DONE;
    if (argc == 0)
        return cli_fail(CLI_USAGE, "no command is given; reshard --help lists them");
    if (argv[0][0] == '-')
        return run_global_option(argc, argv);
    if (strcmp(argv[0], "help") == 0)
        return run_help(argc - 1, argv + 1);
    if (command == NULL && strcmp(argv[0], "bench") == 0)
        return run_bench(argc - 1, argv + 1);
    if (command == NULL)
        return fail_unknown(argv[0]);
    if (is_help) {
        cli_command_print_help(command);
        return CLI_DONE;
    }
    return command->run(command, argc - words, argv + words);
}

int main(int argc, char **argv)
{
    int code = argc > 0 ? run(argc - 1, argv + 1) : run(0, argv);
    if (!cli_ranks_may_fail())
        return CLI_DONE;
    return code == CLI_DONE ? cli_finish(code) : code;
}
