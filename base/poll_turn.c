/* The network thread looks again after some milliseconds instead of being signalled at every leave: a
 * signal is a system call and another thread on the core, in the middle of a step. */
#include "base/poll_turn.h"

#include <time.h>

#include "base/clock.h"

static void cond_open(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

void turn_open(struct turn *turn)
{
    *turn = (struct turn){.state = TURN_NETWORK};
    pthread_mutex_init(&turn->lock, NULL);
    cond_open(&turn->changed);
    cond_open(&turn->released);
}

void turn_close(struct turn *turn)
{
    pthread_cond_destroy(&turn->released);
    pthread_cond_destroy(&turn->changed);
    pthread_mutex_destroy(&turn->lock);
}

/* False when the time has passed. */
static bool wait_until(struct turn *turn, pthread_cond_t *cond, int64_t until_us)
{
    struct timespec until = {.tv_sec = until_us / 1000000, .tv_nsec = until_us % 1000000 * 1000};
    return pthread_cond_timedwait(cond, &turn->lock, &until) == 0;
}

/* Called with the lock held, while it is not the network thread's turn. */
static void sleep_a_while(struct turn *turn, int64_t now_us)
{
    if (turn->state == TURN_AWAY) {
        wait_until(turn, &turn->changed, turn->since_us + TURN_AWAY_US);
    } else if (now_us - turn->since_us < TURN_LIGHT_US) {
        wait_until(turn, &turn->changed, now_us + TURN_AWAY_US);
    } else {
        turn->is_asleep = true;
        pthread_cond_wait(&turn->changed, &turn->lock);
        turn->is_asleep = false;
    }
}

static bool is_networks(const struct turn *turn, int64_t now_us)
{
    return turn->state == TURN_NETWORK || turn->state == TURN_ENDED ||
           (turn->state == TURN_AWAY && now_us - turn->since_us >= TURN_AWAY_US);
}

void turn_await(struct turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    for (int64_t now_us; now_us = clock_now_us(), !is_networks(turn, now_us);) {
        if (turn->is_polling) pthread_cond_signal(&turn->released);
        turn->is_polling = false;
        sleep_a_while(turn, now_us);
    }
    turn->is_polling = true;
    pthread_mutex_unlock(&turn->lock);
}

/* Called with the lock held. */
static void enter(struct turn *turn)
{
    if (turn->state == TURN_WAITER || turn->state == TURN_ENDED) return;
    turn->state = TURN_WAITER;
    turn->since_us = clock_now_us();
}

void turn_expect(struct turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    enter(turn);
    pthread_mutex_unlock(&turn->lock);
}

bool turn_take(struct turn *turn, int64_t until_us)
{
    pthread_mutex_lock(&turn->lock);
    enter(turn);
    while (turn->is_polling && wait_until(turn, &turn->released, until_us)) {
    }
    bool is_taken = !turn->is_polling && turn->state != TURN_ENDED;
    pthread_mutex_unlock(&turn->lock);
    return is_taken;
}

void turn_leave(struct turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    if (turn->state != TURN_ENDED) turn->state = TURN_AWAY;
    turn->since_us = clock_now_us();
    if (turn->is_asleep) pthread_cond_signal(&turn->changed);
    pthread_mutex_unlock(&turn->lock);
}

void turn_end(struct turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    turn->state = TURN_ENDED;
    pthread_cond_signal(&turn->changed);
    pthread_mutex_unlock(&turn->lock);
}
