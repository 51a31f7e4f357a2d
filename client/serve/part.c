/* Programs with a pipe, and their restarts. */
#include "client/serve/part.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/apart.h"

enum { RECOVERED_MS = 60000, PAUSE_MOST_S = 30 };

int part_start(struct part *part, struct error *err)
{
    int rc = apart_start_piped(&part->pid, part->words, &part->output, err);
    if (rc) return rc;
    fcntl(part->output, F_SETFL, O_NONBLOCK);
    part->len = 0;
    part->reason[0] = '\0';
    part->restart_ms = 0;
    part->started_ms = clock_now_ms();
    return 0;
}

/* Keeps the beginning of a line that is too long. */
static void add_byte(struct part *part, char byte,
                     void (*take)(void *arg, struct part *part, const char *line), void *arg)
{
    if (byte != '\n') {
        if (part->len + 1 < sizeof part->line) part->line[part->len++] = byte;
        return;
    }
    part->line[part->len] = '\0';
    part->len = 0;
    take(arg, part, part->line);
}

void part_read(struct part *part, void (*take)(void *arg, struct part *part, const char *line),
               void *arg)
{
    char bytes[4096];
    ssize_t n;
    while (part->output >= 0 && (n = read(part->output, bytes, sizeof bytes)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return;
        for (ssize_t i = 0; i < n; i++)
            add_byte(part, bytes[i], take, arg);
    }
    part_close(part);
}

bool part_has_ended(struct part *part, int *status)
{
    if (part->pid <= 0 || !apart_has_ended(part->pid, status)) return false;
    part->pid = 0;
    return true;
}

void part_plan_restart(struct part *part, int64_t now_ms)
{
    bool is_new = part->pause_s == 0 || now_ms - part->started_ms >= RECOVERED_MS;
    part->pause_s = is_new ? 1 : part->pause_s * 2;
    if (part->pause_s > PAUSE_MOST_S) part->pause_s = PAUSE_MOST_S;
    part->restart_ms = now_ms + part->pause_s * 1000;
}

void part_signal(const struct part *part, int number)
{
    if (part->pid > 0) kill(part->pid, number);
}

void part_close(struct part *part)
{
    if (part->output >= 0) close(part->output);
    part->output = -1;
}
