/* ctest: libs=access */
/* Authorization headers: what is read as a key lies in the header or in what its base64 decodes to,
 * and OpenSSL's base64 of any USER:KEY is read as that key. */
#include <openssl/evp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "access/authorization.h"

enum { HEADER_BYTES = 2 * BASIC_BYTES_MAX };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(int is_true)
{
    if (!is_true) abort();
}

static int is_within(const char *key, size_t len, const char *from, size_t size)
{
    return key >= from && key <= from + size && len <= size - (size_t)(key - from);
}

static void check_header(const char *header, size_t len)
{
    struct authorization a;
    struct error err;
    int rc = authorization_read(&a, header, len, &err);
    demand(rc == 0 || (rc == ERR_UNAUTHENTICATED && err.text[0]));
    if (rc) return;
    if (authorization_is_basic(header, len))
        demand(is_within(a.key, a.len, a.basic, sizeof a.basic) && a.key[-1] == ':');
    else
        demand(a.len && is_within(a.key, a.len, header, len));
}

static void check_password(const uint8_t *text, size_t len)
{
    char header[HEADER_BYTES] = "Basic ";
    struct authorization a;
    struct error err;
    const uint8_t *colon = len ? memchr(text, ':', len) : NULL;
    if (!colon || len > BASIC_BYTES_MAX) return;
    int n = EVP_EncodeBlock((unsigned char *)header + 6, text, (int)len);
    demand(authorization_read(&a, header, 6 + (size_t)n, &err) == 0);
    demand(a.len == len - (size_t)(colon + 1 - text));
    demand(memcmp(a.key, colon + 1, a.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_header((const char *)data, size);
    check_password(data, size);
    return 0;
}
