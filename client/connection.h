/* How a command reaches its server: address, TLS and API key, from options and environment. */
#pragma once

#include "access/certificates.h"
#include "base/text/option_table.h"

/* A zeroed one is valid to close. */
struct connection {
    const char *address; /* HOST:PORT or unix:PATH */
    const char *api_key;
    struct certificate_files files;
    const char *server_name; /* that the certificate must have in place of the address's */

    struct certificates *certificates; /* NULL = plain */
};

/* For the parts of every command that calls a server; the fields are a struct connection. The row
 * of --address is the command's own. */
extern const struct option_row connection_rows[];

/* Checks what the options gave, and opens the certificates.
 * Errors: ERR_ARGUMENT no address, or options that do not go together; those of
 * certificates_open. */
int connection_open(struct connection *connection, struct error *err);
void connection_close(struct connection *connection);
