/* The thread that writes the log's lines about work: one for each job that ends, and while there is
 * work one with figures every few seconds. A thread that ends a job hands it over and never waits
 * for the log: when nobody reads that, lines are left out, and SIGNAL_LOST_LINES counts them.
 * Locked inside. */
#pragma once

#include "coordinator/signals/job_report.h"
#include "coordinator/signals/signals.h"

struct reporter;

enum { REPORTER_LOAD_S = 10 /* default of load_s */ };

struct reporter_options {
    struct signals *signals; /* kept */
    bool has_jobs;           /* false: only jobs that fail have a line */
    int load_s;              /* between two lines of figures; 0 = none */
};

/* Errors: ERR_NO_MEMORY. */
int reporter_open(struct reporter **reporter, const struct reporter_options *options,
                  struct error *err);
/* Writes everything that was handed over first. */
void reporter_close(struct reporter *reporter);

/* Copies the report. Any thread. */
void reporter_job(struct reporter *reporter, const struct job_report *report);
