/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_walk.c - one pass over the graph of a pickle. Whether a value contains tensors is found out
 * once, and kept in one byte for each byte of the pickle (a value is identified by the position of
 * the opcode that made it). So values without tensors cost only their own size, however often they
 * are shared. Values with tensors are visited once for each name, and the bytes of names are
 * limited.
 */
#include "checkpoint/torch/torch_walk.h"

#include "base/context.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 256
/* Limits for the bytes of all names: per byte of the pickle, and in any case. */
#define NAME_BYTES_RATIO 64
#define NAME_BYTES_FREE ((size_t)1 << 20)
#define NAME_BYTES_MAX 4096
/* What each leaf counts in addition to its name. */
#define LEAF_BYTES 32

enum { UNSEEN, ENTERED, BARREN, PASSED, FERTILE };

typedef struct walk {
    rs_arena *arena;
    const char *what;
    unsigned char *marks; /* by position of the opcode */
    rs_torch_leaf_fn *take;
    void *user;
    rs_torch_attributes *passed;
    size_t name_bytes_left;
    int64_t order;
    char name[NAME_BYTES_MAX + 64];
} walk;

static reshard_status fail_depth(const walk *w)
{
    return rs_fail_about(RESHARD_ERR_RANGE, w->what,
                         "its values are nested more than %d levels deep", DEPTH_MAX);
}

/* ---- values that contain tensors ------------------------------------------------------------- */

static reshard_status find_tensors(walk *w, const rs_pickle_node *node, int depth, bool *out_any);

static reshard_status find_in_items(walk *w, const rs_pickle_node *node, int depth, bool *any)
{
    reshard_status status = RESHARD_OK;
    for (size_t i = 0; status == RESHARD_OK && node != NULL && i < node->items.count; i++)
        status = find_tensors(w, node->items.nodes[i], depth, any);
    return status;
}

/* The argument tuple has no mark of its own, because INST and OBJ make it and the call by one
 * opcode. */
static reshard_status find_in_call(walk *w, const rs_pickle_call *call, int depth, bool *any)
{
    reshard_status status = find_in_items(w, call->arguments, depth, any);
    if (status == RESHARD_OK && call->keywords != NULL)
        status = find_tensors(w, call->keywords, depth, any);
    if (status == RESHARD_OK && call->state != NULL)
        status = find_tensors(w, call->state, depth, any);
    if (status == RESHARD_OK)
        status = find_in_items(w, call->list, depth, any);
    return status == RESHARD_OK ? find_in_items(w, call->dict, depth, any) : status;
}

static reshard_status find_tensors(walk *w, const rs_pickle_node *node, int depth, bool *out_any)
{
    bool any = false;
    reshard_status status = RESHARD_OK;
    if (node->kind < RS_PICKLE_TUPLE || node->kind == RS_PICKLE_GLOBAL ||
        node->kind == RS_PICKLE_PERSISTENT)
        return RESHARD_OK;
    unsigned char *mark = &w->marks[node->at];
    if (*mark != UNSEEN) {
        *out_any = *out_any || *mark == FERTILE;
        return RESHARD_OK;
    }
    if (depth > DEPTH_MAX)
        return fail_depth(w);
    *mark = ENTERED;
    if (rs_torch_kind_of(node) != RS_TORCH_VALUE)
        any = true;
    else if (node->kind == RS_PICKLE_REDUCE || node->kind == RS_PICKLE_OBJECT)
        status = find_in_call(w, node->call, depth + 1, &any);
    else
        status = find_in_items(w, node, depth + 1, &any);
    *mark = any ? FERTILE : BARREN;
    *out_any = *out_any || any;
    return status;
}

/* ---- attributes that are passed over --------------------------------------------------------- */

static void pass_name(rs_torch_attributes *passed, rs_slice name)
{
    for (int32_t i = 0; i < passed->count; i++) {
        if (rs_slice_compare(passed->names[i], name) == 0)
            return;
    }
    if (passed->count < RS_TORCH_ATTRIBUTES_MAX)
        passed->names[passed->count++] = name;
    else
        passed->more = true;
}

/* A class may have a state of its own making instead of a dict: that has no names. */
static void pass_attributes(rs_torch_attributes *passed, const rs_pickle_node *state)
{
    const rs_pickle_node *dict = rs_pickle_dict(state);
    if (dict == NULL && !rs_pickle_is(state, RS_PICKLE_NONE))
        pass_name(passed, rs_slice_of("__getstate__()"));
    for (size_t i = 0; i < rs_pickle_count(dict); i++) {
        rs_slice name;
        if (!rs_pickle_text(dict->items.nodes[2 * i], &name))
            name = rs_slice_of("__getstate__()");
        pass_name(passed, name);
    }
}

/* The state of a container without tensors in it: once, however often the container is shared. A
 * class with __slots__ has a pair of dicts. */
static void pass_state(walk *w, const rs_pickle_node *state)
{
    unsigned char *mark = &w->marks[state->at];
    if (*mark == ENTERED || *mark == PASSED)
        return;
    *mark = PASSED;
    bool is_pair = rs_pickle_is(state, RS_PICKLE_TUPLE) && rs_pickle_count(state) == 2;
    pass_attributes(w->passed, is_pair ? rs_pickle_item(state, 0) : state);
    if (is_pair)
        pass_attributes(w->passed, rs_pickle_item(state, 1));
}

/* ---- names ----------------------------------------------------------------------------------- */

static reshard_status enter(walk *w, const rs_pickle_node *node, const rs_value_step *step,
                            size_t name_bytes, int depth);

static reshard_status hand_out(walk *w, const rs_pickle_node *node, const rs_value_step *step,
                               size_t name_bytes)
{
    if (w->name_bytes_left < name_bytes + LEAF_BYTES)
        return rs_fail_about(RESHARD_ERR_RANGE, w->what,
                             "the same values are shared so often that their names would take many "
                             "times its size");
    w->name_bytes_left -= name_bytes + LEAF_BYTES;
    w->name[name_bytes] = '\0';
    char *name = rs_arena_copy(w->arena, w->name, name_bytes + 1, 1);
    if (name == NULL)
        return rs_allocation_status();
    const rs_torch_leaf leaf = {.name = {name, name_bytes},
                                .place = {step, w->order++},
                                .kind = rs_torch_kind_of(node),
                                .node = node};
    return w->take(w->user, &leaf);
}

static reshard_status fail_name(const walk *w)
{
    return rs_fail_about(RESHARD_ERR_RANGE, w->what, "a name has more than %d bytes",
                         NAME_BYTES_MAX);
}

/* Appends a word to the first name_bytes of the name, and returns its new length. */
static size_t add_word(walk *w, const rs_value_step *parent, rs_slice word, size_t name_bytes)
{
    if (parent != NULL)
        w->name[name_bytes++] = '.';
    memcpy(w->name + name_bytes, word.bytes, word.count);
    return name_bytes + word.count;
}

/* Enters a value one step further down: appends the step to the path, and its word to the name. */
static reshard_status step_down(walk *w, const rs_pickle_node *node, const rs_value_step *given,
                                size_t name_bytes, int depth)
{
    char digits[24];
    rs_slice word = given->key;
    if (word.bytes == NULL) {
        int length = snprintf(digits, sizeof digits, "%" PRId64, given->number);
        word = (rs_slice){digits, (size_t)length};
    }
    if (name_bytes + 1 + word.count > NAME_BYTES_MAX)
        return fail_name(w);
    rs_value_step *step = rs_arena_copy(w->arena, given, 1, sizeof *given);
    if (step == NULL)
        return rs_allocation_status();
    return enter(w, node, step, add_word(w, given->parent, word, name_bytes), depth + 1);
}

static reshard_status enter_list(walk *w, const rs_pickle_node *list, const rs_value_step *parent,
                                 size_t name_bytes, int depth)
{
    reshard_status status = RESHARD_OK;
    for (size_t i = 0; status == RESHARD_OK && i < rs_pickle_count(list); i++) {
        const rs_value_step step = {.parent = parent, .number = (int64_t)i, .in_list = true};
        status = step_down(w, list->items.nodes[i], &step, name_bytes, depth);
    }
    return status;
}

/* Reads the key of a dict. One that is neither a text nor a number becomes the text that shows
 * it. */
static reshard_status read_key(walk *w, const rs_pickle_node *key, rs_value_step *step)
{
    char shown[256];
    if (rs_pickle_text(key, &step->key) || rs_pickle_int(key, &step->number))
        return RESHARD_OK;
    rs_pickle_show(key, shown, sizeof shown);
    step->key.count = strlen(shown);
    step->key.bytes = rs_arena_copy(w->arena, shown, step->key.count + 1, 1);
    return step->key.bytes != NULL ? RESHARD_OK : rs_allocation_status();
}

static reshard_status enter_pairs(walk *w, const rs_pickle_node *dict, const rs_pickle_index *index,
                                  const rs_value_step *parent, size_t name_bytes, int depth)
{
    reshard_status status = RESHARD_OK;
    for (size_t i = 0; status == RESHARD_OK && i < rs_pickle_count(dict); i++) {
        const rs_pickle_node *key = dict->items.nodes[2 * i], *value = dict->items.nodes[2 * i + 1];
        rs_value_step step = {.parent = parent};
        rs_slice text;
        /* Of equal keys, the last one counts. */
        if (rs_pickle_text(key, &text) && rs_pickle_index_get(index, text) != value)
            continue;
        status = read_key(w, key, &step);
        if (status == RESHARD_OK)
            status = step_down(w, value, &step, name_bytes, depth);
    }
    return status;
}

static reshard_status enter_dict(walk *w, const rs_pickle_node *dict, const rs_value_step *parent,
                                 size_t name_bytes, int depth)
{
    rs_pickle_index index = {0};
    if (dict == NULL)
        return RESHARD_OK;
    reshard_status status = rs_pickle_index_init(&index, w->arena->context, dict);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s", w->what);
    status = enter_pairs(w, dict, &index, parent, name_bytes, depth);
    rs_pickle_index_release(&index);
    return status;
}

/* Enters an OrderedDict of Python 2: its listed pairs, and those that were set later. */
static reshard_status enter_listed(walk *w, const rs_pickle_node *node, const rs_pickle_node *pairs,
                                   const rs_value_step *parent, size_t name_bytes, int depth)
{
    const rs_pickle_node *later = node->call->dict;
    size_t listed = rs_pickle_count(pairs), more = later != NULL ? later->items.count : 0;
    rs_pickle_node dict = {.kind = RS_PICKLE_DICT, .at = node->at};
    dict.items.count = 2 * listed + more;
    size_t bytes = dict.items.count * sizeof(void *);
    dict.items.nodes = rs_allocate(w->arena->context, bytes);
    if (dict.items.nodes == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < 2 * listed; i++)
        dict.items.nodes[i] = rs_pickle_item(rs_pickle_item(pairs, i / 2), i % 2);
    for (size_t i = 0; i < more; i++)
        dict.items.nodes[2 * listed + i] = later->items.nodes[i];
    reshard_status status = enter_dict(w, &dict, parent, name_bytes, depth);
    rs_release(w->arena->context, (void *)dict.items.nodes);
    return status;
}

static reshard_status enter_arguments(walk *w, const rs_pickle_node *arguments,
                                      const rs_value_step *parent, size_t name_bytes, int depth)
{
    const rs_value_step given = {.parent = parent, .key = rs_slice_of("arguments")};
    if (name_bytes + 1 + given.key.count > NAME_BYTES_MAX)
        return fail_name(w);
    rs_value_step *step = rs_arena_copy(w->arena, &given, 1, sizeof given);
    if (step == NULL)
        return rs_allocation_status();
    name_bytes = add_word(w, parent, given.key, name_bytes);
    return enter_list(w, arguments, step, name_bytes, depth);
}

/* Enters an object by its attributes, or a list or dict of some class by its items. */
static reshard_status enter_call(walk *w, const rs_pickle_node *node, const rs_value_step *parent,
                                 size_t name_bytes, int depth)
{
    const rs_pickle_call *call = node->call;
    const rs_pickle_node *pairs = rs_torch_pairs(node);
    bool in_arguments = false, in_keywords = false, in_state = false;
    reshard_status status = find_in_items(w, call->arguments, depth, &in_arguments);
    if (status == RESHARD_OK && call->keywords != NULL)
        status = find_tensors(w, call->keywords, depth, &in_keywords);
    if (status == RESHARD_OK && call->state != NULL)
        status = find_tensors(w, call->state, depth, &in_state);
    if (status == RESHARD_OK)
        status = pairs != NULL ? enter_listed(w, node, pairs, parent, name_bytes, depth)
                               : enter_dict(w, call->dict, parent, name_bytes, depth);
    if (status == RESHARD_OK)
        status = enter_list(w, call->list, parent, name_bytes, depth);
    if (status == RESHARD_OK && in_state)
        status = enter(w, call->state, parent, name_bytes, depth + 1);
    else if (status == RESHARD_OK && call->state != NULL)
        pass_state(w, call->state);
    if (status == RESHARD_OK && in_arguments && pairs == NULL)
        status = enter_arguments(w, call->arguments, parent, name_bytes, depth);
    if (status == RESHARD_OK && in_keywords)
        status = enter(w, call->keywords, parent, name_bytes, depth + 1);
    return status;
}

/* Is a value handed out as it is? A dict or list at the root is not, even without tensors: only its
 * items have names. */
static bool is_leaf(const rs_pickle_node *node, const rs_value_step *step, bool fertile)
{
    bool is_root = step == NULL && (node->kind == RS_PICKLE_LIST || node->kind == RS_PICKLE_TUPLE ||
                                    rs_pickle_dict(node) != NULL || rs_torch_pairs(node) != NULL);
    return (!fertile && !is_root) || rs_torch_kind_of(node) != RS_TORCH_VALUE;
}

static reshard_status enter(walk *w, const rs_pickle_node *node, const rs_value_step *step,
                            size_t name_bytes, int depth)
{
    bool fertile = false;
    if (depth > DEPTH_MAX)
        return fail_depth(w);
    reshard_status status = find_tensors(w, node, depth, &fertile);
    if (status != RESHARD_OK)
        return status;
    if (is_leaf(node, step, fertile))
        return hand_out(w, node, step, name_bytes);
    unsigned char *mark = &w->marks[node->at];
    *mark = ENTERED; /* a value that contains itself is not entered again */
    if (node->kind == RS_PICKLE_DICT)
        status = enter_dict(w, node, step, name_bytes, depth);
    else if (node->kind == RS_PICKLE_REDUCE || node->kind == RS_PICKLE_OBJECT)
        status = enter_call(w, node, step, name_bytes, depth);
    else
        status = enter_list(w, node, step, name_bytes, depth);
    *mark = fertile ? FERTILE : BARREN;
    return status;
}

reshard_status rs_torch_walk(rs_arena *arena, const char *what, const rs_pickle *pickle,
                             size_t bytes, const rs_torch_root *names, rs_torch_leaf_fn *take,
                             void *user, rs_torch_attributes *passed)
{
    const rs_pickle_node *root = rs_pickle_root(pickle);
    walk w = {.arena = arena, .what = what, .take = take, .user = user, .passed = passed};
    rs_value_step first = {.key = names->prefix};
    bool fertile = false;
    w.name_bytes_left = NAME_BYTES_FREE + NAME_BYTES_RATIO * bytes;
    w.marks = rs_allocate_zeroed(arena->context, bytes + 1);
    if (w.marks == NULL)
        return rs_allocation_status();
    reshard_status status = find_tensors(&w, root, 0, &fertile);
    if (first.key.bytes == NULL && is_leaf(root, NULL, fertile))
        first.key = names->alone;
    if (status == RESHARD_OK)
        status = first.key.bytes != NULL ? step_down(&w, root, &first, 0, 0)
                                         : enter(&w, root, NULL, 0, 0);
    rs_release(arena->context, w.marks);
    return status;
}
