/* SPDX-License-Identifier: Apache-2.0 */
/* zero_files.h - writes a model as DeepSpeed's ZeRO leaves it in stage 3, to measure how fast it is
 * joined. */
#ifndef BENCH_ZERO_FILES_H
#define BENCH_ZERO_FILES_H

#include "cli/common/work.h"

/* Writes the tensors of a checkpoint in F32, without moments, into a new folder: an optimizer's
 * file and a model file for each rank. Returns CLI_DONE, or prints a message and returns another
 * code. */
int bench_zero_write(cli_work *work, const char *whole, const char *folder, int ranks);

#endif
