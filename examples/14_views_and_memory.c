/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 14_views_and_memory.c - where the elements of a tensor lie. Views share memory, a file can be
 * mapped instead of read, and DLPack hands a tensor to another library and back without a copy.
 */
#include <reshard/reshard_nn.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROWS = 3, COLUMNS = 4, HEADER_BYTES = 16 };

/* Returns from the function with the status of the first call that fails. */
#define TRY(call)                           \
    do {                                    \
        reshard_status try_status = (call); \
        if (try_status != RESHARD_OK)       \
            return try_status;              \
    } while (0)

static reshard_status check(int holds, const char *what)
{
    return holds ? RESHARD_OK : reshard_error_set(RESHARD_ERR_CHECK, what);
}

/* Views are different strides over the same elements. Only contiguous copies, and only if it
 * must. */
static reshard_status try_views(reshard_tensor *x)
{
    const float *data = reshard_tensor_data(x);
    reshard_tensor *parts[2];
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *across = reshard_tensor_transpose(x, 0, 1);
    reshard_tensor *dense = reshard_tensor_contiguous(across);
    reshard_tensor *batch = reshard_tensor_unsqueeze(x, 0);
    reshard_tensor *same = reshard_tensor_detach(x);
    reshard_split(x, 1, 2, (int64_t[]){1, COLUMNS - 1}, parts);
    TRY(reshard_scope_status(scope));
    TRY(check(reshard_tensor_data(across) == data && reshard_tensor_strides(across)[0] == 1 &&
                  reshard_tensor_strides(across)[1] == COLUMNS,
              "a transposed tensor has the strides the other way round"));
    TRY(check(reshard_tensor_data(dense) != data && reshard_tensor_strides(dense)[0] == ROWS,
              "contiguous copies what is not dense"));
    TRY(check(reshard_tensor_ndim(batch) == 3 && reshard_tensor_data(batch) == data &&
                  reshard_tensor_data(same) == data,
              "one more dim takes no more memory"));
    TRY(check((const float *)reshard_tensor_data(parts[1]) == data + 1,
              "the second part starts at the second column"));
    return reshard_scope_close(scope);
}

/* Writing to a mapped tensor is visible only in this process; the file does not change. */
static reshard_status try_mapped(const char *path)
{
    float values[ROWS * COLUMNS], again[ROWS * COLUMNS];
    reshard_tensor *x = NULL, *y = NULL;
    int64_t shape[] = {ROWS, COLUMNS};
    TRY(reshard_tensor_map_file(NULL, path, HEADER_BYTES, RESHARD_F32, 2, shape, &x));
    TRY(reshard_tensor_copy_to(x, values, sizeof values));
    TRY(check(values[0] == 0 && values[5] == 5, "the file begins after its header"));
    for (int i = 0; i < ROWS * COLUMNS; i++)
        values[i] *= -1;
    TRY(reshard_tensor_copy_from(x, values, sizeof values));
    TRY(reshard_tensor_map_file(NULL, path, HEADER_BYTES, RESHARD_F32, 2, shape, &y));
    TRY(reshard_tensor_copy_to(y, again, sizeof again));
    TRY(check(again[5] == 5 && values[5] == -5, "a write has reached the file"));
    TRY(try_views(x));
    reshard_tensor_release(y);
    reshard_tensor_release(x);
    return RESHARD_OK;
}

/* The tensor that comes back shares the memory of the one that was exported. */
static reshard_status try_dlpack(void)
{
    reshard_tensor *x = NULL, *y = NULL, *z = NULL;
    reshard_dl_managed *managed = NULL;
    reshard_dl_versioned *versioned = NULL;
    TRY(reshard_tensor_create(NULL, RESHARD_BF16, 2, (int64_t[]){ROWS, COLUMNS}, &x));
    const void *data = reshard_tensor_data(x);
    TRY(reshard_tensor_to_dlpack(x, &managed));
    reshard_tensor_release(x);
    TRY(check(managed->dl_tensor.dtype.code == 4 && managed->dl_tensor.dtype.bits == 16,
              "DLPack calls it bfloat"));
    TRY(reshard_tensor_from_dlpack(NULL, managed, &y)); /* takes ownership, and calls the deleter */
    TRY(reshard_tensor_to_dlpack_versioned(y, &versioned));
    TRY(reshard_tensor_from_dlpack_versioned(NULL, versioned, &z));
    TRY(check(reshard_tensor_data(z) == data && reshard_tensor_dtype(z) == RESHARD_BF16,
              "something was copied on the way"));
    reshard_tensor_release(y);
    reshard_tensor_release(z);
    return RESHARD_OK;
}

int main(void)
{
    char path[] = "/tmp/reshard-views-XXXXXX";
    float numbers[HEADER_BYTES / sizeof(float) + ROWS * COLUMNS] = {0};
    for (int i = 0; i < ROWS * COLUMNS; i++)
        numbers[HEADER_BYTES / sizeof *numbers + (size_t)i] = (float)i;
    int file = mkstemp(path);
    if (file < 0 || write(file, numbers, sizeof numbers) != (ssize_t)sizeof numbers) {
        perror(path);
        return 1;
    }
    int failed = try_mapped(path) || try_dlpack();
    if (failed)
        fprintf(stderr, "%s\n", reshard_error_text());
    else
        printf("views, a mapped file and DLPack share their memory\n");
    (void)close(file);
    (void)unlink(path);
    return failed;
}
