/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_mesh.c - coordinates and sub-groups of live meshes against numbers worked out here:
 * who is in a sub-group is found out by gathering ranks over it.
 */
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/info.h"
#include "tests/support/ways.h"

#include <reshard/reshard.h>

#include <stdio.h>
#include <string.h>

enum { RANKS_MAX = 9, AXES = 3, TEXT_MAX = 200 };

typedef struct mesh_case {
    int32_t world, axis_count;
    const char *names[AXES];
    int32_t sizes[AXES];
    bool has_ranks;
    int32_t ranks[RANKS_MAX];
    /* the slice that is taken: axes in order */
    int32_t slice_count, slice_axes[AXES];
} mesh_case;

static const mesh_case cases[] = {
    {6, 2, {"dp", "tp"}, {2, 3}, .slice_count = 1, .slice_axes = {1}},
    {8, 3, {"pp", "dp", "tp"}, {2, 2, 2}, .slice_count = 2, .slice_axes = {0, 2}},
    {8, 3, {"pp", "dp", "tp"}, {2, 2, 2}, .slice_count = 3, .slice_axes = {0, 1, 2}},
    {6, 2, {"a", "b"}, {3, 2}, true, {4, 0, 5, 1, 3, 2}, 2, {0, 1}},
    {9, 2, {"a", "b"}, {2, 2}, true, {8, 1, 6, 3}, 1, {0}},
    {5, 2, {"a", "b"}, {1, 4}, .slice_count = 1, .slice_axes = {0}},
    {7, 3, {"x", "y", "z"}, {3, 1, 2}, true, {6, 5, 4, 3, 2, 1}, 2, {1, 2}},
    {1, 1, {"only"}, {1}, .slice_count = 1, .slice_axes = {0}},
    {4, 1, {"all"}, {4}, .slice_count = 1, .slice_axes = {0}},
};

/* What one rank saw. */
typedef struct seen {
    int32_t position, coordinates[AXES];
    bool has_group, named_group[AXES];
    int32_t group_rank, group_size, group_members[RANKS_MAX];
    int32_t axis_rank[AXES], axis_size[AXES], axis_members[AXES][RANKS_MAX];
    int32_t slice_position, slice_coordinates[AXES], slice_size, slice_members[RANKS_MAX];
    int32_t nested_size, nested_members[RANKS_MAX];
} seen;

typedef struct trial {
    const mesh_case *given;
    seen seen[RANKS_MAX];
} trial;

/* World ranks of the members, in their order. */
static reshard_status gather(reshard_group *group, int32_t world_rank, int32_t *out_size,
                             int32_t *out_members)
{
    *out_size = 0;
    if (group == NULL)
        return RESHARD_OK;
    *out_size = reshard_group_size(group);
    return reshard_exchange_run(NULL, group,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER,
                                                .dtype = RESHARD_I32, .count = 1,
                                                .source = &world_rank, .target = out_members),
                                NULL);
}

static reshard_status look_at_axis(const mesh_case *given, reshard_device_mesh *device_mesh,
                                   int32_t axis, int32_t rank, seen *s)
{
    reshard_group *group = info_device_mesh(device_mesh).axis_groups[axis], *named = NULL;
    s->coordinates[axis] = info_device_mesh(device_mesh).coordinates[axis];
    s->axis_rank[axis] = group != NULL ? reshard_group_rank(group) : -1;
    reshard_status status = reshard_device_mesh_group_of(device_mesh, given->names[axis], &named);
    s->named_group[axis] = named == group;
    if (status == RESHARD_OK)
        status = gather(group, rank, &s->axis_size[axis], s->axis_members[axis]);
    return status;
}

static reshard_status look_at_slice(const mesh_case *given, reshard_device_mesh *device_mesh,
                                    int32_t rank, seen *s)
{
    reshard_device_mesh *slice = NULL, *nested = NULL;
    const char *names[AXES];
    for (int32_t i = 0; i < given->slice_count; i++)
        names[i] = given->names[given->slice_axes[i]];
    reshard_status status =
        reshard_device_mesh_slice(device_mesh, given->slice_count, names, &slice);
    if (status == RESHARD_OK) {
        s->slice_position = info_device_mesh(slice).position;
        for (int32_t i = 0; i < given->slice_count; i++)
            s->slice_coordinates[i] = info_device_mesh(slice).coordinates[i];
        status = gather(info_device_mesh(slice).group, rank, &s->slice_size, s->slice_members);
    }
    /* The last axis of the slice, as a slice of it. */
    if (status == RESHARD_OK)
        status = reshard_device_mesh_slice(slice, 1, &names[given->slice_count - 1], &nested);
    if (status == RESHARD_OK)
        status = gather(info_device_mesh(nested).group, rank, &s->nested_size, s->nested_members);
    reshard_device_mesh_release(nested);
    reshard_device_mesh_release(slice);
    return status;
}

static reshard_status look(void *user, reshard_group *group)
{
    trial *t = user;
    const mesh_case *given = t->given;
    int32_t rank = reshard_group_rank(group);
    seen *s = &t->seen[rank];
    reshard_mesh *mesh = NULL;
    reshard_device_mesh *device_mesh = NULL;
    reshard_status status = reshard_mesh_create(NULL, given->axis_count, given->names, given->sizes,
                                                given->has_ranks ? given->ranks : NULL, &mesh);
    if (status == RESHARD_OK)
        status = reshard_device_mesh_create(NULL, group, mesh, &device_mesh);
    reshard_mesh_release(mesh);
    if (status != RESHARD_OK)
        return status;
    reshard_group *of_mesh = info_device_mesh(device_mesh).group;
    s->position = info_device_mesh(device_mesh).position;
    s->has_group = of_mesh != NULL;
    s->group_rank = of_mesh != NULL ? reshard_group_rank(of_mesh) : -1;
    status = gather(of_mesh, rank, &s->group_size, s->group_members);
    for (int32_t a = 0; a < given->axis_count && status == RESHARD_OK; a++)
        status = look_at_axis(given, device_mesh, a, rank, s);
    if (status == RESHARD_OK)
        status = look_at_slice(given, device_mesh, rank, s);
    reshard_device_mesh_release(reshard_device_mesh_retain(device_mesh));
    reshard_device_mesh_release(device_mesh);
    return status;
}

/* ---- what it should be ----------------------------------------------------------------------- */

static int32_t mesh_size(const mesh_case *given)
{
    int32_t size = 1;
    for (int32_t a = 0; a < given->axis_count; a++)
        size *= given->sizes[a];
    return size;
}

static int32_t rank_at(const mesh_case *given, int32_t position)
{
    return given->has_ranks ? given->ranks[position] : position;
}

static int32_t coordinate_at(const mesh_case *given, int32_t position, int32_t axis)
{
    for (int32_t a = given->axis_count - 1; a > axis; a--)
        position /= given->sizes[a];
    return position % given->sizes[axis];
}

/* Members of a sub-group are the positions that agree with this one on all other axes: in the order
 * of positions. */
static int32_t list_members(const mesh_case *given, int32_t position, int32_t count,
                            const int32_t *along, int32_t *out_ranks)
{
    int32_t found = 0;
    for (int32_t p = 0; p < mesh_size(given); p++) {
        bool member = true;
        for (int32_t a = 0; a < given->axis_count; a++) {
            bool varies = false;
            for (int32_t i = 0; i < count; i++)
                varies = varies || along[i] == a;
            member = member &&
                     (varies || coordinate_at(given, p, a) == coordinate_at(given, position, a));
        }
        if (member)
            out_ranks[found++] = rank_at(given, p);
    }
    return found;
}

static void check_members(const mesh_case *given, int32_t position, int32_t count,
                          const int32_t *along, int32_t size, const int32_t *members)
{
    int32_t wanted[RANKS_MAX];
    assert_int_equal(size, list_members(given, position, count, along, wanted));
    assert_memory_equal(members, wanted, (size_t)size * sizeof *wanted);
}

static void check_inside(const mesh_case *given, int32_t position, const seen *s)
{
    static const int32_t all[] = {0, 1, 2};
    assert_int_equal(s->position, position);
    assert_true(s->has_group);
    assert_int_equal(s->group_rank, position);
    check_members(given, position, given->axis_count, all, s->group_size, s->group_members);
    int32_t slice_position = 0;
    for (int32_t a = 0; a < given->axis_count; a++) {
        assert_int_equal(s->coordinates[a], coordinate_at(given, position, a));
        assert_int_equal(s->axis_rank[a], s->coordinates[a]);
        check_members(given, position, 1, &a, s->axis_size[a], s->axis_members[a]);
    }
    for (int32_t i = 0; i < given->slice_count; i++) {
        int32_t coordinate = coordinate_at(given, position, given->slice_axes[i]);
        assert_int_equal(s->slice_coordinates[i], coordinate);
        slice_position = slice_position * given->sizes[given->slice_axes[i]] + coordinate;
    }
    assert_int_equal(s->slice_position, slice_position);
    check_members(given, position, given->slice_count, given->slice_axes, s->slice_size,
                  s->slice_members);
    check_members(given, position, 1, &given->slice_axes[given->slice_count - 1], s->nested_size,
                  s->nested_members);
}

static void check_outside(const mesh_case *given, const seen *s)
{
    assert_int_equal(s->position, -1);
    assert_false(s->has_group);
    for (int32_t a = 0; a < given->axis_count; a++) {
        assert_int_equal(s->coordinates[a], -1);
        assert_int_equal(s->axis_size[a], 0);
    }
    assert_int_equal(s->slice_position, -1);
    assert_int_equal(s->slice_size, 0);
    assert_int_equal(s->nested_size, 0);
}

static void test_device_mesh__places(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            trial t = {.given = &cases[i]};
            if (run_way(&ways[w], cases[i].world, look, &t) != RESHARD_OK)
                fail_msg("%s, case %zu: %s", ways[w].name, i, reshard_error_text());
            for (int32_t rank = 0; rank < cases[i].world; rank++) {
                const seen *s = &t.seen[rank];
                int32_t position = -1;
                for (int32_t p = 0; p < mesh_size(&cases[i]); p++)
                    position = rank_at(&cases[i], p) == rank ? p : position;
                for (int32_t a = 0; a < cases[i].axis_count; a++)
                    assert_true(s->named_group[a]);
                if (position >= 0)
                    check_inside(&cases[i], position, s);
                else
                    check_outside(&cases[i], s);
            }
        }
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

enum { REFUSALS = 9, GROUP = 4 };

typedef struct refused {
    reshard_status status[REFUSALS][GROUP];
    char text[REFUSALS][GROUP][TEXT_MAX];
    int32_t sum[GROUP];
} refused;

static reshard_status create(reshard_group *group, const char *first, const char *second,
                             int32_t rows, int32_t columns, const int32_t *ranks,
                             reshard_device_mesh **out_device_mesh)
{
    const char *names[] = {first, second};
    int32_t sizes[] = {rows, columns};
    reshard_mesh *mesh = NULL;
    reshard_status status = reshard_mesh_create(NULL, 2, names, sizes, ranks, &mesh);
    if (status == RESHARD_OK)
        status = reshard_device_mesh_create(NULL, group, mesh, out_device_mesh);
    reshard_mesh_release(mesh);
    return status;
}

static void note(refused *r, int which, int32_t rank, reshard_status status)
{
    r->status[which][rank] = status;
    (void)snprintf(r->text[which][rank], TEXT_MAX, "%s", reshard_error_text());
}

static reshard_status be_refused(void *user, reshard_group *group)
{
    refused *r = user;
    static const int32_t high[] = {0, 1, 2, 4}, turned[] = {0, 1, 3, 2};
    int32_t rank = reshard_group_rank(group), one = 1;
    reshard_device_mesh *mesh = NULL, *slice = NULL;
    reshard_group *named = NULL;
    note(r, 0, rank, create(group, "a", "b", 2, 2, high, &mesh));
    note(r, 1, rank, create(group, "a", rank == 2 ? "c" : "b", 2, 2, NULL, &mesh));
    note(r, 2, rank, create(group, "a", "b", rank == 0 ? 4 : 2, rank == 0 ? 1 : 2, NULL, &mesh));
    note(r, 3, rank, create(group, "a", "b", 2, 2, rank == 3 ? turned : NULL, &mesh));
    reshard_status status = create(group, "a", "b", 2, 2, NULL, &mesh);
    if (status != RESHARD_OK)
        return status;
    const char *unknown[] = {"a", "x"}, *late[] = {"b", "a"}, *other[] = {rank == 1 ? "b" : "a"};
    note(r, 4, rank, reshard_device_mesh_slice(mesh, 2, unknown, &slice));
    note(r, 5, rank, reshard_device_mesh_slice(mesh, 2, late, &slice));
    note(r, 6, rank, reshard_device_mesh_slice(mesh, 1, other, &slice));
    note(r, 7, rank, reshard_device_mesh_slice(mesh, 0, NULL, &slice));
    note(r, 8, rank, reshard_device_mesh_group_of(mesh, "y", &named));
    if (reshard_device_mesh_group_of(mesh, "", &named) != RESHARD_ERR_NOT_FOUND)
        status = reshard_error_set(RESHARD_ERR_CHECK, "an axis without a name was found");
    if (status == RESHARD_OK)
        status = reshard_exchange_run(NULL, info_device_mesh(mesh).axis_groups[0],
                                      RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE,
                                                      .dtype = RESHARD_I32,
                                                      .reduction = RESHARD_SUM, .count = 1,
                                                      .source = &one, .target = &r->sum[rank]),
                                      NULL);
    reshard_device_mesh_release(mesh);
    reshard_device_mesh_release(NULL);
    return status;
}

static void test_device_mesh__refusals(void **state)
{
    (void)state;
    static const struct {
        reshard_status status;
        const char *words;
    } wanted[REFUSALS] = {
        {RESHARD_ERR_RANGE, "the mesh has rank 4, the group only 4"},
        {RESHARD_ERR_MISMATCH, "rank 2: device mesh: what is passed differs"},
        {RESHARD_ERR_MISMATCH, "rank 0: device mesh: what is passed differs"},
        {RESHARD_ERR_MISMATCH, "rank 3: device mesh: what is passed differs"},
        {RESHARD_ERR_NOT_FOUND, "rank 0: device mesh: axis \"x\" does not exist"},
        {RESHARD_ERR_INVALID, "axis \"a\" is named too late"},
        {RESHARD_ERR_MISMATCH, "rank 1: slice of a device mesh: what is passed differs"},
        {RESHARD_ERR_INVALID, "no axes"},
        {RESHARD_ERR_NOT_FOUND, "\"y\""},
    };
    for (int w = 0; w < WAYS; w++) {
        refused r;
        memset(&r, 0, sizeof r);
        assert_int_equal(run_way(&ways[w], GROUP, be_refused, &r), RESHARD_OK);
        for (int i = 0; i < REFUSALS; i++) {
            for (int rank = 0; rank < GROUP; rank++) {
                if (r.status[i][rank] != wanted[i].status ||
                    strstr(r.text[i][rank], wanted[i].words) == NULL)
                    fail_msg("%s, refusal %d: rank %d got %s, \"%s\"", ways[w].name, i, rank,
                             reshard_status_name(r.status[i][rank]), r.text[i][rank]);
            }
        }
        for (int rank = 0; rank < GROUP; rank++)
            assert_int_equal(r.sum[rank], 2);
    }
}

/* ---- no memory ------------------------------------------------------------------------------- */

typedef struct shortage {
    reshard_context *context; /* of the last rank */
    reshard_status status[GROUP];
} shortage;

static reshard_status run_short(void *user, reshard_group *group)
{
    shortage *s = user;
    int32_t rank = reshard_group_rank(group), sizes[] = {1, 2, 2};
    const char *names[] = {"one", "a", "b"}, *some[] = {"one", "a"};
    reshard_mesh *mesh = NULL;
    reshard_device_mesh *device_mesh = NULL, *slice = NULL;
    reshard_status status = reshard_mesh_create(NULL, 3, names, sizes, NULL, &mesh);
    if (status != RESHARD_OK)
        return status;
    s->status[rank] = reshard_device_mesh_create(rank == GROUP - 1 ? s->context : NULL, group, mesh,
                                                 &device_mesh);
    if (s->status[rank] == RESHARD_OK)
        s->status[rank] = reshard_device_mesh_slice(device_mesh, 2, some, &slice);
    reshard_device_mesh_release(slice);
    reshard_device_mesh_release(device_mesh);
    reshard_mesh_release(mesh);
    return RESHARD_OK;
}

static reshard_status attempt_short(reshard_context *context, void *user)
{
    shortage *s = user;
    s->context = context;
    reshard_status status = run_way(&ways[1], GROUP, run_short, s);
    for (int32_t rank = 1; rank < GROUP && status == RESHARD_OK; rank++) {
        if (s->status[rank] != s->status[0])
            status = reshard_error_set(RESHARD_ERR_CHECK, "ranks do not agree");
    }
    return status == RESHARD_OK ? s->status[0] : status;
}

static void test_device_mesh__no_memory(void **state)
{
    (void)state;
    shortage s = {0};
    words said = {0};
    if (!context_fail_each(attempt_short, &s, &said))
        fail_msg("%s", said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_mesh__places),
        cmocka_unit_test(test_device_mesh__refusals),
        cmocka_unit_test(test_device_mesh__no_memory),
    };
    return cmocka_run_group_tests_name("device mesh", tests, NULL, NULL);
}
