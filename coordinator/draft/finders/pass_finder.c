/* Guesses of the target itself, at look-ahead tokens that are put after a text (PaSS, Monea et al.
 * 2023, arXiv 2311.13581). Its workers hold the trained embeddings; nothing is computed here. A
 * round's step has chains of them after the text and after guesses, and their rows say what comes
 * after the token that the round draws where the text ends. The next round guesses by that: among
 * the best tokens of each row it draws with the request's temperature and cuts, which is the exact
 * q, picks by the shared noise, or takes the best. The paper puts the tokens after the last guess
 * alone, and has nothing where an earlier guess is rejected.
 *
 * All of it belongs to one text. Rows of one round become guesses of the next, and rounds do not
 * share coins, so a guess never depends on the coins that judge it. A text that loses its place has
 * no guesses in its first round after that. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/least.h"
#include "coordinator/draft/finder.h"
#include "coordinator/draft/lookup.h"
#include "coordinator/draft/options.h"
#include "coordinator/sequence/sequence.h"
#include "model/look_ahead.h"
#include "speculation/accept/multi_draft.h"

enum {
    CANDIDATES = 16, /* of a guess */
    TESTS_MOST = 64, /* that a count remembers: of more, half are forgotten */
    SHARES = 14      /* of a probability, that evidence tells apart */
};

/* How often something came out right. */
struct tally {
    float tested, right;
};

/* The best tokens for a place of the text, best first. */
struct place {
    int n;
    int32_t ids[CANDIDATES];
    float logprobs[CANDIDATES]; /* at temperature 1 */
};

/* State of the text in a slot. */
struct text {
    int base;                       /* tokens that the guesses follow */
    int n;                          /* guesses; 0: none */
    int evidence;                   /* for the first one */
    struct place places[DRAFT_MAX]; /* [n] */
    int32_t guesses[DRAFT_MAX];     /* [n] the best tokens, or those that were proposed */
    struct tally chain;             /* guesses of all drafters' chains that stayed */
    struct tally added;             /* rounds with guesses, and those that were right in them */
};

struct pass_finder {
    struct drafter base;
    struct look_ahead look_ahead;
    struct tally added; /* as of a text, of all */
    struct text *texts; /* [n_texts] by slot */
    int n_texts;
};

static struct pass_finder *pass_finder(struct drafter *drafter)
{
    return (struct pass_finder *)drafter;
}

static const struct text *text_of(const struct drafter *drafter, const struct sequence *seq)
{
    return &((const struct pass_finder *)drafter)->texts[seq->slot];
}

static void pass_close(struct drafter *drafter)
{
    struct pass_finder *f = pass_finder(drafter);
    look_ahead_close(&f->look_ahead);
    free(f->texts);
    free(f);
}

static int pass_open(struct drafter **drafter, const struct drafter_options *options,
                     const struct tokenizer *tok, struct error *err)
{
    struct pass_finder *f = NULL;
    int rc = 0;
    (void)tok;
    *drafter = NULL;
    TRY(mem_array(&f, 1, sizeof *f, err));
    TRY(look_ahead_open(&f->look_ahead, options->name, err));
    TRY(mem_array(&f->texts, (size_t)options->n_sequences, sizeof *f->texts, err));
    f->n_texts = options->n_sequences;
    *drafter = &f->base;
    f = NULL;
out:
    if (f) pass_close(&f->base);
    return rc;
}

static void pass_forget(struct drafter *drafter, int slot)
{
    pass_finder(drafter)->texts[slot] = (struct text){0};
}

static void pass_forget_offers(struct drafter *drafter)
{
    struct pass_finder *f = pass_finder(drafter);
    for (int i = 0; i < f->n_texts; i++) {
        f->texts[i].n = 0;
    }
}

static int pass_check_look_ahead(const struct drafter *drafter, const struct look_ahead_key *held,
                                 struct error *err)
{
    const struct look_ahead *own = &((const struct pass_finder *)drafter)->look_ahead;
    const char *name = own->folder;
    if (held->digest == own->digest && held->n == own->n) return 0;
    if (held->digest == 0) {
        return error_set(err, ERR_UNSUPPORTED,
                         "--head %s has look-ahead embeddings, but the target's workers have none: "
                         "start each of them with --head %s",
                         name, name);
    }
    return error_set(err, ERR_UNSUPPORTED,
                     "--head %s has the look-ahead embeddings %016" PRIx64
                     ", but those of the target's workers are %016" PRIx64
                     ": start both with the same --head",
                     name, own->digest, held->digest);
}

/* There is nothing to read: what a text says comes with its rows. */
static int pass_read(struct drafter *drafter, const struct sequence *seq, int n_tokens)
{
    (void)drafter;
    (void)seq;
    (void)n_tokens;
    return 0;
}

/* The guesses after the text as it is now; returns how many there are. */
static int guesses_of(const struct text *text, const struct sequence *seq)
{
    return text->base == seq->n_tokens ? text->n : 0;
}

static bool pass_offer(const struct drafter *drafter, const struct sequence *seq,
                       struct planner_offer *offer)
{
    const struct text *text = text_of(drafter, seq);
    int n = least(guesses_of(text, seq), DRAFT_MAX);
    if (n == 0) return false;
    offer->evidence = text->evidence;
    offer->k_max = n;
    for (int i = 0; i < n; i++) {
        offer->siblings[i] = (uint8_t)least(text->places[i].n - 1, SIBLINGS_MAX);
    }
    return true;
}

/* The guess for place i, where none is drawn, with n_wanted - 1 siblings. */
static struct finder_guess pick(const struct place *place, const struct sequence *seq, int i,
                                int n_wanted)
{
    const struct rng_address at = {.seed = seq->seed, .position = (uint32_t)(seq->n_tokens + i)};
    struct finder_guess guess = {0};
    if (seq->rule->is_coupled && seq->sampling.temperature > 0) {
        guess.n = multi_draft_coupled(place->ids, place->logprobs, place->n,
                                      seq->sampling.temperature, &at, n_wanted, guess.tokens);
        return guess;
    }
    guess.n = least(place->n, n_wanted);
    memcpy(guess.tokens, place->ids, (size_t)guess.n * sizeof *guess.tokens);
    return guess;
}

static int pass_preview(const struct drafter *drafter, const struct sequence *seq, int32_t *tokens,
                        int n)
{
    const struct text *text = text_of(drafter, seq);
    if (finder_draws(seq)) return 0;
    n = least(n, guesses_of(text, seq));
    for (int i = 0; i < n; i++) {
        tokens[i] = pick(&text->places[i], seq, i, 1).tokens[0];
    }
    return n;
}

/* Draws the lane's next guess. Errors: ERR_NO_MEMORY. */
static int draw(const struct place *place, const struct draft_lane *lane, struct arena *arena,
                struct finder_guess *guess, struct error *err)
{
    const struct sequence *seq = lane->seq;
    const struct rng_address at = {seq->seed, (uint32_t)(seq->n_tokens + lane->draft->n_chain),
                                   (uint32_t)seq->n_tokens};
    struct select_item items[CANDIDATES];
    *guess = (struct finder_guess){.q = {.ids = arena_take(arena, CANDIDATES, sizeof *guess->q.ids),
                                         .p = arena_take(arena, CANDIDATES, sizeof *guess->q.p)}};
    if (!guess->q.ids || !guess->q.p) return error_set(err, ERR_NO_MEMORY, "no room for a guess");
    for (int i = 0; i < place->n; i++) {
        items[i] = (struct select_item){.id = place->ids[i], .score = (double)place->logprobs[i]};
    }
    sampling_draft_best(items, place->n, &seq->sampling, &guess->q);
    finder_draw(&at, 1 + draft_lane_siblings(lane, lane->draft->n_chain), guess);
    return 0;
}

static void pass_propose(struct drafter *drafter, struct draft_lane *lane, struct arena *arena)
{
    const struct sequence *seq = lane->seq;
    struct text *text = &pass_finder(drafter)->texts[seq->slot];
    int n = least(guesses_of(text, seq), lane->k);
    finder_begin(lane);
    for (int i = 0; i < n; i++) {
        struct finder_guess guess;
        if (!finder_draws(seq)) {
            guess = pick(&text->places[i], seq, i, 1 + draft_lane_siblings(lane, i));
        } else if (draw(&text->places[i], lane, arena, &guess, &lane->err)) {
            return;
        }
        text->guesses[i] = guess.tokens[0];
        if (!finder_add(lane, &guess, arena)) return;
    }
}

/* ---- look-ahead tokens ---- */

static void count(struct tally *tally, float tested, float right)
{
    tally->tested += tested;
    tally->right += right;
    if (tally->tested < TESTS_MOST) return;
    tally->tested /= 2;
    tally->right /= 2;
}

/* The mean of a tally that begins with one test, which was right in this share. */
static float mean_of(const struct tally *tally, float begin)
{
    return (tally->right + begin) / (tally->tested + 1);
}

/* The text ends at place i < k where i guesses stay and the next one does not, and at k where all
 * stay. */
static void pass_look_ahead(const struct drafter *drafter, const struct sequence *seq, int k,
                            struct look_ahead_wish *wish)
{
    const struct pass_finder *f = (const struct pass_finder *)drafter;
    const struct text *text = &f->texts[seq->slot];
    float chances[DRAFT_MAX + 1], alpha = mean_of(&text->chain, 0.5f), stays = 1;
    float added = mean_of(&text->added, mean_of(&f->added, 0.5f));
    for (int i = 0; i <= k; i++) {
        chances[i] = i < k ? stays * (1 - alpha) : stays;
        stays *= alpha;
        int at = i;
        for (; at > 0 && chances[wish->places[at - 1]] < chances[i]; at--) {
            wish->places[at] = wish->places[at - 1];
        }
        wish->places[at] = (uint8_t)i;
    }
    wish->length = f->look_ahead.n;
    wish->n_top = CANDIDATES;
    wish->worth = added * chances[wish->places[0]];
}

/* A row's best tokens. */
static void take_best(struct place *place, const struct target_row *row, int n_vocab)
{
    place->n = 0;
    for (int i = 0; !row->failure && i < row->n_top && place->n < CANDIDATES; i++) {
        if (row->top_ids[i] >= n_vocab || !isfinite(row->top_logprobs[i])) continue;
        place->ids[place->n] = row->top_ids[i];
        place->logprobs[place->n++] = row->top_logprobs[i];
    }
}

/* Counts how many of the guesses that there were for this round the text has gone on with, also
 * where another drafter guessed in it. */
static void count_right(struct pass_finder *f, struct text *text, const struct sequence *seq)
{
    int n = 0, n_known = seq->n_tokens - text->base;
    if (text->n == 0 || n_known <= 0) return;
    while (n < text->n && n < n_known && text->guesses[n] == seq->tokens[text->base + n]) {
        n++;
    }
    count(&text->added, 1, (float)n);
    count(&f->added, 1, (float)n);
}

static void pass_observe_look_ahead(struct drafter *drafter, const struct sequence *seq,
                                    const struct look_ahead_said *said)
{
    struct pass_finder *f = pass_finder(drafter);
    struct text *text = &f->texts[seq->slot];
    count_right(f, text, seq);
    bool is_rejected = said->n_accepted < said->k;
    count(&text->chain, (float)(said->n_accepted + (is_rejected ? 1 : 0)), (float)said->n_accepted);
    text->base = seq->n_tokens;
    text->n = 0;
    for (int i = 0; i < said->n; i++) {
        struct place *place = &text->places[i];
        take_best(place, &said->rows[i], drafter->n_vocab);
        if (place->n == 0) break;
        text->guesses[text->n++] = place->ids[0];
    }
    if (text->n == 0) return;
    float chance = expf(text->places[0].logprobs[0]);
    text->evidence = planner_evidence_of_share((int)(SHARES * fminf(chance, 1)), SHARES);
}

const struct lookup_ops pass_lookup_ops = {
    .open = pass_open,
    .close = pass_close,
    .read = pass_read,
    .forget = pass_forget,
    .offer = pass_offer,
    .preview = pass_preview,
    .propose = pass_propose,
    .extra = {.forget_offers = pass_forget_offers,
              .check_look_ahead = pass_check_look_ahead,
              .look_ahead = pass_look_ahead,
              .observe_look_ahead = pass_observe_look_ahead},
};
