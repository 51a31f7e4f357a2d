/* Components of tokenizer.json that work on text: normalizer and pre-tokenizer. What is not known
 * is refused by name; nothing is skipped. */
#include "model/tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/memory.h"
#include "base/text/json.h"

static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static int read_type(const json_t *node, const char *role, const char **type, const char *origin,
                     struct error *err)
{
    *type = NULL;
    if (!json_is_object(node)) {
        return error_set(err, ERR_FORMAT, "%s: a %s is not an object", origin, role);
    }
    int rc = json_read_string(node, "type", type, origin, err);
    if (rc) return rc;
    if (!*type) return error_set(err, ERR_FORMAT, "%s: a %s has no \"type\"", origin, role);
    return 0;
}

/* The list of a Sequence. */
static int need_list(const json_t *node, const char *key, int depth, const json_t **list,
                     const char *origin, struct error *err)
{
    *list = json_member(node, key);
    if (!json_is_array(*list)) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" is missing or not a list", origin, key);
    }
    if (depth >= TOKENIZER_MAX_DEPTH) {
        return error_set(err, ERR_UNSUPPORTED, "%s: Sequences nest deeper than %d", origin,
                         (int)TOKENIZER_MAX_DEPTH);
    }
    return 0;
}

/* depth: the Sequences that the component is in. */
static int read_nested(struct tokenizer *tok, const struct component_role *role, const json_t *node,
                       int depth, const char *origin, struct error *err)
{
    const char *type;
    const json_t *list;
    int rc = read_type(node, role->name, &type, origin, err);
    if (rc) return rc;
    if (strcmp(type, "Sequence") != 0) return role->read(tok, node, type, origin, err);
    rc = need_list(node, role->list, depth, &list, origin, err);
    for (size_t i = 0; !rc && i < json_array_size(list); i++) {
        rc = read_nested(tok, role, json_array_get(list, i), depth + 1, origin, err);
    }
    return rc;
}

int component_read(struct tokenizer *tok, const struct component_role *role, const json_t *node,
                   const char *origin, struct error *err)
{
    return read_nested(tok, role, node, 0, origin, err);
}

int component_unknown(const char *role, const char *type, const char *origin, struct error *err)
{
    return error_set(err, ERR_UNSUPPORTED, "%s: the %s \"%.*s\" is not understood", origin, role,
                     text_shown_length(type, strlen(type), 80), type);
}

/* A member that must be there. */
static int need_string(const json_t *node, const char *key, struct text *out, const char *origin,
                       struct error *err)
{
    const json_t *value = json_member(node, key);
    if (!json_is_string(value)) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" is missing or not a string", origin, key);
    }
    *out = (struct text){json_string_value(value), json_string_length(value)};
    return 0;
}

/* A member that is one character. */
int component_need_char(const json_t *node, const char *key, char out[8], const char *origin,
                        struct error *err)
{
    struct text text = {0};
    int rc = need_string(node, key, &text, origin, err);
    if (rc) return rc;
    if (!text.len || text_char_length(text.data[0]) != text.len) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" is not one character", origin, key);
    }
    memcpy(out, text.data, text.len);
    out[text.len] = 0;
    return 0;
}

/* "pattern": {"String": ...} or {"Regex": ...}. */
static int read_pattern(const json_t *node, struct pattern *pattern, const char *origin,
                        struct error *err)
{
    const json_t *value = json_member(node, "pattern");
    const json_t *string = json_member(value, "String");
    const json_t *regex = json_member(value, "Regex");
    const json_t *found = string ? string : regex;
    if (!json_is_string(found)) {
        return error_set(err, ERR_FORMAT, "%s: a \"pattern\" is neither String nor Regex", origin);
    }
    struct text text = {json_string_value(found), json_string_length(found)};
    return pattern_compile(pattern, text, found == string, origin, err);
}

static int too_many(const char *role, int most, const char *origin, struct error *err)
{
    return error_set(err, ERR_UNSUPPORTED, "%s: a %s of more than %d stages", origin, role, most);
}

/* ---- normalizer ---- */

static int unicode_form(const char *type)
{
    static const struct {
        const char *name;
        int options;
    } forms[] = {{"NFC", UTF8PROC_COMPOSE},
                 {"NFD", UTF8PROC_DECOMPOSE},
                 {"NFKC", UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
                 {"NFKD", UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (strcmp(type, forms[i].name) == 0) return forms[i].options | UTF8PROC_STABLE;
    }
    return 0;
}

static int keep_content(struct normalizer *stage, struct text content, struct error *err)
{
    int rc = mem_array(&stage->content, content.len + 1, 1, err);
    if (rc) return rc;
    memcpy(stage->content, content.data, content.len);
    stage->content_len = content.len;
    return 0;
}

/* Replace, of a normalizer or of a decoder. */
int component_read_replace(struct normalizer *stage, const json_t *node, const char *origin,
                           struct error *err)
{
    struct text content = {0};
    stage->kind = NORMALIZER_REPLACE;
    int rc = need_string(node, "content", &content, origin, err);
    if (!rc) rc = keep_content(stage, content, err);
    return rc ? rc : read_pattern(node, &stage->pattern, origin, err);
}

static int read_prepend(struct normalizer *stage, const json_t *node, const char *origin,
                        struct error *err)
{
    struct text content = {0};
    stage->kind = NORMALIZER_PREPEND;
    int rc = need_string(node, "prepend", &content, origin, err);
    return rc ? rc : keep_content(stage, content, err);
}

static int read_normalizer(struct tokenizer *tok, const json_t *node, const char *type,
                           const char *origin, struct error *err)
{
    if (tok->normalizers.n == NORMALIZER_MAX_STAGES)
        return too_many("normalizer", NORMALIZER_MAX_STAGES, origin, err);
    struct normalizer *stage = &tok->normalizers.stages[tok->normalizers.n++];
    int form = unicode_form(type);
    if (form) {
        *stage = (struct normalizer){.kind = NORMALIZER_UNICODE, .unicode_options = form};
        return 0;
    }
    if (strcmp(type, "Prepend") == 0) return read_prepend(stage, node, origin, err);
    if (strcmp(type, "Replace") == 0) return component_read_replace(stage, node, origin, err);
    return component_unknown("normalizer", type, origin, err);
}

int tokenizer_read_normalizer(struct tokenizer *tok, const json_t *node, const char *origin,
                              struct error *err)
{
    static const struct component_role role = {"normalizer", "normalizers", read_normalizer};
    return component_read(tok, &role, node, origin, err);
}

/* ---- pre-tokenizer ---- */

static int read_byte_level(struct splitter *stage, const json_t *node, const char *origin,
                           struct error *err)
{
    bool use_regex = true;
    stage->kind = SPLITTER_BYTE_LEVEL;
    stage->behavior = SPLIT_ISOLATED;
    int rc = json_read_bool(node, "add_prefix_space", &stage->add_prefix_space, origin, err);
    if (!rc) rc = json_read_bool(node, "use_regex", &use_regex, origin, err);
    if (rc || !use_regex) return rc;
    struct text pattern = {gpt2_pattern, sizeof gpt2_pattern - 1};
    return pattern_compile(&stage->pattern, pattern, false, origin, err);
}

static int read_split(struct splitter *stage, const json_t *node, const char *origin,
                      struct error *err)
{
    static const char *const names[] = {"Removed", "Isolated", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext"};
    struct text behavior = {0};
    stage->kind = SPLITTER_PATTERN;
    int rc = need_string(node, "behavior", &behavior, origin, err);
    if (!rc) rc = json_read_bool(node, "invert", &stage->invert, origin, err);
    if (rc) return rc;
    for (int i = 0; i < 5; i++) {
        if (strcmp(behavior.data, names[i]) != 0) continue;
        stage->behavior = (enum split_behavior)i;
        return read_pattern(node, &stage->pattern, origin, err);
    }
    return component_unknown("behavior", behavior.data, origin, err);
}

static int read_prepend_scheme(enum prepend_scheme *scheme, const json_t *node, const char *origin,
                               struct error *err)
{
    const char *name = "always";
    bool add_prefix_space = true; /* how older files say it */
    *scheme = PREPEND_ALWAYS;
    int rc = json_read_string(node, "prepend_scheme", &name, origin, err);
    if (!rc) rc = json_read_bool(node, "add_prefix_space", &add_prefix_space, origin, err);
    if (rc) return rc;
    if (strcmp(name, "first") == 0) {
        *scheme = PREPEND_FIRST;
    } else if (strcmp(name, "never") == 0 || !add_prefix_space) {
        *scheme = PREPEND_NEVER;
    } else if (strcmp(name, "always") != 0) {
        return component_unknown("prepend_scheme", name, origin, err);
    }
    return 0;
}

int component_read_metaspace(struct splitter *stage, const json_t *node, const char *origin,
                             struct error *err)
{
    bool split = true;
    stage->kind = SPLITTER_METASPACE;
    stage->behavior = SPLIT_MERGED_WITH_NEXT;
    int rc = component_need_char(node, "replacement", stage->replacement, origin, err);
    if (!rc) rc = read_prepend_scheme(&stage->prepend, node, origin, err);
    if (!rc) rc = json_read_bool(node, "split", &split, origin, err);
    if (rc || !split) return rc;
    struct text pattern = {stage->replacement, strlen(stage->replacement)};
    return pattern_compile(&stage->pattern, pattern, true, origin, err);
}

static int read_digits(struct splitter *stage, const json_t *node, const char *origin,
                       struct error *err)
{
    bool individual = false;
    int rc = json_read_bool(node, "individual_digits", &individual, origin, err);
    stage->kind = SPLITTER_DIGITS;
    stage->behavior = individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
    return rc;
}

static int read_splitter(struct tokenizer *tok, const json_t *node, const char *type,
                         const char *origin, struct error *err)
{
    if (tok->n_splitters == SPLITTER_MAX_STAGES)
        return too_many("pre-tokenizer", SPLITTER_MAX_STAGES, origin, err);
    if (tok->n_splitters && tok->splitters[tok->n_splitters - 1].kind == SPLITTER_BYTE_LEVEL) {
        return error_set(err, ERR_UNSUPPORTED, "%s: the pre-tokenizer \"%.*s\" after ByteLevel",
                         origin, text_shown_length(type, strlen(type), 80), type);
    }
    struct splitter *stage = &tok->splitters[tok->n_splitters++];
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(stage, node, origin, err);
    if (strcmp(type, "Split") == 0) return read_split(stage, node, origin, err);
    if (strcmp(type, "Metaspace") == 0) return component_read_metaspace(stage, node, origin, err);
    if (strcmp(type, "Digits") == 0) return read_digits(stage, node, origin, err);
    return component_unknown("pre-tokenizer", type, origin, err);
}

int tokenizer_read_splitter(struct tokenizer *tok, const json_t *node, const char *origin,
                            struct error *err)
{
    static const struct component_role role = {"pre-tokenizer", "pretokenizers", read_splitter};
    return component_read(tok, &role, node, origin, err);
}
