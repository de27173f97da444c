/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw.c - the public calls: they read the options, make the picture and print it.
 */
#include "base/context.h"
#include "base/options.h"
#include "draw/drawing.h"
#include "plan/plan.h"

#include <string.h>

enum { COLUMNS_DEFAULT = 80, COLUMNS_MAX = 1000, HEAT_SHOWN = 64 };

static reshard_status read_options(const reshard_draw_options *given, reshard_draw_options *options)
{
    reshard_status status = rs_options_read("draw options", given, options, sizeof *options);
    if (status != RESHARD_OK)
        return status;
    if (options->columns == 0)
        options->columns = COLUMNS_DEFAULT;
    if (options->columns < RESHARD_DRAW_COLUMNS_MIN || options->columns > COLUMNS_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "a picture of %d columns; %d to %d can be drawn",
                       (int)options->columns, RESHARD_DRAW_COLUMNS_MIN, (int)COLUMNS_MAX);
    if (options->form != RESHARD_DRAW_TEXT && options->form != RESHARD_DRAW_SVG)
        return rs_fail(RESHARD_ERR_INVALID, "draw options: unknown form %d", (int)options->form);
    if (options->slice_count < 0 || (options->slice_count > 0 && options->slices == NULL))
        return rs_fail(RESHARD_ERR_INVALID, "draw options: no list of %d slices",
                       (int)options->slice_count);
    return RESHARD_OK;
}

/* The specs of both sides as text; "" for one that has none. */
static reshard_status make_titles(rs_picture *picture, const char **out_titles)
{
    for (int32_t i = 0; i < picture->side_count; i++) {
        size_t length = 0;
        const reshard_spec *spec = picture->sides[i].layout->spec;
        out_titles[i] = "";
        if (reshard_spec_text(spec, NULL, 0, &length) != RESHARD_OK)
            continue; /* its shards come from a callback */
        char *title = rs_arena_allocate(&picture->edges_arena, length + 1);
        if (title == NULL)
            return rs_allocation_status();
        (void)reshard_spec_text(spec, title, length + 1, &length);
        out_titles[i] = title;
    }
    return RESHARD_OK;
}

static reshard_status draw(int32_t side_count, const reshard_layout *const *layouts,
                           reshard_plan *plan, const reshard_draw_options *options, rs_text *text)
{
    rs_picture picture;
    rs_heat heat;
    const char *titles[RS_SIDES] = {"", ""};
    int32_t heat_shown =
        options->form == RESHARD_DRAW_SVG ? HEAT_SHOWN : (options->columns - 8) / 2;
    reshard_status status = rs_picture_init(&picture, side_count, layouts, options);
    if (status == RESHARD_OK && plan != NULL)
        status = rs_heat_init(&heat, plan, heat_shown < HEAT_SHOWN ? heat_shown : HEAT_SHOWN,
                              &picture.edges_arena);
    if (status == RESHARD_OK && options->form == RESHARD_DRAW_SVG)
        status = make_titles(&picture, titles);
    if (status == RESHARD_OK && options->form == RESHARD_DRAW_SVG)
        status = rs_picture_print_svg(&picture, plan != NULL ? &heat : NULL, titles, text);
    else if (status == RESHARD_OK)
        status = rs_picture_print(&picture, plan != NULL ? &heat : NULL, options, text);
    rs_picture_release(&picture);
    return status;
}

reshard_status reshard_layout_draw(const reshard_layout *layout, const reshard_draw_options *given,
                                   char *buffer, size_t capacity, size_t *out_length)
{
    reshard_draw_options options;
    rs_text text;
    reshard_status status = read_options(given, &options);
    if (status != RESHARD_OK)
        return status;
    rs_text_init(&text, buffer, capacity);
    status = draw(1, &layout, NULL, &options, &text);
    if (status == RESHARD_OK)
        *out_length = text.length;
    return status;
}

/* Finds the two layouts of a plan that brings one whole tensor from one to the other. */
static reshard_status find_layouts(const reshard_plan *plan, const reshard_layout **out_layouts)
{
    if (plan->transposed != NULL || plan->link_count != 1 || plan->fill_count != 0)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "only a plan of one link can be drawn, and no adjoint one");
    const reshard_link *link = &plan->links[0].plain;
    const reshard_layout *source = plan->sources[link->source].layout;
    const reshard_layout *target = reshard_plan_target_layout(plan, link->target);
    if (plan->links[0].strided != NULL || link->factor_count != 0 || source->ndim != target->ndim ||
        memcmp(source->shape, target->shape, (size_t)source->ndim * sizeof source->shape[0]) != 0)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "only a plan between whole tensors of one shape can be drawn");
    out_layouts[0] = source;
    out_layouts[1] = target;
    return RESHARD_OK;
}

reshard_status reshard_plan_draw(reshard_plan *plan, const reshard_draw_options *given,
                                 char *buffer, size_t capacity, size_t *out_length)
{
    reshard_draw_options options;
    rs_text text;
    const reshard_layout *layouts[RS_SIDES];
    reshard_status status = read_options(given, &options);
    if (status == RESHARD_OK)
        status = find_layouts(plan, layouts);
    if (status != RESHARD_OK)
        return status;
    rs_text_init(&text, buffer, capacity);
    status = draw(RS_SIDES, layouts, plan, &options, &text);
    if (status == RESHARD_OK)
        *out_length = text.length;
    return status;
}
