/* Guesses from n-grams that the target has said itself, one token a step (lookahead decoding, Fu et
 * al. 2024, arXiv 2402.02057). Rows of the step that cost next to nothing check a trajectory
 * (lookup/trajectory.h): tokens that are hardly ever right, whose rows are the next trajectory. The
 * n-grams that trajectories and the text leave are the guesses.
 *
 * All of it belongs to one text. It depends on the rows that steps had to spare and so on company,
 * hence this finder guesses for planned texts alone. A trajectory and an n-gram follow from rows of
 * earlier rounds, and rounds do not share coins, so a guess never depends on the coins that judge
 * it. A text that loses its place begins with an empty pool. */
#include <stdlib.h>

#include "coordinator/draft/finder.h"
#include "coordinator/draft/lookup.h"
#include "coordinator/draft/options.h"
#include "coordinator/sequence/sequence.h"
#include "lookup/trajectory.h"

enum {
    LISTS = 1024,   /* of a text, of 108 bytes each */
    GUESSES_MAX = 8 /* two n-grams: further guesses are hardly ever right */
};

/* State of the text in a slot. */
struct text {
    struct ngrams *pool; /* NULL = it has none yet, or there was no memory for it */
    bool is_off;         /* there was none */
    struct trajectory trajectory;
};

struct lookahead_finder {
    struct drafter base;
    struct text *texts; /* [n_texts] by slot */
    int n_texts;
};

static struct lookahead_finder *lookahead_finder(struct drafter *drafter)
{
    return (struct lookahead_finder *)drafter;
}

static void lookahead_close(struct drafter *drafter)
{
    struct lookahead_finder *f = lookahead_finder(drafter);
    for (int i = 0; i < f->n_texts; i++) {
        ngrams_close(f->texts[i].pool);
    }
    free(f->texts);
    free(f);
}

static int lookahead_open(struct drafter **drafter, const struct drafter_options *options,
                          const struct tokenizer *tok, struct error *err)
{
    struct lookahead_finder *f = NULL;
    int rc = 0;
    (void)tok;
    *drafter = NULL;
    TRY(mem_array(&f, 1, sizeof *f, err));
    TRY(mem_array(&f->texts, (size_t)options->n_sequences, sizeof *f->texts, err));
    f->n_texts = options->n_sequences;
    *drafter = &f->base;
    f = NULL;
out:
    if (f) lookahead_close(&f->base);
    return rc;
}

static void lookahead_forget(struct drafter *drafter, int slot)
{
    struct text *text = &lookahead_finder(drafter)->texts[slot];
    ngrams_close(text->pool);
    *text = (struct text){0};
}

/* Nothing is read: a text is learned from as it is made. The trajectory begins here. */
static int lookahead_read(struct drafter *drafter, const struct sequence *seq, int n_tokens)
{
    struct text *text = &lookahead_finder(drafter)->texts[seq->slot];
    struct error err;
    (void)n_tokens;
    if (!text->pool && !text->is_off) text->is_off = ngrams_open(&text->pool, LISTS, &err) != 0;
    if (text->pool && seq->n_tokens > 0) {
        trajectory_begin(&text->trajectory, text->pool, seq->tokens, seq->n_tokens);
    }
    return 0;
}

/* The first k guesses after the text, with what else the pool knows for their places; returns how
 * many there are. *first: the list of the first one. */
static int find_guesses(const struct drafter *drafter, const struct sequence *seq, int k,
                        struct finder_guess *guesses, const struct ngram_list **first)
{
    const struct lookahead_finder *f = (const struct lookahead_finder *)drafter;
    const struct text *text = &f->texts[seq->slot];
    const struct ngram_list *lists[GUESSES_MAX];
    int32_t tokens[GUESSES_MAX], others[SIBLINGS_MAX];
    int at[GUESSES_MAX];
    if (k > GUESSES_MAX) k = GUESSES_MAX;
    if (!text->pool || seq->n_tokens == 0) return 0;
    int n = ngrams_chain(text->pool, seq->tokens[seq->n_tokens - 1], f->base.n_vocab, tokens, lists,
                         at, k);
    for (int i = 0; i < n; i++) {
        int n_others = ngrams_others(lists[i], at[i], others, SIBLINGS_MAX);
        guesses[i] = (struct finder_guess){.n = 1, .tokens = {tokens[i]}};
        for (int s = 0; s < n_others; s++) {
            if (others[s] < f->base.n_vocab) guesses[i].tokens[guesses[i].n++] = others[s];
        }
    }
    if (n > 0) *first = lists[0];
    return n;
}

static bool lookahead_offer(const struct drafter *drafter, const struct sequence *seq,
                            struct planner_offer *offer)
{
    struct finder_guess guesses[GUESSES_MAX];
    const struct ngram_list *list;
    int n = find_guesses(drafter, seq, GUESSES_MAX, guesses, &list);
    if (n == 0) return false;
    offer->evidence = planner_evidence_of_share(ngrams_count_right(list), list->n_tested);
    offer->k_max = n;
    for (int i = 0; i < n; i++) {
        offer->siblings[i] = (uint8_t)(guesses[i].n - 1);
    }
    return true;
}

static int lookahead_preview(const struct drafter *drafter, const struct sequence *seq,
                             int32_t *tokens, int n)
{
    struct finder_guess guesses[GUESSES_MAX];
    const struct ngram_list *list;
    int n_found = find_guesses(drafter, seq, n, guesses, &list);
    for (int i = 0; i < n_found; i++) {
        tokens[i] = guesses[i].tokens[0];
    }
    return n_found;
}

static void lookahead_propose(struct drafter *drafter, struct draft_lane *lane, struct arena *arena)
{
    struct finder_guess guesses[GUESSES_MAX];
    const struct ngram_list *list;
    int n_found = find_guesses(drafter, lane->seq, lane->k, guesses, &list);
    finder_take(lane, guesses, n_found, arena);
}

static int lookahead_extra_rows(const struct drafter *drafter, const struct sequence *seq,
                                int32_t *tokens, int most)
{
    const struct lookahead_finder *f = (const struct lookahead_finder *)drafter;
    const struct text *text = &f->texts[seq->slot];
    if (!text->pool || text->trajectory.levels[0].base != seq->n_tokens) return 0;
    return trajectory_tokens(&text->trajectory, f->base.n_vocab, tokens, most);
}

/* The row after `token`, which follows row `parent`; -1: there is none. */
static int find_row(const struct draft_rows *rows, int parent, int32_t token)
{
    for (int i = parent + 1; i < rows->n; i++) {
        if (rows->parents[i] == parent && rows->before[i] == token) return i;
    }
    return -1;
}

/* Reads what was said after the first i tokens of the trajectory. Some of its rows may be those of
 * other guesses, which are as good. */
static void read_said(const struct lookahead_finder *f, const struct trajectory_level *level,
                      const struct draft_rows *rows, int32_t said[1 + TRAJECTORY_TOKENS])
{
    int row = 0;
    for (int i = 0; i <= TRAJECTORY_TOKENS; i++) {
        int32_t best;
        if (i > 0 && row >= 0) row = find_row(rows, row, level->tokens[i]);
        bool is_known = row >= 0 && target_row_best(&rows->rows[row], &best, 1) > 0;
        said[i] = is_known && best < f->base.n_vocab ? best : -1;
    }
}

static void lookahead_observe_rows(struct drafter *drafter, const struct sequence *seq,
                                   const struct draft_rows *rows)
{
    const struct lookahead_finder *f = lookahead_finder(drafter);
    struct text *text = &f->texts[seq->slot];
    const struct trajectory_level *level = &text->trajectory.levels[0];
    int32_t said[1 + TRAJECTORY_TOKENS];
    if (!text->pool || level->base == 0 || level->base >= seq->n_tokens || rows->n == 0) return;
    read_said(f, level, rows, said);
    trajectory_advance(&text->trajectory, text->pool, said, seq->tokens, seq->n_tokens);
}

const struct lookup_ops lookahead_lookup_ops = {
    .open = lookahead_open,
    .close = lookahead_close,
    .read = lookahead_read,
    .forget = lookahead_forget,
    .offer = lookahead_offer,
    .preview = lookahead_preview,
    .propose = lookahead_propose,
    .extra = {.extra_rows = lookahead_extra_rows, .observe_rows = lookahead_observe_rows},
};
