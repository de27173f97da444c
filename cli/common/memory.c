/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - allocation that ends the process when it fails.
 */
#include "cli/common/memory.h"

#include "cli/common/failure.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>

#define LARGE_BYTES (512 << 10) /* less than what is kept of one file's header */

static _Noreturn void give_up(void)
{
    exit(cli_fail(CLI_FAILED, "out of memory"));
}

void cli_memory_give_back(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
#endif
}

void *cli_allocate(size_t count, size_t item_bytes)
{
    void *memory = calloc(count != 0 ? count : 1, item_bytes);
    if (memory == NULL)
        give_up();
    return memory;
}

void *cli_grow(void *items, size_t *capacity, size_t needed, size_t item_bytes)
{
    if (needed <= *capacity)
        return items;
    size_t wanted = *capacity < 16 ? 16 : *capacity;
    while (wanted < needed) {
        if (wanted > SIZE_MAX / 2 / item_bytes)
            give_up();
        wanted *= 2;
    }
    void *grown = realloc(items, wanted * item_bytes);
    if (grown == NULL)
        give_up();
    *capacity = wanted;
    return grown;
}
