/* Guesses from other texts, by how often they went on in which way: a store of the texts that this
 * coordinator has finished (SuffixDecoding, Oliaro et al. 2024, arXiv 2411.04975) and a file of
 * texts (REST, He et al. 2024, arXiv 2311.08252). A guess is the most frequent token behind the
 * longest match, and q is one-hot.
 *
 * What a store knows depends on company, so these finders guess for planned texts alone. Texts of
 * different API keys never see each other, unless the operator allows it: then a client could learn
 * from the speed of an answer that somebody else has had a text like it. */
#include <stdlib.h>

#include "coordinator/draft/drafter.h"
#include "coordinator/draft/internal.h"
#include "coordinator/draft/tenants.h"
#include "coordinator/sequence.h"
#include "lookup/datastore.h"
#include "lookup/store.h"

enum {
    /* Tokens of the prompt before an answer that is added without its prompt, which is known. */
    PROMPT_END = STORE_MATCH_MAX,
    ADDED_MOST = 16384 /* tokens of a text */
};

/* What is known of the sequence in a slot. */
struct slot {
    uint64_t tenant; /* its number; 0 = not known yet */
    int n_looked;    /* tokens of its text when it was looked for; 0 = not since its place */
    struct store_guesses found;
};

struct counted_finder {
    struct drafter base;
    struct store *store; /* one of the two */
    struct datastore *datastore;
    struct tenants tenants;
    struct slot *slots; /* [n_slots] */
    int n_slots, n_vocab;
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

static int open_base(struct counted_finder **finder, const struct drafter_ops *ops,
                     const struct drafter_options *options, struct error *err)
{
    struct counted_finder *f = NULL;
    int rc = 0;
    TRY(mem_array(&f, 1, sizeof *f, err));
    f->base = (struct drafter){.ops = ops};
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
    TRY(open_base(&f, &store_finder_ops, options, err));
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
    TRY(open_base(&f, &datastore_finder_ops, options, err));
    TRY(datastore_open(&f->datastore, options->name, err));
    TRY(check_tokenizer(f->datastore, options->name, tok, err));
    *drafter = &f->base;
    f = NULL;
out:
    if (f) counted_close(&f->base);
    return rc;
}

static void counted_set_vocabulary(struct drafter *drafter, int n_vocab)
{
    struct counted_finder *f = counted_finder(drafter);
    f->n_vocab = n_vocab;
    for (int i = 0; i < f->n_slots; i++) {
        f->slots[i].n_looked = 0;
    }
}

static void counted_forget(struct drafter *drafter, int slot)
{
    counted_finder(drafter)->slots[slot] = (struct slot){0};
}

/* There is nothing to read; who the text belongs to is looked up once. */
static int counted_study(struct drafter *drafter, const struct sequence *seq, int n_tokens)
{
    struct counted_finder *f = counted_finder(drafter);
    (void)n_tokens;
    struct slot *slot = &f->slots[seq->slot];
    if (!slot->tenant) slot->tenant = tenants_number(&f->tenants, seq);
    return 0;
}

/* Guesses up to one that does not exist for the target. A round asks twice, when it is planned and
 * when it guesses; the second answer is the first one. */
static const struct store_guesses *find(const struct counted_finder *f, const struct sequence *seq)
{
    struct slot *slot = &f->slots[seq->slot];
    struct store_guesses *found = &slot->found;
    int n = seq->n_tokens < STORE_MATCH_MAX ? seq->n_tokens : STORE_MATCH_MAX, n_known = 0;
    const int32_t *end = seq->tokens + seq->n_tokens - n;
    if (slot->n_looked == seq->n_tokens) return found;
    slot->n_looked = seq->n_tokens;
    found->n = 0;
    if (f->datastore) {
        datastore_find(f->datastore, end, n, 1, DRAFT_MAX, found);
    } else if (slot->tenant) {
        store_find(f->store, slot->tenant, end, n, 1, DRAFT_MAX, found);
    }
    while (n_known < found->n && found->guesses[n_known].token >= 0 &&
           found->guesses[n_known].token < f->n_vocab) {
        n_known++;
    }
    found->n = n_known;
    return found;
}

static bool counted_look(const struct drafter *drafter, const struct sequence *seq,
                         struct planner_offer *offer)
{
    const struct store_guesses *found = find((const struct counted_finder *)drafter, seq);
    if (found->n == 0) return false;
    offer->evidence =
        planner_evidence_of_counts(found->match, found->guesses[0].count, found->guesses[0].total);
    offer->k_max = found->n;
    return true;
}

static int counted_foresee(const struct drafter *drafter, const struct sequence *seq,
                           int32_t *tokens, int n)
{
    const struct store_guesses *found = find((const struct counted_finder *)drafter, seq);
    if (n > found->n) n = found->n;
    for (int i = 0; i < n; i++) {
        tokens[i] = found->guesses[i].token;
    }
    return n;
}

static void counted_propose(struct drafter *drafter, struct draft_lane *lanes, int n,
                            struct arena *arena, struct draft_cost *cost)
{
    (void)cost; /* there are no passes */
    for (int i = 0; i < n; i++) {
        const struct store_guesses *found = find(counted_finder(drafter), lanes[i].seq);
        struct finder_guess guesses[DRAFT_MAX];
        int k = found->n < lanes[i].k ? found->n : lanes[i].k;
        for (int g = 0; g < k; g++) {
            guesses[g] = (struct finder_guess){.n = 1, .tokens = {found->guesses[g].token}};
        }
        finder_take(&lanes[i], guesses, k, arena);
    }
}

/* Of the further texts of a job only the answers are new. Of a long text its end is added, because
 * all streams wait meanwhile: about 0.2 us a token. */
static void store_finder_finished(struct drafter *drafter, const struct sequence *seq)
{
    struct counted_finder *f = counted_finder(drafter);
    int begin = seq->index > 0 && seq->n_prompt > PROMPT_END ? seq->n_prompt - PROMPT_END : 0;
    if (seq->n_tokens - begin > ADDED_MOST) begin = seq->n_tokens - ADDED_MOST;
    uint64_t tenant = tenants_number(&f->tenants, seq);
    if (tenant) store_add(f->store, tenant, seq->tokens + begin, seq->n_tokens - begin);
}

const struct drafter_ops store_finder_ops = {
    .name = "store",
    .counted = SIGNALS_STORE,
    .open = store_finder_open,
    .close = counted_close,
    .set_vocabulary = counted_set_vocabulary,
    .propose = counted_propose,
    .forget = counted_forget,
    .study = counted_study,
    .look = counted_look,
    .foresee = counted_foresee,
    .finished = store_finder_finished,
    .keeps_texts = true,
};

const struct drafter_ops datastore_finder_ops = {
    .name = "datastore",
    .counted = SIGNALS_DATASTORE,
    .open = datastore_finder_open,
    .close = counted_close,
    .set_vocabulary = counted_set_vocabulary,
    .propose = counted_propose,
    .forget = counted_forget,
    .study = counted_study,
    .look = counted_look,
    .foresee = counted_foresee,
};
