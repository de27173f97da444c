/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_doubts.c - compares samples of the arrays that were joined with each other, and the shapes
 * that came out with config.json.
 */
#include "checkpoint/format/rank_join.h"

#include "base/shape.h"
#include "checkpoint/rules/sizes.h"

#include <string.h>

enum { SAMPLE_BYTES = 4096, SAMPLES = 3 };

/* A range of every array: its beginning, its middle or its end. */
typedef struct sample {
    uint64_t at;
    size_t bytes;
} sample;

static sample sample_of(uint64_t bytes, int index)
{
    size_t count = bytes < SAMPLE_BYTES ? (size_t)bytes : SAMPLE_BYTES;
    uint64_t rest = bytes - count;
    return (sample){index == 0 ? 0 : index == 1 ? rest / 2 : rest, count};
}

static reshard_status read_sample(const reshard_checkpoint *checkpoint, const rs_occurrence *array,
                                  const sample *s, char bytes[SAMPLE_BYTES])
{
    return rs_file_read(checkpoint->files[array->file].file, bytes, s->bytes, array->at + s->at);
}

/* All elements are alike, as in new norms and biases: that tells nothing. */
static bool is_constant(const char *bytes, size_t count, size_t element_bytes)
{
    return count <= element_bytes ||
           memcmp(bytes, bytes + element_bytes, count - element_bytes) == 0;
}

static bool have_one_shape(const rs_occurrence *arrays, int64_t count)
{
    size_t bytes = (size_t)arrays[0].ndim * sizeof(int64_t);
    for (int64_t i = 0; i < count; i++) {
        if (arrays[i].strides != NULL || arrays[i].ndim != arrays[0].ndim ||
            memcmp(arrays[i].shape, arrays[0].shape, bytes) != 0)
            return false;
    }
    return true;
}

reshard_status rs_rank_doubts_look(rs_rank_doubts *doubts, const reshard_checkpoint *checkpoint,
                                   const rs_stored_tensor *tensor, const rs_occurrence *arrays,
                                   int64_t count)
{
    char first[SAMPLE_BYTES], other[SAMPLE_BYTES];
    bool constant = true;
    if (tensor->opaque || tensor->piece_count < 2 || !have_one_shape(arrays, count))
        return RESHARD_OK;
    uint64_t bytes = (uint64_t)(rs_volume(arrays[0].ndim, arrays[0].shape) * tensor->element_bytes);
    for (int k = 0; k < SAMPLES; k++) {
        sample s = sample_of(bytes, k);
        reshard_status status = read_sample(checkpoint, &arrays[0], &s, first);
        for (int64_t i = 1; status == RESHARD_OK && i < count; i++) {
            status = read_sample(checkpoint, &arrays[i], &s, other);
            if (status == RESHARD_OK && memcmp(first, other, s.bytes) != 0)
                return RESHARD_OK;
        }
        if (status != RESHARD_OK)
            return status;
        constant = constant && is_constant(first, s.bytes, (size_t)tensor->element_bytes);
    }
    if (!constant && doubts->same_count++ == 0)
        doubts->first_same = tensor->name;
    return RESHARD_OK;
}

/* Refuses shapes that config.json contradicts: mesh or rules are not those that cut the tensors. */
static reshard_status check_sizes(reshard_checkpoint *checkpoint, const char *from,
                                  rs_rulebook *book)
{
    rs_sizes sizes;
    reshard_status status = rs_sizes_compare(checkpoint, &book->config, book->rules, &sizes);
    checkpoint->sizes_compared = true;
    if (status != RESHARD_OK)
        return status;
    if (sizes.wrong != 0)
        return rs_fail_hint(RESHARD_ERR_INVALID, RESHARD_HINT_SOURCE_MESH, checkpoint->path,
                            "%s: joined over %.100s, %s; %lld of %lld tensors that config.json "
                            "describes do not fit; correct the mesh, its rules or the number",
                            checkpoint->path, from, sizes.first, (long long)sizes.wrong,
                            (long long)sizes.compared);
    return sizes.compared != 0
               ? RESHARD_OK
               : rs_store_note(checkpoint, "shapes were not compared with config.json, which "
                                           "is missing or does not describe these tensors");
}

reshard_status rs_rank_doubts_settle(const rs_rank_doubts *doubts, reshard_checkpoint *checkpoint,
                                     const char *from, rs_rulebook *book)
{
    reshard_status status = check_sizes(checkpoint, from, book);
    if (status != RESHARD_OK || doubts->same_count == 0)
        return status;
    return rs_store_warn(checkpoint,
                         "%lld tensor%s joined over %.100s, but every rank holds the same "
                         "(\"%.*s\"%s): %s may be replicated, and the mesh or its rules wrong",
                         (long long)doubts->same_count, doubts->same_count == 1 ? " is" : "s are",
                         from, RS_SHOWN(doubts->first_same),
                         doubts->same_count == 1 ? "" : " and others",
                         doubts->same_count == 1 ? "it" : "they");
}
