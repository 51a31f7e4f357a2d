/* Support for tests of guesses after siblings: drafts with a growth of a small model, and a check
 * that each of their guesses is the one of a draft which was given its path as its text. */
#pragma once

#include <string.h>

#include "coordinator/draft/model_draft.h"
#include "speculation/accept/multi_draft.h"
#include "tests/support/drafter_world.h"
#include "tests/support/guess_tables.h"

static const struct growth *const no_growth = NULL;

static const struct {
    enum accept_rule rule;
    float temperature;
    bool is_edited;
} ways[] = {{RULE_REJECTION, 1, false}, {RULE_BLOCK, 1.3F, false}, {RULE_GREEDY, 0, false},
            {RULE_COUPLED, 1, false},   {RULE_REJECTION, 1, true}, {RULE_GREEDY, 0, true},
            {RULE_COUPLED, 1, true}};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* Penalties and biases that move guesses, a ban that spans two likely tokens, and an end that may
 * not come before the middle of the paths: all depend on the tokens before. */
enum { EDITED_PROMPT = 2 };
static const struct edit_bias growth_biases[] = {{262, -1}, {263, 0.5F}};
static const int32_t growth_ban[] = {262, 263}, growth_end = 15;
static const struct edit_ban growth_bans[] = {{2, growth_ban}};
static const struct edit_rules growth_rules = {.repetition_penalty = 1.4F,
                                               .presence_penalty = 0.6F,
                                               .frequency_penalty = 0.8F,
                                               .n_biases = 2,
                                               .biases = growth_biases,
                                               .n_bans = 1,
                                               .bans = growth_bans,
                                               .min_tokens = 12,
                                               .n_end_ids = 1,
                                               .end_ids = &growth_end};

/* Edits of the text as far as it is committed; the prompt is the first tokens of it. */
static inline void edit_text(const struct bench *b, struct sequence *seq)
{
    struct error err;
    edits_close(seq->edits);
    CHECK_OK(edits_open(&seq->edits, &growth_rules, tokenizer_vocab_size(b->tok), seq->tokens,
                        EDITED_PROMPT, CAPACITY, &err));
    edits_commit(seq->edits, seq->tokens + EDITED_PROMPT, seq->n_tokens - EDITED_PROMPT);
}

static inline void setup_way(struct bench *b, int way)
{
    setup(b, ways[way].rule, ways[way].temperature);
    if (ways[way].is_edited) edit_text(b, b->seq);
}

/* siblings: the growth follows q, and these are the chain's of the plan; NULL: it does not. */
static inline void propose_many(struct bench *b, struct sequence *seq, int k,
                                const struct growth *growth, const uint8_t *siblings,
                                const struct end_ids *ends, struct draft_view *draft,
                                struct draft_cost *cost)
{
    struct guess_tree tree, plan;
    if (seq->edits) edit_text(b, seq); /* the test may have set back what is committed */
    guess_tree_begin(&tree, seq->n_tokens);
    growth_plan(k, siblings, growth, &plan);
    struct draft_lane lane = {.seq = seq,
                              .k = k,
                              .ends = ends,
                              .draft = &tree,
                              .siblings_max = SIBLINGS_MAX,
                              .plan = growth ? &plan : NULL,
                              .follows_q = siblings != NULL};
    drafter_propose(b->drafter, &lane, 1, &b->arena, cost);
    *draft = view_draft(&tree);
    ck_assert_msg(lane.err.code == 0, "%s", lane.err.text);
}

static inline void propose(struct bench *b, struct sequence *seq, const struct growth *growth,
                           const struct end_ids *ends, struct draft_view *draft,
                           struct draft_cost *cost)
{
    propose_many(b, seq, K, growth, NULL, ends, draft, cost);
}

static inline void check_equal_q(const struct sparse_dist *a, const struct sparse_dist *b)
{
    ck_assert_int_eq(a->n, b->n);
    ck_assert_int_eq(memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids), 0);
    ck_assert_int_eq(memcmp(a->p, b->p, (size_t)a->n * sizeof *a->p), 0);
}

static inline void check_equal_chain(const struct draft_view *a, const struct draft_view *b)
{
    ck_assert(a->n == b->n && a->is_over == b->is_over);
    for (int i = 0; i < a->n; i++) {
        ck_assert_int_eq(a->tokens[i], b->tokens[i]);
        ck_assert_int_eq(a->n_siblings[i], b->n_siblings[i]);
        for (int s = 0; s < a->n_siblings[i]; s++) {
            ck_assert_int_eq(a->siblings[i][s], b->siblings[i][s]);
        }
        check_equal_q(&a->q[i], &b->q[i]);
    }
}

/* The tokens of the path that ends with a parent; returns how many. */
static inline int write_path(const struct draft_view *draft, int parent, int32_t *tokens)
{
    if (parent >= 0) {
        int n = write_path(draft, draft->grown.parents[parent], tokens);
        tokens[n] = draft->grown_tokens[parent];
        return n + 1;
    }
    int guess = growth_guess(parent);
    memcpy(tokens, draft->tokens, (size_t)guess * sizeof *tokens);
    tokens[guess] = draft->siblings[guess][growth_sibling(parent)];
    return guess + 1;
}

/* A draft whose text ends with the path makes the same q, and, but for coins, the same guesses. */
static inline void check_group(struct bench *b, const struct draft_view *draft, int first, int coin)
{
    struct draft_view fresh;
    struct draft_cost cost;
    int32_t text[CAPACITY], gone[1 + SIBLINGS_MAX];
    const struct sequence *seq = b->seq;
    int parent = draft->grown.parents[first], n = seq->n_tokens, n_gone = 0;
    memcpy(text, seq->tokens, (size_t)n * sizeof *text);
    n += write_path(draft, parent, text + n);
    struct sequence *other = place_text(b, 1, text, n);
    other->rule = seq->rule;
    other->sampling = seq->sampling;
    other->seed = seq->seed;
    if (seq->edits) edit_text(b, other);
    propose(b, other, no_growth, &no_ends, &fresh, &cost);
    check_equal_q(&draft->grown_q[first], &fresh.q[0]);
    bool is_drawn = !seq->rule->is_greedy && !seq->rule->is_coupled;
    for (int i = first; i < draft->grown.n && draft->grown.parents[i] == parent; i++, n_gone++) {
        const struct rng_address at = {seq->seed, (uint32_t)n, (uint32_t)draft->base};
        double u = rng_uniform(&at, RNG_DRAFT, (uint32_t)(coin + n_gone));
        int32_t found = n_gone ? fresh.siblings[0][n_gone - 1] : fresh.tokens[0];
        if (is_drawn) found = multi_draft_draw(&fresh.q[0], gone, n_gone, u);
        ck_assert_int_eq(draft->grown_tokens[i], found);
        gone[n_gone] = draft->grown_tokens[i];
    }
    take_away(b, other);
}

/* Blocks that are free or the sequence's. */
static inline int count_blocks(const struct bench *b)
{
    const struct model_draft *d = (const struct model_draft *)b->drafter;
    return d->pool.n_free + d->tables[b->seq->slot].n;
}

/* The draft's pool without blocks. */
struct taken_blocks {
    int n;
    int32_t blocks[SLOTS * CAPACITY / 16];
};

static inline struct block_pool *draft_pool(struct bench *b)
{
    return &((struct model_draft *)b->drafter)->pool;
}

static inline void take_all_blocks(struct bench *b, struct taken_blocks *taken)
{
    taken->n = 0;
    while (block_pool_room(draft_pool(b)) > 0) {
        taken->blocks[taken->n++] = block_pool_take(draft_pool(b), -1);
    }
}

static inline void give_back_blocks(struct bench *b, struct taken_blocks *taken)
{
    while (taken->n > 0) {
        block_pool_give_back(draft_pool(b), taken->blocks[--taken->n]);
    }
}

enum { N_LANES = 3 };

/* Lanes of all kinds in one pass: each is what it is alone. growths and siblings: of each, as in
 * propose_many. n_read: tokens that the draft has read afterwards, when it was alone. */
static inline void check_company(struct bench *b, const struct growth *const *growths,
                                 const uint8_t *const *siblings, struct draft_view *alone,
                                 int *n_read)
{
    struct guess_tree together[N_LANES], plans[N_LANES];
    struct draft_lane lanes[N_LANES];
    struct sequence *seqs[N_LANES];
    struct draft_cost cost;
    for (int i = 0; i < N_LANES; i++) {
        seqs[i] = place_text(b, 2 + i, prompt, N_PROMPT - i);
        follow(seqs[i], i == 2 ? RULE_GREEDY : RULE_REJECTION, i == 2 ? 0 : 1);
        seqs[i]->seed = 5;
        propose_many(b, seqs[i], K, growths[i], siblings[i], &no_ends, &alone[i], &cost);
        n_read[i] = seqs[i]->n_draft_kv[0] - seqs[i]->n_tokens;
        seqs[i]->n_draft_kv[0] = 0;
        guess_tree_begin(&together[i], seqs[i]->n_tokens);
        growth_plan(K, siblings[i], growths[i], &plans[i]);
        lanes[i] = (struct draft_lane){.seq = seqs[i],
                                       .k = K,
                                       .ends = &no_ends,
                                       .draft = &together[i],
                                       .siblings_max = SIBLINGS_MAX,
                                       .plan = growths[i] ? &plans[i] : NULL,
                                       .follows_q = siblings[i] != NULL};
    }
    drafter_propose(b->drafter, lanes, N_LANES, &b->arena, &cost);
    for (int i = 0; i < N_LANES; i++) {
        const struct draft_view view = view_draft(&together[i]);
        size_t n = (size_t)alone[i].grown.n;
        ck_assert_int_eq(lanes[i].err.code, 0);
        check_equal_chain(&alone[i], &view);
        ck_assert_int_eq(view.grown.n, alone[i].grown.n);
        ck_assert_int_eq(memcmp(view.grown.parents, alone[i].grown.parents, n), 0);
        ck_assert_int_eq(memcmp(view.grown_tokens, alone[i].grown_tokens, n * sizeof(int32_t)), 0);
        take_away(b, seqs[i]);
    }
}

static uint32_t dice_state = 1;

static inline int dice(int n)
{
    dice_state = dice_state * 1664525u + 1013904223u;
    return (int)((dice_state >> 8) % (uint32_t)n);
}

/* Up to three further guesses and siblings of theirs after a parent, as long as there is room. */
static inline void add_after(struct growth *growth, int parent, int *room)
{
    for (int n = dice(4); n > 0 && *room > 0; n--, --*room) {
        growth->parents[growth->n++] = (int8_t)parent;
    }
}

/* Any growth after siblings of a chain of k guesses that a lane has room for. */
static inline struct growth any_growth(int k)
{
    struct growth growth = {0};
    int room = TREE_PATHS_MAX - 1 - k;
    for (int place = 1, first = 0; place < DRAFT_MAX && room > 1; place++) {
        int end = growth.n;
        for (int s = 0; place <= k && s < SIBLINGS_MAX && room > 1; s++) {
            if (dice(3) > 0) continue;
            room--; /* the sibling */
            add_after(&growth, growth_after(place - 1, s), &room);
        }
        for (int i = first; i < end && room > 0; i++) {
            add_after(&growth, i, &room);
        }
        first = end;
    }
    return growth;
}
