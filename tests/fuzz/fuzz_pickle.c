/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_pickle.c - any bytes as a pickle, for libFuzzer. Memory stays in proportion, all texts lie
 * in readable memory, showing a node ends and fits, every key of a dict is found, errors have
 * words. While somebody takes items, or looks at them only, the same pickles are read.
 */
#include "checkpoint/archive/pickle.h"

#include "tests/support/info.h"

#include <stdlib.h>
#include <string.h>

#define VISITS_MAX 2000
#define DEPTH_MAX 50

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct visit {
    reshard_context *context;
    int left;
    unsigned sum; /* of all bytes, so that each is read */
} visit;

static void touch(visit *v, rs_slice bytes)
{
    for (size_t i = 0; i < bytes.count; i++)
        v->sum += (unsigned char)bytes.bytes[i];
}

static void check_dict(visit *v, const rs_pickle_node *node)
{
    rs_pickle_index index;
    if (rs_pickle_index_init(&index, v->context, node) != RESHARD_OK)
        return;
    for (size_t i = 0; i < rs_pickle_count(node); i++) {
        rs_slice key;
        if (!rs_pickle_text(node->items.nodes[2 * i], &key))
            continue;
        const rs_pickle_node *found = rs_pickle_index_get(&index, key);
        if (found == NULL)
            abort();
        if (memchr(key.bytes, '\0', key.count) == NULL && i < 50) {
            char *text = malloc(key.count + 1);
            if (text == NULL)
                abort();
            memcpy(text, key.bytes, key.count);
            text[key.count] = '\0';
            if (rs_pickle_get(node, text) != found)
                abort();
            free(text);
        }
    }
    rs_pickle_index_release(&index);
}

static void walk(visit *v, const rs_pickle_node *node, int depth)
{
    char shown[64];
    if (node == NULL || depth > DEPTH_MAX || --v->left < 0)
        return;
    rs_pickle_show(node, shown, 1 + (size_t)v->left % sizeof shown);
    touch(v, rs_slice_of(shown));
    switch (node->kind) {
    case RS_PICKLE_LARGE:
    case RS_PICKLE_TEXT:
    case RS_PICKLE_BYTES:
    case RS_PICKLE_BYTEARRAY:
        touch(v, node->bytes);
        break;
    case RS_PICKLE_DICT:
        check_dict(v, node);
        /* fall through */
    case RS_PICKLE_TUPLE:
    case RS_PICKLE_LIST:
    case RS_PICKLE_SET:
    case RS_PICKLE_FROZENSET:
        for (size_t i = 0; i < node->items.count; i++)
            walk(v, node->items.nodes[i], depth + 1);
        break;
    case RS_PICKLE_GLOBAL:
        touch(v, node->global->module);
        touch(v, node->global->name);
        break;
    case RS_PICKLE_REDUCE:
    case RS_PICKLE_OBJECT:
        walk(v, node->call->callable, depth + 1);
        walk(v, node->call->arguments, depth + 1);
        walk(v, node->call->keywords, depth + 1);
        walk(v, node->call->state, depth + 1);
        walk(v, node->call->list, depth + 1);
        walk(v, node->call->dict, depth + 1);
        break;
    case RS_PICKLE_PERSISTENT:
        walk(v, node->id, depth + 1);
        break;
    default:
        break;
    }
}

static reshard_status take(void *user, const rs_pickle_node *container,
                           const rs_pickle_node *const *items, size_t count, bool *out_taken)
{
    visit *v = user;
    for (size_t i = 0; i < count; i++)
        walk(v, items[i], 0);
    *out_taken = container->at % 8 != 7; /* most of them */
    return RESHARD_OK;
}

static void check_taking(reshard_context *context, const char *bytes, size_t size, bool is_ok)
{
    visit v = {.context = context, .left = VISITS_MAX};
    const rs_pickle_taker taker = {take, &v, 1};
    rs_pickle *pickle = NULL;
    size_t used = 0;
    reshard_status status =
        rs_pickle_read_taking(context, "input", bytes, size, &taker, &pickle, &used);
    if ((status == RESHARD_OK) != is_ok)
        abort();
    if (status == RESHARD_OK)
        walk(&v, rs_pickle_root(pickle), 0);
    rs_pickle_destroy(pickle);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    visit v = {.left = VISITS_MAX};
    rs_pickle *pickle = NULL;
    size_t used = 0, count = 0;
    if (reshard_context_create(NULL, &v.context) != RESHARD_OK)
        return 0;
    if (rs_pickle_read(v.context, "input", (const char *)data, size, &pickle, &used) ==
        RESHARD_OK) {
        if (used == 0 || used > size || data[used - 1] != '.')
            abort();
        walk(&v, rs_pickle_root(pickle), 0);
        const rs_pickle_node *const *globals = rs_pickle_globals(pickle, &count);
        for (size_t i = 0; i < count; i++)
            walk(&v, globals[i], 0);
    } else if (reshard_error_text()[0] == '\0') {
        abort();
    }
    if (info_memory(v.context).bytes_peak > 8192 + 128 * size)
        abort();
    check_taking(v.context, (const char *)data, size, pickle != NULL);
    rs_pickle_destroy(pickle);
    if (info_memory(v.context).bytes != 0)
        abort();
    reshard_context_destroy(v.context);
    return 0;
}
