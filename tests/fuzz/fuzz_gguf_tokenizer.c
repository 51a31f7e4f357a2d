/* ctest: libs=tokenizer */
/* Any bytes as a GGUF file with a tokenizer. What opens must encode a fixed text and part of the
 * input, and decode ids, without a fault; ends of texts are tokens of the file. */
#include "model/gguf/gguf.h"
#include "model/tokenizer/gguf/chat.h"
#include "model/tokenizer/gguf/ends.h"
#include "tests/support/fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
    struct gguf *gguf;
    struct tokenizer *tok;
    struct error err;
    if (gguf_open_bytes(&gguf, data, size, "fuzz", &err)) return 0;
    int rc = tokenizer_open_gguf(&tok, gguf, &err);
    read_others(gguf, rc ? 0 : tokenizer_vocab_size(tok));
    gguf_close(gguf);
    if (rc) return 0;
    fuzz_tokenizer(tok, data, size);
    return 0;
}
