/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint_input.h - a checkpoint as the user names it, its digests, and its tensors' names as
 * people may see them.
 */
#ifndef CLI_CHECKPOINT_INPUT_H
#define CLI_CHECKPOINT_INPUT_H

#include "options.h"
#include "work.h"

#include <reshard/checkpoint.h>

/* Where a checkpoint is, and what its files do not say. */
typedef struct cli_checkpoint_source {
    const char *path, *from, *rules;
    const cli_texts *sets; /* may be NULL */
} cli_checkpoint_source;

typedef struct cli_digested {
    reshard_checkpoint *checkpoint;
    reshard_digests *digests;
} cli_digested;

/* Opens and digests; threads 0: as many as there are processors, up to 16. Returns CLI_DONE, or
 * another code after a message. Release in any case. */
int cli_digest_read(cli_work *work, const cli_checkpoint_source *source, int32_t threads,
                    int check_copies, cli_digested *out_digested);
void cli_digested_release(cli_digested *digested);

/* Names come from strangers, so that nothing in them may speak to the terminal; to be freed. */
char *cli_tensor_name(const reshard_stored_tensor *tensor);

#endif
