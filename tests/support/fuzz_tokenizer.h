/* Steps of fuzz targets with a tokenizer that opens, wherever it is from. */
#pragma once

#include <stdint.h>
#include <stdlib.h>

#include "model/tokenizer/tokenizer.h"

/* Encodes a text and decodes its ids; what comes out must end on whole characters. */
static inline void fuzz_encode(const struct tokenizer *tok, const char *text, size_t len,
                               unsigned flags)
{
    struct token_ids ids = {0};
    struct detokenizer *detok;
    struct error err;
    const char *out;
    size_t out_len;
    int rc = tokenizer_encode(tok, text, len, flags, &ids, &err);
    if (!rc && !detokenizer_open(&detok, tok, flags & 1, &err)) {
        for (size_t i = 0; i < ids.n && !rc; i++) {
            if (ids.data[i] < 0 || ids.data[i] >= tokenizer_vocab_size(tok)) abort();
            rc = detokenizer_push(detok, ids.data[i], &out, &out_len, &err);
            if (!rc && out_len && ((uint8_t)out[0] & 0xc0) == 0x80) abort();
        }
        if (!rc) rc = detokenizer_finish(detok, &out, &out_len, &err);
        detokenizer_close(detok);
    }
    token_ids_free(&ids);
}

/* Encodes a fixed text and the end of the input in several ways, and closes the tokenizer. */
static inline void fuzz_tokenizer(struct tokenizer *tok, const uint8_t *data, size_t size)
{
    static const char text[] =
        "Once upon\xc2\xa0 a time,  e\xcc\x81\xff\xe2\x98 it's 123 <s>\n\n x";
    size_t tail = size < 200 ? size : 200;
    tokenizer_fingerprint(tok);
    for (unsigned flags = 0; flags < 4; flags++) {
        fuzz_encode(tok, text, sizeof text - 1, flags);
    }
    fuzz_encode(tok, (const char *)data + size - tail, tail, TOKENIZER_PARSE_SPECIAL);
    tokenizer_close(tok);
}
