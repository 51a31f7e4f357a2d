/* The trajectory of a text, and the n-grams that it leaves. */
#include "lookup/trajectory.h"

#include <string.h>

/* Returns the token for a place i >= 1 that the target has not predicted: the pool's token after
 * the one before, or else a token of the text's end. Any token would do: the target's prediction
 * for it improves the next level. */
static int32_t fill(const struct trajectory_level *level, int i, const struct ngrams *pool,
                    const int32_t *text)
{
    const struct ngram_list *list = ngrams_find(pool, level->tokens[i - 1]);
    int at = level->base - TRAJECTORY_TOKENS + i - 1;
    return list ? list->ngrams[0].tokens[0] : text[at > 0 ? at : 0];
}

void trajectory_begin(struct trajectory *t, const struct ngrams *pool, const int32_t *text,
                      int n_text)
{
    struct trajectory_level *level = &t->levels[0];
    if (level->base == n_text) return;
    *t = (struct trajectory){0};
    level->base = n_text;
    level->tokens[0] = text[n_text - 1];
    for (int i = 1; i <= TRAJECTORY_TOKENS; i++) {
        level->tokens[i] = fill(level, i, pool, text);
    }
}

int trajectory_tokens(const struct trajectory *t, int n_vocab, int32_t *tokens, int most)
{
    const struct trajectory_level *level = &t->levels[0];
    int n = 0;
    while (n < most && n < TRAJECTORY_TOKENS && level->base > 0) {
        int32_t token = level->tokens[1 + n];
        if (token < 0 || token >= n_vocab) break;
        tokens[n++] = token;
    }
    return n;
}

/* The token of a level at a place of the text, the first one being 0; -1: it has none there.
 * *is_said: whether the target said it. */
static int32_t token_at(const struct trajectory_level *level, int place, bool *is_said)
{
    int i = place - (level->base - 1);
    if (level->base == 0 || i < 0 || i > TRAJECTORY_TOKENS) return -1;
    *is_said = level->is_said[i];
    return level->tokens[i];
}

/* Collects the n-grams that end with the token that was said for a place: their other tokens are on
 * the diagonal that leads back over the levels, as far as each was said after the one before. */
static void collect(const struct trajectory *t, struct ngrams *pool, int place, int32_t said)
{
    int32_t tokens[NGRAMS_TOKENS];
    tokens[NGRAMS_TOKENS - 1] = said;
    for (int n = 1; n <= NGRAMS_TOKENS; n++) {
        bool is_said = false;
        int32_t before = token_at(&t->levels[n - 1], place - n, &is_said);
        if (before < 0) return;
        ngrams_add(pool, before, tokens + NGRAMS_TOKENS - n, n);
        if (!is_said || n == NGRAMS_TOKENS) return;
        tokens[NGRAMS_TOKENS - 1 - n] = before;
    }
}

/* Tests the pool's lists against the new tokens, before it learns from the same step. */
static void test(struct ngrams *pool, const int32_t *text, int from, int n_text)
{
    for (int i = from; i < n_text; i++) {
        ngrams_test(pool, text[i - 1], text[i]);
    }
}

/* Collects the n-grams of the text that end with a token that is new in it. */
static void collect_text(struct ngrams *pool, const int32_t *text, int from, int n_text)
{
    for (int i = from; i < n_text; i++) {
        for (int n = 1; n <= NGRAMS_TOKENS && n <= i; n++) {
            ngrams_add(pool, text[i - n], text + i - n + 1, n);
        }
    }
}

/* Sets place i of the next level: to the token that was said for that place, or else to the old
 * level's token there, or else to a new one. */
static void go_on(struct trajectory_level *level, int i, const struct trajectory_level *old,
                  const struct ngrams *pool, const int32_t *said, const int32_t *text)
{
    int row = level->base - old->base - 1 + i; /* that speaks of the place */
    int32_t known = row <= TRAJECTORY_TOKENS ? said[row] : -1;
    level->is_said[i] = known >= 0;
    if (known >= 0) {
        level->tokens[i] = known;
    } else if (row < TRAJECTORY_TOKENS) {
        level->tokens[i] = old->tokens[row + 1];
    } else {
        level->tokens[i] = fill(level, i, pool, text);
    }
}

void trajectory_advance(struct trajectory *t, struct ngrams *pool,
                        const int32_t said[1 + TRAJECTORY_TOKENS], const int32_t *text, int n_text)
{
    const struct trajectory_level *old = &t->levels[0];
    struct trajectory_level level = {.base = n_text};
    test(pool, text, old->base, n_text);
    for (int i = 0; i <= TRAJECTORY_TOKENS; i++) {
        if (said[i] >= 0) collect(t, pool, old->base + i, said[i]);
    }
    collect_text(pool, text, old->base, n_text);
    int last = n_text - 1 - old->base; /* the row that speaks of the text's last token */
    level.tokens[0] = text[n_text - 1];
    level.is_said[0] = last <= TRAJECTORY_TOKENS && said[last] == level.tokens[0];
    for (int i = 1; i <= TRAJECTORY_TOKENS; i++) {
        go_on(&level, i, old, pool, said, text);
    }
    memmove(&t->levels[1], &t->levels[0], (NGRAMS_TOKENS - 1) * sizeof t->levels[0]);
    t->levels[0] = level;
}
