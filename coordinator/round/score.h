/* Scores: the log-probability under the target of tokens of a prompt, of a request for scores or of
 * one whose prompt is echoed. A lane that is scored asks for the rows of the tokens that it feeds;
 * row i scores token i + 1. */
#pragma once

#include "coordinator/schedule/scheduler.h"
#include "proto/generation_wire.h"

/* The text of one token, in arena; "" where there is no room. */
const char *score_token_text(const struct tokenizer *tok, int32_t id, struct arena *arena);

/* Wants of the lane's plan->n_scored rows. Their wishes lie in arena. Errors: ERR_NO_MEMORY. */
int score_list_wants(const struct lane_plan *plan, int lane, struct lane_want *wants,
                     struct arena *arena, struct error *err);

/* Checks what came for the wants, and sends the scores of their tokens with the features (n = 0:
 * none); before the first of them the token that has none. Errors: ERR_INTERNAL the workers'
 * numbers make no sense, ERR_NO_MEMORY, those of the reply. */
int score_send(const struct lane_plan *plan, const struct lane_want *wants,
               const struct slice_row *const *slices, const struct target_description *target,
               const struct score_features *features, const struct tokenizer *tok,
               struct arena *arena, struct error *err);

/* The log-probabilities of ids[n], each with those of its row's best; rows[i] wanted logprobs and
 * says what ids[i] was drawn from. In arena; NULL: there is no room. */
const struct token_logprob *score_list_logprobs(const struct target_row *rows, const int32_t *ids,
                                                int n, const struct tokenizer *tok,
                                                struct arena *arena);

/* Sends tokens begin .. end of the prompt without scores. Errors: as above. */
int score_send_plain(struct sequence *seq, int begin, int end, const struct tokenizer *tok,
                     struct arena *arena, struct error *err);

/* All that can be scored has been sent; of a text of one token, the token itself. Errors: those of
 * the reply. */
int score_finish(struct sequence *seq, const struct tokenizer *tok, struct error *err);
