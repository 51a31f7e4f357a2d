/* Starts the program itself again, in a group of its own, so that Ctrl-C on the terminal does not
 * end it. */
#include "client/chat/started.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/terminal.h"
#include "launch/apart.h"

enum {
    PATH_BYTES = 4096,
    LINE_BYTES = 256,
    SHOWN_COLUMNS = 76,
    LOOK_MS = 100,
    START_US = 600000000, /* of the largest models that one machine loads */
    /* A calibration that takes longer is not waited for. */
    CALIBRATED_US = 30000000
};

int started_words_take(struct started_words *words, int *argc, char **argv, struct error *err)
{
    int at = 1;
    *words = (struct started_words){0};
    while (at < *argc && strcmp(argv[at], "--") != 0)
        at++;
    if (at == *argc) return 0;
    if (*argc - at > STARTED_WORDS_MAX / 2) {
        return error_set(err, ERR_ARGUMENT, "more than %d words after --", STARTED_WORDS_MAX / 2);
    }
    for (int i = at + 1; i < *argc; i++)
        words->words[words->n++] = argv[i];
    *argc = at;
    argv[at] = NULL;
    return 0;
}

int started_prepare(struct started *started, struct error *err)
{
    const char *parent = getenv("TMPDIR");
    *started = (struct started){0};
    if (!parent || parent[0] != '/' || strlen(parent) > 60) parent = "/tmp"; /* a socket's path */
    snprintf(started->folder, sizeof started->folder, "%s/outrider.XXXXXX", parent);
    if (!mkdtemp(started->folder)) {
        started->folder[0] = '\0';
        return error_set(err, ERR_IO, "cannot make a folder in %s: %s", parent, strerror(errno));
    }
    snprintf(started->address, sizeof started->address, "unix:%s/s", started->folder);
    snprintf(started->log, sizeof started->log, "%s/log", started->folder);
    return 0;
}

bool started_is_there(const struct started *started)
{
    int status;
    return !started->pid || !apart_has_ended(started->pid, &status);
}

/* ---- what it says ---- */

/* The last line of the log that says something; "" = there is none. */
static void last_line(const struct started *started, char line[LINE_BYTES])
{
    char read[LINE_BYTES];
    FILE *log = fopen(started->log, "r");
    line[0] = '\0';
    if (!log) return;
    if (fseek(log, -4 * LINE_BYTES, SEEK_END)) rewind(log);
    while (fgets(read, sizeof read, log)) {
        read[strcspn(read, "\r\n")] = '\0';
        if (*read) memcpy(line, read, sizeof read);
    }
    fclose(log);
}

/* Its messages begin with its name, which would be said twice. */
static const char *without_name(const char *line)
{
    static const char *const names[] = {"outrider: ", "outrider serve: "};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t len = strlen(names[i]);
        if (strncmp(line, names[i], len) == 0) return line + len;
    }
    return line;
}

static void show_progress(const struct terminal *to, const char *line)
{
    if (!to->is_terminal) return;
    fputs("\r\033[K", to->out);
    if (*line) {
        size_t len = strlen(line);
        terminal_style(to, STYLE_DIM);
        terminal_quoted(to, line, len < SHOWN_COLUMNS ? len : SHOWN_COLUMNS);
        terminal_style(to, STYLE_PLAIN);
    }
    fflush(to->out);
}

/* ---- waiting ---- */

static int fail_with_end(const char *model, const char *line, int status, struct error *err)
{
    char how[APART_STATUS_BYTES];
    if (*line) return error_set(err, ERR_IO, "%s", without_name(line));
    return error_set(err, ERR_IO, "outrider serve %.200s ended with %s before it served", model,
                     apart_say_status(status, how));
}

static int wait_serving(struct started *started, const char *model, struct server *server,
                        struct error *err)
{
    const struct terminal to = terminal_of(stderr);
    int64_t begin_us = clock_now_us(), served_us = 0;
    char line[LINE_BYTES];
    int rc = 0, status = 0;
    for (;;) {
        last_line(started, line);
        if (apart_has_ended(started->pid, &status)) {
            show_progress(&to, "");
            return fail_with_end(model, line, status, err);
        }
        if (!served_us) show_progress(&to, *line ? without_name(line) : "starting the server ...");
        bool has_socket = access(started->address + strlen("unix:"), F_OK) == 0;
        if (has_socket && server_is_serving(server)) {
            if (!served_us) served_us = clock_now_us();
            show_progress(&to, "measuring the times that guesses are planned by ...");
            if (server_is_calibrated(server) || clock_now_us() - served_us > CALIBRATED_US) break;
        }
        if (!served_us && clock_now_us() - begin_us > START_US) {
            rc = error_set(err, ERR_TIMEOUT, "%.200s does not serve after %d s%s%s", model,
                           (int)(START_US / 1000000), *line ? "; it said last: " : "", line);
            break;
        }
        if ((rc = server_sleep(server, LOOK_MS, err))) break;
    }
    show_progress(&to, "");
    return rc;
}

static int start(struct started *started, char **argv, struct error *err)
{
    int log = open(started->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0) {
        return error_set(err, ERR_IO, "cannot write %s: %s", started->log, strerror(errno));
    }
    int rc = apart_start(&started->pid, argv, log, log, err);
    close(log);
    return rc;
}

int started_run(struct started *started, const char *model, const struct started_words *more,
                struct server *server, struct error *err)
{
    static char program[PATH_BYTES];
    static char serve[] = "serve", listen[] = "--listen", host[] = "--host=127.0.0.1",
                port[] = "--port=0";
    char *argv[STARTED_WORDS_MAX + 8] = {program, serve};
    char *name = strdup(model);
    int n = 2, rc;
    if (!name) return error_set(err, ERR_NO_MEMORY, "no memory");
    if (readlink("/proc/self/exe", program, sizeof program - 1) <= 0) {
        snprintf(program, sizeof program, "outrider");
    }
    argv[n++] = name;
    argv[n++] = listen;
    argv[n++] = started->address;
    argv[n++] = host;
    argv[n++] = port;
    for (int i = 0; i < more->n; i++)
        argv[n++] = more->words[i];
    argv[n] = NULL;
    rc = start(started, argv, err);
    free(name);
    return rc ? rc : wait_serving(started, model, server, err);
}

/* ---- the end ---- */

void started_stop(struct started *started, struct server *server)
{
    server_disconnect(server);
    apart_stop(started->pid);
    if (started->folder[0]) {
        unlink(started->log);
        unlink(started->address + strlen("unix:"));
        rmdir(started->folder);
    }
    *started = (struct started){0};
}
