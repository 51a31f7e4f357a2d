/* Figures that are computed from the counters of a generation, for the summary and for --json. */
#pragma once

#include <stdio.h>

#include "base/limits.h"
#include "client/client.h"
#include "client/terminal.h"
#include "proto/generation_wire.h"

enum figure_part { PART_DRAFT, PART_WIRE, PART_VERIFY, PART_COLLECTIVE, PART_ACCEPT, N_PARTS };

/* part / whole; NAN when there is nothing to divide by. */
double figures_ratio(double part, double whole);

/* A figure is NAN when there is nothing to divide by. */
struct figures {
    double tokens_per_round;
    double mean_k;           /* guesses per round */
    double batch_size;       /* sequences in a step that it had a share of */
    double rows_per_step;    /* tokens fed by such a step, guesses included */
    double alpha;            /* accepted / (accepted + rejections) */
    double draft_efficiency; /* accepted / drafted */
    int n_positions;
    double acceptance_at[DRAFT_MAX]; /* accepted / tested */
    double decode_tokens_per_s;      /* of the rounds after the first */
    double total_tokens_per_s;
    double first_token_ms; /* includes the wait in the queue */
    double bytes_per_position;
    double round_us;                              /* mean of the rounds after the first */
    double part_us[N_PARTS], part_ratio[N_PARTS]; /* of such a round */
    double predicted_ratio; /* what the planner expected of such rounds over what they took */
};

struct figures figures_of(const struct generate_summary *summary);

/* Adds a summary's tokens and counters to those of sum, except for the quantiles of the overhead,
 * which cannot be added. */
void figures_add(struct generate_summary *sum, const struct generate_summary *summary);
/* The figures of such a sum over n_requests. first_token_ms and total_tokens_per_s have no meaning
 * in them, because times of requests that ran at once were added. */
struct figures figures_of_many(const struct generate_summary *sum, int n_requests);

/* Prints the block of lines for people. figures_show prints it as on the terminal, whose stream may
 * be memory that is shown later. */
void figures_print(FILE *out, const struct generate_summary *summary);
void figures_show(const struct terminal *terminal, const struct generate_summary *summary);

/* Prints three lines for people in place of the block: the text, what guesses saved, and what to
 * try next. */
void figures_show_brief(const struct terminal *terminal, const struct generate_summary *summary);

/* The planner's measurements, as a new object; NULL = no memory. */
json_t *estimates_json(const struct estimates *estimates);

/* Everything but text and ids, as a new object; NULL = no memory. */
json_t *figures_json(const struct generate_summary *summary);
