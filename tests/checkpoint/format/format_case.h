/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_case.h - small checkpoints made byte by byte in a folder of their own. Tensors are of U8,
 * so that their data is text: "abcdef" is the six elements of a tensor of shape 2x3.
 */
#ifndef TESTS_CHECKPOINT_FORMAT_FORMAT_CASE_H
#define TESTS_CHECKPOINT_FORMAT_FORMAT_CASE_H

#include "checkpoint/target/target.h"
#include "tests/support/check.h"

/* An entry of a header, all in text: U8("w", "[2,3]", "0", "6"). */
#define U8(name, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

/* Set-up and tear-down of a test: an empty folder, and its end. */
int format_case_begin(void **state);
int format_case_end(void **state);

/* The path of a name in the folder; "" is the folder. Valid until the fourth call after it. */
const char *format_case_path(const char *name);
void format_case_folder(const char *name);
void format_case_write(const char *name, const void *bytes, size_t count);
void format_case_text(const char *name, const char *text);
/* A safetensors file: the length, the header as given, the data. */
void format_case_safetensors(const char *name, const char *header, const char *data);

reshard_checkpoint *format_case_open(const char *name, const reshard_checkpoint_options *options);
/* Opens, and checks the format, the first note (NULL: none) and the names of all tensors
 * ("a,b"). */
reshard_checkpoint *format_case_check(const char *name, const reshard_checkpoint_options *options,
                                      const char *format, const char *tensors);
/* The elements of a tensor, and how many pieces and copies it has. */
void format_case_data(const reshard_checkpoint *checkpoint, const char *name, const char *data,
                      int64_t pieces, int64_t copies);
/* Does not open, with this status and these words. */
void format_case_fails(const char *name, const reshard_checkpoint_options *options,
                       reshard_status status, const char *words);
/* The last error has this hint, and is about this. */
void format_case_error(reshard_hint hint, const char *subject);

/* Writes what a target lays out into a folder, with data from the source: the format's heads,
 * pieces at their places, and what its finish adds. */
void format_case_carry_out(const rs_target *target, const reshard_checkpoint *source,
                           const char *folder);
/* The file begins with a header of this text (spaces behind it up to a page) and then has this
 * data. */
void format_case_is_safetensors(const char *name, const char *header, const char *data);

#endif
