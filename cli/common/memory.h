/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - memory for the command's own small things (cells, texts, names). A command that cannot
 * get it can do nothing else either, so running out of memory prints a message and ends the process
 * with exit code 1.
 */
#ifndef CLI_MEMORY_H
#define CLI_MEMORY_H

#include <stddef.h>

/* From now on, arrays of 2 MiB and more go back to the system as soon as they are freed. Once an
 * array has been freed, glibc otherwise keeps all that are not larger for later: half of a model's
 * header, in vain. */
void cli_memory_give_back(void);

/* count * item_bytes zeroed bytes; never NULL. */
void *cli_allocate(size_t count, size_t item_bytes);

/* Grows an array to at least `needed` items by doubling; never fails. */
void *cli_grow(void *items, size_t *capacity, size_t needed, size_t item_bytes);

#endif
