/* SPDX-License-Identifier: Apache-2.0 */
/* Pickles read and written from C: finding one's way in the graph, bounds on memory and time, lack
 * of memory. What the graph is, test_pickle.py compares with Python. */
#include "checkpoint/archive/pickle.h"
#include "checkpoint/archive/pickle_write.h"
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rs_pickle *read_bytes(const char *bytes, size_t count)
{
    rs_pickle *pickle = NULL;
    size_t used = 0;
    if (rs_pickle_read(NULL, "input", bytes, count, &pickle, &used) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    assert_int_equal(used, count);
    return pickle;
}

#define READ(text) read_bytes(text, sizeof text - 1)

static void test_pickle__show(void **state)
{
    (void)state;
#define ROW(bytes, shown)              \
    {                                  \
        bytes, sizeof bytes - 1, shown \
    }
    static const struct {
        const char *bytes;
        size_t count;
        const char *shown;
    } rows[] = {
        ROW("N.", "None"),
        ROW("(I01\nI00\nI-7\nF1.5\nF1e+30\nF2.0\nFnan\nt.",
            "(True, False, -7, 1.5, 1e+30, 2.0, nan)"),
        ROW("G\x3f\xb9\x99\x99\x99\x99\x99\x9a.", "0.1"),
        ROW("X\x07\x00\x00\x00"
            "a'b\n\\\xc3\xa9.",
            "'a\\'b\\n\\\\\xc3\xa9'"),
        ROW("X\x08\x00\x00\x00"
            "\xed\xa0\x80\x1b\xc2\x9b\xc3\xa9.",
            "'?\\x1b?\xc3\xa9'"),
        ROW("C\x03"
            "a\x00\xff.",
            "b'a\\x00\\xff'"),
        ROW("](K\x01K\x02"
            "e.",
            "[1, 2]"),
        ROW("K\x01\x85.", "(1,)"),
        ROW("}K\x01Ns.", "{1: None}"),
        ROW("]q\x01h\x01"
            "a.",
            "[[[[[[..]]]]]]"),
        ROW("](KaKaKaKaKaKaKaKaKaKae.", "[97, 97, 97, 97, 97, 97, 97, 97, ..]"),
        ROW("ccollections\nOrderedDict\n)RX\x01\x00\x00\x00wNs}X\x01\x00\x00\x00sNsb.",
            "collections.OrderedDict(){'w': None}<{'s': None}>"),
        ROW("X\x01\x00\x00\x00kQ.", "persistent 'k'"),
        ROW("\x8a\x09"
            "012345678.",
            "int of 9 bytes"),
        ROW("\x8c\x03"
            "a\nb\x8c\x01"
            "c\x93.",
            "a\\nb.c"),
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char shown[200];
        rs_pickle *pickle = read_bytes(rows[i].bytes, rows[i].count);
        rs_pickle_show(rs_pickle_root(pickle), shown, sizeof shown);
        assert_string_equal(shown, rows[i].shown);
        for (size_t room = 1; room < sizeof shown; room++) {
            char *cut = malloc(room); /* so that a sanitizer sees a byte too many */
            assert_non_null(cut);
            rs_pickle_show(rs_pickle_root(pickle), cut, room);
            size_t length = strlen(cut), whole = strlen(shown);
            if (length < whole && room >= 4) {
                assert_string_equal(cut + length - 2, "..");
                length -= 2;
                assert_true((shown[length] & 0xc0) != 0x80); /* no character was cut in two */
            }
            assert_memory_equal(cut, shown, room > whole ? whole : length);
            free(cut);
        }
        rs_pickle_destroy(pickle);
    }
}

static void test_pickle__navigation(void **state)
{
    (void)state;
    rs_pickle *pickle = READ("(c__builtin__\nset\n(K\x05tR}(X\x01\x00\x00\x00"
                             "aK\x01K\x02K\x03uccopy_reg\nx\n)R(X\x01\x00\x00\x00kNu"
                             "](NNe\x88t.");
    const rs_pickle_node *root = rs_pickle_root(pickle), *call = rs_pickle_item(root, 0);
    const rs_pickle_node *dict = rs_pickle_item(root, 1), *ordered = rs_pickle_item(root, 2);
    int64_t number = 7;
    rs_slice text = {NULL, 0};
    assert_int_equal(rs_pickle_count(root), 5);
    assert_null(rs_pickle_item(root, 5));
    assert_true(rs_pickle_is_call(call, "builtins", "set"));
    assert_true(rs_pickle_is_call(call, "__builtin__", "set"));
    assert_false(rs_pickle_is_call(call, "builtins", "se"));
    assert_false(rs_pickle_is_call(call, "os", "set"));
    assert_false(rs_pickle_is_global(call, "builtins", "set"));
    assert_true(rs_pickle_is_call(ordered, "copyreg", "x"));
    assert_true(rs_pickle_int(rs_pickle_item(call->call->arguments, 0), &number) && number == 5);
    assert_int_equal(rs_pickle_count(dict), 2);
    assert_null(rs_pickle_item(dict, 0));
    assert_true(rs_pickle_int(rs_pickle_get(dict, "a"), &number) && number == 1);
    assert_null(rs_pickle_get(dict, "b"));
    assert_true(rs_pickle_is(rs_pickle_get(ordered, "k"), RS_PICKLE_NONE));
    assert_null(rs_pickle_dict(call));
    assert_int_equal(rs_pickle_count(rs_pickle_item(root, 3)), 2);
    assert_false(rs_pickle_int(rs_pickle_item(root, 4), &number)); /* True is no int here */
    assert_false(rs_pickle_text(dict, &text) || rs_pickle_text(NULL, &text));
    assert_true(rs_pickle_text(dict->items.nodes[0], &text) && rs_slice_equals(text, "a"));
    assert_int_equal(dict->at, 23);
    assert_null(rs_pickle_get(NULL, "a"));
    assert_string_equal(rs_pickle_kind_text(dict), "a dict");
    assert_string_equal(rs_pickle_kind_text(NULL), "nothing");
    rs_pickle_destroy(pickle);
    rs_pickle_destroy(NULL);
}

static void test_pickle__globals(void **state)
{
    (void)state;
    rs_pickle *pickle = READ("(cos\nsystem\nca\nz\ncos\nsystem\n0ca\nb\nX\x01\x00\x00\x00"
                             "aX\x01\x00\x00\x00z\x93t.");
    static const char *const expected[][2] = {{"a", "b"}, {"a", "z"}, {"os", "system"}};
    size_t count = 0;
    const rs_pickle_node *const *globals = rs_pickle_globals(pickle, &count);
    assert_int_equal(count, 3);
    for (size_t i = 0; i < count; i++)
        assert_true(rs_pickle_is_global(globals[i], expected[i][0], expected[i][1]));
    rs_pickle_destroy(pickle);
    pickle = READ("N.");
    (void)rs_pickle_globals(pickle, &count);
    assert_int_equal(count, 0);
    rs_pickle_destroy(pickle);
}

/* {"key 0": 0, "key 1": 1, ..} in a scattered order, as an OrderedDict. */
static void write_large_dict(rs_pickle_writer *writer, int64_t count)
{
    rs_pickle_writer_begin(writer);
    rs_pickle_write_global(writer, "collections", "OrderedDict");
    rs_pickle_write_tuple_begin(writer);
    rs_pickle_write_tuple_end(writer);
    rs_pickle_write_reduce(writer);
    rs_pickle_write_items_begin(writer);
    for (int64_t i = 0; i < count; i++) {
        char key[40];
        int64_t number = i * 7919 % count;
        (void)snprintf(key, sizeof key, "key %lld", (long long)number);
        rs_pickle_write_text(writer, rs_slice_of(key));
        rs_pickle_write_int(writer, number);
    }
    rs_pickle_write_dict_end(writer);
}

static void test_pickle__index(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    rs_pickle_writer writer;
    rs_pickle_index index;
    rs_slice bytes;
    rs_pickle_writer_init(&writer, NULL);
    write_large_dict(&writer, COUNT);
    assert_int_equal(rs_pickle_writer_finish(&writer, &bytes), RESHARD_OK);
    rs_pickle *pickle = read_bytes(bytes.bytes, bytes.count);
    const rs_pickle_node *root = rs_pickle_root(pickle);
    assert_int_equal(rs_pickle_index_init(&index, NULL, root), RESHARD_OK);
    assert_int_equal(index.count, COUNT);
    for (int64_t i = 0; i < COUNT; i++) {
        char key[40];
        int64_t number = -1;
        (void)snprintf(key, sizeof key, "key %lld", (long long)i);
        assert_true(rs_pickle_int(rs_pickle_index_get(&index, rs_slice_of(key)), &number));
        assert_int_equal(number, i);
    }
    assert_null(rs_pickle_index_get(&index, rs_slice_of("key")));
    assert_null(rs_pickle_index_get(&index, rs_slice_of("key 100000")));
    rs_pickle_index_release(&index);
    rs_pickle_destroy(pickle);
    rs_pickle_writer_release(&writer);
}

/* The last of equal keys counts; keys that are no texts are left out; of other nodes nothing. */
static void test_pickle__index_odd(void **state)
{
    (void)state;
    static const char odd[] = "}(X\x01\x00\x00\x00"
                              "aK\x01"
                              "K\x05K\x02"
                              "X\x01\x00\x00\x00"
                              "aK\x03u.";
    rs_pickle *pickle = READ(odd);
    rs_pickle_index index;
    int64_t number = 0;
    assert_int_equal(rs_pickle_index_init(&index, NULL, rs_pickle_root(pickle)), RESHARD_OK);
    assert_int_equal(index.count, 1);
    assert_true(rs_pickle_int(rs_pickle_index_get(&index, rs_slice_of("a")), &number));
    assert_int_equal(number, 3);
    rs_pickle_index_release(&index);
    assert_true(rs_pickle_int(rs_pickle_get(rs_pickle_root(pickle), "a"), &number));
    assert_int_equal(number, 3);
    rs_pickle_destroy(pickle);

    pickle = READ("K\x01.");
    assert_int_equal(rs_pickle_index_init(&index, NULL, rs_pickle_root(pickle)), RESHARD_OK);
    assert_int_equal(index.count, 0);
    rs_pickle_index_release(&index);
    rs_pickle_destroy(pickle);

    char *long_key = malloc(RS_PICKLE_KEY_BYTES_MAX + 1);
    rs_pickle_writer writer;
    rs_slice bytes;
    assert_non_null(long_key);
    memset(long_key, 'k', RS_PICKLE_KEY_BYTES_MAX + 1);
    rs_pickle_writer_init(&writer, NULL);
    rs_pickle_writer_begin(&writer);
    rs_pickle_write_dict_begin(&writer);
    rs_pickle_write_text(&writer, (rs_slice){long_key, RS_PICKLE_KEY_BYTES_MAX + 1});
    rs_pickle_write_none(&writer);
    rs_pickle_write_dict_end(&writer);
    assert_int_equal(rs_pickle_writer_finish(&writer, &bytes), RESHARD_OK);
    pickle = read_bytes(bytes.bytes, bytes.count);
    assert_int_equal(rs_pickle_index_init(&index, NULL, rs_pickle_root(pickle)), RESHARD_ERR_RANGE);
    rs_pickle_destroy(pickle);
    rs_pickle_writer_release(&writer);
    free(long_key);
}

/* Each pattern, over and over, between a beginning and an end: whatever it makes, memory stays
 * below 128 bytes for each byte read. */
static void test_pickle__memory_bound(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *pattern, *end;
    } rows[] = {
        {"(", "N", "t."},        {"(", "]", "l."},          {"(", "(", ""},
        {"(", "]\x94", "t."},    {"]", "Na", "."},          {"}", "NNs", "."},
        {"](", "N", "e."},       {"(cm\nn\n", "2)R", "t."}, {"(", "c\n\n", "t."},
        {"(", "V\xff\n", "t."},  {"(", ")\x85", "t."},      {"(", "NQ", "t."},
        {"(", "(im\nn\n", "t."}, {"(cm\nn\n", "2)R]a", ""}, {"(cm\nn\n", "2)RNNs", "t."},
        {"N", "\x85", "."},      {"(", "I1\n", "t."},       {"(", "](N(NNe", ""},
        {"N", "2\x86", "."},
    };
    enum { BYTES = 300000 };
    char *bytes = malloc(BYTES);
    assert_non_null(bytes);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        reshard_context *context = NULL;
        rs_pickle *pickle = NULL;
        size_t count = strlen(rows[i].begin), length = strlen(rows[i].pattern), used = 0;
        memcpy(bytes, rows[i].begin, count);
        for (; count + length + 8 < BYTES; count += length)
            memcpy(bytes + count, rows[i].pattern, length);
        memcpy(bytes + count, rows[i].end, strlen(rows[i].end));
        count += strlen(rows[i].end);
        assert_int_equal(reshard_context_create(NULL, &context), RESHARD_OK);
        reshard_status status = rs_pickle_read(context, "input", bytes, count, &pickle, &used);
        assert_int_equal(status, strlen(rows[i].end) != 0 ? RESHARD_OK : RESHARD_ERR_SYNTAX);
        size_t peak = info_memory(context).bytes_peak;
        if (peak > 128 * count)
            fail_msg("%s: %zu bytes of memory for %zu", rows[i].pattern, peak, count);
        rs_pickle_destroy(pickle);
        assert_int_equal(info_memory(context).bytes, 0);
        reshard_context_destroy(context);
    }
    free(bytes);
}

static reshard_status attempt_all(reshard_context *context, void *user)
{
    (void)user;
    rs_pickle_writer writer;
    rs_pickle *pickle = NULL;
    rs_pickle_index index = {0};
    rs_slice bytes = {NULL, 0};
    size_t used = 0;
    rs_pickle_writer_init(&writer, context);
    write_large_dict(&writer, 100);
    reshard_status status = rs_pickle_writer_finish(&writer, &bytes);
    if (status == RESHARD_OK)
        status = rs_pickle_read(context, "input", bytes.bytes, bytes.count, &pickle, &used);
    if (status == RESHARD_OK)
        status = rs_pickle_index_init(&index, context, rs_pickle_root(pickle));
    rs_pickle_index_release(&index);
    rs_pickle_destroy(pickle);
    rs_pickle_writer_release(&writer);
    return status;
}

static reshard_status attempt_old(reshard_context *context, void *user)
{
    (void)user;
    static const char old[] =
        "((lp0\nI1\naL99999999999999999999L\naV\xe9\naS'a\\x41'\nacm\nn\n)R(I1\nI2\ne}b"
        "(im\nn\nN(cm\nn\no}bPx\nt.";
    rs_pickle *pickle = NULL;
    size_t used = 0;
    reshard_status status = rs_pickle_read(context, "input", old, sizeof old - 1, &pickle, &used);
    rs_pickle_destroy(pickle);
    return status;
}

static void test_pickle__out_of_memory(void **state)
{
    (void)state;
    words said = {0};
    if (!context_fail_each(attempt_all, NULL, &said) ||
        !context_fail_each(attempt_old, NULL, &said))
        fail_msg("%s", said.text);
}

static void test_pickle__writer_refusals(void **state)
{
    (void)state;
    rs_slice bytes;
    rs_pickle_writer writer;
    rs_pickle_writer_init(&writer, NULL);
    rs_pickle_writer_begin(&writer);
    rs_pickle_write_text(&writer, rs_slice_of("\xff"));
    rs_pickle_write_global(&writer, "a\nb", "c"); /* the first error stays */
    assert_int_equal(rs_pickle_writer_finish(&writer, &bytes), RESHARD_ERR_INVALID);
    assert_string_equal(reshard_error_text(), "cannot write the pickle: a text is not UTF-8");
    rs_pickle_writer_release(&writer);
    rs_pickle_writer_begin(&writer);
    rs_pickle_write_global(&writer, "a\nb", "c");
    assert_int_equal(rs_pickle_writer_finish(&writer, &bytes), RESHARD_ERR_INVALID);
    rs_pickle_writer_release(&writer);
}

/* ---- taking ---------------------------------------------------------------------------------- */

enum { MANY = 100 };

/* A pickle in the making: opcodes one after the other. */
typedef struct opcodes {
    char bytes[4096];
    size_t count;
} opcodes;

#define ADD(made, text) add_opcodes(made, text, sizeof text - 1)

static void add_opcodes(opcodes *made, const char *bytes, size_t count)
{
    assert_true(made->count + count <= sizeof made->bytes);
    memcpy(made->bytes + made->count, bytes, count);
    made->count += count;
}

typedef struct taking {
    size_t items;
    bool declines;
} taking;

static reshard_status take_all(void *user, const rs_pickle_node *container,
                               const rs_pickle_node *const *items, size_t count, bool *out_taken)
{
    taking *seen = user;
    assert_true(rs_pickle_is(container, RS_PICKLE_LIST) && items[0] != NULL);
    seen->items += count;
    *out_taken = !seen->declines;
    return RESHARD_OK;
}

/* Reads twice, once while somebody takes: everything but the list is the same. */
static void check_taking(const opcodes *made, bool is_offered, const char *rest)
{
    for (int declines = 0; declines < 2; declines++) {
        taking seen = {.declines = declines != 0};
        const rs_pickle_taker taker = {take_all, &seen, MANY};
        rs_pickle *pickle = NULL;
        char shown[200];
        size_t used = 0;
        if (rs_pickle_read_taking(NULL, "input", made->bytes, made->count, &taker, &pickle,
                                  &used) != RESHARD_OK)
            fail_msg("%s", reshard_error_text());
        const rs_pickle_node *root = rs_pickle_root(pickle);
        assert_int_equal(seen.items, is_offered ? MANY : 0);
        assert_int_equal(rs_pickle_count(rs_pickle_item(root, 0)),
                         is_offered && declines == 0 ? 0 : MANY);
        for (size_t i = 1; i < rs_pickle_count(root); i++) {
            rs_pickle_show(rs_pickle_item(root, i), shown, sizeof shown);
            assert_string_equal(shown, rest);
        }
        rs_pickle_destroy(pickle);
    }
}

/* ( [] memo 0 ( item, .. of two entries of the memo each, 1 .. 2 * MANY, and `more` ) .. */
static opcodes make_many(const char *more, size_t more_count)
{
    opcodes made = {.count = 0};
    ADD(&made, "\x80\x04(]\x94(");
    for (int i = 0; i < MANY; i++) {
        char item[] = "\x8c\x03t00\x94\x85\x94"; /* ("t00",) */
        item[3] = (char)('0' + i / 10);
        item[4] = (char)('0' + i % 10);
        add_opcodes(&made, item, sizeof item - 1);
        if (i == MANY / 2)
            add_opcodes(&made, more, more_count);
    }
    ADD(&made, "e");
    return made;
}

static void test_pickle__taken_values_come_back(void **state)
{
    (void)state;
    opcodes made = make_many("", 0);
    ADD(&made, "h\x2bh\x2bt."); /* the text of item 21, twice */
    check_taking(&made, true, "'t21'");
    made = make_many("", 0);
    ADD(&made, "h\x2ch\x2c\x85\x30h\x2ct."); /* the item itself; another one is popped */
    check_taking(&made, true, "('t21',)");
    made = make_many("", 0);
    ADD(&made, "K\x07\x85\x94h\xc9t."); /* the memo goes on where it was */
    check_taking(&made, true, "(7,)");
    made = make_many("", 0);
    ADD(&made, "K\x07q\x2bh\x2bt."); /* an entry is replaced, and all are there again */
    check_taking(&made, true, "7");
    made = make_many("", 0);
    ADD(&made, "h\xc8\x30K\x07\x85\x94h\xc9t.");
    check_taking(&made, true, "(7,)");
}

static void test_pickle__lasting_items_are_not_taken(void **state)
{
    (void)state;
    opcodes made = make_many("cos\nsystem\n0", 12);
    ADD(&made, "Nt.");
    check_taking(&made, false, "None");
    made = make_many("h\x00N\x61\x30", 5); /* the list gets an item from within */
    ADD(&made, "t.");
    rs_pickle *pickle = NULL;
    size_t used = 0;
    taking seen = {0};
    const rs_pickle_taker taker = {take_all, &seen, MANY};
    assert_int_equal(
        rs_pickle_read_taking(NULL, "input", made.bytes, made.count, &taker, &pickle, &used),
        RESHARD_OK);
    assert_int_equal(seen.items, 0);
    assert_int_equal(rs_pickle_count(rs_pickle_item(rs_pickle_root(pickle), 0)), MANY + 1);
    rs_pickle_destroy(pickle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pickle__show),
        cmocka_unit_test(test_pickle__navigation),
        cmocka_unit_test(test_pickle__globals),
        cmocka_unit_test(test_pickle__index),
        cmocka_unit_test(test_pickle__index_odd),
        cmocka_unit_test(test_pickle__memory_bound),
        cmocka_unit_test(test_pickle__out_of_memory),
        cmocka_unit_test(test_pickle__writer_refusals),
        cmocka_unit_test(test_pickle__taken_values_come_back),
        cmocka_unit_test(test_pickle__lasting_items_are_not_taken),
    };
    return cmocka_run_group_tests_name("pickle", tests, NULL, NULL);
}
