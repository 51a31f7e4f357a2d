/* A mutex and a condition variable on the monotonic clock. */
#include "base/threads/monitor.h"

#include <time.h>

void monitor_open(struct monitor *monitor)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&monitor->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&monitor->changed, &attr);
    pthread_condattr_destroy(&attr);
}

void monitor_close(struct monitor *monitor)
{
    pthread_cond_destroy(&monitor->changed);
    pthread_mutex_destroy(&monitor->lock);
}

void monitor_enter(struct monitor *monitor)
{
    pthread_mutex_lock(&monitor->lock);
}

void monitor_leave(struct monitor *monitor)
{
    pthread_mutex_unlock(&monitor->lock);
}

bool monitor_wait(struct monitor *monitor, int64_t deadline_us)
{
    struct timespec until = {.tv_sec = deadline_us / 1000000,
                             .tv_nsec = deadline_us % 1000000 * 1000};
    return pthread_cond_timedwait(&monitor->changed, &monitor->lock, &until) == 0;
}

void monitor_wake(struct monitor *monitor)
{
    pthread_cond_broadcast(&monitor->changed);
}
