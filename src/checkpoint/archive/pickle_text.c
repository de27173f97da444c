/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_text.c - converts decimal numbers to binary and escaped texts to UTF-8. It accepts what
 * Python's reader accepts, except underscores, spaces and hexadecimal numbers, which no writer
 * uses. */
#include "checkpoint/archive/pickle_text.h"

#include "text/decimal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define FLOAT_CHARACTERS_MAX 400 /* the longest repr has 24 */

/* ---- numbers --------------------------------------------------------------------------------- */

size_t rs_pickle_trim(const char *bytes, size_t count)
{
    const unsigned char *from = (const unsigned char *)bytes;
    while (count > 1) {
        unsigned char sign = (from[count - 2] & 0x80) != 0 ? 0xff : 0x00;
        if (from[count - 1] != sign)
            return count;
        count--;
    }
    return count == 1 && from[0] == 0 ? 0 : count;
}

int64_t rs_pickle_small(const char *bytes, size_t count)
{
    assert(count <= 8);
    uint64_t value = count != 0 && (bytes[count - 1] & 0x80) != 0 ? UINT64_MAX : 0;
    for (size_t i = count; i > 0; i--)
        value = value << 8 | (unsigned char)bytes[i - 1];
    return (int64_t)value;
}

/* bytes = bytes * 10 + digit; returns the new number of bytes in use. */
static size_t append_digit(unsigned char *bytes, size_t count, unsigned digit)
{
    unsigned carry = digit;
    for (size_t i = 0; i < count; i++) {
        carry += bytes[i] * 10U;
        bytes[i] = (unsigned char)carry;
        carry >>= 8;
    }
    if (carry != 0)
        bytes[count++] = (unsigned char)carry;
    return count;
}

static void negate(unsigned char *bytes, size_t count)
{
    unsigned carry = 1;
    for (size_t i = 0; i < count; i++) {
        carry += (unsigned char)~bytes[i];
        bytes[i] = (unsigned char)carry;
        carry >>= 8;
    }
}

const char *rs_pickle_parse_integer(rs_slice text, char out_bytes[RS_PICKLE_LARGE_BYTES_MAX],
                                    size_t *out_count)
{
    unsigned char *bytes = (unsigned char *)out_bytes;
    bool negative = text.count != 0 && text.bytes[0] == '-';
    size_t at = negative || (text.count != 0 && text.bytes[0] == '+') ? 1 : 0;
    size_t count = 0;
    if (at == text.count)
        return "the number has no digits";
    if (text.count - at > RS_PICKLE_DIGITS_MAX)
        return "the number has more than 4300 digits";
    for (; at < text.count; at++) {
        char c = text.bytes[at];
        if (c < '0' || c > '9')
            return "its argument is not a decimal number";
        count = append_digit(bytes, count, (unsigned)(c - '0'));
    }
    bytes[count++] = 0; /* the sign */
    if (negative)
        negate(bytes, count);
    *out_count = rs_pickle_trim(out_bytes, count);
    return NULL;
}

/* Only the characters of Python's repr; strtod would accept more. */
static bool is_float(rs_slice text)
{
    const char *digits = text.bytes;
    size_t count = text.count;
    if (count != 0 && (*digits == '-' || *digits == '+'))
        digits++, count--;
    if (count == 3 && (memcmp(digits, "nan", 3) == 0 || memcmp(digits, "inf", 3) == 0))
        return true;
    for (size_t i = 0; i < count; i++) {
        if (memchr("0123456789.eE+-", digits[i], 15) == NULL)
            return false;
    }
    return count != 0 && count < FLOAT_CHARACTERS_MAX;
}

const char *rs_pickle_parse_float(rs_slice text, double *out_real)
{
    char copy[FLOAT_CHARACTERS_MAX + 1], *end = NULL;
    if (!is_float(text))
        return "its argument is not a float";
    memcpy(copy, text.bytes, text.count);
    copy[text.count] = '\0';
    double real = rs_parse_double(copy, &end);
    if (end != copy + text.count)
        return "its argument is not a float";
    if (isinf(real) && strchr(copy, 'n') == NULL)
        return "the number is too large for a float";
    *out_real = real;
    return NULL;
}

/* ---- texts ----------------------------------------------------------------------------------- */

bool rs_pickle_is_utf8(rs_slice text)
{
    const unsigned char *at = (const unsigned char *)text.bytes, *end = at + text.count;
    while (at < end) {
        unsigned char first = *at;
        ptrdiff_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
        if ((first >= 0x80 && first < 0xc2) || first > 0xf4 || end - at < length)
            return false;
        for (ptrdiff_t i = 1; i < length; i++) {
            if ((at[i] & 0xc0) != 0x80)
                return false;
        }
        if ((first == 0xe0 && at[1] < 0xa0) || (first == 0xf0 && at[1] < 0x90) ||
            (first == 0xf4 && at[1] > 0x8f))
            return false;
        at += length;
    }
    return true;
}

size_t rs_pickle_encode_utf8(uint32_t code, char *out_bytes)
{
    assert(code <= 0x10ffff);
    if (code < 0x80) {
        out_bytes[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--) {
        out_bytes[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    out_bytes[0] = (char)(lead[length] | code);
    return length;
}

/* Reads exactly this many hexadecimal digits; false if one is missing. */
static bool read_hex(const char *at, const char *end, int digits, uint32_t *out_code)
{
    uint32_t code = 0;
    if (end - at < digits)
        return false;
    for (int i = 0; i < digits; i++) {
        char c = at[i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                                : 16;
        if (digit == 16)
            return false;
        code = code << 4 | digit;
    }
    *out_code = code;
    return true;
}

const char *rs_pickle_decode_unicode(rs_slice text, char *out_bytes, size_t *out_count)
{
    const char *at = text.bytes, *end = at + text.count;
    size_t count = 0;
    while (at < end) {
        uint32_t code = (unsigned char)*at++;
        if (code != '\\' || at == end) {
            count += rs_pickle_encode_utf8(code, out_bytes + count);
            continue;
        }
        int digits = *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
        if (digits == 0) { /* not an escape: keep both characters */
            out_bytes[count++] = '\\';
            count += rs_pickle_encode_utf8((unsigned char)*at++, out_bytes + count);
            continue;
        }
        if (!read_hex(at + 1, end, digits, &code))
            return "an escape lacks its hexadecimal digits";
        if (code > 0x10ffff)
            return "an escape names a character beyond Unicode";
        count += rs_pickle_encode_utf8(code, out_bytes + count);
        at += 1 + digits;
    }
    *out_count = count;
    return NULL;
}

/* Decodes the escape whose backslash precedes *at, and moves *at past it. */
static const char *decode_escape(const char **at, const char *end, char *out_bytes, size_t *count)
{
    static const char letters[] = "\\'\"abfnrtv", meanings[] = "\\'\"\a\b\f\n\r\t\v";
    char c = *(*at)++;
    const char *letter = c != '\0' ? strchr(letters, c) : NULL;
    uint32_t code = 0;
    if (letter != NULL) {
        out_bytes[(*count)++] = meanings[letter - letters];
    } else if (c >= '0' && c <= '7') {
        code = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *at < end && **at >= '0' && **at <= '7'; i++)
            code = code * 8 + (uint32_t)(*(*at)++ - '0');
        out_bytes[(*count)++] = (char)(unsigned char)code;
    } else if (c == 'x') {
        if (!read_hex(*at, end, 2, &code))
            return "an escape lacks its hexadecimal digits";
        out_bytes[(*count)++] = (char)code;
        *at += 2;
    } else {
        out_bytes[(*count)++] = '\\';
        out_bytes[(*count)++] = c;
    }
    return NULL;
}

const char *rs_pickle_decode_string(rs_slice text, char *out_bytes, size_t *out_count)
{
    const char *at = text.bytes, *end = at + text.count;
    size_t count = 0;
    if (text.count < 2 || (*at != '\'' && *at != '"') || end[-1] != *at)
        return "the string has no quotes around it";
    at++, end--;
    while (at < end) {
        if (*at != '\\') {
            out_bytes[count++] = *at++;
            continue;
        }
        if (++at == end)
            return "the string ends in a backslash";
        const char *wrong = decode_escape(&at, end, out_bytes, &count);
        if (wrong != NULL)
            return wrong;
    }
    *out_count = count;
    return NULL;
}
