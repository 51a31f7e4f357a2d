/* Added tokens, which are found in a text before it is cut into words. */
#pragma once

#include "model/tokenizer/utf8.h"

struct added_token {
    char *text; /* owned; what is searched: the content, or what the normalizer makes of it */
    size_t len;
    int32_t id;
    bool special, lstrip, rstrip, single_word;
};

/* Sorted by text, so that a walk along the bytes narrows a range. */
struct added_set {
    struct added_token *tokens;
    int n;
    int first[257]; /* tokens that begin with byte b are first[b] .. first[b + 1] */
};

/* Errors: ERR_FORMAT two tokens with one text. */
int added_set_sort(struct added_set *set, const char *origin, struct error *err);
void added_set_free(struct added_set *set);

/* Which special tokens of a text count: those that have none of the breaks within them. */
struct added_filter {
    bool special;         /* any at all */
    const char *origin;   /* that the breaks count from */
    const size_t *breaks; /* [n_breaks] ascending */
    size_t n_breaks;
};

/* Finds the next added token from *at on, leftmost, then longest; NULL at the end. [*begin, *end)
 * is the range that it covers with its blanks; *at moves past the bare match. */
const struct added_token *added_set_next(const struct added_set *set, struct text text,
                                         const struct added_filter *filter, size_t covered,
                                         size_t *at, size_t *begin, size_t *end);
