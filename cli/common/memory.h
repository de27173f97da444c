/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - memory for small things of the command itself (cells, texts, names). A command that
 * cannot get it has nothing left to do, so running out ends the process with a message and exit
 * code 1.
 */
#ifndef CLI_MEMORY_H
#define CLI_MEMORY_H

#include <stddef.h>

/* count * item_bytes zeroed bytes; never NULL. */
void *cli_allocate(size_t count, size_t item_bytes);

/* Grows an array to at least `needed` items by doubling; never fails. */
void *cli_grow(void *items, size_t *capacity, size_t needed, size_t item_bytes);

#endif
