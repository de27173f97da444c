/* SPDX-License-Identifier: Apache-2.0 */
/* shipped.c - the maps that the library holds as text, and which of them a model needs. */
#include "checkpoint/namings/namings.h"

#include "base/error.h"
#include "base/options.h"
#include "spec/scan.h"
#include "text/text.h"

#include <reshard/model_rules.h>

#include <string.h>

const rs_shipped_map *rs_shipped_map_named(const char *name)
{
    for (const rs_shipped_map *map = rs_shipped_maps; map->name != NULL; map++) {
        if (strcmp(map->name, name) == 0)
            return map;
    }
    return NULL;
}

const char *rs_shipped_map_text(void *user, const char *name, size_t *out_bytes)
{
    const rs_shipped_map *map = rs_shipped_map_named(name);
    (void)user;
    if (map == NULL)
        return NULL;
    *out_bytes = strlen(map->text);
    return map->text;
}

/* ---- headers --------------------------------------------------------------------------------- */

/* The rest of a line behind `word` and a space; nothing if it begins otherwise. */
static rs_slice behind(const char *line, const char *word)
{
    size_t length = strlen(word), end = strcspn(line, "\n#");
    if (end <= length || strncmp(line, word, length) != 0 || line[length] != ' ')
        return (rs_slice){NULL, 0};
    return (rs_slice){line + length + 1, end - length - 1};
}

rs_slice rs_shipped_map_header(const rs_shipped_map *map)
{
    for (const char *line = map->text; *line != '\0';) {
        rs_slice found = behind(line, "map");
        if (found.count != 0)
            return found;
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return (rs_slice){NULL, 0};
}

/* Takes the next word off the front; nothing after the last one. */
static rs_slice next_word(rs_slice *rest)
{
    while (rest->count != 0 && rest->bytes[0] == ' ')
        *rest = (rs_slice){rest->bytes + 1, rest->count - 1};
    rs_slice word = {rest->bytes, 0};
    while (word.count < rest->count && word.bytes[word.count] != ' ')
        word.count++;
    *rest = (rs_slice){rest->bytes + word.count, rest->count - word.count};
    return word;
}

/* Whether a map is between hf and a naming. *out_types: the types it is for; empty: any. */
static bool leads_to(const rs_shipped_map *map, const rs_naming *naming, rs_slice *out_types)
{
    rs_slice rest = rs_shipped_map_header(map);
    bool leads =
        rs_slice_equals(next_word(&rest), "hf") && rs_slice_equals(next_word(&rest), naming->name);
    if (leads && !rs_slice_equals(next_word(&rest), "types"))
        rest.count = 0;
    *out_types = rest;
    return leads;
}

bool rs_shipped_map_leads(const rs_shipped_map *map, const rs_naming *naming)
{
    rs_slice types;
    return leads_to(map, naming, &types);
}

static bool lists(rs_slice types, const char *type)
{
    for (rs_slice word; (word = next_word(&types)).count != 0;) {
        if (type != NULL && rs_slice_equals(word, type))
            return true;
    }
    return false;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static reshard_status fail_type(const rs_naming *naming, const char *model_type)
{
    char buffer[600] = "";
    rs_text list;
    rs_text_init(&list, buffer, sizeof buffer);
    for (const rs_shipped_map *map = rs_shipped_maps; map->name != NULL; map++) {
        rs_slice types, word;
        if (!leads_to(map, naming, &types))
            continue;
        while ((word = next_word(&types)).count != 0)
            rs_text_add(&list, "%s%.*s", list.length == 0 ? "" : ", ", (int)word.count, word.bytes);
    }
    if (list.length == 0)
        return rs_fail(RESHARD_ERR_NOT_FOUND, "there is no map between hf and %s", naming->name);
    if (model_type == NULL)
        return rs_fail_hint(RESHARD_ERR_NOT_FOUND, RESHARD_HINT_CONFIG, "",
                            "no config.json names a model_type, which decides the map between hf "
                            "and %s; there are maps for %s",
                            naming->name, buffer);
    return rs_fail(RESHARD_ERR_NOT_FOUND,
                   "there is no map between hf and %s for model_type \"%.60s\"; there are maps for "
                   "%s",
                   naming->name, model_type, buffer);
}

reshard_status rs_shipped_map_choose(const rs_naming *naming, const char *model_type,
                                     const rs_shipped_map **out_map)
{
    const rs_shipped_map *any = NULL;
    for (const rs_shipped_map *map = rs_shipped_maps; map->name != NULL; map++) {
        rs_slice types;
        if (!leads_to(map, naming, &types))
            continue;
        if (lists(types, model_type)) {
            *out_map = map;
            return RESHARD_OK;
        }
        any = types.count == 0 ? map : any;
    }
    *out_map = any;
    return any != NULL ? RESHARD_OK : fail_type(naming, model_type);
}

/* ---- the public list ------------------------------------------------------------------------- */

reshard_status reshard_naming_at(int32_t index, reshard_naming *out_naming)
{
    int32_t count = 0;
    while (rs_namings[count].name != NULL)
        count++;
    if (index < 0 || index >= count)
        return rs_fail(RESHARD_ERR_RANGE, "there is no naming %d of %d", (int)index, (int)count);
    const rs_naming *found = &rs_namings[index];
    const reshard_naming naming = {
        .size = sizeof naming, .name = found->name, .summary = found->summary};
    return rs_report_write("naming", &naming, sizeof naming, out_naming);
}

static reshard_status write_map(const rs_shipped_map *map, reshard_naming_map *out_map)
{
    const reshard_naming_map made = {.size = sizeof made, .name = map->name, .text = map->text};
    return rs_report_write("map between namings", &made, sizeof made, out_map);
}

reshard_status reshard_naming_map_at(int32_t index, reshard_naming_map *out_map)
{
    int32_t count = 0;
    while (rs_shipped_maps[count].name != NULL)
        count++;
    if (index < 0 || index >= count)
        return rs_fail(RESHARD_ERR_RANGE, "there is no map %d of %d", (int)index, (int)count);
    return write_map(&rs_shipped_maps[index], out_map);
}

/* "hf:hf5" and "hf5:hf" are the map between the two that is for any model, or else the first
 * one. */
static const rs_shipped_map *find_pair(const char *name)
{
    const char *colon = strchr(name, ':');
    const rs_shipped_map *found = NULL;
    for (const rs_naming *naming = rs_namings; colon != NULL && naming->name != NULL; naming++) {
        rs_slice left = {name, (size_t)(colon - name)};
        bool is_meant = (rs_slice_equals(left, "hf") && strcmp(colon + 1, naming->name) == 0) ||
                        (strcmp(colon + 1, "hf") == 0 && rs_slice_equals(left, naming->name));
        for (const rs_shipped_map *map = rs_shipped_maps; is_meant && map->name != NULL; map++) {
            rs_slice types;
            if (leads_to(map, naming, &types) && (found == NULL || types.count == 0))
                found = map;
        }
    }
    return found;
}

reshard_status reshard_naming_map_find(const char *name, reshard_naming_map *out_map)
{
    const rs_shipped_map *map = rs_shipped_map_named(name);
    char buffer[600] = "";
    rs_text list;
    if (map == NULL)
        map = find_pair(name);
    if (map != NULL)
        return write_map(map, out_map);
    rs_text_init(&list, buffer, sizeof buffer);
    for (map = rs_shipped_maps; map->name != NULL; map++)
        rs_text_add(&list, "%s%s", map == rs_shipped_maps ? "" : ", ", map->name);
    return rs_fail(RESHARD_ERR_NOT_FOUND, "there is no map \"%s\"; give one of %s",
                   rs_excerpt_of(name, strlen(name)).text, buffer);
}
