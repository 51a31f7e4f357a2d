/* Guesses from the text itself: the longest end of it that occurred in it before, and the tokens
 * that came after that (SAM decoding, Hu et al. 2024, arXiv 2411.10666; prompt lookup without a
 * length to choose). Texts that copy or edit what is in the prompt, and texts that loop, are
 * guessed well.
 *
 * The index is made of committed tokens alone, in their order, so what is found for a text depends
 * on that text and on nothing else: not on company, and not on whether the text lost its place and
 * was indexed again. q is one-hot, because the method has no distribution. Siblings are other
 * tokens that came after the same end of the text, or after a shorter one: where the guess was
 * wrong, the first of them was right in 7 of 100 places of this project's documents, and in 15 of
 * its sources. */
#include <stdlib.h>

#include "coordinator/draft/finder.h"
#include "coordinator/draft/lookup.h"
#include "coordinator/draft/options.h"
#include "coordinator/sequence/sequence.h"
#include "lookup/suffix.h"

/* Guesses of a lane that may have siblings: further ones are rarely made where they are not sure,
 * and looking for siblings takes time. */
enum { SIBLING_PLACES = 4 };

struct text {
    struct suffix *suffix; /* NULL = nothing was read */
    int n_read;
    bool is_off; /* there was no memory for it */
};

struct session_finder {
    struct drafter base;
    struct text *texts; /* [n_texts] by slot */
    int n_texts;
};

static struct session_finder *session_finder(struct drafter *drafter)
{
    return (struct session_finder *)drafter;
}

static void session_close(struct drafter *drafter)
{
    struct session_finder *f = session_finder(drafter);
    for (int i = 0; i < f->n_texts; i++) {
        suffix_close(f->texts[i].suffix);
    }
    free(f->texts);
    free(f);
}

static int session_open(struct drafter **drafter, const struct drafter_options *options,
                        const struct tokenizer *tok, struct error *err)
{
    struct session_finder *f = NULL;
    int rc = 0;
    (void)tok;
    *drafter = NULL;
    TRY(mem_array(&f, 1, sizeof *f, err));
    TRY(mem_array(&f->texts, (size_t)options->n_sequences, sizeof *f->texts, err));
    f->n_texts = options->n_sequences;
    *drafter = &f->base;
    f = NULL;
out:
    if (f) session_close(&f->base);
    return rc;
}

static void session_forget(struct drafter *drafter, int slot)
{
    struct text *text = &session_finder(drafter)->texts[slot];
    suffix_close(text->suffix);
    *text = (struct text){0};
}

static int session_read(struct drafter *drafter, const struct sequence *seq, int n_tokens)
{
    struct text *text = &session_finder(drafter)->texts[seq->slot];
    struct error err;
    if (text->is_off) return 0;
    text->is_off = !text->suffix && suffix_open(&text->suffix, &err);
    for (; !text->is_off && text->n_read < seq->n_tokens && n_tokens > 0; n_tokens--) {
        text->is_off = suffix_add(text->suffix, seq->tokens[text->n_read], &err) != 0;
        text->n_read++;
    }
    return text->is_off ? 0 : seq->n_tokens - text->n_read;
}

/* Siblings of the guess, up to n: the other tokens that came after the place, as far as they exist
 * for the target. */
static void add_siblings(const struct session_finder *f, const struct suffix *suffix,
                         const struct suffix_place *place, int n, struct finder_guess *guess)
{
    int32_t others[SIBLINGS_MAX];
    int n_others = suffix_others(suffix, place, guess->tokens[0], others, n);
    for (int i = 0; i < n_others; i++) {
        if (others[i] < f->base.n_vocab) guess->tokens[guess->n++] = others[i];
    }
}

/* Guesses up to one that does not exist for the target. */
static int session_preview(const struct drafter *drafter, const struct sequence *seq,
                           int32_t *tokens, int n)
{
    const struct session_finder *f = (const struct session_finder *)drafter;
    const struct text *text = &f->texts[seq->slot];
    int n_found = 0;
    if (!text->is_off && text->suffix && text->n_read == seq->n_tokens) {
        struct suffix_place place = suffix_end(text->suffix);
        n_found = suffix_copy(text->suffix, &place, tokens, n);
    }
    return finder_count_known(f->base.n_vocab, tokens, n_found);
}

/* As session_preview, with siblings. */
static int find_guesses(const struct drafter *drafter, const struct sequence *seq, int k,
                        int siblings_max, struct finder_guess *guesses)
{
    const struct session_finder *f = (const struct session_finder *)drafter;
    const struct suffix *suffix = f->texts[seq->slot].suffix;
    int32_t tokens[DRAFT_MAX];
    int n = session_preview(drafter, seq, tokens, k);
    struct suffix_place place = n > 0 ? suffix_end(suffix) : (struct suffix_place){0};
    for (int i = 0; i < n; i++) {
        guesses[i] = (struct finder_guess){.n = 1, .tokens = {tokens[i]}};
        if (siblings_max == 0 || i >= SIBLING_PLACES) continue;
        add_siblings(f, suffix, &place, siblings_max, &guesses[i]);
        suffix_follow(suffix, &place, tokens[i]);
    }
    return n;
}

static bool session_offer(const struct drafter *drafter, const struct sequence *seq,
                          struct planner_offer *offer)
{
    const struct session_finder *f = (const struct session_finder *)drafter;
    struct finder_guess guesses[SIBLING_PLACES];
    int n_wanted = seq->siblings_max > 0 ? SIBLING_PLACES : 1;
    int n = find_guesses(drafter, seq, n_wanted, seq->siblings_max, guesses);
    if (n == 0) return false;
    offer->evidence = planner_evidence_of_match(suffix_end(f->texts[seq->slot].suffix).length);
    offer->k_max = DRAFT_MAX;
    for (int i = 0; i < n; i++) {
        offer->siblings[i] = (uint8_t)(guesses[i].n - 1);
    }
    return true;
}

/* Follows the tokens that are not committed through the automaton, which has the committed ones. */
static int session_continue_from(const struct drafter *drafter, const struct sequence *seq,
                                 int n_tokens, int32_t *tokens, int n, int *evidence)
{
    const struct session_finder *f = (const struct session_finder *)drafter;
    const struct text *text = &f->texts[seq->slot];
    const int32_t *tail = seq->tokens + seq->n_tokens;
    int n_tail = n_tokens - seq->n_tokens;
    if (text->is_off || !text->suffix || text->n_read != seq->n_tokens) return 0;
    struct suffix_place place = suffix_end(text->suffix);
    for (int i = 0; i < n_tail; i++) {
        suffix_follow(text->suffix, &place, tail[i]);
    }
    n = suffix_copy_after(text->suffix, &place, tail, n_tail, tokens, n);
    *evidence = planner_evidence_of_match(place.length);
    return finder_count_known(f->base.n_vocab, tokens, n);
}

static void session_propose(struct drafter *drafter, struct draft_lane *lane, struct arena *arena)
{
    struct finder_guess guesses[DRAFT_MAX];
    int n = find_guesses(drafter, lane->seq, lane->k, lane->siblings_max, guesses);
    finder_take(lane, guesses, n, arena);
}

const struct lookup_ops session_lookup_ops = {
    .open = session_open,
    .close = session_close,
    .read = session_read,
    .forget = session_forget,
    .offer = session_offer,
    .preview = session_preview,
    .propose = session_propose,
    .extra = {.continue_from = session_continue_from},
};
