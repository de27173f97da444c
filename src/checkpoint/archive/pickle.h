/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.h - Python's pickles, protocols 0 to 5, read as data. Nothing is imported, called or run:
 * a global stays a pair of names, and a call stays a node that says what would be called, with
 * which arguments. Whoever reads the nodes decides which names mean something.
 *
 * The result is a graph, not a tree: nodes can be shared, and a container can contain itself. A
 * recursive walk therefore needs a bound on its depth, and on its length if it revisits shared
 * nodes.
 *
 * Time and memory are proportional to the number of bytes (at most 128 bytes of memory per byte),
 * whatever they contain. Refused: extension codes and out-of-band buffers (UNSUPPORTED); more than
 * RS_PICKLE_BYTES_MAX bytes (RANGE); whatever Python's own reader refuses, and values left over on
 * the stack (SYNTAX, with the position in bytes and the name of the opcode).
 */
#ifndef RS_CHECKPOINT_ARCHIVE_PICKLE_H
#define RS_CHECKPOINT_ARCHIVE_PICKLE_H

#include "base/slice.h"
#include "text/text.h"

#include <reshard/base.h>

#define RS_PICKLE_BYTES_MAX UINT32_MAX
#define RS_PICKLE_PROTOCOL_MAX 5
/* Longest module or name of a global, and longest dict key that rs_pickle_index_init accepts. */
#define RS_PICKLE_GLOBAL_BYTES_MAX 1024
#define RS_PICKLE_KEY_BYTES_MAX 4096
/* Most decimal digits of a number in text form; Python has the same limit. */
#define RS_PICKLE_DIGITS_MAX 4300

typedef enum rs_pickle_kind {
    RS_PICKLE_NONE,
    RS_PICKLE_BOOL,      /* truth */
    RS_PICKLE_INT,       /* integer */
    RS_PICKLE_LARGE,     /* bytes: an int beyond 64 bits, two's complement, lowest byte first */
    RS_PICKLE_FLOAT,     /* real */
    RS_PICKLE_TEXT,      /* bytes: UTF-8, perhaps with lone surrogates */
    RS_PICKLE_BYTES,     /* bytes; also a str of Python 2 that is not UTF-8 */
    RS_PICKLE_BYTEARRAY, /* bytes */
    RS_PICKLE_TUPLE,     /* items */
    RS_PICKLE_LIST,      /* items */
    RS_PICKLE_SET,       /* items, in the order of the file */
    RS_PICKLE_FROZENSET, /* items, likewise */
    RS_PICKLE_DICT,      /* items: key, value, key, value, ..; of equal keys, the last one counts */
    RS_PICKLE_GLOBAL,    /* global */
    RS_PICKLE_REDUCE,    /* call: callable(*arguments) */
    RS_PICKLE_OBJECT,    /* call: callable.__new__(callable, *arguments, **keywords) */
    RS_PICKLE_PERSISTENT, /* id: refers to something kept outside the pickle */
} rs_pickle_kind;

typedef struct rs_pickle_node rs_pickle_node;

typedef struct rs_pickle_items {
    const rs_pickle_node **nodes;
    size_t count; /* number of nodes; for a dict, twice the number of pairs */
    size_t capacity;
} rs_pickle_items;

typedef struct rs_pickle_global {
    rs_slice module, name;
    /* Python would call it, or an attribute of it, to read the pickle. Making an object without
     * calling its class (NEWOBJ) does not count. In rs_pickle_globals: any of that name. */
    bool is_called;
} rs_pickle_global;

typedef struct rs_pickle_call {
    const rs_pickle_node *callable;
    const rs_pickle_node *arguments; /* a tuple */
    const rs_pickle_node *keywords;  /* NULL: none */
    const rs_pickle_node *state;     /* from BUILD; NULL: none */
    rs_pickle_node *list;            /* items appended to it; NULL: none */
    rs_pickle_node *dict;            /* pairs set in it; NULL: none */
} rs_pickle_call;

struct rs_pickle_node {
    rs_pickle_kind kind;
    uint32_t at; /* byte position of the opcode that made it */
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

/* Local. Reads one pickle from the front of the bytes; *out_used is its length. `what` names the
 * bytes in errors. The bytes must outlive the result, which points into them. */
reshard_status rs_pickle_read(reshard_context *context, const char *what, const char *bytes,
                              size_t count, rs_pickle **out_pickle, size_t *out_used);

/* Takes long lists and dicts apart while they are read, so that the nodes of a million items never
 * exist at the same time. */
typedef struct rs_pickle_taker {
    /* Called with items (for a dict: key, value, ..) that are about to be added to a list or dict,
     * which may already have some and may get more. If *out_taken is set, they are not added, and
     * their nodes and texts are gone after the call. An error ends the reading. */
    reshard_status (*take)(void *user, const rs_pickle_node *container,
                           const rs_pickle_node *const *items, size_t count, bool *out_taken);
    void *user;
    size_t items_min; /* smaller batches are not offered */
} rs_pickle_taker;
/* As rs_pickle_read, with a taker (NULL: none). Items that the rest of the pickle depends on are
 * not offered. */
reshard_status rs_pickle_read_taking(reshard_context *context, const char *what, const char *bytes,
                                     size_t count, const rs_pickle_taker *taker,
                                     rs_pickle **out_pickle, size_t *out_used);
void rs_pickle_destroy(rs_pickle *pickle);
/* Never NULL. The pickle owns all nodes; they do not change, so threads may share them. */
const rs_pickle_node *rs_pickle_root(const rs_pickle *pickle);
/* All globals that the pickle names, each once, sorted by module and name. */
const rs_pickle_node *const *rs_pickle_globals(const rs_pickle *pickle, size_t *out_count);
/* All PERSISTENT nodes, in the order of the file. */
const rs_pickle_node *const *rs_pickle_persistents(const rs_pickle *pickle, size_t *out_count);

/* ---- nodes: NULL is allowed and has no kind -------------------------------------------------- */

/* "an int", "a call", ..: for messages. */
const char *rs_pickle_kind_text(const rs_pickle_node *node);
bool rs_pickle_is(const rs_pickle_node *node, rs_pickle_kind kind);
/* Is it this global? "builtins" and "copyreg" also match their names in Python 2. */
bool rs_pickle_is_global(const rs_pickle_node *node, const char *module, const char *name);
/* Is it a call, that is REDUCE or OBJECT? */
bool rs_pickle_is_any_call(const rs_pickle_node *node);
/* Is it a call of this global? */
bool rs_pickle_is_call(const rs_pickle_node *node, const char *module, const char *name);
/* False unless it is an int that fits into 64 bits. A bool is not an int here. */
bool rs_pickle_int(const rs_pickle_node *node, int64_t *out_integer);
/* False if it is not a text. */
bool rs_pickle_text(const rs_pickle_node *node, rs_slice *out_text);
/* An item of a tuple, list or set; NULL beyond the end and for other kinds. */
const rs_pickle_node *rs_pickle_item(const rs_pickle_node *node, size_t index);
/* Items of a tuple, list or set, pairs of a dict; 0 for other kinds. */
size_t rs_pickle_count(const rs_pickle_node *node);
/* The node itself if it is a dict; for a call such as OrderedDict(), the pairs set in it; else
 * NULL. */
const rs_pickle_node *rs_pickle_dict(const rs_pickle_node *node);
/* The value of a text key in such a dict, or NULL. A linear search. */
const rs_pickle_node *rs_pickle_get(const rs_pickle_node *node, const char *key);

/* True if two values, perhaps of two pickles, are equal in all their parts. Items and pairs are
 * compared in order. Also false beyond 256 levels or 4 million nodes, where the comparison
 * stops. */
bool rs_pickle_equal(const rs_pickle_node *a, const rs_pickle_node *b);

/* Writes the node like Python's repr, on one line, into at most `room` > 0 bytes including the NUL.
 * ".." stands for parts that are too long or too deep. */
void rs_pickle_show(const rs_pickle_node *node, char *out_text, size_t room);
/* Writes the node in full, but for what is nested too deeply; of each list, tuple, set and dict, at
 * most items_max items (-1: all). Stops once the text is full. */
void rs_pickle_show_whole(const rs_pickle_node *node, int64_t items_max, rs_text *text);
/* The name of its type in Python, "object" for those of classes, and the number of its items; -1 if
 * it is not a list, tuple, set or dict. Static. */
const char *rs_pickle_type_name(const rs_pickle_node *node, int64_t *out_item_count);

/* ---- the text keys of a large dict, sorted --------------------------------------------------- */

typedef struct rs_pickle_index {
    reshard_context *context;
    size_t count; /* number of different text keys */
    size_t capacity;
    struct rs_pickle_pair *pairs;
} rs_pickle_index;

/* Local. Indexes rs_pickle_dict(node); if that is NULL, the index is empty. Errors: RANGE for a key
 * longer than RS_PICKLE_KEY_BYTES_MAX. */
reshard_status rs_pickle_index_init(rs_pickle_index *index, reshard_context *context,
                                    const rs_pickle_node *node);
void rs_pickle_index_release(rs_pickle_index *index);
/* NULL if there is no such key. */
const rs_pickle_node *rs_pickle_index_get(const rs_pickle_index *index, rs_slice key);

#endif
