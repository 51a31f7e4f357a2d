/* Addresses as they are written: HOST:PORT, [IPv6]:PORT or unix:PATH. A name is not looked up, but
 * for localhost. */
#include "access/reach.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

enum { HOST_BYTES = 64, LOOPBACK = 127 };

const char *reach_unix_path(const char *address)
{
    static const char prefix[] = "unix:";
    size_t len = sizeof prefix - 1;
    return strncmp(address, prefix, len) == 0 ? address + len : NULL;
}

/* Copies what is before the port, without brackets; false if it is longer than any number. */
static bool copy_host(const char *address, char host[HOST_BYTES])
{
    const char *colon = strrchr(address, ':');
    size_t len = colon ? (size_t)(colon - address) : 0;
    if (len > 1 && address[0] == '[' && address[len - 1] == ']') {
        address++;
        len -= 2;
    }
    if (!colon || len >= HOST_BYTES) return false;
    memcpy(host, address, len);
    host[len] = '\0';
    return true;
}

bool reach_is_local(const char *address)
{
    char host[HOST_BYTES];
    struct in_addr four;
    struct in6_addr six;
    if (reach_unix_path(address)) return true;
    if (!copy_host(address, host)) return false;
    if (strcmp(host, "localhost") == 0) return true;
    if (inet_pton(AF_INET, host, &four) == 1) return ntohl(four.s_addr) >> 24 == LOOPBACK;
    if (inet_pton(AF_INET6, host, &six) != 1) return false;
    return IN6_IS_ADDR_LOOPBACK(&six) ||
           (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == LOOPBACK);
}

bool reach_is_domain(const char *authority)
{
    static const char local[] = "localhost", below[] = ".localhost";
    char host[HOST_BYTES];
    struct in_addr four;
    size_t len = strcspn(authority, ":");
    if (authority[0] == '[') return false;
    if (len == 0 || len >= HOST_BYTES) return len > 0;
    memcpy(host, authority, len);
    host[len] = '\0';
    if (inet_pton(AF_INET, host, &four) == 1 || strcasecmp(host, local) == 0) return false;
    return len < sizeof below || strcasecmp(host + len - (sizeof below - 1), below) != 0;
}

int reach_check(const struct reach_door *door, struct error *err)
{
    if (!strchr(door->address, ':')) {
        return error_set(err, ERR_ARGUMENT, "%s '%.200s': expected HOST:PORT or unix:PATH",
                         door->option, door->address);
    }
    if (door->is_guarded || reach_is_local(door->address)) return 0;
    return error_set(err, ERR_ARGUMENT,
                     "%s %.200s: other machines can reach this address, and everybody could call; "
                     "%s",
                     door->option, door->address, door->ways);
}
