/* How a command reaches its server: address, TLS and API key, from options and environment. */
#pragma once

#include <argp.h>

#include "access/certificates.h"

/* A zeroed one is valid to close. */
struct connection {
    const char *address; /* of an option; NULL = none was given */
    const char *api_key;
    struct certificate_files files;
    const char *server_name; /* that the certificate must have in place of the address's */

    struct certificates *certificates; /* NULL = plain */
};

/* A child for the argp of every command that calls a server, but for its --address. The input is a
 * struct connection. */
extern const struct argp connection_argp;

/* Fills in the environment and the default for what no option gave, and opens the certificates.
 * Errors: ERR_ARGUMENT no address, or options that do not go together; those of
 * certificates_open. */
int connection_open(struct connection *connection, struct error *err);
void connection_close(struct connection *connection);
