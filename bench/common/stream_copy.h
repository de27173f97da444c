/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_copy.h - copies by streaming stores, which bypass the caches: the other simple way to copy
 * besides memcpy. Which of the two is faster depends on the machine, the size, and how many threads
 * copy at once.
 */
#ifndef BENCH_STREAM_COPY_H
#define BENCH_STREAM_COPY_H

#include <stddef.h>

/* Whether this processor has such stores. */
int bench_stream_copy_is_there(void);
/* Takes any addresses and sizes, without overlap. Only if bench_stream_copy_is_there. */
void bench_stream_copy(void *target, const void *source, size_t bytes);

#endif
