/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_torch_ranks.c - one torch.save file for each rank, as FSDP jobs leave them:
 * model_world_size_8_rank_3.pt, rank3.pt, checkpoint-shard3.pt. The part of the name in front of
 * that is the group (model, optim, extra_state); if there are several groups, it is the first step
 * of all names.
 *
 * DTensors and ShardedTensors say which box of which tensor they are. Plain tensors beside them are
 * replicas. A group without such tensors (extra_state) is kept by rank: group.rank.name. If all
 * tensors are plain, a record of our own or a mesh tells how they are split (torch_ranks_plain.c).
 */
#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/format/one_rank.h"
#include "checkpoint/format/rank_join.h"
#include "checkpoint/format/rank_layout.h"
#include "checkpoint/torch/torch_formats.h"
#include "checkpoint/torch/torch_placed.h"
#include "checkpoint/torch/torch_ranks.h"
#include "checkpoint/torch/torch_save.h"
#include "text/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX (1 << 20)

/* What a file's name says. */
typedef struct rank_name {
    rs_slice group;
    int32_t rank;
    int32_t world; /* 0: not given */
} rank_name;

typedef struct rank_group {
    rs_slice name;
    bool is_cut; /* some of its tensors are DTensors or ShardedTensors */
    int32_t world;
    int32_t mesh_ranks; /* of the largest mesh of its DTensors; 0: it has none */
    int32_t first_file;
    int32_t file_count;
} rank_group;

typedef struct reading {
    reshard_checkpoint *checkpoint;
    rs_torch_rank owner;
    rank_name *names;  /* by file */
    int32_t *group_of; /* by file */
    int32_t group_count;
    rank_group *groups;
    rs_torch_common common;
    rs_occurrences list;
} reading;

/* ---- names ----------------------------------------------------------------------------------- */

/* Cuts the number off the end of a name; -1 if there is none. */
static int32_t take_number(rs_slice *name)
{
    size_t from = name->count;
    int64_t number = 0;
    while (from > 0 && rs_is_digit(name->bytes[from - 1]))
        from--;
    if (from == name->count || name->count - from > 7)
        return -1;
    for (size_t i = from; i < name->count; i++)
        number = number * 10 + (name->bytes[i] - '0');
    name->count = from;
    return number < RANKS_MAX ? (int32_t)number : -1;
}

static void take_separators(rs_slice *name)
{
    while (name->count > 0 && strchr("_-.", name->bytes[name->count - 1]) != NULL)
        name->count--;
}

static bool take_word(rs_slice *name, const char *word)
{
    size_t length = strlen(word);
    if (name->count < length || memcmp(name->bytes + name->count - length, word, length) != 0)
        return false;
    name->count -= length;
    return true;
}

/* Parses GROUP_world_size_W_rank_R, GROUP.rankR, GROUP-shardR, .. */
static bool parse_name(const char *file, rank_name *out_name)
{
    rs_slice name = rs_torch_name_stem(file);
    rank_name made = {.rank = take_number(&name)};
    if (made.rank < 0 || !rs_torch_name_is(file))
        return false;
    take_separators(&name);
    if (!take_word(&name, "rank") && !take_word(&name, "shard"))
        return false;
    take_separators(&name);
    rs_slice rest = name;
    int32_t world = take_number(&rest);
    if (world > 0) {
        take_separators(&rest);
        if (take_word(&rest, "world_size") || take_word(&rest, "world")) {
            made.world = world;
            take_separators(&rest);
            name = rest;
        }
    }
    made.group = name;
    *out_name = made;
    return true;
}

bool rs_torch_rank_name(const char *file, int32_t *out_rank, int32_t *out_world)
{
    rank_name name;
    if (!parse_name(file, &name))
        return false;
    *out_rank = name.rank;
    *out_world = name.world;
    return true;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool has_ranks(const rs_opening *opening)
{
    bool any = false;
    rank_name name;
    for (int64_t i = 0; !any && i < opening->name_count; i++)
        any = parse_name(opening->names[i], &name);
    return any;
}

/* Is it a rank's file by its name? If no file has such a name but a mesh was given, any file with
 * an ending of torch.save is. */
static bool is_candidate(const rs_opening *opening, bool by_rank, const char *name)
{
    rank_name parsed;
    return by_rank ? parse_name(name, &parsed)
                   : opening->options->from != NULL && rs_torch_name_is(name);
}

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    bool is_torch = false, by_rank = has_ranks(opening);
    reshard_status status = RESHARD_OK;
    if (checkpoint->file_count != 0 || (!opening->is_folder && !rs_one_rank_is_wanted(opening)))
        return RESHARD_OK;
    for (int64_t i = 0; i < opening->name_count; i++) {
        if (!is_candidate(opening, by_rank, opening->names[i]))
            continue;
        status = rs_torch_probe_file(checkpoint, opening->names[i], &is_torch);
        break;
    }
    *out_is = is_torch;
    return status;
}

static int compare_names(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    int order = rs_compare_naturally(x, y);
    return order != 0 ? order : strcmp(x, y);
}

static reshard_status open_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    int64_t count = 0;
    bool by_rank = has_ranks(opening);
    char **names =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)opening->name_count, sizeof *names);
    if (names == NULL)
        return rs_allocation_status();
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < opening->name_count; i++) {
        if (is_candidate(opening, by_rank, opening->names[i]))
            names[count++] = opening->names[i];
        else if (rs_torch_name_is(opening->names[i]))
            status = rs_store_note(checkpoint, "%s is not the file of one rank, and is left out",
                                   opening->names[i]);
    }
    rs_sort((void *)names, (size_t)count, sizeof *names, compare_names);
    return status == RESHARD_OK ? rs_torch_open_named(checkpoint, count, names) : status;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int32_t find_group(const reading *r, rs_slice name)
{
    int32_t i = 0;
    while (i < r->group_count && rs_slice_compare(r->groups[i].name, name) != 0)
        i++;
    return i;
}

static reshard_status sort_into_groups(reading *r)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    size_t count = (size_t)checkpoint->named_count;
    r->names = rs_arena_allocate_array(&checkpoint->arena, count, sizeof *r->names);
    r->group_of = rs_arena_allocate_array(&checkpoint->arena, count, sizeof *r->group_of);
    r->groups = rs_arena_allocate_array(&checkpoint->arena, count, sizeof *r->groups);
    if (r->names == NULL || r->group_of == NULL || r->groups == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < checkpoint->named_count; i++) {
        size_t bytes = 0;
        if (!parse_name(checkpoint->files[i].name, &r->names[i]))
            return rs_fail_about(RESHARD_ERR_INVALID, checkpoint->files[i].name,
                                 "its name has no rank");
        int32_t found = find_group(r, r->names[i].group);
        if (found == r->group_count)
            r->groups[r->group_count++] = (rank_group){
                .name = r->names[i].group, .world = r->names[i].world, .first_file = i};
        rank_group *group = &r->groups[found];
        if (group->world != r->names[i].world)
            return rs_fail_about(RESHARD_ERR_CORRUPT, checkpoint->files[i].name,
                                 "is one of %d ranks, but others of its kind are for %d; are there "
                                 "two checkpoints in one folder?",
                                 (int)r->names[i].world, (int)group->world);
        r->group_of[i] = found;
        group->file_count++;
        group->is_cut =
            group->is_cut ||
            rs_torch_names_placed(rs_torch_file_pickle(rs_torch_opened(checkpoint, i), &bytes));
    }
    return RESHARD_OK;
}

static reshard_status check_cut(const reading *r)
{
    for (int32_t i = 0; i < r->group_count; i++) {
        if (r->groups[i].is_cut)
            return RESHARD_OK;
    }
    return rs_fail_hint(RESHARD_ERR_INVALID, RESHARD_HINT_SOURCE_MESH, r->checkpoint->path,
                        "%s: the files of ranks hold plain tensors, and nothing in them says how "
                        "they were split; give their mesh",
                        r->checkpoint->path);
}

/* ---- missing ranks --------------------------------------------------------------------------- */

static bool has_rank(const reading *r, int32_t group, int32_t rank)
{
    for (int32_t i = 0; i < r->checkpoint->named_count; i++) {
        if (r->group_of[i] == group && r->names[i].rank == rank)
            return true;
    }
    return false;
}

/* Lists the ranks that have no file in a group, as in "3, 5". The number of ranks is the one in the
 * names, or follows from the highest rank and from the meshes of DTensors. */
static void list_missing(const reading *r, int32_t group, char *out_text, size_t room)
{
    rs_text text;
    int32_t world = r->groups[group].world, missing = 0;
    if (world == 0)
        world = r->groups[group].mesh_ranks;
    rs_text_init(&text, out_text, room);
    for (int32_t i = 0; i < r->checkpoint->named_count; i++) {
        if (r->group_of[i] == group && r->names[i].rank >= world)
            world = r->names[i].rank + 1;
    }
    if (world == r->groups[group].file_count)
        return;
    for (int32_t rank = 0; rank < world && missing < 9; rank++) {
        if (has_rank(r, group, rank))
            continue;
        missing++;
        if (missing < 9)
            rs_text_add(&text, "%s%d", missing == 1 ? "" : ", ", (int)rank);
        else
            rs_text_add(&text, ", ..");
    }
}

/* Says which files are missing: in the error if tensors have holes, else in a note. */
static reshard_status tell_missing(const reading *r, reshard_status status)
{
    for (int32_t i = 0; i < r->group_count; i++) {
        char missing[128], group[64];
        list_missing(r, i, missing, sizeof missing);
        if (missing[0] == '\0')
            continue;
        rs_slice name = r->groups[i].name;
        (void)snprintf(group, sizeof group, "%.*s%s", RS_SHOWN(name), name.count != 0 ? " " : "");
        bool is_one = strchr(missing, ',') == NULL;
        const char *s = is_one ? "" : "s", *are = is_one ? "is" : "are";
        if (status == RESHARD_ERR_GAP)
            return rs_fail_within(status, "the %sfile%s of rank%s %s %s missing", group, s, s,
                                  missing, are);
        if (status == RESHARD_OK)
            status = rs_store_note(r->checkpoint,
                                   "the %sfile%s of rank%s %s %s missing; the others hold all of "
                                   "every tensor",
                                   group, s, s, missing, are);
    }
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_flat(rs_slice name)
{
    static const char word[] = "flat_param";
    for (size_t i = 0; i + sizeof word - 1 <= name.count; i++) {
        if (memcmp(name.bytes + i, word, sizeof word - 1) == 0)
            return true;
    }
    return false;
}

/* Keeps values of groups that are cut once, and those of other groups by rank. */
static reshard_status take_value(reading *r, const rs_torch_leaf *leaf)
{
    int32_t file = r->owner.file;
    const rank_group *group = &r->groups[r->group_of[file]];
    if (!group->is_cut)
        return rs_torch_keep_value(r->checkpoint, file, leaf);
    return rs_torch_keep_common(r->checkpoint, &r->common, file, group->first_file == file, leaf);
}

static reshard_status take(void *user, const rs_torch_leaf *leaf)
{
    reading *r = user;
    if (leaf->kind == RS_TORCH_VALUE)
        return take_value(r, leaf);
    if (leaf->kind != RS_TORCH_TENSOR)
        return rs_torch_placed_add(r->checkpoint, &r->owner, leaf, &r->list);
    if (is_flat(leaf->name))
        return rs_fail_about(
            RESHARD_ERR_UNSUPPORTED, r->checkpoint->files[r->owner.file].name,
            "tensor \"%.*s\" is a flat parameter of FSDP1, which does not keep the shapes of the "
            "tensors in it; save with SHARDED_STATE_DICT or FULL_STATE_DICT",
            RS_SHOWN(leaf->name));
    return rs_torch_add(r->checkpoint, r->owner.file, leaf, &r->list);
}

/* Makes the first step of a file's names: the group, if there are several, and for groups that are
 * kept by rank also the rank, as in "extra_state.3". */
static reshard_status make_prefix(const reading *r, int32_t file, rs_slice *out_prefix)
{
    const rank_group *group = &r->groups[r->group_of[file]];
    *out_prefix = (rs_slice){0};
    if (group->is_cut) {
        if (r->group_count > 1)
            *out_prefix = group->name;
        return RESHARD_OK;
    }
    size_t room = group->name.count + 16;
    char *bytes = rs_arena_allocate(&r->checkpoint->arena, room);
    if (bytes == NULL)
        return rs_allocation_status();
    int length = snprintf(bytes, room, "%.*s.%d", (int)group->name.count, group->name.bytes,
                          (int)r->names[file].rank);
    *out_prefix = (rs_slice){bytes, (size_t)length};
    return RESHARD_OK;
}

/* Keeps the size of the mesh that the file's last DTensor is spread over. */
static void keep_mesh(reading *r, int32_t file)
{
    rank_group *group = &r->groups[r->group_of[file]];
    const rs_torch_mesh *mesh = &r->owner.mesh;
    int64_t ranks = 1;
    for (int32_t i = 0; i < mesh->axis_count; i++)
        ranks = ranks <= RANKS_MAX ? ranks * mesh->sizes[i] : ranks;
    if (r->owner.mesh_node != NULL && ranks <= RANKS_MAX && ranks > group->mesh_ranks)
        group->mesh_ranks = (int32_t)ranks;
}

static reshard_status read_all(reading *r)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    reshard_status status = sort_into_groups(r);
    if (status == RESHARD_OK)
        status = check_cut(r);
    for (int32_t i = 0; status == RESHARD_OK && i < checkpoint->named_count; i++) {
        rs_slice prefix;
        r->owner = (rs_torch_rank){.file = i, .rank = r->names[i].rank};
        status = make_prefix(r, i, &prefix);
        const rs_torch_root names = {prefix, rs_slice_of(RS_TORCH_RANKS_ALONE)};
        if (status == RESHARD_OK)
            status = rs_torch_walk_file(checkpoint, i, &names, take, r);
        keep_mesh(r, i);
        if (status == RESHARD_OK && rs_context_cancelled(checkpoint->context))
            status = rs_fail_about(RESHARD_ERR_CANCELLED, checkpoint->path, "cancelled");
    }
    if (status == RESHARD_OK)
        status = rs_store_join(checkpoint, &r->list);
    status = tell_missing(r, status);
    if (status == RESHARD_OK)
        status = rs_torch_note_common(checkpoint, &r->common);
    return status == RESHARD_OK ? rs_torch_note_globals(checkpoint) : status;
}

/* Reads a single rank's file, for inspection. */
static reshard_status read_one(reading *r, rs_slice document)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    reshard_status status = sort_into_groups(r);
    if (status != RESHARD_OK)
        return status;
    const rank_name *name = &r->names[0];
    r->owner = (rs_torch_rank){.file = 0, .rank = name->rank};
    status = rs_torch_walk_file(checkpoint, 0, NULL, take, r);
    if (status == RESHARD_OK)
        status = rs_one_rank_keep(checkpoint, document, &r->list);
    if (status == RESHARD_OK && document.bytes == NULL && name->world > 0)
        status = rs_store_note(
            checkpoint, "%s is the file of rank %d, one of %d by its name; the others are ignored",
            checkpoint->files[0].name, (int)name->rank, (int)name->world);
    else if (status == RESHARD_OK && document.bytes == NULL)
        status =
            rs_store_note(checkpoint, "%s is the file of rank %d by its name; others are ignored",
                          checkpoint->files[0].name, (int)name->rank);
    return status == RESHARD_OK ? rs_torch_note_globals(checkpoint) : status;
}

static reshard_status read_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    reading r = {.checkpoint = checkpoint, .list.has_copies = true};
    rs_slice *documents = NULL;
    bool is_told = false;
    reshard_status status = open_files(checkpoint, opening);
    if (status == RESHARD_OK)
        status = rs_torch_ranks_documents(checkpoint, &documents, &is_told);
    bool is_one = rs_one_rank_is_wanted(opening);
    if (status == RESHARD_OK && !is_one && (is_told || opening->options->from != NULL))
        return rs_torch_ranks_read_plain(checkpoint, opening, documents);
    if (status == RESHARD_OK)
        status = is_one ? read_one(&r, documents[0]) : read_all(&r);
    rs_occurrences_release(checkpoint->context, &r.list);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static reshard_status place_tensor(const rs_laying *laying, const rs_cut_tensor *cut)
{
    reshard_status status = rs_torch_check_dtype(cut->tensor->name, cut->tensor->dtype);
    return status == RESHARD_OK ? rs_target_place_local(laying, cut) : status;
}

reshard_status rs_torch_ranks_lay_out(rs_laying *laying)
{
    reshard_status status = rs_rank_mesh_check(laying->cuts->book.mesh);
    if (status == RESHARD_OK)
        status = rs_target_cut(laying, place_tensor);
    return status == RESHARD_OK ? rs_rank_layout_prepare(laying, false) : status;
}

void rs_torch_ranks_name_file(const rs_target *target, int32_t file, int32_t rank,
                              char out_name[RS_FILE_NAME_BYTES])
{
    (void)file;
    (void)snprintf(out_name, RS_FILE_NAME_BYTES, "model_world_size_%d_rank_%d.pt",
                   (int)target->file_count, (int)rank);
}

/* torch.load ignores records that its pickle does not name. */
const rs_torch_style rs_torch_ranks_style = {.write = rs_torch_save_plain,
                                             .record_name = RS_LAYOUT_KEY,
                                             .write_record = rs_rank_layout_write_record};

const rs_format rs_format_torch_ranks = {
    .name = "torch-ranks",
    .description = "one torch.save file for each rank, with DTensors or ShardedTensors (FSDP)",
    .looks_for = "*_rank_R.pt",
    .needs_mesh = true,
    .probe = probe,
    .read = read_files,
    .is_split = true,
    .placed = &rs_format_torch_dtensors,
    .has_crcs = true,
    .holds_value = rs_torch_nest_holds,
    .lay_out = rs_torch_ranks_lay_out,
    .name_file = rs_torch_ranks_name_file,
    .place = rs_torch_save_place,
    .write_head = rs_torch_save_head,
    .finish = rs_torch_save_finish,
    .torch_style = &rs_torch_ranks_style,
};
