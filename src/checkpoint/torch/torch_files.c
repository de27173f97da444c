/* SPDX-License-Identifier: Apache-2.0 */
/* torch_files.c - opens torch.save files, and keeps their tensors, values and CRCs with the
 * checkpoint. */
#include "checkpoint/torch/torch_files.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "base/sort.h"
#include "text/text.h"

#include <assert.h>
#include <string.h>

static const char *const endings[] = {".pt", ".pth", ".bin", ".ckpt"};

/* How many globals inspect lists for a file. */
#define GLOBALS_SHOWN 12
#define GLOBALS_BYTES 400
/* Bytes of an attribute's name in a note. */
#define ATTRIBUTE_SHOWN 64
/* Bytes of a value's text for inspect. */
#define VALUE_SHOWN 160

/* The ending of a name if it is one of torch.save's, or NULL. */
static const char *find_ending(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t count = strlen(endings[i]);
        if (length > count && strcmp(name + length - count, endings[i]) == 0)
            return name + length - count;
    }
    return NULL;
}

bool rs_torch_name_is(const char *name)
{
    return find_ending(name) != NULL;
}

rs_slice rs_torch_name_stem(const char *name)
{
    const char *ending = find_ending(name);
    return (rs_slice){name, ending != NULL ? (size_t)(ending - name) : strlen(name)};
}

bool rs_torch_name_read(const char *name, rs_file_name *out_name)
{
    const char *ending = find_ending(name);
    return ending != NULL && rs_file_name_read_as(name, ending, out_name);
}

reshard_status rs_torch_probe_file(const reshard_checkpoint *checkpoint, const char *name,
                                   bool *out_is)
{
    rs_file *file = NULL;
    rs_path_kind kind = RS_PATH_NONE;
    char *path = rs_path_join(checkpoint->context, checkpoint->folder, name);
    if (path == NULL)
        return rs_allocation_status();
    *out_is = false;
    reshard_status status = rs_path_kind_of(path, &kind);
    if (status == RESHARD_OK && kind == RS_PATH_FILE) {
        status = rs_file_open(checkpoint->context, path, &file);
        if (status == RESHARD_OK)
            status = rs_torch_file_is(checkpoint->context, file, out_is);
        rs_file_close(file);
    }
    rs_release(checkpoint->context, path);
    return status;
}

reshard_status rs_torch_open_file(reshard_checkpoint *checkpoint, int32_t index)
{
    rs_stored_file *file = &checkpoint->files[index];
    rs_torch_file *opened = NULL;
    reshard_status status =
        rs_torch_file_open(checkpoint->context, file->file, 0, file->bytes, &opened);
    file->body = opened;
    file->body_destroy = rs_torch_file_destroy;
    return status == RESHARD_OK ? rs_torch_keep_crcs(checkpoint, index, opened) : status;
}

reshard_status rs_torch_keep_crcs(reshard_checkpoint *checkpoint, int32_t file,
                                  const rs_torch_file *opened)
{
    size_t count = 0;
    reshard_status status = RESHARD_OK;
    const rs_zip *zip = rs_torch_file_zip(opened);
    const rs_zip_member *members = zip != NULL ? rs_zip_members(zip, &count) : NULL;
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        const rs_zip_member *member = &members[i];
        /* Deflated members are checked while they are read, and the pickle was. */
        if (member->crc != 0 && !member->deflated && !rs_torch_file_is_pickle(opened, member))
            status = rs_store_add_crc(
                checkpoint, &(rs_stored_crc){file, member->crc, member->at, member->bytes});
    }
    return status;
}

reshard_status rs_torch_open_named(reshard_checkpoint *checkpoint, int64_t count,
                                   char *const *names)
{
    return rs_store_open_each(checkpoint, count, names, rs_torch_open_file);
}

const rs_torch_file *rs_torch_opened(const reshard_checkpoint *checkpoint, int32_t file)
{
    assert(file >= 0 && file < checkpoint->file_count && checkpoint->files[file].body != NULL);
    return checkpoint->files[file].body;
}

/* One line for all files with the same attributes: most come from state_dict() and have
 * _metadata. */
static reshard_status note_attributes(reshard_checkpoint *checkpoint,
                                      const rs_torch_attributes *passed)
{
    char line[800];
    rs_text text;
    rs_text_init(&text, line, sizeof line);
    for (int32_t i = 0; i < passed->count; i++)
        rs_text_add(&text, "%s\"%.*s\"%s", i == 0 ? "" : ", ",
                    (int)rs_min(rs_slice_shown(passed->names[i]), ATTRIBUTE_SHOWN),
                    passed->names[i].bytes,
                    rs_slice_equals(passed->names[i], "_metadata") ? " (versions of modules)" : "");
    return passed->count == 0
               ? RESHARD_OK
               : rs_store_note_once(checkpoint,
                                    "left out: attributes of containers of tensors: %s%s", line,
                                    passed->more ? ", .." : "");
}

typedef struct walking {
    reshard_checkpoint *checkpoint;
    rs_torch_leaf_fn *take;
    void *user;
} walking;

static reshard_status take_leaf(void *user, const rs_torch_leaf *leaf)
{
    const walking *w = user;
    reshard_status status = w->take(w->user, leaf);
    return leaf->kind != RS_TORCH_VALUE
               ? rs_store_keep_unreadable(w->checkpoint, status, leaf->name)
               : status;
}

reshard_status rs_torch_walk_file(reshard_checkpoint *checkpoint, int32_t file,
                                  const rs_torch_root *names, rs_torch_leaf_fn *take, void *user)
{
    size_t bytes = 0;
    const rs_pickle *pickle = rs_torch_file_pickle(rs_torch_opened(checkpoint, file), &bytes);
    rs_torch_attributes passed = {0};
    walking w = {checkpoint, take, user};
    const char *name = checkpoint->files[file].name;
    rs_torch_root root = names != NULL ? *names : (rs_torch_root){0};
    if (root.alone.bytes == NULL) /* what has an empty name could not be written again */
        root.alone = rs_torch_name_stem(name);
    reshard_status status =
        rs_torch_walk(&checkpoint->arena, name, pickle, bytes, &root, take_leaf, &w, &passed);
    return status == RESHARD_OK ? note_attributes(checkpoint, &passed) : status;
}

/* All files of a checkpoint share the decoders that the first torch.save file keeps. */
static reshard_status find_unpacking(const reshard_checkpoint *checkpoint,
                                     rs_unpacking **out_unpacking)
{
    int32_t first = 0;
    while (checkpoint->files[first].body_destroy != rs_torch_file_destroy)
        first++;
    rs_unpacking **kept = rs_torch_file_unpacking(checkpoint->files[first].body);
    reshard_status status =
        *kept == NULL ? rs_unpacking_create(checkpoint->context, kept) : RESHARD_OK;
    *out_unpacking = *kept;
    return status;
}

/* Makes a compressed member a file of the checkpoint, unless that has been done. */
static reshard_status unpack(reshard_checkpoint *checkpoint, int32_t file,
                             const rs_zip_member *member, int32_t *out_file)
{
    rs_torch_file *opened = checkpoint->files[file].body;
    rs_unpacking *unpacking = NULL;
    rs_file *content = NULL;
    int32_t *made = rs_torch_file_made(opened, member);
    if (made == NULL)
        return rs_allocation_status();
    reshard_status status = *made < 0 ? find_unpacking(checkpoint, &unpacking) : RESHARD_OK;
    if (status == RESHARD_OK && *made < 0)
        status = rs_unpack_member(unpacking, checkpoint->files[file].file,
                                  rs_torch_file_zip(opened), member, &content);
    if (status == RESHARD_OK && *made < 0)
        status = rs_store_add_file(checkpoint, member->name, content, made);
    *out_file = *made;
    return status;
}

reshard_status rs_torch_locate(reshard_checkpoint *checkpoint, int32_t file,
                               const rs_torch_tensor *tensor, int32_t *out_file, uint64_t *out_at)
{
    const rs_zip_member *member = NULL;
    *out_file = file;
    reshard_status status =
        rs_torch_file_place(rs_torch_opened(checkpoint, file), tensor, out_at, &member);
    return status == RESHARD_OK && member != NULL ? unpack(checkpoint, file, member, out_file)
                                                  : status;
}

reshard_status rs_torch_occurrence(reshard_checkpoint *checkpoint, int32_t file,
                                   const rs_torch_leaf *leaf, rs_occurrence *out_occurrence)
{
    rs_torch_tensor tensor;
    uint64_t at = 0;
    int32_t holder = file;
    reshard_status status = rs_torch_tensor_read(&checkpoint->arena, leaf->node, &tensor);
    if (status == RESHARD_OK && rs_volume(tensor.ndim, tensor.shape) == 0)
        at = 0; /* an empty tensor may have no storage */
    else if (status == RESHARD_OK)
        status = rs_torch_locate(checkpoint, file, &tensor, &holder, &at);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s: tensor \"%.*s\"", checkpoint->files[file].name,
                              rs_slice_shown(leaf->name), leaf->name.bytes);
    *out_occurrence = (rs_occurrence){.name = leaf->name,
                                      .file = holder,
                                      .dtype = tensor.dtype,
                                      .ndim = tensor.ndim,
                                      .shape = tensor.shape,
                                      .at = at,
                                      .strides = tensor.strides,
                                      .place = leaf->place};
    return RESHARD_OK;
}

reshard_status rs_torch_add(reshard_checkpoint *checkpoint, int32_t file, const rs_torch_leaf *leaf,
                            rs_occurrences *list)
{
    rs_occurrence found;
    reshard_status status = rs_torch_occurrence(checkpoint, file, leaf, &found);
    return status == RESHARD_OK ? rs_occurrences_add(checkpoint->context, list, &found) : status;
}

reshard_status rs_torch_take_whole(void *whole, const rs_torch_leaf *leaf)
{
    rs_torch_whole *r = whole;
    if (leaf->kind == RS_TORCH_VALUE)
        return rs_torch_keep_value(r->checkpoint, r->file, leaf);
    if (leaf->kind != RS_TORCH_TENSOR)
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, r->checkpoint->files[r->file].name,
                             "tensor \"%.*s\" is one rank's part of a %s; give the folder with the "
                             "files of all ranks",
                             rs_slice_shown(leaf->name), leaf->name.bytes,
                             leaf->kind == RS_TORCH_DTENSOR ? "DTensor" : "ShardedTensor");
    return rs_torch_add(r->checkpoint, r->file, leaf, &r->list);
}

static reshard_status show_value(const reshard_checkpoint *checkpoint, const rs_stored_value *value,
                                 int64_t items_max, rs_text *text)
{
    (void)checkpoint;
    rs_pickle_show_whole(value->node, items_max, text);
    return RESHARD_OK;
}

reshard_status rs_torch_describe(rs_arena *arena, rs_stored_value *value)
{
    char shown[VALUE_SHOWN];
    rs_pickle_show(value->node, shown, sizeof shown);
    value->text = rs_arena_copy(arena, shown, strlen(shown) + 1, 1);
    value->type = rs_pickle_type_name(value->node, &value->item_count);
    value->show = show_value;
    return value->text != NULL ? RESHARD_OK : rs_allocation_status();
}

reshard_status rs_torch_keep_value(reshard_checkpoint *checkpoint, int32_t file,
                                   const rs_torch_leaf *leaf)
{
    rs_stored_value value = {
        .name = leaf->name, .place = leaf->place, .file = file, .node = leaf->node};
    reshard_status status = rs_torch_describe(&checkpoint->arena, &value);
    return status == RESHARD_OK ? rs_store_add_value(checkpoint, &value) : status;
}

/* Rank files mostly hold the same values in the same order, so the search continues where the last
 * one ended. */
static const rs_stored_value *find_common(const reshard_checkpoint *checkpoint,
                                          rs_torch_common *common, rs_slice name)
{
    int64_t count = checkpoint->value_count;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = (common->next + i) % count;
        if (rs_slice_compare(checkpoint->values[at].name, name) != 0)
            continue;
        common->next = at + 1;
        return &checkpoint->values[at];
    }
    return NULL;
}

reshard_status rs_torch_keep_common(reshard_checkpoint *checkpoint, rs_torch_common *common,
                                    int32_t file, bool is_first, const rs_torch_leaf *leaf)
{
    const rs_stored_value *kept = is_first ? NULL : find_common(checkpoint, common, leaf->name);
    bool is_same = kept != NULL ? rs_pickle_equal(kept->node, leaf->node) : is_first;
    common->differing += !is_same;
    return kept != NULL ? RESHARD_OK : rs_torch_keep_value(checkpoint, file, leaf);
}

reshard_status rs_torch_note_common(reshard_checkpoint *checkpoint, const rs_torch_common *common)
{
    if (common->differing == 0)
        return RESHARD_OK;
    return rs_store_note(checkpoint,
                         "values that differ between ranks: %lld; the first of each is kept",
                         (long long)common->differing);
}

reshard_status rs_torch_check_names(const reshard_checkpoint *checkpoint, rs_occurrences *list)
{
    rs_sort(list->items, (size_t)list->count, sizeof(rs_occurrence), rs_compare_occurrences);
    for (int64_t i = 1; i < list->count; i++) {
        const rs_occurrence *item = &list->items[i];
        if (item->file == item[-1].file && rs_slice_compare(item->name, item[-1].name) == 0)
            return rs_fail_about(RESHARD_ERR_INVALID, checkpoint->files[item->file].name,
                                 "two tensors would have the name \"%.*s\"",
                                 rs_slice_shown(item->name), item->name.bytes);
    }
    return RESHARD_OK;
}

/* Lists the globals of a pickle that tensors do not need and that Python would call, or not.
 * Returns how many there are. */
static size_t list_globals(const rs_pickle *pickle, bool is_called, rs_text *text)
{
    size_t count = 0, unknown = 0;
    const rs_pickle_node *const *globals = rs_pickle_globals(pickle, &count);
    for (size_t i = 0; i < count; i++) {
        char shown[160];
        if (globals[i]->global->is_called != is_called ||
            rs_torch_global_is_known(globals[i]->global))
            continue;
        rs_pickle_show(globals[i], shown, sizeof shown);
        if (unknown++ < GLOBALS_SHOWN && text->length + strlen(shown) + 2 < GLOBALS_BYTES)
            rs_text_add(text, "%s%s", text->length == 0 ? "" : ", ", shown);
    }
    return unknown;
}

reshard_status rs_torch_note_file_globals(reshard_checkpoint *checkpoint, int32_t index)
{
    char called[GLOBALS_BYTES], named[GLOBALS_BYTES];
    rs_text called_text, named_text;
    size_t bytes = 0;
    reshard_status status = RESHARD_OK;
    const char *file = checkpoint->files[index].name;
    const rs_pickle *pickle = rs_torch_file_pickle(rs_torch_opened(checkpoint, index), &bytes);
    rs_text_init(&called_text, called, sizeof called);
    rs_text_init(&named_text, named, sizeof named);
    size_t calls = list_globals(pickle, true, &called_text);
    size_t names = list_globals(pickle, false, &named_text);
    if (calls != 0)
        status = rs_store_warn(checkpoint,
                               "%s: Python would call %s%s to load it; reshard calls nothing", file,
                               called, calls > GLOBALS_SHOWN ? ", .." : "");
    if (status == RESHARD_OK && names != 0)
        status = rs_store_note(checkpoint,
                               "%s: names %zu Python object%s that tensors do not need, "
                               "neither looked up nor run: %s%s",
                               file, names, names == 1 ? "" : "s", named,
                               names > GLOBALS_SHOWN ? ", .." : "");
    return status;
}

reshard_status rs_torch_note_globals(reshard_checkpoint *checkpoint)
{
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK && i < checkpoint->named_count; i++) {
        /* some formats have files of other kinds as well */
        if (checkpoint->files[i].body_destroy == rs_torch_file_destroy)
            status = rs_torch_note_file_globals(checkpoint, i);
    }
    return status;
}
