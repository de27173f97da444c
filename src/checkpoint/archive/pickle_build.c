/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_build.c - carries out the opcodes that take values from the stack and push the node they
 * make. Calls are recorded, never made.
 */
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/archive/pickle_reader.h"
#include "checkpoint/archive/pickle_text.h"

#include <assert.h>
#include <string.h>

typedef rs_pickle_reader reader;
typedef rs_pickle_argument argument;
typedef rs_pickle_node node;

/* ---- stack ----------------------------------------------------------------------------------- */

node *rs_pickle_make(reader *r, rs_pickle_kind kind)
{
    node *made = rs_arena_allocate(r->arena, sizeof *made);
    if (made != NULL)
        *made = (node){.kind = kind, .at = (uint32_t)r->opcode_at};
    return made;
}

reshard_status rs_pickle_push(reader *r, node *value)
{
    if (value == NULL)
        return rs_allocation_status();
    reshard_status status = RESHARD_OK;
    if (r->stack_count == r->stack_capacity)
        status = rs_grow(r->context, &r->stack, &r->stack_capacity, r->stack_count + 1,
                         sizeof *r->stack);
    if (status == RESHARD_OK)
        r->stack[r->stack_count++] = value;
    return status;
}

/* Fails unless at least `count` values lie above the last mark. */
static reshard_status need(const reader *r, int64_t count)
{
    int64_t floor = r->mark_count != 0 ? r->marks[r->mark_count - 1].stack_count : 0;
    assert(floor <= r->stack_count);
    return r->stack_count - floor >= count
               ? RESHARD_OK
               : rs_pickle_fail(r, "it takes more values than the stack holds above the last mark");
}

/* Call `need` first. */
static node *pop(reader *r)
{
    assert(r->stack_count > 0);
    return r->stack[--r->stack_count];
}

static node *top(const reader *r)
{
    assert(r->stack_count > 0);
    return r->stack[r->stack_count - 1];
}

/* Removes the last mark. The values above it are those from *out_begin on. */
static reshard_status pop_mark(reader *r, int64_t *out_begin)
{
    if (r->mark_count == 0)
        return rs_pickle_fail(r, "there is no mark on the stack");
    *out_begin = r->marks[--r->mark_count].stack_count;
    return RESHARD_OK;
}

/* Called before a value changes. If it is older than the last mark, it will refer to values above
 * that mark, so that these cannot be taken any more. */
static void change(reader *r, const node *value)
{
    if (r->mark_count != 0 && value->at < r->marks[r->mark_count - 1].at)
        r->lasting_at = r->opcode_at;
}

reshard_status rs_pickle_do_stop(reader *r, const argument *a)
{
    (void)a;
    if (r->mark_count != 0 || r->stack_count != 1)
        return rs_pickle_fail(r, r->stack_count == 0 && r->mark_count == 0
                                     ? "the stack holds no value to return"
                                     : "values or marks are left over below the result");
    r->stopped = true;
    return RESHARD_OK;
}

reshard_status rs_pickle_do_mark(reader *r, const argument *a)
{
    (void)a;
    reshard_status status =
        rs_grow(r->context, &r->marks, &r->mark_capacity, r->mark_count + 1, sizeof *r->marks);
    if (status == RESHARD_OK)
        r->marks[r->mark_count++] = (rs_pickle_mark){.stack_count = r->stack_count,
                                                     .memo_end = r->memo_end,
                                                     .at = r->opcode_at,
                                                     .arena = rs_arena_mark_now(r->arena)};
    return status;
}

/* Pops a value, or the last mark if nothing lies above it. */
reshard_status rs_pickle_do_pop(reader *r, const argument *a)
{
    (void)a;
    if (r->mark_count != 0 && r->marks[r->mark_count - 1].stack_count == r->stack_count) {
        r->mark_count--;
        return RESHARD_OK;
    }
    reshard_status status = need(r, 1);
    if (status == RESHARD_OK)
        (void)pop(r);
    return status;
}

reshard_status rs_pickle_do_pop_mark(reader *r, const argument *a)
{
    (void)a;
    return pop_mark(r, &r->stack_count);
}

reshard_status rs_pickle_do_dup(reader *r, const argument *a)
{
    (void)a;
    reshard_status status = need(r, 1);
    return status == RESHARD_OK ? rs_pickle_push(r, top(r)) : status;
}

/* ---- memo ------------------------------------------------------------------------------------ */

/* Writers number the memo from 0 (Python 2 from 1) without gaps, so an index is never larger than
 * the position of its opcode. Insisting on that bounds the memo. */
static reshard_status put(reader *r, uint64_t index)
{
    reshard_status status = need(r, 1);
    if (status != RESHARD_OK)
        return status;
    if (index > r->opcode_at)
        return rs_pickle_fail(r, "the memo's index is larger than the bytes before it allow");
    int64_t i = (int64_t)index;
    /* Taking relies on a memo that is filled in order, without replacing entries, as in Python's
     * pickles. */
    if (i != r->memo_end && r->taker != NULL)
        status = rs_pickle_give_back(r);
    int64_t slot = i - r->taken_entries;
    if (status == RESHARD_OK && slot >= r->memo_capacity)
        status = rs_grow(r->context, &r->memo, &r->memo_capacity, slot + 1, sizeof *r->memo);
    if (status != RESHARD_OK)
        return status;
    for (; r->memo_end <= i; r->memo_end++)
        r->memo[r->memo_end - (i - slot)] = NULL;
    r->memo_count += r->memo[slot] == NULL;
    r->memo[slot] = top(r);
    return RESHARD_OK;
}

/* Reads an index of the memo: the argument's number, or decimal digits in its line. */
static reshard_status read_index(const reader *r, const argument *a, uint64_t *out_index)
{
    uint64_t index = 0;
    *out_index = a->number;
    if (a->which == 0)
        return RESHARD_OK;
    if (a->bytes.count == 0 || a->bytes.count > 10)
        return rs_pickle_fail(r, "its argument is not an index of the memo");
    for (size_t i = 0; i < a->bytes.count; i++) {
        char c = a->bytes.bytes[i];
        if (c < '0' || c > '9')
            return rs_pickle_fail(r, "its argument is not an index of the memo");
        index = index * 10 + (uint64_t)(c - '0');
    }
    *out_index = index;
    return RESHARD_OK;
}

reshard_status rs_pickle_do_put(reader *r, const argument *a)
{
    uint64_t index = 0;
    reshard_status status = read_index(r, a, &index);
    return status == RESHARD_OK ? put(r, index) : status;
}

reshard_status rs_pickle_do_memoize(reader *r, const argument *a)
{
    (void)a;
    return put(r, (uint64_t)r->memo_count);
}

reshard_status rs_pickle_do_get(reader *r, const argument *a)
{
    uint64_t index = 0;
    reshard_status status = read_index(r, a, &index);
    if (status != RESHARD_OK)
        return status;
    return rs_pickle_recall(r, index);
}

/* ---- containers ------------------------------------------------------------------------------ */

/* Moves the values from stack index `begin` on into the container. The first batch gets exactly the
 * room it needs, because most containers are filled once. */
static reshard_status add_items(reader *r, node *container, int64_t begin)
{
    rs_pickle_items *items = &container->items;
    size_t count = (size_t)(r->stack_count - begin), capacity = items->capacity;
    if (items->capacity - items->count < count) {
        capacity = items->count + count > 2 * capacity ? items->count + count : 2 * capacity;
        const node **grown = rs_arena_allocate_array(r->arena, capacity, sizeof *grown);
        if (grown == NULL)
            return rs_allocation_status();
        if (items->count != 0)
            memcpy(grown, items->nodes, items->count * sizeof *grown);
        items->nodes = grown;
        items->capacity = capacity;
    }
    for (size_t i = 0; i < count; i++)
        items->nodes[items->count++] = r->stack[begin + (int64_t)i];
    r->stack_count = begin;
    return RESHARD_OK;
}

reshard_status rs_pickle_do_empty(reader *r, const argument *a)
{
    return rs_pickle_push(r, rs_pickle_make(r, (rs_pickle_kind)a->which));
}

/* Replaces the values from stack index `begin` on by a container of them. */
static reshard_status gather(reader *r, rs_pickle_kind kind, int64_t begin)
{
    node *made = rs_pickle_make(r, kind);
    reshard_status status = made != NULL ? add_items(r, made, begin) : rs_allocation_status();
    return status == RESHARD_OK ? rs_pickle_push(r, made) : status;
}

reshard_status rs_pickle_do_gather(reader *r, const argument *a)
{
    int64_t begin = 0;
    reshard_status status = pop_mark(r, &begin);
    if (status == RESHARD_OK && a->which == RS_PICKLE_DICT && (r->stack_count - begin) % 2 != 0)
        status = rs_pickle_fail(r, "a key has no value");
    return status == RESHARD_OK ? gather(r, (rs_pickle_kind)a->which, begin) : status;
}

reshard_status rs_pickle_do_tuple(reader *r, const argument *a)
{
    reshard_status status = need(r, a->which);
    return status == RESHARD_OK ? gather(r, RS_PICKLE_TUPLE, r->stack_count - a->which) : status;
}

static bool is_call(const node *value)
{
    return value->kind == RS_PICKLE_REDUCE || value->kind == RS_PICKLE_OBJECT;
}

/* Finds the container of this kind that values added to `target` go into: the target itself or, for
 * a call, the one kept beside it. *out is NULL if the target takes no such values. */
static reshard_status find_container(reader *r, node *target, rs_pickle_kind kind, node **out)
{
    *out = target->kind == kind ? target : NULL;
    if (!is_call(target) || kind == RS_PICKLE_SET)
        return RESHARD_OK;
    node **beside = kind == RS_PICKLE_LIST ? &target->call->list : &target->call->dict;
    if (*beside == NULL)
        *beside = rs_pickle_make(r, kind);
    *out = *beside;
    return *beside != NULL ? RESHARD_OK : rs_allocation_status();
}

/* Adds the values from stack index `begin` on to the value below them. */
static reshard_status add_to_below(reader *r, rs_pickle_kind kind, int64_t begin)
{
    node *container = NULL;
    change(r, r->stack[begin - 1]);
    reshard_status status = find_container(r, r->stack[begin - 1], kind, &container);
    if (status != RESHARD_OK)
        return status;
    if (container == NULL)
        return rs_pickle_fail(r, "the value below cannot take items of this kind");
    if (kind == RS_PICKLE_DICT && (r->stack_count - begin) % 2 != 0)
        return rs_pickle_fail(r, "a key has no value");
    return add_items(r, container, begin);
}

reshard_status rs_pickle_do_append(reader *r, const argument *a)
{
    (void)a;
    reshard_status status = need(r, 2);
    return status == RESHARD_OK ? add_to_below(r, RS_PICKLE_LIST, r->stack_count - 1) : status;
}

reshard_status rs_pickle_do_set_item(reader *r, const argument *a)
{
    (void)a;
    reshard_status status = need(r, 3);
    return status == RESHARD_OK ? add_to_below(r, RS_PICKLE_DICT, r->stack_count - 2) : status;
}

reshard_status rs_pickle_do_appends(reader *r, const argument *a)
{
    int64_t begin = 0;
    bool is_taken = false;
    reshard_status status = pop_mark(r, &begin);
    if (status == RESHARD_OK)
        status = need(r, r->stack_count - begin + 1);
    if (status == RESHARD_OK && r->taker != NULL &&
        r->stack[begin - 1]->kind == (rs_pickle_kind)a->which)
        status = rs_pickle_offer(r, &r->marks[r->mark_count], r->stack[begin - 1], &is_taken);
    if (status != RESHARD_OK || is_taken)
        return status;
    return add_to_below(r, (rs_pickle_kind)a->which, begin);
}

/* ---- globals and calls ----------------------------------------------------------------------- */

static reshard_status make_global(reader *r, rs_slice module, rs_slice name, node **out)
{
    if (module.count > RS_PICKLE_GLOBAL_BYTES_MAX || name.count > RS_PICKLE_GLOBAL_BYTES_MAX)
        return rs_pickle_fail(r, "the name has more than 1024 bytes");
    if (!rs_pickle_is_utf8(module) || !rs_pickle_is_utf8(name))
        return rs_pickle_fail(r, "the name is not UTF-8");
    reshard_status status = rs_grow(r->context, &r->globals, &r->global_capacity,
                                    r->global_count + 1, sizeof *r->globals);
    if (status != RESHARD_OK)
        return status;
    node *made = rs_pickle_make(r, RS_PICKLE_GLOBAL);
    rs_pickle_global *global = rs_arena_allocate(r->arena, sizeof *global);
    if (made == NULL || global == NULL)
        return rs_allocation_status();
    *global = (rs_pickle_global){.module = module, .name = name};
    made->global = global;
    r->globals[r->global_count++] = made;
    r->lasting_at = r->opcode_at;
    *out = made;
    return RESHARD_OK;
}

reshard_status rs_pickle_do_global(reader *r, const argument *a)
{
    node *made = NULL;
    reshard_status status = make_global(r, a->bytes, a->second, &made);
    return status == RESHARD_OK ? rs_pickle_push(r, made) : status;
}

reshard_status rs_pickle_do_stack_global(reader *r, const argument *a)
{
    (void)a;
    node *made = NULL;
    reshard_status status = need(r, 2);
    if (status != RESHARD_OK)
        return status;
    const node *name = pop(r), *module = pop(r);
    if (name->kind != RS_PICKLE_TEXT || module->kind != RS_PICKLE_TEXT)
        return rs_pickle_fail(r, "module and name are not texts");
    status = make_global(r, module->bytes, name->bytes, &made);
    return status == RESHARD_OK ? rs_pickle_push(r, made) : status;
}

static reshard_status push_call(reader *r, rs_pickle_kind kind, rs_pickle_call call)
{
    if (call.arguments->kind != RS_PICKLE_TUPLE)
        return rs_pickle_fail(r, "the arguments are not a tuple");
    node *made = rs_pickle_make(r, kind);
    rs_pickle_call *kept = rs_arena_allocate(r->arena, sizeof *kept);
    if (made == NULL || kept == NULL)
        return rs_allocation_status();
    *kept = call;
    made->call = kept;
    return rs_pickle_push(r, made);
}

/* Notes that Python would call this: a global, or what a call such as getattr(global, ..) gives. */
static void note_call(const node *callable)
{
    if (is_call(callable) && callable->call->arguments->items.count != 0)
        callable = callable->call->arguments->items.nodes[0];
    if (callable->kind == RS_PICKLE_GLOBAL) /* the reader made it, and still owns it */
        ((rs_pickle_global *)callable->global)->is_called = true;
}

reshard_status rs_pickle_do_call(reader *r, const argument *a)
{
    reshard_status status = need(r, 2);
    if (status != RESHARD_OK)
        return status;
    const node *arguments = pop(r), *callable = pop(r);
    if (a->which == RS_PICKLE_REDUCE)
        note_call(callable);
    return push_call(r, (rs_pickle_kind)a->which,
                     (rs_pickle_call){.callable = callable, .arguments = arguments});
}

reshard_status rs_pickle_do_call_keywords(reader *r, const argument *a)
{
    (void)a;
    reshard_status status = need(r, 3);
    if (status != RESHARD_OK)
        return status;
    const node *keywords = pop(r), *arguments = pop(r), *callable = pop(r);
    if (keywords->kind != RS_PICKLE_DICT)
        return rs_pickle_fail(r, "the keyword arguments are not a dict");
    return push_call(
        r, RS_PICKLE_OBJECT,
        (rs_pickle_call){.callable = callable, .arguments = arguments, .keywords = keywords});
}

/* Pushes an object of the class. Its arguments are the values from stack index `begin` on. */
static reshard_status push_instance(reader *r, const node *class, int64_t begin)
{
    reshard_status status = gather(r, RS_PICKLE_TUPLE, begin);
    note_call(class);
    return status == RESHARD_OK
               ? push_call(r, RS_PICKLE_OBJECT,
                           (rs_pickle_call){.callable = class, .arguments = pop(r)})
               : status;
}

reshard_status rs_pickle_do_inst(reader *r, const argument *a)
{
    int64_t begin = 0;
    node *class = NULL;
    reshard_status status = pop_mark(r, &begin);
    if (status == RESHARD_OK)
        status = make_global(r, a->bytes, a->second, &class);
    return status == RESHARD_OK ? push_instance(r, class, begin) : status;
}

reshard_status rs_pickle_do_obj(reader *r, const argument *a)
{
    (void)a;
    int64_t begin = 0;
    reshard_status status = pop_mark(r, &begin);
    if (status != RESHARD_OK)
        return status;
    if (begin == r->stack_count)
        return rs_pickle_fail(r, "there is no class behind the mark");
    const node *class = r->stack[begin];
    status = push_instance(r, class, begin + 1);
    if (status == RESHARD_OK) { /* the class is still below the object */
        r->stack[begin] = r->stack[begin + 1];
        r->stack_count = begin + 1;
    }
    return status;
}

reshard_status rs_pickle_do_build(reader *r, const argument *a)
{
    (void)a;
    reshard_status status = need(r, 2);
    if (status != RESHARD_OK)
        return status;
    const node *state = pop(r);
    node *object = top(r);
    if (!is_call(object))
        return rs_pickle_fail(r, "the value below the state is not an object");
    if (object->call->state != NULL)
        return rs_pickle_fail(r, "the object has a state already");
    change(r, object);
    object->call->state = state;
    return RESHARD_OK;
}

reshard_status rs_pickle_do_persistent(reader *r, const argument *a)
{
    (void)a;
    reshard_status status = need(r, 1);
    if (status != RESHARD_OK)
        return status;
    status = rs_grow(r->context, &r->persistents, &r->persistent_capacity, r->persistent_count + 1,
                     sizeof *r->persistents);
    if (status != RESHARD_OK)
        return status;
    const node *id = pop(r);
    node *made = rs_pickle_make(r, RS_PICKLE_PERSISTENT);
    if (made != NULL) {
        made->id = id;
        r->persistents[r->persistent_count++] = made;
        r->lasting_at = r->opcode_at;
    }
    return rs_pickle_push(r, made);
}

reshard_status rs_pickle_do_persistent_text(reader *r, const argument *a)
{
    reshard_status status = rs_pickle_do_text(r, a);
    return status == RESHARD_OK ? rs_pickle_do_persistent(r, a) : status;
}

reshard_status rs_pickle_do_refuse(reader *r, const argument *a)
{
    (void)a;
    return rs_fail(RESHARD_ERR_UNSUPPORTED,
                   "%s, byte %zu: %s: refers to something outside the pickle, which cannot be read",
                   r->what, r->opcode_at, r->opcode);
}
