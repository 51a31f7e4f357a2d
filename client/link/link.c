/* outrider link: can two hosts reach each other, and what does the way between them cost? */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/system/network.h"
#include "base/text/options.h"
#include "client/client.h"
#include "client/link/net.h"
#include "client/link/probe.h"
#include "client/link/serve.h"

enum { OPT_SERVE = 256, OPT_NETWORK, OPT_SECONDS, OPT_QUICK, OPT_TIMEOUT, OPT_JSON };
enum { ADDRESSES_MAX = 64, TIMEOUT_S_DEFAULT = 5 };

struct link_command {
    const char *addresses[ADDRESSES_MAX], *serve, *network;
    int n_addresses, seconds, timeout_s;
    bool is_quick, is_json;
    struct error *err;
};

static const struct argp_option options[] = {
    {"serve", OPT_SERVE, "ADDRESS", 0,
     "Answer others at HOST:PORT; port 0 is any, and the first line says which", 0},
    {"network", OPT_NETWORK, "NAME|A.B.C.D/N", 0,
     "With --serve :PORT, the address that this host has in that interface or network", 0},
    {"seconds", OPT_SECONDS, "N", 0, "With --serve, end after so long; default: never", 0},
    {"quick", OPT_QUICK, NULL, 0, "Only see whether there is a way: no bandwidth", 0},
    {"timeout", OPT_TIMEOUT, "SECONDS", 0, "For a connection, and for each answer; default 5", 0},
    {"json", OPT_JSON, NULL, 0, "Print one JSON object", 0},
    {0},
};

static const char doc[] =
    "Measures the way from this host to each ADDRESS, where `outrider link --serve` answers: the "
    "round trip of 64 bytes over TCP, and the bandwidth of one connection. The planner takes these "
    "figures, and deploy/mpirun/group sees with them that all hosts of a group can reach each "
    "other.\v" CLIENT_STATUS_DOC;

static error_t take_address(struct link_command *c, const char *address)
{
    if (c->n_addresses == ADDRESSES_MAX) {
        error_set(c->err, ERR_ARGUMENT, "more than %d addresses", ADDRESSES_MAX);
        return EINVAL;
    }
    c->addresses[c->n_addresses++] = address;
    return 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct link_command *c = state->input;
    switch (key) {
    case OPT_SERVE:
        c->serve = arg;
        return 0;
    case OPT_NETWORK:
        c->network = arg;
        return 0;
    case OPT_SECONDS:
        return client_parser_result(options_int(&c->seconds, "--seconds", arg, 1, 86400, c->err));
    case OPT_QUICK:
        c->is_quick = true;
        return 0;
    case OPT_TIMEOUT:
        return client_parser_result(options_int(&c->timeout_s, "--timeout", arg, 1, 600, c->err));
    case OPT_JSON:
        c->is_json = true;
        return 0;
    case ARGP_KEY_ARG:
        return take_address(c, arg);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int prepare(struct link_command *c, int argc, char **argv, struct error *err)
{
    const struct argp argp = {
        .options = options, .parser = parse_option, .args_doc = "[ADDRESS...]", .doc = doc};
    c->err = err;
    int rc = client_parse(&argp, argc, argv, c, err);
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
    struct link_command c = {.timeout_s = TIMEOUT_S_DEFAULT};
    struct error err = {0};
    int status = CLIENT_OK;
    if (prepare(&c, argc, argv, &err)) return client_fail_local(&err);
    if (c.serve ? serve(&c, &err) : measure(&c, &status, &err)) return client_fail(&err);
    return status;
}
