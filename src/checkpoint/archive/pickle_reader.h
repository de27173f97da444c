/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_reader.h - a pickle is a program for a stack machine, and this is its state: a stack of
 * values with marks on it, and a memo of values to refer back to. pickle.c splits the bytes into
 * opcodes and their arguments, pickle_values.c and pickle_build.c carry them out, and pickle_take.c
 * hands items to a taker while the pickle is read.
 *
 * As in Python, opcodes cannot reach values below the last mark.
 */
#ifndef RS_CHECKPOINT_ARCHIVE_PICKLE_READER_H
#define RS_CHECKPOINT_ARCHIVE_PICKLE_READER_H

#include "base/arena.h"
#include "checkpoint/archive/pickle.h"

/* A MARK on the stack, and the state of the reader when it was put there. */
typedef struct rs_pickle_mark {
    int64_t stack_count, memo_end;
    size_t at;
    rs_arena_mark arena;
} rs_pickle_mark;

/* A batch of items that was taken: the opcodes that made it, and the memo entries that they filled.
 * Texts among these entries can be recreated one by one. */
typedef struct rs_pickle_taken {
    size_t begin, end; /* of its opcodes, in bytes of the pickle */
    int64_t memo_first, memo_end;
    int64_t taken_before; /* number of memo entries of earlier batches */
    int64_t text_first, text_end;
} rs_pickle_taken;

typedef struct rs_pickle_text_place {
    uint32_t index; /* index into the memo */
    uint32_t at;    /* byte position in the pickle */
} rs_pickle_text_place;

typedef struct rs_pickle_reader {
    reshard_context *context;
    rs_arena *arena; /* holds the nodes */
    const char *what;
    const char *bytes;
    size_t count, at;
    size_t opcode_at; /* position of the current opcode; `opcode` is its name */
    const char *opcode;
    bool stopped;
    rs_pickle_node **stack;
    int64_t stack_count, stack_capacity;
    rs_pickle_mark *marks;
    int64_t mark_count, mark_capacity;
    /* Entries that were not taken, one after the other; NULL where nothing was put. */
    rs_pickle_node **memo;
    int64_t memo_end, memo_capacity; /* memo_end also counts the taken entries */
    int64_t memo_count;              /* number of entries that are not NULL, including taken ones */
    const rs_pickle_taker *taker;    /* NULL: no items are offered */
    rs_pickle_taken *taken;          /* batches, ordered by position and by memo index */
    int64_t taken_count, taken_capacity;
    int64_t taken_entries; /* number of memo entries of all batches */
    int64_t found_last;    /* the batch that the last search found */
    rs_pickle_text_place *texts;
    int64_t text_count, text_capacity;
    /* Position of the last opcode with a lasting effect: it made a global or a persistent id, or
     * changed a value that is older than the last mark. Items around such an opcode are not
     * offered. */
    size_t lasting_at;
    const rs_pickle_node **globals;
    int64_t global_count, global_capacity;
    const rs_pickle_node **persistents;
    int64_t persistent_count, persistent_capacity;
} rs_pickle_reader;

/* The argument of an opcode. */
typedef struct rs_pickle_argument {
    uint64_t number;
    rs_slice bytes;  /* a counted run, or a line without its newline */
    rs_slice second; /* a second line */
    int which;       /* from the table of opcodes */
} rs_pickle_argument;

typedef reshard_status rs_pickle_action(rs_pickle_reader *reader,
                                        const rs_pickle_argument *argument);

/* Makes a node of the current opcode. NULL if out of memory, as from rs_arena_allocate. */
rs_pickle_node *rs_pickle_make(rs_pickle_reader *reader, rs_pickle_kind kind);
/* Pushes the result of rs_pickle_make, which may be NULL (then: an allocation error). */
reshard_status rs_pickle_push(rs_pickle_reader *reader, rs_pickle_node *value);
/* Carries out one opcode. */
reshard_status rs_pickle_step(rs_pickle_reader *reader);

/* ---- taking (pickle_take.c) ------------------------------------------------------------------ */

/* Offers the values above the mark, which has just been popped, to the taker before they are added
 * to `container`. *out_taken: they were taken, and are off the stack. */
reshard_status rs_pickle_offer(rs_pickle_reader *reader, const rs_pickle_mark *mark,
                               const rs_pickle_node *container, bool *out_taken);
/* Pushes the value that the memo has at an index, recreating it if it was taken. */
reshard_status rs_pickle_recall(rs_pickle_reader *reader, uint64_t index);
/* Recreates all items that were taken, and stops offering items. */
reshard_status rs_pickle_give_back(rs_pickle_reader *reader);

/* Fails with SYNTAX, the position and the opcode. */
reshard_status rs_pickle_fail(const rs_pickle_reader *reader, const char *words);

/* argument->which tells apart the opcodes that share an action. */
rs_pickle_action rs_pickle_do_stop;
rs_pickle_action rs_pickle_do_mark;
rs_pickle_action rs_pickle_do_pop;
rs_pickle_action rs_pickle_do_pop_mark;
rs_pickle_action rs_pickle_do_dup;
rs_pickle_action rs_pickle_do_none;
rs_pickle_action rs_pickle_do_bool;   /* which: its truth */
rs_pickle_action rs_pickle_do_int;    /* argument->number in two's complement */
rs_pickle_action rs_pickle_do_long;   /* argument->bytes in two's complement */
rs_pickle_action rs_pickle_do_digits; /* which: 'I' or 'L' */
rs_pickle_action rs_pickle_do_float;
rs_pickle_action rs_pickle_do_float_text;
rs_pickle_action rs_pickle_do_bytes; /* which: the kind */
rs_pickle_action rs_pickle_do_text;
rs_pickle_action rs_pickle_do_text_escaped;
rs_pickle_action rs_pickle_do_string;
rs_pickle_action rs_pickle_do_string_escaped;
rs_pickle_action rs_pickle_do_empty;  /* which: the kind */
rs_pickle_action rs_pickle_do_gather; /* of all values above the mark; which: the kind */
rs_pickle_action rs_pickle_do_tuple;  /* which: how many */
rs_pickle_action rs_pickle_do_append;
rs_pickle_action rs_pickle_do_appends; /* which: LIST, DICT or SET */
rs_pickle_action rs_pickle_do_set_item;
rs_pickle_action rs_pickle_do_put; /* which: the index is argument->number, or in its line */
rs_pickle_action rs_pickle_do_get; /* likewise */
rs_pickle_action rs_pickle_do_memoize;
rs_pickle_action rs_pickle_do_global;
rs_pickle_action rs_pickle_do_stack_global;
rs_pickle_action rs_pickle_do_call; /* which: REDUCE or OBJECT */
rs_pickle_action rs_pickle_do_call_keywords;
rs_pickle_action rs_pickle_do_inst;
rs_pickle_action rs_pickle_do_obj;
rs_pickle_action rs_pickle_do_build;
rs_pickle_action rs_pickle_do_persistent;
rs_pickle_action rs_pickle_do_persistent_text;
rs_pickle_action rs_pickle_do_refuse;

#endif
