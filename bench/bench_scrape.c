/* Reads /metrics again and again over one connection, for bench/scrapes.py: in C, so that the
 * reader takes little of a core beside the server's own work, as one on another machine would.
 *
 *   bench_scrape HOST:PORT SCRAPES EVERY_MS
 *
 * Waits for a random time of EVERY_MS on average, tosses a coin, and then either reads the page or
 * does nothing, until it has read SCRAPES pages; with EVERY_MS = 0 it only reads. Prints a line for
 * each time, "1 BEGIN END" where it read the page and "0 BEGIN END" where it did not, in seconds of
 * the monotonic clock, and at last the bytes of the page, the CPU seconds that the server says it
 * has taken since the first page, and those of this program, "# BYTES SECONDS OWN_SECONDS". */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/dial.h"

enum { PAGE_BYTES = 1 << 20, EVENTS_MAX = 1 << 20 };

struct event {
    bool is_read;
    int64_t begin_ns, end_ns;
};

static char page[PAGE_BYTES + 1];
static struct event events[EVENTS_MAX];
static uint64_t state = 1;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_scrape: %s: %s\n", what, why);
    exit(1);
}

/* From 0 to 1 (xorshift64*). */
static double draw(void)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (double)((state * 0x2545f4914f6cdd1dULL) >> 11) * 0x1p-53;
}

static size_t take(int fd, size_t len)
{
    ssize_t n = read(fd, page + len, PAGE_BYTES - len);
    if (n <= 0) fail("the page", n ? strerror(errno) : "the connection was closed, or it is long");
    page[len + (size_t)n] = 0;
    return len + (size_t)n;
}

/* Returns the bytes of the page, which follows its head in `page`. */
static size_t read_page(int fd, const char **body)
{
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static const char length[] = "\r\nContent-Length: ";
    size_t len = 0;
    const char *end;
    if (write(fd, request, sizeof request - 1) < 0) fail("the request", strerror(errno));
    page[0] = 0;
    while (!(end = strstr(page, "\r\n\r\n"))) {
        len = take(fd, len);
    }
    if (strncmp(page, "HTTP/1.1 200", 12) != 0) fail("the page", page);
    const char *said = strstr(page, length);
    if (!said) fail("the page", "it does not say how long it is");
    size_t n_body = strtoul(said + sizeof length - 1, NULL, 10);
    *body = end + 4;
    while (len < (size_t)(*body - page) + n_body) {
        len = take(fd, len);
    }
    return n_body;
}

static double cpu_seconds(const char *body)
{
    static const char name[] = "\nprocess_cpu_seconds_total ";
    const char *at = strstr(body, name);
    if (!at) fail("the page", "it does not say what CPU time was taken");
    return strtod(at + sizeof name - 1, NULL);
}

static double own_cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv)
{
    const char *body;
    int n_events = 0, n_read = 0, fd;
    struct error err;
    if (argc != 4) fail("usage", "bench_scrape HOST:PORT SCRAPES EVERY_MS");
    int wanted = atoi(argv[2]);
    double every_ms = atof(argv[3]);
    if (dial(argv[1], &fd, &err)) fail("the server", err.text);
    size_t n_bytes = read_page(fd, &body);
    double before = cpu_seconds(body), own_before = own_cpu_seconds();
    while (n_read < wanted && n_events < EVENTS_MAX) {
        struct event *event = &events[n_events++];
        if (every_ms > 0) clock_sleep_us((int64_t)((0.5 + draw()) * every_ms * 1e3));
        event->is_read = every_ms <= 0 || draw() < 0.5;
        event->begin_ns = clock_now_ns();
        if (event->is_read) n_bytes = read_page(fd, &body);
        event->end_ns = clock_now_ns();
        n_read += event->is_read;
    }
    double own = own_cpu_seconds() - own_before;
    for (int i = 0; i < n_events; i++) {
        printf("%d %.9f %.9f\n", events[i].is_read, (double)events[i].begin_ns * 1e-9,
               (double)events[i].end_ns * 1e-9);
    }
    printf("# %zu %.6f %.6f\n", n_bytes, cpu_seconds(body) - before, own);
    close(fd);
    return 0;
}
