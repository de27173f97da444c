/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete.h - finds what may come next on a command line, for shell completion.
 *
 * A shell calls `reshard complete WORD..` with the words after the program's name, up to and
 * including the one that is still being written. The first line of the answer is "files" or
 * "words": whether file names fit as well. Each further line is a candidate. If the words make no
 * sense there are no candidates; completion prints no errors.
 */
#ifndef CLI_COMMON_COMPLETE_H
#define CLI_COMMON_COMPLETE_H

#include "cli/common/options.h"

/* What is known about the word that is being written. */
typedef struct cli_completion {
    const char *word; /* its beginning, which every candidate shares */
    const char *lead; /* printed in front of each candidate, such as "--format=" */
    int lead_length;
    const char *operands[2]; /* the operands before it; NULL: not given */
    /* values of --from and --rules; the option whose value it is */
    const char *from, *rules, *option;
} cli_completion;

/* Offers the names of tensors of c->operands[0]. */
typedef void (*cli_completion_names_fn)(const cli_completion *c);

/* Prints the candidates for the last word after the command's name. Without find_names, names of
 * tensors are not completed. */
void cli_complete_arguments(const cli_command *command, int argc, char **argv,
                            cli_completion_names_fn find_names);

/* Prints the candidates among fixed words. */
void cli_complete_words(const char *word, const char *const *candidates, int count);

/* Prints a candidate if it begins with the word so far and consists of letters, digits and
 * _.,:/@%+=- only. A shell inserts candidates into the line, and a tensor may be called
 * "x$(command)". */
void cli_completion_offer(const cli_completion *c, const char *text, size_t length);

/* How many of the words are operands, not counting the last word. */
int cli_completion_operand_count(const cli_command *command, int argc, char **argv);

#endif
