/* SPDX-License-Identifier: Apache-2.0 */
/* The list of formats, and what is said of paths that hold none of them. */
#include "checkpoint/convert/target_make.h"
#include "checkpoint/open/open.h"
#include "tests/checkpoint/format/format_case.h"
#include "tests/support/context.h"

#include <stdio.h>
#include <string.h>

static void test_formats__list(void **state)
{
    static const struct {
        const char *name;
        int writes, is_split, needs_mesh;
    } rows[] = {{"sharded-state", 1, 1, 1},
                {"hf", 1, 0, 0},
                {"torch-checkpointing", 0, 0, 0},
                {"gguf", 1, 0, 0},
                {"dcp-safetensors", 1, 1, 0},
                {"megatron", 1, 1, 0},
                {"megatron-legacy", 0, 0, 0},
                {"dcp", 1, 1, 0},
                {"rank-files", 1, 1, 1},
                {"safetensors", 0, 0, 0},
                {"npy", 0, 0, 0},
                {"universal", 1, 0, 0},
                {"deepspeed", 0, 0, 0},
                {"torch-bin", 0, 0, 0},
                {"consolidated", 1, 1, 1},
                {"torch-ranks", 1, 1, 1},
                {"torch", 1, 0, 0}};
    const int32_t count = sizeof rows / sizeof rows[0];
    reshard_format format = {.size = sizeof format};
    (void)state;
    for (int32_t i = 0; i < count; i++) {
        assert_int_equal(reshard_format_at(i, &format), RESHARD_OK);
        assert_string_equal(format.name, rows[i].name);
        assert_true(format.reads && strlen(format.description) > 10);
        assert_int_equal(format.writes, rows[i].writes);
        assert_int_equal(format.is_split, rows[i].is_split);
        assert_int_equal(format.needs_mesh, rows[i].needs_mesh);
    }
    assert_int_equal(reshard_format_at(count, &format), RESHARD_ERR_RANGE);
    assert_int_equal(reshard_format_at(-1, &format), RESHARD_ERR_RANGE);
    format.size = 0;
    assert_int_equal(reshard_format_at(0, &format), RESHARD_ERR_INVALID);
}

/* Every row can do all it says it can. */
static void test_formats__rows(void **state)
{
    const rs_format *format;
    (void)state;
    for (int32_t i = 0; (format = rs_format_at(i)) != NULL; i++) {
        assert_non_null(format->looks_for);
        assert_non_null(format->probe);
        assert_non_null(format->read);
        bool writes = format->lay_out != NULL;
        assert_int_equal(format->name_file != NULL || format->file_name != NULL, writes);
        assert_int_equal(format->place != NULL, writes);
        assert_int_equal(format->write_head != NULL, writes);
        for (int32_t j = 0; j < i; j++)
            assert_string_not_equal(rs_format_at(j)->name, format->name);
    }
}

static void test_formats__writers(void **state)
{
    const rs_format *format = NULL;
    (void)state;
    assert_int_equal(rs_format_find_writer("rank-files", &format), RESHARD_OK);
    assert_string_equal(format->name, "rank-files");
    assert_int_equal(rs_format_find_writer("safetensors", &format), RESHARD_ERR_NOT_FOUND);
    assert_string_equal(
        reshard_error_text(),
        "format \"safetensors\" cannot be written; give one of "
        "sharded-state, hf, gguf, dcp-safetensors, megatron, dcp, rank-files, universal, "
        "consolidated, torch-ranks, torch");
    assert_string_equal(rs_format_default_writer(false)->name, "hf");
    assert_string_equal(rs_format_default_writer(true)->name, "dcp-safetensors");
}

/* ---- probing --------------------------------------------------------------------------------- */

#define POINTER "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 4370\n"
/* How the list of all formats begins. */
#define LOOKED_FOR \
    "it looked for model.safetensors.index.json (hf), metadata.pkl (torch-checkpointing)"

static void test_probing__folders(void **state)
{
    static const struct {
        const char *file, *words;
    } rows[] = {
        {"model.h5", "is a folder of Keras .h5 files, which reshard cannot read yet; " LOOKED_FOR},
        {"model.onnx", "a folder of model graph (.onnx) files"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[256];
        (void)snprintf(name, sizeof name, "f%zu", i);
        format_case_folder(name);
        (void)snprintf(name, sizeof name, "f%zu/config.json", i);
        format_case_text(name, "{}");
        (void)snprintf(name, sizeof name, "f%zu/%s", i, rows[i].file);
        format_case_text(name, "0123456789");
        format_case_fails(name, NULL, RESHARD_ERR_UNSUPPORTED,
                          " file, which reshard cannot read yet; " LOOKED_FOR);
        name[strcspn(name, "/")] = '\0';
        format_case_fails(name, NULL, RESHARD_ERR_UNSUPPORTED, rows[i].words);
    }
}

static void test_probing__nothing(void **state)
{
    const reshard_checkpoint_options options = {.size = sizeof options, .from = "tp=2"};
    (void)state;
    format_case_fails("", NULL, RESHARD_ERR_NOT_FOUND,
                      "this folder is not a checkpoint that reshard knows; " LOOKED_FOR);
    format_case_fails("", &options, RESHARD_ERR_NOT_FOUND,
                      "model-rank-R-part-P.safetensors (sharded-state), *.safetensors, one for "
                      "each rank of the mesh (rank-files)");
    format_case_fails("none", NULL, RESHARD_ERR_NOT_FOUND, "there is no such file or folder");
    format_case_text("notes.txt", "hello, world");
    format_case_fails("notes.txt", NULL, RESHARD_ERR_NOT_FOUND,
                      "this file is not a checkpoint that reshard knows");
}

static void test_probing__pointers(void **state)
{
    const char *expected = "model.safetensors: is a git-LFS pointer instead of the file itself; "
                           "`git lfs pull` fetches it";
    (void)state;
    format_case_text("model.safetensors", POINTER);
    format_case_fails("", NULL, RESHARD_ERR_UNSUPPORTED, expected);
    format_case_fails("model.safetensors", NULL, RESHARD_ERR_UNSUPPORTED, expected);
    format_case_text("model.safetensors.index.json",
                     "{\"weight_map\":{\"w\":\"model.safetensors\"}}");
    format_case_fails("", NULL, RESHARD_ERR_UNSUPPORTED, expected);
}

static void test_probing__hub_root(void **state)
{
    (void)state;
    format_case_folder("models--org--name");
    format_case_folder("models--org--name/snapshots");
    format_case_fails("models--org--name", NULL, RESHARD_ERR_NOT_FOUND, "has no snapshot");
    format_case_folder("models--org--name/snapshots/0123abc");
    format_case_safetensors("models--org--name/snapshots/0123abc/model.safetensors",
                            "{" U8("w", "[1]", "0", "1") "}", "!");
    /* The only one. */
    reshard_checkpoint_destroy(format_case_check("models--org--name", NULL, "safetensors", "w"));
    format_case_folder("models--org--name/snapshots/fedcba9");
    format_case_fails("models--org--name/", NULL, RESHARD_ERR_INVALID,
                      "with 2 snapshots and no refs/main");
    /* refs/main says which one is current. */
    format_case_folder("models--org--name/refs");
    format_case_text("models--org--name/refs/main", "0123abc\n");
    reshard_checkpoint_destroy(format_case_check("models--org--name/", NULL, "safetensors", "w"));
    format_case_text("models--org--name/refs/main", "9999999");
    format_case_fails(
        "models--org--name", NULL, RESHARD_ERR_NOT_FOUND,
        "9999999: the snapshot that refs/main names does not exist; download the model again");
}

/* Weights of any format beside those that are read do not keep a folder from being opened. */
static void test_probing__mixed(void **state)
{
    (void)state;
    format_case_text("pytorch_model.bin", "0123456789");
    format_case_safetensors("model.safetensors", "{}", "");
    reshard_checkpoint_destroy(format_case_check("", NULL, "safetensors", ""));
}

/* ---- lack of memory -------------------------------------------------------------------------- */

/* More tensors than the first block of any arena has room for. */
#define TENSORS 60

static void write_many(const char *name)
{
    char header[TENSORS * 80] = "{", data[TENSORS + 1];
    size_t at = 1;
    for (int i = 0; i < TENSORS; i++) {
        at += (size_t)snprintf(
            header + at, sizeof header - at,
            "%s\"layers.%d.weight\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
            i == 0 ? "" : ",", i, i, i + 1);
        data[i] = 'x';
    }
    data[TENSORS] = '\0';
    (void)snprintf(header + at, sizeof header - at, "}");
    format_case_safetensors(name, header, data);
}

static reshard_status lay_out(reshard_context *context, void *user)
{
    const reshard_conversion_options *options = user;
    reshard_checkpoint *source = NULL;
    rs_target target;
    reshard_status status =
        reshard_checkpoint_open(context, format_case_path("many.safetensors"), NULL, &source);
    if (status != RESHARD_OK)
        return status;
    status = rs_target_init(&target, source, options);
    rs_target_release(&target);
    reshard_checkpoint_destroy(source);
    return status;
}

static void test_formats__lay_out_without_memory(void **state)
{
    static const struct {
        const char *format, *to;
        int dtensors;
    } rows[] = {{"hf", NULL, 0},
                {"torch", NULL, 0},
                {"torch", "fsdp=2", 0},
                {"torch", "fsdp=2", 1},
                {"dcp", "fsdp=2", 0},
                {"dcp-safetensors", "fsdp=2", 0},
                {"rank-files", "fsdp=2", 0}};
    (void)state;
    write_many("many.safetensors");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_conversion_options options = {.size = sizeof options,
                                              .format = rows[i].format,
                                              .to = rows[i].to,
                                              .rules = rows[i].to != NULL ? "fsdp" : NULL,
                                              .dtensors = rows[i].dtensors};
        words said;
        memset(&said, 0, sizeof said);
        if (!context_fail_each(lay_out, &options, &said))
            fail_msg("%s: %s", rows[i].format, said.text);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, format_case_begin, format_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_formats__list),
        TEST(test_formats__rows),
        TEST(test_formats__writers),
        TEST(test_probing__folders),
        TEST(test_probing__nothing),
        TEST(test_probing__pointers),
        TEST(test_probing__hub_root),
        TEST(test_probing__mixed),
        TEST(test_formats__lay_out_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
