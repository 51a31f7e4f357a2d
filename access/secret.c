/* Every byte is looked at, so that the time of an answer does not help to guess. */
#include "access/secret.h"

#include <openssl/crypto.h>
#include <string.h>

bool secret_is(const char *given, size_t len, const char *secret)
{
    return given && len == strlen(secret) && CRYPTO_memcmp(given, secret, len) == 0;
}
