/* SPDX-License-Identifier: Apache-2.0 */
/* parameter.c - finds the parameter of an optimizer's state by the state's name. */
#include "checkpoint/select/parameter.h"

#include <string.h>

#define NAME_BYTES_MAX 1024

/* Keys below which a model is stored beside its optimizer. */
static const char *const homes[] = {"", "model.", "module.", "state_dict."};

static bool has_same_shape(const rs_stored_tensor *a, const rs_stored_tensor *b)
{
    return a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(int64_t)) == 0);
}

/* Whether the path leads through an optimizer: a step "state", or one that contains "optim". Names
 * in models have neither. */
static bool is_of_optimizer(rs_slice front)
{
    static const char part[] = "optim", state[] = "state.";
    for (size_t i = 0; i < front.count; i++) {
        size_t left = front.count - i;
        if ((left >= sizeof part - 1 && memcmp(front.bytes + i, part, sizeof part - 1) == 0) ||
            ((i == 0 || front.bytes[i - 1] == '.') && left >= sizeof state - 1 &&
             memcmp(front.bytes + i, state, sizeof state - 1) == 0))
            return true;
    }
    return false;
}

/* Finds the parameter with that name, or with that name below one of these keys. */
static int64_t find_parameter(const reshard_checkpoint *source, rs_slice name, size_t *out_skipped)
{
    char buffer[NAME_BYTES_MAX];
    for (size_t i = 0; i < sizeof homes / sizeof *homes; i++) {
        size_t home = strlen(homes[i]);
        if (home + name.count > sizeof buffer)
            continue;
        memcpy(buffer, homes[i], home);
        memcpy(buffer + home, name.bytes, name.count);
        int64_t found = rs_store_find(source, (rs_slice){buffer, home + name.count});
        if (found >= 0) {
            *out_skipped = home;
            return found;
        }
    }
    return -1;
}

rs_parameter rs_parameter_find(const reshard_checkpoint *source, const rs_stored_tensor *tensor)
{
    rs_slice name = tensor->name;
    size_t dot = name.count;
    while (dot > 0 && name.bytes[dot - 1] != '.')
        dot--;
    for (size_t begin = 1; dot > 1 && begin < dot; begin++) {
        if (name.bytes[begin - 1] != '.' || !is_of_optimizer((rs_slice){name.bytes, begin}))
            continue;
        /* The state's own word is the last, or stands before the parameter's name, as in
         * Megatron's. */
        const size_t ends[2] = {dot - 1, name.count};
        for (int i = 0; i < 2; i++) {
            size_t skipped = 0, end = ends[i];
            if (begin >= end)
                continue;
            rs_slice inner = {name.bytes + begin, end - begin};
            int64_t found = find_parameter(source, inner, &skipped);
            if (found >= 0 && &source->tensors[found] != tensor)
                return (rs_parameter){.tensor = found,
                                      .front = {name.bytes, begin},
                                      .back = {name.bytes + end, name.count - end},
                                      .skipped = skipped,
                                      .same_shape =
                                          has_same_shape(tensor, &source->tensors[found])};
        }
    }
    return (rs_parameter){.tensor = -1};
}

/* ---- Megatron's keys of states --------------------------------------------------------------- */

rs_slice rs_state_name(rs_slice name)
{
    static const char chained[] = "chained_";
    size_t at = sizeof chained - 1;
    if (!rs_slice_begins(name, chained))
        return name;
    while (at < name.count && name.bytes[at] >= '0' && name.bytes[at] <= '9')
        at++;
    return at < name.count && name.bytes[at] == '.'
               ? (rs_slice){name.bytes + at + 1, name.count - at - 1}
               : name;
}

bool rs_state_is_bucket(rs_slice name)
{
    return rs_slice_begins(rs_state_name(name), "optimizer.distributed.");
}

bool rs_state_is_named(rs_slice name)
{
    return rs_slice_begins(rs_state_name(name), "optimizer.state.");
}
