/* gRPC's own TLS with our certificate files. gRPC verifies a server's certificate against the
 * client's authorities and the address, or the name that is given instead; a server that has
 * authorities demands a certificate that they have signed. For files of rpc/ only. */
#pragma once

#include <grpc/grpc_security.h>
#include <stdbool.h>
#include <stdint.h>

#include "access/certificates.h"

/* Explains a failed handshake that gRPC's text tells of; NULL: it does not tell of one. */
const char *rpc_tls_explain(const char *text);

/* Given every line that gRPC logs: once this process has a server with certificates, warns of
 * handshakes that failed, of each kind of failure at most once a minute, because anybody can make
 * them fail. The server learns of them in no other way. */
void rpc_tls_note(const char *line);

/* Certificates, and which version of them gRPC has. */
struct rpc_tls {
    struct certificates *certificates; /* NULL = plain */
    uint64_t version;
};

/* Plain without certificates. The server asks for newer certificates whenever a client connects;
 * keeps tls. Errors: ERR_NO_MEMORY. */
int rpc_tls_open_server(struct rpc_tls *tls, grpc_server_credentials **credentials,
                        struct error *err);

/* True if the peer of the call has shown a certificate for one of the names, which are separated by
 * commas, as its common name or an alternative one; "*" is any. */
bool rpc_tls_peer_is(grpc_call *call, const char *names);

/* Plain without certificates. With the certificates as they are now. Errors: ERR_NO_MEMORY. */
int rpc_tls_open_channel(struct rpc_tls *tls, grpc_channel_credentials **credentials,
                         struct error *err);
