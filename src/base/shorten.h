/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shorten.h - fits an error text into the fixed room of a message. Such a text begins with what it
 * is about, often a long path, and ends with the cause, so what does not fit is left out of the
 * middle. Inline, because libreshard_mpi cannot call libreshard's internal functions.
 */
#ifndef RS_BASE_SHORTEN_H
#define RS_BASE_SHORTEN_H

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* Copies a text of UTF-8, or its beginning, ".." and its end. out_text must not overlap it. */
static inline void rs_shorten(const char *text, char *out_text, size_t capacity)
{
    size_t length = strlen(text);
    assert(capacity > 8);
    if (length < capacity) {
        memcpy(out_text, text, length + 1);
        return;
    }
    size_t head = (capacity - 3) / 2, tail = length - (capacity - 3 - head);
    while (head > 0 && ((unsigned char)text[head] & 0xc0) == 0x80)
        head--;
    while (tail < length && ((unsigned char)text[tail] & 0xc0) == 0x80)
        tail++;
    memcpy(out_text, text, head);
    memcpy(out_text + head, "..", 2);
    memcpy(out_text + head + 2, text + tail, length - tail + 1);
}

#endif
