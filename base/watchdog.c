/* A thread that sleeps until the earliest deadline that it was given, in naps: how late it wakes
 * from one shows for how long it could not run. Arming costs a mutex, and a wake-up only if the
 * deadline comes nearer. */
#include "base/watchdog.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"

/* A nap, and how much later than its end is no matter of scheduling alone. */
enum { NAP_US = 250000, STALL_US = 250000 };

struct watchdog {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    int64_t deadline_us; /* INT64_MAX = disarmed */
    int64_t armed_us;    /* when it was armed */
    int64_t sleeping_until_us;
    bool is_shut;
    watchdog_fn *on_late;
    void *arg;
};

/* Sleeps for a nap, at most until the deadline, or until that comes nearer. */
static void nap(struct watchdog *dog)
{
    int64_t wake = clock_now_us() + NAP_US;
    if (wake > dog->deadline_us) wake = dog->deadline_us;
    dog->sleeping_until_us = wake;
    const struct timespec until = {.tv_sec = wake / 1000000, .tv_nsec = wake % 1000000 * 1000};
    pthread_cond_timedwait(&dog->changed, &dog->lock, &until);
}

static void wait_armed(struct watchdog *dog)
{
    dog->sleeping_until_us = INT64_MAX;
    pthread_cond_wait(&dog->changed, &dog->lock);
    dog->sleeping_until_us = 0; /* it should have been awake as soon as it was armed */
}

/* Moves the deadline by what has passed since the thread should have been here. */
static void allow_for_stall(struct watchdog *dog)
{
    int64_t since = dog->sleeping_until_us;
    if (dog->deadline_us == INT64_MAX) return;
    if (since < dog->armed_us) since = dog->armed_us;
    int64_t late_us = clock_now_us() - since;
    if (late_us > STALL_US) dog->deadline_us += late_us;
}

static void *watch(void *arg)
{
    struct watchdog *dog = arg;
    pthread_mutex_lock(&dog->lock);
    dog->sleeping_until_us = 0;
    while (!dog->is_shut) {
        allow_for_stall(dog);
        if (dog->deadline_us == INT64_MAX) {
            wait_armed(dog);
        } else if (clock_now_us() < dog->deadline_us) {
            nap(dog);
        } else {
            dog->deadline_us = INT64_MAX;
            pthread_mutex_unlock(&dog->lock);
            dog->on_late(dog->arg);
            pthread_mutex_lock(&dog->lock);
        }
    }
    pthread_mutex_unlock(&dog->lock);
    return NULL;
}

int watchdog_open(struct watchdog **out, watchdog_fn *on_late, void *arg, struct error *err)
{
    struct watchdog *dog = NULL;
    pthread_condattr_t attr;
    *out = NULL;
    int rc = mem_array(&dog, 1, sizeof *dog, err);
    if (rc) return rc;
    dog->on_late = on_late;
    dog->arg = arg;
    dog->deadline_us = INT64_MAX;
    dog->sleeping_until_us = INT64_MAX;
    pthread_mutex_init(&dog->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&dog->changed, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&dog->thread, NULL, watch, dog)) {
        free(dog);
        return error_set(err, ERR_NO_MEMORY, "cannot start the watchdog thread");
    }
    *out = dog;
    return 0;
}

void watchdog_close(struct watchdog *dog)
{
    if (!dog) return;
    pthread_mutex_lock(&dog->lock);
    dog->is_shut = true;
    pthread_cond_signal(&dog->changed);
    pthread_mutex_unlock(&dog->lock);
    pthread_join(dog->thread, NULL);
    pthread_cond_destroy(&dog->changed);
    pthread_mutex_destroy(&dog->lock);
    free(dog);
}

void watchdog_arm(struct watchdog *dog, int64_t deadline_us)
{
    int64_t now_us = clock_now_us();
    pthread_mutex_lock(&dog->lock);
    dog->deadline_us = deadline_us;
    dog->armed_us = now_us;
    if (deadline_us < dog->sleeping_until_us) pthread_cond_signal(&dog->changed);
    pthread_mutex_unlock(&dog->lock);
}

void watchdog_disarm(struct watchdog *dog)
{
    pthread_mutex_lock(&dog->lock);
    dog->deadline_us = INT64_MAX; /* the thread sees it when it wakes; no signal is needed */
    pthread_mutex_unlock(&dog->lock);
}

void watchdog_hasten(struct watchdog *dog, int64_t deadline_us)
{
    pthread_mutex_lock(&dog->lock);
    if (deadline_us < dog->deadline_us && dog->deadline_us != INT64_MAX) {
        dog->deadline_us = deadline_us;
        pthread_cond_signal(&dog->changed);
    }
    pthread_mutex_unlock(&dog->lock);
}

bool watchdog_is_armed(struct watchdog *dog)
{
    pthread_mutex_lock(&dog->lock);
    bool is_armed = dog->deadline_us != INT64_MAX;
    pthread_mutex_unlock(&dog->lock);
    return is_armed;
}
