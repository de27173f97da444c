/* SPDX-License-Identifier: Apache-2.0 */
/* config_file.c - finds the places that change, and copies the text between them. */
#include "checkpoint/convert/config_file.h"

#include "base/context.h"
#include "text/json.h"
#include "text/json_writer.h"

#include <string.h>

typedef struct rewriting {
    rs_json json;
    rs_slice text;
    rs_config_change *change;
    size_t copied; /* bytes of the text that were copied or replaced so far */
    bool changed;
    bool names_dtype; /* the whole model has a dtype */
    rs_json_writer writer;
} rewriting;

/* Copies the text up to `place`, and skips what follows up to `next`. */
static void copy_until(rewriting *r, size_t place, size_t next)
{
    rs_json_writer_add(&r->writer, r->text.bytes + r->copied, place - r->copied);
    r->copied = next;
    r->changed = true;
}

/* Replaces a string by the dtype, between its quotes. */
static void replace(rewriting *r, const rs_json_token *token)
{
    size_t begin = (size_t)(token->bytes - r->text.bytes);
    if (rs_json_token_is(token, r->change->dtype))
        return;
    copy_until(r, begin, begin + token->count);
    rs_json_writer_text(&r->writer, r->change->dtype);
}

static reshard_status rewrite_object(rewriting *r, int depth);

static reshard_status rewrite_member(rewriting *r, const rs_json_token *key, int depth)
{
    rs_json_token token;
    bool is_dtype = rs_json_token_is(key, "torch_dtype") || rs_json_token_is(key, "dtype");
    bool is_part = depth == 0 && rs_slice_ends((rs_slice){key->bytes, key->count}, "_config") &&
                   !rs_json_token_is(key, "quantization_config");
    reshard_status status = rs_json_next(&r->json, &token);
    if (status != RESHARD_OK)
        return status;
    if (is_part && token.kind == RS_JSON_OBJECT_BEGIN)
        return rewrite_object(r, depth + 1);
    if (is_dtype && token.kind == RS_JSON_STRING) {
        replace(r, &token);
        r->names_dtype = r->names_dtype || depth == 0;
    }
    return rs_json_skip_rest(&r->json, &token);
}

static void add_dtype(rewriting *r, size_t place, bool is_first)
{
    copy_until(r, place, place);
    rs_json_writer_text(&r->writer,
                        is_first ? "\n  \"torch_dtype\": \"" : ",\n  \"torch_dtype\": \"");
    rs_json_writer_text(&r->writer, r->change->dtype);
    rs_json_writer_text(&r->writer, "\"");
}

/* Rewrites an object after its opening brace. A member is removed together with the comma before
 * it; the first member together with the comma after it, that is, up to the next key. */
static reshard_status rewrite_object(rewriting *r, int depth)
{
    /* end: of the last member that was kept, or of a removed one after it */
    size_t end = r->json.at, first_gone = SIZE_MAX;
    bool any = false;
    for (;;) {
        rs_json_token key;
        reshard_status status = rs_json_next(&r->json, &key);
        if (status != RESHARD_OK)
            return status;
        bool is_end = key.kind == RS_JSON_OBJECT_END;
        size_t begin = (size_t)(key.bytes - r->text.bytes) - (is_end ? 0 : 1);
        if (first_gone != SIZE_MAX)
            copy_until(r, first_gone, begin);
        first_gone = SIZE_MAX;
        if (is_end) {
            if (depth == 0 && r->change->is_dequantised && !r->names_dtype)
                add_dtype(r, r->copied > end ? r->copied : end, !any);
            return RESHARD_OK;
        }
        status = rewrite_member(r, &key, depth);
        if (status != RESHARD_OK)
            return status;
        if (!r->change->is_dequantised || !rs_json_token_is(&key, "quantization_config")) {
            end = r->json.at;
            any = true;
            continue;
        }
        r->change->quantization_gone = true;
        if (any) {
            copy_until(r, end, r->json.at);
            end = r->json.at;
        } else {
            first_gone = begin;
        }
    }
}

static reshard_status keep_text(rewriting *r, rs_arena *arena, rs_slice *out_text)
{
    rs_json_writer_add(&r->writer, r->text.bytes + r->copied, r->text.count - r->copied);
    if (r->writer.status != RESHARD_OK)
        return r->writer.status;
    out_text->count = (size_t)r->writer.count;
    out_text->bytes = rs_arena_copy(arena, r->writer.bytes, out_text->count, 1);
    return out_text->bytes != NULL ? RESHARD_OK : rs_allocation_status();
}

reshard_status rs_config_file_rewrite(rs_arena *arena, rs_slice text, rs_config_change *change,
                                      rs_slice *out_text)
{
    rs_json_token token;
    rewriting r = {.text = text, .change = change};
    *out_text = (rs_slice){NULL, 0};
    rs_json_writer_init(&r.writer, arena->context);
    rs_json_init(&r.json, "config.json", text.bytes, text.count);
    r.json.is_python = true;
    reshard_status status =
        rs_json_expect(&r.json, RS_JSON_OBJECT_BEGIN, "config.json is not an object", &token);
    if (status == RESHARD_OK)
        status = rewrite_object(&r, 0);
    if (status == RESHARD_OK)
        status = rs_json_next(&r.json, &token); /* checks that nothing follows */
    if (status == RESHARD_OK && r.changed)
        status = keep_text(&r, arena, out_text);
    rs_json_writer_release(&r.writer);
    return status;
}
