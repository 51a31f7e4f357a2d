/* Options of the HTTP door, for its opening. */
#pragma once

#include "base/threads/beat.h"
#include "coordinator/job/admission.h"
#include "coordinator/job/sender.h"
#include "coordinator/job/served_chat.h"
#include "coordinator/job/served_model.h"
#include "coordinator/store/job_watch.h"
#include "coordinator/store/jobs.h"
#include "http/metrics_server.h"

struct certificates; /* access/certificates.h */
struct keys;         /* access/keys.h */

struct openai_options {
    const char *address; /* HOST:PORT */
    const char *origin;  /* that may use the API from a browser (CORS), "*" = any; NULL */
    bool is_insecure;    /* --insecure: nobody's page is refused */
    int max_connections;
    int reader_timeout_s; /* for which a client may read nothing of its answer */
    int n_stop;           /* stop strings of a request */
    int n;                /* texts of a prompt */

    /* Kept. */
    struct certificates *certificates; /* NULL = without TLS */
    struct keys *keys;                 /* who may call; NULL = everybody */
    struct admission *admission;
    struct jobs *jobs;
    struct job_watch *watch;
    struct sender *sender;
    struct served_model *model;
    struct beat *beat;              /* of the threads that must make progress, for /live */
    metrics_page_fn *write_metrics; /* /metrics */
    void *metrics_arg;
};
