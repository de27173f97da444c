/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint_input.h - a checkpoint that the user names, and its digests.
 */
#ifndef CLI_CHECKPOINT_INPUT_H
#define CLI_CHECKPOINT_INPUT_H

#include "cli/common/options.h"
#include "cli/common/work.h"

#include <reshard/checkpoint.h>

/* Where a checkpoint is, and what its files do not say (see reshard_checkpoint_options). */
typedef struct cli_checkpoint_source {
    const char *path, *from, *rules;
    const cli_texts *sets; /* may be NULL */
    int keep_names;
    int plan_only;
    int one_rank;
    const char *unlisted, *padding;
} cli_checkpoint_source;

/* Opens a checkpoint. Raises the limit of open files first. */
reshard_status cli_checkpoint_open(reshard_context *context, const cli_checkpoint_source *source,
                                   reshard_checkpoint **out_checkpoint);
/* Lets this process open as many files as the system allows. */
void cli_raise_file_limit(void);

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
