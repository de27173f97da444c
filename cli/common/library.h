/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library.h - libraries that a program opens only when it needs them, so that it starts on machines
 * without MPI.
 */
#ifndef CLI_LIBRARY_H
#define CLI_LIBRARY_H

/* Opens lib<name>.so of this version: beside the program, as in a build tree; in the folder of
 * libraries that belongs to where the program is installed; or wherever the system looks. NULL:
 * cli_library_error tells why. It stays open until the process ends. */
void *cli_library_open(const char *name);
/* Words for the last cli_library_open that gave NULL. */
const char *cli_library_error(void);

#endif
