/* Guesses from other texts, by how often they went on in which way: a store of the texts that this
 * coordinator has finished (SuffixDecoding, Oliaro et al. 2024, arXiv 2411.04975) and a file of
 * texts (REST, He et al. 2024, arXiv 2311.08252). Guesses are made among the tokens that came most
 * often after the longest match, each further one after those that were guessed before it
 * (coordinator/draft/finders/counted_guess.c).
 *
 * What a store knows depends on company, so these finders guess for planned texts alone. Texts of
 * different API keys never see each other, unless the operator allows it: then a client could learn
 * from the speed of an answer that somebody else has had a text like it. */
#include <stdlib.h>

#include "base/log.h"
#include "coordinator/draft/finders/counted_guess.h"
#include "coordinator/draft/finders/tenants.h"
#include "coordinator/draft/lookup.h"
#include "coordinator/draft/options.h"
#include "coordinator/sequence/sequence.h"
#include "lookup/datastore.h"
#include "lookup/store.h"

enum {
    /* Tokens of the prompt before an answer that is added without its prompt, which is known. */
    PROMPT_END = STORE_MATCH_MAX,
    ADDED_MOST = 16384 /* tokens of a text */
};

/* State of the sequence in a slot. */
struct slot {
    uint64_t tenant;            /* its number; 0 = not known yet */
    int n_looked;               /* tokens of its text when `offer` was made; 0 = it is to be made */
    struct planner_offer offer; /* without `finder`; k_max = 0: none */
};

struct counted_finder {
    struct drafter base;
    struct store *store; /* one of the two */
    struct datastore *datastore;
    struct tenants tenants;
    struct slot *slots; /* [n_slots] */
    int n_slots;
    bool has_noted_loss; /* of the datastore */
};

static struct counted_finder *counted_finder(struct drafter *drafter)
{
    return (struct counted_finder *)drafter;
}

static void counted_close(struct drafter *drafter)
{
    struct counted_finder *f = counted_finder(drafter);
    store_close(f->store);
    datastore_close(f->datastore);
    tenants_free(&f->tenants);
    free(f->slots);
    free(f);
}

static int open_base(struct counted_finder **finder, const struct drafter_options *options,
                     struct error *err)
{
    struct counted_finder *f = NULL;
    int rc = 0;
    TRY(mem_array(&f, 1, sizeof *f, err));
    f->tenants.is_shared = options->is_shared;
    TRY(mem_array(&f->slots, (size_t)options->n_sequences, sizeof *f->slots, err));
    f->n_slots = options->n_sequences;
    *finder = f;
    f = NULL;
out:
    if (f) counted_close(&f->base);
    return rc;
}

static int store_finder_open(struct drafter **drafter, const struct drafter_options *options,
                             const struct tokenizer *tok, struct error *err)
{
    struct counted_finder *f = NULL;
    int rc = 0;
    (void)tok;
    *drafter = NULL;
    TRY(open_base(&f, options, err));
    TRY(store_open(&f->store, options->store_tokens, err));
    *drafter = &f->base;
    f = NULL;
out:
    if (f) counted_close(&f->base);
    return rc;
}

static int check_tokenizer(const struct datastore *store, const char *path,
                           const struct tokenizer *tok, struct error *err)
{
    if (datastore_tokenizer(store).fingerprint == tokenizer_fingerprint(tok)) return 0;
    return error_set(err, ERR_ARGUMENT,
                     "--lookup datastore=%.200s: the file was built with another tokenizer; build "
                     "it with that of the served model",
                     path);
}

static int datastore_finder_open(struct drafter **drafter, const struct drafter_options *options,
                                 const struct tokenizer *tok, struct error *err)
{
    struct counted_finder *f = NULL;
    int rc = 0;
    *drafter = NULL;
    TRY(open_base(&f, options, err));
    TRY(datastore_open(&f->datastore, options->name, err));
    TRY(check_tokenizer(f->datastore, options->name, tok, err));
    *drafter = &f->base;
    f = NULL;
out:
    if (f) counted_close(&f->base);
    return rc;
}

static void forget_offers(struct counted_finder *f)
{
    for (int i = 0; i < f->n_slots; i++) {
        f->slots[i].n_looked = 0;
    }
}

static void counted_forget_offers(struct drafter *drafter)
{
    forget_offers(counted_finder(drafter));
}

static void counted_forget(struct drafter *drafter, int slot)
{
    counted_finder(drafter)->slots[slot] = (struct slot){0};
}

/* Texts go on without the file. */
static void note_loss(struct counted_finder *f)
{
    if (!f->datastore || f->has_noted_loss || !datastore_is_lost(f->datastore)) return;
    f->has_noted_loss = true;
    forget_offers(f);
    log_line(
        LOG_LEVEL_WARN, "datastore_lost",
        "path=%s text=\"the file became shorter while it was in use, so nothing is looked up in "
        "it any more; replace such files by renaming a new one over them, and start the "
        "coordinator again\"",
        datastore_path(f->datastore));
}

/* There is nothing to read; who the text belongs to is looked up once. */
static int counted_read(struct drafter *drafter, const struct sequence *seq, int n_tokens)
{
    struct counted_finder *f = counted_finder(drafter);
    (void)n_tokens;
    struct slot *slot = &f->slots[seq->slot];
    note_loss(f);
    if (!slot->tenant) slot->tenant = tenants_number(&f->tenants, seq);
    return 0;
}

/* A place in one of the two. */
struct place {
    struct store_walk store;
    struct datastore_walk file;
};

static bool place_begin(const struct counted_finder *f, const struct sequence *seq,
                        struct place *place)
{
    uint64_t tenant = f->slots[seq->slot].tenant;
    int n = seq->n_tokens < STORE_MATCH_MAX ? seq->n_tokens : STORE_MATCH_MAX;
    const int32_t *end = seq->tokens + seq->n_tokens - n;
    if (f->datastore) return datastore_walk_begin(f->datastore, end, n, 1, &place->file);
    return tenant && store_walk_begin(f->store, tenant, end, n, 1, &place->store);
}

/* Keeps those of the `most` most frequent tokens after the place that exist for the target. */
static void place_next(const struct counted_finder *f, const struct place *place, int most,
                       struct store_next *next)
{
    int n = 0;
    if (f->datastore) {
        datastore_walk_next(&place->file, most, next);
    } else {
        store_walk_next(&place->store, most, next);
    }
    for (int i = 0; i < next->n; i++) {
        if (next->tokens[i] < 0 || next->tokens[i] >= f->base.n_vocab) continue;
        next->tokens[n] = next->tokens[i];
        next->counts[n++] = next->counts[i];
    }
    next->n = n;
}

static bool place_step(const struct counted_finder *f, struct place *place, int32_t token)
{
    return f->datastore ? datastore_walk_step(&place->file, token)
                        : store_walk_step(&place->store, token);
}

/* Offers the guesses along the most frequent path, although the guesses of a text may be drawn: no
 * coin may have a say in the plan. So the evidence is how often the most frequent token came, for
 * all rules alike. It tells the planner more than the acceptance that could be expected from the
 * counts, which is 1 for a guess that is drawn from them; the planner learns how often guesses of
 * equal evidence stay, and how a text differs. */
static struct planner_offer make_offer(const struct counted_finder *f, const struct sequence *seq)
{
    struct planner_offer offer = {0};
    struct store_next next;
    struct place place;
    bool goes_on = place_begin(f, seq, &place);
    for (; goes_on && offer.k_max < DRAFT_MAX; offer.k_max++) {
        place_next(f, &place, 1 + SIBLINGS_MAX, &next);
        if (next.n == 0) break;
        int match = f->datastore ? place.file.match : place.store.match;
        if (offer.k_max == 0) {
            offer.evidence = planner_evidence_of_counts(match, next.counts[0], next.total);
        }
        offer.siblings[offer.k_max] = (uint8_t)(next.n - 1);
        goes_on = place_step(f, &place, next.tokens[0]);
    }
    return offer;
}

/* A text that waits is asked about again and again. */
static bool counted_offer(const struct drafter *drafter, const struct sequence *seq,
                          struct planner_offer *offer)
{
    const struct counted_finder *f = (const struct counted_finder *)drafter;
    struct slot *slot = &f->slots[seq->slot];
    int finder = offer->finder;
    if (slot->n_looked != seq->n_tokens) slot->offer = make_offer(f, seq);
    slot->n_looked = seq->n_tokens;
    *offer = slot->offer;
    offer->finder = finder;
    return offer->k_max > 0;
}

static void counted_propose(struct drafter *drafter, struct draft_lane *lane, struct arena *arena)
{
    const struct counted_finder *f = counted_finder(drafter);
    struct store_next next;
    struct finder_guess guess;
    struct place place;
    finder_begin(lane);
    bool goes_on = place_begin(f, lane->seq, &place);
    while (goes_on && lane->draft->n_chain < lane->k) {
        place_next(f, &place, STORE_NEXT_MAX, &next);
        if (next.n == 0) return;
        if (!finder_draws(lane->seq)) {
            counted_pick(&next, lane->seq, lane->draft->n_chain, 1 + lane->siblings_max, &guess);
        } else if (counted_draw(&next, lane, arena, &guess, &lane->err)) {
            return;
        }
        goes_on = finder_add(lane, &guess, arena) && place_step(f, &place, guess.tokens[0]);
    }
}

static int counted_preview(const struct drafter *drafter, const struct sequence *seq,
                           int32_t *tokens, int n)
{
    const struct counted_finder *f = (const struct counted_finder *)drafter;
    struct store_next next;
    struct finder_guess guess;
    struct place place;
    bool goes_on = !finder_draws(seq) && place_begin(f, seq, &place);
    int i = 0;
    while (goes_on && i < n) {
        place_next(f, &place, STORE_NEXT_MAX, &next);
        if (next.n == 0) break;
        counted_pick(&next, seq, i, 1, &guess);
        tokens[i++] = guess.tokens[0];
        goes_on = place_step(f, &place, guess.tokens[0]);
    }
    return i;
}

/* Adds a text to the store: only the answers of the further texts of a job, which are new, and only
 * the end of a long text, because all streams wait meanwhile: about 0.4 us a token. */
static void store_finder_observe_text(struct drafter *drafter, const struct sequence *seq)
{
    struct counted_finder *f = counted_finder(drafter);
    int begin = seq->index > 0 && seq->n_prompt > PROMPT_END ? seq->n_prompt - PROMPT_END : 0;
    if (seq->n_tokens - begin > ADDED_MOST) begin = seq->n_tokens - ADDED_MOST;
    uint64_t tenant = tenants_number(&f->tenants, seq);
    if (tenant) store_add(f->store, tenant, seq->tokens + begin, seq->n_tokens - begin);
    forget_offers(f);
}

const struct lookup_ops store_lookup_ops = {
    .open = store_finder_open,
    .close = counted_close,
    .read = counted_read,
    .forget = counted_forget,
    .offer = counted_offer,
    .preview = counted_preview,
    .propose = counted_propose,
    .extra = {.forget_offers = counted_forget_offers, .observe_text = store_finder_observe_text},
};

const struct lookup_ops datastore_lookup_ops = {
    .open = datastore_finder_open,
    .close = counted_close,
    .read = counted_read,
    .forget = counted_forget,
    .offer = counted_offer,
    .preview = counted_preview,
    .propose = counted_propose,
    .extra = {.forget_offers = counted_forget_offers},
};
