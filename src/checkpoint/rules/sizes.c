/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sizes.c - asks the rule of each tensor what config.json says about its shape. If the rules that
 * cut it do not say, those of the model's family do: fsdp.rules, for one, know nothing about
 * models.
 */
#include "checkpoint/rules/sizes.h"

#include "base/context.h"
#include "base/dtype.h"
#include "checkpoint/rules/find.h"
#include "text/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct comparing {
    const reshard_checkpoint *checkpoint;
    rs_rules_keys keys;
    reshard_mesh *mesh; /* of one rank: whole tensors have no axes */
    rs_sizes *sizes;
} comparing;

static bool is_lack_of_memory(reshard_status status)
{
    return status == RESHARD_ERR_NO_MEMORY || status == RESHARD_ERR_MEMORY_LIMIT;
}

/* Codes may be packed, several to an element. */
static bool has_own_shape(const rs_stored_tensor *tensor)
{
    return !tensor->opaque &&
           (rs_dtype_is_float(tensor->dtype) || tensor->dtype == RESHARD_F8_E4M3 ||
            tensor->dtype == RESHARD_F8_E5M2);
}

static void keep_first(rs_sizes *sizes, const rs_stored_tensor *tensor, const rs_rule *rule,
                       int32_t dim, const char *least, int64_t wanted, rs_slice number)
{
    char shape[160];
    rs_text text;
    rs_text_init(&text, shape, sizeof shape);
    rs_text_add_shape(&text, tensor->ndim, tensor->shape);
    (void)snprintf(sizes->first, sizeof sizes->first,
                   "tensor \"%.*s\" is %s, but config.json says that its dimension %" PRId32
                   " is %s%" PRId64 " (%.*s, " RS_RULE_PLACE ")",
                   RS_SHOWN(tensor->name), shape, dim, least, wanted, RS_SHOWN(number),
                   RS_RULE_PLACE_OF(rule));
}

/* Compares one dimension. exact: it has that many elements; otherwise at least as many, because
 * padding may follow. */
static reshard_status compare_dim(const comparing *c, const rs_rule_finding *found,
                                  const rs_stored_tensor *tensor, int32_t dim, rs_slice number,
                                  bool exact, bool *compared, bool *wrong)
{
    rs_number_scope scope = rs_rule_scope(found, found->rule, found->spans);
    rs_cursor cursor = {number.bytes, number.bytes + number.count};
    int64_t wanted = 0;
    dim = dim < 0 ? dim + tensor->ndim : dim;
    if (dim < 0 || dim >= tensor->ndim || number.count == 0)
        return RESHARD_OK;
    reshard_status status = rs_number_read(&scope, &cursor, &wanted);
    /* What cannot be computed from config.json cannot be compared. */
    if (status != RESHARD_OK)
        return is_lack_of_memory(status) ? status : RESHARD_OK;
    *compared = true;
    if (exact ? tensor->shape[dim] == wanted : tensor->shape[dim] >= wanted)
        return RESHARD_OK;
    if (!*wrong && c->sizes->wrong == 0)
        keep_first(c->sizes, tensor, found->rule, dim, exact ? "" : "at least ", wanted, number);
    *wrong = true;
    return RESHARD_OK;
}

static reshard_status compare_tensor(const comparing *c, const rs_rules *rules,
                                     const rs_stored_tensor *tensor, bool *out_compared)
{
    rs_rule_finding found = rs_rule_finding_of(rules, c->mesh, &c->keys, tensor->name.bytes,
                                               tensor->name.count, tensor->ndim, tensor->shape);
    bool wrong = false;
    reshard_status status = rs_rule_match(&found);
    *out_compared = false;
    /* A tensor without a rule is not compared. If it needs one, others say so. */
    if (status != RESHARD_OK)
        return is_lack_of_memory(status) ? status : RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK && i < found.rule->size_count; i++)
        status = compare_dim(c, &found, tensor, found.rule->sizes[i].dim,
                             found.rule->sizes[i].number, true, out_compared, &wrong);
    for (int32_t i = 0; status == RESHARD_OK && i < found.rule->pad_count; i++)
        status = compare_dim(c, &found, tensor, found.rule->pads[i].dim,
                             found.rule->pads[i].true_size, false, out_compared, &wrong);
    c->sizes->compared += *out_compared;
    c->sizes->wrong += wrong;
    return status;
}

static reshard_status tell_dim(const rs_rule_finding *found, int32_t dim, rs_slice number,
                               bool is_least, rs_size_told *told)
{
    rs_number_scope scope = rs_rule_scope(found, found->rule, found->spans);
    rs_cursor cursor = {number.bytes, number.bytes + number.count};
    int64_t size = 0;
    dim = dim < 0 ? dim + found->ndim : dim;
    if (dim < 0 || dim >= found->ndim || number.count == 0)
        return RESHARD_OK;
    reshard_status status = rs_number_read(&scope, &cursor, &size);
    if (status == RESHARD_OK)
        told[dim] = (rs_size_told){.is_known = true, .is_least = is_least, .size = size};
    return is_lack_of_memory(status) ? status : RESHARD_OK;
}

reshard_status rs_sizes_tell(const rs_rules *rules, reshard_mesh *mesh, const rs_rules_keys *keys,
                             rs_slice name, int32_t ndim, rs_size_told out_told[RESHARD_NDIM_MAX])
{
    rs_rule_finding found =
        rs_rule_finding_of(rules, mesh, keys, name.bytes, name.count, ndim, NULL);
    reshard_status status = rs_rule_match(&found);
    memset(out_told, 0, RESHARD_NDIM_MAX * sizeof *out_told);
    if (status != RESHARD_OK)
        return is_lack_of_memory(status) ? status : RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK && i < found.rule->pad_count; i++)
        status = tell_dim(&found, found.rule->pads[i].dim, found.rule->pads[i].true_size, true,
                          out_told);
    for (int32_t i = 0; status == RESHARD_OK && i < found.rule->size_count; i++)
        status = tell_dim(&found, found.rule->sizes[i].dim, found.rule->sizes[i].number, false,
                          out_told);
    return status;
}

static const char *tensor_name(void *user, int64_t index, size_t *out_bytes)
{
    const reshard_checkpoint *checkpoint = user;
    if (index >= checkpoint->tensor_count)
        return NULL;
    *out_bytes = checkpoint->tensors[index].name.count;
    return checkpoint->tensors[index].name.bytes;
}

/* The rules of the model's family; *out_rules stays NULL if it is of none. */
static reshard_status find_family(const reshard_checkpoint *checkpoint, const rs_config *config,
                                  rs_rules **out_rules)
{
    void *user = (void *)checkpoint; /* only read */
    rs_rules_choice choice = {.family = NULL};
    reshard_status status = rs_rules_detect(NULL, config->model_type, tensor_name, user, &choice);
    if (status != RESHARD_OK)
        return status == RESHARD_ERR_NOT_FOUND ? RESHARD_OK : status;
    status = rs_rules_builtin(checkpoint->context, choice.family, out_rules);
    return status == RESHARD_OK ? rs_rules_bind(*out_rules, tensor_name, user) : status;
}

reshard_status rs_sizes_compare(const reshard_checkpoint *checkpoint, rs_config *config,
                                const rs_rules *own, rs_sizes *out_sizes)
{
    comparing c = {.checkpoint = checkpoint,
                   .keys = {rs_config_find, config, rs_config_find_text},
                   .sizes = out_sizes};
    rs_rules *family = NULL;
    *out_sizes = (rs_sizes){.compared = 0};
    if (config->count == 0)
        return RESHARD_OK;
    reshard_status status = reshard_mesh_parse(checkpoint->context, "1", &c.mesh);
    if (status == RESHARD_OK)
        status = find_family(checkpoint, config, &family);
    for (int64_t i = 0; status == RESHARD_OK && i < checkpoint->tensor_count; i++) {
        const rs_stored_tensor *tensor = &checkpoint->tensors[i];
        bool compared = false;
        if (!has_own_shape(tensor))
            continue;
        if (own != NULL)
            status = compare_tensor(&c, own, tensor, &compared);
        if (status == RESHARD_OK && !compared && family != NULL)
            status = compare_tensor(&c, family, tensor, &compared);
    }
    rs_rules_destroy(family);
    reshard_mesh_release(c.mesh);
    return status;
}
