/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"

#include "failure.h"
#include "sizes.h"

#include <reshard/mpi_run.h>

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What launchers tell their processes: Open MPI, and those that speak PMI (MPICH, Slurm). */
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

/* Beside the command, as in a build tree; below the prefix it is installed in; or wherever the
 * system looks. */
static void *load_backend(void)
{
    char folder[3072] = "", path[4096];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (length > 0)
        folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        *slash = '\0';
    static const char *const places[] = {"/", "/../lib/", "/../lib/x86_64-linux-gnu/",
                                         "/../lib64/"};
    for (size_t i = 0; i < sizeof places / sizeof places[0] && slash != NULL; i++) {
        (void)snprintf(path, sizeof path, "%s%slibreshard_mpi.so.%d.%d", folder, places[i],
                       RESHARD_VERSION_MAJOR, RESHARD_VERSION_MINOR);
        void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (library != NULL)
            return library;
    }
    (void)snprintf(path, sizeof path, "libreshard_mpi.so.%d.%d", RESHARD_VERSION_MAJOR,
                   RESHARD_VERSION_MINOR);
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static void *backend; /* once it is loaded */

void *cli_ranks_find(const char *name)
{
    return backend != NULL ? dlsym(backend, name) : NULL;
}

static int run_mpi(int32_t count, reshard_rank_fn body, void *user)
{
    (void)count;
    backend = load_backend();
    reshard_mpi_run_fn run = NULL;
    *(void **)(void *)&run = cli_ranks_find("reshard_mpi_run");
    if (run == NULL) {
        const char *why = dlerror();
        return cli_fail(CLI_FAILED, "started by mpirun, but the MPI backend cannot be loaded: %s",
                        why != NULL ? why : "it lacks reshard_mpi_run");
    }
    reshard_status status = run(NULL, body, user);
    if (status == RESHARD_OK)
        return CLI_DONE;
    return cli_ranks_are_first() ? cli_fail_status(status) : CLI_FAILED;
}

int cli_ranks_run(int32_t count, reshard_rank_fn body, void *user)
{
    if (is_launched())
        return run_mpi(count, body, user);
    reshard_status status = reshard_group_run(NULL, count, body, user);
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}
