/* SPDX-License-Identifier: Apache-2.0 */
/* format_case.c - files by hand. Nothing here but writing of targets goes through the formats. */
#define _XOPEN_SOURCE 700
#include "tests/checkpoint/format/format_case.h"
#include "base/context.h"

#include "tests/support/info.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[] = "/tmp/reshard-test-XXXXXX";

int format_case_begin(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/reshard-test-XXXXXX");
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

int format_case_end(void **state)
{
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *format_case_path(const char *name)
{
    static char paths[4][600];
    static int next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s%s%s", root, name[0] != '\0' ? "/" : "", name);
    return path;
}

void format_case_folder(const char *name)
{
    assert_int_equal(mkdir(format_case_path(name), 0777), 0);
}

void format_case_write(const char *name, const void *bytes, size_t count)
{
    FILE *file = fopen(format_case_path(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

void format_case_text(const char *name, const char *text)
{
    format_case_write(name, text, strlen(text));
}

void format_case_safetensors(const char *name, const char *header, const char *data)
{
    char bytes[8192];
    size_t length = strlen(header), count = strlen(data);
    assert_true(8 + length + count <= sizeof bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(length >> (8 * i) & 0xff);
    memcpy(bytes + 8, header, length);
    memcpy(bytes + 8 + length, data, count);
    format_case_write(name, bytes, 8 + length + count);
}

reshard_checkpoint *format_case_open(const char *name, const reshard_checkpoint_options *options)
{
    reshard_checkpoint *checkpoint = NULL;
    if (reshard_checkpoint_open(NULL, format_case_path(name), options, &checkpoint) != RESHARD_OK)
        fail_msg("%s: %s", name, reshard_error_text());
    return checkpoint;
}

reshard_checkpoint *format_case_check(const char *name, const reshard_checkpoint_options *options,
                                      const char *format, const char *tensors)
{
    char found[512] = "";
    reshard_checkpoint *checkpoint = format_case_open(name, options);
    assert_string_equal(info_checkpoint(checkpoint).format, format);
    for (int64_t i = 0; i < info_checkpoint(checkpoint).tensor_count; i++) {
        reshard_stored_tensor tensor = {.size = sizeof tensor};
        assert_int_equal(reshard_checkpoint_tensor(checkpoint, i, &tensor), RESHARD_OK);
        size_t length = strlen(found);
        (void)snprintf(found + length, sizeof found - length, "%s%s", i == 0 ? "" : ",",
                       tensor.name);
    }
    assert_string_equal(found, tensors);
    return checkpoint;
}

void format_case_data(const reshard_checkpoint *checkpoint, const char *name, const char *data,
                      int64_t pieces, int64_t copies)
{
    char bytes[256] = "";
    int64_t index = -1;
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    assert_int_equal(reshard_checkpoint_find(checkpoint, name, strlen(name), &index), RESHARD_OK);
    assert_int_equal(reshard_checkpoint_tensor(checkpoint, index, &tensor), RESHARD_OK);
    assert_int_equal(tensor.bytes, strlen(data));
    assert_int_equal(tensor.piece_count, pieces);
    assert_int_equal(tensor.copy_count, copies);
    if (reshard_checkpoint_read(checkpoint, index, NULL, bytes, strlen(data)) != RESHARD_OK)
        fail_msg("%s: %s", name, reshard_error_text());
    assert_string_equal(bytes, data);
}

void format_case_fails(const char *name, const reshard_checkpoint_options *options,
                       reshard_status status, const char *words)
{
    reshard_checkpoint *checkpoint = NULL;
    reshard_status found =
        reshard_checkpoint_open(NULL, format_case_path(name), options, &checkpoint);
    if (found != status || strstr(reshard_error_text(), words) == NULL)
        fail_msg("status %d with \"%s\" wanted, %d came with \"%s\"", (int)status, words,
                 (int)found, reshard_error_text());
    assert_null(checkpoint);
}

void format_case_error(reshard_hint hint, const char *subject)
{
    reshard_error error = {.size = sizeof error};
    assert_int_equal(reshard_error_get(&error), RESHARD_OK);
    assert_int_equal(error.hint, hint);
    assert_string_equal(error.subject, subject);
}

/* ---- writing --------------------------------------------------------------------------------- */

static reshard_status add_file(void *user, const char *name, const char *bytes, size_t count)
{
    char path[400];
    (void)snprintf(path, sizeof path, "%s/%s", (const char *)user, name);
    format_case_write(path, bytes, count);
    return RESHARD_OK;
}

/* Element by element: dims of a piece are counted up like the digits of a number. */
static void write_piece(rs_file *file, const reshard_checkpoint *source, int64_t origin,
                        const rs_stored_tensor *tensor, const rs_stored_piece *piece)
{
    int64_t strides[RESHARD_NDIM_MAX], volume = 1;
    rs_piece_strides(tensor, piece, strides);
    for (int32_t d = 0; d < tensor->carried_ndim; d++)
        volume *= piece->size[d];
    for (int64_t i = 0; i < volume; i++) {
        reshard_box box = {.ndim = tensor->carried_ndim};
        int64_t rest = i, at = 0;
        char element;
        for (int32_t d = tensor->carried_ndim - 1; d >= 0; d--) {
            int64_t index = rest % piece->size[d];
            rest /= piece->size[d];
            box.offset[d] = (piece->offset != NULL ? piece->offset[d] : 0) + index;
            box.size[d] = 1;
            at += index * strides[d];
        }
        assert_int_equal(reshard_checkpoint_read(source, origin, &box, &element, 1), RESHARD_OK);
        assert_int_equal(rs_file_write(file, &element, 1, piece->at + (uint64_t)at), RESHARD_OK);
    }
}

void format_case_carry_out(const rs_target *target, const reshard_checkpoint *source,
                           const char *folder)
{
    rs_file *files[16] = {NULL};
    assert_in_range(target->file_count, 1, 16);
    format_case_folder(folder);
    for (int32_t i = 0; i < target->file_count; i++) {
        char name[400];
        if (target->files[i].name == NULL)
            continue;
        (void)snprintf(name, sizeof name, "%s/%s", folder, target->files[i].name);
        assert_int_equal(rs_file_create(NULL, format_case_path(name), &files[i]), RESHARD_OK);
        assert_int_equal(rs_file_resize(files[i], target->files[i].bytes, false), RESHARD_OK);
        assert_int_equal(rs_target_write_head(target, i, files[i]), RESHARD_OK);
    }
    for (int64_t i = 0; i < target->tensor_count; i++) {
        const rs_stored_tensor *tensor = &target->tensors[i];
        for (int64_t j = 0; j < tensor->piece_count; j++)
            write_piece(files[tensor->pieces[j].file], source, target->origins[i], tensor,
                        &tensor->pieces[j]);
    }
    const rs_finishing finishing = {
        .files = files, .add = add_file, .user = (char *)(uintptr_t)folder};
    assert_int_equal(rs_target_finish(target, &finishing), RESHARD_OK);
    for (int32_t i = 0; i < target->file_count; i++)
        rs_file_close(files[i]);
}

void format_case_is_safetensors(const char *name, const char *header, const char *data)
{
    char *bytes = NULL;
    size_t count = 0, length = 0, text = strlen(header);
    assert_int_equal(rs_file_read_all(NULL, format_case_path(name), 1 << 20, &bytes, &count),
                     RESHARD_OK);
    assert_true(count >= 8);
    for (int i = 7; i >= 0; i--)
        length = length << 8 | (unsigned char)bytes[i];
    assert_int_equal((length + 8) % 4096, 0);
    assert_int_equal(count, 8 + length + strlen(data));
    if (memcmp(bytes + 8, header, text) != 0)
        fail_msg("%s: the header is %.1000s", name, bytes + 8);
    for (size_t i = 8 + text; i < 8 + length; i++)
        assert_int_equal(bytes[i], ' ');
    assert_string_equal(bytes + 8 + length, data);
    rs_release(NULL, bytes);
}
