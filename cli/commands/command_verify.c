/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_verify.c - `reshard verify`: is a checkpoint whole, do two hold the same tensors, or is
 * one what a conversion made of the other? The library compares; this file calls it and prints the
 * result.
 */
#include "cli/checkpoint/checkpoint_input.h"
#include "cli/checkpoint/checkpoint_options.h"
#include "cli/checkpoint/verify_stats.h"
#include "cli/commands/commands.h"
#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/json.h"
#include "cli/common/names.h"
#include "cli/common/ranks.h"
#include "cli/common/sizes.h"
#include "cli/common/style.h"
#include "cli/common/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ROWS_MAX = 64, ELEMENT_TEXT = 360 };

/* ---- one checkpoint -------------------------------------------------------------------------- */

static int64_t count_copies(const reshard_checkpoint *checkpoint)
{
    int64_t count = 0;
    for (int64_t i = 0; i < cli_checkpoint_info(checkpoint).tensor_count; i++) {
        reshard_stored_tensor tensor = {.size = sizeof tensor};
        if (reshard_checkpoint_tensor(checkpoint, i, &tensor) == RESHARD_OK)
            count += tensor.copy_count;
    }
    return count;
}

/* digest: "" if not known. */
static void print_whole(const char *path, const reshard_checkpoint *checkpoint, const char *digest)
{
    char size[CLI_SIZE_TEXT];
    int64_t copies = count_copies(checkpoint), count = cli_checkpoint_info(checkpoint).tensor_count;
    int32_t files = cli_checkpoint_info(checkpoint).disk_file_count;
    fputs(cli_style_begin(CLI_BOLD), stdout);
    cli_print_shown(path);
    printf("%s  whole: %" PRId64 " tensor%s, %s in %" PRId32 " file%s", cli_style_end(CLI_BOLD),
           count, count == 1 ? "" : "s", cli_size_text(cli_checkpoint_info(checkpoint).bytes, size),
           files, files == 1 ? "" : "s");
    if (copies != 0)
        printf(", %" PRId64 " cop%s agree%s", copies, copies == 1 ? "y" : "ies",
               copies == 1 ? "s" : "");
    putchar('\n');
    if (digest[0] != '\0')
        printf("  digest %s\n", digest);
}

static void print_whole_json(const cli_digesting *d)
{
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_json_bool(&json, "whole", 1);
    cli_json_integer(&json, "tensors", d->digests->count);
    cli_json_unsigned(&json, "bytes", cli_checkpoint_info(d->checkpoint).bytes);
    cli_json_text(&json, "checkpoint", d->digests->checkpoint);
    cli_json_end_object(&json);
    putchar('\n');
}

static int verify_one(const cli_checkpoint_values *values, cli_work *work)
{
    cli_digesting d = {.work = work,
                       .path = values->paths[0],
                       .opening = values->opening,
                       .options = {.size = sizeof d.options,
                                   .threads = values->comparing.threads,
                                   .check_copies = 1}};
    d.opening.keep_names = 0; /* there is no conversion to rename tensors */
    int code = cli_digesting_run(&d);
    if (code == CLI_DONE && cli_ranks_are_first()) {
        if (values->json)
            print_whole_json(&d);
        else
            print_whole(d.path, d.checkpoint, d.digests->checkpoint);
    }
    cli_digesting_release(&d);
    return code;
}

/* ---- two: comparing -------------------------------------------------------------------------- */

typedef struct verifying {
    const cli_checkpoint_values *values;
    cli_work *work;
    const char *path; /* of the checkpoint that is being opened, or NULL */
    reshard_checkpoint *checkpoints[2];
    reshard_comparison *comparison;
    reshard_comparison_stats stats;
} verifying;

static reshard_status compare_rank(void *user, reshard_group *group)
{
    verifying *v = user;
    const cli_checkpoint_values *values = v->values;
    const reshard_checkpoint_options *openings[2] = {&values->opening, &values->opening_b};
    reshard_status status = RESHARD_OK;
    for (int i = 0; status == RESHARD_OK && i < 2; i++) {
        v->path = values->paths[i];
        cli_failure_is_of_second(i == 1);
        status = cli_checkpoint_open(v->work->context, v->path, openings[i], &v->checkpoints[i]);
        if (group != NULL)
            status = reshard_group_agree(group, status);
    }
    if (status != RESHARD_OK)
        return status;
    v->path = NULL;
    cli_failure_is_of_second(0);
    reshard_comparison_options comparing = values->comparing;
    comparing.conversion = &values->planning;
    comparing.group = group;
    status = reshard_checkpoint_compare(v->checkpoints[0], v->checkpoints[1], &comparing,
                                        &v->comparison);
    v->stats.size = sizeof v->stats;
    return status == RESHARD_OK ? reshard_comparison_get_stats(v->comparison, &v->stats) : status;
}

/* ---- two: printing --------------------------------------------------------------------------- */

static const char *const kind_names[] = {"", "only in A", "only in B", "dtype", "shape", "bytes"};

/* Adds the dtype and shape of a tensor, or nothing if there is no such tensor. */
static void add_tensor(cli_table *table, const reshard_checkpoint *checkpoint, int64_t index)
{
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    char shape[CLI_SHAPE_TEXT];
    if (index < 0 || reshard_checkpoint_tensor(checkpoint, index, &tensor) != RESHARD_OK)
        cli_table_add(table, CLI_PLAIN, "%s", "");
    else
        cli_table_add(table, CLI_PLAIN, "%s %s", reshard_dtype_name(tensor.dtype),
                      cli_shape_text(tensor.ndim, tensor.shape, shape));
}

/* "[2, 7]" */
static int write_index(int32_t ndim, const int64_t *index, char *buffer, int length)
{
    length += snprintf(buffer + length, (size_t)(ELEMENT_TEXT - length), "[");
    for (int32_t d = 0; d < ndim; d++)
        length += snprintf(buffer + length, (size_t)(ELEMENT_TEXT - length), "%s%" PRId64,
                           d == 0 ? "" : ", ", index[d]);
    return length + snprintf(buffer + length, (size_t)(ELEMENT_TEXT - length), "]");
}

/* "[2, 7]: 0.5 and 0.25" */
static void describe_element(const reshard_difference *found, char buffer[ELEMENT_TEXT])
{
    int length = write_index(found->ndim, found->element, buffer, 0);
    (void)snprintf(buffer + length, (size_t)(ELEMENT_TEXT - length), ": %s and %s", found->value_a,
                   found->value_b);
}

/* What a map made A's tensor of: "in A q_proj.weight [2, 7]". False: nothing but its own name. */
static int describe_origin(const reshard_difference *found, char buffer[ELEMENT_TEXT])
{
    char name[CLI_NAME_TEXT];
    int length = snprintf(buffer, ELEMENT_TEXT, "in A: %s",
                          cli_name_text(found->origin, found->origin_bytes, name));
    length = length < ELEMENT_TEXT / 2 ? length : ELEMENT_TEXT / 2;
    if (found->origin_ndim >= 0) {
        (void)snprintf(buffer + length, (size_t)(ELEMENT_TEXT - length), " ");
        (void)write_index(found->origin_ndim, found->origin_element, buffer, length + 1);
    } else if (found->origin_count > 1) {
        (void)snprintf(buffer + length, (size_t)(ELEMENT_TEXT - length), " and %" PRId64 " more",
                       found->origin_count - 1);
    }
    return found->origin_bytes != found->name_bytes ||
           memcmp(found->origin, found->name, found->name_bytes) != 0;
}

static void add_row(cli_table *table, const verifying *v, const reshard_difference *found)
{
    char element[ELEMENT_TEXT] = "", name[CLI_NAME_TEXT], shape[CLI_SHAPE_TEXT];
    cli_table_add(table, CLI_PLAIN, "%s", cli_name_text(found->name, found->name_bytes, name));
    cli_table_add(table, CLI_PLAIN, "%s", kind_names[found->kind]);
    if (found->shape_a != NULL)
        cli_table_add(table, CLI_PLAIN, "%s %s", reshard_dtype_name(found->dtype),
                      cli_shape_text(found->ndim_a, found->shape_a, shape));
    else
        cli_table_add(table, CLI_PLAIN, "%s", "");
    add_tensor(table, v->checkpoints[1], found->b);
    if (found->ndim >= 0)
        describe_element(found, element);
    cli_table_add(table, CLI_PLAIN, "%s", element);
    if (found->origin != NULL && describe_origin(found, element))
        cli_table_add_line(table, CLI_DIM, "  %s", element);
}

static reshard_status print_differences(const verifying *v)
{
    static const char *const titles[] = {"tensor", "differs", "A", "B", "first element"};
    int64_t count = v->stats.difference_count;
    int64_t shown = v->values->all || count < ROWS_MAX ? count : ROWS_MAX;
    reshard_status status = RESHARD_OK;
    cli_table *table = cli_table_create(5);
    for (int i = 0; i < 5; i++) {
        cli_table_add(table, CLI_BOLD, "%s",
                      i < 4 || !v->values->comparing.by_digest ? titles[i] : "");
        cli_table_align(table, i, CLI_LEFT);
    }
    for (int64_t i = 0; status == RESHARD_OK && i < shown; i++) {
        reshard_difference found = {.size = sizeof found};
        status = reshard_comparison_get_difference(v->comparison, i, &found);
        if (status == RESHARD_OK)
            add_row(table, v, &found);
    }
    if (shown < count)
        cli_table_add_line(table, CLI_DIM, "  ... %" PRId64 " more; --all prints them",
                           count - shown);
    if (status == RESHARD_OK)
        cli_table_print(table);
    cli_table_destroy(table);
    return status;
}

static void print_notes(const verifying *v)
{
    const char *line = NULL;
    for (int64_t i = 0; (line = reshard_comparison_note(v->comparison, i)) != NULL; i++)
        printf("%s\n", line);
}

static reshard_status print_text(const verifying *v)
{
    const reshard_comparison_stats *stats = &v->stats;
    int64_t listed = stats->difference_count + stats->tensors_within;
    char size[CLI_SIZE_TEXT];
    print_whole(v->values->paths[0], v->checkpoints[0], stats->digest_a);
    print_whole(v->values->paths[1], v->checkpoints[1], stats->digest_b);
    print_notes(v);
    if (stats->tensors_left_out != 0)
        printf("%" PRId64 " tensor%s of A left out by the options\n", stats->tensors_left_out,
               stats->tensors_left_out == 1 ? "" : "s");
    if (stats->tensors_dropped != 0)
        printf("%" PRId64 " tensor%s only in A, ignored\n", stats->tensors_dropped,
               stats->tensors_dropped == 1 ? "" : "s");
    printf("compared %s: %" PRId64 " tensor%s, %s of B\n",
           v->values->comparing.by_digest ? "by digest" : "byte for byte", stats->tensors_compared,
           stats->tensors_compared == 1 ? "" : "s", cli_size_text(stats->bytes_compared, size));
    cli_verify_print_within(stats, &v->values->tolerances);
    if (stats->difference_count == 0)
        puts(stats->tensors_within == 0 ? "the same tensors"
                                        : "the same tensors, within the tolerance");
    if (listed == 0 || (stats->difference_count == 0 && !v->values->comparing.measure))
        return RESHARD_OK;
    putchar('\n');
    return v->values->comparing.measure
               ? cli_verify_print_stats(v->comparison, v->checkpoints[1], listed,
                                        v->values->all ? listed : ROWS_MAX)
               : print_differences(v);
}

static reshard_status write_names(cli_json *json, const verifying *v, const char *key,
                                  reshard_difference_kind kind)
{
    reshard_status status = RESHARD_OK;
    cli_json_begin_list(json, key);
    for (int64_t i = 0; status == RESHARD_OK && i < v->stats.difference_count; i++) {
        reshard_difference found = {.size = sizeof found};
        status = reshard_comparison_get_difference(v->comparison, i, &found);
        if (status == RESHARD_OK && found.kind == kind)
            cli_json_text_part(json, NULL, found.name, found.name_bytes);
    }
    cli_json_end_list(json);
    return status;
}

/* The first element of each tensor whose bytes differ. */
static reshard_status write_elements(cli_json *json, const verifying *v)
{
    reshard_status status = RESHARD_OK;
    cli_json_begin_list(json, "elements");
    for (int64_t i = 0; status == RESHARD_OK && i < v->stats.difference_count; i++) {
        reshard_difference found = {.size = sizeof found};
        status = reshard_comparison_get_difference(v->comparison, i, &found);
        if (status != RESHARD_OK || found.kind != RESHARD_DIFFERENCE_BYTES || found.ndim < 0)
            continue;
        cli_json_begin_object(json, NULL);
        cli_json_text_part(json, "tensor", found.name, found.name_bytes);
        cli_json_integers(json, "element", found.ndim, found.element);
        if (found.origin != NULL)
            cli_json_text_part(json, "tensor_a", found.origin, found.origin_bytes);
        if (found.origin != NULL && found.origin_ndim >= 0)
            cli_json_integers(json, "element_a", found.origin_ndim, found.origin_element);
        cli_json_text(json, "a", found.value_a);
        cli_json_text(json, "b", found.value_b);
        cli_json_end_object(json);
    }
    cli_json_end_list(json);
    return status;
}

static reshard_status print_json(const verifying *v)
{
    static const char *const keys[] = {"",      "only_in_a", "only_in_b",
                                       "dtype", "shape",     "bytes_differ"};
    const reshard_comparison_stats *stats = &v->stats;
    reshard_status status = RESHARD_OK;
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_json_bool(&json, "same", stats->difference_count == 0);
    cli_json_begin_list(&json, "notes");
    for (int64_t i = 0; reshard_comparison_note(v->comparison, i) != NULL; i++)
        cli_json_text(&json, NULL, reshard_comparison_note(v->comparison, i));
    cli_json_end_list(&json);
    cli_json_text(&json, "compared", v->values->comparing.by_digest ? "digests" : "bytes");
    cli_json_integer(&json, "tensors", cli_checkpoint_info(v->checkpoints[0]).tensor_count);
    cli_json_unsigned(&json, "bytes", cli_checkpoint_info(v->checkpoints[0]).bytes);
    cli_json_integer(&json, "tensors_compared", stats->tensors_compared);
    cli_json_unsigned(&json, "bytes_compared", stats->bytes_compared);
    cli_json_integer(&json, "left_out", stats->tensors_left_out);
    cli_json_integer(&json, "dropped", stats->tensors_dropped);
    if (v->values->comparing.by_digest) {
        cli_json_text(&json, "checkpoint", stats->digest_a);
        cli_json_text(&json, "checkpoint_b", stats->digest_b);
    }
    for (int kind = RESHARD_DIFFERENCE_ONLY_IN_A; kind <= RESHARD_DIFFERENCE_BYTES; kind++) {
        reshard_status now = write_names(&json, v, keys[kind], (reshard_difference_kind)kind);
        status = status == RESHARD_OK ? now : status;
    }
    if (status == RESHARD_OK)
        status = write_elements(&json, v);
    if (status == RESHARD_OK && (v->values->comparing.measure || v->values->tolerances.count != 0))
        status = cli_verify_write_stats(&json, v->comparison,
                                        stats->difference_count + stats->tensors_within);
    cli_json_end_object(&json);
    putchar('\n');
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int report(const verifying *v)
{
    reshard_status status = v->values->json ? print_json(v) : print_text(v);
    fflush(stdout);
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    if (v->stats.difference_count == 0)
        return CLI_DONE;
    return cli_fail(CLI_FAILED, "%s and %s do not hold the same tensors: %" PRId64 " differ%s",
                    v->values->paths[0], v->values->paths[1], v->stats.difference_count,
                    v->stats.difference_count == 1 ? "s" : "");
}

static int verify_two(const cli_checkpoint_values *values, cli_work *work)
{
    verifying v = {.values = values, .work = work};
    if (!cli_ranks_are_first())
        work->watched = 0;
    work->in_bytes = 1;
    int code = cli_ranks_share(compare_rank, &v, &v.path);
    cli_work_settle(work);
    if (code == CLI_DONE && cli_ranks_are_first())
        code = report(&v);
    reshard_comparison_destroy(v.comparison);
    reshard_checkpoint_destroy(v.checkpoints[1]);
    reshard_checkpoint_destroy(v.checkpoints[0]);
    return code;
}

/* What the options say of B: what they say of A, except for its mesh and rules. */
static void set_opening_b(cli_checkpoint_values *values)
{
    reshard_checkpoint_options opening = values->opening;
    const char *rules = values->opening_b.rules;
    opening.from = values->opening_b.from;
    opening.rules = rules != NULL ? rules : values->planning.rules;
    opening.keep_names = 0;
    values->opening_b = opening;
}

static int check_distances(cli_checkpoint_values *values)
{
    reshard_comparison_options *comparing = &values->comparing;
    if (comparing->by_digest && (comparing->measure || values->tolerances.count != 0))
        return cli_fail(CLI_USAGE, "--digest cannot tell how far apart numbers are; leave it out "
                                   "with --stats and --tolerance");
    return cli_tolerance_parse(&values->tolerances, &comparing->tolerance,
                               &comparing->tolerance_l2);
}

static int run(const cli_command *command, int argc, char **argv)
{
    cli_checkpoint_values values = {0};
    cli_work work = {0};
    int code = cli_checkpoint_parse(command, argc, argv, &values);
    if (code == CLI_DONE)
        code = check_distances(&values);
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code != CLI_DONE)
        return code;
    set_opening_b(&values);
    code = values.paths[1] != NULL ? verify_two(&values, &work) : verify_one(&values, &work);
    cli_work_end(&work);
    return code;
}

const cli_command cli_command_verify = {
    .name = "verify",
    .summary = "checks a checkpoint, or that two hold the same tensors",
    .synopsis = "A [B] [--from MESH] [--from-b MESH] [--rules R] [--dtype D]\n"
                "  [--rename GLOB=NAME] [--as NAMING] [--map FILE] [--ignore-dropped]\n"
                "  [--digest] [--stats] [--tolerance X] [OPTIONS]",
    .description =
        "Reads all of A and checks that it is whole: every tensor is there once, without holes\n"
        "or overlaps, and files that hold copies of the same box agree. With B, checks B too and\n"
        "compares the names, dtypes, shapes and bytes of all tensors, whatever their splits and\n"
        "formats; it names the first element that differs in each tensor. To verify a\n"
        "conversion, give its options again: A is then taken as the conversion would leave it.\n"
        "If the two have different namings, A is seen as B is named, and a line says by which "
        "map.\n"
        "--stats measures how far apart the numbers are, --tolerance lets small differences pass.\n"
        "Exits with 1 if something is missing, damaged or different. Under mpirun the ranks\n"
        "share the reading.\n",
    .operand = "A",
    .second_operand = "B",
    .second_is_optional = 1,
    .shares_work = 1,
    .options = cli_checkpoint_options,
    .option_count = CLI_CHECKPOINT_OPTION_COUNT,
    .takes = CLI_VERIFY,
    .examples = "  reshard verify model/\n"
                "  reshard verify model/ model-tp4/\n"
                "  reshard verify model/ ranks/ --from-b tp=4 --rules llama\n"
                "  reshard verify model/ engine/ --as vllm\n"
                "  reshard verify model/ half/ --dtype bf16 --rename 'model.*={1}'\n"
                "  reshard verify model/ half/ --rename 'model.*={1}' --stats --tolerance 0.01\n",
    .run = run,
};
