/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - structs that are led by their own size, so that a program and a library of different
 * releases understand each other. A struct only ever grows at its end, and zero means "as before"
 * in every field that was added.
 */
#ifndef RS_BASE_OPTIONS_H
#define RS_BASE_OPTIONS_H

#include <reshard/base.h>

#include "base/export.h"

/* Brings options from the size that the caller knows to the one this library knows: fields that the
 * caller does not know are zero. out_options has `bytes` bytes and leads with its size; given NULL
 * gives all zero. Errors: INVALID when a field that this library does not know is not zero, because
 * what it asks for would not be done. `what` begins the error text. */
RS_EXPORT reshard_status rs_options_read(const char *what, const void *given, void *out_options,
                                         size_t bytes);

/* The other direction, for structs that the library fills: copies `made` as far as the caller's
 * struct reaches, and leaves its size alone. Fields beyond what this library knows become zero.
 * Errors: INVALID when the caller did not set a size. */
RS_EXPORT reshard_status rs_report_write(const char *what, const void *made, size_t bytes,
                                         void *out_report);

#endif
