/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 07_checkpoint.c - introduces checkpoints: two ranks save one. Then one process reads a box of a
 * tensor, no matter which files it lies in; reads what the third of four ranks would hold; maps a
 * file; and asks how the rules of Llama would cut the tensors over four ranks, which is what
 * `reshard plan` shows of a conversion.
 */
#include <reshard/reshard.h>

#include "examples/example.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 2, ROWS = 8, COLUMNS = 4 };

static const char up_projection[] = "model.layers.0.mlp.up_proj.weight";

/* Each rank saves half of the rows; every element is its index. */
static reshard_status save(void *user, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    float half[ROWS / RANKS * COLUMNS], norm[COLUMNS] = {1, 1, 1, 1};
    reshard_layout *rows = NULL, *whole = NULL;
    TRY(reshard_layout_parse(NULL, "2: S(0)", 2, (int64_t[]){ROWS, COLUMNS}, &rows));
    TRY(reshard_layout_parse(NULL, "2: R", 1, (int64_t[]){COLUMNS}, &whole));
    for (int i = 0; i < ROWS / RANKS * COLUMNS; i++)
        half[i] = (float)(reshard_group_rank(group) * ROWS / RANKS * COLUMNS + i);
    const reshard_live_tensor tensors[] = {
        {up_projection, RESHARD_F32, rows, (void *[]){half}},
        {"model.norm.weight", RESHARD_F32, whole, (void *[]){norm}},
    };
    TRY(reshard_checkpoint_save(NULL, group, user, 2, tensors, NULL));
out:
    reshard_layout_release(whole);
    reshard_layout_release(rows);
    return status;
}

/* Rows 3 and 4 lie in different files. */
static reshard_status read_box(const reshard_checkpoint *checkpoint)
{
    reshard_status status = RESHARD_OK;
    const reshard_box box = {.ndim = 2, .offset = {3, 1}, .size = {2, 2}};
    float found[4];
    int64_t index = -1;
    TRY(reshard_checkpoint_find(checkpoint, up_projection, strlen(up_projection), &index));
    TRY(reshard_checkpoint_read(checkpoint, index, &box, found, sizeof found));
    TRY(check(found[0] == 13 && found[1] == 14 && found[2] == 17 && found[3] == 18,
              "the box holds other elements"));
out:
    return status;
}

/* The weight is cut by columns over four ranks: the third one has column 2, and wants it as f64.
 * The norm is replicated. One call reads both. */
static reshard_status read_rank(const reshard_checkpoint *checkpoint)
{
    reshard_status status = RESHARD_OK;
    static const char *const names[] = {up_projection, "model.norm.weight"};
    double column[ROWS];
    float norm[COLUMNS];
    reshard_rank_tensor tensors[] = {
        {.dtype = RESHARD_F64, .shards = (void *[]){column}},
        {.dtype = RESHARD_DTYPE_NONE, .shards = (void *[]){norm}},
    };
    reshard_layout *columns = NULL, *whole = NULL;
    for (int i = 0; i < 2; i++)
        TRY(reshard_checkpoint_find(checkpoint, names[i], strlen(names[i]), &tensors[i].tensor));
    TRY(reshard_layout_parse(NULL, "4: S(1)", 2, (int64_t[]){ROWS, COLUMNS}, &columns));
    TRY(reshard_layout_parse(NULL, "4: R", 1, (int64_t[]){COLUMNS}, &whole));
    tensors[0].layout = columns;
    tensors[1].layout = whole;
    TRY(reshard_checkpoint_read_rank(checkpoint, 2, 2, tensors, NULL));
    TRY(check(column[0] == 2 && column[7] == 30, "the column holds other elements"));
    TRY(check(norm[0] == 1 && norm[3] == 1, "the norm holds other elements"));
out:
    reshard_layout_release(whole);
    reshard_layout_release(columns);
    return status;
}

/* Maps the second half of the rows, as it lies in its file. */
static reshard_status look_at_file(const reshard_checkpoint *checkpoint)
{
    reshard_status status = RESHARD_OK;
    reshard_stored_piece piece = {.size = sizeof piece};
    void *memory = NULL;
    size_t bytes = 0;
    int64_t index = -1;
    float first;
    TRY(reshard_checkpoint_find(checkpoint, up_projection, strlen(up_projection), &index));
    TRY(reshard_checkpoint_piece(checkpoint, index, 1, &piece));
    TRY(reshard_checkpoint_map_file(checkpoint, piece.file, &memory, &bytes));
    memcpy(&first, (char *)memory + piece.at, sizeof first);
    reshard_checkpoint_unmap_file(memory, bytes);
    TRY(check(first == ROWS / RANKS * COLUMNS, "the file holds other elements"));
out:
    return status;
}

static reshard_status ask(const reshard_checkpoint *checkpoint)
{
    reshard_status status = RESHARD_OK;
    const reshard_conversion_options options = {
        .size = sizeof options, .to = "tp=4", .rules = "llama"};
    reshard_cuts_info info = {.size = sizeof info};
    reshard_cuts *cuts = NULL;
    TRY(reshard_cuts_create(checkpoint, &options, &cuts));
    TRY(reshard_cuts_get_info(cuts, &info));
    printf("%s\n", info.rules);
    for (int64_t i = 0; i < info.tensor_count; i++) {
        reshard_conversion_tensor tensor = {.size = sizeof tensor};
        TRY(reshard_cuts_get_tensor(cuts, i, &tensor));
        printf("%s: %s\n", tensor.name, tensor.cut != NULL ? tensor.cut : "whole");
        if (strcmp(tensor.name, up_projection) == 0)
            TRY(check(tensor.local_shape != NULL && tensor.local_shape[0] == ROWS / 4,
                      "the projection is cut in another way"));
    }
out:
    reshard_cuts_destroy(cuts);
    return status;
}

static void remove_files(const reshard_checkpoint *checkpoint, const char *path)
{
    const char *name = NULL;
    for (int32_t i = 0; (name = reshard_checkpoint_file_name(checkpoint, i)) != NULL; i++) {
        char file[512];
        (void)snprintf(file, sizeof file, "%s/%s", path, name);
        (void)unlink(file);
    }
}

static reshard_status run(char *path)
{
    reshard_status status = RESHARD_OK;
    reshard_checkpoint *checkpoint = NULL;
    TRY(reshard_group_run(NULL, RANKS, save, path));
    TRY(reshard_checkpoint_open(NULL, path, NULL, &checkpoint));
    TRY(read_box(checkpoint));
    TRY(read_rank(checkpoint));
    TRY(look_at_file(checkpoint));
    TRY(ask(checkpoint));
out:
    if (checkpoint != NULL)
        remove_files(checkpoint, path);
    reshard_checkpoint_destroy(checkpoint);
    return status;
}

int main(void)
{
    char around[] = "/tmp/reshard-read-XXXXXX", path[64];
    if (mkdtemp(around) == NULL) {
        perror(around);
        return 1;
    }
    (void)snprintf(path, sizeof path, "%s/checkpoint", around);
    reshard_status status = run(path);
    (void)rmdir(path);
    (void)rmdir(around);
    return finish(status);
}
