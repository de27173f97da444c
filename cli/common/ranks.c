/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - finds out whether mpirun started this process, and loads the MPI backend if so. */
#define _POSIX_C_SOURCE 200809L
#include "cli/common/ranks.h"

#include "cli/common/failure.h"
#include "cli/common/library.h"
#include "cli/common/sizes.h"

#include <reshard/mpi_run.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Variables that launchers set for their processes: Open MPI, and those that use PMI (MPICH,
 * Slurm). */
static const char *const size_variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
static const char *const rank_variables[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK"};

static int32_t read_variable(const char *const *names)
{
    for (int i = 0; i < 2; i++) {
        const char *text = getenv(names[i]);
        uint64_t number;
        if (text != NULL && cli_number_parse(text, INT32_MAX, &number) == 0)
            return (int32_t)number;
    }
    return -1;
}

static int is_launched(void)
{
    return read_variable(size_variables) > 0;
}

int32_t cli_ranks_count(int32_t wanted)
{
    return is_launched() ? read_variable(size_variables) : wanted;
}

int cli_ranks_are_first(void)
{
    return !is_launched() || read_variable(rank_variables) == 0;
}

int cli_ranks_are_threads(void)
{
    return !is_launched();
}

const char *cli_ranks_kind(void)
{
    return is_launched() ? "MPI" : "threads";
}

int32_t cli_ranks_rank(void)
{
    return is_launched() && read_variable(rank_variables) > 0 ? read_variable(rank_variables) : 0;
}

static int connected; /* the body has begun on this rank, hence on all of them */

int cli_ranks_are_connected(void)
{
    return connected;
}

int cli_ranks_outlive_first(void)
{
    /* An error that all ranks find is printed once if this is longer than mpirun takes to end the
     * job, and several times otherwise, which does no harm. */
    static int waited;
    const struct timespec long_enough = {.tv_sec = 2};
    if (waited)
        return 1;
    waited = 1;
    return nanosleep(&long_enough, NULL) == 0;
}

enum { JOB_BYTES = 24 };

static char job[JOB_BYTES];

void cli_ranks_name_job(const char *name)
{
    (void)snprintf(job, sizeof job, "%s", name);
}

typedef struct connecting {
    reshard_rank_fn body;
    void *user;
    int32_t other; /* a rank that does another job than the first one; 0: none */
    char others_job[JOB_BYTES];
} connecting;

/* Finds out whether all ranks do the same job: the messages of two commands would be taken for each
 * other's. */
static reshard_status compare_jobs(connecting *c, reshard_group *group)
{
    int32_t count = reshard_group_size(group);
    char(*all)[JOB_BYTES] = calloc((size_t)count, sizeof *all);
    if (all == NULL) { /* the others wait for this rank's name */
        reshard_group_break(group, "out of memory");
        return RESHARD_ERR_NO_MEMORY;
    }
    reshard_status status = reshard_group_gather_bytes(group, job, sizeof job, all);
    for (int32_t i = count - 1; status == RESHARD_OK && i > 0; i--) {
        if (strncmp(all[i], all[0], sizeof *all) == 0)
            continue;
        c->other = i;
        memcpy(c->others_job, all[i], sizeof *all);
    }
    free(all);
    return status == RESHARD_OK && c->other != 0 ? RESHARD_ERR_MISMATCH : status;
}

static reshard_status begin_body(void *user, reshard_group *group)
{
    connecting *c = user;
    connected = 1;
    reshard_status status = compare_jobs(c, group);
    return status == RESHARD_OK ? c->body(c->user, group) : status;
}

/* Returns CLI_DONE and the status that all ranks agree on, or prints a message and returns another
 * code. */
static int run_mpi(reshard_rank_fn body, void *user, reshard_status *out_status)
{
    if (!cli_library_can_open())
        return cli_fail(CLI_FAILED, "started by mpirun, but this reshard is one static file, which "
                                    "cannot load the MPI backend; use a dynamically linked one");
    void *backend = cli_library_open("reshard_mpi");
    reshard_mpi_run_fn run = NULL;
    if (backend != NULL)
        *(void **)(void *)&run = cli_library_find(backend, "reshard_mpi_run");
    if (run == NULL)
        return cli_fail(CLI_FAILED,
                        "started by mpirun, but the MPI backend cannot be loaded: %s. It is built "
                        "where MPI is: install libopenmpi-dev and build reshard again, or install "
                        "the package that has libreshard_mpi",
                        backend != NULL ? "it lacks reshard_mpi_run" : cli_library_error());
    connecting both = {.body = body, .user = user};
    *out_status = run(NULL, begin_body, &both);
    /* All ranks have the same status, but only the first one fails: mpirun kills all ranks as soon
     * as one fails, and that must not happen before the first has printed its message. */
    if (connected && !cli_ranks_are_first())
        *out_status = RESHARD_OK;
    else if (both.other != 0)
        return cli_fail(CLI_USAGE,
                        "rank %d runs \"%s\", but rank 0 runs \"%s\": all ranks have to run the "
                        "same command",
                        (int)both.other, both.others_job, job);
    return CLI_DONE;
}

static reshard_status meet(void *user, reshard_group *group)
{
    (void)user;
    (void)group;
    return RESHARD_OK;
}

int cli_ranks_meet(const char *name)
{
    cli_ranks_name_job(name);
    /* Where there is no MPI, no rank can wait for another one. */
    if (cli_ranks_count(1) == 1 || !cli_library_can_open() ||
        cli_library_open("reshard_mpi") == NULL)
        return CLI_DONE;
    return cli_ranks_run(1, meet, NULL);
}

int cli_ranks_run(int32_t count, reshard_rank_fn body, void *user)
{
    reshard_status status = RESHARD_OK;
    int code = CLI_DONE;
    if (is_launched())
        code = run_mpi(body, user, &status);
    else
        status = reshard_group_run(NULL, count, body, user);
    return code != CLI_DONE || status == RESHARD_OK ? code : cli_fail_status(status);
}

/* Whether the library's error is about this file or folder, or about a path inside of it. */
static int is_about(const char *path)
{
    reshard_error error = {.size = sizeof error};
    size_t length = strlen(path);
    (void)reshard_error_get(&error);
    const char *rest = error.subject + length;
    return length != 0 && strncmp(error.subject, path, length) == 0 &&
           (*rest == '\0' || *rest == '/' || path[length - 1] == '/');
}

int cli_ranks_share(reshard_rank_fn body, void *user, const char *const *path)
{
    reshard_status status = RESHARD_OK;
    int code = CLI_DONE;
    if (is_launched())
        code = run_mpi(body, user, &status);
    else
        status = body(user, NULL);
    if (code != CLI_DONE || status == RESHARD_OK)
        return code;
    int is_named = path == NULL || *path == NULL || is_about(*path);
    return cli_fail_library(status, CLI_FAILED, is_named ? NULL : *path);
}
