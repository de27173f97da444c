/* SPDX-License-Identifier: Apache-2.0 */
/* Plain files of ranks: local shapes, which a mesh and rules put together. */
#include "checkpoint/convert/target_make.h"
#include "tests/checkpoint/format/format_case.h"

#include <stdio.h>
#include <string.h>

static reshard_checkpoint_options opening(const char *from)
{
    static char rules[256];
    (void)snprintf(rules, sizeof rules, "%s/r.rules", format_case_path(""));
    return (reshard_checkpoint_options){
        .size = sizeof(reshard_checkpoint_options), .from = from, .rules = rules};
}

static void test_rank_files__pieces_and_copies(void **state)
{
    reshard_checkpoint_options options = opening("tp=2");
    (void)state;
    format_case_text("r.rules", "w S(1)@tp\n* R\n");
    /* Numbers in names count as numbers: 9 comes before 10. */
    format_case_safetensors("rank-10.safetensors",
                            "{" U8("w", "[2,1]", "0", "2") "," U8("v", "[2]", "2", "4") "}",
                            "cfyz");
    format_case_safetensors("rank-9.safetensors",
                            "{" U8("v", "[2]", "0", "2") "," U8("w", "[2,2]", "2", "6") "}",
                            "yzabde");
    reshard_checkpoint *checkpoint = format_case_check("", &options, "rank-files", "v,w");
    format_case_data(checkpoint, "w", "abcdef", 2, 0);
    format_case_data(checkpoint, "v", "yz", 1, 1);
    assert_string_equal(reshard_checkpoint_file_name(checkpoint, 0), "rank-9.safetensors");
    assert_non_null(
        strstr(reshard_checkpoint_note(checkpoint, RESHARD_NOTE, 0), "split by rules of"));
    reshard_checkpoint_destroy(checkpoint);
    /* A mesh may number its ranks otherwise; files are in the order of ranks. */
    options.from = "tp=2[1,0]";
    format_case_fails("", &options, RESHARD_ERR_INVALID, "w");
}

static void test_rank_files__wrong(void **state)
{
    static const struct {
        const char *from, *header, *data;
        reshard_status status;
        const char *words;
    } rows[] = {
        /* of b.safetensors, beside w [2,2] in a.safetensors */
        {"tp=3", "{" U8("w", "[2,1]", "0", "2") "}", "cf", RESHARD_ERR_INVALID,
         "holds 2 files, but the mesh tp=3 has 3 ranks"},
        {"tp=2", "{" U8("w", "[2]", "0", "2") "}", "cf", RESHARD_ERR_CORRUPT,
         "do not agree on its number of dimensions"},
        {"tp=2", "{\"w\":{\"dtype\":\"I8\",\"shape\":[2,1],\"data_offsets\":[0,2]}}", "cf",
         RESHARD_ERR_CORRUPT, "do not agree on its dtype"},
        {"tp=2", "{" U8("w", "[3,1]", "0", "3") "}", "cfi", RESHARD_ERR_INVALID, "tensor \"w\""},
        {"tp=2", "{}", "", RESHARD_ERR_INVALID, "tensor \"w\""},
        {"pp=2", "{" U8("w", "[2,1]", "0", "2") "}", "cf", RESHARD_ERR_INVALID,
         "says what axis pp=2 does"},
    };
    (void)state;
    format_case_text("r.rules", "w S(1)@tp\n");
    format_case_safetensors("a.safetensors", "{" U8("w", "[2,2]", "0", "4") "}", "abde");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        reshard_checkpoint_options options = opening(rows[i].from);
        format_case_safetensors("b.safetensors", rows[i].header, rows[i].data);
        format_case_fails("", &options, rows[i].status, rows[i].words);
    }
}

/* Lays out, carries out and opens again. */
static reshard_checkpoint *write_and_open(const reshard_checkpoint *source, const char *rules,
                                          const char *folder, int32_t *out_files)
{
    rs_target target;
    format_case_text("r.rules", rules);
    const reshard_checkpoint_options back = opening("tp=2");
    const reshard_conversion_options options = {
        .size = sizeof options, .to = "tp=2", .format = "rank-files", .rules = back.rules};
    if (rs_target_init(&target, source, &options) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    *out_files = target.written_count;
    format_case_carry_out(&target, source, folder);
    rs_target_release(&target);
    return format_case_check(folder, &back, "rank-files", "v,w");
}

static void test_rank_files__written(void **state)
{
    int32_t files = 0;
    (void)state;
    format_case_safetensors("source.safetensors",
                            "{" U8("w", "[2,3]", "0", "6") "," U8("v", "[3]", "6", "9") "}",
                            "abcdefxyz");
    reshard_checkpoint *source = format_case_open("source.safetensors", NULL);
    reshard_checkpoint *made = write_and_open(source, "w S(1)@tp\n* R\n", "out", &files);
    assert_int_equal(files, 2);
    format_case_data(made, "w", "abcdef", 2, 0);
    format_case_data(made, "v", "xyz", 1, 1);
    reshard_checkpoint_destroy(made);
    /* Cut flat, a local shape does not tell the whole one: the file does. */
    made = write_and_open(source, "w S(flat)@tp\n* R\n", "flat", &files);
    format_case_data(made, "w", "abcdef", 2, 0);
    reshard_checkpoint_destroy(made);
    reshard_checkpoint_destroy(source);
}

static void test_rank_files__padding(void **state)
{
    int32_t files = 0;
    (void)state;
    format_case_safetensors("source.safetensors",
                            "{" U8("w", "[3,2]", "0", "6") "," U8("v", "[1]", "6", "7") "}",
                            "abcdefv");
    reshard_checkpoint *source = format_case_open("source.safetensors", NULL);
    reshard_checkpoint *made = write_and_open(source, "w S(0)@tp pad(0,4,3)\n* R\n", "out", &files);
    format_case_data(made, "w", "abcdef", 2, 0);
    reshard_checkpoint_destroy(made);
    reshard_checkpoint_destroy(source);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, format_case_begin, format_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_rank_files__pieces_and_copies),
        TEST(test_rank_files__wrong),
        TEST(test_rank_files__written),
        TEST(test_rank_files__padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
