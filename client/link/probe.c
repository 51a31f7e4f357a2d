/* Round trips and bandwidth, with what a step's messages cost in mind: the median counts. */
#include "client/link/probe.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "client/link/net.h"

enum {
    ROUNDS = 300,
    QUICK_ROUNDS = 5,
    WARM_UP_ROUNDS = 10,
    PING_BYTES = 56, /* 64 with the head */
    LARGE_BYTES = 4 << 20,
    LARGE_US = 300000 /* large messages are sent for about so long */
};

/* One message and its answer. */
static int exchange(int fd, int kind, uint8_t *message, uint32_t body_bytes, struct error *err)
{
    uint8_t answer[LINK_HEAD_BYTES + PING_BYTES];
    size_t n_back = LINK_HEAD_BYTES + (kind == LINK_ECHO ? body_bytes : 0);
    int rc = 0;
    link_head_write(message, kind, body_bytes);
    TRY(link_send(fd, message, LINK_HEAD_BYTES + body_bytes, err));
    TRY(link_receive(fd, answer, n_back, err));
    if (memcmp(answer, message, n_back) == 0) return 0;
    rc = error_set(err, ERR_FORMAT, "the other side is no 'outrider link'");
out:
    return rc;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure_rounds(struct link_probe *out, int fd, int n_rounds, struct error *err)
{
    double times[ROUNDS];
    uint8_t message[LINK_HEAD_BYTES + PING_BYTES] = {0};
    int rc = 0;
    for (int i = -WARM_UP_ROUNDS; i < n_rounds; i++) {
        int64_t start_ns = clock_now_ns();
        TRY(exchange(fd, LINK_ECHO, message, PING_BYTES, err));
        if (i >= 0) times[i] = (double)(clock_now_ns() - start_ns) / 1000;
    }
    qsort(times, (size_t)n_rounds, sizeof *times, compare);
    out->n_rounds = n_rounds;
    out->least_us = times[0];
    out->round_trip_us = times[n_rounds / 2];
    out->p90_us = times[n_rounds * 9 / 10];
out:
    return rc;
}

/* The first message only opens TCP's window. */
static int measure_bandwidth(struct link_probe *out, int fd, struct error *err)
{
    uint8_t *message = NULL;
    int rc = 0, n = 0;
    TRY(mem_array(&message, LINK_HEAD_BYTES + LARGE_BYTES, 1, err));
    TRY(exchange(fd, LINK_SINK, message, LARGE_BYTES, err));
    int64_t start_us = clock_now_us(), took_us = 0;
    while (took_us < LARGE_US) {
        TRY(exchange(fd, LINK_SINK, message, LARGE_BYTES, err));
        took_us = clock_now_us() - start_us;
        n++;
    }
    double sending_us = (double)took_us - n * out->round_trip_us;
    if (sending_us > 0) out->bytes_per_second = (double)n * LARGE_BYTES / sending_us * 1e6;
out:
    free(message);
    return rc;
}

int link_probe(struct link_probe *out, const char *address, int timeout_ms, bool is_quick,
               struct error *err)
{
    int fd = -1;
    *out = (struct link_probe){0};
    int rc = link_connect(&fd, address, timeout_ms, err);
    if (rc) return rc;
    rc = measure_rounds(out, fd, is_quick ? QUICK_ROUNDS : ROUNDS, err);
    if (!rc && !is_quick) rc = measure_bandwidth(out, fd, err);
    close(fd);
    return rc ? error_wrap(err, "%.100s", address) : 0;
}
