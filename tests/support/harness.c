/* SPDX-License-Identifier: Apache-2.0 */
/*
 * harness.c - random cases; see harness.h.
 *
 * Shrinking is greedy: of a failing case, one change after another is tried (a shorter extent, a
 * cut or a box less, an option less), and kept when the case still fails, whatever it says then.
 */
#include "tests/support/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

double harness_scale(void)
{
    const char *text = getenv("RESHARD_TEST_SCALE");
    return text != NULL ? strtod(text, NULL) : 1.0;
}

uint64_t harness_seed(void)
{
    const char *text = getenv("RESHARD_TEST_SEED");
    return text != NULL ? strtoull(text, NULL, 0) : 20240;
}

int64_t harness_count(int64_t count)
{
    double scaled = (double)count * harness_scale();
    return scaled > 1.0 ? (int64_t)scaled : 1;
}

char *harness_case_text(const harness_case *given)
{
    static const char *const labels[2] = {"", "\n  to "};
    size_t capacity = 256 + 2 * (size_t)ORACLE_TEXT_MAX;
    char *text = malloc(capacity);
    char *spec = malloc(ORACLE_TEXT_MAX);
    if (text == NULL || spec == NULL)
        abort();
    size_t length = (size_t)snprintf(text, capacity, "  --shape ");
    for (int32_t d = 0; d < given->ndim; d++)
        length += (size_t)snprintf(text + length, capacity - length, "%s%lld", d > 0 ? "x" : "",
                                   (long long)given->shape[d]);
    if (given->ndim == 0)
        length += (size_t)snprintf(text + length, capacity - length, "scalar");
    length += (size_t)snprintf(text + length, capacity - length, "\n  spec ");
    for (int32_t i = 0; i < given->spec_count; i++) {
        oracle_spec_text(&given->specs[i], spec);
        length += (size_t)snprintf(text + length, capacity - length, "%s'%s'", labels[i], spec);
    }
    free(spec);
    return text;
}

/* ---- shrinking ------------------------------------------------------------------------------- */

static bool shrink_shape(harness_case *smaller, int32_t change)
{
    int32_t d = change / 2;
    if (smaller->shape[d] == 0)
        return false;
    smaller->shape[d] -= change % 2 == 0 ? (smaller->shape[d] + 1) / 2 : 1;
    return true;
}

static bool shrink_cut(oracle_spec *spec, int32_t index, int32_t change)
{
    oracle_cut *cut = &spec->cuts[index];
    oracle_cut before = *cut;
    switch (change) {
    case 0:
        memset(cut, 0, sizeof *cut);
        cut->axis = before.axis;
        break;
    case 1:
        cut->max = 0;
        break;
    case 2:
        cut->unit = 0;
        break;
    case 3:
        cut->rule = RESHARD_CHUNK;
        cut->count = cut->kind == RESHARD_AT ? cut->count : 0;
        break;
    case 4:
        cut->factor = cut->factor > 1 ? 1 : cut->factor;
        break;
    case 5:
        cut->dim = cut->dim < 0 && cut->dim != RESHARD_DIM_FLAT ? 0 : cut->dim;
        break;
    default:
        memset(cut->part_max, 0, sizeof cut->part_max);
        break;
    }
    return memcmp(&before, cut, sizeof before) != 0;
}

static bool shrink_mesh(oracle_spec *spec, int32_t change)
{
    if (change == 0) {
        bool changed = !spec->default_ranks;
        spec->default_ranks = true;
        return changed;
    }
    if (spec->sizes[change - 1] == 1)
        return false;
    spec->sizes[change - 1]--;
    return true;
}

static bool shrink_listed(oracle_spec *spec, int32_t index)
{
    if (index >= spec->listed_count)
        return false;
    spec->listed_count--;
    for (int32_t i = index; i < spec->listed_count; i++)
        spec->listed[i] = spec->listed[i + 1];
    return true;
}

enum { CUT_CHANGES = 7, MESH_CHANGES = 1 + ORACLE_AXES_MAX };
enum { SPEC_CHANGES = CUT_CHANGES * ORACLE_AXES_MAX + MESH_CHANGES };

/* The change-th smaller case; false when there is none of that number, *out_last when none of a
 * higher one. */
static bool shrink(const harness_case *given, int32_t change, harness_case *smaller, bool *out_last)
{
    *smaller = *given;
    *out_last = false;
    if (change < 2 * given->ndim)
        return shrink_shape(smaller, change);
    change -= 2 * given->ndim;
    for (int32_t i = 0; i < given->spec_count; i++) {
        oracle_spec *spec = &smaller->specs[i];
        int32_t changes = spec->kind == RESHARD_SPEC_CUTS ? SPEC_CHANGES : ORACLE_LISTED_MAX;
        if (change >= changes) {
            change -= changes;
            continue;
        }
        if (spec->kind != RESHARD_SPEC_CUTS)
            return shrink_listed(spec, change);
        if (change < MESH_CHANGES)
            return change <= spec->axis_count && shrink_mesh(spec, change);
        change -= MESH_CHANGES;
        return change / CUT_CHANGES < spec->cut_count &&
               shrink_cut(spec, change / CUT_CHANGES, change % CUT_CHANGES);
    }
    *out_last = true;
    return false;
}

static void shrink_all(harness_case *failing, harness_check_fn check, words *said)
{
    harness_case *smaller = malloc(sizeof *smaller);
    bool last = false;
    if (smaller == NULL)
        abort();
    for (int32_t change = 0, tries = 0; !last && tries < 2000; change++, tries++) {
        words new_words = {""};
        if (shrink(failing, change, smaller, &last) && !check(smaller, &new_words)) {
            *failing = *smaller;
            *said = new_words;
            change = -1;
        }
    }
    free(smaller);
}

/* ---- running --------------------------------------------------------------------------------- */

static void report(const char *name, const harness_case *failing, const words *said)
{
    char *text = harness_case_text(failing);
    print_error("%s: %s\n%s\n  RESHARD_TEST_SEED=%llu RESHARD_TEST_SCALE=0\n", name, said->text,
                text, (unsigned long long)failing->seed);
    free(text);
    fail_msg("%s", said->text);
}

void harness_check(const char *name, const harness_case *given, harness_check_fn check)
{
    words said = {""};
    if (!check(given, &said))
        report(name, given, &said);
}

void harness_run(const char *name, int64_t count, harness_generate_fn generate,
                 harness_check_fn check)
{
    static harness_case made; /* a failing test leaves by longjmp */
    int64_t scaled = harness_count(count);
    for (int64_t i = 0; i < scaled; i++) {
        draw_state draw;
        words said = {""};
        memset(&made, 0, sizeof made);
        made.seed = harness_seed() + (uint64_t)i;
        draw_seed(&draw, made.seed);
        generate(&draw, &made);
        if (!check(&made, &said)) {
            print_error("%s: seed %llu before shrinking: %s\n", name, (unsigned long long)made.seed,
                        said.text);
            shrink_all(&made, check, &said);
            report(name, &made, &said);
        }
    }
}
