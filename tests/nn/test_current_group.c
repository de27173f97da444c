/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_current_group.c - NULL as a group, in every public call that takes one: the group of
 * load_with_group, or the default one, serves; without either the call says so and returns. The
 * calls are compared with what the headers declare, so that none is forgotten.
 */
#include "tests/nn/group_calls.h"

#include <dirent.h>

/* Calls for which NULL is no group at all, and those with tests of their own below. */
static const char *const others[] = {
    "reshard_group_retain",      /* gives NULL back */
    "reshard_group_release",     /* does nothing */
    "reshard_group_set_default", /* takes the default group away */
    "reshard_load_with_group",   /* body_nested */
    "reshard_group_break",       /* body_break */
};

static reshard_tensor *make_parameter(reshard_group *group)
{
    reshard_tensor *whole = make_zeros(RESHARD_F64, SHAPE(2, 2)), *made = NULL;
    reshard_scope *scope = NULL;
    MUST(reshard_tensor_set_requires_grad(whole, 1));
    made = distribute(group, "2: S(0)", whole);
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *gradient = make_zeros(RESHARD_F64, SHAPE(2, 2));
    MUST(reshard_tensor_fill(gradient, 1.5));
    MUST(reshard_backward(reshard_tensor_full(made), gradient, NULL));
    MUST(reshard_scope_close(scope));
    reshard_tensor_release(gradient);
    reshard_tensor_release(whole);
    return made;
}

static reshard_value pass_on(reshard_module *module, void *user, reshard_value input)
{
    (void)module;
    (void)user;
    return input;
}

/* Collective over f->current. */
static void set_up(fixture *f)
{
    reshard_layout *from = NULL, *to = NULL;
    reshard_module *layers[4];
    f->rank = reshard_group_rank(f->current);
    f->one = f->rank;
    f->rows = make_spec("2: S(0)");
    f->local = make_zeros(RESHARD_F64, SHAPE(2, 2));
    for (int32_t i = 0; i < 4; i++)
        MUST(reshard_linear_create(NULL, 4, 4, NULL, &layers[i]));
    MUST(reshard_sequential_create(NULL, 4, layers, &f->module));
    for (int32_t i = 0; i < 4; i++)
        reshard_module_release(layers[i]);
    MUST(reshard_sharding_plan_create(NULL, &f->plan));
    MUST(reshard_sharding_plan_add(f->plan, "1.weight", f->rows));
    reshard_module *holder = make_module("holder", pass_on);
    reshard_tensor *parameter = make_parameter(f->current);
    reshard_sgd_options sgd = {.size = sizeof sgd, .learning_rate = 1};
    MUST(reshard_module_add_parameter(holder, "x", parameter));
    MUST(reshard_sgd_create(NULL, holder, &sgd, &f->optimizer));
    reshard_tensor_release(parameter);
    reshard_module_release(holder);
    MUST(reshard_layout_parse(NULL, "2: S(0)", 2, (int64_t[]){4, 4}, &from));
    MUST(reshard_layout_parse(NULL, "2: S(1)", 2, (int64_t[]){4, 4}, &to));
    MUST(reshard_plan_create_simple(NULL, from, to, RESHARD_F64, NULL, &f->move));
    reshard_layout_release(from);
    reshard_layout_release(to);
}

static void tear_down(fixture *f)
{
    reshard_plan_release(f->move);
    reshard_optimizer_destroy(f->optimizer);
    reshard_sharding_plan_destroy(f->plan);
    reshard_module_release(f->module);
    reshard_tensor_release(f->local);
    reshard_spec_release(f->rows);
}

/* A scope for each call, as one that fails spoils its own. */
static reshard_status make_call(fixture *f, int32_t i)
{
    MUST(reshard_scope_open(NULL, &f->scope));
    reshard_status status = calls[i].call(f);
    (void)reshard_scope_close(f->scope);
    return status;
}

/* All calls succeed on the current group. */
static reshard_status call_all(void *user)
{
    fixture *f = user;
    for (int32_t i = 0; i < CALLS; i++) {
        reshard_status status = make_call(f, i);
        if (status != RESHARD_OK)
            return ranks_say(__FILE__, __LINE__, calls[i].name, status);
    }
    return RESHARD_OK;
}

/* Without one, all but the trace say what is missing. */
static reshard_status call_none(fixture *f)
{
    for (int32_t i = 0; i < CALLS; i++) {
        bool alone = calls[i].call == call_trace_create;
        (void)reshard_error_set(RESHARD_OK, "");
        reshard_status status = make_call(f, i);
        if (alone ? status != RESHARD_OK
                  : status != RESHARD_ERR_INVALID ||
                        strstr(reshard_error_text(), "no group is given") == NULL)
            return ranks_say(__FILE__, __LINE__, calls[i].name, RESHARD_ERR_CHECK);
    }
    CHECK(reshard_group_agree(NULL, reshard_error_set(RESHARD_ERR_IO, "mine")) == RESHARD_ERR_IO);
    CHECK(strcmp(reshard_error_text(), "mine") == 0);
    reshard_group_break(NULL, "nobody hears this");
    reshard_group_free(NULL, f);
    CHECK(reshard_load_with_group(NULL, call_all, f) == RESHARD_ERR_INVALID);
    return RESHARD_OK;
}

static reshard_status body_calls(void *user, reshard_group *group)
{
    (void)user;
    int32_t members[] = {2, 0};
    fixture f = {.round = "loading"};
    TRY(reshard_group_subset(group, 2, members, &f.current));
    if (f.current == NULL)
        return RESHARD_OK;
    set_up(&f);
    reshard_named_tensor named = {"x", f.local};
    TRY(reshard_checkpoint_save_tensors(NULL, f.current, checkpoint_path(&f, "first"), 1, &named,
                                        NULL));
    if (f.rank == 0) {
        char shared[96];
        (void)snprintf(shared, sizeof shared, "%s/shared", folder);
        CHECK(rename(checkpoint_path(&f, "first"), shared) == 0);
    }
    TRY(reshard_group_barrier(f.current));
    f.round = "none";
    TRY(call_none(&f));
    f.round = "loading";
    TRY(reshard_load_with_group(f.current, call_all, &f));
    CHECK(reshard_current_group() == NULL);
    tear_down(&f);
    set_up(&f);
    f.round = "default";
    reshard_group_set_default(f.current);
    TRY(call_all(&f));
    reshard_group_set_default(NULL);
    tear_down(&f);
    reshard_group_release(f.current);
    return RESHARD_OK;
}

static void test_current_group__every_call(void **state)
{
    (void)state;
    run_ranks(3, body_calls, NULL);
}

/* ---- the two that are different -------------------------------------------------------------- */

static reshard_status ask_size(void *user)
{
    CHECK(reshard_group_size(NULL) == 2 && reshard_current_group() == user);
    CHECK(reshard_load_with_group(NULL, ask_size, user) == RESHARD_ERR_INVALID); /* nested */
    return RESHARD_OK;
}

static reshard_status body_nested(void *user, reshard_group *group)
{
    (void)user;
    CHECK(reshard_load_with_group(NULL, ask_size, group) == RESHARD_ERR_INVALID);
    reshard_group_set_default(group);
    TRY(reshard_load_with_group(NULL, ask_size, group));
    reshard_group_set_default(NULL);
    return RESHARD_OK;
}

static void test_current_group__of_load_with_group(void **state)
{
    (void)state;
    run_ranks(2, body_nested, NULL);
}

static reshard_status body_break(void *user, reshard_group *group)
{
    (void)user;
    reshard_group_set_default(group);
    reshard_group_break(NULL, "on purpose");
    CHECK(reshard_group_barrier(group) == RESHARD_ERR_GROUP_BROKEN);
    return RESHARD_OK;
}

static void test_current_group__broken(void **state)
{
    (void)state;
    assert_int_equal(reshard_group_run(NULL, 2, body_break, NULL), RESHARD_ERR_GROUP_BROKEN);
    assert_non_null(strstr(reshard_error_text(), "on purpose"));
}

/* ---- no call is forgotten -------------------------------------------------------------------- */

static bool is_covered(const char *name)
{
    for (int32_t i = 0; i < CALLS; i++) {
        if (strcmp(calls[i].name, name) == 0 ||
            (calls[i].also != NULL && strcmp(calls[i].also, name) == 0))
            return true;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(others[i], name) == 0)
            return true;
    }
    return false;
}

/* Looks at one declaration, which ends before `end`; returns whether it takes a group. */
static bool look_at(char *declaration, char *end)
{
    *end = '\0';
    char *open = strchr(declaration, '(');
    char *taken = open != NULL ? strstr(open, "reshard_group *") : NULL;
    while (taken != NULL && taken[strlen("reshard_group *")] == '*') /* gives one */
        taken = strstr(taken + 1, "reshard_group *");
    if (taken == NULL)
        return false;
    *open = '\0';
    char *name = open;
    while (name > declaration && name[-1] != ' ' && name[-1] != '*' && name[-1] != '\n')
        name--;
    if (!is_covered(name))
        fail_msg("%s takes a group, and no test calls it without one", name);
    return true;
}

/* Counts the calls of a header that take a group. */
static int32_t look_through(const char *path)
{
    static char text[1 << 16];
    int32_t found = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t length = fread(text, 1, sizeof text - 1, file);
    assert_true(length > 0 && length < sizeof text - 1);
    (void)fclose(file);
    text[length] = '\0';
    for (char *at = strstr(text, "RESHARD_API "), *end; at != NULL;
         at = strstr(end + 1, "RESHARD_API ")) {
        end = strchr(at, ';');
        assert_non_null(end);
        found += look_at(at, end);
    }
    return found;
}

static void test_current_group__all_calls_of_the_headers(void **state)
{
    (void)state;
    int32_t found = 0, expected = (int32_t)(sizeof others / sizeof *others);
    DIR *headers = opendir(RESHARD_TEST_HEADERS);
    assert_non_null(headers);
    for (struct dirent *entry = readdir(headers); entry != NULL; entry = readdir(headers)) {
        char path[1024];
        size_t length = strlen(entry->d_name);
        (void)snprintf(path, sizeof path, "%s/%s", RESHARD_TEST_HEADERS, entry->d_name);
        if (length > 2 && strcmp(entry->d_name + length - 2, ".h") == 0)
            found += look_through(path);
    }
    (void)closedir(headers);
    for (int32_t i = 0; i < CALLS; i++)
        expected += calls[i].also != NULL ? 2 : 1;
    assert_int_equal(found, expected); /* nor is a call listed that no header has */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_current_group__every_call),
        cmocka_unit_test(test_current_group__of_load_with_group),
        cmocka_unit_test(test_current_group__broken),
        cmocka_unit_test(test_current_group__all_calls_of_the_headers),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
