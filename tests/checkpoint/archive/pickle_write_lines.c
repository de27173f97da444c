/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_write_lines.c - writes, in hexadecimal, the pickles that test_pickle_write.py knows by
 * their names. */
#include "checkpoint/archive/pickle_write.h"

#include <stdio.h>
#include <string.h>

static void write_text(rs_pickle_writer *w, const char *text)
{
    rs_pickle_write_text(w, rs_slice_of(text));
}

static void write_plain(rs_pickle_writer *w)
{
    static const int64_t numbers[] = {0,
                                      1,
                                      255,
                                      256,
                                      65535,
                                      65536,
                                      -1,
                                      -128,
                                      -129,
                                      INT32_MAX,
                                      INT32_MIN,
                                      (int64_t)INT32_MAX + 1,
                                      INT64_MAX,
                                      INT64_MIN,
                                      (int64_t)1 << 39,
                                      -((int64_t)1 << 39),
                                      (int64_t)INT32_MIN - 1,
                                      0xff};
    static const double reals[] = {0.0, -0.0, 1.5, 1e300, 5e-324, -2.25};
    char all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (char)(unsigned char)i;
    rs_pickle_write_dict_begin(w);
    write_text(w, "ints");
    rs_pickle_write_list_begin(w);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        rs_pickle_write_int(w, numbers[i]);
    rs_pickle_write_list_end(w);
    write_text(w, "floats");
    rs_pickle_write_list_begin(w);
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        rs_pickle_write_float(w, reals[i]);
    rs_pickle_write_list_end(w);
    write_text(w, "texts");
    rs_pickle_write_tuple_begin(w);
    write_text(w, "");
    write_text(w, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\n");
    rs_pickle_write_tuple_end(w);
    write_text(w, "bytes");
    rs_pickle_write_bytes(w, (rs_slice){all, sizeof all});
    write_text(w, "no bytes");
    rs_pickle_write_bytes(w, (rs_slice){NULL, 0});
    write_text(w, "others");
    rs_pickle_write_list_begin(w);
    rs_pickle_write_none(w);
    rs_pickle_write_bool(w, true);
    rs_pickle_write_bool(w, false);
    rs_pickle_write_tuple_begin(w);
    rs_pickle_write_tuple_end(w);
    rs_pickle_write_dict_begin(w);
    rs_pickle_write_dict_end(w);
    rs_pickle_write_list_end(w);
    rs_pickle_write_dict_end(w);
}

/* A list that holds itself, and 300 lists that are all held twice. */
static void write_shared(rs_pickle_writer *w)
{
    uint32_t puts[300];
    rs_pickle_write_list_begin(w);
    for (int i = 0; i < 300; i++) {
        rs_pickle_write_list_begin(w);
        rs_pickle_write_int(w, i);
        rs_pickle_write_list_end(w);
        puts[i] = rs_pickle_write_put(w);
    }
    for (int i = 0; i < 300; i++)
        rs_pickle_write_get(w, puts[i]);
    rs_pickle_write_list_end(w);
}

static void write_tensor(rs_pickle_writer *w, const char *key, int64_t rows, int64_t columns)
{
    rs_pickle_write_global(w, "torch._utils", "_rebuild_tensor_v2");
    rs_pickle_write_tuple_begin(w);
    rs_pickle_write_tuple_begin(w);
    write_text(w, "storage");
    rs_pickle_write_global(w, "torch", "FloatStorage");
    write_text(w, key);
    write_text(w, "cpu");
    rs_pickle_write_int(w, rows * columns);
    rs_pickle_write_tuple_end(w);
    rs_pickle_write_persistent(w);
    rs_pickle_write_int(w, 0);
    rs_pickle_write_tuple_begin(w);
    rs_pickle_write_int(w, rows);
    rs_pickle_write_int(w, columns);
    rs_pickle_write_tuple_end(w);
    rs_pickle_write_tuple_begin(w);
    rs_pickle_write_int(w, columns);
    rs_pickle_write_int(w, 1);
    rs_pickle_write_tuple_end(w);
    rs_pickle_write_bool(w, false);
    rs_pickle_write_global(w, "collections", "OrderedDict");
    rs_pickle_write_tuple_begin(w);
    rs_pickle_write_tuple_end(w);
    rs_pickle_write_reduce(w);
    rs_pickle_write_tuple_end(w);
    rs_pickle_write_reduce(w);
}

/* What torch.save writes for a model's state_dict(). */
static void write_state_dict(rs_pickle_writer *w)
{
    rs_pickle_write_global(w, "collections", "OrderedDict");
    rs_pickle_write_tuple_begin(w);
    rs_pickle_write_tuple_end(w);
    rs_pickle_write_reduce(w);
    rs_pickle_write_items_begin(w);
    write_text(w, "weight");
    write_tensor(w, "0", 3, 4);
    uint32_t tensor = rs_pickle_write_put(w);
    write_text(w, "tied");
    rs_pickle_write_get(w, tensor);
    rs_pickle_write_dict_end(w);
    rs_pickle_write_dict_begin(w);
    write_text(w, "_metadata");
    rs_pickle_write_none(w);
    rs_pickle_write_dict_end(w);
    rs_pickle_write_build(w);
}

/* As the dataclasses of checkpoint metadata. */
static void write_object(rs_pickle_writer *w)
{
    rs_pickle_write_global(w, "types", "SimpleNamespace");
    rs_pickle_write_tuple_begin(w);
    rs_pickle_write_tuple_end(w);
    rs_pickle_write_object(w);
    rs_pickle_write_dict_begin(w);
    write_text(w, "a");
    rs_pickle_write_int(w, 1);
    rs_pickle_write_dict_end(w);
    rs_pickle_write_build(w);
}

static void write_two(rs_pickle_writer *w)
{
    rs_slice bytes;
    write_text(w, "first");
    (void)rs_pickle_write_put(w);
    (void)rs_pickle_writer_finish(w, &bytes);
    rs_pickle_writer_begin(w);
    write_text(w, "second");
    (void)rs_pickle_write_put(w);
}

int main(void)
{
    static const struct {
        const char *name;
        void (*write)(rs_pickle_writer *w);
    } cases[] = {{"plain", write_plain},
                 {"shared", write_shared},
                 {"state_dict", write_state_dict},
                 {"object", write_object},
                 {"two", write_two}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rs_pickle_writer writer;
        rs_slice bytes;
        rs_pickle_writer_init(&writer, NULL);
        rs_pickle_writer_begin(&writer);
        cases[i].write(&writer);
        if (rs_pickle_writer_finish(&writer, &bytes) != RESHARD_OK) {
            fprintf(stderr, "%s: %s\n", cases[i].name, reshard_error_text());
            return 1;
        }
        printf("%s ", cases[i].name);
        for (size_t k = 0; k < bytes.count; k++)
            printf("%02x", (unsigned char)bytes.bytes[k]);
        putchar('\n');
        rs_pickle_writer_release(&writer);
    }
    return 0;
}
