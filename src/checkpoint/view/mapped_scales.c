/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapped_scales.c - do the scales of quantised weights go where their weights go? A line of a map
 * can take both along. If it takes only the weights to other places or names, and a line like
 * `* = *` leaves the scales as they are, nobody could tell any more which belong together: that is
 * refused.
 */
#include "base/context.h"
#include "base/shape.h"
#include "checkpoint/select/quantised.h"
#include "checkpoint/view/mapped.h"

#include <stdio.h>
#include <string.h>

/* Where each tensor of the source goes. */
typedef struct scale_check {
    const reshard_checkpoint *source;
    const rs_mapped *mapped;
    const rs_quantised_kind *kinds; /* by tensor of the source, as are the next */
    int64_t *made;                  /* the first made tensor that has elements of it; -1: none */
} scale_check;

static rs_slice module_of(rs_slice name)
{
    size_t length = name.count;
    while (length > 0 && name.bytes[length - 1] != '.')
        length--;
    return (rs_slice){name.bytes, length};
}

static bool has_module(rs_slice name, rs_slice module)
{
    return name.count >= module.count && memcmp(name.bytes, module.bytes, module.count) == 0;
}

/* Is a made tensor one of the source's, perhaps under another name? */
static bool is_whole(const scale_check *c, int64_t made)
{
    const rs_mapped_origin *origin = &c->mapped->origins[made];
    const rs_stored_tensor *tensor = &c->mapped->made.tensors[made];
    return origin->count == 1 && tensor->formula == NULL &&
           tensor->pieces == c->source->tensors[origin->sources[0]].pieces;
}

/* Whether codes and one of their companions still belong together. */
static bool go_together(const scale_check *c, int64_t codes, int64_t companion)
{
    int64_t weight = c->made[codes], scale = c->made[companion];
    const rs_stored_tensor *scales = &c->source->tensors[companion];
    if (weight < 0 || scale < 0 || !is_whole(c, scale))
        return true;
    if (rs_slice_compare(module_of(c->mapped->made.tensors[weight].name),
                         module_of(c->mapped->made.tensors[scale].name)) != 0)
        return false;
    /* One scale for all of a tensor does not care about the order of its elements. */
    return is_whole(c, weight) || (c->mapped->origins[weight].count == 1 &&
                                   rs_volume(scales->carried_ndim, scales->carried_shape) == 1);
}

static reshard_status refuse(const scale_check *c, int64_t codes, int64_t companion)
{
    rs_slice from = c->source->tensors[codes].name, scale = c->source->tensors[companion].name;
    rs_slice to = c->mapped->made.tensors[c->made[codes]].name;
    return rs_fail_hint(RESHARD_ERR_UNSUPPORTED, RESHARD_HINT_DEQUANTIZE, "",
                        "the map makes \"%.*s\" of the quantised \"%.*s\", but leaves \"%.*s\" as "
                        "it is, which says what the codes mean; dequantise the weights first",
                        RS_SHOWN(to), RS_SHOWN(from), RS_SHOWN(scale));
}

/* Compares a companion with all codes of its module, whose names are near its own. */
static reshard_status check_companion(const scale_check *c, int64_t companion)
{
    const rs_stored_tensor *tensors = c->source->tensors;
    rs_slice module = module_of(tensors[companion].name);
    int64_t first = companion, above = -1;
    while (first > 0 && has_module(tensors[first - 1].name, module))
        first--;
    if (module.count != 0)
        above = rs_store_find(c->source, (rs_slice){module.bytes, module.count - 1});
    for (int64_t i = first; i < c->source->tensor_count && has_module(tensors[i].name, module);
         i++) {
        bool is_near = module_of(tensors[i].name).count == module.count;
        if (is_near && c->kinds[i] == RS_QUANTISED_CODES && !go_together(c, i, companion))
            return refuse(c, i, companion);
    }
    bool has_codes = above >= 0 && c->kinds[above] == RS_QUANTISED_CODES && c->made[above] >= 0;
    return has_codes && !is_whole(c, c->made[above]) && c->made[companion] >= 0 &&
                   is_whole(c, c->made[companion])
               ? refuse(c, above, companion)
               : RESHARD_OK;
}

/* Modules at the top of a checkpoint ("weight", "scale") would be compared with everything. */
static bool has_own_module(const rs_stored_tensor *tensor)
{
    return module_of(tensor->name).count != 0;
}

reshard_status rs_mapped_check_scales(rs_arena *arena, const reshard_checkpoint *source,
                                      rs_config *config, const rs_mapped *mapped)
{
    rs_quantised_kind *kinds = NULL;
    scale_check c = {.source = source, .mapped = mapped};
    reshard_status status =
        rs_quantised_find(arena, source, rs_quantised_method(config) != NULL, &kinds);
    if (status != RESHARD_OK)
        return status;
    c.kinds = kinds;
    c.made = rs_arena_allocate_array(arena, (size_t)source->tensor_count, sizeof *c.made);
    if (c.made == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < source->tensor_count; i++)
        c.made[i] = -1;
    for (int64_t i = mapped->made.tensor_count; i-- > 0;) {
        for (int64_t k = 0; k < mapped->origins[i].count; k++)
            c.made[mapped->origins[i].sources[k]] = i;
    }
    for (int64_t i = 0; status == RESHARD_OK && i < source->tensor_count; i++) {
        if (kinds[i] == RS_QUANTISED_COMPANION && has_own_module(&source->tensors[i]))
            status = check_companion(&c, i);
    }
    return status;
}

reshard_status rs_mapped_hint_scales(rs_arena *arena, const reshard_checkpoint *source,
                                     rs_config *config, reshard_status status)
{
    rs_quantised_kind *kinds = NULL;
    char text[RS_ERROR_TEXT_BYTES];
    bool has_scales = false;
    if (rs_error_last()->hint != RESHARD_HINT_NONE)
        return status;
    (void)snprintf(text, sizeof text, "%s", rs_error_last()->text);
    reshard_status found =
        rs_quantised_find(arena, source, rs_quantised_method(config) != NULL, &kinds);
    if (found != RESHARD_OK)
        return found;
    for (int64_t i = 0; !has_scales && i < source->tensor_count; i++)
        has_scales = kinds[i] == RS_QUANTISED_COMPANION;
    return !has_scales
               ? status
               : rs_fail_hint(
                     status, RESHARD_HINT_DEQUANTIZE, "",
                     "%s. The weights are quantised; dequantise them, then there are no scales",
                     text);
}
