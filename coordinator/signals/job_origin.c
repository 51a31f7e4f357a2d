/* Ids that clients send in headers. */
#include "coordinator/signals/job_origin.h"

#include <string.h>

/* 00-TTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT-PPPPPPPPPPPPPPPP-FF */
enum {
    VERSION_AT = 0,
    TRACE_AT = 3,
    PARENT_AT = 36,
    FLAGS_AT = 53,
    VERSION_0_BYTES = 55 /* later versions may append more, after another '-' */
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_plain(char c)
{
    return c > ' ' && c <= '~' && c != '"' && c != '\'' && c != '\\';
}

/* Blanks around a header's value do not belong to it (RFC 9110, 5.5), but libraries hand them over.
 * Returns where the value begins. */
static const char *skip_blanks(const char *text, size_t *len)
{
    for (; *len && is_blank(*text); text++) {
        (*len)--;
    }
    while (*len && is_blank(text[*len - 1])) {
        (*len)--;
    }
    return text;
}

void job_origin_set_request(struct job_origin *origin, const char *text, size_t len)
{
    text = skip_blanks(text, &len);
    size_t n = len < JOB_REQUEST_BYTES - 1 ? len : JOB_REQUEST_BYTES - 1;
    for (size_t i = 0; i < n; i++) {
        origin->request_id[i] = is_plain(text[i]) ? text[i] : '_';
    }
    origin->request_id[n] = '\0';
}

/* Lower case only, as the standard says. */
static bool is_hex(const char *text, int n)
{
    return strspn(text, "0123456789abcdef") >= (size_t)n;
}

static bool is_zero(const char *text, int n)
{
    return strspn(text, "0") >= (size_t)n;
}

bool job_origin_set_trace(struct job_origin *origin, const char *text, size_t len)
{
    char head[VERSION_0_BYTES + 1];
    text = skip_blanks(text, &len);
    if (len < VERSION_0_BYTES) return false;
    memcpy(head, text, VERSION_0_BYTES);
    head[VERSION_0_BYTES] = '\0';
    bool has_dashes =
        head[TRACE_AT - 1] == '-' && head[PARENT_AT - 1] == '-' && head[FLAGS_AT - 1] == '-';
    bool has_digits = is_hex(head + VERSION_AT, 2) && is_hex(head + TRACE_AT, 32) &&
                      is_hex(head + PARENT_AT, 16) && is_hex(head + FLAGS_AT, 2);
    bool is_later = !is_zero(head + VERSION_AT, 2);
    bool has_length = len == VERSION_0_BYTES || (is_later && text[VERSION_0_BYTES] == '-');
    if (!has_dashes || !has_digits || !has_length || strncmp(head, "ff", 2) == 0) return false;
    if (is_zero(head + TRACE_AT, 32) || is_zero(head + PARENT_AT, 16)) return false;
    memcpy(origin->trace_id, head + TRACE_AT, 32);
    origin->trace_id[32] = '\0';
    return true;
}
