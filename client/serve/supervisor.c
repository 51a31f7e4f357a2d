/* One thread, which waits for signals, lines of log and the times of restarts. What it knows of the
 * programs is what their logs say. */
#include "client/serve/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/program.h"
#include "client/serve/greeting.h"
#include "client/serve/log_event.h"
#include "client/serve/part.h"
#include "client/serve/screen.h"
#include "launch/apart.h"

enum {
    LOOK_MS = 100,
    CALIBRATED_MS = 20000, /* one that takes longer is not waited for */
    PATIENCE_MS = 10000,
    HELD_MAX = 6,
    HELD_BYTES = PART_REASON_BYTES + LOG_WORD_BYTES + 4,
    DRAIN_S = 5, /* the default of both programs */
    GRACE_MS = 4000,
    SAME_WISH_MS = 300,
    USAGE = 2
};

struct supervisor {
    const struct serve_options *options;
    struct part group, coordinator;
    struct screen screen;
    struct greeting greeting;
    FILE *log;
    int signals;
    int n_ready; /* ranks */
    bool is_packing, is_listening, is_ready, has_target, is_calibrating, was_up, is_up;
    int64_t target_ms, ready_ms; /* since when there is a target, and all ranks are ready */
    char why[PART_REASON_BYTES]; /* the coordinator has no target */
    bool has_said_why;
    char held[HELD_MAX][HELD_BYTES]; /* warnings, until the address was printed */
    int n_held;
    bool is_stopping, has_told_group;
    int64_t stop_ms, kill_ms;
    int status;
};

/* ---- lines of log ---- */

static void write_log(struct supervisor *s, const struct log_event *event, bool is_event,
                      const char *line)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    if (!s->log) return;
    for (unsigned i = 0; is_event && i < (unsigned)s->options->log_level; i++) {
        if (strcmp(event->level, levels[i]) == 0) return;
    }
    screen_clear(&s->screen);
    fprintf(s->log, "%s\n", line);
    fflush(s->log);
}

/* Warnings about a group that is away are said by this program, where they last. */
static void take_warning(struct supervisor *s, const struct log_event *event, const char *text)
{
    static const char *const of_a_group[] = {"target_unreachable", "target_lost", "target_not_used",
                                             "failed"};
    for (size_t i = 0; i < sizeof of_a_group / sizeof *of_a_group; i++) {
        if (strcmp(event->name, of_a_group[i]) != 0) continue;
        snprintf(s->why, sizeof s->why, "%s", text);
        return;
    }
    if (s->log || !*text) return;
    if (s->was_up) {
        screen_say(&s->screen, "%s: %s", event->name, text);
    } else if (s->n_held < HELD_MAX) {
        snprintf(s->held[s->n_held++], HELD_BYTES, "%s: %s", event->name, text);
    }
}

static void show_progress(struct supervisor *s);

/* Shown at once, because it may be over at the next look. */
static void begin_packing(struct supervisor *s)
{
    if (s->is_packing) return;
    s->is_packing = true;
    if (!s->was_up && !s->is_stopping) show_progress(s);
}

static void take_event(struct supervisor *s, struct part *part, const struct log_event *event)
{
    char text[PART_REASON_BYTES];
    bool is_error = strcmp(event->level, "error") == 0;
    log_event_field(event, "text", text, sizeof text);
    if (is_error) snprintf(part->reason, sizeof part->reason, "%s", text);
    if (is_error || strcmp(event->level, "warn") == 0) take_warning(s, event, text);
    bool is_ready = strcmp(event->name, "ready") == 0;
    if (part == &s->group) {
        if (strcmp(event->name, "packing") == 0) begin_packing(s);
        if (is_ready) s->n_ready++;
        if (is_ready) s->ready_ms = clock_now_ms();
        return;
    }
    if (is_ready) {
        s->is_ready = true;
    } else if (strcmp(event->name, "listening") == 0) {
        s->is_listening = true;
        log_event_field(event, "http", s->greeting.http, sizeof s->greeting.http);
        log_event_field(event, "address", s->greeting.address, sizeof s->greeting.address);
    } else if (strcmp(event->name, "target_ready") == 0) {
        s->has_target = true;
        s->target_ms = clock_now_ms();
        log_event_field(event, "model", s->greeting.model, sizeof s->greeting.model);
    } else if (strcmp(event->name, "calibrating") == 0) {
        s->is_calibrating = true;
    } else if (strcmp(event->name, "measured") == 0 || strcmp(event->name, "not_measured") == 0) {
        s->is_calibrating = false;
    }
}

/* "outrider-worker: TEXT", from a command line that is refused, is a reason, too. */
static void take_line(void *arg, struct part *part, const char *line)
{
    static const char prefix[] = "outrider-";
    struct supervisor *s = arg;
    struct log_event event;
    bool is_event = log_event_read(&event, line);
    write_log(s, &event, is_event, line);
    if (is_event) {
        take_event(s, part, &event);
        return;
    }
    const char *text = strstr(line, ": ");
    if (strncmp(line, prefix, sizeof prefix - 1) != 0 || !text) return;
    snprintf(part->reason, sizeof part->reason, "%s", text + 2);
}

/* ---- starts ---- */

static void forget(struct supervisor *s, const struct part *part)
{
    if (part == &s->group) s->n_ready = 0;
    if (part == &s->group) s->is_packing = false;
    if (part == &s->coordinator) s->is_listening = s->is_ready = s->is_calibrating = false;
    s->has_target = s->is_up = s->has_said_why = false;
    s->why[0] = '\0';
}

static void stop(struct supervisor *s, int status);

static void start(struct supervisor *s, struct part *part)
{
    struct error err;
    if (part_start(part, &err) == 0) return;
    if (s->was_up) {
        part_plan_restart(part, clock_now_ms());
        screen_say(&s->screen, "%s; trying again in %d s", err.text, part->pause_s);
        return;
    }
    screen_say(&s->screen, "%s", err.text);
    stop(s, SUPERVISOR_FAILED);
}

static const char memory_hint[] =
    "; if the machine ran out of memory, --weights int8 or a smaller --kv-tokens takes less";

/* A program that has ended by itself is started again, unless it says that no start can succeed, or
 * none has succeeded yet. */
static void take_end(struct supervisor *s, struct part *part, int status)
{
    char how[APART_STATUS_BYTES];
    bool is_final = status == USAGE || status == PROGRAM_NO_RESTART;
    part_read(part, take_line, s);
    const char *reason = part->reason, *colon = *reason ? ": " : "";
    part_close(part);
    forget(s, part);
    if (s->is_stopping) return;
    apart_say_status(status, how);
    if (is_final && *reason) {
        screen_say(&s->screen, "%s", reason);
    } else if (!s->was_up || is_final) {
        screen_say(&s->screen, "%s ended before %s served (%s)%s%s%s", part->name,
                   part->is_several ? "they" : "it", how, colon, reason,
                   status == 128 + SIGKILL ? memory_hint : "");
    } else {
        part_plan_restart(part, clock_now_ms());
        screen_say(&s->screen, "%s ended (%s)%s%s; starting %s again in %d s", part->name, how,
                   colon, reason, part->is_several ? "them" : "it", part->pause_s);
        return;
    }
    stop(s, is_final ? status : SUPERVISOR_FAILED);
}

static void take_ends(struct supervisor *s)
{
    struct part *const parts[] = {&s->group, &s->coordinator};
    for (int i = 0; i < 2; i++) {
        int status;
        if (part_has_ended(parts[i], &status)) take_end(s, parts[i], status);
        bool is_due = parts[i]->restart_ms && clock_now_ms() >= parts[i]->restart_ms;
        if (is_due && !s->is_stopping) start(s, parts[i]);
    }
}

/* ---- the way to serving ---- */

static bool is_serving(const struct supervisor *s)
{
    bool is_late = clock_now_ms() - s->target_ms > CALIBRATED_MS;
    return s->n_ready >= s->options->n_ranks && s->is_ready && s->has_target &&
           (!s->is_calibrating || is_late || s->was_up);
}

static void come_up(struct supervisor *s)
{
    screen_clear(&s->screen);
    if (s->was_up) {
        screen_say(&s->screen, "serving again");
    } else {
        greeting_print(&s->greeting);
    }
    for (int i = 0; i < s->n_held; i++)
        screen_say(&s->screen, "%s", s->held[i]);
    s->n_held = 0;
    s->is_up = s->was_up = true;
}

static void show_progress(struct supervisor *s)
{
    char text[SCREEN_TEXT_BYTES], detail[40] = "";
    const char *draft = serve_value_of_coordinator(s->options, "draft");
    if (!draft) draft = serve_value_of_coordinator(s->options, "head");
    if (s->n_ready < s->options->n_ranks) {
        snprintf(text, sizeof text, "%s %.200s",
                 s->is_packing ? "packing the weights of" : "loading", s->options->model);
        if (s->options->n_ranks > 1) {
            snprintf(detail, sizeof detail, "%d of %d ranks are ready", s->n_ready,
                     s->options->n_ranks);
        }
    } else if (!s->is_listening && draft) {
        snprintf(text, sizeof text, "loading %.200s", draft);
    } else if (!s->is_ready || !s->has_target) {
        snprintf(text, sizeof text, "connecting");
    } else {
        snprintf(text, sizeof text, "calibrating: what steps and guesses cost");
    }
    screen_show(&s->screen, text, detail, clock_now_ms());
}

/* Says, once, why the coordinator does not use ranks that have been ready for long. */
static void explain_wait(struct supervisor *s)
{
    bool is_waiting = s->n_ready >= s->options->n_ranks && !s->has_target;
    bool is_long = clock_now_ms() - s->ready_ms > PATIENCE_MS;
    if (!is_waiting || !is_long || s->has_said_why || !s->why[0]) return;
    s->has_said_why = true;
    screen_say(&s->screen, "not serving yet: %s", s->why);
}

/* ---- the end ---- */

static int drain_ms(const struct supervisor *s)
{
    const char *const texts[] = {serve_value_of_worker(s->options, "drain-timeout"),
                                 serve_value_of_coordinator(s->options, "drain-timeout")};
    int most = DRAIN_S;
    for (int i = 0; i < 2; i++) {
        int seconds = texts[i] ? atoi(texts[i]) : 0;
        if (seconds > most) most = seconds;
    }
    return most * 1000 + GRACE_MS;
}

/* Begins the end: the coordinator finishes its requests first, then the workers end. */
static void stop(struct supervisor *s, int status)
{
    if (s->is_stopping) return;
    s->is_stopping = true;
    s->status = status;
    s->stop_ms = clock_now_ms();
    s->kill_ms = s->stop_ms + drain_ms(s);
    part_signal(&s->coordinator, SIGTERM);
}

static void go_on_stopping(struct supervisor *s)
{
    if (s->coordinator.pid <= 0 && !s->has_told_group) {
        s->has_told_group = true;
        s->kill_ms = clock_now_ms() + drain_ms(s);
        part_signal(&s->group, SIGTERM);
    }
    if (clock_now_ms() < s->kill_ms) return;
    part_signal(s->has_told_group ? &s->group : &s->coordinator, SIGKILL);
    if (s->status == 0) s->status = SUPERVISOR_FAILED;
}

/* The second signal ends what is still running at once, unless it is the first one again: a
 * terminal and a shell, or timeout(1), may both send it. */
static void take_signals(struct supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) continue;
        screen_clear(&s->screen);
        if (s->is_stopping && clock_now_ms() - s->stop_ms > SAME_WISH_MS) {
            part_signal(&s->coordinator, SIGTERM);
            part_signal(&s->group, SIGTERM);
        }
        stop(s, 0);
    }
}

/* ---- the loop ---- */

static int open_signals(struct supervisor *s, struct error *err)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(&set, numbers[i]);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (s->signals >= 0) return 0;
    return error_set(err, ERR_IO, "cannot wait for signals: %s", strerror(errno));
}

static int open_log(struct supervisor *s, struct error *err)
{
    const char *path = s->options->log;
    if (!path) return 0;
    s->log = strcmp(path, "-") == 0 ? stderr : fopen(path, "ae");
    if (s->log) return 0;
    return error_set(err, ERR_IO, "--log %.200s cannot be written: %s", path, strerror(errno));
}

static void wait_for_more(struct supervisor *s)
{
    struct pollfd waits[] = {{.fd = s->signals, .events = POLLIN},
                             {.fd = s->group.output, .events = POLLIN},
                             {.fd = s->coordinator.output, .events = POLLIN}};
    bool is_settled =
        s->is_up && !s->is_stopping && !s->group.restart_ms && !s->coordinator.restart_ms;
    poll(waits, 3, is_settled ? -1 : LOOK_MS);
}

static void loop(struct supervisor *s)
{
    while (!s->is_stopping || s->group.pid > 0 || s->coordinator.pid > 0) {
        wait_for_more(s);
        part_read(&s->group, take_line, s);
        part_read(&s->coordinator, take_line, s);
        take_signals(s);
        take_ends(s);
        if (s->is_stopping) {
            go_on_stopping(s);
        } else if (!s->is_up && is_serving(s)) {
            come_up(s);
        } else if (!s->is_up) {
            explain_wait(s);
            if (!s->was_up) show_progress(s);
        }
    }
}

int supervisor_run(const struct serve_options *options, const struct serve_words *group,
                   const struct serve_words *coordinator)
{
    static struct supervisor s;
    struct error err;
    s = (struct supervisor){.options = options, .signals = -1};
    s.group = (struct part){
        .name = "the workers", .is_several = true, .words = group->words, .output = -1};
    if (options->n_ranks == 1) {
        s.group.name = "the worker";
        s.group.is_several = false;
    }
    s.coordinator =
        (struct part){.name = "the coordinator", .words = coordinator->words, .output = -1};
    screen_open(&s.screen);
    greeting_open(&s.greeting, options);
    if (open_log(&s, &err) || open_signals(&s, &err)) {
        screen_say(&s.screen, "%s", err.text);
        return SUPERVISOR_FAILED;
    }
    show_progress(&s);
    start(&s, &s.group);
    if (!s.is_stopping) start(&s, &s.coordinator);
    loop(&s);
    screen_clear(&s.screen);
    close(s.signals);
    if (s.log && s.log != stderr) fclose(s.log);
    return s.status;
}
