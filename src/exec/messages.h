/* SPDX-License-Identifier: Apache-2.0 */
/* messages.h - stages of a run over messages; see messages.c. */
#ifndef RS_EXEC_MESSAGES_H
#define RS_EXEC_MESSAGES_H

#include <reshard/exec.h>

#include <stdbool.h>

typedef struct rs_messages rs_messages;

/* Staging and scratch for all stages. On failure too *out_messages is to be destroyed. */
reshard_status rs_messages_create(reshard_exec *exec, rs_messages **out_messages);
void rs_messages_destroy(rs_messages *messages);

/* One stage of a run: exec->stage. */
reshard_status rs_messages_begin(rs_messages *messages);
reshard_status rs_messages_progress(rs_messages *messages, bool *out_done);

#endif
