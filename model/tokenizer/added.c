/* Added tokens: found in the text before it is cut into words. Leftmost first, then longest, as
 * Hugging Face's Aho-Corasick automaton finds them. The tokens are sorted, and each byte of the
 * text narrows the range of those that still fit. */
#include "model/tokenizer/added.h"

#include <stdlib.h>
#include <string.h>

static int compare_tokens(const void *a, const void *b)
{
    const struct added_token *x = a, *y = b;
    size_t common = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->text, y->text, common);
    if (order) return order;
    return x->len < y->len ? -1 : x->len > y->len;
}

int added_set_sort(struct added_set *set, const char *origin, struct error *err)
{
    if (set->n) qsort(set->tokens, (size_t)set->n, sizeof *set->tokens, compare_tokens);
    for (int i = 1; i < set->n; i++) {
        const struct added_token *token = &set->tokens[i];
        if (compare_tokens(token - 1, token) == 0) {
            return error_set(err, ERR_FORMAT, "%s: two added tokens \"%.*s\"", origin,
                             text_shown_length(token->text, token->len, 80), token->text);
        }
    }
    int at = 0;
    for (int byte = 0; byte < 257; byte++) {
        while (at < set->n && (uint8_t)set->tokens[at].text[0] < byte)
            at++;
        set->first[byte] = at;
    }
    return 0;
}

void added_set_free(struct added_set *set)
{
    for (int i = 0; i < set->n; i++)
        free(set->tokens[i].text);
    free(set->tokens);
    *set = (struct added_set){0};
}

/* First token of [low, high) whose byte at `depth` is >= byte; all of them are longer than
 * depth. */
static int lower_bound(const struct added_set *set, int low, int high, size_t depth, int byte)
{
    while (low < high) {
        int middle = low + (high - low) / 2;
        if ((uint8_t)set->tokens[middle].text[depth] < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The longest token that begins at data[0]. */
static const struct added_token *longest_at(const struct added_set *set, const char *data,
                                            size_t len)
{
    const struct added_token *found = NULL;
    int low = set->first[(uint8_t)data[0]];
    int high = set->first[(uint8_t)data[0] + 1];
    for (size_t depth = 1; low < high; depth++) {
        if (set->tokens[low].len == depth) found = &set->tokens[low++];
        if (depth == len) break;
        int byte = (uint8_t)data[depth];
        low = lower_bound(set, low, high, depth, byte);
        high = lower_bound(set, low, high, depth, byte + 1);
    }
    return found;
}

static bool is_alone(struct text text, size_t begin, size_t end)
{
    size_t used;
    if (begin && text_is_word(text_char_before(text.data, begin, &used))) return false;
    return end == text.len || !text_is_word(text_char(text.data + end, &used));
}

static size_t blanks_before(struct text text, size_t begin, size_t least)
{
    size_t used;
    while (begin > least && text_is_space(text_char_before(text.data, begin, &used)))
        begin -= used;
    return begin;
}

static size_t blanks_after(struct text text, size_t end)
{
    size_t used;
    while (end < text.len && text_is_space(text_char(text.data + end, &used)))
        end += used;
    return end;
}

static bool is_broken(const struct added_filter *filter, const char *begin, size_t len)
{
    size_t low = 0, high = filter->n_breaks;
    if (!high) return false;
    size_t at = (size_t)(begin - filter->origin);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (filter->breaks[middle] <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < filter->n_breaks && filter->breaks[low] < at + len;
}

const struct added_token *added_set_next(const struct added_set *set, struct text text,
                                         const struct added_filter *filter, size_t covered,
                                         size_t *at, size_t *begin, size_t *end)
{
    while (*at < text.len) {
        const struct added_token *token = longest_at(set, text.data + *at, text.len - *at);
        if (!token) {
            (*at)++;
            continue;
        }
        if (token->special && is_broken(filter, text.data + *at, token->len)) {
            (*at)++; /* another may begin within it */
            continue;
        }
        *begin = *at;
        *end = *at += token->len;
        if (token->special && !filter->special) continue;
        if (token->single_word && !is_alone(text, *begin, *end)) continue;
        if (token->lstrip)
            *begin = blanks_before(text, *begin, covered < *begin ? covered : *begin);
        if (token->rstrip) *end = blanks_after(text, *end);
        return token;
    }
    return NULL;
}
