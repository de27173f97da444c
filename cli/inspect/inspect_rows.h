/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect_rows.h - what `reshard inspect` shows of a checkpoint: the tensors that the user's
 * patterns choose, and the rows of the table. Tensors that have dtype, shape and split in common,
 * and names that differ only in numbers, are one row: model.layers.{0..31}.mlp.up_proj.weight x32.
 */
#ifndef CLI_INSPECT_INSPECT_ROWS_H
#define CLI_INSPECT_INSPECT_ROWS_H

#include "cli/common/options.h"

#include <reshard/checkpoint.h>

typedef struct cli_inspection {
    const reshard_checkpoint *checkpoint;
    const cli_texts *includes; /* patterns; without any, everything is shown */
    int64_t count;
    int64_t *tensors; /* those shown, in the order of the checkpoint */
    uint64_t bytes;
    uint64_t parameters; /* elements, without those of an optimizer's state */
} cli_inspection;

/* Chooses the tensors. Returns CLI_DONE, or another code after a message: if a pattern is malformed
 * or matches nothing. Release in any case. */
int cli_inspection_init(cli_inspection *shown, const reshard_checkpoint *checkpoint,
                        const cli_texts *includes);
void cli_inspection_release(cli_inspection *shown);

/* Whether the patterns choose a name. They are known to be well formed. */
int cli_inspection_has(const cli_inspection *shown, const char *name, size_t name_bytes);

typedef struct cli_tensor_row {
    char *name;    /* or the pattern that stands for all names */
    int64_t first; /* the tensor; of several, the one that comes first */
    int64_t count;
    uint64_t bytes; /* of all of them */
} cli_tensor_row;

/* Makes the rows, ordered by name, with numbers compared by value. all: one for each tensor. Free
 * them with cli_tensor_rows_free. */
reshard_status cli_tensor_rows_make(const cli_inspection *shown, int all, cli_tensor_row **out_rows,
                                    int64_t *out_count);
void cli_tensor_rows_free(cli_tensor_row *rows, int64_t count);

#endif
