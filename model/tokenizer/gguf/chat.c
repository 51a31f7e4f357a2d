#include "model/tokenizer/gguf/chat.h"

#include <string.h>

#include "model/tokenizer/gguf/vocabulary.h"

static const char template_key[] = "tokenizer.chat_template";

/* The first key of a named template, or NULL. */
static const char *named_template(const struct gguf *gguf)
{
    size_t len = sizeof template_key - 1;
    for (size_t i = 0; i < gguf_n_keys(gguf); i++) {
        const char *key = gguf_key(gguf, i);
        if (strncmp(key, template_key, len) == 0 && key[len] == '.') return key;
    }
    return NULL;
}

int gguf_chat_template(struct gguf_text *text, const struct gguf *gguf, struct error *err)
{
    *text = (struct gguf_text){"", 0};
    int rc = gguf_read_text(gguf, template_key, text, err);
    if (rc || gguf_has(gguf, template_key)) return rc;
    rc = gguf_read_text(gguf, "tokenizer.chat_template.default", text, err);
    if (rc || gguf_has(gguf, "tokenizer.chat_template.default")) return rc;
    const char *named = named_template(gguf);
    if (!named) return 0;
    return error_set(err, ERR_FORMAT,
                     "%s has the chat template %.80s, but none called \"default\": name a file "
                     "with --chat-template",
                     gguf_origin(gguf), named);
}

static int add_text(json_t *special, const char *name, struct gguf_text token, struct error *err)
{
    if (!token.len || !json_object_set_new(special, name, json_stringn(token.data, token.len)))
        return 0;
    return error_set(err, ERR_NO_MEMORY, "no memory for the special tokens of a GGUF file");
}

int gguf_special_texts(json_t **special, const struct gguf *gguf, struct error *err)
{
    static const struct {
        const char *name;
        enum gguf_special which;
    } tokens[] = {
        {"bos_token", GGUF_SPECIAL_BOS},     {"eos_token", GGUF_SPECIAL_EOS},
        {"unk_token", GGUF_SPECIAL_UNKNOWN}, {"sep_token", GGUF_SPECIAL_SEPARATOR},
        {"pad_token", GGUF_SPECIAL_PADDING}, {"cls_token", GGUF_SPECIAL_CLS},
        {"mask_token", GGUF_SPECIAL_MASK},
    };
    struct gguf_vocabulary v = {0};
    bool is_sentencepiece = false;
    int rc = 0;
    *special = json_object();
    if (!*special) rc = error_set(err, ERR_NO_MEMORY, "no memory for a chat template");
    if (rc) goto out;
    if (gguf_is_sentencepiece(gguf, &is_sentencepiece, err)) is_sentencepiece = false;
    TRY(gguf_tokens_read(&v, gguf, err));
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens && v.n; i++) {
        int id;
        TRY(gguf_read_special_id(gguf, tokens[i].which, v.n, is_sentencepiece, &id, err));
        if (id >= 0) TRY(add_text(*special, tokens[i].name, v.tokens[id], err));
    }
out:
    gguf_vocabulary_free(&v);
    if (rc) {
        json_decref(*special);
        *special = NULL;
    }
    return rc;
}
