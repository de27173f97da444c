/* SPDX-License-Identifier: Apache-2.0 */
/* names.h - names of tensors as people read them: layers.2 before layers.10, and nothing in a
 * stranger's name that speaks to the terminal. */
#ifndef CLI_NAMES_H
#define CLI_NAMES_H

#include <stddef.h>
#include <stdint.h>

typedef struct cli_name {
    const char *bytes;
    size_t count;
    int64_t index; /* whatever the caller wants to find again */
} cli_name;

/* Sorts by text, and by value where both have a number. */
void cli_names_sort(cli_name *names, size_t count);

enum { CLI_NAME_SHOWN = 120 };
/* The beginning of a name, with ? for control characters. Returns `buffer`. */
const char *cli_name_text(const char *name, size_t bytes, char buffer[CLI_NAME_SHOWN + 1]);

#endif
