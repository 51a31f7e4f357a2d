/* Options first, then the environment. */
#include "client/connection.h"

#include <stdlib.h>
#include <string.h>

#include "access/options.h"
#include "client/client.h"

enum { OPT_CA = 4096, OPT_CERTIFICATE, OPT_KEY, OPT_NAME, OPT_API_KEY };

static const struct argp_option options[] = {
    {"api-key", OPT_API_KEY, "KEY", 0,
     "Key to show to the server; default OUTRIDER_API_KEY, which other users of this machine "
     "cannot "
     "see as they can see options",
     0},
    {"tls-ca", OPT_CA, "FILE", 0,
     "Speak TLS; one of these authorities has signed the server's certificate (PEM); default "
     "OUTRIDER_TLS_CA, or plain if there is none",
     0},
    {"tls-certificate", OPT_CERTIFICATE, "FILE", 0,
     "Certificate to show to a server that asks for one (PEM); default OUTRIDER_TLS_CERTIFICATE",
     0},
    {"tls-key", OPT_KEY, "FILE", 0,
     "Private key of --tls-certificate (PEM, without a password); default OUTRIDER_TLS_KEY", 0},
    {"tls-name", OPT_NAME, "NAME", 0,
     "The name in the server's certificate where it is not that of the address", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct connection *c = state->input;
    switch (key) {
    case OPT_API_KEY:
        c->api_key = arg;
        return 0;
    case OPT_CA:
        c->files.ca = arg;
        return 0;
    case OPT_CERTIFICATE:
        c->files.certificate = arg;
        return 0;
    case OPT_KEY:
        c->files.key = arg;
        return 0;
    case OPT_NAME:
        c->server_name = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp connection_argp = {.options = options, .parser = parse_option};

/* The variable, where no option was given and it is not empty. */
static void fill(const char **slot, const char *variable)
{
    const char *value = getenv(variable);
    if (!*slot && value && *value) *slot = value;
}

static int check_address(const char *address, struct error *err)
{
    const char *colon = strrchr(address, ':');
    if (colon && colon != address && colon[1]) return 0;
    return error_set(err, ERR_ARGUMENT, "--address %.200s: expected HOST:PORT or unix:PATH",
                     address);
}

/* What can be in a header. */
static int check_key(const char *key, struct error *err)
{
    for (const char *at = key; key && *at; at++) {
        if (*at > ' ' && *at < 0x7f) continue;
        return error_set(err, ERR_ARGUMENT,
                         "the API key has a blank or another character that no key has at place "
                         "%zu",
                         (size_t)(at - key) + 1);
    }
    return 0;
}

int connection_open(struct connection *c, struct error *err)
{
    int rc = 0;
    fill(&c->address, "OUTRIDER_ADDRESS");
    fill(&c->api_key, "OUTRIDER_API_KEY");
    fill(&c->files.ca, "OUTRIDER_TLS_CA");
    fill(&c->files.certificate, "OUTRIDER_TLS_CERTIFICATE");
    fill(&c->files.key, "OUTRIDER_TLS_KEY");
    if (!c->address) c->address = CLIENT_ADDRESS_DEFAULT;
    TRY(check_address(c->address, err));
    TRY(check_key(c->api_key, err));
    TRY(access_open_client(&c->certificates, &c->files, "--tls", err));
out:
    return rc;
}

void connection_close(struct connection *c)
{
    certificates_close(c->certificates);
    *c = (struct connection){0};
}
