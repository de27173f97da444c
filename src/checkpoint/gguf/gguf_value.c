/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_value.c - reads and shows the key-values of a GGUF file. */
#include "base/error.h"
#include "checkpoint/gguf/gguf.h"
#include "text/decimal.h"

#include <math.h>
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

/* Reads the bytes of an item that is not a text, as a number without a sign. */
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

static bool is_real(rs_gguf_kind kind)
{
    return kind == RS_GGUF_F32 || kind == RS_GGUF_F64;
}

/* The bits of a whole number as one. *out_is is false beyond int64. */
static int64_t whole_of(rs_gguf_kind kind, uint64_t bits, bool *out_is)
{
    bool is_signed = kind == RS_GGUF_I8 || kind == RS_GGUF_I16 || kind == RS_GGUF_I32;
    int64_t sign = is_signed ? INT64_C(1) << (8 * rs_gguf_kind_bytes(kind) - 1) : 0;
    *out_is = kind != RS_GGUF_U64 || bits <= INT64_MAX;
    return (int64_t)(bits ^ (uint64_t)sign) - sign;
}

static double real_of(rs_gguf_kind kind, uint64_t bits)
{
    uint32_t narrow = (uint32_t)bits;
    float number;
    double wide;
    memcpy(&number, &narrow, sizeof number);
    memcpy(&wide, &bits, sizeof wide);
    return kind == RS_GGUF_F64 ? wide : (double)number;
}

reshard_status rs_gguf_number(const rs_file *file, const rs_gguf_value *value, uint64_t index,
                              int64_t *out_number, bool *out_is)
{
    uint64_t bits = 0;
    rs_gguf_kind kind = value->item_kind;
    *out_is = false;
    if (is_real(kind) || kind == RS_GGUF_TEXT || index >= value->count)
        return RESHARD_OK;
    reshard_status status = read_item(file, value, index, &bits);
    if (status == RESHARD_OK)
        *out_number = whole_of(kind, bits, out_is);
    return status;
}

reshard_status rs_gguf_real(const rs_file *file, const rs_gguf_value *value, uint64_t index,
                            double *out_number, bool *out_is)
{
    uint64_t bits = 0;
    *out_is = is_real(value->item_kind) && index < value->count;
    if (!*out_is)
        return RESHARD_OK;
    reshard_status status = read_item(file, value, index, &bits);
    if (status == RESHARD_OK)
        *out_number = real_of(value->item_kind, bits);
    return status;
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
#define CHUNK 4096

static bool is_full(const rs_text *text)
{
    return text->length >= text->capacity;
}

const char *rs_gguf_type_name(const rs_gguf_value *value)
{
    static const char *const names[RS_GGUF_KIND_COUNT][2] = {
        [RS_GGUF_U8] = {"u8", "list of u8"},     [RS_GGUF_I8] = {"i8", "list of i8"},
        [RS_GGUF_U16] = {"u16", "list of u16"},  [RS_GGUF_I16] = {"i16", "list of i16"},
        [RS_GGUF_U32] = {"u32", "list of u32"},  [RS_GGUF_I32] = {"i32", "list of i32"},
        [RS_GGUF_F32] = {"f32", "list of f32"},  [RS_GGUF_BOOL] = {"bool", "list of bool"},
        [RS_GGUF_TEXT] = {"str", "list of str"}, [RS_GGUF_U64] = {"u64", "list of u64"},
        [RS_GGUF_I64] = {"i64", "list of i64"},  [RS_GGUF_F64] = {"f64", "list of f64"}};
    return names[value->item_kind][value->kind == RS_GGUF_LIST];
}

/* The bytes of a part without the UTF-8 sequence that it may end within. */
static size_t end_between_sequences(const char *bytes, size_t part)
{
    for (size_t back = 1; back <= 3 && back < part; back++) {
        unsigned char byte = (unsigned char)bytes[part - back];
        if (byte < 0x80)
            break;
        if (byte >= 0xc0)
            return part - back;
    }
    return part;
}

/* Adds `count` bytes of the file as a JSON string, a part at a time. */
static reshard_status quote_bytes(const rs_file *file, uint64_t at, uint64_t count, rs_text *text)
{
    char bytes[CHUNK], quoted[6 * CHUNK + 3];
    rs_text_add(text, "\"");
    for (uint64_t done = 0; done < count && !is_full(text);) {
        size_t part = count - done < CHUNK ? (size_t)(count - done) : CHUNK;
        rs_text inner;
        reshard_status status = rs_file_read(file, bytes, part, at + done);
        if (status != RESHARD_OK)
            return status;
        if (done + part < count)
            part = end_between_sequences(bytes, part);
        rs_text_init(&inner, quoted, sizeof quoted);
        rs_text_add_quoted(&inner, bytes, part);
        rs_text_add(text, "%.*s", (int)(inner.length - 2), quoted + 1);
        done += part;
    }
    rs_text_add(text, "\"");
    return RESHARD_OK;
}

/* Shows the text at a place of the file, and moves the place behind it. */
static reshard_status show_text(const rs_file *file, uint64_t shown_max, uint64_t *at,
                                rs_text *text)
{
    unsigned char length_bytes[8];
    reshard_status status = rs_file_read(file, length_bytes, 8, *at);
    if (status != RESHARD_OK)
        return status;
    uint64_t length = rs_gguf_little(length_bytes, 8);
    uint64_t shown = length < shown_max ? length : shown_max;
    status = quote_bytes(file, *at + 8, shown, text);
    if (shown < length)
        rs_text_add(text, "..");
    *at += 8 + length;
    return status;
}

/* The shortest decimal number that is read as the same f32 or f64; a text if it is infinite or no
 * number, which JSON does not have. */
static void show_real(const rs_gguf_value *value, double real, rs_text *text)
{
    bool is_narrow = value->item_kind == RS_GGUF_F32;
    if (!isfinite(real)) {
        rs_text_add(text, "\"%g\"", real);
        return;
    }
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

static void show_bits(const rs_gguf_value *value, uint64_t bits, rs_text *text)
{
    rs_gguf_kind kind = value->item_kind;
    bool is = false;
    int64_t whole = whole_of(kind, bits, &is);
    if (is_real(kind))
        show_real(value, real_of(kind, bits), text);
    else if (kind == RS_GGUF_BOOL)
        rs_text_add(text, "%s", whole != 0 ? "true" : "false");
    else
        rs_text_add(text, is ? "%lld" : "%llu", (long long)whole);
}

static reshard_status show_texts(const rs_file *file, const rs_gguf_value *value, uint64_t count,
                                 uint64_t shown_max, rs_text *text)
{
    uint64_t at = value->at;
    reshard_status status = RESHARD_OK;
    for (uint64_t i = 0; status == RESHARD_OK && i < count && !is_full(text); i++) {
        rs_text_add(text, i == 0 ? "" : ", ");
        status = show_text(file, shown_max, &at, text);
    }
    return status;
}

/* Reads many numbers at once. */
static reshard_status show_numbers(const rs_file *file, const rs_gguf_value *value, uint64_t count,
                                   rs_text *text)
{
    unsigned char bytes[CHUNK];
    size_t each = rs_gguf_kind_bytes(value->item_kind), most = CHUNK / each;
    for (uint64_t done = 0; done < count && !is_full(text);) {
        size_t part = count - done < most ? (size_t)(count - done) : most;
        reshard_status status = rs_file_read(file, bytes, part * each, value->at + done * each);
        if (status != RESHARD_OK)
            return status;
        for (size_t i = 0; i < part && !is_full(text); i++) {
            rs_text_add(text, done + i == 0 ? "" : ", ");
            show_bits(value, rs_gguf_little(bytes + i * each, each), text);
        }
        done += part;
    }
    return RESHARD_OK;
}

static reshard_status show_items(const rs_file *file, const rs_gguf_value *value,
                                 uint64_t items_max, uint64_t shown_max, rs_text *text)
{
    bool is_list = value->kind == RS_GGUF_LIST;
    uint64_t count = is_list && items_max < value->count ? items_max : value->count;
    rs_text_add(text, is_list ? "[" : "");
    reshard_status status = value->item_kind == RS_GGUF_TEXT
                                ? show_texts(file, value, count, shown_max, text)
                                : show_numbers(file, value, count, text);
    if (is_list && value->count > count)
        rs_text_add(text, ", .. %llu in all", (unsigned long long)value->count);
    rs_text_add(text, is_list ? "]" : "");
    return status;
}

reshard_status rs_gguf_show(const rs_file *file, const rs_gguf_value *value,
                            char buffer[RS_GGUF_SHOWN])
{
    rs_text text;
    rs_text_init(&text, buffer, RS_GGUF_SHOWN);
    return show_items(file, value, ITEMS_SHOWN, TEXT_SHOWN, &text);
}

reshard_status rs_gguf_show_all(const rs_file *file, const rs_gguf_value *value, int64_t items_max,
                                rs_text *text)
{
    return show_items(file, value, items_max < 0 ? UINT64_MAX : (uint64_t)items_max, UINT64_MAX,
                      text);
}
