/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product.c - matrix products by OpenBLAS, which is called only here.
 *
 * Ranks can be threads that multiply at the same time, so each product uses a single thread. If
 * OpenBLAS is set to use more, the first product changes that for the whole process. A sequential
 * build of OpenBLAS shares its scratch memory between callers without a lock (0.3.21 was seen to
 * give wrong results), so with such a build the plain loops below do the work.
 */
#ifndef REAL
#include "base/error.h"
#include "tensor/ops/op.h"

#include <assert.h>
#include <cblas.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

/* Declared as in OpenBLAS's own cblas.h; other headers of that name may lack them. */
int openblas_get_parallel(void);
int openblas_get_num_threads(void);
void openblas_set_num_threads(int num_threads);

#define RS_REAL_FILE "tensor/ops/product.c"
#include "tensor/core/real.h"

void rs_multiply_plainly(const rs_product *p)
{
    RS_CALL(p->dtype, multiply, p);
}

static void multiply_fast(const rs_product *p)
{
    int m = (int)p->m, n = (int)p->n, k = (int)p->k;
    CBLAS_TRANSPOSE transpose_a = p->transpose_a ? CblasTrans : CblasNoTrans;
    CBLAS_TRANSPOSE transpose_b = p->transpose_b ? CblasTrans : CblasNoTrans;
    int lda = p->transpose_a ? m : k, ldb = p->transpose_b ? k : n;
    if (openblas_get_num_threads() != 1)
        openblas_set_num_threads(1);
    if (p->dtype == RESHARD_F32)
        cblas_sgemm(CblasRowMajor, transpose_a, transpose_b, m, n, k, (float)p->scale, p->a, lda,
                    p->b, ldb, p->add ? 1.0F : 0.0F, p->c, n);
    else
        cblas_dgemm(CblasRowMajor, transpose_a, transpose_b, m, n, k, p->scale, p->a, lda, p->b,
                    ldb, p->add ? 1.0 : 0.0, p->c, n);
}

reshard_status rs_multiply_matrices(const rs_product *p)
{
    assert(p->dtype == RESHARD_F32 || p->dtype == RESHARD_F64);
    assert(p->m >= 0 && p->n >= 0 && p->k >= 0);
    if (p->m > INT_MAX || p->n > INT_MAX || p->k > INT_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "a product of matrices of %" PRId64 "x%" PRId64 "x%" PRId64, p->m, p->n,
                       p->k);
    if (p->m == 0 || p->n == 0)
        return RESHARD_OK;
    if (p->k == 0 || openblas_get_parallel() == 0)
        rs_multiply_plainly(p);
    else
        multiply_fast(p);
    return RESHARD_OK;
}

#else

/* Row by row, so that the innermost loop runs along rows of B and C if B is not transposed. */
static void OF(multiply)(const rs_product *p)
{
    const REAL *a = p->a, *b = p->b;
    REAL *c = p->c;
    for (int64_t i = 0; i < p->m; i++) {
        REAL *row = c + i * p->n;
        if (!p->add)
            memset(row, 0, (size_t)p->n * sizeof *row);
        for (int64_t q = 0; q < p->k; q++) {
            REAL x = (REAL)p->scale * (p->transpose_a ? a[q * p->m + i] : a[i * p->k + q]);
            for (int64_t j = 0; j < p->n; j++)
                row[j] += x * (p->transpose_b ? b[j * p->k + q] : b[q * p->n + j]);
        }
    }
}

#endif
