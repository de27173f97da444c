/* SPDX-License-Identifier: Apache-2.0 */
#include "map_case.h"

#include "checkpoint/maps/resolve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_shape(map_case *made, const char *word)
{
    reshard_map_tensor *tensor = &made->tensors[made->count];
    for (const char *at = word; strcmp(word, "scalar") != 0 && at != NULL;) {
        made->shapes[made->count][tensor->ndim++] = strtoll(at, NULL, 10);
        at = strchr(at, 'x');
        at = at != NULL ? at + 1 : NULL;
    }
}

void map_case_read(map_case *made, const char *tensors)
{
    char text[MAP_CASE_BYTES], *rest = text;
    memset(made, 0, sizeof *made);
    if (strlen(tensors) >= sizeof text)
        abort();
    strcpy(text, tensors);
    for (char *item = strtok_r(rest, ",", &rest); item != NULL; item = strtok_r(NULL, ",", &rest)) {
        char dtype[16] = "f32", shape[64] = "", name[96] = "";
        reshard_map_tensor *tensor = &made->tensors[made->count];
        int words = sscanf(item, " %95s %15s %63s", name, dtype, shape);
        if (words == 2) {
            strcpy(shape, dtype);
            strcpy(dtype, "f32");
        }
        if (words < 2 || made->count == MAP_CASE_TENSORS_MAX ||
            reshard_dtype_parse(dtype, &tensor->dtype) != RESHARD_OK)
            abort();
        strcpy(made->names[made->count], name);
        tensor->name = made->names[made->count];
        tensor->shape = made->shapes[made->count];
        read_shape(made, shape);
        made->count++;
    }
}

static int64_t flat(int32_t ndim, const int64_t *shape, const int64_t *at)
{
    int64_t place = 0;
    for (int32_t d = 0; d < ndim; d++) {
        if (at[d] < 0 || at[d] >= shape[d])
            abort();
        place = place * shape[d] + at[d];
    }
    return place;
}

void map_case_elements(const reshard_map_result *result, const reshard_map_tensor *tensors,
                       int64_t target, int64_t volume, int64_t *elements)
{
    reshard_map_target to = {.size = sizeof to};
    if (reshard_map_result_target(result, target, &to) != RESHARD_OK)
        abort();
    for (int64_t i = 0; i < volume; i++)
        elements[i] = -2;
    for (int64_t l = to.link_first; l < to.link_first + to.link_count; l++) {
        reshard_strided_link link = {.size = sizeof link};
        int64_t count = 1;
        if (reshard_map_result_link(result, l, &link) != RESHARD_OK || link.target != target)
            abort();
        for (int32_t i = 0; i < link.axis_count; i++)
            count *= link.axes[i].size;
        for (int64_t k = 0; k < count; k++) {
            int64_t source_at[RESHARD_NDIM_MAX], target_at[RESHARD_NDIM_MAX], rest = k;
            memcpy(source_at, link.source_at, sizeof source_at);
            memcpy(target_at, link.target_at, sizeof target_at);
            for (int32_t i = link.axis_count - 1; i >= 0; i--) {
                source_at[link.axes[i].source_dim] +=
                    rest % link.axes[i].size * link.axes[i].source_step;
                target_at[link.axes[i].target_dim] +=
                    rest % link.axes[i].size * link.axes[i].target_step;
                rest /= link.axes[i].size;
            }
            const reshard_map_tensor *from = &tensors[link.source];
            int64_t place = flat(to.ndim, to.shape, target_at);
            elements[place] = elements[place] == -2 ? (int64_t)link.source << 32 |
                                                          flat(from->ndim, from->shape, source_at)
                                                    : -1;
        }
    }
    for (int64_t i = 0; i < volume; i++)
        elements[i] = elements[i] == -2 ? -1 : elements[i];
}

/* ---- results as text ------------------------------------------------------------------------- */

typedef struct out {
    char *text;
    size_t capacity, length;
} out;

static void add(out *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
#include <stdarg.h>
static void add(out *to, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(to->text + to->length, to->capacity - to->length, format, arguments);
    va_end(arguments);
    to->length += (size_t)more;
    if (to->length >= to->capacity)
        abort();
}

static void add_target(out *to, const map_case *given, const reshard_map_result *result, int64_t t)
{
    reshard_map_target target = {.size = sizeof target};
    int64_t volume = 1, elements[512];
    if (reshard_map_result_target(result, t, &target) != RESHARD_OK)
        abort();
    add(to, "%s ", target.name);
    for (int32_t d = 0; d < target.ndim; d++) {
        add(to, "%s%" PRId64, d > 0 ? "x" : "", target.shape[d]);
        volume *= target.shape[d];
    }
    add(to, "%s%s", target.ndim == 0 ? "scalar " : " ", reshard_dtype_name(target.dtype));
    if (target.added != 0)
        add(to, " %+g", target.added);
    if (target.origin == RESHARD_MAP_FILL)
        add(to, " fill %g", target.value);
    if (target.origin == RESHARD_MAP_OBJECT)
        add(to, " object");
    if (target.origin == RESHARD_MAP_COPY)
        add(to, " copy of %" PRId64, target.copied);
    if (volume > 512)
        abort();
    map_case_elements(result, given->tensors, t, volume, elements);
    add(to, "%s", target.link_count > 0 ? ":" : "");
    for (int64_t i = 0; i < volume && target.link_count > 0; i++)
        add(to, elements[i] < 0 ? " ?" : " %s%" PRId64,
            elements[i] < 0 ? "" : given->tensors[elements[i] >> 32].name,
            elements[i] & UINT32_MAX);
    add(to, "\n");
}

static void add_uses(out *to, const map_case *given, const reshard_map_result *result)
{
    for (int64_t i = 0; i < given->count; i++) {
        reshard_map_use use = {.size = sizeof use};
        if (reshard_map_result_use(result, i, &use) != RESHARD_OK)
            abort();
        if (use.fate == RESHARD_MAP_DROPPED)
            add(to, "%s dropped\n", given->tensors[i].name);
        if (use.fate == RESHARD_MAP_EXPECTED)
            add(to, "%s must be %g\n", given->tensors[i].name, use.value);
        if (use.fate == RESHARD_MAP_REPEATED)
            add(to, "%s must be %s\n", given->tensors[i].name, given->tensors[use.same_as].name);
        if (use.surplus != 0)
            add(to, "%s loses %" PRId64 "\n", given->tensors[i].name, use.surplus);
    }
}

void map_case_run(const char *map_text, reshard_map_side side, const char *tensors,
                  const char *sets, char *out_text, size_t capacity)
{
    static map_case given;
    char set_text[256] = "", *rest = set_text;
    const char *set_list[16];
    reshard_map_resolve_options options = {.size = sizeof options, .sets = set_list};
    reshard_map *map = NULL;
    reshard_map_result *result = NULL;
    out to = {out_text, capacity, 0};
    out_text[0] = '\0';
    if (sets != NULL && strlen(sets) < sizeof set_text)
        strcpy(set_text, sets);
    for (char *item = strtok_r(rest, " ", &rest); item != NULL; item = strtok_r(NULL, " ", &rest))
        set_list[options.set_count++] = item;
    map_case_read(&given, tensors);
    reshard_status status = reshard_map_parse(NULL, map_text, strlen(map_text), NULL, &map);
    if (status == RESHARD_OK)
        status = reshard_map_resolve(map, side, given.count, given.tensors, &options, &result);
    if (status != RESHARD_OK)
        add(&to, "%s", reshard_error_text());
    for (int64_t t = 0; result != NULL && t < result->target_count; t++)
        add_target(&to, &given, result, t);
    if (result != NULL)
        add_uses(&to, &given, result);
    reshard_map_result_destroy(result);
    reshard_map_release(map);
}
