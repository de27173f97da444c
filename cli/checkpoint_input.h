/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint_input.h - a checkpoint that the user names, its digests, and the names of its tensors
 * in a form that is safe to print.
 */
#ifndef CLI_CHECKPOINT_INPUT_H
#define CLI_CHECKPOINT_INPUT_H

#include "cli/common/options.h"
#include "cli/common/work.h"

#include <reshard/checkpoint.h>

/* Where a checkpoint is, and what its files do not tell. */
typedef struct cli_checkpoint_source {
    const char *path, *from, *rules;
    const cli_texts *sets; /* may be NULL */
} cli_checkpoint_source;

typedef struct cli_digested {
    reshard_checkpoint *checkpoint;
    reshard_digests *digests;
} cli_digested;

/* One checkpoint or two, to be opened and digested. */
typedef struct cli_digesting {
    cli_work *work;
    int count;
    cli_checkpoint_source sources[2];
    int32_t threads; /* 0: as many as there are processors, up to 8; ranks divide them */
    int check_copies;
    const char *path; /* of the source that is being read */
    cli_digested digested[2];
} cli_digesting;

/* Opens and digests all; under mpirun ranks share the reading, and only the first one prints
 * afterwards. Settles the work. Returns CLI_DONE, or another code after a message. Release what is
 * digested in any case. */
int cli_digest_read(cli_digesting *d);
void cli_digested_release(cli_digested *digested);

/* A name with control characters replaced: names come from strangers, and must not control the
 * terminal. To be freed. */
char *cli_tensor_name(const reshard_stored_tensor *tensor);

#endif
