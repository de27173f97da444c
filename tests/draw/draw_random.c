/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw_random.c - random layouts and plans are drawn, and the pictures read back: every element
 * lies in a box that names exactly the ranks that the oracle says, as copies or contributions, and
 * in pictures of plans the shade says whether ranks hold it already. No line is wider than asked.
 */
#include "tests/draw/read_picture.h"
#include "tests/support/check.h"
#include "tests/support/compare.h"
#include "tests/support/harness.h"

#include <reshard/draw.h>

#include <stdlib.h>
#include <string.h>

/* Longer dims are drawn with gaps, of which draw_fixed.c has cases. */
enum { LENGTH_MAX = 8, WIDE = 900 };

typedef struct drawing {
    const harness_case *given;
    int32_t slice_count;
    reshard_draw_slice slices[RESHARD_NDIM_MAX];
    int32_t dims[3]; /* of planes, rows, columns; -1: none */
} drawing;

/* ---- what the oracle says -------------------------------------------------------------------- */

/* Who holds an element: out[rank] = contributor + 1, 0 for those that do not. Returns a shard that
 * does. */
static const oracle_shard *find_holders(const oracle_layout *layout, int64_t element,
                                        int out[ORACLE_RANKS_MAX])
{
    const oracle_shard *found = NULL;
    memset(out, 0, ORACLE_RANKS_MAX * sizeof *out);
    for (int64_t s = 0; s < layout->shard_count; s++) {
        const oracle_shard *shard = &layout->shards[s];
        for (int64_t i = 0; i < shard->count; i++) {
            if (shard->elements[i] == element) {
                out[shard->rank] = shard->contributor + 1;
                found = shard;
            }
        }
    }
    return found;
}

static bool check_label(const oracle_layout *expected, int64_t element, const char *label,
                        words *said)
{
    int wanted[ORACLE_RANKS_MAX], drawn[ORACLE_RANKS_MAX];
    char reduction[16];
    const oracle_shard *shard = find_holders(expected, element, wanted);
    int groups = picture_ranks(label, drawn, reduction);
    if (groups < 1)
        return words_say(said, "\"%s\" is no label", label);
    if (strcmp(reduction, shard->partial ? reshard_reduction_name(shard->reduction) : "") != 0)
        return words_say(said, "\"%s\": wrong reduction", label);
    for (int rank = 0; rank < ORACLE_RANKS_MAX; rank++) {
        bool right =
            groups > 1 ? drawn[rank] == wanted[rank] : (drawn[rank] != 0) == (wanted[rank] != 0);
        if (!right)
            return words_say(said, "element %lld is in \"%s\"; rank %d is wrong",
                             (long long)element, label, rank);
    }
    return true;
}

/* ' ', ':' or '\'', by the definition in draw.h. */
static char expected_shade(oracle_layout *const sides[2], int64_t element)
{
    int source[ORACLE_RANKS_MAX], target[ORACLE_RANKS_MAX];
    int needed = 0, there = 0;
    const oracle_shard *shard = find_holders(sides[0], element, source);
    (void)find_holders(sides[1], element, target);
    for (int rank = 0; rank < ORACLE_RANKS_MAX; rank++) {
        needed += target[rank] != 0;
        there += target[rank] != 0 && source[rank] != 0;
    }
    if (there == 0)
        return ' ';
    return there == needed && !shard->partial ? ':' : '\'';
}

/* ---- reading the picture --------------------------------------------------------------------- */

/* The caption of a picture of more than two dims says which they are. */
static bool find_dims(drawing *made, const picture_text *picture, words *said)
{
    const harness_case *given = made->given;
    const char *line = picture_note(picture, "columns are dim ");
    for (int axis = 0; axis < 3; axis++)
        made->dims[axis] = given->ndim - 3 + axis;
    if (given->ndim <= 2 && made->slice_count == 0)
        return true;
    made->dims[0] = made->dims[1] = made->dims[2] = -1;
    if (line == NULL)
        return made->slice_count == given->ndim || words_say(said, "nothing says what is drawn");
    made->dims[2] = atoi(line);
    const char *rows = strstr(line, "rows are dim "), *planes = strstr(line, "part of dim ");
    if (rows != NULL)
        made->dims[1] = atoi(rows + strlen("rows are dim "));
    if (planes != NULL)
        made->dims[0] = atoi(planes + strlen("part of dim "));
    return true;
}

/* The first frame whose title has an index. Titles of one band of frames are on one line. */
static int find_plane(const picture_text *picture, int64_t index)
{
    const char *title = NULL;
    for (int i = 0; i < picture->frame_count; i++) {
        const picture_frame *frame = &picture->frames[i];
        bool is_first = i == 0 || frame->top != frame[-1].top;
        char *end;
        if (is_first)
            title = frame->top >= 2 ? picture->lines[frame->top - 2] : "";
        title = strstr(title + !is_first, " at ");
        if (title == NULL)
            return -1;
        long from = strtol(title + 4, &end, 10), to = strtol(end + 1, NULL, 10);
        if (from <= index && index < to)
            return i;
    }
    return -1;
}

static bool check_element(const drawing *made, const picture_text *picture,
                          oracle_layout *const sides[2], int64_t element, const int64_t *indices,
                          words *said)
{
    char label[PICTURE_LABEL], shade;
    int side_count = made->given->spec_count;
    int64_t row = made->dims[1] >= 0 ? indices[made->dims[1]] : 0;
    int64_t column = made->dims[2] >= 0 ? indices[made->dims[2]] : 0;
    bool has_planes = made->dims[0] >= 0;
    int first = 0;
    if (has_planes) { /* titles of source and target alternate and have the same indices */
        first = find_plane(picture, indices[made->dims[0]]);
        if (first < 0 && picture->frame_count > side_count)
            return words_say(said, "no picture shows index %lld of dim %d",
                             (long long)indices[made->dims[0]], (int)made->dims[0]);
        first = first < 0 ? 0 : first;
    }
    for (int side = 0; side < side_count; side++) {
        if (first + side >= picture->frame_count)
            return words_say(said, "a frame is missing");
        if (!picture_find(picture, &picture->frames[first + side], row, column, label, &shade,
                          said) ||
            !check_label(sides[side], element, label, said))
            return false;
        if (side_count == 2 && shade != expected_shade(sides, element))
            return words_say(said, "element %lld has the shade '%c', not '%c'", (long long)element,
                             shade, expected_shade(sides, element));
    }
    return true;
}

static bool check_elements(drawing *made, const picture_text *picture,
                           oracle_layout *const sides[2], words *said)
{
    const harness_case *given = made->given;
    if (!find_dims(made, picture, said))
        return false;
    for (int64_t element = 0; element < sides[0]->volume; element++) {
        int64_t indices[RESHARD_NDIM_MAX], rest = element;
        bool is_drawn = true;
        for (int32_t d = given->ndim - 1; d >= 0; d--) {
            indices[d] = rest % given->shape[d];
            rest /= given->shape[d];
        }
        for (int32_t i = 0; i < made->slice_count; i++)
            is_drawn = is_drawn && indices[made->slices[i].dim] == made->slices[i].index;
        if (is_drawn && !check_element(made, picture, sides, element, indices, said))
            return false;
    }
    return true;
}

/* ---- drawing --------------------------------------------------------------------------------- */

static char *draw_case(const drawing *made, reshard_layout *layout, reshard_plan *plan,
                       int32_t columns, int ascii, words *said)
{
    reshard_draw_options options = {.size = sizeof options,
                                    .columns = columns,
                                    .ascii = ascii,
                                    .slice_count = made->slice_count,
                                    .slices = made->slices};
    size_t length = 0, again = 0;
    reshard_status status = plan != NULL ? reshard_plan_draw(plan, &options, NULL, 0, &length)
                                         : reshard_layout_draw(layout, &options, NULL, 0, &length);
    char *text = status == RESHARD_OK ? malloc(length + 1) : NULL;
    if (text == NULL) {
        (void)words_say(said, "not drawn: %s", reshard_error_text());
        return NULL;
    }
    status = plan != NULL ? reshard_plan_draw(plan, &options, text, length + 1, &again)
                          : reshard_layout_draw(layout, &options, text, length + 1, &again);
    if (status != RESHARD_OK || length != again || strlen(text) != length)
        (void)words_say(said, "%zu bytes, then %zu", length, again);
    return text;
}

/* No line is wider; characters beyond ASCII count once. */
static bool check_width(const drawing *made, reshard_layout *layout, reshard_plan *plan,
                        draw_state *draw, words *said)
{
    int32_t columns = (int32_t)draw_between(draw, RESHARD_DRAW_COLUMNS_MIN, 100);
    char *text = draw_case(made, layout, plan, columns, 0, said);
    int width = 0, widest = 0;
    for (const char *at = text; at != NULL && *at != '\0'; at++) {
        width = *at == '\n' ? 0 : width + ((*at & 0xC0) != 0x80);
        widest = width > widest ? width : widest;
    }
    bool right = text != NULL;
    if (right && widest > columns)
        right = words_say(said, "a line of %d in a window of %d", widest, (int)columns);
    free(text);
    return right;
}

/* All dims but three are sliced, so that whatever is cut can be drawn. */
static void choose_slices(drawing *made, draw_state *draw)
{
    const harness_case *given = made->given;
    for (int32_t d = 0; d < given->ndim; d++) {
        if (d < given->ndim - 3 || draw_chance(draw, 10))
            made->slices[made->slice_count++] =
                (reshard_draw_slice){d, draw_below(draw, given->shape[d])};
    }
}

static bool check_picture(drawing *made, reshard_layout *layout, reshard_plan *plan,
                          oracle_layout *const sides[2], draw_state *draw, words *said)
{
    static picture_text picture;
    char *text = draw_case(made, layout, plan, WIDE, 1, said);
    bool right = text != NULL && said->text[0] == '\0' && picture_read(text, &picture, said) &&
                 check_elements(made, &picture, sides, said);
    free(text);
    return right && check_width(made, layout, plan, draw, said);
}

static bool check_case(const harness_case *given, words *said)
{
    const char *why = "";
    reshard_layout *layouts[2] = {NULL, NULL};
    oracle_layout *sides[2] = {NULL, NULL};
    reshard_plan *plan = NULL;
    drawing made = {.given = given};
    draw_state draw;
    draw_seed(&draw, given->seed);
    bool usable = true, right = true;
    for (int32_t d = 0; d < given->ndim; d++)
        usable = usable && given->shape[d] > 0 && given->shape[d] <= LENGTH_MAX;
    for (int32_t i = 0; i < given->spec_count && usable; i++) {
        sides[i] = oracle_layout_create(&given->specs[i], given->ndim, given->shape, &why);
        usable = sides[i] != NULL && compare_create(&given->specs[i], false, given->ndim,
                                                    given->shape, &layouts[i]) == RESHARD_OK;
    }
    if (usable && given->spec_count == 2)
        usable = reshard_plan_create_simple(NULL, layouts[0], layouts[1], RESHARD_F32, NULL,
                                            &plan) == RESHARD_OK;
    if (usable) {
        choose_slices(&made, &draw);
        right = check_picture(&made, layouts[0], plan, sides, &draw, said);
    }
    reshard_plan_release(plan);
    for (int i = 0; i < 2; i++) {
        reshard_layout_release(layouts[i]);
        oracle_layout_destroy(sides[i]);
    }
    return right;
}

static void generate_case(draw_state *draw, harness_case *made, int32_t spec_count)
{
    bool is_short = false;
    made->spec_count = spec_count;
    while (!is_short) {
        generate_shape(draw, 200, &made->ndim, made->shape);
        is_short = true;
        for (int32_t d = 0; d < made->ndim; d++)
            is_short = is_short && made->shape[d] > 0 && made->shape[d] <= LENGTH_MAX;
    }
    for (int32_t i = 0; i < spec_count; i++)
        generate_spec(draw, GENERATE_LISTED | GENERATE_PARTIAL, made->ndim, made->shape,
                      &made->specs[i]);
}

static void generate_layout(draw_state *draw, harness_case *made)
{
    generate_case(draw, made, 1);
}

static void generate_plan(draw_state *draw, harness_case *made)
{
    generate_case(draw, made, 2);
}

static void test_draw__every_element_of_random_layouts(void **state)
{
    (void)state;
    harness_run("layouts", 800, generate_layout, check_case);
}

static void test_draw__every_element_and_shade_of_random_plans(void **state)
{
    (void)state;
    harness_run("plans", 250, generate_plan, check_case);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draw__every_element_of_random_layouts),
        cmocka_unit_test(test_draw__every_element_and_shade_of_random_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
