/* A thread that sleeps until the deadline that it was given, in naps: when the time is looked at
 * much later than a nap after the last look, the process could not run in between. Arming costs a
 * mutex, and a wake-up only if the thread sleeps for longer than it may. */
#include "base/threads/watchdog.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/threads/monitor.h"

enum {
    NAP_US = 250000,
    STALL_US = 250000 /* waking up so much later than asked is not the scheduler's doing alone */
};

struct watchdog {
    struct monitor monitor;
    pthread_t thread;
    int64_t deadline_us; /* INT64_MAX = disarmed */
    int64_t looked_us;   /* when the time was last looked at, arming included */
    int64_t sleeping_until_us;
    bool is_shut;
    watchdog_fn *on_late;
    void *arg;
};

/* Moves the deadline by what did not count since the last look. */
static int64_t look(struct watchdog *dog)
{
    int64_t now_us = clock_now_us(), since_us = now_us - dog->looked_us;
    if (dog->deadline_us != INT64_MAX && since_us > NAP_US + STALL_US) {
        dog->deadline_us += since_us - NAP_US;
    }
    dog->looked_us = now_us;
    return now_us;
}

static void sleep_until(struct watchdog *dog, int64_t until_us)
{
    dog->sleeping_until_us = until_us;
    monitor_wait(&dog->monitor, until_us);
    dog->sleeping_until_us = 0;
}

static void *watch(void *arg)
{
    struct watchdog *dog = arg;
    monitor_enter(&dog->monitor);
    while (!dog->is_shut) {
        int64_t now_us = look(dog);
        if (dog->deadline_us == INT64_MAX) {
            sleep_until(dog, INT64_MAX);
        } else if (now_us < dog->deadline_us) {
            bool is_near = dog->deadline_us - now_us < NAP_US;
            sleep_until(dog, is_near ? dog->deadline_us : now_us + NAP_US);
        } else {
            dog->deadline_us = INT64_MAX;
            monitor_leave(&dog->monitor);
            dog->on_late(dog->arg);
            monitor_enter(&dog->monitor);
        }
    }
    monitor_leave(&dog->monitor);
    return NULL;
}

int watchdog_open(struct watchdog **out, watchdog_fn *on_late, void *arg, struct error *err)
{
    struct watchdog *dog = NULL;
    *out = NULL;
    int rc = mem_array(&dog, 1, sizeof *dog, err);
    if (rc) return rc;
    dog->on_late = on_late;
    dog->arg = arg;
    dog->deadline_us = INT64_MAX;
    monitor_open(&dog->monitor);
    if (pthread_create(&dog->thread, NULL, watch, dog)) {
        monitor_close(&dog->monitor);
        free(dog);
        return error_set(err, ERR_NO_MEMORY, "cannot start the watchdog thread");
    }
    *out = dog;
    return 0;
}

void watchdog_close(struct watchdog *dog)
{
    if (!dog) return;
    monitor_enter(&dog->monitor);
    dog->is_shut = true;
    monitor_wake(&dog->monitor);
    monitor_leave(&dog->monitor);
    pthread_join(dog->thread, NULL);
    monitor_close(&dog->monitor);
    free(dog);
}

static void set_deadline(struct watchdog *dog, int64_t deadline_us)
{
    dog->deadline_us = deadline_us;
    if (deadline_us < dog->sleeping_until_us) monitor_wake(&dog->monitor);
}

void watchdog_arm(struct watchdog *dog, int64_t limit_us)
{
    monitor_enter(&dog->monitor);
    dog->looked_us = clock_now_us();
    set_deadline(dog, dog->looked_us + limit_us);
    monitor_leave(&dog->monitor);
}

void watchdog_disarm(struct watchdog *dog)
{
    monitor_enter(&dog->monitor);
    dog->deadline_us = INT64_MAX; /* the thread sees it when it wakes; no signal is needed */
    monitor_leave(&dog->monitor);
}

void watchdog_hasten(struct watchdog *dog, int64_t limit_us)
{
    monitor_enter(&dog->monitor);
    int64_t deadline_us = look(dog) + limit_us;
    bool is_armed = dog->deadline_us != INT64_MAX;
    if (is_armed && deadline_us < dog->deadline_us) set_deadline(dog, deadline_us);
    monitor_leave(&dog->monitor);
}

bool watchdog_is_armed(struct watchdog *dog)
{
    monitor_enter(&dog->monitor);
    bool is_armed = dog->deadline_us != INT64_MAX;
    monitor_leave(&dog->monitor);
    return is_armed;
}
