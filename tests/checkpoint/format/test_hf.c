/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face folders: what the index says, and the index that is written. */
#include "checkpoint/convert/target_make.h"
#include "tests/checkpoint/format/format_case.h"

#define INDEX "model.safetensors.index.json"

static void write_parts(void)
{
    format_case_safetensors("a.safetensors",
                            "{" U8("w", "[2,3]", "0", "6") "," U8("extra", "[1]", "6", "7") "}",
                            "abcdefg");
    format_case_safetensors("b", "{" U8("v", "[2]", "0", "2") "}", "yz");
    format_case_safetensors("stale.safetensors", "{" U8("w", "[1]", "0", "1") "}", "!");
}

static void test_hf__index(void **state)
{
    (void)state;
    write_parts();
    format_case_text(INDEX, "{\"metadata\":{\"total_size\":3},"
                            "\"weight_map\":{\"w\":\"a.safetensors\",\"v\":\"b\"}}");
    reshard_checkpoint *checkpoint = format_case_check("", NULL, "hf", "v,w");
    format_case_data(checkpoint, "w", "abcdef", 1, 0);
    format_case_data(checkpoint, "v", "yz", 1, 0);
    assert_string_equal(reshard_checkpoint_note(checkpoint, RESHARD_NOTE, 0),
                        "left out: 1 file that the index does not list (\"stale.safetensors\")");
    assert_string_equal(reshard_checkpoint_note(checkpoint, RESHARD_NOTE, 1),
                        "left out: 1 tensor that the index does not name (\"extra\")");
    reshard_checkpoint_destroy(checkpoint);
    /* By its own name, and that of a variant. */
    reshard_checkpoint_destroy(format_case_check(INDEX, NULL, "hf", "v,w"));
    format_case_text("model.safetensors.index.fp16.json", "{\"weight_map\":{\"v\":\"b\"}}");
    reshard_checkpoint_destroy(format_case_check("", NULL, "hf", "v,w"));
    reshard_checkpoint_destroy(
        format_case_check("model.safetensors.index.fp16.json", NULL, "hf", "v"));
}

static void test_hf__wrong(void **state)
{
    static const struct {
        const char *index;
        reshard_status status;
        const char *words;
    } rows[] = {
        {"{\"weight_map\":{\"w\":\"none\"}}", RESHARD_ERR_NOT_FOUND, "none"},
        {"{\"weight_map\":{\"w\":\"b\"}}", RESHARD_ERR_CORRUPT,
         "says that b holds tensor \"w\", but it does not"},
        {"{\"weight_map\":{\"v\":\"b\",\"v\":\"b\"}}", RESHARD_ERR_SYNTAX,
         "maps tensor \"v\" twice"},
        {"{\"weight_map\":{\"v\":\"../b\"}}", RESHARD_ERR_SYNTAX, "beside the index"},
        {"{\"weight_map\":{\"v\":3}}", RESHARD_ERR_SYNTAX, "names of files only"},
        {"{\"weight_map\":[]}", RESHARD_ERR_SYNTAX, "weight_map is not an object"},
        {"{\"weight_map\":{},\"weight_map\":{}}", RESHARD_ERR_SYNTAX, "occurs twice"},
        {"{}", RESHARD_ERR_SYNTAX, "has no weight_map"},
        {"[]", RESHARD_ERR_SYNTAX, "the index is not an object"},
        {"{\"weight_map\":{\"v\":\"b\"}", RESHARD_ERR_SYNTAX, "ends too early"},
    };
    (void)state;
    write_parts();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        format_case_text(INDEX, rows[i].index);
        format_case_fails("", NULL, rows[i].status, rows[i].words);
    }
}

static void test_hf__written(void **state)
{
    rs_target target;
    reshard_conversion_options options = {
        .size = sizeof options, .format = "hf", .shard_bytes_max = 7};
    (void)state;
    format_case_safetensors("source.safetensors",
                            "{" U8("a", "[3]", "0", "3") "," U8("b", "[2,2]", "3", "7") "," U8(
                                "c", "[1]", "7", "8") "}",
                            "abcdefgh");
    reshard_checkpoint *source = format_case_open("source.safetensors", NULL);
    assert_int_equal(rs_target_init(&target, source, &options), RESHARD_OK);
    format_case_carry_out(&target, source, "out");
    rs_target_release(&target);
    format_case_is_safetensors("out/model-00001-of-00002.safetensors",
                               "{\"__metadata__\":{\"format\":\"pt\"}," U8(
                                   "a", "[3]", "0", "3") "," U8("b", "[2,2]", "3", "7") "}",
                               "abcdefg");
    format_case_is_safetensors(
        "out/model-00002-of-00002.safetensors",
        "{\"__metadata__\":{\"format\":\"pt\"}," U8("c", "[1]", "0", "1") "}", "h");
    reshard_checkpoint *made = format_case_check("out", NULL, "hf", "a,b,c");
    format_case_data(made, "b", "defg", 1, 0);
    assert_null(reshard_checkpoint_note(made, RESHARD_NOTE, 0));
    reshard_checkpoint_destroy(made);
    /* One file needs no index, and is then no Hugging Face folder to look at. */
    options.shard_bytes_max = 0;
    assert_int_equal(rs_target_init(&target, source, &options), RESHARD_OK);
    format_case_carry_out(&target, source, "one");
    rs_target_release(&target);
    reshard_checkpoint_destroy(format_case_check("one", NULL, "safetensors", "a,b,c"));
    reshard_checkpoint_destroy(source);
}

static void test_hf__is_whole(void **state)
{
    rs_target target;
    reshard_conversion_options options = {.size = sizeof options, .format = "hf", .to = "tp=2"};
    (void)state;
    write_parts();
    reshard_checkpoint *source = format_case_open("b", NULL);
    assert_int_equal(rs_target_init(&target, source, &options), RESHARD_ERR_INVALID);
    assert_string_equal(reshard_error_text(),
                        "the format hf holds whole tensors, so it cannot be split over tp=2");
    rs_target_release(&target);
    reshard_checkpoint_destroy(source);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, format_case_begin, format_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_hf__index),
        TEST(test_hf__wrong),
        TEST(test_hf__written),
        TEST(test_hf__is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
