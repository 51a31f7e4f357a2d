/* Watches how often the guesses of a draft model stay, and says once when far fewer do than before:
 * a wrong file, a head with wrong features or texts of another kind make no error, only guesses
 * that are in vain. Pure arithmetic, but for the line of the log. Owned by the engine thread.
 *
 * The guesses of lanes go into a window, which ends when it has ACCEPTANCE_WINDOW tested first
 * guesses and ACCEPTANCE_TEXTS texts have begun in it: the guesses of one text are alike, so one
 * odd text must not fill it. Its share of first guesses that stayed is compared with the usual
 * share, that of all windows before, of which older ones count less. It has collapsed when it is
 * below ACCEPTANCE_LOW times the usual share and the difference is more than ACCEPTANCE_ERRORS
 * standard errors (a test of two proportions); it is usual again above ACCEPTANCE_BACK times that
 * share. Windows of a collapse do not count as usual until there were ACCEPTANCE_PATIENCE of them
 * in a row: then they are what is usual. */
#pragma once

#include <stdbool.h>

#include "base/limits.h"

enum {
    ACCEPTANCE_WINDOW = 512,
    ACCEPTANCE_TEXTS = 8,
    ACCEPTANCE_USUAL = 1024, /* tested first guesses, before which nothing is usual */
    ACCEPTANCE_ERRORS = 6,
    ACCEPTANCE_PATIENCE = 16,
    ACCEPTANCE_SHOWN = 5, /* positions in the log */
    ACCEPTANCE_BYTES = 512
};

#define ACCEPTANCE_LOW  0.6
#define ACCEPTANCE_BACK 0.8
/* The weight that a usual window has when another one has ended. */
#define ACCEPTANCE_KEEP 0.98

/* Lanes of some time. */
struct acceptance_sums {
    double tested[DRAFT_MAX], accepted[DRAFT_MAX];
    double n_lanes, n_greedy, temperature, n_prompt; /* sums over the lanes that guessed */
    double n_texts;                                  /* that began */
};

/* Zero it when the pair of models changes. */
struct acceptance_watch {
    struct acceptance_sums usual, window;
    struct acceptance_sums low; /* the last window of a collapse, for the log */
    int n_low;                  /* windows since the collapse; 0: there is none */
};

/* A round of one lane whose guesses the draft model made. */
struct acceptance_lane {
    int k, n_accepted; /* of the chain's guesses the first n_accepted stayed */
    float temperature;
    int n_prompt;
    bool is_first; /* the text had no guesses before */
};

enum acceptance_news { ACCEPTANCE_AS_BEFORE, ACCEPTANCE_COLLAPSED, ACCEPTANCE_RECOVERED };

enum acceptance_news acceptance_watch_add(struct acceptance_watch *watch,
                                          const struct acceptance_lane *lane);
/* Writes what has changed with the news, as one sentence. Returns text. */
const char *acceptance_watch_show(const struct acceptance_watch *watch, enum acceptance_news news,
                                  char text[ACCEPTANCE_BYTES]);
/* Adds the lane, and writes news of the drafter to the log. */
void acceptance_watch_note(struct acceptance_watch *watch, const char *drafter,
                           const struct acceptance_lane *lane);
