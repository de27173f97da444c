/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect_values.h - what a checkpoint holds beside tensors: steps and hyper-parameters, the
 * key-values of GGUF, the metadata of safetensors. In short, or in full with types (--values).
 */
#ifndef CLI_INSPECT_INSPECT_VALUES_H
#define CLI_INSPECT_INSPECT_VALUES_H

#include "cli/common/json.h"
#include "cli/inspect/inspect_rows.h"

/* Prints a line for each value. all: every one; in_full: also metadata, each with its type and its
 * items. */
reshard_status cli_values_print(const cli_inspection *shown, int all, int in_full);
/* The same as the list "values". */
reshard_status cli_values_write(cli_json *json, const cli_inspection *shown, int in_full);

#endif
