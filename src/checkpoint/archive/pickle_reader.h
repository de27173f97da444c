/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_reader.h - the machine that a pickle is a program for: a stack of values with marks on it,
 * and a memo of values to come back to. pickle.c splits the bytes into opcodes and their arguments,
 * pickle_values.c and
 * pickle_build.c carry them out.
 *
 * As in Python, opcodes cannot reach values below the last mark.
 */
#ifndef RS_CHECKPOINT_ARCHIVE_PICKLE_READER_H
#define RS_CHECKPOINT_ARCHIVE_PICKLE_READER_H

#include "base/arena.h"
#include "checkpoint/archive/pickle.h"

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
    int64_t *marks; /* what stack_count was at each */
    int64_t mark_count, mark_capacity;
    rs_pickle_node **memo; /* NULL where nothing was put */
    int64_t memo_end, memo_capacity;
    int64_t memo_count; /* of those that are not NULL */
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
