/* Reads the header of the caller. It compares with no secret, so its time tells the caller
 * nothing. */
#include "access/authorization.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

/* Returns what follows the scheme and its blank; NULL: the header is of another scheme. */
static const char *after_scheme(const char *header, size_t len, const char *scheme)
{
    size_t scheme_len = strlen(scheme);
    if (!header || len <= scheme_len || strncasecmp(header, scheme, scheme_len) != 0) return NULL;
    return header + scheme_len;
}

/* The six bits of a character of base64; -1: it is none. */
static int bits_of(char c)
{
    static const char all[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = memchr(all, c, sizeof all - 1);
    return at ? (int)(at - all) : -1;
}

/* The length without its padding. */
static size_t unpadded(const char *text, size_t len)
{
    for (int i = 0; i < 2 && len && text[len - 1] == '='; i++) {
        len--;
    }
    return len;
}

/* Decodes base64 of at most BASIC_BYTES_MAX bytes; false: it is none, or longer. */
static bool decode(const char *text, size_t len, char out[BASIC_BYTES_MAX], size_t *n)
{
    uint32_t held = 0;
    int n_held = 0;
    *n = 0;
    if (len % 4 || len / 4 * 3 > BASIC_BYTES_MAX) return false;
    for (size_t i = 0; i < unpadded(text, len); i++) {
        int bits = bits_of(text[i]);
        if (bits < 0) return false;
        held = held << 6 | (uint32_t)bits;
        n_held += 6;
        if (n_held < 8) continue;
        n_held -= 8;
        out[(*n)++] = (char)(held >> n_held & 0xff);
    }
    return true;
}

static int read_basic(struct authorization *a, const char *text, size_t len, struct error *err)
{
    size_t n;
    bool is_read = decode(text, len, a->basic, &n);
    const char *colon = is_read ? memchr(a->basic, ':', n) : NULL;
    if (!colon) {
        return error_set(err, ERR_UNAUTHENTICATED,
                         "the authorization is 'Basic', but not followed by the base64 of USER:KEY "
                         "in at most %d bytes",
                         BASIC_BYTES_MAX);
    }
    a->key = colon + 1;
    a->len = n - (size_t)(a->key - a->basic);
    return 0;
}

bool authorization_is_basic(const char *header, size_t len)
{
    return after_scheme(header, len, "Basic ") != NULL;
}

int authorization_read(struct authorization *a, const char *header, size_t len, struct error *err)
{
    const char *bearer = after_scheme(header, len, "Bearer ");
    const char *basic = after_scheme(header, len, "Basic ");
    if (!header) {
        return error_set(err, ERR_UNAUTHENTICATED,
                         "an API key is needed: send it as 'authorization: Bearer KEY'");
    }
    if (basic) return read_basic(a, basic, len - (size_t)(basic - header), err);
    if (!bearer) {
        return error_set(err, ERR_UNAUTHENTICATED,
                         "the authorization is not 'Bearer KEY', which an API key is sent as");
    }
    a->key = bearer;
    a->len = len - (size_t)(bearer - header);
    return 0;
}
