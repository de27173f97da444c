/* SPDX-License-Identifier: Apache-2.0 */
#include "text/text.h"

#include "base/context.h"
#include "text/decimal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

void rs_text_init(rs_text *text, char *buffer, size_t capacity)
{
    assert(buffer != NULL || capacity == 0);
    text->buffer = buffer;
    text->capacity = capacity;
    text->length = 0;
    if (capacity != 0)
        buffer[0] = '\0';
}

void rs_text_add(rs_text *text, const char *format, ...)
{
    size_t room = text->length < text->capacity ? text->capacity - text->length : 0;
    va_list arguments;
    va_start(arguments, format);
    int written =
        rs_format_numbers(room != 0 ? text->buffer + text->length : NULL, room, format, arguments);
    va_end(arguments);
    if (written > 0)
        text->length += (size_t)written;
}

void rs_text_add_shape(rs_text *text, int32_t ndim, const int64_t *shape)
{
    if (ndim == 0)
        rs_text_add(text, "scalar");
    for (int32_t d = 0; d < ndim; d++)
        rs_text_add(text, d == 0 ? "%" PRId64 : "x%" PRId64, shape[d]);
}

void rs_text_add_box(rs_text *text, int32_t ndim, const int64_t *offset, const int64_t *size)
{
    rs_text_add(text, "[");
    for (int32_t d = 0; d < ndim; d++)
        rs_text_add(text, "%s%" PRId64 ":%" PRId64, d == 0 ? "" : ",", offset[d],
                    offset[d] + size[d]);
    rs_text_add(text, "]");
}

char *rs_text_copy(reshard_context *context, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = rs_allocate(context, bytes);
    return copy != NULL ? memcpy(copy, text, bytes) : NULL;
}

void rs_text_free(reshard_context *context, char *text)
{
    rs_release(context, text);
}

int rs_compare_naturally(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        if (rs_is_digit(*a) && rs_is_digit(*b)) {
            while (*a == '0')
                a++;
            while (*b == '0')
                b++;
            size_t a_length = strspn(a, "0123456789"), b_length = strspn(b, "0123456789");
            if (a_length != b_length)
                return a_length < b_length ? -1 : 1;
            int order = memcmp(a, b, a_length);
            if (order != 0)
                return order;
            a += a_length;
            b += b_length;
        } else if (*a != *b) {
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    return (*a != '\0') - (*b != '\0');
}
