/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - memory for the command's own small data (cells, texts, names). If even that cannot be
 * allocated, nothing else can be done, so a message is printed and the process ends with exit code
 * 1.
 */
#ifndef CLI_MEMORY_H
#define CLI_MEMORY_H

#include <reshard/base.h>

#include <stddef.h>

/* Makes malloc return arrays of 512 KiB and more to the system as soon as they are freed. By
 * default, freeing an array raises the size below which glibc keeps freed memory for later, and
 * half of a large model's header would stay in use for nothing. */
void cli_memory_give_back(void);

/* count * item_bytes zeroed bytes; never NULL. */
void *cli_allocate(size_t count, size_t item_bytes);

/* Grows an array to at least `needed` items by doubling; never fails. */
void *cli_grow(void *items, size_t *capacity, size_t needed, size_t item_bytes);

/* What a context uses. */
static inline reshard_memory_info cli_memory_info(const reshard_context *context)
{
    reshard_memory_info info = {.size = sizeof info};
    (void)reshard_context_get_memory(context, &info); /* fails only for a wrong size */
    return info;
}

#endif
