/* A file of requests: one JSON object per line, with the names of fields that the service has. */
#pragma once

#include <jansson.h>

#include "proto/jobs_wire.h"

/* One line; what its request points to is in root and arena. */
struct jobs_line {
    int number;       /* from 1 on */
    const char *text; /* [len] in the file, without its newline */
    size_t len;
};

/* The lines of a text that are not blank. The caller frees *lines. Errors: ERR_NO_MEMORY. */
int jobs_lines(struct jobs_line **lines, int *n, const char *text, size_t len, struct error *err);

/* The request of one line. Zeroed: empty. */
struct jobs_entry {
    struct generate_request request;
    char key[JOB_KEY_BYTES];
    const char *custom_id; /* "" = none */
    json_t *root;
    struct arena arena;
};

/* Reads a line. A line without a key of its own gets one that is made of `run`, its number and a
 * hash of its text, so that the same line of the same file has the same key again.
 * Errors: ERR_FORMAT with the number of the line, the field and what is wrong; ERR_NO_MEMORY. */
int jobs_entry_read(struct jobs_entry *entry, const struct jobs_line *line, const char *run,
                    struct error *err);
void jobs_entry_free(struct jobs_entry *entry);
