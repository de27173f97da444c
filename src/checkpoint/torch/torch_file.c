/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_file.c - opens both containers. In a zip file, FOLDER/data.pkl is the pickle, and
 * FOLDER/data/KEY are the storages. A legacy file consists of five pickles (a magic number, a
 * version, facts about the machine, the value, the list of keys), followed for each key by its
 * number of elements and its bytes.
 */
#include "checkpoint/torch/torch_file.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/sort.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The pickle of a zip file may have four times the size of the file, plus this. A larger one is a
 * bomb, not a checkpoint. */
#define PICKLE_BYTES_FREE ((uint64_t)64 << 20)
/* The pickles of a legacy file are searched for in this much of its front: the first attempt, and
 * the limit. */
#define LEGACY_BYTES_FIRST ((uint64_t)1 << 20)
#define LEGACY_BYTES_MAX ((uint64_t)1 << 28)

/* The number that a legacy file begins with, as pickles have it: of protocol 1 in digits, of later
 * ones as bytes, from protocol 4 on in a frame. (PyTorch itself cannot load protocol 0.) */
static const char legacy_digits[] = "L119547037146038801333356L\n.";
static const unsigned char legacy_magic[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                             0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
#define FRAME_BYTES 9
#define FRONT_BYTES 32

/* A storage of a legacy file. */
typedef struct legacy_storage {
    rs_slice key;
    uint64_t at, bytes;
} legacy_storage;

struct rs_torch_file {
    reshard_context *context;
    const rs_file *file;
    uint64_t begin, count;
    char *bytes; /* the pickle's bytes, which its nodes point into */
    size_t byte_count;
    rs_pickle *pickle;
    rs_zip *zip;     /* NULL: a legacy file */
    rs_slice folder; /* the first folder in the zip, without a slash */
    rs_pickle *keys; /* legacy: the list of keys */
    legacy_storage *storages;
    size_t storage_count; /* number of storages, which are sorted by key */
    int32_t *made;        /* by member: the file made of it, or -1; NULL: none was made yet */
    rs_unpacking *unpacking;
};

const rs_pickle *rs_torch_file_pickle(const rs_torch_file *opened, size_t *out_bytes)
{
    *out_bytes = opened->byte_count;
    return opened->pickle;
}

void rs_torch_file_destroy(void *body)
{
    rs_torch_file *opened = body;
    if (opened == NULL)
        return;
    rs_pickle_destroy(opened->pickle);
    rs_pickle_destroy(opened->keys);
    if (opened->made != NULL) {
        size_t count = 0;
        (void)rs_zip_members(opened->zip, &count);
        rs_release(opened->context, opened->made);
    }
    rs_unpacking_release(opened->unpacking);
    rs_zip_destroy(opened->zip);
    rs_release(opened->context, opened->bytes);
    rs_release(opened->context, opened->storages);
    rs_release(opened->context, opened);
}

/* ---- zip files ------------------------------------------------------------------------------- */

/* Finds the member FOLDER/ + middle + name; NULL if there is none. */
static const rs_zip_member *find_member(const rs_zip *zip, rs_slice folder, rs_slice middle,
                                        rs_slice name)
{
    char path[1024];
    size_t length = folder.count + 1 + middle.count + name.count;
    if (length > sizeof path)
        return NULL;
    memcpy(path, folder.bytes, folder.count);
    path[folder.count] = '/';
    memcpy(path + folder.count + 1, middle.bytes, middle.count);
    memcpy(path + folder.count + 1 + middle.count, name.bytes, name.count);
    return rs_zip_find(zip, (rs_slice){path, length});
}

static const rs_zip_member *find_named(const rs_torch_file *opened, const char *name)
{
    return find_member(opened->zip, opened->folder, rs_slice_of(""), rs_slice_of(name));
}

/* Takes the folder of the first member, as torch does. False if it has none. */
static bool find_folder(const rs_zip *zip, rs_slice *out_folder)
{
    size_t count = 0;
    const rs_zip_member *members = rs_zip_members(zip, &count);
    const char *slash =
        count != 0 ? memchr(members[0].name.bytes, '/', members[0].name.count) : NULL;
    if (slash == NULL)
        return false;
    *out_folder = (rs_slice){members[0].name.bytes, (size_t)(slash - members[0].name.bytes)};
    return true;
}

static bool is_script(const rs_torch_file *opened)
{
    size_t count = 0, skipped = opened->folder.count + 1;
    const rs_zip_member *members = rs_zip_members(opened->zip, &count);
    if (find_named(opened, "constants.pkl") != NULL)
        return true;
    for (size_t i = 0; i < count; i++) {
        rs_slice name = members[i].name;
        if (name.count > skipped + 5 && memcmp(name.bytes + skipped, "code/", 5) == 0)
            return true;
    }
    return false;
}

static reshard_status check_byte_order(const rs_torch_file *opened)
{
    const rs_zip_member *member = find_named(opened, "byteorder");
    char *text = NULL;
    size_t count = 0;
    if (member == NULL)
        return RESHARD_OK; /* PyTorch 1 wrote none; its machines were little-endian */
    reshard_status status = rs_zip_read_all(opened->zip, member, 64, &text, &count);
    if (status != RESHARD_OK)
        return status;
    bool is_little = count == 6 && memcmp(text, "little", 6) == 0;
    rs_release(opened->context, text);
    return is_little
               ? RESHARD_OK
               : rs_fail_about(
                     RESHARD_ERR_UNSUPPORTED, rs_file_path(opened->file),
                     "was written on a big-endian machine; only little-endian files can be read");
}

static reshard_status open_zip(rs_torch_file *opened)
{
    const char *path = rs_file_path(opened->file);
    size_t count = 0, used = 0;
    reshard_status status =
        rs_zip_open(opened->context, opened->file, opened->begin, opened->count, &opened->zip);
    if (status != RESHARD_OK)
        return status;
    const rs_zip_member *member = NULL;
    if (find_folder(opened->zip, &opened->folder))
        member = find_named(opened, "data.pkl");
    if (member == NULL)
        return rs_fail_about(
            RESHARD_ERR_CORRUPT, path,
            "is a zip file without FOLDER/data.pkl, so torch.save did not write it");
    if (is_script(opened))
        return rs_fail_about(
            RESHARD_ERR_UNSUPPORTED, path,
            "is a TorchScript archive, which holds a program; save its state_dict instead");
    status = check_byte_order(opened);
    uint64_t most = RS_PICKLE_BYTES_MAX;
    if (opened->count < (most - PICKLE_BYTES_FREE) / 4)
        most = PICKLE_BYTES_FREE + 4 * opened->count;
    if (status == RESHARD_OK)
        status = rs_zip_read_all(opened->zip, member, (size_t)most, &opened->bytes, &count);
    if (status != RESHARD_OK)
        return status;
    opened->byte_count = count + 1;
    return rs_pickle_read(opened->context, path, opened->bytes, count, &opened->pickle, &used);
}

/* ---- legacy files ---------------------------------------------------------------------------- */

/* Reads five pickles in a row and keeps the last two: the value and the keys. */
static reshard_status read_row(rs_torch_file *opened, const char *path, size_t *out_used)
{
    size_t at = 0;
    for (int i = 0; i < 5; i++) {
        rs_pickle *pickle = NULL;
        size_t used = 0;
        reshard_status status = rs_pickle_read(opened->context, path, opened->bytes + at,
                                               opened->byte_count - at, &pickle, &used);
        if (status != RESHARD_OK)
            return status;
        at += used;
        rs_pickle **kept = i == 3 ? &opened->pickle : i == 4 ? &opened->keys : NULL;
        if (kept != NULL)
            *kept = pickle;
        else
            rs_pickle_destroy(pickle);
    }
    *out_used = at;
    return RESHARD_OK;
}

static void drop_row(rs_torch_file *opened)
{
    rs_pickle_destroy(opened->pickle);
    rs_pickle_destroy(opened->keys);
    opened->pickle = opened->keys = NULL;
    rs_release(opened->context, opened->bytes);
    opened->bytes = NULL;
}

/* The length of the pickles is not known before they are read, so larger and larger parts are
 * tried. */
static reshard_status read_pickles(rs_torch_file *opened, size_t *out_used)
{
    const char *path = rs_file_path(opened->file);
    uint64_t most = opened->count < LEGACY_BYTES_MAX ? opened->count : LEGACY_BYTES_MAX;
    for (uint64_t tried = LEGACY_BYTES_FIRST;; tried *= 8) {
        opened->byte_count = (size_t)(tried < most ? tried : most);
        opened->bytes = rs_allocate(opened->context, opened->byte_count);
        if (opened->bytes == NULL)
            return rs_allocation_status();
        reshard_status status =
            rs_file_read(opened->file, opened->bytes, opened->byte_count, opened->begin);
        if (status == RESHARD_OK)
            status = read_row(opened, path, out_used);
        if (status != RESHARD_ERR_SYNTAX || tried >= most)
            return status;
        drop_row(opened);
    }
}

/* Reads all references to storages, which say how large a storage's elements are. */
static reshard_status list_references(const rs_torch_file *opened, rs_torch_storage *references,
                                      size_t *out_count)
{
    size_t count = 0;
    const rs_pickle_node *const *nodes = rs_pickle_persistents(opened->pickle, &count);
    for (size_t i = 0; i < count; i++) {
        reshard_status status = rs_torch_storage_read(nodes[i], &references[i]);
        if (status != RESHARD_OK) {
            rs_error_add_subject(rs_file_path(opened->file), strlen(rs_file_path(opened->file)));
            return rs_fail_within(status, "%s", rs_file_path(opened->file));
        }
    }
    *out_count = count;
    return RESHARD_OK;
}

/* Reads the number of elements in front of a storage, and steps over the storage. */
static reshard_status step_over(const rs_torch_file *opened, const rs_torch_storage *reference,
                                uint64_t *at, legacy_storage *out_storage)
{
    unsigned char bytes[8];
    uint64_t elements = 0, size = 0;
    if (opened->count - *at < sizeof bytes)
        return rs_fail_about(RESHARD_ERR_CORRUPT, rs_file_path(opened->file),
                             "ends before storage \"%.*s\"", RS_SHOWN(reference->key));
    reshard_status status = rs_file_read(opened->file, bytes, sizeof bytes, opened->begin + *at);
    if (status != RESHARD_OK)
        return status;
    for (int i = 7; i >= 0; i--)
        elements = elements << 8 | bytes[i];
    *at += sizeof bytes;
    if (__builtin_mul_overflow(elements, (uint64_t)reference->element_bytes, &size) ||
        size > opened->count - *at)
        return rs_fail_about(RESHARD_ERR_CORRUPT, rs_file_path(opened->file),
                             "ends within storage \"%.*s\"", RS_SHOWN(reference->key));
    *out_storage = (legacy_storage){reference->key, *at, size};
    *at += size;
    return RESHARD_OK;
}

static reshard_status find_storages(rs_torch_file *opened, const rs_torch_storage *references,
                                    size_t reference_count, uint64_t at)
{
    const rs_pickle_node *keys = rs_pickle_root(opened->keys);
    if (!rs_pickle_is(keys, RS_PICKLE_LIST))
        return rs_fail_about(RESHARD_ERR_CORRUPT, rs_file_path(opened->file),
                             "has %s in place of its storages", rs_pickle_kind_text(keys));
    opened->storage_count = rs_pickle_count(keys);
    opened->storages =
        rs_allocate_array(opened->context, opened->storage_count, sizeof(legacy_storage));
    if (opened->storages == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < opened->storage_count; i++) {
        rs_torch_storage wanted = {0};
        const rs_torch_storage *found = NULL;
        if (rs_pickle_text(rs_pickle_item(keys, i), &wanted.key) && reference_count != 0)
            found = bsearch(&wanted, references, reference_count, sizeof wanted, rs_compare_slices);
        if (found == NULL)
            return rs_fail_about(RESHARD_ERR_CORRUPT, rs_file_path(opened->file),
                                 "lists a storage that nothing refers to");
        reshard_status status = step_over(opened, found, &at, &opened->storages[i]);
        if (status != RESHARD_OK)
            return status;
    }
    rs_sort(opened->storages, opened->storage_count, sizeof(legacy_storage), rs_compare_slices);
    return RESHARD_OK;
}

static reshard_status open_legacy(rs_torch_file *opened)
{
    size_t used = 0, count = 0;
    reshard_status status = read_pickles(opened, &used);
    if (status != RESHARD_OK)
        return status;
    (void)rs_pickle_persistents(opened->pickle, &count);
    size_t capacity = count;
    rs_torch_storage *references =
        rs_allocate_array(opened->context, capacity, sizeof(rs_torch_storage));
    if (references == NULL)
        return rs_allocation_status();
    status = list_references(opened, references, &count);
    if (status == RESHARD_OK) {
        rs_sort(references, count, sizeof *references, rs_compare_slices);
        status = find_storages(opened, references, count, used);
    }
    rs_release(opened->context, references);
    return status;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* Reads the first bytes, with zeros where the file is shorter. */
static reshard_status read_front(const rs_file *file, uint64_t begin, uint64_t count,
                                 unsigned char out_bytes[FRONT_BYTES])
{
    memset(out_bytes, 0, FRONT_BYTES);
    return rs_file_read(file, out_bytes, count < FRONT_BYTES ? (size_t)count : FRONT_BYTES, begin);
}

static bool is_zip(const unsigned char *bytes)
{
    return memcmp(bytes, "PK\3\4", 4) == 0;
}

static bool is_legacy(const unsigned char *bytes)
{
    if (memcmp(bytes, legacy_digits, sizeof legacy_digits - 1) == 0)
        return true;
    size_t at = bytes[2] == 0x95 ? 2 + FRAME_BYTES : 2;
    return bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5 &&
           memcmp(bytes + at, legacy_magic, sizeof legacy_magic) == 0;
}

reshard_status rs_torch_file_is(reshard_context *context, const rs_file *file, bool *out_is)
{
    unsigned char bytes[FRONT_BYTES];
    uint64_t count = 0;
    rs_zip *zip = NULL;
    rs_slice folder;
    reshard_status status = rs_file_size(file, &count);
    if (status == RESHARD_OK)
        status = read_front(file, 0, count, bytes);
    if (status != RESHARD_OK)
        return status;
    *out_is = is_legacy(bytes);
    if (!is_zip(bytes))
        return RESHARD_OK;
    /* A damaged zip file with such a name is most likely from torch.save: open it, and report the
     * damage. */
    status = rs_zip_open(context, file, 0, count, &zip);
    *out_is = status != RESHARD_OK ||
              (find_folder(zip, &folder) &&
               find_member(zip, folder, rs_slice_of(""), rs_slice_of("data.pkl")) != NULL);
    rs_zip_destroy(zip);
    return status == RESHARD_ERR_IO || status == RESHARD_ERR_NO_MEMORY ? status : RESHARD_OK;
}

reshard_status rs_torch_file_open(reshard_context *context, const rs_file *file, uint64_t begin,
                                  uint64_t count, rs_torch_file **out_opened)
{
    unsigned char front[FRONT_BYTES];
    rs_torch_file *opened = rs_allocate_zeroed(context, sizeof *opened);
    if (opened == NULL)
        return rs_allocation_status();
    *opened = (rs_torch_file){.context = context, .file = file, .begin = begin, .count = count};
    reshard_status status = read_front(file, begin, count, front);
    if (status == RESHARD_OK && is_legacy(front))
        status = open_legacy(opened);
    else if (status == RESHARD_OK)
        status = open_zip(opened);
    if (status == RESHARD_OK)
        *out_opened = opened;
    else
        rs_torch_file_destroy(opened);
    return status;
}

/* Finds the bytes of a key, in the file or in a compressed member. */
static reshard_status find_bytes(const rs_torch_file *opened, rs_slice key, uint64_t *out_at,
                                 uint64_t *out_bytes, const rs_zip_member **out_member)
{
    const rs_zip_member *member = NULL;
    const legacy_storage *found = NULL;
    if (opened->zip != NULL) {
        member = find_member(opened->zip, opened->folder, rs_slice_of("data/"), key);
    } else if (opened->storage_count != 0) {
        const legacy_storage wanted = {.key = key};
        found = bsearch(&wanted, opened->storages, opened->storage_count, sizeof wanted,
                        rs_compare_slices);
    }
    if (member == NULL && found == NULL)
        return rs_fail(RESHARD_ERR_CORRUPT, "its storage \"%.*s\" is not in the file",
                       RS_SHOWN(key));
    bool is_packed = member != NULL && member->deflated;
    *out_member = is_packed ? member : NULL;
    *out_at = is_packed ? 0 : member != NULL ? member->at : found->at + opened->begin;
    *out_bytes = member != NULL ? member->bytes : found->bytes;
    return RESHARD_OK;
}

reshard_status rs_torch_file_place(const rs_torch_file *opened, const rs_torch_tensor *tensor,
                                   uint64_t *out_at, const rs_zip_member **out_member)
{
    const rs_torch_storage *storage = &tensor->storage;
    uint64_t at = 0, bytes = 0;
    reshard_status status = find_bytes(opened, storage->key, &at, &bytes, out_member);
    if (status != RESHARD_OK)
        return status;
    /* rs_torch_storage_read has checked that neither product overflows. */
    uint64_t wanted = (uint64_t)(storage->view_at * storage->element_bytes) +
                      (uint64_t)(storage->elements * storage->element_bytes);
    if (wanted > bytes)
        return rs_fail(
            RESHARD_ERR_CORRUPT, "its storage \"%.*s\" has %llu bytes, but the pickle says %llu",
            RS_SHOWN(storage->key), (unsigned long long)bytes, (unsigned long long)wanted);
    *out_at = at + tensor->at;
    return RESHARD_OK;
}

const rs_zip *rs_torch_file_zip(const rs_torch_file *opened)
{
    return opened->zip;
}

bool rs_torch_file_is_pickle(const rs_torch_file *opened, const rs_zip_member *member)
{
    return member == find_named(opened, "data.pkl");
}

reshard_status rs_torch_file_record(const rs_torch_file *opened, rs_arena *arena, const char *name,
                                    rs_slice *out_text)
{
    char *bytes = NULL;
    size_t count = 0;
    const rs_zip_member *member = opened->zip != NULL ? find_named(opened, name) : NULL;
    *out_text = (rs_slice){NULL, 0};
    if (member == NULL)
        return RESHARD_OK;
    reshard_status status =
        rs_zip_read_all(opened->zip, member, RS_TORCH_RECORD_BYTES_MAX, &bytes, &count);
    if (status != RESHARD_OK)
        return status;
    *out_text = (rs_slice){rs_arena_copy(arena, bytes, count + 1, 1), count};
    rs_release(opened->context, bytes);
    return out_text->bytes != NULL ? RESHARD_OK : rs_allocation_status();
}

int32_t *rs_torch_file_made(rs_torch_file *opened, const rs_zip_member *member)
{
    size_t count = 0;
    const rs_zip_member *members = rs_zip_members(opened->zip, &count);
    assert(member >= members && member < members + count);
    if (opened->made == NULL) {
        opened->made = rs_allocate_array(opened->context, count, sizeof *opened->made);
        for (size_t i = 0; opened->made != NULL && i < count; i++)
            opened->made[i] = -1;
    }
    return opened->made != NULL ? &opened->made[member - members] : NULL;
}

rs_unpacking **rs_torch_file_unpacking(rs_torch_file *opened)
{
    return &opened->unpacking;
}
