/* SPDX-License-Identifier: Apache-2.0 */
/* A conversion as the API has it: what it tells before it runs, and what a run reports. */
#include "layout/layout.h"
#include "tests/checkpoint/convert/convert_case.h"
#include "tests/support/check.h"
#include "tests/support/info.h"

#include <reshard/comparison.h>

#include <stdio.h>
#include <string.h>

enum { TENSOR_BYTES = 600 * 200 * 4 };

static convert_case files;
static reshard_checkpoint *checkpoint;
static reshard_conversion *conversion;

/* Tensors a to f; a and d are cut by rows, b and e by columns, c and f are replicated. */
static int set_up(void **state)
{
    (void)state;
    if (convert_case_begin(&files) != 0)
        return -1;
    const reshard_conversion_options options = {.size = sizeof options,
                                                .to = "tp=3",
                                                .rules = files.rules,
                                                .format = "rank-files",
                                                .memory_bytes_max = (size_t)3 << 20,
                                                .threads = 2};
    reshard_status status = reshard_checkpoint_open(NULL, files.source, NULL, &checkpoint);
    if (status == RESHARD_OK)
        status = reshard_conversion_create(NULL, checkpoint, &options, &conversion);
    return status == RESHARD_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    reshard_conversion_destroy(conversion);
    reshard_checkpoint_destroy(checkpoint);
    return convert_case_end(&files);
}

static void test_conversion__stats(void **state)
{
    (void)state;
    reshard_conversion_stats stats = {.size = sizeof stats};
    assert_int_equal(reshard_conversion_get_stats(conversion, &stats), RESHARD_OK);
    assert_string_equal(stats.format, "rank-files");
    assert_non_null(strstr(stats.rules, "rules"));
    assert_int_equal(stats.tensor_count, 6);
    assert_int_equal(stats.move_count, 6 * 3);
    assert_int_equal(stats.source_file_count, 1);
    assert_int_equal(stats.target_file_count, 3);
    assert_int_equal(stats.written_file_count, 3);
    assert_int_equal(stats.bytes_read, 6 * TENSOR_BYTES);
    assert_int_equal(stats.bytes_written, (4 + 2 * 3) * TENSOR_BYTES);
    assert_int_equal(stats.memory_bytes, 3 << 20);
    assert_int_equal(stats.threads, 2);
    assert_int_equal(stats.ranks, 1);
    assert_string_equal(reshard_conversion_file_name(conversion, 2),
                        "rank-00002-of-00003.safetensors");
    assert_null(reshard_conversion_file_name(conversion, 3));
    assert_null(reshard_conversion_file_name(conversion, -1));
    uint64_t matrix[3];
    reshard_conversion_get_matrix(conversion, matrix);
    /* A third of a and d; 67, 67 and 66 of 200 columns of b and e; all of c and f. */
    for (int i = 0; i < 3; i++)
        assert_int_equal(matrix[i],
                         2 * TENSOR_BYTES / 3 + 2 * 600 * (i < 2 ? 67 : 66) * 4 + 2 * TENSOR_BYTES);
    assert_int_equal(matrix[0] + matrix[1] + matrix[2], stats.bytes_written);
}

static void test_conversion__tensors(void **state)
{
    (void)state;
    static const struct {
        const char *name, *cut;
        int32_t line;
        int64_t local[2];
    } rows[] = {{"a", "tp=3: S(0)", 1, {200, 200}}, {"b", "tp=3: S(1)", 2, {600, 67}},
                {"c", "tp=3: R", 3, {600, 200}},    {"d", "tp=3: S(0)", 1, {200, 200}},
                {"e", "tp=3: S(1)", 2, {600, 67}},  {"f", "tp=3: R", 3, {600, 200}}};
    reshard_conversion_tensor found = {.size = sizeof found};
    for (int64_t i = 0; i < 6; i++) {
        assert_int_equal(reshard_conversion_get_tensor(conversion, i, &found), RESHARD_OK);
        assert_string_equal(found.name, rows[i].name);
        assert_int_equal(found.name_bytes, 1);
        assert_int_equal(found.source, i);
        assert_int_equal(found.dtype, RESHARD_F32);
        assert_int_equal(found.ndim, 2);
        assert_true(found.shape[0] == 600 && found.shape[1] == 200);
        assert_string_equal(found.cut, rows[i].cut);
        assert_int_equal(found.rule_line, rows[i].line);
        assert_non_null(strstr(found.rule_file, "rules"));
        assert_int_equal(found.local_ndim, 2);
        assert_memory_equal(found.local_shape, rows[i].local, sizeof rows[i].local);
    }
    /* The same without an output. */
    const reshard_conversion_options options = {
        .size = sizeof options, .to = "tp=3", .rules = files.rules};
    reshard_cuts *cuts = NULL;
    assert_int_equal(reshard_cuts_create(checkpoint, &options, &cuts), RESHARD_OK);
    reshard_cuts_info info = {.size = sizeof info};
    assert_int_equal(reshard_cuts_get_info(cuts, &info), RESHARD_OK);
    assert_int_equal(info.tensor_count, 6);
    assert_non_null(strstr(info.rules, "rules"));
    for (int64_t i = 0; i < 6; i++) {
        reshard_conversion_tensor cut = {.size = sizeof cut};
        assert_int_equal(reshard_cuts_get_tensor(cuts, i, &cut), RESHARD_OK);
        assert_string_equal(cut.name, rows[i].name);
        assert_int_equal(cut.source, i);
        assert_string_equal(cut.cut, rows[i].cut);
        assert_int_equal(cut.rule_line, rows[i].line);
        assert_memory_equal(cut.local_shape, rows[i].local, sizeof rows[i].local);
        assert_int_equal(cut.layout->rank_count, 3);
        assert_int_equal(reshard_conversion_get_tensor(conversion, i, &found), RESHARD_OK);
        assert_memory_equal(cut.padded_shape, found.padded_shape, 2 * sizeof(int64_t));
        assert_true(reshard_layout_equals(cut.layout, found.layout));
    }
    assert_int_equal(reshard_cuts_get_tensor(cuts, 6, &found), RESHARD_ERR_RANGE);
    reshard_cuts_destroy(cuts);
    const reshard_conversion_options mapped = {.size = sizeof mapped, .map_text = "a = b"};
    assert_int_equal(reshard_cuts_create(checkpoint, &mapped, &cuts), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_conversion_get_tensor(conversion, 6, &found), RESHARD_ERR_RANGE);
    assert_int_equal(reshard_conversion_get_tensor(conversion, -1, &found), RESHARD_ERR_RANGE);
}

/* One conversion can run several times, to one target after the other. */
static void test_conversion__runs_again(void **state)
{
    (void)state;
    const reshard_conversion_run_options running = {
        .size = sizeof running, .no_sync = 1, .verify = 1};
    reshard_conversion_report report = {.size = sizeof report};
    double seconds = -1;
    assert_int_equal(reshard_conversion_estimate(conversion, files.expected, &running, &seconds),
                     RESHARD_OK);
    assert_true(seconds > 0);
    assert_false(convert_case_exists(files.expected));
    assert_int_equal(reshard_conversion_run(conversion, files.expected, &running, &report),
                     RESHARD_OK);
    /* The kernel reads c and f for each file that it copies them to. */
    assert_int_equal(report.bytes_read, 10 * TENSOR_BYTES);
    assert_int_equal(report.bytes_written, 10 * TENSOR_BYTES);
    assert_int_equal(report.tensors_digested, 6);
    assert_string_equal(report.digest, report.source_digest);
    assert_int_equal(reshard_conversion_run(conversion, files.target, NULL, NULL), RESHARD_OK);
    assert_true(convert_case_is_whole(&files));
    assert_int_equal(reshard_conversion_run(conversion, files.target, NULL, NULL),
                     RESHARD_ERR_INVALID);
    assert_int_equal(reshard_conversion_estimate(conversion, files.target, NULL, &seconds),
                     RESHARD_ERR_INVALID);
    assert_int_equal(reshard_conversion_run(conversion, NULL, NULL, NULL), RESHARD_ERR_INVALID);
}

/* Programs that know shorter structs get what they know, and their memory is left alone. */
static void test_conversion__shorter_structs(void **state)
{
    (void)state;
    struct {
        size_t size;
        const char *format;
        char guard[64];
    } known = {.size = offsetof(reshard_conversion_stats, rules)};
    memset(known.guard, 7, sizeof known.guard);
    assert_int_equal(reshard_conversion_get_stats(conversion, (reshard_conversion_stats *)&known),
                     RESHARD_OK);
    assert_string_equal(known.format, "rank-files");
    for (size_t i = 0; i < sizeof known.guard; i++)
        assert_int_equal(known.guard[i], 7);
    reshard_conversion_report unsized = {.size = 0};
    assert_int_equal(reshard_conversion_run(conversion, files.target, NULL, &unsized),
                     RESHARD_ERR_INVALID);
    assert_false(convert_case_exists(files.target) || convert_case_exists(files.partial));
}

/* A checkpoint that was opened to plan with is planned with, and nothing reads it. */
static void test_conversion__plan_only(void **state)
{
    (void)state;
    const reshard_checkpoint_options opening = {.size = sizeof opening, .plan_only = 1};
    const reshard_conversion_options options = {.size = sizeof options};
    reshard_checkpoint *opened = NULL;
    reshard_conversion *planned = NULL;
    reshard_digests *digests = NULL;
    reshard_hashes *hashes = NULL;
    reshard_comparison *comparison = NULL;
    static char memory[TENSOR_BYTES];
    assert_int_equal(reshard_checkpoint_open(NULL, files.source, &opening, &opened), RESHARD_OK);
    assert_int_equal(info_checkpoint(opened).tensor_count, 6);
    assert_int_equal(reshard_conversion_create(NULL, opened, &options, &planned), RESHARD_OK);
    assert_int_equal(reshard_conversion_run(planned, files.target, NULL, NULL),
                     RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "was opened for planning"));
    assert_int_equal(reshard_checkpoint_read(opened, 0, NULL, memory, sizeof memory),
                     RESHARD_ERR_INVALID);
    assert_int_equal(reshard_checkpoint_digest(opened, NULL, &digests), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_checkpoint_hash(opened, NULL, &hashes), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_checkpoint_compare(checkpoint, opened, NULL, &comparison),
                     RESHARD_ERR_INVALID);
    assert_int_equal(reshard_checkpoint_compare(opened, checkpoint, NULL, &comparison),
                     RESHARD_ERR_INVALID);
    reshard_conversion_destroy(planned);
    reshard_checkpoint_destroy(opened);
}

/* Codes cast without their scales would look equal to an output that lacks them. */
static void test_conversion__compare_refuses_dequantised(void **state)
{
    (void)state;
    const reshard_conversion_options made = {.size = sizeof made, .dequantize = RESHARD_BF16};
    const reshard_comparison_options options = {.size = sizeof options, .conversion = &made};
    reshard_comparison *comparison = NULL;
    assert_int_equal(reshard_checkpoint_compare(checkpoint, checkpoint, &options, &comparison),
                     RESHARD_ERR_UNSUPPORTED);
    assert_non_null(strstr(reshard_error_text(), "dequantised"));
}

/* A map as text: what it makes, where that comes from, and options that contradict each other. */
static void test_conversion__map_text(void **state)
{
    (void)state;
    const char *text = "a [i k], b [i k] = ab [(i + i) k]\n= one [2] f32 fill(1)\n* = *\n";
    reshard_conversion_options options = {.size = sizeof options, .map_text = text, .as = "right"};
    reshard_conversion *made = NULL;
    reshard_conversion_tensor tensor = {.size = sizeof tensor};
    assert_int_equal(reshard_conversion_create(NULL, checkpoint, &options, &made), RESHARD_OK);
    assert_int_equal(reshard_conversion_get_tensor(made, 0, &tensor), RESHARD_OK);
    assert_string_equal(tensor.name, "ab");
    assert_int_equal(tensor.source, 0);
    assert_int_equal(tensor.shape[0], 1200);
    assert_int_equal(tensor.source_count, 2);
    assert_int_equal(tensor.sources[0], 0);
    assert_int_equal(tensor.sources[1], 1);
    assert_string_equal(tensor.map_file, "map");
    assert_int_equal(tensor.map_line, 1);
    assert_int_equal(reshard_conversion_get_tensor(made, 5, &tensor), RESHARD_OK);
    assert_string_equal(tensor.name, "one");
    assert_int_equal(tensor.source, -1);
    assert_int_equal(tensor.source_count, 0);
    assert_int_equal(tensor.map_line, 2);
    reshard_conversion_destroy(made);
    options.map_file = "file.map";
    assert_int_equal(reshard_conversion_create(NULL, checkpoint, &options, &made),
                     RESHARD_ERR_INVALID);
    options.map_file = NULL;
    const reshard_comparison_options comparing = {.size = sizeof comparing, .conversion = &options};
    reshard_comparison *comparison = NULL;
    reshard_comparison_stats stats = {.size = sizeof stats};
    /* Seen as the map names them, the two have other tensors. */
    assert_int_equal(reshard_checkpoint_compare(checkpoint, checkpoint, &comparing, &comparison),
                     RESHARD_OK);
    assert_int_equal(reshard_comparison_get_stats(comparison, &stats), RESHARD_OK);
    assert_true(stats.difference_count > 0);
    reshard_comparison_destroy(comparison);
    options.map_text = NULL;
    assert_int_equal(reshard_checkpoint_compare(checkpoint, checkpoint, &comparing, &comparison),
                     RESHARD_ERR_NOT_FOUND);
    assert_int_equal(reshard_conversion_create(NULL, checkpoint, &options, &made),
                     RESHARD_ERR_NOT_FOUND);
    assert_non_null(strstr(reshard_error_text(), "there is no naming \"right\"; give one of "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_conversion__stats, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_conversion__tensors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_conversion__runs_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_conversion__shorter_structs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_conversion__plan_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_conversion__map_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_conversion__compare_refuses_dequantised, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
