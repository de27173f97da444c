/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays of a file joined to tensors, without any format: at any place, with strides and offsets.
 */
#include "checkpoint/store/store.h"
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];
static reshard_checkpoint *checkpoint;

/* A checkpoint of one open file with this text. */
static void open_text(const char *text)
{
    (void)snprintf(path, sizeof path, "/tmp/reshard-test-XXXXXX");
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    close(file);
    assert_int_equal(rs_store_create(NULL, "/tmp//", &checkpoint), RESHARD_OK);
    assert_string_equal(checkpoint->path, "/tmp");
    checkpoint->folder = checkpoint->path;
    char *name = path + strlen("/tmp/");
    assert_int_equal(rs_store_open_files(checkpoint, 1, &name), RESHARD_OK);
}

static int close_text(void **state)
{
    (void)state;
    reshard_checkpoint_destroy(checkpoint);
    checkpoint = NULL;
    return unlink(path);
}

static reshard_status join(int64_t count, const rs_occurrence *items)
{
    rs_occurrences list = {0};
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(rs_occurrences_add(NULL, &list, &items[i]), RESHARD_OK);
    reshard_status status = rs_store_join(checkpoint, &list);
    rs_occurrences_release(NULL, &list);
    return status;
}

static void check_data(int64_t index, const char *data)
{
    char bytes[64] = "";
    if (reshard_checkpoint_read(checkpoint, index, NULL, bytes, strlen(data)) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    assert_string_equal(bytes, data);
}

static const int64_t two_three[] = {2, 3}, transposed[] = {1, 2}, two_two[] = {2, 2},
                     two_one[] = {2, 1}, at_two[] = {0, 2}, step_three[] = {3, 1};

#define ARRAY(text, where, dims, ...)                                                 \
    {                                                                                 \
        .name = {text, sizeof text - 1}, .dtype = RESHARD_U8, .ndim = 2, .at = where, \
        .shape = dims, __VA_ARGS__                                                    \
    }

static void test_join__any_place_and_strides(void **state)
{
    const rs_occurrence items[] = {
        ARRAY("w", 2, two_three, .strides = transposed), ARRAY("t", 0, two_one, .strides = NULL),
        ARRAY("x", 8, two_two, .strides = step_three), /* the left part of 2x3 numbers */
        ARRAY("x", 10, two_one, .strides = step_three, .offset = at_two)};
    (void)state;
    open_text("!!adbecfABCDEF");
    assert_int_equal(join(4, items), RESHARD_OK);
    assert_int_equal(checkpoint->tensor_count, 3);
    assert_int_equal(checkpoint->bytes, 14);
    check_data(0, "!!");
    check_data(1, "abcdef");
    check_data(2, "ABCDEF");
}

static void test_join__wrong(void **state)
{
    const rs_occurrence overlap[] = {ARRAY("w", 0, two_three, .offset = NULL),
                                     ARRAY("w", 6, two_one, .offset = at_two)};
    const rs_occurrence gap[] = {ARRAY("w", 0, two_one, .offset = at_two)};
    rs_occurrence opaque[] = {ARRAY("w", 0, two_two, .strides = transposed)};
    (void)state;
    open_text("abcdefgh");
    assert_int_equal(join(2, overlap), RESHARD_ERR_OVERLAP);
    assert_int_equal(join(1, gap), RESHARD_ERR_GAP);
    opaque[0].dtype = RESHARD_F4;
    assert_int_equal(join(1, opaque), RESHARD_ERR_UNSUPPORTED);
    opaque[0].strides = NULL;
    assert_int_equal(join(1, opaque), RESHARD_OK);
    check_data(0, "ab");
}

/* The same box twice: an overlap, or, where copies may be, a copy. */
static void test_join__copies(void **state)
{
    const rs_occurrence items[] = {ARRAY("w", 4, two_one, .offset = at_two),
                                   ARRAY("w", 0, two_two, .offset = NULL),
                                   ARRAY("w", 6, two_one, .offset = at_two)};
    rs_occurrences list = {.has_copies = true};
    (void)state;
    open_text("adbecfcf");
    assert_int_equal(join(3, items), RESHARD_ERR_OVERLAP);
    for (int64_t i = 0; i < 3; i++)
        assert_int_equal(rs_occurrences_add(NULL, &list, &items[i]), RESHARD_OK);
    assert_int_equal(rs_store_join(checkpoint, &list), RESHARD_OK);
    rs_occurrences_release(NULL, &list);
    assert_int_equal(checkpoint->tensors[0].piece_count, 2);
    assert_int_equal(checkpoint->tensors[0].copy_count, 1);
    assert_int_equal(checkpoint->tensors[0].copies[0].at, 6);
    check_data(0, "adcbef");
}

/* A box that only begins where another one does is not its copy. */
static void test_join__no_copies(void **state)
{
    const rs_occurrence items[] = {ARRAY("w", 0, two_two, .offset = NULL),
                                   ARRAY("w", 4, two_one, .offset = at_two),
                                   ARRAY("w", 6, two_one, .offset = NULL)};
    rs_occurrences list = {.has_copies = true};
    (void)state;
    open_text("adbecfad");
    for (int64_t i = 0; i < 3; i++)
        assert_int_equal(rs_occurrences_add(NULL, &list, &items[i]), RESHARD_OK);
    assert_int_equal(rs_store_join(checkpoint, &list), RESHARD_ERR_OVERLAP);
    rs_occurrences_release(NULL, &list);
}

/* Boxes that are read lie inside the tensor, and the memory has their size. */
static void test_read__boxes(void **state)
{
    static const struct {
        reshard_box box;
        const char *text; /* NULL: refused */
    } rows[] = {
        {{.ndim = 2, .size = {2, 3}}, "abcdef"},
        {{.ndim = 2, .offset = {1, 1}, .size = {1, 2}}, "ef"},
        {{.ndim = 2, .offset = {0, 2}, .size = {2, 1}}, "cf"},
        {{.ndim = 2, .offset = {2, 3}, .size = {0, 0}}, ""},
        {{.ndim = 2, .offset = {1, 0}, .size = {2, 1}}, NULL},
        {{.ndim = 2, .offset = {0, 2}, .size = {1, 2}}, NULL},
        {{.ndim = 2, .offset = {0, 3}, .size = {1, 1}}, NULL},
        {{.ndim = 2, .offset = {2, 4}, .size = {0, 0}}, NULL},
        {{.ndim = 2, .offset = {0, -1}, .size = {1, 1}}, NULL},
        {{.ndim = 2, .offset = {0, 1}, .size = {1, -1}}, NULL},
        {{.ndim = 2, .offset = {0, INT64_MAX}, .size = {1, INT64_MAX}}, NULL},
        {{.ndim = 1, .size = {2}}, NULL},
    };
    const rs_occurrence items[] = {ARRAY("w", 1, two_three, .offset = NULL)};
    (void)state;
    open_text("!abcdefghi");
    assert_int_equal(join(1, items), RESHARD_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char bytes[16] = "";
        const reshard_box *box = &rows[i].box;
        size_t count = rows[i].text != NULL ? strlen(rows[i].text) : 1;
        reshard_status status = reshard_checkpoint_read(checkpoint, 0, box, bytes, count);
        assert_int_equal(status, rows[i].text != NULL ? RESHARD_OK : RESHARD_ERR_RANGE);
        assert_string_equal(bytes, rows[i].text != NULL ? rows[i].text : "");
        if (rows[i].text != NULL)
            assert_int_equal(reshard_checkpoint_read(checkpoint, 0, box, bytes, count + 1),
                             RESHARD_ERR_INVALID);
    }
}

static void destroy_body(void *body)
{
    ++*(int *)body;
}

static void test_files__body_is_destroyed(void **state)
{
    int destroyed = 0;
    (void)state;
    open_text("abc");
    assert_int_equal(checkpoint->files[0].bytes, 3);
    checkpoint->files[0].body = &destroyed;
    checkpoint->files[0].body_destroy = destroy_body;
    reshard_checkpoint_destroy(checkpoint);
    checkpoint = NULL;
    assert_int_equal(destroyed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_join__any_place_and_strides, close_text),
        cmocka_unit_test_teardown(test_join__wrong, close_text),
        cmocka_unit_test_teardown(test_join__copies, close_text),
        cmocka_unit_test_teardown(test_join__no_copies, close_text),
        cmocka_unit_test_teardown(test_read__boxes, close_text),
        cmocka_unit_test_teardown(test_files__body_is_destroyed, close_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
