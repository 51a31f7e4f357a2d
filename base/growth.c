/* Guesses behind siblings: their places, their tree, and the one that needs the most blocks. */
#include "base/growth.h"

#include "base/least.h"

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

/* Up to `budget` guesses behind a parent; returns what is left of it. */
static int add_behind(struct growth *growth, int parent, int budget)
{
    int n = least(budget, 1 + SIBLINGS_MAX);
    for (int i = 0; i < n; i++) {
        growth->parents[growth->n++] = (int8_t)parent;
    }
    return budget - n;
}

void growth_pack(int k, const uint8_t *siblings, const struct growth *growth,
                 uint8_t *packed_siblings, struct growth *packed)
{
    int budget[DRAFT_MAX] = {0};
    for (int i = 0; i < growth->n; i++) {
        budget[growth_place(growth, i)]++;
    }
    packed->n = 0;
    packed_siblings[0] = siblings[0];
    for (int place = 1, first = 0; place < DRAFT_MAX; place++) {
        int end = packed->n, left = budget[place] + (place < k ? siblings[place] : 0);
        if (place < k) {
            packed_siblings[place] = (uint8_t)least(left, SIBLINGS_MAX);
            left -= packed_siblings[place];
        }
        for (int s = 0; place <= k && s < packed_siblings[place - 1]; s++) {
            left = add_behind(packed, growth_behind(place - 1, s), left);
        }
        for (int i = first; i < end; i++) {
            left = add_behind(packed, i, left);
        }
        first = end;
    }
}

/* What grows behind guess n - 1 of a tree, which a growth calls `name`; returns the tree's n. */
static int grow_parents(const struct growth *growth, int name, int32_t *parents, int n)
{
    int parent = n - 1;
    for (int i = 0; i < growth->n; i++) {
        if (growth->parents[i] != name) continue;
        parents[n] = parent;
        n = grow_parents(growth, i, parents, n + 1);
    }
    return n;
}

int growth_tree(int k, const uint8_t *siblings, const struct growth *growth, int32_t *parents)
{
    int n = 0;
    for (; n < k; n++) {
        parents[n] = n - 1;
    }
    for (int i = k - 1; i >= 0; i--) {
        for (int s = 0; s < siblings[i]; s++) {
            parents[n] = i - 1;
            n = grow_parents(growth, growth_behind(i, s), parents, n + 1);
        }
    }
    return n;
}
