/* SPDX-License-Identifier: Apache-2.0 */
/* sharding.h - the structs behind sharding plans. */
#ifndef RS_NN_SHARDING_H
#define RS_NN_SHARDING_H

#include <reshard/shard.h>

typedef enum rs_sharding_kind {
    RS_SHARDING_PARAMETER,
    RS_SHARDING_SHARDER,
    RS_SHARDING_OUTPUT,
    RS_SHARDING_LOCAL
} rs_sharding_kind;

typedef struct rs_sharding_entry {
    rs_sharding_kind kind;
    char *name;
    reshard_spec *spec;      /* only of parameters and outputs */
    reshard_sharder sharder; /* only of sharders */
} rs_sharding_entry;

struct reshard_sharding_plan {
    reshard_context *context;
    int64_t count, capacity;
    rs_sharding_entry *entries;
};

#endif
