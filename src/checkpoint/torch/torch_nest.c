/* SPDX-License-Identifier: Apache-2.0 */
/* torch_nest.c - finds the path of every tensor and value, sorts the paths, and writes a container
 * for each beginning that several paths share. */
#include "checkpoint/torch/torch_save.h"

#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/torch/torch_values.h"
#include "text/json.h"
#include "text/text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define STEPS_MAX 300
#define VALUE_DEPTH_MAX 64
#define VALUE_NODES_MAX (1 << 24)

/* ---- values ---------------------------------------------------------------------------------- */

/* Can a file for weights_only=True hold it? Plain numbers, texts, dtypes and containers can. */
static bool can_hold(const rs_pickle_node *node, int depth, int64_t *left)
{
    const rs_pickle_node *parts = node;
    if (depth > VALUE_DEPTH_MAX || --*left < 0)
        return false;
    switch (node->kind) {
    case RS_PICKLE_NONE:
    case RS_PICKLE_BOOL:
    case RS_PICKLE_INT:
    case RS_PICKLE_FLOAT:
    case RS_PICKLE_BYTES:
        return true;
    case RS_PICKLE_TEXT: { /* without lone surrogates */
        rs_slice text = node->bytes;
        return rs_json_is_text(text.bytes, text.count);
    }
    case RS_PICKLE_TUPLE:
    case RS_PICKLE_LIST:
    case RS_PICKLE_DICT:
        break;
    case RS_PICKLE_GLOBAL: {
        reshard_dtype dtype;
        return rs_torch_dtype_read(node, &dtype) == RESHARD_OK;
    }
    case RS_PICKLE_REDUCE:
        if (rs_pickle_is_call(node, "torch", "Size") && rs_pickle_count(node->call->arguments) == 1)
            parts = node->call->arguments;
        else if (rs_pickle_is_call(node, "collections", "OrderedDict") &&
                 node->call->list == NULL && rs_pickle_count(node->call->arguments) == 0)
            parts = node->call->dict;
        else if (rs_torch_pairs(node) != NULL && node->call->list == NULL &&
                 node->call->dict == NULL)
            parts = rs_torch_pairs(node);
        else
            return false;
        break;
    default:
        return false;
    }
    for (size_t i = 0; parts != NULL && i < parts->items.count; i++) {
        if (!can_hold(parts->items.nodes[i], depth + 1, left))
            return false;
    }
    return true;
}

static bool can_write(const rs_pickle_node *node)
{
    int64_t left = VALUE_NODES_MAX;
    return node != NULL && can_hold(node, 0, &left);
}

static void write_value(rs_pickle_writer *writer, const rs_pickle_node *node);

static void write_items(rs_pickle_writer *writer, const rs_pickle_node *node)
{
    for (size_t i = 0; node != NULL && i < node->items.count; i++)
        write_value(writer, node->items.nodes[i]);
}

static void write_call(rs_pickle_writer *writer, const rs_pickle_node *node)
{
    const rs_pickle_node *pairs = rs_torch_pairs(node);
    bool is_size = rs_pickle_is_call(node, "torch", "Size");
    rs_pickle_write_global(writer, is_size ? "torch" : "collections",
                           is_size ? "Size" : "OrderedDict");
    rs_pickle_write_tuple_begin(writer);
    if (is_size)
        write_items(writer, node->call->arguments);
    rs_pickle_write_tuple_end(writer);
    rs_pickle_write_reduce(writer);
    if (!is_size && node->call->dict != NULL) {
        rs_pickle_write_items_begin(writer);
        write_items(writer, node->call->dict);
        rs_pickle_write_dict_end(writer);
    }
    if (pairs != NULL) {
        rs_pickle_write_items_begin(writer);
        for (size_t i = 0; i < rs_pickle_count(pairs); i++)
            write_items(writer, rs_pickle_item(pairs, i));
        rs_pickle_write_dict_end(writer);
    }
}

/* Writes a value that can_hold accepts. */
static void write_value(rs_pickle_writer *writer, const rs_pickle_node *node)
{
    switch (node->kind) {
    case RS_PICKLE_BOOL:
        rs_pickle_write_bool(writer, node->truth);
        break;
    case RS_PICKLE_INT:
        rs_pickle_write_int(writer, node->integer);
        break;
    case RS_PICKLE_FLOAT:
        rs_pickle_write_float(writer, node->real);
        break;
    case RS_PICKLE_TEXT:
        rs_pickle_write_text(writer, node->bytes);
        break;
    case RS_PICKLE_BYTES:
        rs_pickle_write_bytes(writer, node->bytes);
        break;
    case RS_PICKLE_TUPLE:
        rs_pickle_write_tuple_begin(writer);
        write_items(writer, node);
        rs_pickle_write_tuple_end(writer);
        break;
    case RS_PICKLE_LIST:
        rs_pickle_write_list_begin(writer);
        write_items(writer, node);
        rs_pickle_write_list_end(writer);
        break;
    case RS_PICKLE_DICT:
        rs_pickle_write_dict_begin(writer);
        write_items(writer, node);
        rs_pickle_write_dict_end(writer);
        break;
    case RS_PICKLE_GLOBAL: {
        reshard_dtype dtype = RESHARD_DTYPE_NONE;
        (void)rs_torch_dtype_read(node, &dtype);
        rs_pickle_write_global(writer, "torch", rs_torch_dtype_name(dtype));
        break;
    }
    case RS_PICKLE_REDUCE:
        write_call(writer, node);
        break;
    default:
        rs_pickle_write_none(writer);
    }
}

void rs_torch_nest_write_value(rs_pickle_writer *writer, const rs_pickle_node *node)
{
    assert(can_write(node));
    write_value(writer, node);
}

bool rs_torch_nest_holds(const rs_stored_value *value)
{
    return can_write(value->node);
}

/* ---- leaves ---------------------------------------------------------------------------------- */

/* A tensor or a value, and the steps to it. */
typedef struct nest_leaf {
    rs_slice name;
    int32_t step_count;
    const rs_value_step *steps;
    const rs_target_entry *entry; /* NULL: a value */
    int64_t number;               /* index of the entry in its file */
    const rs_pickle_node *value;
} nest_leaf;

typedef struct nest {
    const rs_target *target;
    rs_torch_entry_fn *write;
    rs_pickle_writer *writer;
    rs_arena arena; /* holds the steps */
    int64_t count;
    nest_leaf *leaves;
} nest;

static rs_slice step_word(const rs_value_step *step, char digits[24])
{
    if (step->key.bytes != NULL)
        return step->key;
    int length = snprintf(digits, 24, "%lld", (long long)step->number);
    return (rs_slice){digits, (size_t)length};
}

/* Matches the first steps with the beginning of the name, as far as they agree. Returns how many
 * bytes of the name they take up, including the dots after them. */
static size_t match_front(const rs_value_step *steps, int32_t count, rs_slice name,
                          int32_t *out_matched)
{
    size_t at = 0;
    *out_matched = 0;
    for (int32_t i = 0; i < count; i++) {
        char digits[24];
        rs_slice word = step_word(&steps[i], digits);
        if (at + word.count >= name.count || name.bytes[at + word.count] != '.' ||
            memcmp(name.bytes + at, word.bytes, word.count) != 0)
            break;
        at += word.count + 1;
        (*out_matched)++;
    }
    return at;
}

/* How many of the last steps make up the whole name; 0 if none do. */
static int32_t match_back(const rs_value_step *steps, int32_t count, rs_slice name)
{
    size_t left = name.count;
    for (int32_t i = count - 1; i >= 0; i--) {
        char digits[24];
        rs_slice word = step_word(&steps[i], digits);
        if (word.count > left ||
            memcmp(name.bytes + left - word.count, word.bytes, word.count) != 0)
            return 0;
        left -= word.count;
        if (left == 0)
            return count - i;
        if (name.bytes[--left] != '.')
            return 0;
    }
    return 0;
}

/* Finds the steps to the leaf's new name, given the last step of its old one (NULL: none). */
static reshard_status find_steps(nest *n, const rs_value_step *last, nest_leaf *leaf)
{
    rs_value_step steps[STEPS_MAX + 1];
    int32_t count = 0, matched = 0;
    size_t at = 0;
    for (const rs_value_step *step = last; step != NULL; step = step->parent)
        count++;
    if (count > STEPS_MAX)
        count = 0;
    int32_t next = count;
    for (const rs_value_step *step = last; next > 0; step = step->parent)
        steps[--next] = *step;
    int32_t back = match_back(steps, count, leaf->name);
    int32_t first = count - back;
    if (back == 0) {
        at = match_front(steps, count, leaf->name, &matched);
        steps[matched] = (rs_value_step){.key = {leaf->name.bytes + at, leaf->name.count - at}};
        count = matched + 1;
        first = 0;
    }
    leaf->step_count = count - first;
    leaf->steps = rs_arena_copy(&n->arena, steps + first, (size_t)leaf->step_count, sizeof *steps);
    return leaf->steps != NULL ? RESHARD_OK : rs_allocation_status();
}

static int compare_steps(const rs_value_step *a, const rs_value_step *b)
{
    bool a_is_text = a->key.bytes != NULL, b_is_text = b->key.bytes != NULL;
    if (a_is_text != b_is_text)
        return a_is_text ? 1 : -1;
    return a_is_text ? rs_slice_compare(a->key, b->key)
                     : (a->number > b->number) - (a->number < b->number);
}

static int compare_leaves(const void *a, const void *b)
{
    const nest_leaf *x = a, *y = b;
    for (int32_t i = 0; i < x->step_count && i < y->step_count; i++) {
        int order = compare_steps(&x->steps[i], &y->steps[i]);
        if (order != 0)
            return order;
    }
    return (x->step_count > y->step_count) - (x->step_count < y->step_count);
}

/* Lists the tied tensors, which have no entries of their own. */
static reshard_status list_tied(nest *n, const rs_target_file *file)
{
    const rs_target *target = n->target;
    size_t bytes = (size_t)target->tensor_count * sizeof(int64_t);
    reshard_status status = RESHARD_OK;
    /* by tensor: the index of its entry in the file */
    int64_t *numbers = rs_allocate(target->context, bytes);
    if (numbers == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < file->entry_count; i++)
        numbers[target->entries[file->entry_first + i].tensor] = i;
    for (int64_t i = 0; status == RESHARD_OK && i < target->tensor_count; i++) {
        if (target->owners[i] < 0)
            continue;
        int64_t number = numbers[target->owners[i]];
        nest_leaf *leaf = &n->leaves[n->count++];
        *leaf = (nest_leaf){.name = target->tensors[i].name,
                            .entry = &target->entries[file->entry_first + number],
                            .number = number};
        status = find_steps(n, target->source->tensors[target->origins[i]].step, leaf);
    }
    rs_release(target->context, numbers);
    return status;
}

static reshard_status list_leaves(nest *n, int32_t file_index)
{
    const rs_target *target = n->target;
    const rs_target_file *file = &target->files[file_index];
    const reshard_checkpoint *source = target->source;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < file->entry_count; i++) {
        const rs_target_entry *entry = &target->entries[file->entry_first + i];
        nest_leaf *leaf = &n->leaves[n->count++];
        *leaf =
            (nest_leaf){.name = target->tensors[entry->tensor].name, .entry = entry, .number = i};
        status = find_steps(n, source->tensors[target->origins[entry->tensor]].step, leaf);
    }
    if (status == RESHARD_OK && target->owners != NULL)
        status = list_tied(n, file);
    for (int64_t i = 0; status == RESHARD_OK && i < source->value_count; i++) {
        const rs_stored_value *value = &source->values[i];
        rs_slice name = value->name;
        if (!can_write(value->node) || !rs_target_keeps(target, &name))
            continue;
        nest_leaf *leaf = &n->leaves[n->count++];
        *leaf = (nest_leaf){.name = name, .value = value->node};
        status = find_steps(n, value->place.step, leaf);
    }
    if (status == RESHARD_OK)
        rs_sort(n->leaves, (size_t)n->count, sizeof *n->leaves, compare_leaves);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_leaf(nest *n, const nest_leaf *leaf)
{
    char key[24];
    if (leaf->entry == NULL) {
        write_value(n->writer, leaf->value);
        return;
    }
    int length = snprintf(key, sizeof key, "%lld", (long long)leaf->number);
    n->write(n->writer, n->target, leaf->entry, (rs_slice){key, (size_t)length});
}

/* How many leaves from `first` on take the same step at this level. */
static int64_t count_alike(const nest *n, int64_t first, int64_t end, int32_t level)
{
    int64_t next = first + 1;
    while (next < end &&
           compare_steps(&n->leaves[first].steps[level], &n->leaves[next].steps[level]) == 0)
        next++;
    return next - first;
}

static bool is_list(const nest *n, int64_t first, int64_t end, int32_t level)
{
    int64_t number = 0;
    for (int64_t i = first; i < end; i += count_alike(n, i, end, level)) {
        const rs_value_step *step = &n->leaves[i].steps[level];
        if (!step->in_list || step->number != number++)
            return false;
    }
    return true;
}

static void write_key(nest *n, const rs_value_step *step)
{
    if (step->key.bytes != NULL)
        rs_pickle_write_text(n->writer, step->key);
    else
        rs_pickle_write_int(n->writer, step->number);
}

/* Writes a container: the leaves [first, end) share the steps above this level. Levels are bounded
 * by STEPS_MAX. */
static reshard_status write_level(nest *n, int64_t first, int64_t end, int32_t level)
{
    bool in_list = first < end && is_list(n, first, end, level);
    reshard_status status = RESHARD_OK;
    if (in_list)
        rs_pickle_write_list_begin(n->writer);
    else
        rs_pickle_write_dict_begin(n->writer);
    for (int64_t i = first, count; status == RESHARD_OK && i < end; i += count) {
        const nest_leaf *leaf = &n->leaves[i];
        count = count_alike(n, i, end, level);
        bool is_leaf = leaf->step_count == level + 1;
        if (is_leaf && count > 1)
            return rs_fail(
                RESHARD_ERR_INVALID,
                "\"%.*s\" and \"%.*s\" cannot both be written: one would be inside the other",
                RS_SHOWN(leaf->name), RS_SHOWN(leaf[1].name));
        if (!in_list)
            write_key(n, &leaf->steps[level]);
        if (is_leaf)
            write_leaf(n, leaf);
        else
            status = write_level(n, i, i + count, level + 1);
    }
    if (in_list)
        rs_pickle_write_list_end(n->writer);
    else
        rs_pickle_write_dict_end(n->writer);
    return status;
}

reshard_status rs_torch_nest_write(const rs_target *target, int32_t file, rs_torch_entry_fn *write,
                                   rs_pickle_writer *writer)
{
    nest n = {.target = target, .write = write, .writer = writer};
    size_t room = (size_t)(target->files[file].entry_count + target->source->value_count +
                           (target->owners != NULL ? target->tensor_count : 0));
    rs_arena_init(&n.arena, target->context);
    n.leaves = rs_allocate_array(target->context, room, sizeof *n.leaves);
    if (n.leaves == NULL)
        return rs_allocation_status();
    reshard_status status = list_leaves(&n, file);
    rs_pickle_writer_begin(writer);
    if (status == RESHARD_OK)
        status = write_level(&n, 0, n.count, 0);
    rs_release(target->context, n.leaves);
    rs_arena_release(&n.arena);
    return status;
}
