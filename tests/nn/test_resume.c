/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_resume.c - training that is interrupted goes on as if it were not: bit for bit on the same
 * ranks, and as one rank would on others, through a checkpoint on disk. Optimizer state in and out
 * is all or nothing.
 */
#include "tests/nn/folder.h"
#include "tests/nn/gpt.h"
#include "tests/support/harness.h"
#include "tests/support/info.h"

#include <math.h>

enum { STEPS_MAX = 4, LEGS = 4 };

/* Fewer where everything is slow; an even number. */
static int64_t step_count(void)
{
    return harness_scale() < 1 ? STEPS_MAX / 2 : STEPS_MAX;
}

/* ---- a model in training --------------------------------------------------------------------- */

typedef struct trainer {
    reshard_device_mesh *mesh;
    reshard_module *gpt;
    reshard_optimizer *optimizer;
    reshard_named_tensors *state; /* of both */
} trainer;

static void join_state(trainer *t)
{
    reshard_named_tensors *weights = NULL, *moments = NULL;
    MUST(reshard_module_state_dict(t->gpt, &weights));
    MUST(reshard_optimizer_state_dict(t->optimizer, &moments));
    MUST(reshard_named_tensors_join(weights, moments, &t->state));
    reshard_named_tensors_destroy(weights);
    reshard_named_tensors_destroy(moments);
}

static reshard_status begin(trainer *t, reshard_group *group, bool adamw, reshard_dtype dtype)
{
    reshard_adamw_options options = {
        .size = sizeof options, .learning_rate = 1e-2, .weight_decay = 0.1};
    reshard_sgd_options sgd = {.size = sizeof sgd, .learning_rate = 0.1, .momentum = 0.9};
    *t = (trainer){.mesh = make_line(group), .gpt = make_gpt(dtype)};
    TRY(spread(t->gpt, group, t->mesh, NULL));
    if (adamw)
        TRY(reshard_adamw_create(NULL, t->gpt, &options, &t->optimizer));
    else
        TRY(reshard_sgd_create(NULL, t->gpt, &sgd, &t->optimizer));
    join_state(t);
    return RESHARD_OK;
}

static void end(trainer *t)
{
    reshard_named_tensors_destroy(t->state);
    reshard_optimizer_destroy(t->optimizer);
    reshard_module_release(t->gpt);
    reshard_device_mesh_release(t->mesh);
}

static reshard_status go(trainer *t, reshard_group *group, int64_t first, int64_t steps,
                         double *losses)
{
    for (int64_t i = first; i < first + steps; i++) {
        double loss = 0, norm = 0;
        TRY(forward_backward(t->gpt, i, &loss));
        TRY(reshard_optimizer_clip(t->optimizer, group, 1, &norm));
        TRY(reshard_optimizer_step(t->optimizer));
        reshard_optimizer_clear_gradients(t->optimizer);
        if (losses != NULL && reshard_group_rank(group) == 0)
            losses[i] = loss;
    }
    return RESHARD_OK;
}

static bool same_bits(const reshard_tensor *a, const reshard_tensor *b)
{
    bool spread = reshard_tensor_layout(a) != NULL;
    int64_t count = spread ? info_tensor(a).local_shard_count : 1;
    for (int64_t i = 0; i < count; i++) {
        const reshard_tensor *x = spread ? reshard_tensor_local_shard(a, i) : a;
        const reshard_tensor *y = spread ? reshard_tensor_local_shard(b, i) : b;
        size_t bytes = (size_t)reshard_tensor_volume(x) *
                       (size_t)(reshard_dtype_bits(reshard_tensor_dtype(x)) / 8);
        if (bytes != 0 && memcmp(reshard_tensor_data(x), reshard_tensor_data(y), bytes) != 0)
            return false;
    }
    return true;
}

static reshard_status compare_states(const trainer *a, const trainer *b)
{
    CHECK(a->state->count == b->state->count);
    for (int64_t i = 0; i < a->state->count; i++) {
        CHECK(strcmp(a->state->items[i].name, b->state->items[i].name) == 0);
        if (!same_bits(a->state->items[i].tensor, b->state->items[i].tensor))
            return ranks_say(__FILE__, __LINE__, a->state->items[i].name, RESHARD_ERR_CHECK);
    }
    return RESHARD_OK;
}

/* ---- the same ranks: bit for bit ------------------------------------------------------------- */

static reshard_status body_same_ranks(void *user, reshard_group *group)
{
    bool adamw = *(const bool *)user;
    int64_t steps = step_count();
    trainer whole, before, after;
    TRY(begin(&whole, group, adamw, RESHARD_F32));
    TRY(begin(&before, group, adamw, RESHARD_F32));
    TRY(begin(&after, group, adamw, RESHARD_F32));
    TRY(go(&whole, group, 0, steps, NULL));
    TRY(go(&before, group, 0, steps / 2, NULL));
    reshard_load_options lax = {.size = sizeof lax, .allow_unexpected = 1};
    TRY(reshard_module_load_state_dict(after.gpt, before.state->count, before.state->items, &lax));
    /* weights alone are not enough */
    CHECK(compare_states(&after, &before) == RESHARD_ERR_CHECK);
    TRY(reshard_optimizer_load_state_dict(after.optimizer, before.state->count, before.state->items,
                                          &lax));
    TRY(compare_states(&after, &before));
    TRY(go(&after, group, steps / 2, steps / 2, NULL));
    TRY(compare_states(&after, &whole));
    CHECK(compare_states(&before, &whole) == RESHARD_ERR_CHECK);
    end(&whole);
    end(&before);
    end(&after);
    return RESHARD_OK;
}

static void test_same_ranks__bit_for_bit(void **state)
{
    (void)state;
    for (int32_t size = 1; size <= 4; size += harness_scale() < 1 ? 2 : 1)
        run_ranks(size, body_same_ranks, &(bool){true});
    run_ranks(3, body_same_ranks, &(bool){false}); /* SGD with momentum */
}

/* ---- other ranks, through a checkpoint ------------------------------------------------------- */

typedef struct leg {
    int64_t first, steps;
    char load[64], save[64]; /* paths; empty: none */
    double *losses;          /* by step */
} leg;

static reshard_status load(const trainer *t, reshard_group *group, const char *path)
{
    reshard_checkpoint *checkpoint = NULL;
    TRY(reshard_checkpoint_open(NULL, path, NULL, &checkpoint));
    CHECK(info_checkpoint(checkpoint).tensor_count == t->state->count);
    TRY(reshard_checkpoint_load_tensors(checkpoint, group, t->state->count, t->state->items, NULL));
    reshard_checkpoint_destroy(checkpoint);
    return RESHARD_OK;
}

/* Each element of what was loaded against what the files hold of the whole tensor, as one box. */
static reshard_status compare_with_files(const trainer *t, const char *path)
{
    reshard_checkpoint *checkpoint = NULL;
    TRY(reshard_checkpoint_open(NULL, path, NULL, &checkpoint));
    for (int64_t i = 0; i < t->state->count; i++) {
        static _Thread_local char expected[1 << 16], found[1 << 16];
        const char *name = t->state->items[i].name;
        reshard_tensor *tensor = t->state->items[i].tensor;
        int64_t index = 0;
        reshard_scope *scope = NULL;
        MUST(reshard_scope_open(NULL, &scope));
        if (reshard_tensor_layout(tensor) != NULL)
            tensor = reshard_tensor_full(tensor);
        CHECK(tensor != NULL);
        size_t bytes = (size_t)reshard_tensor_volume(tensor) *
                       (size_t)(reshard_dtype_bits(reshard_tensor_dtype(tensor)) / 8);
        CHECK(bytes <= sizeof expected);
        TRY(reshard_checkpoint_find(checkpoint, name, strlen(name), &index));
        TRY(reshard_checkpoint_read(checkpoint, index, NULL, expected, bytes));
        MUST(reshard_tensor_copy_to(tensor, found, bytes));
        CHECK(memcmp(expected, found, bytes) == 0);
        MUST(reshard_scope_close(scope));
    }
    reshard_checkpoint_destroy(checkpoint);
    return RESHARD_OK;
}

static reshard_status body_leg(void *user, reshard_group *group)
{
    const leg *l = user;
    trainer t;
    TRY(begin(&t, group, true, RESHARD_F32));
    if (l->load[0] != 0) {
        TRY(load(&t, group, l->load));
        TRY(compare_with_files(&t, l->load));
    }
    TRY(go(&t, group, l->first, l->steps, l->losses));
    if (l->save[0] != 0) {
        reshard_checkpoint_save_options options = {.size = sizeof options, .no_sync = 1};
        TRY(reshard_checkpoint_save_tensors(NULL, group, l->save, t.state->count, t.state->items,
                                            &options));
        TRY(compare_with_files(&t, l->save));
    }
    end(&t);
    return RESHARD_OK;
}

/* 3 ranks cut nothing evenly here: not 4 heads, 13 tokens, nor 16 columns. */
static void test_other_ranks__as_one_rank(void **state)
{
    (void)state;
    static const int32_t ranks[LEGS] = {4, 3, 1, 2};
    double one[LEGS * STEPS_MAX], many[LEGS * STEPS_MAX];
    int64_t steps = step_count();
    leg whole = {.steps = LEGS * steps, .losses = one};
    run_ranks(1, body_leg, &whole);
    for (int i = 0; i < LEGS; i++) {
        leg l = {.first = i * steps, .steps = steps, .losses = many};
        if (i > 0)
            (void)snprintf(l.load, sizeof l.load, "%s/%d", folder, i - 1);
        if (i + 1 < LEGS)
            (void)snprintf(l.save, sizeof l.save, "%s/%d", folder, i);
        run_ranks(ranks[i], body_leg, &l);
    }
    for (int i = 0; i < LEGS * steps; i++) {
        if (!(fabs(many[i] - one[i]) <= 1e-5 * one[i]))
            fail_msg("step %d: loss %.9g, and %.9g on one rank", i, many[i], one[i]);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* Of rank 1 alone, or of all. */
typedef struct wrong_state {
    const char *name;
    bool everywhere;
    reshard_status status;
    const char *words;
} wrong_state;

static reshard_status body_wrong(void *user, reshard_group *group)
{
    const wrong_state *wrong = user;
    trainer t, other;
    reshard_named_tensors *moments = NULL;
    reshard_named_tensor items[256];
    reshard_tensor *odd = make_zeros(RESHARD_F32, SHAPE(3));
    TRY(begin(&t, group, true, RESHARD_F32));
    TRY(begin(&other, group, true, RESHARD_F32));
    TRY(go(&t, group, 0, 2, NULL));
    MUST(reshard_optimizer_state_dict(t.optimizer, &moments));
    int64_t count = moments->count, last = count - 1;
    CHECK(count < 256);
    memcpy(items, moments->items, (size_t)count * sizeof *items);
    if (wrong->everywhere || reshard_group_rank(group) == 1) {
        if (strcmp(wrong->name, "missing") == 0)
            count--;
        else if (strcmp(wrong->name, "unexpected") == 0)
            items[count++] = (reshard_named_tensor){"h.9.exp_avg", odd};
        else
            items[last].tensor = strcmp(wrong->name, "shape") == 0 ? odd : NULL;
    }
    CHECK(reshard_optimizer_load_state_dict(other.optimizer, count, items, NULL) == wrong->status);
    CHECK(strstr(reshard_error_text(), wrong->words) != NULL);
    if (!wrong->everywhere)
        CHECK(strstr(reshard_error_text(), "rank 1") != NULL);
    TRY(reshard_group_barrier(group)); /* the group goes on */
    trainer fresh;
    TRY(begin(&fresh, group, true, RESHARD_F32));
    TRY(compare_states(&other, &fresh)); /* nothing was written */
    TRY(reshard_optimizer_load_state_dict(other.optimizer, moments->count, moments->items, NULL));
    reshard_named_tensors_destroy(moments);
    reshard_tensor_release(odd);
    end(&fresh);
    end(&t);
    end(&other);
    return RESHARD_OK;
}

static void test_load__all_or_nothing_on_all_ranks(void **state)
{
    (void)state;
    static wrong_state rows[] = {
        {"missing", true, RESHARD_ERR_NOT_FOUND, "ln.bias.exp_avg_sq\" is missing"},
        {"missing", false, RESHARD_ERR_NOT_FOUND, "ln.bias.exp_avg_sq\" is missing"},
        {"unexpected", true, RESHARD_ERR_NOT_FOUND, "\"h.9.exp_avg\" is unexpected"},
        {"unexpected", false, RESHARD_ERR_NOT_FOUND, "\"h.9.exp_avg\" is unexpected"},
        {"shape", true, RESHARD_ERR_INVALID, "f32 3 in what is loaded"},
        {"shape", false, RESHARD_ERR_INVALID, "f32 3 in what is loaded"},
        {"nothing", false, RESHARD_ERR_INVALID, "is NULL"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i += harness_scale() < 1 ? 3 : 1)
        run_ranks(3, body_wrong, &rows[i]);
}

/* ---- the checkpoint's side ------------------------------------------------------------------- */

static reshard_status body_refused(void *user, reshard_group *group)
{
    int32_t rank = reshard_group_rank(group);
    const int32_t pair[] = {0, 1};
    reshard_group *other = NULL;
    reshard_tensor *local = make_zeros(RESHARD_F32, SHAPE(4, 3));
    char path[64];
    reshard_checkpoint_save_options quick = {.size = sizeof quick, .no_sync = 1};
    (void)user;
    (void)snprintf(path, sizeof path, "%s/refused", folder);
    TRY(reshard_group_subset(group, 2, pair, &other));
    reshard_tensor *elsewhere = other != NULL ? distribute(other, "2: S(0)", local) : NULL;
    reshard_named_tensor items[] = {{"a", local}, {"b", rank == 0 ? elsewhere : local}};
    CHECK(reshard_checkpoint_save_tensors(NULL, group, path, 2, items, NULL) ==
          RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(), "rank 0") != NULL);
    CHECK(strstr(reshard_error_text(), "\"b\": it is distributed over another group") != NULL);
    items[1].tensor = rank == 2 ? NULL : local;
    CHECK(reshard_checkpoint_save_tensors(NULL, group, path, 2, items, NULL) ==
          RESHARD_ERR_INVALID);
    CHECK(access(path, F_OK) != 0);
    /* what is not dense is saved and loaded as it reads */
    float numbers[12] = {0}, zeros[12] = {0};
    const int64_t strides[] = {1, 4};
    reshard_tensor *turned = NULL;
    reshard_checkpoint *checkpoint = NULL;
    for (int i = 0; i < 12; i++)
        numbers[i] = (float)i;
    MUST(reshard_tensor_borrow(NULL, RESHARD_F32, SHAPE(4, 3), strides, numbers, NULL, NULL,
                               &turned));
    items[1].tensor = turned;
    TRY(reshard_checkpoint_save_tensors(NULL, group, path, 2, items, &quick));
    memcpy(numbers, zeros, sizeof zeros);
    TRY(reshard_checkpoint_open(NULL, path, NULL, &checkpoint));
    TRY(reshard_checkpoint_load_tensors(checkpoint, group, 2, items, NULL));
    for (int i = 0; i < 12; i++)
        CHECK(numbers[i] == (float)i);
    items[1].name = "c"; /* which is not there */
    CHECK(reshard_checkpoint_load_tensors(checkpoint, group, 2, items, NULL) ==
          RESHARD_ERR_NOT_FOUND);
    reshard_checkpoint_destroy(checkpoint);
    reshard_tensor_release(turned);
    reshard_tensor_release(elsewhere);
    reshard_tensor_release(local);
    reshard_group_release(other);
    return RESHARD_OK;
}

static void test_checkpoint__refused_and_strided(void **state)
{
    (void)state;
    run_ranks(3, body_refused, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_ranks__bit_for_bit),
        cmocka_unit_test(test_other_ranks__as_one_rank),
        cmocka_unit_test(test_load__all_or_nothing_on_all_ranks),
        cmocka_unit_test(test_checkpoint__refused_and_strided),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
