/* SPDX-License-Identifier: Apache-2.0 */
/* sink_compare.c - compares blocks with what the target's files hold. */
#include "checkpoint/engine/sink.h"
#include "text/text.h"

#include <inttypes.h>
#include <string.h>

/* ---- the error text -------------------------------------------------------------------------- */

/* Finds the element of a piece that a byte of its file belongs to. Returns false if there is
 * none. */
static bool find_element(const rs_stored_tensor *tensor, const rs_stored_piece *piece,
                         uint64_t byte, int64_t out_index[RESHARD_NDIM_MAX])
{
    int64_t strides[RESHARD_NDIM_MAX];
    if (byte < piece->at)
        return false;
    int64_t rest = (int64_t)(byte - piece->at) / tensor->element_bytes;
    rs_piece_strides(tensor, piece, strides);
    for (int32_t d = 0; d < tensor->carried_ndim; d++) {
        int64_t index = piece->size[d] == 1 ? 0 : rest / strides[d];
        if (index >= piece->size[d])
            return false;
        rest -= index * strides[d];
        out_index[d] = index + (piece->offset != NULL ? piece->offset[d] : 0);
    }
    return rest == 0;
}

static bool holds(int32_t ndim, const rs_route_move *move, const int64_t *index)
{
    for (int32_t d = 0; d < ndim; d++) {
        if (index[d] < move->offset[d] || index[d] >= move->offset[d] + move->size[d])
            return false;
    }
    return true;
}

/* The file's name without its folder if that tells the two files apart, else its path. */
static const char *shown(const rs_file *file, const rs_file *other)
{
    const char *slash = strrchr(rs_file_path(file), '/');
    const char *other_slash = strrchr(rs_file_path(other), '/');
    bool differ = slash != NULL && other_slash != NULL && strcmp(slash + 1, other_slash + 1) != 0;
    return differ ? slash + 1 : rs_file_path(file);
}

static reshard_status fail_at(const rs_worker *worker, const rs_route *route, int32_t file,
                              uint64_t byte)
{
    const rs_stored_tensor *target = route->target;
    const rs_file *source = worker->engine->sources[route->source->pieces[0].file];
    int64_t index[RESHARD_NDIM_MAX] = {0};
    char words[160];
    rs_text text;
    for (int64_t i = 0; i < route->move_count; i++) {
        const rs_route_move *move = &route->moves[i];
        const rs_stored_piece *piece = &target->pieces[move->target];
        if (piece->file != file || !find_element(target, piece, byte, index) ||
            !holds(target->carried_ndim, move, index))
            continue;
        source = worker->engine->sources[route->source->pieces[move->source].file];
        break;
    }
    rs_text_init(&text, words, sizeof words);
    for (int32_t d = 0; d < target->carried_ndim; d++)
        rs_text_add(&text, d == 0 ? "%" PRId64 : ", %" PRId64, index[d]);
    const rs_file *copy = worker->engine->targets[file];
    return rs_fail(RESHARD_ERR_CHECK, "%s and %s hold copies that differ, first at %s [%s]",
                   shown(source, copy), shown(copy, source), target->opaque ? "byte" : "element",
                   words);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static reshard_status compare_range(rs_worker *worker, const rs_route *route, int32_t file,
                                    const char *bytes, size_t count, uint64_t at)
{
    rs_engine *engine = worker->engine;
    char *found = worker->buffer + worker->buffer_bytes;
    atomic_fetch_add(&engine->bytes_done, count);
    for (size_t done = 0, part; done < count; done += part) {
        part = count - done < RS_COMPARE_BYTES ? count - done : RS_COMPARE_BYTES;
        reshard_status status = rs_file_read(engine->targets[file], found, part, at + done);
        if (status != RESHARD_OK)
            return status;
        if (memcmp(found, bytes + done, part) == 0)
            continue;
        size_t i = 0;
        while (found[i] == bytes[done + i])
            i++;
        return fail_at(worker, route, file, at + done + i);
    }
    return RESHARD_OK;
}

static reshard_status compare(rs_worker *worker, const rs_route *route, const rs_block_box *box)
{
    if (route->target == NULL)
        return rs_sink_sum.run(worker, route, box);
    reshard_status status = rs_block_read(worker, route, box);
    return status == RESHARD_OK ? rs_block_emit(worker, route, box, compare_range) : status;
}

const rs_sink rs_sink_compare = {
    .run = compare, .extra_bytes = RS_COMPARE_BYTES, .takes = RS_TRACE_COMPARE};
