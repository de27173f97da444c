/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_sharded_state.c - what the inference engines vLLM and SGLang load as sharded_state: for
 * each tensor-parallel rank the arrays that it has in memory, in safetensors files
 * model-rank-R-part-P.safetensors. A rank has one file or several parts, there is no index, and no
 * file says how it was cut: the number of ranks, the engine's rules and config.json do.
 *
 * Engines load such files into parameters as they are made, but save them after kernels may have
 * rearranged them. Which of the two a file holds cannot be seen, so our own files say that theirs
 * are in logical order (ORDER_KEY). Of others, dense weights are the same either way, experts are
 * taken as logical with a warning, and quantised weights are refused.
 */
#include "checkpoint/format/plain_formats.h"

#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/format/file_names.h"
#include "checkpoint/format/rank_join.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/rules/config.h"
#include "checkpoint/rules/number.h"
#include "checkpoint/target/target.h"
#include "spec/spec.h"
#include "text/text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define ORDER_KEY "RESHARD_ORDER"
#define RULES "vllm"

/* ---- names ----------------------------------------------------------------------------------- */

typedef struct part_name {
    int32_t rank, part;
} part_name;

/* Reads a number without leading zeros, and the text behind it. */
static bool read_number(const char **at, const char *behind, int32_t *out_number)
{
    int64_t number = 0;
    const char *start = *at;
    while (rs_is_digit(**at) && *at - start < 9)
        number = 10 * number + (*(*at)++ - '0');
    size_t length = strlen(behind);
    if (*at == start || (*start == '0' && *at - start > 1) || strncmp(*at, behind, length) != 0)
        return false;
    *at += length;
    *out_number = (int32_t)number;
    return true;
}

static bool read_name(const char *name, part_name *out_name)
{
    static const char prefix[] = "model-rank-";
    const char *at = name + sizeof prefix - 1;
    return strncmp(name, prefix, sizeof prefix - 1) == 0 &&
           read_number(&at, "-part-", &out_name->rank) &&
           read_number(&at, ".safetensors", &out_name->part) && *at == '\0';
}

static int compare_files(const void *a, const void *b)
{
    part_name x = {0, 0}, y = {0, 0};
    (void)read_name(((const rs_stored_file *)a)->name, &x);
    (void)read_name(((const rs_stored_file *)b)->name, &y);
    int32_t order = x.rank != y.rank ? x.rank - y.rank : x.part - y.part;
    return (order > 0) - (order < 0);
}

/* ---- reading --------------------------------------------------------------------------------- */

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    part_name name;
    int64_t count = 0;
    size_t bytes = (size_t)opening->name_count * sizeof(char *);
    *out_is = false;
    if (!opening->is_folder || opening->index != NULL)
        return RESHARD_OK;
    char **names = rs_allocate(checkpoint->context, bytes);
    if (names == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < opening->name_count; i++) {
        if (read_name(opening->names[i], &name))
            names[count++] = opening->names[i];
    }
    reshard_status status =
        count != 0 ? rs_safetensors_open_named(checkpoint, count, names) : RESHARD_OK;
    rs_release(checkpoint->context, names);
    *out_is = count != 0;
    return status;
}

/* Numbers the ranks by their files, which are sorted. Errors: GAP. */
static reshard_status group_files(reshard_checkpoint *checkpoint, rs_rank_groups *out_groups)
{
    int32_t *groups =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)checkpoint->file_count, sizeof *groups);
    part_name last = {-1, 0};
    if (groups == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < checkpoint->file_count; i++) {
        part_name name = {0, 0};
        (void)read_name(checkpoint->files[i].name, &name);
        bool is_next = name.rank == last.rank ? name.part == last.part + 1
                                              : name.rank == last.rank + 1 && name.part == 0;
        if (!is_next)
            return rs_fail_about(RESHARD_ERR_GAP, checkpoint->path,
                                 "has %s, but no file for %s %d%s%.0d", checkpoint->files[i].name,
                                 name.rank == last.rank ? "part" : "rank",
                                 (int)(name.rank == last.rank ? last.part + 1 : last.rank + 1),
                                 name.rank == last.rank ? " of rank " : "",
                                 name.rank == last.rank ? (int)name.rank : 0);
        groups[i] = name.rank;
        last = name;
    }
    *out_groups = (rs_rank_groups){last.rank + 1, groups};
    return RESHARD_OK;
}

/* Leaves out safetensors files with other names. */
static reshard_status leave_others(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    int64_t count = 0;
    rs_slice first = {NULL, 0};
    for (int64_t i = 0; i < opening->name_count; i++) {
        rs_file_name any;
        part_name part;
        if (rs_file_name_read(opening->names[i], &any) && !read_name(opening->names[i], &part) &&
            count++ == 0)
            first = rs_slice_of(opening->names[i]);
    }
    return rs_opening_leave_out(checkpoint, opening, count,
                                count == 1 ? "file of weights beside the ranks' files"
                                           : "files of weights beside the ranks' files",
                                first);
}

/* The first array with this ending; NULL: there is none. */
static const rs_occurrence *find_ending(const rs_occurrences *list, const char *end)
{
    int64_t i = 0;
    while (i < list->count && !rs_slice_ends(list->items[i].name, end))
        i++;
    return i < list->count ? &list->items[i] : NULL;
}

/* Says, or refuses, what a kernel's order might make wrong. */
static reshard_status check_order(reshard_checkpoint *checkpoint, const rs_occurrences *list)
{
    static const char *const quantised[] = {"_scale_inv",  ".weight_scale",  "_weight_scale",
                                            ".qweight",    ".weight_packed", "_input_scale",
                                            ".input_scale"};
    const rs_occurrence *experts = find_ending(list, ".w13_weight");
    bool is_logical = true;
    for (int32_t i = 0; i < checkpoint->file_count; i++) {
        const rs_metadatum *said =
            rs_header_metadata(rs_safetensors_header(checkpoint, i), ORDER_KEY);
        is_logical = is_logical && said != NULL && rs_slice_equals(said->value, "logical");
    }
    for (size_t i = 0; !is_logical && i < sizeof quantised / sizeof *quantised; i++) {
        const rs_occurrence *found = find_ending(list, quantised[i]);
        if (found != NULL)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "tensor \"%.*s\": the weights are quantised, and engines save such "
                           "weights in the order of a kernel, which the files do not name; convert "
                           "the model that the engine loaded",
                           RS_SHOWN(found->name));
    }
    if (is_logical || experts == NULL)
        return RESHARD_OK;
    return rs_store_warn(
        checkpoint,
        "experts (\"%.*s\") are assumed to be in logical order, gate before up; an engine may have "
        "saved them in the order of a kernel, which the files do not name",
        RS_SHOWN(experts->name));
}

/* Whether whole experts were dealt out to the ranks: the files have fewer than the model. */
static reshard_status find_dealt(const reshard_checkpoint *checkpoint, const rs_opening *opening,
                                 const rs_occurrences *list, bool *out_dealt)
{
    static const char key[] = "$num_local_experts";
    const rs_occurrence *experts = find_ending(list, ".w13_weight");
    rs_config config;
    int64_t count = 0;
    *out_dealt = false;
    if (experts == NULL || experts->ndim == 0)
        return RESHARD_OK;
    reshard_status status =
        rs_config_init(&config, checkpoint->context, rs_store_config_folder(checkpoint),
                       opening->options->set_count, opening->options->sets);
    rs_rules_keys keys = {rs_config_find, &config, rs_config_find_text};
    const rs_number_scope scope = {.keys = &keys};
    rs_cursor cursor = {key, key + sizeof key - 1};
    if (status == RESHARD_OK)
        status = rs_number_read(&scope, &cursor, &count);
    rs_config_release(&config);
    if (status == RESHARD_ERR_NOT_FOUND)
        return rs_fail_hint(status, RESHARD_HINT_CONFIG, "",
                            "%s: the number of experts is not known, so each rank may hold parts "
                            "of all experts, or some experts whole; give a config.json",
                            checkpoint->path);
    *out_dealt = experts->shape[0] < count;
    return status;
}

/* Joins the files over the mesh that the caller gave or, without one, over what the files show. */
static reshard_status join(reshard_checkpoint *checkpoint, const rs_opening *opening,
                           const rs_rank_groups *groups, rs_occurrences *list)
{
    reshard_checkpoint_options options = *opening->options;
    rs_opening chosen = *opening;
    char mesh[64];
    bool is_dealt = false;
    reshard_status status = RESHARD_OK;
    if (options.from == NULL)
        status = find_dealt(checkpoint, opening, list, &is_dealt);
    int ranks = (int)groups->count;
    (void)snprintf(mesh, sizeof mesh, is_dealt ? "tp=%d,ep=%d" : "tp=%d", ranks, ranks);
    if (options.from == NULL)
        options.from = mesh;
    if (opening->options->from == NULL || options.rules == NULL)
        options.rules = RULES;
    chosen.options = &options;
    return status == RESHARD_OK ? rs_rank_join(checkpoint, &chosen, NULL, groups, list) : status;
}

static reshard_status read_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    rs_occurrences list = {0};
    rs_rank_groups groups = {0, NULL};
    rs_sort(checkpoint->files, (size_t)checkpoint->file_count, sizeof(rs_stored_file),
            compare_files);
    reshard_status status = group_files(checkpoint, &groups);
    if (status == RESHARD_OK)
        status = leave_others(checkpoint, opening);
    if (status == RESHARD_OK)
        status = rs_safetensors_gather(checkpoint, &list);
    if (status == RESHARD_OK)
        status = check_order(checkpoint, &list);
    if (status == RESHARD_OK)
        status = join(checkpoint, opening, &groups, &list);
    if (status == RESHARD_OK)
        status = rs_safetensors_finish(checkpoint);
    rs_occurrences_release(checkpoint->context, &list);
    return status;
}

/* ---- laying out and writing ------------------------------------------------------------------ */

/* Engines number files by tensor-parallel ranks: those of another axis would have the same
 * names. */
static reshard_status check_mesh(const reshard_mesh *mesh)
{
    for (int32_t i = 0; i < mesh->axis_count; i++) {
        const char *name = mesh->names[i];
        int32_t size = mesh->sizes[i];
        if (size != 1 && strcmp(name, "tp") != 0)
            return rs_fail(RESHARD_ERR_INVALID,
                           "files of engines are numbered by the ranks of tp, so their names have "
                           "no place for %s=%d",
                           name[0] != '\0' ? name : "an axis", (int)size);
    }
    return rs_rank_mesh_check(mesh);
}

/* How many parts a rank has so far, and how many bytes are in the last one. */
typedef struct rank_parts {
    int32_t count, first_file;
    uint64_t bytes;
} rank_parts;

/* Gives every entry a part: parts[i] for entry i. A tensor that does not fit begins the next
 * one. */
static void deal_parts(const rs_target *target, uint64_t bytes_max, rank_parts *ranks,
                       int32_t *parts)
{
    for (int64_t i = 0; i < target->entry_count; i++) {
        rank_parts *rank = &ranks[target->entries[i].file];
        uint64_t bytes = rs_target_array_of(target, &target->entries[i])->bytes;
        if (rank->bytes != 0 && (bytes > bytes_max || rank->bytes > bytes_max - bytes)) {
            rank->count++;
            rank->bytes = 0;
        }
        rank->bytes += bytes;
        parts[i] = rank->count - 1;
    }
}

/* Moves entries and their pieces from the files of ranks to those of parts. */
static void move_entries(rs_target *target, const rank_parts *ranks, const int32_t *parts)
{
    for (int64_t i = 0; i < target->entry_count; i++) {
        rs_target_entry *entry = &target->entries[i];
        const rs_target_array *array = rs_target_array_of(target, entry);
        rs_stored_piece *pieces = target->tensors[entry->tensor].pieces + entry->piece_first;
        entry->file = ranks[entry->file].first_file + parts[i];
        for (int32_t k = 0; k < array->piece_count; k++)
            pieces[k].file = entry->file;
    }
}

/* Numbers the files, rank by rank, and keeps the rank and the part of each. */
static reshard_status number_files(rs_target *target, rank_parts *ranks)
{
    int64_t files = 0;
    for (int32_t i = 0; i < target->file_count; i++) {
        ranks[i].first_file = (int32_t)files;
        files += ranks[i].count;
        if (files > INT32_MAX)
            return rs_fail(RESHARD_ERR_RANGE, "there would be more than 2147483647 parts");
    }
    int32_t *numbers = rs_arena_allocate_array(&target->arena, 2 * (size_t)files, sizeof *numbers);
    if (numbers == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < target->file_count; i++) {
        for (int32_t k = 0; k < ranks[i].count; k++) {
            numbers[ranks[i].first_file + k] = target->ranks[i];
            numbers[files + ranks[i].first_file + k] = k;
        }
    }
    target->file_count = (int32_t)files;
    target->ranks = numbers;
    target->notes = numbers + files;
    return RESHARD_OK;
}

static reshard_status cut_parts(rs_target *target, uint64_t bytes_max)
{
    size_t entries = (size_t)target->entry_count, files = (size_t)target->file_count;
    int32_t *parts = rs_allocate_array(target->context, entries, sizeof *parts);
    rank_parts *ranks = rs_allocate_array(target->context, files, sizeof *ranks);
    reshard_status status = parts != NULL && ranks != NULL ? RESHARD_OK : rs_allocation_status();
    for (size_t i = 0; status == RESHARD_OK && i < files; i++)
        ranks[i] = (rank_parts){.count = 1};
    if (status == RESHARD_OK) {
        deal_parts(target, bytes_max != 0 ? bytes_max : UINT64_MAX, ranks, parts);
        status = number_files(target, ranks);
    }
    if (status == RESHARD_OK)
        move_entries(target, ranks, parts);
    rs_release(target->context, parts);
    rs_release(target->context, ranks);
    return status;
}

static reshard_status lay_out(rs_laying *laying)
{
    reshard_status status = check_mesh(laying->cuts->book.mesh);
    if (status == RESHARD_OK)
        status = rs_target_cut(laying, rs_target_place_local);
    return status == RESHARD_OK ? cut_parts(laying->target, laying->file_bytes_max) : status;
}

static void name_file(const rs_target *target, int32_t file, int32_t rank,
                      char out_name[RS_FILE_NAME_BYTES])
{
    const int32_t *parts = target->notes;
    (void)snprintf(out_name, RS_FILE_NAME_BYTES, "model-rank-%d-part-%d.safetensors", (int)rank,
                   (int)parts[file]);
}

static void write_order(rs_json_writer *writer, const rs_target *target, int32_t file)
{
    (void)target;
    (void)file;
    rs_json_writer_text(writer, "\"" ORDER_KEY "\":\"logical\",");
}

static reshard_status write_head(const rs_target *target, int32_t file, rs_json_writer *writer)
{
    return rs_safetensors_write_head(target, file, write_order, writer);
}

const rs_format rs_format_sharded_state = {
    .name = "sharded-state",
    .description = "files that vLLM and SGLang load, for each rank of tp what it holds",
    .looks_for = "model-rank-R-part-P.safetensors",
    .needs_mesh = true,
    .probe = probe,
    .read = read_files,
    .is_for_engines = true,
    .is_split = true,
    .takes_model = true,
    .limits_files = true,
    .lay_out = lay_out,
    .name_file = name_file,
    .place = rs_safetensors_place,
    .write_head = write_head,
};
