/* Whose turn it is to poll for events: the network thread's, or that of a thread which waits for the work
 * they bring and then acts on it at once, without a second wake-up. While that thread is at work the network
 * thread polls, but only after POLL_TURN_AWAY_US: for a shorter piece of work it is not even woken. One thread
 * polls at a time. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    POLL_TURN_AWAY_US = 10000, /* events may lie so long */
    POLL_TURN_LIGHT_US =
        1000000 /* waits longer than this put the network thread to sleep for good */
};

struct poll_turn {
    pthread_mutex_t lock;
    pthread_cond_t changed;  /* network thread */
    pthread_cond_t released; /* waiter */
    enum { POLL_TURN_NETWORK, POLL_TURN_WAITER, POLL_TURN_AWAY, POLL_TURN_ENDED } state;
    int64_t since_us; /* of the state */
    bool is_polling;  /* the network thread */
    bool is_asleep;   /* it waits for a signal, with no end */
};

void poll_turn_open(struct poll_turn *turn);
void poll_turn_close(struct poll_turn *turn);

/* The network thread, before each event: returns when it is to poll. */
void poll_turn_await(struct poll_turn *turn);

/* The other thread. expect: it will take its turn soon, the next event shall be the network thread's
 * last. take: true when it alone polls, false when until_us has passed and the network thread still does.
 * leave: it goes to work. */
void poll_turn_expect(struct poll_turn *turn);
bool poll_turn_take(struct poll_turn *turn, int64_t until_us);
void poll_turn_leave(struct poll_turn *turn);

/* Any thread: from now on, for good, the network thread alone polls; poll_turn_take gives false. */
void poll_turn_end(struct poll_turn *turn);
