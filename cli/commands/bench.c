/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.c - finds the program for a measurement and replaces this process with it (exec).
 */
#include "cli/commands/bench.h"

#include "cli/common/complete.h"
#include "cli/common/failure.h"
#include "cli/common/memory.h"
#include "cli/common/options.h"
#include "cli/common/program.h"
#include "cli/common/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct measurement {
    const char *name, *program, *summary;
} measurement;

/* A test checks that the summaries match those of the programs. */
static const measurement measurements[] = {
    {"bench plan", "reshard-bench", "planning time and memory"},
    {"bench move", "reshard-bench", "a live reshard compared with memcpy"},
    {"bench convert", "reshard-bench", "conversions compared with cp"},
    {"bench model", "reshard-bench", "makes a checkpoint to experiment with"},
    {"bench calibrate", "reshard-bench", "measures this machine, for plan --cluster"},
    {"bench predict", "reshard-bench", "predicted times compared with measured ones"},
    {"bench redistribute", "reshard-bench-nn", "a tensor's redistribute compared with memcpy"},
    {"bench train", "reshard-bench-nn", "the cost of training: a layer, a step on several ranks"},
};

enum { COUNT = (int)(sizeof measurements / sizeof measurements[0]) };

void cli_bench_print_list(void)
{
    for (int i = 0; i < COUNT; i++)
        cli_command_print_line(measurements[i].name, measurements[i].summary);
}

static const measurement *find(const char *written)
{
    for (int i = 0; i < COUNT; i++) {
        if (strcmp(measurements[i].name + strlen("bench "), written) == 0)
            return &measurements[i];
    }
    return NULL;
}

static int fail_unknown(const char *written)
{
    return cli_fail(CLI_USAGE, "bench: unknown measurement \"%s\"; reshard bench --help lists them",
                    written);
}

/* `arguments` has room for the program's name in front and ends with NULL. */
static int become(const measurement *m, char **arguments)
{
    char path[4096];
    size_t name_bytes = strlen(m->program) + 2;
    int why = ENOENT;
    if (cli_program_folder(path, sizeof path - name_bytes) == 0) {
        (void)snprintf(path + strlen(path), name_bytes, "/%s", m->program);
        arguments[0] = path;
        (void)execv(path, arguments);
        why = errno;
    }
    char name[32];
    (void)snprintf(name, sizeof name, "%s", m->program);
    arguments[0] = name;
    (void)execvp(name, arguments);
    why = why == ENOENT ? errno : why;
    if (why == ENOENT)
        return cli_fail(CLI_FAILED,
                        "%s: %s is not installed: it is neither beside reshard nor on PATH",
                        m->name, m->program);
    return cli_fail(CLI_FAILED, "%s: %s cannot be started: %s", m->name, m->program, strerror(why));
}

static int print_page(void)
{
    int code = cli_ranks_meet("help");
    if (code != CLI_DONE || !cli_ranks_are_first())
        return code;
    puts("reshard bench - measurements");
    cli_print_heading("Usage");
    puts("  reshard bench WHAT [OPTIONS]");
    cli_print_heading("Commands");
    cli_bench_print_list();
    cli_print_heading("Examples");
    puts("  reshard bench plan --ranks 1024");
    return CLI_DONE;
}

int cli_bench_run(int argc, char **argv)
{
    if (argc == 0)
        return cli_fail(CLI_USAGE, "bench: name a measurement; reshard bench --help lists them");
    const measurement *m = find(argv[0]);
    if (m == NULL)
        return cli_options_ask_help(argc, argv) ? print_page() : fail_unknown(argv[0]);
    char **arguments = cli_allocate((size_t)argc + 2, sizeof *arguments);
    memcpy(arguments + 1, argv, (size_t)argc * sizeof *arguments);
    int code = become(m, arguments);
    free(arguments);
    return code;
}

int cli_bench_print_help(int argc, char **argv)
{
    if (argc == 0)
        return print_page();
    const measurement *m = find(argv[0]);
    if (m == NULL)
        return fail_unknown(argv[0]);
    if (argc > 1)
        return cli_fail(CLI_USAGE, "help: unexpected argument \"%s\"", argv[1]);
    char help[] = "--help";
    char *arguments[] = {NULL, argv[0], help, NULL};
    return become(m, arguments);
}

int cli_bench_complete(int argc, char **argv)
{
    const char *names[COUNT];
    for (int i = 0; i < COUNT; i++)
        names[i] = measurements[i].name + strlen("bench ");
    const measurement *m = argc > 1 ? find(argv[0]) : NULL;
    if (argc <= 1)
        cli_complete_words(argc > 0 ? argv[0] : "", names, COUNT);
    if (m == NULL)
        return CLI_DONE;
    char complete[] = "complete";
    char **arguments = cli_allocate((size_t)argc + 3, sizeof *arguments);
    arguments[1] = complete;
    memcpy(arguments + 2, argv, (size_t)argc * sizeof *arguments);
    int code = become(m, arguments);
    free(arguments);
    return code;
}
