/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_npy.c - NumPy's arrays: a .npy file, a .npz archive of them, or a folder of either. An
 * array is a whole tensor, named after its file or member without ".npy". The format is only read.
 *
 * A .npy file is "\x93NUMPY", a version of two bytes, the length of the header (two bytes in
 * version 1, four in 2 and 3), the header, and the data. The header is a Python dict as text:
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * followed by spaces and a newline. A .npz is a zip file whose members may be deflated.
 */
#include "base/checked.h"
#include "base/context.h"
#include "checkpoint/archive/unpack.h"
#include "checkpoint/format/plain_formats.h"
#include "text/text.h"

#include <assert.h>
#include <string.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6
#define HEADER_BYTES_MAX 65535 /* NumPy's own reader accepts 10000 */
#define NDIM_MAX 64            /* as in NumPy 2 */

static bool has_ending(const char *name, const char *ending)
{
    size_t length = strlen(name), count = strlen(ending);
    return length > count && strcmp(name + length - count, ending) == 0;
}

static bool is_npy(const char *name)
{
    return has_ending(name, ".npy");
}

static bool is_npz(const char *name)
{
    return has_ending(name, ".npz");
}

/* ---- headers --------------------------------------------------------------------------------- */

typedef struct array {
    reshard_dtype dtype;
    bool fortran_order;
    int32_t ndim;
    int64_t shape[NDIM_MAX];
    uint64_t data_at;
} array;

/* The rest of a header's text. */
typedef struct scanner {
    const char *what; /* for error texts */
    const char *at, *end;
} scanner;

static reshard_status fail(const scanner *from, const char *words)
{
    return rs_fail_about(RESHARD_ERR_SYNTAX, from->what, "its header is not a NumPy header: %s",
                         words);
}

static void skip_spaces(scanner *from)
{
    while (from->at < from->end && (*from->at == ' ' || *from->at == '\n' || *from->at == '\t'))
        from->at++;
}

/* Skips the text if it comes next. */
static bool take(scanner *from, const char *text)
{
    size_t count = strlen(text);
    skip_spaces(from);
    if ((size_t)(from->end - from->at) < count || memcmp(from->at, text, count) != 0)
        return false;
    from->at += count;
    return true;
}

/* Reads a text in quotes, without backslashes. */
static reshard_status take_text(scanner *from, rs_slice *out_text)
{
    skip_spaces(from);
    char quote = from->at < from->end ? *from->at : '\0';
    const char *begin = from->at + 1;
    if (quote != '\'' && quote != '"')
        return fail(from, "expected a text");
    for (from->at = begin; from->at < from->end && *from->at != quote; from->at++) {
        if (*from->at == '\\')
            return fail(from, "a text holds a backslash");
    }
    if (from->at == from->end)
        return fail(from, "a text does not end");
    *out_text = (rs_slice){begin, (size_t)(from->at - begin)};
    from->at++;
    return RESHARD_OK;
}

static reshard_status take_extent(scanner *from, int64_t *out_extent)
{
    int64_t extent = 0;
    if (from->at == from->end || !rs_is_digit(*from->at))
        return fail(from, "its shape is not a tuple of numbers");
    for (; from->at < from->end && rs_is_digit(*from->at); from->at++) {
        if (!rs_multiply(extent, 10, &extent) || !rs_add(extent, *from->at - '0', &extent))
            return rs_fail_about(RESHARD_ERR_RANGE, from->what, "an extent is beyond 2^63-1");
    }
    *out_extent = extent;
    return RESHARD_OK;
}

static reshard_status take_shape(scanner *from, array *made)
{
    if (!take(from, "("))
        return fail(from, "its shape is not a tuple of numbers");
    while (!take(from, ")")) {
        if (made->ndim == NDIM_MAX)
            return rs_fail_about(RESHARD_ERR_RANGE, from->what,
                                 "the tensor has more than %d dimensions", NDIM_MAX);
        reshard_status status = take_extent(from, &made->shape[made->ndim++]);
        if (status != RESHARD_OK)
            return status;
        (void)take(from, "L"); /* as Python 2 wrote */
        if (!take(from, ",") && !take(from, ")"))
            return fail(from, "its shape is not a tuple of numbers");
        if (from->at[-1] == ')')
            break;
    }
    return RESHARD_OK;
}

static reshard_status find_dtype(const scanner *from, rs_slice text, reshard_dtype *out_dtype)
{
    static const struct {
        const char *text; /* without the byte order */
        reshard_dtype dtype;
    } rows[] = {
        {"b1", RESHARD_BOOL}, {"i1", RESHARD_I8},    {"u1", RESHARD_U8},  {"i2", RESHARD_I16},
        {"u2", RESHARD_U16},  {"i4", RESHARD_I32},   {"u4", RESHARD_U32}, {"i8", RESHARD_I64},
        {"u8", RESHARD_U64},  {"f2", RESHARD_F16},   {"f4", RESHARD_F32}, {"f8", RESHARD_F64},
        {"c8", RESHARD_C64},  {"c16", RESHARD_C128},
    };
    bool is_single = text.count == 3 && text.bytes[2] == '1';
    if (text.count >= 3 && (text.bytes[0] == '<' || (text.bytes[0] == '|' && is_single))) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            if (rs_slice_equals((rs_slice){text.bytes + 1, text.count - 1}, rows[i].text)) {
                *out_dtype = rows[i].dtype;
                return RESHARD_OK;
            }
        }
    }
    const char *why =
        text.count > 1 && text.bytes[0] == '>' ? ", which is big-endian"
        : text.count > 1 && text.bytes[1] == 'O'
            ? ", Python objects, which reshard does not load because they could run code"
        : text.count > 1 && text.bytes[1] == 'V'
            ? ", raw bytes without a type (NumPy saves bfloat16 and float8 like this)"
            : "";
    return rs_fail_about(RESHARD_ERR_UNSUPPORTED, from->what, "its elements are '%.*s'%s",
                         RS_SHOWN(text), why);
}

static reshard_status take_dtype(scanner *from, array *made)
{
    rs_slice text;
    if (take(from, "["))
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, from->what,
                             "its elements are records of several fields");
    reshard_status status = take_text(from, &text);
    return status == RESHARD_OK ? find_dtype(from, text, &made->dtype) : status;
}

static reshard_status take_order(scanner *from, array *made)
{
    made->fortran_order = take(from, "True");
    return made->fortran_order || take(from, "False")
               ? RESHARD_OK
               : fail(from, "'fortran_order' is neither True nor False");
}

static reshard_status parse_header(scanner *from, array *made)
{
    static const struct {
        const char *key;
        reshard_status (*take)(scanner *from, array *made);
    } fields[] = {{"descr", take_dtype}, {"fortran_order", take_order}, {"shape", take_shape}};
    bool seen[3] = {false, false, false};
    reshard_status status = RESHARD_OK;
    if (!take(from, "{"))
        return fail(from, "it does not begin with {");
    while (status == RESHARD_OK && !take(from, "}")) {
        rs_slice key;
        int which = 0;
        status = take_text(from, &key);
        if (status != RESHARD_OK)
            return status;
        while (which < 3 && !rs_slice_equals(key, fields[which].key))
            which++;
        if (which == 3 || seen[which] || !take(from, ":"))
            return fail(from, "its keys are not 'descr', 'fortran_order' and 'shape', each once");
        seen[which] = true;
        status = fields[which].take(from, made);
        skip_spaces(from);
        if (status == RESHARD_OK && !take(from, ",") && (from->at == from->end || *from->at != '}'))
            status = fail(from, "a comma is missing");
    }
    skip_spaces(from);
    if (status == RESHARD_OK && from->at != from->end)
        status = fail(from, "something follows it");
    if (status == RESHARD_OK && !(seen[0] && seen[1] && seen[2]))
        status = fail(from, "one of 'descr', 'fortran_order' and 'shape' is missing");
    return status;
}

/* Reads the header of a .npy in `bytes` bytes of the file from `at` on. */
static reshard_status read_header(reshard_context *context, const char *what, const rs_file *file,
                                  uint64_t at, uint64_t bytes, array *made)
{
    unsigned char head[12];
    size_t head_bytes = bytes < sizeof head ? (size_t)bytes : sizeof head, length;
    reshard_status status = rs_file_read(file, head, head_bytes, at);
    if (status != RESHARD_OK)
        return status;
    if (head_bytes < 10 || memcmp(head, MAGIC, MAGIC_BYTES) != 0)
        return rs_fail_about(RESHARD_ERR_SYNTAX, what, "does not begin like a NumPy file");
    bool is_first = head[MAGIC_BYTES] == 1;
    if (!is_first && head[MAGIC_BYTES] != 2 && head[MAGIC_BYTES] != 3)
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, what,
                             "has version %d of NumPy's format, which cannot be read",
                             head[MAGIC_BYTES]);
    length = (size_t)head[8] | (size_t)head[9] << 8;
    if (!is_first && head_bytes == sizeof head)
        length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    made->data_at = (is_first ? 10 : 12) + length;
    if (length > HEADER_BYTES_MAX || made->data_at > bytes)
        return rs_fail_about(
            RESHARD_ERR_CORRUPT, what,
            "its header has %zu bytes, the file has %llu (a header may have at most %d)", length,
            (unsigned long long)bytes, HEADER_BYTES_MAX);
    char *text = rs_allocate(context, length);
    if (text == NULL)
        return rs_allocation_status();
    status = rs_file_read(file, text, length, at + made->data_at - length);
    scanner from = {what, text, text + length};
    if (status == RESHARD_OK)
        status = parse_header(&from, made);
    rs_release(context, text);
    return status;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* Computes the strides of column-major order, in which the first dim varies fastest. */
static void column_strides(int32_t ndim, const int64_t *shape, int64_t *strides)
{
    int64_t stride = 1;
    for (int32_t d = 0; d < ndim; d++) {
        strides[d] = stride;
        stride *= shape[d];
    }
}

/* Adds the .npy in `bytes` bytes of the checkpoint's file from `at` on. */
static reshard_status add_array(reshard_checkpoint *checkpoint, int32_t file, uint64_t at,
                                uint64_t bytes, rs_slice name, rs_occurrences *list)
{
    array made = {0};
    uint64_t data_bytes = 0;
    const char *what = rs_file_path(checkpoint->files[file].file);
    reshard_status status =
        read_header(checkpoint->context, what, checkpoint->files[file].file, at, bytes, &made);
    if (status == RESHARD_OK)
        status = rs_stored_bytes(name, made.dtype, made.ndim, made.shape, &data_bytes);
    if (status == RESHARD_OK && bytes - made.data_at != data_bytes)
        status =
            rs_fail(RESHARD_ERR_CORRUPT,
                    "tensor \"%.*s\" has %llu bytes of data, but by its shape it should have %llu",
                    RS_SHOWN(name), (unsigned long long)(bytes - made.data_at),
                    (unsigned long long)data_bytes);
    if (status != RESHARD_OK) {
        rs_error_add_subject(what, strlen(what));
        return rs_fail_within(status, "%s", what);
    }
    size_t ndim = (size_t)made.ndim;
    int64_t *numbers = rs_arena_allocate_array(&checkpoint->arena, 2 * ndim, sizeof(int64_t));
    char *copy = rs_arena_allocate(&checkpoint->arena, name.count + 1);
    if (numbers == NULL || copy == NULL)
        return rs_allocation_status();
    memcpy(copy, name.bytes, name.count);
    copy[name.count] = '\0';
    memcpy(numbers, made.shape, ndim * sizeof(int64_t));
    bool by_columns = made.fortran_order && made.ndim > 1 && data_bytes != 0;
    if (by_columns)
        column_strides(made.ndim, made.shape, numbers + ndim);
    return rs_occurrences_add(checkpoint->context, list,
                              &(rs_occurrence){.name = {copy, name.count},
                                               .file = file,
                                               .dtype = made.dtype,
                                               .ndim = made.ndim,
                                               .shape = numbers,
                                               .at = at + made.data_at,
                                               .strides = by_columns ? numbers + ndim : NULL});
}

/* ---- archives -------------------------------------------------------------------------------- */

static void destroy_zip(void *body)
{
    rs_zip_destroy(body);
}

static rs_slice without_ending(rs_slice name)
{
    static const char ending[] = ".npy";
    size_t count = sizeof ending - 1;
    if (name.count > count && memcmp(name.bytes + name.count - count, ending, count) == 0)
        name.count -= count;
    return name;
}

/* Adds a member. A deflated one becomes a file of the checkpoint. */
static reshard_status add_member(reshard_checkpoint *checkpoint, rs_unpacking *unpacking,
                                 int32_t file, const rs_zip_member *member, rs_occurrences *list)
{
    rs_file *content = NULL;
    uint64_t at = member->at;
    if (member->deflated) {
        const rs_stored_file *archive = &checkpoint->files[file];
        reshard_status status =
            rs_unpack_member(unpacking, archive->file, archive->body, member, &content);
        if (status == RESHARD_OK)
            status = rs_store_add_file(checkpoint, member->name, content, &file);
        if (status != RESHARD_OK)
            return status;
        at = 0;
    }
    reshard_status status = rs_fail_within(
        add_array(checkpoint, file, at, member->bytes, without_ending(member->name), list),
        "member \"%.*s\"", RS_SHOWN(member->name));
    return rs_store_keep_unreadable(checkpoint, status, without_ending(member->name));
}

static reshard_status add_archive(reshard_checkpoint *checkpoint, rs_unpacking *unpacking,
                                  int32_t file, rs_occurrences *list)
{
    rs_stored_file *archive = &checkpoint->files[file];
    rs_zip *zip = NULL;
    size_t count = 0;
    reshard_status status =
        rs_zip_open(checkpoint->context, archive->file, 0, archive->bytes, &zip);
    if (status != RESHARD_OK)
        return status;
    archive->body = zip;
    archive->body_destroy = destroy_zip;
    const rs_zip_member *members = rs_zip_members(zip, &count);
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        const rs_zip_member *member = &members[i];
        status = add_member(checkpoint, unpacking, file, member, list);
        if (status == RESHARD_OK && member->crc != 0 && !member->deflated)
            status = rs_store_add_crc(
                checkpoint, &(rs_stored_crc){file, member->crc, member->at, member->bytes});
    }
    return status;
}

/* ---- the format ------------------------------------------------------------------------------ */

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    (void)checkpoint;
    *out_is = false;
    for (int64_t i = 0; i < opening->name_count; i++)
        *out_is = *out_is || is_npy(opening->names[i]) || is_npz(opening->names[i]);
    return RESHARD_OK;
}

static reshard_status open_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    int64_t count = 0;
    char **names =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)opening->name_count, sizeof *names);
    if (names == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < opening->name_count; i++) {
        if (is_npy(opening->names[i]) || is_npz(opening->names[i]))
            names[count++] = opening->names[i];
    }
    return rs_store_open_files(checkpoint, count, names);
}

static reshard_status read_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    rs_occurrences list = {0};
    rs_unpacking *unpacking = NULL;
    reshard_status status = open_files(checkpoint, opening);
    int32_t count = checkpoint->file_count; /* files of deflated members are added after these */
    if (status == RESHARD_OK)
        status = rs_unpacking_create(checkpoint->context, &unpacking);
    for (int32_t i = 0; status == RESHARD_OK && i < count; i++) {
        const rs_stored_file *file = &checkpoint->files[i];
        status = is_npz(file->name) ? add_archive(checkpoint, unpacking, i, &list)
                                    : add_array(checkpoint, i, 0, file->bytes,
                                                without_ending(rs_slice_of(file->name)), &list);
        if (status == RESHARD_OK && rs_context_cancelled(checkpoint->context))
            status = rs_fail_about(RESHARD_ERR_CANCELLED, checkpoint->path, "cancelled");
    }
    if (status == RESHARD_OK)
        status = rs_store_join_whole(checkpoint, &list, RESHARD_HINT_NONE, "");
    rs_unpacking_release(unpacking);
    rs_occurrences_release(checkpoint->context, &list);
    return status;
}

const rs_format rs_format_npy = {
    .name = "npy",
    .description = "NumPy's .npy files and .npz archives, one or a folder of them",
    .looks_for = "*.npy, *.npz",
    .probe = probe,
    .read = read_files,
};
