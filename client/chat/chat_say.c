/* A message goes out, and its answer is shown as it comes. */
#include <stdlib.h>
#include <string.h>

#include "client/chat/answer.h"
#include "client/chat/chat.h"
#include "client/client.h"
#include "client/figures/figures.h"
#include "client/painter.h"

enum { PLAIN_TOKENS = 128 /* of an answer that no template ends, unless told otherwise */ };

void chat_tell(const struct error *err)
{
    fflush(stdout);
    client_fail(err);
}

/* ---- showing ---- */

static void show(struct chat *chat, const struct generate_tokens *tokens)
{
    if (chat->has_colors) {
        painter_drafts(&chat->terminal, tokens, &chat->ends_with_line);
    } else if (tokens->text_len) {
        terminal_text(&chat->terminal, tokens->text, tokens->text_len);
        chat->ends_with_line = tokens->text[tokens->text_len - 1] == '\n';
    }
}

static int take(void *arg, const struct generate_tokens *tokens, struct error *err)
{
    struct chat *chat = arg;
    struct terminal painted = chat->terminal;
    int rc = 0;
    TRY(buffer_append(&chat->answer, tokens->text, tokens->text_len, err));
    painted.out = chat->painting;
    painter_drafts(&painted, tokens, &chat->paint_ends_with_line);
    show(chat, tokens);
    TRY(client_flush(err));
out:
    return rc;
}

static int look(void *arg, struct error *err)
{
    struct chat *chat = arg;
    int n_toggles, rc = lines_look(chat->lines, &n_toggles, err);
    if (n_toggles % 2) chat->has_colors = !chat->has_colors;
    return rc;
}

static void end_line(struct chat *chat)
{
    if (!chat->ends_with_line) fputc('\n', stdout);
    chat->ends_with_line = true;
}

void chat_show_again(struct chat *chat)
{
    chat->has_colors = !chat->has_colors;
    if (!chat->answer.len) {
        terminal_style(&chat->terminal, STYLE_DIM);
        printf("guesses are %s from now on", chat->has_colors ? "shown" : "hidden");
        terminal_style(&chat->terminal, STYLE_PLAIN);
        fputc('\n', stdout);
        return;
    }
    fflush(chat->painting);
    if (chat->has_colors) {
        fwrite(chat->painted, 1, chat->painted_len, stdout);
        if (!chat->paint_ends_with_line) fputc('\n', stdout);
    } else {
        terminal_text(&chat->terminal, (const char *)chat->answer.data, chat->answer.len);
        if (chat->answer.data[chat->answer.len - 1] != '\n') fputc('\n', stdout);
    }
}

static void keep_figures(struct chat *chat, const struct generate_summary *summary)
{
    struct terminal kept = chat->terminal;
    free(chat->figures);
    chat->figures = NULL;
    kept.out = open_memstream(&chat->figures, &chat->figures_len);
    if (!kept.out) return;
    figures_show(&kept, summary);
    fclose(kept.out);
}

/* Below an answer, on a terminal. */
static void show_figures(const struct chat *chat, const struct generate_summary *summary)
{
    const struct figures figures = figures_of(summary);
    if (!chat->is_edited) return;
    terminal_style(&chat->terminal, STYLE_DIM);
    printf("%d tokens in %u rounds, %.1f tokens/s", summary->completion_tokens,
           summary->counters.rounds, figures.total_tokens_per_s);
    if (strcmp(summary->finish_reason, "length") == 0)
        fputs("; cut at its greatest length", stdout);
    terminal_style(&chat->terminal, STYLE_PLAIN);
    fputc('\n', stdout);
}

/* ---- asking ---- */

static int fill_request(struct chat *chat, struct generate_request *request, struct buffer *text,
                        struct error *err)
{
    int rc = 0;
    *request = chat->options.request;
    request->show_drafts = chat->is_edited || chat->has_colors;
    if (chat->has_no_guesses) {
        request->n_draft = 0;
        request->strategy = STRATEGY_FIXED;
        request->has_threshold = false;
    }
    if (!chat->is_plain) {
        request->messages = chat->conversation.messages;
        request->n_messages = (int)chat->conversation.n;
        return 0;
    }
    if (!request->max_tokens) request->max_tokens = PLAIN_TOKENS;
    TRY(conversation_text(&chat->conversation, text, err));
    request->prompt = text->len ? (const char *)text->data : "";
    request->prompt_len = text->len;
out:
    return rc;
}

static int begin_answer(struct chat *chat, struct error *err)
{
    if (chat->painting) fclose(chat->painting);
    free(chat->painted);
    chat->painted = NULL;
    chat->answer.len = 0;
    chat->ends_with_line = chat->paint_ends_with_line = true; /* nothing has been shown */
    chat->painting = open_memstream(&chat->painted, &chat->painted_len);
    return chat->painting ? 0 : error_set(err, ERR_NO_MEMORY, "no memory for the answer");
}

static int get_answer(struct chat *chat, struct generate_summary *summary, struct error *err)
{
    struct generate_request request;
    struct buffer text = {0};
    int rc = 0;
    TRY(fill_request(chat, &request, &text, err));
    TRY(begin_answer(chat, err));
    lines_begin_keys(chat->lines);
    server_watch(&chat->server, look, chat);
    rc = answer_get(&chat->server, &request, take, chat, summary, err);
    server_watch(&chat->server, NULL, NULL);
    lines_end_keys(chat->lines);
out:
    buffer_free(&text);
    return rc;
}

/* The message without an answer goes, so that the conversation is as before; /retry has it. */
static int fail(struct chat *chat, struct error *err)
{
    const struct chat_message *last = &chat->conversation.messages[chat->conversation.n - 1];
    struct error no_memory;
    chat->failed.len = 0;
    buffer_append(&chat->failed, last->content, last->content_len, &no_memory);
    conversation_drop(&chat->conversation);
    int code = err->code;
    if (code == ERR_CANCELLED) return code;
    answer_explain(&chat->server, err);
    bool may_go_on = chat->is_edited && started_is_there(&chat->started);
    if (!may_go_on) return err->code;
    chat_tell(err);
    return 0;
}

int chat_say(struct chat *chat, const char *text, size_t len, struct error *err)
{
    struct generate_summary summary = {0};
    struct error interrupted;
    int rc = conversation_add(&chat->conversation, "user", text, len, err);
    if (rc) return rc;
    chat->failed.len = 0; /* /retry is about this message now */
    rc = get_answer(chat, &summary, err);
    if (chat->answer.len) end_line(chat);
    bool is_stopped = rc == ERR_CANCELLED && !server_check_interrupt(&chat->server, &interrupted);
    if (rc && !is_stopped) return fail(chat, err);
    if (is_stopped) {
        terminal_style(&chat->terminal, STYLE_DIM);
        fputs("stopped; /retry asks again\n", stdout);
        terminal_style(&chat->terminal, STYLE_PLAIN);
    } else {
        keep_figures(chat, &summary);
        show_figures(chat, &summary);
    }
    rc = conversation_add(&chat->conversation, "assistant", (const char *)chat->answer.data,
                          chat->answer.len, err);
    return rc ? rc : client_flush(err);
}
