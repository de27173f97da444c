/* SPDX-License-Identifier: Apache-2.0 */
/* dcp_write.c - writes the archives of all entries, then `.metadata` with their places. */
#include "checkpoint/dcp/dcp_write.h"

#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/torch/torch_save.h"
#include "checkpoint/torch/torch_values.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- laying out ------------------------------------------------------------------------------ */

static reshard_status place_tensor(const rs_laying *laying, const rs_cut_tensor *cut)
{
    reshard_status status = rs_torch_check_dtype(cut->tensor->name, cut->tensor->dtype);
    return status == RESHARD_OK ? rs_target_place_boxes(laying, cut, NULL) : status;
}

reshard_status rs_dcp_lay_out(rs_laying *laying)
{
    rs_target *target = laying->target;
    rs_dcp_notes *notes = rs_arena_allocate(&target->arena, sizeof *notes);
    if (notes == NULL)
        return rs_allocation_status();
    *notes = (rs_dcp_notes){.source = laying->source, .value_file = -1, .folder = ""};
    target->notes = notes;
    reshard_status status = rs_dcp_values_list(target, laying->source, &target->arena,
                                               &notes->value_count, &notes->values);
    if (status == RESHARD_OK)
        status = rs_target_cut(laying, place_tensor);
    return status == RESHARD_OK ? rs_dcp_values_check(target, notes->value_count, notes->values)
                                : status;
}

void rs_dcp_name_file(const rs_target *target, int32_t file, int32_t rank,
                      char out_name[RS_FILE_NAME_BYTES])
{
    (void)target;
    (void)file;
    (void)snprintf(out_name, RS_FILE_NAME_BYTES, "__%d_0.distcp", (int)rank);
}

/* ---- entries --------------------------------------------------------------------------------- */

enum { PICKLE, ORDER, DATA, VERSION, MEMBER_COUNT };

/* The archive of one entry: its pickle, and where its members go. */
typedef struct archive {
    rs_pickle_writer pickle;
    rs_zip_draft *draft;
    rs_slice contents[MEMBER_COUNT]; /* DATA is written elsewhere */
} archive;

static void release_archive(archive *made)
{
    rs_zip_draft_destroy(made->draft);
    rs_pickle_writer_release(&made->pickle);
}

/* Release the archive in any case. */
static reshard_status make_archive(const rs_target *target, const rs_target_entry *entry,
                                   archive *made)
{
    static const char *const names[MEMBER_COUNT] = {"archive/data.pkl", "archive/byteorder",
                                                    "archive/data/0", "archive/version"};
    rs_zip_entry members[MEMBER_COUNT];
    const rs_target_array *array = rs_target_array_of(target, entry);
    *made = (archive){.contents[ORDER] = rs_slice_of("little"),
                      .contents[DATA] = {NULL, (size_t)array->bytes},
                      .contents[VERSION] = rs_slice_of("3\n")};
    rs_pickle_writer_init(&made->pickle, target->context);
    rs_pickle_writer_begin(&made->pickle);
    rs_torch_write_tensor(&made->pickle, rs_slice_of("0"), target->tensors[entry->tensor].dtype,
                          array->ndim, array->shape);
    reshard_status status = rs_pickle_writer_finish(&made->pickle, &made->contents[PICKLE]);
    if (status != RESHARD_OK)
        return status;
    for (int i = 0; i < MEMBER_COUNT; i++)
        members[i] = (rs_zip_entry){rs_slice_of(names[i]), made->contents[i].count};
    return rs_zip_draft_create(target->context, members, MEMBER_COUNT, RS_ZIP_ALIGNMENT,
                               &made->draft);
}

static uint64_t align(uint64_t at)
{
    return (at + RS_ZIP_ALIGNMENT - 1) / RS_ZIP_ALIGNMENT * RS_ZIP_ALIGNMENT;
}

/* Places the values in the first file that is written, in front of its tensors. */
static uint64_t place_values(rs_target *target, int32_t file)
{
    rs_dcp_notes *notes = target->notes;
    uint64_t at = 0;
    if (notes->value_file >= 0)
        return 0;
    notes->value_file = file;
    for (int64_t i = 0; i < notes->value_count; i++) {
        notes->values[i].at = at;
        at = align(at + notes->values[i].bytes);
    }
    return at;
}

reshard_status rs_dcp_place(rs_target *target, int32_t index)
{
    rs_target_file *file = &target->files[index];
    uint64_t at = place_values(target, index);
    for (int64_t i = file->entry_first; i < file->entry_first + file->entry_count; i++) {
        rs_target_entry *entry = &target->entries[i];
        archive made;
        reshard_status status = make_archive(target, entry, &made);
        if (status == RESHARD_OK) {
            entry->begin = at + rs_zip_draft_data_at(made.draft, DATA);
            if (__builtin_add_overflow(at, rs_zip_draft_bytes(made.draft), &at) ||
                at > INT64_MAX - RS_ZIP_ALIGNMENT)
                status = rs_fail(RESHARD_ERR_RANGE, "would be larger than any file");
        }
        release_archive(&made);
        if (status != RESHARD_OK)
            return status;
        file->bytes = at;
        at = align(at);
    }
    file->bytes = file->entry_count != 0 ? file->bytes : at;
    return RESHARD_OK;
}

reshard_status rs_dcp_write_head(const rs_target *target, int32_t file, rs_json_writer *writer)
{
    (void)target;
    (void)file;
    (void)writer;
    return RESHARD_OK; /* headers contain CRCs, so they are all written last */
}

static reshard_status write_archive(const rs_target *target, const rs_target_entry *entry,
                                    const rs_zip_sum *sum, rs_file *file, uint64_t *out_at,
                                    uint64_t *out_bytes)
{
    archive made;
    rs_zip_sum sums[MEMBER_COUNT] = {{0}};
    reshard_status status = make_archive(target, entry, &made);
    if (status == RESHARD_OK) {
        *out_at = entry->begin - rs_zip_draft_data_at(made.draft, DATA);
        *out_bytes = rs_zip_draft_bytes(made.draft);
        sums[DATA] = *sum;
    }
    for (int i = 0; status == RESHARD_OK && i < MEMBER_COUNT; i++) {
        if (i == DATA)
            continue;
        rs_zip_sum_add(&sums[i], made.contents[i].count, 0, made.contents[i].bytes,
                       made.contents[i].count);
        status = rs_file_write(file, made.contents[i].bytes, made.contents[i].count,
                               *out_at + rs_zip_draft_data_at(made.draft, (size_t)i));
    }
    if (status == RESHARD_OK)
        status = rs_zip_draft_finish(made.draft, file, *out_at, sums);
    release_archive(&made);
    return status;
}

/* ---- the metadata ---------------------------------------------------------------------------- */

/* Words that the pickle repeats. Each is written once and then fetched from the memo. */
enum {
    CLASS_TENSOR,
    CLASS_BYTES,
    CLASS_CHUNK,
    CLASS_INDEX,
    CLASS_INFO,
    CLASS_PROPERTIES,
    KEY_PROPERTIES,
    KEY_SIZE,
    KEY_CHUNKS,
    KEY_OFFSETS,
    KEY_SIZES,
    KEY_FQN,
    KEY_OFFSET,
    KEY_INDEX,
    KEY_PATH,
    KEY_LENGTH,
    TORCH_SIZE,
    WORD_COUNT
};

#define METADATA_MODULE "torch.distributed.checkpoint.metadata"
#define SHARD_MODULE "torch.distributed._shard.sharded_tensor.metadata"

static const struct {
    const char *module, *name; /* module NULL: a text */
} words[WORD_COUNT] = {
    [CLASS_TENSOR] = {METADATA_MODULE, "TensorStorageMetadata"},
    [CLASS_BYTES] = {METADATA_MODULE, "BytesStorageMetadata"},
    [CLASS_CHUNK] = {METADATA_MODULE, "ChunkStorageMetadata"},
    [CLASS_INDEX] = {METADATA_MODULE, "MetadataIndex"},
    [CLASS_INFO] = {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
    [CLASS_PROPERTIES] = {SHARD_MODULE, "TensorProperties"},
    [KEY_PROPERTIES] = {NULL, "properties"},
    [KEY_SIZE] = {NULL, "size"},
    [KEY_CHUNKS] = {NULL, "chunks"},
    [KEY_OFFSETS] = {NULL, "offsets"},
    [KEY_SIZES] = {NULL, "sizes"},
    [KEY_FQN] = {NULL, "fqn"},
    [KEY_OFFSET] = {NULL, "offset"},
    [KEY_INDEX] = {NULL, "index"},
    [KEY_PATH] = {NULL, "relative_path"},
    [KEY_LENGTH] = {NULL, "length"},
    [TORCH_SIZE] = {"torch", "Size"},
};

typedef struct metadata_writer {
    const rs_target *target;
    rs_pickle_writer pickle;
    bool is_put[WORD_COUNT];
    uint32_t puts[WORD_COUNT];
    /* By index of the target's entries: where each archive begins, and its size. */
    uint64_t *places, *lengths;
    const rs_target_entry **entries; /* sorted by tensor, then by piece */
} metadata_writer;

static void write_word(metadata_writer *w, int word)
{
    if (w->is_put[word]) {
        rs_pickle_write_get(&w->pickle, w->puts[word]);
        return;
    }
    if (words[word].module != NULL)
        rs_pickle_write_global(&w->pickle, words[word].module, words[word].name);
    else
        rs_pickle_write_text(&w->pickle, rs_slice_of(words[word].name));
    w->is_put[word] = true;
    w->puts[word] = rs_pickle_write_put(&w->pickle);
}

static void write_text(metadata_writer *w, const char *text)
{
    rs_pickle_write_text(&w->pickle, rs_slice_of(text));
}

/* Writes class.__new__(class); its state follows. */
static void begin_object(metadata_writer *w, int class)
{
    write_word(w, class);
    rs_pickle_write_tuple_begin(&w->pickle);
    rs_pickle_write_tuple_end(&w->pickle);
    rs_pickle_write_object(&w->pickle);
}

static void end_state(metadata_writer *w)
{
    rs_pickle_write_dict_end(&w->pickle);
    rs_pickle_write_build(&w->pickle);
}

/* numbers NULL: zeros. */
static void write_size(metadata_writer *w, int32_t ndim, const int64_t *numbers)
{
    write_word(w, TORCH_SIZE);
    rs_pickle_write_tuple_begin(&w->pickle);
    rs_pickle_write_tuple_begin(&w->pickle);
    for (int32_t d = 0; d < ndim; d++)
        rs_pickle_write_int(&w->pickle, numbers != NULL ? numbers[d] : 0);
    rs_pickle_write_tuple_end(&w->pickle);
    rs_pickle_write_tuple_end(&w->pickle);
    rs_pickle_write_reduce(&w->pickle);
}

/* The offset of an entry in its tensor; NULL: zeros. */
static const int64_t *offset_of(const rs_target *target, const rs_target_entry *entry)
{
    const rs_stored_tensor *tensor = &target->tensors[entry->tensor];
    bool has_box = rs_target_array_of(target, entry)->piece_count != 0 && !tensor->opaque;
    return has_box ? tensor->pieces[entry->piece_first].offset : NULL;
}

static void write_properties(metadata_writer *w, reshard_dtype dtype)
{
    rs_pickle_writer *pickle = &w->pickle;
    begin_object(w, CLASS_PROPERTIES);
    rs_pickle_write_tuple_begin(pickle);
    rs_pickle_write_global(pickle, "torch", rs_torch_dtype_name(dtype));
    rs_pickle_write_global(pickle, "torch.serialization", "_get_layout");
    rs_pickle_write_tuple_begin(pickle);
    write_text(w, "torch.strided");
    rs_pickle_write_tuple_end(pickle);
    rs_pickle_write_reduce(pickle);
    rs_pickle_write_bool(pickle, false);
    rs_pickle_write_global(pickle, SHARD_MODULE, "MEM_FORMAT_ENCODING");
    rs_pickle_write_tuple_begin(pickle);
    rs_pickle_write_int(pickle, 0); /* contiguous */
    rs_pickle_write_tuple_end(pickle);
    rs_pickle_write_reduce(pickle);
    rs_pickle_write_bool(pickle, false);
    rs_pickle_write_tuple_end(pickle);
    rs_pickle_write_build(pickle);
}

static void write_chunk(metadata_writer *w, const rs_target_entry *entry)
{
    const rs_target_array *array = rs_target_array_of(w->target, entry);
    begin_object(w, CLASS_CHUNK);
    rs_pickle_write_dict_begin(&w->pickle);
    write_word(w, KEY_OFFSETS);
    write_size(w, array->ndim, offset_of(w->target, entry));
    write_word(w, KEY_SIZES);
    write_size(w, array->ndim, array->shape);
    end_state(w);
}

static void write_tensor(metadata_writer *w, int64_t first, int64_t count)
{
    const rs_stored_tensor *tensor = &w->target->tensors[w->entries[first]->tensor];
    rs_pickle_write_text(&w->pickle, tensor->name);
    begin_object(w, CLASS_TENSOR);
    rs_pickle_write_dict_begin(&w->pickle);
    write_word(w, KEY_PROPERTIES);
    write_properties(w, tensor->dtype);
    write_word(w, KEY_SIZE);
    write_size(w, tensor->ndim, tensor->shape);
    write_word(w, KEY_CHUNKS);
    rs_pickle_write_list_begin(&w->pickle);
    for (int64_t i = first; i < first + count; i++)
        write_chunk(w, w->entries[i]);
    rs_pickle_write_list_end(&w->pickle);
    end_state(w);
}

/* Calls `write` for the entries of each tensor. */
static void each_tensor(metadata_writer *w,
                        void (*write)(metadata_writer *w, int64_t first, int64_t count))
{
    int64_t total = w->target->entry_count;
    for (int64_t first = 0, next; first < total; first = next) {
        for (next = first + 1; next < total; next++) {
            if (w->entries[next]->tensor != w->entries[first]->tensor)
                break;
        }
        write(w, first, next - first);
    }
}

static void write_info(metadata_writer *w, const char *file, uint64_t at, uint64_t bytes)
{
    const rs_dcp_notes *notes = w->target->notes;
    begin_object(w, CLASS_INFO);
    rs_pickle_write_dict_begin(&w->pickle);
    write_word(w, KEY_PATH);
    write_text(w, file + strlen(notes->folder));
    write_word(w, KEY_OFFSET);
    rs_pickle_write_int(&w->pickle, (int64_t)at);
    write_word(w, KEY_LENGTH);
    rs_pickle_write_int(&w->pickle, (int64_t)bytes);
    end_state(w);
}

static void write_stored(metadata_writer *w, int64_t first, int64_t count)
{
    rs_pickle_writer *pickle = &w->pickle;
    const rs_target *target = w->target;
    uint32_t name = 0;
    for (int64_t i = 0; i < count; i++) {
        const rs_target_entry *entry = w->entries[first + i];
        int64_t index = entry - target->entries;
        begin_object(w, CLASS_INDEX);
        rs_pickle_write_dict_begin(pickle);
        write_word(w, KEY_FQN);
        if (i == 0) {
            rs_pickle_write_text(pickle, target->tensors[entry->tensor].name);
            name = rs_pickle_write_put(pickle);
        } else {
            rs_pickle_write_get(pickle, name);
        }
        write_word(w, KEY_OFFSET);
        write_size(w, rs_target_array_of(target, entry)->ndim, offset_of(target, entry));
        write_word(w, KEY_INDEX);
        rs_pickle_write_int(pickle, i);
        end_state(w);
        write_info(w, target->files[entry->file].name, w->places[index], w->lengths[index]);
    }
}

/* Writes a number that is a key of a dict, not an index of a list. PyTorch makes it a text. */
static void write_digits(metadata_writer *w, int64_t number)
{
    char digits[24];
    (void)snprintf(digits, sizeof digits, "%lld", (long long)number);
    write_text(w, digits);
}

/* Writes the keys that lead to a tensor or value, if the source has them and its name has not
 * changed; otherwise its name is the only key. */
static void write_path(metadata_writer *w, rs_slice name, rs_slice source_name,
                       const rs_value_step *last)
{
    const rs_value_step *steps[RS_VALUE_STEPS_MAX];
    int32_t count = 0;
    bool is_same = rs_slice_compare(name, source_name) == 0;
    for (const rs_value_step *step = last; is_same && step != NULL; step = step->parent) {
        is_same = count < RS_VALUE_STEPS_MAX;
        if (is_same)
            steps[count++] = step;
    }
    rs_pickle_write_text(&w->pickle, name);
    rs_pickle_write_tuple_begin(&w->pickle);
    if (!is_same || count == 0)
        rs_pickle_write_text(&w->pickle, name);
    for (int32_t i = is_same ? count : 0; i-- > 0;) {
        if (steps[i]->key.bytes != NULL)
            rs_pickle_write_text(&w->pickle, steps[i]->key);
        else if (steps[i]->in_list)
            rs_pickle_write_int(&w->pickle, steps[i]->number);
        else
            write_digits(w, steps[i]->number);
    }
    rs_pickle_write_tuple_end(&w->pickle);
}

static void write_planner(metadata_writer *w)
{
    const rs_target *target = w->target;
    const rs_dcp_notes *notes = target->notes;
    if (notes->has_no_paths) {
        rs_pickle_write_none(&w->pickle);
        return;
    }
    rs_pickle_write_dict_begin(&w->pickle);
    for (int64_t i = 0; i < target->tensor_count; i++) {
        const rs_stored_tensor *from =
            notes->source != NULL ? &notes->source->tensors[target->origins[i]] : NULL;
        rs_slice name = target->tensors[i].name;
        write_path(w, name, from != NULL ? from->name : name, from != NULL ? from->step : NULL);
    }
    for (int64_t i = 0; i < notes->value_count; i++) {
        const rs_dcp_value *value = &notes->values[i];
        write_path(w, value->name, value->name, value->step);
    }
    rs_pickle_write_dict_end(&w->pickle);
}

static void write_values(metadata_writer *w)
{
    const rs_dcp_notes *notes = w->target->notes;
    for (int64_t i = 0; i < notes->value_count; i++) {
        rs_pickle_write_text(&w->pickle, notes->values[i].name);
        begin_object(w, CLASS_BYTES);
    }
}

static void write_stored_values(metadata_writer *w)
{
    const rs_dcp_notes *notes = w->target->notes;
    for (int64_t i = 0; i < notes->value_count; i++) {
        const rs_dcp_value *item = &notes->values[i];
        begin_object(w, CLASS_INDEX);
        rs_pickle_write_dict_begin(&w->pickle);
        write_word(w, KEY_FQN);
        rs_pickle_write_text(&w->pickle, item->name);
        write_word(w, KEY_OFFSET);
        rs_pickle_write_none(&w->pickle);
        write_word(w, KEY_INDEX);
        rs_pickle_write_none(&w->pickle);
        end_state(w);
        write_info(w, w->target->files[notes->value_file].name, item->at, item->bytes);
    }
}

static reshard_status write_metadata(metadata_writer *w, rs_slice *out_bytes)
{
    rs_pickle_writer_begin(&w->pickle);
    rs_pickle_write_global(&w->pickle, METADATA_MODULE, "Metadata");
    rs_pickle_write_tuple_begin(&w->pickle);
    rs_pickle_write_tuple_end(&w->pickle);
    rs_pickle_write_object(&w->pickle);
    rs_pickle_write_dict_begin(&w->pickle);
    write_text(w, "state_dict_metadata");
    rs_pickle_write_dict_begin(&w->pickle);
    each_tensor(w, write_tensor);
    write_values(w);
    rs_pickle_write_dict_end(&w->pickle);
    write_text(w, "planner_data");
    write_planner(w);
    write_text(w, "storage_data");
    rs_pickle_write_dict_begin(&w->pickle);
    each_tensor(w, write_stored);
    write_stored_values(w);
    rs_pickle_write_dict_end(&w->pickle);
    write_text(w, "storage_meta");
    rs_pickle_write_none(&w->pickle);
    write_text(w, "version");
    write_text(w, "1.0.0");
    end_state(w);
    return rs_pickle_writer_finish(&w->pickle, out_bytes);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int compare_entries(const void *a, const void *b)
{
    const rs_target_entry *x = *(const rs_target_entry *const *)a;
    const rs_target_entry *y = *(const rs_target_entry *const *)b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->piece_first > y->piece_first) - (x->piece_first < y->piece_first);
}

static reshard_status write_archives(metadata_writer *w, const rs_finishing *finishing)
{
    const rs_target *target = w->target;
    const rs_dcp_notes *notes = target->notes;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < target->entry_count; i++) {
        const rs_target_entry *entry = &target->entries[i];
        w->entries[i] = entry;
        status = write_archive(target, entry, &finishing->sums[i], finishing->files[entry->file],
                               &w->places[i], &w->lengths[i]);
    }
    for (int64_t i = 0; status == RESHARD_OK && i < notes->value_count; i++)
        status = rs_dcp_value_write(target, &notes->values[i], finishing->files[notes->value_file]);
    return status;
}

reshard_status rs_dcp_finish(const rs_target *target, const rs_finishing *finishing)
{
    metadata_writer w = {.target = target};
    const rs_dcp_notes *notes = target->notes;
    char name[RS_FILE_NAME_BYTES];
    size_t count = (size_t)target->entry_count, each = 2 * sizeof(uint64_t) + sizeof *w.entries;
    rs_slice bytes;
    assert(finishing->sums != NULL || count == 0);
    (void)snprintf(name, sizeof name, "%s.metadata", notes->folder);
    w.places = rs_allocate_array(target->context, count, each);
    if (w.places == NULL)
        return rs_allocation_status();
    w.lengths = w.places + count;
    w.entries = (void *)(w.lengths + count);
    rs_pickle_writer_init(&w.pickle, target->context);
    reshard_status status = write_archives(&w, finishing);
    if (status == RESHARD_OK) {
        rs_sort((void *)w.entries, count, sizeof *w.entries, compare_entries);
        status = write_metadata(&w, &bytes);
    }
    if (status == RESHARD_OK)
        status = finishing->add(finishing->user, name, bytes.bytes, bytes.count);
    rs_pickle_writer_release(&w.pickle);
    rs_release(target->context, w.places);
    return status;
}
