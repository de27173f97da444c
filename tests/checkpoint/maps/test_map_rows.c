/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_map_rows.c - what maps mean, row by row: a map, the tensors of one side, and the tensors of
 * the other side, element by element. The expected elements were worked out by hand.
 */
#include "map_case.h"
#include "tests/support/check.h"

#include <stdio.h>
#include <string.h>

typedef struct row {
    const char *name, *map, *read, *sets;
    reshard_map_side side;
    const char *expected;
} row;

static void run_rows(const row *rows, size_t count)
{
    static char text[MAP_CASE_BYTES];
    for (size_t i = 0; i < count; i++) {
        map_case_run(rows[i].map, rows[i].side, rows[i].read, rows[i].sets, text, sizeof text);
        if (strcmp(text, rows[i].expected) != 0)
            fail_msg("%s: got\n%sexpected\n%s", rows[i].name, text, rows[i].expected);
    }
}

#define LEFT RESHARD_MAP_LEFT
#define RIGHT RESHARD_MAP_RIGHT

/* ---- axes ------------------------------------------------------------------------------------ */

static const row axis_rows[] = {
    {"rename", "a.weight = b.w", "a.weight 2x2", NULL, LEFT,
     "b.w 2x2 f32: a.weight0 a.weight1 a.weight2 a.weight3\n"},
    {"rename back", "a.weight = b.w", "b.w f16 3", NULL, RIGHT, "a.weight 3 f16: b.w0 b.w1 b.w2\n"},
    {"transpose", "a [i j] = b [j i]", "a 2x3", NULL, LEFT, "b 3x2 f32: a0 a3 a1 a4 a2 a5\n"},
    {"transpose back", "a [i j] = b [j i]", "b 3x2", NULL, RIGHT, "a 2x3 f32: b0 b2 b4 b1 b3 b5\n"},
    {"rows join", "q [a i], k [b i] = qk [(a + b) i]", "q 1x2, k 2x2", NULL, LEFT,
     "qk 3x2 f32: q0 q1 k0 k1 k2 k3\n"},
    {"rows apart", "let b = 2\nq [a i], k [b i] = qk [(a + b) i]", "qk 3x2", NULL, RIGHT,
     "q 1x2 f32: qk0 qk1\nk 2x2 f32: qk2 qk3 qk4 qk5\n"},
    {"columns join", "{q,k} [i f] = qk [i (f + f)]", "q 2x2, k 2x2", NULL, LEFT,
     "qk 2x4 f32: q0 q1 k0 k1 q2 q3 k2 k3\n"},
    {"columns apart", "{q,k} [i f] = qk [i (f + f)]", "qk 2x4", NULL, RIGHT,
     "q 2x2 f32: qk0 qk1 qk4 qk5\nk 2x2 f32: qk2 qk3 qk6 qk7\n"},
    /* Two groups of two query heads, a key and a value head, each of one row. */
    {"groups join",
     "let g = $groups, h = 1\nq [(g q h) ..], {k,v} [(g h) ..] = qkv [(g (q h + h + h)) ..]",
     "q 4, k 2, v 2", "groups=2", LEFT, "qkv 8 f32: q0 q1 k0 v0 q2 q3 k1 v1\n"},
    {"groups apart",
     "let g = $groups, h = 1\nq [(g q h) ..], {k,v} [(g h) ..] = qkv [(g (q h + h + h)) ..]",
     "qkv 8x1", "groups=2", RIGHT,
     "q 4x1 f32: qkv0 qkv1 qkv4 qkv5\nk 2x1 f32: qkv2 qkv6\nv 2x1 f32: qkv3 qkv7\n"},
    {"let by an earlier let", "let b = 4, c = b/2\nq [a i], k [c i] = qk [(a + c) i]", "qk 3x2",
     NULL, RIGHT, "q 1x2 f32: qk0 qk1\nk 2x2 f32: qk2 qk3 qk4 qk5\n"},
    {"rotary halves", "let a = 1\nq [(a 2 r) ..] = wq [(a r 2) ..]", "q 6", NULL, LEFT,
     "wq 6 f32: q0 q3 q1 q4 q2 q5\n"},
    {"rotary pairs", "let a = 1\nq [(a 2 r) ..] = wq [(a r 2) ..]", "wq 6", NULL, RIGHT,
     "q 6 f32: wq0 wq2 wq4 wq1 wq3 wq5\n"},
    {"a dim of one", "a [c 1 k] = b [c k]", "b 2x2", NULL, RIGHT, "a 2x1x2 f32: b0 b1 b2 b3\n"},
    {"empty", "a [i j] = b [j i]", "a 0x3", NULL, LEFT, "b 3x0 f32\n"},
    {"scalar", "a [] = b [1]", "a scalar", NULL, LEFT, "b 1 f32: a0\n"},
};

/* ---- captures -------------------------------------------------------------------------------- */

static const row capture_rows[] = {
    {"family", "l.{n}.a = {n}.b", "l.0.a 1, l.10.a 1", NULL, LEFT,
     "0.b 1 f32: l.0.a0\n10.b 1 f32: l.10.a0\n"},
    {"shift", "l.{n+2}.a = m.{n}.a", "l.2.a 1, l.3.a 1", NULL, LEFT,
     "m.0.a 1 f32: l.2.a0\nm.1.a 1 f32: l.3.a0\n"},
    {"shift back", "l.{n+$k}.a = m.{n}.a", "m.0.a 1", "k=7", RIGHT, "l.7.a 1 f32: m.0.a0\n"},
    {"list", "a.{s:weight,bias} = b.{s}", "a.bias 2", NULL, LEFT,
     "b.bias 2 f32: a.bias0 a.bias1\n"},
    {"word", "a.{x:*}.w = b.{x}.w", "a.c.w 1", NULL, LEFT, "b.c.w 1 f32: a.c.w0\n"},
    {"text", "a.{x:**} = {x}", "a.c.d.w 1", NULL, LEFT, "c.d.w 1 f32: a.c.d.w0\n"},
    {"escape", "a\\,b = c\\{n\\}", "a 1", NULL, LEFT,
     "map: no line matches \"a\"; `NAME drop =` would leave a tensor out, `* = *` as the last line "
     "would pass the rest on"},
    {"stack", "e.{e}.w [f] = w [e f]", "e.1.w 2, e.0.w 2", NULL, LEFT,
     "w 2x2 f32: e.0.w0 e.0.w1 e.1.w0 e.1.w1\n"},
    {"unstack", "e.{e}.w [f] = w [e f]", "w 2x2", NULL, RIGHT,
     "e.0.w 2 f32: w0 w1\ne.1.w 2 f32: w2 w3\n"},
    {"stack of fused", "e.{e}.{g,u} [f] = w [e (f + f)]", "e.0.g 1, e.0.u 1, e.1.g 1, e.1.u 1",
     NULL, LEFT, "w 2x2 f32: e.0.g0 e.0.u0 e.1.g0 e.1.u0\n"},
    {"interleaved list", "w [i (f p)] = {p:g,u} [f i]", "w 1x4", NULL, LEFT,
     "g 2x1 f32: w0 w2\nu 2x1 f32: w1 w3\n"},
    {"interleaved list back", "w [i (f p)] = {p:g,u} [f i]", "g 2x1, u 2x1", NULL, RIGHT,
     "w 1x4 f32: g0 u0 g1 u1\n"},
    {"both sides stack", "a.{n} [e] = b.{e} [n]", "a.0 2, a.1 2, a.2 2", NULL, LEFT,
     "b.0 3 f32: a.00 a.10 a.20\nb.1 3 f32: a.01 a.11 a.21\n"},
    {"layers stack", "for n < 2\nl.{n}.w [i ..] = w [n i ..]", "w 2x1x2", NULL, RIGHT,
     "l.0.w 1x2 f32: w0 w1\nl.1.w 1x2 f32: w2 w3\n"},
};

/* ---- words ----------------------------------------------------------------------------------- */

static const row word_rows[] = {
    {"drop", "a = b\nfreqs drop =", "a 1, freqs 4", NULL, LEFT, "b 1 f32: a0\nfreqs dropped\n"},
    {"drop is not made", "a = b\nfreqs drop =", "b 1", NULL, RIGHT, "a 1 f32: b0\n"},
    {"drop any", "a = b\n{x:**}.inv_freq drop =", "a 1, l.0.inv_freq 4", NULL, LEFT,
     "b 1 f32: a0\nl.0.inv_freq dropped\n"},
    {"fill", "for n < 2\na = b\n= l.{n}.s [] f32 fill(1.0)", "a 1", NULL, LEFT,
     "b 1 f32: a0\nl.0.s scalar f32 fill 1\nl.1.s scalar f32 fill 1\n"},
    {"fill is compared", "for n < 2\na = b\n= l.{n}.s [] f32 fill(1.0)", "b 1, l.0.s scalar", NULL,
     RIGHT, "a 1 f32: b0\nl.0.s must be 1\n"},
    {"fill of a shape", "let h = 3\na = b\n= z [h 2] bf16 fill(0)", "a 1", NULL, LEFT,
     "b 1 f32: a0\nz 3x2 bf16 fill 0\n"},
    {"copy", "a = b\n= c copy(b) when($tied)", "a 2", "tied=1", LEFT,
     "b 2 f32: a0 a1\nc 2 f32 copy of 0: a0 a1\n"},
    {"no copy", "a = b\n= c copy(b) when($tied)", "a 2", NULL, LEFT, "b 2 f32: a0 a1\n"},
    {"copy is compared", "a = b\n= c copy(b) when($tied)", "b 2, c 2", "tied=1", RIGHT,
     "a 2 f32: b0 b1\nc must be b\n"},
    {"object", "a = b\n= s._extra_state object(none)", "a 1", NULL, LEFT,
     "b 1 f32: a0\ns._extra_state scalar f32 object\n"},
    {"pad", "let v = 2\na [v i] = b [v i] pad(v)", "b 4x1", NULL, RIGHT,
     "a 2x1 f32: b0 b1\nb loses 2\n"},
    {"pad is not made", "let v = 2\na [v i] = b [v i] pad(v)", "a 2x1", NULL, LEFT,
     "b 2x1 f32: a0 a1\n"},
    {"add", "a = b f32 add(1)", "a bf16 1", NULL, LEFT, "b 1 f32 +1: a0\n"},
    {"add back", "a = b f32 add(1)", "b 1", NULL, RIGHT, "a 1 f32 -1: b0\n"},
    {"alternatives, the first", "a = b | c", "c 1", NULL, RIGHT, "a 1 f32: c0\n"},
    {"alternatives are written by when", "a = b when($old) | c", "a 1", "old=0", LEFT,
     "c 1 f32: a0\n"},
    {"alternatives, stacked or not", "l.{n}.w [i] = w [n i] when($stacked) | w.{n} [i]",
     "l.0.w 1, l.1.w 1", "stacked=1", LEFT, "w 2x1 f32: l.0.w0 l.1.w0\n"},
    {"alternatives, one by one", "l.{n}.w [i] = w [n i] when($stacked) | w.{n} [i]",
     "l.0.w 1, l.1.w 1", NULL, LEFT, "w.0 1 f32: l.0.w0\nw.1 1 f32: l.1.w0\n"},
    {"alternatives, read", "l.{n}.w [i] = w [n i] when($stacked) | w.{n} [i]", "w 2x1", NULL, RIGHT,
     "l.0.w 1 f32: w0\nl.1.w 1 f32: w1\n"},
    {"alternatives, by shape", "let f = 3\na [f i] = b [f i] | b [i f]", "b 2x3", NULL, RIGHT,
     "a 3x2 f32: b0 b3 b1 b4 b2 b5\n"},
    {"alternatives, by set", "let f = 2\na [f i] = b [f i] when(!$turned) | b [i f]", "b 2x2",
     "turned=1", RIGHT, "a 2x2 f32: b0 b2 b1 b3\n"},
    {"when with captures", "l.{n}.a = d.{n} when(n < $k)\nl.{n}.a = m.{n} when(n >= $k)",
     "l.0.a 1, l.1.a 1", "k=1", LEFT, "d.0 1 f32: l.0.a0\nm.1 1 f32: l.1.a0\n"},
    {"when a text", "a = b when($model_type=x|y) | c", "a 1", NULL, LEFT, "c 1 f32: a0\n"},
    {"with", "a = b with(c)\na = d without(c)\nc = c", "a 1, c 1", NULL, LEFT,
     "b 1 f32: a0\nc 1 f32: c0\n"},
    {"without", "a = b with(c)\na = d without(c)\nc = c optional", "a 1", NULL, LEFT,
     "d 1 f32: a0\n"},
    {"optional", "a = b\nc [i], d [i] = e [(i + i)] optional", "a 1", NULL, LEFT, "b 1 f32: a0\n"},
    {"the rest", "a = b\n* = *", "a 1, x.y 2x1", NULL, LEFT,
     "b 1 f32: a0\nx.y 2x1 f32: x.y0 x.y1\n"},
    {"dtype", "a = b f16", "a 1", NULL, LEFT, "b 1 f16: a0\n"},
    {"for without a value", "for n < $layers, e < $experts\nl.{n} = m.{n}\ne.{e} = x.{e} optional",
     "l.0 1, l.1 1", "layers=2", LEFT, "m.0 1 f32: l.00\nm.1 1 f32: l.10\n"},
    {"comments", "# a map\na   # left\n", "a 1", NULL, LEFT,
     "map:2:11: expected an = between two sides"},
    {"lines go on", "a [i], # first\n\n  b [i] = c [(i + i)]", "a 1, b 1", NULL, LEFT,
     "c 2 f32: a0 b0\n"},
};

static void test_rows__axes(void **state)
{
    (void)state;
    run_rows(axis_rows, sizeof axis_rows / sizeof *axis_rows);
}

static void test_rows__captures(void **state)
{
    (void)state;
    run_rows(capture_rows, sizeof capture_rows / sizeof *capture_rows);
}

static void test_rows__words(void **state)
{
    (void)state;
    run_rows(word_rows, sizeof word_rows / sizeof *word_rows);
}

/* ---- the page -------------------------------------------------------------------------------- */

/* The map that docs/maps.md begins with, on a model of one layer. */
static void test_rows__docs(void **state)
{
    (void)state;
    static char page[1 << 16], text[MAP_CASE_BYTES];
    FILE *file = fopen(DOCS_MAPS, "r");
    assert_non_null(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
    char *map = strstr(page, "```text\nmap ");
    assert_non_null(map);
    map += strlen("```text\n");
    char *end = strstr(map, "```");
    assert_non_null(end);
    *end = '\0';
    map_case_run(
        map, LEFT,
        "model.layers.0.self_attn.q_proj.weight 4x1, model.layers.0.self_attn.k_proj.weight "
        "2x1, model.layers.0.self_attn.v_proj.weight 2x1, "
        "model.layers.0.mlp.experts.0.gate_proj.weight 1x1, "
        "model.layers.0.mlp.experts.0.up_proj.weight 1x1, "
        "model.layers.0.self_attn.rotary_emb.inv_freq 2",
        "num_hidden_layers=1 num_local_experts=1 num_key_value_heads=2 head_dim=1", text,
        sizeof text);
    assert_non_null(strstr(text, "layers.0.qkv.weight 8x1 f32: "
                                 "model.layers.0.self_attn.q_proj.weight0 "
                                 "model.layers.0.self_attn.q_proj.weight1 "
                                 "model.layers.0.self_attn.k_proj.weight0 "
                                 "model.layers.0.self_attn.v_proj.weight0 "
                                 "model.layers.0.self_attn.q_proj.weight2 "
                                 "model.layers.0.self_attn.q_proj.weight3 "
                                 "model.layers.0.self_attn.k_proj.weight1 "
                                 "model.layers.0.self_attn.v_proj.weight1\n"));
    assert_non_null(strstr(text, "layers.0.w13 1x2x1 f32: "));
    assert_non_null(strstr(text, "layers.0.scale scalar f32 fill 1\n"));
    assert_non_null(strstr(text, "model.layers.0.self_attn.rotary_emb.inv_freq dropped\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows__axes), cmocka_unit_test(test_rows__captures),
        cmocka_unit_test(test_rows__words), cmocka_unit_test(test_rows__docs)};
    return cmocka_run_group_tests_name("map_rows", tests, NULL, NULL);
}
