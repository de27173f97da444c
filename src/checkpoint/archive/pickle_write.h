/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_write.h - pickles of protocol 2 into memory that grows, made of the opcodes that
 * torch.save uses, so that torch.load(weights_only=True) takes them. Torch also reads its
 * checkpoint metadata in this protocol, so nothing needs the frames and short texts of protocol 4.
 *
 * Values are written in order; what has parts is opened, filled and closed:
 *     dict_begin, text "a", int 1, dict_end               {"a": 1}
 *     global, tuple_begin, .., tuple_end, reduce          module.name(..)
 *     .., items_begin, text "a", int 1, dict_end          the same, then with ["a"] set to 1
 *     .., dict_begin, .., dict_end, build                 the same, with a state
 * The first failure is kept and makes all later calls do nothing: look once, at finish.
 */
#ifndef RS_CHECKPOINT_ARCHIVE_PICKLE_WRITE_H
#define RS_CHECKPOINT_ARCHIVE_PICKLE_WRITE_H

#include "base/slice.h"

#include <reshard/base.h>

typedef struct rs_pickle_writer {
    reshard_context *context;
    char *bytes;
    int64_t count, capacity;
    int64_t open;       /* begun and not ended */
    uint32_t put_count; /* entries of the memo */
    reshard_status status;
} rs_pickle_writer;

void rs_pickle_writer_init(rs_pickle_writer *writer, reshard_context *context);
void rs_pickle_writer_release(rs_pickle_writer *writer);
/* Begins a pickle, with an empty memo: behind the one before it, as old torch writes several into
 * one file. */
void rs_pickle_writer_begin(rs_pickle_writer *writer);
/* Ends the pickle; one value was written since its beginning. *out_bytes is all that the writer
 * holds, and stays its own: valid until the next call. Errors: the first one of any call since
 * init.
 */
reshard_status rs_pickle_writer_finish(rs_pickle_writer *writer, rs_slice *out_bytes);

void rs_pickle_write_none(rs_pickle_writer *writer);
void rs_pickle_write_bool(rs_pickle_writer *writer, bool truth);
void rs_pickle_write_int(rs_pickle_writer *writer, int64_t integer);
void rs_pickle_write_float(rs_pickle_writer *writer, double real);
/* UTF-8. Errors: INVALID when it is not, RANGE from 4 GiB on. */
void rs_pickle_write_text(rs_pickle_writer *writer, rs_slice text);
/* As Python does in this protocol: a call that makes bytes of a text. */
void rs_pickle_write_bytes(rs_pickle_writer *writer, rs_slice bytes);
/* Errors: INVALID when a name is empty, has a newline or is not UTF-8. */
void rs_pickle_write_global(rs_pickle_writer *writer, const char *module, const char *name);

void rs_pickle_write_tuple_begin(rs_pickle_writer *writer);
void rs_pickle_write_tuple_end(rs_pickle_writer *writer);
void rs_pickle_write_list_begin(rs_pickle_writer *writer);
void rs_pickle_write_list_end(rs_pickle_writer *writer);
/* A new dict, or more pairs for the value written last; both end in dict_end. */
void rs_pickle_write_dict_begin(rs_pickle_writer *writer);
void rs_pickle_write_items_begin(rs_pickle_writer *writer);
void rs_pickle_write_dict_end(rs_pickle_writer *writer);

/* The two values written last, a callable and its tuple of arguments, become a call. */
void rs_pickle_write_reduce(rs_pickle_writer *writer);
/* Likewise a class and arguments for its __new__. */
void rs_pickle_write_object(rs_pickle_writer *writer);
/* The value written last becomes the state of the one before it. */
void rs_pickle_write_build(rs_pickle_writer *writer);
/* The value written last becomes the name of something outside. */
void rs_pickle_write_persistent(rs_pickle_writer *writer);

/* Remembers the value written last; get writes it again, as the same object. */
uint32_t rs_pickle_write_put(rs_pickle_writer *writer);
void rs_pickle_write_get(rs_pickle_writer *writer, uint32_t index);

#endif
