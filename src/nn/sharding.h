/* SPDX-License-Identifier: Apache-2.0 */
/* sharding.h - what a sharding plan is made of. */
#ifndef RS_NN_SHARDING_H
#define RS_NN_SHARDING_H

#include <reshard/shard.h>

typedef enum rs_entry_kind {
    RS_ENTRY_PARAMETER,
    RS_ENTRY_SHARDER,
    RS_ENTRY_OUTPUT,
    RS_ENTRY_LOCAL
} rs_entry_kind;

typedef struct rs_entry {
    rs_entry_kind kind;
    char *name;
    reshard_spec *spec;      /* parameters and outputs */
    reshard_sharder sharder; /* sharders */
} rs_entry;

struct reshard_sharding_plan {
    reshard_context *context;
    int64_t count, capacity;
    rs_entry *entries;
};

#endif
