/* A lock with one condition to wait for, for state that several threads share. Waits have a
 * deadline. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct monitor {
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

void monitor_open(struct monitor *monitor);
/* No thread may be inside any more. */
void monitor_close(struct monitor *monitor);

void monitor_enter(struct monitor *monitor);
void monitor_leave(struct monitor *monitor);

/* Inside: lets others in until one of them calls monitor_wake or deadline_us (clock_now_us) has
 * passed; false then. It may also return true for no reason. */
bool monitor_wait(struct monitor *monitor, int64_t deadline_us);

/* Inside: wakes every thread that waits. */
void monitor_wake(struct monitor *monitor);
