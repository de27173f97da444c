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

#include <stdlib.h>
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

/* Numbers that shapes do not show, or not by themselves. How many tokens a model may see is not
 * among them: files differ in it on purpose. */
static const char *const compared[] = {
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rope_theta",
    "rms_norm_eps",
    "num_experts_per_tok",
    "attn_logit_softcapping",
    "routed_scaling_factor",
    "first_k_dense_replace",
    "final_logit_softcapping",
    "attention_multiplier",
    "embedding_multiplier",
    "residual_multiplier",
    "logits_scaling",
    "qk_rope_head_dim",
    "v_head_dim",
};

/* Reads a number, as precisely as key-values have it. */
static bool read_number(const rs_config *config, const char *key, float *out_number)
{
    const char *text = rs_config_find_json(config, key);
    char *end = NULL;
    if (text == NULL)
        return false;
    *out_number = (float)strtod(text, &end);
    return end != text && *end == '\0';
}

static reshard_status compare_numbers(const char *path, const rs_config *theirs,
                                      const rs_config *ours)
{
    for (size_t i = 0; i < sizeof compared / sizeof *compared; i++) {
        float wanted = 0, found = 0;
        if (!read_number(theirs, compared[i], &wanted) || !read_number(ours, compared[i], &found) ||
            wanted == found)
            continue;
        return rs_fail_about(RESHARD_ERR_MISMATCH, path,
                             "by its key-values %s is %s, but by config.json of the model that is "
                             "to be written it is %s; follow a file of the same model",
                             compared[i], rs_config_find_json(theirs, compared[i]),
                             rs_config_find_json(ours, compared[i]));
    }
    return RESHARD_OK;
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
