/* Runs a command while a benchmark takes its measurements. */
#include "client/bench/cluster.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/apart.h"

enum {
    COMMAND_BYTES = 8192,
    LOOK_MS = 100,
    /* A calibration that takes longer is not waited for, nor one that goes on when the time for the
     * start ends. */
    CALIBRATED_US = 30000000
};

/* Copies text with every `name` replaced by value; false when the result does not fit. */
static bool fill_in(char out[COMMAND_BYTES], const char *text, const char *name, const char *value)
{
    size_t len = 0, name_len = strlen(name);
    while (*text) {
        bool is_name = strncmp(text, name, name_len) == 0;
        size_t n = is_name ? strlen(value) : 1;
        if (len + n + 1 > COMMAND_BYTES) return false;
        memcpy(out + len, is_name ? value : text, n);
        len += n;
        text += is_name ? name_len : 1;
    }
    out[len] = '\0';
    return true;
}

static int spawn(struct bench_cluster *cluster, char *command, struct error *err)
{
    static char shell[] = "/bin/sh", c[] = "-c";
    char *const argv[] = {shell, c, command, NULL};
    int rc = apart_start(&cluster->pid, argv, APART_NOWHERE, STDERR_FILENO, err);
    return rc ? error_wrap(err, "--start") : 0;
}

static int wait_serving(struct bench_cluster *cluster, const char *command, struct server *server,
                        int timeout_s, struct error *err)
{
    int64_t end_us = clock_now_us() + (int64_t)timeout_s * 1000000, served_us = 0;
    char how[APART_STATUS_BYTES];
    int rc = 0, status = 0;
    for (;;) {
        bool is_serving = server_is_serving(server);
        if (is_serving) {
            if (!served_us) served_us = clock_now_us();
            bool is_late = clock_now_us() - served_us > CALIBRATED_US;
            if (server_is_calibrated(server) || is_late) return 0;
        }
        if (apart_has_ended(cluster->pid, &status)) {
            /* Its group may still be running: bench_cluster_start stops it. */
            return error_set(err, ERR_IO, "--start: '%.200s' ended with %s before %.160s served",
                             command, apart_say_status(status, how), server->address);
        }
        if (clock_now_us() >= end_us) {
            if (is_serving) return 0;
            return error_set(err, ERR_TIMEOUT, "--start: %.160s does not serve after %d s",
                             server->address, timeout_s);
        }
        TRY(server_sleep(server, LOOK_MS, err));
    }
out:
    return rc;
}

/* Fills {name} with the value of each word name=value. */
static bool fill_words(char filled[COMMAND_BYTES], const char *words)
{
    static char before[COMMAND_BYTES];
    char copy[ARM_LABEL_BYTES], name[ARM_LABEL_BYTES + 2], *rest = copy;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        snprintf(name, sizeof name, "{%s}", word);
        memcpy(before, filled, COMMAND_BYTES);
        if (!fill_in(filled, before, name, value)) return false;
    }
    return true;
}

int bench_cluster_start(struct bench_cluster *cluster, const char *command,
                        const struct bench_arm *arm, struct server *server, int timeout_s,
                        struct error *err)
{
    static char filled[COMMAND_BYTES];
    enum health_answer answer;
    struct error not_there;
    int rc = 0;
    *cluster = (struct bench_cluster){0};
    snprintf(cluster->started, sizeof cluster->started, "%s", arm->started);
    if (server_health(server, "", &answer, &not_there) == 0) {
        return error_set(err, ERR_ARGUMENT,
                         "--start: a server is running at %.160s already; name a free address with "
                         "--address",
                         server->address);
    }
    if (!fill_in(filled, command, "{address}", server->address) ||
        !fill_words(filled, arm->started)) {
        return error_set(err, ERR_ARGUMENT, "--start: the command is longer than %d bytes",
                         COMMAND_BYTES - 1);
    }
    TRY(spawn(cluster, filled, err));
    TRY(wait_serving(cluster, filled, server, timeout_s, err));
out:
    if (rc) bench_cluster_stop(cluster);
    return rc;
}

void bench_cluster_stop(struct bench_cluster *cluster)
{
    apart_stop(cluster->pid);
    *cluster = (struct bench_cluster){0};
}
