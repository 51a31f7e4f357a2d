/* Addresses of interfaces, as the kernel lists them. */
#include "base/system/network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/text/options.h"

int network_connections_most(void)
{
    enum { MOST = 1 << 20, LEAST = 4 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / 3 > MOST) return MOST;
    return limit.rlim_cur / 3 < LEAST ? LEAST : (int)(limit.rlim_cur / 3);
}

int network_accept(int listener, struct sockaddr *addr, socklen_t *len, int flags)
{
    return (int)syscall(SYS_accept4, listener, addr, len, flags);
}

enum { LIST_BYTES = 400, SIX_BYTES = 16, FOUR_BYTES = 4 };

/* An address as bytes: 4 or 16 of them. */
struct number {
    uint8_t bytes[SIX_BYTES];
    int n_bytes; /* 0 = none */
};

struct network {
    const char *interface; /* NULL = it is a range */
    struct number first;
    int n_bits;
};

static bool parse_number(const char *text, struct number *out)
{
    *out = (struct number){.n_bytes = FOUR_BYTES};
    if (inet_pton(AF_INET, text, out->bytes) == 1) return true;
    out->n_bytes = SIX_BYTES;
    return inet_pton(AF_INET6, text, out->bytes) == 1;
}

static int parse(const char *text, struct network *out, struct error *err)
{
    char host[NETWORK_ADDRESS_BYTES];
    const char *slash = strchr(text, '/');
    struct error why;
    *out = (struct network){0};
    if (!slash) {
        out->interface = text;
        if (text[0] && strlen(text) < IF_NAMESIZE) return 0;
    } else {
        snprintf(host, sizeof host, "%.*s", (int)(slash - text), text);
        if (parse_number(host, &out->first) &&
            !options_int(&out->n_bits, "--network", slash + 1, 0, out->first.n_bytes * 8, &why)) {
            return 0;
        }
    }
    return error_set(err, ERR_ARGUMENT,
                     "--network '%.100s': expected the name of an interface, such as eth1, or a "
                     "network, such as 10.1.0.0/24",
                     text);
}

static struct number number_of(const struct ifaddrs *entry)
{
    struct number number = {0};
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP)) return number;
    if (entry->ifa_addr->sa_family == AF_INET) {
        struct sockaddr_in four;
        memcpy(&four, entry->ifa_addr, sizeof four);
        number.n_bytes = FOUR_BYTES;
        memcpy(number.bytes, &four.sin_addr, FOUR_BYTES);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
        struct sockaddr_in6 six;
        memcpy(&six, entry->ifa_addr, sizeof six);
        if (IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) return number;
        number.n_bytes = SIX_BYTES;
        memcpy(number.bytes, &six.sin6_addr, SIX_BYTES);
    }
    return number;
}

static bool has_first_bits(const struct number *number, const struct number *first, int n_bits)
{
    if (number->n_bytes != first->n_bytes) return false;
    for (int i = 0; i < n_bits; i++) {
        int mask = 0x80 >> (i % 8);
        if ((number->bytes[i / 8] ^ first->bytes[i / 8]) & mask) return false;
    }
    return true;
}

static bool is_in(const struct network *network, const struct ifaddrs *entry,
                  const struct number *number)
{
    if (network->interface) return strcmp(entry->ifa_name, network->interface) == 0;
    return has_first_bits(number, &network->first, network->n_bits);
}

static void show(const struct number *number, char out[NETWORK_ADDRESS_BYTES])
{
    int family = number->n_bytes == FOUR_BYTES ? AF_INET : AF_INET6;
    inet_ntop(family, number->bytes, out, NETWORK_ADDRESS_BYTES);
}

/* "eth0 10.0.0.3, eth1 10.1.0.3" */
static void list_all(const struct ifaddrs *entries, char list[LIST_BYTES])
{
    size_t len = 0;
    list[0] = '\0';
    for (const struct ifaddrs *e = entries; e && len < LIST_BYTES; e = e->ifa_next) {
        char text[NETWORK_ADDRESS_BYTES];
        const struct number number = number_of(e);
        if (!number.n_bytes) continue;
        show(&number, text);
        len += (size_t)snprintf(list + len, LIST_BYTES - len, "%s%s %s", len ? ", " : "",
                                e->ifa_name, text);
    }
}

int network_find_address(const char *text, char out[NETWORK_ADDRESS_BYTES], struct error *err)
{
    struct network network;
    struct ifaddrs *entries;
    struct number found = {0};
    char list[LIST_BYTES];
    int rc = parse(text, &network, err);
    if (rc) return rc;
    if (getifaddrs(&entries)) {
        return error_set(err, ERR_IO, "cannot list this host's addresses: %s", strerror(errno));
    }
    for (const struct ifaddrs *e = entries; e && found.n_bytes != FOUR_BYTES; e = e->ifa_next) {
        const struct number number = number_of(e);
        if (!number.n_bytes || !is_in(&network, e, &number)) continue;
        if (!found.n_bytes || number.n_bytes == FOUR_BYTES) found = number;
    }
    if (found.n_bytes) {
        show(&found, out);
    } else {
        list_all(entries, list);
        rc = error_set(err, ERR_NOT_FOUND,
                       "--network %.100s: this host has no address in it; it has %s", text, list);
    }
    freeifaddrs(entries);
    return rc;
}

void network_join(const char *host, const char *port, char out[NETWORK_JOINED_BYTES])
{
    snprintf(out, NETWORK_JOINED_BYTES, strchr(host, ':') ? "[%.63s]:%.20s" : "%.63s:%.20s", host,
             port);
}
