/* SentencePiece's tokenizer becomes what transformers makes of Llama 2's, with the blank before a
 * text as a normalizer, or of Gemma's, which has none; byte-level BPE what the name in
 * tokenizer.ggml.pre says. add_space_prefix means nothing to byte-level BPE, for llama.cpp and
 * transformers too. */
#include "model/tokenizer/gguf/components.h"

#include <string.h>

#include "model/tokenizer/gguf/ends.h"
#include "model/tokenizer/gguf/pre_tokenizers.h"

enum { ADDED_TOKENS_MAX = 1 << 18 };

static const char space_mark[] = "\xe2\x96\x81";

/* The keys of the metadata, with the defaults of those that are missing. */
struct convention {
    bool is_sentencepiece;
    const struct pre_tokenizer *pre; /* of byte-level BPE */
    bool adds_bos, adds_eos, adds_blank, strips_blanks;
    int bos_id, eos_id, unknown_id; /* -1 = none */
};

static int no_memory(struct error *err)
{
    return error_set(err, ERR_NO_MEMORY, "no memory for the tokenizer of a GGUF file");
}

static int read_pre(struct convention *c, const struct gguf *gguf, const char **remark,
                    struct error *err)
{
    struct gguf_text name = {0};
    int rc = gguf_read_text(gguf, "tokenizer.ggml.pre", &name, err);
    if (rc) return rc;
    if (name.len) return pre_tokenizer_find(&c->pre, &name, gguf_origin(gguf), err);
    c->pre = pre_tokenizer_at(0);
    *remark = "the file has no tokenizer.ggml.pre, so texts are cut into words in a general way, "
              "and the model may see other tokens than it was trained with: have the file made "
              "again by a newer converter";
    return 0;
}

static int read_convention(struct convention *c, const struct gguf *gguf, int n,
                           const char **remark, struct error *err)
{
    int rc = 0;
    TRY(gguf_is_sentencepiece(gguf, &c->is_sentencepiece, err));
    bool is = c->is_sentencepiece;
    *c = (struct convention){.is_sentencepiece = is, .adds_bos = is, .adds_blank = is};
    if (!is) TRY(read_pre(c, gguf, remark, err));
    if (!is) c->adds_bos = c->pre->flags & PRE_ADDS_BOS;
    TRY(gguf_read_bool(gguf, "tokenizer.ggml.add_bos_token", &c->adds_bos, err));
    TRY(gguf_read_bool(gguf, "tokenizer.ggml.add_eos_token", &c->adds_eos, err));
    TRY(gguf_read_bool(gguf, "tokenizer.ggml.add_space_prefix", &c->adds_blank, err));
    TRY(gguf_read_bool(gguf, "tokenizer.ggml.remove_extra_whitespaces", &c->strips_blanks, err));
    TRY(gguf_read_special_id(gguf, GGUF_SPECIAL_BOS, n, is, &c->bos_id, err));
    TRY(gguf_read_special_id(gguf, GGUF_SPECIAL_EOS, n, is, &c->eos_id, err));
    TRY(gguf_read_special_id(gguf, GGUF_SPECIAL_UNKNOWN, n, is, &c->unknown_id, err));
out:
    return rc;
}

/* ---- SentencePiece ---- */

static json_t *replace(const char *kind, const char *pattern, const char *content)
{
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", kind, pattern, "content",
                     content);
}

/* Returns the node with one member more, or NULL: there is no memory. Takes both references over.
 * json_pack would lose those that come after one that fails. */
static json_t *with_member(json_t *node, const char *key, json_t *value)
{
    if (!json_object_set_new(node, key, value)) return node;
    json_decref(node);
    return NULL;
}

static json_t *with_element(json_t *list, json_t *value)
{
    if (!json_array_append_new(list, value)) return list;
    json_decref(list);
    return NULL;
}

static json_t *of_type(const char *type)
{
    return json_pack("{s:s}", "type", type);
}

static json_t *sequence(const char *key, json_t *list)
{
    return with_member(of_type("Sequence"), key, list);
}

static json_t *sentencepiece_normalizer(const struct convention *c)
{
    json_t *list = json_array();
    if (c->strips_blanks) {
        list = with_element(list, replace("Regex", "\\A +| +\\z", ""));
        list = with_element(list, replace("Regex", " {2,}", " "));
    }
    if (c->adds_blank) {
        list =
            with_element(list, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", space_mark));
    }
    return sequence("normalizers", with_element(list, replace("String", " ", space_mark)));
}

static json_t *sentencepiece_decoder(const struct convention *c)
{
    json_t *list = with_element(json_array(), replace("String", space_mark, " "));
    list = with_element(list, of_type("ByteFallback"));
    list = with_element(list, of_type("Fuse"));
    if (c->adds_blank) {
        list = with_element(list, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ",
                                            "start", 1, "stop", 0));
    }
    return sequence("decoders", list);
}

static json_t *sentencepiece_model(const struct convention *c, const struct gguf_vocabulary *v)
{
    json_t *model = json_pack("{s:s, s:b, s:b}", "type", "BPE", "byte_fallback", 1, "fuse_unk", 1);
    if (c->unknown_id < 0 || !v->tokens[c->unknown_id].len) return model;
    struct gguf_text unknown = v->tokens[c->unknown_id];
    return with_member(model, "unk_token", json_stringn(unknown.data, unknown.len));
}

static json_t *make_sentencepiece(const struct convention *c, const struct gguf_vocabulary *v)
{
    json_t *root = with_member(json_object(), "model", sentencepiece_model(c, v));
    root = with_member(root, "normalizer", sentencepiece_normalizer(c));
    return with_member(root, "decoder", sentencepiece_decoder(c));
}

/* ---- byte-level BPE ---- */

static json_t *splitter(const struct pre_tokenizer *pre)
{
    json_t *list = json_array();
    for (int i = 0; i < PRE_TOKENIZER_STAGES && pre->patterns[i]; i++) {
        list = with_element(list, json_pack("{s:s, s:{s:s}, s:s}", "type", "Split", "pattern",
                                            "Regex", pre->patterns[i], "behavior", "Isolated"));
    }
    return sequence("pretokenizers",
                    with_element(list, json_pack("{s:s, s:b, s:b}", "type", "ByteLevel",
                                                 "add_prefix_space", 0, "use_regex", 0)));
}

static json_t *make_byte_level(const struct convention *c)
{
    bool ignores_merges = c->pre->flags & PRE_IGNORES_MERGES;
    json_t *root = json_pack("{s:{s:s, s:b}, s:{s:s}}", "model", "type", "BPE", "ignore_merges",
                             (int)ignores_merges, "decoder", "type", "ByteLevel");
    root = with_member(root, "pre_tokenizer", splitter(c->pre));
    return c->pre->flags & PRE_NFC ? with_member(root, "normalizer", of_type("NFC")) : root;
}

/* ---- added tokens and the template ---- */

/* The reader takes texts that end in a NUL. n: the added tokens before this one. */
static int check_added(const struct gguf *gguf, struct gguf_text token, int id, size_t n,
                       struct error *err)
{
    if (n >= ADDED_TOKENS_MAX) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: more than %d tokens of tokenizer.ggml.tokens are no normal ones",
                         gguf_origin(gguf), (int)ADDED_TOKENS_MAX);
    }
    if (!memchr(token.data, 0, token.len)) return 0;
    return error_set(err, ERR_UNSUPPORTED, "%s: the special token %d holds a NUL",
                     gguf_origin(gguf), id);
}

/* llama.cpp takes tokens that end a text for special whatever their type says. */
static int make_added(json_t **out, const struct gguf *gguf, const struct gguf_vocabulary *v,
                      struct error *err)
{
    int rc = 0;
    json_t *list = json_array();
    for (int i = 0; i < v->n && list; i++) {
        bool is_special = v->types[i] == GGUF_TOKEN_CONTROL || v->types[i] == GGUF_TOKEN_UNKNOWN ||
                          gguf_token_ends(v, i);
        if (!v->tokens[i].len || (!is_special && v->types[i] != GGUF_TOKEN_USER_DEFINED)) continue;
        TRY(check_added(gguf, v->tokens[i], i, json_array_size(list), err));
        json_t *token = json_pack("{s:i, s:s%, s:b, s:b}", "id", i, "content", v->tokens[i].data,
                                  v->tokens[i].len, "special", (int)is_special, "normalized", 0);
        if (json_array_append_new(list, token)) {
            rc = no_memory(err);
            goto out;
        }
    }
    if (!list) rc = no_memory(err);
out:
    if (rc) {
        json_decref(list);
        list = NULL;
    }
    *out = list;
    return rc;
}

/* NULL: there is no memory. */
static json_t *make_template(const struct convention *c)
{
    json_t *single = json_array();
    if (c->adds_bos && c->bos_id >= 0) {
        single = with_element(single, json_pack("{s:{s:s}}", "SpecialToken", "id", "bos"));
    }
    single = with_element(single, json_pack("{s:{s:s}}", "Sequence", "id", "A"));
    if (c->adds_eos && c->eos_id >= 0) {
        single = with_element(single, json_pack("{s:{s:s}}", "SpecialToken", "id", "eos"));
    }
    return with_member(json_pack("{s:s, s:{s:{s:[i]}, s:{s:[i]}}}", "type", "TemplateProcessing",
                                 "special_tokens", "bos", "ids", c->bos_id, "eos", "ids",
                                 c->eos_id),
                       "single", single);
}

int gguf_components_make(json_t **root, const struct gguf *gguf, const struct gguf_vocabulary *v,
                         const char **remark, struct error *err)
{
    struct convention c = {0};
    json_t *made = NULL, *added = NULL;
    int rc = 0;
    *root = NULL;
    *remark = NULL;
    TRY(read_convention(&c, gguf, v->n, remark, err));
    TRY(make_added(&added, gguf, v, err));
    made = c.is_sentencepiece ? make_sentencepiece(&c, v) : make_byte_level(&c);
    if (!made || json_object_set(made, "added_tokens", added) ||
        json_object_set_new(made, "post_processor", make_template(&c))) {
        rc = no_memory(err);
        goto out;
    }
    *root = made;
    made = NULL;
out:
    json_decref(made);
    json_decref(added);
    return rc;
}
