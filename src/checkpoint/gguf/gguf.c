/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.c - reads the head of a GGUF file from front to back, through a small buffer. */
#include "checkpoint/gguf/gguf.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/sort.h"

#include <assert.h>
#include <string.h>

#define BUFFER_BYTES ((size_t)64 << 10)
#define KEY_BYTES_MAX 65535
/* ggml's own limit is 63; programs that raise it leave longer names in their files. */
#define NAME_BYTES_MAX 127
#define ALIGNMENT_USUAL 32

/* ---- bytes ----------------------------------------------------------------------------------- */

typedef struct scanner {
    reshard_context *context;
    const rs_file *file;
    const char *what; /* for error texts */
    uint64_t bytes;   /* of the file */
    uint64_t at;      /* next byte of the file */
    uint64_t begin;   /* of the buffer, in the file */
    size_t held;
    char *buffer;
} scanner;

static reshard_status fail_short(const scanner *from, uint64_t wanted, const char *of)
{
    return rs_fail_about(RESHARD_ERR_CORRUPT, from->what,
                         "%s at byte %llu takes %llu bytes, but the file ends after %llu", of,
                         (unsigned long long)from->at, (unsigned long long)wanted,
                         (unsigned long long)(from->bytes - from->at));
}

static reshard_status skip(scanner *from, uint64_t count, const char *of)
{
    if (count > from->bytes - from->at)
        return fail_short(from, count, of);
    from->at += count;
    return RESHARD_OK;
}

/* Copies the next bytes, no more than the buffer holds. */
static reshard_status take(scanner *from, void *bytes, size_t count, const char *of)
{
    assert(count <= BUFFER_BYTES);
    if (count > from->bytes - from->at)
        return fail_short(from, count, of);
    if (from->at < from->begin || from->at + count > from->begin + from->held) {
        uint64_t left = from->bytes - from->at;
        from->begin = from->at;
        from->held = left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
        reshard_status status = rs_file_read(from->file, from->buffer, from->held, from->begin);
        if (status != RESHARD_OK) {
            from->held = 0;
            return status;
        }
    }
    memcpy(bytes, from->buffer + (from->at - from->begin), count);
    from->at += count;
    return RESHARD_OK;
}

static reshard_status take_number(scanner *from, size_t count, const char *of, uint64_t *out_number)
{
    unsigned char bytes[8];
    reshard_status status = take(from, bytes, count, of);
    if (status == RESHARD_OK)
        *out_number = rs_gguf_little(bytes, count);
    return status;
}

/* Takes a text of at most `most` bytes into the arena, with a NUL behind it. */
static reshard_status take_text(scanner *from, rs_arena *arena, uint64_t most, const char *of,
                                rs_slice *out_text)
{
    uint64_t length = 0;
    reshard_status status = take_number(from, 8, of, &length);
    if (status != RESHARD_OK)
        return status;
    if (length == 0 || length > most)
        return rs_fail_about(RESHARD_ERR_SYNTAX, from->what,
                             "%s at byte %llu has %llu bytes; 1 to %llu are allowed", of,
                             (unsigned long long)(from->at - 8), (unsigned long long)length,
                             (unsigned long long)most);
    if (length > from->bytes - from->at)
        return fail_short(from, length, of);
    char *text = rs_arena_allocate(arena, (size_t)length + 1);
    if (text == NULL)
        return rs_allocation_status();
    text[length] = '\0';
    *out_text = (rs_slice){text, (size_t)length};
    return take(from, text, (size_t)length, of);
}

/* ---- key-values ------------------------------------------------------------------------------ */

static reshard_status skip_items(scanner *from, rs_gguf_value *value)
{
    uint64_t each = rs_gguf_kind_bytes(value->item_kind), bytes = 0;
    value->at = from->at;
    if (each != 0 && __builtin_mul_overflow(each, value->count, &bytes))
        bytes = UINT64_MAX;
    if (each != 0) {
        reshard_status status = skip(from, bytes, value->key.bytes);
        value->bytes = from->at - value->at;
        return status;
    }
    for (uint64_t i = 0; i < value->count; i++) {
        uint64_t length = 0;
        reshard_status status = take_number(from, 8, value->key.bytes, &length);
        if (status == RESHARD_OK)
            status = skip(from, length, value->key.bytes);
        if (status == RESHARD_OK && i % 4096 == 4095 && rs_context_cancelled(from->context))
            status = rs_fail_about(RESHARD_ERR_CANCELLED, from->what, "cancelled");
        if (status != RESHARD_OK)
            return status;
    }
    value->bytes = from->at - value->at;
    return RESHARD_OK;
}

static reshard_status take_kind(scanner *from, rs_slice key, rs_gguf_kind *out_kind)
{
    uint64_t kind = 0;
    reshard_status status = take_number(from, 4, key.bytes, &kind);
    if (status != RESHARD_OK)
        return status;
    if (kind >= RS_GGUF_KIND_COUNT)
        return rs_fail_about(RESHARD_ERR_SYNTAX, from->what,
                             "key \"%.*s\": its value has kind %llu; kinds are numbered 0 to %d",
                             rs_slice_shown(key), key.bytes, (unsigned long long)kind,
                             RS_GGUF_KIND_COUNT - 1);
    *out_kind = (rs_gguf_kind)kind;
    return RESHARD_OK;
}

static reshard_status take_value(scanner *from, rs_gguf *gguf, rs_gguf_value *value)
{
    *value = (rs_gguf_value){.count = 1};
    reshard_status status = take_text(from, &gguf->arena, KEY_BYTES_MAX, "a key", &value->key);
    if (status == RESHARD_OK)
        status = take_kind(from, value->key, &value->kind);
    value->item_kind = value->kind;
    if (status == RESHARD_OK && value->kind == RS_GGUF_LIST) {
        status = take_kind(from, value->key, &value->item_kind);
        if (status == RESHARD_OK && value->item_kind == RS_GGUF_LIST)
            return rs_fail_about(RESHARD_ERR_UNSUPPORTED, from->what,
                                 "key \"%.*s\": its value is a list of lists, which cannot be read",
                                 rs_slice_shown(value->key), value->key.bytes);
        if (status == RESHARD_OK)
            status = take_number(from, 8, value->key.bytes, &value->count);
    }
    return status == RESHARD_OK ? skip_items(from, value) : status;
}

static int compare_keys(const void *a, const void *b)
{
    const rs_slice *x = a, *y = b;
    return rs_slice_compare(*x, *y);
}

static reshard_status check_keys(const scanner *from, const rs_gguf *gguf)
{
    size_t count = (size_t)gguf->value_count;
    reshard_status status = RESHARD_OK;
    rs_slice *keys = rs_allocate_array(from->context, count, sizeof *keys);
    if (keys == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        keys[i] = gguf->values[i].key;
    rs_sort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; status == RESHARD_OK && i < count; i++) {
        if (rs_slice_compare(keys[i - 1], keys[i]) == 0)
            status = rs_fail_about(RESHARD_ERR_SYNTAX, from->what, "key \"%.*s\" occurs twice",
                                   rs_slice_shown(keys[i]), keys[i].bytes);
    }
    rs_release(from->context, keys);
    return status;
}

static reshard_status take_values(scanner *from, rs_gguf *gguf, uint64_t count)
{
    gguf->values_at = from->at;
    for (uint64_t i = 0; i < count; i++) {
        reshard_status status = rs_grow(from->context, &gguf->values, &gguf->value_capacity,
                                        gguf->value_count + 1, sizeof *gguf->values);
        if (status == RESHARD_OK)
            status = take_value(from, gguf, &gguf->values[gguf->value_count]);
        if (status != RESHARD_OK)
            return status;
        gguf->value_count++;
    }
    gguf->values_end = from->at;
    return check_keys(from, gguf);
}

static reshard_status find_alignment(const scanner *from, rs_gguf *gguf)
{
    const rs_gguf_value *value = rs_gguf_find(gguf, "general.alignment");
    int64_t number = 0;
    bool is = false;
    gguf->alignment = ALIGNMENT_USUAL;
    if (value == NULL)
        return RESHARD_OK;
    reshard_status status = rs_gguf_number(from->file, value, 0, &number, &is);
    if (status != RESHARD_OK)
        return status;
    if (!is || value->kind != RS_GGUF_U32 || number == 0 || (number & (number - 1)) != 0)
        return rs_fail_about(RESHARD_ERR_SYNTAX, from->what,
                             "general.alignment must be a u32 and a power of two");
    gguf->alignment = (uint64_t)number;
    return RESHARD_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

reshard_dtype rs_gguf_plain_dtype(uint32_t type)
{
    switch (type) {
    case 0:
        return RESHARD_F32;
    case 1:
        return RESHARD_F16;
    case 24:
        return RESHARD_I8;
    case 25:
        return RESHARD_I16;
    case 26:
        return RESHARD_I32;
    case 27:
        return RESHARD_I64;
    case 28:
        return RESHARD_F64;
    case 30:
        return RESHARD_BF16;
    default:
        return RESHARD_DTYPE_NONE;
    }
}

static reshard_status fail_tensor(const scanner *from, reshard_status status,
                                  const rs_gguf_tensor *tensor, const char *words, uint64_t number)
{
    return rs_fail_about(status, from->what, "tensor \"%.*s\": %s%llu",
                         rs_slice_shown(tensor->name), tensor->name.bytes, words,
                         (unsigned long long)number);
}

static reshard_status take_shape(scanner *from, rs_gguf *gguf, rs_gguf_tensor *tensor)
{
    uint64_t ndim = 0;
    reshard_status status = take_number(from, 4, tensor->name.bytes, &ndim);
    if (status != RESHARD_OK)
        return status;
    if (ndim > RS_GGUF_NDIM_MAX)
        return fail_tensor(from, RESHARD_ERR_UNSUPPORTED, tensor,
                           "it has more than four dimensions: ", ndim);
    int64_t *shape = rs_arena_allocate_array(&gguf->arena, (size_t)ndim, sizeof *shape);
    if (shape == NULL)
        return rs_allocation_status();
    for (uint64_t i = ndim; i-- > 0;) {
        uint64_t extent = 0;
        status = take_number(from, 8, tensor->name.bytes, &extent);
        if (status == RESHARD_OK && extent > INT64_MAX)
            status = fail_tensor(from, RESHARD_ERR_RANGE, tensor,
                                 "an extent is beyond 2^63-1: ", extent);
        if (status != RESHARD_OK)
            return status;
        shape[i] = (int64_t)extent;
    }
    tensor->ndim = (int32_t)ndim;
    tensor->shape = shape;
    return RESHARD_OK;
}

/* Finds the tensor's type, and how many bytes it takes in the file. */
static reshard_status size_tensor(const scanner *from, rs_gguf_tensor *tensor)
{
    int64_t each = 1, elements = 1, bytes = 0;
    tensor->dtype = rs_gguf_plain_dtype(tensor->type);
    if (tensor->dtype == RESHARD_DTYPE_NONE) {
        tensor->block_type = rs_block_type_find(rs_cpu_detect(), tensor->type);
        tensor->dtype = RESHARD_F32;
        if (tensor->block_type == NULL)
            return fail_tensor(from, RESHARD_ERR_UNSUPPORTED, tensor,
                               "ggml has no type with the number ", tensor->type);
        each = tensor->block_type->elements;
    }
    int64_t row = tensor->ndim > 0 ? tensor->shape[tensor->ndim - 1] : 1;
    if (row % each != 0)
        return rs_fail_about(RESHARD_ERR_SYNTAX, from->what,
                             "tensor \"%.*s\": its rows have %lld elements, which is not a "
                             "multiple of the %lld in a block of %s",
                             rs_slice_shown(tensor->name), tensor->name.bytes, (long long)row,
                             (long long)each, tensor->block_type->name);
    bool fits = true;
    for (int32_t d = 0; d < tensor->ndim; d++)
        fits = fits && rs_multiply(elements, tensor->shape[d], &elements);
    int64_t unit = tensor->block_type != NULL ? tensor->block_type->bytes
                                              : reshard_dtype_bits(tensor->dtype) / 8;
    if (!fits || !rs_multiply(elements / each, unit, &bytes) ||
        !rs_multiply(elements, (int64_t)sizeof(float), &elements))
        return rs_fail_about(RESHARD_ERR_RANGE, from->what,
                             "tensor \"%.*s\": its size goes beyond 63 bits",
                             rs_slice_shown(tensor->name), tensor->name.bytes);
    tensor->bytes = (uint64_t)bytes;
    return RESHARD_OK;
}

/* Like ggml, takes tensors only where each begins at the alignment after the one before. */
static reshard_status take_tensor(scanner *from, rs_gguf *gguf, uint64_t *next,
                                  rs_gguf_tensor *tensor)
{
    uint64_t type = 0, offset = 0;
    *tensor = (rs_gguf_tensor){.type = 0};
    reshard_status status =
        take_text(from, &gguf->arena, NAME_BYTES_MAX, "a tensor's name", &tensor->name);
    if (status == RESHARD_OK)
        status = take_shape(from, gguf, tensor);
    if (status == RESHARD_OK)
        status = take_number(from, 4, tensor->name.bytes, &type);
    if (status == RESHARD_OK)
        status = take_number(from, 8, tensor->name.bytes, &offset);
    tensor->type = (uint32_t)type;
    if (status == RESHARD_OK)
        status = size_tensor(from, tensor);
    if (status != RESHARD_OK)
        return status;
    if (offset != *next)
        return rs_fail_about(RESHARD_ERR_CORRUPT, from->what,
                             "tensor \"%.*s\" begins at byte %llu of the data, but the one before "
                             "it ends at %llu, with its padding",
                             rs_slice_shown(tensor->name), tensor->name.bytes,
                             (unsigned long long)offset, (unsigned long long)*next);
    tensor->at = offset; /* the data's own place is added once it is known */
    uint64_t padded = (tensor->bytes + gguf->alignment - 1) / gguf->alignment * gguf->alignment;
    if (__builtin_add_overflow(*next, padded, next))
        return fail_tensor(from, RESHARD_ERR_RANGE, tensor, "ends beyond 2^64; it begins at ",
                           offset);
    return RESHARD_OK;
}

static reshard_status check_places(const scanner *from, rs_gguf *gguf)
{
    gguf->data_at = (from->at + gguf->alignment - 1) / gguf->alignment * gguf->alignment;
    for (int64_t i = 0; i < gguf->tensor_count; i++) {
        rs_gguf_tensor *tensor = &gguf->tensors[i];
        uint64_t end = 0;
        bool fits = !__builtin_add_overflow(tensor->at, gguf->data_at, &tensor->at) &&
                    !__builtin_add_overflow(tensor->at, tensor->bytes, &end);
        if (tensor->bytes != 0 && (!fits || end > from->bytes))
            return rs_fail_about(RESHARD_ERR_CORRUPT, from->what,
                                 "tensor \"%.*s\" has %llu bytes from byte %llu on, but the file "
                                 "has %llu bytes; is the download complete?",
                                 rs_slice_shown(tensor->name), tensor->name.bytes,
                                 (unsigned long long)tensor->bytes, (unsigned long long)tensor->at,
                                 (unsigned long long)from->bytes);
    }
    return RESHARD_OK;
}

static reshard_status take_tensors(scanner *from, rs_gguf *gguf, uint64_t count)
{
    uint64_t next = 0;
    for (uint64_t i = 0; i < count; i++) {
        reshard_status status = rs_grow(from->context, &gguf->tensors, &gguf->tensor_capacity,
                                        gguf->tensor_count + 1, sizeof *gguf->tensors);
        if (status == RESHARD_OK)
            status = take_tensor(from, gguf, &next, &gguf->tensors[gguf->tensor_count]);
        if (status != RESHARD_OK)
            return status;
        gguf->tensor_count++;
    }
    return check_places(from, gguf);
}

/* ---- the head -------------------------------------------------------------------------------- */

static reshard_status take_head(scanner *from, rs_gguf *gguf)
{
    char magic[4];
    uint64_t version = 0, tensors = 0, values = 0;
    reshard_status status = take(from, magic, sizeof magic, "the magic");
    if (status == RESHARD_OK && memcmp(magic, RS_GGUF_MAGIC, sizeof magic) != 0)
        return rs_fail_about(RESHARD_ERR_SYNTAX, from->what, "does not begin with GGUF");
    if (status == RESHARD_OK)
        status = take_number(from, 4, "the version", &version);
    if (status == RESHARD_OK && version != 0 && (version & 0xffff) == 0)
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, from->what,
                             "its numbers are big-endian, which cannot be read; convert it with "
                             "llama.cpp's gguf_convert_endian.py");
    if (status == RESHARD_OK && version != 2 && version != 3)
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, from->what,
                             "has version %llu of GGUF; versions 2 and 3 can be read",
                             (unsigned long long)version);
    gguf->version = (uint32_t)version;
    if (status == RESHARD_OK)
        status = take_number(from, 8, "the number of tensors", &tensors);
    if (status == RESHARD_OK)
        status = take_number(from, 8, "the number of key-values", &values);
    if (status == RESHARD_OK)
        status = take_values(from, gguf, values);
    if (status == RESHARD_OK)
        status = find_alignment(from, gguf);
    return status == RESHARD_OK ? take_tensors(from, gguf, tensors) : status;
}

reshard_status rs_gguf_read(reshard_context *context, const rs_file *file, rs_gguf **out_gguf)
{
    scanner from = {.context = context, .file = file, .what = rs_file_path(file)};
    reshard_status status = rs_file_size(file, &from.bytes);
    if (status != RESHARD_OK)
        return status;
    rs_gguf *gguf = rs_allocate_zeroed(context, sizeof *gguf);
    if (gguf == NULL)
        return rs_allocation_status();
    rs_arena_init(&gguf->arena, context);
    from.buffer = rs_allocate(context, BUFFER_BYTES);
    status = from.buffer != NULL ? take_head(&from, gguf) : rs_allocation_status();
    rs_release(context, from.buffer);
    if (status != RESHARD_OK)
        rs_gguf_destroy(gguf);
    else
        *out_gguf = gguf;
    return status;
}

void rs_gguf_destroy(void *body)
{
    rs_gguf *gguf = body;
    if (gguf == NULL)
        return;
    reshard_context *context = gguf->arena.context;
    rs_release(context, gguf->values);
    rs_release(context, gguf->tensors);
    rs_arena_release(&gguf->arena);
    rs_release(context, gguf);
}
