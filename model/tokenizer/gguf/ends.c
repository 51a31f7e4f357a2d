/* The texts are those of llama.cpp, but for two that are words of HTML in some models. */
#include "model/tokenizer/gguf/ends.h"

static bool is_one_of(const struct gguf_text *token, const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (gguf_text_is(token, texts[i])) return true;
    }
    return false;
}

bool gguf_token_ends(const struct gguf_vocabulary *v, int id)
{
    static const char *const always[] = {
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|calls|>",
        "<|flush|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<end_of_utterance>",
        "<\xef\xbd\x9c\x65nd\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>", /* \x65: e */
        "[e~[",
    };
    /* Gemma's vocabulary has tokens for tags: </s> there is struck-out text. */
    static const char *const if_control[] = {"</s>", "<eos>"};
    const struct gguf_text *token = &v->tokens[id];
    if (token->len < 4) return false;
    return is_one_of(token, always, sizeof always / sizeof *always) ||
           (v->types[id] == GGUF_TOKEN_CONTROL &&
            is_one_of(token, if_control, sizeof if_control / sizeof *if_control));
}

static int add(struct end_ids *ends, const struct gguf *gguf, int id, struct error *err)
{
    if (id < 0 || end_ids_add(ends, (int32_t)id)) return 0;
    return error_set(err, ERR_UNSUPPORTED, "%s: more than %d tokens end a text", gguf_origin(gguf),
                     END_IDS_MAX);
}

/* A model that thinks aloud before it answers (gpt-oss, Solar Open) ends each part with <|end|>,
 * and its text with another token. */
static bool is_end_of_part(const struct gguf_vocabulary *v, int id, bool has_parts)
{
    return has_parts && gguf_text_is(&v->tokens[id], "<|end|>");
}

static bool has_parts(const struct gguf_vocabulary *v)
{
    bool has_return = false, has_call = false;
    for (int i = 0; i < v->n; i++) {
        const struct gguf_text *token = &v->tokens[i];
        if (token->len < 4 || token->data[1] != '|') continue;
        has_return =
            has_return || gguf_text_is(token, "<|return|>") || gguf_text_is(token, "<|flush|>");
        has_call = has_call || gguf_text_is(token, "<|call|>") || gguf_text_is(token, "<|calls|>");
    }
    return has_return && has_call;
}

int gguf_ends_read(struct end_ids *ends, const struct gguf *gguf, struct error *err)
{
    static const enum gguf_special specials[] = {GGUF_SPECIAL_EOS, GGUF_SPECIAL_EOT,
                                                 GGUF_SPECIAL_EOM};
    struct gguf_vocabulary v = {0};
    bool is_sentencepiece = false;
    int rc = 0;
    if (gguf_is_sentencepiece(gguf, &is_sentencepiece, err)) is_sentencepiece = false;
    TRY(gguf_tokens_read(&v, gguf, err));
    for (size_t i = 0; i < sizeof specials / sizeof *specials && v.n; i++) {
        int id;
        TRY(gguf_read_special_id(gguf, specials[i], v.n, is_sentencepiece, &id, err));
        TRY(add(ends, gguf, id, err));
    }
    const bool parts = has_parts(&v);
    for (int i = 0; i < v.n; i++) {
        if (!gguf_token_ends(&v, i) || is_end_of_part(&v, i, parts)) continue;
        TRY(add(ends, gguf, i, err));
    }
out:
    gguf_vocabulary_free(&v);
    return rc;
}
