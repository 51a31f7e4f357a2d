/* The options of the command line that say how securely a program serves and calls. What they name
 * is read when the command line is, so that a bad file is refused as any bad option is. */
#pragma once

#include <argp.h>
#include <stdbool.h>

#include "access/certificates.h"

/* Of a server's door: a child for its own argp, whose input is one of these. The certificates are
 * opened at the end of the command line, which ends the program with status 2 if that fails. */
struct door_options {
    struct certificate_files files;    /* ca: of those who may have signed the clients' */
    struct certificates *certificates; /* NULL = plain */
    bool is_insecure;                  /* everybody may call */
};
extern const struct argp door_argp;

/* Opens what PREFIX-certificate, PREFIX-key and PREFIX-ca name for a client; *certificates is NULL
 * when none is given. Errors: ERR_ARGUMENT one is missing; those of certificates_open. */
int access_open_client(struct certificates **certificates, const struct certificate_files *files,
                       const char *prefix, struct error *err);
