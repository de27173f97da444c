/* SPDX-License-Identifier: Apache-2.0 */
/*
 * property_links.c - lists of tensors with links: targets cut in boxes, each filled from a box of
 * some source, plainly or with its axes split and permuted, some left to be zero. This covers
 * split, fused, renamed, stacked, transposed and padded tensors. Strided links cut the targets in
 * boxes of split dims instead. The oracle maps every element by the rule in plan.h.
 */
#include "tests/support/compare.h"
#include "tests/support/planning.h"
#include "tests/support/values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TENSORS_MAX = 24, TARGETS_MAX = 3, LINKS_MAX = 24 };

typedef struct tensor_case {
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    oracle_spec spec;
    reshard_dtype dtype;
    oracle_layout *oracle;
    reshard_layout *layout;
} tensor_case;

typedef struct link_case {
    uint64_t seed;
    int32_t source_count, target_count, link_count;
    tensor_case sources[TENSORS_MAX], targets[TARGETS_MAX];
    reshard_link links[LINKS_MAX];
    bool is_strided;
    reshard_strided_link strided[LINKS_MAX]; /* instead of `links` */
    reshard_plan_options options;
} link_case;

/* ---- making cases ---------------------------------------------------------------------------- */

/* Splits each size in one or two factors, and puts them in another order. */
static void draw_factors(draw_state *draw, const reshard_box *target, reshard_link *link)
{
    int64_t turned[RESHARD_FACTORS_MAX];
    int32_t count = 0;
    for (int32_t d = 0; d < target->ndim; d++) {
        int64_t size = target->size[d];
        int64_t factor = draw_between(draw, 2, 3);
        if (size % factor == 0 && draw_chance(draw, 60)) {
            turned[count++] = size / factor;
            size = factor;
        }
        turned[count++] = size;
    }
    for (int32_t i = 0; i < count; i++)
        link->order[i] = i;
    draw_shuffle(draw, count, link->order);
    for (int32_t i = 0; i < count; i++)
        link->factors[link->order[i]] = turned[i];
    link->factor_count = count;
}

/* Groups the factors, in the source's order, into the dims of a source box. */
static void group_factors(draw_state *draw, const reshard_link *link, reshard_box *source)
{
    source->ndim = 0;
    for (int32_t i = 0; i < link->factor_count; i++) {
        if (i == 0 || (draw_chance(draw, 60) && source->ndim < 4))
            source->size[source->ndim++] = 1;
        source->size[source->ndim - 1] *= link->factors[i];
    }
}

static void draw_spec(draw_state *draw, link_case *made, bool target, tensor_case *tensor)
{
    int flags = GENERATE_LISTED;
    if (!target || !made->options.zero_fill)
        flags |= GENERATE_PARTIAL;
    if (draw_chance(draw, 50))
        flags |= GENERATE_FEW_RANKS;
    generate_spec(draw, flags, tensor->ndim, tensor->shape, &tensor->spec);
}

/* A source that has the box somewhere in it, with a margin. */
static void add_source(draw_state *draw, link_case *made, reshard_box *box)
{
    tensor_case *source = &made->sources[made->source_count++];
    source->ndim = box->ndim;
    for (int32_t d = 0; d < box->ndim; d++) {
        bool margin = draw_chance(draw, 30);
        box->offset[d] = margin ? draw_between(draw, 0, 2) : 0;
        source->shape[d] = box->offset[d] + box->size[d] + (margin ? draw_between(draw, 0, 2) : 0);
    }
    source->dtype = RESHARD_F32;
    draw_spec(draw, made, false, source);
}

/* An earlier source that is large enough serves again. */
static bool find_source(draw_state *draw, const link_case *made, reshard_box *box, int32_t *out)
{
    for (int32_t i = 0; i < made->source_count; i++) {
        const tensor_case *source = &made->sources[i];
        bool fits = source->ndim == box->ndim;
        for (int32_t d = 0; fits && d < box->ndim; d++)
            fits = source->shape[d] >= box->size[d];
        if (!fits)
            continue;
        for (int32_t d = 0; d < box->ndim; d++)
            box->offset[d] = draw_between(draw, 0, source->shape[d] - box->size[d]);
        *out = i;
        return true;
    }
    return false;
}

static bool is_whole(const reshard_box *box, const tensor_case *tensor)
{
    for (int32_t d = 0; d < tensor->ndim; d++) {
        if (box->size[d] != tensor->shape[d])
            return false;
    }
    return true;
}

static void add_link(draw_state *draw, link_case *made, int32_t target, const reshard_box *box)
{
    reshard_link *link = &made->links[made->link_count++];
    memset(link, 0, sizeof *link);
    link->target = target;
    link->target_box = *box;
    if (draw_chance(draw, 40)) {
        draw_factors(draw, box, link);
        group_factors(draw, link, &link->source_box);
    } else {
        link->source_box = *box;
    }
    if (!draw_chance(draw, 35) || !find_source(draw, made, &link->source_box, &link->source)) {
        link->source = made->source_count;
        add_source(draw, made, &link->source_box);
    }
    if (is_whole(&link->source_box, &made->sources[link->source]) && draw_chance(draw, 50))
        link->source_box.ndim = -1;
    if (is_whole(&link->target_box, &made->targets[target]) && draw_chance(draw, 50))
        link->target_box.ndim = -1;
}

/* ---- strided cases --------------------------------------------------------------------------- */

/* One axis while its source is made up: the source may have more than the link takes. */
typedef struct axis_draw {
    int64_t size, before, after; /* the axis has before + size + after places in the source */
    int32_t axis;
} axis_draw;

/* Puts the axes in another order into the dims of a new source, each axis inside a factor that may
 * be longer: then it takes a box of the split dims there too. */
static void draw_strided_source(draw_state *draw, link_case *made, reshard_strided_link *link)
{
    axis_draw axes[RESHARD_FACTORS_MAX];
    int32_t order[RESHARD_FACTORS_MAX], count = link->axis_count;
    tensor_case *source = &made->sources[made->source_count];
    int64_t volume = 1;
    for (int32_t i = 0; i < count; i++)
        order[i] = i;
    draw_shuffle(draw, count, order);
    for (int32_t i = 0; i < count; i++) {
        axes[i] = (axis_draw){.axis = order[i], .size = link->axes[order[i]].size};
        if (draw_chance(draw, 30) && volume < 300)
            axes[i].before = draw_between(draw, 0, 2);
        if (draw_chance(draw, 30) && volume < 300)
            axes[i].after = draw_between(draw, 0, 2);
        volume *= axes[i].before + axes[i].size + axes[i].after;
    }
    source->dtype = RESHARD_F32;
    for (int32_t i = 0; i < count; i++) {
        if (i == 0 || (draw_chance(draw, 50) && source->ndim < 4))
            source->shape[source->ndim++] = 1;
        source->shape[source->ndim - 1] *= axes[i].before + axes[i].size + axes[i].after;
        link->axes[axes[i].axis].source_dim = source->ndim - 1;
    }
    int64_t step = 1;
    for (int32_t i = count - 1; i >= 0; i--) {
        reshard_link_axis *axis = &link->axes[axes[i].axis];
        if (i + 1 < count && link->axes[axes[i + 1].axis].source_dim != axis->source_dim)
            step = 1;
        axis->source_step = axis->size == 1 && draw_chance(draw, 50) ? 77 : step;
        link->source_at[axis->source_dim] += axes[i].before * step;
        step *= axes[i].before + axes[i].size + axes[i].after;
    }
    if (source->ndim == 0 && draw_chance(draw, 50))
        source->shape[source->ndim++] = 1;
    draw_spec(draw, made, false, source);
    link->source = made->source_count++;
}

static int64_t split_off(draw_state *draw, int64_t *size)
{
    int64_t factor = draw_between(draw, 2, 4);
    if (*size % factor != 0 || !draw_chance(draw, 60))
        return 1;
    *size /= factor;
    return factor;
}

/* Splits the dims of a box of the target, cuts the split dims in boxes, and links each. */
static void add_strided_links(draw_state *draw, link_case *made, int32_t target,
                              const reshard_box *box)
{
    int32_t dims[RESHARD_NDIM_MAX], ndim = 0;
    int64_t shape[RESHARD_NDIM_MAX], steps[RESHARD_NDIM_MAX];
    for (int32_t d = 0; d < box->ndim; d++) {
        int64_t size = box->size[d];
        int64_t inner = split_off(draw, &size), middle = split_off(draw, &size);
        const int64_t factors[3][2] = {{size, inner * middle}, {middle, inner}, {inner, 1}};
        for (int32_t i = 0; i < 3; i++) {
            if ((factors[i][0] == 1 && !draw_chance(draw, 10)) || ndim == 6)
                continue;
            dims[ndim] = d;
            shape[ndim] = factors[i][0];
            steps[ndim++] = factors[i][1];
        }
    }
    reshard_box boxes[4];
    int32_t count = 1; /* of a single element there is one box */
    if (ndim > 0)
        count = generate_tiling(draw, ndim, shape, 4, boxes);
    for (int32_t b = 0; b < count; b++) {
        if (made->options.zero_fill && draw_chance(draw, 30))
            continue;
        reshard_strided_link *link = &made->strided[made->link_count++];
        *link = (reshard_strided_link){.size = sizeof *link, .target = target};
        for (int32_t d = 0; d < box->ndim; d++)
            link->target_at[d] = box->offset[d];
        for (int32_t i = 0; i < ndim; i++) {
            link->target_at[dims[i]] += boxes[b].offset[i] * steps[i];
            if (boxes[b].size[i] == 1 && draw_chance(draw, 50))
                continue;
            link->axes[link->axis_count++] = (reshard_link_axis){
                .size = boxes[b].size[i], .target_dim = dims[i], .target_step = steps[i]};
        }
        draw_strided_source(draw, made, link);
    }
}

static void generate_strided(draw_state *draw, link_case *made)
{
    made->is_strided = true;
    made->target_count = (int32_t)draw_between(draw, 1, TARGETS_MAX);
    for (int32_t t = 0; t < made->target_count; t++) {
        tensor_case *target = &made->targets[t];
        reshard_box boxes[2];
        target->ndim = (int32_t)draw_between(draw, 1, 2);
        for (int32_t d = 0; d < target->ndim; d++)
            target->shape[d] = draw_between(draw, 1, target->ndim == 1 ? 40 : 16);
        target->dtype = draw_chance(draw, 20) ? RESHARD_BF16 : RESHARD_F32;
        draw_spec(draw, made, true, target);
        int32_t count = generate_tiling(draw, target->ndim, target->shape, 2, boxes);
        for (int32_t i = 0; i < count; i++)
            add_strided_links(draw, made, t, &boxes[i]);
    }
}

static void generate(link_case *made, uint64_t seed)
{
    draw_state draw;
    memset(made, 0, sizeof *made);
    draw_seed(&draw, seed);
    made->seed = seed;
    made->options.size = sizeof made->options;
    made->options.zero_fill = draw_chance(&draw, 40);
    made->options.single_stage = draw_chance(&draw, 40);
    made->options.balance = draw_chance(&draw, 20) ? RESHARD_BALANCE_EXACT : RESHARD_BALANCE_RULE;
    if (seed % 2 == 1) {
        generate_strided(&draw, made);
        return;
    }
    made->target_count = (int32_t)draw_between(&draw, 1, TARGETS_MAX);
    for (int32_t t = 0; t < made->target_count; t++) {
        tensor_case *target = &made->targets[t];
        reshard_box boxes[4];
        target->ndim = (int32_t)draw_between(&draw, 1, 3);
        for (int32_t d = 0; d < target->ndim; d++)
            target->shape[d] = draw_between(&draw, 1, 7);
        target->dtype = draw_chance(&draw, 20) ? RESHARD_BF16 : RESHARD_F32;
        draw_spec(&draw, made, true, target);
        int32_t count = generate_tiling(&draw, target->ndim, target->shape, 4, boxes);
        for (int32_t i = 0; i < count; i++) {
            bool gap = made->options.zero_fill && i > 0 && draw_chance(&draw, 40);
            if (!gap)
                add_link(&draw, made, t, &boxes[i]);
        }
    }
}

/* ---- the oracle ------------------------------------------------------------------------------ */

/* The element of the tensor at place i of a box in row-major order. */
static int64_t element_at(const reshard_box *box, const tensor_case *tensor, int64_t i)
{
    int64_t element = 0, weight = 1;
    for (int32_t d = tensor->ndim - 1; d >= 0; d--) {
        int64_t size = box->ndim < 0 ? tensor->shape[d] : box->size[d];
        int64_t offset = box->ndim < 0 ? 0 : box->offset[d];
        element += (offset + i % size) * weight;
        i /= size;
        weight *= tensor->shape[d];
    }
    return element;
}

static int64_t box_volume(const reshard_box *box, const tensor_case *tensor)
{
    return oracle_volume(tensor->ndim, box->ndim < 0 ? tensor->shape : box->size);
}

/* Place i of the target box, read as digits over the permuted factors, is put together again in the
 * source's order of factors. */
static int64_t source_place(const reshard_link *link, int64_t i)
{
    int64_t digits[RESHARD_FACTORS_MAX];
    int64_t place = 0;
    if (link->factor_count == 0)
        return i;
    for (int32_t f = link->factor_count - 1; f >= 0; f--) {
        int64_t factor = link->factors[link->order[f]];
        digits[link->order[f]] = i % factor;
        i /= factor;
    }
    for (int32_t f = 0; f < link->factor_count; f++)
        place = place * link->factors[f] + digits[f];
    return place;
}

static int64_t flat_place(const tensor_case *tensor, const int64_t *at)
{
    int64_t place = 0;
    for (int32_t d = 0; d < tensor->ndim; d++)
        place = place * tensor->shape[d] + at[d];
    return place;
}

/* Brings the elements of a strided link one by one, axis by axis. */
static void bring(const reshard_strided_link *link, int32_t axis, const tensor_case *from,
                  const tensor_case *to, int64_t *source_at, int64_t *target_at,
                  const double *source_values, double *values)
{
    if (axis == link->axis_count) {
        values[flat_place(to, target_at)] = source_values[flat_place(from, source_at)];
        return;
    }
    const reshard_link_axis *along = &link->axes[axis];
    for (int64_t x = 0; x < along->size; x++) {
        source_at[along->source_dim] += x * along->source_step;
        target_at[along->target_dim] += x * along->target_step;
        bring(link, axis + 1, from, to, source_at, target_at, source_values, values);
        source_at[along->source_dim] -= x * along->source_step;
        target_at[along->target_dim] -= x * along->target_step;
    }
}

static void expect_strided(const link_case *given, int32_t target, double *values)
{
    for (int32_t l = 0; l < given->link_count; l++) {
        reshard_strided_link link = given->strided[l];
        if (link.target != target)
            continue;
        const tensor_case *from = &given->sources[link.source];
        double *source_values = values_create(from->oracle, given->seed + (uint64_t)link.source);
        bring(&given->strided[l], 0, from, &given->targets[target], link.source_at, link.target_at,
              source_values, values);
        free(source_values);
    }
}

/* The values that the target must hold: zeros, and what links bring. */
static double *expect(const link_case *given, int32_t target)
{
    const tensor_case *to = &given->targets[target];
    double *values = calloc((size_t)oracle_volume(to->ndim, to->shape) + 1, sizeof *values);
    if (values == NULL)
        abort();
    if (given->is_strided)
        expect_strided(given, target, values);
    for (int32_t l = 0; l < given->link_count && !given->is_strided; l++) {
        const reshard_link *link = &given->links[l];
        if (link->target != target)
            continue;
        const tensor_case *from = &given->sources[link->source];
        double *source_values = values_create(from->oracle, given->seed + (uint64_t)link->source);
        int64_t volume = box_volume(&link->target_box, to);
        for (int64_t i = 0; i < volume; i++)
            values[element_at(&link->target_box, to, i)] =
                source_values[element_at(&link->source_box, from, source_place(link, i))];
        free(source_values);
    }
    return values;
}

/* ---- checking -------------------------------------------------------------------------------- */

static bool make_layout(tensor_case *tensor, uint64_t seed, words *said)
{
    tensor->oracle = oracle_layout_create(&tensor->spec, tensor->ndim, tensor->shape, NULL);
    if (compare_create(&tensor->spec, seed % 2 == 0, tensor->ndim, tensor->shape,
                       &tensor->layout) != RESHARD_OK)
        return words_say(said, "no layout: %s", reshard_error_text());
    return true;
}

static bool make_plan(link_case *given, reshard_plan **out_plan, words *said)
{
    reshard_plan_tensor sources[TENSORS_MAX], targets[TARGETS_MAX];
    for (int32_t i = 0; i < given->source_count; i++) {
        tensor_case *tensor = &given->sources[i];
        if (!make_layout(tensor, given->seed, said))
            return false;
        sources[i] = (reshard_plan_tensor){"source", tensor->layout, tensor->dtype};
    }
    for (int32_t i = 0; i < given->target_count; i++) {
        tensor_case *tensor = &given->targets[i];
        if (!make_layout(tensor, given->seed, said))
            return false;
        targets[i] = (reshard_plan_tensor){"target", tensor->layout, tensor->dtype};
    }
    for (int32_t i = 0; i < given->target_count; i++) {
        /* Only the like of them can become sums beside averages: not a matter of links. */
        if (planning_is_mixed(given->targets[i].oracle))
            return true;
    }
    reshard_status status =
        given->is_strided
            ? reshard_plan_create_strided(NULL, given->source_count, sources, given->target_count,
                                          targets, given->link_count, given->strided,
                                          &given->options, out_plan)
            : reshard_plan_create(NULL, given->source_count, sources, given->target_count, targets,
                                  given->link_count, given->links, &given->options, out_plan);
    return status == RESHARD_OK || words_say(said, "no plan: %s", reshard_error_text());
}

static bool run_plan(const link_case *given, reshard_plan *plan, simulate_direction direction,
                     simulate_tensor **filled, words *said)
{
    simulate_tensor *sources[TENSORS_MAX] = {NULL};
    simulate_run run = {
        .plan = plan, .direction = direction, .sources = sources, .targets = filled};
    bool right = true;
    for (int32_t i = 0; i < given->source_count; i++) {
        sources[i] = simulate_tensor_create(given->sources[i].layout);
        right = right &&
                values_fill(given->sources[i].oracle, given->seed + (uint64_t)i, sources[i], said);
    }
    for (int32_t i = 0; i < given->target_count; i++)
        filled[i] = simulate_tensor_create(given->targets[i].layout);
    right = right && simulate(&run, said);
    for (int32_t i = 0; right && i < given->target_count; i++) {
        double *values = expect(given, i);
        right = values_check(given->targets[i].oracle, values, filled[i], said) ||
                words_say(said, "target %d", (int)i);
        free(values);
    }
    simulate_release(&run);
    for (int32_t i = 0; i < given->source_count; i++)
        simulate_tensor_destroy(sources[i]);
    return right;
}

static bool check_plan(const link_case *given, reshard_plan *plan, words *said)
{
    simulate_tensor *pulled[TARGETS_MAX] = {NULL}, *pushed[TARGETS_MAX] = {NULL};
    bool right = run_plan(given, plan, SIMULATE_PULL, pulled, said) &&
                 run_plan(given, plan, SIMULATE_PUSH, pushed, said);
    for (int32_t i = 0; i < given->target_count; i++) {
        if (right && !simulate_equal(pulled[i], pushed[i]))
            right = words_say(said, "pulling and pushing differ");
        simulate_tensor_destroy(pulled[i]);
        simulate_tensor_destroy(pushed[i]);
    }
    if (right && reshard_plan_check(plan) != RESHARD_OK)
        right = words_say(said, "the checker refuses: %s", reshard_error_text());
    return right;
}

static void print_tensor(const char *what, int32_t index, const tensor_case *tensor)
{
    static char text[ORACLE_TEXT_MAX];
    oracle_spec_text(&tensor->spec, text);
    print_error("  %s %d: %s, shape", what, (int)index, reshard_dtype_name(tensor->dtype));
    for (int32_t d = 0; d < tensor->ndim; d++)
        print_error("%s%lld", d > 0 ? "x" : " ", (long long)tensor->shape[d]);
    print_error(", '%s'\n", text);
}

static void print_box(const char *what, const reshard_box *box)
{
    print_error(" %s", what);
    for (int32_t d = 0; d < box->ndim; d++)
        print_error("%s%lld:%lld", d > 0 ? "," : "[", (long long)box->offset[d],
                    (long long)(box->offset[d] + box->size[d]));
    print_error(box->ndim < 0 ? " whole" : "]");
}

static void print_strided(int32_t index, const reshard_strided_link *link)
{
    print_error("  strided link %d: source %d at", (int)index, (int)link->source);
    for (int32_t d = 0; d < 4; d++)
        print_error(" %lld", (long long)link->source_at[d]);
    print_error(", target %d at", (int)link->target);
    for (int32_t d = 0; d < 4; d++)
        print_error(" %lld", (long long)link->target_at[d]);
    print_error(", axes");
    for (int32_t i = 0; i < link->axis_count; i++)
        print_error(" {%lld, %d, %d, %lld, %lld}", (long long)link->axes[i].size,
                    (int)link->axes[i].source_dim, (int)link->axes[i].target_dim,
                    (long long)link->axes[i].source_step, (long long)link->axes[i].target_step);
    print_error("\n");
}

static void print_case(const link_case *given)
{
    for (int32_t i = 0; i < given->source_count; i++)
        print_tensor("source", i, &given->sources[i]);
    for (int32_t i = 0; i < given->target_count; i++)
        print_tensor("target", i, &given->targets[i]);
    for (int32_t i = 0; i < given->link_count && given->is_strided; i++)
        print_strided(i, &given->strided[i]);
    for (int32_t i = 0; i < given->link_count && !given->is_strided; i++) {
        const reshard_link *link = &given->links[i];
        print_error("  link %d:", (int)i);
        print_box("source", &link->source_box);
        print_error(" of %d", (int)link->source);
        print_box("target", &link->target_box);
        print_error(" of %d factors", (int)link->target);
        for (int32_t f = 0; f < link->factor_count; f++)
            print_error(" %lld", (long long)link->factors[f]);
        print_error(" order");
        for (int32_t f = 0; f < link->factor_count; f++)
            print_error(" %d", (int)link->order[f]);
        print_error("\n");
    }
    print_error("  zero_fill %d single_stage %d balance %d RESHARD_TEST_SEED=%llu "
                "RESHARD_TEST_SCALE=0\n",
                given->options.zero_fill, given->options.single_stage, (int)given->options.balance,
                (unsigned long long)given->seed);
}

static void release(link_case *given)
{
    for (int32_t i = 0; i < given->source_count; i++) {
        oracle_layout_destroy(given->sources[i].oracle);
        reshard_layout_release(given->sources[i].layout);
    }
    for (int32_t i = 0; i < given->target_count; i++) {
        oracle_layout_destroy(given->targets[i].oracle);
        reshard_layout_release(given->targets[i].layout);
    }
}

static void test_links__random(void **state)
{
    (void)state;
    static link_case given;
    int64_t count = harness_count(10000);
    for (int64_t i = 0; i < count; i++) {
        words said = {""};
        reshard_plan *plan = NULL;
        generate(&given, harness_seed() + (uint64_t)i);
        if (!make_plan(&given, &plan, &said) ||
            (plan != NULL && !check_plan(&given, plan, &said))) {
            print_case(&given);
            fail_msg("%s", said.text);
        }
        reshard_plan_release(plan);
        release(&given);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_links__random)};
    return cmocka_run_group_tests_name("property_links", tests, NULL, NULL);
}
