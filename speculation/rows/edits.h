/* Edits are what a request changes in p before temperature: penalties for tokens that were there
 * before, biases, bans, and no end before so many tokens. For each position this is a list of (id,
 * change), made from the tokens before it, guesses included. The target's row
 * (speculation/rows/target_row.h) and the draft's candidates get the same list, so p is exact under
 * speculation; of q it is only asked that it is known. A request without such options has no
 * `struct edits` and no lists. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "model/logits/select.h"

/* Ranges of edit_rules_check; that of the repetition penalty is in base/limits.h. Penalties are
 * OpenAI's -2 to 2, biases their -100 to 100. */
#define EDIT_PENALTY_MAX 2.0f
#define EDIT_BIAS_MAX    100.0f
enum { EDIT_BAN_TOKENS_MAX = 32 };

struct edit_bias {
    int32_t id;
    float bias; /* added to the logit; -inf bans the token */
};

/* A sequence of tokens that must not appear: its last token is banned after the others. */
struct edit_ban {
    int n;
    const int32_t *ids;
};

/* The options as the request gives them. Arrays are lent. */
struct edit_rules {
    float repetition_penalty;                  /* 1 = off */
    float presence_penalty, frequency_penalty; /* 0 = off */
    int n_biases, n_bans;
    const struct edit_bias *biases; /* those of one id add up */
    const struct edit_ban *bans;
    int min_tokens; /* of the answer, before which end_ids are banned; 0 = off */
    int n_end_ids;  /* ends of sequence and stop tokens; those past the vocabulary are left out */
    const int32_t *end_ids;
};

/* Options that change nothing. */
void edit_rules_init(struct edit_rules *rules);

/* True if any option changes p. */
bool edit_rules_change(const struct edit_rules *rules);

/* Errors: ERR_ARGUMENT names the option and the value that is out of range. */
int edit_rules_check(const struct edit_rules *rules, int n_vocab, struct error *err);

/* The change of one id. */
struct edit {
    int32_t id;
    float divisor; /* repetition penalty: of positive logits, a factor of others */
    float minus;   /* presence and frequency penalty */
    float bias;    /* -inf: banned */
};

/* Changes at one position: ids ascend and are distinct. */
struct edit_list {
    int n;
    const struct edit *edits;
};

/* The edited logit, in float, each operation rounded once and in this order:
 *   1. logit / divisor if logit > 0, otherwise logit * divisor    (Keskar et al. 2019, arXiv
 *      1909.05858, with the sign as transformers and vLLM have it)
 *   2. - minus, minus = frequency * count + presence              (OpenAI's formula)
 *   3. + bias
 * It is below +inf whatever the options are; -inf (masked) stays -inf. */
float edit_apply(const struct edit *edit, float logit);

/* True if some logit could come out higher than it went in. */
bool edit_can_raise(const struct edit *edit);

/* The change of id, or NULL. list may be NULL. Binary search. */
const struct edit *edit_find(const struct edit_list *list, int32_t id);

/* Edits the draft's candidates: items[n], scores are logits, best first (sampling_draft_best).
 * Banned ones are dropped and the rest is sorted again; returns how many are left. list may be
 * NULL. */
int edits_apply_items(const struct edit_list *list, struct select_item *items, int n);

/* Tokens of one sequence: which ones its prompt and answer hold, and how often. Owned by the engine
 * thread; its memory is bounded by the distinct tokens of the context. */
struct edits;

/* Counts the prompt: O(n_prompt + n_vocab / 64). Keeps rules; they have passed edit_rules_check.
 * n_answer is the most tokens that the answer may get; all memory is taken here.
 * Errors: ERR_NO_MEMORY. */
int edits_open(struct edits **edits, const struct edit_rules *rules, int n_vocab,
               const int32_t *prompt, int n_prompt, int n_answer, struct error *err);
/* Accepts NULL. */
void edits_close(struct edits *edits);

/* The answer has these tokens more. Ids at or past the vocabulary are a bug (assert). */
void edits_commit(struct edits *edits, const int32_t *tokens, int n);

/* The changes at the position after the committed tokens and n_guesses more. It does not change
 * *edits, so guesses need no undoing. Arrays are in arena: one pass over the ids that the options
 * and the text name. Errors: ERR_NO_MEMORY the arena is full. */
int edits_at(const struct edits *edits, const int32_t *guesses, int n_guesses, struct arena *arena,
             const struct edit_list **list, struct error *err);
