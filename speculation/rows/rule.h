/* An acceptance rule as a record: what it asks about a row, and what decides by the answer. Rows
 * are made for a rule, so the record is declared here; the table of the rules, and their functions
 * over chains and trees, are above rows (speculation/accept/rules.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct rng_address; /* base/rng.h */
struct row_wish;    /* model/logits/row.h */
struct sparse_dist; /* model/logits/sampling.h */
struct target_row;  /* speculation/rows/target_row.h */
struct target_want;
struct guess_tree; /* speculation/accept/tree.h */
struct tree_result;

struct accept_result {
    int n_accepted; /* leading guesses that stay */
    int32_t next;   /* the token after them: resampled, or the bonus token when all stay */
};

/* Acceptance: which guesses stay and which token comes next. A pure function, which reads like the
 * paper it comes from (speculation/accept/chain.c) and cannot fail. p is the target's distribution,
 * q the draft's, both after temperature and cuts.
 *
 *   rows   [n_draft + 1]  what is known of p after draft[0..i)
 *   q      [n_draft]      the distribution draft[i] was drawn from; sums to 1
 *   draft  [n_draft]      token ids, each in the support of its q
 *   at                    address of the first position's coins; position i uses at->position + i
 *
 * Coins are addressed by (position + i, round), so rounds are independent of each other and of the
 * other sequences in the batch. */
typedef struct accept_result accept_fn(const struct target_row *rows, const struct sparse_dist *q,
                                       const int32_t *draft, int n_draft,
                                       const struct rng_address *at);

/* Acceptance over a tree: a pure function that cannot fail.
 *   rows     [n + 1]  what is known of p at the root, then after each node; ids of rows[1 + i]
 *                     hold the supports of the q of i's children (multi_draft_ids)
 *   at                address of the coins of the first position; a node of depth d, the root's
 *                     children having depth 1, has those of at->position + d - 1. The index of its
 *                     coin of acceptance is its number among the nodes of its depth.
 *   scratch  [tree_scratch_count(tree, rows)] */
typedef struct tree_result tree_accept_fn(const struct guess_tree *tree,
                                          const struct target_row *rows,
                                          const struct rng_address *at, double *scratch);

/* True if a guess is accepted once all before it are, for rules that decide guess by guess: row and
 * q of its position, `at` the address of that position's coins. The rows after a guess that is
 * rejected are not looked at, so nobody needs to make them. */
typedef bool rule_keep_fn(const struct target_row *row, const struct sparse_dist *q, int32_t guess,
                          const struct rng_address *at);

/* Fills the part of a wish that belongs to the rule: called for a row that is sampled and not
 * truncated, with the temperature's normaliser in the wish already (target_row_wish). */
typedef void rule_wish_fn(const struct target_want *want, struct row_wish *wish);

/* Questions of rules: p of the tokens that the draft may have guessed, the mass of all others, and
 * one token drawn among those; the best token of each slice; the best one under the noise that
 * target and draft share. */
rule_wish_fn rule_wish_p, rule_wish_best, rule_wish_noisy_best;

struct rule {
    const char *name; /* as users write it */
    accept_fn *accept;
    rule_wish_fn *wish;
    rule_keep_fn *keep;          /* NULL: the rule looks at all guesses together */
    tree_accept_fn *accept_tree; /* the rule over a tree of guesses */
    bool is_lossless;            /* the text has exactly the target's distribution */
    bool is_greedy;              /* means temperature 0: the target's best token and nothing else */
    bool is_coupled;    /* target and draft choose under the same Gumbel noise: one-hot p and q */
    bool needs_entropy; /* of p */
    bool judges_q;      /* a guess stays by p over q, so drawn from a q near p it stays oftener */
};
