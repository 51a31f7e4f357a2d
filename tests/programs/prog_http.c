/* ctest: libs=http */
/* A server for tests/cluster/test_http_server.py: answers at once, piece by piece, or not at all.
 * Arguments: ADDRESS REQUEST_S[,ANSWER_S[,GRACE_MS]] [CERTIFICATE KEY [CLIENT_CA]]: the limits of
 * time, of a request, of an answer that is not read, and of the end. Prints its address. SIGHUP
 * reads the files again.
 *   /echo            the body
 *   /refused         401 as soon as the headers have come
 *   /small           the body, of at most 4 KiB
 *   /big?n=          n bytes as a whole answer
 *   /held            contexts of exchanges that have not been released
 *   /stream?n=&ms=   n lines with a pause of ms after each
 *   /silent          no answer until the client has left
 *   /stats           streams that run, and clients that were seen to leave */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "access/certificates.h"
#include "base/clock.h"
#include "http/server.h"

enum {
    BODY_BYTES_MAX = 1 << 20,
    BODIES_BYTES_MAX = 3 << 20,
    SMALL_BYTES_MAX = 4096,
    CONNECTIONS_MAX = 4096,
    SILENT_US = 60000000
};

static atomic_int n_live, n_gone, n_held;

struct times {
    int request_s, answer_s, grace_ms;
};

struct answer {
    struct http_exchange *x;
    int n, pause_ms; /* n < 0: silent */
};

static void pause_ms(int ms)
{
    const struct timespec span = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&span, NULL);
}

static void be_silent(const struct answer *a)
{
    int64_t end_us = clock_now_us() + SILENT_US;
    while (!http_is_gone(a->x) && clock_now_us() < end_us) {
        pause_ms(1);
    }
    n_gone += http_is_gone(a->x);
    http_answer(a->x, 200, "text/plain", "late", 4);
}

static void stream(const struct answer *a)
{
    struct error err;
    char line[64];
    http_begin(a->x, 200, "text/event-stream");
    for (int i = 0; i < a->n; i++) {
        int len = snprintf(line, sizeof line, "%d %" PRId64 "\n", i, clock_now_us());
        if (http_write(a->x, line, (size_t)len, &err)) {
            n_gone++;
            break;
        }
        pause_ms(a->pause_ms);
    }
    http_end(a->x);
}

static void *run(void *arg)
{
    struct answer *a = arg;
    if (a->n < 0)
        be_silent(a);
    else
        stream(a);
    http_exchange_unref(a->x);
    free(a);
    n_live--;
    return NULL;
}

static void start(struct http_exchange *x, bool is_silent)
{
    struct answer *a = malloc(sizeof *a);
    const char *n = http_query(x, "n"), *ms = http_query(x, "ms");
    pthread_t thread;
    pthread_attr_t attributes;
    if (!a) abort();
    *a = (struct answer){x, is_silent ? -1 : n ? atoi(n) : 3, ms ? atoi(ms) : 10};
    http_exchange_ref(x);
    n_live++;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    if (pthread_create(&thread, &attributes, run, a)) abort();
    pthread_attr_destroy(&attributes);
}

static void answer_big(struct http_exchange *x)
{
    const char *n = http_query(x, "n");
    size_t len = n ? (size_t)atol(n) : 1;
    char *text = malloc(len);
    if (!text) abort();
    memset(text, 'x', len);
    http_answer(x, 200, "text/plain", text, len);
    free(text);
}

static void answer_number(struct http_exchange *x, int number)
{
    char text[16];
    http_answer(x, 200, "text/plain", text, (size_t)snprintf(text, sizeof text, "%d\n", number));
}

static void release(void *context)
{
    free(context);
    n_held--;
}

static void begin(struct http_exchange *x, void *state)
{
    struct error err;
    (void)state;
    n_held++;
    http_take_context(x, malloc(1), release);
    if (http_set_header(x, "X-Begun", "no", &err) ||
        http_replace_header(x, "x-begun", "yes", &err)) {
        abort();
    }
    if (strcmp(http_path(x), "/refused") == 0) http_answer(x, 401, "text/plain", "who?\n", 5);
    if (strcmp(http_path(x), "/small") == 0) http_limit_body(x, SMALL_BYTES_MAX);
}

static void handle(struct http_exchange *x, void *state)
{
    size_t len;
    const char *body = http_body(x, &len), *path = http_path(x);
    char text[64];
    (void)state;
    if (strcmp(path, "/echo") == 0) {
        struct buffer taken;
        http_take_body(x, &taken);
        http_answer_take(x, 200, "text/plain", &taken);
    } else if (strcmp(path, "/small") == 0) {
        http_answer(x, 200, "text/plain", body, len);
    } else if (strcmp(path, "/big") == 0) {
        answer_big(x);
    } else if (strcmp(path, "/held") == 0) {
        answer_number(x, n_held);
    } else if (strcmp(path, "/stats") == 0) {
        int n = snprintf(text, sizeof text, "%d %d\n", n_live, n_gone);
        http_answer(x, 200, "text/plain", text, (size_t)n);
    } else if (strcmp(path, "/stream") == 0 || strcmp(path, "/silent") == 0) {
        start(x, strcmp(path, "/silent") == 0);
    } else {
        http_answer(x, 404, "text/plain", "no\n", 3);
    }
}

/* Waits for SIGTERM. */
static void serve(struct certificates *certificates, const sigset_t *signals)
{
    int number;
    while (sigwait(signals, &number) == 0 && number != SIGTERM) {
        certificates_reload(certificates);
    }
}

static int open_server(struct http_server **server, struct certificates **certificates,
                       const struct times *times, int argc, char **argv, struct error *err)
{
    int rc = 0;
    const struct certificate_files files = {.certificate = argc > 3 ? argv[3] : NULL,
                                            .key = argc > 4 ? argv[4] : NULL,
                                            .ca = argc > 5 ? argv[5] : NULL};
    if (files.certificate) TRY(certificates_open(certificates, &files, err));
    const struct http_server_options options = {.address = argv[1],
                                                .begin = begin,
                                                .handler = handle,
                                                .max_body_bytes = BODY_BYTES_MAX,
                                                .max_bodies_bytes = BODIES_BYTES_MAX,
                                                .max_connections = CONNECTIONS_MAX,
                                                .request_timeout_s = times->request_s,
                                                .answer_timeout_s = times->answer_s,
                                                .certificates = *certificates};
    TRY(http_server_open(server, &options, err));
out:
    return rc;
}

int main(int argc, char **argv)
{
    struct error err;
    struct http_server *server;
    struct certificates *certificates = NULL;
    struct times times = {.grace_ms = 500};
    sigset_t signals;
    if (argc < 3 || argc == 4 || argc > 6) return 2;
    sscanf(argv[2], "%d,%d,%d", &times.request_s, &times.answer_s, &times.grace_ms);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (open_server(&server, &certificates, &times, argc, argv, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("%s\n", http_server_address(server));
    fflush(stdout);
    serve(certificates, &signals);
    http_server_close(server, times.grace_ms);
    certificates_close(certificates);
    while (n_live) {
        pause_ms(5);
    }
    return 0;
}
