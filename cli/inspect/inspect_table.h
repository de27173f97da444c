/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_table.h - `reshard inspect` as a table. */
#ifndef CLI_INSPECT_INSPECT_TABLE_H
#define CLI_INSPECT_INSPECT_TABLE_H

#include "cli/inspect/inspect_rows.h"

enum { CLI_DTYPE_TEXT = 24 };

/* A dtype as safetensors names it: our name, in upper case. Returns `buffer`. */
const char *cli_dtype_text(reshard_dtype dtype, char buffer[CLI_DTYPE_TEXT]);

/* Prints a line about the checkpoint, the table, tensors that cannot be read, values and notes.
 * all: every row, and the file of each whole tensor; in_full: values with types, and metadata. */
reshard_status cli_inspect_print(const cli_inspection *shown, const char *path, int all,
                                 int in_full);

#endif
