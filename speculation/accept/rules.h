/* The acceptance rules (docs/design.md section 6): one table, a row per rule. The enum, the
 * declarations of the rules' functions, the names that users write, the errors and the help all
 * come from it, so a new rule is one row here and a file of its own with its functions. */
#pragma once

#include "speculation/accept/tree.h"
#include "speculation/rows/rule.h"
#include "speculation/rows/target_row.h"

/* RULE(constant, name, function, function over a tree, what it asks of the workers, properties). A
 * property that is not named is false, or NULL. */
#define ACCEPT_RULES(RULE)                                                                      \
    RULE(REJECTION, "rejection", accept_rejection, tree_accept_rejection, rule_wish_p,          \
         .keep = keep_rejection, .is_lossless = true, .judges_q = true)                         \
    RULE(GREEDY, "greedy", accept_match, tree_accept_match, rule_wish_best, .keep = keep_match, \
         .is_lossless = true, .is_greedy = true)                                                \
    RULE(COUPLED, "coupled", accept_match, tree_accept_match, rule_wish_noisy_best,             \
         .keep = keep_match, .is_lossless = true, .is_coupled = true)                           \
    RULE(BLOCK, "block", accept_block, tree_accept_traversal, rule_wish_p, .is_lossless = true, \
         .judges_q = true)                                                                      \
    RULE(NAIVE, "naive", accept_naive, tree_accept_naive, rule_wish_p, .keep = keep_naive,      \
         .is_lossless = true)                                                                   \
    RULE(TYPICAL, "typical", accept_typical, tree_accept_typical, rule_wish_p,                  \
         .keep = keep_typical, .needs_entropy = true)

#define ACCEPT_RULE_CONSTANT(constant, ...) RULE_##constant,
enum accept_rule { ACCEPT_RULES(ACCEPT_RULE_CONSTANT) RULE_COUNT };
#undef ACCEPT_RULE_CONSTANT

#define ACCEPT_RULE_FUNCTIONS(constant, name, accept, accept_over_tree, ...) \
    accept_fn accept;                                                        \
    tree_accept_fn accept_over_tree;
ACCEPT_RULES(ACCEPT_RULE_FUNCTIONS)
#undef ACCEPT_RULE_FUNCTIONS
rule_keep_fn keep_rejection, keep_match, keep_naive, keep_typical;

/* Rules that judge a tree of guesses in the place of the rule's own function, where the rule judges
 * q and the tree is one that it can judge: TREE_RULE(constant, name, function, which trees). So a
 * new one is one row here and its function in a file of its own. */
#define TREE_RULES(TREE_RULE)                                                              \
    TREE_RULE(K_SEQUENTIAL, "k-sequential", tree_accept_k_sequential, tree_is_independent) \
    TREE_RULE(MULTI_PATH, "multi-path", tree_accept_paths, tree_is_chains)

#define TREE_RULE_CONSTANT(constant, ...) TREE_RULE_##constant,
enum tree_rule_id { TREE_RULE_AUTO, TREE_RULES(TREE_RULE_CONSTANT) TREE_RULE_COUNT };
#undef TREE_RULE_CONSTANT

#define TREE_RULE_FUNCTIONS(constant, name, accept, ...) tree_accept_fn accept;
TREE_RULES(TREE_RULE_FUNCTIONS)
#undef TREE_RULE_FUNCTIONS

struct tree_rule {
    const char *name;       /* as users write it */
    tree_accept_fn *accept; /* of auto NULL: the rule's own */
    bool (*fits)(const struct guess_tree *tree);
};

/* [TREE_RULE_COUNT] by enum tree_rule_id; immutable. */
extern const struct tree_rule tree_rules[];
/* [TREE_RULE_COUNT] their names in the same order. */
extern const char *const tree_rule_names[];

/* Errors: ERR_ARGUMENT there is no such rule; the text lists them. */
int tree_rule_parse(const char *name, const struct tree_rule **rule, struct error *err);

/* "auto, k-sequential LAST_WORD multi-path" into text[size]; returns text. */
const char *tree_rule_list(char *text, size_t size, const char *last_word);

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

/* Accepts a tree of guesses by a rule, or by the tree rule where the rule judges q and the tree is
 * one of those that the tree rule is for; that does not depend on tokens. A tree without siblings
 * is accepted by the rule's function over chains, which decides as the one over trees. rows, at: as
 * in tree_accept_fn. Errors: ERR_NO_MEMORY the arena is full. */
int rule_accept(const struct rule *rule, const struct tree_rule *tree_rule,
                const struct guess_tree *tree, const struct target_row *rows,
                const struct rng_address *at, struct arena *arena, struct tree_result *result,
                struct error *err);
