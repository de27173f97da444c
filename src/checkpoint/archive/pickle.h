/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.h - Python's pickles, protocols 0 to 5, read as data. Nothing is imported, called or run:
 * a global stays a pair of names, and a call stays a node that says what would be called with what.
 * Whoever reads the nodes decides which names mean something.
 *
 * The result is a graph, not a tree: nodes can be shared, and a container can hold itself. So a
 * recursive walk needs a bound on its depth, and one that visits shared nodes again needs a bound
 * on its length.
 *
 * Reading takes time and memory in proportion to the bytes (at most 128 bytes of memory for each),
 * whatever they hold. Refused: extension codes and buffers kept outside the pickle (UNSUPPORTED);
 * more than RS_PICKLE_BYTES_MAX bytes (RANGE); all that Python's own reader refuses, and values
 * left over on the stack (SYNTAX, with the place in bytes and the name of the opcode).
 */
#ifndef RS_CHECKPOINT_ARCHIVE_PICKLE_H
#define RS_CHECKPOINT_ARCHIVE_PICKLE_H

#include "base/slice.h"

#include <reshard/base.h>

#define RS_PICKLE_BYTES_MAX UINT32_MAX
#define RS_PICKLE_PROTOCOL_MAX 5
/* Longest module or name of a global, and longest key of a dict that can be indexed. */
#define RS_PICKLE_GLOBAL_BYTES_MAX 1024
#define RS_PICKLE_KEY_BYTES_MAX 4096
/* Decimal digits of a number in text form; Python has the same bound. */
#define RS_PICKLE_DIGITS_MAX 4300

typedef enum rs_pickle_kind {
    RS_PICKLE_NONE,
    RS_PICKLE_BOOL,       /* truth */
    RS_PICKLE_INT,        /* integer */
    RS_PICKLE_LARGE,      /* bytes: an int beyond 64 bits, two's complement, lowest byte first */
    RS_PICKLE_FLOAT,      /* real */
    RS_PICKLE_TEXT,       /* bytes: UTF-8, in which lone surrogates are possible */
    RS_PICKLE_BYTES,      /* bytes; also a str of Python 2 that is not UTF-8 */
    RS_PICKLE_BYTEARRAY,  /* bytes */
    RS_PICKLE_TUPLE,      /* items */
    RS_PICKLE_LIST,       /* items */
    RS_PICKLE_SET,        /* items, in the order of the file */
    RS_PICKLE_FROZENSET,  /* items, likewise */
    RS_PICKLE_DICT,       /* items: key, value, key, value, ..; the last of equal keys counts */
    RS_PICKLE_GLOBAL,     /* global */
    RS_PICKLE_REDUCE,     /* call: callable(*arguments) */
    RS_PICKLE_OBJECT,     /* call: callable.__new__(callable, *arguments, **keywords) */
    RS_PICKLE_PERSISTENT, /* id: names something that is kept elsewhere */
} rs_pickle_kind;

typedef struct rs_pickle_node rs_pickle_node;

typedef struct rs_pickle_items {
    const rs_pickle_node **nodes;
    size_t count; /* of nodes: twice the number of pairs for a dict */
    size_t capacity;
} rs_pickle_items;

typedef struct rs_pickle_global {
    rs_slice module, name;
} rs_pickle_global;

typedef struct rs_pickle_call {
    const rs_pickle_node *callable;
    const rs_pickle_node *arguments; /* a tuple, unless somebody made the pickle by hand */
    const rs_pickle_node *keywords;  /* NULL: none */
    const rs_pickle_node *state;     /* what the object is to be filled with; NULL: nothing */
    rs_pickle_node *list;            /* what is appended to it; NULL: nothing */
    rs_pickle_node *dict;            /* what is set in it by key; NULL: nothing */
} rs_pickle_call;

struct rs_pickle_node {
    rs_pickle_kind kind;
    uint32_t at; /* where in the bytes the opcode stands that made it */
    union {
        bool truth;
        int64_t integer;
        double real;
        rs_slice bytes;
        rs_pickle_items items;
        const rs_pickle_global *global;
        rs_pickle_call *call;
        const rs_pickle_node *id;
    };
};

typedef struct rs_pickle rs_pickle;

/* Local. Reads one pickle from the front of the bytes; *out_used is how many belong to it. `what`
 * is what errors call the bytes. Both must outlive the result, which points into them. */
reshard_status rs_pickle_read(reshard_context *context, const char *what, const char *bytes,
                              size_t count, rs_pickle **out_pickle, size_t *out_used);
void rs_pickle_destroy(rs_pickle *pickle);
/* Never NULL; owned by the pickle, as all nodes are. Nothing changes them any more: threads may
 * share them. */
const rs_pickle_node *rs_pickle_root(const rs_pickle *pickle);
/* All globals that the bytes name, each once, by module and name. */
const rs_pickle_node *const *rs_pickle_globals(const rs_pickle *pickle, size_t *out_count);

/* ---- nodes: all take NULL, which is of no kind ----------------------------------------------- */

/* "int", "a call", ..: for messages. */
const char *rs_pickle_kind_text(const rs_pickle_node *node);
bool rs_pickle_is(const rs_pickle_node *node, rs_pickle_kind kind);
/* Is it this global? The names that Python 2 had for "builtins" and "copyreg" are taken for
 * them. */
bool rs_pickle_is_global(const rs_pickle_node *node, const char *module, const char *name);
/* Is it a call (REDUCE or OBJECT) of this global? */
bool rs_pickle_is_call(const rs_pickle_node *node, const char *module, const char *name);
/* False when it is not an int of 64 bits. A bool is none. */
bool rs_pickle_int(const rs_pickle_node *node, int64_t *out_integer);
/* False when it is no text. */
bool rs_pickle_text(const rs_pickle_node *node, rs_slice *out_text);
/* An item of a tuple, list or set; NULL beyond the end and for other kinds. */
const rs_pickle_node *rs_pickle_item(const rs_pickle_node *node, size_t index);
/* Items of a tuple, list or set, pairs of a dict; 0 for other kinds. */
size_t rs_pickle_count(const rs_pickle_node *node);
/* The dict that a node is or, for a call such as OrderedDict(), that is set in it; else NULL. */
const rs_pickle_node *rs_pickle_dict(const rs_pickle_node *node);
/* The value of a text key in a dict (as rs_pickle_dict takes it), by looking at all keys; NULL when
 * there is none. */
const rs_pickle_node *rs_pickle_get(const rs_pickle_node *node, const char *key);

/* Writes the node into at most `room` bytes (room > 0) with NUL, in the manner of Python's repr,
 * and shortens what is long or deep with "..". One line of printable ASCII and UTF-8. */
void rs_pickle_show(const rs_pickle_node *node, char *out_text, size_t room);

/* ---- the text keys of a large dict, sorted --------------------------------------------------- */

typedef struct rs_pickle_index {
    reshard_context *context;
    size_t count; /* of text keys, each once */
    size_t capacity;
    struct rs_pickle_pair *pairs;
} rs_pickle_index;

/* Local. Takes what rs_pickle_dict takes; other nodes have no keys. Errors: RANGE for a key beyond
 * RS_PICKLE_KEY_BYTES_MAX. */
reshard_status rs_pickle_index_init(rs_pickle_index *index, reshard_context *context,
                                    const rs_pickle_node *node);
void rs_pickle_index_release(rs_pickle_index *index);
/* NULL when there is no such key. */
const rs_pickle_node *rs_pickle_index_get(const rs_pickle_index *index, rs_slice key);

#endif
