/* SPDX-License-Identifier: Apache-2.0 */
/* donor.c - opens the file that a format follows, and compares what kinds of models both are. */
#include "checkpoint/convert/donor.h"

#include "base/error.h"
#include "checkpoint/namings/namings.h"
#include "checkpoint/rules/config.h"

#include <string.h>

reshard_status rs_donor_open(rs_donor *donor, const rs_target *target,
                             reshard_conversion_options *options)
{
    const char *format = target->format->name;
    if (options->like == NULL)
        return rs_fail_hint(
            RESHARD_ERR_INVALID, RESHARD_HINT_LIKE, "",
            "the format %s needs a file of the same model to follow: its tokenizer, "
            "its other key-values, and the names and order of tensors are taken "
            "from there, because a checkpoint does not hold them",
            format);
    if (options->dtype_count > 1 ||
        (options->dtype_count == 1 && strchr(options->dtypes[0], '=') != NULL))
        return rs_fail(RESHARD_ERR_INVALID,
                       "dtype \"%.200s\": the format %s takes one dtype for all tensors",
                       options->dtypes[options->dtype_count - 1], format);
    donor->type = options->dtype_count == 1 ? options->dtypes[0] : NULL;
    options->dtype_count = 0;
    /* Types that cannot be read do not matter: its numbers are not read. */
    const reshard_checkpoint_options opening = {.size = sizeof opening, .unreadable = 1};
    reshard_status status =
        reshard_checkpoint_open(target->context, options->like, &opening, &donor->checkpoint);
    if (status == RESHARD_OK && strcmp(donor->checkpoint->format, format) != 0)
        status = rs_fail_about(RESHARD_ERR_INVALID, options->like,
                               "is of the format %s, and a file to follow has to be of %s",
                               donor->checkpoint->format, format);
    return status;
}

/* The map by which a kind of model is written; NULL: there is none. */
static const rs_shipped_map *find_map(const rs_naming *naming, const char *model_type)
{
    const rs_shipped_map *map = NULL;
    return model_type != NULL && rs_shipped_map_choose(naming, model_type, &map) == RESHARD_OK
               ? map
               : NULL;
}

reshard_status rs_donor_check(const rs_donor *donor, const rs_target *target)
{
    const rs_naming *naming = rs_naming_named(target->format->name);
    rs_config config, theirs;
    reshard_status status = rs_config_init_for(&theirs, donor->checkpoint, 0, NULL);
    reshard_status read = rs_config_init_for(&config, target->source, 0, NULL);
    status = status == RESHARD_OK ? read : status;
    if (status == RESHARD_OK && naming != NULL) {
        const rs_shipped_map *ours = find_map(naming, config.model_type);
        const rs_shipped_map *wanted = find_map(naming, theirs.model_type);
        if (ours != NULL && wanted != NULL && ours != wanted)
            status = rs_fail_about(RESHARD_ERR_MISMATCH, donor->checkpoint->path,
                                   "holds a model of type \"%.60s\", and \"%.60s\" is to be "
                                   "written; their tensors are arranged otherwise",
                                   theirs.model_type, config.model_type);
    }
    rs_config_release(&config);
    rs_config_release(&theirs);
    return status;
}
