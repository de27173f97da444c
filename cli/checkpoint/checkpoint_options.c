/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_options.c - the table of checkpoint_options.def, and what follows from the values. */
#include "cli/checkpoint/checkpoint_options.h"

#include "cli/common/failure.h"

/* The compiler checks that the field has the type that the kind stores. */
#define OPTION(name, kind, field, argument, group, commands, meaning)   \
    {name,                                                              \
     CLI_##kind,                                                        \
     _Generic(&((cli_checkpoint_values *)0)->field, CLI_STORES_##kind * \
              : offsetof(cli_checkpoint_values, field)),                \
     argument,                                                          \
     CLI_GROUP_##group | (commands),                                    \
     meaning},
#define OPTION_LIST(name, kind, part, field, ...) OPTION(name, kind, field, __VA_ARGS__)
const cli_option cli_checkpoint_options[CLI_CHECKPOINT_OPTION_COUNT] = {
#include "cli/checkpoint/checkpoint_options.def"
};
#undef OPTION
#undef OPTION_LIST

/* Lets the library's lists point to the texts. */
static void set_lists(cli_checkpoint_values *values)
{
#define OPTION(...)
#define OPTION_LIST(name, kind, part, field, ...)     \
    values->part.field##_count = values->field.count; \
    values->part.field##s = values->field.items;
#include "cli/checkpoint/checkpoint_options.def"
#undef OPTION
#undef OPTION_LIST
    values->planning.set_count = values->opening.set_count;
    values->planning.sets = values->opening.sets;
    values->viewing.set_count = values->opening.set_count;
    values->viewing.sets = values->opening.sets;
}

int cli_checkpoint_parse(const cli_command *command, int argc, char **argv,
                         cli_checkpoint_values *values)
{
    values->opening.size = values->opening_b.size = sizeof values->opening;
    values->planning.size = sizeof values->planning;
    values->running.size = sizeof values->running;
    values->comparing.size = sizeof values->comparing;
    values->digesting.size = sizeof values->digesting;
    values->viewing.size = sizeof values->viewing;
    int code = cli_options_parse(command, argc, argv, values, values->paths);
    if (code != CLI_DONE)
        return code;
    if ((command->takes & (CLI_CONVERT | CLI_PLAN)) != 0 && values->opening.rules != NULL &&
        values->opening.from == NULL)
        return cli_fail(CLI_USAGE, "--from-rules is for plain rank files; add their mesh, --from");
    set_lists(values);
    if (values->opening.rules == NULL) {
        values->opening.rules = values->planning.rules;
        values->opening.keep_names = values->planning.rules != NULL;
    }
    return CLI_DONE;
}
