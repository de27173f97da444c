/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_digest.c - `reshard digest`: prints a fingerprint of each tensor that does not depend on
 * how it is split.
 */
#include "cli/checkpoint/checkpoint_input.h"
#include "cli/checkpoint/checkpoint_options.h"
#include "cli/commands/commands.h"
#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/json.h"
#include "cli/common/ranks.h"
#include "cli/common/sizes.h"
#include "cli/common/style.h"

#include <inttypes.h>
#include <stdio.h>

static reshard_status print_json(const cli_digesting *d)
{
    cli_json json = {.stream = stdout};
    reshard_status status = RESHARD_OK;
    cli_json_begin_object(&json, NULL);
    cli_json_begin_object(&json, "tensors");
    for (int64_t i = 0; i < cli_checkpoint_info(d->checkpoint).tensor_count; i++) {
        reshard_stored_tensor tensor = {.size = sizeof tensor};
        status = reshard_checkpoint_tensor(d->checkpoint, i, &tensor);
        if (status != RESHARD_OK)
            break;
        if (tensor.is_aside)
            continue;
        cli_json_named_text(&json, tensor.name, tensor.name_bytes,
                            d->hashes != NULL ? d->hashes->tensors[i] : d->digests->tensors[i]);
    }
    cli_json_end_object(&json);
    if (d->opened != NULL) {
        cli_json_begin_list(&json, "notes");
        const char *line = NULL;
        for (int64_t i = 0;
             (line = reshard_checkpoint_note(d->checkpoint, RESHARD_NOTE, i)) != NULL; i++)
            cli_json_text(&json, NULL, line);
        cli_json_end_list(&json);
    }
    cli_json_text(&json, "checkpoint",
                  d->hashes != NULL ? d->hashes->checkpoint : d->digests->checkpoint);
    cli_json_end_object(&json);
    putchar('\n');
    return status;
}

/* What the digest of the checkpoint is of. */
typedef struct digested {
    int64_t tensors;
    uint64_t bytes;
    int64_t aside;
} digested;

static reshard_status count_digested(const cli_digesting *d, digested *out_counts)
{
    *out_counts = (digested){0};
    for (int64_t i = 0; i < cli_checkpoint_info(d->checkpoint).tensor_count; i++) {
        reshard_stored_tensor tensor = {.size = sizeof tensor};
        reshard_status status = reshard_checkpoint_tensor(d->checkpoint, i, &tensor);
        if (status != RESHARD_OK)
            return status;
        out_counts->aside += tensor.is_aside != 0;
        out_counts->tensors += tensor.is_aside == 0;
        out_counts->bytes += tensor.is_aside == 0 ? tensor.bytes : 0;
    }
    return RESHARD_OK;
}

static reshard_status print_digests(const cli_digesting *d)
{
    for (int64_t i = 0; i < d->digests->count; i++) {
        reshard_stored_tensor tensor = {.size = sizeof tensor};
        reshard_status status = reshard_checkpoint_tensor(d->checkpoint, i, &tensor);
        if (status != RESHARD_OK)
            return status;
        if (tensor.is_aside)
            continue;
        printf("%s  ", d->digests->tensors[i]);
        cli_print_shown_part(tensor.name, tensor.name_bytes);
        putchar('\n');
    }
    return RESHARD_OK;
}

static reshard_status print_lines(const cli_digesting *d)
{
    char size[CLI_SIZE_TEXT];
    digested counts;
    reshard_status status = count_digested(d, &counts);
    if (status == RESHARD_OK && d->hashes == NULL)
        status = print_digests(d);
    if (status != RESHARD_OK)
        return status;
    if (d->hashes != NULL) /* the lines are ASCII */
        (void)fwrite(d->hashes->lines, 1, d->hashes->lines_bytes, stdout);
    printf("%s%s%s  %s%" PRId64 " tensor%s, %s", cli_style_begin(CLI_BOLD),
           d->hashes != NULL ? d->hashes->checkpoint : d->digests->checkpoint,
           cli_style_end(CLI_BOLD), counts.tensors == 1 ? "" : "all ", counts.tensors,
           counts.tensors == 1 ? "" : "s", cli_size_text(counts.bytes, size));
    if (counts.aside != 0)
        printf("; without %" PRId64 " that say the same in another dtype", counts.aside);
    putchar('\n');
    const char *line = NULL;
    for (int64_t i = 0; d->opened != NULL &&
                        (line = reshard_checkpoint_note(d->checkpoint, RESHARD_NOTE, i)) != NULL;
         i++)
        fprintf(stderr, "%s\n", line);
    return RESHARD_OK;
}

static int run(const cli_command *command, int argc, char **argv)
{
    cli_checkpoint_values values = {0};
    cli_work work = {0};
    int code = cli_checkpoint_parse(command, argc, argv, &values);
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code != CLI_DONE)
        return code;
    cli_digesting d = {.work = &work,
                       .path = values.paths[0],
                       .opening = values.opening,
                       .options = values.digesting,
                       .viewing = values.viewing,
                       .hashes_wanted = values.sha256};
    code = cli_digesting_run(&d);
    if (code == CLI_DONE && cli_ranks_are_first()) {
        reshard_status status = values.json ? print_json(&d) : print_lines(&d);
        if (status != RESHARD_OK)
            code = cli_fail_status(status);
    }
    cli_digesting_release(&d);
    cli_work_end(&work);
    return code;
}

const cli_command cli_command_digest = {
    .name = "digest",
    .summary = "a fingerprint of each tensor, however it is split",
    .synopsis = "CKPT [--from MESH [--rules R] [--set KEY=N]] [--as NAMING]\n"
                "    [--map FILE] [--sha256] [OPTIONS]",
    .description =
        "Reads a checkpoint and prints 128 bits for each tensor, and for all tensors and their\n"
        "names. They depend on dtype, shape and bytes, but not on how a tensor is split or in\n"
        "which format it is stored. docs/digest.md says how they are computed. If files hold\n"
        "copies of the same box, one is read; reshard verify compares them. --sha256 prints\n"
        "hashes instead, for those who sign what they publish, and --as those that another naming\n"
        "would have. Under mpirun the ranks share the reading.\n",
    .operand = "CKPT",
    .shares_work = 1,
    .options = cli_checkpoint_options,
    .option_count = CLI_CHECKPOINT_OPTION_COUNT,
    .takes = CLI_DIGEST,
    .examples = "  reshard digest model/\n"
                "  reshard digest model.safetensors --json\n"
                "  reshard digest model/ --sha256\n"
                "  reshard digest model/ --as vllm\n",
    .run = run,
};
