/* Pages of other origins are known by two headers that no page can choose: a browser writes Origin
 * with every POST, and Host with every request. */
#include "coordinator/openai/site.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "access/reach.h"

enum { FIELDS_BYTES = 1024 /* of the headers that a browser asks for */ };

/* ---- who may ask ---- */

static bool is_header(const struct http_exchange *x, const char *name, const char *value)
{
    const char *own = http_header(x, name);
    return own && strcasecmp(own, value) == 0;
}

/* The origin is where the browser, or a proxy before us, found this server; or one that --cors
 * lets in. A page cannot send X-Forwarded-Host to another origin without being allowed to first. */
static bool may_ask(const struct openai_options *options, const struct http_exchange *x,
                    const char *origin)
{
    const char *allowed = options->origin, *authority = strstr(origin, "://");
    if (allowed && (strcmp(allowed, "*") == 0 || strcasecmp(allowed, origin) == 0)) return true;
    if (!authority) return false; /* "null": a file, or a frame in a box */
    authority += strlen("://");
    return is_header(x, "Host", authority) || is_header(x, "X-Forwarded-Host", authority);
}

bool openai_site_is_foreign(const struct openai_options *options, const struct http_exchange *x,
                            char *why, size_t size)
{
    const char *origin = http_header(x, "Origin"), *host = http_header(x, "Host");
    if (options->keys || options->is_insecure) return false;
    if (origin && !may_ask(options, x, origin)) {
        snprintf(why, size,
                 "Pages of %.100s may not use this server, which asks nobody for a key; start the "
                 "coordinator with --cors %.100s to let them in.",
                 origin, origin);
        return true;
    }
    if (host && reach_is_local(options->address) && reach_is_domain(host)) {
        snprintf(why, size,
                 "This server is on loopback and asks nobody for a key, so it is not called "
                 "%.100s: use 127.0.0.1 or localhost, or start the coordinator with --keys, or "
                 "behind a proxy with --insecure.",
                 host);
        return true;
    }
    return false;
}

/* ---- what a browser asks first ---- */

/* Names of headers, with commas and blanks between them. */
static bool are_fields(const char *text)
{
    return strlen(text) < FIELDS_BYTES &&
           text[strspn(text,
                       "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_, ")] == 0;
}

/* Whatever a browser asks for, because programs add headers of their own, which nobody reads. */
static void allow_fields(struct http_exchange *x)
{
    struct error err;
    const char *asked = http_header(x, "Access-Control-Request-Headers");
    bool is_fit = asked && *asked && are_fields(asked);
    http_set_header(x, "Access-Control-Allow-Headers",
                    is_fit ? asked
                           : "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, "
                             "X-Request-Id",
                    &err);
}

bool openai_site_answer_preflight(const struct openai_options *options, struct http_exchange *x)
{
    struct error err;
    if (!options->origin) return false;
    http_set_header(x, "Access-Control-Allow-Origin", options->origin, &err);
    http_set_header(x, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After", &err);
    if (strcmp(http_method(x), "OPTIONS")) return false;
    http_set_header(x, "Access-Control-Allow-Methods", "GET, POST, DELETE", &err);
    allow_fields(x);
    http_set_header(x, "Access-Control-Max-Age", "600", &err);
    http_answer(x, 204, "text/plain", "", 0);
    return true;
}
