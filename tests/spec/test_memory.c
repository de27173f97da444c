/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation fails once: no leak, no other status than NO_MEMORY. And the limit of a context
 * holds. */
#include "spec/spec.h"
#include "spec_case.h"
#include "tests/support/context.h"
#include "tests/support/info.h"

static void fail_each(context_attempt_fn attempt, void *user)
{
    words said = {""};
    if (!context_fail_each(attempt, user, &said))
        fail_msg("%s", said.text);
}

static reshard_status parse_and_release(reshard_context *context, void *user)
{
    const char *text = user;
    reshard_spec *spec = NULL;
    reshard_status status = reshard_spec_parse(context, text, &spec);
    if (status == RESHARD_OK)
        reshard_spec_release(spec);
    return status;
}

static void test_memory__parsing(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "4: S(0)",
        "a_long_name=2,another=3,and_a_third=4[23,22,21,20,0..19]: S(0)@and_a_third, A(0)@0",
        "4: S(0;1|1,2|2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20)",
        "12[0,2,1,3,5,4,6,8,7,9,11,10]: S(0=1,2,3,4,5,6,7,8,9,10,11,12)",
        "boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]",
        "boxes 9: 0[0:1]+[1:2]+[2:3]+[3:4]+[4:5]+[5:6]+[6:7]+[7:8]+[8:9] 1[0:0]",
        "boxes 6x6: 0[0:1,0:6]@1,0+[1:2,0:6]@0,0 1[0:0,0:0]",
        "cover 9: 0[0:1] 1[0:1] 2[0:1] 3[0:1] 4[0:1] 5[0:1] 6[0:1] 7[0:1] 8[0:1] 9[0:1]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        fail_each(parse_and_release, (void *)(uintptr_t)texts[i]);
}

static reshard_status tell_nothing(void *user, int32_t ndim, const int64_t *shape,
                                   reshard_shard_sink *sink)
{
    (void)user;
    (void)ndim;
    (void)shape;
    (void)sink;
    return RESHARD_OK;
}

static void count_call(void *user)
{
    ++*(int *)user;
}

/* A constructor that fails has not taken what it was given. */
static reshard_status make_callback(reshard_context *context, void *user)
{
    int *forgotten = user;
    int before = *forgotten;
    reshard_spec *spec = NULL;
    reshard_status status =
        reshard_spec_callback(context, 0, tell_nothing, user, count_call, &spec);
    reshard_spec_release(spec);
    if (*forgotten != before + (status == RESHARD_OK))
        return RESHARD_ERR_CHECK;
    return status;
}

static reshard_status make_chunk(reshard_context *context, void *user)
{
    const int32_t ranks[] = {5, 3, 1, 2};
    reshard_spec *spec = NULL;
    (void)user;
    reshard_status status = reshard_spec_chunk(context, 0, 4, ranks, &spec);
    reshard_spec_release(spec);
    return status;
}

static reshard_status make_mesh(reshard_context *context, void *user)
{
    const char *names[] = {"a", "b"};
    const int32_t sizes[] = {2, 2};
    const int32_t ranks[] = {5, 3, 1, 2};
    const int32_t others[] = {5, 3, 2, 1};
    reshard_mesh *mesh = NULL;
    reshard_mesh *other = NULL;
    (void)user;
    reshard_status status = reshard_mesh_create(context, 2, names, sizes, ranks, &mesh);
    if (status == RESHARD_OK)
        status = rs_mesh_with_ranks(mesh, others, &other);
    reshard_mesh_release(mesh);
    reshard_mesh_release(other);
    return status;
}

static void test_memory__constructors(void **state)
{
    (void)state;
    int forgotten = 0;
    fail_each(make_callback, &forgotten);
    fail_each(make_chunk, NULL);
    fail_each(make_mesh, NULL);
}

static void test_memory__limit(void **state)
{
    (void)state;
    static const char text[] = "3000[2999,0..2998]: S(0)";
    reshard_context_options options = {.size = sizeof options, .memory_bytes_max = 16384};
    reshard_context *context = NULL;
    reshard_spec *spec = NULL;
    assert_int_equal(reshard_context_create(&options, &context), RESHARD_OK);
    assert_int_equal(reshard_spec_parse(context, text, &spec), RESHARD_ERR_MEMORY_LIMIT);
    assert_int_equal(info_memory(context).bytes, 0);
    assert_null(spec);
    reshard_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory__parsing),
        cmocka_unit_test(test_memory__constructors),
        cmocka_unit_test(test_memory__limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
