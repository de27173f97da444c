/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint_input.h - a checkpoint that the user names: the options that say how to open it, which
 * all commands share, and its digests.
 */
#ifndef CLI_CHECKPOINT_INPUT_H
#define CLI_CHECKPOINT_INPUT_H

#include "cli/common/options.h"
#include "cli/common/work.h"

#include <reshard/checkpoint.h>

/* Where a checkpoint is, and what its files do not say (see reshard_checkpoint_options). */
typedef struct cli_checkpoint_source {
    const char *path, *from, *rules, *unlisted, *padding;
    cli_texts sets;
    int keep_names, plan_only, one_rank;
} cli_checkpoint_source;

/* Rows for a command's option table; its struct `values` has a cli_checkpoint_source at `field`.
 * Commands that also have rules of a conversion write their own rows for from and rules. */
#define CLI_SET_OPTION(values, field)                               \
    {                                                               \
        "set", CLI_TEXTS, offsetof(values, field.sets), "KEY=N", 0, \
            "a number for rules; overrides config.json"             \
    }
#define CLI_FILES_OPTIONS(values, field)                                          \
    {"unlisted",         CLI_TEXT, offsetof(values, field.unlisted),              \
     "skip|take|refuse", 0,        "tensors and files outside the model (skip)"}, \
    {                                                                             \
        "padding", CLI_TEXT, offsetof(values, field.padding), "zero|any", 0,      \
            "what padding may hold (zero)"                                        \
    }
#define CLI_SOURCE_OPTIONS(values, field)                                     \
    {"from", CLI_TEXT, offsetof(values, field.from),                          \
     "MESH", 0,        "the mesh of plain rank files: tp=4"},                 \
        {"rules", CLI_TEXT, offsetof(values, field.rules),                    \
         "R",     0,        "how rank files are split: llama, .. or a file"}, \
        CLI_SET_OPTION(values, field), CLI_FILES_OPTIONS(values, field)

/* The source of a conversion by `rules`, which may be NULL. Unless it has rules of its own, it is
 * split by these, and keeps its names, so that only the conversion renames tensors. */
cli_checkpoint_source cli_source_by_rules(const cli_checkpoint_source *given, const char *rules);

/* Opens a checkpoint. Raises the limit of open files first. */
reshard_status cli_checkpoint_open(reshard_context *context, const cli_checkpoint_source *source,
                                   reshard_checkpoint **out_checkpoint);

/* A checkpoint to be opened and digested. */
typedef struct cli_digesting {
    cli_work *work;
    cli_checkpoint_source source;
    int32_t threads; /* 0: as many as there are processors, up to 8; ranks divide them */
    int check_copies;
    int hashes_wanted; /* compute hashes instead of digests */
    reshard_checkpoint *checkpoint;
    reshard_digests *digests;
    reshard_hashes *hashes;
} cli_digesting;

/* Opens and digests a checkpoint; under mpirun, the ranks share the reading. Settles the work.
 * Returns CLI_DONE, or another code after a message. Release in any case. Only the first rank
 * should print the result. */
int cli_digesting_run(cli_digesting *d);
void cli_digesting_release(cli_digesting *d);

#endif
