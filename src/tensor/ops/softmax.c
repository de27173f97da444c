/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.c - softmax along a dim, and the cross-entropy of logits with labels. Rows are shifted
 * by their maximum first, so that nothing overflows. */
#ifndef REAL
#include "base/error.h"
#include "base/options.h"
#include "tensor/dist/lift.h"
#include "tensor/ops/cut_rows.h"
#include "tensor/ops/op.h"
#include "tensor/ops/spread_ops.h"
#include "tensor/ops/unary.h"

#include <inttypes.h>
#include <math.h>

#define RS_REAL_FILE "tensor/ops/softmax.c"
#include "tensor/core/real.h"

/* ---- softmax --------------------------------------------------------------------------------- */

static const rs_unary rowwise[] = {
    {"softmax", RS_SPREAD_ROWS, RS_KEEPS_OUTPUT, RS_BOTH(softmax), RS_BOTH(softmax_back)},
    {"log_softmax", RS_SPREAD_ROWS, RS_KEEPS_OUTPUT, RS_BOTH(logarithm), RS_BOTH(logarithm_back)}};

static reshard_tensor *run_softmax(reshard_tensor *x, int32_t dim, bool logarithm)
{
    const rs_unary *row = &rowwise[logarithm];
    if (!rs_op_begin(row->name, 1, &x))
        return NULL;
    int32_t d = 0;
    reshard_status status = rs_dim_normalize(x->ndim, dim, &d);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "%s", row->name));
    if (d != x->ndim - 1)
        return reshard_tensor_transpose(
            run_softmax(reshard_tensor_transpose(x, d, -1), -1, logarithm), d, -1);
    return rs_rows_are_cut(x) ? rs_cut_softmax(x, logarithm) : rs_unary_run(row, x, NULL);
}

reshard_tensor *reshard_softmax(reshard_tensor *x, int32_t dim)
{
    return run_softmax(x, dim, false);
}

reshard_tensor *reshard_log_softmax(reshard_tensor *x, int32_t dim)
{
    return run_softmax(x, dim, true);
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

static reshard_status check_labels(const reshard_tensor *logits, const reshard_tensor *labels)
{
    bool fits = logits->ndim >= 1 && labels->ndim == logits->ndim - 1;
    for (int32_t d = 0; fits && d < labels->ndim; d++)
        fits = labels->shape[d] == logits->shape[d];
    if (!fits)
        return rs_fail(RESHARD_ERR_INVALID, "logits %s with labels %s",
                       rs_tensor_describe(logits).text, rs_tensor_describe(labels).text);
    return rs_check_indices(labels);
}

static reshard_status read_options(const reshard_tensor *logits,
                                   const reshard_cross_entropy_options *options,
                                   reshard_cross_entropy_options *out_options)
{
    reshard_status status = rs_options_read("options", options, out_options, sizeof *out_options);
    if (status != RESHARD_OK)
        return status;
    int64_t classes = out_options->classes, columns = logits->shape[logits->ndim - 1];
    if (classes < 0 || classes > columns)
        return rs_fail(RESHARD_ERR_RANGE, "%" PRId64 " classes of logits with %" PRId64 " columns",
                       classes, columns);
    return RESHARD_OK;
}

reshard_tensor *reshard_cross_entropy(reshard_tensor *logits, reshard_tensor *labels,
                                      const reshard_cross_entropy_options *options)
{
    reshard_tensor *inputs[] = {logits, labels};
    reshard_cross_entropy_options read = {0};
    if (!rs_op_begin("cross_entropy", 2, inputs))
        return NULL;
    reshard_status status = check_labels(logits, labels);
    if (status == RESHARD_OK)
        status = read_options(logits, options, &read);
    if (status == RESHARD_OK && labels->volume == 0)
        status = rs_fail(RESHARD_ERR_INVALID, "the logits have no rows");
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "cross_entropy"));
    bool plain = !read.ignores && read.classes == 0 && !rs_rows_are_cut(logits);
    if (plain && rs_any_distributed(2, inputs))
        return rs_spread_cross_entropy(logits, labels);
    return rs_cut_cross_entropy(logits, labels, &read, 0);
}

reshard_tensor *reshard_cross_entropy_loss(reshard_tensor *logits, reshard_tensor *labels,
                                           const reshard_cross_entropy_options *options)
{
    reshard_tensor *inputs[] = {logits, labels};
    if (logits == NULL || labels == NULL || !rs_lift("cross_entropy_loss", -1, 2, inputs) ||
        !rs_spread_labels(inputs))
        return NULL;
    return reshard_cross_entropy(inputs[0], inputs[1], options);
}

#else

/* Writes exp(x - max) and returns the sum. */
static double OF(exponentials)(const REAL *x, int64_t n, REAL *y)
{
    REAL largest = n > 0 ? x[0] : 0;
    double sum = 0;
    for (int64_t i = 1; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (int64_t i = 0; i < n; i++) {
        double e = exp((double)x[i] - (double)largest);
        y[i] = (REAL)e;
        sum += e;
    }
    return sum;
}

static void OF(softmax)(const rs_unary_rows *rows, const void *x, void *y)
{
    int64_t n = rows->size;
    for (int64_t r = 0; r < rows->count; r++) {
        REAL *row = (REAL *)y + r * n;
        double sum = OF(exponentials)((const REAL *)x + r * n, n, row);
        for (int64_t i = 0; i < n; i++)
            row[i] = (REAL)((double)row[i] / sum);
    }
}

static void OF(softmax_back)(const rs_unary_rows *rows, const void *y, const void *g, void *out)
{
    int64_t n = rows->size;
    for (int64_t r = 0; r < rows->count; r++) {
        const REAL *p = (const REAL *)y + r * n, *gradient = (const REAL *)g + r * n;
        REAL *row = (REAL *)out + r * n;
        double dot = 0;
        for (int64_t i = 0; i < n; i++)
            dot += (double)p[i] * (double)gradient[i];
        for (int64_t i = 0; i < n; i++)
            row[i] = (REAL)((double)p[i] * ((double)gradient[i] - dot));
    }
}

static void OF(logarithm)(const rs_unary_rows *rows, const void *x, void *y)
{
    int64_t n = rows->size;
    for (int64_t r = 0; r < rows->count; r++) {
        const REAL *from = (const REAL *)x + r * n;
        REAL *row = (REAL *)y + r * n, largest = n > 0 ? from[0] : 0;
        for (int64_t i = 1; i < n; i++)
            largest = from[i] > largest ? from[i] : largest;
        double shift = log(OF(exponentials)(from, n, row));
        for (int64_t i = 0; i < n; i++)
            row[i] = (REAL)((double)from[i] - (double)largest - shift);
    }
}

static void OF(logarithm_back)(const rs_unary_rows *rows, const void *y, const void *g, void *out)
{
    int64_t n = rows->size;
    for (int64_t r = 0; r < rows->count; r++) {
        const REAL *p = (const REAL *)y + r * n, *gradient = (const REAL *)g + r * n;
        REAL *row = (REAL *)out + r * n;
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += (double)gradient[i];
        for (int64_t i = 0; i < n; i++)
            row[i] = (REAL)((double)gradient[i] - exp((double)p[i]) * sum);
    }
}

#endif
