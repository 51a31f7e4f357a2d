/* Addresses of ranks. */
#include "worker/address.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/system/network.h"
#include "base/text/options.h"

int address_of_rank(const char *listen, int rank, int n_ranks, char *out, struct error *err)
{
    int port = 0;
    int n;
    if (strncmp(listen, "unix:", 5) == 0) {
        n = n_ranks > 1 ? snprintf(out, ADDRESS_BYTES, "%s.%d", listen, rank)
                        : snprintf(out, ADDRESS_BYTES, "%s", listen);
    } else {
        const int most = PORT_MAX - RANKS_MAX;
        const char *colon = strrchr(listen, ':');
        if (!colon || options_int(&port, "--listen", colon + 1, 0, most, err)) {
            return error_set(err, ERR_ARGUMENT,
                             "--listen %s: expected HOST:PORT or unix:PATH (port 0 to %d)", listen,
                             most);
        }
        n = snprintf(out, ADDRESS_BYTES, "%.*s:%d", (int)(colon - listen), listen,
                     port ? port + rank : 0);
    }
    if (n < ADDRESS_BYTES) return 0;
    return error_set(err, ERR_ARGUMENT, "--listen %s is too long", listen);
}

int address_of_lead(const char *lead, const char *listen, int n_ranks, char *out, struct error *err)
{
    const char *colon = strrchr(listen, ':');
    if (lead) {
        if (snprintf(out, ADDRESS_BYTES, "%s", lead) < ADDRESS_BYTES) return 0;
        return error_set(err, ERR_ARGUMENT, "--lead %s is too long", lead);
    }
    if (strncmp(listen, "unix:", 5) != 0 && colon && strcmp(colon, ":0") == 0) {
        return error_set(err, ERR_ARGUMENT, "--listen %s does not say where rank 0 is; give --lead",
                         listen);
    }
    return address_of_rank(listen, 0, n_ranks, out, err);
}

bool address_is_wildcard(const char *address)
{
    return strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0;
}

int address_in_network(const char *listen, const char *network, char *out, struct error *err)
{
    char host[NETWORK_ADDRESS_BYTES];
    if (network) {
        if (!address_is_wildcard(listen)) {
            return error_set(
                err, ERR_ARGUMENT,
                "--network %.60s is for --listen 0.0.0.0:PORT; --listen %.100s already "
                "says where",
                network, listen);
        }
        int rc = network_find_address(network, host, err);
        if (rc) return rc;
        network_join(host, strrchr(listen, ':') + 1, out);
        return 0;
    }
    if (snprintf(out, ADDRESS_BYTES, "%s", listen) < ADDRESS_BYTES) return 0;
    return error_set(err, ERR_ARGUMENT, "--listen %s is too long", listen);
}

void address_make_reachable(const char *bound, char *out)
{
    const char *colon = strrchr(bound, ':');
    char host[ADDRESS_BYTES / 2];
    if (address_is_wildcard(bound) && colon && gethostname(host, sizeof host) == 0) {
        host[sizeof host - 1] = '\0';
        snprintf(out, ADDRESS_BYTES, "%.100s%.20s", host, colon);
    } else {
        snprintf(out, ADDRESS_BYTES, "%s", bound);
    }
}
