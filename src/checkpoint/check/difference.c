/* SPDX-License-Identifier: Apache-2.0 */
/*
 * difference.c - describes one difference, with the values of its first element as text, and with
 * what was measured.
 */
#include "base/dtype.h"
#include "base/options.h"
#include "checkpoint/check/comparison.h"
#include "kernel/values/cast.h"
#include "text/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- values as text -------------------------------------------------------------------------- */

static bool is_signed(reshard_dtype dtype)
{
    return dtype == RESHARD_I8 || dtype == RESHARD_I16 || dtype == RESHARD_I32 ||
           dtype == RESHARD_I64;
}

static bool is_unsigned(reshard_dtype dtype)
{
    return dtype == RESHARD_U8 || dtype == RESHARD_U16 || dtype == RESHARD_U32 ||
           dtype == RESHARD_U64;
}

/* Little-endian, as in files. */
static uint64_t load(const unsigned char *bytes, size_t count)
{
    uint64_t number = 0;
    for (size_t i = count; i-- > 0;)
        number = number << 8 | bytes[i];
    return number;
}

static void add_float(reshard_dtype dtype, const unsigned char *bytes, rs_text *text)
{
    double number = 0;
    rs_cast_reference(dtype, RESHARD_F64, bytes, &number);
    rs_text_add(text, "%.*g", dtype == RESHARD_F64 ? 17 : 9, number);
}

/* All bytes as one number in hexadecimal. Elements may have more bytes than a uint64_t. */
static void add_hex(const unsigned char *bytes, size_t count, rs_text *text)
{
    rs_text_add(text, "0x");
    for (size_t i = count; i-- > 0;)
        rs_text_add(text, "%02x", bytes[i]);
}

/* RESHARD_DTYPE_NONE: a byte. as_bytes: in hexadecimal, whatever the dtype. */
static void add_value(reshard_dtype dtype, const unsigned char *bytes, size_t count, bool as_bytes,
                      rs_text *text)
{
    uint64_t number = load(bytes, count);
    int unused = count < 8 ? 64 - 8 * (int)count : 0;
    if (as_bytes || dtype == RESHARD_DTYPE_NONE)
        add_hex(bytes, count, text);
    else if (rs_dtype_is_float(dtype))
        add_float(dtype, bytes, text);
    else if (is_signed(dtype))
        rs_text_add(text, "%" PRId64, (int64_t)(number << unused) >> unused);
    else if (is_unsigned(dtype))
        rs_text_add(text, "%" PRIu64, number);
    else if (dtype == RESHARD_BOOL && number <= 1)
        rs_text_add(text, number == 1 ? "true" : "false");
    else
        add_hex(bytes, count, text);
}

/* ---- one difference -------------------------------------------------------------------------- */

static void describe_element(const rs_stored_tensor *tensor, const rs_compared *item,
                             reshard_difference *made)
{
    char *shown[2] = {made->value_a, made->value_b};
    made->ndim = tensor->carried_ndim;
    rs_element_index(tensor, item->first, made->element);
    /* As numbers, zeros of both signs look alike, and so do many NaNs: then show bytes. */
    for (int as_bytes = 0; as_bytes < 2 && strcmp(shown[0], shown[1]) == 0; as_bytes++) {
        for (int i = 0; i < 2; i++) {
            rs_text text;
            rs_text_init(&text, shown[i], RESHARD_VALUE_TEXT);
            add_value(tensor->opaque ? RESHARD_DTYPE_NONE : tensor->dtype, item->values[i],
                      (size_t)tensor->element_bytes, as_bytes != 0, &text);
        }
    }
}

static void describe_measure(const rs_compared *item, reshard_difference *made)
{
    const rs_measure *measure = item->measure;
    made->measured = 1;
    made->is_within = item->is_within;
    made->number_count = measure->numbers;
    made->numbers_differing = measure->differing;
    for (int i = 0; i < 2; i++) {
        made->nan_count[i] = measure->nans[i];
        made->infinite_count[i] = measure->infinite[i];
    }
    made->unlike_count = measure->unlike;
    made->largest = measure->finite == 0 ? NAN : measure->largest;
    made->mean = rs_measure_mean(measure);
    made->relative_l2 = rs_measure_relative_l2(measure);
    made->cosine = rs_measure_cosine(measure);
}

/* Says which tensor of A, as it was opened, the first element comes from, and where it is there;
 * if no element is known, which is the first of those that A's is made of. */
static void describe_origin(const reshard_comparison *comparison, const rs_compared *item,
                            reshard_difference *made)
{
    const rs_mapped_origin *origin = &comparison->mapped->origins[item->a];
    const rs_stored_tensor *from = NULL;
    bool knows_element = item->first >= 0 && !comparison->b->tensors[item->b].opaque;
    if (knows_element)
        from = rs_mapped_find(comparison->mapped, item->a, made->element, made->origin_element);
    else if (origin->count != 0)
        from = &comparison->opened->tensors[origin->sources[0]];
    made->a = origin->count != 0 ? origin->sources[0] : -1;
    made->origin_ndim = from != NULL && knows_element ? from->ndim : -1;
    made->origin_count = origin->count;
    if (from != NULL) {
        made->origin = from->name.bytes;
        made->origin_bytes = from->name.count;
    }
}

reshard_status reshard_comparison_get_difference(const reshard_comparison *comparison,
                                                 int64_t index, reshard_difference *out_difference)
{
    if (index < 0 || index >= comparison->count)
        return rs_fail(RESHARD_ERR_RANGE, "there is no difference %lld; %lld are listed",
                       (long long)index, (long long)comparison->count);
    const rs_compared *item = &comparison->items[index];
    reshard_difference made = {.kind = item->kind,
                               .name = item->name.bytes,
                               .name_bytes = item->name.count,
                               .a = item->a,
                               .b = item->b,
                               .dtype = item->dtype,
                               .ndim = -1};
    if (item->first >= 0)
        describe_element(&comparison->b->tensors[item->b], item, &made);
    if (item->a >= 0) {
        made.ndim_a = comparison->a->tensors[item->a].ndim;
        made.shape_a = comparison->a->tensors[item->a].shape;
    }
    if (item->a >= 0 && comparison->mapped != NULL)
        describe_origin(comparison, item, &made);
    if (item->measure != NULL)
        describe_measure(item, &made);
    return rs_report_write("difference", &made, sizeof made, out_difference);
}
