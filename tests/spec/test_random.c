/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random specs by the grammar, with spaces at random: they parse, and what they print parses to
 * what prints alike. Their texts with bytes changed give a spec or an error, and nothing worse. A
 * failure prints text and seed.
 */
#include "spec_case.h"
#include "tests/support/random.h"
#include "text/text.h"

#include <inttypes.h>

enum { TEXT_BYTES = 8192, CASES = 20000 };

typedef struct spec_writer {
    draw_state draw;
    rs_text text;
    char buffer[TEXT_BYTES];
} spec_writer;

static void open_writer(spec_writer *writer, uint64_t seed)
{
    draw_seed(&writer->draw, seed);
    rs_text_init(&writer->text, writer->buffer, sizeof writer->buffer);
}

static void put_space(spec_writer *writer)
{
    static const char *const spaces[] = {" ", "  ", "\t", "\n", "\r\n"};
    if (draw_chance(&writer->draw, 10))
        rs_text_add(&writer->text, "%s", spaces[draw_below(&writer->draw, 5)]);
}

static void put(spec_writer *writer, const char *token)
{
    put_space(writer);
    rs_text_add(&writer->text, "%s", token);
    put_space(writer);
}

static void put_number(spec_writer *writer, int64_t number)
{
    put_space(writer);
    rs_text_add(&writer->text, "%" PRId64, number);
    put_space(writer);
}

static void put_token(spec_writer *writer, const char *before, int64_t number)
{
    put(writer, before);
    put_number(writer, number);
}

/* ---- meshes and cuts ------------------------------------------------------------------------- */

enum { AXES_DRAWN_MAX = 4 };

typedef struct drawn_mesh {
    int32_t axis_count;
    int32_t sizes[AXES_DRAWN_MAX];
    bool named[AXES_DRAWN_MAX];
} drawn_mesh;

static void put_ranks(spec_writer *writer, int64_t size)
{
    int32_t ranks[1296];
    int64_t step = draw_between(&writer->draw, 1, 3);
    int64_t first = draw_below(&writer->draw, 5);
    if (draw_chance(&writer->draw, 30)) {
        put_token(writer, "[", first);
        put_token(writer, "..", first + step * (size - 1) + draw_below(&writer->draw, step));
        if (step != 1 || draw_chance(&writer->draw, 50))
            put_token(writer, "/", step);
        put(writer, "]");
        return;
    }
    for (int64_t i = 0; i < size; i++)
        ranks[i] = (int32_t)(first + i * step);
    if (draw_chance(&writer->draw, 60))
        draw_shuffle(&writer->draw, (int32_t)size, ranks);
    for (int64_t i = 0; i < size; i++)
        put_token(writer, i == 0 ? "[" : ",", ranks[i]);
    put(writer, "]");
}

static void put_mesh(spec_writer *writer, drawn_mesh *mesh)
{
    static const char *const names[AXES_DRAWN_MAX] = {"dp", "tp", "S0", "boxes"};
    int64_t size = 1;
    mesh->axis_count = (int32_t)draw_between(&writer->draw, 1, AXES_DRAWN_MAX);
    for (int32_t i = 0; i < mesh->axis_count; i++) {
        mesh->sizes[i] = (int32_t)draw_between(&writer->draw, 1, 6);
        mesh->named[i] = draw_chance(&writer->draw, 60);
        size *= mesh->sizes[i];
        if (i > 0)
            put(writer, ",");
        if (mesh->named[i]) {
            put(writer, names[i]);
            put(writer, "=");
        }
        put_number(writer, mesh->sizes[i]);
    }
    if (draw_chance(&writer->draw, 50))
        put_ranks(writer, size);
    put(writer, ":");
}

static void put_list(spec_writer *writer, const char *open, int64_t count, bool limited)
{
    for (int64_t i = 0; i < count; i++) {
        put_token(writer, i == 0 ? open : ",", draw_below(&writer->draw, 100));
        if (limited && draw_chance(&writer->draw, 30))
            put_token(writer, "|", draw_between(&writer->draw, 1, 9));
    }
}

static void put_shard(spec_writer *writer, int32_t axis_size)
{
    if (draw_chance(&writer->draw, 20)) {
        put_token(writer, "S", draw_between(&writer->draw, -8, 7));
        return;
    }
    put(writer, "S");
    put(writer, "(");
    if (draw_chance(&writer->draw, 20))
        put(writer, "flat");
    else
        put_number(writer, draw_between(&writer->draw, -8, 7));
    /* max= limits how many sizes there are, so it is drawn before them. */
    int64_t max = draw_chance(&writer->draw, 60) ? draw_between(&writer->draw, 1, 4) : 0;
    switch (draw_below(&writer->draw, 6)) {
    case 0:
        break;
    case 1:
        put(writer, "~");
        break;
    case 2:
        put_list(writer, ";", draw_between(&writer->draw, 1, 5), true);
        break;
    case 3:
        put_token(writer, "*", draw_between(&writer->draw, 1, 4));
        break;
    case 4:
        put_list(writer, "=", max != 0 && max < axis_size ? max : axis_size, false);
        break;
    default:
        put_token(writer, "/", draw_between(&writer->draw, 1, 4));
        break;
    }
    bool max_first = draw_chance(&writer->draw, 50);
    if (max_first && max != 0)
        put_token(writer, ", max=", max);
    if (draw_chance(&writer->draw, 40))
        put_token(writer, ", unit=", draw_between(&writer->draw, 1, 4));
    if (!max_first && max != 0)
        put_token(writer, ", max=", max);
    put(writer, ")");
}

static void put_coordinates(spec_writer *writer, int32_t axis_size)
{
    int32_t coordinates[6];
    int32_t count = (int32_t)draw_between(&writer->draw, 1, axis_size);
    for (int32_t i = 0; i < axis_size; i++)
        coordinates[i] = i;
    draw_shuffle(&writer->draw, axis_size, coordinates);
    for (int32_t i = 0; i < count; i++)
        put_token(writer, i == 0 ? "A(" : ",", coordinates[i]);
    put(writer, ")");
}

static void put_placement(spec_writer *writer, int32_t axis_size, const char *partial)
{
    int64_t kind = draw_below(&writer->draw, 8);
    if (kind == 0)
        put(writer, "R");
    else if (kind == 1)
        put(writer, partial);
    else if (kind == 2)
        put_coordinates(writer, axis_size);
    else
        put_shard(writer, axis_size);
}

static void put_cuts(spec_writer *writer)
{
    static const char *const names[AXES_DRAWN_MAX] = {"dp", "tp", "S0", "boxes"};
    static const char *const partials[] = {"P",         "P(avg)", "P(prod)",
                                           "P ( min )", "P(max)", "P(sum)"};
    drawn_mesh mesh;
    put_mesh(writer, &mesh);
    int32_t axes[AXES_DRAWN_MAX] = {0, 1, 2, 3};
    const char *partial = partials[draw_below(&writer->draw, 6)];
    bool with_axes = draw_chance(&writer->draw, 50);
    int32_t count = mesh.axis_count;
    if (with_axes) {
        draw_shuffle(&writer->draw, mesh.axis_count, axes);
        count = (int32_t)draw_between(&writer->draw, 1, mesh.axis_count);
    }
    for (int32_t i = 0; i < count; i++) {
        if (i > 0)
            put(writer, ",");
        put_placement(writer, mesh.sizes[axes[i]], partial);
        if (!with_axes)
            continue;
        put(writer, "@");
        if (mesh.named[axes[i]] && draw_chance(&writer->draw, 80))
            put(writer, names[axes[i]]);
        else
            put_number(writer, axes[i]);
    }
}

/* ---- boxes ----------------------------------------------------------------------------------- */

/* A box of the given size somewhere in the shape. */
static void put_box(spec_writer *writer, int32_t ndim, const int64_t *shape, const int64_t *size)
{
    put(writer, "[");
    for (int32_t d = 0; d < ndim; d++) {
        int64_t from = draw_between(&writer->draw, 0, shape[d] - size[d]);
        if (d > 0)
            put(writer, ",");
        put_number(writer, from);
        put_token(writer, ":", from + size[d]);
    }
    put(writer, "]");
}

/* One piece, or two that lie beside each other along a dimension of the buffer. */
static void put_listed_shard(spec_writer *writer, int32_t ndim, const int64_t *shape)
{
    int64_t size[3] = {0, 0, 0};
    put_number(writer, draw_below(&writer->draw, 4));
    for (int32_t d = 0; d < ndim; d++)
        size[d] = draw_between(&writer->draw, draw_chance(&writer->draw, 10) ? 0 : 1, shape[d]);
    int64_t form = draw_below(&writer->draw, 4);
    put_box(writer, ndim, shape, size);
    if (form == 0)
        return;
    if (form == 1 || ndim == 0) {
        put(writer, "+");
        put_box(writer, ndim, shape, size);
        return;
    }
    int64_t volume = 1;
    for (int32_t d = 0; d < ndim; d++)
        volume *= size[d];
    if (form == 2) {
        put_token(writer, "@", 0);
        for (int32_t d = 1; d < ndim && ndim != 1; d++)
            put_token(writer, ",", 0);
        put(writer, "+");
        put_box(writer, ndim, shape, size);
        int64_t along = draw_below(&writer->draw, ndim);
        for (int32_t d = 0; d < ndim; d++)
            put_token(writer, d == 0 ? "@" : ",", d == along ? size[d] : 0);
        return;
    }
    put_token(writer, "@", volume);
    put(writer, "+");
    put_box(writer, ndim, shape, size);
    put_token(writer, "@", 0);
}

static void put_boxes(spec_writer *writer)
{
    int32_t ndim = (int32_t)draw_below(&writer->draw, 4);
    int64_t shape[3];
    put(writer, draw_chance(&writer->draw, 50) ? "boxes " : "cover ");
    if (ndim == 0)
        put(writer, "scalar");
    for (int32_t d = 0; d < ndim; d++) {
        shape[d] = draw_between(&writer->draw, 1, 9);
        if (d > 0)
            put(writer, "x");
        put_number(writer, shape[d]);
    }
    put(writer, ":");
    for (int64_t left = draw_between(&writer->draw, 1, 6); left > 0; left--) {
        put_listed_shard(writer, ndim, shape);
        rs_text_add(&writer->text, " ");
    }
}

static void write_spec(spec_writer *writer, uint64_t seed)
{
    open_writer(writer, seed);
    if (draw_chance(&writer->draw, 70))
        put_cuts(writer);
    else
        put_boxes(writer);
    assert_true(writer->text.length < sizeof writer->buffer);
}

/* ---- properties ------------------------------------------------------------------------------ */

/* Text -> spec -> text -> spec -> text: the two texts are equal. */
static void expect_round_trip(const char *text, uint64_t seed, bool must_parse)
{
    reshard_spec *spec = NULL;
    reshard_spec *again = NULL;
    if (reshard_spec_parse(NULL, text, &spec) != RESHARD_OK) {
        if (must_parse)
            fail_msg("seed %" PRIu64 ": \"%s\": %s", seed, text, reshard_error_text());
        assert_int_not_equal(reshard_error_text()[0], '\0');
        return;
    }
    char *printed = spec_case_text(spec);
    if (reshard_spec_parse(NULL, printed, &again) != RESHARD_OK)
        fail_msg("seed %" PRIu64 ": \"%s\" prints as \"%s\": %s", seed, text, printed,
                 reshard_error_text());
    char *printed_again = spec_case_text(again);
    if (strcmp(printed, printed_again) != 0)
        fail_msg("seed %" PRIu64 ": \"%s\" prints as \"%s\", which prints as \"%s\"", seed, text,
                 printed, printed_again);
    reshard_spec_release(spec);
    reshard_spec_release(again);
    free(printed);
    free(printed_again);
}

static void test_random__round_trip(void **state)
{
    (void)state;
    static spec_writer writer;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        write_spec(&writer, seed);
        expect_round_trip(writer.buffer, seed, true);
    }
}

static size_t mutate(draw_state *draw, char *text, size_t length)
{
    static const char bytes[] = "0123456789[]():,;@+-*/=~|.xRPASflatunimxboxescover \n\x80";
    size_t place = (size_t)draw_below(draw, (int64_t)length);
    switch (draw_below(draw, 4)) {
    case 0: /* another byte of the language */
        text[place] = bytes[draw_below(draw, (int64_t)sizeof bytes)];
        return length;
    case 1: /* any byte */
        text[place] = (char)(draw_below(draw, 256) - 128);
        return length;
    case 2: /* one byte less */
        memmove(text + place, text + place + 1, length - place - 1);
        return length - 1;
    default: { /* a stretch twice */
        size_t stretch = (size_t)draw_between(draw, 1, 20);
        if (stretch > length - place)
            stretch = length - place;
        memmove(text + place + stretch, text + place, length - place);
        return length + stretch;
    }
    }
}

static void test_random__mutations(void **state)
{
    (void)state;
    static spec_writer writer;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        write_spec(&writer, seed);
        size_t length = writer.text.length;
        for (int64_t left = draw_between(&writer.draw, 1, 3); left > 0 && length > 0; left--)
            length = mutate(&writer.draw, writer.buffer, length);
        writer.buffer[length] = '\0';
        char *copy = spec_case_copy(writer.buffer);
        expect_round_trip(copy, seed, false);
        free(copy);
    }
}

static void test_random__noise(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        draw_state draw;
        char text[64];
        draw_seed(&draw, seed);
        size_t length = (size_t)draw_below(&draw, (int64_t)sizeof text);
        for (size_t i = 0; i < length; i++)
            text[i] = (char)(draw_below(&draw, 256) - 128);
        text[length] = '\0';
        expect_round_trip(text, seed, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random__round_trip),
        cmocka_unit_test(test_random__mutations),
        cmocka_unit_test(test_random__noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
