/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint_input.h - opens the checkpoint that the user names, and computes its digests.
 */
#ifndef CLI_CHECKPOINT_CHECKPOINT_INPUT_H
#define CLI_CHECKPOINT_CHECKPOINT_INPUT_H

#include "cli/common/options.h"
#include "cli/common/work.h"

#include <reshard/checkpoint.h>

/* Opens a checkpoint that the user named, and prints its warnings. Raises the limit of open files
 * first. */
reshard_status cli_checkpoint_open(reshard_context *context, const char *path,
                                   const reshard_checkpoint_options *opening,
                                   reshard_checkpoint **out_checkpoint);
/* The same without warnings. */
reshard_status cli_checkpoint_open_quietly(reshard_context *context, const char *path,
                                           const reshard_checkpoint_options *opening,
                                           reshard_checkpoint **out_checkpoint);

/* A checkpoint to be opened and digested. */
typedef struct cli_digesting {
    cli_work *work;
    const char *path;
    reshard_checkpoint_options opening;
    reshard_digest_options options;
    reshard_view_options viewing; /* without a naming and a map: the checkpoint as it is */
    int hashes_wanted;            /* compute hashes instead of digests */
    reshard_checkpoint *opened; /* the checkpoint itself, if it is seen through a map; else NULL */
    reshard_checkpoint *checkpoint; /* what is digested */
    reshard_digests *digests;
    reshard_hashes *hashes;
} cli_digesting;

/* Opens and digests a checkpoint; under mpirun, the ranks share the reading. Settles the work.
 * Returns CLI_DONE, or another code after a message. Release in any case. Only the first rank
 * should print the result. */
int cli_digesting_run(cli_digesting *d);
void cli_digesting_release(cli_digesting *d);

#endif
