/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete.c - finds the option table for the words that a shell asks about: that of a command,
 * that of `plan` for a checkpoint, or that of a measurement, which its own program has. Names of
 * tensors are taken from the checkpoint that is already on the line.
 */
#include "cli/complete.h"

#include "cli/bench.h"
#include "cli/checkpoint_input.h"
#include "cli/common/complete.h"
#include "cli/common/failure.h"
#include "cli/converting.h"

#include <string.h>

enum { WORDS_MAX = 32 };

static void offer_tensor_names(const cli_completion *c)
{
    cli_checkpoint_source source = {
        .path = c->operands[0], .from = c->from, .rules = c->rules, .plan_only = 1};
    reshard_checkpoint *checkpoint = NULL;
    if (c->option != NULL && strcmp(c->option, "only") == 0)
        return; /* takes the beginning of names, not the name of a tensor */
    if (cli_checkpoint_open(NULL, &source, &checkpoint) != RESHARD_OK)
        return;
    for (int64_t i = 0; i < reshard_checkpoint_tensor_count(checkpoint); i++) {
        reshard_stored_tensor info = {.size = sizeof info};
        if (reshard_checkpoint_tensor(checkpoint, i, &info) == RESHARD_OK)
            cli_completion_offer(c, info.name, info.name_bytes);
    }
    reshard_checkpoint_destroy(checkpoint);
}

/* `plan` has different options for a checkpoint and for a tensor; only a checkpoint is an
 * operand. */
static void complete_plan(const cli_command *plan, int argc, char **argv)
{
    cli_option options[CLI_PLAN_CHECKPOINT_OPTIONS];
    cli_command checkpoint = cli_plan_checkpoint_command(options);
    cli_command tensor = *plan;
    tensor.operand = checkpoint.operand; /* without arguments, it may still become either */
    int names_one = cli_completion_operand_count(&checkpoint, argc, argv) > 0 &&
                    /* a word that is an operand in only one of the two may be the value of an
                     * option */
                    cli_completion_operand_count(plan, argc, argv) > 0;
    cli_complete_arguments(names_one ? &checkpoint : &tensor, argc, argv, offer_tensor_names);
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
        if (strcmp(argv[0], "plan") == 0)
            complete_plan(commands[i], argc - 1, argv + 1);
        else
            cli_complete_arguments(commands[i], argc - 1, argv + 1, offer_tensor_names);
    }
    return CLI_DONE;
}
