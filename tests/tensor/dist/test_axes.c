/* SPDX-License-Identifier: Apache-2.0 */
/* test_axes.c - layouts taken apart by mesh axis and put together again: which are refused, which
 * order of cuts is kept, and what setting the placement of an axis does. */
#include "layout/layout.h"
#include "tensor/core/scope.h"
#include "tensor/dist/axes.h"
#include "tests/support/check.h"
#include "tests/tensor/distributed.h"

#include <string.h>

typedef struct row {
    int32_t ranks;
    const char *spec;
    const char *again; /* the spec that comes back; NULL: refused */
} row;

/* Every rank takes the layout of a 8x8 tensor apart and makes it again. */
static reshard_status take_apart(void *user, reshard_group *group)
{
    const row *r = user;
    reshard_scope *scope = NULL;
    rs_axes axes;
    reshard_layout *layout = NULL;
    char text[200];
    size_t length = 0;
    reshard_spec *spec = spec_of(r->spec);
    reshard_tensor *x = NULL;
    TRY(reshard_tensor_create_distributed(NULL, group, spec, RESHARD_F32, SHAPE(8, 8), &x));
    reshard_spec_release(spec);
    TRY(reshard_scope_open(NULL, &scope));
    reshard_status status = rs_axes_of(x, &axes);
    CHECK((status == RESHARD_OK) == (r->again != NULL));
    if (r->again == NULL) {
        CHECK(status == RESHARD_ERR_UNSUPPORTED && strstr(reshard_error_text(), r->spec) != NULL);
    } else {
        TRY(rs_axes_layout(&axes, 2, reshard_tensor_shape(x), &layout));
        TRY(reshard_spec_text(layout->spec, text, sizeof text, &length));
        if (strcmp(text, r->again) != 0)
            return ranks_say(__FILE__, __LINE__, text, RESHARD_ERR_CHECK);
    }
    reshard_layout_release(layout);
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(x);
    return RESHARD_OK;
}

static void test_axes__there_and_back(void **state)
{
    (void)state;
    static const row rows[] = {
        {4, "4: S(0)", "4: S(0)"},
        {4, "4: S(-1)", "4: S(1)"},
        {4, "a=2,b=2: S(1), S(0)", "a=2,b=2: S(1), S(0)"},
        /* Two axes of one dim keep their order, whatever the order of the axes. */
        {4, "a=2,b=2: S(0)@b, S(0)@a", "a=2,b=2: S(0)@b, S(0)@a"},
        /* Of different dims, they come back in the order of axes. */
        {4, "a=2,b=2: S(0)@b, S(1)@a", "a=2,b=2: S(1), S(0)"},
        {4, "a=2,b=2: R, P", "a=2,b=2: R, P(sum)"},
        /* An axis of size 1 cuts nothing. */
        {2, "a=1,b=2: S(0), S(1)", "a=1,b=2: R, S(1)"},
        {4, "4: S(flat)", NULL},
        /* One rank has all elements then, but as a single dimension. */
        {1, "1: S(flat)", NULL},
        {2, "a=2,b=1: S(0), S(flat)", NULL},
        {2, "2: A(0)", NULL},
        {4, "4: S(0, max=2)", NULL},
        {2, "boxes 8x8: 0[0:8,0:3] 1[0:8,3:8]", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run_ranks(rows[i].ranks, take_apart, (void *)&rows[i]);
}

static void test_axes__set(void **state)
{
    (void)state;
    rs_axes axes = {.count = 0};
    reshard_placement cut = {.kind = RESHARD_SHARD, .dim = 1}, none = {.kind = RESHARD_REPLICATE};
    rs_axes_set(&axes, 2, cut);
    rs_axes_set(&axes, 0, rs_placement_partial());
    assert_int_equal(axes.count, 2);
    assert_true(rs_axes_is_cut(&(reshard_placement){.kind = RESHARD_SHARD, .dim = 1}, 1));
    reshard_placement at = rs_axes_at(&axes, 2);
    assert_true(rs_axes_is_cut(&at, 1) && !rs_axes_is_cut(&at, 0));
    assert_int_equal(rs_axes_at(&axes, 0).kind, RESHARD_PARTIAL);
    assert_int_equal(rs_axes_at(&axes, 1).kind, RESHARD_REPLICATE); /* never set */
    cut.dim = 0;
    rs_axes_set(&axes, 2, cut); /* replaced, and not added */
    at = rs_axes_at(&axes, 2);
    assert_true(axes.count == 2 && rs_axes_is_cut(&at, 0));
    rs_axes_set(&axes, 2, none); /* taken out */
    rs_axes_set(&axes, 2, none); /* and not there any more */
    assert_int_equal(axes.count, 1);
    assert_int_equal(axes.cuts[0].axis, 0);
}

static void test_axes__same_cut(void **state)
{
    (void)state;
    static const int64_t sizes[] = {3, 5}, others[] = {5, 3};
    reshard_placement chunk = {.kind = RESHARD_SHARD, .dim = 0, .unit = 1}, other = chunk;
    other.dim = 1;
    other.unit = 0; /* as 1 */
    assert_true(rs_axes_same_cut(&chunk, &other));
    other.unit = 4;
    assert_false(rs_axes_same_cut(&chunk, &other));
    reshard_placement ragged = {
        .kind = RESHARD_SHARD, .rule = RESHARD_RAGGED, .count = 2, .values = sizes};
    other = ragged;
    other.values = others;
    assert_true(rs_axes_same_cut(&ragged, &ragged));
    assert_false(rs_axes_same_cut(&ragged, &other));
    assert_false(rs_axes_same_cut(&ragged, &chunk));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_axes__there_and_back),
        cmocka_unit_test(test_axes__set),
        cmocka_unit_test(test_axes__same_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
