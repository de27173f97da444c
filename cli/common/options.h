/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - commands described as data: their options, operands and help. The same table serves
 * the parser, the help page, completion and the suggestions in error messages.
 *
 * Options may come before or after operands, as `--name value` or `--name=value`; `--` ends them.
 * An option with a value may be given once, unless it is a list. Values go into the command's own
 * struct, at the offset given in its table.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <reshard/base.h>

#include <stddef.h>

typedef enum cli_option_kind {
    CLI_FLAG,   /* int: set to 1 */
    CLI_TEXT,   /* const char *: points into argv */
    CLI_MESH,   /* const char *: points into argv, and is a mesh */
    CLI_RANK,   /* int32_t: 0 .. 2^31-1 */
    CLI_SIZE,   /* size_t: at least 1 byte */
    CLI_CHOICE, /* int: index of one of the choices */
    CLI_FORMAT, /* const char *: a format that the library writes; "auto" leaves NULL */
    CLI_DTYPE,  /* reshard_dtype */
    /* cli_texts: may be given several times */
    CLI_TEXTS,
    CLI_PAIRS, /* such as GLOB=NAME */
    CLI_DTYPES /* a dtype, perhaps after GLOB= */
} cli_option_kind;

enum { CLI_TEXTS_MAX = 64 };

typedef struct cli_texts {
    int count;
    const char *items[CLI_TEXTS_MAX]; /* point into argv */
} cli_texts;

/* What each kind stores. */
#define CLI_STORES_FLAG int
#define CLI_STORES_TEXT const char *
#define CLI_STORES_MESH const char *
#define CLI_STORES_RANK int32_t
#define CLI_STORES_SIZE size_t
#define CLI_STORES_FORMAT const char *
#define CLI_STORES_DTYPE reshard_dtype
#define CLI_STORES_TEXTS cli_texts
#define CLI_STORES_PAIRS cli_texts
#define CLI_STORES_DTYPES cli_texts

/* What else is said of an option, as bits. */
enum {
    CLI_REQUIRED = 1,
    CLI_NEEDS_SECOND = 2, /* without the second operand, it is a mistake */
    /* its heading in help */
    CLI_GROUP_READ = 1 << 4,
    CLI_GROUP_TAKE = 2 << 4,
    CLI_GROUP_SPLIT = 3 << 4,
    CLI_GROUP_WRITE = 4 << 4,
    CLI_GROUP_RUN = 5 << 4,
    CLI_GROUP_PRINT = 6 << 4,
    CLI_GROUPS = 7 << 4,
    CLI_COMMAND = 1 << 8 /* the first command of a shared table; others follow */
};

typedef struct cli_option {
    const char *name; /* without the dashes */
    cli_option_kind kind;
    size_t offset; /* of its field in the command's struct */
    /* The name of its value in help; CLI_CHOICE: the choices, "rule|exact"; CLI_FLAG and
     * CLI_FORMAT: NULL. */
    const char *argument;
    int marks;           /* the bits above, or 0 */
    const char *meaning; /* a line of help, without a full stop */
} cli_option;

/* What help calls the option's value: its argument, or the names of all formats. */
enum { CLI_ARGUMENT_TEXT = 160 };
const char *cli_option_argument(const cli_option *option, char buffer[CLI_ARGUMENT_TEXT]);

typedef struct cli_command cli_command;
struct cli_command {
    const char *name;     /* "layout", "bench plan" */
    const char *summary;  /* "who owns which box" */
    const char *synopsis; /* what follows the name, in one or more lines */
    const char *description;
    const char *operand; /* name of the first operand; NULL: there is none */
    int operand_is_optional;
    const char *second_operand; /* the same for the second operand */
    int second_is_optional;
    int shares_work; /* under mpirun, all ranks run it; other commands run on the first rank only */
    const cli_option *options;
    int option_count;
    int takes; /* its bit in the rows of a shared table; 0: all rows are its own */
    /* The same command with an operand, for which it has other options; or NULL. */
    const cli_command *with_operand;
    const char *examples;
    int (*run)(const cli_command *command, int argc, char **argv); /* arguments after the name */
};

/* A command's own table, in its initialiser. */
#define CLI_OPTIONS(rows) .options = (rows), .option_count = (int)(sizeof(rows) / sizeof(rows)[0])

/* Fills `values`, which the caller has set to defaults, and out_operands, one for each operand that
 * the command may have (NULL if not given). Returns CLI_DONE, or prints a message and returns
 * CLI_USAGE. */
int cli_options_parse(const cli_command *command, int argc, char **argv, void *values,
                      const char **out_operands);

/* Whether row i of the command's table, which others may share, is an option of this command. */
int cli_command_has(const cli_command *command, int i);
/* The option whose name is the first `length` bytes of `name`, or NULL. */
const cli_option *cli_command_find(const cli_command *command, const char *name, size_t length);

/* Whether --help or -h is among the arguments before `--`. */
int cli_options_ask_help(int argc, char **argv);

/* Prints the command's page on standard output. */
void cli_command_print_help(const cli_command *command);

/* Prints one line of a list of commands. */
void cli_command_print_line(const char *name, const char *summary);

/* Prints a heading such as "Usage" after an empty line. */
void cli_print_heading(const char *heading);

/* The candidate most similar to what the user wrote, or NULL if none is similar. */
const char *cli_nearest(const char *written, const char *const *candidates, int count);

#endif
