/* SPDX-License-Identifier: Apache-2.0 */
/* zip_archive.h - what zip.c and zip_read.c share: an open archive. */
#ifndef RS_CHECKPOINT_ARCHIVE_ZIP_ARCHIVE_H
#define RS_CHECKPOINT_ARCHIVE_ZIP_ARCHIVE_H

#include "checkpoint/archive/zip.h"

struct rs_zip {
    reshard_context *context;
    const rs_file *file;
    /* where the archive begins in the file; offsets in its records count from here */
    uint64_t begin;
    uint64_t directory_at;
    unsigned char *directory; /* the names point into it */
    size_t directory_bytes;
    rs_zip_member *members;
    const rs_zip_member **by_name;
    size_t count;
};

/* Fails with words that name the file and the member. */
reshard_status rs_zip_fail(const rs_zip *zip, reshard_status status, rs_slice name,
                           const char *words);

#endif
