/* The decoder of a tokenizer: how pieces are made of contents. Text from ids: detokenizer,
 * tokenizer.h. */
#pragma once

#include "model/tokenizer/normalize.h"
#include "model/tokenizer/table.h"

struct decoder {
    bool byte_level;                  /* pieces are bytes that join before they are read */
    bool byte_fallback;               /* runs of byte tokens are read together */
    bool fused;                       /* what follows sees one string */
    bool space_between;               /* no decoder: tokens joined by blanks */
    char metaspace[8];                /* character that means a blank, "" for none */
    bool drop_first;                  /* ... which is dropped from the first token */
    struct normalizer_chain replaces; /* make pieces of contents */
    char strip[8];                    /* character that is stripped, "" for none */
    int strip_start, strip_stop;
};

/* Fills piece and TOKEN_BYTE of a token that the decoder gets as `content`. */
int decoder_make_piece(const struct decoder *decoder, const struct matcher *matcher,
                       struct token_table *table, int32_t id, struct text content,
                       struct normalizer_scratch *scratch, struct error *err);
