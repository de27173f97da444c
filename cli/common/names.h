/* SPDX-License-Identifier: Apache-2.0 */
/* names.h - names of tensors as people read them, in the order layers.2, layers.10. */
#ifndef CLI_NAMES_H
#define CLI_NAMES_H

#include <stddef.h>
#include <stdint.h>

typedef struct cli_name {
    const char *bytes;
    size_t count;
    int64_t index; /* the caller's own */
} cli_name;

#define CLI_NAME_TEXT 164

/* A name as tables show it: escaped (reshard_text_escape) and, if it is long, cut short with "..."
 * at its end. Returns `buffer`. */
const char *cli_name_text(const char *bytes, size_t count, char buffer[CLI_NAME_TEXT]);

/* Compares as text, except that runs of digits are compared by value; by index if the names are
 * equal. */
int cli_names_compare(const cli_name *a, const cli_name *b);
/* Sorts as text, except that runs of digits are compared by value. */
void cli_names_sort(cli_name *names, size_t count);

#endif
