/* SPDX-License-Identifier: Apache-2.0 */
#include "text/decimal.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

/* The C locale, which this thread uses between the two calls below, and the one it used before. */
typedef struct plain_locale {
    locale_t plain, before;
} plain_locale;

static plain_locale enter_plain_locale(void)
{
    plain_locale l = {.plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0)};
    if (l.plain != (locale_t)0)
        l.before = uselocale(l.plain);
    return l;
}

static void leave_plain_locale(plain_locale l)
{
    if (l.plain != (locale_t)0) {
        (void)uselocale(l.before);
        freelocale(l.plain);
    }
}

double rs_parse_double(const char *text, char **out_end)
{
    plain_locale l = enter_plain_locale();
    double real = strtod(text, out_end);
    leave_plain_locale(l);
    return real;
}

int rs_format_numbers(char *buffer, size_t capacity, const char *format, va_list arguments)
{
    plain_locale l = enter_plain_locale();
    int written = vsnprintf(buffer, capacity, format, arguments);
    leave_plain_locale(l);
    return written;
}
