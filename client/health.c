/* outrider health: does a coordinator or a worker serve? Scripts and probes use its exit status. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/server.h"

enum { RETRY_MS = 1000 };

struct health {
    struct connection connection;
    const char *service;
    bool is_watching, has_several;
    struct buffer request;
    struct server server;
};

#define FIELD(member) OPTION_FIELD(struct health, member)

static const struct option_row rows[] = {
    {"service", 0, "NAME", FIELD(service),
     .help = "Ask for one name: live (does the process make progress?), "
             "outrider.generation.v1.Generation, outrider.target.v1.Target; default: whether "
             "the process as a whole serves"},
    {"watch", 'w', NULL, FIELD(is_watching),
     .help = "Go on and print a line at every change, until interrupted"},
    OPTION_GROUP("Connection", "--address=10.0.0.1:7070,10.0.0.2:7071"),
    {"address", 'a', "ADDRESS", FIELD(connection.address), .standard = CLIENT_ADDRESS_DEFAULT,
     .variable = "OUTRIDER_ADDRESS",
     .help = CLIENT_ADDRESS_HELP "; a worker's address works too, and several ones separated by "
                                 "commas, all of which must serve"},
    {0},
};

static const char doc[] =
    "Prints whether a server is serving, that is, ready to take requests.\v"
    "Exit status: 0 serving, 1 not serving or not there, 2 wrong command line, 130 interrupted.";

static int prepare(struct health *h, int argc, char **argv, struct error *err)
{
    const struct option_program program = {
        .variables = "OUTRIDER_HEALTH_",
        .example = "outrider health --address 10.0.0.1:7070",
        .name = "health",
        .doc = doc,
        .parts = {{rows, h, NULL}, {connection_rows, &h->connection, NULL}}};
    int rc = 0;
    TRY(option_program_parse(&program, argc, argv, err));
    TRY(connection_open(&h->connection, err));
    h->has_several = strchr(h->connection.address, ',') != NULL;
    if (h->is_watching && h->has_several) {
        rc = error_set(err, ERR_ARGUMENT, "--watch wants one --address");
        goto out;
    }
    TRY(health_request_encode(&h->request, h->service, err));
out:
    return rc;
}

static int print_answer(enum health_answer answer, struct error *err)
{
    static const char *const words[] = {[HEALTH_ANSWER_UNKNOWN] = "unknown",
                                        [HEALTH_ANSWER_SERVING] = "serving",
                                        [HEALTH_ANSWER_NOT_SERVING] = "not serving"};
    puts(words[answer]);
    return client_flush(err);
}

static int receive_answer(struct health *h, enum health_answer *answer, struct error *err)
{
    const uint8_t *data;
    size_t len;
    int rc = 0;
    TRY(server_receive(&h->server, &data, &len, err));
    TRY(health_response_decode(data, len, answer, err));
out:
    return rc;
}

/* Prints a line at every change. Where no server answers, it tries again a second later. Errors:
 * ERR_CANCELLED interrupted, ERR_IO the lines cannot be written. */
static int watch(struct health *h, struct error *err)
{
    bool was_there = true;
    int rc = server_start(&h->server, "/grpc.health.v1.Health/Watch", &h->request, err);
    for (;;) {
        enum health_answer answer;
        if (!rc) rc = receive_answer(h, &answer, err);
        if (!rc) {
            was_there = true;
            rc = print_answer(answer, err);
            if (rc) return rc;
            continue;
        }
        if (rc == ERR_CANCELLED) return rc;
        if (was_there) puts("not there");
        was_there = false;
        TRY(client_flush(err));
        TRY(server_sleep(&h->server, RETRY_MS, err));
        rc = server_start(&h->server, "/grpc.health.v1.Health/Watch", &h->request, err);
    }
out:
    return rc;
}

/* Asks the server at the connection's address. Sets *answer to the last answer. */
static int ask(struct health *h, enum health_answer *answer, struct error *err)
{
    int rc = 0;
    TRY(server_open(&h->server, &h->connection, 0, err));
    if (h->is_watching) return watch(h, err);
    TRY(server_health(&h->server, h->service, answer, err));
    if (h->has_several) printf("%s ", h->connection.address);
    TRY(print_answer(*answer, err));
out:
    return rc;
}

/* Asks one server after the other, until one does not serve. */
static int ask_all(struct health *h, enum health_answer *answer, struct error *err)
{
    int rc = 0;
    char *rest = NULL, *list = strdup(h->connection.address);
    if (!list) return error_set(err, ERR_NO_MEMORY, "no memory for the addresses");
    for (char *item = strtok_r(list, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
        h->connection.address = item;
        TRY(ask(h, answer, err));
        if (*answer != HEALTH_ANSWER_SERVING) break;
        server_close(&h->server);
    }
out:
    server_close(&h->server);
    h->connection.address = NULL;
    free(list);
    return rc;
}

int health_main(int argc, char **argv)
{
    struct health h = {.service = ""};
    struct error err;
    enum health_answer answer = HEALTH_ANSWER_UNKNOWN;
    int status = CLIENT_OK;
    if (prepare(&h, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (h.has_several ? ask_all(&h, &answer, &err) : ask(&h, &answer, &err)) {
        status = client_fail(&err);
    } else if (answer != HEALTH_ANSWER_SERVING) {
        status = CLIENT_FAILED;
    }
    server_close(&h.server);
    connection_close(&h.connection);
    buffer_free(&h.request);
    return status;
}
