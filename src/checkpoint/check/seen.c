/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seen.c - lets a comparison see A as B is named. With a map or a naming among the options, A is
 * taken as a conversion by it would leave it. Without one, names are compared first; if each side
 * has names that the other lacks, and both namings are known, the shipped maps between them are
 * tried, and if these do not fit, a note says why, and the names stay as they are.
 */
#include "base/context.h"
#include "checkpoint/check/comparison.h"

#include <reshard/model_rules.h>

#include <stdio.h>

static reshard_status add_note(reshard_comparison *comparison, const char *format, ...)
    RS_PRINTF(2, 3);

static reshard_status add_note(reshard_comparison *comparison, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    reshard_status status = rs_notes_add(&comparison->notes, &comparison->arena, format, arguments);
    va_end(arguments);
    return status;
}

/* Keeps what was said about a map: first the namings, then what it leaves out. */
static reshard_status keep_notes(reshard_comparison *comparison, const char *naming,
                                 const rs_notes *lines, const rs_notes *warnings)
{
    reshard_status status = RESHARD_OK;
    if (naming != NULL)
        status = add_note(comparison, "names: %s", naming);
    for (int64_t i = 0; status == RESHARD_OK && rs_notes_at(lines, i) != NULL; i++)
        status = add_note(comparison, "%s", rs_notes_at(lines, i));
    for (int64_t i = 0; status == RESHARD_OK && rs_notes_at(warnings, i) != NULL; i++)
        status = add_note(comparison, "%s", rs_notes_at(warnings, i));
    return status;
}

/* Puts what the map makes in the place of A, and pairs that. The map has done what options do to
 * single tensors. */
static reshard_status match_mapped(reshard_comparison *comparison,
                                   const reshard_conversion_options *options, bool ignore_dropped)
{
    const reshard_conversion_options others = {
        .size = sizeof others, .all = 1, .set_count = options->set_count, .sets = options->sets};
    comparison->a = &comparison->mapped->made;
    return rs_comparison_match(comparison, &others, ignore_dropped);
}

/* Makes the tensors of the map that the options name. *out_is_seen is false if A has these names
 * already. */
static reshard_status see(reshard_comparison *comparison, const reshard_conversion_options *options,
                          bool *out_is_seen)
{
    const rs_naming *naming = options->as != NULL ? rs_naming_named(options->as) : NULL;
    const rs_mapped *mapped = NULL;
    rs_notes lines = {NULL, NULL}, warnings = {NULL, NULL};
    rs_config config;
    rs_mapped_order order = {.context = comparison->context,
                             .arena = &comparison->arena,
                             .lines = &lines,
                             .warnings = &warnings,
                             .takes_model = rs_mapped_takes_model(naming),
                             .verb = "compared",
                             .does = "makes"};
    reshard_status status =
        rs_mapped_create(&order, comparison->opened, options, naming, &config, &mapped);
    rs_config_release(&config);
    *out_is_seen = mapped != NULL;
    if (status == RESHARD_OK && mapped == NULL && options->dequantize != RESHARD_DTYPE_NONE)
        status = rs_fail_about(RESHARD_ERR_UNSUPPORTED, comparison->opened->path,
                               "already has the names of %s, and dequantised weights can only be "
                               "compared through a map",
                               options->as);
    if (status == RESHARD_OK && mapped != NULL)
        status = keep_notes(comparison, order.naming, &lines, &warnings);
    comparison->mapped = mapped;
    return status;
}

/* Does each side have names that the other lacks? */
static bool differ_in_names(const reshard_comparison *comparison)
{
    bool has[2] = {false, false};
    for (int64_t i = 0; i < comparison->count; i++) {
        has[0] = has[0] || comparison->items[i].kind == RESHARD_DIFFERENCE_ONLY_IN_A;
        has[1] = has[1] || comparison->items[i].kind == RESHARD_DIFFERENCE_ONLY_IN_B;
    }
    return has[0] && has[1];
}

static bool is_about_names(reshard_status status)
{
    return status != RESHARD_ERR_NO_MEMORY && status != RESHARD_ERR_MEMORY_LIMIT &&
           status != RESHARD_ERR_IO && status != RESHARD_ERR_CANCELLED;
}

/* Tries the maps from A's naming to B's. */
static reshard_status see_as_b(reshard_comparison *comparison,
                               const reshard_conversion_options *options, bool *out_is_seen)
{
    reshard_conversion_options mapping = *options;
    const char *own = NULL;
    *out_is_seen = false;
    reshard_status status = reshard_checkpoint_naming(comparison->b, &mapping.as);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_naming(comparison->opened, &own);
    if (status == RESHARD_ERR_NOT_FOUND)
        return RESHARD_OK;
    if (status == RESHARD_OK)
        status = see(comparison, &mapping, out_is_seen);
    if (status == RESHARD_OK || !is_about_names(status))
        return status;
    char why[1400];
    (void)snprintf(why, sizeof why, "%s", reshard_error_text());
    return add_note(comparison, "names are compared as they are: no map leads from %s to %s (%s)",
                    own != NULL ? own : "A", mapping.as != NULL ? mapping.as : "B", why);
}

/* Tensors are compared. Formats spell values in ways of their own, so those are counted. */
static reshard_status tell_values(reshard_comparison *comparison)
{
    int64_t a = comparison->a->value_count, b = comparison->b->value_count;
    if (a == 0 && b == 0)
        return RESHARD_OK;
    return add_note(comparison, "values such as steps are not compared: %lld in A, %lld in B",
                    (long long)a, (long long)b);
}

reshard_status rs_comparison_see(reshard_comparison *comparison,
                                 const reshard_conversion_options *options, bool ignore_dropped)
{
    bool is_seen = false;
    bool is_told = options->as != NULL || options->map_file != NULL || options->map_text != NULL;
    reshard_status status = RESHARD_OK;
    if (is_told)
        status = see(comparison, options, &is_seen);
    if (status == RESHARD_OK && !is_seen)
        status = rs_comparison_match(comparison, options, ignore_dropped);
    if (status == RESHARD_OK && !is_told && options->rules == NULL &&
        comparison->a->viewed == NULL && differ_in_names(comparison))
        status = see_as_b(comparison, options, &is_seen);
    if (status == RESHARD_OK && is_seen)
        status = match_mapped(comparison, options, ignore_dropped);
    return status == RESHARD_OK ? tell_values(comparison) : status;
}
