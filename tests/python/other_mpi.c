/* SPDX-License-Identifier: Apache-2.0 */
/*
 * other_mpi.c - stands for a libreshard_mpi that was built with another MPI than the one that runs:
 * what Python has to refuse before it calls anything else of it.
 */
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) int MPI_Get_library_version(char *text, int *length);
__attribute__((visibility("default"))) int reshard_group_from_mpi(void);

int MPI_Get_library_version(char *text, int *length)
{
    static const char version[] = "Other MPI Version:\t7.1\nOther MPI configure:\t--prefix=/usr\n";
    memcpy(text, version, sizeof version);
    *length = (int)sizeof version - 1;
    return 0;
}

int reshard_group_from_mpi(void)
{
    abort();
}
