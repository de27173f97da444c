/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_stats.h - what `reshard verify --stats` prints: how far tensors that differ are apart, as
 * a table and in JSON; and the bounds of --tolerance.
 */
#ifndef CLI_CHECKPOINT_VERIFY_STATS_H
#define CLI_CHECKPOINT_VERIFY_STATS_H

#include "cli/common/json.h"
#include "cli/common/options.h"

#include <reshard/comparison.h>

/* Reads "0.001" and "l2=0.01", each once. Prints a message and returns CLI_USAGE if there is
 * something else. */
int cli_tolerance_parse(const cli_texts *texts, double *out_tolerance, double *out_tolerance_l2);

/* Prints how many tensors differ within the tolerance, if any. */
void cli_verify_print_within(const reshard_comparison_stats *stats, const cli_texts *tolerances);
/* Prints the table, with at most rows_max rows. */
reshard_status cli_verify_print_stats(const reshard_comparison *comparison,
                                      const reshard_checkpoint *b, int64_t count, int64_t rows_max);
/* Writes "within" and "stats". */
reshard_status cli_verify_write_stats(cli_json *json, const reshard_comparison *comparison,
                                      int64_t count);

#endif
