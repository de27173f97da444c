/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - structs that begin with their own size, so that a program and a library of different
 * releases work together. Such a struct only grows at its end, and zero in a new field means the
 * old behaviour.
 */
#ifndef RS_BASE_OPTIONS_H
#define RS_BASE_OPTIONS_H

#include <reshard/base.h>

#include "base/export.h"

/* No release has a struct as long as this, so a size beyond it is one that was never set. */
#define RS_OPTIONS_BYTES_MAX 4096

/* Copies a caller's options into the struct that this library knows. Fields that the caller's
 * struct lacks become zero, and `given` may be NULL for all zeros. out_options has `bytes` bytes,
 * and its size is set to that. Fails with INVALID if the caller has set a field that this library
 * does not know, because the request would be ignored, or if the size cannot be right. `what`
 * begins the error text. */
RS_EXPORT reshard_status rs_options_read(const char *what, const void *given, void *out_options,
                                         size_t bytes);

/* The other direction, for structs that the library fills in: copies `made` as far as the caller's
 * struct reaches, and leaves the size there unchanged. Fields that this library does not know
 * become zero. Fails with INVALID if the size cannot be right. */
RS_EXPORT reshard_status rs_report_write(const char *what, const void *made, size_t bytes,
                                         void *out_report);

#endif
