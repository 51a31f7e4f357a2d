/* As transformers' AutoTokenizer reads them. */
#include "model/tokenizer/named_tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/ending.h"
#include "base/text/json.h"

enum { KEY_BYTES = 32 };

/* The tokens that are being gathered; `failed` means that there was no memory. */
struct gathering {
    const json_t *vocab, *listed; /* of tokenizer.json: its vocabulary, its added_tokens */
    const json_t *added;          /* added_tokens.json */
    json_t *tokens;               /* id to token */
    bool failed;
};

/* A token is a text, or an object with its "content". */
static const json_t *text_of(const json_t *token)
{
    const json_t *text = json_is_object(token) ? json_object_get(token, "content") : token;
    return json_is_string(text) ? text : NULL;
}

static void make_key(const json_t *id, char key[KEY_BYTES])
{
    snprintf(key, KEY_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
}

/* Takes node over. */
static void put(struct gathering *g, const char *key, json_t *node, bool is_special)
{
    g->failed = g->failed || !node ||
                json_object_set_new(node, "special", json_boolean(is_special)) ||
                json_object_set(g->tokens, key, node);
    json_decref(node);
}

/* The entry of tokenizer.json's added_tokens with this content, or NULL. */
static json_t *find_listed(const struct gathering *g, const json_t *text)
{
    for (size_t i = 0; i < json_array_size(g->listed); i++) {
        json_t *node = json_array_get(g->listed, i);
        if (json_equal(json_object_get(node, "content"), text)) return node;
    }
    return NULL;
}

/* is_named: under a name such as eos_token, which makes a token special that was there already;
 * otherwise it is in a list, which changes nothing in such a token. */
static void add_token(struct gathering *g, const json_t *token, bool is_named, bool is_special)
{
    const json_t *text = text_of(token);
    char key[KEY_BYTES];
    if (!text) return;
    json_t *listed = find_listed(g, text);
    const json_t *id = json_object_get(listed, "id");
    if (!id) id = json_object_get(g->vocab, json_string_value(text));
    if (!id) id = json_object_get(g->added, json_string_value(text));
    if (!json_is_integer(id)) return;
    make_key(id, key);
    json_t *known = json_object_get(g->tokens, key);
    if (!known) known = listed;
    if (known && (!is_named || !json_is_object(known))) return; /* who reads it refuses it */
    if (known) {
        put(g, key, json_copy(known), true);
    } else {
        put(g, key,
            json_is_object(token) ? json_copy((json_t *)(uintptr_t)token)
                                  : json_pack("{s:O}", "content", text),
            is_special);
    }
}

/* A list of tokens, or an object of named ones. are_special: objects too that do not say so. */
static void add_all(struct gathering *g, const json_t *tokens, bool are_special)
{
    const char *name;
    json_t *token;
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        token = json_array_get(tokens, i);
        bool is_special = are_special || json_is_string(token);
        add_token(g, token, false, is_special || json_is_true(json_object_get(token, "special")));
    }
    json_object_foreach((json_t *)(uintptr_t)tokens, name, token)
    {
        add_token(g, token, true, true);
    }
}

static bool is_standard_name(const char *name)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) return true;
    }
    return false;
}

/* A model may have names of its own, such as image_token, for tokens that are texts. */
static bool is_name(const char *name, const json_t *token)
{
    return is_standard_name(name) || (json_is_string(token) && ending_is(name, "_token"));
}

/* The names of a file, without those that `over` has, too. */
static void add_names(struct gathering *g, const json_t *file, const json_t *over)
{
    const char *name;
    json_t *token;
    json_object_foreach((json_t *)(uintptr_t)file, name, token)
    {
        if (is_name(name, token) && !json_object_get(over, name)) add_token(g, token, true, true);
    }
}

static bool has_any(const json_t *list)
{
    return json_array_size(list) || json_object_size(list);
}

/* extra_special_tokens is the newer word for additional_special_tokens, and the config's are before
 * the map's; the map's extra ones are there besides. */
static void add_lists(struct gathering *g, const json_t *config, const json_t *map)
{
    static const char extra[] = "extra_special_tokens", old[] = "additional_special_tokens";
    const json_t *more = json_object_get(map, extra);
    const json_t *list = json_object_get(config, extra);
    if (!has_any(list)) list = json_object_get(config, old);
    bool is_of_map = !has_any(list);
    if (is_of_map) list = json_object_get(map, old);
    add_all(g, list, is_of_map);
    add_all(g, more, true);
}

/* Adds the rest of added_tokens.json, which is not special. */
static void add_rest(struct gathering *g)
{
    const char *text;
    json_t *id;
    char key[KEY_BYTES];
    json_object_foreach((json_t *)(uintptr_t)g->added, text, id)
    {
        if (!json_is_integer(id)) continue;
        make_key(id, key);
        if (json_object_get(g->tokens, key)) continue;
        put(g, key, json_pack("{s:s}", "content", text), false);
    }
}

int named_tokens_gather(json_t **out, const json_t *root, const struct named_files *files,
                        struct error *err)
{
    const json_t *decoder = json_member(files->config, "added_tokens_decoder");
    bool is_odd = decoder && !json_is_object(decoder); /* the reader says what is wrong */
    const json_t *map = decoder ? NULL : files->map;
    struct gathering g = {
        .vocab = json_object_get(json_object_get(root, "model"), "vocab"),
        .listed = json_object_get(root, "added_tokens"),
        .added = decoder ? NULL : files->added,
        .tokens = decoder ? json_copy((json_t *)(uintptr_t)decoder) : json_object(),
    };
    g.failed = !g.tokens;
    if (!is_odd && !g.failed) {
        add_names(&g, files->config, map);
        add_names(&g, map, NULL);
        add_lists(&g, files->config, map);
        add_rest(&g);
    }
    *out = json_pack("{s:o}", "added_tokens_decoder", g.tokens);
    if (*out && !g.failed) return 0;
    json_decref(*out);
    *out = NULL;
    return error_set(err, ERR_NO_MEMORY, "no memory for the tokens of a tokenizer");
}
