/* Sends back what comes, or says that it came. */
#include "client/link/serve.h"

#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "client/client.h"
#include "client/link/net.h"

enum { SILENCE_MS = 30000, PIECE_BYTES = 1 << 16 };

/* One message. A body is answered in pieces, so that it never has to fit. */
static int answer(int fd, uint8_t piece[PIECE_BYTES], struct error *err)
{
    uint8_t head[LINK_HEAD_BYTES];
    uint32_t left;
    int kind, rc = 0;
    TRY(link_receive(fd, head, sizeof head, err));
    TRY(link_head_read(head, &kind, &left, err));
    if (kind == LINK_ECHO) TRY(link_send(fd, head, sizeof head, err));
    while (left) {
        uint32_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
        TRY(link_receive(fd, piece, n, err));
        if (kind == LINK_ECHO) TRY(link_send(fd, piece, n, err));
        left -= n;
    }
    if (kind == LINK_SINK) TRY(link_send(fd, head, sizeof head, err));
out:
    return rc;
}

/* Until the caller ends the connection, says nothing for long or sends something else. */
static void *answer_all(void *arg)
{
    int fd = (int)(intptr_t)arg;
    uint8_t *piece = NULL;
    struct error err;
    link_prepare(fd, SILENCE_MS);
    int rc = mem_array(&piece, PIECE_BYTES, 1, &err);
    while (!rc) {
        rc = answer(fd, piece, &err);
    }
    free(piece);
    close(fd);
    return NULL;
}

static void take_caller(int listening)
{
    pthread_t thread;
    int fd = accept(listening, NULL, NULL);
    if (fd < 0) return;
    if (pthread_create(&thread, NULL, answer_all, (void *)(intptr_t)fd)) {
        close(fd);
        return;
    }
    pthread_detach(thread);
}

int link_serve(const char *address, int seconds, struct error *err)
{
    char bound[LINK_ADDRESS_BYTES];
    int fd = -1, rc = 0;
    int64_t end_ms = seconds ? clock_now_ms() + (int64_t)seconds * 1000 : INT64_MAX;
    TRY(link_listen(&fd, address, bound, err));
    printf("serving %s\n", bound);
    TRY(client_flush(err));
    for (;;) {
        /* Nobody reads our output any more: the ssh that started this has ended. */
        struct pollfd polled[] = {{.fd = fd, .events = POLLIN}, {.fd = STDOUT_FILENO}};
        int64_t left_ms = end_ms - clock_now_ms();
        if (left_ms <= 0) break;
        int wait_ms = left_ms < 1000 ? (int)left_ms : 1000;
        if (poll(polled, 2, wait_ms) <= 0) continue;
        if (polled[0].revents & POLLIN) take_caller(fd);
        if (polled[1].revents & (POLLERR | POLLHUP)) break;
    }
out:
    if (fd >= 0) close(fd);
    return rc;
}
