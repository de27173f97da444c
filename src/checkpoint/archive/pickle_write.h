/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_write.h - writes pickles of protocol 2 into memory that grows, using only the opcodes of
 * torch.save, so that torch.load(weights_only=True) accepts them. Torch reads its checkpoint
 * metadata in this protocol too, so the frames and short texts of protocol 4 are not needed.
 *
 * Values are written in order. A value with parts is begun, filled and ended:
 *     dict_begin, text "a", int 1, dict_end               {"a": 1}
 *     global, tuple_begin, .., tuple_end, reduce          module.name(..)
 *     .., items_begin, text "a", int 1, dict_end          the same, then with ["a"] set to 1
 *     .., dict_begin, .., dict_end, build                 the same, with a state
 * The first failure is kept, and all later calls do nothing, so it is enough to check at finish.
 */
#ifndef RS_CHECKPOINT_ARCHIVE_PICKLE_WRITE_H
#define RS_CHECKPOINT_ARCHIVE_PICKLE_WRITE_H

#include "base/slice.h"

#include <reshard/base.h>

typedef struct rs_pickle_writer {
    reshard_context *context;
    char *bytes;
    int64_t count, capacity;
    int64_t open;       /* containers begun and not yet ended */
    uint32_t put_count; /* entries in the memo */
    reshard_status status;
} rs_pickle_writer;

void rs_pickle_writer_init(rs_pickle_writer *writer, reshard_context *context);
void rs_pickle_writer_release(rs_pickle_writer *writer);
/* Begins a pickle with an empty memo, after any earlier ones: old torch files hold several in a
 * row. */
void rs_pickle_writer_begin(rs_pickle_writer *writer);
/* Ends the pickle; exactly one value was written since its beginning. *out_bytes is everything that
 * the writer holds; it belongs to the writer and is valid until the next call. Errors: the first
 * one of any call since init. */
reshard_status rs_pickle_writer_finish(rs_pickle_writer *writer, rs_slice *out_bytes);

void rs_pickle_write_none(rs_pickle_writer *writer);
void rs_pickle_write_bool(rs_pickle_writer *writer, bool truth);
void rs_pickle_write_int(rs_pickle_writer *writer, int64_t integer);
void rs_pickle_write_float(rs_pickle_writer *writer, double real);
/* Errors: INVALID if it is not UTF-8, RANGE from 4 GiB on. */
void rs_pickle_write_text(rs_pickle_writer *writer, rs_slice text);
/* Written as Python does in this protocol: as a call that converts a text to bytes. */
void rs_pickle_write_bytes(rs_pickle_writer *writer, rs_slice bytes);
/* Errors: INVALID if a name is empty, has a newline or is not UTF-8. */
void rs_pickle_write_global(rs_pickle_writer *writer, const char *module, const char *name);

void rs_pickle_write_tuple_begin(rs_pickle_writer *writer);
void rs_pickle_write_tuple_end(rs_pickle_writer *writer);
void rs_pickle_write_list_begin(rs_pickle_writer *writer);
void rs_pickle_write_list_end(rs_pickle_writer *writer);
/* dict_begin writes a new dict, items_begin adds pairs to the value written last. Both end with
 * dict_end. */
void rs_pickle_write_dict_begin(rs_pickle_writer *writer);
void rs_pickle_write_items_begin(rs_pickle_writer *writer);
void rs_pickle_write_dict_end(rs_pickle_writer *writer);

/* Turns the two values written last, a callable and its tuple of arguments, into a call. */
void rs_pickle_write_reduce(rs_pickle_writer *writer);
/* Likewise for a class and the arguments of its __new__. */
void rs_pickle_write_object(rs_pickle_writer *writer);
/* Makes the value written last the state of the one before it. */
void rs_pickle_write_build(rs_pickle_writer *writer);
/* Makes the value written last the id of something outside the pickle. */
void rs_pickle_write_persistent(rs_pickle_writer *writer);

/* Puts the value written last into the memo; get refers to it as the same object. */
uint32_t rs_pickle_write_put(rs_pickle_writer *writer);
void rs_pickle_write_get(rs_pickle_writer *writer, uint32_t index);

#endif
