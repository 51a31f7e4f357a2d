/* Measures how much many streams at once add to the time between two pieces of a text: one thread
 * reads all of them, notes when each chunk comes, and takes from the gap before it what its round
 * took in the engine. Every eighth stream says that itself (show_drafts) and is counted; the others
 * are as most clients have them, so that the details, which cost several times what a chunk costs,
 * are not a part of what they measure.
 *
 *   bench_streams HTTP_ADDRESS [CLIENTS [TOKENS]]
 *
 * The coordinator must be serving; --sequences says how many texts are made at a time, the other
 * clients wait with their connections open. Prints percentiles over all chunks but the first of
 * each counted stream. What is added is the front's work and the reader's own, and also steps in
 * which a text had no part. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/process.h"
#include "bench/dial.h"

enum {
    CLIENTS_MAX = 4096,
    TOKENS_MAX = 10000,
    READ_BYTES = 16384,
    LINE_BYTES = 4096,
    PATIENCE_MS = 60000,
    TELLING = 8, /* one in so many streams tells of its rounds */
    EVENTS = 256
};

struct stream {
    int fd;
    bool is_done;
    int64_t last_us; /* when the last chunk came; 0 = none has */
    size_t n_line;
    char line[LINE_BYTES]; /* what has come of a line */
};

static struct stream streams[CLIENTS_MAX];
static int n_clients = 1000, n_tokens = 50, n_done;

/* Times of every chunk but the first of a stream that tells. */
static double *gaps, *rounds, *added;
static size_t n_chunks;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_streams: %s: %s\n", what, why);
    exit(1);
}

/* ---- requests ---- */

static void begin(struct stream *s, const char *address, int number)
{
    char body[256], request[512];
    struct error err;
    int len =
        snprintf(body, sizeof body,
                 "{\"prompt\":\"Tale %d. Once upon\",\"max_tokens\":%d,\"temperature\":0,"
                 "\"ignore_eos\":true,\"stream\":true,"
                 "\"outrider\":{\"n_draft\":0%s}}",
                 number % 100, n_tokens, number % TELLING == 0 ? ",\"show_drafts\":true" : "");
    len = snprintf(
        request, sizeof request,
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: %d\r\n\r\n%s",
        len, body);
    if (dial(address, &s->fd, &err)) fail("a stream", err.text);
    if (write(s->fd, request, (size_t)len) != len) fail("write", strerror(errno));
}

/* ---- chunks ---- */

static void note(struct stream *s, int64_t now_us)
{
    const char *round = strstr(s->line, "\"round\":");
    const char *total = round ? strstr(round, "\"total\":") : NULL;
    if (strstr(s->line, "\"error\"")) fail("a stream", s->line);
    if (!total) return; /* it does not tell, or it is the last chunk, which has no tokens */
    if (s->last_us) {
        double round_us = strtod(total + strlen("\"total\":"), NULL);
        gaps[n_chunks] = (double)(now_us - s->last_us);
        rounds[n_chunks] = round_us;
        added[n_chunks] = gaps[n_chunks] - round_us;
        n_chunks++;
    }
    s->last_us = now_us;
}

static void end_line(struct stream *s, int64_t now_us)
{
    s->line[s->n_line] = 0;
    if (strncmp(s->line, "data: {", 7) == 0) note(s, now_us);
    if (strncmp(s->line, "data: [DONE]", 12) == 0) s->is_done = true;
    if (strncmp(s->line, "HTTP/1.1 ", 9) == 0 && strncmp(s->line + 9, "200", 3) != 0) {
        fail("a request", s->line);
    }
    s->n_line = 0;
}

static void take(struct stream *s)
{
    static char text[READ_BYTES];
    ssize_t n = read(s->fd, text, sizeof text);
    int64_t now_us = clock_now_us();
    if (n <= 0) fail("a stream", n ? strerror(errno) : "it ended early");
    for (ssize_t i = 0; i < n; i++) {
        if (text[i] == '\n')
            end_line(s, now_us);
        else if (s->n_line < LINE_BYTES - 1)
            s->line[s->n_line++] = text[i];
    }
    if (!s->is_done) return;
    close(s->fd);
    n_done++;
}

static void read_all(int poll)
{
    struct epoll_event events[EVENTS];
    while (n_done < n_clients) {
        int n = epoll_wait(poll, events, EVENTS, PATIENCE_MS);
        if (n <= 0) fail("waiting", n ? strerror(errno) : "nothing has come for a minute");
        for (int i = 0; i < n; i++) {
            take(events[i].data.ptr);
        }
    }
}

/* ---- figures ---- */

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void show(const char *name, double *values)
{
    qsort(values, n_chunks, sizeof *values, compare);
    printf("%-24s %10.0f %10.0f %10.0f %10.0f\n", name, values[n_chunks / 2],
           values[n_chunks * 9 / 10], values[n_chunks * 99 / 100], values[n_chunks - 1]);
}

static int number(const char *text, int most)
{
    int n = atoi(text);
    if (n < 1 || n > most) fail(text, "not a number in range");
    return n;
}

static double *make(size_t n)
{
    double *made = calloc(n, sizeof *made);
    if (!made) fail("memory", "none");
    return made;
}

int main(int argc, char **argv)
{
    const struct process_calls calls = {0};
    struct error err;
    if (argc < 2 || argc > 4) fail("usage", "bench_streams HTTP_ADDRESS [CLIENTS [TOKENS]]");
    if (argc > 2) n_clients = number(argv[2], CLIENTS_MAX);
    if (argc > 3) n_tokens = number(argv[3], TOKENS_MAX);
    if (process_open(&calls, 0, &err)) fail("process", err.text);
    size_t most = (size_t)n_clients * (size_t)n_tokens;
    gaps = make(most);
    rounds = make(most);
    added = make(most);
    int poll = epoll_create1(0);
    int64_t begin_us = clock_now_us();
    for (int i = 0; i < n_clients; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &streams[i]};
        begin(&streams[i], argv[1], i);
        if (epoll_ctl(poll, EPOLL_CTL_ADD, streams[i].fd, &event)) fail("epoll", strerror(errno));
    }
    read_all(poll);
    double seconds = (double)(clock_now_us() - begin_us) / 1e6;
    printf("%d streams of %d tokens, none lost, %.0f tokens/s\n", n_done, n_tokens,
           (double)n_done * n_tokens / seconds);
    printf("%-24s %10s %10s %10s %10s\n", "us", "median", "90 %", "99 %", "most");
    show("between two chunks", gaps);
    show("a round in the engine", rounds);
    show("added", added);
    process_close();
    return 0;
}
