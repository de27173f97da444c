/* SPDX-License-Identifier: Apache-2.0 */
/* references.h - reference counts of objects that several threads may hold. */
#ifndef RS_BASE_REFERENCES_H
#define RS_BASE_REFERENCES_H

#include <stdatomic.h>

typedef atomic_int rs_references;

static inline void rs_reference_add(rs_references *references)
{
    (void)atomic_fetch_add_explicit(references, 1, memory_order_relaxed);
}

/* Returns true for the last reference; that caller then sees everything the other holders did. */
static inline int rs_reference_drop(rs_references *references)
{
    return atomic_fetch_sub_explicit(references, 1, memory_order_acq_rel) == 1;
}

#endif
