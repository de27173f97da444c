/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pack.c - one tensor packed and unpacked comes back as it was: any shape, any dim, any number
 * of ranks, local or in any layout.
 */
#include "nn/pack.h"
#include "tests/nn/meshes.h"

static reshard_status body_pack(void *user, reshard_group *group)
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {3, 1, 2}, {5, 4, 3}, {2, 7, 1}, {0, 4, 2}};
    reshard_device_mesh *mesh = make_line(group);
    (void)user;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int32_t dim = -4; dim <= 4; dim++) {
            reshard_packed *packed = NULL;
            reshard_tensor *x = make_leaf(3, shapes[s]), *found[2] = {NULL, NULL};
            reshard_scope *scope = NULL;
            MUST(reshard_scope_open(NULL, &scope));
            int enabled = reshard_set_gradients_enabled(0);
            reshard_tensor *turned = reshard_tensor_transpose(x, 0, 2); /* not dense */
            (void)reshard_set_gradients_enabled(enabled);
            TRY(reshard_pack_replicated(turned, mesh, dim, 1, &packed));
            TRY(reshard_unpack_replicated(packed, &found[0]));
            TRY(reshard_unpack_replicated(packed, &found[1]));
            for (int k = 0; k < 2; k++) {
                CHECK(memcmp(reshard_tensor_shape(found[k]), reshard_tensor_shape(turned),
                             3 * sizeof(int64_t)) == 0);
                for (int64_t i = 0; i < reshard_tensor_volume(turned); i++)
                    CHECK(element(found[k], i) == element(turned, i));
                reshard_tensor_release(found[k]);
            }
            reshard_packed_destroy(packed);
            MUST(reshard_scope_close(scope));
            reshard_tensor_release(x);
        }
    }
    reshard_tensor *x = make_leaf(SHAPE(1)), *found = NULL;
    reshard_packed *packed = NULL;
    TRY(reshard_pack_replicated(x, mesh, 0, 0, &packed));
    if (reshard_group_size(group) > 1) { /* kept as it is, and written to */
        MUST(reshard_tensor_fill(x, 3));
        CHECK(reshard_unpack_replicated(packed, &found) == RESHARD_ERR_INVALID);
    }
    reshard_packed_destroy(packed);
    reshard_tensor_release(x);
    reshard_device_mesh_release(mesh);
    return RESHARD_OK;
}

/* A distributed tensor comes back in the layout it had, whether it was cut or not. */
typedef struct layout_case {
    const char *spec;
    int32_t axes, sizes[2];
    size_t bytes; /* kept by a rank, of 6x4 doubles */
} layout_case;

static reshard_status body_pack_layouts(void *user, reshard_group *group)
{
    const layout_case *c = user;
    reshard_device_mesh *mesh = make_mesh(group, c->axes, c->sizes);
    reshard_tensor *local = make_leaf(SHAPE(6, 4)), *x = distribute(group, c->spec, local);
    reshard_tensor *found = NULL;
    reshard_packed *packed = NULL;
    TRY(reshard_pack_replicated(x, mesh, 1, 0, &packed));
    CHECK(rs_packed_bytes(packed) == c->bytes);
    TRY(reshard_unpack_replicated(packed, &found));
    CHECK(reshard_tensor_layout(found) != NULL);
    CHECK(reshard_layout_equals(reshard_tensor_layout(found), reshard_tensor_layout(x)));
    const reshard_tensor *a = reshard_tensor_local_shard(x, 0);
    const reshard_tensor *b = reshard_tensor_local_shard(found, 0);
    CHECK(reshard_tensor_volume(a) == reshard_tensor_volume(b));
    for (int64_t i = 0; i < reshard_tensor_volume(a); i++)
        CHECK(element(a, i) == element(b, i));
    reshard_packed_destroy(packed);
    reshard_tensor_release(found);
    reshard_tensor_release(x);
    reshard_tensor_release(local);
    reshard_device_mesh_release(mesh);
    return RESHARD_OK;
}

static void test_pack__layouts_come_back(void **state)
{
    (void)state;
    static layout_case cases[] = {
        {"4: R", 1, {4, 0}, 6 * 8},
        {"2,2: R, R", 2, {2, 2}, 6 * 8},
        {"4: S(1)", 1, {4, 0}, 6 * 8},          /* is cut already */
        {"2,2: S(0), R", 2, {2, 2}, 3 * 4 * 8}, /* over one axis */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_ranks(4, body_pack_layouts, &cases[i]);
}

/* The same bytes in another shape, or of another type, are not the same tensor. */
static reshard_status body_verify(void *user, reshard_group *group)
{
    const bool *by_shape = user;
    int32_t rank = reshard_group_rank(group);
    reshard_device_mesh *mesh = make_line(group);
    int64_t shape[] = {*by_shape && rank == 1 ? 2 : 3, *by_shape && rank == 1 ? 6 : 4};
    reshard_tensor *x = make_zeros(!*by_shape && rank == 1 ? RESHARD_I32 : RESHARD_F32, 2, shape);
    reshard_packed *packed = NULL;
    CHECK(reshard_pack_replicated(x, mesh, 0, 1, &packed) == RESHARD_ERR_MISMATCH);
    CHECK(strstr(reshard_error_text(), "is not replicated") != NULL && packed == NULL);
    reshard_tensor_release(x);
    reshard_device_mesh_release(mesh);
    return RESHARD_OK;
}

static void test_pack__verified_by_shape_and_dtype(void **state)
{
    (void)state;
    bool by_shape[] = {false, true};
    for (int i = 0; i < 2; i++)
        run_ranks(3, body_verify, &by_shape[i]);
}

static void test_pack__one_tensor(void **state)
{
    (void)state;
    for (int32_t size = 1; size <= 4; size++)
        run_ranks(size, body_pack, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack__one_tensor),
        cmocka_unit_test(test_pack__layouts_come_back),
        cmocka_unit_test(test_pack__verified_by_shape_and_dtype),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
