/* A thread that sleeps until the earliest deadline that it was given. Arming costs a mutex, and a
 * wake-up only if the deadline comes nearer. */
#include "base/watchdog.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"

struct watchdog {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    int64_t deadline_us; /* INT64_MAX = disarmed */
    int64_t sleeping_until_us;
    bool is_shut;
    watchdog_fn *on_late;
    void *arg;
};

static void *watch(void *arg)
{
    struct watchdog *dog = arg;
    pthread_mutex_lock(&dog->lock);
    while (!dog->is_shut) {
        int64_t deadline = dog->deadline_us;
        dog->sleeping_until_us = deadline;
        if (deadline == INT64_MAX) {
            pthread_cond_wait(&dog->changed, &dog->lock);
        } else if (clock_now_us() >= deadline) {
            dog->deadline_us = INT64_MAX;
            pthread_mutex_unlock(&dog->lock);
            dog->on_late(dog->arg);
            pthread_mutex_lock(&dog->lock);
        } else {
            struct timespec until = {.tv_sec = deadline / 1000000,
                                     .tv_nsec = deadline % 1000000 * 1000};
            pthread_cond_timedwait(&dog->changed, &dog->lock, &until);
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
    pthread_mutex_lock(&dog->lock);
    dog->deadline_us = deadline_us;
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
