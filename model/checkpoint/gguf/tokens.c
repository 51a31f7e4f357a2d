/* The tokens that a config names, and how texts are sampled. */
#include <string.h>

#include "base/end_ids.h"
#include "model/checkpoint/gguf/internal.h"

/* Control tokens that end what a model says. Files name one or two of them by id; where the model
 * has others of these, chat models are trained to end their turn with them. */
static const char *const end_texts[] = {
    "<|eot_id|>",    "<|eom_id|>",    "<|end_of_text|>", "<|im_end|>",
    "<|endoftext|>", "<end_of_turn>", "<|end|>",         "<EOT>",
};

static int add_end(json_t *list, int id, struct error *err)
{
    size_t i = 0, n = json_array_size(list);
    while (i < n && json_integer_value(json_array_get(list, i)) != id) {
        i++;
    }
    if (i < n || n == END_IDS_MAX) return 0;
    return json_array_append_new(list, json_integer(id)) == 0
               ? 0
               : error_set(err, ERR_NO_MEMORY, "no memory for a config");
}

static bool is_end(const struct gguf_text *text)
{
    for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++) {
        if (strlen(end_texts[i]) == text->len && memcmp(end_texts[i], text->data, text->len) == 0) {
            return true;
        }
    }
    return false;
}

static int add_known_ends(const struct gguf *gguf, int n_vocab, json_t *list, struct error *err)
{
    enum { CONTROL = 3 };
    struct gguf_array tokens = {0}, types = {0};
    int rc = 0;
    TRY(gguf_read_texts(gguf, "tokenizer.ggml.tokens", &tokens, err));
    TRY(gguf_read_ints(gguf, "tokenizer.ggml.token_type", &types, err));
    const uint8_t *at = tokens.data;
    for (uint64_t i = 0; i < tokens.n && i < types.n && i < (uint64_t)n_vocab; i++) {
        struct gguf_text text = gguf_next_text(&at);
        if (gguf_array_int(&types, i) != CONTROL || !is_end(&text)) continue;
        TRY(add_end(list, (int)i, err));
    }
out:
    return rc;
}

int gguf_write_tokens(const struct gguf_writing *w, int n_vocab, struct error *err)
{
    static const char *const end_keys[] = {"tokenizer.ggml.eos_token_id",
                                           "tokenizer.ggml.eot_token_id",
                                           "tokenizer.ggml.eom_token_id"};
    json_t *ends = json_array();
    int bos = -1, rc = gguf_set(w->root, "eos_token_id", ends, err);
    if (rc) return rc;
    TRY(gguf_read_int(w->gguf, "tokenizer.ggml.bos_token_id", 0, n_vocab - 1, &bos, err));
    if (bos >= 0) TRY(gguf_set(w->root, "bos_token_id", json_integer(bos), err));
    for (size_t i = 0; i < sizeof end_keys / sizeof *end_keys; i++) {
        int id = -1;
        TRY(gguf_read_int(w->gguf, end_keys[i], 0, n_vocab - 1, &id, err));
        if (id >= 0) TRY(add_end(ends, id, err));
    }
    TRY(add_known_ends(w->gguf, n_vocab, ends, err));
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
