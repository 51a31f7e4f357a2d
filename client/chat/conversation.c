/* Messages are kept as a request takes them. */
#include "client/chat/conversation.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "client/client.h"

/* The literals that messages keep. */
static const char *const roles[] = {"system", "user", "assistant"};
enum { N_ROLES = 3 };

static char *copy_of(const char *text, size_t len)
{
    char *copy = malloc(len + 1);
    if (!copy) return NULL;
    if (len) memcpy(copy, text, len); /* an answer that was stopped at once has no text */
    copy[len] = '\0';
    return copy;
}

static int insert(struct conversation *c, size_t at, const char *role, const char *text, size_t len,
                  struct error *err)
{
    int rc = 0;
    if (c->n == GENERATE_MESSAGES_MAX) {
        return error_set(err, ERR_EXHAUSTED, "a conversation has at most %d messages",
                         GENERATE_MESSAGES_MAX);
    }
    TRY(mem_grow(&c->messages, &c->capacity, c->n + 1, err));
    char *copy = copy_of(text, len);
    if (!copy) return error_set(err, ERR_NO_MEMORY, "no memory for a message of %zu bytes", len);
    memmove(c->messages + at + 1, c->messages + at, (c->n - at) * sizeof *c->messages);
    c->messages[at] = (struct chat_message){role, copy, len};
    c->n++;
out:
    return rc;
}

static void forget(const struct chat_message *message)
{
    union {
        const char *lent;
        char *owned;
    } text = {message->content};
    free(text.owned);
}

int conversation_add(struct conversation *c, const char *role, const char *text, size_t len,
                     struct error *err)
{
    return insert(c, c->n, role, text, len, err);
}

static bool has_system(const struct conversation *c)
{
    return c->n && strcmp(c->messages[0].role, roles[0]) == 0;
}

const char *conversation_system(const struct conversation *c)
{
    return has_system(c) ? c->messages[0].content : NULL;
}

int conversation_set_system(struct conversation *c, const char *text, struct error *err)
{
    if (has_system(c)) {
        forget(&c->messages[0]);
        c->n--;
        memmove(c->messages, c->messages + 1, c->n * sizeof *c->messages);
    }
    return *text ? insert(c, 0, roles[0], text, strlen(text), err) : 0;
}

bool conversation_drop(struct conversation *c)
{
    if (c->n <= (has_system(c) ? 1U : 0U)) return false;
    forget(&c->messages[--c->n]);
    return true;
}

bool conversation_ends_with(const struct conversation *c, const char *role)
{
    return c->n && strcmp(c->messages[c->n - 1].role, role) == 0;
}

void conversation_free(struct conversation *c)
{
    for (size_t i = 0; i < c->n; i++)
        forget(&c->messages[i]);
    free(c->messages);
    *c = (struct conversation){0};
}

int conversation_text(const struct conversation *c, struct buffer *text, struct error *err)
{
    bool may_need_line = false;
    int rc = 0;
    text->len = 0;
    for (size_t i = has_system(c) ? 1 : 0; i < c->n; i++) {
        const struct chat_message *message = &c->messages[i];
        bool is_user = strcmp(message->role, roles[1]) == 0;
        bool is_open = text->len && text->data[text->len - 1] != '\n';
        if (is_user && may_need_line && is_open && message->content_len) {
            TRY(buffer_append(text, "\n", 1, err));
        }
        TRY(buffer_append(text, message->content, message->content_len, err));
        may_need_line = true;
    }
out:
    return rc;
}

int conversation_save(const struct conversation *c, const char *path, struct error *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->n; i++) {
        const struct chat_message *message = &c->messages[i];
        json_array_append_new(list,
                              json_pack("{ss so}", "role", message->role, "content",
                                        client_json_text(message->content, message->content_len)));
    }
    json_t *object = json_pack("{so}", "messages", list);
    bool is_whole = object && json_array_size(list) == c->n;
    int rc = is_whole ? 0 : error_set(err, ERR_NO_MEMORY, "no memory for the conversation");
    if (!rc && json_dump_file(object, path, JSON_INDENT(2))) {
        rc = error_set(err, ERR_IO, "cannot write %.200s: %s", path, strerror(errno));
    }
    json_decref(object);
    return rc;
}

static int take_message(struct conversation *c, const json_t *value, size_t i, const char *path,
                        struct error *err)
{
    const json_t *content = json_object_get(value, "content");
    const char *role = json_string_value(json_object_get(value, "role"));
    for (int known = 0; role && known < N_ROLES; known++) {
        if (strcmp(role, roles[known]) != 0 || !json_is_string(content)) continue;
        return conversation_add(c, roles[known], json_string_value(content),
                                json_string_length(content), err);
    }
    return error_set(err, ERR_FORMAT,
                     "%.200s: message %zu needs a \"role\", which is system, user or assistant, "
                     "and a text as its \"content\"",
                     path, i);
}

int conversation_load(struct conversation *c, const char *path, struct error *err)
{
    json_error_t wrong;
    struct conversation loaded = {0};
    json_t *root = json_load_file(path, 0, &wrong);
    const json_t *list = json_is_object(root) ? json_object_get(root, "messages") : root;
    int rc = 0;
    if (!root) {
        rc = error_set(err, ERR_FORMAT, "cannot read %.200s: %.160s", path, wrong.text);
    } else if (!json_is_array(list)) {
        rc = error_set(err, ERR_FORMAT, "%.200s has no list \"messages\"", path);
    }
    for (size_t i = 0; !rc && i < json_array_size(list); i++) {
        rc = take_message(&loaded, json_array_get(list, i), i, path, err);
    }
    json_decref(root);
    struct conversation *old = rc ? &loaded : c;
    conversation_free(old);
    if (!rc) *c = loaded;
    return rc;
}
