/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf.h - what is in front of the data of a GGUF file: key-values, and where each tensor lies.
 *
 * A file is "GGUF", a version, the numbers of tensors and of key-values, the key-values, a record
 * for each tensor, and the tensors' bytes, each padded to the alignment. All numbers are
 * little-endian, texts have a length of eight bytes in front. Versions 2 and 3 are alike.
 *
 * Nothing is allocated by what a file says: room grows with what was read.
 */
#ifndef RS_CHECKPOINT_GGUF_GGUF_H
#define RS_CHECKPOINT_GGUF_GGUF_H

#include "base/arena.h"
#include "base/slice.h"
#include "kernel/values/block_types.h"
#include "system/file.h"
#include "text/text.h"

typedef enum rs_gguf_kind {
    RS_GGUF_U8,
    RS_GGUF_I8,
    RS_GGUF_U16,
    RS_GGUF_I16,
    RS_GGUF_U32,
    RS_GGUF_I32,
    RS_GGUF_F32,
    RS_GGUF_BOOL,
    RS_GGUF_TEXT,
    RS_GGUF_LIST,
    RS_GGUF_U64,
    RS_GGUF_I64,
    RS_GGUF_F64,
    RS_GGUF_KIND_COUNT
} rs_gguf_kind;

typedef struct rs_gguf_value {
    rs_slice key; /* a NUL follows */
    rs_gguf_kind kind;
    rs_gguf_kind item_kind; /* of a list; else the same as kind */
    uint64_t count;         /* items of a list; else 1 */
    uint64_t at, bytes;     /* its items in the file */
} rs_gguf_value;

typedef struct rs_gguf_tensor {
    rs_slice name; /* a NUL follows */
    uint32_t type; /* ggml's number */
    const rs_block_type *block_type;
    reshard_dtype dtype; /* of its values: F32 for a block type that can be decoded */
    int32_t ndim;
    const int64_t *shape; /* slowest dim first, which is the other way round than in the file */
    uint64_t at, bytes;   /* in the file */
} rs_gguf_tensor;

typedef struct rs_gguf {
    rs_arena arena;
    uint32_t version;
    uint64_t alignment;
    int64_t value_count, value_capacity;
    rs_gguf_value *values; /* in the order of the file */
    int64_t tensor_count, tensor_capacity;
    rs_gguf_tensor *tensors;        /* in the order of the file, which is that of their places */
    uint64_t values_at, values_end; /* the bytes of all key-values */
    uint64_t data_at;
} rs_gguf;

#define RS_GGUF_MAGIC "GGUF"
#define RS_GGUF_NDIM_MAX 4

/* Reads what is in front of the data, and checks that every tensor lies in the file. Errors:
 * SYNTAX, CORRUPT, UNSUPPORTED (version 1, big-endian numbers, a type that ggml does not have),
 * RANGE; the subject is the file. */
reshard_status rs_gguf_read(reshard_context *context, const rs_file *file, rs_gguf **out_gguf);
/* Takes NULL. `body` is an rs_gguf; so it serves as a file's body_destroy. */
void rs_gguf_destroy(void *body);

/* The dtype of a type that has no blocks; NONE for those that have. */
reshard_dtype rs_gguf_plain_dtype(uint32_t type);
/* Bytes of an item; 0: its length is in front of it. */
size_t rs_gguf_kind_bytes(rs_gguf_kind kind);
/* A little-endian number of up to eight bytes. */
uint64_t rs_gguf_little(const unsigned char *bytes, size_t count);
/* Finds a key-value; NULL: there is none. */
const rs_gguf_value *rs_gguf_find(const rs_gguf *gguf, const char *key);
/* Reads item `index` of a value of whole numbers (bool counts). *out_is is false if it holds none,
 * or not so many, or one beyond int64. */
reshard_status rs_gguf_number(const rs_file *file, const rs_gguf_value *value, uint64_t index,
                              int64_t *out_number, bool *out_is);
/* Reads item `index` of a value of floats as a double. *out_is as above. */
reshard_status rs_gguf_real(const rs_file *file, const rs_gguf_value *value, uint64_t index,
                            double *out_number, bool *out_is);
/* Reads a text of less than `capacity` bytes. *out_is is false if it is no text, or longer. */
reshard_status rs_gguf_text(const rs_file *file, const rs_gguf_value *value, char *buffer,
                            size_t capacity, bool *out_is);
/* Writes a value in short, for people. */
#define RS_GGUF_SHOWN 256
reshard_status rs_gguf_show(const rs_file *file, const rs_gguf_value *value,
                            char buffer[RS_GGUF_SHOWN]);
/* Writes a value in full, as JSON; of a list, at most items_max items (-1: all). Stops once the
 * text is full. */
reshard_status rs_gguf_show_all(const rs_file *file, const rs_gguf_value *value, int64_t items_max,
                                rs_text *text);
/* Such as "u32" or "list of str". Static. */
const char *rs_gguf_type_name(const rs_gguf_value *value);

#endif
