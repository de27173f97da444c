/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_upstream_orders.c - PyTorch's tests of shard orders, strided shards and placements, restated
 * by their sizes, dtypes and specs: which axis cuts a dim first, and what that is equal to.
 */
#include "tests/support/harness.h"
#include "tests/tensor/upstream/moves.h"

/* ---- orders of cuts -------------------------------------------------------------------------- */

/* Each axis of a 2x2x2 mesh cuts a dim or none, in an order. */
typedef struct cut_order {
    int32_t count, axes[3], dims[3];
} cut_order;

/* All of them, those that say the same left out. Gives their number. */
static int32_t list_orders(int32_t ndim, cut_order *orders)
{
    static const int32_t ways[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                       {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    int32_t made = 0, choices = (ndim + 1) * (ndim + 1) * (ndim + 1);
    for (int32_t i = 0; i < 6 * choices; i++) {
        cut_order order = {.count = 0};
        int32_t rest = i % choices;
        bool sorted = true;
        for (int32_t k = 0; k < 3; k++, rest /= ndim + 1) {
            int32_t axis = ways[i / choices][k], dim = rest % (ndim + 1) - 1;
            bool first = true;
            for (int32_t before = 0; before < k; before++)
                first = first && ways[i / choices][before] < axis;
            if (dim < 0) { /* uncut axes come last, and in one order */
                for (int32_t later = k + 1, more = rest / (ndim + 1); later < 3;
                     later++, more /= ndim + 1)
                    sorted = sorted && more % (ndim + 1) == 0 && ways[i / choices][later] > axis;
                continue;
            }
            /* Cuts of different dims may change places: smaller dims first. */
            sorted = sorted && (order.count == 0 || order.dims[order.count - 1] <= dim);
            order.axes[order.count] = axis;
            order.dims[order.count++] = dim;
        }
        if (sorted)
            orders[made++] = order;
    }
    return made;
}

static void spell_order(const cut_order *order, char *text, size_t capacity)
{
    size_t used =
        (size_t)snprintf(text, capacity, "a=2,b=2,c=2:%s", order->count == 0 ? " R@a" : "");
    for (int32_t i = 0; i < order->count; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s S(%d)@%c", i > 0 ? "," : "",
                                 (int)order->dims[i], 'a' + (int)order->axes[i]);
}

/* The rank's shard is what cutting the whole step by step by the chunk rule gives. */
static reshard_status check_order(const reshard_tensor *x, const cut_order *order,
                                  const reshard_tensor *whole, int32_t rank)
{
    int32_t ndim = reshard_tensor_ndim(whole);
    const int64_t *shape = reshard_tensor_shape(whole);
    const float *numbers = reshard_tensor_data(whole);
    int64_t offset[4] = {0}, size[4];
    memcpy(size, shape, sizeof *shape * (size_t)ndim);
    for (int32_t i = 0; i < order->count; i++) {
        int32_t d = order->dims[i], coordinate = rank >> (2 - order->axes[i]) & 1;
        int64_t half = (size[d] + 1) / 2;
        offset[d] += coordinate * half;
        size[d] = coordinate == 0 ? half : size[d] - half;
    }
    const reshard_tensor *shard = reshard_tensor_local_shard(x, 0);
    int64_t volume = 1;
    for (int32_t d = 0; d < ndim; d++) {
        CHECK(reshard_tensor_shape(shard)[d] == size[d]);
        volume *= size[d];
    }
    const float *values = reshard_tensor_data(shard);
    for (int64_t i = 0; i < volume; i++) {
        int64_t rest = i, at = 0, step = 1;
        for (int32_t d = ndim - 1; d >= 0; d--) {
            at += (offset[d] + rest % size[d]) * step;
            rest /= size[d];
            step *= shape[d];
        }
        CHECK(values[i] == numbers[at]);
    }
    return RESHARD_OK;
}

typedef struct orders_job {
    int32_t ndim;
    int64_t shape[4];
    int32_t count;
    cut_order orders[200];
} orders_job;

/* From each order to the next one, and at last back to the first. */
static reshard_status go_through_orders(void *user, reshard_group *group)
{
    const orders_job *job = user;
    reshard_tensor *whole = make_zeros(RESHARD_F32, job->ndim, job->shape), *x = NULL;
    float *numbers = reshard_tensor_write(whole);
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        numbers[i] = (float)i;
    char text[80];
    spell_order(&job->orders[0], text, sizeof text);
    TRY(cut_directly(group, text, whole, &x));
    for (int32_t i = 1; i <= job->count; i++) {
        /* Far from each other in the list, so that moves are not only small ones. */
        const cut_order *order = &job->orders[(int64_t)i * 37 % job->count];
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        spell_order(order, text, sizeof text);
        reshard_tensor *y = move_to(x, text);
        CHECK(y != NULL);
        TRY(check_order(y, order, whole, reshard_group_rank(group)));
        ran_here(group, "test_ordered_distribute_all_combination", "%s", ran_tensor(y).text);
        (void)reshard_tensor_retain(y);
        reshard_tensor_release(x);
        x = y;
        TRY(reshard_scope_close(scope));
    }
    reshard_tensor_release(x);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

static void test_device_order__every_order(void **state)
{
    (void)state;
    static const struct {
        int32_t ndim, orders;
        int64_t shape[4];
    } rows[] = {{2, 49, {16, 8}},
                {3, 106, {8, 16, 32}},
                {2, 49, {17, 5}},
                {4, 193, {33, 16, 8, 1}},
                {3, 106, {13, 2, 13}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static orders_job job;
        job.ndim = rows[i].ndim;
        memcpy(job.shape, rows[i].shape, sizeof job.shape);
        job.count = list_orders(job.ndim, job.orders);
        assert_int_equal(job.count, rows[i].orders);
        if (reshard_group_run(NULL, 8, go_through_orders, &job) != RESHARD_OK)
            fail_msg("row %d: %s", (int)i, reshard_error_text());
    }
}

/* Each rank has the same tensor of upstream's size; three of these placements say what the ranks'
 * tensors make up. From there to every order that cuts by all axes. */
typedef struct partial_job {
    int32_t ndim;
    int64_t local[4];
    const char *placements[3];
    int32_t count;
    cut_order orders[200];
} partial_job;

/* What they make up: the tensor again and again along dims that are cut, and twice for a sum. */
static reshard_tensor *put_together(const partial_job *job, const reshard_tensor *local)
{
    int64_t shape[4];
    double factor = 1;
    memcpy(shape, job->local, sizeof shape);
    for (int k = 0; k < 3; k++) {
        if (job->placements[k][0] == 'S')
            shape[job->placements[k][2] - '0'] *= 2;
        factor *= strcmp(job->placements[k], "P(sum)") == 0 ? 2 : 1;
    }
    reshard_tensor *whole = make_zeros(RESHARD_F32, job->ndim, shape);
    float *to = reshard_tensor_write(whole);
    const float *from = reshard_tensor_data(local);
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++) {
        int64_t rest = i, at = 0, step = 1;
        for (int32_t d = job->ndim - 1; d >= 0; d--) {
            at += rest % shape[d] % job->local[d] * step;
            rest /= shape[d];
            step *= job->local[d];
        }
        to[i] = (float)factor * from[at];
    }
    return whole;
}

static reshard_status go_from_partial(void *user, reshard_group *group)
{
    const partial_job *job = user;
    reshard_tensor *local = make_zeros(RESHARD_F32, job->ndim, job->local);
    float *numbers = reshard_tensor_write(local);
    for (int64_t i = 0; i < reshard_tensor_volume(local); i++)
        numbers[i] = (float)(draw_hash(21, (uint64_t)i) % 1000) - 500;
    reshard_tensor *whole = put_together(job, local);
    char text[80];
    (void)snprintf(text, sizeof text, "2,2,2: %s, %s, %s", job->placements[0], job->placements[1],
                   job->placements[2]);
    reshard_scope *outer = NULL;
    TRY(reshard_scope_open(NULL, &outer));
    reshard_tensor *x = local_as(local, group, text);
    int32_t step = harness_scale() < 1 ? 7 : 1;
    for (int32_t i = 0; i < job->count; i += step) {
        reshard_scope *scope = NULL;
        if (job->orders[i].count < 3)
            continue;
        TRY(reshard_scope_open(NULL, &scope));
        char to[80];
        spell_order(&job->orders[i], to, sizeof to);
        reshard_tensor *y = move_to(x, to);
        CHECK(y != NULL);
        TRY(check_order(y, &job->orders[i], whole, reshard_group_rank(group)));
        ran_move("test_ordered_redistribute_with_partial", x, y);
        TRY(reshard_scope_close(scope));
    }
    TRY(reshard_scope_close(outer));
    reshard_tensor_release(whole);
    reshard_tensor_release(local);
    return RESHARD_OK;
}

/* Sums and minima do not commute, so no spec may have both. Upstream came to refuse them, too. */
static bool refuse_mixed(const partial_job *job)
{
    char text[80];
    reshard_spec *spec = NULL;
    bool sum = false, least = false;
    for (int k = 0; k < 3; k++) {
        sum = sum || strcmp(job->placements[k], "P(sum)") == 0;
        least = least || strcmp(job->placements[k], "P(min)") == 0;
    }
    if (!sum || !least)
        return false;
    (void)snprintf(text, sizeof text, "2,2,2: %s, %s, %s", job->placements[0], job->placements[1],
                   job->placements[2]);
    assert_int_equal(reshard_spec_parse(NULL, text, &spec), RESHARD_ERR_UNSUPPORTED);
    assert_non_null(strstr(reshard_error_text(), "do not commute"));
    ran("test_ordered_redistribute_with_partial", "%s %s",
        ran_shape(RESHARD_F32, job->ndim, job->local).text, text);
    return true;
}

static void test_device_order__from_partial(void **state)
{
    (void)state;
    static const char *const choices[] = {"S(0)", "S(1)", "S(2)", "P(sum)", "P(min)", "R"};
    static const struct {
        int32_t ndim;
        int64_t local[4];
    } rows[] = {
        {2, {16, 8}}, {3, {8, 16, 32}}, {2, {17, 5}}, {3, {13, 2, 13}}, {4, {33, 16, 8, 1}}};
    static partial_job job;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        job.ndim = rows[i].ndim;
        memcpy(job.local, rows[i].local, sizeof job.local);
        job.count = list_orders(job.ndim, job.orders);
        for (int code = 0; code < 6 * 6 * 6; code++) {
            int a = code / 36, b = code / 6 % 6, c = code % 6;
            bool fits = a < b && b < c && (job.ndim > 2 || (a != 2 && b != 2 && c != 2));
            if (!fits)
                continue;
            job.placements[0] = choices[a];
            job.placements[1] = choices[b];
            job.placements[2] = choices[c];
            if (refuse_mixed(&job))
                continue;
            if (reshard_group_run(NULL, 8, go_from_partial, &job) != RESHARD_OK)
                fail_msg("row %d, %s, %s, %s: %s", (int)i, choices[a], choices[b], choices[c],
                         reshard_error_text());
        }
    }
}

/* Upstream traces its plan between these. */
static void test_device_order__traced(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"S(0)@a, S(0)@b, S(0)@c", "S(0)@b, S(0)@c", "test_ordered_redistribute"},
        {"S(0)@b, S(0)@a, S(0)@c", "S(0)@b, S(0)@c", "test_ordered_redistribute"},
        {"S(0)@b, S(0)@a, S(0)@c", "S(0)@a, S(0)@b", "test_ordered_redistribute"},
        {"S(0)@a, S(0)@b", "S(0)@c, S(1)@b", "test_ordered_redistribute"},
        {"S(0)@a, S(0)@b, S(0)@c", "S(1)@a, S(1)@b, S(1)@c",
         "test_force_min_cost_redistribution_plan"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char from[80], to[80];
        (void)snprintf(from, sizeof from, "a=2,b=2,c=2: %s", rows[i][0]);
        (void)snprintf(to, sizeof to, "a=2,b=2,c=2: %s", rows[i][1]);
        check_move_of(rows[i][2], make_move(8, 3, (int64_t[]){8, 8, 8}, from, to));
    }
}

/* The bytes of a plan of one stage. Two stages may send more in all, so that the busiest rank sends
 * less. */
static int64_t find_bytes_direct(const move *m)
{
    reshard_plan_options options = {.size = sizeof options, .single_stage = 1};
    return find_bytes_planned(m, RESHARD_F32, &options);
}

/* A detour never sends less: between all orders that cut by all axes, over each of them. */
static void test_device_order__triangle(void **state)
{
    (void)state;
    static const struct {
        int32_t ndim;
        int64_t shape[3];
        int32_t orders;
    } rows[] = {{2, {16, 8}, 24}, {3, {13, 2, 13}, 60}};
    static cut_order all[200];
    static int64_t bytes[60][60];
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        char texts[60][80];
        int32_t listed = list_orders(rows[r].ndim, all), count = 0;
        for (int32_t i = 0; i < listed; i++) {
            if (all[i].count == 3)
                spell_order(&all[i], texts[count++], sizeof texts[0]);
        }
        assert_int_equal(count, rows[r].orders);
        for (int32_t i = 0; i < count * count; i++) {
            move m = make_move(8, rows[r].ndim, rows[r].shape, texts[i / count], texts[i % count]);
            bytes[i / count][i % count] = find_bytes_direct(&m);
        }
        for (int32_t i = 0; i < count * count * count; i++) {
            int32_t a = i / count / count, b = i / count % count, c = i % count;
            if (bytes[a][c] > bytes[a][b] + bytes[b][c])
                fail_msg("%s, %s, %s: %lld + %lld < %lld", texts[a], texts[b], texts[c],
                         (long long)bytes[a][b], (long long)bytes[b][c], (long long)bytes[a][c]);
        }
        ran("test_graph_based_redistribute_cost", "%s, %d orders",
            ran_shape(RESHARD_F32, rows[r].ndim, rows[r].shape).text, (int)count);
        ran("test_generate_shard_orders", "2,2,2 and %d dims, %d orders", (int)rows[r].ndim,
            (int)count);
    }
}

/* Both cuts give every rank the same elements in the same order. */
static reshard_status cut_both_ways(void *user, reshard_group *group)
{
    const move *m = user;
    reshard_tensor *whole = make_zeros(RESHARD_F32, m->ndim, m->shape), *a = NULL, *b = NULL;
    MUST(reshard_tensor_fill_random(whole, RESHARD_UNIFORM, 4));
    TRY(cut_directly(group, m->from, whole, &a));
    TRY(cut_directly(group, m->to, whole, &b));
    ran_move(m->upstream, a, b);
    TRY(same_shards(a, b, 1));
    reshard_tensor_release(a);
    reshard_tensor_release(b);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

static int layouts_equal(const char *a, const char *b, int32_t ndim, const int64_t *shape)
{
    reshard_layout *layouts[2] = {NULL, NULL};
    MUST(reshard_layout_parse(NULL, a, ndim, shape, &layouts[0]));
    MUST(reshard_layout_parse(NULL, b, ndim, shape, &layouts[1]));
    int equal = reshard_layout_equals(layouts[0], layouts[1]);
    reshard_layout_release(layouts[0]);
    reshard_layout_release(layouts[1]);
    return equal;
}

/* Cuts in another order are strided ones, by the product of the axes that cut before. */
static void test_device_order__strided(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{16, 8, 1}, {8, 16, 32}};
    static const char *const pairs[][2] = {
        {"a=2,b=2,c=2: S(0)@b, S(0)@a", "a=2,b=2,c=2: S(0*2), S(0), R"},
        {"a=2,b=2,c=2: S(1)@c, S(1)@a", "a=2,b=2,c=2: S(1*2), R, S(1)"},
        {"a=2,b=2,c=2: S(0)@b, S(0)@c, S(0)@a", "a=2,b=2,c=2: S(0*4), S(0), S(0)"},
        {"a=2,b=2,c=2: S(1)@c, S(1)@b, S(1)@a", "a=2,b=2,c=2: S(1*4), S(1*2), S(1)"}};
    for (int i = 0; i < 8; i++) {
        move m = make_move(8, 3, shapes[i % 2], pairs[i / 2][0], pairs[i / 2][1]);
        assert_int_equal(find_bytes_moved(&m, RESHARD_F32), 0);
        if (reshard_group_run(NULL, 8, cut_both_ways, &m) != RESHARD_OK)
            fail_msg("%s and %s: %s", m.from, m.to, reshard_error_text());
        m = make_move(8, 3, shapes[i % 2], pairs[i / 2][1], "a=2,b=2,c=2: R, S(0), S(1)");
        check_move(&m);
    }
    move m =
        make_move(8, 2, (int64_t[]){8, 4}, "a=4,b=2: S(-2*2), S(-2)", "a=4,b=2: S(0)@b, S(0)@a");
    m.upstream = "test_shard_order_same_data_as_strided_shard";
    if (reshard_group_run(NULL, 8, cut_both_ways, &m) != RESHARD_OK)
        fail_msg("%s and %s: %s", m.from, m.to, reshard_error_text());
}

/* ---- strided and nested cuts that are uneven ------------------------------------------------- */

static void test_strided__uneven(void **state)
{
    (void)state;
    static const struct {
        int64_t n;
        int32_t factor, ranks;
    } rows[] = {{7, 3, 3}, {9, 2, 4}, {8, 2, 4}, {5, 2, 2}, {13, 3, 4}, {1, 2, 3}, {17, 4, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char texts[4][32];
        (void)snprintf(texts[0], sizeof texts[0], "%d: S(0*%d)", (int)rows[i].ranks,
                       (int)rows[i].factor);
        (void)snprintf(texts[1], sizeof texts[1], "%d: S(0)", (int)rows[i].ranks);
        (void)snprintf(texts[2], sizeof texts[2], "%d: R", (int)rows[i].ranks);
        (void)snprintf(texts[3], sizeof texts[3], "%d: P", (int)rows[i].ranks);
        /* A strided cut is not the plain one, so that the move between them is made. */
        move m = make_move(rows[i].ranks, 1, &rows[i].n, texts[0], texts[1]);
        assert_int_equal(find_bytes_moved(&m, RESHARD_F32) > 0, rows[i].n > 1);
        for (int k = 0; k < 16; k++) {
            m = make_move(rows[i].ranks, 1, &rows[i].n, texts[k / 4], texts[k % 4]);
            check_move(&m);
        }
    }
}

static void test_nested__uneven(void **state)
{
    (void)state;
    static const int64_t lengths[] = {5, 6, 9, 10, 13};
    static const char *const specs[] = {"2,2: S(0), S(0)", "2,2: R, R", "4: S(0)"};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        /* Cut twice in two is not cut in four. */
        move m = make_move(4, 1, &lengths[i], specs[0], specs[2]);
        assert_true(find_bytes_moved(&m, RESHARD_F32) > 0);
        for (int k = 0; k < 9; k++) {
            m = make_move(4, 1, &lengths[i], specs[k / 3], specs[k % 3]);
            check_move(&m);
        }
    }
}

/* ---- placements ------------------------------------------------------------------------------ */

/* Kinds and reductions are different placements; a strided cut is not the plain one. Only a stride
 * of one chunk is the plain cut here, which upstream keeps apart. */
static void test_placement_types(void **state)
{
    (void)state;
    static const char *const specs[] = {"4: R",      "4: S(3)",   "4: S(4)",   "4: S(3*2)",
                                        "4: S(4*9)", "4: P(sum)", "4: P(avg)", "4: P(min)",
                                        "4: P(max)", "4: P(prod)"};
    static const int64_t shape[] = {1, 1, 1, 16, 72};
    enum { SPECS = (int)(sizeof specs / sizeof *specs) };
    for (int i = 0; i < SPECS * SPECS; i++)
        assert_int_equal(layouts_equal(specs[i / SPECS], specs[i % SPECS], 5, shape),
                         i / SPECS == i % SPECS);
    for (int i = 0; i < SPECS; i++)
        ran("test_equality", "%s", specs[i]);
    assert_true(layouts_equal("4: S(3*1)", "4: S(3)", 5, shape));
    ran("test_equality", "4: S(3*1)");
    assert_true(layouts_equal("4: P", "4: P(sum)", 5, shape));
    assert_true(layouts_equal("4: S(-1)", "4: S(4)", 5, shape));
}

/* Each rank's shard of a whole tensor, which every rank cuts for itself. */
static void test_select_split_tensor(void **state)
{
    (void)state;
    static const int64_t rows[][2] = {{16, 4}, {17, 4}, {15, 4}, {7, 4}, {3, 4},
                                      {1, 4},  {8, 1},  {8, 8},  {8, 16}};
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const int64_t *row = rows[i / 2];
        int64_t shape[] = {i % 2 == 0 ? row[0] : 4, i % 2 == 0 ? 4 : row[0]};
        char whole[32], cut[32];
        (void)snprintf(whole, sizeof whole, "%d: R", (int)row[1]);
        (void)snprintf(cut, sizeof cut, "%d: S(%d)", (int)row[1], (int)(i % 2));
        move m = make_move((int32_t)row[1], 2, shape, whole, cut);
        check_move_of("test_select_split_tensor_matches_split_tensor", m);
        assert_int_equal(find_bytes_moved(&m, RESHARD_F32), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_order__every_order),
        cmocka_unit_test(test_device_order__from_partial),
        cmocka_unit_test(test_device_order__traced),
        cmocka_unit_test(test_device_order__triangle),
        cmocka_unit_test(test_device_order__strided),
        cmocka_unit_test(test_strided__uneven),
        cmocka_unit_test(test_nested__uneven),
        cmocka_unit_test(test_placement_types),
        cmocka_unit_test(test_select_split_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
