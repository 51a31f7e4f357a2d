/* Guesses from the target's best tokens after the same token (Token Recycling, Luo et al. 2024,
 * arXiv 2408.08696): every row of a step says what is likely after a token, also the rows of
 * guesses that were rejected. The guesses follow the newest best token after each token, the other
 * successors of a token are siblings, and every q is one-hot.
 *
 * The lists are those of all texts of an API key, so what they say depends on company, and this
 * finder guesses for planned texts alone. Lists of different keys never see each other, unless the
 * operator allows it (coordinator/draft/finders/tenants.h): then a client could learn from the
 * speed of an answer what the target has said to others.
 *
 * A round adds to the lists once its tokens are committed, and rounds do not share coins, so a
 * guess never depends on the coins that judge it. For a request that may be a second one with the
 * same coins the scheduler ignores this finder. */
#include <stdlib.h>

#include "coordinator/draft/finder.h"
#include "coordinator/draft/finders/tenants.h"
#include "coordinator/draft/lookup.h"
#include "coordinator/draft/options.h"
#include "coordinator/sequence/sequence.h"
#include "lookup/recycled.h"

/* One for each token of a usual vocabulary, of 56 bytes each. */
enum { LISTS = 1 << 17 };

/* State of the sequence in a slot. */
struct slot {
    uint64_t tenant; /* its number; 0 = not known yet */
    int n_looked;    /* tokens of its text when it was looked for; 0 = not since its place */
    int n;
    struct finder_guess guesses[DRAFT_MAX]; /* [n] */
};

struct recycled_finder {
    struct drafter base;
    struct recycled *recycled;
    struct tenants tenants;
    struct slot *slots; /* [n_slots] */
    int n_slots;
};

static struct recycled_finder *recycled_finder(struct drafter *drafter)
{
    return (struct recycled_finder *)drafter;
}

static void finder_close(struct drafter *drafter)
{
    struct recycled_finder *f = recycled_finder(drafter);
    recycled_close(f->recycled);
    tenants_free(&f->tenants);
    free(f->slots);
    free(f);
}

static int finder_open(struct drafter **drafter, const struct drafter_options *options,
                       const struct tokenizer *tok, struct error *err)
{
    struct recycled_finder *f = NULL;
    int rc = 0;
    (void)tok;
    *drafter = NULL;
    TRY(mem_array(&f, 1, sizeof *f, err));
    f->tenants.is_shared = options->is_shared;
    TRY(recycled_open(&f->recycled, LISTS, err));
    TRY(mem_array(&f->slots, (size_t)options->n_sequences, sizeof *f->slots, err));
    f->n_slots = options->n_sequences;
    *drafter = &f->base;
    f = NULL;
out:
    if (f) finder_close(&f->base);
    return rc;
}

static void finder_forget_offers(struct drafter *drafter)
{
    struct recycled_finder *f = recycled_finder(drafter);
    for (int i = 0; i < f->n_slots; i++) {
        f->slots[i].n_looked = 0;
    }
}

static void finder_forget(struct drafter *drafter, int slot)
{
    recycled_finder(drafter)->slots[slot] = (struct slot){0};
}

static struct slot *slot_of(struct recycled_finder *f, const struct sequence *seq)
{
    struct slot *slot = &f->slots[seq->slot];
    if (!slot->tenant) slot->tenant = tenants_number(&f->tenants, seq);
    return slot;
}

/* There is nothing to read; who the text belongs to is looked up once. */
static int finder_read(struct drafter *drafter, const struct sequence *seq, int n_tokens)
{
    (void)n_tokens;
    slot_of(recycled_finder(drafter), seq);
    return 0;
}

/* The first tokens of a list that exist for the target. */
static struct finder_guess guess_of(const struct recycled_list *list, int n_vocab)
{
    struct finder_guess guess = {0};
    for (int i = 0; i < list->n && guess.n <= SIBLINGS_MAX; i++) {
        if (list->successors[i] < n_vocab) guess.tokens[guess.n++] = list->successors[i];
    }
    return guess;
}

/* Follows the lists from the last token on; returns its list, or NULL where there is no guess. */
static const struct recycled_list *find(const struct recycled_finder *f, const struct sequence *seq,
                                        struct slot *slot)
{
    const struct recycled_list *lists[DRAFT_MAX];
    slot->n_looked = seq->n_tokens;
    slot->n = 0;
    if (!slot->tenant) return NULL;
    slot->n = recycled_chain(f->recycled, slot->tenant, seq->tokens[seq->n_tokens - 1],
                             f->base.n_vocab, lists, DRAFT_MAX);
    for (int i = 0; i < slot->n; i++) {
        slot->guesses[i] = guess_of(lists[i], f->base.n_vocab);
    }
    return slot->n ? lists[0] : NULL;
}

static bool finder_offer(const struct drafter *drafter, const struct sequence *seq,
                         struct planner_offer *offer)
{
    const struct recycled_finder *f = (const struct recycled_finder *)drafter;
    struct slot *slot = &f->slots[seq->slot];
    const struct recycled_list *list = find(f, seq, slot);
    if (!list) return false;
    offer->evidence = planner_evidence_of_share(recycled_count_right(list), list->n_tested);
    offer->k_max = slot->n;
    for (int i = 0; i < slot->n; i++) {
        offer->siblings[i] = (uint8_t)(slot->guesses[i].n - 1);
    }
    return true;
}

static int finder_preview(const struct drafter *drafter, const struct sequence *seq,
                          int32_t *tokens, int n)
{
    const struct recycled_finder *f = (const struct recycled_finder *)drafter;
    struct slot *slot = &f->slots[seq->slot];
    if (slot->n_looked != seq->n_tokens) find(f, seq, slot);
    if (n > slot->n) n = slot->n;
    for (int i = 0; i < n; i++) {
        tokens[i] = slot->guesses[i].tokens[0];
    }
    return n;
}

static void finder_propose(struct drafter *drafter, struct draft_lane *lane, struct arena *arena)
{
    struct recycled_finder *f = recycled_finder(drafter);
    struct slot *slot = slot_of(f, lane->seq);
    if (slot->n_looked != lane->seq->n_tokens) find(f, lane->seq, slot);
    finder_take(lane, slot->guesses, slot->n < lane->k ? slot->n : lane->k, arena);
}

/* The token that the row says, or else its best one. */
static int32_t said(const struct target_row *row, int32_t best)
{
    return row->n == 1 && row->outside_mass == 0 ? row->ids[0] : best;
}

static void finder_observe_rows(struct drafter *drafter, const struct sequence *seq,
                                const struct draft_rows *rows)
{
    struct recycled_finder *f = recycled_finder(drafter);
    uint64_t tenant = slot_of(f, seq)->tenant;
    int32_t best[RECYCLED_SUCCESSORS];
    for (int i = 0; tenant && i < rows->n; i++) {
        int n_best = target_row_best(&rows->rows[i], best, RECYCLED_SUCCESSORS);
        if (n_best == 0) continue;
        int32_t came = said(&rows->rows[i], best[0]);
        recycled_add(f->recycled, tenant, rows->before[i], came, best, n_best);
    }
}

const struct lookup_ops recycled_lookup_ops = {
    .open = finder_open,
    .close = finder_close,
    .read = finder_read,
    .forget = finder_forget,
    .offer = finder_offer,
    .preview = finder_preview,
    .propose = finder_propose,
    .extra = {.forget_offers = finder_forget_offers, .observe_rows = finder_observe_rows},
};
