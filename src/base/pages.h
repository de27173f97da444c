/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.h - gives fresh memory its pages before it is written, as huge ones where these are faster.
 *
 * The first write to a page is a fault, and the faults of a large block cost more than filling it.
 * Pages of 2 MiB take a third of the time of small ones, with one exception: on a virtual machine
 * whose host takes back free memory, a huge page is often one that the host took, and comes four to
 * ten times as slowly as small ones. Nothing tells which pages the host took, and one block may get
 * both kinds, so every huge page is timed as it comes. After a slow one the next pages are small,
 * for a while, and then one huge page is tried again.
 */
#ifndef RS_BASE_PAGES_H
#define RS_BASE_PAGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define RS_HUGE_PAGE_BYTES ((size_t)2 << 20)

/* How huge pages came lately. All zero is a valid beginning. Threads share it without locks: a lost
 * update costs a little time, nothing else. */
typedef struct rs_pages_record {
    atomic_bool fast;   /* the last huge page came fast */
    atomic_uint rest;   /* how often small pages take the place of a huge one, before the next */
    atomic_uint trials; /* how many huge pages were tried since the last fast one */
} rs_pages_record;

/* Whether the next 2 MiB are to be one huge page. */
bool rs_pages_next(rs_pages_record *record);
/* Notes how long a huge page took to come. */
void rs_pages_note(rs_pages_record *record, double seconds);

/* Makes the pages of a block that begins at a multiple of RS_HUGE_PAGE_BYTES, and whose bytes
 * nobody needs. Best effort: pages that are not made now come when they are first written. */
void rs_pages_make(rs_pages_record *record, void *memory, size_t bytes);

#endif
