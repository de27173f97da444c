/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conversion_page.c - writes a planned conversion as the data of a page: the fields of --json, the
 * bytes from file to file, and each tensor as it is stored and as it will be cut. Tensors that are
 * cut alike, as in the layers of a model, share a picture.
 */
#include "cli/common/input.h"
#include "cli/common/memory.h"
#include "cli/page/pieces.h"
#include "cli/plan/plan_page.h"
#include "cli/plan/plan_tensors.h"

#include <stdlib.h>
#include <string.h>

/* The pictures so far, sorted by shape and cut; `index` is their position on the page. */
typedef struct picture {
    reshard_conversion_tensor tensor;
    int64_t index;
} picture;

typedef struct album {
    picture *pictures;
    size_t count, capacity;
} album;

static int compare(const reshard_conversion_tensor *a, const reshard_conversion_tensor *b)
{
    int order = a->ndim - b->ndim;
    for (int32_t d = 0; order == 0 && d < a->ndim; d++)
        order =
            (a->padded_shape[d] > b->padded_shape[d]) - (a->padded_shape[d] < b->padded_shape[d]);
    return order != 0 ? order : strcmp(a->cut, b->cut);
}

/* Finds the picture of a tensor. If no earlier tensor is cut like it, adds one and sets
 * *out_is_new. */
static int64_t find_picture(album *a, const reshard_conversion_tensor *tensor, int *out_is_new)
{
    size_t low = 0, high = a->count;
    *out_is_new = 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare(tensor, &a->pictures[middle].tensor);
        if (order == 0)
            return a->pictures[middle].index;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    a->pictures = cli_grow(a->pictures, &a->capacity, a->count + 1, sizeof *a->pictures);
    memmove(a->pictures + low + 1, a->pictures + low, (a->count - low) * sizeof *a->pictures);
    a->pictures[low] = (picture){*tensor, (int64_t)a->count};
    *out_is_new = 1;
    return (int64_t)a->count++;
}

/* Writes the fields of --json, and those that it does not have: the stored boxes, and the picture
 * of the cut. */
static reshard_status write_tensor(cli_page *page, const cli_conversion *made, int64_t index,
                                   album *pictures, const reshard_conversion_tensor *tensor)
{
    reshard_status status = RESHARD_OK;
    int is_new;
    cli_json_begin_object(&page->json, NULL);
    cli_plan_tensor_write(&page->json, tensor);
    cli_json_integer(&page->json, "bits", reshard_dtype_bits(tensor->dtype));
    if (tensor->map_file != NULL)
        status = cli_plan_links_write(&page->json, made, index, tensor, CLI_PAGE_LINKS_MAX);
    if (status == RESHARD_OK && tensor->source >= 0 && page->pieces_left > 1)
        status = cli_page_stored(page, "stored", made->checkpoint, tensor->source);
    else if (status == RESHARD_OK && tensor->source >= 0) /* others are constants, or donated */
        page->pictures_missed++;
    if (status == RESHARD_OK && tensor->local_shape != NULL) {
        cli_json_integer(&page->json, "picture", find_picture(pictures, tensor, &is_new));
        if (is_new && page->pieces_left > 1)
            status = cli_page_layout(page, "layout", tensor->layout);
        else if (is_new)
            page->pictures_missed++;
    }
    cli_json_end_object(&page->json);
    return status;
}

static reshard_status write_tensors(cli_page *page, const cli_conversion *made)
{
    album pictures = {0};
    cli_name *names = NULL;
    reshard_status status = cli_plan_tensors_sort(made, &names);
    cli_json_begin_list(&page->json, "tensor_list");
    for (int64_t i = 0; status == RESHARD_OK && i < made->stats.tensor_count; i++) {
        reshard_conversion_tensor tensor = {.size = sizeof tensor};
        status = reshard_conversion_get_tensor(made->conversion, names[i].index, &tensor);
        if (status == RESHARD_OK && i < CLI_PAGE_TENSORS_MAX)
            status = write_tensor(page, made, names[i].index, &pictures, &tensor);
    }
    cli_json_end_list(&page->json);
    free(pictures.pictures);
    free(names);
    return status;
}

static void write_name(cli_page *page, const char *name)
{
    cli_json_text(&page->json, NULL, name != NULL ? name : "");
}

static void write_files(cli_page *page, const cli_conversion *made)
{
    int64_t rows = made->stats.source_file_count, columns = made->stats.target_file_count;
    cli_json_begin_list(&page->json, "source_files");
    for (int32_t i = 0; i < rows && i < CLI_PAGE_FILES_MAX; i++)
        write_name(page, reshard_checkpoint_file_name(made->checkpoint, i));
    cli_json_end_list(&page->json);
    cli_json_begin_list(&page->json, "target_files");
    for (int32_t i = 0; i < columns && i < CLI_PAGE_FILES_MAX; i++)
        write_name(page, reshard_conversion_file_name(made->conversion, i));
    cli_json_end_list(&page->json);
    if (rows == 0 || columns == 0 || rows > CLI_PAGE_ENTRIES_MAX / columns)
        return;
    uint64_t *matrix = cli_allocate((size_t)(rows * columns), sizeof *matrix);
    reshard_conversion_get_matrix(made->conversion, matrix);
    cli_page_matrix(&page->json, "matrix", (int32_t)rows, (int32_t)columns, matrix);
    free(matrix);
}

reshard_status cli_conversion_page_write(const cli_conversion *made, double seconds, cli_page *page)
{
    cli_json *json = &page->json;
    cli_json_text(json, "kind", "conversion");
    cli_json_begin_object(json, "report");
    cli_conversion_plan_write(made, json);
    if (seconds >= 0)
        cli_json_seconds(json, "seconds_estimated", seconds);
    cli_json_end_object(json);
    cli_json_text(json, "source_format", cli_checkpoint_info(made->checkpoint).format);
    write_files(page, made);
    return write_tensors(page, made);
}
