/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan.c - the cursor. The text is untrusted: no byte at or beyond `length` is read, each byte is
 * read a bounded number of times, and only the beginning of a long text appears in an error.
 */
#include "spec/scan.h"
#include "text/text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool is_space(int c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int byte_at(const rs_scan *scan, size_t position)
{
    return position < scan->length ? (unsigned char)scan->text[position] : -1;
}

rs_excerpt rs_excerpt_of(const char *text, size_t length)
{
    static const char ellipsis[] = "\xe2\x80\xa6";
    rs_excerpt excerpt;
    size_t room = RS_EXCERPT_BYTES - sizeof ellipsis;
    size_t kept = length <= room ? length : room;
    for (size_t i = 0; i < kept; i++) {
        unsigned char c = (unsigned char)text[i];
        /* Bytes beyond ASCII may be invalid UTF-8, and no legal text contains them. */
        excerpt.text[i] = c >= 0x20 && c < 0x7f ? (char)c : '?';
    }
    memcpy(excerpt.text + kept, ellipsis, sizeof ellipsis);
    if (kept == length)
        excerpt.text[kept] = '\0';
    return excerpt;
}

reshard_status rs_scan_init(rs_scan *scan, const char *what, const char *text)
{
    scan->what = what;
    scan->text = text;
    scan->length = text != NULL ? strlen(text) : 0;
    scan->position = 0;
    if (rs_scan_peek(scan) < 0)
        return rs_fail(RESHARD_ERR_SYNTAX, "%s is empty", what);
    return RESHARD_OK;
}

reshard_status rs_scan_fail(const rs_scan *scan, size_t position, reshard_status status,
                            const char *format, ...)
{
    char words[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    return rs_fail(status, "%s \"%s\": at byte %zu: %s", scan->what,
                   rs_excerpt_of(scan->text, scan->length).text, position + 1, words);
}

reshard_status rs_scan_fail_within(const rs_scan *scan, size_t position, reshard_status status)
{
    return rs_fail_within(status, "%s \"%s\": at byte %zu", scan->what,
                          rs_excerpt_of(scan->text, scan->length).text, position + 1);
}

reshard_status rs_scan_expected(rs_scan *scan, const char *expected)
{
    size_t here = rs_scan_here(scan);
    int c = byte_at(scan, here);
    if (c < 0)
        return rs_scan_fail(scan, here, RESHARD_ERR_SYNTAX, "expected %s, found the end", expected);
    if (c < 0x20 || c >= 0x7f)
        return rs_scan_fail(scan, here, RESHARD_ERR_SYNTAX, "expected %s, found the byte 0x%02x",
                            expected, (unsigned)c);
    size_t length = 1;
    if (rs_is_letter(c) || rs_is_digit(c)) {
        while (length < RS_EXCERPT_BYTES && (rs_is_letter(byte_at(scan, here + length)) ||
                                             rs_is_digit(byte_at(scan, here + length))))
            length++;
    }
    assert(here + length <= scan->length);
    return rs_scan_fail(scan, here, RESHARD_ERR_SYNTAX, "expected %s, found \"%s\"", expected,
                        rs_excerpt_of(scan->text + here, length).text);
}

int rs_scan_peek(rs_scan *scan)
{
    while (is_space(byte_at(scan, scan->position)))
        scan->position++;
    assert(scan->position <= scan->length);
    return byte_at(scan, scan->position);
}

size_t rs_scan_here(rs_scan *scan)
{
    (void)rs_scan_peek(scan);
    return scan->position;
}

bool rs_scan_accept(rs_scan *scan, char c)
{
    if (rs_scan_peek(scan) != (unsigned char)c)
        return false;
    scan->position++;
    return true;
}

reshard_status rs_scan_expect(rs_scan *scan, char c)
{
    if (rs_scan_accept(scan, c))
        return RESHARD_OK;
    const char quoted[] = {'"', c, '"', '\0'};
    return rs_scan_expected(scan, quoted);
}

bool rs_scan_accept_dots(rs_scan *scan)
{
    size_t here = rs_scan_here(scan);
    if (byte_at(scan, here) != '.' || byte_at(scan, here + 1) != '.')
        return false;
    scan->position += 2;
    return true;
}

bool rs_scan_at_digit(rs_scan *scan)
{
    return rs_is_digit(rs_scan_peek(scan));
}

bool rs_scan_at_letter(rs_scan *scan)
{
    return rs_is_letter(rs_scan_peek(scan));
}

reshard_status rs_scan_number(rs_scan *scan, int64_t *out_number)
{
    if (!rs_scan_at_digit(scan))
        return rs_scan_expected(scan, "a number");
    size_t start = scan->position;
    int64_t number = 0;
    for (; rs_is_digit(byte_at(scan, scan->position)); scan->position++) {
        int digit = byte_at(scan, scan->position) - '0';
        if (number > (INT64_MAX - digit) / 10)
            return rs_scan_fail(scan, start, RESHARD_ERR_RANGE, "number too large");
        number = number * 10 + digit;
    }
    assert(number >= 0 && scan->position > start);
    *out_number = number;
    return RESHARD_OK;
}

rs_slice rs_scan_word(rs_scan *scan)
{
    size_t start = rs_scan_here(scan);
    if (rs_is_letter(byte_at(scan, start))) {
        while (rs_is_letter(byte_at(scan, scan->position)) ||
               rs_is_digit(byte_at(scan, scan->position)))
            scan->position++;
    }
    return (rs_slice){scan->text + start, scan->position - start};
}

rs_slice rs_scan_letters(rs_scan *scan)
{
    size_t start = rs_scan_here(scan);
    while (rs_is_letter(byte_at(scan, scan->position)))
        scan->position++;
    return (rs_slice){scan->text + start, scan->position - start};
}
