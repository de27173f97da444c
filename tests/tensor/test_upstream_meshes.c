/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_upstream_meshes.c - PyTorch's tests of redistribute over meshes of several axes, restated by
 * their sizes and specs. Upstream counts collectives; here every redistribute is one plan, so a
 * small model of upstream's plan counts them, and tells how much each of them sends: a move here
 * sends no more than that, and nothing where upstream has no communication.
 */
#include "tests/tensor/moves.h"

/* ---- what upstream would do ------------------------------------------------------------------ */

enum { AXES_MAX = 3 };

/* Placements are letters, one for each axis: R, P (a sum), or the dim that is cut. */
typedef struct mesh_move {
    int32_t axes, sizes[AXES_MAX], ndim;
    int64_t shape[4];
    char from[AXES_MAX + 1], to[AXES_MAX + 1];
} mesh_move;

typedef struct traffic {
    int count;        /* collectives */
    int64_t elements; /* sent by all ranks together, padding included */
} traffic;

static bool is_cut(char placement)
{
    return placement >= '0' && placement <= '9';
}

static int64_t pad(int64_t length, int64_t parts)
{
    return (length + parts - 1) / parts * parts;
}

/* The collective that takes axis m from one placement to another. */
static void add_step(const mesh_move *mm, const char *current, int32_t m, char to, traffic *all)
{
    int64_t length[4], volume = 1, ranks = 1, n = mm->sizes[m];
    char from = current[m];
    memcpy(length, mm->shape, sizeof length);
    for (int32_t a = 0; a < mm->axes; a++) {
        ranks *= mm->sizes[a];
        if (a != m && is_cut(current[a]))
            length[current[a] - '0'] = pad(length[current[a] - '0'], mm->sizes[a]) / mm->sizes[a];
    }
    if (n == 1 || from == to || from == 'R')
        return;
    if (is_cut(from))
        length[from - '0'] = pad(length[from - '0'], n);
    if (is_cut(to))
        length[to - '0'] = pad(length[to - '0'], n);
    for (int32_t d = 0; d < mm->ndim; d++)
        volume *= length[d];
    all->count++;
    if (is_cut(from) && is_cut(to)) /* all_to_all */
        all->elements += ranks * (n - 1) * volume / n / n;
    else /* an all_reduce is a reduce_scatter and an all_gather */
        all->elements += ranks * (n - 1) * volume / n * (from == 'P' && to == 'R' ? 2 : 1);
}

static bool cut_alike_before(const mesh_move *mm, const char *current, int32_t m, char dim)
{
    for (int32_t a = 0; a < m; a++) {
        if ((current[a] == dim) != (mm->to[a] == dim))
            return false;
    }
    return true;
}

/* Upstream's greedy plan: from the last axis to the first, cuts that the target nests otherwise are
 * gathered; then from the first to the last, each axis goes to its target. */
static traffic model_upstream(const mesh_move *mm)
{
    traffic all = {0, 0};
    char current[AXES_MAX + 1];
    int64_t sharded = 1;
    memcpy(current, mm->from, sizeof current);
    for (int32_t a = 0; a < mm->axes; a++)
        sharded *= is_cut(current[a]) ? mm->sizes[a] : 1;
    for (int32_t m = mm->axes - 1; m >= 0 && sharded > 1; m--) {
        char want = mm->to[m];
        if (is_cut(want) && !cut_alike_before(mm, current, m, want))
            want = 'R';
        add_step(mm, current, m, want, &all);
        current[m] = want;
    }
    for (int32_t m = 0; m < mm->axes; m++) {
        add_step(mm, current, m, mm->to[m], &all);
        current[m] = mm->to[m];
    }
    return all;
}

static void write_spec(const mesh_move *mm, const char *placements, char *text, size_t capacity)
{
    size_t used = 0;
    for (int32_t a = 0; a < mm->axes; a++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%d", a > 0 ? "," : "",
                                 (int)mm->sizes[a]);
    for (int32_t a = 0; a < mm->axes; a++) {
        const char *before = a == 0 ? ": " : ", ";
        if (is_cut(placements[a]))
            used +=
                (size_t)snprintf(text + used, capacity - used, "%sS(%c)", before, placements[a]);
        else
            used += (size_t)snprintf(text + used, capacity - used, "%s%c", before, placements[a]);
    }
}

static move spell(const mesh_move *mm)
{
    move m = {.ranks = 1, .ndim = mm->ndim};
    memcpy(m.shape, mm->shape, sizeof m.shape);
    for (int32_t a = 0; a < mm->axes; a++)
        m.ranks *= mm->sizes[a];
    write_spec(mm, mm->from, m.from, sizeof m.from);
    write_spec(mm, mm->to, m.to, sizeof m.to);
    return m;
}

/* The intermediate layout of a sum cuts rows first; where the source cuts columns already, some of
 * its parts are summed up by ranks that have none of them. */
static bool is_exception(const move *m)
{
    return strcmp(m->from, "4,2: S(1), P") == 0 &&
           (strcmp(m->to, "4,2: R, R") == 0 || strcmp(m->to, "4,2: R, S(0)") == 0);
}

/* The move is right, and sends no more than upstream's collectives. Gives their number. */
static int check_mesh_move(const mesh_move *mm)
{
    move m = spell(mm);
    traffic upstream = model_upstream(mm);
    int64_t bytes = find_bytes_moved(&m, RESHARD_F32);
    check_move(&m);
    if (bytes * 5 > 4 * upstream.elements * (is_exception(&m) ? 6 : 5))
        fail_msg("%s to %s sends %lld bytes, and upstream's %d collectives %lld", m.from, m.to,
                 (long long)bytes, upstream.count, 4 * (long long)upstream.elements);
    return upstream.count;
}

/* ---- cuts that change their dim -------------------------------------------------------------- */

static void test_redistribute_shard_dim_change(void **state)
{
    (void)state;
    static const struct {
        int32_t ndim;
        int64_t shape[4];
    } sizes[] = {{2, {8, 8}}, {3, {8, 8, 8}}, {2, {8, 5}}, {2, {5, 8}}, {2, {5, 5}}};
    static const struct {
        int32_t axes, ndim_min;
        char from[4], to[4];
        int count;
    } pairs[] = {{1, 2, "0", "1", 1},   {1, 2, "1", "0", 1},   {1, 3, "1", "2", 1},
                 {1, 3, "2", "0", 1},   {2, 2, "01", "00", 1}, {2, 2, "01", "10", 2},
                 {2, 2, "00", "11", 2}, {2, 3, "11", "12", 1}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
            mesh_move mm = {.axes = pairs[p].axes, .ndim = sizes[s].ndim};
            if (mm.ndim < pairs[p].ndim_min)
                continue;
            mm.sizes[0] = mm.axes == 1 ? 4 : 2;
            mm.sizes[1] = 2;
            memcpy(mm.shape, sizes[s].shape, sizeof mm.shape);
            memcpy(mm.from, pairs[p].from, sizeof mm.from);
            memcpy(mm.to, pairs[p].to, sizeof mm.to);
            assert_int_equal(check_mesh_move(&mm), pairs[p].count);
        }
    }
}

static void test_redistribute_shard_dim_multi_dim_mesh(void **state)
{
    (void)state;
    static const struct {
        char from[4], to[4];
        int count;
    } pairs[] = {{"000", "111", 3}, {"012", "210", 2}, {"1R0", "R00", 2}};
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        mesh_move mm = {.axes = 3, .sizes = {2, 2, 2}, .ndim = 3, .shape = {8, 8, 8}};
        memcpy(mm.from, pairs[p].from, sizeof mm.from);
        memcpy(mm.to, pairs[p].to, sizeof mm.to);
        assert_int_equal(check_mesh_move(&mm), pairs[p].count);
    }
}

/* Also test_redistribute_negative_shard_dim. */
static void test_redistribute_uneven_sharding(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{10, 5}, {9, 5}, {3, 5}, {1, 3}};
    for (int i = 0; i < 8; i++) {
        mesh_move mm = {.axes = 2, .sizes = {2, 2}, .ndim = 2, .from = "00", .to = "RR"};
        memcpy(mm.shape, shapes[i / 2], sizeof shapes[0]);
        mm.from[1] = i % 2 == 0 ? '0' : '1';
        (void)check_mesh_move(&mm);
    }
    static const move rows[] = {{4, 2, {12, 3}, "4: S(-1)", "4: R"},
                                {4, 2, {12, 3}, "4: R", "4: S(-1)"}};
    for (int i = 0; i < 2; i++)
        check_move(&rows[i]);
}

/* An axis of one rank moves nothing, whatever it does. */
static void test_one_chunk_mesh(void **state)
{
    (void)state;
    static const char placements[] = "R01P";
    for (int i = 0; i < 4 * 4 * 3; i++) {
        mesh_move mm = {.axes = 2, .sizes = {4, 1}, .ndim = 2, .shape = {16, 8}};
        mm.from[0] = mm.to[0] = placements[i / 12];
        mm.from[1] = placements[i / 3 % 4];
        mm.to[1] = placements[i % 3];
        assert_int_equal(check_mesh_move(&mm), 0);
    }
}

/* Upstream refuses most partial targets; here all are legal. */
static void test_redistribute_to_partial(void **state)
{
    (void)state;
    static const char placements[] = "R01P";
    for (int i = 0; i < 16 * 16; i++) {
        mesh_move mm = {.axes = 2, .sizes = {2, 2}, .ndim = 2, .shape = {12, 8}};
        mm.from[0] = placements[i / 64];
        mm.from[1] = placements[i / 16 % 4];
        mm.to[0] = placements[i / 4 % 4];
        mm.to[1] = placements[i % 4];
        if (strchr(mm.to, 'P') == NULL)
            continue;
        move m = spell(&mm);
        check_move(&m);
    }
}

static void test_multi_dim_mesh(void **state)
{
    (void)state;
    static const char placements[] = "R01P";
    for (int i = 0; i < 16 * 9; i++) {
        mesh_move mm = {.axes = 2, .sizes = {4, 2}, .ndim = 2, .shape = {16, 24}};
        mm.from[0] = placements[i / 36];
        mm.from[1] = placements[i / 9 % 4];
        mm.to[0] = placements[i / 3 % 3];
        mm.to[1] = placements[i % 3];
        (void)check_mesh_move(&mm);
    }
}

/* ---- collectives that upstream merges -------------------------------------------------------- */

/* One collective over all the axes that change, for 16^3 elements on 8 ranks: an all_gather of g
 * ranks brings each of them all but its own part of what it has then, a reduce_scatter sends as
 * much, an all_reduce twice that. */
static void test_redistribute__merged_collectives(void **state)
{
    (void)state;
    static const struct {
        int32_t axes;
        int32_t sizes[AXES_MAX];
        char from[4], to[4];
        int64_t merged_ranks, times, part; /* each rank has 1/part of the whole then */
    } rows[] = {
        {2, {4, 2}, "00", "RR", 8, 1, 1},      {2, {4, 2}, "01", "RR", 8, 1, 1},
        {2, {4, 2}, "10", "RR", 8, 1, 1},      {2, {4, 2}, "PP", "RR", 8, 2, 1},
        {2, {4, 2}, "PP", "00", 8, 1, 1},      {2, {4, 2}, "PP", "01", 8, 1, 1},
        {2, {4, 2}, "P0", "R0", 4, 2, 2},      {2, {4, 2}, "0P", "0R", 2, 2, 4},
        {3, {2, 2, 2}, "000", "RRR", 8, 1, 1}, {3, {2, 2, 2}, "012", "RRR", 8, 1, 1},
        {3, {2, 2, 2}, "PPP", "RRR", 8, 2, 1}, {3, {2, 2, 2}, "PPP", "000", 8, 1, 1},
        {3, {2, 2, 2}, "PPP", "012", 8, 1, 1}, {3, {2, 2, 2}, "1PP", "1RR", 4, 2, 2},
        {3, {2, 2, 2}, "P1P", "R1R", 4, 2, 2}, {3, {2, 2, 2}, "001", "RR1", 4, 1, 2},
        {3, {2, 2, 2}, "PP1", "001", 4, 1, 2}, {3, {2, 2, 2}, "R01", "RRR", 4, 1, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mesh_move mm = {.axes = rows[i].axes, .ndim = 3, .shape = {16, 16, 16}};
        memcpy(mm.sizes, rows[i].sizes, sizeof mm.sizes);
        memcpy(mm.from, rows[i].from, sizeof mm.from);
        memcpy(mm.to, rows[i].to, sizeof mm.to);
        (void)check_mesh_move(&mm);
        move m = spell(&mm);
        int64_t n = rows[i].merged_ranks;
        int64_t most = 4 * 8 * (16 * 16 * 16 / rows[i].part) * (n - 1) / n * rows[i].times;
        int64_t bytes = find_bytes_moved(&m, RESHARD_F32);
        if (bytes > most)
            fail_msg("%s to %s sends %lld bytes, one collective %lld", m.from, m.to,
                     (long long)bytes, (long long)most);
    }
}

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

/* The rank's shard, cut step by step by the chunk rule, holds the numbers of its elements. */
static reshard_status check_order(const reshard_tensor *x, const cut_order *order, int32_t ndim,
                                  const int64_t *shape, int32_t rank)
{
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
    const double *values = reshard_tensor_data(shard);
    for (int64_t i = 0; i < volume; i++) {
        int64_t rest = i, at = 0, step = 1;
        for (int32_t d = ndim - 1; d >= 0; d--) {
            at += (offset[d] + rest % size[d]) * step;
            rest /= size[d];
            step *= shape[d];
        }
        CHECK(values[i] == (double)at);
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
    reshard_tensor *whole = make_zeros(RESHARD_F64, job->ndim, job->shape), *x = NULL;
    double *numbers = reshard_tensor_write(whole);
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++)
        numbers[i] = (double)i;
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
        TRY(check_order(y, order, job->ndim, job->shape, reshard_group_rank(group)));
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

/* The bytes of a plan of one stage. Two stages may send more in all, so that the busiest rank sends
 * less. */
static int64_t find_bytes_direct(const move *m)
{
    reshard_plan_options options = {.size = sizeof options, .single_stage = 1};
    return find_bytes_planned(m, RESHARD_F32, &options);
}

/* A detour never sends less. */
static void test_device_order__triangle(void **state)
{
    (void)state;
    static cut_order orders[200];
    int32_t count = list_orders(2, orders);
    draw_state draw;
    draw_seed(&draw, 11);
    for (int i = 0; i < 300; i++) {
        char texts[3][80];
        int64_t bytes[3];
        for (int k = 0; k < 3; k++)
            spell_order(&orders[draw_below(&draw, count)], texts[k], sizeof texts[k]);
        for (int k = 0; k < 3; k++) {
            static const int ends[][2] = {{0, 1}, {1, 2}, {0, 2}};
            move m = make_move(8, 2, i % 2 == 0 ? (int64_t[]){16, 8} : (int64_t[]){17, 5},
                               texts[ends[k][0]], texts[ends[k][1]]);
            bytes[k] = find_bytes_direct(&m);
        }
        if (bytes[2] > bytes[0] + bytes[1])
            fail_msg("%s, %s, %s: %lld + %lld < %lld", texts[0], texts[1], texts[2],
                     (long long)bytes[0], (long long)bytes[1], (long long)bytes[2]);
    }
}

/* Both cuts give every rank the same elements in the same order. */
static reshard_status cut_both_ways(void *user, reshard_group *group)
{
    const move *m = user;
    reshard_tensor *whole = make_zeros(RESHARD_F64, m->ndim, m->shape), *a = NULL, *b = NULL;
    MUST(reshard_tensor_fill_uniform(whole, 4));
    TRY(cut_directly(group, m->from, whole, &a));
    TRY(cut_directly(group, m->to, whole, &b));
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
}

/* ---- strided and nested cuts that are uneven, other meshes ----------------------------------- */

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

static void test_redistribute__other_meshes(void **state)
{
    (void)state;
    static const move rows[] = {
        {8, 3, {13, 2, 13}, "2,4: S(0), S(2)", "4,2: S(2), S(0)"},
        {5, 2, {7, 4}, "2[0,1]: S(0)", "3[4,2,3]: S(1)"},
        {6, 2, {7, 4}, "2,2[0..3]: S(0), S(1)", "6: S(0)"},
        {6, 2, {7, 4}, "3: S(0)", "2,3: R, S(1)"},
        {5, 2, {7, 4}, "2[0,1]: P", "3[4,2,3]: S(1)"},
        {5, 2, {7, 4}, "2[0,1]: S(0)", "3[4,2,3]: P"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_move(&rows[i]);
}

/* ---- placements ------------------------------------------------------------------------------ */

static void test_placement_types(void **state)
{
    (void)state;
    static const char *const specs[] = {"4: R",      "4: S(0)",   "4: S(1)",
                                        "4: S(0*2)", "4: P(sum)", "4: P(avg)",
                                        "4: P(min)", "4: P(max)", "4: P(prod)"};
    static const int64_t shape[] = {16, 16};
    enum { SPECS = (int)(sizeof specs / sizeof *specs) };
    for (int i = 0; i < SPECS * SPECS; i++)
        assert_int_equal(layouts_equal(specs[i / SPECS], specs[i % SPECS], 2, shape),
                         i / SPECS == i % SPECS);
    assert_true(layouts_equal("4: P", "4: P(sum)", 2, shape));
    assert_true(layouts_equal("4: S(-1)", "4: S(1)", 2, shape));
    assert_true(layouts_equal("4: S(0*1)", "4: S(0)", 2, shape));
    /* Each rank's shard of a whole tensor. */
    static const int64_t rows[][2] = {{16, 4}, {17, 4}, {15, 4}, {7, 4}, {3, 4},
                                      {1, 4},  {8, 1},  {8, 8},  {8, 16}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char whole[32], cut[32];
        (void)snprintf(whole, sizeof whole, "%d: R", (int)rows[i][1]);
        (void)snprintf(cut, sizeof cut, "%d: S(0)", (int)rows[i][1]);
        move m = make_move((int32_t)rows[i][1], 1, rows[i], whole, cut);
        check_move(&m);
        assert_int_equal(find_bytes_moved(&m, RESHARD_F32), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redistribute_shard_dim_change),
        cmocka_unit_test(test_redistribute_shard_dim_multi_dim_mesh),
        cmocka_unit_test(test_redistribute_uneven_sharding),
        cmocka_unit_test(test_one_chunk_mesh),
        cmocka_unit_test(test_redistribute_to_partial),
        cmocka_unit_test(test_multi_dim_mesh),
        cmocka_unit_test(test_redistribute__merged_collectives),
        cmocka_unit_test(test_device_order__every_order),
        cmocka_unit_test(test_device_order__triangle),
        cmocka_unit_test(test_device_order__strided),
        cmocka_unit_test(test_strided__uneven),
        cmocka_unit_test(test_nested__uneven),
        cmocka_unit_test(test_redistribute__other_meshes),
        cmocka_unit_test(test_placement_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
