/* The acceptance rules (docs/design.md section 6): one table, a row per rule. The enum, the
 * declarations of the rules' functions, the names that users write, the errors and the help all
 * come from it, so a new rule is one row here and its function in a file of its own or in
 * speculation/accept.c. */
#pragma once

#include "speculation/target_row.h"
#include "speculation/tree.h"

struct accept_result {
    int n_accepted; /* leading guesses that stay */
    int32_t next;   /* the token after them: resampled, or the bonus token when all stay */
};

/* Acceptance: which guesses stay and which token comes next. A pure function, which reads like the
 * paper it comes from (speculation/accept.c) and cannot fail. p is the target's distribution, q the
 * draft's, both after temperature and cuts.
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

/* Whether a guess stays if all before it have, for rules that decide guess by guess: row and q of
 * its position, `at` the address of that position's coins. The rows behind a guess that does not
 * stay are not looked at, so nobody needs to make them. */
typedef bool rule_keep_fn(const struct target_row *row, const struct sparse_dist *q, int32_t guess,
                          const struct rng_address *at);

/* Fills the part of a wish that belongs to the rule: called for a row that is sampled and not
 * truncated, with the temperature's normaliser in the wish already (target_row_wish). */
typedef void rule_wish_fn(const struct target_want *want, struct row_wish *wish);

/* RULE(constant, name, function, what it asks of the workers, properties). A property that is not
 * named is false, or NULL. */
#define ACCEPT_RULES(RULE)                                                                \
    RULE(REJECTION, "rejection", accept_rejection, rule_wish_p, .keep = keep_rejection,   \
         .accept_tree = tree_accept_rejection, .is_lossless = true, .judges_q = true)     \
    RULE(GREEDY, "greedy", accept_match, rule_wish_best, .keep = keep_match,              \
         .accept_tree = tree_accept_match, .is_lossless = true, .is_greedy = true)        \
    RULE(COUPLED, "coupled", accept_match, rule_wish_noisy_best, .keep = keep_match,      \
         .accept_tree = tree_accept_match, .is_lossless = true, .is_coupled = true)       \
    RULE(BLOCK, "block", accept_block, rule_wish_p, .accept_tree = tree_accept_traversal, \
         .is_lossless = true, .judges_q = true)                                           \
    RULE(NAIVE, "naive", accept_naive, rule_wish_p, .keep = keep_naive,                   \
         .accept_tree = tree_accept_naive, .is_lossless = true)                           \
    RULE(TYPICAL, "typical", accept_typical, rule_wish_p, .keep = keep_typical,           \
         .accept_tree = tree_accept_typical, .needs_entropy = true)

#define ACCEPT_RULE_CONSTANT(constant, ...) RULE_##constant,
enum accept_rule { ACCEPT_RULES(ACCEPT_RULE_CONSTANT) RULE_COUNT };
#undef ACCEPT_RULE_CONSTANT

#define ACCEPT_RULE_FUNCTIONS(constant, name, accept, wish, ...) \
    accept_fn accept;                                            \
    rule_wish_fn wish;
ACCEPT_RULES(ACCEPT_RULE_FUNCTIONS)
#undef ACCEPT_RULE_FUNCTIONS
/* For siblings and for paths drawn with replacement; no rule that users name asks for those. */
tree_accept_fn tree_accept_k_sequential, tree_accept_paths;
rule_keep_fn keep_rejection, keep_match, keep_naive, keep_typical;
tree_accept_fn tree_accept_rejection, tree_accept_match, tree_accept_traversal, tree_accept_naive,
    tree_accept_typical;

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

/* [RULE_COUNT] by enum accept_rule; immutable. */
extern const struct rule accept_rules[];
/* [RULE_COUNT] their names in the same order. */
extern const char *const accept_rule_names[];

/* The rule of a request that names none: greedy at temperature 0, coupled with a seed (so that the
 * seed fixes the text), otherwise rejection. */
const struct rule *rule_default(float temperature, bool has_seed);

/* Errors: ERR_ARGUMENT there is no such rule; the text lists them. */
int rule_parse(const char *name, const struct rule **rule, struct error *err);

/* "rejection, greedy, ... LAST_WORD typical" into text[size]; returns text. */
const char *rule_list(char *text, size_t size, const char *last_word);
