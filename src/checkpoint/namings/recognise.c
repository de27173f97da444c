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

#include <string.h>

#define SIGN_NAME_MAX 1000 /* longest name, in bytes, that is compared with signs */

static reshard_status match_glob(const char *glob, rs_tensor_name_fn names, void *user,
                                 const char **out_name, size_t *out_bytes)
{
    rs_arena arena;
    rs_glob compiled;
    bool matches = false;
    size_t bytes = 0;
    const char *name;
    rs_arena_init(&arena, NULL);
    reshard_status status = rs_glob_compile(&arena, glob, strlen(glob), &compiled);
    for (int64_t i = 0; status == RESHARD_OK && !matches && (name = names(user, i, &bytes)) != NULL;
         i++) {
        if (bytes < SIGN_NAME_MAX)
            status = rs_glob_try(NULL, &compiled, name, bytes, NULL, &matches);
        if (status == RESHARD_OK && matches) {
            *out_name = name;
            *out_bytes = bytes;
        }
    }
    rs_arena_release(&arena);
    return status;
}

reshard_status rs_naming_match(const char *const *globs, int32_t count, rs_tensor_name_fn names,
                               void *user, const char **out_name, size_t *out_bytes)
{
    reshard_status status = RESHARD_OK;
    *out_name = NULL;
    *out_bytes = 0;
    for (int32_t i = 0; i < count && globs[i] != NULL && status == RESHARD_OK && *out_name == NULL;
         i++)
        status = match_glob(globs[i], names, user, out_name, out_bytes);
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

reshard_status rs_naming_recognise(rs_tensor_name_fn names, void *user, const char *model_type,
                                   const char *dialect, const rs_naming **out_naming)
{
    rs_rules_choice family;
    *out_naming = NULL;
    reshard_status told = match_dialect(names, user, dialect, out_naming);
    if (told != RESHARD_OK || *out_naming != NULL)
        return told;
    for (const rs_naming *naming = rs_namings; naming->name != NULL; naming++) {
        const char *sign, *other = NULL;
        size_t bytes;
        reshard_status status =
            rs_naming_match(naming->signs, RS_NAMING_SIGNS_MAX, names, user, &sign, &bytes);
        if (status == RESHARD_OK && sign != NULL)
            status =
                rs_naming_match(naming->others, RS_NAMING_SIGNS_MAX, names, user, &other, &bytes);
        if (status != RESHARD_OK)
            return status;
        bool is_like = sign != NULL && other == NULL;
        if (is_like && (!naming->is_by_type || has_map(naming, model_type))) {
            *out_naming = naming;
            return RESHARD_OK;
        }
    }
    if (model_type == NULL && rs_rules_detect(NULL, NULL, names, user, &family) != RESHARD_OK)
        return rs_fail(RESHARD_ERR_NOT_FOUND,
                       "the names of the tensors are of no naming that is known, and no "
                       "config.json names a model_type; a map of one's own can tell what they are");
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
