/* SPDX-License-Identifier: Apache-2.0 */
/* rank_arrays.c - finds the array of a rank, and checks that those of all ranks agree. */
#include "checkpoint/format/rank_join.h"

#include "base/error.h"
#include "base/search.h"

#include <assert.h>

/* Files of one group are neighbours, so arrays are sorted by group, too. */
static int32_t group_of(const rs_rank_arrays *arrays, int64_t entry)
{
    int32_t file = arrays->items[entry].file;
    return arrays->group_of != NULL ? arrays->group_of[file] : file;
}

const rs_occurrence *rs_rank_array_at(const rs_rank_arrays *arrays, int32_t position)
{
    int64_t at;
    RS_FIND_FIRST(at, arrays->count, group_of(arrays, at) >= arrays->file_of[position]);
    return at < arrays->count && group_of(arrays, at) == arrays->file_of[position]
               ? &arrays->items[at]
               : NULL;
}

reshard_status rs_rank_arrays_check(const reshard_checkpoint *checkpoint,
                                    const rs_rank_arrays *arrays)
{
    const rs_occurrence *first = &arrays->items[0];
    assert(arrays->count > 0);
    for (int64_t i = 1; i < arrays->count; i++) {
        const rs_occurrence *item = &arrays->items[i];
        bool same_dtype = item->dtype == first->dtype;
        if (group_of(arrays, i) == group_of(arrays, i - 1))
            return rs_fail(RESHARD_ERR_CORRUPT,
                           "tensor \"%.*s\": %s and %s of one rank both hold it",
                           RS_SHOWN(item->name), checkpoint->files[item[-1].file].name,
                           checkpoint->files[item->file].name);
        if (!same_dtype || item->ndim != first->ndim)
            return rs_fail(RESHARD_ERR_CORRUPT, "tensor \"%.*s\": %s and %s do not agree on its %s",
                           RS_SHOWN(item->name), checkpoint->files[first->file].name,
                           checkpoint->files[item->file].name,
                           same_dtype ? "number of dimensions" : "dtype");
    }
    return RESHARD_OK;
}
