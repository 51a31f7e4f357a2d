/* The error type. Nothing here allocates, so that an error can be reported when memory is short. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct error *err, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    err->code = code;
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return code;
}

int error_wrap(struct error *err, const char *format, ...)
{
    char context[ERROR_TEXT_BYTES];
    char joined[2 * ERROR_TEXT_BYTES + 2];
    va_list args;
    va_start(args, format);
    vsnprintf(context, sizeof context, format, args);
    va_end(args);
    snprintf(joined, sizeof joined, "%s: %s", context, err->text);
    size_t len = strlen(joined);
    if (len >= sizeof err->text) len = sizeof err->text - 1;
    memcpy(err->text, joined, len);
    err->text[len] = '\0';
    return err->code;
}

const char *error_name(int code)
{
    switch (code) {
    case ERR_NONE:
        return "none";
    case ERR_ARGUMENT:
        return "argument";
    case ERR_FORMAT:
        return "format";
    case ERR_UNSUPPORTED:
        return "unsupported";
    case ERR_IO:
        return "io";
    case ERR_NO_MEMORY:
        return "no_memory";
    case ERR_NOT_FOUND:
        return "not_found";
    case ERR_EXHAUSTED:
        return "exhausted";
    case ERR_UNAVAILABLE:
        return "unavailable";
    case ERR_TIMEOUT:
        return "timeout";
    case ERR_CANCELLED:
        return "cancelled";
    case ERR_CLOSED:
        return "closed";
    case ERR_UNAUTHENTICATED:
        return "unauthenticated";
    case ERR_TOO_LONG:
        return "too_long";
    default:
        return "internal";
    }
}
