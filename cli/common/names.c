/* SPDX-License-Identifier: Apache-2.0 */
/* names.c - shows and sorts names of tensors. */
#include "cli/common/names.h"

#include <reshard/base.h>

#include <stdlib.h>
#include <string.h>

const char *cli_name_text(const char *bytes, size_t count, char buffer[CLI_NAME_TEXT])
{
    if (reshard_text_escape(bytes, count, buffer, CLI_NAME_TEXT) >= CLI_NAME_TEXT)
        memcpy(buffer + CLI_NAME_TEXT - 4, "...", 4);
    return buffer;
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The length of the digits at the beginning of a text; *out_digits skips leading zeros. */
static size_t skip_number(const char *bytes, size_t count, const char **out_digits)
{
    size_t end = 0, zeros = 0;
    while (end < count && is_digit(bytes[end]))
        end++;
    while (zeros + 1 < end && bytes[zeros] == '0')
        zeros++;
    *out_digits = bytes + zeros;
    return end;
}

/* Where two names may differ first: numbers are compared whole, so not within one. Names of one
 * model mostly begin alike. */
static size_t skip_alike(const cli_name *x, const cli_name *y)
{
    size_t count = x->count < y->count ? x->count : y->count, at = 0;
    for (; at + sizeof(uint64_t) <= count; at += sizeof(uint64_t)) {
        if (memcmp(x->bytes + at, y->bytes + at, sizeof(uint64_t)) != 0)
            break;
    }
    while (at < count && x->bytes[at] == y->bytes[at])
        at++;
    while (at > 0 && is_digit(x->bytes[at - 1]))
        at--;
    return at;
}

int cli_names_compare(const cli_name *x, const cli_name *y)
{
    size_t i = skip_alike(x, y), j = i;
    while (i < x->count && j < y->count) {
        const char *m, *n;
        size_t m_length = skip_number(x->bytes + i, x->count - i, &m);
        size_t n_length = skip_number(y->bytes + j, y->count - j, &n);
        if (m_length == 0 || n_length == 0) {
            if (x->bytes[i] != y->bytes[j])
                return (unsigned char)x->bytes[i] < (unsigned char)y->bytes[j] ? -1 : 1;
            i++;
            j++;
            continue;
        }
        i += m_length;
        j += n_length;
        size_t m_digits = (size_t)(x->bytes + i - m), n_digits = (size_t)(y->bytes + j - n);
        if (m_digits != n_digits)
            return m_digits < n_digits ? -1 : 1;
        int order = memcmp(m, n, m_digits);
        if (order != 0)
            return order;
    }
    if (i < x->count || j < y->count)
        return i < x->count ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

static int compare_names(const void *a, const void *b)
{
    return cli_names_compare(a, b);
}

void cli_names_sort(cli_name *names, size_t count)
{
    if (count != 0)
        qsort(names, count, sizeof *names, compare_names);
}
