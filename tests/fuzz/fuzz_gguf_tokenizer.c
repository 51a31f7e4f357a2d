/* ctest: libs=tokenizer */
/* Any bytes as a GGUF file with a tokenizer. What opens must encode a fixed text and part of the
 * input, and decode ids, without a fault; ends of texts are tokens of the file. */
#include <stdint.h>
#include <stdlib.h>

#include "model/gguf/gguf.h"
#include "model/tokenizer/gguf/chat.h"
#include "model/tokenizer/gguf/ends.h"
#include "model/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(const struct tokenizer *tok, const char *text, size_t len, unsigned flags)
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

static void read_others(const struct gguf *gguf, int n_ids)
{
    struct end_ids ends = {0};
    struct gguf_text text;
    struct error err;
    json_t *special;
    if (!gguf_ends_read(&ends, gguf, &err)) {
        for (int i = 0; i < ends.n; i++) {
            if (n_ids && (ends.ids[i] < 0 || ends.ids[i] >= n_ids)) abort();
        }
    }
    if (!gguf_chat_template(&text, gguf, &err) && text.len && !text.data) abort();
    if (!gguf_special_texts(&special, gguf, &err)) json_decref(special);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] =
        "Once upon\xc2\xa0 a time,  e\xcc\x81\xff\xe2\x98 it's 123 <s>\n\n x";
    struct gguf *gguf;
    struct tokenizer *tok;
    struct error err;
    size_t tail = size < 200 ? size : 200;
    if (gguf_open_bytes(&gguf, data, size, "fuzz", &err)) return 0;
    int rc = tokenizer_open_gguf(&tok, gguf, &err);
    read_others(gguf, rc ? 0 : tokenizer_vocab_size(tok));
    gguf_close(gguf);
    if (rc) return 0;
    tokenizer_fingerprint(tok);
    for (unsigned flags = 0; flags < 4; flags++)
        encode(tok, text, sizeof text - 1, flags);
    encode(tok, (const char *)data + size - tail, tail, TOKENIZER_PARSE_SPECIAL);
    tokenizer_close(tok);
    return 0;
}
