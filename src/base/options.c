/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"

#include "base/error.h"

#include <assert.h>
#include <string.h>

/* Reads the size at the start of a caller's struct. */
static reshard_status read_size(const char *what, const void *given, size_t *out_size)
{
    memcpy(out_size, given, sizeof *out_size);
    if (*out_size < sizeof *out_size)
        return rs_fail(RESHARD_ERR_INVALID, "%s: size is %zu; set it to the sizeof of the struct",
                       what, *out_size);
    if (*out_size > RS_OPTIONS_BYTES_MAX)
        return rs_fail(
            RESHARD_ERR_INVALID,
            "%s: size is %zu, more than any release has; set it to the sizeof of the struct", what,
            *out_size);
    return RESHARD_OK;
}

reshard_status rs_options_read(const char *what, const void *given, void *out_options, size_t bytes)
{
    assert(bytes >= sizeof(size_t) && bytes <= RS_OPTIONS_BYTES_MAX);
    size_t size = sizeof size;
    if (given != NULL) {
        reshard_status status = read_size(what, given, &size);
        if (status != RESHARD_OK)
            return status;
    }
    for (size_t i = bytes; i < size; i++) {
        if (((const char *)given)[i] != 0)
            return rs_fail(RESHARD_ERR_INVALID,
                           "%s: byte %zu is set, but this library knows %zu bytes of them: it is "
                           "older than the program",
                           what, i, bytes);
    }
    memset(out_options, 0, bytes);
    if (given != NULL)
        memcpy(out_options, given, size < bytes ? size : bytes);
    memcpy(out_options, &bytes, sizeof bytes);
    return RESHARD_OK;
}

reshard_status rs_report_write(const char *what, const void *made, size_t bytes, void *out_report)
{
    assert(bytes >= sizeof(size_t) && out_report != NULL);
    size_t size = 0;
    reshard_status status = read_size(what, out_report, &size);
    if (status != RESHARD_OK)
        return status;
    char *out = out_report;
    size_t known = size < bytes ? size : bytes;
    memcpy(out + sizeof size, (const char *)made + sizeof size, known - sizeof size);
    memset(out + known, 0, size - known);
    return RESHARD_OK;
}
