/* The rows of the options, and what they name. */
#include "client/connection.h"

#include <string.h>

#include "access/options.h"
#include "client/client.h"

#define FIELD(member) OPTION_FIELD(struct connection, member)

const struct option_row connection_rows[] = {
    OPTION_GROUP("Connection", "--tls-ca=ca.pem"),
    {"api-key", 0, "KEY", FIELD(api_key), .variable = "OUTRIDER_API_KEY",
     .help = "Key to show to the server; other users of this machine can see options, but not "
             "the environment"},
    {"tls-ca", 0, "FILE", FIELD(files.ca), .variable = "OUTRIDER_TLS_CA",
     .help = "Speak TLS; one of these authorities has signed the server's certificate (PEM); "
             "plain if there is none"},
    {"tls-certificate", 0, "FILE", FIELD(files.certificate), .variable = "OUTRIDER_TLS_CERTIFICATE",
     .help = "Certificate to show to a server that asks for one (PEM)"},
    {"tls-key", 0, "FILE", FIELD(files.key), .variable = "OUTRIDER_TLS_KEY",
     .help = "Private key of --tls-certificate (PEM, without a password)"},
    {"tls-name", 0, "NAME", FIELD(server_name),
     .help = "The name in the server's certificate where it is not that of the address"},
    {0},
};

static int check_address(const char *address, struct error *err)
{
    const char *colon = strrchr(address, ':');
    if (colon && colon != address && colon[1]) return 0;
    return error_set(err, ERR_ARGUMENT, "--address %.200s: expected HOST:PORT or unix:PATH",
                     address);
}

/* Refuses a key with characters that a header cannot hold. */
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
