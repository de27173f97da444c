/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_verify.c - `reshard verify`: is a checkpoint whole, do two hold the same tensors?
 *
 * Both list their tensors in the order of names, so one walk over both finds everything that is in
 * only one of them, or differs.
 */
#include "cli/checkpoint_input.h"
#include "cli/commands.h"
#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/json.h"
#include "cli/common/ranks.h"
#include "cli/common/sizes.h"
#include "cli/common/style.h"
#include "cli/common/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 64, SHAPE_SHOWN = 200 };

typedef struct verify_values {
    const char *from, *from_b, *rules;
    cli_texts sets;
    int32_t threads;
    int all, json;
} verify_values;

static const cli_option options[] = {
    {"from", CLI_TEXT, offsetof(verify_values, from), "MESH", 0,
     "the mesh of A, when A is plain rank files: tp=4"},
    {"from-b", CLI_TEXT, offsetof(verify_values, from_b), "MESH", 0, "the mesh of B, likewise"},
    {"rules", CLI_TEXT, offsetof(verify_values, rules), "R", 0,
     "how rank files are split: llama, .. or a file"},
    {"set", CLI_TEXTS, offsetof(verify_values, sets), "KEY=N", 0,
     "a number for rules, before config.json's"},
    {"threads", CLI_RANK, offsetof(verify_values, threads), "N", 0,
     "threads that read; default: the processors, up to 8"},
    {"all", CLI_FLAG, offsetof(verify_values, all), NULL, 0, "every difference, however many"},
    {"json", CLI_FLAG, offsetof(verify_values, json), NULL, 0, "one JSON object on one line"},
};

/* ---- differences ----------------------------------------------------------------------------- */

typedef enum difference_kind { SAME, ONLY_IN_A, ONLY_IN_B, DTYPES, SHAPES, BYTES } difference_kind;

static const char *const kind_names[] = {"same",  "only in A", "only in B",
                                         "dtype", "shape",     "bytes"};

typedef struct difference {
    difference_kind kind;
    reshard_stored_tensor a, b; /* where present */
} difference;

/* A walk over both checkpoints. */
typedef struct comparison {
    const cli_digested *sides[2];
    int64_t next[2];
} comparison;

static int compare_names(const reshard_stored_tensor *a, const reshard_stored_tensor *b)
{
    size_t shared = a->name_bytes < b->name_bytes ? a->name_bytes : b->name_bytes;
    int order = memcmp(a->name, b->name, shared);
    return order != 0 ? order : (a->name_bytes > b->name_bytes) - (a->name_bytes < b->name_bytes);
}

static int same_shape(const reshard_stored_tensor *a, const reshard_stored_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

/* Goes to the next name of either side; 0 after the last. */
static int step(comparison *walk, difference *out)
{
    reshard_stored_tensor tensors[2] = {{.size = sizeof tensors[0]}, {.size = sizeof tensors[0]}};
    int there[2];
    for (int i = 0; i < 2; i++)
        there[i] = walk->next[i] < walk->sides[i]->digests->count &&
                   reshard_checkpoint_tensor(walk->sides[i]->checkpoint, walk->next[i],
                                             &tensors[i]) == RESHARD_OK;
    if (!there[0] && !there[1])
        return 0;
    int order = !there[0] ? 1 : !there[1] ? -1 : compare_names(&tensors[0], &tensors[1]);
    *out =
        (difference){.kind = order < 0 ? ONLY_IN_A : ONLY_IN_B, .a = tensors[0], .b = tensors[1]};
    if (order == 0) {
        const char *a = walk->sides[0]->digests->tensors[walk->next[0]];
        const char *b = walk->sides[1]->digests->tensors[walk->next[1]];
        out->kind = tensors[0].dtype != tensors[1].dtype    ? DTYPES
                    : !same_shape(&tensors[0], &tensors[1]) ? SHAPES
                    : strcmp(a, b) != 0                     ? BYTES
                                                            : SAME;
    }
    walk->next[0] += order <= 0;
    walk->next[1] += order >= 0;
    return 1;
}

static const reshard_stored_tensor *named(const difference *found)
{
    return found->kind == ONLY_IN_B ? &found->b : &found->a;
}

static int64_t count_differences(const cli_digested *a, const cli_digested *b)
{
    comparison walk = {{a, b}, {0, 0}};
    difference found;
    int64_t count = 0;
    while (step(&walk, &found))
        count += found.kind != SAME;
    return count;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void describe(const reshard_stored_tensor *tensor, char buffer[SHAPE_SHOWN])
{
    int length = snprintf(buffer, SHAPE_SHOWN, "%s %s", reshard_dtype_name(tensor->dtype),
                          tensor->ndim == 0 ? "scalar" : "");
    for (int32_t d = 0; d < tensor->ndim && length < SHAPE_SHOWN - 32; d++)
        length += snprintf(buffer + length, SHAPE_SHOWN - (size_t)length, "%s%" PRId64,
                           d == 0 ? "" : "x", tensor->shape[d]);
}

static void add_row(cli_table *table, const difference *found)
{
    char text[SHAPE_SHOWN];
    char *name = cli_tensor_name(named(found));
    cli_table_add(table, CLI_PLAIN, "%s", name);
    cli_table_add(table, CLI_PLAIN, "%s", kind_names[found->kind]);
    for (int i = 0; i < 2; i++) {
        int there = found->kind != (i == 0 ? ONLY_IN_B : ONLY_IN_A);
        describe(i == 0 ? &found->a : &found->b, text);
        cli_table_add(table, CLI_PLAIN, "%s", there ? text : "");
    }
    free(name);
}

static void print_differences(const cli_digested *a, const cli_digested *b, int64_t count, int all)
{
    static const char *const titles[] = {"tensor", "differs", "A", "B"};
    comparison walk = {{a, b}, {0, 0}};
    difference found;
    cli_table *table = cli_table_create(4);
    int64_t shown = 0;
    for (int i = 0; i < 4; i++) {
        cli_table_add(table, CLI_BOLD, "%s", titles[i]);
        cli_table_align(table, i, CLI_LEFT);
    }
    while ((all || shown < ROWS_MAX) && step(&walk, &found)) {
        if (found.kind == SAME)
            continue;
        add_row(table, &found);
        shown++;
    }
    if (shown < count)
        cli_table_add_line(table, CLI_DIM, "  ... %" PRId64 " more; --all prints them",
                           count - shown);
    cli_table_print(table);
    cli_table_destroy(table);
}

static void write_names(cli_json *json, const cli_digested *a, const cli_digested *b,
                        const char *key, difference_kind kind)
{
    comparison walk = {{a, b}, {0, 0}};
    difference found;
    cli_json_begin_list(json, key);
    while (step(&walk, &found)) {
        if (found.kind == kind)
            cli_json_text_part(json, NULL, named(&found)->name, named(&found)->name_bytes);
    }
    cli_json_end_list(json);
}

static void print_json(const cli_digested *a, const cli_digested *b, int64_t differences)
{
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_json_bool(&json, b != NULL ? "same" : "whole", differences == 0);
    cli_json_integer(&json, "tensors", a->digests->count);
    cli_json_unsigned(&json, "bytes", reshard_checkpoint_bytes(a->checkpoint));
    cli_json_text(&json, "checkpoint", a->digests->checkpoint);
    if (b != NULL) {
        cli_json_text(&json, "checkpoint_b", b->digests->checkpoint);
        write_names(&json, a, b, "only_in_a", ONLY_IN_A);
        write_names(&json, a, b, "only_in_b", ONLY_IN_B);
        write_names(&json, a, b, "dtype", DTYPES);
        write_names(&json, a, b, "shape", SHAPES);
        write_names(&json, a, b, "bytes_differ", BYTES);
    }
    cli_json_end_object(&json);
    putchar('\n');
}

static int64_t count_copies(const cli_digested *side)
{
    int64_t count = 0;
    for (int64_t i = 0; i < side->digests->count; i++) {
        reshard_stored_tensor tensor = {.size = sizeof tensor};
        if (reshard_checkpoint_tensor(side->checkpoint, i, &tensor) == RESHARD_OK)
            count += tensor.copy_count;
    }
    return count;
}

static void print_whole(const char *path, const cli_digested *side)
{
    char size[CLI_SIZE_TEXT];
    int64_t copies = count_copies(side);
    int32_t files = reshard_checkpoint_file_count(side->checkpoint);
    printf("%s%s%s  whole: %" PRId64 " tensor%s, %s in %" PRId32 " file%s",
           cli_style_begin(CLI_BOLD), path, cli_style_end(CLI_BOLD), side->digests->count,
           side->digests->count == 1 ? "" : "s",
           cli_size_text(reshard_checkpoint_bytes(side->checkpoint), size), files,
           files == 1 ? "" : "s");
    if (copies != 0)
        printf(", %" PRId64 " cop%s agree%s", copies, copies == 1 ? "y" : "ies",
               copies == 1 ? "s" : "");
    printf("\n  digest %s\n", side->digests->checkpoint);
}

/* ---- the command ----------------------------------------------------------------------------- */

static int report(const char *const paths[2], const cli_digested *a, const cli_digested *b,
                  const verify_values *values)
{
    int64_t differences = b != NULL ? count_differences(a, b) : 0;
    if (values->json) {
        print_json(a, b, differences);
    } else {
        print_whole(paths[0], a);
        if (b != NULL)
            print_whole(paths[1], b);
        if (differences != 0) {
            putchar('\n');
            print_differences(a, b, differences, values->all);
        } else if (b != NULL) {
            puts("the same tensors");
        }
    }
    if (differences == 0)
        return CLI_DONE;
    fflush(stdout);
    return cli_fail(CLI_FAILED, "%s and %s do not hold the same tensors: %" PRId64 " differ",
                    paths[0], paths[1], differences);
}

static int run(const cli_command *command, int argc, char **argv)
{
    verify_values values = {0};
    const char *paths[2] = {NULL, NULL};
    cli_work work = {0};
    int code = cli_options_parse(command, argc, argv, &values, paths);
    if (code == CLI_DONE && values.from_b != NULL && paths[1] == NULL)
        code = cli_fail(CLI_USAGE, "--from-b is for a second checkpoint, but there is only one");
    if (code == CLI_DONE)
        code = cli_mesh_check(values.from);
    if (code == CLI_DONE)
        code = cli_mesh_check(values.from_b);
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code != CLI_DONE)
        return code;
    cli_digesting d = {.work = &work,
                       .count = paths[1] != NULL ? 2 : 1,
                       .sources = {{paths[0], values.from, values.rules, &values.sets},
                                   {paths[1], values.from_b, values.rules, &values.sets}},
                       .threads = values.threads,
                       .check_copies = 1};
    code = cli_digest_read(&d);
    if (code == CLI_DONE && cli_ranks_are_first())
        code = report(paths, &d.digested[0], d.count == 2 ? &d.digested[1] : NULL, &values);
    cli_digested_release(&d.digested[0]);
    cli_digested_release(&d.digested[1]);
    cli_work_end(&work);
    return code;
}

const cli_command cli_command_verify = {
    .name = "verify",
    .summary = "a checkpoint is whole, or two hold the same tensors",
    .synopsis = "A [B] [--from MESH] [--from-b MESH] [--rules R] [--set KEY=N]\n"
                "  [--threads N] [--all] [--json]",
    .description =
        "Reads all of A: every tensor is there once, without holes and overlaps, and where files\n"
        "hold copies of the same box, the copies are equal. With B, reads all of B likewise, and\n"
        "compares names, dtypes, shapes and bytes of the tensors, whatever their splits and\n"
        "formats. Exits with 1 when something is missing, damaged or different. Under mpirun the\n"
        "ranks share the reading.\n",
    .operand = "A",
    .second_operand = "B",
    .second_is_optional = 1,
    .shares_work = 1,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .examples = "  reshard verify model/\n"
                "  reshard verify model/ model-tp4/\n"
                "  reshard verify model/ ranks/ --from-b tp=4 --rules llama\n",
    .run = run,
};
