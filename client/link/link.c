/* outrider link: can two hosts reach each other, and what does the way between them cost? */
#include <stdio.h>
#include <string.h>

#include "base/system/network.h"
#include "client/client.h"
#include "client/link/net.h"
#include "client/link/probe.h"
#include "client/link/serve.h"

enum { ADDRESSES_MAX = 64 };

struct link_command {
    const char *addresses[ADDRESSES_MAX], *serve, *network;
    int n_addresses, seconds, timeout_s;
    bool is_quick, is_json;
};

static int take_address(void *fields, char *word, struct error *err)
{
    struct link_command *c = fields;
    if (c->n_addresses == ADDRESSES_MAX) {
        return error_set(err, ERR_ARGUMENT, "more than %d addresses", ADDRESSES_MAX);
    }
    c->addresses[c->n_addresses++] = word;
    return 0;
}

#define FIELD(member) OPTION_FIELD(struct link_command, member)

static const struct option_row rows[] = {
    OPTION_GROUP("To answer", "--serve=:7079 --network=eth0"),
    {"serve", 0, "ADDRESS", FIELD(serve),
     .help = "Answer others at HOST:PORT; port 0 is any, and the first line says which"},
    {"network", 0, "NAME|A.B.C.D/N", FIELD(network),
     .help = "With --serve :PORT, the address that this host has in that interface or network"},
    {"seconds", 0, "N", FIELD(seconds), .least = 1, .most = 86400,
     .help = "With --serve, end after so long; default: never"},
    OPTION_GROUP("To measure", "--quick 10.0.0.2:7079"),
    {"quick", 0, NULL, FIELD(is_quick), .help = "Only see whether there is a way: no bandwidth"},
    {"timeout", 0, "SECONDS", FIELD(timeout_s), .least = 1, .most = 600, .standard_int = 5,
     .help = "For a connection, and for each answer"},
    {"json", 0, NULL, FIELD(is_json), .help = "Print one JSON object"},
    {0},
};

static const char doc[] =
    "Measures the way from this host to each ADDRESS, where `outrider link --serve` answers: the "
    "round trip of 64 bytes over TCP, and the bandwidth of one connection. The planner takes these "
    "figures, and deploy/mpirun/group sees with them that all hosts of a group can reach each "
    "other.\v" CLIENT_STATUS_DOC;

static int prepare(struct link_command *c, int argc, char **argv, struct error *err)
{
    const struct option_program program = {.variables = "OUTRIDER_LINK_",
                                           .example = "outrider link 10.0.0.2:7079",
                                           .args_doc = "[ADDRESS...]",
                                           .doc = doc,
                                           .parts = {{rows, c, NULL}},
                                           .take = take_address};
    int rc = option_program_parse(&program, argc, argv, err);
    if (rc) return rc;
    if (!c->serve == !c->n_addresses) {
        return error_set(err, ERR_ARGUMENT, "give either --serve ADDRESS or addresses to measure");
    }
    if (c->network && (!c->serve || c->serve[0] != ':')) {
        return error_set(err, ERR_ARGUMENT, "--network goes with --serve :PORT");
    }
    return 0;
}

static int serve(const struct link_command *c, struct error *err)
{
    char host[NETWORK_ADDRESS_BYTES], address[NETWORK_JOINED_BYTES];
    if (!c->network) return link_serve(c->serve, c->seconds, err);
    int rc = network_find_address(c->network, host, err);
    if (rc) return rc;
    network_join(host, c->serve + 1, address);
    return link_serve(address, c->seconds, err);
}

static void print_probe(const char *address, const struct link_probe *probe)
{
    printf("%s  round trip %.3f ms (median of %d; least %.3f, 90 %% within %.3f)", address,
           probe->round_trip_us / 1000, probe->n_rounds, probe->least_us / 1000,
           probe->p90_us / 1000);
    if (probe->bytes_per_second > 0) printf(", %.0f MB/s", probe->bytes_per_second / 1e6);
    putchar('\n');
}

static json_t *probe_object(const char *address, const struct link_probe *probe,
                            const struct error *failure)
{
    if (failure) return json_pack("{ss ss}", "address", address, "error", failure->text);
    return json_pack("{ss sf sf sf sf si}", "address", address, "round_trip_us",
                     probe->round_trip_us, "least_us", probe->least_us, "p90_us", probe->p90_us,
                     "bytes_per_second", probe->bytes_per_second, "rounds", probe->n_rounds);
}

/* Measures all; those that fail are named, and the status says so. */
static int measure(const struct link_command *c, int *status, struct error *err)
{
    json_t *links = c->is_json ? json_array() : NULL;
    for (int i = 0; i < c->n_addresses; i++) {
        struct link_probe probe;
        struct error failure;
        int rc = link_probe(&probe, c->addresses[i], c->timeout_s * 1000, c->is_quick, &failure);
        if (rc) *status = CLIENT_FAILED;
        if (c->is_json) {
            json_array_append_new(links,
                                  probe_object(c->addresses[i], &probe, rc ? &failure : NULL));
        } else if (rc) {
            client_fail(&failure);
        } else {
            print_probe(c->addresses[i], &probe);
        }
    }
    if (c->is_json) return client_print_json(json_pack("{so}", "links", links), err);
    return client_flush(err);
}

int link_main(int argc, char **argv)
{
    struct link_command c = {0};
    struct error err = {0};
    int status = CLIENT_OK;
    if (prepare(&c, argc, argv, &err)) return client_fail_local(&err);
    if (c.serve ? serve(&c, &err) : measure(&c, &status, &err)) return client_fail(&err);
    return status;
}
