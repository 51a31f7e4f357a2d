/* The one error type: a code that callers branch on and a sentence that people read. The function
 * that sees the failure writes the sentence, with the values that matter; its callers may add
 * context with error_wrap. The error is printed once, where it is handled. */
#pragma once

#include <stddef.h>

enum error_code {
    ERR_NONE = 0,
    ERR_ARGUMENT = -1,    /* a flag or a request asks for something that makes no sense */
    ERR_FORMAT = -2,      /* a file or message is not what it claims to be */
    ERR_UNSUPPORTED = -3, /* well formed, but outside of what this program does */
    ERR_IO = -4,          /* the operating system refuses */
    ERR_NO_MEMORY = -5,
    ERR_NOT_FOUND = -6,
    ERR_EXHAUSTED = -7,   /* a bounded queue, table or pool is full */
    ERR_UNAVAILABLE = -8, /* a peer is gone or not yet there; trying again may help */
    ERR_TIMEOUT = -9,
    ERR_CANCELLED = -10,
    ERR_CLOSED = -11, /* the object was shut while we waited */
    ERR_INTERNAL = -12,
    ERR_UNAUTHENTICATED = -13, /* one side does not prove, or not well enough, who it is */
    ERR_TOO_LONG = -14         /* a prompt has more tokens than the model reads */
};

enum { ERROR_TEXT_BYTES = 512 };

struct error {
    int code;
    char text[ERROR_TEXT_BYTES];
};

/* Fills err and returns code, so that a failing function ends with `return error_set(...)`.
 * A text that is too long is cut. */
int error_set(struct error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the text of err and returns its code. */
int error_wrap(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "argument", "format", ... for logs. */
const char *error_name(int code);

/* The only control-flow macro. Needs a local `rc` and a label `out`. */
#define TRY(call)         \
    do {                  \
        rc = (call);      \
        if (rc) goto out; \
    } while (0)
