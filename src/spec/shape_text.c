/* SPDX-License-Identifier: Apache-2.0 */
/* shape_text.c - parses shapes. */
#include <reshard/spec.h>

#include "base/shape.h"
#include "spec/scan.h"

#include <string.h>

reshard_status rs_scan_shape(rs_scan *scan, int32_t *out_ndim, int64_t *out_shape)
{
    size_t start = rs_scan_here(scan);
    if (rs_scan_at_letter(scan)) {
        rs_slice word = rs_scan_word(scan);
        if (rs_slice_equals(word, "scalar")) {
            *out_ndim = 0;
            return RESHARD_OK;
        }
        scan->position = start;
    }
    int32_t ndim = 0;
    do {
        size_t here = rs_scan_here(scan);
        int64_t length = 0;
        if (ndim == 0 && !rs_scan_at_digit(scan))
            return rs_scan_expected(scan, "a shape such as 10x7, or \"scalar\"");
        reshard_status status = rs_scan_number(scan, &length);
        if (status != RESHARD_OK)
            return status;
        if (ndim == RESHARD_NDIM_MAX)
            return rs_scan_fail(scan, here, RESHARD_ERR_RANGE, "more than %d dimensions",
                                RESHARD_NDIM_MAX);
        out_shape[ndim++] = length;
    } while (rs_scan_accept(scan, 'x'));
    reshard_status status = rs_shape_check(ndim, out_shape);
    if (status != RESHARD_OK)
        return rs_scan_fail_within(scan, start, status);
    *out_ndim = ndim;
    return RESHARD_OK;
}

reshard_status reshard_shape_parse(const char *text, int32_t *out_ndim,
                                   int64_t out_shape[RESHARD_NDIM_MAX])
{
    rs_scan scan;
    int32_t ndim = 0;
    int64_t shape[RESHARD_NDIM_MAX];
    reshard_status status = rs_scan_init(&scan, "shape", text);
    if (status == RESHARD_OK)
        status = rs_scan_shape(&scan, &ndim, shape);
    if (status == RESHARD_OK && rs_scan_peek(&scan) >= 0)
        status = rs_scan_expected(&scan, "\"x\" or the end");
    if (status != RESHARD_OK)
        return status;
    memcpy(out_shape, shape, (size_t)ndim * sizeof *shape);
    *out_ndim = ndim;
    return RESHARD_OK;
}
