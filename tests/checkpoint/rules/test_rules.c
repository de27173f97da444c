/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rules.c - the rules language, line by line: what it says of a tensor, and what it says of
 * mistakes.
 */
#include "checkpoint/rules/rules.h"
#include "rules_case.h"
#include "tests/support/check.h"
#include "tests/support/context.h"

#include <stdio.h>
#include <string.h>

static rs_rules *parse(const char *text)
{
    rs_rules *rules = NULL;
    if (rs_rules_parse(NULL, text, strlen(text), "t.rules", &rules) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    return rules;
}

/* ---- applying -------------------------------------------------------------------------------- */

typedef struct apply_row {
    const char *rules;
    rules_case given;
    const char *expected; /* all of the text, or with "..." in front its end */
} apply_row;

static const apply_row apply_rows[] = {
    /* first match wins, and says all */
    {"a.* S(0)@tp\n* R", {"tp=2", "", "a.b", "4x4"}, "tp=2: S(0)"},
    {"a.* S(0)@tp\n* R", {"tp=2", "", "b.a.b", "4x4"}, "tp=2: R"},
    {"* R\na.* S(0)@tp", {"tp=2", "", "a.b", "4x4"}, "tp=2: R"},
    {"  a \t S0@tp   # comment\n\n# all\r\n* R\r", {"tp=2", "", "a", "4"}, "tp=2: S(0)"},
    {"\\#a R@tp", {"tp=2", "", "#a", "4"}, "tp=2: R"},
    {"a\\ b\\*c R@tp", {"tp=2", "", "a b*c", "4"}, "tp=2: R"},
    /* several cuts, in the order written; axes that the mesh does not have say nothing */
    {"* S(1)@tp, S(0)@fsdp", {"fsdp=4,tp=2", "", "a", "8x8"}, "fsdp=4,tp=2: S(1)@tp, S(0)@fsdp"},
    {"* S(0)@tp S(0)@fsdp", {"fsdp=4", "", "a", "8x8"}, "fsdp=4: S(0)"},
    {"* S(0, unit=$none)@tp S(0)@fsdp", {"fsdp=4", "", "a", "8"}, "fsdp=4: S(0)"},
    {"* S(0, unit=$none)@tp", {"tp=1", "", "a", "8"}, "tp=1: R"},
    {"* S(0)@tp", {"dp=2,tp=2", "", "a", "8"}, "dp=2,tp=2: R, S(0)"},
    {"* S(0)@tp", {"tp=2[5,3]", "", "a", "8"}, "tp=2[5,3]: S(0)"},
    /* defaults come behind, and only on axes that are not cut yet */
    {"every: S(0)@fsdp\n* S(0)@tp",
     {"fsdp=2,tp=2", "", "a", "8"},
     "fsdp=2,tp=2: S(0)@tp, S(0)@fsdp"},
    {"every: S(0)@fsdp\n* S(1)@fsdp", {"fsdp=2", "", "a", "8x8"}, "fsdp=2: S(1)"},
    {"every: S(0)@fsdp\n* R@fsdp", {"fsdp=2", "", "a", "8x8"}, "fsdp=2: R"},
    {"every: S(0)@fsdp\n* R", {"fsdp=2", "", "a", "scalar"}, "fsdp=2: R"},
    {"every: S(1)@fsdp\n* R", {"fsdp=2", "", "a", "8"}, "fsdp=2: R"},
    {"every b*: S(0)@fsdp\nevery *: S(1)@fsdp\n* R", {"fsdp=2", "", "b", "8x8"}, "fsdp=2: S(0)"},
    {"every b*: S(0)@fsdp\nevery *: S(1)@fsdp\n* R", {"fsdp=2", "", "c", "8x8"}, "fsdp=2: S(1)"},
    /* numbers */
    {"* S(0, unit=$u)@tp", {"tp=2", "u=4", "a", "8"}, "tp=2: S(0, unit=4)"},
    {"* S(0, unit=$a*$b/2*@tp)@tp", {"tp=2", "a=3 b=2", "a", "12"}, "tp=2: S(0, unit=6)"},
    {"* S(0, unit=$none?$also?(2*3))@tp", {"tp=2", "", "a", "12"}, "tp=2: S(0, unit=6)"},
    {"* S(0, unit=$u?$none)@tp", {"tp=2", "u=3", "a", "12"}, "tp=2: S(0, unit=3)"},
    {"* S(0, unit=$u?($none/0))@tp", {"tp=2", "u=3", "a", "12"}, "tp=2: S(0, unit=3)"},
    {"* S(0, unit=lcm(4,$u))@tp", {"tp=2", "u=6", "a", "24"}, "tp=2: S(0, unit=12)"},
    {"* S(0; $a, $b|1, unit = 2)@tp", {"tp=2", "a=8 b=2", "a", "10"}, "tp=2: S(0;8,2|1, unit=2)"},
    {"* S(0*2)@tp", {"tp=2", "", "a", "8"}, "tp=2: S(0*2)"},
    {"* S(-1~)@tp", {"tp=2", "", "a", "8x9"}, "tp=2: S(-1~)"},
    {"* S(0, unit=$a.b.0)@tp", {"tp=2", "a.b.0=4", "a", "8"}, "tp=2: S(0, unit=4)"},
    {"* S(0, unit=$u)@tp", {"tp=2", "text_config.u=4", "a", "8"}, "tp=2: S(0, unit=4)"},
    {"* S(0, unit=$head_dim)@tp",
     {"tp=2", "hidden_size=8 num_attention_heads=4", "a", "8"},
     "tp=2: S(0, unit=2)"},
    {"* S(0, unit=$head_dim)@tp", {"tp=2", "n_embd=8 n_head=4", "a", "8"}, "tp=2: S(0, unit=2)"},
    {"* S(0, unit=$head_dim)@tp",
     {"tp=2", "head_dim=4 n_embd=8 n_head=4", "a", "8"},
     "tp=2: S(0, unit=4)"},
    {"* S(0, unit=$a+$b*2)@tp", {"tp=2", "a=3 b=2", "a", "14"}, "tp=2: S(0, unit=7)"},
    {"* S(0, unit=($a+$b)*2-$b)@tp", {"tp=2", "a=3 b=2", "a", "16"}, "tp=2: S(0, unit=8)"},
    {"* S(0, unit=min($a,$b)*max($a,2))@tp", {"tp=2", "a=3 b=2", "a", "12"}, "tp=2: S(0, unit=6)"},
    {"* S(0, unit=$a, max=$b)@tp", {"tp=4", "a=6 b=2", "a", "12"}, "tp=4: S(0, unit=6, max=2)"},
    {"* S(0, unit=$b-$a)@tp", {"tp=2", "a=3 b=2", "a", "8"}, "...2 - 3 is negative"},
    {"* S(0, unit=$g?4)@tp", {"tp=2", "g=-1", "a", "8"}, "tp=2: S(0, unit=4)"},
    {"default u 4\n* S(0, unit=$u)@tp", {"tp=2", "", "a", "8"}, "tp=2: S(0, unit=4)"},
    {"default u 4\n* S(0, unit=$u)@tp", {"tp=2", "u=2", "a", "8"}, "tp=2: S(0, unit=2)"},
    /* shapes: the first line that fits decides, and what fits none is not handed on */
    {"a [4, *] S(0)@tp\na [*, 4] S(1)@tp\n* R", {"tp=2", "", "a", "4x6"}, "tp=2: S(0)"},
    {"a [4, *] S(0)@tp\na [*, 4] S(1)@tp\n* R", {"tp=2", "", "a", "6x4"}, "tp=2: S(1)"},
    {"a [$n+1] S(0)@tp\n* R", {"tp=2", "n=3", "a", "4"}, "tp=2: S(0)"},
    {"a [] R\na [*] S(0)@tp", {"tp=2", "", "a", "scalar"}, "tp=2: R"},
    {"a [1] R\na [*] S(0)@tp", {"tp=2", "", "a", "1"}, "tp=2: R"},
    {"a [4, *] S(0)@tp\na [*, 4] S(1)@tp\n* R",
     {"tp=2", "", "a", "6x6"},
     "tensor \"a\" (6x6): its shape fits no rule of its name: t.rules:1: a is for [4, *]"},
    {"a [4, *] S(0)@tp\na R", {"tp=2", "", "a", "6x6"}, "...its name: t.rules:1: a is for [4, *]"},
    {"a [4, *] S(0)@tp\na [*, *] R", {"tp=2", "", "a", "6x6"}, "tp=2: R"},
    {"a [4, *] S(0)@tp\na [*, 4] S(1)@tp\n* R",
     {"tp=2", "", "a", "4x4"},
     "tensor \"a\" (4x4): its shape fits t.rules:1 and t.rules:2 equally well, and "
     "model_type in config.json does not say how it is stored; give rules of your own"},
    {"a [*, 4] S(1)@tp when($model_type=x|y)\na [4, *] S(0)@tp\na [*, 4] S(1)@tp\n* R",
     {"tp=2", "model_type=y", "a", "4x4"},
     "tp=2: S(1)"},
    {"a [*, 4] S(1)@tp when($model_type=x|y)\na [4, *] S(0)@tp\n* R",
     {"tp=2", "model_type=z", "a", "4x4"},
     "tp=2: S(0)"},
    {"a [$none] R",
     {"dp=2", "", "a", "4"},
     "...t.rules:1: shape: $none has no value in config.json"},
    /* what follows another tensor */
    {"*.w S(0, unit=4)@tp\n*.s like({1}.w, 0)", {"tp=2", "", "a.s", "8"}, "tp=2: S(0, unit=4)"},
    {"*.w S(0, unit=4)@tp\n*.s like({1}.w, 1, 0)",
     {"tp=2", "", "a.s", "3x8"},
     "tp=2: S(1, unit=4)"},
    {"*.w S(0, unit=4)@tp\n*.s like({1}.w, 1/n, 0/n)", {"tp=2", "", "a.s", "3x2"}, "tp=2: S(1)"},
    {"*.w S(0, unit=4, max=2)@tp\n*.s like({1}.w, 0/n)",
     {"tp=4", "", "a.s", "2"},
     "tp=4: S(0, max=2)"},
    {"*.w S(0, unit=4)@tp\n*.s like({1}.w, 1, 0/n)",
     {"tp=2", "", "a.s", "8x3"},
     "tensor \"a.s\" (8x3): t.rules:1: S(0, unit=4)@tp: dimension 1: 3 blocks or groups "
     "cannot be divided evenly by tp=2"},
    {"*.w S(1)@tp\n*.s like({1}.w, 0, -)", {"tp=2", "", "a.s", "8x1"}, "tp=2: R"},
    {"*.w S(0;8,4|1)@tp\n*.s like({1}.w, 0/n)", {"tp=2", "", "a.s", "3"}, "tp=2: S(0;2,1|1)"},
    {"*.w S(0;8,4|1)@tp\n*.s like({1}.w, 0/n)",
     {"tp=2", "", "a.s", "4"},
     "...part 0 of 8 is not whole in 4 of 12"},
    {"*.w S(0)@tp pad(0,8,$v)\n*.s like({1}.w, 0)",
     {"tp=2", "v=6", "a.s", "6"},
     "tp=2: S(0) padded 8"},
    {"*.w S(0)@tp pad(0,8,$v)\n*.s like({1}.w, 0/n)",
     {"tp=2", "v=6", "a.s", "6"},
     "...pad to a multiple of 8, of which packed or grouped rows cannot have a part"},
    {"*.w S(0)@tp pad(0,8,$v)\n*.s like({1}.w, 0/n)", {"tp=2", "v=16", "a.s", "6"}, "tp=2: S(0)"},
    {"*.w drop\n*.s like({1}.w, 0)",
     {"dp=2", "", "a.s", "6"},
     "...t.rules:2: like() cannot follow t.rules:1, which has like(), name(), drop or a shape "
     "itself"},
    {"*.s like({1}.w, 0)",
     {"tp=2", "", "a.s", "6"},
     "no rule of t.rules says what axis tp=2 does (they name none)"},
    {"*.s like({1}.w, 0)\nx S(0)@tp",
     {"tp=2", "", "a.s", "6"},
     "...t.rules:1: like \"a.w\": no rule of t.rules matches its name"},
    {"*.w S(0)@tp\n*.s like({1}.w, 0)",
     {"tp=2", "", "a.s", "6x2"},
     "...t.rules:2: like() has 1 dimensions, but the tensor has 2"},
    {"*.w S(-1)@tp\n*.s like({1}.w, 0)",
     {"tp=2", "", "a.s", "6"},
     "...like() cannot follow S(-1)@tp of t.rules:1, which counts from the end"},
    /* what must not be cut, and what may be uneven */
    {"* R refuse(because of x)@tp",
     {"tp=2", "", "a", "6"},
     "tensor \"a\" (6): t.rules:1: tp=2: because of x"},
    {"* R refuse(A word)@tp", {"tp=1", "", "a", "6"}, "tp=1: R"},
    {"* S(0, unit=2)@tp uneven", {"tp=2", "", "a", "6"}, "tp=2: S(0, unit=2)"},
    /* stages and experts: dealt out, larger shares first */
    {"*.{0..}.* A({2} of $n)@pp", {"pp=2", "n=5", "l.0.w", "4"}, "pp=2: A(0)"},
    {"*.{0..}.* A({2} of $n)@pp", {"pp=2", "n=5", "l.2.w", "4"}, "pp=2: A(0)"},
    {"*.{0..}.* A({2} of $n)@pp", {"pp=2", "n=5", "l.3.w", "4"}, "pp=2: A(1)"},
    {"*.{0..}.* A({2} of $n)@pp", {"pp=4", "n=3", "l.2.w", "4"}, "pp=4: A(2)"},
    {"*.*.* A({2} of 8)@pp",
     {"pp=4", "", "model.layers.7", "4"},
     "...{2} is \"layers\", which is not a number"},
    {"l.{0..3}.* A(0)@pp\nl.{4..}.* A(1)@pp", {"pp=2", "", "l.3.w", "4"}, "pp=2: A(0)"},
    {"l.{0..3}.* A(0)@pp\nl.{4..}.* A(1)@pp", {"pp=2", "", "l.14.w", "4"}, "pp=2: A(1)"},
    {"a A(last)@pp", {"pp=3", "", "a", "4"}, "pp=3: A(2)"},
    {"a A(0, last)@pp", {"pp=3", "", "a", "4"}, "pp=3: A(0,2)"},
    {"a A(0, last)@pp", {"pp=1", "", "a", "4"}, "pp=1: A(0)"},
    {"every a: A(1)@pp when($tied)\nevery a: A(0)@pp\n* R",
     {"pp=2", "tied=1", "a", "4"},
     "pp=2: A(1)"},
    {"every a: A(1)@pp when($tied)\nevery a: A(0)@pp\n* R",
     {"pp=2", "tied=0", "a", "4"},
     "pp=2: A(0)"},
    {"every a: A(1)@pp when($tied)\nevery a: A(0)@pp\n* R", {"pp=2", "", "a", "4"}, "pp=2: A(0)"},
    /* ten items for four: 3, 3, 2, 2 */
    {"l.{0..} A({1} of 10)@pp", {"pp=4", "", "l.2", "4"}, "pp=4: A(0)"},
    {"l.{0..} A({1} of 10)@pp", {"pp=4", "", "l.3", "4"}, "pp=4: A(1)"},
    {"l.{0..} A({1} of 10)@pp", {"pp=4", "", "l.5", "4"}, "pp=4: A(1)"},
    {"l.{0..} A({1} of 10)@pp", {"pp=4", "", "l.6", "4"}, "pp=4: A(2)"},
    {"l.{0..} A({1} of 10)@pp", {"pp=4", "", "l.7", "4"}, "pp=4: A(2)"},
    {"l.{0..} A({1} of 10)@pp", {"pp=4", "", "l.8", "4"}, "pp=4: A(3)"},
    {"l.{0..} A({1} of 10)@pp", {"pp=4", "", "l.9", "4"}, "pp=4: A(3)"},
    {"l.{0..} A({1} of 10)@pp",
     {"pp=4", "", "l.10", "4"},
     "...number 10 of 10 (they count from 0)"},
    /* padding, names, drop, use */
    {"* S(0)@tp pad(0,64)", {"tp=2", "", "a", "100x3"}, "tp=2: S(0) padded 128x3"},
    {"* S(0)@tp pad(0,64)", {"tp=2", "", "a", "128x3"}, "tp=2: S(0)"},
    {"* S(0)@tp pad(-1, 8*@tp, $v)", {"tp=2", "", "a", "3x100"}, "tp=2: S(0) padded 3x112"},
    {"* R pad(0,$a?8)", {"dp=2", "a=0", "a", "4"}, "...pad: a multiple of 0"},
    {"* R pad(0,$a?8)", {"dp=2", "a=-1", "a", "4"}, "dp=2: R padded 8"},
    {"* R pad(-8,4) pad(7,4)",
     {"dp=2", "", "a", "1x1x1x1x1x1x1x1"},
     "dp=2: R padded 4x1x1x1x1x1x1x4"},
    {"a.*.{q,k} R name(b.{2}.{1}\\{)", {"dp=2", "", "a.0.k", "4"}, "dp=2: R name b.k.0{"},
    {"?a* R name({2}{1})", {"dp=2", "", "xabc", "4"}, "dp=2: R name bcx"},
    {"a drop\n* R", {"dp=2", "", "a", "4"}, "drop"},
    {"a S(0)@fsdp\nuse fsdp", {"fsdp=2", "", "b", "4"}, "fsdp=2: S(0)"},
    /* what a tensor can be wrong about */
    {"a.* R", {"dp=2", "", "b", "4x4"}, "tensor \"b\" (4x4): no rule of t.rules matches its name"},
    {"every: S(0)@fsdp",
     {"fsdp=2", "", "b", "4"},
     "tensor \"b\" (4): no rule of t.rules matches its name"},
    {"\n* S(2)@tp",
     {"tp=2", "", "a", "4x4"},
     "...t.rules:2: spec \"tp=2: S(2)\", shape 4x4: dimension 2 does not exist in a tensor of 2 "
     "dimensions"},
    {"* S(0, unit=$u)@tp",
     {"tp=2", "", "a", "8"},
     "tensor \"a\" (8): t.rules:1: S(0, unit=$u)@tp: $u has no value in config.json"},
    {"* S(0, unit=$head_dim)@tp",
     {"tp=2", "", "a", "8"},
     "...$head_dim has no value in config.json, nor has $hidden_size/$num_attention_heads"},
    /* what nobody writes into a configuration is not asked for */
    {"* S(0, unit=$head_rows)@tp",
     {"tp=2", "", "a", "8"},
     "tensor \"a\" (8): t.rules:1: S(0, unit=$head_rows)@tp: $head_dim has no value in "
     "config.json, "
     "nor has $hidden_size/$num_attention_heads"},
    /* more heads than the numbers say: copies would go to the wrong ranks */
    {"* S(0, unit=4, max=2)@tp",
     {"tp=4", "", "k", "32"},
     "...8 units of 4 are more than max=2: the model's heads are not as the numbers say"},
    {"* S(0, unit=$a/$b)@tp", {"tp=2", "a=7 b=2", "a", "8"}, "...7 / 2 is not a whole number"},
    {"* S(0, unit=$a)@tp", {"tp=2", "a=-1", "a", "8"}, "...$a is -1, which is negative"},
    {"* S(0, unit=$a*$a)@tp", {"tp=2", "a=4000000000", "a", "8"}, "...a product is beyond 2^63-1"},
    {"* S(0, unit=128)@tp",
     {"tp=3", "", "q", "4096x8"},
     "tensor \"q\" (4096x8): t.rules:1: S(0, unit=128)@tp: dimension 0: 32 units of 128 "
     "cannot be divided evenly by tp=3"},
    {"* S(0, unit=128)@tp",
     {"tp=2", "", "q", "200x8"},
     "...dimension 0: 200 is not a multiple of unit=128"},
    {"* S(0, unit=4, max=2)@tp", {"tp=4", "", "k", "8"}, "tp=4: S(0, unit=4, max=2)"},
    {"* S(0, unit=4, max=2)@tp",
     {"tp=3", "", "k", "8"},
     "...the 2 pieces of max=2 cannot have equally many copies on tp=3"},
    {"* S(0; 8,4|1, unit=4)@tp", {"tp=2", "", "k", "12"}, "tp=2: S(0;8,4|1, unit=4)"},
    {"* S(0; 12,4|1, unit=4)@tp",
     {"tp=2", "", "k", "16"},
     "...dimension 0: part 0: 3 units of 4 cannot be divided evenly by tp=2"},
    {"* S(0; 8,4)@tp", {"tp=2", "", "k", "16"}, "...add up to 12, not to 16"},
    {"* S(0*3, unit=4)@tp", {"tp=2", "", "k", "24"}, "tp=2: S(0*3, unit=4)"},
    {"* S(0*3, unit=4)@tp",
     {"tp=2", "", "k", "36"},
     "...dimension 0: 3 units of 4 cannot be divided evenly by tp=2"},
    /* fsdp may cut what tp left anywhere */
    {"every: S(0)@fsdp\n* S(0,unit=4)@tp",
     {"fsdp=3,tp=2", "", "k", "8"},
     "fsdp=3,tp=2: S(0, unit=4)@tp, S(0)@fsdp"},
    {"*.{0..} A({2} of 3)@pp", {"pp=2", "", "l.3", "4"}, "...number 3 of 3 (they count from 0)"},
    {"* A(2)@pp", {"pp=2", "", "a", "4"}, "...coordinate 2 is not on an axis of size 2"},
    {"* R pad(1,8)", {"dp=2", "", "a", "4"}, "...t.rules:1: pad: there is no dimension 1"},
    {"* R pad(0,$z)", {"dp=2", "z=0", "a", "4"}, "...pad: a multiple of 0"},
    {"* R pad(1,8) pad(-1,6)", {"dp=2", "", "a", "4x4"}, "...t.rules:1: pad: dimension 1 twice"},
    {"* R pad(1,8) pad(-1,6)", {"dp=2", "", "a", "4x4x4"}, "dp=2: R padded 4x8x6"},
    /* what a mesh can be wrong about */
    {"* S(0)@tp",
     {"tp=2,pp=2", "", "a", "4"},
     "no rule of t.rules says what axis pp=2 does (they name tp)"},
    {"* R", {"tp=2", "", "a", "4"}, "no rule of t.rules says what axis tp=2 does (they name none)"},
    {"* R", {"tp=1", "", "a", "4"}, "tp=1: R"},
    {"* R",
     {"4", "", "a", "4"},
     "an axis of 4 ranks has no name; rules know axes by their names, such as tp=4 or fsdp=4"},
};

static void test_rules__apply(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof apply_rows / sizeof *apply_rows; i++) {
        const apply_row *row = &apply_rows[i];
        char text[1024];
        rs_rules *rules = parse(row->rules);
        rules_case_text(rules, &row->given, text, sizeof text);
        const char *expected = row->expected;
        const char *found = text;
        if (strncmp(expected, "...", 3) == 0) {
            expected += 3;
            if (strlen(found) > strlen(expected))
                found += strlen(found) - strlen(expected);
        }
        if (strcmp(found, expected) != 0)
            fail_msg("row %zu, \"%s\", %s of %s:\n  %s\nexpected\n  %s", i, row->rules,
                     row->given.name, row->given.mesh, text, row->expected);
        rs_rules_destroy(rules);
    }
}

static const char *only_head(void *user, int64_t index, size_t *out_bytes)
{
    (void)user;
    *out_bytes = strlen("lm_head.weight");
    return index == 0 ? "lm_head.weight" : NULL;
}

/* without() asks what else the model has. */
static void test_rules__without(void **state)
{
    static const char text[] = "every a: A(0,last)@pp without(*head.*)\nevery a: A(0)@pp\na R";
    rules_case given = {"pp=3", "", "a", "4"};
    char found[256];
    (void)state;
    rs_rules *rules = parse(text);
    rules_case_text(rules, &given, found, sizeof found);
    assert_string_equal(found, "pp=3: A(0,2)");
    assert_int_equal(rs_rules_bind(rules, only_head, NULL), RESHARD_OK);
    rules_case_text(rules, &given, found, sizeof found);
    assert_string_equal(found, "pp=3: A(0)");
    rs_rules_destroy(rules);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

static const struct {
    const char *rules, *expected;
} parse_rows[] = {
    {"", "t.rules: there are no rules"},
    {"# nothing\n\n", "t.rules: there are no rules"},
    {"* R\na", "t.rules:2: \"a\": no cut follows the pattern; R keeps a tensor whole"},
    {"a{b R", "t.rules:1: \"a{b R\": { without }"},
    {"a}b R", "t.rules:1: \"a}b R\": } without {"},
    {"a{b{c}} R", "t.rules:1: \"a{b{c}} R\": { cannot be inside { }"},
    {"a{b*} R", "t.rules:1: \"a{b*} R\": * cannot be inside { }"},
    {"a{3..1} R", "t.rules:1: \"a{3..1} R\": {3..1} is not a range of numbers"},
    {"a{03..4} R", "t.rules:1: \"a{03..4} R\": {03..4} is not a range of numbers"},
    {"a{0..99999999999999999999} R",
     "t.rules:1: \"a{0..99999999999999999999} R\": {0..99999999999999999999} is not a range of "
     "numbers"},
    {"a\\", "t.rules:1: \"a\\\": a pattern ends with a backslash"},
    {"* S(0)", "t.rules:1: \"* S(0)\": S(0) needs the axis that cuts: S(0)@axis"},
    {"* S(0)@", "t.rules:1: \"* S(0)@\": expected the name of an axis after @"},
    {"* S(0)@2", "t.rules:1: \"* S(0)@2\": expected the name of an axis after @"},
    {"* S(0@tp", "t.rules:1: \"* S(0@tp\": ( without )"},
    {"* S(0)@tp S(1)@tp", "t.rules:1: \"* S(0)@tp S(1)@tp\": axis tp cuts twice"},
    {"* S(0, unit=x)@tp", "t.rules:1: \"* S(0, unit=x)@tp\": cut \"S(0, unit=x)\": at byte 11: "
                          "expected a number, found \"x\""},
    {"* S(0;1 2)@tp", "t.rules:1: \"* S(0;1 2)@tp\": cut \"S(0;1 2)\": at byte 7: "
                      "expected \",\" or \")\", found \"2\""},
    {"* S(9)@tp", "t.rules:1: \"* S(9)@tp\": cut \"S(9)\": at byte 3: dimension 9 is "
                  "not between -8 and 7"},
    {"* S(0, unit=$)@tp", "t.rules:1: \"* S(0, unit=$)@tp\": a $key has no name"},
    {"* S(0, unit=$a*)@tp", "t.rules:1: \"* S(0, unit=$a*)@tp\": expected a number or a $key"},
    {"* S(0, unit=lcm(1))@tp",
     "t.rules:1: \"* S(0, unit=lcm(1))@tp\": lcm takes two numbers: lcm(a, b)"},
    {"a A({1} of 2)@pp", "t.rules:1: \"a A({1} of 2)@pp\": {1}, but the pattern has 0 wildcards"},
    {"* A()@pp", "t.rules:1: \"* A()@pp\": expected a number or a $key"},
    {"* A(0 1)@pp", "t.rules:1: \"* A(0 1)@pp\": expected , or ) among the coordinates of A"},
    {"* P@tp",
     "t.rules:1: \"* P@tp\": P has no meaning here: files hold values, not contributions to sums"},
    {"* drop R",
     "t.rules:1: \"* drop R\": a line with drop cannot have a cut, R, pad(), like() or name()"},
    {"* R pad(0)", "t.rules:1: \"* R pad(0)\": pad(dim, number) needs a number"},
    {"* R pad(x,1)", "t.rules:1: \"* R pad(x,1)\": pad(dim, number) needs a dimension first"},
    {"* R pad(8,1)", "t.rules:1: \"* R pad(8,1)\": pad: dimension 8 is not between -8 and 7"},
    {"* R pad(-9,1)", "t.rules:1: \"* R pad(-9,1)\": pad: dimension -9 is not between -8 and 7"},
    {"* R pad(0,2) pad(1,2) pad(2,2) pad(3,2) pad(4,2) pad(5,2) pad(6,2) pad(7,2) pad(-1,2)",
     "t.rules:1: \"* R pad(0,2) pad(1,2) pad(2,2) pad(3,2) pad(4,2) pad(5,2) pa…\": there "
     "are more than 8 pads"},
    {"* R size(0)", "t.rules:1: \"* R size(0)\": size(dim, number) needs a number"},
    {"* R size(x,1)", "t.rules:1: \"* R size(x,1)\": size(dim, number) needs a dimension first"},
    {"* R size(-9,1)", "t.rules:1: \"* R size(-9,1)\": size: dimension -9 is not between -8 and 7"},
    {"* R size(0,1,2)",
     "t.rules:1: \"* R size(0,1,2)\": size(dim, number) takes no more than these"},
    {"* R size(0,8) size(0,6)", "t.rules:1: \"* R size(0,8) size(0,6)\": size: dimension 0 twice"},
    {"* size(0,8)",
     "t.rules:1: \"* size(0,8)\": no cut follows the pattern; R keeps a tensor whole"},
    {"* R pad(0,1,2,3)",
     "t.rules:1: \"* R pad(0,1,2,3)\": pad(dim, multiple, true size) takes no more than these"},
    {"* R pad(0,8) pad(1,8) pad(0,6)",
     "t.rules:1: \"* R pad(0,8) pad(1,8) pad(0,6)\": pad: dimension 0 twice"},
    {"* R name()", "t.rules:1: \"* R name()\": name() needs a name"},
    {"* R name(a{2})",
     "t.rules:1: \"* R name(a{2})\": a { in the new name needs the number of one of "
     "1 wildcards and }"},
    {"* R when(1 2)",
     "t.rules:1: \"* R when(1 2)\": when() takes one number, which is not 0 when it holds"},
    {"* R keep",
     "t.rules:1: \"* R keep\": expected a cut, pad(), size(), name(), like(), when(), without(), "
     "even, uneven, zeros or drop, found \"keep\""},
    {"* R !",
     "t.rules:1: \"* R !\": expected a cut, pad(), size(), name(), like(), when(), without(), "
     "even, uneven, zeros or drop, found \"!\""},
    {"every R\n* R", "t.rules:1: \"every R\": expected every: or every pattern:"},
    {"every: R\n* R", "t.rules:1: \"every: R\": every: needs a cut"},
    {"every: drop",
     "t.rules:1: \"every: drop\": every: takes cuts, when() and without(), not \"drop\""},
    {"use lama", "t.rules:1: \"use lama\": there are no built-in rules \"lama\"; did you mean "
                 "llama?"},
    {"a{0.15}b R", "t.rules:1: \"a{0.15}b R\": {0.15} is a text; did you mean the range {0..15}?"},
    {"a{0-15,x} R",
     "t.rules:1: \"a{0-15,x} R\": {0-15} is a text; did you mean the range {0..15}?"},
    {"a{0...15} R",
     "t.rules:1: \"a{0...15} R\": {0...15} is a text; did you mean the range {0..15}?"},
    {"* s(0)@tp", "t.rules:1: \"* s(0)@tp\": \"s(0)\": cuts are written in capitals, S"},
    {"* R dropp",
     "t.rules:1: \"* R dropp\": expected a cut, pad(), size(), name(), like(), when(), "
     "without(), even, uneven, zeros or drop, found \"dropp\"; did you mean drop?"},
    {"* S(0)@tp even uneven",
     "t.rules:1: \"* S(0)@tp even uneven\": even and uneven exclude each other"},
    {"* S(0)@tp zeros",
     "t.rules:1: \"* S(0)@tp zeros\": zeros needs an A(), which leaves ranks out"},
    {"same ep\n* R", "t.rules:1: \"same ep\": expected same AXIS AXIS, two different axes"},
    {"same tp tp\n* R", "t.rules:1: \"same tp tp\": expected same AXIS AXIS, two different axes"},
    {"same a b c\n* R", "t.rules:1: \"same a b c\": expected same AXIS AXIS, two different axes"},
    {"same a t\nsame b t\nsame c t\nsame d t\nsame e t\n* R",
     "t.rules:5: \"same e t\": there are more than 4 lines with same"},
    {"* ???", "t.rules:1: \"* ???\": fill in this line: it still says ???"},
    {"* [1,2 R", "t.rules:1: \"* [1,2 R\": expected , or ] in a shape"},
    {"* [x] R", "t.rules:1: \"* [x] R\": shape: expected a number or a $key"},
    {"* like(a)", "t.rules:1: \"* like(a)\": expected like(name, dimension, ..)"},
    {"* like(a, 9)",
     "t.rules:1: \"* like(a, 9)\": like(name, ..): \"9\" is not a dimension; give 0, 1, "
     ".., 0/n, or - for none"},
    {"* like(a, 0) R",
     "t.rules:1: \"* like(a, 0) R\": a line with like() cannot have a cut, R or pad()"},
    {"* R without()", "t.rules:1: \"* R without()\": without() needs a pattern"},
    {"* R when($a=)", "t.rules:1: \"* R when($a=)\": expected when($key=text) or "
                      "when($key=text|text)"},
    {"default $a 1", "t.rules:1: \"default $a 1\": expected default KEY NUMBER, the key without $"},
    {"use llama R", "t.rules:1: \"use llama R\": use takes the name of one family"},
};

static void test_rules__mistakes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof parse_rows / sizeof *parse_rows; i++) {
        rs_rules *rules = NULL;
        const char *text = parse_rows[i].rules;
        reshard_status status = rs_rules_parse(NULL, text, strlen(text), "t.rules", &rules);
        if (status == RESHARD_OK)
            fail_msg("\"%s\" was read", text);
        assert_null(rules);
        assert_string_equal(reshard_error_text(), parse_rows[i].expected);
    }
    rs_rules *rules = NULL;
    assert_int_equal(rs_rules_parse(NULL, "a\0 R", 4, "t.rules", &rules), RESHARD_ERR_SYNTAX);
    assert_int_equal(rs_rules_builtin(NULL, "unheard_of", &rules), RESHARD_ERR_NOT_FOUND);
    rs_rules_destroy(NULL);
}

/* What is large is refused, and costs no more than its size. */
static void test_rules__limits(void **state)
{
    (void)state;
    static char text[200000];
    rs_rules *rules = NULL;
    size_t length = 0;
    for (int i = 0; i < 10001; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "a%d R\n", i);
    assert_int_equal(rs_rules_parse(NULL, text, length, "t", &rules), RESHARD_ERR_RANGE);
    memset(text, '(', 5000);
    memcpy(text, "* S(0, unit=lcm(", 16);
    assert_int_equal(rs_rules_parse(NULL, text, 5000, "t", &rules), RESHARD_ERR_SYNTAX);
    memset(text, '(', 5000);
    memcpy(text, "* S(0, unit=$a*", 15);
    memset(text + 2500, ')', 2500);
    memcpy(text + 4997, "@tp", 3);
    assert_int_not_equal(rs_rules_parse(NULL, text, 5000, "t", &rules), RESHARD_OK);
    memset(text, '*', 200);
    memcpy(text + 200, " R", 2);
    assert_int_equal(rs_rules_parse(NULL, text, 202, "t", &rules), RESHARD_ERR_RANGE);
    memset(text, 'a', 5000);
    memcpy(text + 5000, " R", 2);
    assert_int_equal(rs_rules_parse(NULL, text, 5002, "t", &rules), RESHARD_ERR_RANGE);
}

/* ---- tensors that layouts do not know -------------------------------------------------------- */

static void test_rules__more_dimensions(void **state)
{
    (void)state;
    const int64_t shape[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 2};
    rs_rules *rules = parse("every: S(0)@fsdp\na S(0)@fsdp\nb R pad(0,2)\n*c R name(d)");
    reshard_mesh *mesh = rules_case_mesh("fsdp=2");
    rs_rule_result result;
    assert_int_equal(rs_rules_apply(rules, mesh, NULL, "c", 1, 10, shape, &result), RESHARD_OK);
    assert_int_equal(result.ndim, 0);
    assert_string_equal(result.new_name, "d");
    rs_rule_result_release(&result);
    assert_int_equal(rs_rules_apply(rules, mesh, NULL, "a", 1, 10, shape, &result),
                     RESHARD_ERR_UNSUPPORTED);
    assert_int_equal(rs_rules_apply(rules, mesh, NULL, "b", 1, 10, shape, &result),
                     RESHARD_ERR_UNSUPPORTED);
    static char name[70000];
    memset(name, 'c', sizeof name);
    assert_int_equal(rs_rules_apply(rules, mesh, NULL, name, sizeof name, 1, shape, &result),
                     RESHARD_ERR_UNSUPPORTED);
    assert_int_equal(rs_rules_apply(rules, mesh, NULL, name, 65535, 1, shape, &result), RESHARD_OK);
    rs_rule_result_release(&result);
    rs_rule_result_release(NULL);
    reshard_mesh_release(mesh);
    rs_rules_destroy(rules);
}

static bool find_local(void *user, int32_t position, int64_t *out_shape)
{
    (void)user;
    (void)position;
    out_shape[0] = 4;
    return true;
}

/* Whether shapes are given or recovered, a rule that drops a tensor is named in the same way. */
static void test_rules__recovered_drop(void **state)
{
    (void)state;
    rs_rules *rules = NULL;
    const rs_local_shapes locals = {.ndim = 1, .find = find_local};
    rs_rule_result result = {.drop = false};
    const char text[] = "b R\na drop\n";
    reshard_mesh *mesh = rules_case_mesh("dp=2");
    assert_int_equal(rs_rules_parse(NULL, text, sizeof text - 1, "t.rules", &rules), RESHARD_OK);
    assert_int_equal(rs_rules_recover(rules, mesh, NULL, "a", 1, &locals, &result), RESHARD_OK);
    assert_true(result.drop);
    assert_int_equal(result.rule, 1);
    assert_int_equal(result.line, 2);
    assert_non_null(result.file_name);
    assert_string_equal(result.file_name, "t.rules");
    rs_rule_result_release(&result);
    reshard_mesh_release(mesh);
    rs_rules_destroy(rules);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static reshard_status parse_and_apply(reshard_context *context, void *user)
{
    static const char text[] = "every: S(0)@fsdp\n"
                               "{a,b,0..9}*.{0..} S(0;$a,2|1,unit=2)@tp pad(0,10) name(x.{3})\n"
                               "use mixtral";
    rules_case given = {.keys = "a=8"};
    rs_rules_keys keys = {rules_case_find, &given, rules_case_find_text};
    rs_rules *rules = NULL;
    rs_rule_result result = {.drop = false};
    const int64_t shape[] = {9};
    char name[1000];
    memset(name, 'a', sizeof name);
    memcpy(name + sizeof name - 2, ".7", 2);
    reshard_status status = rs_rules_parse(context, text, sizeof text - 1, "t", &rules);
    if (status == RESHARD_OK)
        status = rs_rules_apply(rules, user, &keys, name, sizeof name, 1, shape, &result);
    rs_rule_result_release(&result);
    rs_rules_destroy(rules);
    return status;
}

static void test_rules__memory(void **state)
{
    (void)state;
    words said = {0};
    reshard_mesh *mesh = rules_case_mesh("fsdp=2,tp=2");
    bool fine = context_fail_each(parse_and_apply, mesh, &said);
    reshard_mesh_release(mesh);
    if (!fine)
        fail_msg("%s", said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules__apply),           cmocka_unit_test(test_rules__without),
        cmocka_unit_test(test_rules__mistakes),        cmocka_unit_test(test_rules__limits),
        cmocka_unit_test(test_rules__more_dimensions), cmocka_unit_test(test_rules__memory),
        cmocka_unit_test(test_rules__recovered_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
