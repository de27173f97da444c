/* SPDX-License-Identifier: Apache-2.0 */
/* test_hollow.c - graphs that are kept without memory, and filled from other tensors: the gradients
 * must be those of what they were filled with. */
#include "tensor/grad/backward.h"
#include "tensor/grad/hollow.h"
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/tensor/values.h"

#include <string.h>

enum { SIZE = 4, VOLUME = SIZE * SIZE };

/* A 4x4 matrix of numbers that depend on the seed. */
static reshard_tensor *make_matrix(int seed)
{
    double values[VOLUME];
    reshard_tensor *made = NULL;
    for (int i = 0; i < VOLUME; i++)
        values[i] = (double)((i * 7 + seed * 5) % 11) - 4.5;
    MUST(reshard_tensor_from_data(NULL, RESHARD_F64, SHAPE(SIZE, SIZE), values, &made));
    return made;
}

static reshard_tensor *run_linear(reshard_tensor *const *t)
{
    return reshard_linear(t[0], t[1], NULL);
}

/* Views of the inputs are saved, of another shape than theirs. */
static reshard_tensor *run_turned(reshard_tensor *const *t)
{
    reshard_tensor *turned = reshard_tensor_transpose(t[0], 0, 1);
    return reshard_gelu(reshard_mul(turned, reshard_tensor_narrow(t[1], 0, 0, SIZE)));
}

static reshard_tensor *run_product(reshard_tensor *const *t)
{
    return reshard_mul(reshard_tensor_transpose(t[0], 0, 1), t[1]);
}

static reshard_tensor *run_softmax(reshard_tensor *const *t)
{
    return reshard_add(reshard_softmax(t[0], -1), t[1]);
}

typedef reshard_tensor *(*operation)(reshard_tensor *const *t);

static void collect(reshard_tensor *const *leaves, double *out)
{
    for (int i = 0; i < 2; i++) {
        memset(out + (ptrdiff_t)i * VOLUME, 0, VOLUME * sizeof *out);
        if (leaves[i]->gradient != NULL)
            MUST(reshard_tensor_copy_to(leaves[i]->gradient, out + (ptrdiff_t)i * VOLUME,
                                        VOLUME * sizeof *out));
        reshard_tensor_clear_gradient(leaves[i]);
    }
}

static void make_leaves(int seed, reshard_tensor **leaves)
{
    for (int i = 0; i < 2; i++) {
        leaves[i] = make_matrix(seed + i);
        MUST(reshard_tensor_set_requires_grad(leaves[i], 1));
    }
}

/* Recorded with some numbers, filled with others, which the plain pass has from the start. */
static void check_filled(operation fn)
{
    reshard_scope *scope = NULL;
    reshard_tensor *leaves[2], *others[2], *gradient = make_matrix(9);
    rs_hollow *hollow = NULL;
    double expected[2 * VOLUME], got[2 * VOLUME];
    MUST(reshard_scope_open(NULL, &scope));
    make_leaves(1, leaves);
    make_leaves(3, others);
    MUST(reshard_backward(fn(others), gradient, NULL));
    collect(others, expected);
    reshard_tensor *output = fn(leaves);
    MUST(rs_hollow_make(NULL, output, 2, leaves, &hollow));
    assert_true(hollow != NULL);
    assert_true(leaves[0]->storage == NULL && output->storage == NULL);
    for (int round = 0; round < 2; round++) {
        rs_hollow_fill(hollow, others);
        MUST(rs_backward_local(output, gradient, round == 0));
        rs_hollow_empty(hollow);
        collect(leaves, got);
        assert_true(memcmp(expected, got, sizeof got) == 0);
        assert_true(leaves[1]->storage == NULL);
    }
    rs_hollow_destroy(hollow);
    MUST(reshard_scope_close(scope));
    for (int i = 0; i < 2; i++) {
        reshard_tensor_release(leaves[i]);
        reshard_tensor_release(others[i]);
    }
    reshard_tensor_release(gradient);
}

static void test_fill__gradients_of_the_contents(void **state)
{
    (void)state;
    check_filled(run_linear);
    check_filled(run_product);
}

/* What was computed on the way, or from one leaf's memory beyond the other's, is not theirs. */
static void test_make__refuses_what_lies_elsewhere(void **state)
{
    (void)state;
    operation refused[] = {run_softmax, run_turned};
    for (int i = 0; i < 2; i++) {
        reshard_scope *scope = NULL;
        reshard_tensor *leaves[2];
        rs_hollow *hollow = NULL;
        MUST(reshard_scope_open(NULL, &scope));
        make_leaves(1, leaves);
        reshard_tensor *output = refused[i](leaves);
        MUST(rs_hollow_make(NULL, output, 2, leaves, &hollow));
        assert_true(hollow == NULL);
        assert_true(leaves[0]->storage != NULL && output->storage != NULL);
        MUST(reshard_scope_close(scope));
        reshard_tensor_release(leaves[0]);
        reshard_tensor_release(leaves[1]);
    }
}

/* Two leaves in one memory, side by side: each slot belongs to the leaf that holds it all. */
static void test_make__leaves_that_share_memory(void **state)
{
    (void)state;
    reshard_scope *scope = NULL;
    reshard_tensor *whole = make_matrix(2), *leaves[2] = {NULL, NULL}, *contents[2];
    reshard_tensor *gradient = NULL;
    rs_hollow *hollow = NULL;
    int64_t shape[] = {2, SIZE}, strides[] = {SIZE, 1};
    double one = 1, got[2 * SIZE];
    MUST(reshard_scope_open(NULL, &scope));
    for (int i = 0; i < 2; i++) {
        MUST(rs_tensor_view(NULL, whole, 2, shape, strides, i * 2 * SIZE, &leaves[i]));
        MUST(reshard_tensor_set_requires_grad(leaves[i], 1));
        MUST(reshard_tensor_create(NULL, RESHARD_F64, 2, shape, &contents[i]));
        MUST(reshard_tensor_fill(contents[i], 10.0 + i));
    }
    MUST(reshard_tensor_create(NULL, RESHARD_F64, 2, shape, &gradient));
    MUST(reshard_tensor_fill(gradient, one));
    reshard_tensor *output = reshard_mul(leaves[0], leaves[1]);
    MUST(rs_hollow_make(NULL, output, 2, leaves, &hollow));
    assert_true(hollow != NULL);
    rs_hollow_fill(hollow, contents);
    MUST(rs_backward_local(output, gradient, false));
    for (int i = 0; i < 2; i++) {
        MUST(reshard_tensor_copy_to(leaves[i]->gradient, got, sizeof got));
        assert_true(got[0] == 11.0 - i && got[2 * SIZE - 1] == 11.0 - i);
    }
    rs_hollow_destroy(hollow);
    MUST(reshard_scope_close(scope));
    for (int i = 0; i < 2; i++) {
        reshard_tensor_release(leaves[i]);
        reshard_tensor_release(contents[i]);
    }
    reshard_tensor_release(gradient);
    reshard_tensor_release(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill__gradients_of_the_contents),
        cmocka_unit_test(test_make__refuses_what_lies_elsewhere),
        cmocka_unit_test(test_make__leaves_that_share_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
