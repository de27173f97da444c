/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target_make.c - lays out the target of a conversion: chooses the format and the tensors, lets the
 * format distribute them over files, and gives every entry its place.
 */
#include "checkpoint/convert/target_make.h"
#include "base/context.h"
#include "base/dtype.h"
#include "base/sort.h"
#include "checkpoint/open/open.h"
#include "checkpoint/rules/sizes.h"
#include "checkpoint/target/target.h"
#include "checkpoint/view/mapped.h"
#include "spec/spec.h"
#include "text/text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many of the values that stay behind are listed by name. */
#define VALUES_SHOWN 4

/* The format to write: what the options say, else what the naming brings. NULL: neither. */
static const char *name_format(const reshard_conversion_options *options, const rs_naming *naming,
                               bool is_split)
{
    if (options->format != NULL || naming == NULL)
        return options->format;
    return is_split ? naming->split_format : naming->format;
}

static reshard_status choose_format(rs_target *target, const reshard_mesh *mesh,
                                    const reshard_conversion_options *options,
                                    const rs_naming *naming)
{
    bool is_split = mesh->size != 1;
    const char *name = name_format(options, naming, is_split);
    target->format = rs_format_default_writer(is_split);
    if (name != NULL) {
        reshard_status status = rs_format_find_writer(name, &target->format);
        if (status != RESHARD_OK)
            return status;
    }
    if (!target->format->is_split && is_split && target->format->split != NULL)
        target->format = target->format->split;
    if (!target->format->is_split && is_split)
        return rs_fail(RESHARD_ERR_INVALID,
                       "the format %s holds whole tensors, so it cannot be split over %.100s",
                       target->format->name, options->to);
    if (target->format->is_split && options->to == NULL)
        return rs_fail_hint(RESHARD_ERR_INVALID, RESHARD_HINT_TARGET_MESH, target->format->name,
                            "the format %s needs a mesh to split over; give one",
                            target->format->name);
    if (options->dtensors && target->format->placed == NULL)
        return rs_fail(
            RESHARD_ERR_INVALID,
            "the format %s cannot hold DTensors; torch can, over a mesh of several ranks",
            target->format->name);
    if (options->dtensors)
        target->format = target->format->placed;
    return RESHARD_OK;
}

/* Whole tensors need no rules; if some are given, they rename tensors and leave some out. */
static reshard_status read_rules(rs_target *target, const reshard_checkpoint *source,
                                 reshard_mesh *mesh, const reshard_conversion_options *options,
                                 rs_cuts *cuts)
{
    const rs_selection *selection = &cuts->selection;
    reshard_status status =
        rs_cuts_read_rules(cuts, source, mesh, options, target->format->is_split);
    (void)snprintf(target->rules, sizeof target->rules, "%s", cuts->book.said);
    if (status == RESHARD_OK && selection->dropped_count != 0)
        status = rs_target_say(target, "rules (%s) leave out %lld tensor%s (line %d: \"%.*s\"%s)",
                               cuts->book.name, (long long)selection->dropped_count,
                               selection->dropped_count == 1 ? "" : "s",
                               (int)selection->dropped_line, RS_SHOWN(selection->dropped),
                               selection->dropped_count == 1 ? "" : " and others");
    bool holds_values = source->value_count != 0 && target->format->holds_value != NULL;
    /* Only DTensors would say how such files were split. */
    if (status == RESHARD_OK && source->tensor_count == 0 && options->dtensors)
        return rs_fail_about(RESHARD_ERR_INVALID, source->path,
                             "holds no tensor, so there is none to write as a DTensor");
    if (status == RESHARD_OK && source->tensor_count == 0 && !holds_values)
        return rs_fail_about(
            RESHARD_ERR_INVALID, source->path, "holds no tensor, so there is nothing to convert%s",
            source->value_count != 0 ? "; the formats torch and dcp keep other values" : "");
    if (status == RESHARD_OK && selection->count == 0 && source->tensor_count != 0)
        status = rs_fail_about(RESHARD_ERR_INVALID, source->path,
                               "no tensor of %lld is left to convert; check the patterns and rules",
                               (long long)source->tensor_count);
    return status;
}

/* Warns if config.json contradicts the shapes of the source. It is not refused: the files say how
 * large their tensors are, and some models are meant to differ. */
static reshard_status compare_sizes(rs_target *target, const reshard_conversion_options *options,
                                    rs_rulebook *book)
{
    const reshard_checkpoint *source = target->source;
    rs_sizes sizes;
    reshard_status status = RESHARD_OK;
    if (book->rules == NULL)
        status = rs_config_init_for(&book->config, source, options->set_count, options->sets);
    /* Whole tensors need no config.json: one that is not valid JSON is copied as it is. */
    if (status == RESHARD_ERR_SYNTAX) {
        rs_config_release(&book->config);
        return RESHARD_OK;
    }
    if (status == RESHARD_OK && source->sizes_compared)
        return RESHARD_OK;
    if (status == RESHARD_OK)
        status = rs_sizes_compare(source, &book->config, book->rules, &sizes);
    if (status != RESHARD_OK || sizes.wrong == 0)
        return status;
    return rs_target_warn(target, "%s; %lld of %lld tensors that config.json describes do not fit",
                          sizes.first, (long long)sizes.wrong, (long long)sizes.compared);
}

static bool has_same_shape(const rs_stored_tensor *a, const rs_stored_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

/* What a selection calls the embedding that a head is tied to: of those that are called like one,
 * the first with the head's shape. NULL: it was not selected. */
static const rs_selected *find_embedding(const rs_selection *selection,
                                         const rs_stored_tensor *head)
{
    static const char *const endings[] = {"embed_tokens.weight",   "token_embd.weight",
                                          "tok_embeddings.weight", "word_embeddings.weight",
                                          "embed_in.weight",       "wte.weight"};
    const rs_selected *first = NULL;
    for (int64_t i = 0; i < selection->count; i++) {
        const rs_selected *item = &selection->items[i];
        bool is_one = false;
        for (size_t k = 0; !is_one && k < sizeof endings / sizeof *endings; k++)
            is_one = item->followed == NULL && rs_slice_ends(item->name, endings[k]);
        if (is_one && has_same_shape(item->stored, head))
            return item;
        first = is_one && first == NULL ? item : first;
    }
    return first;
}

/* The head is left out because it equals the embedding: a conversion compares the two before it
 * writes anything. */
static reshard_status expect_equal(rs_target *target, const rs_selected *head,
                                   const rs_selected *embedding)
{
    const rs_stored_tensor *a = head->stored, *b = embedding->stored;
    if (a->dtype != b->dtype || !has_same_shape(a, b))
        return rs_fail(RESHARD_ERR_MISMATCH,
                       "tensor \"%.*s\" cannot equal \"%.*s\", which has another %s, though "
                       "config.json says that the head is tied (tie_word_embeddings); "
                       "tie_word_embeddings=0 keeps it",
                       RS_SHOWN(a->name), RS_SHOWN(b->name),
                       a->dtype == b->dtype ? "shape" : "dtype");
    target->tied[target->tied_count++] = (rs_mapped_check){.tensor = a, .same_as = b};
    return RESHARD_OK;
}

/* If config.json says that input and output embeddings are tied, leaves the head out, with its
 * states: the program that loads the result makes it of the embedding. Without the embedding it
 * stays. */
static reshard_status leave_tied(rs_target *target, rs_rulebook *book, rs_selection *selection)
{
    int64_t tied = 0, kept = 0;
    rs_slice first = {NULL, 0};
    reshard_status status = RESHARD_OK;
    if (target->format->leaves_tied == NULL ||
        (!rs_config_find(&book->config, "tie_word_embeddings", &tied) &&
         !rs_config_find(&book->config, "text_config.tie_word_embeddings", &tied)) ||
        tied == 0)
        return RESHARD_OK;
    target->tied =
        rs_arena_allocate_array(&target->arena, (size_t)selection->count, sizeof *target->tied);
    if (target->tied == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < selection->count; i++) {
        const rs_selected *item = &selection->items[i];
        rs_slice name = item->followed != NULL ? item->followed->parameter_name : item->name;
        const rs_selected *embedding = NULL;
        if (target->format->leaves_tied(name))
            embedding = find_embedding(selection, item->stored);
        if (embedding == NULL) {
            selection->items[kept++] = *item;
            continue;
        }
        if (item->followed == NULL)
            status = expect_equal(target, item, embedding);
        first = first.bytes == NULL ? item->name : first;
    }
    selection->count = kept;
    if (status != RESHARD_OK || first.bytes == NULL)
        return status;
    return rs_target_say(target,
                         "\"%.*s\" is left out: config.json says that it is tied to the embedding "
                         "(tie_word_embeddings)",
                         RS_SHOWN(first));
}

/* Numbers the files: one for each rank of the mesh, in increasing order. */
static reshard_status order_files(rs_laying *laying, const reshard_mesh *mesh)
{
    rs_target *target = laying->target;
    size_t count = (size_t)mesh->size;
    int32_t *ranks = rs_arena_allocate_array(&target->arena, count, sizeof(int32_t));
    int32_t *file_of = rs_arena_allocate_array(&target->arena, count, sizeof(int32_t));
    if (ranks == NULL || file_of == NULL)
        return rs_allocation_status();
    target->file_count = rs_mesh_order_files(mesh, ranks, file_of);
    laying->file_of = file_of;
    target->ranks = ranks;
    return RESHARD_OK;
}

/* Tells the user which values the format cannot hold. */
static reshard_status tell_values(rs_target *target)
{
    const reshard_checkpoint *source = target->source;
    const rs_format *format = target->format;
    char shown[300];
    rs_text text;
    int64_t count = 0;
    rs_text_init(&text, shown, sizeof shown);
    for (int64_t i = 0; i < source->value_count; i++) {
        const rs_stored_value *value = &source->values[i];
        rs_slice name = value->name;
        if (!rs_target_keeps(target, &name) ||
            (format->holds_value != NULL && format->holds_value(value)))
            continue;
        if (count++ < VALUES_SHOWN)
            rs_text_add(&text, "%s%.*s", count == 1 ? "" : ", ", RS_SHOWN(name));
    }
    if (count == 0)
        return RESHARD_OK;
    return rs_target_say(target,
                         "the format %s cannot hold %lld value%s, which stay%s behind: %s%s",
                         format->name, (long long)count, count == 1 ? "" : "s",
                         count == 1 ? "s" : "", shown, count > VALUES_SHOWN ? ", .." : "");
}

/* Tells the user what the selection and the format leave behind. */
static reshard_status tell_behind(rs_target *target, const rs_selection *selection)
{
    const reshard_checkpoint *source = target->source;
    int64_t outside = 0;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < source->value_count; i++) {
        rs_slice name = source->values[i].name;
        outside += !rs_target_keeps(target, &name);
    }
    if (selection->splits_model && selection->outside.count != 0)
        status = rs_target_warn(target,
                                "\"%.*s\"%s stay%s behind, and names lose \"%.*s\": it is not a "
                                "part of the source in which its model is, but what some names "
                                "begin with; without \"only\", all are taken",
                                RS_SHOWN(selection->outside),
                                selection->outside_count == 1 ? "" : " and others",
                                selection->outside_count == 1 ? "s" : "",
                                (int)selection->prefix.count, selection->prefix.bytes);
    if (status == RESHARD_OK && selection->prefix.count != 0 &&
        selection->outside_count + outside != 0)
        status = rs_target_say(target,
                               "only \"%.*s\" is taken: %lld tensor%s (%llu bytes) and %lld other "
                               "value%s stay behind",
                               (int)selection->prefix.count - 1, selection->prefix.bytes,
                               (long long)selection->outside_count,
                               selection->outside_count == 1 ? "" : "s",
                               (unsigned long long)selection->outside_bytes, (long long)outside,
                               outside == 1 ? "" : "s");
    if (status == RESHARD_OK && selection->aside_count != 0)
        status = rs_target_say(
            target, "%lld tensor%s (\"%.*s\"%s) %s what others hold, and %s left out",
            (long long)selection->aside_count, selection->aside_count == 1 ? "" : "s",
            RS_SHOWN(selection->aside), selection->aside_count == 1 ? "" : " and others",
            selection->aside_count == 1 ? "repeats" : "repeat",
            selection->aside_count == 1 ? "is" : "are");
    return status == RESHARD_OK ? tell_values(target) : status;
}

/* Makes room for the selected tensors. */
static reshard_status make_room(rs_target *target, int64_t selected)
{
    size_t count = (size_t)selected;
    if (selected > INT32_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "there are %lld tensors; a conversion takes at most 2147483647",
                       (long long)selected);
    target->tensors = rs_arena_allocate_array(&target->arena, count, sizeof(rs_stored_tensor));
    target->origins = rs_arena_allocate_array(&target->arena, count, sizeof(int64_t));
    target->stored = rs_arena_allocate_array(&target->arena, count, sizeof *target->stored);
    target->rows = rs_arena_allocate_array(&target->arena, count, sizeof *target->rows);
    if (target->tensors == NULL || target->origins == NULL || target->stored == NULL ||
        target->rows == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        target->rows[i] = NULL;
    return RESHARD_OK;
}

/* Finds the dtype of most floating-point bytes of the output, if some were cast to it, or if what
 * config.json says of quantised ones has to go in any case; else NONE. Quantised codes that stay as
 * they are do not count. */
static reshard_dtype find_cast(const rs_selection *selection, bool dequantises)
{
    uint64_t bytes[RESHARD_DTYPE_COUNT] = {0};
    bool is_cast[RESHARD_DTYPE_COUNT] = {false};
    reshard_dtype most = RESHARD_DTYPE_NONE;
    for (int64_t i = 0; i < selection->count; i++) {
        const rs_selected *item = &selection->items[i];
        const rs_stored_tensor *stored = item->stored;
        bool was_cast = item->dtype != stored->dtype || rs_formula_was_quantised(stored) ||
                        stored->block_type != NULL;
        if (!was_cast && !rs_dtype_is_float(item->dtype))
            continue;
        is_cast[item->dtype] = is_cast[item->dtype] || was_cast;
        bytes[item->dtype] +=
            stored->bytes / (uint64_t)stored->element_bytes * rs_element_bytes(item->dtype);
        if (bytes[item->dtype] > bytes[most])
            most = item->dtype;
    }
    return is_cast[most] || dequantises ? most : RESHARD_DTYPE_NONE;
}

static reshard_status tell_quantised(rs_target *target, const rs_selection *selection)
{
    int64_t count = selection->quantised_count;
    reshard_status status = RESHARD_OK;
    if (selection->made_count != 0 && selection->scale_count == 0)
        status =
            rs_target_say(target, "dequantised: %lld tensor%s", (long long)selection->made_count,
                          selection->made_count == 1 ? "" : "s");
    else if (selection->made_count != 0)
        status = rs_target_say(
            target, "dequantised: %lld tensor%s; %lld of scales and the like are left out",
            (long long)selection->made_count, selection->made_count == 1 ? "" : "s",
            (long long)selection->scale_count);
    if (status == RESHARD_OK && selection->parted_count != 0)
        status = rs_target_warn(
            target,
            "\"%.*s\"%s stay%s behind by the patterns, but the quantised weights that need %s do "
            "not: take both, or dequantise the weights",
            RS_SHOWN(selection->parted), selection->parted_count == 1 ? "" : " and others",
            selection->parted_count == 1 ? "s" : "", selection->parted_count == 1 ? "it" : "them");
    if (status != RESHARD_OK || count == 0)
        return status;
    return rs_target_say(target,
                         "not cast: %lld quantised tensor%s, with what belongs to %s (\"%.*s\"%s); "
                         "a pattern that names them casts them",
                         (long long)count, count == 1 ? "" : "s", count == 1 ? "it" : "them",
                         RS_SHOWN(selection->quantised), count == 1 ? "" : " and others");
}

/* Rules may have cut the source, too, by the numbers that were set. */
static bool may_ask_sets(const reshard_checkpoint *source)
{
    for (int32_t i = 0; rs_format_at(i) != NULL; i++) {
        if (strcmp(rs_format_at(i)->name, source->format) == 0)
            return rs_format_at(i)->needs_mesh;
    }
    return false;
}

/* Says which options had nothing to act on. Comes last, when rules have asked for all they need. */
static reshard_status tell_idle(rs_target *target, const rs_rulebook *book,
                                const rs_config *map_config,
                                const reshard_conversion_options *options)
{
    reshard_status status = RESHARD_OK;
    const char *key = rs_config_idle_set(&book->config, map_config);
    if (key == NULL && options->set_count != 0 && book->config.set_count == 0)
        key = map_config == NULL ? options->sets[0] : rs_config_idle_set(map_config, NULL);
    if (key != NULL && !may_ask_sets(target->source))
        status = rs_target_say(target, "set \"%.*s\" has no effect: no rule%s asks for it",
                               (int)strcspn(key, "="), key, map_config != NULL ? " or map" : "");
    if (status == RESHARD_OK && options->shard_bytes_max != 0 && !target->format->limits_files)
        status = rs_target_say(target, "the largest size of a file has no effect on the format %s",
                               target->format->name);
    return status;
}

/* map_config: the keys that a map asked for; NULL: there is no map. donor: the file that the format
 * follows, and type what its tensors become; NULL: it follows none, and as there. */
static reshard_status lay_out(rs_target *target, reshard_mesh *mesh,
                              const reshard_conversion_options *options,
                              const rs_config *map_config, const rs_donor *donor)
{
    const reshard_checkpoint *source = target->source;
    rs_cuts cuts;
    const rs_selection *selection = &cuts.selection;
    rs_laying laying = {.target = target,
                        .source = source,
                        .cuts = &cuts,
                        .file_bytes_max = options->shard_bytes_max,
                        .donor = donor->checkpoint,
                        .type = donor->type};
    reshard_status status =
        rs_cuts_init(&cuts, &target->arena, source, options, target->format->takes_model);
    if (status == RESHARD_OK && target->mapped != NULL)
        rs_mapped_select(target->mapped, &cuts.selection);
    bool follows = target->format->follow != NULL;
    if (status == RESHARD_OK && !follows)
        status = rs_selection_check_blocks(selection, options);
    target->prefix = selection->prefix;
    if (status == RESHARD_OK && !follows)
        status = tell_behind(target, selection);
    if (status == RESHARD_OK && !follows)
        status = tell_quantised(target, selection);
    if (status == RESHARD_OK)
        status = read_rules(target, source, mesh, options, &cuts);
    if (status == RESHARD_OK)
        status = compare_sizes(target, options, &cuts.book);
    if (status == RESHARD_OK)
        status = leave_tied(target, &cuts.book, &cuts.selection);
    if (status == RESHARD_OK && follows)
        status = rs_donor_check(donor, target);
    if (status == RESHARD_OK && follows)
        status = target->format->follow(&laying);
    if (status == RESHARD_OK)
        status = make_room(target, selection->count);
    if (status == RESHARD_OK && target->format->is_split)
        status = order_files(&laying, cuts.book.mesh);
    target->dequantises = options->dequantize != RESHARD_DTYPE_NONE || source->is_dequantised;
    target->cast = find_cast(selection, target->dequantises);
    if (status == RESHARD_OK)
        status = target->format->lay_out(&laying);
    if (status == RESHARD_OK)
        status = tell_idle(target, &cuts.book, map_config, options);
    assert(status != RESHARD_OK || target->tensor_count == selection->count);
    for (int64_t i = 0; status == RESHARD_OK && i < selection->count; i++) {
        assert(target->origins[i] == selection->items[i].origin);
        target->stored[i] = selection->items[i].stored;
    }
    target->kept_rows = cuts.rows;
    cuts.rows = NULL;
    rs_cuts_release(&cuts);
    return status == RESHARD_OK ? rs_target_place(target) : status;
}

/* Lays out what a map makes of the source. The map has done what options do to single tensors. */
static reshard_status lay_out_mapped(rs_target *target, reshard_mesh *mesh,
                                     const reshard_conversion_options *options,
                                     const rs_naming *naming, const rs_donor *donor)
{
    rs_config config;
    reshard_conversion_options others = *options;
    rs_mapped_order order = {.context = target->context,
                             .arena = &target->arena,
                             .lines = &target->lines,
                             .warnings = &target->warnings,
                             .takes_model = target->format->takes_model,
                             .keeps_blocks = target->format->follow != NULL,
                             .verb = "written",
                             .does = "writes"};
    reshard_status status =
        rs_mapped_create(&order, target->source, options, naming, &config, &target->mapped);
    target->naming = order.naming;
    if (others.rules == NULL && naming != NULL && target->format->is_split)
        others.rules = naming->rules;
    if (status == RESHARD_OK && target->mapped != NULL) {
        others.include_count = others.exclude_count = others.dtype_count = others.rename_count = 0;
        others.only = NULL;
        others.all = 1;
        others.dequantize = RESHARD_DTYPE_NONE;
        target->source = &target->mapped->made;
    }
    if (status == RESHARD_OK && target->mapped != NULL && naming != NULL)
        status = rs_params_file_make(target, naming, &config);
    if (status == RESHARD_OK)
        status = lay_out(target, mesh, &others, &config, donor);
    rs_config_release(&config);
    return status;
}

/* Finds the naming to write, which brings a format. Sides of a map may have names of their own. */
static reshard_status find_naming(const reshard_conversion_options *options, bool has_map,
                                  const rs_naming **out_naming)
{
    *out_naming = options->as != NULL ? rs_naming_named(options->as) : NULL;
    if (options->as == NULL || *out_naming != NULL || has_map)
        return RESHARD_OK;
    return rs_naming_find(options->as, out_naming);
}

/* The name of files: that of the naming, else that of the source's files, unless it belongs to
 * another naming. */
static const char *choose_stem(const rs_naming *naming, const char *stem)
{
    if (naming->stem != NULL)
        return naming->stem;
    for (const rs_naming *other = rs_namings; other->name != NULL; other++) {
        if (other->stem != NULL && strcmp(other->stem, stem) == 0)
            return "model";
    }
    return stem;
}

reshard_status rs_target_init(rs_target *target, const reshard_checkpoint *source,
                              const reshard_conversion_options *given)
{
    reshard_mesh *mesh = NULL;
    const rs_naming *naming = NULL;
    rs_donor donor = {.checkpoint = NULL};
    reshard_conversion_options chosen = *given, *options = &chosen;
    bool has_map = options->map_file != NULL || options->map_text != NULL;
    *target = (rs_target){.context = source->context,
                          .source = source,
                          .metadata_count = source->metadata_count,
                          .metadata = source->metadata,
                          .stem = source->stem != NULL ? source->stem : "model"};
    rs_arena_init(&target->arena, source->context);
    reshard_status status = find_naming(options, has_map, &naming);
    if (status == RESHARD_OK && naming != NULL)
        target->stem = choose_stem(naming, target->stem);
    if (status == RESHARD_OK && naming != NULL && naming->is_one_file &&
        options->shard_bytes_max == 0)
        options->shard_bytes_max = UINT64_MAX;
    if (status == RESHARD_OK && naming != NULL && options->to == NULL && options->format == NULL)
        options->to = naming->mesh;
    if (status == RESHARD_OK)
        status =
            reshard_mesh_parse(target->context, options->to != NULL ? options->to : "1", &mesh);
    if (status == RESHARD_OK)
        status = choose_format(target, mesh, options, naming);
    if (status == RESHARD_OK && target->format->follow != NULL)
        status = rs_donor_open(&donor, target, options);
    if (status == RESHARD_OK)
        status = has_map || naming != NULL ? lay_out_mapped(target, mesh, options, naming, &donor)
                                           : lay_out(target, mesh, options, NULL, &donor);
    if (status == RESHARD_OK && options->like != NULL && target->format->follow == NULL)
        status = rs_target_check_like(target, options->like);
    reshard_checkpoint_destroy(donor.checkpoint);
    reshard_mesh_release(mesh);
    return status;
}

/* ---- live tensors ---------------------------------------------------------------------------- */

static reshard_status take_names(rs_target *target, int64_t count,
                                 const reshard_live_tensor *tensors)
{
    target->name_count = count;
    target->names = rs_arena_allocate_array(&target->arena, (size_t)count, sizeof(rs_slice));
    target->tensors =
        rs_arena_allocate_array(&target->arena, (size_t)count, sizeof(rs_stored_tensor));
    target->origins = rs_arena_allocate_array(&target->arena, (size_t)count, sizeof(int64_t));
    if (target->names == NULL || target->tensors == NULL || target->origins == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < count; i++)
        target->names[i] = (rs_slice){tensors[i].name, strlen(tensors[i].name)};
    return RESHARD_OK;
}

static reshard_status check_names(const rs_target *target)
{
    reshard_status status = RESHARD_OK;
    size_t count = (size_t)target->tensor_count;
    rs_slice *names = rs_allocate_array(target->context, count, sizeof *names);
    if (names == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        names[i] = target->tensors[i].name;
    rs_sort(names, count, sizeof *names, rs_compare_slices);
    for (size_t i = 1; status == RESHARD_OK && i < count; i++) {
        if (rs_slice_compare(names[i - 1], names[i]) == 0)
            status = rs_fail(RESHARD_ERR_INVALID,
                             "two tensors would have the name \"%.*s\"; rename one of them",
                             RS_SHOWN(names[i]));
    }
    rs_release(target->context, names);
    return status;
}

reshard_status rs_target_init_live(rs_target *target, reshard_context *context, int32_t file_count,
                                   int64_t count, const reshard_live_tensor *tensors)
{
    *target = (rs_target){.context = context,
                          .format = rs_format_default_writer(true),
                          .file_count = file_count,
                          .stem = "model"};
    rs_laying laying = {.target = target, .live = tensors};
    rs_arena_init(&target->arena, context);
    reshard_status status = take_names(target, count, tensors);
    if (status == RESHARD_OK)
        status = target->format->lay_out(&laying);
    if (status == RESHARD_OK)
        status = check_names(target);
    return status == RESHARD_OK ? rs_target_place(target) : status;
}
