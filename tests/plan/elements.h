/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elements.h - what a rank has to do, taken apart into single elements, so that two ways to find it
 * can be compared however they cut boxes and make families.
 */
#ifndef TESTS_PLAN_ELEMENTS_H
#define TESTS_PLAN_ELEMENTS_H

#include "plan/sender.h"
#include "tests/support/check.h"

/* A link between two layouts of one shape, given as specs. */
typedef struct linked {
    reshard_layout *source, *target;
    rs_link link;
} linked;

void linked_init(linked *made, const char *source, const char *target, int32_t ndim,
                 const int64_t *shape);
void linked_free(linked *made);

typedef enum element_list { ELEMENT_RECEIVED, ELEMENT_SENT, ELEMENT_KEPT } element_list;

/* Whole numbers only, so that lists can be sorted and compared as memory. */
typedef struct element {
    int64_t list, kind;
    int64_t source_rank, target_rank, source_shard, target_shard;
    int64_t contributor, contributor_count, reduction, divisor;
    int64_t place; /* in link space, row-major */
    int64_t source_at, target_at;
} element;

typedef struct elements {
    int64_t count, capacity;
    element *items; /* sorted */
    int64_t records;
} elements;

typedef reshard_status (*moves_fn)(const linked *given, int32_t rank, rs_rank_moves *moves);

/* What `list` finds for a rank. */
void elements_init(elements *made, const linked *given, moves_fn list, int32_t rank);
void elements_free(elements *made);
/* The element of one list that lies at this place and comes from this contributor; NULL when there
 * is none. There must not be two. */
const element *elements_find(const elements *all, element_list list, int64_t place,
                             int64_t contributor);

reshard_status list_single(const linked *given, int32_t rank, rs_rank_moves *moves);

#endif
