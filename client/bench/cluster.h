/* A cluster that `outrider bench` starts and ends itself, by the command of --start. */
#pragma once

#include <sys/types.h>

#include "client/bench/sweep.h"
#include "client/server.h"

/* Stopping a zeroed one does nothing. */
struct bench_cluster {
    pid_t pid;                     /* of the shell; it leads a process group of its own */
    char started[ARM_LABEL_BYTES]; /* of the arms that it is for */
};

/* Runs the command with /bin/sh, without its standard output, and waits until the server is
 * healthy. {address} is filled in, and so is what arm->started has: {T} and other swept names. If
 * this process is killed, the command gets SIGTERM. Errors: ERR_ARGUMENT a server answers at that
 * address already, or the command is too long; ERR_IO the command cannot be started, or ends too
 * early; ERR_TIMEOUT, ERR_CANCELLED. After an error the command is not running. */
int bench_cluster_start(struct bench_cluster *cluster, const char *command,
                        const struct bench_arm *arm, struct server *server, int timeout_s,
                        struct error *err);

/* Sends SIGTERM to the process group of the command and waits until all of it has ended; after 10 s
 * it sends SIGKILL. */
void bench_cluster_stop(struct bench_cluster *cluster);
