/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's distributed checkpoints in safetensors: boxes of tensors, each once. */
#include "checkpoint/convert/target_make.h"
#include "tests/checkpoint/format/format_case.h"

#include <stdio.h>
#include <string.h>

/* A file of one entry; info and shapes are documents, with ' for ". */
static void write_part(const char *name, const char *info, const char *more, const char *entry,
                       const char *data)
{
    char header[1024], quoted[512];
    size_t length = 0;
    for (const char *at = info; *at != '\0'; at++) {
        if (*at == '\'')
            quoted[length++] = '\\';
        quoted[length++] = *at == '\'' ? '"' : *at;
    }
    quoted[length] = '\0';
    (void)snprintf(header, sizeof header, "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"%s\"%s},%s}",
                   quoted, more, entry);
    format_case_safetensors(name, header, data);
}

#define AT(offset) "{'w':{'saved_offsets':[" offset "]}}"
#define SHAPES(shape) ",\"RESHARD_SHAPES\":\"{\\\"w\\\":" shape "}\""

static void test_dcp_safetensors__pieces(void **state)
{
    (void)state;
    write_part("x.safetensors", AT("0,1"), "", U8("w", "[2,2]", "0", "4"), "bcef");
    write_part("y.safetensors", "{'w.1':{'saved_offsets':[0,0],'logical_fqn':'w'}}", "",
               U8("w.1", "[2,1]", "0", "2"), "ad");
    reshard_checkpoint *checkpoint = format_case_check("", NULL, "dcp-safetensors", "w");
    format_case_data(checkpoint, "w", "abcdef", 2, 0);
    assert_non_null(strstr(reshard_checkpoint_note(checkpoint, RESHARD_NOTE, 0),
                           "do not give the full shape of 1"));
    reshard_checkpoint_destroy(checkpoint);
    /* Files that say everything leave nothing to note. */
    write_part("x.safetensors", AT("0,1"), SHAPES("[2,3]") ",\"RESHARD_FILES\":\"2\"",
               U8("w", "[2,2]", "0", "4"), "bcef");
    write_part("y.safetensors", AT("0,0"), SHAPES("[2,3]") ",\"RESHARD_FILES\":\"2\"",
               U8("w", "[2,1]", "0", "2"), "ad");
    checkpoint = format_case_check("", NULL, "dcp-safetensors", "w");
    format_case_data(checkpoint, "w", "abcdef", 2, 0);
    assert_null(reshard_checkpoint_note(checkpoint, RESHARD_NOTE, 0));
    reshard_checkpoint_destroy(checkpoint);
}

static void test_dcp_safetensors__wrong(void **state)
{
    static const struct {
        const char *info, *more;
        reshard_status status;
        const char *words;
    } rows[] = {
        /* of y.safetensors, beside [2,2] at 0,0 in x.safetensors */
        {AT("1,1"), "", RESHARD_ERR_OVERLAP, "what y.safetensors holds of it overlaps"},
        {AT("0,3"), "", RESHARD_ERR_GAP, "hold 6 of the 8 elements of shape 2x4"},
        {AT("0"), "", RESHARD_ERR_SYNTAX, "one number for each dimension"},
        {AT("0,-2"), "", RESHARD_ERR_SYNTAX, "whole number"},
        {AT("0,9223372036854775807"), "", RESHARD_ERR_RANGE, "out of range"},
        {AT("0,2"), SHAPES("[2,3]"), RESHARD_ERR_CORRUPT, "do not agree on its full shape"},
        {AT("0,2"), ",\"RESHARD_FILES\":\"3\"", RESHARD_ERR_GAP,
         "y.safetensors: is one of 3 files, but there are 2 here"},
        {"{'v':{'saved_offsets':[0,2]}}", "", RESHARD_ERR_SYNTAX, "the file does not hold"},
        {"{'w':{'saved_offsets':[0,2]},'w':{'saved_offsets':[0,2]}}", "", RESHARD_ERR_SYNTAX,
         "occurs twice"},
        {"{'w':{'logical_fqn':'w'}}", "", RESHARD_ERR_SYNTAX, "saved_offsets are missing"},
        {"{'w':[]}", "", RESHARD_ERR_SYNTAX, "expected an object"},
        {"{", "", RESHARD_ERR_SYNTAX, "ends too early"},
    };
    (void)state;
    write_part("x.safetensors", AT("0,0"), "", U8("w", "[2,2]", "0", "4"), "abde");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_part("y.safetensors", rows[i].info, rows[i].more, U8("w", "[2,1]", "0", "2"), "cf");
        format_case_fails("", NULL, rows[i].status, rows[i].words);
    }
}

static void test_dcp_safetensors__written(void **state)
{
    rs_target target;
    reshard_conversion_options options = {
        .size = sizeof options, .to = "tp=2", .rules = format_case_path("r.rules")};
    (void)state;
    format_case_text("r.rules", "w S(1)@tp\n* R\n");
    format_case_safetensors("source.safetensors",
                            "{" U8("w", "[2,3]", "0", "6") "," U8("v", "[3]", "6", "9") "," U8(
                                "empty", "[0]", "9", "9") "}",
                            "abcdefxyz");
    reshard_checkpoint *source = format_case_open("source.safetensors", NULL);
    assert_int_equal(rs_target_init(&target, source, &options), RESHARD_OK);
    assert_string_equal(target.format->name, "dcp-safetensors");
    format_case_carry_out(&target, source, "out");
    rs_target_release(&target);
    /* v is on both ranks, and stored by the first; rank 1 has the smaller half of w. */
    format_case_is_safetensors(
        "out/shard-00001-model-00001-of-00001.safetensors",
        "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\""
        "{\\\"empty\\\":{\\\"saved_offsets\\\":[0]},\\\"v\\\":{\\\"saved_offsets\\\":[0]},"
        "\\\"w\\\":{\\\"saved_offsets\\\":[0,0]}}\",\"DCP_VERSION\":\"1.0\",\"RESHARD_SHAPES\":\""
        "{\\\"empty\\\":[0],\\\"v\\\":[3],\\\"w\\\":[2,3]}\",\"RESHARD_FILES\":\"2\","
        "\"format\":\"pt\"}," U8("empty", "[0]", "0", "0") "," U8("v", "[3]", "0", "3") "," U8(
            "w", "[2,2]", "3", "7") "}",
        "xyzabde");
    reshard_checkpoint *made = format_case_check("out", NULL, "dcp-safetensors", "empty,v,w");
    format_case_data(made, "w", "abcdef", 2, 0);
    format_case_data(made, "v", "xyz", 1, 0);
    assert_null(reshard_checkpoint_note(made, RESHARD_NOTE, 0));
    reshard_checkpoint_destroy(made);
    assert_int_equal(remove(format_case_path("out/shard-00002-model-00001-of-00001.safetensors")),
                     0);
    format_case_fails("out", NULL, RESHARD_ERR_GAP, "is one of 2 files, but there is 1 here");
    reshard_checkpoint_destroy(source);
}

static void test_dcp_safetensors__needs_a_mesh(void **state)
{
    rs_target target;
    reshard_conversion_options options = {.size = sizeof options, .format = "dcp-safetensors"};
    (void)state;
    format_case_safetensors("x.safetensors", "{}", "");
    reshard_checkpoint *source = format_case_open("x.safetensors", NULL);
    assert_int_equal(rs_target_init(&target, source, &options), RESHARD_ERR_INVALID);
    assert_string_equal(reshard_error_text(),
                        "the format dcp-safetensors needs a mesh to split over; give one");
    format_case_error(RESHARD_HINT_TARGET_MESH, "dcp-safetensors");
    rs_target_release(&target);
    reshard_checkpoint_destroy(source);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, format_case_begin, format_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_dcp_safetensors__pieces),
        TEST(test_dcp_safetensors__wrong),
        TEST(test_dcp_safetensors__written),
        TEST(test_dcp_safetensors__needs_a_mesh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
