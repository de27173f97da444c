/* SPDX-License-Identifier: Apache-2.0 */
/*
 * donor.c - opens the file that a format follows, and compares what kinds of models both are. Its
 * key-values are taken over, so where config.json has the same numbers they must be the same: a
 * model with other heads has tensors of the same shapes, and computes something else.
 */
#include "checkpoint/convert/target_make.h"

#include "base/error.h"
#include "checkpoint/rules/config.h"
#include "checkpoint/view/mapped.h"

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
                       "dtype \"%.200s\": the format %s takes a single dtype for all tensors; give "
                       "it without a pattern",
                       options->dtypes[options->dtype_count - 1], format);
    donor->type = options->dtype_count == 1 ? options->dtypes[0] : NULL;
    options->dtype_count = 0;
    /* Types that cannot be read do not matter: its numbers are not read. */
    const reshard_checkpoint_options opening = {.size = sizeof opening, .unreadable = 1};
    reshard_status status =
        reshard_checkpoint_open(target->context, options->like, &opening, &donor->checkpoint);
    if (status == RESHARD_OK && strcmp(donor->checkpoint->format, format) != 0)
        status = rs_fail_about(RESHARD_ERR_INVALID, options->like,
                               "has the format %s; the file to follow must have the format %s",
                               donor->checkpoint->format, format);
    return status;
}

static reshard_status compare_numbers(const char *path, const rs_config *theirs,
                                      const rs_config *ours)
{
    rs_config_clash clash;
    if (!rs_config_contradicts(theirs, ours, RS_CONFIG_ALL, &clash))
        return RESHARD_OK;
    return rs_fail_about(RESHARD_ERR_MISMATCH, path,
                         "by its key-values %s is %s, but by config.json of the model that is to "
                         "be written it is %s; follow a file of the same model",
                         clash.key, clash.one, clash.other);
}

reshard_status rs_donor_check(const rs_donor *donor, const rs_target *target)
{
    const rs_naming *naming = rs_naming_named(target->format->name);
    rs_config config, theirs;
    reshard_status status = rs_config_init_for(&theirs, donor->checkpoint, 0, NULL);
    reshard_status read = rs_config_init_for(&config, target->source, 0, NULL);
    status = status == RESHARD_OK ? read : status;
    if (status == RESHARD_OK && naming != NULL) {
        if (!rs_mapped_same_map(naming, config.model_type, theirs.model_type))
            status = rs_fail_about(
                RESHARD_ERR_MISMATCH, donor->checkpoint->path,
                "holds a model of type \"%.60s\", but \"%.60s\" would be written, which is "
                "arranged or computed differently; follow a file of the same type",
                theirs.model_type, config.model_type);
        if (status == RESHARD_OK)
            status = compare_numbers(donor->checkpoint->path, &theirs, &config);
    }
    rs_config_release(&config);
    rs_config_release(&theirs);
    return status;
}
