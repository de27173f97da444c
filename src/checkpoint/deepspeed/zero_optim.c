/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_optim.c - reads the optimizer's file of one rank: where its flat arrays lie. The first rank
 * says which groups there are and which states they have; the others have to agree, because a
 * folder may hold what two runs, or two steps of one, have left.
 */
#include "checkpoint/deepspeed/zero.h"

#include "base/context.h"

#include <stdio.h>
#include <string.h>

/* Values that say how the files are split, or that are read in another way. */
static const char *const consumed[] = {
    "zero_stage",       "partition_count",           "group_paddings",
    "fp32_flat_groups", "base_optimizer_state",      "single_partition_of_fp32_groups",
    "fp32_groups",      "base_optimizer_state_step", "param_slice_mappings",
    "ds_version",       "optimizer_state_dict",      "universal_checkpoint_info"};

/* One rank's file. */
typedef struct rank_file {
    rs_zero_reading *r;
    rs_zero_part *part;
    int32_t rank, file;
    const char *name;
    const rs_pickle_node *dict;   /* optimizer_state_dict */
    const rs_pickle_node *flats;  /* the list of its weights, by group */
    const rs_pickle_node *states; /* the states by group: a dict by number, or a list */
} rank_file;

static const rs_pickle_node *state_of(const rank_file *f, int32_t group)
{
    return rs_pickle_is(f->states, RS_PICKLE_LIST) ? rs_pickle_item(f->states, (size_t)group)
                                                   : rs_zero_at(f->states, group);
}

/* ---- what kind of file ----------------------------------------------------------------------- */

static reshard_status find_stage(rank_file *f)
{
    const rs_pickle_node *node = rs_pickle_get(f->dict, "zero_stage");
    int32_t stage = 1; /* BF16_Optimizer does not say */
    reshard_status status = RESHARD_OK;
    if (node != NULL)
        status = rs_zero_stage_read(f->name, node, &stage);
    if (status != RESHARD_OK)
        return status;
    if (f->rank == 0)
        f->part->stage = stage;
    if (f->part->stage != stage)
        return rs_fail_about(RESHARD_ERR_CORRUPT, f->name,
                             "has ZeRO stage %d, but the first rank's file has stage %d; are there "
                             "two checkpoints in one folder?",
                             (int)stage, (int)f->part->stage);
    return RESHARD_OK;
}

static reshard_status find_lists(rank_file *f)
{
    const char *key = f->part->stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
    f->flats = rs_pickle_get(f->dict, key);
    const rs_pickle_node *base = rs_pickle_get(
        f->dict, f->part->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
    bool is_elastic = rs_pickle_is(base, RS_PICKLE_LIST);
    f->states = is_elastic ? base : rs_pickle_get(base, "state");
    if (rs_pickle_get(f->dict, "ds_zero_partition_groups") != NULL)
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, f->name,
                             "holds experts of AutoEP (ds_zero_partition_groups), which are cut "
                             "over groups of their own; convert them with DeepSpeed's "
                             "ds_to_universal.py");
    if (!rs_pickle_is(f->flats, RS_PICKLE_LIST))
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, f->name,
                             "has %s in place of the list %s, which holds the weights of ZeRO "
                             "stage %d",
                             f->flats == NULL ? "nothing" : rs_pickle_kind_text(f->flats), key,
                             (int)f->part->stage);
    return RESHARD_OK;
}

/* partition_count says over how many ranks each group is cut: a number, or one for each group. */
static reshard_status read_partitions(const rank_file *f, int32_t group, int32_t *out_replicas)
{
    const rs_pickle_node *node = rs_pickle_get(f->dict, "partition_count");
    int64_t count = 0;
    if (rs_pickle_is(node, RS_PICKLE_LIST) || rs_pickle_is(node, RS_PICKLE_TUPLE))
        node = rs_pickle_item(node, (size_t)group);
    if (!rs_pickle_int(node, &count) || count < 1)
        return rs_fail_about(RESHARD_ERR_CORRUPT, f->name,
                             "has %s in place of the partition_count of group %d",
                             rs_pickle_kind_text(node), (int)group);
    if (count > f->part->rank_count || f->part->rank_count % count != 0 ||
        (f->part->stage == 3 && count != f->part->rank_count))
        return rs_fail_about(RESHARD_ERR_GAP, f->name,
                             "its group %d is cut over %lld ranks, but there are files for %d",
                             (int)group, (long long)count, (int)f->part->rank_count);
    *out_replicas = (int32_t)(f->part->rank_count / count);
    return RESHARD_OK;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Finds out what a state is: one number for each element of the weights, or one for the group. */
static reshard_status read_kind(const rank_file *f, int32_t group, int64_t weights, int64_t padding,
                                const rs_pickle_node *node, rs_zero_kind *kind)
{
    char what[200];
    rs_zero_flat flat = {0};
    int32_t ndim = 0;
    if (rs_torch_kind_of(node) != RS_TORCH_TENSOR) {
        kind->value = node;
        return RESHARD_OK;
    }
    (void)snprintf(what, sizeof what, "state \"%.*s\" of group %d", RS_SHOWN(kind->name),
                   (int)group);
    reshard_status status =
        rs_zero_flat_read(f->r->checkpoint, f->file, node, what, &kind->dtype, &ndim, &flat);
    if (status != RESHARD_OK)
        return status;
    kind->is_flat = ndim > 0 && (flat.count == weights || flat.count == weights + padding);
    kind->single = flat;
    if (!kind->is_flat && flat.count != 1)
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, f->name,
                             "%s has %lld elements, neither 1 nor one for each of the %lld weights",
                             what, (long long)flat.count, (long long)weights);
    return RESHARD_OK;
}

static int64_t padding_of(const rank_file *f, int32_t group)
{
    int64_t padding = 0;
    (void)rs_pickle_int(rs_pickle_item(rs_pickle_get(f->dict, "group_paddings"), (size_t)group),
                        &padding);
    return padding;
}

static reshard_status read_kinds(const rank_file *f, int32_t index, rs_zero_group *group)
{
    char what[64];
    int32_t ndim = 0;
    rs_zero_flat weights = {0};
    const rs_pickle_node *states = rs_pickle_dict(state_of(f, index));
    size_t count = rs_pickle_count(states);
    group->kinds =
        rs_arena_allocate_array(&f->r->checkpoint->arena, count + 1, sizeof *group->kinds);
    if (group->kinds == NULL)
        return rs_allocation_status();
    group->kinds[0] = (rs_zero_kind){.name = {"", 0}, .is_flat = true};
    group->kind_count = 1;
    (void)snprintf(what, sizeof what, "its array of weights of group %d", (int)index);
    reshard_status status =
        rs_zero_flat_read(f->r->checkpoint, f->file, rs_pickle_item(f->flats, (size_t)index), what,
                          &group->kinds[0].dtype, &ndim, &weights);
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        rs_zero_kind kind = {0};
        if (!rs_pickle_text(states->items.nodes[2 * i], &kind.name) || kind.name.count == 0)
            continue;
        status = read_kind(f, index, weights.count, padding_of(f, index),
                           states->items.nodes[2 * i + 1], &kind);
        if (status == RESHARD_OK)
            group->kinds[group->kind_count++] = kind;
    }
    return status;
}

static reshard_status make_groups(rank_file *f)
{
    rs_zero_part *part = f->part;
    rs_arena *arena = &f->r->checkpoint->arena;
    size_t count = rs_pickle_count(f->flats);
    reshard_status status = RESHARD_OK;
    part->group_count = (int32_t)count;
    part->groups = rs_arena_allocate_array(arena, count, sizeof *part->groups);
    if (part->groups == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; status == RESHARD_OK && i < part->group_count; i++) {
        rs_zero_group *group = &part->groups[i];
        *group = (rs_zero_group){.slot = part->slot_count};
        group->starts =
            rs_arena_allocate_array(arena, (size_t)part->rank_count, sizeof *group->starts);
        status = group->starts != NULL ? read_partitions(f, i, &group->replica_count)
                                       : rs_allocation_status();
        if (status == RESHARD_OK)
            status = read_kinds(f, i, group);
        part->slot_count += group->kind_count;
    }
    if (status != RESHARD_OK)
        return status;
    part->flats = rs_arena_allocate_array(
        arena, (size_t)part->slot_count * (size_t)part->rank_count, sizeof *part->flats);
    return part->flats != NULL ? RESHARD_OK : rs_allocation_status();
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static reshard_status fail_kind(const rank_file *f, int32_t group, const rs_zero_kind *kind,
                                const char *how)
{
    return rs_fail_about(RESHARD_ERR_CORRUPT, f->name, "state \"%.*s\" of group %d %s",
                         RS_SHOWN(kind->name), (int)group, how);
}

/* A number for the whole group, such as the step, has to be the same on all ranks. */
static reshard_status compare_single(const rank_file *f, int32_t group, const rs_zero_kind *kind,
                                     const rs_pickle_node *node)
{
    reshard_checkpoint *checkpoint = f->r->checkpoint;
    static const char differs[] =
        "has another value than in the first rank's file; do the files come from two steps?";
    reshard_dtype dtype = RESHARD_DTYPE_NONE;
    rs_zero_flat flat = {0};
    int32_t ndim = 0;
    unsigned char ours[16], first[16];
    if (kind->value != NULL)
        return rs_pickle_equal(kind->value, node) ? RESHARD_OK : fail_kind(f, group, kind, differs);
    reshard_status status =
        rs_zero_flat_read(checkpoint, f->file, node, "a state", &dtype, &ndim, &flat);
    if (status != RESHARD_OK)
        return status;
    size_t bytes = (size_t)reshard_dtype_bits(dtype) / 8;
    if (dtype != kind->dtype || flat.count != 1 || bytes > sizeof ours)
        return fail_kind(f, group, kind, "has another dtype or size than in the first rank's file");
    status = rs_file_read(checkpoint->files[flat.file].file, ours, bytes, flat.at);
    if (status == RESHARD_OK)
        status =
            rs_file_read(checkpoint->files[kind->single.file].file, first, bytes, kind->single.at);
    if (status == RESHARD_OK && memcmp(ours, first, bytes) != 0)
        status = fail_kind(f, group, kind, differs);
    return status;
}

static reshard_status read_flat(const rank_file *f, int32_t index, const rs_zero_kind *kind,
                                const rs_pickle_node *node, int64_t weights, rs_zero_flat *out_flat)
{
    char what[200];
    reshard_dtype dtype = RESHARD_DTYPE_NONE;
    int32_t ndim = 0;
    bool is_weights = kind->name.count == 0;
    if (is_weights)
        (void)snprintf(what, sizeof what, "its array of weights of group %d", (int)index);
    else
        (void)snprintf(what, sizeof what, "state \"%.*s\" of group %d", RS_SHOWN(kind->name),
                       (int)index);
    reshard_status status =
        rs_zero_flat_read(f->r->checkpoint, f->file, node, what, &dtype, &ndim, out_flat);
    if (status != RESHARD_OK)
        return status;
    int64_t count = out_flat->count;
    if (dtype != kind->dtype)
        return rs_fail_about(RESHARD_ERR_CORRUPT, f->name,
                             "%s has dtype %s, but %s in the first rank's file", what,
                             reshard_dtype_name(dtype), reshard_dtype_name(kind->dtype));
    if (!is_weights && count != weights && count != weights + padding_of(f, index))
        return rs_fail_about(
            RESHARD_ERR_CORRUPT, f->name,
            "%s has %lld elements, but there are %lld weights and %lld elements of padding", what,
            (long long)count, (long long)weights, (long long)padding_of(f, index));
    return RESHARD_OK;
}

static reshard_status read_group(const rank_file *f, int32_t index)
{
    const rs_zero_group *group = &f->part->groups[index];
    rs_zero_flat *flats = f->part->flats + (int64_t)f->rank * f->part->slot_count + group->slot;
    const rs_pickle_node *states = state_of(f, index);
    int32_t replicas = group->replica_count;
    reshard_status status = read_flat(f, index, &group->kinds[0],
                                      rs_pickle_item(f->flats, (size_t)index), 0, &flats[0]);
    group->starts[f->rank] = f->rank < replicas
                                 ? 0
                                 : group->starts[f->rank - replicas] +
                                       flats[-(int64_t)replicas * f->part->slot_count].count;
    if (status == RESHARD_OK)
        status = read_partitions(f, index, &replicas);
    if (status == RESHARD_OK && replicas != group->replica_count)
        status = rs_fail_about(RESHARD_ERR_CORRUPT, f->name,
                               "its partition_count of group %d differs from the first rank's file",
                               (int)index);
    if (status == RESHARD_OK &&
        rs_pickle_count(rs_pickle_dict(states)) + 1 != (size_t)group->kind_count)
        status =
            rs_fail_about(RESHARD_ERR_CORRUPT, f->name,
                          "group %d has %zu states, but %d in the first rank's file", (int)index,
                          rs_pickle_count(rs_pickle_dict(states)), group->kind_count - 1);
    for (int32_t i = 1; status == RESHARD_OK && i < group->kind_count; i++) {
        const rs_zero_kind *kind = &group->kinds[i];
        char key[256];
        (void)snprintf(key, sizeof key, "%.*s", (int)kind->name.count, kind->name.bytes);
        const rs_pickle_node *node = rs_pickle_get(states, key);
        if (node == NULL)
            return fail_kind(f, index, kind, "is missing; the first rank's file has it");
        status = kind->is_flat ? read_flat(f, index, kind, node, flats[0].count, &flats[i])
                               : compare_single(f, index, kind, node);
    }
    return status;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool is_consumed(rs_slice key)
{
    bool is = false;
    for (size_t i = 0; !is && i < sizeof consumed / sizeof *consumed; i++)
        is = rs_slice_equals(key, consumed[i]);
    return is;
}

/* Keeps what else the first rank's file says about the optimizer: param_groups, loss_scaler, .. */
static reshard_status keep_values(const rank_file *f)
{
    reshard_checkpoint *checkpoint = f->r->checkpoint;
    const rs_value_step *parent = f->r->state->parent;
    const rs_pickle_node *dict = rs_pickle_dict(f->dict);
    const rs_pickle_node *base = rs_pickle_get(
        f->dict, f->part->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
    const rs_pickle_node *groups = rs_pickle_get(base, "param_groups");
    const rs_pickle_node *step = rs_pickle_get(f->dict, "base_optimizer_state_step");
    reshard_status status = RESHARD_OK;
    const struct {
        const char *key;
        const rs_pickle_node *node;
    } rows[] = {{"param_groups", groups}, {"step", step}};
    for (size_t i = 0; status == RESHARD_OK && i < sizeof rows / sizeof *rows; i++) {
        const rs_value_step *named = rs_zero_step(checkpoint, parent, rs_slice_of(rows[i].key));
        if (named == NULL)
            return rs_allocation_status();
        if (rows[i].node != NULL)
            status = rs_zero_keep_value(checkpoint, f->file, named, rows[i].node);
    }
    for (size_t i = 0; status == RESHARD_OK && i < rs_pickle_count(dict); i++) {
        rs_slice key;
        const rs_pickle_node *value = dict->items.nodes[2 * i + 1];
        if (!rs_pickle_text(dict->items.nodes[2 * i], &key) || key.count == 0 || is_consumed(key) ||
            rs_torch_kind_of(value) != RS_TORCH_VALUE)
            continue;
        const rs_value_step *named = rs_zero_step(checkpoint, parent, key);
        status = named != NULL ? rs_zero_keep_value(checkpoint, f->file, named, value)
                               : rs_allocation_status();
    }
    return status;
}

reshard_status rs_zero_read_rank(rs_zero_reading *r, rs_zero_part *part, int32_t rank, int32_t file)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    size_t bytes = 0;
    const rs_pickle *pickle = rs_torch_file_pickle(rs_torch_opened(checkpoint, file), &bytes);
    rank_file f = {.r = r,
                   .part = part,
                   .rank = rank,
                   .file = file,
                   .name = checkpoint->files[file].name,
                   .dict = rs_pickle_get(rs_pickle_root(pickle), "optimizer_state_dict")};
    if (rs_pickle_dict(f.dict) == NULL)
        return rs_fail_about(RESHARD_ERR_CORRUPT, f.name,
                             "has no dict optimizer_state_dict, so it is not a file of ZeRO");
    reshard_status status = find_stage(&f);
    if (status == RESHARD_OK)
        status = find_lists(&f);
    if (status == RESHARD_OK && rank == 0)
        status = make_groups(&f);
    if (status == RESHARD_OK && rs_pickle_count(f.flats) != (size_t)part->group_count)
        status = rs_fail_about(RESHARD_ERR_CORRUPT, f.name,
                               "has %zu groups, but the first rank's file has %d",
                               rs_pickle_count(f.flats), (int)part->group_count);
    for (int32_t i = 0; status == RESHARD_OK && i < part->group_count; i++)
        status = read_group(&f, i);
    if (status == RESHARD_OK && part->stage != 3)
        status = rs_zero_check_slices(r, part, rank, file,
                                      rs_pickle_get(f.dict, "param_slice_mappings"));
    if (status == RESHARD_OK && r->info == NULL && rank == 0)
        r->info = rs_pickle_get(f.dict, "universal_checkpoint_info");
    if (status == RESHARD_OK && rank == 0 && part->mp == 0)
        status = keep_values(&f);
    return status;
}
