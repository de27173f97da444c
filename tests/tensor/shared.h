/* SPDX-License-Identifier: Apache-2.0 */
/* shared.h - tensors in memory of a group, over any transport. */
#ifndef TESTS_TENSOR_SHARED_H
#define TESTS_TENSOR_SHARED_H

#include "tests/tensor/distributed.h"
#include "transport/group_memory.h"

/* Rank r has r+1 rows of a matrix. wanted: whether the transport has an arena for them. */
static inline reshard_status use_shared_tensors(reshard_group *group, bool wanted)
{
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    int64_t shape[] = {rank + 1, 6}, before = rank * (rank + 1) / 2, rows = size * (size + 1) / 2;
    const void *place = NULL;
    for (int turn = 0; turn < 3; turn++) {
        reshard_tensor *local = NULL;
        reshard_scope *scope = NULL;
        char text[32];
        TRY(reshard_tensor_create_shared(NULL, group, RESHARD_F64, 2, shape, &local));
        CHECK(!wanted || rs_group_is_shared(group, reshard_tensor_data(local)));
        /* What was freed is used again. */
        CHECK(!wanted || turn == 0 || place == reshard_tensor_data(local));
        place = reshard_tensor_data(local);
        for (int64_t i = 0; i < 6 * (rank + 1); i++) {
            CHECK(element(local, i) == 0);
            set_element(local, i, (double)(before * 6 + i));
        }
        TRY(reshard_tensor_set_requires_grad(local, 1));
        TRY(reshard_scope_open(NULL, &scope));
        (void)snprintf(text, sizeof text, "%d: S(0)", (int)size);
        reshard_tensor *x = local_as(local, group, text);
        CHECK(x != NULL && reshard_tensor_data(reshard_tensor_local_shard(x, 0)) == place);
        (void)snprintf(text, sizeof text, "%d: S(1)", (int)size);
        reshard_tensor *y = reshard_tensor_full(move_to(x, text));
        CHECK(y != NULL && reshard_tensor_shape(y)[0] == rows);
        for (int64_t i = 0; i < 6 * rows; i++)
            CHECK(element(y, i) == (double)i);
        reshard_tensor *sum = reshard_tensor_exchange(
            local, group, RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER));
        CHECK(sum != NULL && element(sum, 6 * rows - 1) == (double)(6 * rows - 1));
        (void)reshard_backward(reshard_sum(y), NULL, NULL);
        TRY(reshard_scope_close(scope));
        CHECK(element(reshard_tensor_gradient(local), 0) == 1);
        reshard_tensor_release(local);
    }
    return RESHARD_OK;
}

/* One rank asks for what cannot be: an error on all, and the group goes on. */
static inline reshard_status refuse_shared_tensors(reshard_group *group)
{
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    reshard_tensor *made = NULL;
    static const int64_t shape[] = {2, -3}, huge[] = {INT64_MAX / 16, 4};
    reshard_dtype odd = rank == size - 1 ? RESHARD_DTYPE_COUNT : RESHARD_F32;
    CHECK(reshard_tensor_create_shared(NULL, group, odd, 1, shape, &made) == RESHARD_ERR_INVALID);
    CHECK(reshard_tensor_create_shared(NULL, group, RESHARD_F32, rank == 0 ? 2 : 1, shape, &made) ==
          RESHARD_ERR_RANGE);
    CHECK(reshard_tensor_create_shared(NULL, group, RESHARD_F64, 2, huge, &made) != RESHARD_OK);
    CHECK(made == NULL && reshard_error_text()[0] != '\0');
    /* A rank may have nothing. */
    TRY(reshard_tensor_create_shared(NULL, group, RESHARD_F32, 1, (int64_t[]){rank == 0 ? 0 : 3},
                                     &made));
    reshard_tensor *view = NULL;
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    view = reshard_tensor_retain(reshard_tensor_reshape(made, 2, (int64_t[]){-1, 1}));
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(made); /* the view has the memory now */
    TRY(reshard_tensor_fill(view, 4));
    CHECK(rank == 0 || element(view, 2) == 4);
    reshard_tensor_release(view);
    return reshard_group_barrier(group);
}

#endif
