/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_input.c - opens and digests the checkpoint that the user names. */
#define _POSIX_C_SOURCE 200809L
#include "cli/checkpoint/checkpoint_input.h"

#include "cli/common/failure.h"
#include "cli/common/ranks.h"

#include <string.h>
#include <sys/resource.h>

/* Lets this process open as many files as the system allows. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

reshard_status cli_checkpoint_open_quietly(reshard_context *context, const char *path,
                                           const reshard_checkpoint_options *opening,
                                           reshard_checkpoint **out_checkpoint)
{
    raise_file_limit();
    return reshard_checkpoint_open(context, path, opening, out_checkpoint);
}

reshard_status cli_checkpoint_open(reshard_context *context, const char *path,
                                   const reshard_checkpoint_options *opening,
                                   reshard_checkpoint **out_checkpoint)
{
    reshard_status status = cli_checkpoint_open_quietly(context, path, opening, out_checkpoint);
    const char *line = NULL;
    int warns = status == RESHARD_OK && cli_ranks_are_first();
    for (int64_t i = 0;
         warns && (line = reshard_checkpoint_note(*out_checkpoint, RESHARD_WARNING, i)) != NULL;
         i++)
        cli_warn(line);
    return status;
}

/* Puts a view in the place of the checkpoint, and prints its warnings. */
static reshard_status take_view(cli_digesting *d)
{
    reshard_checkpoint *view = NULL;
    const char *line = NULL;
    if (d->viewing.as == NULL && d->viewing.map_file == NULL &&
        d->viewing.dequantize == RESHARD_DTYPE_NONE)
        return RESHARD_OK;
    reshard_status status = reshard_checkpoint_view(d->checkpoint, &d->viewing, &view);
    if (status != RESHARD_OK)
        return status;
    d->opened = d->checkpoint;
    d->checkpoint = view;
    for (int64_t i = 0; cli_ranks_are_first() &&
                        (line = reshard_checkpoint_note(view, RESHARD_WARNING, i)) != NULL;
         i++)
        cli_warn(line);
    return RESHARD_OK;
}

static reshard_status digest_rank(void *user, reshard_group *group)
{
    cli_digesting *d = user;
    reshard_status status =
        cli_checkpoint_open(d->work->context, d->path, &d->opening, &d->checkpoint);
    d->options.group = group;
    if (status == RESHARD_OK)
        status = take_view(d);
    if (group != NULL)
        status = reshard_group_agree(group, status);
    if (status != RESHARD_OK)
        return status;
    return d->hashes_wanted ? reshard_checkpoint_hash(d->checkpoint, &d->options, &d->hashes)
                            : reshard_checkpoint_digest(d->checkpoint, &d->options, &d->digests);
}

int cli_digesting_run(cli_digesting *d)
{
    if (!cli_ranks_are_first())
        d->work->watched = 0;
    d->work->in_bytes = 1;
    int code = cli_ranks_share(digest_rank, d, &d->path);
    cli_work_settle(d->work);
    return code;
}

void cli_digesting_release(cli_digesting *d)
{
    reshard_hashes_destroy(d->hashes);
    reshard_digests_destroy(d->digests);
    reshard_checkpoint_destroy(d->checkpoint);
    reshard_checkpoint_destroy(d->opened);
}
