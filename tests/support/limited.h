/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limited.h - a transport over another one whose messages are short, and whose ranks see no memory
 * but their own. A longer message is an error. Messages can be counted.
 */
#ifndef TESTS_SUPPORT_LIMITED_H
#define TESTS_SUPPORT_LIMITED_H

#include <reshard/transport.h>

typedef struct limited {
    size_t message_bytes_max;
    reshard_rank_fn body; /* to run over it */
    void *user;
    int64_t *sent;          /* unless NULL: messages that each rank sent are added up here */
    reshard_endpoint under; /* filled in for each rank */
} limited;

/* Runs the body with such a group over this one; user is a limited. */
reshard_status limited_run_rank(void *user, reshard_group *group);

#endif
