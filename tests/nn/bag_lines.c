/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bag_lines.c - runs embedding or embedding_bag modules on cases that it reads, and prints what
 * comes out, for tests/oracle/pytorch/test_bags.py. Numbers of a case, separated by spaces:
 *
 *     module (0 embedding, 1 bag), ranks, cut (-1 none, 0 rows, 1 columns), own (0 the same input
 *     on all ranks, 1 each its own), reduction (0 sum, 1 avg, 2 max), pads, padding index,
 *     max_norm, norm_type, last_offset, rows, width, the weight; then for each input (one, or one
 *     for each rank): bags, entries of a bag (-1: a list), and either the indices or count,
 *     indices, number of offsets, offsets; then 1 and sample weights, or 0.
 *
 * For each case a line: output, gradient of the weight, weight afterwards, gradients of sample
 * weights, for the loss that sums the output's i-th element ((7i+3) mod 11 - 4.5) times.
 */
#include "tests/tensor/distributed.h"

#include <math.h>
#include <string.h>

enum { RANKS = 8 };

typedef struct input {
    reshard_tensor *indices, *offsets, *samples;
} input;

typedef struct lines_case {
    int module, ranks, cut, own, pads, last;
    reshard_embedding_bag_options options;
    int64_t rows, width;
    reshard_tensor *weight;
    input inputs[RANKS];
} lines_case;

/* ---- reading --------------------------------------------------------------------------------- */

static double read_number(void)
{
    double number = 0;
    if (scanf("%lf", &number) != 1) {
        fprintf(stderr, "bag-lines: a number is missing\n");
        exit(2);
    }
    return number;
}

static reshard_tensor *read_tensor(reshard_dtype dtype, int32_t ndim, const int64_t *shape)
{
    reshard_tensor *made = make_zeros(dtype, ndim, shape);
    for (int64_t i = 0; i < reshard_tensor_volume(made); i++)
        set_element(made, i, read_number());
    return made;
}

static void read_input(input *in)
{
    int64_t bags = (int64_t)read_number(), size = (int64_t)read_number();
    int64_t shape[] = {bags, size};
    int32_t ndim = size >= 0 ? 2 : 1;
    if (size < 0)
        shape[0] = (int64_t)read_number();
    in->indices = read_tensor(RESHARD_I64, ndim, shape);
    in->offsets = size < 0 ? read_tensor(RESHARD_I64, SHAPE((int64_t)read_number())) : NULL;
    in->samples = read_number() != 0 ? read_tensor(RESHARD_F64, ndim, shape) : NULL;
}

static bool read_case(lines_case *c)
{
    static const reshard_reduction ways[] = {RESHARD_SUM, RESHARD_AVG, RESHARD_MAX};
    memset(c, 0, sizeof *c);
    if (scanf("%d", &c->module) != 1)
        return false;
    c->ranks = (int)read_number();
    c->cut = (int)read_number();
    c->own = (int)read_number();
    c->options.size = sizeof c->options;
    c->options.reduction = ways[(int)read_number()];
    c->options.pads = (int)read_number();
    c->options.padding_index = (int64_t)read_number();
    c->options.max_norm = read_number();
    c->options.norm_type = read_number();
    c->options.last_offset = (int)read_number();
    c->rows = (int64_t)read_number();
    c->width = (int64_t)read_number();
    c->weight = read_tensor(RESHARD_F64, SHAPE(c->rows, c->width));
    for (int i = 0; i < (c->own ? c->ranks : 1); i++)
        read_input(&c->inputs[i]);
    return true;
}

/* ---- running --------------------------------------------------------------------------------- */

static void print_tensor(const reshard_tensor *tensor)
{
    for (int64_t i = 0; tensor != NULL && i < reshard_tensor_volume(tensor); i++)
        printf("%.17g ", element(tensor, i));
}

/* A tensor of which layouts tell that it differs between ranks. */
static reshard_tensor *told(reshard_tensor *local, reshard_group *group)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%d: S(0)", (int)reshard_group_size(group));
    return local != NULL ? reshard_tensor_to_local(local_as(local, group, text), NULL) : NULL;
}

static reshard_value value_of(reshard_tensor *tensor)
{
    return tensor != NULL ? reshard_value_of(tensor) : (reshard_value){0};
}

static reshard_module *make_module(const lines_case *c, reshard_group *group)
{
    reshard_module *module = NULL;
    reshard_sharding_plan *plan = NULL;
    reshard_layer_options f64 = {.size = sizeof f64, .dtype = RESHARD_F64};
    if (c->module == 0)
        MUST(reshard_embedding_create(NULL, c->rows, c->width, &f64, &module));
    else
        MUST(reshard_embedding_bag_create(NULL, c->rows, c->width, &c->options, &f64, &module));
    MUST(reshard_module_set_parameter(module, "weight", c->weight));
    if (c->cut < 0)
        return module;
    char text[32];
    (void)snprintf(text, sizeof text, "%d: S(%d)", c->ranks, c->cut);
    MUST(reshard_sharding_plan_create(NULL, &plan));
    MUST(reshard_sharding_plan_add_text(plan, "weight", text));
    MUST(reshard_module_shard(module, plan, 0, group, NULL));
    reshard_sharding_plan_destroy(plan);
    return module;
}

static reshard_tensor *full(reshard_tensor *tensor)
{
    return tensor != NULL && (reshard_tensor_layout(tensor) != NULL) ? reshard_tensor_full(tensor)
                                                                     : tensor;
}

static reshard_tensor *run_module(const lines_case *c, reshard_module *module, const input *in,
                                  reshard_group *group)
{
    reshard_tensor *t[] = {in->indices, in->offsets, in->samples};
    for (int i = 0; i < 3 && c->own; i++)
        t[i] = told(t[i], group);
    reshard_value items[] = {value_of(t[0]), value_of(t[1]), value_of(t[2])};
    bool plain = t[1] == NULL && t[2] == NULL;
    return full(reshard_value_tensor(reshard_module_call(
        module, plain ? items[0] : reshard_value_list(t[2] != NULL ? 3 : 2, items))));
}

static reshard_status body(void *user, reshard_group *group)
{
    const lines_case *c = user;
    int32_t rank = reshard_group_rank(group);
    input mine = c->inputs[c->own ? rank : 0], *in = &mine;
    reshard_scope *scope = NULL;
    if (mine.samples != NULL) { /* a leaf of each rank's own, as it collects gradients */
        const reshard_tensor *read = mine.samples;
        MUST(reshard_tensor_from_data(NULL, RESHARD_F64, reshard_tensor_ndim(read),
                                      reshard_tensor_shape(read), reshard_tensor_data(read),
                                      &mine.samples));
        MUST(reshard_tensor_set_requires_grad(mine.samples, 1));
    }
    reshard_tensor *weight = NULL;
    reshard_module *module = make_module(c, group);
    MUST(reshard_module_find_tensor(module, "weight", &weight));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = run_module(c, module, in, group);
    TRY(reshard_scope_status(scope));
    reshard_tensor *weights =
        make_zeros(RESHARD_F64, reshard_tensor_ndim(y), reshard_tensor_shape(y));
    for (int64_t i = 0; i < reshard_tensor_volume(y); i++)
        set_element(weights, i, (double)((7 * i + 3) % 11) - 4.5);
    TRY(reshard_backward(y, weights, NULL));
    reshard_tensor *dw = full(reshard_tensor_gradient(weight)), *after = full(weight);
    reshard_tensor *ds = in->samples != NULL ? reshard_tensor_gradient(in->samples) : NULL;
    reshard_tensor *all =
        ds != NULL && c->own
            ? reshard_tensor_exchange(ds, group,
                                      RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER))
            : ds;
    TRY(reshard_scope_status(scope));
    if (rank == 0) {
        print_tensor(y);
        print_tensor(dw);
        print_tensor(after);
        print_tensor(all);
        printf("\n");
    }
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(weights);
    reshard_tensor_release(mine.samples);
    reshard_module_release(module);
    return RESHARD_OK;
}

int main(void)
{
    lines_case c;
    while (read_case(&c)) {
        if (reshard_group_run(NULL, c.ranks, body, &c) != RESHARD_OK) {
            printf("error %s\n", reshard_error_text());
            return 1;
        }
        reshard_tensor_release(c.weight);
        for (int i = 0; i < RANKS; i++) {
            reshard_tensor_release(c.inputs[i].indices);
            reshard_tensor_release(c.inputs[i].offsets);
            reshard_tensor_release(c.inputs[i].samples);
        }
    }
    return 0;
}
