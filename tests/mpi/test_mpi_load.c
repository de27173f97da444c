/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mpi_load.c - a program that is not linked with MPI loads the backend, whose path is its
 * argument, and runs a body on all ranks; then a second one, which MPI cannot do again.
 */
#include <reshard/mpi_run.h>
#include <reshard/reshard.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static reshard_status body(void *user, reshard_group *group)
{
    int32_t *rank = user;
    *rank = reshard_group_rank(group);
    reshard_status status = reshard_group_barrier(group);
    if (status != RESHARD_OK)
        return status;
    return *rank == reshard_group_size(group) - 1
               ? reshard_error_set(RESHARD_ERR_IO, "the last rank fails")
               : reshard_group_barrier(group);
}

int main(int argument_count, char **arguments)
{
    void *library = argument_count == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    reshard_mpi_run_fn run = NULL;
    if (library == NULL) {
        const char *why = argument_count == 2 ? dlerror() : "one argument is needed";
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    *(void **)(void *)&run = dlsym(library, "reshard_mpi_run");
    int32_t rank = -1;
    if (run == NULL || run(NULL, body, &rank) != RESHARD_ERR_IO ||
        strstr(reshard_error_text(), ": the last rank fails") == NULL) {
        fprintf(stderr, "rank %d: not what it should be: %s\n", rank, reshard_error_text());
        return 1;
    }
    printf("rank %d: %s\n", rank, reshard_error_text());
    return run(NULL, body, &rank) != RESHARD_ERR_INVALID;
}
