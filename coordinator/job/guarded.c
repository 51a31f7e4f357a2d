/* The conversation is rendered twice: as it is, and with markers in the texts of its messages.
 * Where both are the same but for the markers, these say which special tokens hold something of a
 * message, and these are plain text. A template that looks into texts and comes to another result
 * because of the markers is asked again with fewer of them, and then the conversation is
 * refused. */
#include "coordinator/job/guarded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/tokenizer/guard.h"

enum { MARKERS = 256, MARKER_BYTES = 4 };

static bool is_at(const struct buffer *text, size_t at, const char *marker)
{
    size_t len = strlen(marker);
    return text->len - at >= len && memcmp(text->data + at, marker, len) == 0;
}

static bool has_marker(const struct buffer *text, const char *marker)
{
    for (size_t at = 0; at < text->len; at++) {
        if (is_at(text, at, marker)) return true;
    }
    return false;
}

/* A private character that the text does not have. */
static int choose_marker(char marker[MARKER_BYTES], const struct buffer *text, struct error *err)
{
    for (int i = 0; i < MARKERS; i++) { /* U+E000 and so on */
        snprintf(marker, MARKER_BYTES, "\xee%c%c", 0x80 + i / 64, 0x80 + i % 64);
        if (!has_marker(text, marker)) return 0;
    }
    return error_set(err, ERR_ARGUMENT, "messages have all of the characters U+E000 to U+E0FF");
}

struct marking {
    const struct tokenizer *tok;
    enum guard_strength strength;
    const char *marker;
    struct error *err;
};

/* Where a value is in a conversation. */
enum place {
    PLACE_MESSAGES, /* the list of all */
    PLACE_MESSAGE,
    PLACE_PARTS, /* the list of one content */
    PLACE_PART,
    PLACE_CALLS, /* the list of one message's tool calls */
    PLACE_CALL,
    PLACE_TEXT /* anything below, where texts and names are a user's or a model's */
};

static int mark(const struct marking *m, enum place place, json_t **out, json_t *value);

static int mark_string(const struct marking *m, json_t **out, const json_t *value)
{
    struct buffer text = {0};
    int rc = guard_append(&text, m->tok, m->strength, m->marker, json_string_value(value),
                          json_string_length(value), m->err);
    if (!rc) *out = json_stringn(text.data ? (const char *)text.data : "", text.len);
    buffer_free(&text);
    return rc;
}

/* Words by which templates tell messages, parts and calls apart, and which users do not write. */
static bool is_word(enum place place, const char *key)
{
    switch (place) {
    case PLACE_MESSAGE:
        return strcmp(key, "role") == 0 || strcmp(key, "tool_call_id") == 0;
    case PLACE_PART:
        return strcmp(key, "type") == 0;
    case PLACE_CALL:
        return strcmp(key, "type") == 0 || strcmp(key, "id") == 0;
    default:
        return false;
    }
}

static enum place place_of_member(enum place place, const char *key)
{
    if (place != PLACE_MESSAGE) return PLACE_TEXT;
    if (strcmp(key, "content") == 0) return PLACE_PARTS;
    return strcmp(key, "tool_calls") == 0 ? PLACE_CALLS : PLACE_TEXT;
}

static enum place place_of_item(enum place place)
{
    switch (place) {
    case PLACE_MESSAGES:
        return PLACE_MESSAGE;
    case PLACE_PARTS:
        return PLACE_PART;
    case PLACE_CALLS:
        return PLACE_CALL;
    default:
        return PLACE_TEXT;
    }
}

/* A marked key would be another one. */
static int check_key(const struct marking *m, const char *key)
{
    struct buffer text = {0};
    size_t len = strlen(key);
    int rc = guard_append(&text, m->tok, GUARD_TOKENS, m->marker, key, len, m->err);
    if (!rc && text.len != len) {
        rc = error_set(m->err, ERR_ARGUMENT,
                       "the key \"%.64s\" of a message has the text of a special token, which "
                       "cannot be kept apart from the chat template's own; leave it out",
                       key);
    }
    buffer_free(&text);
    return rc;
}

static int mark_members(const struct marking *m, enum place place, json_t *out, json_t *value)
{
    const char *key;
    json_t *member, *marked;
    json_object_foreach(value, key, member)
    {
        if (is_word(place, key)) {
            json_object_set(out, key, member);
            continue;
        }
        int rc = check_key(m, key);
        if (!rc) rc = mark(m, place_of_member(place, key), &marked, member);
        if (rc) return rc;
        json_object_set_new(out, key, marked);
    }
    return 0;
}

static int mark_items(const struct marking *m, enum place place, json_t *out, json_t *value)
{
    json_t *marked;
    for (size_t i = 0; i < json_array_size(value); i++) {
        int rc = mark(m, place_of_item(place), &marked, json_array_get(value, i));
        if (rc) return rc;
        json_array_append_new(out, marked);
    }
    return 0;
}

/* A copy of the value with marked texts. Where memory is short, it lacks something, and is not the
 * same as the conversation. After a failure *out is NULL. */
static int mark(const struct marking *m, enum place place, json_t **out, json_t *value)
{
    int rc = 0;
    *out = NULL;
    if (json_is_string(value)) {
        rc = mark_string(m, out, value);
    } else if (json_is_object(value)) {
        *out = json_object();
        rc = mark_members(m, place, *out, value);
    } else if (json_is_array(value)) {
        *out = json_array();
        rc = mark_items(m, place, *out, value);
    } else {
        *out = json_incref(value);
    }
    if (!rc && !*out) rc = error_set(m->err, ERR_NO_MEMORY, "no memory for a conversation");
    if (!rc) return 0;
    json_decref(*out);
    *out = NULL;
    return rc;
}

struct offsets {
    size_t *data, n, capacity;
};

/* Takes the markers out of the text, and notes where they were. */
static int unmark(struct buffer *text, const char *marker, struct offsets *breaks,
                  struct error *err)
{
    size_t len = 0, marker_len = strlen(marker);
    breaks->n = 0;
    for (size_t at = 0; at < text->len;) {
        if (!is_at(text, at, marker)) {
            text->data[len++] = text->data[at++];
            continue;
        }
        int rc = mem_grow(&breaks->data, &breaks->capacity, breaks->n + 1, err);
        if (rc) return rc;
        breaks->data[breaks->n++] = len;
        at += marker_len;
    }
    text->len = len;
    return 0;
}

static int render(const struct chat_prompt *g, json_t *messages, struct buffer *text,
                  struct error *err)
{
    return chat_template_render(g->chat, messages, g->adds_generation_prompt, g->values, g->now_s,
                                text, err);
}

/* Finds out if the conversation with markers of this strength is the same as `text`. A template may
 * refuse a marked text, too. */
static int try_strength(const struct chat_prompt *g, const struct marking *m,
                        const struct buffer *text, struct offsets *breaks, bool *is_same,
                        struct error *err)
{
    struct buffer marked_text = {0};
    json_t *marked = NULL;
    int rc = 0;
    *is_same = false;
    TRY(mark(m, PLACE_MESSAGES, &marked, g->messages));
    rc = render(g, marked, &marked_text, err);
    if (rc == ERR_ARGUMENT) rc = 0; /* the text is empty then */
    if (rc) goto out;
    TRY(unmark(&marked_text, m->marker, breaks, err));
    *is_same = marked_text.len == text->len &&
               (!text->len || memcmp(marked_text.data, text->data, text->len) == 0);
out:
    json_decref(marked);
    buffer_free(&marked_text);
    return rc;
}

static int find_breaks(const struct chat_prompt *g, const struct buffer *text,
                       struct offsets *breaks, struct error *err)
{
    static const enum guard_strength strengths[] = {GUARD_STARTS, GUARD_TOKENS};
    char marker[MARKER_BYTES];
    bool is_same = false;
    int rc = choose_marker(marker, text, err);
    for (size_t i = 0; i < 2 && !rc && !is_same; i++) {
        const struct marking m = {
            .tok = g->tok, .strength = strengths[i], .marker = marker, .err = err};
        rc = try_strength(g, &m, text, breaks, &is_same, err);
    }
    if (rc || is_same) return rc;
    return error_set(err, ERR_ARGUMENT,
                     "messages have a text of a special token that the chat template looks for, so "
                     "that it cannot be kept apart from the template's own; leave it out");
}

int guarded_encode(const struct chat_prompt *g, struct buffer *text, struct token_ids *ids,
                   struct error *err)
{
    struct offsets breaks = {0};
    int rc = render(g, g->messages, text, err);
    if (rc || text->len > (size_t)g->most_bytes)
        return rc; /* the caller says that it is too long */
    TRY(find_breaks(g, text, &breaks, err));
    TRY(tokenizer_encode_broken(g->tok, (const char *)text->data, text->len,
                                TOKENIZER_PARSE_SPECIAL, breaks.data, breaks.n, ids, err));
out:
    free(breaks.data);
    return rc;
}
