/* The tokens that a config names, and how texts are sampled. */
#include "model/checkpoint/gguf/internal.h"
#include "model/tokenizer/gguf/ends.h"

/* A file without a tokenizer may still name the token that ends a text. */
static int read_ends(struct end_ids *ends, const struct gguf *gguf, int n_vocab, struct error *err)
{
    int id = -1, rc = gguf_ends_read(ends, gguf, err);
    if (rc || ends->n) return rc;
    rc = gguf_read_int(gguf, "tokenizer.ggml.eos_token_id", 0, n_vocab - 1, &id, err);
    if (id >= 0) end_ids_add(ends, (int32_t)id);
    return rc;
}

int gguf_write_tokens(const struct gguf_writing *w, int n_vocab, struct error *err)
{
    struct end_ids ends = {0};
    json_t *list = json_array();
    int bos = -1, rc = gguf_set(w->root, "eos_token_id", list, err);
    if (rc) return rc;
    TRY(gguf_read_int(w->gguf, "tokenizer.ggml.bos_token_id", 0, n_vocab - 1, &bos, err));
    if (bos >= 0) TRY(gguf_set(w->root, "bos_token_id", json_integer(bos), err));
    TRY(read_ends(&ends, w->gguf, n_vocab, err));
    for (int i = 0; i < ends.n && ends.ids[i] < n_vocab; i++) {
        TRY(gguf_append(list, json_integer(ends.ids[i]), err));
    }
out:
    return rc;
}

int gguf_write_sampling(const struct gguf *gguf, json_t *root, struct error *err)
{
    static const struct {
        const char *from, *key;
    } numbers[] = {{"general.sampling.temp", "temperature"},
                   {"general.sampling.top_p", "top_p"},
                   {"general.sampling.min_p", "min_p"},
                   {"general.sampling.penalty_repeat", "repetition_penalty"}};
    int top_k = -1, rc = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double value = 0;
        if (!gguf_has(gguf, numbers[i].from)) continue;
        TRY(gguf_read_number(gguf, numbers[i].from, &value, err));
        TRY(gguf_set(root, numbers[i].key, gguf_json_number(value), err));
    }
    if (!gguf_has(gguf, "general.sampling.top_k")) goto out;
    TRY(gguf_read_int(gguf, "general.sampling.top_k", -1, INT32_MAX, &top_k, err));
    TRY(gguf_set(root, "top_k", json_integer(top_k), err));
out:
    return rc;
}
