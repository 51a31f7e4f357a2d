/* Ending a process. Two threads sleep from the start. The signal thread takes SIGTERM and SIGINT
 * and then counts the grace time; the stop thread runs on_stop. There are two of them so that an
 * on_stop that hangs does not keep the grace time from ending. When it ends, the process exits
 * without logging, because the log may be what hangs. */
#include "base/process.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

enum { STATUS_OF_SIGNAL = 128 };

/* Locked inside; on_stop, arg, grace_ms and the sets are immutable after open. */
static struct process {
    bool is_open;
    process_stop_fn *on_stop;
    void *arg;
    int grace_ms;
    sigset_t stop_signals, mask_before;
    pthread_t signal_thread, stop_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_stopping, is_told, is_closing;
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

/* False when the process is closing already, so that on_stop must not run any more. */
static bool begin_stopping(void)
{
    pthread_mutex_lock(&process.lock);
    bool may_stop = !process.is_closing;
    if (may_stop) process.is_stopping = true;
    pthread_cond_broadcast(&process.changed);
    pthread_mutex_unlock(&process.lock);
    return may_stop;
}

/* Stays until process_close, which waits for is_told. */
static void *stop_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&process.lock);
    while (!process.is_stopping && !process.is_closing) {
        pthread_cond_wait(&process.changed, &process.lock);
    }
    bool must_tell = process.is_stopping;
    pthread_mutex_unlock(&process.lock);
    if (must_tell && process.on_stop) process.on_stop(process.arg);
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
        int number = sigtimedwait(&process.stop_signals, NULL, &left);
        if (number > 0) return number;
        if (errno != EINTR) return 0;
    }
}

/* process_close wakes this thread with a stop signal of its own, after it has set is_closing. */
static void *signal_main(void *unused)
{
    (void)unused;
    int first = 0;
    if (sigwait(&process.stop_signals, &first) || !begin_stopping()) return NULL;
    int second = wait_signal_until(clock_now_ms() + process.grace_ms);
    if (is_closing()) return NULL;
    _exit(STATUS_OF_SIGNAL + (second ? second : first));
}

static int start_thread(pthread_t *thread, void *(*start)(void *), struct error *err)
{
    int failure = pthread_create(thread, NULL, start, NULL);
    if (!failure) return 0;
    return error_set(err, ERR_IO, "cannot start the signal threads: %s", strerror(failure));
}

static void block_stop_signals(void)
{
    sigemptyset(&process.stop_signals);
    sigaddset(&process.stop_signals, SIGTERM);
    sigaddset(&process.stop_signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &process.stop_signals, &process.mask_before);
}

int process_open(process_stop_fn *on_stop, void *arg, int grace_ms, struct error *err)
{
    assert(!process.is_open);
    int rc = 0;
    process.on_stop = on_stop;
    process.arg = arg;
    process.grace_ms = grace_ms > 0 ? grace_ms : 0;
    process.is_stopping = process.is_told = process.is_closing = false;
    mem_tune();
    signal(SIGPIPE, SIG_IGN);
    block_stop_signals();
    TRY(start_thread(&process.stop_thread, stop_main, err));
    rc = start_thread(&process.signal_thread, signal_main, err);
    if (rc) {
        set_closing();
        pthread_join(process.stop_thread, NULL);
        goto out;
    }
    process.is_open = true;
out:
    if (rc) pthread_sigmask(SIG_SETMASK, &process.mask_before, NULL);
    return rc;
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
    pthread_join(process.stop_thread, NULL);
    pthread_kill(process.signal_thread, SIGTERM);
    pthread_join(process.signal_thread, NULL);
    while (wait_signal_until(0) > 0)
        continue;
    pthread_sigmask(SIG_SETMASK, &process.mask_before, NULL);
    process.is_open = false;
}

void process_end_now(int status)
{
    _exit(status);
}
