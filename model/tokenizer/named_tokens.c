/* As transformers' AutoTokenizer reads them. */
#include "model/tokenizer/named_tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"

enum { KEY_BYTES = 32 };

/* What is being gathered; `failed` means that there was no memory. */
struct gathering {
    const json_t *vocab, *added;
    json_t *tokens; /* id to token */
    bool failed;
};

/* A token is a text, or an object with its "content". */
static const json_t *text_of(const json_t *token)
{
    const json_t *text = json_is_object(token) ? json_object_get(token, "content") : token;
    return json_is_string(text) ? text : NULL;
}

/* The key of what has an id and is not there yet; false: nothing is to be added. */
static bool has_new_key(const struct gathering *g, const json_t *id, char key[KEY_BYTES])
{
    if (!json_is_integer(id)) return false;
    snprintf(key, KEY_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
    return !json_object_get(g->tokens, key);
}

static void put(struct gathering *g, const char *key, json_t *node, bool is_special)
{
    g->failed = g->failed || !node ||
                json_object_set_new(node, "special", json_boolean(is_special)) ||
                json_object_set(g->tokens, key, node);
    json_decref(node);
}

static void add_named(struct gathering *g, const json_t *token)
{
    const json_t *text = text_of(token);
    char key[KEY_BYTES];
    if (!text) return;
    const json_t *id = json_object_get(g->vocab, json_string_value(text));
    if (!id) id = json_object_get(g->added, json_string_value(text));
    if (!has_new_key(g, id, key)) return;
    json_t *node = json_is_object(token) ? json_copy((json_t *)(uintptr_t)token)
                                         : json_pack("{s:O}", "content", text);
    put(g, key, node, true);
}

/* A list of tokens, or an object of them. */
static void add_all(struct gathering *g, const json_t *tokens)
{
    const char *name;
    json_t *token;
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        add_named(g, json_array_get(tokens, i));
    }
    json_object_foreach((json_t *)(uintptr_t)tokens, name, token)
    {
        add_named(g, token);
    }
}

static void add_names_of(struct gathering *g, const json_t *file)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        add_named(g, json_object_get(file, names[i]));
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        add_all(g, json_object_get(file, lists[i]));
    }
}

/* What is left of added_tokens.json is not special. */
static void add_rest(struct gathering *g)
{
    const char *text;
    json_t *id;
    char key[KEY_BYTES];
    json_object_foreach((json_t *)(uintptr_t)g->added, text, id)
    {
        if (has_new_key(g, id, key)) put(g, key, json_pack("{s:s}", "content", text), false);
    }
}

int named_tokens_gather(json_t **out, const json_t *root, const struct named_files *files,
                        struct error *err)
{
    const json_t *decoder = json_member(files->config, "added_tokens_decoder");
    bool is_odd = decoder && !json_is_object(decoder); /* the reader says what is wrong */
    struct gathering g = {
        .vocab = json_object_get(json_object_get(root, "model"), "vocab"),
        .added = files->added,
        .tokens = is_odd ? json_incref((json_t *)(uintptr_t)decoder) : json_object(),
    };
    if (!is_odd) {
        g.failed =
            !g.tokens || (decoder && json_object_update(g.tokens, (json_t *)(uintptr_t)decoder));
        add_names_of(&g, files->config);
        add_names_of(&g, files->map);
        add_rest(&g);
    }
    *out = json_pack("{s:o}", "added_tokens_decoder", g.tokens);
    if (*out && !g.failed) return 0;
    json_decref(*out);
    *out = NULL;
    return error_set(err, ERR_NO_MEMORY, "no memory for the tokens of a tokenizer");
}
