/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapped_config.c - compares config.json with what the source says of the model itself: the
 * key-values of GGUF, the arguments of Megatron, params.json, what reshard noted when it wrote the
 * files, and a config.json of its own if the caller gave another one. Maps order the rows of
 * attention by the number of heads, and no shape shows it: a config.json of another model of the
 * same size would make a model that loads, and computes something else.
 */
#include "base/error.h"
#include "checkpoint/view/mapped.h"

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

/* Another description of the model, beside the configuration that is used. */
typedef struct description {
    rs_config config;
    const char *said;    /* "its files say" */
    unsigned forgivable; /* kinds of numbers that may differ, with a warning */
} description;

static reshard_status compare_numbers(rs_mapped_order *order, const char *path,
                                      const description *own, const rs_config *config)
{
    rs_config_clash clash;
    if (rs_config_contradicts(&own->config, config, RS_CONFIG_ALL & ~own->forgivable, &clash))
        return rs_fail_about(
            RESHARD_ERR_MISMATCH, path,
            "%s that %s is %s, but config.json that it is %s; %s: correct config.json, or give "
            "another one",
            own->said, clash.key, clash.one, clash.other,
            clash.kind == RS_CONFIG_ORDER ? "rows would get another order"
                                          : "the model would compute something else");
    if (rs_config_contradicts(&own->config, config, own->forgivable, &clash))
        return rs_mapped_warn(order,
                              "%s that %s is %s, but config.json that it is %s; programs that load "
                              "the output compute with the latter",
                              own->said, clash.key, clash.one, clash.other);
    return RESHARD_OK;
}

static reshard_status compare_with(rs_mapped_order *order, const reshard_checkpoint *source,
                                   const description *own, const rs_config *config)
{
    /* params.json names no type, so that there are several it may mean. */
    const rs_naming *naming = own->config.dialect == NULL ? rs_naming_named(source->format) : NULL;
    reshard_status status = compare_numbers(order, source->path, own, config);
    if (status == RESHARD_OK && naming != NULL &&
        !rs_mapped_same_map(naming, own->config.model_type, config->model_type))
        status = rs_fail_about(RESHARD_ERR_MISMATCH, source->path,
                               "%s that the model is of type \"%.60s\", but config.json that it is "
                               "\"%.60s\"; their tensors are arranged otherwise",
                               own->said, own->config.model_type, config->model_type);
    return status;
}

/* Reads the config.json that the source has, if the caller gave another one instead. One that is
 * not valid is a reason to give another one. */
static reshard_status read_replaced(const reshard_checkpoint *source, rs_config *out_config)
{
    const char *folder = source->above != NULL ? source->above : source->folder;
    bool is_replaced = source->base != NULL && source->base != source->above;
    reshard_status status =
        rs_config_init(out_config, source->context, is_replaced ? folder : NULL, 0, NULL);
    return status == RESHARD_ERR_SYNTAX ? RESHARD_OK : status;
}

reshard_status rs_mapped_compare_config(rs_mapped_order *order, const reshard_checkpoint *source,
                                        const rs_config *config)
{
    if (!config->has_file)
        return RESHARD_OK;
    /* Arguments of converters, for one, are not always those of the model. */
    description own = {.said = "its files say",
                       .forgivable = source->record == NULL ? RS_CONFIG_VALUES : 0};
    reshard_status status = rs_config_init_own(&own.config, source);
    if (status == RESHARD_OK)
        status = compare_with(order, source, &own, config);
    rs_config_release(&own.config);
    if (status != RESHARD_OK)
        return status;
    own = (description){.said = "its own config.json says"};
    status = read_replaced(source, &own.config);
    if (status == RESHARD_OK)
        status = compare_with(order, source, &own, config);
    rs_config_release(&own.config);
    return status;
}
