/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.c - softmax along a dim, and the cross-entropy of logits with labels. Rows are shifted
 * by their maximum first, so that nothing overflows. */
#ifndef REAL
#include "base/error.h"
#include "base/options.h"
#include "tensor/dist/lift.h"
#include "tensor/ops/cut_rows.h"
#include "tensor/ops/layout_rules.h"
#include "tensor/ops/op.h"
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

typedef struct cross_entropy_facts {
    double count; /* of rows on all ranks */
} cross_entropy_facts;

static void backward_cross_entropy(rs_node *node, reshard_tensor *const *gradients,
                                   reshard_tensor **out_gradients)
{
    reshard_tensor *logits = rs_node_saved(node, 0), *labels = rs_node_saved(node, 1);
    const cross_entropy_facts *facts = rs_node_facts(node);
    reshard_tensor *dense = NULL, *indices = NULL, *output = NULL;
    double gradient = 0;
    if (logits == NULL || labels == NULL)
        return;
    reshard_status status = reshard_tensor_item(gradients[0], &gradient);
    if (status == RESHARD_OK)
        status = rs_real(logits, &dense);
    if (status == RESHARD_OK)
        status = rs_tensor_densify(rs_scope_context(), labels, &indices);
    if (status == RESHARD_OK)
        status = rs_result(logits->dtype, logits->ndim, logits->shape, &output);
    if (status == RESHARD_OK)
        RS_CALL(logits->dtype, cross_entropy_back, dense->data, (const void *)indices->data,
                rs_row_count(logits), rs_row_size(logits), gradient / facts->count, output->data);
    reshard_tensor_release(dense);
    reshard_tensor_release(indices);
    out_gradients[0] = rs_scope_finish(status, output);
}

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

reshard_tensor *rs_cross_entropy_of(reshard_tensor *logits, reshard_tensor *labels, int64_t count)
{
    reshard_tensor *inputs[] = {logits, labels};
    reshard_tensor *dense = NULL, *indices = NULL, *output = NULL;
    if (!rs_op_begin("cross_entropy", 2, inputs))
        return NULL;
    if (rs_dtype_is_half(logits->dtype))
        return reshard_tensor_cast(
            rs_cross_entropy_of(reshard_tensor_cast(logits, RESHARD_F32), labels, count),
            logits->dtype);
    reshard_status status = rs_check_floats(1, inputs);
    if (status == RESHARD_OK)
        status = rs_real(logits, &dense);
    if (status == RESHARD_OK)
        status = rs_tensor_densify(rs_scope_context(), labels, &indices);
    if (status == RESHARD_OK)
        status = rs_check_index_range(indices, rs_row_size(logits));
    if (status == RESHARD_OK)
        status = rs_result(logits->dtype, 0, NULL, &output);
    if (status == RESHARD_OK)
        RS_CALL(logits->dtype, cross_entropy, dense->data, (const void *)indices->data,
                rs_row_count(logits), rs_row_size(logits), (double)count, output->data);
    reshard_tensor_release(dense);
    reshard_tensor_release(indices);
    cross_entropy_facts facts = {(double)count};
    rs_recipe recipe = {"cross_entropy", backward_cross_entropy,     2, inputs, 2, inputs,
                        .facts = &facts, .facts_bytes = sizeof facts};
    return rs_op_end(&recipe, status, output);
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

reshard_tensor *reshard_cross_entropy_with(reshard_tensor *logits, reshard_tensor *labels,
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
    if (read.ignores || read.classes != 0 || rs_rows_are_cut(logits))
        return rs_cut_cross_entropy(logits, labels, &read);
    if (rs_any_distributed(2, inputs))
        return rs_spread_cross_entropy(logits, labels);
    return rs_cross_entropy_of(logits, labels, labels->volume);
}

reshard_tensor *reshard_cross_entropy(reshard_tensor *logits, reshard_tensor *labels)
{
    return reshard_cross_entropy_with(logits, labels, NULL);
}

reshard_tensor *reshard_cross_entropy_loss_with(reshard_tensor *logits, reshard_tensor *labels,
                                                const reshard_cross_entropy_options *options)
{
    reshard_tensor *inputs[] = {logits, labels};
    if (logits == NULL || labels == NULL || !rs_lift("cross_entropy_loss", -1, 2, inputs) ||
        !rs_spread_labels(inputs))
        return NULL;
    return reshard_cross_entropy_with(inputs[0], inputs[1], options);
}

reshard_tensor *reshard_cross_entropy_loss(reshard_tensor *logits, reshard_tensor *labels)
{
    return reshard_cross_entropy_loss_with(logits, labels, NULL);
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
        double shift = log(OF(exponentials)(from, n, row)) + (double)largest;
        for (int64_t i = 0; i < n; i++)
            row[i] = (REAL)((double)from[i] - shift);
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

static void OF(cross_entropy)(const void *x, const int64_t *labels, int64_t rows, int64_t n,
                              double count, void *out)
{
    double total = 0;
    for (int64_t r = 0; r < rows; r++) {
        const REAL *row = (const REAL *)x + r * n;
        double largest = (double)row[0], sum = 0;
        for (int64_t i = 1; i < n; i++)
            largest = (double)row[i] > largest ? (double)row[i] : largest;
        for (int64_t i = 0; i < n; i++)
            sum += exp((double)row[i] - largest);
        total += log(sum) + largest - (double)row[labels[r]];
    }
    *(REAL *)out = (REAL)(total / count);
}

static void OF(cross_entropy_back)(const void *x, const int64_t *labels, int64_t rows, int64_t n,
                                   double gradient, void *out)
{
    OF(softmax)(&(rs_unary_rows){.count = rows, .size = n}, x, out);
    for (int64_t r = 0; r < rows; r++) {
        REAL *row = (REAL *)out + r * n;
        row[labels[r]] -= 1;
        for (int64_t i = 0; i < n; i++)
            row[i] = (REAL)((double)row[i] * gradient);
    }
}

#endif
