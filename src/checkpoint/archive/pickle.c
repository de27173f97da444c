/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.c - splits bytes into opcodes and carries them out. One table says for each opcode which
 * argument follows it and which function runs it. The loop never recurses, and each opcode takes at
 * least one byte and makes at most a few nodes, so time and memory are proportional to the bytes.
 */
#include "checkpoint/archive/pickle.h"

#include "base/context.h"
#include "base/error.h"
#include "base/sort.h"
#include "checkpoint/archive/pickle_reader.h"

#include <assert.h>
#include <string.h>

struct rs_pickle {
    reshard_context *context;
    rs_arena arena;
    const rs_pickle_node *root;
    const rs_pickle_node **globals;
    size_t global_count;
    const rs_pickle_node **persistents;
    size_t persistent_count;
};

/* The argument that follows an opcode. Numbers are little-endian. */
typedef enum argument_form {
    PLAIN, /* nothing */
    U1,
    U2,
    I4,
    U4,
    U8,
    F8,   /* a big-endian double */
    LINE, /* up to the next newline */
    LINES,
    RUN_U1, /* a count, and that many bytes */
    RUN_I4,
    RUN_U4,
    RUN_U8,
} argument_form;

typedef struct opcode {
    const char *name; /* NULL: there is no such opcode */
    rs_pickle_action *action;
    argument_form form;
    int which; /* handed to the action */
} opcode;

enum { BY_NUMBER, BY_LINE };

static rs_pickle_action do_proto, do_frame;

static const opcode opcodes[256] = {
    ['('] = {"MARK", rs_pickle_do_mark, PLAIN, 0},
    ['.'] = {"STOP", rs_pickle_do_stop, PLAIN, 0},
    ['0'] = {"POP", rs_pickle_do_pop, PLAIN, 0},
    ['1'] = {"POP_MARK", rs_pickle_do_pop_mark, PLAIN, 0},
    ['2'] = {"DUP", rs_pickle_do_dup, PLAIN, 0},
    ['F'] = {"FLOAT", rs_pickle_do_float_text, LINE, 0},
    ['I'] = {"INT", rs_pickle_do_digits, LINE, 'I'},
    ['J'] = {"BININT", rs_pickle_do_int, I4, 0},
    ['K'] = {"BININT1", rs_pickle_do_int, U1, 0},
    ['L'] = {"LONG", rs_pickle_do_digits, LINE, 'L'},
    ['M'] = {"BININT2", rs_pickle_do_int, U2, 0},
    ['N'] = {"NONE", rs_pickle_do_none, PLAIN, 0},
    ['P'] = {"PERSID", rs_pickle_do_persistent_text, LINE, 0},
    ['Q'] = {"BINPERSID", rs_pickle_do_persistent, PLAIN, 0},
    ['R'] = {"REDUCE", rs_pickle_do_call, PLAIN, RS_PICKLE_REDUCE},
    ['S'] = {"STRING", rs_pickle_do_string_escaped, LINE, 0},
    ['T'] = {"BINSTRING", rs_pickle_do_string, RUN_I4, 0},
    ['U'] = {"SHORT_BINSTRING", rs_pickle_do_string, RUN_U1, 0},
    ['V'] = {"UNICODE", rs_pickle_do_text_escaped, LINE, 0},
    ['X'] = {"BINUNICODE", rs_pickle_do_text, RUN_U4, 0},
    ['a'] = {"APPEND", rs_pickle_do_append, PLAIN, 0},
    ['b'] = {"BUILD", rs_pickle_do_build, PLAIN, 0},
    ['c'] = {"GLOBAL", rs_pickle_do_global, LINES, 0},
    ['d'] = {"DICT", rs_pickle_do_gather, PLAIN, RS_PICKLE_DICT},
    ['}'] = {"EMPTY_DICT", rs_pickle_do_empty, PLAIN, RS_PICKLE_DICT},
    ['e'] = {"APPENDS", rs_pickle_do_appends, PLAIN, RS_PICKLE_LIST},
    ['g'] = {"GET", rs_pickle_do_get, LINE, BY_LINE},
    ['h'] = {"BINGET", rs_pickle_do_get, U1, BY_NUMBER},
    ['i'] = {"INST", rs_pickle_do_inst, LINES, 0},
    ['j'] = {"LONG_BINGET", rs_pickle_do_get, U4, BY_NUMBER},
    ['l'] = {"LIST", rs_pickle_do_gather, PLAIN, RS_PICKLE_LIST},
    [']'] = {"EMPTY_LIST", rs_pickle_do_empty, PLAIN, RS_PICKLE_LIST},
    ['o'] = {"OBJ", rs_pickle_do_obj, PLAIN, 0},
    ['p'] = {"PUT", rs_pickle_do_put, LINE, BY_LINE},
    ['q'] = {"BINPUT", rs_pickle_do_put, U1, BY_NUMBER},
    ['r'] = {"LONG_BINPUT", rs_pickle_do_put, U4, BY_NUMBER},
    ['s'] = {"SETITEM", rs_pickle_do_set_item, PLAIN, 0},
    ['t'] = {"TUPLE", rs_pickle_do_gather, PLAIN, RS_PICKLE_TUPLE},
    [')'] = {"EMPTY_TUPLE", rs_pickle_do_empty, PLAIN, RS_PICKLE_TUPLE},
    ['u'] = {"SETITEMS", rs_pickle_do_appends, PLAIN, RS_PICKLE_DICT},
    ['G'] = {"BINFLOAT", rs_pickle_do_float, F8, 0},
    ['B'] = {"BINBYTES", rs_pickle_do_bytes, RUN_U4, RS_PICKLE_BYTES},
    ['C'] = {"SHORT_BINBYTES", rs_pickle_do_bytes, RUN_U1, RS_PICKLE_BYTES},
    [0x80] = {"PROTO", do_proto, U1, 0},
    [0x81] = {"NEWOBJ", rs_pickle_do_call, PLAIN, RS_PICKLE_OBJECT},
    [0x82] = {"EXT1", rs_pickle_do_refuse, U1, 0},
    [0x83] = {"EXT2", rs_pickle_do_refuse, U2, 0},
    [0x84] = {"EXT4", rs_pickle_do_refuse, I4, 0},
    [0x85] = {"TUPLE1", rs_pickle_do_tuple, PLAIN, 1},
    [0x86] = {"TUPLE2", rs_pickle_do_tuple, PLAIN, 2},
    [0x87] = {"TUPLE3", rs_pickle_do_tuple, PLAIN, 3},
    [0x88] = {"NEWTRUE", rs_pickle_do_bool, PLAIN, true},
    [0x89] = {"NEWFALSE", rs_pickle_do_bool, PLAIN, false},
    [0x8a] = {"LONG1", rs_pickle_do_long, RUN_U1, 0},
    [0x8b] = {"LONG4", rs_pickle_do_long, RUN_I4, 0},
    [0x8c] = {"SHORT_BINUNICODE", rs_pickle_do_text, RUN_U1, 0},
    [0x8d] = {"BINUNICODE8", rs_pickle_do_text, RUN_U8, 0},
    [0x8e] = {"BINBYTES8", rs_pickle_do_bytes, RUN_U8, RS_PICKLE_BYTES},
    [0x8f] = {"EMPTY_SET", rs_pickle_do_empty, PLAIN, RS_PICKLE_SET},
    [0x90] = {"ADDITEMS", rs_pickle_do_appends, PLAIN, RS_PICKLE_SET},
    [0x91] = {"FROZENSET", rs_pickle_do_gather, PLAIN, RS_PICKLE_FROZENSET},
    [0x92] = {"NEWOBJ_EX", rs_pickle_do_call_keywords, PLAIN, 0},
    [0x93] = {"STACK_GLOBAL", rs_pickle_do_stack_global, PLAIN, 0},
    [0x94] = {"MEMOIZE", rs_pickle_do_memoize, PLAIN, 0},
    [0x95] = {"FRAME", do_frame, U8, 0},
    [0x96] = {"BYTEARRAY8", rs_pickle_do_bytes, RUN_U8, RS_PICKLE_BYTEARRAY},
    [0x97] = {"NEXT_BUFFER", rs_pickle_do_refuse, PLAIN, 0},
    [0x98] = {"READONLY_BUFFER", rs_pickle_do_refuse, PLAIN, 0},
};

reshard_status rs_pickle_fail(const rs_pickle_reader *reader, const char *words)
{
    return rs_fail_hint(RESHARD_ERR_SYNTAX, RESHARD_HINT_NONE, reader->what, "%s, byte %zu: %s: %s",
                        reader->what, reader->opcode_at, reader->opcode, words);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static reshard_status read_number(rs_pickle_reader *reader, size_t bytes, uint64_t *out_number)
{
    uint64_t number = 0;
    if (reader->count - reader->at < bytes)
        return rs_pickle_fail(reader, "the bytes end inside it");
    const unsigned char *from = (const unsigned char *)reader->bytes + reader->at;
    for (size_t i = bytes; i > 0; i--)
        number = number << 8 | from[i - 1];
    reader->at += bytes;
    *out_number = number;
    return RESHARD_OK;
}

/* read_number for the most common width. */
static reshard_status read_byte(rs_pickle_reader *reader, uint64_t *out_number)
{
    if (reader->at == reader->count)
        return rs_pickle_fail(reader, "the bytes end inside it");
    *out_number = (unsigned char)reader->bytes[reader->at++];
    return RESHARD_OK;
}

static reshard_status read_line(rs_pickle_reader *reader, rs_slice *out_line)
{
    const char *begin = reader->bytes + reader->at;
    const char *end = memchr(begin, '\n', reader->count - reader->at);
    if (end == NULL)
        return rs_pickle_fail(reader, "the bytes end before its newline");
    *out_line = (rs_slice){begin, (size_t)(end - begin)};
    reader->at += out_line->count + 1;
    return RESHARD_OK;
}

static reshard_status read_run(rs_pickle_reader *reader, argument_form form, rs_slice *out_run)
{
    static const size_t widths[] = {[RUN_U1] = 1, [RUN_I4] = 4, [RUN_U4] = 4, [RUN_U8] = 8};
    uint64_t length = 0;
    reshard_status status = read_number(reader, widths[form], &length);
    if (status != RESHARD_OK)
        return status;
    if (form == RUN_I4 && length > INT32_MAX)
        return rs_pickle_fail(reader, "its length is negative");
    if (length > reader->count - reader->at)
        return rs_pickle_fail(reader, "it is longer than the bytes that are left");
    *out_run = (rs_slice){reader->bytes + reader->at, (size_t)length};
    reader->at += (size_t)length;
    return RESHARD_OK;
}

static reshard_status read_argument(rs_pickle_reader *reader, argument_form form,
                                    rs_pickle_argument *out)
{
    reshard_status status = RESHARD_OK;
    switch (form) {
    case PLAIN:
        return RESHARD_OK;
    case U1:
        return read_byte(reader, &out->number);
    case U2:
        return read_number(reader, 2, &out->number);
    case U4:
        return read_number(reader, 4, &out->number);
    case I4:
        status = read_number(reader, 4, &out->number);
        out->number = (uint64_t)(int64_t)(int32_t)(uint32_t)out->number;
        return status;
    case U8:
    case F8:
        return read_number(reader, 8, &out->number);
    case LINE:
        return read_line(reader, &out->bytes);
    case LINES:
        status = read_line(reader, &out->bytes);
        return status == RESHARD_OK ? read_line(reader, &out->second) : status;
    default:
        return read_run(reader, form, &out->bytes);
    }
}

/* ---- opcodes about the bytes ----------------------------------------------------------------- */

static reshard_status do_proto(rs_pickle_reader *reader, const rs_pickle_argument *argument)
{
    if (argument->number <= RS_PICKLE_PROTOCOL_MAX)
        return RESHARD_OK;
    return rs_fail_hint(RESHARD_ERR_UNSUPPORTED, RESHARD_HINT_NONE, reader->what,
                        "%s, byte %zu: pickle protocol %u is not known", reader->what,
                        reader->opcode_at, (unsigned)argument->number);
}

/* A frame says how many bytes can be read in one go; here all of them are in memory. */
static reshard_status do_frame(rs_pickle_reader *reader, const rs_pickle_argument *argument)
{
    return argument->number <= reader->count - reader->at
               ? RESHARD_OK
               : rs_pickle_fail(reader, "the frame is longer than the bytes that are left");
}

reshard_status rs_pickle_step(rs_pickle_reader *reader)
{
    reader->opcode_at = reader->at;
    if (reader->at == reader->count)
        return rs_fail_hint(RESHARD_ERR_SYNTAX, RESHARD_HINT_NONE, reader->what,
                            "%s, byte %zu: the pickle ends before its STOP", reader->what,
                            reader->at);
    unsigned char code = (unsigned char)reader->bytes[reader->at++];
    const opcode *found = &opcodes[code];
    if (found->name == NULL)
        return rs_fail_hint(RESHARD_ERR_SYNTAX, RESHARD_HINT_NONE, reader->what,
                            "%s, byte %zu: 0x%02x is not an opcode of pickles", reader->what,
                            reader->opcode_at, (unsigned)code);
    rs_pickle_argument argument = {.which = found->which};
    reader->opcode = found->name;
    reshard_status status = RESHARD_OK;
    if (found->form != PLAIN)
        status = read_argument(reader, found->form, &argument);
    return status == RESHARD_OK ? found->action(reader, &argument) : status;
}

/* MEMOIZE and BINGET make up half of the opcodes of a large pickle, many millions of them. Carries
 * out their plainest form without the table. False: nothing was done, and the table is needed. */
static bool step_quickly(rs_pickle_reader *reader)
{
    if (reader->count - reader->at < 2)
        return false;
    const unsigned char *code = (const unsigned char *)reader->bytes + reader->at;
    int64_t floor = reader->mark_count != 0 ? reader->marks[reader->mark_count - 1].stack_count : 0;
    if (code[0] == 0x94) {
        int64_t slot = reader->memo_end - reader->taken_entries;
        if (reader->memo_count != reader->memo_end || slot >= reader->memo_capacity ||
            reader->stack_count <= floor)
            return false;
        reader->memo[slot] = reader->stack[reader->stack_count - 1];
        reader->memo_count = ++reader->memo_end;
        reader->at += 1;
        return true;
    }
    int64_t direct = reader->taken_count != 0 ? reader->taken[0].memo_first : reader->memo_end;
    if (code[0] != 'h' || code[1] >= direct || reader->memo[code[1]] == NULL ||
        reader->stack_count == reader->stack_capacity)
        return false;
    reader->stack[reader->stack_count++] = reader->memo[code[1]];
    reader->at += 2;
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int compare_globals(const void *a, const void *b)
{
    const rs_pickle_global *left = (*(const rs_pickle_node *const *)a)->global;
    const rs_pickle_global *right = (*(const rs_pickle_node *const *)b)->global;
    int order = rs_slice_compare(left->module, right->module);
    return order != 0 ? order : rs_slice_compare(left->name, right->name);
}

static reshard_status keep_globals(rs_pickle *pickle, rs_pickle_reader *reader)
{
    const rs_pickle_node **globals = reader->globals;
    size_t count = (size_t)reader->global_count, kept = 0;
    rs_sort(globals, count, sizeof *globals, compare_globals);
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || compare_globals(&globals[kept - 1], &globals[i]) != 0)
            globals[kept++] = globals[i];
        else if (globals[i]->global->is_called)
            ((rs_pickle_global *)globals[kept - 1]->global)->is_called = true;
    }
    pickle->globals = rs_arena_copy(&pickle->arena, globals, kept, sizeof *globals);
    pickle->global_count = kept;
    return pickle->globals != NULL ? RESHARD_OK : rs_allocation_status();
}

static reshard_status keep_persistents(rs_pickle *pickle, const rs_pickle_reader *reader)
{
    pickle->persistent_count = (size_t)reader->persistent_count;
    pickle->persistents = rs_arena_copy(&pickle->arena, reader->persistents,
                                        pickle->persistent_count, sizeof *reader->persistents);
    return pickle->persistents != NULL ? RESHARD_OK : rs_allocation_status();
}

static void release_reader(rs_pickle_reader *reader)
{
    reshard_context *context = reader->context;
    rs_release(context, reader->stack);
    rs_release(context, reader->marks);
    rs_release(context, reader->memo);
    rs_release(context, reader->taken);
    rs_release(context, reader->texts);
    rs_release(context, reader->globals);
    rs_release(context, reader->persistents);
}

reshard_status rs_pickle_read(reshard_context *context, const char *what, const char *bytes,
                              size_t count, rs_pickle **out_pickle, size_t *out_used)
{
    return rs_pickle_read_taking(context, what, bytes, count, NULL, out_pickle, out_used);
}

reshard_status rs_pickle_read_taking(reshard_context *context, const char *what, const char *bytes,
                                     size_t count, const rs_pickle_taker *taker,
                                     rs_pickle **out_pickle, size_t *out_used)
{
    if (count > RS_PICKLE_BYTES_MAX)
        return rs_fail_about(RESHARD_ERR_RANGE, what, "%zu bytes are more than a pickle may have",
                             count);
    rs_pickle *pickle = rs_allocate(context, sizeof *pickle);
    if (pickle == NULL)
        return rs_allocation_status();
    *pickle = (rs_pickle){.context = context};
    rs_arena_init(&pickle->arena, context);
    rs_pickle_reader reader = {.context = context,
                               .arena = &pickle->arena,
                               .what = what,
                               .bytes = bytes,
                               .count = count,
                               .taker = taker};
    reshard_status status = RESHARD_OK;
    while (status == RESHARD_OK && !reader.stopped) {
        if (!step_quickly(&reader))
            status = rs_pickle_step(&reader);
    }
    if (status == RESHARD_OK)
        status = keep_globals(pickle, &reader);
    if (status == RESHARD_OK)
        status = keep_persistents(pickle, &reader);
    if (status == RESHARD_OK) {
        assert(reader.stack_count == 1 && reader.mark_count == 0);
        pickle->root = reader.stack[0];
        *out_used = reader.at;
        *out_pickle = pickle;
        pickle = NULL;
    }
    release_reader(&reader);
    rs_pickle_destroy(pickle);
    return status;
}

void rs_pickle_destroy(rs_pickle *pickle)
{
    if (pickle == NULL)
        return;
    rs_arena_release(&pickle->arena);
    rs_release(pickle->context, pickle);
}

const rs_pickle_node *rs_pickle_root(const rs_pickle *pickle)
{
    return pickle->root;
}

const rs_pickle_node *const *rs_pickle_globals(const rs_pickle *pickle, size_t *out_count)
{
    *out_count = pickle->global_count;
    return pickle->globals;
}

const rs_pickle_node *const *rs_pickle_persistents(const rs_pickle *pickle, size_t *out_count)
{
    *out_count = pickle->persistent_count;
    return pickle->persistents;
}
