/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sizes.h - numbers and sizes as people write them: "64M", "1GB", "48 MiB".
 */
#ifndef CLI_SIZES_H
#define CLI_SIZES_H

#include <stddef.h>
#include <stdint.h>

/* Decimal digits only. Returns 0, or -1 if the text is anything else or the number exceeds
 * `max`. */
int cli_number_parse(const char *text, uint64_t max, uint64_t *out_number);

/* Digits and an optional unit, in upper or lower case: B; K, M, G, T or KiB, MiB, .. (1024); KB,
 * MB, .. (1000). Returns 0, or -1 if the text is not a size or does not fit. */
int cli_size_parse(const char *text, size_t *out_bytes);

#define CLI_SIZE_TEXT 32

/* "512 B", "48 MiB", "1.5 GiB". Returns `buffer`. */
const char *cli_size_text(uint64_t bytes, char buffer[CLI_SIZE_TEXT]);

/* How many of something there are, with three digits beyond a million: "66048", "1.97 million",
 * "6.74 billion". Returns `buffer`. */
const char *cli_count_text(uint64_t count, char buffer[CLI_SIZE_TEXT]);

#endif
