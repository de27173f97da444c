/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library.h - opens libraries at run time, so that programs start even on machines without MPI.
 */
#ifndef CLI_LIBRARY_H
#define CLI_LIBRARY_H

/* Opens lib<name>.so of this version. Looks beside the program (as in a build tree), then in the
 * library folder of the same installation, then where the system looks. Returns NULL on failure,
 * and cli_library_error says why. The library stays open until the process ends. */
void *cli_library_open(const char *name);
/* The address of a name in an open library, or NULL. */
void *cli_library_find(void *library, const char *name);
/* Zero in a static program, where cli_library_open always returns NULL. */
int cli_library_can_open(void);
/* Why the last cli_library_open returned NULL. */
const char *cli_library_error(void);

#endif
