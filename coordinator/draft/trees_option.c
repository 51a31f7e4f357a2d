/* --trees as users write it, and the guesses of a tree that is given. */
#include "coordinator/draft/trees_option.h"

#include <string.h>

static int refuse(const char *text, struct error *err)
{
    return error_set(
        err, ERR_ARGUMENT,
        "--trees '%s' is no tree: expected how many guesses there are behind each one, "
        "place after place, 1 to %d for each of at most %d places, such as 3,2,1",
        text, 1 + SIBLINGS_MAX, DRAFT_MAX);
}

/* text: all that was written, of which the list is the end. */
static int parse_widths(const char *text, const char *list, struct growth_widths *widths,
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
            return error_set(err, ERR_ARGUMENT, "--trees '%s' has more than %d guesses", text,
                             GROWN_MAX - 1);
        }
        if (at[1] == '\0') return 0;
        if (at[1] != ',') return refuse(text, err);
    }
    return refuse(text, err);
}

/* What comes behind `word` and a colon; NULL: the text does not begin so. */
static const char *behind(const char *text, const char *word)
{
    size_t len = strlen(word);
    return strncmp(text, word, len) == 0 && text[len] == ':' ? text + len + 1 : NULL;
}

/* With auto planned trees do not follow the draft's q: that has not been shown to be faster
 * (docs/journal/trees.md). */
int trees_parse(const char *text, struct trees *trees, struct error *err)
{
    static const struct {
        const char *word;
        enum trees_mode mode;
        bool follows_q;
    } words[] = {{"auto", TREES_AUTO, false},
                 {"dynamic", TREES_AUTO, true},
                 {"static", TREES_AUTO, false},
                 {"siblings", TREES_SIBLINGS, false},
                 {"off", TREES_OFF, false}};
    *trees = (struct trees){.mode = TREES_AUTO};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(text, words[i].word) != 0) continue;
        trees->mode = words[i].mode;
        trees->follows_q = words[i].follows_q;
        return 0;
    }
    const char *list = behind(text, "dynamic");
    trees->fixed_follows_q = list != NULL;
    if (!list) list = text;
    if (list != text || (list[0] >= '0' && list[0] <= '9')) {
        return parse_widths(text, list, &trees->fixed, err);
    }
    return error_set(err, ERR_ARGUMENT,
                     "--trees '%s': expected auto, dynamic, static, siblings, off, a tree such as "
                     "3,2,1, or dynamic:3,2,1",
                     text);
}

static void add(struct growth *growth, int parent, int n)
{
    for (int i = 0; i < n; i++) {
        growth->parents[growth->n++] = (int8_t)parent;
    }
}

int growth_of_widths(const struct growth_widths *widths, int k, uint8_t *siblings,
                     struct growth *growth)
{
    int n_siblings = 0, first = 0; /* of the place before */
    growth->n = 0;
    for (int place = 0; place < k; place++) {
        int width = place < widths->n ? widths->widths[place] : 1, end = growth->n;
        siblings[place] = (uint8_t)(width - 1);
        n_siblings += width - 1;
        if (place == 0 || place >= widths->n) continue;
        for (int s = 0; s < siblings[place - 1]; s++) {
            add(growth, growth_behind(place - 1, s), width);
        }
        for (int i = first; i < end; i++) {
            add(growth, i, width);
        }
        first = end;
    }
    return n_siblings + growth->n;
}
