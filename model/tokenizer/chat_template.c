/* The template of a model's folder or GGUF file, and the values that it is given. */
#include "model/tokenizer/chat_template.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/system/file.h"
#include "base/text/json.h"
#include "model/jinja/jinja.h"
#include "model/tokenizer/gguf/chat.h"

enum { PATH_BYTES = CHAT_TEMPLATE_PATH_BYTES, FILE_BYTES_MAX = 16 << 20 };

struct chat_template {
    atomic_int n_holders;
    struct jinja *jinja;
    json_t *special; /* texts of special tokens by name */
    bool takes_parts;
    char origin[PATH_BYTES];
};

/* ---- the files of a folder ---- */

static int set_path(char path[PATH_BYTES], const char *folder, const char *name, struct error *err)
{
    int len = snprintf(path, PATH_BYTES, "%s%s%s", folder, *folder ? "/" : "", name);
    if (len < PATH_BYTES) return 0;
    return error_set(err, ERR_ARGUMENT, "a path has more than %d bytes: %s", PATH_BYTES - 1, name);
}

/* Reads FOLDER/NAME; *root is NULL where there is no such file. */
static int read_json(char path[PATH_BYTES], const char *folder, const char *name, json_t **root,
                     struct error *err)
{
    char *text = NULL;
    size_t len;
    *root = NULL;
    int rc = set_path(path, folder, name, err);
    if (!rc) rc = file_read_text(&text, &len, path, FILE_BYTES_MAX, err);
    if (rc == ERR_NOT_FOUND) return 0;
    if (!rc) rc = json_parse_text(root, text, len, path, err);
    free(text);
    return rc;
}

/* ---- the template ---- */

static int keep_text(struct chat_source *source, const char *text, size_t len, struct error *err)
{
    int rc = mem_array(&source->text, len + 1, 1, err);
    if (rc) return rc;
    memcpy(source->text, text, len);
    source->len = len;
    return 0;
}

static int take_file(struct chat_source *source, struct error *err)
{
    return file_read_text(&source->text, &source->len, source->origin, FILE_BYTES_MAX, err);
}

/* The template "default" of a list of {"name": ..., "template": ...}, of which the last one counts,
 * or of an object with a member for each name; or NULL. "tool_use", which transformers takes where
 * tools are given, is not read, because no request has tools. */
static const json_t *named_default(const json_t *named)
{
    const json_t *found = json_object_get(named, "default");
    for (size_t i = 0; i < json_array_size(named); i++) {
        const json_t *one = json_array_get(named, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && strcmp(name, "default") == 0) found = json_object_get(one, "template");
    }
    return found;
}

/* Reads "chat_template" of a file in JSON, if it has that member. */
static int take_member(struct chat_source *source, const json_t *root, struct error *err)
{
    const json_t *template = json_member(root, "chat_template");
    if (!template) return 0;
    const char *named = json_is_array(template)    ? "a list"
                        : json_is_object(template) ? "an object"
                                                   : NULL;
    if (named) template = named_default(template);
    if (json_is_string(template)) {
        return keep_text(source, json_string_value(template), json_string_length(template), err);
    }
    if (!named) {
        return error_set(err, ERR_FORMAT,
                         "%s: \"chat_template\" is neither a text nor a list or an object of named "
                         "texts",
                         source->origin);
    }
    return error_set(err, ERR_FORMAT,
                     "%s: \"chat_template\" is %s without a template called \"default\"; name a "
                     "file with --chat-template",
                     source->origin, named);
}

/* Leaves source->text NULL where there is no template. config: tokenizer_config.json, or NULL. */
static int find_template(struct chat_source *source, const char *folder, const json_t *config,
                         struct error *err)
{
    int rc = 0;
    json_t *root = NULL;
    TRY(set_path(source->origin, folder, "chat_template.jinja", err));
    rc = take_file(source, err);
    if (rc != ERR_NOT_FOUND) goto out;
    TRY(read_json(source->origin, folder, "chat_template.json", &root, err));
    if (root) TRY(take_member(source, root, err));
    if (source->text || !config) goto out;
    TRY(set_path(source->origin, folder, "tokenizer_config.json", err));
    TRY(take_member(source, config, err));
out:
    json_decref(root);
    return rc;
}

/* ---- special tokens ---- */

/* A token is a text, or an object with its "content". */
static json_t *token_text(const json_t *file, const char *name)
{
    json_t *token = json_object_get(file, name);
    json_t *content = json_is_object(token) ? json_object_get(token, "content") : token;
    return json_is_string(content) ? content : NULL;
}

/* The files are NULL where they are missing. */
static int set_special(struct chat_source *source, const json_t *config, const json_t *map,
                       struct error *err)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    source->special = json_object();
    int failed = !source->special;
    for (size_t i = 0; i < sizeof names / sizeof *names && !failed; i++) {
        json_t *text = token_text(config, names[i]);
        if (!text) text = token_text(map, names[i]);
        if (text) failed = json_object_set(source->special, names[i], text);
    }
    return failed ? error_set(err, ERR_NO_MEMORY, "no memory for a chat template") : 0;
}

/* Reads the template of a GGUF file; without one source->text stays NULL. */
static int take_gguf(struct chat_source *source, const struct gguf *gguf, struct error *err)
{
    struct gguf_text text;
    int rc = gguf_chat_template(&text, gguf, err);
    if (rc || !text.len) return rc;
    if (text.len <= FILE_BYTES_MAX) return keep_text(source, text.data, text.len, err);
    return error_set(err, ERR_UNSUPPORTED, "%s: the chat template has %zu bytes, more than %d",
                     source->origin, text.len, (int)FILE_BYTES_MAX);
}

/* Reads the file that a user names: a template, or a GGUF file that has one. */
static int take_named(struct chat_source *source, const char *file, struct error *err)
{
    struct gguf *gguf = NULL;
    int rc = 0;
    TRY(set_path(source->origin, "", file, err));
    if (!gguf_is_file(file)) return take_file(source, err);
    TRY(gguf_open(&gguf, file, err));
    TRY(take_gguf(source, gguf, err));
    if (!source->text) {
        rc = error_set(err, ERR_NOT_FOUND,
                       "%s has no chat template: the key "
                       "tokenizer.chat_template is missing",
                       file);
    }
out:
    gguf_close(gguf);
    return rc;
}

/* The special tokens of a GGUF file, and its template unless `file` names another one. */
static int read_gguf(struct chat_source *source, const char *path, const char *file,
                     struct error *err)
{
    struct gguf *gguf = NULL;
    int rc = 0;
    TRY(gguf_open(&gguf, path, err));
    TRY(gguf_special_texts(&source->special, gguf, err));
    TRY(set_path(source->origin, "", path, err));
    TRY(file ? take_named(source, file, err) : take_gguf(source, gguf, err));
out:
    gguf_close(gguf);
    return rc;
}

int chat_source_read(struct chat_source *source, const char *folder, const char *file,
                     struct error *err)
{
    int rc = 0;
    char path[PATH_BYTES];
    json_t *config = NULL, *map = NULL;
    *source = (struct chat_source){0};
    if (folder && gguf_is_file(folder)) return read_gguf(source, folder, file, err);
    if (folder) TRY(read_json(path, folder, "tokenizer_config.json", &config, err));
    if (folder) TRY(read_json(path, folder, "special_tokens_map.json", &map, err));
    TRY(set_special(source, config, map, err));
    if (file) {
        TRY(take_named(source, file, err));
    } else if (folder) {
        TRY(find_template(source, folder, config, err));
    }
out:
    json_decref(config);
    json_decref(map);
    return rc;
}

bool chat_source_equal(const struct chat_source *a, const struct chat_source *b)
{
    if (!a->text || !b->text) return a->text == b->text;
    return a->len == b->len && memcmp(a->text, b->text, a->len) == 0 &&
           json_equal(a->special, b->special);
}

void chat_source_free(struct chat_source *source)
{
    free(source->text);
    json_decref(source->special);
    *source = (struct chat_source){0};
}

/* ---- open and close ---- */

/* Errors of rendering go to clients, so they do not name the file; those of reading do. */
static int parse(struct chat_template *chat, const char *text, size_t len, struct error *err)
{
    int rc = jinja_parse(&chat->jinja, text, len, "the chat template", err);
    return rc ? error_wrap(err, "%s", chat->origin) : 0;
}

/* Renders the same message twice, as a text and as a list with one part. */
static int try_parts(struct chat_template *chat, struct error *err)
{
    struct buffer plain = {0}, parts = {0};
    json_t *text = json_pack("[{s:s,s:s}]", "role", "user", "content", "words");
    json_t *list = json_pack("[{s:s,s:[{s:s,s:s}]}]", "role", "user", "content", "type", "text",
                             "text", "words");
    int rc = text && list ? 0 : error_set(err, ERR_NO_MEMORY, "no memory for a chat template");
    if (!rc) rc = chat_template_render(chat, text, true, NULL, 0, &plain, err);
    if (!rc) rc = chat_template_render(chat, list, true, NULL, 0, &parts, err);
    chat->takes_parts = !rc && plain.len && plain.len == parts.len &&
                        memcmp(plain.data, parts.data, plain.len) == 0;
    buffer_free(&plain);
    buffer_free(&parts);
    json_decref(text);
    json_decref(list);
    return rc == ERR_NO_MEMORY ? rc : 0;
}

int chat_template_make(struct chat_template **out, const struct chat_source *source,
                       struct error *err)
{
    int rc = 0;
    struct chat_template *chat = NULL;
    *out = NULL;
    if (!source->text) return 0;
    TRY(mem_array(&chat, 1, sizeof *chat, err));
    atomic_init(&chat->n_holders, 1);
    chat->special = json_incref(source->special);
    memcpy(chat->origin, source->origin, sizeof chat->origin);
    TRY(parse(chat, source->text, source->len, err));
    TRY(try_parts(chat, err));
    *out = chat;
    chat = NULL;
out:
    chat_template_close(chat);
    return rc;
}

int chat_template_open(struct chat_template **out, const char *folder, const char *file,
                       struct error *err)
{
    struct chat_source source;
    *out = NULL;
    int rc = chat_source_read(&source, folder, file, err);
    if (!rc) rc = chat_template_make(out, &source, err);
    chat_source_free(&source);
    return rc;
}

struct chat_template *chat_template_ref(struct chat_template *chat)
{
    atomic_fetch_add(&chat->n_holders, 1);
    return chat;
}

void chat_template_close(struct chat_template *chat)
{
    if (!chat || atomic_fetch_sub(&chat->n_holders, 1) > 1) return;
    jinja_close(chat->jinja);
    json_decref(chat->special);
    free(chat);
}

const char *chat_template_origin(const struct chat_template *chat)
{
    return chat->origin;
}

bool chat_template_takes_parts(const struct chat_template *chat)
{
    return chat->takes_parts;
}

/* ---- rendering ---- */

static int set_if_missing(json_t *values, const char *name)
{
    return json_object_get(values, name) ? 0 : json_object_set_new(values, name, json_null());
}

/* Makes the values that the template is given; NULL when memory is short. */
static json_t *make_values(const struct chat_template *chat, json_t *messages,
                           bool add_generation_prompt, json_t *more)
{
    json_t *values = json_object(); /* json_copy drops members without notice if memory is short */
    bool is_made = values && !(chat->special && json_object_update(values, chat->special)) &&
                   (!more || !json_object_update(values, more)) &&
                   !json_object_set(values, "messages", messages) &&
                   !json_object_set_new(values, "add_generation_prompt",
                                        json_boolean(add_generation_prompt)) &&
                   !set_if_missing(values, "tools") && !set_if_missing(values, "documents");
    if (is_made) return values;
    json_decref(values);
    return NULL;
}

int chat_template_render(const struct chat_template *chat, json_t *messages,
                         bool add_generation_prompt, json_t *more, int64_t now_s,
                         struct buffer *text, struct error *err)
{
    static const struct jinja_limits limits = {CHAT_TEMPLATE_STEPS, CHAT_TEMPLATE_DEPTH,
                                               CHAT_TEMPLATE_MEMORY_BYTES};
    text->len = 0;
    json_t *values = make_values(chat, messages, add_generation_prompt, more);
    if (!values) return error_set(err, ERR_NO_MEMORY, "no memory for a conversation");
    int rc = jinja_render(chat->jinja, values, now_s, &limits, text, err);
    json_decref(values);
    return rc;
}
