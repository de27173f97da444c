/* SPDX-License-Identifier: Apache-2.0 */
/* Remote devices: the strings that PyTorch takes and prints, and those it refuses. */
#include "spec_case.h"
#include "tests/support/ran.h"

#include <reshard/pytorch.h>

static void test_remote_device__legal(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t rank;
        const char *worker;
        const char *device;
        int32_t index;
        const char *printed;
    } rows[] = {
        {"rank:0/cpu", 0, "", "cpu", -1, "rank:0/cpu"},
        {"rank:0/cuda:0", 0, "", "cuda", 0, "rank:0/cuda:0"},
        {"cuda:0", -1, "", "cuda", 0, "cuda:0"},
        {"rank:0", 0, "", "cpu", -1, "rank:0/cpu"},
        {"rank:0012", 12, "", "cpu", -1, "rank:12/cpu"},
        {"rank:2147483647/cuda:1", 2147483647, "", "cuda", 1, "rank:2147483647/cuda:1"},
        {"trainer/cuda:1", -1, "trainer", "cuda", 1, "trainer/cuda:1"},
        {"trainer", -1, "trainer", "cpu", -1, "trainer/cpu"},
        {"rank", -1, "rank", "cpu", -1, "rank/cpu"},
        {"cpu", -1, "", "cpu", -1, "cpu"},
        {"cpu:0", -1, "", "cpu", 0, "cpu:0"},
        {"cuda", -1, "", "cuda", -1, "cuda"},
        {"cuda:1", -1, "", "cuda", 1, "cuda:1"},
        {"meta", -1, "", "meta", -1, "meta"},
        {"privateuseone:3", -1, "", "privateuseone", 3, "privateuseone:3"},
        {"cpu/cpu", -1, "cpu", "cpu", -1, "cpu/cpu"},
        {"cpu2", -1, "cpu2", "cpu", -1, "cpu2/cpu"},
        {" ", -1, " ", "cpu", -1, " /cpu"},
        {"worker with spaces/mps", -1, "worker with spaces", "mps", -1, "worker with spaces/mps"},
        {"0", -1, "0", "cpu", -1, "0/cpu"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_remote_device device;
        reshard_remote_device again;
        char text[RESHARD_REMOTE_DEVICE_TEXT];
        if (reshard_remote_device_parse(rows[i].text, &device) != RESHARD_OK)
            fail_msg("\"%s\": %s", rows[i].text, reshard_error_text());
        assert_int_equal(device.rank, rows[i].rank);
        assert_string_equal(device.worker, rows[i].worker);
        assert_string_equal(device.device, rows[i].device);
        assert_int_equal(device.device_index, rows[i].index);
        reshard_remote_device_text(&device, text, sizeof text);
        assert_string_equal(text, rows[i].printed);
        assert_int_equal(reshard_remote_device_parse(text, &again), RESHARD_OK);
        assert_int_equal(device.rank, again.rank);
        assert_string_equal(device.worker, again.worker);
        assert_string_equal(device.device, again.device);
        assert_int_equal(device.device_index, again.device_index);
        ran("test_device_placement", "%s", rows[i].text);
    }
}

static void test_remote_device__device_types(void **state)
{
    (void)state;
    static const char *const types[] = {"cpu",    "cuda",  "meta",   "xpu",    "mps",
                                        "hpu",    "xla",   "ipu",    "mkldnn", "opengl",
                                        "opencl", "ideep", "hip",    "ve",     "fpga",
                                        "maia",   "lazy",  "vulkan", "mtia",   "privateuseone"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        reshard_remote_device device;
        char text[64];
        (void)snprintf(text, sizeof text, "w/%s:0", types[i]);
        assert_int_equal(reshard_remote_device_parse(text, &device), RESHARD_OK);
        assert_string_equal(device.device, types[i]);
        assert_int_equal(reshard_remote_device_parse(types[i], &device), RESHARD_OK);
        assert_string_equal(device.worker, "");
    }
}

static void test_remote_device__errors(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        reshard_status status;
        const char *words;
    } rows[] = {
        {NULL, RESHARD_ERR_INVALID, "NULL"},
        /* PyTorch: ValueError. */
        {"", RESHARD_ERR_INVALID, "the owner is empty"},
        {"/", RESHARD_ERR_INVALID, "the owner is empty"},
        {"/cpu", RESHARD_ERR_INVALID, "the owner is empty"},
        {"rank:0/cpu/1", RESHARD_ERR_INVALID, "more than one \"/\""},
        {"//", RESHARD_ERR_INVALID, "more than one \"/\""},
        {"foo:0", RESHARD_ERR_INVALID, "neither rank:N nor a worker name"},
        {"random:0", RESHARD_ERR_INVALID, "neither rank:N"},
        {"rank:foo", RESHARD_ERR_INVALID, "neither rank:N"},
        {"RANK:0", RESHARD_ERR_INVALID, "neither rank:N"},
        {"rank:-1", RESHARD_ERR_INVALID, "neither rank:N"},
        {"rank:+1", RESHARD_ERR_INVALID, "neither rank:N"},
        {"rank: 0", RESHARD_ERR_INVALID, "neither rank:N"},
        {"rank:", RESHARD_ERR_INVALID, "neither rank:N"},
        {"rank:0:1", RESHARD_ERR_INVALID, "neither rank:N"},
        {"a:b:c/cpu", RESHARD_ERR_INVALID, "neither rank:N"},
        {"cuda:foo", RESHARD_ERR_INVALID, "neither rank:N"},
        {"cuda:01", RESHARD_ERR_INVALID, "neither rank:N"},
        {"cuda:", RESHARD_ERR_INVALID, "neither rank:N"},
        {"cuda:9999999999", RESHARD_ERR_INVALID, "neither rank:N"},
        {"rank:\xd9\xa3", RESHARD_ERR_INVALID, "neither rank:N"}, /* an Arabic digit */
        {"rank:\xc2\xb2", RESHARD_ERR_INVALID, "neither rank:N"}, /* a superscript */
        /* PyTorch: RuntimeError of its device parser. */
        {"rank:0/cpu2", RESHARD_ERR_SYNTAX, "\"cpu2\" is not a device"},
        {"rank:0/cuda:foo", RESHARD_ERR_SYNTAX, "\"cuda:foo\" is not a device"},
        {"rank:0/foo", RESHARD_ERR_SYNTAX, "\"foo\" is not a device"},
        {"rank:0/random:0", RESHARD_ERR_SYNTAX, "\"random:0\" is not a device"},
        {"rank:0/", RESHARD_ERR_SYNTAX, "\"\" is not a device"},
        {"w/0", RESHARD_ERR_SYNTAX, "\"0\" is not a device"},
        {"w/cuda:", RESHARD_ERR_SYNTAX, "is not a device"},
        {"w/cuda:-1", RESHARD_ERR_SYNTAX, "is not a device"},
        {"w/cuda:01", RESHARD_ERR_SYNTAX, "is not a device"},
        {"w/cuda:1:2", RESHARD_ERR_SYNTAX, "is not a device"},
        {"w/ cpu", RESHARD_ERR_SYNTAX, "is not a device"},
        {"w/CPU", RESHARD_ERR_SYNTAX, "is not a device"},
        {"w/cuda:2147483648", RESHARD_ERR_SYNTAX, "is not a device"},
        {"foo:0/bar", RESHARD_ERR_SYNTAX, "\"bar\" is not a device"}, /* the device comes first */
        /* Ours. */
        {"rank:2147483648", RESHARD_ERR_RANGE, "beyond 2^31-1"},
        {"rank:99999999999999999999999999/cpu", RESHARD_ERR_RANGE, "beyond 2^31-1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_remote_device device = {.rank = 77};
        reshard_status status = reshard_remote_device_parse(rows[i].text, &device);
        spec_case_expect_failure(rows[i].text != NULL ? rows[i].text : "NULL", status,
                                 rows[i].status, rows[i].words);
        assert_int_equal(device.rank, 77);
        ran("test_device_placement", "%s, refused", rows[i].text);
        ran("test_chunked_sharding_spec", "%s, refused", rows[i].text);
    }
}

static void test_remote_device__worker_length(void **state)
{
    (void)state;
    char text[RESHARD_WORKER_MAX + 32];
    char printed[RESHARD_REMOTE_DEVICE_TEXT];
    reshard_remote_device device;
    memset(text, 'w', sizeof text);
    memcpy(text + RESHARD_WORKER_MAX, "/privateuseone:2147483647", 26);
    assert_int_equal(reshard_remote_device_parse(text, &device), RESHARD_OK);
    reshard_remote_device_text(&device, printed, sizeof printed);
    assert_string_equal(printed, text);
    memset(text, 'w', sizeof text);
    memcpy(text + RESHARD_WORKER_MAX + 1, "/cpu", 5);
    spec_case_expect_failure(text, reshard_remote_device_parse(text, &device), RESHARD_ERR_RANGE,
                             "a worker name of 128 bytes");
}

static void test_remote_device__equality(void **state)
{
    (void)state;
    static const struct {
        const char *a;
        const char *b;
        int equal;
    } rows[] = {
        {"rank:0", "rank:0/cpu", 1}, {"cpu:0", "cpu", 0},
        {"rank:0", "rank:1", 0},     {"rank:0/cpu", "cpu", 0},
        {"w", "w/cpu", 1},           {"w", "v", 0},
        {"w/cuda:1", "w/cuda:2", 0}, {"w/cuda", "w/cpu", 0},
        {"rank:00", "rank:0", 1},    {"rank:1/cuda:0", "rank:1/cuda", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_remote_device a, b;
        assert_int_equal(reshard_remote_device_parse(rows[i].a, &a), RESHARD_OK);
        assert_int_equal(reshard_remote_device_parse(rows[i].b, &b), RESHARD_OK);
        char texts[2][RESHARD_REMOTE_DEVICE_TEXT];
        reshard_remote_device_text(&a, texts[0], sizeof texts[0]);
        reshard_remote_device_text(&b, texts[1], sizeof texts[1]);
        assert_int_equal(strcmp(texts[0], texts[1]) == 0, rows[i].equal);
    }
}

static void test_remote_device__short_buffer(void **state)
{
    (void)state;
    reshard_remote_device device;
    char buffer[8] = "unset";
    assert_int_equal(reshard_remote_device_parse("rank:0/cuda:1", &device), RESHARD_OK);
    reshard_remote_device_text(&device, buffer, 0);
    assert_string_equal(buffer, "unset");
    reshard_remote_device_text(&device, buffer, sizeof buffer);
    assert_string_equal(buffer, "rank:0/");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remote_device__legal),
        cmocka_unit_test(test_remote_device__device_types),
        cmocka_unit_test(test_remote_device__errors),
        cmocka_unit_test(test_remote_device__worker_length),
        cmocka_unit_test(test_remote_device__equality),
        cmocka_unit_test(test_remote_device__short_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
