/* The result of trying the readings of a head: for each reading how often the head's guesses were
 * the target's best token, and which reading is taken. Pure arithmetic.
 *
 * The first reading is what the head's file says. Another one is taken in its place only where it
 * is better beyond chance. Both have guessed from the same starts, and at each the one is better
 * that gives the right token of the first guess the higher chance: that says more than whether the
 * guess is right, which is the same for both at most starts, because features of one layer beside
 * the right one are hardly worse. A sign test says how probable it is that a reading which is no
 * better wins so many starts. With a reading that is better at 62 % of the starts, 250 of them find
 * it in more than 4 of 5 cases; where so many leave doubts, more starts help. */
#pragma once

#include "base/least.h"
#include "model/checkpoint/head_readings.h"

enum {
    HEAD_TABLE_GUESSES = 5,
    /* Both values of norm_before_residual, and a reading of the caller's. */
    HEAD_TRIALS_MAX = 2 * (HEAD_READINGS_MAX + 1),
    HEAD_TRIAL_BYTES = 256
};

/* The chance, at most, that a reading which is no better than the first one is taken for it. */
#define HEAD_TABLE_CHANCE 0.01
/* Below this one, a better reading is worth more starts. */
#define HEAD_TABLE_DOUBT 0.2

/* A reading whose first guesses are right so often, over the best one, may be the right one. */
#define HEAD_TABLE_NEARLY 0.95
/* Agreement of the first guess below which a head is hardly worth its time, and below which it is
 * not this target's. */
#define HEAD_TABLE_WEAK  0.30
#define HEAD_TABLE_WRONG 0.05

/* One reading. */
struct head_trial {
    struct head_reading reading;
    bool keeps_normed; /* norm_before_residual, where the format has it */
    /* Counts over all starts: guesses that were right, and those before which all were right,
     * too. */
    int n_right[HEAD_TABLE_GUESSES], n_kept[HEAD_TABLE_GUESSES];
    double score; /* mean over the starts of the logarithm of the chance of the right token; where
                     the head never guesses that token, a start does not count */
    int n_better, n_worse; /* starts at which this was higher, or lower, than in the first trial */
    double chance;         /* that a reading which is no better wins so many of these */
};

struct head_table {
    int n_trials, n_starts;
    struct head_trial trials[HEAD_TRIALS_MAX];
    /* Guesses that the head makes at most; those after them are never right. 0: no such bound. */
    int n_places;
    bool is_parallel;     /* a pass makes all guesses */
    bool has_norm_choice; /* norm_before_residual was tried both ways */
    bool is_open;         /* the file does not say what trial 0 is: the best one is taken */
    int chosen;
    bool is_undecided; /* another one is better, and that may be chance */
};

enum head_verdict { HEAD_PROVEN, HEAD_WEAK, HEAD_WRONG };

/* Fills the counts of a trial from right[n_starts], of which bit s says that guess s was right, and
 * compares its scores[n_starts] with those of the first trial: logarithms of chances, or -inf. */
void head_table_count(struct head_table *table, int trial, const uint8_t *right,
                      const float *scores, const float *first_scores);

/* Chooses, by the counts of all trials. */
void head_table_choose(struct head_table *table);

/* Share of the starts; 0 where there are none. */
double head_trial_agreement(const struct head_table *table, int trial, int guess);
/* The chance that a guess stays if it is tested, because those before it have stayed. */
double head_trial_alpha(const struct head_table *table, int trial, int guess);

enum head_verdict head_table_verdict(const struct head_table *table);

/* "as written 3 16 28, norm_before_residual=false: 0.69 0.55 0.47 0.42 0.39 of 250" for a log or a
 * table. Returns text. */
const char *head_trial_show(const struct head_table *table, int trial, char text[HEAD_TRIAL_BYTES]);
