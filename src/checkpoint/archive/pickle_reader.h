/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_reader.h - the machine that a pickle is a program for: a stack of values with marks on it,
 * and a memo of values to come back to. pickle.c splits the bytes into opcodes and their arguments,
 * pickle_values.c and pickle_build.c carry them out; pickle_take.c lets somebody have items early.
 *
 * As in Python, opcodes cannot reach values below the last mark.
 */
#ifndef RS_CHECKPOINT_ARCHIVE_PICKLE_READER_H
#define RS_CHECKPOINT_ARCHIVE_PICKLE_READER_H

#include "base/arena.h"
#include "checkpoint/archive/pickle.h"

/* A MARK on the stack, and how far everything was when it was put there. */
typedef struct rs_pickle_mark {
    int64_t stack_count, memo_end;
    size_t at;
    rs_arena_mark arena;
} rs_pickle_mark;

/* Items that were taken: which opcodes made them, and which entries of the memo. Texts among those
 * can be made again one by one. */
typedef struct rs_pickle_taken {
    size_t begin, end; /* bytes of the pickle */
    int64_t memo_first, memo_end;
    int64_t taken_before; /* entries of the memo that earlier ones have */
    int64_t text_first, text_end;
} rs_pickle_taken;

typedef struct rs_pickle_text_place {
    uint32_t index; /* in the memo */
    uint32_t at;    /* in the pickle */
} rs_pickle_text_place;

typedef struct rs_pickle_reader {
    reshard_context *context;
    rs_arena *arena; /* of the nodes */
    const char *what;
    const char *bytes;
    size_t count, at;
    size_t opcode_at; /* of the opcode being done, and its name */
    const char *opcode;
    bool stopped;
    rs_pickle_node **stack;
    int64_t stack_count, stack_capacity;
    rs_pickle_mark *marks;
    int64_t mark_count, mark_capacity;
    rs_pickle_node **memo; /* NULL where nothing was put; without the entries that were taken */
    int64_t memo_end, memo_capacity; /* the end counts the taken ones too */
    int64_t memo_count;              /* of those that are not NULL */
    const rs_pickle_taker *taker;    /* NULL: nobody takes items */
    rs_pickle_taken *taken;          /* in the order of the bytes and of the memo */
    int64_t taken_count, taken_capacity;
    int64_t taken_entries; /* of the memo, by all of them */
    int64_t found_last;    /* which of them a search found last */
    rs_pickle_text_place *texts;
    int64_t text_count, text_capacity;
    /* Where something was last done that outlives the items around it: a global, a persistent id,
     * or a change to a value that is older than they are. */
    size_t lasting_at;
    const rs_pickle_node **globals;
    int64_t global_count, global_capacity;
    const rs_pickle_node **persistents;
    int64_t persistent_count, persistent_capacity;
} rs_pickle_reader;

/* What follows an opcode. */
typedef struct rs_pickle_argument {
    uint64_t number;
    rs_slice bytes;  /* a counted run, or a line without its newline */
    rs_slice second; /* a second line */
    int which;       /* what the table of opcodes says */
} rs_pickle_argument;

typedef reshard_status rs_pickle_action(rs_pickle_reader *reader,
                                        const rs_pickle_argument *argument);

/* A node of the current opcode; NULL as rs_arena_allocate. */
rs_pickle_node *rs_pickle_make(rs_pickle_reader *reader, rs_pickle_kind kind);
/* Takes the result of rs_pickle_make, which may be NULL. */
reshard_status rs_pickle_push(rs_pickle_reader *reader, rs_pickle_node *value);
/* Carries out one opcode. */
reshard_status rs_pickle_step(rs_pickle_reader *reader);

/* ---- taking (pickle_take.c) ------------------------------------------------------------------ */

/* Offers the values from the mark on, which are about to be added to `container`; the mark is no
 * longer on the stack. *out_taken: they were taken, and are gone. */
reshard_status rs_pickle_offer(rs_pickle_reader *reader, const rs_pickle_mark *mark,
                               const rs_pickle_node *container, bool *out_taken);
/* Pushes what the memo has at an index, which may have been taken. */
reshard_status rs_pickle_recall(rs_pickle_reader *reader, uint64_t index);
/* Makes everything that was taken again, and lets nobody take more. */
reshard_status rs_pickle_give_back(rs_pickle_reader *reader);

/* SYNTAX, with the place and the opcode. */
reshard_status rs_pickle_fail(const rs_pickle_reader *reader, const char *words);

/* `which` is given where opcodes share an action. */
rs_pickle_action rs_pickle_do_stop;
rs_pickle_action rs_pickle_do_mark;
rs_pickle_action rs_pickle_do_pop;
rs_pickle_action rs_pickle_do_pop_mark;
rs_pickle_action rs_pickle_do_dup;
rs_pickle_action rs_pickle_do_none;
rs_pickle_action rs_pickle_do_bool;   /* which: its truth */
rs_pickle_action rs_pickle_do_int;    /* from argument->number, in two's complement */
rs_pickle_action rs_pickle_do_long;   /* from bytes in two's complement */
rs_pickle_action rs_pickle_do_digits; /* which: 'I' or 'L' */
rs_pickle_action rs_pickle_do_float;
rs_pickle_action rs_pickle_do_float_text;
rs_pickle_action rs_pickle_do_bytes; /* which: its kind */
rs_pickle_action rs_pickle_do_text;
rs_pickle_action rs_pickle_do_text_escaped;
rs_pickle_action rs_pickle_do_string;
rs_pickle_action rs_pickle_do_string_escaped;
rs_pickle_action rs_pickle_do_empty;  /* which: its kind */
rs_pickle_action rs_pickle_do_gather; /* all from the mark on; which: the kind */
rs_pickle_action rs_pickle_do_tuple;  /* which: how many */
rs_pickle_action rs_pickle_do_append;
rs_pickle_action rs_pickle_do_appends; /* which: LIST, DICT or SET */
rs_pickle_action rs_pickle_do_set_item;
rs_pickle_action rs_pickle_do_put; /* which: argument->number counts, or the line */
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
