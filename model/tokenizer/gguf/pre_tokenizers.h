/* How texts are cut into words before merges, by the names of tokenizer.ggml.pre. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "model/gguf/gguf.h"

enum { PRE_TOKENIZER_STAGES = 6 };

struct pre_tokenizer {
    const char *name;
    const char *const *patterns; /* [PRE_TOKENIZER_STAGES] one cuts the pieces of the one before;
                                    NULL ends them */
    unsigned flags;              /* of pre_tokenizer_flags */
};

enum pre_tokenizer_flags {
    PRE_IGNORES_MERGES = 1, /* a word that is a token becomes this token */
    PRE_ADDS_BOS = 2,       /* unless the file says otherwise */
    PRE_NFC = 4             /* the text is put into this form first */
};

/* Finds a name of tokenizer.ggml.pre. Errors: ERR_UNSUPPORTED lists names that there are. */
int pre_tokenizer_find(const struct pre_tokenizer **pre, const struct gguf_text *name,
                       const char *origin, struct error *err);
/* The i-th one, NULL after the last. The first is that of files that name none. */
const struct pre_tokenizer *pre_tokenizer_at(int i);
