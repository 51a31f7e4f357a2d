/* The options of the command line that say how securely a program serves and calls. What a
 * door's options name is read when the command line is known to be right. */
#pragma once

#include <stdbool.h>

#include "access/certificates.h"
#include "base/text/option_table.h"

/* Fields of door_rows, for the door of a server. */
struct door_options {
    struct certificate_files files;    /* ca: of those who may have signed the clients' */
    struct certificates *certificates; /* once door_read has been called; NULL = plain */
    bool is_insecure;                  /* everybody may call */
};
extern const struct option_row door_rows[];
/* The part's finish. Errors: ERR_ARGUMENT options that do not fit together. */
int door_finish(void *fields, struct error *err);

/* Opens the certificates, if the options name any. Errors: those of certificates_open. */
int door_read(struct door_options *door, struct error *err);

/* Refuses PREFIX-certificate, PREFIX-key and PREFIX-ca that contradict each other. Errors:
 * ERR_ARGUMENT one is missing. */
int access_check_client(const struct certificate_files *files, const char *prefix,
                        struct error *err);

/* Opens what PREFIX-certificate, PREFIX-key and PREFIX-ca name for a client; *certificates is NULL
 * when none is given. Errors: ERR_ARGUMENT one is missing; those of certificates_open. */
int access_open_client(struct certificates **certificates, const struct certificate_files *files,
                       const char *prefix, struct error *err);
