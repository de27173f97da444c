/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint.c - computes the digest: a sum of runs, each shifted to its place, with dtype and
 * shape mixed in.
 *
 * The digest of a tensor is the remainder of "f32 10x7\n" followed by its bytes. That head is added
 * last, so runs can be summed before the shape is known.
 */
#include "base/error.h"
#include "checkpoint/engine/fingerprint_code.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- sums ------------------------------------------------------------------------------------ */

/* A function without any structure. The sum of mix(end) - mix(first) over the runs equals that of
 * the whole tensor only if every place in between begins as many runs as it ends. As runs only go
 * forward, they then form one chain. */
static uint64_t mix(uint64_t place)
{
    place += 0x9e3779b97f4a7c15u;
    place = (place ^ (place >> 30)) * 0xbf58476d1ce4e5b9u;
    place = (place ^ (place >> 27)) * 0x94d049bb133111ebu;
    return place ^ (place >> 31);
}

/* Computes x^(8 * places). */
static void find_power(const rs_fingerprint_code *code, uint64_t places, uint64_t out[RS_MODULI])
{
    uint64_t power[RS_MODULI] = {1, 1};
    for (int k = 0; places != 0; k++, places >>= 4) {
        uint64_t digit = places & 15;
        uint64_t factor[RS_MODULI] = {code->moduli[0].powers[k][digit],
                                      code->moduli[1].powers[k][digit]};
        if (digit != 0)
            code->multiply(code, power, factor, power);
    }
    memcpy(out, power, sizeof power);
}

/* Moves place_power to another place, with a single product if the step is the same as last
 * time. */
static void go_to(rs_fingerprint_writer *writer, uint64_t place)
{
    if (place < writer->place) {
        find_power(writer->code, place, writer->place_power);
        writer->place = place;
        return;
    }
    uint64_t step = place - writer->place;
    if (step == 0)
        return;
    if (step != writer->step) {
        find_power(writer->code, step, writer->step_power);
        writer->step = step;
    }
    writer->code->multiply(writer->code, writer->place_power, writer->step_power,
                           writer->place_power);
    writer->place = place;
}

void rs_fingerprint_begin(rs_fingerprint_writer *writer, const rs_fingerprint_code *code)
{
    *writer = (rs_fingerprint_writer){.code = code, .place_power = {1, 1}, .step_power = {1, 1}};
}

void rs_fingerprint_add_run(rs_fingerprint_writer *writer, uint64_t first, const void *bytes,
                            size_t count)
{
    const rs_fingerprint_code *code = writer->code;
    uint64_t remainder[RS_MODULI];
    if (count == 0)
        return;
    uint64_t shift = code->remainder(code, bytes, count, remainder);
    go_to(writer, first + shift);
    code->multiply(code, remainder, writer->place_power, remainder);
    rs_fingerprint run = {.remainder = {remainder[0], remainder[1]},
                          .bytes = count,
                          .coverage = mix(first + count) - mix(first)};
    rs_fingerprint_merge(&writer->sum, &run);
}

void rs_fingerprint_merge(rs_fingerprint *sum, const rs_fingerprint *other)
{
    for (int m = 0; m < RS_MODULI; m++)
        sum->remainder[m] ^= other->remainder[m];
    sum->bytes += other->bytes;
    sum->coverage += other->coverage;
}

/* ---- the digest of a tensor ------------------------------------------------------------------ */

static reshard_status count_bytes(reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                                  uint64_t *out_bytes)
{
    uint64_t bits = (uint64_t)reshard_dtype_bits(dtype);
    bool empty = false, fits = true;
    if (bits == 0 || ndim < 0)
        return rs_fail(RESHARD_ERR_INVALID,
                       "there is no digest for dtype %d and %" PRId32 " dimensions", (int)dtype,
                       ndim);
    for (int32_t d = 0; d < ndim; d++) {
        if (shape[d] < 0)
            return rs_fail(RESHARD_ERR_INVALID, "dimension %" PRId32 " has the size %" PRId64, d,
                           shape[d]);
        empty = empty || shape[d] == 0;
        fits = fits && !__builtin_mul_overflow(bits, (uint64_t)shape[d], &bits);
    }
    if (!fits && !empty)
        return rs_fail(RESHARD_ERR_RANGE, "a tensor has more than 2^61 bytes");
    *out_bytes = empty ? 0 : bits / 8 + (bits % 8 != 0);
    return RESHARD_OK;
}

/* Adds the head, "f32 10x7\n", and returns its length. */
static uint64_t add_head(rs_fingerprint_writer *writer, reshard_dtype dtype, int32_t ndim,
                         const int64_t *shape)
{
    char text[32];
    uint64_t place = 0;
    for (int32_t d = -1; d <= ndim; d++) {
        int length;
        if (d < 0)
            length = snprintf(text, sizeof text, "%s%s", reshard_dtype_name(dtype),
                              ndim == 0 ? " scalar" : "");
        else if (d < ndim)
            length = snprintf(text, sizeof text, "%c%" PRId64, d == 0 ? ' ' : 'x', shape[d]);
        else
            length = snprintf(text, sizeof text, "\n");
        rs_fingerprint_add_run(writer, place, text, (size_t)length);
        place += (uint64_t)length;
    }
    return place;
}

reshard_status rs_fingerprint_final(const rs_fingerprint_code *code, const rs_fingerprint *sum,
                                    reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                                    char out_text[RS_FINGERPRINT_TEXT])
{
    uint64_t bytes = 0, shifted[RS_MODULI];
    reshard_status status = count_bytes(dtype, ndim, shape, &bytes);
    if (status != RESHARD_OK)
        return status;
    if (sum->bytes != bytes)
        return rs_fail(RESHARD_ERR_CHECK, "%" PRIu64 " bytes for a tensor of %" PRIu64, sum->bytes,
                       bytes);
    if (sum->coverage != mix(bytes) - mix(0))
        return rs_fail(RESHARD_ERR_CHECK,
                       "%" PRIu64 " bytes, but some of them twice and others missing", bytes);
    rs_fingerprint_writer writer;
    rs_fingerprint_begin(&writer, code);
    go_to(&writer, add_head(&writer, dtype, ndim, shape));
    code->multiply(code, sum->remainder, writer.place_power, shifted);
    (void)snprintf(out_text, RS_FINGERPRINT_TEXT, "%016" PRIx64 "%016" PRIx64,
                   writer.sum.remainder[0] ^ shifted[0], writer.sum.remainder[1] ^ shifted[1]);
    return RESHARD_OK;
}

/* ---- the digest of a checkpoint -------------------------------------------------------------- */

/* Compares names as bytes. */
static int compare_names(const rs_fingerprint_entry *a, const rs_fingerprint_entry *b)
{
    size_t shared = a->name_bytes < b->name_bytes ? a->name_bytes : b->name_bytes;
    int order = shared != 0 ? memcmp(a->name, b->name, shared) : 0;
    return order != 0 ? order : (a->name_bytes > b->name_bytes) - (a->name_bytes < b->name_bytes);
}

/* Adds one line of the text that is digested: "DIGEST LENGTH NAME\n". */
static uint64_t add_entry(rs_fingerprint_writer *writer, uint64_t place,
                          const rs_fingerprint_entry *entry)
{
    char head[64];
    int length = snprintf(head, sizeof head, "%.32s %zu ", entry->digest, entry->name_bytes);
    rs_fingerprint_add_run(writer, place, head, (size_t)length);
    place += (uint64_t)length;
    rs_fingerprint_add_run(writer, place, entry->name, entry->name_bytes);
    place += entry->name_bytes;
    rs_fingerprint_add_run(writer, place, "\n", 1);
    return place + 1;
}

reshard_status rs_fingerprint_checkpoint(const rs_fingerprint_code *code, int64_t count,
                                         rs_fingerprint_entry_fn entry, void *user,
                                         char out_text[RS_FINGERPRINT_TEXT])
{
    rs_fingerprint_writer writer;
    rs_fingerprint_entry now = {0}, before = {0};
    uint64_t place = 0;
    rs_fingerprint_begin(&writer, code);
    for (int64_t i = 0; i < count; i++) {
        entry(user, i, &now);
        if (i > 0 && compare_names(&before, &now) >= 0)
            return rs_fail(RESHARD_ERR_INVALID,
                           "names %" PRId64 " and %" PRId64 " of a checkpoint are not in order",
                           i - 1, i);
        place = add_entry(&writer, place, &now);
        before = now;
    }
    int64_t bytes = (int64_t)place;
    return rs_fingerprint_final(code, &writer.sum, RESHARD_U8, 1, &bytes, out_text);
}
