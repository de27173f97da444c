/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_map.c - a map, a line of three dashes, and tensors, one in a line: "name 2x3". The map is
 * parsed, and its canonical text must parse back to itself; it is resolved on the tensors as those
 * of either side. Links that come out make a plan that passes its check, and what is refused has
 * words. Small maps may stand for anything, so there are limits of time and memory.
 */
#include "tests/fuzz/limits.h"

#include "checkpoint/maps/resolve.h"

#include <reshard/map.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTES_MAX ((size_t)1 << 31)
#define SECONDS_MAX 8.0
#define TENSORS_MAX 64
#define ELEMENTS_MAX 4096
#define LINKS_MAX 256

typedef struct tensors {
    int32_t count;
    reshard_map_tensor items[TENSORS_MAX];
    int64_t shapes[TENSORS_MAX][RESHARD_NDIM_MAX];
    int is_small;
} tensors;

/* Reads "name 2x3" from lines, which it ends by NULs. */
static void read_tensors(char *text, tensors *made)
{
    made->is_small = 1;
    for (char *line = strtok(text, "\n"); line != NULL && made->count < TENSORS_MAX;
         line = strtok(NULL, "\n")) {
        char *space = strrchr(line, ' ');
        reshard_map_tensor *tensor = &made->items[made->count];
        int64_t volume = 1;
        *tensor = (reshard_map_tensor){line, RESHARD_F32, 0, made->shapes[made->count]};
        if (space != NULL)
            *space = '\0';
        for (char *at = space; at != NULL && tensor->ndim < RESHARD_NDIM_MAX;
             at = strchr(at, 'x')) {
            int64_t length = strtoll(at + 1, &at, 10);
            made->shapes[made->count][tensor->ndim++] = length;
            if (length < 0 || __builtin_mul_overflow(volume, length, &volume))
                volume = INT64_MAX;
        }
        made->is_small = made->is_small && volume <= ELEMENTS_MAX;
        made->count++;
    }
}

static void check_print(reshard_context *context, const reshard_map *map)
{
    size_t length = 0, again = 0;
    reshard_map *parsed = NULL;
    if (!fuzz_passes(reshard_map_print(map, NULL, 0, &length)))
        return;
    char *text = calloc(2, length + 1);
    if (text == NULL || !fuzz_passes(reshard_map_print(map, text, length + 1, &length)))
        abort();
    if (!fuzz_passes(reshard_map_parse(context, text, length, NULL, &parsed)))
        fuzz_find("the canonical text does not parse", text);
    else if (!fuzz_passes(reshard_map_print(parsed, text + length + 1, length + 1, &again)) ||
             again != length || strcmp(text, text + length + 1) != 0)
        fuzz_find("the canonical text parses back to another text", text);
    reshard_map_release(parsed);
    free(text);
}

static void release_layouts(int64_t count, reshard_plan_tensor *items)
{
    for (int64_t i = 0; i < count; i++)
        reshard_layout_release(items[i].layout);
}

/* Targets that only links fill make a plan; the others are left out. */
static void check_plan(reshard_context *context, const tensors *given,
                       const reshard_map_result *result)
{
    static reshard_plan_tensor sources[TENSORS_MAX], targets[LINKS_MAX];
    static reshard_strided_link links[LINKS_MAX];
    int64_t count = result->target_count;
    int64_t link_count = result->link_count;
    int plain = given->is_small && count <= LINKS_MAX && link_count <= LINKS_MAX;
    memset(sources, 0, sizeof sources);
    memset(targets, 0, sizeof targets);
    for (int32_t i = 0; i < given->count && plain; i++) {
        sources[i] = (reshard_plan_tensor){given->items[i].name, NULL, RESHARD_F32};
        plain = reshard_layout_parse(context, "1: R", given->items[i].ndim, given->items[i].shape,
                                     &sources[i].layout) == RESHARD_OK;
    }
    for (int64_t i = 0; i < count && plain; i++) {
        reshard_map_target target = {.size = sizeof target};
        plain = reshard_map_result_target(result, i, &target) == RESHARD_OK &&
                (target.origin == RESHARD_MAP_LINKS || target.origin == RESHARD_MAP_COPY);
        targets[i] = (reshard_plan_tensor){target.name, NULL, RESHARD_F32};
        plain = plain && reshard_layout_parse(context, "1: R", target.ndim, target.shape,
                                              &targets[i].layout) == RESHARD_OK;
    }
    for (int64_t i = 0; i < link_count && plain; i++) {
        links[i].size = sizeof links[i];
        plain = reshard_map_result_link(result, i, &links[i]) == RESHARD_OK;
    }
    reshard_plan *plan = NULL;
    if (plain &&
        (reshard_plan_create_strided(context, given->count, sources, (int32_t)count, targets,
                                     (int32_t)link_count, links, NULL, &plan) != RESHARD_OK ||
         reshard_plan_check(plan) != RESHARD_OK))
        fuzz_find("the links of a map make no plan", reshard_error_text());
    reshard_plan_release(plan);
    release_layouts(given->count, sources);
    release_layouts(count < LINKS_MAX ? count : LINKS_MAX, targets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static tensors given;
    fuzz_limits limits;
    char *text = calloc(1, size + 1);
    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    memset(&given, 0, sizeof given);
    char *dashes = strstr(text, "---\n");
    size_t bytes = dashes != NULL ? (size_t)(dashes - text) : strlen(text);
    if (dashes != NULL)
        read_tensors(dashes + 4, &given);
    fuzz_limits_begin(&limits, BYTES_MAX, SECONDS_MAX, NULL, NULL);
    reshard_map *map = NULL;
    if (fuzz_passes(reshard_map_parse(limits.context, text, bytes, NULL, &map))) {
        check_print(limits.context, map);
        for (int side = 0; side < 2; side++) {
            static const char *const sets[] = {"k=2", "h=3"};
            reshard_map_resolve_options options = {
                .size = sizeof options, .set_count = 2, .sets = sets};
            reshard_map_result *result = NULL;
            if (fuzz_passes(reshard_map_resolve(map, (reshard_map_side)side, given.count,
                                                given.items, &options, &result)))
                check_plan(limits.context, &given, result);
            reshard_map_result_destroy(result);
        }
    }
    reshard_map_release(map);
    fuzz_limits_end(&limits);
    free(text);
    return 0;
}
