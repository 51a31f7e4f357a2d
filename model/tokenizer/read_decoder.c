/* The components of tokenizer.json that work on ids: the decoder, and the post-processor's template
 * that puts BOS and EOS around a text. */
#include "model/tokenizer/internal.h"

#include <string.h>

#include "base/text/json.h"

/* ---- decoder ---- */

static int misplaced(const char *type, const char *origin, struct error *err)
{
    return error_set(err, ERR_UNSUPPORTED, "%s: the decoder \"%.*s\" at this place", origin,
                     text_shown_length(type, strlen(type), 80), type);
}

static bool nothing_before(const struct decoder *d)
{
    return !d->replaces.n && !d->metaspace[0] && !d->byte_fallback && !d->fused && !d->byte_level;
}

static int read_metaspace(struct decoder *d, const json_t *node, const char *origin,
                          struct error *err)
{
    struct splitter stage = {0};
    int rc = component_read_metaspace(&stage, node, origin, err);
    memcpy(d->metaspace, stage.replacement, sizeof d->metaspace);
    d->drop_first = stage.prepend != PREPEND_NEVER;
    pattern_free(&stage.pattern);
    return rc;
}

static int read_strip(struct decoder *d, const json_t *node, const char *origin, struct error *err)
{
    int rc = component_need_char(node, "content", d->strip, origin, err);
    if (!rc) rc = json_read_int(node, "start", 0, 1 << 16, &d->strip_start, origin, err);
    return rc ? rc : json_read_int(node, "stop", 0, 1 << 16, &d->strip_stop, origin, err);
}

static int read_stage(struct decoder *d, const json_t *node, const char *type, const char *origin,
                      struct error *err)
{
    bool apart = !d->fused && !d->byte_level; /* tokens are not joined yet */
    if (strcmp(type, "ByteLevel") == 0) {
        d->byte_level = true;
        return 0;
    }
    if (strcmp(type, "Fuse") == 0) {
        d->fused = true;
        return 0;
    }
    if (strcmp(type, "ByteFallback") == 0) {
        if (!apart || d->byte_fallback) return misplaced(type, origin, err);
        d->byte_fallback = true;
        return 0;
    }
    if (strcmp(type, "Strip") == 0) {
        if (apart || d->strip[0]) return misplaced(type, origin, err);
        return read_strip(d, node, origin, err);
    }
    if (!apart || d->byte_fallback || d->metaspace[0] || d->replaces.n == NORMALIZER_MAX_STAGES) {
        return misplaced(type, origin, err);
    }
    return component_read_replace(&d->replaces.stages[d->replaces.n++], node, origin, err);
}

static int read_decoder(struct tokenizer *tok, const json_t *node, const char *type,
                        const char *origin, struct error *err)
{
    struct decoder *d = &tok->decoder;
    bool is_metaspace = strcmp(type, "Metaspace") == 0;
    if (is_metaspace || strcmp(type, "ByteLevel") == 0) {
        if (!nothing_before(d)) return misplaced(type, origin, err);
        if (is_metaspace) return read_metaspace(d, node, origin, err);
    }
    static const char *const known[] = {"ByteLevel", "Fuse", "ByteFallback", "Strip", "Replace"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(type, known[i]) == 0) return read_stage(d, node, type, origin, err);
    }
    return component_unknown("decoder", type, origin, err);
}

int tokenizer_read_decoder(struct tokenizer *tok, const json_t *node, const char *origin,
                           struct error *err)
{
    static const struct component_role role = {"decoder", "decoders", read_decoder};
    tok->decoder.space_between = !node;
    return node ? component_read(tok, &role, node, origin, err) : 0;
}

/* ---- template ---- */

/* Appends the ids of one special token of the template. */
static int read_special(const struct tokenizer *tok, const json_t *node, const char *name,
                        struct token_ids *ids, const char *origin, struct error *err)
{
    const json_t *token = json_member(json_member(node, "special_tokens"), name);
    const json_t *list = json_member(token, "ids");
    int shown = text_shown_length(name, strlen(name), 80);
    if (!json_is_array(list)) {
        return error_set(err, ERR_FORMAT, "%s: the template's token \"%.*s\" has no ids", origin,
                         shown, name);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= tok->table.n_ids) {
            return error_set(err, ERR_FORMAT, "%s: the template's token \"%.*s\" has an unknown id",
                             origin, shown, name);
        }
        int32_t narrow = (int32_t)id;
        int rc = token_ids_append(ids, &narrow, 1, err);
        if (rc) return rc;
    }
    return 0;
}

/* One piece of "single": a special token, or the text itself as sequence A. */
static int read_piece(const struct tokenizer *tok, const json_t *node, const json_t *piece,
                      struct token_ids sides[2], int *side, const char *origin, struct error *err)
{
    const char *name = NULL;
    const json_t *special = json_member(piece, "SpecialToken");
    const json_t *sequence = json_member(piece, "Sequence");
    int rc = json_read_string(special ? special : sequence, "id", &name, origin, err);
    if (rc) return rc;
    if (!name) {
        return error_set(err, ERR_FORMAT,
                         "%s: a template piece is neither SpecialToken nor Sequence", origin);
    }
    if (special) return read_special(tok, node, name, &sides[*side], origin, err);
    if (strcmp(name, "A") != 0 || *side) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: a template that holds another text than A, or A twice", origin);
    }
    *side = 1;
    return 0;
}

/* Puts this template around what earlier processors added. */
static int wrap_template(struct tokenizer *tok, struct token_ids sides[2], struct error *err)
{
    int rc = token_ids_append(&sides[0], tok->prefix.data, tok->prefix.n, err);
    if (!rc) rc = token_ids_append(&tok->suffix, sides[1].data, sides[1].n, err);
    if (rc) return rc;
    struct token_ids old = tok->prefix;
    tok->prefix = sides[0];
    sides[0] = old;
    return 0;
}

static int read_template(struct tokenizer *tok, const json_t *node, const char *origin,
                         struct error *err)
{
    const json_t *single = json_member(node, "single");
    struct token_ids sides[2] = {{0}, {0}};
    int side = 0, rc = 0;
    if (!json_is_array(single)) {
        return error_set(err, ERR_FORMAT, "%s: a template without a list \"single\"", origin);
    }
    for (size_t i = 0; i < json_array_size(single); i++) {
        TRY(read_piece(tok, node, json_array_get(single, i), sides, &side, origin, err));
    }
    if (!side) {
        rc = error_set(err, ERR_UNSUPPORTED, "%s: a template without its text", origin);
        goto out;
    }
    TRY(wrap_template(tok, sides, err));
out:
    token_ids_free(&sides[0]);
    token_ids_free(&sides[1]);
    return rc;
}

static int read_post_processor(struct tokenizer *tok, const json_t *node, const char *type,
                               const char *origin, struct error *err)
{
    if (strcmp(type, "ByteLevel") == 0) return 0; /* trims offsets, which are not used here */
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(tok, node, origin, err);
    return component_unknown("post-processor", type, origin, err);
}

int tokenizer_read_template(struct tokenizer *tok, const json_t *node, const char *origin,
                            struct error *err)
{
    static const struct component_role role = {"post-processor", "processors", read_post_processor};
    return component_read(tok, &role, node, origin, err);
}
