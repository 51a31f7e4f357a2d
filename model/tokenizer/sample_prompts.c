/* Questions of some kinds, because a draft guesses well on some and badly on others. */
#include "model/tokenizer/sample_prompts.h"

#include <string.h>

static const struct {
    const char *question, *text;
} prompts[SAMPLE_PROMPTS] = {
    {"Why is the sky blue?", "The sky is blue because"},
    {"Write a Python function that returns the n-th Fibonacci number.",
     "def fibonacci(n):\n    \"\"\"Returns the n-th Fibonacci number.\"\"\"\n"},
    {"Tell me a short story about a lighthouse.", "Once upon a time there was a lighthouse"},
    {"List five countries of Europe with their capitals, as JSON.", "{\n  \"France\": \"Paris\","},
    {"What should I look for when I buy a used car?", "When you buy a used car, look for"},
    {"A train leaves at 9:40 and arrives at 12:05. How long does it travel?",
     "A train leaves at 9:40 and arrives at 12:05, so it travels"},
    {"Translate into French: The library is closed on Mondays.",
     "The library is closed on Mondays. In French:"},
    {"Explain to a child how a bicycle stays upright.", "A bicycle stays upright because"},
};

/* By the template. Errors: also those of rendering. */
static int encode_chat(struct token_ids *ids, int number, const struct tokenizer *tok,
                       const struct chat_template *chat, int64_t now_s, struct error *err)
{
    struct buffer text = {0};
    int rc = 0;
    json_t *messages = json_pack("[{ss ss}]", "role", "user", "content", prompts[number].question);
    if (!messages) return error_set(err, ERR_NO_MEMORY, "no memory for a conversation");
    TRY(chat_template_render(chat, messages, true, NULL, now_s, &text, err));
    TRY(tokenizer_encode(tok, (const char *)text.data, text.len, TOKENIZER_PARSE_SPECIAL, ids,
                         err));
out:
    json_decref(messages);
    buffer_free(&text);
    return rc;
}

int sample_prompt(struct token_ids *ids, int number, const struct tokenizer *tok,
                  const struct chat_template *chat, int64_t now_s, size_t n_most, struct error *err)
{
    const char *text = prompts[number].text;
    ids->n = 0;
    int rc = chat ? encode_chat(ids, number, tok, chat, now_s, err) : 0;
    if (rc == ERR_NO_MEMORY) return rc;
    if (!rc && ids->n > 0 && ids->n <= n_most) return 0;
    ids->n = 0;
    rc = tokenizer_encode(tok, text, strlen(text), TOKENIZER_ADD_SPECIAL, ids, err);
    if (rc || ids->n <= n_most) return rc;
    return error_set(err, ERR_ARGUMENT, "a prompt of %zu tokens is longer than %zu", ids->n,
                     n_most);
}
