/* Compares the cost of the HTTP door with that of gRPC: the same greedy texts through both, in
 * turn, from so many clients at once, each a thread that reads its stream.
 *
 *   bench_doors GRPC_ADDRESS HTTP_ADDRESS [CLIENTS [TOKENS [REPETITIONS]]]
 *
 * The coordinator must be serving. Prints for each door the median over the repetitions of the
 * time to the first token, the time of a token after that, and tokens per second of all clients;
 * and of HTTP over gRPC the median of the differences and ratios of neighbouring repetitions. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/dial.h"
#include "proto/generation_wire.h"
#include "rpc/client.h"

enum { CLIENTS_MAX = 256, REPETITIONS_MAX = 1000, PATIENCE_US = 120 * 1000000, WARM_UPS = 2 };

static const char *addresses[2];
static const char *const doors[2] = {"grpc", "http"};
static const char path[] = "/outrider.generation.v1.Generation/Generate";
static int n_clients = 1, n_tokens = 256, n_repetitions = 15;

struct client {
    int number, door;
    pthread_t thread;
    int64_t begin_us, first_us, end_us;
};

/* Figures of one repetition of one door. */
struct outcome {
    double first_us, token_us, per_s;
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_doors: %s: %s\n", what, why);
    exit(1);
}

static void note(struct client *c)
{
    c->end_us = clock_now_us();
    if (!c->first_us) c->first_us = c->end_us;
}

/* ---- gRPC ---- */

static void encode(struct buffer *message, int number)
{
    struct generate_request request;
    struct error err;
    char prompt[64];
    generate_request_init(&request);
    request.prompt = prompt;
    request.prompt_len = (size_t)snprintf(prompt, sizeof prompt, "Tale %d. Once upon", number);
    request.max_tokens = n_tokens;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    if (generate_request_encode(message, &request, &err)) fail("request", err.text);
}

static void run_grpc(struct client *c)
{
    struct rpc_client *client;
    struct rpc_stream *stream;
    struct buffer message = {0};
    struct error err;
    const uint8_t *data;
    size_t len;
    int64_t deadline_us = clock_now_us() + PATIENCE_US;
    encode(&message, c->number);
    if (rpc_client_open(&client, NULL, &err)) fail("client", err.text);
    c->begin_us = clock_now_us();
    int rc = rpc_stream_open(&stream, client, addresses[0], path, true, deadline_us, &err);
    if (!rc) rc = rpc_stream_send(stream, message.data, message.len, deadline_us, &err);
    if (!rc) rc = rpc_stream_half_close(stream, &err);
    while (!rc && !(rc = rpc_stream_receive(stream, &data, &len, deadline_us, &err))) {
        note(c);
    }
    if (rc != ERR_CLOSED) fail(addresses[0], err.text);
    rpc_stream_close(stream);
    rpc_client_close(client);
    buffer_free(&message);
}

/* ---- HTTP ---- */

static void ask(int fd, int number)
{
    char body[256], request[512];
    int len = snprintf(body, sizeof body,
                       "{\"prompt\":\"Tale %d. Once upon\",\"max_tokens\":%d,\"temperature\":0,"
                       "\"ignore_eos\":true,\"stream\":true}",
                       number, n_tokens);
    len = snprintf(
        request, sizeof request,
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: %d\r\n\r\n%s",
        len, body);
    if (write(fd, request, (size_t)len) != len) fail("write", strerror(errno));
}

static void run_http(struct client *c)
{
    char text[65536 + 1];
    char tail[16] = "";
    int fd;
    struct error err;
    if (dial(addresses[1], &fd, &err)) fail("HTTP", err.text);
    c->begin_us = clock_now_us();
    ask(fd, c->number);
    for (;;) {
        ssize_t n = read(fd, text, sizeof text - 1);
        if (n <= 0) fail(addresses[1], n ? strerror(errno) : "the stream ended early");
        text[n] = 0;
        if (!c->first_us && !strstr(text, "data: ")) continue; /* the header alone */
        note(c);
        /* The end may come in two parts. */
        char joined[64];
        size_t kept = n < 15 ? (size_t)n : 15;
        snprintf(joined, sizeof joined, "%.15s%.15s", tail, text + n - kept);
        if (strstr(joined, "[DONE]")) break;
        snprintf(tail, sizeof tail, "%.15s", text + n - kept);
    }
    close(fd);
}

/* ---- repetitions ---- */

static void *run_client(void *arg)
{
    struct client *c = arg;
    if (c->door == 0)
        run_grpc(c);
    else
        run_http(c);
    return NULL;
}

static struct outcome run_once(int door)
{
    static struct client clients[CLIENTS_MAX];
    struct outcome outcome = {0};
    int64_t begin_us = clock_now_us();
    for (int i = 0; i < n_clients; i++) {
        clients[i] = (struct client){.number = i, .door = door};
        if (pthread_create(&clients[i].thread, NULL, run_client, &clients[i])) {
            fail("thread", strerror(errno));
        }
    }
    for (int i = 0; i < n_clients; i++) {
        pthread_join(clients[i].thread, NULL);
        outcome.first_us += (double)(clients[i].first_us - clients[i].begin_us) / n_clients;
        outcome.token_us += (double)(clients[i].end_us - clients[i].first_us) /
                            ((double)n_clients * (n_tokens - 1));
    }
    outcome.per_s = (double)n_tokens * n_clients * 1e6 / (double)(clock_now_us() - begin_us);
    return outcome;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static double *field_of(struct outcome *outcome, int field)
{
    return field == 0 ? &outcome->first_us : field == 1 ? &outcome->token_us : &outcome->per_s;
}

static void show(struct outcome outcomes[2][REPETITIONS_MAX])
{
    static const char *const names[] = {"first token, us", "token after it, us", "tokens/s"};
    static double values[REPETITIONS_MAX], differences[REPETITIONS_MAX], ratios[REPETITIONS_MAX];
    printf("%-20s %12s %12s %18s %12s\n", "", doors[0], doors[1], "http less grpc", "http/grpc");
    for (int field = 0; field < 3; field++) {
        double medians[2];
        for (int i = 0; i < n_repetitions; i++) {
            double g = *field_of(&outcomes[0][i], field), h = *field_of(&outcomes[1][i], field);
            differences[i] = h - g;
            ratios[i] = h / g;
        }
        for (int door = 0; door < 2; door++) {
            for (int i = 0; i < n_repetitions; i++) {
                values[i] = *field_of(&outcomes[door][i], field);
            }
            medians[door] = median(values, n_repetitions);
        }
        printf("%-20s %12.1f %12.1f %18.1f %12.3f\n", names[field], medians[0], medians[1],
               median(differences, n_repetitions), median(ratios, n_repetitions));
    }
}

static int number(const char *text, int most)
{
    int n = atoi(text);
    if (n < 1 || n > most) fail(text, "not a number in range");
    return n;
}

int main(int argc, char **argv)
{
    static struct outcome outcomes[2][REPETITIONS_MAX];
    if (argc < 3 || argc > 6) {
        fail("usage", "bench_doors GRPC_ADDRESS HTTP_ADDRESS [CLIENTS [TOKENS [REPETITIONS]]]");
    }
    addresses[0] = argv[1];
    addresses[1] = argv[2];
    if (argc > 3) n_clients = number(argv[3], CLIENTS_MAX);
    if (argc > 4) n_tokens = number(argv[4], 100000);
    if (argc > 5) n_repetitions = number(argv[5], REPETITIONS_MAX);
    for (int i = -WARM_UPS; i < n_repetitions; i++) {
        for (int turn = 0; turn < 2; turn++) {
            int door = (turn + i + WARM_UPS) % 2; /* neither is always the first */
            struct outcome outcome = run_once(door);
            if (i >= 0) outcomes[door][i] = outcome;
        }
    }
    printf("%d clients, %d tokens each, %d repetitions\n", n_clients, n_tokens, n_repetitions);
    show(outcomes);
    return 0;
}
