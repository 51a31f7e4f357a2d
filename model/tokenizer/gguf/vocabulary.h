/* The vocabulary of a GGUF file's tokenizer, checked: every token is UTF-8, and every list has one
 * entry for each token. */
#pragma once

#include "model/gguf/gguf.h"

enum gguf_token_type {
    GGUF_TOKEN_NORMAL = 1,
    GGUF_TOKEN_UNKNOWN = 2,
    GGUF_TOKEN_CONTROL = 3,
    GGUF_TOKEN_USER_DEFINED = 4, /* found in a text before it is cut into words; not special */
    GGUF_TOKEN_UNUSED = 5,
    GGUF_TOKEN_BYTE = 6
};

/* Longer tokens are refused, because every way of cutting a token in two is looked at. */
enum { GGUF_TOKEN_BYTES_MAX = 4096 };

/* Where the file has no merges, they follow from the ranks of the tokens. */
enum gguf_ranking {
    GGUF_RANK_MERGES, /* the file has merges */
    GGUF_RANK_SCORES, /* the token of the highest score is made first */
    GGUF_RANK_IDS     /* the token of the lowest id is */
};

struct gguf_vocabulary {
    int n;
    struct gguf_text *tokens; /* [n]; an empty one: no token has this id */
    uint8_t *types;           /* [n] of gguf_token_type */
    char *respelled;          /* owned; texts of tokens that do not lie in the file */
    enum gguf_ranking ranking;
    struct gguf_array merges; /* texts, "left right" */
    struct gguf_array scores; /* n of them */
};

/* True if the file's tokenizer is SentencePiece's, false if it is byte-level BPE.
 * Errors: ERR_FORMAT the file does not say; ERR_UNSUPPORTED it is another one. */
int gguf_is_sentencepiece(const struct gguf *gguf, bool *is, struct error *err);

/* Reads the tokens and their types alone, of any tokenizer; a file without one has none. What is
 * returned points into the file. Errors: ERR_FORMAT, ERR_NO_MEMORY; free *v also then. */
int gguf_tokens_read(struct gguf_vocabulary *v, const struct gguf *gguf, struct error *err);
/* Reads all. Errors: those of gguf_is_sentencepiece and gguf_tokens_read; ERR_FORMAT there are no
 * tokens. */
int gguf_vocabulary_read(struct gguf_vocabulary *v, const struct gguf *gguf, struct error *err);
void gguf_vocabulary_free(struct gguf_vocabulary *v);

/* Tokens that keys of the file name. */
enum gguf_special {
    GGUF_SPECIAL_BOS,
    GGUF_SPECIAL_EOS,
    GGUF_SPECIAL_EOT,
    GGUF_SPECIAL_EOM,
    GGUF_SPECIAL_UNKNOWN,
    GGUF_SPECIAL_SEPARATOR,
    GGUF_SPECIAL_PADDING,
    GGUF_SPECIAL_CLS,
    GGUF_SPECIAL_MASK
};

/* Reads the id of a token. Where the key is missing, it is SentencePiece's usual one, or none (-1).
 * n: ids of the file. Errors: ERR_FORMAT the id of a token that begins or ends a text is outside of
 * 0 .. n-1; of the others it is none then. */
int gguf_read_special_id(const struct gguf *gguf, enum gguf_special which, int n,
                         bool is_sentencepiece, int *id, struct error *err);
