/* The table of rules. */
#include "speculation/accept/rules.h"

#include <stdio.h>
#include <string.h>

enum { LIST_BYTES = 256 };

#define ACCEPT_RULE_ROW(constant, word, function, over_tree, wish_function, ...) \
    [RULE_##constant] = {.name = (word),                                         \
                         .accept = (function),                                   \
                         .accept_tree = (over_tree),                             \
                         .wish = (wish_function),                                \
                         __VA_ARGS__},
const struct rule accept_rules[RULE_COUNT] = {ACCEPT_RULES(ACCEPT_RULE_ROW)};

#define ACCEPT_RULE_NAME(constant, word, ...) [RULE_##constant] = (word),
const char *const accept_rule_names[RULE_COUNT] = {ACCEPT_RULES(ACCEPT_RULE_NAME)};

const struct rule *rule_default(float temperature, bool has_seed)
{
    if (temperature == 0) return &accept_rules[RULE_GREEDY];
    return &accept_rules[has_seed ? RULE_COUPLED : RULE_REJECTION];
}

#define TREE_RULE_ROW(constant, word, function, which) \
    [TREE_RULE_##constant] = {.name = (word), .accept = (function), .fits = (which)},
const struct tree_rule tree_rules[TREE_RULE_COUNT] = {[TREE_RULE_AUTO] = {.name = "auto"},
                                                      TREE_RULES(TREE_RULE_ROW)};

#define TREE_RULE_NAME(constant, word, ...) [TREE_RULE_##constant] = (word),
const char *const tree_rule_names[TREE_RULE_COUNT] = {[TREE_RULE_AUTO] = "auto",
                                                      TREE_RULES(TREE_RULE_NAME)};

/* "NAME, NAME LAST_WORD NAME" of names[n] into text[size]; returns text. */
static const char *list_names(const char *const *names, int n, char *text, size_t size,
                              const char *last_word)
{
    size_t len = 0;
    text[0] = '\0';
    for (int i = 0; i < n && len < size; i++) {
        bool is_last = i == n - 1;
        const char *join = i == 0 ? "" : is_last ? " " : ", ";
        len += (size_t)snprintf(text + len, size - len, "%s%s%s%s", join, is_last ? last_word : "",
                                is_last ? " " : "", names[i]);
    }
    return text;
}

/* The number of a name among names[n]; -1: it is none of them. */
static int find_name(const char *const *names, int n, const char *name)
{
    while (n > 0 && strcmp(name, names[n - 1]) != 0) {
        n--;
    }
    return n - 1;
}

int rule_parse(const char *name, const struct rule **rule, struct error *err)
{
    char list[LIST_BYTES];
    int i = find_name(accept_rule_names, RULE_COUNT, name);
    if (i < 0) {
        return error_set(err, ERR_ARGUMENT, "'%s' is no acceptance rule; there are %s", name,
                         rule_list(list, sizeof list, "and"));
    }
    *rule = &accept_rules[i];
    return 0;
}

const char *rule_list(char *text, size_t size, const char *last_word)
{
    return list_names(accept_rule_names, RULE_COUNT, text, size, last_word);
}

int tree_rule_parse(const char *name, const struct tree_rule **rule, struct error *err)
{
    char list[LIST_BYTES];
    int i = find_name(tree_rule_names, TREE_RULE_COUNT, name);
    if (i < 0) {
        return error_set(err, ERR_ARGUMENT, "'%s' is no tree rule; there are %s", name,
                         tree_rule_list(list, sizeof list, "and"));
    }
    *rule = &tree_rules[i];
    return 0;
}

const char *tree_rule_list(char *text, size_t size, const char *last_word)
{
    return list_names(tree_rule_names, TREE_RULE_COUNT, text, size, last_word);
}

int rule_accept(const struct rule *rule, const struct tree_rule *tree_rule,
                const struct guess_tree *tree, const struct target_row *rows,
                const struct rng_address *at, struct arena *arena, struct tree_result *result,
                struct error *err)
{
    struct sparse_dist q[DRAFT_MAX];
    int n = 0;
    while (n < tree->n && n < DRAFT_MAX && tree->parents[n] == n - 1) {
        q[n] = *tree->q[n];
        n++;
    }
    if (n == tree->n) {
        const struct accept_result chain = rule->accept(rows, q, tree->tokens, n, at);
        *result = tree_path(tree, chain.n_accepted - 1);
        result->next = chain.next;
        return 0;
    }
    double *scratch = arena_take(arena, tree_scratch_count(tree, rows), sizeof *scratch);
    if (!scratch) return error_set(err, ERR_NO_MEMORY, "no room to accept a tree of guesses");
    bool is_own = !tree_rule->accept || !rule->judges_q || !tree_rule->fits(tree);
    *result = (is_own ? rule->accept_tree : tree_rule->accept)(tree, rows, at, scratch);
    return 0;
}
