/* Decides which of two threads polls for events: the network thread, or a thread that waits for the
 * work that events bring. The waiting thread then starts on the work at once, without a second
 * wake-up. While it works the network thread polls, but only after POLL_TURN_AWAY_US: for a shorter
 * piece of work it is not even woken. Only one thread polls at a time. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    POLL_TURN_AWAY_US = 10000,   /* how long events may wait while the waiter works */
    POLL_TURN_LIGHT_US = 1000000 /* in a longer wait the network thread sleeps until signalled */
};

struct poll_turn {
    pthread_mutex_t lock;
    pthread_cond_t changed;  /* network thread */
    pthread_cond_t released; /* waiter */
    enum { POLL_TURN_NETWORK, POLL_TURN_WAITER, POLL_TURN_AWAY, POLL_TURN_ENDED } state;
    int64_t since_us; /* of the state */
    bool is_polling;  /* the network thread */
    bool is_asleep;   /* it waits for a signal, without a timeout */
};

void poll_turn_open(struct poll_turn *turn);
void poll_turn_close(struct poll_turn *turn);

/* The network thread calls this before each event; returns when it is to poll. */
void poll_turn_await(struct poll_turn *turn);

/* For the other thread. expect: it will take its turn soon, so the next event is the network
 * thread's last one. take: true when it alone polls, false when until_us has passed and the network
 * thread still polls. leave: it goes to work. */
void poll_turn_expect(struct poll_turn *turn);
bool poll_turn_take(struct poll_turn *turn, int64_t until_us);
void poll_turn_leave(struct poll_turn *turn);

/* Any thread. From now on the network thread alone polls, and poll_turn_take returns false. */
void poll_turn_end(struct poll_turn *turn);
