/* Guesses from the text that the request itself predicts as its answer, OpenAI's "prediction": the
 * prediction's tokens from the answer's first token on, and after a difference those that follow
 * where the two are alike again (lookup/predicted.h).
 *
 * The guesses depend on the request and on the committed tokens alone. A request may predict what
 * was made for it before, though, with the coins that would judge the guesses now, so that counts
 * as a text that was made here (LOOKUP_MADE_TEXTS): texts whose coins come from a seed of their own
 * are not guessed at. q is one-hot. */
#include <stdlib.h>

#include "coordinator/draft/finder.h"
#include "coordinator/draft/lookup.h"
#include "coordinator/draft/options.h"
#include "coordinator/job/job.h"
#include "coordinator/sequence/sequence.h"
#include "lookup/predicted.h"

/* How far the text in a slot was followed. */
struct followed {
    bool has_begun;
    int n_read; /* tokens of the answer */
    struct predicted_place place;
};

struct predicted_finder {
    struct drafter base;
    struct followed *texts; /* by slot */
};

static struct predicted_finder *predicted_finder(struct drafter *drafter)
{
    return (struct predicted_finder *)drafter;
}

static void predicted_finder_close(struct drafter *drafter)
{
    free(predicted_finder(drafter)->texts);
    free(drafter);
}

static int predicted_finder_open(struct drafter **drafter, const struct drafter_options *options,
                                 const struct tokenizer *tok, struct error *err)
{
    struct predicted_finder *f = NULL;
    int rc = 0;
    (void)tok;
    *drafter = NULL;
    TRY(mem_array(&f, 1, sizeof *f, err));
    TRY(mem_array(&f->texts, (size_t)options->n_sequences, sizeof *f->texts, err));
    *drafter = &f->base;
    f = NULL;
out:
    if (f) predicted_finder_close(&f->base);
    return rc;
}

static void predicted_forget(struct drafter *drafter, int slot)
{
    predicted_finder(drafter)->texts[slot] = (struct followed){0};
}

static int predicted_finder_read(struct drafter *drafter, const struct sequence *seq, int n_tokens)
{
    const struct predicted *predicted = seq->job->predicted;
    struct followed *text = &predicted_finder(drafter)->texts[seq->slot];
    int n_answer = seq->n_tokens - seq->n_prompt;
    if (!predicted) return 0;
    if (!text->has_begun) *text = (struct followed){true, 0, predicted_begin()};
    for (; text->n_read < n_answer && n_tokens > 0; n_tokens--) {
        text->n_read++;
        predicted_follow(predicted, &text->place, seq->tokens + seq->n_prompt, text->n_read);
    }
    return n_answer - text->n_read;
}

/* Guesses up to one that does not exist for the target. */
static int predicted_preview(const struct drafter *drafter, const struct sequence *seq,
                             int32_t *tokens, int n)
{
    const struct predicted_finder *f = (const struct predicted_finder *)drafter;
    const struct followed *text = &f->texts[seq->slot];
    int n_found = 0;
    if (text->has_begun && text->n_read == seq->n_tokens - seq->n_prompt) {
        n_found = predicted_copy(seq->job->predicted, &text->place, tokens, n);
    }
    return finder_count_known(f->base.n_vocab, tokens, n_found);
}

static bool predicted_offer(const struct drafter *drafter, const struct sequence *seq,
                            struct planner_offer *offer)
{
    const struct predicted_finder *f = (const struct predicted_finder *)drafter;
    const struct predicted_place *place = &f->texts[seq->slot].place;
    int32_t tokens[DRAFT_MAX];
    offer->k_max = predicted_preview(drafter, seq, tokens, DRAFT_MAX);
    offer->evidence = place->lost ? 0 : planner_evidence_of_match(place->run);
    return offer->k_max > 0;
}

static void predicted_propose(struct drafter *drafter, struct draft_lane *lane, struct arena *arena)
{
    struct finder_guess guesses[DRAFT_MAX];
    int32_t tokens[DRAFT_MAX];
    int n_found = predicted_preview(drafter, lane->seq, tokens, lane->k);
    for (int k = 0; k < n_found; k++) {
        guesses[k] = (struct finder_guess){.n = 1, .tokens = {tokens[k]}};
    }
    finder_take(lane, guesses, n_found, arena);
}

static bool predicted_is_brought(const struct sequence *seq)
{
    return seq->job->predicted != NULL;
}

const struct lookup_ops prediction_lookup_ops = {
    .open = predicted_finder_open,
    .close = predicted_finder_close,
    .read = predicted_finder_read,
    .forget = predicted_forget,
    .offer = predicted_offer,
    .preview = predicted_preview,
    .propose = predicted_propose,
    .extra = {.is_brought = predicted_is_brought},
};
