/* SPDX-License-Identifier: Apache-2.0 */
/* test_module.c - modules without layers: names, paths, ties, state dicts, hooks and their
 * order. */
#include "tests/oracle/state_order.h"
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/tensor/values.h"

#include <string.h>

/* ---- a module that says what happens --------------------------------------------------------- */

static char story[256];

static void tell(const char *what)
{
    (void)strncat(story, what, sizeof story - strlen(story) - 1);
    (void)strncat(story, " ", sizeof story - strlen(story) - 1);
}

static reshard_value forward_scale(reshard_module *module, void *user, reshard_value input)
{
    (void)module;
    tell("forward");
    return reshard_value_of(reshard_scale(reshard_value_tensor(input), *(const double *)user));
}

static double two = 2;

static reshard_module *make_scale(void)
{
    reshard_module *module = NULL;
    reshard_module_kind kind = {.name = "scale", .forward = forward_scale, .user = &two};
    MUST(reshard_module_create(NULL, &kind, &module));
    story[0] = 0;
    return module;
}

static reshard_tensor *make_value(double value)
{
    reshard_tensor *x = make_zeros(RESHARD_F64, SHAPE(2));
    MUST(reshard_tensor_fill(x, value));
    return x;
}

static double call(reshard_module *module, double value, reshard_status *out_status)
{
    reshard_scope *scope = NULL;
    reshard_tensor *x = make_value(value);
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_module_forward(module, x);
    double result = y != NULL ? element(y, 0) : -1;
    *out_status = reshard_scope_close(scope);
    reshard_tensor_release(x);
    return result;
}

/* ---- names ----------------------------------------------------------------------------------- */

static void test_names__refused(void **state)
{
    (void)state;
    reshard_module *a = make_scale(), *b = make_scale();
    reshard_tensor *x = make_value(1);
    assert_int_equal(reshard_module_add_parameter(a, "", x), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_module_add_parameter(a, "a.b", x), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "a.b"));
    MUST(reshard_module_add_parameter(a, "x", x));
    assert_int_equal(reshard_module_add_buffer(a, "x", x, 0), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_module_add_child(a, "x", b), RESHARD_ERR_INVALID);
    MUST(reshard_module_add_child(a, "b", b));
    assert_int_equal(reshard_module_add_child(b, "a", a), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_module_add_child(a, "self", a), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_module_add_child(a, "none", NULL), RESHARD_ERR_INVALID);
    reshard_module_release(a);
    reshard_module_release(b);
    reshard_tensor_release(x);
}

/* root: w, a: { w (the root's), bias (nothing), b: { w, mean (buffer), scratch (transient) } } */
static reshard_module *make_tree(void)
{
    reshard_module *root = make_scale(), *a = make_scale(), *b = make_scale();
    reshard_tensor *w = make_value(1), *v = make_value(2), *mean = make_value(3);
    MUST(reshard_tensor_set_requires_grad(w, 1));
    MUST(reshard_module_add_child(root, "a", a));
    MUST(reshard_module_add_parameter(root, "w", w));
    MUST(reshard_module_add_parameter(a, "w", w));
    MUST(reshard_module_add_parameter(a, "bias", NULL));
    MUST(reshard_module_add_child(a, "b", b));
    MUST(reshard_module_add_parameter(b, "w", v));
    MUST(reshard_module_add_buffer(b, "mean", mean, 0));
    MUST(reshard_module_add_buffer(b, "scratch", mean, 1));
    reshard_module_release(a);
    reshard_module_release(b);
    reshard_tensor_release(w);
    reshard_tensor_release(v);
    reshard_tensor_release(mean);
    return root;
}

static void test_find__by_path(void **state)
{
    (void)state;
    reshard_module *root = make_tree(), *found = NULL;
    reshard_tensor *x = NULL;
    MUST(reshard_module_find(root, "", &found));
    assert_ptr_equal(found, root);
    MUST(reshard_module_find(root, "a.b", &found));
    const char *name = NULL;
    assert_ptr_equal(found, reshard_module_child(reshard_module_child(root, 0, NULL), 0, &name));
    assert_string_equal(name, "b");
    assert_ptr_equal(found, reshard_module_child(reshard_module_child(root, 0, NULL), 0, NULL));
    MUST(reshard_module_find_tensor(root, "a.b.w", &x));
    assert_true(element(x, 0) == 2);
    MUST(reshard_module_find_tensor(root, "a.b.mean", &x));
    static const char *const wrong[] = {"c", "a.c", "a.b.w.x", "a.w", ".", "a.", ".a", "a..b"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(reshard_module_find(root, wrong[i], &found), RESHARD_ERR_NOT_FOUND);
        assert_non_null(strstr(reshard_error_text(), wrong[i]));
    }
    assert_int_equal(reshard_module_replace_parameter(root, "a.b.mean", x), RESHARD_ERR_NOT_FOUND);
    assert_int_equal(reshard_module_find_tensor(root, "a.b", &x), RESHARD_ERR_NOT_FOUND);
    reshard_module_release(root);
}

static void check_names(reshard_named_tensors *list, const char *expected)
{
    char names[256] = "";
    for (int64_t i = 0; i < list->count; i++) {
        (void)strcat(strcat(names, list->items[i].name), " ");
        assert_non_null(list->items[i].tensor);
    }
    assert_string_equal(names, expected);
    reshard_named_tensors_destroy(list);
}

static void test_lists__ties_and_transients(void **state)
{
    (void)state;
    reshard_module *root = make_tree();
    reshard_named_tensors *list = NULL;
    MUST(reshard_module_parameters(root, &list));
    check_names(list, "w a.b.w ");
    MUST(reshard_module_buffers(root, &list));
    check_names(list, "a.b.mean ");
    MUST(reshard_module_state_dict(root, &list));
    check_names(list, "w a.w a.b.w a.b.mean ");
    reshard_module_release(root);
}

/* A module like those of state_order.py: children come before, between and after own tensors. */
static reshard_module *make_mixed(reshard_module *first, const char *first_name,
                                  reshard_module *second, const char *second_name)
{
    reshard_module *module = make_scale();
    reshard_tensor *x[5];
    for (int i = 0; i < 5; i++)
        x[i] = make_value(i);
    if (first != NULL)
        MUST(reshard_module_add_child(module, first_name, first));
    MUST(reshard_module_add_buffer(module, "mean", x[0], 0));
    MUST(reshard_module_add_parameter(module, "w", x[1]));
    MUST(reshard_module_add_parameter(module, "bias", NULL));
    if (second != NULL)
        MUST(reshard_module_add_child(module, second_name, second));
    MUST(reshard_module_add_buffer(module, "cache", x[2], 1));
    MUST(reshard_module_add_buffer(module, "count", x[3], 0));
    MUST(reshard_module_add_parameter(module, "v", x[4]));
    for (int i = 0; i < 5; i++)
        reshard_tensor_release(x[i]);
    reshard_module_release(first);
    reshard_module_release(second);
    return module;
}

/* PyTorch's own order, which state_order.py asked it for. */
static void test_lists__order_of_pytorch(void **state)
{
    (void)state;
    reshard_module *z = make_mixed(make_mixed(NULL, NULL, NULL, NULL), "y", NULL, NULL);
    reshard_module *root = make_mixed(z, "z", make_mixed(NULL, NULL, NULL, NULL), "a");
    reshard_tensor *w = NULL;
    reshard_named_tensors *list = NULL;
    MUST(reshard_module_find_tensor(root, "w", &w));
    MUST(reshard_module_replace_parameter(root, "a.w", w));
    MUST(reshard_module_state_dict(root, &list));
    check_names(list, oracle_state);
    MUST(reshard_module_parameters(root, &list));
    check_names(list, oracle_parameters);
    MUST(reshard_module_buffers(root, &list));
    check_names(list, oracle_buffers);
    reshard_module_release(root);
}

static void test_replace__keeps_ties(void **state)
{
    (void)state;
    reshard_module *root = make_tree(), *other = make_scale();
    reshard_tensor *x = make_value(9), *found = NULL;
    MUST(reshard_module_replace_parameter(root, "a.w", x));
    MUST(reshard_module_find_tensor(root, "w", &found));
    assert_ptr_equal(found, x);
    MUST(reshard_module_find_tensor(root, "a.w", &found));
    assert_ptr_equal(found, x);
    MUST(reshard_module_find_tensor(root, "a.b.w", &found));
    assert_ptr_not_equal(found, x);
    MUST(reshard_module_replace_parameter(root, "a.bias", x));
    MUST(reshard_module_find_tensor(root, "a.bias", &found));
    assert_ptr_equal(found, x);
    assert_int_equal(reshard_module_replace_parameter(root, "a.b.mean", x), RESHARD_ERR_NOT_FOUND);

    MUST(reshard_module_replace_child(root, "a.b", other));
    assert_ptr_equal(reshard_module_child(reshard_module_child(root, 0, NULL), 0, NULL), other);
    assert_int_equal(reshard_module_replace_child(root, "", other), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_module_replace_child(root, "a.w", other), RESHARD_ERR_NOT_FOUND);
    assert_int_equal(reshard_module_replace_child(root, "a", root), RESHARD_ERR_INVALID);
    reshard_module *parent = reshard_module_child(root, 0, NULL);
    assert_int_equal(reshard_module_replace_child(root, "a.b", parent), RESHARD_ERR_INVALID);
    assert_ptr_equal(reshard_module_child(parent, 0, NULL), other);
    reshard_module_release(root);
    reshard_module_release(other);
    reshard_tensor_release(x);
}

/* ---- state dicts ----------------------------------------------------------------------------- */

static void test_load__all_or_nothing(void **state)
{
    (void)state;
    reshard_module *source = make_tree(), *target = make_tree();
    reshard_named_tensors *list = NULL;
    reshard_tensor *x = NULL, *wrong = make_zeros(RESHARD_F64, SHAPE(3));
    MUST(reshard_module_find_tensor(source, "a.b.w", &x));
    MUST(reshard_tensor_fill(x, 20));
    MUST(reshard_module_find_tensor(source, "w", &x));
    MUST(reshard_tensor_fill(x, 10));
    MUST(reshard_module_state_dict(source, &list));

    reshard_named_tensor items[5];
    memcpy(items, list->items, 4 * sizeof *items);
    items[3].tensor = wrong; /* the last one: the others must not have been written */
    assert_int_equal(reshard_module_load_state_dict(target, 4, items, NULL), RESHARD_ERR_INVALID);
    assert_non_null(
        strstr(reshard_error_text(), "\"a.b.mean\" is f64 2, and f64 3 in what is loaded"));
    MUST(reshard_module_find_tensor(target, "w", &x));
    assert_true(element(x, 0) == 1);

    reshard_tensor *narrow = make_zeros(RESHARD_F32, SHAPE(2)); /* the shape alone is right */
    items[3].tensor = narrow;
    assert_int_equal(reshard_module_load_state_dict(target, 4, items, NULL), RESHARD_ERR_INVALID);
    assert_non_null(
        strstr(reshard_error_text(), "\"a.b.mean\" is f64 2, and f32 2 in what is loaded"));
    assert_true(element(x, 0) == 1);
    reshard_tensor_release(narrow);

    assert_int_equal(reshard_module_load_state_dict(target, 3, list->items, NULL),
                     RESHARD_ERR_NOT_FOUND);
    assert_non_null(strstr(reshard_error_text(), "\"a.b.mean\" is missing"));
    memcpy(items, list->items, 4 * sizeof *items);
    items[4] = (reshard_named_tensor){"a.c", wrong};
    assert_int_equal(reshard_module_load_state_dict(target, 5, items, NULL), RESHARD_ERR_NOT_FOUND);
    assert_non_null(strstr(reshard_error_text(), "\"a.c\" is unexpected"));
    assert_true(element(x, 0) == 1);

    items[4] = (reshard_named_tensor){"w", wrong};
    assert_int_equal(reshard_module_load_state_dict(target, 5, items, NULL), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "\"w\" is there twice in what is loaded"));
    items[4].name = NULL;
    assert_int_equal(reshard_module_load_state_dict(target, 5, items, NULL), RESHARD_ERR_INVALID);
    assert_string_equal(reshard_error_text(), "load: entry 4 of what is loaded has no name");
    assert_int_equal(reshard_module_load_state_dict(target, -1, items, NULL), RESHARD_ERR_RANGE);
    assert_true(element(x, 0) == 1);
    items[4] = (reshard_named_tensor){"a.c", wrong};

    reshard_load_options lax = {.size = sizeof lax, .allow_missing = 1, .allow_unexpected = 1};
    MUST(reshard_module_load_state_dict(target, 2, items + 3, &lax));
    assert_true(element(x, 0) == 1);
    MUST(reshard_module_load_state_dict(target, 4, items, NULL));
    assert_true(element(x, 0) == 10);
    MUST(reshard_module_find_tensor(target, "a.b.w", &x));
    assert_true(element(x, 1) == 20);
    MUST(reshard_module_load_state_dict(source, 4, list->items, NULL)); /* from itself */
    reshard_named_tensors_destroy(list);
    reshard_module_release(source);
    reshard_module_release(target);
    reshard_tensor_release(wrong);
}

/* ---- hooks ----------------------------------------------------------------------------------- */

typedef struct hook {
    const char *name;
    double add; /* to what it sees; 0: leaves it alone */
    reshard_status status;
    reshard_hook *remove; /* another one, when it runs */
    reshard_module *grow; /* gets another hook when it runs */
    int forgotten, failed_seen;
} hook;

static reshard_tensor *plus(reshard_tensor *x, double add)
{
    reshard_tensor *y = make_value(add);
    reshard_tensor *sum = reshard_add(x, y);
    reshard_tensor_release(y);
    return sum;
}

static reshard_status act(hook *h)
{
    tell(h->name);
    reshard_hook_remove(h->remove);
    h->remove = NULL;
    return h->status != RESHARD_OK ? reshard_error_set(h->status, h->name) : RESHARD_OK;
}

static reshard_status pre(void *user, reshard_module *module, reshard_value *input)
{
    hook *h = user;
    (void)module;
    if (h->add != 0)
        *input = reshard_value_of(plus(reshard_value_tensor(*input), h->add));
    return act(h);
}

static reshard_status post(void *user, reshard_module *module, reshard_value input,
                           reshard_value *output)
{
    hook *h = user;
    (void)module;
    (void)input;
    h->failed_seen += output->kind == RESHARD_VALUE_FAILED;
    if (h->add != 0 && output->kind == RESHARD_VALUE_TENSOR)
        *output = reshard_value_of(plus(output->tensor, h->add));
    if (h->grow != NULL) {
        static hook grown = {.name = "grown"};
        MUST(reshard_module_add_forward_hook(h->grow, post, &grown, NULL, NULL));
        h->grow = NULL;
    }
    return act(h);
}

static void forget(void *user)
{
    ((hook *)user)->forgotten++;
}

static void test_hooks__order_and_replacement(void **state)
{
    (void)state;
    reshard_module *module = make_scale();
    reshard_status status;
    hook a = {.name = "a", .add = 1}, b = {.name = "b"}, first = {.name = "first", .add = 10};
    hook c = {.name = "c", .add = 100}, d = {.name = "d", .add = 0.5};
    reshard_hook_options prepend = {.size = sizeof prepend, .prepend = 1};
    MUST(reshard_module_add_forward_pre_hook(module, pre, &a, NULL, NULL));
    MUST(reshard_module_add_forward_pre_hook(module, pre, &b, NULL, NULL));
    MUST(reshard_module_add_forward_pre_hook(module, pre, &first, &prepend, NULL));
    MUST(reshard_module_add_forward_hook(module, post, &c, NULL, NULL));
    MUST(reshard_module_add_forward_hook(module, post, &d, NULL, NULL));
    double y = call(module, 3, &status);
    assert_int_equal(status, RESHARD_OK);
    assert_string_equal(story, "first a b forward c d ");
    assert_true(y == (3 + 10 + 1) * 2 + 100 + 0.5);
    reshard_module_release(module);
}

static void test_hooks__removal(void **state)
{
    (void)state;
    reshard_module *module = make_scale();
    reshard_status status;
    hook a = {.name = "a"}, b = {.name = "b"}, c = {.name = "c"};
    reshard_hook *handle_a = NULL, *handle_b = NULL, *handle_c = NULL;
    reshard_hook_options tells = {.size = sizeof tells, .forget = forget};
    MUST(reshard_module_add_forward_hook(module, post, &a, &tells, &handle_a));
    MUST(reshard_module_add_forward_hook(module, post, &b, &tells, &handle_b));
    MUST(reshard_module_add_forward_hook(module, post, &c, &tells, &handle_c));
    a.remove = handle_b; /* in the midst of a call: it does not run any more */
    (void)call(module, 1, &status);
    assert_string_equal(story, "forward a c ");
    assert_int_equal(b.forgotten, 1);
    story[0] = 0;
    a.grow = module;     /* runs from the next call on */
    a.remove = handle_a; /* itself */
    (void)call(module, 1, &status);
    assert_string_equal(story, "forward a c ");
    assert_int_equal(a.forgotten, 1);
    story[0] = 0;
    (void)call(module, 1, &status);
    assert_string_equal(story, "forward c grown ");
    reshard_module_release(module);
    assert_int_equal(c.forgotten, 0); /* the handle holds it */
    reshard_hook_remove(handle_c);
    assert_int_equal(c.forgotten, 1);
    reshard_hook_remove(NULL);
}

static void test_hooks__always_run(void **state)
{
    (void)state;
    /* who fails: a pre-hook, forward, a forward hook */
    static const struct {
        const char *name;
        reshard_status pre, post;
        double factor;
        const char *story;
    } rows[] = {
        {"none", RESHARD_OK, RESHARD_OK, 2, "pre forward early plain late "},
        {"pre-hook", RESHARD_ERR_IO, RESHARD_OK, 2, "pre early late "},
        {"forward", RESHARD_OK, RESHARD_OK, 0, "pre forward early late "},
        {"forward hook", RESHARD_OK, RESHARD_ERR_IO, 2, "pre forward early plain late "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_module *module = make_scale();
        reshard_status status;
        hook p = {.name = "pre", .status = rows[i].pre};
        hook early = {.name = "early"}, late = {.name = "late"};
        hook plain = {.name = "plain", .status = rows[i].post};
        reshard_hook_options always = {.size = sizeof always, .always = 1};
        MUST(reshard_module_add_forward_pre_hook(module, pre, &p, NULL, NULL));
        MUST(reshard_module_add_forward_hook(module, post, &early, &always, NULL));
        MUST(reshard_module_add_forward_hook(module, post, &plain, NULL, NULL));
        MUST(reshard_module_add_forward_hook(module, post, &late, &always, NULL));
        if (rows[i].factor == 0) { /* forward fails: it wants a tensor */
            reshard_scope *scope = NULL;
            MUST(reshard_scope_open(NULL, &scope));
            reshard_value nothing = reshard_module_call(module, (reshard_value){0});
            assert_int_equal(nothing.kind, RESHARD_VALUE_FAILED);
            status = reshard_scope_close(scope);
            assert_int_equal(status, RESHARD_ERR_INVALID);
        } else {
            (void)call(module, 1, &status);
        }
        assert_string_equal(story, rows[i].story);
        assert_int_equal(late.failed_seen, i != 0);
        assert_int_equal(early.failed_seen, i == 1 || i == 2);
        assert_int_equal(status != RESHARD_OK, i != 0);
        reshard_module_release(module);
    }
}

/* Calls its own child, which is called with a smaller number, down to 0. */
static reshard_value forward_again(reshard_module *module, void *user, reshard_value input)
{
    int *depth = user;
    tell("down");
    reshard_value value = input;
    if ((*depth)-- > 0)
        value = reshard_module_call(module, value);
    return reshard_value_of(plus(reshard_value_tensor(value), 1));
}

static void test_call__again_from_within(void **state)
{
    (void)state;
    int depth = 2;
    reshard_status status;
    reshard_module *module = NULL;
    reshard_module_kind kind = {.name = "again", .forward = forward_again, .user = &depth};
    hook h = {.name = "up"};
    MUST(reshard_module_create(NULL, &kind, &module));
    MUST(reshard_module_add_forward_hook(module, post, &h, NULL, NULL));
    story[0] = 0;
    assert_true(call(module, 1, &status) == 4);
    assert_string_equal(story, "down down down up up up ");
    reshard_module_release(module);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void test_values__lists(void **state)
{
    (void)state;
    reshard_scope *scope = NULL;
    reshard_tensor *x = make_value(7);
    MUST(reshard_scope_open(NULL, &scope));
    reshard_value items[] = {reshard_value_of(x), (reshard_value){0}};
    reshard_value inner = reshard_value_list(2, items);
    reshard_value outer = reshard_value_list(1, &inner);
    items[0] = (reshard_value){0}; /* they were copied */
    reshard_value found = reshard_value_item(reshard_value_item(outer, 0), 0);
    assert_ptr_equal(reshard_value_tensor(found), x);
    assert_int_equal(reshard_value_list(0, NULL).kind, RESHARD_VALUE_LIST);
    assert_int_equal(reshard_scope_status(scope), RESHARD_OK);
    assert_int_equal(reshard_value_item(outer, 1).kind, RESHARD_VALUE_FAILED);
    assert_int_equal(reshard_scope_close(scope), RESHARD_ERR_RANGE);
    assert_non_null(strstr(reshard_error_text(), "item 1 of a list of 1"));
    assert_int_equal(reshard_value_list(0, NULL).kind, RESHARD_VALUE_FAILED); /* no scope */
    assert_int_equal(reshard_value_of(NULL).kind, RESHARD_VALUE_FAILED);
    reshard_tensor_release(x);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static reshard_status attempt(reshard_context *context, void *user)
{
    reshard_module *gpt = NULL;
    reshard_named_tensors *list = NULL;
    reshard_hook *hook_handle = NULL;
    hook h = {.name = "h"};
    reshard_gpt_options options = {.size = sizeof options,
                                   .vocabulary = 3,
                                   .length = 2,
                                   .width = 2,
                                   .heads = 1,
                                   .layers = 1,
                                   .dtype = RESHARD_F32};
    (void)user;
    reshard_status status = reshard_gpt_create(context, &options, &gpt);
    if (status == RESHARD_OK)
        status = reshard_module_add_forward_hook(gpt, post, &h, NULL, &hook_handle);
    if (status == RESHARD_OK)
        status = reshard_module_state_dict(gpt, &list);
    if (status == RESHARD_OK)
        status = reshard_module_load_state_dict(gpt, list->count, list->items, NULL);
    reshard_named_tensors_destroy(list);
    reshard_hook_remove(hook_handle);
    reshard_module_release(gpt);
    return status;
}

static void test_memory__every_allocation_fails(void **state)
{
    (void)state;
    words said = {""};
    if (!context_fail_each(attempt, NULL, &said))
        fail_msg("%s", said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names__refused),
        cmocka_unit_test(test_find__by_path),
        cmocka_unit_test(test_lists__ties_and_transients),
        cmocka_unit_test(test_lists__order_of_pytorch),
        cmocka_unit_test(test_replace__keeps_ties),
        cmocka_unit_test(test_load__all_or_nothing),
        cmocka_unit_test(test_hooks__order_and_replacement),
        cmocka_unit_test(test_hooks__removal),
        cmocka_unit_test(test_hooks__always_run),
        cmocka_unit_test(test_call__again_from_within),
        cmocka_unit_test(test_values__lists),
        cmocka_unit_test(test_memory__every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
