/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete.c - finds the option table for the words that a shell asks about: that of a command,
 * that of `plan` for a checkpoint, or that of a measurement, which its own program has. Names of
 * tensors are taken from the checkpoint that is already on the line.
 */
#include "cli/commands/complete.h"

#include "cli/checkpoint/checkpoint_input.h"
#include "cli/commands/bench.h"
#include "cli/common/complete.h"
#include "cli/common/failure.h"
#include "cli/common/input.h"

#include <string.h>

enum { WORDS_MAX = 32 };

static void offer_tensor_names(const cli_completion *c)
{
    reshard_checkpoint_options opening = {
        .size = sizeof opening, .from = c->from, .rules = c->rules, .plan_only = 1};
    reshard_checkpoint *checkpoint = NULL;
    if (c->option != NULL && strcmp(c->option, "only") == 0)
        return; /* takes the beginning of names, not the name of a tensor */
    if (cli_checkpoint_open_quietly(NULL, c->operands[0], &opening, &checkpoint) != RESHARD_OK)
        return;
    for (int64_t i = 0; i < cli_checkpoint_info(checkpoint).tensor_count; i++) {
        reshard_stored_tensor info = {.size = sizeof info};
        if (reshard_checkpoint_tensor(checkpoint, i, &info) == RESHARD_OK)
            cli_completion_offer(c, info.name, info.name_bytes);
    }
    reshard_checkpoint_destroy(checkpoint);
}

/* With an operand, a command may have other options. */
static void complete_either(const cli_command *command, int argc, char **argv)
{
    cli_command without = *command;
    without.operand = command->with_operand->operand; /* it may still become either */
    int names_one = cli_completion_operand_count(command->with_operand, argc, argv) > 0 &&
                    /* a word that is an operand in only one of the two may be the value of an
                     * option */
                    cli_completion_operand_count(command, argc, argv) > 0;
    cli_complete_arguments(names_one ? command->with_operand : &without, argc, argv,
                           offer_tensor_names);
}

static void complete_first(const cli_command *const *commands, int command_count, const char *word,
                           int options_too)
{
    const char *words[WORDS_MAX];
    int count = 0;
    for (int i = 0; i < command_count; i++)
        words[count++] = commands[i]->name;
    words[count++] = "bench";
    if (options_too) {
        words[count++] = "help";
        words[count++] = "--help";
        words[count++] = "--version";
    }
    cli_complete_words(word, words, count);
}

int cli_complete(const cli_command *const *commands, int command_count, int argc, char **argv)
{
    int is_help = argc > 1 && strcmp(argv[0], "help") == 0;
    if (argc - is_help <= 1) {
        complete_first(commands, command_count, argc > 0 ? argv[argc - 1] : "", !is_help);
        return CLI_DONE;
    }
    if (strcmp(argv[is_help], "bench") == 0)
        return cli_bench_complete(argc - 1 - is_help, argv + 1 + is_help);
    for (int i = 0; i < command_count && !is_help; i++) {
        if (strcmp(argv[0], commands[i]->name) != 0)
            continue;
        if (commands[i]->with_operand != NULL)
            complete_either(commands[i], argc - 1, argv + 1);
        else
            cli_complete_arguments(commands[i], argc - 1, argv + 1, offer_tensor_names);
    }
    return CLI_DONE;
}
