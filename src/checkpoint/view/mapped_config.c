/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapped_config.c - compares config.json with what the source's own files say of the model: the
 * key-values of GGUF, the arguments of Megatron, params.json. Maps order the rows of attention by
 * the number of heads, and no shape shows it: a config.json of another model of the same size would
 * make a model that loads, and computes something else.
 */
#include "base/error.h"
#include "checkpoint/view/mapped.h"

#include <stdlib.h>

/* The map by which a kind of model is written; NULL: there is none. */
static const rs_shipped_map *find_map(const rs_naming *naming, const char *model_type)
{
    const rs_shipped_map *map = NULL;
    return model_type != NULL && rs_shipped_map_choose(naming, model_type, &map) == RESHARD_OK
               ? map
               : NULL;
}

bool rs_mapped_same_map(const rs_naming *naming, const char *one_type, const char *other_type)
{
    const rs_shipped_map *one = find_map(naming, one_type), *other = find_map(naming, other_type);
    return one == NULL || other == NULL || one == other;
}

static reshard_status compare_numbers(const reshard_checkpoint *source, rs_config *own,
                                      const rs_config *config)
{
    static const char *const keys[] = {"num_attention_heads", "num_key_value_heads"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *told = rs_config_find_json(config, keys[i]);
        int64_t number = 0;
        if (told == NULL || !rs_config_find(own, keys[i], &number) || atoll(told) == number)
            continue;
        return rs_fail_about(RESHARD_ERR_MISMATCH, source->path,
                             "its files say that %s is %lld, but config.json that it is %s; rows "
                             "would get another order: correct config.json, or give another one",
                             keys[i], (long long)number, told);
    }
    return RESHARD_OK;
}

reshard_status rs_mapped_compare_config(const reshard_checkpoint *source, const rs_config *config)
{
    rs_config own;
    if (!config->has_file)
        return RESHARD_OK;
    reshard_status status = rs_config_init_own(&own, source);
    if (status == RESHARD_OK)
        status = compare_numbers(source, &own, config);
    /* params.json names no type, so that there are several it may mean. */
    const rs_naming *naming = own.dialect == NULL ? rs_naming_named(source->format) : NULL;
    if (status == RESHARD_OK && naming != NULL &&
        !rs_mapped_same_map(naming, own.model_type, config->model_type))
        status = rs_fail_about(RESHARD_ERR_MISMATCH, source->path,
                               "holds a model of type \"%.60s\" by its files, but \"%.60s\" by "
                               "config.json; their tensors are arranged otherwise",
                               own.model_type, config->model_type);
    rs_config_release(&own);
    return status;
}
