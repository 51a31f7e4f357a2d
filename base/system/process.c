/* Ending a process, and reading files again. Two threads sleep from the start. The signal thread
 * takes SIGTERM, SIGINT and SIGUSR1 and then counts the grace time; the call thread runs on_stop
 * and, after SIGHUP, on_reload. There are two of them so that a call that hangs does not keep the
 * grace time from ending. When it ends, the process exits without logging, because the log may be
 * what hangs. */
#include "base/system/process.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

enum {
    STATUS_OF_SIGNAL = 128,
    LOOK_MS = 20,      /* at the end of the grace time, which may have come nearer */
    OPEN_FILES = 65536 /* more than any door takes; some libraries go through all that may be */
};

/* Locked inside; calls, grace_ms and the sets are immutable after open. */
static struct process {
    bool is_open;
    struct process_calls calls;
    int grace_ms;
    sigset_t signals, mask_before;
    pthread_t signal_thread, call_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t end_ms; /* of the grace time, once is_stopping */
    bool is_starting, is_reload_due, is_stopping, is_told, is_closing, has_failed;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void set_closing(void)
{
    pthread_mutex_lock(&process.lock);
    process.is_closing = true;
    pthread_cond_broadcast(&process.changed);
    pthread_mutex_unlock(&process.lock);
}

static bool is_closing(void)
{
    pthread_mutex_lock(&process.lock);
    bool closing = process.is_closing;
    pthread_mutex_unlock(&process.lock);
    return closing;
}

/* Ends the process while it starts. False when it is closing already, so that on_stop must not run
 * any more. */
static bool begin_stopping(int signal_number)
{
    pthread_mutex_lock(&process.lock);
    bool may_stop = !process.is_closing;
    if (may_stop && process.is_starting) {
        _exit(process.has_failed ? EXIT_FAILURE : STATUS_OF_SIGNAL + signal_number);
    }
    if (may_stop) process.is_stopping = true;
    process.end_ms = clock_now_ms() + process.grace_ms;
    pthread_cond_broadcast(&process.changed);
    pthread_mutex_unlock(&process.lock);
    return may_stop;
}

static void ask_for_reload(void)
{
    pthread_mutex_lock(&process.lock);
    process.is_reload_due = true;
    pthread_cond_broadcast(&process.changed);
    pthread_mutex_unlock(&process.lock);
}

/* With the lock held, which on_reload runs without. */
static void reload_until_end(void)
{
    while (!process.is_stopping && !process.is_closing) {
        if (!process.is_reload_due) {
            pthread_cond_wait(&process.changed, &process.lock);
            continue;
        }
        process.is_reload_due = false;
        pthread_mutex_unlock(&process.lock);
        process.calls.on_reload(process.calls.arg);
        pthread_mutex_lock(&process.lock);
    }
}

/* Stays until process_close, which waits for is_told. */
static void *call_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&process.lock);
    reload_until_end();
    bool must_tell = process.is_stopping;
    pthread_mutex_unlock(&process.lock);
    if (must_tell && process.calls.on_stop) process.calls.on_stop(process.calls.arg);
    pthread_mutex_lock(&process.lock);
    process.is_told = true;
    pthread_cond_broadcast(&process.changed);
    while (!process.is_closing)
        pthread_cond_wait(&process.changed, &process.lock);
    pthread_mutex_unlock(&process.lock);
    return NULL;
}

/* The next stop signal, or 0 when deadline_ms (clock_now_ms) passes first. */
static int wait_signal_until(int64_t deadline_ms)
{
    for (;;) {
        int64_t left_ms = deadline_ms - clock_now_ms();
        if (left_ms < 0) left_ms = 0;
        struct timespec left = {.tv_sec = left_ms / 1000, .tv_nsec = left_ms % 1000 * 1000000};
        int number = sigtimedwait(&process.signals, NULL, &left);
        if (number > 0 && number != SIGHUP) return number;
        if (number < 0 && errno != EINTR) return 0;
    }
}

static int64_t grace_end_ms(void)
{
    pthread_mutex_lock(&process.lock);
    int64_t end_ms = process.end_ms;
    pthread_mutex_unlock(&process.lock);
    return end_ms;
}

/* The next stop signal, or 0 when the grace time is over. */
static int wait_signal_in_grace(void)
{
    for (;;) {
        int64_t end_ms = grace_end_ms(), look_ms = clock_now_ms() + LOOK_MS;
        int number = wait_signal_until(end_ms < look_ms ? end_ms : look_ms);
        if (number || clock_now_ms() >= grace_end_ms()) return number;
    }
}

/* The first stop signal; 0 when there cannot be one. */
static int wait_signal(void)
{
    int number = 0;
    while (sigwait(&process.signals, &number) == 0) {
        if (number != SIGHUP) return number;
        ask_for_reload();
    }
    return 0;
}

/* process_close wakes this thread with a stop signal of its own, after it has set is_closing. */
static void *signal_main(void *unused)
{
    (void)unused;
    int first = wait_signal();
    if (!first || !begin_stopping(first)) return NULL;
    int second = wait_signal_in_grace();
    if (is_closing()) return NULL;
    _exit(STATUS_OF_SIGNAL + (second ? second : first));
}

static int start_thread(pthread_t *thread, void *(*start)(void *), struct error *err)
{
    int failure = pthread_create(thread, NULL, start, NULL);
    if (!failure) return 0;
    return error_set(err, ERR_IO, "cannot start the signal threads: %s", strerror(failure));
}

static void block_signals(void)
{
    sigemptyset(&process.signals);
    sigaddset(&process.signals, SIGTERM);
    sigaddset(&process.signals, SIGINT);
    sigaddset(&process.signals, SIGUSR1); /* mpirun passes it on to every rank, unlike SIGTERM */
    if (process.calls.on_reload) sigaddset(&process.signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &process.signals, &process.mask_before);
}

/* A connection is an open file. Shells allow 1024 of them for the sake of select, which nothing
 * here uses. Where it fails, fewer connections are taken. */
static void raise_open_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= OPEN_FILES) return;
    limit.rlim_cur = limit.rlim_max < OPEN_FILES ? limit.rlim_max : OPEN_FILES;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int process_open(const struct process_calls *calls, int grace_ms, struct error *err)
{
    assert(!process.is_open);
    int rc = 0;
    process.calls = *calls;
    process.grace_ms = grace_ms > 0 ? grace_ms : 0;
    process.is_starting = calls->is_starting;
    process.is_reload_due = process.is_stopping = process.is_told = process.is_closing = false;
    process.has_failed = false;
    mem_tune();
    raise_open_files();
    signal(SIGPIPE, SIG_IGN);
    block_signals();
    TRY(start_thread(&process.call_thread, call_main, err));
    rc = start_thread(&process.signal_thread, signal_main, err);
    if (rc) {
        set_closing();
        pthread_join(process.call_thread, NULL);
        goto out;
    }
    pthread_mutex_lock(&process.lock);
    process.is_open = true;
    pthread_mutex_unlock(&process.lock);
out:
    if (rc) pthread_sigmask(SIG_SETMASK, &process.mask_before, NULL);
    return rc;
}

void process_started(void)
{
    pthread_mutex_lock(&process.lock);
    process.is_starting = false;
    pthread_mutex_unlock(&process.lock);
}

/* The grace time still runs while this waits for on_stop, which may hang even now. A signal that
 * arrives too late to matter is taken before the mask is restored. */
void process_close(void)
{
    if (!process.is_open) return;
    pthread_mutex_lock(&process.lock);
    while (process.is_stopping && !process.is_told) {
        pthread_cond_wait(&process.changed, &process.lock);
    }
    process.is_closing = true;
    pthread_cond_broadcast(&process.changed);
    pthread_mutex_unlock(&process.lock);
    pthread_join(process.call_thread, NULL);
    pthread_mutex_lock(&process.lock);
    process.is_open = false; /* nobody signals a thread that has ended */
    pthread_mutex_unlock(&process.lock);
    pthread_kill(process.signal_thread, SIGTERM);
    pthread_join(process.signal_thread, NULL);
    while (wait_signal_until(0) > 0)
        continue;
    pthread_sigmask(SIG_SETMASK, &process.mask_before, NULL);
}

/* One signal at most, because a second one would not let anything be finished; and a program that
 * was told to stop has not failed if it cannot go on. */
void process_fail(void)
{
    pthread_mutex_lock(&process.lock);
    bool is_first = process.is_open && !process.has_failed && !process.is_stopping;
    if (is_first) process.has_failed = true;
    if (is_first) pthread_kill(process.signal_thread, SIGTERM);
    pthread_mutex_unlock(&process.lock);
}

void process_hasten(int grace_ms)
{
    pthread_mutex_lock(&process.lock);
    int64_t end_ms = clock_now_ms() + grace_ms;
    if (process.is_stopping && end_ms < process.end_ms) process.end_ms = end_ms;
    pthread_mutex_unlock(&process.lock);
}

bool process_has_failed(void)
{
    pthread_mutex_lock(&process.lock);
    bool has_failed = process.has_failed;
    pthread_mutex_unlock(&process.lock);
    return has_failed;
}

void process_end_now(int status)
{
    _exit(status);
}
