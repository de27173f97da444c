/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.c - prints help pages from the commands' tables, and suggests corrections of misspelt words.
 */
#include "cli/common/options.h"
#include "cli/common/style.h"

#include <stdio.h>
#include <string.h>

enum { WORD_MAX = 32, OPTION_WIDTH = 22, LINE_WIDTH = 80 };

void cli_print_heading(const char *heading)
{
    printf("\n%s%s%s\n", cli_style_begin(CLI_BOLD), heading, cli_style_end(CLI_BOLD));
}

/* Prints words in lines of LINE_WIDTH. They begin at column `indent`, where the first line already
 * is. */
static void print_words(const char *text, size_t length, size_t indent)
{
    size_t column = indent;
    for (const char *end = text + length; text < end; text += strspn(text, " \n")) {
        size_t n = strcspn(text, " \n");
        if (column != indent && column + 1 + n > LINE_WIDTH) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        }
        printf("%s%.*s", column != indent ? " " : "", (int)n, text);
        column += n + (column != indent);
        text += n;
    }
    putchar('\n');
}

/* Prints paragraphs, which empty lines separate. */
static void print_paragraphs(const char *text)
{
    for (const char *end; *text != '\0'; text = end + strspn(end, "\n")) {
        end = strstr(text, "\n\n");
        end = end != NULL ? end : text + strlen(text);
        putchar('\n');
        print_words(text, (size_t)(end - text), 0);
    }
}

/* Prints an option's name and its argument, which may be a long list of choices. Returns the
 * column after it. */
static size_t print_left(const cli_option *option)
{
    char text[CLI_ARGUMENT_TEXT];
    const char *argument = cli_option_argument(option, text);
    size_t column = (size_t)printf("  --%s%s", option->name, argument != NULL ? " " : "");
    for (size_t n; argument != NULL && *argument != '\0'; argument += n, column += n) {
        n = strcspn(argument, "|");
        n += argument[n] == '|';
        if (column + n > LINE_WIDTH)
            column = (size_t)printf("\n      ") - 1;
        printf("%.*s", (int)n, argument);
    }
    return column;
}

static void print_option(const cli_option *option)
{
    const size_t indent = OPTION_WIDTH + 4;
    char meaning[160];
    size_t column = print_left(option);
    size_t length = (size_t)snprintf(meaning, sizeof meaning, "%s%s", option->meaning,
                                     (option->marks & CLI_REQUIRED) != 0 ? " (required)" : "");
    if (column + 2 > indent && column + 2 + length > LINE_WIDTH)
        printf("\n%*s", (int)indent, "");
    else
        printf("%*s", column + 2 > indent ? 2 : (int)(indent - column), "");
    print_words(meaning, length, indent);
}

/* Prints the options under the headings of their groups. */
static void print_options(const cli_command *command)
{
    static const char *const headings[] = {"Options",      "What to read",  "What to take",
                                           "How to split", "What to write", "How to run",
                                           "What to print"};
    int group = -1;
    for (int i = 0; i < command->option_count; i++) {
        if (!cli_command_has(command, i))
            continue;
        int of = (command->options[i].marks & CLI_GROUPS) / CLI_GROUP_READ;
        if (of != group)
            cli_print_heading(headings[group = of]);
        print_option(&command->options[i]);
    }
    if (command->option_count != 0)
        printf("  %-*s  %s\n", OPTION_WIDTH, "--help", "this page");
}

/* Prints the names of the options that a command has with an operand. */
static void print_names(const cli_command *command)
{
    char text[2048];
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < command->option_count; i++) {
        if (cli_command_has(command, i) && length < sizeof text - 64)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s--%s",
                                       length == 0 ? "" : ", ", command->options[i].name);
    }
    printf("\n%sOptions with %s%s\n    ", cli_style_begin(CLI_BOLD), command->operand,
           cli_style_end(CLI_BOLD));
    print_words(text, length, 4);
}

void cli_command_print_line(const char *name, const char *summary)
{
    printf("  reshard %-13s  %s\n", name, summary);
}

void cli_command_print_help(const cli_command *command)
{
    printf("reshard %s - %s\n", command->name, command->summary);
    cli_print_heading("Usage");
    printf("  reshard %s %s\n", command->name, command->synopsis);
    print_paragraphs(command->description);
    print_options(command);
    if (command->with_operand != NULL)
        print_names(command->with_operand);
    cli_print_heading("Examples");
    fputs(command->examples, stdout);
}

/* The edit distance (insertions, deletions, substitutions) from a to b; both shorter than
 * WORD_MAX. */
static int edit_distance(const char *a, const char *b)
{
    int row[WORD_MAX + 1];
    int b_length = (int)strlen(b);
    for (int j = 0; j <= b_length; j++)
        row[j] = j;
    for (int i = 1; a[i - 1] != '\0'; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= b_length; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[b_length];
}

const char *cli_nearest(const char *written, const char *const *candidates, int count)
{
    const char *nearest = NULL;
    int nearest_distance = 3;
    if (strlen(written) >= WORD_MAX)
        return NULL;
    for (int i = 0; i < count; i++) {
        int length = (int)strlen(candidates[i]);
        int distance = length < WORD_MAX ? edit_distance(written, candidates[i]) : WORD_MAX;
        /* A suggestion in which half of the letters differ is useless, unless a letter was just
         * added to a short one. */
        int is_begun = distance == 1 && strncmp(written, candidates[i], (size_t)length) == 0;
        /* The beginning of a word is a word cut short. */
        if (strlen(written) >= 3 && strncmp(written, candidates[i], strlen(written)) == 0)
            return candidates[i];
        if (distance < nearest_distance && (distance * 2 < length || is_begun)) {
            nearest_distance = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}
