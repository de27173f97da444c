/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mpi_tensor.c - distributed tensors and their gradients between MPI ranks: the same as
 * between threads. Moves against values and slopes computed here; every collective, and every
 * operation on random layouts, against finite differences.
 */
#include "tests/tensor/collectives.h"
#include "tests/tensor/differences.h"
#include "tests/tensor/shared.h"

#include <reshard/mpi_run.h>

/* Over all ranks, but for the first one, which is on the last rank alone. */
static const char *const specs[] = {"R", "S(0)", "S(1)", "R", "S(1/1)", "S(flat)", "P(sum)"};
enum { SPECS = (int)(sizeof specs / sizeof *specs) };

static void write_spec(reshard_group *group, int i, char *text, size_t capacity)
{
    int size = reshard_group_size(group);
    if (i == 0)
        (void)snprintf(text, capacity, "1[%d]: %s", size - 1, specs[i]);
    else
        (void)snprintf(text, capacity, "%d: %s", size, specs[i]);
}

static double gelu(double x)
{
    return x * 0.5 * erfc(-x / sqrt(2));
}

static reshard_status move_and_back(reshard_group *group, const char *from, const char *to)
{
    bool partial = strchr(to, 'P') != NULL;
    reshard_tensor *alone = make_zeros(RESHARD_F64, SHAPE(5, 3));
    MUST(reshard_tensor_fill_random(alone, RESHARD_NORMAL, 3));
    reshard_tensor *x = spread_random(group, from, RESHARD_F64, SHAPE(5, 3), 3);
    CHECK(x != NULL);
    MUST(reshard_tensor_fill_random(x, RESHARD_NORMAL, 3));
    TRY(reshard_tensor_set_requires_grad(x, 1));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = move_to(x, to);
    y = reshard_tensor_full(partial ? reshard_scale(y, 2) : reshard_gelu(y));
    CHECK(y != NULL);
    for (int64_t i = 0; i < 15; i++) {
        double v = element(alone, i);
        CHECK(fabs(element(y, i) - (partial ? 2 * v : gelu(v))) < 1e-12);
    }
    (void)reshard_backward(y, alone, NULL); /* weighted by the values themselves */
    TRY(reshard_scope_close(scope));
    reshard_tensor *gradient = whole_of(reshard_tensor_gradient(x));
    CHECK(gradient != NULL);
    for (int64_t i = 0; i < 15; i++) {
        double v = element(alone, i), h = 1e-5;
        double slope = partial ? 2 : (gelu(v + h) - gelu(v - h)) / (2 * h);
        CHECK(fabs(element(gradient, i) - v * slope) < 1e-8);
    }
    reshard_tensor_release(gradient);
    reshard_tensor_release(x);
    reshard_tensor_release(alone);
    return RESHARD_OK;
}

static reshard_status run_all(void *user, reshard_group *group)
{
    char from[32], to[32];
    (void)user;
    for (int i = 0; i < SPECS - 1; i++) { /* the last one is partial, and no place to start */
        for (int k = 0; k < SPECS; k++) {
            write_spec(group, i, from, sizeof from);
            write_spec(group, k, to, sizeof to);
            TRY(move_and_back(group, from, to));
        }
    }
    TRY(use_shared_tensors(group, true));
    TRY(refuse_shared_tensors(group));
    TRY(collectives_run(group, 21));
    return differences_run(group, 1, 31);
}

int main(void)
{
    reshard_status status = reshard_mpi_run(NULL, run_all, NULL);
    if (status != RESHARD_OK)
        fprintf(stderr, "%s\n", reshard_error_text());
    return status != RESHARD_OK;
}
