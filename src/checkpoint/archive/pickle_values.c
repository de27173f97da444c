/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_values.c - opcodes that push one value and take none: None, bools, numbers, texts and
 * bytes. */
#include "base/context.h"
#include "checkpoint/archive/pickle_reader.h"
#include "checkpoint/archive/pickle_text.h"

#include <assert.h>
#include <string.h>

typedef rs_pickle_reader reader;
typedef rs_pickle_argument argument;
typedef rs_pickle_node node;

reshard_status rs_pickle_do_none(reader *r, const argument *a)
{
    (void)a;
    return rs_pickle_push(r, rs_pickle_make(r, RS_PICKLE_NONE));
}

reshard_status rs_pickle_do_bool(reader *r, const argument *a)
{
    node *made = rs_pickle_make(r, RS_PICKLE_BOOL);
    if (made != NULL)
        made->truth = a->which != 0;
    return rs_pickle_push(r, made);
}

reshard_status rs_pickle_do_int(reader *r, const argument *a)
{
    node *made = rs_pickle_make(r, RS_PICKLE_INT);
    if (made != NULL)
        made->integer = (int64_t)a->number;
    return rs_pickle_push(r, made);
}

static reshard_status push_bytes(reader *r, rs_pickle_kind kind, rs_slice bytes)
{
    node *made = rs_pickle_make(r, kind);
    if (made != NULL)
        made->bytes = bytes;
    return rs_pickle_push(r, made);
}

/* Pushes an integer in two's complement of any length. Beyond 8 bytes, the bytes must live as long
 * as the node. */
static reshard_status push_integer(reader *r, rs_slice bytes)
{
    bytes.count = rs_pickle_trim(bytes.bytes, bytes.count);
    if (bytes.count > 8)
        return push_bytes(r, RS_PICKLE_LARGE, bytes);
    argument a = {.number = (uint64_t)rs_pickle_small(bytes.bytes, bytes.count)};
    return rs_pickle_do_int(r, &a);
}

reshard_status rs_pickle_do_long(reader *r, const argument *a)
{
    return push_integer(r, a->bytes);
}

/* INT writes True and False as 01 and 00; LONG may end in L. */
reshard_status rs_pickle_do_digits(reader *r, const argument *a)
{
    char bytes[RS_PICKLE_LARGE_BYTES_MAX];
    rs_slice digits = a->bytes;
    size_t count = 0;
    if (a->which == 'I' && (rs_slice_equals(digits, "00") || rs_slice_equals(digits, "01")))
        return rs_pickle_do_bool(r, &(argument){.which = digits.bytes[1] == '1'});
    if (a->which == 'L' && digits.count != 0 && digits.bytes[digits.count - 1] == 'L')
        digits.count--;
    const char *wrong = rs_pickle_parse_integer(digits, bytes, &count);
    if (wrong != NULL)
        return rs_pickle_fail(r, wrong);
    const char *kept = count > 8 ? rs_arena_copy(r->arena, bytes, count, 1) : bytes;
    return kept != NULL ? push_integer(r, (rs_slice){kept, count}) : rs_allocation_status();
}

static reshard_status push_float(reader *r, double real)
{
    node *made = rs_pickle_make(r, RS_PICKLE_FLOAT);
    if (made != NULL)
        made->real = real;
    return rs_pickle_push(r, made);
}

/* Pickles store doubles big-endian; the number was read as little-endian. */
reshard_status rs_pickle_do_float(reader *r, const argument *a)
{
    uint64_t bits = 0;
    double real;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | (a->number >> (8 * i) & 0xff);
    memcpy(&real, &bits, sizeof real);
    return push_float(r, real);
}

reshard_status rs_pickle_do_float_text(reader *r, const argument *a)
{
    double real = 0;
    const char *wrong = rs_pickle_parse_float(a->bytes, &real);
    return wrong == NULL ? push_float(r, real) : rs_pickle_fail(r, wrong);
}

reshard_status rs_pickle_do_bytes(reader *r, const argument *a)
{
    return push_bytes(r, (rs_pickle_kind)a->which, a->bytes);
}

reshard_status rs_pickle_do_text(reader *r, const argument *a)
{
    return rs_pickle_is_utf8(a->bytes) ? push_bytes(r, RS_PICKLE_TEXT, a->bytes)
                                       : rs_pickle_fail(r, "the text is not UTF-8");
}

/* A str of Python 2 becomes a text if it is UTF-8, else bytes. */
reshard_status rs_pickle_do_string(reader *r, const argument *a)
{
    return push_bytes(r, rs_pickle_is_utf8(a->bytes) ? RS_PICKLE_TEXT : RS_PICKLE_BYTES, a->bytes);
}

typedef const char *decode_fn(rs_slice text, char *out_bytes, size_t *out_count);

static reshard_status decode(reader *r, const argument *a, decode_fn *how, argument *out)
{
    char *bytes = rs_arena_allocate_array(r->arena, a->bytes.count, 2);
    if (bytes == NULL)
        return rs_allocation_status();
    size_t count = 0;
    const char *wrong = how(a->bytes, bytes, &count);
    if (wrong != NULL)
        return rs_pickle_fail(r, wrong);
    assert(count <= 2 * a->bytes.count);
    *out = (argument){.bytes = {bytes, count}};
    return RESHARD_OK;
}

reshard_status rs_pickle_do_text_escaped(reader *r, const argument *a)
{
    argument decoded = {0};
    reshard_status status = decode(r, a, rs_pickle_decode_unicode, &decoded);
    return status == RESHARD_OK ? push_bytes(r, RS_PICKLE_TEXT, decoded.bytes) : status;
}

reshard_status rs_pickle_do_string_escaped(reader *r, const argument *a)
{
    argument decoded = {0};
    reshard_status status = decode(r, a, rs_pickle_decode_string, &decoded);
    return status == RESHARD_OK ? rs_pickle_do_string(r, &decoded) : status;
}
