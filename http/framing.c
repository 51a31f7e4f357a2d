/* Where a request ends, and for whom it is: a proxy in front of this server and the server itself
 * must never read that differently, because a client could then hide a second request in the body
 * of its first one, which the proxy has not checked (RFC 9112, sections 3.2, 5 and 6).
 * libmicrohttpd uses the first of several headers and what it makes of it, so what can be read in
 * two ways is refused here. */
#include <string.h>
#include <strings.h>

#include "http/internal.h"

enum {
    LENGTH_DIGITS_MAX = 18,               /* below 2^63 */
    LINE_END_BYTES = 2,                   /* CR and LF */
    IS_LENIENT = MHD_VERSION < 0x01000000 /* later ones find the faults of 0.9.75 themselves */
};

struct framing {
    int n_hosts, n_lengths, n_encodings;
    const char *end;   /* of the version, or of the last value */
    const char *fault; /* the first one; NULL = none */
};

/* The characters of names in headers (RFC 9110, section 5.6.2). */
static bool is_name(const char *text, size_t len)
{
    static const char allowed[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz";
    return len > 0 && strspn(text, allowed) == len;
}

/* Only blanks lie between a name with its colon and its value. libmicrohttpd 0.9.75 adds a line
 * that begins with a blank to the name of the header before it, in another place. */
static bool is_one_line(const char *name, size_t len, const char *value)
{
    uintptr_t gap = (uintptr_t)value - (uintptr_t)(name + len);
    return gap >= 1 && gap <= HTTP_HEADERS_BYTES && strspn(name + len + 1, " \t") >= gap - 1;
}

/* True if only blanks and n characters lie between. libmicrohttpd 0.9.75 has written NUL over the
 * ends of lines and takes an LF alone for one; the part of a value after a NUL of its own is left
 * out. A NUL of the client's before an LF alone looks like CR and LF, so that a proxy which lets
 * NUL through may see one header where two are read here. */
static bool is_gap(const char *from, const char *to, int n)
{
    uintptr_t gap = (uintptr_t)to - (uintptr_t)from;
    if (gap > HTTP_HEADERS_BYTES) return false;
    for (; from < to && n >= 0; from++)
        n -= *from != ' ' && *from != '\t';
    return n == 0;
}

static bool is_length(const char *text, size_t len)
{
    return len > 0 && len <= LENGTH_DIGITS_MAX && strspn(text, "0123456789") == len;
}

static const char *find_fault(struct framing *f, const char *name, size_t name_len,
                              const char *value, size_t len)
{
    if (!is_name(name, name_len)) return "The name of a header has a character that none may have.";
    if (IS_LENIENT && !is_one_line(name, name_len, value)) {
        return "A header goes on in a second line.";
    }
    if (IS_LENIENT && (!is_gap(f->end, name, LINE_END_BYTES) || memchr(value, '\r', len))) {
        return "A line of the head does not end with CR and LF, or has one of CR and NUL within.";
    }
    if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0 && ++f->n_hosts > 1) {
        return "There is more than one Host header.";
    }
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
        if (++f->n_lengths > 1) return "There is more than one Content-Length header.";
        if (!is_length(value, len)) return HTTP_BAD_LENGTH;
    }
    if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        if (++f->n_encodings > 1) return "There is more than one Transfer-Encoding header.";
        if (strcasecmp(value, "chunked") != 0) return "The Transfer-Encoding is not chunked.";
    }
    return NULL;
}

static enum MHD_Result look(void *arg, enum MHD_ValueKind kind, const char *name, size_t name_len,
                            const char *value, size_t len)
{
    struct framing *f = arg;
    (void)kind;
    f->fault = find_fault(f, name, name_len, value, len);
    f->end = value + len;
    return f->fault ? MHD_NO : MHD_YES;
}

/* True if only the ends of two lines, and blanks, follow the last value. libmicrohttpd 0.9.75 takes
 * a header without a name for the end of all, and would read those after it as a request. */
static bool is_end(struct MHD_Connection *connection, const char *method, const char *end)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return is_gap(end, method + info->header_size, 2 * LINE_END_BYTES);
}

const char *http_framing_fault(struct MHD_Connection *connection, const char *method,
                               const char *version)
{
    struct framing f = {.end = version + strlen(version)};
    bool is_old = strcmp(version, MHD_HTTP_VERSION_1_0) == 0;
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, look, &f);
    if (f.fault) return f.fault;
    if (IS_LENIENT && !is_end(connection, method, f.end)) {
        return "There is a header without a name, or the head does not end with CR and LF.";
    }
    if (!f.n_hosts && !is_old) return "There is no Host header.";
    if (f.n_encodings && f.n_lengths) {
        return "There are both a Content-Length and a Transfer-Encoding.";
    }
    if (f.n_encodings && is_old) return "HTTP/1.0 has no Transfer-Encoding.";
    return NULL;
}
