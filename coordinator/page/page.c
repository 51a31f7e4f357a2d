/* Files leave as they are or packed, as the browser accepts them. A browser that has a file asks
 * with its tag, and is told that it still holds. */
#include "coordinator/page/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "coordinator/page/internal.h"
#include "http/exchange.h"

enum { TAG_BYTES = 32 };

static const struct {
    const char *name, *value;
} headers[] = {
    /* Nothing but the page's own files, and requests to its own server. */
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
     "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
     "require-trusted-types-for 'script'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", "no-cache"}, /* may be kept, but is asked for again */
    {"Vary", "Accept-Encoding"},
};

static const struct {
    const char *suffix, *type;
} types[] = {
    {".html", "text/html; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".svg", "image/svg+xml"},
};

static const char *type_of(const struct page_file *file)
{
    const char *suffix = strrchr(file->name, '.');
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (suffix && strcmp(suffix, types[i].suffix) == 0) return types[i].type;
    }
    return "application/octet-stream";
}

static bool is_at(const struct page_file *file, const char *path)
{
    static const char folder[] = "/page/";
    size_t len = strlen(folder);
    if (strcmp(file->name, "index.html") == 0) return strcmp(path, "/") == 0;
    return strncmp(path, folder, len) == 0 && strcmp(path + len, file->name) == 0;
}

static const struct page_file *find(const char *path)
{
    for (size_t i = 0; i < n_page_files; i++) {
        if (is_at(&page_files[i], path)) return &page_files[i];
    }
    return NULL;
}

/* The quality of one item of Accept-Encoding, "gzip;q=0.5", where it is gzip's; otherwise 0. */
static double gzip_quality(const char *item, size_t len)
{
    const char *name = item + strspn(item, " \t");
    const char *q = memchr(item, '=', len);
    if (strncasecmp(name, "gzip", 4) || !strchr(" \t;,", name[4])) return 0;
    return q ? atof(q + 1) : 1;
}

static bool accepts_gzip(const char *accepted)
{
    while (accepted && *accepted) {
        size_t len = strcspn(accepted, ",");
        if (gzip_quality(accepted, len) > 0) return true;
        accepted += len + (accepted[len] == ',');
    }
    return false;
}

static int set_headers(struct http_exchange *x, const char *tag, bool is_packed, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        TRY(http_set_header(x, headers[i].name, headers[i].value, err));
    }
    TRY(http_set_header(x, "ETag", tag, err));
    if (is_packed) TRY(http_set_header(x, "Content-Encoding", "gzip", err));
out:
    return rc;
}

bool page_answer(struct http_exchange *x)
{
    struct error err;
    char tag[TAG_BYTES];
    const struct page_file *file = find(http_path(x));
    if (!file) return false;
    bool is_packed = accepts_gzip(http_header(x, "Accept-Encoding"));
    const struct page_bytes *bytes = is_packed ? &file->gzip : &file->plain;
    snprintf(tag, sizeof tag, "\"%s%s\"", file->tag, is_packed ? "-gzip" : "");
    const char *known = http_header(x, "If-None-Match");
    if (set_headers(x, tag, is_packed, &err))
        http_answer(x, 500, "text/plain", err.text, strlen(err.text));
    else if (known && strstr(known, tag))
        http_answer(x, 304, type_of(file), "", 0);
    else
        http_answer(x, 200, type_of(file), bytes->data, bytes->len);
    return true;
}
