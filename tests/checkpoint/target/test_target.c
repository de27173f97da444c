/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_target.c - tensors of live ranks laid out in files, by a format that knows nothing: which
 * box goes into which file, in which order, and at which byte. No file is touched.
 */
#include "checkpoint/target/target.h"
#include "layout/layout.h"
#include "tests/support/check.h"

#include <stdio.h>
#include <string.h>

enum { TENSORS_MAX = 8, FILES_MAX = 8, HEAD = 100, TEXT = 1000 };

typedef struct made_of {
    const char *name, *spec; /* spec NULL: there are no more tensors */
    reshard_dtype dtype;
    int64_t shape[2];
} made_of;

/* ---- a format: a head of 100 bytes, then the entries, one after the other -------------------- */

static void name_file(const rs_target *target, int32_t file, int32_t rank,
                      char out_name[RS_FILE_NAME_BYTES])
{
    (void)target;
    (void)rank;
    (void)snprintf(out_name, RS_FILE_NAME_BYTES, "file-%d", (int)file);
}

static reshard_status place(rs_target *target, int32_t index)
{
    rs_target_file *file = &target->files[index];
    uint64_t used = 0;
    for (int64_t i = file->entry_first; i < file->entry_first + file->entry_count; i++) {
        target->entries[i].begin = used;
        used += rs_target_array_of(target, &target->entries[i])->bytes;
    }
    file->data_begin = HEAD;
    file->bytes = HEAD + used;
    return RESHARD_OK;
}

static const rs_format format = {
    .name = "none", .name_file = name_file, .place = place, .skips_empty = true};

static reshard_status place_boxes(const rs_laying *laying, const rs_cut_tensor *cut)
{
    return rs_target_place_boxes(laying, cut, NULL);
}

/* ---- laying out ------------------------------------------------------------------------------ */

static void begin(rs_target *target, int32_t files, int64_t count)
{
    *target = (rs_target){.format = &format, .file_count = files, .name_count = count};
    rs_arena_init(&target->arena, NULL);
    target->names = rs_arena_allocate_array(&target->arena, TENSORS_MAX, sizeof(rs_slice));
    target->tensors = rs_arena_allocate_array(&target->arena, TENSORS_MAX, sizeof *target->tensors);
    target->origins = rs_arena_allocate_array(&target->arena, TENSORS_MAX, sizeof(int64_t));
    assert_true(target->names != NULL && target->tensors != NULL && target->origins != NULL);
}

/* Release in any case. */
static reshard_status lay_out(rs_target *target, int32_t files, const made_of *given,
                              rs_place_fn *how)
{
    reshard_live_tensor live[TENSORS_MAX];
    int64_t count = 0;
    while (given[count].spec != NULL)
        count++;
    assert_true(count <= TENSORS_MAX && files <= FILES_MAX);
    begin(target, files, count);
    for (int64_t i = 0; i < count; i++) {
        live[i] = (reshard_live_tensor){.name = given[i].name, .dtype = given[i].dtype};
        if (reshard_layout_parse(NULL, given[i].spec, 2, given[i].shape, &live[i].layout) !=
            RESHARD_OK)
            fail_msg("%s: %s", given[i].spec, reshard_error_text());
        target->names[i] = rs_slice_of(given[i].name);
    }
    rs_laying laying = {.target = target, .live = live};
    reshard_status status = rs_target_cut(&laying, how);
    if (status == RESHARD_OK)
        status = rs_target_place(target);
    for (int64_t i = 0; i < count; i++)
        reshard_layout_release(live[i].layout);
    return status;
}

/* The files, with a line for each: what lies in it, in order, as NAME@BYTE and the boxes. */
static const char *show(const rs_target *target)
{
    static char text[TEXT];
    size_t length = 0;
    text[0] = '\0';
    for (int32_t f = 0; f < target->file_count; f++) {
        const rs_target_file *file = &target->files[f];
        if (file->name == NULL)
            continue;
        length += (size_t)snprintf(text + length, TEXT - length, "%s:", file->name);
        for (int64_t i = file->entry_first; i < file->entry_first + file->entry_count; i++) {
            const rs_target_entry *entry = &target->entries[i];
            const rs_target_array *array = rs_target_array_of(target, entry);
            const rs_stored_piece *piece =
                target->tensors[entry->tensor].pieces + entry->piece_first;
            rs_slice key = rs_target_key(target, entry);
            length += (size_t)snprintf(text + length, TEXT - length, " %.*s", RS_SHOWN(key));
            for (int32_t j = 0; j < array->piece_count; j++, piece++)
                length += (size_t)snprintf(
                    text + length, TEXT - length, "@%d[%d:%d,%d:%d]", (int)piece->at,
                    (int)piece->offset[0], (int)(piece->offset[0] + piece->size[0]),
                    (int)piece->offset[1], (int)(piece->offset[1] + piece->size[1]));
        }
        length += (size_t)snprintf(text + length, TEXT - length, " =%d\n", (int)file->bytes);
        assert_true(length < TEXT);
    }
    return text;
}

static void check(int32_t files, const made_of *given, rs_place_fn *how, const char *wanted)
{
    rs_target target;
    if (lay_out(&target, files, given, how) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    assert_string_equal(show(&target), wanted);
    rs_target_release(&target);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void test_local__each_file_has_what_its_rank_has(void **state)
{
    (void)state;
    /* Chunks of ceil(5/3) rows; all ranks hold v. Entries of f32 are in front of those of u8. */
    static const made_of given[] = {{"v", "3: R", RESHARD_U8, {1, 3}},
                                    {"w", "3: S(0)", RESHARD_F32, {5, 2}},
                                    {NULL, NULL, RESHARD_DTYPE_NONE, {0}}};
    check(3, given, rs_target_place_local,
          "file-0: w@100[0:2,0:2] v@116[0:1,0:3] =119\n"
          "file-1: w@100[2:4,0:2] v@116[0:1,0:3] =119\n"
          "file-2: w@100[4:5,0:2] v@108[0:1,0:3] =111\n");
    /* Blocks of one row, dealt in turn: a rank's rows lie one behind the other in its file. */
    static const made_of dealt[] = {{"w", "2: S(0/1)", RESHARD_U8, {3, 4}},
                                    {NULL, NULL, RESHARD_DTYPE_NONE, {0}}};
    check(2, dealt, rs_target_place_local,
          "file-0: w@100[0:1,0:4]@104[2:3,0:4] =108\n"
          "file-1: w@100[1:2,0:4] =104\n");
}

static void test_boxes__each_once_in_the_emptiest_file(void **state)
{
    (void)state;
    /* Ranks 0 and 2 hold the upper half, 1 and 3 the lower one. Of equally full files the first
     * is taken. */
    static const made_of given[] = {{"a", "dp=2,tp=2: R, S(0)", RESHARD_U8, {4, 2}},
                                    {"b", "dp=2,tp=2: R, S(0)", RESHARD_U8, {2, 3}},
                                    {"c", "dp=2,tp=2: R, S(0)", RESHARD_U8, {2, 1}},
                                    {NULL, NULL, RESHARD_DTYPE_NONE, {0}}};
    check(4, given, place_boxes,
          "file-0: a@100[0:2,0:2] =104\n"
          "file-1: a@100[2:4,0:2] =104\n"
          "file-2: b@100[0:1,0:3] c@103[0:1,0:1] =104\n"
          "file-3: b@100[1:2,0:3] c@103[1:2,0:1] =104\n");
    /* Files without entries are not written, and a tensor without elements is in one. */
    static const made_of few[] = {{"a", "3: R", RESHARD_U8, {2, 2}},
                                  {"z", "3: S(0)", RESHARD_U8, {0, 2}},
                                  {NULL, NULL, RESHARD_DTYPE_NONE, {0}}};
    check(3, few, place_boxes, "file-0: z a@100[0:2,0:2] =104\n");
}

static void test_place__pages_then_wide_elements_then_names(void **state)
{
    (void)state;
    static const made_of given[] = {
        {"page-b", "1: R", RESHARD_U8, {2, 4096}}, {"b", "1: R", RESHARD_U8, {1, 3}},
        {"wide", "1: R", RESHARD_F64, {1, 1}},     {"page-a", "1: R", RESHARD_F16, {1, 2048}},
        {"a", "1: R", RESHARD_I8, {1, 1}},         {"half", "1: R", RESHARD_F16, {1, 3}},
        {NULL, NULL, RESHARD_DTYPE_NONE, {0}}};
    check(1, given, place_boxes,
          "file-0: page-a@100[0:1,0:2048] page-b@4196[0:2,0:4096] wide@12388[0:1,0:1]"
          " half@12396[0:1,0:3] a@12402[0:1,0:1] b@12403[0:1,0:3] =12406\n");
}

static void test_cut__partial_overlap_is_refused(void **state)
{
    (void)state;
    static const made_of given[] = {{"w", "cover 4x4: 0[0:4,0:3] 1[0:4,2:4]", RESHARD_U8, {4, 4}},
                                    {NULL, NULL, RESHARD_DTYPE_NONE, {0}}};
    rs_target target;
    assert_int_equal(lay_out(&target, 2, given, place_boxes), RESHARD_ERR_OVERLAP);
    assert_non_null(strstr(reshard_error_text(), "tensor \"w\": ranks hold boxes that partly"));
    rs_target_release(&target);
    /* Equal boxes on several ranks are copies. */
    static const made_of copies[] = {
        {"w", "cover 4x4: 0[0:4,0:3] 1[0:4,3:4] 2[0:4,0:3]", RESHARD_U8, {4, 4}},
        {NULL, NULL, RESHARD_DTYPE_NONE, {0}}};
    check(3, copies, place_boxes, "file-0: w@100[0:4,0:3] =112\nfile-1: w@100[0:4,3:4] =104\n");
}

/* Whatever the layout, stored boxes have every element once, and bytes of a file have one owner. */
static void test_boxes__tile_tensor_and_files(void **state)
{
    (void)state;
    static const char *const specs[] = {"4: S(0)",           "2,2: S(0), S(1)",  "2,2: S(1), R",
                                        "2,2: S(0), S(0)",   "4: S(0/2)",        "4: S(1~)",
                                        "2,3: S(0/1), S(1)", "4[3,1,0,2]: S(1)", "3: S(flat)"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        const made_of given[] = {{"w", specs[s], RESHARD_U8, {7, 5}},
                                 {"x", specs[s], RESHARD_U8, {7, 5}},
                                 {NULL, NULL, RESHARD_DTYPE_NONE, {0}}};
        int elements[2][7][5] = {{{0}}}, bytes[FILES_MAX][HEAD + 2 * 7 * 5] = {{0}};
        rs_target target;
        if (lay_out(&target, 6, given, place_boxes) != RESHARD_OK)
            fail_msg("%s: %s", specs[s], reshard_error_text());
        for (int64_t t = 0; t < target.tensor_count; t++) {
            for (int64_t i = 0; i < target.tensors[t].piece_count; i++) {
                const rs_stored_piece *piece = &target.tensors[t].pieces[i];
                uint64_t at = piece->at;
                assert_null(piece->strides);
                for (int64_t r = 0; r < piece->size[0]; r++) {
                    for (int64_t c = 0; c < piece->size[1]; c++, at++) {
                        elements[t][piece->offset[0] + r][piece->offset[1] + c]++;
                        assert_true(at < target.files[piece->file].bytes);
                        assert_int_equal(bytes[piece->file][at]++, 0);
                    }
                }
            }
        }
        for (int i = 0; i < 2 * 7 * 5; i++) {
            if ((&elements[0][0][0])[i] != 1)
                fail_msg("%s: element %d is stored %d times", specs[s], i % 35,
                         (&elements[0][0][0])[i]);
        }
        rs_target_release(&target);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_local__each_file_has_what_its_rank_has),
        cmocka_unit_test(test_boxes__each_once_in_the_emptiest_file),
        cmocka_unit_test(test_place__pages_then_wide_elements_then_names),
        cmocka_unit_test(test_cut__partial_overlap_is_refused),
        cmocka_unit_test(test_boxes__tile_tensor_and_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
