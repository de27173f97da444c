/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_rules.c - how tensor parallel ranks cut a parameter if no file says it: as the rules of the
 * model's family do, by its names, and as config.json says how large the whole is. AutoTP leaves
 * some parameters whole that the rules would cut, so a parameter that already has its full size on
 * every rank is replicated. What config.json does not describe is refused: parts and replicas look
 * the same then.
 */
#include "checkpoint/deepspeed/zero.h"

#include "base/context.h"
#include "base/shape.h"
#include "checkpoint/rules/rulebook.h"
#include "checkpoint/rules/sizes.h"
#include "text/text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char *local_name(void *user, int64_t index, size_t *out_bytes)
{
    const rs_zero_reading *r = user;
    if (index >= r->local_count)
        return NULL;
    rs_slice name = r->locals[index].parameter;
    *out_bytes = name.count;
    return name.bytes != NULL ? name.bytes : "";
}

static reshard_status read_book(rs_zero_reading *r, reshard_mesh *mesh, rs_rulebook **out_book)
{
    const reshard_checkpoint_options *options = r->opening->options;
    reshard_context *context = r->checkpoint->context;
    rs_rulebook *book = rs_allocate_zeroed(context, sizeof *book);
    if (book == NULL)
        return rs_allocation_status();
    *out_book = book;
    return rs_rulebook_init(book, context, mesh, options->rules, r->checkpoint, options->set_count,
                            options->sets, local_name, r);
}

reshard_status rs_zero_rules_init(rs_zero_reading *r)
{
    char text[32];
    reshard_mesh *mesh = NULL;
    (void)snprintf(text, sizeof text, "tp=%d", (int)r->files.tp_count);
    reshard_status status = reshard_mesh_parse(r->checkpoint->context, text, &mesh);
    if (status == RESHARD_OK)
        status = read_book(r, mesh, &r->padded);
    if (status == RESHARD_OK && r->padded->config.count == 0)
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "there is no config.json");
    if (status == RESHARD_OK)
        status = read_book(r, mesh, &r->plain);
    if (status == RESHARD_OK)
        rs_rules_forget_pads(r->plain->rules);
    reshard_mesh_release(mesh);
    if (status != RESHARD_OK)
        return rs_fail_within(status,
                              "%s: %d tensor parallel ranks hold parts of the model, and no file "
                              "says how it is cut (universal_checkpoint_info); put its config.json "
                              "beside it, or give one, so that the rules of its family can say it",
                              r->checkpoint->path, (int)r->files.tp_count);
    return rs_store_note(r->checkpoint,
                         "no file says how %d tensor parallel ranks cut the model; it is joined by "
                         "%s, with the sizes in config.json",
                         (int)r->files.tp_count, r->padded->said);
}

static void release_book(reshard_context *context, rs_rulebook *book)
{
    if (book == NULL)
        return;
    rs_rulebook_release(book);
    rs_release(context, book);
}

void rs_zero_rules_release(rs_zero_reading *r)
{
    release_book(r->checkpoint->context, r->padded);
    release_book(r->checkpoint->context, r->plain);
    r->padded = r->plain = NULL;
}

/* ---- one parameter --------------------------------------------------------------------------- */

static bool local_shape(void *user, int32_t position, int64_t *out_shape)
{
    const rs_zero_local *locals = user;
    const rs_stored_tensor *tensor = &locals[position].tensor;
    memcpy(out_shape, tensor->shape, (size_t)tensor->ndim * sizeof(int64_t));
    return true;
}

static bool fits(const rs_size_told *told, int64_t size)
{
    return told->is_least ? size >= told->size : size == told->size;
}

/* Is the first rank's part all of it, as far as all dims are known? */
static bool is_whole(const rs_stored_tensor *tensor, const rs_size_told *told)
{
    bool is = true;
    for (int32_t d = 0; is && d < tensor->ndim; d++)
        is = told[d].is_known && fits(&told[d], tensor->shape[d]);
    return is;
}

/* The dim along which the whole is longer than the first rank's part; -1: none; -2: several. */
static int32_t find_dim(const rs_stored_tensor *tensor, const int64_t *shape)
{
    int32_t dim = -1;
    for (int32_t d = 0; d < tensor->ndim; d++) {
        if (shape[d] != tensor->shape[d])
            dim = dim == -1 ? d : -2;
    }
    return dim;
}

static reshard_status check_size(const rs_rule_result *result, const rs_size_told *told,
                                 int32_t dim)
{
    for (int32_t d = 0; d < result->ndim; d++) {
        if (d == dim && !told[d].is_known)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "config.json does not say how long its dimension %d is, so it is not "
                           "known whether tensor parallel ranks hold parts of it or all of it",
                           (int)d);
        if (told[d].is_known && !fits(&told[d], result->shape[d]))
            return rs_fail(RESHARD_ERR_INVALID,
                           "its parts make a dimension %d of %lld elements, but config.json says "
                           "%s%lld",
                           (int)d, (long long)result->shape[d], told[d].is_least ? "at least " : "",
                           (long long)told[d].size);
    }
    return RESHARD_OK;
}

/* All ranks have parts that could be of one tensor. */
static reshard_status check_kinds(const rs_zero_reading *r, const rs_zero_local *locals)
{
    const rs_stored_tensor *first = &locals[0].tensor;
    if (first->opaque || first->ndim > RESHARD_NDIM_MAX)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "tensors of its kind cannot be cut");
    for (int32_t i = 1; i < r->files.tp_count; i++) {
        const rs_stored_tensor *other = &locals[i].tensor;
        if (other->ndim != first->ndim || other->dtype != first->dtype)
            return rs_fail(RESHARD_ERR_CORRUPT,
                           "tensor parallel ranks 0 and %d do not agree on its dtype, or on how "
                           "many dimensions it has",
                           (int)i);
    }
    return RESHARD_OK;
}

reshard_status rs_zero_rules_find(rs_zero_reading *r, const rs_zero_local *locals,
                                  rs_rule_result *out_result, int32_t *out_dim)
{
    const rs_stored_tensor *first = &locals[0].tensor;
    rs_slice name = locals[0].parameter;
    const rs_rulebook *book = r->plain;
    rs_size_told told[RESHARD_NDIM_MAX];
    rs_local_shapes shapes = {
        .ndim = first->ndim, .find = local_shape, .user = (void *)(uintptr_t)locals};
    *out_dim = -1;
    reshard_status status = check_kinds(r, locals);
    if (status == RESHARD_OK)
        status = rs_sizes_tell(r->padded->rules, r->padded->mesh, &r->padded->keys, name,
                               first->ndim, told);
    if (status != RESHARD_OK || is_whole(first, told))
        return status;
    rs_rule_result result = {0};
    status = rs_rules_recover(book->rules, book->mesh, &book->keys, name.bytes, name.count, &shapes,
                              &result);
    if (status != RESHARD_OK)
        return status;
    int32_t dim = result.drop ? -1 : find_dim(first, result.shape);
    if (dim == -2)
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "is cut along two dimensions");
    if (status == RESHARD_OK && dim >= 0 && told[dim].is_known &&
        fits(&told[dim], first->shape[dim]))
        dim = -1; /* AutoTP left it whole */
    if (status == RESHARD_OK && dim >= 0)
        status = check_size(&result, told, dim);
    if (status == RESHARD_OK && dim >= 0) {
        *out_result = result;
        *out_dim = dim;
    } else {
        rs_rule_result_release(&result);
    }
    return status;
}
