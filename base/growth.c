/* Guesses behind siblings. */
#include "base/growth.h"

int growth_place(const struct growth *growth, int i)
{
    int place = 1;
    for (; growth->parents[i] >= 0; i = growth->parents[i]) {
        place++;
    }
    return place + growth_guess(growth->parents[i]);
}

int growth_first(const struct growth *growth, int i)
{
    while (i > 0 && growth->parents[i - 1] == growth->parents[i]) {
        i--;
    }
    return i;
}

static int refuse(const char *text, struct error *err)
{
    return error_set(err, ERR_ARGUMENT,
                     "'%s' is no tree: expected how many guesses there are behind each one, place "
                     "after place, 1 to %d for each of at most %d places, such as 3,2,1",
                     text, 1 + SIBLINGS_MAX, DRAFT_MAX);
}

int growth_widths_parse(const char *text, struct growth_widths *widths, struct error *err)
{
    int n_place = 1, n_all = 0;
    widths->n = 0;
    for (const char *at = text; widths->n < DRAFT_MAX; at++) {
        if (*at < '1' || *at > '1' + SIBLINGS_MAX) return refuse(text, err);
        int width = *at++ - '0';
        widths->widths[widths->n++] = (uint8_t)width;
        n_place *= width;
        n_all += n_place;
        if (n_all > GROWN_MAX - 1) {
            return error_set(err, ERR_ARGUMENT, "the tree '%s' has more than %d guesses", text,
                             GROWN_MAX - 1);
        }
        if (*at == '\0') return 0;
        if (*at != ',') return refuse(text, err);
    }
    return refuse(text, err);
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
        for (int s = 0; place > 0 && place < widths->n && s < siblings[place - 1]; s++) {
            add(growth, growth_behind(place - 1, s), width);
        }
        for (int i = first; i < end && place < widths->n; i++) {
            add(growth, i, width);
        }
        first = end;
        siblings[place] = (uint8_t)(width - 1);
        n_siblings += width - 1;
    }
    return n_siblings + growth->n;
}
