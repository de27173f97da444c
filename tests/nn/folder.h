/* SPDX-License-Identifier: Apache-2.0 */
/* folder.h - a folder of a test's own, from its set-up to its tear-down. */
#ifndef TESTS_NN_FOLDER_H
#define TESTS_NN_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/reshard-nn-XXXXXX";

static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static inline int remove_folder(void **state)
{
    char command[128];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

#endif
