/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_transport.c - a transport of your own: four processes, with a socket between every two of
 * them. It needs only <reshard/transport.h>, and none of the library's internals. The processes
 * reshard a matrix with it, as threads and MPI ranks do in the other examples.
 *
 * On a socket, a message is a head (channel, count) followed by its bytes. A message that arrives
 * before its receive was started is kept in memory of its own until then, because it would
 * otherwise hold up the messages behind it on the same socket. A transport made for speed would
 * avoid these allocations.
 */
#define _GNU_SOURCE
#include <reshard/reshard.h>
#include <reshard/transport.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, SIDE = 8 };

typedef struct head {
    int64_t channel;
    size_t count;
} head;

/* A message: one that was started lives in the memory of its request, an early one in its own. */
typedef struct message {
    struct message *next;
    head head;
    size_t passed; /* bytes of head and body that have gone through the socket */
    char *bytes;
    int32_t peer;
    int done;
} message;

/* One rank's end of the socket to one peer. Lists are ordered, oldest first. */
typedef struct line {
    int socket, gone; /* gone: the peer will neither send nor receive */
    message *sending, *receiving, *early;
    message incoming; /* being read */
} line;

typedef struct endpoint {
    line lines[RANKS];
    int32_t rank;     /* this rank; its line to itself has no socket */
    char broken[200]; /* why the group is broken; "" if it is not */
} endpoint;

static reshard_status refuse(endpoint *e, const char *why)
{
    if (e->broken[0] == '\0')
        snprintf(e->broken, sizeof e->broken, "%s", why);
    return reshard_error_set(RESHARD_ERR_GROUP_BROKEN, e->broken);
}

static void append(message **list, message *m)
{
    while (*list != NULL)
        list = &(*list)->next;
    m->next = NULL;
    *list = m;
}

/* Takes the oldest message on a channel out of a list; NULL if there is none. */
static message *take(message **list, int64_t channel)
{
    while (*list != NULL && (*list)->head.channel != channel)
        list = &(*list)->next;
    message *found = *list;
    if (found != NULL)
        *list = found->next;
    return found;
}

/* Sends or receives as much as possible of the head and then the body; returns 1 when all is
 * done. */
static int pass(endpoint *e, line *l, message *m, int sending)
{
    while (m->passed < sizeof m->head || m->passed < sizeof m->head + m->head.count) {
        size_t of_head = sizeof m->head - m->passed, of_body = m->passed - sizeof m->head;
        int in_head = m->passed < sizeof m->head;
        char *at = in_head ? (char *)&m->head + m->passed : m->bytes + of_body;
        size_t left = in_head ? of_head : m->head.count - of_body;
        ssize_t n = sending ? send(l->socket, at, left, MSG_NOSIGNAL | MSG_DONTWAIT)
                            : recv(l->socket, at, left, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (n <= 0) { /* the peer has left */
            l->gone = 1;
            return 0;
        }
        m->passed += (size_t)n;
        if (!sending && m->passed == sizeof m->head) {
            m->bytes = malloc(m->head.count + 1);
            if (m->bytes == NULL) {
                refuse(e, "out of memory");
                return 0;
            }
        }
    }
    return 1;
}

static void deliver(endpoint *e, message *to, const char *bytes, size_t count)
{
    if (to->head.count != count)
        refuse(e, "a message meets a receive of another size");
    else
        memcpy(to->bytes, bytes, count);
    to->done = to->head.count == count;
}

/* Hands a complete message to the receive that waits for it, or keeps it. */
static void arrive(endpoint *e, line *l)
{
    message *waiting = take(&l->receiving, l->incoming.head.channel);
    if (waiting != NULL) {
        deliver(e, waiting, l->incoming.bytes, l->incoming.head.count);
        free(l->incoming.bytes);
    } else {
        message *kept = malloc(sizeof *kept);
        if (kept == NULL) {
            refuse(e, "out of memory");
            return;
        }
        *kept = l->incoming;
        append(&l->early, kept);
    }
    l->incoming = (message){0};
}

/* Delivers messages from this rank to itself whose receives have been started. */
static void pass_to_self(endpoint *e, line *own)
{
    for (message **at = &own->sending; *at != NULL;) {
        message *sent = *at, *to = take(&own->receiving, sent->head.channel);
        if (to == NULL) {
            at = &sent->next;
            continue;
        }
        deliver(e, to, sent->bytes, sent->head.count);
        sent->done = 1;
        *at = sent->next;
    }
}

static void progress(endpoint *e)
{
    pass_to_self(e, &e->lines[e->rank]);
    for (int peer = 0; peer < RANKS && e->broken[0] == '\0'; peer++) {
        line *l = &e->lines[peer];
        if (peer == e->rank)
            continue;
        while (l->sending != NULL && pass(e, l, l->sending, 1)) {
            l->sending->done = 1;
            l->sending = l->sending->next;
        }
        while (!l->gone && pass(e, l, &l->incoming, 0))
            arrive(e, l);
    }
}

static message *start(int32_t peer, int32_t channel, const void *bytes, size_t count,
                      reshard_request *request)
{
    message *m = (message *)(void *)request;
    *m = (message){.head = {channel, count}, .bytes = (char *)(uintptr_t)bytes, .peer = peer};
    return m;
}

static reshard_status start_send(void *state, int32_t peer, int32_t channel, const void *bytes,
                                 size_t count, reshard_request *request)
{
    endpoint *e = state;
    append(&e->lines[peer].sending, start(peer, channel, bytes, count, request));
    return e->broken[0] != '\0' ? refuse(e, "") : RESHARD_OK;
}

static reshard_status start_receive(void *state, int32_t peer, int32_t channel, void *bytes,
                                    size_t count, reshard_request *request)
{
    endpoint *e = state;
    message *m = start(peer, channel, bytes, count, request);
    message *came = take(&e->lines[peer].early, channel);
    if (came == NULL) {
        append(&e->lines[peer].receiving, m);
    } else {
        deliver(e, m, came->bytes, came->head.count);
        free(came->bytes);
        free(came);
    }
    return e->broken[0] != '\0' ? refuse(e, "") : RESHARD_OK;
}

static reshard_status test(void *state, reshard_request *request, int *out_done)
{
    endpoint *e = state;
    const message *m = (const message *)(const void *)request;
    progress(e);
    *out_done = m->done;
    if (!m->done && e->lines[m->peer].gone)
        refuse(e, "a peer that was waited for has left");
    return !m->done && e->broken[0] != '\0' ? refuse(e, "") : RESHARD_OK;
}

static void idle(void *state)
{
    const endpoint *e = state;
    struct pollfd waits[RANKS];
    for (int peer = 0; peer < RANKS; peer++) {
        const line *l = &e->lines[peer];
        waits[peer] = (struct pollfd){.fd = l->gone ? -1 : l->socket, .events = POLLIN};
        if (l->sending != NULL)
            waits[peer].events |= POLLOUT;
    }
    poll(waits, RANKS, 10);
}

/* Peers find their sockets closed, and break the group as well. */
static void fail(void *state, const char *why)
{
    endpoint *e = state;
    refuse(e, why);
    for (int peer = 0; peer < RANKS; peer++) {
        if (peer != e->rank)
            shutdown(e->lines[peer].socket, SHUT_RDWR);
    }
}

static void close_lines(void *state)
{
    endpoint *e = state;
    for (int peer = 0; peer < RANKS; peer++) {
        line *l = &e->lines[peer];
        free(l->incoming.bytes);
        for (message *m = l->early, *next; m != NULL; m = next) {
            next = m->next;
            free(m->bytes);
            free(m);
        }
        if (peer != e->rank)
            close(l->socket);
    }
}

/* Run by each process. The plan was made before the fork. */
static reshard_status run_rank(reshard_plan *plan, reshard_group *group)
{
    int32_t rank = reshard_group_rank(group), share = SIDE / RANKS;
    int32_t rows[SIDE / RANKS][SIDE], columns[SIDE][SIDE / RANKS];
    for (int i = 0; i < share; i++)
        for (int j = 0; j < SIDE; j++)
            rows[i][j] = (rank * share + i) * SIDE + j;

    reshard_exec *exec = NULL;
    reshard_status status = reshard_exec_create(NULL, plan, group, NULL, &exec);
    if (status == RESHARD_OK)
        status = reshard_exec_start(exec, (const void *[]){rows}, (void *[]){columns});
    if (status == RESHARD_OK)
        status = reshard_exec_wait(exec);
    reshard_exec_destroy(exec);
    if (status != RESHARD_OK)
        return status;

    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < share; j++)
            if (columns[i][j] != i * SIDE + rank * share + j)
                return reshard_error_set(RESHARD_ERR_CHECK, "an element is not where it should be");
    return reshard_group_barrier(group);
}

/* In one rank's process: makes an endpoint from its ends of the sockets, and a group over it. */
static int join(reshard_plan *plan, int32_t rank, int sockets[RANKS][RANKS])
{
    static endpoint e;
    e.rank = rank;
    for (int a = 0; a < RANKS; a++) {
        for (int b = 0; b < RANKS; b++) {
            if (a == rank)
                e.lines[b].socket = sockets[a][b];
            else if (a != b)
                close(sockets[a][b]);
        }
    }
    reshard_endpoint calls = {
        .size = sizeof calls,
        .name = "sockets",
        .rank = rank,
        .rank_count = RANKS,
        .message_bytes_max = (size_t)1 << 30,
        .state = &e,
        .send = start_send,
        .receive = start_receive,
        .test = test,
        .idle = idle,
        .fail = fail,
        .close = close_lines,
    };
    reshard_group *group = NULL;
    int failed = reshard_group_create(NULL, &calls, &group) || run_rank(plan, group);
    if (failed)
        fprintf(stderr, "rank %d: %s\n", (int)rank, reshard_error_text());
    reshard_group_release(group);
    return failed;
}

/* sockets[a][b] is rank a's end of its socket to rank b. */
static int connect_all(int sockets[RANKS][RANKS])
{
    for (int a = 0; a < RANKS; a++) {
        sockets[a][a] = -1;
        for (int b = 0; b < a; b++) {
            int ends[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
                return -1;
            sockets[a][b] = ends[0];
            sockets[b][a] = ends[1];
        }
    }
    return 0;
}

int main(void)
{
    int64_t shape[] = {SIDE, SIDE};
    reshard_layout *rows = NULL, *columns = NULL;
    reshard_plan *plan = NULL;
    int sockets[RANKS][RANKS];
    int failed = reshard_layout_parse(NULL, "4: S(0)", 2, shape, &rows) ||
                 reshard_layout_parse(NULL, "4: S(1)", 2, shape, &columns) ||
                 reshard_plan_create_simple(NULL, rows, columns, RESHARD_I32, NULL, &plan);
    if (failed)
        fprintf(stderr, "%s\n", reshard_error_text());
    if (!failed && (failed = connect_all(sockets)) != 0)
        perror("socketpair");
    for (int32_t rank = 1; rank < RANKS && !failed; rank++) {
        pid_t child = fork();
        if (child == 0)
            _exit(join(plan, rank, sockets));
        failed = child < 0;
    }
    if (!failed)
        failed = join(plan, 0, sockets);
    for (int status; wait(&status) > 0;)
        failed |= status != 0;
    if (!failed)
        printf("%d processes have their columns\n", RANKS);
    reshard_plan_release(plan);
    reshard_layout_release(columns);
    reshard_layout_release(rows);
    return failed;
}
