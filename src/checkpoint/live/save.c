/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.c - writes the tensors of live ranks as a new checkpoint. All ranks work out the same target
 * (target.h) from names and layouts alone, and compare its digest. Rank 0 creates the folder, each
 * rank writes its own file into it, and once all files are on disk, rank 0 gives the folder its
 * final name.
 */
#include "checkpoint/live/live.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/options.h"
#include "checkpoint/convert/output.h"
#include "checkpoint/convert/target_make.h"
#include "exec/segment.h"
#include "trace/record.h"
#include "transport/agree.h"
#include "transport/group.h"

#include <string.h>

#define BUFFER_BYTES ((size_t)4 << 20)

typedef struct saving {
    reshard_context *context;
    reshard_group *group;
    const char *path;
    const reshard_live_tensor *tensors;
    bool sync;
    rs_target target;
    rs_output output;
    rs_file *file; /* this rank's file; NULL: it has nothing to store */
    char *buffer;
    rs_trace_track *track; /* may be NULL */
    int32_t tensor;        /* number, in the trace, of the current tensor's name */
} saving;

/* ---- agreeing -------------------------------------------------------------------------------- */

static void digest_target(const rs_target *target, uint64_t out_digest[2])
{
    rs_digest digest;
    rs_digest_init(&digest);
    rs_target_digest(target, &digest);
    rs_digest_finish(&digest, out_digest);
}

/* Checks that all ranks mean the same folder and write it in the same way. Collective. */
static reshard_status compare_options(const saving *s)
{
    rs_claim claim = {.what = "save: the path or the options"};
    rs_digest digest;
    rs_digest_init(&digest);
    rs_digest_bytes(&digest, s->path, strlen(s->path));
    rs_digest_u64(&digest, s->sync);
    rs_digest_finish(&digest, claim.digest);
    return rs_group_agree_on(s->group, RESHARD_OK, &claim, NULL);
}

static reshard_status make_target(saving *s, int64_t count)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++)
        status = rs_live_check(&s->tensors[i], s->group);
    if (status == RESHARD_OK)
        status = rs_target_init_live(&s->target, s->context, reshard_group_size(s->group), count,
                                     s->tensors);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Finds a box of a tensor in this rank's shards. */
static reshard_status find_piece(const reshard_shards *shards, const rs_stored_piece *wanted,
                                 int32_t ndim, int64_t *out_shard, const reshard_piece **out_piece)
{
    size_t bytes = (size_t)ndim * sizeof(int64_t);
    for (int64_t i = 0; i < shards->count; i++) {
        for (int64_t k = 0; k < shards->items[i].piece_count; k++) {
            const reshard_piece *piece = &shards->items[i].pieces[k];
            if (memcmp(piece->box.size, wanted->size, bytes) != 0 ||
                memcmp(piece->box.offset, wanted->offset, bytes) != 0)
                continue;
            *out_shard = i;
            *out_piece = piece;
            return RESHARD_OK;
        }
    }
    return rs_fail(RESHARD_ERR_INVALID, "save: a box is not where its layout says");
}

static void begin_span(const saving *s, rs_trace_kind kind, rs_trace_event *out_event)
{
    if (s->track == NULL)
        return;
    *out_event = rs_trace_begin(s->track, kind);
    out_event->tensor = s->tensor;
}

static void end_span(const saving *s, rs_trace_event *event, uint64_t bytes)
{
    if (s->track == NULL)
        return;
    event->bytes = bytes;
    rs_trace_end(s->track, event);
}

static reshard_status write_bytes(saving *s, const char *bytes, uint64_t count, uint64_t at)
{
    rs_trace_event event;
    begin_span(s, RS_TRACE_WRITE, &event);
    reshard_status status = rs_file_write(s->file, bytes, (size_t)count, at);
    end_span(s, &event, count);
    return status;
}

/* Writes a box of a shard to its place in the file: in one piece if it is dense, else packed block
 * by block. */
static reshard_status write_box(saving *s, const reshard_piece *piece, reshard_dtype dtype,
                                char *shard, uint64_t bytes, uint64_t at)
{
    reshard_move move = {.ndim = piece->box.ndim, .size = piece->box.size};
    rs_segment_move packed = {.move = &move,
                              .memory = shard + piece->at * (reshard_dtype_bits(dtype) / 8),
                              .strides = piece->strides,
                              .dtype = dtype,
                              .wire = dtype};
    char *dense = rs_segment_dense(&packed);
    if (dense != NULL)
        return write_bytes(s, dense, bytes, at);
    reshard_status status = RESHARD_OK;
    for (uint64_t from = 0, to; status == RESHARD_OK && from < bytes; from = to) {
        to = bytes - from < BUFFER_BYTES ? bytes : from + BUFFER_BYTES;
        rs_trace_event event;
        begin_span(s, RS_TRACE_PACK, &event);
        rs_segment_pack(&packed, from, to, s->buffer);
        end_span(s, &event, to - from);
        status = write_bytes(s, s->buffer, to - from, at + from);
    }
    return status;
}

static reshard_status write_entry(saving *s, const rs_target_entry *entry)
{
    const rs_stored_tensor *tensor = &s->target.tensors[entry->tensor];
    const reshard_live_tensor *live = &s->tensors[s->target.origins[entry->tensor]];
    const rs_stored_piece *wanted = &tensor->pieces[entry->piece_first];
    const reshard_piece *piece = NULL;
    reshard_shards *shards = NULL;
    uint64_t bytes = rs_target_array_of(&s->target, entry)->bytes;
    int64_t shard = 0;
    if (bytes == 0)
        return RESHARD_OK;
    reshard_status status =
        reshard_layout_shards(live->layout, reshard_group_rank(s->group), &shards);
    if (status == RESHARD_OK)
        status = find_piece(shards, wanted, tensor->carried_ndim, &shard, &piece);
    if (status == RESHARD_OK && s->track != NULL)
        status = rs_trace_name(s->track->trace, tensor->name, &s->tensor);
    if (status == RESHARD_OK)
        status = write_box(s, piece, live->dtype, live->shards[shard], bytes, wanted->at);
    reshard_shards_destroy(shards);
    return rs_fail_within_tensor(status, tensor->name);
}

static reshard_status sync_file(saving *s)
{
    rs_trace_event event;
    s->tensor = RS_TRACE_NONE;
    begin_span(s, RS_TRACE_SYNC, &event);
    reshard_status status = rs_file_sync(s->file);
    end_span(s, &event, 0);
    return status;
}

/* Writes this rank's file into the folder that rank 0 created. */
static reshard_status write_file(saving *s)
{
    int32_t rank = reshard_group_rank(s->group);
    const rs_target_file *file = &s->target.files[rank];
    if (file->name == NULL)
        return RESHARD_OK;
    reshard_status status =
        rs_output_file(&s->output, file->name, file->bytes, false, NULL, &s->file);
    if (status == RESHARD_OK)
        status = rs_target_write_head(&s->target, rank, s->file);
    for (int64_t i = 0; status == RESHARD_OK && i < file->entry_count; i++)
        status = write_entry(s, &s->target.entries[file->entry_first + i]);
    return status == RESHARD_OK && s->sync ? sync_file(s) : status;
}

/* ---- saving ---------------------------------------------------------------------------------- */

static reshard_status make_folder(saving *s)
{
    rs_journal_head head = {.thread_bytes = BUFFER_BYTES};
    rs_path_kind kind = RS_PATH_NONE;
    reshard_status status = rs_path_kind_of(s->path, &kind);
    if (status == RESHARD_OK && kind != RS_PATH_NONE)
        status = rs_fail(RESHARD_ERR_INVALID, "%.300s: exists already", s->path);
    digest_target(&s->target, head.digest);
    if (status == RESHARD_OK)
        status = rs_output_create(&s->output, s->context, s->path, NULL, &head, false, s->sync);
    for (int32_t i = 0; status == RESHARD_OK && i < s->target.file_count; i++) {
        if (s->target.files[i].name != NULL)
            status = rs_output_expect(&s->output, s->target.files[i].name);
    }
    return status;
}

/* Rank 0 creates the folder, and all others check that they see the same one. Collective. */
static reshard_status open_folder(saving *s)
{
    bool first = reshard_group_rank(s->group) == 0;
    reshard_status status = first ? make_folder(s) : RESHARD_OK;
    /* The agreement yields the largest number, which is rank 0's. */
    uint64_t numbers[RS_AGREE_NUMBERS] = {first ? s->output.journal.state.nonce : 0};
    status = rs_group_agree_on(s->group, status, NULL, numbers);
    if (status != RESHARD_OK)
        return status;
    if (!first)
        status = rs_output_join(&s->output, s->context, s->path, NULL, false, numbers[0]);
    status = reshard_group_agree(s->group, status);
    if (first && status != RESHARD_OK)
        rs_output_discard(&s->output);
    return status;
}

/* Writes all files and publishes the folder that rank 0 created. Collective. */
static reshard_status fill_folder(saving *s)
{
    reshard_status status = reshard_group_agree(s->group, write_file(s));
    bool first = reshard_group_rank(s->group) == 0;
    if (first && status == RESHARD_OK)
        status = rs_output_publish(&s->output, s->sync);
    else if (first)
        rs_output_discard(&s->output);
    return reshard_group_agree(s->group, status);
}

reshard_status reshard_checkpoint_save(reshard_context *context, reshard_group *group,
                                       const char *path, int64_t count,
                                       const reshard_live_tensor *tensors,
                                       const reshard_checkpoint_save_options *options)
{
    reshard_checkpoint_save_options chosen;
    reshard_status status = rs_group_choose(&group);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "save");
    saving s = {.context = context, .group = group, .path = path, .tensors = tensors};
    status = rs_options_read("save options", options, &chosen, sizeof chosen);
    if (status == RESHARD_OK)
        status = rs_live_check_count(count);
    if (status == RESHARD_OK && (path == NULL || path[0] == '\0'))
        status = rs_fail(RESHARD_ERR_INVALID, "save: no path is given");
    rs_claim claim = {.what = "save: the list of tensors"};
    if (status == RESHARD_OK) {
        s.sync = !chosen.no_sync;
        s.tensor = RS_TRACE_NONE;
        if (chosen.trace != NULL)
            status = rs_trace_take(
                chosen.trace, rs_group_root_rank(group, reshard_group_rank(group)), 0, 0, &s.track);
    }
    if (status == RESHARD_OK) {
        s.buffer = rs_allocate(context, BUFFER_BYTES);
        status = s.buffer == NULL ? rs_allocation_status() : make_target(&s, count);
    }
    if (status == RESHARD_OK)
        digest_target(&s.target, claim.digest);
    status = rs_group_agree_on(group, status, &claim, NULL);
    if (status == RESHARD_OK)
        status = compare_options(&s);
    if (status == RESHARD_OK)
        status = open_folder(&s);
    if (status == RESHARD_OK)
        status = fill_folder(&s);
    rs_trace_give_back(s.track);
    rs_file_close(s.file);
    rs_output_release(&s.output);
    rs_target_release(&s.target);
    rs_release(context, s.buffer);
    return status;
}
