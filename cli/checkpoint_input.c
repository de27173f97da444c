/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_input.c - opening and digesting what the user names. */
#include "checkpoint_input.h"

#include "failure.h"
#include "memory.h"

#include <unistd.h>

enum { THREADS_DEFAULT_MAX = 16 };

static int32_t count_threads(int32_t wanted)
{
    if (wanted > 0)
        return wanted;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (processors < 1)
        return 1;
    return processors < THREADS_DEFAULT_MAX ? (int32_t)processors : THREADS_DEFAULT_MAX;
}

int cli_digest_read(cli_work *work, const cli_checkpoint_source *source, int32_t threads,
                    int check_copies, cli_digested *out_digested)
{
    reshard_checkpoint_options opening = {
        .size = sizeof opening, .from = source->from, .rules = source->rules};
    reshard_digest_options digesting = {.size = sizeof digesting,
                                        .thread_count = count_threads(threads),
                                        .check_copies = check_copies};
    if (source->sets != NULL) {
        opening.set_count = source->sets->count;
        opening.sets = source->sets->items;
    }
    reshard_status status =
        reshard_checkpoint_open(work->context, source->path, &opening, &out_digested->checkpoint);
    if (status == RESHARD_OK)
        status =
            reshard_checkpoint_digest(out_digested->checkpoint, &digesting, &out_digested->digests);
    cli_work_hide_bar();
    return status == RESHARD_OK
               ? CLI_DONE
               : cli_fail(CLI_FAILED, "%s: %s", source->path, reshard_error_text());
}

void cli_digested_release(cli_digested *digested)
{
    reshard_digests_destroy(digested->digests);
    reshard_checkpoint_close(digested->checkpoint);
    *digested = (cli_digested){0};
}

char *cli_tensor_name(const reshard_stored_tensor *tensor)
{
    char *text = cli_allocate(tensor->name_bytes + 1, 1);
    for (size_t i = 0; i < tensor->name_bytes; i++) {
        unsigned char c = (unsigned char)tensor->name[i];
        text[i] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    text[tensor->name_bytes] = '\0';
    return text;
}
