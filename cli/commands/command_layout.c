/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_layout.c - `reshard layout`: prints who owns which box.
 *
 * The layout is asked only about ranks that are printed, one at a time, so a layout over 131,072
 * ranks costs no more than its forty lines.
 */
#include "cli/commands/commands.h"
#include "cli/common/drawing.h"
#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/json.h"
#include "cli/common/table.h"
#include "cli/common/work.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 64, ROWS_FIRST = 32, ROWS_LAST = 8, BOX_TEXT = 512 };

/* --all and --json list at most this many ranks; beyond that, one has to be chosen with --rank. */
enum { RANKS_LISTED_MAX = 1 << 22 };

typedef struct layout_values {
    const char *shape;
    int32_t rank;
    int all, json;
    cli_drawing drawing;
} layout_values;

static const cli_option options[] = {
    {"shape", CLI_TEXT, offsetof(layout_values, shape), "SHAPE", 1,
     "the tensor's shape: 10x7, 5, scalar"},
    {"rank", CLI_RANK, offsetof(layout_values, rank), "R", 0, "only the shards of this rank"},
    {"all", CLI_FLAG, offsetof(layout_values, all), NULL, 0, "print every row"},
    {"json", CLI_FLAG, offsetof(layout_values, json), NULL, 0, "one JSON object on one line"},
    CLI_DRAW_OPTION(layout_values),
    CLI_DRAWING_OPTIONS(layout_values),
};

/* ---- as JSON --------------------------------------------------------------------------------- */

static void write_piece(cli_json *json, const reshard_piece *piece)
{
    cli_json_begin_object(json, NULL);
    cli_json_integers(json, "offset", piece->box.ndim, piece->box.offset);
    cli_json_integers(json, "size", piece->box.ndim, piece->box.size);
    cli_json_integer(json, "at", piece->at);
    cli_json_integers(json, "strides", piece->box.ndim, piece->strides);
    cli_json_end_object(json);
}

static void write_shard(cli_json *json, const reshard_layout *layout, const reshard_shard *shard)
{
    int32_t ndim = cli_layout_info(layout).ndim;
    cli_json_begin_object(json, NULL);
    cli_json_integer(json, "rank", shard->rank);
    cli_json_integers(json, "offset", ndim, shard->offset);
    cli_json_integers(json, "size", shard->ndim, shard->shape);
    /* The size of a flat shard is that of its memory, so even a single box has to be listed. */
    if (shard->piece_count > 1 || shard->ndim != ndim) {
        cli_json_begin_list(json, "pieces");
        for (int64_t i = 0; i < shard->piece_count; i++)
            write_piece(json, &shard->pieces[i]);
        cli_json_end_list(json);
    }
    if (shard->partial) {
        cli_json_text(json, "partial", reshard_reduction_name(shard->reduction));
        cli_json_integer(json, "contributor", shard->contributor);
        cli_json_integer(json, "contributors", shard->contributor_count);
    }
    cli_json_end_object(json);
}

static reshard_status write_rank(cli_json *json, const reshard_layout *layout, int32_t rank)
{
    reshard_shards *shards = NULL;
    reshard_status status = reshard_layout_shards(layout, rank, &shards);
    if (status != RESHARD_OK)
        return status;
    for (int64_t i = 0; i < shards->count; i++)
        write_shard(json, layout, &shards->items[i]);
    reshard_shards_destroy(shards);
    return RESHARD_OK;
}

/* JSON is exact, so all pieces must be listable. Checking the first rank is enough, because in a
 * layout of cuts it has the most pieces. */
static reshard_status check_listable(const reshard_layout *layout, int32_t rank)
{
    reshard_shards *shards = NULL;
    int32_t asked = rank >= 0 ? rank : reshard_layout_rank_at(layout, 0);
    reshard_status status = reshard_layout_shards(layout, asked, &shards);
    if (status == RESHARD_OK)
        reshard_shards_destroy(shards);
    return status;
}

static reshard_status print_json(const reshard_layout *layout, const char *spec_text,
                                 const layout_values *values)
{
    cli_json json = {.stream = stdout};
    reshard_status status = check_listable(layout, values->rank);
    if (status != RESHARD_OK)
        return status;
    int32_t rank_count = cli_layout_info(layout).rank_count;
    cli_json_begin_object(&json, NULL);
    cli_json_integers(&json, "shape", cli_layout_info(layout).ndim, cli_layout_info(layout).shape);
    cli_json_integer(&json, "ranks", rank_count);
    cli_json_text(&json, "spec", spec_text);
    cli_json_begin_list(&json, "shards");
    if (values->rank >= 0)
        status = write_rank(&json, layout, values->rank);
    for (int32_t i = 0; values->rank < 0 && i < rank_count && status == RESHARD_OK; i++)
        status = write_rank(&json, layout, reshard_layout_rank_at(layout, i));
    cli_json_end_list(&json);
    cli_json_end_object(&json);
    putchar('\n');
    return status;
}

/* ---- as a table ------------------------------------------------------------------------------ */

typedef struct listing {
    const reshard_layout *layout;
    cli_table *table;
    int64_t volume;
    int has_partial, all;
    int64_t hidden; /* pieces of the current rank that are not listed */
} listing;

/* Beside a zero, the other extents may be so large that their product overflows; so look for zeros
 * first. */
static int64_t volume_of(int32_t ndim, const int64_t *extents)
{
    int64_t volume = 1;
    for (int32_t d = 0; d < ndim; d++) {
        if (extents[d] == 0)
            return 0;
    }
    for (int32_t d = 0; d < ndim; d++)
        volume *= extents[d];
    return volume;
}

static const char *box_text(int32_t ndim, const int64_t *offset, const int64_t *size,
                            char buffer[BOX_TEXT])
{
    int length = snprintf(buffer, BOX_TEXT, "[");
    for (int32_t d = 0; d < ndim; d++)
        length += snprintf(buffer + length, BOX_TEXT - (size_t)length, "%s%" PRId64 ":%" PRId64,
                           d == 0 ? "" : ", ", offset[d], offset[d] + size[d]);
    snprintf(buffer + length, BOX_TEXT - (size_t)length, "]");
    return buffer;
}

/* Whether item `index` of `count` is among those to print. */
static int is_shown(int64_t index, int64_t count, int all)
{
    return all || count <= ROWS_MAX || index < ROWS_FIRST || index >= count - ROWS_LAST;
}

static void add_gap(const listing *list, int64_t count, const char *what)
{
    cli_table_add_line(list->table, CLI_DIM, "  ... %" PRId64 " %s left out; --all prints them",
                       count - ROWS_FIRST - ROWS_LAST, what);
}

static void add_share(const listing *list, cli_style style, int64_t elements)
{
    cli_table_add(list->table, style, "%" PRId64, elements);
    double percent = list->volume != 0 ? 100.0 * (double)elements / (double)list->volume : 0;
    if (list->volume == 0)
        cli_table_add(list->table, style, "-");
    else if (percent > 0 && percent < 0.1)
        cli_table_add(list->table, style, "<0.1%%");
    else
        cli_table_add(list->table, style, "%.1f%%", percent);
}

static void add_pieces(const listing *list, const reshard_shard *shard)
{
    char box[BOX_TEXT], size[CLI_SHAPE_TEXT];
    for (int64_t i = 0; i < shard->piece_count; i++) {
        const reshard_piece *piece = &shard->pieces[i];
        if (i == ROWS_FIRST && !is_shown(i, shard->piece_count, list->all))
            add_gap(list, shard->piece_count, "pieces");
        if (!is_shown(i, shard->piece_count, list->all))
            continue;
        cli_table_add(list->table, CLI_PLAIN, "%s", "");
        cli_table_add(list->table, CLI_DIM, "  %s at %" PRId64,
                      box_text(piece->box.ndim, piece->box.offset, piece->box.size, box),
                      piece->at);
        cli_table_add(list->table, CLI_DIM, "%s",
                      cli_shape_text(piece->box.ndim, piece->box.size, size));
        add_share(list, CLI_DIM, volume_of(piece->box.ndim, piece->box.size));
        if (list->has_partial)
            cli_table_add(list->table, CLI_PLAIN, "%s", "");
    }
    if (list->hidden > 0)
        cli_table_add_line(list->table, CLI_DIM, "  ... %" PRId64 " pieces more", list->hidden);
}

static void add_shard(const listing *list, const reshard_shard *shard)
{
    char text[BOX_TEXT];
    int32_t ndim = cli_layout_info(list->layout).ndim;
    int64_t elements = volume_of(shard->ndim, shard->shape);
    cli_style style = elements == 0 ? CLI_DIM : CLI_PLAIN;
    cli_table_add(list->table, style, "%" PRId32, shard->rank);
    if (shard->piece_count > 1)
        cli_table_add(list->table, style, "%" PRId64 " pieces", shard->piece_count + list->hidden);
    else if (shard->piece_count == 1)
        cli_table_add(list->table, style, "%s",
                      box_text(ndim, shard->pieces[0].box.offset, shard->pieces[0].box.size, text));
    else if (shard->ndim == ndim)
        cli_table_add(list->table, style, "%s", box_text(ndim, shard->offset, shard->shape, text));
    else
        cli_table_add(list->table, style, "empty");
    cli_table_add(list->table, style, "%s", cli_shape_text(shard->ndim, shard->shape, text));
    add_share(list, style, elements);
    if (list->has_partial && shard->partial)
        cli_table_add(list->table, style, "%s, %" PRId32 " of %" PRId32,
                      reshard_reduction_name(shard->reduction), shard->contributor + 1,
                      shard->contributor_count);
    else if (list->has_partial)
        cli_table_add(list->table, style, "%s", "");
    if (shard->piece_count > 1)
        add_pieces(list, shard);
}

static reshard_status add_rank(listing *list, int32_t rank)
{
    reshard_shards *shards = NULL;
    int64_t piece_count = 0;
    reshard_status status = reshard_layout_shards(list->layout, rank, &shards);
    list->hidden = 0;
    if (status == RESHARD_ERR_RANGE) {
        status = reshard_layout_shards_head(list->layout, rank, ROWS_FIRST, &piece_count, &shards);
        list->hidden = piece_count - ROWS_FIRST;
    }
    if (status != RESHARD_OK)
        return status;
    if (shards->count == 0)
        cli_table_add_line(list->table, CLI_DIM, "rank %" PRId32 " takes no part", rank);
    for (int64_t i = 0; i < shards->count; i++) {
        if (is_shown(i, shards->count, list->all))
            add_shard(list, &shards->items[i]);
        else if (i == ROWS_FIRST)
            add_gap(list, shards->count, "shards");
    }
    reshard_shards_destroy(shards);
    return RESHARD_OK;
}

static reshard_status add_ranks(listing *list, int32_t rank)
{
    reshard_status status = RESHARD_OK;
    int32_t rank_count = cli_layout_info(list->layout).rank_count;
    if (rank >= 0)
        return add_rank(list, rank);
    for (int32_t i = 0; i < rank_count && status == RESHARD_OK; i++) {
        if (is_shown(i, rank_count, list->all)) {
            status = add_rank(list, reshard_layout_rank_at(list->layout, i));
        } else if (i == ROWS_FIRST) {
            add_gap(list, rank_count, "ranks");
            i = rank_count - ROWS_LAST - 1;
        }
    }
    return status;
}

static void add_titles(const listing *list)
{
    static const char *const titles[] = {"rank", "box", "size", "elements", "share", "partial"};
    for (int i = 0; i < 5 + list->has_partial; i++)
        cli_table_add(list->table, CLI_BOLD, "%s", titles[i]);
    cli_table_align(list->table, 1, CLI_LEFT);
    cli_table_align(list->table, 2, CLI_LEFT);
    if (list->has_partial)
        cli_table_align(list->table, 5, CLI_LEFT);
}

static int spec_is_partial(const reshard_spec *spec)
{
    reshard_spec_info info = {.size = sizeof info};
    (void)reshard_spec_get_info(spec, &info);
    int partial = 0;
    for (int32_t i = 0; i < info.cut_count; i++)
        partial |= info.cuts[i].placement.kind == RESHARD_PARTIAL;
    return partial;
}

static void print_header(const reshard_layout *layout, const char *spec_text, int is_drawn)
{
    char clipped[CLI_SPEC_SHOWN], shape[CLI_SHAPE_TEXT], facts[CLI_SHAPE_TEXT + 32];
    int32_t rank_count = cli_layout_info(layout).rank_count;
    const char *spec = cli_text_clip(spec_text, clipped);
    (void)snprintf(
        facts, sizeof facts, "shape %s, %" PRId32 " rank%s",
        cli_shape_text(cli_layout_info(layout).ndim, cli_layout_info(layout).shape, shape),
        rank_count, rank_count == 1 ? "" : "s");
    printf("%s%s%s%s%s\n\n", cli_style_begin(CLI_BOLD), spec, cli_style_end(CLI_BOLD),
           is_drawn ? cli_picture_gap(strlen(spec), strlen(facts)) : "  ", facts);
}

static reshard_status print_table(const reshard_layout *layout, const char *spec_text,
                                  const layout_values *values)
{
    int32_t ndim = cli_layout_info(layout).ndim;
    int has_partial = spec_is_partial(cli_layout_info(layout).spec);
    listing list = {.layout = layout,
                    .table = cli_table_create(5 + has_partial),
                    .volume = volume_of(ndim, cli_layout_info(layout).shape),
                    .has_partial = has_partial,
                    .all = values->all};
    add_titles(&list);
    reshard_status status = add_ranks(&list, values->rank);
    if (status == RESHARD_OK) {
        print_header(layout, spec_text, 0);
        cli_table_print(list.table);
    }
    cli_table_destroy(list.table);
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int check_values(const layout_values *values, const reshard_layout *layout)
{
    if (values->drawing.draw && (values->json || values->all || values->rank >= 0))
        return cli_fail(CLI_USAGE, "layout: --draw shows all ranks in one picture; leave out --%s",
                        values->json  ? "json"
                        : values->all ? "all"
                                      : "rank");
    if ((values->all || values->json) && values->rank < 0 &&
        cli_layout_info(layout).rank_count > RANKS_LISTED_MAX)
        return cli_fail(CLI_USAGE,
                        "layout: %" PRId32 " ranks; --all and --json list at most %d; "
                        "choose one with --rank",
                        cli_layout_info(layout).rank_count, RANKS_LISTED_MAX);
    return CLI_DONE;
}

static int print(const reshard_layout *layout, const char *spec_text, const layout_values *values,
                 const cli_picture *picture)
{
    reshard_status status = RESHARD_OK;
    if (picture->text != NULL) {
        print_header(layout, spec_text, 1);
        cli_picture_print(picture);
    } else if (values->json) {
        status = print_json(layout, spec_text, values);
    } else {
        status = print_table(layout, spec_text, values);
    }
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}

static int run(const cli_command *command, int argc, char **argv)
{
    layout_values values = {.rank = -1};
    const char *spec_argument = NULL;
    cli_work work = {0};
    cli_shape shape;
    reshard_layout *layout = NULL;
    char *spec_text = NULL;
    int code = cli_options_parse(command, argc, argv, &values, &spec_argument);
    if (code == CLI_DONE)
        code = cli_shape_read(values.shape, &shape);
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code == CLI_DONE)
        code = cli_layout_read(work.context, spec_argument, &shape, &layout);
    if (code == CLI_DONE)
        code = cli_layout_text(layout, &spec_text);
    if (code == CLI_DONE)
        code = check_values(&values, layout);
    cli_picture picture = {.layout = layout};
    if (code == CLI_DONE)
        code = cli_picture_make(&picture, &values.drawing, command->name);
    cli_work_settle(&work);
    if (code == CLI_DONE)
        code = cli_picture_save(&picture, values.drawing.svg);
    if (code == CLI_DONE)
        code = print(layout, spec_text, &values, &picture);
    cli_picture_release(&picture);
    free(spec_text);
    reshard_layout_release(layout);
    cli_work_end(&work);
    return code;
}

const cli_command cli_command_layout = {
    .name = "layout",
    .summary = "who owns which box of a tensor",
    .synopsis = "SPEC --shape SHAPE [--rank R] [--all] [--json]\n"
                "                 [--draw [--ascii]] [--svg FILE] [--slice DIM=INDEX]",
    .description =
        "Prints what each rank owns: the box of the tensor, the shape of the local buffer, its\n"
        "number of elements and its share of the tensor. If a shard has several pieces, they are\n"
        "listed below it, each with the element of the buffer where it begins. With more than 64\n"
        "ranks, the first 32 and the last 8 are printed; with too many pieces, the first 32 and\n"
        "their number. SPEC may be @FILE to read it from a file.\n"
        "\n"
        "--draw prints a picture instead: boxes with the ranks that hold them, as wide as the\n"
        "window, with the indices of the cuts beside them. It shows one to three dims; if more\n"
        "are cut, --slice chooses an index of the others. --svg writes such a picture to a file.\n",
    .operand = "SPEC",
    CLI_OPTIONS(options),
    .examples = "  reshard layout '4: S(0)' --shape 10x7\n"
                "  reshard layout 'tp=4[3,1,0,2]: S(1)' --shape 10x7 --json\n"
                "  reshard layout 'dp=2,tp=4: R, S(-1)' --shape 4096x4096 --rank 5\n"
                "  reshard layout 'dp=2,tp=4: R, S(-1)' --shape 4096x4096 --draw\n",
    .run = run,
};
