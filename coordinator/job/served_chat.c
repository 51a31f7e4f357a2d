/* A template that a lock guards, whose users hold references. */
#include "coordinator/job/served_chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

/* The text of one source with the special tokens of another; copies and references. */
static int combine(struct chat_source *out, const struct chat_source *text,
                   const struct chat_source *special, struct error *err)
{
    *out = (struct chat_source){.special = json_incref(special->special)};
    memcpy(out->origin, text->origin, sizeof out->origin);
    if (!text->text) return 0;
    int rc = mem_array(&out->text, text->len + 1, 1, err);
    if (rc) return rc;
    memcpy(out->text, text->text, text->len);
    out->len = text->len;
    return 0;
}

int served_chat_open(struct served_chat *served, const struct served_chat_options *options,
                     struct error *err)
{
    const char *folder = options->tokenizer ? options->tokenizer : options->draft;
    int rc = 0;
    *served = (struct served_chat){.has_own_special = options->tokenizer};
    monitor_open(&served->monitor);
    TRY(chat_source_read(&served->own, folder, options->file, err));
    served->has_own_text = options->file || (options->tokenizer && served->own.text);
    served->awaits_target = !served->has_own_text;
    if (!served->has_own_text) goto out;
    TRY(combine(&served->used, &served->own, &served->own, err));
    TRY(chat_template_make(&served->chat, &served->used, err));
out:
    if (rc) served_chat_close(served);
    return rc;
}

void served_chat_close(struct served_chat *served)
{
    chat_template_close(served->chat);
    chat_source_free(&served->used);
    chat_source_free(&served->own);
    monitor_close(&served->monitor);
    *served = (struct served_chat){0};
}

/* A source of what the group brings; it has no text or no special tokens where the group has
 * none. */
static int source_of(struct chat_source *out, const struct target_conventions *told,
                     struct error *err)
{
    *out = (struct chat_source){.special = json_object()};
    bool failed = !out->special;
    for (int i = 0; i < told->n_special && !failed; i++) {
        failed = json_object_set_new(out->special, told->special[i].name,
                                     json_string(told->special[i].text));
    }
    if (failed) return error_set(err, ERR_NO_MEMORY, "no memory for a chat template");
    snprintf(out->origin, sizeof out->origin, "%s", told->template_file);
    if (!*told->template_file) return 0;
    int rc = mem_array(&out->text, told->chat_template_len + 1, 1, err);
    if (rc) return rc;
    memcpy(out->text, told->chat_template, told->chat_template_len);
    out->len = told->chat_template_len;
    return 0;
}

/* Inside the monitor: `used` is what counts from now on. */
static void use(struct served_chat *served, struct chat_source *used)
{
    struct chat_template *chat = NULL;
    struct error err = {0};
    bool is_news = served->awaits_target || !chat_source_equal(used, &served->used);
    served->awaits_target = false;
    if (!is_news) {
        chat_source_free(used);
        return;
    }
    if (chat_template_make(&chat, used, &err)) {
        log_line(LOG_LEVEL_WARN, "chat_template_refused", "text=\"%s\"", err.text);
    }
    chat_template_close(served->chat);
    chat_source_free(&served->used);
    served->chat = chat;
    served->used = *used;
    served->refusal = err;
    /* Clients are told why, but not where the folder is. */
    size_t path_len = strlen(served->used.origin);
    if (err.code && path_len > 0 && strncmp(err.text, served->used.origin, path_len) == 0) {
        snprintf(served->refusal.text, sizeof served->refusal.text,
                 "the chat template cannot be used%.400s", err.text + path_len);
    }
    if (!used->text || !served->own.text || chat_source_equal(used, &served->own)) return;
    log_line(LOG_LEVEL_WARN, "chat_template_differs",
             "used=\"%s\" other=\"%s\" text=\"conversations are written by the target's\"",
             used->origin, served->own.origin);
}

/* Where the options decide, the target's template is not used. */
static void tell_unused(const struct served_chat *served, const struct chat_source *target)
{
    bool is_equal = target->len == served->own.len &&
                    (!target->len || memcmp(target->text, served->own.text, target->len) == 0);
    if (!target->text || is_equal) return;
    log_line(LOG_LEVEL_WARN, "chat_template_differs",
             "used=\"%s\" other=\"%s\" text=\"the target's template is not used, because an "
             "option names another\"",
             served->own.origin, target->origin);
}

void served_chat_take_target(struct served_chat *served, const struct target_conventions *told)
{
    struct chat_source target, used = {0};
    struct error err;
    int rc = source_of(&target, told, &err);
    bool has_special = target.special && json_object_size(target.special);
    monitor_enter(&served->monitor);
    bool uses_own = served->has_own_text || !target.text;
    const struct chat_source *text = uses_own ? &served->own : &target;
    bool keeps_special = served->has_own_special || !has_special;
    if (!rc) rc = combine(&used, text, keeps_special ? &served->own : &target, &err);
    if (!rc && served->has_own_text) tell_unused(served, &target);
    if (!rc) use(served, &used);
    monitor_leave(&served->monitor);
    chat_source_free(&target);
    if (!rc) return;
    chat_source_free(&used);
    log_line(LOG_LEVEL_WARN, "chat_template_refused", "text=\"%s\"", err.text);
}

int served_chat_get(struct served_chat *served, struct chat_template **chat, struct error *err)
{
    int rc = 0;
    *chat = NULL;
    monitor_enter(&served->monitor);
    if (served->chat) {
        *chat = chat_template_ref(served->chat);
    } else if (served->awaits_target) {
        rc = error_set(err, ERR_UNAVAILABLE,
                       "the chat template is the target's, and no target group has been reached "
                       "yet");
    } else if (served->refusal.code) {
        rc = error_set(err, ERR_UNSUPPORTED, "%.400s", served->refusal.text);
    } else {
        rc = error_set(err, ERR_UNSUPPORTED,
                       "this model has no chat template; send a prompt (over HTTP to "
                       "/v1/completions), or start the coordinator with --chat-template FILE");
    }
    monitor_leave(&served->monitor);
    return rc;
}

bool served_chat_has(struct served_chat *served)
{
    monitor_enter(&served->monitor);
    bool has = served->chat != NULL;
    monitor_leave(&served->monitor);
    return has;
}
