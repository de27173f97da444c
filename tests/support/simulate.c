/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulate.c - the slow executor; see simulate.h.
 */
#include "tests/support/simulate.h"

#include "plan/plan.h"
#include "tests/support/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (memory == NULL)
        abort();
    return memory;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void make_parts(simulate_buffer *buffer)
{
    size_t count = (size_t)buffer->count;
    buffer->parts = allocate(count * SIMULATE_PARTS_MAX, sizeof *buffer->parts);
    buffer->part_writes = allocate(count * SIMULATE_PARTS_MAX, 1);
    buffer->part_counts = allocate(count, sizeof *buffer->part_counts);
    buffer->part_reductions = allocate(count, sizeof *buffer->part_reductions);
    buffer->part_divisors = allocate(count, sizeof *buffer->part_divisors);
}

static void free_parts(simulate_buffer *buffer)
{
    free(buffer->parts);
    free(buffer->part_writes);
    free(buffer->part_counts);
    free(buffer->part_reductions);
    free(buffer->part_divisors);
    buffer->parts = NULL;
    buffer->part_writes = NULL;
    buffer->part_counts = NULL;
    buffer->part_reductions = NULL;
    buffer->part_divisors = NULL;
}

simulate_tensor *simulate_tensor_create(const reshard_layout *layout)
{
    reshard_shards *shards = NULL;
    if (reshard_layout_shards(layout, RESHARD_ALL_RANKS, &shards) != RESHARD_OK)
        abort();
    simulate_tensor *tensor = allocate(1, sizeof *tensor);
    tensor->count = shards->count;
    tensor->buffers = allocate((size_t)shards->count, sizeof *tensor->buffers);
    for (int64_t i = 0; i < shards->count; i++) {
        const reshard_shard *shard = &shards->items[i];
        simulate_buffer *buffer = &tensor->buffers[i];
        buffer->rank = shard->rank;
        buffer->index = shard->index;
        buffer->partial = shard->partial;
        buffer->reduction = shard->reduction;
        buffer->contributor = shard->contributor;
        buffer->contributor_count = shard->contributor_count;
        buffer->divisor = shard->divisor;
        buffer->count = oracle_volume(shard->ndim, shard->shape);
        buffer->values = allocate((size_t)buffer->count, sizeof *buffer->values);
        buffer->writes = allocate((size_t)buffer->count, sizeof *buffer->writes);
        for (int64_t j = 0; j < buffer->count; j++)
            buffer->values[j] = NAN;
    }
    reshard_shards_destroy(shards);
    return tensor;
}

void simulate_tensor_destroy(simulate_tensor *tensor)
{
    if (tensor == NULL)
        return;
    for (int64_t i = 0; i < tensor->count; i++) {
        free(tensor->buffers[i].values);
        free(tensor->buffers[i].writes);
        free_parts(&tensor->buffers[i]);
    }
    free(tensor->buffers);
    free(tensor);
}

simulate_buffer *simulate_find(const simulate_tensor *tensor, int32_t rank, int32_t index)
{
    int64_t low = 0, high = tensor->count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        simulate_buffer *buffer = &tensor->buffers[middle];
        if (buffer->rank == rank && buffer->index == index)
            return buffer;
        if (buffer->rank < rank || (buffer->rank == rank && buffer->index < index))
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

void simulate_clear(simulate_tensor *tensor)
{
    for (int64_t i = 0; i < tensor->count; i++)
        memset(tensor->buffers[i].values, 0, sizeof(double) * (size_t)tensor->buffers[i].count);
}

bool simulate_equal(const simulate_tensor *a, const simulate_tensor *b)
{
    for (int64_t i = 0; i < a->count; i++) {
        for (int64_t j = 0; j < a->buffers[i].count; j++) {
            double x = a->buffers[i].values[j], y = b->buffers[i].values[j];
            if (!(x >= y && x <= y) && !(isnan(x) && isnan(y)))
                return false;
        }
    }
    return true;
}

/* ---- combining ------------------------------------------------------------------------------- */

double simulate_reduce(reshard_reduction reduction, int32_t divisor, int32_t count,
                       const double *values)
{
    double result = values[0];
    for (int32_t i = 1; i < count; i++) {
        switch (reduction) {
        case RESHARD_PROD:
            result *= values[i];
            break;
        case RESHARD_MIN:
            result = values[i] < result ? values[i] : result;
            break;
        case RESHARD_MAX:
            result = values[i] > result ? values[i] : result;
            break;
        default:
            result += values[i];
            break;
        }
    }
    return reduction == RESHARD_AVG ? result / divisor : result;
}

static double identity_of(reshard_reduction reduction)
{
    switch (reduction) {
    case RESHARD_PROD:
        return 1.0;
    case RESHARD_MIN:
        return INFINITY;
    case RESHARD_MAX:
        return -INFINITY;
    default:
        return 0.0;
    }
}

static bool add_part(simulate_buffer *target, int64_t place, const reshard_move *move, double value,
                     words *said)
{
    int32_t count = move->contributor_count;
    if (target->parts == NULL)
        make_parts(target);
    if (target->part_counts[place] == 0)
        target->part_counts[place] = count;
    target->part_reductions[place] = move->reduction;
    target->part_divisors[place] = move->divisor;
    if (count != target->part_counts[place] || count > SIMULATE_PARTS_MAX ||
        move->contributor < 0 || move->contributor >= count)
        return words_say(said, "contributor %d of %d, where others are of %d",
                         (int)move->contributor, (int)count, (int)target->part_counts[place]);
    int64_t part = place * SIMULATE_PARTS_MAX + move->contributor;
    if (target->part_writes[part]++ != 0)
        return words_say(said, "rank %d shard %d place %lld: contributor %d comes twice",
                         (int)target->rank, (int)target->index, (long long)place,
                         (int)move->contributor);
    target->parts[part] = value;
    return true;
}

/* After a stage: reduces what COMBINE brought, in the order of contributors. */
static bool finish_combines(simulate_tensor *tensor, words *said)
{
    for (int64_t i = 0; i < tensor->count; i++) {
        simulate_buffer *buffer = &tensor->buffers[i];
        for (int64_t place = 0; buffer->parts != NULL && place < buffer->count; place++) {
            int32_t count = buffer->part_counts[place];
            const double *parts = &buffer->parts[place * SIMULATE_PARTS_MAX];
            int32_t there = 0;
            for (int32_t c = 0; c < count; c++)
                there += buffer->part_writes[place * SIMULATE_PARTS_MAX + c];
            if (count == 0)
                continue;
            if (there != count)
                return words_say(said, "rank %d shard %d place %lld: %d of %d contributors",
                                 (int)buffer->rank, (int)buffer->index, (long long)place,
                                 (int)there, (int)count);
            buffer->values[place] = simulate_reduce(buffer->part_reductions[place],
                                                    buffer->part_divisors[place], count, parts);
            buffer->writes[place]++;
        }
        free_parts(buffer);
    }
    return true;
}

/* ---- single moves ---------------------------------------------------------------------------- */

typedef struct stage_state {
    simulate_run *run;
    int32_t stage;
    simulate_tensor *source, *target;
    bool source_is_intermediate, adjoint;
    uint64_t item_bytes;
} stage_state;

static bool write_element(const stage_state *state, const reshard_move *move,
                          const simulate_buffer *source, int64_t source_place,
                          simulate_buffer *target, int64_t target_place, words *said)
{
    double value = source != NULL ? source->values[source_place] : identity_of(move->reduction);
    if (source != NULL && state->run->watch != NULL)
        state->run->watch(state->run->user, state->stage, move, source_place, target_place);
    if (source != NULL && state->source_is_intermediate && !state->adjoint &&
        source->writes[source_place] == 0)
        return words_say(said, "rank %d reads an intermediate element that nobody wrote",
                         (int)source->rank);
    switch (move->kind) {
    case RESHARD_MOVE_COMBINE:
        return add_part(target, target_place, move, value, said);
    case RESHARD_MOVE_ADD:
        if (move->divisor < 1)
            return words_say(said, "an addition divided by %d", (int)move->divisor);
        target->values[target_place] += value / move->divisor;
        break;
    default:
        target->values[target_place] = value;
        break;
    }
    target->writes[target_place]++;
    return true;
}

static bool apply_elements(const stage_state *state, const reshard_move *move,
                           const simulate_buffer *source, simulate_buffer *target, words *said)
{
    int64_t volume = oracle_volume(move->ndim, move->size);
    if (volume < 1)
        return words_say(said, "a move of no elements");
    for (int64_t i = 0; i < volume; i++) {
        int64_t rest = i, source_place = move->source_at, target_place = move->target_at;
        for (int32_t d = move->ndim - 1; d >= 0; d--) {
            int64_t x = rest % move->size[d];
            rest /= move->size[d];
            source_place += source != NULL ? x * move->source_strides[d] : 0;
            target_place += x * move->target_strides[d];
        }
        if (target_place < 0 || target_place >= target->count ||
            (source != NULL && (source_place < 0 || source_place >= source->count)))
            return words_say(said, "a move from rank %d to rank %d goes out of a buffer",
                             (int)move->source_rank, (int)move->target_rank);
        if (!write_element(state, move, source, source_place, target, target_place, said))
            return false;
    }
    if (source != NULL) {
        simulate_run *run = state->run;
        run->matrix[((int64_t)state->stage * run->rank_count + move->source_rank) *
                        run->rank_count +
                    move->target_rank] += (uint64_t)volume * state->item_bytes;
    }
    state->run->moves++;
    return true;
}

static bool apply_single(const stage_state *state, const reshard_move *move, words *said)
{
    int32_t rank_count = state->run->rank_count;
    bool fill = move->kind == RESHARD_MOVE_FILL;
    if (move->target_rank < 0 || move->target_rank >= rank_count ||
        (!fill && (move->source_rank < 0 || move->source_rank >= rank_count)) ||
        (fill && move->source_rank != -1))
        return words_say(said, "a move from rank %d to rank %d", (int)move->source_rank,
                         (int)move->target_rank);
    if ((move->kind == RESHARD_MOVE_ADD) != state->adjoint && !fill &&
        move->kind != RESHARD_MOVE_COPY)
        return words_say(said, "a move of kind %d does not belong here", (int)move->kind);
    simulate_buffer *target = simulate_find(state->target, move->target_rank, move->target_shard);
    const simulate_buffer *source =
        fill || state->source == NULL
            ? NULL
            : simulate_find(state->source, move->source_rank, move->source_shard);
    if (target == NULL || (source == NULL && !fill))
        return words_say(said, "a move from rank %d shard %d to rank %d shard %d: no such shard",
                         (int)move->source_rank, (int)move->source_shard, (int)move->target_rank,
                         (int)move->target_shard);
    return apply_elements(state, move, source, target, said);
}

/* ---- records --------------------------------------------------------------------------------- */

typedef enum role { RECEIVE, SEND, KEEP } role;

/* Goes through the loops like an odometer, the last one fastest. */
static bool apply_record(const stage_state *state, const reshard_move *record, role mine,
                         int32_t rank, words *said)
{
    int64_t total = 1;
    int64_t start[RESHARD_FACTORS_MAX];
    for (int32_t i = 0; i < record->loop_count; i++) {
        if (record->loops[i].count < 1)
            return words_say(said, "a loop of %lld", (long long)record->loops[i].count);
        total *= record->loops[i].count;
    }
    for (int64_t index = 0; index < total; index++) {
        reshard_move move = *record;
        int64_t rest = index;
        int32_t peer = mine == SEND ? record->target_rank : record->source_rank;
        for (int32_t d = 0; d < record->ndim; d++)
            start[d] = record->start[d];
        for (int32_t i = record->loop_count - 1; i >= 0; i--) {
            const reshard_move_loop *loop = &record->loops[i];
            int64_t times = rest % loop->count;
            rest /= loop->count;
            peer += (int32_t)times * loop->peer_step;
            move.contributor += (int32_t)times * loop->contributor_step;
            move.source_at += times * loop->source_step;
            move.target_at += times * loop->target_step;
            for (int32_t d = 0; d < record->ndim; d++)
                start[d] += times * loop->start_steps[d];
        }
        move.start = start;
        move.loop_count = 0;
        move.loops = NULL;
        if (mine == SEND)
            move.target_rank = peer;
        else
            move.source_rank = peer;
        int32_t me = mine == SEND ? move.source_rank : move.target_rank;
        bool fill = move.kind == RESHARD_MOVE_FILL;
        if (me != rank || (mine == KEEP && !fill && peer != rank) || (mine != KEEP && peer == rank))
            return words_say(said, "a move from rank %d to rank %d in a list of rank %d",
                             (int)move.source_rank, (int)move.target_rank, (int)rank);
        if (!apply_single(state, &move, said))
            return false;
    }
    return true;
}

static bool apply_list(const stage_state *state, const reshard_moves *moves, role mine,
                       int32_t rank, words *said)
{
    for (int64_t i = 0; i < moves->count; i++) {
        if (!apply_record(state, &moves->items[i], mine, rank, said))
            return false;
    }
    return true;
}

/* ---- stages ---------------------------------------------------------------------------------- */

typedef struct workspace {
    reshard_part **parts;
    int32_t intermediate_count;
    simulate_tensor **intermediates;
} workspace;

static bool workspace_init(workspace *work, const simulate_run *run, words *said)
{
    work->intermediate_count = rs_plan_forward(run->plan)->intermediate_count;
    work->intermediates = allocate((size_t)work->intermediate_count, sizeof *work->intermediates);
    for (int32_t i = 0; i < work->intermediate_count; i++) {
        work->intermediates[i] =
            simulate_tensor_create(rs_plan_forward(run->plan)->intermediates[i]);
        if (run->plan->transposed != NULL)
            simulate_clear(work->intermediates[i]);
    }
    work->parts = allocate((size_t)run->rank_count, sizeof *work->parts);
    for (int32_t rank = 0; rank < run->rank_count; rank++) {
        if (reshard_part_create(NULL, run->plan, rank, &work->parts[rank]) != RESHARD_OK)
            return words_say(said, "part of rank %d: %s", (int)rank, reshard_error_text());
    }
    return true;
}

static void workspace_free(workspace *work, int32_t rank_count)
{
    for (int32_t i = 0; i < work->intermediate_count; i++)
        simulate_tensor_destroy(work->intermediates[i]);
    free(work->intermediates);
    for (int32_t rank = 0; rank < rank_count; rank++)
        reshard_part_destroy(work->parts[rank]);
    free(work->parts);
}

uint64_t simulate_item_bytes(const reshard_stage_link *link)
{
    int32_t source = reshard_dtype_bits(link->source_dtype);
    int32_t target = reshard_dtype_bits(link->target_dtype);
    return (uint64_t)(source < target ? source : target) / 8;
}

static bool run_link(simulate_run *run, const workspace *work, int32_t stage, int32_t index,
                     words *said)
{
    reshard_stage_link link = {.size = sizeof link};
    if (reshard_plan_stage_link(run->plan, stage, index, &link) != RESHARD_OK)
        return words_say(said, "stage link: %s", reshard_error_text());
    stage_state state = {.run = run, .stage = stage, .item_bytes = simulate_item_bytes(&link)};
    state.adjoint = run->plan->transposed != NULL;
    state.source_is_intermediate = link.source_is_intermediate != 0;
    /* What only fills a gap has no source. */
    if (link.source >= 0)
        state.source = link.source_is_intermediate ? work->intermediates[link.source]
                                                   : run->sources[link.source];
    state.target =
        link.target_is_intermediate ? work->intermediates[link.target] : run->targets[link.target];
    for (int32_t rank = 0; rank < run->rank_count; rank++) {
        const reshard_part_moves *moves = reshard_part_link(work->parts[rank], stage, index);
        if (moves == NULL)
            return words_say(said, "rank %d has no lists for link %d of stage %d", (int)rank,
                             (int)index, (int)stage);
        bool right = apply_list(&state, &moves->keeps, KEEP, rank, said) &&
                     (run->direction == SIMULATE_PULL
                          ? apply_list(&state, &moves->receives, RECEIVE, rank, said)
                          : apply_list(&state, &moves->sends, SEND, rank, said));
        if (!right)
            return false;
    }
    return true;
}

static bool run_stage(simulate_run *run, const workspace *work, int32_t stage, words *said)
{
    int32_t link_count = reshard_plan_stage_link_count(run->plan, stage);
    for (int32_t index = 0; index < link_count; index++) {
        if (!run_link(run, work, stage, index, said))
            return false;
    }
    for (int32_t index = 0; index < link_count; index++) {
        reshard_stage_link link = {.size = sizeof link};
        if (reshard_plan_stage_link(run->plan, stage, index, &link) != RESHARD_OK)
            return words_say(said, "stage link: %s", reshard_error_text());
        simulate_tensor *target = link.target_is_intermediate ? work->intermediates[link.target]
                                                              : run->targets[link.target];
        if (!finish_combines(target, said))
            return false;
    }
    return true;
}

static bool written_once(const simulate_tensor *tensor, bool exactly, words *said)
{
    for (int64_t i = 0; i < tensor->count; i++) {
        const simulate_buffer *buffer = &tensor->buffers[i];
        for (int64_t place = 0; place < buffer->count; place++) {
            if (buffer->writes[place] > 1 || (exactly && buffer->writes[place] != 1))
                return words_say(said, "rank %d shard %d place %lld is written %d times",
                                 (int)buffer->rank, (int)buffer->index, (long long)place,
                                 (int)buffer->writes[place]);
        }
    }
    return true;
}

static bool all_written_once(const simulate_run *run, const workspace *work, words *said)
{
    bool right = true;
    for (int32_t i = 0; right && i < work->intermediate_count; i++)
        right = written_once(work->intermediates[i], false, said);
    int32_t last = rs_plan_forward(run->plan)->stage_count - 1;
    for (int32_t stage = 0; right && stage <= last; stage++) {
        for (int32_t i = 0; right && i < reshard_plan_stage_link_count(run->plan, stage); i++) {
            reshard_stage_link link = {.size = sizeof link};
            right = reshard_plan_stage_link(run->plan, stage, i, &link) == RESHARD_OK;
            if (right && !link.target_is_intermediate)
                right = written_once(run->targets[link.target], true, said);
        }
    }
    return right;
}

bool simulate(simulate_run *run, words *said)
{
    workspace work = {0};
    int32_t stages = rs_plan_forward(run->plan)->stage_count;
    run->rank_count = rs_plan_forward(run->plan)->rank_count;
    size_t pairs = (size_t)run->rank_count * (size_t)run->rank_count;
    run->matrix = allocate(pairs * (size_t)stages, sizeof *run->matrix);
    run->moves = 0;
    bool right = workspace_init(&work, run, said);
    for (int32_t stage = 0; right && stage < stages; stage++)
        right = run_stage(run, &work, stage, said);
    if (right && run->plan->transposed == NULL)
        right = all_written_once(run, &work, said);
    workspace_free(&work, run->rank_count);
    return right;
}

void simulate_release(simulate_run *run)
{
    free(run->matrix);
    run->matrix = NULL;
}
