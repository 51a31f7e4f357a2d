/* Whose turn it is to poll for events: the network thread's, or that of a thread which waits for the work
 * they bring and then acts on it at once, without a second wake-up. While that thread is at work the network
 * thread polls, but only after TURN_AWAY_US: for a shorter piece of work it is not even woken. One thread
 * polls at a time. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    TURN_AWAY_US = 10000,   /* events may lie so long */
    TURN_LIGHT_US = 1000000 /* waits longer than this put the network thread to sleep for good */
};

struct turn {
    pthread_mutex_t lock;
    pthread_cond_t changed;  /* network thread */
    pthread_cond_t released; /* waiter */
    enum { TURN_NETWORK, TURN_WAITER, TURN_AWAY, TURN_ENDED } state;
    int64_t since_us; /* of the state */
    bool is_polling;  /* the network thread */
    bool is_asleep;   /* it waits for a signal, with no end */
};

void turn_open(struct turn *turn);
void turn_close(struct turn *turn);

/* The network thread, before each event: returns when it is to poll. */
void turn_await(struct turn *turn);

/* The other thread. expect: it will take its turn soon, the next event shall be the network thread's
 * last. take: true when it alone polls, false when until_us has passed and the network thread still does.
 * leave: it goes to work. */
void turn_expect(struct turn *turn);
bool turn_take(struct turn *turn, int64_t until_us);
void turn_leave(struct turn *turn);

/* Any thread: from now on, for good, the network thread alone polls; turn_take gives false. */
void turn_end(struct turn *turn);
