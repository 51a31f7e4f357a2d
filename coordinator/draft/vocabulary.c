/* Chooses the tokens of --draft-vocab. */
#include "coordinator/draft/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/options.h"
#include "model/tokenizer/token_counts.h"

enum { PATH_BYTES = 4096 };

/* Cuts "FILE:N" at its last colon if only digits follow it. *n = 0: there is no number. */
static int split_option(char path[PATH_BYTES], int *n, const char *option, struct error *err)
{
    const char *colon = strrchr(option, ':');
    bool has_number = colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1);
    size_t len = has_number ? (size_t)(colon - option) : strlen(option);
    *n = 0;
    if (len == 0 || len >= PATH_BYTES) {
        return error_set(err, ERR_ARGUMENT,
                         "--draft-vocab %.60s: expected FILE or FILE:N, a list of token counts and "
                         "how many of its tokens",
                         option);
    }
    memcpy(path, option, len);
    path[len] = '\0';
    if (!has_number) return 0;
    return options_int(n, "--draft-vocab FILE:N", colon + 1, 1, INT32_MAX, err);
}

int draft_vocabulary_choose(int32_t **ids, int *n_ids, const char *option,
                            const struct tokenizer *tok, const struct model_config *draft,
                            int n_vocab, struct error *err)
{
    struct token_counts counts = {0};
    char path[PATH_BYTES];
    int rc = 0, n = 0;
    TRY(split_option(path, &n, option, err));
    TRY(token_counts_init(&counts, tok, err));
    TRY(token_counts_read(&counts, path, err));
    int n_seen = token_counts_seen(&counts);
    if (n_seen == 0) {
        rc = error_set(err, ERR_FORMAT, "%s has no token: count a text by 'outrider count'", path);
        goto out;
    }
    if (n > n_seen) {
        rc = error_set(err, ERR_ARGUMENT,
                       "--draft-vocab asks for %d tokens, but %s has %d: give at most these, or no "
                       "number for all of them",
                       n, path, n_seen);
        goto out;
    }
    TRY(token_counts_best(&counts, n ? n : n_seen, &draft->ends, n_vocab, ids, n_ids, err));
    if (*n_ids == 0) {
        rc = error_set(err, ERR_ARGUMENT, "%s names no token of the draft's vocabulary of %d", path,
                       n_vocab);
    }
out:
    if (rc) error_wrap(err, "the draft's vocabulary");
    token_counts_free(&counts);
    return rc;
}
