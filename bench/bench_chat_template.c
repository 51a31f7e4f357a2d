/* Measures the cost of writing a conversation in a model's chat template.
 *
 *   bench_chat_template FILE...
 *
 * For each template (tests/golden/templates has some) it prints the time of reading it, and the
 * median and the quartiles of rendering a system message and 20 turns of 400 bytes each, with the
 * generation prompt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/bench_util.h"
#include "model/tokenizer/chat_template.h"

enum { N_TURNS = 20, N_RENDERINGS = 2001, NOW_S = 1700000000 };

static const char sentence[] = "This is one of the eight equal sentences of a turn. ";

static void append(json_t *messages, const char *role, const char *content)
{
    if (json_array_append_new(messages, json_pack("{s:s,s:s}", "role", role, "content", content))) {
        fprintf(stderr, "no memory for a conversation\n");
        exit(EXIT_FAILURE);
    }
}

static json_t *make_conversation(void)
{
    char content[8 * sizeof sentence] = "";
    json_t *messages = json_array();
    for (int i = 0; i < 8; i++)
        strcat(content, sentence);
    append(messages, "system", "You are a helpful assistant.");
    for (int i = 0; i < N_TURNS; i++)
        append(messages, i % 2 ? "assistant" : "user", content);
    return messages;
}

static int measure(const char *path, json_t *messages, struct error *err)
{
    static double taken_us[N_RENDERINGS];
    struct chat_template *chat;
    struct buffer text = {0};
    int64_t start_ns = clock_now_ns();
    int rc = chat_template_open(&chat, "tests/golden/templates", path, err);
    double read_us = (double)(clock_now_ns() - start_ns) / 1000;
    for (int i = 0; i < N_RENDERINGS && !rc; i++) {
        start_ns = clock_now_ns();
        rc = chat_template_render(chat, messages, true, NULL, NOW_S, &text, err);
        taken_us[i] = (double)(clock_now_ns() - start_ns) / 1000;
    }
    if (!rc) {
        struct sample_quartiles us = sample_quartiles(taken_us, N_RENDERINGS);
        printf("%s: %zu bytes in %.1f us (%.1f to %.1f), read in %.0f us\n", path, text.len,
               us.median, us.low, us.high, read_us);
    }
    buffer_free(&text);
    chat_template_close(chat);
    return rc;
}

int main(int argc, char **argv)
{
    struct error err;
    json_t *messages = make_conversation();
    int rc = argc < 2 ? error_set(&err, ERR_ARGUMENT, "usage: bench_chat_template FILE...") : 0;
    for (int i = 1; i < argc && !rc; i++)
        rc = measure(argv[i], messages, &err);
    json_decref(messages);
    if (rc) fprintf(stderr, "%s\n", err.text);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
