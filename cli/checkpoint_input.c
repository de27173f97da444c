/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_input.c - opening and digesting what the user names. */
#include "cli/checkpoint_input.h"

#include "cli/common/memory.h"
#include "cli/common/ranks.h"

static reshard_status digest_one(const cli_digesting *d, int index, reshard_group *group,
                                 cli_digested *out_digested)
{
    const cli_checkpoint_source *source = &d->sources[index];
    reshard_checkpoint_options opening = {
        .size = sizeof opening, .from = source->from, .rules = source->rules};
    reshard_digest_options digesting = {.size = sizeof digesting,
                                        .threads = d->threads,
                                        .check_copies = d->check_copies,
                                        .group = group};
    if (source->sets != NULL) {
        opening.set_count = source->sets->count;
        opening.sets = source->sets->items;
    }
    reshard_status status = reshard_checkpoint_open(d->work->context, source->path, &opening,
                                                    &out_digested->checkpoint);
    if (group != NULL)
        status = reshard_group_agree(group, status);
    if (status == RESHARD_OK)
        status =
            reshard_checkpoint_digest(out_digested->checkpoint, &digesting, &out_digested->digests);
    return status;
}

static reshard_status digest_rank(void *user, reshard_group *group)
{
    cli_digesting *d = user;
    reshard_status status = RESHARD_OK;
    for (int i = 0; status == RESHARD_OK && i < d->count; i++) {
        d->path = d->sources[i].path;
        status = digest_one(d, i, group, &d->digested[i]);
    }
    return status;
}

int cli_digest_read(cli_digesting *d)
{
    if (!cli_ranks_are_first())
        d->work->watched = 0;
    d->work->in_bytes = 1;
    int code = cli_ranks_share(digest_rank, d, &d->path, NULL);
    cli_work_settle(d->work);
    return code;
}

void cli_digested_release(cli_digested *digested)
{
    reshard_digests_destroy(digested->digests);
    reshard_checkpoint_destroy(digested->checkpoint);
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
