/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_map_property.c - random lines of maps, both directions, against an oracle that knows nothing
 * of the text: it keeps the axes of each tensor as a tree of its own, and finds for each element of
 * each tensor the coordinates along all axes. Elements of the two sides are equal if their
 * coordinates are. The oracle's trees are printed as the map that the library gets.
 */
#include "checkpoint/maps/maps.h"
#include "checkpoint/maps/resolve.h"
#include "map_case.h"
#include "tests/support/check.h"
#include "tests/support/harness.h"
#include "tests/support/random.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    AXES_MAX = 10,
    TERMS_MAX = 3,
    DIMS_MAX = 6,
    ITEMS_MAX = 8,
    TEXT_MAX = 4096,
    COPIES_MAX = 40
};

/* ---- cases ----------------------------------------------------------------------------------- */

typedef struct axis {
    char name[8];
    int64_t size;
    bool is_number; /* written as its size */
    bool is_list;   /* a stacked axis whose capture is a list of texts */
    int block;      /* the blocks that have it, as bits; 0: it is outside of the sum */
} axis;

/* One dimension: axes in order; -1 stands for the sum, whose blocks are lists of their own. */
typedef struct dim {
    int count, items[ITEMS_MAX];
    int group; /* items from here on are in parentheses of their own; 0: none */
} dim;

typedef struct term {
    char name[64];
    int block; /* the block of the sum that it belongs to; -1: all */
    int dim_count;
    dim dims[DIMS_MAX];
    bool rest_first;
    unsigned stacked; /* axes that are in its name */
} term;

typedef struct line_case {
    uint64_t seed;
    int axis_count;
    axis axes[AXES_MAX];
    int block_count, block_sizes[TERMS_MAX], blocks[TERMS_MAX][ITEMS_MAX];
    bool has_rest, has_layers;
    int rest_count;
    int64_t rest[2], layers;
    int term_counts[2];
    term terms[2][TERMS_MAX];
    char map[TEXT_MAX];
} line_case;

/* ---- drawing --------------------------------------------------------------------------------- */

static int add_axis(draw_state *draw, line_case *made, int block)
{
    axis *added = &made->axes[made->axis_count];
    *added = (axis){.size = draw_between(draw, 1, 4), .block = block};
    (void)snprintf(added->name, sizeof added->name, "x%d", made->axis_count);
    added->is_number = added->size > 1 && draw_chance(draw, 25);
    for (int i = 0; i < made->axis_count; i++) {
        if (made->axes[i].size == added->size)
            added->is_number = false;
    }
    return made->axis_count++;
}

static void draw_blocks(draw_state *draw, line_case *made)
{
    made->block_count = draw_chance(draw, 60) ? (int)draw_between(draw, 2, TERMS_MAX) : 0;
    int shared = made->block_count > 0 && draw_chance(draw, 60) ? add_axis(draw, made, 0) : -1;
    for (int b = 0; b < made->block_count; b++) {
        if (shared >= 0) {
            made->axes[shared].block |= 1 << b;
            made->blocks[b][made->block_sizes[b]++] = shared;
        }
        if (shared < 0 || draw_chance(draw, 40))
            made->blocks[b][made->block_sizes[b]++] = add_axis(draw, made, 1 << b);
        draw_shuffle(draw, made->block_sizes[b], made->blocks[b]);
    }
}

/* Puts items into dims, some of them together, some in parentheses inside. */
static void draw_dims(draw_state *draw, term *made, int count, int *items)
{
    draw_shuffle(draw, count, items);
    for (int i = 0; i < count; i++) {
        if (i == 0 || (made->dim_count < DIMS_MAX && draw_chance(draw, 55)))
            made->dim_count++;
        dim *to = &made->dims[made->dim_count - 1];
        to->items[to->count++] = items[i];
    }
    for (int d = 0; d < made->dim_count; d++) {
        if (made->dims[d].count > 2 && draw_chance(draw, 30))
            made->dims[d].group = 1;
    }
    made->rest_first = draw_chance(draw, 30);
}

static void draw_term(draw_state *draw, line_case *made, int side, int block, unsigned stacked)
{
    term *added = &made->terms[side][made->term_counts[side]];
    int items[ITEMS_MAX + AXES_MAX], count = 0;
    memset(added, 0, sizeof *added);
    added->block = block;
    added->stacked = stacked;
    (void)snprintf(added->name, sizeof added->name, "%c%d", side == 0 ? 'l' : 'r',
                   made->term_counts[side]);
    made->term_counts[side]++;
    for (int i = 0; i < made->axis_count; i++) {
        bool mine = made->axes[i].block == 0 || (block >= 0 && (made->axes[i].block >> block & 1));
        if (mine && (stacked >> i & 1) == 0)
            items[count++] = i;
    }
    if (block < 0 && made->block_count > 0)
        items[count++] = -1;
    draw_dims(draw, added, count, items);
}

static void draw_case(line_case *made, uint64_t seed)
{
    draw_state draw;
    memset(made, 0, sizeof *made);
    draw_seed(&draw, seed);
    made->seed = seed;
    int outside = (int)draw_between(&draw, 1, 4);
    unsigned stacked[2] = {0, 0};
    for (int i = 0; i < outside; i++) {
        int index = add_axis(&draw, made, 0);
        if (draw_chance(&draw, 25)) {
            made->axes[index].is_number = false;
            made->axes[index].is_list = draw_chance(&draw, 40);
            stacked[draw_below(&draw, 2)] |= 1u << index;
        }
    }
    draw_blocks(&draw, made);
    for (int i = 0; i < made->axis_count; i++) { /* a name is unique, so numbers may clash later */
        for (int k = 0; k < i; k++) {
            if (made->axes[i].is_number && made->axes[k].is_number &&
                made->axes[i].size == made->axes[k].size)
                made->axes[i].is_number = false;
        }
    }
    made->has_rest = draw_chance(&draw, 40);
    made->rest_count = made->has_rest ? (int)draw_between(&draw, 0, 2) : 0;
    for (int i = 0; i < made->rest_count; i++)
        made->rest[i] = draw_between(&draw, 1, 3);
    made->has_layers = draw_chance(&draw, 40);
    made->layers = made->has_layers ? draw_between(&draw, 1, 2) : 1;
    int single = (int)draw_below(&draw, 2);
    draw_term(&draw, made, single, -1, stacked[single]);
    for (int b = 0; b < (made->block_count > 0 ? made->block_count : 1); b++)
        draw_term(&draw, made, 1 - single, made->block_count > 0 ? b : -1, stacked[1 - single]);
}

/* ---- as text --------------------------------------------------------------------------------- */

static void add(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(char *text, const char *format, ...)
{
    size_t length = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text + length, TEXT_MAX - length, format, arguments);
    va_end(arguments);
}

static void add_item(const line_case *given, int item, char *text)
{
    if (item >= 0) {
        const axis *of = &given->axes[item];
        if (of->is_number)
            add(text, "%" PRId64, of->size);
        else
            add(text, "%s", of->name);
        return;
    }
    add(text, "(");
    for (int b = 0; b < given->block_count; b++) {
        add(text, "%s", b > 0 ? " + " : "");
        for (int i = 0; i < given->block_sizes[b]; i++) {
            add(text, "%s", i > 0 ? " " : "");
            add_item(given, given->blocks[b][i], text);
        }
    }
    add(text, ")");
}

static void add_term(const line_case *given, const term *of, unsigned *said, char *text)
{
    add(text, "%s%s", of->name, given->has_layers ? ".{n}" : "");
    for (int i = 0; i < given->axis_count; i++) {
        if ((of->stacked >> i & 1) == 0)
            continue;
        add(text, ".{%s", given->axes[i].name);
        for (int64_t k = 0; given->axes[i].is_list && k < given->axes[i].size && !(*said >> i & 1);
             k++)
            add(text, "%st%" PRId64, k > 0 ? "," : ":", k * 3);
        add(text, "}");
        *said |= 1u << i;
    }
    add(text, " [");
    if (given->has_rest && of->rest_first)
        add(text, ".. ");
    for (int d = 0; d < of->dim_count; d++) {
        const dim *one = &of->dims[d];
        add(text, "%s%s", d > 0 ? " " : "", one->count > 1 ? "(" : "");
        for (int i = 0; i < one->count; i++) {
            add(text, "%s%s", i > 0 ? " " : "", one->group > 0 && i == one->group ? "(" : "");
            add_item(given, one->items[i], text);
        }
        add(text, "%s%s", one->group > 0 ? ")" : "", one->count > 1 ? ")" : "");
    }
    if (given->has_rest && !of->rest_first)
        add(text, " ..");
    add(text, "]");
}

/* All sizes but one are given; the shapes give that one, if it lies along a dimension. */
static void write_map(line_case *given)
{
    unsigned said = 0;
    char *text = given->map;
    text[0] = '\0';
    int open = (int)(given->seed % (uint64_t)(given->axis_count + 1));
    for (int i = 0; i < given->axis_count; i++) {
        bool stacked = false;
        for (int side = 0; side < 2; side++)
            stacked = stacked || (given->terms[side][0].stacked >> i & 1) != 0;
        if (!given->axes[i].is_number && (i != open || stacked) && !given->axes[i].is_list)
            add(text, "let %s = %" PRId64 "\n", given->axes[i].name, given->axes[i].size);
    }
    for (int side = 0; side < 2; side++) {
        add(text, "%s", side == 1 ? " = " : "");
        for (int t = 0; t < given->term_counts[side]; t++) {
            add(text, "%s", t > 0 ? ", " : "");
            add_term(given, &given->terms[side][t], &said, text);
        }
    }
    add(text, "\n");
}

/* ---- the oracle ------------------------------------------------------------------------------ */

static int64_t item_size(const line_case *given, int item)
{
    if (item >= 0)
        return given->axes[item].size;
    int64_t sum = 0;
    for (int b = 0; b < given->block_count; b++) {
        int64_t block = 1;
        for (int i = 0; i < given->block_sizes[b]; i++)
            block *= given->axes[given->blocks[b][i]].size;
        sum += block;
    }
    return sum;
}

/* Takes an index along some items apart, from the last one to the first. */
static void take_apart(const line_case *given, int count, const int *items, int64_t index,
                       int64_t *coordinates, int *block)
{
    for (int i = count - 1; i >= 0; i--) {
        int64_t size = item_size(given, items[i]), digit = index % size;
        index /= size;
        if (items[i] >= 0) {
            coordinates[items[i]] = digit;
            continue;
        }
        for (int b = 0; b < given->block_count; b++) {
            int64_t length = 1;
            for (int k = 0; k < given->block_sizes[b]; k++)
                length *= given->axes[given->blocks[b][k]].size;
            if (digit < length) {
                *block = b;
                take_apart(given, given->block_sizes[b], given->blocks[b], digit, coordinates,
                           block);
                break;
            }
            digit -= length;
        }
    }
}

typedef struct tensor {
    char name[96];
    const term *of;
    int64_t layer, coordinates[AXES_MAX]; /* of the stacked axes */
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX], volume;
    int64_t *keys; /* for each element: its coordinates, as one number */
} tensor;

static int64_t element_key(const line_case *given, const tensor *of, int64_t element)
{
    int64_t coordinates[AXES_MAX], rest[2] = {0, 0};
    int block = of->of->block;
    memcpy(coordinates, of->coordinates, sizeof coordinates);
    int32_t first = of->of->rest_first ? given->rest_count : 0;
    for (int32_t d = of->ndim - 1; d >= 0; d--) {
        int64_t index = element % of->shape[d];
        element /= of->shape[d];
        int32_t own = d - first, behind = d - of->of->dim_count;
        if (of->of->rest_first && d < given->rest_count)
            rest[d] = index;
        else if (!of->of->rest_first && behind >= 0)
            rest[behind] = index;
        else
            take_apart(given, of->of->dims[own].count, of->of->dims[own].items, index, coordinates,
                       &block);
    }
    int64_t key = of->layer * 4 + (block + 1);
    for (int i = 0; i < given->axis_count; i++) {
        bool mine =
            given->axes[i].block == 0 || (block >= 0 && (given->axes[i].block >> block & 1));
        key = key * 5 + (mine ? coordinates[i] : 0);
    }
    return (key * 4 + rest[0]) * 4 + rest[1];
}

static void fill_tensor(const line_case *given, tensor *made)
{
    const term *of = made->of;
    int32_t at = of->rest_first ? given->rest_count : 0;
    made->ndim = (int32_t)(of->dim_count + given->rest_count);
    made->volume = 1;
    for (int d = 0; d < of->dim_count; d++) {
        made->shape[at + d] = 1;
        for (int i = 0; i < of->dims[d].count; i++)
            made->shape[at + d] *= item_size(given, of->dims[d].items[i]);
    }
    for (int i = 0; i < given->rest_count; i++)
        made->shape[of->rest_first ? i : of->dim_count + i] = given->rest[i];
    for (int32_t d = 0; d < made->ndim; d++)
        made->volume *= made->shape[d];
    made->keys = calloc((size_t)made->volume, sizeof *made->keys);
    if (made->keys == NULL)
        abort();
    for (int64_t i = 0; i < made->volume; i++)
        made->keys[i] = element_key(given, made, i);
}

/* All tensors of a side, with their names written out. */
static int make_side(const line_case *given, int side, tensor *tensors)
{
    int count = 0;
    for (int t = 0; t < given->term_counts[side]; t++) {
        const term *of = &given->terms[side][t];
        int64_t copies = given->layers;
        for (int i = 0; i < given->axis_count; i++)
            copies *= (of->stacked >> i & 1) != 0 ? given->axes[i].size : 1;
        for (int64_t k = 0; k < copies; k++) {
            tensor *made = &tensors[count++];
            int64_t rest = k;
            if (count > COPIES_MAX * TERMS_MAX)
                return -1;
            memset(made, 0, sizeof *made);
            made->of = of;
            made->layer = rest % given->layers;
            rest /= given->layers;
            add(made->name, "%s", of->name);
            if (given->has_layers)
                add(made->name, ".%" PRId64, made->layer);
            for (int i = 0; i < given->axis_count; i++) {
                if ((of->stacked >> i & 1) == 0)
                    continue;
                made->coordinates[i] = rest % given->axes[i].size;
                rest /= given->axes[i].size;
                add(made->name, given->axes[i].is_list ? ".t%" PRId64 : ".%" PRId64,
                    given->axes[i].is_list ? made->coordinates[i] * 3 : made->coordinates[i]);
            }
            fill_tensor(given, made);
        }
    }
    return count;
}

/* ---- checking -------------------------------------------------------------------------------- */

static const tensor *find_tensor(int count, const tensor *tensors, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(tensors[i].name, name) == 0)
            return &tensors[i];
    }
    return NULL;
}

/* Also has the links checked by a plan, as links between whole tensors. */
static const char *check_plan(const reshard_map_result *result, int count,
                              const reshard_map_tensor *read)
{
    static reshard_plan_tensor sources[COPIES_MAX * TERMS_MAX], targets[COPIES_MAX * TERMS_MAX];
    static reshard_strided_link links[4096];
    int64_t target_count = result->target_count;
    int64_t link_count = result->link_count;
    reshard_plan *plan = NULL;
    const char *wrong = NULL;
    if (link_count > 4096)
        return NULL;
    for (int i = 0; i < count; i++) {
        sources[i] = (reshard_plan_tensor){read[i].name, NULL, RESHARD_F32};
        if (reshard_layout_parse(NULL, "1: R", read[i].ndim, read[i].shape, &sources[i].layout) !=
            0)
            abort();
    }
    for (int64_t i = 0; i < target_count; i++) {
        reshard_map_target target = {.size = sizeof target};
        if (reshard_map_result_target(result, i, &target) != 0)
            abort();
        targets[i] = (reshard_plan_tensor){target.name, NULL, RESHARD_F32};
        if (reshard_layout_parse(NULL, "1: R", target.ndim, target.shape, &targets[i].layout) != 0)
            abort();
    }
    for (int64_t i = 0; i < link_count; i++) {
        links[i].size = sizeof links[i];
        if (reshard_map_result_link(result, i, &links[i]) != 0)
            abort();
    }
    if (reshard_plan_create_strided(NULL, count, sources, (int32_t)target_count, targets,
                                    (int32_t)link_count, links, NULL, &plan) != RESHARD_OK ||
        reshard_plan_check(plan) != RESHARD_OK)
        wrong = reshard_error_text();
    reshard_plan_release(plan);
    for (int i = 0; i < count; i++)
        reshard_layout_release(sources[i].layout);
    for (int64_t i = 0; i < target_count; i++)
        reshard_layout_release(targets[i].layout);
    return wrong;
}

static const char *check_target(const reshard_map_result *result, int64_t index,
                                const reshard_map_tensor *read, const tensor *from, int to_count,
                                const tensor *to)
{
    reshard_map_target target = {.size = sizeof target};
    if (reshard_map_result_target(result, index, &target) != RESHARD_OK)
        return "no target";
    const tensor *expected = find_tensor(to_count, to, target.name);
    if (expected == NULL)
        return "a target of another name";
    if (target.ndim != expected->ndim ||
        memcmp(target.shape, expected->shape, (size_t)target.ndim * sizeof *target.shape) != 0)
        return "a target of another shape";
    int64_t *elements = calloc((size_t)expected->volume, sizeof *elements);
    if (elements == NULL)
        abort();
    map_case_elements(result, read, index, expected->volume, elements);
    const char *wrong = NULL;
    for (int64_t i = 0; i < expected->volume && wrong == NULL; i++) {
        if (elements[i] < 0)
            wrong = "an element that is not filled once";
        else if (from[elements[i] >> 32].keys[elements[i] & UINT32_MAX] != expected->keys[i])
            wrong = "an element from elsewhere";
    }
    free(elements);
    return wrong;
}

static const char *check_side(reshard_map *map, int side, int from_count, const tensor *from,
                              int to_count, const tensor *to)
{
    static reshard_map_tensor read[COPIES_MAX * TERMS_MAX];
    reshard_map_result *result = NULL;
    for (int i = 0; i < from_count; i++)
        read[i] = (reshard_map_tensor){from[i].name, RESHARD_F32, from[i].ndim, from[i].shape};
    if (reshard_map_resolve(map, (reshard_map_side)side, from_count, read, NULL, &result) !=
        RESHARD_OK)
        return reshard_error_text();
    const char *wrong = NULL;
    if (result->target_count != to_count)
        wrong = "another number of targets";
    for (int64_t i = 0; i < to_count && wrong == NULL; i++)
        wrong = check_target(result, i, read, from, to_count, to);
    if (wrong == NULL)
        wrong = check_plan(result, from_count, read);
    reshard_map_result_destroy(result);
    return wrong;
}

/* There and back again, as one: every element comes from itself. */
static const char *check_compose(reshard_map *map, int count, const tensor *tensors)
{
    static reshard_map_tensor read[COPIES_MAX * TERMS_MAX], between[COPIES_MAX * TERMS_MAX];
    reshard_map_result *there = NULL, *back = NULL, *both = NULL;
    const char *wrong = NULL;
    for (int i = 0; i < count; i++)
        read[i] =
            (reshard_map_tensor){tensors[i].name, RESHARD_F32, tensors[i].ndim, tensors[i].shape};
    if (reshard_map_resolve(map, RESHARD_MAP_LEFT, count, read, NULL, &there) != RESHARD_OK)
        return reshard_error_text();
    int64_t made = there->target_count;
    for (int64_t i = 0; i < made; i++) {
        reshard_map_target target = {.size = sizeof target};
        if (reshard_map_result_target(there, i, &target) != RESHARD_OK)
            abort();
        between[i] = (reshard_map_tensor){target.name, target.dtype, target.ndim, target.shape};
    }
    if (reshard_map_resolve(map, RESHARD_MAP_RIGHT, made, between, NULL, &back) != RESHARD_OK ||
        rs_map_compose(there, back, &both) != RESHARD_OK)
        wrong = reshard_error_text();
    else if (both->target_count != count)
        wrong = "composing makes another number of targets";
    for (int64_t i = 0; i < count && wrong == NULL; i++)
        wrong = check_target(both, i, read, tensors, count, tensors);
    if (wrong == NULL)
        wrong = check_plan(both, count, read);
    reshard_map_result_destroy(there);
    reshard_map_result_destroy(back);
    reshard_map_result_destroy(both);
    return wrong;
}

/* The canonical text parses back to itself. */
static const char *check_print(reshard_map *map)
{
    static char text[2 * TEXT_MAX], again[2 * TEXT_MAX];
    reshard_map *parsed = NULL;
    size_t length;
    if (reshard_map_print(map, text, sizeof text, &length) != RESHARD_OK ||
        reshard_map_parse(NULL, text, length, NULL, &parsed) != RESHARD_OK ||
        reshard_map_print(parsed, again, sizeof again, &length) != RESHARD_OK)
        return reshard_error_text();
    reshard_map_release(parsed);
    return strcmp(text, again) == 0 ? NULL : "its text parses back to another text";
}

static void test_maps__random(void **state)
{
    (void)state;
    static line_case given;
    static tensor sides[2][COPIES_MAX * TERMS_MAX + 1];
    int64_t count = harness_count(4000), checked = 0;
    for (int64_t c = 0; c < count; c++) {
        draw_case(&given, harness_seed() + (uint64_t)c);
        write_map(&given);
        int counts[2];
        for (int side = 0; side < 2; side++)
            counts[side] = make_side(&given, side, sides[side]);
        reshard_map *map = NULL;
        const char *wrong = NULL;
        bool fits = counts[0] >= 0 && counts[1] >= 0;
        checked += fits;
        if (fits && reshard_map_parse(NULL, given.map, strlen(given.map), NULL, &map) != RESHARD_OK)
            wrong = reshard_error_text();
        for (int side = 0; side < 2 && wrong == NULL && fits; side++)
            wrong =
                check_side(map, side, counts[side], sides[side], counts[1 - side], sides[1 - side]);
        if (wrong == NULL && fits)
            wrong = check_print(map);
        if (wrong == NULL && fits)
            wrong = check_compose(map, counts[0], sides[0]);
        if (wrong != NULL) {
            for (int side = 0; side < 2; side++) {
                print_error("%s:", side == 0 ? "left" : "right");
                for (int i = 0; i < counts[side]; i++) {
                    print_error(" %s ", sides[side][i].name);
                    for (int32_t d = 0; d < sides[side][i].ndim; d++)
                        print_error("%s%lld", d > 0 ? "x" : "", (long long)sides[side][i].shape[d]);
                    print_error(",");
                }
                print_error("\n");
            }
            fail_msg("%s\n%s(RESHARD_TEST_SEED=%llu RESHARD_TEST_SCALE=0)", wrong, given.map,
                     (unsigned long long)given.seed);
        }
        reshard_map_release(map);
        for (int side = 0; side < 2; side++) {
            for (int i = 0; i < counts[side]; i++)
                free(sides[side][i].keys);
        }
    }
    assert_true(checked * 2 >= count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_maps__random)};
    return cmocka_run_group_tests_name("map_property", tests, NULL, NULL);
}
