/* The normalizer of a tokenizer: stages that rewrite a text before it is cut into words. */
#pragma once

#include "model/tokenizer/pattern.h"

enum {
    NORMALIZER_MAX_STAGES = 16,
    NORMALIZER_MAX_GROWTH = 32 /* most times that a text may grow */
};

enum normalizer_kind { NORMALIZER_UNICODE, NORMALIZER_PREPEND, NORMALIZER_REPLACE };

struct normalizer {
    enum normalizer_kind kind;
    int unicode_options; /* utf8proc's */
    struct pattern pattern;
    char *content; /* owned */
    size_t content_len;
};

/* Stages in the order in which they run; zeroed, it leaves a text as it is. */
struct normalizer_chain {
    struct normalizer stages[NORMALIZER_MAX_STAGES];
    int n;
};

void normalizer_chain_free(struct normalizer_chain *chain);

/* Working memory of normalizing; zero it before first use. Owned by one thread. */
struct normalizer_scratch {
    struct text_buf bufs[2];
    int32_t *chars, *sorted;
    size_t chars_capacity, sorted_capacity;
};

void normalizer_scratch_free(struct normalizer_scratch *scratch);
/* Runs all stages over text. *out lies in text or in scratch. continues: the text follows bytes
 * that are not UTF-8, so nothing is put before it. */
int normalizer_run(const struct normalizer_chain *chain, const struct matcher *matcher,
                   struct text text, bool continues, struct normalizer_scratch *scratch,
                   struct text *out, struct error *err);
