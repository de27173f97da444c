/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library_none.c - replaces library.c in static programs, which cannot open libraries.
 */
#include "cli/common/library.h"

#include <stddef.h>

void *cli_library_open(const char *name)
{
    (void)name;
    return NULL;
}

void *cli_library_find(void *library, const char *name)
{
    (void)library, (void)name;
    return NULL;
}

int cli_library_can_open(void)
{
    return 0;
}

const char *cli_library_error(void)
{
    return "a static program cannot load libraries";
}
