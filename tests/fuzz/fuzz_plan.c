/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_plan.c - three lines, a shape, a source spec and a target spec, as a plan: made, checked by
 * the independent checker, transposed and checked again, every rank's part printed. A plan that is
 * made passes its check; what is refused has words. Small inputs may stand for anything, so there
 * are limits of time and memory. A first line that ends in "!", "?" or "#" asks for relabelling, an
 * exact balance, or one stage.
 */
#include "tests/fuzz/limits.h"

#include "plan/plan.h"

#include <reshard/plan_inspect.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTES_MAX ((size_t)1 << 30)
#define SECONDS_MAX 8.0
/* Beyond these a plan is made and asked about rank 0, but not gone through as a whole. */
#define RANKS_MAX 512
#define ELEMENTS_MAX 20000
/* Between these, tiny blocks may take the seconds that docs/limits.md allows, which is fine but too
 * long here; beyond, they are refused at once. */
#define BLOCKS_MAX ((int64_t)1 << 19)
#define BLOCKS_REFUSED ((int64_t)1 << 36)

typedef struct case_text {
    char *lines[3];
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    int64_t volume;
    reshard_plan_options options;
} case_text;

/* "4x6"; 0 when it is none. */
static int read_shape(case_text *c)
{
    char *at = c->lines[0], *end = at;
    c->volume = 1;
    while (c->ndim < RESHARD_NDIM_MAX && *at >= '0' && *at <= '9') {
        c->shape[c->ndim] = strtoll(at, &end, 10);
        if (__builtin_mul_overflow(c->volume, c->shape[c->ndim] == 0 ? 1 : c->shape[c->ndim],
                                   &c->volume))
            return 0;
        c->ndim++;
        at = *end == 'x' ? end + 1 : end;
    }
    c->options = (reshard_plan_options){.size = sizeof c->options,
                                        .single_stage = *end == '#',
                                        .relabel = *end == '!',
                                        .balance = *end == '?' ? RESHARD_BALANCE_EXACT
                                                               : RESHARD_BALANCE_RULE};
    return 1;
}

/* Is the plan one that is allowed to take long? */
static int may_take_long(const case_text *c)
{
    int has_blocks = strpbrk(c->lines[1], "/*;=") != NULL || strpbrk(c->lines[2], "/*;=") != NULL;
    return has_blocks && c->volume > BLOCKS_MAX && c->volume < BLOCKS_REFUSED;
}

static int split_lines(char *text, case_text *c)
{
    for (int i = 0; i < 3; i++) {
        c->lines[i] = text;
        text += strcspn(text, "\n");
        if (*text == '\0' && i < 2)
            return 0;
        if (*text != '\0')
            *text++ = '\0';
    }
    return read_shape(c) && !may_take_long(c);
}

/* What one rank has to do, as text. Of the figures, bytes may be more than 64 bits can count. */
static void check_part(reshard_context *context, reshard_plan *plan, int32_t rank)
{
    reshard_part *part = NULL;
    reshard_part_stats stats = {.size = sizeof stats};
    size_t length = 0;
    if (fuzz_passes(reshard_part_create(context, plan, rank, &part))) {
        reshard_status status = reshard_part_get_stats(part, &stats);
        if (!fuzz_passes(status) && status != RESHARD_ERR_RANGE)
            fuzz_find("a part that was made", reshard_error_text());
        if (!fuzz_passes(reshard_part_text(part, NULL, 0, &length)))
            fuzz_find("a part that was made", reshard_error_text());
    }
    reshard_part_destroy(part);
}

/* A refusal is fine beyond the bounds of docs/limits.md; a wrong plan never is. */
static void check_plan(reshard_plan *plan)
{
    reshard_plan_stats stats = {.size = sizeof stats};
    (void)fuzz_passes(reshard_plan_get_stats(plan, &stats, NULL));
    reshard_status status = reshard_plan_check(plan);
    if (!fuzz_passes(status) && status != RESHARD_ERR_RANGE && status != RESHARD_ERR_UNSUPPORTED)
        fuzz_find("a plan fails its check", reshard_error_text());
}

static void check_adjoint(reshard_plan *plan)
{
    reshard_plan *adjoint = NULL, *again = NULL;
    uint64_t digest[2], digest_again[2];
    if (!fuzz_passes(reshard_plan_adjoint(plan, &adjoint)))
        return;
    check_plan(adjoint);
    /* The adjoint of the adjoint is the plan. */
    if (fuzz_passes(reshard_plan_adjoint(adjoint, &again))) {
        rs_plan_digest(plan, digest);
        rs_plan_digest(again, digest_again);
        if (memcmp(digest, digest_again, sizeof digest) != 0)
            fuzz_find("the adjoint's adjoint", "is another plan");
    }
    reshard_plan_release(again);
    reshard_plan_release(adjoint);
}

static void run_case(reshard_context *context, const case_text *c)
{
    reshard_layout *layouts[2] = {NULL, NULL};
    reshard_plan *plan = NULL;
    int made = 1;
    for (int i = 0; made && i < 2; i++)
        made = fuzz_passes(
            reshard_layout_parse(context, c->lines[i + 1], c->ndim, c->shape, &layouts[i]));
    if (made && fuzz_passes(reshard_plan_create_simple(context, layouts[0], layouts[1], RESHARD_F32,
                                                       &c->options, &plan))) {
        int32_t ranks = rs_plan_forward(plan)->rank_count;
        int small = ranks <= RANKS_MAX && c->volume <= ELEMENTS_MAX;
        for (int32_t i = 0; i < (small ? ranks : 1); i++)
            check_part(context, plan, i);
        if (small) {
            check_plan(plan);
            check_adjoint(plan);
        }
    }
    reshard_plan_release(plan);
    reshard_layout_release(layouts[1]);
    reshard_layout_release(layouts[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_limits limits;
    case_text c = {.ndim = 0};
    char *text = malloc(size + 1);
    if (text == NULL)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    if (split_lines(text, &c)) {
        fuzz_limits_begin(&limits, BYTES_MAX, SECONDS_MAX, NULL, NULL);
        run_case(limits.context, &c);
        fuzz_limits_end(&limits);
    }
    free(text);
    return 0;
}
