/* A cluster that `outrider bench` starts and ends itself, by the command of --start. */
#pragma once

#include <sys/types.h>

#include "client/server.h"

/* A zeroed one is valid to stop: none runs. */
struct bench_cluster {
    pid_t pid; /* of the shell; it leads a process group of its own */
    int n_ranks;
};

/* Runs the command by /bin/sh, {T} and {address} filled in, OUTRIDER_ADDRESS in its environment, its standard
 * output dropped, and waits until the server is healthy. Should this process be killed, the command gets SIGTERM.
 * Errors: ERR_ARGUMENT something answers there already, or the command is too long; ERR_IO it cannot be
 * started, or ends too early; ERR_TIMEOUT, ERR_CANCELLED. It does not run then. */
int bench_cluster_start(struct bench_cluster *cluster, const char *command, int n_ranks,
                        struct server *server, int timeout_s, struct error *err);

/* SIGTERM to the command's process group, and waits until all of it is gone; after 10 s SIGKILL. */
void bench_cluster_stop(struct bench_cluster *cluster);
