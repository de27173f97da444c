/* SPDX-License-Identifier: Apache-2.0 */
/*
 * use.c - a program of the day the headers were frozen. It is compiled with them, and runs with
 * today's library: options and reports have the sizes they had then, and some calls of each header
 * do what they did. Succeeds silently; else it prints the line that did not hold.
 */
#include <reshard/reshard.h>
#include <reshard/sim.h>
#include <reshard/transport.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures;

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            failures++;                                                                      \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, reshard_error_text()); \
        }                                                                                    \
    } while (0)
#define CHECK_OK(call) CHECK((call) == RESHARD_OK)

enum { RANKS = 2, ROWS = 4, COLUMNS = 6, COUNT = ROWS * COLUMNS };

/* ---- contexts, specs, layouts, plans --------------------------------------------------------- */

static int count_allocations;

static void *allocate(void *user, size_t bytes)
{
    (void)user;
    count_allocations++;
    return malloc(bytes);
}

static void *resize(void *user, void *memory, size_t bytes_old, size_t bytes_new)
{
    (void)user, (void)bytes_old;
    return realloc(memory, bytes_new);
}

static void release(void *user, void *memory, size_t bytes)
{
    (void)user, (void)bytes;
    free(memory);
}

static void use_plans(void)
{
    const reshard_allocator allocator = {
        .allocate = allocate, .resize = resize, .release = release};
    const reshard_context_options options = {.size = sizeof options, .allocator = &allocator};
    const reshard_plan_options planning = {.size = sizeof planning, .relabel = 1};
    const int64_t shape[] = {ROWS, COLUMNS};
    reshard_context *context = NULL;
    reshard_layout *rows = NULL, *columns = NULL;
    reshard_plan *plan = NULL;
    CHECK(reshard_abi_version() == RESHARD_ABI_VERSION);
    CHECK(strcmp(reshard_dtype_name(RESHARD_BF16), "bf16") == 0);
    CHECK(strcmp(reshard_status_name(RESHARD_ERR_CHECK), "RESHARD_ERR_CHECK") == 0);
    CHECK_OK(reshard_context_create(&options, &context));
    CHECK_OK(reshard_layout_parse(context, "2: S(0)", 2, shape, &rows));
    CHECK_OK(reshard_layout_parse(context, "x=2: S(1)", 2, shape, &columns));
    CHECK(strcmp(reshard_mesh_axis_name(reshard_spec_mesh(reshard_layout_spec(columns)), 0), "x") ==
          0);
    CHECK(reshard_layout_rank_count(rows) == RANKS && !reshard_layout_equals(rows, columns));
    CHECK_OK(reshard_plan_create_simple(context, rows, columns, RESHARD_I32, &planning, &plan));
    CHECK_OK(reshard_plan_check(plan));
    CHECK(reshard_plan_rank_count(plan) == RANKS);
    CHECK(reshard_layout_parse(context, "2: S(7)", 2, shape, &columns) != RESHARD_OK);
    CHECK(strstr(reshard_error_text(), "7") != NULL);
    reshard_plan_release(plan);
    reshard_layout_release(rows);
    reshard_layout_release(columns);
    CHECK(reshard_context_bytes(context) == 0 && count_allocations > 0);
    reshard_context_destroy(context);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

typedef struct facts {
    int wrong[RANKS];
    int32_t axis_sizes[RANKS];
} facts;

/* Rows to columns: rank r has rows 2r and 2r+1, and gets columns 3r to 3r+2. */
static reshard_status move(facts *found, reshard_group *group, reshard_plan *plan)
{
    const reshard_exec_options options = {.size = sizeof options, .verify = 1};
    int32_t rank = reshard_group_rank(group), from[COUNT / RANKS], to[COUNT / RANKS];
    reshard_exec *exec = NULL;
    for (int32_t i = 0; i < COUNT / RANKS; i++)
        from[i] = rank * COUNT / RANKS + i;
    reshard_status status = reshard_exec_create(NULL, plan, group, &options, &exec);
    if (status == RESHARD_OK)
        status = reshard_exec_start(exec, (const void *[]){from}, (void *[]){to});
    if (status == RESHARD_OK)
        status = reshard_exec_wait(exec);
    for (int32_t i = 0; i < COUNT / RANKS && status == RESHARD_OK; i++)
        found->wrong[rank] += to[i] != i / 3 * COLUMNS + rank * 3 + i % 3;
    reshard_exec_destroy(exec);
    return status;
}

static reshard_status be_rank(void *user, reshard_group *group)
{
    facts *found = user;
    const int64_t shape[] = {ROWS, COLUMNS};
    reshard_layout *rows = NULL, *columns = NULL;
    reshard_plan *plan = NULL;
    reshard_mesh *mesh = NULL;
    reshard_device_mesh *device_mesh = NULL;
    int32_t rank = reshard_group_rank(group), mine = rank + 1, sum = 0;
    reshard_status status = reshard_layout_parse(NULL, "2: S(0)", 2, shape, &rows);
    if (status == RESHARD_OK)
        status = reshard_layout_parse(NULL, "2: S(1)", 2, shape, &columns);
    if (status == RESHARD_OK)
        status = reshard_plan_create_simple(NULL, rows, columns, RESHARD_I32, NULL, &plan);
    if (status == RESHARD_OK)
        status = move(found, group, plan);
    if (status == RESHARD_OK)
        status = reshard_all_reduce(NULL, group, RESHARD_I32, RESHARD_SUM, 1, &mine, &sum);
    found->wrong[rank] += sum != 3;
    if (status == RESHARD_OK)
        status = reshard_mesh_parse(NULL, "x=2", &mesh);
    if (status == RESHARD_OK)
        status = reshard_device_mesh_create(NULL, group, mesh, &device_mesh);
    if (status == RESHARD_OK)
        status = reshard_device_mesh_size_of(device_mesh, "x", &found->axis_sizes[rank]);
    reshard_device_mesh_release(device_mesh);
    reshard_mesh_release(mesh);
    reshard_plan_release(plan);
    reshard_layout_release(rows);
    reshard_layout_release(columns);
    return status;
}

static void use_ranks(void)
{
    facts threads = {0}, simulated = {0};
    const reshard_sim_options options = {.size = sizeof options, .seed = 7};
    CHECK_OK(reshard_group_run(NULL, RANKS, be_rank, &threads));
    CHECK_OK(reshard_sim_run(NULL, RANKS, &options, be_rank, &simulated));
    for (int i = 0; i < RANKS; i++) {
        CHECK(threads.wrong[i] == 0 && threads.axis_sizes[i] == RANKS);
        CHECK(simulated.wrong[i] == 0 && simulated.axis_sizes[i] == RANKS);
    }
    reshard_endpoint endpoint = {.size = sizeof endpoint, .rank = 1, .rank_count = 1};
    reshard_group *none = NULL;
    CHECK(reshard_group_create(NULL, &endpoint, &none) != RESHARD_OK);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

typedef struct saved {
    const char *path;
    int32_t numbers[COUNT];
} saved;

static reshard_status save(void *user, reshard_group *group)
{
    saved *s = user;
    const int64_t shape[] = {ROWS, COLUMNS};
    const reshard_checkpoint_save_options options = {.size = sizeof options, .no_sync = 1};
    reshard_layout *layout = NULL;
    void *shard = s->numbers;
    reshard_status status = reshard_layout_parse(NULL, "1: R", 2, shape, &layout);
    reshard_live_tensor tensor = {
        .name = "w", .dtype = RESHARD_I32, .layout = layout, .shards = &shard};
    if (status == RESHARD_OK)
        status = reshard_checkpoint_save(NULL, group, s->path, 1, &tensor, &options);
    reshard_layout_release(layout);
    return status;
}

static void use_checkpoint(const char *path, const saved *s)
{
    const reshard_checkpoint_options options = {.size = sizeof options};
    reshard_checkpoint *checkpoint = NULL;
    int32_t numbers[COUNT] = {0};
    int64_t index = -1;
    CHECK_OK(reshard_checkpoint_open(NULL, path, &options, &checkpoint));
    if (checkpoint == NULL)
        return;
    CHECK_OK(reshard_checkpoint_find(checkpoint, "w", 1, &index));
    CHECK_OK(reshard_checkpoint_read(checkpoint, index, NULL, numbers, sizeof numbers));
    CHECK(memcmp(numbers, s->numbers, sizeof numbers) == 0);
    CHECK(reshard_checkpoint_bytes(checkpoint) == sizeof numbers);
    reshard_digests *digests = NULL;
    const reshard_digest_options digesting = {.size = sizeof digesting, .threads = 1};
    CHECK_OK(reshard_checkpoint_digest(checkpoint, &digesting, &digests));
    CHECK(digests != NULL && digests->count == 1);
    reshard_digests_destroy(digests);
    reshard_checkpoint_destroy(checkpoint);
}

static void use_files(void)
{
    char folder[] = "/tmp/reshard-abi-XXXXXX", source[64], target[64], command[128];
    saved s = {.path = source};
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(source, sizeof source, "%s/source", folder);
    (void)snprintf(target, sizeof target, "%s/target", folder);
    for (int32_t i = 0; i < COUNT; i++)
        s.numbers[i] = 1000 + i;
    CHECK_OK(reshard_group_run(NULL, 1, save, &s));
    use_checkpoint(source, &s);
    const reshard_conversion_options options = {
        .size = sizeof options, .to = "tp=2", .rules = "fsdp", .threads = 1};
    const reshard_conversion_run_options running = {.size = sizeof running, .verify = 1};
    reshard_conversion_report report = {.size = sizeof report};
    /* fsdp has no tp */
    CHECK(reshard_convert(NULL, source, target, NULL, &options, &running, &report) != RESHARD_OK);
    const reshard_conversion_options split = {
        .size = sizeof split, .to = "fsdp=2", .rules = "fsdp", .threads = 1};
    CHECK_OK(reshard_convert(NULL, source, target, NULL, &split, &running, &report));
    CHECK(report.size == sizeof report && report.bytes_written == sizeof s.numbers);
    CHECK(strlen(report.digest) == RESHARD_DIGEST_TEXT - 1);
    use_checkpoint(target, &s);
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

int main(void)
{
    use_plans();
    use_ranks();
    use_files();
    return failures != 0;
}
