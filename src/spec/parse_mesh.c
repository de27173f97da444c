/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse_mesh.c - parses meshes: axis { "," axis } [ "[" ranks "]" ] ":".
 *
 * Ranks are read as runs (first, step, count), and a run that continues the one before is joined to
 * it. A single run is never expanded. Several runs are, but only after their total count is known
 * to be the size of the mesh.
 */
#include "base/context.h"
#include "base/limits.h"
#include "spec/build.h"

#include <inttypes.h>
#include <string.h>

typedef struct rank_run {
    int64_t first;
    int64_t step;
    int64_t count;
} rank_run;

typedef struct mesh_parser {
    reshard_context *context;
    rs_scan *scan;
    rs_arena *scratch;
    int32_t axis_count;
    const char *names[RESHARD_AXES_MAX];
    int32_t sizes[RESHARD_AXES_MAX];
    int64_t size;
    rank_run *runs;
    int64_t run_count;
    int64_t run_capacity;
} mesh_parser;

/* ---- axes ------------------------------------------------------------------------------------ */

static reshard_status parse_axis_name(mesh_parser *parser, const char **out_name)
{
    *out_name = NULL;
    if (!rs_scan_at_letter(parser->scan)) {
        if (!rs_scan_at_digit(parser->scan))
            return rs_scan_expected(parser->scan, "an axis: a size, or a name, \"=\" and a size");
        return RESHARD_OK;
    }
    rs_slice word = rs_scan_word(parser->scan);
    char *name = rs_arena_allocate(parser->scratch, word.count + 1);
    if (name == NULL)
        return rs_allocation_status();
    memcpy(name, word.bytes, word.count);
    name[word.count] = '\0';
    *out_name = name;
    return rs_scan_expect(parser->scan, '=');
}

static reshard_status parse_axis(mesh_parser *parser)
{
    rs_scan *scan = parser->scan;
    size_t start = rs_scan_here(scan);
    const char *name = NULL;
    int64_t size = 0;
    reshard_status status = parse_axis_name(parser, &name);
    size_t size_start = rs_scan_here(scan);
    if (status == RESHARD_OK)
        status = rs_scan_number(scan, &size);
    if (status != RESHARD_OK)
        return status;
    if (parser->axis_count == RESHARD_AXES_MAX)
        return rs_scan_fail(scan, start, RESHARD_ERR_RANGE, "more than %d axes", RESHARD_AXES_MAX);
    if (size < 1 || size > INT32_MAX)
        return rs_scan_fail(scan, size_start, RESHARD_ERR_RANGE,
                            "an axis of size %" PRId64 ", which is not between 1 and 2^31-1", size);
    parser->size *= size; /* both factors are below 2^31 */
    if (parser->size > INT32_MAX)
        return rs_scan_fail(scan, size_start, RESHARD_ERR_RANGE,
                            "a mesh of more than 2^31-1 ranks");
    parser->names[parser->axis_count] = name;
    parser->sizes[parser->axis_count] = (int32_t)size;
    parser->axis_count++;
    return RESHARD_OK;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static reshard_status parse_rank(mesh_parser *parser, int64_t *out_rank)
{
    size_t start = rs_scan_here(parser->scan);
    if (!rs_scan_at_digit(parser->scan))
        return rs_scan_expected(parser->scan, "a rank");
    reshard_status status = rs_scan_number(parser->scan, out_rank);
    if (status == RESHARD_OK && *out_rank > INT32_MAX)
        return rs_scan_fail(parser->scan, start, RESHARD_ERR_RANGE,
                            "rank %" PRId64 " is beyond 2^31-1", *out_rank);
    return status;
}

/* Parses r, a..b or a..b/step. */
static reshard_status parse_item(mesh_parser *parser, rank_run *out_run)
{
    rs_scan *scan = parser->scan;
    size_t start = rs_scan_here(scan);
    int64_t first = 0;
    int64_t last = 0;
    int64_t step = 1;
    reshard_status status = parse_rank(parser, &first);
    if (status != RESHARD_OK)
        return status;
    *out_run = (rank_run){first, 1, 1};
    if (!rs_scan_accept_dots(scan))
        return RESHARD_OK;
    status = parse_rank(parser, &last);
    if (status != RESHARD_OK)
        return status;
    if (last < first)
        return rs_scan_fail(scan, start, RESHARD_ERR_INVALID,
                            "ranks %" PRId64 "..%" PRId64 " end before they begin", first, last);
    if (rs_scan_accept(scan, '/')) {
        size_t step_start = rs_scan_here(scan);
        status = rs_scan_number(scan, &step);
        if (status == RESHARD_OK && step < 1)
            return rs_scan_fail(scan, step_start, RESHARD_ERR_RANGE, "a step of 0");
        if (status != RESHARD_OK)
            return status;
    }
    *out_run = (rank_run){first, step, (last - first) / step + 1};
    if (out_run->count == 1)
        out_run->step = 1; /* the step is larger than the range and need not fit int32_t */
    return RESHARD_OK;
}

/* Appends `next` to `run` and returns true if it continues the run. A run of one rank has no step
 * yet. */
static bool join_run(rank_run *run, const rank_run *next)
{
    int64_t gap = next->first - (run->first + (run->count - 1) * run->step);
    if (gap < 1 || (run->count > 1 && gap != run->step) || (next->count > 1 && gap != next->step))
        return false;
    run->step = gap;
    run->count += next->count;
    return true;
}

static reshard_status add_run(mesh_parser *parser, const rank_run *run)
{
    if (parser->run_count > 0 && join_run(&parser->runs[parser->run_count - 1], run))
        return RESHARD_OK;
    reshard_status status = rs_grow(parser->context, &parser->runs, &parser->run_capacity,
                                    parser->run_count + 1, sizeof *parser->runs);
    if (status == RESHARD_OK)
        parser->runs[parser->run_count++] = *run;
    return status;
}

static reshard_status parse_ranks(mesh_parser *parser, size_t start)
{
    int64_t count = 0;
    do {
        rank_run run;
        size_t item_start = rs_scan_here(parser->scan);
        reshard_status status = parse_item(parser, &run);
        if (status != RESHARD_OK)
            return status;
        count += run.count;
        if (count > parser->size)
            return rs_scan_fail(parser->scan, item_start, RESHARD_ERR_INVALID,
                                "%" PRId64 " or more ranks for a mesh of %" PRId64, count,
                                parser->size);
        status = add_run(parser, &run);
        if (status != RESHARD_OK)
            return status;
    } while (rs_scan_accept(parser->scan, ','));
    if (!rs_scan_accept(parser->scan, ']'))
        return rs_scan_expected(parser->scan, "\",\" or \"]\"");
    if (count != parser->size)
        return rs_scan_fail(parser->scan, start, RESHARD_ERR_INVALID,
                            "%" PRId64 " ranks for a mesh of %" PRId64, count, parser->size);
    if (parser->run_count > 1 && parser->size > RS_MESH_LISTED_MAX)
        return rs_scan_fail(parser->scan, start, RESHARD_ERR_RANGE,
                            "%" PRId64 " ranks that are not one range; at most %" PRId64
                            " are possible",
                            parser->size, RS_MESH_LISTED_MAX);
    return RESHARD_OK;
}

static const int32_t *expand_runs(mesh_parser *parser)
{
    int32_t *ranks = rs_arena_allocate_array(parser->scratch, (size_t)parser->size, sizeof *ranks);
    if (ranks == NULL)
        return NULL;
    int64_t position = 0;
    for (int64_t i = 0; i < parser->run_count; i++) {
        for (int64_t k = 0; k < parser->runs[i].count; k++)
            ranks[position++] = (int32_t)(parser->runs[i].first + k * parser->runs[i].step);
    }
    return ranks;
}

/* ---- mesh ------------------------------------------------------------------------------------ */

static reshard_status build(mesh_parser *parser, reshard_mesh **out_mesh)
{
    rs_ranks ranks = {.first = 0, .step = 1};
    if (parser->run_count == 1) {
        ranks.first = (int32_t)parser->runs[0].first;
        ranks.step = (int32_t)parser->runs[0].step;
    } else if (parser->run_count > 1) {
        ranks.listed = expand_runs(parser);
        if (ranks.listed == NULL)
            return rs_allocation_status();
    }
    return rs_mesh_build(parser->context, parser->axis_count, parser->names, parser->sizes, &ranks,
                         out_mesh);
}

reshard_status rs_parse_mesh(reshard_context *context, rs_scan *scan, rs_arena *scratch, bool alone,
                             reshard_mesh **out_mesh)
{
    mesh_parser parser = {.context = context, .scan = scan, .scratch = scratch, .size = 1};
    reshard_mesh *mesh = NULL;
    size_t start = rs_scan_here(scan);
    reshard_status status;
    do {
        status = parse_axis(&parser);
        if (status != RESHARD_OK)
            goto out;
    } while (rs_scan_accept(scan, ','));
    size_t ranks_start = rs_scan_here(scan);
    bool has_ranks = rs_scan_accept(scan, '[');
    if (has_ranks)
        status = parse_ranks(&parser, ranks_start);
    if (status != RESHARD_OK)
        goto out;
    if (alone && rs_scan_peek(scan) >= 0) {
        status = rs_scan_expected(scan, has_ranks ? "the end" : "\",\", \"[\" or the end");
        goto out;
    }
    if (!alone && !rs_scan_accept(scan, ':')) {
        status = rs_scan_expected(scan, has_ranks ? "\":\"" : "\",\", \"[\" or \":\"");
        goto out;
    }
    status = build(&parser, &mesh);
    if (status != RESHARD_OK) {
        status = rs_scan_fail_within(scan, has_ranks ? ranks_start : start, status);
        goto out;
    }
    *out_mesh = mesh;
out:
    rs_release(context, parser.runs);
    return status;
}

reshard_status reshard_mesh_parse(reshard_context *context, const char *text,
                                  reshard_mesh **out_mesh)
{
    rs_scan scan;
    rs_arena scratch;
    reshard_status status = rs_scan_init(&scan, "mesh", text);
    if (status != RESHARD_OK)
        return status;
    rs_arena_init(&scratch, context);
    status = rs_parse_mesh(context, &scan, &scratch, true, out_mesh);
    rs_arena_release(&scratch);
    return status;
}
