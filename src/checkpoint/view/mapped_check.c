/* SPDX-License-Identifier: Apache-2.0 */
/* mapped_check.c - compares tensors that are left out because it is known what they hold. */
#include "base/context.h"
#include "base/shape.h"
#include "checkpoint/view/mapped.h"
#include "text/text.h"

#include <assert.h>
#include <string.h>

/* A conversion has at least four times this; the engine does not run meanwhile. */
#define PART_BYTES ((size_t)256 << 10)

typedef struct comparing {
    reshard_context *context;
    const reshard_checkpoint *source;
    char *memory; /* three parts: what is read, what it should be, and scratch */
} comparing;

static reshard_status fail_at(const rs_mapped_check *check, const int64_t *offset,
                              const int64_t *size, int64_t element)
{
    const rs_stored_tensor *tensor = check->tensor;
    int64_t index[RESHARD_NDIM_MAX];
    char shown[200];
    rs_text text;
    for (int32_t d = tensor->carried_ndim; d-- > 0; element /= size[d])
        index[d] = offset[d] + element % size[d];
    rs_text_init(&text, shown, sizeof shown);
    for (int32_t d = 0; d < tensor->carried_ndim; d++)
        rs_text_add(&text, "%s%lld", d == 0 ? "" : ", ", (long long)index[d]);
    if (check->same_as != NULL && check->line == 0)
        return rs_fail(RESHARD_ERR_CHECK,
                       "tensor \"%.*s\" does not equal \"%.*s\", though config.json says that the "
                       "head is tied (tie_word_embeddings): element [%s] differs; "
                       "tie_word_embeddings=0 keeps it",
                       RS_SHOWN(tensor->name), RS_SHOWN(check->same_as->name), shown);
    if (check->same_as != NULL)
        return rs_fail(RESHARD_ERR_CHECK,
                       "tensor \"%.*s\" does not equal \"%.*s\", as line %d of the map requires: "
                       "element [%s] differs",
                       RS_SHOWN(tensor->name), RS_SHOWN(check->same_as->name), (int)check->line,
                       shown);
    return rs_fail(
        RESHARD_ERR_CHECK,
        "tensor \"%.*s\" is not %.17g everywhere, as line %d of the map requires: element "
        "[%s] differs",
        RS_SHOWN(tensor->name), check->value, (int)check->line, shown);
}

static reshard_status compare_box(const comparing *c, const rs_mapped_check *check,
                                  const int64_t *offset, const int64_t *size)
{
    const rs_stored_tensor *tensor = check->tensor;
    int64_t count = rs_volume(tensor->carried_ndim, size);
    size_t each = (size_t)tensor->element_bytes;
    char *scratch = c->memory + 2 * PART_BYTES, *wanted = c->memory + PART_BYTES;
    reshard_status status =
        rs_store_read_box(c->source, tensor, offset, size, c->memory, scratch, PART_BYTES);
    if (status == RESHARD_OK && check->same_as != NULL)
        status =
            rs_store_read_box(c->source, check->same_as, offset, size, wanted, scratch, PART_BYTES);
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++) {
        const void *expected = check->same_as != NULL ? wanted + (size_t)i * each : check->constant;
        if (memcmp(c->memory + (size_t)i * each, expected, each) != 0)
            status = fail_at(check, offset, size, i);
    }
    return status;
}

static reshard_status compare_tensor(const comparing *c, const rs_mapped_check *check)
{
    const rs_stored_tensor *tensor = check->tensor;
    reshard_status status = RESHARD_OK;
    if (tensor->bytes == 0)
        return RESHARD_OK;
    rs_tiles tiles = rs_tiles_cut(tensor->carried_ndim, tensor->carried_shape,
                                  (int64_t)PART_BYTES / tensor->element_bytes);
    for (int64_t i = 0; status == RESHARD_OK && i < tiles.count; i++) {
        int64_t offset[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
        rs_tiles_at(&tiles, i, offset, size);
        status = rs_context_cancelled(c->context) ? rs_fail(RESHARD_ERR_CANCELLED, "cancelled")
                                                  : compare_box(c, check, offset, size);
    }
    return status;
}

reshard_status rs_mapped_compare(const reshard_checkpoint *source, int64_t count,
                                 const rs_mapped_check *checks, const rs_team *team)
{
    comparing c = {.context = team->context, .source = source};
    reshard_status status = RESHARD_OK;
    if (count == 0)
        return RESHARD_OK;
    c.memory = rs_allocate(team->context, 3 * PART_BYTES);
    if (c.memory == NULL)
        status = rs_allocation_status();
    for (int64_t i = team->rank; status == RESHARD_OK && i < count; i += team->rank_count)
        status = compare_tensor(&c, &checks[i]);
    rs_release(team->context, c.memory);
    return rs_team_agree(team, status);
}
