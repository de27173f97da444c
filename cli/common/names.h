/* SPDX-License-Identifier: Apache-2.0 */
/* names.h - names of tensors in the order in which people read them: layers.2 before layers.10. */
#ifndef CLI_NAMES_H
#define CLI_NAMES_H

#include <stddef.h>
#include <stdint.h>

typedef struct cli_name {
    const char *bytes;
    size_t count;
    int64_t index; /* the caller's own */
} cli_name;

/* Sorts as text, except that runs of digits are compared by value. */
void cli_names_sort(cli_name *names, size_t count);

#endif
