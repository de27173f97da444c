/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapping.h - memory of a rank that other ranks of its node can map, each process at an address of
 * its own. An address of the owner is therefore translated: its distance from where the owner sees
 * the memory is added to where this process sees it.
 */
#ifndef RS_MPI_MAPPING_H
#define RS_MPI_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rs_mapping {
    uint64_t owner_address; /* where its owner sees it */
    char *view;             /* where this process sees it */
    size_t bytes;
} rs_mapping;

/* Where this process sees `address` of the owner; NULL if the bytes are not all inside. */
void *rs_mapping_translate(const rs_mapping *mapping, const void *address, size_t bytes);

/* How many bytes to ask for to get `bytes` bytes that start on a page; 0 if that is too many. */
size_t rs_mapping_bytes_needed(size_t bytes);
/* The start of the first page at or after an address. */
void *rs_mapping_align(void *address);

/* Whether `count` mappings of that size fit into the system's shared memory. MPI may hand out
 * memory that does not fit, and the first touch would then kill the process. */
bool rs_mapping_have_room(int32_t count, size_t bytes);

#endif
