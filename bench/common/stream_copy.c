/* SPDX-License-Identifier: Apache-2.0 */
/* stream_copy.c - streaming stores of x86-64; other processors have none. */
#include "bench/common/stream_copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

enum { LINE = 64 };

int bench_stream_copy_is_there(void)
{
    return 1;
}

void bench_stream_copy(void *target, const void *source, size_t bytes)
{
    char *to = target;
    const char *from = source;
    size_t head = (size_t)(-(uintptr_t)to & (LINE - 1));
    head = head < bytes ? head : bytes;
    memcpy(to, from, head);
    size_t lines_end = head + (bytes - head) / LINE * LINE;
    for (size_t i = head; i < lines_end; i += LINE) {
        const __m128i *line = (const __m128i *)(const void *)(from + i);
        __m128i *place = (__m128i *)(void *)(to + i);
        __m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1);
        __m128i c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);
        _mm_stream_si128(place, a);
        _mm_stream_si128(place + 1, b);
        _mm_stream_si128(place + 2, c);
        _mm_stream_si128(place + 3, d);
    }
    _mm_sfence();
    memcpy(to + lines_end, from + lines_end, bytes - lines_end);
}
#else
int bench_stream_copy_is_there(void)
{
    return 0;
}

void bench_stream_copy(void *target, const void *source, size_t bytes)
{
    memcpy(target, source, bytes);
}
#endif
