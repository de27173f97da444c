/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_file.h - writes a sample model as a GGUF file, to measure how fast it is read, or as one to
 * follow. */
#ifndef BENCH_GGUF_FILE_H
#define BENCH_GGUF_FILE_H

#include "bench/common/sample_model.h"

/* Makes a folder with model.gguf. is_quantised: matrices are Q4_K (Q4_0 if rows are too short for
 * its blocks), with made-up codes; otherwise they are F16, and nothing but holes, which take no
 * space. Returns CLI_DONE, or prints a message and returns another code. */
int bench_gguf_write(cli_work *work, const char *folder, const bench_sample_model *model,
                     int is_quantised);

#endif
