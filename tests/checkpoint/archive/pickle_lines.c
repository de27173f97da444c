/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_lines.c - reads pickles from standard input, each behind its length (4 bytes, lowest
 * first), and writes one line for each: the graph, or "error STATUS: words". For test_pickle.py,
 * which writes the same lines from what Python makes of them.
 *
 * A container is written as #k and what it holds, k counting containers; when met again, as #k
 * alone.
 */
#include "checkpoint/archive/pickle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 3000

typedef struct printer {
    const rs_pickle_node **seen; /* a hash table; its size is a power of two */
    size_t *numbers;
    size_t room, count;
} printer;

/* Is the container new? Writes its number. */
static bool number(printer *p, const rs_pickle_node *node)
{
    size_t i = ((uintptr_t)node >> 4) * 0x9e3779b97f4a7c15U & (p->room - 1);
    while (p->seen[i] != NULL && p->seen[i] != node)
        i = (i + 1) & (p->room - 1);
    bool is_new = p->seen[i] == NULL;
    if (is_new) {
        p->seen[i] = node;
        p->numbers[i] = p->count++;
    }
    printf("#%zu", p->numbers[i]);
    return is_new;
}

static void print_hex(char letter, rs_slice bytes)
{
    putchar(letter);
    for (size_t i = 0; i < bytes.count; i++)
        printf("%02x", (unsigned char)bytes.bytes[i]);
}

static void print(printer *p, const rs_pickle_node *node, int depth);

static void print_items(printer *p, char open, const rs_pickle_node *node, char close, int depth)
{
    if (!number(p, node))
        return;
    putchar(open);
    for (size_t i = 0; i < node->items.count; i++) {
        if (i != 0)
            putchar(' ');
        print(p, node->items.nodes[i], depth + 1);
    }
    putchar(close);
}

static void print_call(printer *p, const rs_pickle_node *node, int depth)
{
    if (!number(p, node))
        return;
    const rs_pickle_call *call = node->call;
    const rs_pickle_node *parts[] = {call->callable, call->arguments, call->keywords,
                                     call->state,    call->list,      call->dict};
    putchar(node->kind == RS_PICKLE_REDUCE ? 'R' : 'O');
    for (size_t i = 0; i < 6; i++) {
        putchar(i == 0 ? '(' : ' ');
        if (parts[i] == NULL)
            putchar('-');
        else
            print(p, parts[i], depth + 1);
    }
    putchar(')');
}

static void print(printer *p, const rs_pickle_node *node, int depth)
{
    uint64_t bits;
    if (depth > DEPTH_MAX) {
        printf("deep");
        return;
    }
    switch (node->kind) {
    case RS_PICKLE_NONE:
        putchar('N');
        break;
    case RS_PICKLE_BOOL:
        putchar(node->truth ? 'T' : 'F');
        break;
    case RS_PICKLE_INT:
        printf("i%" PRId64, node->integer);
        break;
    case RS_PICKLE_LARGE:
        print_hex('L', node->bytes);
        break;
    case RS_PICKLE_FLOAT:
        memcpy(&bits, &node->real, sizeof bits);
        printf("f%016" PRIx64, bits);
        break;
    case RS_PICKLE_TEXT:
        print_hex('u', node->bytes);
        break;
    case RS_PICKLE_BYTES:
        print_hex('b', node->bytes);
        break;
    case RS_PICKLE_BYTEARRAY:
        print_hex('B', node->bytes);
        break;
    case RS_PICKLE_TUPLE:
        if (node->items.count == 0)
            printf("()");
        else
            print_items(p, '(', node, ')', depth);
        break;
    case RS_PICKLE_LIST:
        print_items(p, '[', node, ']', depth);
        break;
    case RS_PICKLE_SET:
        print_items(p, '<', node, '>', depth);
        break;
    case RS_PICKLE_FROZENSET:
        print_items(p, '|', node, '|', depth);
        break;
    case RS_PICKLE_DICT:
        print_items(p, '{', node, '}', depth);
        break;
    case RS_PICKLE_GLOBAL:
        print_hex('g', node->global->module);
        print_hex('.', node->global->name);
        break;
    case RS_PICKLE_REDUCE:
    case RS_PICKLE_OBJECT:
        print_call(p, node, depth);
        break;
    case RS_PICKLE_PERSISTENT:
        putchar('P');
        print(p, node->id, depth + 1);
        break;
    }
}

static void run(const char *bytes, size_t count)
{
    rs_pickle *pickle = NULL;
    size_t used = 0;
    char shown[200];
    reshard_status status = rs_pickle_read(NULL, "input", bytes, count, &pickle, &used);
    if (status != RESHARD_OK) {
        printf("error %d: %s\n", (int)status, reshard_error_text());
        return;
    }
    printer p = {.room = 64};
    while (p.room < count + count / 2)
        p.room *= 2;
    p.seen = calloc(p.room, sizeof *p.seen);
    p.numbers = calloc(p.room, sizeof *p.numbers);
    if (p.seen == NULL || p.numbers == NULL)
        abort();
    print(&p, rs_pickle_root(pickle), 0);
    printf(" used %zu\n", used);
    /* must come back, whatever it is */
    rs_pickle_show(rs_pickle_root(pickle), shown, sizeof shown);
    free(p.seen);
    free(p.numbers);
    rs_pickle_destroy(pickle);
}

int main(void)
{
    unsigned char length[4];
    while (fread(length, 1, 4, stdin) == 4) {
        size_t count = (size_t)length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 |
                       (size_t)length[3] << 24;
        char *bytes = malloc(count + 1);
        if (bytes == NULL || fread(bytes, 1, count, stdin) != count)
            abort();
        run(bytes, count);
        free(bytes);
    }
    return 0;
}
