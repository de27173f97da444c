/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.c - see values.h.
 */
#include "tests/support/values.h"

#include "tests/support/random.h"

#include <math.h>
#include <stdlib.h>

static bool equal(double a, double b)
{
    return a >= b && a <= b;
}

static double plain_value(uint64_t seed, int64_t element)
{
    return (double)(draw_hash(seed, 1) % 1000) + 3.0 * (double)element + 1.0;
}

/* What one contributor holds of an element. */
static double contribution(uint64_t seed, int64_t element, const oracle_shard *shard,
                           int32_t contributor)
{
    reshard_reduction reduction = shard->reduction;
    int32_t count = shard->contributor_count;
    uint64_t hash = draw_hash(draw_hash(seed, (uint64_t)element), (uint64_t)contributor);
    double whole = plain_value(seed, element);
    switch (reduction) {
    case RESHARD_PROD:
        return contributor == 0 ? whole : (double)(hash % 4) - 1.5 > 0 ? 2.0 : -1.0;
    case RESHARD_MIN:
    case RESHARD_MAX:
        return (double)(hash % 5000) - 2500.0;
    default:
        break;
    }
    /* Sum and average: any numbers, and the last one makes it come out right. */
    if (contributor + 1 < count)
        return (double)(hash % 64);
    double sum = reduction == RESHARD_AVG ? whole * shard->divisor : whole;
    for (int32_t i = 0; i + 1 < count; i++)
        sum -= contribution(seed, element, shard, i);
    return sum;
}

double *values_create(const oracle_layout *layout, uint64_t seed)
{
    double *values = calloc((size_t)layout->volume + 1, sizeof *values);
    const oracle_shard *shard = layout->shard_count > 0 ? &layout->shards[0] : NULL;
    if (values == NULL)
        abort();
    for (int64_t i = 0; i < layout->volume; i++) {
        values[i] = plain_value(seed, i);
        if (shard == NULL || !shard->partial)
            continue;
        double parts[ORACLE_RANKS_MAX];
        for (int32_t c = 0; c < shard->contributor_count; c++)
            parts[c] = contribution(seed, i, shard, c);
        values[i] =
            simulate_reduce(shard->reduction, shard->divisor, shard->contributor_count, parts);
    }
    return values;
}

bool values_fill(const oracle_layout *layout, uint64_t seed, simulate_tensor *tensor, words *said)
{
    for (int64_t i = 0; i < layout->shard_count; i++) {
        const oracle_shard *shard = &layout->shards[i];
        simulate_buffer *buffer = simulate_find(tensor, shard->rank, shard->index);
        if (buffer == NULL || buffer->count != shard->count)
            return words_say(said, "rank %d shard %d: no such source buffer", (int)shard->rank,
                             (int)shard->index);
        for (int64_t place = 0; place < shard->count; place++) {
            int64_t element = shard->elements[place];
            buffer->values[place] = shard->partial
                                        ? contribution(seed, element, shard, shard->contributor)
                                        : plain_value(seed, element);
        }
    }
    return true;
}

static bool check_plain(const oracle_shard *shard, const double *values,
                        const simulate_buffer *buffer, words *said)
{
    for (int64_t place = 0; place < shard->count; place++) {
        double expected = values[shard->elements[place]];
        if (!equal(buffer->values[place], expected))
            return words_say(said, "rank %d shard %d place %lld (element %lld): %g, not %g",
                             (int)shard->rank, (int)shard->index, (long long)place,
                             (long long)shard->elements[place], buffer->values[place], expected);
    }
    return true;
}

/* parts[element * count + contributor]; copies of a contribution must be the same. */
static bool collect(const oracle_shard *shard, const simulate_buffer *buffer, double *parts,
                    words *said)
{
    for (int64_t place = 0; place < shard->count; place++) {
        double *part =
            &parts[shard->elements[place] * shard->contributor_count + shard->contributor];
        if (isnan(buffer->values[place]) || (!isnan(*part) && !equal(*part, buffer->values[place])))
            return words_say(said, "rank %d: element %lld: contribution %d is %g here, %g there",
                             (int)shard->rank, (long long)shard->elements[place],
                             (int)shard->contributor, buffer->values[place], *part);
        *part = buffer->values[place];
    }
    return true;
}

static bool check_parts(const oracle_layout *layout, const double *values, const double *parts,
                        words *said)
{
    const oracle_shard *first = &layout->shards[0];
    int32_t count = first->contributor_count;
    for (int64_t i = 0; i < layout->volume; i++) {
        double result = simulate_reduce(first->reduction, first->divisor, count, &parts[i * count]);
        if (!equal(result, values[i]))
            return words_say(said, "the contributions to element %lld make %g, not %g",
                             (long long)i, result, values[i]);
    }
    return true;
}

bool values_check(const oracle_layout *layout, const double *values, const simulate_tensor *tensor,
                  words *said)
{
    bool partial = layout->shard_count > 0 && layout->shards[0].partial;
    int64_t count = partial ? layout->shards[0].contributor_count : 0;
    double *parts = calloc((size_t)(layout->volume * count) + 1, sizeof *parts);
    bool right = true;
    if (parts == NULL)
        abort();
    for (int64_t i = 0; i < layout->volume * count; i++)
        parts[i] = NAN;
    for (int64_t i = 0; right && i < layout->shard_count; i++) {
        const oracle_shard *shard = &layout->shards[i];
        const simulate_buffer *buffer = simulate_find(tensor, shard->rank, shard->index);
        if (buffer == NULL || buffer->count != shard->count)
            right = words_say(said, "rank %d shard %d: no such target buffer", (int)shard->rank,
                              (int)shard->index);
        else
            right = partial ? collect(shard, buffer, parts, said)
                            : check_plain(shard, values, buffer, said);
    }
    if (right && partial)
        right = check_parts(layout, values, parts, said);
    free(parts);
    return right;
}
