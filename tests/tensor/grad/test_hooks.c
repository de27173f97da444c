/* SPDX-License-Identifier: Apache-2.0 */
/* test_hooks.c - saved-tensor hooks: PyTorch's rules, and where we are stricter. */
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/tensor/distributed.h"

#include <string.h>

/* What the hooks are to do. */
enum { KEEP, OTHER_SHAPE, OTHER_TYPE, WRITE, FAIL, GIVE_NULL };

typedef struct record {
    int packs, unpacks, forgets;
    int gradients_seen; /* pack was called with recording on */
    int way;
} record;

static reshard_status pack(void *user, reshard_tensor *tensor, void **out_packed)
{
    record *r = user;
    r->packs++;
    r->gradients_seen += reshard_set_gradients_enabled(0);
    if (r->way == FAIL)
        return reshard_error_set(RESHARD_ERR_IO, "no room");
    if (r->way == WRITE)
        MUST(reshard_tensor_fill(tensor, 0));
    *out_packed = reshard_tensor_retain(tensor);
    return RESHARD_OK;
}

static reshard_status unpack(void *user, void *packed, reshard_tensor **out_tensor)
{
    record *r = user;
    r->unpacks++;
    *out_tensor = reshard_tensor_retain(packed);
    if (r->way == GIVE_NULL || r->way == OTHER_SHAPE || r->way == OTHER_TYPE)
        reshard_tensor_release(packed);
    if (r->way == GIVE_NULL)
        *out_tensor = NULL;
    if (r->way == OTHER_SHAPE) /* of one element: would broadcast */
        return reshard_tensor_create(NULL, RESHARD_F64, SHAPE(1), out_tensor);
    if (r->way == OTHER_TYPE)
        return reshard_tensor_create(NULL, RESHARD_F32, SHAPE(3), out_tensor);
    return RESHARD_OK;
}

static void forget(void *user, void *packed)
{
    record *r = user;
    r->forgets++;
    reshard_tensor_release(packed);
}

static reshard_saved_tensor_hooks hooks_of(record *r)
{
    return (reshard_saved_tensor_hooks){pack, unpack, forget, r};
}

static reshard_tensor *make_leaf(double value)
{
    reshard_tensor *x = make_zeros(RESHARD_F64, SHAPE(3));
    MUST(reshard_tensor_fill(x, value));
    MUST(reshard_tensor_set_requires_grad(x, 1));
    return x;
}

static void test_hooks__once_for_each_slot_and_at_each_access(void **state)
{
    (void)state;
    record r = {0};
    reshard_saved_tensor_hooks hooks = hooks_of(&r);
    reshard_scope *scope = NULL;
    reshard_tensor *x = make_leaf(2), *weight = make_leaf(3);
    MUST(reshard_scope_open(NULL, &scope));
    MUST(reshard_saved_tensor_hooks_push(NULL, &hooks));
    reshard_tensor *y = reshard_mul(x, weight); /* inputs and weights */
    assert_int_equal(r.packs, 2);
    y = reshard_mul(y, y); /* the same tensor twice is packed twice */
    assert_int_equal(r.packs, 4);
    y = reshard_softmax(y, 0); /* an output */
    assert_int_equal(r.packs, 5);
    MUST(reshard_saved_tensor_hooks_pop());
    y = reshard_sum(reshard_mul(y, y)); /* not seen any more */
    assert_int_equal(r.packs, 5);
    assert_int_equal(r.gradients_seen, 0);
    reshard_backward_options retain = {.size = sizeof retain, .retain_graph = 1};
    assert_int_equal(reshard_backward(y, NULL, &retain), RESHARD_OK);
    assert_int_equal(r.unpacks, 5);
    assert_int_equal(r.forgets, 0);
    assert_int_equal(reshard_backward(y, NULL, NULL), RESHARD_OK);
    assert_int_equal(r.unpacks, 10);
    assert_int_equal(r.forgets, 5);
    assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
    assert_int_equal(r.forgets, 5);
    reshard_tensor_release(x);
    reshard_tensor_release(weight);
}

static void test_hooks__innermost_only_and_nothing_without_gradients(void **state)
{
    (void)state;
    record outer = {0}, inner = {0};
    reshard_saved_tensor_hooks first = hooks_of(&outer), second = hooks_of(&inner);
    reshard_scope *scope = NULL;
    reshard_tensor *x = make_leaf(2), *plain = make_zeros(RESHARD_F64, SHAPE(3));
    MUST(reshard_scope_open(NULL, &scope));
    MUST(reshard_saved_tensor_hooks_push(NULL, &first));
    MUST(reshard_saved_tensor_hooks_push(NULL, &second));
    (void)reshard_relu(x);
    assert_int_equal(inner.packs, 1);
    assert_int_equal(outer.packs, 0);
    (void)reshard_set_gradients_enabled(0);
    (void)reshard_relu(x);
    (void)reshard_set_gradients_enabled(1);
    (void)reshard_relu(plain);
    assert_int_equal(inner.packs, 1);
    MUST(reshard_saved_tensor_hooks_pop());
    (void)reshard_relu(x);
    assert_int_equal(outer.packs, 1);
    MUST(reshard_saved_tensor_hooks_pop());
    assert_int_equal(reshard_saved_tensor_hooks_pop(), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
    /* Graphs that are never run forget what was packed too. */
    assert_int_equal(inner.forgets, 1);
    assert_int_equal(outer.forgets, 1);
    reshard_tensor_release(x);
    reshard_tensor_release(plain);
}

static void test_hooks__what_comes_back_must_fit(void **state)
{
    (void)state;
    static const struct {
        int way;
        const char *words;
    } rows[] = {
        {OTHER_SHAPE, "backward of mul: mul: unpack of a saved f64 3 gave f64 1"},
        {OTHER_TYPE, "backward of mul: mul: unpack of a saved f64 3 gave f32 3"},
        {GIVE_NULL, "backward of mul: mul: unpack of a saved tensor gave NULL"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        record r = {.way = rows[i].way};
        reshard_saved_tensor_hooks hooks = hooks_of(&r);
        reshard_scope *scope = NULL;
        reshard_tensor *x = make_leaf(2);
        MUST(reshard_scope_open(NULL, &scope));
        MUST(reshard_saved_tensor_hooks_push(NULL, &hooks));
        reshard_tensor *y = reshard_sum(reshard_mul(x, x));
        assert_int_equal(reshard_backward(y, NULL, NULL), RESHARD_ERR_INVALID);
        assert_string_equal(reshard_error_text(), rows[i].words);
        assert_int_equal(reshard_scope_close(scope), RESHARD_ERR_INVALID);
        assert_int_equal(r.forgets, r.packs);
        reshard_tensor_release(x);
    }
}

static void test_hooks__a_failing_forward_leaves_none_behind(void **state)
{
    (void)state;
    for (int way = WRITE; way <= FAIL; way++) {
        record r = {.way = way};
        reshard_saved_tensor_hooks hooks = hooks_of(&r);
        reshard_scope *scope = NULL;
        reshard_tensor *x = make_leaf(2);
        MUST(reshard_scope_open(NULL, &scope));
        MUST(reshard_saved_tensor_hooks_push(NULL, &hooks));
        assert_null(reshard_relu(reshard_mul(x, x)));
        assert_int_not_equal(reshard_scope_close(scope), RESHARD_OK);
        assert_string_equal(reshard_error_text(),
                            way == WRITE ? "mul: pack of a saved tensor has written to the tensor"
                                         : "mul: pack of a saved tensor: no room");
        assert_int_equal(reshard_saved_tensor_hooks_pop(), RESHARD_ERR_INVALID);
        MUST(reshard_scope_open(NULL, &scope));
        (void)reshard_mul(x, x);
        assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
        assert_int_equal(r.packs, 1);
        assert_int_equal(r.forgets, way == WRITE ? 1 : 0);
        reshard_tensor_release(x);
    }
    record r = {0};
    reshard_saved_tensor_hooks lacking = hooks_of(&r);
    lacking.unpack = NULL;
    assert_int_equal(reshard_saved_tensor_hooks_push(NULL, &lacking), RESHARD_ERR_INVALID);
}

static reshard_status attempt(reshard_context *context, void *user)
{
    record r = {0};
    reshard_saved_tensor_hooks hooks = hooks_of(&r);
    reshard_scope *scope = NULL;
    reshard_tensor *x = user;
    reshard_status status = reshard_scope_open(context, &scope);
    if (status != RESHARD_OK)
        return status;
    status = reshard_saved_tensor_hooks_push(context, &hooks);
    if (status == RESHARD_OK)
        (void)reshard_backward(reshard_sum(reshard_mul(reshard_gelu(x), x)), NULL, NULL);
    reshard_status closed = reshard_scope_close(scope);
    reshard_tensor_clear_gradient(x);
    return status != RESHARD_OK ? status : closed;
}

static void test_hooks__every_failing_allocation(void **state)
{
    (void)state;
    words said = {""};
    reshard_tensor *x = make_leaf(2);
    if (!context_fail_each(attempt, x, &said))
        fail_msg("%s", said.text);
    reshard_tensor_release(x);
}

/* ---- distributed tensors --------------------------------------------------------------------- */

/* Keeps a replicated tensor cut over the ranks, as input_reshard does. */
static reshard_status pack_cut(void *user, reshard_tensor *tensor, void **out_packed)
{
    record *r = user;
    r->packs++;
    if (reshard_tensor_layout(tensor) == NULL)
        return reshard_error_set(RESHARD_ERR_CHECK, "a local tensor was packed");
    reshard_tensor *cut = move_to(tensor, "3: S(0)");
    *out_packed = reshard_tensor_retain(cut);
    return cut != NULL ? RESHARD_OK : RESHARD_ERR_CHECK;
}

static reshard_status unpack_cut(void *user, void *packed, reshard_tensor **out_tensor)
{
    record *r = user;
    r->unpacks++;
    *out_tensor =
        reshard_tensor_retain(move_to(packed, r->way == OTHER_SHAPE ? "3: S(0)" : "3: R"));
    return *out_tensor != NULL ? RESHARD_OK : RESHARD_ERR_CHECK;
}

static reshard_status hook_distributed(void *user, reshard_group *group)
{
    record r = {.way = *(const int *)user};
    reshard_saved_tensor_hooks hooks = {pack_cut, unpack_cut, forget, &r};
    reshard_tensor *x = spread_random(group, "3: R", RESHARD_F64, SHAPE(5, 4), 1);
    reshard_tensor *gradients[2] = {NULL, NULL};
    CHECK(x != NULL);
    TRY(reshard_tensor_set_requires_grad(x, 1));
    for (int hooked = 0; hooked < 2; hooked++) {
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        if (hooked)
            TRY(reshard_saved_tensor_hooks_push(NULL, &hooks));
        reshard_tensor *y = reshard_mul(reshard_gelu(x), reshard_scale(x, 3));
        if (hooked)
            TRY(reshard_saved_tensor_hooks_pop());
        CHECK(y != NULL && r.packs == (hooked ? 4 : 0)); /* gelu 1, scale 1, mul 2 */
        reshard_backward_options retain = {.size = sizeof retain, .retain_graph = 1};
        reshard_tensor *loss = reshard_sum(reshard_tensor_full(y));
        (void)reshard_backward(loss, NULL, &retain);
        if (hooked && r.way == OTHER_SHAPE) {
            CHECK(reshard_scope_close(scope) == RESHARD_ERR_INVALID);
            CHECK(strstr(reshard_error_text(), "gave one of another layout") != NULL);
            break;
        }
        (void)reshard_backward(loss, NULL, NULL);
        TRY(reshard_scope_close(scope));
        gradients[hooked] = whole_of(reshard_tensor_gradient(x));
        reshard_tensor_clear_gradient(x);
    }
    CHECK(r.forgets == r.packs && (r.way == OTHER_SHAPE || r.unpacks == 8));
    CHECK(r.way == OTHER_SHAPE || is_close(gradients[0], gradients[1], 0));
    reshard_tensor_release(gradients[0]);
    reshard_tensor_release(gradients[1]);
    reshard_tensor_release(x);
    return RESHARD_OK;
}

static void test_hooks__see_distributed_tensors(void **state)
{
    (void)state;
    int ways[] = {KEEP, OTHER_SHAPE};
    for (int i = 0; i < 2; i++) {
        run_ranks(3, hook_distributed, &ways[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hooks__once_for_each_slot_and_at_each_access),
        cmocka_unit_test(test_hooks__innermost_only_and_nothing_without_gradients),
        cmocka_unit_test(test_hooks__what_comes_back_must_fit),
        cmocka_unit_test(test_hooks__a_failing_forward_leaves_none_behind),
        cmocka_unit_test(test_hooks__every_failing_allocation),
        cmocka_unit_test(test_hooks__see_distributed_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
