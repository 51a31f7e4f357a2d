/* --trees as users write it, and the guesses of a tree that is given. */
#include "coordinator/draft/trees_option.h"

#include <stdio.h>
#include <string.h>

static int refuse(const char *text, struct error *err)
{
    return error_set(err, ERR_ARGUMENT,
                     "--trees '%s' is no tree: expected how many guesses there are after each one, "
                     "place after place, 1 to %d for each of at most %d places, such as 3,2,1",
                     text, 1 + SIBLINGS_MAX, DRAFT_MAX);
}

/* text: all that was written, of which the list is the end. */
static int parse_widths(const char *text, const char *list, struct tree_widths *widths,
                        struct error *err)
{
    int n_place = 1, n_all = 0;
    widths->n = 0;
    for (const char *at = list; widths->n < DRAFT_MAX; at += 2) {
        if (at[0] < '1' || at[0] > '1' + SIBLINGS_MAX) return refuse(text, err);
        widths->widths[widths->n++] = (uint8_t)(at[0] - '0');
        n_place *= at[0] - '0';
        n_all += n_place;
        if (n_all > GROWN_MAX - 1) {
            return error_set(
                err, ERR_ARGUMENT,
                "--trees '%s' has more than %d guesses: name fewer places, or fewer guesses "
                "for each",
                text, GROWN_MAX - 1);
        }
        if (at[1] == '\0') return 0;
        if (at[1] != ',') return refuse(text, err);
    }
    return refuse(text, err);
}

/* "KxL" */
static int parse_chains(const char *text, const char *list, struct tree_widths *widths,
                        struct error *err)
{
    int n_chains = 0, length = 0, n_read = 0;
    bool is_read = sscanf(list, "%1dx%2d%n", &n_chains, &length, &n_read) == 2;
    if (!is_read || list[n_read] != '\0' || list[0] < '0' || list[2] < '0' || n_chains < 2 ||
        n_chains > 1 + SIBLINGS_MAX || length < 1 || length > DRAFT_MAX) {
        return error_set(err, ERR_ARGUMENT,
                         "--trees '%s': expected chains:KxL, K chains of L guesses, K 2 to %d and "
                         "L 1 to %d, such as chains:3x4",
                         text, 1 + SIBLINGS_MAX, DRAFT_MAX);
    }
    if ((n_chains - 1) * length > GROWN_MAX - 1) {
        return error_set(err, ERR_ARGUMENT,
                         "--trees '%s' has %d guesses beside the first chain; %d are possible: "
                         "take fewer chains or shorter ones",
                         text, (n_chains - 1) * length, GROWN_MAX - 1);
    }
    memset(widths->widths, 1, (size_t)length);
    widths->widths[0] = (uint8_t)n_chains;
    widths->n = length;
    widths->is_independent = true;
    return 0;
}

static int parse_choices(const char *text, const char *list, struct tree_widths *widths,
                         struct error *err)
{
    (void)text;
    int rc = tree_choices_read(&widths->choices, list, err);
    if (!rc) widths->n = widths->choices.n_places;
    return rc;
}

/* Returns the text after `word` and a colon; NULL: it does not begin so. */
static const char *list_after(const char *text, const char *word)
{
    size_t len = strlen(word);
    return strncmp(text, word, len) == 0 && text[len] == ':' ? text + len + 1 : NULL;
}

/* Trees that are named, "WORD:LIST": the error and the help list them, so a new one is a row here
 * and the function that reads its list. */
static const struct shape {
    const char *word, *example, *help;
    int (*parse)(const char *text, const char *list, struct tree_widths *widths, struct error *err);
    bool follows_q;
} shapes[] = {
    {"dynamic", "dynamic:3,2,1",
     "as many guesses for each place as 3,2,1 has, after those that the draft's own q chooses",
     parse_widths, true},
    {"chains", "chains:3x4",
     "3 chains of 4 guesses, each drawn by itself, so that two may be equal", parse_chains, false},
    {"choices", "choices:FILE",
     "the tree of a file of Medusa's choices, a JSON list of paths of ranks such as [[0], [0, 0], "
     "[1]], of which fifth guesses of a parent, places after 16 and guesses after the first 31 "
     "beside the zeros are left out, with what comes after them",
     parse_choices, false},
};

/* Ways to plan trees, which the error lists, too. With auto planned trees do not follow the draft's
 * q: that has not been shown to be faster (docs/journal/trees.md). */
static const struct {
    const char *word;
    enum trees_mode mode;
    bool follows_q;
} words[] = {{"auto", TREES_AUTO, false},
             {"dynamic", TREES_AUTO, true},
             {"static", TREES_AUTO, false},
             {"siblings", TREES_SIBLINGS, false},
             {"off", TREES_OFF, false}};
enum {
    N_SHAPES = sizeof shapes / sizeof *shapes,
    N_WORDS = sizeof words / sizeof *words,
    LIST_BYTES = 256
};

void trees_list(char *text, size_t size)
{
    size_t len = 0;
    text[0] = '\0';
    for (int i = 0; i < N_SHAPES && len < size; i++) {
        len += (size_t)snprintf(text + len, size - len, "%s%s is %s", i > 0 ? "; " : "",
                                shapes[i].example, shapes[i].help);
    }
}

static int refuse_word(const char *text, struct error *err)
{
    char list[LIST_BYTES] = "";
    size_t len = 0;
    for (int i = 0; i < N_WORDS && len < sizeof list; i++) {
        len += (size_t)snprintf(list + len, sizeof list - len, "%s, ", words[i].word);
    }
    if (len < sizeof list) {
        len += (size_t)snprintf(list + len, sizeof list - len, "or a tree such as 3,2,1");
    }
    for (int i = 0; i < N_SHAPES && len < sizeof list; i++) {
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%s",
                                i == N_SHAPES - 1 ? " or " : ", ", shapes[i].example);
    }
    return error_set(err, ERR_ARGUMENT, "--trees '%s': expected %s", text, list);
}

int trees_parse(const char *text, struct trees *trees, struct error *err)
{
    *trees = (struct trees){.mode = TREES_AUTO};
    for (int i = 0; i < N_WORDS; i++) {
        if (strcmp(text, words[i].word) != 0) continue;
        trees->mode = words[i].mode;
        trees->follows_q = words[i].follows_q;
        return 0;
    }
    for (int i = 0; i < N_SHAPES; i++) {
        const char *list = list_after(text, shapes[i].word);
        if (!list) continue;
        trees->fixed_follows_q = shapes[i].follows_q;
        return shapes[i].parse(text, list, &trees->fixed, err);
    }
    if (text[0] >= '0' && text[0] <= '9') return parse_widths(text, text, &trees->fixed, err);
    return refuse_word(text, err);
}

int tree_widths_plan(const struct tree_widths *widths, int k, struct guess_tree *plan)
{
    if (widths->choices.n > 0) {
        tree_choices_plan(&widths->choices, k, plan);
        return plan->n - plan->n_chain;
    }
    guess_tree_begin(plan, 0);
    plan->is_independent = widths->is_independent;
    if (plan->is_independent && k > widths->n) k = widths->n;
    for (int place = 0; place < k; place++) {
        int width = place < widths->n ? widths->widths[place] : 1, parent = guess_tree_last(plan);
        guess_tree_extend(plan, 0, -1, NULL);
        for (int i = 1; i < width; i++) {
            guess_tree_add(plan, parent, GUESS_SIBLING, -1, NULL);
        }
    }
    for (int place = 1; place < k && place < widths->n; place++) {
        for (int parent = 0, n = plan->n; parent < n; parent++) {
            if (plan->marks[parent] & GUESS_CHAIN || guess_tree_place(plan, parent) != place - 1) {
                continue;
            }
            for (int i = 0; i < widths->widths[place]; i++) {
                guess_tree_add(plan, parent, GUESS_GROWN, -1, NULL);
            }
        }
    }
    return plan->n - plan->n_chain;
}
