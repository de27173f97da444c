/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft.c - drafts a map from hf to a naming, for a checkpoint that no shipped map is for: the
 * lines of the map that knows most of its names, and a line with ??? for each group of names that
 * differ only in numbers and that no line knows.
 */
#include <reshard/model_rules.h>

#include "base/context.h"
#include "base/error.h"
#include "base/sort.h"
#include "checkpoint/maps/maps.h"
#include "checkpoint/namings/namings.h"
#include "checkpoint/rules/config.h"
#include "checkpoint/rules/name_groups.h"
#include "checkpoint/store/store.h"

#include <inttypes.h>
#include <string.h>

#define SHAPE_BYTES 192
#define WIDTH_MAX 200
#define LONG_NAME_BYTES 60
/* Names longer than this are not written as patterns; a map would refuse them. */
#define PATTERN_BYTES_MAX 4000

/* Names that differ only in their numbers; they follow each other. */
typedef struct name_group {
    const rs_named_shape *first;
    int64_t count;
    const rs_named_shape *unknown; /* the first that no line knows; NULL: all are known */
    int64_t unknown_count;
} name_group;

typedef struct drafting {
    reshard_context *context;
    const reshard_checkpoint *checkpoint;
    const rs_naming *naming;
    rs_arena arena;
    rs_config config;
    rs_rules_keys keys;
    int64_t group_count;
    name_group *groups;
    const char *base; /* the name of the map that is begun with */
    reshard_map *map;
    bool *lines; /* those that are kept of it */
    char letters[RS_NAME_NUMBERS_MAX];
} drafting;

static int compare_items(const void *a, const void *b)
{
    return rs_name_compare(((const rs_named_shape *)a)->name, ((const rs_named_shape *)b)->name,
                           true);
}

static reshard_status find_groups(drafting *draft)
{
    const reshard_checkpoint *checkpoint = draft->checkpoint;
    size_t count = (size_t)checkpoint->tensor_count;
    rs_named_shape *items = rs_arena_allocate_array(&draft->arena, count, sizeof *items);
    draft->groups = rs_arena_allocate_array(&draft->arena, count, sizeof *draft->groups);
    if (items == NULL || draft->groups == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        const rs_stored_tensor *tensor = &checkpoint->tensors[i];
        items[i] = (rs_named_shape){tensor->name, tensor->ndim, tensor->shape};
    }
    rs_sort(items, count, sizeof *items, compare_items);
    for (size_t i = 0; i < count; i++) {
        name_group *last = &draft->groups[draft->group_count - (draft->group_count > 0)];
        if (draft->group_count == 0 || rs_name_compare(last->first->name, items[i].name, false))
            draft->groups[draft->group_count++] = (name_group){.first = &items[i]};
        draft->groups[draft->group_count - 1].count++;
    }
    return RESHARD_OK;
}

/* ---- the map to begin with ------------------------------------------------------------------- */

static reshard_status parse_map(const drafting *draft, const rs_shipped_map *shipped,
                                reshard_map **out_map, bool **out_lines)
{
    const reshard_map_options options = {
        .size = sizeof options, .file_name = shipped->name, .find = rs_shipped_map_text};
    reshard_status status =
        reshard_map_parse(draft->context, shipped->text, strlen(shipped->text), &options, out_map);
    if (status != RESHARD_OK)
        return status;
    size_t count = (size_t)rs_map_line_count(*out_map);
    *out_lines = rs_arena_allocate_array((rs_arena *)&draft->arena, count, sizeof **out_lines);
    if (*out_lines == NULL)
        return rs_allocation_status();
    memset(*out_lines, 0, count * sizeof **out_lines);
    return RESHARD_OK;
}

/* How many tensors a map knows, judged by one name of each group; keeps the map if these are the
 * most so far, or if it must. Of two that know as many, the one of fewer lines says less about
 * other models. */
static reshard_status try_map(drafting *draft, const rs_shipped_map *shipped, bool must,
                              int64_t *most)
{
    reshard_map *map = NULL;
    bool *lines = NULL;
    int64_t known = 0;
    reshard_status status = parse_map(draft, shipped, &map, &lines);
    for (int64_t i = 0; status == RESHARD_OK && i < draft->group_count; i++) {
        if (rs_map_knows(map, &draft->keys, draft->groups[i].first->name, lines))
            known += draft->groups[i].count;
    }
    if (status == RESHARD_OK &&
        (must || known > *most ||
         (known == *most && rs_map_line_count(map) < rs_map_line_count(draft->map)))) {
        reshard_map_release(draft->map);
        draft->map = map;
        draft->lines = lines;
        draft->base = shipped->name;
        *most = known;
        map = NULL;
    }
    reshard_map_release(map);
    return status;
}

/* The map for the model's type; else, of all those that lead to the naming, the one that knows most
 * of the names. */
static reshard_status choose_map(drafting *draft)
{
    const rs_shipped_map *chosen = NULL;
    int64_t most = -1;
    reshard_status status = RESHARD_OK;
    if (draft->config.model_type != NULL &&
        rs_shipped_map_choose(draft->naming, draft->config.model_type, &chosen) == RESHARD_OK)
        return try_map(draft, chosen, true, &most);
    for (const rs_shipped_map *map = rs_shipped_maps; status == RESHARD_OK && map->name != NULL;
         map++) {
        if (rs_shipped_map_leads(map, draft->naming))
            status = try_map(draft, map, false, &most);
    }
    if (status == RESHARD_OK && draft->map == NULL)
        status = rs_fail(RESHARD_ERR_NOT_FOUND, "there is no map between hf and %s to start from",
                         draft->naming->name);
    return status;
}

/* Which names no line knows, and which lines know none. */
static void mark_known(drafting *draft)
{
    int32_t count = rs_map_line_count(draft->map);
    for (int32_t i = 0; i < count; i++)
        draft->lines[i] = rs_map_line_is_made(draft->map, i);
    for (int64_t i = 0; i < draft->group_count; i++) {
        name_group *group = &draft->groups[i];
        for (const rs_named_shape *item = group->first; item < group->first + group->count;
             item++) {
            if (rs_map_knows(draft->map, &draft->keys, item->name, draft->lines))
                continue;
            group->unknown = group->unknown != NULL ? group->unknown : item;
            group->unknown_count++;
        }
    }
}

/* ---- the text -------------------------------------------------------------------------------- */

/* Letters for captures that the map does not bound, and that are no sizes there: it may count other
 * layers than these. */
static void choose_letters(drafting *draft)
{
    static const char able[] = "ijlmnoprstuwxyabcdefghkqvz";
    int count = 0;
    for (size_t i = 0; able[i] != '\0' && count < RS_NAME_NUMBERS_MAX; i++) {
        if (!rs_map_declares(draft->map, (rs_slice){&able[i], 1}))
            draft->letters[count++] = able[i];
    }
    /* a map that declares nearly all of them: no more captures */
    while (count < RS_NAME_NUMBERS_MAX)
        draft->letters[count++] = '\0';
}

/* A name with a capture for each number. */
static void add_pattern(const drafting *draft, rs_slice name, rs_text *text)
{
    size_t begin = 0;
    int numbers = 0;
    if (name.count == 3 && strchr("mflu", name.bytes[0]) != NULL)
        rs_text_add(text, "\\"); /* it may be a statement: map, for, let, use */
    for (size_t i = 0; i < name.count;) {
        size_t length = numbers < RS_NAME_NUMBERS_MAX ? rs_name_number_length(name, i) : 0;
        if (length == 0 || draft->letters[numbers] == '\0') {
            i++;
            continue;
        }
        rs_map_print_literal((rs_slice){name.bytes + begin, i - begin}, text);
        rs_text_add(text, "{%c}", draft->letters[numbers++]);
        i += length;
        begin = i;
    }
    rs_map_print_literal((rs_slice){name.bytes + begin, name.count - begin}, text);
}

/* Whether a map can have the name: it comes from a file that somebody else may have written. */
static bool is_writable(rs_slice name)
{
    return name.count > 0 && name.count <= PATTERN_BYTES_MAX &&
           reshard_text_escape(name.bytes, name.count, NULL, 0) == name.count;
}

static size_t pattern_length(const drafting *draft, rs_slice name)
{
    rs_text text;
    rs_text_init(&text, NULL, 0);
    add_pattern(draft, name, &text);
    return text.length;
}

static void write_group(const drafting *draft, const name_group *group, size_t width, rs_text *text)
{
    char shape_buffer[SHAPE_BYTES];
    rs_text shape;
    rs_slice name = group->unknown->name;
    rs_text_init(&shape, shape_buffer, sizeof shape_buffer);
    rs_text_add_shape(&shape, group->unknown->ndim, group->unknown->shape);
    if (!is_writable(name)) {
        rs_text_add(text, "# x%" PRId64 "  %s  a name that no map can have (%zu bytes): ",
                    group->unknown_count, shape_buffer, name.count);
        rs_text_add_escaped(text, name.bytes,
                            name.count < LONG_NAME_BYTES ? name.count : LONG_NAME_BYTES);
        rs_text_add(text, "\n");
        return;
    }
    size_t length = pattern_length(draft, name);
    add_pattern(draft, name, text);
    rs_text_add(text, "%*s = ???  # x%" PRId64 "  %s\n", (int)(width > length ? width - length : 0),
                "", group->unknown_count, shape_buffer);
}

static void write_draft(const drafting *draft, rs_text *text)
{
    size_t width = 0;
    int64_t unknown = 0;
    for (int64_t i = 0; i < draft->group_count; i++) {
        const rs_named_shape *item = draft->groups[i].unknown;
        if (item == NULL)
            continue;
        size_t length = is_writable(item->name) ? pattern_length(draft, item->name) : 0;
        width = length > width && length <= WIDTH_MAX ? length : width;
        unknown++;
    }
    rs_text_add(text,
                "# A map from hf to %s for %" PRId64 " tensors, with the lines of %s for those "
                "that it knows\n",
                draft->naming->name, draft->checkpoint->tensor_count, draft->base);
    if (unknown != 0)
        rs_text_add(text, "# In place of ???, say what a tensor is called there, with axes where "
                          "it is arranged in another way;\n"
                          "# or put drop before the =, and nothing behind it\n");
    rs_text_add(text, "map hf %s\n", draft->naming->name);
    rs_map_print_lines(draft->map, draft->lines, text);
    for (int64_t i = 0; i < draft->group_count; i++) {
        if (draft->groups[i].unknown != NULL)
            write_group(draft, &draft->groups[i], width, text);
    }
}

/* Drafts begin with hf. */
static reshard_status check_source(const drafting *draft)
{
    const char *naming = NULL;
    if (strcmp(draft->naming->name, "hf") == 0)
        return rs_fail(RESHARD_ERR_INVALID,
                       "a draft leads from hf to another naming; name another one than hf");
    if (reshard_checkpoint_naming(draft->checkpoint, &naming) == RESHARD_OK &&
        strcmp(naming, "hf") != 0)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "the tensors have the names of %s, but a draft starts from those of hf; "
                       "convert the checkpoint to hf first",
                       naming);
    return RESHARD_OK;
}

reshard_status reshard_map_draft(reshard_context *context, const reshard_checkpoint *checkpoint,
                                 const char *naming, char *buffer, size_t capacity,
                                 size_t *out_length)
{
    drafting draft = {.context = context, .checkpoint = checkpoint};
    rs_text text;
    rs_arena_init(&draft.arena, context);
    reshard_status status = rs_config_init_for(&draft.config, checkpoint, 0, NULL);
    draft.keys = (rs_rules_keys){rs_config_find, &draft.config, rs_config_find_text};
    if (status == RESHARD_OK)
        status = rs_naming_find(naming, &draft.naming);
    if (status == RESHARD_OK)
        status = check_source(&draft);
    if (status == RESHARD_OK)
        status = find_groups(&draft);
    if (status == RESHARD_OK)
        status = choose_map(&draft);
    if (status == RESHARD_OK) {
        mark_known(&draft);
        choose_letters(&draft);
        rs_text_init(&text, buffer, capacity);
        write_draft(&draft, &text);
        *out_length = text.length;
    }
    reshard_map_release(draft.map);
    rs_config_release(&draft.config);
    rs_arena_release(&draft.arena);
    return status;
}
