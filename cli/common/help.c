/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.c - prints help pages from the commands' tables, and suggests corrections of misspelt words.
 */
#include "cli/common/options.h"
#include "cli/common/style.h"

#include <stdio.h>
#include <string.h>

enum { WORD_MAX = 32, OPTION_WIDTH = 22, LINE_WIDTH = 86 };

void cli_print_heading(const char *heading)
{
    printf("\n%s%s%s\n", cli_style_begin(CLI_BOLD), heading, cli_style_end(CLI_BOLD));
}

static void print_option(const cli_option *option)
{
    char left[CLI_ARGUMENT_TEXT + 40], text[CLI_ARGUMENT_TEXT];
    const char *argument = cli_option_argument(option, text);
    snprintf(left, sizeof left, "--%s%s%s", option->name, argument != NULL ? " " : "",
             argument != NULL ? argument : "");
    int wraps = strlen(left) > OPTION_WIDTH && strlen(left) + strlen(option->meaning) > LINE_WIDTH;
    printf("  %-*s%s", OPTION_WIDTH, left, wraps ? "\n" : "");
    printf("%*s%s%s\n", wraps ? OPTION_WIDTH + 4 : 2, "", option->meaning,
           option->required ? " (required)" : "");
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
    printf("\n%s", command->description);
    if (command->option_count != 0)
        cli_print_heading("Options");
    for (int i = 0; i < command->option_count; i++)
        print_option(&command->options[i]);
    if (command->option_count != 0)
        printf("  %-*s  %s\n", OPTION_WIDTH, "--help", "this page");
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
        /* A suggestion in which half of the letters differ is useless. */
        if (distance < nearest_distance && distance * 2 < length) {
            nearest_distance = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}
