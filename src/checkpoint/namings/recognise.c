/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recognise.c - which naming a checkpoint has. Rows of the table are asked in turn for their signs.
 * What has no other sign, but a model_type, or names that a family of rules knows, is hf.
 */
#include "checkpoint/namings/namings.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/options.h"
#include "checkpoint/rules/config.h"
#include "checkpoint/rules/glob.h"
#include "checkpoint/store/store.h"

#include <reshard/model_rules.h>

#include <assert.h>
#include <string.h>

#define NAMINGS_MAX 16     /* at least as many as the table has */
#define SIGN_NAME_MAX 1000 /* longest name, in bytes, that is compared with signs */

/* A glob, and the first name that is like it; NULL: none so far. */
typedef struct sought {
    const char *text;
    rs_glob glob;
    rs_slice found;
} sought;

/* Looks for names that are like the globs. Names go by once, however many globs there are: of a
 * million names, each is a cache miss. */
static reshard_status match_globs(sought *globs, int32_t count, rs_tensor_name_fn names, void *user)
{
    rs_arena arena;
    reshard_status status = RESHARD_OK;
    size_t bytes = 0;
    const char *name;
    rs_arena_init(&arena, NULL);
    for (int32_t i = 0; status == RESHARD_OK && i < count; i++)
        status = rs_glob_compile(&arena, globs[i].text, strlen(globs[i].text), &globs[i].glob);
    for (int64_t at = 0; status == RESHARD_OK && (name = names(user, at, &bytes)) != NULL; at++) {
        for (int32_t i = 0; status == RESHARD_OK && bytes < SIGN_NAME_MAX && i < count; i++) {
            bool matches = false;
            if (globs[i].found.bytes == NULL)
                status = rs_glob_try(NULL, &globs[i].glob, name, bytes, NULL, &matches);
            if (status == RESHARD_OK && matches)
                globs[i].found = (rs_slice){name, bytes};
        }
    }
    rs_arena_release(&arena);
    return status;
}

/* How many globs a list has; it ends with NULL, unless it is full. */
static int32_t count_globs(const char *const *globs, int32_t count)
{
    int32_t i = 0;
    while (i < count && globs[i] != NULL)
        i++;
    return i;
}

/* Appends globs to those that are sought. Returns their number. */
static int32_t seek(const char *const *globs, int32_t count, sought *out_globs)
{
    count = count_globs(globs, count);
    for (int32_t i = 0; i < count; i++)
        out_globs[i] = (sought){.text = globs[i]};
    return count;
}

reshard_status rs_naming_match(const char *const *globs, int32_t count, rs_tensor_name_fn names,
                               void *user, const char **out_name, size_t *out_bytes)
{
    sought list[RS_NAMING_SIGNS_MAX];
    assert(count <= RS_NAMING_SIGNS_MAX);
    int32_t found = seek(globs, count, list);
    reshard_status status = match_globs(list, found, names, user);
    *out_name = NULL;
    *out_bytes = 0;
    for (int32_t i = found - 1; status == RESHARD_OK && i >= 0; i--) {
        *out_name = list[i].found.bytes != NULL ? list[i].found.bytes : *out_name;
        *out_bytes = list[i].found.bytes != NULL ? list[i].found.count : *out_bytes;
    }
    return status;
}

/* Is there a map between hf and the naming for this type of model? */
static bool has_map(const rs_naming *naming, const char *model_type)
{
    const rs_shipped_map *map = NULL;
    return model_type != NULL && rs_shipped_map_choose(naming, model_type, &map) == RESHARD_OK;
}

/* Does a checkpoint have the naming that files beside it speak for? */
static reshard_status match_dialect(rs_tensor_name_fn names, void *user, const char *dialect,
                                    const rs_naming **out_naming)
{
    const rs_naming *naming = dialect != NULL ? rs_naming_named(dialect) : NULL;
    const char *sign = NULL;
    size_t bytes;
    if (naming == NULL)
        return RESHARD_OK;
    reshard_status status =
        rs_naming_match(naming->shared, RS_NAMING_SIGNS_MAX, names, user, &sign, &bytes);
    *out_naming = sign != NULL ? naming : NULL;
    return status;
}

static bool is_any_found(const sought *globs, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        if (globs[i].found.bytes != NULL)
            return true;
    }
    return false;
}

/* Finds the first naming of the table whose signs are there; *out_naming stays NULL if there is
 * none. */
static reshard_status match_signs(rs_tensor_name_fn names, void *user, const char *model_type,
                                  const rs_naming **out_naming)
{
    sought globs[NAMINGS_MAX * 2 * RS_NAMING_SIGNS_MAX];
    int32_t count = 0, at = 0;
    for (const rs_naming *naming = rs_namings; naming->name != NULL; naming++) {
        assert(naming - rs_namings < NAMINGS_MAX);
        count += seek(naming->signs, RS_NAMING_SIGNS_MAX, globs + count);
        count += seek(naming->others, RS_NAMING_SIGNS_MAX, globs + count);
    }
    reshard_status status = match_globs(globs, count, names, user);
    for (const rs_naming *naming = rs_namings; status == RESHARD_OK && naming->name != NULL;
         naming++) {
        int32_t signs = count_globs(naming->signs, RS_NAMING_SIGNS_MAX);
        int32_t others = count_globs(naming->others, RS_NAMING_SIGNS_MAX);
        bool is_like = is_any_found(globs + at, signs) && !is_any_found(globs + at + signs, others);
        at += signs + others;
        if (is_like && (!naming->is_by_type || has_map(naming, model_type))) {
            *out_naming = naming;
            break;
        }
    }
    return status;
}

reshard_status rs_naming_recognise(rs_tensor_name_fn names, void *user, const char *model_type,
                                   const char *dialect, const rs_naming **out_naming)
{
    rs_rules_choice family;
    *out_naming = NULL;
    reshard_status status = match_dialect(names, user, dialect, out_naming);
    if (status == RESHARD_OK && *out_naming == NULL)
        status = match_signs(names, user, model_type, out_naming);
    if (status != RESHARD_OK || *out_naming != NULL)
        return status;
    if (model_type == NULL && rs_rules_detect(NULL, NULL, names, user, &family) != RESHARD_OK)
        return rs_fail(RESHARD_ERR_NOT_FOUND,
                       "the names of the tensors belong to no known naming, and no config.json "
                       "names a model_type; give a config.json, or a map of your own");
    *out_naming = rs_naming_hf();
    return RESHARD_OK;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static const char *stored_name(void *user, int64_t index, size_t *out_bytes)
{
    const reshard_checkpoint *checkpoint = user;
    if (index >= checkpoint->tensor_count)
        return NULL;
    *out_bytes = checkpoint->tensors[index].name.count;
    return checkpoint->tensors[index].name.bytes;
}

reshard_status rs_naming_dialect(const reshard_checkpoint *checkpoint, const rs_config *config,
                                 const char **out_dialect)
{
    rs_config beside;
    *out_dialect = config->dialect;
    if (*out_dialect != NULL || checkpoint->folder == NULL)
        return RESHARD_OK;
    /* config.json was taken from elsewhere, but params.json may be where the weights are. */
    reshard_status status =
        rs_config_init(&beside, checkpoint->context,
                       checkpoint->base != NULL ? checkpoint->folder : NULL, 0, NULL);
    *out_dialect = beside.dialect;
    if (*out_dialect == NULL && strcmp(checkpoint->format, "consolidated") == 0)
        *out_dialect = "meta";
    rs_config_release(&beside);
    return status == RESHARD_ERR_SYNTAX ? RESHARD_OK : status;
}

static reshard_status recognise(const reshard_checkpoint *checkpoint, rs_config *config,
                                const rs_naming **out_naming)
{
    reshard_status status = rs_config_init_for(config, checkpoint, 0, NULL);
    const char *dialect = NULL;
    /* One that is not valid JSON names nothing. */
    if (status == RESHARD_OK || status == RESHARD_ERR_SYNTAX)
        status = rs_naming_dialect(checkpoint, config, &dialect);
    if (status == RESHARD_OK)
        status = rs_naming_recognise(stored_name, (void *)checkpoint, config->model_type, dialect,
                                     out_naming);
    return status;
}

reshard_status reshard_checkpoint_naming(const reshard_checkpoint *checkpoint,
                                         const char **out_naming)
{
    rs_config config;
    const rs_naming *naming = NULL;
    reshard_status status = recognise(checkpoint, &config, &naming);
    rs_config_release(&config);
    if (status == RESHARD_OK)
        *out_naming = naming->name;
    return status;
}

reshard_status reshard_checkpoint_find_map(const reshard_checkpoint *checkpoint, const char *naming,
                                           reshard_naming_map *out_map)
{
    rs_config config;
    const rs_naming *found = NULL;
    const rs_shipped_map *map = NULL;
    reshard_status status = rs_naming_find(naming, &found);
    if (status != RESHARD_OK)
        return status;
    status = rs_config_init_for(&config, checkpoint, 0, NULL);
    if (status == RESHARD_OK)
        status = rs_shipped_map_choose(found, config.model_type, &map);
    rs_config_release(&config);
    return status == RESHARD_OK ? reshard_naming_map_find(map->name, out_map) : status;
}
