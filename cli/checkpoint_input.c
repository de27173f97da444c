/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_input.c - opens and digests the checkpoint that the user names. */
#define _POSIX_C_SOURCE 200809L
#include "cli/checkpoint_input.h"

#include "cli/common/ranks.h"

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

cli_checkpoint_source cli_source_by_rules(const cli_checkpoint_source *given, const char *rules)
{
    cli_checkpoint_source source = *given;
    if (source.rules == NULL) {
        source.rules = rules;
        source.keep_names = rules != NULL;
    }
    return source;
}

reshard_status cli_checkpoint_open(reshard_context *context, const cli_checkpoint_source *source,
                                   reshard_checkpoint **out_checkpoint)
{
    reshard_checkpoint_options opening = {.size = sizeof opening,
                                          .from = source->from,
                                          .rules = source->rules,
                                          .set_count = source->sets.count,
                                          .sets = source->sets.items,
                                          .keep_names = source->keep_names,
                                          .plan_only = source->plan_only,
                                          .one_rank = source->one_rank,
                                          .unlisted = source->unlisted,
                                          .padding = source->padding};
    raise_file_limit();
    return reshard_checkpoint_open(context, source->path, &opening, out_checkpoint);
}

static reshard_status digest_rank(void *user, reshard_group *group)
{
    cli_digesting *d = user;
    reshard_digest_options digesting = {.size = sizeof digesting,
                                        .threads = d->threads,
                                        .check_copies = d->check_copies,
                                        .group = group};
    reshard_status status = cli_checkpoint_open(d->work->context, &d->source, &d->checkpoint);
    if (group != NULL)
        status = reshard_group_agree(group, status);
    if (status != RESHARD_OK)
        return status;
    return d->hashes_wanted ? reshard_checkpoint_hash(d->checkpoint, &digesting, &d->hashes)
                            : reshard_checkpoint_digest(d->checkpoint, &digesting, &d->digests);
}

int cli_digesting_run(cli_digesting *d)
{
    if (!cli_ranks_are_first())
        d->work->watched = 0;
    d->work->in_bytes = 1;
    int code = cli_ranks_share(digest_rank, d, &d->source.path, NULL);
    cli_work_settle(d->work);
    return code;
}

void cli_digesting_release(cli_digesting *d)
{
    reshard_hashes_destroy(d->hashes);
    reshard_digests_destroy(d->digests);
    reshard_checkpoint_destroy(d->checkpoint);
}
