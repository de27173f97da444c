/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known.c - which lines of a map know a name, for drafts: a look at names and at what config.json
 * says, without the shapes and the other tensors that resolving a map takes.
 */
#include "checkpoint/maps/condition.h"
#include "checkpoint/maps/map.h"
#include "checkpoint/maps/maps.h"

int32_t rs_map_line_count(const reshard_map *map)
{
    return map->line_count;
}

bool rs_map_declares(const reshard_map *map, rs_slice word)
{
    bool found = false;
    for (int32_t i = 0; i < map->bound_count; i++)
        found = found || rs_slice_compare(map->bounds[i].name, word) == 0;
    for (int32_t i = 0; i < map->let_count; i++)
        found = found || rs_slice_compare(map->lets[i].name, word) == 0;
    return found;
}

bool rs_map_line_is_made(const reshard_map *map, int32_t line)
{
    return !map->lines[line].is_rest && map->lines[line].place_counts[0] == 0;
}

/* Whether config.json rules the line out. What depends on captures or sizes may hold. */
static bool may_hold(const rs_map_line *line, const rs_number_scope *scope)
{
    for (int side = 0; side < 2; side++) {
        for (int32_t i = 0; i < line->place_counts[side]; i++) {
            const rs_map_place *place = &line->places[side][i];
            for (int32_t k = 0; place->count == 1 && k < place->alternatives[0].condition_count;
                 k++) {
                const rs_map_condition *condition = &place->alternatives[0].conditions[k];
                rs_map_verdict verdict = {.holds = true};
                if (condition->kind == RS_CONDITION_WHEN &&
                    rs_map_condition_ask(scope, condition->text, &verdict) == RESHARD_OK &&
                    !verdict.holds && !verdict.is_open)
                    return false;
            }
        }
    }
    return true;
}

/* Whether a pattern matches a name. One that is shifted by a number without a value does not. */
static bool matches(const rs_map_line *line, const rs_map_pattern *pattern,
                    const rs_number_scope *scope, rs_slice name)
{
    int64_t shifts[RS_MAP_PARTS_MAX] = {0};
    rs_map_values values;
    for (int32_t i = 0; i < pattern->part_count; i++) {
        const rs_map_part *part = &pattern->parts[i];
        rs_cursor cursor = {part->shift.bytes, part->shift.bytes + part->shift.count};
        if (part->shift.count != 0 && rs_number_read(scope, &cursor, &shifts[i]) != RESHARD_OK)
            return false;
        if (part->shift_down)
            shifts[i] = -shifts[i];
    }
    return rs_map_match(line, pattern, shifts, name, &values);
}

bool rs_map_knows(const reshard_map *map, const rs_rules_keys *keys, rs_slice name, bool *lines)
{
    const rs_number_scope scope = {.keys = keys};
    bool found = false;
    for (int32_t i = 0; i < map->line_count; i++) {
        const rs_map_line *line = &map->lines[i];
        bool knows = line->is_rest;
        for (int32_t k = 0; k < line->place_counts[0] && !knows; k++) {
            const rs_map_place *place = &line->places[0][k];
            for (int32_t a = 0; a < place->count && !knows; a++)
                knows = matches(line, &place->alternatives[a].pattern, &scope, name);
        }
        knows = knows && may_hold(line, &scope);
        lines[i] = lines[i] || knows;
        found = found || knows;
    }
    return found;
}
