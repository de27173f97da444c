/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_value.c - reads and shows the key-values of a GGUF file. */
#include "base/error.h"
#include "checkpoint/format/gguf.h"
#include "text/decimal.h"
#include "text/text.h"

#include <string.h>

size_t rs_gguf_kind_bytes(rs_gguf_kind kind)
{
    static const uint8_t bytes[RS_GGUF_KIND_COUNT] = {
        [RS_GGUF_U8] = 1,  [RS_GGUF_I8] = 1,  [RS_GGUF_U16] = 2, [RS_GGUF_I16] = 2,
        [RS_GGUF_U32] = 4, [RS_GGUF_I32] = 4, [RS_GGUF_F32] = 4, [RS_GGUF_BOOL] = 1,
        [RS_GGUF_U64] = 8, [RS_GGUF_I64] = 8, [RS_GGUF_F64] = 8};
    return bytes[kind];
}

uint64_t rs_gguf_little(const unsigned char *bytes, size_t count)
{
    uint64_t number = 0;
    for (size_t i = count; i-- > 0;)
        number = number << 8 | bytes[i];
    return number;
}

/* ---- reading values -------------------------------------------------------------------------- */

const rs_gguf_value *rs_gguf_find(const rs_gguf *gguf, const char *key)
{
    for (int64_t i = 0; i < gguf->value_count; i++) {
        if (rs_slice_equals(gguf->values[i].key, key))
            return &gguf->values[i];
    }
    return NULL;
}

/* Reads the bytes of an item that is no text, as a number without a sign. */
static reshard_status read_item(const rs_file *file, const rs_gguf_value *value, uint64_t index,
                                uint64_t *out_bits)
{
    unsigned char bytes[8];
    size_t each = rs_gguf_kind_bytes(value->item_kind);
    reshard_status status = rs_file_read(file, bytes, each, value->at + index * each);
    if (status == RESHARD_OK)
        *out_bits = rs_gguf_little(bytes, each);
    return status;
}

reshard_status rs_gguf_number(const rs_file *file, const rs_gguf_value *value, uint64_t index,
                              int64_t *out_number, bool *out_is)
{
    uint64_t bits = 0;
    rs_gguf_kind kind = value->item_kind;
    *out_is = false;
    if (kind == RS_GGUF_F32 || kind == RS_GGUF_F64 || kind == RS_GGUF_TEXT || index >= value->count)
        return RESHARD_OK;
    reshard_status status = read_item(file, value, index, &bits);
    if (status != RESHARD_OK)
        return status;
    *out_is = kind != RS_GGUF_U64 || bits <= INT64_MAX;
    bool is_signed = kind == RS_GGUF_I8 || kind == RS_GGUF_I16 || kind == RS_GGUF_I32;
    int64_t sign = is_signed ? INT64_C(1) << (8 * rs_gguf_kind_bytes(kind) - 1) : 0;
    *out_number = (int64_t)(bits ^ (uint64_t)sign) - sign;
    return RESHARD_OK;
}

reshard_status rs_gguf_real(const rs_file *file, const rs_gguf_value *value, uint64_t index,
                            double *out_number, bool *out_is)
{
    uint64_t bits = 0;
    *out_is = (value->item_kind == RS_GGUF_F32 || value->item_kind == RS_GGUF_F64) &&
              index < value->count;
    if (!*out_is)
        return RESHARD_OK;
    reshard_status status = read_item(file, value, index, &bits);
    if (status != RESHARD_OK)
        return status;
    if (value->item_kind == RS_GGUF_F64) {
        memcpy(out_number, &bits, sizeof *out_number);
    } else {
        uint32_t narrow = (uint32_t)bits;
        float number;
        memcpy(&number, &narrow, sizeof number);
        *out_number = (double)number;
    }
    return RESHARD_OK;
}

reshard_status rs_gguf_text(const rs_file *file, const rs_gguf_value *value, char *buffer,
                            size_t capacity, bool *out_is)
{
    uint64_t length = value->bytes - 8;
    *out_is = value->kind == RS_GGUF_TEXT && length < capacity;
    if (!*out_is)
        return RESHARD_OK;
    buffer[length] = '\0';
    return rs_file_read(file, buffer, (size_t)length, value->at + 8);
}

/* ---- showing values -------------------------------------------------------------------------- */

#define ITEMS_SHOWN 6
#define TEXT_SHOWN 60

/* Shows the text at a place of the file, and moves the place behind it. */
static reshard_status show_text(const rs_file *file, uint64_t *at, rs_text *text)
{
    char bytes[TEXT_SHOWN];
    unsigned char length_bytes[8];
    reshard_status status = rs_file_read(file, length_bytes, 8, *at);
    if (status != RESHARD_OK)
        return status;
    uint64_t length = rs_gguf_little(length_bytes, 8);
    size_t shown = length < TEXT_SHOWN ? (size_t)length : TEXT_SHOWN;
    status = rs_file_read(file, bytes, shown, *at + 8);
    if (status != RESHARD_OK)
        return status;
    rs_text_add_quoted(text, bytes, shown);
    if (shown < length)
        rs_text_add(text, "..");
    *at += 8 + length;
    return RESHARD_OK;
}

/* The shortest decimal number that is read as the same f32 or f64. */
static void show_real(const rs_gguf_value *value, double real, rs_text *text)
{
    bool is_narrow = value->item_kind == RS_GGUF_F32;
    for (int digits = is_narrow ? 6 : 15; digits <= (is_narrow ? 9 : 17); digits++) {
        char buffer[40];
        rs_text shown;
        rs_text_init(&shown, buffer, sizeof buffer);
        rs_text_add(&shown, "%.*g", digits, real);
        double read = rs_parse_double(buffer, NULL);
        if (digits == (is_narrow ? 9 : 17) ||
            (is_narrow ? (float)read == (float)real : read == real)) {
            rs_text_add(text, "%s", buffer);
            return;
        }
    }
}

static reshard_status show_item(const rs_file *file, const rs_gguf_value *value, uint64_t index,
                                uint64_t *at, rs_text *text)
{
    int64_t whole = 0;
    double real = 0;
    bool is = false;
    if (value->item_kind == RS_GGUF_TEXT)
        return show_text(file, at, text);
    reshard_status status = rs_gguf_real(file, value, index, &real, &is);
    if (status == RESHARD_OK && is) {
        show_real(value, real, text);
        return RESHARD_OK;
    }
    if (status == RESHARD_OK)
        status = rs_gguf_number(file, value, index, &whole, &is);
    if (status != RESHARD_OK)
        return status;
    if (value->item_kind == RS_GGUF_BOOL)
        rs_text_add(text, "%s", whole != 0 ? "true" : "false");
    else
        rs_text_add(text, is ? "%lld" : "%llu", (long long)whole);
    return RESHARD_OK;
}

reshard_status rs_gguf_show(const rs_file *file, const rs_gguf_value *value,
                            char buffer[RS_GGUF_SHOWN])
{
    uint64_t at = value->at;
    rs_text text;
    reshard_status status = RESHARD_OK;
    bool is_list = value->kind == RS_GGUF_LIST;
    rs_text_init(&text, buffer, RS_GGUF_SHOWN);
    rs_text_add(&text, is_list ? "[" : "");
    for (uint64_t i = 0; status == RESHARD_OK && i < value->count && i < ITEMS_SHOWN; i++) {
        rs_text_add(&text, i == 0 ? "" : ", ");
        status = show_item(file, value, i, &at, &text);
    }
    if (is_list && value->count > ITEMS_SHOWN)
        rs_text_add(&text, ", .. %llu in all", (unsigned long long)value->count);
    rs_text_add(&text, is_list ? "]" : "");
    return status;
}
