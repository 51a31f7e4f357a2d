/* The network thread looks again after some milliseconds instead of being signalled at every leave,
 * because a signal is a system call, and wakes another thread on the core in the middle of a
 * step. */
#include "base/threads/poll_turn.h"

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

void poll_turn_open(struct poll_turn *turn)
{
    *turn = (struct poll_turn){.state = POLL_TURN_NETWORK};
    pthread_mutex_init(&turn->lock, NULL);
    cond_open(&turn->changed);
    cond_open(&turn->released);
}

void poll_turn_close(struct poll_turn *turn)
{
    pthread_cond_destroy(&turn->released);
    pthread_cond_destroy(&turn->changed);
    pthread_mutex_destroy(&turn->lock);
}

/* False when the time has passed. */
static bool wait_until(struct poll_turn *turn, pthread_cond_t *cond, int64_t until_us)
{
    struct timespec until = {.tv_sec = until_us / 1000000, .tv_nsec = until_us % 1000000 * 1000};
    return pthread_cond_timedwait(cond, &turn->lock, &until) == 0;
}

/* Called with the lock held, while it is not the network thread's turn. */
static void sleep_a_while(struct poll_turn *turn, int64_t now_us)
{
    if (turn->state == POLL_TURN_AWAY) {
        wait_until(turn, &turn->changed, turn->since_us + POLL_TURN_AWAY_US);
    } else if (now_us - turn->since_us < POLL_TURN_LIGHT_US) {
        wait_until(turn, &turn->changed, now_us + POLL_TURN_AWAY_US);
    } else {
        turn->is_asleep = true;
        pthread_cond_wait(&turn->changed, &turn->lock);
        turn->is_asleep = false;
    }
}

static bool is_networks(const struct poll_turn *turn, int64_t now_us)
{
    return turn->state == POLL_TURN_NETWORK || turn->state == POLL_TURN_ENDED ||
           (turn->state == POLL_TURN_AWAY && now_us - turn->since_us >= POLL_TURN_AWAY_US);
}

void poll_turn_await(struct poll_turn *turn)
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
static void enter(struct poll_turn *turn)
{
    if (turn->state == POLL_TURN_WAITER || turn->state == POLL_TURN_ENDED) return;
    turn->state = POLL_TURN_WAITER;
    turn->since_us = clock_now_us();
}

void poll_turn_expect(struct poll_turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    enter(turn);
    pthread_mutex_unlock(&turn->lock);
}

bool poll_turn_take(struct poll_turn *turn, int64_t until_us)
{
    pthread_mutex_lock(&turn->lock);
    enter(turn);
    while (turn->is_polling && wait_until(turn, &turn->released, until_us)) {
    }
    bool is_taken = !turn->is_polling && turn->state != POLL_TURN_ENDED;
    pthread_mutex_unlock(&turn->lock);
    return is_taken;
}

void poll_turn_leave(struct poll_turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    if (turn->state != POLL_TURN_ENDED) turn->state = POLL_TURN_AWAY;
    turn->since_us = clock_now_us();
    if (turn->is_asleep) pthread_cond_signal(&turn->changed);
    pthread_mutex_unlock(&turn->lock);
}

void poll_turn_end(struct poll_turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    turn->state = POLL_TURN_ENDED;
    pthread_cond_signal(&turn->changed);
    pthread_mutex_unlock(&turn->lock);
}
