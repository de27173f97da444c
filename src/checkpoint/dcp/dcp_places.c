/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_places.c - storage_data of a `.metadata`: which file each chunk is in, and where. Its pairs
 * come rank by rank but are wanted tensor by tensor. So they are first distributed over the names;
 * the entries of each name are then mostly in order.
 */
#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/archive/zip.h"
#include "checkpoint/dcp/dcp_reading.h"
#include "text/text.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef rs_dcp_reading reading;

/* ---- one pair -------------------------------------------------------------------------------- */

/* Is it "stream.zstd", with or without a domain, and of version 1.x if it has one? */
static bool is_zstd(rs_slice descriptor)
{
    static const char name[] = "stream.zstd";
    size_t at = sizeof name - 1;
    if (!rs_slice_begins(descriptor, name))
        return false;
    if (at < descriptor.count && descriptor.bytes[at] == '@')
        while (at < descriptor.count && descriptor.bytes[at] != '/')
            at++;
    rs_slice version = {descriptor.bytes + at, descriptor.count - at};
    return version.count == 0 || rs_slice_equals(version, "/1") || rs_slice_begins(version, "/1.");
}

static reshard_status read_transforms(const rs_pickle_node *list, rs_dcp_found *entry)
{
    rs_slice first = {"", 0};
    size_t count = rs_pickle_count(list);
    if (list == NULL || rs_pickle_is(list, RS_PICKLE_NONE) || count == 0)
        return RESHARD_OK;
    if (!rs_pickle_text(rs_pickle_item(list, 0), &first))
        return rs_dcp_fail_kind(rs_pickle_item(list, 0), "the name of a transform");
    entry->is_zstd = count == 1 && is_zstd(first);
    if (entry->is_zstd)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_UNSUPPORTED,
                   "is stored through \"%.*s\"%s; only stream.zstd by itself can be read",
                   rs_slice_shown(first), first.bytes, count > 1 ? " and others" : "");
}

/* Gives a text its number. The text is copied when it is seen first. */
static reshard_status number_text(reading *r, rs_intern *intern, rs_slice text, int32_t *out_number)
{
    int64_t number = 0;
    reshard_status status = rs_dcp_spend(r, text.count);
    if (status == RESHARD_OK)
        status = rs_intern_add(intern, text, &number);
    *out_number = (int32_t)number;
    return status;
}

static reshard_status read_file_name(reading *r, const rs_pickle_node *node, int32_t *out_file)
{
    rs_slice text;
    if (!rs_pickle_text(node, &text))
        return rs_dcp_fail_kind(node, "the name of a file");
    int64_t known = r->files.count;
    reshard_status status = number_text(r, &r->files, text, out_file);
    const char *fault =
        status == RESHARD_OK && r->files.count != known ? rs_zip_name_fault(text) : NULL;
    if (fault == NULL)
        return status;
    rs_intern_forget(&r->files);
    return rs_fail(RESHARD_ERR_CORRUPT, "its file \"%.*s\": %s", rs_slice_shown(text), text.bytes,
                   fault);
}

static reshard_status read_info(reading *r, const rs_pickle_node *info, rs_dcp_found *entry)
{
    int64_t at = -1, bytes = -1;
    if (!rs_dcp_is_again(info, "_StorageInfo", &r->info_class))
        return rs_dcp_fail_kind(info, "_StorageInfo");
    if (!rs_pickle_int(rs_dcp_field(info, "offset"), &at) ||
        !rs_pickle_int(rs_dcp_field(info, "length"), &bytes) || at < 0 || bytes < 0)
        return rs_fail(RESHARD_ERR_CORRUPT, "its offset and length are not two numbers");
    entry->at = (uint64_t)at;
    entry->bytes = (uint64_t)bytes;
    reshard_status status = read_file_name(r, rs_dcp_field(info, "relative_path"), &entry->file);
    return status == RESHARD_OK
               ? read_transforms(rs_dcp_field(info, "transform_descriptors"), entry)
               : status;
}

reshard_status rs_dcp_find_entry(reading *r, const rs_pickle_node *key, const rs_pickle_node *info)
{
    rs_dcp_found entry = {.ndim = -1};
    rs_slice name;
    if (!rs_dcp_is_again(key, "MetadataIndex", &r->index_class))
        return rs_dcp_fail_kind(key, "MetadataIndex");
    if (!rs_pickle_text(rs_dcp_field(key, "fqn"), &name))
        return rs_dcp_fail_kind(rs_dcp_field(key, "fqn"), "the name of a tensor");
    const rs_pickle_node *offset = rs_dcp_field(key, "offset");
    reshard_status status = number_text(r, &r->names, name, &entry.name);
    if (status == RESHARD_OK && offset != NULL && !rs_pickle_is(offset, RS_PICKLE_NONE))
        status = rs_dcp_copy_numbers(r, offset, &entry.ndim, &entry.offset);
    if (status == RESHARD_OK)
        status = read_info(r, info, &entry);
    if (status == RESHARD_OK)
        status = rs_grow(r->arena->context, &r->found, &r->found_capacity, r->found_count + 1,
                         sizeof entry);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "tensor \"%.*s\"", rs_slice_shown(name), name.bytes);
    r->found[r->found_count++] = entry;
    return RESHARD_OK;
}

/* ---- the order ------------------------------------------------------------------------------- */

static int compare_offsets(const rs_dcp_entry *a, const rs_dcp_entry *b)
{
    if (a->ndim != b->ndim)
        return a->ndim < b->ndim ? -1 : 1;
    for (int32_t d = 0; d < a->ndim; d++) {
        if (a->offset[d] != b->offset[d])
            return a->offset[d] < b->offset[d] ? -1 : 1;
    }
    return 0;
}

static int compare_entries(const void *a, const void *b)
{
    const rs_dcp_entry *x = a, *y = b;
    int order = x->name.bytes != y->name.bytes ? rs_slice_compare(x->name, y->name) : 0;
    return order != 0 ? order : compare_offsets(x, y);
}

const rs_dcp_entry *rs_dcp_metadata_use(rs_dcp_metadata *metadata, rs_slice name, int32_t ndim,
                                        const int64_t *offset)
{
    const rs_dcp_entry wanted = {.name = name, .ndim = ndim, .offset = offset};
    rs_dcp_entry *found = NULL;
    /* Chunks are mostly asked for in the order of the entries. */
    if (metadata->next < metadata->entry_count &&
        compare_entries(&wanted, &metadata->entries[metadata->next]) == 0)
        found = &metadata->entries[metadata->next];
    else if (metadata->entry_count != 0)
        found = bsearch(&wanted, metadata->entries, (size_t)metadata->entry_count, sizeof wanted,
                        compare_entries);
    if (found == NULL)
        return NULL;
    metadata->next = found - metadata->entries + 1;
    found->is_used = true;
    return found;
}

int rs_dcp_file_compare(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        if (rs_is_digit(*a) && rs_is_digit(*b)) {
            size_t x = strspn(a, "0123456789"), y = strspn(b, "0123456789");
            int order = x != y ? (x < y ? -1 : 1) : memcmp(a, b, x);
            if (order != 0)
                return order;
            a += x;
            b += y;
            continue;
        }
        if (*a != *b)
            break;
        a++;
        b++;
    }
    return (unsigned char)*a - (unsigned char)*b;
}

/* A text and its number. Equal texts may have several numbers. */
typedef struct numbered {
    rs_slice text;
    int64_t number;
} numbered;

static int compare_files(const void *a, const void *b)
{
    return rs_dcp_file_compare(((const numbered *)a)->text.bytes,
                               ((const numbered *)b)->text.bytes);
}

/* Sorts texts. out_texts gets each text once; out_places, by number, its index there. Both have
 * room for intern->count items. */
static reshard_status sort_texts(const rs_intern *intern, rs_compare_fn *compare,
                                 rs_slice *out_texts, int64_t *out_places, int64_t *out_count)
{
    reshard_context *context = intern->arena->context;
    size_t count = (size_t)intern->count;
    int64_t last = -1;
    numbered *sorted = rs_allocate_array(context, count, sizeof *sorted);
    if (sorted == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        sorted[i] = (numbered){intern->items[i], (int64_t)i};
    rs_sort(sorted, count, sizeof *sorted, compare);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || compare(&sorted[i - 1], &sorted[i]) != 0)
            out_texts[++last] = sorted[i].text;
        out_places[sorted[i].number] = last;
    }
    *out_count = last + 1;
    rs_release(context, sorted);
    return RESHARD_OK;
}

/* The results of sort_texts for names and files. */
typedef struct ordering {
    reshard_context *context;
    int64_t name_count;
    rs_slice *names, *files;
    int64_t *name_places, *file_places;
    int64_t *ends; /* by index into names: where its entries end */
} ordering;

static reshard_status order_texts(reading *r, ordering *o)
{
    size_t names = (size_t)r->names.count, files = (size_t)r->files.count;
    *o = (ordering){.context = r->arena->context};
    o->names = rs_allocate_array(o->context, names, sizeof *o->names);
    o->name_places = rs_allocate_array(o->context, names, sizeof *o->name_places);
    o->ends = rs_allocate_array(o->context, names + 1, sizeof *o->ends);
    o->files = rs_allocate_array(o->context, files, sizeof *o->files);
    o->file_places = rs_allocate_array(o->context, files, sizeof *o->file_places);
    if (o->names == NULL || o->name_places == NULL || o->ends == NULL || o->files == NULL ||
        o->file_places == NULL)
        return rs_allocation_status();
    reshard_status status =
        sort_texts(&r->names, rs_compare_slices, o->names, o->name_places, &o->name_count);
    if (status == RESHARD_OK)
        status =
            sort_texts(&r->files, compare_files, o->files, o->file_places, &r->made.file_count);
    return status;
}

static void release_ordering(ordering *o)
{
    rs_release(o->context, o->names);
    rs_release(o->context, o->name_places);
    rs_release(o->context, o->ends);
    rs_release(o->context, o->files);
    rs_release(o->context, o->file_places);
}

/* Distributes the found entries over the names, keeping their order. */
static void deal(const reading *r, ordering *o, rs_dcp_entry *entries)
{
    memset(o->ends, 0, ((size_t)o->name_count + 1) * sizeof *o->ends);
    for (int64_t i = 0; i < r->found_count; i++)
        o->ends[o->name_places[r->found[i].name] + 1]++;
    for (int64_t i = 0; i < o->name_count; i++)
        o->ends[i + 1] += o->ends[i];
    for (int64_t i = 0; i < r->found_count; i++) {
        const rs_dcp_found *found = &r->found[i];
        int64_t name = o->name_places[found->name];
        entries[o->ends[name]++] = (rs_dcp_entry){.name = o->names[name],
                                                  .ndim = found->ndim,
                                                  .offset = found->offset,
                                                  .file = (int32_t)o->file_places[found->file],
                                                  .at = found->at,
                                                  .bytes = found->bytes,
                                                  .is_zstd = found->is_zstd};
    }
}

static reshard_status sort_entries(reading *r, ordering *o)
{
    size_t count = (size_t)r->found_count;
    rs_dcp_entry *entries = rs_arena_allocate_array(r->arena, count, sizeof *entries);
    if (entries == NULL)
        return rs_allocation_status();
    deal(r, o, entries);
    for (int64_t i = 0, first = 0; i < o->name_count; first = o->ends[i++])
        rs_sort(entries + first, (size_t)(o->ends[i] - first), sizeof *entries, compare_entries);
    for (size_t i = 1; i < count; i++) {
        if (compare_entries(&entries[i - 1], &entries[i]) == 0)
            return rs_fail(RESHARD_ERR_CORRUPT, "a chunk of tensor \"%.*s\" is stored twice",
                           rs_slice_shown(entries[i].name), entries[i].name.bytes);
    }
    r->made.entries = entries;
    r->made.entry_count = r->found_count;
    return RESHARD_OK;
}

static reshard_status list_files(reading *r, const ordering *o)
{
    r->made.files = rs_arena_allocate_array(r->arena, (size_t)r->made.file_count, sizeof(char *));
    if (r->made.files == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < r->made.file_count; i++)
        r->made.files[i] = o->files[i].bytes;
    return RESHARD_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

reshard_status rs_dcp_read_entries(reading *r, const rs_pickle_node *dict)
{
    ordering o;
    if (!rs_pickle_is(dict, RS_PICKLE_DICT))
        return rs_dcp_fail_kind(dict, "the dict storage_data");
    if (r->dict != dict->at) { /* entries were taken from another dict */
        r->found_count = 0;
        rs_intern_release(&r->names);
        rs_intern_release(&r->files);
    }
    reshard_status status = RESHARD_OK;
    for (size_t i = 0; status == RESHARD_OK && i < rs_pickle_count(dict); i++)
        status = rs_dcp_find_entry(r, dict->items.nodes[2 * i], dict->items.nodes[2 * i + 1]);
    if (status != RESHARD_OK)
        return status;
    status = order_texts(r, &o);
    if (status == RESHARD_OK)
        status = sort_entries(r, &o);
    if (status == RESHARD_OK)
        status = list_files(r, &o);
    release_ordering(&o);
    return status;
}
