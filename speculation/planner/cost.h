/* Functions that the planner's choices share: up-to-date times, the cost of reading, paying for
 * probes. The planner's own (speculation/planner/planner.h). */
#pragma once

#include "speculation/planner/planner.h"

enum {
    /* Tokens, at most, over which the time that the draft needs to catch up is spread. They are the
     * tokens still to come, but after this many the text may become a different one. */
    PLANNER_HORIZON = 256
};

/* Tokens of a lane that its first pass reads anyway: the guesses of the last round that the draft
 * has not read, as far as they stayed, and the token after them. A draft that makes each guess in a
 * pass of its own has read all but the last one; one that makes them all in one pass, or reads what
 * stayed again, has read none. */
static inline int planner_caught_up(const struct planner_model *model)
{
    return 1 + (model->is_parallel || model->rereads ? DRAFT_MAX : 1);
}

/* The pass that makes a lane's guess number `position`. */
static inline int planner_pass_of(const struct planner_model *model, int position)
{
    return model->is_parallel ? 0 : position;
}

/* Brings times and chances up to date, where that is due. */
void planner_refresh(struct planner *p);

/* The time to read what a model has missed, in addition to what every pass reads anyway. */
double planner_catch_up_us(const struct planner *p, int model, int n_missed);

/* A pass of a model with so many rows, which may be an expected number. */
double planner_pass_us(const struct planner_model *model, double rows);

/* The passes that make k guesses for each of n lanes. */
double planner_guesses_us(const struct planner_model *model, int n_lanes, int k);

/* Times far beyond what was measured are not known, so rows grow by half at most. */
int planner_near(int measured);

/* True if a step does little more than decode. Of prompts it teaches what many rows cost, but no
 * more than roughly, because nobody asks about most of their rows. */
bool planner_is_decoding(int n_rows, int n_prompt);

/* True if the credit pays for a probe; the price is then taken from it. */
bool planner_pay(struct planner *p, double price_us);
