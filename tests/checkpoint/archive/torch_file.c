/* SPDX-License-Identifier: Apache-2.0 */
/* torch_file.c - writes FILE as torch.save({"weight": w, "tied": w}) would, with w the 3 x 4 floats
 * from 0 to 11; for test_torch.py. */
#include "checkpoint/archive/pickle_write.h"
#include "checkpoint/archive/zip_write.h"

#include <stdio.h>
#include <stdlib.h>

static void must(reshard_status status)
{
    if (status == RESHARD_OK)
        return;
    fprintf(stderr, "%s\n", reshard_error_text());
    exit(1);
}

static void write_text(rs_pickle_writer *w, const char *text)
{
    rs_pickle_write_text(w, rs_slice_of(text));
}

static void write_pair(rs_pickle_writer *w, int64_t a, int64_t b)
{
    rs_pickle_write_tuple_begin(w);
    rs_pickle_write_int(w, a);
    rs_pickle_write_int(w, b);
    rs_pickle_write_tuple_end(w);
}

static void write_tensor(rs_pickle_writer *w)
{
    rs_pickle_write_global(w, "torch._utils", "_rebuild_tensor_v2");
    rs_pickle_write_tuple_begin(w);
    rs_pickle_write_tuple_begin(w);
    write_text(w, "storage");
    rs_pickle_write_global(w, "torch", "FloatStorage");
    write_text(w, "0");
    write_text(w, "cpu");
    rs_pickle_write_int(w, 12);
    rs_pickle_write_tuple_end(w);
    rs_pickle_write_persistent(w);
    rs_pickle_write_int(w, 0);
    write_pair(w, 3, 4);
    write_pair(w, 4, 1);
    rs_pickle_write_bool(w, false);
    rs_pickle_write_global(w, "collections", "OrderedDict");
    rs_pickle_write_tuple_begin(w);
    rs_pickle_write_tuple_end(w);
    rs_pickle_write_reduce(w);
    rs_pickle_write_tuple_end(w);
    rs_pickle_write_reduce(w);
}

static void write_state(rs_pickle_writer *w, rs_slice *out_bytes)
{
    rs_pickle_writer_begin(w);
    rs_pickle_write_dict_begin(w);
    write_text(w, "weight");
    write_tensor(w);
    uint32_t tensor = rs_pickle_write_put(w);
    write_text(w, "tied");
    rs_pickle_write_get(w, tensor);
    rs_pickle_write_dict_end(w);
    must(rs_pickle_writer_finish(w, out_bytes));
}

int main(int argc, char **argv)
{
    float numbers[12];
    rs_pickle_writer pickle;
    rs_zip_draft *draft = NULL;
    rs_file *file = NULL;
    rs_slice contents[3] = {{NULL, 0}, {(const char *)numbers, sizeof numbers}, {"3\n", 2}};
    static const char *const names[3] = {"model/data.pkl", "model/data/0", "model/version"};
    rs_zip_entry entries[3];
    rs_zip_sum sums[3] = {{0}};
    if (argc != 2)
        return 2;
    for (int i = 0; i < 12; i++)
        numbers[i] = (float)i;
    rs_pickle_writer_init(&pickle, NULL);
    write_state(&pickle, &contents[0]);
    for (int i = 0; i < 3; i++)
        entries[i] = (rs_zip_entry){rs_slice_of(names[i]), contents[i].count};
    must(rs_zip_draft_create(NULL, entries, 3, RS_ZIP_ALIGNMENT, &draft));
    must(rs_file_create(NULL, argv[1], &file));
    for (size_t i = 0; i < 3; i++) {
        must(rs_file_write(file, contents[i].bytes, contents[i].count,
                           rs_zip_draft_data_at(draft, i)));
        rs_zip_sum_add(&sums[i], entries[i].bytes, 0, contents[i].bytes, contents[i].count);
    }
    must(rs_zip_draft_finish(draft, file, 0, sums));
    rs_file_close(file);
    rs_zip_draft_destroy(draft);
    rs_pickle_writer_release(&pickle);
    return 0;
}
