/* A program that `outrider serve` keeps running, and the lines that it prints. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

enum { PART_LINE_BYTES = 4096, PART_REASON_BYTES = 600 };

struct part {
    const char *name; /* for sentences: "the coordinator" */
    char *const *words;
    bool is_several; /* of the name */
    pid_t pid;       /* 0: it does not run */
    int output;      /* a pipe; -1 */
    char line[PART_LINE_BYTES];
    size_t len;
    char reason[PART_REASON_BYTES]; /* why it said that it ends; "" */
    int64_t started_ms, restart_ms; /* restart_ms 0: none is due */
    int pause_s;
};

/* Errors: those of apart_start_piped. */
int part_start(struct part *part, struct error *err);

/* Takes all that the part has printed, a line at a time. */
void part_read(struct part *part, void (*take)(void *arg, struct part *part, const char *line),
               void *arg);

/* Sets *status and true when the part has ended. */
bool part_has_ended(struct part *part, int *status);

/* Plans the next start: after 1 s, then 2, up to 30, until the part has run for a minute. */
void part_plan_restart(struct part *part, int64_t now_ms);

void part_signal(const struct part *part, int number);
void part_close(struct part *part);
